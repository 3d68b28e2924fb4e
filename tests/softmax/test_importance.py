"""Importance weights: evidences and moments known otherwise, and a posterior that is its draws."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from scipy.stats import norm
from sklearn.datasets import load_iris
from tests.slow import quick_first

from posteriori.maths.integrals import expected_softmax
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax import importance as module
from posteriori.softmax.importance import WeightedDraws, importance
from posteriori.softmax.laplace import laplace
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.posterior import FullPosterior
from posteriori.softmax.precision import MatrixPrecision


def objective(X, y, precision, mean=None):
    K = int(y.max()) + 1
    blocks = MemoryBlocks(X, y, None, K)
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision, mean)


def optimum(problem):
    theta = np.zeros(problem.shape)
    for _ in range(40):
        step = np.linalg.solve(problem.hessian(theta), problem.value_gradient(theta)[1].ravel())
        theta = theta - step.reshape(theta.shape) / max(1.0, np.abs(step).max())
    return theta


def iris(precision=None):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return objective(X, y, np.full((3, 5), 1.0) if precision is None else precision)


@pytest.mark.parametrize("in_contrasts", [True, False])
def test_the_evidence_of_iris_is_near_laplaces(in_contrasts):
    problem = iris(None if in_contrasts else MatrixPrecision(np.eye(15), (3, 5)))
    at_mode = laplace(problem, optimum(problem))
    assert (at_mode.posterior.tilt is None) == in_contrasts
    found = importance(problem, at_mode.posterior, 5000, np.random.default_rng(0))
    assert found.log_evidence == pytest.approx(at_mode.log_evidence, abs=0.5)
    assert found.k_hat < 1.0
    assert 50 < found.effective_sample_size < 5000
    assert found.effective_sample_size == pytest.approx(1 / (found.posterior.weights**2).sum())


def one_weight(alpha=0.2, mean=None):
    """Two classes, one feature: the posterior of d = w_1 - w_0 on a grid, and its evidence."""
    x = np.array([-2.0, -1.0, -0.3, 0.2, 0.8, 1.5, 2.5])
    y = np.array([0, 0, 1, 0, 1, 1, 1])
    d = np.linspace(-15, 25, 8001)
    centre = 0.0 if mean is None else mean[1, 0] - mean[0, 0]
    density = norm.pdf(d, centre, np.sqrt(2 / alpha)) * expit((2 * y - 1) * x * d[:, None]).prod(axis=1)
    evidence = density.sum() * (d[1] - d[0])
    p = density / density.sum()
    first = p @ d
    return objective(x[:, None], y, np.full((2, 1), alpha), mean), np.log(evidence), first, p @ (d - first) ** 2


@pytest.mark.parametrize("mean", quick_first([None, np.array([[-0.2], [0.7]])]))
def test_evidence_and_moments_of_one_weight(mean):
    """Seven rows: far from Gaussian. Draws from a wider Gaussian than Laplace's, within 5 standard errors."""
    problem, evidence, first, second = one_weight(mean=mean)
    at_mode = laplace(problem, optimum(problem)).posterior
    assert at_mode.basis.shape[1] == 1
    assert at_mode.tilt is None
    wide = FullPosterior(at_mode.mean, np.linalg.inv(at_mode.inner) / 3.0, at_mode.basis, at_mode.common)
    found = importance(problem, wide, 20_000, np.random.default_rng(1))
    ess = found.effective_sample_size
    assert found.k_hat < 0.5
    assert found.log_evidence == pytest.approx(evidence, abs=5 * np.sqrt(1 / ess - 1 / 20_000))
    d = found.posterior.mean[1, 0] - found.posterior.mean[0, 0]
    assert d == pytest.approx(first, abs=5 * np.sqrt(second / ess))
    variance = found.posterior.pair_variances(np.ones((1, 1)))[0, 0]
    assert variance == pytest.approx(second, rel=5 * np.sqrt(6 / ess))
    assert abs(at_mode.mean[1, 0] - at_mode.mean[0, 0] - first) > 10 * np.sqrt(second / ess)  # Laplace's is not it


