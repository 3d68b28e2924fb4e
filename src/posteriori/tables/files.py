"""Tables in files: CSV, Parquet and JSON lines, read as Arrow tables and written atomically."""

from __future__ import annotations

import glob
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteriori.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMATS", "format_of", "read_files", "write_file", "writing"]

FORMATS = ("csv", "parquet", "jsonl")
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl"}
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}
_STDIN = "-"
_FIRST_BYTES = 65_536
"""The number of bytes of a CSV that are read to see what separates its fields."""


def read_files(paths: Sequence[str], *, text: Collection[str] = ()) -> pa.Table:
    """One table from files, patterns such as ``part-*.parquet``, or ``-`` for a CSV on standard input.

    Parameters
    ----------
    paths : sequence of str
        Tables that follow one another; columns are matched by name.
    text : collection of str
        Columns of CSV files that are text, even where all of it looks like numbers.

    Raises
    ------
    ValueError
        If a file cannot be read as what its name says, or tables do not fit together.
    FileNotFoundError
        If there is no such file.
    """
    import pyarrow as pa

    names = [name for path in paths for name in _matching(path)]
    tables = [_read(name, text) for name in names]
    try:
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"{names[0]} and the files after it have columns that do not fit together: {error}") from None


def format_of(path: str) -> str:
    """The format of a file, by its name.

    Examples
    --------
    >>> format_of("rows.csv.gz"), format_of("rows.parquet"), format_of("-")
    ('csv', 'parquet', 'csv')
    """
    if path == _STDIN:
        return "csv"
    name = Path(path)
    suffix = Path(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix
    if suffix.lower() not in _SUFFIXES:
        raise ValueError(f"The name of {path} does not show a known format: use one of {', '.join(_SUFFIXES)}.")
    return _SUFFIXES[suffix.lower()]


def write_file(table: pa.Table, path: str | None, form: str | None = None) -> None:
    """Write a table to a file, or to standard output if there is none; `form` is one of FORMATS, or by the name."""
    form = form or ("csv" if path is None else format_of(path))
    if path is None:
        if form == "parquet":
            raise ValueError("Parquet cannot be written to the screen: name a file, or choose csv or jsonl.")
        _write(table, sys.stdout.buffer, form)
        sys.stdout.buffer.flush()
        return
    with _opened(path) as file:
        _write(table, file, form, _delimiter(path))


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Callable[[pa.Table], None]]:
    """A function that writes table after table, of one schema, to a file that appears when all are written."""
    form = format_of(os.fspath(path))
    with _opened(path) as file, ExitStack() as opened:
        writer: Any = None

        def write(table: pa.Table) -> None:
            nonlocal writer
            if form == "jsonl":
                _write_lines(table, file)
                return
            if writer is None:
                writer = opened.enter_context(_writer(form, file, table.schema, _delimiter(path)))
            writer.write_table(table)

        yield write


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
    if path == _STDIN or not glob.has_magic(path) or Path(path).exists():
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"No file matches {path}.")
    return found


def _read(path: str, text: Collection[str]) -> pa.Table:
    import pyarrow as pa

    if path != _STDIN and not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    form = format_of(path)
    try:
        if form == "parquet":
            import pyarrow.parquet as parquet

            table = parquet.read_table(path)
        elif form == "jsonl":
            import pyarrow.json as json

            table = json.read_json(path)
        else:
            table = _read_csv(path, text)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{_name(path)} cannot be read as {form}: {_first_line(error)}") from None
    if table.num_rows == 0 or table.num_columns == 0:
        raise ValueError(f"{_name(path)} has no rows.")
    return table


def _read_csv(path: str, text: Collection[str]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    content = sys.stdin.buffer.read() if path == _STDIN else None
    with pa.BufferReader(content) if content is not None else pa.input_stream(path) as source:
        start = source.read(_FIRST_BYTES)
    if not start.strip():
        raise ValueError(f"{_name(path)} is empty.")
    return csv.read_csv(
        path if content is None else pa.BufferReader(content),
        parse_options=csv.ParseOptions(delimiter=_separator(path, start), newlines_in_values=True),
        convert_options=csv.ConvertOptions(strings_can_be_null=True, column_types=dict.fromkeys(text, pa.string())),
    )


def _separator(path: str, start: bytes) -> str:
    """The character between fields: a tab if the name says so, otherwise the one that the first line has most of."""
    if ".tsv" in Path(path).suffixes:
        return "\t"
    first = start.split(b"\n", 1)[0]
    return max(",;\t|", key=lambda mark: first.count(mark.encode()))


def _write(table: pa.Table, file: Any, form: str, delimiter: str = ",") -> None:
    if form == "parquet":
        import pyarrow.parquet as parquet

        parquet.write_table(table, file)
    elif form == "csv":
        from pyarrow import csv

        csv.write_csv(table, file, csv.WriteOptions(delimiter=delimiter))
    else:
        _write_lines(table, file)


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


def _name(path: str) -> str:
    return "Standard input" if path == _STDIN else path


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
