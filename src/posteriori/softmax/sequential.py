"""The sequential algorithm behind partial_fit: rows come one at a time and are forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.rows.products import as_dense
from posteriori.rows.target import Target
from posteriori.solvers.stochastic import Averaged, RunningMoments, scaled_direction, shrunk

__all__ = ["Sequential"]

_ROWS_AT_ONCE = 4096
_VALUES_AT_ONCE = 1 << 20
"""Rows and values made dense, and float64, together."""

_LARGEST = 1e100
"""The largest value whose square, summed over rows, keeps its digits."""


class Sequential:
    """Parameters, running moments of the features, and how much has been seen.

    Parameters
    ----------
    theta : ndarray (K, D')
        Parameters at the start.
    precision : ndarray (K, D')
        The precisions of the prior.
    """

    def __init__(self, theta: np.ndarray, precision: np.ndarray) -> None:
        self._last, self.precision = theta, precision
        self.average = Averaged(theta)
        self.moments = RunningMoments()
        self.n_visited = 0
        self.n_pass = 0.0
        self.n_rows = 0.0
        self._first_rows: np.ndarray | None = None

    @property
    def theta(self) -> np.ndarray:
        """The averaged parameters (K, D')."""
        return self.average.value

    def visit(self, X: Any, target: Target) -> None:
        """Take one step per row, in their order."""
        weights = np.ones(X.shape[0]) if target.weights is None else target.weights
        self._count_pass(X)
        at_once = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // X.shape[1]))
        for start in range(0, X.shape[0], at_once):
            rows = slice(start, start + at_once)
            block = np.asarray(as_dense(X[rows]), dtype=np.float64)
            _require_moderate(block)
            self.moments.add(block, weights[rows])
            self._steps(block, target.one_hot(rows), weights[rows])

    def _count_pass(self, X: Any) -> None:
        """Recognise a call that begins with the rows of the very first one as the start of another pass."""
        head = np.array(as_dense(X[: min(8, X.shape[0])]), dtype=np.float64)
        if self._first_rows is None:
            self._first_rows = head
        elif np.array_equal(head, self._first_rows):
            self.n_pass = 0.0

    def _steps(self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> None:
        D = self.precision.shape[1]
        has_intercept = X.shape[1] < D
        mean = self.moments.mean if has_intercept else np.zeros(X.shape[1])
        variance = self.moments.variance if has_intercept else self.moments.variance + self.moments.mean**2
        if has_intercept:
            X = np.concatenate([X, np.ones((X.shape[0], 1))], axis=1)
        theta = self._last
        eta = 4.0 / D  # a standardised row has squared length D and curvature up to D/2: twice the safe step
        for x, y, c in zip(X, Y, weights, strict=True):
            if c == 0:
                continue
            self.n_visited += 1
            self.n_pass += c
            self.n_rows = max(self.n_rows, self.n_pass)
            p = theta @ x
            p -= p.max()
            np.exp(p, out=p)
            p /= p.sum()
            rate = eta * (1.0 + self.n_visited / 100.0) ** -0.6
            theta = theta + rate * scaled_direction(np.multiply.outer(c * (p - y), x), mean, variance)
            theta = shrunk(theta, rate * c / self.n_rows, self.precision, mean, variance)
            self.average.add(theta)
        self._last = theta


def _require_moderate(X: np.ndarray) -> None:
    """Raise if squares of values would lose their digits: steps follow running moments, in the units of the rows."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    if largest.max(initial=0.0) > _LARGEST:
        d = int(largest.argmax())
        raise ValueError(
            f"Column {d} (counted from 0) holds values up to {largest[d]:.3g}: partial_fit takes values up to "
            f"{_LARGEST:g}. Divide the column by a constant, or use fit."
        )
