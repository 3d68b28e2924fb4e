"""Rows of requests that wait at the same time are predicted together.

One call of a model costs much, one more row in it little.

What arrives while the event loop is busy is one batch. Answers are the same as alone, as a row's prediction does not
depend on its batch; where a batch is refused, its halves are tried, down to the request that is wrong.
"""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from posteriori.serve.answers import Answers, Asked
from posteriori.serve.rows import SentRows, joined
from posteriori.serve.served_model import ServedModel

__all__ = ["Batcher"]

_MOST_TOGETHER = 1024
_SHORT = 0.008
"""Seconds for which the event loop may stand still; what takes longer goes to a thread."""
_FEW_ROWS = 256
"""Requests of more rows are answered alone."""


class _Waiting(NamedTuple):
    rows: SentRows
    answer: asyncio.Future[Answers]


@dataclass
class Batcher:
    """Answers requests, several of them by one prediction.

    Parameters
    ----------
    executor : Executor
        Takes predictions that last longer than the event loop may stand still.
    """

    executor: Executor
    _waiting: dict[tuple[int, Asked], tuple[ServedModel, Asked, list[_Waiting]]] = field(default_factory=dict)
    _pace: dict[tuple[int, tuple[str, ...]], float] = field(default_factory=dict)
    """Seconds that a row took lately, by model and answers; as long as it is not known, predictions go to a thread."""

    async def answer(self, model: ServedModel, rows: SentRows, asked: Asked) -> Answers:
        """The answers to one request."""
        if rows.n_rows > _FEW_ROWS or not rows.listed:
            return await asyncio.get_running_loop().run_in_executor(self.executor, model.answer, rows, asked)
        loop = asyncio.get_running_loop()
        key = (id(model), asked)
        if key not in self._waiting:
            self._waiting[key] = (model, asked, [])
            loop.call_soon(self._flush, key)
        waiting = self._waiting[key][2]
        future: asyncio.Future[Answers] = loop.create_future()
        waiting.append(_Waiting(rows, future))
        if len(waiting) >= _MOST_TOGETHER:
            self._flush(key)
        return await future

    def _flush(self, key: tuple[int, Asked]) -> None:
        """Predict all that waits for the same answers of the same model."""
        found = self._waiting.pop(key, None)
        if found is None:
            return
        model, asked, waiting = found
        n_rows = sum(one.rows.n_rows for one in waiting)
        if self._pace.get((key[0], asked.answers), math.inf) * n_rows <= _SHORT:
            self._tell(waiting, self._predict(model, asked, [one.rows for one in waiting]))
            return
        loop = asyncio.get_running_loop()
        task = loop.run_in_executor(self.executor, self._predict, model, asked, [one.rows for one in waiting])
        task.add_done_callback(lambda done: self._tell(waiting, done.result()))

    def _predict(self, model: ServedModel, asked: Asked, several: list[SentRows]) -> list[Answers | Exception]:
        """Answers to several requests, or the errors of those that are refused."""
        start = time.perf_counter()
        try:
            together = model.answer(joined(several), asked)
        except Exception as error:  # the fault of one request must not be that of others
            return [error] if len(several) == 1 else self._in_halves(model, asked, several)
        self._pace[id(model), asked.answers] = (time.perf_counter() - start) / together.n_rows
        if len(several) == 1:
            return [together]
        if together.warnings:  # which name rows and values: each request hears of its own alone
            return self._in_halves(model, asked, several)
        ends = [0]
        for rows in several:
            ends.append(ends[-1] + rows.n_rows)
        return [together.part(start, stop) for start, stop in pairwise(ends)]

    def _in_halves(self, model: ServedModel, asked: Asked, several: list[SentRows]) -> list[Answers | Exception]:
        """Answers to several requests, of which one or more must be answered alone."""
        middle = len(several) // 2
        return self._predict(model, asked, several[:middle]) + self._predict(model, asked, several[middle:])

    def _tell(self, waiting: list[_Waiting], found: list[Answers | Exception]) -> None:
        for one, answer in zip(waiting, found, strict=True):
            if one.answer.done():  # the client has gone
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
