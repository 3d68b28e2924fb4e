"""The command line on a large CSV: what it costs beyond reading, fitting and writing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks import records
from benchmarks.turns import by_turns

SHAPE, QUICK = (1_000_000, 20, 4), (5_000, 20, 4)
TURNS = 5
GOAL, THROUGHPUT = 2.0, 1e6

NOTES = f"""\
A CSV of N rows and 20 columns: 17 numbers of four decimals, one of text with 8 levels, one boolean, and the target with
4 classes. "read" is `pyarrow.csv.read_csv` in a process that has read the file before; "fit" is that of
`SoftmaxRegression` to the same columns as numbers in memory; "posteriori fit" is the whole process `posteriori fit
--model softmax --out`, with start-up, encoding, storing and its summary, and the peak of its memory; "start-up" is that
of `posteriori predict` for ten rows, most of it the import of scikit-learn. "times" is posteriori fit less start-up, in
units of read + fit; goal: at most {GOAL:g}. "posteriori predict" is the whole process, Parquet written; "beyond" is
that less start-up, reading and writing, and rows a second are N divided by it. Goal: {THROUGHPUT:.0e}. "read anew" is
the same reading in a process of its own, whose memory is as new as that of a command; the last column is rows a second
beyond that. Medians of {TURNS}, taken in turns."""

HEADER = (
    "N", "read", "fit", "start-up", "posteriori fit", "times", "peak MB", "posteriori predict", "beyond", "rows / s",
    "read anew", "rows / s beyond it",
)  # fmt: skip


def run(out: Path, *, quick: bool = False) -> None:
    """Write the table, and time both commands on it."""
    with tempfile.TemporaryDirectory() as name:
        line = study(Path(name), *(QUICK if quick else SHAPE))
    print(line, flush=True)
    stored = records.store(out / "commands.jsonl", [line])
    records.write(out / "commands.md", records.markdown("The command line", NOTES, HEADER, [row(x) for x in stored]))


def table(N: int, D: int, K: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Return the table, and its features and target as arrays."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D - 3)).round(4)
    y = (X @ rng.normal(size=(D - 3, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    region, member = rng.integers(0, 8, N), rng.random(N) < 0.3
    columns: dict[str, Any] = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    columns["region"] = pa.array([f"region {i}" for i in range(8)]).take(pa.array(region))
    columns["member"] = pa.array(member)
    columns["kind"] = pa.array([f"kind {k}" for k in range(K)]).take(pa.array(y))
    return pa.table(columns), np.column_stack([X, np.eye(8)[region], member]), y


def study(folder: Path, N: int, D: int, K: int) -> dict[str, Any]:
    """Return all times."""
    from posteriori import SoftmaxRegression

    rows, X, y = table(N, D, K)
    path, few, model, out = (str(folder / name) for name in ("t.csv", "few.csv", "m.model", "p.parquet"))
    csv.write_csv(rows, path)
    csv.write_csv(rows.slice(0, 10), few)
    del rows

    arguments = ("fit", path, "--target", "kind", "--model", "softmax", "--out", model, "--json")
    peak = json.loads(command(*arguments))["peak_memory_mb"]
    command("predict", model, path, "--out", out)
    predicted = parquet.read_table(out)
    reads: list[float] = []
    work: dict[str, Callable[[], object]] = {
        "read": lambda: csv.read_csv(path),
        "read_anew": lambda: reads.append(read_anew(path)),
        "fit": lambda: SoftmaxRegression().fit(X, y),
        "whole_fit": lambda: command(*arguments),
        "start": lambda: command("predict", model, few, "--out", out),
        "predict": lambda: command("predict", model, path, "--out", out),
        "write": lambda: parquet.write_table(predicted, out),
    }
    times = by_turns(work, TURNS) | {"read_anew": reads}  # without the start of that process
    seconds = {name: median(each) for name, each in times.items()}
    return {"problem": f"{N} rows", "N": N, "peak": peak, **seconds}


def read_anew(path: str) -> float:
    """Return the seconds of pyarrow's own reading in a new process, whose memory is as new as that of a command."""
    code = (
        "import sys, time; from pyarrow import csv; start = time.perf_counter(); "
        "table = csv.read_csv(sys.argv[1]); print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    return float(done.stdout)


def command(*arguments: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "posteriori", *arguments], capture_output=True, text=True, env=os.environ, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def row(line: dict[str, Any]) -> list[str]:
    """Return one line's cells."""
    times = (line["whole_fit"] - line["start"]) / (line["read"] + line["fit"])
    seconds = [f"{line[key]:.2f}" for key in ("read", "fit", "start", "whole_fit")]
    return [
        f"{line['N']:,}", *seconds, f"{times:.2f}", f"{line['peak']:,}", f"{line['predict']:.2f}",
        f"{beyond(line, 'read'):.2f}", f"{line['N'] / beyond(line, 'read'):.2g}",
        f"{line['read_anew']:.2f}", f"{line['N'] / beyond(line, 'read_anew'):.2g}",
    ]  # fmt: skip


def beyond(line: dict[str, Any], read: str) -> float:
    """Return the seconds of a prediction less start-up, one of both ways of reading, and writing."""
    return max(line["predict"] - line["start"] - line[read] - line["write"], 1e-9)
