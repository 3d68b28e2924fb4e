"""The rows of a fit: those whose class is known, in memory if there is room, otherwise read anew in every pass."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from posteriori.cli.inputs import require_columns, say_left_out
from posteriori.cli.memory import available_memory
from posteriori.cli.output import counted
from posteriori.decision.labels import alike
from posteriori.parameters import first_names
from posteriori.rows.engines import take_rows
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.files import TableFiles, open_files
from posteriori.tables.labelled import RowsWithTarget, count_values

__all__ = ["FitColumns", "TrainingRows", "training_rows"]

_MOST_SAMPLED = 20_000
"""Rows in memory, of a table that is not: models are compared and scored on them."""
_MOST_LOOKED_AT = 5_000
"""Rows that show how many features a table becomes."""
_SHARE_OF_MEMORY = 0.5
_COPIES = 3
"""The features, what they are made from, and what a fit computes from them."""


@dataclass(frozen=True)
class FitColumns:
    """The columns that a user names: the target, weights of the rows, those to leave out, and identifiers to keep.

    `max_levels` and `min_frequency` say which levels of a category are kept, as in `TableEncoder`.
    """

    target: str
    weight: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    max_levels: int = 64
    min_frequency: int = 5

    @property
    def encoding(self) -> dict[str, Any]:
        """The arguments of a `TableEncoder` for these columns."""
        return {"keep": self.keep, "max_levels": self.max_levels, "min_frequency": self.min_frequency}

    def require(self, files: TableFiles) -> None:
        """Raise unless the columns exist, the target and the weight once, and each has one task."""
        weights = [] if self.weight is None else [self.weight]
        for option, names in (
            ("--target", [self.target]),
            ("--weight", weights),
            ("--drop", self.drop),
            ("--keep-id", self.keep),
        ):
            require_columns(files.names, names, option)
        for option, name in (("--target", self.target), *(("--weight", name) for name in weights)):
            if name in files.repeated:
                raise ValueError(
                    f"{option} names {name!r}, and the table has several columns of this name: rename them, so that it "
                    "is clear which is meant."
                )
            if name in self.drop:
                raise ValueError(
                    f"{name!r} is named by {option} and by --drop: it cannot be used and left out at once."
                )
        for name in self.keep:
            if name in (*self.drop, self.target, *weights):
                raise ValueError(f"{name!r} is named by --keep-id, and has another task already: name it once.")
        if self.weight == self.target:
            raise ValueError(f"{self.target!r} is named by --target and by --weight: classes are not weights of rows.")


@dataclass(frozen=True)
class TrainingRows:
    """Rows to fit a model to.

    Attributes
    ----------
    data : table or stream
        All rows, as a pipeline fits them.
    table : pa.Table
        All rows, or a random sample of them where they are not in memory.
    columns : FitColumns
    n_rows, n_features : int
        The number of rows, and about how many features they become.
    counts : dict
        The number of rows of each class, in the order of the classes.
    notes : tuple of str
        Sentences about the files.
    """

    data: Any
    table: pa.Table
    columns: FitColumns
    n_rows: int
    n_features: int
    counts: dict[Any, int]
    notes: tuple[str, ...] = ()

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory."""
        return self.data is self.table

    def sample(self, most: int, seed: int) -> pa.Table:
        """At most so many rows, chosen at random, in their order."""
        if self.table.num_rows <= most:
            return self.table
        chosen = np.random.default_rng(seed).choice(self.table.num_rows, most, replace=False)
        return take_rows(self.table, np.sort(chosen))


def training_rows(paths: Sequence[str], columns: FitColumns, seed: int) -> TrainingRows:
    """Read the rows whose class is known, without the columns to leave out."""
    target = columns.target
    files = open_files(paths, kinds={target: "label"})
    columns.require(files)
    data = RowsWithTarget(files, target, columns.drop)
    n_features = _n_features(_first_rows(data), columns)
    if _fits(files, n_features):
        table = data.to_table()
        counts = count_values(table[target])
        say_left_out(files.n_rows - table.num_rows, table.num_rows, target)
        notes = (*files.notes, *_class_notes(counts, target))
        rows = TrainingRows(table, table, columns, table.num_rows, n_features, counts, notes)
    else:
        found = data.count(_MOST_SAMPLED, seed)
        say_left_out(found.n_unknown, found.n_rows, target)
        notes = (*files.notes, *_class_notes(found.counts, target))
        rows = TrainingRows(data, found.sample, columns, found.n_rows, n_features, found.counts, notes)
    _require_classes(rows.counts, data.schema.field(target).type, rows.n_rows, target)
    return rows


def _first_rows(data: RowsWithTarget) -> pa.Table:
    first = next(iter(data.stream().batches(data.schema.names, _MOST_LOOKED_AT)), None)
    return data.schema.empty_table() if first is None else pa.Table.from_batches([first], data.schema)


def _n_features(first: pa.Table, columns: FitColumns) -> int:
    """The number of features that the first rows become."""
    apart = [] if columns.weight is None else [columns.weight]
    with suppress(ValueError), warnings.catch_warnings():  # what is wrong is said by the fit of all rows
        warnings.simplefilter("ignore")
        encoder = TableEncoder(carry=apart, **columns.encoding).fit(first, columns.target)
        return len(encoder.get_feature_names_out())
    return first.num_columns - 1 - len(apart)


def _fits(files: TableFiles, n_features: int) -> bool:
    """Whether all rows, their features and what a fit makes of them have room in memory."""
    needed = files.n_bytes + _COPIES * 8.0 * files.n_rows * n_features
    return needed < _SHARE_OF_MEMORY * available_memory()


def _shortened(value: Any, most: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _class_notes(counts: dict[Any, int], target: str) -> tuple[str, ...]:
    """A sentence about classes that are probably one class, written in several ways."""
    groups = alike(counts)
    if not groups:
        return ()
    shown = "; ".join(first_names(group, 5) for group in groups[:3]) + ("; ..." if len(groups) > 3 else "")
    return (
        f"{target!r} has classes that differ only in capitals, blanks or a full stop: {shown}. They are different "
        "classes here: write them alike if they are one.",
    )


def _require_classes(counts: dict[Any, int], kind: pa.DataType, n_rows: int, target: str) -> None:
    """Raise unless the target looks like a set of classes."""
    if len(counts) < 2:
        raise ValueError(
            f"{target!r} has one value only, {_shortened(next(iter(counts)))}, and a classifier needs two classes: "
            "choose another column."
        )
    if pa.types.is_floating(kind) and any(name != round(name) for name in counts):
        raise ValueError(f"{target!r} holds numbers with fractions, which are not classes: choose another column.")
    if len(counts) > 0.5 * n_rows and len(counts) > 20:
        raise ValueError(
            f"{target!r} has {len(counts)} different values in {counted(n_rows)}: that is not a set of classes, "
            "choose another column."
        )
