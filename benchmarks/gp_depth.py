"""Where a second layer of Gaussian processes beats one, also in no more time than one layer takes.

The same folds for `GPClassifier()`, for `DeepGPClassifier()`, and for the latter stopped at the seconds that the former
took on the fold; tables, and two problems that are compositions of functions by construction. Folds are spread over
processes of one thread each, what is short first, and results are on disk as they come.

Needs numpy, scipy, scikit-learn, JAX and optax; from a checkout in which nothing is installed:
``PYTHONPATH=src python -m benchmarks gp-depth``.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, records
from benchmarks.gp_coverage import one_thread_each
from benchmarks.gp_quality import scores
from benchmarks.quality import FOLDS, LEAST, clustered, difference, mean_loss, merge_rare, paired
from benchmarks.turns import quiet, timed

BUNDLED = ("iris", "wine", "digits")
IN_FOLDER = ("seeds", "glass", "balance_scale", "vehicle", "vowel", "segment")
QUICK, QUICK_LIMIT = ("iris",), 0.0

GP, DEEP, EQUAL, GIVEN = "one layer", "two layers", "two layers, equal time", "hidden layer given"
METHODS = (GP, DEEP, EQUAL, GIVEN)
TRIAL = 40
"""Steps by which the seconds of one are measured."""
CACHED = "0.3"
"""Seconds that a compilation takes, at least, for all processes to share it."""
CLEAR = 2.0
"""Standard errors at which a difference is clear."""

MADE_ROWS, CLASSES, HALF_SIDE, SCALE = 800, 3, 2.0, 5.0
WARP, HIDDEN_SCALE = 0.8, 2.0

NOTES = f"""\
The first of {FOLDS} stratified folds (shuffled, seed 0) of every set, as many as "folds" says, training rows in random
order (seed 0); raw columns, scored as they are. "{GP}": `GPClassifier()`; "{DEEP}": `DeepGPClassifier()`; "{EQUAL}":
`DeepGPClassifier(max_iter=...)` with as many steps as fit into the seconds that {GP} took on this fold, at most the
default's 10,000. Steps are counted in whole chunks, as they are compiled, from a trial of {TRIAL} steps, with what
a fit takes besides steps. Learning rates fall at the latest at half and three quarters of `max_iter`, so that this is
better than a long fit interrupted. Where "limit" has seconds, {DEEP} has as many steps as fit into these, in the same
way: with all defaults it could take longer. Steps are medians, taken / allowed: a fit ends before where the energy
rises no more. Cells are mean log-loss of test rows in nats / share of test rows whose most probable class is wrong.
Differences of log-loss are to {GP}, on the folds that both have, plus or minus the standard error over test rows: below
zero, depth pays. Seconds are to fit, mean over folds, on one thread while others work beside, without what is paid
once for rows of a shape: "compile" is a first fit of one chunk of steps, compilation and all, the most of all folds.
Classes with fewer than {LEAST} rows are merged, the two smallest at a time. Every fold is in `gp_depth.jsonl`.

Made here, {MADE_ROWS} rows in [-{HALF_SIDE:g}, {HALF_SIDE:g}]^D, {CLASSES} classes, the label the largest of
{SCALE:g} f_k(h(x)) + N(0, 1), with f_k drawn from RBF(lengthscale 1). "warped": h(x) = {WARP:g} (x_1^3, x_2^3), so
that functions are flat in the middle and change fast at the sides. "composed": h(x) = {HIDDEN_SCALE:g} (g_1(x_1, x_2),
g_2(x_3, x_4)), both g drawn from RBF(lengthscale 1) too. "{GIVEN}": `GPClassifier()` on h(x) in place of x, about the
most that depth can win."""

HEADER = (
    "set", "N", "D", "K", "folds", GP, EQUAL, DEEP, GIVEN, f"{EQUAL}, difference", f"{DEEP}, difference",
    "seconds: one layer", "equal time", "two layers", "limit", "compile", "steps: equal time", "two layers", "failed",
)  # fmt: skip


class Rows(NamedTuple):
    """Rows of a set, and the true hidden layer (N, H) where the set was made here."""

    X: np.ndarray
    y: np.ndarray
    hidden: np.ndarray | None = None
    merged: int = 0


class Split(NamedTuple):
    """One fold: what a process needs to fit and to judge."""

    rows: Rows
    train: np.ndarray
    test: np.ndarray
    limit: float | None = None
    """Seconds of the long fit, where these are limited."""


class Judged(NamedTuple):
    """Losses of test rows, and numbers of one fold and method."""

    losses: np.ndarray
    numbers: dict[str, Any]


Results = dict[tuple[str, int], dict[str, Judged | str]]
"""By set and fold, then by method; a text says how it failed."""


# The sets


def warped_layer(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return features that hardly change in the middle, and fast at the sides."""
    return WARP * X**3


