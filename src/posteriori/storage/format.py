"""The file: safetensors, with a document of JSON in the header's metadata.

A safetensors file is the length of its header, the header in JSON and the bytes of all tensors. The document stands
under one key of the header's metadata and begins with the SHA-256 of the whole file, in which the digest itself is
taken for zeros.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from posteriori.exceptions import StorageError
from posteriori.files import replacing

__all__ = ["FORMAT", "read", "read_document", "write"]

FORMAT = 1
"""The version of files that are written; files of all versions up to it can be read."""
_KEY = "posteriori"
_DIGITS = 64
_MARK = b'{\\"sha256\\":\\"'
"""Where the digest begins: quotes of a document within a header are escaped."""
_LONGEST_HEADER = 100_000_000
"""Safetensors' own limit."""

Tensors = dict[str, np.ndarray]


def write(path: Any, document: dict[str, Any], tensors: Tensors) -> None:
    """Write a file as a whole or not at all."""
    data = to_bytes(document, tensors)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:  # in the words of the file asked for, not of the temporary one
        raise OSError(error.errno, error.strerror, str(path)) from None


def to_bytes(document: dict[str, Any], tensors: Tensors) -> bytes:
    """The bytes of the whole file."""
    text = json.dumps({"sha256": "0" * _DIGITS} | document, allow_nan=False, separators=(",", ":"))
    data = bytearray(safetensors.save(tensors, {_KEY: text}))
    header = int.from_bytes(data[:8], "little")
    if header > _LONGEST_HEADER:
        raise ValueError(
            f"The header would have {header} bytes, and {_LONGEST_HEADER} are allowed: labels or parameters are too "
            "many to be stored."
        )
    start = data.index(_MARK) + len(_MARK)
    data[start : start + _DIGITS] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def read(path: Any) -> tuple[dict[str, Any], Tensors]:
    """Document and tensors of a file; raises unless every byte is as it was written."""
    with Path(path).open("rb") as file:
        document, header = _read_header(path, file)
        data = header + file.read()
    _require_digest(path, document, data)
    try:
        return document, safetensors.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise StorageError(f"{path} is damaged: {error}.") from None


def read_document(path: Any) -> dict[str, Any]:
    """The document alone: tensors are not read, and the digest of the file is not checked."""
    with Path(path).open("rb") as file:
        return _read_header(path, file)[0]


def _read_header(path: Any, file: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """The document, checked to be of a version that can be read, and the bytes of the file so far."""
    first = file.read(8)
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > _LONGEST_HEADER:
        raise StorageError(f"{path} is not a model stored by posteriori: it is not in the safetensors format.")
    if 8 + length > size:
        raise StorageError(
            f"{path} is cut short, or not a model stored by posteriori: it has {size} bytes, and its header alone "
            f"would have {length}."
        )
    header = file.read(length)
    parsed = _parsed(header)
    if not isinstance(parsed, dict):
        raise StorageError(f"{path} is damaged, or not a model stored by posteriori: its header is not in JSON.")
    metadata = parsed.get("__metadata__")
    text = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise StorageError(
            f"{path} is a safetensors file, but not a model stored by posteriori: its metadata lacks {_KEY!r}."
        )
    document = _parsed(text)
    if not isinstance(document, dict) or type(document.get("format")) is not int or document["format"] < 1:
        raise StorageError(f"{path} is damaged: what its header says of the model cannot be read.")
    if document["format"] > FORMAT:
        from posteriori import __version__

        raise StorageError(
            f"{path} was written by posteriori {str(document.get('library'))[:20]} in format {document['format']}. "
            f"This is posteriori {__version__}, which reads up to format {FORMAT}: update it."
        )
    return document, first + header


def _parsed(text: str | bytes) -> Any:
    """The value of a text in JSON, or None if it is not JSON; numbers that are not finite are refused."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        return None


def _refuse(token: str) -> NoReturn:
    raise ValueError(token)


def _require_digest(path: Any, document: dict[str, Any], data: bytes) -> None:
    start = data.find(_MARK) + len(_MARK)
    digest = hashlib.sha256(data[:start])
    digest.update(b"0" * _DIGITS)
    digest.update(memoryview(data)[start + _DIGITS :])
    if start < len(_MARK) or document.get("sha256") != digest.hexdigest():
        raise StorageError(f"{path} is damaged: its bytes are not those that were written. Copy or save it again.")
