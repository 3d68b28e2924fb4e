"""Posterior checks: tails are uniform where the model is right, and small where it is not."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import kstest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori as po

X, CODES = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[CODES]
TRAIN, TEST = np.arange(0, 150, 2), np.arange(1, 150, 2)


def simulated(seed, n=80):
    """Rows and labels of a softmax model whose parameters come from the prior of the fit: two halves of n rows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2 * n, 2))
    theta = rng.normal(size=(3, 2))
    labels = (rows @ theta.T + rng.gumbel(size=(2 * n, 3))).argmax(axis=1)
    return rows, labels


def tails(seed, n=80):
    rows, labels = simulated(seed, n)
    model = po.BayesianSoftmaxRegression(1.0, approximation="variational", fit_intercept=False, classes=[0, 1, 2])
    model.fit(rows[:n], labels[:n])
    check = model.posterior_check(rows[n:], labels[n:], 200, random_state=seed)
    return [check[name].tail_probability for name in ("accuracy", "log_loss", "calibration_error", "frequency of 0")]


def test_tails_of_new_rows_are_uniform_where_the_model_is_right():
    found = np.array([tails(seed) for seed in range(60)])
    for column in found.T:
        assert kstest(column, "uniform").pvalue > 0.01
        assert 0.38 < column.mean() < 0.62


def test_tails_of_the_rows_of_the_fit_are_not_extreme():
    found = []
    for seed in range(15):
        rows, labels = simulated(seed)
        model = po.BayesianSoftmaxRegression(0.01, classes=[0, 1, 2]).fit(rows, labels)
        found.append(model.posterior_check(rows, labels, 400)["frequency of 1"].tail_probability)
    assert 0.35 < min(found) < max(found) < 0.65


def test_a_model_that_is_too_sure_has_a_small_tail():
    """Naive Bayes sees the same feature twenty times: its log-loss is far above what it expects."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 400)
    column = codes + 1.2 * rng.normal(size=400)
    rows = np.repeat(column[:, None], 20, axis=1)
    prior = po.NormalInverseWishartPrior(kappa=0.1)  # one that is chosen by left-out rows would know better
    naive = po.GaussianClassifier("diagonal", prior=prior).fit(rows[:200], codes[:200])
    check = naive.posterior_check(rows[200:], codes[200:])
    assert check["log_loss"].tail_probability < 0.002
    assert check["calibration_error"].tail_probability < 0.002
    right = po.GaussianClassifier("tied").fit(column[:200, None], codes[:200])
    assert 0.02 < right.posterior_check(column[200:, None], codes[200:])["log_loss"].tail_probability < 0.98


def test_other_class_frequencies_show_in_their_statistic():
    model = po.BayesianSoftmaxRegression(1.0).fit(X[TRAIN][:, :2], Y[TRAIN])
    kept = np.concatenate([TEST[25:50], TEST[50:][:3]])
    check = model.posterior_check(X[kept][:, :2], Y[kept])
    assert check["frequency of virginica"].tail_probability > 0.99
    assert check["frequency of versicolor"].tail_probability < 0.01


def test_replicated_frequencies_spread_as_draws_and_labels_do():
    """Mean E p, and variance by the law of total variance: that of p over draws, and that of labels given p."""
    model = po.BayesianSoftmaxRegression(1.0).fit(X[TRAIN][:, :2], Y[TRAIN])
    check = model.posterior_check(X[TEST][:, :2], Y[TEST], 4000)
    P = model.sample_proba(X[TEST][:, :2], 4000)[:, :, 1]
    variance = P.mean(axis=1).var() + (P * (1 - P)).sum(axis=1).mean() / 75**2
    found = check["frequency of versicolor"].replicated
    assert found.mean() == pytest.approx(P.mean(), abs=4 * np.sqrt(variance / 4000))
    assert found.var() == pytest.approx(variance, rel=0.1)


MODELS = [po.BayesianSoftmaxRegression(1.0), po.GaussianClassifier("tied"), po.GPClassifier(max_iter=0)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_way_to_ask_gives_the_same_answer(model):
    table = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(kind=Y, w=np.arange(150) % 3 + 0.5)
    fitted = model.fit(table.iloc[TRAIN], "kind", "w")
    new = table.iloc[TEST]
    expected = fitted.posterior_check(new, "kind", 60, sample_weight="w", random_state=3).to_frame()
    by_function = po.posterior_check(fitted, new, "kind", 60, sample_weight="w", random_state=3).to_frame()
    by_arrays = po.posterior_check(fitted, new[["a", "b"]], Y[TEST], 60, sample_weight=new["w"], random_state=3)
    pd.testing.assert_frame_equal(by_function, expected)
    pd.testing.assert_frame_equal(by_arrays.to_frame(), expected)
    assert expected["observed"]["frequency of setosa"] == pytest.approx(
        np.average(Y[TEST] == "setosa", weights=new["w"])
    )


@pytest.mark.parametrize(
    "model",
    [
        *MODELS,
        po.BayesianSoftmaxRegression(),
        po.GaussianClassifier("full"),
        po.GPClassifier(n_inducing=10, max_iter=5),
    ],
    ids=["softmax", "tied", "gp", "mixture", "full", "gp by JAX"],
)
@pytest.mark.filterwarnings("ignore:The energy was still rising")
def test_a_model_from_a_file_draws_the_same(model, tmp_path):
    fitted = model.fit(X[TRAIN][:, :2], Y[TRAIN])
    po.save(fitted, tmp_path / "m.model")
    again, rows = po.load(tmp_path / "m.model"), X[TEST][:5, :2]
    np.testing.assert_allclose(again.sample_proba(rows, 20), fitted.sample_proba(rows, 20), atol=1e-9)
    np.testing.assert_allclose(again.prior_sample(rows, 20), fitted.prior_sample(rows, 20), atol=1e-9)


def test_pipelines_are_asked_through_their_steps():
    model = make_pipeline(StandardScaler(), po.BayesianSoftmaxRegression(1.0)).fit(X[TRAIN], Y[TRAIN])
    Z = model[0].transform(X[TEST])
    expected = model[-1].posterior_check(Z, Y[TEST], 50).to_frame()
    pd.testing.assert_frame_equal(po.posterior_check(model, X[TEST], Y[TEST], 50).to_frame(), expected)
    table = pd.DataFrame(X, columns=list("abcd")).assign(kind=Y)
    encoded = make_pipeline(po.TableEncoder(), po.GaussianClassifier("tied")).fit(table, "kind")
    assert po.posterior_check(encoded, table, "kind", 20).n_rows == 150


def test_the_observed_log_loss_is_that_of_the_mean_of_draws():
    model = po.GaussianClassifier("full").fit(X[TRAIN], Y[TRAIN])
    P = model.sample_proba(X[TEST], 500).mean(axis=0)
    found = model.posterior_check(X[TEST], Y[TEST])["log_loss"].observed
    assert found == pytest.approx(-np.log(P[np.arange(75), CODES[TEST]]).mean())
    assert softmax(np.log(P), axis=1) == pytest.approx(P)


def test_a_model_without_a_posterior_is_refused():
    with pytest.raises(TypeError, match="needs draws from a posterior, and SoftmaxRegression offers none"):
        po.posterior_check(po.SoftmaxRegression().fit(X, Y), X, Y)
    with pytest.raises(TypeError, match=r"GaussianClassifier offers none: pass a .* with estimate='bayes'"):
        po.posterior_check(po.GaussianClassifier("tied", estimate="mle").fit(X, Y), X, Y)
