"""Fitting a sparse Gaussian-process classifier: rows in batches, a climb up the evidence, sweeps to the fixed point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar

from posteriori.gp.ascent import NOT_FINITE, Ascent, Chunk, Position, ascend
from posteriori.gp.checkpoint import Checkpoint
from posteriori.gp.ep import Belief, Sites, left_out
from posteriori.gp.kernels import Kernel
from posteriori.gp.likelihoods import Likelihood
from posteriori.gp.rows import Rows, inducing_inputs, typical_distance
from posteriori.gp.sparse import SparseGP
from posteriori.gp.training import Batches, Plan, State, final_belief, initial_state, run_plan, with_level
from posteriori.maths.whitening import quadratic
from posteriori.solvers.solution import FitRecord, Status

__all__ = [
    "Epochs",
    "FittedGP",
    "GPSolution",
    "Learning",
    "chunk_size",
    "chunks_together",
    "fit_gp",
    "fit_one_layer",
    "in_batches",
    "inducing_spread",
]

_CHUNK, _LONGEST_CHUNK, _MANY_STEPS = 10, 64, 256
_SITE_STEP = 0.5
_LEAST_AVERAGE = 0.02
"""Share of a batch in the running sums, at least."""
_STILL = 3
"""Steps at the start in which only the sites move."""
_SETTLED = 1e-5
"""Relative change of the energy over half a chunk at which the sites are at their fixed point."""
_SETTLING_CHUNKS = 25
_SPREAD_ROWS = 8192
"""Rows by which the spread of the latents is judged, at most."""
_LOG_SPREADS = (float(np.log(0.02)), float(np.log(3.0)))
_SAVE_EVERY = 5.0
"""Seconds between checkpoints."""


@dataclass(frozen=True)
class Learning:
    """How a fit goes about it."""

    power: float
    batch_size: int
    rate: float
    tol: float
    max_iter: int
    seed: int
    calibrate: bool = True
    checkpoint: Checkpoint | None = None
    report: Callable[[Chunk], None] | None = None

    def climb(self, advance: Callable[..., Any], state: Any, noisy: int) -> Ascent:
        """Climb from the start, or from where a checkpoint has it."""
        at = Position(0, self.rate)
        kept = None if self.checkpoint is None else self.checkpoint.load(state)
        if kept is not None:
            state, at = kept
        saved = perf_counter()

        def watch(state: Any, at: Position, chunk: Chunk) -> None:
            nonlocal saved
            if self.report is not None:
                self.report(chunk)
            if self.checkpoint is not None and perf_counter() - saved > _SAVE_EVERY:
                self.checkpoint.save(state, at)
                saved = perf_counter()

        return ascend(advance, state, at, tol=self.tol, max_iter=self.max_iter, noisy=noisy, watch=watch)


@dataclass(frozen=True)
class GPSolution(FitRecord):
    """How a fit of Gaussian processes ended.

    Attributes
    ----------
    status : Status
    energy : float
        At the end; for expectation propagation the approximate log evidence.
    n_iter : int
        Steps of learning.
    n_passes : float
        Passes over all rows, the last sweeps included.
    jitter : float
        Added to the diagonal of the inducing inputs' kernel matrix, in units of its mean.
    settled : bool or None
        Whether the sites came to their fixed point; None where there is none.
    trace : list of Chunk
        Energy, learning rate and seconds along the way.
    """

    status: Status
    energy: float
    n_iter: int
    n_passes: float
    jitter: float
    settled: bool | None = None
    trace: list[Chunk] = field(default_factory=list, repr=False)

    @property
    def objective(self) -> float:
        """Minus the energy: the number that the fit made small."""
        return -self.energy

    @property
    def seconds(self) -> float | None:
        """Time that learning took; None where nothing was learned."""
        return self.trace[-1].seconds if self.trace else None


@dataclass(frozen=True)
class FittedGP:
    """What prediction needs: free parameters, and q(v) of every class."""

    readout: SparseGP
    last: dict[str, Any]
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution
    spread: float = 1.0
    """What variances of the latents are multiplied by."""

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (1, K, n) of the latents, the likelihood's noise not included."""
        moments = _moments(self.readout, self.last, self.mean, self.covariance, X, self.solution.jitter)
        mean, variance = (np.asarray(a) for a in moments)
        return mean[None], self.spread * variance[None]


