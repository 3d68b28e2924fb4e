"""Tied sites, layer upon layer: steps up the power-EP energy, whole chunks of them in one compiled scan.

Every step sees one batch of rows through fresh samples of the hidden layers. Hidden beliefs, kernels and inducing
inputs take a step of Adam up the energy. The last layer's sites either do the same ("energy", and "vi" at power 0), or
are averages over rows of the sites that expectation propagation would give each of them ("ep"): natural parameters, as
running averages over batches, the cavity lacking its share of one row.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from posteriori.gp.energy import Cavity, averaged_energy, cavity, tied_energy
from posteriori.gp.ep import belief, site_of, site_sums
from posteriori.gp.training import Batches, Free, moves_of
from posteriori.maths.whitening import quadratic

__all__ = ["StackPlan", "StackState", "initial_stack_state", "run_stack_plan"]


class StackPlan(NamedTuple):
    """One number for each step: the batch, the learning rate, the share of the batch in the last sites, the seed."""

    batch: Array
    rate: Array
    sum_step: Array
    seed: Array


class StackState(NamedTuple):
    """All that changes; precision and shift are those of the last layer's sites, where they are averaged."""

    free: Free
    precision: Array
    shift: Array
    moments: Any


def _optimiser() -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=0.9, b2=0.99)


def initial_stack_state(free: Free, K: int) -> StackState:
    """Last sites that say nothing yet."""
    M = free["last"]["inducing"].shape[0]
    return StackState(free, jnp.zeros((K, M, M)), jnp.zeros((K, M)), _optimiser().init(free))


@partial(jax.jit, static_argnames=("model", "power", "n_samples", "averaged"))
def run_stack_plan(
    model: Any,
    start: Free,
    state: StackState,
    batches: Batches,
    plan: StackPlan,
    jitter: Array,
    *,
    power: float,
    n_samples: int,
    averaged: bool,
) -> tuple[StackState, Array]:
    """Take the steps of a plan; returns the energies seen."""
    n_batches, B = batches.y.shape
    N = batches.c.sum()
    delta = power / N
    moves = moves_of(model.learnable(), start)

    def energy(free: Free, state: StackState, now: StackPlan) -> tuple[Array, Any]:
        X, y, c = (array[now.batch] for array in batches)
        key = jax.random.key(now.seed)
        total = jnp.zeros(())
        beliefs, noise = [], []
        for layer, parameters in zip(model.hidden, free["hidden"], strict=True):
            without = cavity(parameters["mean"], parameters["root"], delta)
            total = total + tied_energy(parameters["mean"], parameters["root"], delta, without)
            beliefs.append(tuple(without))
            key, draw = jax.random.split(key)
            noise.append(jax.random.normal(draw, (n_samples, B, layer.width)))
        h = model.propagate(free, beliefs, X, noise, jitter)
        S = h.shape[0] // B
        last = free["last"]
        if averaged:
            q = belief((1.0 - delta) * state.precision, (1.0 - delta) * state.shift)
            without = Cavity(q.mean, q.covariance)
            total = total + averaged_energy(q, (1.0 - delta) * state.shift)
        else:
            without = cavity(last["mean"], last["root"], delta)
            total = total + tied_energy(last["mean"], last["root"], delta, without)
        A, beyond = model.last.project(last, h, jitter)
        w, m = quadratic(without.covariance, A), without.mean @ A
        each, slopes = model.last.log_expected(last, m, beyond + w, jnp.tile(y, S), power)
        each = each.reshape(S, B)
        if power > 0:
            value = (jax.nn.logsumexp(power * each, axis=0) - jnp.log(S)) / power
            weight = jax.nn.softmax(power * each, axis=0)
        else:
            value, weight = each.mean(0), jnp.full((S, B), 1.0 / S)
        total = total + n_batches * (c * value).sum()
        return total, (A, m, w, slopes, (c * weight).reshape(-1))

    def step(state: StackState, now: StackPlan) -> tuple[StackState, Array]:
        (value, seen), uphill = jax.value_and_grad(energy, has_aux=True)(state.free, state, now)
        log_prior, of_prior = jax.value_and_grad(model.log_prior)(state.free, start)
        downhill = jax.tree.map(lambda g, p, moving: -(g + p) if moving else jnp.zeros_like(g), uphill, of_prior, moves)
        update, moments = _optimiser().update(downhill, state.moments)
        free = jax.tree.map(lambda old, u: old - now.rate * u, state.free, update)
        precision, shift = state.precision, state.shift
        if averaged:
            A, m, w, (by_mean, by_variance), c = jax.lax.stop_gradient(seen)
            of_rows = site_sums(A, site_of(m, w, by_mean, by_variance, power), c)
            precision = precision + now.sum_step * (n_batches * of_rows[0] - precision)
            shift = shift + now.sum_step * (n_batches * of_rows[1] - shift)
        return StackState(free, precision, shift, moments), value + log_prior

    return jax.lax.scan(step, state, plan)
