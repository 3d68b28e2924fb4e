"""One task per column, on threads where rows are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from posteriori.threads import run_tasks, usable_threads

__all__ = ["per_column"]

_ROWS_WORTH_THREADS = 10_000

T = TypeVar("T")


def per_column(task: Callable[[T], Any], columns: Sequence[T], n_rows: int) -> list[Any]:
    """The result of the task for each column, or the ValueError or TypeError that it raised.

    Errors are given back so that which of them is reported does not depend on which thread came first.

    Examples
    --------
    >>> per_column(float, ["1", "one"], n_rows=1)
    [1.0, ValueError("could not convert string to float: 'one'")]
    """

    def attempt(i: int) -> Any:
        try:
            return task(columns[i])
        except (ValueError, TypeError) as error:
            return error

    return run_tasks(attempt, len(columns), usable_threads(None) if n_rows >= _ROWS_WORTH_THREADS else 1)
