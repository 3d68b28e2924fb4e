r"""The statistics of Gaussian classes: count, mean and scatter of every class, from one pass over the rows.

.. math:: n_k = \sum_n c_n Y_{nk}, \quad \bar x_k = \frac{1}{n_k} \sum_n c_n Y_{nk} x_n, \quad
          S_k = \sum_n c_n Y_{nk} (x_n - \bar x_k)(x_n - \bar x_k)^\top.

Statistics of two sets of rows merge exactly, in any order: with delta the difference of the means,

.. math:: S = S_1 + S_2 + \frac{n_1 n_2}{n_1 + n_2} \delta \delta^\top .

Rows are taken about one of their own before anything is squared, and where classes lie far apart every class about
one of its own, so that no digits are lost however far the data lie from the origin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from posteriori.rows.blocks import kernel
from posteriori.rows.products import dense_parts

__all__ = ["SCATTERS", "TOO_LARGE", "ClassMoments", "ClassStatistics", "Kind", "Scatter", "class_statistics"]

Kind = Literal["full", "pooled", "diagonal"]
"""Which scatter is kept: a matrix per class, one matrix for all classes, or variances per class."""

_PART_BYTES = 4 << 20
"""Bytes of the rows of a sparse matrix that are made dense at a time."""

_FEW_CLASSES = 16
"""Classes for which products with one column for each of them are cheap."""

_CLOSE = 0.999
"""Share of the sum of squares about the origin that may be due to its distance from the mean: 3 digits."""


class Scatter(ABC):
    """A layout in which the squares of the rows are kept.

    Attributes
    ----------
    contents : str
        What is kept, for messages.
    by_class : bool
        Whether there is a matrix for each class, so that a class must be summed by itself.
    products : bool
        Whether products of two features are kept.
    missing_allowed : bool
        Whether each feature is summed by itself, so that missing values can be left out.
    """

    contents: str
    by_class = False
    products = True
    missing_allowed = False

    @abstractmethod
    def shape(self, K: int, D: int) -> tuple[int, ...]:
        """Shape of the scatter of K classes."""

    @abstractmethod
    def of_means(self, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """w_k m_k m_k^T in this layout."""

    @abstractmethod
    def of_rows(self, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> tuple[np.ndarray, np.ndarray]:
        """sum_n c_n z_nd^2, (D,), and the scatter of one class about the origin, of which it is the diagonal."""

    @abstractmethod
    def about_one_origin(
        self, Z: np.ndarray, shares: np.ndarray, counts: np.ndarray, shifts: np.ndarray, unweighted: bool
    ) -> np.ndarray | None:
        """The scatter of all classes from rows about one origin; None where that would lose digits.

        Classes have the shares (n, K) of the rows, these counts, and means `shifts` (K, D) about the origin.
        """

    @abstractmethod
    def put(self, scatter: np.ndarray, k: int, own: np.ndarray, shift: np.ndarray, count: float) -> None:
        """Put the scatter of class k about the origin in its place, less that of the mean."""

    @abstractmethod
    def variances(self, scatter: np.ndarray) -> np.ndarray:
        """Sums of squares about the class means: (K, D), or (1, D) where they are pooled."""

    @abstractmethod
    def rescaled(self, scatter: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """The scatter of rows that are multiplied by scale."""

    @abstractmethod
    def of_matrices(self, scatter: np.ndarray) -> np.ndarray:
        """The part of a matrix for each class, (K, D, D), that this layout keeps."""

    @abstractmethod
    def of_roots(self, roots: np.ndarray, codes: np.ndarray, K: int) -> np.ndarray:
        """The scatter sum_m r_m r_m^T of each class, from vectors r_m (M, D) and their classes (M,)."""


class _Matrices(Scatter):
    """A matrix for each class, (K, D, D)."""

    contents = "scatter matrix of each class"
    by_class = True

    def shape(self, K: int, D: int) -> tuple[int, ...]:
        return K, D, D

    def of_means(self, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return (weights * means)[:, :, None] * means[:, None, :]

    def of_rows(self, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> tuple[np.ndarray, np.ndarray]:
        scatter = np.dot(Z.T, Z if unweighted else Z * c[:, None])
        return scatter.diagonal(), scatter

    def about_one_origin(
        self, Z: np.ndarray, shares: np.ndarray, counts: np.ndarray, shifts: np.ndarray, unweighted: bool
    ) -> np.ndarray | None:
        return None

    def put(self, scatter: np.ndarray, k: int, own: np.ndarray, shift: np.ndarray, count: float) -> None:
        own -= count * np.outer(shift, shift)
        scatter[k] = own

    def variances(self, scatter: np.ndarray) -> np.ndarray:
        return np.atleast_2d(np.diagonal(scatter, axis1=-2, axis2=-1))

    def rescaled(self, scatter: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return scatter * (scale * scale[:, None])

    def of_matrices(self, scatter: np.ndarray) -> np.ndarray:
        return scatter

    def of_roots(self, roots: np.ndarray, codes: np.ndarray, K: int) -> np.ndarray:
        own = (roots[codes == k] for k in range(K))
        return np.stack([np.dot(R.T, R) for R in own])


class _PooledMatrix(_Matrices):
    """One matrix for all classes, (D, D)."""

    contents = "scatter matrix within classes"
    by_class = False

    def shape(self, K: int, D: int) -> tuple[int, ...]:
        return D, D

    def of_means(self, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return (weights * means).T @ means

    def about_one_origin(
        self, Z: np.ndarray, shares: np.ndarray, counts: np.ndarray, shifts: np.ndarray, unweighted: bool
    ) -> np.ndarray | None:
        scatter = np.dot(Z.T, Z if unweighted else Z * shares.sum(axis=1)[:, None])
        between = (counts[:, None] * shifts**2).sum(axis=0)
        if not (between <= _CLOSE * scatter.diagonal()).all():
            return None
        scatter -= self.of_means(shifts, counts[:, None])
        return scatter

    def put(self, scatter: np.ndarray, k: int, own: np.ndarray, shift: np.ndarray, count: float) -> None:
        own -= count * np.outer(shift, shift)
        scatter += own

    def of_matrices(self, scatter: np.ndarray) -> np.ndarray:
        return scatter.sum(axis=0)

    def of_roots(self, roots: np.ndarray, codes: np.ndarray, K: int) -> np.ndarray:
        return np.dot(roots.T, roots)


class _Variances(Scatter):
    """Variances for each class, (K, D)."""

    contents = "variance of each feature"
    products = False
    missing_allowed = True

    def shape(self, K: int, D: int) -> tuple[int, ...]:
        return K, D

    def of_means(self, means: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return weights * means * means

    def of_rows(self, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> tuple[np.ndarray, np.ndarray]:
        squares = np.dot(c, np.square(Z))
        return squares, squares.copy()

    def about_one_origin(
        self, Z: np.ndarray, shares: np.ndarray, counts: np.ndarray, shifts: np.ndarray, unweighted: bool
    ) -> np.ndarray | None:
        squares = np.dot(shares.T, np.square(Z, out=Z))
        between = counts[:, None] * shifts**2
        return squares - between if (between <= _CLOSE * squares).all() else None

    def put(self, scatter: np.ndarray, k: int, own: np.ndarray, shift: np.ndarray, count: float) -> None:
        scatter[k] = own - count * (shift * shift)

    def variances(self, scatter: np.ndarray) -> np.ndarray:
        return scatter

    def rescaled(self, scatter: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return scatter * scale**2

    def of_matrices(self, scatter: np.ndarray) -> np.ndarray:
        return np.diagonal(scatter, axis1=-2, axis2=-1)

    def of_roots(self, roots: np.ndarray, codes: np.ndarray, K: int) -> np.ndarray:
        return np.stack([np.square(roots[codes == k]).sum(axis=0) for k in range(K)])


TOO_LARGE = "X holds values so large that their squares overflow: rescale it."
"""What is said of such values."""

SCATTERS: dict[Kind, Scatter] = {"full": _Matrices(), "pooled": _PooledMatrix(), "diagonal": _Variances()}
"""The layouts of the squares, by kind."""


class ClassMoments(ABC):
    """Sums over rows, by class, in whatever form their scatter is kept.

    Attributes
    ----------
    counts : ndarray (K,)
        Weight of the rows of each class.
    present : ndarray (K, 1) or (K, D)
        Weight of the values that are there, of each class and, where some are missing, feature.
    means : ndarray (K, D)
        Zero where nothing is present.
    """

    counts: np.ndarray
    present: np.ndarray
    means: np.ndarray

    @abstractmethod
    def __add__(self, other: Any) -> Any:
        """The statistics of both sets of rows, of the same form."""

    @property
    def complete(self) -> bool:
        """Whether no value was missing."""
        return bool((self.present == self.counts[:, None]).all())

    @property
    @abstractmethod
    def finite(self) -> bool:
        """Whether all sums are numbers."""

    @property
    @abstractmethod
    def span(self) -> int:
        """The dimension of a space that holds all class means and scatters."""

    @abstractmethod
    def squares_about_means(self) -> np.ndarray:
        """Sums of squares about the class means: (K, D), or (1, D) where they are pooled."""

    @abstractmethod
    def holds(self, kind: Kind) -> bool:
        """Whether a scatter of this kind follows from what is kept."""

    @abstractmethod
    def reduced(self, kind: Kind) -> ClassStatistics:
        """The statistics with a scatter of this kind, of no more detail than what is kept."""

    def grand_mean(self) -> np.ndarray:
        """Mean of all rows, (D,)."""
        total = self.present.sum(axis=0)
        return (self.present * self.means).sum(axis=0) / np.where(total > 0.0, total, 1.0)

    def total_variance(self) -> np.ndarray:
        """Variance of all rows about their mean, (D,); raises ValueError where it is not a number."""
        total = self.present.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            between = (self.present * (self.means - self.grand_mean()) ** 2).sum(axis=0)
            variance = (self.squares_about_means().sum(axis=0) + between) / np.where(total > 0.0, total, 1.0)
        if not np.isfinite(variance).all():
            raise ValueError(TOO_LARGE)
        return variance


@dataclass(frozen=True)
class ClassStatistics(ClassMoments):
    """Sums over rows, by class, the scatter as an array; the fields are those of stored files.

    See docs/theory.md, section 5.1.

    Attributes
    ----------
    kind : {"full", "pooled", "diagonal"}
    counts, present, means : ndarray
        As in `ClassMoments`.
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
        scatter = self.scatter + other.scatter + SCATTERS[self.kind].of_means(delta, self.present * share)
        return ClassStatistics(self.kind, self.counts + other.counts, present, means, scatter)

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.means).all() and np.isfinite(self.scatter).all())

    @property
    def span(self) -> int:
        return self.means.shape[1]

    def squares_about_means(self) -> np.ndarray:
        return SCATTERS[self.kind].variances(self.scatter)

    def of_no_rows(self) -> ClassStatistics:
        """The statistics of the same kind before any row was seen."""
        sums = (np.zeros_like(each) for each in (self.counts, self.present, self.means, self.scatter))
        return ClassStatistics(self.kind, *sums)

    def standardised(self, shift: np.ndarray, scale: np.ndarray) -> ClassStatistics:
        """The statistics of (x - shift) * scale."""
        absent = self.present <= 0.0
        means = np.where(absent, 0.0, (self.means - shift) * scale)
        scatter = SCATTERS[self.kind].rescaled(self.scatter, scale)
        return ClassStatistics(self.kind, self.counts, self.present, means, scatter)

    def holds(self, kind: Kind) -> bool:
        return kind == self.kind or SCATTERS[self.kind].by_class

    def reduced(self, kind: Kind) -> ClassStatistics:
        if kind == self.kind:
            return self
        assert self.holds(kind)
        scatter = SCATTERS[kind].of_matrices(self.scatter)
        return ClassStatistics(kind, self.counts, self.present, self.means, scatter)


