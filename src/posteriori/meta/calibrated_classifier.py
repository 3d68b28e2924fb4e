r"""Any classifier, with its probabilities corrected by what they were worth on rows it had not seen.

All maps but "isotonic" act on z = log p:

.. math:: \text{temperature: } \beta z, \qquad \text{vector: } w_k z_k + b_k, \qquad \text{Dirichlet: } W z + b,

each followed by softmax. "auto" is the last of them after a temperature and some doubt, as strong as the evidence says
(`posteriori.decision.matrix_scaling`). "temperature" mixes the class frequencies in, and changes nothing unless that
pays (`posteriori.decision.temperature`). "vector" and "dirichlet" are softmax regressions with a Gaussian prior around
the map that changes nothing, W = I and b = 0. "isotonic" is scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from posteriori.decision import fit_matrix_scaling
from posteriori.decision.temperature import (
    Temperature,
    fit_temperature,
    likely_temperature,
    log_probabilities,
    with_doubt,
)
from posteriori.decision.utility import codes_of
from posteriori.meta.routing import cut_to_rows, fit_metadata, fit_router
from posteriori.parameters import is_number
from posteriori.rows.copies import comparable, group_copies
from posteriori.rows.engines import (
    label_vector,
    read_labels,
    require_in_memory,
    take_rows,
    without_column,
)
from posteriori.rows.matrices import collected
from posteriori.rows.schema import adopt_features
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.priors import GaussianPrior

__all__ = ["CalibratedClassifier"]

Folds = list[tuple[np.ndarray, np.ndarray]]
"""Numbers of the training rows and of the rows left out, for every fold."""

_METHODS = ("temperature", "auto", "vector", "dirichlet", "isotonic")
_FIXED = 1e8
"""Precision of a coefficient that is to stay where it is."""
_LEARNED = (
    "coef_", "intercept_", "temperature_", "doubt_", "frequencies_", "gain_", "gain_error_", "spreads_",
    "evidence_gain_",
)  # fmt: skip
_PARTS = 5
"""Folds are put together to so many parts, for each of which a temperature is learned."""


class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Calibrated probabilities from any classifier.

    The estimator predicts every row from folds without it, the map is fitted to these predictions, and the estimator is
    fitted again to all rows.

    Parameters
    ----------
    estimator : classifier with `predict_proba`
    method : {"temperature", "auto", "vector", "dirichlet", "isotonic"}, default "temperature"
        One number for all classes, with a share of the class frequencies, and only if that clearly pays on left-out
        folds; the same and a matrix with intercepts, all as far from no change as the evidence says; a slope and an
        intercept for each class; a matrix and intercepts; scikit-learn's isotonic regression for each class.
    cv : int, splitter or iterable, default 5
        Every row is left out exactly once. Folds that a number asks for are stratified, and keep twins together: rows
        with the same features and the same label, unless many rows agree by chance.
    precision : float, default 1.0
        The precision of the prior around the map that changes nothing, for "vector" and "dirichlet".

    Attributes
    ----------
    estimator_ : fitted to all rows
    classes_ : ndarray (K,)
    temperature_ : float, for "temperature" and "auto"
        1 / beta: above one where the estimator was too sure of itself.
    doubt_ : float, for "temperature" and "auto"
        The share of the class frequencies in the probabilities; for "auto", in those that the matrix is applied to.
    frequencies_ : ndarray (K,), for "temperature" and "auto"
        How frequent the classes are among the rows.
    gain_, gain_error_ : float, for "temperature"
        By how much the map lowers the log-loss of a row on folds from which it did not learn, and the standard error of
        that. If the gain is not above its error, `temperature_` is 1 and `doubt_` is 0.
    spreads_ : dict, for "auto"
        The standard deviations that the evidence gives to the four parts of the matrix and its intercepts:
        "temperature" (all slopes together), "slopes", "others" (what one class tells of another) and "offsets".
    evidence_gain_ : float, for "auto"
        Log evidence that such a matrix is needed, in nats.
    coef_, intercept_ : ndarray (K, K), (K,)
        Coefficients of the map on log-probabilities, for "auto" after temperature and doubt; not there with "isotonic".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CalibratedClassifier(GaussianNB()).fit(X, y)
    >>> model.temperature_ > 1  # naive Bayes was too sure of itself
    True
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

    def get_metadata_routing(self) -> MetadataRouter:
        """The routing of metadata: that of `fit` goes to the estimator, groups to the splitter."""
        return fit_router(self, splitter=check_cv(self.cv, classifier=True))

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> CalibratedClassifier:
        """Fit the map to out-of-fold predictions, and the estimator to all rows.

        Weights and further arguments go to the estimator's `fit`; weights count for the map too.
        """
        self._validate()
        X = collected(X)
        require_in_memory(X, "CalibratedClassifier, which predicts fold by fold,")
        labels, weights = label_vector(read_labels(X, y)), read_labels(X, sample_weight)
        X, _ = indexable(without_column(without_column(X, y), sample_weight), labels)
        weights = np.full(len(labels), float(weights)) if is_number(weights) else weights
        metadata = {"sample_weight": weights, **fit_params}
        routed = fit_metadata(self, metadata)
        folds = self._folds(X, labels, routed.splitter.split)
        if self.method == "isotonic":
            self._remember(self._isotonic(X, labels, folds, routed.estimator.fit, weights), y, sample_weight)
            return self
        estimator = clone(self.estimator).fit(X, labels, **routed.estimator.fit)
        codes = codes_of(labels, estimator.classes_)
        P, known = self._left_out(X, labels, folds, routed.estimator.fit, estimator.classes_)
        weights = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=float)
        told = known[np.arange(len(codes)), codes]  # a fold without rows of this class says nothing about the map
        Z = log_probabilities(P[told])
        if self.method == "temperature":
            frequencies = np.bincount(codes, weights, len(estimator.classes_)) / weights.sum()
            map_, gain = fit_temperature(Z, codes[told], _parts(folds, len(codes))[told], frequencies, weights[told])
            self._remember(estimator, y, sample_weight)
            self.temperature_, self.doubt_, self.frequencies_ = 1.0 / map_.slope, map_.doubt, frequencies
            self.gain_, self.gain_error_ = gain.mean, gain.error
            self.coef_, self.intercept_ = map_.slope * np.eye(len(frequencies)), np.zeros(len(frequencies))
        elif self.method == "auto":
            frequencies = np.bincount(codes, weights, len(estimator.classes_)) / weights.sum()
            first = likely_temperature(Z, codes[told], frequencies, weights[told])
            second = fit_matrix_scaling(first.log_proba(Z), codes[told], weights[told])
            self._remember(estimator, y, sample_weight)
            self.temperature_, self.doubt_, self.frequencies_ = 1.0 / first.slope, first.doubt, frequencies
            self.coef_, self.intercept_ = second.W, second.b
            self.spreads_, self.evidence_gain_ = second.spreads, second.gain
        else:
            coef, intercept = self._map(Z, codes[told], weights[told])
            self._remember(estimator, y, sample_weight)
            self.coef_, self.intercept_ = coef, intercept
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated class probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        if self._method == "isotonic":
            return self.estimator_.predict_proba(self._features(X))
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the calibrated class probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        if self._method == "isotonic":
            with np.errstate(divide="ignore"):
                return np.log(self.predict_proba(X))
        Z = log_probabilities(self.estimator_.predict_proba(self._features(X)))
        if self._method == "auto":
            Z = Temperature(1.0 / self.temperature_, self.doubt_, self.frequencies_).log_proba(Z)
            return log_softmax(Z @ self.coef_.T + self.intercept_, axis=1)
        calibrated = log_softmax(Z @ self.coef_.T + self.intercept_, axis=1)
        doubt = getattr(self, "doubt_", 0.0)  # models stored by older versions have none
        return with_doubt(calibrated, doubt, self.frequencies_) if doubt else calibrated

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Calibrated log-probabilities, (n, K); for two classes the log-odds of the second, (n,)."""
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _features(self, X: Any) -> Any:
        """Rows without the columns that were named as target and weights."""
        weight = getattr(self, "_weight", None)  # models stored by older versions have none
        return without_column(without_column(X, self._target), weight)

    def _validate(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"method={self.method!r} is unknown: use one of {[*_METHODS]}.")
        if not is_number(self.precision) or not 0.0 < self.precision < np.inf:
            raise ValueError(f"precision={self.precision!r} must be a positive number.")
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(f"estimator={self.estimator!r} has no predict_proba: there is nothing to calibrate.")

    def _folds(self, X: Any, labels: np.ndarray, params: dict[str, Any]) -> Folds:
        """The folds of all rows; where they are ours, twins are in the same one."""
        splitter = check_cv(self.cv, labels, classifier=True)
        if self.cv is None or is_number(self.cv):
            first = _first_twins(X, np.unique(labels, return_inverse=True)[1])
            if (folds := _folds_of_twins(splitter, first, labels)) is not None:
                return folds
        return _partition(splitter.split(X, labels, **params), len(labels))

    def _left_out(
        self, X: Any, labels: np.ndarray, folds: Folds, params: dict[str, Any], classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of every row from a fit without it, (n, K), and whether that fit knew the class, (n, K)."""
        P, known = np.zeros((len(labels), len(classes))), np.zeros((len(labels), len(classes)), dtype=bool)
        for train, test in folds:
            fold = clone(self.estimator).fit(
                take_rows(X, train), labels[train], **cut_to_rows(params, train, len(labels))
            )
            block = np.ix_(test, codes_of(fold.classes_, classes))
            P[block], known[block] = fold.predict_proba(take_rows(X, test)), True
        return P, known

    def _isotonic(
        self, X: Any, labels: np.ndarray, folds: Folds, params: dict[str, Any], weights: Any
    ) -> CalibratedClassifierCV:
        """Isotonic regressions by scikit-learn, on folds and with metadata that are already routed."""
        model = CalibratedClassifierCV(self.estimator, method="isotonic", cv=folds, ensemble=False)
        for_map_alone = weights is not None and "sample_weight" not in params
        with config_context(enable_metadata_routing=for_map_alone):
            try:
                model.fit(X, labels, **({"sample_weight": weights} if for_map_alone else params))
            except IndexError as error:  # scikit-learn counts the columns of probabilities by the classes of all rows
                raise ValueError(
                    "method='isotonic' needs rows of every class in every fold, and a fold or the declared classes of "
                    "the estimator differ from those of y: use fewer folds (cv), or method='temperature'."
                ) from error
        return model.set_params(cv=self.cv)

    def _map(self, Z: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W (K, K) and b (K,) of log-probabilities Z (n, K), for "vector" and "dirichlet"."""
        K = Z.shape[1]
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

    def _remember(self, estimator: Any, y: Any, sample_weight: Any) -> None:
        self._target, self._weight = (name if isinstance(name, str) else None for name in (y, sample_weight))
        for name in _LEARNED:
            self.__dict__.pop(name, None)
        self.estimator_, self.classes_, self._method = estimator, estimator.classes_, self.method
        adopt_features(self, estimator)


def _first_twins(X: Any, codes: np.ndarray) -> np.ndarray:
    """The number of the first row of each row's copies, (n,): a row's own if it is the first."""
    _, first, place = np.unique(group_copies(comparable(X), codes).groups, return_index=True, return_inverse=True)
    return first[place.reshape(-1)]


def _folds_of_twins(splitter: Any, first: np.ndarray, labels: np.ndarray) -> Folds | None:
    """The folds that a splitter makes of the first twins, with the others added to theirs.

    None if there are no twins, or all classes have fewer distinct rows than there are folds. A row whose twin is among
    the rows of a fit is no new row to it: its prediction looks better than that of a new row.
    """
    distinct, place = np.unique(first, return_inverse=True)
    sizes = np.unique(labels[distinct], return_counts=True)[1]
    if distinct.size == len(labels) or sizes.max() < splitter.get_n_splits():
        return None
    folds = []
    for _, left_out in splitter.split(np.zeros(distinct.size), labels[distinct]):
        out = np.isin(place, left_out)
        folds.append((np.flatnonzero(~out), np.flatnonzero(out)))
    return folds


def _partition(splits: Iterable[Any], n_rows: int) -> Folds:
    """Row numbers of training and left-out rows of every fold; raises unless every row is left out once."""
    rows = np.arange(n_rows)
    folds = [(rows[train], rows[test]) for train, test in splits]
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=n_rows)
    wrong = np.flatnonzero(times != 1)
    if wrong.size:
        raise ValueError(
            f"cv leaves row {wrong[0]} out {times[wrong[0]]} times: use folds that leave out every row once, such as "
            "StratifiedKFold."
        )
    return folds


def _parts(folds: Folds, n_rows: int) -> np.ndarray:
    """The part of each row, (n,): a fold, or several of many."""
    n_parts = min(_PARTS, len(folds))
    parts = np.empty(n_rows, dtype=int)
    for i, (_, test) in enumerate(folds):
        parts[test] = i * n_parts // len(folds)
    return parts