def composed_layer(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random function of the first two features, and one of the others."""
    return HIDDEN_SCALE * np.column_stack([drawn(X[:, :2], 1, rng), drawn(X[:, 2:], 1, rng)])


def drawn(X: np.ndarray, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Return functions drawn from RBF(lengthscale 1) at the rows, (N, columns)."""
    squares = (X**2).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0)
    root = np.linalg.cholesky(np.exp(-0.5 * apart) + 1e-8 * np.eye(len(X)))
    return np.asarray(root @ rng.standard_normal((len(X), columns)))


def made(layer: Callable[[np.ndarray, np.random.Generator], np.ndarray], D: int, seed: int) -> Rows:
    """Return rows whose labels are of functions of a hidden layer."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-HALF_SIDE, HALF_SIDE, size=(MADE_ROWS, D))
    hidden = layer(X, rng)
    F = SCALE * drawn(hidden, CLASSES, rng)
    return Rows(X, (F + rng.standard_normal(F.shape)).argmax(axis=1), hidden)


MADE: dict[str, Callable[[], Rows]] = {
    "warped": lambda: made(warped_layer, 2, seed=0),
    "composed": lambda: made(composed_layer, 4, seed=0),
}
"""Problems where depth should pay by construction."""


def sets(names: Iterable[str] | None, data: Path | None, *, quick: bool = False) -> dict[str, Rows]:
    """Return the sets that are asked for and at hand, the large ones first."""
    asked = (QUICK if quick else (*BUNDLED, *IN_FOLDER, *MADE)) if names is None else tuple(names)
    found: dict[str, Rows] = {}
    for name in asked:
        if name in MADE:
            found[name] = MADE[name]()
        elif (table := problems.load(name, data)) is not None:
            y, merged = merge_rare(table[1], LEAST)
            found[name] = Rows(np.asarray(table[0], dtype=float), y, None, merged)
        else:
            print(f"gp-depth: {name} skipped, --data FOLDER must have {name}.npz")
    return dict(sorted(found.items(), key=lambda item: item[1].X.size, reverse=True))


def splits(rows: Rows, folds: int, limit: float | None = None) -> Iterator[Split]:
    """Yield the first folds."""
    rng = np.random.default_rng(0)
    all_folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows.X, rows.y)
    for _, (in_order, test) in zip(range(folds), all_folds, strict=False):
        yield Split(rows, rng.permutation(in_order), test, limit)


# One fold, in a process of its own


def warm_up(folder: str) -> None:
    """Imports are nobody's time; what one process compiles, the others find in the folder."""
    import posteriori as po

    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # JAX is not imported yet
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = CACHED

    with quiet():
        po.GPClassifier().fit(*problems.synthetic(60, 3, 3))


def short_fits(split: Split) -> dict[str, Judged | str]:
    """Fit one layer, two in the same time, and one to the true hidden layer if there is one."""
    found: dict[str, Judged | str] = {GP: attempt(lambda: one_layer(split, split.rows.X))}
    if isinstance(one := found[GP], Judged):
        found[EQUAL] = attempt(lambda: two_layers(split, one.numbers["seconds"]))
    if (hidden := split.rows.hidden) is not None:
        found[GIVEN] = attempt(lambda: one_layer(split, hidden))
    return found


def long_fit(split: Split) -> dict[str, Judged | str]:
    """Fit two layers with all defaults, as long as they take or the limit allows."""
    return {DEEP: attempt(lambda: two_layers(split, split.limit))}


def attempt(judge: Callable[[], Judged]) -> Judged | str:
    """Return what is judged, or how it failed: the other fits go on."""
    try:
        with quiet():
            return judge()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def one_layer(split: Split, X: np.ndarray) -> Judged:
    import posteriori as po

    return judged(split, X, *fitted(split, X, po.GPClassifier()))


