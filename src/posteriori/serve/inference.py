"""The Open Inference Protocol over REST, version 2, with its binary extension: what KServe and Triton's clients speak.

Each column of a model is a tensor, and so is each answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import posteriori
from posteriori.parameters import first_names
from posteriori.serve.answers import BY_ACTION, BY_CLASS, Answers, Asked, asked
from posteriori.serve.bodies import JSON, Bounds, json_of_python
from posteriori.serve.desk import LARGE_BODY, MANY_ROWS, desk_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import body_of
from posteriori.serve.options import utility_of_text
from posteriori.serve.rows import SentRows, of_lists
from posteriori.serve.served_model import ServedModel
from posteriori.serve.tensors import CONTENT_TYPES, ReadTensor, datatype_of, read_tensors, written

__all__ = ["ROUTES"]

_EXTENSIONS = ["binary_tensor_data", "parameters"]
_JSON_LENGTH = "inference-header-content-length"
_FIELDS = frozenset({"id", "inputs", "outputs", "parameters", "model_name", "model_version"})
_PARAMETERS = ("level", "utility", "new_levels", "binary_data_output")
_UNREAD = ("content_type", "headers")
"""Parameters that MLServer's clients send, of which nothing depends: tensors say themselves how they are read."""
_DATATYPES = {"boolean": "BOOL", "number": "FP64", "duration": "FP64"}
"""Datatypes of kinds of columns; all others are text."""


class _Inference(NamedTuple):
    """A request that was read; `wanted` are the answers and whether each is binary."""

    rows: SentRows
    asked: Asked
    wanted: dict[str, bool]
    id: str | None


async def infer(request: Request) -> Response:
    """Answer rows."""
    desk = desk_of(request)
    model = _model(request)
    body = body_of(request.scope)
    if len(body) > LARGE_BODY:
        call = await desk.in_thread(_read, body, request, model)
    else:
        call = _read(body, request, model)
    answers = await desk.answer(model, call.rows, call.asked, request.scope)
    if answers.n_rows > MANY_ROWS:
        return await desk.in_thread(_response, model, answers, call)
    return _response(model, answers, call)


async def server(request: Request) -> Response:
    """Say what the server is, and what it can do beyond the protocol."""
    return _json({"name": "posteriori", "version": posteriori.__version__, "extensions": _EXTENSIONS})


async def live(request: Request) -> Response:
    """Say that the server lives."""
    return _json({"live": True})


async def ready(request: Request) -> Response:
    """Say whether the server takes requests."""
    is_ready = desk_of(request).is_ready
    return _json({"ready": is_ready}, 200 if is_ready else 503)


async def model_ready(request: Request) -> Response:
    """Say whether a model takes requests."""
    model, is_ready = _model(request), desk_of(request).is_ready
    return _json({"name": model.name, "ready": is_ready}, 200 if is_ready else 503)


async def metadata(request: Request) -> Response:
    """Describe a model: the tensors that it takes, and those that it answers."""
    model = _model(request)
    return _json(
        {
            "name": model.name,
            "versions": list(desk_of(request).shelf.models[model.name]),
            "platform": "posteriori",
            "inputs": _inputs(model),
            "outputs": [_output(name, model) for name in model.answers],
        }
    )


_MODEL = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
ROUTES = [
    *(Route(f"{model}/infer", infer, methods=["POST"]) for model in _MODEL),
    *(Route(model, metadata, methods=["GET"]) for model in _MODEL),
    *(Route(f"{model}/ready", model_ready, methods=["GET"]) for model in _MODEL),
    Route("/v2/health/live", live, methods=["GET"]),
    Route("/v2/health/ready", ready, methods=["GET"]),
    Route("/v2", server, methods=["GET"]),
]


def _model(request: Request) -> ServedModel:
    return desk_of(request).shelf.get(request.path_params["name"], request.path_params.get("version"))


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type=JSON)


def _inputs(model: ServedModel) -> list[dict[str, Any]]:
    if model.is_unnamed:
        return [{"name": "rows", "datatype": "FP64", "shape": [-1, len(model.columns)]}]
    return [
        {"name": column.name, "datatype": _DATATYPES.get(column.kind, "BYTES"), "shape": [-1]}
        for column in model.columns
    ]


def _output(name: str, model: ServedModel) -> dict[str, Any]:
    actions = [] if model.utility is None else model.utility.actions.tolist()
    about: dict[str, Any] = {"name": name, "datatype": datatype_of(name, model.classes, actions), "shape": [-1]}
    if name in (*BY_CLASS, *BY_ACTION):
        labels = actions if name in BY_ACTION else model.classes
        about |= {"shape": [-1, len(labels)], "parameters": {"labels": orjson.dumps(labels).decode()}}
    return about


