"""The work of TableEncoder: columns of any kind become numbers, by rules that are fixed in one pass over the rows.

    input -> batches of raw columns -> Column (read) -> Summary (merged over batches) -> plan -> numbers

Every column is read through Arrow, so that pandas, polars and Arrow share one set of rules. Summaries are of bounded
size and merge, so that a data set need never be in memory as a whole. What is kept after the fit, `Encoding`, is made
of plain values. The rules are stated in docs/tables.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.data.features import is_table, open_table, read_features

__all__ = [
    "CategoryPlan",
    "Column",
    "ColumnEncoding",
    "DatePlan",
    "Encoding",
    "Moments",
    "NumberPlan",
    "Source",
    "Summary",
    "describe_encoding",
    "encode",
    "merge_summaries",
    "open_source",
    "plan_encoding",
    "read_column",
    "summarise",
    "summarise_source",
]

MOST_COUNTED = 100_000
"""Distinct levels that are counted one by one; a column with more is dropped, so that memory is bounded."""

FEWEST_IDENTIFIERS = 50
"""A column with no more distinct values than this is never taken for an identifier."""

DATE_PARTS = ("years", "month_sin", "month_cos", "weekday_sin", "weekday_cos", "hour_sin", "hour_cos")
"""What a date is taken apart into; "years" is kept in seconds until the training mean is known."""

_YEAR = 365.25 * 86400
"""Seconds."""

_WORDS = {
    "number": "numbers",
    "boolean": "booleans",
    "duration": "durations",
    "category": "categories",
    "date": "dates",
    "date with time zone": "dates with a time zone",
}
_UNSUPPORTED = "unsupported"
_EMPTY = "empty"


# What is kept


@dataclass(frozen=True)
class NumberPlan:
    """A number, boolean or duration: the value, missing ones as the training mean, then an indicator of these.

    `value` is False where the value was constant and only being missing says something; `missing` is False where no
    value was missing in training.
    """

    mean: float
    value: bool
    missing: bool


@dataclass(frozen=True)
class CategoryPlan:
    """One-hot columns for the levels, then (other) for all further ones, then (missing).

    Where these would be exactly two columns, one says it all: only the last is kept, and `share` is its training mean,
    the value of a row that belongs to neither. Otherwise `share` is None.
    """

    levels: tuple[str, ...]
    other: bool
    missing: bool
    share: float | None


@dataclass(frozen=True)
class DatePlan:
    """The kept parts of a date with their training means, then an indicator of missing ones.

    `origin` is the mean date, in seconds since 1970; `zone` is the time zone in which the clock is read.
    """

    origin: float
    parts: tuple[str, ...]
    means: tuple[float, ...]
    zone: str | None
    missing: bool


@dataclass(frozen=True)
class ColumnEncoding:
    """What was seen in one column of the training table, and what becomes of it.

    Attributes
    ----------
    name, kind, dtype : str
        Kind is "number", "boolean", "duration", "category", "date", "date with time zone" or "empty".
    n_missing : int
    low, high : float or None
        Range of numbers; seconds since 1970 for dates.
    n_levels : int or None
        Distinct levels of a category; None if they were too many to count.
    names : tuple of str
        The columns it becomes.
    plan : NumberPlan, CategoryPlan, DatePlan, or None if it is dropped
    dropped : str or None
        Why it is dropped.
    """

    name: str
    kind: str
    dtype: str
    n_missing: int
    low: float | None
    high: float | None
    n_levels: int | None
    names: tuple[str, ...]
    plan: NumberPlan | CategoryPlan | DatePlan | None
    dropped: str | None


@dataclass(frozen=True)
class Encoding:
    """All that was learned from the training table.

    Attributes
    ----------
    columns : tuple of ColumnEncoding
        One per feature of the training table, in its order.
    n_rows : int
    apart : tuple of str
        Columns that are no features and pass untouched: the target and those to carry.
    """

    columns: tuple[ColumnEncoding, ...]
    n_rows: int
    apart: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns of the encoded table."""
        return [name for column in self.columns for name in column.names]


# Where rows come from


