"""The softmax objective under any Gaussian prior: derivatives, curvature in coordinates of the classes, averages."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from tests.slow import quick_first

from posteriori.maths.integrals import normal_nodes
from posteriori.rows import memory
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.importance import objective_values
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts, pair_forms
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision

N, D, K = 30, 3, 4
WIDTH = D + 1


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size + 0.1 * np.eye(size)


A = np.random.default_rng(1).uniform(0.1, 2.0, (K, WIDTH))
MEAN = np.random.default_rng(2).normal(size=(K, WIDTH))
PRIORS = {
    "diagonal": (DiagonalPrecision(A), None),
    "centre": (DiagonalPrecision(A, np.array([1.0, -2.0, 0.5, 1.0])), None),
    "kronecker": (KroneckerPrecision(spd(K), spd(WIDTH, 1)), MEAN),
    "matrix": (MatrixPrecision(spd(K * WIDTH, 2), (K, WIDTH)), MEAN),
}
priors = pytest.mark.parametrize(("precision", "mean"), PRIORS.values(), ids=PRIORS)
layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.asarray], 2))


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 600)
    monkeypatch.setattr(memory, "_COARSE_ROWS", 11)


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
    return X, rng.integers(0, K, N), rng.uniform(0.2, 2.0, N)


def objective(precision, mean=None, layout=np.asarray):
    X, Y, c = data()
    blocks = MemoryBlocks(layout(X), Y, c, K)
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision, mean)


def naive_value(R, mean, theta):
    X, Y, c = data()
    F = np.c_[X, np.ones(N)] @ theta.T
    v = (theta - (0.0 if mean is None else mean)).ravel()
    return c @ (logsumexp(F, axis=1) - F[np.arange(N), Y]) + 0.5 * v @ R @ v


def naive_hessian(theta):
    X, _, c = data()
    Z = np.c_[X, np.ones(N)]
    P = softmax(Z @ theta.T, axis=1)
    spread = c[:, None, None] * (P[:, :, None] * np.eye(K) - P[:, :, None] * P[:, None, :])
    return (
        np.tensordot(spread, Z[:, :, None] * Z[:, None, :], axes=(0, 0))
        .transpose(0, 2, 1, 3)
        .reshape(K * WIDTH, K * WIDTH)
    )


def point(seed=3):
    return np.random.default_rng(seed).normal(size=(K, WIDTH))


@priors
@layouts
def test_value_and_derivatives_under_any_prior(precision, mean, layout):
    problem, theta, R = objective(precision, mean, layout), point(), precision.matrix(np.eye(K))
    value, gradient = problem.value_gradient(theta)
    assert value == pytest.approx(naive_value(R, mean, theta), rel=1e-12)
    h = 1e-5
    for i in range(theta.size):
        step = h * np.eye(theta.size)[i].reshape(theta.shape)
        slope = (naive_value(R, mean, theta + step) - naive_value(R, mean, theta - step)) / (2 * h)
        assert gradient.flat[i] == pytest.approx(slope, rel=1e-6, abs=1e-6)
    H = naive_hessian(theta) + R
    np.testing.assert_allclose(problem.hessian(theta), H, atol=1e-11)
    V = point(4)
    np.testing.assert_allclose(problem.product(theta, V).ravel(), H @ V.ravel(), atol=1e-11)
    np.testing.assert_allclose(problem.precision, R.diagonal().reshape(K, WIDTH), rtol=1e-13)


@priors
def test_parts_of_the_hessian_that_precondition(precision, mean):
    """Class blocks hold what the prior couples within a class, but not its diagonal."""
    problem, theta = objective(precision, mean), point() / 20
    H = (naive_hessian(theta) + precision.matrix(np.eye(K))).reshape(K, WIDTH, K, WIDTH)
    blocks = problem.curvature.class_blocks(theta)
    for k in range(K):
        np.testing.assert_allclose(blocks[k] + np.diag(problem.precision[k]), H[k, :, k], atol=1e-11)


@priors
@pytest.mark.parametrize("size", [1, 7, N])
def test_batch_gradients_average_to_the_gradient_less_the_diagonal_pull(precision, mean, size):
    problem, theta = objective(precision, mean), point()
    gradients = [g(theta) for g in problem.batch_gradients(size, np.random.default_rng(0))]
    lengths = [min(size, N - i) for i in range(0, N, size)]
    centred = theta if mean is None else theta - mean
    expected = problem.value_gradient(theta)[1] - problem.precision * centred
    np.testing.assert_allclose(np.average(gradients, axis=0, weights=lengths), expected, atol=1e-10)


@priors
def test_the_gap_bound_is_that_of_the_prior(precision, mean):
    problem, theta = objective(precision, mean), point()
    _, g = problem.value_gradient(theta)
    R = precision.matrix(np.eye(K))
    bound = problem.certificate.gap_bound(g)
    assert bound == pytest.approx(0.5 * g.ravel() @ np.linalg.solve(R, g.ravel()), rel=1e-8)
    best = theta
    for _ in range(30):
        step = np.linalg.solve(problem.hessian(best), problem.value_gradient(best)[1].ravel())
        best = best - step.reshape(theta.shape) / (1 + np.linalg.norm(step) / 4)
    assert problem.value_gradient(theta)[0] - problem.value_gradient(best)[0] <= bound
    for at in (theta, 100.0 * theta, best + 1e-3):  # and from below, wherever the gradient is taken
        value, g = problem.value_gradient(at)
        assert 0 < problem.certificate.least_gap(g) <= value - problem.value_gradient(best)[0]


@layouts
@pytest.mark.parametrize("seen", [False, True], ids=["afresh", "at the last parameters"])
def test_likelihood_hessian_in_coordinates_of_the_classes(layout, seen):
    problem, theta = objective(*PRIORS["matrix"], layout), point()
    if seen:
        problem.value_gradient(theta)
    H = naive_hessian(theta)
    for basis in (np.eye(K), contrasts(K)):
        Q = np.kron(basis, np.eye(WIDTH))
        np.testing.assert_allclose(problem.curvature.likelihood_hessian(theta, basis), Q.T @ H @ Q, atol=1e-11)


@layouts
def test_log_det_slope_is_a_finite_difference(layout):
    problem, theta = objective(*PRIORS["matrix"], layout), point() / 2
    R = PRIORS["matrix"][0].matrix(np.eye(K))
    S = np.linalg.inv(naive_hessian(theta) + R)
    slope = problem.curvature.log_det_slope(theta, pair_forms(S, np.eye(K)))
    h = 1e-5
    for i in range(theta.size):
        step = h * np.eye(theta.size)[i].reshape(theta.shape)
        above, below = (np.linalg.slogdet(naive_hessian(theta + s) + R)[1] for s in (step, -step))
        assert slope.flat[i] == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("precision", "mean", "layout"),
    [(*PRIORS["diagonal"], np.asarray), (*PRIORS["centre"], sp.csr_array), (*PRIORS["matrix"], np.asfortranarray)],
)
def test_averages_over_a_gaussian(precision, mean, layout):
    """E[J] and its slope less the prior's trace, and E[H], against draws; the slope against finite differences too."""
    problem, theta = objective(precision, mean, layout), point() / 2
    S = 0.3 * spd(K * WIDTH, 5)
    forms, nodes = pair_forms(S, np.eye(K)), normal_nodes(K - 1, 2048)
    value, slope, H = problem.curvature.averaged(theta, forms, np.eye(K), nodes)
    rng = np.random.default_rng(6)
    draws = theta + (rng.standard_normal((1500, len(S))) @ np.linalg.cholesky(S).T).reshape(-1, K, WIDTH)
    draws = np.concatenate([draws, 2 * theta - draws])
    R = precision.matrix(np.eye(K))
    # draws also average the prior's part of J: less 1/2 tr(R S); and the linear part in the observed moments has
    # its mean exactly, for draws with their mirror images
    drawn = objective_values(problem, draws) - np.array(
        [0.5 * v @ R @ v for v in (draws - theta).reshape(-1, K * WIDTH)]
    )
    pairs = 0.5 * (drawn[:1500] + drawn[1500:])
    assert value == pytest.approx(pairs.mean(), abs=5 * pairs.std() / np.sqrt(1500) + 0.02)
    h = 1e-5
    for i in (0, 5, 11, 15):
        step = h * np.eye(theta.size)[i].reshape(theta.shape)
        above, below = (problem.curvature.averaged(theta + s, forms, np.eye(K), nodes)[0] for s in (step, -step))
        assert slope.flat[i] == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-6)
    curvatures = np.array([naive_hessian(d) for d in draws[::5]])
    error = curvatures.std(axis=0) / np.sqrt(len(curvatures))
    assert (np.abs(H - curvatures.mean(axis=0)) < 5 * error + 0.02).all()
    Q = np.kron(contrasts(K), np.eye(WIDTH))
    in_contrasts = problem.curvature.averaged(theta, forms, contrasts(K), nodes)[2]
    np.testing.assert_allclose(in_contrasts, Q.T @ H @ Q, atol=1e-11)


