"""Deep Gaussian processes: layers of functions of functions, the largest of the last wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriori.gp.base import GaussianProcessClassifier
from posteriori.gp.kernels import Kernel
from posteriori.gp.rows import Rows, Standardised
from posteriori.gp.settings import default_kernel

__all__ = ["DeepGPClassifier"]

_WIDEST = 30
_SMALL_BATCH, _LARGE_BATCH, _MANY_ROWS = 256, 1024, 10_000


class DeepGPClassifier(GaussianProcessClassifier):
    r"""Deep Gaussian-process classification by approximate expectation propagation.

    Rows pass through hidden layers of Gaussian processes as samples, all nodes of a layer seeing the same one; the last
    layer has a latent for each class, integrated by quadrature. Training uses the cavity, prediction the posterior,
    through quasi-random samples that are the same for every row.

    Parameters
    ----------
    layers : sequence of int or None, default (None,)
        Widths of the hidden layers; None is as wide as there are features, 30 at most. With () it is one layer.
    kernel : kernel of `posteriori.kernels`, optional
        Of the last layer, as for `GPClassifier`; hidden layers have RBF kernels.
    n_inducing : int, default 100
        In each layer.
    n_samples : int, default 10
        Of every row, while learning.
    likelihood, power, mislabelling, noise, classes, class_weight, checkpoint, random_state, device, verbose
        As for `GPClassifier`.
    calibrate : bool, default True
        As for `GPClassifier`, where there are no hidden layers.
    inference : {"ep", "energy", "vi"}, default "ep"
        How the last layer's sites are found: averages of the rows' natural parameters, gradient, or variational
        inference. Hidden layers always follow the gradient.
    batch_size : int, optional
        Rows of a step. Left out, 256, or 1,024 of more than 10,000.
    learning_rate : float, optional
        Of Adam, at first; it falls as the energy rises less. Left out, 0.02.
    tol : float, default 0.001
        Relative rise of the energy, over the second half of the steps at one learning rate, that is worth going on for.
    max_iter : int, default 10000

    Attributes
    ----------
    solution_ : GPSolution
    scale_ : ndarray (K,)
    classes_, n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        layers: Sequence[int | None] = (None,),
        *,
        kernel: Kernel | None = None,
        n_inducing: int = 100,
        n_samples: int = 10,
        likelihood: str = "argmax",
        inference: str = "ep",
        power: float = 1.0,
        mislabelling: float | str = 0.001,
        noise: float | None = None,
        calibrate: bool = True,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        tol: float = 1e-3,
        max_iter: int = 10_000,
        classes: Any = None,
        class_weight: Any = None,
        checkpoint: Any = None,
        random_state: Any = None,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.n_samples = n_samples
        self.likelihood = likelihood
        self.inference = inference
        self.power = power
        self.mislabelling = mislabelling
        self.noise = noise
        self.calibrate = calibrate
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.max_iter = max_iter
        self.classes = classes
        self.class_weight = class_weight
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _validate(self) -> None:
        super()._validate()
        size = self.n_samples
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise ValueError(f"n_samples={size!r} must be a whole number of at least 1.")
        widths = self.layers
        if isinstance(widths, (str, int)) or not isinstance(widths, Sequence):
            raise ValueError(f"layers={widths!r} must be a sequence of widths, such as (10,) or (None, 5).")
        for width in widths:
            if width is not None and (not isinstance(width, (int, np.integer)) or isinstance(width, bool) or width < 1):
                raise ValueError(f"layers={widths!r} must hold whole numbers of at least 1, or None.")

    def _kernel(self, standardised: Standardised) -> Kernel:
        """A last layer does not see the features: its lengthscales are in the units of the layer below."""
        if not self.layers:
            return super()._kernel(standardised)
        return default_kernel() if self.kernel is None else self.kernel

    def _batch_size(self, N: int) -> int:
        if self.batch_size is not None:
            return min(int(self.batch_size), N)
        return min(_SMALL_BATCH if N <= _MANY_ROWS else _LARGE_BATCH, N)

    def _rate(self, n_batches: int) -> float:
        return 0.02 if self.learning_rate is None else float(self.learning_rate)

    def _fit_rows(self, rows: Rows, kernel: Kernel, K: int, how: Any) -> Any:
        from posteriori.gp.fit import fit_one_layer
        from posteriori.gp.stack_fit import fit_layers

        likelihood = self._likelihood(K)
        if not self.layers and self.inference != "energy":  # one layer needs no samples, and its rows have sites
            return fit_one_layer(rows, kernel, likelihood, K, self.n_inducing, how)
        D = rows.X.shape[1]
        widths = tuple(min(D, _WIDEST) if width is None else int(width) for width in self.layers)
        return fit_layers(
            rows, kernel, likelihood, K, widths, self.n_inducing, how,
            n_samples=self.n_samples, averaged=self.inference == "ep",
        )  # fmt: skip
