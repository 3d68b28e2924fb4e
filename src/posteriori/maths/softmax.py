"""Softmax of logits (K, n), one column for each row of data, in place."""

from __future__ import annotations

import numpy as np

__all__ = ["log_softmax_in_place", "softmax_in_place"]


def softmax_in_place(F: np.ndarray) -> np.ndarray:
    """Turn logits (K, n) into probabilities in place and return log sum_k exp f_kn, shape (n,).

    >>> F = np.array([[0.0, 1e308], [np.log(3.0), -1e308]])
    >>> softmax_in_place(F)
    array([1.38629436e+000, 1.00000000e+308])
    >>> F
    array([[0.25, 1.  ],
           [0.75, 0.  ]])
    """
    top = F.max(axis=0)
    with np.errstate(over="ignore"):  # a difference below -1e308 is -inf, and its exponential 0: as it should be
        F -= top
    np.exp(F, out=F)
    total = np.ones(F.shape[0]) @ F
    F *= np.reciprocal(total)
    np.log(total, out=total)
    total += top
    return total


def log_softmax_in_place(F: np.ndarray) -> np.ndarray:
    """Turn logits (K, n) into log-probabilities in place, exact however small they are."""
    with np.errstate(over="ignore"):
        F -= F.max(axis=0)
        F -= np.log(np.exp(F).sum(axis=0))
    return F
