r"""Probabilities of several models as one, with weights under which left-out labels are most probable.

The linear pool is a mixture, the log pool a product:

.. math:: p(k) = \sum_m w_m p_m(k), \quad w \ge 0,\ \sum_m w_m = 1, \qquad
          p(k) \propto \prod_m p_m(k)^{w_m}, \quad w \ge 0 .

The weights maximise the weighted log-probability of left-out labels (Yao, Vehtari, Simpson and Gelman, 2018) plus a
log-prior that is highest at equal weights, so that few rows do not decide much: for the mixture a Dirichlet worth
s rows, s / M of them for each model, for the product Gaussians N(1/M, 1/(4 s)) cut off at zero.

The mixture's maximum is found by the steps of the EM algorithm, none of which falls,

.. math:: w_m \leftarrow \frac{\sum_n c_n r_{nm} + s/M}{\sum_n c_n + s}, \qquad
          r_{nm} = \frac{w_m p_m(y_n)}{\sum_l w_l p_l(y_n)} .
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

__all__ = ["LEAST_LOG", "POOLS", "LinearPool", "LogPool"]

_STRENGTH = 3.0
"""The rows that equal weights are worth."""
_LEAST = 0.02
"""The weight below which a model might as well be left out."""
_MOSTLY_PRIOR = 1.5
"""A weight of up to so many times what a model has before any row counts owes nothing to the rows."""
_MOST_STEPS, _ENOUGH = 5000, 1e-10
LEAST_LOG = -30.0
"""The least log-probability that a product takes seriously."""


class LinearPool:
    """The mixture of models (docs/theory.md, section 7.3)."""

    name = "linear"

    def weights(self, log_p: np.ndarray, Y: np.ndarray, c: np.ndarray, strength: float = _STRENGTH) -> np.ndarray:
        """The weights (M,) for log-probabilities (M, n, K) of rows with targets Y (n, K) and weights c (n,).

        A soft label counts as one row for each class, with its share of the weight.

        Examples
        --------
        >>> log_p = np.log([[[0.9, 0.1]] * 50, [[0.2, 0.8]] * 50])
        >>> LinearPool().weights(log_p, np.tile([1.0, 0.0], (50, 1)), np.ones(50)).round(2)
        array([0.96, 0.04])
        """
        M = len(log_p)
        n, k = np.nonzero(Y * c[:, None])
        mass = c[n] * Y[n, k]
        own = log_p[:, n, k]
        best = own.max(axis=0)
        p = np.exp(own - np.where(np.isfinite(best), best, 0.0))  # (M, rows), the largest is one
        w = np.full(M, 1.0 / M)
        for _ in range(_MOST_STEPS):
            mixed = w @ p
            share = (w[:, None] * p) / np.where(mixed > 0.0, mixed, 1.0)
            new = (share @ mass + strength / M) / ((mixed > 0.0) @ mass + strength)
            moved, w = np.abs(new - w).max(), new
            if moved < _ENOUGH:
                break
        return w

    def negligible(self, w: np.ndarray, c: np.ndarray, strength: float = _STRENGTH) -> np.ndarray:
        """Whether a model might as well be left out, (M,), of weights that rows of weights c have chosen."""
        before = strength / len(w) / (c.sum() + strength)
        return (w < max(_LEAST, _MOSTLY_PRIOR * before)) & (w < w.max())

    def log_pooled(self, log_p: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The log-probabilities (n, K) of the mixture of (M, n, K)."""
        with np.errstate(divide="ignore"):
            return logsumexp(log_p + np.log(w)[:, None, None], axis=0)


class LogPool:
    """The product of models, each with a power (docs/theory.md, section 7.3)."""

    name = "log"

    def weights(self, log_p: np.ndarray, Y: np.ndarray, c: np.ndarray, strength: float = _STRENGTH) -> np.ndarray:
        """The powers (M,); arguments are those of `LinearPool.weights`."""
        M = len(log_p)
        held = np.maximum(log_p, LEAST_LOG)
        own = np.einsum("nk,mnk->mn", Y, held) @ c

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            mixed = np.einsum("m,mnk->nk", w, held)
            top = logsumexp(mixed, axis=1)
            P = np.exp(mixed - top[:, None])
            pull = 2.0 * strength * (w - 1.0 / M)
            value = c @ top - w @ own + 0.5 * float(pull @ (w - 1.0 / M)) * 2.0
            return float(value), np.einsum("n,nk,mnk->m", c, P, held) - own + 2.0 * pull

        found = minimize(loss, np.full(M, 1.0 / M), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * M)
        return np.asarray(found.x)

    def negligible(self, w: np.ndarray, c: np.ndarray, strength: float = _STRENGTH) -> np.ndarray:
        """Whether a model might as well be left out, (M,)."""
        return (w < _LEAST) & (w < w.max())

    def log_pooled(self, log_p: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The log-probabilities (n, K) of the product of (M, n, K)."""
        return log_softmax(np.einsum("m,mnk->nk", w, np.maximum(log_p, LEAST_LOG)), axis=1)


POOLS = {pool.name: pool for pool in (LinearPool(), LogPool())}
"""The ways to pool probabilities, by the names that users give."""
