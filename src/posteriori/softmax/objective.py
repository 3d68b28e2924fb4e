r"""The objective of softmax regression: minus the log posterior of its weights, as sums over blocks of rows.

.. math:: J(\theta) = \sum_n c_n \log\sum_k e^{f_{nk}} - \langle\theta, T\rangle
          + \tfrac12 (\theta - m)^\top R\,(\theta - m),\qquad f_n = \theta\,[x_n, 1]

Its curvature in parts is in `curvature`, what proves how near its optimum is in `certificate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from posteriori.rows.blocks import Blocks, OnGpu, RowValues, least_sample, row_values
from posteriori.softmax import kernels
from posteriori.softmax.certificate import Certificate
from posteriori.softmax.curvature import Curvature
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.precision import DiagonalPrecision, Precision
from posteriori.solvers.problem import Descent, RowMoments

__all__ = ["SoftmaxObjective", "Start"]

_SEED = 20260214
"""Seed of the row samples behind preconditioners and starting values: the user's seed does not change them."""
_CANCELLED = 1e-5
"""Share of the sum of log-partitions below which the loss is summed row by row, to keep its digits."""


class _Evaluation(NamedTuple):
    """J and its gradient, and the values of the parameters at which they were evaluated."""

    theta: bytes
    value: float
    gradient: np.ndarray
    loss: float
    summed: float
    """The absolute values of the terms of J, added up."""

    @classmethod
    def of(cls, theta: np.ndarray, value: float, gradient: np.ndarray, loss: float, summed: float) -> _Evaluation:
        """An evaluation that is handed out again: the gradient can no longer be changed."""
        gradient.flags.writeable = False
        return cls(theta.tobytes(), value, gradient, loss, summed)

    def is_at(self, theta: np.ndarray) -> bool:
        """Whether it is of parameters with these values, in whichever array."""
        return self.theta == theta.tobytes()


_NOWHERE = _Evaluation(b"", np.nan, np.empty((0, 0)), np.nan, np.nan)
"""No evaluation yet."""


