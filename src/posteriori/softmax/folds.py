r"""How strong a prior should be, by folds: where Hessians are too large to leave out one row after the other.

Rows are dealt into folds, and those of each are predicted by the mode of the others. Strengths of the prior, 4^j times
the first, are tried downhill, each mode from that of the last; the minimum of the parabola through the best three is
taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from posteriori.maths.softmax import log_softmax_in_place
from posteriori.rows.blocks import random_rows
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.products import logits
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import Precision
from posteriori.softmax.strength import StrengthPoint
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.solution import Status, run

__all__ = ["Folds", "best_factor"]

_ROWS, _FOLDS = 5_000, 5
"""Rows that are dealt, at most, and into how many folds."""
_TOL, _STEPS = 1e-4, 300
"""Relative decrement to which modes are found, and the most steps to one."""
_STEP, _MOST = np.log(4.0), 8
"""The factor between strengths, and the most steps to either side."""


class Folds:
    """Rows of a fit in folds, each predicted by the mode of the others.

    Parameters
    ----------
    likelihood : LinearLikelihood
        All rows; of many rows a random sample is dealt.
    """

    def __init__(self, likelihood: LinearLikelihood) -> None:
        self.likelihood = likelihood
        self.modes = [np.zeros(likelihood.shape) for _ in range(_FOLDS)]

    @cached_property
    def rows(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """The rows that are dealt (n, D), their targets and weights."""
        return random_rows(self.likelihood.blocks, _ROWS, np.random.default_rng(0))

    @cached_property
    def dealt(self) -> np.ndarray:
        """The fold of each row, (n,): classes are spread evenly."""
        Y = self.rows[1]
        labels = Y if Y.ndim == 1 else Y.argmax(axis=1)
        shuffled = np.random.default_rng(1).permutation(len(labels))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]
        fold = np.empty(len(labels), dtype=int)
        fold[order] = np.arange(len(labels)) % _FOLDS
        return fold

    @cached_property
    def parts(self) -> list[tuple[MemoryBlocks, ObservedMoments]]:
        """The rows outside each fold, and their moments."""
        X, Y, c = self.rows
        K = self.likelihood.shape[0]
        threads = getattr(self.likelihood.blocks, "n_threads", 1)
        out = []
        for fold in range(_FOLDS):
            kept = np.flatnonzero(self.dealt != fold)
            blocks = MemoryBlocks(X[kept], Y[kept], None if c is None else c[kept], K, n_threads=threads)
            out.append((blocks, ObservedMoments.of(blocks, K)))
        return out

    def loss(self, precision: Precision) -> float:
        """The mean log-loss of all rows under the modes of the other folds, for a prior of this precision."""
        X, Y, c = self.rows
        total = 0.0
        weights = np.ones(len(Y)) if c is None else c
        for fold, (blocks, observed) in enumerate(self.parts):
            objective = SoftmaxObjective(blocks, observed, precision)
            best, status, _ = run(Automatic().steps(objective, self.modes[fold], _TOL), _STEPS)
            self.modes[fold] = best.theta
            if status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            out = np.flatnonzero(self.dealt == fold)
            log_p = log_softmax_in_place(logits(X[out], best.theta))
            own = log_p[Y[out], np.arange(out.size)] if Y.ndim == 1 else np.einsum("nk,kn->n", Y[out], log_p)
            total -= float(weights[out] @ own)
        return total / float(weights.sum())


def best_factor(folds: Folds, objective_at: Callable[[float], SoftmaxObjective]) -> tuple[float, list[StrengthPoint]]:
    """The factor on a prior's precisions with which folds are predicted best, and the strengths that were tried."""
    losses: dict[int, float] = {}

    def loss(step: int) -> float:
        if step not in losses:
            losses[step] = folds.loss(objective_at(float(np.exp(step * _STEP))).prior)
        return losses[step]

    best = 0
    for direction in (-1, 1):
        while abs(best) < _MOST and loss(best + direction) < loss(best):
            best += direction
        if best != 0:
            break
    path = [StrengthPoint(float(np.exp(step * _STEP)), None, losses[step]) for step in sorted(losses)]
    return float(np.exp(_STEP * (best + _vertex(loss(best - 1), loss(best), loss(best + 1))))), path


def _vertex(left: float, middle: float, right: float) -> float:
    """Where the parabola through values at -1, 0 and 1 has its minimum, for a middle that is not the largest."""
    bend = left - 2.0 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend > 0 else 0.0
