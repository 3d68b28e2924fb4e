"""A Gaussian-process classifier: K latent functions, the largest wins."""

from __future__ import annotations

from typing import Any

import numpy as np

from posteriori.gp.base import GaussianProcessClassifier
from posteriori.gp.kernels import Kernel
from posteriori.gp.rows import Rows

__all__ = ["GPClassifier"]

_ROWS_AT_ONCE = 2048
"""Up to so many rows every step sees all of them; beyond, batches of half as many."""


class GPClassifier(GaussianProcessClassifier):
    r"""Gaussian-process classification of many classes, by expectation propagation.

    Each class has a latent function f_k ~ GP(0, sigma_k^2 k(x, x')), and the class of a row is that of the largest
    f_k(x) + noise. Functions are seen through `n_inducing` inducing inputs; up to so many distinct rows nothing is lost
    by that. Kernel, scales and inducing inputs are learned from the evidence.

    Parameters
    ----------
    kernel : kernel of `posteriori.kernels`, optional
        None is an RBF kernel, a linear and a constant one, on features with lengthscales that all three share.
    n_inducing : int, default 200
    likelihood : {"argmax", "softmax"}, default "argmax"
        The largest latent wins (integrated by quadrature), or softmax (by quasi-random nodes).
    inference : {"ep", "energy", "vi"}, default "ep"
        Expectation propagation with a site for every row; the power-EP energy of tied sites maximised by gradient, for
        point probabilities only; variational inference.
    power : float in (0, 1], default 1
        The share of a site that its cavity lacks.
    mislabelling : float or "learn", default 0.001
        Rate of rows with a label at random; of "argmax" only.
    noise : float, optional
        Variance of the noise on each latent. None is 1 for "argmax" at power 1 (the multinomial probit), else 0.
    calibrate : bool, default True
        Multiply the posterior's variances by a factor chosen by leave-one-out (`spread_`): sites that are independent
        across classes leave them too wide where latents are large. Not with "energy".
    batch_size : int, optional
        Rows in a step; None takes all up to 2,048, else 1,024.
    learning_rate : float, optional
        Of Adam, at first; it falls as the energy rises less. Left out, 0.1, or 0.03 with several batches.
    tol : float, default 0.001
        Relative rise of the energy over ten steps that is worth going on for; with several batches, over the second
        half of the steps at one learning rate.
    max_iter : int, default 10000
        Steps, at most; 0 keeps the kernel as it is given.
    classes : array-like, optional
        All classes there are: those without rows keep their place in `classes_`. For a target of shape (n, K) also the
        order of its columns.
    class_weight : dict, "balanced" or None
    checkpoint : path, optional
        A file that keeps a long fit every few seconds, so that the next call goes on from there; removed at the end.
    random_state : int, RandomState or None
        For inducing inputs and the order of batches.
    device : {None, "cpu", "gpu"}
        None is JAX's default.
    verbose : int

    Attributes
    ----------
    kernel_ : Kernel
        As learned, in the units of the features.
    scale_ : ndarray (K,)
        sigma_k.
    spread_ : float
        The factor on variances; 1 without `calibrate`.
    lengthscales_ : ndarray (D,)
        Of the features, in their units; infinite for those that never vary.
    relevances_ : ndarray (D,)
        Spread of each feature divided by its lengthscale: the larger, the more predictions depend on it.
    inducing_inputs_ : ndarray (M, D)
    mislabelling_ : float
    log_evidence_ : float
        The energy; a lower bound with "vi".
    solution_ : GPSolution
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier().fit(X[::2], y[::2])  # doctest: +SKIP
    >>> model.score(X[1::2], y[1::2])  # doctest: +SKIP
    0.96
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        n_inducing: int = 200,
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
        self.kernel = kernel
        self.n_inducing = n_inducing
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

    def _batch_size(self, N: int) -> int:
        if self.batch_size is not None:
            return int(self.batch_size)
        return N if N <= _ROWS_AT_ONCE else _ROWS_AT_ONCE // 2

    def _rate(self, n_batches: int) -> float:
        if self.learning_rate is not None:
            return float(self.learning_rate)
        return 0.1 if n_batches == 1 else 0.03

    spread_ = property(lambda self: getattr(self._checked()._fitted, "spread", 1.0))

    @property
    def kernel_(self) -> Kernel:
        """The kernel as learned, in the units of the features that vary."""
        fitted = self._checked()._fitted
        return fitted.readout.kernel.learned(fitted.last["kernel"], self._standardised.unit)

    @property
    def relevances_(self) -> np.ndarray:
        """Spread of each feature divided by its lengthscale, (D,)."""
        out = np.zeros(self._checked().n_features_in_)
        scales = self.kernel_.lengthscales()
        if scales is not None:
            out[self._standardised.kept] = self._standardised.unit / scales
        return out

    @property
    def lengthscales_(self) -> np.ndarray:
        """Lengthscales of the features in their units, (D,)."""
        relevances = self.relevances_
        with np.errstate(divide="ignore"):
            return self._standardised.spread / relevances

    @property
    def inducing_inputs_(self) -> np.ndarray:
        """Inducing inputs in the units of the features, (M, D)."""
        standardised, Z = self._checked()._standardised, self._fitted.last["inducing"]
        out = np.tile(standardised.centre, (len(Z), 1))
        out[:, standardised.kept] += Z * standardised.unit
        return out

    def _fit_rows(self, rows: Rows, kernel: Kernel, K: int, how: Any) -> Any:
        from posteriori.gp.fit import fit_one_layer
        from posteriori.gp.stack_fit import fit_layers

        likelihood = self._likelihood(K)
        if self.inference == "energy":
            return fit_layers(rows, kernel, likelihood, K, (), self.n_inducing, how, n_samples=1, averaged=False)
        return fit_one_layer(rows, kernel, likelihood, K, self.n_inducing, how)
