"""The plain protocol, described: POST /predict and GET /models."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import csv

from posteriori.serve.answers import ANSWERS, DECIDED, Asked
from posteriori.serve.bodies import ARROW, CSV, JSON, PARQUET
from posteriori.serve.openapi.schemas import (
    ABOUT,
    LEVEL,
    NEW_LEVELS,
    Described,
    Schema,
    answer_schema,
    any_of,
    content,
    keys_of,
    options_in_address,
    reference,
    refusals,
    row_schema,
    typical_record,
    utility_schema,
)
from posteriori.serve.plain import predictions
from posteriori.serve.rows import of_records
from posteriori.serve.served_model import ServedModel

__all__ = ["described"]


def described(models: Sequence[ServedModel]) -> Described:
    """The paths and schemas of the plain protocol."""
    keys = keys_of(models)
    schemas: dict[str, Schema] = {"ModelColumn": _column(), "Model": _model()}
    for key, model in zip(keys, models, strict=True):
        schemas |= _schemas(key, model)
    paths = {"/predict": {"post": _predict(keys, models)}, "/models": {"get": _models(models)}}
    return Described(paths, schemas)


def _schemas(key: str, model: ServedModel) -> dict[str, Schema]:
    """Rows, requests and answers of one model."""
    rows: Schema = {"type": "array", "items": reference(f"{key}.Row"), "minItems": 1}
    options: Schema = {
        "level": LEVEL | {"description": ABOUT["level"]},
        "new_levels": NEW_LEVELS | {"description": ABOUT["new_levels"]},
    }

    def request(sentence: str, names: Sequence[str], **further: Schema) -> Schema:
        answers = {"type": "array", "items": {"enum": list(names)}, "minItems": 1, "description": ABOUT["answers"]}
        return {
            "type": "object",
            "description": sentence,
            "required": ["rows", *further],
            "properties": {"rows": rows, "answers": answers} | options | further,
            "additionalProperties": False,
        }

    decided = [name for name in ANSWERS if name in (*model.answers, *DECIDED)]
    utility = reference(f"{key}.Utility") | {"description": ABOUT["utility"]}
    return {
        f"{key}.Row": row_schema(model),
        f"{key}.Rows": rows,
        f"{key}.Utility": utility_schema(model),
        f"{key}.Request": request("Rows, and what is asked about them.", model.answers),
        f"{key}.DecisionRequest": request("Rows, and a utility to decide by.", decided, utility=utility),
        f"{key}.Answer": answer_schema(model),
        f"{key}.Answers": _answers(key, model),
    }


def _answers(key: str, model: ServedModel) -> Schema:
    return {
        "type": "object",
        "required": ["model", "version", "classes", "actions", "warnings", "rows"],
        "properties": {
            "model": {"const": model.name},
            "version": {"type": "string"},
            "classes": {"const": model.classes},
            "actions": {"type": "array", "description": "Empty unless decisions were asked for."},
            "warnings": {"type": "array", "items": {"type": "string"}, "description": "Sentences about the rows."},
            "rows": {"type": "array", "items": reference(f"{key}.Answer"), "description": "One entry for each row."},
        },
        "additionalProperties": False,
    }


def _predict(keys: Sequence[str], models: Sequence[ServedModel]) -> dict[str, Any]:
    first, record = models[0], typical_record(models[0])
    bodies = ("Request", "DecisionRequest", "Rows", "Row")
    rows = any_of([reference(f"{key}.{body}") for key in keys for body in bodies])
    answers = any_of([reference(f"{key}.Answers") for key in keys])
    wanted = Asked(tuple(name for name in first.answers if name not in DECIDED), accept_new=True)
    found = first.answer(of_records([record], first.columns, first.ignored), wanted)
    table: Schema = {"type": "string", "description": "One row a line, the names of the columns in the first."}
    return {
        "operationId": "predict",
        "summary": "Classes, probabilities, intervals, uncertainty, sets and decisions for rows",
        "tags": ["plain"],
        "description": (
            "Rows are sent as JSON (an object with rows and options, a list of rows, or a single row) or as a table "
            "(CSV, an Arrow stream, Parquet). All rows are answered, or none. With a table, options go into the "
            "address; an option may not be both there and in the body."
        ),
        "parameters": options_in_address(models),
        "requestBody": {
            "required": True,
            "content": content(JSON, rows, {"rows": [record], "answers": list(wanted.answers)})
            | content(CSV, table, _csv(pa.table({name: [value] for name, value in record.items()})))
            | content(ARROW, {})
            | content(PARQUET, {}),
        },
        "responses": {
            "200": {
                "description": "Answers to all rows, in the format that Accept names; JSON if it names none.",
                "content": content(JSON, answers, orjson.loads(orjson.dumps(predictions(first, found))))
                | content(CSV, {"type": "string"}, _csv(found.table()))
                | content(ARROW, {}),
            }
        }
        | refusals(400, 404, 406, 413, 415),
    }


def _models(models: Sequence[ServedModel]) -> dict[str, Any]:
    body: Schema = {
        "type": "object",
        "required": ["models"],
        "properties": {"models": {"type": "array", "items": reference("Model")}},
        "additionalProperties": False,
    }
    example = orjson.loads(orjson.dumps({"models": [model.described() for model in models[:1]]}))
    return {
        "operationId": "models",
        "summary": "The models, their columns and what they can answer",
        "tags": ["plain"],
        "responses": {"200": {"description": "The models.", "content": content(JSON, body, example)}},
    }


def _model() -> Schema:
    text: Schema = {"type": "string"}
    texts: Schema = {"type": "array", "items": text}
    properties: Schema = {
        "name": text,
        "version": text,
        "class": text | {"description": "The kind of classifier."},
        "classes": {"type": "array", "minItems": 1},
        "target": {"type": ["string", "null"], "description": "The column that held the classes in the fit."},
        "columns": {"type": "array", "items": reference("ModelColumn")},
        "ignored": texts | {"description": "Columns that rows may have although they are not read."},
        "answers": {"type": "array", "items": {"enum": list(ANSWERS)}},
        "utility": {"type": ["object", "null"], "required": ["states", "actions", "matrix"]},
    }
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _column() -> Schema:
    bound: Schema = {"type": ["number", "string", "null"]}
    kinds = ["number", "boolean", "duration", "category", "date", "date with time zone"]
    return {
        "type": "object",
        "required": ["name", "kind", "missing", "typical"],
        "properties": {
            "name": {"type": "string"},
            "kind": {"enum": kinds},
            "missing": {"type": "boolean", "description": "Whether values were missing in the fit."},
            "typical": {"type": ["number", "string", "boolean", "null"], "description": "A value in their middle."},
            "low": bound | {"description": "The least value in the fit."},
            "high": bound | {"description": "The greatest value in the fit."},
            "integer": {"type": "boolean", "description": "Whether all values in the fit were whole numbers."},
            "levels": {"type": "array", "items": {"type": "string"}},
            "other": {"type": "boolean", "description": "Whether rarer levels were taken together."},
        },
        "additionalProperties": False,
    }


def _csv(table: pa.Table) -> str:
    """A table as text."""
    out = BytesIO()
    csv.write_csv(table, out)
    return out.getvalue().decode()
