"""Scoring a stored model from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from posteriori.cli.destinations import naming, require_destination
from posteriori.cli.inputs import ROWS_AT_ONCE, open_rows, require_columns, say_left_out, table_encoder, used_columns
from posteriori.cli.output import counted, plain_table, print_json, print_note, result_console
from posteriori.decision import Utility
from posteriori.decision.labels import as_classes
from posteriori.meta.batch_predictor import BatchPredictor
from posteriori.parameters import first_names
from posteriori.reports import DecisionValue, Evaluation, report, score_probabilities
from posteriori.storage import load
from posteriori.tables.files import TableFiles
from posteriori.tables.labelled import labelled

if TYPE_CHECKING:
    from rich.console import Console

_MOST_IN_A_REPORT = 200_000
"""The most rows that a report shows; beyond, the first of them."""
_MOST_CONFUSIONS = 20
"""The most confusions that are listed one by one."""
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
    if page is not None:
        inputs = [path, *tables, *([] if utility is None else [str(utility)])]
        require_destination(page, inputs, option="--report", what="a report")
    worth = None if utility is None else Utility.from_csv(utility)
    model = load(path)
    worth = None if worth is None else worth.ordered(model.classes_)
    files = open_rows(model, tables, target)
    target = _target(model, files.names, target)
    predicted = _predict(model, files, target, _MOST_IN_A_REPORT if page is not None else 0)
    evaluation = score_probabilities(predicted.labels, predicted.probabilities, model.classes_, utility=worth)
    if page is not None:
        facts = {"Target": target, "Model file": path, "Data": _data_files(tables)}
        _write_report(model, predicted, page, f"{Path(path).stem}: evaluation", facts, worth)
    if as_json:
        print_json({"model": path, "target": target, **evaluation.to_dict()})
        return
    _print_scores(evaluation, path)
    if evaluation.decisions is not None:
        _print_decisions(evaluation.decisions)
    if page is not None:
        result_console().print(f"\nReport: {page}", soft_wrap=True)


@dataclass(frozen=True)
class _Predicted:
    """Classes and probabilities of all rows, and the first rows themselves, as far as they are wanted."""

    labels: np.ndarray
    probabilities: np.ndarray
    rows: pa.Table


def _predict(model: Any, files: TableFiles, target: str, most: int) -> _Predicted:
    """Predict all rows whose class is known, piece by piece, and keep at most so many of the rows."""
    labels = _Labels()
    kept: list[pa.RecordBatch] = []
    features = [name for name in used_columns(model, files.names) if name != target]
    schema = pa.schema([files.schema.field(name) for name in features])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch, _ in files.pieces(ROWS_AT_ONCE, columns=[*features, target]):
            known = labelled(batch, target)
            if known.num_rows:
                rows, room = known.select(features), most - sum(map(len, kept))
                labels.add(known.column(known.schema.get_field_index(target)))
                if room > 0:
                    kept.append(rows.slice(0, room))
                yield rows

    predictor = BatchPredictor(model)
    P, n = np.empty((files.n_rows, len(model.classes_))), 0
    for rows in predictor.encoded(batches(), schema):
        found = predictor.classifier.predict_proba(rows)
        P[n : n + len(found)], n = found, n + len(found)
    say_left_out(files.n_rows - n, n, target)
    names, codes = as_classes(labels.names, model.classes_), labels.codes()
    known, shown = _of_known_classes(names, codes, model.classes_, target), pa.Table.from_batches(kept, schema)
    if known.all():
        return _Predicted(names[codes], P[:n], shown)
    shown = shown.filter(pa.array(known[: shown.num_rows]))
    return _Predicted(np.array(names[codes[known]].tolist()), P[:n][known], shown)


class _Labels:
    """Labels of many rows: each name once, and a number for every row."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}
        self.parts: list[np.ndarray] = []

    @property
    def names(self) -> list[Any]:
        return list(self.places)

    def add(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        places = [self.places.setdefault(name, len(self.places)) for name in encoded.dictionary.to_pylist()]
        self.parts.append(np.array(places, dtype=np.int32)[encoded.indices.to_numpy()])

    def codes(self) -> np.ndarray:
        return np.concatenate(self.parts)


def _of_known_classes(names: np.ndarray, codes: np.ndarray, classes: np.ndarray, target: str) -> np.ndarray:
    """Which rows are of classes that the model knows, (n,): the others have no probability, and a note names them."""
    unknown = [k for k, name in enumerate(names.tolist()) if name not in set(classes.tolist())]
    known = ~np.isin(codes, unknown)
    if known.all():
        return known
    n, held = int((~known).sum()), first_names(sorted(names[unknown].tolist(), key=str), 5)
    if 2 * n > len(codes):
        raise ValueError(
            f"{target!r} holds {held}, in {counted(n)} of {len(codes):,}, and the model knows the classes "
            f"{first_names(classes.tolist(), 5)}: name the column with the classes by --target, or fit the model again."
        )
    are = "is" if n == 1 else "are"
    print_note(f"{counted(n)} with a class that the fit did not see ({held}) {are} left out of all scores.")
    return known


def _write_report(
    model: Any, predicted: _Predicted, page: Path, title: str, facts: dict[str, str], utility: Utility | None
) -> None:
    n, n_shown = len(predicted.labels), predicted.rows.num_rows
    if n_shown < n:
        facts = facts | {"Rows": f"the first {n_shown:,} of {n:,}"}
    labels, P = predicted.labels[:n_shown], predicted.probabilities[:n_shown]
    with naming(page):
        report(model, predicted.rows, labels, page, title=title, facts=facts, probabilities=P, utility=utility)


def _target(model: Any, names: Sequence[str], given: str | None) -> str:
    """The column with the classes: as given, or as it was in the fit."""
    if given is not None:
        require_columns(names, [given], "--target")
        return given
    encoder = table_encoder(model)
    if encoder is None or encoder.target_ is None:
        raise ValueError("The model does not know the name of its target: give --target COLUMN.")
    name = str(encoder.target_)
    if name not in names:
        raise ValueError(
            f"The table has no column {name!r}, the target of the fit: give --target COLUMN, of "
            f"{first_names(names, 20)}."
        )
    return name


def _data_files(tables: Sequence[str]) -> str:
    """The files that the rows are from, each with the time of its last change."""
    named = []
    for name in tables:
        changed = ""
        if os.path.isfile(name):
            changed = f" (of {datetime.fromtimestamp(os.path.getmtime(name)):%Y-%m-%d %H:%M})"
        named.append(("standard input" if name == "-" else name) + changed)
    return ", ".join(named)


def _print_scores(evaluation: Evaluation, path: str) -> None:
    console = result_console()
    n = len(evaluation.codes)
    console.print(f"{path} on {counted(n)}.\n", soft_wrap=True)
    scores = plain_table("", "", "95 % interval")
    for key, name in _NAMES.items():
        score = evaluation.scores[key]
        interval = f"{score.lower:.4f} to {score.upper:.4f}" if score.has_interval else ""
        if n == 1 and not interval:
            interval = "one row has no interval"
        scores.add_row(name, f"{score.value:.4f}", "" if key == "log_loss_of_frequencies" else interval)
    console.print(scores)
    _print_confusions(console, evaluation)


def _print_confusions(console: Console, evaluation: Evaluation) -> None:
    """The confusion matrix if the screen has room for it, otherwise the largest confusions."""
    names = [str(name) for name in evaluation.classes]
    matrix = plain_table("", *names)
    for name, row in zip(names, evaluation.confusion, strict=True):
        matrix.add_row(name, *map(str, row))
    if console.measure(matrix, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print("\nTrue classes, by the most probable one:")
        console.print(matrix)
        return
    wrong = evaluation.confusion - np.diag(np.diag(evaluation.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    places = [np.unravel_index(place, wrong.shape) for place in order if wrong.flat[place]]
    if not places:
        console.print("\nNo row was taken for another class.")
        return
    n_kinds = int((wrong > 0).sum())
    listed = f"the {len(places)} largest of {n_kinds:,}" if len(places) < n_kinds else "all of them"
    console.print(f"\nConfusions, {listed}; --report shows the whole matrix:")
    table = plain_table("true class", "taken for", "rows", "of the class")
    table.columns[1].justify = "left"
    for k, j in places:
        share = wrong[k, j] / evaluation.confusion[k].sum()
        table.add_row(names[k], names[j], f"{wrong[k, j]:,}", f"{share:.1%}")
    console.print(table)


def _print_decisions(value: DecisionValue) -> None:
    console = result_console()
    console.print(
        f"\nUtility a row: {value.realised:.4g} realised, {value.expected:.4g} expected; always "
        f"{value.best_single_action!r}: {value.realised_by_best_single_action:.4g}."
    )
    actions = plain_table("action", "rows")
    for action, count in value.actions.items():
        actions.add_row(action, f"{count:,}")
    console.print(actions)
