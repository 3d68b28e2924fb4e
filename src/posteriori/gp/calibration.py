r"""How surely to predict, learned from rows that are left out.

A Gaussian process knows what it would have predicted for each row without it: the posterior without the row's site.
Real classes are often easier to tell than a prior of one lengthscale believes, so that the variances of the latents are
too wide. They are multiplied by a factor kappa, the spread, under which left-out rows are predicted best.

The evidence of a kernel is the probability of all labels together; what counts is that of a row given all others. Where
the model is right both ask for the same kernel. Where rows come in clusters, or rules have no exceptions, the spread is
far below one, and left-out rows are predicted better still with other lengthscales: all of them times e^{-0.4}, or
e^{0.4}, and scales times e^{0.8}, as often as left-out rows, each kernel with its own best spread, gain by more than
chance explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from posteriori.gp.coupled import CoupledSweep, RowSites, SiteParameters, Solved
from posteriori.gp.independent import independent_variances
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Kernel
from posteriori.gp.learning import KernelState, settle
from posteriori.gp.output import log_mislabelled
from posteriori.gp.repeats import MergedRows
from posteriori.maths.largest import log_largest

__all__ = ["LeftOutLatents", "Refinement", "left_out_score", "left_out_spread", "refined"]

_LOG_SPREADS = (float(np.log(0.02)), float(np.log(3.0)))
_LOG_SPREAD = 0.3
"""The scale of the Cauchy prior of the logarithm of the spread."""
_LEAST = 0.05
"""The least variance of a latent with its noise, whose variance is 1."""
_TOO_WIDE = 0.75
"""The spread below which other lengthscales and scales are tried."""
_DIRECTIONS = ((-0.4, 0.0), (0.4, 0.0), (0.0, 0.8))
"""Steps of the logarithms of all lengthscales and of all scales."""
_MOST_STEPS = 5
"""The number of steps in each direction."""
_ERRORS, _NATS = 2.0, 1.5
"""The gain that a step must be worth: so many standard errors, and so many nats."""
_NEAR = 3e-4
"""The change of the energy over a sweep, for each row, at which sites are near enough to be judged."""
_MOST_SWEEPS = 40


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


def _gain(gains: np.ndarray, c: np.ndarray) -> tuple[float, float]:
    """The sum of gains of rows with weights c, (n,), and its standard error."""
    return float(c @ gains), float(
        np.sqrt(c.sum() * np.average((gains - np.average(gains, weights=c)) ** 2, weights=c))
    )


def left_out_spread(fits: Sequence[LeftOutLatents], rows: LabelledRows, rate: float) -> float:
    r"""The factor kappa on variances under which left-out rows are predicted best (docs/theory.md, section 6.8).

    The terms are noisy, and a little too good, as all rows had a say in the kernel: log kappa has a Cauchy prior around
    zero and, with g the gain over kappa = 1 and s its standard error, is shrunk by the factor max(0, 1 - (s / g)^2).
    """

    def loss(log_kappa: float) -> float:
        gain = rows.c @ _log_probabilities(fits, rows.y, rate, float(np.exp(log_kappa)))
        return float(np.log1p((log_kappa / _LOG_SPREAD) ** 2) - gain)

    best = float(minimize_scalar(loss, bounds=_LOG_SPREADS, method="bounded", options={"xatol": 0.02}).x)
    gains = _log_probabilities(fits, rows.y, rate, float(np.exp(best))) - _log_probabilities(fits, rows.y, rate)
    gain, error = _gain(gains, rows.c)
    return 1.0 if gain <= error else float(np.exp(best * (1.0 - (error / gain) ** 2)))


class Refinement(NamedTuple):
    """A state of the kernel, the sites near their fixed point, and how far the state is from the one at the start."""

    state: KernelState
    sites: SiteParameters
    log_length: float
    log_scale: float


class _Trial(NamedTuple):
    at: Refinement
    spread: float
    log_p: np.ndarray
    """The log-probabilities of left-out labels with the best spread, (n,)."""


def refined(
    kernel: Kernel, state: KernelState, sites: RowSites, start: SiteParameters, merged: MergedRows, rate: float
) -> Refinement:
    """The state that left-out rows prefer: the one given, where latents are not far too wide.

    See docs/theory.md, section 6.8.

    Parameters
    ----------
    kernel : Kernel
    state : KernelState
        Scales are in units of the noise.
    sites : RowSites
    start : SiteParameters
        Where the sites begin.
    merged : MergedRows
    rate : float
        The rate of mislabelled rows.
    """

    def judged(log_length: float, log_scale: float, begin: SiteParameters) -> _Trial | None:
        moved = KernelState(kernel.lengthened(state.free, log_length), state.log_scale + log_scale)
        visit, found = _near_fixed_point(kernel, moved, sites, begin, merged.rows)
        if visit is None:
            return None
        left = LeftOutLatents.of(visit.solved, merged)
        spread = left_out_spread([left], merged.rows, rate)
        log_p = left.log_probabilities(merged.rows.y, rate, spread)
        return _Trial(Refinement(moved, found, log_length, log_scale), spread, log_p)

    best = judged(0.0, 0.0, start)
    if best is None:
        return Refinement(state, start, 0.0, 0.0)
    if best.spread > _TOO_WIDE:
        return best.at
    for by_length, by_scale in _DIRECTIONS:
        for _ in range(_MOST_STEPS):
            tried = judged(best.at.log_length + by_length, best.at.log_scale + by_scale, best.at.sites)
            if tried is None:
                break
            gain, error = _gain(tried.log_p - best.log_p, merged.rows.c)
            if gain <= max(_NATS, _ERRORS * error):
                break
            best = tried
    return best.at


def _near_fixed_point(
    kernel: Kernel, state: KernelState, sites: RowSites, begin: SiteParameters, rows: LabelledRows
) -> tuple[CoupledSweep | None, SiteParameters]:
    """The last sweep over sites near their fixed point, and these; None where they do not get there."""
    with np.errstate(all="ignore"):
        gram = kernel.gram(state.free, rows.X, rows.X)
        try:
            found, visit, _, _ = settle(sites, gram, state.variances, begin, _NEAR * len(rows.y), _MOST_SWEEPS)
        except (FloatingPointError, ValueError):
            return None, begin
    return (visit if np.isfinite(visit.energy) else None), found
