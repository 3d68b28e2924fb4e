r"""Class means under the prior exp(-lambda |mu|^2), with the covariances of maximum likelihood.

The prior is independent of the covariances, so that neither has a closed form without the other. They are sought in
turn, here for a prior N(p, Q^{-1}) with diagonal Q (p = 0 and Q = 2 lambda in the units of the data):

.. math:: \mu_k = p + n_k (n_k I + \Sigma_k Q)^{-1} (\bar x_k - p), \qquad
          \Sigma_k = \frac{S_k}{n_k} + (\bar x_k - \mu_k)(\bar x_k - \mu_k)^\top .

Each step raises the posterior density. A tied covariance averages the classes by their counts, a spherical one the
features.
"""

from __future__ import annotations

import numpy as np

from posteriori.gaussian.niw import Belief
from posteriori.gaussian.statistics import SCATTERS, TOO_LARGE, ClassStatistics
from posteriori.gaussian.structure import Structure

__all__ = ["ridge_mode"]

_MOST_FLOPS, _FEWEST_STEPS = 2e10, 50
"""Operations that the steps from one start may cost, and the steps that are taken in any case."""


def ridge_mode(
    statistics: ClassStatistics,
    structure: Structure,
    centre: np.ndarray,
    precision: np.ndarray,
    *,
    tol: float = 1e-13,
    max_iter: int = 10_000,
) -> tuple[Belief, bool]:
    """The mode, as a belief with nu = 1 whose Psi are the covariances, and whether it settled.

    See docs/theory.md, section 5.3.

    There can be two modes, near the rows and near the prior's centre: the higher of those found from either is taken.
    """
    n, xbar = statistics.present, statistics.means
    seen = n > 0.0
    step_flops = float(_covariances(statistics, structure, xbar).size) * xbar.shape[1]
    max_iter = min(max_iter, max(int(_MOST_FLOPS / step_flops), _FEWEST_STEPS))
    found = []
    for start in (xbar, centre):
        means = np.where(seen, start, centre)
        with np.errstate(over="ignore", invalid="ignore"):  # a start too far away for its squares
            for _ in range(max_iter):
                Sigma = _covariances(statistics, structure, means)
                if not np.isfinite(Sigma).all():
                    break
                moved = np.where(seen, structure.ridge_means(n, xbar, Sigma, centre, precision), centre)
                change = np.abs(moved - means).max()
                means = moved
                if change <= tol * max(1.0, np.abs(means).max()):
                    break
            Sigma = _covariances(statistics, structure, means)
        if np.isfinite(Sigma).all():
            settled = bool(change <= tol * max(1.0, np.abs(means).max()))
            density = _log_posterior(statistics, structure, means, Sigma, centre, precision)
            found.append((density, means, Sigma, settled))
    if not found:
        raise ValueError(TOO_LARGE)
    _, means, Sigma, settled = max(found, key=lambda mode: mode[0])  # the first, where neither is higher
    nu = np.where(structure.counts(n, len(centre)) > 0.0, 1.0, 0.0)
    return Belief(structure, n, means, nu, Sigma), settled


def _log_posterior(
    statistics: ClassStatistics,
    structure: Structure,
    means: np.ndarray,
    Sigma: np.ndarray,
    centre: np.ndarray,
    precision: np.ndarray,
) -> float:
    """The log density up to a constant, given the covariances of the means; infinite where one of these is singular."""
    n = statistics.present
    counts = structure.counts(n, means.shape[1])
    with np.errstate(invalid="ignore"):
        value = -0.5 * np.where(counts > 0.0, counts * structure.log_dets(Sigma), 0.0).sum()
    return float(value - 0.5 * (np.where(n > 0.0, means - centre, 0.0) ** 2 * precision).sum())


def _covariances(statistics: ClassStatistics, structure: Structure, means: np.ndarray) -> np.ndarray:
    """Mean squares about the means, (J, D, D), (J, D) or (J, 1)."""
    n = statistics.present
    gap = np.where(n > 0.0, statistics.means - means, 0.0)
    counts = structure.counts(n, means.shape[1])
    S = statistics.reduced(structure.scatter).scatter
    squares = structure.gathered(S + SCATTERS[structure.scatter].of_means(gap, n))
    return structure.divided(squares, np.where(counts > 0.0, counts, 1.0))