@kernel(jax_version="posteriori.gaussian.jax_statistics:class_statistics")
def class_statistics(X: Any, Y: np.ndarray, c: np.ndarray | None, n_classes: int, kind: Kind) -> ClassStatistics:
    """The statistics of one block of rows: a kernel for `Blocks.map_sum` (docs/theory.md, section 5.1)."""
    one_origin = n_classes <= _FEW_CLASSES and not SCATTERS[kind].by_class
    total = None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and refused, later
        for rows, part in dense_parts(X, _PART_BYTES):
            weights = None if c is None else c[rows]
            found = _about_one_origin(part, Y[rows], weights, n_classes, kind) if one_origin else None
            if found is None:
                found = (_of_labels if Y.ndim == 1 else _of_soft_labels)(part, Y[rows], weights, n_classes, kind)
            total = found if total is None else total + found
    assert total is not None
    return total


def _about_one_origin(X: np.ndarray, Y: np.ndarray, c: np.ndarray | None, K: int, kind: Kind) -> ClassStatistics | None:
    """The statistics of all classes about one row; None where that would lose digits, or values are missing."""
    shares = np.eye(K).take(Y, axis=0) if Y.ndim == 1 else Y
    if c is not None:
        shares = shares * c[:, None]
    origin = _origin(X)
    Z = X - origin
    counts = np.dot(np.ones(len(X)), shares)
    divisor = np.where(counts > 0.0, counts, 1.0)[:, None]
    shifts = np.dot(shares.T, Z) / divisor  # np.dot, unlike @, lets other threads run while the result is small
    scatter = SCATTERS[kind].about_one_origin(Z, shares, counts, shifts, unweighted=c is None and Y.ndim == 1)
    if scatter is None:
        return None
    means = np.where(counts[:, None] > 0.0, origin + shifts, 0.0)
    return ClassStatistics(kind, counts, counts[:, None], means, scatter)


