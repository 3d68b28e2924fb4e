"""How long a fresh process takes to fit and to predict: first with nothing compiled before, then once more.

Every run is a process of its own. Ours runs twice, one after the other: the first finds an empty cache of compiled
code, the second what the first left there, if anything. The peers, scikit-learn's and GPflow's Gaussian processes, run
once. Clocks begin when the library is imported.
"""

from __future__ import annotations

import json
import site
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks import gp_digits, problems, records
from benchmarks.gp_digits import Method, interpreter, log_probabilities, root
from benchmarks.gp_process import BATCH, INDUCING, RATE
from benchmarks.gp_quality import scores
from benchmarks.gp_time_process import EPOCHS

NEW_ROWS, TEST_SHARE = 1000, 0.2
GP, SKLEARN, WIDE, GPFLOW = "GPClassifier", "scikit-learn", "scikit-learn, wide", "GPflow SVGP"
PEERS = (SKLEARN, WIDE, GPFLOW)
METHODS = {
    GP: Method(gp_digits.OURS, None, GP),
    SKLEARN: Method(("sklearn",), None, GP),
    WIDE: Method(("sklearn",), None, GP),
    GPFLOW: Method(("gpflow",), EPOCHS, GP),
}
MOST_ROWS = {SKLEARN: 1000, WIDE: 1000}
"""Training rows up to which a peer takes part."""
THREADS = {SKLEARN: (1, 2), WIDE: (1, 2)}
"""Numbers of BLAS threads of which the better counts; the others have their own."""
LIMIT, QUICK_LIMIT = 300.0, 60.0
"""Seconds after which a peer is stopped."""

MADE: dict[str, tuple[int, int, int]] = {
    "curved-200-10-3": (200, 10, 3),
    "curved-1k-20-5": (1000, 20, 5),
    "curved-4k-20-5": (4000, 20, 5),
}
"""Sizes N, D, K of the problems that are made here; N training rows."""
TABLES = ("glass", "vehicle", "vowel", "car", "segment")
QUICK = ("curved-200-10-3",)

NOTES = f"""\
Seconds to fit and to predict {NEW_ROWS:,} rows, together, in a fresh process; import of the library is not included,
all that it imports, compiles or reads later is. "{GP}" is `{GP}()` on raw columns. It runs twice in a row, in processes
whose home folder and `XDG_CACHE_HOME` are a new folder, and whose `JAX_COMPILATION_CACHE_DIR` is not set: at "first"
that folder is empty, at "again" it has what the first run left ("cache", in MB). "{SKLEARN}" is
`GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0), multi_class="one_vs_rest", n_jobs=1)` after
`StandardScaler`, up to {MOST_ROWS[SKLEARN]:,} training rows; "{WIDE}" begins at `RBF(D**0.5)`, as with many columns the
search from 1 may end where rows have nothing in common; both with the better of 1 and 2 BLAS threads. "{GPFLOW}" has
{INDUCING} inducing inputs from k-means, standardised columns, and {EPOCHS} epochs of Adam with a rate of {RATE} and
batches of {BATCH}, on one thread (`gp_flow.py`); ours has its own number of threads. A peer is "stopped" after
{LIMIT:g} s. Peers' probabilities are made to add up to one, and their logarithms not taken below that of the machine
epsilon. "curved-": made classes
with curved boundaries (`problems.curved`), of which the best classifier would get 10 % wrong; N counts training rows,
and {NEW_ROWS:,} others are predicted. Tables are split by class (seed 0); their {TEST_SHARE:.0%} test rows are repeated
until they are {NEW_ROWS:,}. Log-loss in nats and share of wrong classes of test rows, each counted once. No process
sees a GPU. Every run is in `gp_time.jsonl`."""

HEADER = (
    "problem", "N", "D", "K", "first (s)", "again (s)", "fit + predict, again", "cache (MB)", "log-loss / error",
    *(cell for peer in PEERS for cell in (f"{peer} (s)", "log-loss / error")),
)  # fmt: skip


