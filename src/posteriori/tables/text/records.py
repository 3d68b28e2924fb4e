"""Records as text: JSON objects and rows of Excel sheets, each value as a text file would have it."""

from __future__ import annotations

import io
import json
from itertools import takewhile
from typing import Any, NamedTuple

from posteriori.tables.text.headers import lines_below, note_above, note_below

__all__ = ["Records", "excel_records", "json_records"]


_FEWEST_BELOW_A_TITLE = 3


class Records(NamedTuple):
    """Names of columns, the text of their values (None where there is none), and sentences for the user."""

    names: list[str]
    columns: list[list[str | None]]
    notes: tuple[str, ...] = ()


def json_records(content: bytes) -> Records:
    r"""JSON lines, one array of objects, or one object with all rows; keys that a row lacks are missing values.

    Examples
    --------
    >>> json_records(b'{"a": 1, "b": "x"}\n{"a": 2.5}')
    Records(names=['a', 'b'], columns=[['1', '2.5'], ['x', None]], notes=())
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is JSON, but not in UTF-8: write it in that encoding") from None
    advice = "write one object on each line, or one array of objects"
    try:
        objects = json.loads(text) if text.lstrip().startswith("[") else _json_lines(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not a table in JSON ({error}): {advice}") from None
    if not all(isinstance(each, dict) for each in objects):
        raise ValueError(f"is JSON without names of columns: {advice}")
    names = list(dict.fromkeys(name for each in objects for name in each))
    return Records(names, [[_json_text(each.get(name)) for each in objects] for name in names])


def _json_lines(text: str) -> list[Any]:
    """One object on each line, or one object with all rows, which may go over several lines."""
    try:
        objects = [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError:
        objects = [json.loads(text)]
    return _rows_of(objects[0]) if len(objects) == 1 and isinstance(objects[0], dict) else objects


def _rows_of(whole: dict[str, Any]) -> list[Any]:
    """The rows in one object: a list of objects in it, columns by their names, or rows by their numbers.

    The last two are what `to_json` of pandas writes. Any other object is a row itself.

    >>> _rows_of({"a": {"0": 1, "1": 2}, "b": {"0": "x"}})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    values = list(whole.values())
    lists = [value for value in values if isinstance(value, list)]
    if {"columns", "data"} <= whole.keys() and isinstance(whole["columns"], list):
        return [dict(zip(whole["columns"], row, strict=False)) for row in whole["data"]]
    objects = [value for value in lists if value and all(isinstance(each, dict) for each in value)]
    if len(objects) == 1:
        return objects[0]
    if len(lists) == len(values) > 1 and len({len(value) for value in lists}) == 1:
        return [dict(zip(whole, row, strict=True)) for row in zip(*lists, strict=True)]
    if values and all(isinstance(value, dict) for value in values):
        numbers = list(dict.fromkeys(number for value in values for number in value))
        if all(map(str.isdigit, whole)):
            return values
        if all(map(str.isdigit, numbers)):
            return [{name: column.get(number) for name, column in whole.items()} for number in numbers]
    return [whole]


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def excel_records(content: bytes) -> Records:
    """The first sheet of an Excel file; its first row that is neither empty nor a title has the names."""
    import pandas as pd

    try:
        book = pd.ExcelFile(io.BytesIO(content), engine="openpyxl")
    except ImportError:
        raise ImportError(
            "is an Excel file, and openpyxl is not installed: pip install 'posteriori[excel]', or save the sheet as CSV"
        ) from None
    except Exception as error:  # whatever a damaged archive makes openpyxl raise
        raise ValueError(f"cannot be read as an Excel file ({error}): save the sheet again, or as CSV") from None
    sheets = book.sheet_names
    cells = pd.read_excel(book, sheet_name=sheets[0], header=None, dtype=object, keep_default_na=False, na_values=[])
    rows = [[_cell_text(value) for value in row] for row in cells.itertuples(index=False)]
    rows = [row for row in rows if any(row)]
    notes: tuple[str, ...] = (f"sheet {sheets[0]!r} is read, the first of {len(sheets)}",) if len(sheets) > 1 else ()
    if not rows:
        return Records([], [], notes)
    n_titles = _n_titles(rows)
    header = [name or "" for name in rows[n_titles]]
    n_below = lines_below([[value or "" for value in row] for row in rows[n_titles:]])
    if n_titles:
        notes += (note_above(n_titles),)
    if n_below:
        notes += (note_below(n_titles + 2, n_titles + 1 + n_below),)
    rows = rows[n_titles + 1 + n_below :]
    return Records(header, [[row[d] for row in rows] for d in range(len(header))], notes)


def _n_titles(rows: list[list[str | None]]) -> int:
    """How many rows above the header hold one value only, where others have three or more."""
    filled = [sum(value is not None for value in row) for row in rows]
    count = sum(1 for _ in takewhile(lambda n: n == 1, filled))
    return count if count < len(rows) and filled[count] >= _FEWEST_BELOW_A_TITLE else 0


def _cell_text(value: Any) -> str | None:
    """A whole number without a point: Excel has no others."""
    if value is None or value != value or value == "":
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
