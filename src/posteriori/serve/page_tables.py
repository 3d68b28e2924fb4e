"""Tables on the page: rows are sent once, and what people ask of all of them is found in a second or less.

POST /page/tables stores a table with the answers of a model; below its id are a summary, its rows and a download. A
table keeps the answers of the version of the model that it was made with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posteriori.decision.labels import as_classes
from posteriori.parameters import first_names
from posteriori.serve.answers import DECIDED, INTERVALS, Answers, Asked, asked
from posteriori.serve.bodies import CSV, JSON, json_value, media_type, read_table
from posteriori.serve.desk import Desk, desk_of, options_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import body_of
from posteriori.serve.rows import SentRows, of_table
from posteriori.serve.served_model import ServedModel
from posteriori.serve.stored_tables import StoredTable
from posteriori.serve.table_decisions import decided
from posteriori.serve.table_rows import Further, csv_parts, shown_rows, wanted
from posteriori.serve.table_summary import facts, summary

__all__ = ["ROUTES"]

_QUERY = ("model", "version", "new_columns", "new_levels", "level", "truth")
MOST_WITH_INTERVALS = 50_000
"""Rows up to which intervals are computed for all, at about 0.1 ms each; in larger tables for those that are shown."""
_COUNTED = ("class", "epistemic")
"""Answers that the metrics look at."""
_TOLD = ("id", "model", "version", "rows", "columns", "left_out", "truth", "labelled", "level", "answers", "warnings")


async def store(request: Request) -> Response:
    """Take a table, and answer its rows."""
    desk = desk_of(request)
    query = options_of(request, _QUERY)
    model = desk.shelf.get(query.get("model"), query.get("version"))
    kind = media_type(request.headers.get("content-type"), CSV)
    abandoned = threading.Event()
    try:
        async with desk.tables.turn:
            table, counted = await desk.in_thread(_stored, desk, model, body_of(request.scope), kind, query, abandoned)
    finally:
        abandoned.set()  # where time is up, the thread ends too
    desk.metrics.answered(model.name, counted)
    request.scope["posteriori.noted"] = {"model": model.name, "version": model.version, "rows": table.n_rows}
    return _json(_described(table), status=201)


async def describe(request: Request) -> Response:
    """Say what a table is."""
    return _json(_described(_table(request)))


async def remove(request: Request) -> Response:
    """Remove a table."""
    table = _table(request)
    await desk_of(request).in_thread(desk_of(request).tables.remove, table.id)
    return Response(status_code=204)


async def summarise(request: Request) -> Response:
    """Say what there is to say of all rows."""
    table, given = _table(request), _body(request, ("utility", "against"))

    def found() -> bytes:
        decisions, against = decided(table, given.get("utility")), decided(table, given.get("against"))
        return orjson.dumps(summary(table, decisions, against))

    return Response(await desk_of(request).in_thread(found), media_type=JSON)


async def rows(request: Request) -> Response:
    """Show some rows."""
    table = _table(request)
    given = _body(request, ("start", "count", "utility", "against", "sort", "only"))
    want, further = wanted(given), _intervals(desk_of(request), table)

    def found() -> bytes:
        decisions, against = decided(table, given.get("utility")), decided(table, given.get("against"))
        return orjson.dumps(shown_rows(table, want, decisions, against, further))

    return Response(await desk_of(request).in_thread(found), media_type=JSON)


async def download(request: Request) -> Response:
    """All rows with their answers, as CSV."""
    table, given, desk = _table(request), _body(request, ("utility",)), desk_of(request)

    def begun() -> tuple[Iterator[bytes], bytes]:
        parts = csv_parts(table, decided(table, given.get("utility")))
        return parts, next(parts, b"")

    return _Parts(desk, *await desk.in_thread(begun))


_AT = "/page/tables/{id}"
ROUTES = [
    Route("/page/tables", store, methods=["POST"]),
    Route(_AT, describe, methods=["GET"]),
    Route(_AT, remove, methods=["DELETE"]),
    Route(f"{_AT}/summary", summarise, methods=["POST"]),
    Route(f"{_AT}/rows", rows, methods=["POST"]),
    Route(f"{_AT}/download", download, methods=["POST"]),
]


class _Parts(Response):
    """A CSV file that is written while it is sent."""

    def __init__(self, desk: Desk, parts: Iterator[bytes], first: bytes) -> None:
        super().__init__(media_type=CSV, headers={"content-disposition": 'attachment; filename="predictions.csv"'})
        del self.headers["content-length"]
        self.desk, self.parts, self.first = desk, parts, first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        part = self.first
        while part:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await self.desk.in_thread(next, self.parts, b"")
        await send({"type": "http.response.body", "body": b""})


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=JSON)


def _body(request: Request, known: tuple[str, ...]) -> dict[str, Any]:
    """The object in the body."""
    value = json_value(body_of(request.scope))
    if not isinstance(value, dict):
        raise Refusal(f"The body must be an object with some of {', '.join(known)}.")
    unknown = [name for name in value if name not in known]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} is unknown here: use {', '.join(known)}.")
    return value


def _table(request: Request) -> StoredTable:
    """The table that the address names; `model` and `version` may say of which model it should be."""
    query = options_of(request, ("model", "version"))
    table = desk_of(request).tables.get(request.path_params["id"])
    for name in query:
        if query[name] != table.about[name]:
            raise Refusal(
                f"The answers of this table are those of {name} {table.about[name]!r}, not of {query[name][:100]!r}: "
                "send the rows again to have them answered by another one.",
                status=409,
            )
    return table


def _intervals(desk: Desk, table: StoredTable) -> Further | None:
    """What computes the intervals of some rows where a large table has none, as long as its model is served."""
    model = desk.shelf.models.get(table.about["model"], {}).get(table.about["version"])
    if model is None or "lower" in table.answers or "lower" not in model.answers:
        return None

    def found(rows: pa.Table) -> Mapping[str, np.ndarray]:
        used = {column.name: rows.column(column.name).combine_chunks() for column in model.columns}
        want = Asked(INTERVALS, table.about["level"], accept_new=True)
        return model.answer(SentRows(used, rows.num_rows, listed=False), want).values

    return found


def _described(table: StoredTable) -> dict[str, Any]:
    return {name: table.about[name] for name in _TOLD}


# Storing


def _stored(
    desk: Desk, model: ServedModel, body: bytes, kind: str, query: dict[str, str], abandoned: threading.Event
) -> tuple[StoredTable, Answers]:
    """Read a table, answer its rows and keep both; the answers are those that are counted."""
    leaves = query.get("new_columns", "refuse")
    if leaves not in ("refuse", "leave"):
        raise Refusal(f"new_columns is {leaves[:50]!r}: it must be 'refuse' or 'leave'.")
    model = _with_truth(model, query.get("truth"))
    possible = [name for name in model.answers if name not in DECIDED]
    want = asked(possible, query.get("level"), None, query.get("new_levels"), possible=possible)
    sent = read_table(body, kind, model, desk.limits.bounds)
    if sent.num_rows > MOST_WITH_INTERVALS:
        want = replace(want, answers=tuple(name for name in want.answers if name not in INTERVALS))
    desk.limits.bounds.require(sent.num_rows, sent.num_columns)
    if not sent.num_rows:
        raise Refusal("There are no rows.")
    rows, left_out, truth = _parted(sent, model, required=query.get("truth"), leave=leaves == "leave")
    return _kept(desk, model, sent, rows, want, left_out, truth, abandoned)


def _with_truth(model: ServedModel, name: str | None) -> ServedModel:
    """The model with this column as its target, if one is named."""
    if name is None:
        return model
    if name in {column.name for column in model.columns}:
        raise Refusal(
            f"Column {name[:100]!r} is one that the model reads: it cannot hold the true classes.", column=name
        )
    return replace(model, target=name)


def _parted(
    sent: pa.Table, model: ServedModel, *, required: str | None, leave: bool
) -> tuple[SentRows, list[str], np.ndarray | None]:
    """The rows for the model, the columns that it does not read, and codes of the true classes if they are there."""
    names = sent.column_names
    if required is not None and required not in names:
        raise Refusal(f"There is no column {required[:100]!r}, which truth names.", column=required)
    read = {column.name for column in model.columns}
    left_out = [name for name in names if name not in read and name != model.target]
    ignored = model.ignored | {model.target} if model.target is not None else model.ignored
    try:
        rows = of_table(sent, model.columns, ignored | frozenset(left_out) if leave else ignored)
    except Refusal as refusal:
        if refusal.column in left_out:  # unknown, or there twice, which leaving out does not mend
            is_twice = names.count(refusal.column) > 1
            refusal.remedy = None if is_twice else {"new_columns": "leave"}
        raise
    if model.target is None or model.target not in names:
        return rows, left_out, None
    return rows, left_out, _codes(sent.column(model.target), model)


def _codes(column: pa.ChunkedArray, model: ServedModel) -> np.ndarray:
    """Codes of the true classes, -1 where they are missing; a label that is not a class is refused with its row."""
    name = model.target
    coded = column.combine_chunks()
    try:
        coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    except pa.ArrowException:
        raise Refusal(f"Column {name!r} holds {column.type}: it must hold classes.", column=name) from None
    places = np.asarray(coded.indices.fill_null(-1)).astype(np.int32)
    labels = coded.dictionary.to_pylist()
    known = {label: code for code, label in enumerate(model.classes)}
    is_missing = [label is None or label != label for label in labels]
    spelled = as_classes([label for label, gone in zip(labels, is_missing, strict=True) if not gone], model.classes)
    present = iter(spelled.tolist())
    codes = np.array([-1 if gone else known.get(next(present), -2) for gone in is_missing] + [-1], dtype=np.int32)
    found = codes[places]
    wrong = np.flatnonzero(found == -2)
    if len(wrong):
        row = int(wrong[0])
        raise Refusal(
            f"Row {row + 1}: column {name!r} holds {labels[places[row]]!r}, which is not a class of the model: the "
            f"classes are {first_names(model.classes, 10)}; leave the value out where the class is not known.",
            row=row + 1,
            column=name,
        )
    return found


def _kept(
    desk: Desk,
    model: ServedModel,
    sent: pa.Table,
    rows: SentRows,
    want: Asked,
    left_out: list[str],
    truth: np.ndarray | None,
    abandoned: threading.Event,
) -> tuple[StoredTable, Answers]:
    """Answer rows part by part, and keep the table."""
    K = len(model.classes)
    n_bytes = sent.nbytes + rows.n_rows * 8 * (4 + K * len([name for name in want.answers if name != "class"]))
    warnings: dict[str, None] = {}
    with desk.tables.writing(rows.n_rows, n_bytes) as draft:
        draft.write_rows(sent)
        for part in model.pieces(rows, want):
            if abandoned.is_set():
                raise Refusal("Nobody waits for the table any more.", status=504)
            warnings |= dict.fromkeys(part.warnings)
            draft.append(part.values | {"class": part.values["class"].astype(np.int32)})
        if truth is not None:
            draft.append({"truth": truth})
        about = {
            "model": model.name,
            "version": model.version,
            "classes": model.classes,
            "columns": sent.column_names,
            "left_out": left_out,
            "truth": None if truth is None else model.target,
            "labelled": 0 if truth is None else int((truth >= 0).sum()),
            "level": want.level,
            "answers": list(want.answers),
            "warnings": list(warnings),
        }
        table = desk.tables.keep(draft, about, facts(draft.table(about)))
    told: dict[str, np.ndarray] = {name: table.answers[name] for name in want.answers if name in _COUNTED}
    return table, Answers(told, model.classes, [])
