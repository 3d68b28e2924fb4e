"""The server does what its document says, whatever is sent: requests made of the document, and tables that are broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client
from tests.serve.conformance import Case, Explored, by_client, by_network, explore

import posteriori as po
from posteriori.serve.answers import ANSWERS, DECIDED

OPTIONS = ("answers", "level", "utility", "new_levels")


@pytest.fixture(scope="session")
def messy_model() -> Any:
    """A model of columns of every kind, with rare levels, and classes that are numbers; it knows a utility and sets."""
    rng = np.random.default_rng(0)
    n = 300
    day = np.datetime64("2024-03-01T12:00:00") + rng.integers(0, 5_000_000, n).astype("timedelta64[s]")
    table = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "count": rng.poisson(4.0, n),
            "is new": rng.random(n) < 0.4,
            "colour, or so": rng.choice(
                ["red", "blue", "", "grün", "rare 1", "rare 2"], n, p=[0.4, 0.3, 0.1, 0.17, 0.02, 0.01]
            ),
            "when": day,
            "when there": pd.Series(day).dt.tz_localize("UTC"),
            "wait": pd.to_timedelta(rng.integers(0, 9_999, n), unit="s"),
        }
    )
    y = (table["size"] + table["is new"] + 0.5 * rng.normal(size=n) > 0.5).astype(int) + 1
    inner = po.UtilityClassifier(po.SoftmaxRegression(), po.Utility([[1.0, 0.0], [-2.0, 0.5]], [1, 2], ["go", "wait"]))
    return make_pipeline(po.TableEncoder(), inner).fit(table, y)


def as_documented(document: dict[str, Any]) -> Callable[[Case], Case]:
    """Make cases keep what the document says in words alone.

    Each option is in one place, a version is one that there is, decisions come with a utility, its matrix has a number
    for each action, and new levels are accepted where not all levels are listed.
    """
    versions = _versions(document)

    def prepare(case: Case) -> Case:
        if not case.path.startswith("/predict"):
            return case
        in_body = case.body if isinstance(case.body, dict) and isinstance(case.body.get("rows"), list) else {}
        query = {name: value for name, value in (case.query or {}).items() if name not in in_body}
        if "version" in query:
            query["version"] = versions[0]
        if "answers" in query and "utility" not in {**in_body, **query}:
            known = [name for name in query["answers"].split(",") if name not in DECIDED]
            query["answers"] = ",".join(known or ["class"])
        if "utility" in query:
            query["utility"] = json.dumps(_with_a_number_for_each_action(json.loads(query["utility"])))
        if in_body:
            case.body = in_body | {"new_levels": "accept"}
            if "utility" in in_body:
                case.body["utility"] = _with_a_number_for_each_action(in_body["utility"])
        query["new_levels"] = "accept"
        if in_body:
            del query["new_levels"]
        case.query = query
        return case

    return prepare


def _versions(document: dict[str, Any]) -> list[str]:
    parameters = document["paths"]["/predict"]["post"]["parameters"]
    return next(one["schema"]["examples"] for one in parameters if one["name"] == "version")


def _with_a_number_for_each_action(utility: dict[str, Any]) -> dict[str, Any]:
    n = len(utility["actions"])
    return utility | {"matrix": [(row * n)[:n] for row in utility["matrix"]]}


def all_rows_or_none(case: Case, reply: Any) -> None:
    """There are as many answers as rows, each with what was asked; or a sentence, and no answer."""
    if not case.path.startswith("/predict"):
        return
    found = reply.json()
    if reply.status_code != 200:
        assert set(found) <= {"error", "row", "column"}
        assert found["error"].endswith((".", "?", "!"))
        return
    rows, options = case.body, dict(case.query or {})
    if isinstance(rows, dict):
        options |= {name: rows[name] for name in OPTIONS if name in rows}
        rows = rows["rows"] if isinstance(rows.get("rows"), list) else [rows]
    wanted = options.get("answers") or ["class", "proba"]
    wanted = wanted.split(",") if isinstance(wanted, str) else wanted
    assert len(found["rows"]) == len(rows)
    for answer in found["rows"]:
        assert list(answer) == [name for name in ANSWERS if name in wanted]
        for name in ("proba", "lower", "upper"):
            assert all(0.0 <= p <= 1.0 for p in answer.get(name, {}).values())
        if "proba" in answer:
            assert sum(answer["proba"].values()) == pytest.approx(1.0, abs=1e-9)


def conform(document: dict[str, Any], ask: Any, n_cases: int) -> Explored:
    found = explore(document, ask, n_cases, valid=True, prepare=as_documented(document), check=all_rows_or_none)
    return explore(document, ask, n_cases, valid=False, check=all_rows_or_none, into=found)


def test_penguins_in_this_process(client: Client) -> None:
    found = conform(client.get("/openapi.json").json(), by_client(client), 40)
    assert found.share(200, valid=True, operation="POST /predict") == 1.0
    assert found.share(200, valid=False, operation="POST /predict") < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["penguins", "numbers", "messy", "token"])
def test_many_requests_to_a_server(
    name: str, model: Any, numbers_model: Any, messy_model: Any, serve: Any, tmp_path: Any
) -> None:
    po.save({"numbers": numbers_model, "messy": messy_model}.get(name, model), tmp_path / f"{name}.model")
    options, headers = (), {}
    if name == "token":
        (tmp_path / "token").write_text("a-token-of-many-letters")
        options, headers = (
            ("--token-file", str(tmp_path / "token")),
            {"Authorization": "Bearer a-token-of-many-letters"},
        )
    with serve(str(tmp_path / f"{name}.model"), "--log-level", "error", *options, timeout=300) as process:
        document = process.get("/openapi.json", headers=headers).json()
        found = conform(document, by_network(process.url), 250)
        assert process.lines == []
    assert found.n_cases > 400
