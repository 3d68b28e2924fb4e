"""An evaluation as one HTML file that needs nothing else: no network, no fonts, no other files.

The page holds what was said of the predictions, in words, tables and charts, and a table of utilities to type in: what
would be decided, and what that would have been worth, is worked out in the page.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from posteriori.data.features import is_table, open_table, read_features
from posteriori.decision.scores import calibration_bins, events
from posteriori.decision.utility import Utility
from posteriori.report import charts
from posteriori.report.evaluation import Evaluation, Score, proportion

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["report_page"]

_MOST_EMBEDDED = 2_000
"""Rows whose probabilities are in the page, to decide on: more say little more, and take long to load."""
_SEED = 0
_MOST_SHOWN = 10
"""Rows in the tables of uncertain and of surprising ones."""
_MOST_VALUES = 5
_MOST_MISSING = 20
_MOST_LEARNED = 30
"""Coefficients, relevances or means shown."""
_MOST_LOW = 15
"""Rows of a table that is shown in its full height."""
_BINS = 10
_LONGEST = 36
"""Characters of a name in tables and charts."""


def report_page(
    model: Any,
    table: Any,
    y: Any,
    evaluation: Evaluation,
    *,
    title: str,
    model_name: str,
    utility: Utility | None = None,
) -> str:
    """The report as the text of an HTML file.

    Parameters
    ----------
    model : fitted classifier, or Pipeline that ends with one
    table : table or array with n rows
        What was predicted from; it may hold the target.
    y : array (n,) of labels
    evaluation : Evaluation
        Of the model's probabilities for these rows.
    title : str
    model_name : str
        What to call the model.
    utility : Utility, optional
        With which the table of utilities begins; if left out that of a `UtilityClassifier`, or zero-one. One that
        differs from row to row is replaced by zero-one.
    """
    utility = getattr(model, "utility", None) if utility is None else utility
    rows = _opened(table, model)
    n = len(evaluation.codes)
    labels = np.asarray(y)
    if len(rows) != n or labels.shape != (n,):
        raise ValueError(f"table has {len(rows)} rows and y the shape {labels.shape}: the evaluation is of {n} rows.")
    names = labels_of(evaluation.classes)
    features = _features(rows, model, labels)
    drawn: dict[str, Any] = {}
    parts = {
        "title": escape(title),
        "style": _read("page.css"),
        "summary": _summary(evaluation, model_name),
        "data": _data(rows, features, evaluation, names, drawn),
        "scores": _scores(evaluation),
        "calibration": _calibration(evaluation, drawn),
        "confusion": _confusion(evaluation, names, drawn),
        "learned": _learned(model, rows, features, names, drawn),
        "uncertain": _rows_table(_most_uncertain(evaluation), rows, features, evaluation, names, "Most uncertain rows"),
        "surprising": _rows_table(_most_surprising(evaluation), rows, features, evaluation, names, "Surprising rows"),
        "decisions": _decisions_note(evaluation, utility),
        "charts_data": _json(drawn),
        "decisions_data": _json(_to_decide(evaluation, names, utility)),
        "library": charts.script(),
        "script": _read("page.js"),
    }
    parts["policy"] = escape(_policy(parts["library"], parts["script"]))
    return Template(_read("page.html")).substitute(parts)


def _read(name: str) -> str:
    return files("posteriori.report").joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """What a browser may do with the page: run these very scripts, load nothing, send nothing."""
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON for a script element, which no text in it can end."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be in a file


def labels_of(classes: Iterable[Any]) -> list[str]:
    """Names short enough to be shown, and all different.

    >>> labels_of(["a", 1])
    ['a', '1']
    """
    short: list[str] = []
    for label in classes:
        name = shortened(label) or "(empty)"
        short.append(name if name not in short else f"{name} ({len(short)})")
    return short


def shortened(value: Any, longest: int = _LONGEST) -> str:
    r"""On one line, without its middle if it is long.

    >>> shortened("a\nb"), shortened("0123456789", 7)
    ('a b', '0123…89')
    """
    text = " ".join(str(value).encode("utf-8", "replace").decode().split())
    return text if len(text) <= longest else f"{text[: longest - 3]}…{text[-2:]}"


# --- the table ------------------------------------------------------------------------------------------------------


def _opened(table: Any, model: Any) -> nw.DataFrame[Any]:
    if is_table(table):
        return open_table(table, argument="table")
    values = np.asarray(table)
    if values.ndim != 2:
        raise TypeError(f"table must be a table or a dense array (n, D), got {type(table).__name__}.")
    import pandas as pd

    names = getattr(model, "feature_names_in_", [f"x{d}" for d in range(values.shape[1])])
    return open_table(pd.DataFrame(values, columns=[str(name) for name in names]), argument="table")


def _features(rows: nw.DataFrame[Any], model: Any, y: np.ndarray) -> list[str]:
    """The columns but the target, which is known by its name or by its values."""
    target = getattr(model, "_target", None)
    for _, step in getattr(model, "steps", []):
        target = getattr(step, "target_", None) or getattr(step, "_target", None) or target
    return [name for name in rows.columns if name != target and not _is(rows.get_column(name), y)]


def _is(column: Any, y: np.ndarray) -> bool:
    """Whether the column holds y."""
    first = column.head(20).to_list()
    if list(map(str, first)) != list(map(str, y[:20].tolist())):
        return False
    return len(y) > 1 and list(map(str, column.to_list())) == list(map(str, y.tolist()))


def _missing(rows: nw.DataFrame[Any]) -> dict[str, int]:
    """How many values each column lacks."""
    lacking = {}
    for name in rows.columns:
        column = rows.get_column(name)
        absent = column.is_null()
        if column.dtype.is_float():
            absent = absent | column.is_nan().fill_null(True)
        lacking[str(name)] = int(absent.sum())
    return lacking


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "missing"
    text = f"{value:.4g}" if isinstance(value, (float, np.floating)) else shortened(value)
    return text.removesuffix(" 00:00:00")  # a day


# --- sections -------------------------------------------------------------------------------------------------------


def _summary(evaluation: Evaluation, model_name: str) -> str:
    n, scores = len(evaluation.codes), evaluation.scores
    accuracy, loss, plain = scores["accuracy"], scores["log_loss"], scores["log_loss_of_frequencies"]
    wide = f" (95 % interval: {_percent(accuracy.lower)} to {_percent(accuracy.upper)})"
    if loss.upper < plain.value:
        compared = "clearly below"
    elif loss.value < plain.value:
        compared = "below, though not clearly,"
    else:
        compared = "not below"
    return (
        f"<p class='lead'><strong>{escape(shortened(model_name, 120))}</strong> on {n:,} {_rows(n)} of "
        f"{len(evaluation.classes)} classes: the most probable class is the true one in {_percent(accuracy.value)} "
        f"of them{wide}. Its log-loss, {loss.value:.4f}, is {compared} that of the plain class frequencies, "
        f"{plain.value:.4f}.</p>"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _rows(n: int) -> str:
    return "row" if n == 1 else "rows"


def _data(
    rows: nw.DataFrame[Any], features: Sequence[str], evaluation: Evaluation, names: list[str], drawn: dict[str, Any]
) -> str:
    n = len(evaluation.codes)
    lacking = {name: count for name, count in _missing(rows).items() if count}
    total = sum(lacking.values())
    facts = [("Rows", f"{n:,}"), ("Columns", f"{len(rows.columns):,}"), ("Features", f"{len(features):,}")]
    facts += [("Classes", f"{len(names)}"), ("Missing values", f"{total:,}")]
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    html = f"<dl class='facts'>{listed}</dl>"
    if lacking:
        worst = sorted(lacking.items(), key=lambda item: -item[1])[:_MOST_MISSING]
        body = [[escape(shortened(name)), f"{count:,}", f"{_percent(count / n)}"] for name, count in worst]
        caption = "Missing values by column" + ("" if len(worst) == len(lacking) else f", the {len(worst)} with most")
        html += _table(["column", "missing", "of rows"], body, caption)
    counts = np.bincount(evaluation.codes, minlength=len(names))
    drawn["chart-classes"] = charts.bars(names, counts, value="rows")
    body = [[escape(name), f"{count:,}", f"{_percent(count / n)}"] for name, count in zip(names, counts, strict=True)]
    numbers = _table(["class", "rows", "share"], body, "Rows of each class")
    most, least = int(counts.argmax()), int(counts.argmin())
    said = f"{names[most]} is the most frequent class with {counts[most]:,} rows, {names[least]} the rarest with "
    return html + _figure("chart-classes", "Class balance", f"{said}{counts[least]:,}.", numbers)


_SCORES = {
    "accuracy": "Accuracy",
    "log_loss": "Log-loss",
    "log_loss_of_frequencies": "Log-loss of class frequencies",
    "brier": "Brier score",
    "calibration_error": "Calibration error",
}


def _scores(evaluation: Evaluation) -> str:
    scores, n = evaluation.scores, len(evaluation.codes)
    hits = round(scores["accuracy"].value * n)
    words = {
        "accuracy": f"The most probable class was the true one in {hits:,} of {n:,} {_rows(n)}.",
        "log_loss": "The mean of −log p(truth); lower is better. As good as giving the truth a probability of "
        f"{_percent(np.exp(-scores['log_loss'].value))} in every row.",
        "log_loss_of_frequencies": "What it costs to tell no row from another, and to give each the frequencies of the "
        "classes in these rows. A model that has learned something is below.",
        "brier": "The mean squared distance between probabilities and truth, from 0 (certain and right) to 2 (certain "
        "and wrong).",
        "calibration_error": "How far, in the mean, the probability of the most probable class is from how often it is "
        f"true: {100 * scores['calibration_error'].value:.1f} percentage points beyond what chance explains.",
    }
    cards = "".join(
        f"<div><dt>{name}</dt><dd><data class='score' id='score-{key}' value='{scores[key].value!r}'>"
        f"{scores[key].value:.4f}</data>{_interval(scores[key], key)}<p>{words[key]}</p></dd></div>"
        for key, name in _SCORES.items()
    )
    return f"<dl class='scores'>{cards}</dl>"


def _interval(score: Score, key: str) -> str:
    if key == "log_loss_of_frequencies":
        return "<span class='interval'>for comparison</span>"
    if score.lower == score.upper:
        return "<span class='interval'>no interval</span>"
    return f"<span class='interval'>95 % interval: {score.lower:.4f} to {score.upper:.4f}</span>"


def _calibration(evaluation: Evaluation, drawn: dict[str, Any]) -> str:
    ((p, hit),) = events(evaluation.probabilities, evaluation.codes, "top")
    n = len(p)
    bins = calibration_bins(p, hit, np.ones(n), min(_BINS, max(1, n // 5)))
    ranges = [proportion(round(f * m), round(m)) for f, m in zip(bins.frequency, bins.count, strict=True)]
    lower, upper = [r.lower for r in ranges], [r.upper for r in ranges]
    drawn["chart-reliability"] = charts.reliability(bins.probability, bins.frequency, lower, upper, bins.count)
    body = [
        [f"{bins.probability[b]:.3f}", f"{r.value:.3f}", f"{r.lower:.3f} to {r.upper:.3f}", f"{bins.count[b]:,.0f}"]
        for b, r in enumerate(ranges)
    ]
    numbers = _table(
        ["mean probability", "frequency", "95 % interval", "rows"], body, "Bins of about equally many rows"
    )
    within = sum(r.lower <= q <= r.upper for q, r in zip(bins.probability, ranges, strict=True))
    said = (
        "Points on the dashed line mean what they say: of rows given a probability of 80 %, 80 % are right. Below it "
        "the model is too sure, above it not sure enough. Lines are 95 % intervals; bars along the bottom say how many "
        f"rows a bin has. The interval holds the probability in {within} of {len(ranges)} bins."
    )
    return _figure("chart-reliability", "Reliability diagram", said, numbers, most="30rem")


def _confusion(evaluation: Evaluation, names: list[str], drawn: dict[str, Any]) -> str:
    counts, K = evaluation.confusion, len(names)
    drawn["chart-confusion"] = charts.confusion(names, counts)
    body = [
        [escape(name), *(f"{value:,}" for value in row), f"{row.sum():,}"]
        for name, row in zip(names, counts, strict=True)
    ]
    head = ["truth", *map(escape, names), "all"]
    numbers = _table(head, body, "Rows of each true class, by the class held most probable")
    wrong = counts - np.diag(np.diag(counts))
    said = "Shades are shares of the true class."
    if wrong.any():
        k, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
        most = int(wrong[k, j])
        said += f" The commonest error: {names[k]} taken for {names[j]}, in {most:,} {_rows(most)}."
    else:
        said += " No row was taken for another class."
    if K > charts.MOST_NUMBERS:
        said += " With so many classes the numbers are in the table below."
    least = "0" if K <= 8 else f"{120 + 24 * min(K, charts.MOST_NUMBERS)}px"
    return _figure("chart-confusion", "Confusion matrix", said, numbers, most=f"{12 + 3.4 * K:.0f}rem", least=least)


def _learned(
    model: Any, rows: nw.DataFrame[Any], columns: Sequence[str], names: list[str], drawn: dict[str, Any]
) -> str:
    """What the classifier has instead of the rows: coefficients, relevances or means, whichever there are."""
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
    """What is inside of pipelines and of what wraps a classifier."""
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
    """Standard deviations of what the classifier was given, (D,), if they can be told from these rows."""
    given: Any = rows.select(features).to_native()
    if hasattr(model, "steps") and len(model.steps) > 1:
        given = model[:-1].transform(rows.to_native())
    wanted = getattr(inner, "feature_names_in_", None)
    if wanted is not None and is_table(given):
        opened = open_table(given)
        if not set(wanted) <= set(opened.columns):
            return None
        given = opened.select(list(wanted)).to_native()
    try:
        matrix = read_features(given).matrix
    except (TypeError, ValueError):  # not numbers
        return None
    if matrix.shape[1] != inner.n_features_in_:
        return None
    if issparse(matrix):
        return np.sqrt(mean_variance_axis(csr_matrix(matrix), axis=0)[1])
    known = np.isfinite(matrix)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, matrix, 0.0).sum(axis=0) / count
    return np.sqrt((np.where(known, matrix - mean, 0.0) ** 2).sum(axis=0) / count)


_OF_SPREAD = "By how much one standard deviation of the feature, in these rows, raises"
_OF_UNIT = "By how much one unit of the feature raises"
_ABOVE = " the logit of the class above the mean of all classes. "


def _coefficients_with_intervals(
    inner: Any, features: list[str], names: list[str], spreads: np.ndarray | None, drawn: dict[str, Any]
) -> str:
    """Coefficients about their mean over classes, those first that are surest not to be zero."""
    table = inner.summary("sum")
    D = len(features)
    size = len(table) // len(names)  # one more than D with an intercept
    mean, sd, lower, upper = (table[key].to_numpy() for key in ("mean", "sd", "lower", "upper"))
    sign = table["probability_of_sign"].to_numpy()
    of_features = np.flatnonzero(np.arange(len(table)) % size < D)
    order = of_features[np.argsort(-np.abs(mean[of_features]) / np.maximum(sd[of_features], 1e-300), kind="stable")]
    chosen = order[:_MOST_LEARNED].tolist()
    pairs = [(names[i // size], features[i % size]) for i in chosen]
    unit = np.ones(len(chosen)) if spreads is None else spreads[[i % size for i in chosen]]
    drawn["chart-learned"] = charts.intervals(
        _short(pairs), mean[chosen] * unit, lower[chosen] * unit, upper[chosen] * unit, value="coefficient"
    )
    body = [
        [
            f"{escape(name)}: {escape(feature)}",
            f"{mean[i] * u:.4g}",
            f"{lower[i] * u:.4g} to {upper[i] * u:.4g}",
            f"{sign[i]:.3f}",
            f"{mean[i]:.4g}",
            f"{sd[i]:.3g}",
        ]
        for i, u, (name, feature) in zip(chosen, unit, pairs, strict=True)
    ]
    head = ["class: feature", "mean", "95 % interval", "probability of the sign", "mean, per unit", "sd, per unit"]
    said = (
        f"{_OF_UNIT if spreads is None else _OF_SPREAD}{_ABOVE}{_some(len(chosen), len(order))}, the surest of their "
        "sign first; lines are 95 % credible intervals."
    )
    return _figure("chart-learned", "Coefficients", said, _table(head, body, "Coefficients"))


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
    drawn["chart-learned"] = charts.bars(_short(pairs), scaled[k, d], value="coefficient")
    body = [
        [f"{escape(name)}: {escape(feature)}", f"{value:.4g}", f"{each:.4g}"]
        for (name, feature), value, each in zip(pairs, scaled[k, d], W[k, d], strict=True)
    ]
    numbers = _table(["class: feature", "coefficient", "per unit"], body, "Coefficients")
    said = f"{_OF_UNIT if spreads is None else _OF_SPREAD}{_ABOVE}{_some(len(pairs), W.size)}, the largest first."
    return _figure("chart-learned", "Coefficients", said, numbers)


def _short(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Class and feature, as short as there is room beside a chart."""
    return labels_of(f"{shortened(name, 14)}: {shortened(feature, 16)}" for name, feature in pairs)


