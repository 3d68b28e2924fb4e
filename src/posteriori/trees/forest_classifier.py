"""A forest of extremely randomised trees as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.left_out.leaving import ByFormula
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.parameters import is_number, is_whole_number, require_count, require_jobs, seed_from
from posteriori.rows.products import as_dense
from posteriori.rows.schema import remember_features
from posteriori.trees.base import TreeClassifier, read_tree_rows
from posteriori.trees.distinct import distinct_rows, row_keys
from posteriori.trees.forest import FittedForest, ForestSettings, ForestSolution, forest_left_out, grow_forest

__all__ = ["ForestClassifier"]

_LIMIT = 0.1
"""One over the number of trees that did not see a row: with fewer than eleven the average is a guess."""
_MOST_LEFT_OUT = 50_000
"""Rows that are left out, at most: a random sample of them if there are more."""
_SAME = 1e-6


class ForestClassifier(TreeClassifier):
    r"""Extremely randomised trees, averaged, and made as sure as they have been right about rows they had not seen.

    Each tree is grown from a bootstrap of the rows, in which copies of a row go together, and splits at random
    thresholds until its leaves are pure. The average of the class shares in their leaves has a temperature and some
    doubt, learned from rows by the trees that did not see them; so have the strength of the class frequencies in each
    leaf and, by default, the number of columns that a split may look at.

    Parameters
    ----------
    n_trees : int, default 300
    min_leaf : int, default 1
        Distinct rows that a leaf has at least.
    max_features : "auto", "sqrt", "log2", int, float or None, default "auto"
        Columns that a split may look at: a number, a share, all of them (None), or the choice among "sqrt", a half and
        all that predicts rows best by the trees that did not see them.
    classes : array-like, optional
        All classes there are: those without rows keep their place in `classes_`. For a target of shape (n, K) also
        the order of its columns.
    class_weight : None, "balanced" or dict, default None
        Multiplies the weight of each row by that of its class.
    random_state : int, RandomState or None
        None is a fixed seed: results repeat.
    n_jobs : int, optional
        Threads for predictions; None means the usable cores, capped by OMP_NUM_THREADS. Trees grow in one thread.

    Attributes
    ----------
    fitted_ : FittedForest
        The trees as flat arrays, the weights in their leaves, and the temperature.
    solution_ : ForestSolution
        The log-loss of rows by the trees that did not see them, and what was chosen by it.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Missing values (NaN) go to the side of a split that suits them, and to the larger side where the rows of the fit had
    none. The order of the rows, and the units of columns, make no difference.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = ForestClassifier(100).fit(X, y)
    >>> model.predict(X[:1])
    array([0])
    >>> model.loo().method
    'by the trees that did not see it'
    """

    fitted_: FittedForest

    def __init__(
        self,
        n_trees: int = 300,
        *,
        min_leaf: int = 1,
        max_features: Any = "auto",
        classes: Any = None,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.min_leaf = min_leaf
        self.max_features = max_features
        self.classes = classes
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def solution_(self) -> ForestSolution:
        """The record of the fit."""
        return self.fitted_.solution

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ForestClassifier:
        """Grow the trees.

        Parameters
        ----------
        X : table (pandas, polars, Arrow), array or scipy.sparse matrix, (n, D), in memory
        y : array-like (n,) of labels, (n, K) of probabilities or counts, or the name of a column of X
        sample_weight : array-like (n,), number, or the name of a column of X, optional

        Returns
        -------
        self
        """
        settings = self._settings()
        rows = read_tree_rows(self, X, y, sample_weight)
        fitted = grow_forest(distinct_rows(rows.X, rows.Y, rows.weights), len(rows.target.classes), settings)
        remember_features(self, rows.features, rows.named)
        self.classes_, self.fitted_ = rows.target.classes, fitted
        self._rows = RowsReference(X, y, sample_weight)
        return self

    def _settings(self) -> ForestSettings:
        """The parameters, checked."""
        require_count("n_trees", self.n_trees, 1)
        require_count("min_leaf", self.min_leaf, 1)
        require_jobs(self.n_jobs)
        given = self.max_features
        named = given is None or (isinstance(given, str) and given in ("auto", "sqrt", "log2"))
        share = is_number(given) and not is_whole_number(given) and 0.0 < float(given) <= 1.0
        if not (named or share or (is_whole_number(given) and given >= 1)):
            raise ValueError(
                f"max_features={given!r} must be 'auto', 'sqrt', 'log2', None, a whole number of columns, or a "
                "share of them above 0 and up to 1."
            )
        return ForestSettings(int(self.n_trees), int(self.min_leaf), given, seed_from(self.random_state))

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        """Each row by the trees that saw no row of its group."""
        if not rows.in_memory:
            return None
        forest, X, Y = self.fitted_, np.asarray(as_dense(rows.matrix())), rows.target.values
        assert Y is not None
        weights = rows.weights @ rows.Y
        if not np.allclose(weights, forest.class_count, rtol=_SAME, atol=_SAME):
            raise ValueError(
                f"These are not the rows of the fit: their classes weigh {weights.tolist()}, and in the fit they "
                f"weighed {forest.class_count.tolist()}. Pass the same rows, labels and weights as to fit."
            )
        seen, keys = rows.weights > 0.0, np.zeros(len(X), dtype=np.uint64)
        keys[seen] = row_keys(X[seen], Y[seen])
        judged = rows.at_most(_MOST_LEFT_OUT)
        at = judged.numbers
        log_proba, n_trees = forest_left_out(forest, X[at], keys[at], judged.groups, seen[at])
        with np.errstate(divide="ignore"):
            reliability = 1.0 / n_trees
        return ByFormula(log_proba, reliability, _LIMIT, "by the trees that did not see it", judged)
