"""Row sites and a kernel learned together: steps of expectation propagation, steps up the evidence, one compiled scan.

Every step visits one batch of rows. Their sites move towards the fixed point, damped; everything else takes a step of
Adam along the gradient of the energy, sites held (`ep`). The plan of the steps (which batch, how large a step, how much
damping) is data, so that one compilation serves for learning, for the last sweeps to the fixed point and for the exact
sums over all rows at the end.

With one batch, P and r are summed anew at each step. With several, they take up at once what a batch's sites have
moved by, so that the next batch knows of it; and as a learned kernel makes them age, they are drawn towards what each
batch says of the sums over all rows. In an epoch in which nothing moves, that with weights 1, 1/2, 1/3, ... makes them
these sums, exactly.

Sites are kept relative to a level that all classes share (`ep.levelled`), so that it can be brought to where the fixed
point has it for all rows at once: with one batch at each step, with several between epochs (`with_level`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array

from posteriori.gp.ep import Belief, Projection, Sites, belief, levelled, site_sums, slopes, sweep

__all__ = [
    "Batches",
    "Model",
    "Plan",
    "State",
    "Trace",
    "final_belief",
    "initial_state",
    "moves_of",
    "run_plan",
    "with_level",
]

Free = dict[str, Any]


class Model(Protocol):
    """What training needs of a model; `models.gp.SparseGP` is one."""

    def project(self, free: Free, X: Array, jitter: Array) -> tuple[Array, Array]:
        """What rows see of the inducing values."""

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, c: Array, power: float) -> Any:
        """The likelihood's l and its slopes; its slopes by the free parameters, summed over rows."""

    def level(self, free: Free) -> Array:
        """What one is, added to the latents of all classes, in units of each of them."""

    def log_prior(self, free: Free, start: Free) -> Array:
        """Log-density of the free parameters."""

    def learnable(self) -> Free:
        """Which of them may move."""


class Batches(NamedTuple):
    """Rows in batches of one size: X (b, B, D), y (b, B), c (b, B) with zeros for rows that only fill up."""

    X: Array
    y: Array
    c: Array


class Plan(NamedTuple):
    """One number for each step: the batch, the learning rate, the sites' step, the share of the batch in the sums."""

    batch: Array
    rate: Array
    site_step: Array
    sum_step: Array


class State(NamedTuple):
    """All that changes; sites are about the level u^T a(x) of all classes, u (M,)."""

    free: Free
    sites: Sites
    level: Array
    precision: Array
    shift: Array
    moments: Any


class Trace(NamedTuple):
    """Of each step: sum_k Phi, the batch's part of the energy, the log-prior."""

    log_partition: Array
    rows: Array
    log_prior: Array


def _optimiser() -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=0.9, b2=0.99)


def initial_state(free: Free, batches: Batches, K: int, M: int) -> State:
    """Sites that say nothing yet."""
    n_batches, B = batches.y.shape
    zeros = jnp.zeros((n_batches, K, B))
    sums = jnp.zeros((K, M, M)), jnp.zeros((K, M))
    return State(free, Sites(zeros, zeros), jnp.zeros(M), *sums, _optimiser().init(free))


@partial(jax.jit, static_argnames=("model", "power"))
def run_plan(
    model: Model, start: Free, state: State, batches: Batches, plan: Plan, jitter: Array, power: float
) -> tuple[State, Trace]:
    """Take the steps of a plan."""
    n_batches = batches.y.shape[0]
    moves = moves_of(model.learnable(), start)

    def step(state: State, now: Plan) -> tuple[State, Trace]:
        X, y, c = (array[now.batch] for array in batches)
        (A, beyond), back = jax.vjp(lambda free: model.project(free, X, jitter), state.free)
        unit, level = model.level(state.free), state.level
        sites = Sites(*(array[now.batch] for array in state.sites)).raised(jnp.outer(unit, level @ A))
        precision, shift = site_sums(A, sites, c)
        if n_batches > 1:
            precision = state.precision + now.sum_step * (n_batches * precision - state.precision)
            shift = state.shift + now.sum_step * (n_batches * shift - state.shift)
        q = belief(precision, shift)
        if n_batches == 1:
            q, shift, u = levelled(q, precision, shift, unit)
            level, sites = level + u, sites.raised(jnp.outer(unit, u @ A))
        of_likelihood: dict[str, Free] = {}

        def expected(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
            out = model.expected(state.free, mean, variance, y, c, power)
            of_likelihood["free"] = out.by_free
            return out.value, out.by_mean, out.by_variance

        visit = sweep(q, Projection(A, beyond), sites, c, expected, power)

        def learn() -> tuple[Free, Any]:
            (uphill,) = back(tuple(slopes(q, visit, sites, c)))
            of_prior = jax.grad(model.log_prior)(state.free, start)
            uphill = jax.tree.map(lambda a, b, p: n_batches * (a + b) + p, uphill, of_likelihood["free"], of_prior)
            downhill = jax.tree.map(lambda g, moving: -g if moving else jnp.zeros_like(g), uphill, moves)
            update, moments = _optimiser().update(downhill, state.moments)
            return jax.tree.map(lambda old, u: old - now.rate * u, state.free, update), moments

        free, moments = jax.lax.cond(now.rate > 0.0, learn, lambda: (state.free, state.moments))
        moved = sites.towards(visit.target, now.site_step)
        if n_batches > 1:
            change = site_sums(A, Sites(*(new - old for new, old in zip(moved, sites, strict=True))), c)
            precision, shift = precision + change[0], shift + change[1]
        kept = moved.raised(-jnp.outer(unit, level @ A))
        all_sites = Sites(*(a.at[now.batch].set(b) for a, b in zip(state.sites, kept, strict=True)))
        trace = Trace(q.log_partition, visit.energy, model.log_prior(state.free, start))
        return State(free, all_sites, level, precision, shift, moments), trace

    return jax.lax.scan(step, state, plan)


@jax.jit(static_argnames="model")
def with_level(model: Model, state: State) -> State:
    """The state with the common level of all sites where the fixed point has it, as far as the sums tell."""
    q = belief(state.precision, state.shift)
    _, shift, u = levelled(q, state.precision, state.shift, model.level(state.free))
    return state._replace(level=state.level + u, shift=shift)


@jax.jit
def final_belief(state: State) -> Belief:
    """q(v) as the sums stand."""
    return belief(state.precision, state.shift)


def moves_of(learnable: Any, free: Any) -> Any:
    """A tree of booleans like that of the parameters."""
    if isinstance(free, dict):
        return {name: moves_of(learnable[name], value) for name, value in free.items()}
    if isinstance(free, (list, tuple)):
        return [moves_of(a, b) for a, b in zip(learnable, free, strict=True)]
    return bool(learnable)
