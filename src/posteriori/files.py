"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new name beside `path` to write to; it takes the place of `path` at the end, unless something went wrong."""
    path = Path(path).resolve()  # a link keeps pointing to the file
    if path.exists() and not path.is_file():
        raise OSError(None, "it is not a regular file", str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        temporary.chmod(path.stat().st_mode if path.exists() else 0o666 & ~_mask())
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mask() -> int:
    """The rights that the system removes from new files (umask), which can be read only by setting them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
