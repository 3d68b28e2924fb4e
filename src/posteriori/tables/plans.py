"""Plans: what was seen in each column, what it becomes, and which columns are dropped. Plain values."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.tables.agreement import log_chance_told
from posteriori.tables.columns import DATE_PARTS
from posteriori.tables.identifiers import number_identifier, text_identifier
from posteriori.tables.names import is_nameless, names_rows
from posteriori.tables.summaries import MOST_COUNTED, Summary

__all__ = [
    "IDENTIFIER_AS_NUMBER",
    "NUMBERS_AS_TEXT",
    "CategoryPlan",
    "ColumnEncoding",
    "DatePlan",
    "Encoding",
    "NumberPlan",
    "describe_encoding",
    "level_mark",
    "plan_encoding",
]

MOST_MARKED = 10_000
"""Pooled levels that are remembered, so that levels never seen in the fit are known as such."""

NUMBERS_AS_TEXT = "holds numbers written as text"
"""The finding of a category whose levels are numbers."""

IDENTIFIER_AS_NUMBER = "is used as a number, although its name is that of an identifier"
"""The finding of whole numbers that repeat too often to number the rows, but may name households or shops."""

_NUMBER = re.compile(
    r"""\s* [-+(]? \s* [$€£¥]? \s* [-+]?
    ( ( \d+ | \d{1,3} ([.,'\ ]\d{3})+ ) ([.,]\d*)? | [.,]\d+ ) ([eE][-+]?\d+)?
    \s* [%$€£¥]? \s* \)? \s*""",
    re.VERBOSE,
)
_FEWEST_NUMBERS = 20
_FEW_CODES = 10
_MOST_MARKS = 2
"""Levels among numbers that are not numbers: marks of missing values, such as "?"."""

_LONGEST_NAME = 100
"""Characters of a level in the name of an encoded column."""


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
    the value of a row that belongs to neither. Otherwise `share` is None. `pooled` has the marks of the levels that
    were seen and pooled; None if they are not known.
    """

    levels: tuple[str, ...]
    other: bool
    missing: bool
    share: float | None
    pooled: tuple[int, ...] | None = None


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
    """One column of the training table: what was seen in it, and how it is encoded.

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
    finding : str
        What is suspicious, in words: that it gives the target away, or holds numbers as text; empty if nothing is.
    n_infinite : int
        Infinite numbers, which are among the missing ones.
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
    finding: str = ""
    n_infinite: int = 0

    @property
    def note(self) -> str:
        """What else a user should know of it."""
        infinite = f"{self.n_infinite} infinite taken as missing" if self.n_infinite else ""
        return "; ".join(part for part in (self.finding, infinite) if part)


def level_mark(level: str) -> int:
    """A number by which a pooled level is remembered: names of people and the like are not stored with a model.

    >>> level_mark("Dream")
    2879270731
    """
    return zlib.crc32(level.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Encoding:
    """All that was learned from the training table.

    Attributes
    ----------
    columns : tuple of ColumnEncoding
        One per feature of the training table, in its order.
    n_rows : int
    apart : tuple of str
        Columns that are not features and pass untouched: the target and those to carry.
    """

    columns: tuple[ColumnEncoding, ...]
    n_rows: int
    apart: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns of the encoded table."""
        return [name for column in self.columns for name in column.names]


def plan_encoding(
    summaries: list[Summary],
    *,
    min_frequency: int,
    max_levels: int,
    drop_identifiers: bool,
    apart: tuple[str, ...] = (),
    keep: Collection[str] = (),
) -> Encoding:
    """Plan the encoding of every column.

    Parameters
    ----------
    summaries : list of Summary
    min_frequency, max_levels, drop_identifiers
        The parameters of TableEncoder.
    apart : tuple of str
        The target and carried columns, whose names no encoded column may have.
    keep : collection of str
        Columns that are kept although they look like identifiers.

    Returns
    -------
    Encoding

    Raises
    ------
    ValueError
        If every column is dropped.
    """
    used = set(apart)
    columns = []
    log_limit = log_chance_told(len(summaries))
    for summary in summaries:
        drops = drop_identifiers and summary.name not in keep
        names, plan, dropped = _plan(summary, min_frequency, max_levels, drops)
        numbers = summary.numbers[0] if summary.numbers and summary.numbers[0].count else None
        columns.append(
            ColumnEncoding(
                summary.name,
                summary.kind,
                summary.dtype,
                summary.n_missing,
                numbers.low if numbers else None,
                numbers.high if numbers else None,
                None if summary.counts is None else len(summary.counts),
                tuple(_unique(name, used) for name in names),
                plan,
                dropped,
                _finding(summary, log_limit, used=dropped is None, asked_for=not drops),
                summary.n_infinite,
            )
        )
    if all(column.dropped for column in columns):
        reasons = "; ".join(f"{column.name!r}: {column.dropped}" for column in columns[:10])
        raise ValueError(
            f"No column of the table can be used (n_samples={summaries[0].n_rows}): {reasons}. "
            "Pass more rows, or columns that vary; keep=[...] of TableEncoder (--keep-id NAME on the command line) "
            "keeps what looks like an identifier."
        )
    return Encoding(tuple(columns), summaries[0].n_rows, apart)


_Planned = tuple[list[str], "NumberPlan | CategoryPlan | DatePlan | None", "str | None"]


def _finding(summary: Summary, log_limit: float, *, used: bool, asked_for: bool) -> str:
    """What is suspicious about a column: it holds numbers as text, gives the target away, or is called an identifier.

    Empty if nothing is; `asked_for` says that the column is kept even if it is an identifier.
    """
    if summary.counts is not None and _are_numbers(summary.counts):
        return NUMBERS_AS_TEXT
    together = summary.agreement if used else None
    found = together.finding(log_limit) if together is not None else None
    if found is None and used and not asked_for and _names_things(summary):
        return IDENTIFIER_AS_NUMBER
    return found or ""


def _names_things(summary: Summary) -> bool:
    """Whether a column has more than a few whole numbers, and a word in its name says that they are identifiers."""
    many = summary.numbering is not None and summary.numbering.n_distinct > _FEW_CODES
    return summary.kind == "number" and many and names_rows(summary.name) and not is_nameless(summary.name)


def _are_numbers(levels: Collection[str]) -> bool:
    """Whether levels are numbers that were not read as such: decimals, money or percent, or a mark for missing ones.

    Whole numbers alone may be codes, and a few levels may be anything.
    """
    if len(levels) < _FEWEST_NUMBERS:
        return False
    numbers = [level for level in levels if _NUMBER.fullmatch(level)]
    others = len(levels) - len(numbers)
    plain = not others and all(level.isdigit() for level in numbers)
    return others <= _MOST_MARKS and len(numbers) > others and not plain


def _plan(summary: Summary, min_frequency: int, max_levels: int, drop_identifiers: bool) -> _Planned:
    """Names, plan and reason to drop of one column."""
    if summary.n_missing == summary.n_rows:
        return [], None, "all values are missing"
    if summary.kind == "category":
        return _plan_category(summary, min_frequency, max_levels, drop_identifiers)
    if summary.kind.startswith("date"):
        return _plan_date(summary)
    return _plan_number(summary, drop_identifiers)


def _plan_number(summary: Summary, drop_identifiers: bool) -> _Planned:
    (numbers,) = summary.numbers
    varies, missing = numbers.low < numbers.high, summary.n_missing > 0
    if not (varies or missing):
        return [], None, "constant"
    reason = number_identifier(summary.name, summary.numbering, integer=summary.integer) if drop_identifiers else None
    if reason:
        return [], None, reason
    names = [summary.name] * varies + [f"{summary.name}_missing"] * missing
    return names, NumberPlan(numbers.mean, varies, missing), None


def _plan_category(summary: Summary, min_frequency: int, max_levels: int, drop_identifiers: bool) -> _Planned:
    counts, present, missing = summary.counts, summary.n_rows - summary.n_missing, summary.n_missing > 0
    if counts is None:
        return [], None, f"identifier: more than {MOST_COUNTED} distinct values"
    reason = text_identifier(summary.name, len(counts), present) if drop_identifiers else None
    if reason:
        return [], None, reason
    ranked = sorted(counts, key=lambda level: (-counts[level], level))
    levels = sorted([level for level in ranked if counts[level] >= min_frequency][:max_levels])
    other = len(levels) < len(counts)
    names = [f"{summary.name}={_shown(level)}" for level in levels]
    names += [f"{summary.name}=(other)"] * other + [f"{summary.name}=(missing)"] * missing
    if len(names) == 1:
        return [], None, f"no level has {min_frequency} rows or more" if other else "constant"
    marks = _marks(set(counts).difference(levels)) if other else None
    if len(names) > 2:
        return names, CategoryPlan(tuple(levels), other, missing, None, marks), None
    n_pooled = present - sum(counts[level] for level in levels)
    n_second = summary.n_missing if missing else n_pooled if other else counts[levels[1]]
    return names[1:], CategoryPlan(tuple(levels), other, missing, n_second / summary.n_rows, marks), None


def _marks(pooled: set[str]) -> tuple[int, ...] | None:
    """The marks of pooled levels, sorted; None if they are too many to be remembered."""
    return tuple(sorted({level_mark(level) for level in pooled})) if len(pooled) <= MOST_MARKED else None


def _shown(level: str) -> str:
    """A level as part of a name: on one line, and not too long."""
    text = level if len(level) <= _LONGEST_NAME else f"{level[: _LONGEST_NAME - 1]}…"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _plan_date(summary: Summary) -> _Planned:
    varies = [numbers.low < numbers.high for numbers in summary.numbers]
    # a sine may be the same for two months; a pair is kept if either of it varies
    kept = [varies[0], *(varies[i] or varies[i + 1] for i in (1, 3, 5) for _ in "sc")]
    missing = summary.n_missing > 0
    if not (any(kept) or missing):
        return [], None, "constant"
    parts = tuple(part for part, keep in zip(DATE_PARTS, kept, strict=True) if keep)
    # years are counted from the mean date, so that their own mean is 0
    centred = [0.0, *(numbers.mean for numbers in summary.numbers[1:])]
    means = tuple(mean for mean, keep in zip(centred, kept, strict=True) if keep)
    names = [f"{summary.name}_{part}" for part in (*parts, "missing")][: len(parts) + missing]
    return names, DatePlan(summary.numbers[0].mean, parts, means, summary.zone, missing), None


def _unique(name: str, used: set[str]) -> str:
    """The name, with the first of _2, _3, ... that makes it one of its own."""
    result, i = name, 1
    while result in used:
        i += 1
        result = f"{name}_{i}"
    used.add(result)
    return result


def describe_encoding(encoding: Encoding) -> dict[str, list[Any]]:
    """Lists with one entry per input column: what was seen, how it is encoded, and why it is dropped."""
    columns = encoding.columns
    return {
        "column": [column.name for column in columns],
        "kind": [column.kind for column in columns],
        "dtype": [column.dtype for column in columns],
        "missing": [column.n_missing / encoding.n_rows for column in columns],
        "values": [_values_seen(column) for column in columns],
        "becomes": [_first_names(column.names, "columns") for column in columns],
        "dropped": [column.dropped or "" for column in columns],
        "note": [column.note for column in columns],
    }


def _values_seen(column: ColumnEncoding) -> str:
    """The levels or the range of a column, as text for people."""
    if column.kind == "category":
        if column.n_levels is None:
            return f"more than {MOST_COUNTED} levels"
        levels = column.plan.levels if isinstance(column.plan, CategoryPlan) else ()
        if len(levels) == column.n_levels:
            return _first_names(tuple(map(_shown, levels)), "levels")
        pooled = f"{column.n_levels} levels"
        return f"{pooled}, {column.n_levels - len(levels)} of them pooled" if column.plan is not None else pooled
    if column.low is None or column.high is None:
        return ""
    if column.kind.startswith("date"):
        low, high = (str(np.datetime64(round(seconds), "s")) for seconds in (column.low, column.high))
        return f"{low} to {high}"
    return f"{column.low:g} to {column.high:g}" + (" seconds" if column.kind == "duration" else "")


def _first_names(names: tuple[str, ...], what: str, most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{len(names)} {what}: {shown}, ..."
