"""Maps of probabilities that learn from the same left-out rows: log-loss of new rows after each, and its price."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import PredefinedSplit, StratifiedKFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import records
from benchmarks.quality import merge_rare, sets
from benchmarks.turns import quiet

FOLDS, REPEATS, MOST_ROWS, LEAST = 5, 3, 2500, 10
"""Folds of the training rows, splits of each set, rows of a set, and rows that a class needs."""
TEST = 0.4
FLOOR = float(np.finfo(float).eps)
"""The lowest probability that counts as it is, as in scikit-learn's log_loss."""
AUTO, TEMPERATURE, SMS, SCALING, ISOTONIC = "auto", "temperature", "SMS", "temperature scaling", "isotonic"
MAPS = (AUTO, TEMPERATURE, SMS, SCALING, ISOTONIC)
ALLOWED, NOTABLE = 0.001, 0.02
"""By how much the mean log-loss of a classifier may rise, and the increase from which a cell is named."""
SAMPLES, NEW = 20, 4000
"""Samples of good probabilities of each size, and new rows on which their maps are judged."""
SIZES = (30, 100, 300, 1000)
GOOD = "good probabilities"

NOTES = f"""\
Each of scikit-learn's classifiers, with its defaults (the network on standardised columns), predicts {1 - TEST:.0%} of
the rows of each set from {FOLDS} folds, and is fitted to all of these. Every map learns from the same left-out
predictions and is tried on the other {TEST:.0%}, which neither has seen: {REPEATS} splits, of which a cell, a set with
a classifier, has the mean. Sets have at most {MOST_ROWS:,} rows; classes with fewer than {LEAST} are merged. "{AUTO}"
and "{TEMPERATURE}" are methods of `CalibratedClassifier`; "{SMS}" is structured matrix scaling (`SMSCalibrator` of
probmetrics); "{SCALING}" and "{ISOTONIC}" are those of scikit-learn's `CalibratedClassifierCV`. Numbers are mean
changes of the log-loss of test rows, in nats; probabilities below {FLOOR:.0e} count as this. "wins" is the share of
cells in which "{AUTO}" has the lower log-loss, ties half. The goal is that no classifier's mean rises by more than
{ALLOWED:g} and, over all, more wins and a lower mean than {SMS}. Seconds are those of the processor to fit a map.
Every split is in `calibration_maps.jsonl`."""


class Given(ClassifierMixin, BaseEstimator):
    """Probabilities that are given as the features: nothing is learned."""

    def fit(self, P: np.ndarray, y: np.ndarray) -> Given:
        self.classes_ = np.arange(P.shape[1])
        self.n_features_in_ = P.shape[1]
        return self

    def predict_proba(self, P: np.ndarray) -> np.ndarray:
        return np.asarray(P)

    def predict(self, P: np.ndarray) -> np.ndarray:
        return np.asarray(P).argmax(axis=1)


def members() -> dict[str, Callable[[], Any]]:
    return {
        "RandomForestClassifier": lambda: RandomForestClassifier(random_state=0),
        "HistGradientBoostingClassifier": lambda: HistGradientBoostingClassifier(random_state=0),
        "GaussianNB": GaussianNB,
        "MLPClassifier": lambda: make_pipeline(StandardScaler(), MLPClassifier(random_state=0)),
    }


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Measure every set, and good probabilities; the results are on disk after each."""
    file = out / "calibration_maps.jsonl"
    warm_up()
    for name, load in sets(data, quick=quick).items():
        if names is not None and name not in names:
            continue
        X, y = load()
        X, y = np.asarray(X, dtype=float), merge_rare(y, LEAST)[0]
        rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
        lines = [
            {"problem": name, "member": member, "repeat": repeat, **study(make, X[rows], y[rows], repeat)}
            for member, make in members().items()
            if member == "GaussianNB" or not quick
            for repeat in range(1 if quick else REPEATS)
        ]
        write(out, records.store(file, lines))
        print(name, {line["member"]: line["changes"].get(AUTO) for line in lines if line["repeat"] == 0}, flush=True)
    if names is None:
        sizes, samples = (SIZES[:1], 2) if quick else (SIZES, SAMPLES)
        write(out, records.store(file, [good(n, K, samples) for K in (2, 4) for n in sizes]))


def write(out: Path, lines: list[dict[str, Any]]) -> None:
    records.write(out / "calibration_maps.md", page(lines))


def warm_up() -> None:
    """Imports and the first steps of a library are nobody's time."""
    P, y, folds = np.full((20, 2), 0.5), np.arange(20) % 2, np.arange(20) % FOLDS
    with quiet():
        for fit in maps().values():
            fit(P, y, folds)


