"""The largest of independent Gaussians in NumPy: against plain sums, mpmath, draws, closed forms and JAX."""

import mpmath
import numpy as np
import pytest
import scipy.special
from tests.maths.gaussian_rows import log_integrand, naive, rows, where_it_matters

from posteriori.maths import largest
from posteriori.maths.largest import (
    largest_probabilities,
    log_largest,
    log_largest_probabilities,
    log_largest_slopes,
    pair_probabilities,
    probit_probabilities,
)


def far_behind(gap, n=1):
    """Three classes, the first of them far behind, and the exact log-probability that it wins nevertheless."""
    mean, sd = np.array([-gap, 0.0, 0.3]), np.array([1.0, 0.9, 1.2])
    t = np.linspace(*where_it_matters(mean, sd**2, 0), 9)
    top = log_integrand(t, mean, sd**2, 0).max()  # mpmath's quadrature judges its errors by absolute size

    def relative(t):
        product = mpmath.npdf(t, -gap, 1.0) * mpmath.ncdf(t, 0.0, 0.9) * mpmath.ncdf(t, 0.3, 1.2)
        return product * mpmath.exp(-top)

    exact = float(top + mpmath.log(mpmath.quad(relative, t.tolist())))
    return np.repeat(mean[:, None], n, axis=1), np.repeat(sd[:, None] ** 2, n, axis=1), exact


# One class at a time


@pytest.mark.parametrize(
    ("K", "ratio", "tolerance"),
    [(2, 10, 1e-9), (3, 1, 1e-10), (3, 10, 1e-6), (3, 100, 1e-3), (10, 1, 1e-10), (10, 10, 1e-6)],
)
def test_the_log_probability_of_a_class_is_right_whatever_the_scales(K, ratio, tolerance):
    mean, variance, y = rows(K, 12, ratio)
    np.testing.assert_allclose(
        log_largest(mean, variance, y), naive(mean, variance, y, max(2001, 40 * ratio)), rtol=1e-10, atol=tolerance
    )


@pytest.mark.parametrize("gap", [40.0, 200.0])
def test_labels_against_all_odds_do_not_underflow(gap):
    """The log-probability is -500 or -13000, and mpmath has all the exponents it takes."""
    mean, variance, exact = far_behind(gap, 3)
    y = np.zeros(3, dtype=int)
    assert exact < -0.3 * gap**2
    np.testing.assert_allclose(log_largest(mean, variance, y), exact, rtol=1e-12)
    log_z, by_mean, by_variance = log_largest_slopes(mean, variance, y)
    np.testing.assert_allclose(log_z, exact, rtol=1e-6)
    assert np.isfinite(by_mean).all()
    assert np.isfinite(by_variance).all()


def test_winners_beyond_doubt_have_log_probability_zero():
    mean, y = np.repeat([[60.0], [0.0], [1.0]], 4, axis=1), np.zeros(4, dtype=int)
    np.testing.assert_allclose(log_largest(mean, np.ones((3, 4)), y), 0.0, atol=1e-14)
    log_z, by_mean, by_variance = log_largest_slopes(mean, np.ones((3, 4)), y)
    np.testing.assert_allclose(log_z, 0.0, atol=1e-6)
    np.testing.assert_allclose(by_mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(by_variance, 0.0, atol=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 10.0, 100.0])
def test_two_classes_have_a_closed_form(ratio):
    """Even a gap of fifty standard deviations has a logarithm."""
    gap = np.sqrt(ratio**2 + 1.0) * np.linspace(-50.0, 50.0, 201)
    mean, variance = np.stack([np.zeros(201), gap]), np.tile([[ratio**2], [1.0]], (1, 201))
    margin = gap / np.sqrt(ratio**2 + 1.0)
    exact = scipy.special.log_ndtr([-margin, margin])
    for k in (0, 1):
        np.testing.assert_allclose(log_largest(mean, variance, np.full(201, k)), exact[k], rtol=1e-10)
    np.testing.assert_allclose(log_largest_probabilities(mean, variance), exact, rtol=1e-10)
    for function in (pair_probabilities, largest_probabilities):
        np.testing.assert_allclose(function(mean, variance), np.exp(exact), rtol=1e-9, atol=1e-300)


# Slopes


