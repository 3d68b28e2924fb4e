r"""How far probabilities deserve trust, and what decisions made of them were worth.

Calibration is judged in two ways. The Brier score splits exactly, class by class, with q the probabilities after the
best monotone recalibration (isotonic regression on the same rows):

.. math:: \underbrace{\mathrm{Brier}(p)}_{\text{score}} =
          \underbrace{\mathrm{Brier}(p) - \mathrm{Brier}(q)}_{\text{calibration}} +
          \underbrace{\mathrm{Brier}(q)}_{\text{refinement}} .

The expected calibration error compares mean probability and frequency in bins. Its plain form is positive even for
perfect probabilities; the corrected one removes from each bin what chance alone puts there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from sklearn.isotonic import isotonic_regression

from posteriori.decision.decisions import distributions
from posteriori.decision.utility import Utility, action_places, codes_of, places
from posteriori.parameters import require_count

__all__ = [
    "BrierSplit",
    "CalibrationBins",
    "CalibrationError",
    "brier_split",
    "calibration_bins",
    "calibration_error",
    "events",
    "interval_coverage",
    "labels_and_weights",
    "log_loss",
    "mean_and_error",
    "realised_utility",
    "regret",
]


def log_loss(y: Any, log_proba: Any, *, classes: Any = None, sample_weight: Any = None) -> float:
    """Mean of -log p(y_n), from log-probabilities: nothing is clipped, a class held impossible costs infinity.

    Parameters
    ----------
    y : array (n,) of labels
    log_proba : array (n, K)
        Log-probabilities, such as those of `predict_log_proba`.
    classes : sequence of K labels, optional
        The classes of the columns; the sorted labels of y if left out.

    Examples
    --------
    >>> log_loss([1], [[0.0, -800.0]], classes=[0, 1])
    800.0
    """
    L = np.asarray(log_proba, dtype=np.float64)
    codes, weights = labels_and_weights(y, classes, L, sample_weight)
    counted = weights > 0.0
    return float(np.average(-L[np.arange(len(codes)), codes][counted], weights=weights[counted]))


class BrierSplit(NamedTuple):
    """Brier score = calibration + refinement; refinement = uncertainty - resolution."""

    score: float
    calibration: float
    refinement: float
    uncertainty: float
    resolution: float


def brier_split(y: Any, proba: Any, *, classes: Any = None, sample_weight: Any = None) -> BrierSplit:
    """The Brier score sum_k (p_k - [y = k])^2, and how much of it better calibrated probabilities would have saved.

    See docs/theory.md, section 7.2.

    Parameters
    ----------
    y : array (n,) of labels
    proba : array (n, K)
    classes : sequence of K labels, optional
        The classes of the columns; the sorted labels of y if left out.
    sample_weight : array (n,), optional

    Returns
    -------
    BrierSplit
        `score`; `calibration`, what isotonic recalibration on these rows would save, class by class; `refinement`, what
        would be left; `uncertainty`, the score of the class frequencies; `resolution`, what telling rows apart saves.

    Examples
    --------
    >>> brier_split([0, 0, 1, 1], [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])._asdict()["refinement"]
    0.0
    """
    P = distributions(proba, "proba")
    codes, weights = labels_and_weights(y, classes, P, sample_weight)
    total = weights.sum()
    score = refinement = uncertainty = 0.0
    for k in range(P.shape[1]):
        hit = (codes == k).astype(np.float64)
        score += float(weights @ (P[:, k] - hit) ** 2 / total)
        refinement += float(weights @ (_recalibrated(P[:, k], hit, weights) - hit) ** 2 / total)
        rate = float(weights @ hit / total)
        uncertainty += rate * (1.0 - rate)
    return BrierSplit(score, score - refinement, refinement, uncertainty, uncertainty - refinement)


def _recalibrated(p: np.ndarray, hit: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Isotonic regression of hits on p; rows with the same p share one value."""
    values, inverse = np.unique(p, return_inverse=True)
    mass = np.bincount(inverse, weights, minlength=len(values))
    mean = np.bincount(inverse, weights * hit, minlength=len(values)) / np.where(mass > 0.0, mass, 1.0)
    return isotonic_regression(mean, sample_weight=np.maximum(mass, 1e-300))[inverse]


@dataclass(frozen=True)
class CalibrationBins:
    """Rows gathered by probability.

    Attributes
    ----------
    probability, frequency : ndarray (B,)
        Mean of both in each bin.
    weight : ndarray (B,)
    count : ndarray (B,)
        Effective number of rows, (sum c)^2 / sum c^2.
    """

    probability: np.ndarray
    frequency: np.ndarray
    weight: np.ndarray
    count: np.ndarray


