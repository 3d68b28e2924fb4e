"""Protocols of the problems that solvers solve: each solver asks for as little as it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = [
    "CurvatureParts",
    "CurvedProblem",
    "Descent",
    "OptimumProofs",
    "PosteriorCurvature",
    "PosteriorProblem",
    "PriorPrecision",
    "Problem",
    "RowMoments",
    "SampledProblem",
    "StartingPoint",
    "StochasticProblem",
]


@dataclass(frozen=True)
class Descent:
    """The result of a descent over all rows that was made where the rows are.

    Attributes
    ----------
    thetas, gradients : list of ndarray (K, D')
        Parameters and gradients of all steps; the last is the end.
    values, gaps : list of float
        J, and estimates of J - J*; if it converged, the last is the decrement 1/2 g^T H^{-1} g.
    converged : bool
        Whether the last decrement is within the tolerance.
    log_partition : float
        The sum of log-partitions at the end.
    n_passes : int
        The number of passes over all rows.
    probabilities : array (K, N)
        Probabilities of the rows at the end, on the device of the rows.
    """

    thetas: list[np.ndarray]
    gradients: list[np.ndarray]
    values: list[float]
    gaps: list[float]
    converged: bool
    log_partition: float
    n_passes: int
    probabilities: Any


class Problem(Protocol):
    """An objective J over parameters of a given shape."""

    shape: tuple[int, int]

    def value_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """J and its gradient."""

    def product(self, theta: np.ndarray, V: np.ndarray) -> np.ndarray:
        """The Hessian at theta times V."""


class PriorPrecision(Protocol):
    """The precision R of a Gaussian prior, as far as solvers need it."""

    @property
    def exchangeable(self) -> bool:
        """Whether all classes have the same precision and are independent."""

    @property
    def largest(self) -> float:
        """An upper bound on its largest eigenvalue."""

    def log_det(self) -> float:
        """log |R|."""

    def matrix(self, basis: np.ndarray) -> np.ndarray:
        """(Q kron I)^T R (Q kron I)."""

    def of_contrasts(self, basis: np.ndarray) -> Any:
        """The prior of contrasts Q (K, K - 1), and of what is left."""

    def times(self, V: np.ndarray) -> np.ndarray:
        """R V."""


class RowMoments(NamedTuple):
    """Mean (D,) and variance (D,) of the features, and the rows' total weight sum_n c_n."""

    mean: np.ndarray
    variance: np.ndarray
    total_weight: float


class CurvatureParts(Protocol):
    """Parts of a Hessian that make a preconditioner."""

    def kronecker_factors(
        self, theta: np.ndarray, light: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A (K, K), G (L, L) with H ~ A kron G / tr A + prior for the L features named next, few if light; diag G."""

    def class_blocks(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal blocks of H less the prior, (K, D, D)."""


class PosteriorCurvature(CurvatureParts, Protocol):
    """A Hessian in coordinates of the classes, the slope of its determinant, and its average over a Gaussian."""

    def likelihood_hessian(self, theta: np.ndarray, basis: np.ndarray) -> np.ndarray:
        """H without the prior in coordinates theta = Q B, (J D, J D)."""

    def factor(self, H: np.ndarray) -> np.ndarray:
        """The lower factor of a positive definite matrix of the size of the Hessian, or LinAlgError."""

    def log_det_slope(self, theta: np.ndarray, forms: np.ndarray) -> np.ndarray:
        """d/dtheta of tr(S H) with S fixed, given by the covariances of pairs of classes."""

    def averaged(
        self, theta: np.ndarray, forms: np.ndarray, basis: np.ndarray, nodes: Any
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """E[J], its slope and E[H without the prior] over a Gaussian about theta, given by the same covariances."""


class OptimumProofs(Protocol):
    """Proofs about the optimum from one gradient or one direction."""

    def least_gap(self, gradient: np.ndarray) -> float:
        """A lower bound on J - J* where the gradient is this."""

    def separated(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
        """A direction along which J falls without end, if the parameters or the direction are one."""


class StartingPoint(Protocol):
    """Where a solve over many rows begins."""

    @property
    def n_rows(self) -> int:
        """The size of the smallest sample whose optimum is a good start; at least N if none is."""

    def sample(self, n_rows: int) -> SampledProblem:
        """The objective estimated from a sample of the rows."""

    def descend(self, tol: float) -> Descent | None:
        """The path from zero to the optimum, computed in one call where the rows are on a GPU; else None."""


class CurvedProblem(Problem, Protocol):
    """A problem that also knows its Hessian, whole or in parts that make a preconditioner."""

    precision: np.ndarray
    """Diagonal of the prior's precision R, (K, D)."""
    mean: np.ndarray | None
    """The prior's mean, (K, D): 1/2 (theta - mean)^T R (theta - mean) is part of J; None is zero."""

    @property
    def prior(self) -> PriorPrecision:
        """The precision R of the prior."""

    @property
    def n_rows(self) -> int:
        """The number of rows N."""

    @property
    def curvature(self) -> CurvatureParts:
        """Parts of H."""

    @property
    def certificate(self) -> OptimumProofs:
        """Proofs about the optimum."""

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        """The Hessian H, (K D, K D)."""


class SampledProblem(CurvedProblem, Protocol):
    """A problem over rows, of which a sample may stand for all."""

    @property
    def start(self) -> StartingPoint:
        """Samples, or a whole descent."""


class StochasticProblem(CurvedProblem, Protocol):
    """A problem whose gradient can be estimated from a few rows."""

    @property
    def row_moments(self) -> RowMoments:
        """Moments of the features."""

    def batch_gradients(self, size: int, rng: np.random.Generator) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
        """For each batch of a shuffled pass, theta -> estimate of the gradient of J less the prior's part."""


class PosteriorProblem(CurvedProblem, Protocol):
    """A problem whose Hessian can be had in coordinates of the classes, and whose determinant has a slope."""

    @property
    def curvature(self) -> PosteriorCurvature:
        """H in coordinates of the classes."""

    @property
    def row_moments(self) -> RowMoments:
        """Mean and variance of the features, and the total weight of the rows."""
