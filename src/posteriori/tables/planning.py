"""From summaries to plans: which columns are dropped, which levels are kept, and what all is called."""

from __future__ import annotations

import numpy as np

from posteriori.tables.dates import DATE_PARTS
from posteriori.tables.plans import CategoryPlan, ColumnEncoding, DatePlan, Encoding, NumberPlan
from posteriori.tables.summaries import MOST_COUNTED, Summary, hash_sum

__all__ = ["FEWEST_IDENTIFIERS", "plan_encoding"]

FEWEST_IDENTIFIERS = 50
"""A column with no more distinct values than this is never taken for an identifier."""


def plan_encoding(
    summaries: list[Summary],
    *,
    min_frequency: int,
    max_levels: int,
    drop_identifiers: bool,
    apart: tuple[str, ...] = (),
) -> Encoding:
    """What becomes of every column.

    Parameters
    ----------
    summaries : list of Summary
    min_frequency, max_levels, drop_identifiers
        Those of TableEncoder.
    apart : tuple of str
        The target and carried columns, whose names no encoded column may have.

    Returns
    -------
    Encoding

    Raises
    ------
    ValueError
        If every column is dropped.
    """
    used = set(apart)
    columns = []
    for summary in summaries:
        names, plan, dropped = _plan(summary, min_frequency, max_levels, drop_identifiers)
        moments = summary.moments[0] if summary.moments and summary.moments[0].count else None
        columns.append(
            ColumnEncoding(
                summary.name,
                summary.kind,
                summary.dtype,
                summary.n_missing,
                moments.low if moments else None,
                moments.high if moments else None,
                None if summary.counts is None else len(summary.counts),
                tuple(_unique(name, used) for name in names),
                plan,
                dropped,
            )
        )
    if all(column.dropped for column in columns):
        reasons = "; ".join(f"{column.name!r}: {column.dropped}" for column in columns[:10])
        raise ValueError(
            f"No column of X can be used (n_samples={summaries[0].n_rows}): {reasons}. "
            "Pass more rows, or columns that vary."
        )
    return Encoding(tuple(columns), summaries[0].n_rows, apart)


_Planned = tuple[list[str], "NumberPlan | CategoryPlan | DatePlan | None", "str | None"]


def _plan(summary: Summary, min_frequency: int, max_levels: int, drop_identifiers: bool) -> _Planned:
    """Names, plan and reason to drop of one column."""
    if summary.n_missing == summary.n_rows:
        return [], None, "all values are missing"
    if summary.kind == "category":
        return _plan_category(summary, min_frequency, max_levels, drop_identifiers)
    if summary.kind.startswith("date"):
        return _plan_date(summary)
    return _plan_number(summary, drop_identifiers)


def _plan_number(summary: Summary, drop_identifiers: bool) -> _Planned:
    (moments,) = summary.moments
    varies, missing = moments.low < moments.high, summary.n_missing > 0
    if not (varies or missing):
        return [], None, "constant"
    if drop_identifiers and _is_running_number(summary):
        return [], None, f"identifier: integers from {moments.low:.0f} to {moments.high:.0f}, each once"
    names = [summary.name] * varies + [f"{summary.name}_missing"] * missing
    return names, NumberPlan(moments.mean, varies, missing), None


def _is_running_number(summary: Summary) -> bool:
    """Whether the values are 0..N-1 or 1..N, each once, in any order."""
    (moments,) = summary.moments
    N = summary.n_rows
    if not summary.integer or summary.n_missing or N <= FEWEST_IDENTIFIERS:
        return False
    if moments.low not in (0, 1) or moments.high != moments.low + N - 1:
        return False
    first, last = int(moments.low), int(moments.high)
    steps = range(first, last + 1, 65_536)
    expected = sum(hash_sum(np.arange(n, min(n + 65_536, last + 1), dtype=np.float64)) for n in steps)
    return summary.hashes == expected % 2**64


def _plan_category(summary: Summary, min_frequency: int, max_levels: int, drop_identifiers: bool) -> _Planned:
    counts, present, missing = summary.counts, summary.n_rows - summary.n_missing, summary.n_missing > 0
    if counts is None:
        return [], None, f"identifier: more than {MOST_COUNTED} distinct values"
    if drop_identifiers and len(counts) > max(FEWEST_IDENTIFIERS, present / 2):
        return [], None, f"identifier: {len(counts)} distinct values in {present} rows"
    ranked = sorted(counts, key=lambda level: (-counts[level], level))
    levels = sorted([level for level in ranked if counts[level] >= min_frequency][:max_levels])
    other = len(levels) < len(counts)
    names = [f"{summary.name}={level}" for level in levels]
    names += [f"{summary.name}=(other)"] * other + [f"{summary.name}=(missing)"] * missing
    if len(names) == 1:
        return [], None, f"no level has {min_frequency} rows or more" if other else "constant"
    if len(names) > 2:
        return names, CategoryPlan(tuple(levels), other, missing, None), None
    pooled = present - sum(counts[level] for level in levels)
    last = summary.n_missing if missing else pooled if other else counts[levels[1]]
    return names[1:], CategoryPlan(tuple(levels), other, missing, last / summary.n_rows), None


def _plan_date(summary: Summary) -> _Planned:
    varies = [moments.low < moments.high for moments in summary.moments]
    # a sine may be the same for two months; a pair is kept if either of it varies
    kept = [varies[0], *(varies[i] or varies[i + 1] for i in (1, 3, 5) for _ in "sc")]
    missing = summary.n_missing > 0
    if not (any(kept) or missing):
        return [], None, "constant"
    parts = tuple(part for part, keep in zip(DATE_PARTS, kept, strict=True) if keep)
    # years are counted from the mean date, so that their own mean is 0
    centred = [0.0, *(moments.mean for moments in summary.moments[1:])]
    means = tuple(mean for mean, keep in zip(centred, kept, strict=True) if keep)
    names = [f"{summary.name}_{part}" for part in (*parts, "missing")][: len(parts) + missing]
    return names, DatePlan(summary.moments[0].mean, parts, means, summary.zone, missing), None


def _unique(name: str, used: set[str]) -> str:
    """The name, with the first of _2, _3, ... that makes it one of its own."""
    result, i = name, 1
    while result in used:
        i += 1
        result = f"{name}_{i}"
    used.add(result)
    return result
