"""Precisions of a Gaussian prior on the parameters (K, D'): by coefficient, in Kronecker factors, or as one matrix.

All say the same things: their product with a (K, D') array, their diagonal, their determinant, and their matrix in
coordinates theta = Q B for a basis Q (K, J) of the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from posteriori.maths.linalg import cholesky

__all__ = ["DiagonalPrecision", "KroneckerPrecision", "MatrixPrecision", "Precision", "PriorOfContrasts"]


class PriorOfContrasts(NamedTuple):
    r"""A prior N(m, R^{-1}) of theta_k = sum_j Q_kj B_j + u: that of the contrasts B, and of what is shared given B.

    .. math:: p(B):\; R_{BB} - R_{Bu} R_{uu}^{-1} R_{uB}, \qquad p(u \mid B):\; u = T B + v,\quad
              T = -R_{uu}^{-1} R_{uB},\; v \sim N(\cdot, R_{uu}^{-1})

    A likelihood depends on B alone: its curvature is added to the first, and the second stays as it is. So errors of
    contrasts keep their digits however weak the prior is.
    """

    precision: np.ndarray
    """The precision of B, (J D', J D')."""
    common: np.ndarray
    """R_uu / K, (D', D')."""
    tilt: np.ndarray | None = None
    """T (D', J D'); None where it is zero, as all classes are treated equally."""
    root: np.ndarray | None = None
    """F (D', D'), lower triangular, with F^T F = R_uu / K, where that matrix has lost digits that F has not."""


_GRADED = 1e-8
"""Share of the largest precision below which one is lost in a sum with it."""


class Precision(Protocol):
    """The inverse covariance R of a Gaussian over arrays (K, D')."""

    @property
    def diagonal(self) -> np.ndarray:
        """R_ii, (K, D')."""

    @property
    def exchangeable(self) -> bool:
        """Whether all classes have the same precision and are independent of each other."""

    @property
    def largest(self) -> float:
        """A bound from above on the largest eigenvalue."""

    def times(self, V: np.ndarray) -> np.ndarray:
        """R V, (K, D')."""

    def couplings(self, V: np.ndarray) -> np.ndarray | float:
        """R V without the part of R's diagonal, (K, D'), or 0 if R is diagonal."""

    def class_couplings(self) -> np.ndarray | float:
        """R_kk for each class with zeros on the diagonal, (K, D', D'), or 0 if R is diagonal."""

    def inverse_norm(self, g: np.ndarray) -> float:
        """g^T R^{-1} g; infinite where R leaves free what g points along."""

    def log_det(self) -> float:
        """log |R|; -inf when R is improper."""

    def matrix(self, basis: np.ndarray) -> np.ndarray:
        """(Q kron I)^T R (Q kron I), (J D', J D')."""

    def of_contrasts(self, basis: np.ndarray) -> PriorOfContrasts:
        """The prior of contrasts Q (K, K - 1), and of what is left."""

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Parameters drawn from N(0, R^{-1}), (n_draws, K, D'), where R has an inverse."""


@dataclass(frozen=True)
class DiagonalPrecision:
    """One precision per coefficient, the last column's for the logit at the row `centre` instead of at the origin.

    Attributes
    ----------
    values : ndarray (K, D')
    centre : ndarray (D',) or None
        [c, 1]: the last coefficient's precision tau is that of w . c + b, so that R_k = diag(a_k, 0) + tau_k u u^T.
    """

    values: np.ndarray
    centre: np.ndarray | None = None

    @property
    def diagonal(self) -> np.ndarray:
        if self.centre is None:
            return self.values
        out = self.values.copy()
        out[:, :-1] += self.values[:, -1:] * self.centre[:-1] ** 2
        return out

    @property
    def exchangeable(self) -> bool:
        return bool((self.values == self.values[0]).all())

    @property
    def largest(self) -> float:
        tilt = 0.0 if self.centre is None else float((self.values[:, -1] * (self.centre @ self.centre)).max())
        return float(self.values.max()) + tilt

    def times(self, V: np.ndarray) -> np.ndarray:
        if self.centre is None:
            return self.values * V
        out = np.empty_like(V)
        tilt = self.values[:, -1] * (V @ self.centre)
        out[:, :-1] = self.values[:, :-1] * V[:, :-1]
        out[:, -1] = 0.0
        out += tilt[:, None] * self.centre
        return out

    def couplings(self, V: np.ndarray) -> np.ndarray | float:
        return 0.0 if self.centre is None else self.times(V) - self.diagonal * V

    def class_couplings(self) -> np.ndarray | float:
        if self.centre is None:
            return 0.0
        return _without_diagonals(self.values[:, -1, None, None] * np.outer(self.centre, self.centre))

    def inverse_norm(self, g: np.ndarray) -> float:
        if self.centre is not None:  # in terms of w . c + b, which has a precision of its own
            g = np.column_stack([g[:, :-1] - g[:, -1:] * self.centre[:-1], g[:, -1]])
        squares = np.zeros_like(g)
        with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite, which is a bound too
            np.divide(g**2, self.values, out=squares, where=self.values > 0)
            squares[(self.values == 0) & (g != 0)] = np.inf
            return float(squares.sum())

    def log_det(self) -> float:
        # the change from b to w . c + b has determinant one
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum())

    def matrix(self, basis: np.ndarray) -> np.ndarray:
        K, J = basis.shape
        D = self.values.shape[1]
        if self.centre is None:
            out, own = np.zeros((J, D, J, D)), self.values
        else:
            tilt = (basis.T * self.values[:, -1]) @ basis
            out = tilt[:, None, :, None] * np.outer(self.centre, self.centre)[:, None, :]
            own = np.column_stack([self.values[:, :-1], np.zeros(K)])
        d = np.arange(D)
        out[:, d, :, d] += (basis.T * own.T[:, None, :]) @ basis
        return out.reshape(J * D, J * D)

    def of_contrasts(self, basis: np.ndarray) -> PriorOfContrasts:
        """For w and w . c + b the precision is diagonal: a tilt is a number for each of these and each contrast."""
        K, J = basis.shape
        D = self.values.shape[1]
        shared = self.values[0] if self.exchangeable else self.values.mean(axis=0)
        root = np.diag(np.sqrt(shared))
        if self.centre is not None:
            root[-1, :-1] = root[-1, -1] * self.centre[:-1]
        lost = self.centre is not None and bool(shared.min() < _GRADED * (root**2).sum(axis=0).max())
        common, kept = np.outer(root[-1], root[-1]), root if lost else None
        common[np.diag_indices(D - 1)] += shared[:-1]  # root^T root: all but its last row is diagonal
        if self.exchangeable:
            return PriorOfContrasts(self.matrix(basis), common, None, kept)
        slopes = -np.einsum("kj,kd->jd", basis, self.values / (K * shared))  # of each shared coefficient, (J, D')
        left = np.einsum("ki,kd,kj->dij", basis, self.values, basis) - K * np.einsum(
            "d,id,jd->dij", shared, slopes, slopes
        )
        d = np.arange(D)
        tilt, precision = np.zeros((D, J, D)), np.zeros((J, D, J, D))
        tilt[d, :, d], precision[:, d, :, d] = slopes.T, left
        if self.centre is not None:  # from w . c + b to b
            C = np.eye(D)
            C[-1] = self.centre
            tilt = np.einsum("dje,ef->djf", np.linalg.solve(C, tilt.reshape(D, -1)).reshape(D, J, D), C)
            precision = np.einsum("dg,idje,ef->igjf", C, precision, C, optimize=True)
        size = J * D
        return PriorOfContrasts(precision.reshape(size, size), common, tilt.reshape(D, size), kept)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        out = rng.standard_normal((n_draws, *self.values.shape)) / np.sqrt(self.values)
        if self.centre is not None:  # from w . c + b to b
            out[..., -1] -= out[..., :-1] @ self.centre[:-1]
        return out


@dataclass(frozen=True)
class KroneckerPrecision:
    """A kron G: A (K, K) over classes, G (D', D') over coefficients."""

    A: np.ndarray
    G: np.ndarray

    @property
    def diagonal(self) -> np.ndarray:
        return np.outer(self.A.diagonal(), self.G.diagonal())

    @property
    def exchangeable(self) -> bool:
        return False

    @property
    def largest(self) -> float:
        return float(np.linalg.eigvalsh(self.A)[-1] * np.linalg.eigvalsh(self.G)[-1])

    def times(self, V: np.ndarray) -> np.ndarray:
        return self.A @ V @ self.G

    def couplings(self, V: np.ndarray) -> np.ndarray | float:
        return self.times(V) - self.diagonal * V

    def class_couplings(self) -> np.ndarray | float:
        return _without_diagonals(np.stack([self.matrix(q[:, None]) for q in np.eye(len(self.diagonal))]))

    def inverse_norm(self, g: np.ndarray) -> float:
        return float(np.vdot(g, np.linalg.solve(self.A, np.linalg.solve(self.G, g.T).T)))

    def log_det(self) -> float:
        return float(len(self.G) * np.linalg.slogdet(self.A)[1] + len(self.A) * np.linalg.slogdet(self.G)[1])

    def matrix(self, basis: np.ndarray) -> np.ndarray:
        return np.kron(basis.T @ self.A @ basis, self.G)

    def of_contrasts(self, basis: np.ndarray) -> PriorOfContrasts:
        return _of_contrasts(self, basis)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n_draws, *self.diagonal.shape))
        return np.linalg.solve(cholesky(self.A).T, z) @ np.linalg.inv(cholesky(self.G))


