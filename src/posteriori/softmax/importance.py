r"""Draws from a Gaussian approximation, weighted towards the posterior itself: w_s = p(Y, theta_s) / q(theta_s)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.maths.integrals import AtNodes, Nodes
from posteriori.maths.pareto import smoothed_weights
from posteriori.rows.products import logits
from posteriori.softmax.kernels import log_partitions
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrast_covariance
from posteriori.softmax.posterior import FullPosterior

__all__ = ["Importance", "WeightedDraws", "importance", "objective_values"]

_BLOCK_VALUES = 1 << 20


class WeightedDraws:
    """A posterior known by draws (S, K, D') and their weights (S,)."""

    structure = "full"
    gaussian = False

    def __init__(self, draws: np.ndarray, weights: np.ndarray) -> None:
        self.thetas, self.weights = draws, weights
        self.mean = np.tensordot(weights, draws, axes=1)

    @property
    def latent_size(self) -> int:
        return len(self.mean)

    def nodes(self, size: int, even: bool = False) -> Nodes:
        """The draws themselves, whatever the size asked for."""
        return Nodes(np.empty((0, self.weights.size)), self.weights)

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        """Logits of each row at each draw; F (K, n) says where their mean is to be."""
        S, K, D = self.thetas.shape
        offset = F - logits(X, self.mean)
        size = max(1, _BLOCK_VALUES // (S * K))
        for start in range(0, X.shape[0], size):
            rows = slice(start, min(X.shape[0], start + size))
            at = logits(X[rows], self.thetas.reshape(S * K, D)).reshape(S, K, -1)
            yield rows, np.ascontiguousarray(at.transpose(2, 1, 0)) + offset[:, rows].T[:, :, None]

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Parameters drawn at random with replacement, (n_draws, K, D')."""
        return self.thetas[rng.choice(self.weights.size, n_draws, p=self.weights)]

    def covariance(self) -> np.ndarray:
        centred = (self.thetas - self.mean).reshape(self.weights.size, -1)
        return (centred.T * self.weights) @ centred

    def precision(self) -> np.ndarray:
        """The inverse of the covariance; raises LinAlgError where there are fewer draws than parameters."""
        covariance = self.covariance()
        np.linalg.cholesky(covariance)
        return np.linalg.inv(covariance)

    def variances(self) -> np.ndarray:
        return np.tensordot(self.weights, (self.thetas - self.mean) ** 2, axes=1)

    def latent_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows, (n, K, K)."""
        F = logits(X, self.mean)
        out = np.empty((X.shape[0], len(self.mean), len(self.mean)))
        for rows, at in self.at_nodes(X, F, self.nodes(0)):
            deviation = at - F[:, rows].T[:, :, None]
            out[rows] = (deviation * self.weights) @ deviation.transpose(0, 2, 1)
        return out

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draws without what all classes share."""
        out = self.draws(n_draws, rng)
        return out - out.mean(axis=1, keepdims=True)

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        """Variances (m,) of linear functions of the parameters with these slopes, (m, K, D')."""
        values = np.tensordot(slopes, self.thetas - self.mean, axes=([1, 2], [1, 2]))
        return values**2 @ self.weights

    def contrast_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows less their mean over classes, (n, K, K)."""
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def pair_variances(self, X: Any) -> np.ndarray:
        """var(f_k - f_l) for k < l, (pairs, n)."""
        V = self.latent_covariance(X)
        k, m = np.triu_indices(len(self.mean), 1)
        return (V[:, k, k] + V[:, m, m] - 2.0 * V[:, k, m]).T


@dataclass(frozen=True)
class Importance:
    """The weighted draws, the log evidence they estimate, and how far to trust them."""

    posterior: WeightedDraws
    log_evidence: float
    k_hat: float
    effective_sample_size: float


def importance(
    objective: SoftmaxObjective, proposal: FullPosterior, n_draws: int, rng: np.random.Generator
) -> Importance:
    """Draw parameters from a Gaussian, weigh the draws by the posterior, and smooth the weights.

    See docs/theory.md, section 3.5.

    log p(Y) ~ log mean w_s; the normalising constants of prior and proposal differ by their determinants alone.
    """
    thetas = proposal.draws(n_draws, rng)
    minus_J = -objective_values(objective, thetas)
    deviations = thetas - proposal.mean
    log_q = np.array([-0.5 * np.vdot(d, proposal.precision_times(d)) for d in deviations])
    log_weights = minus_J - log_q + 0.5 * objective.prior.log_det() - 0.5 * proposal.log_det
    smoothed = smoothed_weights(log_weights)
    top = log_weights.max()
    log_evidence = float(top + np.log(np.exp(log_weights - top).mean()))
    return Importance(
        WeightedDraws(thetas, smoothed.weights), log_evidence, smoothed.k_hat, smoothed.effective_sample_size
    )


def objective_values(objective: SoftmaxObjective, thetas: np.ndarray) -> np.ndarray:
    """J at each of (S, K, D') parameters, (S,), in one pass."""
    S, K, D = thetas.shape
    sums = objective.blocks.map_sum(log_partitions, thetas.reshape(S * K, D), K)
    centred = thetas if objective.mean is None else thetas - objective.mean
    pulls = np.array([np.vdot(v, objective.prior.times(v)) for v in centred])
    return sums - np.tensordot(thetas, objective.moments, axes=2) + 0.5 * pulls
