r"""Many weighted Gram matrices, and many quadratic forms, of the same rows: two sides of one product.

.. math:: G_m = \sum_n w_{mn}\, x_n x_n^\top, \qquad q_{mn} = x_n^\top S_m x_n

The distinct products x_d x_e of a row, packed into a vector, turn both into one matrix product. Rows are too long for
that once there are many features; then it is one product for each m.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.maths.softmax import add_intercept, gram

__all__ = ["packed_forms", "packed_grams", "quadratic_forms", "unpacked", "weighted_grams"]

_PACKED_FEATURES = 96
"""Up to here packed rows fit the cache."""
_PACKED_VALUES = 1 << 19
"""Packed values made at a time."""


def weighted_grams(X: Any, weights: np.ndarray, with_intercept: bool) -> np.ndarray:
    """sum_n w_mn [x_n, 1] [x_n, 1]^T for weights (m, n) that are not negative, shape (m, D', D').

    >>> weighted_grams(np.array([[2.0], [3.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]), True)
    array([[[ 4.,  2.],
            [ 2.,  1.]],
    <BLANKLINE>
           [[13.,  5.],
            [ 5.,  2.]]])
    """
    return unpacked(packed_grams(X, weights, with_intercept), X.shape[1] + with_intercept)


def packed_grams(X: Any, weights: np.ndarray, with_intercept: bool) -> np.ndarray:
    """The same, packed into (m, D' (D' + 1) / 2) where there are few features: what sums over blocks should carry."""
    D = X.shape[1] + with_intercept
    if sp.issparse(X) or D > _PACKED_FEATURES:
        grams = np.stack([gram(X, w, with_intercept) for w in weights])
        return grams[:, *np.triu_indices(D)] if D <= _PACKED_FEATURES else grams
    Z = add_intercept(X) if with_intercept else X
    total = np.zeros((len(weights), D * (D + 1) // 2))
    part = np.empty_like(total)
    for rows, packed in _packed_rows(Z):
        total += np.matmul(weights[:, rows], packed.T, out=part)
    return total


def unpacked(grams: np.ndarray, D: int) -> np.ndarray:
    """(m, D, D) from packed grams; those that never were packed as they are."""
    if grams.ndim == 3:
        return grams
    i, j = np.triu_indices(D)
    out = np.empty((len(grams), D, D))
    out[:, i, j] = grams
    out[:, j, i] = grams
    return out


def packed_forms(S: np.ndarray) -> np.ndarray:
    """Matrices (m, D, D), ready for `quadratic_forms` of many blocks: packed where there are few features."""
    D = S.shape[1]
    if D > _PACKED_FEATURES:
        return S
    i, j = np.triu_indices(D)
    entries = S[:, i, j] + S[:, j, i]
    entries[:, i == j] *= 0.5
    return entries


def quadratic_forms(X: Any, S: np.ndarray, with_intercept: bool) -> np.ndarray:
    """[x_n, 1]^T S_m [x_n, 1], shape (m, n), for matrices (m, D', D'), symmetric or not, or their `packed_forms`.

    >>> quadratic_forms(np.array([[2.0], [3.0]]), np.array([[[1.0, 4.0], [0.0, 1.0]]]), True)
    array([[13., 22.]])
    """
    n, D = X.shape[0], X.shape[1] + with_intercept
    out = np.empty((len(S), n))
    if sp.issparse(X):
        for m, S_m in enumerate(_spread(S, D) if S.ndim == 2 else S):
            out[m] = X.multiply(X @ S_m[: X.shape[1], : X.shape[1]]).sum(axis=1)
            if with_intercept:
                out[m] += X @ (S_m[:-1, -1] + S_m[-1, :-1]) + S_m[-1, -1]
        return out
    Z = add_intercept(X) if with_intercept else X
    if D > _PACKED_FEATURES:
        for m, S_m in enumerate(S):
            out[m] = np.einsum("nd,nd->n", Z @ S_m, Z)
        return out
    entries = packed_forms(S) if S.ndim == 3 else S
    for rows, packed in _packed_rows(Z):
        np.matmul(entries, packed, out=out[:, rows])
    return out


def _spread(entries: np.ndarray, D: int) -> np.ndarray:
    """Upper triangular matrices (m, D, D) with the quadratic forms of packed ones."""
    out = np.zeros((len(entries), D, D))
    out[:, *np.triu_indices(D)] = entries
    return out


def _packed_rows(X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of the rows with x_d x_e for d <= e, (D (D + 1) / 2, n_b): always in the same memory, which stays warm."""
    n, D = X.shape
    size = min(max(n, 1), max(64, 2 * _PACKED_VALUES // (D * (D + 1))))
    memory = np.empty(D * (D + 1) // 2 * size)
    for begin in range(0, n, size):
        rows = slice(begin, min(n, begin + size))
        columns = np.ascontiguousarray(X[rows].T)
        packed = memory[: D * (D + 1) // 2 * (rows.stop - begin)].reshape(-1, rows.stop - begin)
        start = 0
        for d in range(D):
            np.multiply(columns[d:], columns[d], out=packed[start : start + D - d])
            start += D - d
        yield rows, packed
