"""Products of rows with parameters and with themselves, dense or sparse: the one place that knows the difference.

X is a block of rows (n, D); a parameter array ``theta`` is (K, D + 1) with the intercept last, or (K, D) without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.sparsefuncs import mean_variance_axis

from posteriori.maths import quadratic
from posteriori.rows.blocks import kernel

__all__ = [
    "add_intercept",
    "as_dense",
    "class_sums",
    "contract",
    "dense_parts",
    "gram",
    "inner_products",
    "is_sparse",
    "laplacian_gram",
    "logits",
    "packed_grams",
    "quadratic_forms",
    "scatter_about",
    "split",
    "square_sums",
    "squared",
    "standard_deviations",
    "weighted_grams",
]

_DENSE_BYTES = 1 << 22
"""Memory of sparse rows that are made dense at a time, where that is quicker."""
_FILLED = 0.3
"""Share of entries from which sparse products, of some 10 ns an entry, cost more than those with all zeros."""


def is_sparse(X: Any) -> bool:
    """Whether rows are a sparse matrix."""
    return sp.issparse(X)


def as_dense(X: Any) -> np.ndarray:
    """The rows as an array."""
    return X.toarray() if sp.issparse(X) else X


def squared(X: Any) -> Any:
    """x_nd^2, dense or sparse as X is."""
    return X.power(2) if sp.issparse(X) else X * X


def standard_deviations(X: Any) -> np.ndarray:
    """The standard deviation of each column, (D,), over its values that are there."""
    if sp.issparse(X):
        return np.sqrt(mean_variance_axis(sp.csr_matrix(X), axis=0)[1])
    known = np.isfinite(X)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, X, 0.0).sum(axis=0) / count
    return np.sqrt((np.where(known, X - mean, 0.0) ** 2).sum(axis=0) / count)


def add_intercept(X: np.ndarray) -> np.ndarray:
    """[X, 1]: the rows with a one appended."""
    return np.concatenate([X, np.ones((X.shape[0], 1))], axis=1)


def split(theta: np.ndarray, n_features: int) -> tuple[np.ndarray, np.ndarray | None]:
    """W (K, D) and b (K,) or None of a parameter array."""
    return theta[:, :n_features], theta[:, n_features] if theta.shape[1] > n_features else None


@kernel(jax_version="posteriori.rows.gpu_arrays:row_logits")
def logits(X: Any, theta: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """f_kn = w_k . x_n + b_k, shape (K, n), into `out` if given."""
    W, b = split(theta, X.shape[1])
    if sp.issparse(X):
        out = np.empty((W.shape[0], X.shape[0])) if out is None else out
        out[...] = (X @ np.ascontiguousarray(W.T)).T
    else:
        out = np.matmul(W, X.T, out=out)
    if b is not None:
        out += b[:, None]
    return out


def squared_distances(X: Any, factors: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """sum_d s_kd (x_nd - factor_n c_d)^2, shape (K, n): distances of rows from multiples of c."""
    if not sp.issparse(X):
        return s @ np.square(X - np.multiply.outer(factors, c)).T
    # the terms of a square cancel where a column is constant, but for rounding: never below zero
    at_centre = np.multiply.outer(s @ c**2, factors**2)
    return np.maximum(logits(squared(X), s) - 2.0 * factors * logits(X, s * c) + at_centre, 0.0)


def contract(R: np.ndarray, X: Any, with_intercept: bool) -> np.ndarray:
    """sum_n R_kn [x_n, 1], shape (K, D + 1) or (K, D): the transpose of `logits`."""
    out = np.empty((R.shape[0], X.shape[1] + with_intercept))
    if sp.issparse(X):
        out[:, : X.shape[1]] = (X.T @ np.ascontiguousarray(R.T)).T
    else:
        out[:, : X.shape[1]] = np.dot(R, X)  # not R @ X, which keeps other threads waiting while the result is small
    if with_intercept:
        out[:, -1] = R.sum(axis=1)
    return out


def gram(X: Any, weight: np.ndarray, with_intercept: bool) -> np.ndarray:
    """sum_n weight_n [x_n, 1] [x_n, 1]^T, shape (D', D'), for weights that are not negative."""
    if sp.issparse(X):
        D = X.shape[1]
        out = np.empty((D + with_intercept, D + with_intercept))
        out[:D, :D] = (X.T @ (sp.diags_array(weight) @ X)).toarray()
        if with_intercept:
            out[D, :D] = out[:D, D] = X.T @ weight
            out[D, D] = weight.sum()
        return out
    root = np.sqrt(weight)
    Z = np.empty((X.shape[0], X.shape[1] + with_intercept))
    np.multiply(X, root[:, None], out=Z[:, : X.shape[1]])
    if with_intercept:
        Z[:, -1] = root
    return np.dot(Z.T, Z)


def inner_products(X: Any) -> np.ndarray:
    """x_m . x_n for all pairs of rows, (n, n)."""
    return (X @ X.T).toarray() if sp.issparse(X) else X @ X.T


def weighted_grams(X: Any, weights: np.ndarray, with_intercept: bool) -> np.ndarray:
    """sum_n w_mn [x_n, 1] [x_n, 1]^T for weights (m, n) that are not negative, shape (m, D', D').

    >>> weighted_grams(np.array([[2.0], [3.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]), True)
    array([[[ 4.,  2.],
            [ 2.,  1.]],
    <BLANKLINE>
           [[13.,  5.],
            [ 5.,  2.]]])
    """
    return quadratic.unpacked(packed_grams(X, weights, with_intercept), X.shape[1] + with_intercept)


def packed_grams(X: Any, weights: np.ndarray, with_intercept: bool) -> np.ndarray:
    """`weighted_grams` packed into (m, D' (D' + 1) / 2) where there are few features: what sums over blocks carry."""
    D = X.shape[1] + with_intercept
    if _pays_dense(X, D, len(weights)):
        total = np.zeros((len(weights), D * (D + 1) // 2))
        for rows, part in dense_parts(X, _DENSE_BYTES):
            total += packed_grams(part, weights[:, rows], with_intercept)
        return total
    if sp.issparse(X) or D > quadratic.PACKED_FEATURES:
        grams = np.stack([gram(X, w, with_intercept) for w in weights])
        return grams[:, *quadratic.upper(D)] if D <= quadratic.PACKED_FEATURES else grams
    return quadratic.packed_grams(add_intercept(X) if with_intercept else X, weights)


def quadratic_forms(X: Any, S: np.ndarray, with_intercept: bool) -> np.ndarray:
    """[x_n, 1]^T S_m [x_n, 1], shape (m, n), for matrices (m, D', D'), symmetric or not, or their `packed_forms`.

    >>> quadratic_forms(np.array([[2.0], [3.0]]), np.array([[[1.0, 4.0], [0.0, 1.0]]]), True)
    array([[13., 22.]])
    """
    if not sp.issparse(X):
        return quadratic.quadratic_forms(add_intercept(X) if with_intercept else X, S)
    n, D = X.shape[0], X.shape[1] + with_intercept
    out = np.empty((len(S), n))
    if _pays_dense(X, D, len(S)):
        for rows, part in dense_parts(X, _DENSE_BYTES):
            out[:, rows] = quadratic_forms(part, S, with_intercept)
        return out
    for m, S_m in enumerate(quadratic.spread_forms(S, D) if S.ndim == 2 else S):
        out[m] = X.multiply(X @ S_m[: X.shape[1], : X.shape[1]]).sum(axis=1)
        if with_intercept:
            out[m] += X @ (S_m[:-1, -1] + S_m[-1, :-1]) + S_m[-1, -1]
    return out


def scatter_about(X: Any, weight: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """sum_n weight_n (x_n - mean)(x_n - mean)^T, shape (D, D)."""
    if not sp.issparse(X):
        return gram(X - mean, weight, False)
    first = np.outer(X.T @ weight, mean)
    return gram(X, weight, False) - first - first.T + weight.sum() * np.outer(mean, mean)


def class_sums(R: Any, X: Any) -> np.ndarray:
    """sum_n R_kn x_n, shape (K, D), for R (K, n) that is dense or sparse."""
    if sp.issparse(X):
        product = (R if sp.issparse(R) else sp.csr_array(R)) @ X
        return as_dense(product)
    return R @ X if sp.issparse(R) else np.dot(R, X)


def square_sums(X: Any, c: np.ndarray | None) -> np.ndarray:
    """sum_n c_n x_nd^2, shape (D,)."""
    if sp.issparse(X):
        return squared(X).T @ (np.ones(X.shape[0]) if c is None else c)
    return np.einsum("nd,nd->d", X, X if c is None else X * c[:, None])


def laplacian_gram(X: Any, P: np.ndarray, c: np.ndarray | None, with_intercept: bool) -> np.ndarray:
    """sum_n c_n (diag p_n - p_n p_n^T) kron z_n z_n^T with z_n = [x_n, 1], as one matrix (K D', K D')."""
    K, D = len(P), X.shape[1] + with_intercept
    if _pays_dense(X, D, K):
        H = np.zeros((K * D, K * D))
        for rows, part in dense_parts(X, _DENSE_BYTES):
            H += laplacian_gram(part, P[:, rows], None if c is None else c[rows], with_intercept)
        return H
    if sp.issparse(X):
        R = P if c is None else P * c
        H = np.empty((K, D, K, D))
        for k in range(K):
            for m in range(k + 1):
                H[k, :, m, :] = H[m, :, k, :] = -gram(X, R[k] * P[m], with_intercept)
            H[k, :, k, :] += gram(X, R[k], with_intercept)
        return H.reshape(K * D, K * D)
    Z = add_intercept(X) if with_intercept else X
    R = P if c is None else P * np.sqrt(c)
    PZ = (R[:, None, :] * Z.T).reshape(K * D, -1)  # rows p_k * z_d; their Gram matrix is the second term
    H = -(PZ @ PZ.T)
    blocks = (Z.T[None] * (P if c is None else P * c)[:, None, :]) @ Z
    for k in range(K):
        H[k * D : (k + 1) * D, k * D : (k + 1) * D] += blocks[k]
    return H


def _pays_dense(X: Any, D: int, n_matrices: int) -> bool:
    """Whether sparse rows are better multiplied as arrays: few features, and many matrices or entries."""
    if not sp.issparse(X) or D > quadratic.PACKED_FEATURES:
        return False
    return n_matrices > D or X.nnz > _FILLED * X.shape[0] * X.shape[1]


def dense_parts(X: Any, part_bytes: int) -> Iterator[tuple[slice, np.ndarray]]:
    """The rows as arrays: all of them at once if they are dense, else so many at a time as `part_bytes` hold."""
    n, D = X.shape
    step = max(1, part_bytes // (8 * D)) if sp.issparse(X) else max(n, 1)
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        yield rows, as_dense(X[rows])
