"""Gaussian posteriors: every structure against its dense matrix, and contrasts against all classes."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from tests.slow import quick_first

from posteriori.exceptions import SingularError
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.softmax.precision import MatrixPrecision
from posteriori.softmax.structured import DiagonalPosterior, KroneckerPosterior

D, N = 3, 7  # with the intercept there are D + 1 coefficients a class

layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.asarray], 2))
classes = pytest.mark.parametrize("K", [2, 3, 5])


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size + 0.2 * np.eye(size)


def likelihood(K, width, seed=0):
    """A curvature like softmax's: flat along one vector added to every class."""
    Q = np.kron(contrasts(K), np.eye(width))
    return Q @ spd((K - 1) * width, seed) @ Q.T


def tilted(mean, H, R):
    """A posterior in contrasts under a prior R that does not treat all classes equally, and its precision."""
    K, width = mean.shape
    Q = np.kron(contrasts(K), np.eye(width))
    prior = MatrixPrecision(R, mean.shape).of_contrasts(contrasts(K))
    return FullPosterior(mean, Q.T @ H @ Q + prior.precision, contrasts(K), prior.common, tilt=prior.tilt), H + R


def cases(K, width=D + 1, seed=0):
    """Posteriors, each with its dense precision."""
    mean = np.random.default_rng(seed).normal(size=(K, width))
    H, R = likelihood(K, width, seed), spd(width, 1)
    whole = H + np.kron(np.eye(K), R)
    Q = np.kron(contrasts(K), np.eye(width))
    A = np.diag(np.arange(1.0, K + 1)) - np.outer(np.arange(1.0, K + 1), np.arange(1.0, K + 1)) / sum(range(1, K + 1))
    G = spd(width, 2)
    a = np.random.default_rng(3).uniform(0.5, 3.0, (K, width))
    return {
        "full": (FullPosterior(mean, whole, np.eye(K)), whole),
        "contrasts": (FullPosterior(mean, Q.T @ whole @ Q, contrasts(K), R), whole),
        "tilted": tilted(mean, H, spd(K * width, 5)),
        "kronecker": (KroneckerPosterior(mean, A, G, R), np.kron(A, G) + np.kron(np.eye(K), R)),
        "diagonal": (DiagonalPosterior(mean, a), np.diag(a.ravel())),
    }


structures = pytest.mark.parametrize("structure", ["full", "contrasts", "tilted", "kronecker", "diagonal"])


def rows(seed=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)


def naive_latent(S, X, K, width):
    """x^T Sigma_kl x for each row, (n, K, K)."""
    Z = np.c_[X, np.ones(len(X))] if width > X.shape[1] else X
    blocks = S.reshape(K, width, K, width)
    return np.array([[[z @ blocks[k, :, m] @ z for m in range(K)] for k in range(K)] for z in Z])


@classes
@structures
def test_covariances_variances_and_determinants(K, structure):
    posterior, H = cases(K)[structure]
    S = np.linalg.inv(H)
    np.testing.assert_allclose(posterior.covariance(), S, atol=1e-11)
    np.testing.assert_allclose(posterior.variances().ravel(), S.diagonal(), rtol=1e-10)
    assert posterior.log_det == pytest.approx(np.linalg.slogdet(H)[1], abs=1e-9)
    assert posterior.structure == {"contrasts": "full", "tilted": "full"}.get(structure, structure)


@classes
@structures
@layouts
@pytest.mark.parametrize("intercept", quick_first([True, False]))
def test_covariances_of_logits(K, structure, layout, intercept):
    posterior, H = cases(K, D + intercept)[structure]
    X = rows()
    V = naive_latent(np.linalg.inv(H), X, K, D + intercept)
    np.testing.assert_allclose(posterior.latent_covariance(layout(X)), V, atol=1e-10)
    pairs = [V[:, k, k] + V[:, m, m] - 2 * V[:, k, m] for k, m in combinations(range(K), 2)]
    np.testing.assert_allclose(posterior.pair_variances(layout(X)), pairs, atol=1e-10)


@classes
@structures
def test_logits_at_nodes_have_the_moments_of_the_logits(K, structure):
    """Up to one number for all classes of a row: covariances of differences are exact for any rule."""
    posterior, H = cases(K)[structure]
    X = rows()
    F = np.random.default_rng(5).normal(size=(K, N))
    assert posterior.latent_size == (K - 1 if structure in ("full", "contrasts", "tilted") else K)
    T = np.c_[np.eye(K - 1), -np.ones(K - 1)]
    V = T @ naive_latent(np.linalg.inv(H), X, K, D + 1) @ T.T
    for even in (False, True):
        nodes = posterior.nodes(64, even)
        assert nodes.points.shape[0] == posterior.latent_size
        if even:
            np.testing.assert_allclose(nodes.weights, nodes.weights[0])
        tolerance = 0.05 if even and posterior.latent_size == 1 else 1e-6  # equal shares miss a little of the tails
        for block, at in posterior.at_nodes(X, F, nodes):
            differences = T @ at
            mean = differences @ nodes.weights
            np.testing.assert_allclose(mean, (T @ F[:, block]).T, atol=1e-9)
            deviation = differences - mean[:, :, None]
            found = (deviation * nodes.weights) @ deviation.transpose(0, 2, 1)
            np.testing.assert_allclose(found, V[block], rtol=tolerance, atol=1e-9)


@classes
@structures
def test_precisions(K, structure):
    posterior, H = cases(K)[structure]
    np.testing.assert_allclose(posterior.precision(), H, atol=1e-9)


