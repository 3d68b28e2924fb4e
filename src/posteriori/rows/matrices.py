"""Whatever holds rows of numbers in memory, read as one (N, D) matrix.

Nothing is copied or converted that need not be: a float32, integer or boolean matrix stays what it is, as the kernels
convert one block at a time. That all values are finite is left to the first sum over the data, which sees every value
anyway.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from posteriori.parameters import first_names

if TYPE_CHECKING:
    import narwhals as nw

__all__ = [
    "NamedMatrix",
    "as_array",
    "as_table",
    "collected",
    "column",
    "column_names",
    "hand_over",
    "is_table",
    "labels_and_weights",
    "open_table",
    "read_matrix",
    "require_real",
    "require_shape",
    "table_matrix",
]

_KERNEL_DTYPES = "?bBhHiIlLqQfd"
"""Type codes that pass through: booleans, integers, float32 and float64."""

_ROWS_STACKED = 4096


@dataclass(frozen=True)
class NamedMatrix:
    """A matrix whose columns have names: read as a table of them is, and as fast as an array.

    Attributes
    ----------
    matrix : ndarray (N, D)
    names : list of str
    """

    matrix: np.ndarray
    names: list[str]


def read_matrix(X: Any, *, drop: Collection[str] = ()) -> tuple[np.ndarray | sp.csr_array, list[str] | None]:
    """Read a table, an array or a sparse matrix as one matrix of numbers.

    Parameters
    ----------
    X : table (pandas, polars, Arrow), NamedMatrix, array, list of rows, or scipy.sparse matrix or array, (N, D)
        Never modified, and copied only where layout or dtype demand it. Missing values of a table become NaN.
    drop : collection of str
        Columns of a table that are not features, such as the target; those that are absent are ignored.

    Returns
    -------
    matrix : ndarray or csr_array, (N, D)
        Of booleans, integers, float32 or float64, in any memory order.
    names : list of str, or None
        Column names of a table whose names are all strings.

    Raises
    ------
    ValueError
        If X is not two-dimensional, has no rows or no columns, holds something else than real numbers, or has
        two columns of one name.
    TypeError
        If an array of objects holds an object that is not a number.

    Examples
    --------
    >>> read_matrix([[1.0, 2.0], [3.0, 4.0]])
    (array([[1., 2.],
           [3., 4.]]), None)
    """
    names = None
    if type(X) is NamedMatrix:
        kept = [d for d, name in enumerate(X.names) if name not in drop]
        X, names = X.matrix if len(kept) == len(X.names) else X.matrix[:, kept], [X.names[d] for d in kept]
    X = collected(X)
    if type(X) is np.ndarray or sp.issparse(X):
        matrix = X
    elif is_table(X):
        matrix, names = _read_table(X, drop)
    else:
        matrix = _read_array_like(X)
    require_shape(matrix.shape, given=X)
    if sp.issparse(matrix):
        matrix = _canonical_csr(matrix)
    if matrix.dtype.char not in _KERNEL_DTYPES:
        matrix = _real_numbers(matrix)
    return matrix, names


def is_table(X: Any) -> bool:
    """Whether X is a table with named columns: pandas, polars, Arrow, another that narwhals knows, or a query.

    Examples
    --------
    >>> import pyarrow
    >>> is_table(pyarrow.table({"length": [39.1, 46.5]})), is_table([[39.1], [46.5]])
    (True, False)
    """
    if isinstance(X, (np.ndarray, list, tuple)) or sp.issparse(X):
        return False
    from narwhals.dependencies import is_into_dataframe

    return is_into_dataframe(X) or _is_record_batch(X) or _is_query(X)


def _is_query(X: Any) -> bool:
    """Whether X is a table that is not there yet: a LazyFrame of polars, or what gives out a stream of Arrow.

    A RecordBatchReader, which can be read only once, is not, and single columns are not either.
    """
    if not (hasattr(X, "__arrow_c_stream__") or hasattr(X, "collect")):
        return False
    from narwhals.dependencies import is_into_dataframe, is_into_series, is_polars_lazyframe

    if is_polars_lazyframe(X):
        return True
    arrow = sys.modules.get("pyarrow")
    known = () if arrow is None else (arrow.RecordBatchReader, arrow.ChunkedArray, arrow.Array)
    return hasattr(X, "__arrow_c_stream__") and not (isinstance(X, known) or is_into_series(X) or is_into_dataframe(X))


def collected(X: Any) -> Any:
    """A query as a table in memory: a LazyFrame of polars, a relation of DuckDB, any object with a stream of Arrow.

    Whatever else X is, it comes back as it is. A query is run each time that it is collected, and may give its rows in
    another order: what needs rows more than once collects first.

    Examples
    --------
    >>> import polars
    >>> collected(polars.LazyFrame({"length": [39.1, 46.5]}).filter(polars.col("length") > 40)).shape
    (1, 1)
    """
    if isinstance(X, (np.ndarray, list, tuple)) or sp.issparse(X) or not _is_query(X):
        return X
    if hasattr(X, "collect"):
        return X.collect()
    import pyarrow as pa

    return pa.table(X)


def column(X: Any, name: str, *, argument: str) -> np.ndarray:
    """Values of one named column of a table.

    Parameters
    ----------
    X : pandas, polars or Arrow table
    name : str
    argument : str
        The argument that holds the name, for the error message: "y", "sample_weight".

    Returns
    -------
    ndarray, (N,)

    Raises
    ------
    ValueError
        If X is not a table, or has no column of this name.

    Examples
    --------
    >>> import pyarrow
    >>> column(pyarrow.table({"species": ["Adelie", "Gentoo"]}), "species", argument="y")
    array(['Adelie', 'Gentoo'], dtype=object)
    """
    if not is_table(X):
        raise ValueError(
            f"{argument}={name!r} names a column, but X ({type(X).__name__}) has no named columns: "
            f"pass X as a table (pandas, polars or Arrow), or {argument} as an array."
        )
    table = open_table(X)
    if name not in table.columns:
        raise ValueError(
            f"{argument}={name!r} is not a column of X, whose columns are {first_names(table.columns)}: "
            f"pass one of these, or {argument} as an array."
        )
    return as_array(table[name].to_native())


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a table; None if X is not a table."""
    return list(open_table(X).columns) if is_table(X) else None


