"""What a model has learned, for the page: coefficients, relevances or class means, whichever there are."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.reports.page_parts import drawable, figure, labels_of, number, shortened, table
from posteriori.rows.matrices import column_names, open_table, read_matrix
from posteriori.rows.products import standard_deviations

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["learned"]

_MOST_LEARNED = 30
"""Coefficients, relevances or means shown."""
_OF_SPREAD = "By how much one standard deviation of the feature, in these rows, raises"
_OF_UNIT = "By how much one unit of the feature raises"
_ABOVE = " the logit of the class above the mean of all classes. "


def learned(
    model: Any, rows: nw.DataFrame[Any], columns: Sequence[str], names: list[str], drawn: dict[str, Any]
) -> str:
    """The section on what the classifier has learned: coefficients, relevances or means, whichever it has."""
    inner = _classifier(model)
    features = _feature_names(model, inner, columns)
    if hasattr(inner, "summary"):
        return _coefficients_with_intervals(inner, features, names, _spreads(model, inner, rows, columns), drawn)
    if hasattr(inner, "relevances_"):
        return _relevances(inner, features, drawn)
    if hasattr(inner, "means_"):
        return _class_means(inner, features, names)
    if hasattr(inner, "coef_") and np.ndim(inner.coef_) == 2:
        return _coefficients(inner, features, names, _spreads(model, inner, rows, columns), drawn)
    return f"<p>{escape(type(inner).__name__)} has no coefficients, relevances or class means to show.</p>"


def _classifier(model: Any) -> Any:
    """The classifier at the end of pipelines and inside of estimators that wrap it."""
    while True:
        if hasattr(model, "steps"):
            model = model.steps[-1][1]
        elif hasattr(model, "estimator_"):
            model = model.estimator_
        else:
            return model


def _feature_names(model: Any, inner: Any, columns: Sequence[str]) -> list[str]:
    """Names of what the classifier was given, which an encoder may have made of the columns."""
    D = int(inner.n_features_in_)
    names = getattr(inner, "feature_names_in_", None)
    if names is None and hasattr(model, "steps") and hasattr(model[:-1], "get_feature_names_out"):
        try:
            names = model[:-1].get_feature_names_out()
        except (AttributeError, ValueError, TypeError):  # a step that does not know them
            names = None
    if names is None or len(names) != D:
        names = columns if len(columns) == D else [f"x{d}" for d in range(D)]
    return [shortened(name) for name in names]


def _spreads(model: Any, inner: Any, rows: nw.DataFrame[Any], features: Sequence[str]) -> np.ndarray | None:
    """Standard deviations of what the classifier was given, (D,), if these rows show them."""
    given: Any = rows.select(features).to_native()
    if hasattr(model, "steps") and len(model.steps) > 1:
        given = model[:-1].transform(rows.to_native())
    wanted = getattr(inner, "feature_names_in_", None)
    named = column_names(given)
    if wanted is not None and named is not None:
        if not set(wanted) <= set(named):
            return None
        given = open_table(given).select(list(wanted)).to_native()
    try:
        matrix, _ = read_matrix(given)
    except (TypeError, ValueError):  # not numbers
        return None
    if matrix.shape[1] != inner.n_features_in_:
        return None
    return standard_deviations(matrix)


def _coefficients_with_intervals(
    inner: Any, features: list[str], names: list[str], spreads: np.ndarray | None, drawn: dict[str, Any]
) -> str:
    """Coefficients about their mean over classes, those first that are surest not to be zero."""
    summary = inner.summary("sum")
    D = len(features)
    size = len(summary) // len(names)  # one more than D with an intercept
    mean, sd, lower, upper = (summary[key].to_numpy() for key in ("mean", "sd", "lower", "upper"))
    sign = summary["probability_of_sign"].to_numpy()
    of_features = np.flatnonzero((np.arange(len(summary)) % size < D) & np.isfinite(sd))
    if not of_features.size:  # classes are separated, and no prior holds coefficients back
        return _coefficients(inner, features, names, spreads, drawn)
    order = of_features[np.argsort(-np.abs(mean[of_features]) / np.maximum(sd[of_features], 1e-300), kind="stable")]
    chosen = order[:_MOST_LEARNED].tolist()
    pairs = [(names[i // size], features[i % size]) for i in chosen]
    unit = np.ones(len(chosen)) if spreads is None else spreads[[i % size for i in chosen]]
    drawn["chart-learned"] = {
        "chart": "intervals",
        "title": "Coefficients",
        "labels": _pair_labels(pairs),
        "mean": drawable(mean[chosen] * unit),
        "lower": drawable(lower[chosen] * unit),
        "upper": drawable(upper[chosen] * unit),
        "valueTitle": "coefficient",
    }
    body = [
        [
            f"{escape(name)}: {escape(feature)}",
            number(mean[i] * u),
            f"{number(lower[i] * u)} to {number(upper[i] * u)}",
            f"{sign[i]:.3f}",
            number(mean[i]),
            number(sd[i], 3),
        ]
        for i, u, (name, feature) in zip(chosen, unit, pairs, strict=True)
    ]
    head = ["class: feature", "mean", "95 % interval", "probability of the sign", "mean, per unit", "sd, per unit"]
    caption = (
        f"{_OF_UNIT if spreads is None else _OF_SPREAD}{_ABOVE}{_some(len(chosen), len(order))}, the surest of their "
        "sign first; lines are 95 % credible intervals."
    )
    return figure("chart-learned", "Coefficients", caption, table(head, body, "Coefficients"))


def _coefficients(
    inner: Any, features: list[str], names: list[str], spreads: np.ndarray | None, drawn: dict[str, Any]
) -> str:
    """Coefficients without intervals, the largest first."""
    W = np.asarray(inner.coef_, dtype=np.float64)
    if len(W) == len(names):
        W = W - W.mean(axis=0)
    else:  # scikit-learn has one row for two classes: the second against the first, twice what it is about their mean
        W, names = 0.5 * W, names[-1:]
    scaled = W if spreads is None else W * spreads
    order = np.argsort(-np.abs(scaled), axis=None, kind="stable")
    k, d = np.unravel_index(order[:_MOST_LEARNED], W.shape)
    pairs = [(names[i], features[j]) for i, j in zip(k, d, strict=True)]
    drawn["chart-learned"] = _bars("Coefficients", _pair_labels(pairs), scaled[k, d], "coefficient")
    body = [
        [f"{escape(name)}: {escape(feature)}", number(value), number(each)]
        for (name, feature), value, each in zip(pairs, scaled[k, d], W[k, d], strict=True)
    ]
    numbers = table(["class: feature", "coefficient", "per unit"], body, "Coefficients")
    caption = f"{_OF_UNIT if spreads is None else _OF_SPREAD}{_ABOVE}{_some(len(pairs), W.size)}, the largest first."
    return figure("chart-learned", "Coefficients", caption, numbers)


def _pair_labels(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Class and feature; the chart shortens what has no room."""
    return labels_of((f"{name}: {feature}" for name, feature in pairs), longest=80)


