"""Bodies of requests as rows: JSON, CSV, Arrow and Parquet. Sizes are known before anything large is unpacked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import parquet

from posteriori.parameters import first_names
from posteriori.serve.errors import Refusal
from posteriori.serve.rows import SentRows, of_table
from posteriori.serve.served_model import ServedModel
from posteriori.tables.files import open_bytes

__all__ = ["ARROW", "CSV", "JSON", "PARQUET", "Bounds", "json_of_python", "json_value", "media_type", "table_rows"]

JSON, CSV = "application/json", "text/csv"
ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
_ALSO = {
    "application/x-parquet": PARQUET,
    "application/parquet": PARQUET,
    "application/x-apache-arrow-stream": ARROW,
    "text/tab-separated-values": CSV,
    "application/csv": CSV,
    "text/plain": CSV,
}
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"PK\x03\x04")
_MOST_BYTES_PER_CELL = 4_096
"""Unpacked values of more bytes than this on average are refused: no column of a model needs them."""


@dataclass(frozen=True)
class Bounds:
    """The largest table that is taken.

    Attributes
    ----------
    rows, columns : int
    """

    rows: int = 1_000_000
    columns: int = 4_096

    def require(self, n_rows: int, n_columns: int) -> None:
        """Refuse a table that is larger."""
        if n_rows > self.rows:
            raise Refusal(
                f"{n_rows:,} rows were sent, and at most {self.rows:,} are taken at a time: send them in parts.",
                status=413,
            )
        if n_columns > self.columns:
            raise Refusal(f"{n_columns:,} columns were sent, and at most {self.columns:,} are taken.", status=413)


def media_type(header: str | None, default: str = JSON) -> str:
    """The kind of a body, from its header Content-Type."""
    name = (header or "").split(";")[0].strip().lower()
    return _ALSO.get(name, name) if name else default


def json_value(body: bytes) -> Any:
    """The value of a body in JSON."""
    if not body:
        raise Refusal("The body is empty: JSON is expected.")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(f"The body is not JSON: {error}.") from None


def json_of_python(body: bytes) -> Any:
    """The value of a body in JSON, or in what Python's json writes: NaN, here null, is where a value is missing."""
    try:
        return json_value(body)
    except Refusal:
        if b"NaN" not in body:
            raise
    try:
        value = json.loads(body, parse_constant=_CONSTANTS.__getitem__)
        orjson.dumps(value)  # refuses what Python's json takes, and nobody else: halves of characters, endless numbers
        return value
    except (ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"The body is not JSON: {error}.") from None


_CONSTANTS = {"NaN": None, "Infinity": float("inf"), "-Infinity": -float("inf")}


def table_rows(body: bytes, kind: str, model: ServedModel, bounds: Bounds) -> SentRows:
    """Rows of a body that is a table: CSV, an Arrow stream or Parquet.

    Text is read as it was in the fit; a value that is not of its column's kind is refused.
    """
    if kind not in _READERS:
        raise _unread(kind, [JSON, *_READERS])
    rows = of_table(read_table(body, kind, model, bounds), model.columns, model.ignored)
    bounds.require(rows.n_rows, len(rows.columns))
    return rows


def read_table(body: bytes, kind: str, model: ServedModel, bounds: Bounds) -> pa.Table:
    """The table in a body, with all its columns."""
    reader = _READERS.get(kind)
    if reader is None:
        raise _unread(kind, list(_READERS))
    if not body:
        raise Refusal("The body is empty: a table is expected.")
    try:
        return reader(body, model, bounds)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        sentence = " ".join(str(error).split())
        if not sentence.startswith("The body"):
            sentence = f"The body cannot be read: {sentence}"
        raise Refusal(sentence if sentence.endswith((".", "?", "!")) else f"{sentence}.") from None


def _unread(kind: str, known: list[str]) -> Refusal:
    return Refusal(f"Content-Type is {kind!r}, which is not read here: send one of {first_names(known)}.", status=415)


def _read_csv(body: bytes, model: ServedModel, bounds: Bounds) -> pa.Table:
    _require_plain(body)
    start = body[:1].decode("latin-1")
    if start in "[{":
        raise ValueError("The body is JSON, and Content-Type says that it is text/csv.")
    header = body[: body.find(b"\n")]
    bounds.require(body.count(b"\n") - 1, max(map(header.count, (b",", b";", b"\t", b"|"))) + 1)
    files = open_bytes(body, "The body", kinds=model.kinds)
    bounds.require(files.n_rows, len(files.names))
    by_name = {column.name: column for column in model.columns}
    misfit = files.first_misfit([name for name in files.names if name in by_name])
    if misfit is not None:
        raise by_name[misfit.column].refusal(misfit.row - 1, misfit.value)
    return files.to_table()


def _read_arrow(body: bytes, model: ServedModel, bounds: Bounds) -> pa.Table:
    with pa.ipc.RecordBatchStreamReader(pa.BufferReader(body)) as reader:
        bounds.require(0, len(reader.schema))
        batches, n_rows = [], 0
        for batch in reader:
            n_rows += batch.num_rows
            bounds.require(n_rows, 0)
            batches.append(batch)
        table = pa.Table.from_batches(batches, reader.schema)
    table.validate(full=True)
    return table


def _read_parquet(body: bytes, model: ServedModel, bounds: Bounds) -> pa.Table:
    file = parquet.ParquetFile(pa.BufferReader(body))
    about = file.metadata
    bounds.require(about.num_rows, about.num_columns)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    if any(
        group.total_byte_size > (1 << 20) + _MOST_BYTES_PER_CELL * group.num_rows * group.num_columns
        for group in groups
    ):
        raise Refusal("The body unpacks to more than its rows can need.", status=413)
    return file.read()


def _require_plain(body: bytes) -> None:
    if body.startswith(_COMPRESSED):
        raise ValueError("The body is compressed or an archive: send plain text, or Parquet.")


_READERS: dict[str, Callable[[bytes, ServedModel, Bounds], pa.Table]] = {
    CSV: _read_csv,
    ARROW: _read_arrow,
    PARQUET: _read_parquet,
}
