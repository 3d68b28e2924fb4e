"""Draws from priors: logits have the variances x^T P^{-1} x, and what has no prior says so."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_iris

from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision

X, Y = load_iris(return_X_y=True)
X = X[::3, :2] * [1.0, 50.0] + [0.0, 300.0]
Y = Y[::3]
RNG = np.random.default_rng(4)
A = RNG.normal(size=(20, 3))
A = A.T @ A / 20
G = RNG.normal(size=(20, 4))
G = G.T @ G / 20
R = RNG.normal(size=(30, 12))
R = R.T @ R / 30
PRECISIONS = {
    "diagonal": DiagonalPrecision(RNG.uniform(0.5, 2.0, (3, 4))),
    "centred": DiagonalPrecision(RNG.uniform(0.5, 2.0, (3, 4)), np.array([0.5, -1.0, 2.0, 1.0])),
    "Kronecker": KroneckerPrecision(A, G),
    "matrix": MatrixPrecision(R, (3, 4)),
}


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS.keys())
def test_draws_of_parameters_have_the_inverse_precision_for_a_covariance(precision):
    n = 40_000
    drawn = precision.draws(n, np.random.default_rng(0)).reshape(n, 12)
    covariance = np.linalg.inv(precision.matrix(np.eye(3)))
    sd = np.sqrt(covariance.diagonal())
    assert (np.abs(drawn.mean(axis=0)) < 4.5 * sd / np.sqrt(n)).all()
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.035)


def log_odds(P):
    """Logits less the last one's, (S, n, K - 1)."""
    log_p = np.log(P)
    return log_p[..., :-1] - log_p[..., -1:]


PRIORS = {
    "number": (2.0, {}),
    "weak intercept": (GaussianPrior(precision=2.0, intercept_precision=0.5), {}),
    "no intercept": (GaussianPrior(precision=200.0), {"fit_intercept": False}),
    "mean": (GaussianPrior(mean=np.array([[0.3, 0.0, 1.0], [0.0, 0.02, -1.0], [0.0, 0.0, 0.0]]), precision=4.0), {}),
    "factors": (GaussianPrior(precision=(A + np.eye(3), np.diag([1.0, 2500.0, 0.4]))), {}),
    "evidence": ("evidence", {}),
    "ard": ("ard", {}),
}


@pytest.mark.parametrize(("prior", "options"), PRIORS.values(), ids=PRIORS.keys())
def test_logits_have_the_variance_of_the_prior_in_the_data_units(prior, options):
    """var(f_k - f_K) at a row is that of the linear function x^T (w_k - w_K) + b_k - b_K under N(m, P^{-1})."""
    model = BayesianSoftmaxRegression(prior, **options).fit(X, Y)
    rows, n = X[::10] + np.array([0.1, 2.0]), 20_000
    found = log_odds(model.prior_sample(rows, n, random_state=1))
    used, coordinates = model.prior_, model.fitted_.coordinates
    width = model.fitted_.mode.shape[1]
    inside = used.in_coordinates(3, 2, width > 2, coordinates)
    M = np.kron(np.eye(3), coordinates.outward_matrix(width))
    covariance = M @ np.linalg.inv(inside.precision.matrix(np.eye(3))) @ M.T
    mean = coordinates.outward(np.zeros((3, width)) if inside.mean is None else inside.mean).ravel()
    Z = np.column_stack([rows, np.ones(len(rows))])[:, :width]
    for k in range(2):
        slopes = np.kron(np.eye(3)[k] - np.eye(3)[2], Z)
        variance = np.einsum("nd,de,ne->n", slopes, covariance, slopes)
        kept = found[:, :, k]
        assert (np.abs(kept.mean(axis=0) - slopes @ mean) < 4.5 * np.sqrt(variance / n)).all()
        np.testing.assert_allclose(kept.var(axis=0), variance, rtol=0.06)


def test_a_number_for_a_prior_in_closed_form():
    """One precision a for the weights of two classes and 1 / 2.5^2 for the logit of the mean row."""
    model = BayesianSoftmaxRegression(3.0).fit(X[:, :1], Y > 0)
    f = log_odds(model.prior_sample(X[:, :1], 30_000))[..., 0]
    expected = 2.0 * ((X[:, 0] - X[:, 0].mean()) ** 2 / 3.0 + 2.5**2)
    np.testing.assert_allclose(f.var(axis=0), expected, rtol=0.04)


def test_fewer_rows_than_features():
    wide = RNG.normal(size=(12, 40))
    model = BayesianSoftmaxRegression(5.0).fit(wide, np.arange(12) % 3)
    f = log_odds(model.prior_sample(wide, 20_000))
    variance = 2.0 * (((wide - wide.mean(axis=0)) ** 2).sum(axis=1) / 5.0 + 2.5**2)
    np.testing.assert_allclose(f.var(axis=0), np.tile(variance[:, None], (1, 2)), rtol=0.06)


def test_labels_that_may_be_wrong_are_allowed_for():
    model = BayesianSoftmaxRegression(1.0, label_noise=0.3).fit(X, Y)
    P = model.prior_sample(X, 50)
    assert P.min() >= 0.1 - 1e-12
    np.testing.assert_allclose(P.sum(axis=2), 1.0)


def test_draws_repeat_and_differ_by_their_seed():
    model = BayesianSoftmaxRegression(1.0).fit(X, Y)
    np.testing.assert_array_equal(model.prior_sample(X, 5), model.prior_sample(X, 5))
    assert not np.array_equal(model.prior_sample(X, 5), model.prior_sample(X, 5, random_state=1))


@pytest.mark.filterwarnings("ignore:Classes 0 and 1")
@pytest.mark.parametrize("prior", ["flat", "jeffreys"])
def test_an_improper_prior_has_no_draws(prior):
    model = BayesianSoftmaxRegression(prior).fit(X, Y)
    with pytest.raises(ValueError, match=f"needs a prior to draw from, and prior='{prior}' is improper"):
        model.prior_sample(X)


def test_a_table_with_its_target():
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=Y)
    model = BayesianSoftmaxRegression(1.0).fit(table, "kind")
    assert model.prior_sample(table, 4).shape == (4, 50, 3)
    check = model.posterior_check(table, "kind", 20)
    np.testing.assert_allclose(check["frequency of 1"].observed, (Y == 1).mean())


@pytest.mark.parametrize("posterior", ["full", "classes", "kronecker", "diagonal"])
def test_coefficients_of_draws_give_the_probabilities_of_draws(posterior):
    model = BayesianSoftmaxRegression(1.0, posterior=posterior).fit(X, Y)
    thetas = model.fitted_.posterior.draws(7, np.random.default_rng(0))
    W, b = model.fitted_.coefficients(thetas, 2)
    expected = softmax(np.einsum("nd,skd->snk", X, W) + b[:, None], axis=2)
    np.testing.assert_allclose(model._under(X, thetas), expected, atol=1e-9)
    np.testing.assert_allclose(model._under(X, thetas, log=True), log_softmax(np.log(expected), axis=2), rtol=1e-6)
