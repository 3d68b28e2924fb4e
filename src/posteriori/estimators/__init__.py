"""The scikit-learn classes: here models meet inference and data. Each is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "BayesianSoftmaxRegression": "bayesian_softmax",
    "CalibratedClassifier": "calibrated_classifier",
    "ConformalClassifier": "conformal_classifier",
    "DeepGPClassifier": "deep_gp_classifier",
    "GPClassifier": "gp_classifier",
    "GaussianClassifier": "gaussian_classifier",
    "SoftmaxRegression": "softmax_regression",
    "TableEncoder": "table_encoder",
    "UtilityClassifier": "utility_classifier",
}

__all__ = [
    "BayesianSoftmaxRegression",
    "CalibratedClassifier",
    "ConformalClassifier",
    "DeepGPClassifier",
    "GPClassifier",
    "GaussianClassifier",
    "SoftmaxRegression",
    "TableEncoder",
    "UtilityClassifier",
]

if TYPE_CHECKING:
    from posteriori.estimators.bayesian_softmax import BayesianSoftmaxRegression
    from posteriori.estimators.calibrated_classifier import CalibratedClassifier
    from posteriori.estimators.conformal_classifier import ConformalClassifier
    from posteriori.estimators.deep_gp_classifier import DeepGPClassifier
    from posteriori.estimators.gaussian_classifier import GaussianClassifier
    from posteriori.estimators.gp_classifier import GPClassifier
    from posteriori.estimators.softmax_regression import SoftmaxRegression
    from posteriori.estimators.table_encoder import TableEncoder
    from posteriori.estimators.utility_classifier import UtilityClassifier


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'posteriori.estimators' has no attribute {name!r}")
    return getattr(import_module(f"posteriori.estimators.{_HOME[name]}"), name)
