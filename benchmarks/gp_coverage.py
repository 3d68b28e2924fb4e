"""Whether intervals of Gaussian processes hold what they say: data drawn from such processes, all defaults.

Inputs are uniform in a square, latent functions drawn from scale * RBF of lengthscale 1, labels from the multinomial
probit. The fit knows none of it; beside it are the fit without `calibrate`, and one that is given the true kernel.
Data sets are spread over processes of one thread each, and results are on disk as they come.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, xlogy

from benchmarks import records
from benchmarks.turns import quiet

SCALES, ROWS, CLASSES = (1.0, 3.0, 10.0), (50, 200), (3, 5)
LEVELS = (0.5, 0.8, 0.95)
DATASETS = 200
D, HALF_SIDE, NEW_ROWS = 2, 2.0, 50
OPEN = 0.01
"""A class probability is open where the fit itself puts it between this and one less this."""
ROUNDING = 1e-9
"""An interval also holds what is this near to it: integrals have errors of their own."""
FAR = 1e3
"""An input at which rows say nothing."""
STORE_EVERY = 15.0
"""Seconds between results on disk."""

DEFAULT, UNCALIBRATED, KNOWN = "default", "calibrate=False", "true model"
METHODS = (DEFAULT, UNCALIBRATED, KNOWN)
SHARES = ("covered", "mislabelled", "open")
"""Coverage of the true probabilities, of what they are with the fit's rate of mislabelled rows, and of open ones."""

ONE_THREAD = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "NPROC"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}
"""Variables of the processes: NumPy and JAX read them when they are imported. NPROC is the number of JAX's threads."""

NOTES = f"""\
N rows in [-{HALF_SIDE:g}, {HALF_SIDE:g}]^{D}; latent functions of K classes drawn from scale * RBF(lengthscale 1); the
label is the class of the largest latent plus N(0, 1). "{DEFAULT}": `GPClassifier()`; "{UNCALIBRATED}": the same without
calibration; "{KNOWN}": the kernel that functions were drawn from, nothing learned, `calibrate=False` and
`mislabelling=0`, for which exact inference would cover at its level. All are told how many classes there are, as some
data sets lack one. Coverage in percent of intervals at 50 / 80 / 95 %, over {NEW_ROWS} new inputs and all classes of
each data set: "coverage" of the true probabilities; "as mislabelled" of these as a fit states them that takes a rate of
labels to be random (`mislabelling_`), so that none is nearer to 0 or 1 than this; "open" is "coverage" where the fit's
own probability is between {OPEN:g} and {1 - OPEN:g} (in brackets the share that is): with a large scale most others are
0 or 1 for the true functions, and for rounding. "divergence" is the mean Kullback-Leibler divergence from the true
probabilities to those of the fit, "log-loss" its expectation over labels, both in nats; "least" is that of the true
probabilities. Standard errors are over data sets; those of coverages are at most "s.e.". Seconds are to fit, medians,
on one thread while others work beside. Every data set is in `gp_coverage.jsonl`."""

HEADER = (
    "scale", "N", "K", "data sets", "fit", "coverage", "as mislabelled", "open", "s.e.", "divergence", "log-loss",
    "least", "seconds", "failed",
)  # fmt: skip


class Cell(NamedTuple):
    """A kind of data sets."""

    scale: float
    N: int
    K: int

    @property
    def name(self) -> str:
        return f"{self.scale:g}-{self.N}-{self.K}"


