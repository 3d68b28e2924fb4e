r"""Learning a kernel from the evidence of labelled rows, by quasi-Newton steps.

The energy E of `gp.coupled` is stationary in its sites, so that its slope by anything else holds them still. With
K_k = \sigma_k^2 K and A_k = dE/dK_k,

.. math:: \frac{dE}{dK} = \sum_k \sigma_k^2 A_k, \qquad
          \frac{dE}{d \log \sigma_k} = 2 \sigma_k^2 \sum_{ij} A_{k,ij} K_{ij},

and the kernel turns the first into slopes by its own parameters. Sites are kept from one step to the next: a few
sweeps bring them back to their fixed point.

Where rows are few, a kernel's parameters are uncertain. Their posterior is approximated by Laplace's method: with
\hat\theta the best vector of their logarithms, and H minus the Hessian of the log evidence plus log-prior there,
\theta ~ N(\hat\theta, H^{-1}). A few nodes \theta_s = \hat\theta + C z_s, C C^T = H^{-1}, z_s with mean zero and
covariance I, stand for it; each has sites of its own. H comes from differences of slopes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from posteriori.gp.coupled import CoupledSweep, RowSites, SiteParameters, row_sites
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import Free, Kernel
from posteriori.gp.progress import Report
from posteriori.gp.solution import Chunk
from posteriori.gp.trees import leaves, packed, unpacked
from posteriori.maths.integrals import even_nodes

__all__ = ["KernelEvidence", "KernelState", "Learned", "Memory", "ascend", "likely_vectors", "settle"]

_SCALE_SPREAD = 3.0
"""The prior's standard deviation of the mean of log sigma_k about its start."""
_CLASS_SPREAD = 1.0
"""The prior's standard deviation of each log sigma_k about their mean."""
_DAMPING = 0.8
"""The share of the way to its target that a site moves."""
_SWEEPS, _MOST_SWEEPS = 2, 40
"""The number of sweeps at a new kernel at least, and to the fixed point at most."""
_NEAR = 0.05
"""The change of the energy over a sweep at which sites are near enough to their fixed point to learn from."""
_SETTLED = 1e-6
"""The relative change of the energy over a sweep at which sites are at their fixed point."""
_MEMORY = 20
"""The number of steps that a quasi-Newton direction is made from."""
_LONGEST = 1.0
"""The longest step of a log-parameter."""
_HALVINGS = 6
_PATIENCE = 4
"""The number of steps whose rise must be worth the tolerance."""
_ONE_BY_ONE = 20
"""The number of parameters that are uncertain one by one, at most."""
_DIFFERENCE = 0.1
"""The step of a log-parameter over which the slope's difference is taken."""
_FARTHEST = 3.0
"""The farthest that a log-parameter goes from its best value."""
_WIDEST = 2.5
"""The largest standard deviation of a log-parameter along a direction of the Hessian."""


@dataclass(frozen=True)
class KernelState:
    """A kernel's free parameters and the latents' log-scales log sigma_k (K,)."""

    free: Free
    log_scale: np.ndarray

    @property
    def variances(self) -> np.ndarray:
        """The variances sigma_k^2 of the latents, (K,)."""
        return np.exp(2.0 * self.log_scale)


def settle(
    sites: RowSites,
    gram: np.ndarray,
    variances: np.ndarray,
    start: SiteParameters,
    enough: float,
    most: int,
    report: Report | None = None,
) -> tuple[SiteParameters, CoupledSweep, bool, int]:
    """Sweep until the energy changes by no more than `enough`; where it oscillates, steps are halved.

    Returns the sites, the last sweep over them, whether they rest, and the number of sweeps. `report` hears of each.
    """
    began = perf_counter()
    now, damping, energies = start, _DAMPING, list[float]()
    visit = sites.sweep(gram, variances, now)
    for n_sweeps in range(1, most + 1):
        energies.append(visit.energy)
        if report is not None:
            report(Chunk(n_sweeps, visit.energy, damping, perf_counter() - began))
        if len(energies) > 1 and abs(energies[-1] - energies[-2]) <= enough:
            return now, visit, True, n_sweeps
        if len(energies) > 3 and np.all(np.diff(np.sign(np.diff(energies[-4:]))) != 0):
            damping, energies = 0.5 * damping, energies[-1:]
        if n_sweeps < most:
            now = now.towards(visit.target, damping)
            visit = sites.sweep(gram, variances, now)
    return now, visit, False, most


