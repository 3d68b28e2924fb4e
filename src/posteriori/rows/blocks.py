"""The way every model sees data: rows in blocks, and sums over them.

Nearly all that a linear model needs of its data is a sum over rows. A *kernel* is a pure function of one block,
``kernel(X, Y, c, *params)`` with features ``X`` (n, D), target ``Y`` (labels (n,) or probabilities (n, K)) and
row weights ``c`` (n,) or None (all one). `Blocks` applies it to every block and adds the results in a fixed
order, so that the answer depends neither on the number of threads nor on where the data lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

__all__ = ["Blocks", "Buffers", "KernelFacts", "OnCard", "Sums", "facts_of", "kernel"]

Buffers = list[np.ndarray]
F = TypeVar("F", bound=Callable[..., Any])


class Sums(tuple):
    """Several sums taken in one pass: a tuple whose ``+`` adds element by element.

    >>> Sums((1, 2.5)) + Sums((10, 20))
    (11, 22.5)
    """

    __slots__ = ()

    def __add__(self, other: tuple) -> Sums:
        return Sums(a + b for a, b in zip(self, other, strict=True))


@dataclass(frozen=True)
class KernelFacts:
    """What an engine may know of a kernel.

    Attributes
    ----------
    reads_labels : bool
        False if it never looks at Y: rows on disk are then read without their labels.
    jax_version : str or None
        Where its version for rows on a card is, as "module:name".
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
    """What was stated of a kernel, or the cautious default."""
    return getattr(function, "facts", KernelFacts())


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


@runtime_checkable
class OnCard(Protocol):
    """What blocks can do besides if their rows lie on a card."""

    def run_on_card(self, program: Callable[..., Any], *args: Any) -> Any:
        """``program(X, Y, c, *args)`` in double precision, for a program of JAX over all rows."""

    def factor_on_card(self, M: np.ndarray) -> np.ndarray:
        """The lower Cholesky factor of a positive definite matrix, made where that takes the least time."""
