"""The softmax objective: naive formulas, finite differences, equalities between data sets, and its certificates."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp, softmax, xlogy
from tests.slow import quick_first

from posteriori.rows import memory
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax import curvature
from posteriori.softmax.certificate import separated_classes
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective

N, D, K = 40, 3, 4


def objective(X, Y, c=None, precision=0.0, mean=None, n_classes=K, intercept=True):
    """Over all rows, with the precision and mean broadcast to the parameters."""
    blocks = MemoryBlocks(X, Y, c, n_classes, n_threads=2)
    shape = (n_classes, X.shape[1] + intercept)
    precision = np.array(np.broadcast_to(precision, shape), dtype=float)
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, n_classes), precision, mean)


def free_intercept(alpha, n_classes=K, n_features=D):
    precision = np.full((n_classes, n_features + 1), alpha)
    precision[:, -1] = 0.0
    return precision


def naive_value(X, Y, c, precision, mean, theta):
    """J in two lines."""
    F = X @ theta[:, : X.shape[1]].T + (theta[:, -1] if theta.shape[1] > X.shape[1] else 0.0)
    one_hot = Y if Y.ndim == 2 else np.eye(theta.shape[0])[Y]
    row_loss = -(one_hot * (F - logsumexp(F, axis=1, keepdims=True))).sum(axis=1)
    return (row_loss if c is None else c * row_loss).sum() + 0.5 * (precision * (theta - mean) ** 2).sum()


def data(seed=0, soft=False, weighted=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    Y = rng.dirichlet(np.ones(K), N) if soft else rng.integers(0, K, N)
    return X, Y, rng.uniform(0.2, 2.0, N) if weighted else None


def optimum(problem, theta=None):
    """Newton's method to the last digit; the minimum-norm step takes care of flat directions."""
    theta = np.zeros(problem.shape) if theta is None else theta
    for _ in range(60):
        value, gradient = problem.value_gradient(theta)
        step = np.linalg.lstsq(problem.hessian(theta), gradient.ravel(), rcond=1e-13)[0].reshape(theta.shape)
        scale = 1.0
        while problem.value_gradient(theta - scale * step)[0] > value + 1e-12 and scale > 1e-6:
            scale /= 2
        theta = theta - scale * step
    assert np.abs(problem.value_gradient(theta)[1]).max() < 1e-11
    return theta


PRIORS = {
    "flat": (0.0, None),
    "number": (0.7, None),
    "free intercept": (free_intercept(0.7), None),
    "array": (np.random.default_rng(1).uniform(0.0, 3.0, (K, D + 1)), None),
    "mean": (np.random.default_rng(1).uniform(0.0, 3.0, (K, D + 1)), np.random.default_rng(2).normal(size=(K, D + 1))),
}
priors = pytest.mark.parametrize(("precision", "mean"), PRIORS.values(), ids=PRIORS)
layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.asarray], 2))


# Value and derivatives


@priors
@layouts
@pytest.mark.parametrize(
    ("soft", "buffered"), quick_first([(False, True), (True, False), (False, False), (True, True)], 2)
)
def test_value_gradient_product_and_hessian(monkeypatch, precision, mean, layout, soft, buffered):
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 400)  # several blocks
    if not buffered:
        monkeypatch.setattr(memory, "_ROW_VALUE_BYTES", 0)
    X, Y, c = data(soft=soft)
    problem = objective(layout(X), Y, c, precision, mean)
    assert (problem.blocks.row_values(K) is not None) == buffered
    theta, centre = np.random.default_rng(3).normal(size=(K, D + 1)), 0.0 if mean is None else mean
    value, gradient = problem.value_gradient(theta)
    H = problem.hessian(theta)
    assert value == pytest.approx(naive_value(X, Y, c, problem.precision, centre, theta), rel=1e-13)
    np.testing.assert_allclose(
        problem.curvature.diagonal(theta).ravel(), H.diagonal() - problem.precision.ravel(), atol=1e-12
    )
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = 1e-5
        step = step.reshape(theta.shape)
        above, below = (naive_value(X, Y, c, problem.precision, centre, theta + s) for s in (step, -step))
        assert gradient.flat[i] == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-7)
        difference = (problem.value_gradient(theta + step)[1] - problem.value_gradient(theta - step)[1]) / 2e-5
        np.testing.assert_allclose(H[i], difference.ravel(), atol=1e-7)
    V = np.random.default_rng(4).normal(size=theta.shape)
    for _ in range(2):  # at a theta that was not the last, and at one that was
        np.testing.assert_allclose(problem.product(theta, V).ravel(), H @ V.ravel(), atol=1e-11)
        problem.value_gradient(theta)


