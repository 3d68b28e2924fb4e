"""The document of OpenAPI: it is valid, it says what the models are, and its examples are what the server answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.serve.asgi import Client, client_of
from tests.serve.test_plain import GOOD

import posteriori as po
from posteriori.serve import app
from posteriori.serve.bodies import ARROW, CSV, JSON, PARQUET

TOKEN = "a-token-of-many-letters"


@pytest.fixture(scope="module")
def document(model: Any) -> dict[str, Any]:
    return client_of(app({"penguins": model})).get("/openapi.json").json()


def fits(document: dict[str, Any], name: str, value: Any) -> bool:
    """Whether a value fits a schema of the document."""
    known = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return Draft202012Validator(known).is_valid(value)


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == po.__version__
    names = [one["operationId"] for path in document["paths"].values() for one in path.values() if "operationId" in one]
    assert len(set(names)) == len(names)


def test_every_address_of_the_server_is_in_it(model: Any) -> None:
    """But those of the page itself, which people see."""
    application = app({"penguins": model})
    document = client_of(application).get("/openapi.json").json()
    described = {(path, method.upper()) for path, one in document["paths"].items() for method in one}
    known = {(route.path, method) for route in application.routes for method in route.methods if method != "HEAD"}
    known = {(path, method) for path, method in known if path not in ("/", "/static/{name}", "/favicon.ico")}
    assert described & {(path, "PARAMETERS") for path in document["paths"]} == set()
    assert described == known


def test_rows(document: dict[str, Any]) -> None:
    properties = document["components"]["schemas"]["penguins.Row"]["properties"]
    assert properties["island"]["enum"] == ["Biscoe", "Dream", "Torgersen", None]
    assert properties["bill_length_mm"]["type"] == ["number", "null"]
    assert properties["bill_length_mm"]["description"] == "A number, 32.1 to 59.6 in the fit."
    assert fits(document, "penguins.Row", GOOD)
    assert fits(document, "penguins.Row", GOOD | {"species": "Adelie"})  # allowed, and not read
    for wrong in ({"island": "Hope"}, {"colour": 1}, {"year": "2008"}, {"sex": 1}):
        assert not fits(document, "penguins.Row", GOOD | wrong)
    assert not fits(document, "penguins.Row", {name: GOOD[name] for name in list(GOOD)[1:]})


def test_requests(document: dict[str, Any]) -> None:
    utility = {"states": ["Gentoo", "Adelie", "Chinstrap"], "actions": ["a"], "matrix": [[0], [1], [1]]}
    assert fits(document, "penguins.Request", {"rows": [GOOD], "answers": ["proba", "lower"], "level": 0.9})
    assert not fits(document, "penguins.Request", {"rows": [GOOD], "answers": ["set"]})
    assert not fits(document, "penguins.Request", {"rows": [GOOD], "answers": ["action"]})
    assert fits(document, "penguins.DecisionRequest", {"rows": [GOOD], "answers": ["action"], "utility": utility})
    assert not fits(document, "penguins.Request", {"rows": [GOOD], "level": 1})
    assert not fits(document, "penguins.Request", {"rows": []})
    assert not fits(document, "penguins.Utility", utility | {"states": ["Gentoo", "Adelie", "Emperor"]})


def test_examples_are_what_the_server_answers(client: Client, document: dict[str, Any]) -> None:
    """In both formats that people read."""
    predict = document["paths"]["/predict"]["post"]
    body, answer = predict["requestBody"]["content"], predict["responses"]["200"]["content"]
    wanted = answer[JSON]["example"]
    said = client.post("/predict", json=body[JSON]["example"]).json()
    assert said.pop("version") == wanted["version"]
    numbers = np.array([list(said["rows"][0][name].values()) for name in ("proba", "lower", "upper")])
    expected = np.array([list(wanted["rows"][0][name].values()) for name in ("proba", "lower", "upper")])
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)
    assert fits(document, "penguins.Answers", wanted)
    text = client.post(
        f"/predict?answers={','.join(wanted['rows'][0])}",
        content=body[CSV]["example"],
        headers={"content-type": CSV, "accept": CSV},
    ).text
    assert text == answer[CSV]["example"]
    assert set(body) == {JSON, CSV, ARROW, PARQUET}
    assert set(answer) == {JSON, CSV, ARROW}


def test_what_the_models_can_answer(model: Any, numbers_model: Any, utility: po.Utility) -> None:
    """Several models are told apart, each with its own columns, classes and answers."""
    ask = client_of(app({"penguins": model, "numbers": numbers_model}))
    document = ask.get("/openapi.json").json()
    validate(document)
    schemas = document["components"]["schemas"]
    assert schemas["numbers.Answer"]["properties"]["class"]["enum"] == [0, 1, 2]
    assert schemas["numbers.Row"]["properties"]["x0"]["type"] == "number"  # this model takes no missing values
    assert list(schemas["penguins.Answer"]["properties"]["proba"]["properties"]) == ["Adelie", "Chinstrap", "Gentoo"]
    parameter = document["paths"]["/predict"]["post"]["parameters"][0]
    assert (parameter["name"], parameter["required"], parameter["schema"]["enum"]) == (
        "model", True, ["penguins", "numbers"],
    )  # fmt: skip
    own = client_of(app({"penguins": model}, utility=utility)).get("/openapi.json").json()
    assert "action" in own["components"]["schemas"]["penguins.Request"]["properties"]["answers"]["items"]["enum"]


def test_the_models_are_as_described(client: Client, document: dict[str, Any], model: Any, utility: po.Utility) -> None:
    for described in client.get("/models").json()["models"]:
        assert fits(document, "Model", described)
    with_utility = client_of(app({"penguins": model}, utility=utility))
    assert fits(with_utility.get("/openapi.json").json(), "Model", with_utility.get("/models").json()["models"][0])


def test_refusals_are_as_described(client: Client, document: dict[str, Any]) -> None:
    for reply in (
        client.post("/predict", json=[GOOD | {"year": "soon"}]),
        client.post("/predict?model=geese", json=[GOOD]),
        client.get("/nothing"),
    ):
        assert reply.status_code in (400, 404)
        assert fits(document, "Refusal", reply.json())


def test_with_a_token(model: Any) -> None:
    ask = client_of(app({"penguins": model}, token=TOKEN))
    assert ask.get("/openapi.json").status_code == 401  # the levels of columns are in it
    document = ask.get("/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()
    validate(document)
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert document["security"] == [{"token": []}]
    for path, operations in document["paths"].items():
        if "get" in operations and "{" not in path:
            is_open = operations["get"].get("security") == []
            assert (ask.get(path).status_code == 401) != is_open, path
            assert ("401" in operations["get"]["responses"]) != is_open


def test_mounted_below_a_path(model: Any) -> None:
    ask = client_of(Starlette(routes=[Mount("/birds", app(model))]))
    assert ask.get("/birds/openapi.json").json()["servers"] == [{"url": "/birds"}]


def test_names_that_are_no_names_of_schemas(model: Any) -> None:
    document = client_of(app({"pingüinos": model, "ping inos": model, "ping-inos": model})).get("/openapi.json").json()
    validate(document)
    assert sorted(name for name in document["components"]["schemas"] if name.endswith(".Row")) == [
        "ping-inos-2.Row", "ping-inos-3.Row", "ping-inos.Row",
    ]  # fmt: skip
