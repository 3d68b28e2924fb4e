r"""Expectation propagation for sparse Gaussian processes (docs/theory.md, sections 6.4 and 6.5).

A row sees the whitened inducing values v_k ~ N(0, I) of class k through g_nk = a_n^T v_k. Its likelihood factor is
replaced, class by class, by a Gaussian site exp(-t g^2/2 + s g), counted c_n times:

.. math:: P_k = I + \sum_n c_n t_{nk} a_n a_n^\top, \quad r_k = \sum_n c_n s_{nk} a_n, \quad
          w = a^\top P^{-1} a, \quad m = a^\top P^{-1} r .

The cavity leaves a share alpha of one site out, the factor is integrated over it, and the new site has the moments that
follow. With l = (1/alpha) log E_c[p^alpha] (for alpha -> 0: E[log p]), its derivatives l' by the mean and l_v by the
variance, and e = 2 l_v - alpha l'^2,

.. math::
    w_c = \frac1{1/w - \alpha t} = \frac{w}{1 - \alpha t w}, \quad
    m_c = w_c (m/w - \alpha s) = \frac{m - \alpha s w}{1 - \alpha t w}, \qquad
    t \leftarrow \frac{-e}{1 + \alpha w_c e}, \quad s \leftarrow \frac{l'}{1 + \alpha w_c e} + m_c t .

This is power EP; alpha = 1 is expectation propagation, and alpha = 0 variational inference, with nothing divided by
alpha. Its energy, whose value at the fixed point is the approximate log evidence (alpha = 0: the variational bound), is

.. math:: \sum_k \Phi(P_k, r_k)
          + \sum_n c_n \Big\{ l_n + \frac1\alpha \sum_k [\phi(1/w_c, m_c/w_c) - \phi(1/w, m/w)] \Big\}

with Phi(P, r) = -1/2 log|P| + 1/2 r^T P^{-1} r and phi its one-dimensional form; the bracket is, with nothing divided
by w either,

.. math:: -\frac1{2\alpha} \log(1 - \alpha t w) + \frac{m^2 t - 2 m s + \alpha s^2 w}{2 (1 - \alpha t w)} .

At the fixed point it is stationary in sites and cavities, so that its gradient by anything else holds both still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from posteriori.maths.whitening import inverse_factor

__all__ = [
    "InducingBelief",
    "Projection",
    "Sites",
    "Sweep",
    "belief",
    "left_out",
    "levelled",
    "site_of",
    "site_sums",
    "slopes",
    "sweep",
]

LogExpectation = Callable[[Array, Array], tuple[Array, Array, Array]]
"""A function of means and variances of the latents (K, n): l (n,), and its derivatives by both (K, n)."""

_LEAST = 1e-8
"""The share of the cavity's variance that a new marginal keeps at least."""
_TINY = 1e-300


class Projection(NamedTuple):
    """Rows projected on inducing values: the columns a_n (M, n), and the prior variance that these leave open (n,)."""

    A: Array
    beyond: Array


class Sites(NamedTuple):
    """Natural parameters t >= 0 and s of all sites, (K, n)."""

    precision: Array
    shift: Array

    def towards(self, target: Sites, share: Array | float) -> Sites:
        """The sites after a step of this share of the way to the target."""
        return Sites(*(old + share * (new - old) for old, new in zip(self, target, strict=True)))

    def raised(self, level: Array) -> Sites:
        """The sites about latents that are higher by a level (K, n): -t (g - level)^2 / 2 + s (g - level)."""
        return Sites(self.precision, self.shift + self.precision * level)


class InducingBelief(NamedTuple):
    """The Gaussians q(v_k) = N(mean, covariance) of all classes, (K, M) and (K, M, M), and sum_k Phi(P_k, r_k)."""

    mean: Array
    covariance: Array
    log_partition: Array


class Sweep(NamedTuple):
    """One visit to every site: the sites that it asks for, the rows' part of the energy, and what `slopes` reads."""

    target: Sites
    energy: Array
    mean: Array
    spread_A: Array
    by_variance: Array


def site_sums(A: Array, sites: Sites, c: Array) -> tuple[Array, Array]:
    """The sums that the sites of these rows add to P (K, M, M) and r (K, M)."""
    weighted = A * (c * sites.precision)[:, None, :]
    return weighted @ A.T, (c * sites.shift) @ A.T


