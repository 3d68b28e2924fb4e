r"""The kernels of `Blocks.map_sum` and `Blocks.map_rows` once more, in JAX: for rows that lie on a GPU.

Each twin follows the formula of its NumPy kernel, with the same arguments and the same result. What differs is the
order of work. On a GPU a product with a long sum and a small result, R (K, N) times X (N, D), would keep few
processors busy: it is taken in parts of about 2048 rows, all at once, and these are added. Products of a row with
itself or with nodes are never made for all rows, but for some at a time.

What a pass must cost: it reads X twice (logits, then their transpose), 16 N D bytes, and makes 4 N D K
multiplications and additions. The Gram matrices of all pairs of classes make N D^2 K (K - 1) of them.

Only rows on a device need this module; it is the one in `maths` that imports JAX for linear models.
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

from posteriori.maths import averages, extremes, pairs, softmax
from posteriori.maths.blocks import Sums

__all__ = [
    "ROW_TWINS",
    "TWINS",
    "Twin",
    "cholesky",
    "class_sums",
    "drawn",
    "expected_softmax",
    "first_bad_row",
    "laid_out",
    "numbered",
    "padded",
    "parts_of",
    "rounded",
    "row_twin",
    "survey",
    "taken",
    "twin",
]

_ROWS_AT_ONCE = 2048
"""Rows of one product whose result is small."""
_MOST_PARTS = 1024
_FEW_CLASSES = 16
"""Products of each class with all later ones are compiled one by one."""
_COLUMNS = 500
"""Of the left factor of a product with itself: fewer leave processors idle, more make what is thrown away."""
_BYTES_AT_ONCE = 2 << 30
"""Most memory for values that are products of a row with itself, or with nodes."""


@dataclass(frozen=True)
class Twin:
    """A kernel in JAX.

    Attributes
    ----------
    run : callable
        Compiled once per shape: ``run(X, Y, c, *params, P=...)``.
    result : callable
        ``result(found, *params)``: from its arrays, in NumPy, to what the NumPy kernel returns.
    takes_probabilities : bool
        Whether it can use P (K, N) kept from another pass.
    keeps_probabilities : bool
        Whether it returns P beside its result, for other passes at the same parameters.
    prepare : callable or None
        From the NumPy kernel's parameters to those of `run`, where they are not arrays; to None if these have no twin.
    """

    run: Callable[..., Any]
    result: Callable[..., Any]
    takes_probabilities: bool = False
    keeps_probabilities: bool = False
    prepare: Callable[..., tuple[Any, ...] | None] | None = None


TWINS: dict[Callable[..., Any], Twin] = {}
"""Of kernels of `map_sum`."""
ROW_TWINS: dict[Callable[..., Any], Twin] = {}
"""Of kernels of `map_rows`."""


def as_numbers(found: Any, *params: Any) -> Any:
    """Arrays as they are, without dimensions as numbers; several as `Sums`."""
    if isinstance(found, tuple):
        return Sums(map(as_numbers, found))
    return found[()] if found.ndim == 0 else found


def twin(
    kernel: Callable[..., Any],
    *,
    static: tuple[str, ...] = (),
    result: Callable[..., Any] = as_numbers,
    keeps_probabilities: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the twin of a kernel of `map_sum`; arguments in `static` are no arrays.

    Gram matrices are never packed: those who take them take both.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        takes = "P" in function.__annotations__
        TWINS[kernel] = Twin(jax.jit(function, static_argnames=static), result, takes, keeps_probabilities)
        return function

    return register


def row_twin(
    kernel: Callable[..., Any],
    *,
    static: tuple[str, ...] = (),
    prepare: Callable[..., tuple[Any, ...] | None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the twin of a kernel of `map_rows`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        ROW_TWINS[kernel] = Twin(jax.jit(function, static_argnames=static), as_numbers, prepare=prepare)
        return function

    return register


# Rows where they lie


@partial(jax.jit, static_argnames=("size",))
def laid_out(
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
def taken(X: jax.Array, Y: jax.Array | None, c: jax.Array | None, rows: jax.Array) -> tuple[jax.Array | None, ...]:
    """Rows by their numbers."""
    return X[rows], None if Y is None else Y[rows], None if c is None else c[rows]


@partial(jax.jit, static_argnames=("n", "n_all"))
def drawn(
    X: jax.Array, Y: jax.Array | None, c: jax.Array | None, seed: int, n: int, n_all: int
) -> tuple[jax.Array | None, ...]:
    """One of each of n equal shares of the first `n_all` rows, with the weight of its share; their total is kept.

    No two are the same, and none need be sorted or looked for.
    """
    edges = jnp.arange(n + 1) * n_all // n
    shares = jnp.diff(edges)
    offsets = (jax.random.uniform(jax.random.key(seed), (n,)) * shares).astype(int)
    X, Y, mine = taken(X, Y, c, edges[:-1] + jnp.minimum(offsets, shares - 1))
    if c is None:
        return X, Y, shares.astype(float)
    total, weights = c.sum(), mine * shares
    found = weights.sum()
    return X, Y, jnp.where(found > 0, weights * (total / jnp.where(found > 0, found, 1.0)), total / n)


@partial(jax.jit, static_argnames=("missing_allowed",))
def first_bad_row(X: jax.Array, missing_allowed: bool) -> jax.Array:
    """The first with a value that is not finite, or N."""
    bad = (jnp.isinf(X) if missing_allowed else ~jnp.isfinite(X)).any(axis=1)
    return jnp.where(bad.any(), bad.argmax(), len(X))


@partial(jax.jit, static_argnames=("most",))
def survey(labels: jax.Array, most: int) -> tuple[jax.Array, ...]:
    """Least and greatest label, and which of the `most` numbers from the least on there are, as bits of 64 each.

    By "or" over all labels: to mark each in a table, all of them would write to few places.
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
    """In how many equal parts n rows are multiplied: of about 2048 rows each; one if n has no such divisor.

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
    """The least one from n on; n itself if it has a suitable divisor."""
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


def log_partition_and_softmax(F: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log sum_k exp f_kn (N,) and the probabilities (K, N)."""
    top = F.max(axis=0)
    E = jnp.exp(F - top)
    total = E.sum(axis=0)
    return jnp.log(total) + top, E * (1.0 / total)