def _of_labels(X: np.ndarray, y: np.ndarray, c: np.ndarray | None, K: int, kind: Kind) -> ClassStatistics:
    """The statistics of rows with hard labels: rows are sorted by class, so that each class is one slice."""
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
    """The statistics of rows with soft labels: every row counts for every class, by its share."""
    out = _BlockStatistics(K, X.shape[1], kind)
    for k in range(K):
        out.put(k, X.copy(), Y[:, k] if c is None else Y[:, k] * c, unweighted=False)
    return out.statistics()


class _BlockStatistics:
    """Statistics of one block, filled class by class."""

    def __init__(self, K: int, D: int, kind: Kind) -> None:
        self.kind, self.layout = kind, SCATTERS[kind]
        self.counts, self.means = np.zeros(K), np.zeros((K, D))
        self.present = np.zeros((K, 1))
        self.scatter = np.zeros(self.layout.shape(K, D))

    def put(self, k: int, Z: np.ndarray, c: np.ndarray, unweighted: bool) -> None:
        """Fill in the statistics of class k from its rows, which are overwritten."""
        count = float(c.sum())
        self.counts[k] = count
        if count == 0.0:
            return
        if not unweighted and c.min() == 0.0:
            Z, c = Z[c > 0.0], c[c > 0.0]
        origin = _origin(Z)
        if self.layout.missing_allowed and (np.isnan(origin).any() or np.isnan(np.dot(c, Z)).any()):
            self._put_missing(k, Z, c)
            return
        Z -= origin
        shift = np.dot(c, Z) / count
        squares, scatter = self.layout.of_rows(Z, c, unweighted)
        if (count * shift**2 > _CLOSE * squares).any():  # not so near the mean after all
            Z -= shift
            origin = origin + shift
            shift = np.dot(c, Z) / count
            squares, scatter = self.layout.of_rows(Z, c, unweighted)
        self.present[k] = count
        self.means[k] = origin + shift
        self.layout.put(self.scatter, k, scatter, shift, count)

    def _put_missing(self, k: int, Z: np.ndarray, c: np.ndarray) -> None:
        """Fill in each feature of class k from the rows in which it is present."""
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
    """A point among the rows, (D,): the median of the first few, as one alone may be an outlier."""
    few = np.sort(X[:5], axis=0)
    return few[len(few) // 2]
