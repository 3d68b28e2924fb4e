"""Records as text: JSON objects and rows of Excel sheets, each value as a text file would have it."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

__all__ = ["Records", "excel_records", "json_records"]


class Records(NamedTuple):
    """Names of columns, the text of their values (None where there is none), and sentences for the user."""

    names: list[str]
    columns: list[list[str | None]]
    notes: tuple[str, ...] = ()


def json_records(content: bytes) -> Records:
    r"""JSON lines, or one array of objects; a key that an object does not have is a missing value.

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
    """One object on each line; or one object over several lines, of which a list of objects is the only value."""
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError:
        whole = json.loads(text)
        inner = [value for value in whole.values() if isinstance(value, list) and value]
        return inner[0] if len(inner) == 1 else [whole]


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def excel_records(content: bytes) -> Records:
    """The first sheet of an Excel file; its first row that is not empty has the names."""
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
    notes = (f"sheet {sheets[0]!r} is read, the first of {len(sheets)}",) if len(sheets) > 1 else ()
    if not rows:
        return Records([], [], notes)
    return Records([name or "" for name in rows[0]], [[row[d] for row in rows[1:]] for d in range(len(rows[0]))], notes)


def _cell_text(value: Any) -> str | None:
    """A whole number without a point: Excel has no others."""
    if value is None or value != value or value == "":
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
