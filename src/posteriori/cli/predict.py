"""Predictions from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from posteriori.cli.inputs import load_model_and_table, predict_in_parts, require_columns, row_slices
from posteriori.meta.predict_to import labels_column
from posteriori.tables.files import write_file


def run(
    path: str,
    tables: Sequence[str],
    out: str | None,
    form: str | None,
    keep: Sequence[str],
    interval: float | None,
    uncertainty: bool,
) -> None:
    """Load the model, read the table, predict, write."""
    model, table = load_model_and_table(path, tables)
    require_columns(table, keep, "--keep")
    columns: dict[str, Any] = {name: table[name] for name in keep}
    P = predict_in_parts(model, table)
    labels = labels_column(model.classes_)
    columns["prediction"] = pa.chunked_array(
        [labels.take(pa.array(P[rows].argmax(axis=1))) for rows in row_slices(len(P))]
    )
    columns |= {f"p({name})": P[:, k] for k, name in enumerate(model.classes_)}
    if interval is not None:
        lower, upper = _method(model, "predict_interval", "--interval")(_encoded(model, table), interval)
        for k, name in enumerate(model.classes_):
            columns |= {f"p({name}) lower": lower[:, k], f"p({name}) upper": upper[:, k]}
    if uncertainty:
        parts = _method(model, "uncertainty", "--uncertainty")(_encoded(model, table))
        columns |= {"total": parts.total, "aleatoric": parts.aleatoric, "epistemic": parts.epistemic}
    write_file(pa.table(columns), out, form)


def _encoded(model: Any, table: pa.Table) -> Any:
    """The table as the last step of a pipeline sees it."""
    return model[:-1].transform(table) if hasattr(model, "steps") else table


def _method(model: Any, method: str, option: str) -> Any:
    """The method of the classifier, or an error that names the option that needs it."""
    classifier = model[-1] if hasattr(model, "steps") else model
    if not hasattr(classifier, method):
        raise ValueError(
            f"{option} needs a posterior, and {type(classifier).__name__} has none: fit with --model bayes, gaussian "
            "or gp."
        )
    return getattr(classifier, method)
