r"""A posterior with independent parameters that keeps the mode as its mean: all that very many columns afford.

.. math:: q(\theta) = \prod_{kd} N(\theta_{kd};\, \hat\theta_{kd}, 1/h_{kd}), \qquad
          h_{kd} = \sum_n c_n\, \mathbb{E}_q[p_{nk}(1 - p_{nk})]\, x_{nd}^2 + R_{kd}

With averages at the mode it is Laplace's; over q itself, the one of highest bound on the evidence about that mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.maths.integrals import Nodes, normal_nodes
from posteriori.rows.blocks import Sums, kernel
from posteriori.rows.products import contract, logits, squared
from posteriori.softmax.classes import averaged_classes
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision
from posteriori.softmax.structured import DiagonalPosterior
from posteriori.softmax.variational import Averages

__all__ = ["DiagonalFamily"]


@kernel(reads_labels=False)
def diagonal_averages(
    X: Any, Y: Any, c: np.ndarray | None, posterior: DiagonalPosterior, share: float, nodes: Nodes
) -> Sums:
    """sum_n c_n E[log sum_k exp f_nk], and with w_nk = c_n E[p_k (1 - p_k)] sums of w x^2 (K, D') and of w x (K, D).

    The variances of a row's logits are that share of the posterior's.
    """
    with_intercept = posterior.mean.shape[1] > X.shape[1]
    F = logits(X, posterior.mean)
    log_partition, mean, second = averaged_classes(F, share * posterior.latent_variances(X), nodes)
    weights = mean - second
    if c is not None:
        log_partition, weights = log_partition * c, weights * c
    return Sums((log_partition.sum(), contract(weights, squared(X), with_intercept), contract(weights, X, False)))


class DiagonalFamily:
    """Gaussians with independent parameters about one mean.

    With a centre [c, 1] it is the logit at c that is independent of the weights, and not the intercept.

    Parameters
    ----------
    objective : SoftmaxObjective
    n_nodes : int
        Nodes in the space of a row's logits.
    """

    def __init__(self, objective: SoftmaxObjective, n_nodes: int = 64) -> None:
        self.objective, self.nodes = objective, normal_nodes(len(objective.moments), n_nodes)
        self.centre, self.R = None, objective.precision
        self.total_weight = objective.observed.total_weight
        if isinstance(objective.prior, DiagonalPrecision):
            self.centre, self.R = objective.prior.centre, objective.prior.values

    def at_mode(self, theta: np.ndarray) -> np.ndarray:
        """The diagonal of the likelihood's Hessian, (K, D')."""
        curvature = self.objective.curvature
        return curvature.diagonal(theta) if self.centre is None else curvature.centred_diagonal(theta, self.centre)

    def gaussian(self, mean: np.ndarray, curvature: np.ndarray) -> DiagonalPosterior:
        """Precisions curvature + R."""
        return DiagonalPosterior(mean, curvature + self.R, self.centre)

    def moved(self, posterior: DiagonalPosterior, slope: np.ndarray, share: float) -> DiagonalPosterior:
        """The posterior as it is: columns are too dependent for steps of one at a time."""
        return posterior

    def averages(self, posterior: DiagonalPosterior, share: float = 1.0) -> Averages:
        """Averages over N(m, share S); the slope is left out, as the mean is held."""
        problem, theta = self.objective, posterior.mean
        log_partition, squares, cross = problem.blocks.map_sum(diagonal_averages, posterior, share, self.nodes)
        if self.centre is not None:
            c = self.centre[:-1]
            squares[:, :-1] += c * (c * squares[:, -1:] - 2.0 * cross)
        value, _ = problem.averaged(theta, log_partition)
        return Averages(value, np.zeros_like(theta), np.maximum(squares, 0.0))

    def divergence(self, posterior: DiagonalPosterior) -> float:
        """1/2 (tr(R S) - d - log|S R|)."""
        ratio = self.R / posterior.precisions
        return 0.5 * float((ratio - 1.0 - np.log(ratio)).sum())