def test_the_last_parameters_cost_no_pass():
    X, Y, c = data()
    problem = objective(X, Y, c, 1.0)
    theta = np.ones((K, D + 1))
    first, n_passes = problem.value_gradient(theta), problem.blocks.n_passes
    again = problem.value_gradient(theta)
    assert problem.blocks.n_passes == n_passes
    assert again[0] == first[0]
    np.testing.assert_array_equal(again[1], first[1])
    problem.value_gradient(theta.copy())
    assert problem.blocks.n_passes == n_passes
    theta[0, 0] += 1e-9  # the same array with other values is another place
    moved = problem.value_gradient(theta)
    assert problem.blocks.n_passes == n_passes + 1
    assert moved[0] != first[0]


def test_class_blocks_and_kronecker_factors_are_parts_of_the_hessian():
    X, Y, c = data()
    problem = objective(X, Y, c, 0.0)
    theta = np.random.default_rng(3).normal(size=(K, D + 1)) / 20  # no row is sure enough to be left out
    H = problem.hessian(theta).reshape(K, D + 1, K, D + 1)
    np.testing.assert_allclose(problem.curvature.class_blocks(theta), [H[k, :, k] for k in range(K)], atol=1e-12)
    A, G, lead, diagonal = problem.curvature.kronecker_factors(theta)
    np.testing.assert_allclose(A, H[:, -1, :, -1], atol=1e-12)
    np.testing.assert_allclose(G, sum(H[k, :, k] for k in range(K)), atol=1e-12)
    np.testing.assert_allclose(diagonal, G.diagonal(), rtol=1e-12)
    assert lead.tolist() == [0, 1, 2, 3]


@layouts
@pytest.mark.parametrize("n_rows", [N, 6000], ids=["all rows", "sampled"])
@pytest.mark.parametrize("intercept", [False, True])
def test_with_many_features_the_heaviest_lead(monkeypatch, layout, n_rows, intercept):
    monkeypatch.setattr(curvature, "_MOST_FEATURES", 2)
    monkeypatch.setattr(curvature, "_LEADING", 2)
    rng = np.random.default_rng(14)
    X, Y = rng.normal(size=(n_rows, 3)) * [5.0, 0.1, 1.0], rng.integers(0, K, n_rows)
    problem = objective(layout(X), Y, None, 0.0, intercept=intercept)
    theta = rng.normal(size=problem.shape) / 10
    H = problem.hessian(theta).reshape(K, 3 + intercept, K, 3 + intercept)
    whole = sum(H[k, :, k] for k in range(K))
    _, G, lead, diagonal = problem.curvature.kronecker_factors(theta)
    assert lead.tolist() == [0, 2, 3][: 2 + intercept]
    np.testing.assert_allclose(diagonal, whole.diagonal(), rtol=1e-10)
    units = np.sqrt(whole.diagonal()[lead])
    np.testing.assert_allclose(
        G / units / units[:, None], (whole[np.ix_(lead, lead)]) / units / units[:, None], atol=0.05
    )


def test_observed_moments_are_means_and_variances():
    X, Y, c = data()
    X[:, 1] = 0.1
    observed = ObservedMoments.of(MemoryBlocks(X, Y, c, K), K)
    np.testing.assert_allclose(observed.class_sizes, np.bincount(Y, c, K))
    np.testing.assert_allclose(observed.mean, np.average(X, axis=0, weights=c), rtol=1e-13)
    np.testing.assert_allclose(observed.variance[[0, 2]], np.cov(X.T, aweights=c, ddof=0).diagonal()[[0, 2]])
    assert observed.variance[1] == 0.0
    assert observed.finite
    X[3, 2] = np.nan
    assert not ObservedMoments.of(MemoryBlocks(X, Y, c, K), K).finite


