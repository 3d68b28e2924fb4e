"""The page for people: HTML, modules and styles, which hold nothing of a model, and what they ask of the server."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posteriori.serve import curve, page_tables
from posteriori.serve.errors import Refusal

__all__ = ["ROUTES"]

_FOLDERS = (("posteriori.serve", "page"), ("posteriori.reports", "page"))
"""Packages and folders with the files of the page; those of the first come first."""
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


async def index(request: Request) -> Response:
    """The page."""
    return _sent(request, files("posteriori.serve").joinpath("page", "index.html"), "text/html")


async def static(request: Request) -> Response:
    """A module or a style of the page."""
    name = request.path_params["name"]
    if name not in _names():
        raise Refusal("There is nothing at this address.", status=404)
    return _sent(request, _names()[name], _KINDS[name[name.rindex(".") :]])


ROUTES = [
    Route("/", index, methods=["GET"]),
    Route("/static/{name}", static, methods=["GET"]),
    *curve.ROUTES,
    *page_tables.ROUTES,
]


@cache
def _names() -> dict[str, Traversable]:
    """The files that are served, by name: no request leads to another."""
    found: dict[str, Traversable] = {}
    for package, folder in _FOLDERS:
        for file in files(package).joinpath(folder).iterdir():
            if file.name.endswith(tuple(_KINDS)):
                found.setdefault(file.name, file)
    return found


def _sent(request: Request, file: Traversable, kind: str) -> Response:
    """A file, or word that the browser has it already."""
    content = file.read_bytes()
    headers = {"etag": f'"{sha256(content).hexdigest()[:32]}"', "cache-control": "no-cache"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if headers["etag"] in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)
