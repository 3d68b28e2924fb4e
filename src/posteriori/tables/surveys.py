"""Surveys of files: one pass over all rows decides how each column is read, and later passes read it so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from posteriori.tables.columns import drop_options, read_column
from posteriori.tables.formats import ArrowPart, CSVPart, Part
from posteriori.tables.text import ChosenForm, choose
from posteriori.tables.text.choices import LABEL
from posteriori.tables.text.columns import Tally, convert, misfit_rows, tally
from posteriori.tables.text.forms import CATEGORY, TextForm
from posteriori.threads import run_tasks, usable_threads

__all__ = ["FORM", "Misfit", "Survey", "survey"]

FORM = b"posteriori:form"
"""Metadata of an Arrow field: the name of the form in which the text of the column was read."""
_ROWS = 1 << 16
_HELD_BYTES = 256 << 20
"""Text of all files, of up to so many bytes, stays in memory after the survey, so that it is not parsed again."""
_WORTH_THREADS = 5_000
"""Rows of a batch from which on columns are dealt out to threads."""


@dataclass(frozen=True)
class _Reading:
    """How one column is read: in a form where it is text or of another kind, and in a type of Arrow."""

    form: TextForm | None
    type: pa.DataType

    def read(self, array: pa.Array, *, typed: bool) -> pa.Array:
        """The column in its type."""
        if self.form is not None and not (typed and _same_kind(array.type, self.form)):
            array = convert(self.form, _as_text(array) if typed else array)
        return array if array.type == self.type else array.cast(self.type, safe=pa.types.is_string(self.type))


class Misfit(NamedTuple):
    """A value that is not of its column's kind; rows of a file are counted from 1."""

    column: str
    row: int
    value: str


