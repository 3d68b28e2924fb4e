"""Time and memory against the number of rows (D = 20, K = 5): time should be linear, memory nearly flat."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.adapters import Posteriori
from benchmarks.measure import GAP, relative_gap
from benchmarks.problems import synthetic
from benchmarks.softmax import optimum, search
from benchmarks.summary import show
from benchmarks.worker import Worker, stored

ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
QUICK = (1_000, 3_000)
LBFGS_ROWS = 1_000_000
"""The largest problem given to the peer."""

D, K, REPEATS = 20, 5, 3
OURS, LBFGS = "posteriori", "scikit-learn lbfgs"


def run(out: Path, budget: float, *, quick: bool = False) -> None:
    """Run every size; write the records, the table and the plot."""
    lines: list[dict[str, Any]] = []
    for n_rows in QUICK if quick else ROWS:
        lines.extend(study(n_rows, budget))
        print(*lines[-2:], sep="\n", flush=True)
    records.store(out / "scaling.jsonl", lines)
    records.write(out / "scaling.md", page(lines))
    plot(lines, out / "scaling.png")


def study(n_rows: int, budget: float) -> list[dict[str, Any]]:
    """Return the runs of one size: ours (median), and lbfgs at the loosest tolerance that reaches the gap."""
    X, y = synthetic(n_rows, D, K)
    input_mb = X.nbytes / 1e6
    with stored(X, y) as folder:
        del X, y
        with Worker(folder) as worker:
            ours = [worker.fit(Posteriori(), 5 * budget) for _ in range(REPEATS)]
        lowest = optimum(run.objective for run in ours)
        peers = list(search("lbfgs", folder, lowest, budget).values()) if n_rows <= LBFGS_ROWS else []
    lowest = optimum(run.objective for run in ours + peers)
    reached = [run for run in peers if relative_gap(run.objective, lowest) <= GAP]
    common = {"problem": f"scaling-{n_rows}", "n_rows": n_rows, "input_mb": input_mb}
    gap = max(relative_gap(run.objective, lowest) for run in ours)
    lines = [
        common
        | {
            "run": OURS,
            "seconds": median(run.seconds for run in ours),
            "peak_mb": ours[0].peak_mb,
            "gap": gap,
        }
    ]
    if reached:
        best = min(reached, key=lambda run: run.seconds)
        gap = relative_gap(best.objective, lowest)
        lines.append(common | {"run": LBFGS, "seconds": best.seconds, "peak_mb": best.peak_mb, "gap": gap})
    return lines


def slope(lines: list[dict[str, Any]], name: str) -> float:
    """Return the exponent of N in the run's time, by least squares on logarithms; NaN from fewer than two."""
    points = [
        (line["n_rows"], line["seconds"]) for line in lines if line["run"] == name and math.isfinite(line["seconds"])
    ]
    if len(points) < 2:
        return math.nan
    log_rows, log_seconds = np.log(points).T
    return float(np.polyfit(log_rows, log_seconds, deg=1)[0])


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    exponents = ", ".join(f"N^{slope(lines, name):.2f} ({name})" for name in (OURS, LBFGS))
    notes = (
        f"D = {D}, K = {K}. Time grows as {exponents}. Memory is beyond the input; the goal is below 200 MB "
        "at a million rows.\n\n![time and memory](scaling.png)"
    )
    header = ("N", "run", "seconds", "peak (MB)", "input (MB)", "gap")
    rows = [
        (
            line["n_rows"],
            line["run"],
            f"{line['seconds']:.3g}",
            show(line["peak_mb"], ".0f"),
            show(line["input_mb"], ".0f"),
            f"{line['gap']:.0e}",
        )
        for line in lines
    ]
    return records.markdown("Scaling with the number of rows", notes, header, rows)


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw time and peak memory against N on logarithmic axes, with a guide of slope one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (time, memory) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for name, colour, marker in ((OURS, "#0b6e99", "o"), (LBFGS, "#d1662b", "s")):
        chosen = [line for line in lines if line["run"] == name]
        N = [line["n_rows"] for line in chosen]
        style = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 2, "label": name}
        time.plot(N, [line["seconds"] for line in chosen], **style)
        memory.plot(N, [line["peak_mb"] if line["peak_mb"] else math.nan for line in chosen], **style)
    sizes = np.array(sorted({line["n_rows"] for line in lines}), dtype=float)
    last = max((line for line in lines if line["run"] == OURS), key=lambda line: line["n_rows"])
    time.plot(
        sizes,
        last["seconds"] * sizes / sizes[-1],
        color="0.55",
        linestyle="--",
        linewidth=1.2,
        label="slope one",
    )
    memory.plot(sizes, sizes * D * 8 / 1e6, color="0.55", linestyle="--", linewidth=1.2, label="the input itself")
    for axes, title, unit in (
        (time, "Time to fit", "seconds"),
        (memory, "Peak memory beyond the input", "MB"),
    ):
        axes.set(xscale="log", yscale="log", xlabel="rows N", ylabel=unit)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.grid(which="major", color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.suptitle(
        f"Softmax regression, D = {D}, K = {K}, to a relative gap of {GAP:g}", x=0.01, ha="left", color="0.3"
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
