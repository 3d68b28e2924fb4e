import re

import pytest
from typer.testing import CliRunner

import posteriori
from posteriori.cli import app


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "report.html"


@pytest.fixture(scope="module")
def output(page):
    arguments = ["demo", "--report", str(page)]
    result = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_demo_names_the_species(output):
    for species in ("Adelie", "Chinstrap", "Gentoo"):
        assert species in output


def test_demo_beats_the_class_frequencies(output):
    point, posterior, baseline = numbers("accuracy", output)
    assert point > 0.95
    assert posterior > 0.95
    assert 0.3 < baseline < 0.6
    point, posterior, baseline = numbers("log-loss", output)
    assert max(point, posterior) < 0.1 < baseline


def numbers(name, output):
    """Three numbers in the row of this name."""
    return map(float, re.search(rf"{name} +(\d\.\d+) +(\d\.\d+) +(\d\.\d+)", output).groups())


def test_demo_shows_the_posterior(output):
    assert float(re.search(r"log evidence +(\S+)", output).group(1)) < 0
    assert re.search(r"approximation +(laplace|variational)", output)
    p, low, high = map(float, re.search(r"Adelie +(\d\.\d+) \((\d\.\d+)-(\d\.\d+)\)", output).groups())
    assert low <= high <= 1
    assert p > 0.5


def test_demo_shows_a_small_gap(output):
    gap = float(re.search(r"^ +gap +(\S+)", output, re.MULTILINE).group(1))
    assert 0 <= gap < 1e-6


def test_demo_fits_80_columns(output, page):
    assert max(len(line) for line in output.splitlines() if line != str(page)) <= 80


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"posteriori {posteriori.__version__}\n"


def test_demo_decides(output):
    again = int(re.search(r"measure again +(\d+)", output).group(1))
    assert 1 <= again <= 20
    decided, named = (float(re.search(rf"{row} +\d+ +(\d\.\d+)", output).group(1)) for row in ("all", "always a name"))
    assert 0.95 < named <= 1.0
    assert decided > 0.95


def test_demo_writes_a_report_and_says_where(output, page):
    pytest.importorskip("altair")
    assert str(page) in output
    assert "measure again" in page.read_text(encoding="utf-8")
