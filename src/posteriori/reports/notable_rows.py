"""Rows worth looking at: those the model is least sure of, and those whose truth it held improbable."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.reports.evaluation import Evaluation
from posteriori.reports.page_parts import shortened, table

if TYPE_CHECKING:
    import narwhals as nw

__all__ = ["most_surprising", "most_uncertain", "rows_table"]

_MOST_SHOWN = 10
"""Rows in a table."""
_MOST_VALUES = 5
"""Features of a row."""


def most_uncertain(evaluation: Evaluation) -> np.ndarray:
    """Rows by the entropy of their probabilities, the highest first."""
    P = evaluation.probabilities
    entropy = -(P * np.log(np.maximum(P, 1e-300))).sum(axis=1)
    return np.argsort(-entropy, kind="stable")[:_MOST_SHOWN]


def most_surprising(evaluation: Evaluation) -> np.ndarray:
    """Rows by how improbable their truth was."""
    return np.argsort(-evaluation.surprise, kind="stable")[:_MOST_SHOWN]


def rows_table(
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
    return table(head, body, f"{caption}, counted from 0{more}", words=(1, 3), kind="rows")


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "missing"
    text = f"{value:.4g}" if isinstance(value, (float, np.floating)) else shortened(value)
    return text.removesuffix(" 00:00:00")  # a day
