r"""Every row judged by all others: log p(x_n, k | the other rows), in closed form.

Taking r of row x out of its class, with u = x - xbar, n' = n - r, t = r / n' and h = kappa_0 n / kappa_n, moves the
mean to xbar - t u, and the belief's Psi by a matrix of rank two in U = [u, xbar]:

.. math:: \Psi' = \Psi + U C U^\top, \qquad
          C = \begin{pmatrix} -\tfrac{r n}{n'} + h' t^2 & -h' t \\ -h' t & h' - h \end{pmatrix} .

Determinant and quadratic forms follow from the 2 x 2 matrix I + C G, G = U^T Psi^{-1} U:

.. math:: |\Psi'| = |\Psi| \, |I + C G|, \qquad
          z^\top \Psi'^{-1} z = z^\top \Psi^{-1} z - v^\top (I + C G)^{-1} C \, v, \quad v = U^\top \Psi^{-1} z .

So nothing is fitted again. The part of the prior that is drawn from the rows themselves, `pooled` W, loses the row too:
in its own class and in all others, there by a matrix of rank one in u.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posteriori.gaussian.statistics import ClassStatistics
from posteriori.gaussian.structures import (
    Estimate,
    Structure,
    WishartPrior,
    cholesky,
    divisor,
    is_tied,
    log_density,
    shape,
    updated,
)
from posteriori.maths.products import sum_of_logs

__all__ = ["LeftOut", "left_out_log_density"]

_TINY = 1e-300


@dataclass(frozen=True)
class LeftOut:
    """Rows to be left out one at a time.

    Attributes
    ----------
    Z : ndarray (n, D)
        In the coordinates of the statistics; NaN is missing.
    codes : ndarray of int (n,)
        Their classes.
    removed : ndarray (n,)
        How much of each is taken away, at most one.
    weights : ndarray (n,)
        How much each counts in the score.
    """

    Z: np.ndarray
    codes: np.ndarray
    removed: np.ndarray
    weights: np.ndarray

    def part(self, rows: slice) -> LeftOut:
        """Some of them."""
        return LeftOut(self.Z[rows], self.codes[rows], self.removed[rows], self.weights[rows])


def left_out_log_density(
    statistics: ClassStatistics, prior: WishartPrior, structure: Structure, estimate: Estimate, rows: LeftOut
) -> np.ndarray:
    """The log density of each row in every class, log p(x_n | k, the other rows), (n, K)."""
    down = _DownDate(statistics, prior, rows)
    if shape(structure) == "full":
        return _full(statistics, prior, structure, estimate, rows, down)
    if shape(structure) == "diagonal":
        return _diagonal(statistics, prior, structure, estimate, rows, down)
    return _spherical(statistics, prior, estimate, rows, down)


class _DownDate:
    """What becomes of the class of each row: arrays (n, 1), or (n, D) where values are missing."""

    def __init__(self, statistics: ClassStatistics, prior: WishartPrior, rows: LeftOut) -> None:
        y = rows.codes
        n = statistics.present[y]
        there = ~np.isnan(rows.Z)
        complete = bool(there.all())
        r = rows.removed[:, None] if complete else rows.removed[:, None] * there
        self.n = np.maximum(n - r, 0.0)
        left = self.n > 1e-9 * n
        self.n = np.where(left, self.n, 0.0)
        safe = np.where(left, self.n, 1.0)
        self.t = np.where(left, r / safe, 0.0)
        self.w = np.where(left, r * n / safe, 0.0)  # weight of u u^T in the scatter
        self.kappa = prior.kappa + self.n
        self.share = self.n / np.where(self.kappa > 0.0, self.kappa, 1.0)
        self.h = prior.kappa * self.share
        self.h_before = prior.kappa * n / np.where(prior.kappa + n > 0.0, prior.kappa + n, 1.0)
        xbar = statistics.means[y]
        self.u = np.where(there, rows.Z - xbar, 0.0) if not complete else rows.Z - xbar
        self.xbar = np.where(left, xbar - self.t * self.u, 0.0)
        self.mean = self.share * self.xbar
        self.r = r
        self.there = None if complete else there


def _full(
    statistics: ClassStatistics,
    prior: WishartPrior,
    structure: Structure,
    estimate: Estimate,
    rows: LeftOut,
    down: _DownDate,
) -> np.ndarray:
    belief = updated(statistics, prior, structure)
    K, D = belief.means.shape
    y, tied = rows.codes, is_tied(structure)
    whiteners, log_dets = cholesky(belief.Psi)
    w, t, h = down.w[:, 0], down.t[:, 0], down.h[:, 0]
    out = np.empty((len(y), K))
    for j, (A, log_det) in enumerate(zip(whiteners, log_dets, strict=True)):
        own = np.ones(len(y)) if tied else (y == j).astype(np.float64)
        X, U, E = (np.dot(M, A.T) for M in (rows.Z, down.u, statistics.means))
        E = E[y]
        # C; the rows of the other classes lose their share of the prior alone
        c11 = -(own + prior.pooled) * w + own * h * t * t
        c12 = -own * h * t
        c22 = own * (h - down.h_before[:, 0])
        guu, gue, gee = _dots(U, U), _dots(U, E), _dots(E, E)
        m11, m12 = 1.0 + c11 * guu + c12 * gue, c11 * gue + c12 * gee
        m21, m22 = c12 * guu + c22 * gue, 1.0 + c12 * gue + c22 * gee
        det = np.maximum(m11 * m22 - m12 * m21, _TINY)
        b11, b22 = (m22 * c11 - m12 * c12) / det, (m11 * c22 - m21 * c12) / det
        b12 = (m22 * c12 - m12 * c22) / det  # (I + C G)^{-1} C is symmetric
        for k in range(K) if tied else (j,):
            mine = y == k
            Z = X - np.dot(belief.means[k], A.T)
            Z[mine] = X[mine] - np.dot(down.mean[mine], A.T)
            zu, ze = _dots(Z, U), _dots(Z, E)
            q = np.maximum(_dots(Z, Z) - (b11 * zu * zu + 2.0 * b12 * zu * ze + b22 * ze * ze), 0.0)
            kappa = np.where(mine, down.kappa[:, 0], belief.kappa[k, 0])
            nu = belief.nu[j, 0] - (rows.removed if tied else np.where(mine, rows.removed, 0.0))
            out[:, k] = _density(q, log_det + np.log(det), kappa, nu, D, structure, estimate, K)
    return out


def _diagonal(
    statistics: ClassStatistics,
    prior: WishartPrior,
    structure: Structure,
    estimate: Estimate,
    rows: LeftOut,
    down: _DownDate,
) -> np.ndarray:
    """The same in one dimension, feature by feature: Psi' is known directly."""
    belief = updated(statistics, prior, structure)
    K = len(belief.means)
    y, tied = rows.codes, is_tied(structure)
    lost = down.w * down.u**2
    change = down.h * down.xbar**2 - down.h_before * statistics.means[y] ** 2 - lost
    Z = rows.Z if down.there is None else np.where(down.there, rows.Z, 0.0)
    out = np.empty((len(y), K))
    for k in range(K):
        mine = (y == k)[:, None]
        j = 0 if tied else k
        Psi = belief.Psi[j] - prior.pooled * lost + (change if tied else np.where(mine, change, 0.0))
        np.maximum(Psi, _TINY, out=Psi)
        kappa = np.where(mine, down.kappa, belief.kappa[k])
        nu = belief.nu[j] - (down.r if tied else np.where(mine, down.r, 0.0))
        q = Z - np.where(mine, down.mean, belief.means[k])
        q *= q
        q /= Psi
        if down.there is None and kappa.shape[1] == nu.shape[1] == 1:
            out[:, k] = _product_density(q, Psi, kappa[:, 0], nu[:, 0], structure, estimate, K)
        else:
            terms = _density(q, np.log(Psi), kappa, nu, 1, structure, estimate, K)
            out[:, k] = (terms if down.there is None else np.where(down.there, terms, 0.0)).sum(axis=1)
    return out