@pytest.mark.parametrize("size", [1, 7, N])
def test_batch_gradients_average_to_that_of_the_likelihood(size):
    X, Y, c = data()
    theta = np.random.default_rng(5).normal(size=(K, D + 1))
    batches = objective(X, Y, c, *PRIORS["mean"]).batch_gradients(size, np.random.default_rng(0))
    gradients = [gradient(theta) for gradient in batches]
    lengths = [min(size, N - i) for i in range(0, N, size)]
    likelihood = objective(X, Y, c, 0.0).value_gradient(theta)[1]
    np.testing.assert_allclose(np.average(gradients, axis=0, weights=lengths), likelihood, rtol=1e-10)
    if size == 1:
        assert np.std(gradients, axis=0).min() > 0.1


# Equalities


def test_two_classes_are_logistic_regression():
    X, Y, c = data()
    Y = Y % 2
    rng = np.random.default_rng(6)
    theta = rng.normal(size=(2, D + 1))
    f = X @ (theta[1] - theta[0])[:D] + theta[1, D] - theta[0, D]
    problem = objective(X, Y, c, 0.0, n_classes=2)
    value, gradient = problem.value_gradient(theta)
    assert value == pytest.approx(-(c * (xlogy(Y, expit(f)) + xlogy(1 - Y, expit(-f)))).sum(), rel=1e-12)
    slope = (c * (expit(f) - Y)) @ np.c_[X, np.ones(N)]
    np.testing.assert_allclose(gradient, [-slope, slope], atol=1e-12)

    alpha = 0.8  # on both classes is alpha / 2 on their difference
    best = optimum(objective(X, Y, c, alpha, n_classes=2))
    w = best[1] - best[0]
    np.testing.assert_allclose(best, [-w / 2, w / 2], atol=1e-12)
    Z = np.c_[X, np.ones(N)]
    np.testing.assert_allclose((c * (expit(Z @ w) - Y)) @ Z + alpha / 2 * w, 0.0, atol=1e-11)


@layouts
def test_a_weight_is_a_repetition(layout):
    X, Y, _ = data()
    times = np.random.default_rng(7).integers(0, 4, N)
    theta = np.random.default_rng(8).normal(size=(K, D + 1))
    weighted = objective(layout(X), Y, times.astype(float), 0.3)
    repeated = objective(layout(np.repeat(X, times, axis=0)), np.repeat(Y, times), None, 0.3)
    assert weighted.value_gradient(theta)[0] == pytest.approx(repeated.value_gradient(theta)[0], rel=1e-13)
    np.testing.assert_allclose(weighted.value_gradient(theta)[1], repeated.value_gradient(theta)[1], atol=1e-12)
    np.testing.assert_allclose(weighted.hessian(theta), repeated.hessian(theta), atol=1e-12)
    assert weighted.observed.total_weight == times.sum() == repeated.observed.total_weight


@layouts
def test_a_soft_target_is_weighted_hard_ones(layout):
    X, Y, c = data(soft=True)
    theta = np.random.default_rng(8).normal(size=(K, D + 1))
    soft = objective(layout(X), Y, c, 0.3)
    hard = objective(layout(np.repeat(X, K, axis=0)), np.tile(np.arange(K), N), (Y * c[:, None]).ravel(), 0.3)
    assert soft.value_gradient(theta)[0] == pytest.approx(hard.value_gradient(theta)[0], rel=1e-13)
    np.testing.assert_allclose(soft.value_gradient(theta)[1], hard.value_gradient(theta)[1], atol=1e-12)
    np.testing.assert_allclose(soft.hessian(theta), hard.hessian(theta), atol=1e-12)


def test_uniform_probabilities_at_zero():
    X, Y, c = data()
    value, gradient = objective(X, Y, c).value_gradient(np.zeros((K, D + 1)))
    assert value == pytest.approx(c.sum() * np.log(K), rel=1e-14)
    np.testing.assert_allclose(gradient[:, -1], c.sum() / K - np.bincount(Y, c, K), atol=1e-13)


