"""Fitting from the command line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import numpy as np

from posteriori.cli.destinations import naming, require_destination
from posteriori.cli.fit_summary import plain, print_fit
from posteriori.cli.memory import peak_memory
from posteriori.cli.output import counted, print_json, result_console
from posteriori.cli.progress import Progress, Shape, showing_progress
from posteriori.cli.training_rows import FitColumns, TrainingRows, training_rows
from posteriori.exceptions import ColumnWarning
from posteriori.meta.selection import (
    FREQUENCIES,
    STACK,
    WITH_PRIOR,
    Selection,
    candidates,
    is_checked,
    select_model,
    table_model,
)
from posteriori.reports import Evaluation, evaluate
from posteriori.storage import save

_MOST_SCORED = 50_000
"""Rows of the fit whose predictions are scored."""


def run(
    tables: Sequence[str],
    columns: FitColumns,
    name: str,
    prior: str | None,
    out: str | None,
    seed: int,
    as_json: bool,
    quiet: bool = False,
    budget: float | None = None,
) -> None:
    """Read the table, select a model, fit and store it, and print a summary; `prior` of None is the usual one."""
    if out is not None:
        require_destination(out, tables, what="a model")
    _require_prior(name, prior)
    chosen_prior = prior or "evidence"
    with showing_progress(quiet) as progress:
        rows = training_rows(tables, columns, seed)
        _require_room(name, rows)
        shape = Shape(rows.n_rows, rows.n_features, len(rows.counts), not rows.in_memory)
        began = perf_counter()
        with column_notes() as notes:
            selection = _select(name, chosen_prior, rows, seed, shape, progress, budget)
            chosen = name if selection is None else selection.name
            if selection is not None and selection.model is not None and rows.in_memory:
                model = selection.model  # it was fitted to all rows, and judged by formulas
            else:
                model = _fit(chosen, chosen_prior, rows, seed, shape, progress)
        scored = rows.sample(_MOST_SCORED, seed)
        training = evaluate(model, scored, columns.target, sample_weight=columns.weight)
        if chosen != FREQUENCIES and not _better_than_frequencies(training):
            selection = _nothing_learned(chosen, training, selection)
            chosen = FREQUENCIES
            with column_notes():
                model = _fit(chosen, chosen_prior, rows, seed, shape, progress)
            training = evaluate(model, scored, columns.target, sample_weight=columns.weight)
        seconds = perf_counter() - began
    if out is not None:
        with naming(out):
            save(model, out)
    summary = {
        "model": chosen,
        "learned": chosen != FREQUENCIES,
        "notes": [*rows.notes, *notes],
        **_summary(model, rows, training),
        "seconds": round(seconds, 3),
        "choice": None if selection is None else _selection_summary(selection),
    }
    if as_json:
        print_json({**summary, "stored": out})
        return
    print_fit(summary, asked=name)
    where = f"\nStored in {out}." if out else "\nNot stored: give --out FILE to keep the model."
    result_console().print(where, soft_wrap=True)


def _require_prior(name: str, prior: str | None) -> None:
    if prior is not None and name not in (*WITH_PRIOR, "auto", STACK):
        raise ValueError(f"--prior {prior} is for --model {', '.join(WITH_PRIOR)}, stack and auto, and not for {name}.")


def _require_room(name: str, rows: TrainingRows) -> None:
    if name in ("forest", "boosting", "gp", "deep-gp", STACK) and not rows.in_memory:
        raise ValueError(
            f"--model {name} needs all rows in memory, and {counted(rows.n_rows)} are too many for it here: use "
            "--model bayes or gaussian, which read them in passes, or fit a sample of the rows."
        )


def _select(
    name: str, prior: str, rows: TrainingRows, seed: int, shape: Shape, progress: Progress, budget: float | None
) -> Selection | None:
    """The model that was asked for, or the best, unless the class frequencies are better; None without a comparison."""
    several = name in ("auto", STACK)
    if not several and not is_checked(*shape[:3]):
        return None
    names = candidates(rows.table.num_rows, in_memory=rows.in_memory) if several else [name]
    progress.comparing(names, shape._replace(rows=rows.table.num_rows, streamed=False))
    return select_model(
        rows.table,
        rows.columns.target,
        names=names,
        stack=None if name == "auto" and rows.in_memory else name == STACK,
        sample_weight=rows.columns.weight,
        prior=prior,
        random_state=seed,
        max_seconds=budget,
        begin=progress.beginning,
        report=progress.judged,
        **rows.columns.encoding,
    )


def _fit(name: str, prior: str, rows: TrainingRows, seed: int, shape: Shape, progress: Progress) -> Any:
    """The model fitted to all rows."""
    progress.fitting(name, shape)
    target, weight = rows.columns.target, rows.columns.weight
    carry = () if weight is None else (weight,)
    model = table_model(name, prior=prior, random_state=seed, carry=carry, **rows.columns.encoding)
    return model.fit(rows.data, target, **({} if weight is None else {"model__sample_weight": weight}))


@contextmanager
def column_notes() -> Iterator[list[str]]:
    """What a fit warns of about the columns, as sentences; other warnings go their way."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    for warning in caught:
        if not issubclass(warning.category, ColumnWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        elif str(warning.message) not in notes:
            notes.append(str(warning.message))


def _better_than_frequencies(training: Evaluation) -> bool:
    scores = training.scores
    return scores["log_loss"].value < scores["log_loss_of_frequencies"].value


def _nothing_learned(name: str, training: Evaluation, selection: Selection | None) -> Selection:
    """The class frequencies, where a model predicts even the rows of its fit worse than they do."""
    scores = training.scores
    reason = (
        f"on the rows of the fit, {name} has a log-loss of {scores['log_loss'].value:.4f}, the class frequencies have "
        f"{scores['log_loss_of_frequencies'].value:.4f}"
    )
    return Selection(FREQUENCIES, None if selection is None else selection.comparison, reason)


def _summary(model: Any, rows: TrainingRows, training: Evaluation) -> dict[str, Any]:
    """The summary of a fit in plain values: the data, the model and its scores."""
    encoder, classifier = model[0], model[-1]
    evidence = None
    with suppress(AttributeError, ValueError):  # not all have one
        evidence = plain(np.float64(classifier.log_evidence_))
    described = encoder.describe().reset_index().to_dict("records")
    shown = ("accuracy", "log_loss", "log_loss_of_frequencies")
    return {
        "class": type(classifier).__name__,
        "rows": rows.n_rows,
        "target": rows.columns.target,
        "classes": {str(k): n for k, n in rows.counts.items()},
        "columns": [{key: plain(value) for key, value in row.items()} for row in described],
        "passes": None if rows.in_memory else rows.data.n_passes,
        "features": len(encoder.get_feature_names_out()),
        "peak_memory_mb": peak_memory(),
        "log_evidence": evidence,
        "block_precisions": _block_precisions(classifier),
        "training": {key: plain(training.scores[key].value) for key in shown},
    }


def _block_precisions(classifier: Any) -> dict[str, float] | None:
    """The prior's precision of each block of columns; None where it has no blocks."""
    found = getattr(classifier, "block_precisions_", None)
    return None if found is None else {str(label): plain(precision) for label, precision in found.items()}


def _selection_summary(selection: Selection) -> dict[str, Any]:
    found = [] if selection.comparison is None else selection.comparison.models
    listed = [
        {
            "name": model.name,
            "log_loss": plain(model.log_loss),
            "behind": plain(model.difference),
            "error": plain(model.difference_error),
            "weight": plain(model.weight),
            "seconds": model.seconds,
        }
        for model in found
    ]
    twins = 0 if selection.comparison is None else selection.comparison.n_twins or 0
    return {"reason": selection.reason, "candidates": listed, "rows_with_a_twin": twins}
