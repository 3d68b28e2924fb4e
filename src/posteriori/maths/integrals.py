r"""Averages of softmax over Gaussian logits, by fixed nodes (docs/theory.md, section 4.2).

For a row with logits f ~ N(m, V), only differences matter. With f_k - f_K (k < K) = mu + L z, L L^T their covariance
and z standard normal in J = K - 1 dimensions,

.. math:: \mathbb{E}[\mathrm{softmax}(f)_k] \approx \sum_s \omega_s\, \mathrm{softmax}([\mu + L z_s, 0])_k .

In one dimension the nodes are Gauss-Hermite's, in two a product of them, beyond that quasi-random points together with
their mirror images, transformed so that their mean is zero and their covariance the identity, exactly. A row gets the
same answer in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from posteriori.maths.quadratic import upper

__all__ = [
    "AtNodes",
    "Nodes",
    "SoftmaxMoments",
    "cholesky_psd",
    "even_nodes",
    "expected_softmax",
    "log_expected_softmax",
    "logits_at_nodes",
    "logits_in_basis",
    "normal_nodes",
    "softmax_at_nodes",
    "softmax_moments",
]

_BLOCK_VALUES = 1 << 19
"""The number of logits held at a time: rows x classes x nodes."""
_SEED = 7


AtNodes = Iterator[tuple[slice, np.ndarray]]
"""Slices of rows with their logits at all nodes, (n_b, K, S)."""


class Nodes(NamedTuple):
    """Points (J, S) and weights (S,) that integrate against a standard normal in J dimensions."""

    points: np.ndarray
    weights: np.ndarray


@lru_cache(maxsize=64)
def normal_nodes(J: int, size: int = 128) -> Nodes:
    """Nodes that integrate against a standard normal in J dimensions, about `size` of them at most.

    >>> points, weights = normal_nodes(3)
    >>> bool(np.allclose(points @ (weights[:, None] * points.T), np.eye(3)))
    True
    """
    if J <= 2:
        x, w = np.polynomial.hermite_e.hermegauss(min(size, 32) if J == 1 else max(3, int(np.sqrt(size))))
        w = w / w.sum()
        if J == 1:
            return Nodes(x[None, :], w)
        return Nodes(np.stack(np.meshgrid(x, x)).reshape(2, -1), np.outer(w, w).ravel())
    return even_nodes(J, size)


@lru_cache(maxsize=64)
def even_nodes(J: int, size: int) -> Nodes:
    """Nodes of equal weight in J dimensions, at least `size` of them, as quantiles need."""
    half = 1 << max(1, int(np.ceil(np.log2(max(size, 4)))) - 1)  # Sobol's points come in powers of two
    if J == 1:
        points = ndtri((np.arange(half) + 0.5) / (2 * half))[None, :]
        return Nodes(np.concatenate([points, -points[:, ::-1]], axis=1), np.full(2 * half, 0.5 / half))
    if J <= qmc.Sobol.MAXDIM:
        uniform = qmc.Sobol(J, scramble=True, rng=np.random.default_rng(_SEED)).random(half)
    else:
        uniform = np.random.default_rng(_SEED).random((half, J))
    points = ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)).T
    if half >= 2 * J:
        points = np.linalg.solve(np.linalg.cholesky(points @ points.T / half), points)
    else:  # too few for a whole covariance: at least the variances
        points /= np.sqrt((points**2).mean(axis=1, keepdims=True))
    return Nodes(np.concatenate([points, -points], axis=1), np.full(2 * half, 0.5 / half))


class SoftmaxMoments(NamedTuple):
    """Averages of p = softmax(f): E[log sum exp f] - m_K (n,), E[p] (K, n), E[p_k p_l] for k < l (pairs, n)."""

    log_partition: np.ndarray
    mean: np.ndarray
    products: np.ndarray


def expected_softmax(at_nodes: AtNodes, weights: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The average E[softmax(f)] over the nodes, (K, n)."""
    out = np.empty(shape)
    for rows, F in at_nodes:
        softmax_at_nodes(F)
        out[:, rows] = (F @ weights).T
    return out


