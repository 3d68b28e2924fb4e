"""Whether calibration helps and never hurts: log-loss of new rows before and after, for many classifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.turns import quiet

NEW = 3000
"""New rows of a simulated problem."""
FLOOR = float(np.finfo(float).eps)
"""The lowest probability that counts as it is, as in scikit-learn's log_loss."""
CLEAR = 1e-4
"""A change of the mean log-loss below this is none."""

Rows = tuple[np.ndarray, np.ndarray]
OURS = "posteriori"
PEERS = ("sigmoid", "isotonic", "temperature")

NOTES = f"""\
Every classifier is fitted to the training rows of every problem, as it is and calibrated on 5 folds of the same rows:
by `CalibratedClassifier` (posteriori) and by scikit-learn's `CalibratedClassifierCV` with its three methods, as an
ensemble (its default). The log-loss of rows not seen, {NEW:,} in simulated problems, is compared with that of the
classifier as it is, paired by row. "better" and "worse" count the problems on which the difference is more than two
standard errors and more than {CLEAR:g}; "most" is the largest of the increases among them. Problems: classes that a
plane separates or nearly separates, Gaussian classes from 60 to 400 rows and 2 to 10 classes, copied columns, wrong
labels, columns without information; digits, breast cancer, wine and iris, half of the rows for training. Every line
is in `calibration.jsonl`."""

HEADER = ("classifier", "problems", *(f"{who}: better / worse / most" for who in (OURS, *PEERS)))


def run(out: Path, *, quick: bool = False) -> None:
    """Measure every problem; the results are on disk after each."""
    names = members()
    for problem, rows in problems(quick).items():
        chosen = {name: names[name] for name in (("logistic, C=inf", "naive Bayes") if quick else names)}
        lines = [{"problem": problem, "member": name, **study(make, *rows)} for name, make in chosen.items()]
        stored = records.store(out / "calibration.jsonl", lines)
        records.write(out / "calibration.md", page(stored))
        print(problem, {line["member"]: round(line[OURS][0], 4) for line in lines}, flush=True)


def members() -> dict[str, Callable[[], Any]]:
    """Return classifiers of many kinds: too sure, too careful, and well calibrated."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from posteriori import BayesianSoftmaxRegression, GaussianClassifier, SoftmaxRegression

    def logistic(C: float) -> Callable[[], Any]:
        return lambda: make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300))

    return {
        "logistic, C=inf": logistic(np.inf),
        "logistic, C=1": logistic(1.0),
        "logistic, C=0.01": logistic(0.01),
        "naive Bayes": GaussianNB,
        "forest": lambda: RandomForestClassifier(50, random_state=0),
        "forest, leaves of 5": lambda: RandomForestClassifier(50, min_samples_leaf=5, random_state=0),
        "boosting": lambda: HistGradientBoostingClassifier(max_iter=30, random_state=0),
        "SoftmaxRegression, alpha=1e-6": lambda: SoftmaxRegression(1e-6),
        "BayesianSoftmaxRegression": lambda: BayesianSoftmaxRegression(1.0, approximation="laplace"),
        "GaussianClassifier, tied": lambda: GaussianClassifier("tied"),
    }


def problems(quick: bool) -> dict[str, tuple[Rows, Rows]]:
    """Return training rows and new rows of every problem."""
    from sklearn import datasets

    if quick:
        return {"separable 200 x 10": gaussians(200, 10, 2, 4.0, 0)}
    found = {f"separable 1000 x 10, sep {sep}, {i}": planes(1000, 2, sep, i) for i, sep in enumerate((1.5, 2, 2.5, 3))}
    for seed in range(2):
        found |= {
            f"nearly separable 1000 x 10, {seed}": gaussians(1000, 10, 2, 3.0, seed),
            f"2 classes 200 x 10, {seed}": gaussians(200, 10, 2, 3.0, seed),
            f"2 classes 60 x 20, {seed}": gaussians(60, 20, 2, 3.0, seed),
            f"3 classes 300 x 5, {seed}": gaussians(300, 5, 3, 1.5, seed),
            f"copied columns 300 x 24, {seed}": gaussians(300, 8, 3, 1.5, seed, copies=3),
            f"10 classes 400 x 8, {seed}": gaussians(400, 8, 10, 3.0, seed),
            f"wrong labels, 5 classes 500 x 10, {seed}": planes(500, 5, 1.0, seed, wrong=0.1),
            f"no information 150 x 5, {seed}": gaussians(150, 5, 3, 0.0, seed),
        }
    for name in ("digits", "breast_cancer", "wine", "iris"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        found[name] = cut(X[order], y[order], len(y) // 2)
    return found


def gaussians(n: int, D: int, K: int, distance: float, seed: int, copies: int = 1) -> tuple[Rows, Rows]:
    """Gaussian classes with means at a distance from the origin, in columns that may be copied with noise."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(K, D)) * distance / np.sqrt(D)
    y = rng.permutation(np.arange(n + NEW) % K)
    X = means[y] + rng.normal(size=(n + NEW, D))
    return cut(np.hstack([X + 0.3 * (i > 0) * rng.normal(size=X.shape) for i in range(copies)]), y, n)


