r"""Likelihoods: from the K latents of a row to its class (docs/theory.md, sections 6.2 and 6.3).

Each answers the same question of independent latents h_k ~ N(mu_k, v_k): the value and slopes of

.. math:: l = \frac1\alpha \log E[p(y \mid h)^\alpha], \qquad \alpha \to 0: \quad l = E[\log p(y \mid h)] .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from posteriori.gp.kernels import Free
from posteriori.gp.output import ArgmaxNode, OutputNode, SoftmaxNode
from posteriori.maths.argmax import Rule, log_argmax
from posteriori.maths.integrals import even_nodes

__all__ = ["ArgmaxLikelihood", "Expected", "Likelihood", "SoftmaxLikelihood"]


class Expected(NamedTuple):
    """The value l (n,), its slopes by means and variances (K, n), and by the free parameters, for each row (n,)."""

    value: Array
    by_mean: Array
    by_variance: Array
    by_free: dict[str, Array]


class Likelihood(Protocol):
    """The probability p(y | h) of a row's class given its K latents h.

    A likelihood is hashable and compares by value, so that one compilation serves all that are equal.
    """

    @property
    def ignores_common_shift(self) -> bool:
        """Whether p(y | h + u) = p(y | h) for any number u added to all latents.

        Expectation propagation then moves the common level of all latents to its fixed point in one step
        (`ep.levelled`); for any other likelihood that step would be wrong, and is left out.
        """

    @property
    def noise(self) -> float:
        """The variance of the noise that is added to every latent."""

    def start(self) -> Free:
        """The free parameters at the start of learning."""

    def learnable(self) -> dict[str, bool]:
        """Whether each free parameter is learned."""

    def log_prior(self, free: Free) -> Array:
        """Log-density of the free parameters, up to a constant."""

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """The value l of latents with these means and variances (K, n), at power alpha, and its slopes."""

    def node(self, free: Free) -> OutputNode:
        """The node that predicts with these free parameters."""


@dataclass(frozen=True)
class ArgmaxLikelihood:
    r"""The class of the largest latent, except for a rate epsilon of mislabelled rows.

    .. math:: p(y \mid h) = (1 - \epsilon) 1[h_y \text{ largest}] + \frac{\epsilon}{K - 1} 1[\text{not}],
        \qquad E[p^\alpha] = (1 - \epsilon)^\alpha Z_y + \Big(\frac{\epsilon}{K - 1}\Big)^\alpha (1 - Z_y) .

    Noise of variance 1 on the latents makes it the multinomial probit; that is integrated exactly at power 1 only.
    """

    n_classes: int
    noise: float = 1.0
    rate: float = 1e-3
    learn_rate: bool = False
    rule: Rule = Rule(16, 4, 3, steep=False)  # noqa: RUF009

    ignores_common_shift = True

    def start(self) -> Free:
        """The free parameters at the start of learning."""
        return {"log_rate": np.log(np.float64(self.rate))}

    def learnable(self) -> dict[str, bool]:
        """Whether each free parameter is learned."""
        return {"log_rate": self.learn_rate}

    def log_prior(self, free: Free) -> Array:
        """Log-density of the free parameters: the log rate is N(log of its start, 1)."""
        return -0.5 * (free["log_rate"] - np.log(self.rate)) ** 2

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """The value l and its slopes."""
        log_z, by_mean, by_variance = log_argmax(mean, variance, y, self.rule)
        value, slope = jax.jvp(lambda x: self._mixed(x, free["log_rate"], power), (log_z,), (jnp.ones_like(log_z),))
        _, by_rate = jax.jvp(lambda x: self._mixed(log_z, x, power), (free["log_rate"],), (jnp.ones(()),))
        return Expected(value, slope * by_mean, slope * by_variance, {"log_rate": by_rate})

    def _mixed(self, log_z: Array, log_rate: Array, power: float) -> Array:
        """The value l from log Z, mixed over rows of the winning class and mislabelled ones."""
        rate = jnp.exp(log_rate)
        right, wrong = jnp.log1p(-rate), log_rate - np.log(self.n_classes - 1)
        z = jnp.exp(log_z)
        if power == 0:
            return z * right + (1.0 - z) * wrong
        not_z = jnp.log(jnp.maximum(-jnp.expm1(log_z), 1e-300))
        return jnp.logaddexp(power * right + log_z, power * wrong + not_z) / power

    def node(self, free: Free) -> ArgmaxNode:
        """The node that predicts with these free parameters."""
        return ArgmaxNode(self.noise, float(np.exp(np.asarray(free["log_rate"]))))


@dataclass(frozen=True)
class SoftmaxLikelihood:
    """Class probabilities softmax(h), averaged over fixed quasi-random nodes."""

    n_classes: int
    n_nodes: int = 128

    noise = 0.0
    ignores_common_shift = True

    def start(self) -> Free:
        """The free parameters at the start of learning: there are none."""
        return {}

    def learnable(self) -> dict[str, bool]:
        """Whether each free parameter is learned: there are none."""
        return {}

    def log_prior(self, free: Free) -> Array:
        """Log-density of the free parameters: zero, as there are none."""
        return jnp.zeros(())

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """The value l and its slopes, by the identities of Gaussian averages dE[f]/dmu = E[f'], dE[f]/dv = E[f'']/2."""
        log_p = self._log_p(mean, variance)
        is_y = (jnp.arange(self.n_classes)[:, None] == y)[:, None]
        p, log_p_y = jnp.exp(log_p), jnp.where(is_y, log_p, 0.0).sum(0)
        if power == 0:
            value, share = log_p_y.mean(0), jnp.full(log_p_y.shape, 1.0 / log_p_y.shape[0])
        else:
            top = (power * log_p_y).max(0)
            weight = jnp.exp(power * log_p_y - top)
            value, share = (top + jnp.log(weight.mean(0))) / power, weight / weight.sum(0)
        slope = is_y - p
        return Expected(
            value,
            (share * slope).sum(1),
            0.5 * (share * (power * slope**2 - p * (1.0 - p))).sum(1),
            {},
        )

    def _log_p(self, mean: Array, variance: Array) -> Array:
        """Log-softmax at the nodes, (K, J, n)."""
        z = even_nodes(self.n_classes, self.n_nodes).points
        return jax.nn.log_softmax(mean[:, None] + jnp.sqrt(variance)[:, None] * z[:, :, None], axis=0)

    def node(self, free: Free) -> SoftmaxNode:
        """The node that predicts."""
        return SoftmaxNode(self.n_nodes)
