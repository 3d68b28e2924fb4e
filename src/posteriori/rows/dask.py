"""Dask arrays and DataFrames: rows stay on the workers, and only sums travel.

A partition is read on its worker as (X, Y, c), kept there if all of them fit, and mapped by `MemoryBlocks`. The sums of
partitions are added in a tree whose shape depends on their number alone: answers are the same whatever the number of
workers, and if one of them dies. Scheduling, retries and transport are Dask's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.parameters import first_names
from posteriori.rows.dask_graph import Partitions, as_shared, as_task, fit_in_memory
from posteriori.rows.dask_tasks import (
    Part,
    Reader,
    Work,
    count_partition,
    count_rows,
    find_not_finite,
    map_partition,
    pick_rows,
    read_partition,
    sum_partition,
)
from posteriori.rows.features import Example, Features, NotFinite
from posteriori.rows.matrices import as_array
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.pieces import ColumnTarget, LabelCounts, Layout, joined, read_target_column, require_numbers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ENGINE",
    "DaskBlocks",
    "DaskFeatures",
    "dask_column",
    "is_dask",
    "is_dask_frame",
    "read_dask",
    "read_dask_for_fit",
]

_SAMPLE_BYTES = 64 << 20
"""Bytes of features of the random rows from which starts and preconditioners come."""
_SHUFFLED_BYTES = 64 << 20
"""Bytes of features that are mixed with one another before they are handed out in batches."""


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or DataFrame; Dask is not imported to find out."""
    array = sys.modules.get("dask.array")
    return (array is not None and isinstance(X, array.Array)) or is_dask_frame(X)


def is_dask_frame(X: Any) -> bool:
    """Whether X is a Dask DataFrame."""
    frame = sys.modules.get("dask.dataframe")
    return frame is not None and isinstance(X, frame.DataFrame)


def _is_dask_vector(values: Any) -> bool:
    array, frame = sys.modules.get("dask.array"), sys.modules.get("dask.dataframe")
    return (array is not None and isinstance(values, array.Array)) or (
        frame is not None and isinstance(values, frame.Series)
    )


