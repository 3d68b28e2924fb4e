r"""The probability of each of K independent Gaussians to be the largest (docs/theory.md, section 6.2), by NumPy.

For h_k ~ N(mu_k, v_k) with distribution functions \Phi_k and densities \phi_k,

.. math:: Z_k = \int \phi_k(t) \prod_{j \ne k} \Phi_j(t)\, dt .

`maths.argmax` has the same integral with its derivatives, for JAX. Arrays are (K, n): classes first.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

__all__ = [
    "largest_probabilities",
    "log_largest",
    "log_largest_probabilities",
    "log_largest_slopes",
    "pair_probabilities",
    "probit_probabilities",
]

_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
_FALL = 38.0
"""The fall of the log-integrand from its top to the ends of the panels: exp(-38) = 3e-17."""
_NODES, _MODE_STEPS, _END_STEPS = 32, 12, 10
_FAST_NODES, _FAST_MODE_STEPS, _FAST_END_STEPS = 16, 4, 3
_GRID_NODES, _PROBIT_NODES = 96, 40
_FEW_CLASSES, _MANY_CLASSES = 5, 20
"""Up to the first number of classes fewer nodes are enough where all variances are the same; above the second, the
distribution of the maximum is so narrow that twice as many are needed."""
_GRID_ENOUGH = 1e-9
"""A row whose probabilities sum to one within this is good; others are integrated class by class."""
_SMALL = 1e-6
"""A probability below this is integrated by itself where its logarithm is asked for."""
_BLOCK = 2**21
"""The number of values of K Gaussians at all nodes that are computed together, at most."""


def largest_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The probability of each class to be the largest, (K, n), for any scales.

    All classes share one grid over the distribution of the maximum, F(t) = prod_k Phi_k(t),

        Z_k = int phi_k(t) / Phi_k(t) F(t) dt,

    which costs K evaluations for each node and row instead of K^2. Their sum tells how good it was; rows whose standard
    deviations differ too much for one grid are integrated again, one class at a time.
    """
    if len(mean) == 2:
        return pair_probabilities(mean, variance)
    P = _on_common_grid(mean, variance, _GRID_NODES if len(mean) <= _MANY_CLASSES else 2 * _GRID_NODES)
    wrong = np.flatnonzero(~(np.abs(P.sum(axis=0) - 1.0) < _GRID_ENOUGH))
    if len(wrong):
        P[:, wrong] = np.exp(_class_by_class(mean[:, wrong], variance[:, wrong]))
    return P / P.sum(axis=0)


def log_largest_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Logarithms of `largest_probabilities`, right however small these are, (K, n)."""
    if len(mean) == 2:
        margin = (mean[0] - mean[1]) / np.sqrt(variance[0] + variance[1])
        return np.stack([log_ndtr(margin), log_ndtr(-margin)])
    P = largest_probabilities(mean, variance)
    log_p = np.log(np.maximum(P, _SMALL))
    k, i = np.nonzero(P < _SMALL)
    log_p[k, i] = log_largest(mean[:, i], variance[:, i], k)
    return log_p


def pair_probabilities(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The probability of each of two classes to be the larger, (2, n): Phi(+-(mu_1 - mu_2) / sqrt(v_1 + v_2))."""
    margin = (mean[0] - mean[1]) / np.sqrt(variance[0] + variance[1])
    return np.stack([ndtr(margin), ndtr(-margin)])


def probit_probabilities(mean: np.ndarray, noise: float) -> np.ndarray:
    """The probability of each class to be the largest, (K, n), where all variances are `noise`: right to 1e-6."""
    if len(mean) == 2:
        return pair_probabilities(mean, np.full(mean.shape, noise))
    n_nodes = _PROBIT_NODES if len(mean) <= _FEW_CLASSES else _GRID_NODES
    P = _on_common_grid(mean, np.broadcast_to(noise, mean.shape), n_nodes)
    return P / P.sum(axis=0)


