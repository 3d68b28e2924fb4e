"""Groups for ArviZ: draws of coefficients, log-likelihoods of the same draws, and leave-one-out by PSIS."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from tests.slow import quick_first

from posteriori import BayesianSoftmaxRegression, GaussianPrior
from posteriori.softmax.leave_one_out import left_out

RNG = np.random.default_rng(5)
THETA = np.array([[1.0, -0.5, 0.2], [-0.7, 0.8, 0.0], [0.0, 0.0, 0.0]])
X = RNG.normal(size=(200, 2)) * [1.0, 2.0] + [0.5, 0.0]
TABLE = pd.DataFrame(X, columns=["length", "depth"])
CODES = (
    log_softmax(np.column_stack([X, np.ones(200)]) @ THETA.T, axis=1) + RNG.gumbel(size=(200, 3))
).argmax(axis=1)  # fmt: skip
Y = np.array(["a", "b", "c"])[CODES]


def test_without_arviz_the_error_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"to_arviz needs ArviZ: pip install 'posteriori\[arviz\]'"):
        BayesianSoftmaxRegression(1.0).fit(X, Y).to_arviz(X, Y)


def arviz():
    """The library; a test that needs it is skipped where it is missing."""
    return pytest.importorskip("arviz")


def elpd(found):
    """The total of leave-one-out log-probabilities and its standard error, whatever the version calls them."""
    return getattr(found, "elpd_loo", None) or found.elpd, found.se


MODELS = {
    "full": BayesianSoftmaxRegression(1.0, approximation="laplace"),
    "variational": BayesianSoftmaxRegression(1.0, approximation="variational"),
    "mixture": BayesianSoftmaxRegression(),
    "importance": BayesianSoftmaxRegression(1.0, approximation="importance", n_draws=5000),
    "flat": BayesianSoftmaxRegression("flat"),
    "classes": BayesianSoftmaxRegression(1.0, posterior="classes"),
    "kronecker": BayesianSoftmaxRegression(1.0, posterior="kronecker"),
    "diagonal": BayesianSoftmaxRegression(1.0, posterior="diagonal"),
    "no intercept": BayesianSoftmaxRegression(1.0, fit_intercept=False),
    "wrong labels": BayesianSoftmaxRegression(1.0, label_noise=0.1),
    "matrix": BayesianSoftmaxRegression(GaussianPrior(precision=np.diag(np.arange(1.0, 10.0)))),
}


@pytest.mark.parametrize("name", quick_first(MODELS, 3))
def test_groups_agree_with_the_model_and_with_each_other(name):
    arviz()
    rows = slice(0, 30) if name == "mixture" else slice(None)  # few rows leave the prior's strength open
    table, labels, codes = TABLE[rows], Y[rows], CODES[rows]
    model = MODELS[name].fit(table, labels)
    data, S = model.to_arviz(table, labels, n_draws=4000, random_state=2), 4000
    if name == "mixture":
        assert len(model.fitted_.posterior.members) > 1
    posterior = data["posterior"]
    assert posterior["coef"].dims == ("chain", "draw", "class", "feature")
    assert posterior["feature"].values.tolist() == ["length", "depth"]
    assert posterior["class"].values.tolist() == ["a", "b", "c"]
    W = posterior["coef"].values[0]
    b = posterior["intercept"].values[0] if "intercept" in posterior else np.zeros((S, 3))
    theta = W if name == "no intercept" else np.concatenate([W, b[..., None]], axis=2)
    drawn, covariance = theta.reshape(S, -1), model.covariance_
    sd = np.sqrt(covariance.diagonal())
    mean = model.fitted_.mean(2).ravel()
    assert (np.abs(drawn.mean(axis=0) - mean) < 4.5 * sd / np.sqrt(S)).all()
    np.testing.assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.12)
    log_p = log_softmax(np.einsum("nd,skd->snk", table.to_numpy(), W) + b[:, None], axis=2)
    own, eps = log_p[:, np.arange(len(codes)), codes], model.label_noise_
    own = own if eps == 0 else np.log((1 - eps) * np.exp(own) + eps / 3)
    np.testing.assert_allclose(data["log_likelihood"]["label"].values[0], own, atol=1e-8)
    replicated = data["posterior_predictive"]["label"].values[0]
    P = model.sample_proba(table, S).mean(axis=0)
    assert np.abs((replicated == 1).mean(axis=0) - P[:, 1]).max() < 5 * np.sqrt(0.5 / S)
    np.testing.assert_array_equal(data["observed_data"]["label"].values, codes)
    np.testing.assert_array_equal(data["constant_data"]["X"].values, table.to_numpy())


def test_draws_have_the_standard_deviations_of_the_summary():
    arviz()
    model = MODELS["full"].fit(TABLE, Y)
    W = model.to_arviz(TABLE, Y, 4000)["posterior"]["coef"].values[0]
    table = model.summary("sum").query("feature == 'depth'").set_index("class")
    np.testing.assert_allclose((W - W.mean(axis=1, keepdims=True))[:, :, 1].std(axis=0), table["sd"], rtol=0.06)


def test_weights_multiply_log_likelihoods():
    arviz()
    weights = RNG.uniform(0.5, 2.0, 200)
    model = MODELS["full"].fit(X, Y, sample_weight=weights)
    plain, weighted = model.to_arviz(X, Y, 50), model.to_arviz(X, Y, 50, sample_weight=weights)
    expected = weights * plain["log_likelihood"]["label"].values
    np.testing.assert_allclose(weighted["log_likelihood"]["label"].values, expected, rtol=1e-12)
    np.testing.assert_array_equal(weighted["constant_data"]["weight"].values, weights)
    assert "weight" not in plain["constant_data"]


def test_leave_one_out_by_psis_is_that_of_the_library():
    """Both leave out a row of the same Gaussian: far closer to each other than the standard error."""
    az = arviz()
    model = MODELS["full"].fit(X, Y)
    assert model.fitted_.coordinates.is_identity
    total, error = elpd(az.loo(model.to_arviz(X, Y, n_draws=4000)))
    own = left_out(model.fitted_.posterior, X, np.eye(3)[CODES], np.ones(200))
    assert abs(total - own.averaged.sum()) < 0.05 * error


def test_what_is_wrong_is_said():
    arviz()
    model = MODELS["full"].fit(X, Y)
    with pytest.raises(ValueError, match="X has 200 rows, and y has 7 labels"):
        model.to_arviz(X, Y[:7])
    with pytest.raises(ValueError, match="not among the declared classes"):
        model.to_arviz(X[:2], ["a", "z"])
    with pytest.raises(ValueError, match="n_draws=0"):
        model.to_arviz(X, Y, n_draws=0)
