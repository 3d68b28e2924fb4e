"""The same Laplace posterior by laplace-torch: whether the covariance is the same, what fit and prediction cost.

One linear layer without bias on standardised columns and a column of ones, precision 1 on every weight, float64. The
peer starts at our mode (its own optimiser is not counted) and computes the full Hessian, which for a linear softmax
model is the Gauss-Newton matrix; ours makes its whole fit. Then 1,000 classes: what our predictions take there.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

import numpy as np

from benchmarks import problems, records
from benchmarks.adapters import library_version
from benchmarks.measure import memory_mb, reset_peak
from benchmarks.summary import show
from benchmarks.turns import by_turns, quiet, timed
from benchmarks.worker import SETTLE

PROBLEMS = ("digits-standardised", "100k-50-10")
QUICK = ("digits-standardised",)
BACKENDS = ("CurvlinopsGGN", "CurvlinopsHessian", "BackPackGGN", "AsdlGGN", "AsdlHessian", "GGNInterface")
QUICK_BACKENDS = ("BackPackGGN", "GGNInterface")
BATCHES, THREADS, LINKS = (100, 1000), (1, 2), ("probit", "mc")
SEARCH_ROWS, SEARCH_PREDICTED = 1_000, 200
"""Rows on which the peer's settings are compared: its time is proportional to them."""

CONTENDERS = 3
"""Settings of the peer that are timed again, by turns with ours."""

OURS = "ours"
PREDICTED, REPEATS, WANTED, AGREE = 1_000, 3, 20.0, 1e-6
MANY_CLASSES, MANY_FEATURES, MANY_ROWS, MANY_PREDICTED, MANY_MB = 1_000, 100, 20_000, 10_000, 2_000.0

HEADER = ("problem", "N", "D", "K", "what", "ours", "laplace-torch", "its setting", "times as fast", "goal", "met")

NOTES = f"""\
One linear layer on standardised columns and a column of ones, precision 1 on all weights, float64, both at our mode.
"covariance": largest difference as a share of the largest entry. "fit": ours whole (mode, curvature, evidence), theirs
`fit` at our mode, which is the curvature alone. "predict": {PREDICTED} rows, microseconds a row, after a first call;
ours is the default, an average over nodes, theirs `link_approx` as named ("mc" with 256 draws). laplace-torch with
`subset_of_weights="all"`, `hessian_structure="full"` and the fastest of its backends, batch sizes (of
{", ".join(map(str, BATCHES))}) and 1 or 2 threads, found for fit and for predictions apart: tried on {SEARCH_ROWS}
rows, the best {CONTENDERS} again by turns with ours. Medians. Last: our default fit of {MANY_CLASSES} classes and
{MANY_FEATURES} features predicts {MANY_PREDICTED} rows in a fresh process; memory is beyond what was resident before
the prediction."""


@dataclass(frozen=True)
class Setting:
    """How laplace-torch is run."""

    backend: str
    batch: int
    threads: int

    def __str__(self) -> str:
        return f"{self.backend}, batch {self.batch}, {self.threads} thread{'s' * (self.threads > 1)}"


def run(names: Iterable[str] | None, out: Path, *, quick: bool = False) -> None:
    """Run the problems one after another, then the one of many classes; the results are on disk after each."""
    if find_spec("laplace") is None:
        print("laplace-torch: skipped, laplace-torch is not installed")
    else:
        for name in QUICK if quick else PROBLEMS:
            if names is None or name in names:
                keep(out, study(name, QUICK_BACKENDS if quick else BACKENDS))
    many = (50, 20, 2_000, 1_000) if quick else (MANY_CLASSES, MANY_FEATURES, MANY_ROWS, MANY_PREDICTED)
    name = f"{many[0]}-classes"
    if names is None or name in names:
        keep(out, [many_classes(name, *many)])


def keep(out: Path, lines: list[dict[str, Any]]) -> None:
    """Store the lines, and write the page anew."""
    for line in lines:
        print({key: value for key, value in line.items() if key not in ("tried", "all_seconds")}, flush=True)
    records.write(out / "laplace_torch.md", page(records.store(out / "laplace_torch.jsonl", lines)))


