"""The page's files, and probabilities along one column."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client, client_of
from tests.serve.test_plain import GOOD

import posteriori as po
from posteriori.serve import app
from posteriori.serve.curve import values_along
from posteriori.serve.model_columns import ModelColumn

TOKEN = "0123456789abcdef"


class TestFiles:
    """HTML, modules and styles."""

    def test_the_page(self, client: Client) -> None:
        reply = client.get("/")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.text == files("posteriori.serve").joinpath("page", "index.html").read_text(encoding="utf-8")
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        assert "<script>" not in reply.text
        assert "style=" not in reply.text

    @pytest.mark.parametrize(
        ("name", "kind"),
        [("charts.js", "text/javascript"), ("decide.js", "text/javascript"), ("style.css", "text/css")],
    )
    def test_modules_and_styles(self, client: Client, name: str, kind: str) -> None:
        reply = client.get(f"/static/{name}")
        assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
        assert reply.content == files("posteriori.reports").joinpath("page", name).read_bytes()

    def test_what_the_browser_has_is_not_sent_again(self, client: Client) -> None:
        for path in ("/", "/static/charts.js"):
            first = client.get(path)
            assert first.headers["cache-control"] == "no-cache"
            for tag in (first.headers["etag"], f"W/{first.headers['etag']}", f'"old", {first.headers["etag"]}'):
                again = client.get(path, headers={"if-none-match": tag})
                assert (again.status_code, again.content) == (304, b"")
            assert client.get(path, headers={"if-none-match": '"old"'}).status_code == 200
        assert client.get("/static/decide.js").headers["etag"] != first.headers["etag"]

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "index.html",
            "report.html",
            "nothing.js",
            "../answers.py",
            "..%2fanswers.py",
            "%2e%2e/answers.py",
            "charts.js%00",
        ],
    )
    def test_nothing_else_is_there(self, client: Client, name: str) -> None:
        reply = client.get(f"/static/{name}")
        assert reply.status_code == 404
        assert set(reply.json()) == {"error"}

    def test_only_files_need_no_token(self, model: Any) -> None:
        ask = client_of(app(model, token=TOKEN))
        assert ask.get("/").status_code == ask.get("/static/charts.js").status_code == 200
        asked = [("POST", "/page/curve"), ("POST", "/page/tables"), ("GET", f"/page/tables/{'0' * 32}")]
        asked += [("POST", f"/page/tables/{'0' * 32}/{what}") for what in ("summary", "rows", "download")]
        for method, path in [*asked, ("DELETE", f"/page/tables/{'0' * 32}")]:
            assert ask.request(method, path).status_code == 401


class TestCurve:
    """Each point is the prediction of the row with that value."""

    @pytest.mark.parametrize("column", ["island", "bill_length_mm", "flipper_length_mm", "body_mass_g", "year", "sex"])
    def test_points_are_predictions(self, client: Client, model: Any, column: str) -> None:
        said = client.post("/page/curve", json={"row": GOOD, "column": column, "points": 20, "level": 0.8}).json()
        rows = pd.DataFrame([GOOD | {column: x} for x in said["x"]]).astype({"sex": object, "body_mass_g": float})
        np.testing.assert_allclose(said["proba"], model.predict_proba(rows), rtol=1e-9)
        lower, upper = model[1].predict_interval(model[0].transform(rows), 0.8)
        np.testing.assert_allclose(said["lower"], lower, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(said["upper"], upper, rtol=1e-9, atol=1e-300)
        assert GOOD[column] is None or GOOD[column] in said["x"]
        assert said["column"] == column

    def test_the_range_is_that_of_the_fit(self, client: Client, penguins: pd.DataFrame) -> None:
        said = client.post("/page/curve", json={"row": GOOD, "column": "bill_length_mm"}).json()
        lengths = penguins["bill_length_mm"]
        assert (said["kind"], said["x"][0], said["x"][-1]) == ("number", lengths.min(), lengths.max())
        assert said["x"] == sorted({*np.linspace(lengths.min(), lengths.max(), 101).tolist(), 40.0})
        wide = client.post(
            "/page/curve", json={"row": GOOD | {"bill_length_mm": 90.5}, "column": "bill_length_mm"}
        ).json()
        assert (wide["x"][0], wide["x"][-1], len(wide["x"])) == (lengths.min(), 90.5, 101)

    def test_whole_numbers_and_levels(self, client: Client) -> None:
        years = client.post("/page/curve", json={"row": GOOD, "column": "year"}).json()["x"]
        assert years == [2007, 2008, 2009]
        assert all(type(year) is int for year in years)
        sexes = client.post("/page/curve", json={"row": GOOD, "column": "sex"}).json()
        assert (sexes["kind"], sorted(sexes["x"])) == ("category", ["female", "male"])
        new = {"row": GOOD | {"sex": "blue"}, "column": "sex"}
        refused = client.post("/page/curve", json=new)
        assert (refused.status_code, refused.json()["column"]) == (400, "sex")
        accepted = client.post("/page/curve", json=new | {"new_levels": "accept"}).json()
        assert accepted["x"][-1] == "blue"

    def test_dates_and_truth_values(self) -> None:
        days = pd.date_range("2024-01-01", "2024-12-31", 80)
        table = pd.DataFrame({"day": days, "at": days.tz_localize("UTC"), "ok": np.arange(80) % 3 == 0})
        fitted = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, np.arange(80) % 40 > 15)
        row = {"day": "2025-02-01T12:00:00", "at": "2024-03-01T00:00:00+01:00", "ok": True}
        ask = client_of(app(fitted))

        def said(column: str) -> dict[str, Any]:
            return ask.post("/page/curve", json={"row": row, "column": column, "points": 5}).json()

        x = said("day")["x"]
        assert (x[0], x[-1], len(x)) == ("2024-01-01T00:00:00", "2025-02-01T12:00:00", 5)
        assert sorted(x) == x
        x = said("at")["x"]
        assert (x[0], x[-1]) == ("2024-01-01T00:00:00Z", "2024-12-31T00:00:00Z")
        assert x.index("2024-03-01T00:00:00+01:00") == 1
        found = said("ok")
        assert found["x"] == [False, True]
        rows = pd.DataFrame([row | {"ok": value} for value in (False, True)])
        rows["day"], rows["at"] = pd.to_datetime(rows["day"]), pd.to_datetime(rows["at"], utc=True)
        np.testing.assert_allclose(found["proba"], fitted.predict_proba(rows), rtol=1e-9)
        assert "lower" not in found

    def test_a_range_that_is_not_known(self) -> None:
        assert values_along(ModelColumn("x0", "number"), 3.0, 3) == [0.0, 3.0, 6.0]
        assert values_along(ModelColumn("x0", "number"), None, 3) == [-1.0, 0.0, 1.0]
        assert values_along(ModelColumn("x0", "number", low=2.0, high=2.0), None, 9) == [2.0]

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ([], "must be an object"),
            ({"row": GOOD}, 'and "column"'),
            ({"row": GOOD, "column": "colour"}, "Column 'colour' is unknown"),
            ({"row": GOOD, "column": ["year"]}, "is unknown"),
            ({"row": GOOD, "column": "year", "points": 1}, "points is 1"),
            ({"row": GOOD, "column": "year", "points": 10**9}, "points is 1000000000"),
            ({"row": GOOD, "column": "year", "level": 2}, "between 0 and 1"),
            ({"row": GOOD, "column": "year", "more": 2}, "'more' is unknown here"),
            ({"row": [GOOD], "column": "year"}, "Row 1 is a list"),
            ({"row": GOOD | {"sex": "blue"}, "column": "year"}, "Row 1: "),
            ({"row": GOOD | {"year": "soon"}, "column": "year"}, "where a number is expected"),
        ],
    )
    def test_what_is_refused(self, client: Client, body: Any, words: str) -> None:
        reply = client.post("/page/curve", json=body)
        assert reply.status_code == 400
        assert words in reply.json()["error"]
        assert reply.json().get("row", 1) == 1
