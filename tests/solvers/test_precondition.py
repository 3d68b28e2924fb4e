"""Preconditioners: exact where the Hessian has their structure, and the prior alone on the null direction."""

from bisect import bisect_left

import numpy as np
import pytest
from tests.solvers.problems import softmax_problem

from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.target import Target
from posteriori.solvers.conjugate_gradient import conjugate_gradient
from posteriori.solvers.precondition import class_blocks, kronecker

K, D = 4, 3
NULL = np.full((K, K), 1.0 / K)
ACROSS = np.eye(K) - NULL


def dense(apply, K=K, D=D):
    """The matrix of a linear map on (K, D) arrays."""
    return np.stack([apply(e.reshape(K, D)).ravel() for e in np.eye(K * D)], axis=1)


def mixing(n=30, vanishing=None):
    """A = sum_n (diag P_n - P_n P_n^T), one class of which may have no probability."""
    P = np.random.default_rng(0).dirichlet(np.ones(K), n)
    if vanishing is not None:
        P[:, vanishing] = 0.0
        P /= P.sum(axis=1, keepdims=True)
    return np.diag(P.sum(axis=0)) - P.T @ P


def gram(seed=1):
    X = np.random.default_rng(seed).standard_normal((20, D)) * [0.1, 1.0, 10.0]
    return X.T @ X


def whole(A, G, prior):
    """The Kronecker preconditioner with all features in G."""
    return kronecker(A, G, np.arange(len(G)), G.diagonal(), prior)


def blocks():
    return np.stack([gram(seed) for seed in range(K)])


PRIORS = {
    "uniform": np.full((K, D), 0.7),
    "per feature": np.tile([0.01, 1.0, 100.0], (K, 1)),
    "free intercept": np.tile([0.3, 2.0, 0.0], (K, 1)),
    "flat": np.zeros((K, D)),
}
priors = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)


def prior_only(prior):
    """The inverse of the prior where it has one, on the null direction."""
    a = prior[0]
    return np.kron(NULL, np.diag(np.divide(1.0, a, out=np.zeros_like(a), where=a > 0)))


def assert_same(M, expected, rtol=1e-7):
    """Up to the ridge that preconditioners add."""
    np.testing.assert_allclose(M, expected, rtol=0, atol=rtol * np.abs(expected).max() + 1e-12)


@priors
def test_kronecker_is_the_exact_inverse(prior):
    A, G = mixing(), gram()
    M = dense(whole(A, G, prior))
    H = np.kron(A / np.trace(A), G) + np.diag(prior.ravel())
    complement = np.kron(ACROSS, np.eye(D))
    assert_same(M @ complement, np.linalg.pinv(complement @ H @ complement, rcond=1e-12))
    assert_same(M @ np.kron(NULL, np.eye(D)), prior_only(prior))


@pytest.mark.parametrize("vanishing", range(K))
def test_kronecker_with_a_class_of_no_probability(vanishing):
    """A then has two null directions, which no eigensolver tells apart; the prior holds both."""
    A, G, prior = mixing(vanishing=vanishing), gram(), PRIORS["uniform"]
    H = np.kron(A / np.trace(A), G) + np.diag(prior.ravel())
    assert_same(dense(whole(A, G, prior)), np.linalg.inv(H), rtol=1e-3)


def test_kronecker_without_curvature_is_the_prior():
    """Where all probabilities are 0 or 1."""
    prior = PRIORS["per feature"]
    M = dense(whole(np.zeros((K, K)), np.zeros((D, D)), prior))
    assert_same(M, np.diag(1.0 / prior.ravel()))


@priors
@pytest.mark.parametrize("lead", [[0], [0, 2], [1, 2], [0, 1, 2]], ids=str)
def test_kronecker_takes_the_features_it_does_not_lead_as_uncorrelated(prior, lead):
    A, G, lead = mixing(), gram(), np.array(lead)
    part = np.diag(G.diagonal())
    part[np.ix_(lead, lead)] = G[np.ix_(lead, lead)]
    M = dense(kronecker(A, G[np.ix_(lead, lead)], lead, G.diagonal(), prior))
    complement = np.kron(ACROSS, np.eye(D))
    H = np.kron(A / np.trace(A), part) + np.diag(prior.ravel())
    assert_same(M, np.linalg.pinv(complement @ H @ complement, rcond=1e-12) + prior_only(prior))


def test_kronecker_leaves_out_what_has_neither_curvature_nor_prior():
    A, lead, diagonal = ACROSS, np.array([0]), np.array([1.0, 0.0, 2.0])
    R = ACROSS @ np.random.default_rng(3).standard_normal((K, D))
    Z = kronecker(A, np.eye(1), lead, diagonal, np.zeros((K, D)))(R)
    np.testing.assert_allclose(Z, (K - 1) * R * [1.0, 0.0, 0.5], atol=1e-8)


def test_kronecker_uses_the_mean_of_unequal_priors():
    prior = np.random.default_rng(2).uniform(0.5, 2.0, (K, D))
    mean = np.tile(prior.mean(axis=0), (K, 1))
    assert_same(dense(whole(mixing(), gram(), prior)), dense(whole(mixing(), gram(), mean)))


