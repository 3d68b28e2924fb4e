r"""The kernels of softmax regression in JAX, for rows on a GPU.

Each follows the formula of its NumPy version, with the same arguments and the same result. What differs is the order of
work (see `rows.gpu_arrays`).

What a pass must cost: it reads X twice (logits, then their transpose), 16 N D bytes, and makes 4 N D K
multiplications and additions. The Gram matrices of all pairs of classes make N D^2 K (K - 1) of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriori.rows.gpu_arrays import (
    contract,
    grams_of,
    jax_kernel,
    logits,
    one_hot,
    parts_of,
    quadratic_forms,
    rows_within,
    side_by_side,
    summed,
    weighed,
    weighted_grams,
    with_edge,
)
from posteriori.softmax import kernels, pairs
from posteriori.softmax.posterior import FullPosterior, Posterior

_FEW_CLASSES = 16
"""Up to this many classes the products of each class with all later ones are compiled one by one."""
_COLUMNS = 500
"""Columns of the left factor of a product with itself: fewer leave processors idle, more compute unused values."""


def log_partition_and_softmax(F: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log sum_k exp f_kn (N,) and the probabilities (K, N)."""
    top = F.max(axis=0)
    E = jnp.exp(F - top)
    total = E.sum(axis=0)
    return jnp.log(total) + top, E * (1.0 / total)


def probabilities(X: jax.Array, theta: jax.Array, P: jax.Array | None) -> jax.Array:
    """The probabilities P (K, N): those kept from the last pass, or computed again."""
    return log_partition_and_softmax(logits(X, theta))[1] if P is None else P


def pair_products(P: jax.Array) -> jax.Array:
    """p_k p_l for k < l, (pairs, N)."""
    k, m = np.triu_indices(len(P), 1)
    return P[k] * P[m]


# Softmax


@jax_kernel(static=("n_classes",))
def observed_moments(X: jax.Array, Y: jax.Array, c: jax.Array | None, n_classes: int) -> tuple[jax.Array, ...]:
    T = contract(weighed(one_hot(Y, n_classes), c), X, True)
    return T, (X * X if c is None else X * X * c[:, None]).sum(axis=0)


@jax_kernel(keeps_probabilities=True)
def expected_moments(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array) -> Any:
    log_partition, P = log_partition_and_softmax(logits(X, theta))
    sums = weighed(log_partition, c).sum(), contract(weighed(P, c), X, theta.shape[1] > X.shape[1])
    return sums, P


@jax_kernel(keeps_probabilities=True)
def residual_moments(X: jax.Array, Y: jax.Array, c: jax.Array | None, theta: jax.Array) -> Any:
    F = logits(X, theta)
    log_partition, P = log_partition_and_softmax(F)
    own = one_hot(Y, len(theta))
    if Y.ndim == 1:
        others = jnp.where(own > 0, 0.0, P)
        missing = others.sum(axis=0)
        R = jnp.where(own > 0, -missing, others)
        plain = log_partition - jnp.where(own > 0, F, 0.0).sum(axis=0)
        loss = jnp.where(missing < 0.5, -jnp.log1p(-jnp.minimum(missing, 0.5)), plain)
    else:
        R = P - own
        loss = log_partition - (own * F).sum(axis=0)
    return (weighed(loss, c).sum(), contract(weighed(R, c), X, theta.shape[1] > X.shape[1])), P


@jax_kernel(static=("n_classes",))
def log_partitions(X: jax.Array, Y: Any, c: jax.Array | None, thetas: jax.Array, n_classes: int) -> jax.Array:
    each = thetas.reshape(-1, n_classes, thetas.shape[1])
    return lax.map(lambda theta: weighed(log_partition_and_softmax(logits(X, theta))[0], c).sum(), each)


