"""The mode under a prior, and the prior by its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from posteriori.softmax.evidence import HIGHEST, LOWEST, Evidence, EvidencePoint, maximise_evidence
from posteriori.softmax.laplace import Laplace
from posteriori.softmax.likelihood import StandardLikelihood
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision
from posteriori.softmax.priors import WEAK, WEAKEST
from posteriori.softmax.settings import BayesianSettings
from posteriori.softmax.solve import solve
from posteriori.softmax.structured import structured_posterior
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.newton import forms_hessian
from posteriori.solvers.solution import Solution, Status, TraceEntry, run

__all__ = ["Mode", "mode_by_evidence", "mode_of", "with_stronger_prior"]


@dataclass
class Mode:
    """The mode under the chosen prior, and how it was come by."""

    objective: SoftmaxObjective
    theta: np.ndarray
    solution: Solution
    laplace: Laplace | None = None
    path: list[EvidencePoint] | None = None
    converged: bool | None = None


def mode_of(objective: SoftmaxObjective, settings: BayesianSettings) -> Mode:
    """Under a given prior."""
    return Mode(objective, *_solve(objective, settings, np.zeros(objective.shape)))


def mode_by_evidence(
    likelihood: StandardLikelihood, settings: BayesianSettings, structure: str, shape: tuple[int, int]
) -> Mode:
    """One precision for all weights ("evidence") or one per feature ("ard"), and the mode that goes with it."""
    K, D = shape
    ard = settings.prior == "ard"
    centre = likelihood.coordinates.centre if settings.fit_intercept else None
    n_weights = D if ard else 1

    def problem_at(u: np.ndarray) -> SoftmaxObjective:
        return _problem_at(likelihood, settings, shape, u)

    start = np.zeros(n_weights)
    theta = np.zeros((K, D + settings.fit_intercept))
    first = problem_at(start)
    if not forms_hessian(first):
        best, status, _ = run(Automatic().steps(first, theta, 1e-9), settings.max_iter, settings.report)
        theta = best.theta
        if status is Status.INTERRUPTED:
            return Mode(first, *_interrupted(first, theta))
    if structure != "full":
        return _fixed_point(problem_at, settings, structure, start, theta)
    groups = np.arange(D) if ard else np.zeros(D, dtype=int)
    lower, upper = np.full(n_weights, LOWEST), np.full(n_weights, HIGHEST)
    if settings.fit_intercept:  # the weak prior of the mean row's logit may prove not weak enough
        groups, start = np.append(groups, n_weights), np.append(start, np.log(WEAK))
        lower, upper = np.append(lower, np.log(WEAKEST)), np.append(upper, np.log(WEAK))
    evidence = Evidence(problem_at, groups, theta, centre, settings.tol)
    try:
        converged = maximise_evidence(evidence, start, (lower, upper))
    except KeyboardInterrupt:
        if evidence.found is None:
            raise
        objective = problem_at(evidence.path[-1].u)
        return Mode(objective, *_interrupted(objective, evidence.theta), path=evidence.path, converged=False)
    objective, found = problem_at(evidence.path[-1].u), evidence.found
    assert found is not None
    theta, solution = _certified(objective, found, settings, len(evidence.path))
    same = theta is found.posterior.mean
    return Mode(objective, theta, solution, found if same else None, evidence.path, converged)


def with_stronger_prior(
    likelihood: StandardLikelihood, settings: BayesianSettings, shape: tuple[int, int], found: Mode, factor: float
) -> Mode:
    """The mode with the weights' precision multiplied by a factor, after a search by evidence."""
    assert found.path
    u = found.path[-1].u.copy()
    n_weights = shape[1] if settings.prior == "ard" else 1
    u[:n_weights] = np.minimum(u[:n_weights] + np.log(factor), HIGHEST)
    objective = _problem_at(likelihood, settings, shape, u)
    theta, solution = _solve(objective, settings, found.theta)
    return Mode(objective, theta, solution, path=found.path, converged=found.converged)


def _problem_at(
    likelihood: StandardLikelihood, settings: BayesianSettings, shape: tuple[int, int], u: np.ndarray
) -> SoftmaxObjective:
    """The log posterior with log-precisions u: of all weights or of each feature's, then of the mean row's logit."""
    K, D = shape
    n_weights = D if settings.prior == "ard" else 1
    values = np.full((K, D + settings.fit_intercept), WEAK)
    values[:, :D] = np.exp(u[:n_weights])
    values[:, D:] = np.exp(u[n_weights:]) if u.size > n_weights else WEAK
    centre = likelihood.coordinates.centre if settings.fit_intercept else None
    return likelihood.objective(DiagonalPrecision(values, centre))


def _fixed_point(
    problem_at: Callable[[np.ndarray], SoftmaxObjective],
    settings: BayesianSettings,
    structure: str,
    u: np.ndarray,
    theta: np.ndarray,
) -> Mode:
    """MacKay's fixed point, for posteriors whose determinant has no slope worth its price."""
    D = theta.shape[1] - settings.fit_intercept
    for _ in range(20):
        objective = problem_at(u)
        theta, solution = _solve(objective, settings, theta)
        if solution.status is Status.INTERRUPTED:
            return Mode(objective, theta, solution, converged=False)
        posterior, _ = structured_posterior(objective, theta, structure)
        gamma = 1.0 - np.exp(u) * posterior.variances()[:, :D]
        squares = theta[:, :D] ** 2
        axis = None if u.size == 1 else 0
        new = np.log(np.maximum(gamma.sum(axis), 1e-3) / np.maximum(squares.sum(axis), 1e-300))
        change = np.clip(np.atleast_1d(new) - u, -3.0, 3.0)
        if np.abs(change).max() < 0.05:
            return Mode(objective, theta, solution, converged=True)
        u = np.clip(u + change, LOWEST, HIGHEST)
    return Mode(objective, theta, solution, converged=False)


def _certified(
    objective: SoftmaxObjective, found: Laplace, settings: BayesianSettings, n_iter: int
) -> tuple[np.ndarray, Solution]:
    """The mode of the search, if it is close enough to the optimum by its own Hessian; else solved for."""
    theta = found.posterior.mean
    value, gradient = objective.value_gradient(theta)
    gap = 0.5 * float(np.vdot(gradient, found.posterior.solve(gradient)))
    if not gap <= settings.tol * abs(value):
        return _solve(objective, settings, theta)
    return theta, _end(objective, theta, Status.CONVERGED, gap, n_iter)


def _interrupted(objective: SoftmaxObjective, theta: np.ndarray) -> tuple[np.ndarray, Solution]:
    return theta, _end(objective, theta, Status.INTERRUPTED, float("inf"), 0)


def _solve(objective: SoftmaxObjective, settings: BayesianSettings, start: np.ndarray) -> tuple[np.ndarray, Solution]:
    return solve(
        objective,
        settings.solver,
        start,
        tol=settings.tol,
        max_iter=settings.max_iter,
        random_state=settings.random_state,
        report=settings.report,
    )


def _end(objective: SoftmaxObjective, theta: np.ndarray, status: Status, gap: float, n_iter: int) -> Solution:
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
