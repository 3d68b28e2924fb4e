"""What a careful user tries: data are not lost or changed, nothing is half done, and every end is a quiet one."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app
from posteriori.cli.output import counted, printable

ROWS = "".join(f"{i % 7},{'uv'[(i // 2) % 2]},{'pq'[(i // 4 + i // 3) % 2]}\n" for i in range(40))
GOOD = "a,b,y\n" + ROWS


def run(*arguments, stdin=None, columns=120):
    environment = {"NO_COLOR": "1", "COLUMNS": str(columns), "TERM": "dumb"}
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env=environment)


def ok(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments, code=2, **options):
    result = run(*arguments, **options)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert "Note: Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    ok("fit", write(folder / "t.csv", GOOD), "--target", "y", "--model", "bayes", "--out", folder / "m")
    return folder / "m"


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "t.csv", GOOD)


@pytest.fixture
def utility(tmp_path):
    return write(tmp_path / "u.csv", "state,go,stay\np,1,0\nq,-1,0\n")


# Inputs are never lost


def spellings(path):
    """The same file by other names."""
    link, hard = path.with_name("link.csv"), path.with_name("hard.csv")
    link.symlink_to(path)
    os.link(path, hard)
    return [path, path.parent / "." / path.name, path.parent / ".." / path.parent.name / path.name, link, hard]


def test_no_command_writes_over_its_table(table, stored, utility, monkeypatch):
    monkeypatch.chdir(table.parent)
    for out in [*spellings(table), "t.csv"]:
        for arguments in (
            ("fit", table, "--target", "y", "--model", "bayes", "--out", out),
            ("predict", stored, table, "--out", out),
            ("decide", stored, table, "--utility", utility, "--out", out),
            ("evaluate", stored, table, "--report", out),
        ):
            said = refused(*arguments)
            assert "is also an input" in said
    assert table.read_text() == GOOD


def test_no_command_writes_over_a_file_of_a_pattern_the_model_or_the_utilities(table, stored, utility, tmp_path):
    assert "is also an input" in refused("predict", stored, tmp_path / "*.csv", "--out", table)
    before = stored.read_bytes()
    assert "is also an input" in refused("predict", stored, table, "--out", stored, "--format", "csv")
    assert "is also an input" in refused("evaluate", stored, table, "--report", stored)
    assert "is also an input" in refused("decide", stored, table, "--utility", utility, "--out", utility)
    assert "is also an input" in refused("evaluate", stored, table, "--utility", utility, "--report", utility)
    assert stored.read_bytes() == before


def test_no_table_is_written_into_a_folder_of_tables(table, stored, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    pd.read_csv(table).to_parquet(folder / "a.parquet")
    assert "is also an input" in refused("predict", stored, folder, "--out", folder / "a.parquet")
    assert "is also an input" in refused("predict", stored, folder, "--out", folder / "new.parquet")
    ok("predict", stored, folder, "--out", tmp_path / "new.parquet")


def test_inputs_are_protected_before_anything_is_read(tmp_path):
    broken = write(tmp_path / "t.csv", "not a table at all")
    assert "is also an input" in refused("fit", broken, "--target", "y", "--out", broken)
    assert "is also an input" in refused("predict", tmp_path / "no.model", broken, "--out", broken)


# Where output goes


def test_a_dash_is_standard_output(table, stored, utility, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = ok("predict", stored, table)
    assert ok("predict", stored, table, "--out", "-").stdout == plain.stdout
    assert ok("decide", stored, table, "--utility", utility, "--out", "-").stdout.startswith('"action"')
    assert ok("walkthrough", "--out", "-").stdout == ok("walkthrough").stdout
    assert "a model needs a file" in refused("fit", table, "--target", "y", "--out", "-")
    assert "a report needs a file" in refused("evaluate", stored, table, "--report", "-")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [("no/such/folder/file.csv", "there is no folder"), (".", "is a folder"), ("", "needs a file")],
)
def test_where_nothing_can_be_written_is_said_before_the_work(table, stored, out, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posteriori.cli.fit.training_rows", lambda *_: pytest.fail("the table was read"))
    monkeypatch.setattr("posteriori.cli.predict.load", lambda *_: pytest.fail("the model was read"))
    monkeypatch.setattr("posteriori.cli.evaluate.load", lambda *_: pytest.fail("the model was read"), raising=False)
    assert message in refused("fit", table, "--target", "y", "--out", out)
    assert message in refused("predict", stored, table, "--out", out)
    if out:
        assert message in refused("walkthrough", "--out", out)
        assert message in refused("demo", "--report", out)


def test_folders_and_files_that_are_write_protected(table, stored, tmp_path, monkeypatch):
    out = write(tmp_path / "old.csv", "old")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert "no right to write" in refused("predict", stored, table, "--out", tmp_path / "new.csv")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != out)
    assert "write-protected" in refused("predict", stored, table, "--out", out)
    assert out.read_text() == "old"


def test_formats_are_checked_before_the_work(table, tmp_path):
    no_model = tmp_path / "no.model"
    assert "does not show a known format" in refused("predict", no_model, table, "--out", tmp_path / "p.doc")
    assert "Parquet cannot be written to the screen" in refused("predict", no_model, table, "--format", "parquet")


# Kept columns


def test_our_names_are_never_replaced(table, stored, utility, tmp_path):
    clash = write(tmp_path / "clash.csv", GOOD.replace("a,b,y", "a,b,prediction"))
    said = refused("predict", stored, clash, "--keep", "prediction")
    assert "--keep names 'prediction', but predictions have columns of these names" in said
    ok("predict", stored, clash, "--keep", "a")
    clash = write(tmp_path / "margin.csv", GOOD.replace("a,b,y", "a,b,margin"))
    assert "--keep names 'margin'" in refused("decide", stored, clash, "--utility", utility, "--keep", "margin")
    ok("predict", stored, clash, "--keep", "margin", "--keep", "margin")


# Interruptions


def interrupted_after(seconds, *arguments):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        return run(*arguments)
    finally:
        timer.cancel()


@pytest.mark.parametrize("model", ["auto", "gaussian"])
def test_an_interrupted_fit_leaves_nothing(tmp_path, model, monkeypatch):
    monkeypatch.setattr("posteriori.meta.selection._MOST_ROWS_OF_GP", 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 30))
    y = rng.choice(list("abcdefghij"), 2000)
    pd.DataFrame(X).assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    out = write(tmp_path / "m.model", "old")
    result = interrupted_after(0.8, "fit", tmp_path / "t.csv", "--target", "y", "--model", model, "--out", out)
    assert result.exit_code == 130
    assert result.stderr.rstrip().endswith("Interrupted.")
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.model", "t.csv"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fit_that_would_keep_its_best_parameters_ends_too(table, tmp_path, monkeypatch):
    """The solver ends with the best parameters so far after a KeyboardInterrupt; a command does not."""
    from posteriori.softmax.objective import SoftmaxObjective

    before, calls = SoftmaxObjective.value_gradient, []

    def value_gradient(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return before(self, *arguments, **options)

    monkeypatch.setattr(SoftmaxObjective, "value_gradient", value_gradient)
    result = run("fit", table, "--target", "y", "--model", "softmax", "--out", tmp_path / "m.model")
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr
    assert not (tmp_path / "m.model").exists()


def test_an_interrupted_prediction_leaves_the_old_file(table, stored, tmp_path, monkeypatch):
    from posteriori.meta.batch_predictor import BatchPredictor

    before = BatchPredictor.columns

    def columns(self, rows):
        if not hasattr(self, "seen"):
            self.seen = True
            return before(self, rows)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(BatchPredictor, "columns", columns)
    monkeypatch.setattr("posteriori.cli.predict.ROWS_AT_ONCE", 10)
    out = write(tmp_path / "p.csv", "old")
    result = run("predict", stored, table, "--out", out)
    assert result.exit_code == 130
    assert out.read_text() == "old"
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".part"]


# Names that mean something to a terminal

STRANGE = ["[/a]", "[bold]", "[link=x]y[/link]", ":smile:", "\x1b[31mred", "=1+1"]


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """Classes and columns with brackets and codes of terminals, and a model of them."""
    folder = tmp_path_factory.mktemp("strange[b]")
    rng = np.random.default_rng(0)
    classes = rng.choice(STRANGE, 120)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=120),
            "[/x]": rng.normal(size=120) + (classes == STRANGE[0]),
            "[red]": rng.choice(["[/l]", "[b]"], 120),
        }
    )
    frame["[/y]"] = classes
    path = folder / "[t].csv"
    frame.to_csv(path, index=False)
    fitted = ok("fit", path, "--target", "[/y]", "--model", "bayes", "--out", folder / "[m]")
    return folder, fitted


def test_names_with_brackets_stay_visible(strange):
    folder, fitted = strange
    for name in ("[/a]", "[bold]", "[link=x]y[/link]", ":smile:", r"\x1b[31mred", "[/x]", "[red]", "[/y]", "[red]=[b]"):
        assert name in fitted.stdout, name
    assert "\x1b" not in fitted.stdout
    result = ok("evaluate", folder / "[m]", folder / "[t].csv")
    for name in ("[/a]", "[bold]", ":smile:", r"\x1b[31mred"):
        assert name in result.stdout
    assert "[m]" in result.stdout
    utility = write(folder / "u.csv", "s,[/go],[b]\n" + "".join(f'"{name}",1,0\n' for name in STRANGE))
    result = ok("evaluate", folder / "[m]", folder / "[t].csv", "--utility", utility)
    assert "[/go]" in result.stdout


def test_errors_show_brackets_and_no_codes(strange, tmp_path):
    folder, _ = strange
    assert "'[/z]'" in refused("fit", folder / "[t].csv", "--target", "[/z]")
    assert "[/no].csv" in refused("predict", folder / "[m]", tmp_path / "[/no].csv")
    assert "\x1b" not in refused("fit", folder / "[t].csv", "--target", "\x1b[31m")
    assert run("fit", folder / "[t].csv", "--target", "y", "--model", "[/a]").exit_code == 2


@pytest.mark.slow
def test_the_report_of_strange_names_is_text(strange):
    folder, _ = strange
    page = folder / "[r].html"
    ok("evaluate", folder / "[m]", folder / "[t].csv", "--report", page)
    assert "[/a]" in page.read_text(encoding="utf-8")


# Arguments that do not go together


def test_columns_with_two_tasks(table):
    assert "'y' is named by --target and by --drop" in refused("fit", table, "--target", "y", "--drop", "y")
    assert "by --weight and by --drop" in refused("fit", table, "--target", "y", "--weight", "a", "--drop", "a")
    assert "by --target and by --weight" in refused("fit", table, "--target", "y", "--weight", "y")


def test_one_action_as_json_lines(table, stored, tmp_path):
    single = write(tmp_path / "one.csv", "state,go\np,1\nq,-1\n")
    lines = ok("decide", stored, table, "--utility", single, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["margin"] for line in lines] == [None] * 40
    assert ok("decide", stored, table, "--utility", single).stdout.splitlines()[1].split(",")[2] == ""
    assert json.loads(ok("evaluate", stored, table, "--utility", single, "--json").stdout)["utility"]["actions"]


# Standard streams


def in_process(arguments, stdout, monkeypatch):
    """The whole program, with its exit code, in this process."""
    monkeypatch.setattr(sys, "argv", ["posteriori", *map(str, arguments)])
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as end:
        app()
    return end.value.code


@pytest.mark.parametrize("command", ["predict", "help", "evaluate", "json"])
def test_a_reader_that_has_gone_ends_the_program_quietly(table, stored, command, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    arguments = {
        "predict": ("predict", stored, table),
        "help": ("fit", "--help"),
        "evaluate": ("evaluate", stored, table),
        "json": ("evaluate", stored, table, "--json"),
    }[command]
    with os.fdopen(writer, "w") as stdout:
        assert in_process(arguments, stdout, monkeypatch) in (0, 141)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "Error" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["predict", "evaluate", "--help"])
def test_a_full_device_is_said(table, stored, command, monkeypatch, capsys):
    with open("/dev/full", "w") as stdout:
        arguments = (command,) if command == "--help" else (command, stored, table)
        assert in_process(arguments, stdout, monkeypatch) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_terminals_of_other_encodings(tmp_path, monkeypatch, capsys):
    rows = "".join(f"{i % 5},{'äß'[(i // 3) % 2]},{'é…'[(i // 2) % 2]}\n" for i in range(40))
    table = write(tmp_path / "t.csv", "größe,b,y\n" + rows)
    out = tmp_path / "m"
    for arguments in (
        ("fit", table, "--target", "y", "--model", "bayes", "--out", out),
        ("evaluate", out, table),
        ("evaluate", out, table, "--json"),
        ("predict", out, table),
        ("walkthrough",),
        ("fit", "--help"),
    ):
        stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        assert in_process(arguments, stdout, monkeypatch) == 0, capsys.readouterr().err
        if "--json" in arguments:
            assert json.loads(stdout.buffer.getvalue())["classes"] == ["é", "…"]


@pytest.mark.parametrize("columns", [12, 40, 80])
def test_narrow_terminals(table, stored, columns):
    ok("fit", table, "--target", "y", "--model", "bayes", columns=columns)
    ok("evaluate", stored, table, columns=columns)
    ok("fit", "--help", columns=columns)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_stopped_ends_with_the_code_of_the_signal(tmp_path, number):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(2000, 30))).assign(y=rng.choice(list("abcdefghij"), 2000))
    rows.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.model")
    command = [sys.executable, "-m", "posteriori", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline().startswith("Reading")
        assert process.stderr.readline().startswith("Fitting")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.rstrip().endswith("Interrupted.")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.slow
def test_standard_streams_that_are_closed(stored, table):
    program = f"{sys.executable} -m posteriori"
    for command, code in (
        (f"{program} predict {stored} - <&-", 2),
        (f"{program} predict {stored} {table} >&-", 2),
        (f"{program} evaluate {stored} {table} 2>&-", 0),
    ):
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


# What is shown


def test_numbers_of_things():
    assert counted(1) == "1 row"
    assert counted(1, "class") == "1 class"
    assert printable("a\nb\tc") == "a b c"


def test_one_row(tmp_path, stored):
    one = write(tmp_path / "one.csv", "a,b,y\n1,u,p\n")
    shown = ok("evaluate", stored, one).stdout
    assert "on 1 row." in shown
    assert "one row has no interval" in shown
    printed = json.loads(ok("evaluate", stored, one, "--json").stdout)["scores"]["log_loss"]
    assert (printed["lower"], printed["upper"]) == (None, None)
    gap = write(tmp_path / "gap.csv", GOOD + "3,u,\n")
    assert "1 row without y is left out." in ok("evaluate", stored, gap).stderr


def test_confusions_of_many_classes_are_not_cut_off(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 15, 300)
    names = np.array([f"a class with a long name {k}" for k in range(15)])
    x = y + rng.normal(size=300)
    table = tmp_path / "t.csv"
    pd.DataFrame({"x": x, "x2": x * x, "y": names[y]}).to_csv(table, index=False)
    out = tmp_path / "m"
    ok("fit", table, "--target", "y", "--model", "softmax", "--out", out)
    shown = ok("evaluate", out, table, columns=80).stdout
    assert "…" not in shown
    model = po.load(out)
    predicted = model.predict(pd.read_csv(table))
    pairs = pd.Series(list(zip(names[y], predicted, strict=True)))
    (truth, taken), count = next((pair, n) for pair, n in pairs.value_counts().items() if pair[0] != pair[1])
    assert any(truth in line and taken in line and f" {count} " in f"{line} " for line in shown.splitlines())


def test_classes_of_another_type_are_the_same(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(1, 3, 60)
    frame = pd.DataFrame({"x": y + rng.normal(size=60), "y": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    ok("fit", tmp_path / "t.csv", "--target", "y", "--model", "bayes", "--out", tmp_path / "m")
    plain = json.loads(ok("evaluate", tmp_path / "m", tmp_path / "t.csv", "--json").stdout)
    frame.astype({"y": str}).to_parquet(tmp_path / "text.parquet")
    frame.astype({"y": float}).to_parquet(tmp_path / "float.parquet")
    for name in ("text.parquet", "float.parquet"):
        again = json.loads(ok("evaluate", tmp_path / "m", tmp_path / name, "--json").stdout)
        assert again["scores"] == plain["scores"]


# Spreadsheets


def test_labels_are_not_formulas_in_a_spreadsheet(tmp_path):
    classes = ["=1+1", "@SUM(A1)", "+", "-", "-1", "-2+cmd|'x'"]
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 10)
    frame = pd.DataFrame({"x": y * 5.0 + rng.normal(size=60), "y": np.array(classes)[y]})
    frame["x2"] = frame["x"] ** 2
    frame["id"] = [f"={i}" for i in range(60)]
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "m"
    ok("fit", tmp_path / "t.csv", "--target", "y", "--model", "softmax", "--drop", "id", "--out", out)
    written = tmp_path / "p.csv"
    ok("predict", out, tmp_path / "t.csv", "--keep", "id", "--out", written)
    table = pd.read_csv(written, dtype=str)
    assert set(table["prediction"]) == {"'=1+1", "'@SUM(A1)", "+", "-", "-1", "'-2+cmd|'x'"}
    assert table["id"].tolist() == frame["id"].tolist()  # data are kept as they are
    ok("predict", out, tmp_path / "t.csv", "--out", tmp_path / "p.parquet")
    assert set(pd.read_parquet(tmp_path / "p.parquet")["prediction"]) == set(classes)


def test_an_error_stands_after_the_notes(stored, tmp_path):
    table = write(tmp_path / "t.csv", "a,b,y\n1,never,p\n2,v,neither\n2,v,neither\n")
    said = run("evaluate", stored, table).stderr.splitlines()
    assert said[0].startswith("Note: ")
    assert said[-1].startswith("Error: 'y' holds 'neither', in 2 rows of 3, and the model knows the classes 'p', 'q'")


def test_rows_of_classes_that_the_fit_did_not_see_are_left_out(stored, tmp_path):
    lines = ["1,u,p", "2,v,q", "3,u,p", "2,v,neither"]
    some = write(tmp_path / "some.csv", "\n".join(["a,b,y", *lines]) + "\n")
    known = write(tmp_path / "known.csv", "\n".join(["a,b,y", *lines[:3]]) + "\n")
    result = run("evaluate", stored, some, "--json")
    assert "1 row with a class that the fit did not see ('neither') is left out of all scores" in result.stderr
    expected = json.loads(run("evaluate", stored, known, "--json").stdout)
    assert json.loads(result.stdout)["scores"] == expected["scores"]
