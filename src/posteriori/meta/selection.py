"""Which model for this table: candidates compared by the log-loss of rows held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from posteriori.decision.scores import labels_and_weights
from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gp.classifier import GPClassifier
from posteriori.gp.deep_classifier import DeepGPClassifier
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.tables.encoder import TableEncoder

__all__ = ["MODELS", "Candidate", "Choice", "build", "choose"]

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
"""Of models that predict equally well: the one that knows how sure it is and costs least."""


@dataclass(frozen=True)
class Candidate:
    """A model and its log-loss on rows held out: mean, and standard error of its difference from the best."""

    name: str
    log_loss: float
    behind: float
    error: float
    seconds: float


@dataclass(frozen=True)
class Choice:
    """Which model, and why.

    Attributes
    ----------
    name : str
    candidates : list of Candidate
        The best first.
    reason : str
    """

    name: str
    candidates: list[Candidate]
    reason: str


def build(name: str, *, random_state: int | None = None, verbose: int = 0) -> Pipeline:
    """A table encoder and a model of this name, unfitted."""
    if name not in MODELS:
        raise ValueError(f"model={name!r} is unknown: use one of {', '.join(MODELS)}, or auto.")
    model = MODELS[name]()
    known = model.get_params()
    model.set_params(**{k: v for k, v in {"random_state": random_state, "verbose": verbose}.items() if k in known})
    return Pipeline([("encode", TableEncoder()), ("model", model)])


def choose(take: Callable[[np.ndarray], Any], y: np.ndarray, target: str, *, random_state: int = 0) -> Choice:
    """Compare the models that suit so many rows.

    Parameters
    ----------
    take : callable
        From row numbers to a table of these rows, the target among its columns.
    y : ndarray (n,)
        The labels of all rows.
    target : str
        Their column.
    """
    names = [*_PREFERENCE[:3]]
    if len(y) <= _MOST_ROWS_OF_GP and find_spec("jax") is not None:
        names.append("gp")
    losses: dict[str, list[np.ndarray]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    for train, test in _splits(y, random_state):
        rows, held = take(train), take(test)
        for name in names:
            began = perf_counter()
            losses[name].append(_held_out(name, rows, held, y[test], target, random_state))
            seconds[name] += perf_counter() - began
    return _chosen({name: np.concatenate(parts) for name, parts in losses.items()}, seconds)


def _splits(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds by class, where every class has rows enough."""
    _, counts = np.unique(y, return_counts=True)
    kind = StratifiedKFold if counts.min() >= _FOLDS else KFold
    n_splits = max(2, min(_FOLDS, len(y)))
    splits = list(kind(n_splits, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))
    return splits[:1] if len(y) >= _ROWS_HELD_OUT_ONCE else splits


def _held_out(name: str, rows: Any, held: Any, y: np.ndarray, target: str, seed: int) -> np.ndarray:
    """-log p(y) of each row held out; a class that was not there to be learned costs what no knowledge would."""
    model = build(name, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are thrown away
        P = model.fit(rows, target).predict_proba(held)
    known = np.isin(y, model.classes_)
    out = np.full(len(y), np.log(len(model.classes_) + 1.0))
    codes, _ = labels_and_weights(y[known], model.classes_, P[known], None)
    out[known] = -np.log(np.maximum(P[known, codes], 1e-300))
    return out


def _chosen(losses: Mapping[str, np.ndarray], seconds: Mapping[str, float]) -> Choice:
    """The best; but one that is preferred, if it is behind by less than a standard error of the difference."""
    best = min(losses, key=lambda name: losses[name].mean())
    candidates = []
    for name, each in losses.items():
        apart = each - losses[best]
        error = float(apart.std(ddof=1) / np.sqrt(len(apart))) if name != best else 0.0
        candidates.append(Candidate(name, float(each.mean()), float(apart.mean()), error, seconds[name]))
    near = [c for c in candidates if c.behind <= c.error]
    chosen = min(near, key=lambda c: _PREFERENCE.index(c.name))
    n = len(losses[best])
    if chosen.name == best:
        reason = f"lowest log-loss on {n} rows held out"
    else:
        reason = (
            f"log-loss on {n} rows held out within a standard error of the lowest, that of {best}, which is costlier"
            if _PREFERENCE.index(best) > _PREFERENCE.index("softmax")
            else f"log-loss on {n} rows held out within a standard error of the lowest, that of {best}, and intervals"
        )
    return Choice(chosen.name, sorted(candidates, key=lambda c: c.log_loss), reason)
