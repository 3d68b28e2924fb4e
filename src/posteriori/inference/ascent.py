"""Climbing an energy whose steps are compiled in chunks: when to slow down, when to stop, what to do about NaN.

The learning rate stays as it is while the energy rises by more than `tol` of its own size from one chunk to the next;
then it is cut, and after the third cut the climb ends. So the energy decides, not a number of epochs. Where rows come
in batches or samples, energies are noisy: then means of five chunks are compared, and a rise must exceed their noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from posteriori.inference.solution import Status

__all__ = ["NOT_FINITE", "Ascent", "Chunk", "Position", "ascend"]

_CUT = 0.3
_CUTS = 3
_NOISY_WINDOW = 5
_JITTERS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""What is added to the diagonal of K_zz, in units of its mean, if less did not do."""


NOT_FINITE = (
    "The energy ceased to be finite, even with a jitter of {:g} on the diagonal of the kernel matrix of the inducing "
    "inputs: check X for columns of extreme scale, or use fewer inducing inputs."
)


class Chunk(NamedTuple):
    """How far a climb has come, for those who watch."""

    n_steps: int
    energy: float
    rate: float
    seconds: float


class Position(NamedTuple):
    """Where a climb stands, apart from its state: all it needs to go on."""

    n_steps: int
    rate: float
    n_cuts: int = 0
    since: tuple[float, ...] = ()
    """Energies of the chunks since the last cut."""
    jitter: float = _JITTERS[0]


@dataclass(frozen=True)
class Ascent:
    """Where a climb ended."""

    state: Any
    status: Status
    n_steps: int
    jitter: float
    trace: list[Chunk] = field(repr=False)

    @property
    def energy(self) -> float:
        """The last that was seen."""
        return self.trace[-1].energy if self.trace else -np.inf


def ascend(
    advance: Callable[[Any, int, float, float], tuple[Any, np.ndarray]],
    state: Any,
    at: Position,
    *,
    tol: float,
    max_iter: int,
    noisy: bool = False,
    watch: Callable[[Any, Position, Chunk], None] | None = None,
) -> Ascent:
    """Climb until the energy rises no more; the best state seen is kept.

    Parameters
    ----------
    advance : callable
        From (state, steps taken, rate, jitter) to (state, energies of the steps): one compiled chunk.
    state
        Where to begin; replaced, never changed.
    at : Position
        Steps taken so far and the learning rate.
    tol : float
        Relative rise of the energy, chunk by chunk, that is worth going on for.
    max_iter : int
        Steps, at most.
    noisy : bool
        Whether energies are of batches, and vary.
    watch : callable, optional
        Told of every chunk.

    Raises
    ------
    FloatingPointError
        If the energy is not finite, whatever the jitter.
    """
    began = perf_counter()
    trace: list[Chunk] = []
    best = (-np.inf, state)
    window = _NOISY_WINDOW if noisy else 1
    status = Status.ITERATION_LIMIT
    try:
        while at.n_steps < max_iter:
            after, energies = advance(state, at.n_steps, at.rate, at.jitter)
            if not np.isfinite(energies).all():
                at, state = _steadier(at), best[1]
                continue
            state = after
            now = float(energies[len(energies) // 2 :].mean())
            at = at._replace(n_steps=min(at.n_steps + len(energies), max_iter), since=(*at.since, now))
            level = float(np.mean(at.since[-window:])) if len(at.since) >= window else -np.inf
            if level >= best[0]:
                best = (level, state)
            if _rests(np.array(at.since), window, tol):
                at = at._replace(n_cuts=at.n_cuts + 1, rate=_CUT * at.rate, since=at.since[-window:])
            trace.append(Chunk(at.n_steps, now, at.rate, perf_counter() - began))
            if watch is not None:
                watch(state, at, trace[-1])
            if at.n_cuts == _CUTS:
                status = Status.CONVERGED
                break
    except KeyboardInterrupt:
        if not trace:
            raise
        status = Status.INTERRUPTED
    return Ascent(best[1], status, at.n_steps, at.jitter, trace)


def _rests(energies: np.ndarray, window: int, tol: float) -> bool:
    """Whether the last chunks are no higher than those before: by `tol` for each of them, and by their noise."""
    if len(energies) < 2 * window:
        return False
    before, after = energies[-2 * window : -window], energies[-window:]
    rise = after.mean() - before.mean()
    noise = np.sqrt((before.var() + after.var()) / window) if window > 1 else 0.0
    return bool(rise < max(window * tol * max(abs(after.mean()), 1.0), noise))


def _steadier(at: Position) -> Position:
    """More jitter and shorter steps, if there is any left to try."""
    larger = [value for value in _JITTERS if value > at.jitter]
    if not larger:
        raise FloatingPointError(NOT_FINITE.format(at.jitter))
    return at._replace(jitter=larger[0], rate=0.5 * at.rate, since=())
