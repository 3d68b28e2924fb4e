"""Gaussian priors as a user states them, and as they read in the coordinates in which a fit computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from posteriori.parameters import Parameters, finite_numbers, first_names, is_number, require_flag, require_spd
from posteriori.softmax.column_blocks import ColumnBlocks, column_blocks
from posteriori.softmax.coordinates import CoordinateRule, Coordinates, StepUnits
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.mode import Mode, SolveSettings, find_mode
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision, Precision

__all__ = [
    "WEAK",
    "WEAKEST",
    "GaussianPrior",
    "Prior",
    "PriorInCoordinates",
    "PriorOfColumns",
    "RidgePenalty",
    "StrengthFamily",
    "per_coefficient",
]

WEAK = 1.0 / 2.5**2
"""Precision of the logit of the mean row where the user gives none: probabilities from 0.01 to 0.99 are all likely."""


_STRONGEST = 1e150
"""The precision up to which columns in tiny units are scaled: its square is still a number."""


WEAKEST = 1.0 / 20.0**2
"""The least such precision that the evidence may choose: a mean row far from some class has a large logit."""


@runtime_checkable
class Prior(Protocol):
    """A prior as a user states it: all that a fit asks of it.

    A new kind of prior is a new class with these members; `BayesianSoftmaxRegression` takes its objects as they are.
    """

    @property
    def proper(self) -> bool:
        """Whether it has a finite integral; only then is there an evidence, and a choice of approximations."""

    @property
    def note(self) -> str:
        """Text that is added to the description of a Gaussian prior, or that is all the description of another."""

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """The coordinates of a fit that this prior needs."""

    def isotropic(self, likelihood: LinearLikelihood) -> bool:
        """Whether all weights have mean zero and one precision: features may then be rotated, and nothing changes."""

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, structure: str) -> Mode:
        """The mode under it, with whatever of it is chosen by the data; `structure` is the posterior's."""

    def strengths(self, likelihood: LinearLikelihood, precision: Precision) -> StrengthFamily | None:
        """The prior that was found, and those that are stronger or weaker; None if it is as the user stated it."""


@dataclass(frozen=True)
class StrengthFamily:
    """One prior with all its precisions multiplied by a factor.

    Attributes
    ----------
    objective_at : callable
        Factor -> the objective with this prior.
    log_prior : callable or None
        Factor -> the log density of its logarithm, for averages over it; None where there is no average.
    """

    objective_at: Callable[[float], SoftmaxObjective]
    log_prior: Callable[[float], float] | None


@runtime_checkable
class PriorOfColumns(Protocol):
    """A prior that says something about single columns, which it may know by their names: not all priors do."""

    def for_columns(self, names: list[str] | None, shape: tuple[int, int]) -> Prior:
        """The prior on weights of this shape, (K, D), for columns of these names, if they have any.

        Raises if the prior and the columns do not fit together.
        """


@dataclass(frozen=True)
class PriorInCoordinates:
    """N(mean, R^{-1}) on the parameters (K, D') of a fit's own coordinates."""

    mean: np.ndarray | None
    precision: Precision

    @property
    def exchangeable(self) -> bool:
        """Whether relabelling the classes leaves it as it is: then K - 1 contrasts say everything."""
        return self.precision.exchangeable and (self.mean is None or bool((self.mean == self.mean[0]).all()))

    def in_data_units(self, coordinates: Coordinates, D: int) -> GaussianPrior:
        """The prior in the units of the data, for D features: the inverse of `GaussianPrior.in_coordinates`."""
        K, width = self.precision.diagonal.shape
        mean: Any = 0.0 if self.mean is None else coordinates.outward(self.mean)
        if isinstance(self.precision, DiagonalPrecision):
            with np.errstate(over="ignore", under="ignore"):
                weights = self.precision.values[:, :D] * coordinates.unit * coordinates.unit
            weights = np.clip(weights, np.finfo(float).tiny, np.finfo(float).max)  # as near as numbers come
            weak = float(self.precision.values[0, D]) if width > D else None
            same = bool(np.allclose(weights, weights.flat[0], rtol=1e-12, atol=0.0))
            return GaussianPrior(mean, float(weights.flat[0]) if same else weights, weak)
        inverse = np.kron(np.eye(K), np.linalg.inv(coordinates.outward_matrix(width)))
        R = inverse.T @ self.precision.matrix(np.eye(K)) @ inverse
        return GaussianPrior(mean, 0.5 * (R + R.T))


