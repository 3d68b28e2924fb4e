"""Fits of Gaussian processes: one layer whose rows have sites of their own, or layers whose rows share one site.

`fit_row_sites` learns the kernel from the evidence, then sweeps the sites to their fixed point. `fit_tied_sites`
ascends the power-EP energy of a stack of layers, which may be a single one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar

from posteriori.gp.ascent import FitOptions
from posteriori.gp.batches import Batches, Epochs, chunk_size, chunks_together, in_batches
from posteriori.gp.energy import covariance_of
from posteriori.gp.ep import InducingBelief, Sites, belief, left_out
from posteriori.gp.inference import GPProblem
from posteriori.gp.inputs import LabelledRows, inducing_inputs, typical_distance
from posteriori.gp.kernels import RBF, Free
from posteriori.gp.predictive import FittedGP, FittedStack
from posteriori.gp.solution import GPSolution
from posteriori.gp.sparse import SparseGP
from posteriori.gp.stack import HiddenLayer, StackedGP, mean_map
from posteriori.gp.training import (
    RowSitePlan,
    RowSiteState,
    RowSiteTrace,
    TiedSitePlan,
    TiedSiteState,
    final_belief,
    initial_row_sites,
    initial_tied_sites,
    train_row_sites,
    train_tied_sites,
    with_level,
)
from posteriori.maths.whitening import quadratic
from posteriori.solvers.solution import Status

__all__ = ["fit_row_sites", "fit_tied_sites", "start_stack"]

_SITE_STEP = 0.5
"""The damping of row sites: the share of the way to its target that a site moves."""
_LEAST_AVERAGE = 0.02
"""The least share of a batch in running sums and averages."""
_MOST_AVERAGE = 0.5
"""The largest share of a batch in the averages of tied sites."""
_STILL = 3
"""The number of steps at the start in which only the sites move."""
_SETTLED = 1e-5
"""The relative change of the energy over half a chunk at which the sites are at their fixed point."""
_SETTLING_CHUNKS = 25
"""The number of chunks of sweeps to the fixed point, at most."""
_SPREAD_ROWS = 8192
"""The number of rows by which the spread of the latents is chosen, at most."""
_LOG_SPREADS = (float(np.log(0.02)), float(np.log(3.0)))
_INDUCING = 200
"""The number of inducing inputs where none is given."""
_WARM_UP = 50
"""The number of steps over which the learning rate of tied sites rises to its full value."""
_MAP_ROWS = 5000
"""The number of rows that the mean maps of hidden layers are computed from, at most."""
_HIDDEN_SPREAD = 10.0
"""The prior's spread of inducing inputs of a layer above others: what they see moves too."""


def _inducing_spread(rows_each: float) -> float:
    """The prior's spread of inducing inputs, in standard deviations: the more rows for each, the further they may move.

    In steps of a factor of sqrt(2), so that data sets of similar size share a compilation.
    """
    return float(2.0 ** (0.5 * np.round(2.0 * np.log2(max(0.25, 0.25 * np.sqrt(rows_each))))))


# Row sites


def fit_row_sites(problem: GPProblem, options: FitOptions) -> FittedGP:
    """Fit one layer with a site for every row and class, by power EP."""
    rows = problem.rows
    Z, complete = inducing_inputs(rows.X, rows.c, problem.n_inducing or _INDUCING, options.seed)
    model = SparseGP(
        problem.kernel.structure(),
        problem.likelihood.of_classes(problem.n_classes),
        problem.n_classes,
        start_scale=problem.scale,
        learn_inducing=not complete,
        inducing_spread=_inducing_spread(len(rows.y) / len(Z)),
    )
    free = model.start(Z, typical_distance(rows.X, options.seed), problem.kernel)
    return _learn_and_settle(model, rows, free, options)


