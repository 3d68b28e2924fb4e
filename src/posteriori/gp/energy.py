r"""The power-EP energy of tied sites, in moments (docs/theory.md, section 6.6).

All N rows share one site, and the cavity lacks a share alpha of one row's. With q(v) = N(m, S), S = F F^T, and
delta = alpha/N, d = delta/(1 - delta),

.. math::
    S_c = (S - d S^2 + d^2 S^3)/(1 - \delta), \quad m_c = m - d S m + d^2 S^2 m, \qquad
    \Phi(q) + \tfrac{N}{\alpha} [\Phi(c) - \Phi(q)] =
        \log|F| + \tfrac12 \mathrm{tr}(I - S) + \tfrac\delta4 \|I - S\|^2 - \tfrac12 m_c^\top m

the cavity up to O(d^3), the energy up to O(d^2), with matrix products only. For delta = 0 the cavity is q and the sum
-KL(q || N(0, I)): variational inference. Maximised over m and F this is black-box alpha: its probabilities are
good, its variances are too wide.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from posteriori.gp.ep import InducingBelief

__all__ = ["Cavity", "averaged_energy", "cavity", "covariance_of", "tied_energy"]


class Cavity(NamedTuple):
    """The means (H, M) and covariances (H, M, M) of q without a share of one site."""

    mean: Array
    covariance: Array


def covariance_of(root: Array) -> Array:
    """S = F F^T, with F the lower triangle of `root`: what an optimiser does above it has no effect."""
    F = jnp.tril(root)
    return F @ jnp.swapaxes(F, -1, -2)


def cavity(mean: Array, root: Array, delta: Array | float) -> Cavity:
    """The cavity of q(v_h) = N(mean, F F^T), F the lower triangle of `root`, for every node h."""
    S = covariance_of(root)
    d = delta / (1.0 - delta)
    S2 = S @ S
    Sm = (S @ mean[..., None])[..., 0]
    S2m = (S @ Sm[..., None])[..., 0]
    return Cavity(mean - d * Sm + d * d * S2m, (S - d * S2 + d * d * (S2 @ S)) / (1.0 - delta))


def tied_energy(mean: Array, root: Array, delta: Array | float, without: Cavity) -> Array:
    """The part of the energy that the nodes' sites make up, without the factors of the rows."""
    M = mean.shape[-1]
    G = jnp.eye(M) - covariance_of(root)
    log_root = jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum()
    trace = jnp.trace(G, axis1=-2, axis2=-1).sum()
    return log_root + 0.5 * trace + 0.25 * delta * (G * G).sum() - 0.5 * (without.mean * mean).sum()


def averaged_energy(q: InducingBelief, shift: Array) -> Array:
    """The sites' part of the energy where natural parameters are averaged, to leading order: -KL(q || N(0, I))."""
    trace = jnp.trace(jnp.eye(q.mean.shape[-1]) - q.covariance, axis1=-2, axis2=-1).sum()
    return q.log_partition - 0.5 * (shift * q.mean).sum() + 0.5 * trace - 0.5 * (q.mean**2).sum()
