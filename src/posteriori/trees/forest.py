r"""A forest: the average of the class shares in leaves of randomised trees, with a temperature from rows not seen.

Tree t is grown from a bootstrap of the rows (`trees.bags`), splits at random thresholds until leaves are pure, and says
of a row in a leaf that holds weights n_k of the classes

.. math:: p_t(k \mid x) = \frac{n_k + s\,\pi_k}{\sum_j n_j + s}, \qquad
          p(k \mid x) = T\Big(\tfrac{1}{T}\textstyle\sum_t p_t(k \mid x)\Big),

with the class frequencies pi, so that no class is impossible. An average of trees that do not agree is less sure than
it should be, far less where rules are sharp; the map T (`decision.temperature`) makes it as sure as it has been right.
The strength s and T are the likeliest for the rows, each predicted by the trees that did not see it. The same rows
choose how many columns a split may look at.

Trees are grown on ranks of values among the distinct values of their column, so that neither units nor outliers matter;
a threshold between two ranks becomes the number that lies between their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.tree import ExtraTreeClassifier

from posteriori.decision.temperature import Temperature, likeliest_temperature
from posteriori.rows.copies import row_numbers
from posteriori.solvers.solution import FitRecord, Status
from posteriori.threads import SCIKIT_LEARN
from posteriori.trees.arrays import TreeArrays, joined
from posteriori.trees.bags import times_drawn
from posteriori.trees.distinct import DistinctRows, LabelledWeights, class_frequencies
from posteriori.trees.ranks import Ranks

__all__ = ["FittedForest", "ForestSettings", "ForestSolution", "forest_left_out", "grow_forest"]

STRENGTHS = (0.01, 0.1, 0.5)
"""Strengths s that are tried."""
_TRIAL = 100
"""Trees by which each choice of the columns that a split looks at is judged."""
_MOST_DRAWN = 20_000
"""Rows that a tree sees, about, at most."""
_MOST_LOOKED_AT = 4e6
"""Rows that a tree sees times columns that a split looks at, beyond which more columns are not tried."""


class ForestSettings(NamedTuple):
    """Checked parameters of a forest."""

    n_trees: int
    min_leaf: int
    max_features: Any
    seed: int


@dataclass(frozen=True)
class ForestSolution(FitRecord):
    """The record of a fit of a forest.

    Attributes
    ----------
    objective : float
        Mean log-loss of the rows, each by the trees that did not see it; infinite where there is no such row.
    max_features : str, int or float
        The columns that a split looks at, as chosen or as given.
    strength : float
        s, the weight of the class frequencies in each leaf.
    slope, doubt : float
        The map of averages; see `posteriori.decision.temperature`.
    scores : dict
        The log-loss of each choice of `max_features`, by a trial of some trees.
    n_iter : int
        The number of trees.
    """

    objective: float
    max_features: Any
    strength: float
    slope: float
    doubt: float
    scores: dict[str, float] = field(default_factory=dict)
    n_iter: int = 0
    n_passes: int = 1
    seconds: float | None = field(default=None, repr=False, compare=False)

    status: ClassVar[Status] = Status.CONVERGED
    """Always converged: more trees change little."""
    trace: ClassVar[tuple[()]] = ()


@dataclass(frozen=True)
class FittedForest:
    """A fitted forest, without its interface.

    Attributes
    ----------
    trees : TreeArrays
    pattern : ndarray of int32 (M,)
        The row of `counts` that belongs to each leaf; most leaves are alike.
    counts : ndarray (V, K)
        Weights n_k of the classes in leaves.
    strength : float
        s.
    temperature : tuple of float
        Slope and doubt of the map of averages.
    class_count : ndarray (K,)
        Weights of the classes in all rows.
    seed : int
        The seed of the bags.
    rate : float
        How often a tree sees a row, on average.
    solution : ForestSolution
    """

    trees: TreeArrays
    pattern: np.ndarray
    counts: np.ndarray
    strength: float
    temperature: tuple[float, float]
    class_count: np.ndarray
    seed: int
    rate: float
    solution: ForestSolution

    def __post_init__(self) -> None:
        """Raise unless every leaf has its weights."""
        leaves = self.pattern[self.trees.feature < 0]
        if self.pattern.shape != self.trees.feature.shape or self.counts.shape[1:] != self.class_count.shape:
            raise ValueError("The leaves of a forest must have weights of all classes.")
        if ((leaves < 0) | (leaves >= len(self.counts))).any() or not (self.counts >= 0.0).all():
            raise ValueError("The weights in the leaves of a forest must be there, and not be negative.")

    @property
    def frequencies(self) -> np.ndarray:
        """pi, (K,)."""
        return class_frequencies(self.class_count)

    @property
    def shares(self) -> np.ndarray:
        """p_t(k | x) in each kind of leaf, (V, K)."""
        return leaf_shares(self.counts, self.strength, self.frequencies)

    def mapped(self, P: np.ndarray) -> np.ndarray:
        """T(P), as logarithms, of averages (n, K)."""
        return Temperature(*self.temperature, self.frequencies).log_proba(np.log(P))

    def log_proba(self, X: np.ndarray) -> np.ndarray:
        """Log-probabilities of new rows, (n, K)."""
        P, shares = np.zeros((len(X), len(self.class_count))), self.shares
        for _, leaves in self.trees.parts(X):
            for row in leaves:  # tree after tree: sums are the same in any batch
                P += shares[self.pattern[row]]
        return self.mapped(P / max(self.trees.n_trees, 1))


def leaf_shares(counts: np.ndarray, strength: float, frequencies: np.ndarray) -> np.ndarray:
    """(n_k + s pi_k) / (sum_j n_j + s), for weights (V, K)."""
    return (counts + strength * frequencies) / (counts.sum(axis=1, keepdims=True) + strength)


# Growing


class GrowingRows(NamedTuple):
    """Rows as trees see them: distinct ones as ranks, (n, D) float32, with their keys, labels and classes."""

    ranks: np.ndarray
    keys: np.ndarray
    labelled: LabelledWeights
    class_count: np.ndarray

    @property
    def rate(self) -> float:
        """How often a tree sees a row, on average."""
        return min(1.0, _MOST_DRAWN / len(self.keys))


class Grown(NamedTuple):
    """Trees, and what they say of the rows that they did not see.

    Attributes
    ----------
    trees : list of TreeArrays
    patterns : list of ndarray (M_t,)
        The row of `counts` of each node of a tree.
    counts : list of ndarray (V_t, K)
    votes : ndarray (strengths, n, K)
        Sums of the shares of trees that did not see the row.
    n_votes : ndarray (n,)
    """

    trees: list[TreeArrays]
    patterns: list[np.ndarray]
    counts: list[np.ndarray]
    votes: np.ndarray
    n_votes: np.ndarray

    @classmethod
    def none(cls, n: int, K: int) -> Grown:
        """No tree yet."""
        return cls([], [], [], np.zeros((len(STRENGTHS), n, K)), np.zeros(n))

    def more(self, rows: GrowingRows, units: Ranks, numbers: Iterable[int], settings: ForestSettings) -> Grown:
        """These trees and those of the given numbers; votes are added in place."""
        pi = class_frequencies(rows.class_count)
        for t in numbers:
            nodes, leaf, counts = _tree(rows, units, t, settings)
            away = np.flatnonzero(times_drawn(rows.keys, t, settings.seed, rows.rate) == 0)
            self.n_votes[away] += 1.0
            for votes, strength in zip(self.votes, STRENGTHS, strict=True):
                votes[away] += leaf_shares(counts, strength, pi)[leaf[away]]
            _, first, pattern = np.unique(row_numbers(counts), return_index=True, return_inverse=True)
            self.trees.append(nodes)
            self.patterns.append(pattern.reshape(-1))
            self.counts.append(counts[first])
        return self

    def calibrated(self, rows: GrowingRows) -> tuple[float, Temperature, float]:
        """The likeliest strength and map, and the mean log-loss of rows by the trees that did not see them."""
        pi, labelled = class_frequencies(rows.class_count), rows.labelled
        voted = self.n_votes[labelled.row] > 0.0
        row, code, weight = labelled.row[voted], labelled.code[voted], labelled.weight[voted]
        if len(row) == 0:
            return STRENGTHS[-1], Temperature(1.0, 0.0, pi), np.inf
        found = []
        for votes, strength in zip(self.votes, STRENGTHS, strict=True):
            Z = np.log(votes[row] / self.n_votes[row, None])
            temperature, cost = likeliest_temperature(Z, code, pi, weight)
            own = temperature.log_proba(Z)[np.arange(len(row)), code]
            found.append((cost, strength, temperature, -float(weight @ own / weight.sum())))
        _, strength, temperature, loss = min(found, key=lambda one: one[0])
        return strength, temperature, loss


def _tree(
    rows: GrowingRows, units: Ranks, t: int, settings: ForestSettings
) -> tuple[TreeArrays, np.ndarray, np.ndarray]:
    """A tree, the leaf of each row, (n,), and the weights of the classes in each node that is a leaf, (M, K)."""
    row, code, weight = rows.labelled
    drawn = weight * times_drawn(rows.keys, t, settings.seed, rows.rate)[row]
    K = len(rows.class_count)
    if not (drawn > 0.0).any():  # of very few rows none may be drawn
        return joined([_stump()]), np.zeros(len(rows.ranks), dtype=int), np.zeros((1, K))
    tree = ExtraTreeClassifier(
        min_samples_leaf=settings.min_leaf,
        max_features=settings.max_features,
        random_state=_tree_seed(settings.seed, t),
    )
    with SCIKIT_LEARN:
        tree.fit(rows.ranks[row] if len(row) > len(rows.ranks) else rows.ranks, code, sample_weight=drawn)
        leaf = tree.apply(rows.ranks)
    grown = tree.tree_
    inner = grown.children_left >= 0
    feature = np.where(inner, grown.feature, -1).astype(np.int32)
    nodes = TreeArrays(
        feature=feature,
        threshold=np.where(inner, units.thresholds(feature, grown.threshold), 0.0),
        left=np.where(inner, grown.children_left, 0).astype(np.int32),
        right=np.where(inner, grown.children_right, 0).astype(np.int32),
        missing_left=np.asarray(grown.missing_go_to_left).astype(bool),
        roots=np.zeros(1, np.int32),
    )
    M = grown.node_count
    counts = np.bincount(leaf[row] * K + code, drawn, minlength=M * K).reshape(M, K)
    return nodes, leaf, counts


def _stump() -> TreeArrays:
    """A tree that is one leaf."""
    none = np.zeros(1, np.int32)
    return TreeArrays(none - np.int32(1), np.zeros(1), none, none, np.zeros(1, bool), none)


def _tree_seed(seed: int, t: int) -> int:
    return int(np.random.SeedSequence([seed, t]).generate_state(1)[0] >> 1)


def grow_forest(distinct: DistinctRows, K: int, settings: ForestSettings) -> FittedForest:
    """Grow a forest on the distinct rows of a fit, of K classes."""
    began = perf_counter()
    units = Ranks.of(distinct.X)
    rows = GrowingRows(units.ranks(distinct.X), distinct.keys, distinct.labelled, distinct.labelled.by_class(K))
    choices = _choices(settings.max_features, *distinct.X.shape)
    n_first = min(_TRIAL, settings.n_trees) if len(choices) > 1 else settings.n_trees
    trials = {}
    for choice in choices:
        given = settings._replace(max_features=choice)
        grown = Grown.none(len(rows.keys), K).more(rows, units, range(n_first), given)
        trials[choice] = (grown.calibrated(rows)[2], grown, given)
    chosen = min(trials, key=lambda choice: trials[choice][0])
    _, grown, given = trials[chosen]
    grown = grown.more(rows, units, range(n_first, settings.n_trees), given)
    strength, temperature, loss = grown.calibrated(rows)
    patterns, counts = _patterns(grown.patterns, grown.counts)
    solution = ForestSolution(
        objective=loss,
        max_features=chosen,
        strength=strength,
        slope=temperature.slope,
        doubt=temperature.doubt,
        scores={str(choice): score for choice, (score, _, _) in trials.items()},
        n_iter=settings.n_trees,
        n_passes=len(choices) * n_first + settings.n_trees - n_first,
        seconds=perf_counter() - began,
    )
    return FittedForest(
        trees=joined(grown.trees),
        pattern=patterns,
        counts=counts,
        strength=strength,
        temperature=(temperature.slope, temperature.doubt),
        class_count=rows.class_count,
        seed=settings.seed,
        rate=rows.rate,
        solution=solution,
    )


def _choices(given: Any, n: int, D: int) -> list[Any]:
    """The settings of `max_features` to be tried: of those that look at as many columns the first alone."""
    if given != "auto":
        return [given]
    numbers = {"sqrt": max(1, int(np.sqrt(D))), 0.5: max(1, int(0.5 * D)), 1.0: D}
    first = {number: choice for choice, number in reversed(numbers.items())}
    most = max(numbers["sqrt"], _MOST_LOOKED_AT / min(n, _MOST_DRAWN))
    return [choice for number, choice in sorted(first.items()) if number <= most]


def _patterns(patterns: Sequence[np.ndarray], counts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The patterns of all trees with one numbering, (M,), and their weights, (V, K)."""
    everything = np.concatenate(counts)
    _, first, place = np.unique(row_numbers(everything), return_index=True, return_inverse=True)
    starts = np.cumsum([0, *map(len, counts)])[:-1]
    numbers = np.concatenate([pattern + start for pattern, start in zip(patterns, starts, strict=True)])
    return place.reshape(-1)[numbers].astype(np.int32), everything[first]