def _relevances(inner: Any, features: list[str], drawn: dict[str, Any]) -> str:
    values = np.asarray(inner.relevances_, dtype=np.float64)
    order = np.argsort(-values, kind="stable")[:_MOST_LEARNED].tolist()
    labels = labels_of(features[d] for d in order)
    drawn["chart-learned"] = charts.bars(labels, values[order], value="relevance")
    body = [[escape(label), f"{values[d]:.4g}"] for label, d in zip(labels, order, strict=True)]
    said = (
        "The spread of each feature divided by its lengthscale: the larger, the more predictions depend on it. "
        f"{_some(len(order), len(values))}, the largest first."
    )
    return _figure("chart-learned", "Relevances", said, _table(["feature", "relevance"], body, "Relevances"))


def _class_means(inner: Any, features: list[str], names: list[str]) -> str:
    means = np.asarray(inner.means_, dtype=np.float64)
    shown = min(len(features), _MOST_LEARNED)
    body = [[escape(features[d]), *(f"{value:.4g}" for value in means[:, d])] for d in range(shown)]
    words = f"The mean of each feature in each class. {_some(shown, len(features))}."
    return f"<p>{words}</p>" + _table(["feature", *map(escape, names)], body, "Class means")


def _some(shown: int, of: int) -> str:
    return "All are shown" if shown == of else f"{shown} of {of:,} are shown"


