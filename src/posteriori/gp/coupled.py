r"""Expectation propagation with all rows at once, whose sites know that classes compete (docs/theory.md, section 6.9).

The class of a row is that of the largest latent: y wins where f_y + e_y > f_j + e_j for all rivals j, with noise of
variance 1. Given u = e_y these are K - 1 separate conditions, each a probit factor of one number,

.. math:: p(y \mid f) = E_u \prod_{j \ne y} \Phi(z_j), \qquad z_j = u + f_y - f_j, \quad u \sim N(0, 1),

and each has a Gaussian site exp(-\alpha_j z_j^2/2 + \beta_j z_j), found as any site of expectation propagation is:
the factor is integrated over the cavity in closed form. With u integrated out, the sites of a row are together

.. math:: T = \mathrm{diag}(\pi) - \pi \pi^\top / S, \quad \pi_y = 1,\ \pi_j = \alpha_j,\ S = \sum_k \pi_k, \qquad
          \nu_y = b / S,\quad \nu_j = \alpha_j b / S - \beta_j, \quad b = \sum_j \beta_j,

a precision that couples all classes and ignores a level that they share (Riihimaki, Jylanki and Vehtari, 2013). With
D_k the diagonal matrix of c_n \pi_{nk} over rows, K_k = \sigma_k^2 K and B_k = I + D_k^{1/2} K_k D_k^{1/2},

.. math:: E_k = D_k^{1/2} B_k^{-1} D_k^{1/2}, \quad M = \sum_k E_k = L L^\top, \quad G_k = L^{-1} E_k, \qquad
          (K + T^{-1})^{-1} = Q, \quad Q_{kl} = \delta_{kl} E_k - G_k^\top G_l ,

so that K + 1 factorisations of n x n matrices serve all classes. As T e_j = -\pi_j (\pi/S - e_j), the moments of z_j
under the posterior, whose mean is K_k a_k, need the diagonals of Q_kk alone:

.. math:: E[z_j] = \frac{b}{S} - \frac{c \nu_j - a_j}{c \alpha_j}, \qquad
          V[z_j] = \frac1S + \frac{c\, T_{jj} - Q_{jj}}{(c \alpha_j)^2} .

The energy is the approximate log evidence,

.. math:: -\tfrac12 \Big(\sum_k \log |B_k| + \log |M|\Big) + \tfrac12 \sum_n \big[\log (c S) - c \log S + c b^2/S\big]
          + \tfrac12 \nu^\top \mu + \sum_n c \sum_j \{ \log Z_j + [\text{cavity}] - [\text{marginal}] \}

with the brackets of `gp.ep`. Two classes need one latent only, their difference (`PairSites`).

Arrays are (K, n): classes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import lapack
from scipy.special import log_ndtr

from posteriori.maths.blocked import BlockedFactor, inverse_and_log_determinant
from posteriori.maths.linalg import semidefinite_root
from posteriori.threads import run_tasks, usable_threads

__all__ = [
    "CoupledSites",
    "CoupledSweep",
    "LatentMoments",
    "PairSites",
    "RowSites",
    "SiteParameters",
    "Solved",
    "row_sites",
]

_LEAST = 1e-8
"""The least precision of a site: smaller ones would drown in rounding, and this one says nothing."""
_START = 0.1
"""The precision of sites at the start."""
_LARGE = 250
"""The number of rows from which classes are spread over threads."""
_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


class SiteParameters(NamedTuple):
    """Natural parameters of all sites: precisions alpha and shifts beta, (K, n) or (1, n)."""

    precision: np.ndarray
    shift: np.ndarray

    def towards(self, target: SiteParameters, share: float) -> SiteParameters:
        """The sites after a step of this share of the way to the target."""
        return SiteParameters(*(old + share * (new - old) for old, new in zip(self, target, strict=True)))


class LatentMoments(NamedTuple):
    """Means (K, n) and covariances (n, K, K) of the latents of n rows, up to a level that all classes share."""

    mean: np.ndarray
    covariance: np.ndarray


class CoupledSweep(NamedTuple):
    """One visit to all sites: the posterior that they give, the energy, and the sites that the visit asks for."""

    solved: Solved
    energy: float
    target: SiteParameters


class Solved(Protocol):
    """The posterior that sites give."""

    def slopes(self) -> list[np.ndarray]:
        """Derivatives of the energy by the Gram matrix K_k of each class, (n, n), sites held."""

    def moments(self, cross: np.ndarray, diagonal: np.ndarray) -> LatentMoments:
        """Moments of the latents of m new rows, from K between rows and new rows (n, m), and at the new rows (m,)."""

    def left_out(self, share: np.ndarray) -> LatentMoments:
        """Moments of the latents of all rows, each without this share (n,) of its own weight."""

    def draws(self, cross: np.ndarray, gram: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents of m new rows drawn together, (n_draws, K, m), from K between rows and them, and between them (m, m).

        They are drawn up to a level that all classes share.
        """


