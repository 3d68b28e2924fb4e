r"""A posterior that is a mixture of Gaussians: averaged over something that is not known, as the strength of the prior.

.. math:: q(\theta) = \sum_s w_s\, N(\theta;\, m_s, S_s), \qquad
          \mathbb{E}\theta = m = \sum_s w_s m_s, \qquad
          \operatorname{cov}\theta = \sum_s w_s \big(S_s + (m_s - m)(m_s - m)^\top\big)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriori.maths.integrals import AtNodes, Nodes
from posteriori.maths.quadratic import upper
from posteriori.rows.products import logits
from posteriori.softmax.pairs import contrast_covariance
from posteriori.softmax.posterior import Posterior

__all__ = ["MixturePosterior"]

_BLOCK_VALUES = 1 << 19
"""The number of logits held at a time: rows x classes x nodes."""
_FEWEST = 32
"""Nodes of a member, at least."""


class MixturePosterior:
    """Gaussian posteriors of the same parameters, each with its weight.

    Parameters
    ----------
    members : sequence of Posterior
    weights : ndarray (m,)
        They sum to one.
    """

    gaussian = False

    def __init__(self, members: Sequence[Posterior], weights: np.ndarray) -> None:
        self.members, self.weights = list(members), np.asarray(weights, dtype=float)
        self.mean = np.einsum("s,skd->kd", self.weights, self._means)
        self.structure = self.members[0].structure

    @property
    def _means(self) -> np.ndarray:
        """m_s, (m, K, D')."""
        return np.stack([member.mean for member in self.members])

    @property
    def _distances(self) -> np.ndarray:
        """m_s - m, (m, K, D')."""
        return self._means - self.mean

    def covariance(self) -> np.ndarray:
        d = self._distances.reshape(len(self.weights), -1)
        inner = sum(w * member.covariance() for w, member in zip(self.weights, self.members, strict=True))
        return np.asarray(inner + d.T @ (self.weights[:, None] * d))

    def precision(self) -> np.ndarray:
        return np.linalg.inv(self.covariance())

    def variances(self) -> np.ndarray:
        return self._averaged("variances") + np.einsum("s,skd->kd", self.weights, self._distances**2)

    def draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._drawn("draws", n_draws, rng)

    def contrast_draws(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        return self._drawn("contrast_draws", n_draws, rng)

    def _drawn(self, name: str, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draws of the members, as many of each as chance has it, in random order."""
        counts = rng.multinomial(n_draws, self.weights)
        drawn = [getattr(member, name)(int(n), rng) for n, member in zip(counts, self.members, strict=True)]
        return rng.permutation(np.concatenate(drawn))

    def latent_covariance(self, X: Any) -> np.ndarray:
        F = self._logit_distances(X)
        return self._averaged("latent_covariance", X) + np.einsum("s,skn,sln->nkl", self.weights, F, F, optimize=True)

    def contrast_covariance(self, X: Any) -> np.ndarray:
        return contrast_covariance(self.pair_variances(X), len(self.mean))

    def contrast_variances(self, slopes: np.ndarray) -> np.ndarray:
        moved = np.einsum("mkd,skd->sm", slopes, self._distances)
        return self._averaged("contrast_variances", slopes) + self.weights @ moved**2

    def pair_variances(self, X: Any) -> np.ndarray:
        k, m = upper(len(self.mean), 1)
        F = self._logit_distances(X)
        return self._averaged("pair_variances", X) + np.einsum("s,spn->pn", self.weights, (F[:, k] - F[:, m]) ** 2)

    def _logit_distances(self, X: Any) -> np.ndarray:
        """Logits of rows by each member's mean, less those by the mean of all, (m, K, n)."""
        return np.stack([logits(X, d) for d in self._distances])

    def _averaged(self, name: str, *args: Any) -> np.ndarray:
        """The members' values of a method, averaged with their weights."""
        values = (w * getattr(member, name)(*args) for w, member in zip(self.weights, self.members, strict=True))
        return np.asarray(sum(values))

    @property
    def latent_size(self) -> int:
        return self.members[0].latent_size

    def size_of_each(self, size: int) -> int:
        """The number of nodes of each member, of `size` together."""
        return max(_FEWEST, size // len(self.members))

    def nodes(self, size: int, even: bool = False) -> Nodes:
        """Nodes of all members, one after the other: about as many together as asked for."""
        each = self.members[0].nodes(self.size_of_each(size), even)
        m = len(self.members)
        return Nodes(np.tile(each.points, m), np.multiply.outer(self.weights, each.weights).ravel())

    def at_nodes(self, X: Any, F: np.ndarray, nodes: Nodes) -> AtNodes:
        m, K, n = len(self.members), len(F), F.shape[1]
        S = nodes.weights.size // m
        each = Nodes(nodes.points[:, :S], nodes.weights[:S] / self.weights[0])
        size = max(1, _BLOCK_VALUES // (K * S * m))
        for start in range(0, n, size):
            rows = slice(start, min(n, start + size))
            out = np.empty((rows.stop - start, K, m * S))
            for s, (member, d) in enumerate(zip(self.members, self._distances, strict=True)):
                mean = F[:, rows] + logits(X[rows], d)
                for part, values in member.at_nodes(X[rows], mean, each):
                    out[part, :, s * S : (s + 1) * S] = values
            yield rows, out
