r"""The log densities of a new row in every class, drawn from what is believed about the classes after that row too.

The class probabilities of a row x under parameters theta = (mu, Sigma) are p(k | x, theta) ~ pi_k N(x; mu_k, Sigma_k).
Before its class is known, x is itself a row that says something about theta: the posterior is a mixture over its class
h, with weights p(h | x), of beliefs that x as a row of class h has updated. Then, and only then, the mean of
p(k | x, theta) over the draws is the predictive p(k | x).

Of theta only l_k = log N(x; mu_k, Sigma_k) is needed, which depends on few numbers, however many features there are.
With W = Sigma^{-1} ~ Wishart(nu, Psi^{-1}), y = x - m and t = y^T Psi^{-1} y,

.. math:: y^\top W y = a t, \quad \log|W| = \log a + \sum_{i=2}^{p} \log \chi^2_{\nu - i + 1} - \log|\Psi|, \quad
          a \sim \chi^2_\nu, \quad
          (x - \mu)^\top W (x - \mu) = \frac{(z + \sqrt{\kappa a t})^2 + \chi^2_{d-1}}{\kappa}, \quad z \sim N(0, 1).

A row of class h updates kappa to kappa + 1, nu by s, y to f y and |Psi| by the factor 1 + f t, where
f = kappa / (kappa + 1) (Sherman and Morrison). S is the number of draws, B the number of independent parts of a row:
one, or D where covariances are diagonal.
"""

from __future__ import annotations

import numpy as np

from posteriori.gaussian.niw import Belief, inverse_cholesky

__all__ = ["drawn_by_distance", "drawn_by_products", "drawn_chi_square", "wishart_factors"]


