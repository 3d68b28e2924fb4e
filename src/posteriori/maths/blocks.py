"""The way every model sees data: rows in blocks, and sums over them.

Nearly all that a linear model needs of its data is a sum over rows. A *kernel* is a pure function of one block,
``kernel(X, Y, c, *params)`` with features ``X`` (n, D), target ``Y`` (labels (n,) or probabilities (n, K)) and
row weights ``c`` (n,) or None (all one). `Blocks` applies it to every block and adds the results in a fixed
order, so that the answer depends neither on the number of threads nor on where the data lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

__all__ = ["Blocks", "Buffers", "Descent", "Sums", "reads_labels", "without_labels"]

Buffers = list[np.ndarray]


class Sums(tuple):
    """Several sums taken in one pass: a tuple whose ``+`` adds element by element.

    >>> Sums((1, 2.5)) + Sums((10, 20))
    (11, 22.5)
    """

    __slots__ = ()

    def __add__(self, other: tuple) -> Sums:
        return Sums(a + b for a, b in zip(self, other, strict=True))


def without_labels(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a kernel that never looks at Y, so that rows on disk need not be read with their labels."""
    kernel.reads_labels = False  # type: ignore[attr-defined]
    return kernel


def reads_labels(kernel: Callable[..., Any]) -> bool:
    """Whether a kernel may look at Y."""
    return getattr(kernel, "reads_labels", True)


@dataclass(frozen=True)
class Descent:
    """A descent over all rows, done where they lie.

    Attributes
    ----------
    thetas, gradients : list of ndarray (K, D')
        Of all steps; the last is the end.
    values, gaps : list of float
        J, and estimates of J - J*; if it converged, the last is the decrement 1/2 g^T H^{-1} g.
    converged : bool
        Whether the last decrement is within the tolerance.
    log_partition : float
        The sum of log-partitions at the end.
    n_passes : int
        Over all rows.
    probabilities : array (K, N)
        At the end, where the rows lie.
    """

    thetas: list[np.ndarray]
    gradients: list[np.ndarray]
    values: list[float]
    gaps: list[float]
    converged: bool
    log_partition: float
    n_passes: int
    probabilities: Any


class Blocks(Protocol):
    """Rows of a data set, offered block by block."""

    @property
    def n_rows(self) -> int:
        """N."""

    n_features: int
    sparse: bool
    """Whether X is a sparse matrix."""
    n_passes: int
    """How often all rows have been visited."""

    @property
    def handy_rows(self) -> int:
        """So many rows take no longer to visit than few: a smaller sample is not worth while."""

    def map_sum(
        self, kernel: Callable[..., Any], *params: Any, rows: Buffers | None = None, coarse: bool = False
    ) -> Any:
        """Sum of ``kernel(X_b, Y_b, c_b, *params)`` over the blocks; with `rows`, each block's buffer comes last.

        `coarse` asks for few, large blocks: for kernels that do much with each row and whose result is large.
        """

    @property
    def descend(self) -> Callable[..., Descent | None] | None:
        """Softmax regression solved in one call, where the way to the rows and back costs more than a pass.

        ``descend(moments, squares, precisions, centre, mean, tol, n_sample, rows)``: from zero, by way of a sample of
        rows, with the prior of `DiagonalPrecision(precisions, centre)`, alike for all classes, about the mean. The
        probabilities at the end are left in the buffers `rows`. None, or a result of None, where there is none such.
        """

    def cholesky(self, M: np.ndarray) -> np.ndarray:
        """As `linalg.cholesky`, where it takes the least time."""

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X_b, *params)``, (K, n_b) each, side by side in the order of the rows: (K, N).

        `heavy` says that a row costs much more than its logits.
        """

    def row_buffers(self, size: int) -> Buffers | None:
        """One (size, n_b) array per block for values that belong to rows, or None if they would not fit."""

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """One pass over the rows in random order, `size` rows at a time, as (X, Y, c)."""

    def sample(self, n_rows: int, rng: np.random.Generator, *, alike: bool = False) -> Blocks:
        """A random subset of the rows, at hand, weighted so that its sums estimate those of all rows.

        It may have fewer rows than asked for, where so many would not fit. `alike` asks for the rows that would be
        drawn in memory: for samples of a few thousand rows that have a part in the answer.
        """

    def some(self, n_rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """Up to so many random rows of positive weight, as (X, Y, c), in NumPy or SciPy arrays."""

    def take(self, rows: np.ndarray) -> Any:
        """X of the rows of these numbers, which are in order, in a NumPy or SciPy array."""

    def at_hand(self) -> Blocks:
        """The same rows where they are visited most cheaply, if that needs little memory; otherwise these."""