def labels_and_weights(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Labels and weights, looked up in the table X where they are names of its columns."""
    y = column(X, y, argument="y") if isinstance(y, str) else y
    weights = column(X, sample_weight, argument="sample_weight") if isinstance(sample_weight, str) else sample_weight
    return y, weights


def open_table(X: Any, *, argument: str = "X") -> nw.DataFrame[Any]:
    """The table behind narwhals' common interface, its column names checked to be unique."""
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    X = collected(X)
    if _is_record_batch(X):
        X = sys.modules["pyarrow"].Table.from_batches([X])
    try:
        return nw.from_native(X, eager_only=True)
    except DuplicateError as error:
        raise ValueError(
            f"{argument} has two columns of one name: give each column a name of its own. ({error})"
        ) from None


def as_table(X: Any, names: Collection[Any] | None, *, argument: str = "X") -> nw.DataFrame[Any]:
    """A table behind narwhals' common interface; a dense array (n, D) becomes one, with these names or x0, x1, ..."""
    if is_table(X):
        return open_table(X, argument=argument)
    values = np.asarray(X)
    if values.ndim != 2:
        raise TypeError(f"{argument} must be a table or a dense array (n, D), got {type(X).__name__}.")
    import pandas as pd

    columns = [f"x{d}" for d in range(values.shape[1])] if names is None else [str(name) for name in names]
    return open_table(pd.DataFrame(values, columns=columns), argument=argument)


def as_array(values: Any) -> np.ndarray:
    """One-dimensional values of any library as an array."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(values, arrow.ChunkedArray):
        if values.null_count == 0 and (arrow.types.is_string(values.type) or arrow.types.is_large_string(values.type)):
            return _texts(values)
        # Arrow converts a chunked dictionary wrongly: missing labels are replaced by others.
        values = values.combine_chunks()
    return np.asarray(values)


def _texts(values: Any) -> np.ndarray:
    """Texts as objects, each text that repeats itself as one object: a thousandth of the work where they are few."""
    import pyarrow as pa

    encoded = values.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray) or 2 * len(encoded.dictionary) > len(encoded):
        return np.asarray(values.combine_chunks())
    return encoded.dictionary.to_numpy(zero_copy_only=False)[encoded.indices.to_numpy()]


class _Made(NamedTuple):
    """The matrix (N, D) from which a table was made, the columns it became, and those that were added."""

    matrix: np.ndarray
    names: list[str]
    others: list[str]


_made: dict[int, tuple[weakref.ref[Any], _Made]] = {}
"""Matrices from which Arrow tables were made, by the identity of the tables that are alive."""


def hand_over(table: Any, matrix: np.ndarray, names: list[str]) -> Any:
    """Give out an Arrow table together with the matrix from which its columns `names` were made.

    A reader of the table then gets the matrix itself, without a copy. That is safe because an Arrow table cannot
    change. The matrix is released with the table.
    """
    key, own = id(table), set(names)
    others = [name for name in table.column_names if name not in own]
    matrix = matrix.view()
    matrix.flags.writeable = False  # as the columns of the table are
    _made[key] = weakref.ref(table, lambda _: _made.pop(key, None)), _Made(matrix, names, others)
    return table


def _handed_over(X: Any, drop: Collection[str]) -> _Made | None:
    """The matrix that comes with X, if what is asked for are its columns and no others."""
    reference, made = _made.get(id(X), (None, None))
    if reference is None or made is None or reference() is not X:
        return None
    exact = set(made.others) <= set(drop) and not set(made.names) & set(drop)
    return made if exact else None


def _read_table(X: Any, drop: Collection[str]) -> tuple[np.ndarray, list[str] | None]:
    """All columns of a table but the dropped ones, and their names."""
    if (made := _handed_over(X, drop)) is not None:
        return made.matrix, made.names
    table = open_table(X)
    dropped = [name for name in table.columns if name in drop]
    if dropped:
        table = table.drop(dropped)
    names = table.columns
    return table_matrix(table), names if all(isinstance(name, str) for name in names) else None


def table_matrix(table: nw.DataFrame[Any], *, argument: str = "X") -> np.ndarray:
    """All columns of a table as one matrix of their common dtype."""
    plain = all(_is_number(dtype) and not _is_wide(dtype) for dtype in table.schema.values())
    matrix = table.to_numpy() if plain and not table.implementation.is_pyarrow() else None
    if matrix is None or matrix.dtype.kind == "O":
        # Mixed or nullable columns have no common dtype for some libraries, but they have one for NumPy.
        matrix = _stacked([_numeric_column(values, argument) for values in table.iter_columns()])
    return matrix


def _stacked(columns: list[np.ndarray]) -> np.ndarray:
    """Columns side by side, some rows at a time: a whole column at once would touch all of the matrix for each."""
    if not columns:
        return np.empty((0, 0))
    N = len(columns[0])
    matrix = np.empty((N, len(columns)), dtype=np.result_type(*columns))
    for start in range(0, N, _ROWS_STACKED):
        rows = slice(start, start + _ROWS_STACKED)
        for d, values in enumerate(columns):
            matrix[rows, d] = values[rows]
    return matrix


def _numeric_column(values: nw.Series[Any], argument: str) -> np.ndarray:
    """A column as numbers, missing values as NaN."""
    import narwhals as nw

    dtype = values.dtype
    if _is_wide(dtype) or (dtype == nw.Boolean and values.null_count() > 0):
        return values.cast(nw.Float64()).to_numpy()
    if _is_number(dtype):
        return values.to_numpy()
    # What narwhals cannot name may still be numbers: sparse columns of pandas, or Python's own numbers.
    array = values.to_numpy() if dtype in (nw.Unknown, nw.Object) else None
    if array is not None and array.dtype.kind == "O":
        try:
            array = _numbers_from_objects(array)
        except (TypeError, ValueError):
            array = None
    if array is None or array.dtype.kind not in "biuf":
        native = getattr(values.to_native(), "dtype", dtype)
        raise ValueError(
            f"Column {values.name!r} of {argument} has dtype {native} and must hold numbers: "
            "encode it as numbers, for example with TableEncoder in a Pipeline, or leave it out."
        )
    return array


def _is_number(dtype: nw.dtypes.DType) -> bool:
    """Whether a column of this dtype can be a feature as it is."""
    import narwhals as nw

    return dtype.is_numeric() or dtype == nw.Boolean


def _is_wide(dtype: nw.dtypes.DType) -> bool:
    """Whether NumPy has no such number: decimals and integers of 128 bits."""
    import narwhals as nw

    return dtype.is_decimal() or dtype in (nw.Int128, nw.UInt128)


def _is_record_batch(X: Any) -> bool:
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(X, arrow.RecordBatch)


def _read_array_like(X: Any) -> np.ndarray:
    """An array from lists, or from any object that offers one."""
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    if hasattr(X, "__dlpack__") and not hasattr(X, "__array__"):
        return np.from_dlpack(X)
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X must be a table or a matrix with rows of equal length: {error}") from error


_ADVICE = {
    0: "Pass a table (pandas, polars, Arrow), an array, a sparse matrix, or an Arrow data set, such as "
    "pyarrow.dataset.dataset(path) of files.",
    1: "Reshape your data either using array.reshape(-1, 1) if it has a single feature or array.reshape(1, -1) if it "
    "has a single row.",
    3: "Reshape your data to one row per sample and one column per feature.",
    "fields": "It has named fields: pass it as a table, pandas.DataFrame(X).",
}
"""What to do with an X that has not two dimensions, by their number."""


def require_shape(shape: tuple[int, ...], *, given: Any) -> None:
    """Raise unless there are two dimensions, rows and columns."""
    if len(shape) != 2:
        kind = "scalar" if len(shape) == 0 else f"{len(shape)}D"
        fields = getattr(getattr(given, "dtype", None), "names", None)
        advice = _ADVICE["fields" if fields else min(len(shape), 3)]
        raise ValueError(
            f"Expected 2D array, got {kind} array instead (X is of type {type(given).__name__} and shape "
            f"{shape}). {advice}"
        )
    n_rows, n_features = shape
    if n_features == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 is required.")
    if n_rows == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape=(0, {n_features})) while a minimum of 1 is required.")


def _canonical_csr(X: Any) -> sp.csr_array:
    """Compressed rows, indices sorted and unique; the user's matrix keeps its own order."""
    matrix = sp.csr_array(X)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def require_real(dtype: Any) -> None:
    """Raise if numbers of this dtype are complex."""
    if dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X has dtype {dtype}, pass real numbers.")


def _real_numbers(matrix: Any) -> Any:
    """The matrix, as float64 where the kernels do not take its dtype."""
    require_real(matrix.dtype)
    kind = matrix.dtype.kind
    if kind == "O" and not sp.issparse(matrix):
        return _numbers_from_objects(matrix)
    if kind in "fO":
        return matrix.astype(np.float64)
    raise ValueError(
        f"X has dtype {matrix.dtype} and must hold numbers: encode it as numbers, for example as a table with "
        "TableEncoder in a Pipeline."
    )


def _numbers_from_objects(values: np.ndarray) -> np.ndarray:
    """float64 from an array of Python numbers; None is NaN, a string is not a number even if it reads as one."""
    string = next((value for value in values.flat if isinstance(value, (str, bytes))), None)
    if string is not None:
        raise ValueError(
            f"X holds the string {string!r} and must hold numbers: encode it as numbers, for example as a table with "
            "TableEncoder in a Pipeline."
        )
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"X must hold numbers, and one of its objects is not a number: {error}") from error
