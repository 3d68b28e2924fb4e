"""Predictions from a posterior, block by block: kernels from rows (n, D) to arrays (K, n)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from posteriori.decision.uncertainty import entropy
from posteriori.maths.integrals import expected_softmax, log_expected_softmax, softmax_at_nodes
from posteriori.maths.quadratic import upper
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import add_intercept, as_dense, contract, logits
from posteriori.softmax.fitted import FittedSoftmax
from posteriori.softmax.posterior import Posterior

__all__ = [
    "PREDICTIVES",
    "drawn",
    "drawn_moments",
    "effect_slopes",
    "entropies",
    "interval_nodes",
    "latent_covariances",
    "latent_means",
    "plugin",
    "probit",
    "quantiles",
    "quasi",
    "quasi_nodes",
    "sampled",
    "weighted_sums",
]

_EFFECT_VALUES = 1 << 22
"""Values of effects made at once."""


def latent_means(X: Any, posterior: Posterior, offset: np.ndarray) -> np.ndarray:
    """E[f], (K, n)."""
    return logits(X, posterior.mean) + offset[:, None]


def latent_covariances(X: Any, posterior: Posterior) -> np.ndarray:
    """cov(f), (K K, n)."""
    return posterior.latent_covariance(X).reshape(X.shape[0], -1).T


@kernel(jax_version="posteriori.softmax.jax_kernels:plugin")
def plugin(X: Any, theta: np.ndarray, offset: np.ndarray, log: bool) -> np.ndarray:
    """softmax(theta x) at one theta."""
    F = logits(X, theta) + offset[:, None]
    if log:
        return log_softmax_in_place(F)
    softmax_in_place(F)
    return F


def quasi_nodes(n_nodes: int, K: int) -> int:
    """Nodes for each row of `quasi`: fewer with very many classes, as each costs K exponentials."""
    return n_nodes if K <= 100 else max(32, n_nodes // 8)


def interval_nodes(n_nodes: int, level: float) -> int:
    """Nodes for each row of `quantiles`: about ten beyond each end of the interval."""
    return int(np.clip(40.0 / (1.0 - level), max(1024, n_nodes), 1 << 14))


@kernel(jax_version="posteriori.softmax.jax_kernels:quasi")
def quasi(X: Any, posterior: Posterior, offset: np.ndarray, n_nodes: int, log: bool) -> np.ndarray:
    """E[softmax(f)] over the rows' joint Gaussian logits, by fixed nodes."""
    F = logits(X, posterior.mean) + offset[:, None]
    nodes = posterior.nodes(n_nodes)
    average = log_expected_softmax if log else expected_softmax
    return average(posterior.at_nodes(X, F, nodes), nodes.weights, F.shape)


def sampled(X: Any, thetas: np.ndarray, offset: np.ndarray, log: bool) -> np.ndarray:
    """The mean of softmax(theta_s x) over draws (S, K, D')."""
    total = None
    for theta in thetas:
        P = plugin(X, theta, offset, log)
        if total is None:
            total = P
        elif log:
            np.logaddexp(total, P, out=total)
        else:
            total += P
    assert total is not None
    return total - np.log(len(thetas)) if log else total / len(thetas)


def drawn(X: Any, thetas: np.ndarray, offset: np.ndarray, log: bool) -> np.ndarray:
    """softmax(theta_s x) for each of S draws, (S K, n), one draw after the other."""
    return np.concatenate([plugin(X, theta, offset, log) for theta in thetas])


