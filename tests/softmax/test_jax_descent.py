"""The descent in one call: J, its gradient and decrements as NumPy has them, and an end that is the optimum."""

import numpy as np
import pytest
from scipy.special import softmax

jax = pytest.importorskip("jax")

from tests.slow import quick_first  # noqa: E402

from posteriori.rows import gpu_arrays  # noqa: E402
from posteriori.rows.gpu import GpuBlocks  # noqa: E402
from posteriori.rows.memory import MemoryBlocks  # noqa: E402
from posteriori.softmax import jax_descent as device  # noqa: E402
from posteriori.softmax.moments import ObservedMoments  # noqa: E402
from posteriori.softmax.objective import SoftmaxObjective  # noqa: E402
from posteriori.softmax.pairs import contrasts  # noqa: E402
from posteriori.softmax.precision import DiagonalPrecision  # noqa: E402

N, D, K = 12_011, 5, 4


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * np.logspace(-1, 1, D) + 0.5
    F = (X / np.logspace(-1, 1, D)) @ rng.normal(size=(D, K))
    return X, (F + rng.gumbel(size=F.shape)).argmax(axis=1)


X, Y = rows()
WEIGHTS = np.random.default_rng(1).uniform(0.0, 2.0, N)
SOFT = 0.9 * np.eye(K)[Y] + 0.1 / K
RIDGE = np.append(np.ones((K, D)), np.zeros((K, 1)), axis=1)
MEAN = np.random.default_rng(2).normal(size=(K, D + 1))

CASES = {
    "ridge, free intercept": (Y, None, DiagonalPrecision(RIDGE), None),
    "weighted": (Y, WEIGHTS, DiagonalPrecision(RIDGE), None),
    "soft": (SOFT, None, DiagonalPrecision(RIDGE), None),
    "no intercept": (Y, None, DiagonalPrecision(np.ones((K, D))), None),
    "no prior": (Y, None, DiagonalPrecision(np.zeros((K, D + 1))), None),
    "centred intercept": (Y, None, DiagonalPrecision(np.full((K, D + 1), 3.0), np.append(X.mean(axis=0), 1.0)), None),
    "with a mean": (Y, WEIGHTS, DiagonalPrecision(np.full((K, D + 1), 2.0)), MEAN),
    "strong": (Y, None, DiagonalPrecision(np.full((K, D + 1), 1e6)), None),
}
cases = pytest.mark.parametrize("case", quick_first(CASES))


def objectives(case):
    """The same objective on the device and on the host."""
    y, c, prior, mean = CASES[case]
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(X), y, c, K), MemoryBlocks(X, y, c, K)
    return [SoftmaxObjective(each, ObservedMoments.of(each, K), prior, mean) for each in blocks]


def inverse_hessian(objective, theta):
    return np.linalg.pinv(objective.hessian(theta), rcond=1e-12, hermitian=True)


@pytest.mark.slow
@cases
@pytest.mark.parametrize("tol", [1e-8, 1e-13])
def test_every_point_of_the_path_is_as_numpy_has_it(case, tol):
    on_device, host = objectives(case)
    found = on_device.start.descend(tol)
    assert found is not None
    assert len(found.thetas) == len(found.gradients) == len(found.values) == len(found.gaps) < 20
    for theta, gradient, value in zip(found.thetas, found.gradients, found.values, strict=True):
        expected = host.value_gradient(theta)
        assert value == pytest.approx(expected[0], rel=1e-13)
        np.testing.assert_allclose(gradient, expected[1], atol=1e-11 * N)
    assert np.all(np.diff(found.values) <= 1e-11 * found.values[0])
    P = np.asarray(found.probabilities)[:, :N]
    logits = X @ found.thetas[-1][:, :D].T + (found.thetas[-1][:, D] if found.thetas[-1].shape[1] > D else 0.0)
    np.testing.assert_allclose(P.T, softmax(logits, axis=1), atol=1e-13)


@cases
@pytest.mark.parametrize("tol", [1e-6, 1e-8, 1e-13])
def test_the_end_is_within_the_tolerance_and_says_by_how_much(case, tol):
    on_device, host = objectives(case)
    found = on_device.start.descend(tol)
    theta, gradient = found.thetas[-1], found.gradients[-1]
    gap = 0.5 * gradient.ravel() @ inverse_hessian(host, theta) @ gradient.ravel()
    assert gap <= tol * found.values[-1]
    assert found.gaps[-1] <= tol * found.values[-1]
    if len(set(found.gaps)) == len(found.gaps) and gap > 1e-14 * found.values[-1]:  # else intercepts moved afterwards
        assert found.gaps[-1] == pytest.approx(gap, rel=0.2)


