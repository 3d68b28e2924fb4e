"""Tables that are odd in ways that the model need not mind, and what users are told of them."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from posteriori.cli import app

X = [round(float(x), 3) for x in np.random.default_rng(0).normal(size=40)]
LABELS = ["p" if x + (i % 5 - 2) / 3 > 0 else "q" for i, x in enumerate(X)]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result


def said(result):
    return " ".join(result.stderr.split())


def write(path, **columns):
    """A CSV file with these columns."""
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def fit(path, *options, target="y", code=0):
    return run("fit", path, "--target", target, "--model", "softmax", "--out", path.with_suffix(".model"), *options,
               code=code)  # fmt: skip


@pytest.fixture
def stored(tmp_path):
    """A model that has dropped a column of row numbers."""
    path = write(tmp_path / "train.csv", case_no=range(40), x=X, y=LABELS)
    fit(path)
    return path.with_suffix(".model")


# Columns that the model does not use


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_column_that_was_dropped_may_hold_anything(stored, tmp_path, command):
    path = write(tmp_path / "new.csv", case_no=[f"A-{i}" for i in range(40)], x=X, y=LABELS)
    assert "case_no" not in run(command, stored, path).stderr


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_column_that_the_fit_did_not_see_may_hold_anything(stored, tmp_path, command):
    path = tmp_path / "new.parquet"
    parquet.write_table(pa.table({"x": X, "y": LABELS, "photo": pa.array([b"\xff\xfe"] * 40)}), path)
    assert run(command, stored, path).stderr == ""


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_table_without_any_column_of_the_model_is_refused(stored, tmp_path, command):
    path = write(tmp_path / "new.csv", width=X, y=LABELS)
    assert "column 'x' is missing" in said(run(command, stored, path, code=2))


@pytest.mark.parametrize("values", [pa.array([[1, 2]] * 40), pa.array([b"\xff\xfe"] * 40)], ids=["lists", "bytes"])
def test_a_column_that_cannot_be_a_feature_is_named_with_what_to_do(tmp_path, values):
    path = tmp_path / "train.parquet"
    parquet.write_table(pa.table({"x": X, "y": LABELS, "odd": values}), path)
    assert "--drop odd" in said(fit(path, code=2))
    fit(path, "--drop", "odd")


# Classes


def columns_written(model, path):
    lines = run("predict", model, path).stdout.splitlines()
    names = [name.strip('"') for name in lines[0].split(",")]
    predicted = {line.split(",")[0].strip('"') for line in lines[1:]}
    return predicted, {name[2:-1] for name in names if name.startswith("p(")}


@pytest.mark.parametrize("classes", [(1.0, 2.0), (True, False), (1, 2), ("01", "02")])
def test_predictions_in_a_csv_file_are_the_names_of_the_classes(tmp_path, classes):
    path = write(tmp_path / "t.csv", x=X, y=[classes[label == "p"] for label in LABELS])
    fit(path)
    predicted, named = columns_written(path.with_suffix(".model"), path)
    assert predicted == named == {str(name) for name in classes}


def test_predictions_in_json_lines_are_values(tmp_path):
    path = write(tmp_path / "t.csv", x=X, y=[label == "p" for label in LABELS])
    fit(path)
    first = run("predict", path.with_suffix(".model"), path, "--format", "jsonl").stdout.splitlines()[0]
    assert json.loads(first)["prediction"] in (True, False)


def test_classes_that_differ_in_capitals_or_a_full_stop_are_said(tmp_path):
    labels = [label.upper() if i % 9 == 0 else f"{label}." if i % 11 == 0 else label for i, label in enumerate(LABELS)]
    summary = json.loads(fit(write(tmp_path / "t.csv", x=X, y=labels), "--json").stdout)
    note = next(note for note in summary["notes"] if "'y'" in note)
    assert note.startswith("'y' has classes that differ only in capitals, blanks or a full stop: 'P', 'p', 'p.'; 'Q', ")
    assert len(summary["classes"]) == len(set(labels))


def test_classes_in_other_capitals_or_with_a_full_stop_are_known(stored, tmp_path):
    accuracy = {
        json.loads(run("evaluate", stored, write(tmp_path / "t.csv", x=X, y=labels), "--json").stdout)["scores"][
            "accuracy"
        ]["value"]
        for labels in (LABELS, [label.upper() for label in LABELS], [f" {label}." for label in LABELS])
    }
    assert len(accuracy) == 1


# Refusals


def test_a_wrong_name_is_answered_by_the_nearest_ones(tmp_path):
    path = write(tmp_path / "t.csv", x=X, Species=LABELS, z=X)
    message = said(fit(path, target="species", code=2))
    assert (
        "--target names 'species', and the table has the columns 'x', 'Species', 'z': did you mean 'Species'?"
        in message
    )


def test_of_many_columns_a_few_are_shown(tmp_path):
    wide = {f"gene{i}": [i] * 40 for i in range(500)}
    message = said(fit(write(tmp_path / "t.csv", **wide, y=LABELS), target="class", code=2))
    assert "'gene0', 'gene1'" in message
    assert "... (501 in all): name columns of the table." in message
    assert len(message) < 500


def test_one_column_only_is_said_where_another_is_asked_for(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a:b:y\n1:u:p\n2:v:q\n", encoding="utf-8")
    assert "it has one column only: put one of , ; | or a tab between its values" in said(fit(path, code=2))


def test_a_long_value_is_cut_in_a_message(tmp_path):
    message = said(fit(write(tmp_path / "t.csv", x=X, y=["long " * 100] * 40), code=2))
    assert "'y' has one value only, 'long long" in message
    assert len(message) < 300
