"""Two versions of posteriori, case by case, by turns: a change should make nothing slower.

Each version lives in a process of its own, which imports the package from a folder of sources, prepares a case once and
then runs it when it is told to. Only public names are used, so that versions far apart can be compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def classes(N: int, D: int, K: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows in units of very different size, and labels that overlap."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(N, D))
    y = (Z @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    return Z * np.logspace(-2, 2, D) + 3.0, y


def fits(make: Callable[[Any], Any], N: int, D: int, K: int) -> Callable[[Any], Callable[[], Any]]:
    """A fit of some model."""

    def prepare(po: Any) -> Callable[[], Any]:
        X, y = classes(N, D, K)
        return lambda: make(po).fit(X, y)

    return prepare


def predictions(make: Callable[[Any], Any], N: int, D: int, K: int) -> Callable[[Any], Callable[[], Any]]:
    """Probabilities of N rows by a model fitted to a few of them."""

    def prepare(po: Any) -> Callable[[], Any]:
        X, y = classes(N, D, K)
        model = make(po).fit(X[:1000], y[:1000])
        return lambda: model.predict_proba(X)

    return prepare


def sparse(po: Any) -> Callable[[], Any]:
    import scipy.sparse as sp

    X = sp.random_array((20_000, 2000), density=0.01, rng=np.random.default_rng(0), format="csr")
    y = np.asarray((X[:, :3] @ np.ones(3)) > 0).astype(int) + (np.arange(20_000) % 3 == 0)
    return lambda: po.SoftmaxRegression().fit(X, y)


def data_set(action: str) -> Callable[[Any], Callable[[], Any]]:
    """A fit to a Parquet file, or predictions for it."""

    def prepare(po: Any) -> Callable[[], Any]:
        import pyarrow as pa
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        X, y = classes(400_000, 40, 4)
        path = Path(tempfile.mkdtemp()) / "rows.parquet"
        columns = {f"x{d}": X[:, d] for d in range(X.shape[1])}
        pq.write_table(pa.table({**columns, "y": y}), path)
        rows = ds.dataset(path)
        if action == "fit":
            return lambda: po.SoftmaxRegression().fit(rows, "y")
        model = po.BayesianSoftmaxRegression(1.0).fit(pa.table({k: v[:2000] for k, v in columns.items()}), y[:2000])
        new = ds.dataset(pa.table(columns))
        return lambda: model.predict_proba(new)

    return prepare


def encoder(po: Any) -> Callable[[], Any]:
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({f"number{d}": rng.normal(size=100_000) for d in range(20)})
    for c in range(5):
        table[f"text{c}"] = rng.choice([f"level {i}" for i in range(20)], 100_000)
    target = rng.integers(0, 3, 100_000)

    def run() -> None:
        encoded = po.TableEncoder().fit_transform(table)
        po.SoftmaxRegression(max_iter=1, tol=1.0).fit(encoded, target)

    return run


def process(po: Any) -> Callable[[], Any]:
    X, y = classes(200, 4, 3)
    model = po.GPClassifier(n_inducing=64, max_iter=30, calibrate=False)
    return lambda: model.fit(X, y)


def stored(po: Any) -> Callable[[], Any]:
    X, y = classes(2000, 50, 5)
    model = po.BayesianSoftmaxRegression(1.0).fit(X, y)
    path = Path(tempfile.mkdtemp()) / "model"

    def run() -> None:
        po.save(model, path)
        po.load(path)

    return run


def command(po: Any) -> Callable[[], Any]:
    import pandas as pd

    X, y = classes(2000, 6, 3)
    folder = Path(tempfile.mkdtemp())
    pd.DataFrame(X, columns=[f"x{d}" for d in range(6)]).assign(kind=y).to_csv(folder / "t.csv", index=False)
    words = ["fit", "t.csv", "--target", "kind", "--model", "softmax", "--out", "m"]
    run = [sys.executable, "-m", "posteriori", *words]
    return lambda: subprocess.run(run, cwd=folder, check=True, capture_output=True, env=os.environ)


CASES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "softmax, 150 x 4 x 3": fits(lambda po: po.SoftmaxRegression(), 150, 4, 3),
    "softmax, 2,000 x 60 x 10": fits(lambda po: po.SoftmaxRegression(), 2000, 60, 10),
    "softmax, 200,000 x 50 x 5": fits(lambda po: po.SoftmaxRegression(), 200_000, 50, 5),
    "softmax by Newton, 5,000 x 20 x 4": fits(lambda po: po.SoftmaxRegression(solver="newton"), 5000, 20, 4),
    "softmax, sparse, 20,000 x 2,000": sparse,
    "softmax, predict, 200,000 x 50 x 5": predictions(lambda po: po.SoftmaxRegression(), 200_000, 50, 5),
    "bayes, 150 x 4 x 3": fits(lambda po: po.BayesianSoftmaxRegression(), 150, 4, 3),
    "bayes, 2,000 x 20 x 5": fits(lambda po: po.BayesianSoftmaxRegression(), 2000, 20, 5),
    "bayes, prior given, 100,000 x 20 x 5": fits(lambda po: po.BayesianSoftmaxRegression(1.0), 100_000, 20, 5),
    "bayes, kronecker, 5,000 x 100 x 20": fits(
        lambda po: po.BayesianSoftmaxRegression(1.0, posterior="kronecker"), 5000, 100, 20
    ),
    "bayes, predict, 20,000 x 20 x 5": predictions(lambda po: po.BayesianSoftmaxRegression(1.0), 20_000, 20, 5),
    "gaussian, auto, 5,000 x 20 x 5": fits(lambda po: po.GaussianClassifier(), 5000, 20, 5),
    "gaussian, tied, mle, 200,000 x 30 x 5": fits(
        lambda po: po.GaussianClassifier("tied", estimate="mle"), 200_000, 30, 5
    ),
    "gaussian, predict, 50,000 x 20 x 5": predictions(lambda po: po.GaussianClassifier(), 50_000, 20, 5),
    "gp, 30 steps, 200 x 4 x 3": process,
    "data set, softmax, 400,000 x 40 x 4": data_set("fit"),
    "data set, bayes, predict, 400,000 x 40 x 4": data_set("predict"),
    "table to numbers to a first step, 100,000 x 25": encoder,
    "save and load": stored,
    "command line, fit": command,
}


def worker() -> None:
    """Serve one version: a line names a case, the answer is its seconds."""
    import posteriori as po

    prepared: dict[str, Callable[[], Any]] = {}
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name = json.loads(line)
        if name not in prepared:
            prepared.clear()  # one case at a time in memory
            prepared[name] = CASES[name](po)
            prepared[name]()  # compiled, and read into caches
        start = perf_counter()
        prepared[name]()
        print(json.dumps(perf_counter() - start), flush=True)


def start(source: Path) -> subprocess.Popen[str]:
    """A process that serves the version in a folder of sources."""
    code = "from benchmarks.before_after import worker; worker()"
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(process: subprocess.Popen[str], name: str) -> float:
    """Seconds of one run of a case."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(name) + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def ratios(before: Path, names: list[str], budget: float, swapped: bool) -> dict[str, tuple[float, float, float]]:
    """Medians in seconds of both versions and of their ratio, case by case, from one pair of processes."""
    sources = {"before": before, "after": ROOT / "src"}
    order = list(sources)[:: -1 if swapped else 1]
    versions = {version: start(sources[version]) for version in order}
    found = {}
    for name in names:
        first = max(ask(process, name) for process in versions.values())
        seconds: dict[str, list[float]] = {version: [] for version in versions}
        for turn in range(int(np.clip(budget / max(first, 1e-4), 3, 101))):
            for version in order[:: -1 if turn % 2 else 1]:
                seconds[version].append(ask(versions[version], name))
        # pairs of neighbouring runs see the same machine
        pairs = zip(seconds["before"], seconds["after"], strict=True)
        found[name] = median(seconds["before"]), median(seconds["after"]), median(new / old for old, new in pairs)
        print(f"{name}: {found[name][2]:.3f}", flush=True)
    for process in versions.values():
        process.kill()
    return found


def run(before: Path, out: Path, *, budget: float = 1.5, rounds: int = 3, quick: bool = False) -> None:
    """Time every case of both versions, by turns, and write a table of medians and their ratios.

    Processes differ by a few per cent from one another, by where their memory lies: each round has a new pair.
    """
    names = list(CASES)[:2] if quick else list(CASES)
    found = [ratios(before, names, 0.1 if quick else budget, bool(i % 2)) for i in range(1 if quick else rounds)]
    lines = ["| case | before, ms | after, ms | after / before | of each round |", "|---|---:|---:|---:|---|"]
    for name in names:
        old, new, ratio = (median(values) for values in zip(*(each[name] for each in found), strict=True))
        each = ", ".join(f"{one[name][2]:.2f}" for one in found)
        lines.append(f"| {name} | {1e3 * old:.3g} | {1e3 * new:.3g} | {ratio:.3f} | {each} |")
    out.mkdir(parents=True, exist_ok=True)
    (out / "before_after.md").write_text("\n".join(["# Before and after", "", *lines, ""]))
    print("\n".join(lines))