def study(name: str, backends: Sequence[str]) -> list[dict[str, Any]]:
    """Return the comparison on one problem."""
    import torch

    import posteriori as po

    torch.set_default_dtype(torch.float64)
    X, y = problems.PROBLEMS[name]()
    X = np.column_stack([problems.standardise(X), np.ones(len(X))])
    new = X[np.random.default_rng(0).choice(len(X), PREDICTED)]

    def fit_ours() -> Any:
        return po.BayesianSoftmaxRegression(1.0, approximation="laplace", fit_intercept=False).fit(X, y)

    with quiet():
        ours = fit_ours()
        tried = search(backends, ours.coef_, X, y, new[:SEARCH_PREDICTED])
        fitted = {setting: peer(ours.coef_, setting) for setting in fastest(tried, "fit")}
        loaders = {setting: batches(X, y, setting.batch) for setting in fitted}

        def fit_theirs(setting: Setting) -> None:
            torch.set_num_threads(setting.threads)
            fitted[setting].fit(loaders[setting])

        fits = by_turns(
            {OURS: fit_ours, **{setting: lambda setting=setting: fit_theirs(setting) for setting in fitted}}, REPEATS
        )
        at_best = fitted[best_of(fits)]
        difference = agreement(ours.covariance_, at_best.posterior_covariance.numpy())
        state = at_best.state_dict()
        predictions = {link: time_predictions(ours, state, fastest(tried, link), new, link) for link in LINKS}
    common = {
        "problem": name,
        "shape": (*X.shape, ours.coef_.shape[0]),
        "covariance_difference": difference,
        "version": library_version("laplace-torch"),
        "torch": library_version("torch"),
    }
    lines = [common | {"what": "fit"} | compared(fits) | {"tried": {str(s): times for s, times in tried.items()}}]
    lines += [
        common | {"what": f"predict, {link}", "rows": PREDICTED, "probability_difference": off} | compared(times)
        for link, (times, off) in predictions.items()
    ]
    return lines


def time_predictions(
    ours: Any, state: dict[str, Any], settings: list[Setting], new: np.ndarray, link: str
) -> tuple[dict[Any, list[float]], float]:
    """Return the seconds of ours and of each setting, and by how much probabilities differ."""
    calls: dict[Any, Callable[[], Any]] = {OURS: lambda: ours.predict_proba(new)}
    for setting in settings:
        posterior = peer(ours.coef_, setting)
        posterior.load_state_dict(state)
        calls[setting] = lambda posterior=posterior, setting=setting: predict(posterior, setting, new, link)
    first = {key: call() for key, call in calls.items()}
    off = max(float(np.abs(first[OURS] - first[setting]).max()) for setting in settings)
    return by_turns(calls, 2 * REPEATS + 1), off


def fastest(tried: dict[Setting, dict[str, float]], what: str) -> list[Setting]:
    """Return the settings that are worth timing again."""
    return sorted(tried, key=lambda setting: tried[setting][what])[:CONTENDERS]


def best_of(times: dict[Any, list[float]]) -> Setting:
    """Return the peer's setting with the lowest median."""
    return min((key for key in times if key != OURS), key=lambda key: median(times[key]))


def compared(times: dict[Any, list[float]]) -> dict[str, Any]:
    """Return the medians of ours and of the peer at its best, for the record."""
    best = best_of(times)
    return {
        "setting": str(best),
        "ours": median(times[OURS]),
        "theirs": median(times[best]),
        "all_seconds": {str(key): seconds for key, seconds in times.items()},
    }


