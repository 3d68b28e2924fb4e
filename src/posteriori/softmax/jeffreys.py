r"""Jeffreys' prior (Firth's correction): the mode of the likelihood times the root of its information.

.. math:: \min_\theta\; E(\theta) - \tfrac12 \log|H_{\rm lik}(\theta)|,

finite under separation, with nothing to tune. Coordinates are contrasts of the classes; there is no other prior.
"""

from __future__ import annotations

import numpy as np

from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.solvers.line_search import line_search
from posteriori.solvers.problem import PosteriorProblem
from posteriori.solvers.solution import Iterate, Status, Steps

__all__ = ["JeffreysProblem", "fisher_scoring"]


_COLLINEAR = 1e-11


class JeffreysProblem:
    """E - 1/2 log|H_lik| for a problem whose own prior is flat."""

    def __init__(self, problem: PosteriorProblem) -> None:
        self.problem = problem
        self.basis = contrasts(problem.shape[0])
        self._last: tuple[np.ndarray, FullPosterior] | None = None

    def posterior(self, theta: np.ndarray) -> FullPosterior:
        """N(theta, H_lik^{-1}); fails where the likelihood leaves a direction free."""
        if self._last is None or self._last[0] is not theta:
            H = self.problem.curvature.likelihood_hessian(theta, self.basis)
            posterior = FullPosterior(theta, H, self.basis)
            # what is left of a coefficient's information once the others are known: none, but for rounding
            if (posterior.factor.diagonal() ** 2 < _COLLINEAR * H.diagonal()).any():
                raise np.linalg.LinAlgError("The information is singular.")
            self._last = theta, posterior
        return self._last[1]

    def value_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        value, gradient = self.problem.value_gradient(theta)
        try:
            posterior = self.posterior(theta)
        except np.linalg.LinAlgError:
            return np.inf, gradient
        slope = self.problem.curvature.log_det_slope(theta, posterior.packed_forms)
        return value - 0.5 * posterior.log_det, gradient - 0.5 * slope


def fisher_scoring(problem: JeffreysProblem, theta: np.ndarray, tol: float) -> Steps:
    """Steps with the information in place of the Hessian, until its decrement is within tol * |J|."""
    value, gradient = problem.value_gradient(theta)
    if not np.isfinite(value):
        raise ValueError(
            "prior='jeffreys' needs features that are not collinear and at least as many rows as parameters: the "
            "information matrix is singular. Drop columns, or use prior='evidence'."
        )
    while True:
        direction = -problem.posterior(theta).solve(gradient)
        gap = -0.5 * float(np.vdot(gradient, direction))
        yield Iterate(theta, value, gradient, gap)
        if gap <= tol * abs(value):
            return Status.CONVERGED
        largest = float(np.abs(direction).max())
        if largest > 5.0:  # far from the mode scoring overshoots
            direction *= 5.0 / largest
        found = line_search(problem.value_gradient, theta, value, gradient, direction, flat=0.5)
        if found is None:
            return Status.CONVERGED if gap <= 1e-10 * abs(value) else Status.ITERATION_LIMIT
        theta, value, gradient = found
