"""What users should hear of their columns: in the fit, and of new rows that hold what the fit did not know."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from threading import Lock

import numpy as np

from posteriori.exceptions import ColumnWarning, UnseenLevelWarning
from posteriori.parameters import first_names
from posteriori.tables.names import names_rows
from posteriori.tables.plans import IDENTIFIER_AS_NUMBER, NUMBERS_AS_TEXT, ColumnEncoding, Encoding

__all__ = ["Surprises", "warn_of_columns"]

_MOST_EXAMPLES = 5


class Surprises:
    """Levels never seen in the fit, and infinite numbers, of several batches; threads may add to it.

    Examples
    --------
    >>> told = Surprises()
    >>> told.unseen("island", ["Dream", "Hope"], np.array([1, 1]))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     told.warn()
    >>> print(caught[0].message)
    Column 'island' holds levels that did not occur in the fit, in 2 rows: 'Hope'. They are encoded as its rare levels \
if it has such, and otherwise as none of its levels.
    """

    def __init__(self) -> None:
        self._levels: dict[str, dict[str, None]] = {}
        self._n_rows: dict[str, int] = {}
        self._n_infinite: dict[str, int] = {}
        self._lock = Lock()

    def unseen(self, column: str, levels: Sequence[str], codes: np.ndarray) -> None:
        """Add rows of a column, by the codes of their unseen levels."""
        if not len(codes):
            return
        with self._lock:
            examples = self._levels.setdefault(column, {})
            for code in dict.fromkeys(codes[:1000].tolist()):
                if len(examples) < _MOST_EXAMPLES:
                    examples[levels[code]] = None
            self._n_rows[column] = self._n_rows.get(column, 0) + len(codes)

    def infinite(self, column: str, n_rows: int) -> None:
        """Add infinite numbers of a column."""
        if n_rows:
            with self._lock:
                self._n_infinite[column] = self._n_infinite.get(column, 0) + n_rows

    def findings(self) -> Iterator[UnseenLevelWarning | ColumnWarning]:
        """All that was added, as one warning for each column."""
        for column in sorted(self._levels):
            levels, n_rows = tuple(self._levels[column]), self._n_rows[column]
            message = (
                f"Column {column!r} holds levels that did not occur in the fit, in {_rows(n_rows)}: "
                f"{first_names(levels)}. They are encoded as its rare levels if it has such, and otherwise as none of "
                "its levels."
            )
            yield UnseenLevelWarning(message, column, levels, n_rows)
        for column, n_rows in sorted(self._n_infinite.items()):
            message = f"Column {column!r} holds infinite numbers, in {_rows(n_rows)}: they are taken as missing."
            yield ColumnWarning(message, (column,), "infinite numbers")

    def warn(self) -> None:
        """Warn of all that was added."""
        for finding in self.findings():
            warnings.warn(finding, stacklevel=2)


def warn_of_columns(encoding: Encoding) -> None:
    """Warn of columns that give the target away, are dropped without a name that says why, or hold infinite numbers.

    There is one warning for each finding, however many columns it is about.
    """
    findings: dict[str, list[ColumnEncoding]] = {}
    for column in encoding.columns:
        if column.n_infinite:
            findings.setdefault("infinite numbers", []).append(column)
        if column.finding or column.dropped:
            findings.setdefault(column.finding or _why_dropped(column), []).append(column)
    for finding, columns in findings.items():
        names = tuple(column.name for column in columns)
        sentence = _sentence(finding, columns)
        if sentence:
            warnings.warn(ColumnWarning(sentence, names, finding), stacklevel=3)


def _why_dropped(column: ColumnEncoding) -> str:
    """The reason without its figures; empty where it is not to be warned of."""
    reason = column.dropped or ""
    if reason.startswith("identifier"):
        return "identifier" if column.kind == "number" and not names_rows(column.name) else ""
    return reason


def _sentence(finding: str, columns: list[ColumnEncoding]) -> str:
    """What is said of columns that share a finding; nothing if there is no finding."""
    names = first_names([column.name for column in columns], _MOST_EXAMPLES)
    who, it, is_ = ("Column", "it", "is") if len(columns) == 1 else ("Columns", "them", "are")
    if not finding:
        return ""
    if finding == "infinite numbers":
        total = sum(column.n_infinite for column in columns)
        return f"{who} {names}: infinite numbers, in {_rows(total)}, are taken as missing."
    if finding == NUMBERS_AS_TEXT:
        what = "Text is never read as numbers here"
        return (
            f"{who} {names}: numbers written as text, such as decimal commas, money, percent, or numbers with a mark "
            f"for missing ones. {what}: convert {it} to numbers."
        )
    if finding == "identifier":
        first = (columns[0].dropped or "").removeprefix("identifier: ")
        return (
            f"{who} {names} {is_} dropped, as row numbers say nothing about new rows ({columns[0].name!r}: {first}). "
            f"Use keep=[...] of TableEncoder, or --keep-id NAME on the command line, to keep {it}."
        )
    if finding == IDENTIFIER_AS_NUMBER:
        each = "" if len(columns) == 1 else ": each"
        return (
            f"{who} {names}{each} {finding}. Leave {it} out (--drop NAME on the command line) if the numbers only name "
            "things, such as households."
        )
    if columns[0].dropped:
        return f"{who} {names} {is_} dropped: {finding}."
    each = "" if len(columns) == 1 else ": each"
    return (
        f"{who} {names}{each} {finding}. Leave {it} out (--drop NAME on the command line) if the values will not be "
        "known at prediction."
    )


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"
