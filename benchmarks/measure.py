"""What is measured of a fit: time, peak memory, objective and gradient, computed apart from any library."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.special import logsumexp

from benchmarks.adapters import Adapter

GAP = 1e-8
"""A run is void unless its relative objective gap is at most this."""

OVER_BUDGET = "over budget"
"""Status of a run that was killed, or ended without the gap when its budget did."""

BLOCK = 4096
"""Rows evaluated at a time."""


def objective(
    X: Any, y: np.ndarray, coef: np.ndarray, intercept: np.ndarray, alpha: float = 1.0
) -> tuple[float, float]:
    r"""Return the objective and the Euclidean norm of its gradient in (W, b), in double precision.

    .. math::

        J = \sum_n \sum_k y_{nk} (\mathrm{logsumexp}(z_n) - z_{nk}) + \tfrac{\alpha}{2} \|W\|^2,
        \qquad z_n = W x_n + b

    Parameters
    ----------
    X : (N, D) array or CSR array
        Features of any numeric type.
    y : (N,) or (N, K) array
        Codes 0..K-1, or weights of the classes (soft labels or counts).
    coef : (K, D) array
        W.
    intercept : (K,) array
        b.
    alpha : float
        Precision of the weights; the intercept is free.
    """
    W, b = np.asarray(coef, dtype=float), np.asarray(intercept, dtype=float)
    losses = []
    gradient_W, gradient_b = alpha * W, np.zeros_like(b)
    for start in range(0, X.shape[0], BLOCK):
        rows = slice(start, start + BLOCK)
        x, target = X[rows].astype(float), y[rows]
        Y = np.eye(len(b))[target] if target.ndim == 1 else target
        logits = x @ W.T + b
        log_norm = logsumexp(logits, axis=1, keepdims=True)
        residual = np.exp(logits - log_norm) * Y.sum(axis=1, keepdims=True) - Y
        losses.append(float(np.sum(Y * (log_norm - logits))))
        gradient_W = gradient_W + (x.T @ residual).T
        gradient_b = gradient_b + residual.sum(axis=0)
    value = math.fsum(losses) + alpha / 2 * float(np.sum(W**2))
    return value, math.hypot(float(np.linalg.norm(gradient_W)), float(np.linalg.norm(gradient_b)))


def relative_gap(value: float, reference: float) -> float:
    """Return (J - J*) / |J*|; NaN where either is unknown."""
    return (value - reference) / abs(reference)


@dataclass(frozen=True)
class Measurement:
    """One fit: wall-clock seconds, peak resident memory beyond that before it, and how good the answer is."""

    seconds: float
    peak_mb: float | None = None
    objective: float = math.nan
    gradient_norm: float = math.nan
    info: dict[str, Any] = field(default_factory=dict)


def measure(adapter: Adapter, X: Any, y: np.ndarray, alpha: float = 1.0) -> Measurement:
    """Fit once and measure it."""
    before = reset_peak()
    with warnings.catch_warnings():
        # A run that did not converge is found by its gap, whatever the library says about it.
        warnings.simplefilter("ignore")
        start = perf_counter()
        fit = adapter.fit(X, y)
        seconds = perf_counter() - start
    peak_mb = None if before is None else (memory_mb("VmHWM") - before)
    value, gradient_norm = objective(X, y, fit.coef, fit.intercept, alpha)
    return Measurement(seconds, peak_mb, value, gradient_norm, fit.info)


def reset_peak() -> float | None:
    """Set the high-water mark of resident memory to the present, and return it in MB; None without Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return memory_mb("VmRSS")
    except OSError:
        return None


def memory_mb(name: str) -> float:
    """Return a memory field of ``/proc/self/status`` in MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / 1e6
