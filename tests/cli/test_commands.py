"""From a table to a decision on the command line: files in, files and sentences out."""

import json
from importlib.resources import files

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sklearn.pipeline import Pipeline
from typer.testing import CliRunner

import posteriori as po
from posteriori.cli import app
from posteriori.meta.selection import select_model

TARGET = "species"


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env={"NO_COLOR": "1", "COLUMNS": "120"})


def ok(*arguments, stdin=None):
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


def fails(*arguments, code=2):
    result = run(*arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return " ".join(result.stderr.split())


def words(text):
    """The text with one space between words, however its lines were broken."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Penguins with gaps, text and years: two thirds to fit, one third to test, and a stored model."""
    folder = tmp_path_factory.mktemp("penguins")
    with files("posteriori.tables").joinpath("bundled", "penguins.csv").open(encoding="utf-8") as file:
        penguins = pd.read_csv(file)
    held = np.arange(len(penguins)) % 3 == 2
    penguins[~held].to_csv(folder / "train.csv", index=False)
    penguins[held].to_csv(folder / "test.csv", index=False)
    penguins[held].drop(columns=TARGET).to_csv(folder / "new.csv", index=False)
    (folder / "utility.csv").write_text("state,keep,release,ask\nAdelie,1,-2,0\nChinstrap,-2,1,0\nGentoo,-1,1,0\n")
    ok("fit", folder / "train.csv", "--target", TARGET, "--model", "bayes", "--out", folder / "penguins.model")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return po.load(folder / "penguins.model")


@pytest.fixture(scope="module")
def new(folder):
    return pd.read_csv(folder / "new.csv")


# fit


def test_fit_says_what_was_done(folder, tmp_path):
    out = tmp_path / "m.model"
    result = ok("fit", folder / "train.csv", "--target", TARGET, "--model", "softmax", "--out", out)
    assert "SoftmaxRegression fitted to" in result.stdout
    for word in ("Adelie", "Gentoo", "island", "bill_length_mm", f"Stored in {out}"):
        assert word in " ".join(result.stdout.split())
    assert [p.name for p in tmp_path.iterdir()] == ["m.model"]
    assert po.load(out).score(pd.read_csv(folder / "test.csv"), TARGET) > 0.95


def test_fit_without_a_file_says_so(folder):
    assert (
        "Not stored: give --out FILE"
        in ok("fit", folder / "train.csv", "--target", TARGET, "--model", "softmax").stdout
    )


def test_fit_for_programs(folder):
    printed = json.loads(ok("fit", folder / "train.csv", "--target", TARGET, "--model", "bayes", "--json").stdout)
    train = pd.read_csv(folder / "train.csv")
    assert printed["model"] == "bayes"
    assert printed["rows"] == len(train)
    assert printed["classes"] == train[TARGET].value_counts().to_dict()
    assert {column["column"] for column in printed["columns"]} == set(train.columns) - {TARGET}
    assert printed["stored"] is None
    assert np.isfinite(printed["log_evidence"])
    assert 0.9 < printed["training"]["accuracy"] <= 1.0


@pytest.mark.slow
def test_fit_chooses_and_says_why(folder, monkeypatch):
    monkeypatch.setattr("posteriori.meta.selection._MOST_ROWS_OF_GP", 0)
    monkeypatch.setattr("posteriori.meta.selection._CANDIDATES", ("bayes", "gaussian"))
    found = []

    def select_once(*arguments, **options):
        found.append(found[0] if found else select_model(*arguments, **options))
        return found[-1]

    monkeypatch.setattr("posteriori.cli.fit.select_model", select_once)
    result = ok("fit", folder / "train.csv", "--target", TARGET)
    printed = json.loads(ok("fit", folder / "train.csv", "--target", TARGET, "--json").stdout)
    assert printed["choice"]["candidates"][0]["behind"] == 0.0
    assert {candidate["name"] for candidate in printed["choice"]["candidates"]} == {"bayes", "gaussian", "frequencies"}
    assert "230 rows left out" in printed["choice"]["reason"]
    assert " ".join(f"Model: {printed['model']}, {printed['choice']['reason']}.".split()) in " ".join(
        result.stdout.split()
    )


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """A number, and a category of 80 levels of which a few are rare."""
    rng = np.random.default_rng(0)
    shop = rng.choice(80, 1200, p=np.r_[np.full(60, 0.9 / 60), np.full(20, 0.1 / 20)])
    effects = rng.normal(size=(80, 2))
    a = rng.normal(size=1200)
    kind = (np.column_stack([a, -a]) + effects[shop] + rng.gumbel(size=(1200, 2))).argmax(axis=1)
    path = tmp_path_factory.mktemp("shops") / "shops.csv"
    pd.DataFrame({"a": a, "shop": [f"s{n}" for n in shop], "kind": np.array(["x", "y"])[kind]}).to_csv(
        path, index=False
    )
    return path


def test_fit_with_a_strength_for_each_block(shops, tmp_path):
    out = tmp_path / "m.model"
    options = ("--target", "kind", "--model", "bayes", "--max-levels", 200, "--min-frequency", 1, "--prior", "blocks")
    result = ok("fit", shops, *options, "--out", out)
    model = po.load(out)
    chosen = model[-1].block_precisions_
    assert model[-1].prior == "blocks"
    assert list(chosen) == ["(numbers)", "shop"]
    assert sum(name.startswith("shop=") for name in model[0].get_feature_names_out()) == 80
    first = min(chosen, key=chosen.get)
    assert f"Precision of the prior by block of columns: {first} {chosen[first]:.3g}" in words(result.stdout)
    printed = json.loads(ok("fit", shops, *options, "--json").stdout)
    assert printed["block_precisions"] == pytest.approx(chosen)
    assert json.loads(ok("fit", shops, *options[:4], "--json").stdout)["block_precisions"] is None


def test_priors_of_other_models(shops):
    message = fails("fit", shops, "--target", "kind", "--model", "gaussian", "--prior", "blocks", "--quiet")
    assert "--prior blocks is for --model bayes, softmax, stack and auto, and not for gaussian" in message
    assert "'lasso'" in fails("fit", shops, "--target", "kind", "--prior", "lasso")


def test_columns_are_left_out_and_rows_weighed(folder, tmp_path):
    train = pd.read_csv(folder / "train.csv")
    train["w"] = np.where(train[TARGET] == "Adelie", 1e-9, 1.0)
    train.to_csv(tmp_path / "w.csv", index=False)
    out = tmp_path / "w.model"
    ok(
        "fit",
        tmp_path / "w.csv",
        "--target",
        TARGET,
        "--model",
        "softmax",
        "--weight",
        "w",
        "--drop",
        "island",
        "--out",
        out,
    )
    model = po.load(out)
    assert "island" not in model[0].feature_names_in_
    assert (model.predict(train) != "Adelie").all()


def test_rows_without_a_target_are_left_out(folder, tmp_path):
    train = pd.read_csv(folder / "train.csv")
    train.loc[[1, 5], TARGET] = None
    train.to_csv(tmp_path / "t.csv", index=False)
    result = ok("fit", tmp_path / "t.csv", "--target", TARGET, "--model", "softmax", "--json")
    assert json.loads(result.stdout)["rows"] == len(train) - 2
    assert "Note: 2 rows without species are left out." in result.stderr


def test_a_target_of_numbers_with_gaps(tmp_path):
    table = pa.table({"a": np.arange(60.0) ** 0.5, "y": pa.array([None, float("nan"), 1.0, 2.0] * 15)})
    parquet.write_table(table, tmp_path / "t.parquet")
    result = ok("fit", tmp_path / "t.parquet", "--target", "y", "--model", "softmax", "--json")
    assert json.loads(result.stdout)["classes"] == {"1.0": 15, "2.0": 15}
    assert "Note: 30 rows without y are left out." in result.stderr


# evaluate


def test_evaluate(folder, model):
    test = pd.read_csv(folder / "test.csv")
    printed = json.loads(ok("evaluate", folder / "penguins.model", folder / "test.csv", "--json").stdout)
    P = model.predict_proba(test)
    truth = np.searchsorted(model.classes_, test[TARGET])
    assert printed["scores"]["log_loss"]["value"] == pytest.approx(
        -np.log(P[np.arange(len(P)), truth]).mean(), rel=1e-12
    )
    assert printed["scores"]["accuracy"]["value"] == (P.argmax(axis=1) == truth).mean()
    result = ok("evaluate", folder / "penguins.model", folder / "test.csv")
    assert f"{printed['scores']['log_loss']['value']:.4f}" in result.stdout
    assert "Chinstrap" in result.stdout


def test_evaluate_by_utility(folder, model):
    test = pd.read_csv(folder / "test.csv")
    arguments = ("evaluate", folder / "penguins.model", folder / "test.csv", "--utility", folder / "utility.csv")
    printed = json.loads(ok(*arguments, "--json").stdout)["utility"]
    utility = po.Utility.from_csv(folder / "utility.csv")
    decisions = po.decide(model.predict_proba(test), utility, classes=model.classes_)
    U = pd.DataFrame(utility.matrix, index=utility.states, columns=utility.actions)
    realised = np.mean([U.loc[s, a] for s, a in zip(test[TARGET], decisions.actions, strict=True)])
    assert printed["realised"] == pytest.approx(realised)
    assert sum(printed["actions"].values()) == len(test)
    assert f"{printed['realised']:.4g} realised" in ok(*arguments).stdout


def test_evaluate_with_a_report(folder, tmp_path):
    page = tmp_path / "report.html"
    arguments = ("evaluate", folder / "penguins.model", folder / "test.csv", "--report", page)
    printed = json.loads(ok(*arguments, "--json").stdout)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert f"{printed['scores']['log_loss']['value']:.3f}" in text
    for words_of_head in ("Target</dt><dd>species", "BayesianSoftmaxRegression", "penguins.model", "test.csv (of 2"):
        assert words_of_head in text
    assert str(page) in ok(*arguments).stdout.replace("\n", "")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


# predict


@pytest.mark.parametrize("name", ["p.csv", "p.parquet", "p.jsonl"])
def test_predict(folder, model, new, tmp_path, name):
    out = tmp_path / name
    result = ok("predict", folder / "penguins.model", folder / "new.csv", "--keep", "island", "--out", out)
    assert result.stdout == ""
    read = {"p.csv": pd.read_csv, "p.parquet": pd.read_parquet, "p.jsonl": lambda p: pd.read_json(p, lines=True)}[name]
    table = read(out)
    assert [*table.columns] == ["island", "prediction", *(f"p({name})" for name in model.classes_)]
    np.testing.assert_array_equal(table["prediction"], model.predict(new))
    np.testing.assert_allclose(table.iloc[:, 2:].to_numpy(float), model.predict_proba(new), rtol=1e-9)
    np.testing.assert_array_equal(table["island"], new["island"])


def test_rows_are_predicted_in_parts(folder, model, new, tmp_path, monkeypatch):
    monkeypatch.setattr("posteriori.cli.predict.ROWS_AT_ONCE", 10)
    out = tmp_path / "p.parquet"
    ok("predict", folder / "penguins.model", folder / "new.csv", "--out", out)
    table = pd.read_parquet(out)
    np.testing.assert_array_equal(table["prediction"], model.predict(new))
    np.testing.assert_allclose(table.iloc[:, 1:].to_numpy(float), model.predict_proba(new), rtol=1e-12)
    new.assign(bill_length_mm=new["bill_length_mm"].where(new.index != 37, np.inf)).to_csv(tmp_path / "inf.csv")
    ok("predict", folder / "penguins.model", tmp_path / "inf.csv", "--out", out)
    gone = new.assign(bill_length_mm=new["bill_length_mm"].where(new.index != 37))
    np.testing.assert_allclose(pd.read_parquet(out).iloc[:, 1:].to_numpy(float), model.predict_proba(gone), rtol=1e-12)


def test_predict_from_standard_input_to_standard_output(folder, model, new):
    text = (folder / "new.csv").read_text()
    result = ok("predict", folder / "penguins.model", "-", "--format", "jsonl", stdin=text)
    predicted = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["prediction"] for row in predicted] == [*model.predict(new)]


