"""The server does what its document says, whatever is sent: requests that the document makes, and broken tables."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet
from sklearn.pipeline import make_pipeline
from tests.serve.asgi import Client, client_of
from tests.serve.conformance import Case, Explored, by_client, by_network, explore
from tests.serve.test_plain import GOOD

import posteriori as po
from posteriori.serve import app
from posteriori.serve.answers import ANSWERS, DECIDED
from posteriori.serve.bodies import ARROW, CSV, JSON, PARQUET

ROOT = Path(__file__).parents[2]
CLASSES = ("Adelie", "Chinstrap", "Gentoo")
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
    for each action, new levels are accepted where not all levels are listed, and all columns are equally long.
    """
    predict = document["paths"]["/predict"]["post"]
    version = next(one["schema"]["examples"][0] for one in predict["parameters"] if one["name"] == "version")
    row = predict["requestBody"]["content"][JSON]["example"]["rows"][0]
    tensors = document["paths"]["/v2/models/{name}/infer"]["post"]["requestBody"]["content"][JSON]["example"]["inputs"]

    def prepare(case: Case) -> Case:
        body = case.body if isinstance(case.body, dict) else {}
        if "version" in (case.path_parameters or {}):
            case.path_parameters["version"] = version
        if case.path.startswith("/v2"):
            if "inputs" in body:
                case.body = body | {"inputs": _as_long(tensors, body["inputs"])} | _options(body, "parameters", version)
                case.body.pop("outputs", None)
            return case
        query = dict(case.query or {})
        if case.path == "/invocations":
            body = _equally_long(body, row) | _options(body, "params", version)
            case.body, inside = body, body["params"]
        elif case.path == "/predict" and isinstance(body.get("rows"), list):
            inside = _with_utility(body | {"new_levels": "accept"})
            case.body = inside
        else:
            inside = {}
            query |= {"new_levels": "accept"} if case.path == "/predict" else {}
        case.query = _in_address({name: value for name, value in query.items() if name not in inside}, inside, version)
        return case

    return prepare


def _options(body: dict[str, Any], name: str, version: str) -> dict[str, Any]:
    """The options within a body, under this name."""
    options = _with_utility(body.get(name, {}) | {"new_levels": "accept"})
    if "utility" not in options and "answers" in options:
        options["answers"] = [answer for answer in options["answers"] if answer not in DECIDED] or ["class"]
    options.pop("binary_data_output", None)
    return {name: options | ({"version": version} if "version" in options else {})}


def _in_address(query: dict[str, Any], inside: dict[str, Any], version: str) -> dict[str, Any]:
    if "version" in query:
        query["version"] = version
    if "answers" in query and "utility" not in {**inside, **query}:
        known = [name for name in query["answers"].split(",") if name not in DECIDED]
        query["answers"] = ",".join(known or ["class"])
    if "utility" in query:
        query["utility"] = json.dumps(_with_utility({"utility": json.loads(query["utility"])})["utility"])
    return query


def _with_utility(options: dict[str, Any]) -> dict[str, Any]:
    """Options, the utility with a number for each action."""
    if "utility" not in options:
        return options
    utility = options["utility"]
    n = len(utility["actions"])
    return options | {"utility": utility | {"matrix": [(numbers * n)[:n] for numbers in utility["matrix"]]}}


