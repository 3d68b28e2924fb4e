"""Reading what a user passes to fit and predict, and remembering which columns are features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from posteriori.rows.arrow import StreamedFeatures, open_stream, read_stream_for_fit, stream_column
from posteriori.rows.dask import dask_column, is_dask, read_dask, read_dask_for_fit
from posteriori.rows.features import AnyFeatures, Features, column, is_table, open_table, read_features
from posteriori.rows.gpu import device_for, read_device_features, read_device_target, to_host
from posteriori.rows.pieces import require_numbers
from posteriori.rows.target import Target, read_target

__all__ = [
    "adopt_features",
    "check_features",
    "ignored_columns",
    "in_memory",
    "label_vector",
    "read_for_fit",
    "read_for_prediction",
    "read_labels",
    "remember_features",
    "require_in_memory",
    "take_rows",
    "without_column",
]

_IN_MEMORY = "{} needs its rows in memory, and those of X stay where they lie: pass some of them in a table or array."


def read_for_fit(
    X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any, device: str | None = "cpu"
) -> tuple[AnyFeatures, Target, list[str]]:
    """Features, target and the names of columns that are no features; on a device if asked, or if X lies there."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    named = [name for name in (y, sample_weight) if isinstance(name, str)]
    if (stream := open_stream(X)) is not None:
        _refuse_device(device)
        return *read_stream_for_fit(stream, y, sample_weight, classes, class_weight), named
    if is_dask(X):
        _refuse_device(device)
        return *read_dask_for_fit(X, y, sample_weight, classes, class_weight), named
    if isinstance(y, str):
        y = column(X, y, argument="y")
    if isinstance(sample_weight, str):
        sample_weight = column(X, sample_weight, argument="sample_weight")
    features = _read_rows(X, named, device)
    on_host = isinstance(features, Features)
    target = (read_target if on_host else read_device_target)(
        to_host(y) if on_host else y,
        n_rows=features.shape[0],
        classes=classes,
        sample_weight=sample_weight,
        class_weight=class_weight,
    )
    return features, target, named


def _read_rows(X: Any, drop: list[str], device: str | None) -> AnyFeatures:
    """A matrix in memory, or on the device."""
    where = device_for(device, X)
    if where is None:
        return read_features(to_host(X), drop=drop)
    return read_device_features(X, where, drop=drop)


def _refuse_device(device: str | None) -> None:
    """Rows that are read as they are needed stay where they are."""
    if device == "gpu":
        raise ValueError(
            "device='gpu' needs all rows in memory at once, and X is read piece by piece: use device=None, or pass the "
            "rows as a table or an array."
        )


def in_memory(features: AnyFeatures, who: str) -> Features:
    """Features that are a matrix in memory; others are refused."""
    if not isinstance(features, Features):
        raise ValueError(_IN_MEMORY.format(who))
    return features


def remember_features(estimator: Any, features: AnyFeatures, named: list[str]) -> None:
    """Set n_features_in_, feature_names_in_ (for tables) and the columns to be ignored at prediction."""
    estimator.n_features_in_ = features.shape[1]
    estimator._not_features = named
    if features.names is not None:
        estimator.feature_names_in_ = np.array(features.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def ignored_columns(estimator: Any) -> list[str]:
    """Columns that a fitted estimator takes for the target or the weights, not for features; none if it has no such."""
    return list(getattr(estimator, "_not_features", ()))


def read_for_prediction(estimator: Any, X: Any, device: str | None = "cpu") -> AnyFeatures:
    """The features of new rows, checked against those of the fit."""
    check_is_fitted(estimator)
    dropped = estimator._not_features
    features = read_dask(X, drop=dropped) if is_dask(X) else _read_stream(X, dropped) or _read_rows(X, dropped, device)
    check_features(estimator, features)
    return features


def check_features(estimator: Any, features: AnyFeatures) -> None:
    """Raise unless the columns are those of the fit; warn if only one of both has names."""
    name = type(estimator).__name__
    expected: Any = getattr(estimator, "feature_names_in_", None)
    if features.names is not None and expected is None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=5)
    elif features.names is None and expected is not None:
        warnings.warn(f"X does not have valid feature names, but {name} was fitted with feature names", stacklevel=5)
    elif features.names is not None and list(expected) != features.names:
        unseen = sorted(set(features.names) - set(expected))
        missing = sorted(set(expected) - set(features.names))
        message = "The feature names should match those that were passed during fit.\n"
        if unseen:
            message += "Feature names unseen at fit time:\n" + _bullets(unseen)
        if missing:
            message += "Feature names seen at fit time, yet now missing:\n" + _bullets(missing)
        if not unseen and not missing:
            message += "Feature names must be in the same order as they were in fit.\n"
        raise ValueError(message)
    if features.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {features.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input."
        )


def adopt_features(meta: Any, estimator: Any) -> None:
    """Give a meta-estimator the features of the estimator it has fitted."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(estimator, name):
            setattr(meta, name, getattr(estimator, name))
        elif hasattr(meta, name):
            delattr(meta, name)


def label_vector(y: Any) -> np.ndarray:
    """Labels (n,), as scikit-learn reads them."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    return labels


def require_in_memory(X: Any, who: str) -> None:
    """Raise if X is no table or array in memory, for those who take its rows by number."""
    if is_dask(X) or open_stream(X) is not None:
        raise ValueError(_IN_MEMORY.format(who))


def without_column(X: Any, y: Any) -> Any:
    """A table without the column that y names, if it has one; anything else as it is."""
    if not (isinstance(y, str) and is_table(X)):
        return X
    import narwhals as nw

    table = nw.from_native(X, eager_only=True)
    return table.drop([y]).to_native() if y in table.columns else X


def _read_stream(X: Any, not_features: list[str]) -> StreamedFeatures | None:
    """The features of new rows that are read from where they lie, if they are."""
    stream = open_stream(X)
    if stream is None:
        return None
    names = [name for name in stream.schema.names if name not in not_features]
    require_numbers(stream.schema, names)
    return StreamedFeatures(stream, names)


def _bullets(names: list[str], most: int = 5) -> str:
    lines = [f"- {name}\n" for name in names[:most]]
    return "".join(lines) + ("- ...\n" if len(names) > most else "")


def read_labels(X: Any, y: Any) -> Any:
    """y, looked up in the table X if it is a column's name."""
    if isinstance(y, str) and (stream := open_stream(X)) is not None:
        return stream_column(stream, y)
    return column(X, y, argument="y") if isinstance(y, str) and is_table(X) else dask_column(X, y)


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table, array or list in memory, by their numbers."""
    if is_table(X):
        return open_table(X)[rows].to_native()
    return _safe_indexing(X, rows)
