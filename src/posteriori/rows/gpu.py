"""Rows on a GPU: moved there once, or found there, and summed over where they lie.

Kernels with a version in JAX run on the card, compiled once per shape; only parameters and sums
travel. Kernels without one are run by NumPy, on parts of the rows fetched to the host. All results are NumPy arrays of
float64. JAX is imported when a device is asked for, or rows lie on one, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from posteriori.maths.linalg import cholesky
from posteriori.rows.blocks import facts_of
from posteriori.rows.features import raise_if_not_finite, read_features
from posteriori.rows.memory import InOrder, MemoryBlocks, rescaled
from posteriori.rows.target import Target, read_target

if TYPE_CHECKING:
    from posteriori.rows.gpu_arrays import JaxKernel

__all__ = ["DeviceBlocks", "DeviceFeatures", "device_for", "read_device_features", "read_device_target", "to_host"]

_GPUS = (2, 10, 13)
"""Kinds of device, as DLPack numbers them: CUDA, ROCm, CUDA's managed memory."""
_ADVICE = "pip install 'posteriori[gpu]'"
_HOST_BYTES = 64 << 20
"""Rows fetched to the host at a time."""
_KEPT_BYTES = 8 << 30
"""Most memory for probabilities kept between passes."""
_HANDY_ROWS = 32_768
"""Visited in no more time than a call takes."""
_LARGE = 400
"""Side of a matrix that is better factored on the device."""
_FEW_LABELS = 1024
"""Labels within this range are numbered on the device."""


# Where rows lie, and where they are to go


def device_for(device: str | None, X: Any) -> Any:
    """The JAX device on which to work, or None for the host: as asked, else where X lies."""
    if device == "gpu":
        return gpu()
    if device is None and on_gpu(X):
        return next(iter(as_jax(X).devices()))
    return None


def gpu() -> Any:
    """The first GPU that JAX has."""
    jax = _jax()
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        raise ValueError(
            f"device='gpu' is not available: JAX has {jax.default_backend()!r} only. With a GPU at hand, install "
            f"what it needs: {_ADVICE}."
        ) from None


def on_gpu(X: Any) -> bool:
    """Whether an array says that it lies on a GPU."""
    if isinstance(X, np.ndarray) or not hasattr(X, "__dlpack_device__"):
        return False
    try:
        return int(X.__dlpack_device__()[0]) in _GPUS
    except (BufferError, RuntimeError, TypeError, ValueError):  # on no device that DLPack could name, or on several
        return False


def as_jax(X: Any) -> Any:
    """An array of any library on a GPU, as one of JAX that shares its memory."""
    jax = _jax()
    if isinstance(X, jax.Array):
        return X
    with jax.enable_x64(True):
        return jax.dlpack.from_dlpack(X)


def to_host(X: Any) -> Any:
    """An array on a GPU as one of NumPy; anything else as it is."""
    return np.asarray(as_jax(X)) if on_gpu(X) else X


def _jax() -> Any:
    try:
        import jax
    except ImportError:
        raise ImportError(f"Rows on a GPU need JAX, which is missing: {_ADVICE}.") from None
    return jax


# Features and targets


@dataclass(frozen=True)
class DeviceFeatures:
    """The features of N rows on a device, as `Features` has them on the host.

    Attributes
    ----------
    matrix : jax.Array, (N, D)
        Of booleans, integers, float32 or float64.
    names : list of str, or None
    """

    matrix: Any
    names: list[str] | None

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""
        return self.matrix.shape

    def require_finite(self, *, missing_allowed: bool = False) -> None:
        """Raise if a value is not finite, naming its column and row."""
        if self.matrix.dtype.kind in "biu":
            return
        row = int(_run(_arrays().first_bad_row, self.matrix, missing_allowed))
        if row == len(self.matrix):
            return
        found, _, _ = _fetch(_run(_arrays().taken, self.matrix, None, None, np.array([row])))
        try:
            raise_if_not_finite(found.astype(np.float64), self.names, missing_allowed=missing_allowed)
        except ValueError as error:
            raise ValueError(str(error).replace("row 0 (", f"row {row} (")) from None

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> DeviceBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        Y = None if target is None else target.codes if target.codes is not None else target.probs
        c = None if target is None else target.weights
        return DeviceBlocks(self.matrix, Y, c, n_classes, shift=shift, scale=scale, n_threads=n_threads)


