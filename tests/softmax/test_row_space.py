"""Fewer rows than features: a fit in the space of the rows is the fit in all features, to the last digits."""

import numpy as np
import pytest
import scipy.sparse as sp

import posteriori as po
from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.softmax import fit
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.row_space import RowSpacePosterior


def wide(N=24, D=40, K=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    X = rng.normal(size=(N, D)) + 1.2 * rng.normal(size=(K, D))[y] + rng.normal(size=D)
    return X, y, rng.normal(size=(15, D)) * 2.0


def both(monkeypatch, X, y, **options):
    """The fit in the row space, and in all features."""
    inner = BayesianSoftmaxRegression(**options).fit(X, y)
    monkeypatch.setattr(fit, "row_space", lambda likelihood: None)
    return inner, BayesianSoftmaxRegression(posterior="full", **options).fit(X, y)


OPTIONS = {
    "given prior, Laplace": {"prior": GaussianPrior(precision=3.0, autoscale=True), "approximation": "laplace"},
    "given prior, variational": {
        "prior": GaussianPrior(precision=30.0, autoscale=True),
        "approximation": "variational",
    },
    "in the units of the data": {"prior": 2.0, "approximation": "laplace"},
    "without intercept": {"prior": 2.0, "approximation": "laplace", "fit_intercept": False},
    "evidence": {"approximation": "laplace", "tol": 1e-12},
    "all defaults": {"tol": 1e-12},
}


@pytest.mark.filterwarnings("ignore:The variational posterior")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_it_is_the_fit_in_all_features(monkeypatch, options, form):
    X, y, new = wide()
    inner, whole = both(monkeypatch, form(X), y, **options)
    assert "in the space of" in inner.solution_.structure_reason
    assert inner.fitted_.mode.shape == whole.fitted_.mode.shape
    by_evidence = "prior" not in options
    # a search for a precision ends within 0.001 nats of the top, in whichever coordinates
    close = {"rtol": 0.05, "atol": 0.01} if by_evidence else {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(inner.coef_, whole.coef_, **close)
    np.testing.assert_allclose(inner.intercept_, whole.intercept_, **close)
    assert inner.log_evidence_ == pytest.approx(whole.log_evidence_, abs=0.05 if by_evidence else 1e-6)
    assert inner.solution_.approximation == whole.solution_.approximation
    assert inner.chosen_predictive == whole.chosen_predictive
    np.testing.assert_allclose(inner.predict_proba(new), whole.predict_proba(new), **close)
    if options.get("approximation") != "variational" and by_evidence:
        return  # steps towards a variational posterior end where they gain little, in any coordinates
    for a, b in zip(inner.predict_interval(new), whole.predict_interval(new), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(inner.fitted_.posterior.variances(), whole.fitted_.posterior.variances(), rtol=1e-5)
    np.testing.assert_allclose(inner.covariance_, whole.covariance_, rtol=1e-4, atol=1e-7)
    means, covariances = inner.predict_latent(new)
    whole_means, whole_covariances = whole.predict_latent(new)
    np.testing.assert_allclose(means, whole_means, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(covariances, whole_covariances, rtol=1e-5, atol=1e-7)


def test_what_is_orthogonal_to_all_rows_is_as_the_prior_has_it():
    X, y, _ = wide(N=10, D=30)
    model = BayesianSoftmaxRegression(GaussianPrior(precision=5.0, autoscale=True), approximation="laplace").fit(X, y)
    posterior = model.fitted_.posterior
    assert isinstance(posterior, RowSpacePosterior)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    away = np.linalg.svd(Z)[2][-1][None]
    assert np.abs(Z @ away[0]).max() < 1e-10
    at_origin = posterior.pair_variances(np.zeros_like(away))
    np.testing.assert_allclose(posterior.pair_variances(3.0 * away) - at_origin, 9.0 * 2.0 / 5.0, rtol=1e-9)
    np.testing.assert_allclose(posterior.mean[:, :30] @ away[0], 0.0, atol=1e-9)


def test_draws_have_the_covariance():
    X, y, new = wide(N=9, D=14, K=3)
    model = BayesianSoftmaxRegression(GaussianPrior(precision=2.0, autoscale=True), approximation="laplace").fit(X, y)
    posterior = model.fitted_.posterior
    drawn = posterior.draws(40_000, np.random.default_rng(0)).reshape(40_000, -1)
    np.testing.assert_allclose(drawn.mean(axis=0), posterior.mean.ravel(), atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), posterior.covariance(), atol=0.04)
    np.testing.assert_allclose(posterior.precision() @ posterior.covariance(), np.eye(drawn.shape[1]), atol=1e-8)
    contrasts = posterior.contrast_draws(40_000, np.random.default_rng(1))
    np.testing.assert_allclose(
        contrasts.mean(axis=1), posterior.mean.mean(axis=0)[None] + 0 * contrasts[:, 0], atol=1e-9
    )
    spread = np.einsum("skd,nd->snk", contrasts, np.column_stack([new, np.ones(len(new))]))
    expected = posterior.contrast_covariance(np.column_stack([new, np.ones(len(new))]))
    for n in range(len(new)):
        np.testing.assert_allclose(np.cov(spread[:, n].T), expected[n], rtol=0.05, atol=0.02)


def test_a_wide_model_is_stored_and_restored(tmp_path):
    X, y, new = wide()
    model = BayesianSoftmaxRegression().fit(X, y)
    po.save(model, tmp_path / "wide.model")
    again = po.load(tmp_path / "wide.model")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    for a, b in zip(again.predict_interval(new), model.predict_interval(new), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(again.sample_proba(new, 5), model.sample_proba(new, 5))


def test_rows_of_weight_zero_span_nothing():
    X, y, new = wide(N=24, D=40)
    weights = np.r_[np.ones(18), np.zeros(6)]
    model = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, y, weights)
    alone = BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X[:18], y[:18])
    np.testing.assert_allclose(model.predict_proba(new), alone.predict_proba(new), atol=1e-8)
    assert model.log_evidence_ == pytest.approx(alone.log_evidence_, abs=1e-8)


def test_more_rows_than_features_are_fitted_as_they_are():
    X, y, _ = wide(N=60, D=40)
    model = BayesianSoftmaxRegression(1.0).fit(X, y)
    assert "space" not in model.solution_.structure_reason
    assert not isinstance(model.fitted_.posterior, (RowSpacePosterior, MixturePosterior))
