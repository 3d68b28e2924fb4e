"""The ASGI application: models on a shelf, a desk where requests are answered, and a guard at the door."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from posteriori.decision.utility import Utility
from posteriori.serve import inference, openapi, page, plain, scoring
from posteriori.serve.batcher import Batcher
from posteriori.serve.desk import Desk, desk_of
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import LOOPBACK, Access, Guard, Limits
from posteriori.serve.metrics import Metrics
from posteriori.serve.private_folder import private_folder
from posteriori.serve.served_model import served
from posteriori.serve.shelf import Shelf, model_files

__all__ = ["Application", "app"]

_SECONDS_BETWEEN_LOOKS = 1.0


def app(
    models: Any,
    *,
    utility: Utility | None = None,
    token: str | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] | None = LOOPBACK,
    origins: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    watch: bool = True,
) -> Application:
    """Make an ASGI application that answers for fitted models, to be run by any ASGI server or mounted in another.

    Parameters
    ----------
    models : path, fitted model, list of paths, or dict of names to paths or fitted models
        Paths may be written as NAME=FILE or NAME@VERSION=FILE.
    utility : Utility, optional
        What decisions are taken by, unless a request brings its own; in place of that of a UtilityClassifier.
    token : str, optional
        What requests must carry as ``Authorization: Bearer TOKEN``.
    limits : Limits, optional
        Sizes and times that are refused beyond.
    hosts : list of str, or None
        Names by which the application may be called; None takes any, as behind a proxy that checks them.
    origins : list of str
        Other sites whose pages may ask.
    folder : path, optional
        A private folder for tables of the page; a temporary one if left out.
    watch : bool, default True
        Whether a file that changes is loaded again.

    Returns
    -------
    ASGI application

    Examples
    --------
    >>> from posteriori.serve import app
    >>> application = app("penguins.model")  # doctest: +SKIP
    """
    limits = limits or Limits()
    shelf = _shelf(models, utility)
    own = ExitStack()
    room = own.enter_context(private_folder()) if folder is None else Path(folder)
    executor = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1), thread_name_prefix="posteriori-serve")
    metrics = Metrics(None if folder is None else room)
    shelf.told = metrics.reload
    desk = Desk(shelf, Batcher(executor), metrics, limits, executor, room)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(_watch(desk)) if watch and shelf.files else None
        try:
            yield
        finally:
            desk.ending.set()
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            metrics.write()
            executor.shutdown(wait=True)

    described = openapi.routes(token=token is not None)
    routes = (*plain.ROUTES, *inference.ROUTES, *scoring.ROUTES, *page.ROUTES, *described, *_ROUTES)
    router = Router(routes, default=_not_found, lifespan=lifespan, redirect_slashes=False)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        scope["posteriori.desk"] = scope["app"] = desk
        await router(scope, receive, send)

    access = Access(token, None if hosts is None else tuple(host.lower() for host in hosts), tuple(origins))
    application = Application(desk, Guard(inner, access, limits, metrics), routes, lifespan)
    weakref.finalize(application, own.close)
    return application


@dataclass(frozen=True)
class Application:
    """An ASGI application for models.

    Attributes
    ----------
    desk : Desk
    guard : Guard
    routes : tuple of Route
        The addresses that it answers.
    lifespan : function of an application, that returns an asynchronous context manager
        What goes on while it serves: files are watched. A server runs it; where the application is mounted in another
        one, that has to.
    """

    desk: Desk
    guard: Guard
    routes: tuple[Route, ...]
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        await self.guard(scope, receive, send)

    def reload(self) -> None:
        """Load all files again, beside what is being served."""
        self.desk.executor.submit(self.desk.shelf.reload)

    def close(self) -> None:
        """Tell those who ask whether the server is ready that it is not; requests are still answered."""
        self.desk.ending.set()


def _shelf(models: Any, utility: Utility | None) -> Shelf:
    """The models that were given, loaded and tried."""
    shelf = Shelf(utility=utility)
    named = models if isinstance(models, Mapping) else None
    if named is not None:
        shelf.files = model_files([f"{name}={path}" for name, path in named.items() if _is_path(path)])
        for name, model in named.items():
            if not _is_path(model):
                _put(shelf, str(name), model)
    elif isinstance(models, Sequence) and not isinstance(models, str) and not hasattr(models, "predict_proba"):
        shelf.files = model_files([os.fspath(path) for path in models])
    elif _is_path(models):
        shelf.files = model_files([os.fspath(models)])
    else:
        _put(shelf, "model", models)
    shelf.load_all()
    if not shelf.models:
        raise ValueError("No model is given: name at least one.")
    return shelf


def _put(shelf: Shelf, name: str, model: Any) -> None:
    one = served(name, "1", model, shelf.utility)
    one.warm_up()
    shelf.put(one)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


async def _watch(desk: Desk) -> None:
    """Load files again when they have changed, and stay the same between two looks."""
    seen: dict[str, tuple[int, ...]] = {}
    while True:
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        changed = desk.shelf.changed()
        settled = [file for file in changed if seen.get(str(file.path)) == file.stamp()]
        seen = {str(file.path): file.stamp() for file in changed}
        if settled:
            await asyncio.get_running_loop().run_in_executor(desk.executor, desk.shelf.reload, settled)


async def _metrics(request: Request) -> Response:
    desk = desk_of(request)
    models = {(m.name, m.version): type(m.classifier).__name__ for m in desk.shelf.latest()}
    return PlainTextResponse(desk.metrics.text(models), media_type="text/plain; version=0.0.4")


async def _not_found(scope: Any, receive: Any, send: Any) -> None:
    raise Refusal("There is nothing at this address.", status=404)


_ROUTES = [Route("/metrics", _metrics, methods=["GET"])]
