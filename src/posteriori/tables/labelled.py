"""Rows of a stream whose class is known, without the columns that are left out; counted and sampled in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.rows.streams import Stream, Streamable, open_stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowCount", "RowsWithTarget", "count_values", "labelled"]

_ROWS = 1 << 16
"""Rows of a batch."""


def labelled(batch: pa.RecordBatch, target: str) -> pa.RecordBatch:
    """The rows of a batch whose target is known."""
    import pyarrow.compute as pc

    known = pc.invert(pc.is_null(batch.column(batch.schema.get_field_index(target)), nan_is_null=True))
    return batch.filter(known)


def count_values(column: pa.Array | pa.ChunkedArray, counts: dict[Any, int] | None = None) -> dict[Any, int]:
    """The number of rows with each value, added to `counts` if they are given, in the order of the values."""
    import pyarrow.compute as pc

    found = pc.value_counts(column)
    total = Counter(counts or {})
    total.update(dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)))
    return dict(sorted(total.items(), key=lambda pair: (str(type(pair[0])), pair[0])))


@dataclass(frozen=True)
class RowCount:
    """What one pass over the rows shows.

    Attributes
    ----------
    n_rows : int
        Rows whose class is known.
    n_unknown : int
        Rows that are left out.
    counts : dict
        The number of rows of each class.
    sample : pa.Table
        Some of the rows, chosen at random, in their order.
    """

    n_rows: int
    n_unknown: int
    counts: dict[Any, int]
    sample: pa.Table


class RowsWithTarget(Streamable):
    """The rows of a stream whose class is known, read again in every pass.

    Parameters
    ----------
    rows : Streamable or pyarrow Dataset
    target : str
        Name of the column with the classes.
    drop : names of columns
        Columns that are left out.

    Attributes
    ----------
    n_passes : int
        How often all rows have been read.
    """

    def __init__(self, rows: Any, target: str, drop: Collection[str] = ()) -> None:
        import pyarrow as pa

        self.rows, self.target, self.n_passes = rows, target, 0
        self.schema = pa.schema([field for field in rows.schema if field.name not in drop], rows.schema.metadata)

    def stream(self) -> StreamWithTarget:
        """The rows as passes over the data read them."""
        return StreamWithTarget(self)

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(self.stream().batches(self.schema.names, _ROWS), self.schema)

    def count(self, most: int, seed: int) -> RowCount:
        """Count the classes and choose at most so many rows at random, in one pass.

        Every row draws a number; the rows with the smallest are the sample.
        """
        import pyarrow as pa

        rng = np.random.default_rng(seed)
        counts: dict[Any, int] = {}
        sample, keys, n_unknown = self.schema.empty_table(), np.empty(0), 0
        for batch in open_stream(self.rows).batches(self.schema.names, _ROWS):
            known = labelled(batch, self.target)
            n_unknown += batch.num_rows - known.num_rows
            counts = count_values(known.column(known.schema.get_field_index(self.target)), counts)
            drawn = rng.random(known.num_rows)
            if len(keys) >= most:
                chosen = np.flatnonzero(drawn < keys.max())
                known, drawn = known.take(pa.array(chosen)), drawn[chosen]
            sample = pa.concat_tables([sample, pa.Table.from_batches([known], self.schema)])
            keys = np.concatenate([keys, drawn])
            if len(keys) > most:
                smallest = np.sort(np.argpartition(keys, most)[:most])
                sample, keys = sample.take(pa.array(smallest)).combine_chunks(), keys[smallest]
        self.n_passes += 1
        return RowCount(sum(counts.values()), n_unknown, counts, sample.combine_chunks())


class StreamWithTarget:
    """Batches of the rows whose class is known."""

    def __init__(self, data: RowsWithTarget) -> None:
        self.raw: Stream = open_stream(data.rows)
        self.data, self.schema, self.target = data, data.schema, data.target

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        return self._filtered(self.raw.batches(self._read(columns), size), columns)

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, larger parts of them in random order."""
        return self._filtered(self.raw.shuffled(self._read(columns), size, rng), columns)

    def stamp(self) -> Any:
        """A value that changes when the rows change."""
        return self.raw.stamp()

    def _read(self, columns: list[str]) -> list[str]:
        return columns if self.target in columns else [*columns, self.target]

    def _filtered(self, batches: Iterator[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = labelled(batch, self.target).select(columns)
            if known.num_rows:
                yield known
        self.data.n_passes += 1
