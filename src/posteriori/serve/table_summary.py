"""What is said of all rows of a stored table: classes, uncertainty, scores, and decisions with what they were worth.

What no utility changes is computed when the table is stored, the rest from `TableDecisions`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.decision.decisions import decide
from posteriori.reports.evaluation import Score, interval_about, mean_score, proportion, reliability
from posteriori.reports.page_parts import drawable, labels_of
from posteriori.serve.answers import PARTS
from posteriori.serve.stored_tables import StoredTable
from posteriori.serve.table_decisions import TableDecisions

__all__ = ["facts", "summary"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS = 24
_MOST_FLIPS = 100


def facts(table: StoredTable) -> dict[str, Any]:
    """What no utility changes: "classes", "uncertainty" and "scores" of the summary."""
    answers, n = table.answers, table.n_rows
    K = len(table.classes)
    counts, total = np.zeros(K, dtype=np.int64), np.zeros(K)
    for part in table.parts():
        counts += np.bincount(answers["class"][part], minlength=K)
        total += answers["proba"][part].sum(axis=0)
    told = zip(table.classes, counts.tolist(), (total / n).tolist(), strict=True)
    parts = {name: float(answers[name].mean()) for name in PARTS if name in answers}
    return {
        "classes": [{"class": name, "predicted": count, "mean_probability": mean} for name, count, mean in told],
        "uncertainty": parts or None,
        "scores": None if table.truth is None else _scores(table, table.truth),
    }


def _scores(table: StoredTable, truth: np.ndarray) -> dict[str, Any] | None:
    """Scores of the rows whose class is known; None if there are none."""
    K = len(table.classes)
    known = truth >= 0
    n = int(known.sum())
    if n == 0:
        return None
    top, hit, surprise, brier = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    confusion = np.zeros(K * K, dtype=np.int64)
    end = 0
    for part in table.parts():
        here = known[part]
        P, y, best = table.answers["proba"][part][here], truth[part][here], table.answers["class"][part][here]
        rows = slice(end, end := end + len(y))
        at = np.arange(len(y))
        own = P[at, y]
        top[rows], hit[rows] = P[at, best], best == y
        surprise[rows] = -np.log(np.maximum(own, 1e-300))
        brier[rows] = np.einsum("nk,nk->n", P, P) - 2.0 * own + 1.0  # |p - e_y|^2
        confusion += np.bincount(y.astype(np.int64) * K + best, minlength=K * K)
    return {
        "rows": n,
        "log_loss": mean_score(surprise).to_dict(),
        "accuracy": proportion(float(hit.mean()), n).to_dict(),
        "brier": mean_score(brier).to_dict(),
        "reliability": {name: drawable(values) for name, values in reliability(top, hit).items()},
        "confusion": {"labels": labels_of(table.classes), "counts": confusion.reshape(K, K).tolist()},
        "utility": None,
    }


def summary(table: StoredTable, decisions: TableDecisions | None, against: TableDecisions | None) -> dict[str, Any]:
    """The whole summary; `against` are decisions by another utility, whose differences are counted."""
    known = table.facts
    scores = known["scores"]
    if scores is not None and decisions is not None and table.truth is not None:
        counts = np.asarray(scores["confusion"]["counts"])
        scores = scores | {"utility": _worth(table.truth, counts, decisions)}
    told = None if decisions is None else _decisions(decisions, against)
    return {"rows": table.n_rows} | known | {"decisions": told, "scores": scores}


def _decisions(decisions: TableDecisions, against: TableDecisions | None) -> dict[str, Any]:
    A = len(decisions.actions)
    flips = [] if against is None else _flips(decisions, against)
    return {
        "actions": decisions.actions,
        "counts": np.bincount(decisions.codes, minlength=A).tolist(),
        "expected_utility": float(decisions.expected.mean()),
        "value_of_information": float(decisions.value_of_information.mean()),
        "margin": _margins(decisions.margin) if A > 1 else None,
        "flipped": None if against is None else sum(flip["rows"] for flip in flips),
        "flips": flips[:_MOST_FLIPS],
    }


def _margins(margin: np.ndarray) -> dict[str, Any]:
    """Quantiles, and how many rows are in each of some bins of equal width, which begin at zero."""
    counts, edges = np.histogram(margin, bins=_BINS, range=(0.0, float(margin.max()) or 1.0))
    quantiles = np.quantile(margin, _QUANTILES)
    return {"quantiles": quantiles.tolist(), "bins": edges.tolist(), "counts": counts.tolist()}


def _flips(decisions: TableDecisions, against: TableDecisions) -> list[dict[str, Any]]:
    """Pairs of an action and another one that takes its place, the most frequent first."""
    A = len(decisions.actions)
    pairs = against.codes.astype(np.int64) * A + decisions.codes
    counts = np.bincount(pairs, minlength=len(against.actions) * A).reshape(-1, A)
    found = np.argwhere(decisions.differ_from(against) & (counts > 0)).tolist()
    flips = [{"from": against.actions[a], "to": decisions.actions[b], "rows": int(counts[a, b])} for a, b in found]
    return sorted(flips, key=lambda flip: -flip["rows"])


def _worth(truth: np.ndarray, confusion: np.ndarray, decisions: TableDecisions) -> dict[str, Any]:
    r"""What decisions were worth on rows whose class is known.

    With n_ka rows of class k for which action a was taken, the realised utility is sum_ka n_ka U(k, a) / n; acting as
    if the most probable class j were true takes the best action b(j) of each class.
    """
    U, actions = decisions.matrix, decisions.actions
    K, A = U.shape
    known = truth >= 0
    taken = truth[known].astype(np.int64) * A + decisions.codes[known]
    counts = np.bincount(taken, minlength=K * A).reshape(K, A)
    shares = counts.sum(axis=1) / counts.sum()
    always = shares @ U
    as_if = U[:, decide(np.eye(K), decisions.utility).codes]
    return {
        "realised": _mean_utility(counts, U).to_dict(),
        "expected": float(decisions.expected[known].mean()),
        "always": [{"action": action, "value": value} for action, value in zip(actions, always.tolist(), strict=True)],
        "single": actions[int(always.argmax())],
        "most_probable": _mean_utility(confusion, as_if).to_dict(),
        "known": float(shares @ U.max(axis=1)),
        "counts": counts.tolist(),
    }


def _mean_utility(counts: np.ndarray, values: np.ndarray) -> Score:
    """The mean of values that occur so often, with its interval."""
    n = int(counts.sum())
    mean = float((counts * values).sum() / n)
    if n < 2:
        return interval_about(mean, np.inf)
    return interval_about(mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / (n - 1) / n)))
