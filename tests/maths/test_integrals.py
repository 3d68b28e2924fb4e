"""Nodes for Gaussian logits: exact moments, averages of softmax against quadrature, and rows in any company."""

from functools import partial
from itertools import combinations
from math import factorial, prod

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit, logsumexp, softmax
from scipy.stats import norm, qmc

from posteriori.maths import integrals
from posteriori.maths.integrals import (
    cholesky_psd,
    even_nodes,
    expected_softmax,
    log_expected_softmax,
    logits_at_nodes,
    logits_in_basis,
    normal_nodes,
    softmax_at_nodes,
    softmax_moments,
)

# Nodes


def double_factorial_moment(degree):
    """E[z^degree] of a standard normal."""
    return 0.0 if degree % 2 else prod(range(1, degree, 2), start=1.0)


@pytest.mark.parametrize(
    ("J", "size"), [(J, size) for J in (1, 2, 3, 4, 9, 15) for size in (32, 64, 128, 512) if size >= 4 * J]
)
def test_nodes_have_unit_weight_zero_mean_and_unit_covariance(J, size):
    points, weights = normal_nodes(J, size)
    assert points.shape == (J, weights.size)
    assert weights.size <= size
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(points @ weights, 0.0, atol=1e-13)
    np.testing.assert_allclose((points * weights) @ points.T, np.eye(J), atol=1e-11)


def test_too_few_nodes_for_a_covariance_have_unit_variances():
    points, weights = normal_nodes(60, 128)
    np.testing.assert_allclose(points @ weights, 0.0, atol=1e-13)
    np.testing.assert_allclose(points**2 @ weights, 1.0, atol=1e-12)


def test_nodes_in_more_dimensions_than_sobol_points_have():
    J = qmc.Sobol.MAXDIM + 1
    points, weights = even_nodes(J, 16)
    assert points.shape == (J, 16)
    np.testing.assert_allclose(points @ weights, 0.0, atol=1e-12)
    np.testing.assert_allclose(points**2 @ weights, 1.0, atol=1e-12)


@pytest.mark.parametrize("size", [4, 10, 20])
def test_polynomials_in_one_dimension_are_exact(size):
    """A rule of S nodes integrates degrees up to 2 S - 1."""
    (x,), w = normal_nodes(1, size)
    for degree in range(2 * size):
        scale = max(1.0, double_factorial_moment(degree + degree % 2))
        assert w @ x**degree == pytest.approx(double_factorial_moment(degree), abs=1e-11 * scale)
    exact = double_factorial_moment(2 * size)
    assert exact - w @ x ** (2 * size) == pytest.approx(factorial(size), rel=1e-6)  # and no further


def test_polynomials_in_two_dimensions_are_exact():
    points, w = normal_nodes(2, 128)
    side = 11
    assert w.size == side**2
    for i in range(0, 2 * side, 3):
        for j in range(0, 2 * side, 2):
            scale = double_factorial_moment(i + i % 2) * double_factorial_moment(j)
            expected = double_factorial_moment(i) * double_factorial_moment(j)
            assert w @ (points[0] ** i * points[1] ** j) == pytest.approx(expected, abs=1e-10 * max(scale, 1.0))


@pytest.mark.parametrize("J", [1, 2, 5])
def test_even_nodes_have_equal_weights_and_mirror_images(J):
    points, weights = even_nodes(J, 256)
    assert weights.size == 256
    np.testing.assert_allclose(weights, 1 / 256, rtol=1e-14)
    ordered = points[:, np.lexsort(points)]
    np.testing.assert_allclose(ordered, -points[:, np.lexsort(-points)], atol=1e-15)
    if J == 1:
        np.testing.assert_allclose(np.sort(points[0]), norm.ppf((np.arange(256) + 0.5) / 256), atol=1e-12)
    else:
        np.testing.assert_allclose((points * weights) @ points.T, np.eye(J), atol=1e-12)


def test_nodes_are_the_same_every_time():
    first = normal_nodes(6, 128).points.copy()
    normal_nodes.cache_clear()
    even_nodes.cache_clear()
    np.random.default_rng().random()
    np.testing.assert_array_equal(normal_nodes(6, 128).points, first)


# Averages of softmax


def expected(mean, covariance, nodes, log=False):
    """E[softmax] of f_k - f_K ~ N(mean, covariance), rows (n, J)."""
    F = np.zeros((mean.shape[1] + 1, len(mean)))
    F[:-1] = mean.T
    average = log_expected_softmax if log else expected_softmax
    return average(logits_at_nodes(F, covariance, nodes), nodes.weights, F.shape)


