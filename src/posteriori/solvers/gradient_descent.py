"""Gradient descent, as in the textbook: one step against the gradient at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from posteriori.solvers.line_search import line_search
from posteriori.solvers.newton import newton_decrement
from posteriori.solvers.problem import CurvedProblem
from posteriori.solvers.solution import Iterate, Status, Steps
from posteriori.solvers.solver import Solver

__all__ = ["GradientDescent"]


@dataclass
class GradientDescent(Solver):
    """Gradient descent: theta <- theta - eta_t dJ/dtheta.

    It is here to be understood and compared with: on raw data it needs thousands of steps where Newton needs ten.

    Parameters
    ----------
    step : float or None
        The first step eta; None is 1 / L with L the largest curvature J can have anywhere (Boehning's bound).
    schedule : "backtracking", "fixed" or "decreasing"
        With "backtracking" twice the last step is tried, and shortened until J falls; "fixed" is eta_t = step,
        "decreasing" eta_t = step / (1 + decay t).
    decay : float
        How fast the step of the decreasing schedule falls.
    tol, max_iter : float, int or None
        None inherits the estimator's.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SoftmaxRegression(solver=GradientDescent(), tol=1e-3).fit(scale(X), y)
    >>> model.solution_.status.name, model.n_iter_ > 20
    ('CONVERGED', True)
    """

    step: float | None = None
    schedule: str = "backtracking"
    decay: float = 0.01
    tol: float | None = None
    max_iter: int | None = None

    def validate(self) -> None:
        """Raise unless the parameters make sense."""
        super().validate()
        known = ("backtracking", "fixed", "decreasing")
        self.require(self.schedule in known, "schedule", f"one of {known}")
        self.require(self.step is None or self.step > 0, "step", "positive, or None for 1 / L")
        self.require(self.decay >= 0, "decay", "not negative")

    def steps(self, problem: CurvedProblem, theta: np.ndarray, tol: float) -> Steps:
        """Iterate from theta until the Newton decrement, computed less and less often, is within ``tol * |J|``."""
        eta = self.step or 1.0 / largest_curvature(problem)
        value, gradient = problem.value_gradient(theta)
        start, next_look = value, 0
        for t in count():
            gap = None
            if t == next_look:
                gap = newton_decrement(problem, theta, gradient)
                next_look = t + max(5, t // 5)
            yield Iterate(theta, value, gradient, gap)
            if gap is not None and gap <= tol * abs(value):
                break
            if value > start + abs(start):
                return Status.DIVERGED
            if self.schedule == "backtracking":
                found = line_search(problem.value_gradient, theta, value, gradient, -2.0 * eta * gradient)
                if found is None:
                    gap = newton_decrement(problem, theta, gradient)
                    yield Iterate(theta, value, gradient, gap)
                    return Status.CONVERGED if gap <= tol * abs(value) else Status.ITERATION_LIMIT
                eta = float(np.abs(found[0] - theta).max() / np.abs(gradient).max())
                theta, value, gradient = found
            else:
                eta_t = eta if self.schedule == "fixed" else eta / (1.0 + self.decay * t)
                theta = theta - eta_t * gradient
                value, gradient = problem.value_gradient(theta)
        return Status.CONVERGED


def largest_curvature(problem: CurvedProblem) -> float:
    """A bound on the largest eigenvalue of H anywhere, by Boehning's H <= 1/2 (I - 11^T/K) kron X^T C X + a.

    At theta = 0 the likelihood's Hessian is 1/K (I - 11^T/K) kron X^T C X, so its largest eigenvalue, found by the
    power method, gives the bound when multiplied by K/2.
    """
    K, _ = problem.shape
    zero = np.zeros(problem.shape)
    V = np.random.default_rng(0).standard_normal(problem.shape)
    largest = 0.0
    for _ in range(20):
        V /= np.linalg.norm(V)
        V = problem.product(zero, V) - problem.prior.times(V)
        largest = float(np.linalg.norm(V))
        if largest == 0:
            break
    return 1.02 * 0.5 * K * largest + problem.prior.largest or 1.0
