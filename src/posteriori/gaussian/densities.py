r"""log p(x, k) of new rows, as arrays and kernels.

Every density of this family is a function of weighted squared distances from the class means,

.. math:: \log p(x, k) = a_k - \tfrac12 q_k(x) \quad\text{(Gaussian)}, \qquad
          \log p(x, k) = a_k - b_k \log(1 + q_k(x)) \quad\text{(Student t)},

with q_k(x) = |A_k (x - m_k)|^2. With diagonal covariances the features are independent and each has such a term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from posteriori.gaussian.statistics import ClassStatistics
from posteriori.gaussian.structures import (
    Belief,
    Estimate,
    Structure,
    cholesky,
    divisor,
    is_tied,
    scatter_kind,
    shape,
)
from posteriori.maths.products import sum_of_logs

__all__ = ["ClassDensities", "class_densities", "draw", "log_joint", "log_likelihood", "pulled_in"]

_PART_BYTES = 3 << 20
"""Rows worked on at a time: what stays in the caches of a core, and is worth a few calls."""
_NEAR = 1e6
"""Largest square of a class mean, in units of its spread, for which squares may be multiplied out."""
_LARGE_POWER = 1e6
"""With powers beyond, the digits lost in 1 + q would show."""


@dataclass(frozen=True)
class ClassDensities:
    """What is needed of the classes to judge a row.

    Attributes
    ----------
    structure : str
    student : bool
        Whether the densities are Student t.
    log_prior : ndarray (K,)
    constants : ndarray (K, 1) or, for diagonal covariances, (K, D)
        Without the log prior.
    powers : ndarray like constants, or None
        b_k of a Student t.
    origin : ndarray (D,)
        Subtracted from rows first.
    means : ndarray (K, D)
        Less the origin.
    weights : ndarray (J, D, D), (K, D) or (K, 1)
        A_k, or the squares of its diagonal.
    factors : ndarray (K,)
        By which q of a full matrix is multiplied: classes that share A may still differ in this.
    """

    structure: Structure
    student: bool
    log_prior: np.ndarray
    constants: np.ndarray
    powers: np.ndarray | None
    origin: np.ndarray
    means: np.ndarray
    weights: np.ndarray
    factors: np.ndarray

    def linear(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients (K, D) and intercepts (K,) of log p(k | x), where it is linear in x up to its normalisation.

        The intercepts are those at the origin of the densities, not of the data: on the way there digits may be lost.
        """
        if self.student or not is_tied(self.structure):
            return None
        if shape(self.structure) == "full":
            precision = self.weights[0].T @ self.weights[0] * self.factors[0]
            coef = self.means @ precision
        else:
            coef = self.means * self.weights
        return coef, self.log_prior - 0.5 * np.einsum("kd,kd->k", coef, self.means)


def class_densities(
    belief: Belief, estimate: Estimate, log_prior: np.ndarray, origin: np.ndarray, scale: np.ndarray
) -> ClassDensities:
    """The densities of x that follow from a belief about (x - origin) * scale."""
    structure = belief.structure
    K, D = belief.means.shape
    tied = is_tied(structure)
    d = 1 if shape(structure) == "diagonal" else D
    if shape(structure) == "full":
        whiteners, log_dets = cholesky(belief.Psi)
        weights, log_det = whiteners * scale, log_dets[:, None] - 2.0 * np.log(scale).sum()
    elif shape(structure) == "diagonal":
        weights = np.broadcast_to(scale**2 / belief.Psi, (K, D))
        log_det = -np.log(weights)
    else:
        weights = scale[0] ** 2 / belief.Psi
        log_det = -D * np.log(weights)
    kappa, nu = belief.kappa, np.broadcast_to(belief.nu, (K, belief.nu.shape[1])) if tied else belief.nu
    log_det = np.broadcast_to(log_det, (K, log_det.shape[1]))
    if estimate == "bayes":
        v = nu if structure == "spherical" else nu - d + 1.0
        factors = kappa / (kappa + 1.0)
        constants = gammaln(0.5 * (v + d)) - gammaln(0.5 * v) - 0.5 * (d * np.log(np.pi / factors) + log_det)
        powers = np.broadcast_to(0.5 * (v + d), constants.shape)
    else:
        factors = np.asarray(divisor(structure, estimate, nu, D, K), dtype=np.float64)
        constants, powers = 0.5 * (d * np.log(factors / (2.0 * np.pi)) - log_det), None
    if shape(structure) != "full":
        weights, factors = weights * factors, np.ones((K, 1))
    return ClassDensities(
        structure,
        estimate == "bayes",
        log_prior,
        constants,
        powers,
        origin,
        belief.means / scale,
        weights,
        np.broadcast_to(factors, (K, factors.shape[1]))[:, 0].copy(),
    )


