"""Runs by turns in this process, each after a rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any, TypeVar

from benchmarks.worker import SETTLE

T = TypeVar("T")


@contextmanager
def quiet() -> Iterator[None]:
    """Whatever libraries warn of is found in the numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Rest, call, and return the seconds and the value."""
    sleep(SETTLE)
    start = perf_counter()
    value = function()
    return perf_counter() - start, value


def ordered(names: list[Any], turn: int) -> list[Any]:
    """Return the names forwards in even turns, backwards in odd ones: nobody always comes first."""
    return names[::-1] if turn % 2 else names


def by_turns(functions: dict[Any, Callable[[], object]], repeats: int) -> dict[Any, list[float]]:
    """Call the functions by turns; return the seconds of each call."""
    times: dict[Any, list[float]] = {name: [] for name in functions}
    for turn in range(repeats):
        for name in ordered(list(functions), turn):
            times[name].append(timed(functions[name])[0])
    return times
