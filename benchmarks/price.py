"""The price of a posterior: mode, full Laplace covariance and evidence against a default point estimate of the peer.

For every problem, on standardised columns: ours with a given prior, with one chosen by the evidence and with all
defaults; scikit-learn's ``LogisticRegression()`` with 1 and with 2 BLAS threads; all by turns in one process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import problems, records
from benchmarks.adapters import BayesianPosteriori, ScikitLearnDefault, library_version
from benchmarks.measure import Measurement
from benchmarks.summary import show
from benchmarks.turns import ordered
from benchmarks.worker import Worker, stored

PROBLEMS = ("digits-standardised", "100k-50-10", "1M-20-5")
QUICK = ("digits-standardised", "2k-20-5")
THREADS = (1, 2)

FIXED, EVIDENCE, DEFAULT, PEER = "fixed prior", "evidence", "all defaults", "LogisticRegression()"
GOALS = {FIXED: 1.0, EVIDENCE: 3.0, DEFAULT: 10.0}
"""Most that a fit may cost: the first in units of the peer, the others in units of the first."""

OURS = {
    FIXED: BayesianPosteriori(1.0, "laplace"),
    EVIDENCE: BayesianPosteriori("evidence", "laplace"),
    DEFAULT: BayesianPosteriori(),
}

HEADER = ("problem", "N", "D", "K", "fit", "seconds", "peak (MB)", "passes", "in units of", "ratio", "goal", "met")

NOTES = f"""\
Medians of runs by turns in one process, on standardised columns. "{FIXED}": `BayesianSoftmaxRegression(prior=1.0,
approximation="laplace")`, that is the mode, the full Laplace covariance and the log evidence. "{EVIDENCE}":
`approximation="laplace"` with the prior chosen by the evidence. "{DEFAULT}": `BayesianSoftmaxRegression()`. The peer is
scikit-learn's `LogisticRegression()`, a point estimate to its own loose tolerance, with the better of 1 and 2 BLAS
threads. Memory is beyond the input; passes are those over the data. Every fit is in `price.jsonl`."""


def run(names: Sequence[str], out: Path, budget: float) -> None:
    """Run the problems one after another; the results are on disk after each."""
    for name in names:
        X, y = problems.PROBLEMS[name]()
        X = problems.standardise(X)
        shape = (*X.shape, len(np.unique(y)))
        with stored(X, y) as folder:
            del X, y
            lines = [
                {"problem": name, "shape": shape, **line}
                for line in study(folder, budget)
                if line["seconds"] is not None
            ]
        for line in lines:
            print(
                f"{name}: {line['fit']:22} threads={line['threads']} {line['seconds']:.4g} s {line['status']}",
                flush=True,
            )
        records.write(out / "price.md", page(records.store(out / "price.jsonl", lines)))


def study(folder: Path, budget: float) -> list[dict[str, Any]]:
    """Return the runs on one stored problem, the median of each."""
    adapters = {(name, None): adapter for name, adapter in OURS.items()}
    adapters |= {(PEER, threads): ScikitLearnDefault(threads) for threads in THREADS}
    peaks: dict[Any, Measurement] = {}
    for key, adapter in adapters.items():
        with Worker(folder) as worker:  # peak memory is that of a first fit
            peaks[key] = worker.fit(adapter, 5 * budget)
    runs: dict[Any, list[Measurement]] = {key: [] for key in adapters}
    repeats = n_repeats(max(run.seconds for run in peaks.values()))
    with Worker(folder) as worker:
        for adapter in adapters.values():
            worker.fit(adapter, 5 * budget)
        for turn in range(repeats):
            for key in ordered(list(adapters), turn):
                runs[key].append(worker.fit(adapters[key], 5 * budget))
    return [
        {
            "fit": name,
            "threads": threads,
            "library": adapters[name, threads].library,
            "version": library_version(adapters[name, threads].library),
            "repeats": repeats,
            "seconds": median(run.seconds for run in runs[name, threads]),
            "all_seconds": [run.seconds for run in runs[name, threads]],
            "peak_mb": peaks[name, threads].peak_mb,
            **{"status": "", **runs[name, threads][-1].info},
        }
        for name, threads in adapters
    ]


def n_repeats(seconds: float) -> int:
    """Return how often fits are repeated when the longest takes this long: 3 to 15 times."""
    return 3 if math.isnan(seconds) else min(15, max(3, int(10.0 / max(seconds, 1e-3))))


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = dict.fromkeys(line["problem"] for line in lines)
    rows = [row for name in names for row in table([line for line in lines if line["problem"] == name])]
    return records.markdown("The price of a posterior", NOTES, HEADER, rows)


def table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of one problem: the peer at its best, then ours."""
    peer = min((line for line in lines if line["fit"] == PEER), key=lambda line: line["seconds"])
    mine = {line["fit"]: line for line in lines if line["fit"] in OURS}
    problem = [lines[0]["problem"], *map(str, lines[0]["shape"])]
    setting = f"{PEER}, {peer['threads']} thread{'s' * (peer['threads'] > 1)}"
    rows = [[*problem, setting, f"{peer['seconds']:.3g}", show(peer["peak_mb"], ".0f"), "", "", "", "", ""]]
    for name, line in mine.items():
        unit, base = (PEER, peer) if name == FIXED else (FIXED, mine[FIXED])
        ratio = line["seconds"] / base["seconds"]
        chosen = f" ({line['structure']}, {line['approximation']})" if "structure" in line else ""
        rows.append(
            [
                *problem, name + chosen, f"{line['seconds']:.3g}", show(line["peak_mb"], ".0f"),
                show(line["passes"], "g"), unit, f"{ratio:.2f}", f"<= {GOALS[name]:g}",
                "yes" if ratio <= GOALS[name] else "no",
            ]
        )  # fmt: skip
    return rows
