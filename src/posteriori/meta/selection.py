"""Which of the library's models for a table: candidates compared by the log-loss of rows held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gp.classifier import GPClassifier
from posteriori.gp.deep_classifier import DeepGPClassifier
from posteriori.meta.comparison import Comparison, compare, folds
from posteriori.rows.engines import read_labels
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.tables.encoder import TableEncoder

__all__ = ["MODELS", "Selection", "select_model", "table_model"]

MODELS: dict[str, Callable[..., Any]] = {
    "softmax": SoftmaxRegression,
    "bayes": BayesianSoftmaxRegression,
    "gaussian": GaussianClassifier,
    "gp": GPClassifier,
    "deep-gp": DeepGPClassifier,
}
_FOLDS = 5
_ROWS_HELD_OUT_ONCE = 20_000
"""From so many rows on, one fold is enough to tell models apart."""
_MOST_ROWS_OF_GP = 3_000
_PREFERENCE = ("bayes", "softmax", "gaussian", "gp", "deep-gp")
"""Among models that predict equally well: first the one that knows how sure it is and costs least."""


@dataclass(frozen=True)
class Selection:
    """The model selected for a table.

    Attributes
    ----------
    name : str
        A key of `MODELS`.
    comparison : Comparison
        All candidates.
    reason : str
        Why this one, in words.
    """

    name: str
    comparison: Comparison
    reason: str


def table_model(name: str, *, random_state: int | None = None, verbose: int = 0) -> Pipeline:
    """A table encoder and the model of this name, unfitted."""
    if name not in MODELS:
        raise ValueError(f"model={name!r} is unknown: use one of {', '.join(MODELS)}, or auto.")
    model = MODELS[name]()
    known = model.get_params()
    model.set_params(**{k: v for k, v in {"random_state": random_state, "verbose": verbose}.items() if k in known})
    return Pipeline([("encode", TableEncoder()), ("model", model)])


def select_model(table: Any, target: str, *, random_state: int = 0) -> Selection:
    """Compare the models that suit the number of rows, and select one.

    The lowest log-loss wins, unless a model that is preferred is behind by less than a standard error of the
    difference.

    Parameters
    ----------
    table : table in memory
        The target and all features.
    target : str
        Name of the column with the labels.
    """
    y = np.asarray(read_labels(table, target))
    names = [*_PREFERENCE[:3]]
    if len(y) <= _MOST_ROWS_OF_GP and find_spec("jax") is not None:
        names.append("gp")
    models = {name: table_model(name, random_state=random_state) for name in names}
    return _selected(compare(models, table, target, cv=_selection_folds(y, random_state)))


def _selection_folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds, and one of them for many rows."""
    splits = folds(y, _FOLDS, seed)
    return splits[:1] if len(y) >= _ROWS_HELD_OUT_ONCE else splits


def _selected(comparison: Comparison) -> Selection:
    near = [model.name for model in comparison.models if model.difference <= model.difference_error]
    name = min(near, key=_PREFERENCE.index)
    n, best = len(comparison.rows), comparison.best
    if name == best:
        return Selection(name, comparison, f"lowest log-loss on {n} rows held out")
    costlier = _PREFERENCE.index(best) > _PREFERENCE.index("softmax")
    reason = (
        f"log-loss on {n} rows held out within a standard error of the lowest, that of {best}, "
        f"{'which is costlier' if costlier else 'and intervals'}"
    )
    return Selection(name, comparison, reason)
