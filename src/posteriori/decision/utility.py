"""Utilities: what each action is worth in each state of the world."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posteriori.decision.labels import as_classes, readings
from posteriori.parameters import first_names

__all__ = ["Utility", "action_places", "codes_of", "places"]

Names = Sequence[Any] | np.ndarray

_MOST_SHOWN = 12
"""Actions or states shown by the text and HTML views."""
_MARKS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u00a0": " "})
"""Characters that spreadsheets write for a minus sign and for a blank."""


class Utility:
    r"""U(k, a): the value of action a when the truth is state k.

    The best action is the one with the highest expected utility, EU(a) = \sum_k p_k U(k, a). Utilities may be in any
    unit, and adding a number to a row or multiplying all by a positive one changes no decision.

    Parameters
    ----------
    matrix : array (K, A), array (n, K, A), or function
        Utilities, the same for all rows or for each its own. A function is given the rows and returns (n, K, A), or is
        given one row and returns (K, A).
    states : sequence of K names
        Classes, in any order: they are matched by name.
    actions : sequence of A names, optional
        The states themselves if left out.

    Examples
    --------
    >>> Utility([[0, -1], [-5, 0]], states=["good", "bad"], actions=["grant", "refuse"])
    Utility: 2 states x 2 actions
                grant      refuse
        good        0          -1
         bad       -5           0
    """

    def __init__(self, matrix: Any, states: Names, actions: Names | None = None) -> None:
        self.states = _names(states, "states")
        self.actions = self.states if actions is None else _names(actions, "actions")
        self.function: Callable[[Any], Any] | None = None
        self.matrix: np.ndarray | None = None
        if callable(matrix):
            self.function = matrix
        else:
            self.matrix = _checked(matrix, len(self.states), len(self.actions))

    @classmethod
    def zero_one(cls, classes: Names) -> Utility:
        """One for naming the right one of `classes`, nothing for any other: the best action is the most probable class.

        >>> Utility.zero_one(["a", "b"]).matrix
        array([[1., 0.],
               [0., 1.]])
        """
        return cls(np.eye(len(classes)), classes, classes)

    @classmethod
    def from_costs(cls, costs: Any, states: Names, actions: Names | None = None) -> Utility:
        """A utility from costs, its negative: the action with the lowest expected cost is the best.

        Parameters
        ----------
        costs : array (K, A), array (n, K, A), or function
            As `matrix`, with the opposite sign.
        states, actions
            As for `Utility`.

        Examples
        --------
        >>> Utility.from_costs([[0, 1], [5, 0]], ["good", "bad"]).matrix
        array([[ 0., -1.],
               [-5.,  0.]])
        """
        if callable(costs):
            return cls(_Negated(costs), states, actions)
        return cls(0.0 - _numbers(costs), states, actions)

    @classmethod
    def from_csv(cls, path: Any) -> Utility:
        """A utility from the table in the file `path`: actions in its first row, states in its first column.

        The corner is ignored. Names are text; they match classes that read the same, such as the number 1 and "1", or
        True and "TRUE". Fields may be separated by commas, semicolons, tabs or bars.
        """
        table = _read_utilities(path)
        try:
            return cls(table.rows, table.states, table.actions)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def with_reject(self, value: float, name: Any = "reject") -> Utility:
        """A utility with one more action, called `name` and worth `value` whatever the truth: ask, or measure again.

        Parameters
        ----------
        value : number
            What the action is worth in every state; a cost is negative.
        name : str
            What the action is called.

        Examples
        --------
        >>> Utility([[0, -1], [-5, 0]], ["good", "bad"], ["grant", "refuse"]).with_reject(-0.5, "ask").matrix
        array([[ 0. , -1. , -0.5],
               [-5. ,  0. , -0.5]])
        """
        if not np.isfinite(value):
            raise ValueError(f"The value of rejecting is {value!r}: a finite number is needed.")
        actions = [*self.actions.tolist(), name]
        if self.function is not None:
            return Utility(_Extended(self, float(value)), self.states.tolist(), actions)
        assert self.matrix is not None
        column = np.full((*self.matrix.shape[:-1], 1), float(value))
        return Utility(np.concatenate([self.matrix, column], axis=-1), self.states.tolist(), actions)

    @property
    def constant(self) -> bool:
        """Whether all rows share one matrix."""
        return self.matrix is not None and self.matrix.ndim == 2

    def ordered(self, classes: Any) -> Utility:
        """The utility with its states in the order of `classes`, matched by name."""
        order = _matched(self.states, np.asarray(classes))
        labels, actions = np.asarray(classes).tolist(), self.actions.tolist()
        if (order == np.arange(len(order))).all() and labels == self.states.tolist():
            return self
        if self.function is not None:
            return Utility(_Reordered(self, order), labels, actions)
        assert self.matrix is not None
        return Utility(np.take(self.matrix, order, axis=-2), labels, actions)

    def of_rows(self, rows: Any) -> np.ndarray:
        """The utilities of some rows, (n, K, A); `rows` are what the function is a function of."""
        assert self.function is not None
        n, K, A = _length(rows), len(self.states), len(self.actions)
        values = _attempt(self.function, rows, (n, K, A))
        if values is None:
            each = [np.asarray(self.function(row), dtype=np.float64) for row in _each(rows)]
            wrong = next((value.shape for value in each if value.shape != (K, A)), None)
            if wrong is not None:
                raise ValueError(
                    f"The utility function returned shape {wrong} for a row: ({K}, {A}) is needed, or ({n}, {K}, {A}) "
                    "for all rows at once."
                )
            values = np.stack(each) if each else np.empty((0, K, A))
        return _checked(values, K, A)

    def __repr__(self) -> str:
        head = f"Utility: {len(self.states)} states x {len(self.actions)} actions"
        if self.function is not None:
            return f"{head}, a function of the row\n    states  {_few(self.states)}\n    actions {_few(self.actions)}"
        assert self.matrix is not None
        if self.matrix.ndim == 3:
            return (
                f"{head}, for each of {len(self.matrix)} rows\n"
                f"    states  {_few(self.states)}\n    actions {_few(self.actions)}"
            )
        states, actions = self.states[:_MOST_SHOWN], self.actions[:_MOST_SHOWN]
        left = max(8, *(len(str(state)) + 4 for state in states))
        width = max(12, *(len(str(action)) + 2 for action in actions))
        lines = [head, " " * left + "".join(f"{action!s:>{width}}" for action in actions)]
        for state, values in zip(states, self.matrix, strict=False):
            lines.append(f"{state!s:>{left}}" + "".join(f"{value:>{width}.6g}" for value in values[:_MOST_SHOWN]))
        if len(self.states) > _MOST_SHOWN or len(self.actions) > _MOST_SHOWN:
            lines.append("    ...")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.constant:
            return f"<pre>{escape(repr(self))}</pre>"
        assert self.matrix is not None
        head = "".join(f"<th>{escape(str(action))}</th>" for action in self.actions[:_MOST_SHOWN])
        best = self.matrix.max(axis=1)
        body = ""
        for state, values, top in zip(self.states[:_MOST_SHOWN], self.matrix, best, strict=False):
            cells = "".join(
                f"<td style='text-align:right{';font-weight:bold' if value == top else ''}'>{value:.6g}</td>"
                for value in values[:_MOST_SHOWN]
            )
            body += f"<tr><th style='text-align:left'>{escape(str(state))}</th>{cells}</tr>"
        caption = "Utility of each action (columns) in each state (rows); the best of a state in bold"
        return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class _Negated:
    """A function of costs as one of utilities; a class, so that it can be stored."""

    costs: Callable[[Any], Any]

    def __call__(self, rows: Any) -> np.ndarray:
        return 0.0 - np.asarray(self.costs(rows), dtype=np.float64)


@dataclass(frozen=True)
class _Extended:
    """A function of the row with one more action, of constant value."""

    utility: Utility
    value: float

    def __call__(self, rows: Any) -> np.ndarray:
        U = self.utility.of_rows(rows)
        return np.concatenate([U, np.full((*U.shape[:2], 1), self.value)], axis=2)


@dataclass(frozen=True)
class _Reordered:
    """A function of the row with its states in another order."""

    utility: Utility
    order: np.ndarray

    def __call__(self, rows: Any) -> np.ndarray:
        return self.utility.of_rows(rows)[:, self.order]


def codes_of(labels: Any, classes: np.ndarray, *, argument: str = "y", among: str = "classes") -> np.ndarray:
    """The place of each label among the classes, (n,); `argument` and `among` are what a message calls them."""
    values = np.asarray(labels)
    index = {label: k for k, label in enumerate(classes.tolist())}
    try:
        return np.array([index[label] for label in values.ravel().tolist()], dtype=np.intp)
    except KeyError as error:
        raise ValueError(
            f"{argument} holds {error.args[0]!r}, which is not among the {among} {first_names(classes.tolist(), 5)}."
        ) from None


def places(labels: Any, names: np.ndarray, **words: str) -> np.ndarray:
    """Places of labels among names that may come from a file: labels and names that read the same are the same."""
    return codes_of(as_classes(labels, names), names, **words)


def action_places(actions: Any, utility: Utility) -> np.ndarray:
    """Places of actions taken among those of a utility, (n,)."""
    return places(actions, utility.actions, argument="actions", among="utility's actions")


def _names(names: Any, argument: str) -> np.ndarray:
    """Names as an array (n,), checked to be distinct."""
    listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
    mixed = any(isinstance(name, str) for name in listed) and not all(isinstance(name, str) for name in listed)
    values = np.array(listed, dtype=object) if mixed else np.asarray(names if isinstance(names, np.ndarray) else listed)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{argument} must be a list of names, got {names!r}.")
    if values.dtype.kind not in "biufUSO":
        raise ValueError(f"{argument} has dtype {values.dtype}: names must be text or numbers.")
    _require_distinct(values.tolist(), argument)
    return values


def _require_distinct(names: list[Any], argument: str) -> None:
    if len(set(names)) < len(names):
        twice = sorted({str(name) for name, count in Counter(names).items() if count > 1})
        raise ValueError(f"{argument} names {', '.join(map(repr, twice[:5]))} more than once.")


def _numbers(matrix: Any) -> np.ndarray:
    try:
        return np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"A utility must be made of numbers, got {type(matrix).__name__}: {matrix!r:.80}") from None


def _checked(matrix: Any, K: int, A: int) -> np.ndarray:
    """Utilities (K, A) or (n, K, A), checked to be finite."""
    values = _numbers(matrix)
    if values.ndim not in (2, 3) or values.shape[-2:] != (K, A):
        raise ValueError(
            f"The utility has shape {values.shape}: {K} states (rows) and {A} actions (columns) need ({K}, {A}), or "
            f"(n, {K}, {A}) for rows with utilities of their own."
        )
    bad = ~np.isfinite(values)
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), values.shape))
        raise ValueError(
            f"The utility is {values[where]} at {where} (counted from 0): utilities must be finite. For an action that "
            "must never be taken use a large negative number."
        )
    return values


def _matched(states: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Where each class is among the states, by the strictest reading in which all of them match."""
    for read in readings(classes.tolist()):
        index = {read(name): i for i, name in enumerate(states.tolist())}
        named = {read(name) for name in set(classes.tolist())}
        if len(index) == len(states) and len(named) == len(set(classes.tolist())) and set(index) == named:
            return np.array([index[read(name)] for name in classes.tolist()])
    missing = [name for name in classes.tolist() if str(name) not in set(map(str, states.tolist()))]
    unknown = [name for name in states.tolist() if str(name) not in set(map(str, classes.tolist()))]
    raise ValueError(
        "The states of the utility do not match the classes: classes without a row in the utility: "
        f"{first_names(missing, 5)}; states that are not classes: {first_names(unknown, 5)}."
    )


