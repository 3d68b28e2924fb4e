"""A Gaussian process that sees all distinct rows: no inducing inputs, and sites that couple the classes.

The kernel is learned first, from as many rows as time allows, and chosen among a few; then the sites of all rows are
swept to their fixed point. All of it is NumPy: nothing is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import KDTree

from posteriori.gp.calibration import LeftOutLatents, left_out_score, left_out_spread, refined
from posteriori.gp.coupled import LatentMoments, SiteParameters, Solved, row_sites
from posteriori.gp.draws import widened
from posteriori.gp.independent import independent_variances
from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.learning import KernelEvidence, likely_vectors, settle
from posteriori.gp.output import ArgmaxNode
from posteriori.gp.predictions import FittedProbit
from posteriori.gp.progress import begin_stage, sweep_cost
from posteriori.gp.solution import GPSolution
from posteriori.solvers.solution import Status

if TYPE_CHECKING:
    from posteriori.gp.choosing import ChosenKernel
    from posteriori.gp.progress import Report
    from posteriori.gp.repeats import MergedRows

__all__ = ["FittedMixture", "FittedRows", "fit_all_rows"]

_UNSEEN = 1e-5
"""The precision of the sites of rows that were not seen before, beside others that were."""
_SETTLED = 1e-5
"""The change of the energy over a sweep, for each row, at which sites are at their fixed point."""
_MOST_SWEEPS, USUAL_SWEEPS = 60, 6
_UNCERTAIN = 1e8
"""K n^3 up to which predictions average over likely kernels: with more rows the kernel is known well enough."""
_REFINED = 1.5e10
"""K n^3 up to which left-out rows may ask for other lengthscales: each that is tried takes several sweeps."""
_NODES = 8
"""The number of likely kernels."""
_NODE_SETTLED = 3e-4
"""As `_SETTLED`, for the sites of likely kernels."""


@dataclass(frozen=True)
class FittedRows(FittedProbit):
    """A fitted Gaussian process on all distinct rows: the kernel, and the sites, from which the posterior follows."""

    kernel: Kernel
    free: Free
    log_scale: np.ndarray
    X: np.ndarray
    y: np.ndarray
    c: np.ndarray
    precision: np.ndarray
    shift: np.ndarray
    node: ArgmaxNode
    solution: GPSolution
    spread: float = 1.0
    """The factor on the variances of the latents under which probabilities are best."""

    @cached_property
    def _solved(self) -> Solved:
        """The posterior that the sites give; it is large, and made again from a file."""
        sites = row_sites(self.y, self.c, len(self.log_scale), self.node.rate)
        gram = self.kernel.gram(self.free, self.X, self.X)
        return sites.solve(gram, self._variances, SiteParameters(self.precision, self.shift))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_solved"}

    @property
    def _variances(self) -> np.ndarray:
        """The latents' variances in units of the noise, (K,)."""
        return np.exp(2.0 * self.log_scale) / self.node.noise

    @property
    def inducing(self) -> np.ndarray:
        """The distinct rows, (M, D)."""
        return np.unique(self.X, axis=0)

    def _latent_moments(self, X: np.ndarray) -> LatentMoments:
        """Moments of the latents in units of the noise."""
        cross = self.kernel.gram(self.free, self.X, X)
        return self._solved.moments(cross, self.kernel.diagonal(self.free, X))

    def without(self, share: np.ndarray) -> LatentMoments:
        """Moments of the latents of the rows of the fit, each without this share of its site, in units of the noise."""
        return self._solved.left_out(share)

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (1, K, n) of independent latents that stand for those of these rows, without noise."""
        mean, covariance = self._latent_moments(X)
        variance = independent_variances(mean, covariance, 1.0)
        return np.sqrt(self.node.noise) * mean[None], self.node.noise * variance[None]

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, K) and covariances (n, K, K) of the latent functions."""
        mean, covariance = self._latent_moments(X)
        return np.sqrt(self.node.noise) * mean.T, self.node.noise * covariance

    def draws(self, X: np.ndarray, spread: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the posterior, its variances multiplied by `spread`."""
        cross, gram = self.kernel.gram(self.free, self.X, X), self.kernel.gram(self.free, X, X)
        latents = self._solved.draws(cross, gram, n_draws, rng)
        mean = self._solved.moments(cross, gram.diagonal()).mean
        return np.sqrt(self.node.noise) * widened(latents, mean, spread)


@dataclass(frozen=True)
class FittedMixture:
    """Fits to the same rows with kernels that are about as likely; what was learned is that of the best one."""

    best: FittedRows
    members: tuple[FittedRows, ...]
    averaged: bool
    """Whether probabilities are averages over all members, as intervals are, or near rows of the fit the best one's."""

    needs_jax = False

    @property
    def node(self) -> ArgmaxNode:
        """The node that turns latents into probabilities."""
        return self.best.node

    @property
    def scale(self) -> np.ndarray:
        """The scales sigma_k of the latent functions, (K,)."""
        return self.best.scale

    @property
    def mislabelling(self) -> float:
        """The rate of mislabelled rows."""
        return self.best.mislabelling

    @property
    def inducing(self) -> np.ndarray:
        """The distinct rows, (M, D)."""
        return self.best.inducing

    @property
    def solution(self) -> GPSolution:
        """The record of the fit."""
        return self.best.solution

    @property
    def spread(self) -> float:
        """The factor on the variances of the latents under which probabilities are best."""
        return self.best.spread

    def learned_kernel(self, unit: np.ndarray) -> Kernel:
        """The best kernel, of features in their own units."""
        return self.best.learned_kernel(unit)

    def latents(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of independent latents that stand for those of these rows, without noise."""
        means, variances = zip(*(member.latents(X) for member in self.members), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def predictive(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (S, K, n) of the latents that probabilities are computed from.

        Left-out rows have judged the best member for rows that are about as near to others. Farther away members
        disagree about how rules go on, and nothing has judged them: each member's latents slide from the best one's to
        its own.
        """
        if self.averaged:
            return self.latents(X)
        best, beyond = self.best.latents(X), self._beyond(X)
        if not beyond.any():
            return best
        mean, variance = ((1.0 - beyond) * b + beyond * own for b, own in zip(best, self.latents(X), strict=True))
        return mean, variance

    def _beyond(self, X: np.ndarray) -> np.ndarray:
        """0 for rows as near to those of the fit as these are to each other, 1 from twice that distance on, (n,)."""
        distance, _ = self._tree.query(X)
        return np.clip(distance / self._widest_gap - 1.0, 0.0, 1.0)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.inducing)

    @cached_property
    def _widest_gap(self) -> float:
        """The largest distance of a row of the fit from its nearest other."""
        rows = self.inducing
        return float(self._tree.query(rows, k=2)[0][:, 1].max()) if len(rows) > 1 else np.inf

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_tree", "_widest_gap")}

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, K) and covariances (n, K, K) of the latent functions: within members, and between them."""
        means, covariances = (np.array(part) for part in zip(*(m.moments(X) for m in self.members), strict=True))
        # each member has a level of its own that means nothing: differences from the mean over classes are compared
        apart = means - means.mean(axis=2, keepdims=True)
        centre = apart.mean(axis=0)
        apart = apart - centre
        return centre, covariances.mean(axis=0) + np.einsum("snk,snl->nkl", apart, apart) / len(apart)

    def draws(self, X: np.ndarray, spread: float, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows, of each member as many as chance has it, in random order."""
        counts = rng.multinomial(n_draws, np.full(len(self.members), 1.0 / len(self.members)))
        parts = [member.draws(X, spread, int(n), rng) for n, member in zip(counts, self.members, strict=True)]
        return rng.permutation(np.concatenate(parts))

    def prior_draws(self, X: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Latents (n_draws, K, n) of standardised rows from the prior, with the best kernel."""
        return self.best.prior_draws(X, n_draws, rng)


def fit_all_rows(
    chosen: ChosenKernel, merged: MergedRows, node: ArgmaxNode, *, calibrate: bool, report: Report | None = None
) -> FittedRows | FittedMixture:
    """Sweep the sites of all rows to their fixed point; those that the kernel was learned from begin where they are.

    Where left-out rows are to judge, they may ask for other lengthscales and scales first. Where rows are few, so that
    the kernel is uncertain, likely kernels are fitted too.
    """
    rows, K, kernel = merged.rows, len(chosen.state.log_scale), chosen.kernel
    sites = row_sites(rows.y, rows.c, K, node.rate)
    start, state, record = sites.start(), chosen.state, chosen.record
    if chosen.sites is not None:
        start.precision[:] = _UNSEEN  # rows that the kernel has not seen say nothing at first
        start.precision[:, chosen.part], start.shift[:, chosen.part] = chosen.sites
        if calibrate and K * len(rows.y) ** 3 <= _REFINED and record.status is not Status.INTERRUPTED:
            begin_stage(report, "judging left-out rows under other lengthscales")
            better = refined(kernel, state, sites, start, merged, node.rate)
            state, start = better.state, better.sites
            record = replace(record, log_length=better.log_length, log_scale=better.log_scale)
    gram = kernel.gram(state.free, rows.X, rows.X)
    words, enough = f"solving for all {len(rows.y):,} rows", _SETTLED * len(rows.y)
    begin_stage(report, words, USUAL_SWEEPS, sweep_cost(len(rows.y), K), at_most=False)
    at, visit, rests, n_sweeps = settle(sites, gram, state.variances, start, enough, _MOST_SWEEPS, report)
    if not np.isfinite(visit.energy):
        raise FloatingPointError(
            "The energy ceased to be finite: check X for columns of extreme scale, or use a kernel of less variance."
        )
    record = replace(
        record, energy=visit.energy, n_passes=record.n_passes + n_sweeps, settled=rests,
        n_copies=merged.n_copies, n_inducing=len(np.unique(rows.X, axis=0)),
    )  # fmt: skip
    log_scale = state.log_scale + 0.5 * np.log(node.noise)
    fitted = FittedRows(kernel, state.free, log_scale, rows.X, rows.y, rows.c, *at, node, record)
    certain = chosen.sites is None or not rests or K * len(rows.y) ** 3 > _UNCERTAIN
    members, left = list[FittedRows](), list[LeftOutLatents]()
    if not certain:
        begin_stage(report, f"fitting {_NODES} kernels that are about as likely")
        evidence = KernelEvidence(kernel, rows, K, node.rate, chosen.start)
        evidence.parameters = at
        members, left = _likely_fits(fitted, evidence, evidence.pack(state), merged)
    if not calibrate and not members:
        return fitted
    begin_stage(report, "judging left-out rows")
    own = LeftOutLatents.of(visit.solved, merged)
    averaged = len(members) > 1 and left_out_score(left, rows, node.rate) >= left_out_score([own], rows, node.rate)
    if calibrate:
        fitted = replace(fitted, spread=left_out_spread(left if averaged else [own], rows, node.rate))
    return FittedMixture(fitted, tuple(members), averaged) if len(members) > 1 else fitted


def _likely_fits(
    fitted: FittedRows, evidence: KernelEvidence, best: np.ndarray, merged: MergedRows
) -> tuple[list[FittedRows], list[LeftOutLatents]]:
    """Fits with kernels that are about as likely as the best one, and what they say of every row without it."""
    members, left = list[FittedRows](), list[LeftOutLatents]()
    for vector in likely_vectors(evidence, best, _NODES):
        state = evidence.unpack(vector)
        with np.errstate(all="ignore"):
            gram = fitted.kernel.gram(state.free, fitted.X, fitted.X)
            try:
                at, visit, _, _ = settle(
                    evidence.sites, gram, state.variances, SiteParameters(fitted.precision, fitted.shift),
                    _NODE_SETTLED * len(fitted.y), _MOST_SWEEPS,
                )  # fmt: skip
            except (FloatingPointError, ValueError):
                continue
        if np.isfinite(visit.energy) and visit.energy <= 0.0:
            log_scale = state.log_scale + 0.5 * np.log(fitted.node.noise)
            members.append(
                replace(fitted, free=state.free, log_scale=log_scale, precision=at.precision, shift=at.shift)
            )
            left.append(LeftOutLatents.of(visit.solved, merged))
    return members, left
