"""From features and target to a softmax likelihood, in coordinates where the prior is simple."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.data import Features, MemoryBlocks, Target, raise_if_not_finite
from posteriori.models.coordinates import Coordinates
from posteriori.models.softmax import ObservedMoments, SoftmaxObjective
from posteriori.threads import run_tasks

__all__ = ["StandardLikelihood", "standard_likelihood"]

_COPY_BYTES = 1 << 29
"""Up to here columns are standardised once, in a copy; beyond, block by block in every pass."""
_RARE = 0.05
"""Least spread of a column of two values, as a share of their distance: rarer ones are not blown up further."""


@dataclass(frozen=True)
class StandardLikelihood:
    """The likelihood of a fit in coordinates z = (x - shift) * scale, as blocks and observed moments."""

    blocks: MemoryBlocks
    observed: ObservedMoments
    coordinates: Coordinates

    def objective(self, precision: Any, mean: np.ndarray | None = None) -> SoftmaxObjective:
        """J under a prior in the same coordinates."""
        return SoftmaxObjective(self.blocks, self.observed, precision, mean)


def standard_likelihood(
    features: Features, target: Target, has_intercept: bool, scaled: bool, n_threads: int
) -> StandardLikelihood:
    """Take moments, choose coordinates and go over to them.

    A prior in the units of the data needs no others. `scaled` ones are centred and of unit spread; without an
    intercept columns keep their origin, which then means something, and are scaled by their root mean square.
    """
    X, K = features.matrix, len(target.classes)
    Y = target.codes if target.codes is not None else target.probs

    def blocks_in(coordinates: Coordinates, matrix: Any = X) -> MemoryBlocks:
        shift, scale = coordinates.shift, coordinates.scale
        return MemoryBlocks(matrix, Y, target.weights, K, shift=shift, scale=scale, n_threads=n_threads)

    blocks = blocks_in(Coordinates())
    with np.errstate(over="ignore", invalid="ignore"):
        observed = ObservedMoments.of(blocks, K)
    if not observed.finite:
        raise_if_not_finite(X, features.names)
    safe = Coordinates.safe_for(X, observed, has_intercept, keep_constant=False)
    if safe.shift is not None or safe.scale is not None:
        blocks = blocks_in(safe)
        observed = ObservedMoments.of(blocks, K)
    if not scaled:
        centre = np.append(observed.mean, 1.0) if has_intercept else None
        return StandardLikelihood(blocks, observed, replace(safe, centre=centre))
    total = observed.class_sizes.sum()
    spread = np.sqrt(observed.variance if has_intercept else observed.squares / total)
    spread = np.maximum(spread, _RARE * _ranges_of_two_values(blocks, spread))
    centred = has_intercept and not sp.issparse(X)
    coordinates = Coordinates.standard(safe, observed, spread, centred)
    if not has_intercept:
        coordinates = Coordinates(scale=coordinates.scale)
    blocks = blocks_in(coordinates)
    if not sp.issparse(X) and X.size * 8 <= _COPY_BYTES:
        blocks = blocks_in(Coordinates(), _standardised(blocks, n_threads))
    return StandardLikelihood(blocks, ObservedMoments.of(blocks, K), coordinates)


def _standardised(blocks: MemoryBlocks, n_threads: int) -> np.ndarray:
    """A copy of the rows in the blocks' coordinates."""
    Z = np.empty((blocks.n_rows, blocks.n_features))

    def task(i: int) -> None:
        Z[blocks.slices[i]] = blocks.features(blocks.slices[i])

    run_tasks(task, len(blocks.slices), n_threads)
    return Z


@dataclass(frozen=True)
class _Extremes:
    """Least and greatest value of each column; ``+`` merges two sets of rows."""

    least: np.ndarray
    greatest: np.ndarray

    def __add__(self, other: _Extremes) -> _Extremes:
        return _Extremes(np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest))


def _extremes(X: Any, Y: Any, c: np.ndarray | None) -> _Extremes:
    if c is not None and not c.all():
        X = X[c > 0]
    if X.shape[0] == 0:
        return _Extremes(np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf))
    least, greatest = X.min(axis=0), X.max(axis=0)
    if sp.issparse(X):
        return _Extremes(least.toarray().ravel(), greatest.toarray().ravel())
    return _Extremes(least, greatest)


def _ranges_of_two_values(blocks: MemoryBlocks, spread: np.ndarray) -> np.ndarray:
    """Greatest less least value of the columns that take two values only and are rarely at one of them; else 0."""
    extremes = blocks.map_sum(_extremes)
    ranges = extremes.greatest - extremes.least
    rare = np.flatnonzero(spread < _RARE * ranges)
    out = np.zeros_like(spread)
    if rare.size:
        low, high = extremes.least[rare], extremes.greatest[rare]

        def between(X: Any, Y: Any, c: Any) -> np.ndarray:
            columns = X[:, rare].toarray() if sp.issparse(X) else X[:, rare]
            found = (columns != low) & (columns != high)
            return found.sum(axis=0) if c is None else (c > 0) @ found

        two = blocks.map_sum(between) == 0
        out[rare[two]] = ranges[rare[two]]
    return out
