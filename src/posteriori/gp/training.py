"""Steps of learning, whole chunks of them in one compiled scan: row sites (`ep`), and tied sites (`energy`).

Every step visits one batch of rows. The plan of the steps (which batch, how large a step, how much damping) is data, so
that one compilation serves for learning, for the last sweeps and for the exact sums over all rows at the end.

**Row sites.** The sites of the batch move towards the fixed point, damped; everything else takes a step of Adam along
the gradient of the energy, with sites held. With one batch, P and r are summed again at each step. With several, they
take up at once what a batch's sites have moved by, so that the next batch knows of it; and as a learned kernel makes
them age, they are drawn towards what each batch says of the sums over all rows. In an epoch in which nothing moves,
that with weights 1, 1/2, 1/3, ... makes them these sums, exactly.

Where the likelihood ignores a common shift of all latents, sites are kept relative to a level that all classes share
(`ep.levelled`), so that it can be brought to where the fixed point has it for all rows at once: with one batch at each
step, with several between epochs (`with_level`). For other likelihoods the level stays zero.

**Tied sites.** A batch is seen through fresh samples of the hidden layers. Hidden beliefs, kernels and inducing inputs
take a step of Adam up the energy. The last layer's sites either do the same, or are averages over rows of the sites
that expectation propagation would give each of them: natural parameters, as running averages over batches, the cavity
lacking its share of one row.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from posteriori.gp.batches import Batches
from posteriori.gp.energy import Cavity, averaged_energy, cavity, tied_energy
from posteriori.gp.ep import InducingBelief, Projection, Sites, belief, levelled, site_of, site_sums, slopes, sweep
from posteriori.gp.kernels import Free
from posteriori.gp.sparse import SparseGP
from posteriori.gp.stack import StackedGP
from posteriori.maths.whitening import quadratic

__all__ = [
    "RowSitePlan",
    "RowSiteState",
    "RowSiteTrace",
    "TiedSitePlan",
    "TiedSiteState",
    "final_belief",
    "initial_row_sites",
    "initial_tied_sites",
    "train_row_sites",
    "train_tied_sites",
    "with_level",
]

_ADAM = {"b1": 0.9, "b2": 0.99}


def _optimiser() -> optax.GradientTransformation:
    return optax.scale_by_adam(**_ADAM)


def _adam_step(free: Free, uphill: Free, moves: Any, moments: Any, rate: Array) -> tuple[Free, Any]:
    """The free parameters after a step of Adam along a gradient, those that are not learned held; and its moments."""
    downhill = jax.tree.map(lambda g, moving: -g if moving else jnp.zeros_like(g), uphill, moves)
    update, moments = _optimiser().update(downhill, moments)
    return jax.tree.map(lambda old, u: old - rate * u, free, update), moments


def _moves(learnable: Any, free: Any) -> Any:
    """A tree of booleans, whether each free parameter is learned, of the shape of the parameters."""
    if isinstance(free, dict):
        return {name: _moves(learnable[name], value) for name, value in free.items()}
    if isinstance(free, (list, tuple)):
        return [_moves(a, b) for a, b in zip(learnable, free, strict=True)]
    return bool(learnable)


# Row sites


class RowSitePlan(NamedTuple):
    """One number for each step: the batch, the learning rate, the sites' step, the share of the batch in the sums."""

    batch: Array
    rate: Array
    site_step: Array
    sum_step: Array


class RowSiteState(NamedTuple):
    """All that training changes; sites are about the level u^T a(x) of all classes, u (M,)."""

    free: Free
    sites: Sites
    level: Array
    precision: Array
    shift: Array
    moments: Any


class RowSiteTrace(NamedTuple):
    """Three numbers for each step: sum_k Phi, the batch's part of the energy, the log-prior."""

    log_partition: Array
    rows: Array
    log_prior: Array


def initial_row_sites(free: Free, batches: Batches, K: int, M: int) -> RowSiteState:
    """The state before the first step, with sites of precision zero."""
    n_batches, B = batches.y.shape
    zeros = jnp.zeros((n_batches, K, B))
    sums = jnp.zeros((K, M, M)), jnp.zeros((K, M))
    return RowSiteState(free, Sites(zeros, zeros), jnp.zeros(M), *sums, _optimiser().init(free))


