"""Tables of the page with the answers to their rows, in a private folder that all processes of a server share.

A table is a folder: what was sent as an Arrow file, an array for each answer, and a description, which is written last.
It appears as a whole or not at all, is read through memory maps, and goes when it has not been used for long, or when
there are too many.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from posteriori.serve.errors import Refusal

__all__ = ["ROWS_AT_ONCE", "Draft", "Recent", "StoredTable", "StoredTables"]

MOST_BYTES = 2 << 30
"""Bytes of all tables on disk; older ones go first."""
MOST_TABLES = 64
MOST_SECONDS = 12 * 3600.0
"""Time after which a table that nobody used is removed."""
ROWS_AT_ONCE = 65_536
"""Rows of a batch on disk, and of one step of a computation over all of them."""
_RECENT_BYTES = 128 << 20
_DRAFT_SECONDS = 3600.0
"""Time after which what an ended process has left half written is removed."""
_ID = re.compile(r"[0-9a-f]{32}")
_ABOUT, _FACTS, _ROWS = "about.json", "facts.json", "rows.arrow"


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Value = TypeVar("Value", bound=_Sized)


@dataclass
class Recent:
    """What was computed lately and may be asked for again, of so many bytes at most.

    Attributes
    ----------
    most_bytes : int
    """

    most_bytes: int = _RECENT_BYTES
    _values: OrderedDict[tuple[Any, ...], Any] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: tuple[Any, ...], compute: Callable[[], Value]) -> Value:
        """The value of this key, computed unless it is known."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = compute()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while sum(one.nbytes for one in self._values.values()) > self.most_bytes and len(self._values) > 1:
                self._values.popitem(last=False)
        return value

    def forget(self, first: Any) -> None:
        """Drop the values whose keys begin so."""
        with self._lock:
            for key in [key for key in self._values if key[0] == first]:
                del self._values[key]


