r"""Softmax curvature in pairs of classes.

The covariance of a categorical draw is a graph Laplacian, diag(p) - p p^T = sum_{k<l} p_k p_l (e_k - e_l)(e_k - e_l)^T.
So the Hessian needs one Gram matrix per pair, and traces against it need one variance per pair:

.. math:: H = \sum_{k<l} (e_k - e_l)(e_k - e_l)^\top \otimes \sum_n c_n p_{nk} p_{nl}\, x_n x_n^\top, \qquad
          \operatorname{tr}[V(\operatorname{diag} p - p p^\top)] = \sum_{k<l} p_k p_l\, v_{kl},
          \quad v_{kl} = \operatorname{var}(f_k - f_l).

Nothing here depends on what softmax ignores, one number added to all logits of a row. Pairs are ordered as by
``numpy.triu_indices(K, 1)``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from posteriori.maths.integrals import Nodes, softmax_moments
from posteriori.maths.quadratic import unpacked, upper
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import contract, logits, packed_grams, quadratic_forms
from posteriori.softmax.kernels import probabilities

__all__ = [
    "averaged_moments",
    "contrast_covariance",
    "contrasts",
    "hessian_from_pairs",
    "leverage_slope",
    "log_det_slope",
    "pair_forms",
    "pair_grams",
    "pair_products",
    "reference_covariance",
]


_FEW_CLASSES = 40
"""Classes up to which sums over pairs are made pair by pair, to the last digit; K^4 products are too many for more."""


def pair_products(P: np.ndarray) -> np.ndarray:
    """p_k p_l for k < l of (K, n) probabilities, (pairs, n).

    >>> pair_products(np.array([[0.5], [0.25], [0.25]])).T
    array([[0.125 , 0.125 , 0.0625]])
    """
    K, n = P.shape
    out = np.empty((K * (K - 1) // 2, n))
    start = 0
    for k in range(K - 1):
        np.multiply(P[k + 1 :], P[k], out=out[start : start + K - 1 - k])
        start += K - 1 - k
    return out


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:pair_grams")
def pair_grams(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """sum_n c_n p_nk p_nl x_n x_n^T for each pair, x_n with its intercept, as `packed_grams`.

    See docs/theory.md, section 2.2.
    """
    weights = pair_products(probabilities(X, theta, P))
    if c is not None:
        weights *= c
    return packed_grams(X, weights, theta.shape[1] > X.shape[1])


@lru_cache(maxsize=64)
def contrasts(K: int) -> np.ndarray:
    """Orthonormal columns that sum to zero, (K, K - 1): coordinates without the direction that softmax ignores.

    See docs/theory.md, section 2.2.

    >>> contrasts(3).round(3).tolist()
    [[-0.707, -0.408], [0.707, -0.408], [0.0, 0.816]]
    """
    Q = np.zeros((K, K - 1))
    for j in range(1, K):
        Q[:j, j - 1] = -1.0
        Q[j, j - 1] = j
        Q[:, j - 1] /= np.sqrt(j * (j + 1.0))
    Q.flags.writeable = False
    return Q


def hessian_from_pairs(grams: np.ndarray, basis: np.ndarray, D: int) -> np.ndarray:
    """sum_{k<l} (q_k - q_l)(q_k - q_l)^T kron G_kl for a basis (K, J) with rows q_k, shape (J D', J D').

    The grams of the pairs may be packed; D is the side of each.
    """
    K, J = basis.shape
    flat = grams.reshape(len(grams), -1)
    k, m = upper(K, 1)
    i, j = upper(J)
    if K > _FEW_CLASSES:
        blocks = _laplacian_blocks(flat, basis)[i, j]
    else:
        differences = basis[k] - basis[m]
        blocks = (differences[:, i] * differences[:, j]).T @ flat  # one for each pair of coordinates
    blocks = unpacked(blocks if grams.ndim == 2 else blocks.reshape(-1, D, D), D)
    H = np.empty((J, D, J, D))
    H[i, :, j, :] = blocks
    H[j, :, i, :] = blocks
    return H.reshape(J * D, J * D)


def _laplacian_blocks(grams: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """sum_{k<l} (q_k - q_l)(q_k - q_l)^T G_kl, (J, J, size of a gram), by entries of the Laplacian: K^3 products."""
    K = len(basis)
    k, m = upper(K, 1)
    L = np.zeros((K, K, grams.shape[1]))
    L[k, m] = L[m, k] = -grams
    i = np.arange(K)
    L[i, i] = -L.sum(axis=1)
    half = np.tensordot(basis.T, L, axes=1)
    return np.tensordot(half, basis, axes=(1, 0)).transpose(0, 2, 1)


def pair_forms(S: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Covariance of w_k - w_l for each pair, (pairs, D', D'), from that of the coordinates in `basis`, (J D', J D').

    See docs/theory.md, section 2.2.
    """
    K, J = basis.shape
    D = len(S) // J
    blocks = S.reshape(J, D, J, D)
    k, m = upper(K, 1)
    if K > _FEW_CLASSES:
        by_class = np.tensordot(np.tensordot(basis, blocks, axes=1), basis, axes=(2, 1)).transpose(0, 3, 1, 2)
        own = by_class[np.arange(K), np.arange(K)]
        return own[k] + own[m] - by_class[k, m] - by_class[m, k]
    differences = basis[k] - basis[m]
    out = np.empty((k.size, D, D))
    for start in range(0, k.size, K):  # some at a time: the intermediate is J times as large as the result
        d = differences[start : start + K]
        half = np.tensordot(d, blocks, axes=(1, 0))
        out[start : start + K] = np.einsum("pdje,pj->pde", half, d)
    return out


