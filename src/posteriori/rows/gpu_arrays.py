"""Rows on a GPU, in JAX: converted, taken by number, drawn at random, multiplied.

On a GPU a product with a long sum and a small result, R (K, N) times X (N, D), would keep few processors busy: it is
taken in parts of about 2048 rows, all at once, and these are added. Products of a row with itself are never made for
all rows, but for some at a time. A `JaxKernel` is the version in JAX of a kernel of `Blocks`, with the same arguments
and the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriori.rows.blocks import Sums
from posteriori.rows.extremes import Extremes

_ROWS_AT_ONCE = 2048
"""Rows of one product whose result is small."""
_MOST_PARTS = 1024
_BYTES_AT_ONCE = 2 << 30
"""Most memory for values that are products of a row with itself, or with nodes."""


@dataclass(frozen=True)
class JaxKernel:
    """The version in JAX of a kernel.

    Attributes
    ----------
    function : callable
        The function as it is written, for use in other programs of JAX: calling this object calls it.
    run : callable
        The function compiled once per shape: ``run(X, Y, c, *params, P=...)``, or ``run(X, *params)`` for `map_rows`.
    result : callable
        ``result(found, *params)``: from its arrays, in NumPy, to what the NumPy kernel returns.
    takes_probabilities : bool
        Whether it can use P (K, N) kept from another pass.
    keeps_probabilities : bool
        Whether it returns P beside its result, for other passes at the same parameters.
    prepare : callable or None
        From the NumPy kernel's parameters to those of `run`, where they are not arrays; to None where `run` cannot
        take them, and NumPy does the work.
    """

    function: Callable[..., Any]
    run: Callable[..., Any]
    result: Callable[..., Any]
    takes_probabilities: bool = False
    keeps_probabilities: bool = False
    prepare: Callable[..., tuple[Any, ...] | None] | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the function as it is written."""
        return self.function(*args)


def as_numbers(found: Any, *params: Any) -> Any:
    """Arrays as they are, without dimensions as numbers; several as `Sums`."""
    if isinstance(found, tuple):
        return Sums(map(as_numbers, found))
    return found[()] if found.ndim == 0 else found


def jax_kernel(
    *,
    static: tuple[str, ...] = (),
    result: Callable[..., Any] = as_numbers,
    keeps_probabilities: bool = False,
    prepare: Callable[..., tuple[Any, ...] | None] | None = None,
) -> Callable[[Callable[..., Any]], JaxKernel]:
    """Make a kernel of a function of JAX; arguments in `static` are not arrays.

    Gram matrices are never packed here; code that reads them accepts packed and unpacked ones.
    """

    def made(function: Callable[..., Any]) -> JaxKernel:
        takes = "P" in function.__annotations__
        compiled = jax.jit(function, static_argnames=static)
        return JaxKernel(function, compiled, result, takes, keeps_probabilities, prepare)

    return made


# Rows where they are


@partial(jax.jit, static_argnames=("size",))
def converted(
    X: jax.Array, Y: jax.Array | None, c: jax.Array | None, shift: Any, scale: Any, size: int
) -> tuple[jax.Array | None, ...]:
    """(X - shift) * scale as float64, targets and weights, with rows of weight zero added up to `size` of them."""
    n = len(X)
    X = X.astype(float)
    X = X if shift is None else X - shift
    X = X if scale is None else X * scale
    if size == n:
        return X, Y, c
    more = (0, size - n)
    c = jnp.ones(n) if c is None else c
    Y = None if Y is None else jnp.pad(Y, [more] + [(0, 0)] * (Y.ndim - 1))
    return jnp.pad(X, [more, (0, 0)]), Y, jnp.pad(c, more)


@jax.jit
def rows_by_number(
    X: jax.Array, Y: jax.Array | None, c: jax.Array | None, rows: jax.Array
) -> tuple[jax.Array | None, ...]:
    """The rows of these numbers, with their targets and weights."""
    return X[rows], None if Y is None else Y[rows], None if c is None else c[rows]