def two_layers(split: Split, seconds: float | None) -> Judged:
    """Fit two layers with all defaults, or as many steps as these seconds allow; compiled beforehand."""
    X, model = split.rows.X, deep()
    compiling, _ = fitted(split, X, deep(max_iter=1))
    if seconds is not None:
        took, trial = fitted(split, X, deep(max_iter=TRIAL))
        model.max_iter = min(steps_within(seconds, took, trial.solution_.trace), model.max_iter)
    numbers = {"compile_seconds": compiling, "allowed_seconds": seconds, "allowed_steps": model.max_iter}
    return judged(split, X, *fitted(split, X, model), **numbers)


def deep(**settings: Any) -> Any:
    import posteriori as po

    return po.DeepGPClassifier(**settings)


def steps_within(seconds: float, took: float, trace: list[Any]) -> int:
    """Return the steps, in whole chunks, that a fit takes in these seconds; at least a chunk.

    A trial took so many seconds: those of its trace were steps, the others are part of every fit.
    """
    ends = [0.0, *(chunk.seconds for chunk in trace)]
    of_chunk = median(b - a for a, b in pairwise(ends))
    besides = took - ends[-1]
    return int(trace[0].n_steps) * max(1, int((seconds - besides) / of_chunk))


def fitted(split: Split, X: np.ndarray, model: Any) -> tuple[float, Any]:
    """Return the seconds to fit the training rows, and the model."""
    return timed(lambda: model.fit(X[split.train], split.rows.y[split.train]))


def judged(split: Split, X: np.ndarray, seconds: float, model: Any, **more: Any) -> Judged:
    """Return losses of the test rows, and the numbers of the fit."""
    y = split.rows.y[split.test]
    log_p = model.predict_log_proba(X[split.test])
    if not np.isfinite(log_p).all():
        raise FloatingPointError("Log-probabilities are not finite.")
    numbers = {**scores(log_p, y), "seconds": seconds, "steps": model.n_iter_, "status": str(model.solution_.status)}
    return Judged(-log_p[np.arange(len(y)), y], numbers | more)


# All folds


def run(
    names: Iterable[str] | None,
    data: Path | None,
    out: Path,
    folds: int | None = None,
    limit: float | None = None,
    jobs: int | None = None,
    *,
    quick: bool = False,
) -> None:
    """Fit in processes: first what is short, the first folds of all sets first; results are on disk as they come."""
    found = sets(names, data, quick=quick)
    count = min(FOLDS, (1 if quick else FOLDS) if folds is None else folds)
    limit = QUICK_LIMIT if quick else limit
    of_set = {name: list(splits(rows, count, limit)) for name, rows in found.items()}
    results: Results = {}
    context = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory(prefix="posteriori-benchmark-") as folder,
        one_thread_each(),
        ProcessPoolExecutor(jobs, context, initializer=warm_up, initargs=(folder,)) as pool,
    ):
        waiting = {
            pool.submit(work, of_set[name][fold]): (name, fold)
            for work in (short_fits, long_fit)
            for fold in range(count)
            for name in found
        }
        for done, future in enumerate(as_completed(waiting), start=1):
            name, fold = waiting[future]
            results.setdefault((name, fold), {}).update(future.result())
            store(out, name, found[name], results)
            print(f"gp-depth: {done} of {len(waiting)}: {name}, fold {fold}: {told(future.result())}", flush=True)


def told(found: dict[str, Judged | str]) -> str:
    """Return what was found, in one line."""
    return "; ".join(
        f"{method} {one}"
        if isinstance(one, str)
        else f"{method} {one.numbers['loss']:.4f} / {one.numbers['error']:.3f} in {one.numbers['seconds']:.1f} s, "
        f"{one.numbers['steps']} steps"
        for method, one in found.items()
    )


def store(out: Path, name: str, rows: Rows, results: Results) -> None:
    """Write what there is of a set, and the page."""
    of_set = {fold: found for (problem, fold), found in results.items() if problem == name}
    shape = (*rows.X.shape, len(np.unique(rows.y)))
    lines = [
        {"problem": name, "shape": shape, "merged": rows.merged, "fold": fold, "method": method, **line}
        for fold in sorted(of_set)
        for method, line in with_excess(of_set[fold]).items()
    ]
    records.write(out / "gp_depth.md", page(records.store(out / "gp_depth.jsonl", lines)))


