r"""Gaussian posteriors N(mean, H^{-1}) over parameters theta (K, D'), whole or in structures that stay small.

All answer the same questions: how logits of new rows vary, what a draw looks like, how large the determinant is.
`FullPosterior` knows every covariance; those that know fewer are in `structured`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.linalg import lapack, solve_triangular

from posteriori.exceptions import SingularError
from posteriori.maths.integrals import AtNodes, Nodes, even_nodes, logits_at_nodes, normal_nodes
from posteriori.maths.linalg import cholesky, reversed_cholesky
from posteriori.softmax.covariance import CovarianceInBasis
from posteriori.softmax.pairs import reference_covariance

__all__ = ["FullPosterior", "Posterior", "root_of"]

_NO_COVARIANCE = (
    "The posterior has no finite covariance, so far as numbers of 16 digits can tell: some combination of coefficients "
    "is determined neither by the rows nor, beside them, by the prior. Use a stronger prior (a larger precision, or "
    "prior='evidence'), or remove columns that repeat others."
)
_LEAST_ROOT = 1e-70
"""The least root of a precision whose inverse still has a square."""


class Posterior(Protocol):
    """A Gaussian over parameters (K, D')."""

    mean: np.ndarray
    structure: str
    gaussian: bool

    def covariance(self) -> np.ndarray:
        """H^{-1}, (K D', K D')."""

    def precision(self) -> np.ndarray:
        """H, (K D', K D'), positive definite; raises LinAlgError where the covariance has no inverse."""

    def variances(self) -> np.ndarray:
        """The variance of each parameter, (K, D')."""

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Parameters drawn at random, (n_draws, K, D')."""

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Such draws without what all classes share, which softmax ignores and a weak prior makes very large."""

    def latent_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows, (n, K, K)."""

    def contrast_covariance(self, X: Any) -> np.ndarray:
        """Joint covariance of the logits of rows less their mean over classes, (n, K, K): what data determine.

        It keeps its digits however weak the prior is.
        """

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        """Variances (m,) of linear functions of the parameters with these slopes, (m, K, D').

        The slopes of each sum to zero over the classes.
        """

    def pair_variances(self, X: Any) -> np.ndarray:
        """var(f_k - f_l) for k < l, (pairs, n)."""

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        """Logits of rows at nodes of `latent_size` dimensions: slices of rows, and (n_b, K, S) for each."""

    @property
    def latent_size(self) -> int:
        """Dimensions in which logits vary."""

    def nodes(self, size: int, even: bool = False) -> Nodes:
        """Nodes for `at_nodes`, about as many as asked for; of equal weight if `even`."""


class FullPosterior(CovarianceInBasis):
    """A posterior with every covariance: H is factored in coordinates theta = Q B of the classes.

    See docs/theory.md, section 4.1.

    Parameters
    ----------
    mean : ndarray (K, D')
    H : ndarray (J D', J D')
        In coordinates of `basis`: the inverse covariance of B.
    basis : ndarray (K, J)
        Contrasts, or the identity: with contrasts what is left of the parameters, the same vector u = T B + v added to
        every class, is as the prior left it.
    common : ndarray (D', D') or None
        With contrasts, 1/K of the precision of v: the precision of one class, for a prior that treats all classes
        equally. None where there is no prior, and classes sum to zero.
    cholesky : callable
        Factors H.
    tilt : ndarray (D', J D') or None
        T; None is zero.
    root : ndarray (D', D') or None
        Lower triangular with root^T root = common, where it has digits that the matrix has lost.
    """

    structure = "full"
    gaussian = True
    root: np.ndarray | None = None
    limit: CovarianceInBasis | None = None
    """Where the likelihood has no maximum: the estimates of what is finite all the same, for tables."""

    def __init__(
        self,
        mean: np.ndarray,
        H: np.ndarray,
        basis: np.ndarray,
        common: np.ndarray | None = None,
        cholesky: Callable[[np.ndarray], np.ndarray] = cholesky,
        tilt: np.ndarray | None = None,
        root: np.ndarray | None = None,
    ) -> None:
        self.mean, self.basis, self.common, self.tilt, self.root = mean, basis, common, tilt, root
        try:
            self.factor = cholesky(H)
        except np.linalg.LinAlgError:
            raise SingularError(_NO_COVARIANCE) from None
        if not self.factor.diagonal().min(initial=np.inf) > _LEAST_ROOT:
            raise SingularError(_NO_COVARIANCE)

    def about(self, mean: np.ndarray) -> FullPosterior:
        """A Gaussian with this covariance about another mean; it keeps what has been computed of the covariance."""
        other = object.__new__(FullPosterior)
        vars(other).update(vars(self), mean=mean)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """State without what can be computed again: a pickle does not grow with the predictions made before."""
        return {name: getattr(self, name) for name in ("mean", "basis", "common", "factor", "tilt", "root", "limit")}

    @property
    def log_det(self) -> float:
        value = 2.0 * float(np.log(self.factor.diagonal()).sum())
        return value if self.common is None else value + 2.0 * float(np.log(self._common_root.diagonal()).sum())

    def solve(self, R: np.ndarray) -> np.ndarray:
        """H^{-1} R for R (K, D')."""
        shared = R.mean(axis=0)
        if np.abs(shared).max() <= 1e-14 * np.abs(R).max():  # nearly always: no likelihood has a slope there
            shared = np.zeros_like(shared)
        inward = (self.basis.T @ R).ravel()
        if self.tilt is not None:
            inward += len(R) * (shared @ self.tilt)
        inner = lapack.dpotrs(self.factor, inward, lower=1)[0]
        out = self.basis @ inner.reshape(self.basis.shape[1], -1)
        if self.tilt is not None:
            out += self.tilt @ inner
        if self.common is not None and shared.any():
            half = solve_triangular(self._common_root, shared, lower=True, trans=1)
            out += solve_triangular(self._common_root, half, lower=True)
        return out

    @cached_property
    def inner(self) -> np.ndarray:  # type: ignore[override]
        """The covariance in the basis, (J D', J D')."""
        inverse, _ = lapack.dpotri(self.factor, lower=1)  # its lower half; the factor left zeros above
        mirrored = inverse + inverse.T
        mirrored[np.diag_indices_from(mirrored)] *= 0.5
        return mirrored

    @cached_property
    def common_covariance(self) -> np.ndarray | None:
        """K times the covariance of one vector added to every class, (D', D')."""
        return None if self.common is None else self._common_spread @ self._common_spread.T

    @cached_property
    def _common_root(self) -> np.ndarray:
        """F, lower triangular, with F^T F = common."""
        assert self.common is not None
        return root_of(self.common) if self.root is None else self.root

    @cached_property
    def _common_spread(self) -> np.ndarray:
        """F^{-1}, lower triangular: the Cholesky factor of common^{-1}."""
        return solve_triangular(self._common_root, np.eye(len(self._common_root)), lower=True)

    def precision(self) -> np.ndarray:
        """H; where the prior leaves what all classes share undetermined, that gets the precision of a mean contrast."""
        K, J = self.basis.shape
        D = self.mean.shape[1]
        H = (self.factor @ self.factor.T).reshape(J, D, J, D)
        out = np.einsum("ki,idje,lj->kdle", self.basis, H, self.basis, optimize=True)
        if J < K:
            common = np.einsum("idie->de", H) / J if self.common is None else self.common
            out += common[:, None, :] / K
            if self.tilt is not None:  # K common (u - T B)^2 with u the mean over classes
                along = np.einsum("dje,kj->dke", self.tilt.reshape(D, J, D), self.basis)
                cross = np.einsum("ed,ekf->dkf", common, along)
                out += K * np.einsum("dke,dlf->kelf", along, np.einsum("ed,elf->dlf", common, along))
                out -= cross + cross.transpose(1, 2, 0)[:, :, None, :]
        return out.reshape(K * D, K * D)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._at(self._drawn(n_draws, rng))

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        K, D = self.mean.shape
        B = self._drawn(n_draws, rng)
        out = self._at(B)
        if self.tilt is not None:
            out += (self.tilt @ B).T[:, None, :]
        if self.common_covariance is not None:
            out += (rng.standard_normal((n_draws, D)) @ self._common_spread.T)[:, None, :] / np.sqrt(K)
        return out

    def _drawn(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of B less its mean, (J D', n_draws)."""
        z = rng.standard_normal((len(self.factor), n_draws))
        return solve_triangular(self.factor, z, lower=True, trans=1)

    def _at(self, B: np.ndarray) -> np.ndarray:
        """Parameters (n_draws, K, D') with contrasts B about those of the mean."""
        J, D = self.basis.shape[1], self.mean.shape[1]
        return np.einsum("ki,ids->skd", self.basis, B.reshape(J, D, -1)) + self.mean

    def precision_times(self, V: np.ndarray) -> np.ndarray:
        """H V for V (K, D')."""
        inner = (self.basis.T @ V).ravel()
        inward = self.factor @ (self.factor.T @ inner)
        if self.common is None:
            return self.basis @ inward.reshape(self.basis.shape[1], -1)
        shared = V.mean(axis=0)
        if self.tilt is not None:
            shared = shared - self.tilt @ inner
            inward -= len(V) * ((shared @ self.common) @ self.tilt)
        return self.basis @ inward.reshape(self.basis.shape[1], -1) + shared @ self.common

    @property
    def latent_size(self) -> int:
        return len(self.mean) - 1

    def nodes(self, size: int, even: bool = False) -> Nodes:
        return even_nodes(self.latent_size, size) if even else normal_nodes(self.latent_size, size)

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        return logits_at_nodes(F, reference_covariance(self.pair_variances(X), len(self.mean)), nodes)


def root_of(precision: np.ndarray) -> np.ndarray:
    """F, lower triangular, with F^T F the prior's precision of one class, whatever the units."""
    size = np.sqrt(precision.diagonal())
    try:
        return reversed_cholesky(precision / size / size[:, None]) * size
    except np.linalg.LinAlgError:
        raise SingularError(
            "The prior's covariance has no inverse, so far as numbers of 16 digits can tell: the origin of some column "
            "is too far from its values for a prior so weak. Use a stronger prior, centre the columns, or use "
            "GaussianPrior(autoscale=True)."
        ) from None