@dataclass
class GaussianPrior(Parameters):
    """Gaussian prior on the weights W (K, D) and intercepts b (K,) of a softmax model.

    Parameters
    ----------
    mean : number, (K, D) or (K, D + 1) array, default 0
        With D + 1 columns the last is that of the intercepts.
    precision : number, array, pair of arrays, dict or None, default None
        One number; (K, D), one per coefficient; a matrix over all weights, class by class, (K D, K D), or with the
        intercepts, K (D + 1); or Kronecker factors (A, G) with A (K, K) and G (D, D) or (D + 1, D + 1). None is 1. With
        `blocks` a dict from label to number, or None: then the evidence chooses one for each block.
    intercept_precision : number or None, default None
        Precision of the logit of the mean row, w_k . mean(x) + b_k; None is weak, 1/2.5^2. Not used when `precision`
        covers the intercepts.
    autoscale : bool, default False
        State the prior for columns that are centred and scaled to unit standard deviation: predictions then do not
        depend on the units or the origin of a column. In a block of columns that take two values each, such as the
        levels of a category, the unit is the step from one value to the other.
    blocks : sequence of D labels, dict from label to columns, or None, default None
        Columns of one label share a precision. A dict has the columns by their names or their numbers, counted from 0;
        `TableEncoder.get_feature_blocks_out()` has the labels of encoded columns.
    columns : sequence of D names or None, default None
        The columns that arrays are stated for, in order, as `as_prior()` knows them: a fit to a table that has others,
        or the same in another order, is refused.

    Examples
    --------
    >>> GaussianPrior(precision=4.0)
    GaussianPrior(mean=0.0, precision=4.0, intercept_precision=None, autoscale=False, blocks=None)
    """

    mean: Any = 0.0
    precision: Any = None
    intercept_precision: Any = None
    autoscale: bool = False
    blocks: Any = None
    columns: Any = field(default=None, repr=False)

    proper: ClassVar[bool] = True
    note: ClassVar[str] = ""

    def for_columns(self, names: list[str] | None, shape: tuple[int, int]) -> GaussianPrior:
        """The prior with one precision for each of K D weights, if it is stated for blocks of columns."""
        if self.columns is not None and names is not None and list(self.columns) != list(names):
            same = "the same in another order" if set(self.columns) == set(names) else "others"
            raise ValueError(
                f"The prior is stated for the columns {first_names(self.columns, 5)}, and X has {same}: "
                f"{first_names(names, 5)}. Select them by name in the order of the prior."
            )
        if self.blocks is None:
            return self
        blocks = column_blocks(self.blocks, names, shape[1])
        return replace(self, precision=np.tile(blocks.per_column(self.precision), (shape[0], 1)), blocks=blocks)

    def in_coordinates(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> PriorInCoordinates:
        """The prior on the parameters of z = (x - shift) * scale, checked against K classes and D features."""
        require_flag("autoscale", self.autoscale)
        mean = self._mean(K, D, has_intercept, coordinates)
        precision = self._precision(K, D, has_intercept, coordinates)
        return PriorInCoordinates(mean if mean.any() else None, precision)

    def _mean(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> np.ndarray:
        given = finite_numbers("mean", self.mean)
        widths = (D, D + 1) if has_intercept else (D,)
        if given.ndim != 0 and (given.ndim != 2 or given.shape[0] != K or given.shape[1] not in widths):
            advice = ""
            if given.ndim == 2 and given.shape[1] in widths:
                advice = (
                    f" It is stated for {len(given)} classes, and y has {K}: where some do not occur, declare them "
                    "all, as classes=model.classes_ of the model whose posterior it is."
                )
            raise ValueError(
                f"The prior's mean has shape {given.shape}: a number or an array {_shapes(K, widths)} is needed."
                f"{advice}"
            )
        theta = np.zeros((K, D + has_intercept))
        theta[:, : D if given.ndim == 0 else given.shape[1]] = given
        if given.ndim == 2 and given.shape[1] > D:
            if not self.autoscale:
                return coordinates.inward(theta)
            return np.linalg.solve(coordinates.centring_matrix(D + 1), theta.T).T
        if not self.autoscale:
            theta[:, :D] = theta[:, :D] * coordinates.unit  # the logit of the mean row is expected at zero
        if has_intercept and coordinates.centre is not None:
            theta[:, D] = -theta[:, :D] @ coordinates.centre[:-1]
        return theta

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """Standardised columns if it is stated for them; the intercepts' part is about the mean row in any case."""
        if self.autoscale:
            units = StepUnits(self.blocks.groups) if isinstance(self.blocks, ColumnBlocks) else None
            return CoordinateRule(scaled=True, shift_allowed=has_intercept, units=units)
        factors = self.precision if isinstance(self.precision, tuple) else (self._stated,)
        strongest = np.prod([np.abs(finite_numbers("precision", each)).max(initial=0.0) for each in factors])
        return CoordinateRule(scaled=False, shift_allowed=has_intercept, largest_scale=_largest_scale(strongest))

    def isotropic(self, likelihood: LinearLikelihood) -> bool:
        """Whether it is one number for all weights, in the units in which the fit computes."""
        one_number = self.precision is None or is_number(self.precision)
        in_their_units = self.autoscale or likelihood.coordinates.scale is None
        return self.blocks is None and one_number and in_their_units and is_number(self.mean) and self.mean == 0

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, structure: str) -> Mode:
        """The mode under this prior."""
        K, D = len(likelihood.observed.moments), likelihood.blocks.n_features
        prior = self.in_coordinates(K, D, likelihood.has_intercept, likelihood.coordinates)
        return find_mode(likelihood.objective(prior.precision, prior.mean), settings)

    def strengths(self, likelihood: LinearLikelihood, precision: Precision) -> StrengthFamily | None:
        """None: it is as strong as the user stated it."""
        return None

    def _precision(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> Precision:
        weak = self._intercept()
        if isinstance(self.precision, tuple):
            return self._kronecker(K, D, has_intercept, coordinates, weak)
        given, width = finite_numbers("precision", self._stated), D + has_intercept
        unit = self._unit(D, coordinates)
        if given.ndim == 0 or given.shape == (K, D):
            if not (given > 0).all():
                raise ValueError(
                    f"The prior's precision is {self.precision!r}: it must be positive. For maximum likelihood use "
                    "prior='flat' or SoftmaxRegression(alpha=0), for a flat prior that stays finite prior='jeffreys'."
                )
            values = per_coefficient(given, unit, weak if has_intercept else None, (K, D))
            values = np.maximum(values, np.finfo(float).tiny)  # of values beyond 1e150: nothing, but still proper
            return DiagonalPrecision(values, coordinates.centre if has_intercept else None)
        if given.shape == (K * width, K * width):
            require_spd("precision", given)
            M = np.kron(np.eye(K), self._into(coordinates, width))
            return MatrixPrecision(M.T @ given @ M, (K, width))
        if given.shape == (K * D, K * D):
            require_spd("precision", given)
            scale = np.tile(unit, K)
            return self._with_intercept(scale[:, None] * given * scale, (K, width), weak, coordinates)
        raise ValueError(
            f"The prior's precision has shape {given.shape}: a number, an array ({K}, {D}), a matrix ({K * D}, {K * D})"
            f"{f' or, with the intercepts, ({K * width}, {K * width})' if has_intercept else ''}, or a pair of "
            "Kronecker factors is needed."
        )

    def _kronecker(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates, weak: float) -> Precision:
        """The precision given as Kronecker factors (A, G)."""
        if len(self.precision) != 2:
            raise ValueError(f"The prior's precision is a tuple of {len(self.precision)}: a pair of factors is needed.")
        width, unit = D + has_intercept, self._unit(D, coordinates)
        A, G = (finite_numbers("precision", factor) for factor in self.precision)
        if A.shape != (K, K) or G.shape not in ((D, D), (width, width)):
            raise ValueError(
                f"The prior's Kronecker factors have shapes {A.shape} and {G.shape}: ({K}, {K}) and ({D}, {D})"
                f"{f' or ({width}, {width})' if has_intercept else ''} are needed."
            )
        require_spd("precision's first factor", A)
        require_spd("precision's second factor", G)
        if len(G) == width:
            M = self._into(coordinates, width)
            return KroneckerPrecision(A, M.T @ G @ M)
        return self._with_intercept(np.kron(A, unit[:, None] * G * unit), (K, width), weak, coordinates)

    @property
    def _stated(self) -> Any:
        return 1.0 if self.precision is None else self.precision

    def _unit(self, D: int, coordinates: Coordinates) -> np.ndarray:
        """Weights for which the prior is stated, per weight of the coordinates, (D,)."""
        return np.ones(D) if self.autoscale else np.ones(D) / coordinates.unit

    def _into(self, coordinates: Coordinates, width: int) -> np.ndarray:
        """M (D', D') from the coefficients of a fit to those for which the prior is stated."""
        return coordinates.centring_matrix(width) if self.autoscale else coordinates.outward_matrix(width)

    def _intercept(self) -> float:
        given = self.intercept_precision
        if given is None:
            return WEAK
        if not isinstance(given, Real) or not 0 < float(given) < np.inf:
            raise ValueError(f"intercept_precision={given!r} must be a positive number, or None.")
        return float(given)

    @staticmethod
    def _with_intercept(
        R: np.ndarray, shape: tuple[int, int], weak: float, coordinates: Coordinates
    ) -> MatrixPrecision:
        """R (K D, K D) of the weights, with the logits of the mean row beside them."""
        K, width = shape
        D = len(R) // K
        out = np.zeros((K, width, K, width))
        out[:, :D, :, :D] = R.reshape(K, D, K, D)
        if width > D:
            values = np.zeros(shape)
            values[:, D] = weak
            out += DiagonalPrecision(values, coordinates.centre).matrix(np.eye(K)).reshape(out.shape)
        return MatrixPrecision(out.reshape(K * width, K * width), shape)


@dataclass(frozen=True)
class RidgePenalty:
    """The prior of a point estimate: alpha on the weights and perhaps on the intercepts, in the units of the data.

    Attributes
    ----------
    alpha : number or (K, D) array
        Precisions that are not negative; 0 is flat.
    penalize_intercept : bool or number
        False leaves the intercepts free, True gives them alpha, a number its own precision.
    """

    alpha: Any
    penalize_intercept: Any = False

    proper: ClassVar[bool] = False
    autoscale: ClassVar[bool] = False

    def coordinate_rule(self, has_intercept: bool) -> CoordinateRule:
        """The data's own units; columns may be moved only if no prior holds the intercepts where they are."""
        free = has_intercept and self._intercept_precision(self.weights) == 0.0
        return CoordinateRule(
            scaled=False, shift_allowed=free, keep_constant=True, largest_scale=_largest_scale(self.weights)
        )

    def require_shape(self, K: int, D: int) -> None:
        """Raise unless alpha is one number, or one for each of K classes and D features."""
        if self.weights.ndim == 2 and self.weights.shape != (K, D):
            raise ValueError(_alpha_shape(self.weights, f", here ({K}, {D})"))

    def precisions(self, K: int, D: int, has_intercept: bool, unit: np.ndarray | float = 1.0) -> np.ndarray:
        """The precision of each coefficient, (K, D') with the intercept last; `unit` as in `per_coefficient`."""
        alpha = self.weights
        self.require_shape(K, D)
        return per_coefficient(alpha, unit, self._intercept_precision(alpha) if has_intercept else None, (K, D))

    def find_mode(self, likelihood: LinearLikelihood, settings: SolveSettings, start: np.ndarray | None = None) -> Mode:
        """The mode under this prior, from parameters `start` in the units of the data if they are given."""
        (K, _), coordinates = likelihood.shape, likelihood.coordinates
        unit = 1.0 if coordinates.scale is None else coordinates.scale
        precision = self.precisions(K, likelihood.blocks.n_features, likelihood.has_intercept, unit)
        inward = None if start is None else coordinates.inward(start)
        return find_mode(likelihood.objective(precision), settings, inward)

    @cached_property
    def weights(self) -> np.ndarray:
        """The precisions of the weights: a number or a (K, D) array."""
        try:
            alpha = np.asarray(self.alpha, dtype=np.float64)
        except (TypeError, ValueError):
            if isinstance(self.alpha, GaussianPrior):
                raise TypeError(
                    "alpha is a GaussianPrior, and must be a number or a (K, D) array of numbers: for a prior use "
                    "BayesianSoftmaxRegression(prior=...)."
                ) from None
            raise ValueError(f"alpha={self.alpha!r} must be a number or a (K, D) array of numbers.") from None
        if alpha.ndim not in (0, 2):
            raise ValueError(_alpha_shape(alpha, ""))
        if not (np.isfinite(alpha).all() and (alpha >= 0).all()):
            raise ValueError(f"alpha={self.alpha!r} must be finite and not negative (0 is maximum likelihood).")
        return alpha

    def _intercept_precision(self, alpha: np.ndarray) -> float:
        given = self.penalize_intercept
        if isinstance(given, (bool, np.bool_)):
            if given and alpha.ndim > 0:
                raise ValueError(
                    "penalize_intercept=True needs a single alpha: with an array, give the intercepts' precision "
                    "as a number."
                )
            return float(alpha) if given else 0.0
        if not is_number(given) or not np.isfinite(given) or given < 0:
            raise ValueError(f"penalize_intercept={given!r} must be a bool or a precision that is not negative.")
        return float(given)


def per_coefficient(
    weights: np.ndarray, unit: np.ndarray | float, intercept: float | None, shape: tuple[int, int]
) -> np.ndarray:
    """Precisions (K, D') in coordinates, from those of the weights (a number or (K, D)) and of the intercepts.

    `shape` is (K, D); `unit`, a number or (D,), is the weight for which the prior is stated per weight of the
    coordinates; `intercept` is None where there are no intercepts.
    """
    K, D = shape
    values = np.empty((K, D + (intercept is not None)))
    with np.errstate(over="ignore", under="ignore"):
        values[:, :D] = weights * unit * unit
    if intercept is not None:
        values[:, D] = intercept
    return values


def _largest_scale(precisions: np.ndarray) -> float:
    """The factor by which columns may be multiplied so that precisions, times its square, stay numbers."""
    strongest = float(np.max(precisions, initial=0.0))
    return float(np.sqrt(_STRONGEST) / np.sqrt(strongest)) if strongest > 0 else np.inf


def _alpha_shape(alpha: np.ndarray, here: str) -> str:
    return (
        f"alpha has shape {alpha.shape}: it must be a number or an array of one precision per class and feature "
        f"(without the intercept){here}."
    )


def _shapes(K: int, widths: tuple[int, ...]) -> str:
    return " or ".join(f"({K}, {width})" for width in widths)
