r"""The flat prior: maximum likelihood, and the Gaussian of its standard errors.

.. math:: \hat\theta = \arg\max_\theta \log p(Y \mid X, \theta), \qquad
          q(B) = N(\hat B, H_{\rm lik}^{-1}),\quad \theta = Q B,

with H_lik the observed information in contrasts Q (K, K - 1) of the classes: what all classes share is not determined,
and no probability depends on it. This is the table of every program for multinomial logit; a Bayesian reads it as the
posterior of a prior that is the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh

from posteriori.exceptions import SingularError
from posteriori.parameters import Parameters, is_number
from posteriori.softmax.collinearity import require_independent
from posteriori.softmax.coordinates import CoordinateRule
from posteriori.softmax.covariance import CovarianceInBasis
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mode import Mode, SolveSettings, certified, find_mode
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior
from posteriori.softmax.precision import DiagonalPrecision, Precision
from posteriori.solvers.solution import Status

__all__ = ["FlatPrior"]

_SETTLED = 1e-26
"""Decrement, as a share of J, at which a maximum is as good as float64 allows."""
_SAME_INFORMATION = 1e-20
"""A step of this decrement changes the information by less than a part in 1e9."""
_POLISHING_STEPS = 8
_ROUNDING = 1e-12
"""Share of J by which it may seem to grow, where steps are too short to change it."""
_FAR_STEPS, _FAR_FLOPS = 60, 2e10
"""Most steps, and most multiplications for their information, in search of what is finite under separation."""
_LOST, _CLEAR = 1e-9, 1e-7
"""Shares of the most information there can be: below the first a direction is lost, above the second it is not."""
_LEAST_SHARE, _LONGEST = 1e-12, 3.0
"""The least share by which a slope is divided, and the longest step, in nats of a row's logits."""
_FLOOR = 1e-10
"""Least information about a contrast, as a share of its own diagonal, where there is no finite maximum."""


@dataclass
class FlatPrior(Parameters):
    """A prior that is the same everywhere: the mode is the maximum of the likelihood (docs/theory.md, section 2.7).

    Parameters
    ----------
    intercept_precision : number, default 0
        Precision of the logit of the mean row, w_k . mean(x) + b_k; 0 is flat.
    """

    intercept_precision: float = 0.0

    proper: ClassVar[bool] = False
    note: ClassVar[str] = "flat: maximum likelihood"

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """Standardised columns, for the sake of rounding alone."""
        return CoordinateRule(scaled=True, shift_allowed=has_intercept)

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, structure: str) -> Mode:
        """The maximum of the likelihood, with the Gaussian of its information; there is no evidence."""
        require_independent(likelihood, "flat")
        objective = likelihood.objective(self._precision(likelihood))
        found = find_mode(objective, settings)
        if found.solution.status in (Status.SEPARATED, Status.INTERRUPTED, Status.DIVERGED):
            posterior = _bounded_posterior(objective, found.theta)
            if found.solution.status is Status.SEPARATED:
                posterior.limit = _limit(objective, found.theta)
            return replace(found, posterior=posterior)
        return _polished(objective, found, settings.tol)

    def isotropic(self, likelihood: LinearLikelihood) -> bool:
        """False: weights that no row determines have no distribution."""
        return False

    def strengths(self, likelihood: LinearLikelihood, precision: Precision) -> None:
        """None: it has no strength."""

    def _precision(self, likelihood: LinearLikelihood) -> DiagonalPrecision:
        given = self.intercept_precision
        if not is_number(given) or not 0 <= float(given) < np.inf:
            raise ValueError(f"intercept_precision={given!r} must be a number that is not negative.")
        values = np.zeros(likelihood.shape)
        if not likelihood.has_intercept or given == 0:
            return DiagonalPrecision(values)
        values[:, -1] = given
        return DiagonalPrecision(values, likelihood.coordinates.centre)


