"""posteriori: probabilistic multiclass classification.

Fit a belief about K classes to a table, get probabilities that can be trusted and proof of how close the fit is to its
optimum. Public names are imported on first use, so that ``import posteriori`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "SoftmaxRegression": "posteriori.estimators",
    "BayesianSoftmaxRegression": "posteriori.estimators",
    "GaussianClassifier": "posteriori.estimators",
    "GaussianPrior": "posteriori.models",
    "NormalInverseWishartPrior": "posteriori.models",
    "RidgePrior": "posteriori.models",
    "Newton": "posteriori.inference",
    "LBFGS": "posteriori.inference",
    "GradientDescent": "posteriori.inference",
    "StochasticGradient": "posteriori.inference",
    "Solution": "posteriori.inference",
    "Status": "posteriori.inference",
    "ApproximationWarning": "posteriori.exceptions",
    "ConvergenceWarning": "posteriori.exceptions",
    "SeparationWarning": "posteriori.exceptions",
    "SingularWarning": "posteriori.exceptions",
    "StorageError": "posteriori.exceptions",
    "StorageWarning": "posteriori.exceptions",
    "CalibratedClassifier": "posteriori.estimators",
    "DeepGPClassifier": "posteriori.estimators",
    "GPClassifier": "posteriori.estimators",
    "ConformalClassifier": "posteriori.estimators",
    "ConfusionUtilityDisplay": "posteriori.report",
    "DecisionRegionDisplay": "posteriori.report",
    "Decisions": "posteriori.decision",
    "ReliabilityDisplay": "posteriori.report",
    "UtilityCurveDisplay": "posteriori.report",
    "Utility": "posteriori.decision",
    "decide": "posteriori.decision",
    "UtilityClassifier": "posteriori.estimators",
    "TableEncoder": "posteriori.estimators",
    "load": "posteriori.storage",
    "predict_to": "posteriori.estimators.predict_to",
    "save": "posteriori.storage",
    "to_onnx": "posteriori.storage.onnx_export",
    "walkthrough": "posteriori.report",
}

__all__ = [
    "LBFGS",
    "ApproximationWarning",
    "BayesianSoftmaxRegression",
    "CalibratedClassifier",
    "ConformalClassifier",
    "ConfusionUtilityDisplay",
    "ConvergenceWarning",
    "DecisionRegionDisplay",
    "Decisions",
    "DeepGPClassifier",
    "GPClassifier",
    "GaussianClassifier",
    "GaussianPrior",
    "GradientDescent",
    "Newton",
    "NormalInverseWishartPrior",
    "ReliabilityDisplay",
    "RidgePrior",
    "SeparationWarning",
    "SingularWarning",
    "SoftmaxRegression",
    "Solution",
    "Status",
    "StochasticGradient",
    "StorageError",
    "StorageWarning",
    "TableEncoder",
    "Utility",
    "UtilityClassifier",
    "UtilityCurveDisplay",
    "__version__",
    "decide",
    "kernels",
    "load",
    "predict_to",
    "save",
    "to_onnx",
    "walkthrough",
]

if TYPE_CHECKING:
    from posteriori.decision import Decisions, Utility, decide
    from posteriori.estimators import (
        BayesianSoftmaxRegression,
        CalibratedClassifier,
        ConformalClassifier,
        DeepGPClassifier,
        GaussianClassifier,
        GPClassifier,
        SoftmaxRegression,
        TableEncoder,
        UtilityClassifier,
    )
    from posteriori.estimators.predict_to import predict_to
    from posteriori.exceptions import (
        ApproximationWarning,
        ConvergenceWarning,
        SeparationWarning,
        SingularWarning,
        StorageError,
        StorageWarning,
    )
    from posteriori.inference import LBFGS, GradientDescent, Newton, Solution, Status, StochasticGradient
    from posteriori.models import GaussianPrior, NormalInverseWishartPrior, RidgePrior
    from posteriori.report import (
        ConfusionUtilityDisplay,
        DecisionRegionDisplay,
        ReliabilityDisplay,
        UtilityCurveDisplay,
        walkthrough,
    )
    from posteriori.storage import load, save
    from posteriori.storage.onnx_export import to_onnx


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return import_module("posteriori.kernels")
    if name not in _HOME:
        raise AttributeError(f"module 'posteriori' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
