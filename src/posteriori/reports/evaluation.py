"""How good predictions are on labelled rows: scores with intervals, confusions, and the worth of decisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from posteriori.decision.decisions import decide
from posteriori.decision.scores import (
    calibration_bins,
    calibration_error,
    labels_and_weights,
    mean_and_error,
    realised_utility,
)
from posteriori.decision.utility import Utility
from posteriori.rows.copies import comparable, group_copies
from posteriori.rows.engines import engine_for, read_labels, without_column

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DecisionValue",
    "Evaluation",
    "Score",
    "evaluate",
    "interval_about",
    "mean_score",
    "proportion",
    "reliability",
    "score_probabilities",
]

_BOOTSTRAP = 200
_BOOTSTRAP_ROWS = 20_000
"""Beyond so many rows, sampling noise of the calibration error is too small to be worth resampling."""
_Z = float(ndtri(0.975))
_BINS = 10
"""Bins of the reliability diagram."""


class Score(NamedTuple):
    """A mean over rows, and its interval of 95 %; both ends are NaN where there is none."""

    value: float
    lower: float
    upper: float

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: a single row has none, and calibration is not resampled for very many."""
        return bool(np.isfinite(self.lower) and np.isfinite(self.upper))

    def to_dict(self) -> dict[str, float | None]:
        """The numbers by name, None for ends that are not known."""
        return {name: float(x) if np.isfinite(x) else None for name, x in zip(self._fields, self, strict=True)}