def log_largest(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The log-probability that class y (n,) is the largest, (n,).

    Panels of Gauss-Legendre nodes meet at the mode of the log-concave integrand and end where it has fallen by exp(38);
    the rise at the low end, which a rival of small variance makes steep, has a panel of its own. Newton's steps towards
    the mode start to its left, those towards the ends outside of them; as the slope is convex, none overshoots.
    """
    i = np.arange(mean.shape[1])
    if len(mean) == 2:
        return log_ndtr((mean[y, i] - mean[1 - y, i]) / np.sqrt(variance.sum(axis=0)))
    integrand = _Integrand.of(mean, variance, y)
    t, log_w = integrand.nodes(_NODES, _MODE_STEPS, _END_STEPS, steep=True)
    return logsumexp(integrand.height(t) + log_w, axis=0) - _HALF_LOG_2PI - 0.5 * np.log(variance[y, i])


def log_largest_slopes(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""`log_largest` with its derivatives by all means and variances, (n,), (K, n) and (K, n), from fewer nodes.

    With pi_j the share of node t_j in Z_y, d_kj = (t_j - mu_k)/sigma_k and r = phi(d)/Phi(d),

    .. math::
        \partial_{\mu_k} \log Z_y = -\sum_j \pi_j r_{kj}/\sigma_k, \quad
        \partial_{v_k} \log Z_y = -\sum_j \pi_j r_{kj} d_{kj}/(2 v_k), \quad
        \partial_{\mu_y} = -\sum_{k \ne y} \partial_{\mu_k}, \quad
        \partial_{v_y} \log Z_y = \sum_j \pi_j (d_{yj}^2 - 1)/(2 v_y) .
    """
    i = np.arange(mean.shape[1])
    integrand = _Integrand.of(mean, variance, y)
    t, log_w = integrand.nodes(_FAST_NODES, _FAST_MODE_STEPS, _FAST_END_STEPS, steep=False)
    d = (t - integrand.mean[:, None]) / integrand.sd[:, None]
    log_cdf = log_ndtr(d)
    gap = t - integrand.mean_y
    height = log_w - 0.5 * gap * gap / integrand.variance_y + log_cdf.sum(axis=0)
    log_z = logsumexp(height, axis=0)
    share = np.exp(height - log_z)
    r = share * np.exp(-0.5 * d * d - _HALF_LOG_2PI - log_cdf)
    of_means = -r.sum(axis=1) / integrand.sd
    of_variances = -(r * d).sum(axis=1) / (2.0 * integrand.variance)
    by_mean, by_variance = np.empty_like(mean), np.empty_like(mean)
    by_mean[integrand.rivals, i], by_variance[integrand.rivals, i] = of_means, of_variances
    by_mean[y, i] = -of_means.sum(axis=0)
    by_variance[y, i] = (share * (gap * gap / integrand.variance_y - 1.0)).sum(axis=0) / (2.0 * integrand.variance_y)
    return log_z - _HALF_LOG_2PI - 0.5 * np.log(integrand.variance_y), by_mean, by_variance


class _Integrand:
    """log N(t; mu_y, v_y) without its constant, plus the sum of log Phi_k(t) over rivals k, for n rows."""

    rivals: np.ndarray

    def __init__(self, mean_y: np.ndarray, variance_y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
        self.mean_y, self.variance_y, self.mean, self.variance = mean_y, variance_y, mean, variance
        self.sd = np.sqrt(variance)

    @classmethod
    def of(cls, mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> _Integrand:
        """The integrands of rows of classes y, their rivals in the order of classes."""
        K, n = mean.shape
        i = np.arange(n)
        rivals = np.array([[k for k in range(K) if k != r] for r in range(K)]).T[:, y]
        out = cls(mean[y, i], variance[y, i], mean[rivals, i], variance[rivals, i])
        out.rivals = rivals
        return out

    def nodes(self, n_nodes: int, mode_steps: int, end_steps: int, *, steep: bool) -> tuple[np.ndarray, np.ndarray]:
        """Nodes (J, n) of panels that meet at the mode, and the logarithms of their weights."""
        mode = self.mode(mode_steps)
        low, high = self.ends(mode, end_steps)
        bounds = [low, mode, high]
        if steep:  # were the rise half a Gaussian, it would end here
            bounds.insert(1, np.minimum(low + 2.0 * _FALL / self.curve(low)[1], mode))
        x, w = np.polynomial.legendre.leggauss(n_nodes)
        x, log_w = 0.5 * (x + 1.0)[:, None], np.log(0.5 * w)[:, None]
        panels = list(pairwise(bounds))
        t = np.concatenate([a + (b - a) * x for a, b in panels])
        return t, np.concatenate([log_w + np.log(np.maximum(b - a, 1e-300)) for a, b in panels])

    def height(self, t: np.ndarray) -> np.ndarray:
        """The log-integrand at nodes t (J, n)."""
        gap = t - self.mean_y
        return -0.5 * gap * gap / self.variance_y + log_ndtr((t - self.mean[:, None]) / self.sd[:, None]).sum(axis=0)

    def curve(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The log-integrand, its slope, and minus its curvature, at one t per row."""
        d = (t - self.mean) / self.sd
        log_cdf = log_ndtr(d)
        r = np.exp(-0.5 * d * d - _HALF_LOG_2PI - log_cdf)
        gap = t - self.mean_y
        return (
            -0.5 * gap * gap / self.variance_y + log_cdf.sum(axis=0),
            -gap / self.variance_y + (r / self.sd).sum(axis=0),
            1.0 / self.variance_y + (r * (r + d) / self.variance).sum(axis=0),
        )

    def mode(self, n_steps: int) -> np.ndarray:
        """The t at which the integrand is largest, (n,).

        As r(d) >= -d, the mode with any single rival, were Phi a Gaussian tail, is no further right than the true one.
        """
        with_rival = (self.mean_y * self.variance + self.mean * self.variance_y) / (self.variance + self.variance_y)
        t = np.where(self.mean > self.mean_y, with_rival, self.mean_y).max(axis=0)
        for _ in range(n_steps):
            _, slope, curvature = self.curve(t)
            t = t + slope / curvature
        return t

    def ends(self, mode: np.ndarray, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The t on both sides of the mode at which the log-integrand has fallen by 38, (n,) each.

        Its curvature grows to the left and falls to 1/v_y on the right: two parabolas bound both ends from outside.
        """
        top, _, curvature = self.curve(mode)
        width = np.sqrt(2.0 * _FALL)
        ends = []
        for t in (mode - width / np.sqrt(curvature), mode + width * np.sqrt(self.variance_y)):
            for _ in range(n_steps):
                height, slope, _ = self.curve(t)
                t = t - (height - top + _FALL) / slope
            ends.append(t)
        return ends[0], ends[1]


def _on_common_grid(mean: np.ndarray, variance: np.ndarray, n_nodes: int) -> np.ndarray:
    K, n = mean.shape
    size = max(1, _BLOCK // (K * n_nodes))
    blocks = [slice(first, first + size) for first in range(0, n, size)]
    parts = [_on_grid_of_block(mean[:, block], variance[:, block], n_nodes) for block in blocks]
    return np.concatenate(parts, axis=1) if parts else np.zeros((K, 0))


def _on_grid_of_block(mean: np.ndarray, variance: np.ndarray, n_nodes: int) -> np.ndarray:
    sd = np.sqrt(variance)
    reach = np.sqrt(2.0 * _FALL)
    low, high = (mean - reach * sd).max(axis=0), (mean + reach * sd).max(axis=0)
    x, w = np.polynomial.legendre.leggauss(n_nodes)
    t = low + (high - low) * (x[:, None] + 1.0) / 2.0
    d = (t - mean[:, None]) / sd[:, None]
    log_cdf = log_ndtr(d)
    density = np.exp(log_cdf.sum(axis=0) - log_cdf - 0.5 * d * d - _HALF_LOG_2PI)
    return np.einsum("kjn,j->kn", density, 0.5 * w) * (high - low) / sd


def _class_by_class(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    n = mean.shape[1]
    return np.stack([log_largest(mean, variance, np.full(n, k)) for k in range(len(mean))])