@pytest.mark.parametrize(("K", "ratio", "tolerance"), [(2, 1, 1e-4), (3, 1, 1e-4), (3, 3, 1e-4), (8, 3, 3e-4)])
def test_slopes_are_those_of_finite_differences(K, ratio, tolerance):
    """From few nodes: nearly right, and enough to find sites by."""
    mean, variance, y = rows(K, 10, ratio)
    log_z, by_mean, by_variance = log_largest_slopes(mean, variance, y)
    np.testing.assert_allclose(log_z, log_largest(mean, variance, y), rtol=1e-5, atol=tolerance)
    for k in range(K):
        e = np.eye(K)[k][:, None]
        h = 1e-4 * np.sqrt(variance[k])
        expected = (log_largest(mean + h * e, variance, y) - log_largest(mean - h * e, variance, y)) / (2 * h)
        np.testing.assert_allclose(by_mean[k], expected, rtol=1e-4, atol=tolerance)
        h = 1e-4 * variance[k]
        expected = (log_largest(mean, variance + h * e, y) - log_largest(mean, variance - h * e, y)) / (2 * h)
        np.testing.assert_allclose(by_variance[k], expected, rtol=1e-4, atol=tolerance)


def test_slopes_by_means_sum_to_zero():
    """A level that all latents share does not count."""
    mean, variance, y = rows(5, 20, 3)
    _, by_mean, _ = log_largest_slopes(mean, variance, y)
    np.testing.assert_allclose(by_mean.sum(axis=0), 0.0, atol=1e-9 * np.abs(by_mean).max())


# The version in JAX


@pytest.fixture
def argmax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        from posteriori.maths import argmax

        yield argmax


def test_log_probabilities_are_those_of_jax(argmax):
    mean, variance, y = rows(3, 40, 10)
    expected = np.asarray(argmax.log_argmax(mean, variance, y).log_z)
    np.testing.assert_allclose(log_largest(mean, variance, y), expected, rtol=1e-10, atol=1e-9)


def test_slopes_are_those_of_jax_with_as_few_nodes(argmax):
    mean, variance, y = rows(3, 40, 10)
    expected = argmax.log_argmax(mean, variance, y, argmax.Rule(16, 4, 3, steep=False))
    for got, of_jax in zip(log_largest_slopes(mean, variance, y), expected, strict=True):
        np.testing.assert_allclose(got, of_jax, rtol=1e-8, atol=1e-9)


# All classes at once


