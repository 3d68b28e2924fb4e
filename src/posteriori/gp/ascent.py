"""The options of a fit, and the ascent of an energy that they guide: its learning rate, and its end.

Steps are compiled in chunks.

The learning rate stays as it is while the energy rises by more than `tol` of its own size from one chunk to the next;
then it is cut, and after the third cut the ascent ends. So the energy decides, not a number of epochs.

Where rows come in batches or samples, energies are noisy, and slow progress hides in the noise. Then a line is fitted
to the second half of all chunks since the last cut, and its rise must exceed `tol` and twice its standard error: the
longer a rate has served, the slower a rise is seen. Long steps wander about in the noise, and shorter ones need time to
make up for it: every rate serves at least half as long as the one before, and the first two cuts come at the latest
when a half and three quarters of all steps are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from posteriori.gp.checkpoint import FIRST_JITTER, Checkpoint, Position
from posteriori.gp.progress import Report
from posteriori.gp.solution import Chunk
from posteriori.solvers.solution import Status

__all__ = ["Advance", "Ascent", "FitOptions", "ascend"]

_CUT = 0.3
"""The factor by which a learning rate is cut."""
_CUTS = 3
"""The number of cuts after which an ascent ends."""
_FEWEST = 5
"""The number of points that a line is fitted to, at least."""
_JITTERS = (FIRST_JITTER, 1e-5, 1e-4, 1e-3, 1e-2)
"""What is added to the diagonal of K_zz, in units of its mean: the next larger one where an energy is not finite."""

_SAVE_EVERY = 5.0
"""Seconds between checkpoints."""
_NOT_FINITE = (
    "The energy ceased to be finite, even with a jitter of {:g} on the diagonal of the kernel matrix of the inducing "
    "inputs: check X for columns of extreme scale, or use fewer inducing inputs."
)


Advance = Callable[[Any, int, float, float], tuple[Any, np.ndarray]]
"""One compiled chunk: from (state, steps taken, rate, jitter) to (state, energies of the steps)."""


@dataclass(frozen=True)
class Ascent:
    """The end of an ascent: its state, status, steps, jitter and trace."""

    state: Any
    status: Status
    n_steps: int
    jitter: float
    trace: list[Chunk] = field(repr=False)

    @property
    def energy(self) -> float:
        """The last energy that was seen."""
        return self.trace[-1].energy if self.trace else -np.inf


def ascend(
    advance: Advance,
    state: Any,
    at: Position,
    *,
    tol: float,
    max_iter: int,
    noisy: int = 0,
    watch: Callable[[Any, Position, Chunk], None] | None = None,
) -> Ascent:
    """Ascend until the energy rises no more; the best state seen is kept or, if energies are noisy, the last.

    Parameters
    ----------
    advance : callable
        From (state, steps taken, rate, jitter) to (state, energies of the steps): one compiled chunk.
    state
        The state to begin with; it is replaced, never changed.
    at : Position
        Steps taken so far and the learning rate.
    tol : float
        The relative rise of the energy below which the learning rate is cut.
    max_iter : int
        The number of steps, at most.
    noisy : int
        If energies are of batches or samples: how many chunks make a mean to be compared; 0 if there is no noise.
    watch : callable, optional
        Called with (state, position, chunk) after every chunk.

    Raises
    ------
    FloatingPointError
        If the energy is not finite with the largest jitter.
    """
    began, trace = perf_counter(), list[Chunk]()
    best = (-np.inf, state)
    status = Status.ITERATION_LIMIT
    try:
        while at.n_steps < max_iter and at.n_cuts < _CUTS:
            after, energies = advance(state, at.n_steps, at.rate, at.jitter)
            if not np.isfinite(energies).all():
                at, state = _steadier(at), best[1]
                continue
            state = after
            now = float((energies if noisy else energies[len(energies) // 2 :]).mean())
            at = at._replace(n_steps=min(at.n_steps + len(energies), max_iter), since=(*at.since, now))
            if noisy or now >= best[0]:
                best = (now, state)
            if _rests_in_noise(at, noisy, tol, max_iter) if noisy else _rests(at.since, tol):
                at = _with_cut(at, forget=bool(noisy))
            trace.append(Chunk(at.n_steps, now, at.rate, perf_counter() - began))
            if watch is not None:
                watch(state, at, trace[-1])
        if at.n_cuts >= _CUTS:
            status = Status.CONVERGED
    except KeyboardInterrupt:
        if not trace:
            raise
        status = Status.INTERRUPTED
    return Ascent(best[1], status, at.n_steps, at.jitter, trace)


def _with_cut(at: Position, *, forget: bool) -> Position:
    """The position with a shorter learning rate; the last energy stays for comparison unless all are forgotten."""
    return at._replace(
        n_cuts=at.n_cuts + 1,
        rate=_CUT * at.rate,
        since=() if forget else at.since[-1:],
        n_before=len(at.since),
    )


def _rests(energies: Sequence[float], tol: float) -> bool:
    """Whether the last chunk is hardly higher than the one before."""
    return len(energies) > 1 and bool(energies[-1] - energies[-2] < tol * max(abs(energies[-1]), 1.0))


def _rests_in_noise(at: Position, together: int, tol: float, max_iter: int) -> bool:
    """Whether a line through the second half of the energies hardly rises, or no more than by chance."""
    if at.n_cuts < _CUTS - 1 and at.n_steps >= (1.0 - 0.5 ** (at.n_cuts + 1)) * max_iter:
        return True
    n = len(at.since) // (2 * together)
    if n < _FEWEST or len(at.since) < 0.5 * at.n_before:
        return False
    late = np.array(at.since[-n * together :]).reshape(n, together).mean(axis=1)
    x = np.arange(n) - 0.5 * (n - 1)
    slope = x @ late / (x @ x)
    error = np.sqrt(((late - late.mean() - slope * x) ** 2).sum() / (n - 2) / (x @ x))
    return bool(n * slope < max(tol * max(abs(late.mean()), 1.0), 2.0 * n * error))


def _steadier(at: Position) -> Position:
    """The position with the next larger jitter and half the learning rate; raises after the largest jitter."""
    larger = [value for value in _JITTERS if value > at.jitter]
    if not larger:
        raise FloatingPointError(_NOT_FINITE.format(at.jitter))
    return at._replace(jitter=larger[0], rate=0.5 * at.rate, since=())


@dataclass(frozen=True)
class FitOptions:
    """The options of one fit: power, batches, learning rate, when it ends, and who watches it."""

    power: float
    batch_size: int
    rate: float
    tol: float
    max_iter: int
    seed: int
    calibrate: bool = True
    device: str | None = None
    n_learning: int | None = None
    checkpoint: Checkpoint | None = None
    report: Report | None = None

    def ascend(self, advance: Advance, state: Any, noisy: int) -> Ascent:
        """Ascend from this state, or from where a checkpoint has it."""
        at = Position(0, self.rate)
        saved = None if self.checkpoint is None else self.checkpoint.load(state)
        if saved is not None:
            state, at = saved
        saved_at = perf_counter()

        def watch(state: Any, at: Position, chunk: Chunk) -> None:
            nonlocal saved_at
            if self.report is not None:
                self.report(chunk)
            if self.checkpoint is not None and perf_counter() - saved_at > _SAVE_EVERY:
                self.checkpoint.save(state, at)
                saved_at = perf_counter()

        return ascend(advance, state, at, tol=self.tol, max_iter=self.max_iter, noisy=noisy, watch=watch)

    def finish(self, energy: float, jitter: float, status: Status) -> None:
        """Raise if the final energy is not finite; remove the checkpoint of a fit that was not interrupted."""
        if not np.isfinite(energy):
            raise FloatingPointError(_NOT_FINITE.format(jitter))
        if self.checkpoint is not None and status is not Status.INTERRUPTED:
            self.checkpoint.remove()