def with_excess(found: dict[str, Judged | str]) -> dict[str, dict[str, Any]]:
    """Return the lines of one fold by method, with sums over rows of their losses less those of one layer."""
    lines: dict[str, dict[str, Any]] = {}
    one = found.get(GP)
    for method in (method for method in METHODS if method in found):
        this = found[method]
        if isinstance(this, str):
            lines[method] = {"failure": this}
            continue
        lines[method] = {"rows": len(this.losses), **this.numbers}
        if isinstance(one, Judged):
            excess = this.losses - one.losses
            lines[method] |= {"excess_sum": float(excess.sum()), "excess_squares": float(excess @ excess)}
    return lines


# The page


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page: tables by their size, then what was made here."""
    shapes = {line["problem"]: (line["problem"] in MADE, *line["shape"]) for line in lines}
    by_set = {
        name: [line for line in lines if line["problem"] == name]
        for name in sorted(shapes, key=lambda name: shapes[name])
    }
    text = "\n".join(verdict(by_set, method) for method in (EQUAL, DEEP))
    return records.markdown("Depth", f"{NOTES}\n\n{text}", HEADER, [row(name, of) for name, of in by_set.items()])


def succeeded(lines: list[dict[str, Any]], method: str, key: str = "loss") -> list[dict[str, Any]]:
    """Return the lines of a method that have this number."""
    return [line for line in lines if line["method"] == method and line.get(key) is not None]


def row(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """Return one set's cells; a method that is not there yet has none."""
    by = {method: succeeded(lines, method) for method in METHODS}

    def cell(method: str) -> str:
        return f"{mean_loss(by[method]):.4f} / {mean_loss(by[method], 'error'):.3f}" if by[method] else ""

    def mean(method: str, key: str) -> str:
        return f"{fmean(line[key] for line in by[method]):.3g}" if by[method] else ""

    def steps(method: str) -> str:
        both = (median(line[key] for line in by[method]) for key in ("steps", "allowed_steps"))
        return " / ".join(f"{number:.0f}" for number in both) if by[method] else ""

    compiling = [line["compile_seconds"] for method in (DEEP, EQUAL) for line in by[method]]
    limits = {line["allowed_seconds"] for line in by[DEEP]} - {None}
    return [
        name + (f" ({lines[0]['merged']} class merged)" if lines[0]["merged"] else ""),
        *map(str, lines[0]["shape"]),
        " / ".join(str(len(by[method])) for method in (GP, EQUAL, DEEP)),
        *map(cell, (GP, EQUAL, DEEP, GIVEN)),
        *(difference(found) if (found := apart(lines, method)) else "" for method in (EQUAL, DEEP)),
        *(mean(method, "seconds") for method in (GP, EQUAL, DEEP)),
        f"{max(limits):g}" if limits else "",
        f"{max(compiling):.3g}" if compiling else "",
        *map(steps, (EQUAL, DEEP)),
        str(sum("failure" in line for line in lines)),
    ]


def apart(lines: list[dict[str, Any]], method: str) -> tuple[float, float] | None:
    """Return the mean over rows of the method's loss less that of one layer, and its standard error."""
    both = succeeded(lines, method, "excess_sum")
    return paired(both) if both else None


def verdict(by_set: dict[str, list[dict[str, Any]]], method: str) -> str:
    """Return where a method beats one layer, and the mean difference over tables, in words."""
    found = {name: pair for name, lines in by_set.items() if (pair := apart(lines, method)) is not None}

    def named(side: int) -> str:
        at = [name for name, (mean, error) in found.items() if clear(mean, error) == side]
        return ", ".join(at) or "none"

    tables = [mean for name, (mean, _) in found.items() if name not in MADE]
    overall = f"; mean over {len(tables)} tables {difference(clustered(tables))}" if len(tables) > 1 else ""
    return (
        f"- {method}: a log-loss lower than that of {GP} by more than {CLEAR:g} standard errors on: {named(-1)}; "
        f"higher on: {named(1)}; neither on: {named(0)}{overall}."
    )


def clear(mean: float, error: float) -> int:
    """Return the sign of a mean that is clear, else zero."""
    return 0 if abs(mean) <= CLEAR * error else int(np.sign(mean))
