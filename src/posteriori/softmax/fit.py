"""The Bayesian fit: prior, mode, curvature, approximation, and the reasons for each."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace

import numpy as np

from posteriori.exceptions import ApproximationWarning, ConvergenceWarning, SeparationWarning
from posteriori.softmax.approximation import Approximated, approximate
from posteriori.softmax.bayesian_settings import BayesianSettings
from posteriori.softmax.laplace import Laplace, laplace
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mode import Mode
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.priors import PriorInCoordinates
from posteriori.softmax.structured import structure_for, structured_posterior
from posteriori.solvers.solution import BayesianSolution, Solution, Status

__all__ = ["BayesianFit", "bayesian_fit", "warn_about"]

_FAR_WORSE = 0.05
"""Nats a row by which left-out rows may be predicted worse than by the mode, before a stronger prior is tried."""
_STRONGER = (4.0, 16.0, 64.0, 256.0)
_WORSE, _WORSE_NATS = 0.02, 0.01
"""The excess of a posterior's left-out log-loss over its mode's, as a share and in nats, that gives a warning."""


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
    """Fit in the coordinates of a likelihood."""
    K, width = likelihood.shape
    structure, reason = structure_for(settings.posterior, likelihood.blocks.n_rows, K, width)
    _require_compatible(settings, structure, reason)
    found = settings.prior.find_mode(likelihood, settings.solve, structure)
    if not settings.prior.proper:
        assert found.posterior is not None
        fitted = Approximated(found.posterior, "laplace", "the only one for an improper prior")
        solution = _solution(found, fitted, structure, reason)
        return BayesianFit(found.theta, fitted.posterior, None, None, solution, _log_likelihood(found))
    if structure != "full" or found.solution.status is Status.INTERRUPTED:
        kind = "diagonal" if structure == "full" else structure
        posterior, log_evidence = structured_posterior(found.objective, found.theta, kind)
        fitted = Approximated(posterior, "laplace", f"the only one for a {structure} posterior")
        solution = _solution(found, fitted, posterior.structure, reason)
        return BayesianFit(found.theta, posterior, _prior(found), log_evidence, solution, _log_likelihood(found))
    at_mode = found.laplace or laplace(found.objective, found.theta)
    interrupted = False
    try:
        fitted = approximate(found.objective, at_mode, settings)
        if _fails(fitted):
            found, at_mode, fitted = _with_stronger_prior(likelihood, settings, found, at_mode, fitted)
    except KeyboardInterrupt:  # the mode is known: Laplace's posterior is what there is
        interrupted = True
        fitted = Approximated(at_mode.posterior, "laplace", "interrupted before another was found")
    solution = _solution(found, fitted, structure, reason)
    if interrupted:
        solution = replace(solution, status=Status.INTERRUPTED)
    evidence = at_mode.log_evidence if fitted.log_evidence is None else fitted.log_evidence
    return BayesianFit(found.theta, fitted.posterior, _prior(found), evidence, solution, _log_likelihood(found))


def _require_compatible(settings: BayesianSettings, structure: str, reason: str) -> None:
    """Raise if the approximation or the prior needs a full posterior, or a proper prior, and there is none."""
    asked = settings.approximation
    if structure != "full" and asked in ("variational", "importance"):
        raise ValueError(
            f"approximation={asked!r} needs a full posterior, and this one is {structure} ({reason}): "
            "use approximation='laplace' or 'auto', or posterior='full' if it fits."
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


def _fails(fitted: Approximated) -> bool:
    """Whether left-out rows are predicted far worse than by the mode alone, by the best approximation there is."""
    return bool(fitted.scores) and fitted.score > 2.0 * fitted.scores["plugin"] + _FAR_WORSE


def _with_stronger_prior(
    likelihood: LinearLikelihood, settings: BayesianSettings, found: Mode, at_mode: Laplace, fitted: Approximated
) -> tuple[Mode, Laplace, Approximated]:
    """Stronger priors, until a posterior predicts; the best of all is kept.

    The evidence is Laplace's. Where rows are all but separated, it may prefer a prior so weak that the posterior has no
    resemblance to a Gaussian.
    """
    best = found, at_mode, fitted
    for factor in _STRONGER:
        mode = settings.prior.strengthened(likelihood, settings.solve, found, factor)
        if mode is None or mode.solution.status is Status.INTERRUPTED:
            break
        curvature = laplace(mode.objective, mode.theta)
        tried = approximate(mode.objective, curvature, settings)
        if not tried.scores:
            break
        if tried.score < best[2].score:
            reason = f"{tried.reason}, with {factor:g} times the precision of highest evidence"
            best = mode, curvature, replace(tried, reason=reason)
        if not _fails(tried):
            break
    return best


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
        evidence_path=found.evidence_path,
        evidence_converged=found.evidence_converged,
        bound=fitted.bound,
        k_hat=fitted.k_hat,
        effective_sample_size=fitted.effective_sample_size,
    )


def warn_about(solution: BayesianSolution, n_draws: int, classes: np.ndarray, names: list[str] | None) -> None:
    """Warn about what went wrong or may mislead, with a class of warnings for each kind of trouble."""
    if solution.status is Status.SEPARATED:
        which = "" if solution.separation is None else f"{solution.separation.sentence(classes, names)} "
        warnings.warn(
            f"{which}Coefficients that grow have no standard errors: tables show them as infinite. With "
            "prior='jeffreys' and prior='evidence' they are finite.",
            SeparationWarning,
            stacklevel=3,
        )
    elif solution.status is not Status.CONVERGED:
        warnings.warn(
            f"Not converged ({solution.status.value}): after {solution.n_iter} iterations J is about "
            f"{solution.gap:.2g} above its minimum. Raise max_iter, or use solver='auto'.",
            ConvergenceWarning,
            stacklevel=3,
        )
    if solution.evidence_converged is False:
        warnings.warn(
            "The search for the prior of largest evidence has not reached it: give the precision as a number, "
            "or look at solution_.evidence_path.",
            ConvergenceWarning,
            stacklevel=3,
        )
    if solution.approximation_converged is False:
        warnings.warn(
            "The variational posterior has not converged: compare solution_.bound with "
            "log_evidence_, or use a stronger prior.",
            ApproximationWarning,
            stacklevel=3,
        )
    if solution.scores:
        plugin, chosen = solution.scores["plugin"], solution.scores[solution.approximation]
        if chosen - plugin > max(_WORSE * plugin, _WORSE_NATS):
            warnings.warn(
                f"The {solution.approximation} posterior predicts left-out rows worse than its mode alone: "
                f"log-loss {chosen:.3g} against {plugin:.3g}. Classes are nearly separable; consider "
                "predictive='plugin' for probabilities, and distrust the intervals.",
                ApproximationWarning,
                stacklevel=3,
            )
    if solution.k_hat is not None and solution.k_hat > min(0.7, 1.0 - 1.0 / np.log10(n_draws)):
        warnings.warn(
            f"Importance weights are unreliable (k-hat {solution.k_hat:.2f}, worth "
            f"{solution.effective_sample_size:.0f} draws): use approximation='variational', or more draws.",
            ApproximationWarning,
            stacklevel=3,
        )
