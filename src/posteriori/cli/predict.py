"""Predictions and decisions from the command line: rows are read, predicted and written piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from posteriori.cli.destinations import naming, table_destination
from posteriori.cli.inputs import ROWS_AT_ONCE, open_rows, used_columns
from posteriori.decision import Utility
from posteriori.meta.batch_predictor import LABELS, BatchPredictor
from posteriori.meta.predict_to import require_kept
from posteriori.storage import load
from posteriori.tables.files import writing


def predict(
    path: str,
    tables: Sequence[str],
    out: str | None,
    form: str | None,
    keep: Sequence[str],
    interval: float | None,
    uncertainty: bool,
) -> None:
    """Write the most probable class of each row and the probability of each class."""
    out = table_destination(out, form, [path, *tables])
    predictor = BatchPredictor(load(path), interval=interval, uncertainty=uncertainty)
    _write(predictor, tables, out, form, keep)


def decide(
    path: str, tables: Sequence[str], utility: Path, out: str | None, form: str | None, keep: Sequence[str]
) -> None:
    """Write the best action of each row, and what each action is expected to be worth."""
    out = table_destination(out, form, [path, *tables, utility])
    worth = Utility.from_csv(utility)
    _write(BatchPredictor(load(path), probabilities=False, utility=worth), tables, out, form, keep)


def _write(
    predictor: BatchPredictor, tables: Sequence[str], out: str | None, form: str | None, keep: Sequence[str]
) -> None:
    rows = open_rows(predictor.model, tables)
    keep = require_kept(keep, rows.names, predictor.names, "--keep")
    used = used_columns(predictor.model, rows.names)
    schema = pa.schema([rows.schema.field(name) for name in used])
    with naming(out), writing(out, form, LABELS) as write:
        for table in predictor.tables(rows.pieces(ROWS_AT_ONCE, keep, used), schema):
            write(table)
