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
from typing import Any, NamedTuple, Protocol

import numpy as np

from posteriori.maths.integrals import normal_nodes
from posteriori.softmax.laplace import full_posterior
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.solvers.problem import PosteriorProblem

__all__ = ["Averages", "Family", "FullFamily", "Variational", "climb", "variational"]

_NARROW = 0.25
"""Share of Laplace's variances with which the steps begin."""
_FIRST = 0.5
"""Share of a full step in the first one."""
_SHORTEST = 0.02
"""Share of a full step; when one this short still loses, the errors of the averages are all that is left."""
_GROWTH = 1.2
"""The factor by which the share grows after a step that gained."""
_NEAR = 5e-3
"""Nats a row that a full step may still change the bound by where steps have become too short to gain."""


class Averages(NamedTuple):
    """E[J] over a Gaussian (the prior's part of J is that of its mean), its slope in the mean, and E[H_lik]."""

    value: float
    slope: np.ndarray
    curvature: np.ndarray


class Family(Protocol):
    """Gaussians of one structure, for one problem: what the steps ask of it.

    Curvature is that of the likelihood, in the form in which the structure keeps it.
    """

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""

    def gaussian(self, mean: np.ndarray, curvature: np.ndarray) -> Any:
        """N(mean, (curvature + R)^{-1})."""

    def moved(self, posterior: Any, slope: np.ndarray, share: float) -> Any:
        """The posterior after a share of the Newton step in its mean, S times the slope."""

    def averages(self, posterior: Any, share: float = 1.0) -> Averages:
        """Averages over a member with that share of its variances."""

    def divergence(self, posterior: Any) -> float:
        """1/2 (tr(R S) - d - log|S R|): the divergence from a prior with the same mean."""


@dataclass(frozen=True)
class Variational:
    """The Gaussian with the highest bound that was found.

    Attributes
    ----------
    posterior : Posterior
    bound : float
        B, on the log evidence.
    source : Posterior
        The posterior over which curvature was averaged to make the precision; the posterior itself, if a step that
        far would lower the bound.
    curvature : ndarray
        E[H_lik] over the source.
    converged : bool
        Whether steps have settled, or ended where a full one would change the bound by thousandths of a nat a row.
    n_iter : int
        Passes with averages, before the one that may judge the last step.
    full_step : Variational or None
        Where steps have not settled and a full one would lower the bound: what it leads to. Rows left out may still
        be better predicted by it, and each row's share in its precision is known.
    """

    posterior: Any
    bound: float
    source: Any
    curvature: np.ndarray
    converged: bool
    n_iter: int
    full_step: Variational | None = None


def variational(
    problem: PosteriorProblem,
    theta: np.ndarray,
    H_lik: np.ndarray,
    n_nodes: int = 128,
    max_iter: int = 120,
    near: Variational | None = None,
) -> Variational:
    """The Gaussian of all with the highest bound, from the mode theta and the likelihood's Hessian there.

    See docs/theory.md, section 3.4.

    Where that of a problem with another prior is known, it is the start.
    """
    return climb(FullFamily(problem, n_nodes), theta, H_lik, max_iter, near)


def climb(
    family: Family, theta: np.ndarray, curvature: np.ndarray, max_iter: int = 120, near: Variational | None = None
) -> Variational:
    """The member of a family with the highest bound, by steps from the mode until one gains almost nothing.

    The averages are over fixed nodes, whose errors are a small fraction of the bound: it is not climbed further.
    """
    if near is None:
        start = family.averages(family.gaussian(theta, curvature), _NARROW)
        made_of = start.curvature
        posterior = family.moved(family.gaussian(theta, made_of), start.slope, 1.0)
    else:
        made_of, posterior = near.curvature, family.gaussian(near.posterior.mean, near.curvature)
    now = family.averages(posterior)
    bound = _bound(family, posterior, now)
    rho, idle, n_iter, rate = _FIRST, 0, 2, np.inf
    while n_iter < max_iter and idle < 2 and rho > _SHORTEST:
        tol = _slack(bound)
        proposed_of = (1.0 - rho) * made_of + rho * now.curvature
        proposed = family.moved(family.gaussian(posterior.mean, proposed_of), now.slope, rho)
        found = family.averages(proposed)
        n_iter += 1
        gain = _bound(family, proposed, found) - bound
        rate = abs(gain) / rho
        # little gained: the end, or a step that overshot by as much as it gained; a shorter one will tell
        idle = idle + 1 if rate <= tol else 0
        rho = min(1.0, _GROWTH * rho) if gain > rho * tol else 0.5 * rho
        if gain >= -tol:
            made_of, posterior, now, bound = proposed_of, proposed, found, bound + gain
    # the precision that goes with the averages exactly: each row's share in it is then known
    exact = family.gaussian(posterior.mean, now.curvature)
    converged = idle == 2 or rate <= _NEAR * family.total_weight
    end = Variational(exact, bound, posterior, now.curvature, converged, n_iter)
    if idle < 2 or rho < 0.2:  # full steps have not been seen to settle: this one may lead astray
        after = _bound(family, exact, family.averages(exact))
        if not after >= bound - _slack(bound):
            return replace(end, posterior=posterior, full_step=replace(end, bound=after))
    return end


def _slack(bound: float) -> float:
    """The change of the bound that errors of the averages alone may cause."""
    return 0.01 + 5e-3 * abs(bound)


def _bound(family: Family, posterior: Any, averages: Averages) -> float:
    """B: minus E[J] and the divergence."""
    return -averages.value - family.divergence(posterior)


class FullFamily:
    """Gaussians with every covariance, for contrasts of the classes.

    Parameters
    ----------
    problem : PosteriorProblem
    n_nodes : int
        Nodes in the space of a row's logits.
    """

    def __init__(self, problem: PosteriorProblem, n_nodes: int) -> None:
        self.problem, self.basis = problem, contrasts(problem.shape[0])
        self.total_weight = problem.row_moments.total_weight
        self.nodes = normal_nodes(self.basis.shape[1], n_nodes)
        self.R = problem.prior.of_contrasts(self.basis).precision
        self.log_det_R = float(np.linalg.slogdet(self.R)[1])

    def gaussian(self, mean: np.ndarray, curvature: np.ndarray) -> FullPosterior:
        """N(mean, (H_lik + R)^{-1}), H_lik (J D', J D')."""
        return full_posterior(self.problem, mean, curvature)

    def moved(self, posterior: FullPosterior, slope: np.ndarray, share: float) -> FullPosterior:
        """About m - share S slope."""
        return posterior.about(posterior.mean - share * posterior.solve(slope))

    def averages(self, posterior: FullPosterior, share: float = 1.0) -> Averages:
        """Averages over N(m, share S)."""
        forms = posterior.packed_forms if share == 1.0 else share * posterior.packed_forms
        return Averages(*self.problem.curvature.averaged(posterior.mean, forms, self.basis, self.nodes))

    def divergence(self, posterior: FullPosterior) -> float:
        """1/2 (tr(R S) - d - log|S R|)."""
        log_det_S = -2.0 * float(np.log(posterior.factor.diagonal()).sum())
        return 0.5 * (float(np.vdot(self.R, posterior.inner)) - len(self.R) - log_det_S - self.log_det_R)
