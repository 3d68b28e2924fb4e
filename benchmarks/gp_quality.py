"""How good the probabilities of Gaussian processes are, against what tables are usually given to.

Five folds of every set: `GPClassifier` with all defaults on raw columns; scikit-learn's gradient boosting, logistic
regression with cross-validated penalty, and random forest; CatBoost and LightGBM where they are installed. Losses are
natural log-losses of test rows, errors shares of them. A test row that is also a training row, in all columns and the
label, asks for memory alone: the loss of the others is told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, quality, records
from benchmarks.quality import FLOOR, FOLDS, LEAST, clustered, difference, mean_loss, merge_rare, sets
from benchmarks.summary import show
from benchmarks.turns import ordered, quiet, timed

WITH_DEEP = False
"""Whether `DeepGPClassifier()` takes part; it takes minutes a fold."""

GP, DEEP = "GPClassifier", "DeepGPClassifier"
BOOSTING, LOGISTIC, FOREST = "HistGradientBoosting", "LogisticRegressionCV", "RandomForest"
CATBOOST, LIGHTGBM = "CatBoost", "LightGBM"
OURS = (GP, DEEP)
METHODS = (*OURS, BOOSTING, CATBOOST, LIGHTGBM, LOGISTIC, FOREST)
TREES = 500
THREADS = 2
"""Threads of CatBoost."""

MODULES = {CATBOOST: "catboost", LIGHTGBM: "lightgbm"}
"""What peers need besides scikit-learn."""

EXTRA = ("tic_tac_toe", "hypothyroid", "audiology", "crabs4")
"""Sets that are shown below the others, and are not part of means over sets."""

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set; cells are mean log-loss of test rows in nats / share of test
rows whose most probable class is wrong; "skill" is 1 - loss / loss of the training rows' class frequencies. "{GP}":
`{GP}()` on raw columns, scored as it is, by `predict_log_proba`; where it is there, "{DEEP}" is `{DEEP}()` likewise.
The peers: "{BOOSTING}", `HistGradientBoostingClassifier(random_state=0)`, "{FOREST}",
`RandomForestClassifier({TREES}, random_state=0)`, and where every set has them, "{CATBOOST}",
`CatBoostClassifier(random_seed=0, thread_count={THREADS})`, and "{LIGHTGBM}", `LGBMClassifier(random_state=0)`, on raw
columns; "{LOGISTIC}", `{LOGISTIC}(Cs=10, cv=5,
scoring="neg_log_loss", max_iter=1000)` after `StandardScaler`. None of the peers' log-probabilities is taken below that
of the machine epsilon, as scikit-learn's log_loss does. Training rows are in random order (seed 0): inner folds of
{LOGISTIC} are consecutive rows, and some sets come sorted. Differences are means over sets, plus or minus the standard
error over sets. Seconds are to fit, then to predict, all folds, with each library's own number of threads; ours
compiles for every new shape of rows, which is included. The sets below the mean are no part of it, nor of the
differences. Where a set has test rows with a twin, a training row that is equal to it in all columns and the label, the
second table has the loss of all test rows / of those without one. Classes with fewer than {LEAST} rows are merged, the
two smallest at a time, so that inner folds see every class. Every fold is in `gp_quality.jsonl`."""


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    for method, module in MODULES.items():
        if method not in contenders():
            print(f"gp-quality: {method} skipped, {module} is not installed")
    warm_up()
    for name, load in sets(data, quick=quick, large=(*(names or ()), *EXTRA)).items():
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
        CATBOOST: catboost,
        LIGHTGBM: lightgbm,
        LOGISTIC: quality.peer,
        FOREST: lambda: RandomForestClassifier(TREES, random_state=0),
    }
    left_out = {name for name, module in MODULES.items() if find_spec(module) is None}
    return {name: make for name, make in found.items() if name not in left_out and (name != DEEP or WITH_DEEP)}


def catboost() -> Any:
    from catboost import CatBoostClassifier

    # the last argument only keeps it from leaving a folder of logs behind
    return CatBoostClassifier(verbose=0, random_seed=0, thread_count=THREADS, allow_writing_files=False)


def lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, verbose=-1)


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
            predicted = {
                name: timed(lambda name=name, model=made[name][1], rows=test: log_probabilities(name, model, X[rows]))
                for name in ordered(list(makers), fold)
            }
        twin = twins((X[train], y[train]), (X[test], y[test]))
        for name in makers:
            (seconds, model), (predict_seconds, log_p) = made[name], predicted[name]
            lines.append(
                {
                    "fold": fold,
                    "rows": len(test),
                    "prior_loss": float(-np.log(shares[y[test]]).mean()),
                    "method": name,
                    **scores(log_p, y[test]),
                    "twins": int(twin.sum()),
                    "new_loss": None if twin.all() else scores(log_p[~twin], y[test][~twin])["loss"],
                    "seconds": seconds,
                    "predict_seconds": predict_seconds,
                    **(how(model) if name in OURS else {}),
                }
            )
    return lines


