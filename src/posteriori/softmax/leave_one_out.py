r"""The referee: how well an approximation predicts rows it has not seen, at no refit.

Leaving out a row removes its curvature from the posterior and its pull from the mode. In the space of its own logits
(less the last class's), with covariance V, probabilities p and curvature Lambda = diag p - p p^T,

.. math:: V_{-n} = (I - V\Lambda)^{-1} V, \qquad f_{-n} = f + V_{-n}(p - y).

For a variational posterior p and Lambda are averages over it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from posteriori.maths.integrals import (
    Nodes,
    cholesky_psd,
    log_expected_softmax,
    logits_at_nodes,
    normal_nodes,
    softmax_moments,
)
from posteriori.maths.quadratic import upper
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.rows.blocks import Blocks, random_rows
from posteriori.rows.products import logits
from posteriori.softmax.pairs import pair_products, reference_covariance
from posteriori.softmax.posterior import FullPosterior

__all__ = ["LeftOutLogits", "LeftOutScores", "Referee", "left_out", "left_out_logits", "without_rows"]

_ROWS = 4_000
"""Rows on which approximations and priors are compared: a random sample if there are more."""
_FLOPS, _LEAST = 4e8, 200
"""Rows x classes^3 that a comparison may cost, and the rows that it has in any case."""


class LeftOutScores(NamedTuple):
    """Log-probabilities (n,) of each row's own target under the other rows: of the posterior mean, and averaged."""

    plugin: np.ndarray
    averaged: np.ndarray


