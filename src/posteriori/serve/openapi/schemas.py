r"""Schemas of JSON for what the protocols share: rows of a model, utilities, answers and refusals.

They say what a client should send. The server takes a little more, such as truth values in a column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from posteriori.serve.answers import ANSWERS, BY_ACTION, DECIDED, INTERVALS, MOST_ACTIONS, PARTS
from posteriori.serve.bodies import JSON
from posteriori.serve.model_columns import LONGEST_DURATION, ModelColumn
from posteriori.serve.served_model import ServedModel

__all__ = [
    "ABOUT",
    "LEVEL",
    "NEW_LEVELS",
    "Described",
    "Schema",
    "answer_schema",
    "any_of",
    "column_schema",
    "content",
    "keys_of",
    "list_of",
    "object_with",
    "options_in_address",
    "reference",
    "refusals",
    "row_schema",
    "shared_responses",
    "shared_schemas",
    "typical_record",
    "utility_schema",
]

Schema = dict[str, Any]

_KINDS: dict[str, tuple[str, Schema]] = {
    "number": ("number", {}),
    "boolean": ("boolean", {}),
    "duration": ("number", {"minimum": -LONGEST_DURATION, "maximum": LONGEST_DURATION}),
    "category": ("string", {}),
    "date": ("string", {"format": "date-time-local"}),
    "date with time zone": ("string", {"format": "date-time"}),
}
"""Types of kinds of columns, and what else they ask for."""
LEVEL: Schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
NEW_LEVELS: Schema = {"enum": ["refuse", "accept"]}
ABOUT = {
    "answers": "What is asked: the class and its probabilities if left out, with a utility the decision too.",
    "level": "Of intervals and prediction sets; 0.95 for intervals if left out, the model's own for sets.",
    "utility": "What decisions are taken by, in place of the utility of the model or of the server.",
    "new_levels": "Whether levels of categories that the fit did not know are refused (default) or encoded as rare.",
}
_REASONS = {
    400: "The request is wrong; the sentence says where and what is needed.",
    401: "The token is missing or wrong.",
    403: "A page of another site asks.",
    404: "There is no such model or version.",
    406: "None of the formats that Accept names is written here.",
    408: "The body did not arrive in time.",
    409: "The table was answered by another model or version.",
    413: "The body has too many bytes, rows or columns.",
    415: "The format of the body is not read here.",
    421: "The header Host names another server.",
    500: "The server failed: this is its own fault.",
    503: "Too many large requests are being answered.",
    504: "No answer was found in time.",
}


@dataclass(frozen=True)
class Described:
    """What a protocol adds to the document.

    Attributes
    ----------
    paths : dict of str to dict
        Operations by path.
    schemas : dict of str to dict
        Schemas that they refer to, by name.
    """

    paths: Mapping[str, Any]
    schemas: Mapping[str, Schema] = field(default_factory=dict)


def reference(name: str) -> Schema:
    """The schema of this name, among those of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def any_of(schemas: Sequence[Schema]) -> Schema:
    """What fits one of several schemas."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def content(kind: str, schema: Schema, example: Any = None) -> dict[str, Any]:
    """A body of this kind."""
    return {kind: {"schema": schema} | ({} if example is None else {"example": example})}


def object_with(
    properties: Schema | None = None, /, *, required: Sequence[str] | None = None, **more: Schema
) -> Schema:
    """An object with these properties and no others; all are required unless those that are get named."""
    known = (properties or {}) | more
    return {
        "type": "object",
        "required": list(known if required is None else required),
        "properties": known,
        "additionalProperties": False,
    }


def list_of(items: Schema, *, least: int = 0, most: int | None = None) -> Schema:
    """A list of so many values."""
    bounds = {} if most is None else {"maxItems": most}
    return {"type": "array", "items": items, "minItems": least} | bounds


def refusals(*statuses: int, schema: str = "Refusal") -> dict[str, Any]:
    """Responses that refuse a request, by status."""
    if schema != "Refusal":
        return {str(status): refusal(status, schema) for status in sorted(statuses)}
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def refusal(status: int, schema: str = "Refusal") -> dict[str, Any]:
    """The response that refuses a request with this status."""
    return {"description": _REASONS[status], "content": content(JSON, reference(schema))}


def shared_responses() -> dict[str, Any]:
    """Responses that every protocol may refer to."""
    return {str(status): refusal(status) for status in _REASONS}


def keys_of(models: Iterable[ServedModel]) -> list[str]:
    """A key for each model, with which the names of its schemas begin."""
    return _unique([model.name for model in models])


def _unique(names: Sequence[str]) -> list[str]:
    """Names in the characters that keys may have, each once.

    >>> _unique(["birds", "birds!", "çà"])
    ['birds', 'birds-2', 'model']
    """
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "model"
        numbered = (f"{plain}-{i}" for i in count(2))
        found.append(next(key for key in chain([plain], numbered) if key not in found))
    return found


def shared_schemas() -> dict[str, Schema]:
    """Schemas that every protocol may refer to."""
    refusal = object_with(
        required=["error"],
        error={"type": "string", "description": "One sentence: what was sent, and what is needed."},
        row={"type": "integer", "minimum": 1, "description": "The row that is wrong, counted from 1."},
        column={"type": "string", "description": "The column that is wrong."},
        remedy={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Options with which the same request would be answered.",
        },
    )
    refusal |= {
        "description": "Why a request was refused.",
        "examples": [
            {
                "error": "Row 1: column 'width' holds 'wide', where a number is expected, or null if it is missing.",
                "row": 1,
                "column": "width",
            }
        ],
    }
    return {"Refusal": refusal}


def row_schema(model: ServedModel) -> Schema:
    """A row of the model, as an object."""
    may_be_missing = model.encoder is not None
    columns = {column.name: column_schema(column, may_be_missing=may_be_missing) for column in model.columns}
    ignored: Schema = {name: {"description": "Allowed, and not read."} for name in sorted(model.ignored)}
    return {
        "type": "object",
        "description": f"A row for {model.name}: a value for every column"
        + (", null where it is missing." if may_be_missing else "."),
        "required": list(columns),
        "properties": columns | ignored,
        "additionalProperties": False,
        "examples": [typical_record(model)],
    }


def column_schema(column: ModelColumn, *, may_be_missing: bool) -> Schema:
    """A value of a column; null stands for a missing one, where the model takes these."""
    about = column.described()
    schema: Schema = {"description": _words(about)}
    if about["typical"] is not None:
        schema["examples"] = [about["typical"]]
    if column.kind == "category" and column.levels and not column.other:
        return {"enum": [*column.levels, *([None] if may_be_missing else [])]} | schema
    if column.kind == "category" and column.levels:
        schema["examples"] = list(column.levels)
    kind, further = _KINDS[column.kind]
    return {"type": [kind, "null"] if may_be_missing else kind} | further | schema


def _words(about: Mapping[str, Any]) -> str:
    """What a column holds, in words."""
    if about["kind"] == "category":
        further = " Levels that were rare in the fit are known too." if about["other"] else ""
        return f"A category. Levels that the fit did not know are refused, unless new_levels is accept.{further}"
    kind = {"duration": "A duration in seconds", "boolean": "True or false"}.get(about["kind"], f"A {about['kind']}")
    known = about.get("low") is not None and about.get("high") is not None
    return f"{kind}, {about['low']} to {about['high']} in the fit." if known else f"{kind}."


def typical_record(model: ServedModel) -> dict[str, Any]:
    """A row with values in the middle of those of the fit."""
    unknown = None if model.encoder is not None else 0.0
    typical = {column.name: column.described()["typical"] for column in model.columns}
    return {name: unknown if value is None else value for name, value in typical.items()}


def utility_schema(model: ServedModel) -> Schema:
    """A utility for the classes of the model."""
    n_classes = len(model.classes)
    example = {
        "states": model.classes,
        "actions": ["act", "wait"],
        "matrix": [[1.0 if k == 0 else -1.0, 0.0] for k in range(n_classes)],
    }
    return {
        "type": "object",
        "description": f"What each action is worth in each class of {model.name}, in any unit.",
        "required": ["states", "actions", "matrix"],
        "properties": {
            "states": {
                "type": "array",
                "description": "The classes, in the order of the rows of the matrix.",
                "items": {"enum": model.classes},
                "minItems": n_classes,
                "maxItems": n_classes,
                "uniqueItems": True,
            },
            "actions": {
                "type": "array",
                "description": "Names, in the order of the columns of the matrix.",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MOST_ACTIONS,
                "uniqueItems": True,
            },
            "matrix": {
                "type": "array",
                "description": "One list for each class, with one number for each action.",
                "items": {"type": "array", "items": {"type": "number"}, "minItems": 1},
                "minItems": n_classes,
                "maxItems": n_classes,
            },
        },
        "additionalProperties": False,
        "examples": [example],
    }


def answer_schema(model: ServedModel) -> Schema:
    """The answers to one row, as an object; it has those that were asked for."""
    by_class = {name: _by_class(model) for name in ("proba", *INTERVALS) if name in model.answers}
    parts: Schema = {name: {"type": ["number", "null"], "description": f"{name}, in nats"} for name in PARTS}
    properties: Schema = {"class": {"enum": model.classes}} | by_class
    properties |= {name: schema for name, schema in parts.items() if name in model.answers}
    if "set" in model.answers:
        properties["set"] = {"type": "array", "items": {"enum": model.classes}, "uniqueItems": True}
    numbers: Schema = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    properties["action"] = {"type": ["string", "number", "boolean"]}
    properties |= {name: {"type": ["number", "null"]} for name in DECIDED if name not in ("action", *BY_ACTION)}
    properties |= dict.fromkeys(BY_ACTION, numbers)
    return {
        "type": "object",
        "description": f"What {model.name} answers to one row.",
        "properties": properties,
        "additionalProperties": False,
        "minProperties": 1,
    }


def _by_class(model: ServedModel) -> Schema:
    """A probability for every class."""
    keys = [str(label) for label in model.classes]
    return {
        "type": "object",
        "required": keys,
        "properties": {key: {"type": "number", "minimum": 0, "maximum": 1} for key in keys},
        "additionalProperties": False,
    }


def options_in_address(models: Sequence[ServedModel]) -> list[dict[str, Any]]:
    """The parameters in the address, of which each may also be in a body of JSON."""
    names = {name for model in models for name in model.answers} | set(DECIDED)
    utility = any_of([reference(f"{key}.Utility") for key in keys_of(models)])
    several = len(models) > 1

    def parameter(name: str, sentence: str, **further: Any) -> dict[str, Any]:
        return {"name": name, "in": "query", "required": False, "description": sentence} | further

    return [
        parameter(
            "model",
            "The model that is asked" + ("." if several else "; it may be left out, as there is one."),
            required=several,
            schema={"enum": [model.name for model in models]},
        ),
        parameter(
            "version",
            "Its version; that of the file that was named or loaded last if left out.",
            schema={"type": "string", "examples": [model.version for model in models]},
        ),
        parameter(
            "answers",
            f"{ABOUT['answers']} Names with commas between them.",
            schema={"type": "array", "items": {"enum": [n for n in ANSWERS if n in names]}, "minItems": 1},
            style="form",
            explode=False,
        ),
        parameter("level", ABOUT["level"], schema=LEVEL),
        parameter("utility", f"{ABOUT['utility']} In JSON.", content=content(JSON, utility)),
        parameter("new_levels", ABOUT["new_levels"], schema=NEW_LEVELS),
    ]
