"""From probabilities to actions, and the scores that say whether the probabilities deserve trust: pure functions."""

from posteriori.decision.conformal import PredictionSets, calibrate, prediction_sets
from posteriori.decision.decisions import Decisions, decide
from posteriori.decision.matrix_scaling import MatrixScaling, fit_matrix_scaling
from posteriori.decision.scorers import brier_scorer, calibration_scorer, log_loss_scorer, utility_scorer
from posteriori.decision.scores import (
    BrierSplit,
    CalibrationError,
    brier_split,
    calibration_error,
    interval_coverage,
    log_loss,
    realised_utility,
    regret,
)
from posteriori.decision.utility import Utility

__all__ = [
    "BrierSplit",
    "CalibrationError",
    "Decisions",
    "MatrixScaling",
    "PredictionSets",
    "Utility",
    "brier_scorer",
    "brier_split",
    "calibrate",
    "calibration_error",
    "calibration_scorer",
    "decide",
    "fit_matrix_scaling",
    "interval_coverage",
    "log_loss",
    "log_loss_scorer",
    "prediction_sets",
    "realised_utility",
    "regret",
    "utility_scorer",
]
