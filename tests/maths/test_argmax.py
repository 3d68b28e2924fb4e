"""The argmax node: distribution functions, integrals and their slopes against mpmath, closed forms and plain sums."""

from functools import partial

import mpmath
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad

jax = pytest.importorskip("jax")

from tests.maths.gaussian_rows import log_integrand, naive, rows, where_it_matters  # noqa: E402

from posteriori.maths import argmax  # noqa: E402
from posteriori.maths.argmax import Rule, log_ndtr  # noqa: E402

log_argmax = jax.jit(argmax.log_argmax, static_argnames="rule")
gauss_hermite = jax.jit(argmax.gauss_hermite, static_argnames=("n_nodes", "adaptive"))
log_probit = jax.jit(argmax.log_probit, static_argnames="noise")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


FEW = slice(0, 10)
"""The rows of forty, one compiled shape, that are compared with plain sums."""


# The normal distribution function


def test_the_log_of_the_normal_distribution_function_is_right_in_both_tails():
    x = np.concatenate([np.linspace(-200.0, -20.1, 30), np.linspace(-20.05, -19.95, 11), np.linspace(-19.9, 30.0, 60)])
    exact = [mpmath.log(mpmath.ncdf(mpmath.mpf(v))) if v < 0 else mpmath.log1p(-mpmath.ncdf(-mpmath.mpf(v))) for v in x]
    got = np.asarray(jax.jit(log_ndtr)(x))
    error = np.array([abs(float(a - b)) for a, b in zip(got, exact, strict=True)])
    size = np.array([float(abs(value)) for value in exact])
    assert (error[x < 0] < 1e-12 * size[x < 0]).all()
    assert error[x >= 0].max() < 2e-16
    assert error.max() < 1e-10


def test_its_slope_is_the_inverse_mills_ratio():
    x = np.linspace(-60.0, 8.0, 100)
    exact = [float(mpmath.npdf(mpmath.mpf(v)) / mpmath.ncdf(mpmath.mpf(v))) for v in x]
    slope = jax.jit(jax.grad(lambda x: log_ndtr(x).sum()))(x)
    np.testing.assert_allclose(slope, exact, rtol=1e-8)


# The integral


@pytest.mark.parametrize(
    ("K", "ratio", "tolerance"),
    [
        (3, 1, 1e-10),
        (3, 10, 1e-6),
        (3, 100, 1e-3),
        *(
            pytest.param(K, ratio, tolerance, marks=pytest.mark.slow)
            for K in (2, 10)
            for ratio, tolerance in ((1, 1e-10), (10, 1e-6), (100, 1e-3))
        ),
    ],
)
def test_two_panels_are_right_whatever_the_scales(K, ratio, tolerance):
    mean, variance, y = rows(K, 40, ratio)
    exact = naive(mean[:, FEW], variance[:, FEW], y[FEW])
    np.testing.assert_allclose(log_argmax(mean, variance, y).log_z[FEW], exact, rtol=1e-14, atol=tolerance)


def two_classes(ratio):
    """All gaps between a wide class that should win and a narrow rival, and the closed form."""
    gap = ratio * np.linspace(-4.0, 4.0, 801)
    mean, variance = np.stack([np.zeros(801), gap]), np.tile([[ratio**2], [1.0]], (1, 801))
    return mean, variance, scipy.special.log_ndtr(-gap / np.sqrt(ratio**2 + 1.0))


@pytest.mark.parametrize(
    ("ratio", "tolerance"),
    [
        (1.0, 1e-12),
        (10.0, 1e-6),
        (100.0, 1e-4),
    ],
)
def test_two_classes_have_a_closed_form(ratio, tolerance):
    mean, variance, exact = two_classes(ratio)
    y = np.zeros(801, dtype=int)
    np.testing.assert_allclose(log_argmax(mean, variance, y).log_z, exact, atol=tolerance)
    other = log_argmax(mean[::-1], variance[::-1], y)  # the narrow one wins
    np.testing.assert_allclose(other.log_z, scipy.special.log_ndtr(mean[1] / np.sqrt(ratio**2 + 1)), atol=1e-10)


