"""A process that fits: it is killed when a fit takes too long, and begins with only the data in memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from types import TracebackType

import numpy as np
import scipy.sparse as sp

from benchmarks.adapters import Adapter
from benchmarks.measure import OVER_BUDGET, Measurement, measure
from benchmarks.problems import Data, synthetic

SETTLE = 0.1
"""Seconds of rest before a fit: BLAS threads of the work before it spin on for some 30 ms."""


@contextmanager
def stored(X: sp.csr_array | np.ndarray, y: np.ndarray) -> Iterator[Path]:
    """Keep a problem on disk, for workers to read, as long as the context lasts."""
    with TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder = Path(name)
        np.save(folder / "y.npy", y)
        if sp.issparse(X):
            sp.save_npz(folder / "X.npz", X, compressed=False)
        else:
            np.save(folder / "X.npy", X)
        yield folder


def read(folder: Path) -> Data:
    """Read what `stored` wrote."""
    path = folder / "X.npz"
    return (sp.load_npz(path) if path.exists() else np.load(folder / "X.npy")), np.load(folder / "y.npy")


def serve(connection: Connection, folder: Path) -> None:
    """Read the problem, say so, then fit every adapter that is sent and answer with its measurement."""
    X, y = read(folder)
    connection.send("ready")
    warm: set[type] = set()
    while True:
        adapter = connection.recv()
        try:
            if type(adapter) not in warm:
                # Imports and thread pools are neither the fit's time nor its memory.
                adapter.fit(*synthetic(60, 3, 3))
                warm.add(type(adapter))
            sleep(SETTLE)
            connection.send(measure(adapter, X, y))
        except Exception as error:  # a library that fails has a void run; the others go on
            message = f"{type(error).__name__}: {error}"[:200]
            connection.send(Measurement(seconds=float("nan"), info={"status": message}))


class Worker:
    """A child process on one stored problem, started when first needed and again after it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def fit(self, adapter: Adapter, limit: float) -> Measurement:
        """Fit and measure; after ``limit`` seconds kill the process and return a void measurement."""
        if self._process is None:
            self._start()
        start = perf_counter()
        self._connection.send(adapter)
        try:
            if self._connection.poll(limit):
                measured: Measurement = self._connection.recv()
                return measured
            status = OVER_BUDGET
        except EOFError:
            status = "process died"
        self._stop()
        return Measurement(seconds=perf_counter() - start, info={"status": status})

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._folder), daemon=True)
        self._process.start()
        theirs.close()
        self._connection.recv()  # start and reading are not the first fit's time

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None
