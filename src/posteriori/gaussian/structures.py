r"""Covariance structures: what the classes may have in common, each behind the same interface.

A covariance is a matrix, a variance for each feature, or one variance (`Matrices`, `Variances`, `OneVariance`); each
class has its own, or all classes share one (`tied`). A structure answers every question that depends on this; nothing
else asks for its name. A new structure is a line in `STRUCTURES`, a new shape of covariance a class.

J is the number of covariances: K, or one where they are tied.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from posteriori.gaussian.left_out import (
    Removal,
    RowsToLeaveOut,
    left_out_of_matrices,
    left_out_of_one_variance,
    left_out_of_variances,
)
from posteriori.gaussian.niw import Belief, Estimate, WishartPrior, inverse_cholesky
from posteriori.gaussian.row_draws import drawn_by_products, wishart_factors
from posteriori.gaussian.statistics import ClassMoments, ClassStatistics, Kind
from posteriori.gaussian.structure import CONSTANT, Structure
from posteriori.maths.linalg import cholesky
from posteriori.maths.products import sum_of_logs
from posteriori.parameters import require_spd

if TYPE_CHECKING:
    from posteriori.gaussian.densities import ClassDensities

__all__ = ["STRUCTURES", "Matrices", "OneVariance", "Variances", "structures_for"]

_SINGULAR = 1e-11
"""Smallest eigenvalue of a regular covariance, its variances brought to one."""
_NEAR = 1e6
"""Largest square of a class mean, in units of its spread, for which squares may be multiplied out."""
_LARGE_POWER = 1e6
"""The largest power of 1 + q for which the digits lost in the sum do not matter."""


@dataclass(frozen=True)
class Matrices(Structure):
    """Covariance matrices (D, D).

    Attributes
    ----------
    hidden : int
        Dimensions besides the D coordinates in which the covariance is that of the last coordinate (`RowSpace`).
    """

    hidden: int = 0

    ridge = 1e-6

    @property
    def scatter(self) -> Kind:
        return "pooled" if self.tied else "full"

    def dimension(self, D: int) -> int:
        return D + self.hidden

    def values(self, D: int) -> int:
        return self.dimension(D)

    def folded(self, hidden: int) -> Structure:
        return replace(self, hidden=hidden)

    def size(self, D: int) -> int:
        p = self.dimension(D)
        return p * (p + 1) // 2

    def left_out_work(self, D: int) -> int:
        return D * D

    def left_out_rows(self, D: int) -> int:
        return sys.maxsize  # matrices are factored once for all

    def row_width(self, K: int, D: int) -> int:
        return D + (K if self.tied else D * K // len(_bands(D)))

    def drawn_width(self, K: int, D: int) -> int:
        return K * min(K, D) if self.tied else K

    def gathered(self, scatter: np.ndarray) -> np.ndarray:
        return scatter[None] if self.tied else scatter

    def within_classes(self, statistics: ClassStatistics) -> np.ndarray:
        return statistics.reduced("pooled").scatter

    def isotropic(self, level: float, D: int) -> np.ndarray:
        return level * np.eye(D)

    def of_variances(self, variances: np.ndarray) -> np.ndarray:
        return np.diag(variances)

    def rescaled(self, covariance: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return covariance * (unit * unit[:, None])

    def scale_shapes(self, D: int) -> tuple[tuple[int, ...], ...]:
        return (), (D,), (D, D)

    def checked_scale(self, scale: np.ndarray, D: int) -> np.ndarray:
        if scale.shape in ((), (D,)):
            scale = np.diag(np.broadcast_to(scale, (D,)))
        if scale.shape == (D, D):
            require_spd("scale", scale)
            return scale
        return super().checked_scale(scale, D)

    def log_dets(self, Psi: np.ndarray) -> np.ndarray:
        return np.linalg.slogdet(Psi)[1][:, None] + self._hidden_log_dets(Psi)

    def _hidden_log_dets(self, Psi: np.ndarray) -> np.ndarray:
        """The part of the hidden dimensions, (J, 1)."""
        with np.errstate(divide="ignore"):
            return self.hidden * np.log(Psi[:, -1, -1:]) if self.hidden else np.zeros((len(Psi), 1))

    def divided(self, Psi: np.ndarray, divisor: np.ndarray) -> np.ndarray:
        return Psi / divisor[:, :, None]

    def with_ridges(self, Psi: np.ndarray, nu: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Psi, ridges = Psi.copy(), np.zeros(len(Psi))
        for j, M in enumerate(Psi):
            ridges[j] = 1.0 if unseen[j].any() else 0.0 if _is_regular(M, float(nu[j, 0])) else self.ridge
            M[np.diag_indices(len(M))] += ridges[j] * nu[j]
        return Psi, ridges

    def ridge_means(
        self, n: np.ndarray, xbar: np.ndarray, Sigma: np.ndarray, centre: np.ndarray, precision: np.ndarray
    ) -> np.ndarray:
        K, D = xbar.shape
        pulls = np.broadcast_to(Sigma * precision, (K, D, D))
        counts = np.where(n > 0.0, n, 1.0)[:, :, None]
        try:
            steps = np.linalg.solve(counts * np.eye(D) + pulls, pulls @ (xbar - centre)[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:  # rows count for nothing beside the pull: its share is one there, to rounding
            steps = _shares_of_pull(counts[:, 0], Sigma, precision, xbar - centre)
        return xbar - steps

    def left_out_log_density(
        self,
        belief: Belief,
        statistics: ClassStatistics,
        prior: WishartPrior,
        estimate: Estimate,
        rows: RowsToLeaveOut,
        removal: Removal,
    ) -> np.ndarray:
        return left_out_of_matrices(belief, statistics, prior, estimate, rows, removal)

    def whitened(self, Psi: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inverses, log_dets = inverse_cholesky(Psi)
        return inverses * scale, log_dets[:, None] + self._hidden_log_dets(Psi) - 2.0 * np.log(scale).sum()

    def log_joint(self, Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
        q = _distances_in_common(Z, densities) if self.tied else _distances(Z, densities.weights, densities.means)
        q *= densities.factors[:, None]
        return densities.log_densities(q)

    def drawn_log_densities(self, Z: np.ndarray, belief: Belief, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.tied:
            return drawn_by_products(Z, belief, h, rng)
        return super().drawn_log_densities(Z, belief, h, rng)

    def drawn_parameters(self, belief: Belief, n_draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        # with Psi = L L^T and T T^T ~ Wishart(nu, I): Sigma = F F^T and mu = m + F z / kappa^{1/2}, F = L T^{-T}
        K, D = belief.means.shape
        z = rng.standard_normal((n_draws, K, D)) / np.sqrt(belief.kappa)
        means, Sigma = np.empty((n_draws, K, D)), np.empty((n_draws, *belief.Psi.shape))
        for j, (Psi, nu) in enumerate(zip(belief.Psi, belief.nu[:, 0], strict=True)):
            classes = slice(None) if self.tied else slice(j, j + 1)
            F_T = np.linalg.solve(wishart_factors(float(nu), D, n_draws, rng), cholesky(Psi).T)
            means[:, classes] = belief.means[classes] + z[:, classes] @ F_T
            Sigma[:, j] = F_T.transpose(0, 2, 1) @ F_T
        return means, Sigma

    def distances(self, Z: np.ndarray, belief: Belief) -> np.ndarray:
        A = inverse_cholesky(belief.Psi)[0]
        return _distances(Z, np.broadcast_to(A, (len(belief.means), *A.shape[1:])), belief.means)[:, None]

    def total_distance(self, scatter: np.ndarray, n: np.ndarray, gap: np.ndarray, densities: ClassDensities) -> float:
        total = 0.0
        for j, (A, S) in enumerate(zip(densities.weights, self.gathered(scatter), strict=True)):
            rows = slice(None) if self.tied else slice(j, j + 1)
            squares = np.einsum("ij,ij->", A @ S, A) + (n[rows, 0] * np.square(gap[rows] @ A.T).sum(axis=1)).sum()
            total += float(squares * densities.factors[j])
        return total

    def coloured(self, z: np.ndarray, codes: np.ndarray, densities: ClassDensities) -> np.ndarray:
        z = z / np.sqrt(densities.factors[codes])[:, None]
        for j, A in enumerate(densities.weights):
            rows = slice(None) if self.tied else codes == j
            z[rows] = np.linalg.solve(A, z[rows].T).T
        return z

    def precise_means(self, densities: ClassDensities) -> np.ndarray:
        A = densities.weights[0]
        # mean by mean: the precision itself has the square of a unit, which may be beyond the range of numbers
        return densities.means @ A.T @ A * densities.factors[0]

    def inverse_spreads(self, densities: ClassDensities) -> np.ndarray:
        return np.sqrt(np.einsum("jid,jid->jd", densities.weights, densities.weights)).max(axis=0)


class Variances(Structure):
    """Diagonal covariances: a variance for each feature, (D,)."""

    missing_allowed = True

    def dimension(self, D: int) -> int:
        return 1

    def size(self, D: int) -> int:
        return D

    def gathered(self, scatter: np.ndarray) -> np.ndarray:
        return scatter.sum(axis=0, keepdims=True) if self.tied else scatter

    def within_classes(self, statistics: ClassStatistics) -> np.ndarray:
        return statistics.squares_about_means().sum(axis=0)

    def isotropic(self, level: float, D: int) -> np.ndarray:
        return np.full(D, level)

    def of_variances(self, variances: np.ndarray) -> np.ndarray:
        return variances

    def rescaled(self, covariance: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return covariance * unit**2

    def scale_shapes(self, D: int) -> tuple[tuple[int, ...], ...]:
        return (), (D,)

    def left_out_log_density(
        self,
        belief: Belief,
        statistics: ClassStatistics,
        prior: WishartPrior,
        estimate: Estimate,
        rows: RowsToLeaveOut,
        removal: Removal,
    ) -> np.ndarray:
        return left_out_of_variances(belief, statistics, prior, estimate, rows, removal)

    def whitened(self, Psi: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = scale**2 / Psi
        return weights, -np.log(weights)

    def log_joint(self, Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
        missing = np.isnan(np.dot(Z, np.zeros(Z.shape[1])))  # infinite values too: they are refused later
        if not missing.any():
            return _joint_of_complete_rows(Z, densities)
        out = np.empty((len(densities.means), len(Z)))
        out[:, ~missing] = _joint_of_complete_rows(Z[~missing], densities)
        out[:, missing] = _joint_of_incomplete_rows(Z[missing], densities)
        return out

    def distances(self, Z: np.ndarray, belief: Belief) -> np.ndarray:
        return np.square(Z.T - belief.means[:, :, None]) / belief.Psi[:, :, None]


class OneVariance(Structure):
    """Spherical covariances: sigma^2 I."""

    def dimension(self, D: int) -> int:
        return 1

    def repeats(self, D: int) -> int:
        return D

    def drawn_width(self, K: int, D: int) -> int:
        return K

    def size(self, D: int) -> int:
        return 1

    def gathered(self, scatter: np.ndarray) -> np.ndarray:
        traces = scatter.sum(axis=1, keepdims=True)
        return traces.sum(axis=0, keepdims=True) if self.tied else traces

    def within_classes(self, statistics: ClassStatistics) -> np.ndarray:
        return statistics.squares_about_means().sum()

    def isotropic(self, level: float, D: int) -> np.ndarray:
        return np.array(level * D)

    def of_variances(self, variances: np.ndarray) -> np.ndarray:
        return variances.mean()

    def rescaled(self, covariance: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return covariance * unit[0] ** 2

    def scale_shapes(self, D: int) -> tuple[tuple[int, ...], ...]:
        return ((),)

    def units(self, variance: np.ndarray) -> np.ndarray:
        return np.full_like(variance, np.sqrt(np.mean(variance)))  # one unit for all features

    def covariances(self, Psi: np.ndarray, divisor: np.ndarray, unit: np.ndarray) -> np.ndarray:
        return super().covariances(Psi[:, 0], divisor[:, 0], unit)

    def left_out_log_density(
        self,
        belief: Belief,
        statistics: ClassStatistics,
        prior: WishartPrior,
        estimate: Estimate,
        rows: RowsToLeaveOut,
        removal: Removal,
    ) -> np.ndarray:
        return left_out_of_one_variance(belief, statistics, prior, estimate, rows, removal)

    def whitened(self, Psi: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = scale[0] ** 2 / Psi
        return weights, -len(scale) * np.log(weights)

    def log_joint(self, Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
        q = np.stack([np.square(Z - m).sum(axis=1) for m in densities.means])
        q *= densities.weights
        return densities.log_densities(q)

    def distances(self, Z: np.ndarray, belief: Belief) -> np.ndarray:
        q = np.stack([np.square(Z - m).sum(axis=1) for m in belief.means])
        return (q / belief.Psi)[:, None]


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (
        Matrices("full", tied=False),
        Matrices("tied", tied=True),
        Variances("diagonal", tied=False),
        Variances("tied_diagonal", tied=True),
        OneVariance("spherical", tied=False),
    )
}
"""The structures by name."""


def structures_for(statistics: ClassMoments, *, missing: bool) -> tuple[Structure, ...]:
    """The structures that can be fitted to these statistics."""
    return tuple(
        structure
        for structure in STRUCTURES.values()
        if statistics.holds(structure.scatter) and (structure.missing_allowed or not missing)
    )


# Matrices


def _shares_of_pull(n: np.ndarray, Sigma: np.ndarray, precision: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """(n I + Sigma P)^{-1} Sigma P d for each class, by eigenvalues: a share l / (n + l) of d along each direction."""
    root = np.sqrt(precision)
    values, vectors = np.linalg.eigh(Sigma * (root * root[:, None]))
    values = np.maximum(values, 0.0)
    along = np.einsum("...de,...d->...e", vectors, gap * root)
    return np.einsum("...de,...e->...d", vectors, along * values / (n + values)) / root


def _is_regular(M: np.ndarray, n: float) -> bool:
    """Whether the scatter of n rows is positive definite by more than rounding, whatever the units of its rows."""
    diagonal = M.diagonal()
    if not (diagonal > CONSTANT * n).all():
        return False
    unit = 1.0 / np.sqrt(diagonal)
    scaled = M * unit * unit[:, None]
    scaled[np.diag_indices_from(scaled)] -= _SINGULAR
    return bool(lapack.dpotrf(scaled, lower=1)[1] == 0)


def _distances_in_common(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    """|A (z_n - m_k)|^2, (K, n), for one A: multiplied out where the means are near, so that A meets each row once."""
    A = densities.weights[0]
    T, M = np.dot(A, Z.T), np.dot(densities.means, A.T)
    near = np.einsum("kd,kd->k", M, M)
    spread = densities.factors if densities.powers is None else 2.0 * densities.powers[:, 0]
    if (near * spread).max() > _NEAR:
        return np.stack([np.square(T - m[:, None]).sum(axis=0) for m in M])
    q = -2.0 * np.dot(M, T)
    q += near[:, None] + np.einsum("dn,dn->n", T, T)
    return np.maximum(q, 0.0, out=q)


def _distances(Z: np.ndarray, A: np.ndarray, means: np.ndarray) -> np.ndarray:
    """|A_k (z_n - m_k)|^2, (K, n), for lower triangular A_k: the upper half of their columns is not multiplied."""
    K, D = means.shape
    shifts = np.einsum("kij,kj->ki", A, means)
    columns = np.empty((D + 1, len(Z)))
    columns[0], columns[1:] = -1.0, Z.T
    q = np.zeros((K, len(Z)))
    for rows in _bands(D):
        band = np.concatenate([shifts[:, rows, None], A[:, rows, : rows.stop]], axis=2)
        T = np.dot(band.reshape(-1, rows.stop + 1), columns[: rows.stop + 1])
        q += np.square(T, out=T).reshape(K, -1, len(Z)).sum(axis=1)
    return q


def _bands(D: int) -> list[slice]:
    """Rows of a triangular matrix in a few bands: enough to skip most of the zeros, but worth a product each."""
    count = min(8, max(1, D // 16))
    edges = np.linspace(0, D, count + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


# Variances


def _joint_of_complete_rows(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    means, weights, powers = densities.means, densities.weights, densities.powers
    constants = densities.constants.sum(axis=1, keepdims=True)
    if powers is None and (weights * means**2).max() <= _NEAR:
        linear = weights * means
        out = np.dot(linear, Z.T)
        out -= 0.5 * np.dot(weights, np.square(Z).T)
        out += constants - 0.5 * np.einsum("kd,kd->k", linear, means)[:, None]
        return out
    T = np.ascontiguousarray(Z.T)
    out = np.empty((len(means), Z.shape[0]))
    for k, (m, w) in enumerate(zip(means, weights, strict=True)):
        q = T - m[:, None]
        np.square(q, out=q)
        q *= w[:, None]
        out[k] = -0.5 * q.sum(axis=0) if powers is None else -_weighted_logs(q, powers[k])
    out += constants
    return out


def _weighted_logs(q: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """sum_d b_d log(1 + q_dn), (n,): the logarithm of a product where the powers are one and the same."""
    if (powers != powers[0]).any() or powers[0] > _LARGE_POWER:
        return np.dot(powers, np.log1p(q))
    q += 1.0
    return powers[0] * sum_of_logs(q, axis=0)


def _joint_of_incomplete_rows(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    """Log densities (K, n) of rows with missing values: a missing feature is left out of the product."""
    there = ~np.isnan(Z)
    Z = np.where(there, Z, 0.0)
    out = np.empty((len(densities.means), len(Z)))
    for k in range(len(out)):
        q = densities.weights[k] * (Z - densities.means[k]) ** 2
        terms = 0.5 * q if densities.powers is None else densities.powers[k] * np.log1p(q)
        out[k] = np.where(there, densities.constants[k] - terms, 0.0).sum(axis=1)
    return out
