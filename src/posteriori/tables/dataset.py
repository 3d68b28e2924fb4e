"""A data set of Arrow whose rows are encoded whenever they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.rows.arrow import DatasetStream
from posteriori.tables.encode import encode
from posteriori.tables.plans import Encoding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EncodedDataset"]

_ROWS = 1 << 16
"""In a batch, unless asked otherwise."""


class EncodedDataset:
    """What `TableEncoder.transform` makes of a `pyarrow.dataset.Dataset`; classifiers read it pass by pass.

    Parameters
    ----------
    encoding : Encoding
    dataset : pyarrow.dataset.Dataset
    renamed : dict of str to str
        Names of the fit for columns of the data set, where they differ.
    carried : list of str
        Columns that pass untouched.
    """

    def __init__(self, encoding: Encoding, dataset: Any, renamed: dict[str, str], carried: list[str]) -> None:
        import pyarrow as pa

        self.encoding, self.dataset, self.renamed, self.carried = encoding, dataset, renamed, carried
        numbers = [pa.field(name, pa.float64()) for name in encoding.names]
        self.schema: pa.Schema = pa.schema([*numbers, *(dataset.schema.field(name) for name in carried)])

    def stream(self) -> _EncodedStream:
        """The rows as passes over the data read them."""
        return _EncodedStream(self)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, batch by batch."""
        return self.stream().batches(self.schema.names, _ROWS)

    def to_reader(self) -> pa.RecordBatchReader:
        """All rows, to be read once."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        return self.to_reader().read_all()

    def __repr__(self) -> str:
        return f"EncodedDataset({len(self.encoding.names)} features of {self.dataset!r})"


class _EncodedStream:
    """A `Stream` of encoded rows."""

    def __init__(self, encoded: EncodedDataset) -> None:
        self.encoded, self.schema = encoded, encoded.schema
        self.raw = DatasetStream(encoded.dataset)

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        return self._encoded(self.raw.batches(self._needed(columns), size), columns)

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, parts of them in random order."""
        return self._encoded(self.raw.shuffled(self._needed(columns), size, rng), columns)

    def stamp(self) -> Any:
        """Of the files."""
        return self.raw.stamp()

    def _needed(self, columns: list[str]) -> list[str]:
        """The columns to read for these: of numbers all, as what becomes of a row is one step."""
        encoding, renamed = self.encoded.encoding, self.encoded.renamed
        carried = [name for name in columns if name in self.encoded.carried]
        if len(carried) == len(columns):
            return carried
        kept = {column.name for column in encoding.columns if column.plan is not None}
        return [name for name in self.raw.schema.names if renamed.get(name, name) in kept or name in carried]

    def _encoded(self, batches: Iterator[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        encoding, renamed, carried = self.encoded.encoding, self.encoded.renamed, self.encoded.carried
        place = {name: d for d, name in enumerate(encoding.names)}
        schema = pa.schema([self.schema.field(name) for name in columns])
        numbers = any(name not in carried for name in columns)
        start = 0
        for batch in batches:
            raw = {
                renamed.get(name, name): values for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            matrix = encode(encoding, raw, start=start) if numbers else None
            start += batch.num_rows
            arrays = [batch.column(name) if name in carried else pa.array(matrix[:, place[name]]) for name in columns]  # type: ignore[index]
            yield pa.record_batch(arrays, schema=schema)
