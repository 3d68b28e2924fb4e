"""The coordinates in which a fit of Gaussian classes computes: standardised features, or those of the rows' space."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from posteriori.gaussian.niw import NormalInverseWishartPrior, WishartPrior
from posteriori.gaussian.roots import RootStatistics
from posteriori.gaussian.row_space import RowSpace, row_space
from posteriori.gaussian.statistics import ClassMoments, ClassStatistics
from posteriori.gaussian.structure import Structure

__all__ = ["StandardisedStatistics", "standardise"]

_LEAST_VARIANCE = 1e-304
"""Variances below have lost digits."""


class StandardisedStatistics:
    """The statistics of (x - origin) / unit: the prior's mean at the origin, and all columns of one spread.

    In a row space they are those of its coordinates instead, whose units are one.

    Attributes
    ----------
    structure : Structure
        The structure of covariances of the coordinates.
    origin : ndarray (D,)
    unit, variance : ndarray
        Of each coordinate: its unit, and the variance of all rows in the units of the data.
    space : RowSpace or None
    """

    def __init__(
        self, statistics: ClassMoments, origin: np.ndarray | None, structure: Structure, space: RowSpace | None = None
    ) -> None:
        variance = statistics.total_variance()  # refuses what is too large, for the mean too
        mean = statistics.grand_mean()
        self.origin = mean if origin is None else origin
        self.space, self._of_features = space, statistics
        if space is not None:
            folded = structure.folded(space.hidden)
            assert folded is not None
            self.structure, self.unit = folded, np.ones(space.basis.shape[1] + 1)
            self.variance = self.unit
            return
        # a column that is constant but for rounding has no spread to be measured by
        noise = 8.0 * np.finfo(np.float64).eps * np.abs(mean)
        with np.errstate(over="ignore"):  # an infinite square is above every variance, as it should be
            least = np.maximum(noise**2, _LEAST_VARIANCE)
        self.variance = np.where(variance > least, variance, 0.0)
        unit = structure.units(self.variance)
        self.structure, self.unit = structure, np.where(unit > 0.0, unit, 1.0)

    @cached_property
    def statistics(self) -> ClassStatistics:
        """The statistics of the coordinates, with the scatter that the structure needs."""
        kind = self.structure.scatter
        if self.space is None:
            return self._of_features.reduced(kind).standardised(self.origin, 1.0 / self.unit)
        assert isinstance(self._of_features, RootStatistics)
        return self.space.statistics(self._of_features, self.origin).reduced(kind)

    @property
    def log_unit(self) -> np.ndarray:
        """The logarithms of the units of the features, (D,)."""
        return np.log(self.unit if self.space is None else self.space.unit)

    def rows(self, X: np.ndarray) -> np.ndarray:
        """The coordinates of rows (n, D)."""
        Z = X - self.origin
        return Z / self.unit if self.space is None else self.space.coordinates(Z)

    def points(self, means: np.ndarray) -> np.ndarray:
        """The points (n, D) that have these coordinates."""
        return (means * self.unit if self.space is None else self.space.points(means)) + self.origin

    def prior(self, given: NormalInverseWishartPrior) -> WishartPrior:
        """The prior in these coordinates."""
        if self.space is not None and given.scale is not None and np.ndim(given.scale) < 2:
            given = replace(given, scale=1.0)  # the space is measured in its units
        return given.in_units(self.structure, self.unit, self.variance)


def standardise(
    statistics: ClassMoments, structure: Structure, prior: NormalInverseWishartPrior | None = None
) -> StandardisedStatistics:
    """The statistics in the coordinates that are the fewest, for a prior that is given or, with None, sought.

    Those of the rows' space serve where a rotation of the features changes nothing: neither the structure, nor the
    prior's scale, which must be a multiple of I in some units of the features.
    """
    D = statistics.means.shape[1]
    origin = None if prior is None else prior.origin(D)
    found = StandardisedStatistics(statistics, origin, structure)
    unit = found.unit if prior is None or prior.scale is None else prior.spreads(D)
    if not isinstance(statistics, RootStatistics) or structure.folded(0) is None or unit is None:
        return found
    if statistics.span >= D:
        return found
    return StandardisedStatistics(statistics, origin, structure, row_space(statistics, found.origin, unit))
