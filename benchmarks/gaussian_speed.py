"""Seconds to fit Gaussian classes and to predict, against scikit-learn's class for the same structure.

For every problem and structure: ours by maximum likelihood and by default estimate and prior, with two threads;
scikit-learn with 1 and with 2 BLAS threads; all by turns in one process, so that ratios are of neighbours in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import problems, records
from benchmarks.adapters import library_version
from benchmarks.gaussian_adapters import GaussianPosteriori, GaussianScikitLearn
from benchmarks.problems import Data
from benchmarks.turns import by_turns, quiet

Adapter = GaussianPosteriori | GaussianScikitLearn

PROBLEMS = ("gaussian-1M-20-5", "gaussian-100k-100-10")
QUICK = ("gaussian-2k-20-5",)
THREADS = (1, 2)
"""BLAS threads of the peer; ours has the larger number."""
REPEATS, QUICK_REPEATS = 9, 3

FIT, PREDICT = "fit", "predict_proba"
DEFAULT = GaussianPosteriori(threads=max(THREADS))
PEERS = {
    "diagonal": GaussianScikitLearn("diagonal"),
    "tied": GaussianScikitLearn("tied", (("solver", "lsqr"),)),
    "full": GaussianScikitLearn("full"),
}
GOALS = {"diagonal": 2.0, "tied": 5.0, "full": 5.0}
"""Times as fast as the peer that maximum likelihood is to be."""

HEADER = ("problem", "N", "D", "K", "what", "ours", "seconds", "peer", "its seconds", "peer / ours", "goal", "met")

NOTES = f"""\
Simulated Gaussian classes, each with a mean and a covariance of its own. Medians of runs by turns in one process, each
after a rest; "peer / ours" is the median over turns of the ratio of both in the same turn. Ours is
`GaussianClassifier(covariance, estimate=..., n_jobs={max(THREADS)})`; "mle" has a goal, "bayes" (prior chosen by
left-out rows) and all defaults, which also choose the structure, are for information. The peer has the better of 1 and
2 BLAS threads. {PREDICT} is of all rows that were fitted. Every time is in `gaussian_speed.jsonl`."""


def run(names: Sequence[str], out: Path, *, quick: bool = False) -> None:
    """Run the problems one after another; the results are on disk after each."""
    for name in names:
        X, y = problems.GAUSSIAN[name]()
        shape = (*X.shape, len(np.unique(y)))
        lines = study((X, y), QUICK_REPEATS if quick else REPEATS)
        lines = [{"problem": name, "shape": shape, **line} for line in lines]
        records.write(out / "gaussian_speed.md", page(records.store(out / "gaussian_speed.jsonl", lines)))
        for line in lines:
            print(f"{name}: {line['what']:13} {label(line):45} {median(line['all_seconds']):.4g} s", flush=True)


def contenders() -> list[Adapter]:
    """Return all that are timed, those of one structure side by side."""
    found: list[Adapter] = [DEFAULT]
    for structure, peer in PEERS.items():
        found += [GaussianPosteriori(structure, estimate, max(THREADS)) for estimate in ("mle", "bayes")]
        found += [replace(peer, threads=n) for n in THREADS]
    return found


def study(data: Data, repeats: int) -> list[dict[str, Any]]:
    """Return the seconds of every contender, to fit and to predict, in all turns."""
    X, y = data
    functions: dict[tuple[Adapter, str], Callable[[], object]] = {}
    with quiet():
        for adapter in contenders():
            # The first fit and the first predictions, which also pay for imports and thread pools, are not timed.
            model = adapter.fit(X, y)
            adapter.predict_proba(model, X)
            functions[adapter, FIT] = partial(adapter.fit, X, y)
            functions[adapter, PREDICT] = partial(adapter.predict_proba, model, X)
        times = by_turns(functions, repeats)
    return [
        {
            "what": what,
            "library": adapter.library,
            "version": library_version(adapter.library),
            "structure": adapter.structure,
            "estimate": adapter.estimate if isinstance(adapter, GaussianPosteriori) else None,
            "setting": str(adapter) if isinstance(adapter, GaussianScikitLearn) else None,
            "threads": adapter.threads,
            "seconds": median(times[adapter, what]),
            "all_seconds": times[adapter, what],
        }
        for adapter, what in functions
    ]


def label(line: dict[str, Any]) -> str:
    """Return what was run, in words."""
    if line["estimate"] is None:
        return f"{line['setting']}, {line['threads']} thread{'s' * (line['threads'] > 1)}"
    return "all defaults" if line["structure"] == "auto" else f"{line['structure']}, {line['estimate']}"


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = dict.fromkeys(line["problem"] for line in lines)
    rows = [row for name in names for row in table([line for line in lines if line["problem"] == name])]
    return records.markdown("Speed of Gaussian classifiers", NOTES, HEADER, rows)


def table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of one problem: those with a goal, then the others."""
    mine = [line for line in lines if line["estimate"] is not None]
    problem = [lines[0]["problem"], *map(str, lines[0]["shape"])]
    rows = []
    for line in sorted(mine, key=lambda line: ("mle", "bayes").index(line["estimate"]) + (line["structure"] == "auto")):
        cells = [*problem, line["what"], label(line), f"{line['seconds']:.3g}"]
        peers = [
            other
            for other in lines
            if other["estimate"] is None and (other["structure"], other["what"]) == (line["structure"], line["what"])
        ]
        if not peers:
            rows.append([*cells, "", "", "", "", ""])
            continue
        peer = min(peers, key=lambda other: other["seconds"])
        times = ratio(line, peer)
        goal = GOALS[line["structure"]] if line["estimate"] == "mle" else None
        rows.append(
            [
                *cells, label(peer), f"{peer['seconds']:.3g}", f"{times:.2f}",
                *(("", "") if goal is None else (f">= {goal:g}", "yes" if times >= goal else "no")),
            ]
        )  # fmt: skip
    return rows


def ratio(mine: dict[str, Any], peer: dict[str, Any]) -> float:
    """Return the median over turns of the peer's seconds in units of ours."""
    return median(b / a for a, b in zip(mine["all_seconds"], peer["all_seconds"], strict=True))
