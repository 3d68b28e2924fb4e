r"""Decision trees as flat arrays, and the leaves to which rows come.

All nodes of all trees have one numbering, in which children come after their parent. A row goes from an inner node to

.. math:: \mathrm{next}(i) = \begin{cases} l_i & x_{d_i} \le t_i, \text{ or } x_{d_i} \text{ is missing and } m_i \\
          r_i & \text{otherwise,} \end{cases}

until it comes to a leaf, whose feature is -1. All rows go through many trees at once, level by level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["TreeArrays", "joined"]

_LEAF = -1
_AT_ONCE = 1 << 17
"""Pairs of a row and a tree that are followed together, about as many as fit the cache."""


@dataclass(frozen=True)
class TreeArrays:
    """The nodes of many trees.

    Attributes
    ----------
    feature : ndarray of int32 (M,)
        The column that a node looks at; -1 for leaves.
    threshold : ndarray (M,)
    left, right : ndarray of int32 (M,)
        Children of inner nodes; 0 for leaves.
    missing_left : ndarray of bool (M,)
        Whether a missing value goes to the left.
    roots : ndarray of int32 (T,)
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    roots: np.ndarray

    def __post_init__(self) -> None:
        """Raise unless every row comes to a leaf: children come after their parent, and all numbers are in range."""
        M = len(self.feature)
        parts = (self.feature, self.threshold, self.left, self.right, self.missing_left)
        kinds = [*(part.dtype.kind for part in parts), self.roots.dtype.kind]
        if kinds != ["i", "f", "i", "i", "b", "i"] or any(part.shape != (M,) for part in parts) or self.roots.ndim != 1:
            raise ValueError("The arrays of trees must have one number for each node, and one for each root.")
        inner = np.flatnonzero(self.feature != _LEAF)
        least, most = np.minimum(self.left, self.right)[inner], np.maximum(self.left, self.right)[inner]
        right_order = (least > inner).all() and (most < M).all() and (self.feature >= _LEAF).all()
        if not right_order or ((self.roots < 0) | (self.roots >= M)).any() or np.isnan(self.threshold[inner]).any():
            raise ValueError("The arrays of trees are not trees: a child must come after its parent.")

    @property
    def n_trees(self) -> int:
        """T."""
        return len(self.roots)

    @property
    def depth(self) -> int:
        """The greatest number of steps from a root to a leaf."""
        at, steps = self.roots, 0
        while (at := at[self.feature[at] != _LEAF]).size:
            at, steps = np.concatenate([self.left[at], self.right[at]]), steps + 1
        return steps

    def leaves(self, X: np.ndarray, trees: slice = slice(None)) -> np.ndarray:
        """The leaf to which each row comes in each of these trees, (T, n)."""
        n, roots = len(X), self.roots[trees]
        at = np.repeat(roots, n)
        row = np.tile(np.arange(n), len(roots))
        missing = bool(np.isnan(X).any())
        going = np.flatnonzero(self.feature[at] != _LEAF)
        while going.size:
            node = at[going]
            x = X[row[going], self.feature[node]]
            goes_left = x <= self.threshold[node]
            if missing:
                goes_left |= np.isnan(x) & self.missing_left[node]
            node = np.where(goes_left, self.left[node], self.right[node])
            at[going] = node
            going = going[self.feature[node] != _LEAF]
        return at.reshape(len(roots), n)

    def parts(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """The leaves of all trees, as many trees at a time as are followed together: (trees, leaves (t, n))."""
        size = max(1, _AT_ONCE // max(1, len(X)))
        for first in range(0, self.n_trees, size):
            trees = slice(first, first + size)
            yield trees, self.leaves(X, trees)


_NO_TREES = TreeArrays(
    feature=np.zeros(0, np.int32),
    threshold=np.zeros(0),
    left=np.zeros(0, np.int32),
    right=np.zeros(0, np.int32),
    missing_left=np.zeros(0, bool),
    roots=np.zeros(0, np.int32),
)


def joined(trees: Sequence[TreeArrays]) -> TreeArrays:
    """The trees of several sets of arrays in one."""
    trees = [_NO_TREES, *trees]
    starts = np.cumsum([0, *(len(tree.feature) for tree in trees)])[:-1]

    def moved(name: str) -> np.ndarray:
        parts = [
            np.where(tree.feature == _LEAF, 0, getattr(tree, name) + start)
            for tree, start in zip(trees, starts, strict=True)
        ]
        return np.concatenate(parts).astype(np.int32)

    return TreeArrays(
        feature=np.concatenate([tree.feature for tree in trees]),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        left=moved("left"),
        right=moved("right"),
        missing_left=np.concatenate([tree.missing_left for tree in trees]),
        roots=np.concatenate([tree.roots + start for tree, start in zip(trees, starts, strict=True)]).astype(np.int32),
    )
