"""The Open Inference Protocol, described: /v2 and what is below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posteriori.serve.answers import ANSWERS, DECIDED
from posteriori.serve.bodies import JSON
from posteriori.serve.model_columns import ModelColumn
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
    reference,
    refusals,
    typical_record,
)
from posteriori.serve.served_model import ServedModel
from posteriori.serve.tensors import DATATYPES

__all__ = ["described"]

_TEXT: Schema = {"type": "string"}
_OF_NUMBERS = [name for name in DATATYPES if name not in ("BYTES", "BOOL")]
_OF_KINDS = {"number": ["FP64", *(n for n in _OF_NUMBERS if n != "FP64")], "duration": ["FP64"], "boolean": ["BOOL"]}
"""Datatypes of tensors for kinds of columns; all others are text."""


def described(models: Sequence[ServedModel]) -> Described:
    """The paths and schemas of the protocol."""
    keys = keys_of(models)
    schemas = {"Tensor": _tensor(), "TensorMetadata": _metadata_tensor(), "InferResponse": _response()}
    for key, model in zip(keys, models, strict=True):
        schemas[f"{key}.InferRequest"] = _request(key, model)
    is_ready = object_with(ready={"type": "boolean"})
    paths: dict[str, Any] = {
        "/v2": {"get": _get("v2_server", "The server and its extensions", _server())},
        "/v2/health/live": {"get": _open("v2_live", "Whether the server lives", object_with(live={"type": "boolean"}))},
        "/v2/health/ready": {"get": _open("v2_ready", "Whether the server takes requests", is_ready)},
    }
    named = object_with(name=_TEXT, ready={"type": "boolean"})
    by_name = _place("name", {"enum": [model.name for model in models]})
    by_version = _place("version", _TEXT | {"minLength": 1, "examples": [model.version for model in models]})
    for suffix, told, places in (("", "", [by_name]), ("/versions/{version}", "_version", [by_name, by_version])):
        at = f"/v2/models/{{name}}{suffix}"
        paths[at] = {"get": _get(f"v2_model{told}", "The tensors of a model", _metadata(), places)}
        paths[f"{at}/ready"] = {
            "get": _get(f"v2_model_ready{told}", "Whether a model takes requests", named, places, unready=True)
        }
        paths[f"{at}/infer"] = {"post": _infer(f"v2_infer{told}", keys, models, places)}
    return Described(paths, schemas)


def _place(name: str, schema: Schema) -> dict[str, Any]:
    """A parameter within the path."""
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _get(
    name: str, summary: str, schema: Schema, places: Sequence[dict[str, Any]] = (), *, unready: bool = False
) -> dict[str, Any]:
    """An operation that tells something."""
    found = {"operationId": name, "summary": summary, "tags": ["Open Inference Protocol"]}
    responses = {"200": {"description": summary, "content": content(JSON, schema)}}
    if unready:
        responses["503"] = {"description": "The server is ending.", "content": content(JSON, schema)}
    if places:
        return found | {"parameters": list(places), "responses": responses | refusals(404)}
    return found | {"responses": responses}


def _open(name: str, summary: str, schema: Schema) -> dict[str, Any]:
    """An operation that needs no token."""
    return _get(name, summary, schema, unready=True) | {"security": []}


def _infer(
    name: str, keys: Sequence[str], models: Sequence[ServedModel], places: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    request = any_of([reference(f"{key}.InferRequest") for key in keys])
    return {
        "operationId": name,
        "summary": "Answers to tensors",
        "tags": ["Open Inference Protocol"],
        "description": (
            "One tensor for each column, in any order, all of the same length; a model that was fitted on a matrix "
            "also takes one tensor of shape [n, D]. Tensors may follow the JSON in binary, as Triton's extension has "
            "it: Inference-Header-Content-Length is the length of the JSON then."
        ),
        "parameters": list(places),
        "requestBody": {"required": True, "content": content(JSON, request, _example(models[0]))},
        "responses": {
            "200": {
                "description": "One tensor for each answer.",
                "content": content(JSON, reference("InferResponse")) | content("application/octet-stream", {}),
            }
        }
        | refusals(400, 404, 413, 415),
    }


def _request(key: str, model: ServedModel) -> Schema:
    """What one model is asked."""
    may_be_missing = model.encoder is not None
    tensors = [_column_tensor(column, may_be_missing=may_be_missing) for column in model.columns]
    if model.is_unnamed:
        tensors.append(_matrix_tensor(len(model.columns)))
    least = 1 if model.is_unnamed else len(model.columns)
    answers = [name for name in ANSWERS if name in (*model.answers, *DECIDED)]
    parameters = object_with(
        required=[],
        level=LEVEL,
        utility=reference(f"{key}.Utility"),
        new_levels=NEW_LEVELS,
        binary_data_output={"type": "boolean"},
    )
    output = object_with(required=["name"], name={"enum": answers}, parameters=_binary_data())
    return object_with(
        required=["inputs"],
        id=_TEXT | {"description": "Repeated in the response."},
        inputs=list_of(any_of(tensors), least=least),
        outputs=list_of(output, least=1)
        | {"description": "The answers that are wanted: class and proba if left out, with a utility the decision too."},
        parameters=parameters,
    )


def _binary_data() -> Schema:
    return object_with(required=[], binary_data={"type": "boolean"})


def _column_tensor(column: ModelColumn, *, may_be_missing: bool) -> Schema:
    value = column_schema(column, may_be_missing=may_be_missing)
    about = {name: value.pop(name) for name in ("description", "examples") if name in value}
    return object_with(
        name={"const": column.name},
        datatype={"enum": _OF_KINDS.get(column.kind, ["BYTES"])},
        shape=list_of({"type": "integer", "minimum": 1}, least=1, most=2),
        data=list_of(value, least=1),
    ) | {"description": about["description"]}


def _matrix_tensor(width: int) -> Schema:
    return object_with(
        name=_TEXT,
        datatype={"enum": _OF_NUMBERS},
        shape={
            "type": "array",
            "prefixItems": [{"type": "integer", "minimum": 1}, {"const": width}],
            "minItems": 2,
            "maxItems": 2,
        },
        data=list_of({"type": "number"}, least=width),
    ) | {"description": "All columns, row after row."}


def _response() -> Schema:
    return object_with(
        required=["model_name", "model_version", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        outputs=list_of(reference("Tensor"), least=1),
        parameters=object_with(required=[], warnings=_TEXT | {"description": "Sentences about the rows, one a line."}),
    )


def _tensor() -> Schema:
    """A tensor of a response."""
    return object_with(
        required=["name", "datatype", "shape", "parameters"],
        name={"enum": list(ANSWERS)},
        datatype={"enum": ["BOOL", "INT64", "FP64", "BYTES"]},
        shape=list_of({"type": "integer", "minimum": 0}, least=1, most=2),
        parameters={"type": "object"},
        data={"type": "array"},
    )


def _metadata() -> Schema:
    tensors: Schema = {"type": "array", "items": reference("TensorMetadata")}
    versions: Schema = {"type": "array", "items": _TEXT}
    return object_with(name=_TEXT, versions=versions, platform=_TEXT, inputs=tensors, outputs=tensors)


def _metadata_tensor() -> Schema:
    return object_with(
        required=["name", "datatype", "shape"],
        name=_TEXT,
        datatype={"enum": list(DATATYPES)},
        shape={"type": "array", "items": {"type": "integer"}, "description": "-1 stands for the number of rows."},
        parameters={"type": "object"},
    )


def _server() -> Schema:
    return object_with(name=_TEXT, version=_TEXT, extensions={"type": "array", "items": _TEXT})


def _example(model: ServedModel) -> dict[str, Any]:
    """A typical row as tensors."""
    record = typical_record(model)
    tensors = [
        {
            "name": column.name,
            "datatype": _OF_KINDS.get(column.kind, ["BYTES"])[0],
            "shape": [1],
            "data": [record[column.name]],
        }
        for column in model.columns
    ]
    return {"inputs": tensors, "outputs": [{"name": "class"}, {"name": "proba"}]}
