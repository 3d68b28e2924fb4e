r"""Several classifiers as one, weighted by what they would have predicted for each row without it.

Every member is fitted to all rows once and judged by `loo`, or by folds if it has none. The weights of the pool are
those under which the left-out labels are most probable (`decision.pooling`), so that a model that has learned its rows
by heart has no advantage. A mixture's uncertainty has two parts, within its members and between them:

.. math:: \underbrace{H[\bar p]}_{\text{total}} = \underbrace{\sum_m w_m A_m}_{\text{aleatoric}}
          + \underbrace{\sum_m w_m E_m}_{\text{within}} + \underbrace{H[\bar p] - \sum_m w_m H[p_m]}_{\text{between}}

with A_m and E_m the aleatoric and epistemic parts of member m.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from posteriori.decision.pooling import POOLS
from posteriori.decision.uncertainty import Uncertainty, entropy
from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gp.classifier import GPClassifier
from posteriori.left_out.result import LeftOut, grouped_mean_and_error
from posteriori.meta.judging import Judged, JudgedRows, common, fit_judged, log_probabilities, require_classifiers
from posteriori.parameters import is_number, require_choice, require_level, require_verbosity, seed_from
from posteriori.rows.engines import label_vector, read_labels, require_in_memory, without_column
from posteriori.rows.matrices import collected
from posteriori.rows.schema import adopt_features
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.trees.boosting_classifier import BoostingClassifier
from posteriori.trees.forest_classifier import ForestClassifier

__all__ = ["StackGain", "StackMember", "StackedClassifier", "automatic_members"]

_MOST_PROCESS_ROWS, _MOST_TREE_ROWS = 10_000, 100_000
"""Rows up to which a Gaussian process and trees are members where none are named: they take a minute or two there."""
_CLEARLY = 0.5
"""Standard errors by which a product must be better than a mixture, whose uncertainty is easier to understand."""
_LEVELS = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
"""Levels of the members' intervals, from which the mixture's are made."""


class StackMember(NamedTuple):
    """A member of a stack, as it was judged.

    Attributes
    ----------
    name : str
    weight : float
        Its weight in predictions; 0 where it takes no part.
    log_loss, log_loss_error : float
        Of left-out rows.
    judged : str
        How rows were left out; why it is not there, if there was no time for it.
    n_unreliable : int
        Rows for which that is not to be trusted.
    fit_seconds, seconds : float
        Time of one fit to all rows, and of all there was to do.
    """

    name: str
    weight: float
    log_loss: float
    log_loss_error: float
    judged: str
    n_unreliable: int
    fit_seconds: float
    seconds: float


class StackGain(NamedTuple):
    """How much lower the log-loss of a stack is than that of its best member, for rows left out.

    Attributes
    ----------
    best : str
        The best member.
    difference, error : float
        The gain, less what weights flatter by, and its standard error.
    """

    best: str
    difference: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain is above its standard error."""
        return self.difference > self.error


def automatic_members(n_rows: int, seed: Any = None) -> dict[str, Any]:
    """The members of a stack for which none are named, the most promising for their time first."""
    members: dict[str, Any] = {
        "softmax": BayesianSoftmaxRegression(random_state=seed),
        "gaussian": GaussianClassifier(random_state=seed),
    }
    if n_rows <= _MOST_TREE_ROWS:
        members["forest"] = ForestClassifier(random_state=seed)
        members["boosting"] = BoostingClassifier(random_state=seed)
    if n_rows <= _MOST_PROCESS_ROWS:
        members["gp"] = GPClassifier(random_state=seed)
    return members


class _Pooled(NamedTuple):
    """A pool of members: its name, their weights (M,), and what they say together of rows left out, (n, K)."""

    name: str
    weights: np.ndarray
    log_proba: np.ndarray


def _has_members_with(method: str) -> Any:
    def check(stack: StackedClassifier) -> bool:
        models = [model for _, model in getattr(stack, "estimators_", ())]
        if models and not any(hasattr(model, method) for model in models):
            raise AttributeError(f"No member of this stack has {method}.")
        return True

    return available_if(check)


