r"""The softmax-regression model: minus the log posterior of its weights, as sums over blocks of rows.

.. math:: J(\theta) = \sum_n c_n \log\sum_k e^{f_{nk}} - \langle\theta, T\rangle
          + \tfrac12 (\theta - m)^\top R\,(\theta - m),\qquad f_n = \theta\,[x_n, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from posteriori.maths.integrals import Nodes
from posteriori.maths.linalg import cholesky, null_space
from posteriori.rows.blocks import Blocks, OnGpu, least_sample, row_values
from posteriori.softmax import kernels
from posteriori.softmax.averages import averaged_moments
from posteriori.softmax.pairs import hessian_from_pairs, log_det_slope, pair_grams
from posteriori.softmax.precision import DiagonalPrecision, Precision
from posteriori.solvers.problem import Descent

__all__ = ["ObservedMoments", "SoftmaxObjective"]

_SEED = 20260214
"""Of the row samples behind preconditioners and starting values: they must not depend on the user's stream."""


@dataclass(frozen=True)
class ObservedMoments:
    """What one first pass over the data tells: enough for labels never to be looked at again.

    Attributes
    ----------
    moments : ndarray (K, D + 1)
        T = Y^T diag(c) [X, 1]; its last column holds the class sizes.
    squares : ndarray (D,)
        sum_n c_n x_n^2.
    """

    moments: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, blocks: Blocks, n_classes: int) -> ObservedMoments:
        """Take them, in one pass."""
        return cls(*blocks.map_sum(kernels.observed_moments, n_classes))

    @property
    def class_sizes(self) -> np.ndarray:
        """sum_n c_n Y_nk, (K,)."""
        return self.moments[:, -1]

    @property
    def mean(self) -> np.ndarray:
        """Of each feature, (D,)."""
        return self.moments[:, :-1].sum(axis=0) / self.class_sizes.sum()

    @property
    def variance(self) -> np.ndarray:
        """Of each feature, (D,); zero where it is lost in rounding."""
        second = self.squares / self.class_sizes.sum()
        variance = second - self.mean**2
        return np.where(variance > 1e-13 * second, variance, 0.0)

    @property
    def finite(self) -> bool:
        """Whether all sums are: they are not if any value is not."""
        return bool(np.isfinite(self.moments).all() and np.isfinite(self.squares).all())


_CANCELLED = 1e-5
"""Share of the sum of log-partitions below which the loss is summed row by row, to keep its digits."""
_STALE = 0.01
"""Share of the slope that a step may leave before curvature is looked at again: that is a pass."""
_ROUNDING = 64.0 * np.finfo(float).eps
"""Share of a column's largest coefficient below which a change is none."""
_SLOPE_ROWS = 20_000
"""Rows from which the slope of the log-determinant is taken."""
_MOST_FEATURES = 2500
"""Up to here (D, D) matrices of all features are made."""
_LEADING = 256
"""Beyond, and where these would cost too much, of this many."""


