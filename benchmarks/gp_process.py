"""A process that fits one classifier to a stored split: ``python -m benchmarks.gp_process METHOD FOLDER LIMIT``.

The folder has split.npz: X, y to fit, `new` to predict. Left in it are P.npy, class probabilities of the new rows, and
said.json, what the fit has to say. LIMIT is the number of epochs, or of steps at most where a method knows when to
stop; 0 is no limit. Only what METHOD needs is imported.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

INDUCING, BATCH, RATE, WIDTH = 100, 256, 0.01, 30
"""Inducing inputs; rows of a step, its length, and the width of the hidden layer, of the peers."""


class Fitted(NamedTuple):
    """Probabilities of the new rows, and numbers of the fit: steps and seconds of one, epochs and seconds of one."""

    P: np.ndarray
    said: dict[str, Any]


def one_layer(X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    import posteriori as po

    return ours(po.GPClassifier(n_inducing=INDUCING), X, y, new, limit)


def two_layers(X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    import posteriori as po

    return ours(po.DeepGPClassifier(n_inducing=INDUCING), X, y, new, limit)


def ours(model: Any, X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    """Fit with defaults; the first chunk of steps, which also compiles, does not count for the seconds of one."""
    if limit:
        model.set_params(max_iter=limit)
    solution = model.fit(X, y).solution_
    trace = solution.trace
    steps = [(b.seconds - a.seconds) / (b.n_steps - a.n_steps) for a, b in pairwise(trace)]
    said = {"steps": solution.n_iter, "step_seconds": median(steps) if steps else None, "status": str(solution.status)}
    return Fitted(model.predict_proba(new), said)


def gpflow(X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    from benchmarks.gp_flow import Training

    return in_epochs(Training, X, y, new, limit)


def gpytorch(X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    from benchmarks.gp_torch import Training

    return in_epochs(Training, X, y, new, limit)


def deep_gpytorch(X: np.ndarray, y: np.ndarray, new: np.ndarray, limit: int) -> Fitted:
    from benchmarks.gp_torch import Training

    return in_epochs(Training, X, y, new, limit, width=WIDTH)


def in_epochs(
    training: Callable[..., Any], X: np.ndarray, y: np.ndarray, new: np.ndarray, epochs: int, **settings: Any
) -> Fitted:
    """Train, and predict the new rows."""
    predict_proba, said = trained(training, X, y, epochs, **settings)
    return Fitted(predict_proba(new), said)


def trained(
    training: Callable[..., Any], X: np.ndarray, y: np.ndarray, epochs: int, **settings: Any
) -> tuple[Callable[[np.ndarray], np.ndarray], dict[str, Any]]:
    """Train on standardised columns, in shuffled batches, from inducing inputs of k-means; return how it predicts."""
    import numpy as np
    from scipy.cluster.vq import kmeans2

    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    X = (X - centre) / spread
    Z = kmeans2(X, INDUCING, minit="++", seed=0)[0]
    model = training(X, y, Z, rate=RATE, **settings)
    rng = np.random.default_rng(0)
    seconds, steps = [], 0
    for _ in range(epochs):
        began = perf_counter()
        order = rng.permutation(len(X))
        for first in range(0, len(X), BATCH):
            model.step(order[first : first + BATCH])
            steps += 1
        model.wait()
        seconds.append(perf_counter() - began)
    epoch = median(seconds[1:] or seconds)
    said = {"steps": steps, "step_seconds": epoch * epochs / steps, "epochs": epochs, "epoch_seconds": epoch}
    return lambda new: model.predict_proba((new - centre) / spread), said


METHODS = {
    "GPClassifier": one_layer,
    "DeepGPClassifier": two_layers,
    "GPflow SVGP": gpflow,
    "GPyTorch SVGP": gpytorch,
    "GPyTorch DeepGP": deep_gpytorch,
}


def main(method: str, folder: Path, limit: int) -> None:
    """Read, fit, predict, write."""
    import numpy as np

    with np.load(folder / "split.npz") as split:
        rows = [split[name] for name in ("X", "y", "new")]
    warnings.simplefilter("ignore")
    P, said = METHODS[method](*rows, limit)
    np.save(folder / "P.npy", P)
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
