"""Blocks of columns whose weights share a strength: as a user names them, and as the numbers that a fit needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.parameters import first_names, is_number
from posteriori.tables.feature_blocks import feature_blocks

__all__ = ["ColumnBlocks", "column_blocks"]


@dataclass(frozen=True)
class ColumnBlocks:
    """A split of D columns into blocks.

    Attributes
    ----------
    labels : tuple
        The name of each block, in the order of their first columns.
    groups : ndarray (D,) of int
        The number of each column's block.
    """

    labels: tuple[Any, ...]
    groups: np.ndarray

    @classmethod
    def of(cls, label_of_column: Iterable[Any]) -> ColumnBlocks:
        """The blocks of columns that have these labels."""
        number: dict[Any, int] = {}
        groups = np.array([number.setdefault(label, len(number)) for label in label_of_column], dtype=int)
        return cls(tuple(number), groups)

    def per_column(self, by_block: Any) -> np.ndarray:
        """The precision of each column, (D,), from a dict that has one for each block."""
        if not isinstance(by_block, Mapping):
            raise ValueError(
                f"The prior's precision is {by_block!r}, and it has blocks: give a dict from each of these to its "
                "precision, or None, which chooses them by the evidence."
            )
        unknown, missing = set(by_block) - set(self.labels), set(self.labels) - set(by_block)
        if unknown or missing:
            raise ValueError(
                f"The prior's precision must have a number for each block: {_listed(unknown)} are not blocks, "
                f"{_listed(missing)} are missing."
            )
        for label, value in by_block.items():
            if not is_number(value) or not 0.0 < float(value) < np.inf:
                raise ValueError(f"The prior's precision of the block {label!r} is {value!r}: it must be positive.")
        return np.array([float(by_block[label]) for label in self.labels])[self.groups]


def column_blocks(given: Any, names: list[str] | None, D: int) -> ColumnBlocks:
    """The blocks of D columns, which have these names if they have any.

    Parameters
    ----------
    given : None, sequence of D labels, dict from label to columns, or ColumnBlocks
        None reads them off the names, as `feature_blocks` does. Columns of a dict are given by their names, or by
        their numbers, counted from 0.
    names : list of str, or None
    D : int

    Examples
    --------
    >>> column_blocks({"size": ["length", "depth"], "place": [2]}, ["length", "depth", "island"], 3).groups
    array([0, 0, 1])
    """
    if isinstance(given, ColumnBlocks):
        labels = [given.labels[g] for g in given.groups]
    elif given is None:
        labels = _by_name(names)
    elif isinstance(given, Mapping):
        labels = _by_column(given, names, D)
    else:
        labels = _as_listed(given)
    if len(labels) != D:
        raise ValueError(
            f"The prior's blocks are {len(labels)} labels, and X has {D} columns: give one label for each column, in "
            "their order, or a dict from label to columns."
        )
    return ColumnBlocks.of(labels)


def _by_name(names: list[str] | None) -> list[str]:
    if names is None:
        raise ValueError(
            "prior='blocks' reads off the names of the columns which of them belong together, and X has no names: pass "
            "a table, such as that of TableEncoder(), or name the blocks: GaussianPrior(blocks=[a label for each "
            "column])."
        )
    return feature_blocks(names)


def _as_listed(given: Any) -> list[Any]:
    """One label for each column."""
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    try:
        labels = None if isinstance(listed, (str, bytes)) else list(listed)
    except TypeError:
        labels = None
    if labels is None:
        raise ValueError(
            f"The prior's blocks are {given!r}: a label for each column, or a dict from label to columns, is needed."
        )
    for label in labels:
        if not isinstance(label, Hashable) or label is None or label != label:
            raise ValueError(f"The prior's blocks have the label {label!r}: text or numbers are needed.")
    return labels


def _by_column(given: Mapping[Any, Any], names: list[str] | None, D: int) -> list[Any]:
    """One label for each column, from a dict of the columns of each label."""
    places: dict[Any, int] = {d: d for d in range(D)} | {name: d for d, name in enumerate(names or ())}
    labels: dict[int, Any] = {}
    for label, columns in given.items():
        several = isinstance(columns, Iterable) and not isinstance(columns, str)
        for column in columns if several else [columns]:
            d = places.get(column) if isinstance(column, Hashable) else None
            if d is None:
                raise ValueError(
                    f"The prior's blocks have the column {column!r}, and the columns of X are "
                    f"{first_names(range(D) if names is None else names)}: use these names, or numbers counted from 0."
                )
            if d in labels:
                raise ValueError(
                    f"The prior's blocks have the column {column!r} twice, in {labels[d]!r} and in {label!r}: a column "
                    "belongs to one block."
                )
            labels[d] = label
    left = [d if names is None else names[d] for d in range(D) if d not in labels]
    if left:
        raise ValueError(
            f"The prior's blocks leave out {len(left)} of {D} columns, {first_names(left)}: each column belongs to one "
            "block."
        )
    return [labels[d] for d in range(D)]


def _listed(labels: set[Any]) -> str:
    return first_names(sorted(labels, key=str))
