"""What must hold of every fit and every prediction, whatever the data: properties, refusals and warnings."""

from __future__ import annotations

import linecache
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import sklearn

import posteriori
from benchmarks.wild.hard_problems import MOST_COEFFICIENTS, Problem
from benchmarks.wild.reference import true_gap

REFUSALS = (ValueError, TypeError, FloatingPointError)
OF_SKLEARN = ("The number of unique classes is greater than 50%", "Number of classes in training fold")
"""Warnings of scikit-learn about a target or its folds, which have no class of their own."""
SUMS = 1e-9
"""Error of a sum of probabilities that is rounding."""


class Wrong(AssertionError):
    """A property does not hold."""


def require(holds: Any, what: str) -> None:
    """Raise unless the property holds."""
    if not holds:
        raise Wrong(what)


# How a case may end


def is_refusal(error: BaseException) -> bool:
    """Return whether an error is a sentence that posteriori, or scikit-learn for it, chose to raise.

    Errors of NumPy come out of a line that raises nothing itself; their words are NumPy's own.
    """
    if not isinstance(error, REFUSALS) or isinstance(error, (np.linalg.LinAlgError, UnicodeError)):
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).lstrip()
    ours = any(frame.filename.startswith(os.path.dirname(package.__file__)) for package in (posteriori, sklearn))
    return ours and line.startswith("raise") and len(str(error).split()) >= 4


@contextmanager
def leaks() -> Iterator[list[str]]:
    """Collect the warnings that are of no class of posteriori or scikit-learn: nobody meant to give them."""
    from sklearn import exceptions as of_sklearn

    from posteriori import exceptions

    known = tuple(
        kind
        for home in (exceptions, of_sklearn)
        for kind in vars(home).values()
        if isinstance(kind, type) and issubclass(kind, Warning)
    )
    found: list[str] = []
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            yield found
        finally:
            for each in record:
                meant = issubclass(each.category, known) or str(each.message).startswith(OF_SKLEARN)
                if not meant and not ("sklearn" in each.filename and each.category is UserWarning):
                    place = each.filename.rpartition("posteriori/")[2]
                    found.append(f"{each.category.__name__} at {place}:{each.lineno}: {each.message}")


# Fits


def fitted(problem: Problem) -> Any:
    """Fit the model of a problem as a user would."""
    options = {} if problem.weight is None else {"sample_weight": problem.weight}
    if "partial_fit" in problem.words:
        classes = np.arange(problem.K) if np.ndim(problem.y) == 2 else np.unique(problem.y)
        if problem.model.classes is not None:
            classes = problem.model.classes
        return problem.model.partial_fit(problem.X, problem.y, classes=classes, **options)
    return problem.model.fit(problem.X, problem.y, **options)


def check_certificate(problem: Problem, model: Any, by_reference: bool = True) -> None:
    """Check that the record of the fit claims no more than is true, if asked by the reference in extended precision."""
    solution = getattr(model, "solution_", None)
    if solution is None or not hasattr(solution, "gap"):
        return
    J, gap, bound = solution.objective, solution.gap, solution.gap_bound
    require(np.isfinite(J), f"objective {J}")
    require(gap >= 0, f"gap {gap}")
    require(bound is None or bound >= 0, f"gap bound {bound}")
    require(solution.gradient_norm >= 0, f"gradient norm {solution.gradient_norm}")
    given = getattr(model.solver, "tol", None)
    tol = model.tol if given is None else given
    if solution.converged:
        allowed = max(tol * abs(J), getattr(solution, "rounding", 0.0))
        require(gap <= allowed, f"converged with a gap of {gap} of J = {J} for tol = {tol}")
    by_reference &= type(model).__name__ == "SoftmaxRegression"
    if bound is None or not by_reference or problem.dense is None:
        return
    if model.coef_.size > 40 or len(problem.dense) > 60:
        return
    true = true_gap(problem.dense, problem.y, problem.weight, model)
    if true is not None:
        require(true <= bound, f"gap bound {bound} below the true gap {true} of J = {J}")


# Predictions


def distribution(P: np.ndarray, n: int, K: int) -> None:
    """Check probabilities (n, K)."""
    require(P.shape == (n, K), f"probabilities of shape {P.shape}, not {(n, K)}")
    require(np.isfinite(P).all(), "probabilities that are not finite")
    require((P >= 0).all(), "negative probabilities")
    require(np.abs(P.sum(axis=1) - 1.0).max(initial=0.0) <= SUMS, "probabilities that do not sum to one")


