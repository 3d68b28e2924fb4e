"""Features: whatever holds rows of numbers, read as one (N, D) matrix.

Nothing is copied or converted that need not be: a float32, integer or boolean matrix stays what it is, as
the kernels convert one block at a time. That all values are finite is left to the first sum over the data,
which sees every value anyway; `raise_if_not_finite` then finds the culprit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sp

from posteriori.rows.blocks import Blocks
from posteriori.rows.memory import MemoryBlocks

if TYPE_CHECKING:
    import narwhals as nw

    from posteriori.rows.target import Target

__all__ = ["AnyFeatures", "Features", "column", "is_table", "raise_if_not_finite", "read_features"]

_KERNEL_DTYPES = "?bBhHiIlLqQfd"
"""Type codes that pass through: booleans, integers, float32 and float64."""

_ROWS_STACKED = 4096

_ROWS_AT_ONCE = 65_536
"""Rows searched together for a value that is not finite, so that a large matrix needs no large mask."""


class AnyFeatures(Protocol):
    """The features of N rows, wherever they lie."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""

    @property
    def names(self) -> list[str] | None:
        """Column names of a table whose names are all strings."""

    def require_finite(self, *, missing_allowed: bool = False) -> None:
        """Raise if a value is not finite, naming its column and row."""

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> Blocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""


@dataclass(frozen=True)
class Features:
    """The features of N rows in memory.

    Attributes
    ----------
    matrix : ndarray or csr_array, (N, D)
        Of booleans, integers, float32 or float64, in any memory order.
    names : list of str, or None
        Column names of a table whose names are all strings.
    """

    matrix: np.ndarray | sp.csr_array
    names: list[str] | None

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""
        return self.matrix.shape

    def require_finite(self, *, missing_allowed: bool = False) -> None:
        """Raise if a value is not finite, naming its column and row."""
        raise_if_not_finite(self.matrix, self.names, missing_allowed=missing_allowed)

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> MemoryBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        Y = None if target is None else target.codes if target.codes is not None else target.probs
        c = None if target is None else target.weights
        return MemoryBlocks(self.matrix, Y, c, n_classes, shift=shift, scale=scale, n_threads=n_threads)


def read_features(X: Any, *, drop: Collection[str] = ()) -> Features:
    """Read the features of a table, an array or a sparse matrix.

    Parameters
    ----------
    X : table (pandas, polars, Arrow), array, list of rows, or scipy.sparse matrix or array, (N, D)
        Never modified, and copied only where layout or dtype demand it. Missing values of a table become NaN.
    drop : collection of str
        Columns of a table that are no features, such as the target; those that are absent are ignored.

    Returns
    -------
    Features

    Raises
    ------
    ValueError
        If X is not two-dimensional, has no rows or no columns, holds something else than real numbers, or has
        two columns of one name.
    TypeError
        If an array of objects holds an object that is no number.

    Examples
    --------
    >>> read_features([[1.0, 2.0], [3.0, 4.0]]).matrix
    array([[1., 2.],
           [3., 4.]])
    """
    names = None
    if type(X) is np.ndarray or sp.issparse(X):
        matrix = X
    elif is_table(X):
        matrix, names = _read_table(X, drop)
    else:
        matrix = _read_array_like(X)
    _require_matrix(matrix, given=X)
    if sp.issparse(matrix):
        matrix = _canonical_csr(matrix)
    if matrix.dtype.char not in _KERNEL_DTYPES:
        matrix = _real_numbers(matrix)
    return Features(matrix, names)


def is_table(X: Any) -> bool:
    """Whether X is a table with named columns: pandas, polars, Arrow, or another that narwhals knows.

    Examples
    --------
    >>> import pyarrow
    >>> is_table(pyarrow.table({"length": [39.1, 46.5]})), is_table([[39.1], [46.5]])
    (True, False)
    """
    if isinstance(X, (np.ndarray, list, tuple)) or sp.issparse(X):
        return False
    from narwhals.dependencies import is_into_dataframe

    return is_into_dataframe(X) or _is_record_batch(X)


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
        If X is no table, or has no column of this name.

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
            f"{argument}={name!r} names no column of X, whose columns are {_some(table.columns)}: "
            f"pass one of these, or {argument} as an array."
        )
    return as_array(table[name].to_native())


def raise_if_not_finite(
    matrix: np.ndarray | sp.csr_array,
    names: list[str] | None,
    *,
    argument: str = "X",
    missing_allowed: bool = False,
    first_row: int = 0,
) -> None:
    """Raise if a value is NaN or infinite, naming its column and row; otherwise do nothing.

    Parameters
    ----------
    matrix : ndarray or csr_array, (N, D)
    names : list of str, or None
        Column names; without them columns are numbered.
    argument : str
        The name of the matrix in the message.
    missing_allowed : bool
        Whether NaN is in order.
    first_row : int
        The number of the first row.

    Raises
    ------
    ValueError
        Naming the first row with such a value, and in it the first column.

    Examples
    --------
    >>> raise_if_not_finite(np.array([[1.0, 2.0], [3.0, np.nan]]), ["length", "depth"])
    Traceback (most recent call last):
        ...
    ValueError: X contains NaN, first in column 'depth', row 1 (counted from 0): remove or fill in such rows.
    """
    if matrix.dtype.kind != "f":
        return
    bad = np.isinf if missing_allowed else _not_finite
    where = _first_sparse(matrix, bad) if sp.issparse(matrix) else _first_dense(matrix, bad)
    if where is None:
        return
    n, d, value = where
    what = "NaN" if np.isnan(value) else "infinity"
    name = f"column {d}" if names is None else f"column {names[d]!r}"
    raise ValueError(
        f"{argument} contains {what}, first in {name}, row {first_row + n} (counted from 0): remove or fill in such "
        "rows."
    )


