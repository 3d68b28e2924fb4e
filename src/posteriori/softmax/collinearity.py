"""Columns that say nothing of their own: constant ones, and combinations of columns before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from posteriori.softmax.kernels import scatter
from posteriori.softmax.likelihood import LinearLikelihood

__all__ = ["DependentColumn", "dependent_columns", "require_independent"]

_NOTHING_LEFT = 1e-12
"""Share of a column's variance below which what other columns leave of it is rounding."""
_PART = 1e-6
"""Least part of a column in a combination, in standard deviations."""


@dataclass(frozen=True)
class DependentColumn:
    """A column that is a combination of others.

    Attributes
    ----------
    column : int
    others : tuple of int
        Columns before it of which it is a combination, up to a constant; empty for a constant column.
    """

    column: int
    others: tuple[int, ...]

    def sentence(self, names: list[str]) -> str:
        """The fact in words."""
        if not self.others:
            return f"{names[self.column]!r} is constant"
        shown = [repr(names[d]) for d in self.others[:4]] + (["..."] if len(self.others) > 4 else [])
        return f"{names[self.column]!r} is a combination of {', '.join(shown)}"


def dependent_columns(scatter: np.ndarray) -> list[DependentColumn]:
    """The columns that add nothing to those before them, from sum_n (x_n - m)(x_n - m)^T, (D, D).

    They are those that a Cholesky factorisation, column by column and without the dependent ones, has no pivot for.

    >>> x, z = np.array([1.0, -1.0, 0.0]), np.array([1.0, 1.0, -2.0])
    >>> X = np.column_stack([x, z, x - 2 * z, 0 * x])
    >>> dependent_columns(X.T @ X)
    [DependentColumn(column=2, others=(0, 1)), DependentColumn(column=3, others=())]
    """
    D = len(scatter)
    spread = np.sqrt(np.maximum(scatter.diagonal(), 0.0))  # of a constant column it may be below zero by rounding
    unit = np.where(spread > 0, spread, 1.0)
    S = scatter / unit / unit[:, None]
    kept: list[int] = []
    factor = np.zeros((D, D))  # of the columns kept so far
    found = []
    for d in range(D):
        m = len(kept)
        row = solve_triangular(factor[:m, :m], S[kept, d], lower=True) if m else np.empty(0)
        left = S[d, d] - row @ row
        if S[d, d] == 0 or left <= _NOTHING_LEFT * D:
            parts = solve_triangular(factor[:m, :m], row, lower=True, trans=1) if m else row
            others = [kept[i] for i in np.flatnonzero(np.abs(parts) > _PART)] if S[d, d] > 0 else []
            found.append(DependentColumn(d, tuple(others)))
            continue
        factor[m, :m], factor[m, m] = row, np.sqrt(left)
        kept.append(d)
    return found


def require_independent(likelihood: LinearLikelihood, prior: str) -> None:
    """Raise if columns are collinear: under a prior that is flat, infinitely many weights are then equally likely."""
    D, N = likelihood.blocks.n_features, likelihood.blocks.n_weighted
    advice = "Drop columns, or use prior='evidence', which can do with them."
    if N < D + likelihood.has_intercept:
        raise ValueError(
            f"prior={prior!r} needs at least as many rows as coefficients of a class, and there are {N} rows for "
            f"{D + likelihood.has_intercept}: columns are then collinear. {advice}"
        )
    mean = likelihood.observed.mean if likelihood.has_intercept else np.zeros(D)
    dependent = dependent_columns(likelihood.blocks.map_sum(scatter, mean, coarse=True))
    if not dependent:
        return
    names = likelihood.names or [f"x{d}" for d in range(D)]
    facts = [each.sentence(names) for each in dependent[:5]]
    more = f"; and {len(dependent) - 5} more" if len(dependent) > 5 else ""
    raise ValueError(
        f"prior={prior!r} needs columns that are not collinear: the information matrix is singular, as "
        f"{'; '.join(facts)}{more}. {advice}"
    )
