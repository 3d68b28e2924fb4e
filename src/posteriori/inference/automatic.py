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
        precondition, rtol = Precondition(problem), 0.3
        if problem.start_rows < problem.n_rows:
            theta, precondition = self._sample_start(problem, theta)
            rtol = 0.1
        elif not forms_hessian(problem):
            theta = yield from _lbfgs_start(problem, theta, tol, precondition)
        return (yield from Newton().steps(problem, theta, tol, precondition, rtol))

    def _sample_start(self, problem: SampledProblem, theta: np.ndarray) -> tuple[np.ndarray, Precondition]:
        """The optimum of ever larger samples, each started from the one before.

        The optimum of n rows is about K D / 2 nats from that of all, so that is how exactly it is worth knowing.
        """
        sizes = [problem.start_rows]
        while sizes[-1] * _GROWTH * 2 < problem.n_rows:
            sizes.append(sizes[-1] * _GROWTH)
        precondition = Precondition(problem.sample(sizes[0]))
        for i, size in enumerate(sizes):
            sample = problem.sample(size)
            rough = 0.1 * theta.size / size
            if i == 0:
                theta = run(_lbfgs_start(sample, theta, rough, precondition), 200)[0].theta
            precondition = precondition.serve(sample, "blocks")
            theta = run(Newton(exact=False).steps(sample, theta, rough, precondition, 0.1, False), 100)[0].theta
        return theta, precondition.serve(problem, "blocks")


def _lbfgs_start(
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
        if len(gaps) > 12:
            speed = np.log(gaps[-7] / gaps[-1]) / 6
            if np.log(gaps[-1] / tol) > patience * speed:
                break
    return theta
