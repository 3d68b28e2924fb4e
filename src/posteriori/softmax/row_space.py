r"""Fewer rows than features: a fit in the space that the rows span.

With rows X = Z V^T, V (D, r) orthonormal and r at most N, and a prior N(0, 1/alpha) for each weight,

.. math:: w = V a + w_\perp, \qquad X w = Z a, \qquad a \sim N(0, I/\alpha),\quad
          w_\perp \sim N(0, (I - V V^\top)/\alpha).

The likelihood depends on a alone: mode, evidence and posterior of K r unknowns are those of K D, exactly. What is
orthogonal to all rows stays as the prior has it, and is part of what is not known about a new row x:

.. math:: \operatorname{var} f(x) = \operatorname{var}(a^\top V^\top x)
          + \big(\lVert x\rVert^2 - \lVert V^\top x\rVert^2\big) / \alpha .
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posteriori.maths.integrals import AtNodes, Nodes, even_nodes, logits_at_nodes, normal_nodes
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.products import as_dense, inner_products, squared
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.pairs import contrast_covariance, reference_covariance
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.precision import DiagonalPrecision, Precision

__all__ = ["RowSpacePosterior", "SpaceOfRows", "row_space"]

_MOST_VALUES = 20_000_000
"""Most entries of V: it is kept with the model."""
_RANK = 1e-13
"""Share of the largest of the rows' squared singular values below which one is rounding."""


@dataclass(frozen=True)
class SpaceOfRows:
    """The space that the rows of a fit span.

    Attributes
    ----------
    basis : ndarray (D, r)
        V.
    whole : LinearLikelihood
        In all D features.
    likelihood : LinearLikelihood
        In the r coordinates of the basis.
    """

    basis: np.ndarray
    whole: LinearLikelihood
    likelihood: LinearLikelihood

    def parameters(self, inner: np.ndarray) -> np.ndarray:
        """Parameters (K, D') from those of the row space, (K, r'): what is orthogonal to it is zero."""
        return _outward(inner, self.basis)

    def precision(self, inner: Precision) -> DiagonalPrecision:
        """The prior's precision of all parameters."""
        assert isinstance(inner, DiagonalPrecision)
        values = np.repeat(inner.values[:, :1], self.whole.shape[1], axis=1)
        if not self.whole.has_intercept:
            return DiagonalPrecision(values)
        values[:, -1] = inner.values[:, -1]
        return DiagonalPrecision(values, self.whole.coordinates.centre)

    def posterior(self, inner: Posterior, prior: Precision) -> RowSpacePosterior:
        """The posterior of all parameters, from that of the row space under this prior of it."""
        assert isinstance(prior, DiagonalPrecision)
        return RowSpacePosterior(inner, self.basis, float(prior.values[0, 0]))


def row_space(likelihood: LinearLikelihood) -> SpaceOfRows | None:
    """The row space of a likelihood; None where it is not smaller than that of the features, or V would be too large.

    See docs/theory.md, section 3.3.

    V comes from the inner products of the rows X, each times the root of its weight, X X^T = U diag(s^2) U^T, as
    X^T U / s. So a row of weight two has the V of two rows, and draws that are made with it are the same.
    """
    blocks = likelihood.blocks
    N, D = blocks.n_weighted, blocks.n_features
    if not isinstance(blocks, MemoryBlocks) or N >= D or N * D > _MOST_VALUES:
        return None
    X, Y, c = blocks.take(np.arange(N), weighted=True)
    root = np.ones(N) if c is None else np.sqrt(c)
    squares, U = np.linalg.eigh(inner_products(X) * root * root[:, None])
    kept = squares > max(_RANK * squares[-1], 0.0)
    if not kept.any():
        return None
    basis = np.asarray(X.T @ (root[:, None] * U[:, kept] / np.sqrt(squares[kept])))
    basis = np.linalg.qr(basis)[0]  # rounding has left small singular values not quite orthogonal
    largest = np.abs(basis).argmax(axis=0)
    basis *= np.sign(basis[largest, np.arange(basis.shape[1])])
    Z = np.ascontiguousarray(X @ basis)
    inner = MemoryBlocks(Z, Y, c, len(likelihood.observed.moments), n_threads=blocks.n_threads)
    centre = likelihood.coordinates.centre
    rotated = None if centre is None else np.append(centre[:-1] @ basis, 1.0)
    reduced = replace(
        likelihood,
        blocks=inner,
        observed=ObservedMoments.of(inner, likelihood.shape[0]),
        coordinates=Coordinates(centre=rotated),
        names=None,
    )
    return SpaceOfRows(basis, likelihood, reduced)


