"""Predictions written while they are made: those of the model, in one file or none."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.pipeline import Pipeline

import posteriori as po
from posteriori.estimators import predict_to as module

N = 500


def table(n=N):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    island = pa.array(["Biscoe", "Dream"]).take(pa.array((rng.random(n) < 0.3).astype(int)))
    kind = np.where(x + rng.logistic(size=n) > 0, "a", "b")
    return pa.table({"number": np.arange(n), "x": x, "island": island, "kind": kind})


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 64)
    pipeline = Pipeline([("encode", po.TableEncoder()), ("fit", po.SoftmaxRegression())])
    return pipeline.fit(table(), "kind")


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".csv":
        return csv.read_csv(path)
    return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize(
    "given", [ds.dataset, lambda t: t, lambda t: t.to_reader()], ids=["dataset", "table", "reader"]
)
def test_all_rows_are_written_in_their_order(model, suffix, given, tmp_path):
    path = tmp_path / f"p{suffix}"
    assert po.predict_to(model, given(table()), path, keep=["number"]) == N
    written = read(path)
    assert written.column_names == ["number", "prediction", "p(a)", "p(b)"]
    P = model.predict_proba(table())
    np.testing.assert_array_equal(written["number"].to_numpy(), np.arange(N))
    np.testing.assert_allclose(np.column_stack([written["p(a)"], written["p(b)"]]), P, rtol=1e-12)
    assert written["prediction"].to_pylist() == model.predict(table()).tolist()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_failure_leaves_the_old_file(model, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("old")
    schema = table().schema

    def batches():
        yield from table(64).to_batches()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        po.predict_to(model, pa.RecordBatchReader.from_batches(schema, batches()), path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written_is_said(model, tmp_path):
    with pytest.raises(ValueError, match=r"keep names \['mass'\]"):
        po.predict_to(model, table(), tmp_path / "p.csv", keep=["mass"])
    with pytest.raises(ValueError, match="no kind that is known"):
        po.predict_to(model, table(), tmp_path / "p.xls")
    with pytest.raises(ValueError, match="no rows"):
        po.predict_to(model, table().slice(0, 0), tmp_path / "p.csv")
    with pytest.raises(TypeError, match="dataset is a list"):
        po.predict_to(model, [[1.0]], tmp_path / "p.csv")
    assert not list(tmp_path.iterdir())


def test_labels_of_mixed_kinds_are_written_as_text():
    assert module.labels_column(np.array([1, "a"], dtype=object)).to_pylist() == ["1", "a"]
