"""An evaluation as one HTML file that needs nothing else: no network, no fonts, no other files.

The page holds what was said of the predictions, in words, tables and charts, and a table of utilities to type in: what
would be decided, and what that would have been worth, is worked out in the page.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.decision.utility import Utility
from posteriori.reports import charts, sections
from posteriori.reports.evaluation import Evaluation
from posteriori.reports.learned import learned
from posteriori.reports.notable_rows import most_surprising, most_uncertain, rows_table
from posteriori.reports.page_parts import labels_of
from posteriori.rows.features import is_table, open_table

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["report_page"]

_MOST_EMBEDDED = 2_000
"""Rows whose probabilities are in the page, to decide on: more say little more, and take long to load."""
_SEED = 0


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
        "summary": sections.summary(evaluation, model_name),
        "data": sections.data(rows, features, evaluation, names, drawn),
        "scores": sections.score_cards(evaluation),
        "calibration": sections.calibration(evaluation, drawn),
        "confusion": sections.confusion(evaluation, names, drawn),
        "learned": learned(model, rows, features, names, drawn),
        "uncertain": rows_table(most_uncertain(evaluation), rows, features, evaluation, names, "Most uncertain rows"),
        "surprising": rows_table(most_surprising(evaluation), rows, features, evaluation, names, "Surprising rows"),
        "decisions": _decisions_note(evaluation, utility),
        "charts_data": _json(drawn),
        "decisions_data": _json(_to_decide(evaluation, names, utility)),
        "library": charts.script(),
        "script": _read("page.js"),
    }
    parts["policy"] = escape(_policy(parts["library"], parts["script"]))
    return Template(_read("page.html")).substitute(parts)


def _read(name: str) -> str:
    return files("posteriori.reports").joinpath(name).read_text(encoding="utf-8")


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