class RowSites(Protocol):
    """The sites of labelled rows, and visits to them."""

    def start(self) -> SiteParameters:
        """The sites before the first visit."""

    def sweep(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> CoupledSweep:
        """Visit all sites once, for K_k = variances_k * gram."""

    def solve(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> Solved:
        """The posterior that these sites give."""


def row_sites(y: np.ndarray, c: np.ndarray, K: int, rate: float) -> RowSites:
    """The sites of rows of classes y (n,) with weights c (n,); `rate` is that of mislabelled rows."""
    return PairSites(y, c, rate) if K == 2 else CoupledSites(y, c, K, rate)


# Sites


class _Visit(NamedTuple):
    target: SiteParameters
    energy: np.ndarray


def _visit(m: np.ndarray, w: np.ndarray, prior: np.ndarray, sites: SiteParameters, rate: float) -> _Visit:
    """Visit probit sites of numbers z with posterior N(m, w): the sites asked for, and their part of the energy."""
    t, s = sites
    left = np.maximum(1.0 - t * w, w / prior)  # no cavity is wider than the prior
    w_c, m_c = w / left, (m - s * w) / left
    value, slope, curvature = _log_probit(m_c, w_c, rate)
    e = np.clip(curvature, -(1.0 - _LEAST) / w_c, 0.0)
    divisor = 1.0 + w_c * e
    target = SiteParameters(np.maximum(-e / divisor, _LEAST), (slope - m_c * e) / divisor)
    brackets = -0.5 * np.log(left) + 0.5 * (m * m * t - 2.0 * m * s + s * s * w) / left
    return _Visit(target, value + brackets)


def _log_probit(m: np.ndarray, w: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The logarithm of E[rate + (1 - 2 rate) Phi(z)], z ~ N(m, w), with two derivatives by m."""
    sd = np.sqrt(1.0 + w)
    x = m / sd
    right = np.log1p(-2.0 * rate)
    value = right + log_ndtr(x)
    if rate > 0.0:
        value = np.logaddexp(np.log(rate), value)
    ratio = np.exp(right - 0.5 * x * x - _HALF_LOG_2PI - value)
    return value, ratio / sd, -ratio * (x + ratio) / (sd * sd)


# Many classes


@dataclass(frozen=True)
class CoupledSites:
    """The sites of rows of three classes or more: one for each row and rival; those of the row's own class are idle."""

    y: np.ndarray
    c: np.ndarray
    n_classes: int
    rate: float

    @cached_property
    def own(self) -> np.ndarray:
        """Whether a class is that of the row, (K, n)."""
        return np.arange(self.n_classes)[:, None] == self.y

    def start(self) -> SiteParameters:
        """Weak sites."""
        return SiteParameters(np.where(self.own, _LEAST, _START), np.zeros(self.own.shape))

    def solve(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> CoupledPosterior:
        """The posterior that these sites give."""
        pi = np.where(self.own, 1.0, sites.precision)
        beta = np.where(self.own, 0.0, sites.shift)
        S, b = pi.sum(axis=0), beta.sum(axis=0)
        nu = self.c * (pi * b / S - beta)
        return CoupledPosterior.of(gram, variances, self.c * pi, nu)

    def sweep(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> CoupledSweep:
        """Visit all sites once."""
        c, own = self.c, self.own
        pi = np.where(own, 1.0, sites.precision)
        S, b = pi.sum(axis=0), np.where(own, 0.0, sites.shift).sum(axis=0)
        q = self.solve(gram, variances, sites)
        m = b / S - (q.nu - q.a) / (c * pi)
        w = 1.0 / S + np.maximum(c * pi * (1.0 - pi / S) - q.diagonal, 0.0) / (c * pi) ** 2
        prior = 1.0 + gram.diagonal() * (variances[:, None] + variances[self.y])
        visit = _visit(m, np.minimum(w, prior), prior, sites, self.rate)
        constants = np.log(c * S) - c * np.log(S) + c * b * b / S
        energy = float(
            -0.5 * q.log_determinant
            + 0.5 * (constants.sum() + (q.nu * q.mean).sum())
            + (c * np.where(own, 0.0, visit.energy)).sum()
        )
        precision, shift = visit.target
        return CoupledSweep(q, energy, SiteParameters(np.where(own, _LEAST, precision), np.where(own, 0.0, shift)))


@dataclass(frozen=True)
class CoupledPosterior:
    """The posterior of the latents of all rows, in the matrices of the module's formulas."""

    gram: np.ndarray
    variances: np.ndarray
    weights: np.ndarray
    """D_k, c_n pi_nk, (K, n)."""
    nu: np.ndarray
    a: np.ndarray
    E: tuple[np.ndarray, ...]
    L: np.ndarray
    log_determinant: float

    @classmethod
    def of(cls, gram: np.ndarray, variances: np.ndarray, weights: np.ndarray, nu: np.ndarray) -> CoupledPosterior:
        """The posterior of sites with these weights c pi and shifts nu, (K, n)."""

        def of_class(k: int) -> tuple[np.ndarray, float]:
            root = np.sqrt(weights[k])
            both = root[:, None] * root
            inverse, log_det = _inverse(gram * both, variances[k])
            inverse *= both
            return inverse, log_det

        E, log_determinants = zip(*_each_class(of_class, len(weights), len(gram)), strict=True)
        L, info = lapack.dpotrf(sum(E[1:], start=E[0].copy()).T, lower=1, clean=1, overwrite_a=1)
        _require_factor(info)
        c = np.array([E_k @ (variance * (gram @ n)) for E_k, variance, n in zip(E, variances, nu, strict=True)])
        level = lapack.dpotrs(L, c.sum(axis=0), lower=1)[0]
        a = nu - c + np.array([E_k @ level for E_k in E])
        log_determinant = sum(log_determinants) + 2.0 * float(np.log(L.diagonal()).sum())
        return cls(gram, variances, weights, nu, a, E, L, log_determinant)

    @cached_property
    def _factor(self) -> BlockedFactor:
        return BlockedFactor.of(self.L)

    @cached_property
    def G(self) -> list[np.ndarray]:
        """The matrices G_k = L^{-1} E_k; the last follows from sum_k E_k = L L^T."""
        first = _each_class(lambda k: self._factor.solve(self.E[k]), len(self.E) - 1, len(self.L))
        return [*first, self.L.T - sum(first[1:], start=first[0])]

    @cached_property
    def diagonal(self) -> np.ndarray:
        """The diagonals of Q_kk, (K, n)."""
        return np.array([E.diagonal() - np.einsum("ji,ji->i", G, G) for E, G in zip(self.E, self.G, strict=True)])

    @cached_property
    def mean(self) -> np.ndarray:
        """The posterior means of the latents, (K, n)."""
        return self.variances[:, None] * (self.a @ self.gram)

    def slopes(self) -> list[np.ndarray]:
        """(a a^T - Q_kk) / 2 for every class."""
        G = self.G

        def of_class(k: int) -> np.ndarray:
            return 0.5 * (np.outer(self.a[k], self.a[k]) - self.E[k] + G[k].T @ G[k])

        return _each_class(of_class, len(G), len(self.L))

    def moments(self, cross: np.ndarray, diagonal: np.ndarray) -> LatentMoments:
        """Moments of the latents of new rows."""
        K, m = len(self.variances), cross.shape[1]
        covariance = np.zeros((m, K, K))
        lifted = np.empty((K, *cross.shape))
        for k, variance in enumerate(self.variances):
            seen = self.E[k] @ (variance * cross)
            covariance[:, k, k] = variance * diagonal - variance * np.einsum("nm,nm->m", cross, seen)
            lifted[k] = self._factor.solve(seen)
        covariance += np.einsum("knm,lnm->mkl", lifted, lifted, optimize=True)
        return LatentMoments(self.variances[:, None] * (self.a @ cross), covariance)

    def draws(self, cross: np.ndarray, gram: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        r"""Latents of new rows, drawn together.

        With C_k = variances_k K between rows and new rows, their covariance is
        \delta_{kl} (K_k - C_k^T E_k C_k) + (G_k C_k)^T (G_l C_l): a part of each class alone, and one that all share.
        """
        u = rng.standard_normal((n_draws, len(self.L)))
        out = np.empty((n_draws, len(self.variances), cross.shape[1]))
        for k, variance in enumerate(self.variances):
            seen = self.E[k] @ (variance * cross)
            root = semidefinite_root(variance * (gram - cross.T @ seen))
            alone = rng.standard_normal((n_draws, root.shape[1])) @ root.T
            out[:, k] = variance * (self.a[k] @ cross) + alone + u @ self._factor.solve(seen)
        return out

    def left_out(self, share: np.ndarray) -> LatentMoments:
        r"""Moments of the latents of all rows, each without this share of its own weight.

        They are of differences f_k - f_r from one class r, whose own latent is held at zero. Without row and column r,
        T has an inverse, diag(1/pi) + 1/pi_r; the posterior covariance is Sigma = T^{-1} - T^{-1} Q T^{-1}, its mean
        T^{-1} (nu - a), and removing a share h of the site leaves (Sigma^{-1} - h T)^{-1}.
        """
        K, n = self.weights.shape
        reference = self.weights.argmax(axis=0)
        others = np.array([[k for k in range(K) if k != r] for r in range(K)])[reference]  # (n, K - 1)
        i = np.arange(n)
        block = np.zeros((n, K, K))
        for k in range(K):
            for j in range(k, K):
                block[:, k, j] = block[:, j, k] = -np.einsum("ji,ji->i", self.G[k], self.G[j])
            block[:, k, k] += self.E[k].diagonal()
        Q = block[i[:, None, None], others[:, :, None], others[:, None, :]]
        pi = self.weights[others, i[:, None]]
        T_inverse = np.eye(K - 1) / pi[:, :, None] + 1.0 / self.weights[reference, i][:, None, None]
        T = np.eye(K - 1) * pi[:, :, None] - pi[:, :, None] * pi[:, None, :] / self.weights.sum(axis=0)[:, None, None]
        seen = T_inverse - T_inverse @ Q @ T_inverse
        mean = T_inverse @ (self.nu - self.a)[others, i[:, None]][:, :, None]
        # Sigma (I - h T Sigma)^{-1}, and the mean with the site's shift taken away
        h = share[:, None, None]
        without = np.linalg.solve(np.eye(K - 1) - h * (seen @ T), seen)
        shift = self.nu[others, i[:, None]][:, :, None]
        mean = mean + without @ (h * (T @ mean - shift))
        out, covariance = np.zeros((K, n)), np.zeros((n, K, K))
        out[others, i[:, None]] = mean[:, :, 0]
        covariance[i[:, None, None], others[:, :, None], others[:, None, :]] = without
        return LatentMoments(out, covariance)


# Two classes


@dataclass(frozen=True)
class PairSites:
    """The sites of rows of two classes, on one latent d = f_1 - f_0 whose noise has variance 2."""

    y: np.ndarray
    c: np.ndarray
    rate: float

    @cached_property
    def sign(self) -> np.ndarray:
        """+1 for rows of the second class, -1 for those of the first."""
        return np.where(self.y == 1, 1.0, -1.0)

    def start(self) -> SiteParameters:
        """Weak sites."""
        return SiteParameters(np.full((1, len(self.y)), _START), np.zeros((1, len(self.y))))

    def solve(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> PairPosterior:
        """The posterior that these sites give."""
        return PairPosterior.of(gram, float(variances.sum()), self.c * sites.precision[0], self.c * sites.shift[0])

    def sweep(self, gram: np.ndarray, variances: np.ndarray, sites: SiteParameters) -> CoupledSweep:
        """Visit all sites once, in units in which the noise has variance 1."""
        q = self.solve(gram, variances, sites)
        prior = np.maximum(q.variance * gram.diagonal(), _LEAST)  # of a row at which functions are known to be zero
        w = np.clip((1.0 - q.inverse_diagonal) / q.weights, _LEAST * prior, prior)
        m = q.mean
        t, s = sites
        # the factor is Phi(sign d / sqrt 2): divided by sqrt(2), noise has variance 1
        half = SiteParameters(2.0 * t, np.sqrt(2.0) * self.sign * s)
        visit = _visit(self.sign * m / np.sqrt(2.0), 0.5 * w, 0.5 * prior, half, self.rate)
        energy = float(-0.5 * q.log_determinant + 0.5 * (q.nu * m).sum() + (self.c * visit.energy).sum())
        precision, shift = visit.target
        return CoupledSweep(q, energy, SiteParameters(0.5 * precision, self.sign * shift / np.sqrt(2.0)))


@dataclass(frozen=True)
class PairPosterior:
    """The posterior of the difference of two latents."""

    gram: np.ndarray
    variance: float
    """The sum of both classes' variances, that of the difference."""
    weights: np.ndarray
    nu: np.ndarray
    a: np.ndarray
    E: np.ndarray
    inverse_diagonal: np.ndarray
    log_determinant: float

    @classmethod
    def of(cls, gram: np.ndarray, variance: float, weights: np.ndarray, nu: np.ndarray) -> PairPosterior:
        """The posterior of sites with these weights and shifts, (n,)."""
        root = np.sqrt(weights)
        both = root[:, None] * root
        inverse, log_det = _inverse(gram * both, variance)
        E = inverse * both
        a = nu - E @ (variance * (gram @ nu))
        return cls(gram, variance, weights, nu, a, E, inverse.diagonal().copy(), log_det)

    @cached_property
    def mean(self) -> np.ndarray:
        """The posterior means of the difference, (n,)."""
        return self.variance * (self.gram @ self.a)

    def slopes(self) -> list[np.ndarray]:
        """(a a^T - E) / 2, the same for both classes."""
        both = 0.5 * (np.outer(self.a, self.a) - self.E)
        return [both, both]

    def moments(self, cross: np.ndarray, diagonal: np.ndarray) -> LatentMoments:
        """Moments of the latents of new rows."""
        seen = self.E @ (self.variance * cross)
        variance = self.variance * (diagonal - np.einsum("nm,nm->m", cross, seen))
        return _of_difference(self.variance * (self.a @ cross), variance)

    def draws(self, cross: np.ndarray, gram: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents of new rows, drawn together: their difference, and its half to either side."""
        seen = self.E @ (self.variance * cross)
        root = semidefinite_root(self.variance * (gram - cross.T @ seen))
        d = self.variance * (self.a @ cross) + rng.standard_normal((n_draws, root.shape[1])) @ root.T
        return np.stack([-0.5 * d, 0.5 * d], axis=1)

    def left_out(self, share: np.ndarray) -> LatentMoments:
        """Moments of the latents of all rows, each without this share of its own weight."""
        w = (1.0 - self.inverse_diagonal) / self.weights
        left = 1.0 - share * self.weights * w
        return _of_difference((self.mean - share * self.nu * w) / left, w / left)


def _of_difference(mean: np.ndarray, variance: np.ndarray) -> LatentMoments:
    """Moments of two independent latents whose difference has these."""
    covariance = 0.5 * np.maximum(variance, 0.0)[:, None, None] * np.eye(2)
    return LatentMoments(np.stack([-0.5 * mean, 0.5 * mean]), covariance)


def _each_class(of_class: Callable[[int], Any], K: int, n: int) -> list[Any]:
    """The results of a function for all classes, in threads of ours where matrices are large enough."""
    return run_tasks(of_class, K, usable_threads(None) if n >= _LARGE else 1)


def _inverse(scaled: np.ndarray, variance: float) -> tuple[np.ndarray, float]:
    """The inverse of B = I + variance * scaled, symmetric, and log |B|; `scaled` is overwritten."""
    scaled *= variance
    scaled.flat[:: len(scaled) + 1] += 1.0
    return inverse_and_log_determinant(scaled)


def _require_factor(info: int) -> None:
    if info != 0:
        raise FloatingPointError("The matrix of a Gaussian process could not be factored.")