class Split(NamedTuple):
    """Rows to fit, and rows to predict with their classes."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    labels: np.ndarray

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.X.shape, len(np.unique(self.y)))


def run(
    names: Iterable[str] | None, data: Path | None, out: Path, pythons: Sequence[str] = (), *, quick: bool = False
) -> None:
    """Run the methods on one problem after another; results are on disk after each method."""
    found = {name: interpreter(method, (sys.executable, *pythons)) for name, method in METHODS.items()}
    for name in (name for name, python in found.items() if python is None):
        print(f"gp-time: {name} skipped, no interpreter has {', '.join(METHODS[name].modules)} (see --peer-python)")
    for name, load in splits(data, quick=quick).items():
        if names is not None and name not in names:
            continue
        split = load()
        for method, known in found.items():
            if known is None or len(split.y) > MOST_ROWS.get(method, len(split.y)):
                continue
            line = {
                # lines are replaced by problem, and a later run may lack a library
                "problem": f"{name}, {method}",
                "name": name,
                "shape": split.shape,
                "method": method,
                "library": METHODS[method].library,
                "version": known[1],
                **study(known[0], method, split, QUICK_LIMIT if quick else LIMIT),
            }
            records.write(out / "gp_time.md", page(records.store(out / "gp_time.jsonl", [line])))
            took = (seconds(line, 0), seconds(line, 1)) if method == GP else (seconds(line),)
            print(name, method, *took, quality(line), flush=True)


def splits(data: Path | None, *, quick: bool = False) -> dict[str, Callable[[], Split]]:
    """Return the problems that are made here, and the tables of the folder."""
    found = {name: lambda size=size: made(*size) for name, size in MADE.items() if not quick or name in QUICK}
    if data is not None and not quick:
        for name in TABLES:
            if (data / f"{name}.npz").exists():
                found[name] = lambda name=name: of_table(*problems.load(name, data))
            else:
                print(f"gp-time: {name} skipped, --data FOLDER does not have {name}.npz")
    return found


def made(N: int, D: int, K: int) -> Split:
    X, y = problems.curved(N + NEW_ROWS, D, K)
    return Split(X[:N], y[:N], X[N:], y[N:])


def of_table(X: np.ndarray, y: np.ndarray) -> Split:
    train, test = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, random_state=0, stratify=y)
    X = np.asarray(X, dtype=float)
    return Split(X[train], y[train], X[test], y[test])


def study(python: str, method: str, split: Split, limit: float) -> dict[str, Any]:
    """Return what the processes of a method took, and how good its probabilities are; ours has two, and no limit."""
    again, ours = np.resize(np.arange(len(split.new)), NEW_ROWS), method == GP
    runs: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder, cache = Path(name), Path(name) / "cache"
        cache.mkdir()
        np.savez(folder / "split.npz", X=split.X, y=split.y, new=split.new[again])
        for threads in (None, None) if ours else THREADS.get(method, (None,)):
            failure = process(python, method, folder, environment(cache, threads), None if ours else limit)
            if failure is not None:
                found |= {"failure": failure, "limit": limit}
                continue
            runs.append(json.loads((folder / "said.json").read_text()) | {"threads": threads})
            if len(runs) == 1:
                log_p = log_probabilities(METHODS[method], np.load(folder / "P.npy"))[: len(split.labels)]
                found |= {"test_rows": len(split.labels), **scores(log_p, split.labels)}
                left = [path.stat().st_size for path in cache.rglob("*") if path.is_file()]
                found |= {"cache_files": len(left), "cache_mb": sum(left) / 1e6} if ours else {}
    return {"runs": runs, **found}


def process(python: str, method: str, folder: Path, variables: dict[str, str], limit: float | None) -> str | None:
    """Run a fresh process; return None, or why there is no result: "stopped", or its last line."""
    command = [python, "-m", "benchmarks.gp_time_process", method, str(folder)]
    try:
        done = subprocess.run(
            command,
            env=variables,
            cwd=root(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "stopped"
    if done.returncode:
        words = done.stderr.decode(errors="replace")
        if method == GP:
            raise RuntimeError(f"{method} failed: {words[-2000:]}")
        return words.strip().splitlines()[-1][:300]
    return None


def environment(cache: Path, threads: int | None = None) -> dict[str, str]:
    """Return the variables of a process whose caches are in this folder alone; packages stay where they are."""
    variables = gp_digits.environment()
    for name in ("JAX_COMPILATION_CACHE_DIR", "POSTERIORI_JAX_CACHE"):
        variables.pop(name, None)
    if threads is not None:
        variables |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    return variables | {"HOME": str(cache), "XDG_CACHE_HOME": str(cache), "PYTHONUSERBASE": site.getuserbase()}


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    by = {(line["name"], line["method"]): line for line in lines}
    names = sorted({name for name, _ in by}, key=lambda name: [*MADE, *TABLES].index(name))
    rows = [row(name, {method: by.get((name, method)) for method in METHODS}) for name in names]
    return records.markdown("Time of a fresh process", f"{NOTES}\n\n{versions(lines)}", HEADER, rows)


def row(name: str, of: dict[str, dict[str, Any] | None]) -> list[str]:
    """Return one problem's cells."""
    ours, shape = of[GP], next(line["shape"] for line in of.values() if line is not None)
    parts = "" if ours is None else " + ".join(f"{ours['runs'][1][k]:.3g}" for k in ("fit_seconds", "predict_seconds"))
    return [
        name, *map(str, shape), seconds(ours, 0), seconds(ours, 1), parts,
        "" if ours is None else f"{ours['cache_mb']:.3g}", quality(ours),
        *(cell for method in PEERS for cell in (seconds(of[method]), quality(of[method]))),
    ]  # fmt: skip


def seconds(line: dict[str, Any] | None, which: int | None = None) -> str:
    """Return the seconds to fit and to predict of one run, or of the fastest; why there are none, or nothing."""
    if line is None:
        return ""
    if not line["runs"]:
        return "stopped" if line["failure"] == "stopped" else "failed"
    took = [one["fit_seconds"] + one["predict_seconds"] for one in line["runs"]]
    return f"{min(took) if which is None else took[which]:.3g}"


def quality(line: dict[str, Any] | None) -> str:
    """Return loss and error, where there are any."""
    return "" if line is None or not line["runs"] else f"{line['loss']:.4f} / {line['error']:.3f}"


def versions(lines: list[dict[str, Any]]) -> str:
    """Return the libraries of the runs, and how long each takes to import."""
    said = []
    for library in dict.fromkeys(method.library for method in METHODS.values()):
        its = [line for line in lines if line["library"] == library and line["runs"]]
        if its:
            imports = np.median([one["import_seconds"] for line in its for one in line["runs"]])
            said.append(f"{its[-1]['library']} {its[-1]['version']} ({imports:.1f} s to import)")
    return f"Libraries: {', '.join(said)}." if said else ""
