"""The step along a descent direction: try the full one, then close in on a better one by cubic interpolation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["line_search"]

ValueGradient = Callable[[np.ndarray], tuple[float, np.ndarray]]

_ARMIJO = 1e-4
_ROUNDING = 1e-11
"""Relative change of the objective that may be rounding: then the slope decides instead."""


class Trial(NamedTuple):
    """A point along the direction: step length, J and its slope there; where, and the gradient."""

    t: float
    value: float
    slope: float
    theta: np.ndarray
    gradient: np.ndarray


def line_search(
    value_gradient: ValueGradient,
    theta: np.ndarray,
    value: float,
    gradient: np.ndarray,
    direction: np.ndarray,
    flat: float = 1.0,
    max_trials: int = 30,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """theta + t direction, J and gradient there, with J(t) <= J(0) + 1e-4 t J'(0); None if there is none.

    The full step t = 1 is taken if it passes. A shorter one is refined, between the longest step known to be good
    and the shortest known to be bad, until no more than the share `flat` of the slope is left: a direction that cost
    many passes to find is worth a few more. When the decrease is lost in rounding, a flatter slope will do.
    """
    slope = float(np.vdot(gradient, direction))
    if not slope < 0:
        return None
    good = Trial(0.0, value, slope, theta, gradient)
    bad: Trial | None = None
    t = 1.0
    for _ in range(max_trials):
        at = theta + t * direction
        J, g = value_gradient(at)
        if not np.isfinite(J):
            bad, t = None, 0.1 * t
            continue
        now = Trial(t, J, float(np.vdot(g, direction)), at, g)
        passes = J <= value + _ARMIJO * t * slope or (
            J <= value + _ROUNDING * abs(value) and abs(now.slope) <= 0.9 * abs(slope)
        )
        if passes and (t == 1.0 or abs(now.slope) <= flat * abs(slope)):
            return now.theta, now.value, now.gradient
        if passes and now.slope < 0:
            good = now
        else:
            bad = now
        if bad is None or (good.t > 0 and bad.t - good.t < 0.1 * bad.t):
            break
        t = good.t + (bad.t - good.t) * min(0.75, max(0.05, _cubic_minimum(good, bad)))
    return (good.theta, good.value, good.gradient) if good.t > 0 else None


def _cubic_minimum(a: Trial, b: Trial) -> float:
    """Where between a (0) and b (1) the cubic through both values and slopes is least; a half where it is not."""
    width = b.t - a.t
    g0, g1 = a.slope * width, b.slope * width
    s = g0 + g1 - 3.0 * (b.value - a.value)
    root = s * s - g0 * g1
    if not np.isfinite(root) or root < 0:
        return 0.5
    root = np.sqrt(root)
    denominator = g1 - g0 + 2.0 * root
    return 1.0 - (g1 + root - s) / denominator if denominator != 0 else 0.5
