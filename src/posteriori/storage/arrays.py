"""NumPy arrays as tensors that safetensors knows, and back: values, dtype, shape and order of axes are kept."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from posteriori.exceptions import StorageError

__all__ = ["as_tensor", "check_tensor", "dtype_of", "from_tensor", "is_plain"]

_KINDS = "biufcmM"
"""Kinds of dtypes whose values are their bytes: numbers, booleans, dates and times."""


def is_plain(dtype: np.dtype) -> bool:
    """Whether an array's values are its bytes."""
    return dtype.kind in _KINDS


def as_tensor(array: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """A contiguous tensor, and what must be known to turn it into the array again.

    A view becomes what it shows. Axes are laid out as in memory: products are then summed in the same order, and
    predictions are the same to the last bit.
    """
    array = np.copy(array, order="K")
    about: dict[str, Any] = {"dtype": array.dtype.str, "shape": list(array.shape)}
    if not array.flags.c_contiguous:
        axes = np.argsort([-stride for stride in array.strides], kind="stable").tolist()
        about["axes"] = axes
        array = array.transpose(axes)
    array = np.asarray(array, order="C")
    carrier, parts = _carrier(array.dtype)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if carrier == native.dtype:
        return native, about
    return np.frombuffer(native.tobytes(), carrier).reshape((*native.shape, *parts)), about


def check_tensor(tensor: np.ndarray, about: dict[str, Any], name: str) -> tuple[np.dtype, list[int]]:
    """The dtype of the array and its shape as it is stored; raises unless the tensor has these."""
    dtype = dtype_of(about.get("dtype"))
    shape, axes = about.get("shape"), about.get("axes")
    if not _are_sizes(shape) or (axes is not None and not (_are_sizes(axes) and sorted(axes) == [*range(len(shape))])):
        raise StorageError(f"the description of the array {name!r} is malformed")
    stored_shape = list(shape) if axes is None else [shape[axis] for axis in axes]
    carrier, parts = _carrier(dtype)
    if tensor.dtype != carrier or list(tensor.shape) != [*stored_shape, *parts]:
        raise StorageError(
            f"the tensor {name!r} is {tensor.dtype} of shape {tensor.shape}, and {carrier} of shape "
            f"{(*stored_shape, *parts)} is needed"
        )
    return dtype, stored_shape


def from_tensor(tensor: np.ndarray, about: dict[str, Any], name: str) -> np.ndarray:
    """The array that a tensor was made from, with memory of its own."""
    dtype, stored_shape = check_tensor(tensor, about, name)
    if tensor.dtype == dtype:
        array = tensor.copy()
    else:
        native = np.frombuffer(bytearray(tensor.tobytes()), dtype.newbyteorder("="))
        array = native.reshape(stored_shape).astype(dtype, copy=False)
    return array if about.get("axes") is None else array.transpose(np.argsort(about["axes"]))


def dtype_of(text: Any) -> np.dtype:
    """The dtype that a file names, if it is one of numbers, booleans, dates or times."""
    try:
        dtype = np.dtype(text) if isinstance(text, str) and len(text) <= 32 else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or not is_plain(dtype):
        raise StorageError(f"the dtype {text!r} is unknown here")
    return dtype


def _carrier(dtype: np.dtype) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype a tensor has, and how many of it make one value: those that safetensors lacks go in parts."""
    if dtype.kind in "mM":
        return np.dtype(np.int64), ()
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return np.dtype(f"f{dtype.itemsize // 2}"), (2,)
    if dtype.itemsize > 8:  # extended precision
        return np.dtype(np.uint8), (dtype.itemsize,)
    return dtype.newbyteorder("="), ()


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and len(values) <= 64 and all(type(v) is int and v >= 0 for v in values)
