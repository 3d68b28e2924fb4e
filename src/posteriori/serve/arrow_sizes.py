"""What an Arrow stream unpacks to, from what its messages say of themselves, before anything is unpacked.

A message is a flatbuffer: the root is a table; a table begins with the distance to its vtable, which holds the place
of each field. A compressed buffer begins with its size when it is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import compute

__all__ = ["decoded_bytes", "is_text", "unpacked_size"]

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_VIEWS = (pa.string_view(), pa.binary_view())


def unpacked_size(stream: bytes) -> tuple[int, int]:
    """The number of rows in a stream, and of the bytes of all its buffers.

    Raises
    ------
    ValueError
        If a message is damaged.
    """
    n_rows = n_bytes = 0
    try:
        for message in _messages(stream):
            head, body = memoryview(message.metadata), memoryview(message.body or b"")
            kind, batch = _batch(head)
            if batch is None:
                continue
            length = _field(head, batch, 0)
            if kind == _RECORD_BATCH and length is not None:
                n_rows += struct.unpack_from("<q", head, length)[0]
            is_compressed = _field(head, batch, 3) is not None
            n_bytes += sum(_unpacked(body, *buffer, is_compressed) for buffer in _buffers(head, batch))
    except struct.error:
        raise ValueError("a message of the stream is damaged") from None
    return n_rows, n_bytes


def decoded_bytes(table: pa.Table) -> int:
    """The bytes of all texts that can be in a table once and be meant often, were each written out."""
    return sum(_decoded(chunk) for column in table.columns for chunk in column.chunks)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text or bytes, of any length."""
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(fits(kind) for fits in known)


def _messages(stream: bytes) -> Iterator[pa.ipc.Message]:
    source = pa.BufferReader(stream)
    while True:
        try:
            yield pa.ipc.read_message(source)
        except EOFError:
            return


def _batch(head: memoryview) -> tuple[int, int | None]:
    """The kind of a message, and the place of its batch of rows."""
    root = struct.unpack_from("<I", head, 0)[0]
    kind_at, header = _field(head, root, 1), _table(head, root, 2)
    kind = 0 if kind_at is None else struct.unpack_from("<B", head, kind_at)[0]
    if kind == _DICTIONARY_BATCH and header is not None:
        return kind, _table(head, header, 1)
    return kind, header if kind == _RECORD_BATCH else None


def _field(head: memoryview, table: int, number: int) -> int | None:
    """The place of a field of a table; None if the table does not have it."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", head, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", head, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def _table(head: memoryview, table: int, number: int) -> int | None:
    """The place of what a field points to."""
    at = _field(head, table, number)
    return None if at is None else at + struct.unpack_from("<I", head, at)[0]


def _buffers(head: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """Place and length of each buffer in the body."""
    vector = _table(head, batch, 2)
    if vector is not None:
        for i in range(struct.unpack_from("<I", head, vector)[0]):
            yield struct.unpack_from("<qq", head, vector + 4 + 16 * i)


def _unpacked(body: memoryview, start: int, length: int, is_compressed: bool) -> int:
    if not is_compressed or length < 8:
        return length
    size = struct.unpack_from("<q", body, start)[0]
    return length if size < 0 else size


def _decoded(chunk: pa.Array) -> int:
    if pa.types.is_dictionary(chunk.type):
        lengths = _lengths(chunk.dictionary)
        return 0 if lengths is None else compute.sum(lengths.take(chunk.indices)).as_py() or 0
    if chunk.type in _VIEWS:
        return compute.sum(_lengths(chunk)).as_py() or 0
    return 0  # each text stands for itself


def _lengths(values: pa.Array) -> pa.Array | None:
    """The length of each text; None of what is no text. A view of 16 bytes begins with it."""
    if values.type in _VIEWS:
        heads = np.frombuffer(values.buffers()[1], "<i4")[4 * values.offset :: 4][: len(values)]
        return pa.array(np.maximum(heads, 0).astype(np.int64))
    return compute.binary_length(values).cast(pa.int64()) if is_text(values.type) else None
