"""Approximate leave-one-out: exact refits, the formula for two classes by hand, and rows that hold everything."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_expit, softmax
from sklearn.datasets import load_iris

from posteriori.maths.integrals import normal_nodes
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.laplace import laplace
from posteriori.softmax.leave_one_out import left_out
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.softmax.precision import MatrixPrecision
from posteriori.softmax.variational import variational


def objective(X, Y, precision, c=None):
    K = len(precision.values if hasattr(precision, "values") else precision)
    blocks = MemoryBlocks(X, Y, c, K)
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision)


def optimum(problem):
    theta = np.zeros(problem.shape)
    for _ in range(60):
        value, gradient = problem.value_gradient(theta)
        step = np.linalg.solve(problem.hessian(theta), gradient.ravel()).reshape(theta.shape)
        if np.abs(step).max() < 1e-10:
            break
        while problem.value_gradient(theta - step)[0] > value + 1e-10:
            step = step / 2
        theta = theta - step
    return theta


def small(K, D=2, N=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, np.array([rng.choice(K, p=p) for p in softmax(1.5 * X @ rng.normal(size=(D, K)), axis=1)])


def log_probability(theta, x, y):
    f = theta @ np.append(x, 1.0)
    return f[y] - np.logaddexp.reduce(f)


def refits(X, y, precision):
    """Plug-in log-probability of each row by the fit to all others."""
    out = np.empty(len(y))
    for n in range(len(y)):
        keep = np.arange(len(y)) != n
        out[n] = log_probability(optimum(objective(X[keep], y[keep], precision)), X[n], y[n])
    return out


@pytest.mark.parametrize(("K", "alpha"), [(2, 0.3), (2, 3.0), (3, 0.3), (3, 3.0), (4, 1.0)])
def test_against_refits(K, alpha):
    """Forty rows: the mean log-loss is within 4 % of the refits', a quarter at most of what the fit itself is off."""
    X, y = small(K)
    precision = np.full((K, 3), alpha)
    problem = objective(X, y, precision)
    theta = optimum(problem)
    found = left_out(laplace(problem, theta).posterior, X, np.eye(K)[y], np.ones(len(y)))
    exact = refits(X, y, precision)
    training = np.mean([log_probability(theta, x, k) for x, k in zip(X, y, strict=True)])
    assert found.plugin.mean() == pytest.approx(exact.mean(), rel=0.04)
    assert abs(found.plugin.mean() - exact.mean()) < 0.25 * abs(training - exact.mean())
    assert np.corrcoef(found.plugin, exact)[0, 1] > 0.995


def test_against_refits_on_iris():
    X, y = load_iris(return_X_y=True)
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[::3]
    y = y[::3]
    precision = np.full((3, 5), 1.0)
    problem = objective(X, y, precision)
    found = left_out(laplace(problem, optimum(problem)).posterior, X, np.eye(3)[y], np.ones(len(y)))
    assert found.plugin.mean() == pytest.approx(refits(X, y, precision).mean(), rel=0.03)


