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
from posteriori.solvers.newton import Newton, affords_hessian, forms_hessian, newton_direction, newton_step
from posteriori.solvers.solution import Iterate, Solution, Status, TraceEntry, run
from posteriori.solvers.solver import Solver

if TYPE_CHECKING:
    from posteriori.softmax.evidence import EvidencePoint
    from posteriori.softmax.laplace import Laplace
    from posteriori.softmax.posterior import FullPosterior
    from posteriori.softmax.strength import StrengthPoint

__all__ = ["Mode", "SolveSettings", "certified", "find_mode"]

_LAST_STEPS = 12
"""Newton steps by the Hessian itself, where products with it had claimed an optimum that was not there."""


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
    strength_path : list of StrengthPoint
        Strengths of the prior that were compared by folds.
    strength_reason : str
        Why it is as strong as it is, if folds told.
    """

    objective: SoftmaxObjective
    theta: np.ndarray
    solution: Solution
    laplace: Laplace | None = None
    evidence_path: list[EvidencePoint] = field(default_factory=list)
    evidence_converged: bool | None = None
    posterior: FullPosterior | None = None
    strength_path: list[StrengthPoint] = field(default_factory=list)
    strength_reason: str = ""


def find_mode(objective: SoftmaxObjective, settings: SolveSettings, start: np.ndarray | None = None) -> Mode:
    """Run the solver from `start` (zero unless given) and certify what it found."""
    solver = settings.solver
    tol = settings.tol if solver.tol is None else solver.tol
    max_iter = settings.max_iter if solver.max_iter is None else solver.max_iter
    options = {"rng": np.random.default_rng(seed_from(settings.random_state))} if solver.random else {}
    theta = np.zeros(objective.shape) if start is None else start
    best, status, trace = run(solver.steps(objective, theta, tol, **options), max_iter, settings.report)
    theta, decrement, bound, separation = best.theta, best.gap, None, None
    if status is Status.INTERRUPTED:
        decrement = np.inf if decrement is None else decrement
    else:
        if decrement is None:
            decrement = _decrement(objective, theta)
        if (recession := _recession(objective, theta)) is not None:
            status = Status.SEPARATED
            separation = separated_classes(objective.blocks, recession, np.sqrt(objective.observed.variance))
        else:
            theta, bound = objective.certificate.bounded(theta)
            if _doubtful(objective, theta, decrement, bound, tol):
                more = run(Newton(exact=True).steps(objective, theta, tol), _LAST_STEPS)
                best, trace = more[0], [*trace, *more[2]]
                decrement = _decrement(objective, best.theta, exact=True)
                theta, bound = objective.certificate.bounded(best.theta)
    last = objective.value_gradient(theta)[0]
    theta = objective.certificate.least_norm(theta)
    value = objective.value_gradient(theta)[0]
    solution = certified(
        objective,
        theta,
        status,
        decrement + max(value - best.objective, 0.0),  # with what the last changes cost
        None if bound is None else bound + max(value - last, 0.0),
        tol=tol,
        n_iter=len(trace) - 1,
        trace=trace,
        separation=separation,
        seconds=perf_counter() - settings.began,
    )
    return Mode(objective, theta, solution)


def certified(
    objective: SoftmaxObjective,
    theta: np.ndarray,
    status: Status,
    decrement: float,
    bound: float | None,
    *,
    tol: float,
    trace: list[TraceEntry],
    **others: Any,
) -> Solution:
    """The record of a solve that ended at theta, where Newton's equation estimates J - J* by the decrement.

    Whether it converged follows from what is known of J there, and not from what the solver says.
    """
    value, gradient = objective.value_gradient(theta)
    gap, norm = objective.certificate.gap(decrement, theta, bound), float(np.linalg.norm(gradient))
    return Solution.ended(
        status,
        objective=value,
        gradient_norm=norm,
        gap=gap,
        gap_bound=bound,
        tol=tol,
        rounding=objective.rounding(theta),
        n_passes=objective.blocks.n_passes,
        trace=[*trace, TraceEntry(value, norm, gap)],
        **others,
    )


def _decrement(objective: SoftmaxObjective, theta: np.ndarray, exact: bool = False) -> float:
    """Newton's decrement at theta, by the Hessian itself if `exact`; infinite where no curvature was found."""
    gradient = objective.value_gradient(theta)[1]
    step = newton_step(objective, theta, gradient) if exact else newton_direction(objective, theta, gradient)
    return np.inf if step.flat else step.decrement


def _doubtful(
    objective: SoftmaxObjective, theta: np.ndarray, decrement: float, bound: float | None, tol: float
) -> bool:
    """Whether a decrement from products with the Hessian claims convergence, and the Hessian itself denies it.

    It is asked only where the bound proves nothing, as under a weak prior: there the slow directions are those that
    products miss.
    """
    enough = max(tol * abs(objective.value_gradient(theta)[0]), objective.rounding(theta))
    claimed = decrement <= enough and not (bound is not None and bound <= enough)
    if not claimed or forms_hessian(objective) or not affords_hessian(objective):
        return False
    return _decrement(objective, theta, exact=True) > enough


def _recession(objective: SoftmaxObjective, theta: np.ndarray) -> np.ndarray | None:
    """A direction along which J falls without end, if there is one: looked for where Newton's method would go."""
    if objective.free is None or objective.recession is not None:
        return objective.recession
    for now in islice(Newton().steps(objective, theta, 0.0), 30):
        step = newton_direction(objective, now.theta, now.gradient)
        found = objective.certificate.separated(now.theta, step.direction)
        if found is not None:
            return found
        if step.decrement <= 1e-14 * abs(now.objective):
            break
    return None