@dataclass(frozen=True)
class Source:
    """Rows to be encoded, from anywhere.

    Attributes
    ----------
    names : list of str
        Of all columns, the target's too.
    form : {"table", "array", "stream"}
    named : bool
        Whether the names are the user's own strings.
    batches : function
        Gives an iterator over batches; each maps names to raw columns: of narwhals, NumPy or Arrow.
    """

    names: list[str]
    form: str
    named: bool
    batches: Callable[[], Iterator[dict[str, Any]]]


def open_source(X: Any) -> Source:
    """The rows of a table, an array, a list of rows, or a stream of Arrow batches.

    Examples
    --------
    >>> open_source([[1.0, "a"], [2.0, "b"]]).names
    ['x0', 'x1']
    """
    if sp.issparse(X):
        raise TypeError(
            f"X is a sparse matrix ({type(X).__name__}), which TableEncoder does not take: sparse data are numbers "
            "already; pass them to the classifier, or X.toarray() here."
        )
    if _is_stream(X):
        names = list(X.schema.names)
        _require_unique(names)
        return Source(names, "stream", True, lambda: _stream_batches(X))
    if is_table(X):
        table = open_table(X)
        read_features(np.broadcast_to(0.0, table.shape))  # a table without rows or columns raises
        names = [str(name) for name in table.columns]
        _require_unique(names)
        named = all(isinstance(name, str) for name in table.columns)
        return _one_batch(dict(zip(names, table.iter_columns(), strict=True)), "table", named)
    matrix = _read_matrix(X)
    return _one_batch({f"x{d}": matrix[:, d] for d in range(matrix.shape[1])}, "array", False)


def _one_batch(columns: dict[str, Any], form: str, named: bool) -> Source:
    return Source(list(columns), form, named, lambda: iter([columns]))


def _is_stream(X: Any) -> bool:
    """Whether X is a data set or a reader of Arrow, to be read batch by batch."""
    arrow, dataset = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    return (dataset is not None and isinstance(X, dataset.Dataset)) or (
        arrow is not None and isinstance(X, arrow.RecordBatchReader)
    )


def _stream_batches(X: Any) -> Iterator[dict[str, Any]]:
    batches = X.to_batches() if hasattr(X, "to_batches") else X
    for batch in batches:
        if batch.num_rows:
            yield dict(zip(batch.schema.names, batch.columns, strict=True))


def _read_matrix(X: Any) -> np.ndarray:
    """A matrix of numbers, or of objects where rows mix numbers with text."""
    if isinstance(X, np.ndarray):
        array = X
    else:
        try:
            array = np.asarray(X)
            if array.dtype.kind in "US" and isinstance(X, (list, tuple)):
                array = np.asarray(X, dtype=object)  # numbers beside text stay numbers
        except ValueError as error:
            raise ValueError(f"X must be a table or a matrix with rows of equal length: {error}") from error
    if array.dtype.kind in "biufc":
        return np.asarray(read_features(X).matrix)
    if array.ndim == 0:
        raise ValueError(
            f"X is of type {type(X).__name__}, which has no rows: pass a table (pandas, polars or Arrow; a lazy one "
            "collected), an array, a list of rows, or a pyarrow Dataset or RecordBatchReader."
        )
    read_features(np.broadcast_to(0.0, array.shape))  # the shape is checked like that of any matrix
    return array


def _require_unique(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"X has two columns of one name, {twice[0]!r}: give each column a name of its own.")


# Reading one column


@dataclass(frozen=True)
class Column:
    """The values of one column, in one of three forms.

    float64 with NaN for missing (numbers, booleans, durations in seconds), codes into `levels` with -1 for missing
    (categories), or datetime64[us] with NaT (dates, as the clock of `zone` shows them).
    """

    name: str
    kind: str
    dtype: str
    values: np.ndarray
    levels: tuple[str, ...] = ()
    zone: str | None = None
    integer: bool = False

    def missing(self) -> np.ndarray:
        """Which rows have no value, (N,)."""
        if self.kind == "category":
            return self.values < 0
        return np.isnat(self.values) if self.values.dtype.kind == "M" else np.isnan(self.values)