def _most_uncertain(evaluation: Evaluation) -> np.ndarray:
    """Rows by the entropy of their probabilities, the highest first."""
    P = evaluation.probabilities
    entropy = -(P * np.log(np.maximum(P, 1e-300))).sum(axis=1)
    return np.argsort(-entropy, kind="stable")[:_MOST_SHOWN]


def _most_surprising(evaluation: Evaluation) -> np.ndarray:
    """Rows by how improbable their truth was."""
    return np.argsort(-evaluation.surprise, kind="stable")[:_MOST_SHOWN]


def _rows_table(
    chosen: np.ndarray,
    rows: nw.DataFrame[Any],
    features: Sequence[str],
    evaluation: Evaluation,
    names: list[str],
    caption: str,
) -> str:
    """Rows with their truth, what was thought of them, and some of their values."""
    columns = list(features[:_MOST_VALUES])
    listed = [rows.get_column(name)[chosen.tolist()].to_list() for name in columns]
    body = []
    for i, n in enumerate(chosen.tolist()):
        p, k = evaluation.probabilities[n], int(evaluation.codes[n])
        best = np.argsort(-p, kind="stable")[:3].tolist()
        thought = ", ".join(f"{escape(names[j])} <b>{p[j]:.3f}</b>" for j in best)
        cells = [str(n), escape(names[k]), f"{p[k]:.3g}", thought]
        body.append(cells + [escape(_shown(column[i])) for column in listed])
    head = ["row", "truth", "p(truth)", "most probable classes", *(escape(shortened(name)) for name in columns)]
    more = f"; the first {len(columns)} of {len(features)} features" if len(columns) < len(features) else ""
    return _table(head, body, f"{caption}, counted from 0{more}", words=(1, 3), kind="rows")


