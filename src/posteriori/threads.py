"""Two threads of ours, not four that fight: a pool over blocks while BLAS keeps to one thread.

NumPy and SciPy each carry an OpenBLAS with threads of its own that spin for a while after every call. Alternating
between the two on few cores can cost ten times the work itself. While a fit or a prediction runs we therefore
limit every BLAS to one thread and spread *blocks of rows* over ours; the limits are restored afterwards.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any

import joblib
from threadpoolctl import LibController, ThreadpoolController

__all__ = ["SCIKIT_LEARN", "one_blas_thread", "one_openmp_thread", "run_stream", "run_tasks", "usable_threads"]

SCIKIT_LEARN = threading.Lock()
"""Held while scikit-learn fits something for us: its checks of arrays change Python's warning filters for a moment, and
two threads that do so at once may leave them changed."""


@cache
def _cores() -> int:
    return int(joblib.cpu_count())


def usable_threads(n_jobs: int | None) -> int:
    """How many threads to use: None means the usable cores, capped by OMP_NUM_THREADS; -1 all, -2 all but one."""
    cores = _cores()
    if n_jobs is None:
        limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
        return max(1, min(cores, int(limit))) if limit.isdigit() and int(limit) > 0 else cores
    if n_jobs == 0:
        raise ValueError("n_jobs is 0: give the number of threads, -1 for all cores, or None.")
    return max(1, n_jobs if n_jobs > 0 else cores + 1 + n_jobs)


@cache
def _blas_libraries() -> list[LibController]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


def _limit(library: LibController, n_threads: int) -> None:
    # threadpoolctl >= 3.7 lets only one thread at a time change the limit of OpenBLAS and ignores all others
    # silently; here the last to leave may be another thread than the first to enter
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


_lock = threading.Lock()
_holders = 0
_restore: list[tuple[LibController, int]] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; the first to enter saves the old limits, the last to leave restores them."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _restore[:] = [(library, library.num_threads) for library in _blas_libraries()]
            for library, _ in _restore:
                _limit(library, 1)
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                for library, n_threads in _restore:
                    _limit(library, n_threads)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_openmp_thread() -> Iterator[None]:
    """Limit OpenMP to one thread for the caller: sums of scikit-learn then do not hang on the number of threads."""
    with _controller().limit(limits=1, user_api="openmp"):
        yield


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    # keyed by the process: threads do not survive a fork
    return ThreadPoolExecutor(max_workers=max(1, _cores() - 1), thread_name_prefix="posteriori")


def run_tasks(task: Callable[[int], Any], n_tasks: int, n_threads: int) -> list[Any]:
    """[task(0), ..., task(n_tasks - 1)], shared between the caller and helpers from the pool."""
    n_helpers = min(n_threads, n_tasks) - 1
    if n_helpers <= 0:
        return [task(i) for i in range(n_tasks)]
    results: list[Any] = [None] * n_tasks
    ticket = itertools.count()  # next() is atomic: each task is taken once
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set() and (i := next(ticket)) < n_tasks:
            results[i] = task(i)

    _share(work, n_helpers, stopped)
    return results


def run_stream(task: Callable[[int, Any], Any], items: Iterator[Any], n_threads: int) -> None:
    """task(0, first item), task(1, second), ..., by the caller and helpers; each takes the next when it is free."""
    taking = threading.Lock()
    numbers = itertools.count()
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            with taking:
                try:
                    item = next(items)
                except BaseException as end:  # none is left, or none can be had: nobody need ask again
                    stopped.set()
                    if isinstance(end, StopIteration):
                        return
                    raise
                i = next(numbers)
            try:
                task(i, item)
            except BaseException:
                stopped.set()
                raise

    _share(work, n_threads - 1, stopped)


def _share(work: Callable[[], None], n_helpers: int, stopped: threading.Event) -> None:
    """Work together with helpers from the pool, who see the caller's context; the first of their errors is raised.

    NumPy's settings for overflow are part of that context.
    """
    # a helper that is cancelled stays in the pool's queue until a thread is free: it must not keep the work, and with
    # it the rows, in memory
    held = [work]

    def help_with_it() -> None:
        for shared in held[:1]:
            shared()

    helpers: list[Future[None]] = [
        _pool(os.getpid()).submit(copy_context().run, help_with_it) for _ in range(n_helpers)
    ]
    try:
        work()
    finally:  # also when interrupted: no helper may still be writing when we return
        stopped.set()
        held.clear()
        for helper in helpers:
            helper.cancel()
        errors = [helper.exception() for helper in helpers if not helper.cancelled()]
    for error in errors:
        if error is not None:
            raise error
