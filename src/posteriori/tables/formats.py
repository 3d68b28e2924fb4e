"""Formats of files, recognised by their first bytes: what can be read as a table, as text or in types of Arrow.

A file is a `Part` of a table. Parts of text (CSV, JSON, Excel) have columns without types, which `text_columns` finds;
parts in types of Arrow (Parquet, Feather) have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import feather, parquet

from posteriori.rows.streams import DatasetStream
from posteriori.tables.raw_bytes import STDIN, FileBytes, file_bytes, told
from posteriori.tables.text import excel_records, find_dialect, json_records
from posteriori.tables.text.headers import repair_names
from posteriori.tables.text.rows import Dialect, is_unclosed, larger, patient, ragged_line, repeats_header, text_batches

__all__ = ["ArrowPart", "CSVPart", "Part", "open_part", "part_of"]

_FIRST_BYTES, _MOST_FIRST_BYTES, _FIRST_LINES = 1 << 18, 1 << 25, 20
"""Bytes of a text table that are looked at, more of them if lines are very long."""
_NOT_TABLES = {
    b"\xd0\xcf\x11\xe0": "is an old Excel file (.xls): save it as .xlsx or as CSV",
    b"%PDF": "is a PDF document: save its table as CSV",
    b"SQLite format 3": "is a SQLite database: export the table as CSV or Parquet",
    b"\x89HDF": "is an HDF5 file: export the table as CSV or Parquet",
    b"\x80\x04\x95": "is a Python pickle, which is not read: save the table as CSV or Parquet",
    b"\x80\x05\x95": "is a Python pickle, which is not read: save the table as CSV or Parquet",
    b"ORC": "is an ORC file: save the table as Parquet",
    b"FEA1": "is a Feather file of the first version: write it again as Feather 2 or Parquet",
    b"\x89PNG": "is a picture, not a table",
    b"$FL2": "is an SPSS file: save the table as CSV",
    b"<stata_dta>": "is a Stata file: save the table as CSV",
    b"RDX": "is a file of R: save the table with write.csv",
}
"""Beginnings of files that are something else, and what to do about them."""
_PAGES = (b"<!doctype", b"<html", b"<head", b"<body", b"<table", b"<?xml")
_ARFF = re.compile(rb"(?:\s*%[^\n]*\n)*\s*@relation\s", re.IGNORECASE)


class Part(Protocol):
    """The rows of one file, or of one folder."""

    @property
    def label(self) -> str:
        """The file, for messages."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, each once."""

    @property
    def schema(self) -> pa.Schema | None:
        """Types of the columns; None if all of them are text without a type."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user."""

    @property
    def repeated(self) -> tuple[str, ...]:
        """Names that several columns had."""

    @property
    def separator(self) -> str:
        """What stands between values; empty if nothing does."""

    def batches(self, columns: Sequence[str], size: int, *, nulls: bool = True) -> Iterator[pa.RecordBatch]:
        """All rows in their order; without `nulls`, text is exactly as it stands in the file."""

    def shuffled(self, columns: Sequence[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, larger parts of them in random order where the format allows it."""

    def stamp(self) -> Any:
        """A value that changes when the file changes."""


def open_part(path: str, known: Collection[str]) -> Part:
    """Open one file, folder of Parquet files, or standard input; `known` are columns that it is expected to have."""
    return _open_folder(path) if path != STDIN and Path(path).is_dir() else part_of(file_bytes(path), known)


_BINARY = {".parquet": "Parquet", ".pq": "Parquet", ".feather": "Feather", ".arrow": "Arrow", ".xlsx": "Excel"}
_BINARY |= {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstandard", ".xz": "xz", ".zip": "zip", ".xls": "Excel"}
"""Suffixes of files that are never text."""


def _require_text(source: FileBytes) -> None:
    """Raise if the name of a file that begins like text says that it is not."""
    suffix = "" if source.path is None else Path(source.path).suffix.lower()
    if suffix in _BINARY and not source.compressed:
        raise ValueError(
            f"{source.label} is not {_BINARY[suffix]}, although its name says so: if it is a text table, call it .csv; "
            "otherwise fetch or make it again."
        )


def part_of(source: FileBytes, known: Collection[str]) -> Part:
    """The part that these bytes are, by what they begin with."""
    start = source.first(4096)
    if not start.strip():
        raise ValueError(f"{source.label} is empty.")
    if start.startswith(b"PK\x03\x04"):
        return _held_part(source, excel_records)
    if start.startswith(b"PAR1"):
        return _arrow_part(source, "parquet")
    if start.startswith(b"ARROW1"):
        return _arrow_part(source, "ipc")
    if start.startswith(b"\xff\xff\xff\xff"):
        return _arrow_part(source, "stream")
    for mark, sentence in _NOT_TABLES.items():
        if start.startswith(mark):
            raise ValueError(f"{source.label} {sentence}.")
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.lower().startswith(_PAGES):
        raise ValueError(f"{source.label} is a web page or XML, not a table: download the table itself.")
    if _ARFF.match(text):
        raise ValueError(f"{source.label} is an ARFF file: save the table as CSV.")
    _require_text(source)
    named = source.path is not None and ".json" in source.path.lower()
    if re.match(rb'\{\s*["}]|\[\s*[\[{\]]', text) or (named and text[:1] in (b"{", b"[")):
        return _held_part(source, json_records)
    return _csv_part(source, known)


class _BlankLines(ValueError):
    """Lines that hold blanks only, which Arrow takes for rows."""


class _HeaderAgain(ValueError):
    """Rows that repeat the header, as in files that were put together."""


@dataclass(frozen=True)
class CSVPart:
    """A text table, read again in every pass."""

    source: FileBytes
    dialect: Dialect
    schema: None = None

    @property
    def label(self) -> str:
        """The file."""
        return self.source.label

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return self.dialect.names

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the file."""
        return self.dialect.notes

    @property
    def repeated(self) -> tuple[str, ...]:
        """Names that several columns had."""
        return self.dialect.repeated

    @property
    def separator(self) -> str:
        """What stands between values."""
        return self.dialect.marks.delimiter

    def batches(self, columns: Sequence[str], size: int, *, nulls: bool = True) -> Iterator[pa.RecordBatch]:
        """All rows in their order, as text."""
        with told(self.label):
            try:
                again = self.dialect.header_again  # then all columns are needed to know such rows
                with self.source.open() as stream:
                    for batch in text_batches(stream, self.dialect, self.names if again else columns, nulls=nulls):
                        if again:
                            batch = batch.filter(pa.array(~repeats_header(batch, self.names))).select(list(columns))
                        for start in range(0, batch.num_rows, size):
                            yield batch.slice(start, size)
            except pa.ArrowInvalid as error:
                if "columns, got" not in str(error):
                    raise
                with self.source.open() as stream:
                    ragged = ragged_line(stream, self.dialect)
                if ragged is None:
                    raise _BlankLines(f"{self.label} has lines of blanks.") from None
                raise ValueError(f"{self.label}: {ragged}.") from None
            except ValueError as error:
                if str(error).startswith("line "):
                    raise ValueError(f"{self.label}: {error}.") from None
                raise

    def shuffled(self, columns: Sequence[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows in their order: a text file is read from its beginning."""
        return self.batches(columns, size)

    def stamp(self) -> Any:
        """Size and time of the file."""
        return self.source.stamp()

    def require_closed_quotes(self, last_row: Sequence[str | None]) -> None:
        """Raise if the last row goes on to the end of the file because a quote is not closed."""
        with self.source.open() as stream:
            unclosed = is_unclosed(stream, self.dialect, last_row)
        if unclosed:
            shown = self.separator.join(value or "" for value in last_row)[:60]
            raise ValueError(
                f"{self.label}: a quote is opened and never closed in the row that begins {shown!r}: close it, or "
                "write it twice if it is part of the value."
            )

    def require_no_header_among(self, batch: pa.RecordBatch) -> None:
        """Raise an error that `retried` mends if rows of a batch with all columns repeat the header."""
        if repeats_header(batch, self.names).any():
            raise _HeaderAgain(f"{self.label} has its header again among its rows.")

    def retried(self, error: Exception) -> CSVPart | None:
        """Read the same file otherwise, after an error that another encoding or larger blocks may mend."""
        if isinstance(error, _BlankLines) and (slower := patient(self.dialect)) is not None:
            return replace(self, dialect=slower)
        if isinstance(error, _HeaderAgain):
            note = "rows that repeat the header are left out"
            return replace(self, dialect=replace(self.dialect, header_again=True, notes=(*self.dialect.notes, note)))
        if "straddl" in str(error) and (wider := larger(self.dialect)) is not None:
            return replace(self, dialect=wider)
        if "UTF8" in str(error) or isinstance(error.__cause__ or error, UnicodeError) or "codec" in str(error):
            following = {"utf-8": "cp1252", "cp1252": "latin-1"}.get(self.dialect.encoding)
            if following is not None:
                return _csv_part(self.source, self.names, encoding=following)
        return None


def _csv_part(source: FileBytes, known: Collection[str], encoding: str | None = None) -> CSVPart:
    size = _FIRST_BYTES
    while True:
        start = source.first(size)
        whole = len(start) < size
        if whole or size >= _MOST_FIRST_BYTES or start.count(b"\n") + start.count(b"\r") >= _FIRST_LINES:
            break
        size *= 4
    try:
        return CSVPart(source, find_dialect(start, whole=whole, known=known, encoding=encoding))
    except ValueError as error:
        raise ValueError(f"{source.label} {error}.") from None


@dataclass(frozen=True)
class HeldPart:
    """A text table in memory: JSON or Excel."""

    label: str
    table: pa.Table
    notes: tuple[str, ...]
    repeated: tuple[str, ...]
    origin: FileBytes
    schema: None = None
    separator: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(self.table.column_names)

    def batches(self, columns: Sequence[str], size: int, *, nulls: bool = True) -> Iterator[pa.RecordBatch]:
        """All rows in their order, as text."""
        yield from self.table.select(list(columns)).to_batches(max_chunksize=size)

    def shuffled(self, columns: Sequence[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, batches in random order."""
        batches = [*self.batches(columns, size)]
        return (batches[i] for i in rng.permutation(len(batches)))

    def stamp(self) -> Any:
        """Size and time of the file."""
        return self.origin.stamp()


def _held_part(source: FileBytes, read: Callable[[bytes], Any]) -> HeldPart:
    """The part that a reader of records makes of all bytes."""
    with told(source.label), source.open() as stream:
        content = bytes(stream.read())
    try:
        records = read(content)
    except (ValueError, ImportError) as error:
        raise type(error)(f"{source.label} {error}.") from None
    repaired = repair_names(records.names)
    arrays = [pa.array(values, pa.string()) for values in records.columns]
    table = pa.table(arrays, names=list(repaired.names))
    return HeldPart(source.label, table, records.notes + repaired.notes, repaired.repeated, source)


@dataclass(frozen=True)
class ArrowPart:
    """Files in types of Arrow, read in a stream."""

    label: str
    dataset: Any
    schema: pa.Schema
    notes: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    separator: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(self.schema.names)

    def batches(self, columns: Sequence[str], size: int, *, nulls: bool = True) -> Iterator[pa.RecordBatch]:
        """All rows in their order."""
        with told(self.label):
            yield from DatasetStream(self.dataset).batches(list(columns), size)

    def shuffled(self, columns: Sequence[str], size: int, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        """All rows, files and row groups in random order."""
        with told(self.label):
            yield from DatasetStream(self.dataset).shuffled(list(columns), size, rng)

    def stamp(self) -> Any:
        """Sizes and times of the files."""
        return DatasetStream(self.dataset).stamp()

    @property
    def n_rows(self) -> int:
        """The number of rows, which these files know."""
        return self.dataset.count_rows()


def _read_parquet(source: Any) -> pa.Table:
    return parquet.ParquetFile(source).read()


def _read_stream(source: Any) -> pa.Table:
    return pa.ipc.open_stream(source).read_all()


_IN_MEMORY = {"parquet": _read_parquet, "ipc": feather.read_table, "stream": _read_stream}
"""Readers of whole files, for those that cannot be read piece by piece."""


def _arrow_part(source: FileBytes, form: str) -> Part:
    with told(source.label):
        if source.path is not None and not source.compressed and form != "stream":
            try:
                dataset = ds.dataset(source.path, format=form)
                return ArrowPart(source.label, dataset, dataset.schema)
            except pa.ArrowInvalid as error:
                if "duplicate" not in str(error):  # data sets of Arrow do not take a name twice
                    raise
        with source.open() as stream:
            table = _IN_MEMORY[form](pa.BufferReader(bytes(stream.read())))
    names = repair_names(table.column_names) if len(set(table.column_names)) < table.num_columns else None
    if names is None:
        return ArrowPart(source.label, ds.dataset(table), table.schema)
    table = table.rename_columns(list(names.names))
    return ArrowPart(source.label, ds.dataset(table), table.schema, names.notes, names.repeated)


def _open_folder(path: str) -> Part:
    """All Parquet files under a folder; names such as year=2024 of its folders are columns."""
    files = sorted(str(file) for file in Path(path).rglob("*") if file.is_file() and not _hidden(file, path))
    chosen = [file for file in files if file.lower().endswith((".parquet", ".pq"))]
    if not chosen:
        held = "is empty" if not files else f"has no Parquet files, but {Path(files[0]).name!r}"
        raise ValueError(f"{path} is a folder that {held}: name the files to read, for example {path}/*.csv.")
    with told(path):
        layout = {"format": "parquet", "partitioning": "hive", "partition_base_dir": path}
        dataset = ds.dataset(chosen, **layout)
        schemas = [fragment.physical_schema for fragment in dataset.get_fragments()]
        schema = pa.unify_schemas([dataset.schema, *schemas], promote_options="permissive")
        return ArrowPart(path, ds.dataset(chosen, schema=schema, **layout), schema)


def _hidden(file: Path, folder: str) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