def random_rows(K, n, sd, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, K - 1, K)) / np.sqrt(K)
    return 1.5 * rng.normal(size=(n, K - 1)), sd**2 * root @ root.transpose(0, 2, 1)


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.01), (-1.0, 1.0), (2.0, 4.0), (-4.0, 9.0), (0.0, 25.0)])
def test_two_classes_against_adaptive_quadrature(mean, variance):
    """32 Gauss-Hermite nodes: to 1e-8 for a standard deviation of one, to 2e-3 for five."""
    exact, _ = quad(lambda z: expit(mean + np.sqrt(variance) * z) * norm.pdf(z), -12, 12, epsabs=1e-13, limit=400)
    found = expected(np.array([[mean]]), np.array([[[variance]]]), normal_nodes(1))[:, 0]
    tolerance = {0.01: 1e-12, 1.0: 1e-7, 4.0: 2e-5, 9.0: 2e-4, 25.0: 2e-3}[variance]
    np.testing.assert_allclose(found, [exact, 1 - exact], atol=tolerance)


@pytest.mark.parametrize(("sd", "tolerance"), [(0.5, 1e-6), (1.0, 1e-4), (2.0, 2e-3), (4.0, 3e-2)])
def test_three_classes_against_a_fine_grid(sd, tolerance):
    """The trapezoidal rule on 241 x 241 points: exact to 1e-12 for analytic integrands against a Gaussian."""
    means, covariances = random_rows(3, 6, sd)
    z = np.linspace(-9, 9, 241)
    grid = np.stack(np.meshgrid(z, z)).reshape(2, -1)
    density = np.exp(-0.5 * (grid**2).sum(axis=0))
    density /= density.sum()
    found = expected(means, covariances, normal_nodes(2))
    for n in range(6):
        F = means[n][:, None] + np.linalg.cholesky(covariances[n]) @ grid
        exact = softmax(np.vstack([F, np.zeros(grid.shape[1])]), axis=0) @ density
        np.testing.assert_allclose(found[:, n], exact, atol=tolerance)


@pytest.mark.parametrize(
    ("K", "sd", "tolerance"),
    [(5, 0.5, 1.6e-3), (5, 1.0, 1.2e-2), (5, 3.0, 2.5e-2), (10, 0.5, 1.1e-3), (10, 1.0, 8e-3), (10, 3.0, 5e-2)],
)
def test_many_classes_against_many_points(K, sd, tolerance):
    """128 nodes against 2^15 scrambled Sobol points of another stream, whose own error is below 1e-3.

    The tolerances are twice the largest of 100 or 200 errors; their root mean square is four times smaller.
    """
    means, covariances = random_rows(K, 20, sd)
    uniform = qmc.Sobol(K - 1, rng=np.random.default_rng(99)).random(2**15)
    z = norm.ppf(np.clip(uniform, 1e-15, 1 - 1e-15)).T
    found = expected(means, covariances, normal_nodes(K - 1))
    for n in range(20):
        F = means[n][:, None] + np.linalg.cholesky(covariances[n]) @ z
        exact = softmax(np.vstack([F, np.zeros(2**15)]), axis=0).mean(axis=1)
        np.testing.assert_allclose(found[:, n], exact, atol=tolerance)


