"""MNIST by Gaussian processes of one layer and two, each with 100 inducing inputs and all else as it comes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks import records
from benchmarks.gp_quality import scores
from benchmarks.turns import quiet, timed

N_INDUCING, TRAIN = 100, 60_000
PATIENCE = {"GPClassifier": {"tol": 3e-4}, "DeepGPClassifier": {"tol": 1e-4, "max_iter": 40_000}}
"""A GPU takes a step in a millisecond or two: worth more of them than the defaults, which think of two cores."""
QUICK_TRAIN, QUICK_STEPS = 300, 10
GOALS = {"GPClassifier": (0.970, 0.109), "DeepGPClassifier": (0.980, 0.073)}

NOTES = f"""\
The first {TRAIN} images to fit, the others to test; pixels as they are. `GPClassifier(n_inducing={N_INDUCING})` and
`DeepGPClassifier(n_inducing={N_INDUCING})`, with all defaults ("defaults"), and with more patience ("patient": tol=3e-4
for the one, tol=1e-4 and max_iter=40_000 for the other), on JAX's default device: a GPU, or hours. Seconds are to fit,
compilation included."""

HEADER = ("method", "settings", "accuracy", "goal", "log-loss", "goal", "steps", "status", "seconds")


def run(data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Fit both."""
    import posteriori as po

    if quick:
        X, y = load_digits(return_X_y=True)
        first, options = QUICK_TRAIN, {"max_iter": QUICK_STEPS, "n_inducing": 20}
    elif data is None or not (data / "mnist.npz").is_file():
        print("gp-mnist: skipped, --data FOLDER must have mnist.npz with X and y")
        return
    else:
        with np.load(data / "mnist.npz") as kept:
            X, y = kept["X"].reshape(len(kept["y"]), -1).astype(float), kept["y"]
        first, options = TRAIN, {"n_inducing": N_INDUCING}
    lines = []
    for kind, settings in product((po.GPClassifier, po.DeepGPClassifier), ("defaults", "patient")):
        more = PATIENCE[kind.__name__] if settings == "patient" else {}
        with quiet():
            seconds, model = timed(lambda kind=kind, more=more: kind(**(more | options)).fit(X[:first], y[:first]))
            log_p = model.predict_log_proba(X[first:])
        judged = scores(log_p, np.searchsorted(model.classes_, y[first:]))
        line: dict[str, Any] = {
            "problem": "digits" if quick else "mnist",
            "method": kind.__name__,
            "settings": settings,
        }
        lines.append(
            line | judged | {"seconds": seconds, "steps": model.n_iter_, "status": model.solution_.status.name}
        )
        print(lines[-1], flush=True)
    stored = records.store(out / "gp_mnist.jsonl", lines)
    records.write(out / "gp_mnist.md", records.markdown("MNIST", NOTES, HEADER, [row(line) for line in stored]))


def row(line: dict[str, Any]) -> list[str]:
    """Return one method's cells."""
    accuracy, loss = GOALS[line["method"]]
    return [
        line["method"], line["settings"], f"{1.0 - line['error']:.4f}", f"{accuracy:.3f}", f"{line['loss']:.4f}",
        f"{loss:.3f}", str(line["steps"]), line["status"].lower(), f"{line['seconds']:.1f}",
    ]  # fmt: skip
