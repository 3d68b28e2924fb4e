"""Blocks over rows that are read anew in every pass: memory is bounded whatever their number.

Arrow reads ahead in threads of its own while ours work on the batches that have come, so that disk and arithmetic
overlap. What is summed is added in the order of the rows: results depend neither on threads nor on chance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from posteriori.rows.blocks import facts_of
from posteriori.rows.features import as_array, raise_if_not_finite
from posteriori.rows.memory import InOrder, MemoryBlocks, rescaled
from posteriori.rows.pieces import (
    ColumnTarget,
    Layout,
    count_labels,
    joined,
    named_columns,
    read_piece,
    read_target_column,
    require_numbers,
)
from posteriori.threads import run_stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DatasetStream",
    "Stream",
    "StreamBlocks",
    "StreamedFeatures",
    "open_stream",
    "read_stream_for_fit",
    "stream_column",
]

_BLOCK_BYTES = 4 << 20
"""Features and logits of one batch: what stays in the cache of a core."""
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17
"""Of a batch."""
_AHEAD_BYTES = 64 << 20
"""Of features, read before they are asked for."""
_SAMPLE_BYTES = 32 << 20
"""Of features, for the random rows from which starts and preconditioners come."""
_HELD_BYTES = 128 << 20
"""Up to here rows are held in memory instead of being read again."""
_SHUFFLED_ROWS = 1 << 18
"""Rows that are mixed with one another before they are handed out in batches."""


class Stream(Protocol):
    """Rows that can be read again and again, as batches of Arrow."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order, at most `size` at a time."""

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, larger parts of them in random order."""

    def stamp(self) -> Any:
        """What changes when the rows do, as far as that can be told without reading them."""


class DatasetStream:
    """The rows of a `pyarrow.dataset.Dataset`."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.schema = dataset, dataset.schema

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        return _guarded(self.dataset.to_batches(**self._reading(columns, size)))

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """Files, and row groups of Parquet files, in random order; where rows are filtered, in their own."""
        try:
            fragments = list(self.dataset.get_fragments())
        except ValueError:  # Arrow gives the parts of a filtered data set to nobody
            yield from self.batches(columns, size)
            return
        parts = [part for each in fragments for part in (_row_groups(each) if hasattr(each, "row_groups") else [each])]
        for i in rng.permutation(len(parts)):
            yield from _guarded(parts[i].to_batches(schema=self.schema, **self._reading(columns, size)))

    def stamp(self) -> Any:
        """Sizes and times of local files."""
        if not self._local:
            return None
        return [
            (info.path, info.size, info.mtime_ns) for info in self.dataset.filesystem.get_file_info(self.dataset.files)
        ]

    @property
    def _local(self) -> bool:
        import pyarrow.fs as fs

        return isinstance(getattr(self.dataset, "filesystem", None), fs.LocalFileSystem)

    def _reading(self, columns: list[str], size: int) -> dict[str, Any]:
        """How Arrow is to read: a little ahead. Of local Parquet files it would else hold whole row groups twice."""
        import pyarrow.dataset as ds

        ahead = int(np.clip(_AHEAD_BYTES / (8 * max(1, len(columns)) * size), 2, 16))
        options = {"columns": columns, "batch_size": size, "batch_readahead": ahead, "fragment_readahead": 2}
        if self._local and isinstance(self.dataset.format, ds.ParquetFileFormat):
            how = ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
            options["fragment_scan_options"] = how
        return options


def _row_groups(fragment: Any) -> list[Any]:
    return list(fragment.split_by_row_group())


def open_stream(X: Any) -> Stream | None:
    """X as a stream, if it is one: a data set of Arrow, or rows encoded while they are read."""
    arrow, dataset = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    if arrow is not None and isinstance(X, arrow.RecordBatchReader):
        raise TypeError(
            "X is a RecordBatchReader, which can be read only once: pass a pyarrow Dataset, or X.read_all() if it fits "
            "into memory; predict_to takes readers."
        )
    if dataset is not None and isinstance(X, dataset.Dataset):
        return DatasetStream(X)
    return X.stream() if hasattr(X, "stream") and hasattr(X, "schema") else None


