"""Curvature in pairs of classes: the full Hessian, covariances of differences, slopes of determinants."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from tests.slow import quick_first

from posteriori.maths.quadratic import unpacked
from posteriori.softmax import kernels
from posteriori.softmax.pairs import (
    contrasts,
    hessian_from_pairs,
    leverage_slope,
    log_det_slope,
    pair_forms,
    pair_grams,
    pair_products,
    reference_covariance,
)

layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.ascontiguousarray], 2))
intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["flat", "intercept"])
weightings = pytest.mark.parametrize("weighted", [False, True])
classes = pytest.mark.parametrize("K", [2, 3, 5])


def problem(K, D=3, N=20, intercept=True, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
    c = rng.uniform(0.1, 2.0, N) if weighted else None
    if weighted:
        c[::7] = 0.0
    return X, c, rng.normal(size=(K, D + intercept)) / np.sqrt(D)


def with_ones(X, theta):
    return np.c_[X, np.ones(len(X))] if theta.shape[1] > X.shape[1] else X


def naive_hessian(X, c, theta):
    """sum_n c_n (diag p - p p^T) kron x x^T."""
    Z = with_ones(X, theta)
    H = np.zeros((theta.size, theta.size))
    for n, z in enumerate(Z):
        p = softmax(theta @ z)
        H += (1.0 if c is None else c[n]) * np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z))
    return H


def lifted(basis, D):
    return np.kron(basis, np.eye(D))


def covariance(size, seed=1):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size


@pytest.mark.parametrize("K", [2, 3, 4, 9])
def test_contrasts_are_orthonormal_and_sum_to_zero(K):
    Q = contrasts(K)
    assert Q.shape == (K, K - 1)
    np.testing.assert_allclose(Q.T @ Q, np.eye(K - 1), atol=1e-14)
    np.testing.assert_allclose(Q.sum(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(Q @ Q.T, np.eye(K) - 1.0 / K, atol=1e-14)


@classes
def test_pair_products_and_the_graph_laplacian(K):
    P = np.random.default_rng(0).dirichlet(np.ones(K), 6).T
    products = pair_products(P)
    np.testing.assert_allclose(products, [P[k] * P[m] for k, m in combinations(range(K), 2)], rtol=1e-15)
    for n in range(6):
        laplacian = np.zeros((K, K))
        for product, (k, m) in zip(products[:, n], combinations(range(K), 2), strict=True):
            edge = np.eye(K)[k] - np.eye(K)[m]
            laplacian += product * np.outer(edge, edge)
        np.testing.assert_allclose(laplacian, np.diag(P[:, n]) - np.outer(P[:, n], P[:, n]), atol=1e-15)


@layouts
@intercepts
@weightings
@classes
def test_pairs_make_the_full_hessian(layout, intercept, weighted, K):
    X, c, theta = problem(K, intercept=intercept, weighted=weighted)
    grams = unpacked(pair_grams(layout(X), None, c, theta), theta.shape[1])
    Z, P = with_ones(X, theta), softmax(with_ones(X, theta) @ theta.T, axis=1)
    weights = np.ones(len(X)) if c is None else c
    for gram, (k, m) in zip(grams, combinations(range(K), 2), strict=True):
        np.testing.assert_allclose(gram, (Z.T * (weights * P[:, k] * P[:, m])) @ Z, atol=1e-13)
    H = naive_hessian(X, c, theta)
    np.testing.assert_allclose(hessian_from_pairs(grams, np.eye(K), theta.shape[1]), H, atol=1e-12)
    np.testing.assert_allclose(kernels.hessian(layout(X), None, c, theta), H, atol=1e-12)
    Q = lifted(contrasts(K), theta.shape[1])
    np.testing.assert_allclose(hessian_from_pairs(grams, contrasts(K), theta.shape[1]), Q.T @ H @ Q, atol=1e-12)
    other = np.random.default_rng(5).normal(size=(K, 2))  # any basis will do
    wide = lifted(other, theta.shape[1])
    np.testing.assert_allclose(hessian_from_pairs(grams, other, theta.shape[1]), wide.T @ H @ wide, atol=1e-12)


@intercepts
def test_pairs_make_the_full_hessian_with_many_features(intercept):
    X, c, theta = problem(2, D=100, N=30, intercept=intercept)
    H = hessian_from_pairs(pair_grams(X, None, c, theta), np.eye(2), theta.shape[1])
    np.testing.assert_allclose(H, naive_hessian(X, c, theta), atol=1e-12)


def test_probabilities_at_hand_are_used_and_left_alone():
    X, c, theta = problem(3)
    P = np.random.default_rng(3).dirichlet(np.ones(3), len(X)).T
    before = P.copy()
    Z = with_ones(X, theta)
    np.testing.assert_allclose(
        unpacked(pair_grams(X, None, c, theta, P), theta.shape[1])[2], (Z.T * (c * P[1] * P[2])) @ Z, atol=1e-13
    )
    log_det_slope(X, None, c, theta, np.ones((3, 4, 4)), P)
    np.testing.assert_array_equal(P, before)


@classes
@pytest.mark.parametrize("D", [1, 4])
def test_pair_forms_are_covariances_of_differences(K, D):
    S = covariance(K * D)
    forms = pair_forms(S, np.eye(K))
    for form, (k, m) in zip(forms, combinations(range(K), 2), strict=True):
        edge = lifted((np.eye(K)[k] - np.eye(K)[m])[:, None], D)
        np.testing.assert_allclose(form, edge.T @ S @ edge, atol=1e-12)
    B = covariance((K - 1) * D, 2)
    Q = lifted(contrasts(K), D)
    np.testing.assert_allclose(pair_forms(B, contrasts(K)), pair_forms(Q @ B @ Q.T, np.eye(K)), atol=1e-12)


@classes
def test_reference_covariance_is_that_of_differences_from_the_last_class(K):
    V = np.array([covariance(K, seed) for seed in range(5)])
    variances = np.array([[v[k, k] + v[m, m] - 2 * v[k, m] for v in V] for k, m in combinations(range(K), 2)])
    T = np.c_[np.eye(K - 1), -np.ones(K - 1)]
    np.testing.assert_allclose(reference_covariance(variances, K), T @ V @ T.T, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_leverages_and_their_slopes(seed, K):
    """sum_{k<l} p_k p_l v_kl is tr[V (diag p - p p^T)], and its slope in f is a finite difference."""
    rng = np.random.default_rng(seed)
    f, V = rng.normal(size=K), covariance(K, seed)
    variances = np.array([[V[k, k] + V[m, m] - 2 * V[k, m]] for k, m in combinations(range(K), 2)])

    def leverage(f):
        p = softmax(f)
        return np.trace(V @ (np.diag(p) - np.outer(p, p)))

    p = softmax(f)[:, None]
    assert pair_products(p)[:, 0] @ variances[:, 0] == pytest.approx(leverage(f), rel=1e-12)
    h = 1e-5
    expected = [(leverage(f + h * e) - leverage(f - h * e)) / (2 * h) for e in np.eye(K)]
    np.testing.assert_allclose(leverage_slope(p, variances)[:, 0], expected, atol=1e-8)


@layouts
@intercepts
@weightings
@pytest.mark.parametrize("K", quick_first([4, 2]))
@pytest.mark.parametrize("in_contrasts", [False, True])
def test_log_det_slope_is_that_of_the_determinant(layout, intercept, weighted, K, in_contrasts):
    X, c, theta = problem(K, D=2, N=25, intercept=intercept, weighted=weighted)
    basis = contrasts(K) if in_contrasts else np.eye(K)
    Q = lifted(basis, theta.shape[1])
    prior = 0.0 if in_contrasts else 0.3

    def log_det(theta):
        return np.linalg.slogdet(Q.T @ naive_hessian(X, c, theta) @ Q + prior * np.eye(Q.shape[1]))[1]

    S = np.linalg.inv(Q.T @ naive_hessian(X, c, theta) @ Q + prior * np.eye(Q.shape[1]))
    slope = log_det_slope(layout(X), None, c, theta, pair_forms(S, basis))
    h = 1e-5
    for i in range(theta.size):
        step = h * np.eye(theta.size)[i].reshape(theta.shape)
        expected = (log_det(theta + step) - log_det(theta - step)) / (2 * h)
        assert slope.flat[i] == pytest.approx(expected, rel=1e-6, abs=1e-7)
    np.testing.assert_allclose(slope.sum(axis=0), 0.0, atol=1e-12)  # the same vector in every class changes nothing
