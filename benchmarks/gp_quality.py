"""How good the probabilities of Gaussian processes are, against what tables are usually given to.

Five folds of every set: `GPClassifier` with all defaults on raw columns; scikit-learn's gradient boosting, logistic
regression with cross-validated penalty, and random forest. Losses are natural log-losses of test rows, errors shares
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, quality, records
from benchmarks.quality import FLOOR, FOLDS, LEAST, clustered, difference, mean_loss, merge_rare, sets
from benchmarks.turns import ordered, quiet, timed

WITH_DEEP = False
"""Whether `DeepGPClassifier()` takes part; it takes minutes a fold."""

GP, DEEP = "GPClassifier", "DeepGPClassifier"
BOOSTING, LOGISTIC, FOREST = "HistGradientBoosting", "LogisticRegressionCV", "RandomForest"
OURS = (GP, DEEP)
METHODS = (*OURS, BOOSTING, LOGISTIC, FOREST)
TREES = 500

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set; cells are mean log-loss of test rows in nats / share of test
rows whose most probable class is wrong; "skill" is 1 - loss / loss of the training rows' class frequencies. "{GP}":
`{GP}()` on raw columns, scored as it is, by `predict_log_proba`; where it is there, "{DEEP}" is `{DEEP}()` likewise.
The peers: "{BOOSTING}", `HistGradientBoostingClassifier(random_state=0)`, and "{FOREST}",
`RandomForestClassifier({TREES}, random_state=0)`, on raw columns; "{LOGISTIC}", `{LOGISTIC}(Cs=10, cv=5,
scoring="neg_log_loss", max_iter=1000)` after `StandardScaler`. None of the peers' log-probabilities is taken below that
of the machine epsilon, as scikit-learn's log_loss does. Training rows are in random order (seed 0): inner folds of
{LOGISTIC} are consecutive rows, and some sets come sorted. Differences are means over sets, plus or minus the standard
error over sets. Seconds are to fit, all folds, with each library's own number of threads; ours compiles for every new
shape of rows, which is included. Classes with fewer than {LEAST} rows are merged, the two smallest at a time, so that
inner folds see every class. Every fold is in `gp_quality.jsonl`."""


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    warm_up()
    for name, load in sets(data, quick=quick, large=names or ()).items():
        if names is not None and name not in names:
            continue
        X, y = load()
        y, merged = merge_rare(y, LEAST)
        shape = (*X.shape, len(np.unique(y)))
        lines = study(np.asarray(X, dtype=float), y)
        lines = [{"problem": name, "shape": shape, "merged": merged, **line} for line in lines]
        stored = records.store(out / "gp_quality.jsonl", lines)
        records.write(out / "gp_quality.md", page(stored))
        summary = summarise([line for line in stored if line["problem"] == name])
        print(name, {key: round(value, 4) for key, value in summary["losses"].items()}, flush=True)


def warm_up() -> None:
    """Imports and thread pools are nobody's time."""
    X, y = problems.synthetic(60, 3, 3)
    with quiet():
        for make in contenders().values():
            make().fit(X, y)


def contenders() -> dict[str, Callable[[], Any]]:
    """Return an unfitted classifier of each method that takes part."""
    import posteriori as po

    found = {
        GP: po.GPClassifier,
        DEEP: po.DeepGPClassifier,
        BOOSTING: lambda: HistGradientBoostingClassifier(random_state=0),
        LOGISTIC: quality.peer,
        FOREST: lambda: RandomForestClassifier(TREES, random_state=0),
    }
    return {name: make for name, make in found.items() if name != DEEP or WITH_DEEP}


def study(X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Return one line per fold and method."""
    lines: list[dict[str, Any]] = []
    makers = contenders()
    rng = np.random.default_rng(0)
    for fold, (in_order, test) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)):
        train = rng.permutation(in_order)
        shares = np.bincount(y[train], minlength=y.max() + 1) / len(train)
        with quiet():
            made = {
                name: timed(lambda make=makers[name], rows=train: make().fit(X[rows], y[rows]))
                for name in ordered(list(makers), fold)
            }
            predicted = {name: log_probabilities(name, made[name][1], X[test]) for name in makers}
        for name, log_p in predicted.items():
            seconds, model = made[name]
            lines.append(
                {
                    "fold": fold,
                    "rows": len(test),
                    "prior_loss": float(-np.log(shares[y[test]]).mean()),
                    "method": name,
                    **scores(log_p, y[test]),
                    "seconds": seconds,
                    **(how(model) if name in OURS else {}),
                }
            )
    return lines


def log_probabilities(method: str, model: Any, X: np.ndarray) -> np.ndarray:
    """Return log p(k | x_n), (n, K), as the method is scored by: ours as they are, the peers' with a floor."""
    if method in OURS:
        return model.predict_log_proba(X)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(model.predict_proba(X)), FLOOR)


