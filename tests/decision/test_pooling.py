"""Weights of pools: against a general optimiser, closed forms, and what a prior at equal weights means."""

import numpy as np
import pytest
from scipy.optimize import minimize

from posteriori.decision.pooling import POOLS, LinearPool, LogPool


def case(n=60, M=3, K=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    log_p = rng.normal(size=(M, n, K)) + np.array([2.0, 1.0, 0.0])[:M, None, None] * np.eye(K)[y]
    log_p -= np.logaddexp.reduce(log_p, axis=2, keepdims=True)
    return log_p, np.eye(K)[y], rng.uniform(0.2, 2.0, n)


def objective(pool, log_p, Y, c, w, strength):
    own = (c @ np.where(Y > 0, Y * pool.log_pooled(log_p, w), 0.0)).sum()
    M = len(w)
    if pool.name == "linear":
        return own + strength / M * np.log(w).sum()
    return own - 2.0 * strength * ((w - 1.0 / M) ** 2).sum()


@pytest.mark.parametrize("strength", [0.5, 5.0])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_weights_are_those_of_a_general_optimiser(pool, strength):
    log_p, Y, c = case()
    w = pool.weights(log_p, Y, c, strength)
    if pool.name == "linear":

        def loss(u):
            e = np.exp(u - u.max())
            return -objective(pool, log_p, Y, c, e / e.sum(), strength)

        u = minimize(loss, np.zeros(3), tol=1e-12).x
        expected = np.exp(u - u.max()) / np.exp(u - u.max()).sum()
    else:
        bounds = [(1e-9, None)] * 3
        expected = minimize(
            lambda w: -objective(pool, log_p, Y, c, w, strength), np.full(3, 1 / 3), bounds=bounds, tol=1e-14
        ).x
    np.testing.assert_allclose(w, expected, atol=2e-4)
    assert objective(pool, log_p, Y, c, w, strength) >= objective(pool, log_p, Y, c, expected, strength) - 1e-7


def test_two_models_of_one_class_have_weights_in_closed_form():
    """With p = (1, 0) in a share r of the rows, and (0, 1) in the others, the weight is (n r + s/2) / (n + s)."""
    n, r, s = 40, 0.75, 6.0
    right = np.arange(n) < r * n
    with np.errstate(divide="ignore"):
        log_p = np.log(np.stack([np.stack([right, ~right], axis=1), np.stack([~right, right], axis=1)]).astype(float))
    w = LinearPool().weights(log_p, np.tile([1.0, 0.0], (n, 1)), np.ones(n), s)
    np.testing.assert_allclose(w, [(n * r + s / 2) / (n + s), (n * (1 - r) + s / 2) / (n + s)], rtol=1e-8)


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_no_rows_leave_weights_equal_and_a_weight_counts_as_so_many_rows(pool):
    log_p, Y, _ = case()
    np.testing.assert_allclose(pool.weights(log_p[:, :1], Y[:1], np.full(1, 1e-9)), 1.0 / 3.0, atol=1e-6)
    twice = np.repeat(np.arange(len(Y)), 2)
    np.testing.assert_allclose(
        pool.weights(log_p[:, twice], Y[twice], np.ones(2 * len(Y))),
        pool.weights(log_p, Y, np.full(len(Y), 2.0)),
        atol=1e-5,
    )


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_pooled_probabilities_sum_to_one(pool):
    log_p, _, _ = case()
    np.testing.assert_allclose(np.exp(pool.log_pooled(log_p, np.array([0.2, 0.5, 0.3]))).sum(axis=1), 1.0)


def test_a_power_of_one_is_the_model_itself_and_two_models_may_sharpen_each_other():
    log_p, _, _ = case()
    np.testing.assert_allclose(LogPool().log_pooled(log_p[:1], np.ones(1)), log_p[0], atol=1e-12)
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    logits = 1.5 * X - 1.125  # of two independent features: the truth is the sum of what each says
    log_p = np.stack([np.stack([-np.logaddexp(0, f), -np.logaddexp(0, -f)], axis=1) for f in logits.T])
    np.testing.assert_allclose(LogPool().weights(log_p, np.eye(2)[y], np.ones(4000)), 1.0, atol=0.1)


def test_soft_targets_are_rows_of_each_class():
    log_p, _, _ = case()
    Y = np.random.default_rng(2).dirichlet(np.ones(4), size=60)
    n, k = np.nonzero(Y)
    hard = LinearPool().weights(log_p[:, n], np.eye(4)[k], Y[n, k])
    np.testing.assert_allclose(LinearPool().weights(log_p, Y, np.ones(60)), hard, atol=1e-8)