def read_column(name: str, raw: Any, *, zone: str | None = None) -> Column:
    """Read one raw column.

    Parameters
    ----------
    name : str
    raw : narwhals Series, NumPy or Arrow array
    zone : str or None
        Time zone in which dates that have one are read; None is the column's own.

    Returns
    -------
    Column
        Of kind "unsupported", without values, if no rule covers its dtype.

    Examples
    --------
    >>> column = read_column("island", np.array(["Dream", None, "Biscoe", "Dream"], dtype=object))
    >>> column.kind, column.levels, column.values
    ('category', ('Dream', 'Biscoe'), array([ 0, -1,  1,  0]))
    """
    if isinstance(raw, np.ndarray) and raw.dtype.kind in "biuf":
        kind = "boolean" if raw.dtype.kind == "b" else "number"
        return Column(name, kind, str(raw.dtype), raw.astype(np.float64, copy=False), integer=raw.dtype.kind in "iu")
    dtype = _dtype_name(raw)
    if _is_pandas_categorical(raw):
        return _read_pandas_categorical(name, dtype, raw.to_native())
    array = _to_arrow(raw)
    if array is None:
        return Column(name, _UNSUPPORTED, dtype, np.empty(0))
    return _read_arrow(name, dtype, array, zone)


def _dtype_name(raw: Any) -> str:
    """The dtype as the user's own library calls it."""
    native = raw.to_native() if hasattr(raw, "to_native") else raw
    return str(native.dtype if hasattr(native, "dtype") else native.type)


def _is_pandas_categorical(raw: Any) -> bool:
    return hasattr(raw, "to_native") and hasattr(getattr(raw.to_native(), "cat", None), "codes")


def _read_pandas_categorical(name: str, dtype: str, values: Any) -> Column:
    """Codes and levels of pandas, which may be what Arrow has no name for, such as intervals."""
    levels = tuple(str(level) for level in values.cat.categories)
    return Column(name, "category", dtype, values.cat.codes.to_numpy().astype(np.int64), levels)


def _to_arrow(raw: Any) -> Any:
    """The column as one Arrow array; None where Arrow finds no common type for its values."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(raw, pa.Array):
        return raw
    if isinstance(raw, nw.Series) and raw.dtype in (nw.Int128, nw.UInt128):
        raw = raw.cast(nw.Float64())  # Arrow has no such integers
    try:
        array = pa.array(raw, from_pandas=True) if isinstance(raw, np.ndarray) else raw.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError, OverflowError):
        # pandas' sparse columns, Python's largest integers, and its numbers and booleans mixed, are still numbers
        array = _numbers_as_arrow(raw)
    if isinstance(array, pa.ChunkedArray):
        if pa.types.is_string(array.type):
            array = array.cast(pa.large_string())  # the text of all chunks may exceed 2 GB
        array = array.combine_chunks()
    return array


def _numbers_as_arrow(raw: Any) -> Any:
    """float64, if each value is a number or missing; otherwise None."""
    import pyarrow as pa

    values = np.asarray(raw.to_native() if hasattr(raw, "to_native") else raw)
    if values.dtype.kind == "c" or any(isinstance(value, (str, bytes)) for value in values):
        return None
    try:
        return pa.array(values.astype(np.float64), from_pandas=True)
    except (TypeError, ValueError):
        return None


def _read_arrow(name: str, dtype: str, array: Any, zone: str | None) -> Column:
    """Sort an Arrow array into one of the kinds."""
    import pyarrow as pa

    kind, types = array.type, pa.types
    if types.is_null(kind):
        return Column(name, _EMPTY, dtype, np.full(len(array), np.nan))
    if types.is_boolean(kind):
        return Column(name, "boolean", dtype, _floats(array))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column(name, "number", dtype, _floats(array), integer=types.is_integer(kind))
    if types.is_duration(kind):
        microseconds = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return Column(name, "duration", dtype, _floats(microseconds) / 1e6)
    if types.is_date(kind) or types.is_timestamp(kind):
        return _read_dates(name, dtype, array, zone)
    if types.is_dictionary(kind) and not (types.is_nested(kind.value_type) or _is_binary(kind.value_type)):
        return _read_levels(name, dtype, array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _read_levels(name, dtype, array.cast(pa.large_string()).dictionary_encode())
    return Column(name, _UNSUPPORTED, dtype, np.empty(0))


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _floats(array: Any) -> np.ndarray:
    """float64, missing values as NaN."""
    import pyarrow as pa

    return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _read_dates(name: str, dtype: str, array: Any, zone: str | None) -> Column:
    """Dates as the clock shows them: in the time zone of the fit, or their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = getattr(array.type, "tz", None)
    if own is None:
        values = array.cast(pa.timestamp("us"), safe=False)
        return Column(name, "date", dtype, values.to_numpy(zero_copy_only=False).astype("M8[us]"))
    zone = zone or own
    values = pc.local_timestamp(array.cast(pa.timestamp("us", tz=zone), safe=False))
    return Column(name, "date with time zone", dtype, values.to_numpy(zero_copy_only=False).astype("M8[us]"), zone=zone)


