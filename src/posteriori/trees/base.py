"""What both ensembles of trees share as classifiers: how they read rows, and what they answer."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from posteriori.left_out.leaving import LeftOutMixin
from posteriori.rows.engines import label_vector, read_for_prediction, read_in_memory_for_fit, read_labels
from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.products import as_dense
from posteriori.rows.target import Target
from posteriori.threads import one_blas_thread, usable_threads

__all__ = ["FittedTrees", "TreeClassifier", "TreeRows", "read_tree_rows"]


class FittedTrees(Protocol):
    """A fitted ensemble, without its interface."""

    def log_proba(self, X: np.ndarray) -> np.ndarray:
        """Log-probabilities of rows in which values may be missing, (n, K)."""


class TreeRows(NamedTuple):
    """Rows of a fit: X (n, D) with NaN for what is missing, labels (n,) or shares (n, K), and weights (n,)."""

    features: MemoryFeatures
    target: Target
    named: list[str]
    X: np.ndarray
    Y: np.ndarray
    weights: np.ndarray


def read_tree_rows(model: Any, X: Any, y: Any, sample_weight: Any) -> TreeRows:
    """The rows of a fit, checked."""
    who = type(model).__name__
    features, target, named = read_in_memory_for_fit(X, y, sample_weight, model.classes, model.class_weight, who=who)
    features.require_finite(missing_allowed=True)
    matrix = np.asarray(as_dense(features.matrix), dtype=np.float64)
    Y = target.values
    assert Y is not None
    weights = np.ones(len(matrix)) if target.weights is None else target.weights
    return TreeRows(features, target, named, matrix, Y, weights)


class TreeClassifier(LeftOutMixin, ClassifierMixin, BaseEstimator):
    """A classifier whose `fit` sets `fitted_`, `classes_` and the columns that it remembers."""

    fitted_: FittedTrees
    classes_: np.ndarray
    n_jobs: int | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K)."""
        return self._log_proba(X).T

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, (n, K)."""
        return np.exp(self._log_proba(X)).T

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        best = self._log_proba(X).argmax(axis=0)
        return self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-probabilities, (n, K); for two classes the log-odds of the second, (n,)."""
        F = self._log_proba(X)
        return F[1] - F[0] if len(F) == 2 else F.T

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _log_proba(self, X: Any) -> np.ndarray:
        """log p(k | x), (K, n)."""
        features = read_for_prediction(self, X)
        blocks = features.blocks(None, len(self.classes_), n_threads=usable_threads(self.n_jobs))
        with one_blas_thread():
            F = blocks.map_rows(_log_proba_of_block, self.fitted_, heavy=True)
        if np.isnan(F).any():
            features.require_finite(missing_allowed=True)
        return F


def _log_proba_of_block(X: Any, fitted: FittedTrees) -> np.ndarray:
    """A kernel of rows, (K, n): NaN for rows with an infinite value, which are refused afterwards."""
    X = as_dense(X)
    F = fitted.log_proba(X)
    F[np.isinf(X).any(axis=1)] = np.nan
    return F.T
