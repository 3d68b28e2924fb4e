"""Scoring a stored model from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from posteriori.cli.rows import encoder_of, labels_of, model_and_table, probabilities, require_columns, with_labels
from posteriori.cli.saying import listed, said, say_json
from posteriori.decision import Utility, decide
from posteriori.decision.scores import realised_utility
from posteriori.files import replacing
from posteriori.reports.evaluation import Evaluation, evaluate
from posteriori.reports.page import report_page

_MOST_CLASSES = 20
_NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "log_loss_of_frequencies": "log-loss of class frequencies",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def run(
    path: str, tables: Sequence[str], target: str | None, utility: Path | None, report: Path | None, as_json: bool
) -> None:
    """Load, read, score, and say what came out."""
    model, table = model_and_table(path, tables)
    target = _target(model, table, target)
    table = with_labels(table, target)
    P = probabilities(model, table)
    y = labels_of(table, target)
    judged = evaluate(y, P, model.classes_)
    utilities = None if utility is None else Utility.from_csv(utility).ordered(model.classes_)
    worth = None if utilities is None else _worth(y, P, model.classes_, utilities)
    if report is not None:
        title = f"{Path(path).stem}: evaluation"
        page = report_page(model, table, y, judged, title=title, model_name=path, utility=utilities)
        with replacing(report) as temporary:
            temporary.write_text(page, encoding="utf-8")
    if as_json:
        say_json({"model": path, **judged.to_dict(), **({} if worth is None else {"utility": worth})})
    else:
        _print(judged, path, worth)
        if report is not None:
            said().print(f"\nReport: {report}", markup=False)


def _target(model: Any, table: pa.Table, given: str | None) -> str:
    """The column with the classes: as given, or as it was in the fit."""
    if given is not None:
        require_columns(table, [given], "--target")
        return given
    encoder = encoder_of(model)
    if encoder is None or encoder.target_ is None:
        raise ValueError("The model does not know the name of its target: give --target COLUMN.")
    name = str(encoder.target_)
    if name not in table.column_names:
        raise ValueError(
            f"The table has no column {name!r}, the target of the fit: give --target COLUMN, of "
            f"{', '.join(map(repr, table.column_names))}."
        )
    return name


def _worth(y: Any, P: Any, classes: Any, utility: Utility) -> dict[str, Any]:
    """What decisions by these utilities were worth, beside the best single action for all rows."""
    decisions = decide(P, utility, classes=classes)
    fixed = {str(action): realised_utility(y, [action] * len(y), utility) for action in utility.actions}
    best = max(fixed, key=lambda action: fixed[action])
    counts = {str(action): int((decisions.actions == action).sum()) for action in utility.actions}
    return {
        "realised": realised_utility(y, decisions.actions, utility),
        "expected": float(decisions.expected_utility.max(axis=1).mean()),
        "actions": counts,
        "best_single_action": best,
        "realised_by_best_single_action": fixed[best],
    }


def _print(judged: Evaluation, path: str, worth: dict[str, Any] | None) -> None:
    console = said()
    console.print(f"{path} on {len(judged.codes)} rows.\n", markup=False)
    scores = listed("", "", "95 % interval")
    for key, name in _NAMES.items():
        score = judged.scores[key]
        interval = "" if key == "log_loss_of_frequencies" else f"{score.lower:.4f} to {score.upper:.4f}"
        scores.add_row(name, f"{score.value:.4f}", interval)
    console.print(scores)
    names = [str(name) for name in judged.classes]
    if len(names) <= _MOST_CLASSES:
        console.print("\nTrue classes, by the most probable one:", markup=False)
        confusion = listed("", *names)
        for name, row in zip(names, judged.confusion, strict=True):
            confusion.add_row(name, *map(str, row))
        console.print(confusion)
    if worth is not None:
        console.print(
            f"\nUtility a row: {worth['realised']:.4g} realised, {worth['expected']:.4g} expected; always "
            f"{worth['best_single_action']!r}: {worth['realised_by_best_single_action']:.4g}.",
            markup=False,
        )
        actions = listed("action", "rows")
        for action, count in worth["actions"].items():
            actions.add_row(action, str(count))
        console.print(actions)