def test_predict_with_intervals_and_uncertainty(folder, model, new, tmp_path):
    out = tmp_path / "p.parquet"
    ok("predict", folder / "penguins.model", folder / "new.csv", "--interval", 0.9, "--uncertainty", "--out", out)
    table = pd.read_parquet(out)
    lower, upper = model[-1].predict_interval(model[0].transform(new), 0.9)
    np.testing.assert_array_equal(table["p(Gentoo) lower"], lower[:, 2])
    np.testing.assert_array_equal(table["p(Gentoo) upper"], upper[:, 2])
    np.testing.assert_allclose(table["total"], table["aleatoric"] + table["epistemic"], atol=1e-12)


def test_files_by_pattern(folder, model, new, tmp_path):
    table = pa.Table.from_pandas(new, preserve_index=False)
    parquet.write_table(table.slice(0, 50), tmp_path / "part-1.parquet")
    parquet.write_table(table.slice(50), tmp_path / "part-2.parquet")
    out = tmp_path / "p.csv"
    ok("predict", folder / "penguins.model", tmp_path / "part-*.parquet", "--out", out)
    np.testing.assert_array_equal(pd.read_csv(out)["prediction"], model.predict(new))


def test_text_that_looks_like_numbers_stays_text(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.choice(["007", "x12", "3"], 90)
    pd.DataFrame({"code": codes, "y": np.where(codes == "x12", "b", "a")}).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"code": ["007", "3"]}).to_csv(tmp_path / "new.csv", index=False)  # would be numbers by themselves
    ok("fit", tmp_path / "t.csv", "--target", "y", "--model", "bayes", "--out", tmp_path / "m")
    result = ok("predict", tmp_path / "m", tmp_path / "new.csv", "--format", "jsonl")
    assert [json.loads(line)["prediction"] for line in result.stdout.splitlines()] == ["a", "a"]