def read_device_features(X: Any, device: Any, *, drop: Collection[str] = ()) -> DeviceFeatures:
    """Rows on the device: as they are if they lie there, otherwise moved there once."""
    jax = _jax()
    if sp.issparse(X):
        raise ValueError(
            "device='gpu' takes dense rows, and X is a sparse matrix: use device='cpu', or X.toarray() if it fits."
        )
    names = None
    with jax.enable_x64(True):
        if isinstance(X, jax.Array) or on_gpu(X):
            matrix = as_jax(X)
            read_features(np.broadcast_to(False, matrix.shape))  # refuses what has another shape than a matrix
            if matrix.dtype.kind == "c":
                read_features(np.zeros((1, 1), matrix.dtype))  # and this refuses complex numbers
        else:
            features = read_features(X, drop=drop)
            matrix, names = features.matrix, features.names
        return DeviceFeatures(jax.device_put(matrix, device), names)


def read_device_target(
    y: Any, *, n_rows: int, classes: Any = None, sample_weight: Any = None, class_weight: Any = None
) -> Target:
    """As `read_target`; integer labels that lie on a device are numbered there, and only those that differ are read."""
    if not on_gpu(y):
        return _read_on_host(y, n_rows, classes, sample_weight, class_weight)
    labels = as_jax(y)
    plain = labels.ndim == 1 and len(labels) == n_rows and labels.dtype.kind in "biu"
    if not plain or sample_weight is not None or class_weight is not None:
        return _read_on_host(y, n_rows, classes, sample_weight, class_weight)
    low, high, bits = _fetch(_run(_arrays().survey, labels, _FEW_LABELS))
    if int(high) - int(low) >= _FEW_LABELS:
        return _read_on_host(y, n_rows, classes, None, None)
    offsets = np.flatnonzero(np.unpackbits(bits.astype("<u8").view(np.uint8), bitorder="little"))
    found = (offsets + int(low)).astype(labels.dtype)
    few = read_target(found, n_rows=len(found), classes=classes)  # with all that can be wrong with labels
    assert few.codes is not None
    numbers = np.zeros(_FEW_LABELS, dtype=np.int32)
    numbers[offsets] = few.codes
    return Target(few.classes, _run(_arrays().numbered, labels, low, numbers), None, None)


def _read_on_host(y: Any, n_rows: int, classes: Any, sample_weight: Any, class_weight: Any) -> Target:
    return read_target(
        to_host(y), n_rows=n_rows, classes=classes, sample_weight=to_host(sample_weight), class_weight=class_weight
    )


# Blocks


class Kept:
    """Probabilities (K, N) on the device, left by one pass for others at the same parameters."""

    P: Any = None


