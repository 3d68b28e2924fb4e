"""The interface of covariance structures, and the methods that most of them share.

J is the number of covariances: K, or one where all classes share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posteriori.gaussian.left_out import Removal, RowsToLeaveOut
from posteriori.gaussian.niw import Belief, Estimate, WishartPrior
from posteriori.gaussian.row_draws import drawn_by_distance, drawn_chi_square
from posteriori.gaussian.statistics import ClassStatistics, Kind

if TYPE_CHECKING:
    from posteriori.gaussian.densities import ClassDensities

__all__ = ["CONSTANT", "Structure"]

CONSTANT = 1e-28
"""Variance that is due to rounding, in units of that of all rows."""
_PART_BYTES = 1 << 19
"""Rows left out together: their arrays stay in the cache, and are not given back to the system after each use."""


@dataclass(frozen=True)
class Structure(ABC):
    """The covariances of Gaussian classes.

    Attributes
    ----------
    name : str
        The value of `covariance` that asks for it, and its name in files.
    tied : bool
        Whether all classes share one covariance.
    missing_allowed : bool
        Whether features are independent within a class, so that a missing value can be left out of the product.
    ridge : float
        A number added to the variances of a singular class under maximum likelihood, in units of those of all rows:
        enough for a covariance to be inverted with ten digits to spare.
    """

    name: str
    tied: bool

    missing_allowed = False
    ridge = 1e-9

    # Sizes

    @property
    def scatter(self) -> Kind:
        """The least that must be known of the scatter."""
        return "diagonal"

    @abstractmethod
    def dimension(self, D: int) -> int:
        """The dimension p of the inverse-Wishart distribution of a covariance."""

    def repeats(self, D: int) -> int:
        """The number s of values of a row that inform each covariance."""
        return 1

    @abstractmethod
    def size(self, D: int) -> int:
        """The number of parameters of one covariance."""

    def n_parameters(self, K: int, D: int) -> int:
        """The number of parameters of the covariances of K classes."""
        return self.size(D) * (1 if self.tied else K)

    def values(self, D: int) -> int:
        """The number of values of a row in D coordinates."""
        return D

    def folded(self, hidden: int) -> Structure | None:
        """The structure in the coordinates of a `RowSpace`; None where it is not the same after a rotation."""
        return None

    def counts(self, n: np.ndarray, D: int) -> np.ndarray:
        """The values behind each covariance, (J, 1) or (J, D), of n rows in each class, (K, 1) or (K, D)."""
        return (n.sum(axis=0, keepdims=True) if self.tied else n) * self.repeats(D)

    def left_out_work(self, D: int) -> int:
        """Operations for one row in one class when it is left out, in units of a product."""
        return 20 * D

    def left_out_rows(self, D: int) -> int:
        """Rows that are left out, each by itself, with the same call."""
        return max(1, _PART_BYTES // (8 * D))

    def row_width(self, K: int, D: int) -> int:
        """Numbers that a row needs while it is judged."""
        return D + K

    def drawn_width(self, K: int, D: int) -> int:
        """Numbers that a draw of a row's densities takes, besides one for each class."""
        return K * D

    # Sums and scales

    @abstractmethod
    def gathered(self, scatter: np.ndarray) -> np.ndarray:
        """Sums behind each covariance, (J, ...), from a scatter in the layout of the statistics."""

    @abstractmethod
    def within_classes(self, statistics: ClassStatistics) -> np.ndarray:
        """The scatter within classes of all rows, in the shape of one covariance."""

    @abstractmethod
    def isotropic(self, level: float, D: int) -> np.ndarray:
        """The scale of a prior with the same level for each feature."""

    @abstractmethod
    def of_variances(self, variances: np.ndarray) -> np.ndarray:
        """The scale of a prior from one number for each feature."""

    @abstractmethod
    def rescaled(self, covariance: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """The covariance of x * unit, where this is that of x."""

    @abstractmethod
    def scale_shapes(self, D: int) -> tuple[tuple[int, ...], ...]:
        """Shapes that the scale of a prior may have."""

    def checked_scale(self, scale: np.ndarray, D: int) -> np.ndarray:
        """The scale that a user gave, in the shape of one covariance; raise unless it is one."""
        allowed = self.scale_shapes(D)
        if scale.shape not in allowed:
            raise ValueError(
                f"The prior's scale has shape {scale.shape}: covariance={self.name!r} needs "
                f"{' or '.join('a number' if not shape else str(shape) for shape in allowed)}."
            )
        if not (scale > 0.0).all():
            raise ValueError(f"The prior's scale is {scale.tolist()!r}: it must be positive.")
        return np.broadcast_to(scale, allowed[-1])

    def units(self, variance: np.ndarray) -> np.ndarray:
        """The units in which the features are measured, (D,), from their variances; zero where there is no spread."""
        return np.sqrt(variance)

    # Covariances

    def log_dets(self, Psi: np.ndarray) -> np.ndarray:
        """Logarithms of the determinants, (J, 1), or of each variance, (J, D)."""
        with np.errstate(divide="ignore"):
            return np.log(Psi)

    def divided(self, Psi: np.ndarray, divisor: np.ndarray) -> np.ndarray:
        """Psi / divisor, where the divisor is (J, 1) or (J, D)."""
        return Psi / divisor

    def covariances(self, Psi: np.ndarray, divisor: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Psi / divisor in the units of the data, in the shape of `covariances_`."""
        found = self.rescaled(self.divided(Psi, divisor), unit)
        return found[0] if self.tied else found

    def with_ridges(self, Psi: np.ndarray, nu: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Psi with a ridge where it has no inverse, one where nothing was seen; and the ridges, (J,)."""
        ridges = np.where(unseen, 1.0, np.where(Psi > CONSTANT * nu, 0.0, self.ridge))
        return Psi + ridges * nu, np.broadcast_to(ridges, Psi.shape).max(axis=1)

    def ridge_means(
        self, n: np.ndarray, xbar: np.ndarray, Sigma: np.ndarray, centre: np.ndarray, precision: np.ndarray
    ) -> np.ndarray:
        """The means under the prior N(centre, 1 / precision), given the covariances, (K, D)."""
        # as a step away from xbar: a column without spread then stays where it is, to the last digit
        pull = Sigma * precision
        return xbar - pull * (xbar - centre) / np.where(n > 0.0, n + pull, 1.0)

    @abstractmethod
    def left_out_log_density(
        self,
        belief: Belief,
        statistics: ClassStatistics,
        prior: WishartPrior,
        estimate: Estimate,
        rows: RowsToLeaveOut,
        removal: Removal,
    ) -> np.ndarray:
        """The log density of each row in every class, log p(x_n | k, the other rows), (n, K)."""

    # Densities

    @abstractmethod
    def whitened(self, Psi: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A with |A (x - m)|^2 = q, or the squares of its diagonal, and log |Psi|.

        Psi is that of x * scale, A and the determinant are those for x.
        """

    @abstractmethod
    def log_joint(self, Z: np.ndarray, densities: ClassDensities) -> np.ndarray:
        """Log densities (K, n) of rows less the origin."""

    def drawn_log_densities(self, Z: np.ndarray, belief: Belief, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws of the log densities of rows, (S, K, n), after each row as one of class h, (S, n): see `row_draws`.

        Rows are in the coordinates of the belief; each row's densities are known up to a common number.
        """
        return drawn_by_distance(self.distances(Z, belief), self.log_dets(belief.Psi), belief, h, Z.shape[1], rng)

    def drawn_parameters(self, belief: Belief, n_draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws of the means (S, K, D) and the covariances (S, J, ...), in the coordinates of the belief.

        Sigma = Psi / chi^2_nu and mu = m + (Sigma / kappa)^{1/2} z, variance by variance.
        """
        z = rng.standard_normal((n_draws, *belief.means.shape))
        Sigma = belief.Psi / drawn_chi_square(belief.nu, (n_draws, *belief.Psi.shape), rng)
        return belief.means + np.sqrt(Sigma / belief.kappa) * z, Sigma

    @abstractmethod
    def distances(self, Z: np.ndarray, belief: Belief) -> np.ndarray:
        """Squared distances (x - m_k)^T Psi_k^{-1} (x - m_k) of the independent parts of rows, (K, B, n)."""

    def total_distance(self, scatter: np.ndarray, n: np.ndarray, gap: np.ndarray, densities: ClassDensities) -> float:
        """The sum of q over all rows in their classes, from their scatter and their means less those of the densities.

        The scatter is in the layout of the statistics.
        """
        return float((densities.weights * (scatter + n * gap**2)).sum())

    def coloured(self, z: np.ndarray, codes: np.ndarray, densities: ClassDensities) -> np.ndarray:
        """Standard vectors (n, D) with the covariances of their classes."""
        return z / np.sqrt(densities.weights[codes])

    def precise_means(self, densities: ClassDensities) -> np.ndarray:
        """Sigma^{-1} mu_k, (K, D), where the covariance is tied."""
        return densities.means * densities.weights

    def inverse_spreads(self, densities: ClassDensities) -> np.ndarray:
        """The largest inverse standard deviation of each feature, (D,) or (1,)."""
        return np.sqrt(densities.weights).max(axis=0)
