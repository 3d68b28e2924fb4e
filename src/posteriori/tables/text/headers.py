"""Headers: whether the first line of a text table has names, and one name for each column."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from posteriori.tables.text.forms import MISSING

__all__ = [
    "Names",
    "Record",
    "aligned",
    "has_words_above_numbers",
    "is_data",
    "is_number",
    "lines_below",
    "note_above",
    "note_below",
    "repair_names",
    "require_header",
]

Record = list[str]
"""The values of one line, as text."""


def is_number(value: str) -> bool:
    """Whether a value is written like a number."""
    return bool(re.fullmatch(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*%?", value))


def _is_missing(value: str) -> bool:
    return value.strip() in MISSING


def is_data(records: Sequence[Record]) -> bool:
    """Whether the first record is a row like those below it, not a line of names.

    A name shows itself by being a word above numbers, or above a few words of which it is not one; numbers that grow
    from column to column, such as years, may be names too.
    """
    first, rows = records[0][:1000], [record for record in records[1:] if len(record) == len(records[0])]
    if not rows or not any(value.strip() for value in first):
        return False
    numbers, recurring = [], 0
    for d, cell in enumerate(first):
        below = [row[d].strip() for row in rows if not _is_missing(row[d])]
        cell = cell.strip()
        if not below or _is_missing(cell):
            continue
        if is_number(cell):
            if all(map(is_number, below)):
                numbers.append(float(re.sub(r"[^0-9.eE+-]", "", cell.replace(",", "."))))
        elif sum(map(is_number, below)) > 0.5 * len(below):
            return False
        elif cell in below:
            recurring += 1
        elif 2 * len(set(below)) <= len(below):
            return False
    return recurring > 1 or (bool(numbers) and (recurring > 0 or not _may_be_names(numbers)))


def _may_be_names(numbers: Sequence[float]) -> bool:
    """Whether numbers grow from column to column: by ones if they are only two."""
    steps = [b - a for a, b in itertools.pairwise(numbers)]
    return all(step > 0 for step in steps) if len(steps) > 1 else steps == [1.0]


def has_words_above_numbers(records: Sequence[Record]) -> bool:
    """Whether some value of the first record is a word, and those below it are numbers: a sure sign of a header."""
    rows = [record for record in records[1:] if len(record) == len(records[0])]
    return bool(rows) and any(
        not (is_number(cell) or _is_missing(cell)) and all(is_number(row[d]) or _is_missing(row[d]) for row in rows)
        for d, cell in enumerate(records[0])
    )


_MOST_LINES_BELOW = 3
_WORD = re.compile(r"[^\d<>~=$€£¥+-]*[^\W\d_]")
"""The beginning of a word, which is not that of a number with a sign, a bound or a currency."""
_UNKNOWN = {"none", "missing", "unknown"}


def lines_below(records: Sequence[Record]) -> int:
    """How many records below the header are not rows: they hold units, questions, or a second line of names.

    They have words in at least two columns in which all rows below them have numbers, and no number in such a column.

    Examples
    --------
    >>> lines_below([["length", "weight"], ["mm", "kg"], ["3", "1.5"], ["4", "2.5"]])
    1
    """
    width = len(records[0])
    for n in range(min(_MOST_LINES_BELOW, len(records) - 3), 0, -1):
        rows = [record for record in records[n + 1 :] if len(record) == width]
        numeric = [d for d in range(width) if _are_numbers([row[d] for row in rows])]
        lines = [[record[d].strip() for d in numeric] for record in records[1 : n + 1] if len(record) == width]
        if len(rows) > 1 and len(lines) == n and all(map(_are_words, lines)):
            return n
    return 0


def note_above(count: int) -> str:
    """What is said of lines above the header."""
    return f"{count} lines before the header are skipped" if count > 1 else "the first line is skipped"


def note_below(first: int, last: int) -> str:
    """What is said of lines between the header and the rows."""
    lines, it, holds = (
        (f"line {first} is", "it", "holds") if first == last else (f"lines {first} to {last} are", "they", "hold")
    )
    return f"{lines} skipped: {it} {holds} words where the rows below {it if it == 'it' else 'them'} hold numbers"


def _are_numbers(values: Sequence[str]) -> bool:
    present = [value for value in values if not _is_missing(value)]
    return bool(present) and all(map(is_number, present))


def _are_words(values: Sequence[str]) -> bool:
    """Whether at least two of these are words, and the others are missing."""
    present = [value for value in values if not _is_missing(value)]
    words = [value for value in present if _WORD.match(value) and value.casefold() not in _UNKNOWN]
    return len(words) == len(present) > 1


def require_header(records: Sequence[Record], known: Collection[str], delimiter: str) -> None:
    """Raise if the first record is a row of data."""
    if {value.strip() for value in records[0]} & set(known) or not is_data(records):
        return
    shown = delimiter.join(records[0][:5]) + (" ..." if len(records[0]) > 5 else "")
    raise ValueError(
        f"has no header: its first line, {shown!r}, looks like data. Put a line with the names of the columns on top"
    )


def aligned(records: Sequence[Record]) -> Record:
    """The names in the header, one for each value of a row: R leaves out that of row names, others end lines twice."""
    header, rows = records[0], records[1:]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else len(header)
    if len(header) == width - 1:
        last_empty = all(not row[-1].strip() for row in rows if len(row) == width)
        return [*header, ""] if last_empty else ["", *header]
    if len(header) == width + 1 and not header[-1].strip():
        return header[:-1]
    if len(rows) > 2 and len(header) != width and all(len(row) == width for row in rows):
        raise ValueError(
            f"has {len(header)} names in its first line and {width} values in each row: its header must have one name "
            "for each column"
        )
    return header


@dataclass(frozen=True)
class Names:
    """Names of columns, each once, what was done to make them so, and those that several columns had."""

    names: tuple[str, ...]
    notes: tuple[str, ...]
    repeated: tuple[str, ...]


def repair_names(given: Sequence[str]) -> Names:
    """Names without blanks around them, by their position where there is none, and numbered where they repeat.

    Examples
    --------
    >>> repair_names(["", " age", "age", "sex"]).names
    ('column 1', 'age', 'age_2', 'sex')
    """
    stripped = [name.strip().strip("\ufeff") for name in given]
    repeated = tuple(name for name, count in Counter(stripped).items() if count > 1 and name)
    used, names, unnamed, numbered = {name for name in stripped if name}, [], [], []
    seen: set[str] = set()
    for d, name in enumerate(stripped, 1):
        repaired = name or _free(f"column {d}", used | seen)
        if name in seen:
            repaired = _free(name, used | seen)
            numbered.append(repaired)
        elif not name:
            unnamed.append(repaired)
        seen.add(repaired)
        names.append(repaired)
    notes: tuple[str, ...] = ()
    if unnamed:
        notes += (f"columns without a name are named by their position: {_few(unnamed)}",)
    if numbered:
        notes += (f"columns whose name has been used before are numbered: {_few(numbered)}",)
    return Names(tuple(names), notes, repeated)


def _free(name: str, used: set[str]) -> str:
    if name not in used:
        return name
    number = 2
    while f"{name}_{number}" in used:
        number += 1
    return f"{name}_{number}"


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
