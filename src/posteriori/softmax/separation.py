"""Separation put into words: which classes can be told apart without error, and by which features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.rows.blocks import Blocks
from posteriori.softmax import kernels

__all__ = ["SeparatedClasses", "separated_classes"]


@dataclass(frozen=True)
class SeparatedClasses:
    """A direction of the weights along which the likelihood grows for ever.

    Attributes
    ----------
    direction : ndarray (K, D')
        Added to the weights in any amount, it takes no row's own class down and some row's up.
    pairs : list of (int, int)
        Indices of the classes it tells apart without error.
    """

    direction: np.ndarray
    pairs: list[tuple[int, int]]
    spread: np.ndarray
    """Standard deviations of the features, (D,), by which their part in the direction is judged."""

    def sentence(self, classes: np.ndarray, names: list[str] | None) -> str:
        """What a user should know and do."""
        i, j = self.pairs[0] if self.pairs else (0, 1)
        contrast = self.direction[i, : self.spread.size] - self.direction[j, : self.spread.size]
        strength = np.abs(contrast * self.spread)
        strongest = np.argsort(-strength, kind="stable")[:3]
        top = [int(d) for d in strongest if strength[d] > 1e-3 * strength[strongest[0]]]
        along = ", ".join(f"{names[d] if names else f'column {d}'} ({contrast[d]:+.3g})" for d in top)
        others = f" (and {len(self.pairs) - 1} more pairs)" if len(self.pairs) > 1 else ""
        return (
            f"Classes {classes[i]!s} and {classes[j]!s}{others} are separated: a combination of features"
            f"{f' led by {along}' if along else ''} tells them apart without error, so the likelihood has no maximum "
            "and its coefficients would grow without limit. The finite ones returned are where the iteration "
            "stopped. Use a prior (alpha > 0), remove the feature, or merge the classes."
        )


def separated_classes(blocks: Blocks, direction: np.ndarray, spread: np.ndarray) -> SeparatedClasses:
    """The pairs of classes that a separating direction tells apart: no row is worse off, and some are better."""
    margins = blocks.map_sum(kernels.pair_margins, direction)
    width = max(float(np.max(margins.greatest, initial=0.0)), np.finfo(float).tiny)
    none_worse = np.minimum(margins.least, margins.least.T) >= -1e-5 * width
    some_better = np.maximum(margins.greatest, margins.greatest.T) > 1e-3 * width
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(none_worse & some_better, 1))]
    return SeparatedClasses(direction, pairs, spread)