@partial(jax.jit, static_argnames=("n", "n_all"))
def random_rows(
    X: jax.Array, Y: jax.Array | None, c: jax.Array | None, seed: int, n: int, n_all: int
) -> tuple[jax.Array | None, ...]:
    """One random row of each of n equal shares of the first `n_all` rows, weighted so that the total stays.

    No row is drawn twice, and nothing needs to be sorted.
    """
    edges = jnp.arange(n + 1) * n_all // n
    shares = jnp.diff(edges)
    offsets = (jax.random.uniform(jax.random.key(seed), (n,)) * shares).astype(int)
    X, Y, mine = rows_by_number(X, Y, c, edges[:-1] + jnp.minimum(offsets, shares - 1))
    if c is None:
        return X, Y, shares.astype(float)
    total, weights = c.sum(), mine * shares
    found = weights.sum()
    return X, Y, jnp.where(found > 0, weights * (total / jnp.where(found > 0, found, 1.0)), total / n)


@partial(jax.jit, static_argnames=("missing_allowed",))
def first_not_finite_row(X: jax.Array, missing_allowed: bool) -> jax.Array:
    """The number of the first row with a value that is not finite, or N."""
    bad = (jnp.isinf(X) if missing_allowed else ~jnp.isfinite(X)).any(axis=1)
    return jnp.where(bad.any(), bad.argmax(), len(X))