class DaskFeatures(Features):
    """The features of rows in partitions.

    Parameters
    ----------
    rows : list of Delayed
        Partitions: pandas DataFrames or arrays (n, D).
    names : list of str, or None (arrays)
    n_features : int
    lengths : list of int, or None
        Rows of each partition, if they are known.
    labels, weights : list of Delayed, arrays or str, or None
        Labels and weights of each partition; a str is the name of one of its columns.
    itemsize : int
        Bytes of one number.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        names: list[str] | None,
        n_features: int,
        *,
        lengths: list[int] | None = None,
        labels: Sequence[Any] | None = None,
        weights: Sequence[Any] | None = None,
        itemsize: int = 8,
    ) -> None:
        self.rows, self._names, self._n_features, self.itemsize = rows, names, n_features, itemsize
        self.labels, self.weights, self.known_lengths = labels, weights, lengths
        self._target: ColumnTarget | None = None
        self._parts: Partitions | None = None

    @property
    def names(self) -> list[str] | None:
        """Column names of a DataFrame."""
        return self._names

    @property
    def n_features(self) -> int:
        """D."""
        return self._n_features

    @cached_property
    def lengths(self) -> list[int]:
        """Rows of each partition, counted if they are not known."""
        if self.known_lengths is not None:
            return self.known_lengths
        return self.parts(None).map(count_rows, False)

    def parts(self, target: ColumnTarget | None) -> Partitions:
        """The partitions as (X, Y, c) on their workers: kept there for a fit, if they fit."""
        if self._parts is not None and self._target is target:
            return self._parts
        reader = as_shared(Reader(self.names, self.n_features, Layout(()) if target is None else target.layout))
        labels, weights, lengths = (
            [None] * len(self.rows) if given is None else given
            for given in (self.labels, self.weights, self.known_lengths)
        )
        each = zip(self.rows, labels, weights, range(len(self.rows)), lengths, strict=True)
        parts = [as_task(read_partition)(reader, *part) for part in each]
        kept = target is not None and fit_in_memory(sum(self.lengths) * (self.itemsize * self.n_features + 16))
        self._target, self._parts = target, Partitions.of(parts, kept)
        return self._parts

    @property
    def reader(self) -> Reader:
        """The reader of partitions, without their labels."""
        return Reader(self._names, self._n_features, Layout(()))

    def first_not_finite(self, *, missing_allowed: bool = False) -> NotFinite | None:
        """The first value that is NaN or infinite, if there is one, with its partition."""
        parts = self.parts(self._target)
        own = [(missing_allowed, number) for number in range(len(parts.keys))]
        found = parts.map(find_not_finite, self.reader, own=own)
        return next((each for each in found if each is not None), None)

    def blocks(
        self,
        target: Any,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> DaskBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        return DaskBlocks(self, target, n_classes, shift=shift, scale=scale, n_threads=n_threads, finite=finite)


class DaskEngine:
    """Dask arrays and DataFrames, whose partitions are on workers."""

    name = "Dask"
    holds_all_rows = False

    def claims(self, X: Any, device: str | None) -> bool:
        """Whether X is a collection of Dask; vectors count too."""
        return is_dask(X) or _is_dask_vector(X)

    def read(self, X: Any, drop: Collection[str]) -> DaskFeatures:
        """The features of new rows; nothing is computed."""
        return read_dask(X, drop=drop)

    def read_for_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
    ) -> tuple[DaskFeatures, ColumnTarget]:
        """Features and target of the rows of a fit: one pass over labels and weights, which the workers count."""
        return read_dask_for_fit(X, y, sample_weight, classes, class_weight)

    def labels(self, X: Any, y: Any) -> Any:
        """The column that y names, or a vector of Dask, computed; anything else as it is."""
        return dask_column(X, y)

    def examples(self, X: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> list[Example]:
        """An array in chunks, and a DataFrame with labels and weights as columns."""
        import dask.array as da
        import dask.dataframe as dd
        import pandas as pd

        rows = max(1, len(X) // 3)
        table = pd.DataFrame(X, columns=[f"x{d}" for d in range(X.shape[1])]).assign(label=y)
        table = table if c is None else table.assign(weight=c)
        labels, weights = (None if a is None else da.from_array(a, chunks=rows) for a in (y, c))
        return [
            Example("Dask array", da.from_array(X, chunks=(rows, -1)), labels, weights),
            Example("Dask DataFrame", dd.from_pandas(table, npartitions=3), "label", None if c is None else "weight"),
        ]


ENGINE = DaskEngine()


def read_dask(X: Any, *, drop: Collection[str] = ()) -> DaskFeatures:
    """The features of a Dask array or DataFrame; nothing is computed."""
    if not is_dask_frame(X):
        return _read_array(X)
    names = [name for name in _names(X) if name not in drop]
    require_numbers(_schema(X, names), names)
    rows = X[names] if len(names) < len(X.columns) else X  # a selection would raise for partitions before we can
    return DaskFeatures(rows.to_delayed(), names, len(names))


def read_dask_for_fit(
    X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
) -> tuple[DaskFeatures, ColumnTarget]:
    """Features and target: one pass over labels and weights, which the workers count."""
    import dask

    named = [name for name in (y, sample_weight) if isinstance(name, str)]
    _require_columns(X, y, sample_weight)
    features = read_dask(X, drop=named)
    label_rows: Sequence[Any] = [None] * len(features.rows)
    if named:
        features.rows, label_rows = X.to_delayed(), X[list(dict.fromkeys(named))].to_delayed()
    features.labels = _pieces(y, "y", X, features)
    if sample_weight is not None:
        features.weights = _pieces(sample_weight, "sample_weight", X, features)
    of_labels = y if isinstance(y, str) else "y"
    of_weights = None if sample_weight is None else sample_weight if isinstance(sample_weight, str) else "sample_weight"
    if of_weights == of_labels:
        of_weights = f"{of_weights} (weights)"  # both are columns of one batch, by these names
    layout = Layout(tuple(features.names or ()), of_labels, of_weights)
    reader = as_shared(Reader(features.names, features.n_features, layout))
    weights = features.weights or [None] * len(features.rows)
    each = zip(label_rows, features.labels, weights, range(len(features.rows)), strict=True)
    counts = dask.compute(*[as_task(count_partition)(reader, *part) for part in each])
    target = read_target_column(_merged(counts, features.n_features), layout, classes, class_weight)
    features.known_lengths = [count.n_rows for count in counts]
    return features, target


def dask_column(X: Any, values: Any) -> Any:
    """Labels or weights at the client: a named column of X or a Dask vector is computed, anything else passes."""
    if isinstance(values, str) and is_dask(X):
        _require_columns(X, values, None)
        values = X[values]
    return as_array(values.compute()) if _is_dask_vector(values) else values


class DaskBlocks:
    """Rows in partitions on Dask's workers.

    Parameters
    ----------
    features : DaskFeatures
    target : ColumnTarget or None (prediction)
    n_classes : int
    shift, scale : ndarray (D,) or None
        Blocks hold (X - shift) * scale.
    n_threads : int
        For rows that are fetched; the workers have threads of their own.
    finite : bool
        Whether `map_rows` raises where a value is not finite.
    """

    sparse = False

    def __init__(
        self,
        features: DaskFeatures,
        target: ColumnTarget | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> None:
        self.features, self.target, self.n_classes, self.n_threads = features, target, n_classes, n_threads
        self.n_features = features.n_features
        self.n_passes = 0
        self._work = Work(n_classes, shift, scale, reader=features.reader if finite else None)

    @cached_property
    def n_rows(self) -> int:
        """The number of rows N, counted when it is needed if it is not known."""
        return sum(self.features.lengths)

    @property
    def n_weighted(self) -> int:
        """Rows of positive weight."""
        return self.n_rows if self.target is None else self.target.n_weighted

    def map_sum(self, kernel: Callable[..., Any], *params: Any, row_values: Any = None, coarse: bool = False) -> Any:
        """Sum of the kernel over the partitions, on their workers; sums are added in a fixed tree."""
        self.n_passes += 1
        work = replace(self._work, kernel=kernel, params=params, coarse=coarse)
        return self._parts.sum(sum_partition, work, self._filled())

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X_p, *params)``, (K, n_p) each, side by side at the client: (K, N)."""
        self.n_passes += 1
        work = replace(self._work, kernel=kernel, params=params)
        parts = self._parts
        found = parts.map(map_partition, work, own=[(number,) for number in range(len(parts.keys))])
        bad = next((each for each in found if isinstance(each, NotFinite)), None)
        if bad is not None:
            raise ValueError(bad.sentence())
        values = np.concatenate(found, axis=1)
        if not values.shape[1]:
            _refuse_empty(self.n_features)
        return values

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """All rows once: partitions in random order, fetched one by one, and the rows of several of them mixed."""
        self.n_passes += 1
        left = rng.permutation(self._filled())
        pool: list[Part] = []
        while left.size:
            pool += self._parts.map(pick_rows, self._work, left[:1])
            left = left[1:]
            if not left.size or sum(X.nbytes for X, _, _ in pool) >= _SHUFFLED_BYTES:
                yield from MemoryBlocks(*joined(pool), self.n_classes).batches(size, rng)
                pool = []

    def sample(self, n_rows: int, rng: np.random.Generator, *, as_in_memory: bool = False) -> DaskBlocks | MemoryBlocks:
        """Random rows, those that would be drawn in memory too, at the client: as many as asked for, or as fit."""
        if n_rows >= self.n_rows:
            return self
        n_rows = min(n_rows, max(1, _SAMPLE_BYTES // (8 * (self.n_features + 1))))
        drawn = np.sort(rng.choice(self.n_rows, n_rows, replace=False, shuffle=False))
        X, Y, c = self._picked(drawn, self.features.lengths)
        total = float(self.n_rows) if self.target is None else self.target.total
        c = np.ones(n_rows) if c is None or not c.any() else c
        return MemoryBlocks(X, Y, c * (total / c.sum()), self.n_classes, n_threads=self.n_threads)

    def take(self, rows: np.ndarray, *, weighted: bool = False) -> Part:
        """The rows of these numbers, which are in order, as (X, Y, c), fetched from the workers."""
        if not weighted or self.target is None or not self.target.layout.weighted:
            return self._picked(rows, self.features.lengths)
        return self._picked(rows, self._parts.map(count_rows, True) if rows.size else [], weighted=True)

    @property
    def _parts(self) -> Partitions:
        return self.features.parts(self.target)

    def _filled(self) -> np.ndarray:
        """The numbers of the partitions that have rows."""
        return np.flatnonzero(self.features.lengths)

    def _picked(self, rows: np.ndarray, sizes: Any, *, weighted: bool = False) -> Part:
        """The rows of these numbers, which are in order, fetched from partitions of these sizes."""
        if not rows.size:
            return np.empty((0, self.n_features)), np.empty(0, dtype=int), None
        self.n_passes += 1
        ends, sizes = np.cumsum(sizes), np.asarray(sizes)
        here = np.split(rows, np.searchsorted(rows, ends[:-1]))
        wanted = np.flatnonzero([part.size for part in here])
        own = [(here[i] - (ends[i] - sizes[i]), weighted) for i in wanted]
        return joined(self._parts.map(pick_rows, self._work, wanted, own))


def _read_array(X: Any) -> DaskFeatures:
    """Partitions of an array: its chunks of rows, with all of their columns."""
    import scipy.sparse as sp

    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X is a Dask array of shape {X.shape}.")
    if X.dtype.kind not in "biufO":
        raise ValueError(
            f"X has dtype {X.dtype} and must hold numbers: encode the rows as a Dask DataFrame, with TableEncoder in a "
            "Pipeline."
        )
    if sp.issparse(X._meta):
        raise ValueError(
            "X is a Dask array of sparse matrices: pass dense chunks, X.map_blocks(lambda b: b.toarray())."
        )
    if np.isnan(X.shape[1]) or not X.shape[1]:
        raise ValueError(f"X is a Dask array of shape {X.shape}, and needs a known number of columns, at least one.")
    X = X.rechunk({1: -1})
    lengths = None if np.isnan(X.chunks[0]).any() else [int(n) for n in X.chunks[0]]
    if lengths is not None and not sum(lengths):
        _refuse_empty(X.shape[1])
    return DaskFeatures(list(X.to_delayed().ravel()), None, int(X.shape[1]), lengths=lengths, itemsize=X.dtype.itemsize)


def _names(X: Any) -> list[str]:
    """The column names of a DataFrame; raises unless they are strings and differ."""
    names = list(X.columns)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"The columns of X must have names that are strings and differ, got {names[:10]}.")
    return names


def _schema(X: Any, names: list[str]) -> pa.Schema:
    """Types of some columns of a DataFrame, as Dask knows them; objects may be anything, and count as text."""
    import pyarrow as pa
    from dask.dataframe.utils import meta_nonempty

    meta = X._meta[names]
    objects = [name for name in names if meta[name].dtype == object]
    schema = pa.Schema.from_pandas(meta_nonempty(meta.drop(columns=objects)), preserve_index=False)
    return pa.schema([pa.field(name, pa.string()) if name in objects else schema.field(name) for name in names])


def _require_columns(X: Any, y: Any, sample_weight: Any) -> None:
    """Raise unless the names among these are those of columns of X."""
    for argument, name in (("y", y), ("sample_weight", sample_weight)):
        if not isinstance(name, str):
            continue
        if not is_dask_frame(X):
            raise ValueError(
                f"{argument}={name!r} names a column, but X is a Dask array and has no named columns: pass X as a Dask "
                f"DataFrame, or {argument} as a Dask array."
            )
        if name not in X.columns:
            raise ValueError(
                f"{argument}={name!r} is not a column of X, whose columns are {first_names(X.columns)}: pass one of "
                "these."
            )


def _pieces(values: Any, argument: str, X: Any, features: DaskFeatures) -> list[Any]:
    """Labels or weights, cut as the partitions of X are."""
    n_parts, lengths = len(features.rows), features.known_lengths
    if isinstance(values, str):
        return [values] * n_parts
    if not _is_dask_vector(values):
        return _cut(values, argument, lengths)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{argument} has shape {values.shape}: with Dask it must be one value for each row, (n,).")
    chunks = getattr(values, "chunks", None)
    if chunks is not None and lengths is not None and not np.isnan(chunks[0]).any() and list(chunks[0]) != lengths:
        if sum(chunks[0]) != sum(lengths):
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {sum(lengths)} rows and {argument} "
                f"{sum(chunks[0])} values."
            )
        values = values.rechunk((tuple(lengths),))
    pieces = list(np.ravel(values.to_delayed()))
    if len(pieces) != n_parts:
        raise ValueError(
            f"X has {n_parts} partitions and {argument} {len(pieces)}, and the rows of at least one of them are not "
            "counted: both must have the same partitions. Pass the name of a column of a DataFrame, or call "
            "compute_chunk_sizes() of arrays first."
        )
    return pieces


