"""Labels as trees take them: one entry for each class that a row may be of, with a weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["LabelledWeights"]


class LabelledWeights(NamedTuple):
    """Entries of rows, classes and weights: c_n Y_nk wherever it is positive.

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
        """The entries of labels (n,) or shares (n, K), with weights (n,); in the order of the rows."""
        if Y.ndim == 1:
            row = np.flatnonzero(weights > 0.0)
            return cls(row, Y[row], weights[row])
        mass = weights[:, None] * Y
        row, code = np.nonzero(mass)
        return cls(row, code, mass[row, code])

    def by_class(self, K: int) -> np.ndarray:
        """The weight of each class, (K,)."""
        return np.bincount(self.code, self.weight, minlength=K)
