"""The Bayesian fit: prior, mode, curvature, approximation, and a record of each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from posteriori.rows.target import Target
from posteriori.softmax.approximation import Approximated, approximate
from posteriori.softmax.jeffreys import JeffreysProblem, fisher_scoring
from posteriori.softmax.laplace import Laplace, laplace
from posteriori.softmax.likelihood import StandardLikelihood
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.prior_search import Mode, mode_by_evidence, mode_of, with_stronger_prior
from posteriori.softmax.priors import Prior
from posteriori.softmax.settings import BayesianSettings
from posteriori.softmax.structured import structure_for, structured_posterior
from posteriori.solvers.solution import BayesianSolution, Solution, Status, run

__all__ = ["BayesianFit", "bayesian_fit"]

_FAR_WORSE = 0.05
"""Nats a row."""
_STRONGER = (4.0, 16.0, 64.0, 256.0)


@dataclass(frozen=True)
class BayesianFit:
    """A fit in standard coordinates."""

    theta: np.ndarray
    """The mode, (K, D')."""
    posterior: Posterior
    prior: Prior | None
    """None for Jeffreys'."""
    log_evidence: float | None
    solution: BayesianSolution


def bayesian_fit(likelihood: StandardLikelihood, target: Target, settings: BayesianSettings) -> BayesianFit:
    """Fit in standard coordinates."""
    K, D = len(target.classes), likelihood.blocks.n_features
    width = D + settings.fit_intercept
    structure, reason = structure_for(settings, likelihood.blocks.n_rows, K, width)
    if structure != "full" and settings.approximation in ("variational", "importance"):
        raise ValueError(
            f"approximation={settings.approximation!r} needs a full posterior, and this one is {structure} ({reason}): "
            "use approximation='laplace' or 'auto', or posterior='full' if it fits."
        )
    if settings.prior == "jeffreys":
        return _jeffreys(likelihood, settings, structure, reason, (K, width))
    if settings.prior in ("evidence", "ard"):
        found = mode_by_evidence(likelihood, settings, structure, (K, D))
    else:
        prior = settings.prior.within(K, D, settings.fit_intercept, likelihood.coordinates)
        objective = likelihood.objective(prior.precision, prior.mean)
        found = mode_of(objective, settings)
    prior = Prior(found.objective.mean, found.objective.prior)
    record: dict[str, Any] = {
        "structure": structure,
        "structure_reason": reason,
        "evidence_path": found.path or [],
        "evidence_converged": found.converged,
    }
    if structure != "full" or found.solution.status is Status.INTERRUPTED:
        posterior, log_evidence = structured_posterior(
            found.objective, found.theta, "diagonal" if structure == "full" else structure
        )
        record |= {
            "structure": posterior.structure,
            "approximation_reason": f"the only one for a {structure} posterior",
        }
        return BayesianFit(found.theta, posterior, prior, log_evidence, _recorded(found.solution, record))
    at_mode = found.laplace or laplace(found.objective, found.theta)
    try:
        fitted = approximate(likelihood.blocks, found.objective, at_mode, target, settings)
        if _fails(fitted) and settings.prior in ("evidence", "ard"):
            found, at_mode, fitted = _rescued(likelihood, target, settings, (K, D), found, at_mode, fitted)
            prior = Prior(found.objective.mean, found.objective.prior)
    except KeyboardInterrupt:  # the mode is known: Laplace's posterior is what there is
        fitted = Approximated(at_mode.posterior, {"approximation_reason": "interrupted before another was found"})
        record["status"] = Status.INTERRUPTED
    record |= fitted.record
    log_evidence = at_mode.log_evidence if fitted.log_evidence is None else fitted.log_evidence
    return BayesianFit(found.theta, fitted.posterior, prior, log_evidence, _recorded(found.solution, record))


def _fails(fitted: Approximated) -> bool:
    """Whether left-out rows are predicted far worse than by the mode alone, by the best approximation there is."""
    scores = fitted.record.get("scores", {})
    return bool(scores) and _score(fitted) > 2.0 * scores["plugin"] + _FAR_WORSE


def _score(fitted: Approximated) -> float:
    return float(fitted.record["scores"][fitted.record["approximation"]])


def _rescued(
    likelihood: StandardLikelihood,
    target: Target,
    settings: BayesianSettings,
    shape: tuple[int, int],
    found: Mode,
    at_mode: Laplace,
    fitted: Approximated,
) -> tuple[Mode, Laplace, Approximated]:
    """Stronger priors, until a posterior predicts; the best of all is kept.

    The evidence is Laplace's. Where rows are all but separated, it may prefer a prior so weak that the posterior has no
    resemblance to a Gaussian.
    """
    best = found, at_mode, fitted
    for factor in _STRONGER:
        mode = with_stronger_prior(likelihood, settings, shape, found, factor)
        if mode.solution.status is Status.INTERRUPTED:
            break
        curvature = laplace(mode.objective, mode.theta)
        tried = approximate(likelihood.blocks, mode.objective, curvature, target, settings)
        if "scores" not in tried.record:
            break
        if _score(tried) < _score(best[2]):
            reason = f"{tried.record['approximation_reason']}, with {factor:g} times the precision of highest evidence"
            best = (
                mode,
                curvature,
                Approximated(tried.posterior, tried.record | {"approximation_reason": reason}, tried.log_evidence),
            )
        if not _fails(tried):
            break
    return best


def _jeffreys(
    likelihood: StandardLikelihood, settings: BayesianSettings, structure: str, reason: str, shape: tuple[int, int]
) -> BayesianFit:
    if structure != "full":
        raise ValueError(f"prior='jeffreys' needs a full posterior, and this one is {structure} ({reason}).")
    if settings.approximation not in ("auto", "laplace"):
        raise ValueError(
            f"approximation={settings.approximation!r} needs a proper prior, and Jeffreys' is none: use 'laplace'."
        )
    objective = likelihood.objective(np.zeros(shape))
    problem = JeffreysProblem(objective)
    best, status, trace = run(
        fisher_scoring(problem, np.zeros(shape), settings.tol), settings.max_iter, settings.report
    )
    solution = BayesianSolution(
        status=status,
        objective=best.objective,
        gradient_norm=trace[-1].gradient_norm,
        gap=float("inf") if best.gap is None else best.gap,
        gap_bound=None,
        n_iter=len(trace) - 1,
        n_passes=objective.blocks.n_passes,
        trace=trace,
        structure_reason=reason,
        approximation_reason="the only one for Jeffreys' prior",
    )
    return BayesianFit(best.theta, problem.posterior(best.theta), None, None, solution)


def _recorded(solution: Solution, record: dict[str, Any]) -> BayesianSolution:
    """The solve's record and that of the choices around it."""
    return BayesianSolution(**({f.name: getattr(solution, f.name) for f in fields(Solution)} | record))