def planes(n: int, K: int, sep: float, seed: int, wrong: float = 0.0) -> tuple[Rows, Rows]:
    """Classes at corners of a cube in 10 columns, and a share of wrong labels."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n + NEW, 10, n_informative=5, n_redundant=2, n_classes=K, n_clusters_per_class=1, class_sep=sep, flip_y=wrong,
        random_state=seed,
    )  # fmt: skip
    return cut(X, y, n)


def cut(X: np.ndarray, y: np.ndarray, n: int) -> tuple[Rows, Rows]:
    """Return the first n rows, and the others."""
    return (X[:n], y[:n]), (X[n:], y[n:])


def study(make: Callable[[], Any], train: Rows, new: Rows) -> dict[str, Any]:
    """Return the log-loss of the classifier, and change and standard error of each way to calibrate it."""
    from sklearn.calibration import CalibratedClassifierCV

    from posteriori import CalibratedClassifier

    models = {OURS: CalibratedClassifier(make())} | {
        method: CalibratedClassifierCV(make(), method=method, cv=5) for method in PEERS
    }
    with quiet():
        plain = losses(make().fit(*train), *new)
        changes = {name: losses(model.fit(*train), *new) - plain for name, model in models.items()}
    errors = {name: float(change.std() / np.sqrt(len(change))) for name, change in changes.items()}
    return {"plain": float(plain.mean()), **{name: (float(c.mean()), errors[name]) for name, c in changes.items()}}


def losses(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return minus the log-probability of each row's class."""
    return -np.log(np.maximum(model.predict_proba(X)[np.arange(len(y)), y], FLOOR))


def page(lines: Iterable[dict[str, Any]]) -> str:
    """Return the table: a line for every classifier, and one for all."""
    lines = list(lines)
    names = list(dict.fromkeys(line["member"] for line in lines))
    rows = [row(name, [line for line in lines if line["member"] == name]) for name in names]
    return records.markdown("Calibration", NOTES, HEADER, [*rows, row("all", lines)])


def row(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """Return the counts of one classifier."""
    return [name, str(len(lines)), *(counts([line[who] for line in lines]) for who in (OURS, *PEERS))]


def counts(changes: list[tuple[float, float]]) -> str:
    """Return how often the log-loss was clearly lower and clearly higher, and the largest increase."""
    clear = [change for change, error in changes if abs(change) > max(2 * error, CLEAR)]
    worse = [change for change in clear if change > 0]
    return f"{len(clear) - len(worse)} / {len(worse)} / {f'{max(worse):.3f}' if worse else '-'}"
