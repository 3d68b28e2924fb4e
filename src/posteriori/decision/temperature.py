r"""One temperature for all classes and some doubt, learned from rows that a classifier had not seen.

With z = log p, and the class frequencies :math:`\pi`,

.. math:: p'_k = (1 - \varepsilon)\, \mathrm{softmax}(\beta z)_k + \varepsilon\, \pi_k,
          \qquad \log \beta \sim N(0, 1/2^2), \quad \varepsilon \sim \mathrm{Beta}(1.1, 1).

The temperature is 1 / beta. The doubt epsilon is the share of rows about which the classifier knows nothing; it takes
care of errors that were stated with certainty, and of wrong labels, which no temperature can describe.

How large the logits of a classifier are belongs to one fit, not to the method: an unregularised fit to separable rows
ends wherever its solver stops, and a fit to other rows somewhere else. So beta is fitted to every part of the rows
alone, as each part was predicted by a fit of its own, and the slopes are averaged in logarithms. What was learned from
all parts but one is then tried on that one. Unless this gains more than one standard error, paired by row, nothing is
changed: beta = 1 and epsilon = 0.

`likely_temperature` asks all rows together, and in place of a trial it weighs four models by their evidence: beta and
epsilon may each move or stay, and before the rows are seen each moves with probability `MOVES` = 0.1. A slope that
moves has the prior above, a doubt that moves Beta(1/2, 1). The answer is the average of log beta, and of epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, logit, softmax

__all__ = [
    "LOWEST",
    "MOVES",
    "Gain",
    "Temperature",
    "fit_temperature",
    "likeliest_temperature",
    "likely_temperature",
    "log_probabilities",
    "with_doubt",
]

LOWEST = -50.0
"""Log-probabilities below are taken for this: a class held impossible must not decide the whole map."""

MOVES = 0.1
"""Prior probability that a part of a map is not the one that changes nothing."""

_SPREAD = 0.5
"""Prior standard deviation of log beta."""
_PSEUDO = 0.1
"""Rows that the prior of the doubt is worth: 0.1 log epsilon is added to the log-likelihood."""
_SHAPE = 0.5
"""The prior of a doubt that moves is Beta(1/2, 1); its density by log epsilon is _SHAPE * epsilon**_SHAPE."""
_DIFFERENCE = 1e-2
"""Step of differences by log beta."""
_GRID = np.linspace(-6.0, 6.0, 17)
"""Values of log beta that are tried first, as the likelihood may have several maxima."""


@dataclass(frozen=True)
class Temperature:
    """The map of log-probabilities z (n, K): a mixture of softmax(slope z) and the class frequencies.

    Attributes
    ----------
    slope : float
        beta, one over the temperature.
    doubt : float
        epsilon, the share of the frequencies.
    frequencies : ndarray (K,)
    """

    slope: float
    doubt: float
    frequencies: np.ndarray

    def log_proba(self, Z: np.ndarray) -> np.ndarray:
        """Logarithms of the mapped probabilities, (n, K)."""
        return with_doubt(log_softmax(self.slope * Z, axis=1), self.doubt, self.frequencies)


@dataclass(frozen=True)
class Gain:
    """The mean decrease of the log-loss of a row from which a map did not learn."""

    mean: float
    error: float
    """Its standard error."""


def log_probabilities(P: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities, none below `LOWEST`."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(P), LOWEST)


def with_doubt(log_proba: np.ndarray, doubt: float, frequencies: np.ndarray) -> np.ndarray:
    """log((1 - doubt) p + doubt * frequencies), of log-probabilities (n, K)."""
    if doubt == 0.0:
        return log_proba
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log1p(-doubt) + log_proba, np.log(doubt) + np.log(frequencies))


def fit_temperature(
    Z: np.ndarray, codes: np.ndarray, parts: np.ndarray, frequencies: np.ndarray, weights: np.ndarray | None = None
) -> tuple[Temperature, Gain]:
    """The map for log-probabilities of rows that were not seen, and what it gained on parts left out.

    See docs/theory.md, section 7.2.

    Parameters
    ----------
    Z : ndarray (n, K)
        Finite log-probabilities, each row predicted by a fit without it.
    codes : ndarray of int (n,)
        The true classes.
    parts : ndarray of int (n,)
        The part of each row; rows of one part were predicted by the same fit, or by a few.
    frequencies : ndarray (K,)
    weights : ndarray (n,), optional
        How often each row counts.
    """
    c = np.ones(len(Z)) if weights is None else weights
    unchanged = Temperature(1.0, 0.0, frequencies)
    rows = [np.flatnonzero((parts == part) & (c > 0)) for part in np.unique(parts)]
    samples = [_Sample(Z[r], codes[r], c[r], frequencies) for r in rows if r.size]
    if len(samples) < 2:
        return unchanged, Gain(0.0, 0.0)
    slopes = np.array([sample.log_slope() for sample in samples])
    fitted = [sample.own(u) for sample, u in zip(samples, slopes, strict=True)]

    def learned_from(chosen: np.ndarray) -> Temperature:
        own = np.concatenate([fitted[i] for i in chosen])
        base, count = (np.concatenate([getattr(samples[i], name) for i in chosen]) for name in ("base", "weights"))
        return Temperature(float(np.exp(slopes[chosen].mean())), _doubt(own, base, count), frequencies)

    everything = np.arange(len(samples))
    gains = [s.gain(learned_from(np.delete(everything, i)), unchanged) for i, s in enumerate(samples)]
    gain = _mean(np.concatenate(gains), np.concatenate([s.weights for s in samples]))
    return (learned_from(everything) if gain.mean > gain.error else unchanged), gain


def likely_temperature(
    Z: np.ndarray, codes: np.ndarray, frequencies: np.ndarray, weights: np.ndarray | None = None
) -> Temperature:
    """The average of maps in which slope and doubt move or stay, each as likely as its evidence says.

    See docs/theory.md, section 7.2.

    The evidence is Laplace's, in log beta and log epsilon. Arguments are those of `fit_temperature`.
    """
    c = np.ones(len(Z)) if weights is None else weights
    sample = _Sample(Z[c > 0], codes[c > 0], c[c > 0], frequencies)
    if not sample.codes.size:
        return Temperature(1.0, 0.0, frequencies)
    models = [(slope_moves, doubt_moves) for slope_moves in (False, True) for doubt_moves in (False, True)]
    log_slope, doubt, log_evidence = np.array([sample.laplace(*model) for model in models]).T
    likely = softmax(log_evidence + logit(MOVES) * np.sum(models, axis=1))
    return Temperature(float(np.exp(likely @ log_slope)), float(likely @ doubt), frequencies)


def likeliest_temperature(
    Z: np.ndarray, codes: np.ndarray, frequencies: np.ndarray, weights: np.ndarray
) -> tuple[Temperature, float]:
    """The map of highest posterior density for rows that were all predicted in one way, and minus its logarithm.

    For models whose logits are of one size by construction, as averages over trees are: the map belongs to the method,
    and all rows can tell of it together. Parameters are those of `fit_temperature`.
    """
    sample = _Sample(Z, codes, weights, frequencies)
    log_slope = sample.log_slope()
    doubt = _doubt(sample.own(log_slope), sample.base, weights)
    return Temperature(float(np.exp(log_slope)), doubt, frequencies), sample.cost(log_slope)


@dataclass(frozen=True)
class _Sample:
    """Rows that one fit predicted: log-probabilities, true classes, weights."""

    Z: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    frequencies: np.ndarray

    @property
    def base(self) -> np.ndarray:
        """The frequency of the true class of each row."""
        return self.frequencies[self.codes]

    def own(self, log_slope: float) -> np.ndarray:
        """softmax(beta z) at the true class of each row."""
        E = self.Z - self.Z.max(axis=1, keepdims=True)
        E *= np.exp(log_slope)
        np.exp(E, out=E)
        return E[np.arange(len(E)), self.codes] / E.sum(axis=1)

    def log_slope(self) -> float:
        """log beta of the highest posterior density, the doubt maximised for each."""
        return _minimum(self.cost)

    def cost(self, log_slope: float) -> float:
        """Minus the log-posterior density of log beta, up to a constant."""
        own, base = self.own(log_slope), self.base
        doubt = _doubt(own, base, self.weights)
        likelihood = self.weights @ np.log(own + doubt * (base - own))
        return float(0.5 * (log_slope / _SPREAD) ** 2 - likelihood - _PSEUDO * np.log(doubt))

    def laplace(self, slope_moves: bool, doubt_moves: bool) -> tuple[float, float, float]:
        """log beta and epsilon at the mode, and Laplace's log evidence, where they move or stay at 0."""

        def cost(log_slope: float) -> float:
            """Minus the log density of both, epsilon at its best."""
            slope_cost = 0.5 * (log_slope / _SPREAD) ** 2 + np.log(np.sqrt(2.0 * np.pi) * _SPREAD)
            return float(slope_moves * slope_cost - self._at_best_doubt(log_slope, doubt_moves)[0])

        log_slope = _minimum(cost) if slope_moves else 0.0
        _, doubt, bend = self._at_best_doubt(log_slope, doubt_moves)
        log_evidence = -cost(log_slope)
        if doubt_moves:
            log_evidence += 0.5 * np.log(2.0 * np.pi / bend)
        if slope_moves:
            h = _DIFFERENCE
            bend = (cost(log_slope + h) - 2.0 * cost(log_slope) + cost(log_slope - h)) / h**2
            log_evidence += 0.5 * np.log(2.0 * np.pi / max(bend, 1.0))
        return log_slope, doubt, log_evidence

    def _at_best_doubt(self, log_slope: float, moves: bool) -> tuple[float, float, float]:
        """Log-likelihood and log-prior of log epsilon at its mode, epsilon, and minus their second derivative by it."""
        own, base = np.maximum(self.own(log_slope), np.finfo(float).tiny), self.base
        if not moves:
            return float(self.weights @ np.log(own)), 0.0, 0.0
        doubt = _doubt(own, base, self.weights, _SHAPE)
        mixed = own + doubt * (base - own)
        share = doubt * (base - own) / mixed
        height = self.weights @ np.log(mixed) + np.log(_SHAPE) + _SHAPE * np.log(doubt)
        return float(height), doubt, max(float(self.weights @ (share * (share - 1.0))), _SHAPE)

    def gain(self, new: Temperature, old: Temperature) -> np.ndarray:
        """The decrease of the log-loss of each row from the old map to the new one."""
        rows = np.arange(len(self.codes)), self.codes
        return new.log_proba(self.Z)[rows] - old.log_proba(self.Z)[rows]


