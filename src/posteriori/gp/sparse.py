r"""A sparse Gaussian-process layer: K latents with one kernel and inducing inputs, each with a scale of its own.

The theory is in docs/theory.md, section 6.1.

With inducing inputs Z (M, D), K_zz = L L^T and whitened inducing values v_k ~ N(0, I),

.. math:: a(x) = L^{-1} k_z(x), \qquad
          f_k(x) = \sigma_k\, g_k(x), \quad g_k(x) \mid v_k \sim N(a^\top v_k,\; k(x, x) - a^\top a) .
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.likelihoods import Expected, Likelihood
from posteriori.maths.whitening import whitened

__all__ = ["SparseGP", "project"]

_SCALE_SPREAD = 3.0
"""The prior's standard deviation of the mean of log sigma_k about its start."""
_CLASS_SPREAD = 1.0
"""The prior's standard deviation of each log sigma_k about their mean."""


def project(kernel: Kernel, free: Free, Z: Array, X: Array, jitter: Array | float) -> tuple[Array, Array]:
    """The columns a(x) (M, n), and the variances k(x, x) - a^T a that the inducing values leave open (n,)."""
    K_zz = kernel.gram(free, Z, Z)
    ridge = jitter * jnp.mean(jnp.diagonal(K_zz))
    A = whitened(K_zz + ridge * jnp.eye(Z.shape[0]), kernel.gram(free, Z, X))
    return A, jnp.maximum(kernel.diagonal(free, X) - (A * A).sum(0), 0.0)


@dataclass(frozen=True)
class SparseGP:
    """The model before any row is seen; it is static, so that one compilation serves all fits of equal models."""

    kernel: Kernel
    likelihood: Likelihood
    n_classes: int
    learn_inducing: bool = True
    learn_scale: bool = True
    start_scale: float = 5.0
    inducing_spread: float = 0.5

    def start(self, Z: np.ndarray, typical: float, kernel: Kernel | None = None) -> Free:
        """The free parameters at the start of learning; `kernel` has the same structure and its own numbers."""
        return {
            "kernel": (kernel or self.kernel).start(Z.shape[1], typical),
            "inducing": Z,
            "log_scale": np.full(self.n_classes, np.log(self.start_scale)),
            "likelihood": self.likelihood.start(),
        }

    def learnable(self) -> Free:
        """Whether each free parameter is learned."""
        return {
            "kernel": self.kernel.learnable(),
            "inducing": self.learn_inducing,
            "log_scale": self.learn_scale,
            "likelihood": self.likelihood.learnable(),
        }

    def log_prior(self, free: Free, start: Free) -> Array:
        """Log-density of the free parameters, up to a constant: weak, but never flat."""
        scale = free["log_scale"]
        centre = scale.mean()
        return (
            self.kernel.log_prior(free["kernel"], start["kernel"])
            + self.likelihood.log_prior(free["likelihood"])
            - 0.5 * (((free["inducing"] - start["inducing"]) / self.inducing_spread) ** 2).sum()
            - 0.5 * ((centre - np.log(self.start_scale)) / _SCALE_SPREAD) ** 2
            - 0.5 * (((scale - centre) / _CLASS_SPREAD) ** 2).sum()
        )

    def project(self, free: Free, X: Array, jitter: Array | float) -> tuple[Array, Array]:
        """The columns a(x) and the variances that inducing values leave open, for rows X (n, D)."""
        return project(self.kernel, free["kernel"], free["inducing"], X, jitter)

    def functions(self, free: Free, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Means and variances of f = sigma g from those of g, (K, n)."""
        scale = jnp.exp(free["log_scale"])[:, None]
        return scale * mean, scale * scale * variance

    @property
    def has_free_level(self) -> bool:
        """Whether the likelihood ignores a function added to all latents, so that only the prior decides on it."""
        return self.likelihood.ignores_common_shift

    def level_units(self, free: Free) -> Array:
        """The number e_k = 1 / sigma_k by which g_k rises where f of all classes rises by one, (K,)."""
        return jnp.exp(-free["log_scale"])

    def latents(self, free: Free, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Means and variances of h = f + noise, which the likelihood sees."""
        mean, variance = self.functions(free, mean, variance)
        return mean, variance + self.likelihood.noise

    def expected(self, free: Free, mean: Array, variance: Array, y: Array, c: Array, power: float) -> Expected:
        """The likelihood's l, its slopes by mean and variance of g, and by the free parameters, summed over rows."""
        (mu, v), back = jax.vjp(self.latents, free, mean, variance)
        out = self.likelihood.expected(free["likelihood"], mu, v, y, power)
        _, by_mean, by_variance = back((out.by_mean, out.by_variance))
        by_free, _, _ = back((c * out.by_mean, c * out.by_variance))
        by_free["likelihood"] = {name: (c * slope).sum() for name, slope in out.by_free.items()}
        return Expected(out.value, by_mean, by_variance, by_free)

    def log_expected(
        self, free: Free, mean: Array, variance: Array, y: Array, power: float
    ) -> tuple[Array, tuple[Array, Array]]:
        """The value l (n,), differentiable by everything, and its slopes by mean and variance of g, which are not."""
        (mu, v), back = jax.vjp(lambda m, w: self.latents(free, m, w), mean, variance)
        value, slopes = _log_expected(self.likelihood, power, free["likelihood"], mu, v, y)
        return value, back(slopes)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _log_expected(likelihood: Likelihood, power: float, free: Free, mean: Array, variance: Array, y: Array) -> Any:
    out = likelihood.expected(free, mean, variance, y, power)
    return out.value, (out.by_mean, out.by_variance)


def _forward(likelihood: Likelihood, power: float, free: Free, mean: Array, variance: Array, y: Array) -> Any:
    out = likelihood.expected(free, mean, variance, y, power)
    return (out.value, (out.by_mean, out.by_variance)), out


def _backward(likelihood: Likelihood, power: float, out: Expected, cotangent: Any) -> Any:
    g, _ = cotangent
    by_free = {name: (g * slope).sum() for name, slope in out.by_free.items()}
    return by_free, g * out.by_mean, g * out.by_variance, None


_log_expected.defvjp(_forward, _backward)
