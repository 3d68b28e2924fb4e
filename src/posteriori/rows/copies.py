r"""Rows that occur more than once: identical in every column and in the label.

Two rows of a table can be identical because there are few values that a row can take, or because one was copied. In the
first case each is evidence of its own, and counts. A copy is not: it tells nothing of new rows, and any model that is
judged by how well it predicts rows that have a copy among the others looks better than it is.

Copies are told by their labels. Where labels are given to rows one by one, two identical rows agree about as often as
two that are nearly identical, or at least not always. Where they all but always agree, and neighbours do not, they are
copies. (Where neighbours agree as well it does not matter.)

Identical rows are found by a number for each row, with h a mixing function on 64 bits:

.. math:: H_n = \sum_{d:\, x_{nd} \ne 0} h\big(\mathrm{bits}(x_{nd}) \oplus h(d)\big) \bmod 2^{64} .
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from posteriori.rows.matrices import is_table, open_table, read_matrix
from posteriori.threads import SCIKIT_LEARN

__all__ = ["RowGroups", "are_copies", "comparable", "group_copies", "mixed", "row_numbers"]

_MOST_ROWS, _MOST_NEIGHBOURS = 2000, 20_000
"""The number of repeated rows whose neighbours are looked for, and of rows among which they are, at most."""
_FEWEST_PAIRS = 10
"""The number of pairs of identical rows from which copies can be told, at least."""
_ALL_BUT_ALWAYS = 0.98
"""The share of pairs of identical rows that have the same label, at least."""
_MORE = 0.5
"""The share of the disagreement of neighbours that copies leave out, at least."""
_COLUMNS_AT_ONCE = 64


class RowGroups(NamedTuple):
    """Rows that are left out together.

    Attributes
    ----------
    groups : ndarray of int (n,)
        The number of each row's group.
    n_twins : int
        Rows identical to another one, in every column and in the label, whether they share a group or not.
    copied : bool
        Whether such rows are copies, so that they share a group.
    """

    groups: np.ndarray
    n_twins: int
    copied: bool


def row_numbers(X: Any) -> np.ndarray:
    """A number for each row of a dense or sparse matrix, (n,): the same for identical rows, and for no others.

    Examples
    --------
    >>> a, b, c = row_numbers(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    if sp.issparse(X):
        rows = sp.csr_array(X)
        values = rows.data.astype(np.float64)
        terms = np.where(values == 0.0, np.uint64(0), mixed(_bits(values) ^ mixed(rows.indices.astype(np.uint64))))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    out = np.zeros(len(X), dtype=np.uint64)
    for first in range(0, X.shape[1], _COLUMNS_AT_ONCE):
        values = np.asarray(X[:, first : first + _COLUMNS_AT_ONCE], dtype=np.float64)
        columns = mixed(np.arange(first, first + values.shape[1], dtype=np.uint64))
        out += np.where(values == 0.0, np.uint64(0), mixed(_bits(values) ^ columns)).sum(axis=1, dtype=np.uint64)
    return out


def _bits(values: np.ndarray) -> np.ndarray:
    """The bits of numbers; all that are not a number have the same ones."""
    return np.ascontiguousarray(np.where(np.isnan(values), np.nan, values)).view(np.uint64)


def mixed(h: np.ndarray) -> np.ndarray:
    """The last steps of splitmix64, on unsigned integers that wrap around."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def comparable(X: Any) -> Any:
    """Rows of any kind in memory as a matrix with equal rows where these are equal: text becomes codes.

    None where rows cannot be compared, as where cells hold lists.
    """
    try:
        if not is_table(X):
            return read_matrix(X)[0]
        table = open_table(X)
        return np.column_stack([_coded(table.get_column(name).to_numpy()) for name in table.columns])
    except (TypeError, ValueError):
        return None


def _coded(column: Any) -> np.ndarray:
    values = np.asarray(column)
    if values.dtype.kind in "bif":
        return values.astype(np.float64)
    return np.unique(values.astype(str), return_inverse=True)[1].reshape(-1).astype(np.float64)


def group_copies(X: Any, y: np.ndarray, *, all_twins: bool = False) -> RowGroups:
    """The groups of rows that are copies of each other; each row is a group of its own where repeats are genuine.

    Parameters
    ----------
    X : (n, D) array or sparse matrix, or None
        None where rows cannot be compared: then each is a group of its own.
    y : ndarray of int (n,)
    all_twins : bool
        Take all rows that are identical in X and y for copies.
    """
    if X is None:
        return RowGroups(np.arange(len(y)), 0, copied=False)
    _, which = np.unique(row_numbers(X), return_inverse=True)
    which = which.reshape(-1)
    pairs = which * (int(y.max(initial=0)) + 1) + y
    _, groups, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    n_twins = int(counts[counts > 1].sum())
    copied = n_twins > 0 and (all_twins or are_copies(X, y, which, seed=0))
    return RowGroups(groups.reshape(-1) if copied else np.arange(len(y)), n_twins, copied)


def are_copies(X: Any, y: np.ndarray, which: np.ndarray, seed: int) -> bool:
    """Whether identical rows agree in their labels far more often than nearest neighbours that are not identical.

    Parameters
    ----------
    X : (n, D) array or sparse matrix
    y : ndarray of int (n,)
    which : ndarray of int (n,)
        The number of the kind of each row, from 0 without gaps: the same for identical rows.
    seed : int
    """
    K = int(y.max()) + 1
    table = sp.csr_array((np.ones(len(y)), (which, y)), shape=(int(which.max()) + 1, K))
    table.sum_duplicates()
    size = np.asarray(table.sum(axis=1)).ravel()
    repeated = np.flatnonzero(size > 1)
    n_pairs = (size * (size - 1.0))[repeated].sum() / 2.0
    if n_pairs < _FEWEST_PAIRS or len(size) < 3:
        return False
    agree = float((table.data * (table.data - 1.0)).sum() / (2.0 * n_pairs))
    if agree < _ALL_BUT_ALWAYS:
        return False
    rng = np.random.default_rng(seed)
    if len(repeated) > _MOST_ROWS:
        repeated = rng.choice(repeated, _MOST_ROWS, replace=False)
    kinds = np.arange(len(size))
    if len(kinds) > _MOST_NEIGHBOURS:
        kinds = np.union1d(repeated, rng.choice(kinds, _MOST_NEIGHBOURS, replace=False))
    place = np.empty(len(size), dtype=int)
    place[which] = np.arange(len(which))  # a row of each distinct kind
    Z = _standardised(X[place[kinds]])
    at = np.searchsorted(kinds, repeated)
    with SCIKIT_LEARN:
        _, near = NearestNeighbors(n_neighbors=2).fit(Z).kneighbors(Z[at])
    neighbour = kinds[np.where(near[:, 0] == at, near[:, 1], near[:, 0])]
    shares = sp.diags_array(1.0 / size) @ table
    agree_near = float(shares[repeated].multiply(shares[neighbour]).sum() / len(repeated))
    return agree - agree_near > _MORE * (1.0 - agree_near)


def _standardised(X: Any) -> Any:
    """Columns divided by their standard deviation, gaps filled with the mean: units have no say in what is near."""
    if sp.issparse(X):
        mean = np.asarray(X.mean(axis=0)).ravel()
        spread = np.sqrt(np.maximum(np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2, 0.0))
        return X @ sp.diags_array(1.0 / np.where(spread > 0.0, spread, 1.0))
    X = np.asarray(X, dtype=np.float64)
    known = np.isfinite(X)
    filled = np.where(known, X, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = filled.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        Z = np.where(known, X - mean, 0.0)
        Z = Z / np.where((size := np.abs(Z).max(axis=0, initial=0.0)) > 0.0, size, 1.0)  # squares stay numbers
        spread = Z.std(axis=0)
    return Z / np.where(spread > 0.0, spread, 1.0)
