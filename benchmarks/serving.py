"""`posteriori serve` under load: requests and rows per second, times of answers, memory; peers beside it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import records
from benchmarks.gp_digits import root

CONNECTIONS, SECONDS, QUICK_SECONDS = 64, 10.0, 1.0
RATE, SLOW_RATE = 2000.0, 500.0
MANY_ROWS, QUICK_ROWS, BODIES = 500_000, 20_000, 4
REQUESTS, QUICK_REQUESTS = 200_000, 2_000
MEMORY_SECONDS = 150.0
"""A bound: a server that answers 2,000 requests a second is done before."""
COLUMNS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
JSON, ARROW, PARQUET = "application/json", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"

NOTES = f"""\
One process of `posteriori serve`, with its logs going to a file, and one process that asks (`benchmarks/http_load.py`),
on the same machine, over loopback. The model is `make_pipeline(TableEncoder(), BayesianSoftmaxRegression())` of the
bundled penguins, seven columns with categories and gaps. "closed": {CONNECTIONS} connections, each of which asks again
as soon as it has its answer; "N/s": {CONNECTIONS} connections that ask at this rate together, times counted from when a
request was due. Times are in milliseconds. "rows": one connection that sends bodies of {MANY_ROWS:,} rows and takes
classes and probabilities as an Arrow stream; rows per second. "memory": resident memory after 2,000 single rows, and
after {REQUESTS:,} more. The peers serve scikit-learn's `LogisticRegression` of the four measurements alone: MLServer by
the Open Inference Protocol, without its parallel workers, and `mlflow models serve`. The lines "four numbers" are ours
in the same protocols: `BayesianSoftmaxRegression` of these four columns. Every run is in `serving.jsonl`."""

HEADER = ("what", "load", "requests/s or rows/s", "median", "p99", "worst", "failed")


def run(out: Path, pythons: Sequence[str] = (), *, quick: bool = False) -> None:
    """Run all loads; results are on disk after each."""
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder = Path(name)
        bodies = prepare(folder, QUICK_ROWS if quick else MANY_ROWS)
        with ours(folder, "penguins.model") as port:
            for what, body, rate in (
                ("single rows", "row.json", RATE),
                ("single rows with 95 % intervals", "row_intervals.json", SLOW_RATE),
            ):
                for pace in (None, rate):
                    found = load(port, "/predict", folder / body, "application/json", seconds, rate=pace)
                    note(out, what, "closed" if pace is None else f"{pace:g}/s", found)
            for what, body, kind in bodies:
                found = load(
                    port, "/predict?answers=class,proba", folder / body, kind, 60.0, connections=1, most=BODIES,
                    accept=ARROW,
                )  # fmt: skip
                n_rows = QUICK_ROWS if quick else MANY_ROWS
                note(out, f"{what}, {n_rows:,} rows", "rows", found | {"rows_per_second": n_rows * found["per_second"]})
        with ours(folder, "penguins.model") as port:
            load(port, "/predict", folder / "row.json", "application/json", 60.0, most=2_000)
            before = memory(port)
            found = load(
                port, "/predict", folder / "row.json", "application/json", MEMORY_SECONDS,
                most=QUICK_REQUESTS if quick else REQUESTS,
            )  # fmt: skip
            note(out, "memory", "closed", found | {"mb_before": before, "mb_after": memory(port)})
        with ours(folder, "numbers.model") as port:
            for what, path, body in (
                ("four numbers, /v2", "/v2/models/numbers/infer", "infer.json"),
                ("four numbers, /invocations", "/invocations", "invocations.json"),
            ):
                note(out, what, "closed", load(port, path, folder / body, "application/json", seconds))
        for what, start, path, body in (
            ("MLServer, /v2", mlserver, "/v2/models/numbers/infer", "infer.json"),
            ("MLflow, /invocations", mlflow, "/invocations", "invocations.json"),
        ):
            python = having(("mlserver", "mlserver_sklearn") if start is mlserver else ("mlflow", "sklearn"), pythons)
            if python is None:
                print(f"serving: {what} skipped, no interpreter has it (see --peer-python)")
                continue
            with start(python, folder) as port:
                note(out, what, "closed", load(port, path, folder / body, "application/json", seconds))


def prepare(folder: Path, n_rows: int) -> list[tuple[str, str, str]]:
    """Write models and bodies; names, files and kinds of the bodies with many rows."""
    import pyarrow as pa
    from pyarrow import parquet
    from sklearn.pipeline import make_pipeline

    import posteriori as po

    table = pd.read_csv(Path(po.__file__).parent / "tables" / "bundled" / "penguins.csv")
    po.save(
        make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression()).fit(table, "species"),
        folder / "penguins.model",
    )
    complete = table.dropna()
    X, y = complete[list(COLUMNS)].to_numpy(), complete["species"].to_numpy()
    po.save(po.BayesianSoftmaxRegression().fit(complete[list(COLUMNS)], y), folder / "numbers.model")
    np.savez(folder / "numbers.npz", X=X, y=y.astype(str))
    features = complete.drop(columns="species")
    row = json.loads(features.iloc[[0]].to_json(orient="records"))[0]
    numbers = [float(row[name]) for name in COLUMNS]
    tensors = [
        {"name": name, "shape": [1], "datatype": "FP64", "data": [x]} for name, x in zip(COLUMNS, numbers, strict=True)
    ]
    for name, body in {
        "row": row,
        "row_intervals": {"rows": [row], "answers": ["class", "proba", "lower", "upper"]},
        "infer": {"inputs": tensors},
        "infer_one": {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", "data": numbers}]},
        "invocations": {"dataframe_split": {"columns": list(COLUMNS), "data": [numbers]}},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(body))
    many = features.sample(n_rows, replace=True, random_state=0)
    arrow = pa.Table.from_pandas(many, preserve_index=False)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, arrow.schema) as writer:
        writer.write_table(arrow)
    (folder / "many.arrow").write_bytes(stream.getvalue())
    parquet.write_table(arrow, folder / "many.parquet")
    many.to_csv(folder / "many.csv", index=False)
    return [("Arrow", "many.arrow", ARROW), ("Parquet", "many.parquet", PARQUET), ("CSV", "many.csv", "text/csv")]


def load(
    port: int,
    path: str,
    body: Path,
    kind: str,
    seconds: float,
    *,
    connections: int = CONNECTIONS,
    rate: float | None = None,
    most: int | None = None,
    accept: str = "application/json",
) -> dict[str, Any]:
    """Run the load in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.http_load", "--port", str(port), "--path", path, "--body", str(body)]
    command += ["--type", kind, "--accept", accept, "--connections", str(connections), "--seconds", str(seconds)]
    command += [] if rate is None else ["--rate", str(rate)]
    command += [] if most is None else ["--most", str(most)]
    done = subprocess.run(command, cwd=root(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@contextmanager
def ours(folder: Path, model: str, *options: str) -> Iterator[int]:
    """Our server; its port."""
    command = [sys.executable, "-m", "posteriori", "serve", str(folder / model), "--port", "0", *options]
    with (folder / "server.log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        port = None
        while port is None:
            assert process.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.1)
            found = re.search(r"serves on http://[^:]+:(\d+)", (folder / "server.log").read_text())
            port = int(found[1]) if found else None
        wait(f"http://127.0.0.1:{port}/ping")
        yield port
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


@contextmanager
def mlserver(python: str, folder: Path) -> Iterator[int]:
    """MLServer with scikit-learn's LogisticRegression; its port."""
    home = folder / "mlserver"
    home.mkdir()
    fit_peer(python, folder, home / "model.joblib")
    settings = {"debug": False, "parallel_workers": 0, "http_port": 18080, "grpc_port": 18081, "metrics_port": 18082}
    (home / "settings.json").write_text(json.dumps(settings))
    model = {
        "name": "numbers",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib"},
    }
    (home / "model-settings.json").write_text(json.dumps(model))
    (folder / "infer.json").write_text((folder / "infer_one.json").read_text())  # it takes one tensor for all columns
    command = [str(Path(python).parent / "mlserver"), "start", str(home)]
    with peer(command, home, "http://127.0.0.1:18080/v2/models/numbers/ready"):
        yield 18080


@contextmanager
def mlflow(python: str, folder: Path) -> Iterator[int]:
    """MLflow's scoring server with scikit-learn's LogisticRegression; its port."""
    home = folder / "mlflow"
    fit_peer(python, folder, home, kind="mlflow")
    command = [python, "-m", "mlflow", "models", "serve", "-m", str(home), "-p", "18090", "--env-manager", "local"]
    with peer(command, folder, "http://127.0.0.1:18090/ping"):
        yield 18090


@contextmanager
def peer(command: list[str], folder: Path, ready: str) -> Iterator[None]:
    """A peer's server, until it is no longer needed."""
    environment = os.environ | {"PATH": f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"}
    with (folder / "peer.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            wait(ready, 120.0)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def fit_peer(python: str, folder: Path, path: Path, kind: str = "joblib") -> None:
    """Fit scikit-learn's classifier with the peer's interpreter, and store it as the peer wants it."""
    code = f"""
import numpy as np
from sklearn.linear_model import LogisticRegression
data = np.load({str(folder / "numbers.npz")!r})
model = LogisticRegression(max_iter=1000).fit(data["X"], data["y"])
"""
    code += (
        f"import mlflow.sklearn; mlflow.sklearn.save_model(model, {str(path)!r})\n"
        if kind == "mlflow"
        else f"import joblib; joblib.dump(model, {str(path)!r})\n"
    )
    subprocess.run([python, "-W", "ignore", "-c", code], check=True, capture_output=True)


def having(modules: Sequence[str], pythons: Sequence[str]) -> str | None:
    """The first interpreter that has these modules."""
    for python in (sys.executable, *pythons):
        code = f"import importlib.util as u; assert all(u.find_spec(m) for m in {tuple(modules)!r})"
        if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
            return python
    return None


def wait(url: str, seconds: float = 30.0) -> None:
    """Wait until a server answers, whatever."""
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return  # it answers, if only that a token is needed
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


def memory(port: int) -> float:
    """Resident memory of the process that listens at a port, in MB."""
    import psutil

    pid = next(
        c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"
    )
    return psutil.Process(pid).memory_info().rss / 1e6


def note(out: Path, what: str, pace: str, found: dict[str, Any]) -> None:
    line = {"problem": f"{what}, {pace}", "what": what, "load": pace} | found
    stored = records.store(out / "serving.jsonl", [line])
    records.write(out / "serving.md", records.markdown("Serving", NOTES, HEADER, map(row, stored)))
    print(line, flush=True)


def row(line: dict[str, Any]) -> tuple[str, ...]:
    times = (f"{line[name]:.3g}" for name in ("p50_ms", "p99_ms", "worst_ms"))
    rate = f"{line.get('rows_per_second', line['per_second']):,.0f}"
    what = line["what"]
    if "mb_after" in line:
        what = f"{what}: {line['mb_before']:.0f} MB, then {line['mb_after']:.0f} MB after {line['requests']:,} requests"
    return (what, line["load"], rate, *times, str(line["failed"]))
