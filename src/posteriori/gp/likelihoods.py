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
from posteriori.maths.argmax import Rule, log_argmax, log_probit
from posteriori.maths.integrals import even_nodes

__all__ = ["ArgmaxLikelihood", "Expected", "Likelihood", "SoftmaxLikelihood"]

_MOST_TAKEN = 1.0 - 1e-8
"""The share of a latent's variance that a label takes away at most."""
_PAIR_NODES = 128
"""The number of nodes of the difference of two latents, at most."""
_TOGETHER = 1 << 18
"""The number of latents, of all rows at some of the nodes, that are integrated over noise together."""


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
    r"""The class of the largest latent, with noise, except for a rate epsilon of mislabelled rows.

    With Z_y(f) the probability that h_y is the largest of h = f + noise,

    .. math:: p(y \mid f) = (1 - \epsilon) Z_y(f) + \frac{\epsilon}{K - 1} (1 - Z_y(f)) ;

    noise of variance 1 makes it the multinomial probit. At power 1 noise is a part of the latents' variance, and at any
    power where there is none Z_y(f) is one or zero: in both cases, with Z_y the probability under the latents given,

    .. math:: E[p^\alpha] = (1 - \epsilon)^\alpha Z_y + \Big(\frac{\epsilon}{K - 1}\Big)^\alpha (1 - Z_y) .

    Otherwise p(y | f) is averaged over nodes of f.
    """

    n_classes: int
    noise: float = 1.0
    rate: float = 1e-3
    learn_rate: bool = False
    rule: Rule = Rule(16, 4, 3, steep=False)  # noqa: RUF009
    n_nodes: int = 128

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
        """The value l and its slopes; the variances include the noise."""
        if power == 1.0 or self.noise == 0.0:
            return self._closed(free, mean, variance, y, power)
        return self._averaged(free, mean, jnp.maximum(variance - self.noise, 0.0), y, power)

    def _closed(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """The value l and its slopes at power 1, or without noise."""
        log_z, by_mean, by_variance = log_argmax(mean, variance, y, self.rule)
        value, slope, by_rate = self._mixed_slopes(log_z, free["log_rate"], power)
        return Expected(value, slope * by_mean, slope * by_variance, {"log_rate": by_rate})

    def _averaged(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        r"""The value l and its slopes, by nodes of latents whose variances do not include the noise.

        With s the share of each node in E[p^alpha], Gaussian averages have the slopes

        .. math:: \partial_\mu l = \sum s\, \frac{p'}{p}, \qquad
            \partial_v l = \sum s\, \Big[ \frac{p''}{2 p} - \frac{1 - \alpha}{2} \Big(\frac{p'}{p}\Big)^2 \Big] .
        """
        latent, log_weight = self._nodes(free, mean, variance, y, power)
        S, K, n = latent.shape
        together = 1 << int(np.log2(min(S, max(1, _TOGETHER // (K * n)))))
        factor = jax.lax.map(lambda f: log_probit(f, self.noise, y), latent, batch_size=together)
        log_p, slope, by_rate = self._mixed_slopes(factor.log_z, free["log_rate"], 1.0)
        log_share = power * log_p + log_weight
        share = jax.nn.softmax(log_share, axis=0)
        value = (share * log_p).sum(0) if power == 0 else jax.nn.logsumexp(log_share, axis=0) / power
        by_mean = slope[:, None] * factor.by_mean
        by_variance = slope[:, None] * factor.by_variance - 0.5 * (1.0 - power) * by_mean**2
        return Expected(
            value,
            (share[:, None] * by_mean).sum(0),
            (share[:, None] * by_variance).sum(0),
            {"log_rate": (share * by_rate).sum(0)},
        )

    def _nodes(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> tuple[Array, Array]:
        r"""Latents (S, K, n) at the nodes, and the logarithms of the nodes' weights (S, n).

        Two classes have Gauss-Hermite nodes of their difference. For more, fixed quasi-random nodes z are moved to
        where p^alpha is large, and weighed by the ratio of the two densities: with lambda = v (l'^2 - 2 l_v), the share
        of a latent's variance that the label takes away at power 1,

        .. math:: f = \mu + \sqrt v\, x, \qquad x = \frac{\alpha \sqrt v\, l'}{1 - (1 - \alpha) \lambda} +
            \sqrt{\frac{1 - \lambda}{1 - (1 - \alpha) \lambda}}\; z .

        At power 0 they stay where they are.
        """
        if self.n_classes == 2:
            return _nodes_of_pair(mean, variance, min(self.n_nodes, _PAIR_NODES))
        z = even_nodes(self.n_classes, self.n_nodes).points.T[:, :, None]
        x, log_weight = jnp.asarray(z), jnp.full((len(z), mean.shape[1]), -np.log(len(z)))
        if power > 0:
            exact = self._closed(free, mean, variance + self.noise, y, 1.0)
            taken = jnp.clip(variance * (exact.by_mean**2 - 2.0 * exact.by_variance), 0.0, _MOST_TAKEN)
            left = 1.0 - (1.0 - power) * taken
            kept = (1.0 - taken) / left
            x = power * jnp.sqrt(variance) * exact.by_mean / left + jnp.sqrt(kept) * z
            log_weight = log_weight + 0.5 * (z * z - x * x + jnp.log(kept)).sum(1)
        return mean + jnp.sqrt(variance) * x, log_weight

    def _mixed_slopes(self, log_z: Array, log_rate: Array, power: float) -> tuple[Array, Array, Array]:
        """The value l from log Z, and its slopes by log Z and by the log rate."""
        value, slope = jax.jvp(lambda x: self._mixed(x, log_rate, power), (log_z,), (jnp.ones_like(log_z),))
        _, by_rate = jax.jvp(lambda x: self._mixed(log_z, x, power), (log_rate,), (jnp.ones(()),))
        return value, slope, by_rate

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


def _nodes_of_pair(mean: Array, variance: Array, n_nodes: int) -> tuple[Array, Array]:
    """Two latents (S, 2, n) at Gauss-Hermite nodes of their difference, and the logarithms of the weights (S, n)."""
    z, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    apart = variance / jnp.sqrt(jnp.maximum(variance.sum(0), 1e-300)) * np.array([[1.0], [-1.0]])
    log_weight = jnp.broadcast_to(np.log(w / w.sum())[:, None], (n_nodes, mean.shape[1]))
    return mean + apart * z[:, None, None], log_weight


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
