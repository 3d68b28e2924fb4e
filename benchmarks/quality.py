"""How good default predictions are, and what they cost, against cross-validated regularisation.

Five folds of every set: ours with defaults on raw columns, the same fit by its mode alone ("plug-in"), ours with
Laplace; ``LogisticRegressionCV`` on standardised columns. Losses are natural log-losses of test rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import problems, records
from benchmarks.problems import Data
from benchmarks.summary import show
from benchmarks.turns import ordered, quiet, timed

BUNDLED = ("iris", "wine", "digits")
QUICK = ("iris", "wine")
LARGE = ("mnist", "letter")
WIDE = ("nci60", "audiology", "mfeat_pixel", "tic_tac_toe", "hypothyroid", "crabs4")
"""Files that are not for this comparison; the second are for that of `wide`."""

FOLDS, LEAST = 5, 7
"""Folds, and rows that a class needs so that each of the peer's inner folds has one of it."""

DEFAULT, PLUGIN, LAPLACE, PEER = "default", "plug-in", "Laplace", "LogisticRegressionCV"
METHODS = (DEFAULT, PLUGIN, LAPLACE, PEER)
THREADS = (1, 2)
FLOOR = math.log(np.finfo(float).eps)
"""Log-probabilities are not taken below this, whoever states them, as scikit-learn's log_loss does."""

PEER_SHARE, PLUGIN_SHARE, NATS, SPEED = 0.05, 0.02, 0.005, 10.0
GOAL = 0.400
"""Mean log-loss over the sixteen sets that is wanted."""

NOTES = f"""\
{FOLDS} stratified folds (shuffled, seed 0) of every set; mean log-loss of test rows in nats; "skill" is 1 - loss /
loss of the training rows' class frequencies. "{DEFAULT}": `BayesianSoftmaxRegression()` on raw columns; "{PLUGIN}":
the mode of the same fit; "{LAPLACE}": `approximation="laplace"`. The peer is `LogisticRegressionCV(Cs=10, cv=5,
scoring="neg_log_loss", max_iter=1000)` after `StandardScaler`, with the better of 1 and 2 BLAS threads over all
folds. Training rows are in random order (seed 0): the peer's inner folds are consecutive rows, and some sets come
sorted. "difference" is {DEFAULT} less peer, plus or minus its standard error over test rows; overall it is the mean
over sets, with the standard error over sets. Seconds are to fit, all folds; "times as fast" is the median over folds.
Classes with fewer than {LEAST} rows are merged, the two smallest at a time, so that the peer's inner folds see every
class. Every fold is in `quality.jsonl`."""

HEADER = (
    "set", "N", "D", "K", *METHODS, "skill", "peer's skill", "difference", "fits chosen", "seconds", "peer's (s)",
    "times as fast",
)  # fmt: skip


def sets(data: Path | None, *, quick: bool = False, large: Iterable[str] = ()) -> dict[str, Callable[[], Data]]:
    """Return scikit-learn's own sets, and those of the folder; of the large ones only those named."""
    found = {name: problems.PROBLEMS[name] for name in (QUICK if quick else BUNDLED)}
    if data is not None and not quick:
        left_out = {*LARGE, *WIDE} - {*large}
        for path in sorted(data.glob("*.npz")):
            if path.stem not in (*left_out, *found):
                found[path.stem] = lambda name=path.stem: problems.load(name, data)
    return found


def merge_rare(y: np.ndarray, least: int) -> tuple[np.ndarray, int]:
    """Merge the two smallest classes until all have ``least`` rows; return codes 0..K-1, and how often."""
    y = np.unique(y, return_inverse=True)[1]
    merged = 0
    while (sizes := np.bincount(y)).size > 2 and sizes.min() < least:
        small, smaller = np.argsort(sizes, kind="stable")[[1, 0]]
        y = np.unique(np.where(y == smaller, small, y), return_inverse=True)[1]
        merged += 1
    return y, merged


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    warm_up()
    for name, load in sets(data, quick=quick).items():
        if names is not None and name not in names:
            continue
        X, y = load()
        y, merged = merge_rare(y, LEAST)
        lines = study(np.asarray(X, dtype=float), y)
        shape = (*X.shape, len(np.unique(y)))
        lines = [{"problem": name, "shape": shape, "merged": merged, **line} for line in lines]
        stored = records.store(out / "quality.jsonl", lines)
        records.write(out / "quality.md", page(stored))
        summary = summarise([line for line in stored if line["problem"] == name])
        print(name, {key: value for key, value in summary.items() if key != "shape"}, flush=True)


def warm_up() -> None:
    """Imports and thread pools are nobody's time."""
    X, y = problems.synthetic(60, 3, 3)
    with quiet():
        ours().fit(X, y)
        peer().fit(X, y)


