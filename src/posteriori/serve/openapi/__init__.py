"""The addresses of the server in the words of OpenAPI 3.1, made from the models that it serves.

Each protocol describes its own paths by a function of the models; here they become one document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import posteriori
from posteriori.serve.bodies import JSON
from posteriori.serve.desk import desk_of
from posteriori.serve.openapi import inference, operation, page, plain, scoring
from posteriori.serve.openapi.schemas import Described, refusals, shared_responses, shared_schemas
from posteriori.serve.served_model import ServedModel

__all__ = ["document", "routes"]

_PROTOCOLS: tuple[Callable[[Sequence[ServedModel]], Described], ...] = (
    plain.described,
    inference.described,
    scoring.described,
    page.described,
    operation.described,
)
_TAGS = {
    "plain": "Rows in, answers out, as JSON, CSV, Arrow or Parquet.",
    "Open Inference Protocol": "Tensors in, tensors out, as KServe, Triton and MLServer speak.",
    "MLflow": "What MLflow's scoring server takes and answers.",
    "page": "What the page at / asks.",
    "operation": "For those who run the server.",
}


def document(models: Sequence[ServedModel], *, address: str = "/", token: bool = False) -> dict[str, Any]:
    """The document, as a value of JSON.

    Parameters
    ----------
    models : list of ServedModel
    address : str
        The path at which the application is mounted.
    token : bool
        Whether requests must carry one.
    """
    protocols = [describe(models) for describe in _PROTOCOLS]
    paths = {path: operations for protocol in protocols for path, operations in protocol.paths.items()}
    schemas = {name: schema for protocol in protocols for name, schema in protocol.schemas.items()}
    served = ", ".join(f"{model.name} ({type(model.classifier).__name__})" for model in models)
    used = {tag for operations in paths.values() for one in operations.values() for tag in one.get("tags", ())}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "posteriori",
            "version": posteriori.__version__,
            "description": f"Class probabilities and decisions by {served}.",
        },
        "servers": [{"url": address or "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items() if name in used],
        "paths": {path: _with_shared(operations, token=token) for path, operations in paths.items()},
        "components": {"schemas": shared_schemas() | schemas, "responses": shared_responses()},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _with_shared(path: dict[str, Any], *, token: bool) -> dict[str, Any]:
    """A path with the refusals that the guard may answer to each of its operations."""

    def complete(method: str, one: dict[str, Any]) -> dict[str, Any]:
        shared = [421, 500, 504, *([401] if token and one.get("security") != [] else [])]
        shared += [403, 408, 413, 503] if method != "get" else []
        return one | {"responses": one["responses"] | _missing(one["responses"], shared)}

    return {method: complete(method, one) for method, one in path.items()}


def _missing(known: dict[str, Any], statuses: Sequence[int]) -> dict[str, Any]:
    return {status: response for status, response in refusals(*statuses).items() if status not in known}


def routes(*, token: bool) -> list[Route]:
    """The route of the document; `token` is whether requests must carry one."""

    async def openapi(request: Request) -> Response:
        desk, address = desk_of(request), request.scope.get("root_path", "")

        def write() -> bytes:
            return orjson.dumps(document(desk.shelf.latest(), address=address, token=token))

        return Response(await desk.in_thread(write), media_type=JSON)

    return [Route("/openapi.json", openapi, methods=["GET"])]
