r"""Labels that may be wrong: y is drawn from (1 - eps) p + eps / K."""

from __future__ import annotations

import numpy as np

__all__ = ["clean_label_shares"]


def clean_label_shares(log_p: np.ndarray, rate: float, n_classes: int) -> np.ndarray:
    """Probability that each row's label is its own, (1 - eps) p_y / ((1 - eps) p_y + eps / K), from log p_y (n,).

    >>> clean_label_shares(np.log([0.5, 0.0025]), 0.01, 4).round(3)
    array([0.995, 0.497])
    """
    if rate == 0:
        return np.ones_like(log_p)
    own = np.log1p(-rate) + log_p
    return np.exp(own - np.logaddexp(own, np.log(rate / n_classes)))
