"""The rows of a fit as trees see them: copies in one, in an order of their own, and labels with weights.

Copies of a row become one row that weighs as much as all of them. Rows are ordered by their keys, which are made of
their values, so that the order in which they were passed makes no difference. A row weighs c_n Y_nk for each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posteriori.rows.copies import group_copies
from posteriori.trees.bags import bag_keys

__all__ = ["DistinctRows", "LabelledWeights", "class_frequencies", "distinct_rows", "row_keys"]


class LabelledWeights(NamedTuple):
    """Entries of rows, classes and weights: c_n Y_nk wherever it is positive, in the order of the rows.

    Attributes
    ----------
    row, code : ndarray of int (e,)
    weight : ndarray (e,)
    """

    row: np.ndarray
    code: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, Y: np.ndarray, weights: np.ndarray) -> LabelledWeights:
        """The entries of labels (n,) or shares (n, K), with weights (n,)."""
        if Y.ndim == 1:
            row = np.flatnonzero(weights > 0.0)
            return cls(row, Y[row], weights[row])
        mass = weights[:, None] * Y
        row, code = np.nonzero(mass)
        return cls(row, code, mass[row, code])

    def by_class(self, K: int) -> np.ndarray:
        """The weight of each class, (K,)."""
        return np.bincount(self.code, self.weight, minlength=K)

    def of_rows(self, chosen: np.ndarray) -> LabelledWeights:
        """The entries of chosen rows, a mask (n,); rows keep their numbers."""
        kept = chosen[self.row]
        return LabelledWeights(self.row[kept], self.code[kept], self.weight[kept])


class DistinctRows(NamedTuple):
    """Rows of positive weight without copies.

    Attributes
    ----------
    X : ndarray (n, D)
        NaN where a value is missing.
    keys : ndarray of uint64 (n,)
        In ascending order.
    labelled : LabelledWeights
    """

    X: np.ndarray
    keys: np.ndarray
    labelled: LabelledWeights


def class_frequencies(class_count: np.ndarray) -> np.ndarray:
    """The class frequencies pi, with one row that may be of any class: no class is impossible.

    >>> class_frequencies(np.array([2.0, 1.0, 0.0])).round(3)
    array([0.583, 0.333, 0.083])
    """
    return (class_count + 1.0 / len(class_count)) / (class_count.sum() + 1.0)


def row_keys(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """A number for each row, (n,), by which it is known: one for all its copies. Y is labels (n,), or shares (n, K)."""
    return bag_keys(X, group_copies(X, Y).groups if Y.ndim == 1 else np.arange(len(X)))


def distinct_rows(X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> DistinctRows:
    """The distinct rows of X (n, D), with labels (n,) or shares (n, K), and weights (n,)."""
    counted = weights > 0.0
    X, Y, weights = X[counted], Y[counted], weights[counted]
    keys, first, place = np.unique(row_keys(X, Y), return_index=True, return_inverse=True)
    together = np.bincount(place.reshape(-1), weights)
    return DistinctRows(X[first], keys, LabelledWeights.of(Y[first], together))
