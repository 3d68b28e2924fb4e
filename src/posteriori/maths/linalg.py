"""Small dense linear algebra that must not fail: scaled, ridged, symmetric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

__all__ = [
    "cholesky",
    "eigh_of_gram",
    "factored_spd",
    "inverse_spd",
    "null_space",
    "reversed_cholesky",
    "semidefinite_root",
]

_NOTHING, _HUGE = 1e-30, 1e150
"""Entries below the first, beside a diagonal of ones, change no digit of a factor; the second has a square."""
_LONGEST = 1e145
"""Root of the largest entry of an inverse, less what a ridge may add: squares of more are infinite."""
_LARGE = 500
"""Side of a matrix from which on its rank is worth knowing."""


def cholesky(M: np.ndarray) -> np.ndarray:
    """Lower factor of a positive definite matrix, with zeros above; an error for others.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    L, info = lapack.dpotrf(M, lower=1, clean=1)
    if info != 0 or not np.isfinite(L[-1, -1]):
        raise np.linalg.LinAlgError("The matrix is not positive definite.")
    return L


def reversed_cholesky(M: np.ndarray) -> np.ndarray:
    """F, lower triangular, with F^T F = M for a positive definite M; its inverse is the Cholesky factor of M^{-1}.

    >>> F = reversed_cholesky(np.array([[5.0, 2.0], [2.0, 4.0]]))
    >>> F, F.T @ F
    (array([[2., 0.],
           [1., 2.]]), array([[5., 2.],
           [2., 4.]]))
    """
    return cholesky(M[::-1, ::-1])[::-1, ::-1].T


def semidefinite_root(M: np.ndarray) -> np.ndarray:
    """F (D, r) with F F^T = M for a positive semi-definite M of rank r, by Cholesky with pivots.

    >>> semidefinite_root(np.ones((3, 3))).T
    array([[1., 1., 1.]])
    """
    lower, pivots, rank, _ = lapack.dpstrf(M, lower=1)
    F = np.empty((len(M), rank))
    F[pivots - 1] = np.tril(lower[:, :rank])
    return F


def _factor(M: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Cholesky factor of S M S + ridge I and the scaling S = 1/sqrt(diag M) (0 where the diagonal is not positive).

    Scaling to a unit diagonal makes the ridge free of units; it grows until the factorisation succeeds.
    """
    diagonal = M.diagonal()
    scale = np.zeros_like(diagonal)
    np.divide(1.0, np.sqrt(np.abs(diagonal)), out=scale, where=diagonal > 0)
    with np.errstate(over="ignore"):  # beside a diagonal that is all but zero, entries of rounding alone
        unit = np.clip(M * scale * scale[:, None], -_HUGE, _HUGE)
    unit[np.abs(unit) < _NOTHING] = 0.0  # numbers at the end of their range, which products lead to, are very slow
    largest = float(np.abs(unit).max(initial=0.0))
    while 1.0 + ridge <= largest < np.inf:  # no smaller ridge will do
        ridge *= 100.0
    i = np.arange(len(M))
    while True:
        unit[i, i] = 1.0 + ridge
        L, info = lapack.dpotrf(unit, lower=1, clean=1)
        if info == 0:
            return L, scale
        ridge *= 100.0


def factored_spd(M: np.ndarray, ridge: float = 1e-13) -> Callable[[np.ndarray], np.ndarray]:
    """r -> M^{-1} r for a symmetric positive (semi-)definite M; flat directions are damped, not amplified.

    >>> M = np.array([[1e8, 1e2], [1e2, 2e-4]])
    >>> bool(np.allclose(M @ factored_spd(M)(np.array([1.0, 1.0])), 1.0))
    True
    """
    L, scale = _factor(M, ridge)
    return lambda r: lapack.dpotrs(L, r * scale, lower=1)[0] * scale


def inverse_spd(M: np.ndarray, ridge: float = 1e-10) -> np.ndarray:
    """Inverse of a symmetric positive (semi-)definite matrix, for use as a preconditioner.

    An explicit inverse is applied to many vectors at once in one batched product, and need not be exact.

    >>> inverse_spd(np.diag([4.0, 0.0])).round(6)
    array([[0.25, 0.  ],
           [0.  , 0.  ]])
    """
    L, scale = _factor(M, ridge)
    scale = np.where(scale < _LONGEST, scale, 0.0)  # nothing is known of a direction whose inverse is not a number
    lower, _ = lapack.dpotri(L, lower=1, overwrite_c=1)  # the factor left zeros above
    inverse = lower + lower.T
    inverse[np.diag_indices_from(inverse)] *= 0.5
    inverse *= scale
    inverse *= scale[:, None]
    return inverse


def eigh_of_gram(M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (D,) and eigenvectors (D, D) of a symmetric positive semi-definite matrix, in no certain order.

    A large matrix of low rank, as few rows with many features make, is factored by Cholesky with pivots, which ends at
    the rank r: D^2 r operations in place of some 9 D^3.

    >>> values, vectors = eigh_of_gram(np.ones((1000, 1000)))
    >>> round(float(values.max()), 6), bool(np.allclose(vectors @ vectors.T, np.eye(1000)))
    (1000.0, True)
    """
    D = len(M)
    if D >= _LARGE:
        lower, pivots, rank, _ = lapack.dpstrf(M, lower=1)
        if 0 < rank <= D // 4:
            factor = np.empty((D, rank))
            factor[pivots - 1] = np.tril(lower[:, :rank])
            vectors, roots, _ = np.linalg.svd(factor)
            return np.append(roots**2, np.zeros(D - rank)), vectors
    values, vectors = np.linalg.eigh(M)
    return values, vectors


def null_space(M: np.ndarray, rtol: float = 1e-11) -> np.ndarray:
    """Orthonormal basis (D, r) of the directions in which a symmetric positive semi-definite matrix vanishes.

    Judged after scaling to a unit diagonal, so that units do not matter.

    >>> null_space(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1e-9]])).T.round(9) ** 2
    array([[0.5, 0.5, 0. ]])
    """
    diagonal = M.diagonal()
    scale = np.ones_like(diagonal)
    np.divide(1.0, np.sqrt(np.abs(diagonal)), out=scale, where=diagonal > 0)
    eigenvalues, vectors = np.linalg.eigh(M * scale * scale[:, None])
    null = vectors[:, eigenvalues <= rtol * max(eigenvalues[-1], np.finfo(float).tiny)]
    return np.linalg.qr(null * scale[:, None])[0]
