r"""Kernels that are as likely as the best one: its parameters are uncertain where rows are few.

Their posterior is approximated by Laplace's method: with \hat\theta the best logarithms of the kernel's parameters and
H minus the Hessian of the log evidence plus log-prior there, \theta ~ N(\hat\theta, H^{-1}). A few nodes
\theta_s = \hat\theta + C z_s, C C^T = H^{-1}, z_s with mean zero and covariance I, stand for it; each has its own
sites, and predictions average over them. H comes from differences of slopes, one evaluation for each parameter.
"""

from __future__ import annotations

import numpy as np

from posteriori.gp.learning import KernelEvidence
from posteriori.maths.integrals import even_nodes

__all__ = ["likely_vectors"]

_MOST = 20
"""The number of parameters that are uncertain one by one, at most."""
_STEP = 0.1
"""The step of a log-parameter over which the slope's difference is taken."""
_FARTHEST = 3.0
"""The farthest that a log-parameter goes from its best value."""
_WIDEST = 2.5
"""The largest standard deviation of a log-parameter along a direction of the Hessian."""


def likely_vectors(evidence: KernelEvidence, best: np.ndarray, n_nodes: int) -> list[np.ndarray]:
    """Vectors of parameters that stand for their posterior; the best one alone where its neighbours have no evidence.

    Where there are many parameters, those of one kind, such as all lengthscales, move together.
    """
    B = np.eye(len(best)) if len(best) <= _MOST else _together(evidence)
    value, slope = evidence(best)
    if not np.isfinite(value):
        return [best]
    H = np.empty((B.shape[1], B.shape[1]))
    for i, direction in enumerate(B.T):
        value, there = evidence(best + _STEP * direction)
        if not np.isfinite(value):
            return [best]
        H[i] = (slope - there) @ B / _STEP
    curvature, axes = np.linalg.eigh(0.5 * (H + H.T))
    spread = 1.0 / np.sqrt(np.maximum(curvature, 1.0 / _WIDEST**2))
    z = even_nodes(len(spread), n_nodes).points  # (P, S)
    away = B @ (axes @ (spread[:, None] * z))
    return list((best[:, None] + np.clip(away, -_FARTHEST, _FARTHEST)).T)


def _together(evidence: KernelEvidence) -> np.ndarray:
    """Directions (P, R) in which all parameters of one kind move by the same amount."""
    sizes = evidence.sizes()
    return np.repeat(np.eye(len(sizes)), sizes, axis=0)