class StackedClassifier(ClassifierMixin, BaseEstimator):
    """A stack of classifiers, weighted by left-out rows.

    Parameters
    ----------
    estimators : "auto", list of classifiers, list of (name, classifier), or dict, default "auto"
        "auto" is softmax regression, Gaussian classes, a forest, boosted trees (up to 100,000 rows) and a Gaussian
        process (up to 10,000). Classifiers of scikit-learn may be members: they are judged in five folds.
    pool : {"linear", "log", "auto"}, default "linear"
        A mixture of the members' probabilities, or a product of their powers; "auto" takes the product where left-out
        rows are clearly more probable under it, by half a standard error.
    weights : {"loo", "equal"} or array, default "loo"
        Chosen by left-out rows, all alike, or given.
    max_seconds : number or None, default None
        After this time no further member is begun; what was left out is said in `members_`.
    random_state : int, RandomState or None
        For folds, and for members that "auto" makes.
    verbose : int, default 0
        1 says how each member did.

    Attributes
    ----------
    estimators_ : list of (name, fitted classifier)
        Those that take part in predictions.
    weights_ : ndarray
        Their weights.
    pool_ : {"linear", "log"}
    judged_ : list of (name, fitted classifier)
        All that were judged, those of no weight too; not part of a file.
    members_ : list of StackMember
        All that were considered, in their order.
    left_out_ : LeftOut
        The stack's own predictions of each row without it; not part of a file.
    gain_ : StackGain
        How much lower its log-loss of left-out rows is than that of its best member.
    classes_ : ndarray (K,)
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from posteriori import GaussianClassifier, SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> stack = StackedClassifier([SoftmaxRegression(0.1), GaussianClassifier("tied"), GaussianNB()]).fit(X, y)
    >>> [(member.name, round(member.log_loss, 2)) for member in stack.members_]
    [('SoftmaxRegression', 0.07), ('GaussianClassifier', 0.06), ('GaussianNB', 0.13)]
    >>> round(stack.loo().log_loss, 2)
    0.06
    """

    def __init__(
        self,
        estimators: Any = "auto",
        *,
        pool: str = "linear",
        weights: Any = "loo",
        max_seconds: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimators = estimators
        self.pool = pool
        self.weights = weights
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if not isinstance(self.estimators, str):
            inner = [get_tags(model) for model in named_members(self.estimators).values()]
            tags.input_tags.sparse = all(each.input_tags.sparse for each in inner)
            tags.input_tags.allow_nan = all(each.input_tags.allow_nan for each in inner)
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StackedClassifier:
        """Fit every member to all rows, judge it by left-out rows, and weigh it.

        Parameters
        ----------
        X : table or array in memory
        y : labels (n,), or the name of a column of X
        sample_weight : numbers (n,), or the name of a column of X, optional

        Returns
        -------
        self
        """
        self._validate()
        X = collected(X)
        require_in_memory(X, "StackedClassifier, which leaves rows out,")
        labels, given = label_vector(read_labels(X, y)), read_labels(X, sample_weight)
        target, weight = (name if isinstance(name, str) else None for name in (y, sample_weight))
        X = without_column(without_column(X, target), weight)
        weights = None if given is None else np.broadcast_to(np.asarray(given, dtype=np.float64), labels.shape)
        rows = JudgedRows.of(X, labels, weights)
        seed = seed_from(self.random_state)
        chosen = self.estimators
        members = automatic_members(len(labels), seed) if isinstance(chosen, str) else named_members(chosen)
        judged, skipped = self._judged(members, rows, seed)
        self._assemble(judged, rows, list(members))
        self.members_ += skipped
        self._target, self._weight = target, weight
        return self

    def assembled(self, judged: Sequence[Judged], rows: JudgedRows) -> StackedClassifier:
        """The stack itself, made of members that are fitted and judged already."""
        self._validate()
        self._assemble(list(judged), rows, [each.name for each in judged])
        self._target, self._weight = rows.named
        return self

    def _assemble(self, judged: list[Judged], rows: JudgedRows, names: Sequence[str]) -> None:
        judged, rows = common(judged, rows)
        log_p = np.array([each.left.log_proba for each in judged])
        asked = [*POOLS] if self.pool == "auto" else [self.pool]
        pooled = self._chosen([self._pooled(name, log_p, rows, names, judged) for name in asked], rows)
        used = np.flatnonzero(pooled.weights > 0.0)
        self.pool_, self.weights_ = pooled.name, pooled.weights[used]
        self.estimators_ = [(judged[m].name, judged[m].model) for m in used]
        self.judged_ = [(each.name, each.model) for each in judged]
        self.members_ = [_member(each, pooled.weights[m]) for m, each in enumerate(judged)]
        self.classes_ = rows.classes
        self.left_out_ = _left_out(judged, pooled.log_proba, rows)
        self.gain_ = _gain(judged, self.left_out_, len(used))
        adopt_features(self, self.estimators_[0][1])

    def _pooled(
        self, name: str, log_p: np.ndarray, rows: JudgedRows, names: Sequence[str], judged: list[Judged]
    ) -> _Pooled:
        """The members' left-out predictions as one, with weights of which negligible ones are zero."""
        pool = POOLS[name]
        w = self._weights(pool, log_p, rows, names, judged)
        if isinstance(self.weights, str) and self.weights == "loo":
            used = np.flatnonzero(~pool.negligible(w, rows.c))
            w = np.zeros(len(judged))
            w[used] = pool.weights(log_p[used], rows.Y, rows.c)
        used = np.flatnonzero(w > 0.0)
        return _Pooled(name, w, pool.log_pooled(log_p[used], w[used]))

    @staticmethod
    def _chosen(pooled: Sequence[_Pooled], rows: JudgedRows) -> _Pooled:
        """The first, unless the second has clearly higher log-probabilities of left-out labels."""
        if len(pooled) == 1:
            return pooled[0]
        first, second = (np.einsum("nk,nk->n", rows.Y, np.where(rows.Y > 0.0, p.log_proba, 0.0)) for p in pooled)
        gain, error = grouped_mean_and_error(second - first, rows.c, rows.groups)
        return pooled[1] if gain > _CLEARLY * error else pooled[0]

    def loo(self) -> LeftOut:
        """Each row of the fit predicted without itself, by members that were fitted without it.

        The weights of the members are those of all rows: with M members they flatter the log-loss of N rows by about
        (M - 1) / (2 N) nats.
        """
        check_is_fitted(self, "estimators_")
        if not hasattr(self, "left_out_"):
            raise ValueError("Left-out rows are not part of a file: fit the stack again to have them.")
        return self.left_out_

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K)."""
        check_is_fitted(self, "estimators_")
        X = self._features(X)
        log_p = np.array([log_probabilities(model, X) for _, model in self.estimators_])
        return POOLS[self.pool_].log_pooled(log_p, self.weights_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, (n, K)."""
        P = np.exp(self.predict_log_proba(X))
        return P / P.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        best = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-probabilities, (n, K); for two classes the log-odds of the second, (n,)."""
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    @_has_members_with("predict_interval")
    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed interval of each class probability under a member drawn by its weight, and its own posterior.

        Lower and upper ends, (n, K) each. A member without intervals counts as certain.
        """
        tail = 0.5 * (1.0 - require_level(level))
        check_is_fitted(self, "estimators_")
        X = self._features(X)
        values, masses = zip(*(_quantiles(model, X) for _, model in self.estimators_), strict=True)
        shares = self.weights_ / self.weights_.sum()
        points = np.concatenate(values)  # (points, n, K)
        mass = np.concatenate([share * each for share, each in zip(shares, masses, strict=True)])
        order = np.argsort(points, axis=0)
        ranked = np.take_along_axis(points, order, axis=0)
        reached = np.cumsum(mass[order], axis=0) - 0.5 * mass[order]
        return _at(ranked, reached, tail), _at(ranked, reached, 1.0 - tail)

    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the prediction, the part that no data would remove, and what more data would, in nats.

        The epistemic part is that within members and that between them: its share is that of the members' mixture, also
        where the prediction is a product.
        """
        check_is_fitted(self, "estimators_")
        X = self._features(X)
        total, aleatoric, mixed = entropy(self.predict_proba(X)), 0.0, 0.0
        for share, (_, model) in zip(self.weights_ / self.weights_.sum(), self.estimators_, strict=True):
            P = model.predict_proba(X)
            own = model.uncertainty(X).aleatoric if hasattr(model, "uncertainty") else entropy(P)
            aleatoric, mixed = aleatoric + share * own, mixed + share * P
        of_mixture = entropy(np.asarray(mixed))
        known = np.clip(aleatoric / np.where(of_mixture > 0.0, of_mixture, 1.0), 0.0, 1.0)
        return Uncertainty(total, known * total, total - known * total)

    def _judged(
        self, members: Mapping[str, Any], rows: JudgedRows, seed: int
    ) -> tuple[list[Judged], list[StackMember]]:
        """The members that there was time for, judged, and those that were left out."""
        began, judged, skipped = perf_counter(), list[Judged](), list[StackMember]()
        for name, model in members.items():
            spent = perf_counter() - began
            if self.max_seconds is not None and judged and spent > self.max_seconds:
                words = f"left out: {spent:.0f} s of {self.max_seconds:g} s were spent before it"
                skipped.append(StackMember(name, 0.0, np.nan, np.nan, words, 0, 0.0, 0.0))
                continue
            judged.append(fit_judged(name, model, rows, seed=seed))
            if self.verbose:
                print(f"{name}: log-loss {judged[-1].left.log_loss:.4f} of rows left out, {judged[-1].seconds:.1f} s")
        return judged, skipped

    def _weights(
        self, pool: Any, log_p: np.ndarray, rows: JudgedRows, names: Sequence[str], judged: list[Judged]
    ) -> np.ndarray:
        if isinstance(self.weights, str):
            if self.weights == "equal":
                return np.full(len(log_p), 1.0 / len(log_p))
            return pool.weights(log_p, rows.Y, rows.c)
        given = dict(zip(names, np.asarray(self.weights, dtype=np.float64), strict=True))
        return np.array([given[each.name] for each in judged])

    def _features(self, X: Any) -> Any:
        """Rows without the columns that were named as target and weights."""
        return without_column(without_column(X, self._target), self._weight)

    def _validate(self) -> None:
        require_choice("pool", self.pool, (*POOLS, "auto"))
        require_verbosity(self.verbose)
        if isinstance(self.estimators, str) and self.estimators != "auto":
            raise ValueError(
                f"estimators={self.estimators!r} must be 'auto', a list of classifiers, or a dict of them."
            )
        if self.max_seconds is not None and not (is_number(self.max_seconds) and self.max_seconds > 0):
            raise ValueError(f"max_seconds={self.max_seconds!r} must be None or a positive number.")
        if isinstance(self.weights, str):
            require_choice("weights", self.weights, ("loo", "equal"))
            return
        given = np.asarray(self.weights, dtype=np.float64)
        n = None if isinstance(self.estimators, str) else len(named_members(self.estimators))
        right = given.ndim == 1 and (n is None or len(given) == n)
        if not right or not np.isfinite(given).all() or (given < 0.0).any() or not given.any():
            raise ValueError(
                f"weights={self.weights!r} must be 'loo', 'equal', or one number for each member, not negative and not "
                "all zero."
            )


def named_members(estimators: Any) -> dict[str, Any]:
    """Members by name; those of a list without names are called by their classes, and numbered where these repeat."""
    named: dict[str, Any] = {}
    if isinstance(estimators, Mapping):
        named = {str(name): model for name, model in estimators.items()}
    else:
        for entry in estimators:
            if isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str):
                named[entry[0]] = entry[1]
                continue
            name = type(entry[-1] if hasattr(entry, "steps") else entry).__name__
            number = sum(other.partition(" ")[0] == name for other in named) + 1
            named[name if number == 1 else f"{name} {number}"] = entry
    require_classifiers(named)
    return named


def _member(judged: Judged, weight: float) -> StackMember:
    left = judged.left
    return StackMember(
        judged.name, float(weight), left.log_loss, left.log_loss_error, left.method, left.n_unreliable,
        judged.fit_seconds, judged.seconds,
    )  # fmt: skip


def _left_out(judged: list[Judged], log_proba: np.ndarray, rows: JudgedRows) -> LeftOut:
    """The left-out predictions of the stack."""
    seconds = sum(each.left.seconds for each in judged)
    return rows.left_out(log_proba, judged[0].left.rows, "by each member", refitted=False, seconds=seconds)


def _gain(judged: list[Judged], left: LeftOut, n_used: int) -> StackGain:
    """The gain over the best member; M weights that were chosen by N groups flatter by (M - 1) / (2 N)."""
    best = min(judged, key=lambda each: each.left.log_loss)
    mean, error = grouped_mean_and_error(best.left.losses - left.losses, left.weights, left.groups)
    return StackGain(best.name, mean - 0.5 * (n_used - 1) / left.n_groups, error)


def _quantiles(model: Any, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points (points, n, K) that stand for what a member's probabilities may be, and the mass of each, (points,)."""
    if not hasattr(model, "predict_interval"):
        return model.predict_proba(X)[None], np.ones(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = [model.predict_interval(X, level) for level in _LEVELS]
    below, above = [lower for lower, _ in reversed(ends)], [upper for _, upper in ends]
    at = np.array([0.5 * (1.0 - level) for level in reversed(_LEVELS)])
    at = np.concatenate([at, 1.0 - at[::-1]])
    edges = np.concatenate([[0.0], 0.5 * (at[1:] + at[:-1]), [1.0]])
    return np.array(below + above), np.diff(edges)


def _at(points: np.ndarray, reached: np.ndarray, level: float) -> np.ndarray:
    """The value (n, K) at which a share of the mass is reached, between ranked points (points, n, K)."""
    place = np.clip((reached < level).sum(axis=0), 1, len(points) - 1)[None]
    x0, x1 = (np.take_along_axis(points, place - step, axis=0)[0] for step in (1, 0))
    r0, r1 = (np.take_along_axis(reached, place - step, axis=0)[0] for step in (1, 0))
    share = np.clip((level - r0) / np.where(r1 > r0, r1 - r0, 1.0), 0.0, 1.0)
    return x0 + share * (x1 - x0)
