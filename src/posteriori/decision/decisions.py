r"""From probabilities to actions: the one with the highest expected utility.

.. math:: EU(a) = \sum_k p_k U(k, a), \qquad a^* = \arg\max_a EU(a), \qquad
          \mathrm{EVPI} = \sum_k p_k \max_a U(k, a) - \max_a EU(a) .

The last is what it would be worth to be told the truth before acting. When the probabilities themselves are uncertain,
known as draws P_W from a posterior, what it would be worth to be told W is E_W[max_a EU_W(a)] - max_a E_W[EU_W(a)].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.decision.utility import Utility
from posteriori.exceptions import ClassOrderWarning
from posteriori.parameters import first_names
from posteriori.threads import one_blas_thread, run_tasks, usable_threads

__all__ = ["Decisions", "decide", "distributions", "tie_slack"]

_BLOCK_VALUES = 1 << 18
"""Expected utilities worked on at a time: what stays in the cache."""
_SUM_TOLERANCE = 1e-5
_MOST_SHOWN = 6
"""Actions whose counts are shown."""


@dataclass(frozen=True, repr=False)
class Decisions:
    """The decisions for all rows (docs/theory.md, section 7.1).

    Attributes
    ----------
    actions : ndarray (n,)
        Names of the best actions; of equally good ones the first.
    codes : ndarray of int (n,)
        The places of the best actions among the utility's actions.
    expected_utility : ndarray (n, A)
    margin : ndarray (n,)
        By how much the best action is better than the second best; infinite if there is only one.
    value_of_information : ndarray (n,)
        What it would be worth to know the truth before acting.
    probability_best : ndarray (n, A), or None
        With draws: how probable it is that each action is the best one.
    cost_of_uncertainty : ndarray (n,), or None
        With draws: what it would be worth to know the parameters, and with them the probabilities, before acting.

    Examples
    --------
    >>> from posteriori import Utility, decide
    >>> utility = Utility([[0, -1], [-5, 0]], states=["good", "bad"], actions=["grant", "refuse"])
    >>> decisions = decide([[0.9, 0.1], [0.8, 0.2]], utility)
    >>> decisions.actions
    array(['grant', 'refuse'], dtype='<U6')
    >>> decisions.expected_utility
    array([[-0.5, -0.9],
           [-1. , -0.8]])
    >>> decisions.value_of_information
    array([0.5, 0.8])
    """

    actions: np.ndarray
    codes: np.ndarray
    expected_utility: np.ndarray
    margin: np.ndarray
    value_of_information: np.ndarray
    probability_best: np.ndarray | None = None
    cost_of_uncertainty: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        n = len(self)
        if n == 0:
            return "Decisions(0 rows)"
        _, first, counts = np.unique(self.codes, return_index=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        taken = ", ".join(f"{self.actions[first[i]]} {counts[i]:,}" for i in order[:_MOST_SHOWN])
        taken += f", ... ({len(order)} actions in all)" if len(order) > _MOST_SHOWN else ""
        mean = float(self.expected_utility[np.arange(n), self.codes].mean())
        return f"Decisions({n:,} row{'s' if n > 1 else ''}: {taken}; mean expected utility {mean:.4g})"


def decide(probabilities: Any, utility: Utility, *, classes: Any = None, X: Any = None, draws: Any = None) -> Decisions:
    """Take the action with the highest expected utility (docs/theory.md, section 7.1).

    Parameters
    ----------
    probabilities : array or table (n, K)
        Class probabilities; rows sum to one. May be None if there are draws, whose mean is then taken.
    utility : Utility
    classes : sequence of K labels, optional
        The classes of the columns, as a classifier's `classes_`. Without it the columns of a table are matched by their
        names, and those of an array are in the order of the utility's states, with a warning if that is not sorted.
    X : rows, optional
        What the utility is a function of, if it is one.
    draws : array (S, n, K), optional
        Probabilities drawn from a posterior, such as those of `BayesianSoftmaxRegression.sample_proba`.

    Returns
    -------
    Decisions

    Warns
    -----
    ClassOrderWarning
        If columns without names meet states that are not sorted: those of a classifier are.

    Examples
    --------
    >>> utility = Utility([[0, -1], [-5, 0]], states=["good", "bad"], actions=["grant", "refuse"])
    >>> decisions = decide([[0.1, 0.9], [0.2, 0.8]], utility, classes=["bad", "good"])
    >>> decisions
    Decisions(2 rows: grant 1, refuse 1; mean expected utility -0.65)
    >>> decisions.actions
    array(['grant', 'refuse'], dtype='<U6')
    """
    if not isinstance(utility, Utility):
        raise TypeError(
            f"utility must be a Utility, got {type(utility).__name__}: make one with Utility(matrix, states, actions)."
        )
    samples = None if draws is None else _draws(draws)
    P, names = _probabilities(probabilities, samples)
    K = len(utility.states)
    if P.shape[1] != K:
        raise ValueError(
            f"probabilities have {P.shape[1]} columns, and the utility has {K} states: one column "
            "for each state is needed."
        )
    if samples is not None and samples.shape[1:] != P.shape:
        raise ValueError(f"draws have shape {samples.shape}: (S, {P.shape[0]}, {K}) is needed.")
    if classes is None and names is None and not _sorted(utility.states.tolist()):
        warnings.warn(
            f"Columns of probabilities are taken to be {first_names(utility.states.tolist(), 5)}, in the order of the "
            "utility's states; those of a classifier are sorted. Pass classes=model.classes_, or, if the order is "
            "right, classes=utility.states.",
            ClassOrderWarning,
            stacklevel=2,
        )
    return _decisions(P, _utility_of_rows(utility, names if classes is None else classes, X, len(P)), samples)


def _sorted(states: list[Any]) -> bool:
    """Whether states are in the order that a classifier has, as they are or as the numbers that they read as."""
    try:
        return states == sorted(states) or states == sorted(states, key=float)
    except (TypeError, ValueError):
        return False


def _probabilities(given: Any, samples: np.ndarray | None) -> tuple[np.ndarray, list[Any] | None]:
    """Probabilities (n, K), the mean of draws if there are no others, and the names of their columns in a table."""
    if given is not None:
        names = getattr(given, "column_names", getattr(given, "columns", None))  # Arrow has the former
        return _matrix(given, "probabilities"), None if names is None else list(names)
    if samples is None:
        raise ValueError("decide needs probabilities, draws, or both.")
    return samples.mean(axis=0), None


def _utility_of_rows(utility: Utility, classes: Any, X: Any, n: int) -> Utility:
    """The utility as numbers, with its states in the order of the classes."""
    if classes is not None:
        utility = utility.ordered(classes)
    if utility.function is not None:
        if X is None:
            raise ValueError("This utility is a function of the row: pass the rows as X.")
        utility = Utility(utility.of_rows(X), utility.states.tolist(), utility.actions.tolist())
    assert utility.matrix is not None
    if utility.matrix.ndim == 3 and len(utility.matrix) != n:
        raise ValueError(
            f"The utility has matrices for {len(utility.matrix)} rows, and there are {n} rows of probabilities: pass "
            "one matrix for each row, or one for all."
        )
    return utility


def _decisions(P: np.ndarray, utility: Utility, samples: np.ndarray | None) -> Decisions:
    n, K = P.shape
    U, A = utility.matrix, len(utility.actions)
    assert U is not None
    expected, codes = np.empty((n, A)), np.empty(n, dtype=np.intp)
    margin, value = np.empty(n), np.empty(n)
    likely = None if samples is None else np.zeros((A, n))
    cost = None if samples is None else np.empty(n)
    size = max(1, _BLOCK_VALUES // (A if U.ndim == 2 else A * K))
    slack = tie_slack(U)
    proper = np.ones(-(-n // size), dtype=bool)

    def task(i: int) -> None:
        rows = slice(i * size, min((i + 1) * size, n))
        proper[i] = _are_distributions(P[rows])
        U_b = U if U.ndim == 2 else U[rows]
        E = _expected(P[rows], U_b, expected[rows])
        codes[rows], best, second = _best(np.array(E.T, order="C"), slack)
        margin[rows] = np.where(best - second > slack, best - second, 0.0)
        np.subtract(_perfect(P[rows], U_b), best, out=value[rows])
        if likely is not None and cost is not None and samples is not None:
            cost[rows] = _over_draws(samples[:, rows], U_b, likely[:, rows], slack)

    with one_blas_thread():
        run_tasks(task, len(proper), usable_threads(None))
    if not proper.all():
        _require_distributions(P, "probabilities")
    np.maximum(value, 0.0, out=value)
    chances = None if likely is None else likely.T
    return Decisions(utility.actions[codes], codes, expected, margin, value, chances, cost)


def _perfect(P: np.ndarray, U: np.ndarray) -> np.ndarray:
    """sum_k p_k max_a U(k, a), (n,)."""
    top = U.max(axis=-1)
    return np.dot(P, top) if U.ndim == 2 else np.einsum("nk,nk->n", P, top)


def _expected(P: np.ndarray, U: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """EU(a), (n, A), into `out` if given."""
    return np.dot(P, U, out=out) if U.ndim == 2 else np.einsum("nk,nka->na", P, U, out=out)


def tie_slack(U: np.ndarray) -> float:
    """The difference between expected utilities that rounding alone may make: actions closer than this tie."""
    return 8.0 * np.finfo(np.float64).eps * float(np.abs(U).max(initial=0.0))


def _best(E: np.ndarray, slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first of the best actions, its expected utility and that of the second best; E (A, n) is overwritten.

    Actions that differ by no more than the rounding of a sum tie.
    """
    best = E.max(axis=0)
    bound = best - slack
    small = np.zeros(E.shape[1], dtype=np.uint8 if len(E) < 256 else np.intp)
    for a in reversed(range(len(E))):
        np.copyto(small, a, where=E[a] >= bound)
    codes = small.astype(np.intp)
    E[codes, np.arange(E.shape[1])] = -np.inf
    return codes, best, E.max(axis=0)


