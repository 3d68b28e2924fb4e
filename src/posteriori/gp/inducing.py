r"""A Gaussian process of many rows, seen through inducing inputs that are rows themselves, by NumPy.

With inducing inputs Z, K_zz = L L^T, a row sees the whitened inducing values v_k ~ N(0, I) of class k through
a = L^{-1} k_z(x), and its sites are those of `gp.ep`, one for each class, at power 1. Each sweep takes 2 M^2 n
operations for each class: with t_k and s_k the sites' parameters,

.. math:: P_k = I + A\, \mathrm{diag}(c\, t_k) A^\top, \quad w = a^\top P_k^{-1} a, \quad
          m = a^\top P_k^{-1} A (c\, s_k) .

The kernel is given: it was learned from a part of the rows without inducing inputs (`gp.choosing`), as the evidence
seen through few of them flatters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from posteriori.gp.calibration import LeftOutLatents, left_out_spread
from posteriori.gp.choosing import ChosenKernel
from posteriori.gp.coupled import SiteParameters
from posteriori.gp.draws import inducing_draws, widened
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.learning import KernelState
from posteriori.gp.output import ArgmaxNode, log_mislabelled
from posteriori.gp.predictions import FittedProbit, latent_moments
from posteriori.gp.progress import Report, begin_stage
from posteriori.gp.repeats import MergedRows
from posteriori.gp.solution import Chunk, GPSolution
from posteriori.maths.blocked import BlockedFactor, inverse_and_log_determinant
from posteriori.maths.largest import log_largest_slopes
from posteriori.threads import run_tasks, usable_threads

__all__ = ["FittedInducing", "chosen_rows", "fit_inducing", "log_expected"]

_JITTER = 1e-6
"""What is added to the diagonal of K_zz, in units of its mean."""
_DAMPING = 0.7
_ENOUGH = 1e-5
"""The relative change of the energy over a sweep at which sites are at their fixed point."""
_MOST_SWEEPS, USUAL_SWEEPS = 40, 10
_LEAST = 1e-8
_SPREAD_ROWS = 8192
"""The number of rows by which the spread of the latents is chosen, at most."""
_CANDIDATES = 20_000
"""The number of rows among which inducing inputs are chosen, at most."""


@dataclass(frozen=True)
class FittedInducing(FittedProbit):
    """A fitted layer seen through inducing inputs: q(v_k) = N(mean, covariance) of every class."""

    kernel: Kernel
    free: Free
    log_scale: np.ndarray
    Z: np.ndarray
    factor: np.ndarray
    """The lower factor L of K_zz."""
    mean: np.ndarray
    covariance: np.ndarray
    node: ArgmaxNode
    solution: GPSolution
    spread: float = 1.0

    @property
    def inducing(self) -> np.ndarray:
        """The inducing inputs, (M, D)."""
        return self.Z

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (1, K, n) of the latents, without noise."""
        mean, variance, beyond, _ = self.marginals(X)
        scale = self.scale[:, None]
        return (scale * mean)[None], (scale**2 * (beyond + variance))[None]

    def marginals(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Means and variances (K, n) of a^T v_k, the variances that a leaves open (n,), and a^T a (n,)."""
        A, beyond = _project(self.kernel, self.free, self.Z, self.factor, X)
        variance = np.array([np.einsum("mn,mn->n", A, S @ A) for S in self.covariance])
        return self.mean @ A, variance, beyond, np.einsum("mn,mn->n", A, A)

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, K) and covariances (n, K, K) of the latent functions."""
        return latent_moments(*self.latents(X))

    def draws(self, X: np.ndarray, spread: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the posterior, its variances multiplied by `spread`."""
        A, _ = _project(self.kernel, self.free, self.Z, self.factor, X)
        gram = self.kernel.gram(self.free, X, X)
        latents = inducing_draws(A, gram, self.mean, self.covariance, self.scale, n_draws, rng)
        return widened(latents, self.scale[:, None] * (self.mean @ A), spread)


def chosen_rows(kernel: Kernel, free: Free, X: np.ndarray, most: int, seed: int) -> np.ndarray:
    """The rows that explain most of the prior's variance, one after another: each is the row known worst so far."""
    rng = np.random.default_rng(seed)
    index = np.arange(len(X)) if len(X) <= _CANDIDATES else rng.choice(len(X), _CANDIDATES, replace=False)
    X = X[index]
    left = kernel.diagonal(free, X).copy()
    floor = _JITTER * left.mean()
    rows, chosen = np.zeros((most, len(X))), list[int]()
    for m in range(min(most, len(X))):
        best = int(left.argmax())
        if left[best] <= floor:
            break
        column = kernel.gram(free, X[best : best + 1], X)[0] - rows[:m, best] @ rows[:m]
        rows[m] = column / np.sqrt(left[best])
        left = np.maximum(left - rows[m] ** 2, 0.0)
        left[best] = 0.0
        chosen.append(best)
    return index[chosen]


def inducing_cost(n: int, M: int, K: int) -> float:
    """The cost of a sweep over n rows seen through M inducing inputs, beside those of `sweep_cost`."""
    return K * M * n * (M + 1000.0)


def _project(kernel: Kernel, free: Free, Z: np.ndarray, L: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns a(x) (M, n), and the variances k(x, x) - a^T a that the inducing values leave open (n,)."""
    A = BlockedFactor.of(L).solve(kernel.gram(free, Z, X))
    return A, np.maximum(kernel.diagonal(free, X) - np.einsum("mn,mn->n", A, A), 0.0)


class _Belief(NamedTuple):
    """q(v) of all classes: means (K, M), covariances, the marginals' means and variances (K, n), and sum_k Phi."""

    mean: np.ndarray
    covariance: np.ndarray
    m: np.ndarray
    w: np.ndarray
    log_partition: float


def fit_inducing(
    chosen: ChosenKernel,
    state: KernelState,
    merged: MergedRows,
    node: ArgmaxNode,
    n_inducing: int,
    seed: int,
    *,
    calibrate: bool,
    report: Report | None = None,
) -> FittedInducing:
    """Choose inducing inputs among the rows, and sweep the sites of all rows to their fixed point."""
    rows, free, kernel = merged.rows, state.free, chosen.kernel
    cost = inducing_cost(len(rows.y), n_inducing, len(state.log_scale))
    words = f"solving for all {len(rows.y):,} rows through {n_inducing:,} of them"
    begin_stage(report, words, USUAL_SWEEPS, cost, at_most=False)
    began = perf_counter()
    Z = rows.X[chosen_rows(kernel, free, rows.X, n_inducing, seed)]
    K_zz = kernel.gram(free, Z, Z)
    K_zz.flat[:: len(Z) + 1] += _JITTER * K_zz.diagonal().mean()
    L, info = lapack.dpotrf(K_zz, lower=1, clean=1)
    if info != 0:
        raise FloatingPointError("The kernel matrix of the inducing inputs could not be factored: use fewer of them.")
    A, beyond = _project(kernel, free, Z, L, rows.X)
    scale = np.exp(state.log_scale)[:, None]
    prior = np.maximum(np.einsum("mn,mn->n", A, A), _LEAST)  # of a row at which functions are known to be zero
    sites = SiteParameters(np.full((len(scale), len(rows.y)), 0.01), np.zeros((len(scale), len(rows.y))))
    before, rests, n_sweeps, damping = -np.inf, False, 0, _DAMPING
    while n_sweeps < _MOST_SWEEPS and not rests:
        n_sweeps += 1
        q, sites = _levelled(A, rows.c, sites, 1.0 / scale[:, 0])
        t, s = sites
        left = np.maximum(1.0 - t * q.w, q.w / prior)
        m_c, w_c = (q.m - s * q.w) / left, q.w / left
        value, by_mean, by_variance = log_expected(scale * m_c, scale**2 * (beyond + w_c), rows.y, node)
        by_mean, by_variance = scale * by_mean, scale**2 * by_variance
        e = np.clip(2.0 * by_variance - by_mean**2, -(1.0 - _LEAST) / np.maximum(w_c, _LEAST), 0.0)
        target = SiteParameters(-e / (1.0 + w_c * e), (by_mean - m_c * e) / (1.0 + w_c * e))
        brackets = -0.5 * np.log(left) + 0.5 * (q.m**2 * t - 2.0 * q.m * s + s * s * q.w) / left
        energy = q.log_partition + float(rows.c @ (value + brackets.sum(axis=0)))
        if report is not None:
            report(Chunk(n_sweeps, energy, damping, perf_counter() - began))
        rests = abs(energy - before) <= _ENOUGH * max(1.0, abs(energy))
        if energy < before:
            damping = max(0.5 * damping, 0.2)
        before = energy
        if not rests:
            sites = sites.towards(target, damping)
    if not np.isfinite(before):
        raise FloatingPointError("The energy ceased to be finite: check X for columns of extreme scale.")
    spread = 1.0
    if calibrate:
        begin_stage(report, "judging left-out rows")
        part = np.random.default_rng(seed).permutation(len(rows.y))[:_SPREAD_ROWS]
        share = 1.0 / merged.counts
        left = np.maximum(1.0 - share * rows.c * t * q.w, q.w / prior)
        latent = scale * (q.m - share * rows.c * s * q.w) / left, scale**2 * (beyond + q.w / left)
        judged = LabelledRows(rows.X[part], rows.y[part], rows.c[part])
        alone = LeftOutLatents(latent[0][:, part] / np.sqrt(node.noise), latent[1][:, part] / node.noise)
        spread = left_out_spread([alone], judged, node.rate)
    record = replace(
        chosen.record, energy=before, n_passes=chosen.record.n_passes + n_sweeps, settled=rests, jitter=_JITTER,
        n_copies=merged.n_copies, n_inducing=len(Z),
    )  # fmt: skip
    return FittedInducing(kernel, free, state.log_scale, Z, L, q.mean, q.covariance, node, record, spread)


def log_expected(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray, node: ArgmaxNode
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The logarithm of E[p(y | h)], (n,), with its slopes by means and variances of the latents, (K, n)."""
    log_z, by_mean, by_variance = log_largest_slopes(mean, variance + node.noise, y)
    value = log_mislabelled(log_z, node.rate, len(mean))
    slope = np.exp(log_z - value) * (1.0 - node.rate - node.rate / (len(mean) - 1))
    return value, slope * by_mean, slope * by_variance


def _levelled(A: np.ndarray, c: np.ndarray, sites: SiteParameters, unit: np.ndarray) -> tuple[_Belief, SiteParameters]:
    """q(v) with all sites raised to the common level of the fixed point (`gp.ep.levelled`), and those sites."""
    M = len(A)

    def of_class(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        t, s = sites.precision[k], sites.shift[k]
        P = blas.dsyrk(1.0, (A * np.sqrt(c * t)).T, trans=1, lower=1)
        P.flat[:: M + 1] += 1.0
        S, log_det = inverse_and_log_determinant(P)
        w = np.einsum("mn,mn->n", A, S @ A)
        return S, w, A @ (c * s), log_det

    covariances, variances, shifts, log_dets = zip(
        *run_tasks(of_class, len(unit), usable_threads(None)), strict=True
    )  # fmt: skip
    covariance, shift = np.array(covariances), np.array(shifts)
    mean = np.einsum("kij,kj->ki", covariance, shift)
    weight = np.eye(M) * ((unit**2).sum() + _LEAST) - np.einsum("k,kij->ij", unit**2, covariance)
    u = -lapack.dposv(weight, unit @ mean, lower=1)[1]
    level = unit[:, None] * (u @ A)
    sites = SiteParameters(sites.precision, sites.shift + sites.precision * level)
    shift = shift + (c * sites.precision * level) @ A.T
    mean = mean + unit[:, None] * (u - covariance @ u)
    log_partition = -0.5 * sum(log_dets) + 0.5 * float((shift * mean).sum())
    return _Belief(mean, covariance, mean @ A, np.array(variances), log_partition), sites