# Samples


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_estimates_the_sums_over_all_rows(weighted):
    rng = np.random.default_rng(9)
    n_rows, size = 20_000, 2_000
    X, Y = rng.normal(size=(n_rows, D)), rng.integers(0, K, n_rows)
    c = rng.uniform(0.5, 1.5, n_rows) if weighted else np.ones(n_rows)
    problem = objective(X, Y, c if weighted else None, 2.0, rng.normal(size=(K, D + 1)))
    sample = problem.start.sample(size)
    assert sample.n_rows == size
    assert sample is problem.start.sample(size)
    assert problem.start.sample(n_rows) is problem
    assert sample.observed.total_weight == pytest.approx(problem.observed.total_weight, rel=1e-12)

    theta = rng.normal(size=(K, D + 1))
    Z = np.c_[X, np.ones(n_rows)]
    slope = softmax(Z @ theta.T, axis=1) - np.eye(K)[Y]
    terms = slope[:, :, None] * Z[:, None, :]  # of the gradient, per row
    residuals = c[:, None, None] * (terms - np.average(terms, axis=0, weights=c))
    standard_error = n_rows * residuals.std(axis=0) * np.sqrt((1 - size / n_rows) / size)
    error = (sample.value_gradient(theta)[1] - problem.value_gradient(theta)[1]) / standard_error
    assert np.abs(error).max() < 4
    assert 0.4 < np.sqrt((error**2).mean()) < 1.6
    assert sample.value_gradient(theta)[0] == pytest.approx(problem.value_gradient(theta)[0], rel=0.05)
    np.testing.assert_allclose(sample.hessian(theta), problem.hessian(theta), atol=0.02 * n_rows)


def test_a_sample_lifts_the_diagonal_of_a_feature_it_missed():
    rng = np.random.default_rng(10)
    X, Y = rng.normal(size=(30_000, 2)), rng.integers(0, 2, 30_000)
    X[:, 1] = 0.0
    sampled = np.random.default_rng(20260214).choice(30_000, 4096, replace=False, shuffle=False)
    X[np.setdiff1d(np.arange(30_000), sampled)[:5], 1] = 7.0  # only in rows outside the sample
    problem = objective(X, Y, None, 0.0, n_classes=2)
    theta = np.zeros((2, 3))
    _, G, _, _ = problem.curvature.kronecker_factors(theta)
    blocks = problem.curvature.class_blocks(theta)
    assert G[1, 1] == pytest.approx(5 * 49 / 2)
    np.testing.assert_allclose(blocks[:, 1, 1], 5 * 49 / 4)
    np.testing.assert_allclose(blocks[:, 0, 0], (X[:, 0] ** 2).sum() / 4, rtol=0.1)


# Certificates


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 3.0))
@settings(deadline=None, max_examples=30)
def test_settled_intercepts_have_no_slope(seed, size):
    X, Y, c = data(seed)
    Y[:K] = np.arange(K)
    problem = objective(X, Y, c, free_intercept(1.0))
    rng = np.random.default_rng(seed)
    theta = size * rng.normal(size=(K, D + 1))
    sizes = problem.observed.class_sizes
    for _ in range(100):  # proportional fitting: a start in the neighbourhood
        ratio = sizes / (sizes + problem.value_gradient(theta)[1][:, -1])
        theta = np.c_[theta[:, :D], theta[:, D] + np.log(ratio)]
    theta = np.c_[theta[:, :D], theta[:, D] + 0.1 * rng.normal(size=K)]
    settled = problem.certificate.settle_intercepts(theta)
    np.testing.assert_array_equal(settled[:, :D], theta[:, :D])
    assert np.abs(problem.value_gradient(settled)[1][:, -1]).max() <= 1e-10 * c.sum()
    assert problem.value_gradient(settled)[0] < problem.value_gradient(theta)[0]


def test_intercepts_of_an_empty_class_cannot_be_settled():
    X, Y, c = data()
    assert objective(X, Y % 3, c, free_intercept(1.0)).certificate.settle_intercepts(np.zeros((K, D + 1))) is None


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.1, 1.0]), st.sampled_from([0.05, 1.0, 20.0]))
@settings(deadline=None, max_examples=30)
def test_the_gap_bound_bounds_the_gap(seed, size, alpha):
    X, Y, c = data(seed)
    Y[:K] = np.arange(K)
    rng = np.random.default_rng(seed)
    for precision in (free_intercept(alpha), alpha * rng.uniform(0.5, 2.0, (K, D + 1))):
        problem = objective(X, Y, c, precision, rng.normal(size=(K, D + 1)))
        best = optimum(problem)
        lowest = problem.value_gradient(best)[0]
        theta = best + size * rng.normal(size=best.shape)
        if precision[0, -1] == 0:
            theta = problem.certificate.settle_intercepts(theta)
            if theta is None and size == 1.0:  # far away, five steps may not do
                continue
        value, gradient = problem.value_gradient(theta)
        assert value - lowest > 0
        assert value - lowest <= problem.certificate.gap_bound(gradient) * (1 + 1e-9) + 1e-11
        assert problem.certificate.gap_bound(problem.value_gradient(best)[1]) < 1e-18 / alpha


