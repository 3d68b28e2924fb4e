"""Where rows come from: tables, arrays, lists of rows and streams, as batches of raw columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.rows.arrow import DatasetStream
from posteriori.rows.dask import is_dask_frame
from posteriori.rows.matrices import is_table, open_table, read_matrix, require_shape
from posteriori.rows.pieces import require_unique

__all__ = ["Source", "open_source"]

_ROWS = 1 << 16
"""Of a data set, read at a time."""


@dataclass(frozen=True)
class Source:
    """Rows to be encoded, from anywhere.

    Attributes
    ----------
    names : list of str
        Of all columns, the target's too.
    form : {"table", "array", "stream", "dask"}
    named : bool
        Whether the names are the user's own strings.
    batches : function
        Gives an iterator over batches; each maps names to raw columns: of narwhals, NumPy or Arrow.
    """

    names: list[str]
    form: str
    named: bool
    batches: Callable[[], Iterator[dict[str, Any]]]


def open_source(X: Any) -> Source:
    """The rows of a table, an array, a list of rows, or a stream of Arrow batches.

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
    if _is_stream(X):
        names = list(X.schema.names)
        require_unique(names)
        return Source(names, "stream", True, lambda: _stream_batches(X))
    if is_dask_frame(X):
        require_unique(names := [str(name) for name in X.columns])
        return Source(names, "dask", True, lambda: iter(()))  # its partitions are read on the workers
    if is_table(X):
        table = open_table(X)
        require_shape(table.shape, given=X)
        names = [str(name) for name in table.columns]
        require_unique(names)
        named = all(isinstance(name, str) for name in table.columns)
        return _one_batch(dict(zip(names, table.iter_columns(), strict=True)), "table", named)
    matrix = _read_matrix(X)
    return _one_batch({f"x{d}": matrix[:, d] for d in range(matrix.shape[1])}, "array", False)


def _one_batch(columns: dict[str, Any], form: str, named: bool) -> Source:
    return Source(list(columns), form, named, lambda: iter([columns]))


def _is_stream(X: Any) -> bool:
    """Whether X is a data set or a reader of Arrow, to be read batch by batch."""
    arrow, dataset = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    return (dataset is not None and isinstance(X, dataset.Dataset)) or (
        arrow is not None and isinstance(X, arrow.RecordBatchReader)
    )


def _stream_batches(X: Any) -> Iterator[dict[str, Any]]:
    batches = DatasetStream(X).batches(X.schema.names, _ROWS) if hasattr(X, "to_batches") else X
    for batch in batches:
        if batch.num_rows:
            yield dict(zip(batch.schema.names, batch.columns, strict=True))


def _read_matrix(X: Any) -> np.ndarray:
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
            f"X is of type {type(X).__name__}, which has no rows: pass a table (pandas, polars or Arrow; a lazy one "
            "collected), an array, a list of rows, or a pyarrow Dataset or RecordBatchReader."
        )
    require_shape(array.shape, given=X)
    return array