# --- decisions ------------------------------------------------------------------------------------------------------


def _embedded(n: int) -> np.ndarray:
    """The rows to decide on in the page."""
    if n <= _MOST_EMBEDDED:
        return np.arange(n)
    return np.sort(np.random.default_rng(_SEED).choice(n, _MOST_EMBEDDED, replace=False))


def _decisions_note(evaluation: Evaluation, utility: Utility | None) -> str:
    n = len(evaluation.codes)
    note = ""
    if n > _MOST_EMBEDDED:
        note += (
            f"<p>To keep this file small, decisions are worked out for {_MOST_EMBEDDED:,} of the {n:,} rows, chosen at "
            f"random (seed {_SEED}).</p>"
        )
    if utility is not None and not utility.constant:
        note += "<p>The utility given differs from row to row: the table begins with zero-one utilities instead.</p>"
    return note


def _to_decide(evaluation: Evaluation, names: list[str], utility: Utility | None) -> dict[str, Any]:
    """What page.js needs. Probabilities go in full precision, so that it decides exactly as `decide` does."""
    classes = evaluation.classes
    given = Utility.zero_one(classes) if utility is None or not utility.constant else utility.ordered(classes)
    assert given.matrix is not None
    chosen = _embedded(len(evaluation.codes))
    P = np.ascontiguousarray(evaluation.probabilities[chosen], dtype="<f8")
    return {
        "states": [str(label) for label in classes.tolist()],
        "labels": names,
        "actions": [str(action) for action in given.actions.tolist()],
        "utilities": given.matrix.tolist(),
        "truth": evaluation.codes[chosen].tolist(),
        "probabilities": b64encode(P.tobytes()).decode(),
    }


