"""The likelihood of a linear softmax model for one data set, in coordinates in which the prior is simple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.rows.blocks import Blocks, kernel, prepared
from posteriori.rows.extremes import extremes
from posteriori.rows.features import Features
from posteriori.rows.products import as_dense
from posteriori.rows.target import Target
from posteriori.softmax.coordinates import CoordinateRule, Coordinates
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import Precision

__all__ = ["LinearLikelihood", "linear_likelihood"]

_FAR = 1e-5
"""Least spread of a column that is not centred, as a share of its root mean square."""
_RARE = 0.05
"""Least spread of a column of two values, as a share of their distance: rarer ones are not blown up further."""


@dataclass(frozen=True)
class LinearLikelihood:
    """The rows of a fit in coordinates z = (x - shift) * scale, and their observed moments."""

    blocks: Blocks
    observed: ObservedMoments
    coordinates: Coordinates
    has_intercept: bool
    names: list[str] | None = None
    """Names of the columns, where they have any."""

    @property
    def shape(self) -> tuple[int, int]:
        """K and D', the shape of the parameters."""
        return len(self.observed.moments), self.blocks.n_features + self.has_intercept

    def objective(self, precision: np.ndarray | Precision, mean: np.ndarray | None = None) -> SoftmaxObjective:
        """J under a prior in the same coordinates."""
        return SoftmaxObjective(self.blocks, self.observed, precision, mean)


def linear_likelihood(
    features: Features, target: Target, has_intercept: bool, rule: CoordinateRule, n_threads: int
) -> LinearLikelihood:
    """The likelihood of a data set: take its moments, choose coordinates and convert the rows to them.

    The first pass sums the observed moments; were a value not finite, they would not be either, and it is found. A
    prior in the units of the data needs no other coordinates, unless float64 would lose digits in them. Scaled ones are
    centred and of unit spread; without an intercept columns keep their origin, which then means something, and are
    scaled by their root mean square.
    """
    K, names = len(target.classes), features.names

    def blocks_in(coordinates: Coordinates) -> Blocks:
        return features.blocks(target, K, shift=coordinates.shift, scale=coordinates.scale, n_threads=n_threads)

    blocks = blocks_in(Coordinates())
    with np.errstate(over="ignore", invalid="ignore"):
        observed = ObservedMoments.of(blocks, K)
    if not observed.finite:
        features.require_finite()
    safe = Coordinates.safe_for(blocks, observed, rule)
    if not safe.is_identity:
        blocks = blocks_in(safe)
        observed = ObservedMoments.of(blocks, K)
    if not rule.scaled:
        ready = prepared(blocks)
        if ready is not blocks:
            blocks, observed = ready, ObservedMoments.of(ready, K)
        centre = np.append(observed.mean, 1.0) if has_intercept else None
        return LinearLikelihood(blocks, observed, Coordinates(safe.shift, safe.scale, centre), has_intercept, names)
    coordinates = _standard_coordinates(blocks, observed, safe, has_intercept)
    blocks = prepared(blocks_in(coordinates))
    return LinearLikelihood(blocks, ObservedMoments.of(blocks, K), coordinates, has_intercept, names)


def _standard_coordinates(
    blocks: Blocks, observed: ObservedMoments, safe: Coordinates, has_intercept: bool
) -> Coordinates:
    """Coordinates of unit spread, for blocks and moments in coordinates `safe`."""
    spread = np.sqrt(observed.variance if has_intercept else observed.squares / observed.total_weight)
    spread = np.maximum(spread, _RARE * _ranges_of_two_values(blocks, spread))
    centred = has_intercept and not blocks.sparse
    if not centred:  # sparse columns far from zero stay there: not as far as their digits reach
        spread = np.maximum(spread, _FAR * np.sqrt(observed.squares / observed.total_weight))
    coordinates = Coordinates.standard(safe, observed, spread, centred)
    return coordinates if has_intercept else Coordinates(scale=coordinates.scale)


def _ranges_of_two_values(blocks: Blocks, spread: np.ndarray) -> np.ndarray:
    """Greatest less least value, (D,), of columns that take two values and are rarely at one of them; else 0."""
    ends = blocks.map_sum(extremes)
    rare = np.flatnonzero(spread < _RARE * ends.ranges)
    out = np.zeros_like(spread)
    if rare.size:
        two = blocks.map_sum(between, rare, ends.least[rare], ends.greatest[rare]) == 0
        out[rare[two]] = ends.ranges[rare[two]]
    return out


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:between")
def between(X: Any, Y: Any, c: np.ndarray | None, columns: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The number of values of each of these columns that are neither the least nor the greatest."""
    values = as_dense(X[:, columns])
    found = (values != low) & (values != high)
    return found.sum(axis=0) if c is None else (c > 0) @ found
