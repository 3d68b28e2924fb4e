"""Sums over rows of averaged softmax: plain loops over rows and nodes, draws of the parameters, any split of rows."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from tests.slow import quick_first

from posteriori.maths.integrals import normal_nodes
from posteriori.maths.quadratic import unpacked
from posteriori.softmax.kernels import expected_moments
from posteriori.softmax.pairs import averaged_moments, pair_forms, pair_grams

layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.ascontiguousarray], 2))
intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["flat", "intercept"])
N, D = 9, 2


def problem(K, intercept=True, sd=0.7, seed=0):
    """Rows, weights, parameters and a covariance of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
    size = K * (D + intercept)
    root = sd * rng.normal(size=(size, size)) / np.sqrt(size)
    return X, rng.uniform(0.1, 2.0, N), rng.normal(size=(K, D + intercept)), root @ root.T


@layouts
@intercepts
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", quick_first([3, 2, 5]))
def test_sums_are_plain_loops(layout, intercept, weighted, K):
    X, c, theta, S = problem(K, intercept)
    width = D + intercept
    nodes = normal_nodes(K - 1, 64)
    T = np.kron(np.c_[np.eye(K - 1), -np.ones(K - 1)], np.eye(width))
    log_partition, first, grams = 0.0, np.zeros((K, width)), np.zeros((K, K, width, width))
    for n in range(N):
        z = np.append(X[n], 1.0) if intercept else X[n]
        lifted = np.kron(np.eye(K - 1), z) @ T
        L = np.linalg.cholesky(lifted @ S @ lifted.T + 1e-20 * np.eye(K - 1))  # a row may be zero
        weight = c[n] if weighted else 1.0
        for point, w in zip(nodes.points.T, nodes.weights, strict=True):
            f = theta @ z
            f[:-1] += L @ point
            p = softmax(f)
            log_partition += weight * w * logsumexp(f)
            first += weight * w * np.outer(p, z)
            grams += weight * w * np.multiply.outer(np.outer(p, p), np.outer(z, z))
    found = averaged_moments(layout(X), None, c if weighted else None, theta, pair_forms(S, np.eye(K)), nodes)
    assert found[0] == pytest.approx(log_partition, rel=1e-9)
    np.testing.assert_allclose(found[1], first, atol=1e-8)
    np.testing.assert_allclose(
        unpacked(found[2], width), [grams[pair] for pair in combinations(range(K), 2)], atol=1e-8
    )


@pytest.mark.parametrize("K", [2, 3])
def test_sums_are_averages_over_draws_of_the_parameters(K):
    X, c, theta, S = problem(K)
    rng = np.random.default_rng(1)
    draws = theta + (rng.standard_normal((40_000, len(S))) @ np.linalg.cholesky(S).T).reshape(-1, *theta.shape)
    Z = np.c_[X, np.ones(N)]
    F = np.einsum("nd,skd->snk", Z, draws)
    log_partition = logsumexp(F, axis=2) @ c
    P = softmax(F, axis=2)
    first = np.einsum("snk,n,nd->skd", P, c, Z)
    product = np.einsum("sn,nd,ne->sde", P[:, :, 0] * P[:, :, 1] * c, Z, Z)
    found = averaged_moments(X, None, c, theta, pair_forms(S, np.eye(K)), normal_nodes(K - 1, 400))
    shift = c @ (Z @ (theta[-1] - draws[:, -1]).T)  # draws move all logits of a row; the sums are about theta's last
    for value, drawn in (
        (found[0], log_partition + shift),
        (found[1], first),
        (unpacked(found[2], Z.shape[1])[0], product),
    ):
        error = drawn.std(axis=0) / np.sqrt(len(drawn))
        assert (np.abs(value - drawn.mean(axis=0)) < 5 * error + 1e-5).all()


def test_no_variance_is_no_average():
    X, c, theta, _ = problem(4)
    found = averaged_moments(X, None, c, theta, np.zeros((6, 3, 3)), normal_nodes(3))
    log_partition, first = expected_moments(X, None, c, theta)
    assert found[0] == pytest.approx(log_partition, rel=1e-13)
    np.testing.assert_allclose(found[1], first, atol=1e-12)
    np.testing.assert_allclose(found[2], pair_grams(X, None, c, theta), atol=1e-12)


def test_any_split_of_the_rows_and_one_vector_for_all_classes():
    X, c, theta, S = problem(4)
    forms, nodes = pair_forms(S, np.eye(4)), normal_nodes(3)
    whole = averaged_moments(X, None, c, theta, forms, nodes)
    parts = averaged_moments(X[:4], None, c[:4], theta, forms, nodes) + averaged_moments(
        X[4:], None, c[4:], theta, forms, nodes
    )
    shift = np.array([0.3, -2.0, 1.0])
    moved = averaged_moments(X, None, c, theta + shift, forms, nodes)
    for a, b, d in zip(whole, parts, moved, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-13)
        if np.ndim(a):
            np.testing.assert_allclose(d, a, rtol=1e-11, atol=1e-12)
    assert moved[0] - whole[0] == pytest.approx(c @ (np.c_[X, np.ones(N)] @ shift), rel=1e-11)
