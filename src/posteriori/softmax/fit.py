"""The Bayesian fit: prior, mode, curvature, approximation, and the reasons for each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import numpy as np

from posteriori.callbacks import CALLER_OF_FIT
from posteriori.exceptions import ApproximationWarning, ConvergenceWarning, SeparationWarning
from posteriori.softmax.approximation import Approximated, approximate
from posteriori.softmax.bayesian_settings import BayesianSettings
from posteriori.softmax.laplace import Laplace, laplace
from posteriori.softmax.leave_one_out import Referee
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.mode import Mode, find_mode
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.precision import Precision
from posteriori.softmax.priors import PriorInCoordinates
from posteriori.softmax.row_space import row_space
from posteriori.softmax.strength import Strength, StrengthPoint, Strengths
from posteriori.softmax.structures import FAMILIES, structure_for, structured_posterior
from posteriori.softmax.variational import climb, variational
from posteriori.solvers.solution import BayesianSolution, Solution, Status

__all__ = ["BayesianFit", "bayesian_fit", "warn_about"]

_NEARBY = 6
"""Passes towards the variational posterior of a prior whose neighbour's is known."""

Finished = Callable[[Posterior, Precision], Posterior]
"""What makes the posterior of a fit of one that is known under a prior."""


@dataclass(frozen=True)
class BayesianFit:
    """A fit in its own coordinates.

    Attributes
    ----------
    theta : ndarray (K, D')
        The mode.
    posterior : Posterior
    prior : PriorInCoordinates or None
        None where the prior has no precision.
    log_evidence : float or None
    solution : BayesianSolution
    log_likelihood : float
        At the mode.
    """

    theta: np.ndarray
    posterior: Posterior
    prior: PriorInCoordinates | None
    log_evidence: float | None
    solution: BayesianSolution
    log_likelihood: float


def bayesian_fit(likelihood: LinearLikelihood, settings: BayesianSettings) -> BayesianFit:
    """Fit in the coordinates of a likelihood, or where rows are fewer than features in the space that they span."""
    space = row_space(likelihood) if settings.prior.isotropic(likelihood) else None
    if space is None:
        return _fit(likelihood, settings, lambda posterior, prior: posterior)
    fit = _fit(space.likelihood, settings, space.posterior)
    assert fit.prior is not None
    reason = f"{fit.solution.structure_reason} in the space of {space.basis.shape[1]} rows"
    return replace(
        fit,
        theta=space.parameters(fit.theta),
        prior=PriorInCoordinates(None, space.precision(fit.prior.precision)),
        solution=replace(fit.solution, structure_reason=reason),
    )


def _fit(likelihood: LinearLikelihood, settings: BayesianSettings, finished: Finished) -> BayesianFit:
    """A fit whose posteriors, known under a prior, are finished by a function of both."""
    K, width = likelihood.shape
    structure, reason = structure_for(settings.posterior, likelihood.blocks, K, width)
    _require_compatible(settings, structure, reason)
    found = settings.prior.find_mode(likelihood, settings.solve, structure)
    if not settings.prior.proper:
        assert found.posterior is not None
        fitted = Approximated(found.posterior, "laplace", "the only one for an improper prior")
        solution = _solution(found, fitted, structure, reason)
        return BayesianFit(found.theta, fitted.posterior, None, None, solution, _log_likelihood(found))
    if structure != "full" or found.solution.status is Status.INTERRUPTED:
        fitted, log_evidence = _structured(found, "diagonal" if structure == "full" else structure, settings)
        solution = _solution(found, fitted, fitted.posterior.structure, reason)
        solution = replace(solution, strength_path=found.strength_path, strength_reason=found.strength_reason)
        outer = finished(fitted.posterior, found.objective.prior)
        return BayesianFit(found.theta, outer, _prior(found), log_evidence, solution, _log_likelihood(found))
    judged = _judged(likelihood, settings, found, finished)
    found, fitted = judged.found, judged.fitted
    solution = replace(
        _solution(found, fitted, structure, reason), strength_path=judged.path, strength_reason=judged.reason
    )
    if judged.interrupted:
        solution = replace(solution, status=Status.INTERRUPTED)
    prior, log_likelihood = _prior(found), _log_likelihood(found)
    return BayesianFit(found.theta, fitted.posterior, prior, judged.log_evidence, solution, log_likelihood)


def _structured(found: Mode, structure: str, settings: BayesianSettings) -> tuple[Approximated, float]:
    """A posterior that keeps fewer covariances, and the log evidence by it.

    It is too rough for probabilities: unless it was asked for, the mode alone predicts them.
    """
    theta, asked = found.theta, settings.approximation
    posterior, log_evidence = structured_posterior(found.objective, theta, structure)
    by_mode = asked == "auto" and settings.posterior == "auto"
    reason = "for intervals: it is too rough for more than that, and the mode alone predicts" if by_mode else "as asked"
    if asked == "laplace" or structure not in FAMILIES or found.solution.status is Status.INTERRUPTED:
        return Approximated(posterior, "laplace", reason, by_mode=by_mode), log_evidence
    family = FAMILIES[structure](found.objective)
    best = climb(family, theta, family.at_mode(theta))
    fitted = Approximated(best.posterior, "variational", reason, best.converged, by_mode=by_mode, variational=best)
    return fitted, max(log_evidence, best.bound)


