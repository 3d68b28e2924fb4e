r"""Covariance functions k(x, z) of Gaussian processes, on arrays of NumPy or JAX (docs/theory.md, section 6.1).

Inputs are rows divided by their lengthscales beforehand; d^2 is the squared distance of two such rows.

.. math::
    \text{RBF} = e^{-d^2/2}, \qquad
    \text{Matern}_{1/2} = e^{-d}, \quad
    \text{Matern}_{3/2} = (1 + \sqrt3 d) e^{-\sqrt3 d}, \quad
    \text{Matern}_{5/2} = (1 + \sqrt5 d + \tfrac53 d^2) e^{-\sqrt5 d}, \qquad
    \text{rational quadratic} = \Big(1 + \frac{d^2}{2 a}\Big)^{-a}, \qquad
    \text{linear} = x^\top z
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "MATERN_ORDERS",
    "linear",
    "matern",
    "matern_slope",
    "rational_quadratic",
    "rational_quadratic_slopes",
    "rbf",
    "squared_distances",
]

Array = Any
"""An array of NumPy or of JAX."""

MATERN_ORDERS = (0.5, 1.5, 2.5)

_SAME = 1e-6
"""The distance below which two rows are the same."""
_TINY = 1e-20
"""A number added to squared distances under a root, whose slope at zero is infinite."""


def squared_distances(X: Array, Z: Array) -> Array:
    """The squared distances d^2 between the rows of X (n, D) and of Z (m, D): (n, m), never negative."""
    xp = X.__array_namespace__()
    d2 = (X * X).sum(axis=1)[:, None] + (Z * Z).sum(axis=1)[None, :] - 2.0 * (X @ Z.T)
    return xp.maximum(d2, 0.0)


def rbf(X: Array, Z: Array) -> Array:
    """Gram matrix of the squared-exponential kernel, (n, m)."""
    xp = X.__array_namespace__()
    return xp.exp(-0.5 * squared_distances(X, Z))


def rational_quadratic(X: Array, Z: Array, shape: Array) -> Array:
    """Gram matrix of the rational quadratic kernel of this shape a, (n, m)."""
    xp = X.__array_namespace__()
    return xp.exp(-shape * xp.log1p(squared_distances(X, Z) / (2.0 * shape)))


def rational_quadratic_slopes(X: Array, shape: Array) -> tuple[Array, Array]:
    """Derivatives of the same between the rows of X, by their squared distances and by log a, (n, n) each."""
    xp = X.__array_namespace__()
    u = squared_distances(X, X) / (2.0 * shape)
    k = xp.exp(-shape * xp.log1p(u))
    return -0.5 * k / (1.0 + u), shape * k * (u / (1.0 + u) - xp.log1p(u))


def matern(X: Array, Z: Array, order: float) -> Array:
    """Gram matrix of a Matern kernel of order 1/2, 3/2 or 5/2, (n, m)."""
    xp = X.__array_namespace__()
    d = xp.sqrt(2.0 * order * squared_distances(X, Z) + _TINY)
    polynomial = {0.5: 1.0, 1.5: 1.0 + d, 2.5: 1.0 + d + d * d / 3.0}[order]
    return polynomial * xp.exp(-d)


def matern_slope(X: Array, order: float) -> Array:
    """Derivatives of the Gram matrix of a Matern kernel by the squared distances of the rows of X, (n, n)."""
    xp = X.__array_namespace__()
    d = xp.sqrt(2.0 * order * squared_distances(X, X) + _TINY)
    if order == 0.5:  # infinite at zero; but identical rows stay so, and nearly identical ones are so for rounding
        return xp.where(d > _SAME, -0.5 * xp.exp(-d) / xp.maximum(d, _SAME), 0.0)
    return {1.5: -1.5, 2.5: -5.0 / 6.0 * (1.0 + d)}[order] * xp.exp(-d)


def linear(X: Array, Z: Array) -> Array:
    """Gram matrix of the linear kernel, (n, m)."""
    return X @ Z.T
