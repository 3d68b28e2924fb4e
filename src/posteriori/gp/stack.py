r"""Layers of Gaussian processes on top of each other; samples carry the rows through (docs/theory.md, section 6.7).

A hidden layer has H nodes that share a kernel and inducing inputs; node j at input h of the layer below is

.. math:: h'_j = (W h)_j + \sigma\, g_j(h), \qquad
          h' = \text{mean} + \sqrt{\text{variance} + \text{noise}}\; \epsilon, \quad \epsilon \sim N(0, 1),

with W the identity, a padded identity or principal axes: at the start of learning a layer passes its input on. Each
(sample, row, node) has one epsilon, and all nodes of the next layer see the same h'. The last layer is not sampled: the
likelihood integrates over its latents.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.sparse import SparseGP, project
from posteriori.maths.whitening import quadratic

__all__ = ["HiddenLayer", "StackedGP", "mean_map"]

_FIRST_ROOT = 1e-2
"""The standard deviation of hidden inducing values at the start: nearly deterministic."""
_HIDDEN_NOISE = 1e-4
"""The variance of the noise on hidden nodes."""


def mean_map(X: np.ndarray, width: int) -> np.ndarray:
    """W (H, D): the identity, padded with zeros where H > D, or the leading principal axes where H < D."""
    D = X.shape[1]
    if width >= D:
        return np.eye(width, D)
    _, _, axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    axes = axes[:width] if len(axes) >= width else np.vstack([axes, np.zeros((width - len(axes), D))])
    return axes * np.where(axes[np.arange(width), np.abs(axes).argmax(axis=1)] < 0.0, -1.0, 1.0)[:, None]


@dataclass(frozen=True)
class HiddenLayer:
    """A hidden layer: H nodes with one kernel and one set of inducing inputs."""

    kernel: Kernel
    width: int

    def start(self, Z: np.ndarray, W: np.ndarray, typical: float) -> Free:
        """The free parameters at the start of learning; W is one of them, but is never learned."""
        M = len(Z)
        return {
            "kernel": self.kernel.start(Z.shape[1], typical),
            "inducing": Z,
            "log_scale": np.zeros(()),
            "mean": np.zeros((self.width, M)),
            "root": np.tile(_FIRST_ROOT * np.eye(M), (self.width, 1, 1)),
            "map": W,
        }

    def learnable(self) -> Free:
        """Whether each free parameter is learned."""
        return {
            "kernel": self.kernel.learnable(),
            "inducing": True,
            "log_scale": True,
            "mean": True,
            "root": True,
            "map": False,
        }

    def log_prior(self, free: Free, start: Free) -> Array:
        """Log-density of the free parameters, up to a constant."""
        return self.kernel.log_prior(free["kernel"], start["kernel"]) - 0.5 * free["log_scale"] ** 2

    def moments(self, free: Free, mean: Array, covariance: Array, X: Array, jitter: Array) -> tuple[Array, Array]:
        """Means and variances (H, n) of the nodes, under q(v_h) = N(mean, covariance)."""
        A, beyond = project(self.kernel, free["kernel"], free["inducing"], X, jitter)
        scale = jnp.exp(free["log_scale"])
        return free["map"] @ X.T + scale * (mean @ A), scale**2 * (beyond + quadratic(covariance, A))


@dataclass(frozen=True)
class StackedGP:
    """Hidden layers, and the last layer with its likelihood."""

    hidden: tuple[HiddenLayer, ...]
    last: SparseGP

    def propagate(
        self, free: Free, beliefs: list[tuple[Array, Array]], X: Array, noise: list[Array], jitter: Array
    ) -> Array:
        """Carry rows X (n, D) to the input of the last layer, (S n, H), sample by sample.

        `noise` has the epsilons of each layer, (S, n, H), or (S, 1, H) where all rows share them.
        """
        h = X
        for depth, (layer, parameters, q, epsilon) in enumerate(
            zip(self.hidden, free["hidden"], beliefs, noise, strict=True)
        ):
            mean, variance = (a.T for a in layer.moments(parameters, *q, h, jitter))
            if depth == 0:
                mean, variance = mean[None], variance[None]
            else:
                mean, variance = (a.reshape(len(epsilon), -1, layer.width) for a in (mean, variance))
            samples = mean + jnp.sqrt(variance + _HIDDEN_NOISE) * epsilon
            h = samples.reshape(-1, layer.width)
        return h

    def learnable(self) -> Free:
        """Whether each free parameter is learned."""
        last = {**self.last.learnable(), "mean": True, "root": True}
        return {"hidden": [layer.learnable() for layer in self.hidden], "last": last}

    def log_prior(self, free: Free, start: Free) -> Array:
        """Log-density of the free parameters, up to a constant."""
        total = self.last.log_prior(free["last"], start["last"])
        for layer, now, then in zip(self.hidden, free["hidden"], start["hidden"], strict=True):
            total = total + layer.log_prior(now, then)
        return total