# decide


def test_decide(folder, model, new, tmp_path):
    out = tmp_path / "d.csv"
    ok("decide", folder / "penguins.model", folder / "new.csv", "--utility", folder / "utility.csv", "--out", out)
    table = pd.read_csv(out)
    utility = po.Utility.from_csv(folder / "utility.csv")
    decisions = po.decide(model.predict_proba(new), utility, classes=model.classes_)
    np.testing.assert_array_equal(table["action"], decisions.actions)
    np.testing.assert_allclose(table["utility(ask)"], decisions.expected_utility[:, 2], atol=1e-12)
    np.testing.assert_allclose(table["margin"], decisions.margin, rtol=1e-9)
    np.testing.assert_allclose(table["value_of_information"], decisions.value_of_information, rtol=1e-9, atol=1e-12)


# What goes wrong


def test_mistakes_are_named_in_a_sentence(folder, tmp_path):
    train, stored = folder / "train.csv", folder / "penguins.model"
    assert "--target names 'kind', and the table has the columns 'species'" in fails("fit", train, "--target", "kind")
    assert "There is no file" in fails("fit", tmp_path / "none.csv", "--target", "y")
    assert "'bill_length_mm'" in fails("fit", train, "--target", "bill_length_mm")
    (tmp_path / "one.csv").write_text("a,y\n1,x\n2,x\n")
    assert "needs two classes" in fails("fit", tmp_path / "one.csv", "--target", "y")
    assert "--keep names 'id'" in fails("predict", stored, folder / "new.csv", "--keep", "id")
    pd.read_csv(folder / "new.csv").drop(columns=["island"]).to_csv(tmp_path / "less.csv", index=False)
    assert "island" in fails("predict", stored, tmp_path / "less.csv")
    (tmp_path / "u.csv").write_text("state,go\nAdelie,1\n")
    assert "Chinstrap" in fails("decide", stored, folder / "new.csv", "--utility", tmp_path / "u.csv")
    assert "no column 'species', the target of the fit" in fails("evaluate", stored, folder / "new.csv")
    assert "train.csv" in fails("predict", train, folder / "new.csv")
    assert "does not show a known format" in fails("predict", stored, folder / "new.csv", "--out", tmp_path / "p.xlsx")
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".xlsx"] == []


