"""Laplace's approximation: the inverse of a finite-difference Hessian, and evidences that can be integrated."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.datasets import load_iris

from posteriori import SoftmaxRegression
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.importance import objective_values
from posteriori.softmax.laplace import full_posterior, laplace, mode
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision


def objective(X, y, precision, mean=None, K=None, c=None):
    K = y.max() + 1 if K is None else K
    blocks = MemoryBlocks(X, y, c, K)
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision, mean)


def small(K=3, D=2, N=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    F = X @ rng.normal(size=(D, K))
    return X, np.array([rng.choice(K, p=p) for p in softmax(F, axis=1)])


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size + 0.2 * np.eye(size)


def optimum(problem):
    """Newton's method on the whole Hessian."""
    theta = np.zeros(problem.shape)
    for _ in range(50):
        value, gradient = problem.value_gradient(theta)
        step = np.linalg.solve(problem.hessian(theta), gradient.ravel()).reshape(theta.shape)
        while problem.value_gradient(theta - step)[0] > value + 1e-10:
            step = step / 2
        theta = theta - step
    assert np.abs(problem.value_gradient(theta)[1]).max() < 1e-9
    return theta


def finite_difference_hessian(problem, theta, h=1e-4):
    """From values alone."""
    size = theta.size
    steps = h * np.eye(size).reshape(size, *theta.shape)
    H = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            corners = [(1, 1, 1), (-1, -1, 1), (1, -1, -1), (-1, 1, -1)]
            thetas = np.array([theta + a * steps[i] + b * steps[j] for a, b, _ in corners])
            H[i, j] = objective_values(problem, thetas) @ [sign for _, _, sign in corners] / (4 * h * h)
    return H


PRIORS = {
    "alike": (lambda K, D: DiagonalPrecision(np.full((K, D), 0.8)), None),
    "alike, centre": (lambda K, D: DiagonalPrecision(np.full((K, D), 0.8), np.append(np.full(D - 1, 0.6), 1.0)), None),
    "alike, mean": (lambda K, D: DiagonalPrecision(np.full((K, D), 0.8)), lambda K, D: np.full((K, D), 0.3)),
    "by class": (lambda K, D: DiagonalPrecision(np.outer(np.arange(1.0, K + 1), np.ones(D))), None),
    "kronecker": (lambda K, D: KroneckerPrecision(spd(K), spd(D, 1)), None),
    "matrix, mean": (
        lambda K, D: MatrixPrecision(spd(K * D, 2), (K, D)),
        lambda K, D: np.random.default_rng(3).normal(size=(K, D)),
    ),
}
priors = pytest.mark.parametrize(("make", "mean"), PRIORS.values(), ids=PRIORS)


@priors
@pytest.mark.parametrize("K", [2, 3])
def test_the_covariance_is_the_inverse_hessian(make, mean, K):
    X, y = small(K)
    problem = objective(X, y, make(K, 3), None if mean is None else mean(K, 3), K)
    theta = optimum(problem)
    found = laplace(problem, theta)
    H = finite_difference_hessian(problem, theta)
    S = np.linalg.inv(H)
    np.testing.assert_allclose(found.posterior.covariance(), S, atol=2e-5 * np.abs(S).max())
    np.testing.assert_array_equal(found.posterior.mean, theta)
    # the evidence from the same Hessian, with all constants of 2 pi left out on both sides
    R = problem.prior.matrix(np.eye(K))
    evidence = -problem.value_gradient(theta)[0] + 0.5 * np.linalg.slogdet(R)[1] - 0.5 * np.linalg.slogdet(H)[1]
    assert found.log_evidence == pytest.approx(evidence, abs=1e-4)


@pytest.mark.parametrize("centre", [None, np.array([0.5, -0.2, 1.0])])
@pytest.mark.parametrize("mean", [None, 0.4])
def test_contrasts_give_the_evidence_of_all_classes(centre, mean):
    X, y = small(4)
    alike = DiagonalPrecision(np.tile([0.5, 2.0, 0.2], (4, 1)), centre)
    whole = MatrixPrecision(alike.matrix(np.eye(4)), (4, 3))  # the same prior, not known to be alike
    mean = None if mean is None else np.full((4, 3), mean)
    first, second = objective(X, y, alike, mean), objective(X, y, whole, mean)
    theta = optimum(second)
    a, b = laplace(first, theta), laplace(second, theta)
    assert a.posterior.tilt is None
    np.testing.assert_allclose(b.posterior.tilt, 0.0, atol=1e-12)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-9)
    np.testing.assert_allclose(a.posterior.covariance(), b.posterior.covariance(), atol=1e-9)


def test_a_hessian_at_hand_is_used():
    X, y = small(3)
    problem = objective(X, y, np.ones((3, 3)))
    theta = optimum(problem)
    H = problem.curvature.likelihood_hessian(theta, contrasts(3))
    assert laplace(problem, theta, H).log_evidence == pytest.approx(laplace(problem, theta).log_evidence, abs=1e-12)
    other = laplace(problem, theta, 2 * H)
    R = problem.prior.matrix(contrasts(3))
    np.testing.assert_allclose(other.posterior.inner, np.linalg.inv(2 * H + R), atol=1e-10)
    np.testing.assert_allclose(full_posterior(problem, theta, 2 * H).inner, other.posterior.inner)


