"""The literature's fixed splits: a Gaussian process with all defaults against kernel logistic regression that is tuned.

Ours learns its kernel from the evidence of all training rows; the peer has an RBF kernel, and chooses its lengthscale
and a penalty on rows held out of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks import records
from benchmarks.gp_quality import how, log_probabilities, scores
from benchmarks.quality import difference
from benchmarks.turns import ordered, quiet, timed

REFERENCE = {"glass": (0.311, 0.816), "vehicle": (0.144, 0.314), "vowel": (0.011, 0.047), "wine": (0.014, 0.045)}
"""The sets, and what is to be reached on them: error and log-loss."""
QUICK, QUICK_SPLITS = ("wine",), 2

GP, PEER = "GPClassifier", "kernel logistic regression"
METHODS = (GP, PEER)

GAMMAS = 2.0 ** np.arange(-6, 4)
"""Of the peer, divided by the number of features."""
CS = 10.0 ** np.arange(-2, 7)
HELD_OUT = 0.3
SMALLEST = 1e-10
"""Eigenvalues of a Gram matrix below this share of the largest are left out."""

NOTES = f"""\
The literature's fixed splits of each set; means over splits of the share of test rows whose most probable class is
wrong ("error") and of the log-loss of test rows in nats. "{GP}": `{GP}()` on raw columns, scored as it is. The peer is
{PEER} with a free intercept, built from scikit-learn's parts:
`LogisticRegression(max_iter=3000, tol=1e-5)` on features whose products are the RBF Gram matrix of all training
rows, columns standardised by these. Its gamma (of {len(GAMMAS)} values
from {GAMMAS[0]:g}/D to {GAMMAS[-1]:g}/D) and C (of {len(CS)} from {CS[0]:g} to {CS[-1]:g}) have the lowest log-loss on
{HELD_OUT:.0%} of the training rows, held out by class (seed 0); then it is fitted again to all of them. Its
log-probabilities are not taken below that of the machine epsilon. Differences are ours less the peer's, plus or minus
the root of (1/splits + n_test/n_train) times the variance of the differences over splits, as splits share training
rows. "reference": figures that these classifiers were asked to be compared with. Seconds are to fit, a split, the
choice of gamma and C included; ours compiles where a shape is new. Every split is in `gp_folds.jsonl`."""

HEADER = (
    "set", "N", "D", "K", "splits", "error", "peer's", "difference", "reference", "log-loss", "peer's", "difference",
    "reference", "seconds", "peer's",
)  # fmt: skip


class Splits(NamedTuple):
    """Rows X (N, D), y (N,) as codes 0..K-1; indices of training and of test rows, one row a split."""

    X: np.ndarray
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False, peers: bool = True) -> None:
    """Run the sets one after another; the results are on disk after each."""
    for name in QUICK if quick else REFERENCE:
        if names is not None and name not in names:
            continue
        if data is None or not (data / "folds" / name).is_dir():
            print(f"gp-folds: {name} skipped, --data FOLDER must have folds/{name} with data.npz and folds.npz")
            continue
        splits = load(name, data)
        shape = (*splits.X.shape, len(np.unique(splits.y)))
        lines = study(splits, QUICK_SPLITS if quick else len(splits.train), METHODS if peers else (GP,))
        lines = [{"problem": name, "shape": shape, **line} for line in lines]
        stored = records.store(out / "gp_folds.jsonl", lines)
        records.write(out / "gp_folds.md", page(stored))
        summary = summarise([line for line in stored if line["problem"] == name])
        print(name, {key: summary[key] for key in ("error", "loss")}, flush=True)


def load(name: str, data: Path) -> Splits:
    """Read a set and its splits."""
    folder = data / "folds" / name
    with np.load(folder / "data.npz") as rows, np.load(folder / "folds.npz") as indices:
        X, labels = rows["arr_0"], rows["arr_1"]
        return Splits(X.astype(float), np.unique(labels, return_inverse=True)[1], indices["arr_0"], indices["arr_1"])


class KernelLogistic:
    """Logistic regression in the functions of an RBF kernel, f = K a + b with penalty a^T K a / (2 C), tuned.

    With K = U diag(l) U^T the features U diag(l)^(1/2) have an ordinary ridge penalty; those of new rows are
    k(x) U diag(l)^(-1/2).
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self.scaler_ = StandardScaler().fit(X)
        X = self.scaler_.transform(X)
        self.gamma_, self.C_ = self._choose(X, y)
        self.rows_, self.map_, features = X, *feature_map(rbf_kernel(X, gamma=self.gamma_))
        self.model_ = logistic(self.C_).fit(features, y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        K = rbf_kernel(self.scaler_.transform(X), self.rows_, gamma=self.gamma_)
        return self.model_.predict_proba(K @ self.map_)

    def _choose(self, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        """Return the gamma and the C with the lowest log-loss on rows held out."""
        kept, held = train_test_split(np.arange(len(y)), test_size=HELD_OUT, random_state=0, stratify=y)
        found = []
        for gamma in GAMMAS / X.shape[1]:
            to_features, features = feature_map(rbf_kernel(X[kept], gamma=gamma))
            new = rbf_kernel(X[held], X[kept], gamma=gamma) @ to_features
            model = logistic(CS[0]).set_params(warm_start=True)
            for C in CS:
                model.set_params(C=C).fit(features, y[kept])
                log_p = log_probabilities(PEER, model, new)
                found.append((scores(log_p, y[held])["loss"], float(gamma), float(C)))
        return min(found)[1:]


def feature_map(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the map from k(x) to the features of x, and the features of the rows themselves."""
    values, U = np.linalg.eigh(K)
    kept = values > SMALLEST * values[-1]
    roots = np.sqrt(values[kept])
    return U[:, kept] / roots, U[:, kept] * roots


def logistic(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=3000, tol=1e-5)


def contenders() -> dict[str, Callable[[], Any]]:
    """Return an unfitted classifier of each method."""
    import posteriori as po

    return {GP: po.GPClassifier, PEER: KernelLogistic}


def study(splits: Splits, count: int, methods: tuple[str, ...] = METHODS) -> list[dict[str, Any]]:
    """Return one line per split and method, of the first splits."""
    X, y, makers = splits.X, splits.y, contenders()
    lines = []
    for i, (train, test) in enumerate(zip(splits.train[:count], splits.test[:count], strict=True)):
        with quiet():
            made = {
                name: timed(lambda make=makers[name], rows=train: make().fit(X[rows], y[rows]))
                for name in ordered(list(methods), i)
            }
            predicted = {name: log_probabilities(name, made[name][1], X[test]) for name in methods}
        for name in methods:
            seconds, model = made[name]
            chosen = how(model) if name == GP else {"gamma": model.gamma_, "C": model.C_}
            sizes = {"split": i, "rows": len(test), "train_rows": len(train)}
            lines.append({**sizes, "method": name, **scores(predicted[name], y[test]), "seconds": seconds, **chosen})
    return lines


def corrected(differences: list[float], test_share: float) -> tuple[float, float]:
    """Return the mean over splits, and its standard error if they share training rows (test_share: n_test/n_train)."""
    if len(differences) < 2:
        return fmean(differences), math.nan
    variance = float(np.var(differences, ddof=1))
    return fmean(differences), math.sqrt((1.0 / len(differences) + test_share) * variance)


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of one set: means of both methods, and their differences."""
    by = {name: sorted((x for x in lines if x["method"] == name), key=lambda x: x["split"]) for name in METHODS}
    by = {name: its for name, its in by.items() if len(its) == len(by[GP])}  # peers may have been left out
    share = lines[0]["rows"] / lines[0]["train_rows"]
    summary: dict[str, Any] = {"shape": lines[0]["shape"], "splits": len(by[GP])}
    for key in ("error", "loss", "seconds"):
        summary[key] = {name: fmean(line[key] for line in its) for name, its in by.items()}
        if PEER in by:
            pairs = zip(by[GP], by[PEER], strict=True)
            summary[f"{key}_difference"] = corrected([mine[key] - theirs[key] for mine, theirs in pairs], share)
    return summary


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    rows = [row(name, summarise([line for line in lines if line["problem"] == name])) for name in names]
    return records.markdown("Fixed splits of the literature", NOTES, HEADER, rows)


def row(name: str, summary: dict[str, Any]) -> list[str]:
    """Return one set's cells."""
    cells = [name, *map(str, summary["shape"]), str(summary["splits"])]
    for key, reference in zip(("error", "loss"), REFERENCE[name], strict=True):
        cells += [f"{summary[key][method]:.4f}" if method in summary[key] else "" for method in METHODS]
        apart = summary.get(f"{key}_difference")
        cells += ["" if apart is None else difference(apart), f"{reference:.3f}"]
    return cells + [f"{summary['seconds'][m]:.3g}" if m in summary["seconds"] else "" for m in METHODS]