def test_more_nodes_are_better():
    means, covariances = random_rows(6, 30, 1.5)
    reference = expected(means, covariances, normal_nodes(5, 2**15))
    errors = [np.abs(expected(means, covariances, normal_nodes(5, 2**s)) - reference).max() for s in (5, 8, 11)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_no_variance_is_plain_softmax():
    means, _ = random_rows(4, 5, 1.0)
    found = expected(means, np.zeros((5, 3, 3)), normal_nodes(3))
    np.testing.assert_allclose(found, softmax(np.c_[means, np.zeros(5)], axis=1).T, atol=1e-13)


@pytest.mark.parametrize("K", [2, 3, 4, 10])
@given(seed=st.integers(0, 2**32 - 1), sd=st.sampled_from([0.1, 1.0, 5.0]))
@settings(deadline=None, max_examples=15)
def test_logarithms_are_those_of_the_averages(K, seed, sd):
    means, covariances = random_rows(K, 4, sd, seed)
    nodes = normal_nodes(K - 1)
    plain, log = expected(means, covariances, nodes), expected(means, covariances, nodes, log=True)
    np.testing.assert_allclose(plain.sum(axis=0), 1.0, atol=1e-13)
    np.testing.assert_allclose(np.exp(log), plain, rtol=1e-11)


@pytest.mark.parametrize("mean", [-600.0, -690.0, -760.0, -1e4])
@pytest.mark.parametrize("variance", [0.25, 4.0])
def test_logarithms_far_beyond_underflow(mean, variance):
    """E[sigma(f)] of f ~ N(m, v) far below zero, to thirty digits by mpmath; it is e^{m + v/2} but for e^{2m}."""
    with mp.workdps(30):
        s = mp.sqrt(variance)
        exact = mp.log(
            mp.quad(lambda z: mp.npdf(z) * mp.exp(s * z) / (1 + mp.exp(mean + s * z)), [-20, -5, 0, 5, 20])
        ) + mp.mpf(mean)
    log = expected(np.array([[mean]]), np.array([[[variance]]]), normal_nodes(1), log=True)[:, 0]
    assert log[0] == pytest.approx(float(exact), rel=1e-13)
    assert log[0] == pytest.approx(mean + variance / 2, rel=1e-13)
    assert log[1] == pytest.approx(0.0, abs=1e-12)
    plain = expected(np.array([[mean]]), np.array([[[variance]]]), normal_nodes(1))[0, 0]
    assert plain == 0.0 if mean < -750 else np.log(plain) == pytest.approx(log[0], rel=1e-12)


def test_logarithms_beyond_underflow_with_many_classes():
    """Class 0 is hopeless and has a variance of its own: log E[p_0] = m_0 + v/2 + log E[1 / sum_j exp f_j]."""
    J = 4
    means = np.array([[-800.0, 0.5, -0.5, 1.0]])
    covariance = np.diag([1.0, 0.0, 0.0, 0.0])[None]
    log = expected(means, covariance, normal_nodes(J, 2**13), log=True)[0, 0]
    assert log == pytest.approx(-800.0 + 0.5 - logsumexp([0.5, -0.5, 1.0, 0.0]), abs=0.02)
    assert expected(means, covariance, normal_nodes(J))[0, 0] == 0.0


def test_the_label_order_hardly_matters():
    """Invariance under relabelling holds up to the rule's own error."""
    means, covariances = random_rows(4, 10, 1.0)
    full_mean, full = np.c_[means, np.zeros(10)], np.zeros((10, 4, 4))
    full[:, :3, :3] = covariances
    plain = expected(means, covariances, normal_nodes(3))
    order = [3, 0, 2, 1]
    T = np.c_[np.eye(3), -np.ones(3)] @ np.eye(4)[order]
    turned = expected(full_mean @ T.T, T @ full @ T.T, normal_nodes(3))
    np.testing.assert_allclose(turned, plain[order], atol=5e-3)


# The same row in any company


@pytest.mark.parametrize("K", [2, 3, 7])
def test_a_row_has_one_answer_in_any_batch(monkeypatch, K):
    means, covariances = random_rows(K, 40, 1.0)
    nodes = normal_nodes(K - 1)
    together = expected(means, covariances, nodes)
    log_together = expected(means, covariances, nodes, log=True)
    for n in (0, 17, 39):
        alone = expected(means[n : n + 1], covariances[n : n + 1], nodes)[:, 0]
        np.testing.assert_allclose(alone, together[:, n], rtol=0, atol=1e-12)
        alone = expected(means[n : n + 1], covariances[n : n + 1], nodes, log=True)[:, 0]
        np.testing.assert_allclose(alone, log_together[:, n], rtol=1e-12)
    monkeypatch.setattr(integrals, "_BLOCK_VALUES", 5 * K * nodes.weights.size)
    blocks = list(logits_at_nodes(np.zeros((K, 40)), covariances, nodes))
    assert [rows.stop - rows.start for rows, _ in blocks] == [5] * 8
    np.testing.assert_allclose(expected(means, covariances, nodes), together, rtol=0, atol=1e-12)


def test_a_row_has_one_answer_beside_a_row_that_is_hard_to_factor():
    """The second is slightly indefinite and needs more on its diagonal; the first, nearly singular, does not."""
    nodes = normal_nodes(2)
    means = np.array([[0.3, -0.4], [0.1, 0.2]])
    covariances = np.array([[[1.0, 1.0 - 1e-13], [1.0 - 1e-13, 1.0]], [[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]])
    alone = expected(means[:1], covariances[:1], nodes)[:, 0]
    together = expected(means, covariances, nodes)[:, 0]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)


# Factors


def test_factors_of_regular_and_of_singular_matrices():
    _, covariances = random_rows(5, 8, 1.0)
    np.testing.assert_allclose(cholesky_psd(covariances), np.linalg.cholesky(covariances), atol=1e-9)
    root = np.random.default_rng(0).normal(size=(8, 4, 2))
    singular = root @ root.transpose(0, 2, 1)
    L = cholesky_psd(singular)
    np.testing.assert_allclose(L @ L.transpose(0, 2, 1), singular, atol=1e-9)
    np.testing.assert_allclose(np.triu(L[0], 1), 0.0)
    before = singular.copy()
    cholesky_psd(singular)
    np.testing.assert_array_equal(singular, before)
    zero = cholesky_psd(np.zeros((2, 3, 3)))
    assert np.abs(zero).max() < 1e-100


def test_slightly_indefinite_matrices_are_lifted():
    M = np.array([[[1.0, 1.0 + 1e-10], [1.0 + 1e-10, 1.0]], [[1e-20, 0.0], [0.0, -1e-30]]])
    L = cholesky_psd(M)
    np.testing.assert_allclose((L @ L.transpose(0, 2, 1))[0], M[0], atol=1e-7)
    np.testing.assert_allclose((L @ L.transpose(0, 2, 1))[1], M[1], atol=1e-25)


def test_what_is_not_finite_comes_to_an_end():
    M = np.array([[[1.0, np.nan], [np.nan, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    L = cholesky_psd(M)
    assert np.isnan(L[0]).any()
    np.testing.assert_allclose(L[1], np.eye(2), atol=1e-12)


# Moments and bases


@pytest.mark.parametrize("K", [2, 3, 5])
def test_moments_are_plain_sums_over_nodes(monkeypatch, K):
    means, covariances = random_rows(K, 7, 1.0)
    nodes = normal_nodes(K - 1, 64)
    F = np.random.default_rng(1).normal(size=(K, 7))
    F[:-1] = means.T + F[-1]  # only differences from the last class matter
    monkeypatch.setattr(integrals, "_BLOCK_VALUES", 3 * K * nodes.weights.size)
    found = softmax_moments(F, covariances, nodes)
    for n in range(7):
        L = np.linalg.cholesky(covariances[n])
        log_partition, first, products = 0.0, np.zeros(K), np.zeros((K, K))
        for z, w in zip(nodes.points.T, nodes.weights, strict=True):
            f = np.append(means[n] + L @ z, 0.0)
            p = softmax(f)
            log_partition += w * logsumexp(f)
            first += w * p
            products += w * np.outer(p, p)
        assert found.log_partition[n] == pytest.approx(log_partition, abs=1e-9)
        np.testing.assert_allclose(found.mean[:, n], first, atol=1e-9)
        np.testing.assert_allclose(found.products[:, n], [products[i] for i in combinations(range(K), 2)], atol=1e-9)


def test_moments_of_two_classes_against_quadrature():
    mean, variance = -0.7, 2.0
    f = partial(lambda z: mean + np.sqrt(variance) * z)
    against = [lambda z: -log_expit(-f(z)), lambda z: expit(f(z)), lambda z: expit(f(z)) * expit(-f(z))]
    exact = [quad(lambda z, g=g: g(z) * norm.pdf(z), -12, 12, epsabs=1e-13)[0] for g in against]
    found = softmax_moments(np.array([[mean + 3.0], [3.0]]), np.array([[[variance]]]), normal_nodes(1))
    values = found.log_partition[0], found.mean[0, 0], found.products[0, 0]
    np.testing.assert_allclose(values, exact, atol=1e-6)


def test_logits_in_a_basis(monkeypatch):
    rng = np.random.default_rng(2)
    K, J, n = 4, 3, 11
    U, mean, variances = rng.normal(size=(K, J)), rng.normal(size=(K, n)), rng.uniform(size=(J, n))
    nodes = normal_nodes(J, 32)
    monkeypatch.setattr(integrals, "_BLOCK_VALUES", 4 * K * 32)
    seen = 0
    for rows, F in logits_in_basis(mean, U, variances, nodes):
        for i, row in enumerate(range(rows.start, rows.stop)):
            for s in range(32):
                expected = mean[:, row] + U @ (np.sqrt(variances[:, row]) * nodes.points[:, s])
                np.testing.assert_allclose(F[i, :, s], expected, atol=1e-12)
            mean_f = F[i] @ nodes.weights
            deviation = F[i] - mean_f[:, None]
            np.testing.assert_allclose(mean_f, mean[:, row], atol=1e-12)
            np.testing.assert_allclose(
                (deviation * nodes.weights) @ deviation.T, U @ np.diag(variances[:, row]) @ U.T, atol=1e-11
            )
            seen += 1
    assert seen == n


def test_softmax_at_nodes_in_place_and_at_extremes():
    F = np.array([[[0.0, 800.0], [np.log(3.0), -800.0]]])
    log_partition = softmax_at_nodes(F)
    np.testing.assert_allclose(F, [[[0.25, 1.0], [0.75, 0.0]]], atol=1e-15)
    np.testing.assert_allclose(log_partition, [[np.log(4.0), 800.0]], rtol=1e-15)