class _RowSiteSteps:
    """Chunks of compiled steps on the batches of one fit."""

    def __init__(self, model: SparseGP, free: Free, batches: Batches, power: float) -> None:
        self.model, self.batches, self.power = model, batches, power
        self.start: Free = jax.tree.map(jnp.asarray, free)
        self.n_batches = batches.y.shape[0]
        self.size = chunk_size(self.n_batches)

    def first_state(self) -> RowSiteState:
        """The state before the first step."""
        return initial_row_sites(self.start, self.batches, self.model.n_classes, self.start["inducing"].shape[0])

    def run(self, state: RowSiteState, jitter: float, **plan: Any) -> tuple[RowSiteState, RowSiteTrace]:
        """Take one chunk of steps, each number of the plan being one for all steps or one for each."""
        arrays = RowSitePlan(**{name: jnp.asarray(np.broadcast_to(value, self.size)) for name, value in plan.items()})
        after, trace = train_row_sites(
            self.model, self.start, state, self.batches, arrays, jnp.float64(jitter), self.power
        )
        return after, jax.tree.map(np.asarray, trace)

    def levelled(self, state: RowSiteState) -> RowSiteState:
        """The state with its common level at the fixed point; with one batch every step does that itself."""
        return state if self.n_batches == 1 else with_level(self.model, state)

    def epoch(
        self, state: RowSiteState, jitter: float, site_step: float, sum_step: Callable[[np.ndarray], Any]
    ) -> tuple[RowSiteState, float]:
        """Visit every batch once, with the kernel held; steps beyond the last batch change nothing."""
        log_partition, of_rows = 0.0, 0.0
        for first in range(0, self.n_batches, self.size):
            i = first + np.arange(self.size)
            real = i < self.n_batches
            state, trace = self.run(
                state,
                jitter,
                batch=np.minimum(i, self.n_batches - 1),
                rate=0.0,
                site_step=np.where(real, site_step, 0.0),
                sum_step=np.where(real, sum_step(i), 0.0),
            )
            log_partition, of_rows = float(trace.log_partition[-1]), of_rows + float(trace.rows[real].sum())
        return state, log_partition + of_rows


class _Settled(NamedTuple):
    """Sites after the last sweeps: their state, energy, whether they are at the fixed point, and the steps taken."""

    state: RowSiteState
    energy: float
    at_rest: bool
    n_steps: int


def _learn_and_settle(model: SparseGP, rows: LabelledRows, free: Free, options: FitOptions) -> FittedGP:
    """Learn the kernel from the evidence, then bring the sites to their fixed point."""
    batches = in_batches(rows, options.batch_size, options.seed)
    steps = _RowSiteSteps(model, free, batches, options.power)
    n_batches = steps.n_batches
    visits = Epochs(n_batches, options.seed)

    def advance(state: RowSiteState, first: int, rate: float, jitter: float) -> tuple[RowSiteState, np.ndarray]:
        i = first + np.arange(steps.size)
        after, trace = steps.run(
            steps.levelled(state),
            jitter,
            batch=visits(first, steps.size),
            rate=np.where((i < max(_STILL, n_batches)) | (i >= options.max_iter), 0.0, rate),
            site_step=_SITE_STEP,
            sum_step=np.where(i < n_batches, 0.0, max(1.0 / n_batches, _LEAST_AVERAGE)),
        )
        return after, np.asarray(trace.log_partition + n_batches * trace.rows + trace.log_prior)

    noisy = 0 if n_batches == 1 else chunks_together(n_batches)
    learned = options.ascend(advance, steps.first_state(), noisy)
    status = learned.status
    try:
        settle = _settle_one_batch if n_batches == 1 else _settle_batches
        end = settle(steps, learned.state, learned.jitter)
    except KeyboardInterrupt:
        end, status = _Settled(learned.state, learned.energy, False, 0), Status.INTERRUPTED
    options.finish(end.energy, learned.jitter, status)
    q = final_belief(end.state)
    n_passes = (learned.n_steps + end.n_steps) / n_batches
    solution = GPSolution(
        status, end.energy, learned.n_steps, n_passes, learned.jitter, end.at_rest, learned.trace,
        n_inducing=len(free["inducing"]), n_learning=len(rows.y),
    )  # fmt: skip
    spread = _left_out_spread(model, end.state, q, batches, learned.jitter) if options.calibrate else 1.0
    learned_free = jax.tree.map(np.asarray, end.state.free)
    return FittedGP(model, learned_free, np.asarray(q.mean), np.asarray(q.covariance), solution, spread)


