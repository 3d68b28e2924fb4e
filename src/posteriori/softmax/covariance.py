r"""Covariances of parameters in coordinates of the classes, and what they say about logits and contrasts.

Parameters are theta_k = sum_j Q_kj B_j + u with contrasts Q (K, K - 1) of the classes. Data determine B alone. What
all classes share, u (D'), is as the prior leaves it: u = T B + v with a tilt T (D', J D'), which is zero where the
prior treats all classes equally, and v independent of B.
"""

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
        Q: contrasts, or the identity.
    tilt : ndarray (D', J D') or None
        T: by how much what all classes share goes with the contrasts; None where it does not.
    free : ndarray (r, K, D') or None
        Directions about which nothing is known: functions that change along them have infinite variance. The
        covariance is that of all others.
    """

    inner: np.ndarray
    tilt: np.ndarray | None = None
    free: np.ndarray | None = None

    def __init__(
        self,
        mean: np.ndarray,
        inner: np.ndarray,
        basis: np.ndarray,
        tilt: np.ndarray | None = None,
        free: np.ndarray | None = None,
    ) -> None:
        self.mean, self.inner, self.basis, self.tilt, self.free = mean, inner, basis, tilt, free

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
        """K times the covariance of v, (D', D'); None where there is no such vector."""
        return None

    @cached_property
    def tilt_covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """cov(T B, sum_j Q_kj B_j) for each class, (K, D', D'), and cov(T B), (D', D')."""
        assert self.tilt is not None
        D = self.mean.shape[1]
        half = self.tilt @ self.inner
        return np.einsum("dje,kj->kde", half.reshape(D, -1, D), self.basis), half @ self.tilt.T

    def covariance(self) -> np.ndarray:
        """The covariance of all parameters, (K D', K D'): class by class."""
        K, J = self.basis.shape
        D = self.mean.shape[1]
        blocks = np.einsum("ki,idje,lj->kdle", self.basis, self.inner.reshape(J, D, J, D), self.basis, optimize=True)
        if self.common_covariance is not None:
            blocks += self.common_covariance[:, None, :] / K
        if self.tilt is not None:
            with_class, own = self.tilt_covariances
            blocks += with_class.transpose(1, 0, 2) + with_class.transpose(0, 2, 1)[:, :, None, :] + own[:, None, :]
        return blocks.reshape(K * D, K * D)

    def variances(self) -> np.ndarray:
        """The variance of each parameter, (K, D')."""
        K, J = self.basis.shape
        D = self.mean.shape[1]
        if self.tilt is not None:
            return self.covariance().diagonal().reshape(K, D).copy()
        diagonals = np.einsum("idjd->ijd", self.inner.reshape(J, D, J, D))
        out = np.einsum("ki,ijd,kj->kd", self.basis, diagonals, self.basis)
        return out if self.common_covariance is None else out + self.common_covariance.diagonal() / K

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
        if self.tilt is not None:
            with_class, own = self.tilt_covariances
            added = quadratic_forms(X, np.concatenate([with_class, own[None]]), D > X.shape[1]).T
            V += added[:, :K, None] + added[:, None, :K] + added[:, K:, None]
        return V

    def contrast_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows less their mean over classes, (n, K, K)."""
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        """Variances (m,) of linear functions with these slopes, (m, K, D'), which sum to zero over the classes."""
        inward = np.einsum("mkd,ki->mid", slopes, self.basis).reshape(len(slopes), -1)
        return np.einsum("mi,mi->m", inward @ self.inner, inward)
