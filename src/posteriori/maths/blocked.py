r"""Inverses of large matrices, and solutions with their factors, made of matrix products.

Libraries multiply matrices two to four times as fast as they solve triangular systems of a few hundred rows. So
matrices are split in halves until little is left, and nearly all work is in products. With

.. math:: A = \begin{pmatrix} A_{11} & A_{21}^\top \\ A_{21} & A_{22} \end{pmatrix}, \quad P = A_{11}^{-1}, \quad
          T = A_{21} P, \quad S = (A_{22} - T A_{21}^\top)^{-1},

.. math:: A^{-1} = \begin{pmatrix} P + T^\top S T & -T^\top S \\ -S T & S \end{pmatrix}, \qquad
          \log |A| = \log |A_{11}| - \log |S| .

A lower factor L is solved half by half: x_1 = L_{11}^{-1} b_1, x_2 = L_{22}^{-1} (b_2 - L_{21} x_1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import lapack

__all__ = ["BlockedFactor", "inverse_and_log_determinant"]

_SMALL = 96
"""The side up to which a matrix is not split: LAPACK is as fast there."""


def inverse_and_log_determinant(A: np.ndarray) -> tuple[np.ndarray, float]:
    """The inverse of a symmetric positive definite matrix (n, n), and the logarithm of its determinant.

    Only the lower triangle of A is read.

    Raises
    ------
    FloatingPointError
        If A is not positive definite.

    Examples
    --------
    >>> inverse, log_determinant = inverse_and_log_determinant(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> inverse.diagonal(), round(float(np.exp(log_determinant)), 12)
    (array([0.5 , 0.25]), 8.0)
    """
    inverse = np.empty(A.shape)
    return inverse, _invert(A, inverse)


def _invert(A: np.ndarray, out: np.ndarray) -> float:
    """Write the inverse of A to `out`; returns log |A|."""
    n = len(A)
    if n <= _SMALL:
        L, info = lapack.dpotrf(A, lower=1, clean=1)
        if info != 0:
            raise FloatingPointError("The matrix could not be factored: it is not positive definite.")
        log_determinant = 2.0 * float(np.log(L.diagonal()).sum())
        lower, _ = lapack.dpotri(L, lower=1, overwrite_c=1)
        np.add(lower, lower.T, out=out)
        out[np.arange(n), np.arange(n)] = lower.diagonal()
        return log_determinant
    h = n // 2
    P, S, C = out[:h, :h], out[h:, h:], out[h:, :h]
    log_determinant = _invert(A[:h, :h], P)
    T = A[h:, :h] @ P
    log_determinant += _invert(A[h:, h:] - T @ A[h:, :h].T, S)
    np.matmul(S, T, out=C)
    P += T.T @ C
    np.negative(C, out=C)
    out[:h, h:] = C.T
    return log_determinant


@dataclass(frozen=True)
class BlockedFactor:
    """A lower triangular factor, with the inverses of the blocks on its diagonal."""

    L: np.ndarray
    halves: tuple[BlockedFactor, BlockedFactor] | None
    inverse: np.ndarray | None

    @classmethod
    def of(cls, L: np.ndarray) -> Self:
        """The factor L (n, n); entries above its diagonal are zero."""
        n = len(L)
        if n <= _SMALL:
            return cls(L, None, lapack.dtrtri(L, lower=1)[0])
        h = n // 2
        return cls(L, (cls.of(L[:h, :h]), cls.of(L[h:, h:])), None)

    def solve(self, B: np.ndarray) -> np.ndarray:
        """L^{-1} B, (n, m).

        Examples
        --------
        >>> BlockedFactor.of(np.array([[2.0, 0.0], [1.0, 4.0]])).solve(np.array([[2.0], [9.0]]))
        array([[1.],
               [2.]])
        """
        X = np.array(B, dtype=np.float64, order="C")
        self._solve_in_place(X)
        return X

    def _solve_in_place(self, X: np.ndarray) -> None:
        if self.halves is None:
            X[:] = self.inverse @ X
            return
        h = len(self.L) // 2
        upper, lower = self.halves
        upper._solve_in_place(X[:h])
        X[h:] -= self.L[h:, :h] @ X[:h]
        lower._solve_in_place(X[h:])
