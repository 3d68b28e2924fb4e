"""Summaries of columns, taken in one pass over the rows: of bounded size, and they merge."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posteriori.tables.agreement import Agreement, Labels, agreement, merge_agreements, read_labels
from posteriori.tables.columns import EMPTY, UNSUPPORTED, Column, date_parts, drop_options, per_column, read_column
from posteriori.tables.identifiers import Numbering, merge_numberings, numbering
from posteriori.tables.names import names_rows

__all__ = [
    "MOST_COUNTED",
    "NumberSummary",
    "Summary",
    "is_full_text",
    "level_key",
    "merge_summaries",
    "summarise",
    "summarise_batches",
    "without_infinities",
]

MOST_COUNTED = 100_000
"""Distinct levels that are counted one by one; a column with more is dropped, so that memory is bounded."""

_LONGEST_LEVEL = 200
"""Characters of the longest level that is known by its full text."""


@dataclass(frozen=True)
class NumberSummary:
    """Count, mean and range of numbers."""

    count: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """A summary of one column from one pass over it; summaries of two parts merge into that of the whole.

    Attributes
    ----------
    numbers : tuple of NumberSummary
        One for a number, one per part for a date, none for a category.
    counts : dict of level to rows, or None
        None once there are more than 100 000 levels.
    n_infinite : int
        Infinite numbers; they are missing values and counted as such too.
    numbering : Numbering or None
        Of numbers that are whole, as far as they may number the rows.
    agreement : Agreement or None
        With the target, where there is one.
    """

    name: str
    kind: str
    dtype: str
    n_rows: int
    n_missing: int
    numbers: tuple[NumberSummary, ...] = ()
    counts: dict[str, int] | None = None
    zone: str | None = None
    integer: bool = False
    n_infinite: int = 0
    numbering: Numbering | None = None
    agreement: Agreement | None = None


def summarise(column: Column, labels: Labels | None = None) -> Summary:
    """Summary of one column of one batch, with the labels of its rows where they are known.

    Examples
    --------
    >>> summarise(read_column("age", np.array([20.0, np.nan, 40.0]))).numbers
    (NumberSummary(count=2, mean=30.0, low=20.0, high=40.0),)
    """
    column, n_infinite = without_infinities(column)
    missing = column.missing()
    n_missing = int(missing.sum())
    summary = Summary(
        column.name,
        column.kind,
        column.dtype,
        len(missing),
        n_missing,
        zone=column.zone,
        integer=column.integer,
        n_infinite=n_infinite,
        agreement=agreement(column, missing, labels) if labels is not None else None,
    )
    if column.kind == EMPTY:
        return summary
    if column.kind == "category":
        return replace(summary, counts=_count_levels(column))
    present = column.values[~missing] if n_missing else column.values
    if column.kind.startswith("date"):
        return replace(summary, numbers=tuple(_summarise_numbers(part) for part in date_parts(present)))
    found = numbering(present, named=names_rows(column.name)) if column.kind == "number" else None
    return replace(summary, numbers=(_summarise_numbers(present),), numbering=found)


def without_infinities(column: Column) -> tuple[Column, int]:
    """The column with its infinite numbers as missing values, and how many there were."""
    if column.values.dtype.kind != "f":
        return column, 0
    infinite = np.isinf(column.values)
    if not infinite.any():
        return column, 0
    return replace(column, values=np.where(infinite, np.nan, column.values)), int(infinite.sum())


def level_key(level: str) -> str:
    """The text by which a level is known: itself, or its beginning and a digest if it is very long.

    >>> level_key("Dream"), len(level_key("very " * 1000))
    ('Dream', 133)
    """
    if len(level) <= _LONGEST_LEVEL:
        return level
    digest = hashlib.blake2b(level.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{level[:100]}…{digest}"


def is_full_text(key: str) -> bool:
    """Whether a key of a level is its full text, and not one with a digest."""
    return not (len(key) == 133 and key[100] == "…")


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Summary of the rows of both, a's first; exact but for the rounding of means."""
    together = merge_agreements(a.agreement, b.agreement)
    if a.kind == EMPTY or b.kind == EMPTY:
        known = b if a.kind == EMPTY else a
        return replace(known, n_rows=a.n_rows + b.n_rows, n_missing=a.n_missing + b.n_missing, agreement=together)
    counts = None
    if a.counts is not None and b.counts is not None:
        counts = dict(a.counts)
        for level, count in b.counts.items():
            counts[level] = counts.get(level, 0) + count
    return replace(
        a,
        n_rows=a.n_rows + b.n_rows,
        n_missing=a.n_missing + b.n_missing,
        numbers=tuple(_merge_numbers(p, q) for p, q in zip(a.numbers, b.numbers, strict=True)),
        counts=_bounded(counts),
        integer=a.integer and b.integer,
        n_infinite=a.n_infinite + b.n_infinite,
        numbering=merge_numberings(a.numbering, b.numbering),
        agreement=together,
    )


