"""Agreement of one column with the target: a column that gives the class away may not be known at prediction.

Whether it is chance is judged as if the labels were dealt at random to the rows, n_k of class k out of N:

    P(each of D values occurs with one class only)      <=  K^D  n_1! ... n_K! / N!
    P(the classes lie in intervals that do not overlap)  =  K!   n_1! ... n_K! / N!
    P(m given rows are all of class k)                   =  n_k! (N - m)! / ((n_k - m)! N!).

A column of many different values is never suspicious by the first, a column on a few rows by none of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import gammaln

from posteriori.tables.columns import Column, read_column

__all__ = ["Agreement", "Labels", "agreement", "log_chance_told", "merge_agreements", "read_labels"]

MOST_CLASSES = 200
"""With more classes than this, columns are not compared with the target."""

MOST_VALUES = 4096
"""Of a column with more distinct values than this, only the ranges of the classes are compared."""

_FEW = 32
"""Values that are never too many."""

_HEAD = 512
"""Rows that are looked at first: most columns are found not to determine the target by these."""


Ranges = dict[str, tuple[float, float]]
"""The lowest and the highest value of each class."""


@dataclass(frozen=True)
class Labels:
    """The classes of a batch of rows: codes (N,) into `names`, -1 where a label is missing."""

    codes: np.ndarray
    names: tuple[str, ...]

    @cached_property
    def totals(self) -> dict[str, int]:
        """The number of rows of each class."""
        return self.counts()

    @cached_property
    def complete(self) -> bool:
        """Whether no label is missing."""
        return bool((self.codes >= 0).all())

    def counts(self, rows: np.ndarray | slice = slice(None)) -> dict[str, int]:
        """The number of rows of each class, of all rows or of some."""
        codes = self.codes[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(self.names))
        return {self.names[k]: int(counts[k]) for k in np.flatnonzero(counts)}


def read_labels(raw: Any, n_rows: int) -> Labels | None:
    """The labels of a batch of rows; None where they are not one label of a class for each row."""
    try:
        column = read_column("y", raw)
    except (TypeError, ValueError, AttributeError):
        return None
    if len(column.values) != n_rows or column.kind not in ("number", "boolean", "category"):
        return None
    if column.kind == "category":
        codes, names = column.values, column.levels
    else:
        missing = column.missing()
        present, inverse = np.unique(column.values[~missing], return_inverse=True)
        codes = np.full(n_rows, -1)
        codes[~missing] = inverse
        names = tuple(f"{value:.17g}" for value in present[: MOST_CLASSES + 1])
    return Labels(codes, names) if len(names) <= MOST_CLASSES else None


@dataclass(frozen=True)
class Agreement:
    """How the values of a column go with the classes; two of them merge.

    Attributes
    ----------
    present, absent : dict of class to number of rows
        Rows with a value, and rows where it is missing.
    owners : dict of value to class, or None
        None once a value has occurred with two classes, or there are too many values. Values that hardly repeat, such
        as numbers of households, are too many too.
    ranges : dict of class to (low, high), or None
        For numbers and dates; None once two of them overlap.
    """

    present: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    owners: dict[Hashable, str] | None = field(default_factory=dict)
    ranges: Ranges | None = field(default_factory=dict)

    def finding(self, log_limit: float) -> str | None:
        """What is suspicious about the column, in words; None if nothing is less likely than the limit by chance."""
        classes = {label: self.present.get(label, 0) + self.absent.get(label, 0) for label in self._labels()}
        if len(classes) < 2:
            return None
        for rows, words in ((self.present, "has values"), (self.absent, "is missing")):
            if len(rows) == 1 and sum(rows.values()) < sum(classes.values()):
                ((label, m),) = rows.items()
                if _log_one_class(m, classes[label], sum(classes.values())) < log_limit:
                    return f"{words} only in rows of class {label[:60]!r}"
        return self._determines(log_limit)

    def _labels(self) -> list[str]:
        return list(dict.fromkeys([*self.present, *self.absent]))

    def _determines(self, log_limit: float) -> str | None:
        K, N = len(self.present), sum(self.present.values())
        if K < 2:
            return None
        one_order = _log_one_order(list(self.present.values()))
        if (
            self.owners is not None
            and 2 * len(self.owners) <= N
            and len(self.owners) * np.log(K) + one_order < log_limit
        ):
            return "determines the target: each of its values occurs with one class only"
        if self.ranges is not None and len(self.ranges) == K and gammaln(K + 1) + one_order < log_limit:
            return "determines the target: its values of different classes do not overlap"
        return None


def _log_one_order(counts: list[int]) -> float:
    """log of n_1! ... n_K! / N!, the probability of one arrangement of labels."""
    return float(gammaln(np.array(counts) + 1.0).sum() - gammaln(sum(counts) + 1.0))


def _log_one_class(m: int, n: int, N: int) -> float:
    """Log-probability that m rows out of N are all among the n of one class."""
    return float(gammaln(n + 1) + gammaln(N - m + 1) - gammaln(n - m + 1) - gammaln(N + 1))


def log_chance_told(n_columns: int) -> float:
    """The log-probability by chance below which agreement is told: 1e-3 that there is any in all columns."""
    return float(np.log(1e-3 / max(n_columns, 1)))


def agreement(column: Column, missing: np.ndarray, labels: Labels) -> Agreement:
    """The agreement of a column with the labels of its rows."""
    values, codes, present, absent = column.values, labels.codes, labels.totals, {}
    if missing.any():
        absent = labels.counts(missing)
        present = {label: n - absent.get(label, 0) for label, n in present.items() if n > absent.get(label, 0)}
    if missing.any() or not labels.complete:
        rows = np.flatnonzero(~missing & (codes >= 0))
        values, codes = values[rows], codes[rows]
    if values.dtype.kind == "M":
        values = values.astype(np.int64)
    levels = column.levels if column.kind == "category" else None
    owners, ranges = _compared(values[:_HEAD], codes[:_HEAD], labels.names, levels)
    if len(values) > _HEAD and (owners is not None or ranges is not None):
        owners, ranges = _compared(values, codes, labels.names, levels)
    return Agreement(present, absent, owners, ranges)


def _compared(
    values: np.ndarray, codes: np.ndarray, classes: tuple[str, ...], levels: tuple[str, ...] | None
) -> tuple[dict[Hashable, str] | None, Ranges | None]:
    """Owners and ranges of an `Agreement`."""
    N = len(values)
    if not N:
        return {}, {}
    order = np.argsort(values, kind="stable")
    values, codes = values[order], codes[order]
    same, change = values[1:] == values[:-1], codes[1:] != codes[:-1]
    if (same & change).any():
        return None, None
    owners: dict[Hashable, str] | None = None
    n_values = N - int(np.count_nonzero(same))
    if n_values <= min(MOST_VALUES, max(N / 2, _FEW)):
        first = np.concatenate([[0], np.flatnonzero(~same) + 1])
        keys = [levels[code] for code in values[first]] if levels is not None else values[first].tolist()
        owners = dict(zip(keys, (classes[k] for k in codes[first]), strict=True))
    if levels is not None or np.count_nonzero(change) >= len(classes):
        return owners, None
    # sorted by value, each class is one run
    starts = [0, *(np.flatnonzero(change) + 1).tolist()]
    ends = [*(start - 1 for start in starts[1:]), N - 1]
    ranges = {classes[codes[i]]: (float(values[i]), float(values[j])) for i, j in zip(starts, ends, strict=True)}
    return owners, ranges if len(ranges) == len(starts) else None


def merge_agreements(a: Agreement | None, b: Agreement | None) -> Agreement | None:
    """The agreement of the rows of both."""
    if a is None or b is None:
        return None
    return Agreement(
        _sum(a.present, b.present), _sum(a.absent, b.absent), _merge_owners(a, b), _merge_ranges(a.ranges, b.ranges)
    )


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {label: a.get(label, 0) + b.get(label, 0) for label in [*a, *(label for label in b if label not in a)]}


def _merge_owners(a: Agreement, b: Agreement) -> dict[Hashable, str] | None:
    if a.owners is None or b.owners is None:
        return None
    owners = a.owners | b.owners
    same = all(b.owners.get(value, label) == label for value, label in a.owners.items())
    return owners if same and len(owners) <= MOST_VALUES else None


def _merge_ranges(a: Ranges | None, b: Ranges | None) -> Ranges | None:
    if a is None or b is None:
        return None
    nothing = (np.inf, -np.inf)
    ranges = {}
    for label in a | b:
        (low, high), (other_low, other_high) = a.get(label, nothing), b.get(label, nothing)
        ranges[label] = (min(low, other_low), max(high, other_high))
    ordered = sorted(ranges.values())
    apart = all(high < low for (_, high), (low, _) in pairwise(ordered))
    return ranges if apart else None
