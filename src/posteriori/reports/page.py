"""An evaluation as one HTML file that needs nothing else: no network, no fonts, no other files.

The page shows the scores in words, tables and charts, and has a table of utilities to type in: what would be decided,
and what that would have been worth, is computed in the page.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.decision.utility import Utility
from posteriori.files import replacing
from posteriori.reports import sections
from posteriori.reports.evaluation import Evaluation, evaluate
from posteriori.reports.learned import learned
from posteriori.reports.page_parts import labels_of
from posteriori.rows.engines import read_labels
from posteriori.rows.matrices import as_table

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["Report", "report", "report_page"]

_MODULES = ("elements.js", "drawing.js", "charts.js", "decide.js", "utility_table.js", "report.js")
"""Parts of the script, each after those that it imports."""
_IMPORT_OR_EXPORT = re.compile(r"^import\b[^;]*;\n|^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_MOST_EMBEDDED = 2_000
"""Rows whose probabilities are in the page, to decide on: more say little more, and take long to load."""
_SEED = 0


@dataclass(frozen=True)
class Report:
    """An evaluation as a page: write it with `save`, or show it in a notebook.

    Attributes
    ----------
    html : str
        The whole page; it loads nothing and sends nothing.
    evaluation : Evaluation
        The numbers that the page shows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GaussianClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> page = report(GaussianClassifier("tied").fit(X[::2], y[::2]), X[1::2], y[1::2])
    >>> round(page.evaluation.scores["accuracy"].value, 2), page.html[:15]
    (0.96, '<!DOCTYPE html>')
    """

    html: str = field(repr=False)
    evaluation: Evaluation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to the file `path`, as a whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f"<iframe srcdoc='{escape(self.html)}' style='width:100%;height:40em;border:0'></iframe>"


def report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    sample_weight: Any = None,
    utility: Utility | None = None,
    probabilities: Any = None,
    title: str | None = None,
    name: str | None = None,
    facts: Mapping[str, str] | None = None,
) -> Report:
    """Evaluate a fitted classifier and make a page of it: one HTML file that needs nothing else.

    Parameters
    ----------
    model : fitted classifier with `predict_proba`, or a Pipeline that ends with one
    X : table or dense array with n rows
        May hold the columns that y and sample_weight name.
    y : labels (n,), or the name of a column of X
    path : path, optional
        The file to write the page to.
    sample_weight : numbers (n,), or the name of a column of X, optional
    utility : Utility, optional
        The utility that the page shows at first; that of a `UtilityClassifier`, or zero-one, if left out.
    probabilities : array (n, K), optional
        The probabilities of the model for these rows, if they are known already.
    title : str, optional
        The heading of the page.
    name : str, optional
        What to call the model; its class if left out.
    facts : mapping of str to str, optional
        More to say at the head of the page, beside the model and the target: files, dates, units.

    Returns
    -------
    Report

    Examples
    --------
    >>> report(model, table, "species", "report.html")  # doctest: +SKIP
    """
    evaluation = evaluate(model, X, y, sample_weight=sample_weight, utility=utility, probabilities=probabilities)
    name = type(model[-1] if hasattr(model, "steps") else model).__name__ if name is None else name
    html = report_page(
        model,
        X,
        read_labels(X, y),
        evaluation,
        title=f"{name}: evaluation" if title is None else title,
        model_name=name,
        utility=utility,
        facts=_facts(model, name, y) | dict(facts or {}),
        not_features=[column for column in (y, sample_weight) if isinstance(column, str)],
    )
    page = Report(html, evaluation)
    if path is not None:
        page.save(path)
    return page


def report_page(
    model: Any,
    table: Any,
    y: Any,
    evaluation: Evaluation,
    *,
    title: str,
    model_name: str,
    utility: Utility | None = None,
    facts: Mapping[str, str] | None = None,
    not_features: Collection[str] = (),
) -> str:
    """Write an evaluation as the text of an HTML file.

    Parameters
    ----------
    model : fitted classifier, or Pipeline that ends with one
    table : table or array with n rows
        What was predicted from; it may hold the target.
    y : array (n,) of labels
    evaluation : Evaluation
        The evaluation of the model's probabilities for these rows.
    title : str
    model_name : str
        What to call the model.
    utility : Utility, optional
        The utility that the page shows at first; if left out that of a `UtilityClassifier`, or zero-one. One that
        differs from row to row is replaced by zero-one.
    facts : mapping of str to str, optional
        What the page is about, shown at its head.
    not_features : names of columns
        Columns of the table that the model does not see, such as the target.
    """
    utility = getattr(model, "utility", None) if utility is None else utility
    rows = _opened(table, model)
    n = len(evaluation.codes)
    labels = np.asarray(y)
    if len(rows) != n or labels.shape != (n,):
        raise ValueError(f"table has {len(rows)} rows and y the shape {labels.shape}: the evaluation is of {n} rows.")
    names = labels_of(evaluation.classes)
    features = _features(rows, not_features, labels)
    drawn: dict[str, Any] = {}
    parts = {
        "title": escape(title),
        "style": _read("style.css") + _read("report.css"),
        "summary": sections.summary(evaluation, model_name),
        "about": sections.about(facts or {}),
        "data": sections.data(rows, features, evaluation, names, drawn),
        "scores": sections.score_cards(evaluation),
        "calibration": sections.calibration(evaluation, drawn),
        "confusion": sections.confusion(evaluation, names, drawn),
        "learned": learned(model, rows, features, names, drawn),
        "uncertain": sections.rows_table(
            sections.most_uncertain(evaluation), rows, features, evaluation, names, "Most uncertain rows"
        ),
        "surprising": sections.rows_table(
            sections.most_surprising(evaluation), rows, features, evaluation, names, "Surprising rows"
        ),
        "decisions": _decisions_note(evaluation, utility),
        "charts_data": _json(drawn),
        "decisions_data": _json(_to_decide(evaluation, names, utility)),
        "script": _script(),
    }
    parts["policy"] = escape(_policy(parts["script"], parts["style"]))
    return Template(_read("report.html")).substitute(parts)


def _facts(model: Any, name: str, y: Any) -> dict[str, str]:
    """The model and, if it has a name, the target."""
    inner = model[-1] if hasattr(model, "steps") else model
    kind = type(inner).__name__
    facts = {"Model": kind if name == kind else f"{name} ({kind})"}
    return facts | {"Target": y} if isinstance(y, str) else facts


def _read(name: str) -> str:
    return files("posteriori.reports").joinpath("page", name).read_text(encoding="utf-8")


def _script() -> str:
    """The modules as one script: without imports and exports, in a scope that they share."""
    modules = "".join(_IMPORT_OR_EXPORT.sub("", _read(name)) for name in _MODULES)
    return '(() => {\n"use strict";\n' + modules + "})();"


def _policy(script: str, style: str) -> str:
    """The security policy of the page: a browser may use this script and style, but load nothing and send nothing."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _json(value: Any) -> str:
    """A value as JSON for a script element, escaped so that no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be in a file


def _opened(table: Any, model: Any) -> nw.DataFrame[Any]:
    return as_table(table, getattr(model, "feature_names_in_", None), argument="table")


def _features(rows: nw.DataFrame[Any], not_features: Collection[str], y: np.ndarray) -> list[str]:
    """The columns but those that are not features, and the target, which is known by its values."""
    return [name for name in rows.columns if name not in not_features and not _holds(rows.get_column(name), y)]


def _holds(column: Any, y: np.ndarray) -> bool:
    """Whether the column holds the labels y."""
    first = column.head(20).to_list()
    if list(map(str, first)) != list(map(str, y[:20].tolist())):
        return False
    return len(y) > 1 and list(map(str, column.to_list())) == list(map(str, y.tolist()))


def _embedded(n: int) -> np.ndarray:
    """Numbers of the rows whose probabilities are in the page, to decide on."""
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
    """The data that the page decides with, in full precision, so that it decides exactly as `decide` does."""
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