def _minimum(cost: Callable[[float], float]) -> float:
    """The lowest point of a function of log beta, which may have several minima."""
    coarse = np.array([cost(u) for u in _GRID])
    best = int(coarse.argmin())
    bounds = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
    fine = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(fine.x if fine.fun < coarse[best] else _GRID[best])


def _doubt(own: np.ndarray, base: np.ndarray, weights: np.ndarray, a: float = _PSEUDO) -> float:
    """The epsilon that maximises sum_n c_n log((1 - eps) own_n + eps base_n) + a log eps, a concave function.

    The root of eps times its derivative is looked for in log eps, where it bends little.
    """
    rise = base - own

    def slope(log_doubt: float) -> float:
        doubt = np.exp(log_doubt)
        return float(doubt * (weights @ (rise / (own + doubt * rise))) + a)

    if slope(0.0) >= 0.0:
        return 1.0
    least = np.log(a / (weights.sum() + a)) - 1.0  # there no row can outweigh the prior
    return float(np.exp(brentq(slope, least, 0.0, xtol=1e-9)))


def _mean(values: np.ndarray, weights: np.ndarray) -> Gain:
    """The mean of values that count weights_n times, and its standard error."""
    total = weights.sum()
    mean = weights @ values / total
    return Gain(float(mean), float(np.sqrt(weights @ (values - mean) ** 2) / total))
