"""Rows that wait together: what a slow model, or a wrong row, does to others."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.serve.asgi import run
from tests.serve.test_plain import GOOD

from posteriori.serve.answers import Asked
from posteriori.serve.batcher import Batcher
from posteriori.serve.errors import Refusal
from posteriori.serve.rows import SentRows, of_records
from posteriori.serve.served_model import ServedModel, served


@pytest.fixture
def birds(model: Any) -> ServedModel:
    return served("birds", "1", model)


def rows_of(model: ServedModel, n: int = 1, **change: Any) -> SentRows:
    return of_records([GOOD | change] * n, model.columns, model.ignored)


def test_a_model_of_which_no_pace_is_known_does_not_stop_the_event_loop(
    birds: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    answer = ServedModel.answer

    def slow(model: ServedModel, rows: SentRows, asked: Asked) -> Any:
        threads.append(threading.current_thread())
        time.sleep(0.3)
        return answer(model, rows, asked)

    monkeypatch.setattr(ServedModel, "answer", slow)

    async def main() -> float:
        with ThreadPoolExecutor(2) as executor:
            task = asyncio.create_task(Batcher(executor).answer(birds, rows_of(birds, 200), Asked()))
            longest, before = 0.0, time.perf_counter()
            while not task.done():
                await asyncio.sleep(0.001)
                longest, before = max(longest, time.perf_counter() - before), time.perf_counter()
            assert task.result().n_rows == 200
            return longest

    assert run(main()) < 0.2
    assert threading.main_thread() not in threads


def test_one_wrong_row_among_many_requests_costs_few_predictions(
    birds: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    answer = ServedModel.answer
    monkeypatch.setattr(
        ServedModel, "answer", lambda model, rows, asked: calls.append(rows.n_rows) or answer(model, rows, asked)
    )

    async def main() -> list[Any]:
        with ThreadPoolExecutor(2) as executor:
            batcher = Batcher(executor)
            several = [rows_of(birds, bill_length_mm=30.0 + i) for i in range(128)]
            several[77] = rows_of(birds, island="Nowhere")
            return await asyncio.gather(
                *(batcher.answer(birds, rows, Asked()) for rows in several), return_exceptions=True
            )

    found = run(main())
    assert isinstance(found[77], Refusal)
    alone = [birds.answer(rows_of(birds, bill_length_mm=30.0 + i), Asked()).values["proba"] for i in range(128)]
    for i in (0, 76, 78, 127):
        np.testing.assert_allclose(found[i].values["proba"], alone[i], rtol=1e-12)
    assert len(calls) - 128 <= 2 * 7 + 1  # halves of halves
