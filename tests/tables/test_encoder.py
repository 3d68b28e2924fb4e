"""TableEncoder: the same numbers from every library, batch by batch or at once, and tables that fit in pipelines."""

import datetime as dt
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import (
    check_global_output_transform_pandas,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    parametrize_with_checks,
)
from tests.slow import quick_first

from posteriori.exceptions import ColumnWarning, UnseenLevelWarning
from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.rows import arrow as streamed_rows
from posteriori.rows.memory import read_features
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.plans import ColumnEncoding, Encoding

COLUMNS = {
    "mass": [3.7, None, 5.1, 4.3],
    "island": ["Dream", "Biscoe", None, "Dream"],
    "sex": ["f", "m", "m", "f"],
    "year": [2007, 2008, 2009, 2008],
    "ringed": [True, False, True, None],
    "seen": [dt.date(2007, 1, 1), dt.date(2007, 1, 15), None, dt.date(2007, 1, 29)],
    "source": ["x", "x", "x", "x"],
    "species": ["A", "A", "G", "C"],
}
NAMES = ["mass", "mass_missing", "island=Biscoe", "island=Dream", "island=(missing)", "sex=m", "year", "ringed"]
NAMES += ["ringed_missing", "seen_years", "seen_missing"]
FORTNIGHT = 14 / 365.25
MEAN = (3.7 + 5.1 + 4.3) / 3
VALUES = [
    [3.7, 0, 0, 1, 0, 0, 2007, 1, 0, -FORTNIGHT, 0],
    [MEAN, 1, 1, 0, 0, 1, 2008, 0, 0, 0, 0],
    [5.1, 0, 0, 0, 1, 1, 2009, 1, 0, 0, 1],
    [4.3, 0, 0, 1, 0, 0, 2008, 2 / 3, 1, FORTNIGHT, 0],
]


def pandas_nullable(columns):
    return pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype)


def arrow_batch(columns):
    return pa.RecordBatch.from_pydict(columns)


tables = pytest.mark.parametrize("table", [pd.DataFrame, pandas_nullable, pl.DataFrame, pa.table, arrow_batch])


def as_matrix(encoded, names=None):
    frame = encoded.read_all() if isinstance(encoded, pa.RecordBatchReader) else encoded
    frame = frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()
    return frame[names or [name for name in frame.columns if name != "species"]].to_numpy(dtype=float)


