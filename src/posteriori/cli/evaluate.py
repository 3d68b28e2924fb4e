"""Scoring a stored model from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from posteriori.cli.inputs import (
    drop_unlabelled,
    load_model_and_table,
    predict_in_parts,
    require_columns,
    table_encoder,
)
from posteriori.cli.output import plain_table, print_json, result_console
from posteriori.decision import Utility
from posteriori.reports import DecisionValue, Evaluation, evaluate, report

_MOST_CLASSES = 20
_NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "log_loss_of_frequencies": "log-loss of class frequencies",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def run(
    path: str, tables: Sequence[str], target: str | None, utility: Path | None, page: Path | None, as_json: bool
) -> None:
    """Load the model, read the table, score, and print the scores."""
    model, table = load_model_and_table(path, tables)
    target = _target(model, table, target)
    table = drop_unlabelled(table, target)
    options: dict[str, Any] = {"probabilities": predict_in_parts(model, table)}
    if utility is not None:
        options["utility"] = Utility.from_csv(utility).ordered(model.classes_)
    if page is None:
        evaluation = evaluate(model, table, target, **options)
    else:
        title = f"{Path(path).stem}: evaluation"
        evaluation = report(model, table, target, page, title=title, name=path, **options).evaluation
    if as_json:
        print_json({"model": path, **evaluation.to_dict()})
        return
    _print_scores(evaluation, path)
    if evaluation.decisions is not None:
        _print_decisions(evaluation.decisions)
    if page is not None:
        result_console().print(f"\nReport: {page}", markup=False)


def _target(model: Any, table: pa.Table, given: str | None) -> str:
    """The column with the classes: as given, or as it was in the fit."""
    if given is not None:
        require_columns(table, [given], "--target")
        return given
    encoder = table_encoder(model)
    if encoder is None or encoder.target_ is None:
        raise ValueError("The model does not know the name of its target: give --target COLUMN.")
    name = str(encoder.target_)
    if name not in table.column_names:
        raise ValueError(
            f"The table has no column {name!r}, the target of the fit: give --target COLUMN, of "
            f"{', '.join(map(repr, table.column_names))}."
        )
    return name


def _print_scores(evaluation: Evaluation, path: str) -> None:
    console = result_console()
    console.print(f"{path} on {len(evaluation.codes)} rows.\n", markup=False)
    scores = plain_table("", "", "95 % interval")
    for key, name in _NAMES.items():
        score = evaluation.scores[key]
        interval = "" if key == "log_loss_of_frequencies" else f"{score.lower:.4f} to {score.upper:.4f}"
        scores.add_row(name, f"{score.value:.4f}", interval)
    console.print(scores)
    names = [str(name) for name in evaluation.classes]
    if len(names) <= _MOST_CLASSES:
        console.print("\nTrue classes, by the most probable one:", markup=False)
        confusion = plain_table("", *names)
        for name, row in zip(names, evaluation.confusion, strict=True):
            confusion.add_row(name, *map(str, row))
        console.print(confusion)


def _print_decisions(value: DecisionValue) -> None:
    console = result_console()
    console.print(
        f"\nUtility a row: {value.realised:.4g} realised, {value.expected:.4g} expected; always "
        f"{value.best_single_action!r}: {value.realised_by_best_single_action:.4g}.",
        markup=False,
    )
    actions = plain_table("action", "rows")
    for action, count in value.actions.items():
        actions.add_row(action, str(count))
    console.print(actions)
