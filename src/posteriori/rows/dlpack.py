"""Arrays of other libraries that are on a GPU: where they are, and how JAX and NumPy get at them.

JAX is imported when an array is on a GPU, or a GPU is asked for, and not before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["as_jax", "first_gpu", "on_gpu", "require_jax", "to_host"]

_GPUS = (2, 10, 13)
"""Kinds of device, as DLPack numbers them: CUDA, ROCm, CUDA's managed memory."""
_ADVICE = "pip install 'posteriori[gpu]'"


def on_gpu(X: Any) -> bool:
    """Whether an array says that it is on a GPU."""
    if isinstance(X, np.ndarray) or not hasattr(X, "__dlpack_device__"):
        return False
    try:
        return int(X.__dlpack_device__()[0]) in _GPUS
    except (BufferError, RuntimeError, TypeError, ValueError):  # on no device that DLPack could name, or on several
        return False


def first_gpu() -> Any:
    """The first GPU that JAX has."""
    jax = require_jax()
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        raise ValueError(
            f"device='gpu' is not available: JAX has {jax.default_backend()!r} only. If there is a GPU, install "
            f"what it needs: {_ADVICE}."
        ) from None


def as_jax(X: Any) -> Any:
    """An array of any library on a GPU, as one of JAX that shares its memory."""
    jax = require_jax()
    if isinstance(X, jax.Array):
        return X
    with jax.enable_x64(True):
        return jax.dlpack.from_dlpack(X)


def to_host(X: Any) -> Any:
    """An array on a GPU as one of NumPy; anything else as it is."""
    return np.asarray(as_jax(X)) if on_gpu(X) else X


def require_jax() -> Any:
    """The module of JAX, or an error that says how to install it."""
    try:
        import jax
    except ImportError:
        raise ImportError(f"Rows on a GPU need JAX, which is missing: {_ADVICE}.") from None
    return jax
