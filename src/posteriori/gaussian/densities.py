r"""log p(x, k) of new rows, as arrays and kernels.

Every density of this family is a function of weighted squared distances from the class means,

.. math:: \log p(x, k) = a_k - \tfrac12 q_k(x) \quad\text{(Gaussian)}, \qquad
          \log p(x, k) = a_k - b_k \log(1 + q_k(x)) \quad\text{(Student t)},

with q_k(x) = |A_k (x - m_k)|^2. With diagonal covariances the features are independent and each has such a term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from posteriori.gaussian.niw import Belief, Estimate, mode_divisor
from posteriori.gaussian.roots import RootStatistics
from posteriori.gaussian.row_space import RowSpace
from posteriori.gaussian.statistics import ClassMoments
from posteriori.gaussian.structure import Structure
from posteriori.gaussian.structures import STRUCTURES
from posteriori.rows.products import as_dense

__all__ = ["ClassDensities", "class_densities", "draw", "log_joint", "log_likelihood", "within_reach"]

_PART_BYTES = 3 << 20
"""Rows worked on at a time: what stays in the caches of a core, and is worth a few calls."""


@dataclass(frozen=True)
class ClassDensities:
    """The densities of the classes, as arrays; the fields are those of stored files.

    Attributes
    ----------
    structure : str
        Name of the covariance structure.
    student : bool
        Whether the densities are Student t.
    log_prior : ndarray (K,)
    constants : ndarray (K, 1) or, for diagonal covariances, (K, D)
        a_k, without the log prior.
    powers : ndarray like constants, or None
        b_k of a Student t.
    origin : ndarray (D,)
        Subtracted from rows first.
    means : ndarray (K, D)
        The class means less the origin.
    weights : ndarray (J, D, D), (K, D) or (K, 1)
        A_k, or the squares of its diagonal.
    factors : ndarray (K,)
        Factors by which q of a matrix is multiplied: classes that share A may still differ in this.
    space : RowSpace or None
        Where there were fewer rows than features, the space that they span: means and weights then are those of its
        coordinates, of which there are r + 1 and not D.
    """

    structure: str
    student: bool
    log_prior: np.ndarray
    constants: np.ndarray
    powers: np.ndarray | None
    origin: np.ndarray
    means: np.ndarray
    weights: np.ndarray
    factors: np.ndarray
    space: RowSpace | None = None

    @property
    def covariance_structure(self) -> Structure:
        """The structure of that name, in the coordinates of the densities."""
        structure = STRUCTURES[self.structure]
        if self.space is None:
            return structure
        folded = structure.folded(self.space.hidden)
        assert folded is not None
        return folded

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """Rows (n, D) in the coordinates of the means and weights: less the origin, and in the row space if any."""
        Z = X - self.origin
        return Z if self.space is None else self.space.coordinates(Z)

    def log_densities(self, q: np.ndarray) -> np.ndarray:
        """a_k - q / 2, or a_k - b_k log(1 + q), (K, n), in the place of q."""
        if self.powers is None:
            q *= -0.5
        else:
            np.log1p(q, out=q)
            q *= -self.powers
        q += self.constants
        return q

    def linear(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Coefficients (K, D) and intercepts (K,) of log p(k | x), where it is linear in x up to its normalisation.

        The intercepts are those at the origin of the densities, not of the data: on the way there digits may be lost.
        """
        structure = self.covariance_structure
        if self.student or not structure.tied:
            return None
        coef = structure.precise_means(self)
        intercept = self.log_prior - 0.5 * np.einsum("kd,kd->k", coef, self.means)
        return coef if self.space is None else self.space.slopes(coef), intercept

    def inverse_spreads(self) -> np.ndarray:
        """The largest inverse standard deviation of each feature, (D,) or (1,)."""
        if self.space is None:
            return self.covariance_structure.inverse_spreads(self)
        return np.max([self.space.inverse_spreads(A) for A in self.weights], axis=0)


