"""Independent latents that stand for dependent ones: differences have the same variances, winners the same chances."""

import numpy as np
import pytest

from posteriori.gp.independent import independent_variances
from posteriori.maths.largest import largest_probabilities
from posteriori.threads import one_blas_thread


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As fits have it: threads of BLAS fight over small matrices where cores are busy."""
    with one_blas_thread():
        yield


def latents(K, n=12, seed=0):
    """Means (K, n) and full covariances (n, K, K) as posteriors have them: some shared, some not."""
    rng = np.random.default_rng([seed, K])
    A = rng.normal(size=(n, K, K)) * rng.uniform(0.2, 1.5, size=(n, 1, 1))
    shared = rng.uniform(0.0, 5.0, size=(n, 1, 1))
    return 1.5 * rng.normal(size=(K, n)), A @ A.transpose(0, 2, 1) / K + shared + 0.2 * np.eye(K)


def posteriors(K, n=12, seed=0):
    """Moments as rows leave them: a precision diag(pi) - pi pi^T / sum(pi) for each label seen, beside a prior's."""
    rng = np.random.default_rng([seed, K])
    covariance = np.empty((n, K, K))
    for i in range(n):
        pi = rng.gamma(0.5, 1.0, size=(rng.integers(1, 6), K))
        seen = sum(np.diag(p) - np.outer(p, p) / p.sum() for p in pi)
        covariance[i] = np.linalg.inv(seen + np.diag(1.0 / rng.uniform(4.0, 16.0, K)))
    return 1.5 * rng.normal(size=(K, n)), covariance


def of_differences(covariance):
    own = np.einsum("nkk->nk", covariance)
    return own[:, :, None] + own[:, None, :] - 2.0 * covariance


@pytest.mark.parametrize("K", [2, 3])
def test_up_to_three_classes_all_differences_are_matched(K):
    mean, covariance = latents(K)
    v = independent_variances(mean, covariance, 1.0)
    assert v.shape == (K, 12)
    apart = of_differences(covariance)
    for k in range(K):
        for j in range(k):
            np.testing.assert_allclose(v[k] + v[j], apart[:, k, j], rtol=1e-10)


def test_two_classes_share_their_difference_evenly():
    mean, covariance = latents(2)
    v = independent_variances(mean, covariance, 1.0)
    np.testing.assert_array_equal(v[0], v[1])


@pytest.mark.parametrize("K", [3, 4, 6, 15])
def test_independent_latents_stay_as_they_are(K):
    mean, _ = latents(K)
    variance = np.random.default_rng(K).uniform(0.1, 5.0, size=(12, K))
    v = independent_variances(mean, variance[:, :, None] * np.eye(K), 1.0)
    np.testing.assert_allclose(v, variance.T, rtol=1e-9)


@pytest.mark.parametrize("K", [3, 6])
def test_a_level_that_all_latents_share_does_not_count(K):
    mean, covariance = latents(K)
    v = independent_variances(mean, covariance, 1.0)
    np.testing.assert_allclose(independent_variances(mean, covariance + 100.0, 1.0), v, rtol=1e-7)
    np.testing.assert_allclose(independent_variances(mean + 30.0, covariance, 1.0), v, rtol=1e-7)


@pytest.mark.parametrize("K", [3, 6])
def test_the_unit_does_not_count(K):
    mean, covariance = latents(K)
    v = independent_variances(mean, covariance, 1.0)
    np.testing.assert_allclose(independent_variances(3.0 * mean, 9.0 * covariance, 9.0), 9.0 * v, rtol=1e-9)


@pytest.mark.parametrize("K", [3, 4, 6])
def test_probabilities_are_those_of_the_dependent_latents(K):
    """Draws of all latents and their noise, for every row."""
    mean, covariance = posteriors(K)
    P = largest_probabilities(mean, independent_variances(mean, covariance, 1.0) + 1.0)
    z = np.random.default_rng(1).normal(size=(K, 50_000))
    z = np.concatenate([z, -z], axis=1)
    without = largest_probabilities(mean, np.einsum("nkk->kn", covariance) + 1.0)  # covariances left out
    far = 0.0
    for n in range(12):
        draws = mean[:, n, None] + np.linalg.cholesky(covariance[n] + np.eye(K)) @ z
        frequency = np.bincount(draws.argmax(axis=0), minlength=K) / draws.shape[1]
        np.testing.assert_allclose(P[:, n], frequency, atol=0.01)
        far = max(far, np.abs(without[:, n] - frequency).max())
    assert far > 0.03


def test_classes_that_can_win_are_matched_closely():
    """Of six classes three are far behind: the differences among the others are right, whatever those of the rest."""
    mean, covariance = posteriors(6)
    mean[:3], mean[3:] = 0.0, -40.0
    v = independent_variances(mean, covariance, 1.0)
    apart = of_differences(covariance)
    expected = np.stack([apart[:, 0, 1], apart[:, 0, 2], apart[:, 1, 2]])
    got = np.stack([v[0] + v[1], v[0] + v[2], v[1] + v[2]])
    evenly = independent_variances(np.zeros((6, 12)), covariance, 1.0)
    error, error_evenly = (
        np.abs(each - expected).max()
        for each in (got, np.stack([evenly[0] + evenly[1], evenly[0] + evenly[2], evenly[1] + evenly[2]]))
    )
    assert error < 0.15 * error_evenly


@pytest.mark.parametrize("K", [2, 3, 5])
def test_variances_with_noise_are_positive(K):
    """Latents that hardly differ: what is left of the noise is a twentieth at least."""
    mean = latents(K)[0]
    covariance = np.ones((12, K, K)) + 1e-9 * np.eye(K)
    v = independent_variances(mean, covariance, 2.0)
    assert (v + 2.0 >= 0.1 - 1e-12).all()
    np.testing.assert_allclose(v, 0.0, atol=1e-7)
    # one latent that follows the difference of two others has a variance below zero
    if K == 3:
        V = np.array([[9.0, 0.0, 4.5], [0.0, 9.0, 4.5], [4.5, 4.5, 4.5]])
        low = independent_variances(np.zeros((3, 1)), V[None], 2.0)
        np.testing.assert_allclose(low[:, 0], [9.0, 9.0, -1.9])


def test_rows_do_not_depend_on_their_batch():
    mean, covariance = latents(6)
    alone = [independent_variances(mean[:, n : n + 1], covariance[n : n + 1], 1.0) for n in range(12)]
    np.testing.assert_allclose(independent_variances(mean, covariance, 1.0), np.hstack(alone), rtol=1e-12)