@partial(jax.jit, static_argnames=("model", "power"))
def train_row_sites(
    model: SparseGP,
    start: Free,
    state: RowSiteState,
    batches: Batches,
    plan: RowSitePlan,
    jitter: Array,
    power: float,
) -> tuple[RowSiteState, RowSiteTrace]:
    """Take the steps of a plan; returns the state after them, and a trace of each step."""
    n_batches = batches.y.shape[0]
    moves = _moves(model.learnable(), start)

    def step(state: RowSiteState, now: RowSitePlan) -> tuple[RowSiteState, RowSiteTrace]:
        X, y, c = batches.visited(now.batch)
        (A, beyond), back = jax.vjp(lambda free: model.project(free, X, jitter), state.free)
        unit, level = model.level_units(state.free), state.level
        sites = Sites(*(array[now.batch] for array in state.sites)).raised(jnp.outer(unit, level @ A))
        precision, shift = site_sums(A, sites, c)
        if n_batches > 1:
            precision = state.precision + now.sum_step * (n_batches * precision - state.precision)
            shift = state.shift + now.sum_step * (n_batches * shift - state.shift)
        q = belief(precision, shift)
        if n_batches == 1 and model.has_free_level:
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
            return _adam_step(state.free, uphill, moves, state.moments, now.rate)

        free, moments = jax.lax.cond(now.rate > 0.0, learn, lambda: (state.free, state.moments))
        moved = sites.towards(visit.target, now.site_step)
        if n_batches > 1:
            change = site_sums(A, Sites(*(new - old for new, old in zip(moved, sites, strict=True))), c)
            precision, shift = precision + change[0], shift + change[1]
        relative = moved.raised(-jnp.outer(unit, level @ A))
        all_sites = Sites(*(a.at[now.batch].set(b) for a, b in zip(state.sites, relative, strict=True)))
        trace = RowSiteTrace(q.log_partition, visit.energy, model.log_prior(state.free, start))
        return RowSiteState(free, all_sites, level, precision, shift, moments), trace

    return jax.lax.scan(step, state, plan)


def with_level(model: SparseGP, state: RowSiteState) -> RowSiteState:
    """The state with the common level of all sites where the fixed point has it, as far as the sums tell.

    A likelihood that does not ignore a common shift has no such level: the state is returned as it is.
    """
    return _with_free_level(model, state) if model.has_free_level else state


@jax.jit(static_argnames="model")
def _with_free_level(model: SparseGP, state: RowSiteState) -> RowSiteState:
    q = belief(state.precision, state.shift)
    _, shift, u = levelled(q, state.precision, state.shift, model.level_units(state.free))
    return state._replace(level=state.level + u, shift=shift)


@jax.jit
def final_belief(state: RowSiteState) -> InducingBelief:
    """The belief q(v) of the sums in a state."""
    return belief(state.precision, state.shift)


# Tied sites


class TiedSitePlan(NamedTuple):
    """One number for each step: the batch, the learning rate, the share of the batch in the last sites, the seed."""

    batch: Array
    rate: Array
    sum_step: Array
    seed: Array


class TiedSiteState(NamedTuple):
    """All that training changes; precision and shift are those of the last layer's sites, where they are averaged."""

    free: Free
    precision: Array
    shift: Array
    moments: Any


class _Seen(NamedTuple):
    """Values that a step of averaged sites reads: columns a, cavities' moments, slopes of l, and weights."""

    A: Array
    mean: Array
    variance: Array
    slopes: tuple[Array, Array]
    weight: Array


def initial_tied_sites(free: Free, K: int) -> TiedSiteState:
    """The state before the first step, with last sites of precision zero."""
    M = free["last"]["inducing"].shape[0]
    return TiedSiteState(free, jnp.zeros((K, M, M)), jnp.zeros((K, M)), _optimiser().init(free))


