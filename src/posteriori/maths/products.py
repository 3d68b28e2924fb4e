"""The logarithm of a product of many numbers."""

from __future__ import annotations

import numpy as np

__all__ = ["sum_of_logs"]

_FACTORS = 8
"""Numbers multiplied before one logarithm is taken of them."""


def sum_of_logs(V: np.ndarray, axis: int) -> np.ndarray:
    """The sum of log v along an axis of a matrix of positive numbers: few logarithms, of products.

    Where a product leaves the range of numbers, each has its own.

    >>> sum_of_logs(np.array([[1e300, 1e300, 1.0], [2.0, 3.0, 4.0]]), axis=1) / np.log([10, 24])
    array([600.,   1.])
    """
    rows = V if axis == 0 else V.T
    width = -(-len(rows) // _FACTORS)
    product = rows[:width].copy(order="K")
    with np.errstate(over="ignore", under="ignore"):
        for start in range(width, len(rows), width):
            factor = rows[start : start + width]
            product[: len(factor)] *= factor
    if product.size and (product.min() < 1e-290 or product.max() > 1e300):
        return np.log(V).sum(axis=axis)
    return np.log(product, out=product).sum(axis=0)
