"""Dialects of text tables: encoding, marks between values, quotes and names, found in the first bytes of a file."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from posteriori.tables.text.forms import MISSING
from posteriori.tables.text.headers import (
    Record,
    aligned,
    has_words_above_numbers,
    is_number,
    repair_names,
    require_header,
)

__all__ = ["Dialect", "find_dialect", "larger", "ragged_line", "text_batches"]

_MARKS = (",", ";", "\t", "|", "^", "~", "\x01")
"""Characters that may stand between values; of equals the first is taken."""
_BLANK = " "
_SAMPLED = 200
"""Records that are looked at."""
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LEAST_BLOCK, _MOST_BLOCK = 4 << 20, 1 << 30
"""Bytes that are parsed together: a row must fit into them."""
_ROWS_OF_A_BLOCK = 1000


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes
    ----------
    names : tuple of str
        Names of its columns, each once.
    encoding, delimiter, quote : str
    start : int
        The bytes before the first row.
    first_line : int
        The number of the line with the first row, counted from 1.
    loose : bool
        Whether blanks between a mark and a quote, or several blanks between values, do not count.
    block : int
        Bytes that are parsed together.
    notes : tuple of str
        Sentences for the user.
    repeated : tuple of str
        Names that several columns had.
    """

    names: tuple[str, ...]
    encoding: str
    delimiter: str
    quote: str
    start: int
    first_line: int
    loose: bool
    block: int
    notes: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


def find_dialect(start: bytes, *, known: Collection[str] = (), encoding: str | None = None) -> Dialect:
    """The dialect of a table from its first bytes, which end with a whole line or with the file.

    Parameters
    ----------
    start : bytes
    known : collection of str
        Columns that the table is expected to have; if it has one of them, it has a header.
    encoding : str or None
        Another encoding than UTF-8, where UTF-8 has failed later in the file.

    Raises
    ------
    ValueError
        If this is not a table of text, with the end of a sentence that begins with the file's name.
    """
    text, found, skipped, notes = _decoded(start, encoding)
    lines = [line for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text) if line]
    if not any(map(str.strip, lines)):
        raise ValueError("is empty")
    quote = _quote(text)
    asked, begin = _asked_delimiter(lines)
    begin += _comments(lines[begin:], quote)
    given, lines = lines, [*lines]
    lines[begin] = re.sub(r"^\s*#\s*", "", lines[begin])
    delimiter, loose = asked or _delimiter(lines[begin:], quote), False
    if delimiter is None:
        delimiter, loose = (_BLANK, True) if _blank_separated(lines[begin:], quote) else (",", False)
    loose = loose or re.search(rf"[{re.escape(delimiter)}] +\"(?![\"{re.escape(delimiter)}\r\n])", text) is not None
    begin += _title_lines(lines[begin:], delimiter, quote, loose)
    records, ends = _records(lines[begin:], delimiter, quote, loose)
    if not records:
        raise ValueError("has no rows, only lines that are empty or comments")
    if begin > (asked is not None):
        notes += (f"{begin} lines before the header are skipped" if begin > 1 else "the first line is skipped",)
    require_header(records, known, delimiter)
    names = repair_names(aligned(records))
    last = begin + ends[0]
    head = sum(len(line.encode(found)) for line in given[:last])
    longest = max((len(line) for line in lines), default=1)
    block = min(max(_LEAST_BLOCK, longest * _ROWS_OF_A_BLOCK), max(_LEAST_BLOCK * 16, longest * 4), _MOST_BLOCK)
    return Dialect(
        names.names,
        found,
        delimiter,
        quote,
        skipped + head,
        last + 1,
        loose,
        block,
        notes + names.notes + _one_column_note(names.names, delimiter),
        names.repeated,
    )


def larger(dialect: Dialect) -> Dialect | None:
    """The dialect with larger blocks, for very long rows; None if they cannot be larger."""
    return replace(dialect, block=dialect.block * 8) if dialect.block * 8 <= _MOST_BLOCK else None


# Bytes to lines


