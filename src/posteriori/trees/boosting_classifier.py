"""Boosted trees as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.left_out.leaving import ByFormula
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.parameters import is_number, require_count, require_jobs, require_not_negative, seed_from
from posteriori.rows.products import as_dense
from posteriori.rows.schema import remember_features
from posteriori.trees.base import TreeClassifier, read_tree_rows
from posteriori.trees.boosting import BoostingSettings, BoostingSolution, FittedBoosting, LeftOutFolds, boost
from posteriori.trees.distinct import distinct_rows, row_keys

__all__ = ["BoostingClassifier"]


class BoostingClassifier(TreeClassifier):
    r"""Boosted trees: logits that are sums over small trees, as many as predict left-out rows best.

    scikit-learn's histogram gradient boosting grows the trees. Rows are dealt into five folds, copies together and
    classes evenly, and the folds choose the number of rounds; then all rows are fitted with a tenth more. A temperature
    and some doubt, learned from the same left-out rows, make the probabilities as sure as they were right.

    Parameters
    ----------
    max_rounds : int, default 500
        Rounds of trees, at most; fewer are tried where rows, columns and classes are many.
    learning_rate : "auto" or float, default "auto"
        The length of a step: "auto" is 0.15, and up to 0.3 where few rounds can be afforded.
    max_leaves : int, default 8
        Leaves of a tree.
    min_leaf : int, default 5
        Distinct rows that a leaf has at least.
    max_features : float in (0, 1], default 0.5
        The share of the columns that a split may look at.
    l2 : float, default 1.0
        The precision of the prior on the values of leaves.
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
    fitted_ : FittedBoosting
        The trees as flat arrays, and the temperature.
    solution_ : BoostingSolution
        Rounds, folds, and the log-loss of left-out rows after each round.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Missing values (NaN) go to the side of a split that suits them. The order of the rows makes no difference. `loo()`
    returns what the folds said while the fit was made; of a model from a file it deals new folds.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BoostingClassifier(50).fit(X, y)
    >>> model.predict(X[:1])
    array([0])
    >>> model.loo().method
    'in 5 folds'
    """

    fitted_: FittedBoosting

    def __init__(
        self,
        max_rounds: int = 500,
        *,
        learning_rate: Any = "auto",
        max_leaves: int = 8,
        min_leaf: int = 5,
        max_features: float = 0.5,
        l2: float = 1.0,
        classes: Any = None,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.max_rounds = max_rounds
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.min_leaf = min_leaf
        self.max_features = max_features
        self.l2 = l2
        self.classes = classes
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs

    @property
    def solution_(self) -> BoostingSolution:
        """The record of the fit."""
        return self.fitted_.solution

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BoostingClassifier:
        """Choose the number of rounds by folds, and grow the trees.

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
        fitted, folds = boost(distinct_rows(rows.X, rows.Y, rows.weights), len(rows.target.classes), settings)
        remember_features(self, rows.features, rows.named)
        self.classes_, self.fitted_, self._folds = rows.target.classes, fitted, folds
        self._rows = RowsReference(X, y, sample_weight)
        return self

    def _settings(self) -> BoostingSettings:
        """The parameters, checked."""
        require_count("max_rounds", self.max_rounds, 1)
        require_count("max_leaves", self.max_leaves, 2)
        require_count("min_leaf", self.min_leaf, 1)
        require_not_negative("l2", self.l2)
        require_jobs(self.n_jobs)
        step = self.learning_rate
        if not (isinstance(step, str) and step == "auto") and not (is_number(step) and 0.0 < float(step) <= 1.0):
            raise ValueError(f"learning_rate={step!r} must be 'auto' or a number above 0 and up to 1.")
        if not is_number(self.max_features) or not 0.0 < float(self.max_features) <= 1.0:
            raise ValueError(
                f"max_features={self.max_features!r} must be a share of the columns, above 0 and up to 1: 1.0 is "
                "all of them."
            )
        return BoostingSettings(
            max_rounds=int(self.max_rounds),
            learning_rate=None if isinstance(step, str) else float(step),
            max_leaves=int(self.max_leaves),
            min_leaf=int(self.min_leaf),
            max_features=float(self.max_features),
            l2=float(self.l2),
            seed=seed_from(self.random_state),
        )

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        """What the folds said of the rows; None for a model from a file, and where a group is in several folds."""
        folds: LeftOutFolds = getattr(self, "_folds", LeftOutFolds())
        Y = rows.target.values
        if folds.keys is None or not rows.in_memory or Y is None:
            return None
        X, seen = np.asarray(as_dense(rows.matrix())), rows.weights > 0.0
        found = folds.of(row_keys(X[seen], Y[seen]))
        if found is None:
            return None
        log_proba, parts = self.fitted_.log_proba(X), found[1]
        log_proba[seen] = found[0]
        groups = rows.groups[seen]
        first = np.full(len(X), -1)
        first[groups] = parts
        if (first[groups] != parts).any():
            return None
        return ByFormula(log_proba, np.zeros(len(X)), 1.0, f"in {folds.n_folds} folds", rows)
