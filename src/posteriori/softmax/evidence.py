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

from posteriori.softmax.laplace import Laplace, laplace, mode
from posteriori.softmax.pairs import contrasts
from posteriori.solvers.problem import PosteriorProblem

__all__ = ["Evidence", "EvidencePoint", "Hyperprior", "maximise_evidence"]

ENOUGH = 3e-3
"""Nats of evidence that are not worth another fit."""
_WORTH = 1.0
"""Nats of evidence per unit of a log-precision for which it is worth leaving an upper bound."""
_MODE_TOL = 1e-9
"""Relative decrement to which modes are found: determinants move with the mode, J only with its square."""
_LEAST_TOL = 1e-13
"""The smallest relative decrement that can be reached."""
_MODE_FLOPS = 3e10
"""Cubes of the number of coefficients that a mode may cost; it takes 20 steps in any case."""
_UNMOVED = 1e-9
"""Nats a row by which a mode may move and leave the Hessian as it is."""
MANY_ROWS = 200
"""Rows for each parameter from which on the determinant does not follow the mode."""
_MOST_FLOPS = 1.5e11
"""Operations that a search may cost; it looks at 8 priors in any case."""
LOWEST, HIGHEST = np.log(1e-5), np.log(1e9)
"""Bounds of log-precisions for standardised columns: beyond them a prior is flat, or leaves nothing."""


@dataclass(frozen=True)
class Hyperprior:
    """N(centre, sd^2): what is thought of the first log-precision before the data are seen.

    It hardly matters where many weights tell how large they are. Where few do, it keeps their precision from running
    away: all but separated classes would have it be zero, and features that tell little infinite.
    """

    centre: float
    sd: float = 1.5

    def log_density(self, u: float) -> float:
        """Up to a constant."""
        return -0.5 * ((u - self.centre) / self.sd) ** 2

    def slope(self, u: float) -> float:
        """d log p / d u."""
        return (self.centre - u) / self.sd**2


@dataclass(frozen=True)
class EvidencePoint:
    """The evidence at log-precisions u (G,), the gradient of what is climbed, and MacKay's suggestion for the next.

    The gradient is the difference of two sizes; the logarithm of their ratio has the same root and is straighter.
    """

    u: np.ndarray
    log_evidence: float
    gradient: np.ndarray
    suggestion: np.ndarray
    ratio: np.ndarray
    determined: np.ndarray
    """Share of each group's parameters that the data determine, gamma / d."""
    log_prior: float = 0.0
    """The log density of u before the data are seen, up to a constant."""

    @property
    def height(self) -> float:
        """What is climbed: the log evidence, and the log prior of u."""
        return self.log_evidence + self.log_prior


