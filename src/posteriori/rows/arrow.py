"""Data sets of Arrow, read again in every pass: memory is bounded whatever the number of rows.

Arrow reads ahead while we work on the batches that have come, so that disk and arithmetic overlap. What is summed is
added in the order of the rows: results depend neither on threads nor on chance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.rows.blocks import Preparable, facts_of
from posteriori.rows.features import Example, Features, NotFinite, first_not_finite
from posteriori.rows.matrices import as_array
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
from posteriori.rows.streams import Stream, is_stream, open_stream
from posteriori.threads import run_stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ENGINE", "StreamBlocks", "StreamFeatures", "read_stream_for_fit", "stream_column"]

_BLOCK_BYTES = 4 << 20
"""Features and logits of one batch: what stays in the cache of a core."""
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 17
"""Fewest and most rows of a batch."""
_SAMPLE_BYTES = 32 << 20
"""Bytes of features of the random rows from which starts and preconditioners come."""
_HELD_BYTES = 128 << 20
"""Rows of a fit of up to so many bytes are held in memory instead of being read again, shifted and scaled."""
_SHUFFLED_ROWS = 1 << 18
"""Rows that are mixed with one another before they are handed out in batches."""


class StreamFeatures(Features):
    """The features of rows that are read again in every pass."""

    def __init__(self, stream: Stream, names: list[str]) -> None:
        self.stream, self._names = stream, names
        self._held: tuple[Any, tuple[Any, Any, Any]] | None = None

    @property
    def names(self) -> list[str]:
        """Column names."""
        return self._names

    @property
    def n_features(self) -> int:
        """D."""
        return len(self._names)

    def first_not_finite(self, *, missing_allowed: bool = False) -> NotFinite | None:
        """The first value that is NaN or infinite, if there is one: one pass, at most."""
        first = 0
        for X, _, _ in StreamBlocks(self.stream, Layout(tuple(self._names)), None, 1).pieces(with_labels=False):
            found = first_not_finite(X, self._names, missing_allowed=missing_allowed, first_row=first)
            if found is not None:
                return found
            first += len(X)
        return None

    def blocks(
        self,
        target: Any,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> StreamBlocks | MemoryBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any; few rows of a fit are read once."""
        options: dict[str, Any] = {"shift": shift, "scale": scale, "n_threads": n_threads}
        if target is None:
            check = self.require_finite if finite else None
            return StreamBlocks(self.stream, Layout(tuple(self._names)), None, n_classes, check=check, **options)
        if 16 * target.n_rows * self.n_features <= _HELD_BYTES:
            if self._held is None or self._held[0] is not target:
                pieces = StreamBlocks(self.stream, target.layout, target, n_classes).pieces()
                self._held = target, joined(list(pieces))
            return MemoryBlocks(*self._held[1], n_classes, **options)
        return StreamBlocks(self.stream, target.layout, target, n_classes, **options)


