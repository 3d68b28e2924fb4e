import re

import pytest
from typer.testing import CliRunner

import posteriori
from posteriori.cli import app


@pytest.fixture(scope="module")
def output():
    result = CliRunner().invoke(app, ["demo"], env={"NO_COLOR": "1", "COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_demo_names_the_species(output):
    for species in ("Adelie", "Chinstrap", "Gentoo"):
        assert species in output


def test_demo_beats_the_class_frequencies(output):
    model, baseline = map(float, re.search(r"accuracy +(\d\.\d+) +(\d\.\d+)", output).groups())
    assert model > 0.95
    assert 0.3 < baseline < 0.6
    model, baseline = map(float, re.search(r"log-loss +(\d\.\d+) +(\d\.\d+)", output).groups())
    assert model < 0.1 < baseline


def test_demo_shows_a_small_gap(output):
    gap = float(re.search(r"^ +gap +(\S+)", output, re.MULTILINE).group(1))
    assert 0 <= gap < 1e-6


def test_demo_fits_80_columns(output):
    assert max(map(len, output.splitlines())) <= 80


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"posteriori {posteriori.__version__}\n"
