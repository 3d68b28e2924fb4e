"""Rows that occur more than once: identical in every column and in the label.

Two rows of a table can be identical because there are few values that a row can take, or because one was copied. In the
first case each is evidence of its own, and counts. A copy is not: it tells nothing of new rows, and any model that is
judged by how well it predicts rows that have a copy among the others looks better than it is.

Copies are told by their labels. Where labels are given to rows one by one, two identical rows agree about as often as
two that are nearly identical, or at least not always. Where they all but always agree, and neighbours do not, they are
copies. (Where neighbours agree as well it does not matter.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from posteriori.gp.inputs import LabelledRows
from posteriori.threads import SCIKIT_LEARN

__all__ = ["MergedRows", "merged_rows"]

_MOST_ROWS = 2000
"""The number of repeated rows whose neighbours are looked for, at most."""
_FEWEST_PAIRS = 10
"""The number of pairs of identical rows from which copies can be told, at least."""
_ALL_BUT_ALWAYS = 0.98
"""The share of pairs of identical rows that have the same label, at least."""
_MORE = 0.5
"""The share of the disagreement of neighbours that copies leave out, at least."""


@dataclass(frozen=True)
class MergedRows:
    """Distinct rows with their labels and weights, and the number of rows that were left out as copies of others."""

    rows: LabelledRows
    n_copies: int
    counts: np.ndarray
    """The number of rows that each weight is the sum of; one for those whose copies were left out."""


def merged_rows(rows: LabelledRows, seed: int) -> MergedRows:
    """Each pair of a row and its label once: with the sum of the weights or, where repeats are copies, their mean."""
    _, which = np.unique(rows.X, axis=0, return_inverse=True)
    which = which.reshape(-1)
    pairs, first, group, counts = np.unique(
        np.column_stack([which, rows.y]), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    group = group.reshape(-1)
    order = np.argsort(first)  # rows stay in the order in which they first occur
    first, counts = first[order], counts[order]
    weights: np.ndarray = np.bincount(group, weights=rows.c)[order]
    copied = len(pairs) < len(rows.y) and _are_copies(rows, which, seed)
    if copied:
        weights = weights / counts
    merged = LabelledRows(rows.X[first], rows.y[first], weights)
    return MergedRows(merged, len(rows.y) - len(first) if copied else 0, np.ones_like(counts) if copied else counts)


def _are_copies(rows: LabelledRows, which: np.ndarray, seed: int) -> bool:
    """Whether identical rows agree in their labels far more often than nearest neighbours that are not identical."""
    K = int(rows.y.max()) + 1
    table = np.zeros((int(which.max()) + 1, K))
    np.add.at(table, (which, rows.y), 1.0)
    size = table.sum(axis=1)
    repeated = np.flatnonzero(size > 1)
    n_pairs = (size * (size - 1.0))[repeated].sum() / 2.0
    if n_pairs < _FEWEST_PAIRS or len(table) < 3:
        return False
    agree = (table * (table - 1.0))[repeated].sum() / (2.0 * n_pairs)
    if agree < _ALL_BUT_ALWAYS:
        return False
    if len(repeated) > _MOST_ROWS:
        repeated = np.random.default_rng(seed).choice(repeated, _MOST_ROWS, replace=False)
    place = np.empty(len(table), dtype=int)
    place[which] = np.arange(len(which))  # a row of each distinct kind
    X = rows.X[place]
    with SCIKIT_LEARN:
        _, near = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X[repeated])
    neighbour = np.where(near[:, 0] == repeated, near[:, 1], near[:, 0])
    shares = table / size[:, None]
    agree_near = float((shares[repeated] * shares[neighbour]).sum(axis=1).mean())
    return bool(agree - agree_near > _MORE * (1.0 - agree_near))
