"""What is to be calculated: data small enough to read, a prior, a new row and a utility; or the built-in example."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from posteriori.rows.features import raise_if_not_finite
from posteriori.rows.matrices import column, column_names
from posteriori.rows.memory import read_features
from posteriori.rows.products import as_dense
from posteriori.rows.target import read_target

__all__ = ["HandProblem", "check_digits", "read_problem"]

_MOST_ROWS, _MOST_COLUMNS, _MOST_CLASSES, _MOST_ACTIONS, _MOST_DRAWS = 50, 5, 5, 10, 50

# The built-in example: three classes, one measurement; the two mornings with x = 1 were followed by different weather.
_FALL = [[-2.0], [-1.0], [0.0], [1.0], [1.0], [2.0]]
_WEATHER = ["dry", "rain", "dry", "rain", "storm", "storm"]
_FALL_TODAY = [0.5]
_ACTIONS: tuple[str, ...] = ("walk", "umbrella", "bus", "stay")
_UTILITY = [[10, 7, 5, 2], [-4, 5, 4, 2], [-20, -10, 3, 2]]
_STORY = (
    "Six mornings: $x$ is the fall of the barometer overnight, in units of 5 hPa (negative where it rose), and the "
    "class is the weather that followed. The seventh morning asks what to do."
)


@dataclass(frozen=True, eq=False)
class HandProblem:
    """The numbers a calculation starts from.

    Attributes
    ----------
    X : ndarray (N, D)
        Features, the first column all ones.
    Y : ndarray (N, K)
        One-hot.
    features, classes, actions : tuple of str
        Names, of D - 1 columns, K classes and A actions.
    alpha : float
        Precision of the prior on every weight.
    x_new : ndarray (D,)
        The row to be classified, beginning with one.
    utility : ndarray (K, A)
    Z : ndarray (S, K)
        Standard-normal draws, rounded to two decimals: as they are printed, so they are used.
    story : str
        What the data are about; empty if unknown.
    """

    X: np.ndarray
    Y: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    actions: tuple[str, ...]
    alpha: float
    x_new: np.ndarray
    utility: np.ndarray
    Z: np.ndarray
    story: str


def read_problem(
    X: Any, y: Any, *, alpha: Any, x_new: Any, utility: Any, n_draws: Any, random_state: Any
) -> HandProblem:
    """Check and complete the arguments of `walkthrough`, whose documentation describes them."""
    precision = _positive(alpha)
    draws = _whole(n_draws, "n_draws", 1, _MOST_DRAWS)
    example = X is None and y is None
    if example:
        X, y = _FALL, _WEATHER
        x_new = _FALL_TODAY if x_new is None else x_new
    elif X is None or y is None:
        missing, passed = ("X", "y") if X is None else ("y", "X")
        raise ValueError(f"{passed} was passed without {missing}: pass both, or neither for the built-in example.")
    matrix, names, codes, classes = _read_data(X, y)
    N, columns = matrix.shape
    features = ("fall",) if example else tuple(names or (f"column {d + 1}" for d in range(columns)))
    if example and utility is None:
        U, actions = np.array(_UTILITY, dtype=float), _ACTIONS
    else:
        U, actions = _read_utility(utility, classes)
    return HandProblem(
        X=np.column_stack([np.ones(N), matrix]),
        Y=np.eye(len(classes))[codes],
        features=features,
        classes=tuple(map(str, classes)),
        actions=actions,
        alpha=precision,
        x_new=np.append(1.0, matrix.mean(axis=0) if x_new is None else _read_row(x_new, names, columns)),
        utility=U,
        Z=np.random.default_rng(random_state).standard_normal((draws, len(classes))).round(2) + 0.0,
        story=_STORY if example else "",
    )


def check_digits(digits: Any) -> int:
    """The number of decimals, checked to be from 2 to 10."""
    return _whole(digits, "digits", 2, 10)


def _read_data(X: Any, y: Any) -> tuple[np.ndarray, list[str] | None, np.ndarray, list[Any]]:
    """Features (N, D - 1), their names if they have any, class codes (N,) and the sorted classes."""
    drop = [y] if isinstance(y, str) else []
    if isinstance(y, str):
        y = column(X, y, argument="y")
    features = read_features(X, drop=drop)
    N, columns = features.matrix.shape
    _at_most(N, _MOST_ROWS, "X has", "rows", "pass a few of them")
    _at_most(columns, _MOST_COLUMNS, "X has", "columns", "keep the most telling ones")
    matrix = as_dense(features.matrix).astype(np.float64)
    raise_if_not_finite(matrix, features.names)
    if np.ndim(y) == 1 and len(set(map(str, y))) == 1:
        raise ValueError(f"y holds one class only ({np.asarray(y).tolist()[0]!r}): pass rows of at least two classes.")
    target = read_target(y, n_rows=N)
    if target.codes is None:
        raise ValueError(
            f"y has {np.shape(y)[1]} columns, and the calculation is written for labels: pass one label for every row."
        )
    classes = target.classes.tolist()
    _at_most(len(classes), _MOST_CLASSES, "y holds", "classes", "merge some, or keep the rows of a few")
    return matrix, features.names, target.codes, classes


def _read_row(x_new: Any, names: list[str] | None, columns: int) -> np.ndarray:
    """The new row, without its one."""
    given = column_names(x_new)
    if given is not None:
        if given != names:
            raise ValueError(f"x_new has the columns {given}, X has {names}: pass the same ones, in the same order.")
        values = read_features(x_new).matrix
    else:
        try:
            values = np.asarray(x_new, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"x_new must be {columns} numbers, one per column of X, got {x_new!r}.") from None
    values = np.asarray(values, dtype=np.float64).ravel()
    if values.size != columns:
        raise ValueError(
            f"x_new holds {values.size} numbers, X has {columns} columns: pass one row, without the leading one."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"x_new holds {values[~np.isfinite(values)][0]}: pass finite numbers.")
    return values


def _read_utility(utility: Any, classes: list[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """U (K, A) and the names of the actions; None is zero-one: the action is to name the class."""
    K = len(classes)
    if utility is None:
        return np.eye(K), tuple(f"say {label}" for label in classes)
    if np.ndim(utility) != 2 or 0 in np.shape(utility):
        raise ValueError(
            f"utility has shape {np.shape(utility)}, and must have one row per class and one column per action: "
            f"pass shape ({K}, A)."
        )
    table = read_features(_rows_by_class(utility, classes))
    U = np.asarray(table.matrix, dtype=np.float64)
    if len(U) != K:
        raise ValueError(
            f"utility has {len(U)} rows, y has {K} classes {classes}: pass one row per class, in that order."
        )
    _at_most(U.shape[1], _MOST_ACTIONS, "utility has", "actions", "keep those worth considering")
    raise_if_not_finite(U, table.names, argument="utility")
    names = table.names if table.names is not None else [f"action {a + 1}" for a in range(U.shape[1])]
    return U, tuple(names)


def _rows_by_class(utility: Any, classes: list[Any]) -> Any:
    """A pandas table with labels for its rows, in the order of the classes; anything else as it is."""
    if not hasattr(utility, "loc") or type(utility.index).__name__ == "RangeIndex":
        return utility
    named = utility.index.tolist()
    if sorted(map(str, named)) != sorted(map(str, classes)):
        raise ValueError(f"utility has rows for {named}, y has the classes {classes}: pass one row per class.")
    return utility.iloc[[list(map(str, named)).index(str(label)) for label in classes]]


def _at_most(given: int, limit: int, has: str, what: str, advice: str) -> None:
    if given > limit:
        raise ValueError(f"{has} {given} {what}, too many to follow by hand (at most {limit}): {advice}.")


def _positive(alpha: Any) -> float:
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < float(alpha) < np.inf:
        raise ValueError(
            f"alpha must be a finite number above 0, got {alpha!r}: without a prior there is no posterior."
        )
    return float(alpha)


def _whole(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}.")
    return int(value)