def test_the_gap_bound_is_tight_where_the_prior_is_all_there_is():
    X, Y, _ = data()
    mean = np.ones((K, D + 1))
    problem = objective(X, Y, np.full(N, 1e-12), 3.0, mean)
    value, gradient = problem.value_gradient(mean + 2.0)
    assert problem.certificate.gap_bound(gradient) == pytest.approx(0.5 * 3.0 * 4.0 * K * (D + 1), rel=1e-9)
    assert value == pytest.approx(problem.certificate.gap_bound(gradient), rel=1e-9)


def test_there_is_no_bound_without_a_prior():
    X, Y, c = data()
    precision = free_intercept(1.0)
    precision[2, 1] = 0.0
    assert objective(X, Y, c, precision).certificate.gap_bound(np.zeros((K, D + 1))) is None


# Minimum norm


def centred_normal(seed, shape):
    """Random parameters that sum to zero over the classes."""
    theta = np.random.default_rng(seed).normal(size=shape)
    return theta - theta.mean(axis=0)


def wide(constant, layout=np.asarray):
    """Two ordinary columns, the second of them twice more, and a constant one."""
    X, Y, c = data()
    return layout(np.c_[X[:, :2], X[:, 1], X[:, 1], np.full(N, constant)]), Y, c


@layouts
@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1, 3.7, 1e6 + 0.1])
@pytest.mark.parametrize("intercept", [False, True])
def test_least_norm_shares_duplicates_and_gives_constants_nothing(layout, constant, intercept):
    X, Y, c = wide(constant, layout)
    problem = objective(X, Y, c, 0.0, intercept=intercept)
    theta = np.random.default_rng(11).normal(size=problem.shape)
    theta[:, 4] /= max(1.0, constant)
    least = problem.certificate.least_norm(theta)
    assert problem.value_gradient(least)[0] == pytest.approx(problem.value_gradient(theta)[0], rel=1e-9)
    centred = theta - theta.mean(axis=0)
    np.testing.assert_allclose(least[:, 0], centred[:, 0], atol=1e-7)
    np.testing.assert_allclose(least[:, 1:4], np.tile(centred[:, 1:4].mean(axis=1, keepdims=True), 3), atol=1e-7)
    if intercept:  # it takes over what a constant column says
        np.testing.assert_allclose(least[:, 4] * max(1.0, constant), 0.0, atol=1e-4)
        np.testing.assert_allclose(least[:, 5], centred[:, 5] + constant * centred[:, 4], atol=1e-4)
    else:
        np.testing.assert_allclose(least[:, 4], centred[:, 4] if constant else 0.0, atol=1e-7)
    np.testing.assert_allclose(problem.certificate.least_norm(least), least, atol=1e-7)


@layouts
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1000.0))
@settings(deadline=None, max_examples=30)
def test_a_constant_column_gets_no_weight_whatever_its_rounding(layout, seed, constant):
    X, Y, c = data(seed)
    X[:, 1] = constant
    problem = objective(layout(X), Y, c)
    theta = centred_normal(seed, (K, D + 1))
    least = problem.certificate.least_norm(theta)
    np.testing.assert_allclose(least[:, [0, 2]], theta[:, [0, 2]], atol=1e-6)
    np.testing.assert_allclose(constant * least[:, 1], 0.0, atol=1e-6 * constant)
    np.testing.assert_allclose(least[:, 3], theta[:, 3] + constant * theta[:, 1], atol=1e-6 * (1 + constant))


