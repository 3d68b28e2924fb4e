"""The plain protocol: POST /predict with rows as JSON, CSV, Arrow or Parquet, and GET /models."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import csv
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posteriori.serve.answers import Answers, Asked, asked
from posteriori.serve.bodies import ARROW, CSV, JSON, json_value, media_type, table_rows
from posteriori.serve.desk import LARGE_BODY, MANY_ROWS, desk_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import body_of
from posteriori.serve.options import OPTIONS, options_in_address
from posteriori.serve.rows import SentRows, of_records
from posteriori.serve.served_model import ServedModel
from posteriori.tables.files import without_formulas

__all__ = ["ROUTES", "predictions"]


async def predict(request: Request) -> Response:
    """Answer rows."""
    desk = desk_of(request)
    query = options_in_address(request)
    model = desk.shelf.get(query.pop("model", None), query.pop("version", None))
    write = _writer(request.headers.get("accept"))
    body = body_of(request.scope)
    if len(body) > LARGE_BODY:
        rows, wanted = await desk.in_thread(_read, body, request, query, model)
    else:
        rows, wanted = _read(body, request, query, model)
    answers = await desk.answer(model, rows, wanted, request.scope)
    if answers.n_rows > MANY_ROWS:
        return await desk.in_thread(write, model, answers)
    return write(model, answers)


async def models(request: Request) -> Response:
    """Describe the models."""
    found = [model.described() for model in desk_of(request).shelf.latest()]
    return Response(orjson.dumps({"models": found}), media_type=JSON)


ROUTES = [Route("/predict", predict, methods=["POST"]), Route("/models", models, methods=["GET"])]


def _read(body: bytes, request: Request, query: dict[str, Any], model: ServedModel) -> tuple[SentRows, Asked]:
    """Rows and what is asked about them."""
    kind = media_type(request.headers.get("content-type"))
    if kind != JSON:
        rows = table_rows(body, kind, model, desk_of(request).limits.bounds)
        return rows, asked(**query, possible=model.answers)
    records, options = _split(json_value(body))
    twice = [name for name in options if name in query]
    if twice:
        raise Refusal(f"{twice[0]!r} is both in the address and in the body: once is enough.")
    wanted = asked(**query, **options, possible=model.answers)
    desk_of(request).limits.bounds.require(len(records) if isinstance(records, list) else 0, 0)
    return of_records(records, model.columns, model.ignored), wanted


def _split(value: Any) -> tuple[Any, dict[str, Any]]:
    """The rows in a body of JSON, and its options: an object with "rows", a list of rows, or one row."""
    if not isinstance(value, dict):
        return value, {}
    if not isinstance(value.get("rows"), list):
        return [value], {}
    unknown = [name for name in value if name != "rows" and name not in OPTIONS]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} beside rows is unknown: use {', '.join(OPTIONS)}.")
    return value["rows"], {name: value[name] for name in OPTIONS if name in value}


def predictions(model: ServedModel, answers: Answers) -> dict[str, Any]:
    """Answers as an object of JSON."""
    return {
        "model": model.name,
        "version": model.version,
        "classes": answers.classes,
        "actions": answers.actions,
        "warnings": answers.warnings,
        "rows": answers.records(),
    }


def _as_json(model: ServedModel, answers: Answers) -> Response:
    return Response(orjson.dumps(predictions(model, answers)), media_type=JSON)


def _as_csv(model: ServedModel, answers: Answers) -> Response:
    table = answers.table()
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(i, field.name, without_formulas(table.column(i)))
    out = BytesIO()
    csv.write_csv(table, out)
    return Response(out.getvalue(), media_type=CSV)


def _as_arrow(model: ServedModel, answers: Answers) -> Response:
    table, out = answers.table(), BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return Response(out.getvalue(), media_type=ARROW)


_WRITERS: dict[str, Callable[[ServedModel, Answers], Response]] = {JSON: _as_json, CSV: _as_csv, ARROW: _as_arrow}


def _writer(accept: str | None) -> Callable[[ServedModel, Answers], Response]:
    """The way to write the answer that the client likes best, from its header Accept."""
    if accept is None or accept == "*/*" or accept == JSON:
        return _as_json
    liked = []
    for order, part in enumerate(accept.split(",")):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        liked.append((-_quality(parameters), order, name.lower()))
    for quality, _, name in sorted(liked):
        if quality == 0.0:
            continue
        if name in _WRITERS:
            return _WRITERS[name]
        for known, write in _WRITERS.items():
            if name == "*/*" or (name.endswith("/*") and known.startswith(name[:-1])):
                return write
    raise Refusal(f"Accept names nothing that is written here: {', '.join(_WRITERS)}.", status=406)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