def calibration_bins(
    p: np.ndarray,
    hit: np.ndarray,
    weights: np.ndarray,
    n_bins: int = 15,
    strategy: Literal["quantile", "uniform"] = "quantile",
) -> CalibrationBins:
    """Bins of equal weight, or of equal width, of the probabilities p of an event that was a hit or not."""
    if strategy not in ("quantile", "uniform"):
        raise ValueError(f"strategy={strategy!r} is unknown: use 'quantile' or 'uniform'.")
    if strategy == "uniform":
        which = np.minimum((p * n_bins).astype(int), n_bins - 1)
    else:
        order = np.argsort(p, kind="stable")
        reached = np.cumsum(weights[order]) - 0.5 * weights[order]
        which = np.empty(len(p), dtype=int)
        which[order] = np.minimum((reached / weights.sum() * n_bins).astype(int), n_bins - 1)
        # the same probability is never in two bins
        _, first, inverse = np.unique(p[order], return_index=True, return_inverse=True)
        which[order] = which[order][first][inverse]
    mass = np.bincount(which, weights, minlength=n_bins)
    used = mass > 0.0
    squares = np.bincount(which, weights**2, minlength=n_bins)[used]
    mass = mass[used]
    mean = np.bincount(which, weights * p, minlength=n_bins)[used] / mass
    rate = np.bincount(which, weights * hit, minlength=n_bins)[used] / mass
    return CalibrationBins(mean, rate, mass, mass**2 / squares)


class CalibrationError(NamedTuple):
    """Expected calibration error: as it comes, corrected for chance, and an interval of the corrected one."""

    error: float
    corrected: float
    lower: float
    upper: float


def calibration_error(
    y: Any,
    proba: Any,
    *,
    kind: Literal["top", "class"] = "top",
    n_bins: int = 15,
    strategy: Literal["quantile", "uniform"] = "quantile",
    classes: Any = None,
    sample_weight: Any = None,
    n_bootstrap: int = 0,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationError:
    """Expected calibration error: the mean distance between probability and frequency over bins.

    See docs/theory.md, section 7.2.

    Parameters
    ----------
    y : array (n,) of labels
    proba : array (n, K)
    kind : {"top", "class"}
        The error of the most probable class alone, or the mean over all classes.
    n_bins : int
    strategy : {"quantile", "uniform"}
        Bins of equal weight or of equal width.
    classes : sequence of K labels, optional
    sample_weight : array (n,), optional
    n_bootstrap : int
        Resamples of the rows for the interval, such as 200; without any both its ends are NaN.
    level : float
        The level of the interval.
    random_state : int

    Returns
    -------
    CalibrationError
        `error` as it comes; `corrected`, the error of bins with distances in the same proportions that would be
        expected to show it together with their sampling noise; `lower`, `upper`, NaN if there is no interval.
    """
    if kind not in ("top", "class"):
        raise ValueError(f"kind={kind!r} is unknown: use 'top' or 'class'.")
    require_count("n_bootstrap", n_bootstrap)
    require_count("n_bins", n_bins, 1)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level!r} must be between 0 and 1.")
    P = distributions(proba, "proba")
    codes, weights = labels_and_weights(y, classes, P, sample_weight)

    def both(rows: Any) -> tuple[float, float]:
        plain, corrected, total = 0.0, 0.0, 0
        for p, hit in events(P[rows], codes[rows], kind):
            bins = calibration_bins(p, hit, weights[rows], int(n_bins), strategy)
            share = bins.weight / bins.weight.sum()
            distance = np.abs(bins.probability - bins.frequency)
            noise = np.sqrt(_smoothed(bins) / np.maximum(bins.count, 1.0))
            plain += float(share @ distance)
            corrected += _without_noise(distance, noise, share)
            total += 1
        return plain / total, corrected / total

    plain, corrected = both(slice(None))
    if not n_bootstrap:
        return CalibrationError(plain, corrected, np.nan, np.nan)
    rng = np.random.default_rng(random_state)
    again = [both(rng.integers(0, len(codes), len(codes)))[1] for _ in range(n_bootstrap)]
    # resampled rows show the noise of the rows as well as their own: taken about the estimate, not about their mean
    shift = min(corrected - float(np.mean(again)), 0.0)
    tail = 0.5 * (1.0 - level)
    lower, upper = np.quantile(again, [tail, 1.0 - tail]) + shift
    return CalibrationError(plain, corrected, max(0.0, min(float(lower), corrected)), max(float(upper), corrected))


