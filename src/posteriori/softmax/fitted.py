"""A fitted Bayesian softmax model as one object: what predictions, tables, files and ONNX graphs read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, xlogy

from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.precision import Precision

__all__ = ["FitStatistics", "FittedSoftmax"]


@dataclass(frozen=True)
class FittedSoftmax:
    """The posterior of theta (K, D') in the coordinates of the fit, and what belongs to it.

    Attributes
    ----------
    coordinates : Coordinates
        The coordinates of the fit: z = (x - shift) * scale.
    mode : ndarray (K, D')
    posterior : Posterior
    precision : Precision or None
        R of the prior, in the same coordinates; None where it has none.
    class_sizes : ndarray (K,)
        Shares of the classes among the rows.
    offset : ndarray (K,)
        A number for each class that is added to its logits: not zero for a population with other class frequencies.
    seed : int
        For draws.
    """

    coordinates: Coordinates
    mode: np.ndarray
    posterior: Posterior
    precision: Precision | None
    class_sizes: np.ndarray
    offset: np.ndarray
    seed: int

    def in_data_units(self, theta: np.ndarray, n_features: int) -> np.ndarray:
        """Parameters (K, D') of the fit's coordinates in the units of the data, the offset added to the intercepts."""
        theta = self.coordinates.outward(theta)
        if theta.shape[1] > n_features:
            theta[:, -1] += self.offset
        return theta

    def mean(self, n_features: int) -> np.ndarray:
        """The posterior mean of the parameters in the units of the data, (K, D')."""
        return self.in_data_units(self.posterior.mean, n_features)

    def covariance(self) -> np.ndarray:
        """The posterior covariance in the units of the data, (K D', K D'): class by class, the intercept last."""
        return self._in_blocks(self.coordinates.outward_matrix(self.mode.shape[1]), self.posterior.covariance())

    def precision_matrix(self) -> np.ndarray:
        """The posterior's precision in the units of the data, (K D', K D')."""
        M = np.linalg.inv(self.coordinates.outward_matrix(self.mode.shape[1]))
        H = self._in_blocks(M.T, self.posterior.precision())
        return 0.5 * (H + H.T)

    def _in_blocks(self, M: np.ndarray, S: np.ndarray) -> np.ndarray:
        """(I kron M) S (I kron M)^T."""
        K, width = self.mode.shape
        blocks = S.reshape(K, width, K, width)
        return np.einsum("de,kelf,gf->kdlg", M, blocks, M, optimize=True).reshape(K * width, K * width)

    def draws(self, n_draws: int, seed: int | None = None) -> np.ndarray:
        """Parameters drawn from the posterior, (n_draws, K, D'), in the coordinates of the fit.

        What all classes share is left out: no probability depends on it.
        """
        return self.posterior.contrast_draws(n_draws, np.random.default_rng(self.seed if seed is None else seed))

    def coefficients(self, thetas: np.ndarray, n_features: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Weights (S, K, D) and intercepts (S, K), if any, in the units of the data, of parameters (S, K, D')."""
        S, K, width = thetas.shape
        theta = self.coordinates.outward(thetas.reshape(-1, width)).reshape(S, K, width)
        if width == n_features:
            return theta, np.tile(self.offset, (S, 1)) if self.offset.any() else None
        return theta[..., :n_features], theta[..., n_features] + self.offset

    def for_class_sizes(self, class_sizes: np.ndarray) -> FittedSoftmax:
        """The model of a population with these class frequencies, (K,)."""
        shift = np.log(class_sizes) - np.log(self.class_sizes)
        return replace(self, offset=self.offset + shift - shift.mean(), class_sizes=class_sizes)


@dataclass(frozen=True)
class FitStatistics:
    r"""The log-likelihood of a fit, and what is made of it.

    .. math:: R^2 = 1 - \ell/\ell_0, \qquad \mathrm{AIC} = 2 p - 2\ell, \qquad \mathrm{BIC} = p \log N - 2\ell,

    with l the log-likelihood at the mode, l_0 that of the class frequencies alone, and p the number of free parameters.

    Attributes
    ----------
    log_likelihood : float
        At the mode, with the weights of the rows.
    class_sizes : ndarray (K,)
        Weighted number of rows of each class.
    n_parameters : int or None
        Contrasts of weights and intercepts, (K - 1) D'; None under a prior that holds them back, where their number
        says little.
    has_intercept : bool
        Whether the class frequencies alone are a special case of the model.
    """

    log_likelihood: float
    class_sizes: np.ndarray
    n_parameters: int | None
    has_intercept: bool

    @property
    def n_rows(self) -> float:
        """The sum of the weights of all rows."""
        return float(self.class_sizes.sum())

    @property
    def null_log_likelihood(self) -> float:
        """The log-likelihood of the class frequencies alone, as a model with nothing but intercepts has it."""
        return float(xlogy(self.class_sizes, self.class_sizes / self.n_rows).sum())

    @property
    def pseudo_r2(self) -> float:
        """McFadden's: the share of the null model's log-likelihood that is explained."""
        null = self.null_log_likelihood
        return 1.0 - self.log_likelihood / null if null < 0 else np.nan

    @property
    def aic(self) -> float | None:
        """Akaike's criterion; None under a prior."""
        return None if self.n_parameters is None else 2.0 * (self.n_parameters - self.log_likelihood)

    @property
    def bic(self) -> float | None:
        """The Bayesian criterion of Schwarz; None under a prior."""
        if self.n_parameters is None:
            return None
        return float(self.n_parameters * np.log(self.n_rows) - 2.0 * self.log_likelihood)

    @property
    def likelihood_ratio(self) -> float:
        """Twice the gain in log-likelihood over the class frequencies."""
        return 2.0 * (self.log_likelihood - self.null_log_likelihood)

    @property
    def likelihood_ratio_p(self) -> float | None:
        """The p-value of that ratio, by chi^2 with a degree of freedom for each weight; None where it has none."""
        if self.n_parameters is None or not self.has_intercept:
            return None
        freedom = self.n_parameters - (len(self.class_sizes) - 1)
        return float(chdtrc(freedom, max(self.likelihood_ratio, 0.0))) if freedom > 0 else np.nan
