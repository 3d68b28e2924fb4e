r"""The Hessian of softmax regression in parts: for preconditioners, and in coordinates of the classes.

Preconditioners need something like H for less than its price: Kronecker factors A and G with H about A kron G / tr A
plus the prior, or the diagonal blocks of H, one for each class, from a sample of the rows. Posteriors need H itself,
in coordinates theta = Q B of the classes, its determinant's slope, and its average over a Gaussian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posteriori.maths.integrals import Nodes
from posteriori.maths.linalg import cholesky
from posteriori.rows.blocks import OnGpu
from posteriori.softmax import kernels
from posteriori.softmax.pairs import averaged_moments, hessian_from_pairs, log_det_slope, pair_grams

if TYPE_CHECKING:
    from posteriori.softmax.objective import SoftmaxObjective

__all__ = ["Curvature"]

_SLOPE_ROWS = 20_000
"""Rows from which the slope of the log-determinant is taken."""
_MOST_FEATURES = 2500
"""Up to this many features (D, D) matrices of all of them are made."""
_LEADING = 256
"""Features in such a matrix where there are more, or where it would cost too much."""


class Curvature:
    """The curvature of one objective: H is a sum over rows plus the prior's precision R."""

    def __init__(self, objective: SoftmaxObjective) -> None:
        self.objective = objective

    def kronecker_factors(
        self, theta: np.ndarray, light: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A (K, K), G (L, L) of H ~ A kron G / tr A + prior for some coefficients, which ones, and diag G of all.

        From a sample of rows; G is of the heaviest features and the intercept alone if `light`, or if they are many.
        """
        problem = self.objective
        D = problem.shape[1]
        lead = self._heaviest if light or D > _MOST_FEATURES else np.arange(D)
        columns = None if lead.size == D else lead[: lead.size - problem.has_intercept]
        sample = problem.start.sample(max(4096, 100 * D if columns is None else 0))
        A, G = sample.blocks.map_sum(
            kernels.kronecker_factors, theta, columns, row_values=sample.probabilities_at(theta), coarse=True
        )
        if columns is None and sample is problem:
            return A, G, lead, G.diagonal()
        diagonal = self.diagonal(theta).sum(axis=0)
        if sample is not problem:
            _raise_diagonal(G[None], diagonal[None, lead])
        return A, G, lead, diagonal

    def class_blocks(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal blocks of H, (K, D', D'), without the prior's diagonal, from rows that matter for a class."""
        problem = self.objective
        sample = problem.start.sample(max(4096, 40 * problem.moments.size, problem.n_rows // 16))
        buffers = sample.probabilities_at(theta)
        mean_weight = sample.blocks.map_sum(kernels.class_spread, theta, row_values=buffers) / sample.n_rows
        blocks = sample.blocks.map_sum(kernels.class_scatter, theta, 0.1 * mean_weight, row_values=buffers, coarse=True)
        _raise_diagonal(blocks, self.diagonal(theta))
        return blocks + problem.prior.class_couplings()

    def diagonal(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal of H without the prior, (K, D')."""
        problem = self.objective
        return problem.blocks.map_sum(kernels.hessian_diagonal, theta, row_values=problem.probabilities_at(theta))

    def centred_diagonal(self, theta: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """The diagonal for features x - c and the logit at c in place of the intercept, for a centre [c, 1]."""
        problem = self.objective
        cross = problem.blocks.map_sum(kernels.hessian_cross, theta, row_values=problem.probabilities_at(theta))
        out = self.diagonal(theta).copy()
        out[:, :-1] += centre[:-1] * (centre[:-1] * out[:, -1:] - 2.0 * cross)
        return np.maximum(out, 0.0)

    def likelihood_hessian(self, theta: np.ndarray, basis: np.ndarray) -> np.ndarray:
        """H at theta without the prior, in coordinates theta = Q B for a basis Q (K, J): (J D', J D')."""
        problem = self.objective
        grams = problem.blocks.map_sum(pair_grams, theta, row_values=problem.probabilities_at(theta), coarse=True)
        return hessian_from_pairs(grams, basis, problem.shape[1])

    def factor(self, H: np.ndarray) -> np.ndarray:
        """The lower Cholesky factor of a positive definite matrix of the size of H, made where the rows are."""
        blocks = self.objective.blocks
        return blocks.factor_on_gpu(H) if isinstance(blocks, OnGpu) else cholesky(H)

    def log_det_slope(self, theta: np.ndarray, forms: np.ndarray) -> np.ndarray:
        """d/dtheta of tr(S H) with S held fixed, (K, D'), S given by the pairs' covariances (pairs, D', D').

        A sample of the rows is enough: the slope matters less the more rows there are.
        """
        sample = self.objective.start.sample(max(_SLOPE_ROWS, 40 * self.objective.moments.size), as_in_memory=True)
        return sample.blocks.map_sum(
            log_det_slope, theta, forms, row_values=sample.probabilities_at(theta), coarse=True
        )

    def averaged(
        self, theta: np.ndarray, forms: np.ndarray, basis: np.ndarray, nodes: Nodes
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """E[J], its slope and E[H_lik] (J D', J D') over a Gaussian about theta; the prior's part of J is at theta.

        The Gaussian is given by the covariances of w_k - w_l for each pair, (pairs, D', D').
        """
        problem = self.objective
        log_partition, gradient, grams = problem.blocks.map_sum(averaged_moments, theta, forms, nodes, coarse=True)
        value, pull = problem.averaged(theta, log_partition)
        gradient -= problem.moments
        gradient -= gradient.mean(axis=0)  # zero but for rounding, which a weak prior would magnify
        return value, gradient + pull, hessian_from_pairs(grams, basis, problem.shape[1])

    @property
    def _heaviest(self) -> np.ndarray:
        """The features with the largest sums of squares, and the intercept, last."""
        problem = self.objective
        columns = np.sort(np.argsort(-problem.observed.squares, kind="stable")[:_LEADING])
        return np.append(columns, problem.blocks.n_features) if problem.has_intercept else columns


def _raise_diagonal(blocks: np.ndarray, diagonal: np.ndarray) -> None:
    """Lift diagonals (K, D, D) to those of all rows where the rows used missed most of a feature's curvature.

    Elsewhere they are left alone: a little noise on the diagonal would bury the small eigenvalues.
    """
    i = np.arange(blocks.shape[1])
    seen = blocks[:, i, i]
    blocks[:, i, i] = np.where(seen < 0.5 * diagonal, diagonal, seen)
