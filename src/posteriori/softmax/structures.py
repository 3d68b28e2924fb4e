"""Which structure a posterior can afford, and the posterior of that structure at a mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from posteriori.rows.blocks import Blocks, OnGpu
from posteriori.softmax.classes import ClassFamily
from posteriori.softmax.diagonal import DiagonalFamily
from posteriori.softmax.kernels import kronecker_factors
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.structured import KroneckerPosterior
from posteriori.softmax.variational import Family

__all__ = ["FAMILIES", "STRUCTURES", "structure_for", "structured_posterior"]

FULL_PARAMETERS = 10_000
"""Most parameters K D' of a full posterior."""
_FLOPS_A_SECOND = 2e10
_SECONDS = 10.0
"""Seconds that "auto" spends on a posterior of a richer structure."""
_FACTOR_SECONDS = 0.4
"""Seconds that "auto" spends on factors of full Hessians; sums over rows take several times that."""
_FACTORS, _ROUNDS = 40, 15
"""How often the search for a prior and a posterior factors a full Hessian, and sums those of the classes."""
_FULL_FLOPS = 1e12
"""Most multiplications for one full Hessian."""
_KRONECKER_SIDE = 4_000
"""Most classes or features of a Kronecker posterior."""


class StructuredFamily(Family, Protocol):
    """A family whose curvature at a mode can be had."""

    def at_mode(self, theta: np.ndarray) -> np.ndarray:
        """The curvature of the likelihood at theta."""


FAMILIES: dict[str, Callable[[SoftmaxObjective], StructuredFamily]] = {
    "classes": ClassFamily,
    "diagonal": DiagonalFamily,
}
"""Structures of which there are variational posteriors, besides the full one."""
STRUCTURES = ("full", "classes", "kronecker", "diagonal")


def structure_for(asked: str, blocks: Blocks, K: int, width: int) -> tuple[str, str]:
    """The structure of a posterior over K classes with `width` coefficients each, and the reason for it."""
    if asked != "auto":
        _require_affordable(asked, K, width)
        return asked, "as asked"
    N, side = blocks.n_rows, (K - 1) * width
    factors = _FACTORS * side**3 / 3.0 / _FLOPS_A_SECOND
    quick = factors <= _FACTOR_SECONDS or K == 2  # of two classes no other structure costs less
    if K * width <= 8_000 and 0.5 * N * side**2 <= _FULL_FLOPS and quick:
        return "full", f"{K * width} parameters"
    seconds = factors + _FACTORS * N * (K * width) ** 2 / 4.0 / _FLOPS_A_SECOND
    why = f"{K * width} parameters, and a full one would take about {_rounded(seconds)}"
    by_class = _ROUNDS * K * (2.0 * N * width**2 + width**3) / _FLOPS_A_SECOND
    if by_class <= _SECONDS and not isinstance(blocks, OnGpu):
        return "classes", why
    if max(K, width) <= _KRONECKER_SIDE:
        return "kronecker", why
    return "diagonal", why


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else "many hours"


def _require_affordable(asked: str, K: int, width: int) -> None:
    """Raise if a posterior of this structure would not fit."""
    size = K * width
    if asked == "full" and size > FULL_PARAMETERS:
        gib = 4 * 8 * size**2 / 2**30
        raise ValueError(
            f"posterior='full' with {K} classes and {width} coefficients each needs about {gib:.1f} GiB: "
            "use posterior='classes', 'kronecker' or 'diagonal', or 'auto'."
        )
    if asked in ("kronecker", "classes") and max(K, width) > 2 * _KRONECKER_SIDE:
        gib = (5 if asked == "kronecker" else 3 * K) * 8 * max(K, width) ** 2 / 2**30
        raise ValueError(
            f"posterior={asked!r} with {K} classes and {width} coefficients each needs about {gib:.1f} GiB, and "
            "hours of computation: use posterior='diagonal', or 'auto'."
        )


def structured_posterior(objective: SoftmaxObjective, theta: np.ndarray, structure: str) -> tuple[Posterior, float]:
    """Laplace's approximation at theta with this structure, and the log evidence by it."""
    posterior: Any
    if structure == "kronecker":
        posterior = _kronecker_posterior(objective, theta)
    else:
        family = FAMILIES[structure](objective)
        posterior = family.gaussian(theta, family.at_mode(theta))
    value, _ = objective.value_gradient(theta)
    return posterior, -value + 0.5 * objective.prior.log_det() - 0.5 * posterior.log_det


def _kronecker_posterior(objective: SoftmaxObjective, theta: np.ndarray) -> KroneckerPosterior:
    if not objective.prior.exchangeable:
        raise ValueError(
            "posterior='kronecker' needs a prior that treats all classes equally: use posterior='full' or 'diagonal'."
        )
    A, G = objective.blocks.map_sum(kronecker_factors, theta, None, coarse=True)
    prior = objective.prior.of_contrasts(contrasts(len(theta))[:, :1])  # what classes share: any contrast will do
    A /= max(np.trace(A), np.finfo(float).tiny)
    return KroneckerPosterior(theta, A, G, prior.common, prior.root)
