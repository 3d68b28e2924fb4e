"""Whether a stack of all models, weighted by left-out rows, is better than the best of them, and what it costs.

Five folds of every set: `StackedClassifier` with all defaults on raw columns, and each of its members alone, as they
were fitted for it. scikit-learn's `StackingClassifier` of the same members, which fits each of them six times, has one
fold of each set. What others make of the same folds is read from `gp_quality.jsonl`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, records
from benchmarks.gp_quality import scores
from benchmarks.quality import FLOOR, FOLDS, LEAST, clustered, difference, mean_loss, merge_rare, sets
from benchmarks.summary import show
from benchmarks.turns import quiet, timed

STACK, PEER = "stack", "StackingClassifier"
OTHERS = ("CatBoost", "LightGBM", "HistGradientBoosting", "RandomForest", "LogisticRegressionCV")
EXTRA = ("tic_tac_toe", "hypothyroid", "audiology", "crabs4")
"""Sets that are shown below the others, and are not part of means over sets."""
LARGEST_PEER = 700
"""Rows of a set up to which scikit-learn's stack is fitted."""
QUICK = ("iris",)

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set, training rows in random order (seed 0); raw columns; cells are
mean log-loss of test rows in nats / share of test rows whose most probable class is wrong. "{STACK}":
`StackedClassifier()`; the columns after it are its members, alone. "best" is the member with the lowest mean over all
folds, known only afterwards; differences are {STACK} less best, plus or minus the standard error over test rows.
"left out" is what the stack says of its own log-loss on new rows, from left-out rows of the fit. Seconds are to fit,
all folds, on one thread while one other fit works beside: "members" one fit of each, "stack" all there is to do.
"{PEER}" is scikit-learn's, of the same members with its default five folds, on the first fold of sets up to
{LARGEST_PEER:,} rows, and beside it the stack on the same fold. Log-losses of {", ".join(OTHERS)}
on the same folds are those of `gp_quality.jsonl`. Classes with fewer than {LEAST} rows are merged, the two smallest at
a time. Every fold is in `stack.jsonl`."""


def run(names: Iterable[str] | None, data: Path | None, out: Path, jobs: int | None, *, quick: bool = False) -> None:
    """Run all folds of all sets; the results of a set are on disk when its folds are done."""
    wanted = [name for name in sets(data, quick=quick, large=EXTRA) if names is None or name in names]
    wanted = [name for name in wanted if not quick or name in QUICK]
    tasks = [(name, fold) for name in wanted for fold in range(2 if quick else FOLDS)]
    tasks.sort(key=lambda task: -len(load(task[0], data)[1]))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in wanted}
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(study, name, fold, data): name for name, fold in tasks}
        for future in as_completed(futures):
            name = futures[future]
            done[name] += future.result()
            if len({line["fold"] for line in done[name]}) == len([task for task in tasks if task[0] == name]):
                stored = records.store(out / "stack.jsonl", sorted(done[name], key=lambda line: line["fold"]))
                records.write(out / "stack.md", page(stored, records.read(out / "gp_quality.jsonl")))
                own = [line for line in done[name] if line["method"] == STACK]
                print(name, round(mean_loss(own), 4), own[0]["weights"], flush=True)


def load(name: str, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    X, y = sets(data, large=EXTRA)[name]()
    return np.asarray(X, dtype=float), merge_rare(y, LEAST)[0]


def study(name: str, number: int, data: Path | None) -> list[dict[str, Any]]:
    """Return the lines of one fold: the stack, its members, and perhaps scikit-learn's."""
    import posteriori as po

    X, y = load(name, data)
    in_order, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[number]
    rng = np.random.default_rng(0)
    for _ in range(number + 1):  # the orders of `gp_quality`
        train = rng.permutation(in_order)
    with quiet():
        po.StackedClassifier().fit(*problems.synthetic(40, 3, 3))  # imports are nobody's time
        seconds, stack = timed(lambda: po.StackedClassifier().fit(X[train], y[train]))
        members = dict(_members(stack, X[test]))
    common = {"problem": name, "shape": (*X.shape, len(np.unique(y))), "fold": number, "rows": len(test)}
    log_p = stack.predict_log_proba(X[test])
    own = -log_p[np.arange(len(test)), y[test]]
    lines = [
        {
            **common, "method": STACK, **scores(log_p, y[test]), "seconds": seconds,
            "left_out": stack.loo().log_loss, "n_twins": stack.loo().n_twins,
            "weights": {each.name: round(each.weight, 3) for each in stack.members_},
            "member_seconds": {each.name: each.fit_seconds for each in stack.members_},
            "losses": own.round(5).tolist(),
        }
    ]  # fmt: skip
    for each in stack.members_:
        L = members[each.name]
        losses = (-L[np.arange(len(test)), y[test]]).round(5).tolist()
        lines.append({**common, "method": each.name, **scores(L, y[test]), "left_out": each.log_loss, "losses": losses})
    if number == 0 and len(y) <= LARGEST_PEER:
        with quiet():
            seconds, peer = timed(lambda: sklearn_stack(stack).fit(X[train], y[train]))
            with np.errstate(divide="ignore"):
                L = np.maximum(np.log(peer.predict_proba(X[test])), FLOOR)
        lines.append({**common, "method": PEER, **scores(L, y[test]), "seconds": seconds})
    return lines


