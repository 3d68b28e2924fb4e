"""Output nodes: from the latents of a row to the probabilities of its classes, by NumPy.

Latents are independent, h_k ~ N(mu_k, v_k), (K, n); their variances do not include the node's own noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.special

from posteriori.maths.integrals import even_nodes
from posteriori.maths.largest import largest_probabilities, log_largest_probabilities, probit_probabilities

__all__ = ["ArgmaxNode", "OutputNode", "SoftmaxNode", "log_mislabelled"]


_RATE_ENOUGH = 1e-9
"""A rate of mislabelled rows above which no probability of a class is too small for its logarithm to be taken."""


def log_mislabelled(log_z: np.ndarray, rate: float, K: int) -> np.ndarray:
    """The log-probability of a label from that of its class being the largest, with this rate of mislabelled rows."""
    if rate <= 1e-300:
        return log_z
    wrong = np.log(rate / (K - 1)) + np.log(np.maximum(-np.expm1(log_z), 1e-300))
    return np.logaddexp(np.log1p(-rate) + log_z, wrong)


class OutputNode(Protocol):
    """The probabilities of classes given latents."""

    def probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""

    def log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The logarithms of E[p(k | h)], right however small these are, (K, n)."""

    def at(self, latent: np.ndarray) -> np.ndarray:
        """p(k | f) where the latents f are known and only the noise is not, (K, n)."""

    def without_mislabelling(self) -> OutputNode:
        """The node of rows that all have the label of their class."""


@dataclass(frozen=True)
class ArgmaxNode:
    """The class of the largest latent, with noise of this variance, except for a rate of mislabelled rows."""

    noise: float
    rate: float

    def probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""
        return self._mislabelled(largest_probabilities(mean, variance + self.noise))

    def log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The logarithms of E[p(k | h)], (K, n)."""
        if self.rate > _RATE_ENOUGH:  # no probability is small
            return np.log(self.probabilities(mean, variance))
        return log_mislabelled(log_largest_probabilities(mean, variance + self.noise), self.rate, len(mean))

    def at(self, latent: np.ndarray) -> np.ndarray:
        """p(k | f) where the latents f are known and only the noise is not, (K, n)."""
        if self.noise > 0.0:
            return self._mislabelled(probit_probabilities(latent, self.noise))
        return self._mislabelled((np.arange(len(latent))[:, None] == latent.argmax(axis=0)).astype(float))

    def without_mislabelling(self) -> ArgmaxNode:
        """The node of rows that all have the label of their class."""
        return replace(self, rate=0.0)

    def _mislabelled(self, Z: np.ndarray) -> np.ndarray:
        """Class probabilities from the probabilities Z of being the largest."""
        return (1.0 - self.rate) * Z + self.rate / (len(Z) - 1) * (1.0 - Z)


@dataclass(frozen=True)
class SoftmaxNode:
    """Class probabilities softmax(h), averaged over fixed quasi-random nodes."""

    n_nodes: int = 128

    def probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """E[p(k | h)] for every class, (K, n)."""
        return np.exp(self._log_p(mean, variance)).mean(axis=1)

    def log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The logarithms of E[p(k | h)], (K, n)."""
        log_p = self._log_p(mean, variance)
        return scipy.special.logsumexp(log_p, axis=1) - np.log(log_p.shape[1])

    def at(self, latent: np.ndarray) -> np.ndarray:
        """softmax(f), (K, n)."""
        return scipy.special.softmax(latent, axis=0)

    def without_mislabelling(self) -> SoftmaxNode:
        """The node itself: it has no mislabelled rows."""
        return self

    def _log_p(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Log-softmax at the nodes, (K, J, n)."""
        z = even_nodes(len(mean), self.n_nodes).points
        return scipy.special.log_softmax(mean[:, None] + np.sqrt(variance)[:, None] * z[:, :, None], axis=0)
