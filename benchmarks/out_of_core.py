"""Parquet files that do not fit: time and memory of fits that read them anew in every pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records

ROWS, QUICK = 50_000_000, 200_000
D, K = 20, 5
PART, GROUP = 1_000_000, 250_000
FITS = ("softmax", "laplace", "gaussian")
GOAL, MOST_MB = 1.3, 1000

NOTES = f"""\
{D} columns of float32 and labels of {K} classes as text, in one Parquet file as pyarrow writes it (snappy, row groups
of {GROUP:,} rows). Each line is a process of its own with two threads: "softmax" is `SoftmaxRegression()`, "laplace"
`BayesianSoftmaxRegression(prior=1.0, approximation="laplace")` with its full covariance and evidence, "gaussian"
`GaussianClassifier("full", estimate="mle")`, all with `fit(dataset, "kind")`. "passes" are those over the features that
the fit counted (labels are counted in one pass of their own before). "pass" is one value and gradient; "read" is the
time that pyarrow alone takes for the same columns, by `Dataset.to_batches` as it comes; "arithmetic" is that of the
same sums for rows in memory. "times" is pass over the larger of both; goal: at most {GOAL}. "read our way" is pyarrow
alone with the options that we give it, which hold less memory and are faster; reading and arithmetic share two cores.
Peak memory is that of the whole process, goal: below {MOST_MB} MB."""

HEADER = (
    "N",
    "file (GB)",
    "fit",
    "seconds",
    "passes",
    "peak (MB)",
    "pass (s)",
    "read (s)",
    "arithmetic (s)",
    "times",
    "read our way (s)",
)


def run(out: Path, *, quick: bool = False) -> None:
    """Write the file, and fit it in processes of their own."""
    n_rows = QUICK if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        path = Path(name) / "rows.parquet"
        generate(path, n_rows)
        lines = []
        for fit in FITS:
            line = {"problem": f"{n_rows} rows, {fit}", "N": n_rows, "gb": path.stat().st_size / 1e9, "fit": fit}
            lines.append(line | child(fit, path))
            print(lines[-1], flush=True)
    stored = records.store(out / "out_of_core.jsonl", lines)
    records.write(out / "out_of_core.md", records.markdown("Out of core", NOTES, HEADER, [row(x) for x in stored]))


def generate(path: Path, n_rows: int) -> None:
    """Write rows of K classes to a Parquet file, some at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    W = 0.5 * rng.normal(size=(D, K))
    kinds = pa.array([f"kind {k}" for k in range(K)])
    fields = [pa.field(f"x{d}", pa.float32()) for d in range(D)]
    schema = pa.schema([*fields, pa.field("kind", pa.string())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, PART):
            n = min(PART, n_rows - start)
            X = rng.standard_normal((D, n), dtype=np.float32)
            y = (W.T @ X + rng.gumbel(size=(K, n))).argmax(axis=0)
            writer.write_table(pa.table([*X, kinds.take(pa.array(y))], schema=schema), row_group_size=GROUP)


def child(fit: str, path: Path) -> dict[str, Any]:
    """Return what a process says that fits the file."""
    command = [sys.executable, "-m", "benchmarks.out_of_core", fit, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measured(fit: str, path: str) -> dict[str, Any]:
    """Fit, then time single passes: what this process prints."""
    import pyarrow.dataset as ds

    import posteriori as po
    from benchmarks.turns import timed
    from posteriori.cli.memory import peak_memory

    makers = {
        "softmax": po.SoftmaxRegression,
        "laplace": lambda: po.BayesianSoftmaxRegression(prior=1.0, approximation="laplace"),
        "gaussian": lambda: po.GaussianClassifier("full", estimate="mle"),
    }
    dataset = ds.dataset(path)
    seconds, model = timed(lambda: makers[fit]().fit(dataset, "kind"))
    found = {"seconds": seconds, "passes": model.solution_.n_passes, "peak": peak_memory()}
    return found | (single_passes(dataset, model) if fit == "softmax" else {})


def single_passes(dataset: Any, model: Any) -> dict[str, float]:
    """Return the seconds of one pass, of reading alone and of arithmetic alone: the best of three of each."""
    from benchmarks.turns import timed
    from posteriori.rows.arrow import StreamFeatures
    from posteriori.rows.memory import MemoryBlocks
    from posteriori.rows.streams import DatasetStream
    from posteriori.softmax.kernels import expected_moments
    from posteriori.threads import one_blas_thread, usable_threads

    names = list(model.feature_names_in_)
    theta = np.column_stack([model.coef_, model.intercept_])
    features = StreamFeatures(DatasetStream(dataset), names)
    blocks = features.blocks(None, K, n_threads=usable_threads(None))
    few = MemoryBlocks(np.random.default_rng(0).normal(size=(PART, D)), None, None, K, n_threads=usable_threads(None))
    size = 1 << 14
    ways = {
        "pass": lambda: blocks.map_sum(expected_moments, theta),
        "as it comes": lambda: sum(batch.num_rows for batch in dataset.to_batches(columns=names)),
        "as we do": lambda: sum(batch.num_rows for batch in DatasetStream(dataset).batches(names, size)),
        "arithmetic": lambda: few.map_sum(expected_moments, theta),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with one_blas_thread():
        for _ in range(3):
            for name, way in ways.items():
                times[name].append(timed(way)[0])
    best = {name: min(values) for name, values in times.items()}
    n_rows = dataset.count_rows()
    return {
        "pass": best["pass"],
        "read": best["as it comes"],
        "arithmetic": best["arithmetic"] * n_rows / PART,
        "read_our_way": best["as we do"],
    }


def row(line: dict[str, Any]) -> list[str]:
    """Return one fit's cells."""
    cells = [f"{line['N']:,}", f"{line['gb']:.2f}", line["fit"], f"{line['seconds']:.1f}", str(line["passes"])]
    cells.append(str(line["peak"]))
    if "pass" not in line:
        return [*cells, "", "", "", "", ""]
    times = line["pass"] / max(line["read"], line["arithmetic"])
    cells += [f"{line[key]:.2f}" for key in ("pass", "read", "arithmetic")]
    return [*cells, f"{times:.2f}", f"{line['read_our_way']:.2f}"]


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
