"""Tables in ONNX graphs: one input for each column, encoded in the graph as `TableEncoder` does it.

Each input is (n, 1). Numbers, booleans (0, 1) and durations (in seconds) are float64, and NaN is missing. Categories
are strings, and "" is missing. Dates are float64, the seconds from 1970 on by the clock of the column's own time zone,
and NaN is missing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from posteriori.storage.onnx_graph import Graph, Value, import_onnx
from posteriori.tables.columns import DATE_PARTS, UNSUPPORTED, Column, read_column
from posteriori.tables.plans import CategoryPlan, ColumnEncoding, DatePlan, Encoding, NumberPlan
from posteriori.tables.sources import open_source
from posteriori.tables.summaries import is_full_text

__all__ = ["TableInput", "TableInputs", "onnx_inputs", "require_columns_for_onnx"]

_DAY = 86400.0
_YEAR = 365.25 * _DAY


class TableInput(NamedTuple):
    """One input of a graph: the column it takes, and in which form."""

    name: str
    column: str
    kind: str
    missing: str | None = None
    zone: str | None = None


def onnx_inputs(session: Any, table: Any) -> dict[str, np.ndarray]:
    """The columns of a table as the inputs of a graph that `to_onnx` made of a model with a `TableEncoder`.

    Parameters
    ----------
    session : onnxruntime.InferenceSession
        A session of the graph; what its inputs are is in the metadata of the graph.
    table : pandas, polars or Arrow table
        The columns of the fit, in any order; further ones are ignored.

    Returns
    -------
    dict of input name to array (n, 1)

    Examples
    --------
    >>> session = onnxruntime.InferenceSession("model.onnx")  # doctest: +SKIP
    >>> probabilities, labels = session.run(None, po.onnx_inputs(session, table))  # doctest: +SKIP
    """
    described = session.get_modelmeta().custom_metadata_map.get("inputs")
    if described is None:
        raise ValueError(
            "The graph takes one matrix X and not the columns of a table: its model has no TableEncoder. Pass "
            "{'X': X} to the session."
        )
    source = open_source(table)
    batch: Mapping[str, Any] = getattr(source, "batch", {})
    if not batch:
        raise TypeError(f"table is of type {type(table).__name__}: pass a pandas, polars or Arrow table in memory.")
    inputs = [TableInput(**entry) for entry in json.loads(described)]
    absent = [entry.column for entry in inputs if entry.column not in batch]
    if absent:
        raise ValueError(f"The table has no column {', '.join(map(repr, absent))}, which the graph needs.")
    types = {described.name: described.type for described in session.get_inputs()}
    return {entry.name: _fed(entry, batch[entry.column], types[entry.name]) for entry in inputs}


def _fed(entry: TableInput, raw: Any, type_name: str) -> np.ndarray:
    """One column as a graph takes it."""
    column = read_column(entry.column, raw, zone=entry.zone)
    nothing = column.kind != UNSUPPORTED and bool(column.missing().all())
    if not nothing and _form(column.kind) != _form(entry.kind):
        raise ValueError(
            f"Column {entry.column!r} is of kind {column.kind} ({column.dtype}), and the graph takes {entry.kind}: "
            "pass it as it was in the fit."
        )
    if entry.kind == "category":
        blank = str(entry.missing)
        # a level that is itself the mark of missing values was not kept in the fit: any other such text will do
        levels = np.array([*("\0" if level == blank else level for level in column.levels), blank], dtype=object)
        return np.full((len(column.values), 1), blank, dtype=object) if nothing else levels[column.values][:, None]
    dtype = np.float32 if type_name == "tensor(float)" else np.float64
    values = np.full(len(column.values), np.nan) if nothing else _seconds(column)
    return values.astype(dtype)[:, None]


def _form(kind: str) -> str:
    return "number" if kind == "boolean" else kind


def _seconds(column: Column) -> np.ndarray:
    """Numbers as they are, dates as seconds."""
    if column.values.dtype.kind != "M":
        return column.values
    return np.where(column.missing(), np.nan, column.values.astype(np.int64) / 1e6)


def require_columns_for_onnx(encoding: Encoding) -> None:
    """Raise if a column cannot be encoded in a graph, naming it."""
    for column in encoding.columns:
        levels = column.plan.levels if isinstance(column.plan, CategoryPlan) else ()
        if not all(map(is_full_text, levels)):
            raise ValueError(
                f"Column {column.name!r} cannot be exported to ONNX: it has levels of more than 200 characters, which "
                "are known by a digest. Leave the column out, or shorten its levels, and fit again."
            )


class TableInputs:
    """The inputs of a graph that takes a table, and their encoding.

    Parameters
    ----------
    graph : Graph
    encoding : Encoding
    reserved : collection of str
        Names that no input may have: those of the outputs.
    """

    def __init__(self, graph: Graph, encoding: Encoding, reserved: set[str]) -> None:
        self.graph, self.encoding = graph, encoding
        self._used = [column for column in encoding.columns if column.plan is not None]
        taken = set(reserved)
        self.inputs: list[TableInput] = []
        for column in self._used:
            name = column.name or "column"
            while name in taken:
                name += "_"
            taken.add(name)
            plan = column.plan
            missing = _missing_mark(plan.levels) if isinstance(plan, CategoryPlan) else None
            zone = plan.zone if isinstance(plan, DatePlan) else None
            self.inputs.append(TableInput(name, column.name, column.kind, missing, zone))

    def infos(self, dtype: np.dtype[Any]) -> list[Any]:
        """The inputs as ONNX describes them; numbers are of the dtype."""
        onnx = import_onnx()
        types = onnx.TensorProto
        number = types.FLOAT if dtype == np.float32 else types.DOUBLE
        found = []
        for entry in self.inputs:
            date = entry.kind.startswith("date")
            kind = types.STRING if entry.kind == "category" else types.DOUBLE if date else number
            found.append(onnx.helper.make_tensor_value_info(entry.name, kind, ["n", 1]))
        return found

    def described(self) -> str:
        """The inputs as JSON, for the metadata of the graph."""
        return json.dumps([entry._asdict() for entry in self.inputs], ensure_ascii=False)

    def encoded(self) -> Value:
        """The matrix (n, D) that the encoder makes of the table."""
        values = [self.graph.input(entry.name) for entry in self.inputs]
        parts: list[Value] = []
        numbers = [i for i, column in enumerate(self._used) if isinstance(column.plan, NumberPlan)]
        order: dict[int, list[int]] = {}  # the columns of all parts together that each input becomes
        if numbers:
            filled, flags = self._numbers([values[i] for i in numbers], [self._used[i] for i in numbers])
            parts += [filled, flags]
            for p, i in enumerate(numbers):
                plan = self._used[i].plan
                assert isinstance(plan, NumberPlan)
                order[i] = [p] * plan.value + [len(numbers) + p] * plan.missing
        width = 2 * len(numbers)
        for i, column in enumerate(self._used):
            if i in order:
                continue
            encode = self._category if isinstance(column.plan, CategoryPlan) else self._date
            parts.append(encode(values[i], column, self.inputs[i]))
            order[i] = list(range(width, width + len(column.names)))
            width += len(column.names)
        places = [place for i in range(len(self._used)) for place in order[i]]
        whole = parts[0] if len(parts) == 1 else self.graph.op("Concat", *parts, axis=1)
        return whole if places == list(range(width)) else whole.columns(np.array(places))

    def _double(self, value: Value) -> Value:
        return self.graph.op("Cast", value, to=import_onnx().TensorProto.DOUBLE)

    def _filled(self, X: Value, means: np.ndarray) -> tuple[Value, Value]:
        """The numbers, missing and infinite ones as their means, and which these are (1 or 0)."""
        gone = self.graph.op("Or", X.is_nan(), self.graph.op("IsInf", X))
        return self.graph.op("Where", gone, means, X), self._double(gone)

    def _numbers(self, values: list[Value], columns: list[ColumnEncoding]) -> tuple[Value, Value]:
        means = np.array([column.plan.mean for column in columns])  # type: ignore[union-attr]
        joined = values[0] if len(values) == 1 else self.graph.op("Concat", *values, axis=1)
        return self._filled(self._double(joined), means)

    def _category(self, value: Value, column: ColumnEncoding, entry: TableInput) -> Value:
        """Levels become places by a LabelEncoder, and places become rows of a table."""
        plan = column.plan
        assert isinstance(plan, CategoryPlan)
        L, width = len(plan.levels), len(column.names)
        nowhere = L + plan.other + plan.missing
        pool = L if plan.other else nowhere
        blank = L + plan.other if plan.missing else pool
        place = self.graph.op(
            "LabelEncoder",
            value,
            domain="ai.onnx.ml",
            keys_strings=[*plan.levels, str(entry.missing)],
            values_int64s=[*range(L), blank],
            default_int64=pool,
        )
        rows = np.vstack([np.eye(nowhere), np.zeros((1, nowhere))])
        if plan.share is not None:  # of two columns the second is kept
            rows = np.array([[0.0], [1.0], [plan.share]])
        return self.graph.op("Gather", rows, place.reshaped(-1)).reshaped(-1, width)

    def _date(self, value: Value, column: ColumnEncoding, entry: TableInput) -> Value:
        """Years since the mean date, and turns of the year, the week and the day as points on a circle."""
        plan, op = column.plan, self.graph.op
        assert isinstance(plan, DatePlan)
        seconds, gone = self._filled(value, np.zeros(1))
        day = op("Floor", seconds / _DAY)
        hour = (seconds - day * _DAY) * (2 * np.pi / _DAY)
        month, weekday = _month(day), day + 3.0 - 7.0 * op("Floor", (day + 3.0) / 7.0)
        parts = {"years": (seconds - plan.origin) / _YEAR}
        for name, number, size in (("month", month, 12), ("weekday", weekday, 7)):
            code = op("Cast", number, to=import_onnx().TensorProto.INT64).reshaped(-1)
            angles = 2 * np.pi * np.arange(size) / size
            for circle, function in (("sin", np.sin), ("cos", np.cos)):
                parts[f"{name}_{circle}"] = op("Gather", function(angles), code).reshaped(-1, 1)
        parts["hour_sin"], parts["hour_cos"] = op("Sin", hour), op("Sin", hour + np.pi / 2)
        assert set(parts) == set(DATE_PARTS)
        there = op("Less", gone, 0.5)
        columns = [parts[part].where(there, mean) for part, mean in zip(plan.parts, plan.means, strict=True)]
        columns += [gone] * plan.missing
        return columns[0] if len(columns) == 1 else op("Concat", *columns, axis=1)


def _missing_mark(levels: tuple[str, ...]) -> str:
    """The text that stands for a missing category: none at all, unless that is a level."""
    marks = itertools.chain(["", "(missing)"], (f"(missing)_{i}" for i in itertools.count(2)))
    return next(mark for mark in marks if mark not in levels)


def _month(day: Value) -> Value:
    """The month, 0 .. 11, of a number of days since 1970, by the Gregorian calendar.

    Years begin in March, so that the leap day is the last: the lengths of months are then those of (153 m + 2) / 5.
    """
    op = day.graph.op

    def whole(x: Value, n: float) -> Value:
        return op("Floor", x / n)

    since = day + 719468.0  # from 1 March of the year 0
    in_era = since - 146097.0 * whole(since, 146097.0)
    year = whole(in_era - whole(in_era, 1460.0) + whole(in_era, 36524.0) - whole(in_era, 146096.0), 365.0)
    in_year = in_era - (365.0 * year + whole(year, 4.0) - whole(year, 100.0))
    from_march = whole(5.0 * in_year + 2.0, 153.0)
    return (from_march + 2.0).where(op("Less", from_march, 9.5), from_march - 10.0)
