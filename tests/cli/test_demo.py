import re

import pytest
from tests.serve.asgi import client_of
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
    assert min(point, posterior) > 0.75
    assert 0.3 < baseline < 0.6
    point, posterior, baseline = numbers("log-loss", output)
    assert max(point, posterior) < 0.45
    assert baseline > 1.0


def numbers(name, output):
    """Three numbers in the row of this name."""
    return map(float, re.search(rf"{name} +(\d\.\d+) +(\d\.\d+) +(\d\.\d+)", output).groups())


def test_demo_shows_the_posterior(output):
    assert float(re.search(r"log evidence +(\S+)", output).group(1)) < 0
    assert re.search(r"approximation +(laplace|variational)", output)
    p, low, high = map(float, re.search(r"Adelie +(\d\.\d+) \((\d\.\d+)-(\d\.\d+)\)", output).groups())
    assert low <= high <= 1
    assert low < p < high


def test_demo_shows_a_small_gap(output):
    gap = float(re.search(r"^ +gap +(\S+)", output, re.MULTILINE).group(1))
    assert 0 <= gap < 1e-6


def test_demo_fits_80_columns(output, page):
    assert max(len(line) for line in output.splitlines() if str(page.parent) not in line) <= 80


def test_demo_stores_a_model_to_be_served(output, page):
    """Its last line serves it, with the utility of the demo."""
    model = page.with_suffix(".model")
    assert output.splitlines()[-1] == f"posteriori serve {model} --open"
    known = client_of(posteriori.serve.app(model)).get("/models").json()["models"][0]
    assert known["utility"]["actions"] == ["Adelie", "Chinstrap", "Gentoo", "measure the bill"]
    assert [column["name"] for column in known["columns"]] == ["flipper_length_mm", "body_mass_g"]


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"posteriori {posteriori.__version__}\n"


def test_deciding_pays(output):
    """Against both ways to do without: naming every penguin, and measuring the bill of every one."""
    assert 10 <= int(re.search(r"\n  measure the bill +(\d+)", output).group(1)) <= 100
    rows = ("decided", "always a name", "always measure the bill")
    decided, named, measured = (float(re.search(rf"{row} +\d+ +(\d\.\d+)", output).group(1)) for row in rows)
    assert decided > named + 0.05
    assert decided > measured + 0.05
    said = " ".join(output.split())
    assert f"{decided - named:.3f} more than always naming the most probable species" in said
    assert f"{decided - measured:.3f} more than measuring every bill" in said


@pytest.mark.parametrize("folder", ["missing", "protected"])
def test_demo_without_a_place_for_temporary_files(folder, tmp_path, monkeypatch):

    def missing():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    def protected(*_, **__):
        raise PermissionError(13, "Permission denied")

    if folder == "missing":
        monkeypatch.setattr("tempfile.gettempdir", missing)
    else:
        monkeypatch.setattr("posteriori.cli.demo.write_report", protected)
    result = CliRunner().invoke(app, ["demo"], env={"NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    assert "No report: there is no" in result.output
    assert "Give --report FILE." in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_demo_writes_a_report_and_says_where(output, page):
    assert str(page) in output
    assert "measure the bill" in page.read_text(encoding="utf-8")
