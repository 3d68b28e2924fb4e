r"""Many weighted Gram matrices, and many quadratic forms, of the same rows: two sides of one product.

.. math:: G_m = \sum_n w_{mn}\, x_n x_n^\top, \qquad q_{mn} = x_n^\top S_m x_n

The distinct products x_d x_e of a row, packed into a vector, turn both into one matrix product. Rows are too long for
that once there are many features; then it is one product for each m.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

__all__ = [
    "PACKED_FEATURES",
    "gram",
    "packed_forms",
    "packed_grams",
    "quadratic_forms",
    "spread_forms",
    "unpacked",
    "upper",
]

PACKED_FEATURES = 96
"""The largest number of features for which packed rows fit the cache."""
_PACKED_VALUES = 1 << 19
"""The number of packed values made at a time."""


@lru_cache(maxsize=64)
def upper(D: int, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the upper triangle of a (D, D) matrix, as `numpy.triu_indices(D, k)`, which takes longer."""
    i, j = np.triu_indices(D, k)
    i.flags.writeable = j.flags.writeable = False
    return i, j


def gram(Z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """sum_n weight_n z_n z_n^T, shape (D, D), for weights that are not negative."""
    root = Z * np.sqrt(weight)[:, None]
    return np.dot(root.T, root)


def packed_grams(Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """sum_n w_mn z_n z_n^T for weights (m, n), packed into (m, D (D + 1) / 2); D is at most `PACKED_FEATURES`."""
    D = Z.shape[1]
    total = np.zeros((len(weights), D * (D + 1) // 2))
    part = np.empty_like(total)
    for rows, packed in _packed_rows(Z):
        total += np.matmul(weights[:, rows], packed.T, out=part)
    return total


def unpacked(grams: np.ndarray, D: int) -> np.ndarray:
    """(m, D, D) from packed grams; those that never were packed as they are."""
    if grams.ndim == 3:
        return grams
    i, j = upper(D)
    out = np.empty((len(grams), D, D))
    out[:, i, j] = grams
    out[:, j, i] = grams
    return out


def packed_forms(S: np.ndarray) -> np.ndarray:
    """Matrices (m, D, D), ready for `quadratic_forms` of many blocks: packed where there are few features."""
    D = S.shape[1]
    if D > PACKED_FEATURES:
        return S
    i, j = upper(D)
    entries = S[:, i, j] + S[:, j, i]
    entries[:, i == j] *= 0.5
    return entries


def quadratic_forms(Z: np.ndarray, S: np.ndarray) -> np.ndarray:
    """z_n^T S_m z_n, shape (m, n), for matrices (m, D, D), symmetric or not, or their `packed_forms`."""
    n, D = Z.shape
    out = np.empty((len(S), n))
    if D > PACKED_FEATURES:
        for m, S_m in enumerate(S):
            out[m] = np.einsum("nd,nd->n", Z @ S_m, Z)
        return out
    entries = packed_forms(S) if S.ndim == 3 else S
    for rows, packed in _packed_rows(Z):
        np.matmul(entries, packed, out=out[:, rows])
    return out


def spread_forms(entries: np.ndarray, D: int) -> np.ndarray:
    """Upper triangular matrices (m, D, D) with the quadratic forms of packed ones."""
    out = np.zeros((len(entries), D, D))
    out[:, *upper(D)] = entries
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
