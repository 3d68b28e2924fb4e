r"""Preconditioners: cheap inverses of something like the Hessian.

All act on (K, D) arrays. Softmax curvature has one direction of its own, the same vector added to every class: the
likelihood ignores it and only the prior sees it. Each preconditioner treats that direction apart, by the prior alone
(and not at all where the prior is flat), so that what is left is well conditioned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from posteriori.maths.linalg import inverse_spd
from posteriori.solvers.problem import CurvedProblem

__all__ = ["Precondition", "Preconditioner", "class_blocks", "kronecker"]

Preconditioner = Callable[[np.ndarray], np.ndarray]

_NEGLIGIBLE = 1e-13
"""Share of a feature's curvature below which its prior counts as flat."""
_BLOCK_BYTES = 400 << 20
"""Most memory for class blocks."""
_FIRST_COST = 6.0
"""Passes that the first preconditioner may cost."""
_LATER_COST = 16.0
"""Passes that one may cost once some have been made."""
_READ = 8.0
"""Operations in the time that one number takes from memory."""
_MANY_PRODUCTS = 8
"""A solve that took more products than this pays for a better preconditioner."""


def kronecker(
    A: np.ndarray, G: np.ndarray, lead: np.ndarray, diagonal: np.ndarray, precision: np.ndarray
) -> Preconditioner:
    """Inverse of A kron G / tr A + prior, in the eigenbasis of A (docs/theory.md, section 2.3).

    Parameters
    ----------
    A : (K, K)
        Curvature over classes.
    G : (L, L)
        Curvature over the features `lead`.
    lead : (L,)
        Indices of these; of all others only the diagonal counts.
    diagonal : (D,)
        Diagonal of G over all features.
    precision : (K, D)
        Precision of the prior; its mean over classes is used, which is exact when all classes have the same.
    """
    prior = precision.mean(axis=0)
    # the null direction is made the last eigenvector, with an eigenvalue beyond all others
    # (of a curvature that is all rounding, the trace may be below other entries, or below zero)
    size = max(float(np.trace(A)), float(np.abs(A).max()), np.finfo(float).tiny)
    eigenvalues, Q = np.linalg.eigh(A / size + 2.0 / len(A))
    eigenvalues = np.maximum(eigenvalues[:-1], 1e-8 * max(eigenvalues[-2], np.finfo(float).tiny))
    held = prior > _NEGLIGIBLE * eigenvalues[-1] * diagonal
    inverses = np.stack([inverse_spd(v * G + np.diag(prior[lead])) for v in eigenvalues])
    others = None
    if lead.size < prior.size:
        others = np.multiply.outer(eigenvalues, diagonal) + prior
        np.divide(1.0, others, out=others, where=others > 0)

    def apply(R: np.ndarray) -> np.ndarray:
        Z = Q.T @ R
        led = np.matmul(inverses, Z[:-1, lead, None])[:, :, 0]
        Z[-1] = _prior_only(Z[-1], prior, held)
        if others is not None:
            Z[:-1] *= others
        Z[:-1, lead] = led
        return Q @ Z

    return apply


def class_blocks(blocks: np.ndarray, precision: np.ndarray) -> Preconditioner:
    """Inverse of the Hessian's diagonal blocks (K, D, D) + prior, applied across the null direction.

    See docs/theory.md, section 2.3.
    """
    inverses = np.stack([inverse_spd(B + np.diag(a)) for B, a in zip(blocks, precision, strict=True)])
    diagonal = np.einsum("kdd->kd", blocks).mean(axis=0)
    return _across(lambda R: np.matmul(inverses, R[:, :, None])[:, :, 0], precision, diagonal)


def _across(apply: Preconditioner, precision: np.ndarray, diagonal: np.ndarray) -> Preconditioner:
    """A preconditioner that applies `apply` to deviations from the mean over classes, the prior alone to the mean."""
    prior = precision.mean(axis=0)
    held = prior > _NEGLIGIBLE * diagonal

    def across(R: np.ndarray) -> np.ndarray:
        mean = R.mean(axis=0)
        Z = apply(R - mean)
        Z -= Z.mean(axis=0)
        Z += _prior_only(mean, prior, held)
        return Z

    return across


