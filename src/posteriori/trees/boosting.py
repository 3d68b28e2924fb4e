r"""Boosted trees: logits that are sums of the leaves of many small trees, as many as predict left-out rows best.

With leaf values v of the trees of round r, a constant b_k, and the round R at which the sum ends,

.. math:: F_k(x) = b_k + \sum_{r=1}^{R} v_{rk}(x), \qquad p(k \mid x) = T\big(\mathrm{softmax}(F(x))\big)_k ,

each tree a step of Newton's method on the log-loss, by scikit-learn. For two classes F_1 is zero and there is one tree
in a round. The rows are dealt into folds, copies together and classes evenly; the number of rounds R' is that at which
the folds, each predicted by trees grown on the others, have the least log-loss, and R is a tenth more, as the fit to
all rows sees more of them. The map T (`decision.temperature`) is the likeliest for the same left-out rows.

What the folds may cost is limited: with many rows, columns and classes there are fewer of them, and fewer, longer
rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp
from sklearn.ensemble import HistGradientBoostingClassifier

from posteriori.decision.temperature import LOWEST, Temperature, likeliest_temperature
from posteriori.solvers.solution import FitRecord, Status
from posteriori.threads import SCIKIT_LEARN, one_openmp_thread
from posteriori.trees.arrays import TreeArrays, joined
from posteriori.trees.distinct import DistinctRows, LabelledWeights, class_frequencies
from posteriori.trees.ranks import Ranks

__all__ = ["BoostingSettings", "BoostingSolution", "FittedBoosting", "LeftOutFolds", "boost"]

_FOLDS, _FEWEST_FOLDS = 5, 2
_BINS = 255
"""Bins of a column, at most: all that scikit-learn's boosting tells apart."""
_AT_ONCE = 25
"""Rounds that are grown before the log-loss is looked at."""
_PATIENCE, _FEWEST_ROUNDS = 30, 40
_FLAT, _GAIN = 50, 5e-4
"""Over so many rounds the log-loss must fall by so many nats, or there are enough of them."""
_LATE = 0.8
"""The share of the rounds tried, beyond which the best is so late that more of them might be better."""
_MORE = 1.1
"""Rounds of the fit to all rows, over those that were best for the folds."""
_SECONDS = 10.0
"""What all folds may cost, about, on one core."""
_EACH_TREE, _EACH_COLUMN, _EACH_ROW, _EACH_VALUE = 2e-4, 6.4e-6, 1.5e-8, 2e-9
"""Seconds of one tree: at all, and for each column, row, and value of the matrix."""
_STEP, _LONGEST_STEP, _WAY = 0.15, 0.3, 30.0
"""The learning rate, the greatest one, and their sum over the rounds where these are limited."""
_HUGE = 1e6


class BoostingSettings(NamedTuple):
    """Checked parameters of boosting; `learning_rate` is None where it is chosen."""

    max_rounds: int
    learning_rate: float | None
    max_leaves: int
    min_leaf: int
    max_features: float
    l2: float
    seed: int


@dataclass(frozen=True)
class BoostingSolution(FitRecord):
    """The record of a fit of boosted trees.

    Attributes
    ----------
    status : Status
        CONVERGED where more rounds were worse or hardly better, ITERATION_LIMIT where there might have been more.
    objective : float
        Mean log-loss of left-out rows, with the map; infinite where no row could be left out.
    n_iter : int
        Rounds of the fit to all rows.
    n_rounds_left_out : int
        Rounds that were best for the folds.
    n_folds : int
    learning_rate : float
    slope, doubt : float
        The map; see `posteriori.decision.temperature`.
    n_passes : int
        Trees grown, for each class.
    trace : list of float
        The log-loss of the folds after each round, without the map.
    """

    status: Status
    objective: float
    n_iter: int
    n_rounds_left_out: int
    n_folds: int
    learning_rate: float
    slope: float
    doubt: float
    n_passes: int
    trace: list[float] = field(default_factory=list, repr=False)
    seconds: float | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class FittedBoosting:
    """Fitted boosted trees, without their interface.

    Attributes
    ----------
    trees : TreeArrays
        Round after round, in a round class after class.
    value : ndarray (M,)
        The value of each leaf.
    baseline : ndarray (q,)
        b; q is the number of classes that have rows, 1 for two and 0 for one.
    present : ndarray of int (P,)
        The classes that have rows.
    temperature : tuple of float
        Slope and doubt of the map.
    class_count : ndarray (K,)
        Weights of the classes in all rows.
    solution : BoostingSolution
    """

    trees: TreeArrays
    value: np.ndarray
    baseline: np.ndarray
    present: np.ndarray
    temperature: tuple[float, float]
    class_count: np.ndarray
    solution: BoostingSolution

    def __post_init__(self) -> None:
        """Raise unless there is a value for each leaf, and a tree for each class in each round."""
        P, q, K = len(self.present), len(self.baseline), len(self.class_count)
        if self.value.shape != self.trees.feature.shape or not np.isfinite(self.value).all():
            raise ValueError("Each leaf of boosted trees must have a finite value.")
        if q != trees_in_a_round(P) or (self.trees.n_trees % q if q else self.trees.n_trees):
            raise ValueError("Boosted trees must have a tree for each class in each round.")
        if P == 0 or self.present.min() < 0 or self.present.max() >= K:
            raise ValueError("The classes of boosted trees must be among those that have weights.")

    def logits(self, X: np.ndarray) -> np.ndarray:
        """F, (n, P), of the classes that have rows."""
        q = len(self.baseline)
        F = np.zeros((q, len(X))) + self.baseline[:, None]
        for trees, leaves in self.trees.parts(X):
            for t, leaf in enumerate(leaves, trees.start):
                F[t % q] += self.value[leaf]
        return all_logits(F).T

    def log_proba(self, X: np.ndarray) -> np.ndarray:
        """Log-probabilities of new rows, (n, K)."""
        Z = in_all_classes(log_softmax(self.logits(X), axis=1), self.present, len(self.class_count))
        return Temperature(*self.temperature, class_frequencies(self.class_count)).log_proba(Z)