# Leaving out


def forest_left_out(
    forest: FittedForest, X: np.ndarray, keys: np.ndarray, groups: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows predicted by the trees that saw no row of their group.

    Parameters
    ----------
    forest : FittedForest
    X : ndarray (n, D)
    keys : ndarray of uint64 (n,)
        Their numbers, as `row_keys` gives them for all rows of the fit.
    groups : ndarray of int (n,)
    seen : ndarray of bool (n,)
        Whether a row had a weight.

    Returns
    -------
    log_proba : ndarray (n, K)
    n_trees : ndarray (n,)
        How many trees that was.
    """
    shares, pattern = forest.shares, forest.pattern
    P, n_trees = np.zeros((len(X), shares.shape[1])), np.zeros(len(X))
    for t in range(forest.trees.n_trees):
        drawn = seen & (times_drawn(keys, t, forest.seed, forest.rate) > 0)
        away = np.flatnonzero(np.bincount(groups, drawn)[groups] == 0.0)
        P[away] += shares[pattern[forest.trees.leaves(X[away], slice(t, t + 1))[0]]]
        n_trees[away] += 1.0
    none = n_trees == 0.0
    P[none] = forest.frequencies
    return forest.mapped(P / np.where(none, 1.0, n_trees)[:, None]), n_trees
