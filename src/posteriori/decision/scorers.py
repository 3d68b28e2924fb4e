"""Scorers for scikit-learn: ``cross_val_score(model, X, y, scoring=utility_scorer(utility))``.

Higher is better in all of them: losses and errors are negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED

from posteriori.decision.decisions import decide
from posteriori.decision.scores import brier_split, calibration_error, log_loss, realised_utility
from posteriori.decision.utility import Utility

__all__ = ["Scorer", "brier_scorer", "calibration_scorer", "log_loss_scorer", "utility_scorer"]


class Scorer(BaseEstimator):
    """A score of a fitted classifier on some rows, as scikit-learn calls it.

    Parameters
    ----------
    kind : {"log_loss", "brier", "calibration", "utility"}
    utility : Utility, for "utility"
    """

    __metadata_request__score = {"estimator": UNUSED}  # noqa: RUF012 - not metadata: scikit-learn itself passes it

    def __init__(self, kind: str, utility: Utility | None = None) -> None:
        self.kind = kind
        self.utility = utility

    def __repr__(self) -> str:
        return f"{self.kind}_scorer"

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted classifier on rows X with labels y; higher is better."""
        return self.score(estimator, X, y, sample_weight=sample_weight)

    def score(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted classifier; `set_score_request` says whether weights are to be routed here."""
        classes = estimator.classes_
        if self.kind == "log_loss":
            return -log_loss(y, _log_proba(estimator, X), classes=classes, sample_weight=sample_weight)
        P = estimator.predict_proba(X)
        if self.kind == "brier":
            return -brier_split(y, P, classes=classes, sample_weight=sample_weight).score
        if self.kind == "calibration":
            return -calibration_error(y, P, classes=classes, sample_weight=sample_weight).corrected
        assert self.utility is not None
        known = self.utility.ordered(classes)
        actions = decide(P, known, classes=classes, X=X).actions
        return realised_utility(y, actions, known, X=X, sample_weight=sample_weight)


def _log_proba(estimator: Any, X: Any) -> np.ndarray:
    if hasattr(estimator, "predict_log_proba"):
        return estimator.predict_log_proba(X)
    with np.errstate(divide="ignore"):
        return np.log(estimator.predict_proba(X))


log_loss_scorer = Scorer("log_loss")
brier_scorer = Scorer("brier")
calibration_scorer = Scorer("calibration")


def utility_scorer(utility: Utility) -> Scorer:
    """Mean realised utility of the best actions, given the estimator's probabilities."""
    return Scorer("utility", utility)
