"""Dask DataFrames encoded on their workers: partitions are summarised there, and encoded when they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.rows.dask import tree
from posteriori.rows.dask_tasks import in_partition
from posteriori.tables.columns import EMPTY
from posteriori.tables.encode import encode
from posteriori.tables.plans import Encoding
from posteriori.tables.sources import open_source
from posteriori.tables.summaries import Summary, merge_summaries, summarise_source

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["encode_dask", "summarise_dask"]

Found = tuple[int, list[Summary]]
"""The number of a partition, or of the first of several, and the summaries of its columns: none if it is empty."""


def summarise_dask(X: Any, *, skip: Collection[str] = ()) -> list[Summary]:
    """Summaries of all columns but those to skip, in one pass over the partitions, merged in their order."""
    import dask

    summarised = dask.delayed(summarise_partition, pure=False)
    parts = [summarised(rows, tuple(skip), number) for number, rows in enumerate(X.to_delayed())]
    _, summaries = dask.compute(tree(dask.delayed(merge_partitions, pure=False), parts))[0]
    if not summaries:
        raise ValueError("Found array with 0 sample(s) in X while a minimum of 1 is required.")
    return summaries


def summarise_partition(rows: pd.DataFrame, skip: tuple[str, ...], number: int) -> Found:
    """Summaries of one partition."""
    with in_partition(number):
        return number, summarise_source(open_source(rows), skip=skip) if len(rows) else []


def merge_partitions(found: Sequence[Found]) -> Found:
    """Summaries of neighbouring partitions, whose columns must be of one kind each."""
    filled = [(number, summaries) for number, summaries in found if summaries]
    if not filled:
        return found[0]
    first, total = filled[0]
    for number, summaries in filled[1:]:
        _require_same_columns(first, total, number, summaries)
        total = [merge_summaries(a, b) for a, b in zip(total, summaries, strict=True)]
    return first, total


def _require_same_columns(i: int, a: list[Summary], j: int, b: list[Summary]) -> None:
    if [column.name for column in a] != [column.name for column in b]:
        differ = sorted({column.name for column in a} ^ {column.name for column in b}) or "in another order"
        raise ValueError(f"Partitions {i} and {j} of X differ in their columns: {differ}.")
    for p, q in zip(a, b, strict=True):
        if p.kind != q.kind and EMPTY not in (p.kind, q.kind):
            raise ValueError(
                f"Column {p.name!r} of X is of kind {p.kind} in partition {i} and of kind {q.kind} in partition {j}: "
                "convert it to one kind."
            )


def encode_dask(encoding: Encoding, X: Any, renamed: dict[str, str], carried: list[str]) -> Any:
    """A Dask DataFrame of the encoded rows, computed when it is asked for."""
    import pandas as pd

    features = pd.DataFrame(np.empty((0, len(encoding.names))), columns=encoding.names, index=X._meta.index)
    meta = features.assign(**{name: X._meta[name] for name in carried})
    return X.map_partitions(encode_partition, encoding, renamed, carried, meta=meta)


def encode_partition(
    rows: pd.DataFrame, encoding: Encoding, renamed: dict[str, str], carried: list[str]
) -> pd.DataFrame:
    """Features of float64, then the carried columns."""
    import pandas as pd

    matrix = np.empty((0, len(encoding.names)))
    if len(rows):
        (batch,) = open_source(rows).batches()
        matrix = encode(encoding, {renamed.get(name, name): raw for name, raw in batch.items()})
    features = pd.DataFrame(matrix, columns=encoding.names, index=rows.index, copy=False)
    return features.assign(**{name: rows[name] for name in carried})
