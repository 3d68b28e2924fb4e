"""Any classifier, made to act: predictions are the actions with the highest expected utility."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.validation import check_is_fitted

from posteriori.decision import Decisions, Utility, decide
from posteriori.decision.utility import codes_of
from posteriori.left_out.result import LeftOut
from posteriori.meta.routing import fit_metadata, fit_router, if_estimator_has
from posteriori.parameters import require_count
from posteriori.rows.engines import read_labels
from posteriori.rows.schema import adopt_features

__all__ = ["UtilityClassifier"]


class UtilityClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """A classifier whose predictions are actions, each the best in expectation.

    Parameters
    ----------
    estimator : classifier with `predict_proba`
        A classifier of any library with scikit-learn's interface, or a pipeline. A clone of it is fitted.
    utility : Utility or None, default None
        What each action is worth in each class, matched by name; None is zero-one, whose best action is the most
        probable class. Utilities of single rows, an (n, K, A) array, are passed to `predict`, `decide` and `score`.
    n_draws : int, default 0
        With an estimator that has `sample_proba`, draws of the probabilities for `decide`, which then also says how
        probable it is that each action is best, and what the uncertainty of the parameters costs.

    Attributes
    ----------
    estimator_ : the fitted clone
    classes_ : ndarray (K,)
    actions_ : ndarray (A,)

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)  # 0 is malignant
    >>> utility = Utility([[0, -20], [-1, 0]], states=[0, 1], actions=["biopsy", "wait"])
    >>> UtilityClassifier(GaussianNB(), utility).fit(X, y).predict(X[:2])
    array(['biopsy', 'biopsy'], dtype='<U6')
    """

    def __init__(self, estimator: Any, utility: Utility | None = None, *, n_draws: int = 0) -> None:
        self.estimator = estimator
        self.utility = utility
        self.n_draws = n_draws

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """The routing of metadata: that of `fit` goes to the estimator, utilities to methods of this class."""
        return fit_router(self)

    def fit(self, X: Any, y: Any, **fit_params: Any) -> UtilityClassifier:
        """Fit the estimator; further arguments, such as `sample_weight`, go to its `fit`."""
        if not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator={self.estimator!r} has no predict_proba: expected utilities need probabilities."
            )
        if self.utility is not None and not isinstance(self.utility, Utility):
            raise TypeError(f"utility={self.utility!r} must be a Utility or None.")
        require_count("n_draws", self.n_draws)
        estimator = clone(self.estimator).fit(X, y, **fit_metadata(self, fit_params).estimator.fit)
        utility = self._utility_for(estimator.classes_)
        self.estimator_, self.classes_ = estimator, estimator.classes_
        self.actions_ = utility.actions
        adopt_features(self, estimator)
        return self

    def decide(self, X: Any, utility: Any = None) -> Decisions:
        """Actions, with the expected utilities of all, margins and the value of information.

        Parameters
        ----------
        X : rows, as for the estimator
        utility : array (n, K, A) or Utility, optional
            The utilities of these rows, in place of the constructor's; an array has the classes in the order of
            `classes_`.
        """
        check_is_fitted(self, "estimator_")
        known = self._utility_for(self.classes_) if utility is None else self._given(utility)
        draws = None
        if self.n_draws:
            if not hasattr(self.estimator_, "sample_proba"):
                raise ValueError(f"n_draws={self.n_draws} needs an estimator with sample_proba: {self.estimator_!r}.")
            draws = self.estimator_.sample_proba(X, self.n_draws, 0)
        P = self.estimator_.predict_proba(X)
        return decide(P, known, classes=self.classes_, X=X, draws=draws)

    def predict(self, X: Any, utility: Any = None) -> np.ndarray:
        """The best action of each row, (n,); a `utility` is as in `decide`."""
        return self.decide(X, utility).actions

    def score(self, X: Any, y: Any, sample_weight: Any = None, utility: Any = None) -> float:
        """Mean realised utility: what the actions taken were worth, given the true classes y."""
        check_is_fitted(self, "estimator_")
        known = self._utility_for(self.classes_) if utility is None else self._given(utility)
        codes = self.decide(X, utility).codes
        states = codes_of(read_labels(X, y), self.classes_)
        known = known.ordered(self.classes_)
        U = known.matrix if known.function is None else known.of_rows(X)
        assert U is not None
        realised = U[states, codes] if U.ndim == 2 else U[np.arange(len(codes)), states, codes]
        return float(np.average(realised, weights=read_labels(X, sample_weight)))

    @if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, those of the estimator."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(X)

    @if_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, those of the estimator."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_log_proba(X)

    @if_estimator_has("loo")
    def loo(self, *rows: Any, **options: Any) -> LeftOut:
        """Each row of the fit predicted without itself, by the estimator's own `loo`, which says what it takes."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.loo(*rows, **options)

    @if_estimator_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Values of the estimator's own decision function."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(X)

    def _utility_for(self, classes: np.ndarray) -> Utility:
        if self.utility is None:
            return Utility.zero_one(classes)
        return self.utility.ordered(classes)

    def _given(self, utility: Any) -> Utility:
        """Utilities of single rows as they were passed to a method."""
        if isinstance(utility, Utility):
            return utility.ordered(self.classes_)
        actions = self._utility_for(self.classes_).actions
        return Utility(utility, self.classes_, actions)