# --- pieces ---------------------------------------------------------------------------------------------------------


def _table(
    head: Sequence[str], body: Sequence[Sequence[str]], caption: str, words: tuple[int, ...] = (), kind: str = ""
) -> str:
    """A table in a box of its own to scroll in; the first cell of a row heads it. Cells are HTML already."""
    kinds = [" class='words'" if i in words else "" for i in range(len(head))]
    top = "".join(f"<th scope='col'{kind}>{cell}</th>" for cell, kind in zip(head, kinds, strict=True))
    lines = "".join(
        f"<tr><th scope='row'>{row[0]}</th>"
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in body
    )
    caption = escape(caption)
    return (
        f"<div class='wide{' tall' if len(body) > _MOST_LOW else ''}' tabindex='0' role='group' "
        f"aria-label='{caption}'><table class='{kind}'><caption>{caption}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _figure(key: str, title: str, said: str, numbers: str, *, most: str = "none", least: str = "0") -> str:
    """A chart no wider than `most` nor narrower than `least`, what it says, and its numbers for the screen reader."""
    reached = " tabindex='0'" if least != "0" else ""  # what scrolls must be reached by keys
    return (
        f"<figure><div class='wide'{reached}><div class='chart' id='{key}' role='img' "
        f"aria-label='{escape(title)}. {escape(said)}' style='max-width:{most};min-width:{least}'></div></div>"
        f"<figcaption><strong>{escape(title)}.</strong> {escape(said)}</figcaption>"
        f"<details><summary>Numbers of this chart</summary>{numbers}</details></figure>"
    )