class Referee:
    """Rows of a fit, and how well they are predicted without being seen.

    Parameters
    ----------
    blocks : Blocks
        All rows, in the coordinates of the fit; of many rows a random sample is judged.
    K : int
    """

    def __init__(self, blocks: Blocks, K: int) -> None:
        self.blocks, self.K = blocks, K

    @cached_property
    def rows(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """The rows (n, D), their targets (n, K) and weights (n,)."""
        most = int(np.clip(_FLOPS / self.K**3, _LEAST, _ROWS))
        X, Y, c = random_rows(self.blocks, most, np.random.default_rng(0))
        return X, np.eye(self.K)[Y] if Y.ndim == 1 else Y, np.ones(len(Y)) if c is None else c

    def scores(self, posterior: FullPosterior, source: FullPosterior | None = None) -> LeftOutScores:
        """The log-probability of each row's target under the other rows, as in `left_out`."""
        X, Y, weights = self.rows
        return left_out(posterior, X, Y, np.minimum(weights, 1.0), source)

    def by_mode(self, posterior: FullPosterior) -> np.ndarray:
        """The log-probability of each row's target by the mode of the other rows, (n,)."""
        X, Y, weights = self.rows
        G = left_out_logits(posterior, X, Y, np.minimum(weights, 1.0)).mean
        return _own(log_softmax_in_place(G), Y)

    def loss(self, log_p: np.ndarray) -> float:
        """The mean log-loss of log-probabilities (n,)."""
        weights = self.rows[2]
        return float(-(weights @ log_p) / weights.sum())

    def gain(self, log_p: np.ndarray, other: np.ndarray) -> tuple[float, float]:
        """The log-loss of the second less that of the first, and its standard error, from the rows' differences."""
        weights = self.rows[2]
        share = weights / weights.sum()
        difference = log_p - other
        mean = float(share @ difference)
        return mean, float(np.sqrt(share @ (difference - mean) ** 2 / weights.sum()))


def left_out(
    posterior: FullPosterior,
    X: Any,
    Y: np.ndarray,
    share: np.ndarray,
    source: FullPosterior | None = None,
    n_nodes: int = 128,
) -> LeftOutScores:
    """Approximate leave-one-out log-probabilities (docs/theory.md, section 3.6).

    Parameters
    ----------
    X : (n, D)
        Rows of the fit.
    Y : ndarray (n, K)
        Targets of the rows.
    share : ndarray (n,)
        How much of each to leave out: one, or all of a row that weighs less.
    source : FullPosterior or None
        The posterior over which p and Lambda were averaged; None takes them at the mode.
    """
    nodes = normal_nodes(len(posterior.mean) - 1, n_nodes)
    G, left, _ = left_out_logits(posterior, X, Y, share, source, nodes)
    averaged = log_expected_softmax(logits_at_nodes(G, left, nodes), nodes.weights, G.shape)
    return LeftOutScores(_own(log_softmax_in_place(G), Y), _own(averaged, Y))


class LeftOutLogits(NamedTuple):
    """Each row's logits less the last one's, under the other rows.

    Attributes
    ----------
    mean : ndarray (K, n)
    covariance : ndarray (n, K - 1, K - 1)
    leverage : ndarray (n,)
        The largest share, over all contrasts of the logits, of what is known of them that the row itself has said.
    """

    mean: np.ndarray
    covariance: np.ndarray
    leverage: np.ndarray


def left_out_logits(
    posterior: FullPosterior,
    X: Any,
    Y: np.ndarray,
    share: np.ndarray,
    source: FullPosterior | None = None,
    nodes: Nodes | None = None,
) -> LeftOutLogits:
    """The logits of rows under the others, for a posterior; arguments are those of `left_out`."""
    K = len(posterior.mean)
    F = logits(X, posterior.mean)
    V = reference_covariance(posterior.pair_variances(X), K)
    if source is None:
        P = F.copy()
        softmax_in_place(P)
        return without_rows(F, V, P, pair_products(P), Y, share)
    assert nodes is not None
    spread = reference_covariance(source.pair_variances(X), K)
    _, P, products = softmax_moments(logits(X, source.mean), spread, nodes)
    return without_rows(F, V, P, products, Y, share)


def without_rows(
    F: np.ndarray, V: np.ndarray, P: np.ndarray, products: np.ndarray, Y: np.ndarray, share: np.ndarray
) -> LeftOutLogits:
    """The logits F (K, n) of rows, with covariance V, less what each row's own share of weight adds to them.

    See docs/theory.md, section 3.6.

    Parameters
    ----------
    F, P : ndarray (K, n)
        Logits and probabilities.
    V : ndarray (n, K - 1, K - 1)
        Covariance of the logits less the last one.
    products : ndarray (pairs, n)
        p_k p_l for k < l, perhaps averaged.
    Y : ndarray (n, K)
    share : ndarray (n,)
    """
    K, n = F.shape
    own = share[:, None, None] * _laplacian(products, K)[:, :-1, :-1]
    # with V = L L^T, (I - V own)^{-1} V = L (I - L^T own L)^{-1} L^T
    L = cholesky_psd(V)
    shares, U = np.linalg.eigh(L.transpose(0, 2, 1) @ own @ L)
    # rounding aside, a row cannot contribute more than all that is known about its logits
    half = (L @ U) / np.sqrt(1.0 - np.minimum(shares, 0.999))[:, None, :]
    left = half @ half.transpose(0, 2, 1)
    G = np.zeros((K, n))
    G[:-1] = F[:-1] - F[-1] + np.einsum("nij,nj->in", left, (share[:, None] * (P.T - Y))[:, :-1])
    return LeftOutLogits(G, left, shares[:, -1])


def _laplacian(products: np.ndarray, K: int) -> np.ndarray:
    """diag p - p p^T, averaged, (n, K, K), from p_k p_l for k < l, (pairs, n)."""
    k, m = upper(K, 1)
    out = np.zeros((products.shape[1], K, K))
    out[:, k, m] = out[:, m, k] = -products.T
    i = np.arange(K)
    out[:, i, i] = -out.sum(axis=2)
    return out


def _own(log_p: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """sum_k Y_nk log p_nk, with 0 log 0 = 0."""
    return np.einsum("nk,kn->n", Y, np.where(Y.T > 0, log_p, 0.0))
