r"""Pareto-smoothed importance weights: the largest are replaced by quantiles of the tail fitted to them.

The shape k of that tail tells how far the weights can be trusted: beyond 0.7 their mean converges too slowly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Smoothed", "smoothed_weights"]


class Smoothed(NamedTuple):
    """Weights (S,) that sum to one, the tail's shape, and how many equal weights they are worth."""

    weights: np.ndarray
    k_hat: float
    effective_sample_size: float


def smoothed_weights(log_weights: np.ndarray) -> Smoothed:
    """Smooth the largest min(S/5, 3 sqrt(S)) weights, capped at the largest raw one (docs/theory.md, section 3.5).

    A tail that has underflowed counts as k = infinity.
    """
    S = log_weights.size
    order = np.argsort(log_weights, kind="stable")
    shifted = log_weights - log_weights[order[-1]]
    weights = np.exp(shifted)
    n_tail = int(np.ceil(min(0.2 * S, 3.0 * np.sqrt(S))))
    cutoff = float(weights[order[-n_tail - 1]]) if n_tail < S else 0.0
    tail = order[-n_tail:]
    tail = tail[weights[tail] > cutoff]
    k_hat = np.inf
    if weights[order[0]] == 1.0:  # all weights are equal
        k_hat = -np.inf
    elif cutoff > 0 and tail.size >= 5:
        k_hat, sigma = _fit_pareto(weights[tail] - cutoff)
        quantiles = (np.arange(tail.size) + 0.5) / tail.size
        weights[tail] = np.minimum(cutoff + _pareto_quantiles(quantiles, k_hat, sigma), 1.0)
    weights = weights / weights.sum()
    return Smoothed(weights, float(k_hat), float(1.0 / (weights**2).sum()))


def _pareto_quantiles(u: np.ndarray, k: float, sigma: float) -> np.ndarray:
    """Quantiles of the generalised Pareto distribution, sigma ((1 - u)^{-k} - 1) / k."""
    return -sigma * np.log1p(-u) if abs(k) < 1e-10 else sigma * np.expm1(-k * np.log1p(-u)) / k


def _fit_pareto(x: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution for sorted positive values, by Zhang and Stephens (2009).

    Averages theta = -k/sigma over its profile likelihood with a weak prior, then shrinks k towards 1/2 by ten values.
    """
    n = x.size
    m = 30 + int(np.sqrt(n))
    j = np.arange(1, m + 1)
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(m / (j - 0.5))) / (3.0 * quartile)
    k = np.log1p(-theta[:, None] * x).mean(axis=1)
    log_likelihood = n * (np.log(-theta / k) - k - 1.0)
    weights = 1.0 / np.exp(log_likelihood - log_likelihood[:, None]).sum(axis=1)
    best = float(weights @ theta)
    shape = float(np.log1p(-best * x).mean())
    sigma = -shape / best
    return (n * shape + 10 * 0.5) / (n + 10), sigma