def reference_covariance(variances: np.ndarray, K: int) -> np.ndarray:
    """Covariance of f_k - f_K (k < K) from the pairs' variances (pairs, n), shape (n, K - 1, K - 1).

    cov(f_i - f_K, f_j - f_K) = (v_iK + v_jK - v_ij) / 2.
    """
    n = variances.shape[1]
    full = np.zeros((n, K, K))
    k, m = upper(K, 1)
    full[:, k, m] = full[:, m, k] = variances.T
    last = full[:, :-1, -1]
    return 0.5 * (last[:, :, None] + last[:, None, :] - full[:, :-1, :-1])


def contrast_covariance(variances: np.ndarray, K: int) -> np.ndarray:
    """Covariance of f_k less the mean over classes, (n, K, K), from the pairs' variances (pairs, n).

    With V the matrix of var(f_k - f_l) and C = I - 1 1^T / K it is -1/2 C V C.

    >>> contrast_covariance(np.array([[4.0]]), 2)
    array([[[ 1., -1.],
            [-1.,  1.]]])
    """
    V = np.zeros((variances.shape[1], K, K))
    k, m = upper(K, 1)
    V[:, k, m] = V[:, m, k] = variances.T
    V -= V.mean(axis=1, keepdims=True)
    V -= V.mean(axis=2, keepdims=True)
    V *= -0.5
    return V


def leverage_slope(P: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """d/df of sum_{k<l} p_k p_l v_kl with the variances held, (K, n).

    For f_j it is p_j (sum_l v_jl p_l - 2 sum_{k<l} p_k p_l v_kl).
    """
    K = len(P)
    slope = np.zeros_like(P)
    start = 0
    for k in range(K - 1):
        v = variances[start : start + K - 1 - k]
        slope[k] += np.einsum("ln,ln->n", v, P[k + 1 :])
        slope[k + 1 :] += v * P[k]
        start += K - 1 - k
    slope -= np.einsum("kn,kn->n", slope, P)  # each pair counted from both ends: twice its share
    slope *= P
    return slope


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:log_det_slope")
def log_det_slope(
    X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, forms: np.ndarray, P: np.ndarray | None = None
) -> np.ndarray:
    """d/dtheta of tr(S H(theta)) with S held, (K, D'): the slope of log|H| when S is its inverse.

    See docs/theory.md, section 3.3.

    `forms` are those of `pair_forms(S)`, packed or not. A row's leverage is tr(V_n Lambda_n) = sum_{k<l} p_k p_l v_kl.
    """
    with_intercept = theta.shape[1] > X.shape[1]
    P = probabilities(X, theta, P)
    slope = leverage_slope(P, quadratic_forms(X, forms, with_intercept))
    if c is not None:
        slope *= c
    return contract(slope, X, with_intercept)


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:averaged_moments")
def averaged_moments(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, forms: np.ndarray, nodes: Nodes) -> Sums:
    """sum_n c_n E[log sum_k exp f_nk], E[P]^T diag(c) [X, 1] and sum_n c_n E[p_k p_l] x_n x_n^T for k < l.

    The logits are Gaussian about those of theta; `forms` are the covariances of w_k - w_l, (pairs, D', D'), as
    are the last of the results.
    """
    with_intercept = theta.shape[1] > X.shape[1]
    F = logits(X, theta)
    variances = np.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
    moments = softmax_moments(F, reference_covariance(variances, len(theta)), nodes)
    log_partition, mean, products = moments.log_partition + F[-1], moments.mean, moments.products
    if c is not None:
        log_partition, mean, products = log_partition * c, mean * c, products * c
    return Sums((log_partition.sum(), contract(mean, X, with_intercept), packed_grams(X, products, with_intercept)))
