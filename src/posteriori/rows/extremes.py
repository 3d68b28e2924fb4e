"""Least and greatest values of columns, as a sum over blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.rows.blocks import kernel

__all__ = ["Extremes", "extremes"]


@dataclass(frozen=True)
class Extremes:
    """Least and greatest value of each column, (D,) each; ``+`` merges two sets of rows."""

    least: np.ndarray
    greatest: np.ndarray

    def __add__(self, other: Extremes) -> Extremes:
        return Extremes(np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest))

    @property
    def ranges(self) -> np.ndarray:
        """Greatest less least, (D,)."""
        return self.greatest - self.least

    @property
    def largest(self) -> np.ndarray:
        """The greatest absolute value, (D,)."""
        return np.maximum(np.abs(self.least), np.abs(self.greatest))


@kernel(reads_labels=False, jax_version="posteriori.rows.gpu_arrays:extremes")
def extremes(X: Any, Y: Any, c: np.ndarray | None) -> Extremes:
    """Extremes of the rows of positive weight: a kernel for `Blocks.map_sum`."""
    if c is not None and not c.all():
        X = X[c > 0]
    if X.shape[0] == 0:
        return Extremes(np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf))
    least, greatest = X.min(axis=0), X.max(axis=0)
    if sp.issparse(X):
        return Extremes(least.toarray().ravel(), greatest.toarray().ravel())
    return Extremes(least, greatest)
