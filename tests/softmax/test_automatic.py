"""What "auto" promises: the optimum, in few passes, whatever the units, the order of the rows or the prior's weight."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_digits, load_wine

from posteriori import SoftmaxRegression, Status


def many_rows(N=20_000, D=6, K=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    y = np.argmax(X @ rng.standard_normal((D, K)) + rng.gumbel(size=(N, K)), axis=1)
    return X, y


def assert_optimal(model, X, y, alpha=1.0):
    newton = SoftmaxRegression(alpha, solver="newton", tol=1e-12).fit(X, y).solution_
    assert model.solution_.status is Status.CONVERGED
    assert model.solution_.objective - newton.objective <= 1e-8 * newton.objective
    assert 0 <= model.solution_.gap_bound <= 1e-6 * newton.objective


def test_a_sample_start_ends_at_the_optimum_of_all_rows():
    X, y = many_rows()
    model = SoftmaxRegression().fit(X, y)
    assert_optimal(model, X, y)
    assert model.solution_.n_passes <= 20


def test_the_order_of_the_rows_does_not_matter():
    X, y = many_rows()
    order = np.argsort(y, kind="stable")
    sorted_fit = SoftmaxRegression().fit(X[order], y[order])
    assert sorted_fit.solution_.n_passes <= 20
    np.testing.assert_allclose(sorted_fit.coef_, SoftmaxRegression().fit(X, y).coef_, atol=1e-4)


def test_a_feature_too_rare_for_the_sample():
    X, y = many_rows()
    rare = np.zeros((len(X), 3))
    rare[[17, 4_000, 19_999], 0] = 1.0
    rare[5_000:5_020, 1] = 50.0
    rare[:10, 2] = 1e-3
    X = np.hstack([X, rare])
    model = SoftmaxRegression().fit(X, y)
    assert_optimal(model, X, y)
    assert model.solution_.n_passes <= 40


def test_a_class_too_rare_for_the_sample():
    X, y = many_rows()
    y[[100, 7_000]] = 4
    model = SoftmaxRegression().fit(X, y)
    assert_optimal(model, X, y)
    assert model.predict_proba(X)[:, 4].sum() == pytest.approx(2.0, rel=1e-3)


def test_conditioning_costs_no_passes():
    X, y = many_rows(D=12)
    rng = np.random.default_rng(1)
    rotation, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    Z = X * np.geomspace(1e-2, 1e2, 12) @ rotation
    well, ill = (SoftmaxRegression().fit(M, y).solution_ for M in (X, Z))
    assert ill.status is well.status is Status.CONVERGED
    assert ill.n_passes <= well.n_passes + 4


def test_zero_weights_outnumber_the_others():
    X, y = many_rows()
    weights = np.zeros(len(X))
    weights[::100] = 1.0
    weighted = SoftmaxRegression(tol=1e-12).fit(X, y, weights)
    few = SoftmaxRegression(tol=1e-12).fit(X[::100], y[::100])
    np.testing.assert_allclose(weighted.coef_, few.coef_, atol=1e-5)


def test_a_warm_start_is_not_thrown_away():
    X, y = many_rows()
    model = SoftmaxRegression(warm_start=True).fit(X, y)
    cold = model.solution_.n_passes
    assert model.fit(X, y).solution_.n_passes <= cold / 2


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_more_features_than_gram_matrices_are_made_for(make):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 3000)) * (rng.random((400, 3000)) < 0.02) * np.linspace(0.1, 3, 3000)
    y = np.argmax(X[:, :3] + X[:, -3:] + 0.5 * rng.standard_normal((400, 3)), axis=1)
    solution = SoftmaxRegression().fit(make(X), y).solution_
    assert solution.status is Status.CONVERGED
    assert solution.gap_bound <= 1e-6 * solution.objective
    assert solution.n_passes <= 150


@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_tiny_losses_keep_their_digits(load, alpha):
    """Nearly separable: J is a few thousandths while the logits are in the hundreds."""
    X, y = load(return_X_y=True)
    model = SoftmaxRegression(alpha).fit(X, y)
    F = X.astype(np.longdouble) @ model.coef_.T.astype(np.longdouble) + model.intercept_
    others = F - F[np.arange(len(y)), y][:, None]
    others[np.arange(len(y)), y] = -np.inf
    J = np.log1p(np.exp(logsumexp(others, axis=1))).sum() + alpha / 2 * (model.coef_.astype(np.longdouble) ** 2).sum()
    assert model.solution_.status is Status.CONVERGED
    assert model.solution_.objective == pytest.approx(float(J), rel=1e-9)
    assert model.solution_.gap_bound <= 1e-4 * J
