"""Files that a command will write: checked before anything is read, so that no work is lost, and no input either."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from posteriori.cli.process import is_closed_pipe
from posteriori.tables.files import format_of

__all__ = ["STANDARD_OUTPUT", "naming", "require_destination", "table_destination"]

STANDARD_OUTPUT = "-"


def table_destination(out: str | None, form: str | None, inputs: Iterable[str | os.PathLike[str]]) -> str | None:
    """The file that a table goes to, checked; None is standard output, which ``-`` means too."""
    if out is None or out == STANDARD_OUTPUT:
        if form == "parquet":
            raise ValueError("Parquet cannot be written to the screen: name a file, or choose csv or jsonl.")
        return None
    require_destination(out, inputs)
    if form is None:
        format_of(out)
    return out


def require_destination(
    out: str | os.PathLike[str],
    inputs: Iterable[str | os.PathLike[str]] = (),
    *,
    option: str = "--out",
    what: str = "a table",
) -> None:
    """Raise unless a file can be written there, and none of the inputs would be lost by it."""
    path = Path(out)
    if os.fspath(out) in ("", STANDARD_OUTPUT):
        raise ValueError(f"{option} is {os.fspath(out)!r}, and {what} needs a file of its own: name one.")
    if path.is_dir():
        raise ValueError(f"{option} {out} is a folder: name a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {out} is not a regular file: name one, or leave {option} out for the screen.")
    _require_folder(path, option)
    for name in inputs:
        if _is_among(path, os.fspath(name)):
            raise ValueError(
                f"{option} {out} is also an input ({os.fspath(name)}), which would be lost or changed: choose another "
                "name."
            )


@contextmanager
def naming(out: str | os.PathLike[str] | None) -> Iterator[None]:
    """Name the file, and not its temporary name, where the system refuses to write it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or is_closed_pipe(error):
            raise
        where = "Standard output" if out is None else os.fspath(out)
        raise OSError(f"{where} cannot be written: {error.strerror}.") from error


def _require_folder(path: Path, option: str) -> None:
    """Raise unless a file can be made in its folder, and one that is there may be replaced."""
    folder = path.resolve().parent  # that of the file itself, where the name is a link
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {folder}; create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{option} {path}: you have no right to write to the folder {folder}.")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option} {path} is write-protected: choose another name, or allow to write to it.")


def _is_among(path: Path, given: str) -> bool:
    """Whether a path is one of the files that an argument stands for: a file, a pattern, or all files of a folder."""
    if given == STANDARD_OUTPUT:
        return False
    if not path.exists():  # nothing is lost, but a Parquet file in a folder of them would be read as one of them
        return path.suffix in (".parquet", ".pq") and _lies_in(path, given)
    found = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
    return any(os.path.samefile(path, name) or _lies_in(path, name) for name in found)


def _lies_in(path: Path, folder: str) -> bool:
    return os.path.isdir(folder) and Path(folder).resolve() in path.resolve().parents