def open_table(X: Any, *, argument: str = "X") -> nw.DataFrame[Any]:
    """The table behind narwhals' common interface, its column names checked to be unique."""
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    if _is_record_batch(X):
        X = sys.modules["pyarrow"].Table.from_batches([X])
    try:
        return nw.from_native(X, eager_only=True)
    except DuplicateError as error:
        raise ValueError(
            f"{argument} has two columns of one name: give each column a name of its own. ({error})"
        ) from None


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


def _read_table(X: Any, drop: Collection[str]) -> tuple[np.ndarray, list[str] | None]:
    """All columns of a table but the dropped ones, and their names."""
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
    if _are_neighbours(columns):
        return np.asarray(_Neighbours(columns)).T
    N = len(columns[0])
    matrix = np.empty((N, len(columns)), dtype=np.result_type(*columns))
    for start in range(0, N, _ROWS_STACKED):
        rows = slice(start, start + _ROWS_STACKED)
        for d, values in enumerate(columns):
            matrix[rows, d] = values[rows]
    return matrix


def _are_neighbours(columns: list[np.ndarray]) -> bool:
    """Whether each column begins in memory where the last one ends: those of a table that TableEncoder made do."""
    first = columns[0]
    alike = all(values.dtype == first.dtype and values.flags.c_contiguous for values in columns)
    return alike and all(b.ctypes.data - a.ctypes.data == a.nbytes > 0 for a, b in pairwise(columns))


class _Neighbours:
    """Columns that follow one another in memory, for NumPy to see as one array (D, N).

    The array keeps this object alive, and so every column, also where they are neighbours by accident only.
    """

    def __init__(self, columns: list[np.ndarray]) -> None:
        self._columns = columns
        first = columns[0]
        self.__array_interface__ = first.__array_interface__ | {
            "data": (first.ctypes.data, True),  # read-only
            "shape": (len(columns), len(first)),
            "strides": None,
        }


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
            "encode it as numbers, for example one-hot, or leave it out."
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


def _require_matrix(matrix: Any, *, given: Any) -> None:
    """Raise unless there are two dimensions, rows and columns."""
    if matrix.ndim != 2:
        kind = "scalar" if matrix.ndim == 0 else f"{matrix.ndim}D"
        advice = (
            "Reshape your data either using array.reshape(-1, 1) if it has a single feature "
            "or array.reshape(1, -1) if it has a single row."
            if matrix.ndim < 2
            else "Reshape your data to one row per sample and one column per feature."
        )
        raise ValueError(
            f"Expected 2D array, got {kind} array instead (X is of type {type(given).__name__} and shape "
            f"{matrix.shape}). {advice}"
        )
    n_rows, n_features = matrix.shape
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


def _real_numbers(matrix: Any) -> Any:
    """float64 for the dtypes the kernels do not take."""
    kind = matrix.dtype.kind
    if kind == "c":
        raise ValueError(f"Complex data not supported: X has dtype {matrix.dtype}, pass real numbers.")
    if kind == "O" and not sp.issparse(matrix):
        return _numbers_from_objects(matrix)
    if kind in "fO":
        return matrix.astype(np.float64)
    raise ValueError(f"X has dtype {matrix.dtype} and must hold numbers: encode it as numbers, for example one-hot.")


def _numbers_from_objects(values: np.ndarray) -> np.ndarray:
    """float64 from an array of Python numbers; None is NaN, a string is no number even if it reads as one."""
    string = next((value for value in values.flat if isinstance(value, (str, bytes))), None)
    if string is not None:
        raise ValueError(
            f"X holds the string {string!r} and must hold numbers: encode it as numbers, for example one-hot."
        )
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"X must hold numbers, and one of its objects is none: {error}") from error


def _not_finite(values: np.ndarray) -> np.ndarray:
    return ~np.isfinite(values)


def _first_dense(matrix: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, float] | None:
    """Row, column and value of the first bad value."""
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = matrix[start : start + _ROWS_AT_ONCE]
        bad = is_bad(rows)
        if bad.any():
            n, d = divmod(int(bad.argmax()), matrix.shape[1])
            return start + n, d, float(rows[n, d])
    return None


def _first_sparse(matrix: sp.csr_array, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, float] | None:
    """Row, column and value of the first stored bad value."""
    bad = is_bad(matrix.data)
    if not bad.any():
        return None
    i = int(bad.argmax())
    n = int(np.searchsorted(matrix.indptr, i, side="right")) - 1
    return n, int(matrix.indices[i]), float(matrix.data[i])


def _some(names: list[Any], most: int = 10) -> str:
    """The first names of a list, for an error message."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"
