"""The price of one pass: loss and gradient of ours against the two matrix products that they need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import records
from benchmarks.problems import synthetic

SHAPES = (
    (100_000, 50, 10),
    (1_000_000, 20, 5),
    (20_000, 784, 10),
    (50_000, 100, 100),
    (20_000, 16, 26),
    (60_000, 784, 10),
)
"""(N, D, K) of the large dense problems; letter and MNIST by their shapes."""

QUICK = ((2_000, 20, 5),)
WANTED = 1.5

NOTES = f"""\
Medians of runs by turns, in bursts, in one process. The products are `W @ X.T` and `P @ X` in NumPy, double precision,
written into arrays that exist already. Goal: the pass costs at most {WANTED:g} times the products."""


def our_pass(X: np.ndarray, y: np.ndarray, n_classes: int, threads: int | None) -> Callable[[np.ndarray], object]:
    """Return the function of the weights (K, D) that makes one loss-and-gradient pass; set-up is untimed."""
    from posteriori.rows.memory import MemoryBlocks
    from posteriori.softmax.kernels import expected_moments
    from posteriori.threads import one_blas_thread, usable_threads

    blocks = MemoryBlocks(X, y, None, n_classes, n_threads=usable_threads(threads))
    probs = blocks.row_values(n_classes)

    def one_pass(W: np.ndarray) -> object:
        with one_blas_thread():
            return blocks.map_sum(expected_moments, W, row_values=probs)

    return one_pass


def products(X: np.ndarray, n_classes: int) -> Callable[[np.ndarray], object]:
    """Return the function of the (K, D) weights that makes the two products."""
    logits = np.empty((n_classes, len(X)))
    gradient = np.empty((n_classes, X.shape[1]))

    def both(W: np.ndarray) -> np.ndarray:
        np.matmul(W, X.T, out=logits)
        return np.matmul(logits, X, out=gradient)

    return both


def run(out: Path, *, quick: bool = False) -> None:
    """Measure every shape with the default number of threads and with one, and write the results."""
    lines = [compare(shape, threads) for shape in (QUICK if quick else SHAPES) for threads in (None, 1)]
    stored = records.store(out / "passes.jsonl", lines)
    header = ("N", "D", "K", "threads", "pass (ms)", "products (ms)", "ratio", "goal")
    rows = [
        (
            *line["shape"],
            line["threads"] or "default",
            f"{1e3 * line['pass_seconds']:.3g}",
            f"{1e3 * line['products_seconds']:.3g}",
            f"{line['ratio']:.2f}",
            "yes" if line["ratio"] <= WANTED else "no",
        )
        for line in stored
    ]
    records.write(out / "passes.md", records.markdown("One pass over the data", NOTES, header, rows))


def compare(shape: tuple[int, int, int], threads: int | None) -> dict[str, Any]:
    """Return the times of the pass and of the products on one shape."""
    _, n_features, n_classes = shape
    X, y = synthetic(*shape)
    W = np.random.default_rng(1).standard_normal((n_classes, n_features)) / np.sqrt(n_features)
    with nullcontext() if threads is None else threadpool_limits(threads):
        pair = (our_pass(X, y, n_classes, threads), products(X, n_classes))
        ours, theirs = by_turns(pair, W)
    print(f"{shape} threads={threads}: {ours / theirs:.2f}", flush=True)
    return {
        "problem": "-".join(map(str, shape)),
        "shape": shape,
        "threads": threads,
        "pass_seconds": ours,
        "products_seconds": theirs,
        "ratio": ours / theirs,
    }


def by_turns(functions: tuple[Callable[[np.ndarray], object], ...], W: np.ndarray, rounds: int = 5) -> list[float]:
    """Call the functions by turns, in bursts; return their median times.

    A solver makes passes in a row, and BLAS threads spin on for some 30 ms after their last product: the start of a
    burst, which they would disturb, is not timed.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, its in zip(functions, times, strict=True):
            start, timed = perf_counter(), 0
            while timed < 5 or perf_counter() < start + 0.3:
                began = perf_counter()
                function(W)
                if began > start + 0.1:
                    its.append(perf_counter() - began)
                    timed += 1
    return [median(its) for its in times]
