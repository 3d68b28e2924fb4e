"""Newton's equation without the Hessian: preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["NewtonStep", "conjugate_gradient"]

Operator = Callable[[np.ndarray], np.ndarray]


class NewtonStep(NamedTuple):
    """d with H d ~ -g, the decrement 1/2 g^T H^{-1} g estimated on the way, and the products it took."""

    direction: np.ndarray
    decrement: float
    n_products: int
    inverse: Operator | None = None
    """H^{-1} itself, when it was factored."""
    flat: bool = False
    """Whether no curvature was found, so that the direction is a guess."""


def conjugate_gradient(
    product: Operator,
    precondition: Operator,
    gradient: np.ndarray,
    rtol: float,
    max_products: int,
    enough: float = 0.0,
    noise: float = 0.0,
    faint: bool = False,
) -> NewtonStep:
    """Solve H d = -g until the residual has fallen by `rtol` in the preconditioner's norm, or to `enough`.

    The quadratic model falls by 1/2 alpha_i r_i^T z_i in step i; those sum to 1/2 g^T H^{-1} g from below. What is
    left of it is about 1/2 r^T z, which need not fall below `enough`. Below `noise` it is rounding, which may point
    where there is no curvature: products would only magnify it. No product is made at all if the gradient is `faint`
    and 1/2 r^T z is no more than noise from the start; the preconditioner alone may be wrong about that.
    """
    direction = np.zeros_like(gradient)
    residual = -gradient
    z = precondition(residual)
    search = z
    rz = float(np.vdot(residual, z))
    if faint and 0.5 * rz <= noise:
        return NewtonStep(z, 0.5 * max(rz, 0.0), 0)
    stop = max(rtol * rtol * rz, 2.0 * enough, 2.0 * noise)
    decrement = 0.0
    n = 0
    while (rz > stop or n == 0) and rz > 0 and n < max_products:
        n += 1
        H_search = product(search)
        curvature = float(np.vdot(search, H_search))
        if not curvature > 0:  # a flat direction, or rounding: all there is to say comes from the preconditioner
            if n == 1:
                return NewtonStep(z, 0.5 * rz, n, flat=True)
            break
        alpha = rz / curvature
        direction += alpha * search
        residual = residual - alpha * H_search
        decrement += 0.5 * alpha * rz
        z = precondition(residual)
        rz, rz_old = float(np.vdot(residual, z)), rz
        search = z + (rz / rz_old) * search
    return NewtonStep(direction, decrement, n, flat=n == 0 and bool(gradient.any()))