def test_three_classes_agree_with_adaptive_quadrature():
    mean, variance, y = rows(3, 40, 10)
    got = np.asarray(log_argmax(mean, variance, y).log_z)
    for n in range(0, 40, 4):
        low, high = where_it_matters(mean[:, n], variance[:, n], y[n])
        top = log_integrand(np.linspace(low, high, 1001), mean[:, n], variance[:, n], y[n]).max()

        def relative(t, n=n, top=top):
            return np.exp(log_integrand(np.array([t]), mean[:, n], variance[:, n], y[n])[0] - top)

        assert got[n] == pytest.approx(top + np.log(quad(relative, low, high, epsabs=0, limit=500)[0]), abs=1e-6)


@pytest.mark.parametrize("gap", [40.0, 400.0])
def test_labels_against_all_odds_do_not_underflow(gap):
    """Three classes, one of them far behind: log Z is -500 or -50000, and mpmath has all the exponents it takes."""
    mean, sd = np.array([-gap, 0.0, 0.3]), np.array([1.0, 0.9, 1.2])

    t = np.linspace(*where_it_matters(mean, sd**2, 0), 9)
    top = log_integrand(t, mean, sd**2, 0).max()  # mpmath's quadrature judges its errors by absolute size

    def relative(t):
        product = mpmath.npdf(t, -gap, 1.0) * mpmath.ncdf(t, 0.0, 0.9) * mpmath.ncdf(t, 0.3, 1.2)
        return product * mpmath.exp(-top)

    exact = float(top + mpmath.log(mpmath.quad(relative, t.tolist())))
    out = log_argmax(*(np.repeat(a[:, None], 40, axis=1) for a in (mean, sd**2)), np.zeros(40, dtype=int))
    np.testing.assert_allclose(out.log_z, exact, rtol=1e-12)
    assert np.isfinite(out.by_mean).all()
    assert np.isfinite(out.by_variance).all()


def test_winners_beyond_doubt_have_log_probability_zero():
    mean = np.repeat([[60.0], [0.0], [1.0]], 40, axis=1)
    out = log_argmax(mean, np.ones((3, 40)), np.zeros(40, dtype=int))
    np.testing.assert_allclose(out.log_z, 0.0, atol=1e-14)
    np.testing.assert_allclose(out.by_mean, 0.0, atol=1e-14)
    np.testing.assert_allclose(out.by_variance, 0.0, atol=1e-14)


latents = arrays(np.float64, (3, 40), elements=st.floats(-8.0, 8.0))
log_sds = arrays(np.float64, (3, 40), elements=st.floats(-1.1, 1.1))
labels = arrays(np.int64, 40, elements=st.integers(0, 2))
properties = settings(max_examples=10, deadline=None, derandomize=True)


def log_z(mean, log_sd, y):
    with jax.enable_x64(True):
        return np.asarray(log_argmax(mean, np.exp(2 * log_sd), y).log_z)


@properties
@given(latents, log_sds, labels, st.floats(-1e3, 1e3))
def test_only_differences_of_the_means_count(mean, log_sd, y, shift):
    np.testing.assert_allclose(log_z(mean + shift, log_sd, y), log_z(mean, log_sd, y), rtol=1e-8, atol=1e-8)


@properties
@given(latents, log_sds, labels, st.floats(-3.0, 3.0))
def test_the_scale_of_all_latents_together_does_not_count(mean, log_sd, y, shift):
    np.testing.assert_allclose(
        log_z(mean * np.exp(shift), log_sd + shift, y), log_z(mean, log_sd, y), rtol=1e-8, atol=1e-8
    )


