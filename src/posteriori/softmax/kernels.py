r"""Softmax regression on one block of rows: the sums from which value, gradient and Hessian are made.

Conventions. Logits and probabilities of a block are kept as (K, n): the reductions over classes then run along
contiguous memory. ``W`` is (K, D), ``b`` (K,) or None when there is no intercept; a parameter array ``theta``
is (K, D + 1) with the intercept last, or (K, D) without one.

With normalised targets (rows of Y sum to one) the cross-entropy is an exponential family,

.. math:: E = \sum_n c_n \Big[\log\sum_k e^{f_{nk}} - \sum_k Y_{nk} f_{nk}\Big]
            = \sum_n c_n \log\sum_k e^{f_{nk}} - \langle\theta, T\rangle, \qquad T = Y^\top \mathrm{diag}(c)\, [X, 1],

so labels enter only through the observed moments T, summed once; every later pass needs X alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from posteriori.maths.softmax import softmax_in_place
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import (
    class_sums,
    contract,
    gram,
    laplacian_gram,
    logits,
    scatter_about,
    square_sums,
    squared,
)

__all__ = [
    "PairMargins",
    "Separation",
    "class_mixing",
    "class_scatter",
    "class_spread",
    "expected_moments",
    "hessian",
    "hessian_cross",
    "hessian_diagonal",
    "hessian_product",
    "kronecker_factors",
    "log_partitions",
    "observed_moments",
    "one_hot",
    "pair_margins",
    "probabilities",
    "residual_moments",
    "scatter",
    "separation",
]

_DENSE_CLASSES = 64
"""Up to this many classes a dense one-hot matrix product beats a sparse one."""


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:scatter")
def scatter(X: Any, Y: Any, c: np.ndarray | None, mean: np.ndarray) -> np.ndarray:
    """sum_n c_n (x_n - mean)(x_n - mean)^T, shape (D, D)."""
    return scatter_about(X, np.ones(X.shape[0]) if c is None else c, mean)


def one_hot(Y: np.ndarray, c: np.ndarray | None, n_classes: int) -> np.ndarray | sp.csr_array:
    """Y^T diag(c), shape (K, n), of labels (n,) or probabilities (n, K)."""
    if Y.ndim == 2:
        return Y.T if c is None else Y.T * c
    n = Y.shape[0]
    weights = np.ones(n) if c is None else c
    if n_classes > _DENSE_CLASSES:
        return sp.csr_array((weights, (Y, np.arange(n))), shape=(n_classes, n))
    R = np.zeros((n_classes, n))
    R[Y, np.arange(n)] = weights
    return R


@kernel(jax_version="posteriori.softmax.jax_kernels:observed_moments")
def observed_moments(X: Any, Y: np.ndarray, c: np.ndarray | None, n_classes: int) -> Sums:
    """T = Y^T diag(c) [X, 1] (K, D + 1) and sum_n c_n x_n^2 (D,)."""
    R = one_hot(Y, c, n_classes)
    D = X.shape[1]
    T = np.empty((n_classes, D + 1))
    T[:, :D] = class_sums(R, X)
    T[:, D] = R.sum(axis=1)
    return Sums((T, square_sums(X, c)))


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:expected_moments")
def expected_moments(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> Sums:
    """sum_n c_n log sum_k exp f_nk and P^T diag(c) [X, 1]: value and gradient less the observed moments.

    See docs/theory.md, section 2.1.

    The probabilities P (K, n) are left in the last argument, for the curvature at the same parameters.
    """
    P = logits(X, theta, out=P)
    log_partition = softmax_in_place(P)
    if c is None:
        return Sums((log_partition.sum(), contract(P, X, theta.shape[1] > X.shape[1])))
    return Sums((c @ log_partition, contract(P * c, X, theta.shape[1] > X.shape[1])))


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:log_partitions")
def log_partitions(X: Any, Y: Any, c: np.ndarray | None, thetas: np.ndarray, n_classes: int) -> np.ndarray:
    """sum_n c_n log sum_k exp f_nk for each of S parameter arrays, stacked as (S K, D'): shape (S,)."""
    out = np.empty(len(thetas) // n_classes)
    for s in range(out.size):
        log_partition = softmax_in_place(logits(X, thetas[s * n_classes : (s + 1) * n_classes]))
        out[s] = log_partition.sum() if c is None else c @ log_partition
    return out


@kernel(jax_version="posteriori.softmax.jax_kernels:residual_moments")
def residual_moments(
    X: Any, Y: np.ndarray, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None
) -> Sums:
    """sum_n c_n (-log P_n,y_n) and (P - Y)^T diag(c) [X, 1], to full relative accuracy however small they are.

    `expected_moments` less the observed ones is the same, for less, but cancels when nearly all rows are certain. For
    a label y, P_y - 1 is minus the sum of the others here, and log P_y = log1p(P_y - 1) where P_y is near one.
    """
    F = logits(X, theta, out=P)
    n = np.arange(X.shape[0])
    own = F[Y, n] if Y.ndim == 1 else np.einsum("nk,kn->n", Y, F)
    loss = softmax_in_place(F) - own
    R = F.copy()
    if Y.ndim == 1:
        R[Y, n] = 0.0
        missing = R.sum(axis=0)
        R[Y, n] = -missing
        likely = missing < 0.5
        loss[likely] = -np.log1p(-missing[likely])
    else:
        R -= Y.T
    if c is not None:
        R *= c
    return Sums((loss.sum() if c is None else c @ loss, contract(R, X, theta.shape[1] > X.shape[1])))


@kernel(jax_version="posteriori.softmax.jax_kernels:row_probabilities")
def probabilities(X: Any, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """The probabilities P (K, n): those kept from the last pass, or computed again."""
    if P is None:
        P = logits(X, theta)
        softmax_in_place(P)
    return P


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:hessian_product")
def hessian_product(
    X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, V: np.ndarray, P: np.ndarray | None = None
) -> np.ndarray:
    """H V = (P * (U - rowsum(P * U)))^T diag(c) [X, 1] with U = [X, 1] V^T: the curvature along V, (K, D + 1).

    See docs/theory.md, section 2.2.
    """
    P = probabilities(X, theta, P)
    U = logits(X, V)
    U -= np.einsum("kn,kn->n", P, U)
    U *= P
    if c is not None:
        U *= c
    return contract(U, X, theta.shape[1] > X.shape[1])


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:hessian")
def hessian(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """H_kl = sum_n c_n P_nk (1[k=l] - P_nl) x_n x_n^T as a (K D', K D') matrix, x_n with its intercept.

    See docs/theory.md, section 2.2.
    """
    P = probabilities(X, theta, P)
    return laplacian_gram(X, P, c, theta.shape[1] > X.shape[1])


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:class_mixing")
def class_mixing(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """A = sum_n c_n (diag P_n - P_n P_n^T), shape (K, K): the Hessian of the intercepts."""
    P = probabilities(X, theta, P)
    R = P if c is None else P * c
    A = -np.dot(R, P.T)
    A[np.diag_indices_from(A)] += R.sum(axis=1)
    return A


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:kronecker_factors")
def kronecker_factors(
    X: Any,
    Y: Any,
    c: np.ndarray | None,
    theta: np.ndarray,
    columns: np.ndarray | None = None,
    P: np.ndarray | None = None,
) -> Sums:
    """A = sum_n c_n (diag P_n - P_n P_n^T) (K, K) and G = sum_n c_n tr(diag P_n - P_n P_n^T) x_n x_n^T.

    See docs/theory.md, section 2.3.

    Their Kronecker product over tr A has the Hessian's trace structure: exact if curvature and features were
    independent. Rows about which the model is sure count for nothing in either. With `columns`, G is of these alone.
    """
    P = probabilities(X, theta, P)
    A = class_mixing(X, Y, c, theta, P)
    R = P if c is None else P * c
    spread = np.maximum(R.sum(axis=0) - np.einsum("kn,kn->n", R, P), 0.0)
    has_intercept = theta.shape[1] > X.shape[1]
    if columns is not None:
        X = X[:, columns]
    return Sums((A, gram(X, spread, has_intercept)))


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:class_scatter")
def class_scatter(
    X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, floor: np.ndarray, P: np.ndarray | None = None
) -> np.ndarray:
    """H_kk = sum_n c_n P_nk (1 - P_nk) x_n x_n^T, shape (K, D', D'), over rows that weigh more than floor_k.

    With floor_k a tenth of the mean weight, at most a tenth of all weight is lost, and near an optimum only the rows
    about which the model is in doubt are touched.
    """
    P = probabilities(X, theta, P)
    K, D = theta.shape
    out = np.empty((K, D, D))
    for k in range(K):
        weight = P[k] * (1.0 - P[k])
        if c is not None:
            weight *= c
        used = np.flatnonzero(weight > floor[k])
        out[k] = gram(X[used], weight[used], D > X.shape[1])
    return out


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:class_spread")
def class_spread(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """sum_n c_n P_nk (1 - P_nk), shape (K,): how much curvature each class has."""
    P = probabilities(X, theta, P)
    R = P - P * P
    return R.sum(axis=1) if c is None else R @ c


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:hessian_diagonal")
def hessian_diagonal(
    X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None
) -> np.ndarray:
    """sum_n c_n P_nk (1 - P_nk) x_nd^2, shape (K, D')."""
    P = probabilities(X, theta, P)
    R = P - P * P
    if c is not None:
        R *= c
    return contract(R, squared(X), theta.shape[1] > X.shape[1])


@kernel(reads_labels=False, jax_version="posteriori.softmax.jax_kernels:hessian_cross")
def hessian_cross(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, P: np.ndarray | None = None) -> np.ndarray:
    """sum_n c_n P_nk (1 - P_nk) x_nd, shape (K, D): the Hessian between a class's intercept and its weights."""
    P = probabilities(X, theta, P)
    R = P - P * P
    if c is not None:
        R *= c
    return contract(R, X, False)


@dataclass(frozen=True)
class Separation:
    """The order in which a direction of the weights puts the classes; ``+`` merges two sets of rows.

    deficit is the most by which some row's own class falls short of its highest logit, spread the widest range of
    a row's logits. A direction with deficit 0 and positive spread raises the likelihood without end.
    """

    deficit: float
    spread: float

    def __add__(self, other: Separation) -> Separation:
        return Separation(max(self.deficit, other.deficit), max(self.spread, other.spread))


@kernel(jax_version="posteriori.softmax.jax_kernels:separation")
def separation(X: Any, Y: np.ndarray, c: np.ndarray | None, V: np.ndarray) -> Separation:
    """Whether the direction V puts every row's own class (or classes, for soft labels) on top.

    See docs/theory.md, section 2.4.
    """
    F = logits(X, V)
    top, bottom = F.max(axis=0), F.min(axis=0)
    own = F[Y, np.arange(Y.shape[0])] if Y.ndim == 1 else np.where(Y.T > 0, F, np.inf).min(axis=0)
    deficit, spread = top - own, top - bottom
    if c is not None:
        deficit, spread = deficit[c > 0], spread[c > 0]
    return Separation(float(deficit.max(initial=0.0)), float(spread.max(initial=0.0)))


@dataclass(frozen=True)
class PairMargins:
    """Least and greatest f_i - f_j over the rows of class i, (K, K) each; ``+`` merges two sets of rows."""

    least: np.ndarray
    greatest: np.ndarray

    def __add__(self, other: PairMargins) -> PairMargins:
        return PairMargins(np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest))


@kernel(jax_version="posteriori.softmax.jax_kernels:pair_margins")
def pair_margins(X: Any, Y: np.ndarray, c: np.ndarray | None, V: np.ndarray) -> PairMargins:
    """Margins along the direction V: by how much the rows of each class prefer it to each other class."""
    F = logits(X, V)
    K = F.shape[0]
    least, greatest = np.full((K, K), np.inf), np.full((K, K), -np.inf)
    belongs = one_hot(Y, c, K) > 0
    for i in range(K):
        rows = belongs[[i], :].nonzero()[1]
        if rows.size:
            margins = F[i, rows] - F[:, rows]
            least[i], greatest[i] = margins.min(axis=1), margins.max(axis=1)
    return PairMargins(least, greatest)
