r"""The normal-inverse-Wishart belief about Gaussian classes, x ~ N(mu_k, Sigma_k) in class k.

The belief is mu | Sigma ~ N(m, Sigma / kappa), Sigma ~ IW(nu, Psi). Rows move it by their count n, mean and scatter S
alone:

.. math:: \kappa_n = \kappa_0 + n, \quad \nu_n = \nu_0 + n, \quad m_n = \frac{\kappa_0 m_0 + n \bar x}{\kappa_n}, \quad
          \Psi_n = \Psi_0 + S + \frac{\kappa_0 n}{\kappa_n} (\bar x - m_0)(\bar x - m_0)^\top .

Here m_0 is the origin: the features are shifted to it. Every structure (`structures`) is a case of this. A row is, for
one covariance, s independent vectors of p dimensions: p = D and s = 1 for a matrix; p = 1 and s = 1 for a variance of
one feature; p = 1 and s = D for one variance of all features. Then nu_n = nu_0 + s n, and the Student t has
nu - p + 1 degrees of freedom. Classes that share a covariance add up their counts and squares. Maximum likelihood is
the belief with kappa_0 = nu_0 = Psi_0 = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.special import gammaln

from posteriori.exceptions import SingularError
from posteriori.gaussian.statistics import SCATTERS, ClassStatistics
from posteriori.parameters import Parameters, finite_numbers

if TYPE_CHECKING:
    from posteriori.gaussian.structure import Structure

__all__ = [
    "NO_PRIOR",
    "Belief",
    "Estimate",
    "NormalInverseWishartPrior",
    "RidgePrior",
    "WishartPrior",
    "inverse_cholesky",
    "log_density",
    "log_evidence",
    "mode_divisor",
    "prior_scale",
    "updated",
]

Estimate = Literal["mle", "map", "bayes"]


# Priors as a user states them


@dataclass
class NormalInverseWishartPrior(Parameters):
    """The conjugate prior of Gaussian classes: what is believed of their means and covariances before a row is seen.

    ``mu_k | Sigma_k ~ N(mean, Sigma_k / kappa)``, ``Sigma_k ~ IW(nu, scale)``, and a Dirichlet on the class
    frequencies. For diagonal covariances the same in one dimension, feature by feature; for spherical ones nu and scale
    are those of the one variance.

    Parameters
    ----------
    mean : None, number or (D,) array, default None
        Mean of the class means; None is the mean of all rows.
    kappa : number, default 1
        How many rows the mean is worth.
    nu : None or number, default None
        Degrees of freedom, more than D - 1 (0 for diagonal and spherical covariances); None is D + 2 (3), the least
        whole number with which covariances have an expectation.
    scale : None, number, (D,) or (D, D) array, default None
        Psi, in squared units of the data: the expected covariance is scale / (nu - D - 1), for diagonal covariances
        scale / (nu - 2). None is such that it expects the variances of all rows.
    concentration : number, default 1
        Concentration of the Dirichlet, for each class.

    Examples
    --------
    >>> NormalInverseWishartPrior(kappa=0.5)
    NormalInverseWishartPrior(mean=None, kappa=0.5, nu=None, scale=None, concentration=1.0)
    """

    mean: Any = None
    kappa: Any = 1.0
    nu: Any = None
    scale: Any = None
    concentration: Any = 1.0

    def origin(self, D: int) -> np.ndarray | None:
        """The prior mean, (D,), or None."""
        if self.mean is None:
            return None
        mean = finite_numbers("mean", self.mean)
        if mean.shape not in ((), (D,)):
            raise ValueError(f"The prior's mean has shape {mean.shape}: a number or {D} numbers are needed.")
        return np.broadcast_to(mean, (D,)).astype(np.float64)

    def spreads(self, D: int) -> np.ndarray | None:
        """The units of the features in which the scale is I, (D,), where it is stated by numbers that allow it."""
        if self.scale is None:
            return None
        scale = finite_numbers("scale", self.scale)
        return np.sqrt(np.broadcast_to(scale, (D,))) if scale.shape in ((), (D,)) and (scale > 0.0).all() else None

    def in_units(self, structure: Structure, unit: np.ndarray, variance: np.ndarray) -> WishartPrior:
        """The prior of a structure for x / unit; `variance` is that of all rows, in the units of the data."""
        D = len(unit)
        kappa = _positive("kappa", self.kappa)
        least = structure.dimension(D) - 1.0
        nu = least + 3.0 if self.nu is None else _positive("nu", self.nu)
        if not nu > least:
            raise ValueError(
                f"The prior's nu is {self.nu!r}: it must exceed {least:g} for covariance={structure.name!r}."
            )
        if self.scale is None:
            level = max(nu - least - 2.0, 1.0)
            scale = structure.of_variances(level * np.where(variance > 0.0, variance, 1.0))
        else:
            scale = structure.checked_scale(finite_numbers("scale", self.scale), D)
        return WishartPrior(kappa, nu, structure.rescaled(scale, 1.0 / unit))


@dataclass
class RidgePrior(Parameters):
    """A ridge on the means of Gaussian classes, independent of the covariances.

    ``p(mu_k) ~ exp(-strength |mu_k|^2)``, that is N(0, I / (2 strength)). The covariances have no prior. The mode
    satisfies ``mu_k = (n_k I + 2 strength Sigma_k)^{-1} sum_n x_n``.

    Parameters
    ----------
    strength : number, default 1
        The precision of a mean is twice this number, in the units of the data.
    concentration : number, default 1
        Concentration of a Dirichlet on the class frequencies, for each class; 1 leaves them as they are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianClassifier("tied", estimate="map", prior=RidgePrior(0.1)).fit(X, y)
    >>> model.means_.round(1)
    array([[5. , 3.4, 1.5, 0.2],
           [5.9, 2.8, 4.3, 1.3],
           [6.6, 3. , 5.5, 2. ]])
    """

    strength: Any = 1.0
    concentration: Any = 1.0


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, Real) or value is True or not 0.0 < float(value) < np.inf:
        raise ValueError(f"The prior's {name} is {value!r}: it must be a positive number.")
    return float(value)


# Beliefs


class WishartPrior(NamedTuple):
    """NIW(origin, kappa, nu, Psi_0) with Psi_0 = scale + pooled W, W the scatter within classes of all rows.

    The scale has the shape of one covariance: (D, D), (D,) or one number. The pooled part draws the covariance of each
    class towards that of all of them.
    """

    kappa: float
    nu: float
    scale: np.ndarray
    pooled: float = 0.0


NO_PRIOR = WishartPrior(0.0, 0.0, np.zeros(()), 0.0)


@dataclass(frozen=True)
class Belief:
    """The normal-inverse-Wishart belief about K means and J covariances: J is K, or one where classes share it.

    Attributes
    ----------
    structure : Structure
    kappa : ndarray (K, 1), or (K, D) where values are missing
    means : ndarray (K, D)
    nu : ndarray (J, 1), or (J, D) where values are missing
    Psi : ndarray (J, D, D), (J, D) or (J, 1)
    """

    structure: Structure
    kappa: np.ndarray
    means: np.ndarray
    nu: np.ndarray
    Psi: np.ndarray


def updated(statistics: ClassStatistics, prior: WishartPrior, structure: Structure) -> Belief:
    """The belief after the rows (docs/theory.md, section 5.2)."""
    n, means = statistics.present, statistics.means
    kappa = prior.kappa + n
    share = n / np.where(kappa > 0.0, kappa, 1.0)
    S = statistics.reduced(structure.scatter).scatter
    between = SCATTERS[structure.scatter].of_means(means, prior.kappa * share)  # with weights kappa_0 n / kappa_n
    nu = prior.nu + structure.counts(n, means.shape[1])
    Psi = prior_scale(statistics, prior, structure) + structure.gathered(S + between)
    return Belief(structure, kappa, share * means, nu, Psi)


def prior_scale(statistics: ClassStatistics, prior: WishartPrior, structure: Structure) -> np.ndarray:
    """Psi_0, in the shape of one covariance."""
    if prior.pooled == 0.0:
        return prior.scale
    return prior.scale + prior.pooled * structure.within_classes(statistics)


def mode_divisor(structure: Structure, estimate: Estimate, nu: np.ndarray, K: int, D: int) -> np.ndarray:
    """The number by which Psi becomes a covariance: at the joint mode of (mu, Sigma), or with "mle" the count of rows.

    Each of the means that share a covariance adds s to the power of |Sigma|.
    """
    if estimate == "mle":
        return nu
    return nu + (structure.dimension(D) + 1 + structure.repeats(D) * (K if structure.tied else 1))


def log_density(
    q: np.ndarray, log_det: np.ndarray, kappa: np.ndarray, v: np.ndarray, d: int, *, divisor: np.ndarray | None
) -> np.ndarray:
    r"""The log density of d values of a row in a class, from q = (x - m)^T Psi^{-1} (x - m) and log |Psi|.

    With the parameters integrated out (`divisor` None) a Student t with v degrees of freedom,

    .. math:: \log\Gamma(\tfrac{v + d}{2}) - \log\Gamma(\tfrac v2) - \tfrac d2 \log\pi - \tfrac12 \log|\Psi|
              - \tfrac d2 \log\tfrac{\kappa + 1}{\kappa}
              - \tfrac{v + d}{2} \log\bigl(1 + \tfrac{\kappa}{\kappa + 1} q\bigr);

    otherwise the Gaussian with covariance Psi / divisor.
    """
    if divisor is not None:
        return 0.5 * (d * np.log(divisor / (2.0 * np.pi)) - log_det - q * divisor)
    constant = gammaln(0.5 * (v + d)) - gammaln(0.5 * v) - 0.5 * d * np.log(np.pi * (kappa + 1.0) / kappa)
    return constant - 0.5 * log_det - 0.5 * (v + d) * np.log1p(kappa / (kappa + 1.0) * q)


def log_evidence(
    statistics: ClassStatistics, prior: WishartPrior, structure: Structure, concentration: float | np.ndarray | None
) -> float:
    """The logarithm of p(X, y) with all parameters integrated out (docs/theory.md, section 5.2).

    The classes are Dirichlet-multinomial with this concentration, or, where it is an array, have these probabilities.
    """
    n, (K, D) = statistics.present, statistics.means.shape
    after, p, d = updated(statistics, prior, structure), structure.dimension(D), structure.values(D)
    log_det_0 = structure.log_dets(prior_scale(statistics, prior, structure)[None])
    log_det = structure.log_dets(after.Psi)
    gammas = _log_gammas(after.nu, p) - _log_gammas(np.array(prior.nu), p)
    total = _log_evidence_of_classes(statistics.counts, concentration)
    total -= 0.5 * np.log(np.pi) * np.broadcast_to(n, (K, d)).sum()
    total += 0.5 * np.broadcast_to(np.log(prior.kappa / after.kappa), (K, d)).sum()
    total += np.sum(np.broadcast_to(gammas, log_det.shape) + 0.5 * prior.nu * log_det_0 - 0.5 * after.nu * log_det)
    return float(total)


def _log_gammas(nu: np.ndarray, p: int) -> np.ndarray:
    """The logarithm of the gamma function of p dimensions at nu / 2, less its power of pi."""
    return gammaln(0.5 * (nu[..., None] - np.arange(p))).sum(axis=-1)


def _log_evidence_of_classes(counts: np.ndarray, concentration: float | np.ndarray | None) -> float:
    if concentration is None:
        return 0.0
    if isinstance(concentration, np.ndarray):
        seen = counts > 0.0
        with np.errstate(divide="ignore"):
            return float(counts[seen] @ np.log(concentration[seen]))
    a, K, N = concentration, len(counts), counts.sum()
    return float(gammaln(K * a) - gammaln(N + K * a) + np.sum(gammaln(counts + a) - gammaln(a)))


def inverse_cholesky(Psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses of the lower Cholesky factors of (J, D, D), and the logarithms of the determinants, (J,)."""
    inverses = np.empty_like(Psi)
    log_dets = np.empty(len(Psi))
    for j, M in enumerate(Psi):
        L, info = lapack.dpotrf(M, lower=1, clean=1)
        if info != 0:
            raise SingularError(
                "The covariance of a class has no inverse, so far as numbers of 16 digits can tell: columns are "
                "collinear, and the prior is too weak beside them. Use prior='predictive', a prior with a larger "
                "scale, or covariance='diagonal'."
            )
        inverses[j] = lapack.dtrtri(L, lower=1)[0]
        log_dets[j] = 2.0 * np.log(L.diagonal()).sum()
    return inverses, log_dets
