"""Handwritten digits from a fresh process to probabilities: how good they are, and how long it takes.

One split, 100 inducing inputs for everybody. Each method has a process of its own, with the interpreter that has its
library, and its clock runs from the start of that process to its end: imports and compilation are part of the price.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks import problems, records
from benchmarks.gp_process import BATCH, INDUCING, RATE, WIDTH
from benchmarks.gp_quality import scores
from benchmarks.quality import FLOOR
from benchmarks.summary import show

PROBLEM = "digits"
TEST_SHARE = 0.2
GP, DEEP = "GPClassifier", "DeepGPClassifier"


@dataclass(frozen=True)
class Method:
    """What is run: the library with others that it needs, and the epochs it is given (None: it knows when to stop)."""

    modules: tuple[str, ...]
    epochs: int | None
    rival: str
    """Whom of ours it is compared with."""

    @property
    def library(self) -> str:
        return self.modules[0]


OURS = ("posteriori", "jax", "optax")
METHODS = {
    GP: Method(OURS, None, GP),
    "GPflow SVGP": Method(("gpflow",), 100, GP),
    "GPyTorch SVGP": Method(("gpytorch",), 100, GP),
    DEEP: Method(OURS, None, DEEP),
    "GPyTorch DeepGP": Method(("gpytorch",), 20, DEEP),
}
QUICK_EPOCHS, QUICK_STEPS, QUICK_ROWS = 1, 20, 500

NOTES = f"""\
scikit-learn's digits, one split by class (seed 0) into {1 - TEST_SHARE:.0%} training and {TEST_SHARE:.0%} test rows;
log-loss in nats and share of wrong classes of test rows. {INDUCING} inducing inputs for everybody. Ours:
`{GP}(n_inducing={INDUCING})` and `{DEEP}(n_inducing={INDUCING})`, else defaults, on raw columns. The peers get
standardised columns, inducing inputs from k-means, which they move, an RBF kernel with a lengthscale for every column,
at first the root of their number, batches of {BATCH} rows, Adam with a rate of {RATE}, and the epochs in the table.
GPflow: `SVGP` with `MultiClass` (RobustMax), one kernel for all classes. GPyTorch, in single precision as it comes:
`SVGP` has a kernel and inducing inputs for every class and `SoftmaxLikelihood(mixing_weights=False)`; `DeepGP` has two
layers of these, a hidden one of {WIDTH} nodes about the principal axes, and 10 samples; both predict by 64. Peers'
probabilities are made to add up to one, and their logarithms not taken below that of the machine epsilon. Every method
runs once, in a fresh process with its own number of threads; its library was imported before by another. "seconds" are
those of the whole process, with its imports, compilation and predictions. Those of a step and of an epoch are medians,
without the first chunk of steps or the first epoch, which compile. "times" is seconds in units of ours with as many
layers."""

HEADER = (
    "compared with", "method", "library", "log-loss", "error", "seconds", "steps", "ms a step",
    "epochs", "s an epoch", "times",
)  # fmt: skip


def run(out: Path, pythons: Sequence[str] = (), *, quick: bool = False) -> None:
    """Run the methods one after another, each by the first interpreter that has it; results are on disk after each."""
    X, y = problems.PROBLEMS[PROBLEM]()
    if quick:
        X, y = X[:QUICK_ROWS], y[:QUICK_ROWS]
    train, test = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, random_state=0, stratify=y)
    for name, method in METHODS.items():
        found = interpreter(method, (sys.executable, *pythons))
        if found is None:
            print(f"gp-digits: {name} skipped, no interpreter has {', '.join(method.modules)} (see --peer-python)")
            continue
        python, version = found
        limit = method.epochs or 0
        if quick:
            limit = QUICK_EPOCHS if method.epochs else QUICK_STEPS
        seconds, P, said = in_process(python, name, (X[train], y[train], X[test]), limit)
        line = {
            # lines are replaced by problem, and a later run may lack a library
            "problem": f"{PROBLEM}, {name}",
            "shape": (len(train), X.shape[1], len(np.unique(y))),
            "method": name,
            "library": method.library,
            "version": version,
            "test_rows": len(test),
            **scores(log_probabilities(method, P), y[test]),
            "seconds": seconds,
            **said,
        }
        records.write(out / "gp_digits.md", page(records.store(out / "gp_digits.jsonl", [line])))
        print(f"{name}: loss {line['loss']:.4f}, error {line['error']:.4f}, {seconds:.1f} s", flush=True)


def log_probabilities(method: Method, P: np.ndarray) -> np.ndarray:
    """Return the logarithms that a method is scored by: ours as they are, the peers' normalised and with a floor."""
    with np.errstate(divide="ignore"):
        if method.modules == OURS:
            return np.log(P)
        return np.maximum(np.log(P / P.sum(axis=1, keepdims=True)), FLOOR)


def interpreter(method: Method, pythons: Sequence[str]) -> tuple[str, str] | None:
    """Return the first interpreter that can import what the method needs, and its library's version there."""
    for python in pythons:
        asked = [python, "-c", f"import {', '.join(method.modules)}; print({method.library}.__version__)"]
        said = subprocess.run(asked, env=environment(), capture_output=True, text=True, check=False)
        if said.returncode == 0:
            return python, said.stdout.split()[-1]
    return None


def in_process(
    python: str, method: str, rows: tuple[np.ndarray, np.ndarray, np.ndarray], limit: int
) -> tuple[float, np.ndarray, dict[str, Any]]:
    """Return the seconds of a fresh process, the probabilities that it leaves, and what it says."""
    with TemporaryDirectory(prefix="posteriori-benchmark-") as name:
        folder = Path(name)
        np.savez(folder / "split.npz", **dict(zip(("X", "y", "new"), rows, strict=True)))
        command = [python, "-m", "benchmarks.gp_process", method, name, str(limit)]
        began = perf_counter()
        done = subprocess.run(
            command, env=environment(), cwd=root(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        seconds = perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{method} failed: {done.stderr.decode(errors='replace')[-2000:]}")
        return seconds, np.load(folder / "P.npy"), json.loads((folder / "said.json").read_text())


def root() -> Path:
    return Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Return the variables of a process with no GPU, our sources on its path."""
    path = os.pathsep.join(filter(None, (str(root() / "src"), os.environ.get("PYTHONPATH"))))
    alone = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "POSTERIORI_JAX_CACHE": "off"}
    return os.environ | {"PYTHONPATH": path} | alone


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    by = {line["method"]: line for line in lines}
    rows = [row(by[name], by.get(METHODS[name].rival)) for name in METHODS if name in by]
    return records.markdown("Digits from a fresh process", f"{NOTES} Every run is in `gp_digits.jsonl`.", HEADER, rows)


def row(line: dict[str, Any], ours: dict[str, Any] | None) -> list[str]:
    """Return one method's cells."""
    step = line["step_seconds"]
    return [
        METHODS[line["method"]].rival,
        line["method"],
        f"{line['library']} {line['version']}",
        f"{line['loss']:.4f}",
        f"{line['error']:.4f}",
        f"{line['seconds']:.1f}",
        str(line["steps"]),
        show(None if step is None else 1e3 * step, ".3g"),
        str(line.get("epochs", "")),
        f"{line['epoch_seconds']:.3g}" if "epoch_seconds" in line else "",
        "" if ours is None or ours is line else f"{line['seconds'] / ours['seconds']:.2f}",
    ]
