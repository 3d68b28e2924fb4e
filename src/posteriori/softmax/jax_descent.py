r"""Softmax regression solved in one call, for rows on a GPU.

On a GPU a pass over the rows takes less time than the way to the host and back. So the whole descent is one program:
the optimum of a sample, the Hessian of the sample, and quasi-Newton steps over all rows that start from its inverse.
With a Hessian M of n of the rows the eigenvalues of M^{-1} H lie about (1 +- sqrt(p / n))^2 for p parameters, so that a
pass divides the distance to the optimum by about n / p.

.. math:: J(\theta) = \sum_n c_n \log\sum_k e^{f_{nk}} - \langle\theta, T\rangle
          + \tfrac12 (\theta - m)^\top R\,(\theta - m)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from posteriori.rows.gpu_arrays import contract, logits, random_rows, rounded, weighed, weighted_grams
from posteriori.softmax.jax_kernels import (
    cholesky_psd,
    class_mixing,
    hessian_product,
    log_partition_and_softmax,
    observed_moments,
    pair_grams,
)
from posteriori.softmax.pairs import contrasts
from posteriori.solvers.problem import Descent

__all__ = ["DiagonalPrior", "descend", "descent"]

_STEPS = 24
"""Most steps over all rows."""
_SAMPLE_STEPS = 200
"""Most steps over the sample, which cost little; they are not remembered."""
_MEMORY = 5
"""Pairs of steps and gradient differences kept."""
_PRODUCTS = 100
"""Most products with the Hessian for one decrement."""
_ROUNDS = 4
"""Most moves of the intercepts alone."""
_PATH = _STEPS + 2
"""Points remembered: the start, the steps, and the end with its intercepts settled."""
_SHORTEST = 1e-4
"""The shortest step that is tried along a direction."""
_NOTHING = 1e-15
"""Share of J below which a gap is rounding, as in `solvers.newton`."""
_ARMIJO, _ROUNDING = 1e-4, 1e-11
"""The constants of `solvers.line_search`: the required share of the slope, and the change of J that may be rounding."""
_SEED = 20260214
_MOST_PARAMETERS = 4000
"""Most parameters whose Hessian is factored on the GPU."""
_MOST_BYTES = 8 << 30
"""Most memory for four copies of the probabilities."""

Apply = Callable[[jax.Array], jax.Array]


class DiagonalPrior(NamedTuple):
    """Precisions (K, D') of a Gaussian, its centre [c, 1] (D',) or None as in `DiagonalPrecision`, a mean or None."""

    values: Any
    centre: Any
    mean: Any


class Rows(NamedTuple):
    """The parts of the objective J: rows, their weights, T, and the prior."""

    X: jax.Array
    c: jax.Array | None
    moments: jax.Array
    prior: DiagonalPrior


class Point(NamedTuple):
    """Parameters, J, its gradient and the sum of log-partitions there, and the rows' probabilities (K, N)."""

    theta: jax.Array
    value: jax.Array
    gradient: jax.Array
    log_partition: jax.Array
    P: jax.Array


class Memory(NamedTuple):
    """The last steps s and gradient differences y, (m, K, D') each, oldest first, and 1 / s.y; zero where none is."""

    steps: jax.Array
    changes: jax.Array
    rhos: jax.Array


class State(NamedTuple):
    """The state of a descent."""

    now: Point
    memory: Memory
    gap: Any
    """Estimate of J - J* at the point before."""
    target: Any
    """Relative gap, by the memory's own estimate, below which the gap is computed: the estimate may be too low."""
    converged: Any
    stuck: Any
    n_steps: Any
    n_passes: Any
    path: tuple[jax.Array, ...]
    """Parameters, gradients, objectives and gaps of the steps."""


