"""Covariances of parameters in coordinates of the classes, and what they say about logits and contrasts."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from posteriori.maths.quadratic import packed_forms
from posteriori.rows.products import quadratic_forms
from posteriori.softmax.pairs import contrast_covariance, pair_forms

__all__ = ["CovarianceInBasis"]


class CovarianceInBasis:
    """A covariance of parameters (K, D') about a mean, in coordinates theta = Q B of the classes.

    Parameters
    ----------
    mean : ndarray (K, D')
    inner : ndarray (J D', J D')
        The covariance of B.
    basis : ndarray (K, J)
        Q: the identity, or contrasts.
    """

    inner: np.ndarray

    def __init__(self, mean: np.ndarray, inner: np.ndarray, basis: np.ndarray) -> None:
        self.mean, self.inner, self.basis = mean, inner, basis

    @cached_property
    def forms(self) -> np.ndarray:
        """Covariance of w_k - w_l for k < l, (pairs, D', D')."""
        return pair_forms(self.inner, self.basis)

    @cached_property
    def packed_forms(self) -> np.ndarray:
        """The covariances `forms`, ready for the quadratic forms of many blocks."""
        return packed_forms(self.forms)

    @property
    def common_covariance(self) -> np.ndarray | None:
        """K times the covariance of one vector added to every class, (D', D'), where the basis leaves it out."""
        return None

    def pair_variances(self, X: Any) -> np.ndarray:
        """var(f_k - f_l) for k < l, (pairs, n)."""
        return np.maximum(quadratic_forms(X, self.packed_forms, self.mean.shape[1] > X.shape[1]), 0.0)

    def latent_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows, (n, K, K)."""
        K, D = self.mean.shape
        if self.basis.shape[1] == K:
            V = np.zeros((X.shape[0], K, K))
            blocks = self.inner.reshape(K, D, K, D)
            for i in range(K):
                V[:, i, i:] = quadratic_forms(X, blocks[i].transpose(1, 0, 2)[i:], D > X.shape[1]).T
                V[:, i:, i] = V[:, i, i:]
            return V
        V = self.contrast_covariance(X)
        if self.common_covariance is not None:
            V += quadratic_forms(X, self.common_covariance[None], D > X.shape[1])[0][:, None, None] / K
        return V

    def contrast_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows less their mean over classes, (n, K, K)."""
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        """Variances (m,) of linear functions with these slopes, (m, K, D'), which sum to zero over the classes."""
        inward = np.einsum("mkd,ki->mid", slopes, self.basis).reshape(len(slopes), -1)
        return np.einsum("mi,mi->m", inward @ self.inner, inward)