def summarise_batches(batches: Iterator[Mapping[str, Any]], names: list[str], target: Any = None) -> list[Summary]:
    """Summaries of the named columns, in one pass, one batch in memory at a time.

    Parameters
    ----------
    batches : iterator of mappings of names to raw columns
    names : list of str
    target : str, array or None
        The column of the labels, or the labels of the only batch; what is not a label of a class is ignored.
    """
    total: list[Summary] = []
    start = 0
    for batch in batches:
        n_rows = len(next(iter(batch.values())))
        raw = batch.get(target) if isinstance(target, str) else target
        summaries = _summarise_batch(batch, names, None if raw is None else read_labels(raw, n_rows))
        pairs = zip(total, summaries, strict=True)
        total = [merge_summaries(a, b) for a, b in pairs] if total else summaries
        start += n_rows
    if start == 0:
        raise ValueError("Found array with 0 sample(s) in X while a minimum of 1 is required.")
    if not names:
        raise ValueError("Found array with 0 feature(s) in X, besides target and carried columns: pass at least one.")
    return total


def _summarise_batch(batch: Mapping[str, Any], names: list[str], labels: Labels | None) -> list[Summary]:
    """Summaries of the named columns; one error names all that no rule covers."""

    def task(name: str) -> Summary | Column:
        column = read_column(name, batch[name])
        return column if column.kind == UNSUPPORTED else summarise(column, labels)

    found = per_column(task, names, len(next(iter(batch.values()))))
    wrong = [column for column in found if isinstance(column, Column)]
    if wrong:
        shown = ", ".join(f"{column.name!r} (dtype {column.dtype})" for column in wrong)
        raise TypeError(
            f"The table has columns that no rule covers: {shown}. Each column must hold numbers, booleans, text or "
            "categories, dates or durations, of one kind: convert these columns, or leave them out "
            f"({drop_options([column.name for column in wrong])} on the command line)."
        )
    for summary in found:
        if isinstance(summary, Exception):
            raise summary
    return found


def _count_levels(column: Column) -> dict[str, int] | None:
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    result: dict[str, int] = {}
    for i in np.flatnonzero(counts).tolist():
        level = level_key(column.levels[i])
        result[level] = result.get(level, 0) + int(counts[i])
    return _bounded(result)


def _bounded(counts: dict[str, int] | None) -> dict[str, int] | None:
    return None if counts is None or len(counts) > MOST_COUNTED else counts


def _summarise_numbers(values: np.ndarray) -> NumberSummary:
    if not len(values):
        return NumberSummary(0, 0.0, np.inf, -np.inf)
    with np.errstate(over="ignore"):
        mean = float(np.mean(values))
    if not np.isfinite(mean):  # the sum of the largest numbers overflows, their mean does not
        mean = float(np.sum(values / len(values)))
    return NumberSummary(len(values), mean, float(values.min()), float(values.max()))


def _merge_numbers(a: NumberSummary, b: NumberSummary) -> NumberSummary:
    count = a.count + b.count
    mean = a.mean * (a.count / count) + b.mean * (b.count / count) if count else 0.0
    return NumberSummary(count, mean, min(a.low, b.low), max(a.high, b.high))
