"""Rows in memory, dense or sparse: threads over slices that fit the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.rows.blocks import KeepsRowValues, Preparable
from posteriori.rows.dlpack import to_host
from posteriori.rows.features import Example, Features, NotFinite, first_not_finite
from posteriori.rows.matrices import column, is_table, labels_and_weights, read_matrix
from posteriori.rows.target import Target, read_target
from posteriori.threads import run_tasks

__all__ = ["ENGINE", "InOrder", "MemoryBlocks", "MemoryFeatures", "read_features", "rescaled"]

_BLOCK_BYTES = 4 << 20
"""Features and logits of one block: about what the second and third cache levels of one core hold."""
_BLOCK_FLOPS = 8e6
"""A block worth a thread: below this, handing it over costs more than it saves."""
_COARSE_ROWS = 8192
"""Rows of a block for kernels whose result is large."""
_SPLIT_ROWS = 512
"""Rows worth sharing between threads when much is done with each."""
_HEAVY_ROWS = 128
"""Rows to predict that are worth sharing when a prediction is an integral."""
_ROW_VALUE_BYTES = 256 << 20
"""Most memory for values kept per row between passes."""
_COPY_BYTES = 1 << 29
"""Rows of up to so many bytes are shifted and scaled once, in a copy; more of them block by block in every pass."""


@dataclass(frozen=True)
class MemoryFeatures(Features):
    """The features of N rows in memory.

    Attributes
    ----------
    matrix : ndarray or csr_array, (N, D)
        Of booleans, integers, float32 or float64, in any memory order.
    names : list of str, or None
        Column names of a table whose names are all strings.
    """

    matrix: np.ndarray | sp.csr_array
    names: list[str] | None = None

    @property
    def n_features(self) -> int:
        """D."""
        return self.matrix.shape[1]

    def first_not_finite(self, *, missing_allowed: bool = False) -> NotFinite | None:
        """The first value that is NaN or infinite, if there is one."""
        return first_not_finite(self.matrix, self.names, missing_allowed=missing_allowed)

    def blocks(
        self,
        target: Target | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
        finite: bool = False,
    ) -> MemoryBlocks:
        """The rows as (X - shift) * scale, with their targets if there are any."""
        if finite:
            self.require_finite()
        Y, c = (None, None) if target is None else (target.values, target.weights)
        return MemoryBlocks(self.matrix, Y, c, n_classes, shift=shift, scale=scale, n_threads=n_threads)


def read_features(X: Any, *, drop: Collection[str] = ()) -> MemoryFeatures:
    """The features of a table, an array or a sparse matrix; see `read_matrix`."""
    return MemoryFeatures(*read_matrix(X, drop=drop))


class MemoryEngine:
    """Tables, arrays and sparse matrices in memory; whatever no other engine claims."""

    name = "memory"
    holds_all_rows = True

    def claims(self, X: Any, device: str | None) -> bool:
        """True: this engine reads whatever no other one claims."""
        return True

    def read(self, X: Any, drop: Collection[str]) -> MemoryFeatures:
        """The features of new rows."""
        return read_features(to_host(X), drop=drop)

    def read_for_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, class_weight: Any
    ) -> tuple[MemoryFeatures, Target]:
        """Features and target of the rows of a fit."""
        labels, weights = labels_and_weights(X, y, sample_weight)
        features = self.read(X, [name for name in (y, sample_weight) if isinstance(name, str)])
        N = features.matrix.shape[0]
        return features, read_target(
            to_host(labels), n_rows=N, classes=classes, sample_weight=weights, class_weight=class_weight
        )

    def labels(self, X: Any, y: Any) -> Any:
        """The column that y names, if X is a table; otherwise y as it is."""
        return column(X, y, argument="y") if isinstance(y, str) and is_table(X) else to_host(y)

    def examples(self, X: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> list[Example]:
        """An array, a sparse matrix, and a table that has labels and weights as columns."""
        import pandas as pd

        table = pd.DataFrame(X, columns=[f"x{d}" for d in range(X.shape[1])]).assign(label=y)
        return [
            Example("dense array", X, y, c),
            Example("sparse matrix", sp.csr_array(X), y, c),
            Example("pandas DataFrame", table, "label", None)
            if c is None
            else Example("pandas DataFrame", table.assign(weight=c), "label", "weight"),
        ]


ENGINE = MemoryEngine()


class MemoryBlocks(KeepsRowValues, Preparable):
    """Rows of a matrix in memory.

    Parameters
    ----------
    X : ndarray or csr_array, (N, D)
        Of any real dtype and memory order; one block at a time is converted to float64.
    Y : ndarray, (N,) labels 0..K-1 or (N, K) probabilities, or None (prediction)
    c : ndarray (N,) or None
        Row weights; None when all are one.
    n_classes : int
    shift, scale : ndarray (D,) or None
        Blocks hold (X - shift) * scale. With a shift, blocks of a sparse X are dense: zeros become -shift * scale.
    n_threads : int
    """

    def __init__(
        self,
        X: Any,
        Y: np.ndarray | None,
        c: np.ndarray | None,
        n_classes: int,
        *,
        shift: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        n_threads: int = 1,
    ) -> None:
        self.X, self.Y, self.c = X, Y, c
        self.n_rows, self.n_features = X.shape
        self.sparse = sp.issparse(X) and shift is None
        self.n_classes, self.shift, self.scale, self.n_threads = n_classes, shift, scale, n_threads
        self.n_passes = 0
        self.slices = _slices(X, n_classes, self.sparse)

    def features(self, rows: Any) -> Any:
        """The rows as float64, shifted and scaled."""
        if sp.issparse(self.X):
            X = _rows_of(self.X, rows) if isinstance(rows, slice) else self.X[rows]
            X = X.astype(np.float64, copy=False)
            if self.shift is None:
                return X if self.scale is None else X @ sp.diags_array(self.scale)
            X = X.toarray()
        else:
            X = self.X[rows]
        if self.shift is not None:
            X = np.subtract(X, self.shift, dtype=np.float64)
        elif X.dtype != np.float64:
            X = X.astype(np.float64)
        return X if self.scale is None else X * self.scale

    @property
    def n_weighted(self) -> int:
        """Rows of positive weight."""
        return self.n_rows if self.c is None else int(np.count_nonzero(self.c > 0))

    def _block(self, rows: Any) -> tuple[Any, Any, Any]:
        Y = None if self.Y is None else self.Y[rows]
        return self.features(rows), Y, None if self.c is None else self.c[rows]

    def map_sum(
        self,
        kernel: Callable[..., Any],
        *params: Any,
        row_values: list[np.ndarray] | None = None,
        coarse: bool = False,
    ) -> Any:
        """Sum of the kernel over the blocks, added in the order of the blocks; `coarse`: for heavy kernels."""
        self.n_passes += 1
        slices = self.slices
        if coarse:
            slices, row_values = _coarse(slices, row_values)
        total = InOrder()

        def task(i: int) -> None:
            X, Y, c = self._block(slices[i])
            values = () if row_values is None else (row_values[i],)
            total.put(i, kernel(_weighing(X, c), Y, c, *params, *values))

        run_tasks(task, len(slices), self.n_threads)
        return total.value

    def map_rows(self, kernel: Callable[..., np.ndarray], *params: Any, heavy: bool = False) -> np.ndarray:
        """The results of ``kernel(X_b, *params)``, (K, n_b) each, side by side for all rows: (K, N)."""
        self.n_passes += 1
        out = np.empty((self.n_classes, self.n_rows))
        slices = self.slices
        if heavy and len(slices) < 4 and self.n_rows >= _HEAVY_ROWS:
            slices = _even(self.n_rows, 4)

        def task(i: int) -> None:
            out[:, slices[i]] = kernel(self.features(slices[i]), *params)

        run_tasks(task, len(slices), self.n_threads)
        return out

    def row_values(self, size: int) -> list[np.ndarray] | None:
        """One (size, n_b) array per block, or None if all of them would take more than 256 MB."""
        if self.n_rows * size * 8 > _ROW_VALUE_BYTES:
            return None
        return [np.empty((size, s.stop - s.start)) for s in self.slices]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
        """All rows once, in random order, `size` at a time."""
        self.n_passes += 1
        order = rng.permutation(self.n_rows)
        for start in range(0, self.n_rows, size):
            yield self._block(order[start : start + size])

    def sample(self, n_rows: int, rng: np.random.Generator, *, as_in_memory: bool = False) -> MemoryBlocks:
        """`n_rows` random rows; their weights are scaled so that sums estimate those over all rows."""
        if n_rows >= self.n_rows:
            return self
        rows = np.sort(rng.choice(self.n_rows, n_rows, replace=False, shuffle=False))
        X, Y, c = self._block(rows)
        c = np.full(n_rows, self.n_rows / n_rows) if c is None else rescaled(c, self.c.sum())  # type: ignore[union-attr]
        return MemoryBlocks(X, Y, c, self.n_classes, n_threads=self.n_threads)

    def take(self, rows: np.ndarray, *, weighted: bool = False) -> tuple[Any, Any, Any]:
        """The rows of these numbers, as (X, Y, c); with `weighted` only rows of positive weight are numbered."""
        return self._block(np.flatnonzero(self.c > 0)[rows] if weighted and self.c is not None else rows)

    def prepared(self) -> MemoryBlocks:
        """The rows shifted and scaled in a copy, unless that would be large."""
        large = self.n_rows * self.n_features * 8 > _COPY_BYTES
        if self.sparse or large or (self.shift is None and self.scale is None):
            return self
        Z = np.empty((self.n_rows, self.n_features))

        def task(i: int) -> None:
            Z[self.slices[i]] = self.features(self.slices[i])

        run_tasks(task, len(self.slices), self.n_threads)
        return MemoryBlocks(Z, self.Y, self.c, self.n_classes, n_threads=self.n_threads)


class InOrder:
    """A running sum of results that arrive in any order but are added in theirs: few are held at a time."""

    def __init__(self) -> None:
        self.value: Any = None
        self._next = 0
        self._waiting: dict[int, Any] = {}
        self._lock = threading.Lock()

    def put(self, i: int, value: Any) -> None:
        """Add the i-th result, or hold it until its turn comes."""
        with self._lock:
            self._waiting[i] = value
            while self._next in self._waiting:
                value = self._waiting.pop(self._next)
                self.value = value if self._next == 0 else self.value + value
                self._next += 1


def _coarse(slices: list[slice], values: list[np.ndarray] | None) -> tuple[list[slice], list[np.ndarray] | None]:
    """Slices for kernels that do much with each row and have large results, with their row values.

    Neighbours are joined until each has about 8192 rows, or four are left; one alone is cut into four.
    """
    if len(slices) == 1 and (N := slices[0].stop) >= _SPLIT_ROWS:
        cut = _even(N, 4)
        return cut, values if values is None else [values[0][:, s] for s in cut]
    size = max(1, min(_COARSE_ROWS // max(1, slices[0].stop - slices[0].start), len(slices) // 4))
    groups = [slice(i, i + size) for i in range(0, len(slices), size)]
    joined = [slice(slices[g][0].start, slices[g][-1].stop) for g in groups]
    return joined, values if values is None or size == 1 else [np.concatenate(values[g], axis=1) for g in groups]


def _weighing(X: Any, c: np.ndarray | None) -> Any:
    """Rows with zeros in place of those that weigh nothing: these may hold values whose squares are not numbers."""
    if c is None or c.all():
        return X
    return sp.diags_array((c > 0).astype(float)) @ X if sp.issparse(X) else np.where((c > 0)[:, None], X, 0.0)


def _rows_of(X: sp.csr_array, rows: slice) -> sp.csr_array:
    """Rows of a sparse matrix as a view: no entry is copied."""
    entries = slice(X.indptr[rows.start], X.indptr[rows.stop])
    indptr = X.indptr[rows.start : rows.stop + 1] - entries.start
    return sp.csr_array((X.data[entries], X.indices[entries], indptr), shape=(rows.stop - rows.start, X.shape[1]))


def rescaled(c: np.ndarray, total: float) -> np.ndarray:
    """Weights in proportion to c, even ones if all are zero, with a given sum."""
    return c * (total / c.sum()) if c.any() else c + total / c.size


def _slices(X: Any, n_classes: int, sparse: bool) -> list[slice]:
    """Equal slices of the rows, by size alone: the same whatever the number of threads."""
    N, D = X.shape
    if sparse:
        # each block's sum is a dense (K, D) array: few blocks, each with work to match
        flops = 4.0 * n_classes * X.nnz
        count = max(min(flops / _BLOCK_FLOPS, 4), N * n_classes * 8 / (16 * _BLOCK_BYTES))
    else:
        flops = 4.0 * N * D * n_classes
        count = max(min(flops / _BLOCK_FLOPS, N / 512, 4), N * (D + n_classes) * 8 / _BLOCK_BYTES)
    count = 1 if count < 2 else 4 * int(np.ceil(count / 4)) if count > 2 else 2  # even shares for 2 or 4 threads
    return _even(N, min(count, max(N, 1)))


def _even(N: int, count: int) -> list[slice]:
    """N rows in `count` slices of about the same size."""
    edges = np.linspace(0, N, count + 1).astype(int)
    return [slice(int(i), int(j)) for i, j in pairwise(edges)]