def _outward(inner: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Parameters (..., D') from parameters (..., r') of the row space."""
    r = basis.shape[1]
    return np.concatenate([inner[..., :r] @ basis.T, inner[..., r:]], axis=-1)


def _inward(outer: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The part of parameters or slopes (..., D') within the row space, (..., r')."""
    D = len(basis)
    return np.concatenate([outer[..., :D] @ basis, outer[..., D:]], axis=-1)


class RowSpacePosterior:
    """A posterior of all parameters (K, D'), known from the rows within their space and from the prior beyond it.

    Parameters
    ----------
    inner : Posterior
        Of parameters (K, r').
    basis : ndarray (D, r)
        V.
    alpha : float
        The prior's precision of a weight.
    """

    def __init__(self, inner: Posterior, basis: np.ndarray, alpha: float) -> None:
        self.inner, self.basis, self.alpha = inner, basis, alpha
        self.mean = _outward(inner.mean, basis)
        self.structure, self.gaussian = inner.structure, inner.gaussian

    @property
    def latent_size(self) -> int:
        return len(self.mean) - 1

    def nodes(self, size: int, even: bool = False) -> Nodes:
        return even_nodes(self.latent_size, size) if even else normal_nodes(self.latent_size, size)

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        return logits_at_nodes(F, reference_covariance(self.pair_variances(X), len(self.mean)), nodes)

    def pair_variances(self, X: Any) -> np.ndarray:
        Z, beyond = self._split(X)
        return self.inner.pair_variances(Z) + 2.0 * beyond

    def latent_covariance(self, X: Any) -> np.ndarray:
        Z, beyond = self._split(X)
        return self.inner.latent_covariance(Z) + beyond[:, None, None] * np.eye(len(self.mean))

    def contrast_covariance(self, X: Any) -> np.ndarray:
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        inward, D = _inward(slopes, self.basis), len(self.basis)
        r = self.basis.shape[1]
        beyond = (slopes[..., :D] ** 2).sum(axis=(1, 2)) - (inward[..., :r] ** 2).sum(axis=(1, 2))
        return self.inner.contrast_variances(inward) + np.maximum(beyond, 0.0) / self.alpha

    def _split(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows within the row space (n, r'), and the variance (n,) of each logit from what is beyond it."""
        D = len(self.basis)
        features = X[:, :D]
        Z = np.asarray(features @ self.basis)
        squares = np.asarray(squared(features).sum(axis=1)).ravel()
        beyond = np.maximum(squares - (Z**2).sum(axis=1), 0.0) / self.alpha
        if X.shape[1] > D:  # rows as wide as the parameters bring their own last entry
            Z = np.column_stack([Z, as_dense(X[:, D:])])
        return Z, beyond

    def variances(self) -> np.ndarray:
        """The variance of each parameter, (K, D')."""
        D, r = self.basis.shape
        K, width = self.mean.shape
        S = self.inner.covariance().reshape(K, r + width - D, K, r + width - D)
        own = S[np.arange(K), :, np.arange(K)]  # (K, r', r')
        out = np.empty((K, width))
        out[:, :D] = np.einsum("dr,krs,ds->kd", self.basis, own[:, :r, :r], self.basis, optimize=True)
        out[:, :D] += np.maximum(1.0 - (self.basis**2).sum(axis=1), 0.0) / self.alpha
        out[:, D:] = own[:, r:, r:].diagonal(axis1=1, axis2=2)
        return out

    def covariance(self) -> np.ndarray:
        return self._in_all_features(self.inner.covariance(), 1.0 / self.alpha)

    def precision(self) -> np.ndarray:
        return self._in_all_features(self.inner.precision(), self.alpha)

    def _in_all_features(self, M: np.ndarray, beyond: float) -> np.ndarray:
        """A matrix over parameters (K r', K r') over all of them, (K D', K D'): beyond V a multiple of the identity."""
        D, r = self.basis.shape
        K, width = self.mean.shape
        extra = width - D
        outward = np.zeros((width, r + extra))
        outward[:D, :r] = self.basis
        outward[D:, r:] = np.eye(extra)
        blocks = M.reshape(K, r + extra, K, r + extra)
        out = np.einsum("dr,krls,es->kdle", outward, blocks, outward, optimize=True)
        left = np.zeros((width, width))
        left[:D, :D] = beyond * (np.eye(D) - self.basis @ self.basis.T)
        k = np.arange(K)
        out[k, :, k, :] += left
        return out.reshape(K * width, K * width)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._with_rest(self.inner.draws(n_draws, rng), rng, shared=True)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._with_rest(self.inner.contrast_draws(n_draws, rng), rng, shared=False)

    def _with_rest(self, inner: np.ndarray, rng: np.random.Generator, shared: bool) -> np.ndarray:
        """Draws (n, K, D') from those of the row space: beyond it the prior's, with or without what classes share."""
        out = _outward(inner, self.basis)
        D = len(self.basis)
        rest = rng.standard_normal((*out.shape[:2], D)) / np.sqrt(self.alpha)
        if not shared:
            rest -= rest.mean(axis=1, keepdims=True)
        rest -= (rest @ self.basis) @ self.basis.T
        out[..., :D] += rest
        return out
