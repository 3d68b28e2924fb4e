r"""A posterior with independent classes, for problems with thousands of parameters.

.. math:: q(\theta) = \prod_k N(\theta_k;\, m_k, S_k), \qquad
          S_k^{-1} = \sum_n c_n\, \mathbb{E}_q[p_{nk}(1 - p_{nk})]\, x_n x_n^\top + R_k

are K matrices (D', D') in place of one of (K D', K D'). With the averages taken at the mode these are the diagonal
blocks of the Hessian; with those over q itself, q has the highest bound on the evidence of all such products.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from posteriori.maths.integrals import Nodes, logits_in_basis, normal_nodes, softmax_at_nodes
from posteriori.maths.linalg import cholesky
from posteriori.maths.quadratic import packed_forms, unpacked
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import contract, logits, packed_grams, quadratic_forms
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.structured import BasisPosterior
from posteriori.softmax.variational import Averages

__all__ = ["ClassFamily", "ClassPosterior"]


class ClassPosterior(BasisPosterior):
    """Independent classes.

    Parameters
    ----------
    mean : ndarray (K, D')
    factors : ndarray (K, D', D')
        Lower Cholesky factors of the classes' precisions.
    """

    structure = "classes"

    def __init__(self, mean: np.ndarray, factors: np.ndarray) -> None:
        self.mean, self.factors = mean, factors
        self.latent_basis = np.eye(len(mean))

    def about(self, mean: np.ndarray) -> ClassPosterior:
        """A Gaussian with this covariance about another mean; it keeps what has been computed of the covariance."""
        other = object.__new__(ClassPosterior)
        vars(other).update(vars(self), mean=mean)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """State without what can be computed again."""
        return {name: getattr(self, name) for name in ("mean", "factors", "latent_basis")}

    @cached_property
    def covariances(self) -> np.ndarray:
        """S_k, (K, D', D')."""
        out = np.empty_like(self.factors)
        for k, factor in enumerate(self.factors):
            inverse, _ = lapack.dpotri(factor, lower=1)  # its lower half; the factor left zeros above
            out[k] = inverse + inverse.T
            out[k][np.diag_indices_from(out[k])] *= 0.5
        return out

    @cached_property
    def forms(self) -> np.ndarray:
        """The covariances, ready for the quadratic forms of many blocks."""
        return packed_forms(self.covariances)

    @property
    def log_det(self) -> float:
        return 2.0 * float(np.log(self.factors.diagonal(axis1=1, axis2=2)).sum())

    def solve(self, R: np.ndarray) -> np.ndarray:
        """H^{-1} R for R (K, D')."""
        return np.stack([lapack.dpotrs(factor, r, lower=1)[0] for factor, r in zip(self.factors, R, strict=True)])

    def latent_variances(self, X: Any) -> np.ndarray:
        return np.maximum(quadratic_forms(X, self.forms, self.mean.shape[1] > X.shape[1]), 0.0)

    def variances(self) -> np.ndarray:
        return self.covariances.diagonal(axis1=1, axis2=2).copy()

    def covariance(self) -> np.ndarray:
        K, D = self.mean.shape
        out = np.zeros((K, D, K, D))
        out[np.arange(K), :, np.arange(K), :] = self.covariances
        return out.reshape(K * D, K * D)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        K, D = self.mean.shape
        z = rng.standard_normal((K, D, n_draws))
        moved = [
            solve_triangular(factor, each, lower=True, trans=1) for factor, each in zip(self.factors, z, strict=True)
        ]
        return self.mean + np.stack(moved).transpose(2, 0, 1)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self.draws(n_draws, rng)

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        return np.einsum("mkd,kde,mke->m", slopes, self.covariances, slopes, optimize=True)


@kernel(reads_labels=False)
def class_averages(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, forms: np.ndarray, nodes: Nodes) -> Sums:
    """sum_n c_n E[log sum_k exp f_nk], E[P]^T diag(c) [X, 1] and sum_n c_n E[p_k (1 - p_k)] x_n x_n^T for each class.

    The logits of a row are independent, with variances by quadratic forms of the classes' covariances.
    """
    with_intercept = theta.shape[1] > X.shape[1]
    F = logits(X, theta)
    variances = np.maximum(quadratic_forms(X, forms, with_intercept), 0.0)
    log_partition, mean, second = averaged_classes(F, variances, nodes)
    weights = mean - second
    if c is not None:
        log_partition, mean, weights = log_partition * c, mean * c, weights * c
    return Sums((log_partition.sum(), contract(mean, X, with_intercept), packed_grams(X, weights, with_intercept)))


def averaged_classes(F: np.ndarray, variances: np.ndarray, nodes: Nodes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E[log sum_k exp f_k] (n,), E[p_k] and E[p_k^2] (K, n) of independent logits with means and variances (K, n)."""
    log_partition, mean, second = np.empty(F.shape[1]), np.empty_like(F), np.empty_like(F)
    for rows, at in logits_in_basis(F, np.eye(len(F)), variances, nodes):
        log_partition[rows] = softmax_at_nodes(at) @ nodes.weights
        mean[:, rows] = (at @ nodes.weights).T
        np.square(at, out=at)
        second[:, rows] = (at @ nodes.weights).T
    return log_partition, mean, second


class ClassFamily:
    """Products of a Gaussian for each class (docs/theory.md, section 3.4).

    Parameters
    ----------
    objective : SoftmaxObjective
    n_nodes : int
        Nodes in the space of a row's logits.
    """

    def __init__(self, objective: SoftmaxObjective, n_nodes: int = 64) -> None:
        self.objective = objective
        self.total_weight = objective.observed.total_weight
        K = len(objective.moments)
        self.nodes = normal_nodes(K, n_nodes)
        self.R = np.stack([objective.prior.matrix(e[:, None]) for e in np.eye(K)])  # (K, D', D')
        self.log_det_R = float(np.linalg.slogdet(self.R)[1].sum())

    def at_mode(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal blocks of the likelihood's Hessian, (K, D', D')."""
        K, width = theta.shape
        nothing = packed_forms(np.zeros((K, width, width)))
        return self._averages(theta, nothing, Nodes(np.zeros((K, 1)), np.ones(1))).curvature

    def gaussian(self, mean: np.ndarray, curvature: np.ndarray) -> ClassPosterior:
        """Precisions curvature_k + R_k."""
        return ClassPosterior(mean, np.stack([cholesky(H) for H in curvature + self.R]))

    def moved(self, posterior: ClassPosterior, slope: np.ndarray, share: float) -> ClassPosterior:
        """About m - share S slope."""
        return posterior.about(posterior.mean - share * posterior.solve(slope))

    def averages(self, posterior: ClassPosterior, share: float = 1.0) -> Averages:
        """Averages over N(m, share S)."""
        forms = posterior.forms if share == 1.0 else share * posterior.forms
        return self._averages(posterior.mean, forms, self.nodes)

    def _averages(self, theta: np.ndarray, forms: np.ndarray, nodes: Nodes) -> Averages:
        problem = self.objective
        log_partition, gradient, grams = problem.blocks.map_sum(class_averages, theta, forms, nodes, coarse=True)
        value, pull = problem.averaged(theta, log_partition)
        return Averages(value, gradient - problem.moments + pull, unpacked(grams, theta.shape[1]))

    def divergence(self, posterior: ClassPosterior) -> float:
        """1/2 (tr(R S) - d - log|S R|)."""
        trace = float(np.einsum("kde,kde->", self.R, posterior.covariances))
        return 0.5 * (trace - posterior.mean.size + posterior.log_det - self.log_det_R)
