r"""Independent latents that compete as dependent ones do.

Only differences of latents matter for which is the largest. Latents with covariance V are replaced by independent ones
whose differences have, as nearly as possible, the same variances,

.. math:: \min_v \sum_{k < l} w_{kl} (v_k + v_l - D_{kl})^2, \qquad D_{kl} = V_{kk} + V_{ll} - 2 V_{kl},

where pairs count by w_kl = p_k p_l, the probabilities of their classes: the few classes that can win are matched
closely. For two and three classes all pairs are matched exactly. One-dimensional integrals then serve for any V.
"""

from __future__ import annotations

import numpy as np

from posteriori.maths.largest import largest_probabilities

__all__ = ["independent_variances"]

_UNLIKELY = 0.01
"""The probability with which a class counts at least."""
_ROUNDS = 2
"""The number of times that probabilities and variances are found in turn."""
_LEAST = 0.05
"""The least variance that is returned, in units of the noise: a difference can have less than noise explains."""


def independent_variances(mean: np.ndarray, covariance: np.ndarray, noise: float) -> np.ndarray:
    """Variances (K, n), noise not included, of independent latents that stand for those with these moments.

    Parameters
    ----------
    mean : ndarray (K, n)
    covariance : ndarray (n, K, K)
    noise : float
        The variance of the noise that is added to every latent.
    """
    K = len(mean)
    own = np.einsum("nkk->nk", covariance)
    apart = own[:, :, None] + own[:, None, :] - 2.0 * covariance
    least = _LEAST * noise - noise
    if K == 2:
        return np.maximum(np.stack([0.5 * apart[:, 0, 1]] * 2), least)
    v = _matched(apart, np.ones_like(apart))
    for _ in range(_ROUNDS if K > 3 else 0):
        P = largest_probabilities(mean, np.maximum(v, least) + noise).T + _UNLIKELY
        v = _matched(apart, P[:, :, None] * P[:, None, :])
    return np.maximum(v, least)


def _matched(apart: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The v (K, n) of least weighted squares: (W + diag(W 1)) v = (W o D) 1, W without its diagonal."""
    k = np.arange(apart.shape[1])
    weight[:, k, k] = 0.0
    right = (weight * apart).sum(axis=2)
    weight[:, k, k] = weight.sum(axis=2)
    return np.linalg.solve(weight, right[:, :, None])[:, :, 0].T