def _decoded(start: bytes, encoding: str | None) -> tuple[str, str, int, tuple[str, ...]]:
    """Text, its encoding, the length of the byte order mark, and notes."""
    for mark, name in _BYTE_ORDER_MARKS:
        if start.startswith(mark) and (encoding is None or name != "utf-8"):
            return _decode(start[len(mark) :], name), name, len(mark), ()
    if b"\0" in start:
        raise ValueError(
            "holds bytes that are not text (NUL): it is not a text table, or one in UTF-16 without a byte order mark; "
            "save it as CSV in UTF-8"
        )
    for name in ("utf-8", "cp1252", "latin-1") if encoding is None else (encoding, "latin-1"):
        try:
            text = _decode(start, name)
        except UnicodeDecodeError:
            continue
        if name == "utf-8":
            return text, name, 0, ()
        if _garbled(text):
            raise ValueError("holds bytes that are not text: it is not a text table")
        return text, name, 0, (f"it is not UTF-8 and is read as {name}",)
    raise AssertionError("latin-1 decodes everything")


def _decode(data: bytes, encoding: str) -> str:
    """Text; a character that is cut off at the end is left out."""
    return codecs.getincrementaldecoder(encoding)().decode(data, False)


def _garbled(text: str) -> bool:
    controls = sum(ord(character) < 32 and character not in "\t\r\n\x01" for character in text[:10_000])
    return controls > 0.01 * min(len(text), 10_000)


# Lines to records


@contextmanager
def _long_fields() -> Iterator[None]:
    """Python's reader refuses values of more than 131,072 characters unless it is told otherwise."""
    before = csv.field_size_limit(_MOST_BLOCK)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _records(
    lines: Sequence[str], delimiter: str, quote: str, loose: bool = False, most: int = _SAMPLED
) -> tuple[list[Record], list[int]]:
    """The first records that are not empty, and how many lines have been read after each."""
    found: list[Record] = []
    ends: list[int] = []
    rows = _reader(lines, delimiter, quote, loose)
    with _long_fields():
        for record in rows:
            if any(value.strip() for value in record):
                found.append(record)
                ends.append(rows.line_num)
                if len(found) == most:
                    break
    return found, ends


def _reader(lines: Any, delimiter: str, quote: str, loose: bool) -> Any:
    """Python's reader of CSV; with blanks between values, tabs are blanks too, and those at the end do not count."""
    if delimiter == _BLANK:
        lines = (line.expandtabs(1).rstrip() + "\n" for line in lines)
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, skipinitialspace=loose)


def _quote(text: str) -> str:
    """Single quotes if values stand in them and in no others."""
    sample = text[:100_000]
    single = len(re.findall(r"(?:^|[,;\t|])[ ]*'[^'\r\n]*'[ ]*(?=[,;\t|\r\n]|$)", sample, re.MULTILINE))
    double = len(re.findall(r'(?:^|[,;\t|])[ ]*"', sample, re.MULTILINE))
    return "'" if single > sample.count("\n") / 2 and single > 1 and not double else '"'


def _asked_delimiter(lines: Sequence[str]) -> tuple[str | None, int]:
    """The mark in a first line such as sep=; that Excel writes, and the number of lines it takes."""
    found = re.fullmatch(r'"?sep=(.)"?', lines[0].strip("\r\n")) if lines else None
    return (found[1], 1) if found else (None, 0)


def _comments(lines: Sequence[str], quote: str) -> int:
    """How many lines before the header are blank or begin with #; the last of these may be the header itself."""
    count = 0
    while count < len(lines) - 1 and (not lines[count].strip() or lines[count].lstrip().startswith("#")):
        count += 1
    if count and lines[count - 1].lstrip().startswith("#"):
        delimiter = _delimiter(lines[count:], quote) or (_BLANK if _blank_separated(lines[count:], quote) else None)
        if delimiter is not None:
            rows, _ = _records(lines[count:], delimiter, quote, delimiter == _BLANK)
            above = lines[count - 1].lstrip().removeprefix("#").strip()
            names, _ = _records([above], delimiter, quote, delimiter == _BLANK)
            if (
                names
                and len(names[0]) == len(rows[0])
                and has_words_above_numbers(names + rows) > has_words_above_numbers(rows)
            ):
                return count - 1
    return count


