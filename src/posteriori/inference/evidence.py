r"""The prior's precisions by maximal evidence, with the true gradient.

With one log-precision u_g per group of coefficients and Laplace's evidence at the mode,

.. math:: \frac{d \log p(Y)}{d u_g} = \tfrac12\big(\gamma_g - a_g \lVert\theta_g\rVert^2\big)
          + \tfrac12 \langle H^{-1} t,\, a_g \theta_g \rangle, \qquad
          \gamma_g = \sum_{i \in g} (1 - a_i [H^{-1}]_{ii}),\quad
          t = \frac{\partial}{\partial\theta} \operatorname{tr}(S H(\theta))\Big|_{S = H^{-1}} .

The last term is how the determinant follows the mode; MacKay's fixed point leaves it out and stops short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from posteriori.inference.laplace import Laplace, class_basis, laplace, mode
from posteriori.inference.problem import PosteriorProblem

__all__ = ["Evidence", "EvidencePoint", "maximise_evidence"]

_ENOUGH = 5e-3
"""Nats of evidence that are not worth another fit."""
_MODE_TOL = 1e-9
"""Relative decrement to which modes are found: determinants move with the mode, J only with its square."""
_LOWEST, _HIGHEST = np.log(1e-5), np.log(1e9)
"""Bounds of log-precisions for standardised columns: beyond them a prior is flat, or leaves nothing."""


@dataclass(frozen=True)
class EvidencePoint:
    """The evidence at log-precisions u (G,), its gradient, and MacKay's suggestion for the next.

    The gradient is the difference of two sizes; the logarithm of their ratio has the same root and is straighter.
    """

    u: np.ndarray
    log_evidence: float
    gradient: np.ndarray
    suggestion: np.ndarray
    ratio: np.ndarray
    determined: float
    """Share of the parameters that the data determine, sum gamma / d."""


class Evidence:
    """Laplace's log evidence as a function of log-precisions, each mode found from the last.

    Parameters
    ----------
    problem_at : callable
        Log-precisions (G,) -> the problem with that prior, whose mean is zero.
    groups : ndarray (D',) of int
        Group of each column, -1 for columns whose precision is not sought.
    theta : ndarray (K, D')
        Where to start.
    """

    def __init__(
        self, problem_at: Callable[[np.ndarray], PosteriorProblem], groups: np.ndarray, theta: np.ndarray
    ) -> None:
        self.problem_at, self.groups, self.theta = problem_at, groups, theta
        self.path: list[EvidencePoint] = []
        self.found: Laplace | None = None
        self.problem: PosteriorProblem | None = None
        self._slopes: np.ndarray | None = None  # d theta / d u_g at the last mode, (G, K, D')

    def __call__(self, u: np.ndarray, tol: float = _MODE_TOL) -> EvidencePoint:
        """The evidence at u, with the mode known to a relative decrement `tol`."""
        problem = self.problem_at(u)
        theta = self.theta
        if self.found is None:
            H_lik = problem.likelihood_hessian(theta, class_basis(problem))
        else:
            H_lik = self.found.likelihood_hessian
            change = u - self.path[-1].u
            if self._slopes is not None and np.abs(change).max() < 3.0:
                theta = theta + np.tensordot(change, self._slopes, axes=1)
        start = theta
        theta, _ = mode(problem, start, H_lik, tol)
        found = laplace(problem, theta, H_lik if theta is start and self.found is None else None)
        point = self._point(problem, found, u)
        self.problem, self.found, self.theta = problem, found, theta
        self.path.append(point)
        return point

    def _point(self, problem: PosteriorProblem, found: Laplace, u: np.ndarray) -> EvidencePoint:
        posterior, theta = found.posterior, found.posterior.mean
        J = posterior.basis.shape[1]
        members = self.groups == np.arange(u.size)[:, None]  # (G, D')
        a = np.exp(u)
        variance = np.einsum("idid->d", posterior.inner.reshape(J, theta.shape[1], J, theta.shape[1]))
        gamma = J * members.sum(axis=1) - a * (members @ variance)
        squares = members @ (theta**2).sum(axis=0)
        pull = posterior.solve(problem.log_det_slope(theta, posterior.forms))
        trace = a * (members @ (pull * theta).sum(axis=0))
        if u.size == 1:
            self._slopes = -posterior.solve(a[0] * np.where(members[0], theta, 0.0))[None]
        suggestion = np.log(np.maximum(gamma, 1e-3) / np.maximum(squares, 1e-300))
        ratio = np.log(np.maximum(gamma + trace, 1e-3 * np.maximum(gamma, 1e-3)) / np.maximum(a * squares, 1e-300))
        return EvidencePoint(
            u=u.copy(),
            log_evidence=found.log_evidence,
            gradient=0.5 * (gamma - a * squares + trace),
            suggestion=np.clip(suggestion, _LOWEST, _HIGHEST),
            ratio=ratio,
            determined=float(gamma.sum() / max(J * int(members.sum()), 1)),
        )


def maximise_evidence(evidence: Evidence, u: np.ndarray, max_evaluations: int = 60) -> bool:
    """Climb from u to the top; whether it was reached."""
    if u.size == 1:
        return _climb(evidence, u, max_evaluations)
    return _climb_all(evidence, u, max_evaluations)


def _climb(evidence: Evidence, u: np.ndarray, max_evaluations: int) -> bool:
    """One log-precision: secant steps, kept between the nearest points of either sign."""
    low, high = _LOWEST, _HIGHEST
    point = evidence(np.clip(u, low, high))
    # of the ratio: one where rows are many and the weights stand fast, less where they follow the prior
    steepness = float(np.clip(point.determined, 0.4, 1.0))
    for _ in range(max_evaluations - 1):
        at, slope, ratio = float(point.u[0]), float(point.gradient[0]), float(point.ratio[0])
        if len(evidence.path) > 1:
            before = evidence.path[-2]
            distance = at - float(before.u[0])
            curvature = (float(before.gradient[0]) - slope) / distance
            if curvature > 0 and 0.5 * slope * slope / curvature < _ENOUGH:
                return True
            steepness = max((float(before.ratio[0]) - ratio) / distance, 0.1)
        low, high = (at, high) if slope > 0 else (low, at)
        target = at + float(np.clip(ratio / steepness, -5.0, 5.0))
        if not low < target < high:
            target = 0.5 * (at + (high if slope > 0 else low))
        if high - low < 1e-3:
            return True
        point = evidence(np.array([target]))
    return False


def _climb_all(evidence: Evidence, u: np.ndarray, max_evaluations: int) -> bool:
    """Many: MacKay's fixed point for a few rounds, then quasi-Newton steps with the true gradient."""
    u = np.clip(u, _LOWEST, _HIGHEST)
    best = -np.inf
    for _ in range(5):
        point = evidence(u)
        if point.log_evidence < best:
            break
        best = point.log_evidence
        u = np.clip(point.suggestion, point.u - 2.0, point.u + 2.0)
    u = max(evidence.path, key=lambda p: p.log_evidence).u

    def minus(u: np.ndarray) -> tuple[float, np.ndarray]:
        point = evidence(u)
        return -point.log_evidence, -point.gradient

    found = minimize(
        minus,
        u,
        jac=True,
        method="L-BFGS-B",
        bounds=[(_LOWEST, _HIGHEST)] * u.size,
        options={"maxfun": max_evaluations, "ftol": _ENOUGH / max(abs(best), 1.0), "gtol": 1e-3},
    )
    if not np.array_equal(evidence.path[-1].u, found.x):
        evidence(found.x)
    return bool(found.success)