def _product_density(
    q: np.ndarray,
    Psi: np.ndarray,
    kappa: np.ndarray,
    nu: np.ndarray,
    structure: Structure,
    estimate: Estimate,
    K: int,
) -> np.ndarray:
    """The log density of all features of a row, (n,): what depends on the feature in few logarithms."""
    D = q.shape[1]
    one = np.zeros(1)
    constant = D * _density(one, one, kappa, nu, 1, structure, estimate, K)
    constant -= 0.5 * sum_of_logs(Psi, axis=1)
    if estimate != "bayes":
        return constant - 0.5 * np.maximum(divisor(structure, estimate, nu, 1, K), _TINY) * q.sum(axis=1)
    q *= (kappa / (kappa + 1.0))[:, None]
    q += 1.0
    return constant - 0.5 * (nu + 1.0) * sum_of_logs(q, axis=1)


def _spherical(
    statistics: ClassStatistics, prior: WishartPrior, estimate: Estimate, rows: LeftOut, down: _DownDate
) -> np.ndarray:
    belief = updated(statistics, prior, "spherical")
    K, D = belief.means.shape
    y, xbar = rows.codes, statistics.means[rows.codes]
    lost = down.w[:, 0] * _dots(down.u, down.u)
    change = down.h[:, 0] * _dots(down.xbar, down.xbar) - down.h_before[:, 0] * _dots(xbar, xbar) - lost
    out = np.empty((len(y), K))
    for k in range(K):
        mine = y == k
        Psi = np.maximum(belief.Psi[k, 0] - prior.pooled * lost + np.where(mine, change, 0.0), _TINY)
        Z = rows.Z - np.where(mine[:, None], down.mean, belief.means[k])
        kappa = np.where(mine, down.kappa[:, 0], belief.kappa[k, 0])
        nu = belief.nu[k, 0] - np.where(mine, rows.removed * D, 0.0)
        out[:, k] = _density(_dots(Z, Z) / Psi, D * np.log(Psi), kappa, nu, D, "spherical", estimate, K)
    return out


def _density(
    q: np.ndarray,
    log_det: np.ndarray,
    kappa: np.ndarray,
    nu: np.ndarray,
    D: int,
    structure: Structure,
    estimate: Estimate,
    K: int,
) -> np.ndarray:
    div = None if estimate == "bayes" else np.maximum(divisor(structure, estimate, nu, D, K), _TINY)
    return log_density(q, log_det, kappa, nu, D, div=div, spherical=structure == "spherical")


def _dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Inner products of rows."""
    return np.einsum("nd,nd->n", A, B)
