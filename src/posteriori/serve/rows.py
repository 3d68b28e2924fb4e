"""Rows that were sent: columns by name, those of the model, with values of the right kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from posteriori.parameters import first_names
from posteriori.serve.errors import Refusal
from posteriori.serve.model_columns import ModelColumn

__all__ = ["SentRows", "joined", "of_lists", "of_records", "of_table"]


@dataclass(frozen=True)
class SentRows:
    """Rows for a model.

    Attributes
    ----------
    columns : dict of str to list or array
        Lists of checked values of JSON where `listed`; otherwise columns of Arrow or NumPy.
    n_rows : int
    listed : bool
        Whether the columns are lists: those of several requests can be joined at little cost.
    """

    columns: Mapping[str, Any]
    n_rows: int
    listed: bool

    def arrays(self, columns: Sequence[ModelColumn]) -> dict[str, Any]:
        """The columns as arrays that the model reads."""
        if not self.listed:
            return dict(self.columns)
        return {column.name: column.array(self.columns[column.name]) for column in columns}


def of_records(records: Any, columns: Sequence[ModelColumn], ignored: frozenset[str]) -> SentRows:
    """Rows from objects of JSON, one for each row.

    Every column of the model must be there, null where a value is missing; others are refused, but for those to ignore.
    """
    if not isinstance(records, list):
        raise Refusal(f"Rows must be a list of objects, one for each row, and are {_kind(records)}.")
    names = {column.name for column in columns}
    for i, record in enumerate(records):
        if type(record) is not dict:
            raise Refusal(
                f"Row {i + 1} is {_kind(record)}: an object with a value for every column is needed.", row=i + 1
            )
        if record.keys() != names:
            _require_names(record, columns, ignored, row=i + 1)
    lists = {column.name: column.checked([record[column.name] for record in records]) for column in columns}
    return SentRows(lists, len(records), listed=True)


def of_lists(lists: Mapping[str, Sequence[Any]], columns: Sequence[ModelColumn], ignored: frozenset[str]) -> SentRows:
    """Rows from one list of JSON values for each column."""
    _require_names(lists, columns, ignored)
    lengths = {len(lists[column.name]) for column in columns}
    if len(lengths) > 1:
        told = ", ".join(f"{column.name!r} has {len(lists[column.name])}" for column in columns[:5])
        raise Refusal(f"Columns have different numbers of values: {told}.")
    checked = {column.name: column.checked(lists[column.name]) for column in columns}
    return SentRows(checked, lengths.pop() if lengths else 0, listed=True)


def of_table(table: pa.Table, columns: Sequence[ModelColumn], ignored: frozenset[str]) -> SentRows:
    """Rows from a table that has types."""
    names = table.column_names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise Refusal(f"Several columns are called {first_names(twice, 3)}: give each its own name.", column=twice[0])
    _require_names(names, columns, ignored)
    used = {column.name: table.column(column.name).combine_chunks() for column in columns}
    return SentRows(used, table.num_rows, listed=False)


def joined(several: Sequence[SentRows]) -> SentRows:
    """The rows of several requests, one after another; all of them are lists."""
    if len(several) == 1:
        return several[0]
    first, *others = several
    columns = {name: list(values) for name, values in first.columns.items()}
    for rows in others:
        for name, values in columns.items():
            values += rows.columns[name]
    return SentRows(columns, sum(rows.n_rows for rows in several), listed=True)


def _require_names(given: Any, columns: Sequence[ModelColumn], ignored: frozenset[str], row: int | None = None) -> None:
    """Refuse rows without a column of the model, or with one that is unknown to it."""
    names = {column.name for column in columns}
    where = "" if row is None else f"Row {row}: "
    unknown = [name for name in given if name not in names and name not in ignored]
    absent = [column.name for column in columns if column.name not in given]
    if unknown:
        known = first_names([column.name for column in columns], 20)
        raise Refusal(
            f"{where}column {first_names(unknown, 3)} is unknown: the model has the columns {known}.",
            row=row,
            column=unknown[0],
        )
    if absent:
        raise Refusal(
            f"{where}column {first_names(absent, 3)} is missing: send every column of the model, null where a value is "
            "missing.",
            row=row,
            column=absent[0],
        )


def _kind(value: Any) -> str:
    """What a value of JSON is, in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return words.get(type(value), type(value).__name__)
