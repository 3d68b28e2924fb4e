r"""Rows in few coordinates, where there are fewer rows than features.

All class means and scatters lie in the space that the rows span, of r dimensions. A prior whose scale is a multiple of
I leaves the covariances a multiple of I across that space, the same in all its D - r dimensions. With
z = (x - origin) / unit, and V (D, r) orthonormal directions of the space,

.. math:: u = V^\top z, \qquad w = z - V u, \qquad |z - V m|^2 = |u - m|^2 + |w|^2,

so that distances from the classes depend on w by its length alone. The r + 1 coordinates (u, |w|) hence are as good
as all D features: Psi is (r + 1, r + 1), its last row and column zero but for the multiple of I. The D - r - 1
dimensions that are then *hidden* count in determinants and in degrees of freedom, and nowhere else (`Matrices`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.gaussian.roots import RootStatistics

__all__ = ["RowSpace", "row_space"]


@dataclass(frozen=True)
class RowSpace:
    """The space that rows span, and coordinates (u, |w|) of rows; the fields are those of stored files.

    Attributes
    ----------
    unit : ndarray (D,)
        The units of the features.
    basis : ndarray (D, r)
        V, with orthonormal columns.
    """

    unit: np.ndarray
    basis: np.ndarray

    @property
    def hidden(self) -> int:
        """The dimensions across the space, less the one that is the last coordinate."""
        D, r = self.basis.shape
        return D - r - 1

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """(u, |w|) of rows less the origin, (n, r + 1)."""
        return self.folded(X / self.unit)

    def folded(self, Z: np.ndarray) -> np.ndarray:
        """(u, |w|) of rows z, (n, r + 1)."""
        U, W = self._parts(Z)
        return np.column_stack([U, _lengths(W)])

    def statistics(self, statistics: RootStatistics, origin: np.ndarray) -> RootStatistics:
        """The statistics of the coordinates of the rows."""
        Z = _standardised(statistics, origin, self.unit)
        U = np.column_stack([np.dot(Z, self.basis), np.zeros(len(Z))])
        K = len(statistics.means)
        return RootStatistics(statistics.counts, statistics.present, U[:K], U[K:], statistics.codes)

    def points(self, U: np.ndarray) -> np.ndarray:
        """The points less the origin, (n, D), that have these coordinates and lie in the space."""
        return np.dot(U[:, :-1], self.basis.T) * self.unit

    def moved(self, Z: np.ndarray, U: np.ndarray) -> np.ndarray:
        """Rows less the origin, (n, D), with coordinates U (n, r + 1), and across the space the direction of Z."""
        W = self._parts(Z)[1]
        return self.points(U) + W * (U[:, -1] / _lengths(W))[:, None] * self.unit

    def slopes(self, G: np.ndarray) -> np.ndarray:
        """The slopes (K, D) in x of functions that have the slopes G (K, r + 1) in u."""
        return np.dot(G[:, :-1], self.basis.T) / self.unit

    def inverse_spreads(self, A: np.ndarray) -> np.ndarray:
        """The roots of the diagonal of A^T A in the features, (D,), of A = [[A_u, 0], [0, a]]."""
        along = np.square(np.dot(A[:-1, :-1], self.basis.T)).sum(axis=0)
        across = np.maximum(1.0 - np.square(self.basis).sum(axis=1), 0.0)
        return np.sqrt(along + A[-1, -1] ** 2 * across) / self.unit

    def matrix(self, M: np.ndarray) -> np.ndarray:
        """unit (V (M_u - m I) V^T + m I) unit, (D, D), of M = [[M_u, 0], [0, m]]: a covariance of x from one of z."""
        level = M[-1, -1]
        inner = M[:-1, :-1] - level * np.eye(len(M) - 1)
        out = np.dot(np.dot(self.basis, inner), self.basis.T)
        out += out.T
        out *= 0.5
        out[np.diag_indices_from(out)] += level
        out *= self.unit
        out *= self.unit[:, None]
        return out

    def _parts(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u (n, r) and w (n, D): w as a difference, as |z|^2 - |u|^2 has no digits for rows of the space."""
        U = np.dot(Z, self.basis)
        return U, Z - np.dot(U, self.basis.T)


def row_space(statistics: RootStatistics, origin: np.ndarray, unit: np.ndarray) -> RowSpace:
    """The space that class means, less the origin, and roots of scatters span together.

    See docs/theory.md, section 5.6.
    """
    return RowSpace(unit, np.linalg.qr(_standardised(statistics, origin, unit).T)[0])


def _standardised(statistics: RootStatistics, origin: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The class means and the roots in these coordinates, (K + M, D); zero for a class without rows."""
    means = np.where(statistics.present > 0.0, statistics.means - origin, 0.0)
    return np.concatenate([means, statistics.roots]) / unit


def _lengths(W: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("nd,nd->n", W, W))