@kernel(reads_labels=False)
def drawn_moments(X: Any, Y: Any, c: np.ndarray | None, thetas: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """sum_n of c_n p_n, and of c_n p_n p_n^T, for each of S draws: (S, K, 1 + K)."""
    out = np.empty((len(thetas), offset.size, 1 + offset.size))
    for s, theta in enumerate(thetas):
        P = plugin(X, theta, offset, False)
        R = P if c is None else P * c
        out[s, :, 0] = R.sum(axis=1)
        out[s, :, 1:] = R @ P.T
    return out


@kernel(reads_labels=False)
def effect_slopes(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, offset: np.ndarray) -> Sums:
    r"""sum_n c_n, sum_n c_n d p_nk / d x_nd (K, D), and the slopes of the latter, (K, D, K, D').

    With A_{nkd} = d p_{nk} / d x_{nd} = p_{nk} (w_{kd} - sum_j p_{nj} w_{jd}) and z_n = [x_n, 1]

    .. math:: \frac{\partial A_{nkd}}{\partial\theta_{lm}} = (1_{k=l} - p_{nl})\, A_{nkd} z_{nm}
              - p_{nk} A_{nld} z_{nm} + 1_{d=m}\, p_{nk} (1_{k=l} - p_{nl}).
    """
    K, width = theta.shape
    D = X.shape[1]
    W = theta[:, :D]
    total, effects, slopes = 0.0, np.zeros((K, D)), np.zeros((K, D, K, width))
    mixing = np.zeros((K, K))
    step = max(1, _EFFECT_VALUES // (K * width))
    for start in range(0, X.shape[0], step):
        rows = slice(start, min(X.shape[0], start + step))
        P = logits(X[rows], theta) + offset[:, None]
        softmax_in_place(P)
        weights = np.ones(P.shape[1]) if c is None else c[rows]
        Z = as_dense(X[rows])
        Z = add_intercept(Z) if width > D else Z
        A = (P * weights)[:, None, :] * (W[:, :, None] - (P.T @ W).T)  # (K, D, n)
        total += float(weights.sum())
        effects += A.sum(axis=2)
        crossed = A.reshape(K * D, -1) @ (P[:, :, None] * Z).transpose(1, 0, 2).reshape(len(Z), -1)
        crossed = crossed.reshape(K, D, K, width)  # sum_n A_nkd p_nl z_nm
        slopes -= crossed + crossed.transpose(2, 1, 0, 3)
        slopes[np.arange(K), :, np.arange(K)] += A @ Z
        mixing -= (P * weights) @ P.T
        mixing[np.diag_indices(K)] += P @ weights
    d = np.arange(D)
    slopes[:, d, :, d] += mixing
    return Sums((total, effects, slopes))


@kernel(reads_labels=False)
def weighted_sums(X: Any, Y: Any, c: np.ndarray | None) -> Sums:
    """sum_n c_n and sum_n c_n x_n, (D,)."""
    weights = np.ones(X.shape[0]) if c is None else c
    return Sums((float(weights.sum()), contract(weights[None], X, False)[0]))


def probit(X: Any, posterior: Posterior, offset: np.ndarray, log: bool) -> np.ndarray:
    """p_k ~ 1 / sum_j exp(-(m_k - m_j) / sqrt(1 + pi v_kj / 8)), v_kj = var(f_k - f_j), normalised."""
    F = logits(X, posterior.mean) + offset[:, None]
    K, n = F.shape
    k, m = upper(K, 1)
    margins = np.zeros((K, K, n))
    variances = posterior.pair_variances(X)
    variances[np.isinf(variances)] = np.nan  # no margin of zero where squares overflow
    margins[k, m] = (F[k] - F[m]) / np.sqrt(1.0 + np.pi / 8.0 * variances)
    margins[m, k] = -margins[k, m]
    log_p = -np.logaddexp.reduce(-margins, axis=1)
    return log_softmax_in_place(log_p) if log else np.exp(log_softmax_in_place(log_p))


def quantiles(X: Any, posterior: Posterior, offset: np.ndarray, n_nodes: int, levels: tuple[float, ...]) -> np.ndarray:
    """Quantiles of each class probability, (len(levels) K, n), one level after the other."""
    F = logits(X, posterior.mean) + offset[:, None]
    K, n = F.shape
    out = np.empty((len(levels), K, n))
    if K == 2 and posterior.gaussian:  # log-odds are normal, and their order is that of the probabilities
        sd = np.sqrt(posterior.pair_variances(X)[0])
        for i, level in enumerate(levels):
            z = ndtri(level) * sd
            out[i] = expit(F[0] - F[1] + z), expit(F[1] - F[0] + z)
        return out.reshape(len(levels) * K, n)
    nodes = posterior.nodes(n_nodes, even=True)
    for rows, at in posterior.at_nodes(X, F, nodes):
        softmax_at_nodes(at)
        for i, level in enumerate(levels):
            out[i, :, rows] = _weighted_quantile(at, nodes.weights, level).T
    return out.reshape(len(levels) * K, n)


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, level: float) -> np.ndarray:
    """Quantiles of weighted values along the last axis, (n, K)."""
    if (weights == weights[0]).all():
        return np.quantile(values, level, axis=-1, method="hazen")
    order = np.argsort(values, axis=-1)
    reached = np.cumsum(weights[order], axis=-1)
    index = np.minimum((reached < level).sum(axis=-1), values.shape[-1] - 1)
    return np.take_along_axis(np.take_along_axis(values, order, axis=-1), index[..., None], axis=-1)[..., 0]


def entropies(X: Any, posterior: Posterior, offset: np.ndarray, n_nodes: int, label_noise: float) -> np.ndarray:
    """Total H[E p] and aleatoric E[H p] entropy in nats, (2, n), of labels of which some are noise."""
    F = logits(X, posterior.mean) + offset[:, None]
    nodes = posterior.nodes(n_nodes)
    out = np.empty((2, F.shape[1]))
    for rows, at in posterior.at_nodes(X, F, nodes):
        softmax_at_nodes(at)
        at *= 1.0 - label_noise
        at += label_noise / len(F)
        out[0, rows] = entropy(at @ nodes.weights)
        out[1, rows] = entropy(at.transpose(0, 2, 1)) @ nodes.weights
    return out


# The four ways to average over a posterior, by name: each gives a kernel of rows and its parameters but for `log`


def _quasi(fitted: FittedSoftmax, n_nodes: int, n_draws: int) -> tuple[Any, ...]:
    return quasi, fitted.posterior, fitted.offset, quasi_nodes(n_nodes, len(fitted.mode))


def _sample(fitted: FittedSoftmax, n_nodes: int, n_draws: int) -> tuple[Any, ...]:
    return sampled, fitted.draws(n_draws), fitted.offset


def _probit(fitted: FittedSoftmax, n_nodes: int, n_draws: int) -> tuple[Any, ...]:
    return probit, fitted.posterior, fitted.offset


def _plugin(fitted: FittedSoftmax, n_nodes: int, n_draws: int) -> tuple[Any, ...]:
    return plugin, fitted.mode, fitted.offset


PREDICTIVES: dict[str, Callable[[FittedSoftmax, int, int], tuple[Any, ...]]] = {
    "quasi": _quasi,
    "sample": _sample,
    "probit": _probit,
    "plugin": _plugin,
}
