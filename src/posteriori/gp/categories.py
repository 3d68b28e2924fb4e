"""Categories among the columns: indicators of levels that exclude each other, and columns that hold codes of levels.

A category of L levels is L columns of which exactly one is 1 in every row. They are one feature, not L: rows of
different levels are equally far apart, however rare a level is, and as far in the mean as by a number
(`gp.inputs.InputUnits`); and the levels of one category matter about as much (`gp.kernels`, blocks). Tables that were
encoded before have such columns already, and they are recognised as what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.parameters import is_whole_number

__all__ = ["CategoryColumns", "category_places", "indicator_blocks"]


def indicator_blocks(X: np.ndarray) -> np.ndarray:
    """The number of the block of each column of X, (D,): neighbours that are the levels of one category share one.

    Examples
    --------
    >>> indicator_blocks(np.array([[0.3, 1, 0, 0, 1], [1.7, 0, 0, 1, 1], [2.2, 0, 1, 0, 0]]))
    array([0, 1, 1, 1, 2])
    """
    D = X.shape[1]
    binary = ((X == 0.0) | (X == 1.0)).all(axis=0)
    block, first, number = np.empty(D, dtype=int), 0, 0
    while first < D:
        last = _last_level(X, binary, first)
        block[first : last + 1] = number
        first, number = last + 1, number + 1
    return block


def _last_level(X: np.ndarray, binary: np.ndarray, first: int) -> int:
    """The last level of the category that begins with this column; the column itself where none begins."""
    total = np.zeros(len(X))
    for column in range(first, X.shape[1]):
        if not binary[column]:
            break
        total = total + X[:, column]
        if total.max() > 1.0:
            break
        if total.min() == 1.0:
            return column
    return first


@dataclass(frozen=True)
class CategoryColumns:
    """Columns that hold codes of levels: each becomes one column for each level that was seen.

    A level that was not seen has zeros in all of these.
    """

    n_columns: int
    columns: np.ndarray
    """The places of the columns of codes, (C,)."""
    levels: tuple[np.ndarray, ...]
    """The codes that each of them had, in order."""

    @classmethod
    def of(cls, X: np.ndarray, columns: np.ndarray) -> CategoryColumns:
        """The levels that these columns of X (n, D) have."""
        return cls(X.shape[1], columns, tuple(np.unique(X[:, column]) for column in columns))

    @property
    def origin(self) -> np.ndarray:
        """The column that each expanded column comes from."""
        return np.repeat(np.arange(self.n_columns), self._sizes)

    @property
    def _sizes(self) -> np.ndarray:
        sizes = np.ones(self.n_columns, dtype=int)
        sizes[self.columns] = [len(levels) for levels in self.levels]
        return sizes

    def first(self, values: np.ndarray) -> np.ndarray:
        """The value of the first level of each category, and those of all other columns, (D,)."""
        return values[np.cumsum(self._sizes) - self._sizes]

    def expanded(self, X: np.ndarray) -> np.ndarray:
        """X (n, D) with an indicator of every level in the place of a column of codes."""
        parts = [X[:, [column]] for column in range(self.n_columns)]
        for column, levels in zip(self.columns, self.levels, strict=True):
            parts[column] = (X[:, [column]] == levels).astype(np.float64)
        return np.concatenate(parts, axis=1)

    def collapsed(self, X: np.ndarray) -> np.ndarray:
        """The reverse of `expanded`."""
        ends = np.cumsum(self._sizes)
        parts = np.split(X, ends[:-1], axis=1)
        for column, levels in zip(self.columns, self.levels, strict=True):
            parts[column] = levels[parts[column].argmax(axis=1)][:, None]
        return np.concatenate(parts, axis=1)


def category_places(given: Any, n_columns: int, names: Sequence[str] | None) -> np.ndarray:
    """The places of the columns that a user calls categories: by a mask, by places, or by names of columns."""
    wanted = list(np.atleast_1d(np.asarray(given, dtype=object)))
    if len(wanted) == n_columns and all(isinstance(value, (bool, np.bool_)) for value in wanted):
        return np.flatnonzero(np.array(wanted, dtype=bool))
    if wanted and all(isinstance(value, str) for value in wanted):
        if names is None:
            raise ValueError(f"categorical_features={given!r} names columns, but X has no names: give their places.")
        missing = [name for name in wanted if name not in names]
        if missing:
            raise ValueError(f"categorical_features has {missing}, and X has no such columns: it has {list(names)}.")
        return np.array(sorted({list(names).index(name) for name in wanted}), dtype=int)
    if not all(is_whole_number(value) and 0 <= value < n_columns for value in wanted):
        raise ValueError(
            f"categorical_features={given!r} must be names of columns, places from 0 to {n_columns - 1}, or a mask of "
            f"{n_columns} values."
        )
    return np.array(sorted({int(value) for value in wanted}), dtype=int)