def drawn_by_distance(
    t: np.ndarray, log_det: np.ndarray, belief: Belief, h: np.ndarray, D: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws of log densities, (S, K, n), up to a number for each row, where each class depends on its distances alone.

    Parameters
    ----------
    t : ndarray (K, B, n)
        Squared distances y^T Psi^{-1} y of the parts of each row; NaN where a part is missing.
    log_det : ndarray (J, B)
        log |Psi|.
    belief : Belief
    h : ndarray (S, n)
        The class that a row is taken to be of in each draw.
    D : int
    rng : numpy Generator
    """
    (K, B, n), S, structure = t.shape, len(h), belief.structure
    kappa, nu = (np.broadcast_to(values, (K, B)) for values in (belief.kappa, belief.nu))
    p, s = structure.dimension(D), structure.repeats(D)
    there = ~np.isnan(t[0])
    t = np.where(there, t, 0.0)
    z, rest = rng.standard_normal((S, K, B)), rng.chisquare(max(p * s - 1, 0), (S, K, B)) if p * s > 1 else 0.0
    rest = np.broadcast_to(rest, (S, K, B))
    before = _drawn_precisions(nu, p, s, structure.tied, S, rng)
    after = _drawn_precisions(nu + s, p, s, structure.tied, S, rng)
    factor = kappa / (kappa + 1.0)
    growth = 1.0 + factor[:, :, None] * t  # of |Psi|, if the row is of that class
    out = np.empty((S, K, n))
    for k in range(K):
        drawn = after if structure.tied else before  # a shared covariance is updated whatever the class
        grown = np.moveaxis(growth[h, :, np.arange(n)], 2, 1) if structure.tied else np.ones((1, B, 1))
        own = _log_density(drawn, k, kappa[k], t[k] / grown, z, rest)
        mine, rows = np.nonzero(h == k)
        if len(rows):
            closer = factor[k] ** 2 * (t[k] / growth[k]).T[rows]
            own[mine, :, rows] = _log_density_of_pairs(after, k, kappa[k] + 1.0, closer, z, rest, mine)
        if not structure.tied:
            own -= 0.5 * s * log_det[k][:, None]
            own[mine, :, rows] -= 0.5 * s * np.log(growth[k]).T[rows]
        out[:, k] = np.where(there, own, 0.0).sum(axis=1)
    return out


def _drawn_precisions(
    nu: np.ndarray, p: int, s: int, tied: bool, S: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a and of log |W Psi|, (S, K, B) each; the same for all classes where they share a covariance."""
    own = nu[:1] if tied else nu
    chi = drawn_chi_square(own, (S, *own.shape), rng)
    log_det = s * np.log(chi)
    for i in range(1, p):
        log_det += np.log(drawn_chi_square(own - i, (S, *own.shape), rng))
    return np.broadcast_to(chi, (S, *nu.shape)), np.broadcast_to(log_det, (S, *nu.shape))


def drawn_chi_square(nu: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Chi-square variables; those of few degrees of freedom that are too small for a number are the smallest number."""
    return np.maximum(rng.chisquare(nu, shape), np.finfo(np.float64).tiny)


def _log_density(
    drawn: tuple[np.ndarray, np.ndarray], k: int, kappa: np.ndarray, t: np.ndarray, z: np.ndarray, rest: np.ndarray
) -> np.ndarray:
    """log N(x; mu_k, Sigma_k) of all rows in all draws, (S, B, n), without the determinant of Psi."""
    a, log_det = drawn[0][:, k, :, None], drawn[1][:, k, :, None]
    kappa, z, rest = kappa[:, None], z[:, k, :, None], rest[:, k, :, None]
    return 0.5 * (log_det - (np.square(z + np.sqrt(kappa * a * t)) + rest) / kappa)


def _log_density_of_pairs(
    drawn: tuple[np.ndarray, np.ndarray],
    k: int,
    kappa: np.ndarray,
    t: np.ndarray,
    z: np.ndarray,
    rest: np.ndarray,
    draws: np.ndarray,
) -> np.ndarray:
    """log N(x; mu_k, Sigma_k) of pairs of a draw and a row, (pairs, B), without the determinant of Psi."""
    a, log_det = drawn[0][draws, k], drawn[1][draws, k]
    return 0.5 * (log_det - (np.square(z[draws, k] + np.sqrt(kappa * a * t)) + rest[draws, k]) / kappa)


def drawn_by_products(Z: np.ndarray, belief: Belief, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of log densities, (S, K, n), up to a number for each row, where all classes share one matrix.

    The distances y_k^T W y_k of all classes are drawn together: in coordinates of the space that the y_k span, W is a
    Wishart matrix of at most K dimensions.

    Parameters
    ----------
    Z : ndarray (n, D)
        Rows in the coordinates of the belief.
    belief, h, rng
        As in `drawn_by_distance`.
    """
    n, K, S, p = len(Z), len(belief.means), len(h), belief.structure.dimension(Z.shape[1])
    A = inverse_cholesky(belief.Psi)[0][0]
    Y, apart = _in_few_coordinates((Z - belief.means[0]) @ A.T, (belief.means[0] - belief.means) @ A.T)
    kappa = np.broadcast_to(belief.kappa, (K, 1))[:, 0]
    factors = wishart_factors(float(belief.nu[0, 0]) + 1.0, Y.shape[1], S, rng)
    z, rest = rng.standard_normal((S, K)), rng.chisquare(p - 1, (S, K)) if p > 1 else np.zeros((S, K))
    out = np.empty((S, K, n))
    for k in range(K):
        draws, rows = np.nonzero(h == k)
        if not len(rows):
            continue
        seen, place = np.unique(rows, return_inverse=True)
        R = _in_updated_units(Y[seen] + apart[k], apart - apart[k], k, kappa[k] / (kappa[k] + 1.0))
        t = np.square(R[place] @ factors[draws]).sum(axis=2)
        after = kappa + (np.arange(K) == k)
        out[draws, :, rows] = -0.5 * (np.square(z[draws] + np.sqrt(after * t)) + rest[draws]) / after
    return out


def _in_few_coordinates(Y: np.ndarray, apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, r) and differences of means (K, r) in at most K coordinates: those of the differences, and one more.

    The last is the length of what is left of a row, in a direction of its own. A rotation of Y and `apart` changes
    nothing.
    """
    if Y.shape[1] <= len(apart):
        return Y, apart
    Q, R = np.linalg.qr(apart[1:].T)
    Q = np.where(R.diagonal() < 0.0, -Q, Q)
    inside = Y @ Q
    left = np.sqrt(np.square(Y - inside @ Q.T).sum(axis=1))
    return np.column_stack([inside, left]), np.column_stack([apart @ Q, np.zeros(len(apart))])


def _in_updated_units(y: np.ndarray, apart: np.ndarray, k: int, f: float) -> np.ndarray:
    """y_j = y + apart_j in units of I + f y y^T, (n, K, r), the y of class k then shortened by f.

    The root of the inverse is I - c u u^T with u = y / |y| and c = 1 - 1 / sqrt(1 + f |y|^2); a row far away loses no
    digits, as y itself is only divided by the root of 1 + f |y|^2.
    """
    squares = np.einsum("nr,nr->n", y, y)[:, None]
    root, u = np.sqrt(1.0 + f * squares), y / np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    along = (1.0 - 1.0 / root) * (u @ apart.T)
    R = (y / root)[:, None, :] + apart - along[:, :, None] * u[:, None, :]
    R[:, k] *= f
    return R


def wishart_factors(nu: float, r: int, S: int, rng: np.random.Generator) -> np.ndarray:
    """Lower triangular A with A A^T ~ Wishart(nu, I), (S, r, r), as Bartlett draws them."""
    A = np.tril(rng.standard_normal((S, r, r)), -1)
    A[:, np.arange(r), np.arange(r)] = np.sqrt(rng.chisquare(nu - np.arange(r), (S, r)))
    return A
