"""Predictions written while they are made: those of the model, in one file or none."""

import bz2
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.pipeline import Pipeline

import posteriori as po
from posteriori.meta import predict_to as module
from posteriori.meta.batch_predictor import labels_column
from posteriori.tables.files import open_files

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
    with pytest.raises(ValueError, match=r"keep names 'mass'"):
        po.predict_to(model, table(), tmp_path / "p.csv", keep=["mass"])
    with pytest.raises(ValueError, match="does not show a known format"):
        po.predict_to(model, table(), tmp_path / "p.xls")
    with pytest.raises(ValueError, match="no rows"):
        po.predict_to(model, table().slice(0, 0), tmp_path / "p.csv")
    with pytest.raises(TypeError, match="dataset is a list"):
        po.predict_to(model, [[1.0]], tmp_path / "p.csv")
    assert not list(tmp_path.iterdir())


def test_columns_that_the_model_does_not_know_are_kept(tmp_path):
    given = table().select(["x", "kind"])
    model = po.SoftmaxRegression().fit(given, "kind")
    assert (
        po.predict_to(model, table().select(["number", "x", "kind"]), tmp_path / "p.csv", keep=["number", "kind"]) == N
    )
    assert read(tmp_path / "p.csv").column_names == ["number", "kind", "prediction", "p(a)", "p(b)"]
    with pytest.raises(ValueError, match=r"such as \['number'\]"):
        po.predict_to(model, given, tmp_path / "q.csv", keep="number")
    with pytest.raises(ValueError, match="rename these columns"):
        po.predict_to(model, given.append_column("prediction", given["x"]), tmp_path / "q.csv", keep=["prediction"])


def test_empty_batches_are_passed_over(model, tmp_path):
    parts = pa.concat_tables([table().slice(0, 10), table().slice(0, 0), table().slice(10)])
    assert po.predict_to(model, parts, tmp_path / "p.parquet") == N


def test_missing_numbers_are_null_in_json(model, tmp_path):
    given = table(3).append_column("z", pa.array([1.0, float("nan"), None]))
    po.predict_to(model, given, tmp_path / "p.jsonl", keep=["z"])
    assert [json.loads(line)["z"] for line in (tmp_path / "p.jsonl").read_text().splitlines()] == [1.0, None, None]


@pytest.mark.parametrize("name", ["p.csv.gz", "p.tsv", "p.jsonl.bz2"])
def test_files_are_what_their_names_say(model, name, tmp_path):
    path = tmp_path / name
    po.predict_to(model, table(), path, keep=["number"])
    if "jsonl" in name:
        lines = bz2.decompress(path.read_bytes()).decode().splitlines()
        assert json.loads(lines[4])["number"] == 4
    else:
        found = open_files([str(path)]).to_table()
        assert found.column_names == ["number", "prediction", "p(a)", "p(b)"]
        assert found["number"].to_pylist() == list(range(N))
    with pytest.raises(ValueError, match=r"leave \.gz out"):
        po.predict_to(model, table(), tmp_path / "p.parquet.gz")


def test_labels_of_mixed_kinds_are_written_as_text():
    assert labels_column(np.array([1, "a"], dtype=object)).to_pylist() == ["1", "a"]
