"""Rows dealt into batches of one size, and the order in which training visits them."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from posteriori.gp.inputs import LabelledRows

__all__ = ["Batches", "Epochs", "chunk_size", "chunks_together", "in_batches"]

_CHUNK, _LONGEST_CHUNK, _MANY_STEPS = 10, 64, 256


class Batches(NamedTuple):
    """Rows in batches of one size: X (b, B, D), y (b, B), c (b, B) with zeros for rows that only fill up."""

    X: Array
    y: Array
    c: Array

    def visited(self, batch: Array) -> Batches:
        """One batch: X (B, D), y (B,), c (B,)."""
        return Batches(*(array[batch] for array in self))


def in_batches(rows: LabelledRows, batch_size: int, seed: int) -> Batches:
    """Deal rows into batches of one size, shuffled if there are several, and filled up with rows of no weight.

    Sizes are rounded, so that data sets of similar size share a compilation.
    """
    N = len(rows.y)
    n_batches = -(-N // batch_size)
    size = -(-N // n_batches)
    unit = 32 if size > 128 else 8
    size = -(-size // unit) * unit
    order = np.arange(N) if n_batches == 1 else np.random.default_rng(seed).permutation(N)
    index = np.resize(order, n_batches * size)
    c = np.where(np.arange(len(index)) < N, rows.c[index], 0.0)
    shape = (n_batches, size)
    return Batches(
        jnp.asarray(rows.X[index].reshape(*shape, -1)),
        jnp.asarray(rows.y[index].reshape(shape)),
        jnp.asarray(c.reshape(shape)),
    )


class Epochs:
    """The order in which batches are visited: each once, shuffled, again and again."""

    def __init__(self, n_batches: int, seed: int) -> None:
        self.n_batches, self.seed = n_batches, seed

    def __call__(self, first: int, count: int) -> np.ndarray:
        """The batches of `count` steps from step `first` on."""
        epochs = range(first // self.n_batches, (first + count - 1) // self.n_batches + 1)
        order = np.concatenate([np.random.default_rng([self.seed, e]).permutation(self.n_batches) for e in epochs])
        skip = first - epochs[0] * self.n_batches
        return order[skip : skip + count]


def chunk_size(n_batches: int) -> int:
    """The steps in a chunk: whole epochs, so that energies of chunks are of the same rows, unless that is too long."""
    return min(-(-_CHUNK // n_batches) * n_batches, _LONGEST_CHUNK)


def chunks_together(n_batches: int) -> int:
    """The number of chunks that see all rows, or so many rows that the rest does not matter."""
    return -(-min(n_batches, _MANY_STEPS) // chunk_size(n_batches))
