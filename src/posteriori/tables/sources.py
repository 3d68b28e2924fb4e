"""Sources of rows to be encoded: tables, arrays, streams of Arrow and Dask DataFrames.

A source knows its columns, and how its rows are summarised and encoded: what comes out is of the library that went in.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sp

from posteriori.rows.dask import is_dask_frame
from posteriori.rows.dask_graph import tree
from posteriori.rows.dask_tasks import in_partition
from posteriori.rows.matrices import collected, hand_over, is_table, open_table, read_matrix, require_shape
from posteriori.rows.pieces import require_unique
from posteriori.rows.streams import Streamable, open_stream, record_batches
from posteriori.tables.columns import EMPTY
from posteriori.tables.encode import encode
from posteriori.tables.plans import Encoding
from posteriori.tables.summaries import Summary, merge_summaries, summarise_batches
from posteriori.tables.surprises import Surprises

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["EncodedDataset", "Source", "open_source"]

_ROWS = 1 << 16
"""Rows of a batch of a data set."""

Batch = dict[str, Any]
"""Raw columns, of narwhals, NumPy or Arrow, by their names."""


class Source(Protocol):
    """Rows to be encoded."""

    @property
    def names(self) -> list[str]:
        """Names of all columns, the target's too."""

    named: bool
    """Whether the names are the user's own strings."""
    positional: bool
    """Whether columns are known by their places alone."""

    def summaries(self, skip: Collection[str] = (), target: Any = None) -> list[Summary]:
        """Summaries of all columns but those to skip, in one pass.

        `target` is the name of the column with the labels, or the labels themselves where the rows are in memory.
        """

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """The rows as numbers, then the carried columns.

        `renamed` has the names of the fit for given columns, where they differ. `library` is "default" for that of the
        input, "pandas" or "polars".
        """


def open_source(X: Any) -> Source:
    """The rows of a table, a query, an array, a list of rows, a stream of Arrow batches or a Dask DataFrame.

    Examples
    --------
    >>> open_source([[1.0, "a"], [2.0, "b"]]).names
    ['x0', 'x1']
    """
    if sp.issparse(X):
        raise TypeError(
            f"X is a sparse matrix ({type(X).__name__}), which TableEncoder does not take: sparse data are numbers "
            "already; pass them to the classifier, or X.toarray() here."
        )
    X = collected(X)
    arrow, dataset = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    if isinstance(X, Streamable) or (dataset is not None and isinstance(X, dataset.Dataset)):
        return DatasetSource(X)
    if arrow is not None and isinstance(X, arrow.RecordBatchReader):
        return ReaderSource(X)
    if is_dask_frame(X):
        return DaskSource(X)
    return TableSource(X) if is_table(X) else ArraySource(X)


def _features(names: list[str], skip: Collection[str]) -> list[str]:
    return [name for name in names if name not in skip]


def _with_forms(summaries: list[Summary], schema: Any) -> list[Summary]:
    """Summaries whose dtype says how the text of a column was read, where a file has told so in an Arrow schema."""
    arrow = sys.modules.get("pyarrow")
    if arrow is None or not isinstance(schema, arrow.Schema):
        return summaries
    from posteriori.tables.surveys import FORM

    forms = {field.name: field.metadata[FORM].decode() for field in schema if FORM in (field.metadata or {})}
    return [replace(summary, dtype=forms.get(summary.name, summary.dtype)) for summary in summaries]


def _rename(batch: Batch, renamed: dict[str, str]) -> Batch:
    return {renamed.get(name, name): raw for name, raw in batch.items()}


# In memory


class TableSource:
    """A table of pandas, polars or Arrow."""

    positional = False

    def __init__(self, X: Any) -> None:
        table = open_table(X)
        require_shape(table.shape, given=X)
        self.X = X
        self.names = [str(name) for name in table.columns]
        require_unique(self.names)
        self.named = all(isinstance(name, str) for name in table.columns)
        self.batch: Batch = dict(zip(self.names, table.iter_columns(), strict=True))

    def summaries(self, skip: Collection[str] = (), target: Any = None) -> list[Summary]:
        """Summaries of all columns but those to skip."""
        found = summarise_batches(iter([self.batch]), _features(self.names, skip), target)
        return _with_forms(found, getattr(self.X, "schema", None))

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """A table of the same library, with its index, or of the one asked for."""
        import narwhals as nw

        matrix = encode(encoding, _rename(self.batch, renamed))
        columns, like = [self.batch[name] for name in carried], next(iter(self.batch.values()))
        own = like.implementation.value
        if library not in ("default", own):
            convert = "to_pandas" if library == "pandas" else "to_polars"
            columns = [nw.from_native(getattr(values, convert)(), series_only=True) for values in columns]
            own = library
        frame = _frame(matrix, encoding.names, own, nw.maybe_get_index(like))
        table = (frame.with_columns(*columns) if columns else frame).to_native()
        return hand_over(table, matrix, encoding.names) if own == "pyarrow" else table