def _cut(values: Any, argument: str, lengths: list[int] | None) -> list[np.ndarray]:
    """An array in memory, cut into pieces of these lengths."""
    if lengths is None or np.ndim(values) == 0:
        raise ValueError(
            f"X is a Dask collection{' whose rows are not counted' if lengths is None else ''}, and {argument} must be "
            f"the name of one of its columns or a Dask Series or array, got {type(values).__name__}."
        )
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{argument} has shape {array.shape}: with Dask it must be one value for each row, (n,).")
    if len(array) != sum(lengths):
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {sum(lengths)} rows and {argument} "
            f"{len(array)} values."
        )
    return np.split(array, np.cumsum(lengths)[:-1])


def _merged(counts: Sequence[LabelCounts], n_features: int) -> LabelCounts:
    """The labels of all partitions, which must be of one type."""
    filled = [(number, count) for number, count in enumerate(counts) if count.n_rows]
    if not filled:
        _refuse_empty(n_features)
    first, total = filled[0]
    for number, count in filled[1:]:
        if count.labels.type != total.labels.type and not count.missing and not total.missing:
            raise ValueError(
                f"The labels of partition {first} are of type {total.labels.type} and those of partition {number} of "
                f"type {count.labels.type}: convert them to one type."
            )
        if count.missing or total.missing:  # refused in any case: only how many are missing still matters
            count = replace(count, labels=total.labels[:0], mass=np.empty(0), counted=np.empty(0))
        total = total + count
    return total


def _refuse_empty(n_features: int) -> None:
    raise ValueError(f"Found array with 0 sample(s) (shape=(0, {n_features})) while a minimum of 1 is required.")
