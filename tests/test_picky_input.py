"""Rows and labels as strangers hold them, given to every classifier and to those around classifiers."""

import decimal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from tests.slow import quick_first

import posteriori as po

pl = pytest.importorskip("polars")

IRIS, KIND = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(150)
X, Y = IRIS[ORDER], KIND[ORDER]
LABELS = np.array(["a", "b", "c"])[Y]
COLUMNS = list("pqrs")
TABLE = pd.DataFrame(X, columns=COLUMNS)
MODELS = {
    "softmax": lambda: po.SoftmaxRegression(),
    "calibrated": lambda: po.CalibratedClassifier(po.SoftmaxRegression(), cv=3),
    "conformal": lambda: po.ConformalClassifier(po.SoftmaxRegression()),
    "bayes": lambda: po.BayesianSoftmaxRegression(1.0, approximation="laplace"),
    "gaussian": lambda: po.GaussianClassifier("tied", estimate="map"),
    "isotonic": lambda: po.CalibratedClassifier(po.SoftmaxRegression(), cv=3, method="isotonic"),
    "utility": lambda: po.UtilityClassifier(po.SoftmaxRegression()),
}
every_model = pytest.mark.parametrize("name", quick_first(MODELS, 3))
_plain = {}


def plain(name):
    """Probabilities of the model fitted to the plain array, fitted once."""
    if name not in _plain:
        _plain[name] = MODELS[name]().fit(X, Y).predict_proba(X)
    return _plain[name]


# Labels


def first_missing(values):
    return [None, *values[1:]]


NAMED = {
    "pandas category": pd.Categorical(LABELS),
    "category with unused levels": pd.Series(pd.Categorical(LABELS, categories=["z", "c", "a", "b"])),
    "pandas string": pd.Series(LABELS, dtype="string"),
    "pandas string of Arrow": pd.Series(LABELS, dtype="string[pyarrow]"),
    "pandas index": pd.Index(LABELS),
    "polars": pl.Series(LABELS),
    "polars category": pl.Series(LABELS).cast(pl.Categorical),
    "Arrow": pa.array(LABELS),
    "Arrow in chunks": pa.chunked_array([LABELS[:70], LABELS[70:]]),
    "Arrow dictionary": pa.array(LABELS).dictionary_encode(),
    "list": LABELS.tolist(),
    "tuple": tuple(LABELS.tolist()),
    "objects": LABELS.astype(object),
}
NUMBERED = {
    "pandas Int64": pd.Series(Y, dtype="Int64"),
    "objects": Y.astype(object),
    "polars": pl.Series(Y),
    "Arrow": pa.array(Y),
    "list": Y.tolist(),
    "small integers": Y.astype(np.uint8),
}
BOOLEAN = {
    "pandas boolean": pd.Series(Y > 0, dtype="boolean"),
    "polars": pl.Series(Y > 0),
    "list": (Y > 0).tolist(),
    "objects": (Y > 0).astype(object),
}
MISSING = {
    "NaN": np.where(np.arange(150) == 0, np.nan, Y),
    "None in a list": first_missing(LABELS.tolist()),
    "NaN among text": [np.nan, *LABELS[1:].tolist()],
    "pandas Int64": pd.Series(first_missing(Y.tolist()), dtype="Int64"),
    "pandas boolean": pd.Series(first_missing((Y > 0).tolist()), dtype="boolean"),
    "pandas string": pd.Series(first_missing(LABELS.tolist()), dtype="string"),
    "pandas category": pd.Series(pd.Categorical(first_missing(LABELS.tolist()))),
    "polars": pl.Series(first_missing(LABELS.tolist())),
    "polars integers": pl.Series(first_missing(Y.tolist())),
    "Arrow": pa.array(first_missing(LABELS.tolist())),
}


