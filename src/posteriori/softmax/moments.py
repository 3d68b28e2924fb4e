"""The observed moments: all that softmax regression needs of labels, summed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.rows.blocks import Blocks
from posteriori.softmax.kernels import observed_moments

__all__ = ["ObservedMoments"]


@dataclass(frozen=True)
class ObservedMoments:
    """The sums of one first pass over the data, after which labels are not needed again (docs/theory.md, section 2.1).

    Attributes
    ----------
    moments : ndarray (K, D + 1)
        T = Y^T diag(c) [X, 1]; its last column holds the class sizes.
    squares : ndarray (D,)
        sum_n c_n x_n^2.
    """

    moments: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, blocks: Blocks, n_classes: int) -> ObservedMoments:
        """Sum the moments of all blocks, in one pass."""
        return cls(*blocks.map_sum(observed_moments, n_classes))

    @property
    def class_sizes(self) -> np.ndarray:
        """sum_n c_n Y_nk, (K,)."""
        return self.moments[:, -1]

    @property
    def total_weight(self) -> float:
        """sum_n c_n."""
        return float(self.class_sizes.sum())

    @property
    def mean(self) -> np.ndarray:
        """Mean of each feature, (D,)."""
        return self.moments[:, :-1].sum(axis=0) / self.class_sizes.sum()

    @property
    def variance(self) -> np.ndarray:
        """Variance of each feature, (D,); zero where it is lost in rounding."""
        second = self.squares / self.class_sizes.sum()
        variance = second - self.mean**2
        return np.where(variance > 1e-13 * second, variance, 0.0)

    @property
    def finite(self) -> bool:
        """Whether all sums are finite; they are not if any value is not."""
        return bool(np.isfinite(self.moments).all() and np.isfinite(self.squares).all())