@partial(jax.jit, static_argnames=("most",))
def survey(labels: jax.Array, most: int) -> tuple[jax.Array, ...]:
    """Least and greatest label, and which of the `most` numbers from the least on there are, as bits of 64 each.

    Bits are joined by "or" over all labels: marking each in a table would make all of them write to few places.
    """
    low = labels.min()
    offsets = labels.astype(int) - low.astype(int)
    bit = jnp.uint64(1) << (offsets & 63).astype(jnp.uint64)
    words = jnp.where((offsets >> 6)[:, None] == jnp.arange(most // 64), bit[:, None], jnp.uint64(0))
    return low, labels.max(), lax.reduce(words, jnp.uint64(0), lax.bitwise_or, (0,))


@jax.jit
def numbered(labels: jax.Array, low: Any, numbers: jax.Array) -> jax.Array:
    """The number of each label, by its distance from the least."""
    return numbers[labels.astype(int) - low.astype(int)]


# Products


@cache
def parts_of(n: int) -> int:
    """The number of equal parts in which n rows are multiplied, of about 2048 rows; one if n has no such divisor.

    >>> parts_of(1_000_000), parts_of(10_007), parts_of(100)
    (500, 1, 1)
    """
    about = _parts_about(n)
    divisors = [b for b in range(max(1, about // 2), 2 * about + 1) if n % b == 0]
    return min(divisors, key=lambda b: abs(b - about), default=1)


def rounded(n: int) -> int:
    """The greatest number of rows up to n that can be cut into equal parts."""
    about = _parts_about(n)
    return n // about * about


def padded(n: int) -> int:
    """The least number of rows from n on that can be cut into equal parts."""
    about = _parts_about(n)
    return n if about == 1 or parts_of(n) > 1 else -(-n // about) * about


def _parts_about(n: int) -> int:
    return min(max(1, n // _ROWS_AT_ONCE), _MOST_PARTS)


def logits(X: jax.Array, theta: jax.Array) -> jax.Array:
    """f_kn = w_k . x_n + b_k, shape (K, N)."""
    D = X.shape[1]
    F = theta[:, :D] @ X.T
    return F + theta[:, D, None] if theta.shape[1] > D else F


def contract(R: jax.Array, X: jax.Array, with_intercept: bool) -> jax.Array:
    """sum_n R_kn [x_n, 1], shape (K, D + 1) or (K, D)."""
    (K, N), D = R.shape, X.shape[1]
    B = parts_of(N)
    out = jnp.einsum("kbn,bnd->bkd", R.reshape(K, B, N // B), X.reshape(B, N // B, D)).sum(axis=0)
    return jnp.concatenate([out, R.sum(axis=1)[:, None]], axis=1) if with_intercept else out


def weighed(R: jax.Array, c: jax.Array | None) -> jax.Array:
    """R (K, N) times the weights of the rows."""
    return R if c is None else R * c


def add_intercept(X: jax.Array) -> jax.Array:
    """[X, 1]: the rows with a one appended."""
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1))], axis=1)


def summed(f: Callable[..., Any], size: int, X: jax.Array, *others: jax.Array | None) -> Any:
    """Sum of f over parts of `size` rows, which run along the first axis of X and the last one of all others."""
    N = len(X)
    size = max(1, min(N, size))
    whole, rest = divmod(N, size)

    def part(start: Any, n: int) -> Any:
        of_others = (None if a is None else lax.dynamic_slice_in_dim(a, start, n, axis=a.ndim - 1) for a in others)
        return f(lax.dynamic_slice_in_dim(X, start, n), *of_others)

    first, total = (0, part(whole * size, rest)) if rest else (1, part(0, size))
    if whole > first:
        total = lax.fori_loop(first, whole, lambda i, t: jax.tree.map(jnp.add, t, part(i * size, size)), total)
    return total


def side_by_side(f: Callable[[jax.Array], jax.Array], size: int, X: jax.Array) -> jax.Array:
    """The results of f for parts of `size` rows, (K, n) each, joined for all rows: (K, N)."""
    size = max(1, min(len(X), size))
    whole, rest = divmod(len(X), size)
    parts = lax.map(lambda i: f(lax.dynamic_slice_in_dim(X, i * size, size)), jnp.arange(whole))
    out = parts.transpose(1, 0, 2).reshape(parts.shape[1], whole * size)
    return jnp.concatenate([out, f(X[whole * size :])], axis=1) if rest else out


def rows_within(values_a_row: int) -> int:
    """The number of rows with so many float64 values that are processed together, if possible a multiple of 1024."""
    n = _BYTES_AT_ONCE // (8 * values_a_row)
    return n // 1024 * 1024 if n >= 1024 else max(1, n)


def weighted_grams(X: jax.Array, weights: jax.Array, with_intercept: bool) -> jax.Array:
    """sum_n w_mn [x_n, 1] [x_n, 1]^T for weights (M, N), shape (M, D', D')."""
    return grams_of(lambda w: w, len(weights), X, with_intercept, weights)


def grams_of(
    weigh: Callable[..., jax.Array], M: int, X: jax.Array, with_intercept: bool, *values: jax.Array | None
) -> jax.Array:
    """`weighted_grams` for weights that ``weigh(*values)`` makes of values of the rows, some rows at a time.

    Products of rows w_mn x_n, side by side, with rows x_n. The intercept is added apart: its one would leave rows of
    odd length in memory.
    """
    D = X.shape[1]

    def part(X: jax.Array, *values: jax.Array | None) -> tuple[jax.Array, ...]:
        w, n = weigh(*values), len(X)
        B = parts_of(n)
        left = (w.T[:, :, None] * X[:, None, :]).reshape(B, n // B, M * D)
        return jnp.einsum("bnp,bne->bpe", left, X.reshape(B, n // B, D)).sum(axis=0), contract(w, X, with_intercept)

    grams, edge = summed(part, rows_within(M * D), X, *values)
    grams = grams.reshape(M, D, D)
    return with_edge(grams, edge) if with_intercept else grams


def with_edge(grams: jax.Array, edge: jax.Array) -> jax.Array:
    """(M, D', D') from (M, D, D) and the last row of each, (M, D')."""
    return jnp.concatenate([jnp.concatenate([grams, edge[:, None, :-1]], axis=1), edge[:, :, None]], axis=2)


def quadratic_forms(X: jax.Array, S: jax.Array, with_intercept: bool) -> jax.Array:
    """[x_n, 1]^T S_m [x_n, 1], shape (M, n), for matrices (M, D', D') or packed ones: all at once."""
    Z = add_intercept(X) if with_intercept else X
    D = Z.shape[1]
    if S.ndim == 2:
        S = jnp.zeros((len(S), D, D)).at[:, *np.triu_indices(D)].set(S)
    half = (Z @ S.transpose(1, 0, 2).reshape(D, -1)).reshape(-1, len(S), D)
    return jnp.einsum("nmd,nd->mn", half, Z)


def one_hot(Y: jax.Array, n_classes: int) -> jax.Array:
    """Y^T, shape (K, N), of labels or probabilities."""
    return Y.T if Y.ndim == 2 else (Y == jnp.arange(n_classes)[:, None]).astype(float)


cholesky = jax.jit(jnp.linalg.cholesky)


@jax_kernel()
def row_logits(X: jax.Array, theta: jax.Array) -> jax.Array:
    """f_kn for all rows, (K, N)."""
    return logits(X, theta)


@jax_kernel(result=lambda found, *_: Extremes(*found))
def extremes(X: jax.Array, Y: Any, c: jax.Array | None) -> tuple[jax.Array, ...]:
    """Least and greatest value of each column over rows with a weight, (D,) each."""
    counts = True if c is None else (c > 0)[:, None]
    return jnp.where(counts, X, jnp.inf).min(axis=0), jnp.where(counts, X, -jnp.inf).max(axis=0)