@jax_kernel()
def hessian_product(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, V: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    if P is None:  # logits of both by one product
        both = logits(X, jnp.concatenate([theta, V]))
        P, U = log_partition_and_softmax(both[: len(V)])[1], both[len(V) :]
    else:
        U = logits(X, V)
    return contract(weighed(P * (U - (P * U).sum(axis=0)), c), X, theta.shape[1] > X.shape[1])


@jax_kernel()
def pair_grams(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    (K, D), with_intercept = (len(theta), X.shape[1]), theta.shape[1] > X.shape[1]
    P = probabilities(X, theta, P)
    if K > _FEW_CLASSES:
        weigh = lambda P, c: weighed(pair_products(P), c)  # noqa: E731
        return grams_of(weigh, K * (K - 1) // 2, X, with_intercept, P, c)

    together = max(1, min(K, round(_COLUMNS / D)))

    def part(X: jax.Array, P: jax.Array, c: jax.Array | None) -> tuple[jax.Array, ...]:
        """Rows p_k x_n of every class side by side, made once; then some classes with themselves and all later ones."""
        n = len(X)
        B = parts_of(n)
        R = P if c is None else P * jnp.sqrt(c)
        Q = (R.T[:, :, None] * X[:, None, :]).reshape(B, n // B, K * D)
        grams = []
        for first in range(0, K - 1, together):
            left = Q[..., first * D : (first + together) * D]
            G = jnp.einsum("bnd,bne->bde", left, Q[..., first * D :]).sum(axis=0).reshape(-1, D, K - first, D)
            grams += [G[i, :, i + 1 :].transpose(1, 0, 2) for i in range(min(len(G), K - 1 - first))]
        return jnp.concatenate(grams), contract(weighed(pair_products(P), c), X, with_intercept)

    grams, edge = summed(part, rows_within(K * D), X, P, c)
    return with_edge(grams, edge) if with_intercept else grams


def _hessian(grams: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The Hessian from the Gram matrices of the pairs: no other sums over rows are needed."""
    return pairs.hessian_from_pairs(grams, np.eye(len(theta)), theta.shape[1])


hessian = jax_kernel(result=_hessian)(pair_grams.function)


@jax_kernel()
def class_mixing(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    R = weighed(P, c)
    K, N = P.shape
    B = parts_of(N)
    mixed = jnp.einsum("kbn,lbn->bkl", R.reshape(K, B, N // B), P.reshape(K, B, N // B)).sum(axis=0)
    return jnp.diag(R.sum(axis=1)) - mixed


@jax_kernel()
def kronecker_factors(
    X: jax.Array,
    Y: Any,
    c: jax.Array | None,
    theta: jax.Array,
    columns: jax.Array | None = None,
    P: jax.Array | None = None,
) -> tuple[jax.Array, ...]:
    P = probabilities(X, theta, P)
    R = weighed(P, c)
    spread = jnp.maximum(R.sum(axis=0) - (R * P).sum(axis=0), 0.0)
    Z = X if columns is None else X[:, columns]
    has_intercept = theta.shape[1] > X.shape[1]
    return class_mixing(X, Y, c, theta, P), weighted_grams(Z, spread[None], has_intercept)[0]


@jax_kernel()
def class_scatter(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, floor: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    P = probabilities(X, theta, P)
    weights = weighed(P * (1.0 - P), c)
    return weighted_grams(X, jnp.where(weights > floor[:, None], weights, 0.0), theta.shape[1] > X.shape[1])


@jax_kernel()
def class_spread(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    return weighed(P - P * P, c).sum(axis=1)


@jax_kernel()
def hessian_diagonal(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    P = probabilities(X, theta, P)
    return contract(weighed(P - P * P, c), X * X, theta.shape[1] > X.shape[1])


@jax_kernel()
def hessian_cross(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    return contract(weighed(P - P * P, c), X, False)


@jax_kernel()
def scatter(X: jax.Array, Y: Any, c: jax.Array | None, mean: jax.Array) -> jax.Array:
    return weighted_grams(X - mean, jnp.ones((1, len(X))) if c is None else c[None], False)[0]


@jax_kernel(result=lambda found, *_: kernels.Separation(*map(float, found)))
def separation(X: jax.Array, Y: jax.Array, c: jax.Array | None, V: jax.Array) -> tuple[jax.Array, ...]:
    F = logits(X, V)
    counts = True if c is None else c > 0
    top, bottom = F.max(axis=0), F.min(axis=0)
    own = jnp.where(one_hot(Y, len(V)) > 0, F, jnp.inf).min(axis=0)
    return tuple(jnp.where(counts, each, 0.0).max(initial=0.0) for each in (top - own, top - bottom))


@jax_kernel(result=lambda found, *_: kernels.PairMargins(*found))
def pair_margins(X: jax.Array, Y: jax.Array, c: jax.Array | None, V: jax.Array) -> tuple[jax.Array, ...]:
    F = logits(X, V)
    belongs = weighed(one_hot(Y, len(V)), c) > 0

    def of_class(i: jax.Array) -> tuple[jax.Array, ...]:
        margins, mine = F[i] - F, belongs[i]
        return jnp.where(mine, margins, jnp.inf).min(axis=1), jnp.where(mine, margins, -jnp.inf).max(axis=1)

    return lax.map(of_class, jnp.arange(len(V)))


@jax_kernel()
def log_det_slope(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, forms: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    with_intercept = theta.shape[1] > X.shape[1]

    def part(X: jax.Array, P: jax.Array, c: jax.Array | None) -> jax.Array:
        v = _square(quadratic_forms(X, forms, with_intercept), len(P))
        slope = jnp.einsum("nkl,ln->kn", v, P)
        slope = P * (slope - (P * slope).sum(axis=0))
        return contract(weighed(slope, c), X, with_intercept)

    size = rows_within(len(forms) * theta.shape[1])
    return summed(part, size, X, probabilities(X, theta, P), c)


def _square(variances: jax.Array, K: int) -> jax.Array:
    """v_kl of each row as a symmetric matrix, (n, K, K), from those of the pairs, (pairs, n)."""
    k, m = np.triu_indices(K, 1)
    full = jnp.zeros((variances.shape[1], K, K))
    return full.at[:, k, m].set(variances.T).at[:, m, k].set(variances.T)


# Averages over Gaussian logits


def logits_at_nodes(F: jax.Array, variances: jax.Array, points: jax.Array) -> jax.Array:
    """Logits less the last class's mean at nodes (J, S), (n, K, S), for means (K, n) and variances of pairs."""
    full = _square(variances, len(F))
    last = full[:, :-1, -1]
    covariance = 0.5 * (last[:, :, None] + last[:, None, :] - full[:, :-1, :-1])
    at = cholesky_psd(covariance) @ points + (F[:-1] - F[-1]).T[:, :, None]
    return jnp.concatenate([at, jnp.zeros((len(at), 1, points.shape[1]))], axis=1)


def cholesky_psd(covariance: jax.Array) -> jax.Array:
    """Lower factors of (n, J, J) positive semi-definite matrices, each with what rounding needs on its diagonal."""
    J = covariance.shape[1]
    i = np.arange(J)
    diagonal = jnp.maximum(covariance[:, i, i], 0.0)
    least = 1e-13 * diagonal.max(axis=1) + 1e-300
    lifted = covariance.at[:, i, i].set(diagonal + least[:, None])

    def failed(L: jax.Array) -> jax.Array:
        return jnp.isnan(L).any(axis=(1, 2)) & jnp.isfinite(lifted).all(axis=(1, 2))

    def more(state: Any) -> Any:
        M, L, jitter = state
        bad, jitter = failed(L), 100.0 * jitter
        M = jnp.where(bad[:, None, None], M + jitter[:, None, None] * jnp.eye(J), M)
        return M, jnp.where(bad[:, None, None], jnp.linalg.cholesky(M), L), jitter

    start = lifted, jnp.linalg.cholesky(lifted), least
    return lax.while_loop(lambda state: (failed(state[1]) & (state[2] < 1e300)).any(), more, start)[1]


def softmax_at_nodes(at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log sum_k exp (n, S) and probabilities (n, K, S) of logits (n, K, S)."""
    top = at.max(axis=1)
    E = jnp.exp(at - top[:, None])
    total = E.sum(axis=1)
    return jnp.log(total) + top, E / total[:, None]


@jax_kernel()
def averaged_moments(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, forms: jax.Array, nodes: Any
) -> tuple[jax.Array, ...]:
    with_intercept = theta.shape[1] > X.shape[1]
    k, m = np.triu_indices(len(theta), 1)

    def part(X: jax.Array, c: jax.Array | None) -> tuple[jax.Array, ...]:
        F = logits(X, theta)
        variances = jnp.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
        log_partition, p = softmax_at_nodes(logits_at_nodes(F, variances, nodes.points))
        mean = p @ nodes.weights
        products = ((p * nodes.weights) @ p.transpose(0, 2, 1))[:, k, m].T
        return (
            weighed(log_partition @ nodes.weights + F[-1], c).sum(),
            contract(weighed(mean.T, c), X, with_intercept),
            weighted_grams(X, weighed(products, c), with_intercept),
        )

    size = rows_within(max(len(theta) * nodes.weights.size, len(k) * theta.shape[1]))
    return summed(part, size, X, c)


def expected_softmax(
    X: jax.Array, mean: jax.Array, offset: jax.Array, forms: jax.Array, nodes: Any, log: bool
) -> jax.Array:
    """E[softmax(f)] or its logarithm, (K, N), for logits about those of `mean`; `forms` are covariances of pairs."""
    with_intercept = mean.shape[1] > X.shape[1]

    def part(X: jax.Array) -> jax.Array:
        F = logits(X, mean) + offset[:, None]
        variances = jnp.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
        at = logits_at_nodes(F, variances, nodes.points)
        if not log:
            return (softmax_at_nodes(at)[1] @ nodes.weights).T
        at = at - at.max(axis=1, keepdims=True)
        at = at - jnp.log(jnp.exp(at).sum(axis=1, keepdims=True)) + jnp.log(nodes.weights)
        top = at.max(axis=2)
        return (jnp.log(jnp.exp(at - top[:, :, None]).sum(axis=2)) + top).T

    return side_by_side(part, rows_within(max(len(mean) * nodes.weights.size, len(forms) * mean.shape[1])), X)


# Predictions


@jax_kernel()
def row_probabilities(X: jax.Array, theta: jax.Array) -> jax.Array:
    """P of all rows, (K, N)."""
    return probabilities(X, theta, None)


@jax_kernel(static=("log",))
def plugin(X: jax.Array, theta: jax.Array, offset: jax.Array, log: bool) -> jax.Array:
    """softmax(theta x + offset), or its logarithm, (K, N)."""
    F = logits(X, theta) + offset[:, None]
    if not log:
        return log_partition_and_softmax(F)[1]
    F = F - F.max(axis=0)
    return F - jnp.log(jnp.exp(F).sum(axis=0))


def _quasi_arrays(posterior: Posterior, offset: np.ndarray, n_nodes: int, log: bool) -> tuple[Any, ...] | None:
    """The arrays that `expected_softmax` needs of a full posterior; None for other posteriors, which NumPy computes."""
    if not (isinstance(posterior, FullPosterior) and posterior.gaussian):
        return None
    return posterior.mean, offset, posterior.packed_forms, posterior.nodes(n_nodes), log


quasi = jax_kernel(static=("log",), prepare=_quasi_arrays)(expected_softmax)


@jax_kernel()
def between(X: jax.Array, Y: Any, c: jax.Array | None, columns: jax.Array, low: jax.Array, high: jax.Array) -> Any:
    """The number of values of each of these columns that are neither the least nor the greatest."""
    values = X[:, columns]
    found = (values != low) & (values != high)
    return (found if c is None else found & (c > 0)[:, None]).sum(axis=0)