class Evidence:
    """Laplace's log evidence as a function of log-precisions, each mode found from the last.

    See docs/theory.md, section 3.3.

    Parameters
    ----------
    problem_at : callable
        Log-precisions (G,) -> the problem with that prior, whose mean is zero.
    groups : ndarray (D',) of int
        Group of each column, -1 for columns whose precision is not sought.
    theta : ndarray (K, D')
        Parameters at which the search starts.
    centre : ndarray (D',) or None
        [c, 1] if the last column's precision is that of w . c + b.
    tol : float
        Relative decrement to which modes are found, at most.
    hyperprior : Hyperprior or None
        Of the first log-precision.
    """

    def __init__(
        self,
        problem_at: Callable[[np.ndarray], PosteriorProblem],
        groups: np.ndarray,
        theta: np.ndarray,
        centre: np.ndarray | None = None,
        tol: float = _MODE_TOL,
        hyperprior: Hyperprior | None = None,
    ) -> None:
        self.hyperprior = hyperprior
        self.problem_at, self.groups, self.theta, self.centre = problem_at, groups, theta, centre
        self.tol = float(np.clip(tol, _LEAST_TOL, _MODE_TOL))
        self.path: list[EvidencePoint] = []
        self.many_rows = False
        self.found: Laplace | None = None
        self.problem: PosteriorProblem | None = None
        self._slopes: np.ndarray | None = None  # d theta / d u_g at the last mode, (G, K, D')

    def __call__(self, u: np.ndarray, tol: float = _MODE_TOL) -> EvidencePoint:
        """The evidence at u, with the mode known to a relative decrement `tol`."""
        problem = self.problem_at(u)
        theta = self.theta
        if self.found is None:
            H_lik = problem.curvature.likelihood_hessian(theta, contrasts(len(theta)))
        else:
            H_lik = self.found.likelihood_hessian
            change = u - self.path[-1].u
            if self._slopes is not None and np.abs(change).max() < 3.0:
                theta = theta + np.tensordot(change, self._slopes, axes=1)
        start = theta
        max_iter = int(np.clip(_MODE_FLOPS / theta.size**3, 20, 100))
        theta, _ = mode(problem, start, H_lik, min(tol, self.tol), max_iter)
        found = laplace(problem, theta, H_lik if self._holds(problem, start, theta) else None)
        point = self._point(problem, found, u)
        self.problem, self.found, self.theta = problem, found, theta
        self.path.append(point)
        return point

    def _holds(self, problem: PosteriorProblem, start: np.ndarray, theta: np.ndarray) -> bool:
        """Whether the Hessian at hand is that at theta: made there, or of so many rows that the step changed none."""
        if self.found is None or not self.many_rows:
            return self.found is None and theta is start
        step = theta - self.found.posterior.mean
        moved = 0.5 * float(np.vdot(step, self.found.posterior.precision_times(step)))
        return moved <= _UNMOVED * problem.row_moments.total_weight

    def _point(self, problem: PosteriorProblem, found: Laplace, u: np.ndarray) -> EvidencePoint:
        posterior, theta = found.posterior, found.posterior.mean
        J, width = posterior.basis.shape[1], theta.shape[1]
        members = self.groups == np.arange(u.size)[:, None]  # (G, D')
        a = np.exp(u)
        blocks = posterior.inner.reshape(J, width, J, width)
        variance = np.einsum("idid->d", blocks)
        pull = np.zeros_like(theta)
        self.many_rows = problem.row_moments.total_weight >= MANY_ROWS * len(posterior.inner)
        if not self.many_rows:
            pull = posterior.solve(problem.curvature.log_det_slope(theta, posterior.packed_forms))
        values, pulls = theta, pull
        if self.centre is not None:  # of w . c + b in place of b
            variance[-1] = np.einsum("idie,d,e->", blocks, self.centre, self.centre, optimize=True)
            values, pulls = self._centred(theta), self._centred(pull)
        size = J * members.sum(axis=1)
        gamma = size - a * (members @ variance)
        squares = members @ (values**2).sum(axis=0)
        trace = a * (members @ (pulls * values).sum(axis=0))
        if u.size <= 2:
            self._slopes = np.stack(
                [-posterior.solve(self._pulled(theta, a_g, m)) for a_g, m in zip(a, members, strict=True)]
            )
        suggestion = np.log(np.maximum(gamma, 1e-3) / np.maximum(squares, 1e-300))
        # both stay positive and keep their difference: what is lacking above the line is added below it
        up = np.maximum(gamma + trace, 1e-3 * np.maximum(gamma, 1e-3))
        down = np.maximum(a * squares + (up - gamma - trace), 1e-300)
        slope, log_prior = np.zeros(u.size), 0.0
        if self.hyperprior is not None:
            slope[0], log_prior = self.hyperprior.slope(u[0]), self.hyperprior.log_density(u[0])
        return EvidencePoint(
            u=u.copy(),
            log_evidence=found.log_evidence,
            gradient=0.5 * (gamma - a * squares + trace) + slope,
            suggestion=np.clip(suggestion, LOWEST, HIGHEST),
            ratio=np.log((up + 2.0 * np.maximum(slope, 0.0)) / (down + 2.0 * np.maximum(-slope, 0.0))),
            determined=gamma / np.maximum(size, 1),
            log_prior=log_prior,
        )

    def _centred(self, theta: np.ndarray) -> np.ndarray:
        """The parameters with the intercepts in the last column replaced by the logits of the mean row."""
        assert self.centre is not None
        return np.column_stack([theta[:, :-1], theta @ self.centre])

    def _pulled(self, theta: np.ndarray, a: float, members: np.ndarray) -> np.ndarray:
        """R_g theta, the gradient of one group's part of the prior."""
        out = a * np.where(members, theta, 0.0)
        if self.centre is not None and members[-1]:
            out[:, -1] = 0.0
            out += a * (theta @ self.centre)[:, None] * self.centre
        return out


