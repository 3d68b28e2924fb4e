"""The same numbers in any container give the same model, and wrong input is refused in clear words."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import DataConversionWarning

from posteriori import GaussianPrior, SoftmaxRegression

IRIS = load_iris()
X = (IRIS.data * 10).round()  # whole numbers up to 79: exact in every dtype
Y = IRIS.target
WEIGHTS = np.linspace(0.5, 2.0, len(X))
NAMES = ["a", "b", "c", "d"]
BY_NAME = {name: X[:, d] for d, name in enumerate(NAMES)}
TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.fixture(scope="module")
def reference():
    return SoftmaxRegression().fit(X, Y)


def assert_same(model, reference):
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-8)


# Containers

CONTAINERS = {
    "list": X.tolist(),
    "C order": np.ascontiguousarray(X),
    "F order": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "float32": X.astype(np.float32),
    "int64": X.astype(np.int64),
    "uint8": X.astype(np.uint8),
    "object": X.astype(object),
    "pandas": pd.DataFrame(X),
    "csr_matrix": sp.csr_matrix(X),
    "csr_array": sp.csr_array(X),
    "csc_matrix": sp.csc_matrix(X),
    "csc_array": sp.csc_array(X),
    "coo_matrix": sp.coo_matrix(X),
    "coo_array": sp.coo_array(X),
    "csr float32": sp.csr_array(X.astype(np.float32)),
} | {name: table(BY_NAME) for name, table in TABLES.items()}


@pytest.mark.parametrize("given", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_container_does_not_matter(given, reference):
    model = SoftmaxRegression().fit(given, Y)
    assert_same(model, reference)
    np.testing.assert_allclose(model.predict_proba(given), reference.predict_proba(X), atol=1e-9)
    assert model.n_features_in_ == 4


def test_booleans_are_zero_and_one():
    bits = X > X.mean(axis=0)
    assert_same(SoftmaxRegression().fit(bits, Y), SoftmaxRegression().fit(bits.astype(float), Y))


@pytest.mark.parametrize("given", [X.copy(), np.asfortranarray(X), sp.csr_array(X)], ids=["C", "F", "csr"])
def test_input_is_not_modified(given):
    model = SoftmaxRegression().fit(given, Y, WEIGHTS)
    model.predict_proba(given)
    np.testing.assert_array_equal(given.toarray() if sp.issparse(given) else given, X)


def test_sparse_with_zeros_equals_dense():
    thin = np.where(X > X.mean(axis=0), X, 0.0)
    assert_same(SoftmaxRegression().fit(sp.csr_array(thin), Y), SoftmaxRegression().fit(thin, Y))


# Columns of a table as target and weight


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_target_and_weight_as_columns(table):
    species = IRIS.target_names[Y]
    whole = table(BY_NAME | {"species": species, "weight": WEIGHTS})
    model = SoftmaxRegression().fit(whole, "species", sample_weight="weight")
    assert_same(model, SoftmaxRegression().fit(X, Y, WEIGHTS))
    assert model.feature_names_in_.tolist() == NAMES
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_array_equal(model.predict_proba(whole), model.predict_proba(table(BY_NAME)))
    np.testing.assert_array_equal(model.predict(table(BY_NAME | {"weight": WEIGHTS})), model.predict(whole))
    accuracy = (model.predict(whole) == species).mean()
    assert model.score(whole, "species") == pytest.approx(accuracy)
    weighted = np.average(model.predict(whole) == species, weights=WEIGHTS)
    assert model.score(whole, "species", sample_weight="weight") == pytest.approx(weighted)


@pytest.mark.parametrize("fitted_on", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("asked_with", TABLES.values(), ids=TABLES.keys())
def test_a_model_of_one_library_predicts_for_another(fitted_on, asked_with, reference):
    model = SoftmaxRegression().fit(fitted_on(BY_NAME), Y)
    np.testing.assert_allclose(model.predict_proba(asked_with(BY_NAME)), reference.predict_proba(X), atol=1e-9)


def test_names_are_remembered_and_forgotten(reference):
    assert not hasattr(reference, "feature_names_in_")
    model = SoftmaxRegression().fit(pd.DataFrame(BY_NAME), Y)
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)
    with pytest.warns(UserWarning, match="X has feature names, but SoftmaxRegression was fitted without"):
        reference.predict(pd.DataFrame(BY_NAME))
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


# Labels

LABELS = {
    "str": np.array(["x", "y", "z"]),
    "object": np.array(["x", "y", "z"], dtype=object),
    "negative": np.array([-7, 0, 10**12]),
    "float": np.array([0.0, 1.0, 5.0]),
    "uint64": np.array([0, 1, 2**64 - 1], dtype=np.uint64),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_labels_of_any_dtype(labels, reference):
    model = SoftmaxRegression().fit(X, labels[Y])
    assert model.classes_.tolist() == labels.tolist()
    assert_same(model, reference)
    np.testing.assert_array_equal(model.predict(X), labels[reference.predict(X)])


def test_boolean_labels():
    model = SoftmaxRegression().fit(X, Y == 2)
    assert model.classes_.tolist() == [False, True]
    assert_same(model, SoftmaxRegression().fit(X, (Y == 2).astype(int)))
    assert model.predict(X).dtype == bool


@pytest.mark.parametrize(
    "y",
    [
        pd.Categorical.from_codes(Y, ["x", "y", "z"]),
        pd.Series(np.array(["x", "y", "z"])[Y], dtype="category", index=np.arange(len(Y))[::-1]),
        pl.Series(np.array(["x", "y", "z"])[Y], dtype=pl.Categorical),
        pa.array(np.array(["x", "y", "z"])[Y]).dictionary_encode(),
    ],
    ids=["pandas", "series", "polars", "arrow"],
)
def test_categorical_labels(y, reference):
    model = SoftmaxRegression().fit(X, y)
    assert model.classes_.tolist() == ["x", "y", "z"]
    assert_same(model, reference)


def test_soft_labels_are_ordered_by_class(reference):
    columns = ["z", "x", "y"]
    soft = np.eye(3)[Y][:, [2, 0, 1]]
    for model in (
        SoftmaxRegression(classes=columns).fit(X, soft),
        SoftmaxRegression().fit(X, pd.DataFrame(soft, columns=columns)),
    ):
        assert model.classes_.tolist() == ["x", "y", "z"]
        assert_same(model, reference)


def test_a_column_vector_of_labels_warns(reference):
    with pytest.warns(DataConversionWarning):
        assert_same(SoftmaxRegression().fit(X, Y[:, None]), reference)


# Errors


def with_value(value, row=5, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


BAD_DATA = {
    "NaN": ({"X": with_value(np.nan)}, "NaN, first in column 2, row 5"),
    "infinity": ({"X": with_value(-np.inf)}, "infinity, first in column 2, row 5"),
    "NaN in a table": ({"X": pd.DataFrame(with_value(np.nan), columns=NAMES)}, "NaN, first in column 'c', row 5"),
    "NaN in polars": ({"X": pl.DataFrame(with_value(np.nan), schema=NAMES)}, "NaN, first in column 'c', row 5"),
    "null in polars": ({"X": pl.DataFrame(BY_NAME | {"c": [None, *X[1:, 2]]})}, "NaN, first in column 'c', row 0"),
    "NaN in sparse": ({"X": sp.csr_array(with_value(np.nan))}, "NaN, first in column 2, row 5"),
    "strings": ({"X": pd.DataFrame({"a": ["u"] * 150})}, "Column 'a' of X has dtype .* must hold numbers"),
    "complex": ({"X": X.astype(complex)}, "Complex data not supported"),
    "one dimension": ({"X": X[:, 0]}, "Expected 2D array, got 1D array"),
    "no rows": ({"X": X[:0], "y": Y[:0]}, r"0 sample\(s\)"),
    "no columns": ({"X": X[:, :0]}, r"0 feature\(s\)"),
    "one class": ({"y": np.zeros(150, int)}, "one class only"),
    "no target": ({"y": None}, "requires y to be passed"),
    "lengths": ({"y": Y[:-1]}, "X has 150 rows, y has 149"),
    "continuous": ({"y": Y + 0.5}, "Unknown label type: continuous"),
    "missing label": ({"y": np.where(Y == 1, np.nan, Y)}, "missing label"),
    "no such column": ({"X": pd.DataFrame(BY_NAME), "y": "species"}, "y='species' is not a column of X.*'a', 'b'"),
    "no table": ({"y": "species"}, "y='species' names a column, but X .* has no named columns"),
    "no such weight": ({"X": pd.DataFrame(BY_NAME), "sample_weight": "w"}, "sample_weight='w' is not a column"),
    "negative weight": ({"sample_weight": np.r_[-1.0, np.ones(149)]}, "sample_weight is -1.0 in row 0"),
    "NaN weight": ({"sample_weight": np.r_[np.nan, np.ones(149)]}, "sample_weight is nan in row 0"),
    "zero weights": ({"sample_weight": np.zeros(150)}, "Every row has weight zero"),
    "weights' length": ({"sample_weight": np.ones(3)}, r"sample_weight.shape == \(3,\), expected \(150,\)"),
    "negative soft label": ({"y": np.eye(3)[Y] - 0.1}, "must be finite and not negative"),
}
BAD_ARGUMENTS = {
    "undeclared": ({"classes": [0, 1]}, "y holds 2, not among the declared classes 0, 1"),
    "class_weight": ({"class_weight": "even"}, "class_weight must be 'balanced'"),
    "class_weight of no class": ({"class_weight": {7: 1.0}}, "class_weight names 7"),
    "negative alpha": ({"alpha": -1.0}, "alpha=-1.0 must be finite and not negative"),
    "NaN alpha": ({"alpha": np.nan}, "alpha=nan must be finite"),
    "infinite alpha": ({"alpha": np.inf}, "alpha=inf must be finite"),
    "alpha's shape": ({"alpha": np.ones((2, 4))}, r"alpha has shape \(2, 4\).* \(3, 4\)"),
    "alpha per feature": ({"alpha": np.ones(4)}, r"alpha has shape \(4,\)"),
    "alpha's type": ({"alpha": "strong"}, "alpha='strong' must be a number"),
    "intercept": ({"penalize_intercept": -1.0}, "penalize_intercept=-1.0 must be"),
    "intercept of array": ({"alpha": np.ones((3, 4)), "penalize_intercept": True}, "needs a single alpha"),
    "negative tol": ({"tol": -1e-8}, "tol=-1e-08 must be a number that is not negative"),
    "NaN tol": ({"tol": np.nan}, "tol=nan must be"),
    "max_iter": ({"max_iter": 2.5}, "max_iter=2.5 must be a whole number"),
    "solver": ({"solver": "simplex"}, "solver='simplex' is unknown.*'newton'"),
    "solver's type": ({"solver": 3}, "solver=3 is not a solver"),
    "device": ({"device": "abacus"}, "device='abacus' is not available"),
    "no thread": ({"n_jobs": 0}, "n_jobs is 0"),
    "threads' type": ({"n_jobs": "2"}, "n_jobs"),
}
CASES = {name: (options, {}, match) for name, (options, match) in BAD_DATA.items()} | {
    name: ({}, options, match) for name, (options, match) in BAD_ARGUMENTS.items()
}


@pytest.mark.parametrize(("data", "arguments", "match"), CASES.values(), ids=CASES.keys())
def test_wrong_input_is_refused_and_a_fit_stays_what_it_was(data, arguments, match):
    model = SoftmaxRegression(**arguments)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(**{"X": X, "y": Y} | data)
    assert vars(model).keys() == model.get_params(deep=False).keys()

    model = SoftmaxRegression().fit(X, Y)
    before = model.predict_proba(X), model.solution_, set(vars(model))
    model.set_params(**arguments)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(**{"X": X, "y": Y} | data)
    model.set_params(n_jobs=None)
    np.testing.assert_array_equal(model.predict_proba(X), before[0])
    assert model.solution_ is before[1]
    assert set(vars(model)) == before[2]


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"no thread", "threads' type"})
)  # the sequential algorithm has no threads
def test_wrong_input_for_partial_fit(name):
    data, arguments, match = CASES[name]
    model = SoftmaxRegression(**arguments)
    with pytest.raises((ValueError, TypeError), match=match):
        model.partial_fit(**{"X": X, "y": Y} | data)
    assert vars(model).keys() == model.get_params(deep=False).keys()


@pytest.mark.parametrize("name", sorted(BAD_DATA.keys() - {"one class"}))  # later rows need not hold every class
def test_wrong_input_leaves_a_partial_fit_what_it_was(name):
    data, match = BAD_DATA[name]
    model, twin = (SoftmaxRegression().partial_fit(X, Y) for _ in range(2))
    with pytest.raises((ValueError, TypeError), match=match):
        model.partial_fit(**{"X": X, "y": Y} | data)
    np.testing.assert_array_equal(model.partial_fit(X, Y).coef_, twin.partial_fit(X, Y).coef_)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "decision_function"])
def test_wrong_input_for_prediction(method, reference):
    predict = getattr(reference, method)
    with pytest.raises(ValueError, match="X has 3 features, but SoftmaxRegression is expecting 4"):
        predict(X[:, :3])
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="first in column 2, row 5"):
            predict(with_value(value))
    named = getattr(SoftmaxRegression().fit(pd.DataFrame(BY_NAME), Y), method)
    with pytest.raises(ValueError, match="yet now missing:\n- b"):
        named(pd.DataFrame(BY_NAME).drop(columns="b"))
    with pytest.raises(ValueError, match="unseen at fit time:\n- e"):
        named(pd.DataFrame(BY_NAME | {"e": WEIGHTS}))
    with pytest.raises(ValueError, match="same order"):
        named(pd.DataFrame(BY_NAME)[NAMES[::-1]])
    with pytest.raises(ValueError, match="SoftmaxRegression instance is not fitted"):
        getattr(SoftmaxRegression(), method)(X)


def test_infinite_features_are_found_even_where_no_weight_meets_them():
    """A zero coefficient times infinity is NaN, and a class that surely wins hides an infinite logit."""
    model = SoftmaxRegression().fit(X, Y)
    model.coef_[:, 2] = 0.0
    with pytest.raises(ValueError, match="infinity, first in column 2"):
        model.predict(with_value(np.inf))


def test_ordinary_input_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SoftmaxRegression().fit(X, Y).predict(X)
        SoftmaxRegression().fit(pd.DataFrame(BY_NAME), pd.Series(Y)).predict(pd.DataFrame(BY_NAME))


def test_a_prior_as_alpha_names_the_class_that_takes_it():
    with pytest.raises(TypeError, match=r"alpha is a GaussianPrior.*BayesianSoftmaxRegression\(prior="):
        SoftmaxRegression(alpha=GaussianPrior(precision=2.0)).fit(np.eye(4), [0, 1, 0, 1])
