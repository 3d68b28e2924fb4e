r"""Stochastic gradient descent: a few rows at a time, in coordinates in which all features have the same scale.

With running means mu and variances s^2 of the features, a step on the weights of z = (x - mu)/s is, in the weights of
x itself, Delta W = -eta (g_W - g_b mu)/s^2 and Delta b = -eta g_b - Delta W mu: nobody has to scale the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from posteriori.solvers.newton import newton_decrement
from posteriori.solvers.problem import StochasticProblem
from posteriori.solvers.solution import Iterate, Status, Steps
from posteriori.solvers.solver import Solver

__all__ = ["Averaged", "RunningMoments", "StochasticGradient", "row_curvature", "scaled_direction", "shrunk"]

_LEAST_VARIANCE = 1e-200
"""A feature of less variance counts as constant: one over it is hardly a number."""
_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "sqrt": lambda t: (1.0 + t) ** -0.5,
    "inverse": lambda t: 1.0 / (1.0 + t),
}


@dataclass
class StochasticGradient(Solver):
    """Stochastic gradients: theta <- theta - eta_t g_t, with g_t from a batch of B of the N rows.

    The likelihood of a batch is scaled by N/B, the prior is not.
    Steps are scaled by the features' moments, and the prior's part of each is solved implicitly.

    Parameters
    ----------
    batch_size : int
        Rows per step; 1 is the sequential algorithm.
    step : float or None
        The first step eta_0, for standardised features and the mean loss per row; None is one over the curvature of a
        batch.
    schedule : "sqrt", "inverse" or "constant"
        How eta falls with the number of passes t: eta_0 / sqrt(1 + t), eta_0 / (1 + t), or not at all.
    epochs : int or None
        Passes over the data; None inherits the estimator's max_iter, up to 100.
    averaging : bool
        Return the average of the iterates (the late ones weigh more) instead of the last one.
    tol : float or None
        None inherits the estimator's.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SoftmaxRegression(solver=StochasticGradient(batch_size=10), tol=0.1, random_state=0).fit(X, y)
    >>> model.solution_.status.name, round(model.score(X, y), 2)
    ('CONVERGED', 0.96)
    """

    random: ClassVar[bool] = True
    batch_size: int = 32
    step: float | None = None
    schedule: str = "sqrt"
    epochs: int | None = None
    averaging: bool = True
    tol: float | None = None

    @property
    def max_iter(self) -> int | None:
        """The most passes over the data, which count as iterations."""
        return self.epochs

    def validate(self) -> None:
        """Raise unless the parameters make sense."""
        self.require(self.schedule in _SCHEDULES, "schedule", f"one of {[*_SCHEDULES]}")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.step is None or self.step > 0, "step", "positive, or None")
        self.require(self.epochs is None or self.epochs >= 0, "epochs", "None or not negative")
        super().validate()

    def steps(
        self,
        problem: StochasticProblem,
        theta: np.ndarray,
        tol: float,
        rng: np.random.Generator | None = None,
    ) -> Steps:
        """One iterate per pass over the data, until the Newton decrement is within ``tol * |J|``."""
        rng = rng or np.random.default_rng(0)
        mean, variance, total_weight = problem.row_moments
        schedule = _SCHEDULES[self.schedule]
        curvature = row_curvature(problem, self.batch_size)
        eta = (self.step or 1.0 / curvature) / total_weight
        n_batches = -(-problem.n_rows // self.batch_size)
        epochs = 100 if self.epochs is None else self.epochs
        average = Averaged(theta)
        for epoch in range(epochs + 1):
            at = average.value if self.averaging else theta
            value, gradient = problem.value_gradient(at)
            gap = newton_decrement(problem, at, gradient) if np.isfinite(value) else None
            yield Iterate(at, value, gradient, gap)
            if gap is not None and gap <= tol * abs(value):
                return Status.CONVERGED
            if epoch == epochs:
                break
            for i, batch_gradient in enumerate(problem.batch_gradients(self.batch_size, rng)):
                rate = eta * schedule(epoch + i / n_batches)
                theta = theta + rate * scaled_direction(batch_gradient(theta), mean, variance)
                theta = shrunk(theta, rate, problem.precision, mean, variance, problem.mean)
                average.add(theta)
        return Status.ITERATION_LIMIT


def row_curvature(problem: StochasticProblem, batch_size: int = 1) -> float:
    """The largest curvature of the mean loss of a batch of standardised rows, about (l + (D' - l)/B)/2.

    One row has squared length D' and softmax curvature at most 1/2; of many, only the largest eigenvalue l of their
    correlations is left, found by the power method.
    """
    K, D = problem.shape
    mean, variance, total_weight = problem.row_moments
    zero = np.zeros(problem.shape)
    V = np.random.default_rng(0).standard_normal(problem.shape)
    largest = 0.0
    for _ in range(10 if batch_size > 1 else 0):
        V /= max(float(np.linalg.norm(V)), np.finfo(float).tiny)
        V = scaled_direction(problem.product(zero, V) - problem.prior.times(V), mean, variance)
        largest = float(np.linalg.norm(V)) * K / total_weight
    largest = min(largest, D)
    return 0.5 * (largest + (D - largest) / batch_size)


def scaled_direction(gradient: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Minus the gradient, as a step in the weights of standardised features; constant features stay put.

    See docs/theory.md, section 2.3.
    """
    D = mean.shape[0]
    inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > _LEAST_VARIANCE)
    if gradient.shape[1] == D:
        return -gradient * inverse
    out = np.empty_like(gradient)
    out[:, :D] = (gradient[:, D:] * mean - gradient[:, :D]) * inverse
    out[:, D] = -gradient[:, D] - out[:, :D] @ mean
    return out


def shrunk(
    theta: np.ndarray,
    rate: float,
    precision: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    centre: np.ndarray | None = None,
) -> np.ndarray:
    """The prior's part of a scaled step, solved implicitly: stable however large the precision for the units."""
    if centre is not None:
        return centre + shrunk(theta - centre, rate, precision, mean, variance)
    D = mean.shape[0]
    out = theta.copy()
    with np.errstate(over="ignore"):  # a prior that is infinite for the units leaves a weight of zero, as it should
        out[:, :D] /= 1.0 + rate * precision[:, :D] / np.where(variance > _LEAST_VARIANCE, variance, np.inf)
    if theta.shape[1] > D:
        out[:, D] -= (out[:, :D] - theta[:, :D]) @ mean
        out[:, D] /= 1.0 + rate * precision[:, D]
    return out


@dataclass
class Averaged:
    """A running average in which the early iterates fade: weight of the last of t is 4 / (t + 3)."""

    value: np.ndarray
    count: int = 0

    def add(self, theta: np.ndarray) -> None:
        """Take one more iterate into the average."""
        self.count += 1
        self.value = self.value + min(1.0, 4.0 / (self.count + 3)) * (theta - self.value)


@dataclass
class RunningMoments:
    """Count, mean and variance of rows that come in batches, merged exactly (Chan et al.)."""

    count: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scatter: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, X: Any, weights: np.ndarray) -> None:
        """Merge weighted rows X (n, D)."""
        total = float(weights.sum())
        if total == 0:
            return
        mean = (weights @ X) / total
        scatter = np.maximum(weights @ (X - mean) ** 2, 0.0)
        if self.count == 0:
            self.count, self.mean, self.scatter = total, mean, scatter
            return
        delta = mean - self.mean
        merged = self.count + total
        self.scatter = self.scatter + scatter + delta**2 * (self.count * total / merged)
        self.mean = self.mean + delta * (total / merged)
        self.count = merged

    @property
    def variance(self) -> np.ndarray:
        """Variance of each column, (D,)."""
        return self.scatter / max(self.count, np.finfo(float).tiny)
