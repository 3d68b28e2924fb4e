"""Softmax regression against Spark MLlib on one machine, the data cached by Spark and in memory or Parquet for ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import records

SHAPE, QUICK = (1_000_000, 20, 5), (20_000, 20, 5)
ALPHA, TOL = 1.0, 1e-12
TURNS = 3
GOAL = 10.0

NOTES = f"""\
N rows of D standard normal columns and K classes, the penalty alpha = {ALPHA:g} in both: Spark's regParam is alpha / N,
with standardization off. Spark runs as local[2], its rows assembled, cached and counted before the first fit; "first"
is its first fit, "seconds" the median of {TURNS} later ones, with its own stopping rule (tol=1e-6) and, as "tight",
1e-9; "start" is the time until Spark is up, "cache" the time to read and cache. Ours: `SoftmaxRegression(tol=1e-12)`,
which ends as close to the optimum, on the matrix in memory, and on the Parquet file itself, read again in every pass.
"excess" is the objective J less the lowest of all, relative to it. "times" is Spark's time over ours in memory; goal:
at least {GOAL:g}."""

HEADER = ("N", "D", "K", "who", "start (s)", "cache (s)", "first (s)", "seconds", "excess", "times")


def run(out: Path, peers: Sequence[str] = (), *, quick: bool = False) -> None:
    """Write the rows to Parquet, and fit them by each."""
    N, D, K = QUICK if quick else SHAPE
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        path = Path(name) / "rows.parquet"
        X, y = generate(path, N, D, K)
        lines = [*ours(path, X, y), *spark(path, D, peers)]
    for line in lines:
        line["objective"] = objective(np.array(line.pop("theta")), X, y)
    lowest = min(line["objective"] for line in lines)
    for line in lines:
        line |= {"problem": f"{N} x {D} x {K}, {line['who']}", "N": N, "D": D, "K": K}
        line["excess"] = line["objective"] / lowest - 1.0
        print(line, flush=True)
    stored = records.store(out / "against_spark.jsonl", lines)
    records.write(out / "against_spark.md", records.markdown("Against Spark", NOTES, HEADER, table(stored)))


def generate(path: Path, N: int, D: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and their classes, which are written too."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    y = (0.5 * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    columns = {f"x{d}": X[:, d] for d in range(D)}
    parquet.write_table(pa.table({**columns, "label": y.astype(float)}), path)
    return X, y


def objective(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Return J of (K, D + 1) parameters; classes' weights are centred first, which changes no probability."""
    from posteriori.rows.memory import MemoryBlocks
    from posteriori.softmax.moments import ObservedMoments
    from posteriori.softmax.objective import SoftmaxObjective

    W = theta - theta.mean(axis=0)
    K, D = W.shape[0], X.shape[1]
    blocks = MemoryBlocks(X, y, None, K)
    precision = np.full(W.shape, ALPHA)
    precision[:, D] = 0.0
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision).value_gradient(W)[0]


def ours(path: Path, X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Return our times, for rows in memory and in the file."""
    import pyarrow.dataset as ds

    import posteriori as po
    from benchmarks.turns import timed
    from posteriori.rows import arrow as streamed

    held, streamed._HELD_BYTES = streamed._HELD_BYTES, 0
    try:
        ways = {
            "posteriori, in memory": lambda: po.SoftmaxRegression(alpha=ALPHA, tol=TOL).fit(X, y),
            "posteriori, from Parquet": lambda: po.SoftmaxRegression(alpha=ALPHA, tol=TOL).fit(
                ds.dataset(path), "label"
            ),
        }
        lines = []
        for who, fit in ways.items():
            first, model = timed(fit)
            later = [timed(fit)[0] for _ in range(TURNS)]
            theta = np.column_stack([model.coef_, model.intercept_]).tolist()
            lines.append({"who": who, "first": first, "seconds": median(later), "theta": theta})
        return lines
    finally:
        streamed._HELD_BYTES = held


def spark(path: Path, D: int, peers: Sequence[str]) -> list[dict[str, Any]]:
    """Return Spark's times, from the first interpreter that has it."""
    for python in (sys.executable, *peers):
        has = subprocess.run([python, "-c", "import pyspark"], capture_output=True, check=False)
        if has.returncode == 0:
            break
    else:
        print("against-spark: pyspark is not installed, only ours is timed")
        return []
    script = Path(__file__).parent / "spark_process.py"
    command = [python, str(script), str(path), *map(str, (D, ALPHA, TURNS))]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    if done.returncode:
        print(f"against-spark: Spark failed: {done.stderr[-500:]}")
        return []
    return json.loads(done.stdout.splitlines()[-1])


def table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of the page."""
    out = []
    for line in lines:
        fast = [x["seconds"] for x in lines if x["N"] == line["N"] and x["who"] == "posteriori, in memory"]
        cells = [f"{line['N']:,}", str(line["D"]), str(line["K"]), line["who"]]
        cells += [f"{line[key]:.2f}" if key in line else "" for key in ("start", "cache")]
        cells += [f"{line['first']:.2f}", f"{line['seconds']:.3f}", f"{line['excess']:.1e}"]
        out.append([*cells, f"{line['seconds'] / fast[0]:.1f}" if "Spark" in line["who"] and fast else ""])
    return out