@pytest.mark.slow
def test_intercepts_without_a_prior_are_settled():
    on_device, host = objectives("weighted")
    found = on_device.start.descend(1e-6)
    assert np.abs(found.gradients[-1][:, -1]).max() <= 1e-10 * WEIGHTS.sum()
    np.testing.assert_allclose(host.certificate.settle_intercepts(found.thetas[-1]), found.thetas[-1], atol=1e-9)
    assert (
        host.certificate.gap_bound(found.gradients[-1])
        >= found.values[-1] - objectives("weighted")[0].start.descend(1e-14).values[-1]
    )


def test_passes_are_counted_and_nothing_is_asked_twice():
    on_device, _ = objectives("ridge, free intercept")
    before = on_device.blocks.n_passes
    found = on_device.start.descend(1e-8)
    assert on_device.blocks.n_passes - before == found.n_passes
    assert len(found.thetas) <= found.n_passes <= 20
    value, gradient = on_device.value_gradient(found.thetas[-1])
    assert (value, gradient) == (found.values[-1], pytest.approx(found.gradients[-1]))
    assert on_device.blocks.n_passes - before == found.n_passes


def test_what_is_kept_belongs_to_the_end():
    on_device, host = objectives("ridge, free intercept")
    on_device.value_gradient(np.zeros((K, D + 1)))
    theta = on_device.start.descend(1e-8).thetas[-1]
    V = np.random.default_rng(0).normal(size=theta.shape)
    np.testing.assert_allclose(on_device.product(theta, V), host.product(theta, V), rtol=1e-9)


def test_no_tolerance_at_all_is_that_of_rounding():
    on_device, host = objectives("ridge, free intercept")
    found = on_device.start.descend(0.0)
    assert found.converged
    assert host.certificate.least_gap(found.gradients[-1]) <= 1e-15 * found.values[-1]


def test_classes_that_the_prior_tells_apart_are_left_to_the_host():
    blocks = objectives("ridge, free intercept")[0].blocks
    prior = np.outer([1e4, 1e-3, 1e-3, 1e-3], np.ones(D + 1))
    assert SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), prior).start.descend(1e-8) is None


@pytest.mark.slow
def test_a_column_that_the_sample_never_saw_is_not_forgotten():
    """Without a prior, a coefficient whose curvature nobody knows would stay at zero, and the end be called one."""
    rare = np.zeros(N)
    drawn = sampled_rows()
    others = np.setdiff1d(np.arange(N), drawn)
    for k, count in enumerate((3, 5, 9, 15)):  # of every class, so that there is an optimum
        rare[others[Y[others] == k][:count]] = 1.0
    assert rare[drawn].sum() == 0 < rare.sum()
    Z = np.c_[X, rare]
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(Z), Y, None, K)
    on_device = SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), np.zeros((K, D + 2)))
    in_memory = MemoryBlocks(Z, Y, None, K)
    host = SoftmaxObjective(in_memory, ObservedMoments.of(in_memory, K), np.zeros((K, D + 2)))
    found = on_device.start.descend(1e-8)
    theta, gradient = found.thetas[-1], found.gradients[-1]
    assert found.converged
    assert 0.5 * gradient.ravel() @ inverse_hessian(host, theta) @ gradient.ravel() <= 1e-8 * found.values[-1]
    assert np.abs(theta[:, D]).max() > 0.1


def sampled_rows():
    """Numbers of the rows that a descent over N rows begins with."""
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(np.arange(N, dtype=float)[:, None]), Y, None, K)
        n_sample = gpu_arrays.rounded(max(2048, blocks.least_sample))
        numbers, _, _ = gpu_arrays.random_rows(blocks.X, blocks.Y, blocks.c, device._SEED, n_sample, N)
    return np.asarray(numbers)[:, 0].astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("heavy", [1, 3])
def test_steps_that_lead_nowhere_are_not_taken(heavy):
    """Rows with such tails that a sample knows little: J never rises on the way, wherever it ends."""
    Z = np.random.default_rng(6).standard_t(1.0, size=(N, D)) ** heavy
    y = (Z @ np.random.default_rng(7).normal(size=(D, 3)) + np.random.default_rng(8).gumbel(size=(N, 3))).argmax(axis=1)
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(Z), y, None, 3)
    observed = ObservedMoments.of(blocks, 3)
    prior = np.append(np.full((3, D), 1e-3), np.zeros((3, 1)), axis=1)
    rows_kept = blocks.row_values(3)
    alike = device.DiagonalPrior(prior, None, None)
    found = device.descend(blocks, observed.moments, observed.squares, alike, 1e-8, 3000, rows_kept)
    assert np.all(np.diff(found.values) <= 1e-11 * np.abs(found.values[0]))
    assert np.isfinite(found.thetas[-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 60])
