"""From features and target to a softmax likelihood, in coordinates where the prior is simple."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.rows.blocks import Blocks, kernel
from posteriori.rows.extremes import extremes
from posteriori.rows.features import AnyFeatures
from posteriori.rows.target import Target
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective

__all__ = ["StandardLikelihood", "standard_likelihood"]

_RARE = 0.05
"""Least spread of a column of two values, as a share of their distance: rarer ones are not blown up further."""


@dataclass(frozen=True)
class StandardLikelihood:
    """The likelihood of a fit in coordinates z = (x - shift) * scale, as blocks and observed moments."""

    blocks: Blocks
    observed: ObservedMoments
    coordinates: Coordinates

    def objective(self, precision: Any, mean: np.ndarray | None = None) -> SoftmaxObjective:
        """J under a prior in the same coordinates."""
        return SoftmaxObjective(self.blocks, self.observed, precision, mean)


def standard_likelihood(
    features: AnyFeatures, target: Target, has_intercept: bool, scaled: bool, n_threads: int
) -> StandardLikelihood:
    """Take moments, choose coordinates and go over to them.

    A prior in the units of the data needs no others. `scaled` ones are centred and of unit spread; without an
    intercept columns keep their origin, which then means something, and are scaled by their root mean square.
    """
    K = len(target.classes)

    def blocks_in(coordinates: Coordinates) -> Blocks:
        return features.blocks(target, K, shift=coordinates.shift, scale=coordinates.scale, n_threads=n_threads)

    blocks = blocks_in(Coordinates())
    with np.errstate(over="ignore", invalid="ignore"):
        observed = ObservedMoments.of(blocks, K)
    if not observed.finite:
        features.require_finite()
    safe = Coordinates.safe_for(blocks, observed, has_intercept, keep_constant=False)
    if safe.shift is not None or safe.scale is not None:
        blocks = blocks_in(safe)
        observed = ObservedMoments.of(blocks, K)
    if not scaled:
        centre = np.append(observed.mean, 1.0) if has_intercept else None
        return StandardLikelihood(blocks, observed, replace(safe, centre=centre))
    total = observed.class_sizes.sum()
    spread = np.sqrt(observed.variance if has_intercept else observed.squares / total)
    spread = np.maximum(spread, _RARE * _ranges_of_two_values(blocks, spread))
    centred = has_intercept and not blocks.sparse
    coordinates = Coordinates.standard(safe, observed, spread, centred)
    if not has_intercept:
        coordinates = Coordinates(scale=coordinates.scale)
    blocks = blocks_in(coordinates).at_hand()
    return StandardLikelihood(blocks, ObservedMoments.of(blocks, K), coordinates)


def _ranges_of_two_values(blocks: Blocks, spread: np.ndarray) -> np.ndarray:
    """Greatest less least value of the columns that take two values only and are rarely at one of them; else 0."""
    ends = blocks.map_sum(extremes)
    rare = np.flatnonzero(spread < _RARE * ends.ranges)
    out = np.zeros_like(spread)
    if rare.size:
        two = blocks.map_sum(between, rare, ends.least[rare], ends.greatest[rare]) == 0
        out[rare[two]] = ends.ranges[rare[two]]
    return out


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:between")
def between(X: Any, Y: Any, c: np.ndarray | None, columns: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How many values of some columns are neither the least nor the greatest."""
    values = X[:, columns].toarray() if sp.issparse(X) else X[:, columns]
    found = (values != low) & (values != high)
    return found.sum(axis=0) if c is None else (c > 0) @ found
