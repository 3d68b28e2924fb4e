"""The evidence as a function of the prior's precisions: gradients, maxima, and what happens without a signal."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_iris, load_wine
from tests.slow import quick_first

from posteriori import BayesianSoftmaxRegression
from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.evidence import HIGHEST, LOWEST, Evidence, maximise_evidence
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision
from posteriori.softmax.priors import WEAK


def evidence_of(X, y, ard=False, intercept=True, centre=None):
    K, D = int(y.max()) + 1, X.shape[1]
    blocks = MemoryBlocks(X, y, None, K)
    observed = ObservedMoments.of(blocks, K)

    def problem_at(u):
        values = np.full((K, D + intercept), WEAK)
        values[:, :D] = np.exp(u)
        return SoftmaxObjective(blocks, observed, DiagonalPrecision(values, centre))

    groups = np.arange(D) if ard else np.zeros(D, dtype=int)
    return Evidence(problem_at, np.append(groups, -1) if intercept else groups, np.zeros((K, D + intercept)))


def small(K, D=4, N=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    F = X @ (rng.normal(size=(D, K)) * np.linspace(0.2, 2.0, D)[:, None])
    return X, np.array([rng.choice(K, p=p) for p in softmax(F, axis=1)])


def standardised(load):
    X, y = load(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def naive_log_evidence(X, y, u):
    """Laplace's, with the whole Hessian and Newton's method, for a prior with an intercept."""
    N, K = len(y), y.max() + 1
    Z = np.c_[X, np.ones(N)]
    a = np.append(np.broadcast_to(np.exp(u), X.shape[1]), WEAK)
    R = np.tile(a, K)
    theta = np.zeros((K, Z.shape[1]))
    for _ in range(60):
        F = Z @ theta.T
        P = softmax(F, axis=1)
        g = (P - np.eye(K)[y]).T @ Z + a * theta
        H = np.diag(R)
        for p, z in zip(P, Z, strict=True):
            H = H + np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z))
        step = np.linalg.solve(H, g.ravel()).reshape(theta.shape)
        theta = theta - step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-10:
            break
    F = Z @ theta.T
    J = (logsumexp(F, axis=1) - F[np.arange(N), y]).sum() + 0.5 * (a * theta**2).sum()
    return -J + 0.5 * np.log(R).sum() - 0.5 * np.linalg.slogdet(H)[1]


# The gradient


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("ard", [False, True], ids=["one precision", "one per feature"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("at", quick_first([0.0, -2.0, 2.0]))
def test_the_gradient_is_a_finite_difference(K, ard, intercept, at):
    X, y = small(K)
    u = at + (np.array([0.3, -0.5, 0.0, 0.8]) if ard else np.zeros(1))
    gradient = evidence_of(X, y, ard, intercept)(u, tol=1e-17).gradient
    h = 1e-3
    for g in range(u.size):
        e = np.eye(u.size)[g] * h
        values = [evidence_of(X, y, ard, intercept)(u + s * e, tol=1e-17).log_evidence for s in (-2, -1, 1, 2)]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)  # of fourth order
        assert gradient[g] == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_the_gradient_when_the_middle_of_the_columns_is_elsewhere():
    X, y = small(3)
    X = np.abs(X) * (np.random.default_rng(1).random(X.shape) < 0.5)
    centre = np.append(X.mean(axis=0), 1.0)
    u, h = np.array([0.3, -0.5, 0.0, 0.8]), 1e-3
    gradient = evidence_of(sp.csr_array(X), y, True, True, centre)(u, tol=1e-17).gradient
    for g in range(4):
        e = np.eye(4)[g] * h
        values = [
            evidence_of(sp.csr_array(X), y, True, True, centre)(u + s * e, tol=1e-17).log_evidence
            for s in (-2, -1, 1, 2)
        ]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
        assert gradient[g] == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("K", [2, 3])
def test_the_value_is_laplaces(K):
    X, y = small(K)
    evidence = evidence_of(X, y, ard=True)
    for u in (np.zeros(4), np.array([1.0, -2.0, 3.0, 0.5]), np.full(4, -1.0)):
        exact = naive_log_evidence(X, y, u)
        assert evidence(u).log_evidence == pytest.approx(exact, abs=1e-3)  # first order in what is left to the mode
        assert evidence(u, tol=1e-17).log_evidence == pytest.approx(exact, abs=1e-7)
    assert [point.u.tolist() for point in evidence.path][2] == [1.0, -2.0, 3.0, 0.5]


def test_warm_starts_do_not_change_the_answer():
    X, y = small(3)
    warm = evidence_of(X, y)
    for u in (0.0, 2.9, -1.0, 6.0, 5.5):
        point, cold = (e(np.array([u]), tol=1e-17) for e in (warm, evidence_of(X, y)))
        assert point.log_evidence == pytest.approx(cold.log_evidence, abs=1e-7)
        np.testing.assert_allclose(point.gradient, cold.gradient, atol=1e-6)


def test_the_suggestion_is_mackays():
    X, y = small(3)
    evidence = evidence_of(X, y, ard=True)
    u = np.array([0.3, -0.5, 0.0, 0.8])
    point = evidence(u)
    S = evidence.found.posterior.covariance().diagonal().reshape(3, 5)[:, :4]
    gamma = (1 - np.exp(u) * S).sum(axis=0)
    np.testing.assert_allclose(point.suggestion, np.log(gamma / (evidence.theta[:, :4] ** 2).sum(axis=0)), rtol=1e-8)


# The maximum


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_one_precision_reaches_the_maximum(load):
    X, y = standardised(load)
    evidence = evidence_of(X, y)
    assert maximise_evidence(evidence, np.zeros(1))
    other = evidence_of(X, y)
    best = minimize_scalar(
        lambda u: -other(np.array([u])).log_evidence, bounds=(-8.0, 8.0), method="bounded", options={"xatol": 1e-4}
    )
    grid = [evidence_of(X, y)(np.array([u])).log_evidence for u in np.linspace(-6, 6, 13)]
    found = evidence.path[-1]
    assert found.log_evidence == pytest.approx(-best.fun, abs=0.01)
    assert found.log_evidence >= max(grid) - 0.01
    assert found.u[0] == pytest.approx(best.x, abs=0.2)
    assert len(evidence.path) <= 12


@pytest.mark.parametrize("start", [-8.0, 8.0, 15.0])
def test_the_start_does_not_matter(start):
    X, y = standardised(load_iris)
    first, second = evidence_of(X, y), evidence_of(X, y)
    assert maximise_evidence(first, np.zeros(1))
    assert maximise_evidence(second, np.array([start]))
    assert second.path[-1].log_evidence == pytest.approx(first.path[-1].log_evidence, abs=0.02)


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_one_precision_per_feature_reaches_a_maximum(load):
    X, y = standardised(load)
    D = X.shape[1]
    evidence = evidence_of(X, y, ard=True)
    assert maximise_evidence(evidence, np.zeros(D))
    found = evidence.path[-1]
    other = evidence_of(X, y, ard=True)

    def minus(u):
        point = other(u)
        return -point.log_evidence, -point.gradient

    further = minimize(
        minus, found.u, jac=True, method="L-BFGS-B", bounds=[(LOWEST, HIGHEST)] * D, options={"gtol": 1e-5}
    )
    assert found.log_evidence >= -further.fun - 0.02  # a local one, to a hundredth of a nat
    single = evidence_of(X, y)
    maximise_evidence(single, np.zeros(1))
    assert found.log_evidence > single.path[-1].log_evidence
    np.testing.assert_array_equal(found.u, evidence.path[-1].u)
    assert ((found.u >= LOWEST) & (found.u <= HIGHEST)).all()


def test_on_wine_mackays_fixed_point_stops_several_nats_short():
    X, y = standardised(load_wine)
    fixed = evidence_of(X, y)
    u = np.zeros(1)
    for _ in range(60):
        u = fixed(u).suggestion
    assert abs(fixed.path[-1].u[0] - fixed.path[-2].u[0]) < 1e-6
    true = evidence_of(X, y)
    maximise_evidence(true, np.zeros(1))
    assert true.path[-1].log_evidence - fixed.path[-1].log_evidence > 4.0


# Without a signal


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_precisions_stay_within_bounds_when_labels_are_noise(ard, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    evidence = evidence_of(X, y, ard)
    assert maximise_evidence(evidence, np.zeros(3 if ard else 1))
    found = evidence.path[-1]
    path = np.array([point.u for point in evidence.path])
    assert path.min() >= LOWEST - 1e-9
    assert path.max() <= HIGHEST + 1e-9
    assert found.u.max() > 2.0
    # weights at zero are the limit of large precisions: the best of all is at least that good
    nothing = evidence_of(X, y, ard)(np.full_like(found.u, HIGHEST)).log_evidence
    assert found.log_evidence >= nothing - 0.1  # the last tenth of a nat is far out on a flat slope


@pytest.mark.parametrize("ard", [False, True])
def test_no_signal_at_all(ard):
    """Every row once with every label: the mode is zero whatever the precision, and the evidence grows with it."""
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 3, axis=0)
    y = np.tile(np.arange(3), 10)
    evidence = evidence_of(X, y, ard)
    assert maximise_evidence(evidence, np.zeros(2 if ard else 1))
    found = evidence.path[-1]
    assert np.isfinite(found.log_evidence)
    assert found.u.min() > 5.0
    nothing = evidence_of(X, y, ard)(np.full_like(found.u, HIGHEST)).log_evidence
    assert found.log_evidence == pytest.approx(nothing, abs=0.1)
    np.testing.assert_allclose(evidence.theta, 0.0, atol=1e-9)


def test_separable_data_have_a_finite_best_precision():
    X = np.r_[np.linspace(-2, -1, 10), np.linspace(1, 2, 10)][:, None]
    evidence = evidence_of(X, np.repeat([0, 1], 10))
    assert maximise_evidence(evidence, np.zeros(1))
    assert LOWEST <= evidence.path[-1].u[0] < 1.0
    assert np.isfinite(evidence.theta).all()
    assert abs(evidence.path[-1].gradient[0]) < 0.05 or evidence.path[-1].u[0] < LOWEST + 0.01


def test_few_separated_rows_reach_the_maximum():
    """Where the determinant falls faster than the weights are determined: the ratio must have the gradient's root."""
    X = np.array([1.0, 1.4, 1.9, 2.3, 2.6, 3.1, 3.3, 3.8])[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = BayesianSoftmaxRegression().fit(X, np.repeat([0, 1], 4)).solution_.evidence_path
    assert len(path) < 12
    for point in path:
        np.testing.assert_array_equal(np.sign(point.ratio), np.sign(point.gradient))
    assert abs(path[-1].gradient[0]) < 0.05
