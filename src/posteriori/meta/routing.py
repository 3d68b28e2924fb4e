"""What an estimator around an estimator hands on: weights, groups and other metadata of `fit`, and methods.

With scikit-learn's `enable_metadata_routing` everything goes where it was requested; without it, all goes to the
estimator's `fit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if

from posteriori.rows.engines import take_rows

__all__ = ["cut_to_rows", "fit_metadata", "fit_router", "if_estimator_has"]


def fit_router(meta: Any, *, splitter: Any = None) -> MetadataRouter:
    """The router of a meta-estimator: its own requests, those of `meta.estimator`, and those of a splitter of folds."""
    to_fit = MethodMapping().add(caller="fit", callee="fit")
    router = MetadataRouter(owner=meta).add_self_request(meta).add(estimator=meta.estimator, method_mapping=to_fit)
    if splitter is not None:
        router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return router


def if_estimator_has(method: str) -> Any:
    """Decorator of a method that is there only if the estimator inside has it, fitted or not."""

    def check(meta: Any) -> bool:
        getattr(meta.estimator_ if hasattr(meta, "estimator_") else meta.estimator, method)
        return True

    return available_if(check)


def fit_metadata(meta: Any, metadata: dict[str, Any]) -> Bunch:
    """Metadata of `fit` as `estimator.fit` and `splitter.split`, each a dictionary."""
    if get_config()["enable_metadata_routing"]:
        return process_routing(meta, "fit", **metadata)
    given = {name: value for name, value in metadata.items() if value is not None}
    return Bunch(estimator=Bunch(fit=given), splitter=Bunch(split={}))


def cut_to_rows(metadata: dict[str, Any], rows: np.ndarray, n_rows: int) -> dict[str, Any]:
    """The metadata of some rows; what does not have an entry for each of the n_rows rows stays as it is."""
    return {name: _cut(value, rows, n_rows) for name, value in metadata.items()}


def _cut(value: Any, rows: np.ndarray, n_rows: int) -> Any:
    if hasattr(value, "__array__") and not hasattr(value, "shape"):
        value = np.asarray(value)
    shape = value.shape if hasattr(value, "shape") else np.shape(value) if isinstance(value, (list, tuple)) else ()
    return take_rows(value, rows) if tuple(shape[:1]) == (n_rows,) else value
