"""The minimum of a smooth function of a few unknowns, without derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

__all__ = ["Found", "search"]


class Found(NamedTuple):
    """The best point that a search has seen."""

    x: np.ndarray
    value: float
    n_evaluations: int


def search(
    f: Callable[[np.ndarray], float],
    starts: Sequence[np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray],
    *,
    radius: float = 1.5,
    tol: float = 0.2,
    max_evaluations: int = 40,
) -> Found:
    """Minimise f from the best of several starts, by quadratic models in a trust region that shrinks to `tol`.

    >>> found = search(lambda x: float(((x - 0.5) ** 2).sum()), [np.zeros(2), np.ones(2)], (-np.ones(2), np.ones(2)))
    >>> found.x.round(1)
    array([0.5, 0.5])
    """
    seen: list[tuple[float, np.ndarray]] = []

    def remembered(x: np.ndarray) -> float:
        value = float(f(x))
        # rounded: the path must not depend on the order in which rows were added
        value = float(f"{value:.9e}") if np.isfinite(value) else 1e100
        seen.append((value, np.array(x)))
        return value

    for start in starts:
        remembered(np.clip(start, *bounds))
    x_0 = min(seen, key=lambda point: point[0])[1]
    minimize(
        remembered,
        x_0,
        method="COBYQA",
        bounds=np.column_stack(bounds),
        options={"initial_tr_radius": radius, "final_tr_radius": tol, "maxfev": max_evaluations},
    )
    value, x = min(seen, key=lambda point: point[0])
    return Found(x, value, len(seen))
