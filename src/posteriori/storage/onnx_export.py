"""Fitted classifiers as ONNX graphs: the same probabilities without Python.

Everything that does not depend on the row is computed here and stored as a constant; what is left for the runtime are
products, exponentials and roots, in float64. A graph has one input, X (n, D), or one for each column of the table if
the model begins with a `TableEncoder`, and for every row the outputs

    probabilities (n, K)    those of predict_proba
    label (n,)              that of predict

and, if they are asked for, lower and upper (n, K), the ends of their credible intervals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from posteriori.decision import Utility
from posteriori.decision.decisions import tie_slack
from posteriori.decision.pooling import LEAST_LOG
from posteriori.decision.temperature import LOWEST
from posteriori.files import replacing
from posteriori.meta.calibrated_classifier import CalibratedClassifier
from posteriori.meta.stacked_classifier import StackedClassifier
from posteriori.meta.utility_classifier import UtilityClassifier
from posteriori.parameters import require_level
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.storage.onnx_classifiers import CLASSIFIERS, Outputs, credible_interval
from posteriori.storage.onnx_graph import Graph, Value, import_onnx
from posteriori.storage.onnx_tables import TableInputs, require_columns_for_onnx
from posteriori.tables.encoder import TableEncoder

__all__ = ["to_onnx"]

_OPSET = 18
"""The oldest with the reductions used here; runtimes since 2023 have it."""
_LARGEST = float(np.finfo(np.float64).max)
_NAMES = {"probabilities", "label", "action", "expected_utility", "lower", "upper"}
"""Names of outputs, which no input may have."""
_EXPORTED = (
    "SoftmaxRegression, BayesianSoftmaxRegression, GaussianClassifier, ForestClassifier, BoostingClassifier, "
    "UtilityClassifier, CalibratedClassifier and StackedClassifier around these, and scikit-learn pipelines of "
    "TableEncoder (first), StandardScaler, MinMaxScaler or MaxAbsScaler that end in one"
)


def to_onnx(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    opset: int = _OPSET,
    dtype: Any = "float64",
    interval: float | None = None,
) -> bytes | None:
    """Write a fitted classifier as an ONNX graph that gives the same probabilities.

    Parameters
    ----------
    model : fitted SoftmaxRegression, BayesianSoftmaxRegression or GaussianClassifier
        Or a UtilityClassifier, CalibratedClassifier or Pipeline of one. A pipeline may begin with a TableEncoder: the
        graph then has one input for each column of the table; see `onnx_inputs`.
    path : path, optional
        The file to write; it is written as a whole or not at all. Without it the bytes are returned.
    opset : int, default 18
        Version of ONNX's operators, 18 or later.
    dtype : {"float64", "float32"}, default "float64"
        The dtype of the input X, or of columns of numbers, alone: all arithmetic, and the probabilities, are in
        float64.
    interval : float, optional
        The level of credible intervals, such as 0.95: the graph then has their ends as the outputs `lower` and
        `upper`, those of predict_interval. For BayesianSoftmaxRegression, also in a Pipeline or UtilityClassifier.

    Returns
    -------
    bytes, or None if they were written to a file

    Examples
    --------
    >>> graph = to_onnx(model)  # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(graph)  # doctest: +SKIP
    >>> probabilities, labels = session.run(["probabilities", "label"], {"X": X})  # doctest: +SKIP
    """
    onnx = import_onnx()
    latest = onnx.defs.onnx_opset_version()
    if isinstance(opset, bool) or not isinstance(opset, (int, np.integer)) or not _OPSET <= opset <= latest:
        raise ValueError(f"opset={opset!r} must be a whole number from {_OPSET} to {latest}, the latest of this onnx.")
    if dtype not in ("float64", "float32", np.float64, np.float32):
        raise ValueError(f"dtype={dtype!r} must be 'float64' or 'float32'.")
    _require_exportable(model)
    if interval is not None:
        require_level(interval)
        _require_posterior(model)
    proto = _proto(onnx, model, int(opset), np.dtype(dtype), interval)
    if proto.ByteSize() >= 2**31:
        raise ValueError(
            f"The graph takes {proto.ByteSize() / 2**30:.1f} GiB, and ONNX files have at most 2: use "
            "posterior='kronecker' or 'diagonal', fewer draws, or predictive='plugin'."
        )
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString()
    if path is None:
        return data
    with replacing(path) as temporary:
        Path(temporary).write_bytes(data)
    return None


def _require_exportable(model: Any) -> None:
    """Raise unless the model can be exported, before anything is built."""
    if isinstance(model, Pipeline):
        encoder = _encoder(model)
        if encoder is not None:
            check_is_fitted(encoder, "encoding_")
            require_columns_for_onnx(encoder.encoding_)
        for _, step in model.steps[:-1] if encoder is None else model.steps[1:-1]:
            _affine(step)
        _require_exportable(model.steps[-1][1])
    elif isinstance(model, _AROUND):
        check_is_fitted(model, "estimator_")
        if isinstance(model, CalibratedClassifier) and not hasattr(model, "coef_"):
            raise TypeError(
                "CalibratedClassifier with method='isotonic' cannot be exported to ONNX: use 'temperature', 'auto', "
                "'vector' or 'dirichlet'."
            )
        _require_exportable(model.estimator_)
    elif isinstance(model, StackedClassifier):
        check_is_fitted(model, "estimators_")
        for _, member in model.estimators_:
            _require_exportable(member)
    elif isinstance(model, tuple(_BUILDERS)):
        check_is_fitted(model)
    else:
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"{name} cannot be exported to ONNX. These can: {_EXPORTED}.")


def _require_posterior(model: Any) -> None:
    """Raise unless intervals of the model can be written."""
    if isinstance(model, Pipeline):
        _require_posterior(model.steps[-1][1])
    elif isinstance(model, UtilityClassifier):
        _require_posterior(model.estimator_)
    elif not isinstance(model, BayesianSoftmaxRegression):
        raise TypeError(
            f"interval needs a BayesianSoftmaxRegression, alone or in a Pipeline or UtilityClassifier, and the model "
            f"is a {type(model).__name__}: leave interval out."
        )


def _proto(onnx: Any, model: Any, opset: int, dtype: np.dtype[Any], interval: float | None) -> Any:
    info, types = onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = Graph()
    classes = model.classes_
    properties = {"classes": _as_json(classes), "library": f"posteriori {_version()}", "model": _described(model)}
    encoder = _encoder(model)
    if encoder is not None:
        table = TableInputs(graph, encoder.encoding_, _NAMES)
        X, inputs, properties["inputs"] = table.encoded(), table.infos(dtype), table.described()
    else:
        X = graph.input("X")
        if dtype == np.float32:
            X = graph.op("Cast", X, to=types.DOUBLE)
        inputs = [info("X", types.FLOAT if dtype == np.float32 else types.DOUBLE, ["n", _n_features(model)])]
    found = _outputs(model, X)
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        properties["feature_names"] = _as_json(names)
    graph.output(found.probabilities, "probabilities")
    outputs = [info("probabilities", types.DOUBLE, ["n", len(classes)])]
    named = [("label", _greatest(found.scores), classes)]
    if found.action is not None:
        actions = _actions(model)
        properties["actions"] = _as_json(actions)
        named.append(("action", found.action, actions))
    for name, codes, values in named:
        constants = _constants(values)
        properties[f"{name}_holds"] = "codes" if constants is None else "values"
        graph.output(codes if constants is None else graph.op("Gather", constants, codes), name)
        text = constants is not None and constants.dtype == object
        outputs.append(info(name, types.STRING if text else types.INT64, ["n"]))
    if found.expected_utility is not None:
        graph.output(found.expected_utility, "expected_utility")
        outputs.append(info("expected_utility", types.DOUBLE, ["n", len(_actions(model))]))
    if interval is not None:
        properties["interval"] = repr(float(interval))
        for name, end in zip(("lower", "upper"), _interval(model, X, interval), strict=True):
            graph.output(end, name)
            outputs.append(info(name, types.DOUBLE, ["n", len(classes)]))
    about = {"producer_name": "posteriori", "producer_version": _version()}
    proto = graph.model("posteriori", inputs, outputs, opset, **about)
    onnx.helper.set_model_props(proto, properties)
    return proto


# Labels and the description of the model


def _greatest(scores: Value) -> Value:
    """Place of the first of the greatest scores of each row, (n,); a row of NaN gets a class too, as it must."""
    there = scores.graph.op("Not", scores.is_nan())
    return scores.graph.op("ArgMax", scores.where(there, -_LARGEST), axis=1, keepdims=0)


def _constants(labels: np.ndarray) -> np.ndarray | None:
    """Whole numbers and strings as the graph can return them; None for all others, which become 0 .. K - 1."""
    if labels.dtype.kind == "U" or all(isinstance(label, str) for label in labels.tolist()):
        return np.array([str(label) for label in labels], dtype=object)
    if labels.dtype.kind in "iu" and int(labels.max()) < 2**63:
        return labels.astype(np.int64)
    return None


def _as_json(values: Any) -> str:
    return json.dumps(np.asarray(values).tolist(), default=str, ensure_ascii=False)


def _version() -> str:
    from posteriori import __version__

    return __version__


def _described(model: Any) -> str:
    if isinstance(model, Pipeline):
        return " -> ".join(_described(step) for _, step in model.steps)
    if isinstance(model, _AROUND):
        return f"{type(model).__name__}({_described(model.estimator_)})"
    return model if isinstance(model, str) else type(model).__name__


def _n_features(model: Any) -> int:
    """Number of features, known by the first step that is fitted to rows; a name such as "passthrough" is not."""
    if hasattr(model, "n_features_in_"):
        return int(model.n_features_in_)
    if isinstance(model, _AROUND):
        return _n_features(model.estimator_)
    return next(_n_features(step) for _, step in model.steps if hasattr(step, "fit"))


def _actions(model: Any) -> np.ndarray:
    return model.actions_ if isinstance(model, UtilityClassifier) else _actions(model.steps[-1][1])


# Classifiers


def _encoder(model: Any) -> TableEncoder | None:
    """The TableEncoder that rows meet first, if there is one."""
    if isinstance(model, _AROUND):
        return _encoder(getattr(model, "estimator_", None))
    if not isinstance(model, Pipeline):
        return None
    first = model.steps[0][1]
    return first if isinstance(first, TableEncoder) else None


def _outputs(model: Any, X: Value) -> Outputs:
    """The outputs for rows X, already encoded where the model begins with a TableEncoder."""
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1] if _encoder(model) is None else model.steps[1:-1]:
            X = _affine(step)(X)
        return _outputs(model.steps[-1][1], X)
    build = next(build for kind, build in _BUILDERS.items() if isinstance(model, kind))
    return build(model, X)


def _interval(model: Any, X: Value, level: float) -> tuple[Value, Value]:
    """The ends of intervals for rows X, already encoded where the model begins with a TableEncoder."""
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1] if _encoder(model) is None else model.steps[1:-1]:
            X = _affine(step)(X)
        return _interval(model.steps[-1][1], X, level)
    if isinstance(model, UtilityClassifier):
        return _interval(model.estimator_, X, level)
    return credible_interval(model, X, level)


def _affine(step: Any) -> Callable[[Value], Value]:
    """The map of a scaler, from its input to its output."""
    if step is None or step == "passthrough" or (isinstance(step, FunctionTransformer) and step.func is None):
        return lambda X: X
    if isinstance(step, StandardScaler):
        check_is_fitted(step)
        mean = step.mean_ if step.with_mean else 0.0
        return lambda X: (X - mean).scaled(1.0 / step.scale_) if step.with_std else X - mean
    if isinstance(step, MinMaxScaler) and not step.clip:
        check_is_fitted(step)
        return lambda X: X.scaled(step.scale_) + step.min_
    if isinstance(step, MaxAbsScaler) and not getattr(step, "clip", False):
        check_is_fitted(step)
        return lambda X: X.scaled(1.0 / step.scale_)
    raise TypeError(f"The pipeline's step {step!r} cannot be exported to ONNX. These can: {_EXPORTED}.")


def _deciding(model: UtilityClassifier, X: Value) -> Outputs:
    """EU(a) = sum_k p_k U(k, a), and the first action that is within rounding of the best."""
    utility = Utility.zero_one(model.classes_) if model.utility is None else model.utility.ordered(model.classes_)
    U = utility.matrix
    if U is None or U.ndim != 2:
        raise ValueError(
            "The utility differs from row to row, and a graph has one for all: export the estimator (model.estimator_) "
            "and pass its probabilities to decide."
        )
    inner = _outputs(model.estimator_, X)
    expected = inner.probabilities @ U
    op = X.graph.op
    good = op("GreaterOrEqual", expected, expected.max(1, keepdims=True) - tie_slack(U))
    best = op("ArgMax", op("Where", good, 1.0, 0.0), axis=1, keepdims=0)
    return inner._replace(action=best, expected_utility=expected)


def _calibrated(model: CalibratedClassifier, X: Value) -> Outputs:
    """softmax(W log p + b), and a share of the class frequencies: after it, or for "auto" before it in p."""
    P, op = _outputs(model.estimator_, X).probabilities, X.graph.op
    K, doubt = len(model.classes_), getattr(model, "doubt_", 0.0)

    def mixed(probabilities: Value) -> Value:
        return probabilities.scaled(np.full(K, 1.0 - doubt)) + doubt * model.frequencies_ if doubt else probabilities

    Z = op("Log", P)
    Z = Z.where(op("Greater", Z, LOWEST), LOWEST)  # also where there is no number, which not all runtimes hand on
    if hasattr(model, "spreads_"):  # "auto"
        Z = op("Log", mixed(Z.scaled(np.full(K, 1.0 / model.temperature_)).softmax()))
        calibrated = (Z @ model.coef_.T + model.intercept_).softmax()
    else:
        calibrated = mixed((Z @ model.coef_.T + model.intercept_).softmax())
    return Outputs(calibrated.where(op("Not", P.is_nan()), np.nan), calibrated)


def _stacked(model: StackedClassifier, X: Value) -> Outputs:
    """sum_m w_m p_m, or softmax(sum_m w_m log p_m), of the members that take part."""
    op, K = X.graph.op, len(model.classes_)
    members = [_outputs(member, X).probabilities for _, member in model.estimators_]
    if model.pool_ == "linear":
        shares = model.weights_ / model.weights_.sum()
        terms = [P.scaled(np.full(K, share)) for P, share in zip(members, shares, strict=True)]
        pooled = reduce(add, terms)
        return Outputs(pooled, pooled)
    terms = []
    for P, weight in zip(members, model.weights_, strict=True):
        Z = op("Log", P)
        held = Z.where(op("Greater", Z, LEAST_LOG), LEAST_LOG)
        terms.append(held.scaled(np.full(K, weight)))
    pooled = reduce(add, terms).softmax()
    return Outputs(pooled, pooled)


_BUILDERS: dict[type, Callable[[Any, Value], Outputs]] = {
    **CLASSIFIERS,
    UtilityClassifier: _deciding,
    CalibratedClassifier: _calibrated,
    StackedClassifier: _stacked,
}
_AROUND = (UtilityClassifier, CalibratedClassifier)
"""Estimators that hold another classifier, as `estimator_`."""
