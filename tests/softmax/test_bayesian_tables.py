"""Tables of coefficients and effects, against the posterior they come from."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from sklearn.datasets import load_iris

from posteriori import BayesianSoftmaxRegression

IRIS = load_iris(as_frame=True)
X, Y = IRIS.data.set_axis(["a", "b", "c", "d"], axis=1), IRIS.target_names[IRIS.target]
CLASSES = ["setosa", "versicolor", "virginica"]
FEATURES = ["a", "b", "c", "d", "(intercept)"]
COLUMNS = ["feature", "mean", "sd", "lower", "upper", "probability_of_sign"]


@pytest.fixture(scope="module", params=["laplace", "variational", "importance"])
def model(request):
    return BayesianSoftmaxRegression(1.0, approximation=request.param).fit(X, Y)


@pytest.fixture(scope="module")
def laplace():
    return BayesianSoftmaxRegression(1.0, approximation="laplace").fit(X, Y)


def moments(model, C):
    """Mean and sd of class combinations C (m, 3) of the coefficients."""
    mean, covariance = model.as_prior().mean, model.covariance_.reshape(3, 5, 3, 5)
    return C @ mean, np.sqrt(np.einsum("mk,kdld,ml->md", C, covariance, C))


CODINGS = {
    "symmetric": (np.eye(3), CLASSES),
    "sum": (np.eye(3) - 1 / 3, CLASSES),
    "reference": (np.array([[-1, 1, 0], [-1, 0, 1]]), CLASSES[1:]),
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_summary(model, coding, level):
    C, classes = CODINGS[coding]
    table = model.summary(coding, level=level)
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["class", *COLUMNS]
    assert table["class"].tolist() == np.repeat(classes, 5).tolist()
    assert table["feature"].tolist() == FEATURES * len(classes)
    mean, sd = moments(model, C)
    np.testing.assert_allclose(table["mean"], mean.ravel(), atol=1e-8)
    np.testing.assert_allclose(table["sd"], sd.ravel(), rtol=1e-6)
    z = ndtri(0.5 + level / 2)
    np.testing.assert_allclose(table["lower"], (mean - z * sd).ravel(), atol=1e-6)
    np.testing.assert_allclose(table["upper"], (mean + z * sd).ravel(), atol=1e-6)
    np.testing.assert_allclose(table["probability_of_sign"], ndtr(np.abs(mean) / sd).ravel(), atol=1e-7)
    assert table["probability_of_sign"].between(0.5, 1.0).all()


def test_symmetric_coding_is_coef(laplace):
    means = laplace.summary().pivot(index="class", columns="feature", values="mean")[FEATURES].to_numpy()
    np.testing.assert_allclose(means[:, :4], laplace.coef_, atol=1e-8)
    np.testing.assert_allclose(means[:, 4], laplace.intercept_, atol=1e-7)


def test_sum_coding_is_centred(laplace):
    totals = laplace.summary("sum").groupby("feature")["mean"].sum()
    np.testing.assert_allclose(totals, 0.0, atol=1e-8)


@pytest.mark.parametrize("base", CLASSES)
def test_reference_may_be_any_class(laplace, base):
    table = laplace.summary("reference", reference=base)
    others = [c for c in CLASSES if c != base]
    assert table["class"].tolist() == np.repeat(others, 5).tolist()
    parameters = np.column_stack([laplace.coef_, laplace.intercept_])
    expected = np.delete(parameters, CLASSES.index(base), axis=0) - parameters[CLASSES.index(base)]
    np.testing.assert_allclose(table["mean"], expected.ravel(), atol=1e-7)


def test_contrast_is_a_difference(model):
    table = model.contrast("virginica", "versicolor", level=0.8)
    assert list(table.columns) == ["contrast", *COLUMNS]
    assert table["contrast"].tolist() == ["virginica - versicolor"] * 5
    rows = model.summary("reference", level=0.8, reference="versicolor").query("`class` == 'virginica'")
    np.testing.assert_allclose(table[COLUMNS[1:]], rows[COLUMNS[1:]], rtol=1e-9)
    back = model.contrast("versicolor", "virginica", level=0.8)
    np.testing.assert_allclose(back["mean"], -table["mean"], rtol=1e-9)
    np.testing.assert_allclose(back["lower"], -table["upper"], rtol=1e-9)
    np.testing.assert_allclose(back["probability_of_sign"], table["probability_of_sign"], rtol=1e-9)


def test_names_of_features_without_names():
    table = BayesianSoftmaxRegression(1.0, fit_intercept=False).fit(X.to_numpy(), Y).summary()
    assert table["feature"].tolist() == ["x0", "x1", "x2", "x3"] * 3


def test_a_coefficient_that_is_surely_zero_has_no_sign():
    """A constant column's weights are zero, but not surely: the prior leaves them as they were."""
    table = BayesianSoftmaxRegression(4.0, approximation="laplace").fit(X.assign(one=1.0), Y).summary()
    rows = table[table["feature"] == "one"]
    np.testing.assert_allclose(rows["mean"], 0.0, atol=1e-7)
    np.testing.assert_allclose(rows["sd"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(rows["probability_of_sign"], 0.5, atol=1e-6)


def test_tables_of_another_class_prior(laplace):
    other = laplace.with_class_prior([0.6, 0.3, 0.1])
    before, after = laplace.summary("reference"), other.summary("reference")
    shift = np.log(np.array([0.3, 0.1]) / 0.6)  # classes were equally frequent
    intercept = before["feature"] == "(intercept)"
    np.testing.assert_allclose((after["mean"] - before["mean"])[intercept], shift, atol=1e-9)
    np.testing.assert_allclose(after["mean"][~intercept], before["mean"][~intercept], atol=1e-12)
    np.testing.assert_allclose(after["sd"], before["sd"], rtol=1e-12)


# Effects


def test_effects_are_slopes_of_averaged_probabilities(model):
    """The same draws, by finite differences."""
    table = model.marginal_effects(X)
    assert list(table.columns) == ["class", *COLUMNS]
    assert table["class"].tolist() == np.repeat(CLASSES, 4).tolist()
    assert table["feature"].tolist() == ["a", "b", "c", "d"] * 3
    h = 1e-4
    slopes = []
    for d in range(4):
        step = h * np.eye(4)[d]
        up, down = model.sample_proba(X + step, 400), model.sample_proba(X - step, 400)
        slopes.append((up - down).mean(axis=1) / (2 * h))  # (S, K)
    slopes = np.stack(slopes, axis=2)
    np.testing.assert_allclose(table["mean"], slopes.mean(axis=0).ravel(), atol=1e-6)
    np.testing.assert_allclose(table["sd"], slopes.std(axis=0).ravel(), atol=1e-6)
    np.testing.assert_allclose(table["lower"], np.quantile(slopes, 0.025, axis=0).ravel(), atol=1e-5)
    np.testing.assert_allclose(table["upper"], np.quantile(slopes, 0.975, axis=0).ravel(), atol=1e-5)


def test_effects_are_slopes_of_predictions(laplace):
    """By the nodes of the predictions: other points than the draws, so only to their error."""
    table, h = laplace.marginal_effects(X), 1e-4
    for d in range(4):
        step = h * np.eye(4)[d]
        slope = (laplace.predict_proba(X + step) - laplace.predict_proba(X - step)).mean(axis=0) / (2 * h)
        rows = table[table["feature"] == FEATURES[d]]
        assert (np.abs(rows["mean"] - slope) < 5 * rows["sd"] / np.sqrt(400) + 1e-4).all()


def test_effects_sum_to_zero_over_classes(model):
    table = model.marginal_effects(X)
    np.testing.assert_allclose(table.groupby("feature")["mean"].sum(), 0.0, atol=1e-12)
    assert (table["lower"] <= table["mean"]).all()
    assert (table["mean"] <= table["upper"]).all()
    narrow = model.marginal_effects(X, level=0.5)
    assert (narrow["upper"] - narrow["lower"] < table["upper"] - table["lower"]).all()


def test_effects_scale_with_units(laplace):
    """Per gram instead of per kilogram, at a prior that follows the units."""
    units = np.array([1.0, 1000.0, 0.1, 1.0])
    options = {"prior": "evidence", "approximation": "laplace"}
    first = BayesianSoftmaxRegression(**options).fit(X, Y).marginal_effects(X)
    second = BayesianSoftmaxRegression(**options).fit(X * units, Y).marginal_effects(X * units)
    np.testing.assert_allclose(second["mean"] * np.tile(units, 3), first["mean"], atol=1e-6)


# Errors


def test_wrong_arguments(laplace):
    with pytest.raises(ValueError, match="coding='dummy' is unknown: use 'symmetric', 'reference' or 'sum'"):
        laplace.summary("dummy")
    with pytest.raises(ValueError, match=r"'rosa' is not a class of this model: its classes are .*setosa"):
        laplace.summary("reference", reference="rosa")
    with pytest.raises(ValueError, match="'rosa' is not a class"):
        laplace.contrast("rosa", "setosa")
    with pytest.raises(ValueError, match="Both classes are 'setosa'"):
        laplace.contrast("setosa", "setosa")
    with pytest.raises(ValueError, match="yet now missing:\n- b"):
        laplace.marginal_effects(X.drop(columns="b"))
