"""Whether intervals hold what they say: simulated data with a known prior, for which exact ones cover at their level.

Features are standard normal, weights N(0, 1/alpha), the logits of the mean training row N(0, 2.5^2): the very prior
that the fit is given. Coverage is counted over class probabilities at new rows; its standard error is over data sets.
"""

from __future__ import annotations

import math
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from benchmarks import records
from benchmarks.problems import draw_labels
from benchmarks.turns import quiet

D, K = 5, 3
N, NEW_ROWS = 10 * K * D, 100
ALPHAS = {"alpha = D": float(D), "alpha = D / 4": D / 4}
LEVELS = (0.5, 0.8, 0.95)
METHODS = ("auto", "laplace", "variational", "importance")
INTERCEPT_SD = 2.5
ALLOWED = 0.02
"""Points off the level that the goal allows, at alpha = D, besides two standard errors."""

NOTES = f"""\
K = {K} classes, D = {D} standard-normal features, N = 10 K D = {N} rows; weights drawn from N(0, 1/alpha), the logits
of the mean row from N(0, {INTERCEPT_SD}^2), and the fit is given this prior, so that exact intervals would cover at
their level on average. Coverage of the {K} class probabilities at {NEW_ROWS} new rows of each data set, in percent,
plus or minus the standard error over data sets. "auto" is the default; "importance" weighs draws towards the exact
posterior, and so checks the simulation itself. Goal, for "auto" at alpha = D: within {100 * ALLOWED:g} points plus two
standard errors of the level."""


class Simulated(NamedTuple):
    """Training rows, new rows and the true probabilities (n, K) there."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    P_new: np.ndarray


def simulate(alpha: float, seed: int) -> Simulated:
    """Draw one data set from the prior."""
    rng = np.random.default_rng(seed)
    X, X_new = rng.standard_normal((N, D)), rng.standard_normal((NEW_ROWS, D))
    W = rng.standard_normal((K, D)) / math.sqrt(alpha)
    b = INTERCEPT_SD * rng.standard_normal(K) - W @ X.mean(axis=0)
    return Simulated(X, draw_labels(X @ W.T + b, rng), X_new, softmax(X_new @ W.T + b, axis=1))


def covered(approximation: str, alpha: float, data: Simulated) -> tuple[list[float], str]:
    """Return the share of probabilities within their interval, one per level, and the approximation used."""
    import posteriori as po

    prior = po.GaussianPrior(precision=alpha, intercept_precision=INTERCEPT_SD**-2)
    model = po.BayesianSoftmaxRegression(prior, approximation=approximation, classes=np.arange(K))
    model.fit(data.X, data.y)
    shares = []
    for level in LEVELS:
        lower, upper = model.predict_interval(data.X_new, level)
        shares.append(float(((lower <= data.P_new) & (data.P_new <= upper)).mean()))
    return shares, model.solution_.approximation


def run(out: Path, n_datasets: int) -> None:
    """Simulate, fit and count; write the records, the table and the plot."""
    lines = []
    for name, alpha in ALPHAS.items():
        start = perf_counter()
        shares: dict[str, list[list[float]]] = {method: [] for method in METHODS}
        used: dict[str, list[str]] = {method: [] for method in METHODS}
        with quiet():
            for seed in range(n_datasets):
                data = simulate(alpha, seed)
                for method in METHODS:
                    share, approximation = covered(method, alpha, data)
                    shares[method].append(share)
                    used[method].append(approximation)
        for method in METHODS:
            lines.append(
                {
                    "problem": name,
                    "alpha": alpha,
                    "shape": (N, D, K),
                    "method": method,
                    "levels": LEVELS,
                    "used": {kind: used[method].count(kind) for kind in dict.fromkeys(used[method])},
                    "covered": [[round(share, 6) for share in row] for row in shares[method]],
                }
            )
            print(name, method, [f"{m:.4f} ± {e:.4f}" for m, e in estimates(lines[-1])], flush=True)
        print(f"{name}: {perf_counter() - start:.0f} s", flush=True)
    stored = records.store(out / "coverage.jsonl", lines)
    records.write(out / "coverage.md", page(stored))
    plot(stored, out / "coverage.png")


def estimates(line: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the coverage and its standard error over data sets, one pair per level."""
    shares = np.asarray(line["covered"])
    errors = shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    return list(zip(shares.mean(axis=0).tolist(), errors.tolist(), strict=True))


def met(line: dict[str, Any]) -> bool:
    """Say whether every level is held to within the allowance plus two standard errors."""
    return all(
        abs(share - level) <= ALLOWED + 2.0 * error
        for level, (share, error) in zip(line["levels"], estimates(line), strict=True)
    )


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    header = ("prior", "data sets", "approximation", *(f"{100 * level:g} %" for level in LEVELS), "within")
    rows = [
        (
            line["problem"],
            len(line["covered"]),
            line["method"] + (f" ({chosen(line)})" if line["method"] == "auto" else ""),
            *(f"{100 * share:.1f} ± {100 * error:.1f}" for share, error in estimates(line)),
            "yes" if met(line) else "no",
        )
        for line in lines
    ]
    notes = f"{NOTES}\n\n![coverage](coverage.png)"
    return records.markdown("Coverage of intervals", notes, header, rows)


def chosen(line: dict[str, Any]) -> str:
    """Return how often each approximation was the one used."""
    return ", ".join(f"{count} {kind}" for kind, count in line["used"].items())


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw coverage less level, with two standard errors, for each prior."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(line["problem"] for line in lines))
    figure, panels = plt.subplots(1, len(names), figsize=(10, 4.0), layout="constrained", sharey=True, squeeze=False)
    colours = {"auto": "#0b6e99", "laplace": "#d1662b", "variational": "#5b8c3a", "importance": "0.45"}
    for axes, name in zip(panels[0], names, strict=True):
        axes.axhspan(-100 * ALLOWED, 100 * ALLOWED, color="0.94", linewidth=0)
        axes.axhline(0.0, color="0.55", linewidth=1.0)
        for i, line in enumerate(line for line in lines if line["problem"] == name):
            points = estimates(line)
            off = [100 * (share - level) for level, (share, _) in zip(line["levels"], points, strict=True)]
            x = np.arange(len(off)) + 0.14 * (i - 1.5)
            style = {"color": colours[line["method"]], "label": line["method"]}
            axes.errorbar(x, off, yerr=[200 * error for _, error in points], fmt="o", markersize=5, capsize=2, **style)
        axes.set_xticks(range(len(LEVELS)), [f"{100 * level:g} %" for level in LEVELS])
        axes.set_title(name, loc="left", fontweight="bold")
        axes.set_xlabel("level of the interval")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.9", linewidth=0.8)
    panels[0][0].set_ylabel("coverage less level, points")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