def log_joint(X: Any, densities: ClassDensities, finish: Callable[[np.ndarray], Any] | None = None) -> np.ndarray:
    """Joint log-probabilities log p(x_n, k), (K, n): a kernel for `Blocks.map_rows`.

    Missing values (NaN) are left out where covariances are diagonal. What is found may be finished in place, to
    probabilities for instance, while it is still in the cache.
    """
    n, D = X.shape
    K = len(densities.log_prior)
    out = np.empty((K, n))
    width = D + (D * K // len(_bands(D)) if densities.structure == "full" else K)
    step = max(64, _PART_BYTES // (8 * width))
    of = {"full": _matrix_joint, "diagonal": _diagonal_joint, "spherical": _spherical_joint}[shape(densities.structure)]
    with np.errstate(over="ignore", invalid="ignore"):  # here, not outside: threads have settings of their own
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            part = X[rows].toarray() if sp.issparse(X) else X[rows]
            out[:, rows] = of(part - densities.origin, densities)
        out += densities.log_prior[:, None]
        if finish is not None:
            finish(out)
    return out


def pulled_in(X: np.ndarray, densities: ClassDensities) -> np.ndarray:
    """Rows farther away than 1e100 standard deviations brought back to there: their squares are numbers again."""
    A = densities.weights
    inverse = np.sqrt(np.einsum("jid,jid->jd", A, A) if shape(densities.structure) == "full" else A).max(axis=0)
    Z = X - densities.origin
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.nanmax(np.abs(Z) * 1e-150 * inverse, axis=1, initial=0.0)  # in 1e150 standard deviations
        far = distance > 1e-50
        Z[far] *= (1e-50 / np.minimum(distance[far], 1e300))[:, None]
    return Z + densities.origin


def _matrix_joint(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    if is_tied(densities.structure):
        A = densities.weights[0]
        T, M = np.dot(A, Z.T), np.dot(densities.means, A.T)
        near = np.einsum("kd,kd->k", M, M)
        spread = densities.factors if densities.powers is None else 2.0 * densities.powers[:, 0]
        if (near * spread).max() <= _NEAR:
            q = -2.0 * np.dot(M, T)
            q += near[:, None] + np.einsum("dn,dn->n", T, T)
            np.maximum(q, 0.0, out=q)
        else:
            q = np.stack([np.square(T - m[:, None]).sum(axis=0) for m in M])
    else:
        q = _distances(Z, densities.weights, densities.means)
    q *= densities.factors[:, None]
    return _of_distances(q, densities)


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


def _spherical_joint(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    q = np.stack([np.square(Z - m).sum(axis=1) for m in densities.means])
    q *= densities.weights
    return _of_distances(q, densities)


def _of_distances(q: np.ndarray, densities: ClassDensities) -> np.ndarray:
    if densities.powers is None:
        q *= -0.5
    else:
        np.log1p(q, out=q)
        q *= -densities.powers
    q += densities.constants
    return q


def _diagonal_joint(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    missing = np.isnan(np.dot(Z, np.zeros(Z.shape[1])))  # infinite values too: they are refused later
    if not missing.any():
        return _complete_joint(Z, densities)
    out = np.empty((len(densities.means), len(Z)))
    out[:, ~missing] = _complete_joint(Z[~missing], densities)
    out[:, missing] = _incomplete_joint(Z[missing], densities)
    return out


def _complete_joint(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
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
    """sum_d b_d log(1 + q_dn), (n,): of products where the powers are one and the same."""
    if (powers != powers[0]).any() or powers[0] > _LARGE_POWER:
        return np.dot(powers, np.log1p(q))
    q += 1.0
    return powers[0] * sum_of_logs(q, axis=0)


def _incomplete_joint(Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
    """A missing feature is left out of the product."""
    there = ~np.isnan(Z)
    Z = np.where(there, Z, 0.0)
    out = np.empty((len(densities.means), len(Z)))
    for k in range(len(out)):
        q = densities.weights[k] * (Z - densities.means[k]) ** 2
        terms = 0.5 * q if densities.powers is None else densities.powers[k] * np.log1p(q)
        out[k] = np.where(there, densities.constants[k] - terms, 0.0).sum(axis=1)
    return out


def log_likelihood(statistics: ClassStatistics, densities: ClassDensities) -> float:
    """sum_n log p(x_n, y_n) of the rows behind the statistics, for Gaussian densities."""
    assert not densities.student
    structure, tied = densities.structure, is_tied(densities.structure)
    n = statistics.present
    gap = np.where(n > 0.0, statistics.means - densities.origin - densities.means, 0.0)
    S = statistics.reduced(scatter_kind(structure)).scatter
    if shape(structure) == "full":
        total = float((n * densities.constants).sum())
        for j, A in enumerate(densities.weights):
            rows = slice(None) if tied else slice(j, j + 1)
            squares = np.einsum("ij,ij->", A @ (S if tied else S[j]), A)
            squares += (n[rows, 0] * np.square(gap[rows] @ A.T).sum(axis=1)).sum()
            total -= 0.5 * float(squares * densities.factors[j])
    else:
        total = float((n * densities.constants).sum() - 0.5 * (densities.weights * (S + n * gap**2)).sum())
    seen = statistics.counts > 0.0
    return total + float(statistics.counts[seen] @ densities.log_prior[seen])


def draw(densities: ClassDensities, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """New rows (n, D) and their classes (n,).

    A vector with density ~ (1 + |z|^2)^{-b} is a standard normal one over the root of a chi-square with 2 b - D degrees
    of freedom.
    """
    K, D = densities.means.shape
    prior = np.exp(densities.log_prior)
    codes = rng.choice(K, n, p=prior / prior.sum())
    z = rng.standard_normal((n, D))
    if densities.powers is not None:
        d = 1 if shape(densities.structure) == "diagonal" else D
        dof = np.broadcast_to(2.0 * densities.powers[codes] - d, (n, D if d == 1 else 1))
        z /= np.sqrt(rng.chisquare(dof))
    if shape(densities.structure) != "full":
        z /= np.sqrt(densities.weights[codes])
    else:
        z /= np.sqrt(densities.factors[codes])[:, None]
        for j, A in enumerate(densities.weights):
            rows = slice(None) if is_tied(densities.structure) else codes == j
            z[rows] = np.linalg.solve(A, z[rows].T).T
    return z + densities.means[codes] + densities.origin, codes
