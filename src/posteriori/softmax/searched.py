"""Priors whose precisions are searched: by the evidence, and by folds where Hessians are too large."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np

from posteriori.softmax.coordinates import CoordinateRule
from posteriori.softmax.evidence import (
    ENOUGH,
    HIGHEST,
    LOWEST,
    MANY_ROWS,
    Evidence,
    EvidencePoint,
    Hyperprior,
    maximise_evidence,
)
from posteriori.softmax.folds import Folds, best_factor
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mode import Mode, SolveSettings, certified, find_mode
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision, Precision
from posteriori.softmax.priors import WEAK, WEAKEST, StrengthFamily
from posteriori.softmax.structures import structured_posterior
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.newton import forms_hessian
from posteriori.solvers.solution import Solution, Status, run

__all__ = ["ArdPrior", "EvidencePrior", "SearchedPrior"]

_FIXED_POINT_FLOPS = 3e10
"""Cubes of the number of features that a fixed point may cost where it needs eigenvalues; 4 rounds in any case."""
_LEAST_DEALT, _MOST_DEALT = 20, 50_000
"""Rows from and up to which folds tell how strong the prior of a structured posterior should be."""
_FADES = 0.25
"""Share of a group's parameters that the data determine, below which a fixed point may take longer steps."""


class SearchedPrior(ABC):
    """A Gaussian prior on standardised columns whose precisions are those of highest evidence, one for each group.

    The logit of the mean row has a weak prior of its own, which the search may weaken further.
    """

    autoscale: ClassVar[bool] = True
    proper: ClassVar[bool] = True
    note: ClassVar[str]
    """Text that is added to the description of the prior that was found."""

    @abstractmethod
    def groups(self, D: int) -> np.ndarray:
        """The group of each of D features, (D,): whole numbers from 0 without gaps."""

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """Standardised columns."""
        return CoordinateRule(scaled=True, shift_allowed=has_intercept)

    def isotropic(self, likelihood: LinearLikelihood) -> bool:
        """Whether there is one group."""
        return bool((self.groups(likelihood.blocks.n_features) == 0).all())

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, structure: str) -> Mode:
        """The precisions of highest evidence, and the mode under them."""
        groups = self.groups(likelihood.blocks.n_features)
        hyperprior = self.hyperprior(likelihood)
        u = np.zeros(groups.max() + 1)
        objective, theta = _objective_at(likelihood, groups, u), np.zeros(likelihood.shape)
        if not forms_hessian(objective):
            best, status, _ = run(Automatic().steps(objective, theta, 1e-9), settings.max_iter, settings.report)
            theta = best.theta
            if status is Status.INTERRUPTED:
                return _interrupted(objective, theta, settings.tol)
            if structure == "full" and u.size == 1 and likelihood.observed.total_weight >= MANY_ROWS * theta.size:
                u = _by_sizes(theta[:, : groups.size])
                objective = _objective_at(likelihood, groups, u)
                best, status, _ = run(Automatic().steps(objective, theta, 1e-9), settings.max_iter, settings.report)
                theta = best.theta
                if status is Status.INTERRUPTED:
                    return _interrupted(objective, theta, settings.tol)
        if structure == "full":
            return _highest_evidence(likelihood, groups, settings, u, theta, hyperprior)
        if not _LEAST_DEALT <= likelihood.blocks.n_weighted <= _MOST_DEALT:
            return _fixed_point(likelihood, groups, settings, structure, u, theta)
        return self._by_folds(likelihood, groups, settings, structure, u, theta, hyperprior)

    def _by_folds(
        self,
        likelihood: LinearLikelihood,
        groups: np.ndarray,
        settings: SolveSettings,
        structure: str,
        u: np.ndarray,
        theta: np.ndarray,
        hyperprior: Hyperprior | None,
    ) -> Mode:
        """Precisions in the ratio that a fixed point has, if there are several, as strong as folds tell."""
        if u.size > 1:
            start = _fixed_point(likelihood, groups, settings, structure, u, theta)
            if start.solution.status is Status.INTERRUPTED:
                return start
            theta, prior = start.theta, start.objective.prior
        else:
            start_at = np.array([0.0 if hyperprior is None else hyperprior.centre])
            prior = _objective_at(likelihood, groups, start_at).prior
        family = self.strengths(likelihood, prior)
        folds = Folds(likelihood)
        try:
            factor, path = best_factor(folds, family.objective_at)
        except KeyboardInterrupt:
            return _interrupted(family.objective_at(1.0), np.mean(folds.modes, axis=0), settings.tol)
        mode = find_mode(family.objective_at(factor), settings, theta)
        converged = None if u.size == 1 else start.evidence_converged
        reason = "folds of the rows are predicted best"
        return replace(mode, evidence_converged=converged, strength_path=path, strength_reason=reason)

    def strengths(self, likelihood: LinearLikelihood, precision: Precision) -> StrengthFamily:
        """The precisions that were found times a factor.

        The prior of the mean row's logit stays as it is, but is never stronger than that of the weights.
        """
        groups = self.groups(likelihood.blocks.n_features)
        assert isinstance(precision, DiagonalPrecision)
        D = groups.size

        def objective_at(factor: float) -> SoftmaxObjective:
            values = precision.values.copy()
            values[:, :D] = np.clip(factor * values[:, :D], np.exp(LOWEST), np.exp(HIGHEST))
            values[:, D:] = np.minimum(values[:, D:], values[:, :D].max(axis=1, keepdims=True))
            return likelihood.objective(DiagonalPrecision(values, precision.centre))

        hyperprior = self.hyperprior(likelihood)
        if hyperprior is None:
            return StrengthFamily(objective_at, None)
        u = float(np.log(precision.values[0, 0]))
        return StrengthFamily(objective_at, lambda factor: hyperprior.log_density(u + np.log(factor)))

    def hyperprior(self, likelihood: LinearLikelihood) -> Hyperprior | None:
        """N(log(D/2), 1.5^2) of the one log-precision; None if there are several, or no column varies.

        All features together give a logit a variance of two, or four to five times as much or as little. D is the sum
        of the columns' variances: of standardised columns that vary, their number.
        """
        total = float(likelihood.observed.variance.sum())
        return Hyperprior(float(np.log(0.5 * total))) if total > 0 and self.isotropic(likelihood) else None


