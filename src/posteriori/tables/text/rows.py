"""Rows of a text table whose dialect is known, as text: by Arrow's reader, or by Python's where that is too strict."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from posteriori.tables.text.forms import MISSING
from posteriori.tables.text.headers import Record

__all__ = [
    "BLANK",
    "MOST_BLOCK",
    "Dialect",
    "Marks",
    "first_records",
    "is_unclosed",
    "larger",
    "patient",
    "ragged_line",
    "repeats_header",
    "text_batches",
]

BLANK = " "
"""The delimiter of tables with one or more blanks between values."""
MOST_BLOCK = 1 << 30
"""The most bytes that are parsed together."""
_ROWS = 20_000


class Marks(NamedTuple):
    """The characters that are not part of values.

    Attributes
    ----------
    delimiter, quote : str
    escape : str or None
        What stands before a quote inside a value, if quotes are not doubled there.
    loose : bool
        Whether blanks between a delimiter and a quote, or several blanks between values, do not count.
    """

    delimiter: str
    quote: str = '"'
    escape: str | None = None
    loose: bool = False


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes
    ----------
    names : tuple of str
        Names of its columns, each once.
    encoding : str
    marks : Marks
    start : int
        The bytes before the first row.
    first_line : int
        The number of the line with the first row, counted from 1.
    block : int
        Bytes that are parsed together: a row must fit into them.
    by_python : bool
        Whether Python's reader is needed, as Arrow's does not take marks that are loose, or lines of blanks.
    notes : tuple of str
        Sentences for the user.
    repeated : tuple of str
        Names that several columns had.
    header_again : bool
        Whether rows that repeat the header are left out.
    """

    names: tuple[str, ...]
    encoding: str
    marks: Marks
    start: int
    first_line: int
    block: int
    by_python: bool = False
    notes: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    header_again: bool = False


def repeats_header(batch: pa.RecordBatch, names: Sequence[str]) -> np.ndarray:
    """Which rows hold the names of all columns, as they do where files were put together, (n,) booleans.

    >>> repeats_header(pa.record_batch({"a": ["1", "a"], "b": ["2", " b"]}), ["a", "b"]).tolist()
    [False, True]
    """
    found = np.full(batch.num_rows, len(names) > 1)
    for name in names:
        if not found.any():
            break
        same = pc.equal(pc.utf8_trim_whitespace(batch.column(name)), name)
        found &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return found


def patient(dialect: Dialect) -> Dialect | None:
    """The dialect read by Python, which passes over lines of blanks; None if it is already."""
    return None if dialect.by_python else replace(dialect, by_python=True)


def larger(dialect: Dialect) -> Dialect | None:
    """The dialect with larger blocks, for very long rows; None if they cannot be larger."""
    return replace(dialect, block=dialect.block * 8) if dialect.block * 8 <= MOST_BLOCK else None


def text_batches(stream: Any, dialect: Dialect, columns: Sequence[str], *, nulls: bool) -> Iterator[pa.RecordBatch]:
    """All rows as text, batch by batch.

    Parameters
    ----------
    stream : Arrow input stream
        At its beginning.
    dialect : Dialect
    columns : sequence of str
        Those that are wanted.
    nulls : bool
        Whether text that stands for a missing value becomes null; otherwise it stays what it is.
    """
    _skip(stream, dialect.start)
    if dialect.by_python:
        places = [dialect.names.index(name) for name in columns]
        for rows in _python_records(stream, dialect):
            values = [*zip(*rows, strict=True)]
            yield pa.record_batch([pa.array(values[d], pa.string()) for d in places], names=list(columns))
        return
    try:
        yield from _arrow_reader(stream, dialect, columns, nulls)
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise


def _arrow_reader(stream: Any, dialect: Dialect, columns: Sequence[str], nulls: bool) -> Any:
    marks = dialect.marks
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=list(dialect.names), encoding=dialect.encoding, block_size=dialect.block
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=marks.delimiter,
            quote_char=marks.quote,
            escape_char=marks.escape or False,
            newlines_in_values=True,
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=nulls,
            null_values=sorted(MISSING - {"-"}) if nulls else [],
        ),
    )