def in_batches(rows: Rows, batch_size: int, seed: int) -> Batches:
    """Rows dealt into batches of one size, shuffled if there are several; filled up with rows of no weight.

    Sizes are rounded, so that data sets of similar size share a compilation.
    """
    N = len(rows.y)
    n_batches = -(-N // batch_size)
    size = -(-N // n_batches)
    unit = 32 if size > 128 else 8
    size = -(-size // unit) * unit
    order = np.arange(N) if n_batches == 1 else np.random.default_rng(seed).permutation(N)
    index = np.resize(order, n_batches * size)
    c = np.where(np.arange(len(index)) < N, rows.c[index], 0.0)
    shape = (n_batches, size)
    return Batches(
        jnp.asarray(rows.X[index].reshape(*shape, -1)),
        jnp.asarray(rows.y[index].reshape(shape)),
        jnp.asarray(c.reshape(shape)),
    )


class Epochs:
    """The order in which batches are visited: each once, shuffled, again and again."""

    def __init__(self, n_batches: int, seed: int) -> None:
        self.n_batches, self.seed = n_batches, seed

    def __call__(self, first: int, count: int) -> np.ndarray:
        """The batches of `count` steps from step `first` on."""
        epochs = range(first // self.n_batches, (first + count - 1) // self.n_batches + 1)
        order = np.concatenate([np.random.default_rng([self.seed, e]).permutation(self.n_batches) for e in epochs])
        skip = first - epochs[0] * self.n_batches
        return order[skip : skip + count]


def chunk_size(n_batches: int) -> int:
    """Steps in a chunk: whole epochs, so that energies of chunks are of the same rows, unless that were too long."""
    return min(-(-_CHUNK // n_batches) * n_batches, _LONGEST_CHUNK)


def chunks_together(n_batches: int) -> int:
    """How many chunks see all rows, or so many that it does not matter."""
    return -(-min(n_batches, _MANY_STEPS) // chunk_size(n_batches))


def fit_one_layer(
    rows: Rows, kernel: Kernel, likelihood: Likelihood, K: int, n_inducing: int, how: Learning
) -> FittedGP:
    """A layer with a site for every row."""
    Z, complete = inducing_inputs(rows.X, rows.c, n_inducing, how.seed)
    model = SparseGP(
        kernel.structure(),
        likelihood,
        K,
        learn_inducing=not complete,
        inducing_spread=inducing_spread(len(rows.y) / len(Z)),
    )
    return fit_gp(model, rows, model.start(Z, typical_distance(rows.X, how.seed), kernel), how)


def inducing_spread(rows_each: float) -> float:
    """How far inducing inputs may move, in standard deviations: the further, the more rows stand behind each.

    In steps of a factor of sqrt(2), so that data sets of similar size share a compilation.
    """
    return float(2.0 ** (0.5 * np.round(2.0 * np.log2(max(0.25, 0.25 * np.sqrt(rows_each))))))


def fit_gp(model: SparseGP, rows: Rows, free: dict[str, Any], how: Learning) -> FittedGP:
    """Learn the kernel from the evidence, then bring the sites to rest."""
    batches = in_batches(rows, how.batch_size, how.seed)
    n_batches = batches.y.shape[0]
    start = jax.tree.map(jnp.asarray, free)
    state = initial_state(start, batches, model.n_classes, start["inducing"].shape[0])
    visits = Epochs(n_batches, how.seed)
    size = chunk_size(n_batches)

    def run(state: State, plan: dict[str, Any], jitter: float) -> tuple[State, Any]:
        arrays = Plan(**{name: jnp.asarray(np.broadcast_to(value, (size,))) for name, value in plan.items()})
        after, trace = run_plan(model, start, state, batches, arrays, jnp.float64(jitter), how.power)
        return after, jax.tree.map(np.asarray, trace)

    def level(state: State) -> State:
        return state if n_batches == 1 else with_level(model, state)

    def advance(state: State, first: int, rate: float, jitter: float) -> tuple[State, np.ndarray]:
        i = first + np.arange(size)
        plan = {
            "batch": visits(first, size),
            "rate": np.where((i < max(_STILL, n_batches)) | (i >= how.max_iter), 0.0, rate),
            "site_step": _SITE_STEP,
            "sum_step": np.where(i < n_batches, 0.0, max(1.0 / n_batches, _LEAST_AVERAGE)),
        }
        after, trace = run(level(state), plan, jitter)
        return after, trace.log_partition + n_batches * trace.rows + trace.log_prior

    climb = how.climb(advance, state, 0 if n_batches == 1 else chunks_together(n_batches))
    status = climb.status
    try:
        state, energy, settled, n_last = _settle(run, level, climb, n_batches, size)
    except KeyboardInterrupt:
        state, energy, settled, n_last, status = climb.state, climb.energy, False, 0, Status.INTERRUPTED
    if not np.isfinite(energy):
        raise FloatingPointError(NOT_FINITE.format(climb.jitter))
    if how.checkpoint is not None and status is not Status.INTERRUPTED:
        how.checkpoint.remove()
    q = final_belief(state)
    solution = GPSolution(
        status,
        energy,
        climb.n_steps,
        (climb.n_steps + n_last) / n_batches,
        climb.jitter,
        settled,
        climb.trace,
    )
    spread = _left_out_spread(model, state, q, batches, climb.jitter) if how.calibrate else 1.0
    free = jax.tree.map(np.asarray, state.free)
    return FittedGP(model, free, np.asarray(q.mean), np.asarray(q.covariance), solution, spread)


def _settle(
    run: Callable[..., tuple[State, Any]],
    level: Callable[[State], State],
    climb: Ascent,
    n_batches: int,
    size: int,
) -> tuple[State, float, bool, int]:
    """Sweeps with the kernel held, until the energy rests; then P and r summed over all rows, exactly."""
    state, before, site_step, n_steps = climb.state, -np.inf, _SITE_STEP, 0
    settled, energy = False, -np.inf

    def epoch(state: State, site_step: float, sum_step: Callable[[np.ndarray], Any]) -> tuple[State, float]:
        """Every batch once; steps beyond the last batch change nothing."""
        log_partition, rows, done = 0.0, 0.0, 0
        while done < n_batches:
            i = done + np.arange(size)
            real = i < n_batches
            plan = {
                "batch": np.minimum(i, n_batches - 1),
                "rate": 0.0,
                "site_step": np.where(real, site_step, 0.0),
                "sum_step": np.where(real, sum_step(i), 0.0),
            }
            state, trace = run(state, plan, climb.jitter)
            log_partition, rows, done = trace.log_partition[-1], rows + trace.rows[real].sum(), done + size
        return state, float(log_partition + rows)

    if n_batches == 1:
        still = {"batch": 0, "rate": 0.0, "sum_step": 1.0}
        for _ in range(_SETTLING_CHUNKS):
            state, trace = run(state, {**still, "site_step": site_step}, climb.jitter)
            energies = trace.log_partition + trace.rows
            energy, n_steps = float(energies[-1]), n_steps + size
            settled = bool(np.ptp(energies[-size // 2 :]) <= _SETTLED * max(1.0, abs(energy)))
            if settled:
                break
            if (np.diff(energies)[:-1] * np.diff(energies)[1:] < 0.0).mean() > 0.5:  # to and fro
                site_step = 0.5 * site_step
        return state, energy, settled, n_steps
    state, _ = epoch(state, 0.0, lambda i: 1.0 / (1.0 + i))
    n_steps = n_batches
    for _ in range(_SETTLING_CHUNKS):
        state, energy = epoch(level(state), site_step, lambda i: np.zeros(len(i)))
        n_steps += n_batches
        settled = abs(energy - before) <= _SETTLED * max(1.0, abs(energy))
        if settled:
            break
        before = energy
    return state, energy, settled, n_steps


def _left_out_spread(model: SparseGP, state: State, q: Belief, batches: Batches, jitter: float) -> float:
    r"""The factor kappa on variances under which rows are predicted best by all the others.

    Classes have sites of their own, so that q is too wide where latents are large. A row without its site, its cavity,
    is left out: kappa maximises sum_n c_n log E[p(y_n | h)] over h ~ N(m_c, kappa w_c), with a weak prior around one.
    """
    some = range(min(batches.y.shape[0], max(1, _SPREAD_ROWS // batches.y.shape[1])))
    parts = [
        _left_out(model, state.free, q, batches.X[b], Sites(*(s[b] for s in state.sites)), state.level, jitter)
        for b in some
    ]
    mean, variance = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    y, c = (jnp.concatenate([array[b] for b in some]) for array in (batches.y, batches.c))
    free = state.free["likelihood"]

    def loss(log_spread: float) -> float:
        value = _log_likelihood(model, free, mean, variance, y, c, np.exp(log_spread))
        return 0.5 * log_spread**2 - float(value)

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_SPREADS, method="bounded", options={"xatol": 0.02}).x))


@jax.jit(static_argnames="model")
def _left_out(
    model: SparseGP, free: Any, q: Belief, X: Array, sites: Sites, level: Array, jitter: Array
) -> tuple[Array, Array]:
    """Means and variances (K, n) of the latents of rows under q without their own site."""
    A, beyond = model.project(free, X, jitter)
    sites = sites.raised(jnp.outer(model.level(free), level @ A))
    m_c, w_c = left_out(q.mean @ A, quadratic(q.covariance, A), (A * A).sum(0), sites, 1.0)
    return model.functions(free, m_c, beyond + w_c)


@jax.jit(static_argnames="model")
def _log_likelihood(
    model: SparseGP, free: Any, mean: Array, variance: Array, y: Array, c: Array, spread: Array
) -> Array:
    out = model.likelihood.expected(free, mean, spread * variance + model.likelihood.noise, y, 1.0)
    return (c * out.value).sum()


@jax.jit(static_argnames="model")
def _moments(model: SparseGP, free: Any, mean: Array, covariance: Array, X: Array, jitter: Array) -> Any:
    A, beyond = model.project(free, X, jitter)
    return model.functions(free, mean @ A, beyond + quadratic(covariance, A))
