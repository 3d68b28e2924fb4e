"""Classifiers compared by the rows that they have not seen: left out or held out, and differences row by row.

Every row is predicted once, without it: by `loo` where a classifier has it, at the price of one fit, otherwise by a fit
to the other folds, or all by the folds that are asked for. So the difference between two of them has a standard error
of its own, much smaller than that of either:

    d_n = -log p_a(y_n) + log p_b(y_n),    mean d +- sd(d) / sqrt(N).

Rows that are copies of each other are left out together, and count as one in standard errors. Folds fit fewer rows than
`loo` does, and so predict a little worse.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from posteriori.decision.pooling import LinearPool
from posteriori.decision.scores import labels_and_weights, mean_and_error
from posteriori.left_out.result import grouped_mean_and_error
from posteriori.meta.judging import Judged, JudgedRows, common, fit_judged, require_classifiers
from posteriori.parameters import require_count, seed_from
from posteriori.rows.engines import label_vector, read_labels, require_in_memory, take_rows, without_column

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ComparedModel", "Comparison", "FoldReport", "compare", "comparison_of", "folds"]

_LEAST = float(np.log(1e-300))
"""The least log-probability that counts: a class that is held impossible costs 691 nats."""

Splits = list[tuple[np.ndarray, np.ndarray]]


class ComparedModel(NamedTuple):
    """One model of a comparison, by rows that it has not seen.

    Attributes
    ----------
    name : str
    log_loss, log_loss_error : float
        Mean of -log p(y), and its standard error.
    difference, difference_error : float
        Log-loss above that of the best model, and the standard error of this difference.
    accuracy, brier : float
    seconds : float
        Time of all fits and predictions.
    weight : float
        Its share in the mixture of all models under which these rows are most probable.
    judged : str
        How rows were predicted without being seen.
    """

    name: str
    log_loss: float
    log_loss_error: float
    difference: float
    difference_error: float
    accuracy: float
    brier: float
    seconds: float
    weight: float
    judged: str


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models compared by the log-loss of rows held out.

    Attributes
    ----------
    models : list of ComparedModel
        The lowest log-loss first.
    rows : ndarray (n,)
        Numbers of the rows held out.
    losses : dict of str to ndarray (n,)
        -log p(y) of each of these rows, by each model.
    weights : ndarray (n,) or None
        Weights of these rows.
    groups : ndarray of int (n,)
        Rows of equal number were left out together.
    n_twins : int or None
        Rows identical to another one, in every column and in the label; None where nobody looked.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier, SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare({"tied": GaussianClassifier("tied"), "linear": SoftmaxRegression(0.1)}, X, y)
    >>> found.best
    'tied'
    >>> difference, error = found.difference("linear", "tied")
    >>> round(difference, 3), round(error, 3)
    (0.016, 0.008)
    """

    models: list[ComparedModel]
    rows: np.ndarray
    losses: dict[str, np.ndarray]
    weights: np.ndarray | None = field(default=None)
    groups: np.ndarray | None = field(default=None)
    n_twins: int | None = None

    def __repr__(self) -> str:
        listed = ", ".join(f"{model.name} {model.log_loss:.4f}" for model in self.models)
        twins = f"; {self.n_twins:,} rows have a twin" if self.n_twins else ""
        return f"Comparison(log-loss of {len(self.rows)} rows held out: {listed}{twins})"

    def __str__(self) -> str:
        table = self.to_frame()[["log_loss", "difference", "difference_error", "weight", "seconds", "judged"]]
        twins = f"\n{self.n_twins:,} of {len(self.rows):,} rows have a twin." if self.n_twins else ""
        return table.to_string(float_format=lambda value: f"{value:.4f}") + twins

    @property
    def best(self) -> str:
        """Name of the model with the lowest log-loss."""
        return self.models[0].name

    def difference(self, a: str, b: str) -> tuple[float, float]:
        """Log-loss of model a above that of model b, and the standard error of this difference."""
        return _mean_and_error(self.losses[a] - self.losses[b], self.weights, self.groups)

    def to_frame(self) -> pd.DataFrame:
        """The models as a table, one row for each, the lowest log-loss first."""
        import pandas as pd

        return pd.DataFrame(self.models).set_index("name")


class FoldReport(NamedTuple):
    """A fit of a comparison that has ended.

    Attributes
    ----------
    name : str
        The model's name.
    fold, n_folds : int
        The number of the fold, from 1, and how many there are.
    log_loss : float
        Mean of -log p(y) over the rows held out of this fold; 0 where none has a weight.
    weight : float
        The sum of their weights, or how many they are.
    seconds : float
        Time of the fit and its predictions.
    """

    name: str
    fold: int
    n_folds: int
    log_loss: float
    weight: float
    seconds: float


