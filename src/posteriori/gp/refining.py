r"""Lengthscales and scales as left-out rows ask for them, where the evidence leaves the latents far too wide.

The evidence of a kernel is the probability of all labels together; what counts is that of a row given all others. Where
the model is right both ask for the same kernel. Where rows come in clusters, or rules have no exceptions, left-out rows
are predicted far better with much narrower latents (a spread far below one, `gp.calibration`), and then better still
with other lengthscales: all of them times e^{-0.4}, or e^{0.4}, and scales times e^{0.8}, as often as left-out rows,
each kernel with its own best spread, gain by more than chance explains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posteriori.gp.calibration import LeftOutLatents, left_out_gain, left_out_spread
from posteriori.gp.coupled import CoupledSweep, RowSites, SiteParameters
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Kernel
from posteriori.gp.learning import KernelState, settle
from posteriori.gp.repeats import MergedRows

__all__ = ["Refinement", "refined"]

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


class Refinement(NamedTuple):
    """A state of the kernel, the sites near their fixed point, and how far the state is from the one at the start."""

    state: KernelState
    sites: SiteParameters
    log_length: float
    log_scale: float


class _Judged(NamedTuple):
    at: Refinement
    spread: float
    log_p: np.ndarray
    """The log-probabilities of left-out labels with the best spread, (n,)."""


def refined(
    kernel: Kernel, state: KernelState, sites: RowSites, start: SiteParameters, merged: MergedRows, rate: float
) -> Refinement:
    """The state that left-out rows prefer: the one given, where latents are not far too wide.

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

    def judged(log_length: float, log_scale: float, begin: SiteParameters) -> _Judged | None:
        moved = KernelState(kernel.lengthened(state.free, log_length), state.log_scale + log_scale)
        visit, found = _near_fixed_point(kernel, moved, sites, begin, merged.rows)
        if visit is None:
            return None
        left = LeftOutLatents.of(visit.solved, merged)
        spread = left_out_spread([left], merged.rows, rate)
        log_p = left.log_probabilities(merged.rows.y, rate, spread)
        return _Judged(Refinement(moved, found, log_length, log_scale), spread, log_p)

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
            gain, error = left_out_gain(tried.log_p - best.log_p, merged.rows.c)
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
