"""The command line on a folder of Parquet files: memory, passes and seconds of `posteriori fit` and `predict`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records

ROWS, QUICK = 12_000_000, 60_000
D, K = 48, 4
PART, GROUP = 500_000, 125_000
MODELS = ("gaussian", "softmax", "bayes")
MOST_MB, ROOM = 2000, 8e9

NOTES = f"""\
A folder of Parquet files with {D} columns of float64 (one in fifty missing in four of them), a row number, a text
column of 8 levels, a boolean, a date, and the target with {K} classes (one in a thousand missing). "read" is the time
that pyarrow alone takes for all columns, batch by batch; "in memory" is the size of the table as Arrow holds it. Each
line is one process `posteriori fit FOLDER --target kind --model MODEL --out FILE`, or `posteriori predict` with that
model to a Parquet file. "passes" are those over the rows, all of them: to see what the columns hold, to count classes,
and to fit. So that runs are the same on every machine, each process takes {ROOM / 1e9:g} GB to be free, and reads the
rows anew in every pass. Peak memory is that of the whole process; goal: below {MOST_MB:,} MB."""

HEADER = ("rows", "folder (GB)", "in memory (GB)", "read (s)", "command", "seconds", "passes", "peak (MB)")


def run(out: Path, *, quick: bool = False) -> None:
    """Write the folder, and run the commands in processes of their own."""
    n_rows = QUICK if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder, model = Path(name) / "rows", Path(name) / "m.model"
        in_memory = generate(folder, n_rows)
        gigabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        common = {"rows": n_rows, "gb": gigabytes, "in_memory_gb": in_memory / 1e9, "read": seconds_to_read(folder)}
        lines = []
        for way in MODELS:
            fit = ("fit", str(folder), "--target", "kind", "--model", way, "--out", str(model), "--json")
            lines.append(
                {"problem": f"fit {way}, {n_rows} rows", "command": f"fit --model {way}"} | common | child(fit)
            )
            print(lines[-1], flush=True)
        predict = ("predict", str(model), str(folder), "--out", str(Path(name) / "p.parquet"))
        lines.append({"problem": f"predict, {n_rows} rows", "command": "predict"} | common | child(predict))
        print(lines[-1], flush=True)
    stored = records.store(out / "fit_folder.jsonl", lines)
    records.write(
        out / "fit_folder.md", records.markdown("A folder larger than memory", NOTES, HEADER, map(row, stored))
    )


def generate(folder: Path, n_rows: int) -> int:
    """Write rows of K classes to a folder of Parquet files; their bytes in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    rng = np.random.default_rng(0)
    W = 0.3 * rng.normal(size=(D, K))
    kinds, regions = (pa.array([f"{word} {i}" for i in range(n)]) for word, n in (("kind", K), ("region", 8)))
    in_memory = 0
    for part, start in enumerate(range(0, n_rows, PART)):
        n = min(PART, n_rows - start)
        X = rng.standard_normal((D, n))
        region = rng.integers(0, 8, n)
        scores = W.T @ X + 0.2 * (region % K == np.arange(K)[:, None])
        y = (scores + rng.gumbel(size=(K, n))).argmax(axis=0)
        X[:4][rng.random((4, n)) < 0.02] = np.nan
        days = rng.integers(18_000, 20_000, n).astype("M8[D]")
        columns: dict[str, Any] = {"row": np.arange(start, start + n)}
        columns |= {f"x{d}": pa.array(X[d], from_pandas=True) for d in range(D)}
        columns |= {"region": regions.take(pa.array(region)), "member": rng.random(n) < 0.3, "day": days}
        columns["kind"] = kinds.take(pa.array(y, mask=rng.random(n) < 0.001))
        table = pa.table(columns)
        in_memory += table.nbytes
        parquet.write_table(table, folder / f"part-{part:03}.parquet", row_group_size=GROUP)
    return in_memory


def seconds_to_read(folder: Path) -> float:
    """Seconds that pyarrow takes to read all columns, batch by batch."""
    import pyarrow.dataset as ds

    from benchmarks.turns import timed

    return timed(lambda: sum(batch.num_rows for batch in ds.dataset(folder).to_batches()))[0]


_CHILD = """
import contextlib, io, json, sys, time
from posteriori.cli import app, training_rows
from posteriori.cli.memory import peak_memory
room = float(sys.argv.pop(1))
training_rows.available_memory = lambda: room
began, said = time.perf_counter(), io.StringIO()
with contextlib.redirect_stdout(said):
    app(sys.argv[1:], standalone_mode=False)
summary = json.loads(said.getvalue()) if "--json" in sys.argv else {"passes": 1}
print(json.dumps({"seconds": time.perf_counter() - began, "passes": summary.get("passes"), "peak": peak_memory()}))
"""


def child(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Seconds, passes and peak memory of a command in a process of its own."""
    command = [sys.executable, "-c", _CHILD, str(ROOM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def row(line: dict[str, Any]) -> tuple[str, ...]:
    """The cells of one line."""
    sizes = (f"{line['rows']:,}", f"{line['gb']:.2f}", f"{line['in_memory_gb']:.2f}", f"{line['read']:.1f}")
    return (*sizes, line["command"], f"{line['seconds']:.0f}", f"{line['passes'] or ''}", f"{line['peak']:,}")
