r"""Bayesian softmax regression as one would do it by hand: each function is one formula, for few rows and classes.

Conventions: X (N, D) begins with a column of ones, Y (N, K) is one-hot, W (K, D) holds one row of weights per class,
all with the prior N(0, 1/alpha). A vector over all weights runs through W row by row: w_11, w_12, ..., w_KD.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.softmax.pairs import contrasts

__all__ = [
    "NewtonLine",
    "contributions",
    "covariance",
    "cross_entropy",
    "curvature_weights",
    "expected_utility",
    "gradient",
    "hessian",
    "latent",
    "log_determinant",
    "log_prior",
    "log_softmax",
    "logits",
    "newton",
    "objective",
    "softmax",
]

_CONVERGED = 1e-26
"""Newton's method ends when it promises to lower J by less; its last step then moved W by about 1e-13."""
_STALLED = 1e-12
"""It also ends where rounding forbids that, but not farther from the optimum than this."""
_MOST_STEPS = 100


def logits(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """f_n = W x_n, shape (N, K)."""
    return X @ W.T


def log_softmax(F: np.ndarray) -> np.ndarray:
    """The logarithm of P_nk, f_nk - log sum_j exp f_nj; the largest logit is taken out first: nothing overflows."""
    shifted = F - F.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def softmax(F: np.ndarray) -> np.ndarray:
    """P_nk = exp f_nk / sum_j exp f_nj."""
    return np.exp(log_softmax(F))


def cross_entropy(W: np.ndarray, X: np.ndarray, Y: np.ndarray) -> float:
    """E = -sum_nk Y_nk log P_nk, minus the log-likelihood."""
    return -float((Y * log_softmax(logits(X, W))).sum())


def log_prior(W: np.ndarray, alpha: float) -> float:
    """The logarithm of p(W), KD/2 log(alpha / 2 pi) - alpha/2 sum_kd W_kd^2."""
    return float(W.size / 2 * np.log(alpha / (2 * np.pi)) - alpha / 2 * (W**2).sum())


def objective(W: np.ndarray, X: np.ndarray, Y: np.ndarray, alpha: float) -> float:
    """J = E + alpha/2 sum_kd W_kd^2."""
    return cross_entropy(W, X, Y) + float(alpha / 2 * (W**2).sum())


def contributions(P: np.ndarray, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """(P_nk - Y_nk) x_n: what row n adds to the gradient of class k, shape (N, K, D)."""
    return (P - Y)[:, :, None] * X[:, None, :]


def gradient(W: np.ndarray, X: np.ndarray, Y: np.ndarray, alpha: float) -> np.ndarray:
    """g_k = sum_n (P_nk - Y_nk) x_n + alpha w_k, shape (K, D)."""
    P = softmax(logits(X, W))
    return contributions(P, X, Y).sum(axis=0) + alpha * W


def curvature_weights(P: np.ndarray) -> np.ndarray:
    """P_nk (1[k=l] - P_nl): the weight of x_n x_n^T in block k, l of the Hessian, shape (N, K, K)."""
    return P[:, :, None] * (np.eye(P.shape[1]) - P[:, None, :])


def hessian(W: np.ndarray, X: np.ndarray, alpha: float) -> np.ndarray:
    """H_kl = sum_n P_nk (1[k=l] - P_nl) x_n x_n^T + 1[k=l] alpha I, all blocks as one (KD, KD) matrix."""
    P = softmax(logits(X, W))
    blocks = np.einsum("nkl,ni,nj->kilj", curvature_weights(P), X, X)
    return blocks.reshape(W.size, W.size) + alpha * np.eye(W.size)


@dataclass(frozen=True, eq=False)
class NewtonLine:
    """One line of Newton's method: where it stands, and the step it takes from there.

    Attributes
    ----------
    W, gradient, direction : ndarray (K, D)
        The direction d solves H d = g.
    objective : float
    hessian : ndarray (KD, KD)
    decrement : float
        1/2 g^T H^{-1} g, the fall of J that the step promises.
    scale : float
        The step is W - scale d: 1, halved until J falls; 0 at the optimum.
    """

    W: np.ndarray
    objective: float
    gradient: np.ndarray
    hessian: np.ndarray
    direction: np.ndarray
    decrement: float
    scale: float


def newton(X: np.ndarray, Y: np.ndarray, alpha: float) -> list[NewtonLine]:
    """Newton's method, vec W <- vec W - s H^{-1} vec g from W = 0 to the MAP; s = 1, halved until J falls.

    Returns
    -------
    list of NewtonLine
        The last one is the optimum.

    Raises
    ------
    ValueError
        If the optimum was not reached: columns differ too much in scale.
    """
    W = np.zeros((Y.shape[1], X.shape[1]))
    iterates: list[NewtonLine] = []
    while len(iterates) <= _MOST_STEPS:
        J, g, H = objective(W, X, Y, alpha), gradient(W, X, Y, alpha), hessian(W, X, alpha)
        d = np.linalg.solve(H, g.ravel()).reshape(W.shape)
        decrement = float((g * d).sum()) / 2
        if not np.isfinite(decrement):
            break
        stalled = iterates and decrement <= _STALLED and decrement > iterates[-1].decrement / 2
        if iterates and (decrement <= _CONVERGED or stalled):  # one step is always shown
            return [*iterates, NewtonLine(W, J, g, H, d, decrement, 0.0)]
        scale = _halve(W, d, J, X, Y, alpha)
        iterates.append(NewtonLine(W, J, g, H, d, decrement, scale))
        W = W - scale * d
    raise ValueError(
        f"Newton's method did not reach the optimum in {_MOST_STEPS} steps: bring the columns of X to a similar scale, "
        "for example by dividing each by its standard deviation, or raise alpha."
    )


def _halve(W: np.ndarray, d: np.ndarray, J: float, X: np.ndarray, Y: np.ndarray, alpha: float) -> float:
    """The first of 1, 1/2, 1/4, ... with J(W - s d) <= J, but for rounding."""
    allowed = J + 1e-14 * (1.0 + abs(J))
    scale = 1.0
    while not objective(W - scale * d, X, Y, alpha) <= allowed and scale > 1e-9:
        scale /= 2
    return scale


def covariance(H: np.ndarray, alpha: float, K: int) -> np.ndarray:
    """Sigma = H^{-1}, (KD, KD).

    The rows say nothing of a vector added to the weights of all classes, which has precision alpha. Apart from what
    they do say, with orthonormal contrasts Q (K, K - 1), it keeps its digits where columns differ in scale:
    Sigma = Q (Q^T H Q)^{-1} Q^T + (1/K) 1 1^T / alpha.
    """
    eye = np.eye(len(H) // K)
    Q = np.kron(contrasts(K), eye)
    inverse = np.linalg.inv(Q.T @ H @ Q)
    return Q @ ((inverse + inverse.T) / 2) @ Q.T + np.kron(np.full((K, K), 1 / K), eye / alpha)


def log_determinant(H: np.ndarray) -> float:
    """The logarithm of |H|, 2 sum_i log R_ii with the Cholesky factor R of H."""
    return 2 * float(np.log(np.linalg.cholesky(H).diagonal()).sum())


def latent(W: np.ndarray, Sigma: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The logits f = W x at a row x: mean_k = w_k^T x (K,) and cov_kl = x^T Sigma_kl x (K, K), jointly over classes."""
    K, D = W.shape
    return W @ x, np.einsum("i,kilj,j->kl", x, Sigma.reshape(K, D, K, D), x)


def expected_utility(p: np.ndarray, U: np.ndarray) -> np.ndarray:
    """EU(a) = sum_k p_k U_ka, shape (A,)."""
    return p @ U