def descend(
    blocks: Any,
    moments: np.ndarray,
    squares: np.ndarray,
    prior: DiagonalPrior,
    tol: float,
    n_sample: int,
    buffers: list[Any],
) -> Descent | None:
    """Descend from zero over blocks on a GPU; None if the Hessian, or four copies of P, would be too large.

    The probabilities at the end are left in the buffers.
    """
    if moments.size > _MOST_PARAMETERS or 4 * 8 * blocks.n_rows * len(moments) > _MOST_BYTES:
        return None
    found = blocks.run_on_gpu(descent, moments, squares, prior, tol, rounded(n_sample), blocks.n_rows)
    blocks.n_passes += found.n_passes
    buffers[0].P = found.probabilities
    return found


def descent(
    X: jax.Array,
    Y: jax.Array,
    c: jax.Array | None,
    moments: np.ndarray,
    squares: np.ndarray,
    prior: DiagonalPrior,
    tol: float,
    n_sample: int,
    n_all: int,
) -> Descent:
    """The descent from zero to the optimum of `n_sample` of the first `n_all` rows, and from there to that of all."""
    found, P = _descent(X, Y, c, moments, squares, prior, tol, n_sample, n_all)
    numbers, values, gaps, thetas, gradients = np.split(
        np.array(found), np.cumsum([4, _PATH, _PATH, _PATH * moments.size])
    )
    converged, log_partition, n_steps, n_passes = numbers
    steps = range(int(n_steps) + 1)
    return Descent(
        thetas=[thetas.reshape(_PATH, *moments.shape)[i] for i in steps],
        gradients=[gradients.reshape(_PATH, *moments.shape)[i] for i in steps],
        values=[float(values[i]) for i in steps],
        gaps=[float(gaps[i]) for i in steps],
        converged=bool(converged),
        log_partition=float(log_partition),
        n_passes=int(n_passes),
        probabilities=P,
    )


@partial(jax.jit, static_argnames=("n_sample", "n_all"))
def _descent(
    X: jax.Array,
    Y: jax.Array,
    c: jax.Array | None,
    moments: jax.Array,
    squares: jax.Array,
    prior: DiagonalPrior,
    tol: float,
    n_sample: int,
    n_all: int,
) -> tuple[jax.Array, jax.Array]:
    """All that the host needs in one array, for one way there; and P."""
    (K, width), D = moments.shape, X.shape[1]
    Xs, Ys, cs = random_rows(X, Y, c, _SEED, n_sample, n_all)
    sample_moments, seen = observed_moments(Xs, Ys, cs, K)
    sample = Rows(Xs, cs, sample_moments[:, :width], prior)
    unseen = jnp.where(seen < 0.5 * squares, squares - seen, 0.0)  # of columns that are zero in most rows
    rough = 0.01 * moments.size / n_sample  # the optimum of the sample is about K D / 2 nats from that of all
    start = quasi_newton(sample, at_zero(sample), jnp.zeros(moments.shape), rough, most=_SAMPLE_STEPS, certain=False)
    rows = Rows(X, c, moments, prior)
    end = quasi_newton(rows, whole(sample, start.now, unseen), start.now.theta, tol, most=_STEPS, certain=True)
    if width > D:
        end = lax.cond((prior.values[:, -1] == 0).all(), partial(settled, rows), lambda end: end, end)
    numbers = jnp.stack([end.converged, end.now.log_partition, end.n_steps, end.n_passes]).astype(float)
    thetas, gradients, values, gaps = end.path
    return jnp.concatenate([numbers, values, gaps, thetas.ravel(), gradients.ravel()]), end.now.P


# The objective


def times(prior: DiagonalPrior, V: jax.Array) -> jax.Array:
    """The product R V of the prior's precision."""
    values, centre, _ = prior
    if centre is None:
        return values * V
    tilt = values[:, -1] * (V @ centre)
    return values.at[:, -1].set(0.0) * V + tilt[:, None] * centre


def at(rows: Rows, theta: jax.Array) -> Point:
    """The objective J and its gradient, in one pass."""
    log_partition, P = log_partition_and_softmax(logits(rows.X, theta))
    total = weighed(log_partition, rows.c).sum()
    gradient = contract(weighed(P, rows.c), rows.X, theta.shape[1] > rows.X.shape[1]) - rows.moments
    centred = theta if rows.prior.mean is None else theta - rows.prior.mean
    pull = times(rows.prior, centred)
    value = total - jnp.vdot(theta, rows.moments) + 0.5 * jnp.vdot(pull, centred)
    return Point(theta, value, gradient - gradient.mean(axis=0) + pull, total, P)


