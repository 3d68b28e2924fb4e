"""Agreement of one column with the target: a column that gives the class away may not be known at prediction.

Whether it is chance is judged as if the labels were dealt at random to the rows, n_k of class k out of N:

    P(each of D values occurs with one class only)      <=  K^D  n_1! ... n_K! / N!
    P(the classes lie in intervals that do not overlap)  =  K!   n_1! ... n_K! / N!
    P(m given rows are all of class k)                   =  n_k! (N - m)! / ((n_k - m)! N!).

A column of many different values is never suspicious by the first, a column on a few rows by none of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import gammaln

from posteriori.tables.columns import Column, read_column

__all__ = ["Agreement", "Labels", "agreement", "merge_agreements", "read_labels"]

MOST_CLASSES = 1000
"""With more classes than this, columns are not compared with the target."""

MOST_VALUES = 4096
"""Of a column with more distinct values than this, only the ranges of the classes are compared."""

_HEAD = 512
"""Rows that are looked at first: most columns are found not to determine the target by these."""


@dataclass(frozen=True)
class Labels:
    """The classes of a batch of rows: codes (N,) into `names`, -1 where a label is missing."""

    codes: np.ndarray
    names: tuple[str, ...]

    def counts(self, rows: np.ndarray | slice = slice(None)) -> dict[str, int]:
        """The number of rows of each class."""
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
        None once a value has occurred with two classes, or there are too many values.
    ranges : dict of class to (low, high), or None
        For numbers and dates; None once two of them overlap.
    """

    present: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)
    owners: dict[Hashable, str] | None = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] | None = field(default_factory=dict)

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
        K = len(self.present)
        if K < 2:
            return None
        one_order = _log_one_order(list(self.present.values()))
        if self.owners is not None and len(self.owners) * np.log(K) + one_order < log_limit:
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


def agreement(column: Column, missing: np.ndarray, labels: Labels) -> Agreement:
    """The agreement of a column with the labels of its rows."""
    absent = labels.counts(missing) if missing.any() else {}
    rows = np.flatnonzero(~missing & (labels.codes >= 0))
    present = {label: n - absent.get(label, 0) for label, n in labels.counts().items() if n > absent.get(label, 0)}
    values = column.values[rows]
    if values.dtype.kind == "M":
        values = values.astype(np.int64)
    codes = labels.codes[rows]
    names = column.levels if column.kind == "category" else None
    found = _compared(values[:_HEAD], codes[:_HEAD], labels.names, names)
    if len(rows) > _HEAD and (found.owners is not None or found.ranges is not None):
        found = _compared(values, codes, labels.names, names)
    return replace(found, present=present, absent=absent)


def _compared(
    values: np.ndarray, codes: np.ndarray, classes: tuple[str, ...], levels: tuple[str, ...] | None
) -> Agreement:
    if not len(values):
        return Agreement()
    order = np.lexsort((codes, values))
    values, codes = values[order], codes[order]
    new = np.concatenate([[True], values[1:] != values[:-1]])
    mixed = bool((~new[1:] & (codes[1:] != codes[:-1])).any())
    owners: dict[Hashable, str] | None = None
    if not mixed and np.count_nonzero(new) <= MOST_VALUES:
        keys = [levels[code] for code in values[new]] if levels is not None else values[new].tolist()
        owners = dict(zip(keys, (classes[k] for k in codes[new]), strict=True))
    ranges: dict[str, tuple[float, float]] | None = None
    # sorted by value, each class is one run
    runs = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    if levels is None and not mixed and len(runs) == len(np.unique(codes)):
        ends = [*(runs[1:] - 1), len(codes) - 1]
        ranges = {classes[codes[i]]: (float(values[i]), float(values[j])) for i, j in zip(runs, ends, strict=True)}
    return Agreement(owners=owners, ranges=ranges)


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


Ranges = dict[str, tuple[float, float]]


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
