"""MLflow's scoring protocol: predictions in every form of rows; what is wrong is refused in MLflow's words and ours."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client, client_of
from tests.serve.test_plain import GOOD, plain, records

import posteriori as po
from posteriori.serve import Limits, app
from posteriori.serve.bodies import ARROW, CSV, PARQUET

CLASSES = ("Adelie", "Chinstrap", "Gentoo")


def split(table: pd.DataFrame) -> dict[str, Any]:
    rows = records(table)
    return {"columns": list(rows[0]), "data": [list(row.values()) for row in rows], "index": list(range(len(rows)))}


def columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    rows = records(table)
    return {name: [row[name] for row in rows] for name in rows[0]}


FORMS = {"dataframe_split": split, "dataframe_records": records, "instances": records, "inputs": columns}


class TestAnswers:
    """Predictions are those of the model."""

    @pytest.mark.parametrize("form", FORMS)
    def test_classes(self, client: Client, model: Any, penguins: pd.DataFrame, form: str) -> None:
        reply = client.post("/invocations", json={form: FORMS[form](penguins)})
        assert reply.json() == {"predictions": model.predict(penguins).tolist()}

    @pytest.mark.parametrize("form", FORMS)
    def test_columns(self, client: Client, model: Any, penguins: pd.DataFrame, form: str) -> None:
        """The columns are those that /predict writes as CSV."""
        params = {"answers": ["class", "proba", "upper", "epistemic"], "level": 0.8}
        said = client.post("/invocations", json={form: FORMS[form](penguins), "params": params}).json()["predictions"]
        table = pd.DataFrame(said)
        text = client.post(
            "/predict?answers=class,proba,upper,epistemic&level=0.8",
            content=penguins.to_csv(index=False),
            headers={"content-type": CSV, "accept": CSV},
        ).text
        assert list(table) == list(pd.read_csv(io.StringIO(text)))
        encoded = model[0].transform(penguins)
        assert table["prediction"].tolist() == model.predict(penguins).tolist()
        np.testing.assert_allclose(
            table[[f"p({name})" for name in CLASSES]], model.predict_proba(penguins), rtol=1e-12, atol=1e-300
        )
        _, upper = model[1].predict_interval(encoded, 0.8)
        np.testing.assert_allclose(table[[f"p({name}) upper" for name in CLASSES]], upper, rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(table["epistemic"], model[1].uncertainty(encoded).epistemic, rtol=1e-12)

    def test_one_answer_by_name_is_a_column_too(self, client: Client) -> None:
        said = client.post("/invocations?answers=class", json={"instances": [GOOD]}).json()
        assert [list(row) for row in said["predictions"]] == [["prediction"]]

    @pytest.mark.parametrize("kind", [CSV, PARQUET, ARROW])
    def test_tables(self, client: Client, model: Any, penguins: pd.DataFrame, kind: str) -> None:
        out = io.BytesIO()
        if kind == PARQUET:
            penguins.to_parquet(out)
        elif kind == ARROW:
            table = pa.Table.from_pandas(penguins, preserve_index=False)
            with pa.ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table)
        else:
            penguins.to_csv(out, index=False)
        headers = {"content-type": f"{kind}; charset=utf-8"}
        reply = client.post("/invocations", content=out.getvalue(), headers=headers)
        assert reply.json() == {"predictions": model.predict(penguins).tolist()}
        reply = client.post("/invocations?answers=proba", content=out.getvalue(), headers=headers)
        P = pd.DataFrame(reply.json()["predictions"]).to_numpy()
        np.testing.assert_allclose(P, model.predict_proba(penguins), rtol=1e-9, atol=1e-300)

    def test_decisions(self, client: Client, model: Any, penguins: pd.DataFrame, utility: po.Utility) -> None:
        params = {"answers": ["action", "expected_utility"], "utility": plain(utility)}
        said = client.post("/invocations", json={"instances": records(penguins), "params": params}).json()
        found, decided = pd.DataFrame(said["predictions"]), po.decide(model.predict_proba(penguins), utility)
        assert found["action"].tolist() == decided.actions.tolist()
        values = found[["utility(keep)", "utility(release)"]]
        np.testing.assert_allclose(values, decided.expected_utility, rtol=1e-12, atol=1e-12)

    def test_nan_as_python_writes_it(self, client: Client) -> None:
        body = orjson.dumps({"dataframe_records": [GOOD], "params": {"answers": ["proba"]}})
        assert body.count(b"null") == 2
        replies = [client.post("/invocations", content=content) for content in (body, body.replace(b"null", b"NaN"))]
        assert replies[0].status_code == 200
        assert replies[0].json() == replies[1].json()

    def test_infinity_as_python_writes_it(self, client: Client) -> None:
        body = orjson.dumps({"dataframe_records": [GOOD]}).replace(b"190", b"-Infinity").replace(b"null", b"NaN")
        reply = client.post("/invocations", content=body)
        assert (reply.status_code, reply.json()["row"], reply.json()["column"]) == (400, 1, "flipper_length_mm")

    def test_new_levels_can_be_accepted(self, client: Client) -> None:
        said = client.post(
            "/invocations", json={"instances": [GOOD | {"sex": "blue"}], "params": {"new_levels": "accept"}}
        ).json()
        assert len(said["predictions"]) == 1
        assert "'blue'" in said["warnings"][0]

    def test_many_rows_go_through_threads(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        many = pd.concat([penguins] * 12, ignore_index=True)
        reply = client.post("/invocations", json={"dataframe_records": records(many)})
        assert len(reply.request.content) > 1 << 18
        assert reply.json()["predictions"] == model.predict(many).tolist()

    def test_rows_are_counted(self, client: Client, penguins: pd.DataFrame) -> None:
        client.post("/invocations", json={"dataframe_split": split(penguins)})
        text = client.get("/metrics").text
        assert 'posteriori_rows_total{model="penguins"} 344' in text
        assert 'route="/invocations",status="200"} 1' in text


class TestMatrix:
    """A model whose columns have no names takes lists of numbers."""

    @pytest.mark.parametrize(
        "form",
        [
            lambda X: {"inputs": X},
            lambda X: {"instances": X},
            lambda X: {"dataframe_split": {"data": X}},
            lambda X: {"dataframe_split": {"data": X, "columns": [0, 1, 2, 3], "index": [0, 1, 2]}},
            lambda X: {"dataframe_split": {"data": X, "columns": ["x0", "x1", "x2", "x3"]}},
            lambda X: {"inputs": {f"x{d}": [row[d] for row in X] for d in range(4)}},
            lambda X: {"dataframe_records": [{f"x{d}": value for d, value in enumerate(row)} for row in X]},
        ],
    )
    def test_forms(self, numbers_model: Any, form: Any) -> None:
        X = np.random.default_rng(1).normal(size=(3, 4))
        ask = client_of(app(numbers_model))
        assert ask.post("/invocations", json=form(X.tolist())).json() == {
            "predictions": numbers_model.predict(X).tolist()
        }
        said = ask.post("/invocations", json=form(X.tolist()) | {"params": {"answers": "proba"}}).json()["predictions"]
        np.testing.assert_allclose(pd.DataFrame(said), numbers_model.predict_proba(X), rtol=1e-12)

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"inputs": [[1, 2, 3]]}, "Row 1 must be a list of 4 values"),
            ({"inputs": [[1, 2, 3, 4], 5]}, "Row 2 must be a list of 4 values"),
            ({"inputs": [[1, 2, 3, "a"]]}, "Row 1: column 'x3' holds 'a', where a number is expected"),
            ({"inputs": []}, "no rows"),
            ({"dataframe_split": {"data": []}}, "no rows"),
            ({"dataframe_split": {"data": [[1, 2, 3, 4]], "columns": 4}}, "columns of dataframe_split must be a list"),
            ({"dataframe_split": {"data": [[1]], "columns": [0]}}, "Row 1 must be a list of 4 values"),
            ({"inputs": [1, 2, 3, 4]}, "Row 1 is a number: an object with a value for every column is needed"),
        ],
    )
    def test_refusals(self, numbers_model: Any, body: dict[str, Any], words: str) -> None:
        reply = client_of(app(numbers_model)).post("/invocations", json=body)
        assert reply.status_code == 400
        assert words in reply.json()["message"]

    def test_a_model_with_names_takes_names(self, client: Client) -> None:
        for body in ({"inputs": [list(GOOD.values())]}, {"dataframe_split": {"data": [list(GOOD.values())]}}):
            assert client.post("/invocations", json=body).status_code == 400


class TestModels:
    """Several models, and versions."""

    def test_names_and_versions(self, tmp_path: Path, model: Any, penguins: pd.DataFrame) -> None:
        old = make_pipeline(po.TableEncoder(), po.SoftmaxRegression(alpha=100.0)).fit(penguins, "species")
        po.save(old, tmp_path / "old.model")
        po.save(model, tmp_path / "new.model")
        ask = client_of(
            app([f"birds@1={tmp_path}/old.model", f"birds@2={tmp_path}/new.model", f"a={tmp_path}/old.model"])
        )
        body = {"instances": records(penguins[:5])}
        for fitted, chosen in ((model, {"model": "birds"}), (old, {"model": "birds", "version": "1"})):
            asked = chosen | {"answers": "proba"}
            for reply in (
                ask.post("/invocations", params=asked, json=body),
                ask.post("/invocations", json=body | {"params": asked}),
            ):
                P = pd.DataFrame(reply.json()["predictions"])
                np.testing.assert_allclose(P, fitted.predict_proba(penguins[:5]), rtol=1e-12)
        reply = ask.post("/invocations", json=body)
        assert reply.status_code == 400
        assert "name one of 'birds', 'a'" in reply.json()["message"]
        reply = ask.post("/invocations?model=cats", json=body)
        assert (reply.status_code, reply.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
        assert ask.post("/invocations", json=body | {"params": {"model": 3}}).status_code == 400


class TestRefusals:
    """What is wrong is said in MLflow's fields, in the words of /predict."""

    @pytest.mark.parametrize("change", [{"sex": "blue"}, {"body_mass_g": "big"}, {"colour": 1}, {"sex": 3}])
    def test_values(self, client: Client, change: dict[str, Any]) -> None:
        rows = [GOOD, GOOD | change]
        reply = client.post("/invocations", json={"instances": rows})
        known = client.post("/predict", json=rows)
        assert (reply.status_code, known.status_code) == (400, 400)
        assert reply.json() == known.json() | {"error_code": "BAD_REQUEST", "message": known.json()["error"]}

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ([GOOD], "exactly one of 'dataframe_split', 'dataframe_records', 'instances', 'inputs'"),
            ({}, "it has none"),
            ({"rows": [GOOD]}, "it has 'rows'"),
            ({"inputs": [GOOD], "instances": [GOOD]}, "it has 'inputs', 'instances'"),
            ({"instances": [GOOD], "params": [1]}, "params must be an object"),
            ({"instances": [GOOD], "params": {"levle": 1}}, "'levle' in params is unknown"),
            ({"instances": [GOOD], "params": {"level": 2}}, "between 0 and 1"),
            ({"instances": [GOOD], "params": {"answers": ["set"]}}, "prediction sets need a ConformalClassifier"),
            ({"instances": GOOD}, "Rows must be a list of objects"),
            ({"instances": []}, "no rows"),
            ({"instances": [3]}, "Row 1 is a number"),
            ({"inputs": GOOD}, "Column 'island' of inputs must be a list of values"),
            ({"inputs": {}}, "is missing"),
            ({"inputs": {name: [value] for name, value in GOOD.items()} | {"sex": []}}, "different numbers of values"),
            ({"dataframe_split": [GOOD]}, "dataframe_split must be an object"),
            ({"dataframe_split": {"data": {}}}, "dataframe_split must be an object"),
            ({"dataframe_split": {"columns": "a", "data": []}}, "must be a list of names"),
            ({"dataframe_split": {"columns": [0], "data": []}}, "must be a list of names"),
            ({"dataframe_split": {"columns": ["a", "a"], "data": []}}, "Several columns are called 'a'"),
            ({"dataframe_split": {"columns": ["a"], "data": [], "dtypes": []}}, "'dtypes' in dataframe_split"),
            ({"dataframe_split": {"columns": ["a"], "data": [[1], [2, 3]]}}, "Row 2 must be a list of 1 values"),
        ],
    )
    def test_bodies(self, client: Client, body: Any, words: str) -> None:
        reply = client.post("/invocations", json=body)
        assert reply.status_code == 400
        assert words in reply.json()["message"], reply.text
        assert reply.json()["error"] == reply.json()["message"]

    def test_an_option_twice(self, client: Client) -> None:
        reply = client.post("/invocations?level=0.5", json={"instances": [GOOD], "params": {"level": 0.5}})
        assert (reply.status_code, "once is enough" in reply.json()["message"]) == (400, True)

    def test_kinds_of_bodies(self, client: Client) -> None:
        reply = client.post("/invocations", content=b"<a/>", headers={"content-type": "application/xml"})
        assert (reply.status_code, reply.json()["error_code"]) == (415, "BAD_REQUEST")
        assert client.post("/invocations", content=b"").json()["message"] == "The body is empty: JSON is expected."

    def test_text_in_a_table(self, client: Client, penguins: pd.DataFrame) -> None:
        text = penguins[:300].to_csv(index=False).replace("3250.0", "three", 1)
        said = client.post("/invocations", content=text, headers={"content-type": CSV}).json()
        assert said["column"] == "body_mass_g"
        assert "holds 'three', where a number is expected" in said["message"]

    @pytest.mark.parametrize("form", FORMS)
    def test_too_many_rows_or_columns(self, model: Any, penguins: pd.DataFrame, form: str) -> None:
        ask = client_of(app(model, limits=Limits(rows=10, columns=7)))
        assert ask.post("/invocations", json={form: FORMS[form](penguins[:10])}).status_code == 200
        reply = ask.post("/invocations", json={form: FORMS[form](penguins[:11])})
        assert (reply.status_code, "at most 10 are taken" in reply.json()["message"]) == (413, True)
        if form in ("inputs", "dataframe_split"):
            wide = FORMS[form](penguins[:2].assign(colour=1))
            assert ask.post("/invocations", json={form: wide}).status_code == 413


def test_whether_it_is_there(client: Client) -> None:
    assert [client.get(path).text for path in ("/ping", "/health")] == ["\n", "\n"]
    assert client.get("/version").text == po.__version__