class ArraySource:
    """An array or a list of rows."""

    named = False
    positional = True

    def __init__(self, X: Any) -> None:
        matrix = _read_array(X)
        self.batch: Batch = {f"x{d}": matrix[:, d] for d in range(matrix.shape[1])}
        self.names = list(self.batch)

    def summaries(self, skip: Collection[str] = (), target: Any = None) -> list[Summary]:
        """Summaries of all columns but those to skip."""
        return summarise_batches(iter([self.batch]), _features(self.names, skip), target)

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """An array, or the table asked for."""
        matrix = encode(encoding, _rename(self.batch, renamed))
        return matrix if library == "default" else _frame(matrix, encoding.names, library).to_native()


def _frame(matrix: np.ndarray, names: list[str], library: Any, index: Any = None) -> Any:
    """A table of narwhals; pandas shares the memory of the matrix, which is ours to give."""
    import narwhals as nw

    if library != "pandas":
        return nw.from_numpy(matrix, names, backend=library)
    import pandas as pd

    return nw.from_native(pd.DataFrame(matrix, columns=names, index=index, copy=False), eager_only=True)


def _read_array(X: Any) -> np.ndarray:
    """A matrix of numbers, or of objects where rows mix numbers with text."""
    if isinstance(X, np.ndarray):
        array = X
    else:
        try:
            array = np.asarray(X)
            if array.dtype.kind in "US" and isinstance(X, (list, tuple)):
                array = np.asarray(X, dtype=object)  # numbers beside text stay numbers
        except ValueError as error:
            raise ValueError(f"X must be a table or a matrix with rows of equal length: {error}") from error
    if array.dtype.kind in "biufc":
        return np.asarray(read_matrix(X)[0])
    if array.ndim == 0:
        raise ValueError(
            f"X is of type {type(X).__name__}, which has no rows: pass a table (pandas, polars or Arrow), "
            "an array, a list of rows, or a pyarrow Dataset or RecordBatchReader."
        )
    require_shape(array.shape, given=X)
    return array


# Streams of Arrow


class ReaderSource:
    """A RecordBatchReader, which can be read once."""

    named = True
    positional = False

    def __init__(self, X: Any) -> None:
        self.X, self.names = X, list(X.schema.names)
        require_unique(self.names)

    def batches(self) -> Iterator[Batch]:
        """All rows, batch by batch."""
        for batch in record_batches(self.X, _ROWS):
            yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def summaries(self, skip: Collection[str] = (), target: Any = None) -> list[Summary]:
        """Summaries of all columns but those to skip, one batch in memory at a time."""
        found = summarise_batches(self.batches(), _features(self.names, skip), target)
        return _with_forms(found, self.X.schema)

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """A reader of rows that are encoded while they are read."""
        import pyarrow as pa

        schema = _encoded_schema(encoding, self.X.schema, carried)

        def batches() -> Iterator[pa.RecordBatch]:
            surprises = Surprises()
            for batch in self.batches():
                matrix = encode(encoding, _rename(batch, renamed), surprises)
                yield pa.record_batch([*matrix.T, *(batch[name] for name in carried)], schema=schema)
            surprises.warn()

        return pa.RecordBatchReader.from_batches(schema, batches())


class DatasetSource(ReaderSource):
    """A data set of Arrow, which can be read again and again."""

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """Rows that are encoded whenever they are read."""
        return EncodedDataset(encoding, self.X, renamed, carried)


def _encoded_schema(encoding: Encoding, schema: pa.Schema, carried: list[str]) -> pa.Schema:
    import pyarrow as pa

    numbers = [pa.field(name, pa.float64()) for name in encoding.names]
    return pa.schema([*numbers, *(schema.field(name) for name in carried)])


