"""Tasks of Dask's workers, one partition each: read it, count its labels, sum over its rows, pick some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.rows.features import NotFinite, first_not_finite
from posteriori.rows.matrices import read_matrix
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.pieces import LabelCounts, Layout, count_labels, numbers, read_piece, require_numbers
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Part",
    "Reader",
    "Work",
    "add_sums",
    "count_partition",
    "count_rows",
    "find_not_finite",
    "in_partition",
    "map_partition",
    "pick_rows",
    "read_partition",
    "sum_partition",
]

Part = tuple[np.ndarray, "np.ndarray | None", "np.ndarray | None"]
"""X (n, D), codes (n,) and weights (n,) of one partition."""


@dataclass(frozen=True)
class Reader:
    """The way in which a partition becomes (X, Y, c)."""

    names: list[str] | None
    n_features: int
    layout: Layout

    def matrix(self, rows: Any) -> np.ndarray:
        """X (n, D) of a pandas DataFrame or an array."""
        if self.names is None:
            if rows.ndim != 2 or rows.shape[1] != self.n_features:
                raise ValueError(f"it has shape {rows.shape}, and the first one {self.n_features} columns.")
            return np.asarray(read_matrix(rows)[0]) if len(rows) else np.empty((0, self.n_features))
        import pyarrow as pa

        missing = [name for name in self.names if name not in rows.columns]
        if missing:
            raise ValueError(f"it has no columns {missing}; it has {list(rows.columns)[:10]}.")
        if not len(rows):
            return np.empty((0, self.n_features))
        batch = pa.RecordBatch.from_pandas(rows[self.names], preserve_index=False)
        require_numbers(batch.schema, self.names)
        return numbers(batch.columns)

    def labels(self, rows: Any, y: Any, weights: Any) -> pa.RecordBatch:
        """Labels and weights, if there are any; a name stands for a column of the partition."""
        import pyarrow as pa

        given = {self.layout.target: y} | ({} if self.layout.weight is None else {self.layout.weight: weights})
        columns = {name: _arrow(rows[v] if isinstance(v, str) else v) for name, v in given.items()}
        sizes = {name: len(column) for name, column in columns.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"its columns differ in length: {sizes}.")
        return pa.RecordBatch.from_pydict(columns)


def _arrow(values: Any) -> pa.Array:
    """Values of one column; integers, floats and texts of one width each, so that those of partitions compare."""
    import pyarrow as pa

    array = pa.array(values if values.ndim == 1 else np.ravel(values), from_pandas=True)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if types.is_integer(kind):
        return array.cast(pa.int64())
    if types.is_floating(kind):
        return array.cast(pa.float64())
    return array.cast(pa.large_string()) if types.is_string(kind) or types.is_string_view(kind) else array


@contextmanager
def in_partition(number: int) -> Iterator[None]:
    """Raise errors again with the number of the partition in which they occurred."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"Partition {number} of X: {error}") from error


def count_partition(reader: Reader, rows: Any, y: Any, weights: Any, number: int) -> LabelCounts:
    """Labels of one partition, each with its weight."""
    assert reader.layout.target is not None
    with in_partition(number):
        return count_labels(reader.labels(rows, y, weights), reader.layout.target, reader.layout.weight)


def read_partition(reader: Reader, rows: Any, y: Any, weights: Any, number: int, n_rows: int | None) -> Part:
    """(X, Y, c) of one partition, which must have as many rows as were counted."""
    with in_partition(number):
        X = reader.matrix(rows)
        if n_rows is not None and len(X) != n_rows:
            raise ValueError(
                f"it has {len(X)} rows, and {n_rows} labels: X and y must have the same rows in every pass."
            )
        if reader.layout.target is None:
            return X, None, None
        _, Y, c = read_piece(reader.labels(rows, y, weights), replace(reader.layout, features=()), True)
        return X, Y, c


@dataclass(frozen=True)
class Work:
    """One pass: what is done with every partition."""

    n_classes: int
    shift: np.ndarray | None
    scale: np.ndarray | None
    kernel: Callable[..., Any] | None = None
    params: tuple[Any, ...] = ()
    coarse: bool = False
    reader: Reader | None = None
    """The reader, if values that are not finite are to be located."""

    def blocks(self, part: Part) -> MemoryBlocks:
        """A partition in blocks; one thread, as Dask runs partitions side by side."""
        X, Y, c = map(_aligned, part)
        return MemoryBlocks(X, Y, c, self.n_classes, shift=self.shift, scale=self.scale)


def _aligned(values: Any) -> Any:
    """An array as NumPy would have made it: one that travelled may begin anywhere, and then sums round differently."""
    return np.require(values, requirements="A") if isinstance(values, np.ndarray) else values


@contextmanager
def _quietly() -> Iterator[None]:
    """Run without warnings of overflow, which is found in the sums, and with one thread of BLAS."""
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        yield


def sum_partition(work: Work, part: Part) -> Any:
    """The sum of a kernel over one partition."""
    assert work.kernel is not None
    with _quietly():
        return work.blocks(part).map_sum(work.kernel, *map(_aligned, work.params), coarse=work.coarse)


def add_sums(sums: list[Any]) -> Any:
    """Sums of neighbouring partitions, added in their order."""
    total, *others = sums
    for other in others:
        total = total + other
    return total


def map_partition(work: Work, part: Part, number: int) -> np.ndarray | NotFinite:
    """A kernel's values for the rows of one partition, (K, n), or the value that is not finite and must be."""
    assert work.kernel is not None
    if not len(part[0]):
        return np.empty((work.n_classes, 0))
    if work.reader is not None and (found := find_not_finite(work.reader, part, False, number)) is not None:
        return found
    with _quietly():
        return work.blocks(part).map_rows(work.kernel, *work.params)


def pick_rows(work: Work, part: Part, rows: np.ndarray | None = None, weighted: bool = False) -> Part:
    """Some rows of one partition, by their numbers, among those of positive weight if `weighted`; None for all."""
    X, Y, c = part
    rows = np.arange(len(X)) if rows is None else rows
    if weighted and c is not None:
        rows = np.flatnonzero(c > 0)[rows]
    picked = np.ascontiguousarray(work.blocks(part).features(rows))
    return picked, None if Y is None else Y[rows], None if c is None else c[rows]


def count_rows(weighted: bool, part: Part) -> int:
    """Rows of one partition; those of positive weight if `weighted`."""
    X, _, c = part
    return int(np.count_nonzero(c > 0)) if weighted and c is not None else len(X)


def find_not_finite(reader: Reader, part: Part, missing_allowed: bool, number: int) -> NotFinite | None:
    """The first value of one partition that is not finite, if there is one."""
    found = first_not_finite(part[0], reader.names, missing_allowed=missing_allowed)
    return None if found is None else found._replace(partition=number)