def test_classes_few_and_many(n_classes):
    rng = np.random.default_rng(9)
    Z = rng.normal(size=(N, 3))
    y = (2.0 * Z @ rng.normal(size=(3, n_classes)) + rng.gumbel(size=(N, n_classes))).argmax(axis=1)
    prior = np.append(np.ones((n_classes, 3)), np.zeros((n_classes, 1)), axis=1)
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(Z), y, None, n_classes), MemoryBlocks(Z, y, None, n_classes)
    on_device, host = (SoftmaxObjective(each, ObservedMoments.of(each, n_classes), prior) for each in blocks)
    found = on_device.start.descend(1e-8)
    gradient = found.gradients[-1].ravel()
    assert 0.5 * gradient @ inverse_hessian(host, found.thetas[-1]) @ gradient <= 1e-8 * found.values[-1]


@pytest.mark.slow
def test_where_it_does_not_arrive_there_is_none():
    y = (X[:, 0] > 0.5).astype(int)  # separated, and no prior
    with jax.enable_x64(True):
        blocks = GpuBlocks(jax.device_put(X), y, None, 2)
    objective = SoftmaxObjective(blocks, ObservedMoments.of(blocks, 2), np.zeros((2, D + 1)))
    assert objective.start.descend(1e-8) is None
    theta = np.ones((2, D + 1))
    assert objective.value_gradient(theta)[0] == pytest.approx(N * np.log(2))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["ridge, free intercept", "centred intercept", "no intercept"])
def test_preconditioners_are_inverses(case):
    _, _, prior, mean = CASES[case]
    _, host = objectives(case)
    width = prior.values.shape[1]
    Q = np.kron(contrasts(K), np.eye(width))
    theta = 0.1 * np.random.default_rng(3).normal(size=(K, width))
    R = np.random.default_rng(4).normal(size=(K, width))
    R -= R.mean(axis=0)
    with jax.enable_x64(True):
        all_rows = device.Rows(
            jax.numpy.asarray(X),
            None,
            host.moments,
            jax.tree.map(jax.numpy.asarray, device.DiagonalPrior(prior.values, prior.centre, mean)),
        )
        found = device.whole(all_rows, device.at(all_rows, theta), jax.numpy.zeros(D))(R)
        at_zero = device.at_zero(all_rows)(R)
    for each, where in ((found, theta), (at_zero, np.zeros_like(theta))):
        H = Q.T @ host.hessian(where) @ Q
        expected = (Q @ np.linalg.solve(H, Q.T @ R.ravel())).reshape(R.shape)
        np.testing.assert_allclose(each, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


@pytest.mark.slow
def test_the_memory_is_that_of_bfgs():
    """The two loops apply the inverse that the update formula builds, H <- (I - r s y^T) H (I - r y s^T) + r s s^T."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(6, 6))
    A = A @ A.T + np.eye(6)
    steps = rng.normal(size=(3, 6))
    inverse = M = np.diag(rng.uniform(0.5, 2.0, 6))
    with jax.enable_x64(True):
        memory = device.Memory(*(jax.numpy.zeros((5, 2, 3)), jax.numpy.zeros((5, 2, 3)), jax.numpy.zeros(5)))
        here = device.Point(jax.numpy.zeros((2, 3)), 0.0, jax.numpy.zeros((2, 3)), 0.0, None)
        for s in steps:
            y = A @ s
            rho = 1.0 / (s @ y)
            left = np.eye(6) - rho * np.outer(s, y)
            inverse = left @ inverse @ left.T + rho * np.outer(s, s)
            there = here._replace(theta=here.theta + s.reshape(2, 3), gradient=here.gradient + y.reshape(2, 3))
            memory, here = device.remembered(memory, here, there), there
        turned = here._replace(theta=here.theta + 1.0, gradient=here.gradient - 1.0)
        kept = device.remembered(memory, here, turned)
        g = rng.normal(size=(2, 3))
        found = device.two_loop(memory, lambda q: (M @ q.ravel()).reshape(2, 3), g)
    np.testing.assert_allclose(np.ravel(found), inverse @ g.ravel(), rtol=1e-10)
    assert all((a == b).all() for a, b in zip(kept, memory, strict=True))


def test_only_few_parameters_of_not_too_many_rows_are_solved_for_in_one_call(monkeypatch):
    problem, _ = objectives("ridge, free intercept")
    blocks, observed = problem.blocks, problem.observed
    prior = device.DiagonalPrior(RIDGE, None, None)
    options = blocks, observed.moments, observed.squares, prior, 1e-8, problem.start.n_rows, blocks.row_values(K)
    assert device.descend(*options).converged
    with monkeypatch.context() as patch:
        patch.setattr(device, "_MOST_PARAMETERS", K * (D + 1) - 1)
        assert device.descend(*options) is None
    monkeypatch.setattr(device, "_MOST_BYTES", 4 * 8 * N * K - 1)  # four copies of the probabilities
    assert device.descend(*options) is None
