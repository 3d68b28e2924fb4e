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

from posteriori.gaussian.statistics import ClassStatistics
from posteriori.gaussian.structures import Belief, Structure, is_tied, scatter_kind, shape

__all__ = ["ridge_means"]


def ridge_means(
    statistics: ClassStatistics,
    structure: Structure,
    centre: np.ndarray,
    precision: np.ndarray,
    *,
    tol: float = 1e-13,
    max_iter: int = 10_000,
) -> tuple[Belief, bool]:
    """The mode, as a belief with nu = 1 whose Psi are the covariances, and whether it settled.

    There can be two modes, near the rows and near the prior's centre: the higher of those found from either is taken.
    """
    n, xbar = statistics.present, statistics.means
    seen = n > 0.0
    found = []
    for start in (xbar, centre):
        means = np.where(seen, start, centre)
        for _ in range(max_iter):
            Sigma = _covariances(statistics, structure, means)
            moved = np.where(seen, _means(n, xbar, Sigma, structure, centre, precision), centre)
            change = np.abs(moved - means).max()
            means = moved
            if change <= tol * max(1.0, np.abs(means).max()):
                break
        Sigma = _covariances(statistics, structure, means)
        settled = bool(change <= tol * max(1.0, np.abs(means).max()))
        found.append((_log_posterior(statistics, structure, means, Sigma, centre, precision), means, Sigma, settled))
    _, means, Sigma, settled = max(found, key=lambda mode: mode[0])  # the first, where neither is higher
    nu = np.ones((len(Sigma), 1)) if is_tied(structure) else np.where(seen, 1.0, 0.0)
    return Belief(structure, n, means, nu, Sigma), settled


def _log_posterior(
    statistics: ClassStatistics,
    structure: Structure,
    means: np.ndarray,
    Sigma: np.ndarray,
    centre: np.ndarray,
    precision: np.ndarray,
) -> float:
    """Up to a constant, at the covariances that go with the means; infinite where one of these is singular."""
    n = statistics.present
    count = n.sum(axis=0, keepdims=True) if is_tied(structure) else n
    if shape(structure) == "full":
        log_dets = np.linalg.slogdet(Sigma)[1][:, None]
    else:
        with np.errstate(divide="ignore"):
            log_dets = np.log(Sigma) * (means.shape[1] if structure == "spherical" else 1)
    with np.errstate(invalid="ignore"):
        value = -0.5 * np.where(count > 0.0, count * log_dets, 0.0).sum()
    return float(value - 0.5 * (np.where(n > 0.0, means - centre, 0.0) ** 2 * precision).sum())


def _covariances(statistics: ClassStatistics, structure: Structure, means: np.ndarray) -> np.ndarray:
    """(J, D, D), (J, D) or (J, 1)."""
    S = statistics.reduced(scatter_kind(structure)).scatter
    n = statistics.present
    gap = np.where(n > 0.0, statistics.means - means, 0.0)
    count = np.where(n > 0.0, n, 1.0)
    if structure == "tied":
        return ((S + (n * gap).T @ gap) / n.sum())[None]
    if structure == "full":
        return S / count[:, :, None] + gap[:, :, None] * gap[:, None, :]
    if structure == "tied_diagonal":
        total = np.broadcast_to(n, gap.shape).sum(axis=0)
        return ((S + n * gap**2).sum(axis=0) / np.where(total > 0.0, total, 1.0))[None]
    variances = S / count + gap**2
    return variances.mean(axis=1, keepdims=True) if structure == "spherical" else variances


def _means(
    n: np.ndarray, xbar: np.ndarray, Sigma: np.ndarray, structure: Structure, centre: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    # as a pull away from xbar: a column without spread then stays where it is, to the last digit
    if shape(structure) != "full":
        pull = Sigma * precision
        return xbar - pull * (xbar - centre) / np.where(n > 0.0, n + pull, 1.0)
    K, D = xbar.shape
    out = np.empty((K, D))
    for k in range(K):
        pull = (Sigma[0] if is_tied(structure) else Sigma[k]) * precision
        count = n[k, 0] if n[k, 0] > 0.0 else 1.0
        out[k] = xbar[k] - np.linalg.solve(count * np.eye(D) + pull, pull @ (xbar[k] - centre))
    return out
