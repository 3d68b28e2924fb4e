r"""Figures that describe a fit as a whole: log-likelihood, pseudo R^2 and information criteria.

.. math:: R^2 = 1 - \ell/\ell_0, \qquad \mathrm{AIC} = 2 p - 2\ell, \qquad \mathrm{BIC} = p \log N - 2\ell,

with l the log-likelihood at the mode, l_0 that of the class frequencies alone, and p the number of free parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, xlogy

__all__ = ["FitStatistics"]


@dataclass(frozen=True)
class FitStatistics:
    """The log-likelihood of a fit, and what is made of it.

    Attributes
    ----------
    log_likelihood : float
        At the mode, with the weights of the rows.
    class_sizes : ndarray (K,)
        Weighted number of rows of each class.
    n_parameters : int or None
        Contrasts of weights and intercepts, (K - 1) D'; None under a prior that holds them back, where their number
        says little.
    n_coefficients : int
        Coefficients of each class, D', of which the intercept is one.
    """

    log_likelihood: float
    class_sizes: np.ndarray
    n_parameters: int | None
    n_coefficients: int

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
        """The p-value of that ratio: the tail of chi^2 with one degree of freedom for each weight; None under a prior."""
        if self.n_parameters is None:
            return None
        freedom = self.n_parameters - (len(self.class_sizes) - 1)
        return float(chdtrc(freedom, max(self.likelihood_ratio, 0.0))) if freedom > 0 else np.nan
