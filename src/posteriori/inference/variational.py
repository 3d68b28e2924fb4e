r"""The Gaussian closest to the posterior: q = N(m, S) that maximises a bound on the evidence.

.. math:: B(m, S) = \mathbb{E}_q[\log p(Y \mid X, \theta)] - \mathrm{KL}(q \,\|\, p) \le \log p(Y \mid X).

Where it is stationary, S^{-1} = E_q[H_lik] + R and the averaged gradient vanishes. Each step moves the precision
towards that and the mean by a Newton step with it (natural gradients). Full steps settle in a few rounds where
Laplace's Gaussian was nearly right already; where it was far too wide they swing to and fro, and are shortened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posteriori.inference.laplace import full_posterior
from posteriori.inference.posterior import FullPosterior
from posteriori.inference.problem import PosteriorProblem
from posteriori.maths.integrals import Nodes, normal_nodes

__all__ = ["Variational", "variational"]

_SHORTEST = 0.25
"""Share of a full step in the precision; shorter ones gain nothing."""


@dataclass(frozen=True)
class Variational:
    """The best Gaussian found.

    Attributes
    ----------
    posterior : FullPosterior
    bound : float
        B, on the log evidence.
    source : FullPosterior
        Over which curvature was averaged to make the posterior's precision.
    converged : bool
    n_iter : int
        Passes with averages.
    """

    posterior: FullPosterior
    bound: float
    source: FullPosterior
    converged: bool
    n_iter: int


class _Terms(NamedTuple):
    bound: float
    slope: np.ndarray
    curvature: np.ndarray


def variational(
    problem: PosteriorProblem, theta: np.ndarray, H_lik: np.ndarray, n_nodes: int = 128, max_iter: int = 40
) -> Variational:
    """From N(theta, (H_lik + R)^{-1}) to the best Gaussian, until a step gains next to nothing.

    The averages are over fixed nodes, whose errors are a small fraction of the bound: it is not climbed further.
    """
    nodes = normal_nodes(problem.shape[0] - 1, n_nodes)
    wide = full_posterior(problem, theta, H_lik)
    R = problem.prior.matrix(wide.basis)
    log_det_R = float(np.linalg.slogdet(R)[1])
    H = _terms(problem, wide, R, log_det_R, nodes).curvature
    posterior = full_posterior(problem, theta, H)
    now = _terms(problem, posterior, R, log_det_R, nodes)
    rho, converged, n_iter = 1.0, False, 2
    while n_iter < max_iter and not converged:
        tol = 0.005 + 5e-4 * abs(now.bound)
        H_next = (1.0 - rho) * H + rho * now.curvature
        proposed = full_posterior(problem, posterior.mean, H_next)
        proposed = proposed.about(posterior.mean - proposed.solve(now.slope))
        found = _terms(problem, proposed, R, log_det_R, nodes)
        n_iter += 1
        if not found.bound >= now.bound - tol and rho > _SHORTEST:
            rho = max(_SHORTEST, 0.5 * rho)
            continue
        if not found.bound >= now.bound - tol:
            break
        converged = found.bound - now.bound < tol
        H, posterior, now = H_next, proposed, found
    # the precision that goes with the averages exactly: each row's share in it is then known
    last = full_posterior(problem, posterior.mean, now.curvature)
    return Variational(last, now.bound, posterior, converged, n_iter)


def _terms(
    problem: PosteriorProblem, posterior: FullPosterior, R: np.ndarray, log_det_R: float, nodes: Nodes
) -> _Terms:
    """B, the slope of -B in the mean and E[H_lik].

    With d coordinates, KL = 1/2 (tr(R S) - d - log|S R|) + 1/2 (m - m_0)^T R (m - m_0), the last part of it in E[J].
    """
    value, slope, curvature = problem.averaged(posterior.mean, posterior.packed_forms, posterior.basis, nodes)
    log_det_S = -2.0 * float(np.log(posterior.factor.diagonal()).sum())
    divergence = 0.5 * (float(np.vdot(R, posterior.inner)) - len(R) - log_det_S - log_det_R)
    return _Terms(-value - divergence, slope, curvature)
