r"""Any classifier, with its probabilities corrected by what they were worth on rows it had not seen.

All maps but one act on z = log p, and three of them are softmax regressions on it:

.. math:: \text{temperature: } \beta z, \qquad \text{vector: } w_k z_k + b_k, \qquad \text{Dirichlet: } W z + b,

with a Gaussian prior around the map that changes nothing, W = I and b = 0. "isotonic" is scikit-learn's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from posteriori.decision.utility import codes_of
from posteriori.parameters import is_number
from posteriori.rows.engines import label_vector, read_labels, require_in_memory, without_column
from posteriori.rows.schema import adopt_features
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.priors import GaussianPrior

__all__ = ["LOWEST", "CalibratedClassifier"]

_METHODS = ("temperature", "vector", "dirichlet", "isotonic")
LOWEST = -50.0
"""Log-probabilities below are taken for this: a class held impossible must not decide the whole map."""
_FIXED = 1e8
"""Precision of a coefficient that is to stay where it is."""


class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Calibrated probabilities from any classifier.

    The estimator predicts every row from folds without it, the map is fitted to these predictions, and the estimator is
    fitted again to all rows.

    Parameters
    ----------
    estimator : classifier with `predict_proba`
    method : {"temperature", "vector", "dirichlet", "isotonic"}, default "temperature"
        One number for all classes; a slope and an intercept for each class; a matrix and intercepts; scikit-learn's
        isotonic regression for each class.
    cv : int, splitter or iterable, default 5
    precision : float, default 1.0
        The precision of the prior around the map that changes nothing, for "vector" and "dirichlet".

    Attributes
    ----------
    estimator_ : fitted to all rows
    classes_ : ndarray (K,)
    temperature_ : float, for "temperature"
        1 / beta: above one where the estimator was too sure of itself.
    coef_, intercept_ : ndarray (K, K), (K,)
        Coefficients of the map on log-probabilities; not there with "isotonic".
    """

    def __init__(self, estimator: Any, *, method: str = "temperature", cv: Any = 5, precision: float = 1.0) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.precision = precision

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def fit(self, X: Any, y: Any, **fit_params: Any) -> CalibratedClassifier:
        """Fit the map to out-of-fold predictions, and the estimator to all rows.

        Further arguments go to the estimator's `fit`; `sample_weight` counts for the map too.
        """
        if self.method not in _METHODS:
            raise ValueError(f"method={self.method!r} is unknown: use one of {[*_METHODS]}.")
        if not is_number(self.precision) or not 0.0 < self.precision < np.inf:
            raise ValueError(f"precision={self.precision!r} must be a positive number.")
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(f"estimator={self.estimator!r} has no predict_proba: there is nothing to calibrate.")
        require_in_memory(X, "CalibratedClassifier, which predicts fold by fold,")
        labels, X = label_vector(read_labels(X, y)), without_column(X, y)
        if self.method == "isotonic":
            inner = CalibratedClassifierCV(self.estimator, method="isotonic", cv=self.cv, ensemble=False)
            self._remember(inner.fit(X, labels, **fit_params), y)
            return self
        estimator = clone(self.estimator).fit(X, labels, **fit_params)
        cv = check_cv(self.cv, labels, classifier=True)
        P = cross_val_predict(self.estimator, X, labels, cv=cv, method="predict_proba", params=fit_params)
        Z, codes = _logs(P), codes_of(labels, estimator.classes_)
        coef, intercept = self._map(Z, codes, fit_params.get("sample_weight"))
        self._remember(estimator, y)
        self.coef_, self.intercept_ = coef, intercept
        if self.method == "temperature":
            self.temperature_ = float(1.0 / coef[0, 0])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        if self._method == "isotonic":
            return self.estimator_.predict_proba(without_column(X, self._target))
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the calibrated class probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        if self._method == "isotonic":
            with np.errstate(divide="ignore"):
                return np.log(self.predict_proba(X))
        Z = _logs(self.estimator_.predict_proba(without_column(X, self._target)))
        return log_softmax(Z @ self.coef_.T + self.intercept_, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _map(self, Z: np.ndarray, codes: np.ndarray, weights: Any) -> tuple[np.ndarray, np.ndarray]:
        """W (K, K) and b (K,) of log-probabilities Z (n, K)."""
        K = Z.shape[1]
        if self.method == "temperature":
            return _slope(Z, codes, weights) * np.eye(K), np.zeros(K)
        # the intercept as a column of ones, so that the prior is around b = 0 and not around a logit of the mean row
        precision = np.full((K, K + 1), float(self.precision))
        if self.method == "vector":
            precision[:, :K][~np.eye(K, dtype=bool)] = _FIXED
        model = BayesianSoftmaxRegression(
            GaussianPrior(np.eye(K, K + 1), precision),
            approximation="laplace",
            classes=np.arange(K),
            fit_intercept=False,
        ).fit(np.column_stack([Z, np.ones(len(Z))]), codes, weights)
        coef, intercept = model.coef_[:, :K], model.coef_[:, K]
        return coef if self.method == "dirichlet" else np.diag(np.diag(coef)), intercept

    def _remember(self, estimator: Any, y: Any) -> None:
        self._target = y if isinstance(y, str) else None
        for name in ("coef_", "intercept_", "temperature_"):
            self.__dict__.pop(name, None)
        self.estimator_, self.classes_, self._method = estimator, estimator.classes_, self.method
        adopt_features(self, estimator)


def _logs(P: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(P), LOWEST)


def _slope(Z: np.ndarray, codes: np.ndarray, weights: Any) -> float:
    """The slope beta that minimises the cross-entropy of softmax(beta z): a convex function of one number."""
    own = Z[np.arange(len(codes)), codes]

    def loss(log_beta: float) -> float:
        F = np.exp(log_beta) * Z
        top = F.max(axis=1)
        losses = top + np.log(np.exp(F - top[:, None]).sum(axis=1)) - np.exp(log_beta) * own
        return float(np.average(losses, weights=weights))

    return float(np.exp(minimize_scalar(loss, bounds=(-7.0, 7.0), method="bounded", options={"xatol": 1e-8}).x))
