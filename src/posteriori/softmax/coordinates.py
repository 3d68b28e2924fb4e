"""Units and origins: linear changes of the features, and what they make of the parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.rows.blocks import Blocks
from posteriori.rows.extremes import extremes
from posteriori.softmax.moments import ObservedMoments

__all__ = ["CommonUnits", "CoordinateRule", "Coordinates", "StepUnits"]

_SMALLEST = 1e-300
"""The least size to which a column is scaled: one over smaller numbers is infinite."""


@dataclass(frozen=True)
class StepUnits:
    """The spread of each column; but the step from one value to the other in blocks of columns of two values.

    See docs/theory.md, section 3.1.

    The levels of a category then share a prior on what it means to be of a level, however many rows a level has: the
    spread of a rare level is small, and its weight would be held back the less, the fewer rows speak about it.
    """

    groups: np.ndarray
    """The number of each column's block, (D,)."""

    def of(self, spread: np.ndarray, ranges: np.ndarray, two_values: np.ndarray) -> np.ndarray:
        """The unit of each column, (D,), from its spread, its range and whether it takes two values at most."""
        steps = np.ones(self.groups.max() + 1, dtype=bool)
        np.logical_and.at(steps, self.groups, two_values)
        return np.where(steps[self.groups], ranges, spread)


@dataclass(frozen=True)
class CommonUnits:
    """One unit for all columns of a block, so that they differ as they do in the data: the largest of their spreads."""

    groups: np.ndarray
    """The number of each column's block, (D,)."""

    def of(self, spread: np.ndarray, ranges: np.ndarray, two_values: np.ndarray) -> np.ndarray:
        """The unit of each column, (D,), from its spread."""
        largest = np.zeros(self.groups.max() + 1)
        np.maximum.at(largest, self.groups, spread)
        return largest[self.groups]


@dataclass(frozen=True)
class CoordinateRule:
    """The coordinates of a fit that a prior needs.

    Attributes
    ----------
    scaled : bool
        Whether the prior is stated for columns that are centred and of unit spread.
    shift_allowed : bool
        Whether a column may be moved to another origin: the prior does not hold the intercepts at the old one.
    keep_constant : bool
        Whether a constant column stays what it is.
    largest_scale : float
        The most by which a column may be multiplied. A prior stated for tiny values is multiplied by its square, and
        must stay a number.
    units : StepUnits, CommonUnits or None
        The units of scaled columns where they are not all scaled to unit spread.
    """

    scaled: bool
    shift_allowed: bool
    keep_constant: bool = False
    largest_scale: float = np.inf
    units: StepUnits | CommonUnits | None = None


@dataclass(frozen=True)
class Coordinates:
    """x' = (x - shift) * scale, and what that makes of parameters (K, D') with the intercept last.

    See docs/theory.md, section 3.1.

    Point estimates are computed with the data as they are (both None), but for columns whose digits or squares
    float64 would lose: a mean a thousand times the spread, values beyond 1e70. Priors that are to be free of units
    are stated for centred and scaled columns. Sparse columns cannot be centred: `centre` then says where their middle
    is.

    Attributes
    ----------
    shift, scale : ndarray (D,) or None
    centre : ndarray (D',) or None
        The mean row of x' and a one, where that is not the origin.
    """

    shift: np.ndarray | None = None
    scale: np.ndarray | None = None
    centre: np.ndarray | None = None

    @classmethod
    def safe_for(cls, blocks: Blocks, observed: ObservedMoments, rule: CoordinateRule) -> Coordinates:
        """The coordinates nearest to the data's in which sums of squares keep their digits."""
        size = np.sqrt(observed.squares / max(observed.class_sizes.sum(), np.finfo(float).tiny))
        filled = (size > 0) | observed.moments[:, :-1].any(axis=0)  # squares of values below 1e-154 vanish
        if not observed.finite or (filled & ((size > 1e70) | (size < 1e-70))).any():
            largest = blocks.map_sum(extremes).largest
            scale = 1.0 / np.where(largest > 0, np.maximum(largest, _SMALLEST), 1.0)
            return cls(scale=np.minimum(scale, rule.largest_scale))
        if rule.shift_allowed and not blocks.sparse:
            far = np.abs(observed.mean) > 1e3 * np.sqrt(observed.variance)
            if far.any():
                if rule.keep_constant:
                    far &= blocks.map_sum(extremes).ranges > 0
                return cls(shift=np.where(far, observed.mean, 0.0)) if far.any() else cls()
        return cls()

    def inward(self, theta: np.ndarray) -> np.ndarray:
        """Parameters for x' from those for x."""
        theta = theta.copy()
        if self.shift is not None and theta.shape[1] > self.shift.size:
            theta[:, -1] += theta[:, : self.shift.size] @ self.shift
        if self.scale is not None:
            theta[:, : self.scale.size] /= self.scale
        return theta

    def outward(self, theta: np.ndarray) -> np.ndarray:
        """Parameters for x from those for x'."""
        theta = theta.copy()
        if self.scale is not None:
            theta[:, : self.scale.size] *= self.scale
        if self.shift is not None and theta.shape[1] > self.shift.size:
            theta[:, -1] -= theta[:, : self.shift.size] @ self.shift
        return theta

    def outward_rounding(self, theta: np.ndarray) -> np.ndarray:
        """The most that each parameter for x', (K, D'), changes as those for x are rounded to float64.

        Far from the origin a row's logit is a small difference of large numbers, w . x and the intercept.
        """
        if self.is_identity:
            return np.zeros_like(theta)
        rounding = np.abs(theta)
        if self.shift is not None and theta.shape[1] > self.shift.size:
            W = np.abs(self.outward(theta)[:, : self.shift.size])
            rounding[:, -1] += 2.0 * W @ np.abs(self.shift)
        return np.finfo(float).eps * rounding

    @classmethod
    def standard(cls, safe: Coordinates, observed: ObservedMoments, spread: np.ndarray, centred: bool) -> Coordinates:
        """Coordinates of the given spread, centred if they can be; spread and moments are in coordinates `safe`."""
        scale = 1.0 / np.where(spread > 0, spread, 1.0)
        inner = np.ones_like(scale) if safe.scale is None else safe.scale
        shift = None
        if centred:
            shift = observed.mean / inner + (0.0 if safe.shift is None else safe.shift)
        return cls(shift, scale * inner, None if centred else np.append(observed.mean * scale, 1.0))

    @property
    def unit(self) -> np.ndarray | float:
        """One unit of x' in those of x, (D,)."""
        return 1.0 if self.scale is None else 1.0 / self.scale

    def centring_matrix(self, width: int) -> np.ndarray:
        """C (D', D'): C theta'_k has the logit of the mean row in place of the intercept."""
        C = np.eye(width)
        if self.centre is not None and width == self.centre.size:
            C[-1] = self.centre
        return C

    @property
    def is_identity(self) -> bool:
        """Whether x' is x."""
        return self.shift is None and self.scale is None

    def outward_matrix(self, width: int) -> np.ndarray:
        """M (D', D') with theta_k = M theta'_k for each class: what `outward` does."""
        return self.outward(np.eye(width)).T
