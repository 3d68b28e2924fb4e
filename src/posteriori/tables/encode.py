"""Plans applied: raw columns become one matrix of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from posteriori.tables.columns import (
    DATE_PARTS,
    UNSUPPORTED,
    Column,
    date_parts,
    per_column,
    read_column,
)
from posteriori.tables.plans import CategoryPlan, ColumnEncoding, DatePlan, Encoding, NumberPlan, level_mark
from posteriori.tables.summaries import level_key, without_infinities
from posteriori.tables.surprises import Surprises

__all__ = ["encode"]

_YEAR = 365.25 * 86400
"""The mean length of a year in seconds."""

_WORDS = {
    "number": "numbers",
    "boolean": "booleans",
    "duration": "durations",
    "category": "categories",
    "date": "dates",
    "date with time zone": "dates with a time zone",
}


def encode(encoding: Encoding, batch: Mapping[str, Any], surprises: Surprises | None = None) -> np.ndarray:
    """The numbers of a batch of rows.

    Parameters
    ----------
    encoding : Encoding
    batch : mapping of names to raw columns
        In any order; further columns are ignored, and dropped ones may be absent.
    surprises : Surprises or None
        Takes what the fit did not know, levels and infinite numbers, for several batches; None warns of it at once.

    Returns
    -------
    ndarray (N, D), float64, in Fortran order

    Raises
    ------
    ValueError
        If columns are absent or of another kind, naming all of these.
    """
    told = Surprises() if surprises is None else surprises
    needed = [column for column in encoding.columns if column.plan is not None]
    N = len(next(iter(batch.values())))
    matrix = np.zeros((N, len(encoding.names)), order="F")
    ends = np.cumsum([len(column.names) for column in needed])
    blocks = [matrix[:, end - len(column.names) : end] for column, end in zip(needed, ends, strict=True)]

    def task(planned: tuple[ColumnEncoding, np.ndarray]) -> str | None:
        """Encode one column; what is different from the fit, if anything is."""
        fitted, block = planned
        column, different = _read_as_fitted(fitted, batch)
        if column is None:
            return different
        if isinstance(fitted.plan, CategoryPlan):
            _encode_category(fitted.plan, column, block, told)
        elif isinstance(fitted.plan, DatePlan):
            _encode_date(fitted.plan, column, block)
        elif isinstance(fitted.plan, NumberPlan):
            column, n_infinite = without_infinities(column)
            told.infinite(column.name, n_infinite)
            _encode_number(fitted.plan, column, block)
        return None

    found = per_column(task, list(zip(needed, blocks, strict=True)), N)
    wrong = [different for different in found if isinstance(different, str)]
    if wrong:
        raise ValueError(
            f"The table does not match that of the fit: {'; '.join(wrong)}. Pass these columns as they were in the "
            "fit, or fit again."
        )
    for error in found:
        if error is not None:
            raise error
    if surprises is None:
        told.warn()
    return matrix


def _read_as_fitted(fitted: ColumnEncoding, batch: Mapping[str, Any]) -> tuple[Column | None, str]:
    """A column of the kind it had in the fit; or None, and how it differs."""
    expected = f"{_WORDS[fitted.kind]} expected"
    if fitted.name not in batch:
        return None, f"column {fitted.name!r} is missing ({expected})"
    column = read_column(fitted.name, batch[fitted.name], zone=getattr(fitted.plan, "zone", None))
    if column.kind != UNSUPPORTED and _group(column.kind) != _group(fitted.kind) and column.missing().all():
        column = _nothing(column, fitted.kind)
    if _group(column.kind) != _group(fitted.kind):
        held = f"{_WORDS[column.kind]} ({column.dtype})" if column.kind in _WORDS else f"dtype {column.dtype}"
        return None, f"column {fitted.name!r} holds {held}, {expected}"
    return column, ""


def _group(kind: str) -> str:
    """Kinds that may stand for each other: a column of 0 and 1 is read as booleans here and as integers there."""
    return "number" if kind == "boolean" else kind


def _nothing(column: Column, kind: str) -> Column:
    """A column without any value, as one of another kind."""
    N = len(column.values)
    if kind == "category":
        return replace(column, kind=kind, values=np.full(N, -1), levels=())
    empty = np.full(N, "NaT", dtype="M8[us]") if kind.startswith("date") else np.full(N, np.nan)
    return replace(column, kind=kind, values=empty)


def _encode_number(plan: NumberPlan, column: Column, block: np.ndarray) -> None:
    missing = column.missing()
    if plan.value:
        block[:, 0] = column.values
        block[missing, 0] = plan.mean
    if plan.missing:
        block[:, -1] = missing


def _encode_category(plan: CategoryPlan, column: Column, block: np.ndarray, told: Surprises) -> None:
    n_levels = len(plan.levels)
    place = {level_key(level): i for i, level in enumerate(plan.levels)}
    pool = n_levels if plan.other else -1
    blank = n_levels + plan.other if plan.missing else pool
    levels = [level_key(level) for level in column.levels]
    # the last entry is the place of code -1, a missing value
    places = np.array([*(place.get(level, pool) for level in levels), blank])[column.values]
    if not plan.other or plan.pooled is not None:
        seen = frozenset(plan.pooled or ())
        unseen = np.array([*(level not in place and level_mark(level) not in seen for level in levels), False])
        if unseen.any():
            told.unseen(column.name, levels, column.values[unseen[column.values]])
    if plan.share is not None:
        block[:, 0] = np.where(places == 1, 1.0, np.where(places < 0, plan.share, 0.0))
        return
    rows = np.flatnonzero(places >= 0)
    block[rows, places[rows]] = 1.0


def _encode_date(plan: DatePlan, column: Column, block: np.ndarray) -> None:
    missing = column.missing()
    parts = dict(zip(DATE_PARTS, date_parts(column.values), strict=True))
    parts["years"] = (parts["years"] - plan.origin) / _YEAR
    for d, (part, mean) in enumerate(zip(plan.parts, plan.means, strict=True)):
        block[:, d] = np.where(missing, mean, parts[part])
    if plan.missing:
        block[:, -1] = missing