@pytest.mark.parametrize("alike", [True, False])
def test_two_classes_by_hand(alike):
    """f = logit of class 1, v its variance: v_ = v / (1 - v p (1 - p)), f_ = f - v_ (y - p)."""
    X, y = small(2)
    problem = objective(X, y, np.full((2, 3), 0.5))
    if not alike:
        problem = SoftmaxObjective(
            problem.blocks, problem.observed, MatrixPrecision(np.diag([0.3, 0.5, 1.0, 2.0, 0.4, 0.7]), (2, 3))
        )
    theta = optimum(problem)
    posterior = laplace(problem, theta).posterior
    Z = np.c_[X, np.ones(len(X))]
    f = Z @ (theta[1] - theta[0])
    S = np.linalg.inv(problem.hessian(theta)).reshape(2, 3, 2, 3)
    D = S[0, :, 0] + S[1, :, 1] - S[0, :, 1] - S[1, :, 0]
    v = np.einsum("nd,de,ne->n", Z, D, Z)
    p = expit(f)
    v_left = v / (1 - v * p * (1 - p))
    f_left = f - v_left * (y - p)
    sign = 2 * y - 1
    found = left_out(posterior, X, np.eye(2)[y], np.ones(len(y)))
    np.testing.assert_allclose(found.plugin, log_expit(sign * f_left), rtol=1e-8)
    (z,), w = normal_nodes(1)
    averaged = np.log(expit(sign[:, None] * (f_left[:, None] + np.sqrt(v_left)[:, None] * z)) @ w)
    np.testing.assert_allclose(found.averaged, averaged, rtol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_a_row(share):
    """Rows of weight c < 1 have held only that share of a row's curvature; a share of nothing changes nothing."""
    X, y = small(2)
    c = np.full(len(y), 0.3)
    problem = objective(X, y, np.full((2, 3), 0.5), c)
    theta = optimum(problem)
    posterior = laplace(problem, theta).posterior
    Z = np.c_[X, np.ones(len(X))]
    f = Z @ (theta[1] - theta[0])
    v, p = posterior.pair_variances(X)[0], expit(f)
    v_left = v / (1 - share * v * p * (1 - p))
    f_left = f - v_left * share * (y - p)
    found = left_out(posterior, X, np.eye(2)[y], np.full(len(y), share))
    held = share * v * p * (1 - p) < 0.999
    assert held.mean() > 0.9
    np.testing.assert_allclose(found.plugin[held], log_expit((2 * y - 1) * f_left)[held], rtol=1e-8)


def test_a_share_is_what_a_refit_without_the_row_finds():
    X, y = small(3)
    c = np.full(len(y), 0.4)
    precision = np.full((3, 3), 0.5)
    problem = objective(X, y, precision, c)
    found = left_out(laplace(problem, optimum(problem)).posterior, X, np.eye(3)[y], c)
    exact = np.empty(len(y))
    for n in range(len(y)):
        keep = np.arange(len(y)) != n
        exact[n] = log_probability(optimum(objective(X[keep], y[keep], precision, c[keep])), X[n], y[n])
    assert found.plugin.mean() == pytest.approx(exact.mean(), rel=0.02)


def test_soft_targets_are_weighted_sums():
    X, y = small(3)
    Y = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    problem = objective(X, Y, np.full((3, 3), 0.5))
    posterior = laplace(problem, optimum(problem)).posterior
    found = left_out(posterior, X, Y, np.zeros(len(y)))  # nothing left out: the fit's own cross-entropy
    log_p = np.array([[log_probability(posterior.mean, x, k) for k in range(3)] for x in X])
    np.testing.assert_allclose(found.plugin, (Y * log_p).sum(axis=1), rtol=1e-10)
    assert left_out(posterior, X, Y, np.ones(len(y))).plugin.sum() < found.plugin.sum()


def test_dense_or_sparse_and_one_row_at_a_time():
    X, y = small(3)
    problem = objective(X, y, np.full((3, 3), 0.5))
    posterior, ones = laplace(problem, optimum(problem)).posterior, np.ones(len(y))
    found = left_out(posterior, X, np.eye(3)[y], ones)
    sparse = left_out(posterior, sp.csr_array(X), np.eye(3)[y], ones)
    np.testing.assert_allclose(sparse.plugin, found.plugin, rtol=1e-10)
    np.testing.assert_allclose(sparse.averaged, found.averaged, rtol=1e-10)
    for n in (0, 7, 39):
        alone = left_out(posterior, X[n : n + 1], np.eye(3)[y[n : n + 1]], ones[:1])
        assert alone.plugin[0] == pytest.approx(found.plugin[n], rel=1e-10)
        assert alone.averaged[0] == pytest.approx(found.averaged[n], rel=1e-10)


def test_averages_are_less_sure_than_the_plugin():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = objective(X, y, np.full((3, 5), 0.01))
    theta = optimum(problem)
    posterior = laplace(problem, theta).posterior
    found = left_out(posterior, X, np.eye(3)[y], np.ones(150))
    sure = found.plugin > -1e-3
    assert sure.sum() > 50
    assert (found.averaged[sure] < found.plugin[sure]).all()


@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1e-2])
@pytest.mark.parametrize("K", [2, 3])
def test_a_row_that_alone_knows_something_is_no_cause_for_nan(alpha, K):
    """One row is the only one with a feature: without a strong prior nearly all of its leverage is its own."""
    X, y = small(K, N=30)
    X = np.c_[X, np.zeros(30)]
    X[3, 2] = 50.0
    problem = objective(X, y, np.full((K, 4), alpha))
    theta = optimum(problem)
    posterior = laplace(problem, theta).posterior
    found = left_out(posterior, X, np.eye(K)[y], np.ones(30))
    assert np.isfinite(found.plugin).all()
    assert np.isfinite(found.averaged).all()
    assert (found.plugin <= 0).all()
    assert (found.averaged <= 1e-12).all()


def test_more_than_all_is_never_held():
    """A posterior wider than its own rows allow, as a variational one may be: the share held is capped below one."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), np.eye(3)[rng.integers(0, 3, 20)]
    for scale in (1.0, 1e3, 1e8):
        posterior = FullPosterior(np.zeros((3, 3)), np.eye(9) / scale, np.eye(3))
        found = left_out(posterior, X, Y, np.ones(20))
        assert np.isfinite(found.plugin).all()
        assert np.isfinite(found.averaged).all()
        assert (found.plugin <= np.log(1 / 3)).all()  # left out, a row's own class becomes less likely


def test_a_variational_posterior_against_refits():
    """Averages over the source stand for p and Lambda: the mean log-loss is within 5 % of that of exact refits."""
    X, y = small(3, N=30)
    precision = np.full((3, 3), 0.5)

    def fit(X, y):
        problem = objective(X, y, precision)
        theta = optimum(problem)
        return variational(
            problem, theta, problem.curvature.likelihood_hessian(theta, contrasts(problem.shape[0])), n_nodes=400
        )

    def averaged(posterior, x):
        nodes = normal_nodes(2, 2500)
        F = (np.append(x, 1.0) @ posterior.mean.T)[:, None]
        (_, at), *_ = posterior.at_nodes(x[None], F, nodes)
        return np.log(softmax(at[0], axis=0) @ nodes.weights)

    whole = fit(X, y)
    found = left_out(whole.posterior, X, np.eye(3)[y], np.ones(30), whole.source, n_nodes=400)
    exact = np.empty(30)
    for n in range(30):
        keep = np.arange(30) != n
        exact[n] = averaged(fit(X[keep], y[keep]).posterior, X[n])[y[n]]
    assert found.averaged.mean() == pytest.approx(exact.mean(), rel=0.05)
    assert np.corrcoef(found.averaged, exact)[0, 1] > 0.99
