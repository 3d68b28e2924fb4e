"""Bad tables, bad paths, full disks: a sentence and an exit code, never a traceback, never half a file."""

import errno
import io
import string
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app
from posteriori.files import replacing

GOOD = "a,b,y\n" + "".join(f"{i % 7},{'uv'[i % 2]},{'pq'[(i // 3) % 2]}\n" for i in range(40))


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env={"NO_COLOR": "1", "COLUMNS": "200"})


def fit(content, tmp_path, *options, target="y", name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run("fit", path, "--target", target, "--model", "softmax", *options)


def sentence(result, code=2):
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "good.model"
    assert fit(GOOD, tmp_path, "--out", path).exit_code == 0
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "t.csv is empty"),
        ("\n\n", "t.csv is empty"),
        ("a,b,y\n", "has no rows"),
        ("a,b,y\n1,2,p\n1,2,3,q\n", "line 3 has 4 values where the header has 3 names"),
        ("a,b,y\n1,2,p\n3,4,p\n", "'y' has one value only, 'p'"),
        ("a,b,y\n1,2,\n3,4,\n", "No row of the table has a value of 'y'"),
        ("a,b,z\n1,2,p\n3,4,q\n", "--target names 'y', and the table has the columns 'a', 'b', 'z'"),
        ("y\np\nq\n", "feature"),
        ("a,y\n1,p\n1,q\n", "constant"),
        ("a,y\n,p\n,q\n", "missing"),
        (b"a,y\n\xff\xfe\xfa,p\n\xff\xfe\xfb,q\n", "'a'"),
        ("a,y\n1,0.5\n2,0.25\n3,0.125\n", "fractions"),
    ],
    ids=["empty", "blank", "header", "ragged", "constant", "unlabelled", "absent", "alone", "one value",
         "missing", "no text", "continuous"],
)  # fmt: skip
def test_tables_that_cannot_be_fitted(content, message, tmp_path):
    said = sentence(fit(content, tmp_path, "--out", tmp_path / "m.model"))
    assert message in said
    assert not (tmp_path / "m.model").exists()


def test_a_column_without_any_value_is_dropped_and_said(tmp_path):
    result = fit(GOOD.replace("a,b,y", "a,b,y,gone").replace("p\n", "p,\n").replace("q\n", "q,\n"), tmp_path)
    assert result.exit_code == 0
    assert "dropped" in next(line for line in result.stdout.splitlines() if line.strip().startswith("gone"))


def test_mixed_values_are_text(tmp_path):
    result = fit("a,y\n" + "".join(f"{'x' if i % 3 else i % 2},{'pq'[i % 2]}\n" for i in range(40)), tmp_path)
    assert result.exit_code == 0
    assert "category" in result.stdout


def test_a_label_never_seen(tmp_path, model):
    path = tmp_path / "new.csv"
    path.write_text("a,b,y\n1,u,p\n2,v,r\n3,v,r\n")
    assert "'r'" in sentence(run("evaluate", model, path))


def test_columns_of_another_kind(tmp_path, model):
    path = tmp_path / "new.csv"
    path.write_text("a,b\nmuch,u\nmore,v\n")
    said = sentence(run("predict", model, path))
    assert "'a'" in said
    assert "numbers" in said


def test_paths_that_are_no_files(tmp_path, model):
    assert "is a folder that has no Parquet files" in sentence(run("fit", tmp_path, "--target", "y"))
    assert sentence(run("predict", tmp_path, tmp_path / "t.csv"))
    assert sentence(run("predict", model, tmp_path))
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "is a folder" in sentence(run("predict", model, tmp_path / "t.csv", "--out", folder))
    assert "there is no folder" in sentence(
        run("predict", model, tmp_path / "t.csv", "--out", tmp_path / "no" / "p.csv")
    )


class Full(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def full_disk(path):
    """A file beside the old one, on a disk without space."""
    with replacing(path), io.BufferedWriter(Full(), 16) as file:
        yield file


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.jsonl"])
def test_a_full_disk_leaves_the_old_file(tmp_path, model, monkeypatch, name):
    path = tmp_path / name
    path.write_text("old")
    monkeypatch.setattr("posteriori.tables.files._opened", full_disk)
    said = sentence(run("predict", model, tmp_path / "t.csv", "--out", path))
    assert f"{path} cannot be written: No space left on device" in said
    assert path.read_text() == "old"
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".part"]


def test_a_full_disk_leaves_the_old_model(tmp_path, model, monkeypatch):
    before = model.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert "No space left on device" in sentence(fit(GOOD, tmp_path, "--out", model))
    assert model.read_bytes() == before
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".part"]


# Any table

cells = st.one_of(
    st.none(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=True, allow_infinity=True),
    st.booleans(),
    st.text(string.printable, max_size=5),
    st.dates(),
)
columns = st.one_of(
    *(st.lists(st.one_of(st.none(), kind), min_size=6, max_size=6)
      for kind in (st.integers(-5, 5), st.floats(-1e6, 1e6), st.booleans(), st.sampled_from(["u", "v", "ü, \"x\""]))),
    st.lists(cells, min_size=6, max_size=6),
)  # fmt: skip


TINY = [None, None, None, None, 0.0, 4.6e-155]
"""A column whose variance is too small to be a number."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(values=[TINY], labels=["p", "p", "p", "p", "p", "q"])
@given(st.lists(columns, min_size=1, max_size=4), st.lists(st.sampled_from(["p", "q", None]), min_size=6, max_size=6))
def test_any_table_is_fitted_or_refused_in_a_sentence(tmp_path, values, labels):
    """Fitted, stored, and predicted without a NaN; or one sentence."""
    table = pd.DataFrame({f"c{i}": pd.Series(column, dtype=object) for i, column in enumerate(values)})
    table["y"] = pd.Series(labels, dtype=object)
    path, stored, out = tmp_path / "any.csv", tmp_path / "any.model", tmp_path / "any.parquet"
    table.to_csv(path, index=False)
    result = run("fit", path, "--target", "y", "--model", "softmax", "--out", stored)
    if result.exit_code:
        said = sentence(result)
        assert "Error: " in said
        return
    result = run("predict", stored, path, "--out", out)
    assert result.exit_code == 0, result.output
    P = pd.read_parquet(out)[[f"p({name})" for name in po.load(stored).classes_]].to_numpy()
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-9)