class EvidencePrior(SearchedPrior):
    """A prior with one precision for all weights."""

    note = " (by evidence)"

    def groups(self, D: int) -> np.ndarray:
        """One group."""
        return np.zeros(D, dtype=int)


class ArdPrior(SearchedPrior):
    """A prior with one precision for each feature: automatic relevance determination."""

    note = " (one per feature, by evidence)"

    def groups(self, D: int) -> np.ndarray:
        """A group for each feature."""
        return np.arange(D)


def _by_sizes(W: np.ndarray) -> np.ndarray:
    """The log-precision, (1,), of weights (K, D) that rows determine: their mean square tells it."""
    free = (len(W) - 1) * W.shape[1]
    return np.clip([np.log(free / max(float((W**2).sum()), 1e-300))], LOWEST, HIGHEST)


def _objective_at(likelihood: LinearLikelihood, groups: np.ndarray, u: np.ndarray) -> SoftmaxObjective:
    """The log posterior with log-precisions u: one for each group of weights, then that of the mean row's logit.

    If the last is left out, it is weak, and never stronger than those of the weights.
    """
    D, n_groups = groups.size, int(groups.max()) + 1
    values = np.full(likelihood.shape, min(WEAK, float(np.exp(u[:n_groups].max()))))
    values[:, :D] = np.exp(u[groups])
    if u.size > n_groups:
        values[:, D:] = np.exp(u[n_groups:])
    return likelihood.objective(DiagonalPrecision(values, _centre(likelihood)))


def _centre(likelihood: LinearLikelihood) -> np.ndarray | None:
    return likelihood.coordinates.centre if likelihood.has_intercept else None


