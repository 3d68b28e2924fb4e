"""Summaries of columns, taken in one pass over the rows: of bounded size, and they merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posteriori.tables.columns import (
    EMPTY,
    UNSUPPORTED,
    Column,
    date_parts,
    per_column,
    raise_if_infinite,
    read_column,
)

__all__ = ["MOST_COUNTED", "NumberSummary", "Summary", "hash_sum", "merge_summaries", "summarise", "summarise_batches"]

MOST_COUNTED = 100_000
"""Distinct levels that are counted one by one; a column with more is dropped, so that memory is bounded."""


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
    hashes : int
        Sum of the hashes of all integers, modulo 2^64: whether they are 1, 2, ..., N in any order.
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
    hashes: int = 0


def summarise(column: Column, *, start: int = 0) -> Summary:
    """Summary of one column of one batch, whose first row has the number `start`.

    Examples
    --------
    >>> summarise(read_column("age", np.array([20.0, np.nan, 40.0]))).numbers
    (NumberSummary(count=2, mean=30.0, low=20.0, high=40.0),)
    """
    missing = column.missing()
    n_missing = int(missing.sum())
    summary = Summary(column.name, column.kind, column.dtype, len(missing), n_missing)
    summary = replace(summary, zone=column.zone, integer=column.integer)
    if column.kind == EMPTY:
        return summary
    if column.kind == "category":
        return replace(summary, counts=_count_levels(column))
    present = column.values[~missing] if n_missing else column.values
    if column.kind.startswith("date"):
        return replace(summary, numbers=tuple(_summarise_numbers(part) for part in date_parts(present)))
    raise_if_infinite(column, start=start)
    return replace(summary, numbers=(_summarise_numbers(present),), hashes=hash_sum(present) if column.integer else 0)


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Summary of the rows of both, a's first; exact but for the rounding of means."""
    if a.kind == EMPTY or b.kind == EMPTY:
        known = b if a.kind == EMPTY else a
        return replace(known, n_rows=a.n_rows + b.n_rows, n_missing=a.n_missing + b.n_missing)
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
        hashes=(a.hashes + b.hashes) % 2**64,
    )


def summarise_batches(batches: Iterator[Mapping[str, Any]], names: list[str]) -> list[Summary]:
    """Summaries of the named columns, in one pass, one batch in memory at a time."""
    total: list[Summary] = []
    start = 0
    for batch in batches:
        summaries = _summarise_batch(batch, names, start)
        pairs = zip(total, summaries, strict=True)
        total = [merge_summaries(a, b) for a, b in pairs] if total else summaries
        start += len(next(iter(batch.values())))
    if start == 0:
        raise ValueError("Found array with 0 sample(s) in X while a minimum of 1 is required.")
    if not names:
        raise ValueError("Found array with 0 feature(s) in X, besides target and carried columns: pass at least one.")
    return total


def _summarise_batch(batch: Mapping[str, Any], names: list[str], start: int) -> list[Summary]:
    """Summaries of the named columns; one error names all that no rule covers."""

    def task(name: str) -> Summary | Column:
        column = read_column(name, batch[name])
        return column if column.kind == UNSUPPORTED else summarise(column, start=start)

    found = per_column(task, names, len(next(iter(batch.values()))))
    wrong = [f"{column.name!r} (dtype {column.dtype})" for column in found if isinstance(column, Column)]
    if wrong:
        raise TypeError(
            f"X has columns that no rule covers: {', '.join(wrong)}. Each column must hold numbers, booleans, text or "
            "categories, dates or durations, of one kind: convert these columns, or leave them out."
        )
    for summary in found:
        if isinstance(summary, Exception):
            raise summary
    return found


def _count_levels(column: Column) -> dict[str, int] | None:
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    result: dict[str, int] = {}
    for i in np.flatnonzero(counts).tolist():
        level = column.levels[i]
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


def hash_sum(values: np.ndarray) -> int:
    """Sum of well-mixed hashes (splitmix64) of integers >= 0, modulo 2^64."""
    z = np.clip(values, 0, 2.0**53).astype(np.uint64)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.sum(z ^ (z >> np.uint64(31)), dtype=np.uint64))