def test_least_norm_changes_nothing_that_a_prior_holds():
    X, Y, c = wide(1.0)
    theta = centred_normal(12, (K, 6))
    np.testing.assert_allclose(objective(X, Y, c, 0.5).certificate.least_norm(theta), theta, atol=1e-15)
    precision = np.zeros((K, 6))
    precision[:, 1] = 0.5  # one of the three duplicates: the other two share
    problem = objective(X, Y, c, precision)
    least = problem.certificate.least_norm(theta)
    assert problem.value_gradient(least)[0] == pytest.approx(problem.value_gradient(theta)[0], rel=1e-12)
    np.testing.assert_allclose(least[:, 1], theta[:, 1], atol=1e-15)
    np.testing.assert_allclose(least[:, 2], least[:, 3], atol=1e-12)


def test_least_norm_gives_back_what_only_rounding_would_change():
    """So that no pass is made to find J where it is known."""
    X, Y, c = data()
    problem = objective(X, Y, c, 0.5)
    theta = np.random.default_rng(1).normal(size=problem.shape) * np.geomspace(1e-6, 1e6, problem.shape[1])
    theta -= theta.mean(axis=0)
    assert problem.certificate.least_norm(theta) is theta
    theta[:, 0] += 1e-12 * np.abs(theta[:, 0]).max()  # little beside the other columns, and yet no rounding
    least = problem.certificate.least_norm(theta)
    assert least is not theta
    np.testing.assert_allclose(least[:, 0].sum(), 0.0, atol=1e-20)


def test_least_norm_leaves_the_objective_alone_when_only_intercepts_have_a_prior():
    X, Y, c = wide(1.0)
    precision = np.zeros((K, 6))
    precision[:, -1] = 2.0
    problem = objective(X, Y, c, precision)
    theta = centred_normal(13, (K, 6))
    least = problem.certificate.least_norm(theta)
    assert problem.value_gradient(least)[0] == pytest.approx(problem.value_gradient(theta)[0], rel=1e-12)


@pytest.mark.parametrize("mean", [None, np.random.default_rng(2).normal(size=(K, D + 1))], ids=["no mean", "mean"])
@pytest.mark.parametrize("name", ["flat", "number", "free intercept", "array"])
def test_least_norm_never_raises_the_objective(name, mean):
    X, Y, c = data()
    problem = objective(X, Y, c, PRIORS[name][0], mean)
    theta = np.random.default_rng(15).normal(size=(K, D + 1))
    before = problem.value_gradient(theta)[0]
    assert problem.value_gradient(problem.certificate.least_norm(theta))[0] <= before * (1 + 1e-13)


# Separation


LINE = np.arange(6.0)[:, None]
TOWARDS = np.array([[-1.0, 2.5], [1.0, -2.5]])
SEPARATE = {
    "complete": (LINE, [0, 0, 0, 1, 1, 1], TOWARDS),
    "quasi-complete": (np.array([0, 1, 2.5, 2.5, 4, 5])[:, None], [0, 0, 0, 1, 1, 1], TOWARDS),
    "an indicator never seen in class 1": (
        np.array([[0.0, 1], [1, 1], [0, 0], [1, 0], [1, 0], [0, 0]]),
        [0, 0, 0, 0, 1, 1],
        np.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]),
    ),
}


@pytest.mark.parametrize(("X", "Y", "direction"), SEPARATE.values(), ids=SEPARATE)
@layouts
def test_separated_data_have_a_direction_that_proves_it(X, Y, direction, layout):
    Y = np.array(Y)
    problem = objective(layout(X), Y, n_classes=2)
    zero = np.zeros(problem.shape)
    np.testing.assert_array_equal(problem.certificate.separated(direction, zero), direction)
    np.testing.assert_array_equal(problem.certificate.separated(zero, direction), direction)
    assert problem.certificate.separated(-direction, -direction) is None
    assert problem.certificate.separated(zero, 0.01 * direction) is None  # a vanishing step proves nothing
    far, near = (problem.value_gradient(s * direction)[0] for s in (30.0, 1.0))
    assert far < near
    for other in (objective(layout(X), Y, n_classes=2, precision=0.1), objective(layout(X), 1 - Y, n_classes=2)):
        assert other.certificate.separated(direction, direction) is None


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_overlapping_data_have_no_such_direction(seed):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(5, 2)), 2, axis=0)
    Y = np.tile([0, 1], 5)  # both classes at every point
    problem = objective(X, Y, n_classes=2)
    assert problem.certificate.separated(rng.normal(size=(2, 3)), rng.normal(size=(2, 3))) is None
    # one class at the corners of a square, the other in its middle
    square = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0, 0]])
    corners = objective(square, np.array([0, 0, 0, 0, 1]), n_classes=2)
    assert corners.certificate.separated(rng.normal(size=(2, 3)), rng.normal(size=(2, 3))) is None


