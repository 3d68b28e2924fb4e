"""Predictions of a fitted model, batch after batch: rows are encoded once, whatever is asked about them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from posteriori.decision.decisions import decide
from posteriori.decision.utility import Utility
from posteriori.parameters import require_level
from posteriori.rows.schema import ignored_columns
from posteriori.tables.encoder import TableEncoder

__all__ = ["LABELS", "BatchPredictor", "labels_column"]

LABELS = ("prediction", "action")
"""Columns that hold names of classes or actions."""


class BatchPredictor:
    """What is predicted for rows that come in batches, as columns of Arrow.

    Parameters
    ----------
    model : fitted classifier, or Pipeline that ends with one
    probabilities : bool, default True
        Whether the most probable class, and the probability of each, are wanted.
    interval : float, optional
        Level of credible intervals of the probabilities, such as 0.95.
    uncertainty : bool, default False
        Whether total, aleatoric and epistemic uncertainty are wanted.
    utility : Utility, optional
        What actions are worth: the best one is then chosen for every row.
    """

    def __init__(
        self,
        model: Any,
        *,
        probabilities: bool = True,
        interval: float | None = None,
        uncertainty: bool = False,
        utility: Utility | None = None,
    ) -> None:
        self.model, self.probabilities, self.uncertainty = model, probabilities, uncertainty
        self.interval = None if interval is None else require_level(interval)
        self.classifier = model[-1] if hasattr(model, "steps") else model
        self.classes = np.asarray(model.classes_)
        if utility is not None and not utility.constant:
            raise ValueError("utility differs from row to row: one that is the same for all rows is needed here.")
        self.utility = None if utility is None else utility.ordered(self.classes)
        if interval is not None:
            self._require_method("predict_interval", "interval")
        if uncertainty:
            self._require_method("uncertainty", "uncertainty")
        self._require_distinct_names()

    @property
    def names(self) -> list[str]:
        """Names of the columns that are written."""
        names: list[str] = []
        if self.probabilities:
            names += ["prediction", *(f"p({name})" for name in self.classes)]
        if self.interval is not None:
            names += [f"p({name}) {end}" for name in self.classes for end in ("lower", "upper")]
        if self.uncertainty:
            names += ["total", "aleatoric", "epistemic"]
        if self.utility is not None:
            names += ["action", *(f"utility({action})" for action in self.utility.actions)]
            names += ["margin", "value_of_information"]
        return names

    def tables(self, pieces: Iterable[tuple[Any, Any]], schema: Any, unknown: Sequence[str] = ()) -> Iterator[Any]:
        """One table of Arrow for each batch: the columns to keep, then what is predicted.

        Parameters
        ----------
        pieces : iterable of (RecordBatch, RecordBatch)
            Rows to predict, and the columns of the same rows that are kept as they are.
        schema : pyarrow.Schema
            That of the rows.
        unknown : names of columns
            Columns of the rows that the model must not see.
        """
        import pyarrow as pa

        waiting: deque[Any] = deque()

        def rows() -> Iterator[Any]:
            for batch, kept in pieces:
                if batch.num_rows:
                    waiting.append(kept)
                    yield batch.drop_columns([*unknown]) if unknown else batch

        shown = pa.schema([field for field in schema if field.name not in unknown])
        for encoded in self.encoded(rows(), shown):
            kept = waiting.popleft()
            columns = dict(zip(kept.schema.names, kept.columns, strict=True))
            yield pa.table(columns | self.columns(encoded))

    def columns(self, rows: Any) -> dict[str, Any]:
        """The columns that are written, by their names, for rows as the classifier sees them."""
        import pyarrow as pa

        classifier = self.classifier
        P = classifier.predict_proba(rows)
        values: list[Any] = []
        if self.probabilities:
            values += [labels_column(self.classes).take(pa.array(P.argmax(axis=1))), *map(pa.array, P.T)]
        if self.interval is not None:
            lower, upper = classifier.predict_interval(rows, self.interval)
            for k in range(len(self.classes)):
                values += [pa.array(lower[:, k]), pa.array(upper[:, k])]
        if self.uncertainty:
            parts = classifier.uncertainty(rows)
            values += [pa.array(part) for part in (parts.total, parts.aleatoric, parts.epistemic)]
        if self.utility is not None:
            decisions = decide(P, self.utility, classes=self.classes)
            values += [labels_column(self.utility.actions).take(pa.array(decisions.codes))]
            values += [*map(pa.array, decisions.expected_utility.T), _finite(decisions.margin)]
            values += [pa.array(decisions.value_of_information)]
        return dict(zip(self.names, values, strict=True))

    def encoded(self, batches: Iterator[Any], schema: Any) -> Iterator[Any]:
        """Batches as the classifier sees them, as tables; errors count rows from the first of all."""
        import pyarrow as pa

        steps = [step for _, step in self.model.steps] if hasattr(self.model, "steps") else [self.model]
        if len(steps) == 2 and isinstance(steps[0], TableEncoder):
            batches = iter(steps[0].transform(pa.RecordBatchReader.from_batches(schema, batches)))
            front = None
        else:
            front = self.model[:-1] if len(steps) > 1 else None
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            yield rows if front is None else front.transform(rows)

    def known(self) -> list[str]:
        """Columns that the model may see: its features, and what it takes for the target or for weights."""
        features = getattr(self.model, "feature_names_in_", None)
        return [] if features is None else [*features, *ignored_columns(self.classifier)]

    def _require_method(self, method: str, option: str) -> None:
        if not hasattr(self.classifier, method):
            raise ValueError(
                f"{option} needs a posterior of the probabilities, and {type(self.classifier).__name__} has none: fit "
                "another model, such as BayesianSoftmaxRegression (bayes), GaussianClassifier (gaussian) or "
                "GPClassifier (gp)."
            )

    def _require_distinct_names(self) -> None:
        name, times = Counter(self.names).most_common(1)[0]
        if times > 1:
            raise ValueError(f"Several columns would be called {name!r}: rename the classes or actions.")


def labels_column(labels: np.ndarray) -> Any:
    """Labels in a column of Arrow, those of mixed kinds as text."""
    import pyarrow as pa

    try:
        return pa.array(labels)
    except (pa.ArrowException, TypeError):
        return pa.array([str(label) for label in labels])


def _finite(values: np.ndarray) -> Any:
    """Numbers as a column in which what is not finite is missing."""
    import pyarrow as pa

    return pa.array(values, mask=~np.isfinite(values))
