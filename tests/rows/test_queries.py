"""Queries that have not been run are tables: LazyFrames of polars, relations of DuckDB, streams of Arrow."""

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

import posteriori as po
from posteriori.rows.matrices import collected, is_table


class ArrowStream:
    """An object of an unknown library that can give out a stream of Arrow."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def frame(n=80):
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, n))
    kind = rng.choice(["u", "v"], n)
    return pl.DataFrame({"a": a, "b": b, "kind": kind, "y": np.where(a + rng.normal(size=n) > 0, "p", "q")})


def queries(table):
    connection = duckdb.connect()
    connection.register("given", table.to_arrow())
    return [table.lazy(), connection.sql("select * from given"), ArrowStream(table.to_arrow())]


@pytest.mark.parametrize("i", range(3), ids=["polars", "duckdb", "stream"])
@pytest.mark.parametrize(
    "model",
    [
        po.SoftmaxRegression(),
        po.BayesianSoftmaxRegression(),
        po.GaussianClassifier("tied"),
        po.CalibratedClassifier(po.SoftmaxRegression(), cv=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_read_queries(model, i):
    table = frame().drop("kind")
    expected = model.fit(table, "y").predict_proba(table)
    query = queries(table)[i]
    assert is_table(query)
    fitted = model.fit(query, "y")
    np.testing.assert_allclose(fitted.predict_proba(query), expected, rtol=1e-10, atol=1e-12)
    if not isinstance(model, po.CalibratedClassifier):
        assert fitted.score(query, "y") == model.score(table, "y")


def test_encoders_read_queries():
    table = frame()
    expected = po.TableEncoder().fit_transform(table, "y")
    lazy, relation, stream = (po.TableEncoder().fit_transform(query, "y") for query in queries(table))
    assert isinstance(lazy, pl.DataFrame)
    assert lazy.equals(expected)
    assert isinstance(relation, pa.Table)
    for found in (relation, stream):
        assert found.column_names == expected.columns
        np.testing.assert_array_equal(found["kind=v"].to_numpy(), expected["kind=v"].to_numpy())
    model = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, "y")
    for query in queries(table):
        np.testing.assert_allclose(model.predict_proba(query), model.predict_proba(table), rtol=1e-12)
        assert po.evaluate(model, query, "y").scores["accuracy"].value == model.score(table.drop("y"), table["y"])


def test_empty_queries_and_names_twice():
    empty = frame().drop("kind").clear()
    for query in queries(empty):
        with pytest.raises(ValueError, match="0 sample"):
            po.SoftmaxRegression().fit(query, "y")
        with pytest.raises(ValueError, match="0 sample"):
            po.TableEncoder().fit(query, "y")
    twice = ArrowStream(pa.table([pa.array([1.0, 2.0])] * 2, names=["a", "a"]))
    for estimator in (po.SoftmaxRegression(), po.TableEncoder()):
        with pytest.raises(ValueError, match="two columns of one name"):
            estimator.fit(twice, ["p", "q"])


def test_what_is_not_a_query_stays_what_it_is():
    reader = pa.table({"a": [1]}).to_reader()
    for X in (np.eye(2), [[1.0]], frame(), frame()["a"], pa.chunked_array([[1.0]]), reader, None):
        assert collected(X) is X
    assert not is_table(reader)
    assert not is_table(frame()["a"])
