"""Tables and stored models as commands are given them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posteriori.cli.saying import note
from posteriori.data.features import as_array
from posteriori.data.table_files import read_files
from posteriori.estimators.table_encoder import TableEncoder
from posteriori.storage import load

__all__ = ["encoder_of", "labels_of", "model_and_table", "require_columns", "with_labels"]


def model_and_table(path: str, tables: Sequence[str]) -> tuple[Any, pa.Table]:
    """A stored model, and rows for it: what was text when it was fitted is read as text."""
    model = load(path)
    encoder = encoder_of(model)
    columns = () if encoder is None else encoder.encoding_.columns
    return model, read_files(tables, text=[column.name for column in columns if column.kind == "category"])


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
    known = pc.is_valid(table[target])
    if pa.types.is_floating(table[target].type):
        known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(table[target]), True)))
    kept = table.filter(known)
    if kept.num_rows < table.num_rows:
        note(f"{table.num_rows - kept.num_rows} rows without {target} are left out.")
    if kept.num_rows == 0:
        raise ValueError(f"No row of the table has a value of {target!r}.")
    return kept


def labels_of(table: pa.Table, target: str) -> np.ndarray:
    """The labels, (n,)."""
    return as_array(table[target])
