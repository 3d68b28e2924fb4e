"""Whether maximum likelihood is the same everywhere: parameters of Gaussian classes against scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.gaussian_adapters import GaussianPosteriori, GaussianScikitLearn, Parameters
from benchmarks.quality import merge_rare, sets
from benchmarks.turns import quiet

GOAL, LEAST = 1e-10, 2
"""Largest difference, and rows that a class needs to have a variance."""

PEERS = {
    "diagonal": GaussianScikitLearn("diagonal", (("var_smoothing", 0.0),)),
    "tied": GaussianScikitLearn("tied", (("solver", "lsqr"),)),
    "full": GaussianScikitLearn("full", (("store_covariance", True), ("tol", 0.0))),
}
"""Without any smoothing, and without a bound on the variances."""

NOTES = f"""\
Largest relative difference of means, covariances and class frequencies between `GaussianClassifier(covariance,
estimate="mle")` and {", ".join(f"`{peer}` ({name})" for name, peer in PEERS.items())}, all with the divisor n, on all
rows of every set, raw columns. Means are in units of the root of the class's mean square, covariances in units of the
two standard deviations. Where a covariance is singular there is no density of the peer to agree with: the cell is
empty. Goal: at most {GOAL:g}. Differences by parameter are in `gaussian_parameters.jsonl`."""

HEADER = ("set", "N", "D", "K", *(f"{name} ({peer.class_name})" for name, peer in PEERS.items()), "goal")


def run(names: Iterable[str] | None, data: Path | None, out: Path, *, quick: bool = False) -> None:
    """Compare on every set; the results are on disk after each."""
    for name, load in sets(data, quick=quick, large=names or ()).items():
        if names is not None and name not in names:
            continue
        X, y = load()
        X, (y, merged) = np.asarray(X, dtype=float), merge_rare(y, LEAST)
        shape = (*X.shape, len(np.unique(y)))
        lines = [{"problem": name, "shape": shape, "merged": merged, **compare(X, y, each)} for each in PEERS]
        stored = records.store(out / "gaussian_parameters.jsonl", lines)
        records.write(out / "gaussian_parameters.md", page(stored))
        print(name, {line["structure"]: line["difference"] for line in lines}, flush=True)


def compare(X: np.ndarray, y: np.ndarray, structure: str) -> dict[str, Any]:
    """Return the differences of one structure; none where a covariance is singular."""
    line = {"structure": structure, "peer": str(PEERS[structure]), "difference": None}
    if not regular(X, y, structure):
        return line
    with quiet():
        mine = GaussianPosteriori(structure, "mle").parameters(X, y)
        theirs = PEERS[structure].parameters(X, y)
    each = differences(mine, theirs)
    return line | {"difference": max(each.values()), "differences": each}


def regular(X: np.ndarray, y: np.ndarray, structure: str) -> bool:
    """Say whether the covariances have an inverse, as far as the ranks of the centred rows can tell."""
    centred = [X[y == k] - X[y == k].mean(axis=0) for k in np.unique(y)]
    if structure == "tied":
        centred = [np.concatenate(centred)]
    spreads = [rows.std(axis=0) for rows in centred]
    if not all((spread > 0).all() for spread in spreads):
        return False
    if structure == "diagonal":
        return True
    return all(
        np.linalg.matrix_rank(rows / spread) == X.shape[1] for rows, spread in zip(centred, spreads, strict=True)
    )


def differences(mine: Parameters, theirs: Parameters) -> dict[str, float]:
    """Return the largest relative difference of each parameter."""
    _, covariances, class_prior = theirs
    variances = covariances if covariances.shape == theirs.means.shape else np.diagonal(covariances, axis1=-2, axis2=-1)
    spreads = np.sqrt(variances)
    products = variances if variances is covariances else spreads[..., :, None] * spreads[..., None, :]
    units = Parameters(np.sqrt(theirs.means**2 + variances), products, class_prior)
    return {
        name: float(np.max(np.abs(a - b) / unit))
        for name, a, b, unit in zip(Parameters._fields, mine, theirs, units, strict=True)
    }


def page(lines: list[dict[str, Any]]) -> str:
    """Return the Markdown page."""
    names = dict.fromkeys(line["problem"] for line in lines)
    rows = [row([line for line in lines if line["problem"] == name]) for name in names]
    return records.markdown("Parameters of Gaussian classes", NOTES, HEADER, rows)


def row(lines: list[dict[str, Any]]) -> list[str]:
    """Return one set's cells."""
    found = {line["structure"]: line["difference"] for line in lines}
    known = [value for value in found.values() if value is not None]
    return [
        lines[0]["problem"],
        *map(str, lines[0]["shape"]),
        *("" if found[name] is None else f"{found[name]:.0e}" for name in PEERS),
        "" if not known else "yes" if max(known) <= GOAL else "no",
    ]