def belief(precision: Array, shift: Array) -> InducingBelief:
    """q(v) from the sums over all sites: P = I + precision."""
    inverse, diagonal = inverse_factor(precision + jnp.eye(precision.shape[-1]))
    covariance = jnp.swapaxes(inverse, -1, -2) @ inverse
    mean = (covariance @ shift[..., None])[..., 0]
    return InducingBelief(mean, covariance, -jnp.log(diagonal).sum() + 0.5 * (shift * mean).sum())


def levelled(q: InducingBelief, precision: Array, shift: Array, unit: Array) -> tuple[InducingBelief, Array, Array]:
    r"""The belief and the sum r with all sites raised to the common level of the fixed point, and u, the rise.

    This holds for a likelihood that ignores a common shift of all latents (`Likelihood.ignores_common_shift`). A
    function u^T a(x) added to all of them, in units of class k e_k u^T a, moves sites with it, s -> s + t e_k u^T a,
    and only the prior decides on it: sweeps need very many steps to bring it to rest. At the fixed point, as slopes of
    such a likelihood sum to zero over classes, sum_k e_k mean_k = 0; with S_k the covariances, that is so for

    .. math:: \Big(\sum_k e_k^2 (I - S_k)\Big) u = -\sum_k e_k\, mean_k .
    """
    identity = jnp.eye(precision.shape[-1])
    seen = identity - q.covariance
    weight = jnp.einsum("k,kij->ij", unit**2, seen) + _LEAST * identity
    u = -jnp.linalg.solve(weight, unit @ q.mean)
    mean = q.mean + unit[:, None] * (seen @ u)
    moved = shift + unit[:, None] * (precision @ u)
    log_partition = q.log_partition + 0.5 * ((moved * mean).sum() - (shift * q.mean).sum())
    return InducingBelief(mean, q.covariance, log_partition), moved, u


def left_out(m: Array, w: Array, prior: Array, sites: Sites, power: float) -> tuple[Array, Array]:
    """The means and variances of the cavities: marginals N(m, w) without a share `power` of their sites."""
    left = _left(w, prior, sites.precision, power)
    return (m - power * sites.shift * w) / left, w / left


def _left(w: Array, prior: Array, t: Array, power: float) -> Array:
    """1 - alpha t w, held so that no cavity is wider than the prior: sites may have moved since w was computed."""
    return jnp.maximum(1.0 - power * t * w, w / (prior + _TINY))


def site_of(m_c: Array, w_c: Array, by_mean: Array, by_variance: Array, power: float) -> Sites:
    """The sites that give cavities N(m_c, w_c) the moments that the slopes of l ask for."""
    e = jnp.clip(2.0 * by_variance - power * by_mean**2, -(1.0 - _LEAST) / (power * w_c + _TINY), 0.0)
    divisor = 1.0 + power * w_c * e
    return Sites(-e / divisor, (by_mean - m_c * e) / divisor)


def sweep(
    q: InducingBelief, rows: Projection, sites: Sites, c: Array, log_expectation: LogExpectation, power: float
) -> Sweep:
    """Visit the sites of these rows: marginal, cavity, factor, new site."""
    A, beyond = rows
    t, s = sites
    SA = q.covariance @ A
    w, m = (SA * A).sum(1), q.mean @ A
    prior = (A * A).sum(0)
    m_c, w_c = left_out(m, w, prior, sites, power)
    left = _left(w, prior, t, power)
    value, by_mean, by_variance = log_expectation(m_c, beyond + w_c)
    target = site_of(m_c, w_c, by_mean, by_variance, power)
    log_left = -0.5 * jnp.log(left) / power if power > 0 else 0.5 * t * w
    share = log_left + 0.5 * (m * m * t - 2.0 * m * s + power * s * s * w) / left
    return Sweep(target, (c * (value + share.sum(0))).sum(), m, SA, by_variance)


def slopes(q: InducingBelief, visit: Sweep, sites: Sites, c: Array) -> Projection:
    """Derivatives of the energy by the projection of the rows, with sites and cavities held."""
    t, s = sites
    by_A = q.mean.T @ (c * (s - t * visit.mean)) - ((c * t)[:, None] * visit.spread_A).sum(0)
    return Projection(by_A, (c * visit.by_variance).sum(0))