@partial(jax.jit, static_argnames=("model", "power", "n_samples", "averaged"))
def train_tied_sites(
    model: StackedGP,
    start: Free,
    state: TiedSiteState,
    batches: Batches,
    plan: TiedSitePlan,
    jitter: Array,
    *,
    power: float,
    n_samples: int,
    averaged: bool,
) -> tuple[TiedSiteState, Array]:
    """Take the steps of a plan; returns the state after them, and the energies seen."""
    n_batches, B = batches.y.shape
    delta = power / batches.c.sum()
    moves = _moves(model.learnable(), start)

    def hidden_layers(free: Free, seed: Array) -> tuple[Array, list[tuple[Array, Array]], list[Array]]:
        """The hidden sites' part of the energy, the cavities, and the noise of the samples."""
        key = jax.random.key(seed)
        total, cavities, noise = jnp.zeros(()), list[tuple[Array, Array]](), list[Array]()
        for layer, parameters in zip(model.hidden, free["hidden"], strict=True):
            without = cavity(parameters["mean"], parameters["root"], delta)
            total = total + tied_energy(parameters["mean"], parameters["root"], delta, without)
            cavities.append((without.mean, without.covariance))
            key, draw = jax.random.split(key)
            noise.append(jax.random.normal(draw, (n_samples, B, layer.width)))
        return total, cavities, noise

    def last_layer(last: Free, state: TiedSiteState) -> tuple[Array, Cavity]:
        """The last sites' part of the energy, and their cavity."""
        if averaged:
            q = belief((1.0 - delta) * state.precision, (1.0 - delta) * state.shift)
            return averaged_energy(q, (1.0 - delta) * state.shift), Cavity(q.mean, q.covariance)
        without = cavity(last["mean"], last["root"], delta)
        return tied_energy(last["mean"], last["root"], delta, without), without

    def energy(free: Free, state: TiedSiteState, now: TiedSitePlan) -> tuple[Array, _Seen]:
        X, y, c = batches.visited(now.batch)
        of_hidden, cavities, noise = hidden_layers(free, now.seed)
        h = model.propagate(free, cavities, X, noise, jitter)
        S = h.shape[0] // B
        last = free["last"]
        of_last, without = last_layer(last, state)
        A, beyond = model.last.project(last, h, jitter)
        w, m = quadratic(without.covariance, A), without.mean @ A
        each, by_moments = model.last.log_expected(last, m, beyond + w, jnp.tile(y, S), power)
        value, share = _over_samples(each.reshape(S, B), power)
        total = of_hidden + of_last + n_batches * (c * value).sum()
        return total, _Seen(A, m, w, by_moments, (c * share).reshape(-1))

    def step(state: TiedSiteState, now: TiedSitePlan) -> tuple[TiedSiteState, Array]:
        (value, seen), uphill = jax.value_and_grad(energy, has_aux=True)(state.free, state, now)
        log_prior, of_prior = jax.value_and_grad(model.log_prior)(state.free, start)
        uphill = jax.tree.map(jnp.add, uphill, of_prior)
        free, moments = _adam_step(state.free, uphill, moves, state.moments, now.rate)
        precision, shift = state.precision, state.shift
        if averaged:
            seen = jax.lax.stop_gradient(seen)
            by_mean, by_variance = seen.slopes
            of_rows = site_sums(seen.A, site_of(seen.mean, seen.variance, by_mean, by_variance, power), seen.weight)
            precision = precision + now.sum_step * (n_batches * of_rows[0] - precision)
            shift = shift + now.sum_step * (n_batches * of_rows[1] - shift)
        return TiedSiteState(free, precision, shift, moments), value + log_prior

    return jax.lax.scan(step, state, plan)


def _over_samples(each: Array, power: float) -> tuple[Array, Array]:
    """The power mean of the factors of S samples, (S, B) -> (B,), and each sample's share in it, (S, B)."""
    S = each.shape[0]
    if power > 0:
        return (jax.nn.logsumexp(power * each, axis=0) - jnp.log(S)) / power, jax.nn.softmax(power * each, axis=0)
    return each.mean(0), jnp.full(each.shape, 1.0 / S)