@priors
@layouts
def test_values_at_many_parameters(precision, mean, layout):
    problem = objective(precision, mean, layout)
    thetas = np.random.default_rng(7).normal(size=(5, K, WIDTH))
    np.testing.assert_allclose(
        objective_values(problem, thetas), [problem.value_gradient(t)[0] for t in thetas], rtol=1e-12
    )
    assert objective_values(problem, thetas[:0]).shape == (0,)


def test_the_same_likelihood_under_another_prior():
    first, theta = objective(*PRIORS["diagonal"]), point()
    for precision, mean in PRIORS.values():
        other = SoftmaxObjective(first.blocks, first.observed, precision, mean)
        assert other.blocks is first.blocks
        assert other.value_gradient(theta)[0] == pytest.approx(
            naive_value(precision.matrix(np.eye(K)), mean, theta), rel=1e-12
        )
    by_array = SoftmaxObjective(first.blocks, first.observed, A)
    assert by_array.value_gradient(theta)[0] == first.value_gradient(theta)[0]


def test_a_sample_keeps_the_prior():
    problem = objective(*PRIORS["matrix"])
    sample = problem.start.sample(20)
    assert sample.prior is problem.prior
    assert sample.mean is problem.mean


def test_pairs_are_in_numpys_order():
    k, m = np.triu_indices(K, 1)
    assert list(zip(k.tolist(), m.tolist(), strict=True)) == list(combinations(range(K), 2))