class Survey:
    """Files of one table, and how their columns are read; a `Stream`.

    Attributes
    ----------
    parts : tuple of Part
    schema : pyarrow Schema
    n_rows, n_bytes : int
    notes : tuple of str
    """

    def __init__(
        self,
        parts: tuple[Part, ...],
        readings: Mapping[str, _Reading],
        n_rows: int,
        n_bytes: int,
        notes: tuple[str, ...],
        held: Mapping[int, list[pa.RecordBatch]],
    ) -> None:
        self.parts, self.n_rows, self.n_bytes, self.notes = parts, n_rows, n_bytes, notes
        self._readings, self._held = readings, held
        self.schema = pa.schema([_field(name, readings[name]) for name in parts[0].names])

    def batches(self, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        for i, part in enumerate(self.parts):
            for raw in self._raw(i, columns, size):
                yield self._parsed(raw, columns, part)

    def shuffled(self, columns: list[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, files and parts of them in random order."""
        for i in rng.permutation(len(self.parts)):
            for raw in self.parts[i].shuffled(columns, size, rng):
                yield self._parsed(raw, columns, self.parts[i])

    def first_misfit(self, columns: Sequence[str], size: int) -> Misfit | None:
        """The first value of these columns that is not of its column's kind, and was taken as missing for that."""
        forms = {name: form for name in columns if (form := self._readings[name].form) is not None}
        for i in range(len(self.parts)):
            row = 1
            for raw in self._raw(i, list(forms), size):
                found = [
                    Misfit(name, row + at[0], text[at[0]].as_py())
                    for name, form in forms.items()
                    if len(at := misfit_rows(form, text := _as_text(raw.column(name))))
                ]
                if found:
                    return min(found, key=lambda misfit: misfit.row)
                row += raw.num_rows
        return None

    def stamp(self) -> Any:
        """Sizes and times of all files."""
        return [part.stamp() for part in self.parts]

    def pieces(
        self, columns: list[str], size: int, written: list[str]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Parsed columns, and written ones exactly as the files have them."""
        schema = self._written_schema(written)
        needed = list(dict.fromkeys([*columns, *written]))
        for part in self.parts:
            for raw in part.batches(needed, size, nulls=not written):
                as_written = [_cast_written(raw.column(name), schema.field(name).type) for name in written]
                yield self._parsed(raw, columns, part), _record_batch(as_written, schema, raw.num_rows)

    def _raw(self, i: int, columns: list[str], size: int) -> Iterable[pa.RecordBatch]:
        if i not in self._held:
            return self.parts[i].batches(columns, size)
        return (batch.select(columns).slice(n, size) for batch in self._held[i] for n in range(0, len(batch), size))

    def _parsed(self, raw: pa.RecordBatch, columns: list[str], part: Part) -> pa.RecordBatch:
        schema = pa.schema([self.schema.field(name) for name in columns])

        def task(d: int) -> pa.Array:
            column = raw.column(columns[d])
            try:
                return self._readings[columns[d]].read(column, typed=part.schema is not None)
            except pa.ArrowInvalid as error:
                why = "bytes that are not text" if "UTF8" in str(error) else f"values of {column.type} ({error})"
                raise ValueError(
                    f"{part.label}: column {columns[d]!r} holds {why}: leave the column out "
                    f"({drop_options([columns[d]])} on the command line)."
                ) from None

        return pa.record_batch(_per_column(task, len(columns), raw.num_rows), schema=schema)

    def _written_schema(self, written: list[str]) -> pa.Schema:
        """Text, unless all files agree on another type."""
        types = {name: {_written_type(part, name) for part in self.parts} for name in written}
        return pa.schema([(name, found.pop() if len(found) == 1 else pa.string()) for name, found in types.items()])


def survey(parts: Sequence[Part], kinds: Mapping[str, str]) -> Survey:
    """Look at all rows once and decide how each column is read; `kinds` are known ones."""
    counted, room = [], _HELD_BYTES
    for part in parts:
        counted.append(_count(part, room))
        room -= counted[-1].n_held
    parts = tuple(found.part for found in counted)
    n_rows = sum(found.n_rows for found in counted)
    if n_rows == 0 or not parts[0].names:
        raise ValueError(f"{parts[0].label} has no rows.")
    tallies: dict[str, Tally] = defaultdict(Tally)
    for found in counted:
        for name, seen in found.tallies.items():
            tallies[name] += seen
    choices = _choices(parts, tallies, kinds)
    for name, choice in choices.items():
        if choice.refused:
            raise ValueError(_refusal(parts, name, choice))
    readings = {name: _reading(name, parts, choices.get(name)) for name in parts[0].names}
    notes = [f"{part.label}: {note}." for part in parts for note in part.notes]
    notes += [f"{found.part.label} has no rows." for found in counted if not found.n_rows]
    notes += _column_notes({name: choice.notes for name, choice in choices.items()})
    held = {i: found.held for i, found in enumerate(counted) if found.held is not None}
    sizes = [_size(readings[name], n, found.n_rows) for found in counted for name, n in found.sizes.items()]
    return Survey(parts, readings, n_rows, sum(sizes), tuple(dict.fromkeys(notes)), held)


@dataclass
class _Counted:
    """What one pass over a part has found."""

    part: Part
    n_rows: int
    sizes: dict[str, int]
    """Bytes of each column."""
    tallies: dict[str, Tally]
    held: list[pa.RecordBatch] | None = None

    @property
    def n_held(self) -> int:
        """Bytes of text that stay in memory."""
        return 0 if self.held is None else sum(self.sizes.values())


def _count(part: Part, room: int) -> _Counted:
    """One pass over a part of text; a part in types of Arrow knows what it is."""
    if isinstance(part, ArrowPart):
        return _Counted(part, part.n_rows, _estimated_sizes(part), {})
    while True:
        try:
            return _count_text(part, room)
        except ValueError as error:
            other = part.retried(error) if isinstance(part, CSVPart) else None
            if other is None:
                raise
            part = other


def _count_text(part: Part, room: int) -> _Counted:
    """One pass over a part of text, which stays in memory if there is room for so many bytes."""
    large = isinstance(part, CSVPart) and part.source.size() > room
    held: list[pa.RecordBatch] | None = None if large else []
    found = _Counted(part, 0, dict.fromkeys(part.names, 0), {name: Tally() for name in part.names}, held)
    batch = None
    for batch in part.batches(part.names, _ROWS):
        columns = batch.columns
        if isinstance(part, CSVPart):
            part.require_no_header_among(batch)
        tallies = _per_column(lambda d, columns=columns: tally(columns[d]), len(columns), batch.num_rows)
        for name, seen, column in zip(part.names, tallies, columns, strict=True):
            found.tallies[name] += seen
            found.sizes[name] += column.nbytes
        found.n_rows += batch.num_rows
        if found.held is not None:
            found.held.append(batch)
            if found.n_held > room:
                found.held = None
    if batch is not None and isinstance(part, CSVPart):
        part.require_closed_quotes([column[-1].as_py() for column in batch.columns])
    return found


def _estimated_sizes(part: ArrowPart, rows: int = 4096) -> dict[str, int]:
    """The sizes of the columns of the first rows, as often as there are rows."""
    first = next(iter(part.batches(part.names, rows)), None)
    if first is None:
        return {}
    more = part.n_rows / first.num_rows
    return {name: int(more * column.nbytes) for name, column in zip(part.names, first.columns, strict=True)}


def _per_column(task: Any, n_columns: int, n_rows: int) -> list[Any]:
    threads = usable_threads(None) if n_rows >= _WORTH_THREADS else 1
    return run_tasks(task, n_columns, threads)


# Decisions


def _choices(parts: Sequence[Part], tallies: Mapping[str, Tally], kinds: Mapping[str, str]) -> dict[str, ChosenForm]:
    """The form of every column that is text in some file, or of another kind than it was in the fit."""
    comma = all(part.separator == ";" for part in parts) or any(
        seen.fitting["COMMA"] > max(seen.fitting["POINT"], 0.5 * seen.n_values) for seen in tallies.values()
    )
    first = _day_first(tallies.values())
    found = {}
    for name in parts[0].names:
        types = [part.schema.field(name).type for part in parts if part.schema is not None]
        kind = kinds.get(name)
        if name in tallies:
            expected = kind or (_type_kind(types[0]) if types else None)
            choice = choose(tallies[name], kind=expected, decimal_comma=comma, day_first=first)
            found[name] = ChosenForm(CATEGORY) if choice.refused and kind is None else choice
        elif kind is not None and any(not _agrees(each, kind) for each in types):
            if kind == LABEL:
                _require_classes(parts, name)
            found[name] = _choose_typed(parts, name, kind)
    return found


def _require_classes(parts: Sequence[Part], name: str) -> None:
    """Raise if a column that is to hold classes holds lists or the like, which have no text."""
    for part in parts:
        kind = None if part.schema is None else part.schema.field(name).type
        if kind is not None and (pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind)):
            raise ValueError(
                f"{part.label}: column {name!r} holds {kind}, and classes are numbers or text: choose another column, "
                "or convert it."
            )


def _choose_typed(parts: Sequence[Part], name: str, kind: str) -> ChosenForm:
    """The form in which a typed column becomes one of another kind: by way of its text, in one pass over it."""
    seen = Tally()
    for part in parts:
        for batch in part.batches([name], _ROWS):
            seen += tally(_as_text(batch.column(0)))
    return choose(seen, kind=kind)


def _day_first(tallies: Iterable[Tally]) -> bool | None:
    """Whether days come first in the dates of the file, by the columns that show it."""
    difference = sum(
        seen.fitting[f"{form} 1"] - seen.fitting[f"{form} 2"] for seen in tallies for form in ("DATE", "ZONED")
    )
    return None if difference == 0 else difference > 0


def _reading(name: str, parts: Sequence[Part], choice: ChosenForm | None) -> _Reading:
    types = [part.schema.field(name).type for part in parts if part.schema is not None]
    if choice is not None:
        form = choice.form
        fractions = form.kind == "number" and any(not pa.types.is_integer(each) for each in types)
        return _Reading(form, pa.float64() if fractions else form.type)
    try:
        unified = pa.unify_schemas([pa.schema([("x", each)]) for each in types], promote_options="permissive")
    except pa.ArrowException:
        return _Reading(CATEGORY, pa.string())
    return _Reading(None, _readable_type(unified.field("x").type))


def _size(reading: _Reading, text_bytes: int, n_rows: int) -> int:
    """Bytes of a column in memory: numbers take fewer than their text."""
    try:
        return n_rows * reading.type.bit_width // 8
    except ValueError:  # text, whose length varies
        return text_bytes


def _refusal(parts: Sequence[Part], name: str, choice: ChosenForm) -> str:
    """A sentence about the first value that is not of the kind of the fit."""
    for part in parts:
        row = 1
        for batch in part.batches([name], _ROWS):
            text = batch.column(0) if part.schema is None else _as_text(batch.column(0))
            for i in misfit_rows(choice.form, text):
                return (
                    f"{part.label}: column {name!r} holds {text[i].as_py()!r} in row {row + i}, and most of its values "
                    f"are like that ({choice.refused}): pass the column as it was in the fit, or fit again."
                )
            row += batch.num_rows
    raise AssertionError("a column is refused because of its values")


def _column_notes(notes: Mapping[str, tuple[str, ...]], most: int = 3) -> list[str]:
    """Sentences about columns, one for all columns of which the same is said."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, sentences in notes.items():
        for sentence in sentences:
            names[sentence].append(name)
    found = []
    for sentence, columns in names.items():
        more = f" and {len(columns) - most} more" if len(columns) > most else ""
        shown = ", ".join(map(repr, columns[:most]))
        found.append(f"Column {shown} {sentence}." if len(columns) == 1 else f"Columns {shown}{more}: each {sentence}.")
    return found


# Types


def _type_kind(kind: pa.DataType) -> str:
    return read_column("", pa.array([], kind)).kind


def _agrees(given: pa.DataType, kind: str) -> bool:
    """Whether a column of this type can be encoded as one of this kind."""
    kind = kind.partition(", ")[0]
    if kind == LABEL and pa.types.is_decimal(given):
        return False  # a model stores classes that are numbers, booleans or text
    found = _type_kind(_readable_type(given))
    if kind == LABEL:
        return found in ("number", "boolean", "category", "empty")
    return found in (kind, "empty") or kind == "empty" or {found, kind} <= {"number", "boolean"}


def _same_kind(given: pa.DataType, form: TextForm) -> bool:
    return _type_kind(given) == form.kind


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """Text that is stored as bytes is text, and so are views of it, which much of Arrow cannot compute with."""
    types = pa.types
    text = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return pa.string() if text or types.is_string_view(kind) else kind


def _as_text(array: pa.Array) -> pa.Array:
    """Values as text: a whole number is written without a point, whatever its type."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):
        whole = pc.all(pc.or_(pc.equal(array, pc.round(array)), pc.is_null(array, nan_is_null=True))).as_py()
        array = pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type))
        if whole and pc.all(pc.less(pc.abs(array), 2.0**53)).as_py() is not False:
            array = array.cast(pa.int64())
    return array.cast(pa.string())


def _field(name: str, reading: _Reading) -> pa.Field:
    form = "" if reading.form is None else reading.form.name
    return pa.field(name, reading.type, metadata={FORM: form} if ", " in form else None)


def _written_type(part: Part, name: str) -> pa.DataType:
    return pa.string() if part.schema is None else part.schema.field(name).type


def _cast_written(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else _as_text(array)


def _record_batch(arrays: list[pa.Array], schema: pa.Schema, n_rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.record_batch(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * n_rows, pa.struct([])))
