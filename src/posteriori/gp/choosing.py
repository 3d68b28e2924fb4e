"""Choosing and learning the kernel of a Gaussian process, from as many rows as time allows.

An evaluation of the evidence takes time that grows with the cube of the rows, and most steps are far from the end. So
kernels are learned from a part of the rows first, all of them, and compared by their evidence there, which is that of
an exact model and does not flatter; the best goes on with more rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from posteriori.gp.coupled import SiteParameters
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Kernel
from posteriori.gp.learning import KernelEvidence, KernelState, Memory, ascend
from posteriori.gp.progress import Report, begin_stage, sweep_cost
from posteriori.gp.solution import Chunk, GPSolution
from posteriori.solvers.solution import Status

__all__ = ["ChosenKernel", "LearningPlan", "learn_kernel"]

_STAGES = ((4.5e8, 40), (8e9, 8), (4e10, 8))
"""The operations that one evaluation of the evidence may take, and the number of steps at most, of each stage."""
_ROWS_EACH = 5
"""The number of rows for each feature that the first stage has at least, while an evaluation takes no longer than in
the second: lengthscales learned from fewer are led astray, and later stages do not bring them back."""
_MARGIN = 2.0
"""The rise of the evidence that a kernel must be worth to be taken before an earlier, simpler one."""
_WORTH = 1.7
"""A last stage is worth its time where it would see this many times as many rows as the one before."""
_OPERATIONS = 7.0
"""Operations of an evaluation, in units of K n^3."""
_SWEEPS_EACH = 5.0
"""What a step costs in sweeps, with the slopes: what a user is told of the time ahead rests on it."""
_PAIR = 0.5
"""The number of classes that two classes cost: one latent, and no coupling."""


@dataclass(frozen=True)
class LearningPlan:
    """How a kernel is learned: from how many rows, for how long, and who watches."""

    tol: float
    max_iter: int
    n_learning: int | None
    """The number of rows to learn from; None for as many as time allows."""
    seed: int
    report: Report | None = None
    later: float = 0.0
    """The cost of what comes after learning, in that of `sweep_cost`."""


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel that was chosen, its parameters, and the record of the choice."""

    kernel: Kernel
    state: KernelState
    record: GPSolution
    start: KernelState
    """The centre of the priors."""
    part: np.ndarray
    """The rows that it was learned from, at the end."""
    sites: SiteParameters | None
    """Their sites."""


def learn_kernel(
    candidates: Mapping[str, Kernel],
    rows: LabelledRows,
    K: int,
    rate: float,
    start_scale: float,
    typical: float,
    plan: LearningPlan,
) -> ChosenKernel:
    """Learn every candidate from a part of the rows, and the best of them from more.

    Parameters
    ----------
    candidates : mapping
        Kernels of standardised features by name; a single one is learned without a comparison.
    rows : LabelledRows
        Distinct rows with weights.
    K : int
    rate : float
        The rate of mislabelled rows.
    start_scale : float
        The scale of the latents at which learning begins, in units of the noise's standard deviation.
    typical : float
        The typical distance between rows.
    plan : LearningPlan
    """
    starts = {
        name: KernelState(kernel.start(rows.X.shape[1], typical), np.full(K, np.log(start_scale)))
        for name, kernel in candidates.items()
    }
    order = _in_shares(rows.y, plan.seed)
    names, vectors, considered = list(candidates), dict[str, np.ndarray](), dict[str, float]()
    status, at_rest, n_steps, n_sweeps, n_learning = Status.CONVERGED, True, 0, 0, 0
    trace, part, sites = list[Chunk](), order[:0], dict[str, SiteParameters]()
    memories = dict[str, Memory]()
    stages = _stages(len(rows.y), rows.X.shape[1], K, plan) if plan.max_iter > 0 else []
    for i, (size, most) in enumerate(stages):
        part, n_learning = order[:size], size
        subset = LabelledRows(rows.X[part], rows.y[part], rows.c[part])
        values = dict[str, float]()
        for rival, name in enumerate(names):
            words = f"learning the kernel from {size:,} rows"
            if len(names) > 1:
                words = f"comparing {len(names)} kernels on {size:,} rows ({name})"
            cost = _SWEEPS_EACH * sweep_cost(size, K)
            ahead = sum(steps * _SWEEPS_EACH * sweep_cost(later, K) for later, steps in stages[i + 1 :]) + plan.later
            ahead += (len(names) - 1 - rival) * most * cost
            begin_stage(plan.report, words, min(most, plan.max_iter - n_steps), cost, ahead)
            evidence = KernelEvidence(candidates[name], subset, K, rate, starts[name])
            vector = vectors.get(name, evidence.pack(starts[name]))
            most_steps = min(most, plan.max_iter - n_steps)
            learned = ascend(
                evidence, vector, memories.get(name, []), tol=plan.tol, max_iter=most_steps, report=plan.report
            )  # fmt: skip
            memories[name] = learned.memory
            vectors[name], values[name], at_rest = learned.vector, learned.value, learned.at_rest
            sites[name] = evidence.parameters
            seconds = trace[-1].seconds if trace else 0.0
            trace += [c._replace(n_steps=n_steps + c.n_steps, seconds=seconds + c.seconds) for c in learned.trace]
            n_steps, n_sweeps = n_steps + learned.n_steps, n_sweeps + evidence.n_sweeps
            if learned.interrupted:
                status = Status.INTERRUPTED
                break
        considered = considered or values
        names = [_chosen(values)]
        if status is Status.INTERRUPTED:
            break
    name = names[0]
    state = starts[name]
    if name in vectors:
        state = KernelEvidence(candidates[name], rows, K, rate, state).unpack(vectors[name])
    if status is Status.CONVERGED and not at_rest and n_steps >= plan.max_iter:
        status = Status.ITERATION_LIMIT
    record = GPSolution(
        status, -np.inf, n_steps, float(n_sweeps), 0.0, None, trace,
        kernel=name, considered=considered, n_learning=n_learning,
    )  # fmt: skip
    return ChosenKernel(candidates[name], state, record, starts[name], part, sites.get(name))


def _chosen(values: dict[str, float]) -> str:
    """The name of the kernel of the highest evidence, later ones having to be better than earlier ones by a margin."""
    best, *others = values
    for name in others:
        if values[name] > values[best] + _MARGIN:
            best = name
    return best


def _stages(n: int, D: int, K: int, plan: LearningPlan) -> list[tuple[int, int]]:
    """The number of rows and of steps, at most, of each stage of learning."""
    if plan.n_learning is not None:
        return [(min(n, plan.n_learning), plan.max_iter)]
    cost = _OPERATIONS * (_PAIR if K == 2 else K)
    sizes = [int((operations / cost) ** (1.0 / 3.0)) for operations, _ in _STAGES]
    sizes[0] = max(sizes[0], min(_ROWS_EACH * D, sizes[1]))
    stages = [(min(n, size), steps) for size, (_, steps) in zip(sizes, _STAGES, strict=True)]
    enough = next((i for i, (size, _) in enumerate(stages) if size == n), len(stages))
    if enough == len(stages) - 1 and n < _WORTH * stages[-2][0]:
        enough -= 1
    return stages[: enough + 1]


def _in_shares(y: np.ndarray, seed: int) -> np.ndarray:
    """The rows in an order of which any first part has about the same share of every class, and a row of each."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(y))
    for k in np.unique(y):
        of_class = np.flatnonzero(y == k)
        place[of_class] = (rng.permutation(len(of_class)) + rng.random() * 1e-3) / len(of_class)
    return np.argsort(place, kind="stable")
