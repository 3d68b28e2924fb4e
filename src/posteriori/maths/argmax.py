r"""The argmax node: which of K independent Gaussians is the largest (docs/theory.md, section 6.2).

For h_k ~ N(mu_k, v_k), sigma_k = sqrt(v_k), the probability that class y wins is

.. math:: Z_y = \int N(t; \mu_y, v_y) \prod_{k \ne y} \Phi\Big(\frac{t - \mu_k}{\sigma_k}\Big)\, dt .

`maths.largest` has the probabilities alone, for NumPy.

The integrand is log-concave. Two rules, both in log space, so that no value underflows:

- `log_argmax`: panels of Gauss-Legendre nodes that meet at the mode and end where the log-integrand has fallen by 38.
  Newton's steps towards the mode start to its left and towards the ends outside of them; as the slope is convex, none
  overshoots. Right to 1e-7 where standard deviations differ by a factor of 10, to 1e-4 at 100.
- `gauss_hermite`: nodes at mu_y, or at the mode (`adaptive`). It is cheaper, and good only while the standard
  deviations are similar.

`log_probit` is for very many latents that are known but for noise of one variance: few nodes at the mode, in values.

Derivatives come from the same nodes: with pi_j the share of node j in Z_y, d_kj = (t_j - mu_k)/sigma_k and
r = phi(d)/Phi(d),

.. math::
    \partial_{\mu_k} \log Z_y = -\sum_j \pi_j r_{kj}/\sigma_k, \quad
    \partial_{v_k} \log Z_y = -\sum_j \pi_j r_{kj} d_{kj}/(2 v_k), \quad
    \partial_{\mu_y} = -\sum_{k \ne y} \partial_{\mu_k}, \quad
    \partial_{v_y} \log Z_y = \sum_j \pi_j (d_{yj}^2 - 1)/(2 v_y) .

Arrays are (K, n): classes first.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "Factor",
    "Rule",
    "gauss_hermite",
    "log_argmax",
    "log_ndtr",
    "log_probit",
]

_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
_FALL = 38.0
"""The fall of the log-integrand from its top to the ends of the panels: exp(-38) = 3e-17."""
_FAR = -20.0
"""The x below which log Phi(x) is computed by its asymptotic series."""
_PROBIT_NODES, _PROBIT_STEPS = 8, 3
"""The nodes of `log_probit`, and its Newton steps to the mode: errors are below 1e-3 up to 30 classes."""
_TINY = 1e-300
"""The smallest probability of `log_probit`."""


class Factor(NamedTuple):
    """The logarithm of an integral (n,), and its derivatives by the means and the variances (K, n)."""

    log_z: Array
    by_mean: Array
    by_variance: Array


class Rule(NamedTuple):
    """The work spent on an integral: nodes in each panel, Newton steps to the mode, and Newton steps to the ends.

    With `steep`, the rise at the low end, which a rival of small variance makes steep, has a panel of its own.
    """

    n_nodes: int = 32
    mode_steps: int = 12
    end_steps: int = 10
    steep: bool = True


def log_ndtr(x: Array) -> Array:
    """Log of the standard normal distribution function, to 1e-10 however far left, to rounding elsewhere."""
    near, far = jnp.maximum(x, _FAR), jnp.minimum(x, _FAR)
    u = 1.0 / (far * far)
    series = jnp.log1p(-u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u))))
    return jnp.where(
        x > _FAR,
        jnp.log(0.5 * jax.lax.erfc(-near * np.sqrt(0.5))),
        -0.5 * far * far - _HALF_LOG_2PI - jnp.log(-far) + series,
    )


def log_argmax(mean: Array, variance: Array, y: Array, rule: Rule = Rule()) -> Factor:  # noqa: B008
    """Log-probability that class y is the largest, with its derivatives: panels around the mode."""
    node = _Node.of(mean, variance, y)
    mode = node.mode(rule.mode_steps)
    low, high = node.ends(mode, rule.end_steps)
    x, w = np.polynomial.legendre.leggauss(rule.n_nodes)
    x, w = (x[:, None] + 1.0) / 2.0, np.log(w[:, None] / 2.0)
    bounds = [low, mode, high]
    if rule.steep:
        # were the rise half a Gaussian, it would end here
        bounds.insert(1, jnp.minimum(low + 2.0 * _FALL / node.curve(low)[1], mode))
    panels = list(pairwise(bounds))
    t = jnp.concatenate([a + (b - a) * x for a, b in panels])
    return node.summed(t, jnp.concatenate([w + jnp.log(b - a) for a, b in panels]))


def gauss_hermite(mean: Array, variance: Array, y: Array, n_nodes: int = 20, *, adaptive: bool = True) -> Factor:
    """Log-probability that class y is the largest, by Gauss-Hermite nodes at the mode or, not adaptive, at mu_y."""
    node = _Node.of(mean, variance, y)
    centre, scale = node.mean_y, jnp.sqrt(2.0 * node.variance_y)
    if adaptive:
        centre = node.mode(Rule().mode_steps)
        scale = jnp.sqrt(2.0 / node.curve(centre)[2])
    x, w = np.polynomial.hermite.hermgauss(n_nodes)
    t = centre + scale * x[:, None]
    return node.summed(t, jnp.log(scale) + (np.log(w) + x * x)[:, None])


def log_probit(latent: Array, noise: float, y: Array) -> Factor:
    r"""Log-probability that class y is the largest of known latents plus noise, with its derivatives.

    In units of the noise's standard deviation, with gaps d_k = f_y - f_k,

    .. math:: p = \int \phi(u) \prod_{k \ne y} \Phi(u + d_k)\, du ,

    by Gauss-Hermite nodes at the mode. The values themselves are added up, at a third of the price of their logarithms:
    with nodes at the mode they underflow only where p does. Below 1e-300 it is constant. Slopes by variances, those by
    the noise of each latent, are half of p's second slopes by the latents, over p. Two classes have a closed form.
    """
    K, sd = latent.shape[0], np.sqrt(noise)
    is_y = (jnp.arange(K)[:, None] == y).astype(latent.dtype)
    gap = ((latent * is_y).sum(0) - latent) / sd
    out = _pair(gap.sum(0), is_y) if K == 2 else _probit(gap, is_y)
    return Factor(out.log_z, out.by_mean / sd, out.by_variance / noise)


def _pair(gap: Array, is_y: Array) -> Factor:
    """The probit of two classes, Phi(d / sqrt 2)."""
    z = gap * np.sqrt(0.5)
    log_p = log_ndtr(z)
    r = _mills(z, log_p)
    return Factor(log_p, (2.0 * is_y - 1.0) * r * np.sqrt(0.5), jnp.broadcast_to(-0.25 * r * z, is_y.shape))


def _probit(gap: Array, is_y: Array) -> Factor:
    """The probit of gaps d_k (K, n), that of class y being zero."""
    others = 1.0 - is_y
    # the mode with the strongest rival alone, were Phi a Gaussian tail, is no further right than the true one
    start = jnp.maximum(0.0, -0.5 * gap.min(0))

    def curve(u: Array) -> tuple[Array, Array]:
        """The slope of the log-integrand, and minus its curvature."""
        d = u + gap
        r = others * _density(d) / _distribution(d)
        return r.sum(0) - u, 1.0 + jnp.maximum((r * (r + d)).sum(0), 0.0)

    def newton(_: int, u: Array) -> Array:
        slope, curvature = curve(u)
        return u + slope / curvature

    mode = jax.lax.fori_loop(0, _PROBIT_STEPS, newton, start)
    scale = jnp.sqrt(2.0 / curve(mode)[1])
    x, w = np.polynomial.hermite.hermgauss(_PROBIT_NODES)
    u = mode + scale * x[:, None]
    d = u + gap[:, None]
    cdf = _distribution(d)
    value = (w * np.exp(x * x))[:, None] * _density(u) * jnp.where(is_y[:, None] > 0.0, 1.0, cdf).prod(0)
    total = jnp.maximum(scale * value.sum(0), _TINY)
    share = scale * value / total
    r = share * _density(d) / cdf
    by_mean = -others * r.sum(1)
    by_variance = -0.5 * others * (r * d).sum(1)
    by_variance_y = 0.5 * (share * (u * u - 1.0)).sum(0)
    return Factor(jnp.log(total), by_mean - is_y * by_mean.sum(0), by_variance + is_y * by_variance_y)


def _density(d: Array) -> Array:
    """phi(d), the standard normal density."""
    return jnp.exp(-0.5 * d * d - _HALF_LOG_2PI)


def _distribution(d: Array) -> Array:
    """Phi(d), the standard normal distribution function, and at least the smallest number."""
    return jnp.maximum(0.5 * jax.lax.erfc(-d * np.sqrt(0.5)), _TINY)


class _Node(NamedTuple):
    """The integrands of n rows, each with its own class y."""

    mean: Array
    variance: Array
    sd: Array
    is_y: Array
    mean_y: Array
    variance_y: Array

    @classmethod
    def of(cls, mean: Array, variance: Array, y: Array) -> _Node:
        is_y = (jnp.arange(mean.shape[0])[:, None] == y).astype(mean.dtype)
        return cls(mean, variance, jnp.sqrt(variance), is_y, (mean * is_y).sum(0), (variance * is_y).sum(0))

    def curve(self, t: Array) -> tuple[Array, Array, Array]:
        """Log-integrand without its constant, its slope, and minus its curvature, at one t per row."""
        d = (t - self.mean) / self.sd
        log_cdf = log_ndtr(d)
        others = 1.0 - self.is_y
        r = others * _mills(d, log_cdf)
        gap = t - self.mean_y
        return (
            -0.5 * gap * gap / self.variance_y + (others * log_cdf).sum(0),
            -gap / self.variance_y + (r / self.sd).sum(0),
            1.0 / self.variance_y + (r * (r + d) / self.variance).sum(0),
        )

    def mode(self, n_steps: int) -> Array:
        """The t at which the integrand is largest, (n,).

        As r(d) >= -d, the mode with any single rival, were Phi a Gaussian tail, is no further right than the true one.
        """
        with_rival = (self.mean_y * self.variance + self.mean * self.variance_y) / (self.variance + self.variance_y)
        t = jnp.where(self.mean > self.mean_y, with_rival, self.mean_y).max(0)

        def newton(_: int, t: Array) -> Array:
            slope, curvature = self.curve(t)[1:]
            return t + slope / curvature

        return jax.lax.fori_loop(0, n_steps, newton, t)

    def ends(self, mode: Array, n_steps: int) -> tuple[Array, Array]:
        """The t on both sides of the mode at which the log-integrand has fallen by 38, (n,) each.

        Its curvature grows to the left and falls to 1/v_y on the right: two parabolas bound both ends from outside.
        """
        top, _, curvature = self.curve(mode)
        width = np.sqrt(2.0 * _FALL)

        def newton(_: int, t: Array) -> Array:
            height, slope = self.curve(t)[:2]
            return t - (height - top + _FALL) / slope

        outside = jnp.stack([mode - width / jnp.sqrt(curvature), mode + width * jnp.sqrt(self.variance_y)])
        low, high = jax.lax.fori_loop(0, n_steps, lambda i, t: jax.vmap(partial(newton, i))(t), outside)
        return low, high

    def summed(self, t: Array, log_weight: Array) -> Factor:
        """The log of the sum over nodes t (J, n), with its derivatives."""
        others = 1.0 - self.is_y
        d = (t - self.mean[:, None]) / self.sd[:, None]
        log_cdf = log_ndtr(d)
        d_y = (t - self.mean_y) / jnp.sqrt(self.variance_y)
        log_f = log_weight - 0.5 * d_y * d_y + (others[:, None] * log_cdf).sum(0)
        top = log_f.max(0)
        share = jnp.exp(log_f - top)
        total = share.sum(0)
        share = share / total
        r = share * _mills(d, log_cdf)
        by_mean = -others * r.sum(1) / self.sd
        by_variance = -others * (r * d).sum(1) / (2.0 * self.variance)
        by_variance_y = (share * (d_y * d_y - 1.0)).sum(0) / (2.0 * self.variance_y)
        return Factor(
            top + jnp.log(total) - _HALF_LOG_2PI - 0.5 * jnp.log(self.variance_y),
            by_mean - self.is_y * by_mean.sum(0),
            by_variance + self.is_y * by_variance_y,
        )


def _mills(d: Array, log_cdf: Array) -> Array:
    """phi(d) / Phi(d), the inverse Mills ratio."""
    return jnp.exp(-0.5 * d * d - _HALF_LOG_2PI - log_cdf)
