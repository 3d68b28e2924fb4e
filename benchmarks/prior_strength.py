"""Whether intervals hold what they say when the prior's strength is not known: all defaults, data with a known truth.

Features are standard normal, weights N(0, 1/D), the logits of the mean row N(0, 1); the fit is told none of it.
Coverage is counted over class probabilities at new rows, coefficients against the mean over classes, contrasts of two
classes, and average marginal effects; its standard error is over data sets.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks import records
from benchmarks.problems import draw_labels
from benchmarks.turns import quiet

ROWS, CLASSES, FEATURES = (30, 50, 150, 1000), (3, 5), (5, 20)
LEVELS = (0.5, 0.8, 0.95)
QUANTITIES = ("probabilities", "coefficients", "contrasts", "effects")
NEW_ROWS = 50
ALLOWED, ALLOWED_FEW, FEW = 0.03, 0.05, 50
"""Points off the level that the goal allows, and with fewer rows than the last."""

NOTES = f"""\
`BayesianSoftmaxRegression()` with all defaults, which does not know that weights were drawn from N(0, 1/D) and the
logits of the mean row from N(0, 1). Coverage in percent at 50 / 80 / 95 %, over data sets: of the class probabilities
at {NEW_ROWS} new rows, of coefficients against the mean over classes (`summary("sum")`), of contrasts between the
first two classes, and of average marginal effects. Goal: within {100 * ALLOWED:g} points of the level from {FEW} rows
on, {100 * ALLOWED_FEW:g} below; "off" names what is farther off. Standard errors are at most "s.e.". "one strength"
is the share of fits that did not average over strengths of the prior."""

HEADER = ("N", "K", "D", "data sets", *QUANTITIES, "s.e.", "log-loss", "one strength", "off")


def simulate(N: int, K: int, D: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (N, D), labels, and weights (K, D) and intercepts (K,) that they were drawn with."""
    rng = np.random.default_rng((N, K, D, seed))
    X = rng.standard_normal((N, D))
    W = rng.standard_normal((K, D)) / math.sqrt(D)
    b = rng.standard_normal(K) - W @ X.mean(axis=0)
    return X, draw_labels(X @ W.T + b, rng), W, b


def effects(X: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the average slope of each class probability in each feature, (K, D)."""
    P = softmax(X @ W.T + b, axis=1)
    return np.einsum("nk,nkd->kd", P, W[None] - (P @ W)[:, None, :]) / len(X)


def judged(N: int, K: int, D: int, seed: int) -> dict[str, Any]:
    """Return the share of each quantity within its interval, one for each level, of one data set."""
    import posteriori as po

    X, y, W, b = simulate(N, K, D, seed)
    new = np.random.default_rng((1, N, K, D, seed)).standard_normal((NEW_ROWS, D))
    truth = softmax(new @ W.T + b, axis=1)
    with quiet():
        model = po.BayesianSoftmaxRegression(classes=np.arange(K), n_jobs=1).fit(X, y)
        against_mean, found = W - W.mean(axis=0), {name: [] for name in QUANTITIES}
        slopes = effects(X, W, b)
        for level in LEVELS:
            lower, upper = model.predict_interval(new, level)
            found["probabilities"].append(float(((lower <= truth) & (truth <= upper)).mean()))
            tables = {
                "coefficients": (model.summary("sum", level=level), against_mean),
                "contrasts": (model.contrast(0, 1, level=level), W[0] - W[1]),
                "effects": (model.marginal_effects(X, level=level), slopes),
            }
            for name, (table, values) in tables.items():
                rows = table[table["feature"].isin([f"x{d}" for d in range(D)])]
                held = (rows["lower"].to_numpy() <= values.ravel()) & (values.ravel() <= rows["upper"].to_numpy())
                found[name].append(float(held.mean()))
        loss = float(-(truth * model.predict_log_proba(new)).sum(axis=1).mean())
    return found | {"loss": loss, "one": "averaged" not in model.solution_.strength_reason}


def run(out: Path, n_datasets: int, *, quick: bool = False) -> None:
    """Simulate, fit and count; the results are on disk after each size."""
    sizes = [(50, 3, 5)] if quick else list(product(ROWS, CLASSES, FEATURES))
    for N, K, D in sizes:
        with ProcessPoolExecutor(1 if quick else os.cpu_count()) as pool:
            sets = list(pool.map(partial(judged, N, K, D), range(n_datasets), chunksize=10))
        line = {
            "problem": f"{N}-{K}-{D}",
            "shape": (N, K, D),
            "one": float(np.mean([one["one"] for one in sets])),
            "loss": float(np.mean([one["loss"] for one in sets])),
            "covered": {name: np.round([one[name] for one in sets], 4).tolist() for name in QUANTITIES},
        }
        stored = records.store(out / "prior_strength.jsonl", [line])
        records.write(out / "prior_strength.md", page(stored))
        print(row(line), flush=True)


def estimates(line: dict[str, Any], name: str) -> list[tuple[float, float]]:
    """Return the coverage of a quantity and its standard error, one pair for each level."""
    shares = np.asarray(line["covered"][name])
    errors = shares.std(axis=0, ddof=1) / math.sqrt(len(shares))
    return list(zip(shares.mean(axis=0).tolist(), errors.tolist(), strict=True))


def off(line: dict[str, Any]) -> list[str]:
    """Return the quantities and levels that are farther off than the goal allows."""
    allowed = ALLOWED if line["shape"][0] >= FEW else ALLOWED_FEW
    return [
        f"{name} {100 * level:g}"
        for name in QUANTITIES
        for level, (share, _) in zip(LEVELS, estimates(line, name), strict=True)
        if abs(share - level) > allowed
    ]


def row(line: dict[str, Any]) -> list[str]:
    """Return one size's cells."""
    N, K, D = line["shape"]
    cells = {name: estimates(line, name) for name in QUANTITIES}
    worst = max(error for pairs in cells.values() for _, error in pairs)
    return [
        str(N), str(K), str(D), str(len(line["covered"]["effects"])),
        *(" / ".join(f"{100 * share:.0f}" for share, _ in cells[name]) for name in QUANTITIES),
        f"{100 * worst:.1f}", f"{line['loss']:.4f}", f"{100 * line['one']:.0f} %", ", ".join(off(line)) or "none",
    ]  # fmt: skip


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    ordered = sorted(lines, key=lambda line: line["shape"])
    return records.markdown("Coverage when the prior's strength is not known", NOTES, HEADER, [row(x) for x in ordered])
