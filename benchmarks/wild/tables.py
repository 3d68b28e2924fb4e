"""One table as a stranger brings it: its lines, a column that may be its target, rows to fit and rows to test."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Table", "is_row_number", "possible_target", "read_table", "split_rows"]

_MOST_CLASSES = 25
_MISSING = {"", "NA", "N/A", "?", ".", "-", "nan", "NaN", "null", "NULL", "None"}


@dataclass(frozen=True)
class Table:
    """A table of text: the header's names, the rows, and the lines of the file that they stand on."""

    path: Path
    header_line: str
    names: list[str]
    lines: list[str]
    rows: list[list[str]]

    def column(self, place: int) -> list[str]:
        """The values of a column, without blanks around them."""
        return [row[place].strip() for row in self.rows]


def read_table(path: Path) -> Table | None:
    """The table in a file, read by the standard library; None if its rows differ in length or are fewer than ten."""
    text = _text(path)
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    lines = [record for record in _records(text) if record.strip()]
    parsed = [next(csv.reader(io.StringIO(line), delimiter=delimiter)) for line in lines]
    if len(parsed) < 11 or len(parsed[0]) < 2 or any(len(row) != len(parsed[0]) for row in parsed):
        return None
    return Table(path, lines[0], [name.strip() for name in parsed[0]], lines[1:], parsed[1:])


def _text(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".bz2":
        content = bz2.decompress(content)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(archive.namelist()[0])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _records(text: str) -> list[str]:
    """Lines with their ends; a line break between quotes does not end a record."""
    records, begun = [], ""
    for line in text.splitlines(keepends=True):
        begun += line
        if begun.count('"') % 2 == 0:
            records.append(begun)
            begun = ""
    return [*records, begun] if begun else records


def possible_target(table: Table) -> str | None:
    """The column most like a set of classes: few values that repeat, text before numbers, later columns first.

    There are at least five rows for each class in the mean, and no numbers with fractions.
    """
    repeated = {name for name, count in Counter(table.names).items() if count > 1}
    best, score = None, (-1, -1)
    for place, name in enumerate(table.names):
        values = [value for value in table.column(place) if value not in _MISSING]
        counts = Counter(values)
        enough = 2 <= len(counts) <= _MOST_CLASSES and len(values) >= 5 * len(counts)
        if not name or name in repeated or not enough or any(_fraction(value) for value in counts):
            continue
        found = (int(not all(_number(value) is not None for value in counts)), place)
        best, score = (name, found) if found > score else (best, score)
    return best


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _fraction(value: str) -> bool:
    number = _number(value)
    return number is not None and number != np.round(number)


def split_rows(table: Table, most_rows: int, seed: int) -> tuple[list[int], list[int]]:
    """Two thirds of the rows to fit and one third to test, at random, each part in the order of the file."""
    N = len(table.rows)
    chosen = np.random.default_rng(seed).permutation(N)[:most_rows]
    n_train = 2 * len(chosen) // 3
    return sorted(chosen[:n_train].tolist()), sorted(chosen[n_train:].tolist())


def is_row_number(values: list[str]) -> bool:
    """Whether a column of the whole file numbers its rows: whole numbers, evenly spaced in its order, but not years."""
    numbers = [_number(value) for value in values]
    if len(numbers) < 10 or any(number is None or number != np.round(number) for number in numbers):
        return False
    steps = np.diff(np.array(numbers, dtype=float))
    years = 1000 <= min(numbers) and max(numbers) <= 2100
    return bool(steps[0] != 0 and (steps == steps[0]).all()) and not years
