"""Fitting from the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from posteriori.cli.rows import counted, labels_of, peak_memory, require_columns, with_labels
from posteriori.cli.saying import listed, note, said, say_json
from posteriori.meta.selection import Choice, build, choose
from posteriori.reports.evaluation import evaluate
from posteriori.storage import save
from posteriori.tables.files import read_files

_MOST_CLASSES = 12
"""Shown one by one."""
_JUDGED = 50_000
"""Rows of the fit whose predictions are judged, at most."""


def run(
    tables: Sequence[str],
    target: str,
    name: str,
    out: str | None,
    weight: str | None,
    drop: Sequence[str],
    seed: int,
    as_json: bool,
) -> None:
    """Read, choose, fit, store, and say what came out."""
    table = read_files(tables)
    require_columns(table, [target], "--target")
    require_columns(table, [] if weight is None else [weight], "--weight")
    require_columns(table, drop, "--drop")
    table = with_labels(table.drop_columns([*drop]) if drop else table, target)
    counts = counted(table, target)
    _require_classes(counts, table, target)

    began = perf_counter()
    choice = None
    if name == "auto":
        if sys.stderr.isatty():
            note("comparing models on rows held out; --model NAME does without.")
        features = table if weight is None else table.drop_columns([weight])
        labels = labels_of(table, target)
        choice = choose(lambda rows: features.take(pa.array(rows)), labels, target, random_state=seed)
        name = choice.name
    model = build(name, random_state=seed, verbose=int(sys.stderr.isatty() and name in ("gp", "deep-gp")))
    weights = {} if weight is None else {"model__sample_weight": weight}
    if weight is not None:
        model.set_params(encode__carry=(weight,))
    model.fit(table, target, **weights)
    seconds = perf_counter() - began
    if out is not None:
        save(model, out)
    summary = _summary(model, table, counts, target, name, choice, seconds, seed)
    if as_json:
        say_json({**summary, "stored": out})
    else:
        _print(summary, choice)
        said().print(f"\nStored in {out}." if out else "\nNot stored: give --out FILE to keep the model.", markup=False)


def _require_classes(counts: dict[Any, int], table: pa.Table, target: str) -> None:
    if len(counts) < 2:
        raise ValueError(f"{target!r} has one value only, {next(iter(counts))!r}: there is nothing to tell apart.")
    if pa.types.is_floating(table[target].type) and any(name != round(name) for name in counts):
        raise ValueError(f"{target!r} holds numbers with fractions, which are no classes: choose another column.")
    if len(counts) > 0.5 * table.num_rows and len(counts) > 20:
        raise ValueError(
            f"{target!r} has {len(counts)} different values in {table.num_rows} rows: that is no set of classes, "
            "choose another column."
        )


def _summary(
    model: Any,
    table: pa.Table,
    counts: dict[Any, int],
    target: str,
    name: str,
    choice: Choice | None,
    seconds: float,
    seed: int,
) -> dict[str, Any]:
    """What is to be said, in plain values."""
    some = table
    if table.num_rows > _JUDGED:
        rows = np.random.default_rng(seed).choice(table.num_rows, _JUDGED, replace=False)
        some = table.take(pa.array(np.sort(rows)))
    judged = evaluate(labels_of(some, target), model.predict_proba(some), model.classes_)
    inner = model[-1]
    described = model[0].describe().reset_index()
    evidence = None
    with suppress(AttributeError, ValueError):  # not all have one
        evidence = float(inner.log_evidence_)
    return {
        "model": name,
        "class": type(inner).__name__,
        "rows": table.num_rows,
        "target": target,
        "classes": {str(k): n for k, n in counts.items()},
        "columns": [{key: _plain(value) for key, value in row.items()} for row in described.to_dict("records")],
        "features": len(model[0].get_feature_names_out()),
        "seconds": round(seconds, 3),
        "peak_memory_mb": peak_memory(),
        "log_evidence": evidence,
        "training": {key: judged.scores[key].value for key in ("accuracy", "log_loss", "log_loss_of_frequencies")},
        "choice": None
        if choice is None
        else {
            "reason": choice.reason,
            "candidates": [vars(candidate) for candidate in choice.candidates],
        },
    }


def _print(summary: dict[str, Any], choice: Choice | None) -> None:
    console = said()
    console.print(
        f"{summary['class']} fitted to {summary['rows']:,} rows in {summary['seconds']:.2g} s: {summary['target']} "
        f"from {summary['features']} features. Peak memory: {summary['peak_memory_mb']:,} MB.",
        markup=False,
    )
    classes = listed("class", "rows", "share")
    shown = sorted(summary["classes"].items(), key=lambda item: -item[1])
    for name, count in shown[:_MOST_CLASSES]:
        classes.add_row(name, str(count), f"{count / summary['rows']:.1%}")
    if len(shown) > _MOST_CLASSES:
        rest = sum(count for _, count in shown[_MOST_CLASSES:])
        classes.add_row(f"{len(shown) - _MOST_CLASSES} more", str(rest), f"{rest / summary['rows']:.1%}")
    console.print()
    console.print(classes)
    if choice is not None:
        console.print(f"\nModel: {choice.name}, {choice.reason}.", markup=False)
        table = listed("candidate", "log-loss", "behind", "+-", "seconds")
        for c in choice.candidates:
            table.add_row(c.name, f"{c.log_loss:.4f}", f"{c.behind:.4f}", f"{c.error:.4f}", f"{c.seconds:.2g}")
        console.print(table)
    console.print()
    columns = listed("column", "kind", "missing", "becomes")
    columns.columns[1].justify = columns.columns[3].justify = "left"
    for row in summary["columns"]:
        becomes = f"dropped: {row['dropped']}" if row["dropped"] else row["becomes"]
        columns.add_row(row["column"], row["kind"], f"{row['missing']:.1%}" if row["missing"] else "", becomes)
    console.print(columns)
    training = summary["training"]
    console.print(
        f"\nOn rows of the fit: accuracy {training['accuracy']:.3f}, log-loss {training['log_loss']:.4f} (class "
        f"frequencies alone: {training['log_loss_of_frequencies']:.4f}). What new rows would show, "
        "`posteriori evaluate` says.",
        markup=False,
    )
    if summary["log_evidence"] is not None:
        console.print(f"Log evidence: {summary['log_evidence']:.2f}.", markup=False)


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
