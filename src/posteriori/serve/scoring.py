"""MLflow's scoring protocol: POST /invocations with rows in one of its four forms of JSON, as CSV or as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import posteriori
from posteriori.parameters import first_names
from posteriori.serve.answers import Answers, Asked, asked
from posteriori.serve.bodies import JSON, Bounds, json_of_python, media_type, table_rows
from posteriori.serve.desk import LARGE_BODY, MANY_ROWS, desk_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import body_of
from posteriori.serve.options import IN_ADDRESS, options_in_address
from posteriori.serve.rows import SentRows, of_lists, of_records
from posteriori.serve.served_model import ServedModel

__all__ = ["ROUTES"]


class _Invocation(NamedTuple):
    """A request that was read; `in_columns` says whether answers were named, and are columns of a table."""

    model: ServedModel
    rows: SentRows
    asked: Asked
    in_columns: bool


async def invocations(request: Request) -> Response:
    """Answer rows."""
    desk = desk_of(request)
    body = body_of(request.scope)
    try:
        call = await desk.in_thread(_read, body, request) if len(body) > LARGE_BODY else _read(body, request)
        answers = await desk.answer(call.model, call.rows, call.asked, request.scope)
    except Refusal as refusal:
        error_code = "RESOURCE_DOES_NOT_EXIST" if refusal.status == 404 else "BAD_REQUEST"
        refusal.also = {"error_code": error_code, "message": str(refusal)}
        raise
    if answers.n_rows > MANY_ROWS:
        return await desk.in_thread(_response, answers, call.in_columns)
    return _response(answers, call.in_columns)


async def ping(request: Request) -> Response:
    """Say whether the server takes requests."""
    return Response(b"\n", 200 if desk_of(request).is_ready else 503, media_type=JSON)


async def version(request: Request) -> Response:
    """Say which version of posteriori answers."""
    return Response(posteriori.__version__, media_type="text/plain")


ROUTES = [
    Route("/invocations", invocations, methods=["POST"]),
    Route("/ping", ping, methods=["GET"]),
    Route("/health", ping, methods=["GET"]),
    Route("/version", version, methods=["GET"]),
]


def _read(body: bytes, request: Request) -> _Invocation:
    """The model that is asked, rows for it, and what is asked about them."""
    desk, options = desk_of(request), options_in_address(request)
    kind = media_type(request.headers.get("content-type"))
    value: Any = None
    if kind == JSON:
        value, params = _split(json_of_python(body))
        twice = [name for name in params if name in options]
        if twice:
            raise Refusal(f"{twice[0]!r} is both in the address and in params: once is enough.")
        options |= params
    model = desk.shelf.get(_name(options, "model"), _name(options, "version"))
    wanted = asked(**({"answers": ["class"]} | options), possible=model.answers)
    bounds = desk.limits.bounds
    rows = table_rows(body, kind, model, bounds) if kind != JSON else _rows(value, model, bounds)
    return _Invocation(model, rows, wanted, "answers" in options)


def _name(options: dict[str, Any], key: str) -> str | None:
    name = options.pop(key, None)
    if name is not None and type(name) is not str:
        raise Refusal(f"{key} must be text, got {name!r:.80}.")
    return name


def _split(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows in a body, under the name of their form, and its params."""
    needed = f"The body must be an object with exactly one of {first_names(_FORMS)}, and with 'params' or without"
    if type(value) is not dict:
        raise Refusal(f"{needed}.")
    forms = {name: rows for name, rows in value.items() if name != "params"}
    if len(forms) != 1 or not forms.keys() <= _FORMS.keys():
        raise Refusal(f"{needed}: it has {first_names([name[:50] for name in forms]) or 'none'}.")
    params = value.get("params") or {}
    if type(params) is not dict:
        raise Refusal("params must be an object.")
    unknown = [name for name in params if name not in IN_ADDRESS]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} in params is unknown: use {first_names(IN_ADDRESS, 20)}.")
    return forms, {name: value for name, value in params.items() if value is not None}


def _rows(forms: dict[str, Any], model: ServedModel, bounds: Bounds) -> SentRows:
    ((form, given),) = forms.items()
    return _FORMS[form](given, model, bounds)


def _of_split(given: Any, model: ServedModel, bounds: Bounds) -> SentRows:
    """Rows as lists, beside the names of their columns; pandas' numbers for columns without names are none."""
    if type(given) is not dict or type(given.get("data")) is not list:
        raise Refusal('dataframe_split must be an object {"columns": [names], "data": [one list for each row]}.')
    unknown = [name for name in given if name not in ("columns", "data", "index")]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} in dataframe_split is unknown: use 'columns' and 'data'.")
    names, data = given.get("columns"), given["data"]
    if model.is_unnamed and (names is None or (type(names) is list and names == list(range(len(names))))):
        return _of_matrix(data, model, bounds)
    if type(names) is not list or not all(type(name) is str for name in names):
        raise Refusal("columns of dataframe_split must be a list of names.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(f"Several columns are called {twice!r}: give each its own name.", column=twice)
    return of_lists(dict(zip(names, _turned(data, len(names), bounds), strict=True)), model.columns, model.ignored)


def _of_list(given: Any, model: ServedModel, bounds: Bounds) -> SentRows:
    """Rows as objects, or as lists for a model whose columns have no names."""
    bounds.require(len(given) if type(given) is list else 0, 0)
    if model.is_unnamed and type(given) is list and given and type(given[0]) is list:
        return _of_matrix(given, model, bounds)
    return of_records(given, model.columns, model.ignored)


def _of_inputs(given: Any, model: ServedModel, bounds: Bounds) -> SentRows:
    """One list of values for each column, or rows."""
    if type(given) is not dict:
        return _of_list(given, model, bounds)
    wrong = [name for name, values in given.items() if type(values) is not list]
    if wrong:
        raise Refusal(f"Column {wrong[0][:50]!r} of inputs must be a list of values.", column=wrong[0][:50])
    bounds.require(max(map(len, given.values()), default=0), len(given))
    return of_lists(given, model.columns, model.ignored)


def _of_matrix(given: list[Any], model: ServedModel, bounds: Bounds) -> SentRows:
    names = [column.name for column in model.columns]
    return of_lists(dict(zip(names, _turned(given, len(names), bounds), strict=True)), model.columns, model.ignored)


def _turned(rows: list[Any], width: int, bounds: Bounds) -> list[list[Any]]:
    """Columns of a table that was sent as lists, one for each row."""
    bounds.require(len(rows), width)
    for i, row in enumerate(rows):
        if type(row) is not list or len(row) != width:
            raise Refusal(f"Row {i + 1} must be a list of {width} values, one for each column.", row=i + 1)
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


_FORMS: dict[str, Callable[[Any, ServedModel, Bounds], SentRows]] = {
    "dataframe_split": _of_split,
    "dataframe_records": _of_list,
    "instances": _of_list,
    "inputs": _of_inputs,
}


def _response(answers: Answers, in_columns: bool) -> Response:
    if in_columns:
        predictions = answers.table().to_pylist()
    else:
        predictions = [answers.classes[code] for code in answers.values["class"].tolist()]
    said: dict[str, Any] = {"predictions": predictions}
    if answers.warnings:
        said["warnings"] = answers.warnings
    return Response(orjson.dumps(said), media_type=JSON)
