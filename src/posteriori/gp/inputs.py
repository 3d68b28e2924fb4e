"""Rows as Gaussian processes need them: columns of unit spread, one class for each row, and inducing inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans

from posteriori.gp.categories import indicator_blocks
from posteriori.maths.covariance_functions import squared_distances
from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.products import as_dense
from posteriori.rows.target import Target
from posteriori.threads import SCIKIT_LEARN

__all__ = ["InputUnits", "LabelledRows", "finite_matrix", "inducing_inputs", "labelled_rows", "typical_distance"]

_KMEANS_ROWS = 20_000
"""The number of rows that k-means reads, at most."""
_DISTANCE_ROWS = 400
"""The number of rows between which distances are measured, at most."""
_FARTHEST = 1e6
"""Inputs are held within this many spreads of the centre."""
_RARE = 0.25
"""The share of the rare rows' distance from the median that the spread of a column has at least."""
_MULTIPLE = 16
"""Where all rows are inducing inputs, their number is filled up to a multiple of this."""


@dataclass(frozen=True)
class InputUnits:
    """The centre and the spread of each column; columns that never vary are left out.

    The spread is the standard deviation, or a quarter of the root mean square distance from the median of those rows
    that are away from it, if that is more: where nearly all rows have one value, as many pixels and indicators do, the
    rare other ones are not blown up. The levels of a category, of frequencies p_l, all have the spread
    (1 - sum_l p_l^2)^{1/2}: two rows taken at random are then as far apart by a category as by a number, in the mean
    square.
    """

    centre: np.ndarray
    spread: np.ndarray
    kept: np.ndarray
    blocks: np.ndarray | None = None
    """The block of each column that is kept (`gp.categories`); None where no columns belong together."""

    @classmethod
    def of(cls, X: np.ndarray, c: np.ndarray) -> InputUnits:
        """The units of rows X (n, D) with weights c (n,)."""
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
        blocks = indicator_blocks(X[:, kept])
        if blocks[-1] == len(kept) - 1:
            return cls(centre, np.where(varies, spread, 1.0), kept)
        of_category = np.bincount(blocks)[blocks] > 1
        same = np.bincount(blocks, np.where(of_category, centre[kept] ** 2, 0.0))  # how often rows have the same level
        spread[kept[of_category]] = np.sqrt(1.0 - same[blocks[of_category]])
        return cls(centre, np.where(varies, spread, 1.0), kept, blocks)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """The rows in these units, (n, columns kept); values beyond a million units are held there."""
        with np.errstate(over="ignore"):
            scaled = X[:, self.kept] / self.unit - self.centre[self.kept] / self.unit
        return np.clip(scaled, -_FARTHEST, _FARTHEST)

    @property
    def unit(self) -> np.ndarray:
        """The spreads of the columns that are kept."""
        return self.spread[self.kept]


def _medians(X: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The weighted median of each column: the smallest value at or below which half of the weight lies."""
    order = X.argsort(axis=0)
    below = np.cumsum(share[order], axis=0)
    middle = (below >= 0.5 - 1e-12).argmax(axis=0)
    columns = np.arange(X.shape[1])
    return X[order[middle, columns], columns]


@dataclass(frozen=True)
class LabelledRows:
    """Rows X (n, D), their classes y (n,) and weights c (n,), all positive."""

    X: np.ndarray
    y: np.ndarray
    c: np.ndarray


def finite_matrix(features: MemoryFeatures) -> np.ndarray:
    """The features as a dense float64 matrix; raises where a value is not finite."""
    X = np.asarray(as_dense(features.matrix), dtype=np.float64)
    if not np.isfinite(X).all():
        features.require_finite()
    return X


def labelled_rows(features: MemoryFeatures, target: Target) -> LabelledRows:
    """The rows of positive weight; a row with soft labels appears once for each of its classes, weighted."""
    X = finite_matrix(features)
    c = np.ones(len(X)) if target.weights is None else target.weights
    if target.codes is not None:
        counts = c > 0.0
        return LabelledRows(X[counts], target.codes[counts], c[counts])
    assert target.probs is not None
    n, k = np.nonzero(target.probs * c[:, None])
    return LabelledRows(X[n], k, c[n] * target.probs[n, k])


def inducing_inputs(X: np.ndarray, c: np.ndarray, most: int, seed: int) -> tuple[np.ndarray, bool]:
    """Inducing inputs (M, D), M <= `most`, and whether they include every row, so that nothing is lost by them.

    They are all distinct rows if there are no more than `most`, and otherwise the centres of k-means.
    """
    if len(X) <= 4 * most:
        distinct = np.unique(X, axis=0)
        if len(distinct) <= most:
            extra = min(-len(distinct) % _MULTIPLE, most - len(distinct))
            return np.vstack([distinct, _between(distinct, extra, seed)]), True
    rng = np.random.default_rng(seed)
    if len(X) > _KMEANS_ROWS:
        chosen = rng.choice(len(X), _KMEANS_ROWS, replace=False)
        X, c = X[chosen], c[chosen]
    most = min(most, len(np.unique(X, axis=0)))
    with SCIKIT_LEARN:
        means = KMeans(most, n_init=1, max_iter=20, random_state=seed).fit(X, sample_weight=c)
    return means.cluster_centers_, False


def _between(X: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Points half-way between rows: they do no harm, and data sets of similar size share a compilation."""
    i, j = np.random.default_rng(seed).integers(len(X), size=(2, n))
    return 0.5 * (X[i] + X[j])


def typical_distance(X: np.ndarray, seed: int) -> float:
    """The median distance between distinct rows, measured on a sample of them."""
    rng = np.random.default_rng(seed)
    X = np.unique(X, axis=0) if len(X) <= 10 * _DISTANCE_ROWS else X
    sample = X if len(X) <= _DISTANCE_ROWS else X[rng.choice(len(X), _DISTANCE_ROWS, replace=False)]
    i, j = np.triu_indices(len(sample), 1)
    if len(i) == 0:
        return 1.0
    distance = float(np.sqrt(np.median(squared_distances(sample, sample)[i, j])))
    return distance if distance > 0.0 else 1.0
