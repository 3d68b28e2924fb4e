"""Features of rows, wherever they are, engines that read them, and the first value that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from posteriori.rows.blocks import Blocks

if TYPE_CHECKING:
    from posteriori.rows.target import Target

__all__ = ["Engine", "Example", "Features", "NotFinite", "first_not_finite", "raise_if_not_finite"]

_ROWS_AT_ONCE = 65_536
"""Rows searched together for a value that is not finite, so that a large matrix needs no large mask."""


class NotFinite(NamedTuple):
    """A value that is NaN or infinite, and where it is.

    Attributes
    ----------
    value : float
    row : int
        Counted from 0; within its partition if there are partitions.
    column : str or int
        The name of the column, or its number where columns have no names.
    partition : int or None
    """

    value: float
    row: int
    column: str | int
    partition: int | None = None

    @property
    def missing(self) -> bool:
        """Whether the value is NaN."""
        return bool(np.isnan(self.value))

    def sentence(self, argument: str = "X") -> str:
        """A sentence for the user: what is wrong, where, and what to do about it."""
        sentence = (
            f"{argument} contains {'NaN' if self.missing else 'infinity'}, first in column {self.column!r}, row "
            f"{self.row} (counted from 0): remove or fill in such rows."
        )
        if self.partition is None:
            return sentence
        return f"{sentence} The row is counted within partition {self.partition}."


class Features(Protocol):
    """The features of N rows, wherever they are. N is not known before the rows are read."""

    @property
    def names(self) -> list[str] | None:
        """Column names of a table whose names are all strings."""

    @property
    def n_features(self) -> int:
        """D."""

    def first_not_finite(self, *, missing_allowed: bool = False) -> NotFinite | None:
        """The first value that is NaN or infinite, if there is one; NaN does not count if missing values may be."""

    def require_finite(self, *, missing_allowed: bool = False) -> None:
        """Raise if a value is not finite, naming its column and row."""
        found = self.first_not_finite(missing_allowed=missing_allowed)
        if found is not None:
            raise ValueError(found.sentence())

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> Blocks:
        """The rows as (X - shift) * scale, with their targets if there are any.

        With `finite`, a value that is not finite raises, at the latest when `Blocks.map_rows` comes to it.
        """


class Example(NamedTuple):
    """Rows in a container of one kind, as a user would pass them to `fit`."""

    kind: str
    X: Any
    y: Any
    sample_weight: Any
    device: str | None = None


class Engine(Protocol):
    """A reader of the rows of one kind of container.

    Attributes
    ----------
    name : str
    holds_all_rows : bool
        Whether X has all rows in memory, so that they can be taken by number and moved to a GPU.
    """

    name: str
    holds_all_rows: bool

    def claims(self, X: Any, device: str | None) -> bool:
        """Whether this engine reads X for an estimator with this device; engines are asked in their order."""

    def read(self, X: Any, drop: Collection[str]) -> Features:
        """The features of new rows: all columns but those to drop."""

    def read_for_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
    ) -> tuple[Features, Target]:
        """Features and target of the rows of a fit; y and sample_weight may be names of columns of X."""

    def labels(self, X: Any, y: Any) -> Any:
        """Labels or weights as an array in memory; y may be the name of a column of X."""

    def examples(self, X: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> list[Example]:
        """These rows, labels and weights in every kind of container that this engine reads: tests go through them."""


def first_not_finite(
    matrix: np.ndarray | sp.csr_array,
    names: list[str] | None = None,
    *,
    missing_allowed: bool = False,
    first_row: int = 0,
) -> NotFinite | None:
    """The first row with a value that is NaN or infinite, and in it the first such value; None if all are finite.

    Parameters
    ----------
    matrix : ndarray or csr_array, (N, D)
    names : list of str, or None
        Column names; without them columns are numbered.
    missing_allowed : bool
        Whether NaN is allowed.
    first_row : int
        The number of the first row.

    Examples
    --------
    >>> first_not_finite(np.array([[1.0, 2.0], [3.0, np.nan]]), ["length", "depth"])
    NotFinite(value=nan, row=1, column='depth', partition=None)
    """
    if matrix.dtype.kind != "f":
        return None
    bad = np.isinf if missing_allowed else _not_finite
    where = _first_sparse(matrix, bad) if sp.issparse(matrix) else _first_dense(matrix, bad)
    if where is None:
        return None
    n, d, value = where
    return NotFinite(value, first_row + n, d if names is None else names[d])


def raise_if_not_finite(
    matrix: np.ndarray | sp.csr_array, names: list[str] | None = None, *, argument: str = "X"
) -> None:
    """Raise if a value is NaN or infinite, naming its column and row; otherwise do nothing.

    Examples
    --------
    >>> raise_if_not_finite(np.array([[1.0, 2.0], [3.0, np.nan]]), ["length", "depth"])
    Traceback (most recent call last):
        ...
    ValueError: X contains NaN, first in column 'depth', row 1 (counted from 0): remove or fill in such rows.
    """
    found = first_not_finite(matrix, names)
    if found is not None:
        raise ValueError(found.sentence(argument))


def _not_finite(values: np.ndarray) -> np.ndarray:
    return ~np.isfinite(values)


def _first_dense(matrix: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, float] | None:
    """Row, column and value of the first bad value."""
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = matrix[start : start + _ROWS_AT_ONCE]
        bad = is_bad(rows)
        if bad.any():
            n, d = divmod(int(bad.argmax()), matrix.shape[1])
            return start + n, d, float(rows[n, d])
    return None


def _first_sparse(matrix: sp.csr_array, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, float] | None:
    """Row, column and value of the first stored bad value."""
    bad = is_bad(matrix.data)
    if not bad.any():
        return None
    i = int(bad.argmax())
    n = int(np.searchsorted(matrix.indptr, i, side="right")) - 1
    return n, int(matrix.indices[i]), float(matrix.data[i])
