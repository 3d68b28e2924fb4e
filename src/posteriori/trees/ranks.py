"""Values as ranks among the distinct values of their column, or among bins of them, and thresholds as numbers.

Trees that are grown on ranks split the rows of a fit alike in any units, and under any growing function of a column.
Ranks are whole numbers, which float32 tells apart, as it may not the values. A threshold r + f between the ranks r and
r + 1 becomes (1 - f) v + f w, with v the greatest value of rank r and w the least one of rank r + 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Ranks"]

MOST_RANKS = 1 << 24
"""Whole numbers that float32, in which scikit-learn grows trees, tells apart."""


class Ranks(NamedTuple):
    """The bins of each column, in order: one for each distinct value, or of about as many rows where these are many.

    Attributes
    ----------
    first, last : list of ndarray
        The least and the greatest value in each bin.
    """

    first: list[np.ndarray]
    last: list[np.ndarray]

    @classmethod
    def of(cls, X: np.ndarray, most: int = MOST_RANKS) -> Ranks:
        """The bins of a matrix in which values may be missing, at most so many in each column."""
        first, last = [], []
        for column in X.T:
            values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            number = np.arange(len(values))
            if len(values) > most:
                number = ((np.cumsum(counts) - 0.5 * counts) * (most / counts.sum())).astype(int)
            new = np.diff(number, prepend=-1) > 0
            first.append(values[new])
            last.append(values[np.roll(new, -1)])
        return cls(first, last)

    def ranks(self, X: np.ndarray) -> np.ndarray:
        """The bin of each value, (n, D) float32; NaN where it is missing."""
        out = np.empty(X.shape, dtype=np.float32)
        for d, values in enumerate(self.first):
            out[:, d] = np.searchsorted(values, X[:, d], side="right") - 1
        out[np.isnan(X)] = np.nan
        return out

    def thresholds(self, feature: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Thresholds among ranks as numbers that send the same rows to the left; infinite ones stay."""
        out = at.astype(np.float64)
        for d in np.unique(feature[feature >= 0]):
            nodes = np.flatnonzero((feature == d) & np.isfinite(at))
            last, first = self.last[d], self.first[d]
            below = np.clip(np.floor(at[nodes]).astype(int), 0, len(last) - 1)
            above = np.minimum(below + 1, len(last) - 1)
            share = at[nodes] - below
            between = last[below] * (1.0 - share) + first[above] * share
            most = np.maximum(np.nextafter(first[above], -np.inf), last[below])
            out[nodes] = np.clip(between, last[below], most)
        return out
