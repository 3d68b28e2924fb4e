"""Posteriors that stay small: which structure a fit can afford, and those that keep fewer covariances."""

from __future__ import annotations

import numpy as np

from posteriori.softmax.kernels import kronecker_factors
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.posterior import DiagonalPosterior, KroneckerPosterior
from posteriori.softmax.precision import DiagonalPrecision

__all__ = ["structure_for", "structured_posterior"]

FULL_PARAMETERS = 10_000
"""Most parameters K D' of a full posterior."""
_FULL_FLOPS = 1e12
"""Most multiplications that "auto" spends on a full Hessian."""
_FACTORS, _FACTOR_FLOPS = 60, 1e11
"""How often a Hessian is factored in the search for a prior, and the most multiplications that "auto" spends on it."""
_KRONECKER_SIDE = 4_000
"""Most classes or features of a Kronecker posterior."""


def structure_for(asked: str, N: int, K: int, width: int) -> tuple[str, str]:
    """The structure of a posterior over K classes with `width` coefficients each, and the reason for it."""
    size = K * width
    if asked != "auto":
        if asked == "full" and size > FULL_PARAMETERS:
            gib = 4 * 8 * size**2 / 2**30
            raise ValueError(
                f"posterior='full' with {K} classes and {width} coefficients each needs about {gib:.1f} GiB: "
                "use posterior='kronecker' or 'diagonal', or 'auto'."
            )
        if asked == "kronecker" and max(K, width) > 2 * _KRONECKER_SIDE:
            gib = 5 * 8 * max(K, width) ** 2 / 2**30
            raise ValueError(
                f"posterior='kronecker' with {K} classes and {width} coefficients each needs about {gib:.1f} GiB, and "
                "hours of computation: use posterior='diagonal', or 'auto'."
            )
        return asked, "as asked"
    side = (K - 1) * width
    flops, of_factors = 0.5 * N * side**2, _FACTORS * side**3 / 3.0
    if size <= 8_000 and flops <= _FULL_FLOPS and of_factors <= _FACTOR_FLOPS:
        return "full", f"{size} parameters"
    why = f"{size} parameters" if size > 8_000 else f"{flops + of_factors:.1g} multiplications for a full one"
    if max(K, width) <= _KRONECKER_SIDE:
        return "kronecker", why
    return "diagonal", why


def structured_posterior(
    objective: SoftmaxObjective, theta: np.ndarray, structure: str
) -> tuple[KroneckerPosterior | DiagonalPosterior, float]:
    """A Kronecker or diagonal posterior at theta, and the log evidence by it."""
    posterior: KroneckerPosterior | DiagonalPosterior
    if structure == "kronecker":
        if not objective.prior.exchangeable:
            raise ValueError(
                "posterior='kronecker' needs a prior that treats all classes equally: use posterior='full' or "
                "'diagonal'."
            )
        A, G = objective.blocks.map_sum(kronecker_factors, theta, None, coarse=True)
        common = objective.prior.matrix(np.eye(len(theta))[:, :1])
        posterior = KroneckerPosterior(theta, A / max(np.trace(A), np.finfo(float).tiny), G, common)
    else:
        posterior = _diagonal_posterior(objective, theta)
    value, _ = objective.value_gradient(theta)
    return posterior, -value + 0.5 * objective.prior.log_det() - 0.5 * posterior.log_det


def _diagonal_posterior(objective: SoftmaxObjective, theta: np.ndarray) -> DiagonalPosterior:
    prior = objective.prior
    if isinstance(prior, DiagonalPrecision) and prior.centre is not None:
        return DiagonalPosterior(
            theta, objective.curvature.centred_diagonal(theta, prior.centre) + prior.values, prior.centre
        )
    return DiagonalPosterior(theta, objective.curvature.diagonal(theta) + objective.precision)
