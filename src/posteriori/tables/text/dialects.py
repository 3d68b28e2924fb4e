"""Dialects of text tables: encoding, marks between values, quotes and names, found in the first bytes of a file."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import takewhile

from posteriori.tables.text.headers import (
    Record,
    aligned,
    has_words_above_numbers,
    is_number,
    lines_below,
    note_above,
    note_below,
    repair_names,
    require_header,
)
from posteriori.tables.text.rows import BLANK, MOST_BLOCK, Dialect, Marks, first_records

__all__ = ["find_dialect"]

_DELIMITERS = (",", ";", "\t", "|", "^", "~", "\x01")
"""Characters that may stand between values; of equals the first is taken."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the next one
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_LEAST_BLOCK = 4 << 20
"""Bytes that are parsed together, if rows are not very long."""
_ROWS_OF_A_BLOCK = 1000


def find_dialect(
    start: bytes, *, whole: bool = True, known: Collection[str] = (), encoding: str | None = None
) -> Dialect:
    """The dialect of a table from its first bytes.

    Parameters
    ----------
    start : bytes
    whole : bool
        Whether this is the whole file; if it is not, the last line may be cut off.
    known : collection of str
        Columns that the table is expected to have; if it has one of them, it has a header.
    encoding : str or None
        Another encoding than UTF-8, where UTF-8 has failed later in the file.

    Raises
    ------
    ValueError
        If this is not a table of text, with the end of a sentence that begins with the file's name.
    """
    text, encoding, skipped, notes = _decoded(start, encoding)
    given = [line for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text) if line]
    given = given if whole or len(given) < 2 else given[:-1]
    if not any(map(str.strip, given)):
        raise ValueError("is empty")
    asked, begin = _asked_delimiter(given)
    begin += _comments(given[begin:], _quote(text))
    lines = [_without_sign(given[begin]), *given[begin + 1 :]]
    marks = _marks(lines, text, asked)
    titles = _title_lines(lines, marks)
    records, ends = first_records(lines[titles:], marks)
    if not records:
        raise ValueError("has no rows, only lines that are empty or comments")
    begin += titles
    if begin > (asked is not None):
        notes += (note_above(begin),)
    require_header(records, known, marks.delimiter)
    n_below = lines_below(records)
    if n_below and _repeats(records[0]) and not _repeats(records[n_below]):  # two lines of names, as pandas writes them
        records[0] = records[n_below]
        notes += (f"the first {n_below} lines are skipped" if n_below > 1 else "the first line is skipped",)
    elif n_below:
        notes += (note_below(begin + ends[0] + 1, begin + ends[n_below]),)
    names = repair_names(aligned([records[0], *records[n_below + 1 :]]))
    last = begin + ends[n_below]
    longest = max(map(len, given))
    return Dialect(
        names.names,
        encoding,
        marks,
        skipped + sum(len(line.encode(encoding)) for line in given[:last]),
        last + 1,
        min(max(_LEAST_BLOCK, longest * _ROWS_OF_A_BLOCK), max(_LEAST_BLOCK * 16, longest * 4), MOST_BLOCK),
        marks.loose,
        notes + names.notes + _one_column_note(names.names),
        names.repeated,
    )


def _repeats(names: Sequence[str]) -> bool:
    given = [name.strip() for name in names if name.strip()]
    return len(set(given)) < len(given)