def _settle_one_batch(steps: _RowSiteSteps, state: RowSiteState, jitter: float) -> _Settled:
    """Sweep all rows with the kernel fixed until the energy rests; where the energy oscillates, steps are halved."""
    site_step, energy, at_rest, n_steps = _SITE_STEP, -np.inf, False, 0
    for _ in range(_SETTLING_CHUNKS):
        state, trace = steps.run(state, jitter, batch=0, rate=0.0, sum_step=1.0, site_step=site_step)
        energies = trace.log_partition + trace.rows
        energy, n_steps = float(energies[-1]), n_steps + steps.size
        at_rest = bool(np.ptp(energies[-steps.size // 2 :]) <= _SETTLED * max(1.0, abs(energy)))
        if at_rest:
            break
        if (np.diff(energies)[:-1] * np.diff(energies)[1:] < 0.0).mean() > 0.5:
            site_step = 0.5 * site_step
    return _Settled(state, energy, at_rest, n_steps)


def _settle_batches(steps: _RowSiteSteps, state: RowSiteState, jitter: float) -> _Settled:
    """Sum P and r over all rows exactly, then sweep all batches with the kernel fixed until the energy rests."""
    state, _ = steps.epoch(state, jitter, 0.0, lambda i: 1.0 / (1.0 + i))
    before, energy, at_rest, n_steps = -np.inf, -np.inf, False, steps.n_batches
    for _ in range(_SETTLING_CHUNKS):
        state, energy = steps.epoch(steps.levelled(state), jitter, _SITE_STEP, lambda i: np.zeros(len(i)))
        n_steps += steps.n_batches
        at_rest = abs(energy - before) <= _SETTLED * max(1.0, abs(energy))
        if at_rest:
            break
        before = energy
    return _Settled(state, energy, at_rest, n_steps)


def _left_out_spread(model: SparseGP, state: RowSiteState, q: InducingBelief, batches: Batches, jitter: float) -> float:
    r"""The factor kappa on variances under which rows are predicted best by all the others.

    Classes have sites of their own, so that q is too wide where latents are large. A row without its site, its cavity,
    is left out: kappa maximises sum_n c_n log E[p(y_n | h)] over h ~ N(m_c, kappa w_c), with a weak prior around one.
    """
    chosen = range(min(batches.y.shape[0], max(1, _SPREAD_ROWS // batches.y.shape[1])))
    parts = [
        _left_out_latents(model, state.free, q, batches.X[b], Sites(*(s[b] for s in state.sites)), state.level, jitter)
        for b in chosen
    ]
    mean, variance = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    y, c = (jnp.concatenate([array[b] for b in chosen]) for array in (batches.y, batches.c))
    free = state.free["likelihood"]

    def loss(log_spread: float) -> float:
        value = _log_likelihood(model, free, mean, variance, y, c, np.exp(log_spread))
        return 0.5 * log_spread**2 - float(value)

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_SPREADS, method="bounded", options={"xatol": 0.02}).x))


@jax.jit(static_argnames="model")
def _left_out_latents(
    model: SparseGP, free: Any, q: InducingBelief, X: Array, sites: Sites, level: Array, jitter: Array
) -> tuple[Array, Array]:
    """Means and variances (K, n) of the latents of rows under q without their own site."""
    A, beyond = model.project(free, X, jitter)
    sites = sites.raised(jnp.outer(model.level_units(free), level @ A))
    m_c, w_c = left_out(q.mean @ A, quadratic(q.covariance, A), (A * A).sum(0), sites, 1.0)
    return model.functions(free, m_c, beyond + w_c)


@jax.jit(static_argnames="model")
def _log_likelihood(
    model: SparseGP, free: Any, mean: Array, variance: Array, y: Array, c: Array, spread: Array
) -> Array:
    out = model.likelihood.expected(free, mean, spread * variance + model.likelihood.noise, y, 1.0)
    return (c * out.value).sum()


# Tied sites


def fit_tied_sites(
    problem: GPProblem, options: FitOptions, widths: tuple[int, ...], *, n_samples: int, averaged: bool
) -> FittedStack:
    """Fit hidden layers of these widths, if any, below a layer whose rows share one site for each class.

    The last sites are averages of the rows' natural parameters (`averaged`), or follow the gradient of the energy.
    """
    n_inducing = problem.n_inducing or _INDUCING
    spread = _HIDDEN_SPREAD if widths else _inducing_spread(len(problem.rows.y) / n_inducing)
    hidden = tuple(HiddenLayer(RBF(), width) for width in widths)
    last = SparseGP(
        problem.kernel, problem.likelihood.of_classes(problem.n_classes), problem.n_classes,
        start_scale=problem.scale, inducing_spread=spread,
    )  # fmt: skip
    model = StackedGP(hidden, last)
    free = start_stack(model, problem.rows, n_inducing, options.seed, averaged)
    return _ascend_energy(
        model, problem.rows, free, options, n_samples=n_samples if hidden else 1, averaged=averaged
    )  # fmt: skip


def start_stack(model: StackedGP, rows: LabelledRows, n_inducing: int, seed: int, averaged: bool) -> Free:
    """The free parameters at the start: every layer passes its input on, and inducing inputs pass through with rows."""
    Z, _ = inducing_inputs(rows.X, rows.c, n_inducing, seed)
    rng = np.random.default_rng(seed)
    H = rows.X if len(rows.X) <= _MAP_ROWS else rows.X[rng.choice(len(rows.X), _MAP_ROWS, replace=False)]
    hidden = []
    for layer in model.hidden:
        W = mean_map(H, layer.width)
        hidden.append(layer.start(Z, W, typical_distance(H, seed)))
        Z, H = Z @ W.T, H @ W.T
    last = model.last.start(Z, typical_distance(H, seed))
    if not averaged:
        K, M = model.last.n_classes, len(Z)
        last |= {"mean": np.zeros((K, M)), "root": np.tile(np.eye(M), (K, 1, 1))}
    return {"hidden": hidden, "last": last}


def _ascend_energy(
    model: StackedGP, rows: LabelledRows, free: Free, options: FitOptions, *, n_samples: int, averaged: bool
) -> FittedStack:
    """Ascend the energy, then see all rows once more; sites that are averages end as those over all rows."""
    batches = in_batches(rows, options.batch_size, options.seed)
    n_batches = batches.y.shape[0]
    start = jax.tree.map(jnp.asarray, free)
    visits = Epochs(n_batches, options.seed)
    size = chunk_size(n_batches)

    def run(state: TiedSiteState, jitter: float, **plan: Any) -> tuple[TiedSiteState, np.ndarray]:
        arrays = TiedSitePlan(**{name: jnp.asarray(np.broadcast_to(value, (size,))) for name, value in plan.items()})
        after, energies = train_tied_sites(
            model, start, state, batches, arrays, jnp.float64(jitter),
            power=options.power, n_samples=n_samples, averaged=averaged,
        )  # fmt: skip
        return after, np.asarray(energies)

    def advance(state: TiedSiteState, first: int, rate: float, jitter: float) -> tuple[TiedSiteState, np.ndarray]:
        i = first + np.arange(size)
        return run(
            state,
            jitter,
            batch=visits(first, size),
            rate=np.where(i < options.max_iter, rate * np.minimum(1.0, i / _WARM_UP), 0.0),
            sum_step=np.maximum(1.0 / (i + 2.0), np.clip(1.0 / n_batches, _LEAST_AVERAGE, _MOST_AVERAGE)),
            seed=options.seed + i,
        )

    def epoch(state: TiedSiteState, most: float) -> tuple[TiedSiteState, float]:
        """Visit every batch once; its share in the last sites is at most `most`, and nothing else moves."""
        total = 0.0
        for first in range(0, n_batches, size):
            i = first + np.arange(size)
            real = i < n_batches
            state, energies = run(
                state,
                learned.jitter,
                batch=np.minimum(i, n_batches - 1),
                rate=0.0,
                sum_step=np.where(real, np.minimum(1.0 / (1.0 + i), most), 0.0),
                seed=options.seed + learned.n_steps + i,
            )
            total += float(energies[real].sum())
        return state, total / n_batches

    first_state = initial_tied_sites(start, model.last.n_classes)
    learned = options.ascend(advance, first_state, noisy=chunks_together(n_batches))
    state, status, energy = learned.state, learned.status, learned.energy
    try:
        if averaged:
            state, _ = epoch(state, _MOST_AVERAGE if n_batches == 1 else 1.0)
        _, energy = epoch(state, 0.0)
    except KeyboardInterrupt:
        state, status = learned.state, Status.INTERRUPTED
    options.finish(energy, learned.jitter, status)
    if averaged:
        mean, covariance, _ = belief(state.precision, state.shift)
    else:
        mean, covariance = state.free["last"]["mean"], covariance_of(state.free["last"]["root"])
    n_passes = learned.n_steps / n_batches + (2 if averaged else 1)
    solution = GPSolution(status, energy, learned.n_steps, n_passes, learned.jitter, None, learned.trace)
    return FittedStack(model, jax.tree.map(np.asarray, state.free), np.asarray(mean), np.asarray(covariance), solution)
