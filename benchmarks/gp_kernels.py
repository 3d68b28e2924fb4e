"""Whether the kernel that a Gaussian process learns in little time is as good as one learned with all rows.

Five folds of sets with 700 to 1,200 rows: `GPClassifier` with all defaults, against the same with a kernel learned
with all training rows. Compared are log-losses of test rows, and the evidence of both kernels under the exact model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, records
from benchmarks.gp_quality import how, scores
from benchmarks.quality import FOLDS, LEAST, clustered, difference, mean_loss, merge_rare, paired
from benchmarks.turns import ordered, quiet, timed

SETS = ("vehicle", "pima", "fishing", "tic_tac_toe")
QUICK, QUICK_FOLDS = ("iris",), 1
DEFAULT, ALL = "default", "all rows"
METHODS = (DEFAULT, ALL)
TOL = 1e-5
"""At which the scales of classes are learned for the exact evidence."""

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set, training rows in random order (seed 0). "{DEFAULT}":
`GPClassifier()`; "{ALL}": `GPClassifier(n_learning="all")`; both on raw columns and scored as they are. Log-losses are
means over test rows in nats; differences are {DEFAULT} less {ALL}, those of losses plus or minus the standard error
over test rows. "evidence" is the log evidence of the training rows, mean over folds, under the exact model with the
kernel that was learned: all rows are inducing inputs (`n_inducing`), the kernel is held, and the scales of the classes,
which are no part of a kernel, are learned anew (`tol={TOL:g}`) for both alike; its difference is plus or minus the
standard error over folds. Seconds are to fit, all folds, compilation included. Classes with fewer than {LEAST} rows are
merged, the two smallest at a time. Every fold is in `gp_kernels.jsonl`, also the evidence that the fit itself states
(`log_evidence_`)."""

HEADER = (
    "set", "N", "D", "K", *(f"log-loss, {name}" for name in METHODS), "difference",
    *(f"evidence, {name}" for name in METHODS), "difference", *(f"{name} (s)" for name in METHODS),
)  # fmt: skip


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    import posteriori as po

    if "n_learning" not in po.GPClassifier().get_params():
        print("gp-kernels skipped: this version of GPClassifier has no n_learning")
        return
    for name in QUICK if quick else SETS:
        if names is not None and name not in names:
            continue
        found = problems.load(name, data)
        if found is None:
            print(f"gp-kernels: {name} skipped, --data FOLDER must have {name}.npz")
            continue
        y, merged = merge_rare(found[1], LEAST)
        shape = (*found[0].shape, len(np.unique(y)))
        lines = study(np.asarray(found[0], dtype=float), y, QUICK_FOLDS if quick else FOLDS)
        lines = [{"problem": name, "shape": shape, "merged": merged, **line} for line in lines]
        stored = records.store(out / "gp_kernels.jsonl", lines)
        records.write(out / "gp_kernels.md", page(stored))
        print(row(name, [line for line in stored if line["problem"] == name]), flush=True)


def contenders() -> dict[str, Callable[[], Any]]:
    """Return an unfitted classifier of each method."""
    import posteriori as po

    return {DEFAULT: po.GPClassifier, ALL: lambda: po.GPClassifier(n_learning="all")}


def study(X: np.ndarray, y: np.ndarray, folds: int = FOLDS) -> list[dict[str, Any]]:
    """Return one line per fold and method, of the first folds."""
    lines: list[dict[str, Any]] = []
    makers = contenders()
    rng = np.random.default_rng(0)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)
    for fold, (in_order, test) in list(enumerate(splits))[:folds]:
        train = rng.permutation(in_order)
        with quiet():
            made = {
                name: timed(lambda make=makers[name], rows=train: make().fit(X[rows], y[rows]))
                for name in ordered(list(makers), fold)
            }
            log_p = {name: made[name][1].predict_log_proba(X[test]) for name in makers}
            evidences = {name: exact_evidence(made[name][1].kernel_, X[train], y[train]) for name in makers}
        losses = {name: -log_p[name][np.arange(len(test)), y[test]] for name in makers}
        for name in makers:
            excess = losses[DEFAULT] - losses[name]
            seconds, model = made[name]
            lines.append(
                {
                    "fold": fold,
                    "rows": len(test),
                    "method": name,
                    **scores(log_p[name], y[test]),
                    "excess_sum": float(excess.sum()),
                    "excess_squares": float(excess @ excess),
                    "evidence": evidences[name],
                    "stated_evidence": float(model.log_evidence_),
                    "kernel": repr(model.kernel_),
                    "seconds": seconds,
                    **how(model),
                }
            )
    return lines


def exact_evidence(kernel: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the log evidence of a kernel as it is, with all rows as inducing inputs; scales of classes are learned."""
    import posteriori as po

    model = po.GPClassifier(held(kernel), n_inducing=len(y), n_learning="all", tol=TOL, calibrate=False)
    return float(model.fit(X, y).log_evidence_)


def held(kernel: Any) -> Any:
    """Return a copy of the kernel of which nothing is learned."""
    copy = deepcopy(kernel)
    return copy.set_params(**{name: True for name in copy.get_params() if name.split("__")[-1] == "fixed"})


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    rows = [row(name, [line for line in lines if line["problem"] == name]) for name in names]
    return records.markdown("Kernels learned in little time", NOTES, HEADER, rows)


def row(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """Return one set's cells."""
    by = {m: sorted((x for x in lines if x["method"] == m), key=lambda x: x["fold"]) for m in METHODS}
    apart = [mine["evidence"] - theirs["evidence"] for mine, theirs in zip(by[DEFAULT], by[ALL], strict=True)]
    mean, error = clustered(apart)
    return [
        name + (f" ({lines[0]['merged']} class merged)" if lines[0]["merged"] else ""),
        *map(str, lines[0]["shape"]),
        *(f"{mean_loss(by[method]):.4f}" for method in METHODS),
        difference(paired(by[ALL])),
        *(f"{fmean(line['evidence'] for line in by[method]):.1f}" for method in METHODS),
        f"{mean:+.1f} ± {error:.1f}",
        *(f"{sum(line['seconds'] for line in by[method]):.3g}" for method in METHODS),
    ]