def maps() -> dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Any]]:
    """Return what fits each map to left-out probabilities, labels and folds, those of probmetrics if it is there."""
    from posteriori import CalibratedClassifier

    def ours(method: str) -> Callable[..., Any]:
        return lambda P, y, folds: CalibratedClassifier(
            FrozenEstimator(Given().fit(P, y)), method=method, cv=PredefinedSplit(folds)
        ).fit(P, y)

    def theirs(method: str) -> Callable[..., Any]:
        return lambda P, y, folds: CalibratedClassifierCV(
            FrozenEstimator(Given().fit(P, y)), method=method, ensemble=False
        ).fit(P, y)

    found = {AUTO: ours("auto"), TEMPERATURE: ours("temperature")}
    try:
        from probmetrics.calibrators import SMSCalibrator

        found[SMS] = lambda P, y, folds: SMSCalibrator().fit(P, y)
    except ImportError:
        print("probmetrics, or numba which it needs, is not installed: its map is left out.")
    return found | {SCALING: theirs("temperature"), ISOTONIC: theirs("isotonic")}


def study(make: Callable[[], Any], X: np.ndarray, y: np.ndarray, repeat: int) -> dict[str, Any]:
    """Return sizes, the log-loss of test rows, and what each map makes of it in what time."""
    train, test = train_test_split(np.arange(len(y)), test_size=TEST, stratify=y, random_state=repeat)
    X_train, y_train = X[train], y[train]
    P, folds = np.zeros((len(train), y.max() + 1)), np.zeros(len(train), dtype=int)
    with quiet():
        splits = StratifiedKFold(FOLDS, shuffle=True, random_state=repeat).split(X_train, y_train)
        for i, (rows, out) in enumerate(splits):
            P[out], folds[out] = make().fit(X_train[rows], y_train[rows]).predict_proba(X_train[out]), i
        P_test = make().fit(X_train, y_train).predict_proba(X[test])
        return {"rows": len(train), "K": P.shape[1], **compared(P, y_train, folds, P_test, np.eye(P.shape[1])[y[test]])}


def compared(P: np.ndarray, y: np.ndarray, folds: np.ndarray, P_new: np.ndarray, Y_new: np.ndarray) -> dict[str, Any]:
    """Return the log-loss of new rows with labels or true probabilities Y, the changes by each map, and its seconds."""
    plain = log_loss(P_new, Y_new)
    changes, seconds = {}, {}
    for name, fit in maps().items():
        start = process_time()
        fitted = fit(P, y, folds)
        seconds[name] = process_time() - start
        changes[name] = log_loss(np.asarray(fitted.predict_proba(P_new)), Y_new) - plain
    return {"plain": plain, "changes": changes, "seconds": seconds}


def log_loss(P: np.ndarray, Y: np.ndarray) -> float:
    return float(-(Y * np.log(np.maximum(P, FLOOR))).sum(axis=1).mean())


def good(n: int, K: int, samples: int) -> dict[str, Any]:
    """Return what maps cost that learn from n rows whose labels follow their probabilities: nothing was wrong."""
    new = np.random.default_rng(10**6).dirichlet(np.full(K, 0.7), NEW)
    changes: dict[str, list[float]] = {}
    for seed in range(samples):
        rng = np.random.default_rng(seed)
        y = np.zeros(n, dtype=int)
        while np.bincount(y, minlength=K).min() == 0:  # not all maps can do without rows of some class
            P = rng.dirichlet(np.full(K, 0.7), n)
            y = (P.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, K - 1)
        with quiet():
            found = compared(P, y, np.arange(n) % FOLDS, new, new)
        for name, change in found["changes"].items():
            changes.setdefault(name, []).append(change)
    means = {name: fmean(each) for name, each in changes.items()}
    return {"problem": f"{GOOD}, {n} x {K}", "rows": n, "K": K, "changes": means}