class KernelEvidence:
    """The log evidence of labelled rows plus the log-prior, as a function of a kernel's parameters and scales.

    Parameters
    ----------
    kernel : Kernel
    rows : LabelledRows
    K : int
    rate : float
        The rate of mislabelled rows.
    start : KernelState
        The centre of the priors.
    """

    def __init__(self, kernel: Kernel, rows: LabelledRows, K: int, rate: float, start: KernelState) -> None:
        self.kernel, self.rows, self.start = kernel, rows, start
        self.sites = row_sites(rows.y, rows.c, K, rate)
        self.learnable = kernel.learnable()
        self.parameters = self.sites.start()
        self.n_sweeps = 0

    def pack(self, state: KernelState) -> np.ndarray:
        """The learned parameters of a state as one vector."""
        return np.concatenate([packed(state.free, self.learnable), state.log_scale])

    def unpack(self, vector: np.ndarray) -> KernelState:
        """The state that a vector stands for."""
        K = len(self.start.log_scale)
        return KernelState(unpacked(vector[:-K], self.start.free, self.learnable), vector[-K:])

    def sizes(self) -> list[int]:
        """The number of parameters of each kind, in the order of the vector: those of each leaf, and the scales."""
        chosen = zip(leaves(self.start.free), leaves(self.learnable), strict=True)
        return [*(int(np.size(leaf)) for leaf, take in chosen if take), len(self.start.log_scale)]

    def log_prior(self, state: KernelState) -> float:
        """Log-density of the parameters, up to a constant: weak, but never flat."""
        scale, centre = state.log_scale, state.log_scale.mean()
        return (
            float(self.kernel.log_prior(state.free, self.start.free))
            - 0.5 * ((centre - self.start.log_scale.mean()) / _SCALE_SPREAD) ** 2
            - 0.5 * (((scale - centre) / _CLASS_SPREAD) ** 2).sum()
        )

    def _prior_slopes(self, state: KernelState) -> np.ndarray:
        scale, centre = state.log_scale, state.log_scale.mean()
        of_scale = -(scale - centre) / _CLASS_SPREAD**2
        of_scale = of_scale - (centre - self.start.log_scale.mean()) / (_SCALE_SPREAD**2 * len(scale))
        of_kernel = self.kernel.prior_slopes(state.free, self.start.free)
        return np.concatenate([packed(of_kernel, self.learnable), of_scale])

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and its slopes; minus infinity where sites find no fixed point.

        The log-probability of labels is at most zero: an energy above it is one of sites that have run away.
        """
        state = self.unpack(vector)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gram = self.kernel.gram(state.free, self.rows.X, self.rows.X)
            try:
                found = settle(self.sites, gram, state.variances, self.parameters, _NEAR, _MOST_SWEEPS)
            except (FloatingPointError, ValueError):
                return -np.inf, np.zeros_like(vector)
            parameters, visit, rests, n_sweeps = found
            self.n_sweeps += n_sweeps
            value = visit.energy + self.log_prior(state)
            if not rests or not np.isfinite(value) or visit.energy > 0.0:
                return -np.inf, np.zeros_like(vector)
            slopes = self._slopes(state, gram, visit)
        if not np.isfinite(slopes).all():
            return -np.inf, np.zeros_like(vector)
        self._found = parameters
        return value, slopes + self._prior_slopes(state)

    def accept(self) -> None:
        """Keep the sites of the last evaluation: the next one begins there."""
        self.parameters = self._found

    def _slopes(self, state: KernelState, gram: np.ndarray, visit: CoupledSweep) -> np.ndarray:
        by_gram, by_scale = np.zeros_like(gram), np.empty(len(state.log_scale))
        for k, (variance, slope) in enumerate(zip(state.variances, visit.solved.slopes(), strict=True)):
            by_gram += variance * slope
            by_scale[k] = 2.0 * variance * np.vdot(slope, gram)
        by_free, _ = self.kernel.slopes(state.free, self.rows.X, by_gram)
        return np.concatenate([packed(by_free, self.learnable), by_scale])


Memory = list[tuple[np.ndarray, np.ndarray]]
"""Steps, and the falls of the slope over them for each row: what quasi-Newton directions are made from."""


@dataclass(frozen=True)
class Learned:
    """The end of an ascent: the best vector, its value, the steps taken, whether it rests, and the trace."""

    vector: np.ndarray
    value: float
    n_steps: int
    at_rest: bool
    interrupted: bool
    trace: list[Chunk] = field(default_factory=list, repr=False)
    memory: Memory = field(default_factory=list, repr=False)


def ascend(
    evidence: KernelEvidence,
    vector: np.ndarray,
    memory: Memory,
    *,
    tol: float,
    max_iter: int,
    report: Report | None = None,
) -> Learned:
    """Quasi-Newton steps up the evidence, until several of them together rise by less than `tol` of its size.

    No step changes a log-parameter by more than one, and each must rise: it is halved until it does. `memory` is that
    of an ascent with other rows, from which this one goes on.
    """
    began, n_rows = perf_counter(), len(evidence.rows.y)
    trace = list[Chunk]()
    value, slope = evidence(vector)
    if not np.isfinite(value):
        return Learned(vector, value, 0, False, False, trace)
    evidence.accept()
    values, n_steps, at_rest, interrupted = [value], 0, False, False
    try:
        while n_steps < max_iter and not at_rest:
            direction = _quasi_newton(slope / n_rows, memory)
            direction *= min(1.0, _LONGEST / max(np.abs(direction).max(), 1e-300))
            for _ in range(_HALVINGS):
                tried, tried_slope = evidence(vector + direction)
                if tried > value:
                    break
                direction = 0.5 * direction
            else:
                at_rest = not memory
                memory = []  # once more, straight up
                continue
            evidence.accept()
            memory = [*memory, (direction, (slope - tried_slope) / n_rows)][-_MEMORY:]
            vector, value, slope, n_steps = vector + direction, tried, tried_slope, n_steps + 1
            values.append(value)
            trace.append(Chunk(n_steps, value, float(np.abs(direction).max()), perf_counter() - began))
            if report is not None:
                report(trace[-1])
            at_rest = n_steps >= _PATIENCE and value - values[-1 - _PATIENCE] <= tol * max(1.0, abs(value))
    except KeyboardInterrupt:
        interrupted = True
    return Learned(vector, value, n_steps, at_rest, interrupted, trace, memory)


def _quasi_newton(slope: np.ndarray, memory: Memory) -> np.ndarray:
    """The direction of L-BFGS up a function, from steps s and the falls y of the slope over them."""
    useful = [(s, y) for s, y in memory if s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y)]
    if not useful:
        return slope / max(np.abs(slope).max(), 1e-3)
    direction, shares = slope.copy(), list[float]()
    for s, y in reversed(useful):
        shares.append((s @ direction) / (s @ y))
        direction -= shares[-1] * y
    s, y = useful[-1]
    direction *= (s @ y) / (y @ y)
    for (s, y), share in zip(useful, reversed(shares), strict=True):
        direction += (share - (y @ direction) / (s @ y)) * s
    return direction


def likely_vectors(evidence: KernelEvidence, best: np.ndarray, n_nodes: int) -> list[np.ndarray]:
    """Vectors of parameters that stand for their posterior; the best one alone where its neighbours have no evidence.

    Where there are many parameters, those of one kind, such as all lengthscales, move together.
    """
    B = np.eye(len(best)) if len(best) <= _ONE_BY_ONE else _together(evidence)
    value, slope = evidence(best)
    if not np.isfinite(value):
        return [best]
    H = np.empty((B.shape[1], B.shape[1]))
    for i, direction in enumerate(B.T):
        value, there = evidence(best + _DIFFERENCE * direction)
        if not np.isfinite(value):
            return [best]
        H[i] = (slope - there) @ B / _DIFFERENCE
    curvature, axes = np.linalg.eigh(0.5 * (H + H.T))
    spread = 1.0 / np.sqrt(np.maximum(curvature, 1.0 / _WIDEST**2))
    z = even_nodes(len(spread), n_nodes).points  # (P, S)
    away = B @ (axes @ (spread[:, None] * z))
    return list((best[:, None] + np.clip(away, -_FARTHEST, _FARTHEST)).T)


def _together(evidence: KernelEvidence) -> np.ndarray:
    """Directions (P, R) in which all parameters of one kind move by the same amount."""
    sizes = evidence.sizes()
    return np.repeat(np.eye(len(sizes)), sizes, axis=0)
