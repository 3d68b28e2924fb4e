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

    def for_class_sizes(self, class_sizes: np.ndarray) -> FittedSoftmax:
        """The model of a population with these class frequencies, (K,)."""
        shift = np.log(class_sizes) - np.log(self.class_sizes)
        return replace(self, offset=self.offset + shift - shift.mean(), class_sizes=class_sizes)
