"""How much memory this process has used, and how much there is to use."""

from __future__ import annotations

import os
import sys

__all__ = ["available_memory", "peak_memory"]


def peak_memory() -> int | None:
    """The most memory that this process has used, in MB, where the system tells."""
    own = _kilobytes("/proc/self/status", "VmHWM:")  # ru_maxrss of Linux begins with that of the process that began it
    if own is not None:
        return round(own / 1e3)
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3))


def available_memory() -> float:
    """Bytes of memory that are free for this process; half of the machine's if the system does not tell more."""
    free = _kilobytes("/proc/meminfo", "MemAvailable:")
    found = [
        None if free is None else 1024.0 * free,
        *map(_limit, ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")),
    ]
    known = [value for value in found if value is not None]
    if known:
        return min(known)
    try:
        return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2e9


def _kilobytes(path: str, name: str) -> int | None:
    """The number after a name in a file of Linux, if there is one."""
    try:
        with open(path, encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _limit(path: str) -> float | None:
    """The limit of a container, if it has one."""
    try:
        with open(path, encoding="ascii") as file:
            return float(file.read())
    except (OSError, ValueError):
        return None
