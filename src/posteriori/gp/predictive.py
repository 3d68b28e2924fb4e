"""Predictions from latents that are Gaussian, or mixtures of S Gaussians where hidden layers are sampled.

Latents of n rows have means and variances of shape (S, K, n), the likelihood's noise not included; one layer has S = 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.gp.likelihoods import Likelihood
from posteriori.maths.integrals import even_nodes

__all__ = ["covariances", "drawn", "entropy", "probabilities"]


def _flat(array: np.ndarray) -> np.ndarray:
    """(S, K, n) as (K, S n)."""
    return np.swapaxes(array, 0, 1).reshape(array.shape[1], -1)


def probabilities(likelihood: Likelihood, free: Any, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E[p(k | h)], (K, n): a product over classes inside, the mean over samples outside."""
    S, K, n = mean.shape
    P = likelihood.probabilities(free, _flat(mean), _flat(variance) + likelihood.noise)
    return P.reshape(K, S, n).mean(axis=1)


def covariances(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, K) and covariances (n, K, K) of the latents: within samples, and between them."""
    centre = mean.mean(axis=0)
    apart = mean - centre
    covariance = np.einsum("skn,sln->nkl", apart, apart) / len(mean)
    k = np.arange(mean.shape[1])
    covariance[:, k, k] += variance.mean(axis=0).T
    return centre.T, covariance


def drawn(likelihood: Likelihood, free: Any, mean: np.ndarray, variance: np.ndarray, n_draws: int) -> np.ndarray:
    """p(k | f) at about `n_draws` fixed draws of the latents of each row, (J, K, n)."""
    S, K, n = mean.shape
    z = even_nodes(K, n_draws).points.T
    # z and -z are half of all nodes apart: both meet the same sample, and each sample meets neighbours of the sequence
    half = len(z) // 2
    s = np.arange(len(z)) % half * S // half
    latent = mean[s] + np.sqrt(variance[s]) * z[:, :, None]
    P = likelihood.at(free, _flat(latent))
    return np.swapaxes(P.reshape(K, len(z), n), 0, 1)


def entropy(P: np.ndarray, axis: int) -> np.ndarray:
    """-sum p log p along an axis, in nats."""
    return -(P * np.log(np.maximum(P, 1e-300))).sum(axis=axis)
