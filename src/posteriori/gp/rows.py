"""Rows as Gaussian processes want them: columns of unit spread, one class a row, and inducing inputs among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans

from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.products import as_dense
from posteriori.rows.target import Target

__all__ = ["Rows", "Standardised", "dense", "inducing_inputs", "labelled_rows", "typical_distance"]

_KMEANS_ROWS = 20_000
_DISTANCE_ROWS = 400
_FARTHEST = 1e6
_RARE = 0.25
_UNIT = 16
"""Inducing inputs come in multiples of this, where they are all rows."""


@dataclass(frozen=True)
class Standardised:
    """Centre and spread of each column; columns that never vary are left out.

    The spread is the standard deviation, or a quarter of the root mean square distance from the median of those rows
    that are away from it, if that is more: where nearly all rows have one value, as many pixels and indicators do, the
    rare other ones are not blown up.
    """

    centre: np.ndarray
    spread: np.ndarray
    kept: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, c: np.ndarray) -> Standardised:
        """From rows X (n, D) with weights c (n,)."""
        share = c / c.sum()
        largest = np.abs(X).max(axis=0, initial=0.0)
        unit = np.where(largest > 0.0, largest, 1.0)  # so that no square overflows
        centre = share @ (X / unit)
        away = X / unit - _medians(X, share) / unit
        apart = share @ (away != 0.0)
        rare = np.sqrt(share @ away**2 / np.where(apart > 0.0, apart, 1.0))
        spread = np.maximum(np.sqrt(share @ (X / unit - centre) ** 2), _RARE * rare)
        varies = spread > 1e-10
        centre, spread = unit * centre, unit * spread
        kept = np.flatnonzero(varies) if varies.any() else np.arange(1)  # a kernel needs something to look at
        return cls(centre, np.where(varies, spread, 1.0), kept)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Rows in the new units; what is further away than a million of them is as far as that."""
        with np.errstate(over="ignore"):
            scaled = X[:, self.kept] / self.unit - self.centre[self.kept] / self.unit
        return np.clip(scaled, -_FARTHEST, _FARTHEST)

    @property
    def unit(self) -> np.ndarray:
        """The spread of the columns that are kept."""
        return self.spread[self.kept]


def _medians(X: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The smallest value of each column below or at which half of the weight lies."""
    order = X.argsort(axis=0)
    below = np.cumsum(share[order], axis=0)
    middle = (below >= 0.5 - 1e-12).argmax(axis=0)
    columns = np.arange(X.shape[1])
    return X[order[middle, columns], columns]


@dataclass(frozen=True)
class Rows:
    """Rows X (n, D), their classes y (n,) and weights c (n,), all positive."""

    X: np.ndarray
    y: np.ndarray
    c: np.ndarray


def dense(features: MemoryFeatures) -> np.ndarray:
    """The features as a float64 matrix, all finite."""
    X = np.asarray(as_dense(features.matrix), dtype=np.float64)
    if not np.isfinite(X).all():
        features.require_finite()
    return X


def labelled_rows(features: MemoryFeatures, target: Target) -> Rows:
    """Rows that count: a row with soft labels stands once for each class it may be of, weighted."""
    X = dense(features)
    c = np.ones(len(X)) if target.weights is None else target.weights
    if target.codes is not None:
        counts = c > 0.0
        return Rows(X[counts], target.codes[counts], c[counts])
    assert target.probs is not None
    n, k = np.nonzero(target.probs * c[:, None])
    return Rows(X[n], k, c[n] * target.probs[n, k])


def inducing_inputs(X: np.ndarray, c: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, bool]:
    """Inducing inputs (M, D), M <= `most`: all distinct rows if there are no more, else centres of k-means.

    Also whether they are all of the rows, so that nothing is lost by them.
    """
    if len(X) <= 4 * most:
        distinct = np.unique(X, axis=0)
        if len(distinct) <= most:
            extra = min(-len(distinct) % _UNIT, most - len(distinct))
            return np.vstack([distinct, _between(distinct, extra, seed)]), True
    rng = np.random.default_rng(seed)
    if len(X) > _KMEANS_ROWS:
        some = rng.choice(len(X), _KMEANS_ROWS, replace=False)
        X, c = X[some], c[some]
    most = min(most, len(np.unique(X, axis=0)))
    means = KMeans(most, n_init=1, max_iter=20, random_state=seed).fit(X, sample_weight=c)
    return means.cluster_centers_, False


def _between(X: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Points half-way between rows: harmless, and data sets of similar size share a compilation."""
    i, j = np.random.default_rng(seed).integers(len(X), size=(2, n))
    return 0.5 * (X[i] + X[j])


def typical_distance(X: np.ndarray, seed: int) -> float:
    """The median distance between distinct rows, of some of them."""
    rng = np.random.default_rng(seed)
    X = np.unique(X, axis=0) if len(X) <= 10 * _DISTANCE_ROWS else X
    some = X if len(X) <= _DISTANCE_ROWS else X[rng.choice(len(X), _DISTANCE_ROWS, replace=False)]
    i, j = np.triu_indices(len(some), 1)
    if len(i) == 0:
        return 1.0
    distance = float(np.sqrt(np.median(((some[i] - some[j]) ** 2).sum(axis=1))))
    return distance if distance > 0.0 else 1.0
