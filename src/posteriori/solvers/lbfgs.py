"""Limited-memory BFGS that starts from a preconditioner instead of a multiple of the identity."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count

import numpy as np

from posteriori.solvers.line_search import line_search
from posteriori.solvers.newton import newton_decrement
from posteriori.solvers.precondition import Precondition, Preconditioner
from posteriori.solvers.problem import CurvedProblem
from posteriori.solvers.solution import Iterate, Status, Steps
from posteriori.solvers.solver import Solver

__all__ = ["LBFGS"]

Pair = tuple[np.ndarray, np.ndarray, float]
"""A step s, the change y of the gradient along it, and 1 / s^T y."""

_TINY = np.finfo(float).tiny
_VALUES_KEPT = 2_000_000
"""Beyond this many numbers, going through the memory costs more than a pass that it might save."""
_FAR = 1e-4
"""Relative gap above which a new preconditioner still pays."""


@dataclass
class LBFGS(Solver):
    """Limited-memory BFGS in the metric of the Kronecker approximation to the Hessian.

    Parameters
    ----------
    memory : int
        Pairs of steps and gradient differences kept.
    tol, max_iter : float, int or None
        None inherits the estimator's.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> SoftmaxRegression(solver=LBFGS(memory=5)).fit(X, y).solution_.status.name
    'CONVERGED'
    """

    memory: int = 20
    tol: float | None = None
    max_iter: int | None = None

    def validate(self) -> None:
        """Raise unless the parameters make sense."""
        super().validate()
        self.require(self.memory >= 1, "memory", "at least 1")

    def steps(
        self, problem: CurvedProblem, theta: np.ndarray, tol: float, precondition: Precondition | None = None
    ) -> Steps:
        """Iterate from theta until the Newton decrement is within ``tol * |J|``.

        The decrement is worked out only when L-BFGS's own estimate, which is often too low, suggests it. While that
        says that the optimum is still far, the preconditioner is made again after 8, 16, 32, ... iterations.
        """
        value, gradient = problem.value_gradient(theta)
        if not np.isfinite(value):
            yield Iterate(theta, value, gradient)
        metric = _Metric(precondition or Precondition(problem), theta, self.memory)
        target = tol
        for i in count(1):
            direction = -metric.inverse_hessian(gradient)
            gap = -0.5 * float(np.vdot(gradient, direction))
            yield Iterate(theta, value, gradient, rough=gap)
            if gap <= target * abs(value):
                gap = newton_decrement(problem, theta, gradient)
                yield Iterate(theta, value, gradient, gap)
                if gap <= tol * abs(value):
                    return Status.CONVERGED
                target *= 0.1
            found = line_search(problem.value_gradient, theta, value, gradient, direction)
            if found is None:
                if not metric.fall_back():
                    return Status.ITERATION_LIMIT
                continue
            metric.remember(found[0] - theta, found[2] - gradient)
            theta, value, gradient = found
            metric.renew(i, theta, far=gap > _FAR * abs(value))
        raise AssertionError("unreachable")


class _Metric:
    """The approximation of the inverse Hessian: a preconditioner, and the pairs of steps since it was made."""

    def __init__(self, precondition: Precondition, theta: np.ndarray, memory: int) -> None:
        self.precondition = precondition
        self.apply = precondition.at(theta)
        self.pairs: deque[Pair] = deque(maxlen=min(memory, max(5, _VALUES_KEPT // theta.size)))
        self.renewal = 8
        self.safe = False

    def inverse_hessian(self, gradient: np.ndarray) -> np.ndarray:
        """The approximate H^{-1} g."""
        return _two_loop(self.pairs, self.apply, gradient)

    def remember(self, step: np.ndarray, change: np.ndarray) -> None:
        """Add a step and the change of the gradient along it, if they show positive curvature."""
        curvature = float(np.vdot(step, change))
        if curvature >= _TINY:  # one over less is infinite
            self.pairs.append((step, change, 1.0 / curvature))

    def fall_back(self) -> bool:
        """Trust less of what is known after a step failed; False if nothing is left to give up."""
        if self.pairs:
            self.pairs.clear()  # the memory misled: start again from the preconditioner
        elif not self.safe:
            self.apply, self.safe = self.precondition.safe(), True  # so far out that the curvature says nothing
        else:
            return False
        return True

    def renew(self, n_iter: int, theta: np.ndarray, far: bool) -> None:
        """Make the preconditioner again after 8, 16, 32, ... iterations, while the optimum is still far."""
        if n_iter < self.renewal:
            return
        self.renewal *= 2
        if far and self.precondition.worth_renewing(n_iter):
            self.apply, self.safe = self.precondition.renew(theta), False
            self.pairs.clear()


def _two_loop(pairs: deque[Pair], precondition: Preconditioner, gradient: np.ndarray) -> np.ndarray:
    """The inverse Hessian of the pairs, with the preconditioner at its core, times the gradient."""
    q = gradient.copy()
    weights = []
    for step, change, rho in reversed(pairs):
        weight = rho * float(np.vdot(step, q))
        q -= weight * change
        weights.append(weight)
    q = precondition(q)
    if pairs:
        # where the preconditioner promised too long a step, the last pair knows better
        step, change, _ = pairs[-1]
        q *= min(1.0, float(np.vdot(step, change)) / max(float(np.vdot(change, precondition(change))), _TINY))
    for (step, change, rho), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - rho * float(np.vdot(change, q))) * step
    return q
