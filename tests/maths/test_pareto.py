"""Pareto-smoothed weights: known tails, extreme weights, and the published algorithm written out."""

from math import exp, inf, log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import genpareto

from posteriori.maths.pareto import smoothed_weights


def naive_fit(x):
    """Shape and scale of Zhang and Stephens (2009), entry by entry, with the shape drawn towards 1/2 by ten values."""
    n = len(x)
    m = 30 + int(sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = [1 / x[-1] + (1 - sqrt(m / (j - 0.5))) / (3 * quartile) for j in range(1, m + 1)]
    profile = []
    for b_j in b:
        k = sum(log1p(-b_j * v) for v in x) / n
        profile.append(n * (log(-b_j / k) - k - 1))
    shares = [1 / sum(exp(min(other - own, 700.0)) for other in profile) for own in profile]
    b_hat = sum(share * b_j for share, b_j in zip(shares, b, strict=True)) / sum(shares)
    k = sum(log1p(-b_hat * v) for v in x) / n
    return (n * k + 5) / (n + 10), -k / b_hat


def naive_smoothed(log_weights):
    """Vehtari, Simpson, Gelman, Yao and Gabry: fit the tail, replace it by quantiles, truncate, normalise."""
    S = len(log_weights)
    order = sorted(range(S), key=lambda s: log_weights[s])
    top = log_weights[order[-1]]
    w = [exp(v - top) for v in log_weights]
    M = int(min(S / 5, 3 * sqrt(S)))
    cutoff = w[order[S - M - 1]]
    k, sigma = naive_fit([w[s] - cutoff for s in order[S - M :]])
    for rank, s in enumerate(order[S - M :], start=1):
        u = (rank - 0.5) / M
        w[s] = min(cutoff + sigma / k * ((1 - u) ** -k - 1), 1.0)
    return np.array(w) / sum(w), k


@given(st.integers(0, 2**32 - 1), st.sampled_from([100, 400, 2500]), st.floats(0.1, 4.0))
@settings(deadline=None, max_examples=25)
def test_the_published_algorithm(seed, S, spread):
    log_weights = spread * np.random.default_rng(seed).standard_normal(S) + 50.0
    weights, k = naive_smoothed(log_weights.tolist())
    found = smoothed_weights(log_weights)
    assert found.k_hat == pytest.approx(k, abs=1e-9)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-8)
    assert found.effective_sample_size == pytest.approx(1 / (weights**2).sum(), rel=1e-8)


@pytest.mark.parametrize("k", [-0.5, 0.0, 0.3, 0.7, 1.0, 1.5])
def test_the_shape_of_a_known_tail_is_recovered(k):
    """With 300 values in the tail the estimate has a standard error of about (1 + k)/sqrt(300) and little bias."""
    estimates = [
        smoothed_weights(np.log(1.0 + genpareto.rvs(k, size=10_000, random_state=seed))).k_hat for seed in range(30)
    ]
    shrunk = (300 * k + 5) / 310
    error = (1 + abs(k)) / sqrt(300)
    assert np.mean(estimates) == pytest.approx(shrunk, abs=5 * error / sqrt(30) + 0.02)
    assert np.abs(np.array(estimates) - shrunk).max() < 5 * error


def test_tails_are_fitted_in_any_units():
    log_weights = np.random.default_rng(0).standard_normal(1000)
    first = smoothed_weights(log_weights)
    for shift in (-1e5, 1e5):
        moved = smoothed_weights(log_weights + shift)
        assert moved.k_hat == pytest.approx(first.k_hat, abs=1e-6)
        np.testing.assert_allclose(moved.weights, first.weights, rtol=1e-6)


def test_order_is_kept_and_the_body_is_left_alone():
    log_weights = 1.5 * np.random.default_rng(1).standard_normal(400)
    found = smoothed_weights(log_weights)
    order = np.argsort(log_weights)
    assert (np.diff(found.weights[order]) >= 0).all()
    body = order[:-60]
    raw = np.exp(log_weights - log_weights.max())
    np.testing.assert_allclose(
        found.weights[body] / found.weights[body[0]], raw[body] / raw[body[0]], rtol=1e-12
    )  # 60 = 3 sqrt(400) largest weights are smoothed
    assert not np.allclose(found.weights[order[-60:]] / found.weights[body[0]], raw[order[-60:]] / raw[body[0]])


def test_equal_weights():
    found = smoothed_weights(np.full(500, -3.0))
    np.testing.assert_allclose(found.weights, 1 / 500, rtol=1e-13)
    assert found.effective_sample_size == pytest.approx(500, rel=1e-12)
    assert found.k_hat == -inf


def test_nearly_equal_weights_are_trusted():
    found = smoothed_weights(1e-9 * np.random.default_rng(0).standard_normal(1000))
    assert found.k_hat < 0.5
    assert found.effective_sample_size == pytest.approx(1000, rel=1e-6)


def test_one_weight_beyond_all_others_is_not_trusted():
    log_weights = np.random.default_rng(0).standard_normal(1000)
    log_weights[17] = 60.0
    found = smoothed_weights(log_weights)
    assert found.k_hat > 1.0
    assert found.effective_sample_size < 50
    assert found.weights.argmax() == 17


@pytest.mark.parametrize("spread", [1e3, 1e6])
def test_an_underflowed_tail_counts_as_infinite(spread):
    log_weights = -spread * np.arange(200.0)
    found = smoothed_weights(log_weights)
    assert found.k_hat == inf
    np.testing.assert_array_equal(found.weights, np.eye(200)[0])
    assert found.effective_sample_size == 1.0


@pytest.mark.parametrize("S", [2, 10, 20])
def test_too_few_draws_to_fit_a_tail(S):
    log_weights = np.random.default_rng(0).standard_normal(S)
    found = smoothed_weights(log_weights)
    assert found.k_hat == inf
    raw = np.exp(log_weights)
    np.testing.assert_allclose(found.weights, raw / raw.sum(), rtol=1e-12)


def test_ties_at_the_threshold_are_not_a_heavy_tail():
    """Twenty of 400 weights are larger than the others, by a little: whatever the fit, that is no cause for alarm."""
    log_weights = np.zeros(400)
    log_weights[:20] = np.random.default_rng(0).uniform(0.1, 0.3, 20)
    found = smoothed_weights(log_weights)
    assert found.k_hat < 0.7
    assert found.effective_sample_size > 390


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=300))
@settings(deadline=None, max_examples=50)
def test_weights_always_sum_to_one(log_weights):
    found = smoothed_weights(np.array(log_weights))
    assert np.isfinite(found.weights).all()
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert 1 - 1e-9 <= found.effective_sample_size <= len(log_weights) * (1 + 1e-9)
    assert not np.isnan(found.k_hat)


def test_the_log_weights_are_not_modified():
    log_weights = np.random.default_rng(0).standard_normal(100)
    before = log_weights.copy()
    smoothed_weights(log_weights)
    np.testing.assert_array_equal(log_weights, before)