def _bars(title: str, labels: list[str], values: np.ndarray, of: str) -> dict[str, Any]:
    return {"chart": "bars", "title": title, "labels": labels, "values": drawable(values), "valueTitle": of}


def _relevances(inner: Any, features: list[str], drawn: dict[str, Any]) -> str:
    values = np.asarray(inner.relevances_, dtype=np.float64)
    order = np.argsort(-values, kind="stable")[:_MOST_LEARNED].tolist()
    labels = labels_of(features[d] for d in order)
    drawn["chart-learned"] = _bars("Relevances", labels, values[order], "relevance")
    body = [[escape(label), number(values[d])] for label, d in zip(labels, order, strict=True)]
    caption = (
        "The spread of each feature divided by its lengthscale: the larger, the more predictions depend on it. "
        f"{_some(len(order), len(values))}, the largest first."
    )
    return figure("chart-learned", "Relevances", caption, table(["feature", "relevance"], body, "Relevances"))


def _class_means(inner: Any, features: list[str], names: list[str]) -> str:
    means = np.asarray(inner.means_, dtype=np.float64)
    shown = min(len(features), _MOST_LEARNED)
    body = [[escape(features[d]), *(number(value) for value in means[:, d])] for d in range(shown)]
    words = f"The mean of each feature in each class. {_some(shown, len(features))}."
    return f"<p>{words}</p>" + table(["feature", *map(escape, names)], body, "Class means")


def _some(shown: int, of: int) -> str:
    return "All are shown" if shown == of else f"{shown} of {of:,} are shown"
