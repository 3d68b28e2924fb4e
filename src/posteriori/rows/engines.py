"""Rows of any kind, read by the first engine that claims them: all that estimators need to know about containers.

An engine is one module with an object of the protocol `Engine`, and one entry of `ENGINES`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from posteriori.rows import arrow, dask, gpu, memory
from posteriori.rows.features import Engine, Features
from posteriori.rows.matrices import collected, is_table, open_table
from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.schema import check_features, ignored_columns
from posteriori.rows.streams import WithoutColumn, is_stream, open_stream
from posteriori.rows.target import Target, label_array

__all__ = [
    "ENGINES",
    "engine_for",
    "label_vector",
    "read_for_fit",
    "read_for_prediction",
    "read_in_memory",
    "read_in_memory_for_fit",
    "read_labels",
    "require_in_memory",
    "row_marks",
    "take_rows",
    "without_column",
]

ENGINES: tuple[Engine, ...] = (arrow.ENGINE, dask.ENGINE, gpu.ENGINE, memory.ENGINE)
"""All engines, in the order in which they are asked; the last one claims everything."""


def engine_for(X: Any, device: str | None = None) -> Engine:
    """The engine that reads X for an estimator with this device."""
    return next(engine for engine in ENGINES if engine.claims(X, device))


def read_for_fit(
    X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any, device: str | None = "cpu"
) -> tuple[Features, Target, list[str]]:
    """Features, target and the names of columns that are not features."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    X = collected(X)
    engine = engine_for(X, device)
    if device == "gpu" and not engine.holds_all_rows:
        raise ValueError(
            "device='gpu' needs all rows in memory at once, and X is read piece by piece: use device=None, or pass the "
            "rows as a table or an array."
        )
    features, target = engine.read_for_fit(X, y, sample_weight, classes, class_weight)
    return features, target, [name for name in (y, sample_weight) if isinstance(name, str)]


def read_for_prediction(estimator: Any, X: Any, device: str | None = "cpu") -> Features:
    """The features of new rows, checked against those of the fit."""
    check_is_fitted(estimator)
    X = collected(X)
    features = engine_for(X, device).read(X, ignored_columns(estimator))
    check_features(estimator, features)
    return features


def read_in_memory_for_fit(
    X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any, *, who: str
) -> tuple[MemoryFeatures, Target, list[str]]:
    """Features and target of rows in memory, as `read_for_fit` gives them; raises before it reads other rows."""
    require_in_memory(X, who)
    features, target, named = read_for_fit(X, y, sample_weight, classes, class_weight)
    assert isinstance(features, MemoryFeatures)
    return features, target, named


def read_in_memory(estimator: Any, X: Any, *, who: str) -> MemoryFeatures:
    """Features of new rows in memory, as `read_for_prediction` gives them; raises before it reads other rows."""
    require_in_memory(X, who)
    features = read_for_prediction(estimator, X)
    assert isinstance(features, MemoryFeatures)
    return features


def require_in_memory(X: Any, who: str) -> None:
    """Raise if X is not a table or array in memory; nothing is read."""
    if not engine_for(X).holds_all_rows:
        raise ValueError(
            f"{who} needs its rows in memory, and X is not a table or an array in memory: pass a sample of its rows "
            "as one."
        )


def read_labels(X: Any, y: Any) -> Any:
    """Labels or weights in memory, looked up in X if y is the name of a column."""
    return engine_for(X if isinstance(y, str) else y).labels(X, y)


def label_vector(y: Any) -> np.ndarray:
    """Labels (n,), read as classifiers read them: with the dtype of `classes_`, and none is missing."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    return label_array(y)


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table, array or list in memory, by their numbers."""
    return open_table(X)[rows].to_native() if is_table(X) else _safe_indexing(X, rows)


def row_marks(X: Any) -> np.ndarray | None:
    """A number for every row in memory, the same for rows that are identical; None where rows cannot be compared.

    >>> marks = row_marks([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> bool(marks[0] == marks[2]), bool(marks[0] == marks[1])
    (True, False)
    """
    from pandas import DataFrame
    from pandas.util import hash_pandas_object

    if sp.issparse(X):
        rows = sp.csr_array(X, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        spans = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return np.array([hash((rows.indices[a:b].tobytes(), rows.data[a:b].tobytes())) for a, b in spans])
    try:
        if is_table(X):
            table = open_table(X).to_pandas()
        else:
            values = np.asarray(X)
            if values.dtype == np.longdouble:  # which pandas cannot hash
                values = values.astype(float)
            table = DataFrame(values.reshape(len(values), -1))
        return hash_pandas_object(table, index=False).to_numpy()
    except (TypeError, ValueError):  # of cells that hold lists, or rows of different lengths
        return None


def without_column(X: Any, y: Any) -> Any:
    """A table, data set or DataFrame of Dask without the column that y names, if it has one; other X as it is."""
    if not isinstance(y, str):
        return X
    if is_stream(X):
        rows = open_stream(X)
        return WithoutColumn(rows, y) if y in rows.schema.names else X
    if dask.is_dask_frame(X):
        return X.drop(columns=[y]) if y in X.columns else X
    if not is_table(X):
        return X
    table = open_table(X)
    return table.drop([y]).to_native() if y in table.columns else X