class ArrowEngine:
    """Data sets of Arrow: Parquet, CSV and other files, read piece by piece."""

    name = "Arrow data set"
    holds_all_rows = False

    def claims(self, X: Any, device: str | None) -> bool:
        """Whether X is a data set, rows encoded while they are read, or a reader, which is refused when it is read."""
        return is_stream(X)

    def read(self, X: Any, drop: Collection[str]) -> StreamFeatures:
        """The features of new rows; nothing is read but the schema."""
        stream = open_stream(X)
        names = [name for name in stream.schema.names if name not in drop]
        require_numbers(stream.schema, names)
        return StreamFeatures(stream, names)

    def read_for_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
    ) -> tuple[StreamFeatures, ColumnTarget]:
        """Features and target of the rows of a fit: one pass over the columns of labels and weights."""
        return read_stream_for_fit(open_stream(X), y, sample_weight, classes, class_weight)

    def labels(self, X: Any, y: Any) -> Any:
        """The column that y names; anything else as it is."""
        return stream_column(open_stream(X), y) if isinstance(y, str) else y

    def examples(self, X: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> list[Example]:
        """A data set that has labels and weights as columns."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        columns = {f"x{d}": X[:, d] for d in range(X.shape[1])} | {"label": y} | ({} if c is None else {"weight": c})
        return [Example("Arrow data set", ds.dataset(pa.table(columns)), "label", None if c is None else "weight")]


ENGINE = ArrowEngine()


def read_stream_for_fit(
    stream: Stream, y: Any, sample_weight: Any, classes: Any, class_weight: Any
) -> tuple[StreamFeatures, ColumnTarget]:
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
    return StreamFeatures(stream, names), target


def _counted(stream: Stream, column: str) -> int:
    return sum(batch.num_rows for batch in stream.batches([column], _MOST_ROWS))


def stream_column(stream: Stream, name: str) -> np.ndarray:
    """All values of one column, (N,)."""
    import pyarrow as pa

    named_columns(stream.schema, name, None)
    values = [batch.column(name) for batch in stream.batches([name], _MOST_ROWS)]
    return as_array(pa.chunked_array(values, stream.schema.field(name).type))


class StreamBlocks(Preparable):
    """Rows that are read again in every pass.

    Parameters
    ----------
    stream : Stream
    layout : Layout
    target : ColumnTarget or None (prediction)
    n_classes : int
    shift, scale : ndarray (D,) or None
        Blocks hold (X - shift) * scale.
    n_threads : int
    check : function or None
        Called when `map_rows` has come across values that are not finite, before anything is made of them.
    """

    sparse = False

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
        check: Callable[[], None] | None = None,
    ) -> None:
        self.stream, self.layout, self.target, self.n_classes = stream, layout, target, n_classes
        self.shift, self.scale, self.n_threads, self.check = shift, scale, n_threads, check
        self.n_features = len(layout.features)
        self.n_passes = 0
        self._sampled: MemoryBlocks | None = None
        self._drawn_as_in_memory: dict[int, MemoryBlocks] = {}
        self._stamp = stream.stamp()

    @cached_property
    def n_rows(self) -> int:
        """The number of rows N; rows are counted if no target has been read."""
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
                f"The rows have changed during the fit: there were {self.n_rows} at first and {seen} in pass "
                f"{self.n_passes}, or files were written. Nothing was fitted; fit again when the files do not change."
            )

    def _read(self, batch: pa.RecordBatch, with_labels: bool) -> tuple[Any, Any, Any]:
        return read_piece(batch, self.layout, with_labels, self.shift, self.scale)

    @property
    def n_weighted(self) -> int:
        """Rows of positive weight."""
        return self.n_rows if self.target is None else self.target.n_weighted

    def map_sum(self, kernel: Callable[..., Any], *params: Any, row_values: Any = None, coarse: bool = False) -> Any:
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
        suspicious = threading.Event()

        def task(i: int, batch: pa.RecordBatch) -> None:
            X = self._read(batch, False)[0]
            if self.check is not None and not np.isfinite(X).all() and not suspicious.is_set():
                suspicious.set()  # one look at all rows is enough: it raises, or values overflow where they are shifted
                self.check()
            parts[i] = kernel(X, *params)

        run_stream(task, self._batches(False), self.n_threads)
        if not parts:
            raise ValueError(f"Found array with 0 sample(s) (shape=(0, {self.n_features})) while 1 is required.")
        return np.concatenate([parts[i] for i in range(len(parts))], axis=1)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """All rows once, shuffled: parts in random order, and the rows of several parts mixed."""
        pool: list[tuple[Any, Any, Any]] = []
        for piece in chain(self.pieces(rng=rng), [None]):
            if piece is not None:
                pool.append(piece)
            if piece is None or sum(len(X) for X, _, _ in pool) >= _SHUFFLED_ROWS:
                yield from _mixed(pool, size, rng)
                pool = []

    def sample(
        self, n_rows: int, rng: np.random.Generator, *, as_in_memory: bool = False
    ) -> StreamBlocks | MemoryBlocks:
        """Random rows, held in memory: as many as asked for, or as fit; drawn in one pass, later ones from these."""
        if n_rows >= self.n_rows:
            return self
        if as_in_memory:
            if n_rows not in self._drawn_as_in_memory:
                self._drawn_as_in_memory = {n_rows: self._random(n_rows, rng)}
            return self._drawn_as_in_memory[n_rows]
        if self._sampled is None:
            most = int(np.clip(_SAMPLE_BYTES / (8 * (self.n_features + 1)), 1, self.n_rows))
            self._sampled = self._random(most, rng)
        return self._sampled.sample(n_rows, rng)

    def take(self, rows: np.ndarray, *, weighted: bool = False) -> tuple[Any, Any, Any]:
        """The rows of these numbers, which are in order, as (X, Y, c), in one pass."""
        if not rows.size:
            return np.empty((0, self.n_features)), np.empty(0, dtype=np.intp), None
        return joined(list(self._taken(rows, weighted and self.layout.weighted)))

    def prepared(self) -> StreamBlocks | MemoryBlocks:
        """The rows in memory, if they need little of it; otherwise these."""
        if 8 * self.n_rows * self.n_features > _HELD_BYTES:
            return self
        held = self._held(joined(list(self.pieces())))
        held.n_passes = self.n_passes
        return held

    def _random(self, n: int, rng: np.random.Generator) -> MemoryBlocks:
        """n random rows, the same ones that would be drawn in memory."""
        N = self.n_rows
        return self._held(self.take(np.sort(rng.choice(N, n, replace=False, shuffle=False)) if n < N else np.arange(N)))

    def _taken(self, rows: np.ndarray, weighted: bool) -> Iterator[tuple[Any, Any, Any]]:
        """The rows of these numbers batch by batch; if `weighted`, only those of positive weight are numbered."""
        first = 0
        for X, Y, c in self.pieces(with_labels=self.target is not None):
            numbered = np.flatnonzero(c > 0) if weighted and c is not None else np.arange(len(X))
            here = numbered[rows[slice(*np.searchsorted(rows, [first, first + len(numbered)]))] - first]
            yield X[here], None if Y is None else Y[here], None if c is None else c[here]
            first += len(numbered)

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
