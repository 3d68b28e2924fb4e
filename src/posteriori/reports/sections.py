"""What the page says of the data and of the predictions: balance, scores, calibration and confusion.

What charts show is put into `drawn`, by the id of their place in the page: the name of a function of page/charts.js,
and its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.decision.scores import events
from posteriori.reports.evaluation import Evaluation, Score, reliability
from posteriori.reports.page_parts import drawable, figure, number, percent, rows_word, shortened, table

if TYPE_CHECKING:
    import narwhals as nw

__all__ = [
    "about",
    "calibration",
    "confusion",
    "data",
    "most_surprising",
    "most_uncertain",
    "rows_table",
    "score_cards",
    "summary",
]

_MOST_SHOWN = 10
"""The most rows in a table."""
_MOST_VALUES = 5
"""The most features shown of a row."""
_MOST_MISSING = 20
_MOST_NUMBERS = 20
"""Classes up to which the cells of a confusion matrix have room for numbers, but on a telephone."""
_SCORES = {
    "accuracy": "Accuracy",
    "log_loss": "Log-loss",
    "log_loss_of_frequencies": "Log-loss of class frequencies",
    "brier": "Brier score",
    "calibration_error": "Calibration error",
}


def summary(evaluation: Evaluation, model_name: str) -> str:
    """The whole evaluation in two sentences."""
    n, scores = len(evaluation.codes), evaluation.scores
    accuracy, loss, plain = scores["accuracy"], scores["log_loss"], scores["log_loss_of_frequencies"]
    wide = f" (95 % interval: {percent(accuracy.lower)} to {percent(accuracy.upper)})"
    if loss.upper < plain.value:
        compared = "clearly below"
    elif loss.value < plain.value:
        compared = "below, though not clearly,"
    else:
        compared = "not below"
    return (
        f"<p class='lead'><strong>{escape(shortened(model_name, 120))}</strong> on {n:,} {rows_word(n)} of "
        f"{len(evaluation.classes)} classes: the most probable class is the true one in {percent(accuracy.value)} "
        f"of them{wide}. Its log-loss, {loss.value:.4f}, is {compared} that of the plain class frequencies, "
        f"{plain.value:.4f}.</p>"
    )


def about(facts: Mapping[str, str]) -> str:
    """The list of what the page is about, such as the model, the target and the file with the rows."""
    return (
        "<dl class='about'>"
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
        + "</dl>"
    )


def data(
    rows: nw.DataFrame[Any], features: Sequence[str], evaluation: Evaluation, names: list[str], drawn: dict[str, Any]
) -> str:
    """The section on the data: numbers of rows, columns and missing values, and of rows in each class."""
    n = len(evaluation.codes)
    lacking = {name: count for name, count in _missing(rows).items() if count}
    total = sum(lacking.values())
    facts = [("Rows", f"{n:,}"), ("Columns", f"{len(rows.columns):,}"), ("Features", f"{len(features):,}")]
    facts += [("Classes", f"{len(names)}"), ("Missing values", f"{total:,}")]
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    html = f"<dl class='facts'>{listed}</dl>"
    if lacking:
        worst = sorted(lacking.items(), key=lambda item: -item[1])[:_MOST_MISSING]
        body = [[escape(shortened(name)), f"{count:,}", f"{percent(count / n)}"] for name, count in worst]
        caption = "Missing values by column" + ("" if len(worst) == len(lacking) else f", the {len(worst)} with most")
        html += table(["column", "missing", "of rows"], body, caption)
    counts = np.bincount(evaluation.codes, minlength=len(names))
    drawn["chart-classes"] = {
        "chart": "bars",
        "title": "Class balance",
        "labels": names,
        "values": counts.tolist(),
        "valueTitle": "rows",
    }
    body = [[escape(name), f"{count:,}", f"{percent(count / n)}"] for name, count in zip(names, counts, strict=True)]
    numbers = table(["class", "rows", "share"], body, "Rows of each class")
    most, least = int(counts.argmax()), int(counts.argmin())
    caption = (
        f"{names[most]} is the most frequent class with {counts[most]:,} {rows_word(int(counts[most]))}, "
        f"{names[least]} the rarest with {counts[least]:,}."
    )
    return html + figure("chart-classes", "Class balance", caption, numbers)


def _missing(rows: nw.DataFrame[Any]) -> dict[str, int]:
    """The number of missing values of each column."""
    lacking = {}
    for name in rows.columns:
        column = rows.get_column(name)
        absent = column.is_null()
        if column.dtype.is_float():
            absent = absent | column.is_nan().fill_null(True)
        lacking[str(name)] = int(absent.sum())
    return lacking


def score_cards(evaluation: Evaluation) -> str:
    """Every score with its interval, and what it means."""
    scores, n = evaluation.scores, len(evaluation.codes)
    right = int((evaluation.probabilities.argmax(axis=1) == evaluation.codes).sum())
    words = {
        "accuracy": f"The most probable class was the true one in {right:,} of {n:,} {rows_word(n)}.",
        "log_loss": "The mean of −log p(truth); lower is better. As good as giving the truth a probability of "
        f"{percent(np.exp(-scores['log_loss'].value))} in every row.",
        "log_loss_of_frequencies": "What it costs to tell no row from another, and to give each the frequencies of the "
        "classes in these rows. A model that has learned something is below.",
        "brier": "The mean squared distance between probabilities and truth, from 0 (certain and right) to 2 (certain "
        "and wrong).",
        "calibration_error": "How far, in the mean, the probability of the most probable class is from how often it is "
        f"true: {100 * scores['calibration_error'].value:.1f} percentage points beyond what chance explains.",
    }
    cards = "".join(
        f"<div><dt>{name}</dt><dd><data class='score' id='score-{key}' value='{scores[key].value!r}'>"
        f"{scores[key].value:.4f}</data>{_interval(scores[key], key, n)}<p>{words[key]}</p></dd></div>"
        for key, name in _SCORES.items()
    )
    return f"<dl class='scores'>{cards}</dl>"


def _interval(score: Score, key: str, n: int) -> str:
    if key == "log_loss_of_frequencies":
        return "<span class='interval'>for comparison</span>"
    if not score.has_interval:
        return (
            f"<span class='interval'>{'one row has no interval' if n == 1 else 'no interval for so many rows'}</span>"
        )
    return f"<span class='interval'>95 % interval: {score.lower:.4f} to {score.upper:.4f}</span>"


def calibration(evaluation: Evaluation, drawn: dict[str, Any]) -> str:
    """The reliability diagram: how often the most probable class is true, by its probability."""
    ((p, hit),) = events(evaluation.probabilities, evaluation.codes, "top")
    found = reliability(p, hit, evaluation.weights)
    drawn["chart-reliability"] = {"chart": "reliability", "title": "Reliability diagram"} | {
        name: drawable(values) for name, values in found.items()
    }
    bins = list(zip(*found.values(), strict=True))
    body = [
        [f"{mean:.3f}", f"{share:.3f}", f"{lower:.3f} to {upper:.3f}", f"{rows:,.0f}"]
        for mean, share, lower, upper, rows in bins
    ]
    numbers = table(["mean probability", "frequency", "95 % interval", "rows"], body, "Bins of about equally many rows")
    within = sum(lower <= mean <= upper for mean, _, lower, upper, _ in bins)
    caption = (
        "Points on the dashed line mean what they say: of rows given a probability of 80 %, 80 % are right. Below it "
        "the model is too sure, above it not sure enough. Lines are 95 % intervals; bars along the bottom say how many "
        f"rows a bin has. The interval holds the probability in {within} of {len(bins)} bins."
    )
    return figure("chart-reliability", "Reliability diagram", caption, numbers)


def confusion(evaluation: Evaluation, names: list[str], drawn: dict[str, Any]) -> str:
    """The confusion matrix: rows of each true class by the most probable one."""
    counts, K = evaluation.confusion, len(names)
    drawn["chart-confusion"] = {
        "chart": "confusion",
        "title": "Confusion matrix",
        "labels": names,
        "counts": counts.tolist(),
        "unit": "rows" if evaluation.weights is None else "weight",
    }
    body = [
        [
            escape(name),
            *(f"{value:,.4g}" if evaluation.weights is not None else f"{value:,}" for value in (*row, row.sum())),
        ]
        for name, row in zip(names, counts, strict=True)
    ]
    head = ["truth", *map(escape, names), "all"]
    what = "Rows" if evaluation.weights is None else "Weight"
    numbers = table(head, body, f"{what} of each true class, by the class held most probable")
    wrong = counts - np.diag(np.diag(counts))
    caption = "Blue is right, orange is wrong; shades are shares of the true class."
    if wrong.any():
        k, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
        rows = int(((evaluation.codes == k) & (evaluation.probabilities.argmax(axis=1) == j)).sum())
        caption += f" The commonest error: {names[k]} taken for {names[j]}, in {rows:,} {rows_word(rows)}."
    else:
        caption += " No row was taken for another class."
    if K > _MOST_NUMBERS:
        caption += " With so many classes the numbers are in the table below."
    return figure("chart-confusion", "Confusion matrix", caption, numbers)


def most_uncertain(evaluation: Evaluation) -> np.ndarray:
    """The rows with the highest entropy of their probabilities, the highest first."""
    P = evaluation.probabilities
    entropy = -(P * np.log(np.maximum(P, 1e-300))).sum(axis=1)
    return np.argsort(-entropy, kind="stable")[:_MOST_SHOWN]


def most_surprising(evaluation: Evaluation) -> np.ndarray:
    """The rows whose true class was least probable, the least probable first."""
    return np.argsort(-evaluation.surprise, kind="stable")[:_MOST_SHOWN]


def rows_table(
    chosen: np.ndarray,
    rows: nw.DataFrame[Any],
    features: Sequence[str],
    evaluation: Evaluation,
    names: list[str],
    caption: str,
) -> str:
    """A table of rows: their true class, their most probable classes, and some of their values."""
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
    return table(head, body, f"{caption}, counted from 0{more}", words=(1, 3), kind="rows")


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "missing"
    text = number(value) if isinstance(value, (float, np.floating)) else shortened(value)
    return text.removesuffix(" 00:00:00")  # a day
