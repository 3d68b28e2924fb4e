"""Columns of a table: whatever a library calls them, they hold numbers, categories or dates."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from posteriori.threads import run_tasks, usable_threads

__all__ = [
    "DATE_PARTS",
    "EMPTY",
    "UNSUPPORTED",
    "Column",
    "date_parts",
    "drop_options",
    "per_column",
    "read_column",
]

EMPTY = "empty"
"""The kind of a column whose type has no values, only missing ones."""

UNSUPPORTED = "unsupported"
"""The kind of a column that no rule covers."""

DATE_PARTS = ("years", "month_sin", "month_cos", "weekday_sin", "weekday_cos", "hour_sin", "hour_cos")
"""The parts that a date is split into; "years" is kept in seconds until the training mean is known."""

_ROWS_WORTH_THREADS = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """The values of one column, in one of three forms.

    float64 with NaN for missing (numbers, booleans, durations and times of day in seconds), codes into `levels` with -1
    for missing (categories), or datetime64[us] with NaT (dates, as the clock of `zone` shows them).
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
        The column; of kind "unsupported", without values, if no rule covers its dtype.

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
        return Column(name, UNSUPPORTED, dtype, np.empty(0))
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
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            # before chunks are joined: codes are smaller than the text, which may exceed 2 GB
            array = array.cast(pa.large_string()).dictionary_encode()
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
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
        return Column(name, EMPTY, dtype, np.full(len(array), np.nan))
    if types.is_boolean(kind):
        return Column(name, "boolean", dtype, _floats(array))
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Column(name, "number", dtype, _floats(array), integer=types.is_integer(kind))
    if types.is_time(kind):
        array = array.cast(pa.time64("us")).cast(pa.int64()).cast(pa.duration("us"))
        kind = array.type
    if types.is_duration(kind):
        microseconds = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return Column(name, "duration", dtype, _floats(microseconds) / 1e6)
    if types.is_date(kind) or types.is_timestamp(kind):
        return _read_dates(name, dtype, array, zone)
    if types.is_dictionary(kind) and not (types.is_nested(kind.value_type) or _is_binary(kind.value_type)):
        return _read_levels(name, dtype, array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _read_levels(name, dtype, array.cast(pa.large_string()).dictionary_encode())
    return Column(name, UNSUPPORTED, dtype, np.empty(0))


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
    if blank[:-1].any():
        codes = np.where(blank[codes], -1, codes)
    return Column(name, "category", dtype, codes, tuple(str(level) for level in levels))


def date_parts(values: np.ndarray) -> list[np.ndarray]:
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


def drop_options(names: Sequence[str], most: int = 5) -> str:
    """The options of the command line that leave columns out, for a message.

    >>> drop_options(["tags", "home address"])
    "--drop tags --drop 'home address'"
    """
    shown = " ".join(f"--drop {shlex.quote(name)}" for name in names[:most])
    return shown if len(names) <= most else f"{shown} ..."


def per_column(task: Callable[[T], Any], columns: Sequence[T], n_rows: int) -> list[Any]:
    """The result of the task for each column, or the ValueError or TypeError that it raised.

    Errors are given back so that which of them is reported does not depend on which thread came first.

    Examples
    --------
    >>> per_column(float, ["1", "one"], n_rows=1)
    [1.0, ValueError("could not convert string to float: 'one'")]
    """

    def attempt(i: int) -> Any:
        try:
            return task(columns[i])
        except (ValueError, TypeError) as error:
            return error

    return run_tasks(attempt, len(columns), usable_threads(None) if n_rows >= _ROWS_WORTH_THREADS else 1)
