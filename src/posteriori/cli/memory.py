"""How much memory this process has used."""

from __future__ import annotations

import sys

__all__ = ["peak_memory"]


def peak_memory() -> int | None:
    """The most memory that this process has used, in MB, where the system tells."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3))