@classes
@structures
@layouts
def test_contrasts(K, structure, layout):
    """Of logits, of functions of the parameters with slopes that sum to zero, and of draws."""
    posterior, H = cases(K)[structure]
    X, S, C = rows(), np.linalg.inv(H), np.eye(K) - 1.0 / K
    V = C @ naive_latent(S, X, K, D + 1) @ C
    np.testing.assert_allclose(posterior.contrast_covariance(layout(X)), V, atol=1e-10)
    slopes = np.random.default_rng(8).normal(size=(4, K, D + 1))
    slopes -= slopes.mean(axis=1, keepdims=True)
    flat = slopes.reshape(4, -1)
    np.testing.assert_allclose(posterior.contrast_variances(slopes), (flat @ S * flat).sum(axis=1), atol=1e-9)
    theirs, ours = (
        drawn(50, np.random.default_rng(9)) - posterior.mean for drawn in (posterior.draws, posterior.contrast_draws)
    )
    np.testing.assert_allclose(C @ ours, C @ theirs, atol=1e-9)


@structures
def test_draws_have_the_moments_of_the_posterior(structure):
    K, S = 3, 40_000
    posterior, H = cases(K)[structure]
    draws = posterior.draws(S, np.random.default_rng(6))
    assert draws.shape == (S, K, D + 1)
    covariance = np.linalg.inv(H)
    sd = np.sqrt(covariance.diagonal())
    assert (np.abs(draws.mean(axis=0) - posterior.mean).ravel() < 5 * sd / np.sqrt(S)).all()
    found = np.cov(draws.reshape(S, -1).T)
    error = np.sqrt((np.outer(sd**2, sd**2) + covariance**2) / S)
    assert (np.abs(found - covariance) < 5 * error).all()
    again = posterior.draws(S, np.random.default_rng(6))
    np.testing.assert_array_equal(again, draws)


@classes
def test_solving_and_multiplying(K):
    posterior, H = cases(K)["full"]
    R = np.random.default_rng(7).normal(size=(K, D + 1))
    np.testing.assert_allclose(posterior.solve(R).ravel(), np.linalg.solve(H, R.ravel()), atol=1e-10)
    np.testing.assert_allclose(posterior.precision_times(R).ravel(), H @ R.ravel(), atol=1e-10)
    np.testing.assert_allclose(posterior.precision_times(posterior.solve(R)), R, atol=1e-10)


@classes
@pytest.mark.parametrize("structure", ["contrasts", "tilted"])
def test_in_contrasts_solving_is_that_of_all_classes(K, structure):
    posterior, H = cases(K)[structure]
    R = np.random.default_rng(7).normal(size=(K, D + 1))
    np.testing.assert_allclose(posterior.precision_times(R).ravel(), H @ R.ravel(), atol=1e-10)
    np.testing.assert_allclose(posterior.solve(R).ravel(), np.linalg.solve(H, R.ravel()), atol=1e-10)
    across = R - R.mean(axis=0)
    np.testing.assert_allclose(posterior.solve(across).ravel(), np.linalg.solve(H, across.ravel()), atol=1e-10)


@classes
def test_contrasts_say_the_same_as_all_classes(K):
    full, contrasted = cases(K)["full"][0], cases(K)["contrasts"][0]
    np.testing.assert_allclose(contrasted.forms, full.forms, atol=1e-10)
    np.testing.assert_allclose(contrasted.covariance(), full.covariance(), atol=1e-10)
    assert contrasted.log_det == pytest.approx(full.log_det, abs=1e-9)


@classes
def test_without_a_prior_classes_sum_to_zero(K):
    H = likelihood(K, D + 1)
    Q = np.kron(contrasts(K), np.eye(D + 1))
    mean = np.zeros((K, D + 1))
    posterior = FullPosterior(mean, Q.T @ H @ Q, contrasts(K))
    S = np.linalg.pinv(H)
    np.testing.assert_allclose(posterior.covariance(), S, atol=1e-9)
    np.testing.assert_allclose(posterior.variances().ravel(), S.diagonal(), atol=1e-9)
    np.testing.assert_allclose(posterior.latent_covariance(rows()), naive_latent(S, rows(), K, D + 1), atol=1e-9)
    np.testing.assert_allclose(posterior.draws(10, np.random.default_rng(0)).sum(axis=1), 0.0, atol=1e-11)
    np.testing.assert_allclose(posterior.precision_times(mean + 1.0), 0.0, atol=1e-11)
    eigenvalues = np.linalg.eigvalsh(H)[D + 1 :]  # those of the null directions come first
    assert posterior.log_det == pytest.approx(np.log(eigenvalues).sum(), abs=1e-8)


def test_an_indefinite_precision_is_refused():
    with pytest.raises(SingularError, match="Use a stronger prior"):
        FullPosterior(np.zeros((2, 2)), np.diag([1.0, 1.0, 1.0, -1.0]), np.eye(2))


def test_the_precision_is_not_modified():
    H = spd(8)
    before = H.copy()
    posterior = FullPosterior(np.zeros((2, 4)), H, np.eye(2))
    posterior.covariance(), posterior.solve(np.ones((2, 4)))
    np.testing.assert_array_equal(H, before)


def test_a_kronecker_posterior_without_data_is_the_prior():
    R = spd(4, 1)
    posterior = KroneckerPosterior(np.zeros((3, 4)), np.zeros((3, 3)), np.zeros((4, 4)), R)
    np.testing.assert_allclose(posterior.covariance(), np.kron(np.eye(3), np.linalg.inv(R)), atol=1e-11)
    assert posterior.log_det == pytest.approx(3 * np.linalg.slogdet(R)[1], abs=1e-10)
