"""A prior with one precision for each block of columns, chosen by the evidence.

With a_b for block b, every weight of class k and column d in b is N(0, 1 / a_b). The levels of a category are a block:
what they share is learned from all of them, and a level with few rows is held near the others. A block without effect
is switched off, as a column is by automatic relevance determination, of which this is the case of one column a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.parameters import finite_numbers, require_flag
from posteriori.softmax.column_blocks import ColumnBlocks, column_blocks
from posteriori.softmax.coordinates import CommonUnits, CoordinateRule, Coordinates, StepUnits
from posteriori.softmax.precision import Precision
from posteriori.softmax.priors import GaussianPrior
from posteriori.softmax.searched import SearchedPrior

__all__ = ["BlocksPrior", "searched_blocks"]


class BlocksPrior(SearchedPrior):
    """A prior with one precision for each block of columns (docs/theory.md, section 3.3).

    Parameters
    ----------
    blocks : as in `column_blocks`
        None reads them off the names of the columns.
    standardised : bool
        Whether columns of a block are alike when each is in units of its spread, or of its step between two values;
        otherwise they are alike in the units of the data.
    """

    note = " (one per block of columns, by evidence)"

    def __init__(self, blocks: Any = None, standardised: bool = True) -> None:
        self.blocks, self.standardised = blocks, standardised

    def for_columns(self, names: list[str] | None, shape: tuple[int, int]) -> BlocksPrior:
        """The prior with its blocks as numbers of D columns."""
        return BlocksPrior(column_blocks(self.blocks, names, shape[1]), self.standardised)

    def groups(self, D: int) -> np.ndarray:
        """The block of each column."""
        return column_blocks(self.blocks, None, D).groups

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """Scaled columns, in units that a block shares where it is alike in those."""
        assert isinstance(self.blocks, ColumnBlocks)
        units = StepUnits if self.standardised else CommonUnits
        return CoordinateRule(scaled=True, shift_allowed=has_intercept, units=units(self.blocks.groups))

    def block_precisions(self, found: Precision, coordinates: Coordinates) -> dict[Any, float]:
        """The precision of each block by its label, in the units in which its columns are alike."""
        assert isinstance(self.blocks, ColumnBlocks)
        first = np.unique(self.blocks.groups, return_index=True)[1]  # a block has one precision: look at one column
        unit = np.ones(self.blocks.groups.size) * (1.0 if self.standardised else coordinates.unit)
        values = found.diagonal[0, first] * unit[first] ** 2
        return dict(zip(self.blocks.labels, values.tolist(), strict=True))


def searched_blocks(prior: GaussianPrior) -> BlocksPrior:
    """The search that a `GaussianPrior` with blocks, and without precisions, asks for."""
    require_flag("autoscale", prior.autoscale)
    if finite_numbers("mean", prior.mean).any() or prior.intercept_precision is not None:
        raise ValueError(
            "The precisions of the prior's blocks are chosen by the evidence, which needs mean=0 and "
            f"intercept_precision=None, and mean={prior.mean!r} and intercept_precision={prior.intercept_precision!r} "
            "were given: leave them out, or give precision as a dict from block to number."
        )
    return BlocksPrior(prior.blocks, bool(prior.autoscale))