def product(rows: Rows, now: Point, V: jax.Array) -> jax.Array:
    """The product H V of the Hessian."""
    out = hessian_product(rows.X, None, rows.c, now.theta, V - V.mean(axis=0), now.P)
    return out - out.mean(axis=0) + times(rows.prior, V)


# Preconditioners, in contrasts of the classes; what all classes share is divided by the prior's diagonal


def at_zero(rows: Rows) -> Apply:
    """Inverse of the Hessian at theta = 0, which is (I - 11^T / K) / K kron X^T C X + prior."""
    K, width = rows.moments.shape
    weights = jnp.ones((1, len(rows.X))) if rows.c is None else rows.c[None]
    G = weighted_grams(rows.X, weights, width > rows.X.shape[1])[0]
    inverse = inverse_spd(G / K + mean_precision(rows.prior))
    return lambda R: across(R, rows.prior, lambda Z: Z @ inverse)


def whole(rows: Rows, now: Point, unseen: jax.Array) -> Apply:
    """Inverse of the Hessian of these rows; `unseen` (D,) are the sums of squares of rows that are not among them.

    Without the prior, H has blocks -G_kl for pairs of classes; those of one class make each row of blocks sum to zero.
    """
    K, width = rows.moments.shape
    k, m = np.triu_indices(K, 1)
    grams = pair_grams(rows.X, None, rows.c, now.theta, now.P)
    blocks = jnp.zeros((K, K, width, width)).at[k, m].set(-grams).at[m, k].set(-grams)
    blocks = blocks.at[np.arange(K), np.arange(K)].set(-blocks.sum(axis=1))
    Q = jnp.asarray(contrasts(K))
    H = jnp.einsum("ki,klde,lj->idje", Q, blocks, Q)
    i = np.arange(K - 1)
    H = H.at[i, :, i, :].add(mean_precision(rows.prior))
    spread = Q.T @ class_mixing(rows.X, None, rows.c, now.theta, now.P) @ Q
    share = spread.diagonal() / (len(rows.X) if rows.c is None else rows.c.sum())  # curvature of a row, on average
    d = np.arange(len(unseen))
    H = H.at[i[:, None], d, i[:, None], d].add(share[:, None] * unseen)
    inverse = inverse_spd(H.reshape((K - 1) * width, -1))
    return lambda R: across(R, rows.prior, lambda Z: Q @ (inverse @ (Q.T @ Z).ravel()).reshape(K - 1, width))


def mean_precision(prior: DiagonalPrior) -> jax.Array:
    """The prior's precision of one class, (D', D'), on average."""
    a, centre = prior.values.mean(axis=0), prior.centre
    return jnp.diag(a) if centre is None else jnp.diag(a.at[-1].set(0.0)) + a[-1] * jnp.outer(centre, centre)


def inverse_spd(M: jax.Array) -> jax.Array:
    """Inverse of a symmetric positive (semi-)definite matrix, for use as a preconditioner."""
    diagonal = M.diagonal()
    scale = jnp.where(diagonal > 0, 1.0 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 0.0)
    scaled = M * scale * scale[:, None]
    L = cholesky_psd((scaled + 1e-12 * jnp.eye(len(M)))[None])[0]
    return jax.scipy.linalg.cho_solve((L, True), jnp.eye(len(M))) * scale * scale[:, None]


def across(R: jax.Array, prior: DiagonalPrior, apply: Apply) -> jax.Array:
    """Apply a function to deviations from the mean over classes, and the prior alone to the mean."""
    mean = R.mean(axis=0)
    precisions = mean_precision(prior).diagonal()
    # the likelihood has no slope there: a slope that small is rounding
    sloped = (precisions > 0) & (jnp.abs(mean) > 1e-12 * jnp.abs(R).max(axis=0))
    Z = apply(R - mean)
    return Z - Z.mean(axis=0) + jnp.where(sloped, mean / jnp.where(sloped, precisions, 1.0), 0.0)


