"""Saving and loading models, and describing what is in a file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import sklearn

from posteriori.exceptions import StorageError, StorageWarning
from posteriori.storage import format as files
from posteriori.storage.registry import of_type
from posteriori.storage.tree import MALFORMED, decode, encode, stored_in

__all__ = ["describe", "load", "save"]

_RECORDED = ("n_iter", "n_passes", "objective", "gap", "energy", "structure", "approximation")
"""Fields of the record of a fit that a description repeats, where the record has them."""
_LINEAR = ("SoftmaxRegression", "BayesianSoftmaxRegression")
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})[0-9A-Za-z.+]{0,20}")
"""Major and minor come first: scikit-learn may change what its objects hold with these, not with a patch."""


def save(model: Any, path: Any) -> None:
    """Store a model in a file, without pickle.

    Predictions of the loaded model are the same to the last bit, on the same machine and libraries. Rows are not
    stored. An error leaves a file that was there as it was.

    Parameters
    ----------
    model : estimator of posteriori, or a scikit-learn Pipeline that ends with one; fitted or not
    path : str or Path
        Any name will do; ".safetensors" says what is inside.

    Raises
    ------
    TypeError
        If the model holds objects that cannot be stored: functions, and estimators of other libraries.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SoftmaxRegression().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/iris.safetensors")
    ...     again = load(f"{folder}/iris.safetensors")
    >>> (again.predict_proba(X) == model.predict_proba(X)).all()
    np.True_
    """
    from posteriori import __version__

    stored = of_type(type(model))
    if stored is None or stored.kind != "estimator":
        kind = type(model)
        raise TypeError(
            f"model is a {kind.__module__}.{kind.__qualname__}, which cannot be stored: give an estimator of "
            "posteriori, or a scikit-learn Pipeline that ends with one."
        )
    tree, tensors = encode(model)
    document = {
        "format": files.FORMAT,
        "library": __version__,
        "libraries": {"numpy": np.__version__, "scikit-learn": sklearn.__version__},
        "class": stored.name,
        "about": encode(_about(model))[0],
        "model": tree,
    }
    files.write(path, document, tensors)


def load(path: Any) -> Any:
    """The model in a file written by `save`; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    StorageError
        A ValueError: the file is damaged, not a model, or from a newer version of posteriori.

    Warns
    -----
    StorageWarning
        If objects of scikit-learn are in the file, such as a Pipeline, and another version of it wrote them.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "notes.txt")
    ...     _ = path.write_text("not a model")
    ...     load(path)
    Traceback (most recent call last):
    posteriori.exceptions.StorageError: ...
    """
    document, tensors = files.read(path)
    warning = _version_warning(path, document)
    if warning:  # before the model is made: should that fail, this is the likely reason
        warnings.warn(warning, StorageWarning, stacklevel=2)
    return _read_in(path, lambda: _checked(decode(document.get("model"), tensors), document.get("class")))


def describe(path: Any) -> dict[str, Any]:
    """Describe the model in a file from its header alone; whether the file is whole is not checked.

    Returns
    -------
    dict
        "class", "fitted", "classes", "n_features", "features" (names or None), "estimators" (the class of each
        estimator, from the outermost in), "training" (status, iterations, evidence), "format", "library" (version of
        posteriori) and "libraries".
    """
    document = files.read_document(path)
    about = _read_in(path, lambda: dict(decode(document.get("about"), {})))
    return {"class": document.get("class"), **about} | {
        key: document.get(key) for key in ("format", "library", "libraries")
    }


def _read_in(path: Any, decoded: Callable[[], Any]) -> Any:
    """Return what is decoded; an error becomes one sentence that names the file."""
    try:
        return decoded()
    except StorageError as error:
        raise StorageError(f"{path} cannot be read: {error}.") from None
    except MALFORMED as error:
        raise StorageError(f"{path} cannot be read: what is in it does not fit together ({error}).") from None


def _version_warning(path: Any, document: dict[str, Any]) -> str:
    """Warn of objects of scikit-learn that another version of it wrote; empty if there are none."""
    libraries = document.get("libraries")
    version = libraries.get("scikit-learn") if isinstance(libraries, dict) else None
    written = _VERSION.fullmatch(version) if isinstance(version, str) else None
    ours = _VERSION.match(sklearn.__version__)
    if written is None or ours is None or written[1] == ours[1]:
        return ""
    theirs = sorted(stored.name for stored in stored_in(document.get("model")) if stored.home.startswith("sklearn."))
    if not theirs:
        return ""
    return (
        f"{path} was written with scikit-learn {version}, and this is {sklearn.__version__}: what it holds of "
        f"scikit-learn ({', '.join(theirs)}) may predict otherwise, or not at all. Compare some predictions and save "
        f"the model again, or load it with the old version: pip install 'scikit-learn=={written[1]}.*'."
    )


def _about(model: Any) -> dict[str, Any]:
    """The plain values that `describe` reads without loading the model."""
    chain = _chain(model)
    classes = _learned(chain, "classes_")
    names, width = _learned(chain, "feature_names_in_"), _learned(chain, "n_features_in_")
    return {
        "fitted": classes is not None or width is not None,  # a transformer has no classes
        "classes": None if classes is None else _plain(classes),
        "n_features": width,
        "features": None if names is None else _plain(names),
        "estimators": [type(each).__name__ for each in chain],
        "training": {} if classes is None else _training(chain[-1]),
    }


def _chain(model: Any) -> list[Any]:
    """The model, and the estimators in it, from the outermost to the one that learned the classes."""
    chain = [model]
    while len(chain) < 100:
        now = chain[-1]
        if hasattr(now, "steps") and now.steps:
            inner = now.steps[-1][1]
        else:
            inner = getattr(now, "estimator_", getattr(now, "estimator", None))
        if inner is None or isinstance(inner, str):
            break
        chain.append(inner)
    return chain


def _learned(chain: list[Any], name: str) -> Any:
    """The attribute of the outermost estimator that has it, or None."""
    return next((getattr(each, name) for each in chain if hasattr(each, name)), None)


def _plain(labels: np.ndarray) -> list[Any]:
    return list(labels) if labels.dtype.kind in "mM" else labels.tolist()


def _training(model: Any) -> dict[str, Any]:
    """The record of the fit in a few plain values."""
    record = getattr(model, "solution_", None)
    found: dict[str, Any] = {}
    if record is not None:
        found["status"] = record.status.name.lower()
        found |= {name: value for name in _RECORDED if (value := getattr(record, name, None)) is not None}
    elif hasattr(model, "n_iter_"):
        found["n_iter"] = model.n_iter_
    with suppress(AttributeError, ValueError):  # a model may refuse it
        found["log_evidence"] = model.log_evidence_
    if hasattr(model, "class_count_"):
        found["class_count"] = model.class_count_.tolist()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def _checked(model: Any, name: Any) -> Any:
    """The model, checked to be one whose coefficients fit its classes and features: wrong ones would predict too."""
    stored = of_type(type(model))
    if stored is None or stored.kind != "estimator" or stored.name != name:
        raise StorageError("it does not hold a model")
    for each in _chain(model):
        if type(each).__name__ in _LINEAR and "coef_" in vars(each):
            K, D = len(each.classes_), each.n_features_in_
            if np.shape(each.coef_) != (K, D) or np.shape(each.intercept_) != (K,):
                raise StorageError(
                    f"its coefficients have shape {np.shape(each.coef_)}, and there are {K} classes and {D} features"
                )
    return model
