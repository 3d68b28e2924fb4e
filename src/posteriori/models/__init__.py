"""What is believed: parameters, priors and the log joint, as functions summed over blocks of rows."""

from posteriori.models.prior import GaussianPrior
from posteriori.models.wishart_prior import NormalInverseWishartPrior, RidgePrior

__all__ = ["GaussianPrior", "NormalInverseWishartPrior", "RidgePrior"]
