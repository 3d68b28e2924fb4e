r"""Every row judged by all others: log p(x_n, k | the other rows), in closed form.

Taking r of row x out of its class, with u = x - xbar, n' = n - r, t = r / n' and h = kappa_0 n / kappa_n, moves the
mean to xbar - t u, and the belief's Psi by a matrix of rank two in U = [u, xbar]:

.. math:: \Psi' = \Psi + U C U^\top, \qquad
          C = \begin{pmatrix} -\tfrac{r n}{n'} + h' t^2 & -h' t \\ -h' t & h' - h \end{pmatrix} .

Determinant and quadratic forms follow from the 2 x 2 matrix I + C G, G = U^T Psi^{-1} U:

.. math:: |\Psi'| = |\Psi| \, |I + C G|, \qquad
          z^\top \Psi'^{-1} z = z^\top \Psi^{-1} z - v^\top (I + C G)^{-1} C \, v, \quad v = U^\top \Psi^{-1} z .

So nothing is fitted again. For a variance Psi' is known directly. The part of the prior that is drawn from the rows
themselves, `pooled` W, loses the row too: in its own class and in all others, there by a matrix of rank one in u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posteriori.gaussian.niw import Belief, Estimate, WishartPrior, log_density, mode_divisor, updated
from posteriori.gaussian.statistics import ClassStatistics
from posteriori.maths.products import sum_of_logs

if TYPE_CHECKING:
    from posteriori.gaussian.structure import Structure

__all__ = [
    "Removal",
    "RowsToLeaveOut",
    "left_out_log_density",
    "left_out_of_matrices",
    "left_out_of_one_variance",
    "left_out_of_variances",
]

_TINY = 1e-300
_FARTHEST = 1e290


@dataclass(frozen=True)
class RowsToLeaveOut:
    """Rows to be left out one at a time.

    Attributes
    ----------
    Z : ndarray (n, D)
        The rows in the coordinates of the statistics; NaN is missing.
    codes : ndarray of int (n,)
        Classes of the rows.
    removed : ndarray (n,)
        The weight of each row that is taken away, at most one.
    weights : ndarray (n,)
        The weight of each row in the score.
    """

    Z: np.ndarray
    codes: np.ndarray
    removed: np.ndarray
    weights: np.ndarray

    def part(self, rows: slice) -> RowsToLeaveOut:
        """The rows of a slice."""
        return RowsToLeaveOut(self.Z[rows], self.codes[rows], self.removed[rows], self.weights[rows])


def left_out_log_density(
    statistics: ClassStatistics, prior: WishartPrior, structure: Structure, estimate: Estimate, rows: RowsToLeaveOut
) -> np.ndarray:
    """The log density of each row in every class, log p(x_n | k, the other rows), (n, K).

    See docs/theory.md, section 5.4.
    """
    belief = updated(statistics, prior, structure)
    n, step = len(rows.codes), structure.left_out_rows(statistics.means.shape[1])
    parts = [rows.part(slice(start, start + step)) for start in range(0, n, step)] if step < n else [rows]
    found = [
        structure.left_out_log_density(belief, statistics, prior, estimate, part, Removal(statistics, prior, part))
        for part in parts
    ]
    return np.concatenate(found)


class Removal:
    """The class of each row without the row: arrays (n, 1), or (n, D) where values are missing.

    Attributes
    ----------
    r, n, t, kappa, h, u : ndarray
        As above: what is removed of the row and remains of the class; h is h'.
    w : ndarray
        r n / n', the weight of u u^T in the scatter.
    h_before : ndarray
        h of all rows.
    xbar, mean : ndarray (n, D)
        The mean of the remaining rows, and that of the belief.
    there : ndarray of bool (n, D), or None
        Which values are there; None where all are.
    """

    def __init__(self, statistics: ClassStatistics, prior: WishartPrior, rows: RowsToLeaveOut) -> None:
        y = rows.codes
        n = statistics.present[y]
        there = ~np.isnan(rows.Z)
        complete = bool(there.all())
        self.there = None if complete else there
        self.r = rows.removed[:, None] if complete else rows.removed[:, None] * there
        remaining = np.maximum(n - self.r, 0.0)
        left = remaining > 1e-9 * n
        self.n = np.where(left, remaining, 0.0)
        divisor = np.where(left, self.n, 1.0)
        self.t = np.where(left, self.r / divisor, 0.0)
        self.w = np.where(left, self.r * n / divisor, 0.0)
        self.kappa = prior.kappa + self.n
        share = self.n / np.where(self.kappa > 0.0, self.kappa, 1.0)
        self.h = prior.kappa * share
        self.h_before = prior.kappa * n / np.where(prior.kappa + n > 0.0, prior.kappa + n, 1.0)
        xbar = statistics.means[y]
        self.u = rows.Z - xbar if complete else np.where(there, rows.Z - xbar, 0.0)
        self.xbar = np.where(left, xbar - self.t * self.u, 0.0)
        self.mean = share * self.xbar


def left_out_of_matrices(
    belief: Belief,
    statistics: ClassStatistics,
    prior: WishartPrior,
    estimate: Estimate,
    rows: RowsToLeaveOut,
    removal: Removal,
) -> np.ndarray:
    """Log densities (n, K) of rows left out, for covariance matrices (docs/theory.md, section 5.4)."""
    K = len(belief.means)
    y, tied = rows.codes, belief.structure.tied
    inverses, log_dets = belief.structure.whitened(belief.Psi, np.ones(belief.Psi.shape[1]))
    w, t, h = removal.w[:, 0], removal.t[:, 0], removal.h[:, 0]
    out = np.empty((len(y), K))
    for j, (A, log_det) in enumerate(zip(inverses, log_dets, strict=True)):
        own = np.ones(len(y)) if tied else (y == j).astype(np.float64)
        X, U, E = (np.dot(M, A.T) for M in (rows.Z, removal.u, statistics.means))
        E = E[y]
        # C; the rows of the other classes lose their share of the prior alone
        c11 = -(own + prior.pooled) * w + own * h * t * t
        c12 = -own * h * t
        c22 = own * (h - removal.h_before[:, 0])
        guu, gue, gee = _dots(U, U), _dots(U, E), _dots(E, E)
        m11, m12 = 1.0 + c11 * guu + c12 * gue, c11 * gue + c12 * gee
        m21, m22 = c12 * guu + c22 * gue, 1.0 + c12 * gue + c22 * gee
        det = np.maximum(m11 * m22 - m12 * m21, _TINY)
        b11, b22 = (m22 * c11 - m12 * c12) / det, (m11 * c22 - m21 * c12) / det
        b12 = (m22 * c12 - m12 * c22) / det  # (I + C G)^{-1} C is symmetric
        for k in range(K) if tied else (j,):
            mine = y == k
            Z = X - np.dot(belief.means[k], A.T)
            Z[mine] = X[mine] - np.dot(removal.mean[mine], A.T)
            zu, ze = _dots(Z, U), _dots(Z, E)
            q = np.maximum(_dots(Z, Z) - (b11 * zu * zu + 2.0 * b12 * zu * ze + b22 * ze * ze), 0.0)
            kappa = np.where(mine, removal.kappa[:, 0], belief.kappa[k, 0])
            nu = belief.nu[j, 0] - (rows.removed if tied else np.where(mine, rows.removed, 0.0))
            out[:, k] = _density(q, log_det[0] + np.log(det), kappa, nu, belief, estimate)
    return out


def left_out_of_variances(
    belief: Belief,
    statistics: ClassStatistics,
    prior: WishartPrior,
    estimate: Estimate,
    rows: RowsToLeaveOut,
    removal: Removal,
) -> np.ndarray:
    """Log densities (n, K) of rows left out, for a variance of each feature."""
    K = len(belief.means)
    y, tied = rows.codes, belief.structure.tied
    lost = removal.w * removal.u**2
    change = removal.h * removal.xbar**2 - removal.h_before * statistics.means[y] ** 2 - lost
    lost *= prior.pooled
    Z = rows.Z if removal.there is None else np.where(removal.there, rows.Z, 0.0)
    out = np.empty((len(y), K))
    for k in range(K):
        own = y == k
        mine, j = own[:, None], 0 if tied else k
        if k == 0 or not tied:  # classes that share a covariance share this
            Psi = belief.Psi[j] - lost
            changed = slice(None) if tied else own
            Psi[changed] += change[changed]
            np.maximum(Psi, _TINY, out=Psi)
        kappa = np.where(mine, removal.kappa, belief.kappa[k])
        nu = belief.nu[j] - (removal.r if tied else np.where(mine, removal.r, 0.0))
        q = Z - belief.means[k]
        q[own] = Z[own] - removal.mean[own]
        q *= q
        q = _ratio(q, Psi)
        if removal.there is None and kappa.shape[1] == nu.shape[1] == 1:
            out[:, k] = _product_density(q, Psi, kappa[:, 0], nu[:, 0], belief, estimate)
        else:
            terms = _density(q, np.log(Psi), kappa, nu, belief, estimate)
            out[:, k] = (terms if removal.there is None else np.where(removal.there, terms, 0.0)).sum(axis=1)
    return out


def _product_density(
    q: np.ndarray, Psi: np.ndarray, kappa: np.ndarray, nu: np.ndarray, belief: Belief, estimate: Estimate
) -> np.ndarray:
    """The log density of all features of a row, (n,): what depends on the feature in few logarithms."""
    zero = np.zeros(1)
    constant = q.shape[1] * _density(zero, zero, kappa, nu, belief, estimate)
    constant -= 0.5 * sum_of_logs(Psi, axis=1)
    if estimate != "bayes":
        return constant - 0.5 * _divisor(nu, belief, estimate) * q.sum(axis=1)
    q *= (kappa / (kappa + 1.0))[:, None]
    q += 1.0
    return constant - 0.5 * (nu + 1.0) * sum_of_logs(q, axis=1)


def left_out_of_one_variance(
    belief: Belief,
    statistics: ClassStatistics,
    prior: WishartPrior,
    estimate: Estimate,
    rows: RowsToLeaveOut,
    removal: Removal,
) -> np.ndarray:
    """Log densities (n, K) of rows left out, for one variance of all features."""
    K, D = belief.means.shape
    y, xbar, tied = rows.codes, statistics.means[rows.codes], belief.structure.tied
    lost = removal.w[:, 0] * _dots(removal.u, removal.u)
    change = removal.h[:, 0] * _dots(removal.xbar, removal.xbar) - removal.h_before[:, 0] * _dots(xbar, xbar) - lost
    out = np.empty((len(y), K))
    for k in range(K):
        mine = y == k
        j, own = (0, True) if tied else (k, mine)
        Psi = np.maximum(belief.Psi[j, 0] - prior.pooled * lost + np.where(own, change, 0.0), _TINY)
        Z = rows.Z - np.where(mine[:, None], removal.mean, belief.means[k])
        kappa = np.where(mine, removal.kappa[:, 0], belief.kappa[k, 0])
        nu = belief.nu[j, 0] - np.where(own, rows.removed * D, 0.0)
        out[:, k] = _density(_ratio(_dots(Z, Z), Psi), D * np.log(Psi), kappa, nu, belief, estimate)
    return out


def _density(
    q: np.ndarray, log_det: np.ndarray, kappa: np.ndarray, nu: np.ndarray, belief: Belief, estimate: Estimate
) -> np.ndarray:
    structure, D = belief.structure, belief.means.shape[1]
    p = structure.dimension(D)
    divisor = None if estimate == "bayes" else _divisor(nu, belief, estimate)
    return log_density(q, log_det, kappa, nu - p + 1.0, p * structure.repeats(D), divisor=divisor)


def _divisor(nu: np.ndarray, belief: Belief, estimate: Estimate) -> np.ndarray:
    return np.maximum(mode_divisor(belief.structure, estimate, nu, *belief.means.shape), _TINY)


def _ratio(squares: np.ndarray, Psi: np.ndarray) -> np.ndarray:
    """Squared distances in units of Psi, in place, up to a limit: with Psi all but zero they are beyond any number."""
    with np.errstate(over="ignore"):
        squares /= Psi
    return np.minimum(squares, _FARTHEST, out=squares)


def _dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Inner products of rows."""
    return np.einsum("nd,nd->n", A, B)
