"""Whether `loo` says of each row what a fit without that row would, and how much less it takes.

Six small sets: the total log-probability of left-out labels by formula, the same with unreliable rows fitted again, and
by brute force, a fit without each row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import problems, records
from benchmarks.quality import merge_rare
from benchmarks.turns import quiet, timed

SETS = ("iris", "wine", "glass", "seeds", "crabs4", "zoo")
QUICK = ("iris",)
SHARE, ERRORS = 0.01, 0.5
"""The difference of totals that is allowed: this share of it or so many standard errors, whichever is larger."""

NOTES = f"""\
"formula": the sum over rows of log p(label) by `loo()`; "mended": by `loo(exact="unreliable")`, which fits again
without the rows ("refitted") that the formula is not to be trusted with; "brute force": by a fit without each row, in
which the prior, the structure and the kernel are chosen again; "allowed" is the larger of {SHARE:.0%} of the total and
{ERRORS:g} standard errors of it; "largest" is the largest difference of one row between mended and brute force, in
nats. Rows are left out one by one, twins too. Seconds on one thread while another task works beside. Classes with fewer
than two rows are merged."""

HEADER = (
    "model", "set", "N", "D", "K", "formula", "mended", "refitted", "brute force", "difference", "allowed", "largest",
    "fit (s)", "formula (s)", "mended (s)", "brute force (s)",
)  # fmt: skip


def models() -> dict[str, Any]:
    """Return the models by name, unfitted."""
    import posteriori as po

    return {
        "SoftmaxRegression(1.0)": po.SoftmaxRegression(1.0),
        "SoftmaxRegression(0.01)": po.SoftmaxRegression(0.01),
        "BayesianSoftmaxRegression()": po.BayesianSoftmaxRegression(),
        "BayesianSoftmaxRegression(1.0, variational)": po.BayesianSoftmaxRegression(1.0, approximation="variational"),
        "GaussianClassifier()": po.GaussianClassifier(),
        "GaussianClassifier('tied')": po.GaussianClassifier("tied"),
        "GPClassifier()": po.GPClassifier(),
    }


def run(names: Iterable[str] | None, data: Path | None, out: Path, jobs: int | None, *, quick: bool = False) -> None:
    """Run every model on every set."""
    wanted = [name for name in (QUICK if quick else SETS) if names is None or name in names]
    wanted = [name for name in wanted if problems.load(name, data) is not None]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    asked = list(models())[:2] if quick else list(models())
    lines: list[dict[str, Any]] = []
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(study, model, name, data) for model in reversed(asked) for name in wanted]
        for future in as_completed(futures):
            lines.append(future.result())
            stored = records.store(out / "left_out.jsonl", lines)
            records.write(out / "left_out.md", page(stored))
            line = lines[-1]
            print(line["model"], line["set"], round(line["mended"], 2), round(line["brute"], 2), flush=True)


def study(name: str, set_name: str, data: Path | None) -> dict[str, Any]:
    """Return the line of one model on one set."""
    from sklearn.base import clone

    found = problems.load(set_name, data)
    assert found is not None
    X, y = np.asarray(found[0], dtype=float), merge_rare(found[1], 2)[0]
    model = models()[name]
    with quiet():
        clone(model).fit(X, y).loo(groups=None)  # imports are nobody's time
        fit_seconds, fitted = timed(lambda: clone(model).fit(X, y))
        seconds, left = timed(lambda: fitted.loo(groups=None))
        mended_seconds, mended = timed(lambda: fitted.loo(groups=None, exact="unreliable"))
        brute_seconds, brute = timed(lambda: fitted.loo(groups=None, exact="all"))
    return {
        "problem": f"{name} on {set_name}", "model": name, "set": set_name, "shape": (*X.shape, len(np.unique(y))),
        "formula": left.total, "mended": mended.total, "refitted": int(mended.refitted.sum()), "brute": brute.total,
        "error": brute.log_loss_error * len(y), "largest": float(np.abs(mended.losses - brute.losses).max()),
        "fit_seconds": fit_seconds, "seconds": seconds, "mended_seconds": mended_seconds,
        "brute_seconds": brute_seconds,
    }  # fmt: skip


def allowed(line: dict[str, Any]) -> float:
    """Return the difference of totals that is allowed."""
    return max(SHARE * abs(line["brute"]), ERRORS * line["error"])


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    order = list(models())
    lines = sorted(lines, key=lambda line: (order.index(line["model"]), SETS.index(line["set"])))
    rows = [
        [
            line["model"], line["set"], *map(str, line["shape"]), f"{line['formula']:.2f}", f"{line['mended']:.2f}",
            str(line["refitted"]), f"{line['brute']:.2f}", f"{line['mended'] - line['brute']:+.2f}",
            f"{allowed(line):.2f}", f"{line['largest']:.2f}", f"{line['fit_seconds']:.2g}", f"{line['seconds']:.2g}",
            f"{line['mended_seconds']:.2g}", f"{line['brute_seconds']:.3g}",
        ]
        for line in lines
    ]  # fmt: skip
    outside = [line["problem"] for line in lines if abs(line["mended"] - line["brute"]) > allowed(line)]
    words = f"Outside of what is allowed: {', '.join(outside) or 'none'} ({len(outside)} of {len(lines)})."
    return records.markdown("Rows left out", f"{NOTES}\n\n{words}", HEADER, rows)
