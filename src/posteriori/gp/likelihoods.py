r"""From K latents of a row to its class: the argmax node with mislabelled rows, and softmax.

Both answer the same question of independent latents h_k ~ N(mu_k, v_k): the value and slopes of

.. math:: l = \frac1\alpha \log E[p(y \mid h)^\alpha], \qquad \alpha \to 0: \quad l = E[\log p(y \mid h)] .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import Array

from posteriori.maths.argmax import Rule, argmax_probabilities, log_argmax, probit_probabilities
from posteriori.maths.integrals import even_nodes

__all__ = ["Argmax", "Expected", "Likelihood", "Softmax"]

Free = dict[str, Any]


class Expected(NamedTuple):
    """l (n,), its slopes by means and variances (K, n), and by the free parameters, per row (n,) each."""

    value: Array
    by_mean: Array
    by_variance: Array
    by_free: dict[str, Array]


class Likelihood(Protocol):
    """What a layer of latents is read by."""

    @property
    def noise(self) -> float:
        """Variance added to every latent."""

    def start(self) -> Free:
        """Free parameters to begin with."""

    def learnable(self) -> dict[str, bool]:
        """Which of them may move."""

    def log_prior(self, free: Free) -> Array:
        """Log-density of the free parameters, up to a constant."""

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """L and its slopes."""

    def probabilities(self, free: Free, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""

    def at(self, free: Free, latent: np.ndarray) -> np.ndarray:
        """p(k | f) with all but the noise known, (K, n)."""


@dataclass(frozen=True)
class Argmax:
    r"""The largest latent wins, but for a rate epsilon of mislabelled rows.

    .. math:: p(y \mid h) = (1 - \epsilon) 1[h_y \text{ largest}] + \frac{\epsilon}{K - 1} 1[\text{it is not}],
        \qquad E[p^\alpha] = (1 - \epsilon)^\alpha Z_y + \Big(\frac{\epsilon}{K - 1}\Big)^\alpha (1 - Z_y) .

    Noise of variance 1 on the latents makes it the multinomial probit; that is integrated exactly at power 1 only.
    """

    n_classes: int
    noise: float = 1.0
    rate: float = 1e-3
    learn_rate: bool = False
    rule: Rule = Rule(16, 4, 3, steep=False)  # noqa: RUF009

    def start(self) -> Free:
        """Free parameters to begin with."""
        return {"log_rate": np.log(np.float64(self.rate))}

    def learnable(self) -> dict[str, bool]:
        """Which of them may move."""
        return {"log_rate": self.learn_rate}

    def log_prior(self, free: Free) -> Array:
        """Log-density of the free parameters: a factor e either way is nothing unusual for the rate."""
        return -0.5 * (free["log_rate"] - np.log(self.rate)) ** 2

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """L and its slopes."""
        log_z, by_mean, by_variance = log_argmax(mean, variance, y, self.rule)
        value, slope = jax.jvp(lambda x: self._mixed(x, free["log_rate"], power), (log_z,), (jnp.ones_like(log_z),))
        _, by_rate = jax.jvp(lambda x: self._mixed(log_z, x, power), (free["log_rate"],), (jnp.ones(()),))
        return Expected(value, slope * by_mean, slope * by_variance, {"log_rate": by_rate})

    def _mixed(self, log_z: Array, log_rate: Array, power: float) -> Array:
        """L from log Z: rows of the winning class and of the others."""
        rate = jnp.exp(log_rate)
        right, wrong = jnp.log1p(-rate), log_rate - np.log(self.n_classes - 1)
        z = jnp.exp(log_z)
        if power == 0:
            return z * right + (1.0 - z) * wrong
        not_z = jnp.log(jnp.maximum(-jnp.expm1(log_z), 1e-300))
        return jnp.logaddexp(power * right + log_z, power * wrong + not_z) / power

    def probabilities(self, free: Free, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""
        return self._mislabelled(free, argmax_probabilities(mean, variance))

    def at(self, free: Free, latent: np.ndarray) -> np.ndarray:
        """p(k | f) with all but the noise known, (K, n)."""
        if self.noise > 0.0:
            return self._mislabelled(free, probit_probabilities(latent, self.noise))
        return self._mislabelled(free, (np.arange(self.n_classes)[:, None] == latent.argmax(axis=0)).astype(float))

    def _mislabelled(self, free: Free, Z: np.ndarray) -> np.ndarray:
        """Class probabilities from those of winning."""
        rate = np.exp(np.asarray(free["log_rate"]))
        return (1.0 - rate) * Z + rate / (self.n_classes - 1) * (1.0 - Z)


@dataclass(frozen=True)
class Softmax:
    """Class probabilities softmax(h), averaged over fixed quasi-random nodes."""

    n_classes: int
    n_nodes: int = 128

    noise = 0.0

    def start(self) -> Free:
        """Free parameters to begin with: none."""
        return {}

    def learnable(self) -> dict[str, bool]:
        """Which of them may move: there are none."""
        return {}

    def log_prior(self, free: Free) -> Array:
        """Log-density of no parameters."""
        return jnp.zeros(())

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, power: float) -> Expected:
        """L and its slopes, by what Gaussian averages allow: d/dmu = E[f'], d/dv = E[f'']/2."""
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

    def probabilities(self, free: Free, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""
        return np.asarray(_mean_softmax(self, mean, variance))

    def at(self, free: Free, latent: np.ndarray) -> np.ndarray:
        """softmax(f), (K, n)."""
        return scipy.special.softmax(latent, axis=0)


@jax.jit(static_argnums=0)
def _mean_softmax(likelihood: Softmax, mean: Array, variance: Array) -> Array:
    return jnp.exp(likelihood._log_p(mean, variance)).mean(1)
