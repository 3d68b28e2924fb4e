"""Newton's method (iteratively reweighted least squares), exact or matrix-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from posteriori.inference.conjugate_gradient import NewtonStep, conjugate_gradient
from posteriori.inference.line_search import line_search
from posteriori.inference.precondition import Preconditioner, class_blocks, kronecker
from posteriori.inference.solution import Iterate, Problem, Status, Steps
from posteriori.inference.solver import Solver
from posteriori.maths.linalg import factored_spd

__all__ = [
    "CurvedProblem",
    "Newton",
    "Precondition",
    "forms_hessian",
    "newton_decrement",
    "newton_direction",
    "newton_step",
]

EXACT_PARAMETERS = 100
"""Up to this many parameters "auto" forms the Hessian: it costs less than the products it saves."""
EXACT_FLOPS = 2e7
_THOROUGH = 1e7
"""Parameters times rows up to which the last step is solved for to many digits: it costs little."""
_LAST_STEPS = 4
"""Steps still taken once separation is proven, so that the parameters returned do separate the classes."""
_BLOCK_BYTES = 400 << 20
_CHEAP = 16.0
"""Passes that a preconditioner may cost without much thought."""
_MANY_PRODUCTS = 8
"""A solve that took more products than this pays for a better preconditioner."""


class CurvedProblem(Problem, Protocol):
    """A problem that also knows its Hessian, whole or in parts that make a preconditioner."""

    precision: np.ndarray

    @property
    def n_rows(self) -> int:
        """N."""

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """H, (K D, K D)."""

    def kronecker_factors(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A (K, K), G (L, L) with H ~ A kron G / tr A + prior for the L features named next; diag G of all."""

    def class_blocks(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal blocks of H less the prior, (K, D, D)."""

    def separated(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
        """A direction along which J falls for ever, if the parameters or the direction are one."""


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

    def steps(
        self,
        problem: CurvedProblem,
        theta: np.ndarray,
        tol: float,
        precondition: Precondition | None = None,
        rtol: float = 0.3,
        thorough: bool = True,
    ) -> Steps:
        """Iterate from theta; ends with a full step once the decrement is within tol * |J|.

        A preconditioner that served a similar problem may be passed on, with the accuracy `rtol` of the first solve.
        Unless `thorough`, the last step is taken on trust.
        """
        exact = forms_hessian(problem) if self.exact is None else self.exact
        if precondition is None:
            precondition = Precondition(problem)
        value, gradient = problem.value_gradient(theta)
        last, separated = np.inf, 0
        while True:
            if exact:
                step = newton_step(problem, theta, gradient)
            else:
                step = self._solve(problem, theta, gradient, precondition, rtol, 0.05 * tol * abs(value))
            gap = step.decrement
            yield Iterate(theta, value, gradient, gap)
            if not separated and problem.separated(theta, step.direction) is not None:
                separated = _LAST_STEPS
            if separated:  # the optimum lies at infinity: a few steps towards it, and no more
                separated -= 1
                if separated == 0:
                    return Status.SEPARATED
            elif gap <= max(tol, 1e-15) * abs(value):
                break
            found = line_search(problem.value_gradient, theta, value, gradient, step.direction, flat=0.5)
            if found is None:
                return Status.SEPARATED if separated else Status.ITERATION_LIMIT
            theta, value, gradient = found
            # tighter as the decrement falls: no more work for a step than the step is good for
            rtol = float(np.clip(0.3 * np.sqrt(gap / last), 0.01, 0.3)) if np.isfinite(last) else rtol
            last = gap
        if not thorough:
            yield Iterate(theta + step.direction, value - gap, gradient, gap)
            return Status.CONVERGED
        if not exact and theta.size * problem.n_rows <= _THOROUGH:
            step = self._solve(problem, theta, gradient, precondition, 1e-5, 0.0)
        found = line_search(problem.value_gradient, theta, value, gradient, step.direction, max_trials=1)
        if found is not None:
            theta, value, gradient = found
            left = step.inverse(gradient) if step.inverse else precondition.apply(gradient)
            yield Iterate(theta, value, gradient, min(gap, 0.5 * float(np.vdot(gradient, left))))
        return Status.CONVERGED

    def _solve(
        self,
        problem: CurvedProblem,
        theta: np.ndarray,
        gradient: np.ndarray,
        precondition: Precondition,
        rtol: float,
        enough: float,
    ) -> NewtonStep:
        step = conjugate_gradient(
            lambda V: problem.product(theta, V),
            precondition.at(theta),
            gradient,
            rtol,
            self.max_products,
            enough,
        )
        precondition.learn(step.n_products, rtol)
        return step


def newton_direction(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> NewtonStep:
    """-H^{-1} g and 1/2 g^T H^{-1} g, for solvers that do not compute them on their way."""
    if forms_hessian(problem):
        return newton_step(problem, theta, gradient)
    precondition = Precondition(problem).at(theta)
    return conjugate_gradient(lambda V: problem.product(theta, V), precondition, gradient, 0.1, 200)


def newton_decrement(problem: CurvedProblem, theta: np.ndarray, gradient: np.ndarray) -> float:
    """1/2 g^T H^{-1} g, the estimate of J - J*."""
    return newton_direction(problem, theta, gradient).decrement


def forms_hessian(problem: CurvedProblem) -> bool:
    """Whether forming the Hessian costs less than the products it saves."""
    size = problem.shape[0] * problem.shape[1]
    return size <= EXACT_PARAMETERS and problem.n_rows * size * size <= EXACT_FLOPS


class Precondition:
    """The preconditioner in use: Kronecker while that serves, class blocks once solves take long.

    Costs are counted in Hessian products, by operations and not by the clock, so that a fit can be repeated.
    """

    def __init__(self, problem: CurvedProblem) -> None:
        self.problem = problem
        K, D = problem.shape
        N = problem.n_rows
        self.kind = "kronecker"
        self.build_cost = {
            "kronecker": 2.0 + D / (8.0 * K),
            "blocks": 2.0 + D / 10.0 + D * D / (8.0 * N),
        }
        if K * D * D * 8 > _BLOCK_BYTES:
            self.build_cost["blocks"] = np.inf
        self.best = np.inf
        self.wasted = np.inf
        self.apply: Preconditioner = lambda R: R

    def serve(self, problem: CurvedProblem, theta: np.ndarray) -> Precondition:
        """Go on with a larger problem of the same kind, with what the last one tells at theta."""
        if np.isfinite(self.build_cost["blocks"]):
            self.kind = "blocks"
            self.renew(theta)
        other = Precondition(problem)
        other.kind, other.apply, other.wasted, other.best = self.kind, self.apply, 0.0, self.best
        return other

    def at(self, theta: np.ndarray) -> Preconditioner:
        """The preconditioner, made anew at theta once the last has cost more than a new one."""
        return self.renew(theta) if self.wasted >= self.build_cost[self.kind] else self.apply

    def worth_renewing(self, n_passes: int) -> bool:
        """Whether passes made so far justify a new one; of class blocks, if these are cheap enough."""
        if self.build_cost["blocks"] <= _CHEAP:
            self.kind = "blocks"
        return self.build_cost[self.kind] <= max(_CHEAP, 0.5 * n_passes)

    def renew(self, theta: np.ndarray) -> Preconditioner:
        """The preconditioner made anew at theta."""
        precision = self.problem.precision
        if self.kind == "kronecker":
            self.apply = kronecker(*self.problem.kronecker_factors(theta), precision)
        else:
            self.apply = class_blocks(self.problem.class_blocks(theta), precision)
        self.wasted, self.best = 0.0, np.inf
        return self.apply

    def learn(self, n_products: int, rtol: float) -> None:
        """Judge it by the products the last solve took, for each tenfold gain, beyond the best since it was made."""
        if self.kind == "kronecker" and n_products > max(_MANY_PRODUCTS, 0.25 * self.build_cost["blocks"]):
            self.kind, self.wasted = "blocks", np.inf
            return
        decades = -np.log10(rtol)
        self.best = min(self.best, n_products / decades)
        self.wasted += n_products - self.best * decades


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
    return NewtonStep(direction, -0.5 * float(np.vdot(gradient, direction)), 1, inverse)
