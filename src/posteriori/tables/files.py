"""Tables in files: read pass by pass or into memory whatever their format, and written atomically."""

from __future__ import annotations

import glob
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteriori.files import replacing
from posteriori.parameters import first_names
from posteriori.rows.streams import Streamable
from posteriori.tables.formats import Part, open_part, part_of
from posteriori.tables.raw_bytes import STDIN, held_bytes
from posteriori.tables.surveys import Misfit, Survey, survey

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMATS",
    "TableFiles",
    "fitted_kinds",
    "format_of",
    "open_bytes",
    "open_files",
    "without_formulas",
    "write_file",
    "writing",
]

FORMATS = ("csv", "parquet", "jsonl")
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl"}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_ROWS = 1 << 16
"""Rows of a batch."""
_FORMULA, _NUMBER = r"^[=@\t\r].|^[+-].*[A-Za-z(|]", r"^[+-]?[0-9.,]*(e[+-]?[0-9]+)?$"
"""Text that a spreadsheet would calculate begins with one of these signs, and is not the sign or a number alone."""


def open_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, kinds: Mapping[str, str] | None = None
) -> TableFiles:
    """One table from files, patterns such as ``part-*.parquet``, folders of Parquet files, or ``-`` for standard input.

    What a file holds is seen in its first bytes, not in its name. Text is looked at in one pass over all of it, which
    decides what each column holds; docs/tables.md has the rules.

    Parameters
    ----------
    paths : path or sequence of paths
        Tables that follow one another; columns are matched by name.
    kinds : mapping of str to str, or None
        The kinds that columns had in the fit (`fitted_kinds`), so that they are read as they were then. The kind
        "label" is for classes: numbers if all of them are, otherwise text.

    Returns
    -------
    TableFiles

    Raises
    ------
    ValueError
        If a file cannot be read as a table, or tables do not fit together.
    FileNotFoundError
        If there is no such file.
    """
    kinds = dict(kinds or {})
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    parts = [open_part(name, kinds) for path in given for name in _matching(os.fspath(path))]
    if not parts:
        raise ValueError("No file is named: name at least one.")
    for part in parts[1:]:
        _require_same_names(parts[0], part)
    return TableFiles(survey(parts, kinds))


def open_bytes(content: bytes, label: str, *, kinds: Mapping[str, str] | None = None) -> TableFiles:
    r"""The table in these bytes, as `open_files` reads it from a file; `label` is what messages call it.

    Examples
    --------
    >>> open_bytes(b"mass;sex\n3,7;f\n4,1;m\n", "the table").to_table()["mass"].to_pylist()
    [3.7, 4.1]
    """
    kinds = dict(kinds or {})
    return TableFiles(survey([part_of(held_bytes(content, label), kinds)], kinds))


def fitted_kinds(columns: Iterable[Any]) -> dict[str, str]:
    """Kinds for `open_files` from ``encoder.encoding_.columns``, with what else the fit knew of a column of text.

    Examples
    --------
    >>> from types import SimpleNamespace as Column
    >>> fitted_kinds(
    ...     [Column(name="day", kind="date", dtype="date, day first"), Column(name="n", kind="number", dtype="int64")]
    ... )
    {'day': 'date, day first', 'n': 'number'}
    """
    return {
        column.name: column.dtype if column.dtype.startswith(f"{column.kind}, ") else column.kind for column in columns
    }


def _require_same_names(first: Part, other: Part) -> None:
    for one, two in ((first, other), (other, first)):
        absent = [name for name in one.names if name not in set(two.names)]
        if absent:
            raise ValueError(
                f"{two.label} has no column {first_names(absent, 3)}, which {one.label} has: tables that are read as "
                "one must have the same columns."
            )


class TableFiles(Streamable):
    """Rows in files, in the types that their text shows; read again in every pass, so that memory is bounded.

    Attributes
    ----------
    names : tuple of str
        Names of the columns, each once.
    schema : pyarrow Schema
    n_rows : int
    n_bytes : int
        About how much memory all rows take as an Arrow table.
    notes : tuple of str
        Sentences for the user about what was not plain.
    repeated : tuple of str
        Names that several columns of one file had; `names` has them once, the others numbered.
    """

    def __init__(self, seen: Survey) -> None:
        self._seen = seen
        self.names, self.schema = seen.parts[0].names, seen.schema
        self.n_rows, self.n_bytes, self.notes = seen.n_rows, seen.n_bytes, seen.notes
        self.repeated = tuple(dict.fromkeys(name for part in seen.parts for name in part.repeated))

    def __repr__(self) -> str:
        return f"TableFiles({', '.join(part.label for part in self._seen.parts)}: {self.n_rows} rows)"

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in memory, with all columns or some."""
        import pyarrow as pa

        names = list(self.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self._seen.batches(names, _ROWS), schema)

    def pieces(
        self, size: int = _ROWS, written: Sequence[str] = (), columns: Sequence[str] | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """All rows, at most `size` at a time: parsed columns, and the columns `written` exactly as the files have them.

        Parsed are all columns, or the named ones. In a column of a text file as it is written, nothing is a missing
        value, and 007 is 007.
        """
        return self._seen.pieces(list(self.names if columns is None else columns), size, list(written))

    def first_misfit(self, columns: Sequence[str] | None = None) -> Misfit | None:
        """The first value that is not of its column's kind, among columns of text: it is read as a missing one."""
        return self._seen.first_misfit(list(self.names if columns is None else columns), _ROWS)

    def stream(self) -> Survey:
        """The rows as passes over the data read them."""
        return self._seen


