"""A folder for one server alone, that goes with it; what a server has left that was killed, the next one removes."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["PREFIX", "private_folder"]

PREFIX = "posteriori-serve-"
_HELD = "held"
"""A file that is locked as long as the server lives; the system opens the lock, however the server ends."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can read, removed at the end."""
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with open(folder / "new", "wb") as held:
            if sys.platform != "win32":
                fcntl.flock(held, fcntl.LOCK_EX)
            (folder / "new").rename(folder / _HELD)  # it is locked before it can be found
            yield folder


def _remove_left() -> None:
    """Remove the folders of servers that live no more; Windows has no such locks, and the folders stay."""
    if sys.platform == "win32":
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is that of another user, of a server that lives, or gone
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            with open(folder / _HELD, "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
