import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["walkthrough", *map(str, arguments)], env={"NO_COLOR": "1", "COLUMNS": "100"})


def test_prints_the_built_in_example():
    result = run()
    assert result.exit_code == 0
    assert result.stdout == po.walkthrough().to_markdown()
    assert result.stdout.isascii()  # so that it can be piped anywhere


def test_options_reach_the_calculation():
    assert run("--digits", 6, "--alpha", 0.5).stdout == po.walkthrough(digits=6, alpha=0.5).to_markdown()
    assert run("--format", "latex").stdout == po.walkthrough().to_latex(document=True)


def test_writes_a_file_and_nothing_else(tmp_path):
    path = tmp_path / "walkthrough.md"
    result = run("--out", path)
    assert result.exit_code == 0
    assert result.output == ""
    assert path.read_bytes() == po.walkthrough().to_markdown().encode()
    run("--out", path, "--digits", 3)
    assert path.read_text() == po.walkthrough(digits=3).to_markdown()
    assert os.listdir(tmp_path) == ["walkthrough.md"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.md").symlink_to("file.md")
    (tmp_path / "file.md").write_text("old")
    assert run("--out", tmp_path / "link.md").exit_code == 0
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "file.md").read_text() == po.walkthrough().to_markdown()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "walkthrough.md"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = run("--out", path)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {path} cannot be written: No space left on device.\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["walkthrough.md"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--alpha", "0"),
            "Error: alpha must be a finite number above 0, got 0.0: without a prior there is no posterior.",
        ),
        (("--alpha", "nan"), "Error: alpha must be a finite number above 0, got nan: without"),
        (("--digits", "1"), "Error: digits must be a whole number from 2 to 10, got 1."),
        (
            ("--out", "/no/such/folder/file.md"),
            "Error: --out /no/such/folder/file.md: there is no folder /no/such/folder; create it first.",
        ),
        (("--out", "/"), "Error: --out / is a folder: name a file in it."),
    ],
)
def test_errors_are_one_sentence(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--format", "html"), ("--digits", "many"), ("--alpha", "x"), ("--nonsense",)])
def test_what_is_no_argument_is_named(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert "Traceback" not in result.output


def test_help_names_every_option_and_gives_examples():
    text = re.sub(r"\s+", " ", run("--help").output)
    for words in ("--format", "--digits", "--alpha", "--out", "markdown|latex", "default: 4", "default: 1.0"):
        assert words in text
    assert "posteriori walkthrough --format latex --out walkthrough.tex" in text
    assert "walkthrough" in CliRunner().invoke(app, ["--help"]).output
