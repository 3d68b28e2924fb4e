"""From the mode to a posterior: Laplace's, a variational one or weighted draws, as asked or by the referee."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from posteriori.rows.blocks import Blocks, random_rows
from posteriori.softmax.bayesian_settings import BayesianSettings
from posteriori.softmax.importance import importance
from posteriori.softmax.laplace import Laplace
from posteriori.softmax.leave_one_out import left_out
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.variational import Variational, variational

__all__ = ["Approximated", "approximate"]

_VARIATIONAL_PARAMETERS = 2_000
_VARIATIONAL_VALUES = 4e7
"""Rows x classes up to which "auto" tries a variational posterior."""
_VARIATIONAL_CUBES = 1e9
"""Rows x classes^3 up to which it does: each of its steps factors a matrix (K, K) for every row."""
_REFEREE_ROWS = 2_000
"""Rows on which approximations are compared: a random sample if there are more."""
_REFEREE_FLOPS = 4e8
_EQUAL_LOSS = 0.003
"""Share of the log-loss by which Laplace and plug-in must differ for a better approximation to be worth its price."""


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
        Left-out log-loss of each candidate; empty if there was no choice.
    log_evidence : float or None
        The estimate of the log evidence by this approximation, if it has one.
    bound, k_hat, effective_sample_size : float or None
        The variational bound; how far importance weights are to be trusted.
    """

    posterior: Posterior
    name: str
    reason: str
    converged: bool | None = None
    scores: dict[str, float] = field(default_factory=dict)
    log_evidence: float | None = None
    bound: float | None = None
    k_hat: float | None = None
    effective_sample_size: float | None = None

    @property
    def score(self) -> float:
        """The left-out log-loss of this approximation."""
        return self.scores[self.name]


def approximate(objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings) -> Approximated:
    """The posterior asked for, or the one that the referee prefers."""
    return _APPROXIMATIONS[settings.approximation](objective, at_mode, settings)


def _laplace(objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings) -> Approximated:
    return Approximated(at_mode.posterior, "laplace", "as asked")


def _variational(objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings) -> Approximated:
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    return _from_variational(found, "as asked", {})


def _importance(objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings) -> Approximated:
    proposal = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    rng = np.random.default_rng(settings.seed)
    weighted = importance(objective, proposal.posterior, settings.n_draws, rng)
    return Approximated(
        weighted.posterior,
        "importance",
        "as asked",
        log_evidence=weighted.log_evidence,
        bound=proposal.bound,
        k_hat=weighted.k_hat,
        effective_sample_size=weighted.effective_sample_size,
    )


def _by_referee(objective: SoftmaxObjective, at_mode: Laplace, settings: BayesianSettings) -> Approximated:
    """Laplace where it predicts left-out rows as well as the plug-in; else the better of it and a variational one."""
    K = objective.shape[0]
    X, Y, share = _referee_rows(objective.blocks, K)

    def loss(log_p: np.ndarray) -> float:
        return float(-(share @ log_p) / share.sum())

    judged = left_out(at_mode.posterior, X, Y, np.minimum(share, 1.0))
    scores = {"plugin": loss(judged.plugin), "laplace": loss(judged.averaged)}

    def laplace_because(reason: str) -> Approximated:
        return Approximated(at_mode.posterior, "laplace", reason, scores=scores)

    if abs(scores["laplace"] - scores["plugin"]) <= _EQUAL_LOSS * scores["plugin"]:
        return laplace_because("left-out rows are predicted as well as by the mode: there is little to gain")
    n = objective.n_rows
    many = n * K > _VARIATIONAL_VALUES or n * K**3 > _VARIATIONAL_CUBES
    if len(at_mode.likelihood_hessian) > _VARIATIONAL_PARAMETERS or many:
        return laplace_because("too large for a variational posterior")
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    candidates = [found] if found.full_step is None else [found, found.full_step]
    losses = [loss(left_out(q.posterior, X, Y, np.minimum(share, 1.0), q.source).averaged) for q in candidates]
    found, scores["variational"] = candidates[int(np.argmin(losses))], min(losses)
    if scores["variational"] <= scores["laplace"]:
        return _from_variational(found, "it predicts left-out rows best", scores)
    return laplace_because("it predicts left-out rows best")


def _from_variational(found: Variational, reason: str, scores: dict[str, float]) -> Approximated:
    return Approximated(found.posterior, "variational", reason, found.converged, scores, bound=found.bound)


_APPROXIMATIONS: dict[str, Callable[[SoftmaxObjective, Laplace, BayesianSettings], Approximated]] = {
    "auto": _by_referee,
    "laplace": _laplace,
    "variational": _variational,
    "importance": _importance,
}


def _referee_rows(blocks: Blocks, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A sample of the fit's rows in its coordinates, their targets (n, K) and weights (n,)."""
    most = int(np.clip(_REFEREE_FLOPS / K**3, 200, _REFEREE_ROWS))
    X, Y, c = random_rows(blocks, most, np.random.default_rng(0))
    return X, np.eye(K)[Y] if Y.ndim == 1 else Y, np.ones(len(Y)) if c is None else c
