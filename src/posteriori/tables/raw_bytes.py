"""Bytes of files, of standard input and behind compressions: they can be read again and again, and errors name them."""

from __future__ import annotations

import lzma
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["STDIN", "FileBytes", "file_bytes", "held_bytes", "told"]

STDIN = "-"
"""The path that stands for standard input."""
_HELD_INPUT = 64 << 20
"""Standard input of up to so many bytes is held in memory; a longer one waits in a temporary file."""
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
"""What compressed files begin with."""


def file_bytes(path: str) -> FileBytes:
    """The bytes of a file, or of standard input, behind their compression if there is one."""
    if path == STDIN:
        return _decompressed(_standard_input())
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if not place.is_file():  # a named pipe, for example: it can be read only once
        with told(path), open(path, "rb") as file:
            return _decompressed(_spooled(path, file))
    return _decompressed(FileBytes(path, lambda: pa.OSFile(path), path))


def held_bytes(content: bytes, label: str) -> FileBytes:
    """Bytes that are in memory already, behind their compression if there is one."""
    return _decompressed(FileBytes(label, lambda: pa.BufferReader(content)))


@contextmanager
def told(label: str) -> Iterator[None]:
    """Turn errors of readers into one sentence that names the file."""
    try:
        yield
    except (pa.ArrowException, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, UnicodeError) as error:
        raise ValueError(f"{label} cannot be read: {_sentence(error)}") from None
    except OSError as error:
        if error.strerror:  # the system's own words
            raise OSError(error.errno, error.strerror, label) from None
        raise ValueError(f"{label} cannot be read: {_sentence(error)}") from None


def _sentence(error: Exception) -> str:
    lines = str(error).splitlines()
    text = lines[0] if lines else type(error).__name__
    if isinstance(error, (EOFError, lzma.LZMAError, zlib.error)) or "compress" in text or "inflate" in text:
        text = f"it is damaged or incomplete ({text.rstrip('.')}); fetch or make it again"
    return text if text.endswith((".", "?", "!")) else f"{text}."


@dataclass(frozen=True)
class FileBytes:
    """Bytes that can be read again and again.

    Attributes
    ----------
    label : str
        The file, for messages.
    open : function
        An Arrow input stream at the first byte.
    path : str or None
        None if the bytes are not those of a file.
    compressed : bool
        Whether the file itself has other bytes.
    """

    label: str
    open: Callable[[], Any]
    path: str | None = None
    compressed: bool = False
    kept: Any = field(default=None, compare=False)
    """What must live as long as the bytes: a temporary file."""

    def first(self, n_bytes: int) -> bytes:
        """The first bytes."""
        with told(self.label), self.open() as stream:
            return bytes(stream.read(n_bytes))

    def size(self) -> int:
        """Bytes of the file, compressed ones counted as they are; 0 if they are not those of a file."""
        return 0 if self.path is None else os.stat(self.path).st_size

    def stamp(self) -> Any:
        """Size and time of the file, or None."""
        if self.path is None:
            return None
        info = os.stat(self.path)
        return self.path, info.st_size, info.st_mtime_ns


def _standard_input() -> FileBytes:
    label = "Standard input"
    source = getattr(sys.stdin, "buffer", None)
    if source is None or sys.stdin.closed:
        raise ValueError("Standard input is closed: name a file, or pipe a table into the command.")
    with told(label):
        try:
            return _spooled(label, source)
        except ValueError as error:  # closed by somebody else
            raise ValueError(f"Standard input cannot be read ({error}): name a file.") from None


def _spooled(label: str, source: Any) -> FileBytes:
    """All bytes of a stream that can be read only once, in memory or in a temporary file."""
    held = source.read(_HELD_INPUT)
    if len(held) < _HELD_INPUT:
        return FileBytes(label, lambda: pa.BufferReader(held))
    file = tempfile.NamedTemporaryFile(prefix="posteriori-", suffix=".input")  # noqa: SIM115 - lives as long as the table
    while held:
        file.write(held)
        held = source.read(_HELD_INPUT)
    file.flush()
    return FileBytes(label, lambda: pa.OSFile(file.name), kept=file)


def _decompressed(source: FileBytes) -> FileBytes:
    """The bytes behind a compression, if there is one."""
    start = source.first(8)
    kind = next((kind for mark, kind in _COMPRESSIONS.items() if start.startswith(mark)), None)
    if kind is None:
        return source
    if kind == "zip":
        return _zip_member(source)
    if kind == "xz":
        return replace(source, compressed=True, open=lambda: pa.PythonFile(lzma.open(source.open()), mode="r"))
    return replace(source, compressed=True, open=lambda: pa.CompressedInputStream(source.open(), kind))


def _zip_member(source: FileBytes) -> FileBytes:
    """The only file in a zip archive; an Excel file is such an archive, and stays what it is."""
    with told(source.label), zipfile.ZipFile(source.open()) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if "xl/workbook.xml" in names:
        return source
    if len(names) != 1:
        raise ValueError(f"{source.label} is an archive of {len(names)} files: unpack it, and name the files to read.")
    return replace(
        source, compressed=True, open=lambda: pa.PythonFile(zipfile.ZipFile(source.open()).open(names[0]), mode="r")
    )
