r"""How surely to predict, learned from rows that are left out.

A Gaussian process knows what it would have predicted for each row without it: the posterior without the row's site.
Real classes are often easier to tell than a prior of one lengthscale believes, so that the variances of the latents are
too wide. They are multiplied by a factor kappa, the spread, under which left-out rows are predicted best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from posteriori.gp.coupled import Solved
from posteriori.gp.independent import independent_variances
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.output import log_mislabelled
from posteriori.gp.repeats import MergedRows
from posteriori.maths.largest import log_largest

__all__ = ["LeftOutLatents", "left_out_gain", "left_out_score", "left_out_spread"]

_LOG_SPREADS = (float(np.log(0.02)), float(np.log(3.0)))
_LOG_SPREAD = 0.3
"""The scale of the Cauchy prior of the logarithm of the spread."""
_LEAST = 0.05
"""The least variance of a latent with its noise, whose variance is 1."""


class LeftOutLatents(NamedTuple):
    """Means and variances (K, n) of independent latents of all rows, each without itself, in units of the noise."""

    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, solved: Solved, merged: MergedRows) -> LeftOutLatents:
        """The latents of rows under a posterior, each without one row of its own; copies of a row are one."""
        mean, covariance = solved.left_out(1.0 / merged.counts)
        return cls(mean, independent_variances(mean, covariance, 1.0))

    def log_probabilities(self, y: np.ndarray, rate: float, spread: float = 1.0) -> np.ndarray:
        """The log-probabilities of the labels y, (n,), with variances multiplied by the spread."""
        log_z = log_largest(self.mean, np.maximum(spread * self.variance + 1.0, _LEAST), y)
        return log_mislabelled(log_z, rate, len(self.mean))


def _log_probabilities(fits: Sequence[LeftOutLatents], y: np.ndarray, rate: float, spread: float = 1.0) -> np.ndarray:
    """The log-probabilities of the labels under the average of several fits, (n,)."""
    return logsumexp([fit.log_probabilities(y, rate, spread) for fit in fits], axis=0) - np.log(len(fits))


def left_out_score(fits: Sequence[LeftOutLatents], rows: LabelledRows, rate: float) -> float:
    """The sum of the log-probabilities of left-out labels under the average of several fits."""
    return float(rows.c @ _log_probabilities(fits, rows.y, rate))


def left_out_gain(gains: np.ndarray, c: np.ndarray) -> tuple[float, float]:
    """The sum of gains of rows with weights c, (n,), and its standard error."""
    return float(c @ gains), float(
        np.sqrt(c.sum() * np.average((gains - np.average(gains, weights=c)) ** 2, weights=c))
    )


def left_out_spread(fits: Sequence[LeftOutLatents], rows: LabelledRows, rate: float) -> float:
    r"""The factor kappa on variances under which left-out rows are predicted best.

    The terms are noisy, and a little too good, as all rows had a say in the kernel: log kappa has a Cauchy prior around
    zero and, with g the gain over kappa = 1 and s its standard error, is shrunk by the factor max(0, 1 - (s / g)^2).
    """

    def loss(log_kappa: float) -> float:
        gain = rows.c @ _log_probabilities(fits, rows.y, rate, float(np.exp(log_kappa)))
        return float(np.log1p((log_kappa / _LOG_SPREAD) ** 2) - gain)

    best = float(minimize_scalar(loss, bounds=_LOG_SPREADS, method="bounded", options={"xatol": 0.02}).x)
    gains = _log_probabilities(fits, rows.y, rate, float(np.exp(best))) - _log_probabilities(fits, rows.y, rate)
    gain, error = left_out_gain(gains, rows.c)
    return 1.0 if gain <= error else float(np.exp(best * (1.0 - (error / gain) ** 2)))