def _highest_evidence(
    likelihood: LinearLikelihood,
    groups: np.ndarray,
    settings: SolveSettings,
    u: np.ndarray,
    theta: np.ndarray,
    hyperprior: Hyperprior | None,
) -> Mode:
    """The top of Laplace's evidence, and the mode there."""

    def objective_at(u: np.ndarray) -> SoftmaxObjective:
        return _objective_at(likelihood, groups, u)

    columns, lower, upper = groups, np.full(u.size, LOWEST), np.full(u.size, HIGHEST)
    if likelihood.has_intercept:  # the weak prior of the mean row's logit may prove not weak enough
        columns, u = np.append(groups, u.size), np.append(u, np.log(WEAK))
        lower, upper = np.append(lower, np.log(WEAKEST)), np.append(upper, np.log(WEAK))
    evidence = Evidence(objective_at, columns, theta, _centre(likelihood), settings.tol, hyperprior)
    try:
        converged = maximise_evidence(evidence, u, (lower, upper))
    except KeyboardInterrupt:
        if evidence.found is None:
            raise
        return _interrupted(objective_at(evidence.path[-1].u), evidence.theta, settings.tol, evidence.path)
    objective, found = objective_at(evidence.path[-1].u), evidence.found
    assert found is not None
    # the mode of the search will do if its own Hessian says that it is close enough to the optimum
    theta = found.posterior.mean
    value, gradient = objective.value_gradient(theta)
    gap = 0.5 * float(np.vdot(gradient, found.posterior.solve(gradient)))
    if gap <= settings.tol * abs(value):
        solution = _certified(objective, theta, Status.CONVERGED, gap, settings.tol, len(evidence.path))
        return Mode(objective, theta, solution, found, evidence.path, converged)
    mode = find_mode(objective, settings, theta)
    at_mode = found if np.array_equal(mode.theta, theta) else None
    return Mode(objective, mode.theta, mode.solution, at_mode, evidence.path, converged)


def _fixed_point(
    likelihood: LinearLikelihood,
    groups: np.ndarray,
    settings: SolveSettings,
    structure: str,
    u: np.ndarray,
    theta: np.ndarray,
) -> Mode:
    """MacKay's fixed point, for posteriors whose determinant has no slope worth its price.

    The search finds its modes by the automatic solver, and the solver that was asked for finds the last.
    """
    search = replace(settings, solver=Automatic())
    members = groups == np.arange(u.size)[:, None]  # (G, D)
    work = groups.size**3 if structure == "kronecker" else 1
    moved = before = np.zeros_like(u)
    for _ in range(int(np.clip(_FIXED_POINT_FLOPS / work, 4, 20))):
        mode = find_mode(_objective_at(likelihood, groups, u), search, theta)
        theta = mode.theta
        converged = False
        if mode.solution.status is Status.INTERRUPTED:
            break
        posterior, _ = structured_posterior(mode.objective, theta, structure)
        gamma = members @ (1.0 - np.exp(u[groups]) * posterior.variances()[:, : groups.size]).sum(axis=0)
        squares = members @ (theta[:, : groups.size] ** 2).sum(axis=0)
        left = np.log(np.maximum(gamma, 1e-3) / np.maximum(squares, 1e-300)) - u
        nats = 0.5 * np.abs((gamma - np.exp(u) * squares) * left)
        converged = bool(((np.abs(left) < 0.05) | (nats < ENOUGH)).all())
        if converged:
            break
        # a group without effect creeps towards infinity: the secant of what is left sees that, and takes longer steps
        fades = (gamma < _FADES * len(theta) * members.sum(axis=1)) & (moved != 0)
        slope = np.divide(before - left, moved, out=np.ones_like(u), where=fades)
        change = np.clip(left / np.clip(slope, 0.1, 1.0), -3.0, 3.0)
        moved, before = np.clip(u + change, LOWEST, HIGHEST) - u, left
        u = u + moved
    if settings.solver != search.solver and mode.solution.status is not Status.INTERRUPTED:
        mode = find_mode(mode.objective, settings, theta)
    return Mode(mode.objective, mode.theta, mode.solution, evidence_converged=converged)


def _certified(
    objective: SoftmaxObjective, theta: np.ndarray, status: Status, decrement: float, tol: float, n_iter: int
) -> Solution:
    """The record of a mode that the search itself found."""
    _, bound = objective.certificate.bounded(theta)
    return certified(objective, theta, status, decrement, bound, tol=tol, trace=[], n_iter=n_iter)


def _interrupted(
    objective: SoftmaxObjective, theta: np.ndarray, tol: float, path: list[EvidencePoint] | None = None
) -> Mode:
    """The state of a search that was interrupted."""
    solution = _certified(objective, theta, Status.INTERRUPTED, float("inf"), tol, 0)
    converged = None if path is None else False
    return Mode(objective, theta, solution, None, path or [], converged)
