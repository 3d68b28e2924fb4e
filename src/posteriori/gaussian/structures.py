r"""Gaussian classes: x ~ N(mu_k, Sigma_k) in class k, and what is believed of mu_k and Sigma_k.

The belief is normal-inverse-Wishart, mu | Sigma ~ N(m, Sigma / kappa), Sigma ~ IW(nu, Psi). Rows move it by their count
n, mean and scatter S alone:

.. math:: \kappa_n = \kappa_0 + n, \quad \nu_n = \nu_0 + n, \quad m_n = \frac{\kappa_0 m_0 + n \bar x}{\kappa_n}, \quad
          \Psi_n = \Psi_0 + S + \frac{\kappa_0 n}{\kappa_n} (\bar x - m_0)(\bar x - m_0)^\top .

Here m_0 is the origin: the features are shifted to it. A tied covariance gathers the S and the mean terms of all
classes; a diagonal one is the same in one dimension, feature by feature; a spherical one, sigma^2 I, has
nu_n = nu_0 + n D and the traces of Psi. Maximum likelihood is the belief with kappa_0 = nu_0 = Psi_0 = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.special import gammaln, multigammaln

from posteriori.gaussian.statistics import ClassStatistics, Kind

__all__ = [
    "NO_PRIOR",
    "STRUCTURES",
    "Belief",
    "Estimate",
    "Structure",
    "WishartPrior",
    "cholesky",
    "divisor",
    "is_tied",
    "log_density",
    "log_evidence",
    "n_parameters",
    "prior_scale",
    "scatter_kind",
    "shape",
    "updated",
]

Structure = Literal["full", "tied", "diagonal", "tied_diagonal", "spherical"]
Estimate = Literal["mle", "map", "bayes"]
Shape = Literal["full", "diagonal", "spherical"]

STRUCTURES: tuple[Structure, ...] = ("full", "tied", "diagonal", "tied_diagonal", "spherical")
_SHAPES: dict[Structure, Shape] = {
    "full": "full",
    "tied": "full",
    "diagonal": "diagonal",
    "tied_diagonal": "diagonal",
    "spherical": "spherical",
}


def shape(structure: Structure) -> Shape:
    """Of each covariance: a matrix, variances, or one variance."""
    return _SHAPES[structure]


def is_tied(structure: Structure) -> bool:
    """Whether all classes share one covariance."""
    return structure in ("tied", "tied_diagonal")


def scatter_kind(structure: str) -> Kind:
    """The least that must be known of the scatter."""
    return "full" if structure == "full" else "pooled" if structure == "tied" else "diagonal"


def n_parameters(structure: Structure, K: int, D: int) -> int:
    """Of the covariances of K classes."""
    return {
        "full": K * D * (D + 1) // 2,
        "tied": D * (D + 1) // 2,
        "diagonal": K * D,
        "tied_diagonal": D,
        "spherical": K,
    }[structure]


class WishartPrior(NamedTuple):
    """NIW(origin, kappa, nu, Psi_0) with Psi_0 = scale + pooled W, W the scatter within classes of all rows.

    The scale has the shape of the covariance: (D, D), (D,) or one number. The pooled part draws the covariance of each
    class towards that of all of them.
    """

    kappa: float
    nu: float
    scale: np.ndarray
    pooled: float = 0.0


NO_PRIOR = WishartPrior(0.0, 0.0, np.zeros(()), 0.0)


@dataclass(frozen=True)
class Belief:
    """What is believed of K means and, for J = K or one covariance, of these.

    Attributes
    ----------
    structure : str
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
    """The belief after the rows."""
    n, means = statistics.present, statistics.means
    D = means.shape[1]
    kappa = prior.kappa + n
    share = n / np.where(kappa > 0.0, kappa, 1.0)
    spread = prior.kappa * share  # kappa_0 n / kappa_n
    nu = prior.nu + (n.sum(axis=0, keepdims=True) if is_tied(structure) else n)
    Psi_0 = prior_scale(statistics, prior, structure)
    if shape(structure) == "full":
        between = spread[:, :, None] * means[:, :, None] * means[:, None, :]
    else:
        between = spread * means**2
    S = statistics.reduced(scatter_kind(structure)).scatter
    if structure == "tied":
        Psi = (Psi_0 + S + between.sum(axis=0))[None]
    elif structure == "tied_diagonal":
        Psi = (Psi_0 + S.sum(axis=0) + between.sum(axis=0))[None]
    elif structure == "spherical":
        nu = prior.nu + n * D
        Psi = Psi_0 + (S + between).sum(axis=1, keepdims=True)
    else:
        Psi = Psi_0 + S + between
    return Belief(structure, kappa, share * means, nu, Psi)


