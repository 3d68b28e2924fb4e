"""Where requests are answered, whatever the protocol: models, the rows that wait for them, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

from starlette.requests import Request

from posteriori.serve.answers import Answers, Asked
from posteriori.serve.batcher import Batcher
from posteriori.serve.errors import Refusal
from posteriori.serve.guard import Limits
from posteriori.serve.metrics import Metrics
from posteriori.serve.rows import SentRows
from posteriori.serve.served_model import ServedModel
from posteriori.serve.shelf import Shelf
from posteriori.serve.stored_tables import StoredTables

__all__ = ["LARGE_BODY", "MANY_ROWS", "Desk", "desk_of", "options_of"]

LARGE_BODY, MANY_ROWS = 1 << 18, 1_000
"""Bodies of more bytes are read in a thread, and answers to more rows written in one."""


@dataclass(frozen=True)
class Desk:
    """What the protocols share.

    Attributes
    ----------
    shelf : Shelf
    batcher : Batcher
    metrics : Metrics
    limits : Limits
    executor : ThreadPoolExecutor
        For what takes long.
    folder : Path
        A private folder for tables of the page, which all processes of the server share.
    ending : Event
        Set when the server begins to end: what has begun is still answered.
    """

    shelf: Shelf
    batcher: Batcher
    metrics: Metrics
    limits: Limits
    executor: ThreadPoolExecutor
    folder: Path
    ending: Event = field(default_factory=Event)

    @property
    def is_ready(self) -> bool:
        """Whether further requests may come: models are there, each tried with a row, and the server is not ending."""
        return bool(self.shelf.models) and not self.ending.is_set()

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function that takes long returns; the event loop goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)

    @cached_property
    def tables(self) -> StoredTables:
        """The tables of the page."""
        return StoredTables(self.folder / "tables")

    async def answer(
        self, model: ServedModel, rows: SentRows, asked: Asked, scope: MutableMapping[str, Any]
    ) -> Answers:
        """The answers to the rows of one request, counted."""
        self.limits.bounds.require(rows.n_rows, 0)
        answers = await self.batcher.answer(model, rows, asked)
        self.metrics.answered(model.name, answers)
        scope["posteriori.noted"] = {"model": model.name, "version": model.version, "rows": rows.n_rows}
        return answers


def desk_of(request: Request) -> Desk:
    """The desk to which a request came."""
    return request.scope["posteriori.desk"]


def options_of(request: Request, known: Sequence[str]) -> dict[str, Any]:
    """The options in the address, each once, and none that is not known."""
    found: dict[str, Any] = {}
    if not request.scope["query_string"]:
        return found
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise Refusal(f"{name[:50]!r} in the address is unknown: use {', '.join(known)}.")
        if name in found:
            raise Refusal(f"{name!r} is more than once in the address: once is enough.")
        found[name] = value
    return found
