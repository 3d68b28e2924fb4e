r"""What a Gaussian classifier needs of its data: count, mean and scatter of every class, in one pass.

.. math:: n_k = \sum_n c_n Y_{nk}, \quad \bar x_k = \frac{1}{n_k} \sum_n c_n Y_{nk} x_n, \quad
          S_k = \sum_n c_n Y_{nk} (x_n - \bar x_k)(x_n - \bar x_k)^\top.

Statistics of two sets of rows merge exactly, in any order: with delta the difference of the means,

.. math:: S = S_1 + S_2 + \frac{n_1 n_2}{n_1 + n_2} \delta \delta^\top .

Rows are taken about one of their own before anything is squared, and where classes lie far apart every class about
one of its own, so that no digits are lost however far the data lie from the origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from posteriori.rows.blocks import kernel
from posteriori.rows.products import as_dense, is_sparse

__all__ = ["ClassStatistics", "Kind", "class_statistics", "weighted_squares"]

Kind = Literal["full", "pooled", "diagonal"]
"""Which scatter is kept: a matrix per class, one matrix for all classes, or variances per class."""

_PART_BYTES = 4 << 20
"""Rows of a sparse matrix written out at a time."""

_FEW_CLASSES = 16
"""Products with one column per class are cheap."""

_CLOSE = 0.999
"""Share of the sum of squares about the origin that may be due to its distance from the mean: 3 digits."""


@dataclass(frozen=True)
class ClassStatistics:
    """Sums over rows, by class.

    Attributes
    ----------
    kind : {"full", "pooled", "diagonal"}
    counts : ndarray (K,)
        Weight of the rows of each class.
    present : ndarray (K, 1) or (K, D)
        Weight of the values that are there, of each class and, where some are missing, feature.
    means : ndarray (K, D)
        Zero where nothing is present.
    scatter : ndarray (K, D, D), (D, D) or (K, D)
        As the kind says.
    """

    kind: Kind
    counts: np.ndarray
    present: np.ndarray
    means: np.ndarray
    scatter: np.ndarray

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        """The statistics of both sets of rows."""
        present = self.present + other.present
        share = other.present / np.where(present > 0.0, present, 1.0)
        delta = other.means - self.means
        means = self.means + share * delta
        scatter = self.scatter + other.scatter + weighted_squares(self.kind, delta, self.present * share)
        return ClassStatistics(self.kind, self.counts + other.counts, present, means, scatter)

    @property
    def complete(self) -> bool:
        """Whether no value was missing."""
        return bool((self.present == self.counts[:, None]).all())

    def grand_mean(self) -> np.ndarray:
        """Mean of all rows, (D,)."""
        total = self.present.sum(axis=0)
        return (self.present * self.means).sum(axis=0) / np.where(total > 0.0, total, 1.0)

    def total_variance(self) -> np.ndarray:
        """Variance of all rows about their mean, (D,)."""
        total = self.present.sum(axis=0)
        between = (self.present * (self.means - self.grand_mean()) ** 2).sum(axis=0)
        return (self.within().sum(axis=0) + between) / np.where(total > 0.0, total, 1.0)

    def within(self) -> np.ndarray:
        """Sums of squares about the class means: (K, D), or (1, D) where they are pooled."""
        if self.kind == "diagonal":
            return self.scatter
        return np.atleast_2d(np.diagonal(self.scatter, axis1=-2, axis2=-1))

    def standardised(self, shift: np.ndarray, scale: np.ndarray) -> ClassStatistics:
        """The statistics of (x - shift) * scale."""
        absent = self.present <= 0.0
        means = np.where(absent, 0.0, (self.means - shift) * scale)
        factor = scale**2 if self.kind == "diagonal" else scale * scale[:, None]
        return ClassStatistics(self.kind, self.counts, self.present, means, self.scatter * factor)

    def holds(self, kind: Kind) -> bool:
        """Whether a scatter of this kind follows from what is kept."""
        return self.kind in (kind, "full")

    def reduced(self, kind: Kind) -> ClassStatistics:
        """With less detail: from full scatter to pooled or diagonal."""
        if kind == self.kind:
            return self
        assert self.holds(kind)
        scatter = self.scatter.sum(axis=0) if kind == "pooled" else self.within()
        return ClassStatistics(kind, self.counts, self.present, self.means, scatter)


@kernel(jax_version="posteriori.gaussian.jax_statistics:class_statistics")
def class_statistics(X: Any, Y: np.ndarray, c: np.ndarray | None, n_classes: int, kind: Kind) -> ClassStatistics:
    """The statistics of one block of rows: a kernel for `Blocks.map_sum`."""
    n, D = X.shape
    one_origin = kind != "full" and n_classes <= _FEW_CLASSES
    step = max(1, _PART_BYTES // (8 * D)) if is_sparse(X) else n
    total = None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and refused, later
        for start in range(0, n, step):
            rows = slice(start, start + step)
            part = as_dense(X[rows])
            weights = None if c is None else c[rows]
            found = _about_one_origin(part, Y[rows], weights, n_classes, kind) if one_origin else None
            if found is None:
                found = (_of_labels if Y.ndim == 1 else _of_soft_labels)(part, Y[rows], weights, n_classes, kind)
            total = found if total is None else total + found
    assert total is not None
    return total


def _about_one_origin(X: np.ndarray, Y: np.ndarray, c: np.ndarray | None, K: int, kind: Kind) -> ClassStatistics | None:
    """All classes about one row, by two products; None where that would lose digits, or values are missing."""
    shares = np.eye(K).take(Y, axis=0) if Y.ndim == 1 else Y
    if c is not None:
        shares = shares * c[:, None]
    origin = _origin(X)
    Z = X - origin
    counts = np.dot(np.ones(len(X)), shares)
    divisor = np.where(counts > 0.0, counts, 1.0)[:, None]
    shifts = np.dot(shares.T, Z) / divisor  # np.dot, unlike @, lets other threads run while the result is small
    between = counts[:, None] * shifts**2
    if kind == "diagonal":
        squares = np.dot(shares.T, np.square(Z, out=Z))
        if not (between <= _CLOSE * squares).all():
            return None
        scatter = squares - between
    else:
        scatter = np.dot(Z.T, Z if c is None and Y.ndim == 1 else Z * shares.sum(axis=1)[:, None])
        if not (between.sum(axis=0) <= _CLOSE * scatter.diagonal()).all():
            return None
        scatter -= weighted_squares("pooled", shifts, counts[:, None])
    means = np.where(counts[:, None] > 0.0, origin + shifts, 0.0)
    return ClassStatistics(kind, counts, counts[:, None], means, scatter)


def _of_labels(X: np.ndarray, y: np.ndarray, c: np.ndarray | None, K: int, kind: Kind) -> ClassStatistics:
    """Rows are brought in the order of their classes: each class is then one slice."""
    # few distinct small integers: sorted in one pass over them
    order = np.argsort(y.astype(np.int16) if K < 2**15 else y, kind="stable")
    Z = np.take(X, order, axis=0)
    weights = np.ones(len(y)) if c is None else c[order]
    ends = np.cumsum(np.bincount(y, minlength=K))
    out = _BlockStatistics(K, X.shape[1], kind)
    for k, (start, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
        if end > start:
            out.put(k, Z[start:end], weights[start:end], unweighted=c is None)
    return out.statistics()


def _of_soft_labels(X: np.ndarray, Y: np.ndarray, c: np.ndarray | None, K: int, kind: Kind) -> ClassStatistics:
    """Every row counts for every class, by its share."""
    out = _BlockStatistics(K, X.shape[1], kind)
    for k in range(K):
        out.put(k, X.copy(), Y[:, k] if c is None else Y[:, k] * c, unweighted=False)
    return out.statistics()


class _BlockStatistics:
    """Statistics of one block, filled class by class."""

    def __init__(self, K: int, D: int, kind: Kind) -> None:
        self.kind = kind
        self.counts, self.means = np.zeros(K), np.zeros((K, D))
        self.present = np.zeros((K, 1))
        self.scatter = np.zeros({"full": (K, D, D), "pooled": (D, D), "diagonal": (K, D)}[kind])

    def put(self, k: int, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> None:
        """Rows of class k, which are overwritten."""
        count = float(c.sum())
        self.counts[k] = count
        if count == 0.0:
            return
        if not unweighted and c.min() == 0.0:
            Z, c = Z[c > 0.0], c[c > 0.0]
        origin = _origin(Z)
        if self.kind == "diagonal" and (np.isnan(origin).any() or np.isnan(np.dot(c, Z)).any()):
            self._put_missing(k, Z, c)
            return
        Z -= origin
        shift = np.dot(c, Z) / count
        squares, scatter = self._squares(Z, c, unweighted)
        if (count * shift**2 > _CLOSE * squares).any():  # not so near the mean after all
            Z -= shift
            origin = origin + shift
            shift = np.dot(c, Z) / count
            squares, scatter = self._squares(Z, c, unweighted)
        self.present[k] = count
        self.means[k] = origin + shift
        correction = shift * shift if self.kind == "diagonal" else np.outer(shift, shift)
        scatter -= count * correction
        if self.kind == "pooled":
            self.scatter += scatter
        else:
            self.scatter[k] = scatter

    def _squares(self, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> tuple[np.ndarray, np.ndarray]:
        """sum_n c_n z_nd^2, (D,), and the scatter about the origin, of which it is the diagonal."""
        if self.kind == "diagonal":
            squares = np.dot(c, np.square(Z))
            return squares, squares.copy()
        scatter = np.dot(Z.T, Z if unweighted else Z * c[:, None])
        return scatter.diagonal(), scatter

    def _put_missing(self, k: int, Z: np.ndarray, c: np.ndarray) -> None:
        """Each feature from the rows in which it is present."""
        there = ~np.isnan(Z)
        weights = there * c[:, None]
        total = weights.sum(axis=0)
        divisor = np.where(total > 0.0, total, 1.0)
        origin = np.take_along_axis(Z, there.argmax(axis=0)[None], axis=0)[0]
        Z = np.where(there, Z - origin, 0.0)
        shift = (weights * Z).sum(axis=0) / divisor
        Z -= shift
        if self.present.shape[1] == 1:
            self.present = np.repeat(self.present, Z.shape[1], axis=1)
        self.present[k] = total
        self.means[k] = np.where(total > 0.0, origin + shift, 0.0)
        self.scatter[k] = (weights * np.square(Z)).sum(axis=0)

    def statistics(self) -> ClassStatistics:
        return ClassStatistics(self.kind, self.counts, self.present, self.means, self.scatter)


def _origin(X: np.ndarray) -> np.ndarray:
    """A point amid the rows, (D,): the median of the first few, as one alone may be an outlier."""
    few = np.sort(X[:5], axis=0)
    return few[len(few) // 2]


def weighted_squares(kind: Kind, delta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """w_k delta_k delta_k^T in the layout of a scatter: of each class, summed over them, or its diagonal."""
    weighted = weights * delta
    if kind == "diagonal":
        return weighted * delta
    if kind == "pooled":
        return weighted.T @ delta
    return weighted[:, :, None] * delta[:, None, :]
