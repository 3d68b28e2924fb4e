"""Gaussian processes fitted by JAX: one layer seen through inducing inputs, or a stack of layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from posteriori.gp.draws import inducing_draws, prior_draws, widened
from posteriori.gp.energy import covariance_of
from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.output import OutputNode
from posteriori.gp.predictions import latent_moments
from posteriori.gp.solution import GPSolution
from posteriori.gp.sparse import SparseGP
from posteriori.gp.stack import StackedGP
from posteriori.maths.integrals import even_nodes
from posteriori.maths.whitening import quadratic

__all__ = ["FittedGP", "FittedStack"]

_PREDICTION_SAMPLES = 64
"""The number of samples of hidden layers in a prediction."""


class _FittedByJAX:
    """What both kinds of fit share: they are read through the layer that the node sees, and its free parameters."""

    readout: SparseGP
    last: Free

    needs_jax = True

    @property
    def node(self) -> OutputNode:
        """The node that turns latents into probabilities."""
        return self.readout.likelihood.node(self.last["likelihood"])

    @property
    def scale(self) -> np.ndarray:
        """The scales sigma_k of the latent functions, (K,)."""
        return np.exp(self.last["log_scale"])

    @property
    def mislabelling(self) -> float:
        """The rate of mislabelled rows."""
        return float(np.exp(self.last["likelihood"].get("log_rate", -np.inf)))

    @property
    def inducing(self) -> np.ndarray:
        """The inducing inputs of the layer that the node reads, (M, D)."""
        return self.last["inducing"]

    def learned_kernel(self, unit: np.ndarray) -> Kernel:
        """The kernel as learned, of features in their own units."""
        return self.readout.kernel.learned(self.last["kernel"], unit)

    def predictive(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents that probabilities are computed from."""
        return self.latents(X)

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, K) and covariances (n, K, K) of the latent functions."""
        return latent_moments(*self.latents(X))

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents, without the node's noise."""
        raise NotImplementedError

    def prior_draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the prior of the layer that the node reads, as learned."""
        return prior_draws(self._gram(X), self.scale, n_draws, rng)

    def _gram(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.readout.kernel.gram(self.last["kernel"], X, X))


@dataclass(frozen=True)
class FittedGP(_FittedByJAX):
    """A fitted layer: its free parameters, and q(v) of every class."""

    readout: SparseGP
    last: Free
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution
    spread: float = 1.0

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (1, K, n) of the latents, without the node's noise."""
        moments = _layer_moments(self.readout, self.last, self.mean, self.covariance, X, self.solution.jitter)
        mean, variance = (np.asarray(a) for a in moments)
        return mean[None], variance[None]

    def draws(self, X: np.ndarray, spread: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the posterior, its variances multiplied by `spread`."""
        A = np.asarray(self.readout.project(self.last, jax.numpy.asarray(X), self.solution.jitter)[0])
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        latents = inducing_draws(A, self._gram(X), mean, covariance, self.scale, n_draws, rng)
        return widened(latents, self.scale[:, None] * (mean @ A), spread)


@dataclass(frozen=True)
class FittedStack(_FittedByJAX):
    """A fitted stack of layers: free parameters of all layers, and q(v) of the last."""

    model: StackedGP
    free: Free
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution

    @property
    def readout(self) -> SparseGP:  # type: ignore[override]
        """The last layer."""
        return self.model.last

    @property
    def last(self) -> Free:  # type: ignore[override]
        """The free parameters of the last layer."""
        return self.free["last"]

    @property
    def spread(self) -> float:
        """The factor on the variances of the latents: one, as tied sites are not calibrated."""
        return 1.0

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents, through samples that are the same for every row."""
        widths = [layer.width for layer in self.model.hidden]
        points = even_nodes(sum(widths), _PREDICTION_SAMPLES).points.T if widths else np.zeros((1, 0))
        noise = [part[:, None, :] for part in np.split(points, np.cumsum(widths)[:-1], axis=1)] if widths else []
        moments = _stack_moments(self.model, self.free, self.mean, self.covariance, X, noise, self.solution.jitter)
        S, K = len(points), self.mean.shape[0]
        mean, variance = (np.asarray(a).reshape(K, S, -1).swapaxes(0, 1) for a in moments)
        return mean, variance


@jax.jit(static_argnames="model")
def _layer_moments(model: SparseGP, free: Any, mean: Array, covariance: Array, X: Array, jitter: Array) -> Any:
    A, beyond = model.project(free, X, jitter)
    return model.functions(free, mean @ A, beyond + quadratic(covariance, A))


@jax.jit(static_argnames="model")
def _stack_moments(
    model: StackedGP, free: Any, mean: Array, covariance: Array, X: Array, noise: list[Array], jitter: Array
) -> Any:
    hidden = [(part["mean"], covariance_of(part["root"])) for part in free["hidden"]]
    h = model.propagate(free, hidden, X, noise, jitter)
    A, beyond = model.last.project(free["last"], h, jitter)
    return model.last.functions(free["last"], mean @ A, beyond + quadratic(covariance, A))
