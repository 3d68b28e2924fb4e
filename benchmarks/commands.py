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
from benchmarks.turns import timed

SHAPE, QUICK = (1_000_000, 20, 4), (5_000, 20, 4)
TURNS = 3
GOAL, THROUGHPUT = 2.0, 1e6

NOTES = f"""\
A CSV of N rows and 20 columns: 17 numbers of four decimals, one of text with 8 levels, one boolean, and the target with
4 classes. "read" is `pyarrow.csv.read_csv`; "fit" is that of `SoftmaxRegression` to the same columns as numbers in
memory; "posteriori fit" is the whole process `posteriori fit --model softmax --out`, with start-up, encoding, storing
and its summary, and the peak of its memory; "start-up" is that of `posteriori predict` for ten rows, most of it the
import of scikit-learn. "times" is posteriori fit less start-up, in units of read + fit; goal: at most {GOAL:g}.
"posteriori predict" is the whole process, Parquet written; "beyond" is that less start-up, reading and writing, and
rows a second are N divided by it. Goal: {THROUGHPUT:.0e}. Medians of {TURNS}."""

HEADER = (
    "N", "read", "fit", "start-up", "posteriori fit", "times", "peak MB", "posteriori predict", "beyond", "rows / s",
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

    def often(function: Callable[[], Any]) -> float:
        return median(timed(function)[0] for _ in range(TURNS))

    read = often(lambda: csv.read_csv(path))
    fit = often(lambda: SoftmaxRegression().fit(X, y))
    arguments = ("fit", path, "--target", "kind", "--model", "softmax", "--out", model, "--json")
    whole_fit = often(lambda: command(*arguments))
    peak = json.loads(command(*arguments))["peak_memory_mb"]
    start = often(lambda: command("predict", model, few, "--out", out))
    predict = often(lambda: command("predict", model, path, "--out", out))
    predicted = parquet.read_table(out)
    write = often(lambda: parquet.write_table(predicted, out))
    beyond = max(predict - start - read - write, 1e-9)
    return {
        "problem": f"{N} rows", "N": N, "read": read, "fit": fit, "start": start, "whole_fit": whole_fit, "peak": peak,
        "predict": predict, "beyond": beyond,
    }  # fmt: skip


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
        f"{line['beyond']:.2f}", f"{line['N'] / line['beyond']:.2g}",
    ]  # fmt: skip
