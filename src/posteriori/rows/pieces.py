"""Pieces of a table that is not in memory as a whole: which columns are what, and their numbers, labels and weights.

A piece is an Arrow batch. What a fit needs to know of all pieces before the first sum, the classes and the weights, is
counted in one pass over two columns (`count_labels`), and merges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.parameters import first_names
from posteriori.rows.target import Target, class_factors, classes_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnTarget",
    "LabelCounts",
    "Layout",
    "count_labels",
    "joined",
    "named_columns",
    "numbers",
    "read_piece",
    "read_target_column",
    "require_numbers",
    "require_unique",
]

_MOST_LABELS = 10_000
"""Distinct labels beyond which a column is not a target: they would have to be kept in memory."""


@dataclass(frozen=True)
class Layout:
    """Which columns of a piece are what.

    Attributes
    ----------
    features : tuple of str
    target, weight : str or None
    labels : pyarrow Array or None
        The labels that occur, in any order.
    codes : ndarray or None
        The index of each of these labels among the sorted classes.
    factors : ndarray (K,) or None
        Weights of the classes.
    """

    features: tuple[str, ...]
    target: str | None = None
    weight: str | None = None
    labels: Any = None
    codes: np.ndarray | None = None
    factors: np.ndarray | None = None

    def columns(self, with_labels: bool) -> list[str]:
        """The columns to be read; class weights need the labels too."""
        target = self.target if with_labels or self.factors is not None else None
        return list(dict.fromkeys([*self.features, *(name for name in (target, self.weight) if name is not None)]))

    @property
    def weighted(self) -> bool:
        """Whether rows differ in weight."""
        return self.weight is not None or self.factors is not None


@dataclass(frozen=True)
class ColumnTarget(Target):
    """A target that stays in its column: codes and weights are read with each piece."""

    layout: Layout = Layout(())
    n_rows: int = 0
    n_weighted: int = 0
    """Rows of positive weight."""
    total: float = 0.0
    """Weight of all rows."""

    @property
    def n_counted(self) -> int:
        """Rows of positive weight."""
        return self.n_weighted


@dataclass(frozen=True)
class LabelCounts:
    """Labels of some rows, the weight of each, and what is wrong with them; ``+`` merges two sets of rows."""

    labels: Any
    mass: np.ndarray
    counted: np.ndarray
    """Rows of positive weight of each label."""
    n_rows: int
    missing: int = 0
    unit: bool = True
    """Whether all weights are one."""
    bad_weight: float | None = None

    def __add__(self, other: LabelCounts) -> LabelCounts:
        import pyarrow as pa

        both = pa.concat_arrays([self.labels, other.labels]).dictionary_encode()
        codes, K = both.indices.to_numpy(), len(both.dictionary)
        _require_few(K)
        return LabelCounts(
            both.dictionary,
            np.bincount(codes, np.append(self.mass, other.mass), K),
            np.bincount(codes, np.append(self.counted, other.counted), K),
            self.n_rows + other.n_rows,
            self.missing + other.missing,
            self.unit and other.unit,
            self.bad_weight if self.bad_weight is not None else other.bad_weight,
        )


def named_columns(schema: pa.Schema, y: Any, sample_weight: Any) -> list[str]:
    """The columns of labels and weights, which must be names: an array of all rows would be in memory."""
    import pyarrow as pa

    given = {"y": y} | ({} if sample_weight is None else {"sample_weight": sample_weight})
    for argument, name in given.items():
        if not isinstance(name, str):
            raise ValueError(
                f"X is not in memory, but read part by part: {argument} must be the name of one of its columns, got "
                f"{type(name).__name__}."
            )
        if name not in schema.names:
            raise ValueError(
                f"{argument}={name!r} is not a column of X, whose columns are {first_names(schema.names)}: pass one of "
                "these."
            )
    require_unique(schema.names)
    if pa.types.is_nested(schema.field(y).type):
        raise ValueError(f"{y!r} has dtype {schema.field(y).type}, and labels must be single values.")
    if sample_weight is not None:
        require_numbers(schema, [sample_weight])
    return list(dict.fromkeys(given.values()))


def require_unique(names: Sequence[str]) -> None:
    """Raise if two columns have one name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"X has two columns of one name, {twice[0]!r}: give each column a name of its own.")


