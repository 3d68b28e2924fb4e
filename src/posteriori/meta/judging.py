"""Classifiers judged by rows that they have not seen: by `loo` where they have it, by folds where they do not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from posteriori.gp.classifier import GPClassifier
from posteriori.left_out.result import LeftOut
from posteriori.rows.copies import comparable, group_copies
from posteriori.rows.engines import take_rows, without_column

__all__ = ["Judged", "JudgedRows", "common", "fit_judged", "group_folds", "log_probabilities", "require_classifiers"]

_FOLDS = 5
_ROWS_OF_REFITS = 5_000
"""Rows that all fits without untrusted rows may have together; a Gaussian process is not fitted again."""
_FLOOR = float(np.log(np.finfo(np.float64).eps))
"""The least log-probability of a classifier that has none of its own: of one that says 0 nothing more is known."""


class JudgedRows(NamedTuple):
    """Rows with labels, and the groups in which they are left out.

    Attributes
    ----------
    X : rows in memory
    y : ndarray (n,)
    weights : ndarray (n,) or None
    classes : ndarray (K,)
    codes : ndarray of int (n,)
    groups : ndarray of int (n,)
    n_twins : int
    copied : bool
    named : tuple of str or None
        The columns of X that hold labels and weights, where models are to find them there.
    """

    X: Any
    y: np.ndarray
    weights: np.ndarray | None
    classes: np.ndarray
    codes: np.ndarray
    groups: np.ndarray
    n_twins: int
    copied: bool
    named: tuple[str | None, str | None] = (None, None)

    @classmethod
    def of(
        cls,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        named: tuple[str | None, str | None] = (None, None),
    ) -> JudgedRows:
        """Rows whose copies leave together; rows of a table with text are compared as they are written."""
        classes, codes = np.unique(y, return_inverse=True)
        codes = codes.reshape(-1)
        found = group_copies(comparable(without_column(without_column(X, named[0]), named[1])), codes)
        return cls(X, y, weights, classes, codes, found.groups, found.n_twins, found.copied, named)

    def fit(self, model: Any, which: np.ndarray | None = None) -> Any:
        """A copy of a classifier, fitted to some of the rows, or to all; a pipeline hands weights to its last step."""
        X, y, weights = self.X, self.y, self.weights
        if which is not None:
            X, y, weights = take_rows(X, which), y[which], None if weights is None else weights[which]
        target, weight = self.named
        name = f"{model.steps[-1][0]}__sample_weight" if hasattr(model, "steps") else "sample_weight"
        options = {} if weights is None else {name: weights if weight is None else weight}
        return clone(model).fit(X, y if target is None else target, **options)

    @property
    def given(self) -> tuple[Any, Any, Any]:
        """Rows, labels and weights, as a classifier takes them."""
        target, weight = self.named
        return self.X, self.y if target is None else target, self.weights if weight is None else weight

    def left_out(
        self, log_proba: np.ndarray, numbers: np.ndarray, method: str, *, refitted: bool, seconds: float
    ) -> LeftOut:
        """The result for these rows, which have these numbers in the fit, of log-probabilities that can be trusted."""
        n = len(self.y)
        return LeftOut(
            classes=self.classes,
            log_proba=log_proba,
            targets=self.Y,
            weights=self.c,
            rows=numbers,
            groups=self.groups,
            n_twins=self.n_twins,
            copied=self.copied,
            reliability=np.full(n, np.nan if refitted else 0.0),
            limit=1.0,
            refitted=np.full(n, refitted),
            method=method,
            seconds=seconds,
        )

    @property
    def Y(self) -> np.ndarray:
        """The labels as rows of zeros and a one, (n, K)."""
        return np.eye(len(self.classes))[self.codes]

    @property
    def c(self) -> np.ndarray:
        """The weights, (n,)."""
        return np.ones(len(self.y)) if self.weights is None else self.weights


class Judged(NamedTuple):
    """A classifier fitted to all rows, and what it would have predicted for each row without it.

    Attributes
    ----------
    name : str
    model : fitted classifier
    left : LeftOut
    fit_seconds, seconds : float
        Time of the fit to all rows, and of all there was to do.
    """

    name: str
    model: Any
    left: LeftOut
    fit_seconds: float
    seconds: float


def fit_judged(name: str, model: Any, rows: JudgedRows, *, seed: int = 0, exact: bool = True) -> Judged:
    """Fit a copy of a classifier to all rows, and judge it by rows left out.

    Parameters
    ----------
    name : str
    model : classifier, or a pipeline whose last step is one
    rows : JudgedRows
    seed : int
        For the folds.
    exact : bool
        Whether rows that a formula cannot be trusted with are fitted again, where these fits are few and small.
    """
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = rows.fit(model)
    fit_seconds = perf_counter() - began
    left = _by_loo(fitted, rows, exact)
    if left is None:
        left = by_folds(model, rows, seed)
    return Judged(name, fitted, left, fit_seconds, perf_counter() - began)


def _by_loo(fitted: Any, rows: JudgedRows, exact: bool) -> LeftOut | None:
    """What a fitted classifier says of its rows left out; None where it cannot."""
    last, given = (fitted[-1], ()) if hasattr(fitted, "steps") else (fitted, rows.given)
    if not hasattr(last, "loo") or not np.array_equal(fitted.classes_, rows.classes):
        return None
    if not given and not getattr(last, "keeps_rows", False):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left = last.loo(*given)
        cheap = left.n_unreliable * len(rows.y) <= _ROWS_OF_REFITS and not isinstance(last, GPClassifier)
        if exact and left.n_unreliable and cheap:
            left = last.loo(*given, exact="unreliable")
    return left


def common(judged: Sequence[Judged], rows: JudgedRows) -> tuple[list[Judged], JudgedRows]:
    """What is known of the rows by which all were judged: of very many rows, each model may judge a sample."""
    numbers = reduce(np.intersect1d, [each.left.rows for each in judged])
    if len(numbers) == len(rows.y):
        return list(judged), rows
    weights = None if rows.weights is None else rows.weights[numbers]
    some = rows._replace(y=rows.y[numbers], weights=weights, codes=rows.codes[numbers], groups=rows.groups[numbers])
    return [each._replace(left=each.left.only(numbers)) for each in judged], some


def by_folds(model: Any, rows: JudgedRows, seed: int = 0, n_folds: int = _FOLDS) -> LeftOut:
    """Every row predicted by a fit to the other folds; a class that such a fit has not seen counts as one more."""
    began, K = perf_counter(), len(rows.classes)
    out = np.empty((len(rows.y), K))
    parts = group_folds(rows.codes, rows.groups, n_folds, seed)
    for part in np.unique(parts):
        train, test = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these fits are thrown away
            fitted = rows.fit(model, train)
            log_p = log_probabilities(fitted, take_rows(rows.X, test))
        known = np.searchsorted(rows.classes, fitted.classes_)
        out[test] = -np.log(len(known) + 1.0) - (np.log(K - len(known)) if K > len(known) else 0.0)
        out[np.ix_(test, known)] = log_p + (np.log(len(known) / (len(known) + 1.0)) if len(known) < K else 0.0)
    method, n = f"in {len(np.unique(parts))} folds", len(rows.y)
    return rows.left_out(out, np.arange(n), method, refitted=True, seconds=perf_counter() - began)


def group_folds(codes: np.ndarray, groups: np.ndarray, n_folds: int, seed: int) -> np.ndarray:
    """The fold of each row, (n,): groups dealt out class by class, in random order."""
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.permutation(len(first)), codes[first]))
    part = np.empty(len(first), dtype=int)
    part[order] = np.arange(len(first)) % max(2, min(n_folds, len(first)))
    return part[place.reshape(-1)]


def log_probabilities(model: Any, X: Any) -> np.ndarray:
    """Log-probabilities (n, K): a classifier's own, where it has exact ones, or those of its probabilities."""
    if hasattr(model, "predict_log_proba") and type(model).__module__.startswith("posteriori"):
        return model.predict_log_proba(X)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(model.predict_proba(X)), _FLOOR)


def require_classifiers(models: Mapping[str, Any]) -> None:
    """Raise unless all models, a mapping by name, can be fitted and have probabilities."""
    if not models:
        raise ValueError("models is empty: pass at least one classifier.")
    for name, model in models.items():
        if not (hasattr(model, "fit") and hasattr(model, "predict_proba")):
            raise TypeError(f"The model {name!r} has no fit or no predict_proba: the log-loss needs probabilities.")
