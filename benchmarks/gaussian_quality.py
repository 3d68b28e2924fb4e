"""How good the probabilities of Gaussian classifiers are, against scikit-learn's for the same structures.

Five folds of every set, raw columns: ours with all parameters integrated out, default prior, each structure and "auto";
scikit-learn's naive Bayes, linear and quadratic discriminant analysis, regularised. Losses are natural log-losses of
test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks import problems, records
from benchmarks.gaussian_adapters import STRUCTURES, GaussianPosteriori, GaussianScikitLearn
from benchmarks.quality import FLOOR, FOLDS, THREADS, clustered, difference, mean_loss, merge_rare, sets
from benchmarks.turns import ordered, quiet, timed

LEAST = FOLDS
"""Rows that a class needs so that each fold has one of it."""

AUTO = "auto"
OURS = (*STRUCTURES, AUTO)
NAIVE, LINEAR, QUADRATIC = "NB", "LDA", "QDA"
PEERS = {
    NAIVE: GaussianScikitLearn("diagonal"),
    LINEAR: GaussianScikitLearn("tied", (("solver", "lsqr"), ("shrinkage", "auto"))),
    QUADRATIC: GaussianScikitLearn("full", (("reg_param", 0.1),)),
}
CLIPPED, UNCLIPPED = "NB clipped", "NB unclipped"
FITTED_AS = {name: name for name in (*OURS, *PEERS)} | {CLIPPED: NAIVE, UNCLIPPED: NAIVE}
"""Whose fit each method scores."""
METHODS = (*OURS, CLIPPED, *PEERS, UNCLIPPED)
RIVALS = {"diagonal": CLIPPED, "tied": LINEAR, "full": QUADRATIC}
"""The peer that each structure is to beat."""

CLIP = 1e-3
SHARE, NATS = 0.05, 0.01
"""How much worse than the best single structure "auto" may be, the larger of a share and nats."""

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set, raw columns; mean log-loss of test rows in nats; "skill" is
1 - loss / loss of the training rows' class frequencies. Ours is `GaussianClassifier(covariance)`, that is
`estimate="bayes"` and `prior="predictive"`, scored as it is, by `predict_log_proba`. The peers are "{NAIVE}",
`{PEERS[NAIVE]}`; "{LINEAR}", `{PEERS[LINEAR]}`; "{QUADRATIC}",
`{PEERS[QUADRATIC]}`; none of their log-probabilities is taken below that of the machine
epsilon, as scikit-learn's log_loss does. "{CLIPPED}": its probabilities raised to at least {CLIP:g} and renormalised;
"{UNCLIPPED}": scored as it is. A fit that raises, or predicts NaN, has failed: its fold is scored by the training rows'
class frequencies, and the table says how many folds. Differences are means over sets, plus or minus the standard error
over sets. Seconds are to fit, all folds of all sets, a peer's with the better of 1 and 2 BLAS threads on each set.
Classes with fewer than {LEAST} rows are merged, the two smallest at a time. Every fold is in
`gaussian_quality.jsonl`."""

HEADER = ("set", "N", "D", "K", *METHODS, "auto chose")


class Outcome(NamedTuple):
    """A value, or why there is none."""

    value: Any
    failure: str | None


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
        stored = records.store(out / "gaussian_quality.jsonl", lines)
        records.write(out / "gaussian_quality.md", page(stored))
        summary = summarise([line for line in stored if line["problem"] == name])
        print(name, {key: round(value, 4) for key, value in summary["losses"].items()}, summary["chosen"], flush=True)


def warm_up() -> None:
    """Imports and thread pools are nobody's time."""
    X, y = problems.gaussian_classes(60, 3, 3)
    with quiet():
        for adapter in contenders().values():
            adapter.fit(X, y)


def contenders() -> dict[tuple[str, int | None], GaussianPosteriori | GaussianScikitLearn]:
    """Return all that are fitted, by method and number of threads."""
    mine = {(name, None): GaussianPosteriori(name) for name in OURS}
    return mine | {(name, n): replace(peer, threads=n) for name, peer in PEERS.items() for n in THREADS}


