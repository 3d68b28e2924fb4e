"""Newton's method (iteratively reweighted least squares), by the Hessian itself or by products with it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from posteriori.maths.linalg import factored_spd
from posteriori.solvers.conjugate_gradient import NewtonStep, conjugate_gradient
from posteriori.solvers.line_search import line_search
from posteriori.solvers.patience import Patience
from posteriori.solvers.precondition import Precondition
from posteriori.solvers.problem import CurvedProblem
from posteriori.solvers.solution import Iterate, Status, Steps
from posteriori.solvers.solver import Solver

__all__ = [
    "Newton",
    "affords_hessian",
    "ends_with_a_full_step",
    "forms_hessian",
    "newton_decrement",
    "newton_direction",
    "newton_step",
]

EXACT_PARAMETERS = 100
"""Up to this many parameters "auto" forms the Hessian: it costs less than the products it saves."""
EXACT_FLOPS = 2e7
AFFORDABLE_PARAMETERS = 2000
_AFFORDABLE_FLOPS = 4e9
"""Limits of a Hessian that is formed where much depends on it, or where products have failed."""
_FEWEST_PRODUCTS, _FEWEST_HESSIANS = 2000, 60
_MOST_FLOPS = 3e10
"""A solve gives up after these many operations, some five seconds, if it has made so many products or Hessians."""
_OVERHEAD = 4e5
"""Operations that a product costs however small it is."""
_THOROUGH = 1e7
"""Parameters times rows up to which a last step is taken, and solved for to many digits: it costs little."""
_ROUNDING = 1e-15
"""Share of J below which a decrement says nothing."""
_NEGLIGIBLE = 1e-13
"""Share of a feature's curvature below which its prior counts as flat."""
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

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_wine(return_X_y=True)
    >>> SoftmaxRegression(solver=Newton(exact=True)).fit(X, y).solution_.status.name
    'CONVERGED'
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
        """Iterate from theta until the decrement is within ``tol * |J|``; where that is cheap, end with a full step."""
        exact = forms_hessian(problem) if self.exact is None else self.exact
        directions = _Directions(
            problem, precondition or Precondition(problem), exact, self.max_products, may_switch=self.exact is None
        )
        now = NewtonPoint(theta, *problem.value_gradient(theta))
        if not np.isfinite(now.value):
            yield Iterate(*now)
        rtol, gap_before, n_left = 0.3, np.inf, None
        patience = Patience()
        while True:
            step = directions.at(now, rtol, 0.05 * tol)
            gap = step.decrement
            yield Iterate(*now, gap if directions.certifies and not step.flat else None, gap)
            hopeless = patience.is_over(gap, now.value) or directions.exhausted
            if n_left is None and problem.certificate.separated(now.theta, step.direction) is not None:
                n_left = _LAST_STEPS
            if n_left is not None:  # the optimum lies at infinity: a few steps towards it, and no more
                n_left -= 1
                if n_left == 0:
                    return Status.SEPARATED
            elif gap <= max(tol, _ROUNDING) * abs(now.value):
                ended, now = yield from _end(directions, now, step)
                if ended or hopeless:
                    return Status.CONVERGED
                gap_before = gap
                continue
            found = None if hopeless else directions.descend(now, step.direction)
            if found is None:
                return Status.ITERATION_LIMIT if n_left is None else Status.SEPARATED
            now = found
            rtol, gap_before = _next_tolerance(rtol, gap, gap_before), gap