def mixed_table(n=400, seed=0):
    """Three classes that every column knows something of."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    mass = rng.normal(y, 1.0)
    mass[rng.random(n) < 0.2] = np.nan
    island = np.array(["Biscoe", "Dream", "Torgersen"])[np.where(rng.random(n) < 0.6, y, rng.integers(0, 3, n))]
    return pd.DataFrame(
        {
            "id": np.arange(n),
            "mass": mass,
            "island": np.where(rng.random(n) < 0.1, None, island),
            "day": np.datetime64("2020-01-01") + rng.integers(0, 900, n).astype("m8[D]"),
            "weight": rng.uniform(0.5, 1.5, n),
            "species": np.array(["A", "C", "G"])[y],
        }
    )


# scikit-learn's own checks


@parametrize_with_checks([TableEncoder()])
def test_sklearn_compatible(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:X .* feature names")
@pytest.mark.parametrize(
    "check",
    [
        check_set_output_transform_pandas,
        check_set_output_transform_polars,
        check_global_output_transform_pandas,
        check_transformer_get_feature_names_out,
    ],
)
def test_output_that_is_asked_for(check):
    check("TableEncoder", TableEncoder())


# Values


@tables
def test_values(table):
    X = table(COLUMNS)
    encoder = TableEncoder(min_frequency=1)
    encoded = encoder.fit_transform(X, "species")
    np.testing.assert_allclose(as_matrix(encoded), VALUES, rtol=1e-14, atol=1e-14)
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.feature_names_in_.tolist() == list(COLUMNS)[:-1]
    assert encoder.n_features_in_ == 7
    assert encoder.target_ == "species"


@pytest.mark.parametrize(
    ("table", "kind"), [(pd.DataFrame, pd.DataFrame), (pl.DataFrame, pl.DataFrame), (pa.table, pa.Table)]
)
def test_the_library_of_the_input(table, kind):
    encoded = TableEncoder(min_frequency=1).fit_transform(table(COLUMNS), "species")
    assert isinstance(encoded, kind)
    frame = encoded if kind is pd.DataFrame else encoded.to_pandas()
    assert list(frame.columns) == [*NAMES, "species"]
    assert frame["species"].tolist() == COLUMNS["species"]
    assert (frame.dtypes.iloc[:-1] == np.float64).all()


def test_the_index_is_kept():
    X = pd.DataFrame(COLUMNS, index=["z", "z", "a", "b"])
    encoded = TableEncoder(min_frequency=1).fit_transform(X, "species")
    pd.testing.assert_index_equal(encoded.index, X.index)
    pd.testing.assert_series_equal(encoded["species"], X["species"])


def test_numbers_in_arrays_out():
    X = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0]])
    encoder = TableEncoder().fit(X)
    np.testing.assert_array_equal(encoder.transform(X), [[1, 0], [2, 1], [3, 0]])
    assert encoder.get_feature_names_out().tolist() == ["x0", "x0_missing"]
    assert not hasattr(encoder, "feature_names_in_")
    mixed = TableEncoder(min_frequency=1).fit_transform([[1.0, "a"], [2.0, "b"], [3.0, "c"]])
    np.testing.assert_array_equal(mixed, [[1, 1, 0, 0], [2, 0, 1, 0], [3, 0, 0, 1]])


def test_columns_in_any_order_with_others_between():
    X = pl.DataFrame(COLUMNS)
    encoder = TableEncoder(min_frequency=1).fit(X, "species")
    shuffled = X.select(reversed(X.columns)).with_columns(more=pl.lit("?"))
    np.testing.assert_array_equal(as_matrix(encoder.transform(shuffled)), as_matrix(encoder.transform(X)))


def test_dropped_columns_need_not_come_back():
    X = pl.DataFrame(COLUMNS)
    encoder = TableEncoder(min_frequency=1).fit(X, "species")
    np.testing.assert_allclose(as_matrix(encoder.transform(X.drop("source", "species"))), VALUES, atol=1e-14)


@tables
def test_a_row_is_encoded_alike_in_any_batch(table):
    encoder = TableEncoder(min_frequency=1).fit(table(COLUMNS), "species")
    for n in range(4):
        one = table({name: values[n : n + 1] for name, values in COLUMNS.items()})
        np.testing.assert_allclose(as_matrix(encoder.transform(one)), VALUES[n : n + 1], rtol=1e-14, atol=1e-14)


def test_the_input_is_not_modified():
    X = pd.DataFrame(COLUMNS)
    before = X.copy(deep=True)
    encoded = TableEncoder(min_frequency=1).fit_transform(X, "species")
    encoded.iloc[:, :-1] = 0
    pd.testing.assert_frame_equal(X, before)


def test_the_features_of_an_arrow_table_are_one_matrix_without_a_copy():
    encoded = TableEncoder(min_frequency=1).fit_transform(pa.table(COLUMNS), "species")
    matrix = read_features(encoded, drop=["species"]).matrix
    first = encoded["mass"].to_numpy()
    assert np.shares_memory(matrix, first)
    assert not matrix.flags.writeable
    np.testing.assert_allclose(matrix, VALUES, rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(read_features(encoded.select(["mass", "year"])).matrix[:, 0], first)
    del encoded, first
    np.testing.assert_allclose(matrix, VALUES, rtol=1e-14, atol=1e-14)  # the matrix keeps its memory


def test_many_rows_are_encoded_on_threads_and_errors_are_those_of_one():
    few = mixed_table(1000)
    encoder = TableEncoder().fit(few, "species")
    many = pa.concat_tables([pa.Table.from_pandas(few, preserve_index=False)] * 12)
    expected = np.tile(as_matrix(encoder.transform(few)), (12, 1))
    np.testing.assert_array_equal(as_matrix(encoder.transform(many)), expected)
    numbers = {name: np.arange(20_000.0) / 2 for name in "abcdef"}
    fitted = TableEncoder().fit(pa.table(numbers))
    bad = numbers | {name: np.where(np.arange(20_000) == 7, np.inf, 0.5) for name in "bdf"}
    with pytest.warns(ColumnWarning) as caught:
        fitted.transform(pa.table(bad))
    assert [warning.message.columns for warning in caught] == [("b",), ("d",), ("f",)]
    with pytest.raises(ValueError, match=r"column 'c' holds categories .*; column 'e' is missing"):
        fitted.transform(pa.table(bad | {"c": ["x"] * 20_000}).drop_columns(["e"]))


cells = {
    "n": st.one_of(st.none(), st.integers(-5, 5)),
    "f": st.one_of(st.none(), st.floats(allow_infinity=False, width=32)),
    "c": st.one_of(st.none(), st.sampled_from(["a", "b", "(other)", ""])),
    "t": st.one_of(st.none(), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.fixed_dictionaries(cells), min_size=2, max_size=12), st.integers(1, 3))
def test_fit_transform_is_fit_then_transform_and_has_no_gaps(rows, min_frequency):
    schema = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("c", pa.string()), ("t", pa.timestamp("us"))])
    X = pa.Table.from_pylist(
        [{**row, "sure": n} for n, row in enumerate(rows)], schema.append(pa.field("sure", pa.int8()))
    )
    encoder = TableEncoder(min_frequency=min_frequency)
    encoded = encoder.fit_transform(X)
    assert encoded.equals(clone(encoder).fit(X).transform(X))
    assert np.isfinite(as_matrix(encoded)).all()
    assert encoded.column_names == encoder.get_feature_names_out().tolist()
    np.testing.assert_array_equal(as_matrix(encoder.transform(pl.from_arrow(X))), as_matrix(encoded))


# Streams


@pytest.fixture
def dataset(tmp_path):
    X = pa.Table.from_pandas(mixed_table(1000))
    pq.write_to_dataset(X.slice(0, 300), tmp_path / "part=0", row_group_size=70)
    pq.write_to_dataset(X.slice(300), tmp_path / "part=1", row_group_size=130)
    return ds.dataset(tmp_path)


def test_streamed_is_as_in_memory(dataset):
    X = dataset.to_table()
    streamed, whole = TableEncoder().fit(dataset, "species"), TableEncoder().fit(X, "species")
    pd.testing.assert_frame_equal(streamed.describe(), whole.describe())
    assert streamed.describe().loc["id", "dropped"] == "identifier: whole numbers from 0 to 999, each once"
    again = streamed.transform(dataset)
    encoded, expected = again.to_table(), whole.transform(X)
    assert encoded.equals(again.to_table()), "it can be read again and again"
    assert encoded.equals(again.to_reader().read_all())
    assert encoded.schema == expected.schema
    assert encoded["species"] == X["species"]
    np.testing.assert_allclose(as_matrix(encoded), as_matrix(expected), rtol=1e-12, atol=1e-12)
    assert streamed.fit_transform(dataset, "species").to_table().equals(encoded)


@pytest.mark.parametrize("held", quick_first([0, 1 << 20]), ids=["read in every pass", "held"])
@pytest.mark.parametrize(
    "model", quick_first([SoftmaxRegression(tol=1e-14), BayesianSoftmaxRegression(tol=1e-14), GaussianClassifier()], 2)
)
def test_a_pipeline_is_fitted_to_a_data_set_as_to_its_table(dataset, model, held, monkeypatch):
    monkeypatch.setattr(streamed_rows, "_HELD_BYTES", held)
    X = dataset.to_table()
    one, two = (Pipeline([("encode", TableEncoder()), ("fit", clone(model))]) for _ in range(2))
    one.fit(dataset, "species")
    two.fit(X, "species")
    P = two.predict_proba(X)
    np.testing.assert_allclose(one.predict_proba(dataset), P, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.predict_proba(X), P, rtol=0, atol=1e-8)
    assert list(one[-1].feature_names_in_) == list(two[-1].feature_names_in_)
    assert one.score(dataset, "species") == two.score(X, "species")


def test_a_data_set_without_a_column_is_refused_at_prediction(dataset):
    model = Pipeline([("encode", TableEncoder()), ("fit", SoftmaxRegression())]).fit(dataset, "species")
    fields = [field for field in dataset.schema if field.name != "mass"]
    assert len(fields) < len(dataset.schema)
    with pytest.raises(ValueError, match="mass"):
        model.predict_proba(dataset.replace_schema(pa.schema(fields)))


def test_a_reader_is_read_once(dataset):
    encoder = TableEncoder().fit(dataset.scanner().to_reader(), "species")
    expected = TableEncoder().fit(dataset, "species").transform(dataset).to_table()
    assert encoder.transform(dataset.scanner().to_reader()).read_all().equals(expected)
    with pytest.raises(TypeError, match="can be read only once, and fit_transform reads twice: pass a pyarrow Dataset"):
        encoder.fit_transform(dataset.scanner().to_reader(), "species")


def test_batches_are_not_held(monkeypatch):
    """A stream is read one batch at a time: the next is made only when the last is done with."""
    batch = arrow_batch({"a": [1.0, 2.0], "b": ["x", "y"]})
    pulled = []

    def batches():
        for n in range(5):
            pulled.append(n)
            yield batch

    encoder = TableEncoder(min_frequency=1).fit(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    assert encoder.encoding_.n_rows == 10
    pulled.clear()
    reader = encoder.transform(pa.RecordBatchReader.from_batches(batch.schema, batches()))
    reader.read_next_batch()
    assert pulled == [0]


def test_infinity_in_a_stream_is_told():
    batches = [arrow_batch({"a": [1.0, 2.5]}), arrow_batch({"a": [4.0, np.inf]})]
    with pytest.warns(ColumnWarning, match="Column 'a': infinite numbers, in 1 row, are taken as missing"):
        encoder = TableEncoder().fit(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    reader = encoder.transform(pa.RecordBatchReader.from_batches(batches[0].schema, batches * 3))
    with pytest.warns(ColumnWarning, match="Column 'a' holds infinite numbers, in 3 rows") as caught:
        np.testing.assert_array_equal(reader.read_pandas().to_numpy()[:4], [[1, 0], [2.5, 0], [4, 0], [2.5, 1]])
    assert len(caught) == 1


def test_unseen_levels_in_a_stream_are_told_once(dataset):
    encoder = TableEncoder().fit(dataset.filter(ds.field("island") != "Dream"), "species")
    expected = int((dataset.to_table().to_pandas()["island"] == "Dream").sum())
    with pytest.warns(UnseenLevelWarning) as caught:
        encoder.transform(dataset).to_table()
    assert [(w.message.column, w.message.levels, w.message.n_rows) for w in caught] == [
        ("island", ("Dream",), expected)
    ]


def test_an_empty_stream():
    schema = pa.schema([("a", pa.float64())])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        TableEncoder().fit(pa.RecordBatchReader.from_batches(schema, []))


# Targets, carried columns, pipelines


@pytest.mark.parametrize("convert", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_a_pipeline_from_a_raw_table(convert):
    X = mixed_table()
    pipeline = Pipeline([("encode", TableEncoder(carry=["weight"])), ("fit", SoftmaxRegression())])
    pipeline.fit(convert(X), "species", fit__sample_weight="weight")
    probabilities = pipeline.predict_proba(convert(X))
    np.testing.assert_array_equal(pipeline.predict_proba(convert(X.drop(columns=["species", "weight"]))), probabilities)
    assert np.mean(pipeline.predict(convert(X)) == X["species"]) > 0.6
    encoded = TableEncoder().fit_transform(X.drop(columns=["species", "weight"]))
    by_hand = SoftmaxRegression().fit(encoded, X["species"], sample_weight=X["weight"])
    np.testing.assert_allclose(by_hand.predict_proba(encoded), probabilities, rtol=1e-6)


def test_an_array_as_target_is_ignored():
    X = pd.DataFrame(COLUMNS)
    encoder = TableEncoder(min_frequency=1).fit(X.drop(columns="species"), X["species"])
    assert encoder.target_ is None
    assert list(encoder.transform(X).columns) == NAMES


@tables
def test_carried_columns_are_no_features(table):
    encoder = TableEncoder(min_frequency=1, carry=("year", "sex")).fit(table(COLUMNS), "species")
    encoded = encoder.transform(table(COLUMNS))
    names = encoded.columns if hasattr(encoded, "iloc") or isinstance(encoded, pl.DataFrame) else encoded.column_names
    assert list(names)[-3:] == ["species", "year", "sex"]
    assert "year" not in encoder.get_feature_names_out()
    assert list(encoded["year"]) == list(table(COLUMNS)["year"])


def test_output_can_be_asked_for_with_a_target():
    X = pd.DataFrame(COLUMNS)
    encoder = TableEncoder(min_frequency=1)
    with config_context(transform_output="polars"):
        encoded = encoder.fit_transform(X, "species")
    assert isinstance(encoded, pl.DataFrame)
    assert encoded["species"].to_list() == COLUMNS["species"]
    encoded = clone(encoder.set_output(transform="pandas")).fit_transform(pl.DataFrame(COLUMNS), "species")
    assert isinstance(encoded, pd.DataFrame)
    np.testing.assert_allclose(as_matrix(encoded), VALUES, atol=1e-14)
    with pytest.raises(ValueError, match="transform must be 'default', 'pandas', 'polars' or None, got 'dask'"):
        encoder.set_output(transform="dask")


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({}, "gone", "y names the column 'gone', and the columns of X are 'mass'"),
        ({"carry": ["w"]}, None, "carry names the column 'w', and the columns of X are"),
        ({"carry": "weight"}, None, "carry must be a sequence of column names, such as .*got 'weight'"),
        ({"min_frequency": 0}, None, "min_frequency=0 must be a whole number of at least 1"),
        ({"max_levels": 2.5}, None, r"max_levels=2\.5 must be a whole number of at least 1"),
        ({"keep": ["k"]}, None, "keep names the column 'k', and the columns of X are"),
        ({"keep": "mass"}, None, "keep must be a sequence of column names, such as .*got 'mass'"),
        ({"drop_identifiers": "no"}, None, "drop_identifiers='no' must be True or False"),
    ],
)
def test_arguments(settings, y, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**settings).fit(pd.DataFrame(COLUMNS), y)


def test_an_array_has_no_named_columns():
    with pytest.raises(ValueError, match=r"y names the column 'a', but X \(ndarray\) has no named columns"):
        TableEncoder().fit(np.eye(3), "a")


@tables
def test_a_table_that_does_not_match(table):
    encoder = TableEncoder(min_frequency=1).fit(table(COLUMNS), "species")
    wrong = {**COLUMNS, "mass": ["heavy"] * 4, "sex": [0, 1, 1, 0]}
    del wrong["island"]
    with pytest.raises(ValueError, match=r"column 'mass' holds categories .*'island' is missing .*'sex' holds numbers"):
        encoder.transform(table(wrong))


def test_names_may_be_numbers():
    X = pd.DataFrame([[1.0, "a"], [2.0, "b"]])
    encoder = TableEncoder(min_frequency=1).fit(X)
    assert encoder.get_feature_names_out().tolist() == ["0", "1=b"]
    np.testing.assert_array_equal(encoder.transform(X), [[1, 0], [2, 1]])
    assert not hasattr(encoder, "feature_names_in_")


def test_two_columns_of_one_name():
    for X in pd.DataFrame([[1, 2]], columns=["a", "a"]), pd.DataFrame([[1, 2]], columns=["0", 0]):
        with pytest.raises(ValueError, match="X has two columns of one name"):
            TableEncoder().fit(X)


def test_names_on_one_side_only():
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [4.0, 3.0]})
    encoder = TableEncoder().fit(X)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but TableEncoder was fitted with"):
        np.testing.assert_array_equal(encoder.transform(X.to_numpy()), X)
    encoder.fit(X.to_numpy())
    with pytest.warns(UserWarning, match="X has feature names, but TableEncoder was fitted without"):
        np.testing.assert_array_equal(encoder.transform(X), X)
    with pytest.warns(UserWarning, match="X has feature names"):
        stream = encoder.transform(pa.Table.from_pandas(X).to_reader())
    np.testing.assert_array_equal(stream.read_pandas(), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.transform(X.to_numpy())


def test_a_sparse_matrix_is_refused():
    import scipy.sparse as sp

    with pytest.raises(TypeError, match=r"X is a sparse matrix .* pass them to the classifier"):
        TableEncoder().fit(sp.eye_array(3).tocsr())


def test_not_fitted():
    for method in ("describe", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(TableEncoder(), method)()


def test_a_failed_fit_leaves_nothing_behind():
    encoder = TableEncoder()
    with pytest.raises(ValueError, match="No column of the table can be used"):
        encoder.fit(pd.DataFrame({"a": [1.0, 1.0]}))
    assert vars(encoder) == vars(TableEncoder())


# Telling people


def test_describe():
    table = TableEncoder(min_frequency=1).fit(pd.DataFrame(COLUMNS), "species").describe()
    assert table.index.tolist() == list(COLUMNS)[:-1]
    assert table.columns.tolist() == ["kind", "dtype", "missing", "values", "becomes", "dropped", "note"]
    assert table.loc["mass"].tolist() == ["number", "float64", 0.25, "3.7 to 5.1", "mass, mass_missing", "", ""]
    assert table.loc["sex"].tolist() == ["category", "str", 0, "f, m", "sex=m", "", ""]
    assert table.loc["source", ["becomes", "dropped"]].tolist() == ["", "constant"]
    assert table.loc["seen", "values"] == "2007-01-01T00:00:00 to 2007-01-29T00:00:00"


def test_describe_tells_of_pools():
    X = pl.DataFrame({"a": [f"{n % 9}" for n in range(90)], "b": pl.Series(range(90)).cast(pl.Duration("ms"))})
    table = TableEncoder(max_levels=6).fit(X).describe()
    assert table["values"].tolist() == ["9 levels, 3 of them pooled", "0 to 0.089 seconds"]
    assert table.loc["a", "becomes"] == "7 columns: a=0, a=1, a=2, a=3, a=4, ..."


def test_what_was_learned_is_plain_and_travels():
    X = pd.DataFrame(COLUMNS)
    encoder = TableEncoder(min_frequency=1).fit(X, "species")
    assert isinstance(encoder.encoding_, Encoding)
    assert all(isinstance(column, ColumnEncoding) for column in encoder.encoding_.columns)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.encoding_ == encoder.encoding_
    pd.testing.assert_frame_equal(copy.transform(X), encoder.transform(X))
