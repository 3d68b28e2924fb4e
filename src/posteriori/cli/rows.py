"""Tables and stored models as commands are given them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posteriori.cli.saying import note
from posteriori.rows.matrices import as_array
from posteriori.storage import load
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.files import read_files

__all__ = [
    "counted",
    "encoder_of",
    "labels_of",
    "model_and_table",
    "peak_memory",
    "probabilities",
    "require_columns",
    "row_parts",
    "with_labels",
]

_ROWS_AT_ONCE = 65_536
"""Rows that are encoded and predicted together: enough for all threads, and their features are few MB."""


def model_and_table(path: str, tables: Sequence[str]) -> tuple[Any, pa.Table]:
    """A stored model, and rows for it: what was text when it was fitted is read as text."""
    model = load(path)
    encoder = encoder_of(model)
    columns = () if encoder is None else encoder.encoding_.columns
    return model, read_files(tables, text=[column.name for column in columns if column.kind == "category"])


def probabilities(model: Any, table: pa.Table) -> np.ndarray:
    """Class probabilities (n, K), some rows at a time: all rows encoded may take more memory than the table itself."""
    if table.num_rows <= _ROWS_AT_ONCE:
        return model.predict_proba(table)
    P = np.empty((len(model.classes_), table.num_rows)).T  # each class in one piece, as it is written
    try:
        for rows in row_parts(table.num_rows):
            P[rows] = model.predict_proba(table.slice(rows.start, rows.stop - rows.start))
    except ValueError:
        return model.predict_proba(table)  # raises again, with rows counted from the first of the table
    return P


def row_parts(n_rows: int) -> list[slice]:
    """Rows that are dealt with together.

    Examples
    --------
    >>> row_parts(100_000)
    [slice(0, 65536, None), slice(65536, 100000, None)]
    """
    return [slice(start, min(start + _ROWS_AT_ONCE, n_rows)) for start in range(0, n_rows, _ROWS_AT_ONCE)]


def encoder_of(model: Any) -> TableEncoder | None:
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
            f"{', '.join(map(repr, table.column_names))}."
        )


def with_labels(table: pa.Table, target: str) -> pa.Table:
    """The rows whose target is known; what is left out is said."""
    unknown = pc.is_null(table[target], nan_is_null=True)
    n_unknown = pc.sum(unknown).as_py()
    if n_unknown == table.num_rows:
        raise ValueError(f"No row of the table has a value of {target!r}.")
    if n_unknown == 0:
        return table
    note(f"{n_unknown} rows without {target} are left out.")
    return table.filter(pc.invert(unknown))


def counted(table: pa.Table, column: str) -> dict[Any, int]:
    """How often each value of a column occurs, in the order of the values."""
    found = pc.value_counts(table[column])
    pairs = zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: (str(type(pair[0])), pair[0])))


def peak_memory() -> int | None:
    """The most memory that this process has used, in MB, where the system tells."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3))


def labels_of(table: pa.Table, target: str) -> np.ndarray:
    """The labels, (n,)."""
    return as_array(table[target])
