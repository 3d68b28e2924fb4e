"""Gaussian priors as a user states them, and as they read in the coordinates in which a fit computes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from posteriori.parameters import Parameters, finite_numbers, require_spd
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision, Precision

__all__ = ["WEAK", "WEAKEST", "GaussianPrior", "Prior"]

WEAK = 1.0 / 2.5**2
"""Precision of the logit of the mean row when nothing else is said: probabilities from 0.01 to 0.99 are all likely."""


WEAKEST = 1.0 / 20.0**2
"""How far it may fall where the evidence asks for it: a mean row far from some class has a large logit."""


@dataclass(frozen=True)
class Prior:
    """N(mean, R^{-1}) on the parameters (K, D') of a fit's own coordinates."""

    mean: np.ndarray | None
    precision: Precision

    @property
    def exchangeable(self) -> bool:
        """Whether relabelling the classes leaves it as it is: then K - 1 contrasts say everything."""
        return self.precision.exchangeable and (self.mean is None or bool((self.mean == self.mean[0]).all()))

    def in_data_units(self, coordinates: Coordinates, D: int) -> GaussianPrior:
        """As a user would state it, for D features: the inverse of `GaussianPrior.within`."""
        K, width = self.precision.diagonal.shape
        mean: Any = 0.0 if self.mean is None else coordinates.outward(self.mean)
        if isinstance(self.precision, DiagonalPrecision):
            weights = self.precision.values[:, :D] * np.asarray(coordinates.unit) ** 2
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
    precision : number, array or pair of arrays, default 1
        One number; (K, D), one per coefficient; a matrix over all weights, class by class, (K D, K D), or with the
        intercepts, K (D + 1); or Kronecker factors (A, G) with A (K, K) and G (D, D) or (D + 1, D + 1).
    intercept_precision : number or None, default None
        Of the logit of the mean row, w_k . mean(x) + b_k; None is weak, 1/2.5^2. Not used when `precision` covers
        the intercepts.
    autoscale : bool, default False
        State the prior for columns that are centred and scaled to unit standard deviation: predictions then do not
        depend on the units or the origin of a column.

    Examples
    --------
    >>> GaussianPrior(precision=4.0)
    GaussianPrior(mean=0.0, precision=4.0, intercept_precision=None, autoscale=False)
    """

    mean: Any = 0.0
    precision: Any = 1.0
    intercept_precision: Any = None
    autoscale: bool = False

    def within(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> Prior:
        """The prior on the parameters of z = (x - shift) * scale, checked against K classes and D features."""
        if not isinstance(self.autoscale, (bool, np.bool_)):
            raise ValueError(f"autoscale={self.autoscale!r} must be True or False.")
        mean = self._mean(K, D, has_intercept, coordinates)
        precision = self._precision(K, D, has_intercept, coordinates)
        return Prior(mean if mean.any() else None, precision)

    def _mean(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> np.ndarray:
        given = finite_numbers("mean", self.mean)
        widths = (D, D + 1) if has_intercept else (D,)
        if given.ndim != 0 and (given.ndim != 2 or given.shape[0] != K or given.shape[1] not in widths):
            raise ValueError(
                f"The prior's mean has shape {given.shape}: a number or an array {_shapes(K, widths)} is needed."
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

    def _precision(self, K: int, D: int, has_intercept: bool, coordinates: Coordinates) -> Precision:
        width = D + has_intercept
        unit = np.ones(D) if self.autoscale else np.ones(D) / coordinates.unit
        weak = self._intercept()
        if isinstance(self.precision, tuple):
            if len(self.precision) != 2:
                raise ValueError(
                    f"The prior's precision is a tuple of {len(self.precision)}: a pair of factors is needed."
                )
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
        given = finite_numbers("precision", self.precision)
        if given.ndim == 0 or given.shape == (K, D):
            if not (given > 0).all():
                raise ValueError(
                    f"The prior's precision is {self.precision!r}: it must be positive. For a flat prior use "
                    "SoftmaxRegression(alpha=0), or prior='jeffreys'."
                )
            values = np.empty((K, width))
            values[:, :D] = given * unit**2
            if has_intercept:
                values[:, D] = weak
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


def _shapes(K: int, widths: tuple[int, ...]) -> str:
    return " or ".join(f"({K}, {width})" for width in widths)
