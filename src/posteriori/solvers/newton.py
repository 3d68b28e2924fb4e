"""Newton's method (iteratively reweighted least squares), exact or matrix-free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.maths.linalg import factored_spd
from posteriori.solvers.conjugate_gradient import NewtonStep, conjugate_gradient
from posteriori.solvers.line_search import line_search
from posteriori.solvers.precondition import Precondition
from posteriori.solvers.problem import CurvedProblem
from posteriori.solvers.solution import Iterate, Status, Steps
from posteriori.solvers.solver import Solver

__all__ = ["Newton", "ends_with_a_full_step", "forms_hessian", "newton_decrement", "newton_direction", "newton_step"]

EXACT_PARAMETERS = 100
"""Up to this many parameters "auto" forms the Hessian: it costs less than the products it saves."""
EXACT_FLOPS = 2e7
_THOROUGH = 1e7
"""Parameters times rows up to which a last step is taken, and solved for to many digits: it costs little."""
_ROUNDING = 1e-15
"""Share of J below which a decrement says nothing."""
_LAST_STEPS = 4
"""Steps still taken once separation is proven, so that the parameters returned do separate the classes."""


@dataclass
class Newton(Solver):
    """Newton's method with a line search.

    Parameters
    ----------
    exact : bool or None
        Form and factor the Hessian (True), or solve for each step by preconditioned conjugate gradients from
        products with it (False); None forms it for up to 100 parameters.
    max_products : int
        Most Hessian products for one step.
    tol, max_iter : float, int or None
        None inherits the estimator's.
    """

    exact: bool | None = None
    max_products: int = 500
    tol: float | None = None
    max_iter: int | None = None

    def validate(self) -> None:
        """Raise unless the parameters make sense."""
        super().validate()
        self.require(self.max_products >= 1, "max_products", "at least 1")

    def steps(
        self,
        problem: CurvedProblem,
        theta: np.ndarray,
        tol: float,
        precondition: Precondition | None = None,
    ) -> Steps:
        """Iterate from theta until the decrement is within tol * |J|; where that is cheap, end with a full step."""
        exact = forms_hessian(problem) if self.exact is None else self.exact
        precondition = precondition or Precondition(problem)
        value, gradient = problem.value_gradient(theta)
        if not np.isfinite(value):
            yield Iterate(theta, value, gradient)
        thorough = exact or ends_with_a_full_step(problem)
        rtol, last, separated = 0.3, np.inf, 0
        while True:
            if exact:
                step = newton_step(problem, theta, gradient)
            else:
                step = self._solve(problem, theta, gradient, precondition, rtol, value, 0.05 * tol)
            if step.flat:  # so far out that the curvature says nothing
                step = NewtonStep(-(d := precondition.safe()(gradient)), 0.5 * float(np.vdot(gradient, d)), 1)
            gap = step.decrement
            yield Iterate(theta, value, gradient, gap)
            if not separated and problem.certificate.separated(theta, step.direction) is not None:
                separated = _LAST_STEPS
            if separated:  # the optimum lies at infinity: a few steps towards it, and no more
                separated -= 1
                if separated == 0:
                    return Status.SEPARATED
            elif gap <= max(tol, _ROUNDING) * abs(value):
                if not thorough:
                    return Status.CONVERGED
                if not exact:
                    step = self._solve(problem, theta, gradient, precondition, 1e-5, value, 0.0)
                found = line_search(problem.value_gradient, theta, value, gradient, step.direction, flat=0.5)
                if found is None:
                    return Status.CONVERGED
                theta, value, gradient = found
                left = 0.5 * float(np.vdot(gradient, (step.inverse or precondition.apply)(gradient)))
                yield Iterate(theta, value, gradient, min(gap, left))
                # a step that leaves much of the decrement was no end but one of many along a tail of the likelihood
                if left <= max(0.05 * gap, _ROUNDING * abs(value)):
                    return Status.CONVERGED
                last = gap
                continue
            found = line_search(problem.value_gradient, theta, value, gradient, step.direction, flat=0.5)
            if found is None:
                found = line_search(problem.value_gradient, theta, value, gradient, -precondition.safe()(gradient))
            if found is None:
                return Status.SEPARATED if separated else Status.ITERATION_LIMIT
            theta, value, gradient = found
            # tighter as the decrement falls: no more work for a step than the step is good for
            rtol = float(np.clip(0.3 * np.sqrt(gap / last), 0.01, 0.3)) if np.isfinite(last) else rtol
            last = gap

    def _solve(
        self,
        problem: CurvedProblem,
        theta: np.ndarray,
        gradient: np.ndarray,
        precondition: Precondition,
        rtol: float,
        value: float,
        enough: float,
    ) -> NewtonStep:
        step = conjugate_gradient(
            lambda V: problem.product(theta, V),
            precondition.at(theta),
            gradient,
            rtol,
            self.max_products,
            enough * abs(value),
            *_noise(problem, value, gradient),
        )
        precondition.learn(step.n_products, rtol)
        return step


def newton_direction(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> NewtonStep:
    """-H^{-1} g and 1/2 g^T H^{-1} g, for solvers that do not compute them on their way."""
    if forms_hessian(problem):
        return newton_step(problem, theta, gradient)
    precondition = Precondition(problem).at(theta)
    noise = _noise(problem, problem.value_gradient(theta)[0], gradient)
    return conjugate_gradient(lambda V: problem.product(theta, V), precondition, gradient, 0.1, 200, 0.0, *noise)


def _noise(problem: CurvedProblem, value: float, gradient: np.ndarray) -> tuple[float, bool]:
    """The decrement below which there is rounding and no more, and whether the gradient proves no larger one."""
    noise = _ROUNDING * abs(value)
    return noise, problem.certificate.least_gap(gradient) <= noise


def newton_decrement(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> float:
    """1/2 g^T H^{-1} g, the estimate of J - J*."""
    return newton_direction(problem, theta, gradient).decrement


def forms_hessian(problem: CurvedProblem) -> bool:
    """Whether forming the Hessian costs less than the products it saves."""
    size = problem.shape[0] * problem.shape[1]
    return size <= EXACT_PARAMETERS and problem.n_rows * size * size <= EXACT_FLOPS


def ends_with_a_full_step(problem: CurvedProblem) -> bool:
    """Whether a last step, beyond the tolerance, costs next to nothing."""
    return problem.shape[0] * problem.shape[1] * problem.n_rows <= _THOROUGH


def newton_step(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> NewtonStep:
    """-H^{-1} g from the Hessian itself, and the decrement 1/2 g^T H^{-1} g."""
    H = problem.hessian(theta)
    K, D = problem.shape
    flat = problem.precision.sum(axis=0) == 0
    if flat.any():
        # one vector added to every class changes nothing there: any curvature along it will do
        tau = np.where(flat, np.maximum(H.diagonal().reshape(K, D).mean(axis=0), np.finfo(float).tiny), 0.0)
        i = np.arange(D)
        H.reshape(K, D, K, D)[:, i, :, i] += tau[:, None, None]
    solve = factored_spd(H)

    def inverse(r: np.ndarray) -> np.ndarray:
        return solve(r.ravel()).reshape(K, D)

    direction = -inverse(gradient)
    decrement = -0.5 * float(np.vdot(gradient, direction))
    return NewtonStep(direction, decrement, 1, inverse, flat=not decrement > 0 and bool(gradient.any()))
