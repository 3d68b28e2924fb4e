"""Whether prediction sets keep their promise: rows covered on every set, against the law that they should follow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom

from benchmarks import records
from benchmarks.quality import merge_rare, sets
from benchmarks.turns import quiet

ALPHA, LEAST, LEVEL = 0.1, 6, 0.05
"""Share of rows that may be missed; rows that every class needs; error of all verdicts together."""

SCORES = ("lac", "aps")

NOTES = f"""\
Each set is cut at random (seed 0, by class) into halves for training and a quarter each for calibration and test.
`GaussianClassifier("tied", estimate="map")` is fitted to the first, `ConformalClassifier(alpha={ALPHA})` calibrated
on the second and counted on the third. With k = ceil((n_cal + 1)(1 - alpha)) the number of test rows covered follows
BetaBinomial(n_test, k, n_cal + 1 - k); "p" is the two-sided probability of a count as far out, and the promise counts
as broken below {LEVEL} / (number of lines). "by class" is the lowest and highest coverage of a class with at least
ten test rows, once as it comes and once with `by_class=True`. Classes with fewer than {LEAST} rows are merged, the
two smallest at a time. Every line is in `conformal.jsonl`."""

HEADER = ("set", "score", "n_cal", "n_test", "covered", "share", "p", "mean size", "by class", "size, by_class", "kept")


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Count on every set; the results are on disk after each."""
    for name, load in sets(data, quick=quick, large=names or ()).items():
        if names is not None and name not in names:
            continue
        X, y = load()
        X, (y, _) = np.asarray(X, dtype=float), merge_rare(y, LEAST)
        lines = [{"problem": name, "score": score, **count(X, y, score)} for score in SCORES]
        stored = records.store(out / "conformal.jsonl", lines)
        records.write(out / "conformal.md", page(stored))
        print(name, {line["score"]: line["covered"] / line["n_test"] for line in lines}, flush=True)


def count(X: np.ndarray, y: np.ndarray, score: str) -> dict[str, Any]:
    """Return what was covered, and how it should be distributed."""
    from sklearn.model_selection import train_test_split

    from posteriori import ConformalClassifier, GaussianClassifier

    train, rest = train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y)
    held, test = train_test_split(rest, test_size=0.5, random_state=0, stratify=y[rest])
    with quiet():
        model = GaussianClassifier("tied", estimate="map").fit(X[train], y[train])
        plain, each = (
            ConformalClassifier(model, alpha=ALPHA, conformity=score, by_class=by_class).calibrate(
                model, X[held], y[held]
            )
            for by_class in (False, True)
        )
        sets_, sets_each = plain.predict_set(X[test]), each.predict_set(X[test])
    k = int(np.ceil((len(held) + 1) * (1 - ALPHA)))
    law = betabinom(len(test), k, len(held) + 1 - k)
    covered = round(sets_.coverage(y[test]) * len(test))
    p = min(1.0, 2.0 * min(law.cdf(covered), law.sf(covered - 1)))
    return {
        "n_cal": len(held),
        "n_test": len(test),
        "covered": covered,
        "p": float(p),
        "size": float(sets_.sizes.mean()),
        "size_each": float(sets_each.sizes.mean()),
        "by_class": [span(sets_, y[test]), span(sets_each, y[test])],
    }


def span(found: Any, y: np.ndarray) -> list[float]:
    """Return the lowest and highest coverage of classes with ten rows or more."""
    inside = found.members[np.arange(len(y)), np.searchsorted(found.classes, y)]
    shares = [float(inside[y == k].mean()) for k in np.unique(y) if np.sum(y == k) >= 10]
    return [min(shares), max(shares)] if shares else []


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    bound = LEVEL / len(lines)
    broken = [f"{line['problem']} ({line['score']})" for line in lines if line["p"] < bound]
    verdict = f"- Promise kept on {len(lines) - len(broken)} of {len(lines)} lines (goal: all). Broken: "
    notes = f"{NOTES}\n\n{verdict}{', '.join(broken) or 'none'}."
    return records.markdown("Coverage of prediction sets", notes, HEADER, [row(line, bound) for line in lines])


def row(line: dict[str, Any], bound: float) -> list[str]:
    """Return one line's cells."""
    plain, each = (f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else "" for ends in line["by_class"])
    return [
        line["problem"],
        line["score"],
        str(line["n_cal"]),
        str(line["n_test"]),
        str(line["covered"]),
        f"{line['covered'] / line['n_test']:.3f}",
        f"{line['p']:.3f}",
        f"{line['size']:.2f}",
        f"{plain}; {each}" if plain else "",
        f"{line['size_each']:.2f}",
        "yes" if line["p"] >= bound else "no",
    ]