def page(lines: list[dict[str, Any]]) -> str:
    """Return the tables: by classifier, by set, and of good probabilities."""
    simulated = [line for line in lines if line["problem"].startswith(GOOD)]
    found = cells([line for line in lines if line not in simulated])
    names = list(dict.fromkeys(cell["member"] for cell in found))
    rows = [row(name, [cell for cell in found if cell["member"] == name]) for name in names]
    header = ("classifier", "cells", "log-loss", *MAPS, *(f"wins, {name}" for name in MAPS[1:]), "goal")
    seconds = row_of("seconds", found, lambda cell, name: cell["seconds"].get(name), ".3f")
    return records.markdown(
        "Maps of probabilities", NOTES, header, [*rows, row("all", found)],
        after="\n\n".join([
            "Seconds: " + ", ".join(f"{name} {text}" for name, text in zip(MAPS, seconds[1:], strict=True)) + ".",
            worst(found),
            "By set, the mean over classifiers:",
            by_set(found),
            f"What a map costs that learns from good probabilities, by which labels are drawn ({SAMPLES} samples):",
            records.table(("rows x classes", *MAPS), [
                row_of(line["problem"].removeprefix(f"{GOOD}, "), [line], lambda line, name: line["changes"].get(name))
                for line in simulated
            ]),
        ]),
    )  # fmt: skip


def cells(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over splits."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["problem"], line["member"]), []).append(line)
    return [
        {
            "problem": problem,
            "member": member,
            "rows": group[0]["rows"],
            "plain": fmean(line["plain"] for line in group),
            "changes": means(group, "changes"),
            "seconds": means(group, "seconds"),
        }
        for (problem, member), group in groups.items()
    ]


def means(group: list[dict[str, Any]], key: str) -> dict[str, float]:
    return {name: fmean(line[key][name] for line in group) for name in group[0][key]}


def row(name: str, found: list[dict[str, Any]]) -> list[str]:
    """Return a classifier's cells: mean changes, how often "auto" is ahead, and whether what was wanted is so."""
    shown = row_of(name, found, lambda cell, map_: cell["changes"].get(map_))
    wins = {map_: won(found, map_) for map_ in MAPS[1:]}
    return [
        name, str(len(found)), mean_text([cell["plain"] for cell in found], ".3f"), *shown[1:],
        *("-" if share is None else f"{share:.2f}" for share in wins.values()), goal(name, found, wins[SMS]),
    ]  # fmt: skip


def goal(name: str, found: list[dict[str, Any]], against_sms: float | None) -> str:
    """Return "yes", or what is missing: no harm to any classifier; over all, ahead of SMS in wins and in the mean."""
    missing = []
    change = fmean(cell["changes"][AUTO] for cell in found) if found else 0.0
    if change > ALLOWED:
        missing.append(f"worse by {change:.4f}")
    if name == "all" and against_sms is not None:
        if against_sms <= 0.5:
            missing.append(f"wins {against_sms:.2f} against {SMS}")
        if change > fmean(cell["changes"][SMS] for cell in found):
            missing.append(f"mean change above that of {SMS}")
    return "no: " + ", ".join(missing) if missing else "yes"


def won(found: list[dict[str, Any]], other: str) -> float | None:
    """Return the share of cells in which "auto" has the lower log-loss; None where the other has none."""
    pairs = [(cell["changes"][AUTO], cell["changes"][other]) for cell in found if other in cell["changes"]]
    return fmean((ours < theirs) + 0.5 * (ours == theirs) for ours, theirs in pairs) if pairs else None


def row_of(
    name: str, found: list[dict[str, Any]], value: Callable[..., float | None], style: str = "+.4f"
) -> list[str]:
    return [name, *(mean_text([v for line in found if (v := value(line, map_)) is not None], style) for map_ in MAPS)]


def mean_text(values: list[float], style: str) -> str:
    return format(fmean(values), style) if values else "-"


def worst(found: list[dict[str, Any]]) -> str:
    """Return where "auto" raised the log-loss notably, and how often each map did."""
    counts = {
        name: sum(cell["changes"][name] > NOTABLE for cell in found)
        for name in MAPS
        if any(name in cell["changes"] for cell in found)
    }
    notable = sorted((c for c in found if c["changes"][AUTO] > NOTABLE), key=lambda c: -c["changes"][AUTO])
    named = [f"{c['problem']}, {c['member']} ({c['rows']} rows) {c['changes'][AUTO]:+.3f}" for c in notable]
    text = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"Cells whose log-loss rises by more than {NOTABLE:g}: {text}. Of {AUTO}: {'; '.join(named) or 'none'}."


def by_set(found: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(cell["problem"] for cell in found))
    groups = {name: [cell for cell in found if cell["problem"] == name] for name in names}
    rows = [
        [name, str(group[0]["rows"]), *row_of(name, group, lambda cell, map_: cell["changes"].get(map_))[1:]]
        for name, group in groups.items()
    ]
    return records.table(("set", "rows", *MAPS), rows)
