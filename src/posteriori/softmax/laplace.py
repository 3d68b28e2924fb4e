r"""Laplace's approximation: the Gaussian at the mode, and the evidence that comes with it.

.. math:: q(\theta) = N(\hat\theta, H^{-1}), \qquad
          \log p(Y \mid X) \approx -J(\hat\theta) + \tfrac12 \log|R| - \tfrac12 \log|H|,\quad H = H_{\rm lik} + R
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.solvers.line_search import line_search
from posteriori.solvers.problem import PosteriorProblem

__all__ = ["Laplace", "full_posterior", "laplace", "mode"]

_STALE = 0.1
"""Share of the decrement that a step may leave before the Hessian is made again."""


@dataclass(frozen=True)
class Laplace:
    """The posterior, the Hessian of the likelihood it was made from (J D', J D') and the log evidence."""

    posterior: FullPosterior
    likelihood_hessian: np.ndarray
    log_evidence: float


def full_posterior(problem: PosteriorProblem, theta: np.ndarray, H_lik: np.ndarray) -> FullPosterior:
    """N(theta, (H_lik + R)^{-1}), H_lik in contrasts of the classes."""
    basis = contrasts(len(theta))
    prior = problem.prior.of_contrasts(basis)
    H = H_lik + prior.precision
    return FullPosterior(theta, H, basis, prior.common, problem.curvature.factor, prior.tilt, prior.root)


def laplace(problem: PosteriorProblem, theta: np.ndarray, H_lik: np.ndarray | None = None) -> Laplace:
    """The approximation at a mode theta; the likelihood's Hessian may be known already.

    See docs/theory.md, section 3.2.
    """
    if H_lik is None:
        H_lik = problem.curvature.likelihood_hessian(theta, contrasts(len(theta)))
    posterior = full_posterior(problem, theta, H_lik)
    value, _ = problem.value_gradient(theta)
    return Laplace(posterior, H_lik, -value + 0.5 * problem.prior.log_det() - 0.5 * posterior.log_det)


def mode(
    problem: PosteriorProblem, theta: np.ndarray, H_lik: np.ndarray, tol: float, max_iter: int = 100
) -> tuple[np.ndarray, bool]:
    """The mode near theta by Newton's method with the Hessian of a problem close by, and whether it was reached.

    That Hessian is made again only when a step leaves more than a tenth of the decrement: after a change of the prior
    it is nearly right, and costs many passes. A theta that is good enough is returned as it is.
    """
    value, gradient = problem.value_gradient(theta)
    posterior = full_posterior(problem, theta, H_lik)
    gap_before = np.inf
    for _ in range(max_iter):
        direction = -posterior.solve(gradient)
        gap = -0.5 * float(np.vdot(gradient, direction))
        if gap <= tol * abs(value):
            return theta, True
        if gap > _STALE * gap_before:
            posterior = full_posterior(problem, theta, problem.curvature.likelihood_hessian(theta, posterior.basis))
            direction = -posterior.solve(gradient)
        gap_before = gap
        found = line_search(problem.value_gradient, theta, value, gradient, direction, flat=0.5)
        if found is None:  # down to rounding
            return theta, gap <= 1e-10 * abs(value)
        theta, value, gradient = found
    return theta, False