# The descent


def quasi_newton(rows: Rows, apply: Apply, theta: jax.Array, tol: Any, *, most: int, certain: bool) -> State:
    """L-BFGS in the metric of a preconditioner until the gap is within tol * |J|, or no step leads further down.

    If it is to be `certain`, the gap is the Newton decrement at the end, and else L-BFGS's own estimate.
    """
    now = at(rows, theta)
    none = jnp.zeros((_MEMORY, *theta.shape))
    thetas, values = jnp.zeros((_PATH, *theta.shape)), jnp.zeros(_PATH)
    start = State(
        now=now,
        memory=Memory(none, none, jnp.zeros(_MEMORY)),
        gap=jnp.array(jnp.inf),
        target=jnp.maximum(tol, _NOTHING),
        converged=jnp.array(False),
        stuck=~jnp.isfinite(now.value),
        n_steps=0,
        n_passes=1,
        path=(thetas, thetas, values, values),
    )

    def going(state: State) -> jax.Array:
        return ~state.converged & ~state.stuck & (state.n_steps < most)

    def step(state: State) -> State:
        now, size = state.now, jnp.abs(state.now.value)
        direction = -two_loop(state.memory, apply, now.gradient)
        own = -0.5 * jnp.vdot(now.gradient, direction)
        near = own <= state.target * size
        if certain:
            gap, n = lax.cond(near, lambda: decrement(rows, now, apply, 0.05 * tol * size), lambda: (own, 0))
        else:
            gap, n = own, 0
        there = near & (gap <= jnp.maximum(tol, _NOTHING) * size)
        found, n_trials, passed = lax.cond(
            there, lambda: (now, 0, jnp.array(True)), lambda: line_search(rows, now, direction)
        )
        return State(
            now=found,
            memory=remembered(state.memory, now, found),
            gap=gap,
            target=jnp.where(near, 0.1 * state.target, state.target),
            converged=there,
            stuck=~passed,
            n_steps=state.n_steps + (passed & ~there),
            n_passes=state.n_passes + n + n_trials,
            path=recorded(state.path, state.n_steps, now, gap),
        )

    end = lax.while_loop(going, step, start)
    return end._replace(path=recorded(end.path, end.n_steps, end.now, end.gap))


def two_loop(memory: Memory, apply: Apply, gradient: jax.Array) -> jax.Array:
    """The inverse Hessian of the pairs, with the preconditioner at its core, times the gradient."""
    q, weights = gradient, []
    for step, change, rho in reversed(list(zip(*memory, strict=True))):
        weights.append(rho * jnp.vdot(step, q))
        q = q - weights[-1] * change
    q = apply(q)
    for step, change, rho, weight in zip(*memory, reversed(weights), strict=True):
        q = q + (weight - rho * jnp.vdot(change, q)) * step
    return q


def remembered(memory: Memory, before: Point, now: Point) -> Memory:
    """The memory with one more pair, and without the oldest; as it was if J is not convex along the step."""
    step, change = now.theta - before.theta, now.gradient - before.gradient
    curvature = jnp.vdot(step, change)
    new = step, change, 1.0 / jnp.where(curvature > 0, curvature, 1.0)
    pairs = (jnp.concatenate([old[1:], each[None]]) for old, each in zip(memory, new, strict=True))
    return Memory(*(jnp.where(curvature > 0, each, old) for each, old in zip(pairs, memory, strict=True)))


def recorded(path: tuple[jax.Array, ...], i: Any, now: Point, gap: Any) -> tuple[jax.Array, ...]:
    """The path with its i-th point set."""
    entries = now.theta, now.gradient, now.value, gap
    return tuple(each.at[i].set(value) for each, value in zip(path, entries, strict=True))