def _over_draws(samples: np.ndarray, U: np.ndarray, likely: np.ndarray, slack: float) -> np.ndarray:
    """E_W[max_a EU_W(a)] - max_a E_W[EU_W(a)], (n,); how often each action is the best is added up in `likely`."""
    S, n, _ = samples.shape
    mean, top = np.zeros_like(likely), np.zeros(n)
    at = np.arange(n)
    for P in samples:
        E = np.array(_expected(P, U).T, order="C")
        mean += E
        codes, best, _ = _best(E, slack)
        likely[codes, at] += 1.0 / S
        top += best
    return np.maximum(top / S - mean.max(axis=0) / S, 0.0)


def distributions(probabilities: Any, what: str = "probabilities") -> np.ndarray:
    """Probabilities (n, K) as an array, their rows checked to sum to one."""
    P = _matrix(probabilities, what)
    _require_distributions(P, what)
    return P


def _matrix(probabilities: Any, what: str) -> np.ndarray:
    try:
        P = np.asarray(probabilities, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be numbers, one row for each decision, one column for each class.") from None
    if P.ndim != 2 or P.shape[1] == 0:
        raise ValueError(f"{what} have shape {P.shape}: (n, K) is needed, one column for each class.")
    return P


def _draws(draws: Any) -> np.ndarray:
    samples = np.asarray(draws, dtype=np.float64)
    if samples.ndim != 3 or samples.shape[0] == 0 or samples.shape[2] == 0:
        raise ValueError(f"draws have shape {samples.shape}: (S, n, K) is needed.")
    _require_distributions(samples.reshape(-1, samples.shape[-1]), "draws")
    return samples


def _are_distributions(P: np.ndarray) -> bool:
    """Whether all rows sum to one and none is negative; not so with NaN."""
    gap = np.abs(np.dot(P, np.ones(P.shape[1])) - 1.0)
    return bool((gap <= _SUM_TOLERANCE).all() and P.min(initial=0.0) >= -_SUM_TOLERANCE)


def _require_distributions(P: np.ndarray, what: str) -> None:
    """Raise unless all rows are distributions, naming the worst row."""
    if _are_distributions(P):
        return
    gap = np.abs(P @ np.ones(P.shape[1]) - 1.0)
    worst = int(gap.argmax()) if not np.isnan(gap).any() else int(np.isnan(gap).argmax())
    if not gap[worst] <= _SUM_TOLERANCE:
        raise ValueError(
            f"{what} must sum to one: row {worst} (counted from 0) sums to {float(P[worst].sum()):.6g}, {P[worst]!r}."
        )
    low = float(P.min())
    if low < -_SUM_TOLERANCE:
        worst = int(P.min(axis=1).argmin())
        raise ValueError(f"{what} must not be negative: row {worst} (counted from 0) holds {low:.6g}.")
