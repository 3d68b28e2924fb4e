r"""The Gaussian closest to the posterior: q = N(m, S) that maximises a bound on the evidence.

.. math:: B(m, S) = \mathbb{E}_q[\log p(Y \mid X, \theta)] - \mathrm{KL}(q \,\|\, p) \le \log p(Y \mid X).

Where it is stationary, S^{-1} = E_q[H_lik] + R and the averaged gradient vanishes. Each step goes a share rho of the
way to that in the precision, and the same share of a Newton step in the mean (natural gradients). Full steps settle in
a few rounds where Laplace's Gaussian is nearly right; where it is far too wide they oscillate: rho halves when a step
loses and grows again when one gains. Such a Gaussian is a bad start too, as rows that the mode is sure of have hardly
any curvature there: the first precision is that of averages over a Gaussian of a quarter of Laplace's variances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from posteriori.maths.integrals import Nodes, normal_nodes
from posteriori.softmax.laplace import full_posterior
from posteriori.softmax.posterior import FullPosterior
from posteriori.solvers.problem import PosteriorProblem

__all__ = ["Variational", "variational"]

_NARROW = 0.25
"""Share of Laplace's variances with which the steps begin."""
_FIRST = 0.5
"""Share of a full step in the first one."""
_SHORTEST = 0.02
"""Share of a full step; when one this short still loses, the errors of the averages are all that is left."""
_GROWTH = 1.2
"""The factor by which the share grows after a step that gained."""


@dataclass(frozen=True)
class Variational:
    """The Gaussian with the highest bound that was found.

    Attributes
    ----------
    posterior : FullPosterior
    bound : float
        B, on the log evidence.
    source : FullPosterior
        The posterior over which curvature was averaged to make the precision; the posterior itself, if a step that
        far would lower the bound.
    converged : bool
    n_iter : int
        Passes with averages, before the one that may judge the last step.
    full_step : Variational or None
        Where steps have not settled and a full one would lower the bound: what it leads to. Rows left out may still
        be better predicted by it, and each row's share in its precision is known.
    """

    posterior: FullPosterior
    bound: float
    source: FullPosterior
    converged: bool
    n_iter: int
    full_step: Variational | None = None


class _Terms(NamedTuple):
    bound: float
    slope: np.ndarray
    curvature: np.ndarray


def variational(
    problem: PosteriorProblem, theta: np.ndarray, H_lik: np.ndarray, n_nodes: int = 128, max_iter: int = 40
) -> Variational:
    """The Gaussian with the highest bound, by steps from the mode theta until one gains almost nothing.

    The averages are over fixed nodes, whose errors are a small fraction of the bound: it is not climbed further.
    """
    nodes = normal_nodes(problem.shape[0] - 1, n_nodes)
    posterior, H = _narrow_start(problem, full_posterior(problem, theta, H_lik), nodes)
    R = problem.prior.of_contrasts(posterior.basis).precision
    log_det_R = float(np.linalg.slogdet(R)[1])
    now = _terms(problem, posterior, R, log_det_R, nodes)
    rho, idle, n_iter = _FIRST, 0, 2
    while n_iter < max_iter and idle < 2 and rho > _SHORTEST:
        tol = _slack(now.bound)
        H_next = (1.0 - rho) * H + rho * now.curvature
        proposed = full_posterior(problem, posterior.mean, H_next)
        proposed = proposed.about(posterior.mean - rho * proposed.solve(now.slope))
        found = _terms(problem, proposed, R, log_det_R, nodes)
        n_iter += 1
        gain = found.bound - now.bound
        # little gained: the end, or a step that overshot by as much as it gained; a shorter one will tell
        idle = idle + 1 if abs(gain) <= rho * tol else 0
        rho = min(1.0, _GROWTH * rho) if gain > rho * tol else 0.5 * rho
        if gain >= -tol:
            H, posterior, now = H_next, proposed, found
    # the precision that goes with the averages exactly: each row's share in it is then known
    exact = full_posterior(problem, posterior.mean, now.curvature)
    end = Variational(exact, now.bound, posterior, idle == 2, n_iter)
    if idle < 2 or rho < 0.2:  # full steps have not been seen to settle: this one may lead astray
        bound = _terms(problem, exact, R, log_det_R, nodes).bound
        if not bound >= now.bound - _slack(now.bound):
            return replace(end, posterior=posterior, full_step=replace(end, bound=bound))
    return end


def _narrow_start(problem: PosteriorProblem, at_mode: FullPosterior, nodes: Nodes) -> tuple[FullPosterior, np.ndarray]:
    """A first Gaussian, and the averaged curvature (J D', J D') that made it."""
    _, slope, H = problem.curvature.averaged(at_mode.mean, _NARROW * at_mode.packed_forms, at_mode.basis, nodes)
    posterior = full_posterior(problem, at_mode.mean, H)
    return posterior.about(at_mode.mean - posterior.solve(slope)), H


def _slack(bound: float) -> float:
    """The change of the bound that errors of the averages alone may cause."""
    return 0.01 + 5e-3 * abs(bound)


def _terms(
    problem: PosteriorProblem, posterior: FullPosterior, R: np.ndarray, log_det_R: float, nodes: Nodes
) -> _Terms:
    """B, the slope of -B in the mean and E[H_lik].

    With d coordinates, KL = 1/2 (tr(R S) - d - log|S R|) + 1/2 (m - m_0)^T R (m - m_0), the last part of it in E[J].
    """
    value, slope, curvature = problem.curvature.averaged(posterior.mean, posterior.packed_forms, posterior.basis, nodes)
    log_det_S = -2.0 * float(np.log(posterior.factor.diagonal()).sum())
    divergence = 0.5 * (float(np.vdot(R, posterior.inner)) - len(R) - log_det_S - log_det_R)
    return _Terms(-value - divergence, slope, curvature)
