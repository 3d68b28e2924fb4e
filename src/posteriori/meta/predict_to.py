"""Predictions for more rows than fit into memory, written while they are made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriori.rows.schema import ignored_columns
from posteriori.rows.streams import record_batches
from posteriori.tables.files import writing

__all__ = ["labels_column", "predict_to", "prediction_columns"]

_ROWS = 1 << 16
"""The number of rows predicted at a time."""


def predict_to(model: Any, dataset: Any, path: str | os.PathLike[str], *, keep: Sequence[str] = ()) -> int:
    """Write the class and all class probabilities of every row to a file, batch by batch.

    Parameters
    ----------
    model : fitted classifier or Pipeline
    dataset : pyarrow.dataset.Dataset, RecordBatchReader, or Arrow table
    path : path
        Its suffix says what is written: .csv, .parquet or .jsonl. The file is written as a whole or not at all.
    keep : sequence of str
        Columns of the data set to write too, in front; they need not be known to the model.

    Returns
    -------
    int
        The number of rows.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.dataset as ds, tempfile
    >>> from posteriori import SoftmaxRegression
    >>> table = pa.table({"x": [0.0, 1.0, 2.0, 3.0], "y": ["a", "a", "b", "b"]})
    >>> model = SoftmaxRegression().fit(table, "y")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     predict_to(model, ds.dataset(table), f"{folder}/p.csv", keep=["x"])
    ...     print(open(f"{folder}/p.csv").readline().strip())
    4
    "x","prediction","p(a)","p(b)"
    """
    import pyarrow as pa

    batches, names = record_batches(dataset, _ROWS), dataset.schema.names
    _require_kept(keep, names, prediction_columns(model.classes_, np.ones((1, len(model.classes_)))))
    unknown = _unknown(model, keep)
    n_rows = 0
    with writing(path) as write:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            P = model.predict_proba(rows.drop_columns(unknown) if unknown else rows)
            kept = {name: rows[name] for name in keep}
            write(pa.table(kept | prediction_columns(model.classes_, P)))
            n_rows += len(P)
        if n_rows == 0:
            raise ValueError("The data set has no rows: there is nothing to predict.")
    return n_rows


def _require_kept(keep: Sequence[str], names: list[str], ours: dict[str, Any]) -> None:
    """Raise unless the columns to keep exist, and have other names than the columns of predictions."""
    if isinstance(keep, str):
        raise ValueError(f"keep must be a list of column names, such as [{keep!r}], got {keep!r}.")
    absent = [name for name in keep if name not in names]
    if absent:
        raise ValueError(f"keep names {absent}, and the columns are {names}: choose among these.")
    taken = [name for name in keep if name in ours]
    if taken:
        raise ValueError(f"keep names {taken}, but predictions have columns of these names: rename these columns.")


def _unknown(model: Any, keep: Sequence[str]) -> list[str]:
    """Columns to keep that are not features of the model, which must not see them."""
    known = getattr(model, "feature_names_in_", None)
    classifier = model[-1] if hasattr(model, "steps") else model
    known = [] if known is None else [*known, *ignored_columns(classifier)]
    return [name for name in dict.fromkeys(keep) if name not in known]


def prediction_columns(classes: np.ndarray, P: np.ndarray) -> dict[str, Any]:
    """The most probable class, and the probability of each, as columns of Arrow."""
    import pyarrow as pa

    best = labels_column(classes).take(pa.array(P.argmax(axis=1)))
    return {"prediction": best} | {f"p({name})": pa.array(P[:, k]) for k, name in enumerate(classes)}


def labels_column(labels: np.ndarray) -> Any:
    """Labels in a column of Arrow, those of mixed kinds as text."""
    import pyarrow as pa

    try:
        return pa.array(labels)
    except (pa.ArrowException, TypeError):
        return pa.array([str(label) for label in labels])