@priors
def test_class_blocks_are_exact_for_equal_blocks(prior):
    """H = I kron B + a on deviations from the mean over classes, a on the mean."""
    B = gram()
    M = dense(class_blocks(np.stack([B] * K), prior))
    assert_same(M, np.kron(ACROSS, np.linalg.inv(B + np.diag(prior[0]))) + prior_only(prior))


@priors
def test_unequal_blocks_are_inverted_across_the_null_direction(prior):
    across = np.kron(ACROSS, np.eye(D))
    inverse = np.zeros((K, D, K, D))
    for k, B in enumerate(blocks()):
        inverse[k, :, k] = np.linalg.inv(B + np.diag(prior[k]))
    M = dense(class_blocks(blocks(), prior))
    assert_same(M, across @ inverse.reshape(K * D, K * D) @ across + prior_only(prior))


@priors
@pytest.mark.parametrize(
    "make",
    [
        lambda prior: whole(mixing(), gram(), prior),
        lambda prior: kronecker(mixing(), gram()[:1, :1], np.array([0]), gram().diagonal(), prior),
        lambda prior: class_blocks(blocks(), prior),
    ],
    ids=["kronecker", "one leading", "class_blocks"],
)
def test_symmetric_and_positive(make, prior):
    """Definite where the prior is, semi-definite with one null direction for each flat column."""
    M = dense(make(prior))
    np.testing.assert_allclose(M, M.T, atol=1e-10 * np.abs(M).max())
    scale = 1.0 / np.sqrt(M.diagonal())
    eigenvalues = np.linalg.eigvalsh(M * scale * scale[:, None])
    assert eigenvalues[0] > -1e-12
    assert (eigenvalues > 1e-9).sum() == K * D - (prior[0] == 0).sum()


@pytest.mark.parametrize("make", [whole, class_blocks])
def test_input_is_left_alone(make):
    prior = PRIORS["uniform"]
    given = (mixing(), gram()) if make is whole else (blocks(),)
    R = np.random.default_rng(4).standard_normal((K, D))
    copies = [part.copy() for part in given], R.copy()
    apply = make(*given, prior)
    first = apply(R)
    np.testing.assert_array_equal(apply(R), first)
    np.testing.assert_array_equal(R, copies[1])
    for part, copy in zip(given, copies[0], strict=True):
        np.testing.assert_array_equal(part, copy)


def softmax(X, y, precision):
    target = Target(np.arange(len(precision)), y, None, None)
    return softmax_problem(MemoryFeatures(X, None), target, precision)


def test_kronecker_factors_of_very_many_features():
    """At theta = 0 H is A kron G / tr A: with thousands of features the heaviest lead, and all keep their diagonal."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((40, 2600)) * np.geomspace(0.1, 10.0, 2600), np.arange(40) % 3
    problem = softmax(X, y, np.ones((3, 2601)))
    A, G, lead, diagonal = problem.curvature.kronecker_factors(np.zeros((3, 2601)))
    ones = np.column_stack([X, np.ones(40)])
    np.testing.assert_allclose(A / np.trace(A), (np.eye(3) - 1 / 3) / 2, atol=1e-12)
    np.testing.assert_allclose(diagonal, 2 / 3 * (ones**2).sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(G, 2 / 3 * ones[:, lead].T @ ones[:, lead], rtol=1e-9, atol=1e-9)
    assert lead[-1] == 2600
    assert set(lead[:-1]) == set(np.argsort(-(X**2).sum(axis=0))[: lead.size - 1])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_kronecker_saves_most_products(alpha):
    """Columns of scales 1e-2 to 1e2, rotated: conjugate gradients take at most a third of the products."""
    rng = np.random.default_rng(0)
    N, D, K = 500, 12, 5
    Q, _ = np.linalg.qr(rng.standard_normal((D, D)))
    scales = np.geomspace(1e-2, 1e2, D)
    X = rng.standard_normal((N, D)) * scales @ Q
    W = rng.standard_normal((K, D)) / scales @ Q / np.sqrt(D)
    y = np.argmax(X @ W.T + rng.gumbel(size=(N, K)), axis=1)
    precision = np.column_stack([np.full((K, D), alpha), np.zeros(K)])
    problem = softmax(X, y, precision)
    theta = np.column_stack([0.5 * W, np.zeros(K)])
    _, gradient = problem.value_gradient(theta)
    exact = 0.5 * gradient.ravel() @ np.linalg.lstsq(problem.hessian(theta), gradient.ravel(), rcond=1e-13)[0]

    def products(precondition):
        """Until the decrement, which grows with every product, is known to a thousandth."""

        def enough(n):
            step = conjugate_gradient(lambda V: problem.product(theta, V), precondition, gradient, 0.0, n)
            return step.decrement >= 0.999 * exact

        return 1 + bisect_left(range(1, 1000), True, key=enough)

    with_it, without = (
        products(kronecker(*problem.curvature.kronecker_factors(theta), precision)),
        products(lambda R: R),
    )
    assert with_it <= without / 3
    assert with_it <= 15
