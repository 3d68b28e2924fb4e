"""The README: short, its example shows what the code does today, and its links lead somewhere."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posteriori.cli import app

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 120
    assert max(map(len, TEXT.splitlines())) <= 140


def test_the_example_prints_what_is_shown():
    code, shown = re.search(r"```python\n(.*?)```\n\n((?: {4}[^\n]*\n)+)", TEXT, re.DOTALL).groups()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert [line.strip() for line in printed.getvalue().splitlines()] == [line.strip() for line in shown.splitlines()]


def test_links_and_pictures_exist():
    targets = re.findall(r"\]\(([^)#]+)", TEXT)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("line", re.findall(r"^posteriori (.+)$", TEXT, re.MULTILINE))
def test_its_commands_have_these_options(line):
    command, *words = line.split()
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert [word for word in words if word.startswith("--") and word not in told] == []