def _is_nothing(line: str) -> bool:
    """Whether a line holds blanks only, or the sign with which DOS ended files."""
    return not line.strip(" \t\r\n\x1a")


def _skip(stream: Any, n_bytes: int) -> None:
    while n_bytes > 0:
        read = len(stream.read(min(n_bytes, 1 << 20)))
        if not read:
            return
        n_bytes -= read


def is_unclosed(stream: Any, dialect: Dialect, last_row: Sequence[str | None]) -> bool:
    """Whether a quote is opened and never closed, so that the last row has swallowed others.

    Then one of its values has lines with delimiters in them, and the number of quotes in the file is odd.
    """
    lines = [line for value in last_row for line in (value or "").split("\n")[1:]]
    if not any(dialect.marks.delimiter in line for line in lines):
        return False
    quote, count = dialect.marks.quote.encode(dialect.encoding), 0
    while data := stream.read(1 << 20):
        count += bytes(data).count(quote)
    return count % 2 == 1


# Python's reader


@contextmanager
def _long_fields() -> Iterator[None]:
    """Python's reader refuses values of more than 131,072 characters unless it is told otherwise."""
    before = csv.field_size_limit(MOST_BLOCK)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _reader(lines: Iterable[str], marks: Marks) -> Any:
    """Python's reader of CSV; with blanks between values, tabs are blanks too, and those at the end do not count."""
    if marks.delimiter == BLANK:
        lines = (line.expandtabs(1).rstrip() + "\n" for line in lines)
    return csv.reader(
        lines,
        delimiter=marks.delimiter,
        quotechar=marks.quote,
        escapechar=marks.escape,
        doublequote=marks.escape is None,
        skipinitialspace=marks.loose,
    )


def first_records(lines: Sequence[str], marks: Marks, most: int = 200) -> tuple[list[Record], list[int]]:
    """The first records that are not empty, and how many lines have been read after each."""
    found: list[Record] = []
    ends: list[int] = []
    rows = _reader(lines, marks)
    with _long_fields():
        for record in rows:
            if any(value.strip() for value in record):
                found.append(record)
                ends.append(rows.line_num)
                if len(found) == most:
                    break
    return found, ends


def _python_records(stream: Any, dialect: Dialect) -> Iterator[list[Record]]:
    """Records of the right width, some at a time."""
    text = io.TextIOWrapper(stream, encoding=dialect.encoding, newline="")
    reader = _reader(text, dialect.marks)
    while True:
        rows: list[Record] = []
        with _long_fields():
            for record in reader:
                if len(record) == len(dialect.names):
                    rows.append(record)
                elif not _is_nothing("".join(record)) or len(record) > 1:
                    raise ValueError(_ragged(dialect.first_line + reader.line_num - 1, record, dialect))
                if len(rows) == _ROWS:
                    break
        if not rows:
            return
        yield rows


def ragged_line(stream: Any, dialect: Dialect) -> str | None:
    """A sentence about the first line that has more or fewer values than the header; None if there is no such line."""
    _skip(stream, dialect.start)
    try:
        for _ in _python_records(stream, dialect):
            pass
    except (ValueError, csv.Error) as error:
        return str(error)
    return None


def _ragged(line: int, record: Record, dialect: Dialect) -> str:
    n, expected = len(record), len(dialect.names)
    n_swallowed = sum(value.rstrip("\r\n").count("\n") for value in record)
    if n_swallowed and any(dialect.marks.delimiter in value.partition("\n")[2] for value in record):
        return (
            f"line {line - n_swallowed} opens a quote that is not closed before line {line}: close it, or write it "
            "twice if it is part of the value"
        )
    shown = dialect.marks.delimiter.join(record)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    names = "1 name" if expected == 1 else f"{expected} names"
    return (
        f"line {line} has {n} value{'' if n == 1 else 's'} where the header has {names} ({shown!r}): correct "
        f"that line, or put quotes around values that hold {dialect.marks.delimiter!r}"
    )
