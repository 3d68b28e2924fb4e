"""Fitting from the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from posteriori.cli.inputs import drop_unlabelled, require_columns
from posteriori.cli.memory import peak_memory
from posteriori.cli.output import plain_table, print_json, print_note, result_console
from posteriori.meta.selection import Selection, select_model, table_model
from posteriori.reports import evaluate
from posteriori.rows.engines import take_rows
from posteriori.storage import save
from posteriori.tables.files import read_files

_MOST_CLASSES = 12
"""The most classes that are shown one by one."""
_MOST_SCORED = 50_000
"""Rows of the fit whose predictions are scored."""


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
    """Read the table, select a model, fit and store it, and print a summary."""
    table = _read(tables, target, weight, drop)
    counts = _count_values(table, target)
    _require_classes(counts, table, target)
    began = perf_counter()
    selection = _select(table, target, weight, seed) if name == "auto" else None
    name = name if selection is None else selection.name
    model = _fit(name, table, target, weight, seed)
    seconds = perf_counter() - began
    if out is not None:
        save(model, out)
    summary = {
        "model": name,
        **_summary(model, table, counts, target, seed),
        "seconds": round(seconds, 3),
        "choice": None if selection is None else _selection_summary(selection),
    }
    if as_json:
        print_json({**summary, "stored": out})
    else:
        _print(summary, selection)
        where = f"\nStored in {out}." if out else "\nNot stored: give --out FILE to keep the model."
        result_console().print(where, markup=False)


def _read(tables: Sequence[str], target: str, weight: str | None, drop: Sequence[str]) -> pa.Table:
    """The rows whose target is known, without the columns to leave out."""
    table = read_files(tables)
    require_columns(table, [target], "--target")
    require_columns(table, [] if weight is None else [weight], "--weight")
    require_columns(table, drop, "--drop")
    return drop_unlabelled(table.drop_columns([*drop]) if drop else table, target)


def _count_values(table: pa.Table, column: str) -> dict[Any, int]:
    """The number of rows with each value of a column, in the order of the values."""
    found = pc.value_counts(table[column])
    pairs = zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: (str(type(pair[0])), pair[0])))


def _require_classes(counts: dict[Any, int], table: pa.Table, target: str) -> None:
    """Raise unless the target looks like a set of classes."""
    if len(counts) < 2:
        raise ValueError(
            f"{target!r} has one value only, {next(iter(counts))!r}, and a classifier needs two classes: choose "
            "another column."
        )
    if pa.types.is_floating(table[target].type) and any(name != round(name) for name in counts):
        raise ValueError(f"{target!r} holds numbers with fractions, which are not classes: choose another column.")
    if len(counts) > 0.5 * table.num_rows and len(counts) > 20:
        raise ValueError(
            f"{target!r} has {len(counts)} different values in {table.num_rows} rows: that is not a set of classes, "
            "choose another column."
        )


def _select(table: pa.Table, target: str, weight: str | None, seed: int) -> Selection:
    if sys.stderr.isatty():
        print_note("comparing models on rows held out; --model NAME does without.")
    return select_model(table if weight is None else table.drop_columns([weight]), target, random_state=seed)


def _fit(name: str, table: pa.Table, target: str, weight: str | None, seed: int) -> Any:
    model = table_model(name, random_state=seed, verbose=int(sys.stderr.isatty() and name in ("gp", "deep-gp")))
    if weight is None:
        return model.fit(table, target)
    return model.set_params(encode__carry=(weight,)).fit(table, target, model__sample_weight=weight)


def _summary(model: Any, table: pa.Table, counts: dict[Any, int], target: str, seed: int) -> dict[str, Any]:
    """The summary of a fit in plain values: the data, the model and its scores."""
    rows = table
    if table.num_rows > _MOST_SCORED:
        chosen = np.random.default_rng(seed).choice(table.num_rows, _MOST_SCORED, replace=False)
        rows = take_rows(table, np.sort(chosen))
    scores = evaluate(model, rows, target).scores
    encoder, classifier = model[0], model[-1]
    evidence = None
    with suppress(AttributeError, ValueError):  # not all have one
        evidence = float(classifier.log_evidence_)
    described = encoder.describe().reset_index().to_dict("records")
    return {
        "class": type(classifier).__name__,
        "rows": table.num_rows,
        "target": target,
        "classes": {str(k): n for k, n in counts.items()},
        "columns": [{key: _plain(value) for key, value in row.items()} for row in described],
        "features": len(encoder.get_feature_names_out()),
        "peak_memory_mb": peak_memory(),
        "log_evidence": evidence,
        "training": {key: scores[key].value for key in ("accuracy", "log_loss", "log_loss_of_frequencies")},
    }


def _selection_summary(selection: Selection) -> dict[str, Any]:
    candidates = [
        {
            "name": model.name,
            "log_loss": model.log_loss,
            "behind": model.difference,
            "error": model.difference_error,
            "seconds": model.seconds,
        }
        for model in selection.comparison.models
    ]
    return {"reason": selection.reason, "candidates": candidates}


def _print(summary: dict[str, Any], selection: Selection | None) -> None:
    console = result_console()
    console.print(
        f"{summary['class']} fitted to {summary['rows']:,} rows in {summary['seconds']:.2g} s: {summary['target']} "
        f"from {summary['features']} features. Peak memory: {summary['peak_memory_mb']:,} MB.\n",
        markup=False,
    )
    _print_classes(console, summary)
    if selection is not None:
        _print_selection(console, selection)
    _print_columns(console, summary)
    training = summary["training"]
    console.print(
        f"\nOn rows of the fit: accuracy {training['accuracy']:.3f}, log-loss {training['log_loss']:.4f} (class "
        f"frequencies alone: {training['log_loss_of_frequencies']:.4f}). What new rows would show, "
        "`posteriori evaluate` says.",
        markup=False,
    )
    if summary["log_evidence"] is not None:
        console.print(f"Log evidence: {summary['log_evidence']:.2f}.", markup=False)


def _print_classes(console: Console, summary: dict[str, Any]) -> None:
    classes = plain_table("class", "rows", "share")
    shown = sorted(summary["classes"].items(), key=lambda item: -item[1])
    for name, count in shown[:_MOST_CLASSES]:
        classes.add_row(name, str(count), f"{count / summary['rows']:.1%}")
    if len(shown) > _MOST_CLASSES:
        rest = sum(count for _, count in shown[_MOST_CLASSES:])
        classes.add_row(f"{len(shown) - _MOST_CLASSES} more", str(rest), f"{rest / summary['rows']:.1%}")
    console.print(classes)


def _print_selection(console: Console, selection: Selection) -> None:
    console.print(f"\nModel: {selection.name}, {selection.reason}.", markup=False)
    table = plain_table("candidate", "log-loss", "behind", "+-", "seconds")
    for model in selection.comparison.models:
        numbers = (model.log_loss, model.difference, model.difference_error)
        table.add_row(model.name, *(f"{number:.4f}" for number in numbers), f"{model.seconds:.2g}")
    console.print(table)


def _print_columns(console: Console, summary: dict[str, Any]) -> None:
    columns = plain_table("column", "kind", "missing", "becomes")
    columns.columns[1].justify = columns.columns[3].justify = "left"
    for row in summary["columns"]:
        becomes = f"dropped: {row['dropped']}" if row["dropped"] else row["becomes"]
        columns.add_row(row["column"], row["kind"], f"{row['missing']:.1%}" if row["missing"] else "", becomes)
    console.print()
    console.print(columns)


def _plain(value: Any) -> Any:
    """A value for JSON: a number of Python, and None for what is not finite."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