def events(P: np.ndarray, codes: np.ndarray, kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Probabilities of events, and whether they happened: that the top class is true, or each of the classes."""
    if kind == "top":
        top = P.argmax(axis=1)
        return [(P[np.arange(len(P)), top], (top == codes).astype(np.float64))]
    return [(P[:, k], (codes == k).astype(np.float64)) for k in range(P.shape[1])]


def _smoothed(bins: CalibrationBins) -> np.ndarray:
    """Variance of a hit in each bin, of a frequency that is never quite 0 or 1."""
    rate = (bins.frequency * bins.count + bins.probability) / (bins.count + 1.0)
    return rate * (1.0 - rate)


def _without_noise(distance: np.ndarray, noise: np.ndarray, share: np.ndarray) -> float:
    """The error of distances s d_b, where s is such that with the noise they would be expected to show the error found.

    Zero where noise alone explains it.
    """
    found = float(share @ distance)

    def expected(s: float) -> float:  # sum_b w_b E|N(s d_b, noise_b^2)|
        mean = s * distance
        z = mean / np.where(noise > 0.0, noise, 1.0)
        folded = noise * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * z * z) + mean * (2.0 * ndtr(z) - 1.0)
        return float(share @ np.where(noise > 0.0, folded, mean)) - found

    if found == 0.0 or expected(0.0) >= 0.0:
        return 0.0
    if expected(1.0) <= 0.0:  # no noise to speak of
        return found
    return found * float(brentq(expected, 0.0, 1.0, xtol=1e-12))


def realised_utility(y: Any, actions: Any, utility: Utility, *, X: Any = None, sample_weight: Any = None) -> float:
    """Mean utility of the actions taken, given the true states y.

    >>> utility = Utility([[0, -1], [-5, 0]], states=["good", "bad"], actions=["grant", "refuse"])
    >>> realised_utility(["good", "bad"], ["grant", "grant"], utility)
    -2.5
    """
    U, states = _utilities(y, utility, X)
    taken = action_places(actions, utility)
    return float(np.average(_at(U, states, taken), weights=sample_weight))


def regret(y: Any, actions: Any, utility: Utility, *, X: Any = None, sample_weight: Any = None) -> float:
    """Mean utility that the actions taken lost against those that one would have taken knowing the states."""
    U, states = _utilities(y, utility, X)
    taken = action_places(actions, utility)
    rows = U[states] if U.ndim == 2 else U[np.arange(len(states)), states]
    return float(np.average(rows.max(axis=1) - _at(U, states, taken), weights=sample_weight))


def interval_coverage(truth: Any, lower: Any, upper: Any, *, sample_weight: Any = None) -> float:
    """Share of true values that lie within their intervals; all of one shape, with a weight for each row."""
    truth, lower, upper = (np.asarray(values, dtype=np.float64) for values in (truth, lower, upper))
    if not truth.shape == lower.shape == upper.shape:
        raise ValueError(
            f"truth, lower and upper have shapes {truth.shape}, {lower.shape} and {upper.shape}: equal shapes "
            "are needed."
        )
    inside = ((lower <= truth) & (truth <= upper)).reshape(len(truth), -1).mean(axis=1)
    return float(np.average(inside, weights=sample_weight))


def _utilities(y: Any, utility: Utility, X: Any) -> tuple[np.ndarray, np.ndarray]:
    states = places(y, utility.states)
    if utility.function is not None and X is None:
        raise ValueError("This utility is a function of the row: pass the rows as X.")
    U = utility.of_rows(X) if utility.function is not None else utility.matrix
    assert U is not None
    if U.ndim == 3 and len(U) != len(states):
        raise ValueError(
            f"The utility has matrices for {len(U)} rows, and y has {len(states)}: pass one matrix for each row, or "
            "one for all."
        )
    return U, states


def _at(U: np.ndarray, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    if len(actions) != len(states):
        raise ValueError(f"y has {len(states)} rows, and there are {len(actions)} actions: pass one for each row.")
    return U[states, actions] if U.ndim == 2 else U[np.arange(len(states)), states, actions]


def mean_and_error(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Weighted mean over rows, and its standard error; infinite for a single row.

    >>> mean_and_error(np.array([1.0, 2.0, 3.0, 2.0]))
    (2.0, 0.408248290463863)
    """
    n = len(values)
    c = np.ones(n) if weights is None else weights
    mean = float(c @ values / c.sum())
    if n < 2:
        return mean, np.inf
    return mean, float(np.sqrt(n / (n - 1) * (c**2 @ (values - mean) ** 2)) / c.sum())


def labels_and_weights(y: Any, classes: Any, P: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the labels, and a weight for every row."""
    labels = np.asarray(y)
    known = np.unique(labels) if classes is None else np.asarray(classes)
    if P.ndim != 2 or P.shape != (len(labels), len(known)):
        hint = "" if classes is not None else ", or name the columns with classes="
        raise ValueError(
            f"Probabilities have shape {P.shape}, and {len(labels)} labels of {len(known)} classes need "
            f"({len(labels)}, {len(known)}){hint}."
        )
    codes = codes_of(labels, known)
    weights = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != codes.shape or not ((weights >= 0.0).all() and np.isfinite(weights).all() and weights.any()):
        raise ValueError("sample_weight must be one number for each row, finite, not negative, and not all zero.")
    return codes, weights
