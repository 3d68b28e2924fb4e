r"""Preconditioners: cheap inverses of something like the Hessian.

All act on (K, D) arrays. Softmax curvature has one direction of its own, the same vector added to every class: the
likelihood ignores it and only the prior sees it. Each preconditioner treats that direction apart, by the prior alone
(and not at all where the prior is flat), so that what is left is well conditioned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posteriori.maths.linalg import inverse_spd

__all__ = ["Preconditioner", "class_blocks", "kronecker"]

Preconditioner = Callable[[np.ndarray], np.ndarray]


def kronecker(
    A: np.ndarray, G: np.ndarray, lead: np.ndarray, diagonal: np.ndarray, precision: np.ndarray
) -> Preconditioner:
    """Inverse of A kron G / tr A + prior, in the eigenbasis of A.

    Parameters
    ----------
    A : (K, K)
        Curvature over classes.
    G : (L, L)
        Curvature over the features `lead`.
    lead : (L,)
        Indices of these; of all others only the diagonal counts.
    diagonal : (D,)
        Of G over all features.
    precision : (K, D)
        Of the prior; its mean over classes is used, which is exact when it treats them alike.
    """
    prior = precision.mean(axis=0)
    eigenvalues, Q = np.linalg.eigh(A / np.trace(A))
    Q[:, 0] = 1.0 / np.sqrt(len(A))  # the null direction, known exactly
    Q[:, 1:] -= Q[:, :1] @ (Q[:, :1].T @ Q[:, 1:])
    eigenvalues = np.maximum(eigenvalues[1:], 1e-8 * eigenvalues[-1])
    inverses = np.stack([inverse_spd(v * G + np.diag(prior[lead])) for v in eigenvalues])
    others = np.multiply.outer(eigenvalues, diagonal) + prior if lead.size < prior.size else None

    def apply(R: np.ndarray) -> np.ndarray:
        Z = Q.T @ R
        led = np.matmul(inverses, Z[1:, lead, None])[:, :, 0]
        Z[0] = _prior_only(Z[0], prior)
        if others is not None:
            Z[1:] = np.divide(Z[1:], others, out=np.zeros_like(others), where=others > 0)
        Z[1:, lead] = led
        return Q @ Z

    return apply


def class_blocks(blocks: np.ndarray, precision: np.ndarray) -> Preconditioner:
    """Inverse of the Hessian's diagonal blocks (K, D, D) + prior, applied across the null direction."""
    inverses = np.stack([inverse_spd(B + np.diag(a)) for B, a in zip(blocks, precision, strict=True)])
    return _across(lambda R: np.matmul(inverses, R[:, :, None])[:, :, 0], precision)


def _across(apply: Preconditioner, precision: np.ndarray) -> Preconditioner:
    """Apply to deviations from the mean over classes, and the prior alone to the mean."""
    prior = precision.mean(axis=0)

    def across(R: np.ndarray) -> np.ndarray:
        mean = R.mean(axis=0)
        Z = apply(R - mean)
        Z -= Z.mean(axis=0)
        Z += _prior_only(mean, prior)
        return Z

    return across


def _prior_only(r: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return np.divide(r, prior, out=np.zeros_like(r), where=prior > 0)
