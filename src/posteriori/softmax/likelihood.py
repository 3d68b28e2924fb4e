"""The likelihood of a linear softmax model for one data set, in coordinates in which the prior is simple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.rows.blocks import Blocks, kernel, prepared
from posteriori.rows.extremes import Extremes, extremes
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
_MANY = 200
"""Columns from which on it is asked whether nearly all are rarely other than zero."""
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
    coordinates = _standard_coordinates(blocks, observed, safe, has_intercept, rule)
    blocks = prepared(blocks_in(coordinates))
    return LinearLikelihood(blocks, ObservedMoments.of(blocks, K), coordinates, has_intercept, names)


def _standard_coordinates(
    blocks: Blocks, observed: ObservedMoments, safe: Coordinates, has_intercept: bool, rule: CoordinateRule
) -> Coordinates:
    """Coordinates of unit spread, or of the units of the rule, for blocks and moments in coordinates `safe`."""
    spread = np.sqrt(observed.variance if has_intercept else observed.squares / observed.total_weight)
    ends = blocks.map_sum(extremes)
    rare = spread < _RARE * ends.ranges
    two_values = _take_two_values(blocks, ends, rare if rule.units is None else np.full(rare.shape, True))
    spread = np.where(rare & two_values, _RARE * ends.ranges, spread)
    if rule.units is None and _mostly_rare(blocks):
        spread = np.maximum(spread, 0.5 * ends.ranges)
    centred = has_intercept and not blocks.sparse
    if not centred:  # sparse columns far from zero stay there: not as far as their digits reach
        spread = np.maximum(spread, _FAR * np.sqrt(observed.squares / observed.total_weight))
    if rule.units is not None:
        inner = np.ones_like(spread) if safe.scale is None else safe.scale
        spread = rule.units.of(spread / inner, ends.ranges / inner, two_values) * inner
    coordinates = Coordinates.standard(safe, observed, spread, centred)
    return coordinates if has_intercept else Coordinates(scale=coordinates.scale)


def _mostly_rare(blocks: Blocks) -> bool:
    """Whether nearly all of very many columns are zero in nearly all rows: levels of categories, words of texts.

    Per unit of their spread a word of three texts would be held back no more than one of all texts, and most words are
    of few texts. Such columns are measured by their range instead: 0 and 1 are what they are.
    """
    if blocks.n_features < _MANY:
        return False
    filled = blocks.map_sum(counts_of_values) / max(blocks.n_rows, 1)
    return bool((filled < 0.1).mean() > 0.9)


def _take_two_values(blocks: Blocks, ends: Extremes, asked: np.ndarray) -> np.ndarray:
    """Whether each column that is asked for, (D,), is nowhere between its least and its greatest value."""
    columns = np.flatnonzero(asked)
    out = np.zeros(asked.shape, dtype=bool)
    if columns.size:
        out[columns] = blocks.map_sum(between, columns, ends.least[columns], ends.greatest[columns]) == 0
    return out


@kernel(reads_labels=False)
def counts_of_values(X: Any, Y: Any, c: np.ndarray | None) -> np.ndarray:
    """The number of rows in which each column is not zero, (D,)."""
    return np.asarray((X != 0).sum(axis=0)).ravel()


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:between")
def between(X: Any, Y: Any, c: np.ndarray | None, columns: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The number of values of each of these columns that are neither the least nor the greatest."""
    values = as_dense(X[:, columns])
    found = (values != low) & (values != high)
    return found.sum(axis=0) if c is None else (c > 0) @ found
