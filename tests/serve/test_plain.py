"""The plain protocol: every answer is that of the model, in every format; what is wrong is said with row and column."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.serve.asgi import Client, client_of, run

import posteriori as po
from posteriori.serve import Limits, app
from posteriori.serve.answers import ANSWERS, Asked
from posteriori.serve.arrow_sizes import decoded_bytes, unpacked_size
from posteriori.serve.bodies import ARROW, CSV, PARQUET
from posteriori.serve.rows import of_records
from posteriori.serve.served_model import served


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return orjson.loads(table.drop(columns="species").to_json(orient="records"))


def plain(utility: po.Utility) -> dict[str, Any]:
    assert utility.matrix is not None
    return {"states": utility.states.tolist(), "actions": utility.actions.tolist(), "matrix": utility.matrix.tolist()}


class TestAnswers:
    """Values of every answer."""

    @pytest.mark.parametrize(
        "classifier",
        [
            po.SoftmaxRegression(),
            po.BayesianSoftmaxRegression(),
            po.GaussianClassifier(),
            po.ForestClassifier(n_trees=5, random_state=0),
            po.BoostingClassifier(max_rounds=5, random_state=0),
            po.GPClassifier(random_state=0),
            GaussianNB(),
        ],
        ids=lambda one: type(one).__name__,
    )
    def test_every_classifier_behind_a_table_encoder(self, classifier: Any, penguins: pd.DataFrame) -> None:
        fitted = make_pipeline(po.TableEncoder(), classifier).fit(penguins.drop(columns="species"), penguins["species"])
        known = served("birds", "1", fitted)
        few = penguins.iloc[::40].drop(columns="species")
        rows = of_records(orjson.loads(few.to_json(orient="records")), known.columns, known.ignored)
        found = known.answer(rows, Asked(tuple(known.answers))).values
        np.testing.assert_allclose(found["proba"], fitted.predict_proba(few), rtol=1e-12)
        if "lower" in found:
            lower, upper = fitted[-1].predict_interval(fitted[:-1].transform(few))
            np.testing.assert_allclose(found["lower"], lower, rtol=1e-12)
            np.testing.assert_allclose(found["upper"], upper, rtol=1e-12)
        if "epistemic" in found:
            np.testing.assert_array_equal(
                found["epistemic"], fitted[-1].uncertainty(fitted[:-1].transform(few)).epistemic
            )

    def test_probabilities_are_those_of_the_model(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        said = client.post("/predict", json={"rows": records(penguins)}).json()
        P = np.array([list(row["proba"].values()) for row in said["rows"]])
        np.testing.assert_allclose(P, model.predict_proba(penguins), rtol=1e-12, atol=1e-300)
        assert [row["class"] for row in said["rows"]] == model.predict(penguins).tolist()
        assert said["classes"] == ["Adelie", "Chinstrap", "Gentoo"]

    def test_intervals_and_uncertainty(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        some = penguins.iloc[[0, 200, 300]]
        wanted = ["lower", "upper", "total", "aleatoric", "epistemic"]
        said = client.post("/predict", json={"rows": records(some), "answers": wanted, "level": 0.8}).json()["rows"]
        encoded = model[0].transform(some)
        lower, upper = model[1].predict_interval(encoded, 0.8)
        np.testing.assert_allclose([list(row["lower"].values()) for row in said], lower, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose([list(row["upper"].values()) for row in said], upper, rtol=1e-9, atol=1e-300)
        parts = model[1].uncertainty(encoded)
        for name in ("total", "aleatoric", "epistemic"):
            np.testing.assert_allclose([row[name] for row in said], getattr(parts, name), rtol=1e-9)

    def test_decisions_by_a_utility_in_the_request(
        self, client: Client, model: Any, penguins: pd.DataFrame, utility: po.Utility
    ) -> None:
        wanted = ["action", "expected_utility", "margin", "value_of_information"]
        asked = {"rows": records(penguins), "answers": wanted, "utility": plain(utility)}
        said = client.post("/predict", json=asked).json()
        found = po.decide(model.predict_proba(penguins), utility, classes=model.classes_)
        assert [row["action"] for row in said["rows"]] == found.actions.tolist()
        assert said["actions"] == ["keep", "release"]
        expected = [list(row["expected_utility"].values()) for row in said["rows"]]
        np.testing.assert_allclose(expected, found.expected_utility, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([row["margin"] for row in said["rows"]], found.margin, rtol=1e-9, atol=1e-12)
        value = [row["value_of_information"] for row in said["rows"]]
        np.testing.assert_allclose(value, found.value_of_information, rtol=1e-6, atol=1e-12)

    def test_a_utility_alone_asks_for_decisions(
        self, client: Client, penguins: pd.DataFrame, utility: po.Utility
    ) -> None:
        rows = records(penguins[:3])
        said = client.post("/predict", json={"rows": rows, "utility": plain(utility)}).json()
        names = ["class", "proba", "action", "expected_utility", "margin", "value_of_information"]
        asked = client.post("/predict", json={"rows": rows, "answers": names, "utility": plain(utility)}).json()
        assert list(said["rows"][0]) == names
        assert said == asked

    def test_states_of_the_utility_may_come_in_any_order(self, client: Client, penguins: pd.DataFrame) -> None:
        one = {"states": ["Gentoo", "Adelie", "Chinstrap"], "actions": ["a", "b"], "matrix": [[0, 1], [1, 0], [1, 0]]}
        said = client.post("/predict", json={"rows": records(penguins[:1]), "answers": ["action"], "utility": one})
        assert said.json()["rows"] == [{"action": "a"}]

    def test_a_single_action_has_no_margin(self, client: Client, penguins: pd.DataFrame) -> None:
        one = {"states": ["Gentoo", "Adelie", "Chinstrap"], "actions": ["a"], "matrix": [[0], [1], [1]]}
        said = client.post("/predict", json={"rows": records(penguins[:1]), "answers": ["margin"], "utility": one})
        assert said.json()["rows"] == [{"margin": None}]

    @pytest.mark.parametrize("outer", [True, False])
    def test_sets_and_the_models_own_utility(self, penguins: pd.DataFrame, utility: po.Utility, outer: bool) -> None:
        """The layers may stand around the pipeline, or at its end."""

        def layers(estimator: Any) -> Any:
            inner = po.ConformalClassifier(estimator, alpha=0.02, random_state=0)
            return po.UtilityClassifier(inner, utility)

        estimator, X = po.SoftmaxRegression(alpha=50.0), penguins.drop(columns="species")
        if outer:
            fitted = layers(make_pipeline(po.TableEncoder(), estimator)).fit(X, penguins["species"])
            sets = fitted.estimator_.predict_set(X)
        else:
            fitted = make_pipeline(po.TableEncoder(), layers(estimator)).fit(penguins, "species")
            sets = fitted[1].estimator_.predict_set(fitted[0].transform(X))
        ask = client_of(app(fitted))
        known = ask.get("/models").json()["models"][0]
        assert known["answers"] == [
            *("class", "proba", "set"),
            *("action", "expected_utility", "margin", "value_of_information"),
        ]
        assert known["utility"] == plain(utility)
        said = ask.post("/predict", json={"rows": records(penguins), "answers": ["set", "action"]}).json()["rows"]
        assert [row["set"] for row in said] == sets.labels()
        assert len({len(row["set"]) for row in said}) > 1
        assert [row["action"] for row in said] == fitted.predict(X).tolist()

    def test_a_model_without_a_table_encoder(self, numbers_model: Any) -> None:
        ask = client_of(app(numbers_model))
        X = np.random.default_rng(1).normal(size=(5, 4))
        rows = [dict(zip(["x0", "x1", "x2", "x3"], row, strict=True)) for row in X.tolist()]
        said = ask.post("/predict", json=rows).json()["rows"]
        np.testing.assert_allclose(
            [list(row["proba"].values()) for row in said], numbers_model.predict_proba(X), rtol=1e-12
        )
        assert [row["class"] for row in said] == numbers_model.predict(X).tolist()
        assert list(said[0]["proba"]) == ["0", "1", "2"]

    def test_missing_values_are_refused_where_the_model_takes_none(self, numbers_model: Any) -> None:
        ask = client_of(app(numbers_model))
        row = dict.fromkeys(["x0", "x1", "x2", "x3"], 1.0)
        reply = ask.post("/predict", json=[row, row | {"x2": None}])
        assert reply.status_code == 400
        assert (reply.json()["row"], reply.json()["column"]) == (2, "x2")
        table = pa.table({name: [value, np.inf if name == "x1" else value] for name, value in row.items()})
        out = io.BytesIO()
        parquet.write_table(table, out)
        reply = ask.post("/predict", content=out.getvalue(), headers={"content-type": PARQUET})
        assert reply.status_code == 400
        assert (reply.json()["row"], reply.json()["column"]) == (2, "x1")

    def test_transformers_of_scikit_learn_in_front(self) -> None:
        rng = np.random.default_rng(2)
        X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
        y = np.where(X["a"] + X["b"] > 0, "up", "down")
        fitted = make_pipeline(StandardScaler(), po.SoftmaxRegression()).fit(X, y)
        said = client_of(app(fitted)).post("/predict", json=X.to_dict(orient="records")).json()["rows"]
        np.testing.assert_allclose([row["proba"]["up"] for row in said], fitted.predict_proba(X)[:, 1], rtol=1e-12)

    def test_the_answers_are_the_same_alone_and_together(self, model: Any, penguins: pd.DataFrame) -> None:
        """Requests that come at the same time are predicted together; one that is refused does not harm others."""
        import asyncio

        import httpx

        application = app(model)
        rows = records(penguins)[:40]
        rows[7] = rows[7] | {"sex": "neither"}

        async def all_at_once() -> list[httpx.Response]:
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                asked = (client.post("/predict", json={"rows": [row], "answers": ["proba", "lower"]}) for row in rows)
                return await asyncio.gather(*asked)

        together = run(all_at_once())
        assert [reply.status_code for reply in together] == [400 if i == 7 else 200 for i in range(40)]
        assert together[7].json()["row"] == 1
        alone = client_of(application)
        for row, reply in zip(rows[:5], together, strict=False):
            single = alone.post("/predict", json={"rows": [row], "answers": ["proba", "lower"]}).json()["rows"][0]
            for name in ("proba", "lower"):
                np.testing.assert_allclose(
                    list(reply.json()["rows"][0][name].values()), list(single[name].values()), rtol=1e-9, atol=1e-300
                )


class TestFormats:
    """The same rows in every format have the same answers."""

    @pytest.fixture
    def bodies(self, penguins: pd.DataFrame) -> dict[str, bytes]:
        table = pa.Table.from_pandas(penguins, preserve_index=False)
        stream, packed = io.BytesIO(), io.BytesIO()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        parquet.write_table(table, packed)
        return {CSV: penguins.to_csv(index=False).encode(), ARROW: stream.getvalue(), PARQUET: packed.getvalue()}

    @pytest.mark.parametrize("kind", [CSV, ARROW, PARQUET])
    @pytest.mark.parametrize("accept", [CSV, ARROW, "application/json"])
    def test_in_and_out(
        self, client: Client, model: Any, penguins: pd.DataFrame, bodies: dict[str, bytes], kind: str, accept: str
    ) -> None:
        headers = {"content-type": kind, "accept": accept}
        reply = client.post("/predict?answers=class,proba", content=bodies[kind], headers=headers)
        assert reply.headers["content-type"].partition(";")[0] == accept
        if accept == "application/json":
            P = np.array([list(row["proba"].values()) for row in reply.json()["rows"]])
            labels = [row["class"] for row in reply.json()["rows"]]
        else:
            content = pa.BufferReader(reply.content)
            table = csv.read_csv(content) if accept == CSV else pa.ipc.open_stream(content).read_all()
            assert table.column_names == ["prediction", "p(Adelie)", "p(Chinstrap)", "p(Gentoo)"]
            labels, P = table["prediction"].to_pylist(), table.select(range(1, 4)).to_pandas().to_numpy()
        np.testing.assert_allclose(P, model.predict_proba(penguins), rtol=1e-9, atol=1e-300)
        assert labels == model.predict(penguins).tolist()

    def test_what_a_spreadsheet_gives(self, client: Client, model: Any, penguins: pd.DataFrame) -> None:
        """Tabs or semicolons, and decimal commas."""
        some = penguins.dropna()[:5]
        for separator in ("\t", ";"):
            text = some.to_csv(index=False, sep=separator, decimal=",")
            reply = client.post("/predict", content=text.encode(), headers={"content-type": "text/csv"})
            P = [list(row["proba"].values()) for row in reply.json()["rows"]]
            np.testing.assert_allclose(P, model.predict_proba(some), rtol=1e-9, atol=1e-300)

    def test_formulas_do_not_reach_a_spreadsheet(self) -> None:
        rng = np.random.default_rng(3)
        X = rng.normal(size=(60, 1))
        fitted = po.SoftmaxRegression().fit(X, np.where(X[:, 0] > 0, "=1+1", "b"))
        reply = client_of(app(fitted)).post("/predict", json=[{"x0": 5.0}], headers={"accept": "text/csv"})
        assert reply.text.splitlines()[1].startswith('"\'=1+1"')

    def test_columns_of_all_answers(self, penguins: pd.DataFrame, utility: po.Utility) -> None:
        conformal = po.ConformalClassifier(po.BayesianSoftmaxRegression(), random_state=0)
        fitted = make_pipeline(po.TableEncoder(), conformal).fit(penguins, "species")
        ask = client_of(app(fitted, utility=utility))
        reply = ask.post(
            "/predict?answers=" + ",".join(ANSWERS),
            content=penguins[:3].to_csv(index=False),
            headers={"content-type": CSV, "accept": CSV},
        )
        names = reply.text.splitlines()[0].replace('"', "").split(",")
        classes = ["Adelie", "Chinstrap", "Gentoo"]
        assert names == [
            "prediction",
            *(f"p({name})" for name in classes),
            *(f"p({name}) lower" for name in classes),
            *(f"p({name}) upper" for name in classes),
            *("total", "aleatoric", "epistemic"),
            *(f"set({name})" for name in classes),
            *("action", "utility(keep)", "utility(release)", "margin", "value_of_information"),
        ]

    def test_dates_booleans_and_seconds(self) -> None:
        rng = np.random.default_rng(4)
        n = 200
        table = pd.DataFrame(
            {
                "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D"),
                "at": pd.Timestamp("2024-01-01", tz="Europe/Rome") + pd.to_timedelta(rng.integers(0, 10**6, n), "min"),
                "took": pd.to_timedelta(rng.integers(1, 10**4, n), "s"),
                "ok": rng.random(n) < 0.5,
            }
        )
        y = np.where(table["took"].dt.total_seconds() + rng.normal(0, 2000, n) > 5000, "late", "soon")
        fitted = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, y)
        some = table[:4]
        rows = [
            {
                "day": row.day.isoformat(),
                "at": row.at.isoformat(),
                "took": row.took.total_seconds(),
                "ok": bool(row.ok),
            }
            for row in some.itertuples()
        ]
        ask = client_of(app(fitted))
        said = ask.post("/predict", json=rows).json()["rows"]
        np.testing.assert_allclose([list(r["proba"].values()) for r in said], fitted.predict_proba(some), rtol=1e-9)
        kinds = {c["name"]: c["kind"] for c in ask.get("/models").json()["models"][0]["columns"]}
        assert kinds == {"day": "date", "at": "date with time zone", "took": "duration", "ok": "boolean"}
        wrong = ask.post("/predict", json=[rows[0] | {"day": "soon"}])
        assert wrong.status_code == 400
        assert wrong.json()["error"] == (
            "Row 1: column 'day' holds 'soon', where a date and time such as 2026-11-19T12:00:00 is expected, or null "
            "if it is missing."
        )
        for change in ({"ok": 0.5}, {"ok": 2}, {"took": 1e300}, {"took": -1e13}, {"took": True}):
            wrong = ask.post("/predict", json=[rows[0], rows[1] | change])
            assert wrong.status_code == 400, change
            assert (wrong.json()["row"], wrong.json()["column"]) == (2, *change)
        as_number = ask.post("/predict", json=[row | {"ok": int(row["ok"])} for row in rows]).json()["rows"]
        assert as_number == said


GOOD = {
    "island": "Dream", "bill_length_mm": 40.0, "bill_depth_mm": 18.0, "flipper_length_mm": 190, "body_mass_g": None,
    "sex": None, "year": 2008,
}  # fmt: skip


class TestRefusals:
    """What is wrong is one sentence with row and column; nothing is answered in part."""

    @pytest.mark.parametrize(
        ("change", "sentence", "column"),
        [
            ({"sex": "blue"}, "did not occur in the fit, in 1 row: 'blue'", "sex"),
            (
                {"body_mass_g": "big"},
                "Row 2: column 'body_mass_g' holds 'big', where a number is expected",
                "body_mass_g",
            ),
            ({"body_mass_g": [1]}, "holds [1], where a number is expected", "body_mass_g"),
            ({"sex": 3}, "Row 2: column 'sex' holds 3, where text is expected", "sex"),
            ({"colour": 1}, "Row 2: column 'colour' is unknown: the model has the columns 'island'", "colour"),
        ],
    )
    def test_values(self, client: Client, change: dict[str, Any], sentence: str, column: str) -> None:
        reply = client.post("/predict", json=[GOOD, GOOD | change])
        assert reply.status_code == 400
        assert sentence in reply.json()["error"]
        assert (reply.json()["row"], reply.json()["column"]) == (2, column)
        is_level = "did not occur" in sentence
        assert reply.json().get("remedy") == ({"new_levels": "accept"} if is_level else None)
        assert set(reply.json()) - {"remedy"} == {"error", "row", "column"}

    def test_a_column_is_missing(self, client: Client) -> None:
        reply = client.post("/predict", json=[{name: value for name, value in GOOD.items() if name != "year"}])
        assert reply.status_code == 400
        assert reply.json()["column"] == "year"

    def test_new_levels_can_be_accepted(self, client: Client, model: Any) -> None:
        reply = client.post("/predict", json={"rows": [GOOD | {"sex": "blue"}], "new_levels": "accept"})
        assert reply.status_code == 200
        assert "'blue'" in reply.json()["warnings"][0]
        with pytest.warns(po.UnseenLevelWarning):
            P = model.predict_proba(pd.DataFrame([GOOD | {"sex": "blue", "body_mass_g": np.nan}]))
        np.testing.assert_allclose(list(reply.json()["rows"][0]["proba"].values()), P[0], rtol=1e-9)

    def test_numbers_in_csv(self, client: Client, penguins: pd.DataFrame) -> None:
        text = penguins[:300].to_csv(index=False).replace("3250.0", "three", 1)
        reply = client.post("/predict", content=text, headers={"content-type": CSV})
        assert reply.status_code == 400
        assert reply.json()["column"] == "body_mass_g"
        assert reply.json()["row"] == int(np.flatnonzero(penguins["body_mass_g"] == 3250)[0]) + 1
        assert "holds 'three', where a number is expected" in reply.json()["error"]

    @pytest.mark.parametrize(
        ("body", "kind", "status"),
        [
            (b"", "application/json", 400),
            (b"{", "application/json", 400),
            (b"[" * 100_000, "application/json", 400),
            (b"[]", "application/json", 400),
            (b"3", "application/json", 400),
            (b"[3]", "application/json", 400),
            (b"\xff\xfe", "application/json", 400),
            (b"", CSV, 400),
            (b"a\n", CSV, 400),
            (b"\x1f\x8b\x08", CSV, 400),
            (b"PAR1nothing", PARQUET, 400),
            (b"nothing", ARROW, 400),
            (b"<a/>", "application/xml", 415),
        ],
    )
    def test_bodies(self, client: Client, body: bytes, kind: str, status: int) -> None:
        reply = client.post("/predict", content=body, headers={"content-type": kind})
        assert reply.status_code == status, reply.text
        assert reply.json()["error"].endswith((".", "?", "!"))
        assert "Traceback" not in reply.text
        assert "/tmp" not in reply.text

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ("answers=colour", "'colour', which is none"),
            ("answers=set", "prediction sets need a ConformalClassifier"),
            ("answers=action", "decisions need a utility"),
            ("level=2", "between 0 and 1"),
            ("level=nan", "between 0 and 1"),
            ("new_levels=perhaps", "'refuse' or 'accept'"),
            ("speed=3", "'speed' in the address is unknown"),
            ("level=.5&level=.6", "more than once"),
            ("utility=3", "utility must be an object"),
            ("utility={", "not JSON"),
            ("model=../../etc/passwd", "There is no model"),
        ],
    )
    def test_options(self, client: Client, query: str, words: str) -> None:
        reply = client.post(f"/predict?{query}", json=[GOOD])
        assert reply.status_code in (400, 404)
        assert words in reply.json()["error"]

    @pytest.mark.parametrize(
        "change",
        [
            {"matrix": [[0, 1]]},
            {"matrix": [[0, None]] * 3},
            {"matrix": "a"},
            {"states": ["Adelie", "Adelie", "Gentoo"]},
            {"states": ["Adelie", "Chinstrap", "Emperor"]},
            {"actions": []},
            {"actions": ["a", "a"]},
            {"actions": [["a"], "b"]},
            {"more": 1},
        ],
    )
    def test_utilities(self, client: Client, utility: po.Utility, change: dict[str, Any]) -> None:
        asked = {"rows": [GOOD], "answers": ["action"], "utility": plain(utility) | change}
        reply = client.post("/predict", json=asked)
        assert reply.status_code == 400
        assert "utility" in reply.json()["error"]

    @pytest.mark.parametrize(
        ("value", "words"),
        [(None, "is missing, and the model cannot do without it"), (np.inf, "is not finite")],
    )
    def test_values_that_a_model_of_numbers_cannot_take(
        self, numbers_model: Any, value: float | None, words: str
    ) -> None:
        """A model without a table encoder takes finite numbers alone."""
        table = pa.table({"x0": [1.0, 1.0], "x1": [2.0, 2.0], "x2": pa.array([3.0, value]), "x3": [4.0, 4.0]})
        packed = io.BytesIO()
        parquet.write_table(table, packed)
        content = packed.getvalue()
        reply = client_of(app(numbers_model)).post("/predict", content=content, headers={"content-type": PARQUET})
        assert reply.status_code == 400
        assert (reply.json()["row"], reply.json()["column"]) == (2, "x2")
        assert words in reply.json()["error"]

    @pytest.mark.parametrize("path", ["/predict", "/invocations"])
    def test_what_curl_sends_by_itself_is_told_of_json(self, client: Client, path: str) -> None:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        reply = client.post(path, content=orjson.dumps(GOOD), headers=headers)
        assert reply.status_code == 415
        assert "send one of 'application/json', 'text/csv'" in reply.json()["error"]

    def test_nothing_that_can_be_written(self, client: Client) -> None:
        assert client.post("/predict", json=[GOOD], headers={"accept": "image/png"}).status_code == 406
        assert client.post("/predict", json=[GOOD], headers={"accept": "image/png, */*;q=0.1"}).status_code == 200

    def test_too_many_rows_or_columns(self, model: Any, penguins: pd.DataFrame) -> None:
        ask = client_of(app(model, limits=Limits(rows=10, columns=20)))
        assert ask.post("/predict", json=[GOOD] * 10).status_code == 200
        for body, kind in ((orjson.dumps([GOOD] * 11), "application/json"), (penguins.to_csv().encode(), CSV)):
            reply = ask.post("/predict", content=body, headers={"content-type": kind})
            assert reply.status_code == 413
            assert "at most 10 are taken" in reply.json()["error"]
        wide = pd.DataFrame({f"c{i}": [1.0] for i in range(21)})
        packed = io.BytesIO()
        wide.to_parquet(packed)
        for body, kind in ((wide.to_csv(index=False).encode(), CSV), (packed.getvalue(), PARQUET)):
            reply = ask.post("/predict", content=body, headers={"content-type": kind})
            assert reply.status_code == 413
            assert "21 columns" in reply.json()["error"]

    @pytest.mark.parametrize("kind", [PARQUET, ARROW])
    @pytest.mark.parametrize("address", ["/predict", "/page/tables?new_columns=leave"])
    def test_a_dictionary_whose_values_written_out_are_huge(self, client: Client, kind: str, address: str) -> None:
        n = 100_000
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), pa.array(["x" * 100_000]))
        table = pa.table({name: texts if name == "island" else pa.array([value] * n) for name, value in GOOD.items()})
        packed = io.BytesIO()
        if kind == PARQUET:
            parquet.write_table(table, packed, store_schema=False)
        else:
            with pa.ipc.new_stream(packed, table.schema) as stream:
                stream.write_table(table)
        assert len(packed.getvalue()) < 8_000_000  # and 10 GB written out
        reply = client.post(address, content=packed.getvalue(), headers={"content-type": kind})
        assert (reply.status_code, "unpacks to more" in reply.json()["error"]) == (413, True)

    def test_the_bytes_of_texts_written_out(self) -> None:
        texts = ["a", None, "bcd", "a text of more than twelve characters"]
        plain = pa.table({"a": pa.array(texts * 3), "b": pa.array(range(12))})
        assert decoded_bytes(plain) == 0
        for kind in (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())):
            coded = plain.set_column(0, "a", plain["a"].cast(kind))
            assert decoded_bytes(coded) == 3 * sum(len(text or "") for text in texts)
        views = pa.array(texts * 3, pa.string_view())
        assert decoded_bytes(plain.set_column(0, "a", views)) == 3 * sum(len(text or "") for text in texts)
        assert decoded_bytes(pa.table({"a": views.slice(2, 3)})) == 3 + len(texts[3] or "") + 1

    @pytest.mark.parametrize("compression", ["zstd", "lz4"])
    def test_an_arrow_stream_that_unpacks_to_much(self, client: Client, compression: str) -> None:
        table = pa.table({"island": pa.array(["x" * 50_000_000])})
        packed = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(packed, table.schema, options=options) as stream:
            stream.write_table(table)
        assert len(packed.getvalue()) < 1_000_000
        before = pa.total_allocated_bytes()
        reply = client.post("/predict", content=packed.getvalue(), headers={"content-type": ARROW})
        assert reply.status_code == 413
        assert pa.total_allocated_bytes() - before < 40_000_000

    @pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
    def test_the_size_of_a_stream_is_known_before_it_is_unpacked(self, compression: str | None) -> None:
        texts = pa.array(["a", None, "bcd"] * 1000).dictionary_encode()
        table = pa.table({"numbers": pa.array(np.arange(3000.0)), "texts": texts})
        packed = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(packed, table.schema, options=options) as stream:
            stream.write_table(table, max_chunksize=1000)
        n_rows, n_bytes = unpacked_size(packed.getvalue())
        assert n_rows == 3000
        assert table.nbytes <= n_bytes <= table.nbytes + 2_000  # buffers are padded

    @pytest.mark.parametrize("place", range(0, 400, 23))
    def test_a_damaged_stream_is_refused(self, client: Client, place: int) -> None:
        table = pa.table({name: [value] for name, value in GOOD.items()})
        packed = io.BytesIO()
        with pa.ipc.new_stream(packed, table.schema) as stream:
            stream.write_table(table)
        content = bytearray(packed.getvalue())
        content[-place - 9] ^= 0xFF
        reply = client.post("/predict", content=bytes(content), headers={"content-type": ARROW})
        assert reply.status_code in (200, 400, 413)

    @pytest.mark.parametrize("kind", [PARQUET, ARROW])
    def test_values_that_hold_several(self, client: Client, kind: str) -> None:
        table = pa.table({name: [[value]] if name == "sex" else [value] for name, value in GOOD.items()})
        packed = io.BytesIO()
        if kind == PARQUET:
            parquet.write_table(table, packed)
        else:
            with pa.ipc.new_stream(packed, table.schema) as stream:
                stream.write_table(table)
        for address in ("/predict", "/page/tables"):
            reply = client.post(address, content=packed.getvalue(), headers={"content-type": kind})
            assert (reply.status_code, reply.json()["column"]) == (400, "sex")
            assert "numbers, text, truth values or dates are needed" in reply.json()["error"]

    def test_a_parquet_file_that_unpacks_to_much(self, client: Client) -> None:
        table = pa.table({"island": pa.array(["x" * 10_000_000] * 20)})
        packed = io.BytesIO()
        parquet.write_table(table, packed, compression="zstd", use_dictionary=False)
        assert len(packed.getvalue()) < 1_000_000
        reply = client.post("/predict", content=packed.getvalue(), headers={"content-type": PARQUET})
        assert reply.status_code == 413


def test_an_address_with_one_slash_too_many_is_not_redirected(client: Any) -> None:
    reply = client.get("/models/")
    assert (reply.status_code, reply.json()) == (404, {"error": "There is nothing at this address."})