def test_rows_without_weight_prevent_no_separation():
    X, Y = np.r_[LINE, [[5.0]]], np.array([0, 0, 0, 1, 1, 1, 0])
    assert objective(X, Y, np.ones(7), n_classes=2).certificate.separated(TOWARDS, TOWARDS) is None
    assert objective(X, Y, np.array([1.0] * 6 + [0.0]), n_classes=2).certificate.separated(TOWARDS, TOWARDS) is not None


def test_a_row_of_two_classes_prevents_separation_unless_they_tie():
    Y = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    Y[2] = [0.5, 0.5]
    assert objective(LINE, Y, n_classes=2).certificate.separated(TOWARDS, TOWARDS) is None
    tied = np.array([[-1.0, 2.0], [1.0, -2.0]])  # equal logits at x = 2
    np.testing.assert_array_equal(objective(LINE, Y, n_classes=2).certificate.separated(tied, tied), tied)


def pairs(X, Y, direction, n_classes):
    blocks = MemoryBlocks(X, np.asarray(Y), None, n_classes)
    return separated_classes(blocks, np.asarray(direction), np.ones(X.shape[1])).pairs


def test_only_the_class_apart_is_named():
    X = np.r_[LINE, LINE, LINE + 100.0]
    Y = [0] * 6 + [1] * 6 + [2] * 6
    apart = [[0.0, 0.0], [0.0, 0.0], [1.0, -50.0]]
    assert pairs(X, Y, apart, 3) == [(0, 2), (1, 2)]
    order = np.array([1, 2, 0])  # the old class k is now called order[k]
    assert pairs(X, order[Y], np.array(apart)[np.argsort(order)], 3) == [(0, 1), (0, 2)]


def test_all_pairs_are_named_when_all_are_apart():
    X, Y = np.r_[LINE, LINE + 10, LINE + 20], [0] * 6 + [1] * 6 + [2] * 6
    direction = [[0.0, 0.0], [1.0, -7.5], [2.0, -25.0]]
    assert pairs(X, Y, direction, 3) == [(0, 1), (0, 2), (1, 2)]


def test_quasi_complete_separation_is_named():
    X, Y, direction = SEPARATE["quasi-complete"]
    assert pairs(X, Y, direction, 2) == [(0, 1)]


def test_an_empty_class_is_apart_when_intercepts_are_free():
    X, Y, c = data()
    Y = Y % 3  # class 3 has no rows
    problem = objective(X, Y, c, free_intercept(1.0))
    down = np.zeros((K, D + 1))
    down[3, -1] = -1.0
    np.testing.assert_array_equal(problem.certificate.separated(np.ones((K, D + 1)), down), down)
    found = separated_classes(problem.blocks, down, np.ones(D))
    assert found.pairs == [(0, 3), (1, 3), (2, 3)]
    assert "No row is of class 'd'" in found.sentence(np.array(list("abcd")), None)
    assert objective(X, Y, c, 1.0).free is None  # a prior on the intercepts holds it
    assert objective(*data(), free_intercept(1.0)).free is None  # and so do rows of every class


def test_the_sentence_names_the_features_by_their_part():
    X, Y = np.c_[LINE, LINE / 1000, np.zeros(6)], np.array([0, 0, 0, 1, 1, 1])
    direction = np.array([[-1.0, 500.0, 0.0, 1.25], [1.0, -500.0, 0.0, -1.25]])
    found = separated_classes(MemoryBlocks(X, Y, None, 2), direction, X.std(axis=0))
    assert found.pairs == [(0, 1)]
    sentence = found.sentence(np.array(["no", "yes"]), ["age", "dose", "none"])
    assert "Classes no and yes are separated: a combination of features led by age (-2), dose (+1e+03) " in sentence