def probabilities(X: jax.Array, theta: jax.Array, P: jax.Array | None) -> jax.Array:
    """P (K, N): those kept from the last pass, or computed anew."""
    return log_partition_and_softmax(logits(X, theta))[1] if P is None else P


def weighed(R: jax.Array, c: jax.Array | None) -> jax.Array:
    """R (K, N) times the weights of the rows."""
    return R if c is None else R * c


def add_intercept(X: jax.Array) -> jax.Array:
    """[X, 1]."""
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
    """What f makes of parts of `size` rows, (K, n) each, for all rows: (K, N)."""
    size = max(1, min(len(X), size))
    whole, rest = divmod(len(X), size)
    parts = lax.map(lambda i: f(lax.dynamic_slice_in_dim(X, i * size, size)), jnp.arange(whole))
    out = parts.transpose(1, 0, 2).reshape(parts.shape[1], whole * size)
    return jnp.concatenate([out, f(X[whole * size :])], axis=1) if rest else out


def rows_within(values_a_row: int) -> int:
    """How many rows with so many float64 values each are worked on at once: whole multiples of 1024 if it can be."""
    n = _BYTES_AT_ONCE // (8 * values_a_row)
    return n // 1024 * 1024 if n >= 1024 else max(1, n)


def weighted_grams(X: jax.Array, weights: jax.Array, with_intercept: bool) -> jax.Array:
    """sum_n w_mn [x_n, 1] [x_n, 1]^T for weights (M, N), shape (M, D', D')."""
    return grams_of(lambda w: w, len(weights), X, with_intercept, weights)


