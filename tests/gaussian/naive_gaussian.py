"""Gaussian classes written out: one class at a time, from sums of squares about the origin, densities by scipy.stats.

Right for small numbers near the origin, and slow.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from posteriori.gaussian.structures import STRUCTURES, Matrices, OneVariance, Variances

_SHAPES = {Matrices: "full", Variances: "diagonal", OneVariance: "spherical"}
TIED = tuple(name for name, structure in STRUCTURES.items() if structure.tied)


def is_tied(structure):
    return structure in TIED


def shape(structure):
    """A covariance is a matrix, variances or one variance: "full", "diagonal" or "spherical"."""
    return _SHAPES[type(STRUCTURES[structure])]


DIAGONAL = tuple(name for name in STRUCTURES if shape(name) == "diagonal")


class NaiveBelief(NamedTuple):
    """About one class; kappa and nu for each feature, which differ where values are missing."""

    kappa: np.ndarray
    mean: np.ndarray
    nu: np.ndarray
    Psi: np.ndarray


def squares(X, c, kappa_0=0.0):
    """kappa_n, m_n and sum_n c_n x_n x_n^T - kappa_n m_n m_n^T: with kappa_0 = 0 count, mean and scatter."""
    kappa = kappa_0 + c @ ~np.isnan(X)
    Z = np.nan_to_num(X)
    mean = c @ Z / np.where(kappa > 0, kappa, 1.0)
    root = np.sqrt(kappa) * mean
    return kappa, mean, (c[:, None] * Z).T @ Z - np.outer(root, root)


def in_shape(structure, M):
    """Of a matrix what the structure has room for."""
    return M.diagonal() if structure in DIAGONAL else M.trace() if shape(structure) == "spherical" else M


def n_free(structure, K, D):
    """Parameters of the covariances of K classes."""
    return {"full": D * (D + 1) // 2, "diagonal": D, "spherical": 1}[shape(structure)] * (
        1 if is_tied(structure) else K
    )


def mode(structure, scatter, n, Psi=0.0, nu=0.0, extra=0.0):
    """(Psi + scatter) / (nu + count + extra), of each class or of all; without more, that of maximum likelihood.

    Scatters are (K, D, D), counts (K,). The result is as an estimator states its covariances.
    """
    found = np.array([in_shape(structure, M) for M in scatter])
    counts = np.asarray(n, dtype=float) * (scatter.shape[1] if shape(structure) == "spherical" else 1)
    if is_tied(structure):
        return (Psi + found.sum(axis=0)) / (nu + counts.sum() + extra)
    return (Psi + found) / (nu + counts + extra).reshape(-1, *[1] * (found.ndim - 1))


def as_matrices(structure, covariances, K, D):
    """The covariances of an estimator as matrices (K, D, D)."""
    found = np.asarray(covariances)
    if shape(structure) == "spherical":
        found = found[..., None]
    if shape(structure) != "full":
        found = found[..., None, :] * np.eye(D)
    return np.broadcast_to(found, (K, D, D))


def naive_beliefs(X, y, c, n_classes, prior, structure):
    """Normal-inverse-Wishart with m_0 = 0: Psi_n = Psi_0 + sum c x x^T - kappa_n m_n m_n^T, nu_n = nu_0 + n."""
    classes = range(n_classes)
    found = [squares(X, c * (y == k), prior.kappa) for k in classes]
    W = sum(squares(X, c * (y == k))[2] for k in classes)
    Psi_0 = prior.scale + prior.pooled * in_shape(structure, W)
    added = np.array([in_shape(structure, M) for _, _, M in found])
    n = np.array([kappa - prior.kappa for kappa, _, _ in found])
    if structure in TIED:
        added, n = np.broadcast_to(added.sum(axis=0), added.shape), np.broadcast_to(n.sum(axis=0), n.shape)
    if shape(structure) == "spherical":
        n = n * X.shape[1]
    return [NaiveBelief(found[k][0], found[k][1], prior.nu + n[k], Psi_0 + added[k]) for k in classes]


def naive_log_density(X, belief, structure, estimate, n_classes):
    """Of rows in one class: Student t, or the Gaussian at the joint mode of mean and covariance."""
    D = X.shape[-1]
    kappa, mean, nu, Psi = belief
    if structure in DIAGONAL:
        extra = {"mle": 0, "map": 2 + (n_classes if is_tied(structure) else 1)}
        if estimate == "bayes":
            terms = stats.t.logpdf(X, nu, mean, np.sqrt(Psi * (kappa + 1) / (kappa * nu)))
        else:
            terms = stats.norm.logpdf(X, mean, np.sqrt(Psi / (nu + extra[estimate])))
        return np.nansum(terms, axis=-1)
    kappa, nu = kappa[0], nu[0]
    sharing = n_classes if is_tied(structure) else 1
    if shape(structure) == "spherical":
        Psi, v, extra = Psi * np.eye(D), nu, {"mle": 0, "map": 2 + D * sharing}
    else:
        v, extra = nu - D + 1, {"mle": 0, "map": D + 1 + sharing}
    if estimate == "bayes":
        return stats.multivariate_t.logpdf(X, mean, Psi * (kappa + 1) / (kappa * v), v)
    return stats.multivariate_normal.logpdf(X, mean, Psi / (nu + extra[estimate]))


def naive_log_densities(X, beliefs, structure, estimate):
    """Of each row in every class, (n, K)."""
    return np.column_stack([naive_log_density(X, belief, structure, estimate, len(beliefs)) for belief in beliefs])
