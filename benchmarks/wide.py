"""Many parameters, few rows: default predictions against cross-validated regularisation, in log-loss and seconds.

Wide, one-hot and nearly separable sets of the data folder, and sets that are made here: genes, one-hot categories, and
sparse counts of words. Both fit the same folds; the peer standardises dense columns and scales sparse ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from benchmarks import problems, quality, records
from benchmarks.problems import Data
from benchmarks.turns import quiet

FOLDS, LEAST = 5, 7
SLOW = 3
"""Folds of the sets that are made here, on which the peer takes minutes."""

NOTES = f"""\
{FOLDS} stratified folds ({SLOW} of the sets made here), shuffled with seed 0; mean log-loss of test rows, and seconds
of all fits. Ours is `BayesianSoftmaxRegression()`; "mode" is its mode alone, "average" the posterior's average. The
peer is `LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000)` after `StandardScaler`, or
`MaxAbsScaler` for sparse columns, with the machine's threads. Classes with fewer than {LEAST} rows are merged. "genes":
66 rows of four classes, 60 of 2,308 columns differ between them. "one-hot": 12 categories of 40 to 400 levels, of which
4 matter. "words": sparse counts, each class with its own frequencies of some words."""

HEADER = ("set", "N", "D", "K", "ours", "mode", "average", "LogisticRegressionCV", "seconds", "peer's (s)", "structure",
          "not worse", "not slower")  # fmt: skip


def genes() -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(66) % 4
    X = rng.normal(size=(66, 2308)) @ np.diag(rng.uniform(0.5, 2.0, 2308))
    X[:, :60] += 1.5 * rng.normal(size=(4, 60))[y]
    return X, y


def one_hot() -> Data:
    rng = np.random.default_rng(1)
    N, K, levels = 3000, 4, np.linspace(40, 400, 12).astype(int)
    codes = np.stack([np.minimum(rng.geometric(4.0 / n, N) - 1, n - 1) for n in levels], axis=1)
    F = sum(rng.normal(scale=1.0, size=(n, K))[codes[:, j]] for j, n in enumerate(levels[:4]))
    y = (F + rng.gumbel(size=(N, K))).argmax(axis=1)
    columns = [sp.csr_array((np.ones(N), (np.arange(N), codes[:, j])), (N, n)) for j, n in enumerate(levels)]
    return sp.csr_array(sp.hstack(columns)), y


def words() -> Data:
    rng = np.random.default_rng(2)
    N, D, K = 2000, 20_000, 5
    frequency = rng.dirichlet(np.full(D, 0.05))
    topics = np.stack([frequency * np.exp(rng.normal(scale=0.8, size=D) * (rng.random(D) < 0.1)) for _ in range(K)])
    topics /= topics.sum(axis=1, keepdims=True)
    y = np.arange(N) % K
    counts = np.stack([rng.multinomial(rng.integers(30, 150), topics[k]) for k in y])
    X = sp.csr_array(np.log1p(counts))
    return X[:, np.flatnonzero(X.sum(axis=0) > 0)], y


MADE: dict[str, Callable[[], Data]] = {"genes": genes, "one-hot": one_hot, "words": words}


def run(names: tuple[str, ...] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the sets one after another; the results are on disk after each."""
    makers = {"genes": genes} if quick else dict(MADE)
    if data is not None and not quick:
        makers |= {name: lambda name=name: problems.load(name, data) for name in quality.WIDE}
    quality.warm_up()
    for name, make in makers.items():
        if names is not None and name not in names:
            continue
        X, y = make()
        y, merged = quality.merge_rare(y, LEAST)
        folds = SLOW if name in MADE else FOLDS
        line = {"problem": name, "shape": (*X.shape, int(y.max()) + 1), "merged": merged, **study(X, y, folds)}
        stored = records.store(out / "wide.jsonl", [line])
        records.write(out / "wide.md", page(stored))
        print(row(line), flush=True)


def study(X: Any, y: np.ndarray, folds: int) -> dict[str, Any]:
    """Return the losses and seconds of all folds."""
    import posteriori as po

    losses: dict[str, list[np.ndarray]] = {"ours": [], "mode": [], "average": [], "peer": []}
    seconds = {"ours": 0.0, "peer": 0.0}
    rng = np.random.default_rng(0)
    for in_order, test in list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[:folds]:
        train = rng.permutation(in_order)
        with quiet():
            start = perf_counter()
            model = po.BayesianSoftmaxRegression().fit(X[train], y[train])
            seconds["ours"] += perf_counter() - start
            start = perf_counter()
            other = peer(sp.issparse(X)).fit(X[train], y[train])
            seconds["peer"] += perf_counter() - start
            losses["ours"].append(quality.row_losses(model, X[test], y[test]))
            for name, predictive in (("mode", "plugin"), ("average", "quasi")):
                model.set_params(predictive=predictive)
                losses[name].append(quality.row_losses(model, X[test], y[test]))
            losses["peer"].append(quality.row_losses(other, X[test], y[test]))
    means = {name: float(np.concatenate(rows).mean()) for name, rows in losses.items()}
    solution = model.solution_
    return {"losses": means, "seconds": seconds, "structure": f"{solution.structure}, {solution.structure_reason}"}


def peer(sparse: bool) -> Any:
    model = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000)
    return make_pipeline(MaxAbsScaler() if sparse else StandardScaler(), model)


def row(line: dict[str, Any]) -> list[str]:
    """Return one set's cells."""
    losses, seconds = line["losses"], line["seconds"]
    return [
        line["problem"] + (f" ({line['merged']} classes merged)" if line["merged"] else ""),
        *map(str, line["shape"]),
        *(f"{losses[name]:.4f}" for name in ("ours", "mode", "average", "peer")),
        f"{seconds['ours']:.3g}", f"{seconds['peer']:.3g}", line["structure"],
        "yes" if losses["ours"] <= losses["peer"] else "no",
        "yes" if seconds["ours"] <= seconds["peer"] else "no",
    ]  # fmt: skip


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    return records.markdown("Many parameters, few rows", NOTES, HEADER, [row(line) for line in lines])
