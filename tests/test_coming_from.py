"""Other libraries' numbers, as docs/coming-from records them, are those of posteriori.

The scripts in docs/coming-from/scripts made the files in docs/coming-from/recorded; the pages show the same settings.
"""

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import posteriori as po
from posteriori.kernels import RBF

COMING_FROM = Path(__file__).parents[1] / "docs" / "coming-from"
COLUMNS = ["area_sqft", "heating_degree_days", "cooling_degree_days"]


def recorded(name):
    return json.loads((COMING_FROM / "recorded" / f"{name}.json").read_text(encoding="utf-8"))


def bundled(name):
    return pd.read_csv(files("posteriori.tables") / "bundled" / name)


@pytest.fixture(scope="module")
def homes():
    table = bundled("homes.csv.gz")
    table[COLUMNS] /= 1000
    return table


@pytest.fixture(scope="module")
def r():
    return recorded("nnet_mass_glmnet")


def by_class(model):
    """Intercepts and weights, a row for each class: the order in which R prints them."""
    return np.column_stack([model.intercept_, model.coef_])


def test_every_recorded_output_has_its_script_its_numbers_and_its_versions():
    names = {path.stem for path in (COMING_FROM / "scripts").iterdir()}
    assert {path.stem for path in (COMING_FROM / "recorded").glob("*.txt")} == names
    for name in names:
        printed = (COMING_FROM / "recorded" / f"{name}.txt").read_text(encoding="utf-8")
        for version in recorded(name)["versions"].values():
            assert version in printed


def test_multinom(homes, r):
    peer = r["multinom"]
    model = po.BayesianSoftmaxRegression("flat").fit(homes[COLUMNS], homes["fuel"])
    table = model.summary("reference")
    assert list(table["class"].unique()) == peer["classes"]
    order = [3, 0, 1, 2]  # ours has the intercept last
    assert table["mean"].to_numpy().reshape(4, 4)[:, order] == pytest.approx(np.array(peer["coefficients"]), abs=1e-6)
    assert table["sd"].to_numpy().reshape(4, 4)[:, order] == pytest.approx(np.array(peer["errors"]), abs=1e-6)
    assert model.statistics_.log_likelihood == pytest.approx(peer["log_likelihood"], rel=1e-10)
    assert model.statistics_.aic == pytest.approx(peer["aic"], rel=1e-10)


def test_multinom_with_weights(homes, r):
    share = homes["weight"] / homes["weight"].mean()
    theta = by_class(po.SoftmaxRegression(alpha=0).fit(homes[COLUMNS], homes["fuel"], sample_weight=share))
    assert theta[1:] - theta[0] == pytest.approx(np.array(r["multinom_weighted"]["coefficients"]), abs=2e-6)


@pytest.mark.parametrize(("covariance", "name", "digits"), [("tied", "lda_mle", 13), ("full", "qda_mle", 13)])
def test_discriminants(r, covariance, name, digits):
    penguins = bundled("penguins.csv").iloc[:, :6].dropna()
    X = penguins[["bill_length_mm", "flipper_length_mm"]]
    model = po.GaussianClassifier(covariance, estimate="mle").fit(X, penguins["species"])
    every = r["discriminants"]["every"]
    assert model.predict_proba(X)[::every] == pytest.approx(np.array(r["discriminants"][name]), abs=10.0**-digits)


@pytest.mark.parametrize("name", ["raw", "standardised"])
def test_glmnet(r, name):
    """At lambda = 0.01: alpha is N lambda, in units of the columns' spreads where glmnet standardises."""
    penguins = bundled("penguins.csv").iloc[:, :6].dropna()
    X = penguins[r["glmnet"]["columns"][1:]]
    spread = X.std(ddof=0).to_numpy() if name == "standardised" else np.ones(X.shape[1])
    model = po.SoftmaxRegression(0.01 * len(X) * np.tile(spread**2, (3, 1)), tol=1e-14).fit(X, penguins["species"])
    theta, peer = by_class(model), np.array(r["glmnet"][name])
    assert theta[:, 1:] == pytest.approx(peer[:, 1:], abs=1e-6)
    assert theta[:, 0] == pytest.approx(peer[:, 0], abs=2e-5)