def format_of(path: str) -> str:
    """The format of a file, by its name.

    Examples
    --------
    >>> format_of("rows.csv.gz"), format_of("rows.parquet"), format_of("-")
    ('csv', 'parquet', 'csv')
    """
    if path == STDIN:
        return "csv"
    name = Path(path)
    suffix = Path(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix
    if suffix.lower() not in _SUFFIXES:
        raise ValueError(f"The name of {path} does not show a known format: use one of {', '.join(_SUFFIXES)}.")
    return _SUFFIXES[suffix.lower()]


def write_file(table: pa.Table, path: str | os.PathLike[str] | None, form: str | None = None) -> None:
    """Write a table to a file, or to standard output if there is none; `form` is one of FORMATS, or by the name."""
    with writing(path, form) as write:
        write(table)


@contextmanager
def writing(
    path: str | os.PathLike[str] | None, form: str | None = None, labels: Sequence[str] = ()
) -> Iterator[Callable[[pa.Table], None]]:
    """A function that writes table after table, of one schema, to a file that appears when all are written.

    Without a path they go to standard output; `form` is one of FORMATS, or by the name of the file. Columns named in
    `labels` hold names of ours: CSV has them as Python writes them, and a spreadsheet must not take them for formulas.
    """
    form = form or ("csv" if path is None else format_of(os.fspath(path)))
    with _standard_output(form) if path is None else _opened(path) as file, ExitStack() as opened:
        writer: Any = None

        def write(table: pa.Table) -> None:
            nonlocal writer
            if form == "jsonl":
                _write_lines(table, file)
                return
            if writer is None:
                delimiter = "," if path is None else _delimiter(path)
                writer = opened.enter_context(_writer(form, file, table.schema, delimiter))
            if form == "csv":
                for name in set(labels) & set(table.column_names):
                    column = without_formulas(_label_names(table[name]))
                    table = table.set_column(table.column_names.index(name), name, column)
            writer.write_table(table)

        yield write


def without_formulas(column: pa.Array | pa.ChunkedArray) -> Any:
    """Text that a spreadsheet would take for a formula, with an apostrophe in front; other columns as they are.

    It is for text that we write into CSV files ourselves, such as predicted classes. Columns that are kept from a
    user's table stay as they are.

    Examples
    --------
    >>> import pyarrow as pa
    >>> without_formulas(pa.array(["=1+1", "-5", "+", "@home", "a=b"])).to_pylist()
    ["'=1+1", '-5', '+', "'@home", 'a=b']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    formula = pc.and_not(pc.match_substring_regex(column, _FORMULA), pc.match_substring_regex(column, _NUMBER))
    return pc.if_else(formula, pc.binary_join_element_wise("'", column, ""), column)


def _label_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Labels as they are called elsewhere, in p(2.0) and p(True); Arrow would write them as 2 and true."""
    import pyarrow as pa

    if not (pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        return column
    return pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])


@contextmanager
def _standard_output(form: str) -> Iterator[Any]:
    if form == "parquet":
        raise ValueError("Parquet cannot be written to the screen: name a file, or choose csv or jsonl.")
    if sys.stdout is None:
        raise OSError("Standard output is closed: name a file to write to.")
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A file to write to that takes the place of `path` at the end, compressed if its name says so."""
    import pyarrow as pa

    kind = _COMPRESSED.get(Path(path).suffix)
    if kind is not None and format_of(os.fspath(path)) == "parquet":
        raise ValueError(f"{os.fspath(path)}: Parquet is compressed inside, leave {Path(path).suffix} out.")
    with replacing(path) as temporary, pa.output_stream(str(temporary), compression=kind) as file:
        yield file


def _delimiter(path: str | os.PathLike[str]) -> str:
    return "\t" if ".tsv" in Path(path).suffixes else ","


def _writer(form: str, file: Any, schema: pa.Schema, delimiter: str) -> Any:
    if form == "parquet":
        import pyarrow.parquet as parquet

        return parquet.ParquetWriter(file, schema)
    from pyarrow import csv

    return csv.CSVWriter(file, schema, write_options=csv.WriteOptions(delimiter=delimiter))


def _matching(path: str) -> list[str]:
    """The files that a pattern stands for."""
    if path == STDIN or not glob.has_magic(path) or Path(path).exists():
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"No file matches {path}.")
    return found


def _write_lines(table: pa.Table, file: Any) -> None:
    """Write one JSON object for each row, on a line of its own; a missing value is null."""
    import json

    for batch in table.to_batches(max_chunksize=10_000):
        rows = map(_with_nulls, batch.to_pylist())
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) for row in rows]
        file.write("".join(f"{line}\n" for line in lines).encode())


def _with_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose missing numbers are missing values."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