def ours(approximation: str = "auto") -> Any:
    import posteriori as po

    return po.BayesianSoftmaxRegression(approximation=approximation)


def peer() -> Any:
    model = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000)
    return make_pipeline(StandardScaler(), model)


def study(X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Return one line per fold and method."""
    lines: list[dict[str, Any]] = []
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y)
    rng = np.random.default_rng(0)
    for fold, (in_order, test) in enumerate(splits):
        train = rng.permutation(in_order)
        fits: dict[str, Callable[[], Any]] = {
            DEFAULT: lambda rows=train: ours().fit(X[rows], y[rows]),
            LAPLACE: lambda rows=train: ours("laplace").fit(X[rows], y[rows]),
        }
        for n in THREADS:
            fits[f"{PEER}-{n}"] = lambda rows=train, n=n: with_threads(n, lambda: peer().fit(X[rows], y[rows]))
        with quiet():
            made = {name: timed(fits[name]) for name in ordered(list(fits), fold)}
            models = {DEFAULT: made[DEFAULT], LAPLACE: made[LAPLACE], PEER: made[f"{PEER}-{THREADS[0]}"]}
            losses = {name: row_losses(model, X[test], y[test]) for name, (_, model) in models.items()}
            losses[PLUGIN] = row_losses(made[DEFAULT][1].set_params(predictive="plugin"), X[test], y[test])
            losses[LAPLACE] = row_losses(made[LAPLACE][1].set_params(predictive="quasi"), X[test], y[test])
        shares = np.bincount(y[train], minlength=y.max() + 1) / len(train)
        solution = made[DEFAULT][1].solution_
        common = {"fold": fold, "rows": len(test), "prior_loss": float(-np.log(shares[y[test]]).mean())}
        for name in METHODS:
            excess = losses[DEFAULT] - losses[name]
            lines.append(
                common
                | {
                    "method": name,
                    "seconds": None if name in (PLUGIN, PEER) else models[name][0],
                    "seconds_by_threads": [made[f"{PEER}-{n}"][0] for n in THREADS] if name == PEER else None,
                    "loss": float(losses[name].mean()),
                    "excess_sum": float(excess.sum()),
                    "excess_squares": float(excess @ excess),
                    "approximation": chosen_of(solution) if name == DEFAULT else None,
                    "scores": solution.scores if name == DEFAULT else None,
                }
            )
    return with_best_threads(lines)


def chosen_of(solution: Any) -> str:
    """Return what makes the probabilities: the mode, or the posterior averaged over."""
    return "mode" if solution.predictive == "plugin" else solution.approximation


def with_best_threads(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines, those of the peer with the seconds of the number of threads that was faster over all folds."""
    tried = [line["seconds_by_threads"] for line in lines if line["method"] == PEER]
    best = int(np.argmin(np.sum(tried, axis=0)))
    return [
        line
        | ({"seconds": line["seconds_by_threads"][best], "threads": THREADS[best]} if line["method"] == PEER else {})
        for line in lines
    ]


def with_threads(n: int, fit: Callable[[], Any]) -> Any:
    with threadpool_limits(n, user_api="blas"):
        return fit()


def row_losses(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return -log p(y_n | x_n), (n,)."""
    with np.errstate(divide="ignore"):
        log_p = model.predict_log_proba(X)
    return -np.maximum(log_p[np.arange(len(y)), y], FLOOR)


def paired(lines: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the mean over rows of the default's loss less a method's, and its standard error."""
    n = sum(line["rows"] for line in lines)
    mean = math.fsum(line["excess_sum"] for line in lines) / n
    variance = max(0.0, math.fsum(line["excess_squares"] for line in lines) / n - mean**2)
    return mean, math.sqrt(variance / max(1, n - 1))


def mean_loss(lines: list[dict[str, Any]], key: str = "loss") -> float:
    """Return the mean over rows."""
    return math.fsum(line["rows"] * line[key] for line in lines) / sum(line["rows"] for line in lines)


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one set."""
    by = {name: [line for line in lines if line["method"] == name] for name in METHODS}
    losses = {name: mean_loss(by[name]) for name in METHODS}
    prior = mean_loss(by[DEFAULT], "prior_loss")
    to_peer, to_plugin = paired(by[PEER]), paired(by[PLUGIN])
    chosen = [line["approximation"] for line in by[DEFAULT]]
    return {
        "shape": lines[0]["shape"],
        "merged": lines[0]["merged"],
        "losses": losses,
        "skill": {name: 1.0 - losses[name] / prior for name in METHODS},
        "to_peer": to_peer,
        "to_plugin": to_plugin,
        "seconds": {name: sum(line["seconds"] for line in by[name]) for name in (DEFAULT, LAPLACE, PEER)},
        "times_as_fast": median(
            theirs["seconds"] / mine["seconds"] for mine, theirs in zip(by[DEFAULT], by[PEER], strict=True)
        ),
        "chosen": {name: chosen.count(name) for name in dict.fromkeys(chosen)},
        "worse_than_peer": worse(to_peer, losses[PEER], PEER_SHARE),
        "worse_than_plugin": worse(to_plugin, losses[PLUGIN], PLUGIN_SHARE),
    }


def worse(difference: tuple[float, float], loss: float, share: float) -> bool:
    """Say whether the default is worse by more than the share, 0.005 nats and one standard error."""
    mean, error = difference
    return mean > max(share * loss, NATS, error)


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    summaries = {name: summarise([line for line in lines if line["problem"] == name]) for name in names}
    rows = [row(name, summary) for name, summary in summaries.items()]
    rows.append(overall(list(summaries.values())))
    return records.markdown("Quality of default predictions", NOTES + "\n\n" + verdict(summaries), HEADER, rows)


def row(name: str, summary: dict[str, Any]) -> list[str]:
    """Return one set's cells."""
    return [
        name + (f" ({summary['merged']} class merged)" if summary["merged"] else ""),
        *map(str, summary["shape"]),
        *(f"{summary['losses'][method]:.4f}" for method in METHODS),
        f"{summary['skill'][DEFAULT]:.3f}",
        f"{summary['skill'][PEER]:.3f}",
        difference(summary["to_peer"]),
        ", ".join(f"{count} {name}" for name, count in summary["chosen"].items()),
        f"{summary['seconds'][DEFAULT]:.3g}",
        f"{summary['seconds'][PEER]:.3g}",
        f"{summary['times_as_fast']:.1f}",
    ]


def difference(pair: tuple[float, float]) -> str:
    """Return a mean and its standard error."""
    return f"{pair[0]:+.4f} ± {pair[1]:.4f}"


def clustered(values: list[float]) -> tuple[float, float]:
    """Return the mean over sets and its standard error."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return fmean(values), error


def overall(summaries: list[dict[str, Any]]) -> list[str]:
    """Return the cells over all sets: mean losses, median skills, total seconds, median speed."""
    seconds = {name: sum(summary["seconds"][name] for summary in summaries) for name in (DEFAULT, PEER)}
    return [
        f"**{len(summaries)} sets**", "", "", "",
        *(f"{fmean(summary['losses'][method] for summary in summaries):.4f}" for method in METHODS),
        *(f"{median(summary['skill'][method] for summary in summaries):.3f}" for method in (DEFAULT, PEER)),
        difference(clustered([summary["to_peer"][0] for summary in summaries])),
        "",
        f"{seconds[DEFAULT]:.3g}", f"{seconds[PEER]:.3g}",
        show(median(summary["times_as_fast"] for summary in summaries), ".1f"),
    ]  # fmt: skip


def verdict(summaries: dict[str, dict[str, Any]]) -> str:
    """Return wins, violations and speed in words."""
    many = list(summaries.values())

    def wins(method: str, other: str) -> int:
        return sum(summary["losses"][method] < summary["losses"][other] for summary in many)

    def named(key: str) -> str:
        return ", ".join(name for name, summary in summaries.items() if summary[key]) or "none"

    seconds = {name: sum(summary["seconds"][name] for summary in many) for name in (DEFAULT, PEER)}
    skills = ", ".join(f"{name} {median(summary['skill'][name] for summary in many):.3f}" for name in METHODS)
    return "\n".join(
        (
            f"- Sets with the lower loss: {DEFAULT} {wins(DEFAULT, PEER)} of {len(many)} against the peer, "
            f"{wins(DEFAULT, PLUGIN)} against {PLUGIN}, {wins(DEFAULT, LAPLACE)} against {LAPLACE}.",
            f"- Mean log-loss (goal: {GOAL:.3f}): "
            + ", ".join(f"{name} {fmean(summary['losses'][name] for summary in many):.4f}" for name in METHODS)
            + ".",
            f"- Median skill: {skills}.",
            f"- {DEFAULT} less {PLUGIN}: {difference(clustered([summary['to_plugin'][0] for summary in many]))}.",
            f"- Worse than the peer by more than max({PEER_SHARE:.0%}, {NATS} nats, 1 s.e.) (goal: none): "
            f"{named('worse_than_peer')}.",
            f"- Worse than its plug-in by more than max({PLUGIN_SHARE:.0%}, {NATS} nats, 1 s.e.) (goal: none): "
            f"{named('worse_than_plugin')}.",
            f"- Times as fast (goal: {SPEED:g}): median over sets "
            f"{median(summary['times_as_fast'] for summary in many):.1f}, all sets together "
            f"{seconds[PEER] / seconds[DEFAULT]:.1f}; below the goal: "
            + (", ".join(n for n, s in summaries.items() if s["times_as_fast"] < SPEED) or "none")
            + ".",
        )
    )
