"""Softmax regression: ours with default settings against scikit-learn at its best, on the same raw input.

For every problem: a first run of ours and a tight one for the optimum J*; for each of the peer's solvers a
search over tolerances and threads within a budget of seconds; then ours and the runs that reached the gap,
again, by turns, in one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks import problems, records, summary
from benchmarks.adapters import Adapter, Posteriori, ScikitLearn
from benchmarks.measure import GAP, OVER_BUDGET, Measurement, relative_gap
from benchmarks.records import Record
from benchmarks.worker import Worker, stored

SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky")
TOLERANCES = tuple(10.0**-digits for digits in range(4, 11))
THREADS = (1, 2)
HESSIAN_BYTES = 2e9
"""newton-cholesky is left out where its Hessian, (KD)^2 doubles, is larger."""

OURS = Posteriori()

Runs = dict[Adapter, Measurement]


def run(names: Sequence[str], data: Path | None, out: Path, budget: float) -> None:
    """Run the problems one after another; the results are on disk after each."""
    for name in names:
        loaded = problems.load(name, data)
        if loaded is None:
            print(f"{name}: skipped, there is no {name}.npz (give its folder with --data)")
            continue
        X, y = loaded
        shape = (*X.shape, len(np.unique(y)))
        with stored(X, y) as folder:
            del X, y, loaded
            runs = study(name, shape, folder, budget)
        lines = records.store(out / "softmax.jsonl", map(vars, runs))
        records.write(out / "softmax.md", summary.page(lines))


def study(name: str, shape: tuple[int, int, int], folder: Path, budget: float) -> list[Record]:
    """Return the records of all runs on one problem."""

    def record(role: str, adapter: Adapter, measured: Measurement, repeats: int = 1) -> Record:
        made = Record.of(name, shape, role, adapter, measured, repeats)
        print(f"{name}: {made.describe()}", flush=True)
        return made

    tight = Posteriori(tol=1e-14)
    with Worker(folder) as worker:
        ours = worker.fit(OURS, 5 * budget)
        reference = worker.fit(tight, 5 * budget)
    made = [record("search", OURS, ours), record("reference", tight, reference)]
    # Without a run of ours J* is NaN: no gap is known and the search tries every tolerance.
    lowest = optimum(item.objective for item in made)

    found: Runs = {}
    for solver in SOLVERS:
        if solver == "newton-cholesky" and (size := 8.0 * (shape[1] * shape[2]) ** 2) > HESSIAN_BYTES:
            status = f"its Hessian needs {size / 1e9:.0f} GB"
            skipped = Measurement(seconds=math.nan, info={"status": status})
            made.append(record("skipped", ScikitLearn(solver, TOLERANCES[0]), skipped))
            continue
        for adapter, measured in search(solver, folder, lowest, budget).items():
            made.append(record("search", adapter, measured))
            found[adapter] = measured

    lowest = optimum(item.objective for item in made)
    chosen = {adapter: found[adapter] for adapter in contenders(found, lowest)}
    if not math.isnan(ours.objective):
        chosen = {OURS: ours, **chosen}
    with Worker(folder) as worker:
        for adapter, (measured, repeats) in by_turns(chosen, worker, budget).items():
            made.append(record("timed", adapter, measured, repeats))
    lowest = optimum(item.objective for item in made)
    return [records.with_gap(item, lowest) for item in made]


def search(solver: str, folder: Path, lowest: float, budget: float) -> Runs:
    """Tighten the solver's tolerance until the gap is reached.

    The loosest tolerance is tried with every number of threads, each with its share of the budget, the others
    with the number that was faster, and the last again with the rest. Only the first run that ends is in a
    fresh process: its peak memory stands for all.
    """
    runs: Runs = {}

    def attempt(tol: float, threads: int, limit: float = math.inf) -> Measurement:
        adapter = ScikitLearn(solver, tol, threads)
        measured = worker.fit(adapter, max(0.0, min(limit, deadline - perf_counter())))
        if measured.seconds < 1.0 and not math.isnan(measured.objective):
            # That was the warm-up.
            measured = replace(worker.fit(adapter, budget), peak_mb=measured.peak_mb)
        if perf_counter() >= deadline and not reached(measured):
            measured = replace(measured, info={**measured.info, "status": OVER_BUDGET})
        runs[adapter] = measured
        return measured

    def reached(measured: Measurement) -> bool:
        return relative_gap(measured.objective, lowest) <= GAP

    with Worker(folder) as worker:
        deadline = perf_counter() + budget
        tol, *tighter = TOLERANCES
        loosest = {threads: attempt(tol, threads, budget / len(THREADS)) for threads in THREADS}
        best, *rest = sorted(THREADS, key=lambda threads: loosest[threads].seconds)
        if not any(map(reached, loosest.values())):
            for tol in tighter:
                if perf_counter() >= deadline or reached(attempt(tol, best)):
                    break
            for threads in rest:
                if perf_counter() < deadline:
                    attempt(tol, threads)
    peak_mb = next((run.peak_mb for run in runs.values() if run.peak_mb is not None), None)
    return {adapter: replace(run, peak_mb=peak_mb) for adapter, run in runs.items()}


def contenders(found: Runs, lowest: float) -> list[Adapter]:
    """Return what to time again: each solver's fastest run that reached the gap, and any near the fastest."""
    reached = {adapter: run for adapter, run in found.items() if relative_gap(run.objective, lowest) <= GAP}
    near = 2.0 * min((run.seconds for run in reached.values()), default=0.0)
    best = {
        solver: min(run.seconds for adapter, run in reached.items() if adapter.solver == solver)
        for solver in {adapter.solver for adapter in reached}
    }
    return [adapter for adapter, run in reached.items() if run.seconds <= max(near, best[adapter.solver])]


def by_turns(chosen: Runs, worker: Worker, limit: float) -> dict[Adapter, tuple[Measurement, int]]:
    """Fit the chosen by turns; return for each its typical run and how often it was repeated."""
    repeats = {adapter: n_repeats(run.seconds) for adapter, run in chosen.items()}
    if OURS in repeats:
        repeats[OURS] = max(repeats.values())
    runs: dict[Adapter, list[Measurement]] = {adapter: [] for adapter in chosen}
    for adapter, run in chosen.items():
        if run.seconds < 1.0:
            worker.fit(adapter, limit)
    for turn in range(max(repeats.values(), default=0)):
        for adapter, times in repeats.items():
            if turn < times and all(run.info.get("status") != OVER_BUDGET for run in runs[adapter]):
                runs[adapter].append(worker.fit(adapter, limit))
    return {adapter: (typical(made, chosen[adapter]), len(made)) for adapter, made in runs.items()}


def n_repeats(seconds: float) -> int:
    """Return how often a fit of this length is repeated: 3 to 30 times, about three seconds in all."""
    return min(30, max(3, int(3.0 / seconds)))


def typical(runs: list[Measurement], first: Measurement) -> Measurement:
    """Return the worst answer of the runs that ended, with their median time and the first one's peak."""
    ended = [run for run in runs if not math.isnan(run.objective)] or runs
    worst = max(ended, key=lambda run: run.objective)
    seconds = median(run.seconds for run in ended)
    return replace(worst, seconds=seconds, peak_mb=first.peak_mb)


def optimum(objectives: Iterable[float]) -> float:
    """Return the lowest known objective, NaN where none is."""
    return min((value for value in objectives if not math.isnan(value)), default=math.nan)
