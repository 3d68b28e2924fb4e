"""What is believed: parameters, priors and the log joint, as functions summed over blocks of rows."""

from posteriori.models.prior import GaussianPrior

__all__ = ["GaussianPrior"]