def scores(log_p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the mean loss of the rows, and the share of them whose most probable class is wrong."""
    return {
        "loss": float(-log_p[np.arange(len(y)), y].mean()),
        "error": float((log_p.argmax(axis=1) != y).mean()),
    }


def how(model: Any) -> dict[str, Any]:
    """Return how the fit ended."""
    solution = model.solution_
    return {"status": str(solution.status), "iterations": solution.n_iter, "settled": solution.settled}


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one set."""
    by = {name: [line for line in lines if line["method"] == name] for name in METHODS}
    by = {name: found for name, found in by.items() if found}
    losses = {name: mean_loss(found) for name, found in by.items()}
    prior = mean_loss(by[GP], "prior_loss")
    return {
        "shape": lines[0]["shape"],
        "merged": lines[0]["merged"],
        "losses": losses,
        "errors": {name: mean_loss(found, "error") for name, found in by.items()},
        "skill": {name: 1.0 - loss / prior for name, loss in losses.items()},
        "seconds": {name: sum(line["seconds"] for line in found) for name, found in by.items()},
    }


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page, with the methods that every set has."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    summaries = {name: summarise([line for line in lines if line["problem"] == name]) for name in names}
    methods = [name for name in METHODS if all(name in summary["losses"] for summary in summaries.values())]
    rows = [row(name, summary, methods) for name, summary in summaries.items()]
    return records.markdown(
        "Quality of Gaussian processes",
        NOTES + "\n\n" + verdict(summaries, methods),
        ("set", "N", "D", "K", *methods, f"{GP} (s)", f"{BOOSTING} (s)"),
        rows + overall(list(summaries.values()), methods),
    )


def row(name: str, summary: dict[str, Any], methods: list[str]) -> list[str]:
    """Return one set's cells."""
    return [
        name + (f" ({summary['merged']} class merged)" if summary["merged"] else ""),
        *map(str, summary["shape"]),
        *(f"{summary['losses'][method]:.4f} / {summary['errors'][method]:.3f}" for method in methods),
        *(f"{summary['seconds'][method]:.3g}" for method in (GP, BOOSTING)),
    ]


def overall(summaries: list[dict[str, Any]], methods: list[str]) -> list[list[str]]:
    """Return the rows over all sets: mean losses and errors, median skills, seconds."""

    def mean(key: str, method: str) -> float:
        return fmean(summary[key][method] for summary in summaries)

    def cells(title: str, value: Callable[[str], str]) -> list[str]:
        return [f"**{title}**", "", "", "", *map(value, methods), "", ""]

    return [
        cells(f"mean of {len(summaries)} sets", lambda m: f"{mean('losses', m):.4f} / {mean('errors', m):.3f}"),
        cells("median skill", lambda m: f"{median(summary['skill'][m] for summary in summaries):.3f}"),
        cells("seconds", lambda m: f"{sum(summary['seconds'][m] for summary in summaries):.3g}"),
    ]


def verdict(summaries: dict[str, dict[str, Any]], methods: list[str]) -> str:
    """Return the differences to all others, and where ours is behind, in words."""
    many = list(summaries.values())
    lines = []
    for other in (method for method in methods if method != GP):
        losses, errors = ([summary[key][GP] - summary[key][other] for summary in many] for key in ("losses", "errors"))
        behind = [name for name, value in zip(summaries, losses, strict=True) if value > 0]
        lines.append(
            f"- {GP} less {other}: loss {difference(clustered(losses))}, error {difference(clustered(errors))}; the "
            f"higher loss on {len(behind)} of {len(many)} sets: {', '.join(behind) or 'none'}."
        )
    return "\n".join(lines)
