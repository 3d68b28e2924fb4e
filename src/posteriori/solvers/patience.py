"""When to stop for want of progress: a decrement that is all rounding does not fall, however many steps are taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["FAINT", "Patience"]

FAINT = 1e-10
"""Share of J below which a decrement that cannot be lowered is rounding."""


@dataclass
class Patience:
    """Counts the steps since the decrement last fell to half of what it was.

    >>> patience = Patience(steps=2)
    >>> [patience.is_over(gap, 1.0) for gap in (1.0, 1.0, 1.0, 1e-12, 2e-12, 1e-12)]
    [False, False, False, False, False, True]
    """

    steps: int = 20
    least: float = np.inf
    n_in_vain: int = 0

    def is_over(self, gap: float, value: float) -> bool:
        """Whether a decrement that is faint beside J has hardly fallen for so many steps that it will not fall."""
        if gap < 0.5 * self.least:
            self.least, self.n_in_vain = gap, 0
        else:
            self.n_in_vain += 1
        return self.n_in_vain >= self.steps and gap <= FAINT * abs(value)