def _as_long(tensors: list[dict[str, Any]], given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One tensor for each column, with generated values where there are some."""
    n = len(given)
    data = {tensor["name"]: tensor["data"] for tensor in given}
    return [tensor | {"shape": [n], "data": (data.get(tensor["name"], tensor["data"]) * n)[:n]} for tensor in tensors]


def _equally_long(body: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    if "dataframe_split" in body:
        split = body["dataframe_split"]
        return body | {"dataframe_split": split | {"data": [list(row.values()) for _ in split["data"]]}}
    if isinstance(body.get("inputs"), dict):
        n = max(map(len, body["inputs"].values()))
        return body | {"inputs": {name: (values * n)[:n] for name, values in body["inputs"].items()}}
    return body


def all_rows_or_none(case: Case, reply: Any) -> None:
    """There are as many answers as rows, each with what was asked; or a sentence, and no answer."""
    if case.path != "/predict":
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
    by_default = ["class", "proba", *(DECIDED if options.get("utility") is not None else ())]
    wanted = options.get("answers") or by_default
    wanted = wanted.split(",") if isinstance(wanted, str) else wanted
    assert len(found["rows"]) == len(rows)
    for answer in found["rows"]:
        assert list(answer) == [name for name in ANSWERS if name in wanted]
        for name in ("proba", "lower", "upper"):
            assert all(0.0 <= p <= 1.0 for p in answer.get(name, {}).values())
        if "proba" in answer:
            assert sum(answer["proba"].values()) == pytest.approx(1.0, abs=1e-9)


def conform(document: dict[str, Any], ask: Any, n_cases: int, only: Callable[[str], bool] = lambda _: True) -> Explored:
    def is_strict(label: str) -> bool:
        """What the page asks depends on which table it has stored, and that no document says."""
        return "/page/" not in label

    found = Explored()
    explore(
        document, ask, n_cases, valid=True, only=only, prepare=as_documented(document), check=all_rows_or_none,
        strict=is_strict, into=found,
    )  # fmt: skip
    return explore(document, ask, n_cases, valid=False, only=only, check=all_rows_or_none, into=found)


ASKED = ("POST /predict", "POST /v2/models/{name}/infer", "POST /invocations")


def test_penguins_in_this_process(client: Client) -> None:
    found = conform(client.get("/openapi.json").json(), by_client(client), 8, lambda label: label in ASKED)
    for label in ASKED:
        assert found.share(200, valid=True, operation=label) == 1.0
        assert found.share(200, valid=False, operation=label) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["penguins", "numbers", "messy"])
def test_many_requests_to_a_server(name: str, request: Any, serve: Any, tmp_path: Any) -> None:
    """From our document: those that fit it are answered, others mostly refused, none in part and none with a 5xx."""
    fixture = {"penguins": "model"}.get(name, f"{name}_model")
    po.save(request.getfixturevalue(fixture), tmp_path / f"{name}.model")
    with serve(str(tmp_path / f"{name}.model"), "--log-level", "error", timeout=300) as process:
        document = process.get("/openapi.json").json()
        found = conform(document, by_network(process.url), 30)
        assert process.lines == []
    for label in ASKED:
        assert found.share(200, valid=True, operation=label) == 1.0
        assert found.share(200, valid=False, operation=label) < 0.3
    assert found.n_cases > 700


@pytest.mark.slow
def test_the_protocols_own_definition(model_file: Path, serve: Any) -> None:
    """The definition of the Open Inference Protocol that MLServer brings along; `make test-clients` installs it."""
    found = sorted(ROOT.glob(".venv-clients/lib/python*/site-packages/mlserver/rest/openapi/dataplane.json"))
    if not found:
        pytest.skip("the definition of the Open Inference Protocol is not there: `make test-clients` brings it")
    definition = json.loads(found[0].read_text())
    definition["components"]["schemas"]["TensorData"] = {"type": "array"}  # "bytes", which it also names, is no type
    with serve(f"penguins={model_file}", "--log-level", "error", timeout=300) as process:
        ours = process.get("/openapi.json").json()
        tensors = ours["paths"]["/v2/models/{name}/infer"]["post"]["requestBody"]["content"][JSON]["example"]["inputs"]
        version = process.get("/v2/models/penguins").json()["versions"][0]

        def known(case: Case) -> Case:
            """Ask for the model that there is, every other time with its own tensors."""
            places = case.path_parameters or {}
            if "model_name" in places:
                places["model_name"] = "penguins"
            if "model_version" in places:
                places["model_version"] = version
            given = case.body.get("inputs", []) if isinstance(case.body, dict) else None
            if isinstance(given, list) and len(given) % 2 == 0:
                case.body = {"inputs": tensors} | ({"id": case.body["id"]} if "id" in case.body else {})
            return case

        def spoken(label: str) -> bool:
            """Streams and generated text are extensions that belong to other kinds of models."""
            return "stream" not in label and "generate" not in label

        counted = Explored()
        for valid in (True, False):
            explore(
                definition, by_network(process.url), 75, valid=valid, only=spoken, prepare=known,
                strict=lambda label: False, ours=False, into=counted,
            )  # fmt: skip
        assert process.lines == []
    assert counted.n_cases > 500
    assert counted.share(200, valid=True, operation="POST /v2/models/{model_name}/infer") > 0.2


# Tables

numbers = st.none() | st.floats(-1e300, 1e300)
rows = st.fixed_dictionaries(
    {
        "island": st.sampled_from(["Biscoe", "Dream", "Torgersen"]) | st.none(),
        **{name: numbers for name in GOOD if name not in ("island", "sex")},
        "sex": st.sampled_from(["female", "male"]) | st.none(),
    }
)
TYPES = {name: pa.string() if name in ("island", "sex") else pa.float64() for name in GOOD}


def as_csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    csv.write_csv(table, out)
    return out.getvalue()


def as_arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


WRITERS = {CSV: as_csv, ARROW: as_arrow, PARQUET: as_parquet}


@pytest.fixture(scope="module")
def shared_client(model: Any) -> Client:
    return client_of(app({"penguins": model}))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("path", ["/predict", "/invocations"])
@given(records=st.lists(rows, min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_is_answered_as_its_rows_are(shared_client: Client, kind: str, path: str, records: Any) -> None:
    table = pa.table({name: pa.array([row[name] for row in records], TYPES[name]) for name in GOOD})
    wanted = f"{path}?answers=class,proba"
    said = shared_client.post(wanted, content=WRITERS[kind](table), headers={"content-type": kind})
    expected = shared_client.post("/predict", json=records)
    assert (said.status_code, expected.status_code) == (200, 200), said.text
    probabilities = [list(row["proba"].values()) for row in expected.json()["rows"]]
    if path == "/predict":
        found = [list(row["proba"].values()) for row in said.json()["rows"]]
    else:
        found = [[row[f"p({name})"] for name in CLASSES] for row in said.json()["predictions"]]
    np.testing.assert_allclose(found, probabilities, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("kind", WRITERS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_table_is_answered_as_a_whole_or_refused(shared_client: Client, kind: str, data: Any) -> None:
    """Bytes are cut off, replaced, doubled or put in."""
    table = pa.table({name: pa.array([value, None], TYPES[name]) for name, value in GOOD.items()})
    body = bytearray(WRITERS[kind](table))
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 8))
        body[at : at + length] = data.draw(st.binary(max_size=8))
        body = body or bytearray(b" ")
    reply = shared_client.post("/predict", content=bytes(body), headers={"content-type": kind})
    assert reply.status_code in (200, 400, 413), reply.text
    found = reply.json()
    if reply.status_code == 200:
        for row in found["rows"]:
            assert sum(row["proba"].values()) == pytest.approx(1.0, abs=1e-9)
    else:
        assert set(found) <= {"error", "row", "column"}
        assert found["error"].endswith((".", "?", "!"))


# What was found so


@pytest.mark.parametrize("value", [1.8446744073709552e19, -1e300, 2.0**53])
def test_a_curve_along_integers_to_a_large_number(client: Client, value: float) -> None:
    reply = client.post("/page/curve", json={"row": GOOD | {"year": value}, "column": "year", "points": 5})
    assert reply.status_code == 200, reply.text
    assert value in reply.json()["x"]