class LeftOutFolds:
    """What the folds said of the distinct rows of a fit; it goes into no file and no other process.

    Parameters
    ----------
    keys : ndarray of uint64 (n,), ascending
    log_proba : ndarray (n, K)
    parts : ndarray of int (n,)
        The fold of each row.
    n_folds : int
    """

    def __init__(
        self,
        keys: np.ndarray | None = None,
        log_proba: np.ndarray | None = None,
        parts: np.ndarray | None = None,
        n_folds: int = 0,
    ) -> None:
        self.keys, self.log_proba, self.parts, self.n_folds = keys, log_proba, parts, n_folds

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftOutFolds, ()

    def of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Log-probabilities and folds of the rows with these keys; None where one of them was not in the fit."""
        if self.keys is None or self.log_proba is None or self.parts is None:
            return None
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if (self.keys[place] != keys).any():
            return None
        return self.log_proba[place], self.parts[place]


def trees_in_a_round(n_present: int) -> int:
    """The number of trees in a round: one for each class, but one for two classes and none for one."""
    return n_present if n_present > 2 else n_present - 1


def all_logits(F: np.ndarray) -> np.ndarray:
    """Logits of all classes that have rows, (P, n), of those that have trees, (q, n)."""
    return F if len(F) > 1 else np.concatenate([np.zeros((1, F.shape[1])), F])


def in_all_classes(log_proba: np.ndarray, present: np.ndarray, K: int) -> np.ndarray:
    """Log-probabilities (n, K) of those of the classes that have rows, (n, P); none below `LOWEST`."""
    Z = np.full((len(log_proba), K), LOWEST)
    Z[:, present] = np.maximum(log_proba, LOWEST)
    return Z


# Growing


class Growing:
    """Trees that grow round by round, on some of the rows.

    Parameters
    ----------
    ranks : ndarray (n, D)
        All rows, as ranks.
    labelled : LabelledWeights
        The labels of the rows to grow on.
    learning_rate : float
    settings : BoostingSettings
    """

    def __init__(
        self, ranks: np.ndarray, labelled: LabelledWeights, learning_rate: float, settings: BoostingSettings
    ) -> None:
        self.ranks, self.labelled = ranks, labelled
        self.own = ranks[labelled.row]
        self.own[:, np.isnan(self.own).all(axis=0)] = 0.0  # scikit-learn has no bins for a column without values
        self.present = np.unique(labelled.code)
        self.n_rounds = 0
        # gradients are kept in float32: weights far from one are brought to where their squares are numbers
        largest = float(labelled.weight.max())
        self.weight = labelled.weight / (largest if not 1.0 / _HUGE < largest < _HUGE else 1.0)
        self.model = HistGradientBoostingClassifier(
            learning_rate=learning_rate,
            max_leaf_nodes=settings.max_leaves,
            min_samples_leaf=settings.min_leaf,
            max_features=settings.max_features,
            l2_regularization=settings.l2,
            categorical_features=None,
            early_stopping=False,
            warm_start=True,
            random_state=settings.seed % 2**31,
        )

    def more(self, n_rounds: int) -> tuple[TreeArrays, np.ndarray]:
        """The trees of the next rounds, with thresholds among ranks, and the values of their nodes."""
        before, self.n_rounds = self.n_rounds, self.n_rounds + n_rounds
        if len(self.present) < 2:
            return joined([]), np.zeros(0)
        with SCIKIT_LEARN, one_openmp_thread():
            self.model.set_params(max_iter=self.n_rounds).fit(self.own, self.labelled.code, sample_weight=self.weight)
        nodes = [predictor.nodes for one_round in self.model._predictors[before:] for predictor in one_round]
        return joined([_arrays(tree) for tree in nodes]), np.concatenate([tree["value"] for tree in nodes])

    @property
    def baseline(self) -> np.ndarray:
        """b, (q,), once there are rounds."""
        return np.zeros(0) if len(self.present) < 2 else np.ravel(self.model._baseline_prediction).copy()


def _arrays(nodes: np.ndarray) -> TreeArrays:
    """A tree of scikit-learn's boosting."""
    inner = nodes["is_leaf"] == 0
    return TreeArrays(
        feature=np.where(inner, nodes["feature_idx"], -1).astype(np.int32),
        threshold=np.where(inner, nodes["num_threshold"], 0.0),
        left=np.where(inner, nodes["left"], 0).astype(np.int32),
        right=np.where(inner, nodes["right"], 0).astype(np.int32),
        missing_left=nodes["missing_go_to_left"].astype(bool),
        roots=np.zeros(1, np.int32),
    )


