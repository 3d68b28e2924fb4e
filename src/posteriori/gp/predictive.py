"""Fitted Gaussian processes, and predictions from their latents.

Latents of n rows have means and variances of shape (S, K, n), the likelihood's noise not included. They are Gaussian
(S = 1), or mixtures of S Gaussians where hidden layers are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np
from jax import Array

from posteriori.gp.ascent import Chunk
from posteriori.gp.energy import covariance_of
from posteriori.gp.kernels import Free
from posteriori.gp.likelihoods import Likelihood
from posteriori.gp.sparse import SparseGP
from posteriori.gp.stack import StackedGP
from posteriori.maths.integrals import even_nodes
from posteriori.maths.whitening import quadratic
from posteriori.solvers.solution import FitRecord, Status

__all__ = [
    "FittedGP",
    "FittedLatents",
    "FittedStack",
    "GPSolution",
    "drawn_probabilities",
    "latent_moments",
    "mean_probabilities",
]

_PREDICTION_SAMPLES = 64
"""The number of samples of hidden layers in a prediction."""


@dataclass(frozen=True)
class GPSolution(FitRecord):
    """The record of a fit of Gaussian processes.

    Attributes
    ----------
    status : Status
    energy : float
        The energy at the end; for expectation propagation the approximate log evidence.
    n_iter : int
        Steps of learning.
    n_passes : float
        Passes over all rows, the last sweeps included.
    jitter : float
        What was added to the diagonal of the inducing inputs' kernel matrix, in units of its mean.
    settled : bool or None
        Whether the sites came to their fixed point; None where there is none.
    trace : list of Chunk
        Energy, learning rate and seconds along the way.
    """

    status: Status
    energy: float
    n_iter: int
    n_passes: float
    jitter: float
    settled: bool | None = None
    trace: list[Chunk] = field(default_factory=list, repr=False)

    @property
    def objective(self) -> float:
        """Minus the energy: the number that the fit made small."""
        return -self.energy

    @property
    def seconds(self) -> float | None:
        """Time that learning took; None where nothing was learned."""
        return self.trace[-1].seconds if self.trace else None


class FittedLatents(Protocol):
    """The result of a fit: the layer that the likelihood reads, its free parameters, and the posterior of its latents.

    Predictions, learned parameters and storage read a fitted classifier through this protocol alone.
    """

    @property
    def readout(self) -> SparseGP:
        """The layer whose latents the likelihood reads."""

    @property
    def last(self) -> Free:
        """The free parameters of that layer."""

    @property
    def mean(self) -> np.ndarray:
        """The posterior means of its whitened inducing values, (K, M)."""

    @property
    def covariance(self) -> np.ndarray:
        """The posterior covariances of its whitened inducing values, (K, M, M)."""

    @property
    def solution(self) -> GPSolution:
        """The record of the fit."""

    @property
    def spread(self) -> float:
        """The factor on the variances of the latents."""

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents of standardised rows, without the likelihood's noise."""


@dataclass(frozen=True)
class FittedGP:
    """A fitted layer: its free parameters, and q(v) of every class."""

    readout: SparseGP
    last: Free
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution
    spread: float = 1.0

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (1, K, n) of the latents, without the likelihood's noise."""
        moments = _layer_moments(self.readout, self.last, self.mean, self.covariance, X, self.solution.jitter)
        mean, variance = (np.asarray(a) for a in moments)
        return mean[None], self.spread * variance[None]


@dataclass(frozen=True)
class FittedStack:
    """A fitted stack of layers: free parameters of all layers, and q(v) of the last."""

    model: StackedGP
    free: Free
    mean: np.ndarray
    covariance: np.ndarray
    solution: GPSolution

    @property
    def readout(self) -> SparseGP:
        """The last layer."""
        return self.model.last

    @property
    def last(self) -> Free:
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


def _flat(array: np.ndarray) -> np.ndarray:
    """(S, K, n) as (K, S n)."""
    return np.swapaxes(array, 0, 1).reshape(array.shape[1], -1)


def mean_probabilities(likelihood: Likelihood, free: Free, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E[p(k | h)], (K, n): the likelihood integrates over the classes' latents inside the mean over samples."""
    S, K, n = mean.shape
    P = likelihood.probabilities(free, _flat(mean), _flat(variance) + likelihood.noise)
    return P.reshape(K, S, n).mean(axis=1)


def latent_moments(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, K) and covariances (n, K, K) of the latents: within samples, and between them."""
    centre = mean.mean(axis=0)
    apart = mean - centre
    covariance = np.einsum("skn,sln->nkl", apart, apart) / len(mean)
    k = np.arange(mean.shape[1])
    covariance[:, k, k] += variance.mean(axis=0).T
    return centre.T, covariance


def drawn_probabilities(
    likelihood: Likelihood, free: Free, mean: np.ndarray, variance: np.ndarray, n_draws: int
) -> np.ndarray:
    """p(k | f) at about `n_draws` fixed draws of the latents of each row, (J, K, n)."""
    S, K, n = mean.shape
    z = even_nodes(K, n_draws).points.T
    # z and -z are half of all nodes apart: both meet the same sample, and each sample meets neighbours of the sequence
    half = len(z) // 2
    s = np.arange(len(z)) % half * S // half
    latent = mean[s] + np.sqrt(variance[s]) * z[:, :, None]
    P = likelihood.at(free, _flat(latent))
    return np.swapaxes(P.reshape(K, len(z), n), 0, 1)
