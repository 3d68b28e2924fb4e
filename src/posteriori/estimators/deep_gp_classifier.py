"""Deep Gaussian processes: layers of functions of functions, the largest of the last wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriori.estimators.gp_base import GaussianProcessClassifier
from posteriori.estimators.gp_rows import Rows, Standardised
from posteriori.estimators.gp_settings import default_kernel
from posteriori.models.kernels import RBF, Kernel

__all__ = ["DeepGPClassifier"]

_WIDEST = 30


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
    batch_size : int, default 256
    learning_rate : float, default 0.02
    tol : float, default 0.001
        Relative rise of the energy over a chunk of steps that is worth going on for.
    max_iter : int, default 5000

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
        batch_size: int = 256,
        learning_rate: float = 0.02,
        tol: float = 1e-3,
        max_iter: int = 5000,
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
        for name in ("n_samples", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1.")
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
        return min(int(self.batch_size), N)

    def _fit_rows(self, rows: Rows, kernel: Kernel, K: int, how: Any) -> Any:
        from posteriori.estimators.gp_fit import fit_one_layer
        from posteriori.estimators.stack_fit import fit_stack, start_stack
        from posteriori.models.gp import SparseGP
        from posteriori.models.gp_stack import HiddenLayer, StackedGP

        if not self.layers and self.inference != "energy":  # one layer needs no samples, and its rows have sites
            return fit_one_layer(rows, kernel, self._likelihood(K), K, self.n_inducing, how)
        D = rows.X.shape[1]
        hidden = tuple(HiddenLayer(RBF(), min(D, _WIDEST) if width is None else int(width)) for width in self.layers)
        model = StackedGP(hidden, SparseGP(kernel, self._likelihood(K), K, inducing_spread=10.0))
        averaged = self.inference == "ep"
        free = start_stack(model, rows, self.n_inducing, how.seed, averaged)
        return fit_stack(model, rows, free, how, n_samples=self.n_samples if hidden else 1, averaged=averaged)
