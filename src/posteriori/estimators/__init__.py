"""The scikit-learn classes: here models meet inference and data."""

from posteriori.estimators.bayesian_softmax import BayesianSoftmaxRegression
from posteriori.estimators.calibrated_classifier import CalibratedClassifier
from posteriori.estimators.conformal_classifier import ConformalClassifier
from posteriori.estimators.deep_gp_classifier import DeepGPClassifier
from posteriori.estimators.gaussian_classifier import GaussianClassifier
from posteriori.estimators.gp_classifier import GPClassifier
from posteriori.estimators.softmax_regression import SoftmaxRegression
from posteriori.estimators.table_encoder import TableEncoder
from posteriori.estimators.utility_classifier import UtilityClassifier

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