def _read_levels(name: str, dtype: str, array: Any) -> Column:
    """Codes and levels of a dictionary, which may itself hold a missing value: None or NaN."""
    import pyarrow as pa

    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    levels = array.dictionary.to_pylist()
    blank = np.array([*(level is None or level != level for level in levels), True])  # the last is that of code -1
    codes = np.where(blank[codes], -1, codes)
    return Column(name, "category", dtype, codes, tuple(str(level) for level in levels))


# Summaries of columns, one pass


@dataclass(frozen=True)
class Moments:
    """Count, mean and range of numbers."""

    count: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """What one pass over a column tells; summaries of two parts merge into that of the whole.

    Attributes
    ----------
    moments : tuple of Moments
        One for a number, one per part for a date, none for a category.
    counts : dict of level to rows, or None
        None once there are more than 100 000 levels.
    hashes : int
        Sum of the hashes of all integers, modulo 2^64: whether they are 1, 2, ..., N in any order.
    """

    name: str
    kind: str
    dtype: str
    n_rows: int
    n_missing: int
    moments: tuple[Moments, ...] = ()
    counts: dict[str, int] | None = None
    zone: str | None = None
    integer: bool = False
    hashes: int = 0


def summarise(column: Column, *, start: int = 0) -> Summary:
    """Summary of one column of one batch, whose first row has the number `start`.

    Examples
    --------
    >>> summarise(read_column("age", np.array([20.0, np.nan, 40.0]))).moments
    (Moments(count=2, mean=30.0, low=20.0, high=40.0),)
    """
    missing = column.missing()
    n_missing = int(missing.sum())
    summary = Summary(column.name, column.kind, column.dtype, len(missing), n_missing)
    summary = replace(summary, zone=column.zone, integer=column.integer)
    if column.kind == _EMPTY:
        return summary
    if column.kind == "category":
        return replace(summary, counts=_count_levels(column))
    present = column.values[~missing] if n_missing else column.values
    if column.kind.startswith("date"):
        return replace(summary, moments=tuple(_moments(part) for part in _date_parts(present)))
    _require_finite(column, start)
    return replace(summary, moments=(_moments(present),), hashes=_hash_sum(present) if column.integer else 0)


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Summary of the rows of both, a's first; exact but for the rounding of means."""
    if a.kind == _EMPTY or b.kind == _EMPTY:
        known = b if a.kind == _EMPTY else a
        return replace(known, n_rows=a.n_rows + b.n_rows, n_missing=a.n_missing + b.n_missing)
    counts = None
    if a.counts is not None and b.counts is not None:
        counts = dict(a.counts)
        for level, count in b.counts.items():
            counts[level] = counts.get(level, 0) + count
    return replace(
        a,
        n_rows=a.n_rows + b.n_rows,
        n_missing=a.n_missing + b.n_missing,
        moments=tuple(_merge_moments(p, q) for p, q in zip(a.moments, b.moments, strict=True)),
        counts=_bounded(counts),
        hashes=(a.hashes + b.hashes) % 2**64,
    )


def summarise_source(source: Source, *, skip: Collection[str] = ()) -> list[Summary]:
    """Summaries of all columns but those to skip, in one pass, one batch in memory at a time."""
    names = [name for name in source.names if name not in skip]
    total: list[Summary] = []
    start = 0
    for batch in source.batches():
        columns = [read_column(name, batch[name]) for name in names]
        _require_supported(columns)
        summaries = [summarise(column, start=start) for column in columns]
        pairs = zip(total, summaries, strict=True)
        total = [merge_summaries(a, b) for a, b in pairs] if total else summaries
        start += len(next(iter(batch.values())))
    if start == 0:
        raise ValueError("Found array with 0 sample(s) in X while a minimum of 1 is required.")
    if not names:
        raise ValueError("Found array with 0 feature(s) in X, besides target and carried columns: pass at least one.")
    return total


