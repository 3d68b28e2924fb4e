"""Rows in blocks, and sums over them: every model reads its data in this way.

Nearly all that a linear model needs of its data is a sum over rows. A *kernel* is a pure function of one block,
``kernel(X, Y, c, *params)`` with features ``X`` (n, D), target ``Y`` (labels (n,) or probabilities (n, K)) and
row weights ``c`` (n,) or None (all one). `Blocks` applies it to every block and adds the results in a fixed
order, so that the answer depends neither on the number of threads nor on where the data are.
The kernels of Gaussian processes (`gp.kernels`) are something else: covariance functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

__all__ = [
    "Blocks",
    "KeepsRowValues",
    "KernelFacts",
    "OnGpu",
    "Preparable",
    "RowValues",
    "Sums",
    "facts_of",
    "kernel",
    "least_sample",
    "prepared",
    "random_rows",
    "row_values",
]

RowValues = list[Any]
"""One place for each block, for values that belong to its rows and are of use in later passes."""
F = TypeVar("F", bound=Callable[..., Any])


class Sums(tuple):
    """Several sums from one pass: a tuple whose ``+`` adds element by element.

    >>> Sums((1, 2.5)) + Sums((10, 20))
    (11, 22.5)
    """

    __slots__ = ()

    def __add__(self, other: tuple) -> Sums:
        return Sums(a + b for a, b in zip(self, other, strict=True))


@dataclass(frozen=True)
class KernelFacts:
    """Facts that an engine may know about a kernel.

    Attributes
    ----------
    reads_labels : bool
        False if it never looks at Y: rows on disk are then read without their labels.
    jax_version : str or None
        The place of its version for rows on a GPU, as "module:name".
    """

    reads_labels: bool = True
    jax_version: str | None = None


def kernel(*, reads_labels: bool = True, jax_version: str | None = None) -> Callable[[F], F]:
    """State facts of a kernel, for engines that make use of them."""

    def stated(function: F) -> F:
        function.facts = KernelFacts(reads_labels, jax_version)  # type: ignore[attr-defined]
        return function

    return stated


def facts_of(function: Callable[..., Any]) -> KernelFacts:
    """The facts stated about a kernel, or the cautious default."""
    return getattr(function, "facts", KernelFacts())


class Blocks(Protocol):
    """Rows of a data set, offered block by block: what every engine must have.

    What only some engines have is in `OnGpu`, `KeepsRowValues` and `Preparable`.
    """

    @property
    def n_rows(self) -> int:
        """N."""

    @property
    def n_weighted(self) -> int:
        """Rows of positive weight."""

    n_features: int
    sparse: bool
    """Whether X is a sparse matrix."""
    n_passes: int
    """The number of passes made over all rows."""

    def map_sum(
        self, kernel: Callable[..., Any], *params: Any, row_values: RowValues | None = None, coarse: bool = False
    ) -> Any:
        """Sum of ``kernel(X_b, Y_b, c_b, *params)`` over the blocks; each block's row values, if given, come last.

        `coarse` asks for few, large blocks: for kernels that do much with each row and whose result is large.
        """

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X_b, *params)``, (K, n_b) each, side by side in the order of the rows: (K, N).

        `heavy` says that a row costs much more than its logits.
        """

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """One pass over the rows in random order, `size` rows at a time, as (X, Y, c)."""

    def sample(self, n_rows: int, rng: np.random.Generator, *, as_in_memory: bool = False) -> Blocks:
        """A random subset of the rows, weighted so that its sums estimate those of all rows.

        It may have fewer rows than asked for, where so many would not fit. `as_in_memory` asks for the very rows that
        would be drawn in memory: for samples of a few thousand rows that have a part in the answer.
        """

    def take(self, rows: np.ndarray, *, weighted: bool = False) -> tuple[Any, Any, Any]:
        """The rows of these numbers, which are in order, as (X, Y, c) in NumPy or SciPy arrays.

        With `weighted` only rows of positive weight are numbered.
        """


def random_rows(blocks: Blocks, n_rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Up to `n_rows` random rows of positive weight, as (X, Y, c): the same ones wherever the rows are."""
    N = blocks.n_weighted
    rows = np.arange(N) if N <= n_rows else np.sort(rng.choice(N, n_rows, replace=False, shuffle=False))
    return blocks.take(rows, weighted=True)


# What only some engines can do: a class of blocks derives from the capabilities that it has.


class OnGpu(ABC):
    """Blocks whose rows are on a GPU, which can run programs there."""

    @property
    @abstractmethod
    def least_sample(self) -> int:
        """A sample of fewer rows than this is not visited in less time."""

    @abstractmethod
    def run_on_gpu(self, program: Callable[..., Any], *args: Any) -> Any:
        """``program(X, Y, c, *args)`` in double precision, for a program of JAX over all rows."""

    @abstractmethod
    def factor_on_gpu(self, M: np.ndarray) -> np.ndarray:
        """The lower Cholesky factor of a positive definite matrix, made where that takes the least time."""


def least_sample(blocks: Blocks) -> int:
    """The number of rows below which a sample is not visited in less time: 0 for rows that are not on a GPU."""
    return blocks.least_sample if isinstance(blocks, OnGpu) else 0


class KeepsRowValues(ABC):
    """Blocks that can keep values of their rows between passes."""

    @abstractmethod
    def row_values(self, size: int) -> RowValues | None:
        """Places for `size` values of each row, or None if they would take too much memory."""


def row_values(blocks: Blocks, size: int) -> RowValues | None:
    """Places for `size` values of each row, to be passed to `Blocks.map_sum`; None where none can be kept."""
    return blocks.row_values(size) if isinstance(blocks, KeepsRowValues) else None


class Preparable(ABC):
    """Blocks for which many passes are cheaper after some preparation."""

    @abstractmethod
    def prepared(self) -> Blocks:
        """Rows read, shifted and scaled once and held in memory, unless they are many; otherwise these blocks."""


def prepared(blocks: Blocks) -> Blocks:
    """Blocks of the same rows, ready for many passes."""
    return blocks.prepared() if isinstance(blocks, Preparable) else blocks
