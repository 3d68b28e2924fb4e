"""An object that is made when something of it is first asked for: a file is read without importing JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Deferred"]


class Deferred:
    """Stands for an object until that is needed, then passes every question on to it.

    Parameters
    ----------
    make : callable
        Returns the object; called once.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._made: Any = None

    def made(self) -> Any:
        """The object itself."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_make", "_made"):  # what copying and pickling look for
            raise AttributeError(name)
        return getattr(self.made(), name)

    def __repr__(self) -> str:
        return repr(self.made())

    def __reduce__(self) -> Any:
        return _itself, (self.made(),)


def _itself(value: Any) -> Any:
    return value
