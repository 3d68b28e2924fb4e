"""The mode of the posterior: the certified optimum of one objective, which all softmax estimators share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.parameters import seed_from
from posteriori.softmax.certificate import separated_classes
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.solvers.newton import Newton, newton_direction
from posteriori.solvers.solution import Iterate, Solution, Status, TraceEntry, run
from posteriori.solvers.solver import Solver

if TYPE_CHECKING:
    from posteriori.softmax.evidence import EvidencePoint
    from posteriori.softmax.laplace import Laplace
    from posteriori.softmax.posterior import FullPosterior

__all__ = ["Mode", "SolveSettings", "certified", "find_mode"]


@dataclass(frozen=True)
class SolveSettings:
    """Settings of the search for an optimum: the solver, its limits, and what is called after each iteration."""

    solver: Solver
    tol: float
    max_iter: int
    random_state: Any = None
    report: Callable[[int, Iterate], None] | None = None
    began: float = field(default_factory=perf_counter)
    """When the fit began, by `time.perf_counter`."""


@dataclass(frozen=True)
class Mode:
    """The mode under a prior, and how it was found.

    Attributes
    ----------
    objective : SoftmaxObjective
        The objective with the prior, as given or as chosen.
    theta : ndarray (K, D')
    solution : Solution
    laplace : Laplace or None
        Laplace's approximation at the mode, if it was made on the way.
    evidence_path : list of EvidencePoint
        Points visited in search of the prior; empty if it was given.
    evidence_converged : bool or None
        Whether that search reached the highest evidence.
    posterior : FullPosterior or None
        The only posterior there is, under a prior that is improper.
    """

    objective: SoftmaxObjective
    theta: np.ndarray
    solution: Solution
    laplace: Laplace | None = None
    evidence_path: list[EvidencePoint] = field(default_factory=list)
    evidence_converged: bool | None = None
    posterior: FullPosterior | None = None


def find_mode(objective: SoftmaxObjective, settings: SolveSettings, start: np.ndarray | None = None) -> Mode:
    """Run the solver from `start` (zero unless given) and certify what it found."""
    solver = settings.solver
    tol = settings.tol if solver.tol is None else solver.tol
    max_iter = settings.max_iter if solver.max_iter is None else solver.max_iter
    options = {"rng": np.random.default_rng(seed_from(settings.random_state))} if solver.random else {}
    theta = np.zeros(objective.shape) if start is None else start
    best, status, trace = run(solver.steps(objective, theta, tol, **options), max_iter, settings.report)
    n_iter = len(trace) - 1
    theta, gap, bound, separation = best.theta, best.gap, None, None
    if status is not Status.INTERRUPTED:
        if status is not Status.CONVERGED or gap is None:
            gap = newton_direction(objective, theta, objective.value_gradient(theta)[1]).decrement
            if status is Status.ITERATION_LIMIT and gap <= tol * abs(objective.value_gradient(theta)[0]):
                status = Status.CONVERGED
        if (recession := _recession(objective, theta)) is not None:
            status = Status.SEPARATED
            separation = separated_classes(objective.blocks, recession, np.sqrt(objective.observed.variance))
        else:
            theta, bound = _bounded(objective, theta)
    theta = objective.certificate.least_norm(theta)
    value, gradient = objective.value_gradient(theta)
    norm = float(np.linalg.norm(gradient))
    trace.append(TraceEntry(value, norm, gap))
    solution = Solution(
        status=status,
        objective=value,
        gradient_norm=norm,
        gap=float("inf") if gap is None else gap,
        gap_bound=bound,
        n_iter=n_iter,
        n_passes=objective.blocks.n_passes,
        trace=trace,
        separation=separation,
        seconds=perf_counter() - settings.began,
    )
    return Mode(objective, theta, solution)


def certified(objective: SoftmaxObjective, theta: np.ndarray, status: Status, gap: float, n_iter: int) -> Solution:
    """The solution at parameters that were found by other means than a solver."""
    value, gradient = objective.value_gradient(theta)
    norm = float(np.linalg.norm(gradient))
    return Solution(
        status=status,
        objective=value,
        gradient_norm=norm,
        gap=gap,
        gap_bound=objective.certificate.gap_bound(gradient),
        n_iter=n_iter,
        n_passes=objective.blocks.n_passes,
        trace=[TraceEntry(value, norm, gap)],
    )


def _recession(objective: SoftmaxObjective, theta: np.ndarray) -> np.ndarray | None:
    """A direction along which J falls without end, if there is one: looked for where Newton's method would go."""
    if objective.free is None:
        return None
    for now in islice(Newton().steps(objective, theta, 0.0), 30):
        step = newton_direction(objective, now.theta, now.gradient)
        found = objective.certificate.separated(now.theta, step.direction)
        if found is not None:
            return found
        if step.decrement <= 1e-14 * abs(now.objective):
            break
    return None


def _bounded(objective: SoftmaxObjective, theta: np.ndarray) -> tuple[np.ndarray, float | None]:
    """theta with its free intercepts solved for, and the rigorous bound on J - J* there."""
    if objective.has_intercept and not objective.precision[:, -1].any():
        settled = objective.certificate.settle_intercepts(theta)
        if settled is None:
            return theta, None
        theta = settled
    _, gradient = objective.value_gradient(theta)
    return theta, objective.certificate.gap_bound(gradient)