class EncodedDataset(Streamable):
    """The rows that `TableEncoder.transform` makes of a `pyarrow.dataset.Dataset`; classifiers read it pass by pass.

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
        self.encoding, self.dataset, self.renamed, self.carried = encoding, dataset, renamed, carried
        self.schema: pa.Schema = _encoded_schema(encoding, dataset.schema, carried)

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
        self.raw = open_stream(encoded.dataset)

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        return self._encoded(self.raw.batches(self._needed(columns), size), columns)

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, parts of them in random order."""
        return self._encoded(self.raw.shuffled(self._needed(columns), size, rng), columns)

    def stamp(self) -> Any:
        """Sizes and times of the files."""
        return self.raw.stamp()

    def _needed(self, columns: list[str]) -> list[str]:
        """The columns to read for these; all of them if one is encoded, as a row is encoded in one step."""
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
        surprises = Surprises()
        for batch in batches:
            raw = {
                renamed.get(name, name): values for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            matrix = encode(encoding, raw, surprises) if numbers else None
            arrays = [batch.column(name) if name in carried else pa.array(matrix[:, place[name]]) for name in columns]  # type: ignore[index]
            yield pa.record_batch(arrays, schema=schema)
        surprises.warn()


# Dask


class DaskSource:
    """A Dask DataFrame, whose partitions are summarised and encoded on their workers."""

    named = True
    positional = False

    def __init__(self, X: Any) -> None:
        self.X, self.names = X, [str(name) for name in X.columns]
        require_unique(self.names)

    def summaries(self, skip: Collection[str] = (), target: Any = None) -> list[Summary]:
        """Summaries of all columns but those to skip, merged in the order of the partitions."""
        import dask

        summarised = dask.delayed(summarise_partition, pure=False)
        labels = target if isinstance(target, str) else None
        parts = [summarised(rows, tuple(skip), number, labels) for number, rows in enumerate(self.X.to_delayed())]
        _, found = dask.compute(tree(dask.delayed(merge_partitions, pure=False), parts))[0]
        if not found:
            raise ValueError("Found array with 0 sample(s) in X while a minimum of 1 is required.")
        return found

    def encoded(self, encoding: Encoding, renamed: dict[str, str], carried: list[str], library: str) -> Any:
        """A Dask DataFrame of the encoded rows, computed when it is asked for."""
        import pandas as pd

        empty = np.empty((0, len(encoding.names)))
        features = pd.DataFrame(empty, columns=encoding.names, index=self.X._meta.index)
        meta = features.assign(**{name: self.X._meta[name] for name in carried})
        return self.X.map_partitions(encode_partition, encoding, renamed, carried, meta=meta)


Found = tuple[int, list[Summary]]
"""The number of a partition, or of the first of several, and the summaries of its columns: none if it is empty."""


def summarise_partition(rows: pd.DataFrame, skip: tuple[str, ...], number: int, target: str | None = None) -> Found:
    """Summaries of one partition."""
    with in_partition(number):
        return number, TableSource(rows).summaries(skip, target) if len(rows) else []


def merge_partitions(found: Sequence[Found]) -> Found:
    """Summaries of neighbouring partitions, whose columns must be of one kind each."""
    filled = [(number, summaries) for number, summaries in found if summaries]
    if not filled:
        return found[0]
    first, total = filled[0]
    for number, summaries in filled[1:]:
        _require_same_columns(first, total, number, summaries)
        total = [merge_summaries(a, b) for a, b in zip(total, summaries, strict=True)]
    return first, total


def _require_same_columns(i: int, a: list[Summary], j: int, b: list[Summary]) -> None:
    if [column.name for column in a] != [column.name for column in b]:
        differ = sorted({column.name for column in a} ^ {column.name for column in b}) or "in another order"
        raise ValueError(f"Partitions {i} and {j} of X differ in their columns: {differ}.")
    for p, q in zip(a, b, strict=True):
        if p.kind != q.kind and EMPTY not in (p.kind, q.kind):
            raise ValueError(
                f"Column {p.name!r} of X is of kind {p.kind} in partition {i} and of kind {q.kind} in partition {j}: "
                "convert it to one kind."
            )


def encode_partition(
    rows: pd.DataFrame, encoding: Encoding, renamed: dict[str, str], carried: list[str]
) -> pd.DataFrame:
    """Features of one partition as float64, then the carried columns."""
    import pandas as pd

    matrix = np.empty((0, len(encoding.names)))
    if len(rows):
        matrix = encode(encoding, _rename(TableSource(rows).batch, renamed))
    features = pd.DataFrame(matrix, columns=encoding.names, index=rows.index, copy=False)
    return features.assign(**{name: rows[name] for name in carried})