class SoftmaxObjective:
    """J, its gradient and its Hessian for one data set and one Gaussian prior (docs/theory.md, section 2.1).

    The last evaluation is kept: J, its gradient and, where they fit, the probabilities of all rows are used again for
    parameters of the same values.

    Parameters
    ----------
    blocks : Blocks
    observed : ObservedMoments
        The moments of the same blocks.
    precision : ndarray (K, D') or Precision
        R of the prior; per coefficient, zero where it is flat. D' = D + 1 with an intercept, else D.
    mean : ndarray (K, D') or None
        Mean of the prior; None is zero.
    """

    def __init__(
        self,
        blocks: Blocks,
        observed: ObservedMoments,
        precision: np.ndarray | Precision,
        mean: np.ndarray | None = None,
    ) -> None:
        self.blocks, self.observed, self.mean = blocks, observed, mean
        self.prior: Precision = DiagonalPrecision(precision) if isinstance(precision, np.ndarray) else precision
        self.precision = self.prior.diagonal
        self.shape: tuple[int, int] = (self.precision.shape[0], self.precision.shape[1])
        self.moments = observed.moments[:, : self.shape[1]]
        self.has_intercept = self.shape[1] > blocks.n_features
        self._row_values = row_values(blocks, self.shape[0])
        self._sums_cancel = False  # once the loss is a small difference of large sums, it is summed row by row
        self._evaluated = _NOWHERE
        self.recession: np.ndarray | None = None
        """A direction along which J falls without end, once one was found."""
        self._samples: dict[tuple[int, bool], SoftmaxObjective] = {}

    @property
    def n_rows(self) -> int:
        """The number of rows N."""
        return self.blocks.n_rows

    @property
    def row_moments(self) -> RowMoments:
        """Mean and variance of the features, about zero without an intercept to take up the mean; sum_n c_n."""
        total = self.observed.total_weight
        if self.has_intercept:
            return RowMoments(self.observed.mean, self.observed.variance, total)
        return RowMoments(np.zeros(self.blocks.n_features), self.observed.squares / total, total)

    def value_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """J and dJ/dtheta = (P - Y)^T diag(c) [X, 1] + R (theta - m), in one pass; no pass at the last theta."""
        if self._evaluated.is_at(theta):
            return self._evaluated.value, self._evaluated.gradient
        if not self._sums_cancel:
            log_partition, gradient = self.blocks.map_sum(kernels.expected_moments, theta, row_values=self._row_values)
            observed = np.vdot(theta, self.moments)
            loss, summed = log_partition - observed, abs(log_partition) + abs(observed)
            gradient -= self.moments
            self._sums_cancel = bool(loss < _CANCELLED * abs(log_partition))
        if self._sums_cancel:
            loss, gradient = self.blocks.map_sum(kernels.residual_moments, theta, row_values=self._row_values)
            summed = abs(loss)
        centred = theta if self.mean is None else theta - self.mean
        pull = self.prior.times(centred)
        penalty = 0.5 * np.vdot(pull, centred)
        value = loss + penalty
        gradient -= gradient.mean(axis=0)  # zero but for rounding, which a weak prior would magnify
        gradient += pull
        self._evaluated = _Evaluation.of(theta, float(value), gradient, float(loss), float(summed + abs(penalty)))
        return float(value), gradient

    def averaged(self, theta: np.ndarray, log_partition: float) -> tuple[float, np.ndarray]:
        """E[J] over a distribution of mean theta, from the sum of averaged log-partitions, and the prior's pull.

        The prior's part of J is that of the mean; its pull (K, D') is R (theta - m).
        """
        centred = theta if self.mean is None else theta - self.mean
        pull = self.prior.times(centred)
        return float(log_partition - np.vdot(theta, self.moments) + 0.5 * np.vdot(pull, centred)), pull

    def loss(self, theta: np.ndarray) -> float:
        """J without the prior's part: sum_n c_n (-log p(y_n|x_n)), not negative."""
        self.value_gradient(theta)
        return max(self._evaluated.loss, 0.0)

    def rounding(self, theta: np.ndarray) -> float:
        """The rounding error of J at theta that comes from adding its terms up."""
        self.value_gradient(theta)
        return float(8.0 * np.finfo(float).eps * self._evaluated.summed)

    def rounding_of_logits(self, theta: np.ndarray) -> float:
        """The rounding error of J at theta that comes from the logits.

        A logit rounds by eps times the size of its terms, and changes J by its row's weight times that; by its residual
        too, which is at most twice the row's loss, where the loss is summed row by row.
        """
        total = self.observed.total_weight
        exposed = min(2.0 * self.loss(theta), total) if self._sums_cancel else total
        return float(2.0 * np.finfo(float).eps * exposed * self.logit_size(theta))

    def logit_size(self, theta: np.ndarray) -> float:
        """The root mean square of the terms of a row's logit, added up: a logit may be a small difference of them."""
        return float(np.abs(theta).max(axis=0) @ self.root_squares / np.sqrt(self.observed.total_weight))

    @property
    def root_squares(self) -> np.ndarray:
        """sqrt(sum_n c_n x_nd^2) of the features and, where there are intercepts, of their ones: (D',)."""
        return np.sqrt(np.append(self.observed.squares, self.observed.total_weight)[: self.shape[1]])

    def product(self, theta: np.ndarray, V: np.ndarray) -> np.ndarray:
        """The product H V at theta, without forming H."""
        buffers = self.probabilities_at(theta)
        product = self.blocks.map_sum(kernels.hessian_product, theta, V - V.mean(axis=0), row_values=buffers)
        product -= product.mean(axis=0)
        return product + self.prior.times(V)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """The Hessian H at theta, (K D', K D')."""
        H = self.blocks.map_sum(kernels.hessian, theta, row_values=self.probabilities_at(theta), coarse=True)
        return H + self.prior.matrix(np.eye(self.shape[0]))

    def batch_gradients(self, size: int, rng: np.random.Generator) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
        """Gradients theta -> N/B (P - Y)^T diag(c) [X, 1] plus what the prior couples, one for each batch of a pass."""
        for X, Y, c in self.blocks.batches(size, rng):
            T, _ = kernels.observed_moments(X, Y, c, self.shape[0])

            def gradient(theta: np.ndarray, X: Any = X, c: Any = c, T: np.ndarray = T) -> np.ndarray:
                _, expected = kernels.expected_moments(X, None, c, theta)
                centred = theta if self.mean is None else theta - self.mean
                scaled = (self.n_rows / X.shape[0]) * (expected - T[:, : self.shape[1]])
                return scaled + self.prior.couplings(centred)

            yield gradient

    def probabilities_at(self, theta: np.ndarray) -> RowValues | None:
        """Row values with P at theta if the last evaluation was there; otherwise None, and kernels compute it again."""
        return self._row_values if self._evaluated.is_at(theta) else None

    @cached_property
    def free(self) -> np.ndarray | None:
        """Coefficients along which no prior holds the optimum back, (K, D'); None if there can be no separation.

        Free intercepts alone are held by the data, unless a class has no rows.
        """
        free = self.precision == 0
        if not free.any():
            return None
        has_empty_class = self.has_intercept and not self.observed.class_sizes.all()
        return free if has_empty_class or free[:, : self.blocks.n_features].any() else None

    # What follows is made when it is asked for and not kept: it refers to this objective, and a circle of references
    # would keep the rows in memory after the fit.

    @property
    def curvature(self) -> Curvature:
        """The Hessian in parts and in coordinates of the classes."""
        return Curvature(self)

    @property
    def certificate(self) -> Certificate:
        """Bounds on the distance to the optimum, and whether there is a finite one."""
        return Certificate(self)

    @property
    def start(self) -> Start:
        """The start of a solve: samples of the rows, or the descent from zero."""
        return Start(self)