def decrement(rows: Rows, now: Point, apply: Apply, enough: Any) -> tuple[jax.Array, Any]:
    """1/2 g^T H^{-1} g by conjugate gradients, and the products it took; infinite where there is no curvature.

    They end when a tenth of it is left, by the preconditioner's estimate, which is added. A gradient that is only
    rounding takes no product.
    """
    z = apply(-now.gradient)
    rz = -jnp.vdot(now.gradient, z)
    noise = _NOTHING * jnp.abs(now.value)
    stop = jnp.maximum(0.1 * rz, 2.0 * jnp.maximum(enough, noise))

    def going(state: Any) -> jax.Array:
        _, _, rz, _, n, flat = state
        return ((rz > stop) | (n == 0)) & (rz > 2.0 * noise) & (n < _PRODUCTS) & ~flat

    def more(state: Any) -> Any:
        residual, search, rz, total, n, _ = state
        H_search = product(rows, now, search)
        curvature = jnp.vdot(search, H_search)
        flat = ~(curvature > 0)
        alpha = rz / jnp.where(flat, 1.0, curvature)
        residual = residual - alpha * H_search
        z = apply(residual)
        rz_new = jnp.vdot(residual, z)
        return residual, z + (rz_new / rz) * search, rz_new, total + 0.5 * alpha * rz, n + 1, flat

    start = -now.gradient, z, rz, jnp.zeros(()), 0, jnp.array(False)
    _, _, left, total, n, flat = lax.while_loop(going, more, start)
    return jnp.where(flat, jnp.inf, total + 0.5 * left), n


def line_search(rows: Rows, now: Point, direction: jax.Array) -> tuple[Point, Any, jax.Array]:
    """The first of shorter and shorter steps with J(t) <= J(0) + 1e-4 t J'(0), its trials, and whether there is one.

    When the decrease is lost in rounding, a flatter slope will do. Where there is none, the point stays.
    """
    slope = jnp.vdot(now.gradient, direction)

    def passes(t: Any, trial: Point) -> jax.Array:
        down = trial.value <= now.value + _ARMIJO * t * slope
        flatter = jnp.abs(jnp.vdot(trial.gradient, direction)) <= 0.9 * jnp.abs(slope)
        level = trial.value <= now.value + _ROUNDING * jnp.abs(now.value)
        return jnp.isfinite(trial.value) & (slope < 0) & (down | (level & flatter))

    def going(state: Any) -> jax.Array:
        t, trial, _ = state
        return ~passes(t, trial) & (t > _SHORTEST)

    def shorter(state: Any) -> Any:
        t, _, n = state
        return 0.3 * t, at(rows, now.theta + 0.3 * t * direction), n + 1

    t, trial, n = lax.while_loop(going, shorter, (1.0, at(rows, now.theta + direction), 1))
    passed = passes(t, trial)
    return lax.cond(passed, lambda: trial, lambda: now), n, passed


def settled(rows: Rows, state: State) -> State:
    """The point with its free intercepts at their optimum given the weights, as a certificate needs them."""
    sizes = rows.moments[:, -1]
    A = class_mixing(rows.X, None, rows.c, state.now.theta, state.now.P)
    A += A.diagonal().mean() / len(A)  # what all classes share changes nothing
    mean = rows.moments[:, :-1].sum(axis=0) / sizes.sum()
    small = 1e-10 / (1.0 + jnp.abs(mean).max()) * sizes.sum()

    def slope(point: Point) -> jax.Array:
        return jnp.abs(point.gradient[:, -1]).max()

    def going(state: Any) -> jax.Array:
        now, better, n = state
        return (slope(now) > small) & better & (n < _ROUNDS)

    def move(state: Any) -> Any:
        now, _, n = state
        moved = at(rows, now.theta.at[:, -1].add(-jnp.linalg.solve(A, now.gradient[:, -1])))
        better = slope(moved) < slope(now)  # otherwise it is rounding, or too far away
        return lax.cond(better, lambda: moved, lambda: now), better, n + 1

    now, _, n = lax.while_loop(going, move, (state.now, jnp.array(True), 0))
    n_steps = state.n_steps + (n > 0)
    path = recorded(state.path, n_steps, now, state.gap)
    return state._replace(now=now, n_steps=n_steps, n_passes=state.n_passes + n, path=path)
