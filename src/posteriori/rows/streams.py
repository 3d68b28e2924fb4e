"""Streams of Arrow batches: rows that can be read again and again, a little ahead, in threads of Arrow's own."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DatasetStream", "Stream", "Streamable", "WithoutColumn", "is_stream", "open_stream", "record_batches"]

_AHEAD_BYTES = 64 << 20
"""Bytes of features that are read before they are asked for."""


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
        """A value that changes when the rows change, as far as that is visible without reading them."""


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
        except ValueError:  # Arrow does not give out the parts of a filtered data set
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
        """Options for Arrow: read a little ahead. By default it holds whole row groups of local Parquet files twice."""
        import pyarrow.dataset as ds

        ahead = int(np.clip(_AHEAD_BYTES / (8 * max(1, len(columns)) * size), 2, 16))
        options = {"columns": columns, "batch_size": size, "batch_readahead": ahead, "fragment_readahead": 2}
        if self._local and isinstance(self.dataset.format, ds.ParquetFileFormat):
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        return options


def _row_groups(fragment: Any) -> list[Any]:
    return list(fragment.split_by_row_group())


class Streamable(ABC):
    """Something that is not a data set of Arrow, but can be read like one: rows encoded while they are read."""

    schema: Any

    @abstractmethod
    def stream(self) -> Stream:
        """The rows as passes over the data read them."""


class WithoutColumn(Streamable):
    """The rows of a stream without one of its columns."""

    def __init__(self, rows: Stream, column: str) -> None:
        self.rows = rows
        self.schema = rows.schema.remove(rows.schema.get_field_index(column))

    def stream(self) -> Stream:
        """These rows."""
        return self

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        return self.rows.batches(columns, size)

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, larger parts of them in random order."""
        return self.rows.shuffled(columns, size, rng)

    def stamp(self) -> Any:
        """The stamp of the stream itself."""
        return self.rows.stamp()


def open_stream(X: Any) -> Stream:
    """A data set of Arrow, or rows encoded while they are read, as a stream."""
    if _is_reader(X):
        raise TypeError(
            "X is a RecordBatchReader, which can be read only once: pass a pyarrow Dataset, or X.read_all() if it fits "
            "into memory; predict_to takes readers."
        )
    return DatasetStream(X) if _is_dataset(X) else X.stream()


def record_batches(X: Any, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a Dataset, files, a Table or RecordBatchReader, once, up to `size` at a time where X can be cut."""
    arrow = sys.modules.get("pyarrow")
    if _is_dataset(X) or isinstance(X, Streamable):
        return open_stream(X).batches(X.schema.names, size)
    if _is_reader(X):
        return (batch for batch in X if batch.num_rows)
    if arrow is not None and isinstance(X, arrow.Table):
        return (batch for batch in X.to_batches(max_chunksize=size) if batch.num_rows)
    raise TypeError(f"dataset is a {type(X).__name__}: pass a pyarrow Dataset, Table or RecordBatchReader.")


def _is_dataset(X: Any) -> bool:
    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(X, dataset.Dataset)


def _is_reader(X: Any) -> bool:
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(X, arrow.RecordBatchReader)


def is_stream(X: Any) -> bool:
    """Whether X is a data set, rows encoded while they are read, or a reader, which is refused when it is opened."""
    return _is_dataset(X) or _is_reader(X) or isinstance(X, Streamable)


def _guarded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches that have rows; an error in reading them becomes one sentence."""
    import pyarrow as pa

    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator, None)
        except (pa.ArrowException, OSError) as error:
            raise OSError(
                f"The rows of X could not be read: {str(error).splitlines()[0]} Nothing was fitted or predicted; "
                "check that all files exist, are complete and have the same schema."
            ) from error
        if batch is None:
            return
        if batch.num_rows:
            yield batch