@pytest.mark.parametrize("name", ["none", "ridge", "ridge_standardised", "weighted"])
def test_spark(homes, name):
    spark = recorded("spark_logistic")
    X = homes[COLUMNS]
    standardised = np.tile(X.std(ddof=1).to_numpy() ** 2, (5, 1))
    alpha = {"none": 0.0, "weighted": 0.0, "ridge": spark["alpha"], "ridge_standardised": spark["alpha"] * standardised}
    weight = homes["weight"] / homes["weight"].mean() if name == "weighted" else None
    model = po.SoftmaxRegression(alpha[name], tol=1e-14).fit(X, homes["fuel"], sample_weight=weight)
    assert model.coef_ == pytest.approx(np.array(spark[name]["coefficients"]), abs=1e-6)
    intercepts = np.array(spark[name]["intercepts"])
    assert model.intercept_ - model.intercept_.mean() == pytest.approx(intercepts - intercepts.mean(), abs=2e-6)


@pytest.fixture(scope="module")
def categorical():
    """The model of brms and Bambi: differences from Adelie are independent a priori."""
    penguins = bundled("penguins.csv")[["species", "flipper_length_mm", "body_mass_g"]].dropna()
    raw = penguins[["flipper_length_mm", "body_mass_g"]]
    X = ((raw - raw.mean()) / raw.std(ddof=0)).set_axis(["flipper", "mass"], axis=1)
    from_reference = np.array([[2, -1, -1], [-1, 1, 0], [-1, 0, 1]])
    prior = po.GaussianPrior(precision=(from_reference + 1e-6, np.diag([1 / 4, 1 / 4, 1 / 25])))
    return po.BayesianSoftmaxRegression(prior).fit(X, penguins["species"])


NEW = pd.DataFrame({"flipper": [-2.0, 0.0, 0.0, 1.0], "mass": [-1.0, -0.5, 0.5, 0.0]})


@pytest.mark.parametrize("name", ["brms_categorical", "bambi_categorical"])
def test_probabilities_and_intervals_are_near_those_of_nuts(categorical, name):
    peer = recorded(name)
    lower, upper = categorical.predict_interval(NEW)
    assert categorical.predict_proba(NEW) == pytest.approx(np.array(peer["probabilities"]), abs=0.005)
    assert lower == pytest.approx(np.array(peer["lower"]), abs=0.025)
    assert upper == pytest.approx(np.array(peer["upper"]), abs=0.025)


def test_moments_are_near_those_of_nuts(categorical):
    """Within a tenth of a standard deviation; standard deviations to a tenth. Bambi has a row for each coefficient."""
    peer = recorded("bambi_categorical")
    assert peer["coefficients"] == ["Intercept", "flipper", "mass"]
    table = categorical.summary("reference")
    mean, sd = (table[name].to_numpy().reshape(2, 3).T[[2, 0, 1]] for name in ("mean", "sd"))
    assert (np.abs(mean - np.array(peer["means"])) / sd).max() < 0.1
    assert sd == pytest.approx(np.array(peer["sds"]), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpytorch_softmax", "gpflow_softmax"])
def test_variational_gaussian_process(name):
    """The bounds differ by the errors of integrals over the likelihood, which are random in the peers."""
    pytest.importorskip("jax", reason="Gaussian processes by JAX are not installed")
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    X, train = X[:, 2:], np.arange(len(X)) % 2 == 0
    model = po.GPClassifier(
        RBF(lengthscale=1.0, fixed=True),
        scale=2.0,
        max_iter=0,
        likelihood="softmax",
        inference="vi",
        calibrate=False,
        random_state=0,
    ).fit(X[train], y[train])
    peer = recorded(name)
    assert model.log_evidence_ == pytest.approx(peer["bound"], abs=0.15)
    assert model.predict_proba(X[~train]) == pytest.approx(np.array(peer["probabilities"]), abs=0.005)
