"""Matrix scaling: the mode and the evidence against what their definitions say, and what rows make of each part."""

import numpy as np
import pytest
from scipy.integrate import nquad
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_softmax, softmax

from posteriori.decision import matrix_scaling
from posteriori.decision.matrix_scaling import MOST_CLASSES, PARTS, MatrixScaling, _Evidence, fit_matrix_scaling
from posteriori.decision.temperature import MOVES


def simulated(n, K=3, seed=0, W=1.0, b=0.0):
    """Log-probabilities, and classes that follow softmax(W z + b)."""
    rng = np.random.default_rng(seed)
    Z = np.log(rng.dirichlet(np.full(K, 0.7), n).clip(1e-9))
    P = softmax(Z @ (W * np.eye(K) if np.ndim(W) < 2 else W).T + b, axis=1)
    return Z, (P.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, K - 1)


def covariance(sigma, K):
    """The prior covariance of (W - I, b), class by class: B B^T of the definition, entry by entry."""
    k, j = (index.ravel() for index in np.indices((K, K + 1)))
    each = np.where(j == K, sigma[3], np.where(j == k, sigma[1], sigma[2])) ** 2
    return np.diag(each) + sigma[0] ** 2 * np.outer(j == k, j == k)


def minus_log_joint(theta, Z, y, c, sigma):
    K = Z.shape[1]
    change = theta.reshape(K, K + 1)
    log_p = log_softmax(Z + Z @ change[:, :K].T + change[:, K], axis=1)
    return 0.5 * theta @ np.linalg.solve(covariance(sigma, K), theta) - c @ log_p[np.arange(len(y)), y]


SIGMA = np.array([0.3, 0.2, 0.1, 0.4])


