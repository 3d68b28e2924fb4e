"""Predictions for more rows than fit into memory, written while they are made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from posteriori.decision.utility import Utility
from posteriori.meta.batch_predictor import LABELS, BatchPredictor
from posteriori.parameters import first_names
from posteriori.rows.streams import record_batches
from posteriori.tables.files import writing

__all__ = ["predict_to", "require_kept"]

_ROWS = 1 << 16
"""The number of rows predicted at a time."""


def predict_to(
    model: Any,
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    interval: float | None = None,
    uncertainty: bool = False,
    utility: Utility | None = None,
) -> int:
    """Write the class and all class probabilities of every row to a file, batch by batch.

    Parameters
    ----------
    model : fitted classifier or Pipeline
    dataset : pyarrow.dataset.Dataset, RecordBatchReader, or Arrow table
    path : path
        Its suffix says what is written: .csv, .parquet or .jsonl. The file is written as a whole or not at all.
    keep : sequence of str
        Columns of the data set to write too, in front; they need not be known to the model.
    interval : float, optional
        Also write credible intervals of this level, such as 0.95, where the model has them.
    uncertainty : bool, default False
        Also write total, aleatoric and epistemic uncertainty, where the model has them.
    utility : Utility, optional
        Also write the best action, the expected utility of each, the margin and the value of information.

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
    batches, names = record_batches(dataset, _ROWS), dataset.schema.names
    predictor = BatchPredictor(model, interval=interval, uncertainty=uncertainty, utility=utility)
    keep = require_kept(keep, names, predictor.names, "keep")
    known = predictor.known()
    pieces = ((batch, batch.select(keep)) for batch in batches)
    n_rows = 0
    with writing(path, labels=LABELS) as write:
        for table in predictor.tables(pieces, dataset.schema, [name for name in keep if name not in known]):
            write(table)
            n_rows += table.num_rows
        if n_rows == 0:
            raise ValueError("The data set has no rows: there is nothing to predict.")
    return n_rows


def require_kept(keep: Sequence[str], names: Sequence[str], ours: Sequence[str], argument: str) -> list[str]:
    """The columns to keep, each once; they must exist, and have other names than the columns of predictions."""
    if isinstance(keep, str):
        raise ValueError(f"{argument} must be a list of column names, such as [{keep!r}], got {keep!r}.")
    keep = list(dict.fromkeys(keep))
    absent = [name for name in keep if name not in names]
    if absent:
        raise ValueError(
            f"{argument} names {first_names(absent)}, and the columns are {first_names(names, 20)}: choose among these."
        )
    taken = [name for name in keep if name in set(ours)]
    if taken:
        raise ValueError(
            f"{argument} names {first_names(taken)}, but predictions have columns of these names: rename these columns."
        )
    return keep
