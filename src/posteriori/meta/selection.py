"""Which of the library's models for a table: candidates compared by the log-loss of rows held out.

Nothing is offered that predicts worse than the class frequencies: they are one more candidate, and where no model is
better than they are, they are what is selected. With p = (K - 1)(D + 1) free parameters, a fit to n rows costs about
p / (2 n) nats on new rows even where there is nothing to learn, so that rows are held out unless n is above 50 p, where
that is a hundredth of a nat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline

from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gp.classifier import GPClassifier
from posteriori.gp.deep_classifier import DeepGPClassifier
from posteriori.meta.comparison import ComparedModel, Comparison, FoldReport, Splits, compare, folds
from posteriori.rows.engines import label_vector, read_labels
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.priors import GaussianPrior
from posteriori.tables.encoder import TableEncoder

__all__ = [
    "FREQUENCIES",
    "MODELS",
    "WITH_PRIOR",
    "Selection",
    "candidates",
    "is_checked",
    "n_folds",
    "select_model",
    "table_model",
]

FREQUENCIES = "frequencies"
"""The name of the model that tells no row from another."""
_NOTHING_MOVES = GaussianPrior(precision=1e30, intercept_precision=1e-12, autoscale=True)
"""A prior under which only the intercepts follow the data: weights are below the rounding of probabilities, so that not
even a tie between classes is broken by a feature."""

MODELS: dict[str, Callable[..., Any]] = {
    "softmax": partial(BayesianSoftmaxRegression, approximation="laplace", predictive="plugin"),
    "bayes": BayesianSoftmaxRegression,
    "gaussian": GaussianClassifier,
    "gp": GPClassifier,
    "deep-gp": DeepGPClassifier,
    FREQUENCIES: partial(BayesianSoftmaxRegression, prior=_NOTHING_MOVES, approximation="laplace", predictive="plugin"),
}
"""Models by name. `softmax` is the mode of the posterior of `bayes`, whose prior is chosen by the evidence: weights do
not depend on the units of the columns, and are as small as the rows ask for."""

WITH_PRIOR = ("bayes", "softmax")
"""Models whose prior a user may choose."""

_FOLDS, _FOLDS_OF_COSTLY = 5, 3
_ROWS_HELD_OUT_ONCE = 20_000
"""From so many rows on, one fold is enough to tell models apart."""
_MOST_ROWS_OF_GP = 3_000
_ROWS_FOR_A_PARAMETER = 50
_CLEARLY = 1.0
"""Standard errors by which a model must be better than the class frequencies. On samples of 20 to 150 rows of tables of
statsmodels and scikit-learn the mean log-loss is about the same for all limits from 0 to 1, and fewest models predict
new rows worse than the frequencies at 1."""
_COSTLY = ("gp", "deep-gp")
_PREFERENCE = ("bayes", "softmax", "gaussian", "gp", "deep-gp")
"""Among models that predict equally well: first the one that knows how sure it is and costs least."""


@dataclass(frozen=True)
class Selection:
    """The model selected for a table.

    Attributes
    ----------
    name : str
        A key of `MODELS`.
    comparison : Comparison or None
        All candidates; None where rows could not be held out.
    reason : str
        Why this one, in words.
    """

    name: str
    comparison: Comparison | None
    reason: str

    @property
    def learned(self) -> bool:
        """Whether a model is better than the class frequencies."""
        return self.name != FREQUENCIES


def table_model(
    name: str, *, prior: Any = "evidence", random_state: int | None = None, verbose: int = 0, **encoding: Any
) -> Pipeline:
    """A table encoder with these arguments, and the model of this name, unfitted; `prior` is for `WITH_PRIOR` only."""
    if name not in MODELS:
        raise ValueError(f"model={name!r} is unknown: use one of {', '.join(MODELS)}, or auto.")
    model = MODELS[name]()
    known = model.get_params()
    model.set_params(**{k: v for k, v in {"random_state": random_state, "verbose": verbose}.items() if k in known})
    if name in WITH_PRIOR:
        model.set_params(prior=prior)
    return Pipeline([("encode", TableEncoder(**encoding)), ("model", model)])


def candidates(n_rows: int) -> list[str]:
    """The models that are compared for so many rows; Gaussian processes only where they take minutes at most."""
    costly = ["gp"] if n_rows <= _MOST_ROWS_OF_GP else []
    return ["bayes", "gaussian", *costly]


def is_checked(n_rows: int, n_features: int, n_classes: int) -> bool:
    """Whether a model for a table of this size is compared with the class frequencies on rows held out.

    Examples
    --------
    >>> is_checked(100, 4, 3), is_checked(100_000, 4, 3)
    (True, False)
    """
    return n_rows <= _ROWS_FOR_A_PARAMETER * (n_classes - 1) * (n_features + 1)


def n_folds(names: Collection[str], n_rows: int) -> int:
    """How often each of these models is fitted to find out which is best."""
    if n_rows >= _ROWS_HELD_OUT_ONCE:
        return 1
    return _FOLDS_OF_COSTLY if len(names) == 1 and set(names) <= set(_COSTLY) else _FOLDS


def select_model(
    table: Any,
    target: str,
    *,
    names: Sequence[str] | None = None,
    sample_weight: str | None = None,
    prior: Any = "evidence",
    random_state: int = 0,
    report: Callable[[FoldReport], None] | None = None,
    **encoding: Any,
) -> Selection:
    """Compare models with each other and with the class frequencies, and select one.

    The class frequencies are selected if no model has a lower log-loss by more than a standard error of the difference,
    or if no rows can be held out: what cannot be judged is not offered.
    Among the models that have, the lowest wins, unless a model that is preferred is behind by less than a standard
    error of the difference.

    Parameters
    ----------
    table : table in memory
        The target and all features.
    target : str
        Name of the column with the labels.
    names : sequence of str, optional
        Keys of `MODELS`; those that suit the number of rows if left out.
    sample_weight : str, optional
        Name of a column with weights of the rows.
    prior : default "evidence"
        The prior of the models in `WITH_PRIOR`, as `BayesianSoftmaxRegression` takes it.
    random_state : int
        For the folds and the models.
    report : callable, optional
        Called after every fit, as in `compare`.
    **encoding
        Arguments of `TableEncoder`.
    """
    y = label_vector(read_labels(table, target))
    names = candidates(len(y)) if names is None else names
    models: dict[str, Any] = {
        name: table_model(name, prior=prior, random_state=random_state, **encoding) for name in names
    }
    models[FREQUENCIES] = DummyClassifier(strategy="prior")
    try:
        splits = _splits(y, n_folds(names, len(y)), random_state)
        found = compare(models, table, target, sample_weight=sample_weight, cv=splits, report=report)
    except ValueError as error:  # a fold without two classes, or without a column that varies
        return Selection(FREQUENCIES, None, f"no rows could be held out to judge a model by ({str(error).rstrip('.')})")
    return _selected(found)


def _splits(y: np.ndarray, n: int, seed: int) -> Splits:
    """The folds that were asked for; a fold is left out if its rows to fit are of one class."""
    splits = folds(y, max(n, _FOLDS if n == 1 else 2), seed)[: n if n > 1 else 1]
    usable = [(train, test) for train, test in splits if len(np.unique(y[train])) > 1]
    if not usable:
        raise ValueError("there are too few rows of each class")
    return usable


def _is_better(comparison: Comparison, name: str) -> bool:
    """Whether a model has a lower log-loss than the class frequencies, by more than a standard error."""
    difference, error = comparison.difference(name, FREQUENCIES)
    return difference < -_CLEARLY * error


def _not_better(comparison: Comparison, best: ComparedModel) -> str:
    """In words: why the best of the models is not better than the class frequencies."""
    plain = next(model.log_loss for model in comparison.models if model.name == FREQUENCIES)
    found = f"{best.name} has a log-loss of {best.log_loss:.4f}, the class frequencies have {plain:.4f}"
    if not best.log_loss < plain:
        return found
    _, error = comparison.difference(best.name, FREQUENCIES)
    return f"{found}, and so few rows cannot tell these apart (standard error of the difference: {error:.4f})"


def _selected(comparison: Comparison) -> Selection:
    n = len(comparison.rows)
    held_out = f"{n:,} {'row' if n == 1 else 'rows'} held out"
    models = [model for model in comparison.models if model.name != FREQUENCIES]
    better = [model for model in models if _is_better(comparison, model.name)]
    if not better:
        return Selection(FREQUENCIES, comparison, f"on {held_out}, {_not_better(comparison, models[0])}")
    best = better[0].name
    near = [model.name for model in better if model.difference <= model.difference_error]
    name = min(near, key=_PREFERENCE.index)
    if name == best:
        return Selection(name, comparison, f"lowest log-loss on {held_out}")
    costlier = _PREFERENCE.index(best) > _PREFERENCE.index("softmax")
    reason = (
        f"log-loss on {held_out} within a standard error of the lowest, that of {best}, "
        f"{'which is costlier' if costlier else 'and intervals'}"
    )
    return Selection(name, comparison, reason)