def compare(
    models: Any,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    cv: Any = None,
    random_state: Any = None,
    report: Callable[[FoldReport], None] | None = None,
) -> Comparison:
    """Compare classifiers by the log-loss of rows that they have not seen.

    Parameters
    ----------
    models : dict of name to classifier, or list of classifiers
        Unfitted or fitted: each is cloned and fitted again. In a list they are called by their classes.
    X : table or array in memory
        May hold the columns that y and sample_weight name.
    y : labels (n,), or the name of a column of X
    sample_weight : numbers (n,), or the name of a column of X, optional
        For the fits and for the scores.
    cv : None, int, splitter or list of (train, test), default None
        None leaves out rows by `loo` where a classifier has it, and in five folds where it has not. A number of folds
        keeps the shares of classes where every class has enough rows.
    random_state : int, RandomState or None
        For the folds; None is 0.
    report : callable, optional
        Called with a `FoldReport` after every fit.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare({"linear": SoftmaxRegression(0.1), "naive": GaussianNB()}, X, y)
    >>> found.best
    'linear'
    >>> found.to_frame()[["difference", "difference_error", "weight"]].round(2)
            difference  difference_error  weight
    name
    linear        0.00              0.00    0.69
    naive         0.06              0.04    0.31
    """
    candidates = _named(models)
    require_in_memory(X, "compare, which holds rows out,")
    labels, weights = label_vector(read_labels(X, y)), read_labels(X, sample_weight)
    X = without_column(without_column(X, y), sample_weight)
    weights = None if weights is None else np.asarray(weights, dtype=np.float64)
    if cv is None:
        return _left_out(candidates, JudgedRows.of(X, labels, weights), seed_from(random_state), report)
    splits = _splits(cv, X, labels, random_state)
    held_out = np.concatenate([test for _, test in splits])
    found: dict[str, list[_FoldScores]] = {name: [] for name in candidates}
    for name, model in candidates.items():
        for number, (train, test) in enumerate(splits, start=1):
            X_train, X_test = take_rows(X, train), take_rows(X, test)
            options = {} if weights is None else {_weight_parameter(model): weights[train]}
            scores = _fold_scores(model, X_train, labels[train], X_test, labels[test], options)
            found[name].append(scores)
            if report is not None:
                weight = np.ones(len(test)) if weights is None else weights[test]
                mean = mean_and_error(scores.loss, weight)[0] if weight.any() else 0.0
                report(FoldReport(name, number, len(splits), mean, float(weight.sum()), scores.seconds))
    merged = {
        name: _Scores(
            np.concatenate([fold.loss for fold in each]),
            np.concatenate([fold.hit for fold in each]),
            np.concatenate([fold.brier for fold in each]),
            sum(fold.seconds for fold in each),
            f"in {len(splits)} folds",
        )
        for name, each in found.items()
    }
    return _comparison(merged, held_out, None if weights is None else weights[held_out], None, None)


def _left_out(
    models: Mapping[str, Any], rows: JudgedRows, seed: int, report: Callable[[FoldReport], None] | None
) -> Comparison:
    """Classifiers compared by `loo` where they have it, and by folds where they do not."""
    judged = list[Judged]()
    for name, model in models.items():
        judged.append(fit_judged(name, model, rows, seed=seed))
        if report is not None:
            report(FoldReport(name, 1, 1, judged[-1].left.log_loss, float(rows.c.sum()), judged[-1].seconds))
    return comparison_of(judged, rows)


def comparison_of(judged: Iterable[Judged], rows: JudgedRows) -> Comparison:
    """Classifiers that were judged by the same rows, compared."""
    known, some = common([*judged], rows)
    found = {each.name: _scores(each) for each in known}
    groups = some.groups if rows.copied else None
    return _comparison(found, known[0].left.rows, some.weights, groups, rows.n_twins)


def _scores(judged: Judged) -> _Scores:
    """The losses, hits and squared distances of rows left out."""
    left = judged.left
    P = np.exp(left.log_proba)
    hit = left.targets[np.arange(len(P)), P.argmax(axis=1)]
    losses = np.minimum(left.losses, -_LEAST)
    return _Scores(losses, hit, ((P - left.targets) ** 2).sum(axis=1), judged.seconds, left.method)


