"""The default: a start that is cheap and safe, a Newton finish that is exact."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from posteriori.inference.lbfgs import LBFGS
from posteriori.inference.newton import CurvedProblem, Newton, Precondition, forms_hessian
from posteriori.inference.solution import Iterate, Steps, run
from posteriori.inference.solver import Solver

__all__ = ["Automatic", "SampledProblem"]

_GROWTH = 8
"""From one sample to the next."""


class SampledProblem(CurvedProblem, Protocol):
    """A problem over rows, of which a sample may stand for all."""

    @property
    def start_rows(self) -> int:
        """The smallest sample whose optimum is a good start; at least N if none is."""

    def sample(self, n_rows: int) -> SampledProblem:
        """The same objective estimated from some of the rows."""


@dataclass
class Automatic(Solver):
    """Chooses: exact Newton when small; else a start from a sample of rows or by L-BFGS, and a Newton finish."""

    tol: float | None = None
    max_iter: int | None = None

    def steps(self, problem: SampledProblem, theta: np.ndarray, tol: float) -> Steps:
        """Iterate from theta until the Newton decrement is within tol * |J|."""
        precondition = Precondition(problem)
        if problem.start_rows < problem.n_rows:
            theta, precondition = _sample_start(problem, theta)
        if not forms_hessian(problem):
            theta = yield from _quasi_newton(problem, theta, tol, precondition)
        return (yield from Newton().steps(problem, theta, tol, precondition))


def _sample_start(problem: SampledProblem, theta: np.ndarray) -> tuple[np.ndarray, Precondition]:
    """The optimum of ever larger samples, each started from the one before, and a preconditioner from the last.

    The optimum of n rows is about K D / 2 nats from that of all, so that is how exactly it is worth knowing.
    """
    size = problem.start_rows
    precondition = Precondition(problem.sample(size))
    while True:
        sample = problem.sample(size)
        theta = run(_quasi_newton(sample, theta, 0.1 * theta.size / size, precondition), 100)[0].theta
        size *= _GROWTH
        if 2 * size > problem.n_rows:
            return theta, precondition.serve(problem, theta)
        precondition = precondition.serve(problem.sample(size), theta)


def _quasi_newton(
    problem: SampledProblem, theta: np.ndarray, tol: float, precondition: Precondition
) -> Generator[Iterate, None, np.ndarray]:
    """L-BFGS as long as it gains quickly; a Newton finish is worth about `patience` of its passes."""
    patience = 40 + problem.shape[1] / 4
    gaps: list[float] = []
    for now in LBFGS().steps(problem, theta, 0.1 * tol, precondition):
        yield now
        theta = now.theta
        gaps.append((now.gap or 0.0) / abs(now.objective))
        if gaps[-1] <= 0.1 * tol:
            break
        if len(gaps) > 20:
            speed = np.log(max(gaps[-12:-6]) / max(gaps[-6:])) / 6
            if np.log(max(gaps[-6:]) / tol) > patience * speed:
                break
    return theta
