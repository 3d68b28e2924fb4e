"""What commands are given: tables and stored models, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posteriori.cli.output import print_note
from posteriori.storage import load
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.files import read_files

__all__ = [
    "drop_unlabelled",
    "load_model_and_table",
    "predict_in_parts",
    "require_columns",
    "row_slices",
    "table_encoder",
]

_ROWS_AT_ONCE = 65_536
"""Rows that are encoded and predicted together: enough for all threads, and their features are few MB."""


def load_model_and_table(path: str, tables: Sequence[str]) -> tuple[Any, pa.Table]:
    """A stored model, and rows for it: columns that were text when it was fitted are read as text."""
    model = load(path)
    encoder = table_encoder(model)
    columns = () if encoder is None else encoder.encoding_.columns
    return model, read_files(tables, text=[column.name for column in columns if column.kind == "category"])


def predict_in_parts(model: Any, table: pa.Table) -> np.ndarray:
    """Class probabilities (n, K), some rows at a time: all rows encoded may take more memory than the table itself."""
    if table.num_rows <= _ROWS_AT_ONCE:
        return model.predict_proba(table)
    P = np.empty((len(model.classes_), table.num_rows)).T  # each class in one piece, as it is written
    try:
        for rows in row_slices(table.num_rows):
            P[rows] = model.predict_proba(table.slice(rows.start, rows.stop - rows.start))
    except ValueError:
        return model.predict_proba(table)  # raises again, with rows counted from the first of the table
    return P


def row_slices(n_rows: int) -> list[slice]:
    """Slices of n rows, each small enough to be encoded and predicted at once.

    Examples
    --------
    >>> row_slices(100_000)
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    return [slice(start, min(start + _ROWS_AT_ONCE, n_rows)) for start in range(0, n_rows, _ROWS_AT_ONCE)]


def table_encoder(model: Any) -> TableEncoder | None:
    """The encoder at the beginning of a pipeline, if there is one."""
    while not hasattr(model, "steps") and hasattr(model, "estimator_"):
        model = model.estimator_
    first = model.steps[0][1] if hasattr(model, "steps") else None
    return first if isinstance(first, TableEncoder) else None


def require_columns(table: pa.Table, names: Sequence[str], argument: str) -> None:
    """Raise unless the table has all of these columns."""
    absent = [name for name in names if name not in table.column_names]
    if absent:
        raise ValueError(
            f"{argument} names {', '.join(map(repr, absent))}, and the table has the columns "
            f"{', '.join(map(repr, table.column_names))}: name columns of the table."
        )


def drop_unlabelled(table: pa.Table, target: str) -> pa.Table:
    """The rows whose target is known; a note says how many are left out."""
    unknown = pc.is_null(table[target], nan_is_null=True)
    n_unknown = pc.sum(unknown).as_py()
    if n_unknown == table.num_rows:
        raise ValueError(f"No row of the table has a value of {target!r}.")
    if n_unknown == 0:
        return table
    print_note(f"{n_unknown} rows without {target} are left out.")
    return table.filter(pc.invert(unknown))
