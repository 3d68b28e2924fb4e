r"""The statistics of classes that have fewer rows than features: the scatter of each class as a few vectors.

n rows about their mean span n - 1 dimensions at most. So n - 1 vectors, the *roots* of the scatter, say as much as a
matrix (D, D):

.. math:: S_k = \sum_{m \in k} r_m r_m^\top .

They are the triangular factor of the rows about their mean, which is known from S_k too: no row is kept. Roots of two
sets of rows are taken together; the difference delta of the means adds one for each class,

.. math:: \sqrt{\tfrac{n_1 n_2}{n_1 + n_2}} \, \delta .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.gaussian.statistics import SCATTERS, ClassMoments, ClassStatistics, Kind
from posteriori.rows.products import dense_parts

__all__ = ["RootStatistics", "root_statistics"]

_PART_BYTES = 64 << 20
"""Bytes of the rows of a sparse matrix that are made dense at a time."""


@dataclass(frozen=True)
class RootStatistics(ClassMoments):
    """Sums over rows, by class, the scatter as vectors; the fields are those of stored files.

    See docs/theory.md, section 5.6.

    Attributes
    ----------
    counts, present, means : ndarray
        As in `ClassMoments`; no value is missing.
    roots : ndarray (M, D)
        Vectors r_m whose products r_m r_m^T add up to the scatter of their class.
    codes : ndarray of int (M,)
        Classes of the roots.
    """

    counts: np.ndarray
    present: np.ndarray
    means: np.ndarray
    roots: np.ndarray
    codes: np.ndarray

    def __add__(self, other: RootStatistics) -> RootStatistics:
        """The statistics of both sets of rows."""
        present = self.present + other.present
        share = other.present / np.where(present > 0.0, present, 1.0)
        delta = other.means - self.means
        between = np.sqrt(self.present * share) * delta
        both = np.flatnonzero(self.present * other.present > 0.0)
        return RootStatistics(
            self.counts + other.counts,
            present,
            self.means + share * delta,
            np.concatenate([self.roots, other.roots, between[both]]),
            np.concatenate([self.codes, other.codes, both]),
        )

    @property
    def finite(self) -> bool:
        """Whether all sums are numbers."""
        return bool(np.isfinite(self.means).all() and np.isfinite(self.roots).all())

    @property
    def span(self) -> int:
        """The dimension of a space that holds all class means and scatters."""
        return len(self.roots) + len(self.means)

    def squares_about_means(self) -> np.ndarray:
        """Sums of squares about the class means, (K, D)."""
        return self.reduced("diagonal").scatter

    def holds(self, kind: Kind) -> bool:
        """True: a scatter of any kind follows from its roots."""
        return True

    def reduced(self, kind: Kind) -> ClassStatistics:
        """The statistics with the scatter as an array of this kind."""
        scatter = SCATTERS[kind].of_roots(self.roots, self.codes, len(self.counts))
        return ClassStatistics(kind, self.counts, self.present, self.means, scatter)


def root_statistics(X: Any, Y: np.ndarray, c: np.ndarray | None, n_classes: int) -> RootStatistics:
    """The statistics of one block of rows: a kernel for `Blocks.map_sum`."""
    total = None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and refused, later
        for rows, part in dense_parts(X, _PART_BYTES):
            found = _of_part(part, Y[rows], None if c is None else c[rows], n_classes)
            total = found if total is None else total + found
    assert total is not None
    return total


def _of_part(X: np.ndarray, Y: np.ndarray, c: np.ndarray | None, K: int) -> RootStatistics:
    """The statistics of rows with hard or soft labels, class by class."""
    counts, means, roots = np.zeros(K), np.zeros((K, X.shape[1])), []
    for k in range(K):
        shares = (Y == k).astype(np.float64) if Y.ndim == 1 else Y[:, k]
        if c is not None:
            shares = shares * c
        own = shares > 0.0
        if own.any():
            counts[k] = shares.sum()
            means[k], R = _mean_and_roots(X[own], shares[own])
            roots.append(R)
    codes = np.repeat(np.flatnonzero(counts), [len(R) for R in roots])
    return RootStatistics(counts, counts[:, None], means, np.concatenate([np.empty((0, X.shape[1])), *roots]), codes)


def _mean_and_roots(X: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (D,) and the roots (n - 1, D) of n rows of positive weight."""
    origin, shares = X[0], c / c.sum()
    mean = origin + np.dot(shares, X - origin)
    W = np.sqrt(c)[:, None] * (X - mean)
    # a reflection takes s, the roots of the shares, to the first axis: there s^T W = 0, but for rounding
    v = np.sqrt(shares)
    v[0] += 1.0
    W -= np.outer(v, np.dot(v, W) / v[0])
    return mean, np.asarray(np.linalg.qr(W[1:], mode="r"))