@dataclass(frozen=True)
class DecisionValue:
    """The worth of decisions by a utility, as means over rows.

    Attributes
    ----------
    realised : float
        Utility of the actions chosen, given the true classes.
    expected : float
        Utility that the probabilities promised.
    actions : dict of str to int
        Number of rows for which each action was chosen.
    best_single_action : str
        The action that would have been worth most if it had been taken for all rows.
    realised_by_best_single_action : float
    """

    realised: float
    expected: float
    actions: dict[str, int]
    best_single_action: str
    realised_by_best_single_action: float


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of class probabilities on labelled rows.

    Attributes
    ----------
    classes : ndarray (K,)
    codes : ndarray (n,)
        Places of the true classes.
    probabilities : ndarray (n, K)
    scores : dict of Score
        "accuracy", "log_loss", "brier", "calibration_error" (of the most probable class, corrected for chance), and
        for comparison "log_loss_of_frequencies": the classes' frequencies in these rows, given to every row.
    confusion : ndarray (K, K)
        Number of rows, or their weight, of each true class (first axis) by the class that was most probable.
    weights : ndarray (n,) or None
        Weights of the rows; None where all count equally.
    decisions : DecisionValue or None
        The worth of decisions, if a utility was given.
    n_twins : int or None
        Rows identical to another of these rows, in every column and in the label; None where nobody looked.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> evaluation = evaluate(GaussianNB().fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> evaluation.to_frame().round(3)
                             value  lower  upper
    score
    accuracy                 0.960  0.889  0.986
    log_loss                 0.114  0.000  0.238
    brier                    0.066  0.000  0.137
    calibration_error        0.014  0.000  0.058
    log_loss_of_frequencies  1.099  1.099  1.099
    >>> evaluation.confusion
    array([[25,  0,  0],
           [ 0, 24,  1],
           [ 0,  2, 23]])
    """

    classes: np.ndarray
    codes: np.ndarray
    probabilities: np.ndarray
    scores: dict[str, Score]
    confusion: np.ndarray
    weights: np.ndarray | None = None
    decisions: DecisionValue | None = field(default=None)
    n_twins: int | None = None

    def __repr__(self) -> str:
        shown = ("accuracy", "log_loss", "brier", "calibration_error")
        scores = ", ".join(f"{name}={self.scores[name].value:.4g}" for name in shown)
        twins = f"; {self.n_twins:,} rows have a twin" if self.n_twins else ""
        return f"Evaluation({len(self.codes)} rows, {len(self.classes)} classes: {scores}{twins})"

    @property
    def surprise(self) -> np.ndarray:
        """-log p(y) of each row, (n,)."""
        p = self.probabilities[np.arange(len(self.codes)), self.codes]
        return -np.log(np.maximum(p, 1e-300))

    def to_frame(self) -> pd.DataFrame:
        """Scores as a table: one row for each score, with the columns value, lower and upper."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.scores, orient="index", columns=[*Score._fields]).rename_axis("score")

    def confusion_frame(self) -> pd.DataFrame:
        """Confusions as a table: true classes in rows, most probable classes in columns."""
        import pandas as pd

        truth, predicted = pd.Index(self.classes, name="truth"), pd.Index(self.classes, name="prediction")
        return pd.DataFrame(self.confusion, index=truth, columns=predicted)

    def to_dict(self) -> dict[str, Any]:
        """All numbers but those of single rows, in plain values that JSON can hold."""
        names = [str(name) for name in self.classes]
        out: dict[str, Any] = {
            "rows": len(self.codes),
            "rows_with_a_twin": self.n_twins,
            "classes": names,
            "scores": {name: score.to_dict() for name, score in self.scores.items()},
            "confusion": {
                name: dict(zip(names, row, strict=True))
                for name, row in zip(names, self.confusion.tolist(), strict=True)
            },
        }
        return out if self.decisions is None else out | {"utility": asdict(self.decisions)}


def evaluate(
    model: Any, X: Any, y: Any, *, sample_weight: Any = None, utility: Utility | None = None, probabilities: Any = None
) -> Evaluation:
    """Score a fitted classifier on labelled rows.

    Parameters
    ----------
    model : fitted classifier with `predict_proba`, or a Pipeline that ends with one
        A classifier of this or any other library.
    X : rows, as for the model's `predict_proba`
        May hold the columns that y and sample_weight name.
    y : labels (n,), or the name of a column of X
    sample_weight : numbers (n,), or the name of a column of X, optional
    utility : Utility, optional
        Also say what decisions by this utility were worth.
    probabilities : array (n, K), optional
        The probabilities of the model for these rows, if they are known already.

    Returns
    -------
    Evaluation
        `scores` with intervals, `confusion`, `decisions`; `to_frame()` shows the scores as a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> evaluate(GaussianNB().fit(X[::2], y[::2]), X[1::2], y[1::2])
    Evaluation(75 rows, 3 classes: accuracy=0.96, log_loss=0.1145, brier=0.06638, calibration_error=0.01442)
    """
    labels, weights = read_labels(X, y), read_labels(X, sample_weight)
    rows = without_column(without_column(X, y), sample_weight)
    P = model.predict_proba(rows) if probabilities is None else probabilities
    scored = score_probabilities(labels, P, model.classes_, sample_weight=weights, utility=utility, X=rows)
    return replace(scored, n_twins=_twins(rows, scored.codes))


def _twins(X: Any, codes: np.ndarray) -> int | None:
    """The number of rows that occur more than once, with the same label; None where rows cannot be compared."""
    if not engine_for(X).holds_all_rows:
        return None
    found = comparable(X)
    return None if found is None else group_copies(found, codes, all_twins=True).n_twins


def score_probabilities(
    y: Any,
    probabilities: Any,
    classes: Any,
    *,
    sample_weight: Any = None,
    utility: Utility | None = None,
    X: Any = None,
) -> Evaluation:
    """Score class probabilities (n, K) by the labels y (n,); X is what the utility may be a function of.

    Examples
    --------
    >>> scored = score_probabilities(["b", "a"], [[0.2, 0.8], [0.4, 0.6]], ["a", "b"])
    >>> scored.scores["accuracy"].value
    0.5
    >>> scored.confusion
    array([[0, 1],
           [0, 1]])
    """
    P = np.asarray(probabilities, dtype=np.float64)
    classes = np.asarray(classes)
    codes, weights = labels_and_weights(y, classes, P, sample_weight)
    n, K = P.shape
    best = P.argmax(axis=1)
    hits = np.eye(K)[codes]
    shares = weights @ hits / weights.sum()
    surprise = -np.log(np.maximum(P[np.arange(n), codes], 1e-300))
    resamples = _BOOTSTRAP if 1 < n <= _BOOTSTRAP_ROWS else 0
    calibration = calibration_error(codes, P, classes=np.arange(K), sample_weight=sample_weight, n_bootstrap=resamples)
    effective = weights.sum() ** 2 / (weights**2).sum()
    scores = {
        "accuracy": proportion(float(weights @ (best == codes) / weights.sum()), effective),
        "log_loss": mean_score(surprise, weights),
        "brier": mean_score(((P - hits) ** 2).sum(axis=1), weights),
        "calibration_error": Score(calibration.corrected, calibration.lower, calibration.upper),
        "log_loss_of_frequencies": mean_score(-np.log(np.maximum(shares, 1e-300))[codes], weights),
    }
    unweighted = sample_weight is None
    confusion = np.zeros((K, K), dtype=int if unweighted else float)
    np.add.at(confusion, (codes, best), 1 if unweighted else weights)
    decisions = None if utility is None else _decision_value(classes[codes], P, classes, utility, sample_weight, X)
    return Evaluation(classes, codes, P, scores, confusion, None if unweighted else weights, decisions)


def _decision_value(
    y: np.ndarray, P: np.ndarray, classes: np.ndarray, utility: Utility, sample_weight: Any, X: Any
) -> DecisionValue:
    """The worth of decisions, beside that of the best single action for all rows."""
    chosen = decide(P, utility, classes=classes, X=X)

    def realised(actions: Any) -> float:
        return realised_utility(y, actions, utility, X=X, sample_weight=sample_weight)

    fixed = {str(action): realised([action] * len(y)) for action in utility.actions}
    best = max(fixed, key=lambda action: fixed[action])
    return DecisionValue(
        realised=realised(chosen.actions),
        expected=float(np.average(chosen.expected_utility.max(axis=1), weights=sample_weight)),
        actions={str(action): int((chosen.actions == action).sum()) for action in utility.actions},
        best_single_action=best,
        realised_by_best_single_action=fixed[best],
    )


def mean_score(values: np.ndarray, weights: np.ndarray | None = None) -> Score:
    """Mean and normal interval of scores that are not negative; a single row has none."""
    found = interval_about(*mean_and_error(values, weights))
    return found._replace(lower=max(0.0, found.lower)) if found.has_interval else found


def interval_about(mean: float, error: float) -> Score:
    """A mean with this standard error, and its normal interval; there is none if the error is not known.

    >>> interval_about(1.0, float("inf")).has_interval
    False
    """
    if not np.isfinite(error):
        return Score(mean, np.nan, np.nan)
    return Score(mean, mean - _Z * error, mean + _Z * error)


def reliability(p: np.ndarray, hit: np.ndarray, weights: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """How often events of probability p happened, in bins of about equally many rows, with Wilson's intervals.

    The keys are those of the chart `reliability` of page/charts.js: probability, frequency, lower, upper and rows.

    >>> found = reliability(np.array([0.25, 0.25, 0.75, 0.75]), np.array([0.0, 0.0, 1.0, 1.0]))
    >>> found["frequency"], found["rows"]
    (array([0.5]), array([4.]))
    """
    n = len(p)
    bins = calibration_bins(p, hit, np.ones(n) if weights is None else weights, min(_BINS, max(1, n // 5)))
    ranges = [proportion(float(f), float(m)) for f, m in zip(bins.frequency, bins.count, strict=True)]
    return {
        "probability": bins.probability,
        "frequency": bins.frequency,
        "lower": np.array([found.lower for found in ranges]),
        "upper": np.array([found.upper for found in ranges]),
        "rows": bins.count,
    }


def proportion(share: float, n: float) -> Score:
    """A share of n rows, and Wilson's interval, which is sound also at 0 and 1."""
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n)) / (1 + _Z**2 / n)
    return Score(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))