def _count_levels(column: Column) -> dict[str, int] | None:
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.levels))
    result: dict[str, int] = {}
    for i in np.flatnonzero(counts).tolist():
        level = column.levels[i]
        result[level] = result.get(level, 0) + int(counts[i])
    return _bounded(result)


def _bounded(counts: dict[str, int] | None) -> dict[str, int] | None:
    return None if counts is None or len(counts) > MOST_COUNTED else counts


def _moments(values: np.ndarray) -> Moments:
    if not len(values):
        return Moments(0, 0.0, np.inf, -np.inf)
    with np.errstate(over="ignore"):
        mean = float(np.mean(values))
    if not np.isfinite(mean):  # the sum of the largest numbers overflows, their mean does not
        mean = float(np.sum(values / len(values)))
    return Moments(len(values), mean, float(values.min()), float(values.max()))


def _merge_moments(a: Moments, b: Moments) -> Moments:
    count = a.count + b.count
    mean = a.mean * (a.count / count) + b.mean * (b.count / count) if count else 0.0
    return Moments(count, mean, min(a.low, b.low), max(a.high, b.high))


def _hash_sum(values: np.ndarray) -> int:
    """Sum of well-mixed hashes (splitmix64) of integers >= 0, modulo 2^64."""
    z = np.clip(values, 0, 2.0**53).astype(np.uint64)
    z += np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.sum(z ^ (z >> np.uint64(31)), dtype=np.uint64))


