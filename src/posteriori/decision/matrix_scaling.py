r"""A linear map of log-probabilities around the one that changes nothing, each part as strong as the evidence says.

With x = (z, 1) for log-probabilities z (K,), the map and its prior are

.. math:: p' = \mathrm{softmax}(W z + b), \qquad W = (1 + t) I + \mathrm{diag}(d) + O,

one change of temperature t, a slope d_k for each class, O (zero on its diagonal) for what one class tells of another,
and offsets b. Each part is N(0, sigma_g^2) with a sigma of its own. In units of the prior, (W - I, b) = B u with
u ~ N(0, I). The log-likelihood l is concave, so that Newton's method finds the mode, where Laplace's evidence is

.. math:: E(\sigma) = \ell(B \hat u) - \tfrac12 \lVert \hat u \rVert^2 - \tfrac12 \log |A|,
          \qquad A = I + B^T H B, \quad H = -\nabla^2 \ell .

The four sigma maximise E less the sum of sigma_g / s_g: under this exponential prior a part that the rows do not ask
for has sigma near 0, and stays where it is. The slope of E has the mode follow sigma: with S = B A^{-1} B^T held fixed,

.. math:: \frac{d E}{d \log \sigma_g^2} = \tfrac12 \sum_{i \in g} \Big( \hat u_i^2 - \big(1 - [A^{-1}]_{ii}\big)
          - [A^{-1} B^T \nabla \operatorname{tr}(S H)]_i \, \hat u_i \Big) .

Before the rows are seen anything moves with probability `MOVES` = 0.1 only. So the change that was found is multiplied
by its probability, 1 / (1 + exp(-gain) (1 - MOVES) / MOVES), where the gain is the maximum less the log-likelihood of
no change: the map stays linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit

from posteriori.decision.temperature import MOVES
from posteriori.maths.linalg import cholesky
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.threads import one_blas_thread

__all__ = ["MatrixScaling", "fit_matrix_scaling"]

PARTS = ("temperature", "slopes", "others", "offsets")
"""t, d, O and b."""

MOST_CLASSES = 30
"""Up to so many classes one class may tell of another: the Hessian has a row for each pair."""
_TEMPERATURE = 0.5
"""s_g of the change of temperature; those of the other parts are such that all of a part moves a logit about as far."""
_LOWEST, _HIGHEST = 1e-3, 10.0
"""Bounds of sigma_g / s_g."""
_CLOSE, _CLOSEST = 1e-7, 1e-13
"""Newton decrements, in nats, at which modes are close enough in the search, and at its end."""
_MOST_STEPS = 100
_SHORTEST = 1e-6
"""Share of a Newton step below which a function cannot be seen to rise."""
_MOST_EVALUATIONS = 40
_AFFORDABLE, _FEWEST_ROWS = 5e7, 1000
"""Rows times the squared number of entries that a search of the sigma may look at; rows that it always looks at."""
_BLOCK = 2**20
"""Entries of rows that are looked at together."""


@dataclass(frozen=True)
class MatrixScaling:
    """The map of log-probabilities z (n, K) to log softmax(W z + b).

    Attributes
    ----------
    W : ndarray (K, K)
    b : ndarray (K,)
    spreads : dict
        The sigma of each part: "temperature", "slopes", "others" and "offsets".
    gain : float
        Log evidence of a change, with the prior of its sigma, less that of none, in nats.
    """

    W: np.ndarray
    b: np.ndarray
    spreads: dict[str, float]
    gain: float

    def log_proba(self, Z: np.ndarray) -> np.ndarray:
        """Logarithms of the mapped probabilities, (n, K)."""
        return log_softmax(Z @ self.W.T + self.b, axis=1)


def fit_matrix_scaling(Z: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> MatrixScaling:
    """The map for log-probabilities of rows that were not seen (docs/theory.md, section 7.2).

    Parameters
    ----------
    Z : ndarray (n, K)
        Finite log-probabilities, each row predicted by a fit without it.
    codes : ndarray of int (n,)
        The true classes.
    weights : ndarray (n,), optional
        How often each row counts.

    Examples
    --------
    The first class was taken for half as frequent as it is:

    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet([1.0, 1.0], 2000)
    >>> first = rng.random(2000) < 2 * P[:, 0] / (1 + P[:, 0])
    >>> found = fit_matrix_scaling(np.log(P), np.where(first, 0, 1))
    >>> float((found.b[0] - found.b[1]).round(1)), found.W.round(1)
    (0.6, array([[ 1., -0.],
           [ 0.,  1.]]))
    """
    c = np.ones(len(Z)) if weights is None else weights
    K, used = Z.shape[1], c > 0
    with one_blas_thread():
        evidence = _Evidence(Z[used], codes[used], c[used])
        sigma = _likeliest(evidence.sample())
        value, _ = evidence(sigma)
        change, _ = evidence.mode(sigma, _CLOSEST)
        gain = value - float((sigma / _scales(K)).sum()) - evidence.log_likelihood(np.zeros((K, K + 1)))
    change *= expit(gain + logit(MOVES))
    spreads = dict(zip(PARTS, sigma.tolist(), strict=True))
    return MatrixScaling(np.eye(K) + change[:, :K], change[:, K], spreads, gain)


def _likeliest(evidence: _Evidence) -> np.ndarray:
    """The four sigma that maximise the evidence less sigma_g / s_g."""
    scales = _scales(len(evidence.own))

    def minus(log_variances: np.ndarray) -> tuple[float, np.ndarray]:
        sigma = np.exp(0.5 * log_variances)
        value, slope = evidence(sigma)
        return float((sigma / scales).sum() - value), 0.5 * sigma / scales - slope

    start = 2.0 * np.log(scales)
    found = minimize(
        minus,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(u + 2.0 * np.log(_LOWEST), u + 2.0 * np.log(_HIGHEST)) for u in start],
        options={"maxfun": _MOST_EVALUATIONS, "gtol": 1e-2, "ftol": 1e-7},
    )
    return np.exp(0.5 * found.x)


def _scales(K: int) -> np.ndarray:
    """s_g for K classes: 1 / sqrt(2 K) of slopes and offsets; of others the same, shared by the K - 1 of each class."""
    each = 1.0 / np.sqrt(2.0 * K)
    return np.array([_TEMPERATURE, each, each / np.sqrt(max(K - 1.0, 1.0)), each])


class _Evidence:
    """Laplace's evidence of the four sigma, each mode found from the last.

    A change theta (K, K + 1) = (W - I, b) is known by its entries (k, j) that may differ from zero, a vector. B u is
    sigma_i u_i for each entry and, where j = k, sigma_t u_0 besides, the change of temperature.
    """

    def __init__(self, Z: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        n, K = Z.shape
        self.shape = (K, K + 1)
        self.codes, self.weights = codes, weights
        self.X = np.vstack([Z.T, np.ones(n)])
        k, j = (index.ravel() for index in np.indices(self.shape))
        part = np.where(j == K, 3, np.where(j == k, 1, 2))
        free = part != 2 if K > MOST_CLASSES else np.full(part.size, True)
        self.k, self.j, self.part = k[free], j[free], np.append(0, part[free])
        self.diagonal = (self.k == self.j).astype(float)
        self.own = [np.flatnonzero(self.k == k) for k in range(K)]
        self.u = np.zeros(self.part.size)

    def sample(self) -> _Evidence:
        """That of evenly spread rows, as many as a search can afford: a sigma is no larger where rows are many."""
        step = max(1, int(self.codes.size * self.k.size**2 / _AFFORDABLE))
        rows = slice(None, None, min(step, max(1, self.codes.size // _FEWEST_ROWS)))
        return _Evidence(self.X[:-1, rows].T, self.codes[rows], self.weights[rows])

    def __call__(self, sigma: np.ndarray) -> tuple[float, np.ndarray]:
        """E(sigma), and its slope in the four log sigma^2."""
        theta, factor = self.mode(sigma, _CLOSE)
        u, scale = self.u, sigma[self.part]
        inverse = cho_solve((factor, True), np.eye(u.size))
        spread = scale[1:, None] * inverse[1:] + scale[0] * np.outer(self.diagonal, inverse[0])  # B A^{-1}
        S = spread[:, 1:] * scale[1:] + scale[0] * np.outer(spread[:, 0], self.diagonal)
        follows = spread.T @ self._trace_slope(theta, S)
        slope = 0.5 * (u**2 - (1.0 - inverse.diagonal()) - follows * u)
        value = self.log_likelihood(theta) - 0.5 * float(u @ u) - float(np.log(factor.diagonal()).sum())
        return value, np.bincount(self.part, slope, len(PARTS))

    def mode(self, sigma: np.ndarray, close: float) -> tuple[np.ndarray, np.ndarray]:
        """The change theta = B u of highest posterior density to a decrement in nats, and A's lower factor there."""
        scale = sigma[self.part]

        def change(u: np.ndarray) -> np.ndarray:
            theta = np.zeros(self.shape)
            theta[self.k, self.j] = scale[1:] * u[1:] + scale[0] * u[0] * self.diagonal
            return theta

        def height(u: np.ndarray) -> float:
            return self.log_likelihood(change(u)) - 0.5 * float(u @ u)

        u, value = self.u, height(self.u)
        for _ in range(_MOST_STEPS):
            theta = change(u)
            P = self._probabilities(theta)
            slope = self._slope(P)
            slope = np.append(scale[0] * (self.diagonal @ slope), scale[1:] * slope) - u
            factor = cholesky(self._precision(P, scale))
            step = cho_solve((factor, True), slope)
            decrement = 0.5 * float(slope @ step)
            if decrement <= close:
                break
            length, new = 1.0, height(u + step)
            while not new >= value + 0.1 * length * decrement and length > _SHORTEST:
                length *= 0.5
                new = height(u + length * step)
            if not new > value:  # as high as numbers can tell
                break
            u, value = u + length * step, new
        self.u = u
        return theta, factor

    def log_likelihood(self, theta: np.ndarray) -> float:
        """Sum of c log p' at the true classes."""
        F = log_softmax_in_place(self._logits(theta))
        return float(F[self.codes, np.arange(self.codes.size)] @ self.weights)

    def _logits(self, theta: np.ndarray) -> np.ndarray:
        """W z + b, (K, n)."""
        return self.X[:-1] + theta @ self.X

    def _probabilities(self, theta: np.ndarray) -> np.ndarray:
        P = self._logits(theta)
        softmax_in_place(P)
        return P

    def _slope(self, P: np.ndarray) -> np.ndarray:
        """The gradient of the log-likelihood, sum of c (y_k - p_k) x_j."""
        R = -P
        R[self.codes, np.arange(self.codes.size)] += 1.0
        return ((R * self.weights) @ self.X.T)[self.k, self.j]

    def _blocks(self, P: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Weights, x and p of some rows, and the derivatives of sum_k p_k f_k for fixed p, p_k x_j."""
        step = max(1, _BLOCK // self.k.size)
        for start in range(0, P.shape[1], step):
            rows = slice(start, start + step)
            X, P_rows = self.X[:, rows], P[:, rows]
            yield self.weights[rows], X, P_rows, P_rows[self.k] * X[self.j]

    def _precision(self, P: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """A = I + B^T H B, where H has sum of c p_k (delta_kl - p_l) x_j x_m at the entries (k, j) and (l, m)."""
        H = np.zeros((self.k.size, self.k.size))
        for c, X, P_rows, G in self._blocks(P):
            H -= (G * c) @ G.T
            for k, own in enumerate(self.own):
                x = X[self.j[own]]
                H[np.ix_(own, own)] += (x * (c * P_rows[k])) @ x.T
        A = np.empty((scale.size, scale.size))
        common = H @ self.diagonal
        A[1:, 1:] = scale[1:, None] * H * scale[1:]
        A[0, 1:] = A[1:, 0] = scale[0] * scale[1:] * common
        A[0, 0] = scale[0] ** 2 * (self.diagonal @ common)
        A[np.diag_indices_from(A)] += 1.0
        return A

    def _trace_slope(self, theta: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The gradient of tr(S H) in theta.

        With Q the covariance of a row's logits under S, the trace is the sum of c (sum_k p_k Q_kk - p^T Q p), and its
        derivative by logit k is c p_k (r_k - sum_l p_l r_l) where r_k = Q_kk - 2 (Q p)_k.
        """
        out = np.zeros(self.shape)
        for c, X, P, G in self._blocks(self._probabilities(theta)):
            SG = S @ G
            R = np.empty_like(P)
            for k, own in enumerate(self.own):
                x = X[self.j[own]]
                R[k] = (x * (S[np.ix_(own, own)] @ x - 2.0 * SG[own])).sum(axis=0)
            out += (P * (R - (P * R).sum(axis=0)) * c) @ X.T
        return out[self.k, self.j]