def grams_of(
    weigh: Callable[..., jax.Array], M: int, X: jax.Array, with_intercept: bool, *values: jax.Array | None
) -> jax.Array:
    """The same for weights that ``weigh(*values)`` makes of some values of the rows, some rows at a time.

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


def pair_products(P: jax.Array) -> jax.Array:
    """p_k p_l for k < l, (pairs, N)."""
    k, m = np.triu_indices(len(P), 1)
    return P[k] * P[m]


def one_hot(Y: jax.Array, n_classes: int) -> jax.Array:
    """Y^T, shape (K, N), of labels or probabilities."""
    return Y.T if Y.ndim == 2 else (Y == jnp.arange(n_classes)[:, None]).astype(float)


# Softmax


@twin(softmax.observed_moments, static=("n_classes",))
def observed_moments(X: jax.Array, Y: jax.Array, c: jax.Array | None, n_classes: int) -> tuple[jax.Array, ...]:
    T = contract(weighed(one_hot(Y, n_classes), c), X, True)
    return T, (X * X if c is None else X * X * c[:, None]).sum(axis=0)


@twin(softmax.expected_moments, keeps_probabilities=True)
def expected_moments(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array) -> Any:
    log_partition, P = log_partition_and_softmax(logits(X, theta))
    sums = weighed(log_partition, c).sum(), contract(weighed(P, c), X, theta.shape[1] > X.shape[1])
    return sums, P


@twin(softmax.residual_moments, keeps_probabilities=True)
def residual_moments(X: jax.Array, Y: jax.Array, c: jax.Array | None, theta: jax.Array) -> Any:
    F = logits(X, theta)
    log_partition, P = log_partition_and_softmax(F)
    own = one_hot(Y, len(theta))
    if Y.ndim == 1:
        others = jnp.where(own > 0, 0.0, P)
        missing = others.sum(axis=0)
        R = jnp.where(own > 0, -missing, others)
        plain = log_partition - jnp.where(own > 0, F, 0.0).sum(axis=0)
        loss = jnp.where(missing < 0.5, -jnp.log1p(-jnp.minimum(missing, 0.5)), plain)
    else:
        R = P - own
        loss = log_partition - (own * F).sum(axis=0)
    return (weighed(loss, c).sum(), contract(weighed(R, c), X, theta.shape[1] > X.shape[1])), P


@twin(softmax.log_partitions, static=("n_classes",))
def log_partitions(X: jax.Array, Y: Any, c: jax.Array | None, thetas: jax.Array, n_classes: int) -> jax.Array:
    each = thetas.reshape(-1, n_classes, thetas.shape[1])
    return lax.map(lambda theta: weighed(log_partition_and_softmax(logits(X, theta))[0], c).sum(), each)


@twin(softmax.hessian_product)
def hessian_product(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, V: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    if P is None:  # logits of both by one product
        both = logits(X, jnp.concatenate([theta, V]))
        P, U = log_partition_and_softmax(both[: len(V)])[1], both[len(V) :]
    else:
        U = logits(X, V)
    return contract(weighed(P * (U - (P * U).sum(axis=0)), c), X, theta.shape[1] > X.shape[1])


@twin(pairs.pair_grams)
def pair_grams(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    (K, D), with_intercept = (len(theta), X.shape[1]), theta.shape[1] > X.shape[1]
    P = probabilities(X, theta, P)
    if K > _FEW_CLASSES:
        weigh = lambda P, c: weighed(pair_products(P), c)  # noqa: E731
        return grams_of(weigh, K * (K - 1) // 2, X, with_intercept, P, c)

    together = max(1, min(K, round(_COLUMNS / D)))

    def part(X: jax.Array, P: jax.Array, c: jax.Array | None) -> tuple[jax.Array, ...]:
        """Rows p_k x_n of every class side by side, made once; then some classes with themselves and all later ones."""
        n = len(X)
        B = parts_of(n)
        R = P if c is None else P * jnp.sqrt(c)
        Q = (R.T[:, :, None] * X[:, None, :]).reshape(B, n // B, K * D)
        grams = []
        for first in range(0, K - 1, together):
            some = Q[..., first * D : (first + together) * D]
            G = jnp.einsum("bnd,bne->bde", some, Q[..., first * D :]).sum(axis=0).reshape(-1, D, K - first, D)
            grams += [G[i, :, i + 1 :].transpose(1, 0, 2) for i in range(min(len(G), K - 1 - first))]
        return jnp.concatenate(grams), contract(weighed(pair_products(P), c), X, with_intercept)

    grams, edge = summed(part, rows_within(K * D), X, P, c)
    return with_edge(grams, edge) if with_intercept else grams


def _hessian(grams: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """From Gram matrices of the pairs: no more sums over rows than these are needed."""
    return pairs.hessian_from_pairs(grams, np.eye(len(theta)), theta.shape[1])


twin(softmax.hessian, result=_hessian)(pair_grams)


@twin(softmax.class_mixing)
def class_mixing(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    R = weighed(P, c)
    K, N = P.shape
    B = parts_of(N)
    mixed = jnp.einsum("kbn,lbn->bkl", R.reshape(K, B, N // B), P.reshape(K, B, N // B)).sum(axis=0)
    return jnp.diag(R.sum(axis=1)) - mixed


@twin(softmax.kronecker_factors)
def kronecker_factors(
    X: jax.Array,
    Y: Any,
    c: jax.Array | None,
    theta: jax.Array,
    columns: jax.Array | None = None,
    P: jax.Array | None = None,
) -> tuple[jax.Array, ...]:
    P = probabilities(X, theta, P)
    R = weighed(P, c)
    spread = jnp.maximum(R.sum(axis=0) - (R * P).sum(axis=0), 0.0)
    Z = X if columns is None else X[:, columns]
    has_intercept = theta.shape[1] > X.shape[1]
    return class_mixing(X, Y, c, theta, P), weighted_grams(Z, spread[None], has_intercept)[0]


@twin(softmax.class_scatter)
def class_scatter(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, floor: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    P = probabilities(X, theta, P)
    weights = weighed(P * (1.0 - P), c)
    return weighted_grams(X, jnp.where(weights > floor[:, None], weights, 0.0), theta.shape[1] > X.shape[1])


@twin(softmax.class_spread)
def class_spread(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    return weighed(P - P * P, c).sum(axis=1)


@twin(softmax.hessian_diagonal)
def hessian_diagonal(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    P = probabilities(X, theta, P)
    return contract(weighed(P - P * P, c), X * X, theta.shape[1] > X.shape[1])


@twin(softmax.hessian_cross)
def hessian_cross(X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, P: jax.Array | None = None) -> jax.Array:
    P = probabilities(X, theta, P)
    return contract(weighed(P - P * P, c), X, False)


@twin(softmax.scatter)
def scatter(X: jax.Array, Y: Any, c: jax.Array | None, mean: jax.Array) -> jax.Array:
    return weighted_grams(X - mean, jnp.ones((1, len(X))) if c is None else c[None], False)[0]


@twin(softmax.separation, result=lambda found, *_: softmax.Separation(*map(float, found)))
def separation(X: jax.Array, Y: jax.Array, c: jax.Array | None, V: jax.Array) -> tuple[jax.Array, ...]:
    F = logits(X, V)
    counts = True if c is None else c > 0
    top, bottom = F.max(axis=0), F.min(axis=0)
    own = jnp.where(one_hot(Y, len(V)) > 0, F, jnp.inf).min(axis=0)
    return tuple(jnp.where(counts, each, 0.0).max(initial=0.0) for each in (top - own, top - bottom))


@twin(softmax.pair_margins, result=lambda found, *_: softmax.PairMargins(*found))
def pair_margins(X: jax.Array, Y: jax.Array, c: jax.Array | None, V: jax.Array) -> tuple[jax.Array, ...]:
    F = logits(X, V)
    belongs = weighed(one_hot(Y, len(V)), c) > 0

    def of_class(i: jax.Array) -> tuple[jax.Array, ...]:
        margins, mine = F[i] - F, belongs[i]
        return jnp.where(mine, margins, jnp.inf).min(axis=1), jnp.where(mine, margins, -jnp.inf).max(axis=1)

    return lax.map(of_class, jnp.arange(len(V)))


@twin(extremes.extremes, result=lambda found, *_: extremes.Extremes(*found))
def column_extremes(X: jax.Array, Y: Any, c: jax.Array | None) -> tuple[jax.Array, ...]:
    counts = True if c is None else (c > 0)[:, None]
    return jnp.where(counts, X, jnp.inf).min(axis=0), jnp.where(counts, X, -jnp.inf).max(axis=0)


@twin(pairs.log_det_slope)
def log_det_slope(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, forms: jax.Array, P: jax.Array | None = None
) -> jax.Array:
    with_intercept = theta.shape[1] > X.shape[1]

    def part(X: jax.Array, P: jax.Array, c: jax.Array | None) -> jax.Array:
        v = _square(quadratic_forms(X, forms, with_intercept), len(P))
        slope = jnp.einsum("nkl,ln->kn", v, P)
        slope = P * (slope - (P * slope).sum(axis=0))
        return contract(weighed(slope, c), X, with_intercept)

    size = rows_within(len(forms) * theta.shape[1])
    return summed(part, size, X, probabilities(X, theta, P), c)


def _square(variances: jax.Array, K: int) -> jax.Array:
    """v_kl of each row as a symmetric matrix, (n, K, K), from those of the pairs, (pairs, n)."""
    k, m = np.triu_indices(K, 1)
    full = jnp.zeros((variances.shape[1], K, K))
    return full.at[:, k, m].set(variances.T).at[:, m, k].set(variances.T)


cholesky = jax.jit(jnp.linalg.cholesky)


# Averages over Gaussian logits


def logits_at_nodes(F: jax.Array, variances: jax.Array, points: jax.Array) -> jax.Array:
    """Logits less the last class's mean at nodes (J, S), (n, K, S), for means (K, n) and variances of pairs."""
    full = _square(variances, len(F))
    last = full[:, :-1, -1]
    covariance = 0.5 * (last[:, :, None] + last[:, None, :] - full[:, :-1, :-1])
    at = cholesky_psd(covariance) @ points + (F[:-1] - F[-1]).T[:, :, None]
    return jnp.concatenate([at, jnp.zeros((len(at), 1, points.shape[1]))], axis=1)