@dataclass(frozen=True)
class MatrixPrecision:
    """One symmetric matrix (K D', K D'), coefficients of a class next to each other."""

    R: np.ndarray
    shape: tuple[int, int]

    @property
    def diagonal(self) -> np.ndarray:
        return self.R.diagonal().reshape(self.shape)

    @property
    def exchangeable(self) -> bool:
        return False

    @property
    def largest(self) -> float:
        return float(np.linalg.eigvalsh(self.R)[-1])

    def times(self, V: np.ndarray) -> np.ndarray:
        return (self.R @ V.ravel()).reshape(self.shape)

    def couplings(self, V: np.ndarray) -> np.ndarray | float:
        return self.times(V) - self.diagonal * V

    def class_couplings(self) -> np.ndarray | float:
        return _without_diagonals(np.stack([self.matrix(q[:, None]) for q in np.eye(len(self.diagonal))]))

    def inverse_norm(self, g: np.ndarray) -> float:
        return float(g.ravel() @ np.linalg.solve(self.R, g.ravel()))

    def log_det(self) -> float:
        sign, value = np.linalg.slogdet(self.R)
        return float(value) if sign > 0 else -np.inf

    def matrix(self, basis: np.ndarray) -> np.ndarray:
        K, D = self.shape
        blocks = self.R.reshape(K, D, K, D)
        J = basis.shape[1]
        return np.einsum("ki,kdle,lj->idje", basis, blocks, basis, optimize=True).reshape(J * D, J * D)

    def of_contrasts(self, basis: np.ndarray) -> PriorOfContrasts:
        return _of_contrasts(self, basis)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((len(self.R), n_draws))
        return solve_triangular(cholesky(self.R), z, lower=True, trans=1).T.reshape(n_draws, *self.shape)


def _without_diagonals(blocks: np.ndarray) -> np.ndarray:
    """Matrices (K, D', D') with zeros on their diagonals."""
    i = np.arange(blocks.shape[1])
    blocks[:, i, i] = 0.0
    return blocks


def _of_contrasts(prior: Precision, basis: np.ndarray) -> PriorOfContrasts:
    """The prior of contrasts, by elimination of what all classes share."""
    K = len(basis)
    R = prior.matrix(np.column_stack([basis, np.ones(K)]))
    D = len(R) // K
    contrast, shared = slice(0, len(R) - D), slice(len(R) - D, None)
    tilt = -np.linalg.solve(R[shared, shared], R[shared, contrast])
    marginal = R[contrast, contrast] + R[contrast, shared] @ tilt
    return PriorOfContrasts(0.5 * (marginal + marginal.T), R[shared, shared] / K, tilt)
