"""Which of the library's models for a table: candidates judged by left-out rows, one of them or a stack of all.

Nothing is offered that predicts worse than the class frequencies: they are one more candidate, and where no model is
better than they are, they are what is selected. With p = (K - 1)(D + 1) free parameters, a fit to n rows costs about
p / (2 n) nats on new rows even where there is nothing to learn, so that rows are left out unless n is above 50 p, where
that is a hundredth of a nat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gp.classifier import GPClassifier
from posteriori.gp.deep_classifier import DeepGPClassifier
from posteriori.meta.comparison import ComparedModel, Comparison, FoldReport, comparison_of
from posteriori.meta.judging import Judged, JudgedRows, fit_judged
from posteriori.meta.stacked_classifier import StackedClassifier
from posteriori.rows.engines import label_vector, read_labels
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.priors import GaussianPrior
from posteriori.tables.encoder import TableEncoder
from posteriori.trees.boosting_classifier import BoostingClassifier
from posteriori.trees.forest_classifier import ForestClassifier

__all__ = [
    "FREQUENCIES",
    "MODELS",
    "STACK",
    "WITH_PRIOR",
    "Selection",
    "candidates",
    "is_checked",
    "select_model",
    "table_model",
]

FREQUENCIES, STACK = "frequencies", "stack"
"""The names of the model that tells no row from another, and of the stack of all candidates."""
_NOTHING_MOVES = GaussianPrior(precision=1e30, intercept_precision=1e-12, autoscale=True)
"""A prior under which only the intercepts follow the data: weights are below the rounding of probabilities, so that not
even a tie between classes is broken by a feature."""

MODELS: dict[str, Callable[..., Any]] = {
    "softmax": partial(BayesianSoftmaxRegression, approximation="laplace", predictive="plugin"),
    "bayes": BayesianSoftmaxRegression,
    "gaussian": GaussianClassifier,
    "forest": ForestClassifier,
    "boosting": BoostingClassifier,
    "gp": GPClassifier,
    "deep-gp": DeepGPClassifier,
    FREQUENCIES: partial(BayesianSoftmaxRegression, prior=_NOTHING_MOVES, approximation="laplace", predictive="plugin"),
}
"""Models by name. `softmax` is the mode of the posterior of `bayes`, whose prior is chosen by the evidence: weights do
not depend on the units of the columns, and are as small as the rows ask for."""

WITH_PRIOR = ("bayes", "softmax")
"""Models whose prior a user may choose."""

_CANDIDATES = ("bayes", "gaussian", "forest", "boosting")
_STREAMED = ("bayes", "gaussian")
"""Candidates that read rows in passes, where they are not in memory."""
_MOST_ROWS_OF_GP, _MOST_ROWS_OF_TREES = 5_000, 100_000
_ROWS_FOR_A_PARAMETER = 50
_CLEARLY = 1.0
"""Standard errors by which a model must be better than the class frequencies. On samples of 20 to 150 rows of tables of
statsmodels and scikit-learn the mean log-loss is about the same for all limits from 0 to 1, and fewest models predict
new rows worse than the frequencies at 1."""
_PREFERENCE = ("bayes", "softmax", "gaussian", "forest", "boosting", "gp", "deep-gp")
"""Among models that predict equally well: first the one that knows how sure it is and costs least."""


@dataclass(frozen=True)
class Selection:
    """The model selected for a table.

    Attributes
    ----------
    name : str
        A key of `MODELS`, or "stack".
    comparison : Comparison or None
        All candidates; None where rows could not be left out.
    reason : str
        Why this one, in words.
    model : Pipeline or None
        The encoder and the model, fitted to the rows by which it was judged; None for the frequencies.
    """

    name: str
    comparison: Comparison | None
    reason: str
    model: Pipeline | None = None

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


def candidates(n_rows: int, *, in_memory: bool = True) -> list[str]:
    """The models that are judged for so many rows; the costly ones only where they take minutes at most."""
    if not in_memory or n_rows > _MOST_ROWS_OF_TREES:
        return [*_STREAMED]
    return [*_CANDIDATES, *(["gp"] if n_rows <= _MOST_ROWS_OF_GP else [])]


def is_checked(n_rows: int, n_features: int, n_classes: int) -> bool:
    """Whether a model for a table of this size is compared with the class frequencies on rows left out.

    Examples
    --------
    >>> is_checked(100, 4, 3), is_checked(100_000, 4, 3)
    (True, False)
    """
    return n_rows <= _ROWS_FOR_A_PARAMETER * (n_classes - 1) * (n_features + 1)


def select_model(
    table: Any,
    target: str,
    *,
    names: Sequence[str] | None = None,
    stack: bool | None = None,
    sample_weight: str | None = None,
    prior: Any = "evidence",
    random_state: int = 0,
    max_seconds: float | None = None,
    begin: Callable[[str], None] | None = None,
    report: Callable[[FoldReport], None] | None = None,
    **encoding: Any,
) -> Selection:
    """Fit each candidate once, judge all by left-out rows, and select one of them, or a stack of them.

    The class frequencies are selected if no model has a lower log-loss by more than a standard error of the difference.
    A stack is selected if it has a lower log-loss than the best candidate by more than a standard error: otherwise one
    model is simpler. Of these the lowest is selected, unless one that is preferred is behind by less than a standard
    error.

    Parameters
    ----------
    table : table in memory
        The target and all features.
    target : str
        Name of the column with the labels.
    names : sequence of str, optional
        Keys of `MODELS`; those that suit the number of rows if left out.
    stack : bool, optional
        Whether a stack must be selected, or must not be; where it is clearly better if left out.
    sample_weight : str, optional
        Name of a column with weights of the rows.
    prior : default "evidence"
        The prior of the models in `WITH_PRIOR`, as `BayesianSoftmaxRegression` takes it.
    random_state : int
        For the models.
    max_seconds : number, optional
        After this time no further candidate is begun.
    begin : callable, optional
        Called with the name of each candidate before its fit.
    report : callable, optional
        Called after every fit, as in `compare`.
    **encoding
        Arguments of `TableEncoder`.
    """
    began = perf_counter()
    y = label_vector(read_labels(table, target))
    names = candidates(len(y)) if names is None else [*names]
    weights = None if sample_weight is None else np.asarray(read_labels(table, sample_weight), dtype=np.float64)
    if weights is not None:
        encoding = {**encoding, "carry": (sample_weight,)}
    try:
        encoder = TableEncoder(**encoding)
        encoded = encoder.fit_transform(table, target)
        rows = JudgedRows.of(encoded, y, weights, (target, sample_weight))
        judged = list[Judged]()
        for name in names:
            if judged and max_seconds is not None and perf_counter() - began > max_seconds:
                break
            if begin is not None:
                begin(name)
            model = table_model(name, prior=prior, random_state=random_state)[-1]
            judged.append(fit_judged(name, model, rows, seed=random_state))
            if report is not None:
                report(FoldReport(name, 1, 1, judged[-1].left.log_loss, float(rows.c.sum()), judged[-1].seconds))
    except ValueError as error:
        return Selection(FREQUENCIES, None, f"no rows could be left out to judge a model by ({str(error).rstrip('.')})")
    comparison = comparison_of([*judged, _frequencies(rows)], rows)
    together = None if stack is False or len(judged) < 2 else StackedClassifier(pool="auto").assembled(judged, rows)
    name, reason = _chosen(comparison, together, must_stack=bool(stack))
    if skipped := names[len(judged) :]:
        reason += f"; no time was left for {', '.join(skipped)}"
    fitted = together if name == STACK else next((each.model for each in judged if each.name == name), None)
    model = None if fitted is None else Pipeline([("encode", encoder), ("model", fitted)])
    return Selection(name, comparison, reason, model)


def _frequencies(rows: JudgedRows) -> Judged:
    """The class frequencies, for each row those of the others; a class that has no other row counts as half a row."""
    n, K = len(rows.y), len(rows.classes)
    counts = np.tile(np.bincount(rows.codes, rows.c, minlength=K), (n, 1))
    counts[np.arange(n), rows.codes] -= rows.c
    log_p = np.log(np.maximum(counts, 0.5))
    log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    left = rows.left_out(log_p, np.arange(n), "in closed form", refitted=False, seconds=0.0)
    return Judged(FREQUENCIES, None, left, 0.0, 0.0)


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


def _chosen(comparison: Comparison, together: StackedClassifier | None, *, must_stack: bool) -> tuple[str, str]:
    """The name of the model, and the reason in words."""
    n = len(comparison.rows)
    left_out = f"{n:,} {'row' if n == 1 else 'rows'} left out"
    models = [model for model in comparison.models if model.name != FREQUENCIES]
    better = [model for model in models if _is_better(comparison, model.name)]
    if not better:
        return FREQUENCIES, f"on {left_out}, {_not_better(comparison, models[0])}"
    if together is not None and (must_stack or together.gain_.is_clear):
        return STACK, _in_words(together, left_out)
    best = better[0].name
    near = [model.name for model in better if model.difference <= model.difference_error]
    name = min(near, key=_PREFERENCE.index)
    if name == best:
        alone = "" if together is None else ", and a stack of all gains less than its standard error"
        return name, f"lowest log-loss on {left_out}{alone}"
    costlier = _PREFERENCE.index(best) > _PREFERENCE.index("softmax")
    return name, (
        f"log-loss on {left_out} within a standard error of the lowest, that of {best}, "
        f"{'which is costlier' if costlier else 'and intervals'}"
    )


def _in_words(stack: StackedClassifier, left_out: str) -> str:
    """Why a stack: its members, and its gain over the best of them."""
    members = zip(stack.estimators_, stack.weights_, strict=True)
    shares = ", ".join(f"{name} {weight:.2f}" for (name, _), weight in members)
    gain = stack.gain_
    kind = "a mixture" if stack.pool_ == "linear" else "a product of powers"
    side = "below" if gain.difference >= 0.0 else "above"
    return (
        f"{kind} ({shares}) has a log-loss of {stack.left_out_.log_loss:.4f} on {left_out}, "
        f"{abs(gain.difference):.4f} {side} {gain.best} alone (standard error {gain.error:.4f})"
    )