def _members(stack: Any, X: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
    """Yield what each member says, those without a weight too."""
    for name, model in stack.judged_:
        yield name, model.predict_log_proba(X)


def sklearn_stack(stack: Any) -> Any:
    """Return scikit-learn's stack of the same members, unfitted."""
    from sklearn.base import clone
    from sklearn.ensemble import StackingClassifier

    return StackingClassifier([(name, clone(model)) for name, model in stack.judged_])


def page(lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = sorted({line["problem"] for line in lines}, key=lambda name: (name in EXTRA, name))
    members = list(dict.fromkeys(line["method"] for line in lines if line["method"] not in (STACK, PEER)))
    summaries = {name: summarise([line for line in lines if line["problem"] == name], members) for name in names}
    for name, summary in summaries.items():
        summary["others"] = {
            other: mean_loss(found)
            for other in OTHERS
            if len(found := [x for x in others if x["problem"] == name and x["method"] == other]) == FOLDS
        }
    counted = {name: summary for name, summary in summaries.items() if name not in EXTRA}
    header = (
        "set", "N", "D", "K", STACK, *members, "stack less best", "left out", *OTHERS, "members (s)", "stack (s)",
        f"{PEER}, first fold", "stack, first fold", f"{PEER} (s)", "stack (s), first fold",
    )  # fmt: skip
    rows = [row(name, summary, members) for name, summary in counted.items()]
    if counted:
        rows.append(mean_row(counted, members))
    rows += [row(name, summary, members) for name, summary in summaries.items() if name in EXTRA]
    return records.markdown("Stacks", NOTES + ("\n\n" + verdict(counted) if counted else ""), header, rows)


def summarise(lines: list[dict[str, Any]], members: list[str]) -> dict[str, Any]:
    """Return the numbers of one set."""
    by = {name: [line for line in lines if line["method"] == name] for name in (STACK, *members, PEER)}
    losses = {name: mean_loss(found) for name, found in by.items() if found and name != PEER}
    best = min((name for name in members if name in losses), key=losses.__getitem__)
    own, its = (np.concatenate([line["losses"] for line in by[name]]) for name in (STACK, best))
    apart = own - its
    first = next(line for line in by[STACK] if line["fold"] == min(x["fold"] for x in by[STACK]))
    return {
        "shape": lines[0]["shape"],
        "losses": losses,
        "errors": {name: mean_loss(found, "error") for name, found in by.items() if found and name != PEER},
        "best": best,
        "difference": (float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))),
        "left_out": fmean(line["left_out"] for line in by[STACK]),
        "member_seconds": sum(sum(line["member_seconds"].values()) for line in by[STACK]),
        "seconds": sum(line["seconds"] for line in by[STACK]),
        "peer": by[PEER][0] if by[PEER] else None,
        "first": first,
    }


def row(name: str, summary: dict[str, Any], members: list[str]) -> list[str]:
    """Return one set's cells."""
    mean, error = summary["difference"]
    peer, first = summary["peer"], summary["first"]
    pairs = [
        f"{summary['losses'][m]:.4f} / {summary['errors'][m]:.3f}" if m in summary["losses"] else ""
        for m in (STACK, *members)
    ]
    return [
        name, *map(str, summary["shape"]), *pairs, f"{mean:+.4f} ± {error:.4f} ({summary['best']})",
        f"{summary['left_out']:.4f}", *(show(summary["others"].get(other), ".4f") for other in OTHERS),
        f"{summary['member_seconds']:.3g}", f"{summary['seconds']:.3g}",
        *(("", "", "", "") if peer is None else (
            f"{peer['loss']:.4f}", f"{first['loss']:.4f}", f"{peer['seconds']:.3g}", f"{first['seconds']:.3g}"
        )),
    ]  # fmt: skip


def mean_row(summaries: dict[str, dict[str, Any]], members: list[str]) -> list[str]:
    """Return the means over sets."""
    many = list(summaries.values())

    def mean(name: str, key: str = "losses") -> str:
        found = [summary[key].get(name) for summary in many]
        return "" if None in found else f"{fmean(found):.4f}"

    total = [sum(summary[key] for summary in many) for key in ("member_seconds", "seconds")]
    best = fmean(summary["losses"][summary["best"]] for summary in many)
    return [
        f"**mean of {len(many)} sets**", "", "", "", *(mean(name) for name in (STACK, *members)), f"best: {best:.4f}",
        f"{fmean(summary['left_out'] for summary in many):.4f}", *(mean(other, "others") for other in OTHERS),
        *(f"{seconds:.4g}" for seconds in total), "", "", "", "",
    ]  # fmt: skip


def verdict(summaries: dict[str, dict[str, Any]]) -> str:
    """Return in words how often the stack is at least as good as its best member, and what it costs."""
    many = summaries.items()
    better = [name for name, summary in many if summary["difference"][0] <= 0.0]
    worse = [name for name, summary in many if summary["difference"][0] > summary["difference"][1]]
    peers = [summary for _, summary in many if summary["peer"] is not None]
    lines = [
        f"- The stack is at least as good as its best member on {len(better)} of {len(summaries)} sets, and worse by "
        f"more than one standard error on {len(worse)}: {', '.join(worse) or 'none'}.",
        f"- Stack less best member, over sets: {difference(clustered([s['difference'][0] for _, s in many]))}.",
    ]
    ratio = sum(s["seconds"] for _, s in many) / sum(s["member_seconds"] for _, s in many)
    lines.append(f"- It takes {ratio:.2f} times the seconds of one fit of each member.")
    if peers:
        apart = [summary["first"]["loss"] - summary["peer"]["loss"] for summary in peers]
        times = sum(s["peer"]["seconds"] for s in peers) / sum(s["first"]["seconds"] for s in peers)
        lines.append(
            f"- Stack less {PEER}, first folds of {len(peers)} sets: {difference(clustered(apart))}; {PEER} takes "
            f"{times:.1f} times as long."
        )
    return "\n".join(lines)