class Start:
    """The start of a solve over many rows: the optimum of a sample of them, or a descent on the GPU."""

    def __init__(self, objective: SoftmaxObjective) -> None:
        self.objective = objective

    @property
    def n_rows(self) -> int:
        """The size of the smallest sample whose optimum is a good start for all rows; at least N if none is."""
        problem = self.objective
        K, D = problem.shape
        enough = max(2048, 10 * K * D, least_sample(problem.blocks))
        return enough if 4 * enough <= problem.n_rows else problem.n_rows

    def sample(self, n_rows: int, *, as_in_memory: bool = False) -> SoftmaxObjective:
        """The objective on a random sample of the rows, scaled to stand for all of them.

        With `as_in_memory`, it has the same rows wherever they are.
        """
        problem = self.objective
        n_rows = n_rows if as_in_memory else max(n_rows, least_sample(problem.blocks))
        if n_rows >= problem.n_rows:
            return problem
        if (n_rows, as_in_memory) not in problem._samples:
            blocks = problem.blocks.sample(n_rows, np.random.default_rng(_SEED), as_in_memory=as_in_memory)
            observed = ObservedMoments.of(blocks, problem.shape[0])
            problem._samples[n_rows, as_in_memory] = SoftmaxObjective(blocks, observed, problem.prior, problem.mean)
        return problem._samples[n_rows, as_in_memory]

    def descend(self, tol: float) -> Descent | None:
        """The descent from zero to the optimum in one call if rows are on a GPU; None otherwise, or if it failed."""
        problem, prior = self.objective, self.objective.prior
        buffers = problem._row_values
        if not isinstance(problem.blocks, OnGpu) or buffers is None:
            return None
        if not (isinstance(prior, DiagonalPrecision) and prior.exchangeable):  # as its preconditioner assumes
            return None
        from posteriori.softmax import jax_descent

        problem._evaluated = _NOWHERE  # the buffers are used for the descent
        card_prior = jax_descent.DiagonalPrior(prior.values, prior.centre, problem.mean)
        squares = problem.observed.squares
        found = jax_descent.descend(problem.blocks, problem.moments, squares, card_prior, tol, self.n_rows, buffers)
        if found is None or not found.values[-1] <= self._at_zero:
            return None
        theta = found.thetas[-1]
        loss = float(found.log_partition - np.vdot(theta, problem.moments))
        if loss < _CANCELLED * abs(found.log_partition):
            return None
        summed = 2.0 * abs(found.log_partition) + abs(found.values[-1])
        problem._evaluated = _Evaluation.of(theta, found.values[-1], np.array(found.gradients[-1]), loss, summed)
        return found

    @property
    def _at_zero(self) -> float:
        """J where all parameters are zero, and all classes are equally likely."""
        problem = self.objective
        centred = np.zeros(problem.shape) if problem.mean is None else -problem.mean
        entropy = problem.observed.total_weight * np.log(problem.shape[0])
        return entropy + 0.5 * float(np.vdot(problem.prior.times(centred), centred))