def _date_parts(values: np.ndarray) -> list[np.ndarray]:
    """The parts of dates, in the order of DATE_PARTS, the first in seconds since 1970; NaT gives NaN."""
    missing = np.isnat(values)
    microseconds = values.astype(np.int64)
    day_length = 86_400_000_000
    turns = (
        (values.astype("M8[M]").astype(np.int64) % 12) / 12,
        ((microseconds // day_length + 3) % 7) / 7,  # 1 January 1970 was a Thursday; Monday is 0
        (microseconds % day_length) / day_length,
    )
    parts = [microseconds / 1e6]
    for turn in turns:
        parts += [np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)]
    if missing.any():
        for part in parts:
            part[missing] = np.nan
    return parts


def _require_finite(column: Column, start: int) -> None:
    infinite = np.isinf(column.values)
    if infinite.any():
        raise ValueError(
            f"X contains infinity, first in column {column.name!r}, row {start + int(infinite.argmax())} (counted from "
            "0): remove such rows, or make the value missing."
        )


def _require_supported(columns: list[Column]) -> None:
    wrong = [f"{column.name!r} (dtype {column.dtype})" for column in columns if column.kind == _UNSUPPORTED]
    if wrong:
        raise TypeError(
            f"X has columns that no rule covers: {', '.join(wrong)}. Each column must hold numbers, booleans, text or "
            "categories, dates or durations, of one kind: convert these columns, or leave them out."
        )


# Plans


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
    expected = sum(_hash_sum(np.arange(n, min(n + 65_536, last + 1), dtype=np.float64)) for n in steps)
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


# Applying plans


def encode(encoding: Encoding, batch: Mapping[str, Any], *, start: int = 0) -> np.ndarray:
    """The numbers of a batch of rows, whose first row has the number `start`.

    Parameters
    ----------
    encoding : Encoding
    batch : mapping of names to raw columns
        In any order; further columns are ignored, and dropped ones may be absent.
    start : int
        For error messages.

    Returns
    -------
    ndarray (N, D), float64, in Fortran order

    Raises
    ------
    ValueError
        If columns are absent or of another kind, naming all of these; if a number is infinite.
    """
    needed = [column for column in encoding.columns if column.plan is not None]
    columns = _read_as_fitted(needed, batch)
    N = len(columns[0].values)
    matrix = np.zeros((N, len(encoding.names)), order="F")
    d = 0
    for fitted, column in zip(needed, columns, strict=True):
        block = matrix[:, d : d + len(fitted.names)]
        d += len(fitted.names)
        if isinstance(fitted.plan, CategoryPlan):
            _encode_category(fitted.plan, column, block)
        elif isinstance(fitted.plan, DatePlan):
            _encode_date(fitted.plan, column, block)
        elif isinstance(fitted.plan, NumberPlan):
            _require_finite(column, start)
            _encode_number(fitted.plan, column, block)
    return matrix


def _read_as_fitted(needed: list[ColumnEncoding], batch: Mapping[str, Any]) -> list[Column]:
    """The needed columns, each of the kind it had in the fit; one error names all that are not."""
    columns, wrong = [], []
    for fitted in needed:
        expected = f"{_WORDS[fitted.kind]} expected"
        if fitted.name not in batch:
            wrong.append(f"column {fitted.name!r} is missing ({expected})")
            continue
        column = read_column(fitted.name, batch[fitted.name], zone=getattr(fitted.plan, "zone", None))
        if column.kind != _UNSUPPORTED and _group(column.kind) != _group(fitted.kind) and column.missing().all():
            column = _nothing(column, fitted.kind)
        if _group(column.kind) != _group(fitted.kind):
            held = f"{_WORDS[column.kind]} ({column.dtype})" if column.kind in _WORDS else f"dtype {column.dtype}"
            wrong.append(f"column {fitted.name!r} holds {held}, {expected}")
        columns.append(column)
    if wrong:
        raise ValueError(
            f"X does not match the table of the fit: {'; '.join(wrong)}. Pass these columns as they were in the fit, "
            "or fit again."
        )
    return columns


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
        block[:, 0] = np.where(missing, plan.mean, column.values)
    if plan.missing:
        block[:, -1] = missing


def _encode_category(plan: CategoryPlan, column: Column, block: np.ndarray) -> None:
    n_levels = len(plan.levels)
    place = {level: i for i, level in enumerate(plan.levels)}
    unseen = n_levels if plan.other else -1
    blank = n_levels + plan.other if plan.missing else unseen
    # the last entry is the place of code -1, a missing value
    places = np.array([*(place.get(level, unseen) for level in column.levels), blank])[column.values]
    if plan.share is not None:
        block[:, 0] = np.where(places == 1, 1.0, np.where(places < 0, plan.share, 0.0))
        return
    rows = np.flatnonzero(places >= 0)
    block[rows, places[rows]] = 1.0


def _encode_date(plan: DatePlan, column: Column, block: np.ndarray) -> None:
    missing = column.missing()
    parts = dict(zip(DATE_PARTS, _date_parts(column.values), strict=True))
    parts["years"] = (parts["years"] - plan.origin) / _YEAR
    for d, (part, mean) in enumerate(zip(plan.parts, plan.means, strict=True)):
        block[:, d] = np.where(missing, mean, parts[part])
    if plan.missing:
        block[:, -1] = missing


# Telling people


def describe_encoding(encoding: Encoding) -> dict[str, list[Any]]:
    """What was seen in each input column, what it becomes and why it is dropped: one entry per column in each list."""
    columns = encoding.columns
    return {
        "column": [column.name for column in columns],
        "kind": [column.kind for column in columns],
        "dtype": [column.dtype for column in columns],
        "missing": [column.n_missing / encoding.n_rows for column in columns],
        "values": [_values_seen(column) for column in columns],
        "becomes": [_some(column.names, "columns") for column in columns],
        "dropped": [column.dropped or "" for column in columns],
    }


def _values_seen(column: ColumnEncoding) -> str:
    """Levels or range, for people."""
    if column.kind == "category":
        if column.n_levels is None:
            return f"more than {MOST_COUNTED} levels"
        levels = column.plan.levels if isinstance(column.plan, CategoryPlan) else ()
        if len(levels) == column.n_levels:
            return _some(levels, "levels")
        pooled = f"{column.n_levels} levels"
        return f"{pooled}, {column.n_levels - len(levels)} of them pooled" if column.plan is not None else pooled
    if column.low is None or column.high is None:
        return ""
    if column.kind.startswith("date"):
        low, high = (str(np.datetime64(round(seconds), "s")) for seconds in (column.low, column.high))
        return f"{low} to {high}"
    return f"{column.low:g} to {column.high:g}" + (" seconds" if column.kind == "duration" else "")


def _some(names: tuple[str, ...], what: str, most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{len(names)} {what}: {shown}, ..."