class NewtonPoint(NamedTuple):
    """Parameters, with J and its gradient there."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray


@dataclass
class _Directions:
    """Newton's steps from a point, by the Hessian itself or by products with it."""

    problem: CurvedProblem
    precondition: Precondition
    exact: bool
    max_products: int
    may_switch: bool = False
    """Whether the Hessian may take over once products have cost far more than it would."""
    n_products: int = 0
    n_hessians: int = 0
    flops: float = 0.0

    @property
    def thorough(self) -> bool:
        """Whether the last step is taken too."""
        return self.exact or ends_with_a_full_step(self.problem)

    @property
    def certifies(self) -> bool:
        """Whether decrements may be relied on: products may miss what the Hessian itself would show."""
        return self.exact or not forms_hessian(self.problem)

    @property
    def exhausted(self) -> bool:
        """Whether so much work was done that more of it is not worth it."""
        many = self.n_products > _FEWEST_PRODUCTS or self.n_hessians > _FEWEST_HESSIANS
        return many and self.flops > _MOST_FLOPS

    @property
    def _size(self) -> int:
        return self.problem.shape[0] * self.problem.shape[1]

    def _switch(self) -> None:
        """Go over to the Hessian when products have cost ten times as much."""
        if self.may_switch and self.flops > 10.0 * self._flops_of_hessian and affords_hessian(self.problem):
            self.exact = True

    @property
    def _flops_of_hessian(self) -> float:
        return self._size**2 * (self.problem.n_rows + self._size / 3.0)

    def at(self, now: NewtonPoint, rtol: float, enough: float) -> NewtonStep:
        """The step from a point; `rtol` and `enough` are those of conjugate gradients, `enough` in units of ``|J|``."""
        if self.exact:
            step = newton_step(self.problem, now.theta, now.gradient)
            self.n_hessians += 1
            self.flops += self._flops_of_hessian
        else:
            step = self._by_products(now, rtol, enough)
        if not step.flat:
            return step
        # so far out that the curvature says nothing
        safe = self.precondition.safe()(now.gradient)
        return NewtonStep(-safe, 0.5 * float(np.vdot(now.gradient, safe)), 1, flat=True)

    def full_step(self, now: NewtonPoint, step: NewtonStep) -> tuple[NewtonPoint, float] | None:
        """The step solved to many digits and taken, and the decrement left there; None if J cannot fall any more."""
        if not self.exact:
            step = self._by_products(now, 1e-5, 0.0)
        found = line_search(self.problem.value_gradient, *now, step.direction, flat=0.5)
        if found is None:
            return None
        end = NewtonPoint(*found)
        inverse = step.inverse or self.precondition.apply
        return end, 0.5 * float(np.vdot(end.gradient, inverse(end.gradient)))

    def descend(self, now: NewtonPoint, direction: np.ndarray) -> NewtonPoint | None:
        """A lower point along the direction, or along a safe one; None if there is none."""
        found = line_search(self.problem.value_gradient, *now, direction, flat=0.5)
        if found is None:
            found = line_search(self.problem.value_gradient, *now, -self.precondition.safe()(now.gradient))
        return None if found is None else NewtonPoint(*found)

    def _by_products(self, now: NewtonPoint, rtol: float, enough: float) -> NewtonStep:
        step = conjugate_gradient(
            lambda V: self.problem.product(now.theta, V),
            self.precondition.at(now.theta),
            now.gradient,
            rtol,
            self.max_products,
            enough * abs(now.value),
            *_noise(self.problem, now.value, now.gradient),
        )
        self.precondition.count_products(step.n_products, rtol)
        self.n_products += step.n_products
        self.flops += step.n_products * (4.0 * self.problem.n_rows * self._size + self.precondition.flops + _OVERHEAD)
        self._switch()
        return step


def _end(
    directions: _Directions, now: NewtonPoint, step: NewtonStep
) -> Generator[Iterate, None, tuple[bool, NewtonPoint]]:
    """End where the decrement is within the tolerance, after one more step if that is cheap: whether it ended, where.

    A step that leaves much of the decrement was not an end but one of many along a tail of the likelihood.
    """
    found = directions.full_step(now, step) if directions.thorough else None
    if found is None:
        return True, now
    now, left = found
    gap = min(step.decrement, left)
    yield Iterate(*now, gap if directions.certifies else None, gap)
    return left <= max(0.05 * step.decrement, _ROUNDING * abs(now.value)), now


def _next_tolerance(rtol: float, gap: float, gap_before: float) -> float:
    """The tolerance of the next solve, tighter as the decrement falls: no more work than the step is good for."""
    return float(np.clip(0.3 * np.sqrt(gap / gap_before), 0.01, 0.3)) if np.isfinite(gap_before) else rtol


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


def affords_hessian(problem: CurvedProblem) -> bool:
    """Whether the Hessian can be formed and factored in about a second."""
    size = problem.shape[0] * problem.shape[1]
    return size <= AFFORDABLE_PARAMETERS and problem.n_rows * size * size <= _AFFORDABLE_FLOPS


def ends_with_a_full_step(problem: CurvedProblem) -> bool:
    """Whether a last step, beyond the tolerance, costs almost nothing."""
    return problem.shape[0] * problem.shape[1] * problem.n_rows <= _THOROUGH


def newton_step(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> NewtonStep:
    """-H^{-1} g from the Hessian itself, and the decrement 1/2 g^T H^{-1} g (docs/theory.md, section 2.3)."""
    H = problem.hessian(theta)
    K, D = problem.shape
    curvature = H.diagonal().reshape(K, D).mean(axis=0)
    flat = problem.precision.mean(axis=0) <= _NEGLIGIBLE * curvature
    if flat.any():
        # one vector added to every class changes nothing there: any curvature along it will do
        tau = np.where(flat, np.maximum(curvature, np.finfo(float).tiny), 0.0)
        i = np.arange(D)
        H.reshape(K, D, K, D)[:, i, :, i] += tau[:, None, None]
    solve = factored_spd(H)

    def inverse(r: np.ndarray) -> np.ndarray:
        return solve(r.ravel()).reshape(K, D)

    with np.errstate(over="ignore", invalid="ignore"):  # where there is hardly any curvature, steps are beyond numbers
        direction = -inverse(gradient)
        decrement = -0.5 * float(np.vdot(gradient, direction))
    if not (np.isfinite(direction).all() and np.isfinite(decrement)):
        return NewtonStep(-gradient, 0.5 * float(np.vdot(gradient, gradient)), 1, flat=True)
    return NewtonStep(direction, decrement, 1, inverse, flat=not decrement > 0 and bool(gradient.any()))
