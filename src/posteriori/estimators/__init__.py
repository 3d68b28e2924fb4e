"""The scikit-learn classes: here models meet inference and data."""

from posteriori.estimators.bayesian_softmax import BayesianSoftmaxRegression
from posteriori.estimators.gaussian_classifier import GaussianClassifier
from posteriori.estimators.softmax_regression import SoftmaxRegression

__all__ = ["BayesianSoftmaxRegression", "GaussianClassifier", "SoftmaxRegression"]
