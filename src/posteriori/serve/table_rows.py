"""Rows of a stored table as a page shows them: some of those that fit, in an order, with their answers; and all as CSV.

Orders of all rows are kept for a while, so that further pages of them take no sorting.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv

from posteriori.decision.decisions import decide
from posteriori.parameters import first_names
from posteriori.serve.answers import INTERVALS, PARTS, Answers
from posteriori.serve.errors import Refusal
from posteriori.serve.stored_tables import StoredTable
from posteriori.serve.table_decisions import TableDecisions
from posteriori.tables.files import without_formulas

__all__ = ["Further", "Wanted", "csv_parts", "shown_rows", "wanted"]

MOST_AT_ONCE = 500
_KEYS = ("row", "margin", "value_of_information", *PARTS, "surprise", "p")
_FILTERS = ("class", "action", "flipped", "truth")
_DECIDED = ("margin", "value_of_information")
_CSV_ROWS = 16_384

Further = Callable[[pa.Table], Mapping[str, np.ndarray]]
"""Answers to rows as they were sent."""


@dataclass(frozen=True)
class Wanted:
    """Which rows are wanted.

    Attributes
    ----------
    start, count : int
        The place of the first one, from 0, among those that fit, and how many.
    by : str
        What they are sorted by; rows for which it is not known come last, equal ones are in the order of the table.
    label : label of a class, or None
        The class whose probability they are sorted by.
    descending : bool
    only : dict
        What rows must have: "class", "truth" (labels), "action" (a name), "flipped" (true or false).
    """

    start: int = 0
    count: int = 50
    by: str = "row"
    label: Any = None
    descending: bool = False
    only: Mapping[str, Any] | None = None


def wanted(given: Mapping[str, Any]) -> Wanted:
    """What a request wants, from values of JSON."""
    start, count = given.get("start", 0), given.get("count", 50)
    if type(start) is not int or start < 0:
        raise Refusal(f"start is {start!r}: a whole number from 0 is needed.")
    if type(count) is not int or not 0 <= count <= MOST_AT_ONCE:
        raise Refusal(f"count is {count!r}: a whole number up to {MOST_AT_ONCE} is needed.")
    sort, only = given.get("sort"), given.get("only")
    sort, only = {} if sort is None else sort, {} if only is None else only
    _require_keys("sort", sort, ("by", "class", "descending"))
    _require_keys("only", only, _FILTERS)
    by, descending = sort.get("by", "row"), sort.get("descending", False)
    if by not in _KEYS:
        raise Refusal(f"Rows cannot be sorted by {by!r}: use {first_names(_KEYS, 10)}.")
    for name, value in (("descending", descending), ("flipped", only.get("flipped", False))):
        if type(value) is not bool:
            raise Refusal(f"{name} is {value!r}: true or false is needed.")
    return Wanted(start, count, by, sort.get("class"), descending, only)


def _require_keys(name: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise Refusal(f"{name} must be an object with some of {first_names(known, 10)}.")
    unknown = [key for key in given if key not in known]
    if unknown:
        raise Refusal(f"{unknown[0][:50]!r} in {name} is unknown: use {first_names(known, 10)}.")


def shown_rows(
    table: StoredTable,
    asked: Wanted,
    decisions: TableDecisions | None,
    against: TableDecisions | None,
    further: Further | None = None,
) -> dict[str, Any]:
    """The rows that are wanted, with the number of all that fit; `further` gives answers that the table has not."""
    fits = _fitting(table, asked.only or {}, decisions, against)
    order = _order(table, asked, decisions)
    total = table.n_rows if fits is None else int(np.count_nonzero(fits))
    stop = asked.start + asked.count
    if fits is not None:
        chosen = (np.flatnonzero(fits) if order is None else order[fits[order]])[asked.start : stop]
    elif order is not None:
        chosen = order[asked.start : stop]
    else:
        chosen = np.arange(min(asked.start, table.n_rows), min(stop, table.n_rows))
    return {"total": total, "start": asked.start, "rows": _records(table, chosen, decisions, against, further)}


# Which rows, and in which order


def _fitting(
    table: StoredTable, only: Mapping[str, Any], decisions: TableDecisions | None, against: TableDecisions | None
) -> np.ndarray | None:
    """Whether each row has what is wanted; None if all have."""
    masks = []
    if only.get("class") is not None:
        masks.append(table.answers["class"] == _place(only["class"], table.classes, "class"))
    if only.get("truth") is not None:
        masks.append(_truth(table) == _place(only["truth"], table.classes, "class"))
    if only.get("action") is not None:
        found = _required(decisions, "Rows by their action")
        masks.append(found.codes == _place(only["action"], found.actions, "action"))
    if "flipped" in only:
        found = _required(decisions, "Rows by whether their action changes")
        other = _required(against, "Rows by whether their action changes", "against")
        masks.append(found.differ_from(other)[other.codes, found.codes] == only["flipped"])
    return np.logical_and.reduce(masks) if masks else None


def _order(table: StoredTable, asked: Wanted, decisions: TableDecisions | None) -> np.ndarray | None:
    """The numbers of all rows in the order that is wanted; None if that is the order in which they were sent."""
    if asked.by == "row" and not asked.descending:
        return None
    place = _place(asked.label, table.classes, "class") if asked.by == "p" else None
    found = _required(decisions, f"Rows by their {asked.by}") if asked.by in _DECIDED else None
    values = _sorted_by(table, asked.by, place, found)
    key = (table.id, "order", asked.by, place, asked.descending, None if found is None else found.key)

    def compute() -> np.ndarray:
        numbers = values()
        return np.argsort(-numbers if asked.descending else numbers, kind="stable").astype(np.uint32)

    return table.recent.get(key, compute)


def _sorted_by(
    table: StoredTable, by: str, place: int | None, decisions: TableDecisions | None
) -> Callable[[], np.ndarray]:
    """What gives the numbers that rows are sorted by, NaN where there is none."""
    if decisions is not None:
        return lambda: getattr(decisions, by)
    if by == "surprise":
        _truth(table)
        return lambda: _surprise(table)
    if by == "p":
        return lambda: table.answers["proba"][:, place]
    if by == "row":
        return lambda: np.arange(table.n_rows)
    if by not in table.answers:
        raise Refusal(f"Rows cannot be sorted by {by!r}: the model {table.about['model']!r} has no such answer.")
    return lambda: table.answers[by]


def _surprise(table: StoredTable) -> np.ndarray:
    """-log p of the true class, NaN where it is not known."""
    truth = _truth(table)
    own = table.answers["proba"][np.arange(table.n_rows), np.maximum(truth, 0)]
    return np.where(truth >= 0, -np.log(np.maximum(own, 1e-300)), np.nan)


def _truth(table: StoredTable) -> np.ndarray:
    if table.truth is None:
        raise Refusal("The true classes of these rows are not known: send a table with the column of the classes.")
    return table.truth


def _required(decisions: TableDecisions | None, what: str, name: str = "utility") -> TableDecisions:
    if decisions is None:
        raise Refusal(f"{what} need decisions: send {name!r} with the request.")
    return decisions


def _place(label: Any, labels: list[Any], what: str) -> int:
    """The place of a label, which may be given as its text."""
    for read in (lambda value: value, str):
        if read(label) in map(read, labels):
            return list(map(read, labels)).index(read(label))
    raise Refusal(f"{str(label)[:50]!r} is not a known {what}: use {first_names(labels, 10)}.")


# Rows as values of JSON


def _records(
    table: StoredTable,
    chosen: np.ndarray,
    decisions: TableDecisions | None,
    against: TableDecisions | None,
    further: Further | None,
) -> list[dict[str, Any]]:
    """One object for each of these rows."""
    if not len(chosen):
        return []
    sent = table.rows(chosen)
    values = [plain_values(column) for column in sent.columns]
    columns = {
        "row": (chosen.astype(np.int64) + 1).tolist(),
        "values": [dict(zip(sent.column_names, row, strict=True)) for row in zip(*values, strict=True)],
    }
    columns |= _answers(table, chosen)
    if further is not None:
        columns |= {name: values_of.tolist() for name, values_of in further(sent).items()}
    if decisions is not None:
        found = decide(table.answers["proba"][chosen], decisions.utility)
        columns |= {
            "action": found.actions.tolist(),
            "expected_utility": found.expected_utility.tolist(),
            "margin": [margin if np.isfinite(margin) else None for margin in found.margin.tolist()],
            "value_of_information": found.value_of_information.tolist(),
        }
    if against is not None:
        columns["was"] = [against.actions[code] for code in against.codes[chosen].tolist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _answers(table: StoredTable, chosen: np.ndarray) -> dict[str, list[Any]]:
    """What the model answered for these rows, and their true classes."""
    found = {name: values[chosen] for name, values in table.answers.items()}
    codes = found["truth"].tolist() if "truth" in found else [-1] * len(chosen)
    columns = {
        "class": [table.classes[code] for code in found["class"].tolist()],
        "truth": [None if code < 0 else table.classes[code] for code in codes],
    }
    columns |= {name: found[name].tolist() for name in ("proba", *INTERVALS, *PARTS) if name in found}
    if "set" in found:
        columns["set"] = [
            [label for label, is_in in zip(table.classes, row, strict=True) if is_in] for row in found["set"].tolist()
        ]
    return columns


def plain_values(column: Any) -> list[Any]:
    """The values of a column of Arrow as those of JSON: dates as text, durations in seconds.

    >>> plain_values(pa.chunked_array([pa.array([0, None], pa.timestamp("us"))]))
    ['1970-01-01T00:00:00', None]
    """
    if pa.types.is_timestamp(column.type):
        return _moments(column).to_pylist()
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, decimal.Decimal)):
        return float(value) if np.isfinite(float(value)) else None
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)


def _moments(column: Any) -> Any:
    """Dates as text, with no more parts of a second than they have."""
    text = compute.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    return compute.replace_substring_regex(text, r"\.0+($|[Z+-])", r"\1")


# Rows as CSV


def csv_parts(table: StoredTable, decisions: TableDecisions | None) -> Iterator[bytes]:
    """All rows as they were sent, with the answers to them, part after part of a CSV file."""
    first, names = True, None
    for rows, batch in table.batches():
        for start in range(0, batch.num_rows, _CSV_ROWS):
            some = batch.slice(start, _CSV_ROWS)
            place = slice(rows.start + start, rows.start + start + some.num_rows)
            columns = [_cells(column) for column in some.columns]
            answers = _answer_table(table, place, decisions)
            columns += [_cells(column) for column in answers.columns]
            names = _titles(some.schema.names, answers.column_names) if names is None else names
            out = BytesIO()
            csv.write_csv(pa.table(columns, names), out, csv.WriteOptions(include_header=first))
            first = False
            yield out.getvalue()


def _answer_table(table: StoredTable, place: slice, decisions: TableDecisions | None) -> pa.Table:
    names = ("class", "proba", *INTERVALS, *PARTS, "set")
    values = {name: table.answers[name][place] for name in names if name in table.answers}
    if decisions is not None:
        values |= {"action": decisions.codes[place], "margin": decisions.margin[place]}
    return Answers(values, table.classes, [] if decisions is None else decisions.actions).table()


def _titles(sent: list[str], answered: list[str]) -> list[str]:
    """The names of all columns: those of answers are told apart from what was sent, and none is a formula."""
    taken = set(sent)
    for name in answered:
        while name in taken:
            name += " (model)"
        taken.add(name)
        sent = [*sent, name]
    return without_formulas(pa.array(sent, pa.string())).to_pylist()


def _cells(column: Any) -> Any:
    """A column that CSV can hold, without formulas."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return without_formulas(column)
    if pa.types.is_timestamp(kind):
        return _moments(column)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column
    values = plain_values(column)
    if pa.types.is_duration(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.float64())
    return without_formulas(pa.array([None if value is None else str(value) for value in values], pa.string()))