@dataclass(frozen=True)
class _Judged:
    """A mode and a posterior that were chosen by what they predict.

    Attributes
    ----------
    found : Mode
    fitted : Approximated
    log_evidence : float
    path : list of StrengthPoint
        Strengths of the prior that were compared.
    reason : str
        Why the prior is as strong as it is.
    interrupted : bool
    """

    found: Mode
    fitted: Approximated
    log_evidence: float
    path: list[StrengthPoint] = field(default_factory=list)
    reason: str = ""
    interrupted: bool = False


def _judged(likelihood: LinearLikelihood, settings: BayesianSettings, found: Mode, finished: Finished) -> _Judged:
    """Choose the strength of the prior and the posterior by left-out rows, from the mode of highest evidence on."""
    at_mode = found.laplace or laplace(found.objective, found.theta)
    referee = Referee(found.objective.blocks, len(found.theta))
    family = settings.prior.strengths(likelihood, found.objective.prior)
    try:
        if family is None:
            return _approximated(found, at_mode, settings, referee, finished)
        strengths = Strengths(family.objective_at, found.objective, at_mode, referee)
        # an approximation that was asked for averages: what predicts well without it is no guide to its prior
        likely = [strengths[0]] if family.log_prior is None else strengths.likely(family.log_prior)
        best = strengths.best(unsure=len(likely) > 1) if settings.approximation == "auto" else strengths[0]
        if best.step != 0:
            found = _with_path(find_mode(best.objective, settings.solve, best.at_mode.posterior.mean), found)
            at_mode = laplace(found.objective, found.theta)
            reason = f"{best.factor:g} times the precision of highest evidence: left-out rows are predicted better"
            judged = _approximated(found, at_mode, settings, referee, finished)
            return replace(judged, path=strengths.path, reason=reason)
        judged = _approximated(found, at_mode, settings, referee, finished)
        if family.log_prior is None or judged.fitted.name == "importance":
            return replace(judged, path=strengths.path, reason="highest evidence")
        return _averaged(judged, strengths, likely, family.log_prior, finished)
    except KeyboardInterrupt:  # a mode is known: Laplace's posterior is what there is
        posterior = finished(at_mode.posterior, found.objective.prior)
        fitted = Approximated(posterior, "laplace", "interrupted before another was found")
        return _Judged(found, fitted, at_mode.log_evidence, interrupted=True)


def _approximated(
    found: Mode, at_mode: Laplace, settings: BayesianSettings, referee: Referee, finished: Finished
) -> _Judged:
    """A mode with the posterior asked for, or the one that the referee prefers."""
    fitted = approximate(found.objective, at_mode, settings, referee)
    outer = replace(fitted, posterior=finished(fitted.posterior, found.objective.prior))
    return _Judged(found, outer, _log_evidence(at_mode, fitted))


def _with_path(mode: Mode, searched: Mode) -> Mode:
    """A mode of another strength, with the path of the search that it came from."""
    return replace(mode, evidence_path=searched.evidence_path, evidence_converged=searched.evidence_converged)


def _log_evidence(at_mode: Laplace, fitted: Approximated) -> float:
    """The best estimate there is: by importance weights, or the higher of Laplace's and the variational bound."""
    if fitted.log_evidence is not None:
        return fitted.log_evidence
    return at_mode.log_evidence if fitted.bound is None else max(at_mode.log_evidence, fitted.bound)


def _averaged(
    judged: _Judged,
    strengths: Strengths,
    likely: list[Strength],
    log_prior: Callable[[float], float],
    finished: Finished,
) -> _Judged:
    """The posterior averaged over likely strengths of the prior, each with its own of the same approximation."""
    fitted = judged.fitted
    if len(likely) == 1:
        return replace(judged, path=strengths.path, reason="highest evidence")
    near, known = {0: fitted.variational}, {0: (fitted.posterior, judged.log_evidence)}
    for strength in sorted(likely, key=lambda each: abs(each.step)):
        at_mode, step = strength.at_mode, strength.step
        if step == 0:
            continue
        inner, log_evidence = at_mode.posterior, at_mode.log_evidence
        if fitted.name == "variational":
            before = near.get(step - 1 if step > 0 else step + 1, near[0])
            found = variational(
                strength.objective, inner.mean, at_mode.likelihood_hessian, max_iter=_NEARBY, near=before
            )
            inner, log_evidence, near[step] = found.posterior, max(log_evidence, found.bound), found
        known[step] = finished(inner, strength.objective.prior), log_evidence
    posteriors = [known[strength.step][0] for strength in likely]
    log_weights = [known[strength.step][1] + log_prior(strength.factor) for strength in likely]
    weights = np.exp(np.array(log_weights) - max(log_weights))
    mixture = replace(fitted, posterior=MixturePosterior(posteriors, weights / weights.sum()))
    reason = f"highest evidence; the posterior is averaged over {len(likely)} strengths"
    return replace(judged, fitted=mixture, path=strengths.path, reason=reason)


