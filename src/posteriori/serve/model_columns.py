"""The columns that a model reads: what each may hold, and values of JSON checked to be that.

A column takes values one by one, as a program writes them in JSON. It refuses what is not of its kind, and turns lists
of accepted values into an array that the model reads: numbers with NaN, or Arrow with nulls, for missing values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from posteriori.serve.errors import Refusal
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.plans import CategoryPlan, ColumnEncoding, DatePlan, NumberPlan

__all__ = ["LONGEST_DURATION", "ModelColumn", "encoded_columns", "plain_columns"]

_WORDS = {
    "number": "a number",
    "boolean": "true or false",
    "duration": "a number of seconds",
    "category": "text",
    "date": "a date and time such as 2026-11-19T12:00:00",
    "date with time zone": "a date and time with its zone, such as 2026-11-19T12:00:00+01:00",
}
_LONGEST_SHOWN = 60
_INTEGERS = ("int", "uint")
LONGEST_DURATION = 9e12
"""Seconds, some 285,000 years: more microseconds than in a bit more are not counted."""


@dataclass(frozen=True)
class ModelColumn:
    """A column that a model reads.

    Attributes
    ----------
    name, kind : str
        Kind is "number", "boolean", "duration" (seconds), "category", "date" or "date with time zone".
    low, high : float or None
        The range in the fit; of dates in seconds since 1970.
    levels : tuple of str
        Levels of a category that the model knows by name.
    other : bool
        Whether rarer levels were pooled.
    missing : bool
        Whether values were missing in the fit.
    typical : number, str or None
        A value in the middle of those of the fit.
    dtype : str
        The type of the column in the fit.
    """

    name: str
    kind: str
    low: float | None = None
    high: float | None = None
    levels: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    typical: float | str | bool | None = None
    dtype: str = ""

    def described(self) -> dict[str, Any]:
        """What a client should know of it, for JSON."""
        about: dict[str, Any] = {"name": self.name, "kind": self.kind, "missing": self.missing, "typical": self.typical}
        if self.kind == "category":
            return about | {"levels": list(self.levels), "other": self.other}
        if self.kind.startswith("date"):
            return about | {name: self.moment(getattr(self, name)) for name in ("low", "high", "typical")}
        if self.kind == "boolean":
            return about
        return about | {"low": self.low, "high": self.high, "integer": self.dtype.lower().startswith(_INTEGERS)}

    def checked(self, values: Sequence[Any]) -> list[Any]:
        """Values of JSON, refused unless each is of the column's kind or null; as numbers or text."""
        if self.kind == "category":
            return [
                value if value is None or type(value) is str else self._level(value, i)
                for i, value in enumerate(values)
            ]
        if self.kind.startswith("date"):
            self._require(values, lambda value: type(value) is str)
            return list(values)
        if self.kind == "number":
            return [value if type(value) is float else self._number(value, i) for i, value in enumerate(values)]
        numbers = [self._number(value, i) for i, value in enumerate(values)]
        fits = _is_truth_value if self.kind == "boolean" else _is_duration
        self._require(numbers, fits)
        return numbers

    def array(self, values: Sequence[Any]) -> Any:
        """Checked values as an array that the model reads; dates are parsed here, and refused if they are none."""
        if self.kind == "category":
            return pa.array(values, pa.large_string())
        if self.kind.startswith("date"):
            return self._moments(values)
        numbers = np.array(values, dtype=np.float64)
        if self.kind == "duration":
            return pa.array(numbers * 1e6, from_pandas=True).cast(pa.int64(), safe=False).cast(pa.duration("us"))
        return numbers

    def refusal(self, row: int, value: Any) -> Refusal:
        """Say that this value, in this row counted from 0, is not what the column holds."""
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
        expected = f"{_WORDS[self.kind]} is expected, or null if it is missing"
        return Refusal(
            f"Row {row + 1}: column {self.name!r} holds {shown}, where {expected}.", row=row + 1, column=self.name
        )

    def _number(self, value: Any, row: int) -> float | None:
        kind = type(value)
        if value is None or kind is float:
            return value
        if kind is int and -(2**1023) < value < 2**1023:
            return float(value)
        if kind is bool and self.kind in ("number", "boolean"):
            return float(value)
        raise self.refusal(row, value)

    def _level(self, value: Any, row: int) -> str:
        """The text of a number or truth value that is a level of the category."""
        if type(value) in (int, float, bool) and str(value) in self.levels:
            return str(value)
        raise self.refusal(row, value)

    def _require(self, values: Sequence[Any], fits: Callable[[Any], bool]) -> None:
        for i, value in enumerate(values):
            if value is not None and not fits(value):
                raise self.refusal(i, value)

    def moment(self, seconds: Any) -> str | None:
        """Seconds since 1970 as text."""
        if seconds is None or not math.isfinite(seconds):
            return None
        return str(np.datetime64(int(seconds), "s")) + ("Z" if "zone" in self.kind else "")

    def _moments(self, values: Sequence[Any]) -> Any:
        kind = pa.timestamp("us", tz="UTC" if "zone" in self.kind else None)
        try:
            return pa.array(values, pa.string()).cast(kind)
        except pa.ArrowInvalid:
            for i, value in enumerate(values):
                try:
                    pa.array([value], pa.string()).cast(kind)
                except pa.ArrowInvalid:
                    raise self.refusal(i, value) from None
            raise


def _is_truth_value(number: float) -> bool:
    return number in (0.0, 1.0)


def _is_duration(seconds: float) -> bool:
    return abs(seconds) <= LONGEST_DURATION


def encoded_columns(encoder: TableEncoder) -> tuple[ModelColumn, ...]:
    """The columns that a table encoder uses, from what it remembers of its fit."""
    return tuple(_column(column) for column in encoder.encoding_.columns if column.plan is not None)


def _column(column: ColumnEncoding) -> ModelColumn:
    plan, missing = column.plan, column.n_missing > 0
    if isinstance(plan, CategoryPlan):
        typical = plan.levels[0] if plan.levels else None
        return ModelColumn(
            column.name, column.kind, levels=plan.levels, other=plan.other, missing=missing, typical=typical,
            dtype=column.dtype,
        )  # fmt: skip
    middle: float | bool | None = None
    if isinstance(plan, NumberPlan):
        middle = plan.mean >= 0.5 if column.kind == "boolean" else _rounded(plan.mean, column.low, column.high)
        if column.dtype.lower().startswith(_INTEGERS) and not isinstance(middle, bool):
            middle = float(round(middle))
    elif isinstance(plan, DatePlan):
        middle = plan.origin
    return ModelColumn(
        column.name, column.kind, low=column.low, high=column.high, missing=missing, typical=middle, dtype=column.dtype
    )


def plain_columns(names: Sequence[str]) -> tuple[ModelColumn, ...]:
    """Columns of a model that takes numbers as they are, of which nothing else is known."""
    return tuple(ModelColumn(name, "number") for name in names)


def _rounded(value: float, low: float | None, high: float | None) -> float:
    """A number with no more digits than tell apart thousandths of the range."""
    spread = (high - low) if low is not None and high is not None else abs(value)
    if not (math.isfinite(value) and math.isfinite(spread) and spread > 0):
        return value
    return float(round(value, 3 - math.floor(math.log10(spread)) - 1))