def search(
    backends: Sequence[str], coef: np.ndarray, X: np.ndarray, y: np.ndarray, new: np.ndarray
) -> dict[Setting, dict[str, float]]:
    """Return the seconds of fit and predictions for every setting that works, on some of the rows."""
    import torch

    tried: dict[Setting, dict[str, float]] = {}
    rows = np.random.default_rng(0).choice(len(X), min(SEARCH_ROWS, len(X)), replace=False)
    for setting in (Setting(*values) for values in product(backends, BATCHES, THREADS)):
        torch.set_num_threads(setting.threads)
        try:
            posterior = peer(coef, setting)
            times = {"fit": timed(lambda: posterior.fit(batches(X[rows], y[rows], setting.batch)))[0]}  # noqa: B023
            for link in LINKS:
                predict(posterior, setting, new, link)
                times[link] = timed(lambda: predict(posterior, setting, new, link))[0]  # noqa: B023
        except Exception as error:  # a backend that does not work with these versions is left out
            print(f"{setting}: {type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        tried[setting] = times
        print(setting, {key: round(value, 4) for key, value in times.items()}, flush=True)
    return tried


def peer(coef: np.ndarray, setting: Setting) -> Any:
    """Return an unfitted full Laplace approximation of a linear layer with these weights (K, D)."""
    import laplace.curvature
    import torch
    from laplace import Laplace

    layer = torch.nn.Linear(coef.shape[1], coef.shape[0], bias=False)
    layer.weight.data = torch.tensor(coef)
    return Laplace(
        layer,
        likelihood="classification",
        subset_of_weights="all",
        hessian_structure="full",
        prior_precision=1.0,
        backend=getattr(laplace.curvature, setting.backend),
    )


def batches(X: np.ndarray, y: np.ndarray, size: int) -> Any:
    """Return a loader of batches."""
    import torch
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

    rows = TensorDataset(torch.tensor(X), torch.tensor(y))
    # Rows are taken a batch at a time, which saves the loader from putting single rows together.
    return DataLoader(rows, batch_size=None, sampler=BatchSampler(SequentialSampler(rows), size, drop_last=False))


def predict(posterior: Any, setting: Setting, X: np.ndarray, link: str) -> np.ndarray:
    """Return the peer's class probabilities, (n, K)."""
    import torch

    torch.set_num_threads(setting.threads)
    return np.asarray(posterior(torch.from_numpy(X), pred_type="glm", link_approx=link, n_samples=256).detach())


def agreement(A: np.ndarray, B: np.ndarray) -> float:
    """Return the largest difference as a share of the largest entry of B."""
    return float(np.abs(A - B).max() / np.abs(B).max())


def many_classes(name: str, K: int, D: int, n_rows: int, n_predicted: int) -> dict[str, Any]:
    """Fit with defaults in one process, measure a prediction in another: the fit leaves free memory in its own."""
    with TemporaryDirectory(prefix="posteriori-benchmark-") as folder:
        fitted = in_fresh_process(fit_many, Path(folder), K, D, n_rows, n_predicted)
        predicted = in_fresh_process(predict_many, Path(folder))
    common = {"problem": name, "shape": (n_rows, D, K), "what": "predict, many classes", "rows": n_predicted}
    return common | fitted | predicted


def fit_many(folder: Path, K: int, D: int, n_rows: int, n_predicted: int) -> dict[str, Any]:
    """Fit, and leave the model and the rows to predict in the folder."""
    import posteriori as po

    X, y = problems.synthetic(n_rows + n_predicted, D, K)
    model = po.BayesianSoftmaxRegression(classes=np.arange(K))
    with quiet():
        seconds, _ = timed(lambda: model.fit(X[:n_rows], y[:n_rows]))
    np.save(folder / "new.npy", X[n_rows:])
    (folder / "model.pickle").write_bytes(pickle.dumps(model))
    return {"fit_seconds": seconds, "structure": model.solution_.structure}


def predict_many(folder: Path) -> dict[str, Any]:
    """Predict, the first time with an eye on memory."""
    model = pickle.loads((folder / "model.pickle").read_bytes())
    new = np.load(folder / "new.npy")
    with quiet():
        model.predict_proba(new[:2])  # imports and threads are not the prediction's memory
        sleep(SETTLE)
        before = reset_peak()
        start = perf_counter()
        P = model.predict_proba(new)
        seconds = perf_counter() - start
        peak_mb = None if before is None else memory_mb("VmHWM") - before
        again = [timed(lambda: model.predict_proba(new))[0] for _ in range(REPEATS - 1)]
    return {
        "ours": median([seconds, *again]),
        "peak_mb": peak_mb,
        "output_mb": P.nbytes / 1e6,
        "worst_sum": float(np.abs(P.sum(axis=1) - 1.0).max()),
    }


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's value, computed in a process of its own."""
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    value = connection.recv()
    process.join()
    return value


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    connection.send(function(*arguments))


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    rows = [row for line in lines for row in table(line)]
    versions = next((line for line in lines if "torch" in line), {"version": "none", "torch": "none"})
    notes = f"{NOTES} laplace-torch {versions['version']}, torch {versions['torch']}."
    return records.markdown("Against laplace-torch", notes, HEADER, rows)


def table(line: dict[str, Any]) -> list[list[str]]:
    """Return the rows of one record; that of a fit says too whether the covariances agree."""
    problem = [line["problem"], *map(str, line["shape"])]
    if "theirs" not in line:
        peak = math.nan if line["peak_mb"] is None else line["peak_mb"]
        cells = f"{line['ours']:.3g} s for {line['rows']} rows, peak {show(line['peak_mb'], '.0f')} MB"
        what = f"predict ({line['structure']}; fit {line['fit_seconds']:.3g} s)"
        return [[*problem, what, cells, "", "", "", f"< {MANY_MB:.0f} MB", "yes" if peak < MANY_MB else "no"]]
    faster = line["theirs"] / line["ours"]
    if line["what"] == "fit":
        times, unit = (line["ours"], line["theirs"]), "s"
    else:
        times, unit = (1e6 * line["ours"] / line["rows"], 1e6 * line["theirs"] / line["rows"]), "µs a row"
    rows = [
        [
            *problem, line["what"], *(f"{time:.3g} {unit}" for time in times), line["setting"], f"{faster:.1f}",
            f">= {WANTED:g}", "yes" if faster >= WANTED else "no",
        ]
    ]  # fmt: skip
    if line["what"] == "fit":
        off = line["covariance_difference"]
        rows.insert(
            0,
            [
                *problem,
                "covariance",
                f"differs by {off:.0e}",
                "",
                "",
                "",
                f"<= {AGREE:g}",
                "yes" if off <= AGREE else "no",
            ],
        )
    return rows
