"""Fitting tied sites: a stack of layers, or one layer whose sites are trained by gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from posteriori.gp.ascent import NOT_FINITE
from posteriori.gp.energy import covariance_of
from posteriori.gp.ep import belief
from posteriori.gp.fit import Epochs, GPSolution, Learning, chunk_size, chunks_together, in_batches, inducing_spread
from posteriori.gp.kernels import RBF, Kernel
from posteriori.gp.likelihoods import Likelihood
from posteriori.gp.rows import Rows, inducing_inputs, typical_distance
from posteriori.gp.sparse import SparseGP
from posteriori.gp.stack import HiddenLayer, StackedGP, mean_map
from posteriori.gp.stack_training import StackPlan, StackState, initial_stack_state, run_stack_plan
from posteriori.maths.integrals import even_nodes
from posteriori.maths.whitening import quadratic
from posteriori.solvers.solution import Status

__all__ = ["FittedStack", "fit_layers", "fit_stack", "start_stack"]

_LEAST_AVERAGE, _MOST_AVERAGE = 0.02, 0.5
"""Bounds of the share of a batch in the last layer's sites."""
_WARM_UP = 50
"""Steps over which the learning rate comes up."""
_PREDICTION_SAMPLES = 64
_MAP_ROWS = 5000
_HIDDEN_SPREAD = 10.0
"""How far inducing inputs of a layer on top of others may move: what they see moves too."""


@dataclass(frozen=True)
class FittedStack:
    """What prediction needs: free parameters of all layers, and q(v) of the last."""

    model: StackedGP
    free: dict[str, Any]
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution

    @property
    def readout(self) -> SparseGP:
        """The last layer."""
        return self.model.last

    @property
    def last(self) -> dict[str, Any]:
        """The last layer's free parameters."""
        return self.free["last"]

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents, through samples that are the same for every row."""
        widths = [layer.width for layer in self.model.hidden]
        points = even_nodes(sum(widths), _PREDICTION_SAMPLES).points.T if widths else np.zeros((1, 0))
        noise = [part[:, None, :] for part in np.split(points, np.cumsum(widths)[:-1], axis=1)] if widths else []
        moments = _moments(self.model, self.free, self.mean, self.covariance, X, noise, self.solution.jitter)
        S, K = len(points), self.mean.shape[0]
        mean, variance = (np.asarray(a).reshape(K, S, -1).swapaxes(0, 1) for a in moments)
        return mean, variance


@jax.jit(static_argnames="model")
def _moments(
    model: StackedGP, free: Any, mean: Array, covariance: Array, X: Array, noise: list[Array], jitter: Array
) -> Any:
    hidden = [(part["mean"], covariance_of(part["root"])) for part in free["hidden"]]
    h = model.propagate(free, hidden, X, noise, jitter)
    A, beyond = model.last.project(free["last"], h, jitter)
    return model.last.functions(free["last"], mean @ A, beyond + quadratic(covariance, A))


def fit_layers(
    rows: Rows,
    kernel: Kernel,
    likelihood: Likelihood,
    K: int,
    widths: tuple[int, ...],
    n_inducing: int,
    how: Learning,
    *,
    n_samples: int,
    averaged: bool,
) -> FittedStack:
    """Hidden layers of these widths, if any, below a layer whose sites are tied."""
    spread = _HIDDEN_SPREAD if widths else inducing_spread(len(rows.y) / n_inducing)
    hidden = tuple(HiddenLayer(RBF(), width) for width in widths)
    model = StackedGP(hidden, SparseGP(kernel, likelihood, K, inducing_spread=spread))
    free = start_stack(model, rows, n_inducing, how.seed, averaged)
    return fit_stack(model, rows, free, how, n_samples=n_samples if hidden else 1, averaged=averaged)


def start_stack(model: StackedGP, rows: Rows, n_inducing: int, seed: int, averaged: bool) -> dict[str, Any]:
    """Free parameters to begin with: every layer does nothing, inducing inputs are carried up with the rows."""
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


def fit_stack(
    model: StackedGP, rows: Rows, free: dict[str, Any], how: Learning, *, n_samples: int, averaged: bool
) -> FittedStack:
    """Climb the energy, and see all rows once more; where the last sites are averages, end with those over all rows."""
    batches = in_batches(rows, how.batch_size, how.seed)
    n_batches = batches.y.shape[0]
    start = jax.tree.map(jnp.asarray, free)
    state = initial_stack_state(start, model.last.n_classes)
    visits = Epochs(n_batches, how.seed)
    size = chunk_size(n_batches)

    def run(state: StackState, jitter: float, **plan: Any) -> tuple[StackState, np.ndarray]:
        arrays = StackPlan(**{name: jnp.asarray(np.broadcast_to(value, (size,))) for name, value in plan.items()})
        after, energies = run_stack_plan(
            model, start, state, batches, arrays, jnp.float64(jitter), power=how.power, n_samples=n_samples,
            averaged=averaged,
        )  # fmt: skip
        return after, np.asarray(energies)

    def advance(state: StackState, first: int, rate: float, jitter: float) -> tuple[StackState, np.ndarray]:
        i = first + np.arange(size)
        return run(
            state,
            jitter,
            batch=visits(first, size),
            rate=np.where(i < how.max_iter, rate * np.minimum(1.0, i / _WARM_UP), 0.0),
            sum_step=np.maximum(1.0 / (i + 2.0), np.clip(1.0 / n_batches, _LEAST_AVERAGE, _MOST_AVERAGE)),
            seed=how.seed + i,
        )

    def epoch(state: StackState, most: float) -> tuple[StackState, float]:
        """Every batch once, its share in the last sites at most so much; nothing else moves."""
        total = 0.0
        for first in range(0, n_batches, size):
            i = first + np.arange(size)
            real = i < n_batches
            state, energies = run(
                state,
                climb.jitter,
                batch=np.minimum(i, n_batches - 1),
                rate=0.0,
                sum_step=np.where(real, np.minimum(1.0 / (1.0 + i), most), 0.0),
                seed=how.seed + climb.n_steps + i,
            )
            total += float(energies[real].sum())
        return state, total / n_batches

    climb = how.climb(advance, state, noisy=chunks_together(n_batches))
    state, status, energy = climb.state, climb.status, climb.energy
    try:
        if averaged:
            state, _ = epoch(state, _MOST_AVERAGE if n_batches == 1 else 1.0)
        _, energy = epoch(state, 0.0)
    except KeyboardInterrupt:
        state, status = climb.state, Status.INTERRUPTED
    if not np.isfinite(energy):
        raise FloatingPointError(NOT_FINITE.format(climb.jitter))
    if averaged:
        mean, covariance, _ = belief(state.precision, state.shift)
    else:
        mean, covariance = state.free["last"]["mean"], covariance_of(state.free["last"]["root"])
    if how.checkpoint is not None and status is not Status.INTERRUPTED:
        how.checkpoint.remove()
    n_passes = climb.n_steps / n_batches + (2 if averaged else 1)
    solution = GPSolution(status, energy, climb.n_steps, n_passes, climb.jitter, None, climb.trace)
    return FittedStack(model, jax.tree.map(np.asarray, state.free), np.asarray(mean), np.asarray(covariance), solution)