def prior_scale(statistics: ClassStatistics, prior: WishartPrior, structure: Structure) -> np.ndarray:
    """Psi_0, in the shape of one covariance."""
    if prior.pooled == 0.0:
        return prior.scale
    if shape(structure) == "full":
        W = statistics.reduced("pooled").scatter
        return prior.scale + prior.pooled * W
    within = statistics.within().sum(axis=0)
    return prior.scale + prior.pooled * (within.sum() if structure == "spherical" else within)


def divisor(structure: Structure, estimate: Estimate, nu: np.ndarray, D: int, K: int) -> np.ndarray:
    """By which Psi becomes a covariance: the joint mode of (mu, Sigma), or with `mle` the number of rows."""
    if estimate == "mle":
        return nu
    extra = {"full": D + 2, "tied": D + 1 + K, "diagonal": 3, "tied_diagonal": 2 + K, "spherical": D + 2}[structure]
    return nu + extra


def log_density(
    q: np.ndarray,
    log_det: np.ndarray,
    kappa: np.ndarray,
    nu: np.ndarray,
    D: int,
    *,
    div: np.ndarray | None,
    spherical: bool = False,
) -> np.ndarray:
    r"""The log density of x in a class, from q = (x - m)^T Psi^{-1} (x - m) and log |Psi|.

    With the parameters integrated out (`div` None) a Student t with v = nu - D + 1 degrees of freedom (spherical: nu),

    .. math:: \log\Gamma(\tfrac{v + D}{2}) - \log\Gamma(\tfrac v2) - \tfrac D2 \log\pi - \tfrac12 \log|\Psi|
              - \tfrac D2 \log\tfrac{\kappa + 1}{\kappa}
              - \tfrac{v + D}{2} \log\bigl(1 + \tfrac{\kappa}{\kappa + 1} q\bigr);

    otherwise the Gaussian with covariance Psi / div.
    """
    if div is not None:
        return 0.5 * (D * np.log(div / (2.0 * np.pi)) - log_det - q * div)
    v = nu if spherical else nu - D + 1.0
    constant = gammaln(0.5 * (v + D)) - gammaln(0.5 * v) - 0.5 * D * np.log(np.pi * (kappa + 1.0) / kappa)
    return constant - 0.5 * log_det - 0.5 * (v + D) * np.log1p(kappa / (kappa + 1.0) * q)


def log_evidence(
    statistics: ClassStatistics, prior: WishartPrior, structure: Structure, concentration: float | np.ndarray | None
) -> float:
    """The logarithm of p(X, y) with all parameters integrated out.

    The classes are Dirichlet-multinomial with this concentration, or, where it is an array, have these probabilities.
    """
    n, D = statistics.present, statistics.means.shape[1]
    K = len(n)
    after = updated(statistics, prior, structure)
    total = _log_evidence_of_classes(statistics.counts, concentration)
    Psi_0 = prior_scale(statistics, prior, structure)
    values = float(np.broadcast_to(n, (K, D)).sum())
    total += 0.5 * float((np.broadcast_to(np.log(prior.kappa / after.kappa), (K, D))).sum())
    total -= 0.5 * values * np.log(np.pi)
    if shape(structure) == "full":
        log_det_0 = cholesky(Psi_0[None])[1][0]
        log_det = cholesky(after.Psi)[1]
        nu = after.nu[:, 0]
        total += float(
            np.sum(multigammaln(0.5 * nu, D) - multigammaln(0.5 * prior.nu, D))
            + np.sum(0.5 * prior.nu * log_det_0 - 0.5 * nu * log_det)
        )
        return float(total)
    gammas = np.broadcast_to(gammaln(0.5 * after.nu) - gammaln(0.5 * prior.nu), after.Psi.shape)
    scales = 0.5 * prior.nu * np.log(Psi_0) - 0.5 * after.nu * np.log(after.Psi)
    return float(total + np.sum(gammas + scales))


def _log_evidence_of_classes(counts: np.ndarray, concentration: float | np.ndarray | None) -> float:
    if concentration is None:
        return 0.0
    if isinstance(concentration, np.ndarray):
        seen = counts > 0.0
        with np.errstate(divide="ignore"):
            return float(counts[seen] @ np.log(concentration[seen]))
    a, K, N = concentration, len(counts), counts.sum()
    return float(gammaln(K * a) - gammaln(N + K * a) + np.sum(gammaln(counts + a) - gammaln(a)))


def cholesky(Psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses of the lower Cholesky factors of (J, D, D), and the logarithms of the determinants, (J,)."""
    whiteners = np.empty_like(Psi)
    log_dets = np.empty(len(Psi))
    for j, M in enumerate(Psi):
        L, info = lapack.dpotrf(M, lower=1, clean=1)
        if info != 0:
            raise np.linalg.LinAlgError("A covariance is not positive definite.")
        whiteners[j] = lapack.dtrtri(L, lower=1)[0]
        log_dets[j] = 2.0 * np.log(L.diagonal()).sum()
    return whiteners, log_dets