def study(X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Return one line per fold and method."""
    lines: list[dict[str, Any]] = []
    fits = contenders()
    for fold, (train, test) in enumerate(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)):
        shares = np.bincount(y[train], minlength=y.max() + 1) / len(train)
        with quiet():
            made = {
                key: timed(partial(attempt, partial(fits[key].fit, X[train], y[train])))
                for key in ordered(list(fits), fold)
            }
            seconds = {name: [made[key][0] for key in fits if key[0] == name] for name, _ in fits}
            models = {name: next(made[key][1] for key in fits if key[0] == name) for name in seconds}
            predicted = {name: log_probabilities(model, X[test]) for name, model in models.items()}
        for name in METHODS:
            log_p, failure = predicted[FITTED_AS[name]]
            log_p = scored(name, log_p) if failure is None else np.tile(np.log(shares), (len(test), 1))
            lines.append(
                {
                    "fold": fold,
                    "rows": len(test),
                    "prior_loss": float(-np.log(shares[y[test]]).mean()),
                    "method": name,
                    "loss": float(-log_p[np.arange(len(test)), y[test]].mean()),
                    "failure": failure,
                    "seconds_by_threads": seconds[FITTED_AS[name]],
                    **(how(models[name].value) if name == AUTO and failure is None else {}),
                }
            )
    return lines


def attempt(function: Callable[[], Any]) -> Outcome:
    """Return what the function does, or what it raised in place of it."""
    try:
        return Outcome(function(), None)
    except Exception as error:
        return Outcome(None, f"{type(error).__name__}: {error}"[:200])


def log_probabilities(model: Outcome, X: np.ndarray) -> Outcome:
    """Return log p(k | x_n), (n, K), unless the fit or the prediction failed."""
    if model.failure is not None:
        return model
    predicted = attempt(lambda: model.value.predict_log_proba(X))
    if predicted.failure is None and np.isnan(predicted.value).any():
        return Outcome(None, "NaN")
    return predicted


def scored(method: str, log_p: np.ndarray) -> np.ndarray:
    """Return the log-probabilities that the method is scored by."""
    if method == CLIPPED:
        probs = np.maximum(np.exp(log_p), CLIP)
        return np.log(probs / probs.sum(axis=1, keepdims=True))
    return np.maximum(log_p, FLOOR) if method in PEERS else log_p


def how(model: Any) -> dict[str, Any]:
    """Return the structure that was chosen, and by how much."""
    solution = model.solution_
    return {"structure": solution.structure, "margin": solution.margin, "scores": solution.scores}


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one set."""
    lines = [line | {"loss": math.inf} if line["loss"] is None else line for line in lines]  # JSON has no infinity
    by = {name: [line for line in lines if line["method"] == name] for name in METHODS}
    losses = {name: mean_loss(by[name]) for name in METHODS}
    prior = mean_loss(by[AUTO], "prior_loss")
    chosen = [line.get("structure") for line in by[AUTO]]
    return {
        "shape": lines[0]["shape"],
        "merged": lines[0]["merged"],
        "losses": losses,
        "skill": {name: 1.0 - losses[name] / prior for name in METHODS},
        "failed": {name: sum(line["failure"] is not None for line in by[name]) for name in METHODS},
        "seconds": {
            name: float(np.sum([line["seconds_by_threads"] for line in by[name]], axis=0).min()) for name in METHODS
        },
        "chosen": {name: chosen.count(name) for name in dict.fromkeys(chosen) if name is not None},
    }


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    summaries = {name: summarise([line for line in lines if line["problem"] == name]) for name in names}
    rows = [row(name, summary) for name, summary in summaries.items()]
    return records.markdown(
        "Quality of Gaussian classifiers",
        NOTES + "\n\n" + verdict(summaries),
        HEADER,
        rows + overall(list(summaries.values())),
    )


def row(name: str, summary: dict[str, Any]) -> list[str]:
    """Return one set's cells."""
    failed = {method: f" ({count} failed)" if count else "" for method, count in summary["failed"].items()}
    return [
        name + (f" ({summary['merged']} class merged)" if summary["merged"] else ""),
        *map(str, summary["shape"]),
        *(loss_cell(summary["losses"][method]) + failed[method] for method in METHODS),
        ", ".join(f"{count} {structure}" for structure, count in summary["chosen"].items()),
    ]


def loss_cell(loss: float) -> str:
    """Return a loss with four decimals, or in short where it is beyond reason."""
    return f"{loss:.4f}" if loss < 100 else f"{loss:.1e}"


def overall(summaries: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows over all sets: mean losses, median skills, seconds."""
    times = {name: sum(summary["chosen"].get(name, 0) for summary in summaries) for name in STRUCTURES}
    chosen = ", ".join(f"{count} {name}" for name, count in times.items() if count)

    def cells(title: str, value: Callable[[str], str], last: str = "") -> list[str]:
        return [f"**{title}**", "", "", "", *map(value, METHODS), last]

    return [
        cells(f"mean of {len(summaries)} sets", lambda name: loss_cell(mean_over(summaries, name)), chosen),
        cells("median skill", lambda name: f"{median_skill(summaries, name):.3f}"),
        cells("seconds", lambda name: f"{sum(summary['seconds'][name] for summary in summaries):.3g}"),
    ]


def mean_over(summaries: Iterable[dict[str, Any]], method: str) -> float:
    """Return the mean loss over sets."""
    return fmean(summary["losses"][method] for summary in summaries)


def median_skill(summaries: Iterable[dict[str, Any]], method: str) -> float:
    """Return the median skill over sets."""
    return median(summary["skill"][method] for summary in summaries)


def verdict(summaries: dict[str, dict[str, Any]]) -> str:
    """Return the goals, and who failed, in words."""
    many = list(summaries.values())
    lines = [against(structure, peer, many) for structure, peer in RIVALS.items()]
    best = min(STRUCTURES, key=lambda name: mean_over(many, name))
    least, mine = mean_over(many, best), mean_over(many, AUTO)
    hindsight = fmean(min(summary["losses"][name] for name in STRUCTURES) for summary in many)
    to_best = difference(clustered([summary["losses"][AUTO] - summary["losses"][best] for summary in many]))
    lines.append(
        f"- {AUTO} {mine:.4f} against {best} {least:.4f}, the best single structure in the mean: {to_best} (goal: "
        f"worse by at most the larger of {SHARE:.0%} and {NATS} nat): {said(good_enough(mine, least))}. The best "
        f"structure of each set in hindsight: {hindsight:.4f}."
    )
    lines.append(f"- Failures of ours (goal: none): {failures(summaries, OURS)}.")
    lines.append(f"- Failures of peers: {failures(summaries, PEERS)}.")
    return "\n".join(lines)


def against(structure: str, peer: str, summaries: list[dict[str, Any]]) -> str:
    """Return how a structure fares against its peer, in words."""
    differences = [summary["losses"][structure] - summary["losses"][peer] for summary in summaries]
    sound = [value for value, summary in zip(differences, summaries, strict=True) if not summary["failed"][peer]]
    skills = median_skill(summaries, structure), median_skill(summaries, peer)
    lower = sum(value < 0 for value in differences)
    met = fmean(differences) < 0 and skills[0] > skills[1]
    apart = ""
    if 0 < len(sound) < len(summaries):
        apart = f" ({difference(clustered(sound))} over the {len(sound)} without a failure)"
    return (
        f"- {structure} less {peer}: {difference(clustered(differences))}{apart}; lower on {lower} of {len(summaries)} "
        f"sets; median skill {skills[0]:.3f} against {skills[1]:.3f} (goal: lower in the mean, with the higher median "
        f"skill): {said(met)}."
    )


def good_enough(loss: float, best: float) -> bool:
    """Say whether "auto" is as good as the goal asks."""
    return loss <= best + max(SHARE * best, NATS)


def failures(summaries: dict[str, dict[str, Any]], methods: Iterable[str]) -> str:
    """Return which method failed on how many folds of which sets."""
    found = []
    for method in methods:
        failed = {name: summary["failed"][method] for name, summary in summaries.items() if summary["failed"][method]}
        if failed:
            found.append(f"{method} on {sum(failed.values())} folds of {len(failed)} sets ({', '.join(failed)})")
    return "; ".join(found) or "none"


def said(met: bool) -> str:
    return "yes" if met else "no"
