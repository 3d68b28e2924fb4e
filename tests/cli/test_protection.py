"""What fit says while it works, and that it stores nothing worse than the class frequencies."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app
from posteriori.cli.progress import Progress, Shape, expected_seconds, in_words
from posteriori.meta import selection
from posteriori.meta.comparison import ComparedModel, Comparison


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"NO_COLOR": "1", "COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(selection, "_MOST_ROWS_OF_GP", 0)
    monkeypatch.setattr(selection, "_CANDIDATES", ("bayes", "gaussian"))


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """A table with nothing to learn."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_t(2, size=(60, 8))).rename(columns=lambda d: f"x{d}")
    path = tmp_path_factory.mktemp("noise") / "noise.csv"
    table.assign(y=rng.choice(["a", "b", "c"], 60, p=[0.6, 0.3, 0.1])).to_csv(path, index=False)
    return path


def test_nothing_was_learned(noise, tmp_path, monkeypatch):
    monkeypatch.setitem(selection.MODELS, "gaussian", partial(po.GaussianClassifier, "tied"))
    out = tmp_path / "m"
    summary = json.loads(run("fit", noise, "--target", "y", "--out", out, "--json").stdout)
    assert (summary["learned"], summary["model"]) == (False, "frequencies")
    predictions = tmp_path / "p.csv"
    run("predict", out, noise, "--interval", 0.9, "--uncertainty", "--out", predictions)
    shares = pd.read_csv(noise)["y"].value_counts(normalize=True)
    table = pd.read_csv(predictions)
    for name, share in shares.items():
        assert table[f"p({name})"].to_numpy() == pytest.approx(share, abs=0.05)
        assert (table[f"p({name}) lower"] < table[f"p({name}) upper"]).all()
    (tmp_path / "u.csv").write_text("state,go,stay\na,1,0\nb,-3,0\nc,-3,0\n")
    actions = run("decide", out, noise, "--utility", tmp_path / "u.csv", "--format", "jsonl").stdout.splitlines()
    assert {json.loads(line)["action"] for line in actions} == {"stay"}


def test_where_nothing_was_learned_no_feature_breaks_a_tie(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("uvw")).assign(y=["b", "a"] * 20)
    model = selection.table_model("frequencies").fit(table, "y")
    P = model.predict_proba(table)
    assert (P == P[0]).all()
    assert (model.predict(table) == "a").all()


def test_what_few_rows_cannot_tell_apart_is_said_to_be_so():
    def compared(name, loss, difference):
        return ComparedModel(name, loss, 0.1, difference, 0.05, 0.5, 0.5, 1.0, 0.5, "")

    losses = {"gaussian": np.array([0.1, 1.1, 0.7]), "frequencies": np.full(3, 0.7)}
    models = [compared("gaussian", 0.6333, 0.0), compared("frequencies", 0.7, 0.0667)]
    name, reason = selection._chosen(Comparison(models, np.arange(3), losses, None), None, must_stack=False)
    assert name == "frequencies"
    assert reason == (
        "on 3 rows left out, gaussian has a log-loss of 0.6333, the class frequencies have 0.7000, and so few rows "
        "cannot tell these apart (standard error of the difference: 0.2906)"
    )


def test_a_model_worse_than_the_frequencies_on_its_own_rows(tmp_path, monkeypatch):
    """With many rows none are held out, but a model that is wrong about the world is found out all the same."""
    monkeypatch.setitem(selection.MODELS, "gaussian", partial(po.GaussianClassifier, "diagonal", estimate="mle"))
    monkeypatch.setattr("posteriori.cli.fit.is_checked", lambda *_: False)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3000)
    x = 0.5 * y + rng.standard_t(3, size=3000)
    table = pd.DataFrame({f"x{d}": x + 1e-3 * rng.normal(size=3000) for d in range(30)})  # one feature, thirty times
    table.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", "--target", "y", "--model", "gaussian", "--json")
    summary = json.loads(result.stdout)
    assert (summary["learned"], summary["model"]) == (False, "frequencies")
    assert "on the rows of the fit, gaussian has a log-loss of" in summary["choice"]["reason"]


def test_what_can_be_learned_is(tmp_path, monkeypatch):
    monkeypatch.setitem(selection.MODELS, "gaussian", partial(po.GaussianClassifier, "tied"))
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b"], 40)
    pd.DataFrame({"x": rng.normal(size=40) + 3 * (y == "b"), "y": y}).to_csv(tmp_path / "t.csv", index=False)
    for model in ("softmax", "bayes", "gaussian"):
        summary = json.loads(run("fit", tmp_path / "t.csv", "--target", "y", "--model", model, "--json").stdout)
        assert (summary["learned"], summary["model"]) == (True, model)


# What is said meanwhile


def test_fit_says_what_it_is_doing(noise, monkeypatch):
    monkeypatch.setitem(selection.MODELS, "gaussian", partial(po.GaussianClassifier, "tied"))
    result = run("fit", noise, "--target", "y")
    said, table = result.stderr.splitlines(), result.stdout
    assert "Nothing was learned: on 60 rows left out, " in table
    assert said[0].startswith(f"Reading {noise}. Then models are fitted, from seconds to minutes")
    assert said[1].startswith("Fitting bayes, gaussian, judged by rows left out and against the class frequencies")
    assert "up to about" in said[1]
    assert [line.split(":")[0].strip() for line in said[2:4]] == ["bayes", "gaussian"]
    assert all("log-loss" in line and line.endswith(" s") for line in said[2:4])
    shown = dict(line.split()[:2] for line in table.splitlines() if line.split()[:1] in (["bayes"], ["gaussian"]))
    assert all(f"{name}: log-loss {loss} " in " ".join(said) for name, loss in shown.items()), "one number, twice"
    assert len(shown) == 2
    assert said[4] == "Fitting frequencies (60 rows, 8 features, 3 classes): about a second."


def test_quiet_is_quiet(noise):
    assert run("fit", noise, "--target", "y", "--model", "bayes", "--quiet").stderr == ""


def test_estimates_grow_with_the_work():
    small, large = Shape(100, 5, 3), Shape(3_000, 50, 10)
    for name in ("softmax", "bayes", "gaussian", "forest", "boosting", "gp", "deep-gp"):
        assert 0 < expected_seconds(name, small) < expected_seconds(name, large)
    assert in_words(119) == "up to about 2 minutes"
    assert in_words(1.5) == "up to about 2 seconds"


def test_a_terminal_has_a_line_that_changes():
    import io

    from rich.console import Console
    from rich.status import Status

    console = Console(file=io.StringIO(), force_terminal=True, markup=False, width=80)
    with Status("", console=console) as status:
        progress = Progress(status, quiet=True)
        progress.beginning("[/a]")
        assert "[/a]" in status.status.plain
