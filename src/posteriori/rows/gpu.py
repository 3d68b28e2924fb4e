"""Rows on a GPU: moved there once, or found there, and summed over there.

Kernels with a version in JAX run on the GPU, compiled once per shape; only parameters and sums travel. Kernels without
one are run by NumPy, on parts of the rows fetched to the host. All results are NumPy arrays of float64. JAX is imported
when a GPU is asked for, or rows are on one, and not before.
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
from posteriori.rows import dlpack
from posteriori.rows.blocks import KeepsRowValues, OnGpu, facts_of
from posteriori.rows.features import Example, Features, NotFinite, first_not_finite
from posteriori.rows.matrices import labels_and_weights, read_matrix, require_real, require_shape
from posteriori.rows.memory import InOrder, MemoryBlocks, rescaled
from posteriori.rows.target import Target, read_target

if TYPE_CHECKING:
    from posteriori.rows.gpu_arrays import JaxKernel

__all__ = ["ENGINE", "GpuBlocks", "GpuFeatures", "jax_version", "read_gpu_features", "read_gpu_target"]

_HOST_BYTES = 64 << 20
"""Rows fetched to the host at a time."""
_ROW_VALUE_BYTES = 8 << 30
"""Most memory for probabilities kept between passes."""
_ROWS_OF_A_CALL = 32_768
"""Rows that are visited in no more time than a call takes."""
_LARGE = 400
"""Side of a matrix that is better factored on the GPU."""
_FEW_LABELS = 1024
"""Labels within this range are numbered on the GPU."""


# Features and targets


@dataclass(frozen=True)
class GpuFeatures(Features):
    """The features of N rows on a GPU.

    Attributes
    ----------
    matrix : jax.Array, (N, D)
        The rows, of booleans, integers, float32 or float64.
    names : list of str, or None
    """

    matrix: Any
    names: list[str] | None = None

    @property
    def n_features(self) -> int:
        """D."""
        return self.matrix.shape[1]

    def first_not_finite(self, *, missing_allowed: bool = False) -> NotFinite | None:
        """The first value that is NaN or infinite, if there is one."""
        if self.matrix.dtype.kind in "biu":
            return None
        row = int(_run(_arrays().first_not_finite_row, self.matrix, missing_allowed))
        if row == len(self.matrix):
            return None
        found, _, _ = _fetch(_run(_arrays().rows_by_number, self.matrix, None, None, np.array([row])))
        values = found.astype(np.float64)
        return first_not_finite(values, self.names, missing_allowed=missing_allowed, first_row=row)

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> GpuBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        if finite:
            self.require_finite()
        Y, c = (None, None) if target is None else (target.values, target.weights)
        return GpuBlocks(self.matrix, Y, c, n_classes, shift=shift, scale=scale, n_threads=n_threads)


def read_gpu_features(X: Any, *, drop: Collection[str] = ()) -> GpuFeatures:
    """Rows on a GPU: as they are if they are on one, otherwise moved once to the first."""
    jax = dlpack.require_jax()
    if sp.issparse(X):
        raise ValueError(
            "device='gpu' takes dense rows, and X is a sparse matrix: use device='cpu', or X.toarray() if it fits."
        )
    with jax.enable_x64(True):
        if dlpack.on_gpu(X) or isinstance(X, jax.Array):
            matrix = dlpack.as_jax(X)
            require_shape(matrix.shape, given=X)
            require_real(matrix.dtype)
            return GpuFeatures(matrix if dlpack.on_gpu(X) else jax.device_put(matrix, dlpack.first_gpu()))
        matrix, names = read_matrix(X, drop=drop)
        return GpuFeatures(jax.device_put(matrix, dlpack.first_gpu()), names)


def read_gpu_target(
    y: Any, device: Any = None, *, n_rows: int, classes: Any = None, sample_weight: Any = None, class_weight: Any = None
) -> Target:
    """The target of rows on a GPU; integer labels are numbered there: only distinct ones are read by the host."""
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "iu":
        jax = dlpack.require_jax()
        with jax.enable_x64(True):
            labels = jax.device_put(y, dlpack.first_gpu() if device is None else device)
    elif dlpack.on_gpu(y):
        labels = dlpack.as_jax(y)
    else:
        return _read_on_host(y, n_rows, classes, sample_weight, class_weight)
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
        dlpack.to_host(y),
        n_rows=n_rows,
        classes=classes,
        sample_weight=dlpack.to_host(sample_weight),
        class_weight=class_weight,
    )


class GpuEngine:
    """Rows on a GPU, or rows in memory that are to be moved there."""

    name = "GPU"
    holds_all_rows = True

    def claims(self, X: Any, device: str | None) -> bool:
        """Whether the estimator's device is the GPU or, if it is left open, X is an array on one."""
        return device == "gpu" or (device is None and dlpack.on_gpu(X))

    def read(self, X: Any, drop: Collection[str]) -> GpuFeatures:
        """The features of new rows."""
        return read_gpu_features(X, drop=drop)

    def read_for_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
    ) -> tuple[GpuFeatures, Target]:
        """Features and target of the rows of a fit."""
        labels, weights = labels_and_weights(X, y, sample_weight)
        features = self.read(X, [name for name in (y, sample_weight) if isinstance(name, str)])
        N = len(features.matrix)
        (device,) = features.matrix.devices()
        return features, read_gpu_target(
            labels, device, n_rows=N, classes=classes, sample_weight=weights, class_weight=class_weight
        )

    def labels(self, X: Any, y: Any) -> Any:
        """Labels or weights on the host."""
        return dlpack.to_host(y)

    def examples(self, X: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> list[Example]:
        """An array on the host to be moved to the GPU, and one that is there."""
        jax = dlpack.require_jax()
        with jax.enable_x64(True):
            rows, labels = jax.device_put((X, y), dlpack.first_gpu())
        return [Example("array for the GPU", X, y, c, "gpu"), Example("array on the GPU", rows, labels, c)]


ENGINE = GpuEngine()


# Blocks


class GpuRowValues:
    """Probabilities (K, N) on the GPU, left by one pass for others at the same parameters."""

    P: Any = None


class GpuBlocks(OnGpu, KeepsRowValues):
    """Rows on a GPU: one block for kernels in JAX, parts fetched to the host for those of NumPy.

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
        jax = dlpack.require_jax()
        device = next(iter(X.devices()))
        if isinstance(Y, np.ndarray) and Y.ndim == 1:
            Y = Y.astype(np.int32)  # half the bytes, and as labels numbered on the GPU are
        with jax.enable_x64(True):
            Y, c = jax.device_put((Y, c), device)
            size = self.n_rows if Y is None else _arrays().padded(self.n_rows)
            if size > self.n_rows or X.dtype != np.float64 or shift is not None or scale is not None:
                X, Y, c = _arrays().converted(X, Y, c, shift, scale, size)
            self.X, self.Y, self.c = X, Y, c

    @property
    def n_weighted(self) -> int:
        """Rows of positive weight."""
        return self.n_rows if self.c is None else int((np.asarray(self.c)[: self.n_rows] > 0).sum())

    @property
    def least_sample(self) -> int:
        """A thirty-second of the rows, or as many as are visited in no more time than a call takes."""
        return max(self.n_rows // 32, min(self.n_rows // 4, _ROWS_OF_A_CALL))

    def map_sum(
        self, kernel: Callable[..., Any], *params: Any, row_values: list[Any] | None = None, coarse: bool = False
    ) -> Any:
        """Sum of the kernel over all rows: on the GPU by its version in JAX, or by NumPy on rows fetched from it."""
        self.n_passes += 1
        version = jax_version(kernel)
        if version is None:
            return self._sum_on_host(kernel, params, coarse)
        values = None if row_values is None else row_values[0]
        options = {"P": values.P} if values is not None and version.takes_probabilities else {}
        found = _run(version.run, self.X, self.Y if facts_of(kernel).reads_labels else None, self.c, *params, **options)
        if version.keeps_probabilities:
            found, P = found
            if values is not None:
                values.P = P
        return version.result(_fetch(found), *params)

    def run_on_gpu(self, program: Callable[..., Any], *args: Any) -> Any:
        """``program(X, Y, c, *args)`` in double precision."""
        return _run(program, self.X, self.Y, self.c, *args)

    def factor_on_gpu(self, M: np.ndarray) -> np.ndarray:
        """The Cholesky factor, of a large matrix made on the GPU, of a small one on the host: the way there is long."""
        if len(M) < _LARGE:
            return cholesky(M)
        device = next(iter(self.X.devices()))
        L = _fetch(_run(lambda: _arrays().cholesky(dlpack.require_jax().device_put(M, device))))
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

    def row_values(self, size: int) -> list[Any] | None:
        """A place on the GPU for (size, N) values, or None if they would take more than 8 GiB."""
        return None if self.n_rows * size * 8 > _ROW_VALUE_BYTES else [GpuRowValues()]

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

    def sample(self, n_rows: int, rng: np.random.Generator, *, as_in_memory: bool = False) -> GpuBlocks:
        """One row at random out of each of `n_rows` equal shares of the rows, on the GPU.

        A row weighs as much as its share, so that sums are estimated without bias.
        """
        if n_rows >= self.n_rows:
            return self
        if as_in_memory:
            rows = np.sort(rng.choice(self.n_rows, n_rows, replace=False, shuffle=False))
            X, Y, c = _run(_arrays().rows_by_number, self.X, self.Y, self.c, rows)
            total = float(self.n_rows) if self.c is None else float(np.asarray(self.c).sum())
            weights = np.full(n_rows, total / n_rows) if c is None else rescaled(np.asarray(c), total)
            return GpuBlocks(X, Y, weights, self.n_classes, n_threads=self.n_threads)
        n_rows, seed = _arrays().rounded(n_rows), int(rng.integers(2**31))
        X, Y, c = _run(_arrays().random_rows, self.X, self.Y, self.c, seed, n_rows, self.n_rows)
        return GpuBlocks(X, Y, c, self.n_classes, n_threads=self.n_threads)

    def take(self, rows: np.ndarray, *, weighted: bool = False) -> tuple[Any, Any, Any]:
        """The rows of these numbers, as (X, Y, c), on the host."""
        if weighted and self.c is not None:
            rows = np.flatnonzero(np.asarray(self.c)[: self.n_rows] > 0)[rows]
        return self._fetched(rows)

    @cached_property
    def _rows_at_once(self) -> int:
        return max(1, _HOST_BYTES // (8 * self.n_features))

    def _fetched(self, rows: Any) -> tuple[Any, Any, Any]:
        """Some rows, on the host."""
        if len(rows) == 0:
            kind = None if self.Y is None else np.zeros((0, *self.Y.shape[1:]), self.Y.dtype)
            return np.zeros((0, self.n_features)), kind, None if self.c is None else np.zeros(0)
        X, Y, c = _fetch(_run(_arrays().rows_by_number, self.X, self.Y, self.c, np.asarray(rows)))
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
    """Call a function of JAX in double precision; the setting of JAX is restored afterwards."""
    with dlpack.require_jax().enable_x64(True):
        return function(*args, **options)


def _fetch(found: Any) -> Any:
    """All arrays on the host, in one go; what JAX gives out is read-only, and so is copied."""
    jax = dlpack.require_jax()
    return jax.tree.map(np.array, jax.device_get(found))


def _arrays() -> Any:
    """The module `gpu_arrays`, which needs JAX: it is imported only when rows are on a GPU."""
    from posteriori.rows import gpu_arrays

    return gpu_arrays


@cache
def jax_version(kernel: Callable[..., Any]) -> JaxKernel | None:
    """The version of a kernel for rows on a GPU, if it has one."""
    stated = facts_of(kernel).jax_version
    if stated is None:
        return None
    module, name = stated.split(":")
    return getattr(import_module(module), name)