def _one_column_note(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > 1:
        return ()
    return (
        f"it has one column only, {names[0]!r}: if it should have more, put one of , ; | or a tab between its values",
    )


# Bytes to text


def _decoded(start: bytes, encoding: str | None) -> tuple[str, str, int, tuple[str, ...]]:
    """Text, its encoding, the length of the byte order mark, and notes."""
    for mark, name in _BYTE_ORDER_MARKS:
        if start.startswith(mark) and (encoding is None or name != "utf-8"):
            return _decode(start[len(mark) :], name), name, len(mark), ()
    candidates: tuple[str, ...] = ("utf-8", "cp1252", "latin-1") if encoding is None else (encoding, "latin-1")
    if b"\0" in start:
        candidates = _wide_encoding(start)
    for name in candidates:
        try:
            text = _decode(start, name)
        except UnicodeDecodeError:
            continue
        if name == "utf-8":
            return text, name, 0, ()
        if _garbled(text):
            break
        return text, name, 0, (f"it is not UTF-8 and is read as {name}",)
    raise ValueError("holds bytes that are not text: it is not a text table, or in an encoding that is not known")


def _wide_encoding(start: bytes) -> tuple[str, ...]:
    """UTF-16 without a byte order mark, where every other byte is zero; anything else with zeros is not text."""
    even, odd = start[0::2].count(0) / len(start), start[1::2].count(0) / len(start)
    if max(even, odd) > 0.4 and min(even, odd) < 0.01:
        return ("utf-16-le",) if odd > even else ("utf-16-be",)
    raise ValueError("holds bytes that are not text (NUL): it is not a text table; save it as CSV in UTF-8")


def _decode(data: bytes, encoding: str) -> str:
    """Text; a character that is cut off at the end is left out."""
    return codecs.getincrementaldecoder(encoding)().decode(data, False)


def _garbled(text: str) -> bool:
    controls = sum(ord(character) < 32 and character not in "\t\r\n\x01\x1a" for character in text[:10_000])
    return controls > 0.01 * min(len(text), 10_000)


# Lines above the header


def _asked_delimiter(lines: Sequence[str]) -> tuple[str | None, int]:
    """The mark in a first line such as sep=; that Excel writes, and the number of lines it takes."""
    found = re.fullmatch(r'"?sep=(.)"?', lines[0].strip("\r\n"))
    return (found[1], 1) if found else (None, 0)


_SIGN = re.compile(r"\s*#(?![,;\t|])\s*")
"""The sign before a remark; # and a delimiter are a column of this name."""


def _without_sign(line: str) -> str:
    return _SIGN.sub("", line, count=1) if _SIGN.match(line) else line


def _comments(lines: Sequence[str], quote: str) -> int:
    """How many lines before the header are blank or begin with #; the last of these may be the header itself."""
    count = sum(1 for _ in takewhile(lambda line: not line.strip() or _SIGN.match(line), lines[:-1]))
    if count and _SIGN.match(lines[count - 1]):
        marks = _plain_marks(lines[count:], quote)
        rows, _ = first_records(lines[count:], marks)
        names, _ = first_records([_without_sign(lines[count - 1]).strip()], marks)
        same = bool(rows and names) and len(names[0]) == len(rows[0]) > 1
        if same and has_words_above_numbers(names + rows) and not has_words_above_numbers(rows):
            return count - 1
    return count


def _title_lines(lines: Sequence[str], marks: Marks) -> int:
    """How many lines above the header are not part of the table, where rows have three values or more.

    They hold a first value only, or another number of values than all lines below them, if these have a sure header.
    """
    records, ends = first_records(lines, marks)
    width = Counter(map(len, records)).most_common(1)[0][0] if records else 0
    count = sum(1 for _ in takewhile(lambda record: record[0].strip() and not any(map(str.strip, record[1:])), records))
    header_follows = 0 < count < len(records) and len(records[count]) >= width - 1
    if width < 3:
        return 0
    other = sum(1 for _ in takewhile(lambda record: abs(_n_values(record) - width) > 1, records))
    rest = records[other:]
    if (
        other > count
        and len(rest) > 2
        and all(len(record) == width for record in rest)
        and has_words_above_numbers(rest)
    ):
        return ends[other - 1]
    return ends[count - 1] if header_follows else 0


def _n_values(record: Record) -> int:
    """How many values a record has, without empty ones at its end."""
    return max((d for d, value in enumerate(record, 1) if value.strip()), default=0)


# Marks


def _marks(lines: Sequence[str], text: str, asked: str | None) -> Marks:
    """The marks of the lines from the header on."""
    quote = _quote(text)
    marks = Marks(asked, quote) if asked else _plain_marks(lines, quote)
    end = rf"{re.escape(marks.delimiter)}\r\n"
    loose = marks.loose or re.search(rf"[{re.escape(marks.delimiter)}] +\"(?![\"{end}])", text) is not None
    escaped = re.search(rf"\\{quote}(?![{end}])", text) is not None and not re.search(rf"[^{end}]{quote * 2}", text)
    return Marks(marks.delimiter, quote, "\\" if escaped else None, loose)


def _plain_marks(lines: Sequence[str], quote: str) -> Marks:
    """The delimiter that gives most records the same number of values, and more than one; a comma if there is none."""
    best, score = None, (0.0, False, 1)
    for delimiter in _DELIMITERS:
        records, _ = first_records(lines, Marks(delimiter, quote))
        if not records:
            continue
        width = Counter(map(len, records)).most_common(1)[0][0]
        alike = sum(abs(len(record) - width) <= (i == 0) for i, record in enumerate(records)) / len(records)
        quality = (round(alike, 1), len(records[0]) == width, width)
        if width > 1 and quality > score:
            best, score = delimiter, quality
    if best is not None:
        return Marks(best, quote)
    blanks = Marks(BLANK, quote, None, True)
    return blanks if _blank_separated(lines, blanks) else Marks(",", quote)


def _blank_separated(lines: Sequence[str], marks: Marks) -> bool:
    """Whether blanks stand between values: as many in each line, and numbers among them."""
    records, _ = first_records(lines, marks)
    if len(records) < 2:
        return False
    width, names = len(records[1]), len(records[0])
    if width < 2 or any(len(record) != width for record in records[1:]):
        return False
    if names != width and not 1 < names == width - 1:  # R leaves out one name
        return False
    return any(all(map(is_number, values)) for values in zip(*records[1:], strict=True))


def _quote(text: str) -> str:
    """Single quotes if values stand in them and in no others."""
    sample = text[:100_000]
    single = len(re.findall(r"(?:^|[,;\t|])[ ]*'[^'\r\n]*'[ ]*(?=[,;\t|\r\n]|$)", sample, re.MULTILINE))
    double = len(re.findall(r'(?:^|[,;\t|])[ ]*"', sample, re.MULTILINE))
    return "'" if single > sample.count("\n") / 2 and single > 1 and not double else '"'