@pytest.mark.parametrize("K", [2, 3])
def test_the_mode_is_that_of_the_posterior_density(K):
    Z, y = simulated(150, K, W=np.diag(np.linspace(0.5, 1.5, K)), b=np.linspace(-0.5, 0.5, K))
    c = np.random.default_rng(1).uniform(0.5, 2.0, 150)
    theta, _ = _Evidence(Z, y, c).mode(SIGMA, 1e-13)
    best = minimize(minus_log_joint, np.zeros(K * (K + 1)), (Z, y, c, SIGMA), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(theta.ravel(), best.x, atol=1e-5)


def test_the_evidence_is_laplace_s():
    """log p(y, mode) + d/2 log 2 pi - 1/2 log |Hessian|, the Hessian by differences."""
    Z, y = simulated(150, 3, W=0.7)
    c = np.random.default_rng(1).uniform(0.5, 2.0, 150)
    evidence = _Evidence(Z, y, c)
    mode, _ = evidence.mode(SIGMA, 1e-13)
    value, _ = evidence(SIGMA)
    theta, args = mode.ravel(), (Z, y, c, SIGMA)

    def slope(at):
        return approx_fprime(at, minus_log_joint, 1e-5, *args)

    H = np.array([(slope(theta + e) - slope(theta - e)) / 2e-3 for e in 1e-3 * np.eye(theta.size)])
    log_prior_constant = -0.5 * np.linalg.slogdet(covariance(SIGMA, 3))[1]
    expected = log_prior_constant - minus_log_joint(theta, *args) - 0.5 * np.linalg.slogdet(H)[1]
    assert value == pytest.approx(expected, abs=1e-3)


def test_the_evidence_is_nearly_the_integral():
    """Two classes and offsets alone: b_2 - b_1 is all that counts, N(0, 2 sigma^2)."""
    Z, y = simulated(60, 2, b=np.array([0.6, 0.0]))
    value, _ = _Evidence(Z, y, np.ones(60))(np.array([1e-6, 1e-6, 1e-6, 0.5]))

    def density(b):
        log_p = log_softmax(Z + np.array([0.0, b]), axis=1)[np.arange(60), y].sum()
        return np.exp(log_p - value - b**2 / (4 * 0.25)) / np.sqrt(4 * np.pi * 0.25)

    assert np.log(nquad(density, [[-4, 4]])[0]) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("K", [2, 4])
def test_the_slope_of_the_evidence_is_that_of_differences(K, monkeypatch):
    monkeypatch.setattr(matrix_scaling, "_CLOSE", 1e-14)
    Z, y = simulated(120, K, W=0.6, b=np.linspace(0, 1, K))
    evidence = _Evidence(Z, y, np.random.default_rng(1).uniform(0.5, 2.0, 120))
    u = 2 * np.log(SIGMA)
    _, slope = evidence(SIGMA)
    for g, step in enumerate(1e-3 * np.eye(4)):
        up, down = (evidence(np.exp(0.5 * (u + sign * step)))[0] for sign in (1, -1))
        assert slope[g] == pytest.approx((up - down) / 2e-3, abs=2e-4)


def test_blocks_of_rows_change_nothing(monkeypatch):
    Z, y = simulated(200, 3, W=0.6)
    whole = fit_matrix_scaling(Z, y)
    monkeypatch.setattr(matrix_scaling, "_BLOCK", 12 * 7)
    parts = fit_matrix_scaling(Z, y)
    np.testing.assert_allclose(parts.W, whole.W, atol=1e-5)
    assert parts.gain == pytest.approx(whole.gain, abs=1e-5)


def test_a_weight_is_so_many_copies_and_zero_is_none():
    Z, y = simulated(150, 3, W=0.5)
    c = np.random.default_rng(0).integers(0, 4, 150)
    weighted = fit_matrix_scaling(Z, y, c.astype(float))
    copied = fit_matrix_scaling(np.repeat(Z, c, axis=0), np.repeat(y, c))
    np.testing.assert_allclose(weighted.W, copied.W, atol=1e-5)
    np.testing.assert_allclose(weighted.b, copied.b, atol=1e-5)


TRUTHS = {
    "temperature": (0.5 * np.eye(4), 0.0),
    "slopes": (np.diag([0.4, 1.7, 0.5, 1.4]), 0.0),
    "others": (np.eye(4) + 0.4 * np.array([[0, 1, 0, 0], [0, 0, -1, 0], [1, 0, 0, 1], [0, 1, -1, 0]]), 0.0),
    "offsets": (np.eye(4), np.array([0.7, -0.7, 0.3, -0.3])),
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_moves_where_it_is_wrong_and_the_map_is_found(part):
    W, b = TRUTHS[part]
    Z, y = simulated(4000, 4, W=W, b=b)
    found = fit_matrix_scaling(Z, y)
    scales = matrix_scaling._scales(4)
    assert PARTS[int((np.array(list(found.spreads.values())) / scales).argmax())] == part
    assert found.gain > 20
    new, _ = simulated(2000, 4, seed=1)
    assert np.abs(np.exp(found.log_proba(new)) - softmax(new @ W.T + b, axis=1)).mean() < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_nothing_moves_without_support(seed):
    for n, limit in [(30, 0.05), (300, 0.05), (3000, 0.02)]:
        Z, y = simulated(n, 3, seed=seed)
        found = fit_matrix_scaling(Z, y)
        assert np.abs(np.exp(found.log_proba(Z)) - softmax(Z, axis=1)).mean() < limit


def test_a_change_is_multiplied_by_its_probability():
    Z, y = simulated(60, 2, W=0.7)
    found = fit_matrix_scaling(Z, y)
    whole, _ = _Evidence(Z, y, np.ones(60)).mode(np.array(list(found.spreads.values())), 1e-13)
    probability = expit(found.gain + np.log(MOVES / (1 - MOVES)))
    assert 0.01 < probability < 0.99
    np.testing.assert_allclose(found.W, np.eye(2) + probability * whole[:, :2], atol=1e-6)
    np.testing.assert_allclose(found.b, probability * whole[:, 2], atol=1e-6)


def test_classes_are_alike():
    """Another order of the classes gives the same map in that order."""
    Z, y = simulated(300, 4, W=0.5, b=np.array([0.5, 0.0, -0.5, 0.0]))
    order = np.array([2, 0, 3, 1])
    found, other = fit_matrix_scaling(Z, y), fit_matrix_scaling(Z[:, order], np.argsort(order)[y])
    np.testing.assert_allclose(other.W, found.W[np.ix_(order, order)], atol=1e-4)
    np.testing.assert_allclose(other.b, found.b[order], atol=1e-4)


def test_of_many_classes_none_tells_of_another():
    K = MOST_CLASSES + 1
    Z, y = simulated(600, K, W=0.5)
    found = fit_matrix_scaling(Z, y)
    np.testing.assert_array_equal(found.W, np.diag(np.diag(found.W)))
    assert np.diag(found.W).mean() == pytest.approx(0.5, abs=0.12)


def test_a_sample_of_the_rows_is_searched(monkeypatch):
    Z, y = simulated(6000, 3, W=np.diag([0.4, 1.0, 1.6]))
    whole = fit_matrix_scaling(Z, y)
    monkeypatch.setattr(matrix_scaling, "_AFFORDABLE", 1.0)
    sampled = fit_matrix_scaling(Z, y)
    assert sampled.spreads != whole.spreads
    np.testing.assert_allclose(sampled.W, whole.W, atol=0.05)


def test_the_map_is_linear_in_log_probabilities():
    W, b = np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([0.5, 0.0])
    p = np.exp(MatrixScaling(W, b, np.ones(4), 1.0).log_proba(np.log([[0.2, 0.8]])))
    a, c = 0.2**2 * 0.8 * np.exp(0.5), 0.8
    np.testing.assert_allclose(p, [[a / (a + c), c / (a + c)]])