def test_an_interval_needs_a_posterior(folder, tmp_path):
    pipeline = Pipeline([("encode", po.TableEncoder()), ("fit", po.SoftmaxRegression())])
    po.save(pipeline.fit(pd.read_csv(folder / "train.csv"), TARGET), tmp_path / "m")
    assert "interval needs a posterior" in fails("predict", tmp_path / "m", folder / "new.csv", "--interval", 0.9)


def test_gaussian_classes_have_intervals(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("posteriori.cli.fit.is_checked", lambda *_: False)
    out = tmp_path / "p.csv"
    ok("fit", folder / "train.csv", "--target", TARGET, "--model", "gaussian", "--out", tmp_path / "m")
    ok("predict", tmp_path / "m", folder / "new.csv", "--interval", 0.9, "--uncertainty", "--out", out)
    table = pd.read_csv(out)
    assert (table["p(Adelie) lower"] <= table["p(Adelie)"]).all()
    assert (table["p(Adelie)"] <= table["p(Adelie) upper"]).all()
    assert (table["epistemic"] >= 0).all()


def test_debug_shows_where_an_error_came_from(folder):
    result = run("fit", folder / "train.csv", "--target", "kind", "--debug")
    assert isinstance(result.exception, ValueError)


def test_what_should_not_happen_is_told_apart(folder, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("posteriori.cli.fit.training_rows", broken)
    printed = fails("fit", folder / "train.csv", "--target", TARGET, code=1)
    assert "division by zero" in printed
    assert "--debug" in printed


def test_every_command_has_help_with_examples():
    for name in ("fit", "evaluate", "predict", "decide", "walkthrough"):
        text = " ".join(ok(name, "--help").stdout.split())
        assert f"posteriori {name}" in text
        assert "For example" in text
    assert f"posteriori {po.__version__}" in ok("--version").stdout