def class_densities(
    belief: Belief,
    estimate: Estimate,
    log_prior: np.ndarray,
    origin: np.ndarray,
    scale: np.ndarray,
    space: RowSpace | None = None,
) -> ClassDensities:
    """The densities of x that follow from a belief about (x - origin) * scale, or about coordinates in a row space.

    See docs/theory.md, sections 5.1 and 5.2.
    """
    structure, (K, D) = belief.structure, belief.means.shape
    p = structure.dimension(D)
    d = p * structure.repeats(D)
    weights, log_det = structure.whitened(belief.Psi, scale)
    if space is not None:
        log_det = log_det + 2.0 * np.log(space.unit).sum()
    kappa, nu = belief.kappa, np.broadcast_to(belief.nu, (K, belief.nu.shape[1]))
    log_det = np.broadcast_to(log_det, (K, log_det.shape[1]))
    if estimate == "bayes":
        v = nu - p + 1.0
        factors = kappa / (kappa + 1.0)
        constants = gammaln(0.5 * (v + d)) - gammaln(0.5 * v) - 0.5 * (d * np.log(np.pi / factors) + log_det)
        powers = np.broadcast_to(0.5 * (v + d), constants.shape)
    else:
        factors = np.asarray(mode_divisor(structure, estimate, nu, K, D), dtype=np.float64)
        constants, powers = 0.5 * (d * np.log(factors / (2.0 * np.pi)) - log_det), None
    if weights.ndim == 2:  # variances take their factors up; of a matrix they stay apart, as classes may share it
        weights, factors = weights * factors, np.ones((K, 1))
    return ClassDensities(
        structure.name,
        estimate == "bayes",
        log_prior,
        constants,
        powers,
        origin,
        belief.means / scale,
        weights,
        factors[:, 0].copy(),
        space,
    )


def log_joint(X: Any, densities: ClassDensities, finish: Callable[[np.ndarray], Any] | None = None) -> np.ndarray:
    """Joint log-probabilities log p(x_n, k), (K, n): a kernel for `Blocks.map_rows`.

    Missing values (NaN) are left out where covariances are diagonal. What is found may be finished in place, to
    probabilities for instance, while it is still in the cache.
    """
    n, D = X.shape
    K, structure = len(densities.log_prior), densities.covariance_structure
    out = np.empty((K, n))
    step = max(64, _PART_BYTES // (8 * structure.row_width(K, D)))
    with np.errstate(over="ignore", invalid="ignore"):  # here, not outside: threads have settings of their own
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            out[:, rows] = structure.log_joint(densities.coordinates(as_dense(X[rows])), densities)
        out += densities.log_prior[:, None]
        if finish is not None:
            finish(out)
    return out


def within_reach(X: np.ndarray, densities: ClassDensities) -> np.ndarray:
    """Rows, those farther away than 1e100 standard deviations moved there: their squares are numbers again."""
    Z = X - densities.origin
    with np.errstate(over="ignore", invalid="ignore"):
        # in 1e150 standard deviations
        distance = np.nanmax(np.abs(Z) * 1e-150 * densities.inverse_spreads(), axis=1, initial=0.0)
        far = distance > 1e-50
        Z[far] *= (1e-50 / np.minimum(distance[far], 1e300))[:, None]
    return Z + densities.origin


def log_likelihood(statistics: ClassMoments, densities: ClassDensities) -> float:
    """sum_n log p(x_n, y_n) of the rows behind the statistics, for Gaussian densities."""
    assert not densities.student
    structure, n, origin = densities.covariance_structure, statistics.present, densities.origin
    if densities.space is not None:
        assert isinstance(statistics, RootStatistics)
        statistics, origin = densities.space.statistics(statistics, origin), np.zeros(1)
    gap = np.where(n > 0.0, statistics.means - origin - densities.means, 0.0)
    scatter = statistics.reduced(structure.scatter).scatter
    total = float((n * densities.constants).sum()) - 0.5 * structure.total_distance(scatter, n, gap, densities)
    seen = statistics.counts > 0.0
    return total + float(statistics.counts[seen] @ densities.log_prior[seen])


def draw(densities: ClassDensities, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """New rows (n, D) and their classes (n,).

    A vector of d values with density ~ (1 + |z|^2)^{-b} is a standard normal one over the root of a chi-square with
    2 b - d degrees of freedom.
    """
    structure, space, (K, D) = densities.covariance_structure, densities.space, densities.means.shape
    prior = np.exp(densities.log_prior)
    codes = rng.choice(K, n, p=prior / prior.sum())
    z = rng.standard_normal((n, len(densities.origin)))
    if densities.powers is not None:
        d = structure.dimension(D) * structure.repeats(D)
        z /= np.sqrt(rng.chisquare(2.0 * densities.powers[codes] - d))
    if space is None:
        drawn = structure.coloured(z, codes, densities) + densities.means[codes]
    else:
        drawn = space.moved(z, structure.coloured(space.folded(z), codes, densities) + densities.means[codes])
    return drawn + densities.origin, codes