def _require_compatible(settings: BayesianSettings, structure: str, reason: str) -> None:
    """Raise if the approximation or the prior needs a full posterior, or a proper prior, and there is none."""
    asked = settings.approximation
    if (asked == "importance" and structure != "full") or (asked == "variational" and structure == "kronecker"):
        others = "posterior='full' or 'classes'" if asked == "variational" else "posterior='full'"
        raise ValueError(
            f"approximation={asked!r} needs a full posterior, and this one is {structure} ({reason}): "
            f"use approximation='laplace' or 'auto', or {others} if it fits."
        )
    if settings.prior.proper:
        return
    if structure != "full":
        raise ValueError(f"An improper prior needs a full posterior, and this one is {structure} ({reason}).")
    if asked not in ("auto", "laplace"):
        raise ValueError(f"approximation={asked!r} needs a proper prior, and this one is not: use 'laplace'.")


def _prior(found: Mode) -> PriorInCoordinates:
    return PriorInCoordinates(found.objective.mean, found.objective.prior)


def _log_likelihood(found: Mode) -> float:
    """log p(Y | X, theta) at the mode: minus J without the prior's part of it."""
    objective = found.objective
    centred = found.theta if objective.mean is None else found.theta - objective.mean
    value, _ = objective.value_gradient(found.theta)
    return 0.5 * float(np.vdot(objective.prior.times(centred), centred)) - value


def _solution(found: Mode, fitted: Approximated, structure: str, structure_reason: str) -> BayesianSolution:
    """The end of the solve for the mode, with the choices around it."""
    return BayesianSolution(
        **{f.name: getattr(found.solution, f.name) for f in fields(Solution)},
        structure=structure,
        structure_reason=structure_reason,
        approximation=fitted.name,
        approximation_reason=fitted.reason,
        approximation_converged=fitted.converged,
        scores=fitted.scores,
        predictive="plugin" if fitted.by_mode else "quasi",
        evidence_path=found.evidence_path,
        evidence_converged=found.evidence_converged,
        bound=fitted.bound,
        k_hat=fitted.k_hat,
        effective_sample_size=fitted.effective_sample_size,
    )


def warn_about(solution: BayesianSolution, n_draws: int, classes: np.ndarray, names: list[str] | None) -> None:
    """Warn about what went wrong or may mislead, with a class of warnings for each kind of trouble."""
    if solution.status is Status.SEPARATED:
        proper = "a prior (prior='evidence', or a number)"
        which = "" if solution.separation is None else f"{solution.separation.sentence(classes, names, proper)} "
        warnings.warn(
            f"{which}Coefficients that grow have no standard errors: tables show them as infinite. With "
            "prior='jeffreys' and prior='evidence' they are finite.",
            SeparationWarning,
            stacklevel=CALLER_OF_FIT,
        )
    elif solution.status is not Status.CONVERGED:
        warnings.warn(
            f"Not converged ({solution.status.value}): after {solution.n_iter} iterations J is about "
            f"{solution.gap:.2g} above its minimum. Raise max_iter, or use solver='auto'.",
            ConvergenceWarning,
            stacklevel=CALLER_OF_FIT,
        )
    if solution.evidence_converged is False:
        warnings.warn(
            "The search for the prior of largest evidence has not reached it: give the precision as a number, "
            "or look at solution_.evidence_path.",
            ConvergenceWarning,
            stacklevel=CALLER_OF_FIT,
        )
    if solution.approximation_converged is False:
        warnings.warn(
            _unsettled(solution),
            ApproximationWarning,
            stacklevel=CALLER_OF_FIT,
        )
    if solution.k_hat is not None and solution.k_hat > min(0.7, 1.0 - 1.0 / np.log10(n_draws)):
        warnings.warn(
            f"Importance weights are unreliable (k-hat {solution.k_hat:.2f}, worth "
            f"{solution.effective_sample_size:.0f} draws): use approximation='variational', or more draws.",
            ApproximationWarning,
            stacklevel=CALLER_OF_FIT,
        )


def _unsettled(solution: BayesianSolution) -> str:
    """What a variational posterior that has not converged means, and what helps."""
    matter = "Intervals" if solution.predictive == "plugin" else "Probabilities and intervals"
    chosen = solution.evidence_converged is not None or bool(solution.strength_path)
    stronger = "a stronger prior" + (", such as GaussianPrior(precision=4 * model.prior_.precision)" if chosen else "")
    return (
        "The variational posterior was still changing when its steps ended. "
        f"{matter} may be off: compare them with approximation='importance', whose solution_.k_hat tells whether "
        f"it can be trusted, or use {stronger}."
    )
