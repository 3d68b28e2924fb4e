"""A fitted model that is asked by others: its name, its columns, what it can answer, and its answers.

The model may be a classifier, a Pipeline, or either of them within a ConformalClassifier or a UtilityClassifier: these
leave probabilities as they are, and add prediction sets or a utility.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.pipeline import Pipeline

from posteriori.decision.conformal import Calibration, prediction_sets
from posteriori.decision.decisions import decide
from posteriori.decision.utility import Utility
from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.meta.conformal_classifier import ConformalClassifier
from posteriori.meta.utility_classifier import UtilityClassifier
from posteriori.rows.matrices import NamedMatrix
from posteriori.rows.schema import ignored_columns
from posteriori.serve.answers import DECIDED, INTERVALS, PARTS, Answers, Asked
from posteriori.serve.errors import Refusal
from posteriori.serve.model_columns import ModelColumn, encoded_columns, plain_columns
from posteriori.serve.rows import SentRows
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.tables.encode import encode
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.files import fitted_kinds
from posteriori.tables.plans import Encoding
from posteriori.tables.surprises import Surprises
from posteriori.trees.base import TreeClassifier

__all__ = ["ServedModel", "served"]

_LEVEL = 0.95
_FAST = (SoftmaxRegression, BayesianSoftmaxRegression, GaussianClassifier, TreeClassifier)
"""Classifiers that read a `NamedMatrix`; others are given a table, which every classifier reads."""
_ROWS_AT_ONCE = 65_536
"""Rows that are encoded and predicted together: their features are few MB."""


@dataclass(frozen=True)
class ServedModel:
    """A model ready to answer.

    Attributes
    ----------
    name, version : str
    model : fitted classifier or Pipeline, as it was loaded
    classifier : the classifier whose probabilities are answered
    front : list of transformers in front of it
    classes : list
        The classes as values of JSON.
    columns : tuple of ModelColumn
    ignored : frozenset of str
        Columns that rows may have although the model does not read them: the target, and what the fit has dropped.
    target : str or None
        The column that held the classes in the fit, where that is known.
    utility : Utility or None
        What decisions are taken by, unless a request brings its own; its states are in the order of the classes.
    calibration, alpha
        Those of a ConformalClassifier, or None.
    """

    name: str
    version: str
    model: Any
    classifier: Any
    front: list[Any]
    classes: list[Any]
    columns: tuple[ModelColumn, ...]
    ignored: frozenset[str]
    target: str | None
    utility: Utility | None
    calibration: Calibration | None
    alpha: float

    @property
    def answers(self) -> list[str]:
        """What the model can answer, its own utility or that of the server included."""
        possible = ["class", "proba"]
        possible += INTERVALS if hasattr(self.classifier, "predict_interval") else ()
        possible += PARTS if hasattr(self.classifier, "uncertainty") else ()
        possible += ["set"] if self.calibration is not None else []
        return possible + list(DECIDED if self.utility is not None else ())

    @property
    def encoder(self) -> TableEncoder | None:
        """The table encoder, where it alone stands before the classifier."""
        return self.front[0] if len(self.front) == 1 and isinstance(self.front[0], TableEncoder) else None

    @property
    def is_unnamed(self) -> bool:
        """Whether the fit saw a matrix, whose columns have no names."""
        return self.encoder is None and getattr(self.model, "feature_names_in_", None) is None

    @property
    def kinds(self) -> dict[str, str]:
        """What text in a column is read as, by the names of the columns."""
        truth = {} if self.target is None else {self.target: "label"}
        if self.encoder is None:
            return truth | {column.name: column.kind for column in self.columns}
        return truth | fitted_kinds(column for column in self.encoder.encoding_.columns if column.plan is not None)

    def described(self) -> dict[str, Any]:
        """What a client should know of the model, for JSON."""
        return {
            "name": self.name,
            "version": self.version,
            "class": type(self.classifier).__name__,
            "classes": self.classes,
            "target": self.target,
            "columns": [column.described() for column in self.columns],
            "ignored": sorted(self.ignored),
            "answers": self.answers,
            "utility": None if self.utility is None else plain_utility(self.utility),
        }

    def answer(self, rows: SentRows, asked: Asked) -> Answers:
        """Answer rows, in pieces if they are many."""
        pieces = list(self.pieces(rows, asked))
        if not pieces:
            raise Refusal("There are no rows.")
        if len(pieces) == 1:
            return pieces[0]
        warnings = tuple(dict.fromkeys(sentence for piece in pieces for sentence in piece.warnings))
        values = {name: np.concatenate([piece.values[name] for piece in pieces]) for name in pieces[0].values}
        return replace(pieces[0], values=values, warnings=warnings)

    def pieces(self, rows: SentRows, asked: Asked) -> Iterator[Answers]:
        """The answers to rows in order, those to so many rows at a time that memory is bounded."""
        arrays = rows.arrays(self.columns)
        for start in range(0, rows.n_rows, _ROWS_AT_ONCE):
            some = {name: values[start : start + _ROWS_AT_ONCE] for name, values in arrays.items()}
            yield self._answer(some, asked, start)

    def typical_rows(self) -> SentRows:
        """One row with typical values, with which the model is tried before it is asked."""
        lists = {column.name: [column.described()["typical"]] for column in self.columns}
        return SentRows({column.name: column.checked(lists[column.name]) for column in self.columns}, 1, listed=True)

    def warm_up(self) -> None:
        """Answer one typical row in every way, so that the first who asks does not wait, or find a fault."""
        rows = self.typical_rows()
        if any(value is None for values in rows.columns.values() for value in values) and self.encoder is None:
            rows = SentRows({column.name: [0.0] for column in self.columns}, 1, listed=True)
        self.answer(rows, Asked(tuple(self.answers), accept_new=True))

    def _answer(self, columns: dict[str, Any], asked: Asked, first: int) -> Answers:
        inputs, warnings = self._inputs(columns, asked, first)
        classifier = self.classifier
        try:
            P = np.asarray(classifier.predict_proba(inputs), dtype=np.float64)
        except ValueError as error:
            raise self._unfit(columns, first, error) from None
        values: dict[str, np.ndarray] = {"class": P.argmax(axis=1), "proba": P}
        if asked.wants(INTERVALS):
            lower, upper = classifier.predict_interval(inputs, asked.level or _LEVEL)
            values |= {"lower": lower, "upper": upper}
        if asked.wants(PARTS):
            values |= zip(PARTS, classifier.uncertainty(inputs), strict=True)
        if asked.wants(("set",)) and self.calibration is not None:
            alpha = self.alpha if asked.level is None else 1.0 - asked.level
            values["set"] = prediction_sets(P, self.calibration, alpha, np.asarray(classifier.classes_)).members
        utility = self._utility(asked)
        if utility is not None:
            found = decide(P, utility)
            told = (found.codes, found.expected_utility, found.margin, found.value_of_information)
            values |= zip(DECIDED, told, strict=True)
        actions = [] if utility is None else utility.actions.tolist()
        return Answers({name: values[name] for name in asked.answers}, self.classes, actions, warnings)

    def _utility(self, asked: Asked) -> Utility | None:
        """The utility to decide by, its states in the order of the classes; None if nothing is to be decided."""
        if not asked.wants(DECIDED):
            return None
        if asked.utility is None:
            return self.utility
        try:
            return asked.utility.ordered(self.classifier.classes_)
        except ValueError as error:
            raise Refusal(str(error)) from None

    def _inputs(self, columns: dict[str, Any], asked: Asked, first: int) -> tuple[Any, tuple[str, ...]]:
        """Rows as the classifier sees them, and what is to be said of them; `first` is the number of the first row."""
        encoder = self.encoder
        try:
            if encoder is not None:
                told = Surprises()
                M = encode(encoder.encoding_, columns, told)
                findings = list(told.findings())
                if findings and not asked.accept_new:
                    raise self._new_level(findings[0], columns, first)
                names = encoder.encoding_.names
                return self._encoded(M, names), tuple(map(str, findings))
            inputs: Any = self._plain_inputs(columns)
            for transformer in self.front:
                inputs = transformer.transform(inputs)
            return inputs, ()
        except (ValueError, TypeError) as error:
            raise Refusal(str(error)) from None

    def _encoded(self, M: np.ndarray, names: list[str]) -> Any:
        """Encoded rows as the classifier reads them fastest: a table costs ten times what one row does."""
        if isinstance(self.classifier, _FAST):
            return NamedMatrix(M, names)
        return pa.table([pa.array(M[:, d]) for d in range(len(names))], names)

    def _plain_inputs(self, columns: dict[str, Any]) -> Any:
        """Columns as the model took them in its fit: a table if they had names, otherwise a matrix."""
        if self.is_unnamed:
            return np.column_stack([np.asarray(columns[column.name], dtype=np.float64) for column in self.columns])
        table = pa.table({column.name: columns[column.name] for column in self.columns})
        return table.to_pandas() if self.front else table  # transformers of scikit-learn know pandas

    def _unfit(self, columns: dict[str, Any], first: int, error: ValueError) -> Refusal:
        """Refuse rows that the classifier cannot predict, naming the first value that is not a finite number."""
        for column in self.columns:
            values = columns[column.name]
            numbers = np.asarray(values, dtype=np.float64) if column.kind == "number" else np.zeros(len(values))
            if not np.isfinite(numbers).all():
                i = int(np.argmin(np.isfinite(numbers)))
                row = first + i + 1
                why = "is missing, and the model cannot do without it" if np.isnan(numbers[i]) else "is not finite"
                return Refusal(f"Row {row}: column {column.name!r} {why}.", row=row, column=column.name)
        return Refusal(str(error))

    def _new_level(self, finding: Any, columns: dict[str, Any], first: int) -> Refusal:
        """Refuse values that the fit did not know, naming the first row that holds one."""
        name = getattr(finding, "column", None) or finding.columns[0]
        values = np.asarray(columns[name])
        new = getattr(finding, "levels", None)
        here = ~np.isfinite(values) & ~np.isnan(values) if new is None else np.isin(values.astype(object), list(new))
        row = first + int(np.argmax(here)) + 1
        advice = "" if new is None else ' Send "new_levels": "accept" to have them encoded so.'
        remedy = None if new is None else {"new_levels": "accept"}
        return Refusal(f"Row {row}: {finding}{advice}", row=row, column=name, remedy=remedy)


def plain_utility(utility: Utility) -> dict[str, Any]:
    """A utility as an object of JSON."""
    assert utility.matrix is not None
    return {
        "states": utility.states.tolist(),
        "actions": utility.actions.tolist(),
        "matrix": utility.matrix.tolist(),
    }


def served(name: str, version: str, model: Any, utility: Utility | None = None) -> ServedModel:
    """Prepare a fitted model to be asked; `utility` takes the place of its own, if it has one.

    Raises
    ------
    ValueError
        If the model is not a fitted classifier with probabilities, or the utility is not one for its classes.
    """
    front: list[Any] = []
    inner, own, calibration, alpha = model, None, None, 0.0
    for layer in _layers(model):
        if isinstance(layer, Pipeline):
            front += [step for _, step in layer.steps[:-1] if step is not None and step != "passthrough"]
        elif isinstance(layer, ConformalClassifier):
            calibration, alpha = layer.calibration_, float(layer.alpha)
        elif isinstance(layer, UtilityClassifier):
            own = layer.utility if layer.utility is not None and layer.utility.constant else own
        else:
            inner = layer
    if not hasattr(inner, "classes_") or not hasattr(inner, "predict_proba"):
        raise ValueError(f"{name!r} is a {type(inner).__name__}: a fitted classifier with probabilities is needed.")
    chosen = own if utility is None else utility
    if chosen is not None:
        if not chosen.constant:
            raise ValueError("utility differs from row to row: one that is the same for all rows is needed here.")
        chosen = chosen.ordered(inner.classes_)
    encoder = front[0] if len(front) == 1 and isinstance(front[0], TableEncoder) else None
    columns, ignored, target = _columns(model, inner, encoder)
    classes = np.asarray(inner.classes_).tolist()
    return ServedModel(
        name, version, model, inner, front, classes, columns, ignored, target, chosen, calibration, alpha
    )  # fmt: skip


def _layers(model: Any) -> Iterator[Any]:
    """The model, and what is within it as long as that answers the same probabilities."""
    while True:
        yield model
        if isinstance(model, Pipeline):
            model = model.steps[-1][1]
        elif isinstance(model, (ConformalClassifier, UtilityClassifier)) and hasattr(model, "estimator_"):
            model = model.estimator_
        else:
            return


def _columns(
    model: Any, classifier: Any, encoder: TableEncoder | None
) -> tuple[tuple[ModelColumn, ...], frozenset[str], str | None]:
    """The columns that a model reads, those to ignore, and the target."""
    if encoder is not None:
        encoding: Encoding = encoder.encoding_
        dropped = {column.name for column in encoding.columns if column.plan is None}
        return encoded_columns(encoder), frozenset(dropped | set(encoding.apart)), encoder.target_
    names = _first(model, "feature_names_in_", lambda found: [str(name) for name in found])
    width = _first(model, "n_features_in_", int)
    named = names if names is not None else [f"x{d}" for d in range(width or 0)]
    apart = frozenset(ignored_columns(classifier))
    return plain_columns([name for name in named if name not in apart]), apart, min(apart, default=None)


def _first(model: Any, attribute: str, read: Callable[[Any], Any]) -> Any:
    """An attribute of the outermost layer that has it."""
    found = (getattr(layer, attribute, None) for layer in _layers(model))
    return next((read(value) for value in found if value is not None), None)
