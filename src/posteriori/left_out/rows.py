"""The rows of a fit, read again to be left out.

A classifier keeps a reference to the rows that it was fitted to, and no copy of them: `loo()` then needs no arguments.
The reference goes where the model goes within a process, but into no file and no other process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posteriori.parameters import first_names
from posteriori.rows.copies import RowGroups, group_copies
from posteriori.rows.engines import engine_for, read_for_fit, read_labels, take_rows, without_column
from posteriori.rows.features import Features
from posteriori.rows.matrices import collected, is_table
from posteriori.rows.schema import check_features
from posteriori.rows.target import Target

__all__ = ["FitRows", "RowsReference", "fit_rows"]

_MOST_BYTES = 1 << 28
"""Rows of more bytes than this are not kept: they must be passed again."""
_STREAMED_ROWS = 20_000
"""The number of rows that are judged where they are not in memory: a random sample of all."""
_TOGETHER = ("copies", "twins")


class RowsReference:
    """A reference to the rows, labels and weights of a fit as they were passed; empty where they are many or streamed.

    Parameters
    ----------
    X, y, sample_weight
        As passed to `fit`; nothing is kept where X is None.
    """

    def __init__(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        keep = X is not None and engine_for(X).holds_all_rows and _n_bytes(X) <= _MOST_BYTES
        self.given = (X, y, sample_weight) if keep else None

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsReference, ()


def _n_bytes(X: Any) -> int:
    """The size of an array; 0 for what does not say it as a number."""
    size = getattr(X, "nbytes", 0)
    return int(size) if isinstance(size, (int, np.integer)) else 0


@dataclass(frozen=True)
class FitRows:
    """The rows of a fit, those among them that are judged, and the groups in which they leave.

    Attributes
    ----------
    X, labels, sample_weight
        What a new fit takes: rows without the columns of labels and weights, labels (N,) or targets (N, K), weights.
    features : Features
    target : Target
        Of all rows.
    n_rows : int
        N.
    in_memory : bool
        Whether rows can be taken by number, for a fit without some of them.
    numbers : ndarray of int (n,)
        The rows that are judged.
    Y : ndarray (n, K)
        Their targets.
    weights : ndarray (n,)
    groups : ndarray of int (n,)
    alike : bool
        Whether the rows of a group are identical, so that formulas know how to leave them out.
    n_twins : int or None
        Rows identical to another one, in every column and in the label; None where nobody looked.
    copied : bool
        Whether twins were taken for copies.
    """

    X: Any
    labels: Any
    sample_weight: Any
    features: Features
    target: Target
    n_rows: int
    in_memory: bool
    numbers: np.ndarray
    Y: np.ndarray
    weights: np.ndarray
    groups: np.ndarray
    alike: bool
    n_twins: int | None
    copied: bool

    @property
    def K(self) -> int:
        """The number of classes."""
        return len(self.target.classes)

    @property
    def has_labels(self) -> bool:
        """Whether every row has one label, not a soft one."""
        return self.target.probs is None

    @property
    def removed(self) -> np.ndarray:
        """The weight that leaves with each row: that of its group, (n,)."""
        return np.bincount(self.groups, self.weights)[self.groups]

    def matrix(self, shift: np.ndarray | None = None, scale: np.ndarray | None = None) -> Any:
        """The rows that are judged, as (X - shift) * scale."""
        return self.features.blocks(self.target, self.K, shift=shift, scale=scale).take(self.numbers)[0]

    def at_most(self, n: int) -> FitRows:
        """These rows, or a random sample of about so many of them: groups stay whole."""
        if len(self.numbers) <= n:
            return self
        order = np.random.default_rng(0).permutation(int(self.groups.max()) + 1)[self.groups]
        chosen = np.flatnonzero(order <= np.sort(order)[n - 1])
        _, places = np.unique(self.groups[chosen], return_inverse=True)
        return replace(
            self,
            numbers=self.numbers[chosen],
            Y=self.Y[chosen],
            weights=self.weights[chosen],
            groups=places.reshape(-1),
        )

    def take(self, rows: np.ndarray) -> tuple[Any, Any, Any]:
        """Rows, labels and weights of these numbers, for a fit."""
        weights = self.sample_weight
        if weights is not None and np.ndim(weights):
            weights = take_rows(weights, rows)
        return take_rows(self.X, rows), take_rows(self.labels, rows), weights


def fit_rows(model: Any, kept: RowsReference | None, X: Any, y: Any, sample_weight: Any, groups: Any) -> FitRows:
    """Read the rows of a fit again: those that are passed, or those that were kept.

    Parameters
    ----------
    model : fitted classifier
    kept : RowsReference or None
    X, y, sample_weight
        As passed to `fit`, or None.
    groups : "copies", "twins", None or array (N,)
        Which rows leave together: copies, all identical rows, none, or those of equal value.
    """
    if X is None:
        if kept is None or kept.given is None:
            raise ValueError(
                f"The rows of the fit are not at hand: this {type(model).__name__} comes from a file or another "
                "process, or its rows are many or not in memory. Pass them again: loo(X, y)."
            )
        X, y, sample_weight = kept.given
    elif y is None:
        raise ValueError("loo(X) needs the labels too: loo(X, y), with y as it was passed to fit.")
    X = collected(X)
    params = model.get_params(deep=False)
    features, target, named = read_for_fit(X, y, sample_weight, params.get("classes"), params.get("class_weight"))
    check_features(model, features)
    if not np.array_equal(target.classes, model.classes_):
        raise ValueError(
            f"y has the classes {first_names(target.classes.tolist(), 5)}, and the fit had "
            f"{first_names(model.classes_.tolist(), 5)}: pass the rows of the fit."
        )
    in_memory, blocks = engine_for(X).holds_all_rows, features.blocks(target, len(target.classes))
    numbers = np.arange(blocks.n_rows)
    if not in_memory and len(numbers) > _STREAMED_ROWS:
        numbers = np.sort(np.random.default_rng(0).choice(numbers, _STREAMED_ROWS, replace=False))
    Z, Y, c = blocks.take(numbers)
    together = _read_groups(groups, Z, None if not in_memory or Y.ndim > 1 else Y, blocks.n_rows, numbers)
    labels, weights = read_labels(X, y), read_labels(X, sample_weight)
    for name in named:
        X = without_column(X, name)
    return FitRows(
        _indexable(X),
        _indexable(labels),
        _indexable(weights),
        features,
        target,
        n_rows=blocks.n_rows,
        in_memory=in_memory,
        numbers=numbers,
        Y=np.eye(len(target.classes))[Y] if Y.ndim == 1 else np.asarray(Y, dtype=np.float64),
        weights=np.ones(len(numbers)) if c is None else np.asarray(c, dtype=np.float64),
        groups=together.groups,
        alike=isinstance(groups, str) or groups is None,
        n_twins=None if not in_memory or Y.ndim > 1 else together.n_twins,
        copied=together.copied,
    )


def _indexable(values: Any) -> Any:
    """Values of which some can be taken by number: what is neither a table nor an array becomes an array."""
    if hasattr(values, "tocsr"):  # not all sparse formats have rows
        return values.tocsr()
    if values is None or is_table(values) or (hasattr(values, "__getitem__") and hasattr(values, "shape")):
        return values
    return np.asarray(values)


def _read_groups(groups: Any, Z: Any, y: np.ndarray | None, n_rows: int, numbers: np.ndarray) -> RowGroups:
    """The rows that leave together, as a user says it; y is None where twins cannot be looked for."""
    alone = RowGroups(np.arange(len(numbers)), 0, copied=False)
    if groups is None or (isinstance(groups, str) and groups in _TOGETHER):
        if y is None:
            return alone
        found = group_copies(Z, y, all_twins=groups == "twins")
        return found if groups is not None else alone._replace(n_twins=found.n_twins)
    given = np.asarray(groups)
    if isinstance(groups, str) or given.shape != (n_rows,):
        shown = repr(groups) if isinstance(groups, str) else f"an array of shape {given.shape}"
        raise ValueError(
            f"groups is {shown}: it must be 'copies', 'twins', None, or one value for each of the {n_rows:,} rows of "
            "the fit."
        )
    _, places = np.unique(given[numbers], return_inverse=True)
    twins = 0 if y is None else group_copies(Z, y, all_twins=True).n_twins
    return RowGroups(places.reshape(-1), twins, copied=False)
