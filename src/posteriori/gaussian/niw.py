"""Priors on Gaussian classes as a user states them, and as they read in the coordinates of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from posteriori.gaussian.structures import Structure, WishartPrior, shape
from posteriori.parameters import Parameters, finite_numbers, require_spd

__all__ = ["NormalInverseWishartPrior", "RidgePrior"]


@dataclass
class NormalInverseWishartPrior(Parameters):
    """mu_k | Sigma_k ~ N(mean, Sigma_k / kappa), Sigma_k ~ IW(nu, scale); a Dirichlet on the class frequencies.

    For diagonal covariances the same in one dimension, feature by feature; for spherical ones nu and scale are those
    of the one variance.

    Parameters
    ----------
    mean : None, number or (D,) array, default None
        Of the class means; None is the mean of all rows.
    kappa : number, default 1
        How many rows the mean is worth.
    nu : None or number, default None
        Degrees of freedom, more than D - 1 (0 for diagonal and spherical covariances); None is D + 2 (3), the least
        whole number with which covariances have an expectation.
    scale : None, number, (D,) or (D, D) array, default None
        Psi, in squared units of the data: the expected covariance is scale / (nu - D - 1), for diagonal covariances
        scale / (nu - 2). None is such that it expects the variances of all rows.
    concentration : number, default 1
        Of the Dirichlet, for each class.

    Examples
    --------
    >>> NormalInverseWishartPrior(kappa=0.5)
    NormalInverseWishartPrior(mean=None, kappa=0.5, nu=None, scale=None, concentration=1.0)
    """

    mean: Any = None
    kappa: Any = 1.0
    nu: Any = None
    scale: Any = None
    concentration: Any = 1.0

    def origin(self, D: int) -> np.ndarray | None:
        """The prior mean, (D,), or None."""
        if self.mean is None:
            return None
        mean = finite_numbers("mean", self.mean)
        if mean.shape not in ((), (D,)):
            raise ValueError(f"The prior's mean has shape {mean.shape}: a number or {D} numbers are needed.")
        return np.broadcast_to(mean, (D,)).astype(np.float64)

    def within(self, structure: Structure, unit: np.ndarray, variance: np.ndarray) -> WishartPrior:
        """The prior for x / unit, where `variance` is that of all rows in the data's units."""
        D = len(unit)
        kappa = _positive("kappa", self.kappa)
        full = shape(structure) == "full"
        least = D - 1.0 if full else 0.0
        nu = least + 3.0 if self.nu is None else _positive("nu", self.nu)
        if not nu > least:
            raise ValueError(f"The prior's nu is {self.nu!r}: it must exceed {least:g} for covariance={structure!r}.")
        if self.scale is None:
            scale = max(nu - least - 2.0, 1.0) * np.where(variance > 0.0, variance, 1.0)
            if structure == "spherical":
                scale = scale.mean()
        else:
            scale = finite_numbers("scale", self.scale)
        allowed = {"full": ((), (D,), (D, D)), "diagonal": ((), (D,)), "spherical": ((),)}[shape(structure)]
        if scale.shape not in allowed:
            raise ValueError(
                f"The prior's scale has shape {scale.shape}: covariance={structure!r} needs "
                f"{' or '.join('a number' if not s else str(s) for s in allowed)}."
            )
        if full and scale.ndim < 2:
            scale = np.diag(np.broadcast_to(scale, (D,)))
        if full:
            require_spd("scale", scale)
            return WishartPrior(kappa, nu, scale / (unit * unit[:, None]))
        if not (scale > 0.0).all():
            raise ValueError(f"The prior's scale is {self.scale!r}: it must be positive.")
        if structure == "spherical":
            return WishartPrior(kappa, nu, scale / unit[0] ** 2)
        return WishartPrior(kappa, nu, np.broadcast_to(scale, (D,)) / unit**2)


@dataclass
class RidgePrior(Parameters):
    """p(mu_k) ~ exp(-strength |mu_k|^2), that is N(0, I / (2 strength)), independent of the covariances.

    These have no prior. The mode satisfies mu_k = (n_k I + 2 strength Sigma_k)^{-1} sum_n x_n.

    Parameters
    ----------
    strength : number, default 1
        lambda, in the units of the data.
    concentration : number, default 1
        Of a Dirichlet on the class frequencies, for each class; 1 leaves them as they are.
    """

    strength: Any = 1.0
    concentration: Any = 1.0


def _positive(name: str, value: Any) -> float:
    if not isinstance(value, Real) or value is True or not 0.0 < float(value) < np.inf:
        raise ValueError(f"The prior's {name} is {value!r}: it must be a positive number.")
    return float(value)
