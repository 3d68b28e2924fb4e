"""Decisions from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from posteriori.cli.inputs import load_model_and_table, predict_in_parts, require_columns
from posteriori.decision import Utility, decide
from posteriori.tables.files import write_file


def run(
    path: str, tables: Sequence[str], utility: Path, out: str | None, form: str | None, keep: Sequence[str]
) -> None:
    """Load the model, read the table, predict, decide, write."""
    worth = Utility.from_csv(utility)
    model, table = load_model_and_table(path, tables)
    require_columns(table, keep, "--keep")
    worth = worth.ordered(model.classes_)
    decisions = decide(predict_in_parts(model, table), worth, classes=model.classes_)
    columns: dict[str, Any] = {name: table[name] for name in keep}
    columns["action"] = pa.array([str(action) for action in decisions.actions])
    columns |= {f"utility({action})": decisions.expected_utility[:, a] for a, action in enumerate(worth.actions)}
    columns |= {"margin": decisions.margin, "value_of_information": decisions.value_of_information}
    write_file(pa.table(columns), out, form)