Bounds = tuple[np.ndarray, np.ndarray]


def maximise_evidence(evidence: Evidence, u: np.ndarray, bounds: Bounds | None = None) -> bool:
    """Climb from u to the highest evidence within bounds, and tell whether it was reached.

    See docs/theory.md, section 3.3.
    """
    if bounds is None:
        bounds = np.full(u.size, LOWEST), np.full(u.size, HIGHEST)
    u = np.clip(u, *bounds)
    affordable = int(_MOST_FLOPS / max(2.0 * evidence.theta.size**3, 1.0))  # each factors matrices of all coefficients
    if u.size <= 2:
        return _climb_few(evidence, u, bounds, int(np.clip(affordable, 8, 40)))
    return _climb_all(evidence, u, bounds, int(np.clip(affordable, 8, 60)))


def _climb_few(evidence: Evidence, u: np.ndarray, bounds: Bounds, max_evaluations: int) -> bool:
    """Climb over one or two log-precisions: Broyden's method on the ratios, which is the secant method for one."""
    point = best = evidence(u)
    # the ratio's steepness: one where rows are many and the weights hardly move, less where they follow the prior
    steepness = np.diag(np.clip(point.determined, 0.4, 1.0))
    while True:
        step, free = _broyden_step(best, steepness, bounds)
        settled = 0.5 * abs(float(best.gradient @ step)) < ENOUGH
        if not free.any() or not step.any() or (settled and (len(evidence.path) > 1 or evidence.many_rows)):
            break
        if len(evidence.path) >= max_evaluations:
            return False
        if point is not best:  # the last step was too long
            step = 0.5 * (point.u - best.u)
            if np.abs(step).max() < 1e-3:
                break
        point = evidence(best.u + step)
        change = point.u - best.u
        steepness += np.outer(best.ratio - point.ratio - steepness @ change, change) / float(change @ change)
        if point.height > best.height - 0.1 * ENOUGH:
            best = point
    if evidence.path[-1] is not best:
        evidence(best.u)
    return True


def _broyden_step(point: EvidencePoint, steepness: np.ndarray, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    """The step to where the ratios would vanish, and which precisions are free to take it."""
    lower, upper = bounds
    free = ~((point.u <= lower) & (point.gradient < 0)) & ~((point.u >= upper) & (point.gradient > -_WORTH))
    step = np.zeros_like(point.u)
    if free.any():
        step[free] = np.linalg.lstsq(steepness[np.ix_(free, free)], point.ratio[free])[0]
        if float(step @ point.gradient) <= 0:  # a step that lowers the evidence is not taken
            step[free] = point.ratio[free]
    return np.clip(point.u + np.clip(step, -5.0, 5.0), lower, upper) - point.u, free


def _climb_all(evidence: Evidence, u: np.ndarray, bounds: Bounds, max_evaluations: int) -> bool:
    """Climb over many log-precisions: MacKay's fixed point for a few rounds, then quasi-Newton steps."""
    best = -np.inf
    for _ in range(5):
        point = evidence(u)
        if point.height < best:
            break
        best = point.height
        u = np.clip(np.clip(point.suggestion, point.u - 2.0, point.u + 2.0), *bounds)
    u = max(evidence.path, key=lambda p: p.height).u

    def minus(u: np.ndarray) -> tuple[float, np.ndarray]:
        point = evidence(u)
        return -point.height, -point.gradient

    found = minimize(
        minus,
        u,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(*bounds, strict=True)),
        options={"maxfun": max_evaluations, "ftol": ENOUGH / max(abs(best), 1.0), "gtol": 1e-3},
    )
    if not np.array_equal(evidence.path[-1].u, found.x):
        evidence(found.x)
    return bool(found.success)