def _delimiter(lines: Sequence[str], quote: str) -> str | None:
    """The mark that gives most records the same number of values, and more than one; None if there is none."""
    best, score = None, (0.0, False, 1)
    for mark in _MARKS:
        records, _ = _records(lines, mark, quote)
        if not records:
            continue
        width = Counter(map(len, records)).most_common(1)[0][0]
        alike = sum(abs(len(record) - width) <= (i == 0) for i, record in enumerate(records)) / len(records)
        quality = (round(alike, 1), len(records[0]) == width, width)
        if width > 1 and quality > score:
            best, score = mark, quality
    return best


def _blank_separated(lines: Sequence[str], quote: str) -> bool:
    """Whether blanks stand between values: as many in each line, and numbers among them."""
    records, _ = _records(lines, _BLANK, quote, loose=True)
    if len(records) < 2:
        return False
    width = len(records[1])
    if width < 2 or any(len(record) != width for record in records[1:]) or len(records[0]) not in (width - 1, width):
        return False
    return any(all(map(is_number, values)) for values in zip(*records[1:], strict=True))


def _title_lines(lines: Sequence[str], delimiter: str, quote: str, loose: bool) -> int:
    """How many lines above the header hold one value only, where rows have three or more."""
    records, ends = _records(lines, delimiter, quote, loose)
    width = Counter(map(len, records)).most_common(1)[0][0] if records else 0
    if width < 3:
        return 0
    count = 0
    while (
        count < len(records) and sum(1 for value in records[count] if value.strip()) == 1 and len(records) > count + 1
    ):
        count += 1
    return ends[count - 1] if count and len(records[count]) >= width - 1 else 0


# Rows


def _one_column_note(names: Sequence[str], delimiter: str) -> tuple[str, ...]:
    if len(names) > 1:
        return ()
    return (
        f"it has one column only, {names[0]!r}: if it should have more, put one of , ; | or a tab between its values",
    )


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
    if dialect.loose:
        yield from _loose_batches(stream, dialect, columns)
        return
    try:
        yield from _arrow_reader(stream, dialect, columns, nulls)
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise


def _arrow_reader(stream: Any, dialect: Dialect, columns: Sequence[str], nulls: bool) -> Any:
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            column_names=list(dialect.names), encoding=dialect.encoding, block_size=dialect.block
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=nulls,
            null_values=sorted(MISSING - {"-"}) if nulls else [],
        ),
    )


def _skip(stream: Any, n_bytes: int) -> None:
    while n_bytes > 0:
        read = len(stream.read(min(n_bytes, 1 << 20)))
        if not read:
            return
        n_bytes -= read


def _loose_batches(stream: Any, dialect: Dialect, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a dialect that Arrow does not read, by Python's own reader."""
    places = [dialect.names.index(name) for name in columns]
    for rows in _python_records(stream, dialect):
        values = [*zip(*rows, strict=True)]
        yield pa.record_batch([pa.array(values[d], pa.string()) for d in places], names=list(columns))


def _python_records(stream: Any, dialect: Dialect, size: int = 20_000) -> Iterator[list[Record]]:
    """Records of the right width, some at a time."""
    text = io.TextIOWrapper(stream, encoding=dialect.encoding, newline="")
    reader = _reader(text, dialect.delimiter, dialect.quote, dialect.loose)
    while True:
        rows: list[Record] = []
        with _long_fields():
            for record in reader:
                if not record or record == [""]:
                    continue
                if len(record) != len(dialect.names):
                    raise ValueError(_ragged(dialect.first_line + reader.line_num - 1, record, dialect))
                rows.append(record)
                if len(rows) == size:
                    break
        if not rows:
            return
        yield rows


def ragged_line(stream: Any, dialect: Dialect) -> str:
    """A sentence about the first line that has more or fewer values than the header."""
    _skip(stream, dialect.start)
    try:
        for _ in _python_records(stream, dialect):
            pass
    except (ValueError, csv.Error) as error:
        return str(error)
    return "rows have different numbers of values"


def _ragged(line: int, record: Record, dialect: Dialect) -> str:
    n, expected = len(record), len(dialect.names)
    shown = dialect.delimiter.join(record)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return (
        f"line {line} has {n} value{'' if n == 1 else 's'} where the header has {expected} names ({shown!r}): correct "
        f"that line, or put quotes around values that hold {dialect.delimiter!r}"
    )
