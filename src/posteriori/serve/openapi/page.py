"""What the page asks of the server, described: curves along a column, and tables with decisions for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posteriori.serve.answers import PARTS
from posteriori.serve.bodies import ARROW, CSV, JSON, PARQUET
from posteriori.serve.openapi.schemas import (
    LEVEL,
    NEW_LEVELS,
    Described,
    Schema,
    any_of,
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
_NUMBER: Schema = {"type": "number"}
_MAYBE: Schema = {"type": ["number", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ANY: Schema = {}
_AT = "/page/tables/{id}"
_SORTS = ("row", "margin", "value_of_information", *PARTS, "surprise", "p")


def described(models: Sequence[ServedModel]) -> Described:
    """The paths and schemas of the page."""
    keys = keys_of(models)
    utility = any_of([*(reference(f"{key}.Utility") for key in keys), {"type": "null"}])
    both: Schema = {"utility": utility, "against": utility}
    schemas: dict[str, Schema] = {
        "Table": _table(),
        "TableSummary": _summary(),
        "TableRows": _rows(),
        "Curve": _curve_answer(),
    } | {f"{key}.CurveRequest": _curve_request(key, model) for key, model in zip(keys, models, strict=True)}
    only = object_with(required=[], **{"class": _ANY, "truth": _ANY, "action": _ANY, "flipped": {"type": "boolean"}})
    sort = object_with(required=[], by={"enum": list(_SORTS)}, descending={"type": "boolean"}, **{"class": _ANY})
    rows = both | {"start": _COUNT, "count": _COUNT | {"maximum": 500}, "sort": sort, "only": only}
    summary = content(JSON, reference("TableSummary"))
    paths: dict[str, Any] = {
        "/page/curve": {"post": _curve(keys, models)},
        "/page/tables": {"post": _store(models)},
        _AT: {
            "get": _one("page_table", "What a stored table is", content(JSON, reference("Table"))),
            "delete": _one("page_remove", "Remove a stored table", None),
        },
        f"{_AT}/summary": {
            "post": _one("page_summary", "Classes, decisions and scores of all rows", summary, both),
        },
        f"{_AT}/rows": {
            "post": _one("page_rows", "Some rows with their answers", content(JSON, reference("TableRows")), rows),
        },
        f"{_AT}/download": {
            "post": _one("page_download", "All rows with their answers", content(CSV, _TEXT), {"utility": utility}),
        },
    }
    return Described(paths, schemas)


def _curve(keys: Sequence[str], models: Sequence[ServedModel]) -> dict[str, Any]:
    request = any_of([reference(f"{key}.CurveRequest") for key in keys])
    example = {"row": typical_record(models[0]), "column": models[0].columns[0].name}
    return {
        "operationId": "page_curve",
        "summary": "Probabilities of a row along one of its columns",
        "tags": ["page"],
        "parameters": options_in_address(models)[:2],
        "requestBody": {"required": True, "content": content(JSON, request, example)},
        "responses": {"200": {"description": "The curve.", "content": content(JSON, reference("Curve"))}}
        | refusals(400, 404, 413),
    }


def _curve_request(key: str, model: ServedModel) -> Schema:
    return object_with(
        required=["row", "column"],
        row=reference(f"{key}.Row"),
        column={"enum": [column.name for column in model.columns]},
        points={"type": "integer", "minimum": 2, "maximum": 1000},
        level=LEVEL,
        new_levels=NEW_LEVELS,
    )


def _curve_answer() -> Schema:
    values = list_of(list_of({"type": "number", "minimum": 0, "maximum": 1}))
    return object_with(
        required=["column", "kind", "x", "proba"],
        column=_TEXT,
        kind=_TEXT,
        x=list_of({"type": ["number", "string", "boolean"]}),
        proba=values | {"description": "One list of probabilities, in the order of the classes, for each x."},
        lower=values,
        upper=values,
    )


def _store(models: Sequence[ServedModel]) -> dict[str, Any]:
    def option(name: str, sentence: str, schema: Schema) -> dict[str, Any]:
        return {"name": name, "in": "query", "required": False, "description": sentence, "schema": schema}

    further = [
        option(
            "new_columns", "Whether columns that the model does not have are refused.", {"enum": ["refuse", "leave"]}
        ),
        option("new_levels", "Whether levels that the fit did not know are refused.", NEW_LEVELS),
        option("level", "Of intervals and sets.", LEVEL),
        option("truth", "The column with the true classes, if it is not that of the fit.", _TEXT),
    ]
    return {
        "operationId": "page_store",
        "summary": "Keep a table with its answers for a while",
        "tags": ["page"],
        "parameters": options_in_address(models)[:2] + further,
        "requestBody": {"required": True, "content": content(CSV, _TEXT) | content(ARROW, {}) | content(PARQUET, {})},
        "responses": {"201": {"description": "The table.", "content": content(JSON, reference("Table"))}}
        | refusals(400, 404, 413, 415),
    }


def _one(name: str, summary: str, body: dict[str, Any] | None, takes: Schema | None = None) -> dict[str, Any]:
    """An operation on one stored table."""
    place = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"}}
    asked = [
        {
            "name": key,
            "in": "query",
            "required": False,
            "schema": _TEXT,
            "description": f"The {key} it should be of.",
        }
        for key in ("model", "version")
    ]
    done = {"description": summary} if body is None else {"description": summary, "content": body}
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": ["page"],
        "parameters": [place, *asked],
        "responses": {"204" if body is None else "200": done} | refusals(400, 404, 409),
    }
    if takes is None:
        return found
    sent = content(JSON, object_with(takes, required=[]), {})
    return found | {"requestBody": {"required": True, "content": sent}}


def _table() -> Schema:
    texts = list_of(_TEXT)
    return object_with(
        id=_TEXT,
        model=_TEXT,
        version=_TEXT,
        rows=_COUNT,
        columns=texts,
        left_out=texts | {"description": "Columns that the model does not read."},
        truth={"type": ["string", "null"], "description": "The column with the true classes."},
        labelled=_COUNT | {"description": "Rows whose class is known."},
        level=_MAYBE,
        answers=texts,
        warnings=texts,
    )


def _summary() -> Schema:
    shares = object_with({"class": _ANY, "predicted": _COUNT, "mean_probability": _NUMBER})
    return object_with(
        rows=_COUNT,
        classes=list_of(shares),
        uncertainty={"type": ["object", "null"], "additionalProperties": _NUMBER},
        decisions=any_of([_decisions(), {"type": "null"}]),
        scores=any_of([_scores(), {"type": "null"}]),
    )


def _decisions() -> Schema:
    numbers = list_of(_NUMBER)
    margin = object_with(quantiles=numbers, bins=numbers, counts=list_of(_COUNT))
    return object_with(
        actions=list_of(_ANY),
        counts=list_of(_COUNT),
        expected_utility=_NUMBER,
        value_of_information=_NUMBER,
        margin=any_of([margin, {"type": "null"}]),
        flipped={"type": ["integer", "null"]},
        flips=list_of(object_with({"from": _ANY, "to": _ANY, "rows": _COUNT})),
    )


def _scores() -> Schema:
    score: Schema = {"type": "object", "required": ["value", "lower", "upper"]}
    return object_with(
        rows=_COUNT,
        log_loss=score,
        accuracy=score,
        brier=score,
        reliability={"type": "object"},
        confusion=object_with(labels=list_of(_TEXT), counts=list_of(list_of(_COUNT))),
        utility={"type": ["object", "null"], "description": "What decisions were worth on rows whose class is known."},
    )


def _rows() -> Schema:
    by_class = list_of(_NUMBER)
    row = object_with(
        {
            "row": _COUNT,
            "values": {"type": "object"},
            "class": _ANY,
            "truth": _ANY,
            "proba": by_class,
            "lower": by_class,
            "upper": by_class,
            **dict.fromkeys(PARTS, _MAYBE),
            "set": list_of(_ANY),
            "action": _ANY,
            "expected_utility": by_class,
            "margin": _MAYBE,
            "value_of_information": _MAYBE,
            "was": _ANY,
        },
        required=["row", "values", "class", "truth", "proba"],
    )
    return object_with(total=_COUNT, start=_COUNT, rows=list_of(row))
