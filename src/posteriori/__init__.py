"""posteriori: probabilistic multiclass classification.

Fit a belief about K classes to a table, get probabilities that can be trusted and proof of how close the fit is to its
optimum. Public names are imported on first use, so that ``import posteriori`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "SoftmaxRegression": "posteriori.softmax.regression",
    "BayesianSoftmaxRegression": "posteriori.softmax.bayesian",
    "GaussianClassifier": "posteriori.gaussian.classifier",
    "BoostingClassifier": "posteriori.trees.boosting_classifier",
    "ForestClassifier": "posteriori.trees.forest_classifier",
    "GaussianPrior": "posteriori.softmax.priors",
    "NormalInverseWishartPrior": "posteriori.gaussian.niw",
    "RidgePrior": "posteriori.gaussian.niw",
    "Newton": "posteriori.solvers.newton",
    "LBFGS": "posteriori.solvers.lbfgs",
    "GradientDescent": "posteriori.solvers.gradient_descent",
    "StochasticGradient": "posteriori.solvers.stochastic",
    "Solution": "posteriori.solvers.solution",
    "Status": "posteriori.solvers.solution",
    "ApproximationWarning": "posteriori.exceptions",
    "ClassOrderWarning": "posteriori.exceptions",
    "ColumnWarning": "posteriori.exceptions",
    "ConvergenceWarning": "posteriori.exceptions",
    "SeparationWarning": "posteriori.exceptions",
    "SingularWarning": "posteriori.exceptions",
    "StorageError": "posteriori.exceptions",
    "StorageWarning": "posteriori.exceptions",
    "UnseenLevelWarning": "posteriori.exceptions",
    "WeightWarning": "posteriori.exceptions",
    "CalibratedClassifier": "posteriori.meta.calibrated_classifier",
    "DeepGPClassifier": "posteriori.gp.deep_classifier",
    "GPClassifier": "posteriori.gp.classifier",
    "ConformalClassifier": "posteriori.meta.conformal_classifier",
    "LeftOut": "posteriori.left_out",
    "Comparison": "posteriori.meta.comparison",
    "ComparisonDisplay": "posteriori.reports",
    "ConfusionUtilityDisplay": "posteriori.reports",
    "DecisionRegionDisplay": "posteriori.reports",
    "Decisions": "posteriori.decision",
    "Evaluation": "posteriori.reports",
    "PosteriorCheck": "posteriori.decision.replication",
    "PosteriorCheckDisplay": "posteriori.reports",
    "ReliabilityDisplay": "posteriori.reports",
    "Report": "posteriori.reports",
    "UtilityCurveDisplay": "posteriori.reports",
    "Utility": "posteriori.decision",
    "compare": "posteriori.meta.comparison",
    "decide": "posteriori.decision",
    "evaluate": "posteriori.reports",
    "StackedClassifier": "posteriori.meta.stacked_classifier",
    "UtilityClassifier": "posteriori.meta.utility_classifier",
    "TableEncoder": "posteriori.tables.encoder",
    "load": "posteriori.storage",
    "posterior_check": "posteriori.meta.checking",
    "predict_to": "posteriori.meta.predict_to",
    "report": "posteriori.reports",
    "save": "posteriori.storage",
    "onnx_inputs": "posteriori.storage.onnx_tables",
    "to_onnx": "posteriori.storage.onnx_export",
    "walkthrough": "posteriori.reports",
}

__all__ = [
    "LBFGS",
    "ApproximationWarning",
    "BayesianSoftmaxRegression",
    "BoostingClassifier",
    "CalibratedClassifier",
    "ClassOrderWarning",
    "ColumnWarning",
    "Comparison",
    "ComparisonDisplay",
    "ConformalClassifier",
    "ConfusionUtilityDisplay",
    "ConvergenceWarning",
    "DecisionRegionDisplay",
    "Decisions",
    "DeepGPClassifier",
    "Evaluation",
    "ForestClassifier",
    "GPClassifier",
    "GaussianClassifier",
    "GaussianPrior",
    "GradientDescent",
    "LeftOut",
    "Newton",
    "NormalInverseWishartPrior",
    "PosteriorCheck",
    "PosteriorCheckDisplay",
    "ReliabilityDisplay",
    "Report",
    "RidgePrior",
    "SeparationWarning",
    "SingularWarning",
    "SoftmaxRegression",
    "Solution",
    "StackedClassifier",
    "Status",
    "StochasticGradient",
    "StorageError",
    "StorageWarning",
    "TableEncoder",
    "UnseenLevelWarning",
    "Utility",
    "UtilityClassifier",
    "UtilityCurveDisplay",
    "WeightWarning",
    "__version__",
    "compare",
    "decide",
    "evaluate",
    "kernels",
    "load",
    "onnx_inputs",
    "posterior_check",
    "predict_to",
    "report",
    "save",
    "serve",
    "to_onnx",
    "walkthrough",
]

if TYPE_CHECKING:
    from posteriori.decision import Decisions, Utility, decide
    from posteriori.decision.replication import PosteriorCheck
    from posteriori.exceptions import (
        ApproximationWarning,
        ClassOrderWarning,
        ColumnWarning,
        ConvergenceWarning,
        SeparationWarning,
        SingularWarning,
        StorageError,
        StorageWarning,
        UnseenLevelWarning,
        WeightWarning,
    )
    from posteriori.gaussian.classifier import GaussianClassifier
    from posteriori.gaussian.niw import NormalInverseWishartPrior, RidgePrior
    from posteriori.gp.classifier import GPClassifier
    from posteriori.gp.deep_classifier import DeepGPClassifier
    from posteriori.left_out import LeftOut
    from posteriori.meta.calibrated_classifier import CalibratedClassifier
    from posteriori.meta.checking import posterior_check
    from posteriori.meta.comparison import Comparison, compare
    from posteriori.meta.conformal_classifier import ConformalClassifier
    from posteriori.meta.predict_to import predict_to
    from posteriori.meta.stacked_classifier import StackedClassifier
    from posteriori.meta.utility_classifier import UtilityClassifier
    from posteriori.reports import (
        ComparisonDisplay,
        ConfusionUtilityDisplay,
        DecisionRegionDisplay,
        Evaluation,
        PosteriorCheckDisplay,
        ReliabilityDisplay,
        Report,
        UtilityCurveDisplay,
        evaluate,
        report,
        walkthrough,
    )
    from posteriori.softmax.bayesian import BayesianSoftmaxRegression
    from posteriori.softmax.priors import GaussianPrior
    from posteriori.softmax.regression import SoftmaxRegression
    from posteriori.solvers.gradient_descent import GradientDescent
    from posteriori.solvers.lbfgs import LBFGS
    from posteriori.solvers.newton import Newton
    from posteriori.solvers.solution import Solution, Status
    from posteriori.solvers.stochastic import StochasticGradient
    from posteriori.storage import load, save
    from posteriori.storage.onnx_export import to_onnx
    from posteriori.storage.onnx_tables import onnx_inputs
    from posteriori.tables.encoder import TableEncoder
    from posteriori.trees.boosting_classifier import BoostingClassifier
    from posteriori.trees.forest_classifier import ForestClassifier


def __getattr__(name: str) -> Any:
    if name in ("kernels", "serve"):
        return import_module(f"posteriori.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'posteriori' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
