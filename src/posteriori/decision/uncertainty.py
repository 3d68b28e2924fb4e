"""How unsure a prediction is, and how much of that more data would remove."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Uncertainty", "entropy"]


class Uncertainty(NamedTuple):
    """The entropy of predictions and its two parts, in nats, (n,) each: total = aleatoric + epistemic.

    See docs/theory.md, section 4.4.
    """

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


def entropy(P: np.ndarray, axis: int = -1) -> np.ndarray:
    """-sum p log p along an axis, in nats, with 0 log 0 = 0.

    >>> entropy(np.array([0.5, 0.5, 0.0])).round(6)
    np.float64(0.693147)
    """
    return -(P * np.log(np.where(P > 0, P, 1.0))).sum(axis=axis)