def cholesky_psd(covariance: jax.Array) -> jax.Array:
    """Lower factors of (n, J, J) positive semi-definite matrices, each with what rounding needs on its diagonal."""
    J = covariance.shape[1]
    i = np.arange(J)
    diagonal = jnp.maximum(covariance[:, i, i], 0.0)
    least = 1e-13 * diagonal.max(axis=1) + 1e-300
    lifted = covariance.at[:, i, i].set(diagonal + least[:, None])

    def failed(L: jax.Array) -> jax.Array:
        return jnp.isnan(L).any(axis=(1, 2)) & jnp.isfinite(lifted).all(axis=(1, 2))

    def more(state: Any) -> Any:
        M, L, jitter = state
        bad, jitter = failed(L), 100.0 * jitter
        M = jnp.where(bad[:, None, None], M + jitter[:, None, None] * jnp.eye(J), M)
        return M, jnp.where(bad[:, None, None], jnp.linalg.cholesky(M), L), jitter

    start = lifted, jnp.linalg.cholesky(lifted), least
    return lax.while_loop(lambda state: (failed(state[1]) & (state[2] < 1e300)).any(), more, start)[1]


def softmax_at_nodes(at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log sum_k exp (n, S) and probabilities (n, K, S) of logits (n, K, S)."""
    top = at.max(axis=1)
    E = jnp.exp(at - top[:, None])
    total = E.sum(axis=1)
    return jnp.log(total) + top, E / total[:, None]


@twin(averages.averaged_moments)
def averaged_moments(
    X: jax.Array, Y: Any, c: jax.Array | None, theta: jax.Array, forms: jax.Array, nodes: Any
) -> tuple[jax.Array, ...]:
    with_intercept = theta.shape[1] > X.shape[1]
    k, m = np.triu_indices(len(theta), 1)

    def part(X: jax.Array, c: jax.Array | None) -> tuple[jax.Array, ...]:
        F = logits(X, theta)
        variances = jnp.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
        log_partition, p = softmax_at_nodes(logits_at_nodes(F, variances, nodes.points))
        mean = p @ nodes.weights
        products = ((p * nodes.weights) @ p.transpose(0, 2, 1))[:, k, m].T
        return (
            weighed(log_partition @ nodes.weights + F[-1], c).sum(),
            contract(weighed(mean.T, c), X, with_intercept),
            weighted_grams(X, weighed(products, c), with_intercept),
        )

    size = rows_within(max(len(theta) * nodes.weights.size, len(k) * theta.shape[1]))
    return summed(part, size, X, c)


def expected_softmax(
    X: jax.Array, mean: jax.Array, offset: jax.Array, forms: jax.Array, nodes: Any, log: bool
) -> jax.Array:
    """E[softmax(f)] or its logarithm, (K, N), for logits about those of `mean`; `forms` are covariances of pairs."""
    with_intercept = mean.shape[1] > X.shape[1]

    def part(X: jax.Array) -> jax.Array:
        F = logits(X, mean) + offset[:, None]
        variances = jnp.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
        at = logits_at_nodes(F, variances, nodes.points)
        if not log:
            return (softmax_at_nodes(at)[1] @ nodes.weights).T
        at = at - at.max(axis=1, keepdims=True)
        at = at - jnp.log(jnp.exp(at).sum(axis=1, keepdims=True)) + jnp.log(nodes.weights)
        top = at.max(axis=2)
        return (jnp.log(jnp.exp(at - top[:, :, None]).sum(axis=2)) + top).T

    return side_by_side(part, rows_within(max(len(mean) * nodes.weights.size, len(forms) * mean.shape[1])), X)


# Rows


@row_twin(softmax.logits)
def row_logits(X: jax.Array, theta: jax.Array) -> jax.Array:
    return logits(X, theta)


@row_twin(softmax.probabilities)
def row_probabilities(X: jax.Array, theta: jax.Array) -> jax.Array:
    return probabilities(X, theta, None)


# Gaussian classes


def class_sums(X: jax.Array, Y: jax.Array, c: jax.Array | None, n_classes: int, kind: str) -> tuple[jax.Array, ...]:
    """Counts (K,), weights of present values (K, D), means (K, D) and scatter of each class, about its mean.

    In two passes, so that no digits are lost however far rows lie from the origin: means from rows less the mean of
    all, then squares about these means; what rounding has left of the means is taken out of both. For `kind` "diagonal"
    values that are missing (NaN) are left out.
    """
    shares = weighed(one_hot(Y, n_classes), c)  # (K, N)
    counts = shares.sum(axis=1)
    used = (shares > 0).any(axis=0)[:, None]
    there = used & ~jnp.isnan(X) if kind == "diagonal" else used
    present = counts[:, None]
    if kind == "diagonal":
        n_missing = contract((shares > 0).astype(float), (used & ~there).astype(float), False)
        present = jnp.where(n_missing > 0, contract(shares, there.astype(float), False), present)
    divisor = jnp.where(present > 0.0, present, 1.0)
    X = jnp.where(there, X, 0.0)
    middle = X.sum(axis=0) / jnp.maximum(there.sum(axis=0), 1)
    means = middle + contract(shares, jnp.where(there, X - middle, 0.0), False) / divisor
    if kind == "diagonal":
        left, squares = lax.map(lambda each: _moments_about(X, there, *each), (shares, means))
        left /= divisor
        scatter = squares - present * left**2
    elif Y.ndim == 1:  # each row about the mean of its own class
        Z = jnp.where(there, X - means[Y], 0.0)
        left = contract(shares, Z, False) / divisor
        weights = shares if kind == "full" else shares.sum(axis=0)[None]
        scatter = weighted_grams(Z, weights, False)
        corrections = counts[:, None, None] * left[:, :, None] * left[:, None, :]
        scatter = scatter - corrections if kind == "full" else scatter[0] - corrections.sum(axis=0)
    else:
        left, scatter = lax.map(lambda each: _scatter_about(X, there, *each), (shares, means))
        left /= divisor
        scatter -= counts[:, None, None] * left[:, :, None] * left[:, None, :]
        scatter = scatter if kind == "full" else scatter.sum(axis=0)
    return counts, present, jnp.where(present > 0.0, means + left, 0.0), scatter


def _moments_about(X: jax.Array, there: jax.Array, share: jax.Array, mean: jax.Array) -> tuple[jax.Array, ...]:
    """sum_n s_n (x_n - mean), and of the squares, (D,) each."""
    Z = jnp.where(there, X - mean, 0.0)
    return (share[:, None] * Z).sum(axis=0), (share[:, None] * Z * Z).sum(axis=0)


def _scatter_about(X: jax.Array, there: jax.Array, share: jax.Array, mean: jax.Array) -> tuple[jax.Array, ...]:
    """sum_n s_n (x_n - mean) (D,) and sum_n s_n (x_n - mean)(x_n - mean)^T (D, D)."""
    Z = jnp.where(there, X - mean, 0.0)
    return (share[:, None] * Z).sum(axis=0), weighted_grams(Z, share[None], False)[0]
