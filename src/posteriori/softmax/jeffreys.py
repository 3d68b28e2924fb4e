r"""Jeffreys' prior (Firth's correction): the mode of the likelihood times the root of its information.

.. math:: \min_\theta\; E(\theta) - \tfrac12 \log|H_{\rm lik}(\theta)|,

finite under separation, with nothing to tune. Coordinates are contrasts of the classes; there is no other prior.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posteriori.exceptions import SingularError
from posteriori.softmax.collinearity import require_independent
from posteriori.softmax.coordinates import CoordinateRule
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mode import Mode, SolveSettings
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.softmax.precision import Precision
from posteriori.solvers.line_search import line_search
from posteriori.solvers.patience import FAINT, Patience
from posteriori.solvers.solution import Iterate, Solution, Status, Steps, run

__all__ = ["JeffreysPrior", "JeffreysProblem", "fisher_scoring"]


_COLLINEAR = 1e-11


class JeffreysPrior:
    """Jeffreys' prior: the root of the determinant of the information, which is improper and has no precision."""

    autoscale: ClassVar[bool] = True
    proper: ClassVar[bool] = False
    note: ClassVar[str] = "Jeffreys"

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """Standardised columns, for the sake of rounding alone."""
        return CoordinateRule(scaled=True, shift_allowed=has_intercept)

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, structure: str) -> Mode:
        """The mode by Fisher's scoring, with the Gaussian of its information; there is no evidence."""
        require_independent(likelihood, "jeffreys")
        objective = likelihood.objective(np.zeros(likelihood.shape))
        problem = JeffreysProblem(objective)
        steps = fisher_scoring(problem, np.zeros(likelihood.shape), settings.tol)
        best, status, trace = run(steps, settings.max_iter, settings.report)
        solution = Solution.ended(
            status,
            objective=best.objective,
            gradient_norm=trace[-1].gradient_norm,
            gap=float("inf") if best.gap is None else max(best.gap, 0.0),
            tol=settings.tol,
            rounding=problem.rounding(best.theta, best.objective),
            gap_bound=None,
            n_iter=len(trace) - 1,
            n_passes=objective.blocks.n_passes,
            trace=trace,
        )
        return Mode(objective, best.theta, solution, posterior=problem.posterior(best.theta))

    def isotropic(self, likelihood: LinearLikelihood) -> bool:
        """False: weights that no row determines have no distribution."""
        return False

    def strengths(self, likelihood: LinearLikelihood, precision: Precision) -> None:
        """None: it has no strength."""


class JeffreysProblem:
    """E - 1/2 log|H_lik| for a problem whose own prior is flat (docs/theory.md, section 2.6)."""

    def __init__(self, problem: SoftmaxObjective) -> None:
        self.problem = problem
        self.basis = contrasts(problem.shape[0])
        self._made: FullPosterior | None = None

    def posterior(self, theta: np.ndarray) -> FullPosterior:
        """N(theta, H_lik^{-1}); raises SingularError where the likelihood leaves a direction free."""
        if self._made is None or not np.array_equal(self._made.mean, theta):
            H = self.problem.curvature.likelihood_hessian(theta, self.basis)
            posterior = FullPosterior(theta.copy(), H, self.basis)
            # what is left of a coefficient's information once the others are known: none, but for rounding
            if (posterior.factor.diagonal() ** 2 < _COLLINEAR * H.diagonal()).any():
                raise SingularError("The information is singular: features are collinear, or rows are too few.")
            self._made = posterior
        return self._made

    def value_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        value, gradient = self.problem.value_gradient(theta)
        try:
            posterior = self.posterior(theta)
        except SingularError:
            return np.inf, gradient
        slope = self.problem.curvature.log_det_slope(theta, posterior.packed_forms)
        return value - 0.5 * posterior.log_det, gradient - 0.5 * slope

    def rounding(self, theta: np.ndarray, value: float) -> float:
        """The rounding error of the objective, whose value at theta is given."""
        return self.problem.rounding(theta) + float(np.finfo(float).eps) * abs(value)


def fisher_scoring(problem: JeffreysProblem, theta: np.ndarray, tol: float) -> Steps:
    """Steps with the information in place of the Hessian, until its decrement is within tol * |J| or is rounding."""
    value, gradient = problem.value_gradient(theta)
    if not np.isfinite(value):
        raise ValueError(
            "prior='jeffreys' needs features that are not collinear and at least as many rows as parameters: the "
            "information matrix is singular. Drop columns, or use prior='evidence'."
        )
    patience = Patience()
    while True:
        direction = -problem.posterior(theta).solve(gradient)
        gap = -0.5 * float(np.vdot(gradient, direction))
        yield Iterate(theta, value, gradient, gap)
        if gap <= max(tol * abs(value), problem.rounding(theta, value)):
            return Status.CONVERGED
        if patience.is_over(gap, value):
            return Status.CONVERGED
        largest = float(np.abs(direction).max())
        if largest > 5.0:  # far from the mode scoring overshoots
            direction *= 5.0 / largest
        found = line_search(problem.value_gradient, theta, value, gradient, direction, flat=0.5)
        if found is None:
            return Status.CONVERGED if gap <= FAINT * abs(value) else Status.ITERATION_LIMIT
        theta, value, gradient = found
