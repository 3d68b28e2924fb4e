"""Posteriors that keep fewer covariances, and stay small.

`KroneckerPosterior` and `DiagonalPosterior` have logits that are independent in one basis U common to all rows,
f = m + U diag(sqrt v_n) z.
"""

from __future__ import annotations

from abc import ABC
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from posteriori.maths.integrals import AtNodes, Nodes, even_nodes, logits_in_basis, normal_nodes
from posteriori.maths.linalg import eigh_of_gram
from posteriori.maths.quadratic import upper
from posteriori.rows.products import as_dense, logits, squared, squared_distances
from posteriori.softmax.pairs import contrast_covariance, contrasts
from posteriori.softmax.posterior import root_of

__all__ = ["BasisPosterior", "DiagonalPosterior", "KroneckerPosterior"]

_WEAKEST = 1e10
"""Information relative to the prior above which directions relative to the prior alone lose their digits."""


class BasisPosterior(ABC):
    """Logits independent in one basis U (K, J) for all rows."""

    mean: np.ndarray
    latent_basis: np.ndarray
    gaussian = True

    def latent_variances(self, X: Any) -> np.ndarray:
        """Variances of the logits in the basis, (J, n)."""
        raise NotImplementedError

    def latent_covariance(self, X: Any) -> np.ndarray:
        v = self.latent_variances(X)
        return np.einsum("ki,in,li->nkl", self.latent_basis, v, self.latent_basis, optimize=True)

    def contrast_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows less their mean over classes, (n, K, K)."""
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def covariance(self) -> np.ndarray:
        """H^{-1}, (K D', K D')."""
        raise NotImplementedError

    def precision(self) -> np.ndarray:
        return np.linalg.inv(self.covariance())

    def pair_variances(self, X: Any) -> np.ndarray:
        k, m = upper(len(self.mean), 1)
        return (self.latent_basis[k] - self.latent_basis[m]) ** 2 @ self.latent_variances(X)

    @property
    def latent_size(self) -> int:
        return self.latent_basis.shape[1]

    def nodes(self, size: int, even: bool = False) -> Nodes:
        return even_nodes(self.latent_size, size) if even else normal_nodes(self.latent_size, size)

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        return logits_in_basis(F, self.latent_basis, self.latent_variances(X), nodes)


class KroneckerPosterior(BasisPosterior):
    """H = A kron G / tr A + prior, in the eigenbasis of A and in directions W in which G and the prior are diagonal.

    See docs/theory.md, section 3.2.

    With A = U diag(l) U^T, W^T G W = diag(g) and W^T R W = diag(r), the covariance of class direction i is
    W diag(1 / (l_i g + r)) W^T. The directions are those of R^{-1/2} G R^{-1/2}, with r = 1; where the prior is so weak
    that this has no digits left, they are those of R relative to G + R.

    Parameters
    ----------
    mean : ndarray (K, D')
    A : ndarray (K, K)
        Scaled so that A kron G is the likelihood's part.
    G : ndarray (D', D')
    common : ndarray (D', D')
        The prior's precision R of one class.
    root : ndarray (D', D') or None
        Lower triangular with root^T root = common, where it has digits that the matrix has lost.
    """

    structure = "kronecker"

    def __init__(
        self, mean: np.ndarray, A: np.ndarray, G: np.ndarray, common: np.ndarray, root: np.ndarray | None = None
    ) -> None:
        self.mean = mean
        self.levels, self.latent_basis = _class_directions(A)
        root = root_of(common) if root is None else root
        log_det_prior = 2.0 * float(np.log(root.diagonal()).sum())
        half = solve_triangular(root, G, lower=True, trans=1)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = solve_triangular(root, half.T, lower=True, trans=1)
        if np.isfinite(relative).all() and relative.diagonal().max() < _WEAKEST:
            self.spread, E = eigh_of_gram(relative)
            self.spread = np.maximum(self.spread, 0.0)
            self.directions = solve_triangular(root, E, lower=True)  # R^{-1/2} E, (D', D')
            self.shrunk = 1.0 / (1.0 + np.multiply.outer(self.levels, self.spread))  # (K, D')
            self._log_det_common = log_det_prior
        else:
            self.directions, left, log_det = _common_directions(G, root)
            self.spread = 1.0 - left
            self.shrunk = 1.0 / (np.multiply.outer(self.levels, self.spread) + left)
            known = np.where(self.levels > 0, -np.log(self.shrunk).sum(axis=1) + log_det, log_det_prior).sum()
            self._log_det_common = (known + float(np.log(self.shrunk).sum())) / len(A)

    @property
    def log_det(self) -> float:
        return len(self.levels) * self._log_det_common - float(np.log(self.shrunk).sum())

    def latent_variances(self, X: Any) -> np.ndarray:
        return self.shrunk @ logits(X, self.directions.T) ** 2

    def variances(self) -> np.ndarray:
        return self.latent_basis**2 @ self.shrunk @ (self.directions**2).T

    def covariance(self) -> np.ndarray:
        K, D = self.mean.shape
        inner = np.einsum("de,ie,fe->idf", self.directions, self.shrunk, self.directions, optimize=True)
        return np.einsum("ki,idf,li->kdlf", self.latent_basis, inner, self.latent_basis, optimize=True).reshape(
            K * D, K * D
        )

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._drawn(n_draws, rng, self.latent_basis)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._drawn(n_draws, rng, self._differences)

    def _drawn(self, n_draws: int, rng: np.random.Generator, basis: np.ndarray) -> np.ndarray:
        z = rng.standard_normal((n_draws, *self.mean.shape)) * np.sqrt(self.shrunk)
        inward = (basis @ z).reshape(-1, self.mean.shape[1])  # all draws in one product: directions are read once
        return self.mean + (inward @ self.directions.T).reshape(z.shape)

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        return logits_in_basis(F, self._differences, self.latent_variances(X), nodes)

    @property
    def _differences(self) -> np.ndarray:
        """The basis less its first class: zero, and not nearly so, where all classes move together."""
        return self.latent_basis - self.latent_basis[0]

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        inward = np.einsum("mkd,ki,de->mie", slopes, self._differences, self.directions, optimize=True)
        return np.einsum("mie,ie->m", inward**2, self.shrunk)


def _common_directions(G: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """W, r and log |G + R| with W^T R W = diag(r), W^T G W = I - diag(r), R = root^T root; units do not matter."""
    unit = 1.0 / np.sqrt(G.diagonal() + (root**2).sum(axis=0))
    scaled = root * unit
    sizes, U = np.linalg.eigh(G * unit * unit[:, None] + scaled.T @ scaled)
    sizes = np.maximum(sizes, np.finfo(float).eps * sizes[-1])
    whitening = U / np.sqrt(sizes)
    half = scaled @ whitening
    W = whitening @ np.linalg.eigh(half.T @ half)[1]
    left = np.clip(((scaled @ W) ** 2).sum(axis=0), np.finfo(float).tiny, 1.0)
    return unit[:, None] * W, left, float(np.log(sizes).sum() - 2.0 * np.log(unit).sum())


def _class_directions(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (K,) and eigenvectors (K, K) of A, positive semi-definite.

    The curvature of a likelihood vanishes where all classes move together: that direction is then exactly one of them,
    so that the prior's variance along it, however large, is not part of any difference between classes.
    """
    K = len(A)
    if np.abs(A.sum(axis=1)).max() > 1e-12 * np.abs(A).max():
        levels, vectors = np.linalg.eigh(A)
        return np.maximum(levels, 0.0), vectors
    Q = contrasts(K)
    levels, vectors = np.linalg.eigh(Q.T @ A @ Q)
    together = np.full((K, 1), 1.0 / np.sqrt(K))
    return np.append(0.0, np.maximum(levels, 0.0)), np.column_stack([together, Q @ vectors])


class DiagonalPosterior(BasisPosterior):
    """Independent parameters, with precisions (K, D').

    With a centre [c, 1] it is the logit at c that is independent of the weights, and not the intercept.
    """

    structure = "diagonal"

    def __init__(self, mean: np.ndarray, precisions: np.ndarray, centre: np.ndarray | None = None) -> None:
        self.mean, self.precisions, self.centre = mean, precisions, centre
        self.latent_basis = np.eye(len(mean))

    @property
    def log_det(self) -> float:
        return float(np.log(self.precisions).sum())

    def latent_variances(self, X: Any) -> np.ndarray:
        s = 1.0 / self.precisions
        if self.centre is None:
            return logits(squared(X), s)
        # of (x - c)^2 s + s_b; rows as wide as the parameters bring their own last entry
        c, s_b = self.centre[:-1], s[:, -1]
        s, last_entry = s[:, :-1], np.ones(X.shape[0])
        if X.shape[1] == self.precisions.shape[1]:
            X, last_entry = X[:, :-1], as_dense(X[:, -1:]).ravel()
        return squared_distances(X, last_entry, c, s) + np.multiply.outer(s_b, last_entry**2)

    def variances(self) -> np.ndarray:
        out = 1.0 / self.precisions
        if self.centre is not None:
            out[:, -1] += out[:, :-1] @ self.centre[:-1] ** 2
        return out

    def covariance(self) -> np.ndarray:
        K, D = self.mean.shape
        back = self._uncentred(np.eye(D)).T
        blocks = [(back * s) @ back.T for s in 1.0 / self.precisions]
        out = np.zeros((K, D, K, D))
        out[np.arange(K), :, np.arange(K), :] = blocks
        return out.reshape(K * D, K * D)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n_draws, *self.mean.shape)) / np.sqrt(self.precisions)
        return self.mean + self._uncentred(z)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self.draws(n_draws, rng)

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        back = self._uncentred(np.eye(self.mean.shape[1])).T
        return np.einsum("mkd,kd->m", (slopes @ back) ** 2, 1.0 / self.precisions)

    def _uncentred(self, theta: np.ndarray) -> np.ndarray:
        """Weights and intercepts from weights and the logit at the centre, along the last axis."""
        if self.centre is None:
            return theta
        return np.concatenate([theta[..., :-1], theta[..., -1:] - theta[..., :-1] @ self.centre[:-1, None]], axis=-1)
