"""Any classifier, with prediction sets that hold the true class as often as promised."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from posteriori.decision.conformal import Calibration, PredictionSets, calibrate, prediction_sets
from posteriori.decision.utility import codes_of
from posteriori.meta.routing import cut_to_rows, fit_metadata, fit_router, if_estimator_has
from posteriori.parameters import is_number, seed_from
from posteriori.rows.engines import label_vector, read_labels, require_in_memory, take_rows, without_column
from posteriori.rows.matrices import collected
from posteriori.rows.schema import adopt_features

__all__ = ["ConformalClassifier"]


class ConformalClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Split conformal prediction: sets of classes that miss the true one with probability at most alpha.

    Part of the rows is set aside before the estimator is fitted and used for nothing but calibration. The promise holds
    for any estimator, however wrong its probabilities, as long as new rows are like the old.

    Parameters
    ----------
    estimator : classifier with `predict_proba`
    alpha : float, default 0.1
    conformity : {"lac", "aps"}, default "lac"
        "lac" gives the smallest sets, "aps" sets that grow with the difficulty of a row.
    by_class : bool, default False
        Keep the promise for the rows of every class, not only for all rows together.
    calibration_size : float or int, default 0.25
        Share or number of rows set aside.
    random_state : int, RandomState or None
        Which rows are set aside, and how ties are settled; None is 0.

    Attributes
    ----------
    estimator_ : fitted on the remaining rows
    classes_ : ndarray (K,)
    calibration_ : Calibration
    n_calibration_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConformalClassifier(GaussianNB(), alpha=0.03).fit(X, y)
    >>> model.predict_set(X[[0, 83, 100]]).labels()
    [[0], [1, 2], [2]]
    """

    def __init__(
        self,
        estimator: Any,
        *,
        alpha: float = 0.1,
        conformity: str = "lac",
        by_class: bool = False,
        calibration_size: float = 0.25,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.conformity = conformity
        self.by_class = by_class
        self.calibration_size = calibration_size
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """The routing of metadata: that of `fit` goes to the estimator."""
        return fit_router(self)

    def fit(self, X: Any, y: Any, **fit_params: Any) -> ConformalClassifier:
        """Set rows aside, fit the estimator on the others, calibrate on those set aside.

        Further arguments, such as `sample_weight`, go to the estimator's `fit`, cut to its rows. Rows set aside all
        count equally: the promise is about rows as they come.
        """
        self._validate()
        X = collected(X)
        require_in_memory(X, "ConformalClassifier, which sets rows aside,")
        seed = self._seed()
        labels = label_vector(read_labels(X, y))
        X, _ = indexable(without_column(X, y), labels)
        train, held_out = self._split(labels, seed)
        params = cut_to_rows(fit_metadata(self, fit_params).estimator.fit, train, len(labels))
        estimator = clone(self.estimator).fit(take_rows(X, train), labels[train], **params)
        self._calibrated(estimator, take_rows(X, held_out), labels[held_out], seed)
        self._target: str | None = y if isinstance(y, str) else None
        return self

    def calibrate(self, estimator: Any, X: Any, y: Any) -> ConformalClassifier:
        """Calibrate a fitted estimator on rows that it has not seen, instead of `fit`."""
        self._validate()
        check_is_fitted(estimator)
        return self._calibrated(estimator, X, label_vector(y), self._seed())

    def predict_set(self, X: Any, alpha: float | None = None) -> PredictionSets:
        """The classes that cannot be excluded at level alpha (the constructor's if None)."""
        level = self.alpha if alpha is None else alpha
        return prediction_sets(self.predict_proba(X), self.calibration_, level, self.classes_)

    def predict(self, X: Any) -> np.ndarray:
        """The estimator's own predictions, (n,)."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(without_column(X, self._target))

    def predict_or_abstain(self, X: Any, abstain: Any = "abstain") -> np.ndarray:
        """The class of rows whose set holds one alone, `abstain` for all others, (n,)."""
        return self.predict_set(X).actions(abstain)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The estimator's own probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(without_column(X, self._target))

    @if_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the estimator's own probabilities, (n, K)."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_log_proba(without_column(X, self._target))

    @if_estimator_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Values of the estimator's own decision function."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(without_column(X, self._target))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _calibrated(self, estimator: Any, X: Any, y: np.ndarray, seed: int) -> ConformalClassifier:
        P = estimator.predict_proba(X)
        codes = codes_of(y, estimator.classes_)
        calibration: Calibration = calibrate(
            P,
            codes,
            score=self.conformity,  # type: ignore[arg-type]
            by_class=bool(self.by_class),
            seed=seed,
        )
        self.estimator_, self.classes_, self.calibration_ = estimator, estimator.classes_, calibration
        self.n_calibration_ = len(codes)
        self._target = None
        adopt_features(self, estimator)
        return self

    def _split(self, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to fit and rows to calibrate with; the only row of a class is fitted."""
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        single = counts[inverse] == 1
        rows = np.flatnonzero(~single)
        size = self.calibration_size
        if len(rows) < 2:
            raise ValueError(
                f"n_samples={len(labels)}, and no class has two rows: some are needed to fit, others to calibrate."
            )
        n_held_out = size * len(rows) if size < 1 else size
        room = len(rows) > 0 and min(n_held_out, len(rows) - n_held_out) >= (counts > 1).sum()
        train, held_out = train_test_split(
            rows, test_size=size, random_state=seed, stratify=labels[rows] if room else None
        )
        return np.sort(np.concatenate([train, np.flatnonzero(single)])), held_out

    def _validate(self) -> None:
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(f"estimator={self.estimator!r} has no predict_proba.")
        if not is_number(self.alpha) or not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha={self.alpha!r} must be between 0 and 1.")
        if self.conformity not in ("lac", "aps"):
            raise ValueError(f"conformity={self.conformity!r} is unknown: use 'lac' or 'aps'.")
        if not is_number(self.calibration_size) or not self.calibration_size > 0:
            raise ValueError(f"calibration_size={self.calibration_size!r} must be a share or a number of rows.")

    def _seed(self) -> int:
        return seed_from(self.random_state)
