"""What commands are given: files for a model, read as its fit read them, and checked."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from posteriori.cli.output import counted, print_note
from posteriori.parameters import first_names
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.files import TableFiles, fitted_kinds, open_files

__all__ = ["ROWS_AT_ONCE", "open_rows", "require_columns", "say_left_out", "table_encoder", "used_columns"]

_MOST_NAMED = 20
"""The most columns that a message names."""
ROWS_AT_ONCE = 65_536
"""Rows that are encoded and predicted together: enough for all threads, and their features are few MB."""


def open_rows(model: Any, tables: Sequence[str], target: str | None = None) -> TableFiles:
    """Files with rows for a model: columns are read as they were in its fit; what was not plain is said.

    Columns that the fit has dropped may hold anything.
    """
    encoder = table_encoder(model)
    kinds = {} if encoder is None else fitted_kinds(column for column in encoder.encoding_.columns if column.plan)
    labels = [target, None if encoder is None else encoder.target_]
    files = open_files(tables, kinds=kinds | {name: "label" for name in labels if name is not None})
    for note in files.notes:
        print_note(note)
    return files


def used_columns(model: Any, names: Sequence[str]) -> list[str]:
    """The columns of a table that a model looks at; all of them if it does not say which, or if none is there."""
    encoder = table_encoder(model)
    if encoder is None:
        return list(names)
    used = {column.name for column in encoder.encoding_.columns if column.plan}
    return [name for name in names if name in used] or list(names)


def table_encoder(model: Any) -> TableEncoder | None:
    """The encoder at the beginning of a pipeline, if there is one."""
    while not hasattr(model, "steps") and hasattr(model, "estimator_"):
        model = model.estimator_
    first = model.steps[0][1] if hasattr(model, "steps") else None
    return first if isinstance(first, TableEncoder) else None


def require_columns(known: Sequence[str], names: Sequence[str], argument: str) -> None:
    """Raise unless all of these are among the known columns."""
    absent = [name for name in names if name not in known]
    if absent:
        raise ValueError(
            f"{argument} names {', '.join(map(repr, absent))}, and the table has the columns "
            f"{first_names(known, _MOST_NAMED)}: {_advice(absent[0], known)}"
        )


def _advice(absent: str, known: Sequence[str]) -> str:
    """What to do about a name that is not among the known ones."""
    if len(known) == 1:
        return "it has one column only: put one of , ; | or a tab between its values."
    spelled = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(absent.casefold(), list(spelled), n=3, cutoff=0.75)
    if not near:
        return "name columns of the table."
    return f"did you mean {' or '.join(repr(spelled[name]) for name in near)}?"


def say_left_out(n_unknown: int, n_known: int, target: str) -> None:
    """Say how many rows have no class; raise if no row has one."""
    if n_known == 0:
        raise ValueError(f"No row of the table has a value of {target!r}.")
    if n_unknown:
        print_note(f"{counted(n_unknown)} without {target} {'is' if n_unknown == 1 else 'are'} left out.")
