r"""Prediction sets with guaranteed coverage: split conformal prediction.

A score s(x, k) says how badly class k fits row x. With the scores of n calibration rows at their true classes, and q
the r-th smallest of them, r = ceil((n + 1)(1 - alpha)), the set {k : s(x, k) <= q} holds the true class of a new row
with probability at least 1 - alpha, whatever the classifier, provided that rows are exchangeable and the calibration
rows were used for nothing else. With ties broken at random the number covered in a test follows a beta-binomial law
exactly. Here the numbers that break ties are drawn for calibration rows, and made of the digits of their probabilities
for new ones, so that a row gets the same set in any batch: rows with equal probabilities get the same set.

Scores: "lac", 1 - p_k, gives the smallest sets; "aps", the probability of all classes more probable than k plus a
random share of p_k itself, gives sets that grow with the difficulty of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from posteriori.decision.decisions import distributions
from posteriori.decision.utility import codes_of

__all__ = ["Calibration", "PredictionSets", "calibrate", "prediction_sets"]

Score = Literal["lac", "aps"]


@dataclass(frozen=True)
class Calibration:
    """Scores of calibration rows at their true classes, sorted; ties are settled by the number beside each.

    Attributes
    ----------
    score : {"lac", "aps"}
    values, ties : list of ndarray
        One for all classes, or one for each.
    by_class : bool
    seed : int
    """

    score: Score
    values: list[np.ndarray]
    ties: list[np.ndarray]
    by_class: bool
    seed: int


@dataclass(frozen=True)
class PredictionSets:
    """For each row the classes that cannot be excluded.

    Attributes
    ----------
    members : ndarray of bool (n, K)
    classes : ndarray (K,)
    alpha : float
        The largest share of rows whose true class is missed, in the long run.
    """

    members: np.ndarray
    classes: np.ndarray
    alpha: float

    @property
    def sizes(self) -> np.ndarray:
        """Classes in each set, (n,)."""
        return self.members.sum(axis=1)

    def labels(self) -> list[list[Any]]:
        """The classes of each set."""
        return [self.classes[row].tolist() for row in self.members]

    def actions(self, abstain: Any = "abstain") -> np.ndarray:
        """The class where the set holds one alone, `abstain` otherwise, (n,)."""
        single = self.sizes == 1
        chosen = np.full(len(self.members), abstain, dtype=object)
        chosen[single] = self.classes[self.members[single].argmax(axis=1)]
        return chosen

    def coverage(self, y: Any) -> float:
        """Share of rows whose true class is in their set."""
        codes = codes_of(y, self.classes)
        if len(codes) != len(self.members):
            raise ValueError(
                f"There are {len(self.members)} sets and {len(codes)} labels: pass one label for each set."
            )
        return float(self.members[np.arange(len(codes)), codes].mean())


def calibrate(P: Any, codes: np.ndarray, *, score: Score = "lac", by_class: bool = False, seed: int = 0) -> Calibration:
    """Scores of calibration rows with probabilities P (n, K) and true classes `codes` (n,).

    See docs/theory.md, section 7.4.

    `by_class` keeps those of each class apart: coverage then holds for the rows of every class.
    """
    P = distributions(P)
    if score not in ("lac", "aps"):
        raise ValueError(f"score={score!r} is unknown: use 'lac' or 'aps'.")
    codes = np.asarray(codes)
    if codes.shape != (len(P),):
        raise ValueError(f"codes have shape {codes.shape}, and there are {len(P)} rows: pass one code for each row.")
    rng = np.random.default_rng(seed)  # a number for every row: many rows may have equal probabilities
    scores, ties = _scores(P, score, rng.random(len(P)), rng.random(len(P)))
    at = np.arange(len(codes))
    own, tie = scores[at, codes], ties[at, codes]
    groups = [codes == k for k in range(P.shape[1])] if by_class else [np.ones(len(codes), dtype=bool)]
    orders = [np.lexsort((tie[group], own[group])) for group in groups]
    return Calibration(
        score,
        [own[group][order] for group, order in zip(groups, orders, strict=True)],
        [tie[group][order] for group, order in zip(groups, orders, strict=True)],
        by_class,
        seed,
    )


def prediction_sets(P: Any, calibration: Calibration, alpha: float, classes: Any) -> PredictionSets:
    """Sets for new rows with probabilities P (n, K) (docs/theory.md, section 7.4)."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha={alpha!r} must be between 0 and 1.")
    P = distributions(P)
    labels = np.asarray(classes)
    if labels.shape != (P.shape[1],):
        raise ValueError(
            f"classes have shape {labels.shape}, and there are {P.shape[1]} columns of probabilities: pass one class "
            "for each column."
        )
    scores, ties = _scores(P, calibration.score, _uniform(P, calibration.seed), _uniform(P, calibration.seed + 1))
    members = np.empty(P.shape, dtype=bool)
    for k in range(P.shape[1]):
        group = k if calibration.by_class else 0
        values, numbers = calibration.values[group], calibration.ties[group]
        rank = int(np.ceil((len(values) + 1) * (1.0 - alpha) - 1e-12))
        if rank > len(values):  # too few rows to exclude anything at this level
            members[:, k] = True
            continue
        bound, number = values[rank - 1], numbers[rank - 1]
        members[:, k] = (scores[:, k] < bound) | ((scores[:, k] == bound) & (ties[:, k] <= number))
    return PredictionSets(members, labels, alpha)


def _scores(P: np.ndarray, score: Score, u: np.ndarray, tie: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """s(x, k), and numbers between 0 and 1 to settle ties, (n, K) each; u is the random share in "aps"."""
    ties = np.repeat(tie[:, None], P.shape[1], axis=1)
    if score == "lac":
        return 1.0 - P, ties
    order = np.argsort(-P, axis=1, kind="stable")
    ordered = np.take_along_axis(P, order, axis=1)
    before = np.cumsum(ordered, axis=1) - ordered
    scores = np.empty_like(P)
    np.put_along_axis(scores, order, before + u[:, None] * ordered, axis=1)
    return scores, ties


def _uniform(P: np.ndarray, seed: int) -> np.ndarray:
    """A number between 0 and 1 for each row, made of its digits: the same for a row in any batch."""
    words = np.ascontiguousarray(P).view(np.uint64)
    with np.errstate(over="ignore"):
        state = np.full(len(P), np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15))
        for column in words.T:  # splitmix64, word by word
            state = state ^ column
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)) * 2.0**-53