class Simulated(NamedTuple):
    """Training rows, new rows, and the true probabilities (n, K) there."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    P: np.ndarray


def simulate(cell: Cell, seed: int) -> Simulated:
    """Draw one data set; those of the same seed differ by their scale alone."""
    scale, N, K = cell
    rng = np.random.default_rng((N, K, seed))
    X = rng.uniform(-HALF_SIDE, HALF_SIDE, size=(N + NEW_ROWS, D))
    apart = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    root = np.linalg.cholesky(np.exp(-0.5 * apart) + 1e-9 * np.eye(len(X)))
    F = scale * (root @ rng.standard_normal((len(X), K)))
    y = (F + rng.standard_normal(F.shape)).argmax(axis=1)
    return Simulated(X[:N], y[:N], X[N:], probit(F[N:]))


def probit(F: np.ndarray) -> np.ndarray:
    """Return the probability of each class that its f_k + N(0, 1) is the largest, (n, K), by the trapezoidal rule."""
    low, high = F.min(axis=1) - 9.0, F.max(axis=1) + 9.0
    t = np.linspace(low, high, 1 + 8 * math.ceil(float((high - low).max())))  # steps of an eighth at most
    z = t[:, :, None] - F
    log_cdf = log_ndtr(z)
    P = np.exp(log_cdf.sum(axis=-1, keepdims=True) - log_cdf - 0.5 * z * z).sum(axis=0)
    return P / P.sum(axis=1, keepdims=True)


def contender(method: str, cell: Cell) -> Any:
    """Return an unfitted classifier."""
    import posteriori as po

    classes = np.arange(cell.K)
    if method == KNOWN:
        kernel = po.kernels.RBF(1.0, fixed=True)
        return po.GPClassifier(
            kernel, scale=cell.scale, max_iter=0, calibrate=False, mislabelling=0.0, classes=classes
        )  # fmt: skip
    return po.GPClassifier(calibrate=method == DEFAULT, classes=classes)


def prior_variance(model: Any) -> float:
    """Return the variance of the first latent function where rows say nothing."""
    return float(model.predict_latent(np.full((1, D), FAR))[1][0, 0, 0])


def judged(cell: Cell, seed: int) -> dict[str, Any]:
    """Return the numbers of one data set, for every method."""
    data = simulate(cell, seed)
    found: dict[str, Any] = {"least": float(-xlogy(data.P, data.P).sum(axis=1).mean())}
    for method in METHODS:
        try:
            with quiet():
                found[method] = measured(contender(method, cell), data)
                if method == KNOWN and abs(found[method]["prior"] / cell.scale**2 - 1.0) > 1e-6:
                    raise RuntimeError("The fit does not have the variance that functions were drawn with.")
        except Exception as error:  # one data set that fails is counted, and the others go on
            found[method] = {"failure": f"{type(error).__name__}: {error}"[:200]}
    return found


def measured(model: Any, data: Simulated) -> dict[str, Any]:
    """Fit; return coverages, one for each level, the share of open probabilities, divergence, loss and seconds."""
    start = perf_counter()
    model.fit(data.X, data.y)
    seconds = perf_counter() - start
    truth, log_q = data.P, model.predict_log_proba(data.new)
    rate = model.mislabelling_
    mislabelled = (1.0 - rate) * truth + rate / (truth.shape[1] - 1) * (1.0 - truth)
    is_open = (np.exp(log_q) > OPEN) & (np.exp(log_q) < 1.0 - OPEN)
    shares: dict[str, list[float]] = {name: [] for name in SHARES}
    for level in LEVELS:
        lower, upper = model.predict_interval(data.new, level)
        held = within(truth, lower, upper)
        shares["covered"].append(float(held.mean()))
        shares["mislabelled"].append(float(within(mislabelled, lower, upper).mean()))
        shares["open"].append(float((held & is_open).mean()))  # of all, so that data sets add up
    loss = float(-(truth * log_q).sum(axis=1).mean())
    if not math.isfinite(loss):
        raise FloatingPointError("Probabilities are not numbers.")
    return {
        **shares,
        "is_open": float(is_open.mean()),
        "divergence": loss + float(xlogy(truth, truth).sum(axis=1).mean()),
        "loss": loss,
        "seconds": seconds,
        "prior": prior_variance(model),
    }


def within(P: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return (lower - ROUNDING <= P) & (P <= upper + ROUNDING)


def run(out: Path, n_datasets: int, jobs: int | None = None, *, go_on: bool = False, quick: bool = False) -> None:
    """Simulate, fit and count in processes; with ``go_on``, only data sets that the folder does not have yet."""
    cells = [Cell(*sizes) for sizes in product(SCALES, ROWS, CLASSES)]
    earlier = kept(out) if go_on else {}
    found = {cell: earlier.get(cell, {}) for cell in (cells[:1] if quick else cells)}
    stored = perf_counter()
    with one_thread_each(), ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(judged, cell, seed): (cell, seed)
            for cell, sets in found.items()
            for seed in range(n_datasets)
            if seed not in sets
        }
        for done, future in enumerate(as_completed(waiting), start=1):
            cell, seed = waiting[future]
            found[cell][seed] = rounded(future.result())
            if perf_counter() - stored > STORE_EVERY or done == len(waiting):
                store(out, found)
                stored = perf_counter()
                print(f"gp-coverage: {done} of {len(waiting)} data sets", flush=True)
    for line in store(out, found):
        for cells_of_row in rows(line):
            print(cells_of_row, flush=True)


def kept(out: Path) -> dict[Cell, dict[int, dict[str, Any]]]:
    """Return the data sets that the folder has, by their seeds."""
    return {
        Cell(line["scale"], line["shape"][0], line["shape"][2]): dict(zip(line["seeds"], line["sets"], strict=True))
        for line in records.read(out / "gp_coverage.jsonl")
    }


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes that start in this context have one thread for each library."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def rounded(value: Any) -> Any:
    """Return all numbers with five significant digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def store(out: Path, found: dict[Cell, dict[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Write what there is; return the lines of this run."""
    lines = [
        {
            "problem": cell.name,
            "scale": cell.scale,
            "shape": (cell.N, D, cell.K),
            "levels": LEVELS,
            "seeds": sorted(sets),
            "sets": [sets[seed] for seed in sorted(sets)],
        }
        for cell, sets in found.items()
        if sets
    ]
    if lines:
        records.write(out / "gp_coverage.md", page(records.store(out / "gp_coverage.jsonl", lines)))
    return lines


def ratio(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """Return sum(parts) / sum(wholes), and its standard error if data sets, one number each, are independent."""
    n, whole = len(parts), float(wholes.sum())
    if whole == 0.0:
        return math.nan, math.nan
    share = float(parts.sum()) / whole
    spread = float(((parts - share * wholes) ** 2).sum())
    return share, math.sqrt(n / (n - 1) * spread) / whole if n > 1 else math.nan


def summarise(sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of one method over data sets, each with its standard error."""
    ones = np.ones(len(sets))
    opened = np.array([one["is_open"] for one in sets])
    summary: dict[str, Any] = {
        name: [
            ratio(np.array([one[name][i] for one in sets]), opened if name == "open" else ones)
            for i in range(len(LEVELS))
        ]
        for name in SHARES
    }
    for name in ("is_open", "divergence", "loss"):
        summary[name] = ratio(np.array([one[name] for one in sets]), ones)
    return summary | {"seconds": median(one["seconds"] for one in sets)}


def rows(line: dict[str, Any]) -> list[list[str]]:
    """Return one kind's rows, one for each method."""
    least = float(np.mean([one["least"] for one in line["sets"]]))
    N, _, K = line["shape"]
    found = []
    for method in METHODS:
        sets = [one[method] for one in line["sets"] if "failure" not in one[method]]
        failed = len(line["sets"]) - len(sets)
        cells = [f"{line['scale']:g}", str(N), str(K), str(len(line["sets"])), method]
        if not sets:
            found.append([*cells, *[""] * 8, str(failed)])
            continue
        summary = summarise(sets)
        worst = max(error for name in SHARES for _, error in summary[name])
        found.append(
            [
                *cells, shown(summary["covered"]), shown(summary["mislabelled"]),
                f"{shown(summary['open'])} ({100 * summary['is_open'][0]:.0f})",
                f"{100 * worst:.1f}", "{:.4f} ± {:.4f}".format(*summary["divergence"]),
                "{:.4f} ± {:.4f}".format(*summary["loss"]), f"{least:.4f}", f"{summary['seconds']:.3g}", str(failed),
            ]
        )  # fmt: skip
    return found


def shown(pairs: list[tuple[float, float]]) -> str:
    """Return coverages in percent."""
    return " / ".join(f"{100 * share:.1f}" for share, _ in pairs)


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    ordered = sorted(lines, key=lambda line: (line["scale"], line["shape"]))
    return records.markdown(
        "Coverage of Gaussian processes", NOTES, HEADER, [cells for line in ordered for cells in rows(line)]
    )