@properties
@given(latents, log_sds, labels, st.permutations([0, 1, 2]))
def test_the_order_of_the_classes_does_not_count(mean, log_sd, y, order):
    where = np.argsort(order)
    np.testing.assert_allclose(log_z(mean[order], log_sd[order], where[y]), log_z(mean, log_sd, y), rtol=1e-10)


@properties
@given(latents, log_sds)
def test_one_of_the_classes_wins(mean, log_sd):
    total = sum(np.exp(log_z(mean, log_sd, np.full(40, k))) for k in range(3))
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


# Slopes


@pytest.mark.parametrize(("ratio", "tolerance"), [(1, 1e-6), (10, 1e-5)])
def test_slopes_are_those_of_finite_differences(ratio, tolerance):
    mean, variance, y = rows(3, 40, ratio)
    out = argmax.Factor(*(np.asarray(part)[..., FEW] for part in log_argmax(mean, variance, y)))
    mean, variance, y = mean[:, FEW], variance[:, FEW], y[FEW]
    for k in range(3):
        e = np.eye(3)[k][:, None]
        h = 1e-4 * np.sqrt(variance[k])
        by_mean = (naive(mean + h * e, variance, y) - naive(mean - h * e, variance, y)) / (2 * h)
        np.testing.assert_allclose(out.by_mean[k], by_mean, rtol=1e-5, atol=tolerance)
        h = 1e-4 * variance[k]
        by_variance = (naive(mean, variance + h * e, y) - naive(mean, variance - h * e, y)) / (2 * h)
        np.testing.assert_allclose(out.by_variance[k], by_variance, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("adaptive", [False, True])
def test_slopes_of_gauss_hermite_are_those_of_finite_differences(adaptive):
    mean, variance, y = rows(3, 40, 1)
    mean = np.clip(mean, -2.0, 2.0)
    out = gauss_hermite(mean, variance, y, n_nodes=60, adaptive=adaptive)
    out = argmax.Factor(*(np.asarray(part)[..., FEW] for part in out))
    mean, variance, y = mean[:, FEW], variance[:, FEW], y[FEW]
    for k in range(3):
        h = 1e-4 * np.eye(3)[k][:, None]
        by_mean = (naive(mean + h, variance, y) - naive(mean - h, variance, y)) / 2e-4
        by_variance = (naive(mean, variance + h, y) - naive(mean, variance - h, y)) / 2e-4
        np.testing.assert_allclose(out.by_mean[k], by_mean, atol=1e-5)
        np.testing.assert_allclose(out.by_variance[k], by_variance, atol=1e-5)


# Known latents with noise of one variance


@pytest.mark.parametrize(
    ("K", "tolerance"), [(2, 1e-10), (3, 2e-4), (10, 1e-3), pytest.param(30, 3e-3, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("noise", [1.0, 0.3])
def test_known_latents_with_noise_are_gaussians_of_one_variance(K, tolerance, noise):
    """The probability, its slopes by the latents, and those by the noise of each, which are half second slopes."""
    rng = np.random.default_rng(K)
    mean, y = rng.normal(size=(K, 40)) * np.linspace(0.0, 4.0, 40), rng.integers(0, K, 40)
    out, exact = log_probit(mean, noise, y), log_argmax(mean, np.full((K, 40), noise), y)
    for got, expected in zip(out, exact, strict=True):
        np.testing.assert_allclose(got, expected, atol=tolerance * max(1.0, 1.0 / noise))


def test_known_latents_against_all_odds_end_at_the_smallest_number():
    """Down to exp(-690) the logarithm is right; beyond that it and its slopes stay finite."""
    mean = np.stack([-np.linspace(0.0, 90.0, 40), np.zeros(40), np.full(40, 0.3)])
    y = np.zeros(40, dtype=int)
    out, exact = log_probit(mean, 1.0, y), log_argmax(mean, np.ones((3, 40)), y)
    seen = np.asarray(exact.log_z) > -680.0
    assert 10 < seen.sum() < 30
    for got, expected in zip(out, exact, strict=True):
        np.testing.assert_allclose(got[..., seen], expected[..., seen], rtol=1e-4, atol=1e-3)
        assert np.isfinite(got).all()
    np.testing.assert_allclose(out.log_z[~seen], np.log(1e-300), atol=20.0)


def test_known_latents_that_win_beyond_doubt_have_log_probability_zero():
    mean = np.repeat([[60.0], [0.0], [1.0]], 40, axis=1)
    for part in log_probit(mean, 1.0, np.zeros(40, dtype=int)):
        np.testing.assert_allclose(part, 0.0, atol=1e-13)


# Gauss-Hermite nodes


def source_formula(mean, variance, y, n_nodes):
    """1/sqrt(pi) sum_j w_j prod_{k != y} Phi((sqrt(2 v_y) x_j + mu_y - mu_k) / sqrt(v_k)), as it is printed."""
    x, w = np.polynomial.hermite.hermgauss(n_nodes)
    total = 0.0
    for x_j, w_j in zip(x, w, strict=True):
        product = 1.0
        for k in range(len(mean)):
            if k != y:
                gap = np.sqrt(2 * variance[y]) * x_j + mean[y] - mean[k]
                product *= 0.5 * scipy.special.erfc(-gap / np.sqrt(2 * variance[k]))
        total += w_j * product
    return np.log(total / np.sqrt(np.pi))


@pytest.mark.parametrize("n_nodes", [5, 20])
def test_plain_gauss_hermite_is_the_source_s_formula(n_nodes):
    mean, variance, y = rows(3, 40, 10)
    mean = np.clip(mean, -2.0, 2.0)  # beyond, products underflow
    expected = [source_formula(*row, n_nodes) for row in zip(mean.T, variance.T, y, strict=True)]
    got = gauss_hermite(mean, variance, y, n_nodes=n_nodes, adaptive=False).log_z
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def ten_classes():
    rng = np.random.default_rng(0)
    shape = (10, 40)
    mean, y = rng.normal(size=shape), rng.integers(0, 10, 40)
    return {
        "moderate": (mean, rng.uniform(0.5, 2.0, shape), y),
        "confident": (3 * mean, rng.uniform(0.05, 0.2, shape), y),
        "mixed scales": (3 * mean, np.exp(2 * rng.uniform(np.log(0.1), np.log(10.0), shape)), y),
    }


@pytest.mark.parametrize(
    ("kind", "plain_at_least", "adaptive_at_most"),
    [
        ("confident", 10.0, 1e-9),
        pytest.param("moderate", 1e-4, 1e-6, marks=pytest.mark.slow),
        pytest.param("mixed scales", 1.0, 0.1, marks=pytest.mark.slow),
    ],
)
def test_nodes_at_the_mode_are_worth_more_than_nodes_at_the_mean(kind, plain_at_least, adaptive_at_most):
    """Twenty nodes, 95 of 100 rows: plain ones miss sure rows by hundreds of nats."""
    mean, variance, y = ten_classes()[kind]
    exact = naive(mean, variance, y)
    plain, adaptive, panels = (
        np.percentile(np.abs(rule(mean, variance, y).log_z - exact), 95)
        for rule in (partial(gauss_hermite, adaptive=False), gauss_hermite, log_argmax)
    )
    assert plain > plain_at_least
    assert adaptive < adaptive_at_most
    assert panels < 1e-6


@pytest.mark.slow
def test_work_is_what_the_rule_says():
    """Fewer nodes and steps do while standard deviations are alike."""
    mean, variance, y = rows(3, 40, 1)
    exact = naive(mean[:, FEW], variance[:, FEW], y[FEW])
    error = {
        rule: np.abs(log_argmax(mean, variance, y, rule).log_z[FEW] - exact).max() for rule in (Rule(4), Rule(16, 6, 4))
    }
    assert error[Rule(16, 6, 4)] < 1e-7
    assert error[Rule(4)] > 1e-3
