r"""What can be asked of rows: classes and probabilities with intervals, parts of the uncertainty, sets and decisions.

An `Asked` says which answers are wanted, and how; `Answers` are arrays, one entry for each row, that the protocols
write in their own ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from posteriori.decision.utility import Utility
from posteriori.parameters import first_names
from posteriori.serve.errors import Refusal

__all__ = [
    "ANSWERS",
    "BY_ACTION",
    "BY_CLASS",
    "DECIDED",
    "INTERVALS",
    "MOST_ACTIONS",
    "PARTS",
    "Answers",
    "Asked",
    "asked",
    "utility_from",
]

INTERVALS = ("lower", "upper")
PARTS = ("total", "aleatoric", "epistemic")
DECIDED = ("action", "expected_utility", "margin", "value_of_information")
ANSWERS = ("class", "proba", *INTERVALS, *PARTS, "set", *DECIDED)
"""All that can be asked, in the order in which it is answered."""
BY_CLASS, BY_ACTION = ("proba", *INTERVALS, "set"), ("expected_utility",)
_DEFAULT = ("class", "proba")
MOST_ACTIONS = 1_000


@dataclass(frozen=True)
class Asked:
    """What is wanted for rows; equal ones can be answered together.

    Attributes
    ----------
    answers : tuple of str
        Among `ANSWERS`, in their order.
    level : float or None
        Of intervals and sets; None is 0.95 for intervals, and the model's own level for sets.
    utility : Utility or None
        What decisions are taken by, if not by the model's own utility.
    accept_new : bool
        Whether levels of categories that the fit did not know are accepted.
    """

    answers: tuple[str, ...] = _DEFAULT
    level: float | None = None
    utility: Utility | None = field(default=None, compare=False)
    accept_new: bool = False
    utility_text: str = ""
    """What tells utilities apart."""

    def wants(self, names: Sequence[str]) -> bool:
        """Whether one of these answers is wanted."""
        return any(name in self.answers for name in names)


@dataclass(frozen=True)
class Answers:
    """Answers to rows.

    Attributes
    ----------
    values : dict of str to ndarray
        By the names of `ANSWERS`: (n,), or (n, K) for classes and (n, A) for actions. "class" and "action" are codes.
    classes, actions : list
        What codes and columns stand for, as values of JSON.
    warnings : tuple of str
        Sentences about the rows.
    """

    values: dict[str, np.ndarray]
    classes: list[Any]
    actions: list[Any]
    warnings: tuple[str, ...] = ()

    def part(self, start: int, stop: int) -> Answers:
        """The answers to some of the rows."""
        values = {name: value[start:stop] for name, value in self.values.items()}
        return Answers(values, self.classes, self.actions, self.warnings)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values.values())))

    def records(self) -> list[dict[str, Any]]:
        """One object for each row."""
        columns = [self._column(name, value) for name, value in self.values.items()]
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def table(self) -> pa.Table:
        """One column for each number; those of classes and actions are named after them."""
        columns: dict[str, Any] = {}
        for name, value in self.values.items():
            columns |= self._arrow(name, value)
        return pa.table(columns)

    def _column(self, name: str, value: np.ndarray) -> list[Any]:
        """The entries of one answer as values of JSON, one for each row."""
        if name in ("class", "action"):
            labels = self.classes if name == "class" else self.actions
            return [labels[code] for code in value.tolist()]
        if name == "set":
            return [[label for label, is_in in zip(self.classes, row, strict=True) if is_in] for row in value.tolist()]
        if value.ndim == 1:
            return [number if number - number == 0.0 else None for number in value.tolist()]
        keys = [str(label) for label in (self.actions if name in BY_ACTION else self.classes)]
        return [dict(zip(keys, row, strict=True)) for row in value.tolist()]

    def _arrow(self, name: str, value: np.ndarray) -> dict[str, Any]:
        if name in ("class", "action"):
            labels = self.classes if name == "class" else self.actions
            column = _labels(labels).take(pa.array(value))
            return {"prediction" if name == "class" else "action": column}
        if value.ndim == 1:
            return {name: pa.array(value, mask=~np.isfinite(value))}
        words = {"proba": "p({})", "lower": "p({}) lower", "upper": "p({}) upper", "set": "set({})"}
        labels = self.actions if name in BY_ACTION else self.classes
        title = words.get(name, "utility({})")
        return {title.format(label): pa.array(np.ascontiguousarray(value[:, k])) for k, label in enumerate(labels)}


def _labels(labels: list[Any]) -> pa.Array:
    """Labels in a column of Arrow, those of mixed kinds as text."""
    try:
        return pa.array(labels)
    except (pa.ArrowException, TypeError):
        return pa.array([str(label) for label in labels])


def asked(
    answers: Any = None, level: Any = None, utility: Any = None, new_levels: Any = None, *, possible: Sequence[str]
) -> Asked:
    """What a request asks for, checked; `possible` are the answers that the model has.

    Parameters
    ----------
    answers : list of str, or str with commas
        If left out: the class and its probabilities, with a utility the decision too.
    level : number, or its text
    utility : object of JSON with "states", "actions" and "matrix", or its text
    new_levels : "refuse" (default) or "accept"
    """
    chosen = _answers(answers, possible, has_utility=utility is not None)
    if new_levels not in (None, "refuse", "accept"):
        raise Refusal(f"new_levels is {_shown(new_levels)}: it must be 'refuse' or 'accept'.")
    known = None if utility is None else utility_from(utility)
    text = "" if known is None else repr((known.states.tolist(), known.actions.tolist(), known.matrix.tolist()))  # type: ignore[union-attr]
    return Asked(chosen, _level(level), known, new_levels == "accept", text)


def _answers(given: Any, possible: Sequence[str], *, has_utility: bool) -> tuple[str, ...]:
    if given is None:  # who sends a utility wants decisions
        return (*_DEFAULT, *DECIDED) if has_utility else _DEFAULT
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Refusal(f"answers must be a list of names among {first_names(ANSWERS, 20)}, got {_shown(given)}.")
    unknown = [name for name in names if name not in ANSWERS]
    if unknown:
        raise Refusal(f"answers names {_shown(unknown[0])}, which is none: they are {first_names(ANSWERS, 20)}.")
    can = {*possible, *(DECIDED if has_utility else ())}
    absent = [name for name in names if name not in can]
    if absent:
        raise Refusal(f"The model has no answer {absent[0]!r}: {_why(absent[0])}.")
    return tuple(name for name in ANSWERS if name in names)


def _why(name: str) -> str:
    """What an answer needs that the model does not have."""
    if name in DECIDED:
        return "decisions need a utility, with the request or with the server (--utility)"
    if name == "set":
        return "prediction sets need a ConformalClassifier"
    return (
        "it needs a posterior of the probabilities, such as that of BayesianSoftmaxRegression, GaussianClassifier or "
        "GPClassifier"
    )


def _level(given: Any) -> float | None:
    if given is None:
        return None
    try:
        level = float(given) if isinstance(given, (int, float, str)) and not isinstance(given, bool) else float("nan")
    except (ValueError, OverflowError):
        level = float("nan")
    if not 0.0 < level < 1.0:
        raise Refusal(f"level is {_shown(given)}: a number between 0 and 1 is needed, such as 0.95.")
    return level


def utility_from(given: Any) -> Utility:
    """A utility from an object of JSON with "states", "actions" and "matrix"."""
    needed = 'an object {"states": [...], "actions": [...], "matrix": [[one number for each action], ...]}'
    if not isinstance(given, dict) or set(given) != {"states", "actions", "matrix"}:
        raise Refusal(f"utility must be {needed}, got {_shown(given)}.")
    states, actions, matrix = given["states"], given["actions"], given["matrix"]
    for name, names in (("states", states), ("actions", actions)):
        if not isinstance(names, list) or not names or not all(isinstance(each, (str, int, float)) for each in names):
            raise Refusal(f"{name} of the utility must be a list of names, got {_shown(names)}.")
    if len(actions) > MOST_ACTIONS:
        raise Refusal(f"The utility has {len(actions)} actions: {MOST_ACTIONS} at most.")
    rows = isinstance(matrix, list) and all(isinstance(row, list) for row in matrix)
    if not rows or not all(type(value) in (int, float) for row in matrix for value in row):
        raise Refusal("matrix of the utility must be a list of lists of numbers: one list for each state.")
    if len(matrix) != len(states) or any(len(row) != len(actions) for row in matrix):
        raise Refusal(
            f"matrix of the utility must have {len(states)} rows (states) with {len(actions)} numbers (actions) each."
        )
    try:
        return Utility(matrix, states, actions)
    except (ValueError, OverflowError) as error:
        raise Refusal(f"utility: {error}") from None


def _shown(value: Any, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
