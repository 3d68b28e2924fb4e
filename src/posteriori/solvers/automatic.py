"""The default solver: a start that is cheap and safe, and an exact end by Newton's method."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from posteriori.solvers.lbfgs import LBFGS
from posteriori.solvers.newton import Newton, ends_with_a_full_step, forms_hessian
from posteriori.solvers.precondition import Precondition
from posteriori.solvers.problem import SampledProblem
from posteriori.solvers.solution import Iterate, Status, Steps, run
from posteriori.solvers.solver import Solver

__all__ = ["Automatic"]

_TINY = np.finfo(float).tiny
_LEAST_TOL = 1e-16
"""The tolerance that L-BFGS can hope for, where the user asks for none."""
_GROWTH = 32
"""Factor by which one sample is larger than the one before."""


@dataclass
class Automatic(Solver):
    """Exact Newton for small problems; else a start from a sample of rows or by L-BFGS, and a Newton finish."""

    tol: float | None = None
    max_iter: int | None = None

    def steps(self, problem: SampledProblem, theta: np.ndarray, tol: float) -> Steps:
        """Iterate from theta until the Newton decrement is within ``tol * |J|``."""
        precondition = Precondition(problem)
        if problem.start.n_rows < problem.n_rows and not theta.any():
            if (found := problem.start.descend(tol)) is not None:
                yield from map(Iterate, found.thetas, found.values, found.gradients, found.gaps)
                theta = found.thetas[-1]
                if found.converged and not ends_with_a_full_step(problem):
                    return Status.CONVERGED
            else:
                theta, precondition, interrupted = _sample_start(problem, theta, precondition)
                if interrupted:
                    yield Iterate(theta, *problem.value_gradient(theta))
                    raise KeyboardInterrupt
        if not forms_hessian(problem):
            theta = yield from _quasi_newton(problem, theta, tol, precondition)
        return (yield from Newton().steps(problem, theta, tol, precondition))


def _sample_start(
    problem: SampledProblem, start: np.ndarray, precondition: Precondition
) -> tuple[np.ndarray, Precondition, bool]:
    """The optimum of larger and larger samples, each started from the one before, and a preconditioner from the last.

    The optimum of n rows is about K D / 2 nats from that of all, so that is how exactly it is worth knowing. Should
    it be worse for all rows than the start was for the first sample, the start it is: later samples begin so near to
    their optimum that they differ from all rows by chance.
    """
    size, theta, before = problem.start.n_rows, start, None
    of_sample = Precondition(problem.start.sample(size))
    while True:
        rough = 0.1 * theta.size / size
        best, status, trace = run(_quasi_newton(problem.start.sample(size), theta, rough, of_sample), 100)
        theta, before = best.theta, trace[0].objective if before is None else before
        if status is Status.INTERRUPTED:
            return theta, precondition, True
        size *= _GROWTH
        if 2 * size > problem.n_rows:
            break
        of_sample = of_sample.for_larger(problem.start.sample(size), theta)
    if problem.value_gradient(theta)[0] > before:
        return start, precondition, False
    return theta, of_sample.for_larger(problem, theta), False


def _quasi_newton(
    problem: SampledProblem, theta: np.ndarray, tol: float, precondition: Precondition
) -> Generator[Iterate, None, np.ndarray]:
    """L-BFGS as long as it gains quickly; a Newton finish is worth about `patience` of its passes."""
    patience = 40 + problem.shape[1] / 4
    gaps: list[float] = []
    for now in LBFGS().steps(problem, theta, 0.3 * tol, precondition):
        yield now
        theta = now.theta
        gaps.append(max(now.estimate or 0.0, 0.0) / max(abs(now.objective), _TINY))
        if gaps[-1] <= 0.3 * tol:
            break
        if len(gaps) > 20:
            before, after = max(*gaps[-12:-6], _TINY), max(*gaps[-6:], _TINY)
            if np.log(after / max(tol, _LEAST_TOL)) > patience * (np.log(before) - np.log(after)) / 6:
                break
    return theta