def log_distribution(L: np.ndarray, n: int, K: int) -> None:
    """Check log-probabilities (n, K)."""
    require(L.shape == (n, K), f"log-probabilities of shape {L.shape}, not {(n, K)}")
    require(not np.isnan(L).any(), "log-probabilities that are not a number")
    require((L <= 1e-9).all(), "positive log-probabilities")


def no_nan(values: Any) -> None:
    """Check that there is a number everywhere."""
    require(not np.isnan(np.asarray(values, dtype=float)).any(), "values that are not a number")


def interval(ends: tuple[np.ndarray, np.ndarray]) -> None:
    """Check the ends of intervals of probabilities."""
    lower, upper = ends
    require(np.isfinite(lower).all() and np.isfinite(upper).all(), "interval that is not finite")
    require((lower >= 0).all() and (upper <= 1).all() and (lower <= upper).all(), "interval out of order")


def latent(moments: tuple[np.ndarray, np.ndarray]) -> None:
    """Check means and covariances of logits."""
    mean, covariance = moments
    require(np.isfinite(mean).all(), "latent mean that is not finite")
    no_nan(covariance)
    require((np.einsum("nkk->nk", covariance) >= 0).all(), "negative latent variance")


def parts(uncertainty: Any) -> None:
    """Check entropies."""
    for name in ("total", "aleatoric", "epistemic"):
        values = getattr(uncertainty, name)
        require(np.isfinite(values).all() and (values >= -1e-9).all(), f"{name} uncertainty below zero or not finite")


def no_nan_in_table(table: Any) -> None:
    """Check the numbers of a table."""
    require(not table.select_dtypes("number").isna().any().any(), "table with values that are not a number")


def of_rows(model: Any, X: Any, n: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield every method that predicts for rows, with a call that checks what it returns."""
    K = len(model.classes_)
    known = set(np.asarray(getattr(model, "actions_", model.classes_)).tolist())
    calls: dict[str, Callable[[], None]] = {
        "predict": lambda: require(set(np.asarray(model.predict(X)).tolist()) <= known, "a class that does not exist"),
        "predict_proba": lambda: distribution(np.asarray(model.predict_proba(X)), n, K),
        "predict_log_proba": lambda: log_distribution(np.asarray(model.predict_log_proba(X)), n, K),
        "decision_function": lambda: no_nan(model.decision_function(X)),
        "predict_joint_log_proba": lambda: no_nan(model.predict_joint_log_proba(X)),
        "score_samples": lambda: no_nan(model.score_samples(X)),
        "log_odds": lambda: no_nan(model.log_odds(X, model.classes_[0], model.classes_[-1])),
        "predict_interval": lambda: interval(model.predict_interval(X)),
        "predict_latent": lambda: latent(model.predict_latent(X)),
        "sample_proba": lambda: [distribution(P, n, K) for P in model.sample_proba(X, 3, 0)][:0] or None,
        "uncertainty": lambda: parts(model.uncertainty(X)),
        "marginal_effects": lambda: no_nan_in_table(model.marginal_effects(X)),
        "predict_set": lambda: require(model.predict_set(X) is not None, "no sets"),
        "predict_or_abstain": lambda: require(len(model.predict_or_abstain(X)) == n, "wrong number of rows"),
        "decide": lambda: no_nan(model.decide(X).expected_utility),
    }
    for name, call in calls.items():
        if hasattr(model, name):
            yield name, call


def of_model(model: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the methods that need no rows."""
    calls: dict[str, Callable[[], None]] = {
        "summary": lambda: no_nan_in_table(model.summary()),
        "contrast": lambda: no_nan_in_table(model.contrast(model.classes_[0], model.classes_[-1])),
        "as_prior": lambda: no_nan(model.as_prior().mean),
        "sample": lambda: no_nan(model.sample(3, 0)[0]),
        "to_softmax": lambda: no_nan(model.to_softmax().coef_),
    }
    for name, call in calls.items():
        if not hasattr(model, name):
            continue
        if name != "as_prior" or model.coef_.size <= MOST_COEFFICIENTS:  # the inverse of a matrix of all of them
            yield name, call


def n_rows(X: Any) -> int:
    """Return the number of rows of a container."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def stopped(signal: int, frame: FrameType | None) -> None:
    """End a case that has used up its time."""
    raise OutOfTime


class OutOfTime(BaseException):
    """A case took too long; no handler of errors keeps this one."""