def _prior_only(r: np.ndarray, prior: np.ndarray, held: np.ndarray) -> np.ndarray:
    """r over the prior's precision; 0 where that is nothing beside the curvature, and r is rounding."""
    return np.divide(r, prior, out=np.zeros_like(r), where=held)


class Precondition:
    """The preconditioner in use: the cheapest at first, a better one once the work it would save exceeds its cost.

    "light": Kronecker, with the heaviest features together and the others one by one; "kronecker": with all of them;
    "blocks": one matrix per class. Costs are counted in passes over the data, by operations and not by the clock, so
    that a fit can be repeated.
    """

    def __init__(self, problem: CurvedProblem) -> None:
        self.problem = problem
        K, D = problem.shape
        N = problem.n_rows
        self.cost = {
            "light": 2.0,
            "kronecker": 2.0 + D / (8.0 * K) + D * D / (4.0 * N),
            "blocks": 2.0 + D / 10.0 + D * D / (8.0 * N) if K * D * D * 8 <= _BLOCK_BYTES else np.inf,
        }
        self.kind = "kronecker" if self.cost["kronecker"] <= _FIRST_COST else "light"
        self.best = np.inf
        self.wasted = np.inf
        self.n_products = 0
        self.apply: Preconditioner = lambda R: R
        self._safe: Preconditioner | None = None

    def for_larger(self, problem: CurvedProblem, theta: np.ndarray) -> Precondition:
        """The preconditioner for a larger problem of the same kind, begun with the curvature of this one at theta."""
        if np.isfinite(self.cost["blocks"]):
            self.kind = "blocks"
            self.renew(theta)
        other = Precondition(problem)
        other.kind, other.apply, other.wasted, other.best = self.kind, self.apply, 0.0, self.best
        return other

    def at(self, theta: np.ndarray) -> Preconditioner:
        """The preconditioner, made again at theta once the last has cost more than a new one."""
        return self.renew(theta) if self.wasted >= self.cost[self.kind] else self.apply

    def worth_renewing(self, n_passes: int) -> bool:
        """Whether the passes made so far justify a new one, and of which kind."""
        for kind in ("blocks", "kronecker"):
            if self.cost[kind] <= max(_LATER_COST, 0.5 * n_passes if kind == "kronecker" else 0.0):
                self.kind = kind
                return True
        return False

    def renew(self, theta: np.ndarray) -> Preconditioner:
        """The preconditioner made again at theta."""
        precision = self.problem.precision
        if self.kind == "blocks":
            self.apply = class_blocks(self.problem.curvature.class_blocks(theta), precision)
        else:
            self.apply = kronecker(
                *self.problem.curvature.kronecker_factors(theta, light=self.kind == "light"), precision
            )
        self.wasted, self.best = 0.0, np.inf
        return self.apply

    def safe(self) -> Preconditioner:
        """Inverse of Boehning's bound on the Hessian, 1/2 (I - 11^T/K) kron X^T C X + prior: never too long a step.

        It is the same for all parameters.
        """
        if self._safe is None:
            K, D = self.problem.shape
            A, G, lead, diagonal = self.problem.curvature.kronecker_factors(np.zeros((K, D)))
            self._safe = kronecker(A, 0.5 * K * G, lead, 0.5 * K * diagonal, self.problem.precision)
        return self._safe

    @property
    def flops(self) -> float:
        """Operations that one application costs: matrices for each class, which are read from memory each time."""
        K, D = self.problem.shape
        return 0.0 if self.kind == "light" else _READ * K * D * D

    def count_products(self, n_products: int, rtol: float) -> None:
        """Count the products that the last solve took, for each tenfold gain, beyond the best since it was made.

        A better kind is made once one solve has cost a quarter of it, or long solves together have cost as much.
        """
        better = {"light": "kronecker", "kronecker": "blocks"}.get(self.kind)
        if n_products > _MANY_PRODUCTS:
            self.n_products += n_products
            if better is not None and max(4 * n_products, self.n_products) > self.cost[better]:
                self.kind, self.wasted, self.n_products = better, np.inf, 0
                return
        decades = -np.log10(rtol)
        self.best = min(self.best, n_products / decades)
        self.wasted += n_products - self.best * decades