class DeviceBlocks:
    """Rows on a device: one block for kernels in JAX, parts fetched to the host for those of NumPy.

    Rows are float64 there, shifted and scaled: converted or copied once, and only where they are not so already. Should
    their number have no suitable divisor (see `parts_of`), some rows of weight zero are added in that copy.

    Parameters
    ----------
    X : jax.Array, (N, D)
    Y : array, (N,) labels 0..K-1 or (N, K) probabilities, or None (prediction)
    c : array (N,) or None
        Row weights; None when all are one.
    n_classes : int
    shift, scale : ndarray (D,) or None
        Blocks hold (X - shift) * scale.
    n_threads : int
        For what is done on the host.
    """

    sparse = False

    def __init__(
        self,
        X: Any,
        Y: Any,
        c: Any,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> None:
        self.n_rows, self.n_features = X.shape
        self.n_classes, self.n_threads = n_classes, n_threads
        self.n_passes = 0
        self._weighted = c is not None
        jax = _jax()
        device = next(iter(X.devices()))
        if isinstance(Y, np.ndarray) and Y.ndim == 1:
            Y = Y.astype(np.int32)  # half the bytes, and as labels numbered on the device are
        with jax.enable_x64(True):
            Y, c = jax.device_put((Y, c), device)
            size = self.n_rows if Y is None else _arrays().padded(self.n_rows)
            if size > self.n_rows or X.dtype != np.float64 or shift is not None or scale is not None:
                X, Y, c = _arrays().laid_out(X, Y, c, shift, scale, size)
            self.X, self.Y, self.c = X, Y, c

    @property
    def handy_rows(self) -> int:
        """A thirty-second of the rows, or as many as a card visits in no time: a call costs more."""
        return max(self.n_rows // 32, min(self.n_rows // 4, _HANDY_ROWS))

    def map_sum(
        self, kernel: Callable[..., Any], *params: Any, rows: list[Any] | None = None, coarse: bool = False
    ) -> Any:
        """Sum of the kernel over all rows: on the card by its version in JAX, or by NumPy on rows fetched from it."""
        self.n_passes += 1
        version = jax_version(kernel)
        if version is None:
            return self._sum_on_host(kernel, params, coarse)
        kept = None if rows is None else rows[0]
        options = {"P": kept.P} if kept is not None and version.takes_probabilities else {}
        found = _run(version.run, self.X, self.Y if facts_of(kernel).reads_labels else None, self.c, *params, **options)
        if version.keeps_probabilities:
            found, P = found
            if kept is not None:
                kept.P = P
        return version.result(_fetch(found), *params)

    def run_on_card(self, program: Callable[..., Any], *args: Any) -> Any:
        """``program(X, Y, c, *args)`` in double precision."""
        return _run(program, self.X, self.Y, self.c, *args)

    def factor_on_card(self, M: np.ndarray) -> np.ndarray:
        """Of a large matrix on the card, of a small one on the host: the way there takes as long as many rows."""
        if len(M) < _LARGE:
            return cholesky(M)
        device = next(iter(self.X.devices()))
        L = _fetch(_run(lambda: _arrays().cholesky(_jax().device_put(M, device))))
        if not np.isfinite(L[-1, -1]):
            raise np.linalg.LinAlgError("The matrix is not positive definite.")
        return L

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X, *params)``, (K, N)."""
        self.n_passes += 1
        version = jax_version(kernel)
        given = None if version is None else params if version.prepare is None else version.prepare(*params)
        if version is None or given is None:
            return self._rows_on_host(kernel, params, heavy)
        return _fetch(_run(version.run, self.X, *given))[:, : self.n_rows]

    def row_buffers(self, size: int) -> list[Any] | None:
        """A place on the device for (size, N) values, or None if they would take more than 8 GiB."""
        return None if self.n_rows * size * 8 > _KEPT_BYTES else [Kept()]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """All rows once, in random order, `size` at a time, on the host: fetched many batches at a time."""
        self.n_passes += 1
        order = rng.permutation(self.n_rows)
        many = max(1, self._rows_at_once // size) * size
        for start in range(0, self.n_rows, many):
            X, Y, c = self._fetched(order[start : start + many])
            for first in range(0, len(X), size):
                rows = slice(first, first + size)
                yield X[rows], None if Y is None else Y[rows], None if c is None else c[rows]

    def sample(self, n_rows: int, rng: np.random.Generator, *, alike: bool = False) -> DeviceBlocks:
        """One row at random out of each of `n_rows` equal shares of the rows, on the device.

        A row weighs as much as its share, so that sums are estimated without bias.
        """
        if n_rows >= self.n_rows:
            return self
        if alike:
            rows = np.sort(rng.choice(self.n_rows, n_rows, replace=False, shuffle=False))
            X, Y, c = _run(_arrays().taken, self.X, self.Y, self.c, rows)
            total = float(self.n_rows) if self.c is None else float(np.asarray(self.c).sum())
            weights = np.full(n_rows, total / n_rows) if c is None else rescaled(np.asarray(c), total)
            return DeviceBlocks(X, Y, weights, self.n_classes, n_threads=self.n_threads)
        n_rows, seed = _arrays().rounded(n_rows), int(rng.integers(2**31))
        X, Y, c = _run(_arrays().drawn, self.X, self.Y, self.c, seed, n_rows, self.n_rows)
        return DeviceBlocks(X, Y, c, self.n_classes, n_threads=self.n_threads)

    def some(self, n_rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """Up to so many random rows of positive weight, as (X, Y, c), on the host."""
        rows: Any = self.n_rows if self.c is None else np.flatnonzero(np.asarray(self.c)[: self.n_rows] > 0)
        count = rows if isinstance(rows, int) else rows.size
        if count > n_rows:
            rows = np.sort(rng.choice(rows, n_rows, replace=False, shuffle=False))
        return self._fetched(np.arange(rows) if isinstance(rows, int) else rows)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """X of the rows of these numbers, on the host."""
        return self._fetched(rows)[0]

    def at_hand(self) -> DeviceBlocks:
        """These rows: they are shifted and scaled already."""
        return self

    @cached_property
    def _rows_at_once(self) -> int:
        return max(1, _HOST_BYTES // (8 * self.n_features))

    def _fetched(self, rows: Any) -> tuple[Any, Any, Any]:
        """Some rows, on the host."""
        if len(rows) == 0:
            kind = None if self.Y is None else np.zeros((0, *self.Y.shape[1:]), self.Y.dtype)
            return np.zeros((0, self.n_features)), kind, None if self.c is None else np.zeros(0)
        X, Y, c = _fetch(_run(_arrays().taken, self.X, self.Y, self.c, np.asarray(rows)))
        return X, Y, c if self._weighted else None

    def _on_host(self) -> Iterator[MemoryBlocks]:
        """All rows, part by part."""
        for start in range(0, self.n_rows, self._rows_at_once):
            rows = np.arange(start, min(self.n_rows, start + self._rows_at_once))
            yield MemoryBlocks(*self._fetched(rows), self.n_classes, n_threads=self.n_threads)

    def _sum_on_host(self, kernel: Callable[..., Any], params: tuple[Any, ...], coarse: bool) -> Any:
        total = InOrder()
        for i, part in enumerate(self._on_host()):
            total.put(i, part.map_sum(kernel, *params, coarse=coarse))
        return total.value

    def _rows_on_host(self, kernel: Callable[..., np.ndarray], params: tuple[Any, ...], heavy: bool) -> np.ndarray:
        return np.concatenate([part.map_rows(kernel, *params, heavy=heavy) for part in self._on_host()], axis=1)


def _run(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call it in double precision, which JAX is otherwise left as it was found."""
    with _jax().enable_x64(True):
        return function(*args, **options)


def _fetch(found: Any) -> Any:
    """All arrays on the host, in one go; what JAX gives out is read-only, and so is copied."""
    jax = _jax()
    return jax.tree.map(np.array, jax.device_get(found))


def _arrays() -> Any:
    """What is done in JAX: a module that is imported only when rows lie on a device."""
    from posteriori.rows import gpu_arrays

    return gpu_arrays


@cache
def jax_version(kernel: Callable[..., Any]) -> JaxKernel | None:
    """The version of a kernel for rows on a card, if it has one."""
    stated = facts_of(kernel).jax_version
    if stated is None:
        return None
    module, name = stated.split(":")
    return getattr(import_module(module), name)
