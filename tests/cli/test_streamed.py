"""Tables larger than memory: the commands read them in passes, and the output is that of a table in memory."""

import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app
from posteriori.meta.selection import MODELS
from posteriori.tables.labelled import RowsWithTarget
from posteriori.tables.surveys import Survey

N = 3_000


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"NO_COLOR": "1", "COLUMNS": "120"})


def ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    kind = np.where(x + rng.logistic(size=n) > 0, "a", "b").astype(object)
    kind[::50] = None
    return pd.DataFrame({"x": x, "z": rng.normal(size=n), "island": rng.choice(["u", "v", "w"], n), "kind": kind})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    table = rows()
    for part, start in enumerate(range(0, N, 1000)):
        table.iloc[start : start + 1000].to_parquet(folder / f"part-{part}.parquet")
    table.to_csv(folder / "all.csv", index=False)
    return folder


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr("posteriori.cli.training_rows.available_memory", lambda: 1e4)
    monkeypatch.setattr("posteriori.cli.training_rows._MOST_SAMPLED", 500)


def fitted(*arguments):
    return json.loads(ok("fit", *arguments, "--target", "kind", "--json").stdout)


@pytest.mark.parametrize(("model", "name"), [("bayes", "all.csv"), ("gaussian", "part-*.parquet")])
def test_a_fit_in_passes_is_that_in_memory(folder, tmp_path, model, name, monkeypatch):
    monkeypatch.setattr("posteriori.cli.fit.is_checked", lambda *_: False)
    monkeypatch.setitem(MODELS, "gaussian", partial(po.GaussianClassifier, "tied"))
    whole = fitted(folder / name, "--model", model, "--out", tmp_path / "whole")
    monkeypatch.setattr("posteriori.cli.training_rows.available_memory", lambda: 1e4)
    monkeypatch.setattr(RowsWithTarget, "to_table", lambda _: pytest.fail("all rows were read into memory"))
    result = ok("fit", folder / name, "--target", "kind", "--model", model, "--out", tmp_path / "passes", "--json")
    passes = json.loads(result.stdout)
    assert "60 rows without kind are left out." in result.stderr
    assert passes["rows"] == whole["rows"] == N - 60
    assert whole["passes"] is None
    assert passes["passes"] >= 3  # one counts the classes, one looks at the columns, and the fit reads them
    assert passes["classes"] == whole["classes"]
    assert passes["columns"] == whole["columns"]
    new = rows(200, seed=1).drop(columns="kind")
    P, Q = (po.load(tmp_path / each).predict_proba(new) for each in ("whole", "passes"))
    np.testing.assert_allclose(P, Q, atol=2e-4 if model == "bayes" else 2e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
def test_auto_compares_on_a_sample_and_fits_all_rows(folder, monkeypatch):
    monkeypatch.setattr("posteriori.meta.selection._MOST_ROWS_OF_GP", 0)
    summary = fitted(folder / "part-*.parquet")
    assert summary["rows"] == N - 60
    assert "500 rows left out" in summary["choice"]["reason"]
    assert summary["learned"]


@pytest.mark.usefixtures("little_memory")
def test_gaussian_processes_need_memory(folder):
    result = run("fit", folder / "part-*.parquet", "--target", "kind", "--model", "gp")
    assert result.exit_code == 2
    assert "needs all rows in memory, and 2,940 rows are too many" in " ".join(result.stderr.split())


def test_classes_are_counted_and_rows_sampled_in_one_pass(folder, monkeypatch):
    table = pa.Table.from_pandas(rows(), preserve_index=False)
    pq.write_table(table, folder / "one.parquet", row_group_size=100)
    data = RowsWithTarget(pa.dataset.dataset(folder / "one.parquet"), "kind", ["z"])
    monkeypatch.setattr("posteriori.tables.labelled._ROWS", 128)
    found = data.count(300, seed=0)
    known = rows().dropna(subset="kind")
    assert (found.n_rows, found.n_unknown) == (len(known), 60)
    assert found.counts == known["kind"].value_counts().sort_index().to_dict()
    sample = found.sample.to_pandas()
    assert list(sample.columns) == ["x", "island", "kind"]
    places = known.reset_index(drop=True).reset_index().set_index("x").loc[sample["x"], "index"].to_numpy()
    assert (np.diff(places) > 0).all()  # each row once, in their order
    assert 0.3 < places.mean() / len(known) < 0.7
    again = data.count(300, seed=1).sample
    assert again["x"].to_pylist() != found.sample["x"].to_pylist()


def test_every_row_has_the_same_chance(folder):
    data = RowsWithTarget(pa.dataset.dataset(pa.table({"x": np.arange(40), "y": ["a", "b"] * 20})), "y")
    chosen = np.zeros(40)
    for seed in range(600):
        chosen[data.count(10, seed).sample["x"].to_numpy()] += 1
    expected, sd = 150.0, np.sqrt(600 * 0.25 * 0.75)
    assert np.abs(chosen - expected).max() < 4.5 * sd


def test_rows_are_read_once_and_encoded_once(folder, tmp_path, monkeypatch):
    ok("fit", folder / "all.csv", "--target", "kind", "--model", "bayes", "--out", tmp_path / "m")
    passes, sizes = [], []
    before = Survey.pieces

    def pieces(self, *arguments):
        passes.append(1)
        for batch, kept in before(self, *arguments):
            sizes.append(batch.num_rows)
            yield batch, kept

    encoded = []
    monkeypatch.setattr(Survey, "pieces", pieces)
    from posteriori.tables import sources

    encode = sources.encode
    monkeypatch.setattr(sources, "encode", lambda *a: encoded.append(1) or encode(*a))
    monkeypatch.setattr("posteriori.cli.predict.ROWS_AT_ONCE", 500)
    out = tmp_path / "p.parquet"
    ok("predict", tmp_path / "m", folder / "part-*.parquet", "--interval", 0.9, "--uncertainty", "--out", out)
    assert len(passes) == 1
    assert max(sizes) <= 500
    assert len(encoded) == len(sizes) == 6
    assert pq.read_table(out).num_rows == N
    model, table = po.load(tmp_path / "m"), rows()
    lower, upper = model[-1].predict_interval(model[0].transform(table), 0.9)
    written = pq.read_table(out).to_pandas()
    np.testing.assert_allclose(written["p(a) lower"], lower[:, 0], atol=1e-9)
    np.testing.assert_allclose(written["p(a) upper"], upper[:, 0], atol=1e-9)


def test_evaluation_keeps_probabilities_and_classes_alone(folder, tmp_path, monkeypatch):
    ok("fit", folder / "all.csv", "--target", "kind", "--model", "bayes", "--out", tmp_path / "m")
    whole = json.loads(ok("evaluate", tmp_path / "m", folder / "all.csv", "--json").stdout)
    monkeypatch.setattr("posteriori.cli.evaluate.ROWS_AT_ONCE", 250)
    parts = json.loads(ok("evaluate", tmp_path / "m", folder / "part-*.parquet", "--json").stdout)
    assert parts["confusion"] == whole["confusion"]
    assert parts["scores"]["log_loss"]["value"] == pytest.approx(whole["scores"]["log_loss"]["value"], rel=1e-9)
    known = rows().dropna(subset="kind")
    model = po.load(tmp_path / "m")
    P = model.predict_proba(known)
    truth = (known["kind"] == "b").astype(int).to_numpy()
    assert whole["scores"]["log_loss"]["value"] == pytest.approx(-np.log(P[np.arange(len(P)), truth]).mean())


@pytest.mark.slow
def test_a_report_of_many_rows_says_which(folder, tmp_path, monkeypatch):
    ok("fit", folder / "all.csv", "--target", "kind", "--model", "bayes", "--out", tmp_path / "m")
    monkeypatch.setattr("posteriori.cli.evaluate._MOST_IN_A_REPORT", 700)
    page = tmp_path / "r.html"
    ok("evaluate", tmp_path / "m", folder / "all.csv", "--report", page)
    assert "the first 700 of 2,940" in page.read_text(encoding="utf-8")


# As the files have it


def test_kept_columns_are_as_they_are_written(folder, tmp_path):
    ok("fit", folder / "all.csv", "--target", "kind", "--model", "bayes", "--out", tmp_path / "m")
    texts = ["007", "12345678901234567890", "NA", "", "1.50", " x ", "TRUE"]
    lines = [f"{i},{text},0.5,0.1,u" for i, text in enumerate(texts)]
    (tmp_path / "new.csv").write_text("n,id,x,z,island\n" + "\n".join(lines) + "\n")
    out = tmp_path / "p.csv"
    ok("predict", tmp_path / "m", tmp_path / "new.csv", "--keep", "id", "--keep", "x", "--out", out)
    kept = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert kept["id"].tolist() == texts
    assert kept["x"].tolist() == ["0.5"] * len(texts)
    printed = ok("predict", tmp_path / "m", tmp_path / "new.csv", "--keep", "id", "--format", "jsonl").stdout
    assert [json.loads(line)["id"] for line in printed.splitlines()] == texts


def test_levels_never_seen_are_added_up(folder, tmp_path, monkeypatch):
    ok("fit", folder / "all.csv", "--target", "kind", "--model", "bayes", "--out", tmp_path / "m")
    new = rows(90, seed=3)
    new.loc[[1, 40, 80], "island"] = ["Hope", "Hope", "Rest"]
    new.to_csv(tmp_path / "new.csv", index=False)
    monkeypatch.setattr("posteriori.cli.predict.ROWS_AT_ONCE", 20)
    monkeypatch.setattr("posteriori.cli.evaluate.ROWS_AT_ONCE", 20)
    for command in ("predict", "evaluate"):
        said = ok(command, tmp_path / "m", tmp_path / "new.csv").stderr
        assert said.count("'island'") == 1
        assert "in 3 rows" in said
        assert "'Hope'" in said
        assert "'Rest'" in said


def test_row_numbers_are_dropped_and_said_unless_they_are_kept(folder, tmp_path):
    table = rows(200)
    table.insert(0, "abc", np.arange(1, 201))
    table.to_csv(tmp_path / "t.csv", index=False)
    result = ok("fit", tmp_path / "t.csv", "--target", "kind", "--model", "bayes")
    assert "Look at:" in result.stdout
    assert re.search(r"- Columns? 'abc' .*--keep-id", result.stdout)
    assert "'abc'" not in result.stderr  # said once
    summary = json.loads(ok("fit", tmp_path / "t.csv", "--target", "kind", "--model", "bayes", "--json").stdout)
    assert any("'abc'" in note for note in summary["notes"])
    kept = ("fit", tmp_path / "t.csv", "--target", "kind", "--model", "bayes", "--keep-id", "abc", "--json")
    column = next(c for c in json.loads(ok(*kept).stdout)["columns"] if c["column"] == "abc")
    assert not column["dropped"]
    result = run("fit", tmp_path / "t.csv", "--target", "kind", "--keep-id", "no")
    assert "--keep-id names 'no'" in result.stderr


def test_a_target_that_is_there_twice(tmp_path):
    (tmp_path / "t.csv").write_text("a,y,y\n" + "".join(f"{i % 5},{'pq'[i % 2]},{'pq'[i % 2]}\n" for i in range(40)))
    result = run("fit", tmp_path / "t.csv", "--target", "y")
    assert result.exit_code == 2
    assert "several columns of this name" in " ".join(result.stderr.split())