class SoftmaxObjective:
    """J, its gradient and its curvature for one data set and one Gaussian prior.

    Parameters
    ----------
    blocks : Blocks
    observed : ObservedMoments
        Of the same blocks.
    precision : ndarray (K, D') or Precision
        R of the prior; per coefficient, zero where it is flat. D' = D + 1 with an intercept, else D.
    mean : ndarray (K, D') or None
        Of the prior; None is zero.
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
        self._probs = row_values(blocks, self.shape[0])
        self._delicate = False  # from where the loss is a small difference of large sums, row by row
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        self._samples: dict[tuple[int, bool], SoftmaxObjective] = {}

    @property
    def n_rows(self) -> int:
        """N."""
        return self.blocks.n_rows

    @property
    def total_weight(self) -> float:
        """sum_n c_n."""
        return float(self.observed.class_sizes.sum())

    @property
    def moments_of_features(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the features, about zero if there is no intercept to take up the mean."""
        if self.has_intercept:
            return self.observed.mean, self.observed.variance
        return np.zeros(self.blocks.n_features), self.observed.squares / self.total_weight

    def value_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """J and dJ/dtheta = (P - Y)^T diag(c) [X, 1] + R (theta - m), in one pass (none at the last theta)."""
        if self._last is not None and self._last[0] is theta:
            return self._last[1:]
        if not self._delicate:
            log_partition, gradient = self.blocks.map_sum(kernels.expected_moments, theta, row_values=self._probs)
            loss = log_partition - np.vdot(theta, self.moments)
            gradient -= self.moments
            self._delicate = bool(loss < _CANCELLED * abs(log_partition))
        if self._delicate:
            loss, gradient = self.blocks.map_sum(kernels.residual_moments, theta, row_values=self._probs)
        centred = theta if self.mean is None else theta - self.mean
        pull = self.prior.times(centred)
        value = loss + 0.5 * np.vdot(pull, centred)
        gradient -= gradient.mean(axis=0)  # zero but for rounding, which a weak prior would magnify
        gradient += pull
        self._last = theta, float(value), gradient
        return float(value), gradient

    def descended(self, tol: float) -> Descent | None:
        """The way from zero to the optimum in one call, where the rows offer it; None too if it led nowhere."""
        prior = self.prior
        if not isinstance(self.blocks, OnGpu) or self._probs is None:
            return None
        if not (isinstance(prior, DiagonalPrecision) and prior.exchangeable):  # its preconditioner is for classes alike
            return None
        from posteriori.softmax import jax_descent

        self._last = None  # what was kept of it gives way
        card_prior = jax_descent.DiagonalPrior(prior.values, prior.centre, self.mean)
        squares = self.observed.squares
        found = jax_descent.descend(self.blocks, self.moments, squares, card_prior, tol, self.start_rows, self._probs)
        if found is None or not found.values[-1] <= self._at_zero:
            return None
        theta = found.thetas[-1]
        if found.log_partition - np.vdot(theta, self.moments) < _CANCELLED * abs(found.log_partition):
            return None
        self._last = theta, found.values[-1], found.gradients[-1]
        return found

    @property
    def _at_zero(self) -> float:
        """J where all parameters are zero, and all classes as likely."""
        centred = np.zeros(self.shape) if self.mean is None else -self.mean
        return self.total_weight * np.log(self.shape[0]) + 0.5 * float(np.vdot(self.prior.times(centred), centred))

    def product(self, theta: np.ndarray, V: np.ndarray) -> np.ndarray:
        """H V at theta, without H."""
        product = self.blocks.map_sum(kernels.hessian_product, theta, V - V.mean(axis=0), row_values=self._rows(theta))
        product -= product.mean(axis=0)
        return product + self.prior.times(V)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """H at theta, (K D', K D')."""
        H = self.blocks.map_sum(kernels.hessian, theta, row_values=self._rows(theta), coarse=True)
        return H + self.prior.matrix(np.eye(self.shape[0]))

    def likelihood_hessian(self, theta: np.ndarray, basis: np.ndarray) -> np.ndarray:
        """H at theta without the prior, in coordinates theta = Q B for a basis Q (K, J): (J D', J D')."""
        grams = self.blocks.map_sum(pair_grams, theta, row_values=self._rows(theta), coarse=True)
        return hessian_from_pairs(grams, basis, self.shape[1])

    def cholesky(self, H: np.ndarray) -> np.ndarray:
        """Lower factor of a positive definite matrix of the size of H, made where the rows are worked on."""
        return self.blocks.factor_on_gpu(H) if isinstance(self.blocks, OnGpu) else cholesky(H)

    def log_det_slope(self, theta: np.ndarray, forms: np.ndarray) -> np.ndarray:
        """d/dtheta of tr(S H) with S held fixed, (K, D'), S given by the pairs' covariances (pairs, D', D').

        Of many rows a sample will do: the slope matters less the more rows there are.
        """
        sample = self.sample(max(_SLOPE_ROWS, 40 * self.moments.size), as_in_memory=True)
        return sample.blocks.map_sum(log_det_slope, theta, forms, row_values=sample._rows(theta), coarse=True)

    def averaged(
        self, theta: np.ndarray, forms: np.ndarray, basis: np.ndarray, nodes: Nodes
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """E[J], its slope and E[H_lik] (J D', J D') over a Gaussian about theta; the prior's part of J is at theta.

        The Gaussian is given by the covariances of w_k - w_l for each pair, (pairs, D', D').
        """
        log_partition, gradient, grams = self.blocks.map_sum(averaged_moments, theta, forms, nodes, coarse=True)
        centred = theta if self.mean is None else theta - self.mean
        pull = self.prior.times(centred)
        value = log_partition - np.vdot(theta, self.moments) + 0.5 * np.vdot(pull, centred)
        return float(value), gradient - self.moments + pull, hessian_from_pairs(grams, basis, self.shape[1])

    def values(self, thetas: np.ndarray) -> np.ndarray:
        """J at each of (S, K, D') parameters, (S,)."""
        S, K, D = thetas.shape
        sums = self.blocks.map_sum(kernels.log_partitions, thetas.reshape(S * K, D), K)
        centred = thetas if self.mean is None else thetas - self.mean
        pulls = np.array([np.vdot(v, self.prior.times(v)) for v in centred])
        return sums - np.tensordot(thetas, self.moments, axes=2) + 0.5 * pulls

    def with_prior(self, precision: np.ndarray | Precision, mean: np.ndarray | None = None) -> SoftmaxObjective:
        """The same likelihood under another prior."""
        return SoftmaxObjective(self.blocks, self.observed, precision, mean)

    def kronecker_factors(
        self, theta: np.ndarray, light: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A (K, K), G (L, L) of H ~ A kron G / tr A + prior for some coefficients, which ones, and diag G of all.

        From a sample of rows; G is of the heaviest features and the intercept alone if `light`, or if they are many.
        """
        D = self.shape[1]
        lead = self._heaviest if light or D > _MOST_FEATURES else np.arange(D)
        columns = None if lead.size == D else lead[: lead.size - self.has_intercept]
        sample = self.sample(max(4096, 100 * D if columns is None else 0))
        A, G = sample.blocks.map_sum(
            kernels.kronecker_factors, theta, columns, row_values=sample._rows(theta), coarse=True
        )
        if columns is None and sample is self:
            return A, G, lead, G.diagonal()
        diagonal = self.diagonal(theta).sum(axis=0)
        if sample is not self:
            _raise_diagonal(G[None], diagonal[None, lead])
        return A, G, lead, diagonal

    @cached_property
    def _heaviest(self) -> np.ndarray:
        """The features with the largest sums of squares, and the intercept, last."""
        columns = np.sort(np.argsort(-self.observed.squares, kind="stable")[:_LEADING])
        return np.append(columns, self.blocks.n_features) if self.has_intercept else columns

    def class_blocks(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal blocks of H without the prior, (K, D', D'), from the rows that matter for each class."""
        sample = self.sample(max(4096, 40 * self.moments.size, self.n_rows // 16))
        rows = sample._rows(theta)
        mean_weight = sample.blocks.map_sum(kernels.class_spread, theta, row_values=rows) / sample.n_rows
        blocks = sample.blocks.map_sum(kernels.class_scatter, theta, 0.1 * mean_weight, row_values=rows, coarse=True)
        _raise_diagonal(blocks, self.diagonal(theta))
        return blocks + self._couplings

    @cached_property
    def _couplings(self) -> np.ndarray | float:
        """What the prior's blocks (K, D', D') hold beside their diagonals."""
        if isinstance(self.prior, DiagonalPrecision) and self.prior.centre is None:
            return 0.0
        K, D = self.shape
        if isinstance(self.prior, DiagonalPrecision) and self.prior.centre is not None:
            off = self.prior.values[:, -1, None, None] * np.outer(self.prior.centre, self.prior.centre)
        else:
            off = np.stack([self.prior.matrix(np.eye(K)[:, [k]]) for k in range(K)])
        off[:, np.arange(D), np.arange(D)] = 0.0
        return off

    def diagonal(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal of H without the prior, (K, D')."""
        return self.blocks.map_sum(kernels.hessian_diagonal, theta, row_values=self._rows(theta))

    def centred_diagonal(self, theta: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """The same for features x - c and the logit at c, for a centre [c, 1]."""
        first = self.blocks.map_sum(kernels.hessian_cross, theta, row_values=self._rows(theta))
        out = self.diagonal(theta).copy()
        out[:, :-1] += centre[:-1] * (centre[:-1] * out[:, -1:] - 2.0 * first)
        return np.maximum(out, 0.0)

    @property
    def start_rows(self) -> int:
        """The smallest sample whose optimum is a good start for all rows; at least N if none is."""
        K, D = self.shape
        enough = max(2048, 10 * K * D, least_sample(self.blocks))
        return enough if 4 * enough <= self.n_rows else self.n_rows

    def batch_gradients(self, size: int, rng: np.random.Generator) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
        """For each batch of one shuffled pass: theta -> N/B (P - Y)^T diag(c) [X, 1], and what the prior couples."""
        for X, Y, c in self.blocks.batches(size, rng):
            T, _ = kernels.observed_moments(X, Y, c, self.shape[0])

            def gradient(theta: np.ndarray, X: Any = X, c: Any = c, T: np.ndarray = T) -> np.ndarray:
                _, expected = kernels.expected_moments(X, None, c, theta)
                return (self.n_rows / X.shape[0]) * (expected - T[:, : self.shape[1]]) + self._coupled(theta)

            yield gradient

    def _coupled(self, theta: np.ndarray) -> np.ndarray | float:
        """The prior's pull through entries of R beside the diagonal."""
        if isinstance(self.prior, DiagonalPrecision) and self.prior.centre is None:
            return 0.0
        centred = theta if self.mean is None else theta - self.mean
        return self.prior.times(centred) - self.precision * centred

    @cached_property
    def free(self) -> np.ndarray | None:
        """Coefficients along which no prior holds the optimum back, (K, D'); None if there can be no separation.

        Free intercepts alone are held by the data, unless a class has no rows.
        """
        free = self.precision == 0
        if free[:, : self.blocks.n_features].any():
            return free
        return free if self.has_intercept and free.any() and (self.observed.class_sizes == 0).any() else None

    def separated(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
        """A direction along which J falls for ever, if the parameters or the Newton direction are one.

        A direction that puts every row's own class on top is a proof of separation. Near a finite optimum Newton
        steps vanish; towards one at infinity they go on moving some logit by about one.
        """
        if self.free is None:
            return None
        for candidate, slack, least in ((theta, 1e-12, 0.0), (direction, 1e-6, 0.3)):
            V = np.where(self.free, candidate, 0.0)
            found = self.blocks.map_sum(kernels.separation, V)
            if found.spread > least and found.deficit <= slack * found.spread:
                return V
        return None

    def settle_intercepts(self, theta: np.ndarray) -> np.ndarray | None:
        """Theta with its free intercepts at their exact optimum given the weights, or None if that was not reached."""
        sizes = self.observed.class_sizes
        if (sizes == 0).any():
            return None
        # a slope left in the intercepts shows in the weights' gradient too, multiplied by the features
        small = 1e-10 / (1.0 + np.abs(self.observed.mean).max()) * sizes.sum()
        slope, A = np.abs(self.value_gradient(theta)[1][:, -1]).max(), None
        for _ in range(8):
            if slope <= small:
                break
            if A is None:
                A = self.blocks.map_sum(kernels.class_mixing, theta, row_values=self._rows(theta))
            moved = theta.copy()
            moved[:, -1] -= np.linalg.lstsq(A, self.value_gradient(theta)[1][:, -1])[0]
            moved_slope = np.abs(self.value_gradient(moved)[1][:, -1]).max()
            if not moved_slope < slope:
                break  # rounding, or too far away
            if moved_slope > _STALE * slope:
                A = None
            theta, slope = moved, moved_slope
        return theta if slope <= max(small, 1e-11 * sizes.sum()) else None

    def least_norm(self, theta: np.ndarray) -> np.ndarray:
        """Among parameters with the same probabilities and prior density, those of the smallest weights.

        Where the prior treats classes alike their weights sum to zero. Where it is flat, a change along combinations
        of features that are constant changes nothing: duplicated columns share their weight, constant ones get none.
        Theta itself comes back where only rounding would change.
        """
        D, given = self.blocks.n_features, theta
        theta = theta.copy()
        if self.mean is None:
            alike = (self.precision == self.precision[0]).all(axis=0) & self.prior.exchangeable
            theta[:, alike] -= theta[:, alike].mean(axis=0)
        flat = np.flatnonzero((self.precision[:, :D] == 0).all(axis=0))
        if 0 < flat.size <= 2500:
            # a free intercept takes up what is constant
            absorbs = self.has_intercept and not self.precision[:, D].any()
            mean = self.observed.mean if absorbs else np.zeros(D)
            scatter = self.blocks.map_sum(kernels.scatter, mean, coarse=True)[np.ix_(flat, flat)]
            if absorbs:
                rounding = self.observed.variance[flat] == 0
                scatter[rounding] = scatter[:, rounding] = 0.0
            constant = null_space(scatter)
            if constant.shape[1]:
                W = theta[:, flat]
                lost = (W @ constant) @ constant.T
                theta[:, flat] = W - lost
                if absorbs:
                    theta[:, D] += lost @ mean[flat]
        same = np.abs(theta - given) <= _ROUNDING * np.abs(given).max(axis=0)
        return given if same.all() else theta

    def least_gap(self, gradient: np.ndarray) -> float:
        """J - J* >= 1/2 g^T B^{-1} g for any B >= H: here H <= I/2 kron X^T C X + R <= K D' times its diagonal."""
        squares = np.append(self.observed.squares, self.total_weight)[: self.shape[1]]
        diagonal = 0.5 * squares + self.precision
        return float(0.5 * (gradient**2 / np.maximum(diagonal, np.finfo(float).tiny)).sum() / gradient.size)

    def gap_bound(self, gradient: np.ndarray) -> float | None:
        """J - J* <= 1/2 g^T R^{-1} g over penalised coefficients, where all others have no slope."""
        if not (self.precision[:, : self.blocks.n_features] > 0).all():
            return None
        return 0.5 * self.prior.inverse_norm(np.where(self.precision > 0, gradient, 0.0))

    def sample(self, n_rows: int, *, as_in_memory: bool = False) -> SoftmaxObjective:
        """The same objective on a random sample of the rows, scaled to stand for all of them.

        With `as_in_memory`, it has the same rows wherever they are.
        """
        n_rows = n_rows if as_in_memory else max(n_rows, least_sample(self.blocks))
        if n_rows >= self.n_rows:
            return self
        if (n_rows, as_in_memory) not in self._samples:
            blocks = self.blocks.sample(n_rows, np.random.default_rng(_SEED), as_in_memory=as_in_memory)
            observed = ObservedMoments.of(blocks, self.shape[0])
            self._samples[n_rows, as_in_memory] = SoftmaxObjective(blocks, observed, self.prior, self.mean)
        return self._samples[n_rows, as_in_memory]

    def _rows(self, theta: np.ndarray) -> list[np.ndarray] | None:
        """The probabilities at theta if the last pass was made there; otherwise kernels compute them again."""
        return self._probs if self._last is not None and self._last[0] is theta else None


def _raise_diagonal(blocks: np.ndarray, diagonal: np.ndarray) -> None:
    """Where the rows used missed most of a feature's curvature, lift diagonals (K, D, D) to those of all rows.

    Elsewhere they are left alone: a little noise on the diagonal would bury the small eigenvalues.
    """
    i = np.arange(blocks.shape[1])
    seen = blocks[:, i, i]
    blocks[:, i, i] = np.where(seen < 0.5 * diagonal, diagonal, seen)
