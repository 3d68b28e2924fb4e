"""The parts of stochastic gradient descent: steps in standardised coordinates, running moments, averages."""

import numpy as np
import pytest
from tests.solvers.problems import softmax_problem

from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.target import Target
from posteriori.solvers.stochastic import Averaged, RunningMoments, row_curvature, scaled_direction


def gradient_of(X, Y, W, b):
    """Of -sum log p with respect to W (K, D) and b (K,), written out."""
    F = X @ W.T + b
    P = np.exp(F - np.logaddexp.reduce(F, axis=1, keepdims=True))
    return (P - Y).T @ X, (P - Y).sum(axis=0)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1e-3, 1.0, 1e4] + [1.0, -5.0, 1e5]
    return X, np.eye(4)[rng.integers(0, 4, 40)], rng.standard_normal((4, 3)) / [1e-3, 1.0, 1e4], rng.standard_normal(4)


def test_step_is_that_of_standardised_features(rows):
    """Standardise, take one step there, carry the weights back: the same as `scaled_direction` in raw coordinates."""
    X, Y, W, b = rows
    mean, sd = X.mean(axis=0), X.std(axis=0)
    V, c = W * sd, b + W @ mean
    g_V, g_c = gradient_of((X - mean) / sd, Y, V, c)
    V, c = V - 0.1 * g_V, c - 0.1 * g_c
    W_after, b_after = V / sd, c - (V / sd) @ mean
    step = 0.1 * scaled_direction(np.column_stack(gradient_of(X, Y, W, b)), mean, sd**2)
    np.testing.assert_allclose((W + step[:, :3]) * sd, W_after * sd, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(b + step[:, 3], b_after, rtol=1e-8, atol=1e-8 * np.abs(b_after).max())


def test_step_without_intercept_is_scaled_about_zero(rows):
    X, Y, W, _ = rows
    square = (X**2).mean(axis=0)
    g_V, _ = gradient_of(X / np.sqrt(square), Y, W * np.sqrt(square), 0.0)
    g_W, _ = gradient_of(X, Y, W, 0.0)
    np.testing.assert_allclose(
        scaled_direction(g_W, np.zeros(3), square) * np.sqrt(square), -g_V, rtol=1e-9, atol=1e-10
    )


def test_constant_features_stay_put():
    gradient = np.array([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]])
    step = scaled_direction(gradient, np.array([5.0, 1.0]), np.array([0.0, 4.0]))
    # weight of the second: (3 * 1 - 2) / 4; intercept: -3 - 1/4 * 1
    np.testing.assert_array_equal(step, [[0.0, 0.25, -3.25], [0.0, -0.25, 3.25]])


def test_step_goes_downhill(rows):
    X, Y, W, b = rows
    gradient = np.column_stack(gradient_of(X, Y, W, b))
    assert np.vdot(gradient, scaled_direction(gradient, X.mean(axis=0), X.var(axis=0))) < 0


@pytest.mark.parametrize("split", [[60], [1] * 60, [1, 59], [20, 3, 37], [59, 1], [0, 30, 0, 30]])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_merge_exactly(split, weighted):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 3)) * [0.1, 1.0, 100.0] + [0.0, 3.0, -1000.0]
    c = rng.integers(0, 4, 60).astype(float) if weighted else np.ones(60)
    moments = RunningMoments()
    for part in np.split(np.arange(60), np.cumsum(split)[:-1]):
        moments.add(X[part], c[part])
    mean = np.average(X, axis=0, weights=c)
    assert moments.count == c.sum()
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(moments.variance, np.average((X - mean) ** 2, axis=0, weights=c), rtol=1e-11)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_moments_keep_their_digits_far_from_zero(size):
    """Mean 1e8, standard deviation 1; multiples of 2^-20 are held exactly there."""
    deviations = np.round(np.random.default_rng(2).standard_normal((1000, 1)) * 2**20) / 2**20
    moments = RunningMoments()
    for start in range(0, 1000, size):
        X = 1e8 + deviations[start : start + size]
        moments.add(X, np.ones(len(X)))
    assert moments.mean[0] - 1e8 == pytest.approx(deviations.mean(), abs=1e-6)
    assert moments.variance[0] == pytest.approx(deviations.var(), rel=1e-7)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_average_weighs_as_the_third_power_of_time(n):
    """w_t / sum_{s <= t} w_s = 4 / (t + 3) for w_t = t (t + 1) (t + 2); where it started does not count."""
    iterates = np.random.default_rng(3).standard_normal((n, 2, 3))
    average = Averaged(np.full((2, 3), 1e6))
    for theta in iterates:
        average.add(theta)
    t = np.arange(1, n + 1)
    expected = np.average(iterates, axis=0, weights=t * (t + 1) * (t + 2))
    np.testing.assert_allclose(average.value, expected, rtol=1e-8, atol=1e-9)
    assert average.count == n


def softmax(X, y, alpha=0.5, intercept=True):
    precision = np.full((4, X.shape[1] + intercept), alpha)
    problem = softmax_problem(MemoryFeatures(X, None), Target(np.arange(4), y, None, None), precision)
    return problem


@pytest.mark.parametrize("size", [1, 5, 40])
def test_batches_add_up_to_the_gradient(rows, size):
    """N/B times the rows of a batch: over batches of one size the mean is the likelihood's gradient itself."""
    X, Y, W, b = rows
    problem, theta = softmax(X, Y.argmax(axis=1)), np.column_stack([W, b])
    estimates = [estimate(theta) for estimate in problem.batch_gradients(size, np.random.default_rng(0))]
    gradient = problem.value_gradient(theta)[1] - problem.precision * theta
    assert len(estimates) == 40 // size
    np.testing.assert_allclose(np.mean(estimates, axis=0), gradient, rtol=1e-9, atol=1e-9 * np.abs(gradient).max())


@pytest.mark.parametrize("size", [1, 8, 2000])
def test_curvature_of_a_batch(size):
    """(l + (D' - l)/B)/2 with l the largest eigenvalue of the correlations, whatever the units."""
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((2000, 1)) + 0.5 * rng.standard_normal((2000, 3))
    problem = softmax(Z * [1e-2, 1.0, 1e3] + [0.0, 5.0, 200.0], rng.integers(0, 4, 2000))
    largest = np.linalg.eigvalsh(np.corrcoef(Z.T))[-1] if size > 1 else 0.0
    expected = 0.5 * (largest + (4 - largest) / size)
    assert row_curvature(problem, size) == pytest.approx(expected, rel=0.01)