@dataclass(frozen=True)
class StoredTable:
    """Rows that were sent, and the answers to them.

    Attributes
    ----------
    folder : Path
    about : dict
        What is known of the table, as values of JSON: id, model, version, rows, columns, classes and more.
    recent : Recent
        What was computed of tables lately.
    """

    folder: Path
    about: Mapping[str, Any]
    recent: Recent = field(repr=False)

    @property
    def id(self) -> str:
        """The name of the table, which cannot be guessed."""
        return self.about["id"]

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.about["rows"]

    @property
    def classes(self) -> list[Any]:
        """The classes of the model that answered, as values of JSON."""
        return self.about["classes"]

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        """The answers by name, those of `serve.answers`, and "truth": codes of classes, -1 where it is not known."""
        with _here(self.id):
            return {name: np.asarray(np.load(self._path(name), mmap_mode="r")) for name in self.about["arrays"]}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was said of all rows when the table was stored."""
        with _here(self.id):
            return orjson.loads((self.folder / _FACTS).read_bytes())

    @cached_property
    def truth(self) -> np.ndarray | None:
        """Codes of the true classes, -1 where they are not known; None if there are none."""
        return self.answers.get("truth")

    def parts(self) -> Iterator[slice]:
        """The rows, so many at a time that memory is bounded."""
        return (slice(start, start + ROWS_AT_ONCE) for start in range(0, self.n_rows, ROWS_AT_ONCE))

    def rows(self, chosen: np.ndarray) -> pa.Table:
        """The rows of these numbers, counted from 0, in their order, as they were sent."""
        ends = np.asarray(self.about["ends"])
        batch_of = np.searchsorted(ends, chosen, side="right")
        order = np.argsort(batch_of, kind="stable")
        with self._reader() as reader:
            taken = []
            for b in np.unique(batch_of).tolist():
                within = chosen[batch_of == b] - (ends[b - 1] if b else 0)
                taken.append(reader.get_batch(b).take(pa.array(within)))
            table = pa.Table.from_batches(taken, reader.schema)
        return table.take(pa.array(np.argsort(order)))

    def batches(self) -> Iterator[tuple[slice, pa.RecordBatch]]:
        """All rows as they were sent, in batches, with their places."""
        start = 0
        with self._reader() as reader:
            for b in range(reader.num_record_batches):
                batch = reader.get_batch(b)
                yield slice(start, start + batch.num_rows), batch
                start += batch.num_rows

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with _here(self.id):
            file = pa.memory_map(str(self.folder / _ROWS))
        with file, pa.ipc.open_file(file) as reader:
            yield reader

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


@dataclass
class Draft:
    """A table that is being written.

    Attributes
    ----------
    folder : Path
    id : str
    n_rows : int
    recent : Recent
    """

    folder: Path
    id: str
    n_rows: int
    recent: Recent
    _files: dict[str, Any] = field(default_factory=dict)
    _ends: list[int] = field(default_factory=list)

    def write_rows(self, table: pa.Table) -> None:
        """Write what was sent."""
        whole = table.unify_dictionaries().combine_chunks()
        with pa.OSFile(str(self.folder / _ROWS), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
            end = 0
            for batch in whole.to_batches(max_chunksize=ROWS_AT_ONCE):
                writer.write_batch(batch)
                end += batch.num_rows
                self._ends.append(end)

    def append(self, values: Mapping[str, np.ndarray]) -> None:
        """Write the answers to further rows."""
        for name, array in values.items():
            part = np.ascontiguousarray(array)
            if name not in self._files:
                self._files[name] = self._begun(name, part)
            self._files[name].write(part)

    def table(self, about: Mapping[str, Any]) -> StoredTable:
        """The table as it is so far, with this description."""
        self.close()
        own = {"id": self.id, "rows": self.n_rows, "arrays": list(self._files), "ends": self._ends}
        return StoredTable(self.folder, own | dict(about), self.recent)

    def close(self) -> None:
        """Write no more answers."""
        for file in self._files.values():
            file.close()

    def _begun(self, name: str, part: np.ndarray) -> Any:
        """A file that begins as one of NumPy for the answers to all rows."""
        file = open(self.folder / f"{name}.npy", "wb")  # noqa: SIM115
        head = {
            "descr": np.lib.format.dtype_to_descr(part.dtype),
            "fortran_order": False,
            "shape": (self.n_rows, *part.shape[1:]),
        }
        np.lib.format.write_array_header_2_0(file, head)
        return file


@dataclass
class StoredTables:
    """The tables of the page.

    Attributes
    ----------
    folder : Path
        It is made when the first table is written, for this user alone.
    """

    folder: Path
    recent: Recent = field(default_factory=Recent)
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(max(1, (os.cpu_count() or 1) - 1)))
    """Tables are stored one after the other, or so many at a time that a thread is left for other requests."""

    def get(self, key: str) -> StoredTable:
        """The table of this id; to ask for it is to use it."""
        folder = self._folder(key)
        try:
            if time.time() - (folder / _ABOUT).stat().st_mtime > MOST_SECONDS:
                self.remove(key)
                raise _absent()
            about = orjson.loads((folder / _ABOUT).read_bytes())
            os.utime(folder / _ABOUT)
        except FileNotFoundError:
            raise _absent() from None
        return StoredTable(folder, about, self.recent)

    def remove(self, key: str) -> None:
        """Remove the table of this id."""
        gone = self.folder / f".{secrets.token_hex(8)}.gone"
        try:
            self._folder(key).rename(gone)
        except FileNotFoundError:
            raise _absent() from None
        self.recent.forget(key)
        shutil.rmtree(gone, ignore_errors=True)

    @contextmanager
    def writing(self, n_rows: int, n_bytes: int) -> Iterator[Draft]:
        """A table of so many rows, and about so many bytes, to be written; `keep` makes it one of the tables."""
        if n_bytes > MOST_BYTES:
            raise Refusal(
                f"The table and its answers need {n_bytes:,} bytes, and there are {MOST_BYTES:,}: send it in parts.",
                status=413,
            )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(n_bytes)
        key = secrets.token_hex(16)
        part = self.folder / f".{key}.part"
        part.mkdir(mode=0o700)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, part, ignore_errors=True)
            draft = Draft(part, key, n_rows, self.recent)
            stack.callback(draft.close)
            try:
                yield draft
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise Refusal("There is no room on the disk of the server for the table.", status=507) from None
                raise

    def keep(self, draft: Draft, about: Mapping[str, Any], facts: Mapping[str, Any]) -> StoredTable:
        """Make a draft one of the tables, with what is to be said of all its rows."""
        table = draft.table(about)
        (draft.folder / _FACTS).write_bytes(orjson.dumps(dict(facts)))
        (draft.folder / _ABOUT).write_bytes(orjson.dumps(dict(table.about)))
        draft.folder.rename(self.folder / draft.id)
        return StoredTable(self.folder / draft.id, table.about, self.recent)

    def _make_room(self, n_bytes: int) -> None:
        """Remove tables that are old, and as many of the others as must go for another one."""
        now, found = time.time(), []
        for folder in self.folder.iterdir():
            with suppress(FileNotFoundError):
                if not _ID.fullmatch(folder.name):
                    if now - folder.stat().st_mtime > _DRAFT_SECONDS:
                        shutil.rmtree(folder, ignore_errors=True)
                    continue
                used = (folder / _ABOUT).stat().st_mtime
                found.append((used, sum(file.stat().st_size for file in folder.iterdir()), folder.name))
        found.sort(reverse=True)
        total = n_bytes
        for place, (used, size, key) in enumerate(found, start=1):
            total += size
            if now - used > MOST_SECONDS or total > MOST_BYTES or place >= MOST_TABLES:
                with suppress(Refusal):  # another process was first
                    self.remove(key)

    def _folder(self, key: str) -> Path:
        if not _ID.fullmatch(key):
            raise _absent()
        return self.folder / key


@contextmanager
def _here(key: str) -> Iterator[None]:
    """Say of files that are gone that their table is."""
    try:
        yield
    except FileNotFoundError:
        raise _absent() from None


def _absent() -> Refusal:
    return Refusal(
        "There is no such table: tables are removed when nobody has used them for "
        f"{MOST_SECONDS / 3600:g} hours, when the room is needed, or when the server ends. Send the rows again.",
        status=404,
    )
