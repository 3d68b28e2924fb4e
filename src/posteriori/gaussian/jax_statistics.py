"""The statistics of Gaussian classes in JAX, for rows on a GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriori.gaussian.statistics import SCATTERS, ClassStatistics, Kind
from posteriori.rows.gpu_arrays import contract, jax_kernel, one_hot, weighed, weighted_grams

__all__ = ["class_statistics"]


def _statistics(found: tuple[np.ndarray, ...], n_classes: int, kind: Kind) -> ClassStatistics:
    counts, present, means, scatter = found
    if (present == counts[:, None]).all():
        present = counts[:, None]
    return ClassStatistics(kind, counts, present, means, scatter)


@jax_kernel(static=("n_classes", "kind"), result=_statistics)
def class_statistics(
    X: jax.Array, Y: jax.Array, c: jax.Array | None, n_classes: int, kind: Kind
) -> tuple[jax.Array, ...]:
    """Counts (K,), weights of present values (K, D), means (K, D) and scatter of each class, about its mean.

    Rows are visited twice, so that no digits are lost however far they lie from the origin: means come from rows less
    the mean of all, then squares about these means; what rounding has left of the means is taken out of both. For
    `kind` "diagonal" values that are missing (NaN) are left out.
    """
    by_class, missing_allowed = SCATTERS[kind].by_class, SCATTERS[kind].missing_allowed
    shares = weighed(one_hot(Y, n_classes), c)  # (K, N)
    counts = shares.sum(axis=1)
    used = (shares > 0).any(axis=0)[:, None]
    there = used & ~jnp.isnan(X) if missing_allowed else used
    present = counts[:, None]
    if missing_allowed:
        n_missing = contract((shares > 0).astype(float), (used & ~there).astype(float), False)
        present = jnp.where(n_missing > 0, contract(shares, there.astype(float), False), present)
    divisor = jnp.where(present > 0.0, present, 1.0)
    X = jnp.where(there, X, 0.0)
    middle = X.sum(axis=0) / jnp.maximum(there.sum(axis=0), 1)
    means = middle + contract(shares, jnp.where(there, X - middle, 0.0), False) / divisor
    if missing_allowed:
        left, squares = lax.map(lambda each: _moments_about(X, there, *each), (shares, means))
        left /= divisor
        scatter = squares - present * left**2
    elif Y.ndim == 1:  # each row about the mean of its own class
        Z = jnp.where(there, X - means[Y], 0.0)
        left = contract(shares, Z, False) / divisor
        weights = shares if by_class else shares.sum(axis=0)[None]
        scatter = weighted_grams(Z, weights, False)
        corrections = counts[:, None, None] * left[:, :, None] * left[:, None, :]
        scatter = scatter - corrections if by_class else scatter[0] - corrections.sum(axis=0)
    else:
        left, scatter = lax.map(lambda each: _scatter_about(X, there, *each), (shares, means))
        left /= divisor
        scatter -= counts[:, None, None] * left[:, :, None] * left[:, None, :]
        scatter = scatter if by_class else scatter.sum(axis=0)
    return counts, present, jnp.where(present > 0.0, means + left, 0.0), scatter


def _moments_about(X: jax.Array, there: jax.Array, share: jax.Array, mean: jax.Array) -> tuple[jax.Array, ...]:
    """sum_n s_n (x_n - mean), and of the squares, (D,) each."""
    Z = jnp.where(there, X - mean, 0.0)
    return (share[:, None] * Z).sum(axis=0), (share[:, None] * Z * Z).sum(axis=0)


def _scatter_about(X: jax.Array, there: jax.Array, share: jax.Array, mean: jax.Array) -> tuple[jax.Array, ...]:
    """sum_n s_n (x_n - mean) (D,) and sum_n s_n (x_n - mean)(x_n - mean)^T (D, D)."""
    Z = jnp.where(there, X - mean, 0.0)
    return (share[:, None] * Z).sum(axis=0), weighted_grams(Z, share[None], False)[0]