def folds(y: np.ndarray, n_folds: int, seed: int) -> Splits:
    """Rows to fit and rows to hold out, shuffled; by class where every class has enough rows."""
    require_count("cv", n_folds, 2)
    _, counts = np.unique(y, return_counts=True)
    kind = StratifiedKFold if counts.min() >= n_folds else KFold
    n_splits = max(2, min(n_folds, len(y)))
    return list(kind(n_splits, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))


class _Scores(NamedTuple):
    """Scores of one model on all rows that it has not seen, the seconds that it took, and how rows were left out."""

    loss: np.ndarray
    hit: np.ndarray
    brier: np.ndarray
    seconds: float
    judged: str


class _FoldScores(NamedTuple):
    """Scores of one model on the rows held out of one fold, and the seconds that it took."""

    loss: np.ndarray
    hit: np.ndarray
    brier: np.ndarray
    seconds: float


def _named(models: Any) -> dict[str, Any]:
    """Models by name; those of a list are called by their classes, and numbered where classes repeat."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    elif isinstance(models, Iterable) and not isinstance(models, str):
        named = {}
        for model in models:
            name = type(model[-1] if hasattr(model, "steps") else model).__name__
            number = sum(other.partition(" ")[0] == name for other in named) + 1
            named[name if number == 1 else f"{name} {number}"] = model
    else:
        raise TypeError(f"models is a {type(models).__name__}: pass a list of classifiers, or a dict of names to them.")
    require_classifiers(named)
    return named


def _splits(cv: Any, X: Any, labels: np.ndarray, random_state: Any) -> Splits:
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        return folds(labels, int(cv), seed_from(random_state))
    return list(check_cv(cv, labels, classifier=True).split(np.zeros(len(labels)), labels))


def _weight_parameter(model: Any) -> str:
    """The argument of `fit` that takes weights: a pipeline hands it to its last step."""
    return f"{model.steps[-1][0]}__sample_weight" if hasattr(model, "steps") else "sample_weight"


def _fold_scores(
    model: Any, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray, options: dict[str, Any]
) -> _FoldScores:
    """Fit a copy and score rows held out; a class without a row to learn from costs what no knowledge would."""
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these fits are thrown away
        fitted = clone(model).fit(X, y, **options)
        P = fitted.predict_proba(X_test)
    seconds = perf_counter() - began
    known = np.isin(y_test, fitted.classes_)
    codes, _ = labels_and_weights(y_test[known], fitted.classes_, P[known], None)
    p = P[known, codes]
    loss = np.full(len(y_test), np.log(len(fitted.classes_) + 1.0))
    loss[known] = -np.log(np.maximum(p, 1e-300))
    hit = np.zeros(len(y_test))
    hit[known] = P[known].argmax(axis=1) == codes
    brier = (P**2).sum(axis=1) + 1.0
    brier[known] -= 2.0 * p
    return _FoldScores(loss, hit, brier, seconds)


def _comparison(
    found: Mapping[str, _Scores],
    held_out: np.ndarray,
    weights: np.ndarray | None,
    groups: np.ndarray | None,
    n_twins: int | None,
) -> Comparison:
    losses = {name: each.loss for name, each in found.items()}
    means = {name: _mean_and_error(each, weights, groups) for name, each in losses.items()}
    best = min(means, key=lambda name: means[name][0])
    own = -np.array(list(losses.values()))[:, :, None]
    n = len(held_out)
    shares = LinearPool().weights(own, np.ones((n, 1)), np.ones(n) if weights is None else weights)
    compared = []
    for (name, each), share in zip(found.items(), shares, strict=True):
        difference, error = _mean_and_error(losses[name] - losses[best], weights, groups)
        compared.append(
            ComparedModel(
                name,
                *means[name],
                difference,
                error,
                accuracy=mean_and_error(each.hit, weights)[0],
                brier=mean_and_error(each.brier, weights)[0],
                seconds=each.seconds,
                weight=float(share),
                judged=each.judged,
            )
        )
    ranked = sorted(compared, key=lambda model: model.log_loss)
    return Comparison(ranked, held_out, losses, weights, groups, n_twins)


def _mean_and_error(values: np.ndarray, weights: np.ndarray | None, groups: np.ndarray | None) -> tuple[float, float]:
    """The mean over rows, and its standard error over groups where there are any."""
    if groups is None:
        return mean_and_error(values, weights)
    return grouped_mean_and_error(values, np.ones(len(values)) if weights is None else weights, groups)
