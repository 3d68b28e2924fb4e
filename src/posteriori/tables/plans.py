"""What is kept after the fit: for each column what was seen in it, and a plan of what it becomes. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.tables.summaries import MOST_COUNTED

__all__ = ["CategoryPlan", "ColumnEncoding", "DatePlan", "Encoding", "NumberPlan", "describe_encoding"]


@dataclass(frozen=True)
class NumberPlan:
    """A number, boolean or duration: the value, missing ones as the training mean, then an indicator of these.

    `value` is False where the value was constant and only being missing says something; `missing` is False where no
    value was missing in training.
    """

    mean: float
    value: bool
    missing: bool


@dataclass(frozen=True)
class CategoryPlan:
    """One-hot columns for the levels, then (other) for all further ones, then (missing).

    Where these would be exactly two columns, one says it all: only the last is kept, and `share` is its training mean,
    the value of a row that belongs to neither. Otherwise `share` is None.
    """

    levels: tuple[str, ...]
    other: bool
    missing: bool
    share: float | None


@dataclass(frozen=True)
class DatePlan:
    """The kept parts of a date with their training means, then an indicator of missing ones.

    `origin` is the mean date, in seconds since 1970; `zone` is the time zone in which the clock is read.
    """

    origin: float
    parts: tuple[str, ...]
    means: tuple[float, ...]
    zone: str | None
    missing: bool


@dataclass(frozen=True)
class ColumnEncoding:
    """What was seen in one column of the training table, and what becomes of it.

    Attributes
    ----------
    name, kind, dtype : str
        Kind is "number", "boolean", "duration", "category", "date", "date with time zone" or "empty".
    n_missing : int
    low, high : float or None
        Range of numbers; seconds since 1970 for dates.
    n_levels : int or None
        Distinct levels of a category; None if they were too many to count.
    names : tuple of str
        The columns it becomes.
    plan : NumberPlan, CategoryPlan, DatePlan, or None if it is dropped
    dropped : str or None
        Why it is dropped.
    """

    name: str
    kind: str
    dtype: str
    n_missing: int
    low: float | None
    high: float | None
    n_levels: int | None
    names: tuple[str, ...]
    plan: NumberPlan | CategoryPlan | DatePlan | None
    dropped: str | None


@dataclass(frozen=True)
class Encoding:
    """All that was learned from the training table.

    Attributes
    ----------
    columns : tuple of ColumnEncoding
        One per feature of the training table, in its order.
    n_rows : int
    apart : tuple of str
        Columns that are no features and pass untouched: the target and those to carry.
    """

    columns: tuple[ColumnEncoding, ...]
    n_rows: int
    apart: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns of the encoded table."""
        return [name for column in self.columns for name in column.names]


def describe_encoding(encoding: Encoding) -> dict[str, list[Any]]:
    """What was seen in each input column, what it becomes and why it is dropped: one entry per column in each list."""
    columns = encoding.columns
    return {
        "column": [column.name for column in columns],
        "kind": [column.kind for column in columns],
        "dtype": [column.dtype for column in columns],
        "missing": [column.n_missing / encoding.n_rows for column in columns],
        "values": [_values_seen(column) for column in columns],
        "becomes": [_some(column.names, "columns") for column in columns],
        "dropped": [column.dropped or "" for column in columns],
    }


def _values_seen(column: ColumnEncoding) -> str:
    """Levels or range, for people."""
    if column.kind == "category":
        if column.n_levels is None:
            return f"more than {MOST_COUNTED} levels"
        levels = column.plan.levels if isinstance(column.plan, CategoryPlan) else ()
        if len(levels) == column.n_levels:
            return _some(levels, "levels")
        pooled = f"{column.n_levels} levels"
        return f"{pooled}, {column.n_levels - len(levels)} of them pooled" if column.plan is not None else pooled
    if column.low is None or column.high is None:
        return ""
    if column.kind.startswith("date"):
        low, high = (str(np.datetime64(round(seconds), "s")) for seconds in (column.low, column.high))
        return f"{low} to {high}"
    return f"{column.low:g} to {column.high:g}" + (" seconds" if column.kind == "duration" else "")


def _some(names: tuple[str, ...], what: str, most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{len(names)} {what}: {shown}, ..."