@every_model
@pytest.mark.parametrize(
    "kind",
    [
        f"{group}: {kind}"
        for group, kinds in (("named", NAMED), ("numbered", NUMBERED), ("boolean", BOOLEAN))
        for kind in kinds
    ],
)
def test_labels_of_every_kind(name, kind):
    group, _, kind = kind.partition(": ")
    y = {"named": NAMED, "numbered": NUMBERED, "boolean": BOOLEAN}[group][kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MODELS[name]().fit(X, y)
        score = model.score(X, y)
    classes = {"named": ["a", "b", "c"], "numbered": [0, 1, 2], "boolean": [False, True]}[group]
    assert model.classes_.tolist() == classes
    assert model.classes_.dtype.kind in {"named": "UO", "numbered": "iu", "boolean": "b"}[group]
    assert score > 0.9
    if group != "boolean":
        np.testing.assert_allclose(model.predict_proba(X), plain(name), atol=1e-12)


@every_model
@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels_are_refused_with_their_row(name, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"y has 1 missing label, the first in row 0 \(counted from 0\): remove"):
            MODELS[name]().fit(X, MISSING[kind])


@every_model
def test_other_labels_are_refused(name):
    for y, message in (
        (X[:, 0], "Unknown label type: continuous"),
        (np.where(np.arange(150) == 3, np.inf, Y), "Unknown label type: infinity"),
        (np.array(["a", 1] * 75, dtype=object), "labels of type int, str, which cannot be sorted"),
        (Y[:-1], "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            MODELS[name]().fit(X, y)


# Rows


def frozen(rows):
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


ROWS = {
    "objects": lambda: X.astype(object),
    "decimals": lambda: np.array([[decimal.Decimal(repr(float(v))) for v in row] for row in X]),
    "table of objects": lambda: TABLE.astype(object),
    "long double": lambda: X.astype(np.longdouble),
    "other byte order": lambda: X.astype(X.dtype.newbyteorder()),
    "masked, nothing missing": lambda: np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool)),
    "read-only": lambda: frozen(X),
    "every other column": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "columns in memory": lambda: np.asfortranarray(X),
    "lists": lambda: X.tolist(),
    "nullable columns": lambda: TABLE.astype("Float64"),
    "columns of Arrow in pandas": lambda: TABLE.astype("double[pyarrow]"),
    "numbers as names": lambda: TABLE.set_axis(range(4), axis=1),
    "names of mixed types": lambda: TABLE.set_axis(["p", 1, None, "s"], axis=1),
    "names of two levels": lambda: TABLE.set_axis(pd.MultiIndex.from_product([["a"], COLUMNS]), axis=1),
}


@every_model
@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_every_kind(name, kind):
    rows = ROWS[kind]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        P = MODELS[name]().fit(rows, Y).predict_proba(rows)
    np.testing.assert_allclose(P, plain(name), atol=1e-10)


@every_model
def test_rows_of_a_file_in_memory_maps_and_of_half_precision(name, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    np.testing.assert_allclose(MODELS[name]().fit(rows, Y).predict_proba(rows), plain(name), atol=1e-12)
    half = X.astype(np.float16)
    same = MODELS[name]().fit(half.astype(float), Y).predict_proba(half.astype(float))
    np.testing.assert_allclose(MODELS[name]().fit(half, Y).predict_proba(half), same, atol=1e-12)


@every_model
def test_nullable_integers_and_booleans_are_numbers(name):
    table = TABLE.assign(i=pd.array(Y * 2, dtype="Int64"), b=pd.array(Y > 1, dtype="boolean"))
    numbers = np.column_stack([X, Y * 2, Y > 1])
    model, other = MODELS[name]().fit(table, Y), MODELS[name]().fit(numbers, Y)
    np.testing.assert_allclose(model.predict_proba(table), other.predict_proba(numbers), atol=1e-9)
    table["i"] = pd.array(first_missing(Y.tolist()), dtype="Int64")
    with pytest.raises(ValueError, match=r"X contains NaN, first in column 'i', row \d+ \(counted from 0\)"):
        MODELS[name]().fit(table, Y)


NOT_NUMBERS = {
    "category": pd.Categorical(LABELS),
    "category of numbers": pd.Categorical(Y),
    "text": LABELS.astype(object),
    "string of Arrow": pd.array(LABELS, dtype="string[pyarrow]"),
    "numbers as text": pd.array(X[:, 0].astype(str), dtype="string[pyarrow]"),
    "dates": pd.date_range("2020", periods=150),
    "durations": pd.to_timedelta(np.arange(150), unit="s"),
}


@every_model
@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_columns_that_are_not_numbers_lead_to_the_table_encoder(name, kind):
    with pytest.raises(ValueError, match=r"Column 'other' of X has dtype .* with TableEncoder in a Pipeline"):
        MODELS[name]().fit(TABLE.assign(other=NOT_NUMBERS[kind]), Y)


@every_model
def test_arrays_that_are_not_real_numbers_are_refused(name):
    mask = np.zeros_like(X, dtype=bool)
    mask[3, 1] = True
    for rows, message in (
        (X + 0j, "Complex data not supported"),
        (X.astype(str), "X has dtype <U32 and must hold numbers: .* TableEncoder"),
        (np.where(mask, "red", X.astype(object)), "X holds the string 'red' and must hold numbers: .* TableEncoder"),
        (np.ma.masked_array(X, mask=mask), "X contains NaN, first in column 1"),
        (np.where(mask, np.inf, X), "X contains infinity, first in column 1"),
        (TABLE.set_axis(["p", "p", "r", "s"], axis=1), "X has two columns of one name"),
        (X[:, :0], r"0 feature\(s\)"),
        (X[:, 0], "Expected 2D array, got 1D array"),
    ):
        with pytest.raises(ValueError, match=message):
            MODELS[name]().fit(rows, Y)


def test_what_is_not_a_matrix_is_refused_with_what_to_do():
    fields = np.rec.fromarrays(X.T, names="p,q,r,s")
    for rows, message in (
        (None, "got scalar array .*NoneType.* Pass a table"),
        ({"p": X[:, 0]}, "got scalar array .*dict.* Pass a table"),
        ("rows.csv", r"got scalar array .*str.* pyarrow\.dataset\.dataset\(path\) of files"),
        (fields, r"got 1D array .*named fields: pass it as a table, pandas\.DataFrame\(X\)"),
        (X[:, 0], r"got 1D array .*array\.reshape\(-1, 1\)"),
        (X[None], "got 3D array .*one row per sample"),
    ):
        with pytest.raises(ValueError, match=message):
            po.SoftmaxRegression().fit(rows, Y)
    model = po.SoftmaxRegression().fit(TABLE, Y)
    np.testing.assert_array_equal(model.predict(pd.DataFrame(fields)), model.predict(TABLE))


@every_model
def test_messages_about_columns_are_those_of_scikit_learn(name):
    model, peer = MODELS[name]().fit(TABLE, Y), LogisticRegression(max_iter=1000).fit(TABLE, Y)
    for rows in (
        TABLE[COLUMNS[::-1]],
        TABLE[COLUMNS[:3]],
        TABLE.assign(z=1.0),
        TABLE.rename(columns={"p": "P"}),
        TABLE.rename(columns=lambda c: f"new {c}").assign(**{f"n{i}": 0.0 for i in range(9)}),
    ):
        messages = []
        for each in (model, peer):
            with pytest.raises(ValueError, match="feature names should match") as raised:
                each.predict(rows)
            messages.append(str(raised.value).strip())
        assert messages[0] == messages[1]
    with pytest.warns(UserWarning, match="X does not have valid feature names, but .* was fitted with feature names"):
        model.predict(X)
    assert model.predict_proba(TABLE.iloc[:1]).shape == (1, 3)


# Weights and names of columns

WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 150).round(3)
WEIGHT_KINDS = {
    "pandas with another index": lambda: pd.Series(WEIGHTS, index=np.arange(150)[::-1]),
    "pandas Float64": lambda: pd.Series(WEIGHTS, dtype="Float64"),
    "polars": lambda: pl.Series(WEIGHTS),
    "Arrow": lambda: pa.array(WEIGHTS),
    "list": lambda: WEIGHTS.tolist(),
}


@every_model
@pytest.mark.parametrize("kind", WEIGHT_KINDS)
def test_weights_of_every_kind(name, kind):
    model = MODELS[name]().fit(X, Y, sample_weight=WEIGHT_KINDS[kind]())
    expected = MODELS[name]().fit(X, Y, sample_weight=WEIGHTS).predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)
    assert np.abs(expected - plain(name)).max() > 1e-6


@every_model
def test_a_number_weighs_all_rows(name):
    twice = MODELS[name]().fit(X, Y, sample_weight=np.full(150, 2.0)).predict_proba(X)
    np.testing.assert_allclose(MODELS[name]().fit(X, Y, sample_weight=2.0).predict_proba(X), twice, atol=1e-12)


@every_model
@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_target_and_weights_may_be_columns_everywhere(name, table):
    named = table({**dict(zip(COLUMNS, X.T, strict=True)), "weight": WEIGHTS, "kind": LABELS})
    model = MODELS[name]().fit(named, "kind", sample_weight="weight")
    expected = MODELS[name]().fit(X, LABELS, sample_weight=WEIGHTS).predict_proba(X)
    for rows in (named, named[COLUMNS]):
        np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-9)
    assert list(model.feature_names_in_) == COLUMNS
    assert model.score(named, "kind") == model.score(named[COLUMNS], LABELS)
    weighted = model.score(named, "kind", sample_weight="weight")
    assert weighted == pytest.approx(model.score(named[COLUMNS], LABELS, sample_weight=WEIGHTS))
