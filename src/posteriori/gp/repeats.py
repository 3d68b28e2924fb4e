"""Distinct rows: repeated ones count as often as they occur, copies (`rows.copies`) once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.gp.inputs import LabelledRows
from posteriori.rows.copies import are_copies

__all__ = ["MergedRows", "merged_rows"]


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
    copied = len(pairs) < len(rows.y) and are_copies(rows.X, rows.y, which, seed)
    if copied:
        weights = weights / counts
    merged = LabelledRows(rows.X[first], rows.y[first], weights)
    return MergedRows(merged, len(rows.y) - len(first) if copied else 0, np.ones_like(counts) if copied else counts)
