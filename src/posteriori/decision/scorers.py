"""Scorers for scikit-learn: ``cross_val_score(model, X, y, scoring=utility_scorer(utility))``.

Higher is better in all of them: losses and errors are negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.deciding import decide
from posteriori.decision.scores import brier_split, calibration_error, log_loss, realised_utility
from posteriori.decision.utility import Utility

__all__ = ["Scorer", "brier_scorer", "calibration_scorer", "log_loss_scorer", "utility_scorer"]


@dataclass(frozen=True)
class Scorer:
    """A score of a fitted classifier on some rows, as scikit-learn calls it."""

    name: str
    of: Callable[..., float]

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score."""
        return self.of(estimator, X, y, sample_weight)

    def __repr__(self) -> str:
        return self.name


def _log_loss(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    if hasattr(estimator, "predict_log_proba"):
        L = estimator.predict_log_proba(X)
    else:
        with np.errstate(divide="ignore"):
            L = np.log(estimator.predict_proba(X))
    return -log_loss(y, L, classes=estimator.classes_, sample_weight=sample_weight)


def _brier(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    P = estimator.predict_proba(X)
    return -brier_split(y, P, classes=estimator.classes_, sample_weight=sample_weight).score


def _calibration(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    P = estimator.predict_proba(X)
    return -calibration_error(y, P, classes=estimator.classes_, sample_weight=sample_weight).corrected


log_loss_scorer = Scorer("log_loss_scorer", _log_loss)
brier_scorer = Scorer("brier_scorer", _brier)
calibration_scorer = Scorer("calibration_scorer", _calibration)


def utility_scorer(utility: Utility) -> Scorer:
    """Mean realised utility of the best actions, given the estimator's probabilities."""

    def of(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
        known = utility.ordered(estimator.classes_)
        actions = decide(estimator.predict_proba(X), known, classes=estimator.classes_, X=X).actions
        return realised_utility(y, actions, known, X=X, sample_weight=sample_weight)

    return Scorer("utility_scorer", of)
