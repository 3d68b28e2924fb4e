"""The options of one fit of a Gaussian process, and how they guide an ascent."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from posteriori.gp.ascent import NOT_FINITE, Advance, Ascent, ascend
from posteriori.gp.checkpoint import Checkpoint, Position
from posteriori.gp.progress import Report
from posteriori.gp.solution import Chunk
from posteriori.solvers.solution import Status

__all__ = ["FitOptions"]

_SAVE_EVERY = 5.0
"""Seconds between checkpoints."""


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
            raise FloatingPointError(NOT_FINITE.format(jitter))
        if self.checkpoint is not None and status is not Status.INTERRUPTED:
            self.checkpoint.remove()