def test_an_exact_proposal_has_equal_weights():
    """Without information the posterior is the prior: all weights are equal and the evidence is exact."""
    X, y = np.zeros((6, 1)), np.arange(6) % 3
    problem = objective(X, y, np.full((3, 1), 2.0))
    found = importance(problem, laplace(problem, np.zeros((3, 1))).posterior, 500, np.random.default_rng(0))
    assert found.log_evidence == pytest.approx(-6 * np.log(3), abs=1e-10)
    np.testing.assert_allclose(found.posterior.weights, 1 / 500, rtol=1e-6)
    assert found.effective_sample_size == pytest.approx(500, rel=1e-6)


def test_the_same_stream_gives_the_same_answer():
    problem = iris()
    at_mode = laplace(problem, optimum(problem)).posterior
    a, b = (importance(problem, at_mode, 200, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(a.posterior.thetas, b.posterior.thetas)
    assert a.log_evidence == b.log_evidence
    c = importance(problem, at_mode, 200, np.random.default_rng(4))
    assert a.log_evidence != c.log_evidence


# A posterior of draws

K, D, S = 3, 2, 50


def weighted(seed=0):
    rng = np.random.default_rng(seed)
    return WeightedDraws(rng.normal(size=(S, K, D + 1)), rng.dirichlet(np.ones(S)))


def rows(n=9):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.8)


def test_moments_are_weighted_sums():
    posterior = weighted()
    flat = posterior.thetas.reshape(S, -1)
    np.testing.assert_allclose(posterior.mean.ravel(), np.average(flat, axis=0, weights=posterior.weights), atol=1e-13)
    expected = np.cov(flat.T, aweights=posterior.weights, ddof=0)
    np.testing.assert_allclose(posterior.covariance(), expected, atol=1e-12)
    np.testing.assert_allclose(posterior.variances().ravel(), expected.diagonal(), atol=1e-12)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("block", [1 << 20, 2 * S * K])
def test_logits_are_those_of_the_draws(monkeypatch, layout, block):
    monkeypatch.setattr(module, "_BLOCK_VALUES", block)
    posterior, X = weighted(), rows()
    Z = np.c_[X, np.ones(len(X))]
    F = np.einsum("nd,skd->nks", Z, posterior.thetas)
    w = posterior.weights
    V = np.array([np.cov(f, aweights=w, ddof=0) for f in F])
    np.testing.assert_allclose(posterior.latent_covariance(layout(X)), V, atol=1e-12)
    pairs = [V[:, k, k] + V[:, m, m] - 2 * V[:, k, m] for k, m in combinations(range(K), 2)]
    np.testing.assert_allclose(posterior.pair_variances(layout(X)), pairs, atol=1e-12)
    nodes = posterior.nodes(128)
    np.testing.assert_array_equal(nodes.weights, w)
    centre = (Z @ posterior.mean.T).T
    P = expected_softmax(posterior.at_nodes(layout(X), centre, nodes), w, (K, len(X)))
    np.testing.assert_allclose(P, (softmax(F, axis=1) @ w).T, atol=1e-12)
    moved = np.concatenate([at for _, at in posterior.at_nodes(layout(X), centre + 2.0, nodes)])
    np.testing.assert_allclose(moved, F + 2.0, atol=1e-12)
    assert posterior.latent_size == K


def test_draws_come_as_often_as_they_weigh():
    posterior = weighted()
    drawn = posterior.draws(40_000, np.random.default_rng(2))
    assert drawn.shape == (40_000, K, D + 1)
    count = np.array([(drawn[:, 0, 0] == theta[0, 0]).mean() for theta in posterior.thetas])
    assert count.sum() == pytest.approx(1.0)
    error = np.sqrt(posterior.weights * (1 - posterior.weights) / 40_000)
    assert (np.abs(count - posterior.weights) < 5 * error + 1e-4).all()
