"""Predictions from the latents of a fitted Gaussian process.

Latents of n rows have means and variances of shape (S, K, n), the output node's noise not included. They are Gaussian
(S = 1), or mixtures of S Gaussians of equal weight.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import logsumexp

from posteriori.gp.draws import prior_draws
from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.output import ArgmaxNode, OutputNode
from posteriori.gp.solution import GPSolution
from posteriori.maths.integrals import even_nodes

__all__ = [
    "FittedLatents",
    "FittedLayer",
    "FittedProbit",
    "drawn_probabilities",
    "latent_moments",
    "mean_log_probabilities",
    "mean_probabilities",
]


class FittedLatents(Protocol):
    """The result of a fit: the posterior of the latents, and what was learned.

    Predictions, learned parameters and storage read a fitted classifier through this protocol alone.
    """

    @property
    def node(self) -> OutputNode:
        """The node that turns latents into probabilities."""

    @property
    def scale(self) -> np.ndarray:
        """The scales sigma_k of the latent functions, (K,)."""

    @property
    def mislabelling(self) -> float:
        """The rate of mislabelled rows."""

    @property
    def inducing(self) -> np.ndarray:
        """The inducing inputs of the layer that the node reads, in its units, (M, D)."""

    @property
    def solution(self) -> GPSolution:
        """The record of the fit."""

    @property
    def spread(self) -> float:
        """The factor on the variances of the latents under which probabilities are best."""

    @property
    def needs_jax(self) -> bool:
        """Whether `latents` computes with JAX."""

    def learned_kernel(self, unit: np.ndarray) -> Kernel:
        """The kernel as learned, of features in their own units, of which these are the standardised ones."""

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of independent latents of standardised rows, without noise."""

    def predictive(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents that probabilities are computed from."""

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, K) and covariances (n, K, K) of the latent functions at standardised rows."""


class FittedLayer(FittedLatents, Protocol):
    """One layer, whose latents can be drawn for all rows together."""

    def draws(self, X: np.ndarray, spread: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the posterior, its variances multiplied by `spread`."""

    def prior_draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the prior, with the kernel as learned."""


class FittedProbit:
    """What fits of the multinomial probit by NumPy share: a kernel with its parameters, scales and an argmax node."""

    kernel: Kernel
    free: Free
    log_scale: np.ndarray
    node: ArgmaxNode

    needs_jax = False

    @property
    def scale(self) -> np.ndarray:
        """The scales sigma_k of the latent functions, (K,)."""
        return np.exp(self.log_scale)

    @property
    def mislabelling(self) -> float:
        """The rate of mislabelled rows."""
        return self.node.rate

    def learned_kernel(self, unit: np.ndarray) -> Kernel:
        """The kernel as learned, of features in their own units."""
        return self.kernel.learned(self.free, unit)

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of independent latents of standardised rows, without noise."""
        raise NotImplementedError

    def prior_draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the prior, with the kernel as learned."""
        return prior_draws(self.kernel.gram(self.free, X, X), self.scale, n_draws, rng)

    def predictive(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents that probabilities are computed from."""
        return self.latents(X)


def _flat(array: np.ndarray) -> np.ndarray:
    """(S, K, n) as (K, S n)."""
    return np.swapaxes(array, 0, 1).reshape(array.shape[1], -1)


def mean_probabilities(node: OutputNode, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E[p(k | h)], (K, n): the node integrates over the classes' latents inside the mean over samples."""
    S, K, n = mean.shape
    return node.probabilities(_flat(mean), _flat(variance)).reshape(K, S, n).mean(axis=1)


def mean_log_probabilities(node: OutputNode, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The logarithms of `mean_probabilities`, right however small these are, (K, n)."""
    S, K, n = mean.shape
    log_p = node.log_probabilities(_flat(mean), _flat(variance)).reshape(K, S, n)
    return log_p[:, 0] if S == 1 else logsumexp(log_p, axis=1) - np.log(S)


def latent_moments(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, K) and covariances (n, K, K) of the latents: within samples, and between them."""
    centre = mean.mean(axis=0)
    apart = mean - centre
    covariance = np.einsum("skn,sln->nkl", apart, apart) / len(mean)
    k = np.arange(mean.shape[1])
    covariance[:, k, k] += variance.mean(axis=0).T
    return centre.T, covariance


def drawn_probabilities(node: OutputNode, mean: np.ndarray, variance: np.ndarray, n_draws: int) -> np.ndarray:
    """p(k | f) at about `n_draws` fixed draws of the latents of each row, (J, K, n)."""
    S, K, n = mean.shape
    z = even_nodes(K, n_draws).points.T
    # z and -z are half of all nodes apart: both meet the same sample, and each sample meets neighbours of the sequence
    half = len(z) // 2
    s = np.arange(len(z)) % half * S // half
    latent = mean[s] + np.sqrt(np.maximum(variance[s], 0.0)) * z[:, :, None]
    P = node.at(_flat(latent))
    return np.swapaxes(P.reshape(K, len(z), n), 0, 1)
