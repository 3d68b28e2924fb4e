"""What is to be said of predictions on labelled rows: scores with intervals, who was taken for whom, odd rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from posteriori.decision.scores import calibration_error, labels_and_weights

__all__ = ["Evaluation", "Score", "evaluate", "proportion"]

_BOOTSTRAP = 200
_BOOTSTRAP_ROWS = 20_000
"""Beyond so many rows, sampling noise of the calibration error is too small to be worth resampling."""


class Score(NamedTuple):
    """A mean over rows, and an interval of 95 %."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Evaluation:
    """Predictions on labelled rows, judged.

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
        Rows of each true class (first axis) by the class that was most probable.
    """

    classes: np.ndarray
    codes: np.ndarray
    probabilities: np.ndarray
    scores: dict[str, Score]
    confusion: np.ndarray

    @property
    def surprise(self) -> np.ndarray:
        """-log p(y) of each row, (n,)."""
        p = self.probabilities[np.arange(len(self.codes)), self.codes]
        return -np.log(np.maximum(p, 1e-300))

    def to_dict(self) -> dict[str, Any]:
        """Scores and confusion in plain values."""
        names = [str(name) for name in self.classes]
        return {
            "rows": len(self.codes),
            "classes": names,
            "scores": {name: score._asdict() for name, score in self.scores.items()},
            "confusion": {
                name: dict(zip(names, map(int, row), strict=True))
                for name, row in zip(names, self.confusion, strict=True)
            },
        }


def evaluate(y: Any, probabilities: Any, classes: Any) -> Evaluation:
    """Judge class probabilities (n, K) by the labels y (n,).

    Examples
    --------
    >>> judged = evaluate(["b", "a"], [[0.2, 0.8], [0.4, 0.6]], ["a", "b"])
    >>> judged.scores["accuracy"].value
    0.5
    >>> judged.confusion
    array([[0, 1],
           [0, 1]])
    """
    P = np.asarray(probabilities, dtype=np.float64)
    classes = np.asarray(classes)
    codes, _ = labels_and_weights(y, classes, P, None)
    n, K = P.shape
    best = P.argmax(axis=1)
    hits = np.eye(K)[codes]
    shares = hits.mean(axis=0)
    surprise = -np.log(np.maximum(P[np.arange(n), codes], 1e-300))
    resamples = _BOOTSTRAP if n <= _BOOTSTRAP_ROWS else 0
    calibration = calibration_error(codes, P, classes=np.arange(K), n_bootstrap=resamples)
    scores = {
        "accuracy": proportion(int((best == codes).sum()), n),
        "log_loss": _mean(surprise),
        "brier": _mean(((P - hits) ** 2).sum(axis=1)),
        "calibration_error": Score(calibration.corrected, calibration.lower, calibration.upper),
        "log_loss_of_frequencies": _mean(-np.log(shares[codes])),
    }
    confusion = np.zeros((K, K), dtype=int)
    np.add.at(confusion, (codes, best), 1)
    return Evaluation(classes, codes, P, scores, confusion)


_Z = float(ndtri(0.975))


def _mean(values: np.ndarray) -> Score:
    """Mean and normal interval."""
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
    if error == np.inf:
        return Score(mean, mean, mean)
    return Score(mean, max(0.0, mean - _Z * error), mean + _Z * error)


def proportion(hits: int, n: int) -> Score:
    """Share and Wilson's interval, which is sound also at 0 and 1."""
    share = hits / n
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n)) / (1 + _Z**2 / n)
    return Score(share, float(max(0.0, centre - half)), float(min(1.0, centre + half)))
