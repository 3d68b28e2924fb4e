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
from posteriori.serve.arrow_sizes import decoded_bytes, is_text, unpacked_size
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
_MOST_BYTES_PER_CELL, _MOST_BYTES = 4_096, 1 << 30
"""Unpacked values of more bytes than this on average, or altogether, are refused: no columns of a model need them."""


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
    n_rows, n_bytes = unpacked_size(body)
    with pa.ipc.RecordBatchStreamReader(pa.BufferReader(body)) as reader:
        bounds.require(n_rows, len(reader.schema))
        _require_unpacked(n_bytes, n_rows, len(reader.schema))
        _require_flat(reader.schema)
        table = pa.Table.from_batches(list(reader), reader.schema)
    table.validate(full=True)
    _require_unpacked(decoded_bytes(table), table.num_rows, table.num_columns)
    return table


def _read_parquet(body: bytes, model: ServedModel, bounds: Bounds) -> pa.Table:
    about = parquet.ParquetFile(pa.BufferReader(body))
    n_rows, n_columns = about.metadata.num_rows, about.metadata.num_columns
    bounds.require(n_rows, n_columns)
    groups = [about.metadata.row_group(i) for i in range(about.metadata.num_row_groups)]
    _require_unpacked(sum(group.total_byte_size for group in groups), n_rows, n_columns)
    _require_flat(about.schema_arrow)
    texts = [field.name for field in about.schema_arrow if is_text(field.type)]
    file = parquet.ParquetFile(pa.BufferReader(body), read_dictionary=texts)  # a text that is there often is there once
    table = file.read()
    _require_unpacked(decoded_bytes(table), n_rows, n_columns)
    return table.cast(about.schema_arrow)


def _require_unpacked(n_bytes: int, n_rows: int, n_columns: int) -> None:
    """Refuse what is small as it was sent and large when it is unpacked."""
    if n_bytes > min((1 << 20) + _MOST_BYTES_PER_CELL * n_rows * n_columns, _MOST_BYTES):
        raise Refusal("The body unpacks to more than its rows can need: send fewer rows, or shorter texts.", status=413)


def _require_flat(schema: pa.Schema) -> None:
    """Refuse values that hold several values."""
    nested = next((field for field in schema if pa.types.is_nested(field.type)), None)
    if nested is not None:
        raise Refusal(
            f"Column {nested.name[:100]!r} holds {str(nested.type)[:100]}: numbers, text, truth values or dates are "
            "needed.",
            column=nested.name,
        )


def _require_plain(body: bytes) -> None:
    if body.startswith(_COMPRESSED):
        raise ValueError("The body is compressed or an archive: send plain text, or Parquet.")


_READERS: dict[str, Callable[[bytes, ServedModel, Bounds], pa.Table]] = {
    CSV: _read_csv,
    ARROW: _read_arrow,
    PARQUET: _read_parquet,
}
