"""Jeffreys' prior: Firth's logistic regression, minima with slopes of zero, and designs that are singular."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax
from tests.slow import quick_first

from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.jeffreys import JeffreysProblem, fisher_scoring
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.solvers.solution import Status, run


def jeffreys(X, y, K=None, c=None, intercept=True):
    K = int(y.max()) + 1 if K is None else K
    blocks = MemoryBlocks(X, y, c, K)
    flat = np.zeros((K, X.shape[1] + intercept))
    return JeffreysProblem(SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), flat))


def fitted(problem, tol=1e-12):
    best, status, trace = run(fisher_scoring(problem, np.zeros(problem.problem.shape), tol), 200)
    assert status is Status.CONVERGED
    return best, trace


def firth(Z, y, c=None):
    """Logistic regression with Firth's modified score, Z^T (y - p + h (1/2 - p)) = 0, by Newton steps."""
    c = np.ones(len(y)) if c is None else c
    beta = np.zeros(Z.shape[1])
    for _ in range(500):
        p = expit(Z @ beta)
        root = np.sqrt(c * p * (1 - p))[:, None] * Z
        information = root.T @ root
        h = (root @ np.linalg.inv(information) * root).sum(axis=1)  # hat values
        score = Z.T @ (c * (y - p) + h * (0.5 - p))
        step = np.linalg.solve(information, score)
        beta = beta + step / max(1.0, np.abs(step).max())
        if np.abs(score).max() < 1e-12:
            break
    return beta


def naive_value(X, y, K, theta):
    """E - 1/2 log|Q^T H Q|."""
    Z = np.c_[X, np.ones(len(X))]
    F = Z @ theta.T
    H = np.zeros((theta.size, theta.size))
    for p, z in zip(softmax(F, axis=1), Z, strict=True):
        H += np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z))
    Q = np.kron(contrasts(K), np.eye(Z.shape[1]))
    return (logsumexp(F, axis=1) - F[np.arange(len(y)), y]).sum() - 0.5 * np.linalg.slogdet(Q.T @ H @ Q)[1]


def small(K, D=2, N=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, np.array([rng.choice(K, p=p) for p in softmax(X @ rng.normal(size=(D, K)), axis=1)])


SEPARABLE = np.r_[np.linspace(-3, -1, 8), np.linspace(1, 3, 8)][:, None]


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (SEPARABLE, np.repeat([0, 1], 8)),
        (np.c_[SEPARABLE, SEPARABLE**2], np.repeat([0, 1], 8)),
        (np.r_[SEPARABLE, [[0.0], [0.0]]], np.append(np.repeat([0, 1], 8), [0, 1])),  # quasi-separated
        small(2),
    ],
    ids=["separated", "two features", "quasi-separated", "overlapping"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_are_firths_logistic_regression(X, y, weighted):
    c = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    best, _ = fitted(jeffreys(X, y, c=c))
    beta = firth(np.c_[X, np.ones(len(X))], y, c)
    assert np.isfinite(best.theta).all()
    np.testing.assert_allclose(best.theta[1] - best.theta[0], beta, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(best.theta.sum(axis=0), 0.0, atol=1e-10)


def test_counts_have_a_half_added():
    """With an intercept alone, Jeffreys' mode for counts n_k of K classes is at (n_k + 1/2) / (N + K/2)."""
    sizes = np.array([0, 3, 9])
    y = np.repeat(np.arange(3), sizes)
    problem = jeffreys(np.empty((12, 0)), y, 3)
    best, _ = fitted(problem)
    np.testing.assert_allclose(softmax(best.theta[:, 0]), (sizes + 0.5) / (12 + 1.5), rtol=1e-6)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_values_and_gradients(K):
    X, y = small(K)
    problem, rng = jeffreys(X, y), np.random.default_rng(1)
    theta = rng.normal(size=(K, 3)) / 2
    value, gradient = problem.value_gradient(theta)
    assert value == pytest.approx(naive_value(X, y, K, theta), rel=1e-11)
    h = 1e-5
    for i in range(theta.size):
        step = h * np.eye(theta.size)[i].reshape(theta.shape)
        slope = (naive_value(X, y, K, theta + step) - naive_value(X, y, K, theta - step)) / (2 * h)
        assert gradient.flat[i] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_minimum_is_one(K, seed):
    X, y = small(K, seed=seed)
    problem = jeffreys(X, y, K)
    best, trace = fitted(problem)
    value, gradient = problem.value_gradient(best.theta)
    assert np.abs(gradient).max() < 1e-4
    rng = np.random.default_rng(seed)
    for size in (1e-2, 0.1, 1.0):
        for _ in range(5):
            assert naive_value(X, y, K, best.theta + size * rng.normal(size=best.theta.shape)) > value
    assert [entry.objective for entry in trace] == sorted((entry.objective for entry in trace), reverse=True)


def test_three_separated_classes_have_finite_estimates():
    X = np.r_[np.linspace(-5, -4, 6), np.linspace(-0.5, 0.5, 6), np.linspace(4, 5, 6)][:, None]
    y = np.repeat([0, 1, 2], 6)
    problem = jeffreys(X, y)
    best, _ = fitted(problem, 1e-10)
    assert np.abs(best.theta).max() < 50
    P = softmax(np.c_[X, np.ones(18)] @ best.theta.T, axis=1)
    assert (P.argmax(axis=1) == y).all()
    assert np.abs(problem.value_gradient(best.theta)[1]).max() < 1e-3


def test_the_posterior_is_the_inverse_information():
    X, y = small(3)
    problem = jeffreys(X, y)
    best, _ = fitted(problem)
    posterior = problem.posterior(best.theta)
    H = problem.problem.curvature.likelihood_hessian(best.theta, np.eye(3))
    np.testing.assert_allclose(posterior.covariance(), np.linalg.pinv(H), atol=1e-8)
    assert problem.posterior(best.theta) is posterior


def test_linear_changes_of_the_features_change_nothing():
    """The determinant changes by a constant: fitted probabilities do not depend on units or origins."""
    X, y = small(3)
    T = np.array([[2.0, 0.3], [-1.0, 0.1]])
    a, _ = fitted(jeffreys(X, y), 1e-14)
    b, _ = fitted(jeffreys(X @ T + [3.0, -2.0], y), 1e-14)
    P = [softmax(np.c_[Z, np.ones(len(X))] @ t.theta.T, axis=1) for Z, t in ((X, a), (X @ T + [3.0, -2.0], b))]
    np.testing.assert_allclose(P[0], P[1], atol=1e-5)


# Singular designs


def duplicated(seed, K, copy):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2))
    return np.c_[X, copy(X)], rng.integers(0, K, 30)


COPIES = {
    "the same column": lambda X: X[:, :1],
    "a sum": lambda X: X.sum(axis=1),
    "a multiple": lambda X: 3.7 * X[:, 1],
    "a constant": lambda X: np.full(len(X), 2.0),
    "zeros": lambda X: np.zeros(len(X)),
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("seed", quick_first(range(6)))
def test_collinear_features_are_refused(copy, K, seed):
    """Whatever rounding makes of a determinant that is zero."""
    X, y = duplicated(seed, K, copy)
    problem = jeffreys(X, y, K)
    with pytest.raises(ValueError, match=r"jeffreys.*collinear.*singular"):
        next(fisher_scoring(problem, np.zeros((K, 4)), 1e-10))


def test_fewer_rows_than_coefficients_are_refused():
    X, y = small(3, D=6, N=5)
    with pytest.raises(ValueError, match="at least as many rows"):
        next(fisher_scoring(jeffreys(X, y, 3), np.zeros((3, 7)), 1e-10))