def _read(body: bytes, request: Request, model: ServedModel) -> _Inference:
    """Rows, what is asked about them, and how the answers are to be written."""
    value, binary = _parts(body, request.headers.get(_JSON_LENGTH))
    if type(value) is not dict:
        raise Refusal('The body must be an object with "inputs", a list of tensors.')
    if not value.keys() <= _FIELDS:
        unknown = next(name for name in value if name not in _FIELDS)
        raise Refusal(f"{unknown[:50]!r} in the body is unknown: use {first_names(sorted(_FIELDS))}.")
    if value.get("model_name") not in (None, model.name):
        raise Refusal(f"model_name in the body is {value['model_name']!r:.80}, and the address names {model.name!r}.")
    id_ = value.get("id")
    if id_ is not None and type(id_) is not str:
        raise Refusal(f"id must be text, got {id_!r:.80}.")
    options, all_binary = _options(value.get("parameters"))
    wanted = _wanted(value.get("outputs"), all_binary)
    names = list(wanted) if wanted else None
    chosen = asked(names, **options, possible=model.answers)
    rows = _rows(value.get("inputs"), binary, model, desk_of(request).limits.bounds)
    return _Inference(rows, chosen, wanted or dict.fromkeys(chosen.answers, all_binary), id_)


def _parts(body: bytes, length: str | None) -> tuple[Any, bytes]:
    """The JSON of a body, and the bytes that follow it."""
    if length is None:
        return json_of_python(body), b""
    if not (length.isascii() and length.isdigit()) or int(length) > len(body):
        raise Refusal(
            f"Inference-Header-Content-Length is {length!r:.30}: the number of bytes of JSON is needed, of the "
            f"{len(body)} of the body."
        )
    return json_of_python(body[: int(length)]), body[int(length) :]


def _options(given: Any) -> tuple[dict[str, Any], bool]:
    """The options of `asked` among the parameters of a request, and whether answers are binary unless they say so."""
    if not given:
        return {}, False
    if type(given) is not dict:
        raise Refusal("parameters must be an object.")
    said = {name: value for name, value in given.items() if value is not None and name not in _UNREAD}
    unknown = [name for name in said if name not in _PARAMETERS]
    if unknown:
        raise Refusal(f"The parameter {unknown[0][:50]!r} is unknown: use {first_names(_PARAMETERS)}.")
    content_type = given.get("content_type")
    if content_type is not None and content_type not in CONTENT_TYPES:
        raise Refusal(
            f"content_type is {content_type!r:.80}, which is not read here: use {first_names(CONTENT_TYPES)}."
        )
    if type(said.get("utility")) is str:
        said["utility"] = utility_of_text(said["utility"])
    all_binary = said.pop("binary_data_output", False)
    if type(all_binary) is not bool:
        raise Refusal(f"binary_data_output must be true or false, got {all_binary!r:.80}.")
    return said, all_binary


def _wanted(given: Any, all_binary: bool) -> dict[str, bool]:
    """The names of the answers that are wanted, and whether each is to be binary."""
    if not given:
        return {}
    if type(given) is not list or not all(type(one) is dict and type(one.get("name")) is str for one in given):
        raise Refusal("outputs must be a list of objects, each with the name of an answer.")
    found = {}
    for one in given:
        parameters = one.get("parameters") or {}
        if type(parameters) is not dict:
            raise Refusal(f"parameters of output {one['name'][:50]!r} must be an object.")
        unknown = [name for name in parameters if name != "binary_data" and name not in _UNREAD]
        if unknown:
            raise Refusal(
                f"Output {one['name'][:50]!r} has the parameter {unknown[0][:50]!r}: 'binary_data' alone is known."
            )
        is_binary = parameters.get("binary_data", all_binary)
        if type(is_binary) is not bool:
            raise Refusal(f"binary_data of output {one['name'][:50]!r} must be true or false, got {is_binary!r:.80}.")
        found[one["name"]] = is_binary
    return found


def _rows(given: Any, binary: bytes, model: ServedModel, bounds: Bounds) -> SentRows:
    """Rows from one tensor for each column, or from one that holds a matrix for a model that takes it."""
    tensors = read_tensors(given, binary, bounds)
    if model.is_unnamed and len(tensors) == 1 and tensors[0].name not in (column.name for column in model.columns):
        return _matrix(tensors[0], model)
    lists: dict[str, list[Any]] = {}
    for tensor in tensors:
        if not tensor.is_column:
            raise Refusal(
                f"Tensor {tensor.name!r} has shape {tensor.shape}: one tensor for each column is needed, of shape "
                f"[n] or [n, 1], named {first_names([column.name for column in model.columns], 20)}.",
                column=tensor.name,
            )
        if tensor.name in lists:
            raise Refusal(f"Several tensors are called {tensor.name!r}: give each its own name.", column=tensor.name)
        lists[tensor.name] = tensor.values
    return of_lists(lists, model.columns, model.ignored)


def _matrix(tensor: ReadTensor, model: ServedModel) -> SentRows:
    width = tensor.shape[1] if len(tensor.shape) == 2 else 1
    if width != len(model.columns):
        raise Refusal(f"Tensor {tensor.name!r} has {width} columns, and the model has {len(model.columns)}.")
    lists = {column.name: tensor.values[d::width] for d, column in enumerate(model.columns)}
    return of_lists(lists, model.columns, model.ignored)


def _response(model: ServedModel, answers: Answers, call: _Inference) -> Response:
    outputs, binary = written(answers, call.wanted)
    said: dict[str, Any] = {"model_name": model.name, "model_version": model.version, "outputs": outputs}
    if call.id is not None:
        said["id"] = call.id
    if answers.warnings:
        said["parameters"] = {"warnings": "\n".join(answers.warnings)}
    content = orjson.dumps(said)
    if not binary:
        return Response(content, media_type=JSON)
    headers = {_JSON_LENGTH: str(len(content))}
    return Response(b"".join((content, *binary)), headers=headers, media_type="application/octet-stream")