def log_expected_softmax(at_nodes: AtNodes, weights: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The logarithm of E[softmax(f)], (K, n), exact for the smallest too: nodes are averaged in logarithms."""
    out = np.empty(shape)
    with np.errstate(divide="ignore"):  # a node may have no weight
        log_weights = np.log(weights)
    for rows, F in at_nodes:
        F -= F.max(axis=1, keepdims=True)
        F -= np.log(np.exp(F).sum(axis=1, keepdims=True))
        F += log_weights
        top = F.max(axis=2, keepdims=True)
        out[:, rows] = (np.log(np.exp(F - top).sum(axis=2)) + top[:, :, 0]).T
    return out


def softmax_moments(mean: np.ndarray, covariance: np.ndarray, nodes: Nodes) -> SoftmaxMoments:
    """First and second moments of the probabilities, and the mean log-partition, for all rows at once."""
    K, n = mean.shape
    k, m = upper(K, 1)
    log_partition, first, products = np.empty(n), np.empty((K, n)), np.empty((k.size, n))
    for rows, F in logits_at_nodes(mean, covariance, nodes):
        log_partition[rows] = softmax_at_nodes(F) @ nodes.weights
        weighted = F * nodes.weights
        first[:, rows] = weighted.sum(axis=2).T
        products[:, rows] = (weighted @ F.transpose(0, 2, 1))[:, k, m].T
    return SoftmaxMoments(log_partition, first, products)


def logits_in_basis(mean: np.ndarray, U: np.ndarray, variances: np.ndarray, nodes: Nodes) -> AtNodes:
    """Yield slices of rows and their logits m + U diag(sqrt v) z at the nodes z, (n_b, K, S)."""
    K, n = mean.shape
    size = max(1, _BLOCK_VALUES // (K * nodes.weights.size))
    for start in range(0, n, size):
        rows = slice(start, min(n, start + size))
        F = np.matmul(U, np.sqrt(variances[:, rows]).T[:, :, None] * nodes.points)
        F += mean[:, rows].T[:, :, None]
        yield rows, F


def logits_at_nodes(mean: np.ndarray, covariance: np.ndarray, nodes: Nodes) -> AtNodes:
    """Yield slices of rows and their logits at the nodes, less the last class's mean, (n_b, K, S)."""
    K, n = mean.shape
    S = nodes.weights.size
    factors = cholesky_psd(covariance)
    size = max(1, _BLOCK_VALUES // (K * S))
    for start in range(0, n, size):
        rows = slice(start, min(n, start + size))
        F = np.empty((rows.stop - start, K, S))
        np.matmul(factors[rows], nodes.points, out=F[:, :-1])
        F[:, :-1] += (mean[:-1, rows] - mean[-1, rows]).T[:, :, None]
        F[:, -1] = 0.0
        yield rows, F


def cholesky_psd(covariance: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors of (n, J, J) positive semi-definite matrices, raised a little on the diagonal."""
    i = np.arange(covariance.shape[1])
    diagonal = np.maximum(covariance[:, i, i], 0.0)
    least = 1e-13 * diagonal.max(axis=1, initial=0.0) + 1e-300
    lifted = covariance.copy()
    lifted[:, i, i] = diagonal + least[:, None]
    try:
        return np.linalg.cholesky(lifted)
    except np.linalg.LinAlgError:
        return np.stack([_cholesky_lifted(M, jitter) for M, jitter in zip(lifted, least, strict=True)])


def _cholesky_lifted(M: np.ndarray, jitter: float) -> np.ndarray:
    """The lower Cholesky factor of one matrix, with no more added to its diagonal than it needs; NaN if it has any."""
    while np.isfinite(M).all():
        try:
            return np.linalg.cholesky(M)
        except np.linalg.LinAlgError:
            jitter *= 100.0
            M = M + jitter * np.eye(len(M))
    return np.full_like(M, np.nan)


def softmax_at_nodes(F: np.ndarray) -> np.ndarray:
    """Turn logits (n, K, S) into probabilities over K in place; return log sum_k exp, (n, S)."""
    top = F.max(axis=1)
    F -= top[:, None, :]
    np.exp(F, out=F)
    total = F.sum(axis=1)
    F /= total[:, None, :]
    np.log(total, out=total)
    total += top
    return total