def _posterior(objective: SoftmaxObjective, theta: np.ndarray, floor: float = 0.0) -> FullPosterior:
    """N(theta, H^{-1}) in contrasts, with `floor` times its diagonal added to H."""
    basis = contrasts(objective.shape[0])
    H = objective.curvature.likelihood_hessian(theta, basis) + objective.prior.matrix(basis)
    i = np.arange(len(H))
    H[i, i] += floor * H[i, i] + (np.finfo(float).tiny if floor else 0.0)
    return FullPosterior(theta, H, basis, None, objective.curvature.factor)


def _bounded_posterior(objective: SoftmaxObjective, theta: np.ndarray) -> FullPosterior:
    """The Gaussian where the iteration stopped short of a maximum, whose information may vanish."""
    floor = _FLOOR
    while True:
        try:
            return _posterior(objective, theta, floor)
        except SingularError:
            floor *= 100.0


def _limit(objective: SoftmaxObjective, theta: np.ndarray) -> CovarianceInBasis | None:
    """The estimates that are finite although classes are separated; None if they cannot be told from the others.

    Newton's steps move the logits of separated rows by about one each, for ever, while all else converges. Far out, the
    information about what moves is next to nothing compared with that at theta = 0, the most there can be.
    """
    basis = contrasts(len(theta))
    size = basis.shape[1] * theta.shape[1]
    if objective.n_rows * size**2 * _FAR_STEPS > _FAR_FLOPS:
        return None

    def information(theta: np.ndarray) -> np.ndarray:
        return objective.curvature.likelihood_hessian(theta, basis) + objective.prior.matrix(basis)

    most = information(np.zeros_like(theta))
    for _ in range(_FAR_STEPS):
        shares, vectors = eigh(information(theta), most)
        slopes = vectors.T @ (basis.T @ objective.value_gradient(theta)[1]).ravel()
        lost = shares < _LOST
        left = 0.5 * float((slopes[~lost] ** 2 / shares[~lost]).sum())
        if lost.any() and left < _SETTLED * objective.n_rows and (shares[~lost] > _CLEAR).all():
            known = vectors[:, ~lost]
            free = np.einsum("ki,ids->skd", basis, vectors[:, lost].reshape(basis.shape[1], -1, int(lost.sum())))
            return CovarianceInBasis(theta, (known / shares[~lost]) @ known.T, basis, free=free)
        step = -slopes / np.maximum(shares, _LEAST_SHARE)
        step *= min(1.0, _LONGEST * np.sqrt(objective.n_rows) / max(float(np.linalg.norm(step)), 1e-300))
        theta = theta + basis @ (vectors @ step).reshape(basis.shape[1], -1)
    return None


def _polished(objective: SoftmaxObjective, found: Mode, tol: float) -> Mode:
    """The maximum to the last digits, by Newton's steps: the information is needed there in any case."""
    theta, gap = found.theta, np.inf
    value, gradient = objective.value_gradient(theta)
    try:
        posterior = _posterior(objective, theta)
        for _ in range(_POLISHING_STEPS):
            step = -posterior.solve(gradient)
            before, gap = gap, -0.5 * float(np.vdot(gradient, step))
            if gap <= _SETTLED * abs(value) or not gap < 0.5 * before:
                break
            moved, moved_gradient = objective.value_gradient(theta + step)
            if not moved <= value + _ROUNDING * abs(value):
                break
            theta, value, gradient = theta + step, moved, moved_gradient
            posterior = _posterior(objective, theta) if gap > _SAME_INFORMATION else posterior.about(theta)
    except SingularError:
        posterior = _bounded_posterior(objective, theta)
    ended = found.solution
    solution = certified(
        objective,
        theta,
        ended.status,
        gap if np.isfinite(gap) else ended.gap,
        ended.gap_bound,
        tol=tol,
        trace=ended.trace,
        n_iter=ended.n_iter,
        seconds=ended.seconds,
    )
    return Mode(objective, theta, solution, posterior=posterior)
