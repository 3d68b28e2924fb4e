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

from posteriori.models.class_statistics import ClassStatistics
from posteriori.models.gaussian import Belief, Structure, is_tied, scatter_kind, shape

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
    """The mode, as a belief with nu = 1 whose Psi are the covariances, and whether it settled."""
    n, xbar = statistics.present, statistics.means
    means = np.where(n > 0.0, xbar, centre)
    for _ in range(max_iter):
        Sigma = _covariances(statistics, structure, means)
        moved = np.where(n > 0.0, _means(n, xbar, Sigma, structure, centre, precision), centre)
        change = np.abs(moved - means).max()
        means = moved
        if change <= tol * max(1.0, np.abs(means).max()):
            break
    Sigma = _covariances(statistics, structure, means)
    settled = bool(change <= tol * max(1.0, np.abs(means).max()))
    return Belief(structure, n, means, np.ones((len(Sigma), 1)), Sigma), settled


def _covariances(statistics: ClassStatistics, structure: Structure, means: np.ndarray) -> np.ndarray:
    """(J, D, D), (J, D) or (J, 1)."""
    S = statistics.reduced(scatter_kind(structure)).scatter
    n, gap = statistics.present, statistics.means - means
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
    if shape(structure) != "full":
        return centre + n * (xbar - centre) / np.where(n > 0.0, n + Sigma * precision, 1.0)
    K, D = xbar.shape
    out = np.empty((K, D))
    for k in range(K):
        pull = (Sigma[0] if is_tied(structure) else Sigma[k]) * precision
        count = n[k, 0] if n[k, 0] > 0.0 else 1.0
        out[k] = centre + np.linalg.solve(count * np.eye(D) + pull, count * (xbar[k] - centre))
    return out
