"""The columns of a fit, remembered by an estimator and checked whenever it is given rows again.

An estimator has ``n_features_in_`` and, fitted with a table, ``feature_names_in_``. The columns that were named as
target and weights are not features: they are remembered too, and left out of the rows of a prediction.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from posteriori.rows.features import Features

__all__ = ["adopt_features", "check_features", "copy_features", "feature_names", "ignored_columns", "remember_features"]

_NOT_FEATURES = "_not_features"
"""The attribute for columns that are not features; stored models have it under this name."""


def remember_features(estimator: Any, features: Features, named: list[str]) -> None:
    """Set n_features_in_, feature_names_in_ (for tables) and the columns to be left out at prediction."""
    estimator.n_features_in_ = features.n_features
    setattr(estimator, _NOT_FEATURES, named)
    if features.names is not None:
        estimator.feature_names_in_ = np.array(features.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def feature_names(estimator: Any) -> list[str]:
    """The names of the features of a fit; of an array x0, x1, and so on."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{d}" for d in range(estimator.n_features_in_)] if names is None else [str(name) for name in names]


def ignored_columns(estimator: Any) -> list[str]:
    """Columns that a fitted estimator takes for the target or the weights, not for features; none if it has no such."""
    return list(getattr(estimator, _NOT_FEATURES, ()))


def check_features(estimator: Any, features: Features) -> None:
    """Raise unless the columns are those of the fit; warn if only one of both has names."""
    name = type(estimator).__name__
    expected: Any = getattr(estimator, "feature_names_in_", None)
    if features.names is not None and expected is None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=5)
    elif features.names is None and expected is not None:
        warnings.warn(f"X does not have valid feature names, but {name} was fitted with feature names", stacklevel=5)
    elif features.names is not None and list(expected) != features.names:
        raise ValueError(_difference(features.names, list(expected)))
    if features.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {features.n_features} features, but {name} is expecting {estimator.n_features_in_} features as "
            "input."
        )


def adopt_features(meta: Any, estimator: Any) -> None:
    """Give a meta-estimator the features of the estimator it has fitted."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(estimator, name):
            setattr(meta, name, getattr(estimator, name))
        elif hasattr(meta, name):
            delattr(meta, name)


def copy_features(estimator: Any, other: Any) -> None:
    """Give an estimator all that another one remembers about the columns of its fit."""
    adopt_features(estimator, other)
    setattr(estimator, _NOT_FEATURES, ignored_columns(other))


def _difference(given: list[str], expected: list[str]) -> str:
    """The difference of two lists of feature names, in the words of scikit-learn."""
    unseen, missing = sorted(set(given) - set(expected)), sorted(set(expected) - set(given))
    message = "The feature names should match those that were passed during fit.\n"
    if unseen:
        message += "Feature names unseen at fit time:\n" + _bullets(unseen)
    if missing:
        message += "Feature names seen at fit time, yet now missing:\n" + _bullets(missing)
    if not unseen and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    return message


def _bullets(names: list[str], most: int = 5) -> str:
    lines = [f"- {name}\n" for name in names[:most]]
    return "".join(lines) + ("- ...\n" if len(names) > most else "")
