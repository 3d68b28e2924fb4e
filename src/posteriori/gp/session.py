"""Sessions of JAX: its settings for the time of one call, and as they were afterwards.

JAX compiles for seconds what it runs for milliseconds. During a session its compiled programs are kept in a folder of
the user, where the next process finds them, unless the user has such a folder of their own, or wants none.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from posteriori.threads import one_blas_thread

__all__ = ["jax_session"]

_JAX_PROCESS: dict[str, int] = {}
"""The id of the process in which JAX was first used here; a forked process inherits it."""
_FOLDER_VARIABLE = "POSTERIORI_JAX_CACHE"
"""The variable of the environment that names another folder for compiled programs, or is "off"."""
_OLDEST_JAXLIB = (0, 10, 2)
"""Earlier versions write pages of errors where they load a program for a CPU, and crash on some macOS."""
_MOST_BYTES = 256 * 2**20
"""The size of the folder from which on the programs that were not used for longest are removed."""
_KEEPING = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,  # a fit has dozens of small programs, which add up
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_compilation_cache_max_size": -1,  # JAX needs another package for its limit; we have ours
    "jax_persistent_cache_enable_xla_caches": None,
    "jax_raise_persistent_cache_errors": False,
}
"""The settings of JAX for a folder of compiled programs."""


@contextmanager
def jax_session(device: str | None) -> Iterator[None]:
    """Run JAX in double precision on this device, and BLAS in one thread; afterwards all is as it was."""
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"This Gaussian process needs JAX and optax ({error.name} is missing): pip install 'posteriori[gp]'. "
            "GPClassifier with its default settings needs neither, nor does a kernel that has a method slopes."
        ) from None
    _require_own_jax()
    try:
        where = None if device is None else jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not available: JAX has {jax.devices()[0].platform!r} only.") from None
    with jax.enable_x64(True), jax.default_device(where), one_blas_thread(), _programs_kept():
        yield


def _require_own_jax() -> None:
    """Raise in a process that was forked from one that had used JAX: its threads are not here, and JAX would wait."""
    if _JAX_PROCESS.setdefault("id", os.getpid()) != os.getpid():
        raise RuntimeError(
            "This process was forked from one that had already used JAX, whose threads did not come along: a Gaussian "
            "process would wait for them forever. Start processes with multiprocessing.get_context('spawn') or "
            "'forkserver', or with joblib, whose processes are new ones."
        )


# Compiled programs

_lock = threading.Lock()
_holders = 0
_restore: dict[str, tuple[Any, Any]] = {}
"""The settings of JAX that are changed: what they were, and what they are meanwhile."""


@contextmanager
def _programs_kept() -> Iterator[None]:
    """Have JAX keep compiled programs; its settings are those of all threads, and the last to leave restores them."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _keep_programs()
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _restore_settings()


def _keep_programs() -> None:
    """Set the folder for compiled programs, unless the user has set one or has switched that off."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    folder = _folder()
    if folder is None:
        return
    ours = {"jax_compilation_cache_dir": str(folder), **_KEEPING}
    with suppress(AttributeError, ImportError):  # a version of JAX without one of these compiles anew
        _forget_folder()
        _restore.update({name: (getattr(config, name), value) for name, value in ours.items()})
        for name, value in ours.items():
            config.update(name, value)


def _restore_settings() -> None:
    """Give the user's settings back, but for those that the user has changed meanwhile."""
    import jax

    if not _restore:
        return
    for name, (before, ours) in _restore.items():
        if getattr(jax.config, name) == ours:
            jax.config.update(name, before)
    _restore.clear()
    _forget_folder()


def _forget_folder() -> None:
    """Let JAX read its settings anew: it would go on with the folder that it has used first."""
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    reset_cache()


def _folder() -> Path | None:
    """The folder for compiled programs, ready to use; None where there is none, or none is wanted."""
    import jaxlib

    given = os.environ.get(_FOLDER_VARIABLE, "")
    version = tuple(int(part) for part in re.findall(r"\d+", jaxlib.__version__)[:3])
    if given.lower() == "off" or version < _OLDEST_JAXLIB:
        return None
    try:
        folder = Path(given).expanduser().absolute() if given else _caches() / "posteriori" / "jax"
    except (OSError, RuntimeError):  # there is no home, or no folder to be in
        return None
    return folder if _is_ready(folder, trusted=bool(given)) else None


def _caches() -> Path:
    """The folder in which this system keeps a user's caches."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".cache"


@cache
def _is_ready(folder: Path, *, trusted: bool) -> bool:
    """Whether programs can be kept in this folder, which is made where there is none, and kept small.

    What lies there is run: if the folder was not named by the user, it must belong to them.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted and hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
            return False
        with TemporaryFile(dir=folder):
            pass
        _remove_oldest(folder)
        return shutil.disk_usage(folder).free > _MOST_BYTES
    except OSError:
        return False


def _remove_oldest(folder: Path) -> None:
    """Remove programs that were not used for longest until the others are small enough, and those that are broken."""
    found = [(entry.stat(), Path(entry.path)) for entry in os.scandir(folder) if entry.is_file()]
    by_age = sorted(found, key=lambda file: max(file[0].st_atime, file[0].st_mtime), reverse=True)
    total = 0
    for about, path in by_age:
        total += about.st_size
        if total > _MOST_BYTES or about.st_size == 0:  # a file that a crash has left is empty
            with suppress(OSError):  # another process may have removed it
                path.unlink()
