"""A fitted Bayesian softmax model as one object: what predictions, tables, files and ONNX graphs read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.precision import Precision

__all__ = ["FittedSoftmax"]


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

    def mean(self, n_features: int) -> np.ndarray:
        """The posterior mean of the parameters in the units of the data, (K, D')."""
        theta = self.coordinates.outward(self.posterior.mean)
        if theta.shape[1] > n_features:
            theta[:, -1] += self.offset
        return theta

    def coefficient_covariances(self) -> np.ndarray:
        """The covariance over classes of each coefficient in the units of the data, (D', K, K).

        A coefficient in those units is a logit at a row of the change of coordinates.
        """
        return self.posterior.latent_covariance(self.coordinates.outward_matrix(self.mode.shape[1]))

    def draws(self, n_draws: int, seed: int | None = None) -> np.ndarray:
        """Parameters drawn from the posterior, (n_draws, K, D'), in the coordinates of the fit."""
        return self.posterior.draws(n_draws, np.random.default_rng(self.seed if seed is None else seed))

    def for_class_sizes(self, class_sizes: np.ndarray) -> FittedSoftmax:
        """The model of a population with these class frequencies, (K,)."""
        shift = np.log(class_sizes) - np.log(self.class_sizes)
        return replace(self, offset=self.offset + shift - shift.mean(), class_sizes=class_sizes)