@pytest.mark.parametrize(
    ("K", "ratio", "tolerance"), [(2, 1, 1e-12), (3, 10, 1e-8), (3, 100, 1e-3), (10, 10, 1e-7), (50, 1, 1e-9)]
)
def test_probabilities_are_those_of_one_class_at_a_time(K, ratio, tolerance):
    mean, variance, _ = rows(K, 8, ratio)
    P = largest_probabilities(mean, variance)
    classes = range(0, K, -(-K // 5))
    each = [naive(mean, variance, np.full(8, k), max(1001, 40 * ratio)) for k in classes]
    np.testing.assert_allclose(P[classes], np.exp(each), atol=tolerance)
    np.testing.assert_allclose(P.sum(axis=0), 1.0, rtol=1e-14)
    assert (P >= 0.0).all()


@pytest.mark.slow
def test_probabilities_are_right_where_scales_differ_ten_thousandfold():
    mean, variance, _ = rows(3, 12, 10000)
    each = [naive(mean, variance, np.full(12, k), 400_001) for k in range(3)]
    np.testing.assert_allclose(largest_probabilities(mean, variance), np.exp(each), atol=3e-3)


@pytest.mark.parametrize("function", [largest_probabilities, log_largest_probabilities])
def test_rows_beyond_one_grid_do_not_change_those_on_it(function):
    mean, variance, _ = rows(3, 12, 1)
    wild_mean, wild_variance, _ = rows(3, 12, 10000)
    mixed_mean, mixed_variance = mean.copy(), variance.copy()
    mixed_mean[:, 5], mixed_variance[:, 5] = wild_mean[:, 5], wild_variance[:, 5]
    P = function(mixed_mean, mixed_variance)
    others = np.arange(12) != 5
    np.testing.assert_array_equal(P[:, others], function(mean, variance)[:, others])
    np.testing.assert_allclose(P[:, 5], function(wild_mean, wild_variance)[:, 5], rtol=1e-9)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_rows_do_not_depend_on_their_batch(K, monkeypatch):
    """Alone, together, or in blocks."""
    mean, variance, y = rows(K, 20, 10)
    functions = (largest_probabilities, log_largest_probabilities, lambda m, v: probit_probabilities(m, 1.3))
    together = [function(mean, variance) for function in functions]
    each = [slice(i, i + 1) for i in range(20)]
    for function, expected in zip(functions, together, strict=True):
        alone = np.hstack([function(mean[:, i], variance[:, i]) for i in each])
        np.testing.assert_allclose(alone, expected, rtol=1e-12, atol=1e-15)
    alone = np.hstack([log_largest(mean[:, i], variance[:, i], y[i]) for i in each])
    np.testing.assert_allclose(alone, log_largest(mean, variance, y), rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(largest, "_BLOCK", 7 * K * 96)
    for function, expected in zip(functions, together, strict=True):
        np.testing.assert_allclose(function(mean, variance), expected, rtol=1e-12, atol=1e-15)


def test_no_rows_have_no_probabilities():
    for K in (2, 3):
        nothing = np.zeros((K, 0))
        assert largest_probabilities(nothing, nothing).shape == (K, 0)
        assert log_largest_probabilities(nothing, nothing).shape == (K, 0)
        assert probit_probabilities(nothing, 1.0).shape == (K, 0)
        assert log_largest(nothing, nothing, np.zeros(0, dtype=int)).shape == (0,)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_ties_are_broken_evenly(K):
    equal = np.zeros((K, 5))
    np.testing.assert_allclose(largest_probabilities(equal, np.ones((K, 5))), 1.0 / K, atol=1e-12)
    np.testing.assert_allclose(log_largest_probabilities(equal, np.ones((K, 5))), -np.log(K), atol=1e-12)
    np.testing.assert_allclose(probit_probabilities(equal, 2.0), 1.0 / K, atol=1e-12)


def test_probabilities_are_frequencies_of_the_largest_draw():
    mean, sd = np.array([0.3, -0.5, 0.0, 1.0]), np.array([1.0, 3.0, 0.2, 0.5])
    draws = np.random.default_rng(0).normal(mean, sd, size=(200_000, 4))
    frequency = np.bincount(draws.argmax(axis=1), minlength=4) / len(draws)
    P = largest_probabilities(mean[:, None], sd[:, None] ** 2)[:, 0]
    error = np.sqrt(P * (1 - P) / len(draws))
    assert (np.abs(frequency - P) < 4 * error).all()


# Logarithms of all classes


def check_log_probabilities(ratio, above, below):
    """Those of four classes between these two numbers are those of one class at a time."""
    mean, variance, _ = rows(4, 60, ratio)
    mean = 3.0 * mean
    expected = np.stack([log_largest(mean, variance, np.full(60, k)) for k in range(4)])
    asked = (expected > above) & (expected < below)
    assert asked.sum() > 5
    np.testing.assert_allclose(log_largest_probabilities(mean, variance)[asked], expected[asked], rtol=1e-9, atol=1e-5)


@pytest.mark.parametrize("ratio", [1, 3, 10])
@pytest.mark.parametrize(("above", "below"), [(-20.0, 1.0), (-np.inf, -75.0)])
def test_log_probabilities_of_all_classes_are_those_of_one_at_a_time(ratio, above, below):
    check_log_probabilities(ratio, above, below)


@pytest.mark.parametrize("ratio", [1, 3, 10])
def test_rather_small_log_probabilities_are_those_of_one_class_at_a_time(ratio):
    """Where a class must fall below the grid's low end to lose: off by a tenth of a nat with equal variances."""
    check_log_probabilities(ratio, -68.0, -20.0)


def test_log_probabilities_of_a_narrow_class_far_behind_are_right():
    """A hundredth as wide as its rivals and six of their standard deviations behind: log P is -41.5, or thereabouts."""
    mean = np.stack([np.linspace(-6.5, -5.5, 20), np.zeros(20), np.zeros(20)])
    variance = np.tile([[1e-4], [1.0], [1.0]], (1, 20))
    expected = 2.0 * scipy.special.log_ndtr(mean[0])  # it has hardly any variance
    np.testing.assert_allclose(log_largest(mean, variance, np.zeros(20, dtype=int)), expected, atol=0.02)
    np.testing.assert_allclose(log_largest_probabilities(mean, variance)[0], expected, atol=0.02)


@pytest.mark.parametrize("gap", [5.0, 20.0, 150.0])
def test_small_probabilities_have_right_logarithms(gap):
    mean, variance, exact = far_behind(gap)
    log_p = log_largest_probabilities(mean, variance)
    assert log_p[0, 0] == pytest.approx(exact, rel=1e-8)
    margin = 0.3 / np.sqrt(0.9**2 + 1.2**2)
    np.testing.assert_allclose(np.exp(log_p[1:, 0]), scipy.special.ndtr([-margin, margin]), atol=2e-4)


# Equal variances


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("noise", [1.0, 0.04, 9.0])
def test_probabilities_of_equal_variances_are_right_to_a_millionth(K, noise):
    mean = np.random.default_rng(K).normal(size=(K, 300)) * np.resize([0.3, 2.0, 20.0], 300)
    expected = largest_probabilities(mean, np.full(mean.shape, noise))
    got = probit_probabilities(mean, noise)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(got.sum(axis=0), 1.0, rtol=1e-14)


def test_probabilities_of_equal_variances_of_many_classes_are_right_to_a_millionth():
    mean = 0.5 * np.random.default_rng(0).normal(size=(30, 300))
    expected = largest_probabilities(mean, np.ones(mean.shape))
    np.testing.assert_allclose(probit_probabilities(mean, 1.0), expected, atol=1e-6)
