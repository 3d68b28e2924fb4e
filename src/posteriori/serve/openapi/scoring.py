"""MLflow's scoring protocol, described: POST /invocations, and whether the server is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posteriori.serve.answers import ANSWERS, DECIDED
from posteriori.serve.bodies import ARROW, CSV, JSON, PARQUET
from posteriori.serve.openapi.schemas import (
    LEVEL,
    NEW_LEVELS,
    Described,
    Schema,
    any_of,
    column_schema,
    content,
    keys_of,
    list_of,
    object_with,
    options_in_address,
    reference,
    refusals,
    typical_record,
)
from posteriori.serve.served_model import ServedModel

__all__ = ["described"]

_TEXT: Schema = {"type": "string"}


def described(models: Sequence[ServedModel]) -> Described:
    """The paths and schemas of the protocol."""
    keys = keys_of(models)
    schemas: dict[str, Schema] = {"ScoringRefusal": _refusal(), "Scored": _scored()}
    for key, model in zip(keys, models, strict=True):
        schemas[f"{key}.ScoringRequest"] = _request(key, model)
    version = {
        "operationId": "mlflow_version",
        "summary": "The version of posteriori",
        "tags": ["MLflow"],
        "responses": {"200": {"description": "The version.", "content": content("text/plain", _TEXT)}},
    }
    paths = {
        "/invocations": {"post": _invocations(keys, models)},
        "/ping": {"get": _ping("mlflow_ping")},
        "/health": {"get": _ping("mlflow_health")},
        "/version": {"get": version},
    }
    return Described(paths, schemas)


def _invocations(keys: Sequence[str], models: Sequence[ServedModel]) -> dict[str, Any]:
    requests = any_of([reference(f"{key}.ScoringRequest") for key in keys])
    example = {"dataframe_records": [typical_record(models[0])], "params": {"answers": ["class", "proba"]}}
    return {
        "operationId": "mlflow_invocations",
        "summary": "Predictions, as MLflow's scoring server writes them",
        "tags": ["MLflow"],
        "description": (
            "Predictions are classes; once answers are named, objects with the columns that /predict writes as CSV. "
            "With a table (CSV, Arrow, Parquet) params go into the address; one may not be both there and in the body."
        ),
        "parameters": options_in_address(models),
        "requestBody": {
            "required": True,
            "content": content(JSON, requests, example)
            | content(CSV, _TEXT)
            | content(ARROW, {})
            | content(PARQUET, {}),
        },
        "responses": {"200": {"description": "Predictions.", "content": content(JSON, reference("Scored"))}}
        | refusals(400, 404, 413, 415, schema="ScoringRefusal"),
    }


def _request(key: str, model: ServedModel) -> Schema:
    """What one model is asked: rows in one of four forms."""
    may_be_missing = model.encoder is not None
    names = [column.name for column in model.columns]
    record = reference(f"{key}.Row")
    columns = {column.name: column_schema(column, may_be_missing=may_be_missing) for column in model.columns}
    values = object_with({name: list_of(column, least=1) for name, column in columns.items()})
    split = object_with(
        required=["columns", "data"],
        columns={"const": names},
        data=list_of({"type": "array", "minItems": len(names), "maxItems": len(names)}, least=1),
        index={"type": "array"},
    )
    forms: dict[str, Schema] = {
        "dataframe_records": list_of(record, least=1),
        "instances": list_of(record, least=1),
        "dataframe_split": split,
        "inputs": values,
    }
    answers = [name for name in ANSWERS if name in (*model.answers, *DECIDED)]
    params = object_with(
        required=[],
        answers=list_of({"enum": answers}, least=1),
        level=LEVEL,
        utility=reference(f"{key}.Utility"),
        new_levels=NEW_LEVELS,
        model={"const": model.name},
        version=_TEXT,
    )
    return any_of([object_with({name: form, "params": params}, required=[name]) for name, form in forms.items()])


def _scored() -> Schema:
    return object_with(
        required=["predictions"],
        predictions={"type": "array", "minItems": 1},
        warnings={"type": "array", "items": _TEXT},
    )


def _refusal() -> Schema:
    """A refusal, also in the words of MLflow."""
    return object_with(
        required=["error"],  # what the guard refuses does not come so far
        error=_TEXT,
        row={"type": "integer", "minimum": 1},
        column=_TEXT,
        error_code={"enum": ["BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST"]},
        message=_TEXT,
    )


def _ping(name: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"description": "Yes; the body is empty.", "content": {JSON: {}}}
    return {
        "operationId": name,
        "summary": "Whether the server takes requests",
        "tags": ["MLflow"],
        "security": [],
        "responses": {"200": nothing, "503": nothing | {"description": "The server is ending; the body is empty."}},
    }
