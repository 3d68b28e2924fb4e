"""From the mode to a posterior: Laplace's, a variational one or weighted draws, as asked or by the referee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.rows.blocks import Blocks, random_rows
from posteriori.rows.target import Target
from posteriori.softmax.importance import importance
from posteriori.softmax.laplace import Laplace
from posteriori.softmax.leave_one_out import left_out
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.settings import BayesianSettings
from posteriori.softmax.variational import Variational, variational

__all__ = ["Approximated", "approximate"]

_VARIATIONAL_PARAMETERS = 2_000
_VARIATIONAL_VALUES = 4e7
"""Rows x classes up to which "auto" tries a variational posterior."""
_REFEREE_ROWS = 2_000
"""Rows on which approximations are compared: a random sample if there are more."""
_REFEREE_FLOPS = 4e8
_ALIKE = 0.003
"""Share of the log-loss by which Laplace and plug-in must differ for a better approximation to be worth its price."""


@dataclass(frozen=True)
class Approximated:
    """A posterior, what is to be recorded of it, and its own log evidence if it has one."""

    posterior: Posterior
    record: dict[str, Any]
    log_evidence: float | None = None


def approximate(
    blocks: Blocks, objective: SoftmaxObjective, at_mode: Laplace, target: Target, settings: BayesianSettings
) -> Approximated:
    """The posterior asked for, or the one that the referee prefers."""
    asked = settings.approximation
    if asked == "laplace":
        return Approximated(at_mode.posterior, {"approximation": "laplace", "approximation_reason": "as asked"})
    theta, H_lik = at_mode.posterior.mean, at_mode.likelihood_hessian
    if asked == "importance":
        proposal = variational(objective, theta, H_lik)
        rng = np.random.default_rng(settings.random_state)
        weighed = importance(objective, proposal.posterior, settings.n_draws, rng)
        record = {
            "approximation": "importance",
            "approximation_reason": "as asked",
            "bound": proposal.bound,
            "k_hat": weighed.k_hat,
            "effective_sample_size": weighed.effective_sample_size,
        }
        return Approximated(weighed.posterior, record, weighed.log_evidence)
    if asked == "variational":
        found = variational(objective, theta, H_lik)
        return _of_variational(found, "as asked", {})
    return _by_referee(blocks, objective, at_mode, target)


def _of_variational(found: Variational, reason: str, scores: dict[str, float]) -> Approximated:
    record = {
        "approximation": "variational",
        "approximation_reason": reason,
        "approximation_converged": found.converged,
        "scores": scores,
        "bound": found.bound,
    }
    return Approximated(found.posterior, record)


def _by_referee(blocks: Blocks, objective: SoftmaxObjective, at_mode: Laplace, target: Target) -> Approximated:
    """Laplace where it predicts left-out rows as the plug-in does; else the better of it and a variational one."""
    X, Y, share = _referee_rows(blocks, target)

    def loss(log_p: np.ndarray) -> float:
        return float(-(share @ log_p) / share.sum())

    judged = left_out(at_mode.posterior, X, Y, np.minimum(share, 1.0))
    scores = {"plugin": loss(judged.plugin), "laplace": loss(judged.averaged)}

    def chosen(reason: str) -> Approximated:
        record = {"approximation": "laplace", "approximation_reason": reason, "scores": scores}
        return Approximated(at_mode.posterior, record)

    if abs(scores["laplace"] - scores["plugin"]) <= _ALIKE * scores["plugin"]:
        return chosen("left-out rows are predicted as well as by the mode: there is little to gain")
    K = len(target.classes)
    if len(at_mode.likelihood_hessian) > _VARIATIONAL_PARAMETERS or objective.n_rows * K > _VARIATIONAL_VALUES:
        return chosen("too large for a variational posterior")
    found = variational(objective, at_mode.posterior.mean, at_mode.likelihood_hessian)
    candidates = [found] if found.full_step is None else [found, found.full_step]
    losses = [loss(left_out(q.posterior, X, Y, np.minimum(share, 1.0), q.source).averaged) for q in candidates]
    found, scores["variational"] = candidates[int(np.argmin(losses))], min(losses)
    if scores["variational"] <= scores["laplace"]:
        return _of_variational(found, "it predicts left-out rows best", scores)
    return chosen("it predicts left-out rows best")


def _referee_rows(blocks: Blocks, target: Target) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some rows of the fit in standard coordinates, their targets (n, K) and weights."""
    K = len(target.classes)
    most = int(np.clip(_REFEREE_FLOPS / K**3, 200, _REFEREE_ROWS))
    X, Y, c = random_rows(blocks, target, most, np.random.default_rng(0))
    return X, np.eye(K)[Y] if Y.ndim == 1 else Y, np.ones(len(Y)) if c is None else c