# Folds


class Fold:
    """Trees grown on all rows but those of one fold, and what they say of these after each round."""

    def __init__(self, number: int, parts: np.ndarray, growing: Growing, labelled: LabelledWeights) -> None:
        self.rows = np.flatnonzero(parts == number)
        self.growing = growing
        out = labelled.of_rows(parts == number)
        self.weight, self.known = out.weight, np.isin(out.code, growing.present)
        self.place = np.searchsorted(self.rows, out.row[self.known])
        self.column = np.searchsorted(growing.present, out.code[self.known])
        self.F: np.ndarray | None = None
        self.grown: list[tuple[TreeArrays, np.ndarray]] = []

    def losses(self, n_rounds: int) -> np.ndarray:
        """The weighted sum of log-losses after each of the next rounds, (n_rounds,)."""
        self.grown.append(self.growing.more(n_rounds))
        if self.F is None:
            self.F = np.repeat(self.growing.baseline[:, None], len(self.rows), axis=1)
        out = np.empty(n_rounds)
        q = len(self.F)
        for i, values in enumerate(_rounds(*self.grown[-1], self.growing.ranks[self.rows], q, n_rounds)):
            self.F += values
            F = all_logits(self.F)
            log_p = np.full(len(self.known), LOWEST)  # of a class that is in this fold alone
            log_p[self.known] = F[self.column, self.place] - logsumexp(F, axis=0)[self.place]
            out[i] = -self.weight @ np.maximum(log_p, LOWEST)
        return out

    def log_proba(self, n_rounds: int, K: int) -> np.ndarray:
        """Log-probabilities of the fold's rows after some rounds, (n, K)."""
        q = len(self.growing.baseline)
        F = np.repeat(self.growing.baseline[:, None], len(self.rows), axis=1)
        for trees, value in self.grown:
            taken = min(n_rounds, trees.n_trees // q) if q else 0
            for values in _rounds(trees, value, self.growing.ranks[self.rows], q, taken):
                F += values
            n_rounds -= taken
        return in_all_classes(log_softmax(all_logits(F), axis=0).T, self.growing.present, K)


def _rounds(trees: TreeArrays, value: np.ndarray, X: np.ndarray, q: int, n_rounds: int) -> Iterator[np.ndarray]:
    """The values (q, n) that each round adds."""
    for r in range(n_rounds):
        yield value[trees.leaves(X, slice(r * q, (r + 1) * q))]


def dealt(labelled: LabelledWeights, n: int, n_folds: int) -> np.ndarray:
    """The fold of each row, (n,): rows, whose order is random, dealt out class by class."""
    heaviest = np.lexsort((labelled.weight, labelled.row))
    label = np.zeros(n, dtype=int)
    label[labelled.row[heaviest]] = labelled.code[heaviest]  # the last entry of a row is its likeliest class
    parts = np.empty(n, dtype=int)
    parts[np.argsort(label, kind="stable")] = np.arange(n) % n_folds
    return parts


class Plan(NamedTuple):
    """How many folds and rounds can be afforded, and how long a step is."""

    n_folds: int
    max_rounds: int
    learning_rate: float

    @classmethod
    def of(cls, n: int, D: int, n_trees: int, settings: BoostingSettings) -> Plan:
        """The plan for n rows, D columns and so many trees in a round."""
        each = _EACH_TREE + _EACH_COLUMN * D + n * (_EACH_ROW + _EACH_VALUE * D)
        affordable = _SECONDS / (max(n_trees, 1) * each)  # rounds of one fold
        n_folds = int(np.clip(affordable / _FEWEST_ROUNDS / 2.0, _FEWEST_FOLDS, _FOLDS))
        rounds = int(np.clip(affordable / n_folds, min(_FEWEST_ROUNDS, settings.max_rounds), settings.max_rounds))
        step = settings.learning_rate
        if step is None:
            step = float(np.clip(_WAY / rounds, _STEP, _LONGEST_STEP)) if rounds < settings.max_rounds else _STEP
        return cls(min(n_folds, n), rounds, step)


class Chosen(NamedTuple):
    """The number of rounds that is best for the folds, and what these say of all rows then."""

    n_rounds: int
    turned: bool
    trace: list[float]
    Z: np.ndarray
    n_grown: int


def _choose(folds: list[Fold], n: int, total: float, K: int, max_rounds: int) -> Chosen:
    """Grow the folds side by side until their log-loss rises, or hardly falls."""
    losses = np.zeros(0)
    while True:
        ahead = min(_AT_ONCE, max_rounds - len(losses))
        losses = np.concatenate([losses, sum(fold.losses(ahead) for fold in folds) / total])
        best = int(losses.argmin()) + 1
        turned = len(losses) >= best + max(_PATIENCE, best // 4)
        turned |= len(losses) > _FLAT and losses[:-_FLAT].min() - losses.min() < _GAIN
        if turned or len(losses) >= max_rounds:
            turned |= best < _LATE * len(losses)
            break
    Z = np.empty((n, K))
    for fold in folds:
        Z[fold.rows] = fold.log_proba(best, K)
    return Chosen(best, turned, losses.tolist(), Z, len(losses))


# The fit


def boost(distinct: DistinctRows, K: int, settings: BoostingSettings) -> tuple[FittedBoosting, LeftOutFolds]:
    """Boosted trees for the distinct rows of a fit, of K classes, and what the folds say of these rows."""
    began = perf_counter()
    units, labelled, n = Ranks.of(distinct.X, _BINS), distinct.labelled, len(distinct.X)
    ranks = units.ranks(distinct.X).astype(np.float64)
    count = labelled.by_class(K)
    pi = class_frequencies(count)
    plan = Plan.of(n, ranks.shape[1], trees_in_a_round(int((count > 0.0).sum())), settings)
    temperature, loss, folds = Temperature(1.0, 0.0, pi), np.inf, LeftOutFolds()
    chosen = Chosen(plan.max_rounds, False, [], np.zeros((0, K)), 0)
    if plan.n_folds > 1:
        parts = dealt(labelled, n, plan.n_folds)
        in_folds = []
        for part in range(plan.n_folds):
            others = Growing(ranks, labelled.of_rows(parts != part), plan.learning_rate, settings)
            in_folds.append(Fold(part, parts, others, labelled))
        chosen = _choose(in_folds, n, float(labelled.weight.sum()), K, plan.max_rounds)
        row, code, weight = labelled
        temperature, _ = likeliest_temperature(chosen.Z[row], code, pi, weight)
        left_out = temperature.log_proba(chosen.Z)
        loss = -float(weight @ left_out[row, code] / weight.sum())
        folds = LeftOutFolds(distinct.keys, left_out, parts, plan.n_folds)
    final = Growing(ranks, labelled, plan.learning_rate, settings)
    n_rounds = min(int(np.ceil(_MORE * chosen.n_rounds)), settings.max_rounds)
    trees, value = final.more(n_rounds)
    solution = BoostingSolution(
        status=Status.CONVERGED if chosen.turned else Status.ITERATION_LIMIT,
        objective=loss,
        n_iter=n_rounds,
        n_rounds_left_out=chosen.n_rounds,
        n_folds=plan.n_folds,
        learning_rate=plan.learning_rate,
        slope=temperature.slope,
        doubt=temperature.doubt,
        n_passes=plan.n_folds * chosen.n_grown + n_rounds,
        trace=chosen.trace,
        seconds=perf_counter() - began,
    )
    fitted = FittedBoosting(
        trees=TreeArrays(**vars(trees) | {"threshold": units.thresholds(trees.feature, trees.threshold)}),
        value=value,
        baseline=final.baseline,
        present=final.present,
        temperature=(temperature.slope, temperature.doubt),
        class_count=count,
        solution=solution,
    )
    return fitted, folds
