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
    out_of_range = ((product < 1e-290) | (product > 1e300)).any(axis=0)
    with np.errstate(divide="ignore"):
        total = np.log(product, out=product).sum(axis=0)
    if out_of_range.any():  # these alone: what one row is does not touch the others
        total[out_of_range] = np.log(rows[:, out_of_range]).sum(axis=0)
    return total
