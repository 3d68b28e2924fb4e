"""Deep Gaussian processes: layers of functions of functions, the largest of the last wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.gp.base import GaussianProcessClassifier
from posteriori.gp.inference import GPProblem
from posteriori.gp.inputs import InputUnits
from posteriori.gp.kernels import Kernel
from posteriori.gp.settings import GPSettings
from posteriori.parameters import is_whole_number, require_count

if TYPE_CHECKING:
    from posteriori.gp.ascent import FitOptions
    from posteriori.gp.predictions import FittedLatents

__all__ = ["DeepGPClassifier"]

_WIDEST = 30
"""The width of a hidden layer that is as wide as there are features, at most."""
_SMALL_BATCH, _LARGE_BATCH, _MANY_ROWS = 256, 1024, 10_000
_RATE = 0.02


@dataclass(eq=False, repr=False)
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
        The kernel of the last layer, as for `GPClassifier`; hidden layers have RBF kernels.
    n_inducing : int, default 100
        The number of inducing inputs in each layer.
    n_learning : None
        Not used: layers are learned from all rows.
    scale, likelihood
        As for `GPClassifier`.
    inference : {"ep", "energy", "vi"}, default "ep"
        How the last layer's sites are found: averages of the rows' natural parameters, gradient, or variational
        inference. Hidden layers always follow the gradient.
    power, mislabelling, noise
        As for `GPClassifier`.
    calibrate : bool, default True
        As for `GPClassifier`, where there are no hidden layers.
    batch_size : int, optional
        The number of rows in a step. None is 256, or 1,024 of more than 10,000.
    learning_rate : float, optional
        The learning rate of Adam at the start; it falls as the energy rises less. None is 0.02.
    tol : float, default 0.001
        The relative rise of the energy, over the second half of the steps at one learning rate, below which the
        learning rate is cut.
    max_iter : int, default 10000
        The number of steps, at most.
    categorical_features, classes, class_weight, checkpoint, random_state, device, verbose
        As for `GPClassifier`.
    n_samples : int, default 10
        The number of samples of every row, while learning.

    Attributes
    ----------
    solution_ : GPSolution
    scale_ : ndarray (K,)
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DeepGPClassifier(layers=(2,), n_inducing=10, n_samples=4, tol=1.0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    layers: Sequence[int | None] = (None,)
    _: KW_ONLY
    kernel: Kernel | None = None
    n_inducing: int | str = 100
    n_samples: int = 10

    def _read_settings(self) -> GPSettings:
        settings = super()._read_settings()
        require_count("n_samples", self.n_samples, 1)
        _require_widths(self.layers)
        return settings

    def _standardised_kernel(self, kernel: Kernel, units: InputUnits, origin: np.ndarray) -> Kernel:
        """The kernel as given: a last layer does not see the features, but the nodes of the layer below."""
        return kernel if self.layers else super()._standardised_kernel(kernel, units, origin)

    def _rows_in_a_step(self, N: int, given: int | None) -> int:
        usual = _SMALL_BATCH if N <= _MANY_ROWS else _LARGE_BATCH
        return min(usual if given is None else given, N)

    def _first_learning_rate(self, n_batches: int) -> float:
        return _RATE

    def _fit_latents(self, problem: GPProblem, settings: GPSettings, options: FitOptions) -> FittedLatents:
        if not self.layers:  # a single layer needs no samples
            return settings.inference.fit_layer(problem, options)
        D = problem.rows.X.shape[1]
        widths = tuple(min(D, _WIDEST) if width is None else int(width) for width in self.layers)
        return settings.inference.fit_stack(problem, options, widths, int(self.n_samples))


def _require_widths(layers: Any) -> None:
    """Raise unless layers are a sequence of widths, each None or a whole number of at least one."""
    if isinstance(layers, (str, int)) or not isinstance(layers, Sequence):
        raise ValueError(f"layers={layers!r} must be a sequence of widths, such as (10,) or (None, 5).")
    if any(width is not None and (not is_whole_number(width) or width < 1) for width in layers):
        raise ValueError(f"layers={layers!r} must hold whole numbers of at least 1, or None.")
