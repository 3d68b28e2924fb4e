r"""Rows are left out by a formula where the classifier has one, and by new fits where it has none or cannot be trusted.

A formula says what the model predicts for each row without it, at about the price of one prediction, and how far it is
to be trusted there. A new fit without a group is always right. In between are folds: groups are dealt into ten parts,
and each part is predicted by a fit to the nine others, which has fewer rows than the fit itself and so predicts a
little worse.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from posteriori.left_out.result import LeftOut
from posteriori.left_out.rows import FitRows, RowsReference, fit_rows
from posteriori.parameters import require_choice

__all__ = ["ByFormula", "LeftOutMixin", "leave_out", "predicted_by_folds"]

_MOST_ROWS = 200_000
"""The number of rows that a formula judges, at most: a random sample if there are more."""
_FOLDS = 10
_FEW_GROUPS = 20
"""The number of groups up to which each has a fit of its own, where no formula knows how to leave them out."""
_EXACT = ("unreliable", "all")


class ByFormula(NamedTuple):
    """What a formula says of rows that are left out.

    Attributes
    ----------
    log_proba : ndarray (n, K)
    reliability : ndarray (n,)
        How far to trust it, row by row: 0 is fully, and from `limit` on it is not to be trusted.
    limit : float
    method : str
        How it was done, in words that follow "left out".
    rows : FitRows
        The rows that it judged: all that were asked for, or a sample.
    """

    log_proba: np.ndarray
    reliability: np.ndarray
    limit: float
    method: str
    rows: FitRows


Formula = Callable[[FitRows], ByFormula | None]
"""A formula for the rows of a fit; None where it does not apply to this fit."""


class LeftOutMixin:
    """A classifier that says what it would have predicted for each row of its fit without that row.

    Its `fit` sets `_rows` to `RowsReference(X, y, sample_weight)`; `_left_out` is its formula.
    """

    _rows: RowsReference

    def loo(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, groups: Any = "copies", exact: Any = None
    ) -> LeftOut:
        """Each row of the fit predicted without itself, at about the price of one prediction.

        Parameters
        ----------
        X, y, sample_weight
            The rows of the fit, as they were passed to `fit`; needed only where the model was loaded from a file, or
            the rows were too many to be kept.
        groups : {"copies", "twins"}, None or array (N,), default "copies"
            Which rows leave together: rows that are copies of each other; all that are identical in X and label; none;
            or those of equal value.
        exact : {None, "unreliable", "all"}
            Which rows are predicted by a new fit without them: none, those for which the formula is not to be trusted,
            or all.

        Returns
        -------
        LeftOut
        """
        kept = getattr(self, "_rows", None)
        return leave_out(self, kept, self._left_out, X=X, y=y, sample_weight=sample_weight, groups=groups, exact=exact)

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of the fit are at hand, so that `loo` needs no arguments."""
        kept: RowsReference | None = getattr(self, "_rows", None)
        return kept is not None and kept.given is not None

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        """What a formula says of rows that are left out; None where there is none for this fit."""
        return None


def leave_out(
    model: Any,
    kept: RowsReference | None,
    formula: Formula,
    *,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    groups: Any = "copies",
    exact: str | None = None,
) -> LeftOut:
    """Predict each row of the fit without the rows of its group.

    Parameters
    ----------
    model : fitted classifier
    kept : RowsReference or None
        The rows of its fit.
    formula : callable
        From `FitRows` to `ByFormula`, or None.
    X, y, sample_weight
        The rows of the fit, where they were not kept.
    groups : "copies", "twins", None or array (N,)
        Which rows leave together.
    exact : None, "unreliable" or "all"
        Which groups are left out by a fit of their own.
    """
    began = perf_counter()
    if exact is not None:
        require_choice("exact", exact, _EXACT)
    rows = fit_rows(model, kept, X, y, sample_weight, groups)
    found = formula(rows.at_most(_MOST_ROWS)) if rows.alike and exact != "all" else None
    if found is None:
        _require_rows(model, rows)
        every = exact == "all" or (not rows.alike and len(np.unique(rows.groups)) <= _FEW_GROUPS)
        log_proba = _by_refits(model, rows, np.unique(rows.groups)) if every else predicted_by_folds(model, rows)
        n = len(rows.numbers)
        method = "by a fit without each group" if every else f"in {min(_FOLDS, len(np.unique(rows.groups)))} folds"
        found = ByFormula(log_proba, np.full(n, np.nan), 1.0, method, rows)
        refitted = np.ones(n, dtype=bool)
    else:
        rows, refitted = found.rows, np.zeros(len(found.rows.numbers), dtype=bool)
        if exact == "unreliable":
            _require_rows(model, rows)
            doubtful = np.unique(rows.groups[~(found.reliability < found.limit)])
            refitted = np.isin(rows.groups, doubtful)
            exactly = _by_refits(model, rows, doubtful)
            found = found._replace(log_proba=np.where(refitted[:, None], exactly, found.log_proba))
    return LeftOut(
        classes=model.classes_,
        log_proba=found.log_proba,
        targets=rows.Y,
        weights=rows.weights,
        rows=rows.numbers,
        groups=rows.groups,
        n_twins=rows.n_twins,
        copied=rows.copied,
        reliability=np.where(refitted, np.nan, found.reliability),
        limit=found.limit,
        refitted=refitted,
        method=found.method,
        seconds=perf_counter() - began,
    )


def _require_rows(model: Any, rows: FitRows) -> None:
    """Raise where rows cannot be taken by number."""
    if not rows.in_memory:
        raise ValueError(
            f"To leave out rows of this {type(model).__name__} it must be fitted again without them, and X is not in "
            "memory: pass a table or an array, or leave out exact= and groups=."
        )


def predicted_by_folds(model: Any, rows: FitRows) -> np.ndarray:
    """Log-probabilities of rows in the classes of the model, each part by a fit to the others, (n, K)."""
    parts = _dealt(rows)
    return _predicted_without(model, rows, [np.flatnonzero(parts == part) for part in np.unique(parts)])


def _by_refits(model: Any, rows: FitRows, groups: np.ndarray) -> np.ndarray:
    """Log-probabilities by a fit without each of these groups; rows of other groups are left as zero."""
    return _predicted_without(model, rows, [np.flatnonzero(rows.groups == group) for group in groups])


def _predicted_without(model: Any, rows: FitRows, parts: list[np.ndarray]) -> np.ndarray:
    out = np.zeros((len(rows.numbers), rows.K))
    everything = np.arange(rows.n_rows)
    for part in parts:
        left = rows.numbers[part]
        X, y, weights = rows.take(np.setdiff1d(everything, left))
        options = {} if weights is None else {"sample_weight": weights}
        fitted = clone(model)
        if "classes" in fitted.get_params(deep=False) and rows.has_labels:
            fitted.set_params(classes=model.classes_)  # a class may have no other rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these fits are thrown away
            fitted.fit(X, y, **options)
            out[part] = fitted.predict_log_proba(rows.take(left)[0])
    return out


def _dealt(rows: FitRows) -> np.ndarray:
    """The part of each row, (n,): groups dealt out class by class, so that parts have similar shares of classes."""
    rng = np.random.default_rng(0)
    _, first = np.unique(rows.groups, return_index=True)
    label = rows.Y[first].argmax(axis=1)
    order = np.lexsort((rng.permutation(len(first)), label))
    part = np.empty(len(first), dtype=int)
    part[order] = np.arange(len(first)) % min(_FOLDS, len(first))
    return part[rows.groups]
