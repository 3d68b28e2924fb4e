"""Sessions of JAX: its settings for the time of one call, and as they were afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from posteriori.threads import one_blas_thread

__all__ = ["jax_session"]

_JAX_PROCESS: dict[str, int] = {}
"""The id of the process in which JAX was first used here; a forked process inherits it."""


@contextmanager
def jax_session(device: str | None) -> Iterator[None]:
    """Run JAX in double precision on this device, and BLAS in one thread; afterwards all is as it was."""
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Gaussian processes need JAX and optax ({error.name} is missing): pip install 'posteriori[gp]'."
        ) from None
    _require_own_jax()
    try:
        where = None if device is None else jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not available: JAX has {jax.devices()[0].platform!r} only.") from None
    with jax.enable_x64(True), jax.default_device(where), one_blas_thread():
        yield


def _require_own_jax() -> None:
    """Raise in a process that was forked from one that had used JAX: its threads are not here, and JAX would wait."""
    if _JAX_PROCESS.setdefault("id", os.getpid()) != os.getpid():
        raise RuntimeError(
            "This process was forked from one that had already used JAX, whose threads did not come along: a Gaussian "
            "process would wait for them forever. Start processes with multiprocessing.get_context('spawn') or "
            "'forkserver', or with joblib, whose processes are new ones."
        )
