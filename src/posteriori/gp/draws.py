r"""Latents of rows drawn together: from the prior, and from a posterior seen through inducing inputs.

With whitened inducing values v_k ~ N(m_k, S_k), and a(x) and k(x, x') as in `gp.sparse`, the latents of all rows are

.. math:: f_k = \sigma_k (A^\top v_k + e_k), \qquad e_k \sim N(0,\; K_{xx} - A^\top A) .
"""

from __future__ import annotations

import numpy as np

from posteriori.maths.linalg import semidefinite_root

__all__ = ["inducing_draws", "prior_draws", "widened"]


def prior_draws(gram: np.ndarray, scale: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Latents (n_draws, K, n) with covariances sigma_k^2 K, from the Gram matrix (n, n) and the scales (K,)."""
    root = semidefinite_root(gram)
    return scale[:, None] * (rng.standard_normal((n_draws, len(scale), root.shape[1])) @ root.T)


def inducing_draws(
    A: np.ndarray,
    gram: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    scale: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Latents (n_draws, K, n), from A (M, n), the Gram matrix (n, n), m (K, M), S (K, M, M) and the scales (K,)."""
    root = semidefinite_root(gram - A.T @ A)
    out = rng.standard_normal((n_draws, len(mean), root.shape[1])) @ root.T
    for k, (m, S) in enumerate(zip(mean, covariance, strict=True)):
        inner = semidefinite_root(S)
        out[:, k] += (m + rng.standard_normal((n_draws, inner.shape[1])) @ inner.T) @ A
    return scale[:, None] * out


def widened(latents: np.ndarray, mean: np.ndarray, spread: float) -> np.ndarray:
    """Latents (S, K, n) with variances about their mean (K, n) multiplied by a factor."""
    return latents if spread == 1.0 else mean + np.sqrt(spread) * (latents - mean)
