r"""The certificate of a fit: how far it is at most from the optimum, and whether there is a finite one.

.. math:: \tfrac12\, g^\top B^{-1} g \le J - J^* \le \tfrac12\, g^\top R^{-1} g, \qquad B \ge H \ge R

J is known up to rounding, which is part of the upper bound.

Without a prior there may be no finite optimum: classes are separated when some direction of the weights takes no row's
own class down and some row's up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posteriori.maths.linalg import null_space
from posteriori.parameters import first_names
from posteriori.rows.blocks import Blocks
from posteriori.softmax import kernels

if TYPE_CHECKING:
    from posteriori.softmax.objective import SoftmaxObjective

__all__ = ["Certificate", "SeparatedClasses", "separated_classes"]

_STALE = 0.01
"""Share of the slope that a step may leave before curvature is looked at again, which is a pass."""
_ROUNDING = 64.0 * np.finfo(float).eps
"""Share of a column's largest coefficient below which a change is rounding."""
_FEW_CLASSES = 100
"""Classes up to which the Hessian of their intercepts costs little, however few the features."""
_MOST_FLAT = 2500
"""Columns without a prior up to which constant combinations of them are looked for."""


class Certificate:
    """Proofs about one objective: bounds on J - J*, separation, and which of equal optima is returned.

    See docs/theory.md, section 2.5.
    """

    def __init__(self, objective: SoftmaxObjective) -> None:
        self.objective = objective

    def separated(self, theta: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
        """A direction along which J falls without end, if the parameters or the Newton direction are one.

        A direction that puts every row's own class on top is a proof of separation. Near a finite optimum Newton
        steps vanish; towards one at infinity they go on moving some logit by about one.
        """
        free = self.objective.free
        if free is None:
            return None
        for candidate, slack, least in ((theta, 1e-12, 0.0), (direction, 1e-6, 0.3)):
            V = np.where(free, candidate, 0.0)
            found = self.objective.blocks.map_sum(kernels.separation, V)
            if found.spread > least and found.deficit <= slack * found.spread:
                self.objective.recession = V
                return V
        return None

    def settle_intercepts(self, theta: np.ndarray) -> np.ndarray | None:
        """theta with its free intercepts at their optimum given the weights, or None if that was not reached."""
        problem = self.objective
        sizes = problem.observed.class_sizes
        if (sizes == 0).any():
            return None
        # a slope left in the intercepts shows in the weights' gradient too, multiplied by the features
        small = max(1e-12 / (1.0 + np.abs(problem.observed.mean).max()), _ROUNDING) * sizes.sum()
        slope, A = np.abs(problem.value_gradient(theta)[1][:, -1]).max(), None
        for _ in range(8):
            if slope <= small:
                break
            if A is None:
                A = self._class_mixing(theta)
            moved = theta.copy()
            moved[:, -1] -= np.linalg.lstsq(A, problem.value_gradient(theta)[1][:, -1])[0]
            moved_slope = np.abs(problem.value_gradient(moved)[1][:, -1]).max()
            if not moved_slope < slope:
                break  # rounding, or too far away
            if moved_slope > _STALE * slope:
                A = None
            theta, slope = moved, moved_slope
        return theta if slope <= max(small, 1e-11 * sizes.sum()) else None

    def _class_mixing(self, theta: np.ndarray) -> np.ndarray:
        problem = self.objective
        return problem.blocks.map_sum(kernels.class_mixing, theta, row_values=problem.probabilities_at(theta))

    def least_norm(self, theta: np.ndarray) -> np.ndarray:
        """Among parameters with the same probabilities and prior density, those of the smallest weights.

        Where the prior treats all classes equally their weights sum to zero. Where it is flat, a change along
        combinations of features that are constant changes nothing: duplicated columns share their weight, constant
        ones get none. Where only rounding would change, theta itself is returned.
        """
        problem = self.objective
        D, given = problem.blocks.n_features, theta
        theta = theta.copy()
        if problem.mean is None:
            equal = (problem.precision == problem.precision[0]).all(axis=0) & problem.prior.exchangeable
            theta[:, equal] -= theta[:, equal].mean(axis=0)
        flat = np.flatnonzero((problem.precision[:, :D] == 0).all(axis=0))
        if 0 < flat.size <= _MOST_FLAT:
            self._drop_constants(theta, flat)
        same = np.abs(theta - given) <= _ROUNDING * np.abs(given).max(axis=0)
        return given if same.all() else theta

    def _drop_constants(self, theta: np.ndarray, flat: np.ndarray) -> None:
        """Take out of theta, in place, what acts on combinations of the flat columns that never vary."""
        problem = self.objective
        D = problem.blocks.n_features
        absorbs = problem.has_intercept and not problem.precision[:, D].any()  # a free intercept takes up a constant
        mean = problem.observed.mean if absorbs else np.zeros(D)
        scatter = problem.blocks.map_sum(kernels.scatter, mean, coarse=True)[np.ix_(flat, flat)]
        if absorbs:
            rounding = problem.observed.variance[flat] == 0
            scatter[rounding] = scatter[:, rounding] = 0.0
        constant = null_space(scatter)
        if constant.shape[1]:
            W = theta[:, flat]
            lost = (W @ constant) @ constant.T
            theta[:, flat] = W - lost
            if absorbs:
                theta[:, D] += lost @ mean[flat]

    def least_gap(self, gradient: np.ndarray, largest_residual: float = 1.0) -> float:
        """J - J* >= 1/2 g^T B^{-1} g for any B >= H: here H <= I/2 kron X^T C X + R <= K D' times its diagonal.

        Where no row's residual is above r, the curvature of its loss is at most 2 r in place of 1/2.
        """
        problem = self.objective
        diagonal = min(0.5, 2.0 * largest_residual) * problem.root_squares**2 + problem.precision
        return float(0.5 * (gradient**2 / np.maximum(diagonal, np.finfo(float).tiny)).sum() / gradient.size)

    def _largest_residual(self, theta: np.ndarray) -> float:
        """A bound on max_n |p_n - y_n|, which is at most the largest loss of a row, for weights of one size."""
        problem = self.objective
        loss = problem.loss(theta) + problem.rounding_of_logits(theta)
        return min(1.0, loss * problem.n_rows / problem.observed.total_weight)

    def gap_bound(self, gradient: np.ndarray) -> float | None:
        """J - J* <= 1/2 g^T R^{-1} g over penalised coefficients, where all others have no slope."""
        problem = self.objective
        if not (problem.precision[:, : problem.blocks.n_features] > 0).all():
            return None
        return 0.5 * problem.prior.inverse_norm(np.where(problem.precision > 0, gradient, 0.0))

    def bounded(self, theta: np.ndarray) -> tuple[np.ndarray, float | None]:
        """theta with its free intercepts solved for, and the rigorous bound on J - J* there.

        Three parts of it are beyond the formula: what the slope that is left in free intercepts, which have no R, may
        still gain (twice the word of their quadratic model), how far the gradient of the others would change with
        that, and with exact numbers, and the rounding of J.
        """
        problem, own = self.objective, 0.0
        if problem.has_intercept and not problem.precision[:, -1].any():
            settled = self.settle_intercepts(theta)
            if settled is None:
                return theta, None
            theta, own = settled, self._gain_of_intercepts(settled)
        bound = self.gap_bound(problem.value_gradient(theta)[1])
        if bound is None:
            return theta, None
        doubt = self.gap_bound(self._gradient_doubt(theta, own))
        assert doubt is not None
        with np.errstate(over="ignore"):  # an infinite bound is a bound
            rounding = problem.rounding(theta) + problem.rounding_of_logits(theta)
            return theta, float((np.sqrt(bound) + np.sqrt(doubt)) ** 2 + own + rounding)

    def _gradient_doubt(self, theta: np.ndarray, own: float) -> np.ndarray:
        r"""How far the gradient (K, D') may be from that of exact numbers and settled intercepts.

        Where intercepts may still gain v^T H v = `own`, they change it by |H v|_{kd} <= sqrt(H_{kd,kd} own). With
        s_d = sum_n c_n x_nd^2 and the largest residual r, H_{kd,kd} <= min(r, 1/4) s_d. Sums of c_n r_n x_nd round by
        eps sqrt(s_d sum_n c_n r_n^2). Logits round by eps |theta| |x|, which is taken as four times its root mean
        square, and change r_n by that multiple of it.
        """
        problem, eps = self.objective, np.finfo(float).eps
        root, total = problem.root_squares, problem.observed.total_weight
        loss = min(problem.loss(theta) + problem.rounding(theta), total)
        largest = self._largest_residual(theta)
        of_logits = 4.0 * problem.logit_size(theta)
        doubt = root * (np.sqrt(min(largest, 0.25) * own) + eps * np.sqrt(loss * largest) * (1.0 + of_logits))
        return np.broadcast_to(doubt, theta.shape)

    def cost_of(self, theta: np.ndarray, change: np.ndarray) -> float:
        """The most by which J grows if each parameter moves from theta by at most its change, (K, D').

        It is |g| . change + 1/2 change^T H change at most, with H <= I/2 kron X^T C X + R.
        """
        slope = float(np.vdot(np.abs(self.objective.value_gradient(theta)[1]), change))
        of_rows = 0.5 * float(((change @ self.objective.root_squares) ** 2).sum())
        return slope + 0.5 * (of_rows + float(np.vdot(change, np.abs(self.objective.prior.times(change)))))

    def _gain_of_intercepts(self, theta: np.ndarray) -> float:
        """g_b^T A^+ g_b for the slope g_b of the intercepts, or 0 where A would cost more than it says."""
        slope = self.objective.value_gradient(theta)[1][:, -1]
        if len(slope) > max(_FEW_CLASSES, 4 * theta.shape[1]):
            return 0.0
        return float(abs(slope @ np.linalg.lstsq(self._class_mixing(theta), slope)[0]))

    def gap(self, decrement: float, theta: np.ndarray, bound: float | None) -> float:
        """The estimate of J - J*: Newton's decrement, but never outside the bounds, and infinite if it is no number."""
        if not decrement >= 0:
            decrement = np.inf
        gradient = self.objective.value_gradient(theta)[1]
        decrement = max(decrement, self.least_gap(gradient, self._largest_residual(theta)))
        return float(decrement if bound is None else min(decrement, bound))


@dataclass(frozen=True)
class SeparatedClasses:
    """A direction of the weights along which the likelihood grows without end.

    Attributes
    ----------
    direction : ndarray (K, D')
        A multiple of it, added to the weights, lowers the own class of no row and raises that of some rows.
    pairs : list of (int, int)
        Indices of the classes it tells apart without error.
    """

    direction: np.ndarray
    pairs: list[tuple[int, int]]
    spread: np.ndarray
    """Standard deviations of the features, (D,), by which their part in the direction is judged."""
    empty: tuple[int, ...] = ()
    """Indices of the classes that no row has."""

    def sentence(self, classes: np.ndarray, names: list[str] | None, prior: str | None = None) -> str:
        """A sentence for the user: which classes are separated, and what to do; `prior` says which prior would help."""
        if self.empty:
            which = first_names(classes[list(self.empty)].tolist())
            prior = prior or "a prior on the intercepts too (alpha > 0 and penalize_intercept=True)"
            return (
                f"No row is of class {which}, so the likelihood has no maximum: it grows as such a class becomes less "
                f"probable. The coefficients returned are where the iteration stopped. Use {prior}, or leave the class "
                "out of classes."
            )
        prior = prior or "a prior (alpha > 0)"
        i, j = self.pairs[0] if self.pairs else (0, 1)
        contrast = self.direction[i, : self.spread.size] - self.direction[j, : self.spread.size]
        strength = np.abs(contrast * self.spread)
        strongest = np.argsort(-strength, kind="stable")[:3]
        top = [int(d) for d in strongest if strength[d] > 1e-3 * strength[strongest[0]]]
        along = ", ".join(f"{names[d] if names else f'column {d}'} ({contrast[d]:+.3g})" for d in top)
        n_others = len(self.pairs) - 1
        others = f" (and {n_others} more pair{'s' if n_others > 1 else ''})" if n_others > 0 else ""
        return (
            f"Classes {classes[i]!s} and {classes[j]!s}{others} are separated: a combination of features"
            f"{f' led by {along}' if along else ''} tells them apart without error, so the likelihood has no maximum "
            "and its coefficients would grow without limit. The finite ones returned are where the iteration "
            f"stopped. Use {prior}, remove the feature, or merge the classes."
        )


def separated_classes(blocks: Blocks, direction: np.ndarray, spread: np.ndarray) -> SeparatedClasses:
    """The pairs of classes that a separating direction tells apart: no row is worse off, and some are better.

    See docs/theory.md, section 2.4.
    """
    margins = blocks.map_sum(kernels.pair_margins, direction)
    width = max(float(np.max(margins.greatest, initial=0.0)), np.finfo(float).tiny)
    none_worse = np.minimum(margins.least, margins.least.T) >= -1e-5 * width
    some_better = np.maximum(margins.greatest, margins.greatest.T) > 1e-3 * width
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.triu(none_worse & some_better, 1))]
    empty = tuple(np.flatnonzero(np.isneginf(margins.greatest).all(axis=1)).tolist())
    return SeparatedClasses(direction, pairs, spread, empty)