class StreamedFeatures:
    """The features of rows that are read anew in every pass; the interface is that of `Features`."""

    def __init__(self, stream: Stream, names: list[str], target: ColumnTarget | None = None) -> None:
        self.stream, self.names, self.target = stream, names, target

    @cached_property
    def shape(self) -> tuple[int, int]:
        """N and D; rows are counted if no target has been read."""
        if self.target is not None:
            return self.target.n_rows, len(self.names)
        return _counted(self.stream, self.names[0]), len(self.names)

    def require_finite(self, *, missing_allowed: bool = False) -> None:
        """Raise if a value is not finite, naming its column and row."""
        first = 0
        for X, _, _ in self.blocks(None, 1).pieces(with_labels=False):
            raise_if_not_finite(X, self.names, missing_allowed=missing_allowed, first_row=first)
            first += len(X)

    def blocks(
        self,
        target: Any,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> StreamBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        layout = Layout(tuple(self.names)) if target is None else target.layout
        return StreamBlocks(self.stream, layout, target, n_classes, shift=shift, scale=scale, n_threads=n_threads)


def read_stream_for_fit(
    stream: Stream, y: Any, sample_weight: Any, classes: Any, class_weight: Any
) -> tuple[StreamedFeatures, ColumnTarget]:
    """Features and target of a stream: one pass over the columns of labels and weights."""
    named = named_columns(stream.schema, y, sample_weight)
    names = [name for name in stream.schema.names if name not in named]
    require_numbers(stream.schema, names)
    total = None
    for batch in stream.batches(named, _MOST_ROWS):
        counts = count_labels(batch, y, sample_weight)
        total = counts if total is None else total + counts
    if total is None:
        raise ValueError(f"Found array with 0 sample(s) (shape=(0, {len(names)})) while a minimum of 1 is required.")
    target = read_target_column(total, Layout(tuple(names), y, sample_weight), classes, class_weight)
    return StreamedFeatures(stream, names, target), target


def _counted(stream: Stream, column: str) -> int:
    return sum(batch.num_rows for batch in stream.batches([column], _MOST_ROWS))


def stream_column(stream: Stream, name: str) -> np.ndarray:
    """All values of one column, (N,)."""
    import pyarrow as pa

    named_columns(stream.schema, name, None)
    values = [batch.column(name) for batch in stream.batches([name], _MOST_ROWS)]
    return as_array(pa.chunked_array(values, stream.schema.field(name).type))


class StreamBlocks:
    """Rows that are read anew in every pass.

    Parameters
    ----------
    stream : Stream
    layout : Layout
    target : ColumnTarget or None (prediction)
    n_classes : int
    shift, scale : ndarray (D,) or None
        Blocks hold (X - shift) * scale.
    n_threads : int
    """

    sparse = False
    handy_rows = 0

    def __init__(
        self,
        stream: Stream,
        layout: Layout,
        target: ColumnTarget | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> None:
        self.stream, self.layout, self.target, self.n_classes = stream, layout, target, n_classes
        self.shift, self.scale, self.n_threads = shift, scale, n_threads
        self.n_features = len(layout.features)
        self.n_passes = 0
        self._sampled: MemoryBlocks | None = None
        self._alike: dict[int, MemoryBlocks] = {}
        self._stamp = stream.stamp()

    @cached_property
    def n_rows(self) -> int:
        """N; rows are counted if no target has been read."""
        if self.target is not None:
            return self.target.n_rows
        return _counted(self.stream, self.layout.features[0])

    def pieces(
        self, *, with_labels: bool = True, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """One pass: (X, Y, c) of batch after batch; with `rng`, in random order."""
        return (self._read(batch, with_labels) for batch in self._batches(with_labels, rng))

    def _batches(self, with_labels: bool, rng: np.random.Generator | None = None) -> Iterator[pa.RecordBatch]:
        """One pass over the raw batches, at the end of which as many rows must have come as there are."""
        self.n_passes += 1
        columns = self.layout.columns(with_labels)
        rows = _BLOCK_BYTES / (8 * (self.n_features + self.n_classes))
        size = int(np.clip(rows, _LEAST_ROWS, _MOST_ROWS))
        batches = self.stream.batches(columns, size) if rng is None else self.stream.shuffled(columns, size, rng)
        seen = 0
        for batch in batches:
            seen += batch.num_rows
            yield batch
        if self.target is not None and (seen != self.n_rows or self.stream.stamp() != self._stamp):
            raise ValueError(
                f"The rows have changed during the fit: there were {self.n_rows}, and in pass {self.n_passes} {seen} "
                "came, or files were written. Nothing was fitted; fit again when they are at rest."
            )

    def _read(self, batch: pa.RecordBatch, with_labels: bool) -> tuple[Any, Any, Any]:
        return read_piece(batch, self.layout, with_labels, self.shift, self.scale)

    def map_sum(self, kernel: Callable[..., Any], *params: Any, rows: Any = None, coarse: bool = False) -> Any:
        """Sum of the kernel over the batches, added in their order; large ones would be held in memory for no gain."""
        with_labels = facts_of(kernel).reads_labels
        total = InOrder()

        def task(i: int, batch: pa.RecordBatch) -> None:
            total.put(i, kernel(*self._read(batch, with_labels), *params))

        run_stream(task, self._batches(with_labels), self.n_threads)
        return total.value

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X_b, *params)``, (K, n_b) each, side by side for all rows: (K, N)."""
        parts: dict[int, np.ndarray] = {}

        def task(i: int, batch: pa.RecordBatch) -> None:
            parts[i] = kernel(self._read(batch, False)[0], *params)

        run_stream(task, self._batches(False), self.n_threads)
        if not parts:
            raise ValueError(f"Found array with 0 sample(s) (shape=(0, {self.n_features})) while 1 is required.")
        return np.concatenate([parts[i] for i in range(len(parts))], axis=1)

    def row_buffers(self, size: int) -> None:
        """Nothing is kept per row."""
        return

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """All rows once, shuffled: parts in random order, and the rows of several parts mixed."""
        pool: list[tuple[Any, Any, Any]] = []
        for piece in chain(self.pieces(rng=rng), [None]):
            if piece is not None:
                pool.append(piece)
            if piece is None or sum(len(X) for X, _, _ in pool) >= _SHUFFLED_ROWS:
                yield from _mixed(pool, size, rng)
                pool = []

    def sample(self, n_rows: int, rng: np.random.Generator, *, alike: bool = False) -> StreamBlocks | MemoryBlocks:
        """Random rows, held in memory: as many as asked for, or as fit; drawn in one pass, later ones from these."""
        if n_rows >= self.n_rows:
            return self
        if alike:
            if n_rows not in self._alike:
                self._alike = {n_rows: self._held(self._drawn(n_rows, self.n_rows, rng))}
            return self._alike[n_rows]
        if self._sampled is None:
            most = int(np.clip(_SAMPLE_BYTES / (8 * (self.n_features + 1)), 1, self.n_rows))
            self._sampled = self._held(self._drawn(most, self.n_rows, rng))
        return self._sampled.sample(n_rows, rng)

    def some(self, n_rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """Up to so many random rows of positive weight, as (X, Y, c)."""
        assert self.target is not None
        return self._drawn(n_rows, self.target.n_weighted, rng, weighted=self.layout.weighted)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """X of the rows of these numbers, which are in order."""
        return joined(list(self._picked(rows, with_labels=False)))[0]

    def at_hand(self) -> StreamBlocks | MemoryBlocks:
        """The rows in memory, if they need little of it; otherwise these."""
        if 8 * self.n_rows * self.n_features > _HELD_BYTES:
            return self
        held = self._held(joined(list(self.pieces())))
        held.n_passes = self.n_passes
        return held

    def _drawn(self, n: int, n_all: int, rng: np.random.Generator, *, weighted: bool = False) -> tuple[Any, Any, Any]:
        """N random rows out of `n_all`, those that would be drawn in memory too, in one pass."""
        if n == 0:
            return np.empty((0, self.n_features)), np.empty(0, dtype=np.intp), None
        rows = np.arange(n_all) if n >= n_all else np.sort(rng.choice(n_all, n, replace=False, shuffle=False))
        return joined(list(self._picked(rows, weighted=weighted)))

    def _picked(
        self, rows: np.ndarray, *, with_labels: bool = True, weighted: bool = False
    ) -> Iterator[tuple[Any, Any, Any]]:
        """The rows of these numbers, which are in order, batch by batch; if `weighted`, only those of weight count."""
        first = 0
        for X, Y, c in self.pieces(with_labels=with_labels):
            counted = np.flatnonzero(c > 0) if weighted and c is not None else np.arange(len(X))
            here = counted[rows[slice(*np.searchsorted(rows, [first, first + len(counted)]))] - first]
            yield X[here], None if Y is None else Y[here], None if c is None else c[here]
            first += len(counted)

    def _held(self, rows: tuple[Any, Any, Any]) -> MemoryBlocks:
        """Rows in memory, weighted so that their sums estimate those of all."""
        X, Y, c = rows
        total = float(self.n_rows) if self.target is None else self.target.total
        if len(X) < self.n_rows:
            c = np.full(len(X), total / len(X)) if c is None else rescaled(c, total)
        return MemoryBlocks(X, Y, c, self.n_classes, n_threads=self.n_threads)


def _mixed(pool: list[tuple[Any, Any, Any]], size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
    """The rows of some pieces in random order, `size` at a time."""
    if not pool:
        return
    X, Y, c = joined(pool)
    order = rng.permutation(len(X))
    for start in range(0, len(X), size):
        rows = order[start : start + size]
        yield X[rows], None if Y is None else Y[rows], None if c is None else c[rows]


def _guarded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that have rows; what goes wrong while they are read is said as a sentence."""
    import pyarrow as pa

    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator, None)
        except (pa.ArrowException, OSError) as error:
            raise OSError(
                f"The rows of X could not be read: {str(error).splitlines()[0]} Nothing was fitted or predicted; see "
                "that all files are there, whole and of one schema."
            ) from error
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def record_batches(dataset: Any, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a Dataset, Table or RecordBatchReader, up to `size` at a time where the source can be cut."""
    import pyarrow as pa

    if hasattr(dataset, "get_fragments"):
        return DatasetStream(dataset).batches(dataset.schema.names, size)
    if isinstance(dataset, pa.Table):
        return (batch for batch in dataset.to_batches(max_chunksize=size) if batch.num_rows)
    if isinstance(dataset, pa.RecordBatchReader):
        return (batch for batch in dataset if batch.num_rows)
    raise TypeError(f"dataset is a {type(dataset).__name__}: pass a pyarrow Dataset, Table or RecordBatchReader.")