# The evidence, integrated


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("in_contrasts", [True, False])
def test_the_evidence_of_two_classes_is_an_integral(alpha, in_contrasts):
    """p(Y) = int N(d; 0, 2/alpha) prod sigma(d x) dd, d = w_1 - w_0.

    The posterior of one parameter from 100 rows is nearly Gaussian: Laplace misses terms of order 1/N, 0.01 nats.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1))
    y = (rng.random(100) < 1 / (1 + np.exp(-1.2 * X[:, 0]))).astype(int)
    precision = DiagonalPrecision(np.full((2, 1), alpha))
    problem = objective(X, y, precision if in_contrasts else MatrixPrecision(alpha * np.eye(2), (2, 1)))

    def log_likelihood(d):
        return -np.logaddexp(0.0, -d * X[:, 0] * (2 * y - 1)).sum()

    top = max(log_likelihood(d) for d in np.linspace(-3, 3, 61))
    sd = np.sqrt(2 / alpha)
    integral, _ = quad(lambda d: np.exp(log_likelihood(d) - top) * norm.pdf(d, scale=sd), -8, 8, points=[0.0, 1.2])
    found = laplace(problem, optimum(problem)).log_evidence
    assert found == pytest.approx(top + np.log(integral), abs=1e-2)


def test_the_evidence_of_three_classes_is_an_integral():
    """Over the two contrasts of one weight, by the trapezoidal rule: 150 rows leave an error of order 0.01 nats."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 1))
    y = np.array([rng.choice(3, p=p) for p in softmax(X * [-1.0, 0.0, 0.8], axis=1)])
    alpha = 0.5
    b = np.linspace(-4, 4, 81)  # steps of half a standard deviation: exact to many digits
    B = np.stack(np.meshgrid(b, b), axis=-1).reshape(-1, 2)
    W = B @ contrasts(3).T
    log_likelihood = np.array([(X * w - logsumexp(X * w, axis=1, keepdims=True))[np.arange(150), y].sum() for w in W])
    log_prior = norm.logpdf(B, scale=alpha**-0.5).sum(axis=1)
    exact = logsumexp(log_likelihood + log_prior) + 2 * np.log(b[1] - b[0])
    problem = objective(X, y, np.full((3, 1), alpha))
    assert laplace(problem, optimum(problem)).log_evidence == pytest.approx(exact, abs=1e-2)


def test_a_prior_without_data_has_evidence_one():
    X, y = np.zeros((6, 1)), np.arange(6) % 3
    problem = objective(X, y, np.full((3, 1), 2.0))
    assert laplace(problem, np.zeros((3, 1))).log_evidence == pytest.approx(-6 * np.log(3), abs=1e-12)


# Modes


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_the_mode_is_what_softmax_regression_finds(alpha):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = objective(X, y, np.full((3, 4), alpha))
    start = np.zeros((3, 4))
    H = problem.curvature.likelihood_hessian(start, contrasts(3))
    theta, reached = mode(problem, start, H, 1e-17)
    assert reached
    fitted = SoftmaxRegression(alpha=alpha, fit_intercept=False, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(theta, fitted.coef_, atol=1e-6 * max(1.0, np.abs(theta).max()))
    assert np.abs(problem.value_gradient(theta)[1]).max() < 1e-5


@priors
def test_the_mode_from_a_hessian_of_another_problem(make, mean):
    X, y = small(3)
    problem = objective(X, y, make(3, 3), None if mean is None else mean(3, 3))
    far = SoftmaxObjective(problem.blocks, problem.observed, np.full((3, 3), 30.0))
    basis = contrasts(3)
    start = np.zeros((3, 3)) if mean is None else problem.mean.copy()
    theta, reached = mode(problem, start, far.curvature.likelihood_hessian(start + 1.0, basis), 1e-17)
    assert reached
    np.testing.assert_allclose(theta, optimum(problem), atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_mode_from_any_start(seed):
    """Also from parameters with a part common to all classes, which the prior draws to zero."""
    X, y = small(3)
    problem = objective(X, y, np.full((3, 3), 0.7))
    start = np.random.default_rng(seed).normal(size=(3, 3))
    theta, reached = mode(problem, start, problem.curvature.likelihood_hessian(start, contrasts(3)), 1e-17)
    assert reached
    np.testing.assert_allclose(theta, optimum(problem), atol=1e-6)


def test_an_unreached_mode_says_so():
    X, y = small(3)
    problem = objective(X, y, np.full((3, 3), 1e-3))
    start = np.zeros((3, 3))
    theta, reached = mode(problem, start, problem.curvature.likelihood_hessian(start, contrasts(3)), 1e-12, max_iter=1)
    assert not reached
    assert problem.value_gradient(theta)[0] < problem.value_gradient(start)[0]
