"""From features, target and prior to a certified optimum: the way all softmax estimators share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from posteriori.rows.features import AnyFeatures
from posteriori.rows.target import Target
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.objective import ObservedMoments, SoftmaxObjective
from posteriori.softmax.separation import separated_classes
from posteriori.solvers.newton import Newton, newton_direction
from posteriori.solvers.solution import Iterate, Solution, Status, TraceEntry, run
from posteriori.solvers.solver import Solver
from posteriori.solvers.stochastic import StochasticGradient

__all__ = ["softmax_problem", "solve"]


def softmax_problem(
    features: AnyFeatures, target: Target, precision: np.ndarray, n_threads: int
) -> tuple[SoftmaxObjective, Coordinates]:
    """The objective, and the coordinates in which it is safe to compute.

    The first pass sums the observed moments; were a value not finite, they would not be either, and it is found.
    """
    K = len(target.classes)
    blocks = features.blocks(target, K, n_threads=n_threads)
    with np.errstate(over="ignore", invalid="ignore"):
        observed = ObservedMoments.of(blocks, K)
    if not observed.finite:
        features.require_finite()
    has_intercept = precision.shape[1] > features.shape[1]
    coordinates = Coordinates.safe_for(blocks, observed, has_intercept and not precision[:, -1].any())
    shift, scale = coordinates.shift, coordinates.scale
    if shift is not None or scale is not None:
        blocks = features.blocks(target, K, shift=shift, scale=scale, n_threads=n_threads)
    held = blocks.at_hand()
    if held is not blocks or shift is not None or scale is not None:
        blocks, observed = held, ObservedMoments.of(held, K)
    return SoftmaxObjective(blocks, observed, coordinates.precision(precision)), coordinates


def solve(
    objective: SoftmaxObjective,
    solver: Solver,
    theta: np.ndarray,
    *,
    tol: float,
    max_iter: int,
    random_state: Any = None,
    report: Callable[[int, Iterate], None] | None = None,
) -> tuple[np.ndarray, Solution]:
    """Run a solver from theta and certify what it found."""
    began = perf_counter()
    tol = tol if solver.tol is None else solver.tol
    max_iter = max_iter if solver.max_iter is None else solver.max_iter
    options = {}
    if isinstance(solver, StochasticGradient):
        options["rng"] = np.random.default_rng(check_random_state(random_state).randint(2**31))
    best, status, trace = run(solver.steps(objective, theta, tol, **options), max_iter, report)
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
    theta = objective.least_norm(theta)
    value, gradient = objective.value_gradient(theta)
    norm = float(np.linalg.norm(gradient))
    trace.append(TraceEntry(value, norm, gap))
    return theta, Solution(
        status=status,
        objective=value,
        gradient_norm=norm,
        gap=float("inf") if gap is None else gap,
        gap_bound=bound,
        n_iter=n_iter,
        n_passes=objective.blocks.n_passes,
        trace=trace,
        separation=separation,
        seconds=perf_counter() - began,
    )


def _recession(objective: SoftmaxObjective, theta: np.ndarray) -> np.ndarray | None:
    """A direction along which J falls for ever, if there is one: looked for where Newton's method would go."""
    if objective.free is None:
        return None
    for now in islice(Newton().steps(objective, theta, 0.0), 30):
        step = newton_direction(objective, now.theta, now.gradient)
        found = objective.separated(now.theta, step.direction)
        if found is not None:
            return found
        if step.decrement <= 1e-14 * abs(now.objective):
            break
    return None


def _bounded(objective: SoftmaxObjective, theta: np.ndarray) -> tuple[np.ndarray, float | None]:
    """Theta with its free intercepts solved for, and the rigorous bound on J - J* there."""
    if objective.has_intercept and not objective.precision[:, -1].any():
        settled = objective.settle_intercepts(theta)
        if settled is None:
            return theta, None
        theta = settled
    _, gradient = objective.value_gradient(theta)
    return theta, objective.gap_bound(gradient)