def twins(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Say of each test row whether a training row is equal to it in all columns and the label, (n,)."""
    seen, rows = (np.column_stack(part) for part in (train, test))
    place = np.unique(np.concatenate([seen, rows]), axis=0, return_inverse=True)[1].ravel()
    return np.isin(place[len(seen) :], place[: len(seen)])


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
        "rows": sum(line["rows"] for line in by[GP]),
        "twins": sum(line.get("twins", 0) for line in by[GP]),
        "new_losses": {name: new_loss(found) for name, found in by.items()},
        "seconds": {name: total(found, "seconds") for name, found in by.items()},
        "predict_seconds": {name: total(found, "predict_seconds") for name, found in by.items()},
    }


def new_loss(lines: list[dict[str, Any]]) -> float | None:
    """Return the mean over test rows without a twin, or None where there are none."""
    new = [line | {"rows": line["rows"] - line["twins"]} for line in lines if line.get("new_loss") is not None]
    return mean_loss(new, "new_loss") if new else None


def total(lines: list[dict[str, Any]], key: str) -> float | None:
    """Return the sum over lines, or None where an older one does not have it."""
    return sum(line[key] for line in lines) if all(key in line for line in lines) else None


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page, with the methods that every set has."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    names.sort(key=lambda name: EXTRA.index(name) if name in EXTRA else -1)
    summaries = {name: summarise([line for line in lines if line["problem"] == name]) for name in names}
    methods = [name for name in METHODS if all(name in summary["losses"] for summary in summaries.values())]
    counted = {name: summary for name, summary in summaries.items() if name not in EXTRA}
    rows = [row(name, summary, methods) for name, summary in counted.items()]
    if counted:
        rows += overall(list(counted.values()), methods)
    rows += [row(name, summary, methods) for name, summary in summaries.items() if name in EXTRA]
    return records.markdown(
        "Quality of Gaussian processes",
        NOTES + ("\n\n" + verdict(counted, methods) if counted else ""),
        ("set", "N", "D", "K", *methods, *(f"{method} (s)" for method in (GP, BOOSTING))),
        rows,
        after=repeated(summaries, methods),
    )


def row(name: str, summary: dict[str, Any], methods: list[str]) -> list[str]:
    """Return one set's cells."""
    return [
        name + (f" ({summary['merged']} class merged)" if summary["merged"] else ""),
        *map(str, summary["shape"]),
        *(f"{summary['losses'][method]:.4f} / {summary['errors'][method]:.3f}" for method in methods),
        *(
            " + ".join(show(summary[key][method], ".3g") for key in ("seconds", "predict_seconds"))
            for method in (GP, BOOSTING)
        ),
    ]


def overall(summaries: list[dict[str, Any]], methods: list[str]) -> list[list[str]]:
    """Return the rows over all sets: mean losses and errors, median skills, seconds."""

    def mean(key: str, method: str) -> float:
        return fmean(summary[key][method] for summary in summaries)

    def seconds(key: str, method: str) -> str:
        found = [summary[key][method] for summary in summaries]
        return show(None if None in found else sum(found), ".3g")

    def cells(title: str, value: Callable[[str], str]) -> list[str]:
        return [f"**{title}**", "", "", "", *map(value, methods), "", ""]

    return [
        cells(f"mean of {len(summaries)} sets", lambda m: f"{mean('losses', m):.4f} / {mean('errors', m):.3f}"),
        cells("median skill", lambda m: f"{median(summary['skill'][m] for summary in summaries):.3f}"),
        cells("seconds to fit", lambda m: seconds("seconds", m)),
        cells("seconds to predict", lambda m: seconds("predict_seconds", m)),
    ]


def repeated(summaries: dict[str, dict[str, Any]], methods: list[str]) -> str:
    """Return the table of sets that have test rows with a twin; nothing where none has."""
    rows = [
        [
            name, str(summary["rows"]), str(summary["twins"]),
            *(f"{summary['losses'][m]:.4f} / {show(summary['new_losses'][m], '.4f')}" for m in methods),
        ]
        for name, summary in summaries.items() if summary["twins"]
    ]  # fmt: skip
    return records.table(("set with repeated rows", "test rows", "with a twin", *methods), rows) if rows else ""


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