def _few(names: np.ndarray) -> str:
    return ", ".join(map(str, names[:_MOST_SHOWN])) + (", ..." if len(names) > _MOST_SHOWN else "")


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _each(rows: Any) -> Iterable[Any]:
    """Rows one at a time; those of a table as (label, value) series."""
    if hasattr(rows, "iterrows"):
        return (row for _, row in rows.iterrows())
    if hasattr(rows, "iter_rows"):
        return rows.iter_rows(named=True)
    return iter(rows)


def _attempt(function: Callable[[Any], Any], rows: Any, expected: tuple[int, int, int]) -> np.ndarray | None:
    """The function of all rows at once, if that is what it is."""
    try:
        values = np.asarray(function(rows), dtype=np.float64)
    except Exception:  # a function of one row may fail in any way when it is given all
        return None
    return values if values.shape == expected else None


# Files of utilities


class _UtilityTable(NamedTuple):
    """Utilities as a file states them: a name for each row and each column, and the numbers."""

    states: list[str]
    actions: list[str]
    rows: list[list[float]]


def _read_utilities(path: Any) -> _UtilityTable:
    """Read a table with the actions in its first line, and a state and its utilities in every other line.

    Fields are separated by commas, semicolons, tabs or bars, whichever the first line has most of; a comma may be the
    decimal mark where it does not separate. The corner is ignored, and so are blanks around names and numbers.
    """
    text = _decoded(Path(path).read_bytes())
    first = next((line for line in text.splitlines() if line.strip()), "")
    mark = max(_MARKS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
    lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    if len(lines) < 2 or len(lines[0][1]) < 2:
        raise ValueError(
            f"{path} is not a table of utilities: the first line must name the actions, every other line begin "
            "with a state, as in\n    state,treat,wait\n    ill,10,-50\n    well,-5,0"
        )
    actions = [name.strip() for name in lines[0][1][1:]]
    states, rows = [], []
    for number, line in lines[1:]:
        if len(line) != len(actions) + 1:
            fields = "1 field" if len(line) == 1 else f"{len(line)} fields"
            raise ValueError(
                f"Line {number} of {path} has {fields}, and {len(actions) + 1} are needed: a state and the utilities "
                f"of {len(actions)} {'action' if len(actions) == 1 else 'actions'}."
            )
        states.append(line[0].strip())
        rows.append([_cell(cell, path, number, action) for cell, action in zip(line[1:], actions, strict=True)])
    return _UtilityTable(states, actions, rows)


def _decoded(content: bytes) -> str:
    """The text of a file: in UTF-8 or UTF-16 if its first bytes or all of it say so, otherwise in Windows' Latin-1."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _cell(text: str, path: Any, line: int, action: str) -> float:
    plain = text.translate(_MINUS).strip()
    if _DECIMAL_COMMA.fullmatch(plain):
        plain = plain.replace(",", ".")
    try:
        value = float(plain)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(f"Line {line} of {path} has {text!r} under {action!r}: a finite number is needed.")
    return value