def require_numbers(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise unless all of these columns hold numbers or booleans."""
    import pyarrow as pa

    types = pa.types
    if not names:
        raise ValueError("X has no columns other than target and weights: pass at least one feature.")
    for name in names:
        kind = schema.field(name).type
        if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
            raise ValueError(
                f"Column {name!r} of X has dtype {kind} and must hold numbers: encode the rows with TableEncoder in a "
                "Pipeline, or leave the column out."
            )


def count_labels(batch: pa.RecordBatch, target: str, weight: str | None) -> LabelCounts:
    """Count the labels of a piece, each with its weight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    labels = _plain(batch.column(target))
    weights = None if weight is None else _weights(batch.column(weight))
    missing = labels.null_count
    if pa.types.is_floating(labels.type):
        missing += int(pc.sum(pc.is_nan(labels)).as_py() or 0)
    n = len(labels)
    if missing:
        return LabelCounts(labels.slice(0, 0), np.empty(0), np.empty(0), n, missing)
    encoded = labels.dictionary_encode()
    codes, K = encoded.indices.to_numpy(zero_copy_only=False), len(encoded.dictionary)
    _require_few(K)
    if weights is None:
        rows = np.bincount(codes, minlength=K).astype(np.float64)
        return LabelCounts(encoded.dictionary, rows, rows, n)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    return LabelCounts(
        encoded.dictionary,
        np.bincount(codes, np.where(bad, 0.0, weights), K),
        np.bincount(codes[weights > 0], minlength=K).astype(np.float64),
        n,
        0,
        bool((weights == 1.0).all()),
        float(weights[bad.argmax()]) if bad.any() else None,
    )


def _require_few(n_labels: int) -> None:
    if n_labels > _MOST_LABELS:
        raise ValueError(
            f"The target has more than {_MOST_LABELS} different values, too many for classes: name another column."
        )


def read_target_column(counts: LabelCounts, layout: Layout, classes: Any, class_weight: Any) -> ColumnTarget:
    """The target of all pieces, from what was counted.

    Raises
    ------
    ValueError
        As `read_target` does: labels that are missing, continuous, undeclared or of one class only, weights that are
        negative, not finite or all zero.
    """
    if counts.missing:
        raise ValueError(
            f"{layout.target!r} has {counts.missing} missing labels among {counts.n_rows} rows: remove rows without a "
            "label, for example with a filter."
        )
    if counts.bad_weight is not None:
        raise ValueError(
            f"{layout.weight!r} holds the weight {counts.bad_weight!r}: weights must be finite and not negative; "
            "weight zero leaves a row out."
        )
    found, codes = classes_of(counts.labels.to_numpy(zero_copy_only=False), classes)
    mass = np.bincount(codes, counts.mass, len(found))
    factors = None
    if class_weight is not None:
        factors = class_factors(class_weight, found, mass)
        mass = mass * factors
    if not mass.any():
        raise ValueError("Every row has weight zero: the product of sample_weight and class_weight must be positive.")
    if factors is not None and (factors == 1.0).all():
        factors = None
    weight = None if counts.unit else layout.weight
    known = replace(layout, weight=weight, labels=counts.labels, codes=codes, factors=factors)
    rows = np.bincount(codes, counts.counted, len(found))
    n_weighted = int(rows.sum() if factors is None else rows[factors > 0].sum())
    return ColumnTarget(found, None, None, None, known, counts.n_rows, n_weighted, float(mass.sum()))


def read_piece(
    batch: pa.RecordBatch,
    layout: Layout,
    with_labels: bool,
    shift: np.ndarray | None = None,
    scale: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """X (n, D), codes (n,) if asked for, and weights (n,) unless all are one."""
    X = numbers([batch.column(name) for name in layout.features], shift, scale)
    Y = c = None
    if layout.target is not None and (with_labels or layout.factors is not None):
        Y = _codes(batch.column(layout.target), layout)
    if layout.weight is not None:
        c = _weights(batch.column(layout.weight))
    if layout.factors is not None:
        c = layout.factors[Y] if c is None else c * layout.factors[Y]
    return X, Y, c


def joined(pieces: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
    """(X, Y, c) of several pieces as one, row after row in memory."""
    X, Y, c = zip(*pieces, strict=True)
    return (
        np.concatenate(X) if len(X) > 1 else np.ascontiguousarray(X[0]),
        None if Y[0] is None else np.concatenate(Y),
        None if c[0] is None else np.concatenate(c),
    )


def numbers(columns: Sequence[Any], shift: np.ndarray | None = None, scale: np.ndarray | None = None) -> np.ndarray:
    """(x - shift) * scale as float64, (n, D), column by column in memory: so Arrow has them, and so BLAS takes them."""
    A = np.empty((len(columns), len(columns[0]) if columns else 0))
    for d, column in enumerate(columns):
        if shift is None:
            A[d] = _floats(column)
        else:
            np.subtract(_floats(column), shift[d], out=A[d])
        if scale is not None:
            A[d] *= scale[d]
    return A.T


def _floats(column: Any) -> np.ndarray:
    """Numbers of any width, missing ones as NaN; float32 stays what it is."""
    import pyarrow as pa

    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)) or column.null_count:
        column = column.cast(pa.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def _weights(column: Any) -> np.ndarray:
    """Weights as float64, however they are stored: their sums need all digits."""
    return _floats(column).astype(np.float64, copy=False)


def _codes(column: Any, layout: Layout) -> np.ndarray:
    """The index of each label among the classes."""
    import pyarrow.compute as pc

    found = pc.index_in(_plain(column), value_set=layout.labels)
    if found.null_count:
        raise ValueError(f"{layout.target!r} has labels that were not there when the fit began: the rows have changed.")
    assert layout.codes is not None
    return layout.codes[found.to_numpy(zero_copy_only=False)]


def _plain(column: Any) -> Any:
    """Labels of a type that Arrow can look up; labels coded by a dictionary are decoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.float64()) if pa.types.is_float16(column.type) else column
