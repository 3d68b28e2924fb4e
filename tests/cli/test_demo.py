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


def test_demo_fits_80_columns(output):
    assert max(map(len, output.splitlines())) <= 80


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"posteriori {posteriori.__version__}\n"
