"""From the mode to a posterior: Laplace's, a variational one or weighted draws, as asked or by the referee."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from posteriori.softmax.bayesian_settings import BayesianSettings
from posteriori.softmax.importance import importance
from posteriori.softmax.laplace import Laplace
from posteriori.softmax.leave_one_out import Referee
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.variational import Variational, variational

__all__ = ["Approximated", "approximate"]

_ROUNDS, _FLOPS_A_SECOND, _SECONDS = 20, 2e10, 120.0
"""Rounds that a variational posterior takes, multiplications in a second, and the most seconds that "auto" spends."""
_EQUAL_LOSS = 0.003
"""Share of the log-loss by which Laplace and plug-in must differ for a better approximation to be worth its price."""
_HARMLESS = 0.01
"""Share of the log-loss by which averaged predictions may differ from those by the mode without proof."""
_PREDICTS_BEST = "it predicts left-out rows best"


@dataclass(frozen=True)
class Approximated:
    """A posterior, and how it was found.

    Attributes
    ----------
    posterior : Posterior
    name, reason : str
        Which approximation it is, and why.
    converged : bool or None
        Whether variational steps had settled.
    scores : dict of str to float
        Left-out log-loss of each candidate, "plugin" for the mode alone; empty if there was no choice.
    by_mode : bool
        Whether left-out rows are predicted best by the mode alone.
    log_evidence : float or None
        The estimate of the log evidence by this approximation, if it has one.
    variational : Variational or None
        How the variational posterior was found, if it is one, or the source of importance weights.
    k_hat, effective_sample_size : float or None
        How far importance weights are to be trusted.
    """

    posterior: Posterior
    name: str
    reason: str
    converged: bool | None = None
    scores: dict[str, float] = field(default_factory=dict)
    by_mode: bool = False
    log_evidence: float | None = None
    variational: Variational | None = None
    k_hat: float | None = None
    effective_sample_size: float | None = None

    @property
    def bound(self) -> float | None:
        """The variational bound on the log evidence, if there is one."""
        return None if self.variational is None else self.variational.bound


def approximate(
    objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings, referee: Referee
) -> Approximated:
    """The posterior asked for, or the one that the referee prefers."""
    return _APPROXIMATIONS[settings.approximation](objective, at_mode, settings, referee)


def _laplace(
    objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings, referee: Referee
) -> Approximated:
    return Approximated(at_mode.posterior, "laplace", "as asked")


def _variational(
    objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings, referee: Referee
) -> Approximated:
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    return _from_variational(found, "as asked")


def _importance(
    objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings, referee: Referee
) -> Approximated:
    proposal = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    rng = np.random.default_rng(settings.seed)
    weighted = importance(objective, proposal.posterior, settings.n_draws, rng)
    return Approximated(
        weighted.posterior,
        "importance",
        "as asked",
        log_evidence=weighted.log_evidence,
        variational=proposal,
        k_hat=weighted.k_hat,
        effective_sample_size=weighted.effective_sample_size,
    )


def _by_referee(
    objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings, referee: Referee
) -> Approximated:
    """Laplace where it predicts left-out rows as well as the mode does; else the better of it and a variational one.

    Where neither is known to predict them better than the mode alone, the mode makes the predictions, and the posterior
    is there for intervals.
    """
    if _plenty(objective, at_mode):
        return Approximated(at_mode.posterior, "laplace", "there are so many rows that all would predict the same")
    judged = referee.scores(at_mode.posterior)
    by_mode, averaged = judged.plugin, {"laplace": judged.averaged}
    best = Approximated(at_mode.posterior, "laplace", _PREDICTS_BEST)
    if _equal(referee.loss(judged.averaged), referee.loss(by_mode)):
        best = replace(best, reason="left-out rows are predicted as well as by the mode: there is little to gain")
    elif (seconds := _variational_seconds(objective)) > _SECONDS:
        best = replace(best, reason=f"a variational posterior would take about {seconds:.0f} s")
    else:
        found, averaged["variational"] = _best_variational(objective, at_mode, referee)
        if referee.loss(averaged["variational"]) <= referee.loss(averaged["laplace"]):
            best = _from_variational(found, _PREDICTS_BEST)
        if not _trusted(averaged[best.name], by_mode, referee):
            best = _from_variational(found, "for intervals: left-out rows are predicted as well by the mode alone")
    scores = {"plugin": referee.loss(by_mode)} | {name: referee.loss(log_p) for name, log_p in averaged.items()}
    return replace(best, scores=scores, by_mode=not _trusted(averaged[best.name], by_mode, referee))


def _plenty(objective: SoftmaxObjective, at_mode: Laplace) -> bool:
    """Whether averages over a posterior cannot differ from its mode: they do by about a parameter's share of a row."""
    total = objective.observed.total_weight
    loss = objective.loss(at_mode.posterior.mean) / total
    return len(at_mode.likelihood_hessian) / total <= _EQUAL_LOSS * loss


def _equal(loss: float, other: float) -> bool:
    return abs(loss - other) <= _EQUAL_LOSS * other


def _trusted(averaged: np.ndarray, by_mode: np.ndarray, referee: Referee) -> bool:
    """Whether averaged predictions (log-probabilities of rows) may take the place of those by the mode.

    They may if they differ by next to nothing, or are better by more than a standard error: left-out scores of averages
    are a little optimistic where classes hardly overlap.
    """
    gain, error = referee.gain(averaged, by_mode)
    return abs(gain) <= _HARMLESS * referee.loss(by_mode) or gain > error


def _best_variational(
    objective: SoftmaxObjective, at_mode: Laplace, referee: Referee
) -> tuple[Variational, np.ndarray]:
    """A variational posterior, and the log-probabilities of left-out rows averaged over it."""
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    candidates = [found] if found.full_step is None else [found, found.full_step]
    log_p = [referee.scores(each.posterior, each.source).averaged for each in candidates]
    best = int(np.argmin([referee.loss(each) for each in log_p]))
    return candidates[best], log_p[best]


def _variational_seconds(objective: SoftmaxObjective) -> float:
    """About how long a variational posterior takes: sums over pairs of classes, and factors of the precision."""
    (K, width), n = objective.shape, objective.n_rows
    of_rows = n * K * K * (width**2 + K)
    return _ROUNDS * (of_rows + 2.0 * ((K - 1) * width) ** 3) / _FLOPS_A_SECOND


def _from_variational(found: Variational, reason: str) -> Approximated:
    return Approximated(found.posterior, "variational", reason, found.converged, variational=found)


_APPROXIMATIONS: dict[str, Callable[[SoftmaxObjective, Laplace, BayesianSettings, Referee], Approximated]] = {
    "auto": _by_referee,
    "laplace": _laplace,
    "variational": _variational,
    "importance": _importance,
}
