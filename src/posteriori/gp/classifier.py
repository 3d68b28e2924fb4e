"""A Gaussian-process classifier: K latent functions, the largest wins."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from posteriori.decision.inference_data import Draws, ObservedRows, inference_data, require_arviz
from posteriori.decision.replication import PosteriorCheck, check_labels, labels_rng
from posteriori.gp.base import GaussianProcessClassifier
from posteriori.gp.inference import GPProblem
from posteriori.gp.inputs import finite_matrix
from posteriori.gp.kernels import Kernel
from posteriori.gp.session import jax_session
from posteriori.gp.settings import GPSettings
from posteriori.parameters import require_count, seed_from
from posteriori.rows.engines import read_in_memory, read_labelled
from posteriori.rows.schema import feature_names
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.gp.ascent import FitOptions
    from posteriori.gp.predictions import FittedLatents, FittedLayer

__all__ = ["GPClassifier"]

_ROWS_AT_ONCE = 2048
"""Up to this many rows every step sees all of them; beyond, batches have half as many."""
_RATE, _RATE_OF_BATCHES = 0.1, 0.03
_COLUMNS = 1 << 16
"""The number of latents of each class whose probabilities are computed together."""


@dataclass(eq=False, repr=False)
class GPClassifier(GaussianProcessClassifier):
    r"""Gaussian-process classification of many classes, by expectation propagation.

    Each class has a latent function f_k ~ GP(0, sigma_k^2 k(x, x')), and the class of a row is that of the largest
    f_k(x) + noise. Functions are known at all distinct rows while that is affordable, and beyond through inducing
    inputs. The kernel is chosen and learned from the evidence. With the defaults nothing is compiled: JAX is needed for
    other likelihoods and methods of inference, and for a given number of inducing inputs.

    Parameters
    ----------
    kernel : kernel of `posteriori.kernels`, optional
        None chooses by the evidence between "smooth", a rational quadratic kernel, a linear and a constant one on
        features with lengthscales that all three share, and "quadratic", a rational quadratic kernel beside a linear, a
        quadratic and a constant one with lengthscales of their own. Fits by JAX have the first, with an RBF kernel.
    n_inducing : "auto" or int, default "auto"
        The number of inducing inputs. "auto" takes all distinct rows while a sweep over them takes a second or two
        (about 2,000 rows of five classes), else up to 1,000 rows, chosen one by one where functions are least known.
        A number below that of the distinct rows: so many, which are learned with the kernel, by JAX.
    n_learning : int, "all" or None
        The number of rows that the kernel is learned from; None is as many as time allows, in up to three stages.
    scale : float, optional
        The scale sigma_k of the latents at which learning begins. None is 5 with the default kernels and 1 with a
        kernel that is given, which is then used as it is where `max_iter` is 0.
    likelihood : {"argmax", "softmax"}, default "argmax"
        The largest latent wins (integrated by quadrature), or softmax (by quasi-random nodes).
    inference : {"ep", "energy", "vi"}, default "ep"
        Expectation propagation with a site for every row; the power-EP energy of tied sites maximised by gradient, for
        point probabilities only; variational inference.
    power : float in (0, 1], default 1
        The share of a site that its cavity lacks.
    mislabelling : float or "learn", default 0.001
        The rate of rows with a label at random; for "argmax" only. At a power below 1 it or the noise must be positive.
    noise : float, optional
        The variance of the noise on each latent; for "argmax" only. None is 1 (the multinomial probit), whatever the
        power and the method of inference.
    calibrate : bool, default True
        Compute probabilities with the posterior's variances multiplied by a factor (`spread_`) under which left-out
        rows are predicted best; intervals and uncertainty are never narrowed by it. Where latents turn out far too
        wide, left-out rows also choose the length of all lengthscales and the scale. Not with "energy".
    batch_size : int, optional
        The number of rows in a step of JAX; None takes all up to 2,048, else 1,024.
    learning_rate : float, optional
        The learning rate of Adam at the start; it falls as the energy rises less. None is 0.1, or 0.03 with several
        batches. For fits by JAX.
    tol : float, default 0.001
        The relative rise of the energy over four quasi-Newton steps at which learning ends. For fits by JAX: over ten
        steps, below which the learning rate is cut; with several batches, over the second half of the steps at one
        learning rate.
    max_iter : int, default 10000
        The number of steps, at most; 0 keeps the kernel and the scale as they are given.
    categorical_features : names, places or mask of columns, optional
        Columns that hold codes of levels, such as 1, 2, 3 for colours. Columns that are indicators of the levels of one
        category, as `TableEncoder` makes them, are recognised without being named here.
    classes : array-like, optional
        All classes there are: those without rows keep their place in `classes_`. For a target of shape (n, K) also the
        order of its columns.
    class_weight : dict, "balanced" or None
    checkpoint : path, optional
        A file that keeps a long fit every few seconds, so that the next call goes on from there; removed at the end.
        Such a fit is done by JAX.
    random_state : int, RandomState or None
        The seed of the rows that kernels are learned from, of the inducing inputs and of the order of batches.
    device : {None, "cpu", "gpu"}
        With "gpu" all is done by JAX, there; None is JAX's default where it is needed.
    verbose : int
        1 shows in words what is being done, and how long it may take; 2 shows every step too.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel as learned, in the units of the features.
    scale_ : ndarray (K,)
        The scales sigma_k of the latent functions.
    spread_ : float
        The factor on variances that probabilities are computed with; 1 without `calibrate`.
    lengthscales_ : ndarray (D,)
        The lengthscales of the features, in their units; infinite for those that never vary.
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
    >>> model = GPClassifier().fit(X[::2], y[::2])
    >>> round(model.score(X[1::2], y[1::2]), 2)
    0.97
    """

    _: KW_ONLY
    n_inducing: int | str = "auto"

    def _rows_in_a_step(self, N: int, given: int | None) -> int:
        if given is not None:
            return given
        return N if N <= _ROWS_AT_ONCE else _ROWS_AT_ONCE // 2

    def _first_learning_rate(self, n_batches: int) -> float:
        return _RATE if n_batches == 1 else _RATE_OF_BATCHES

    def _fit_latents(self, problem: GPProblem, settings: GPSettings, options: FitOptions) -> FittedLatents:
        return settings.inference.fit_layer(problem, options)

    # Draws

    def sample_proba(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws of the latent functions, the same draw for all rows, (n_draws, n, K).

        Draws are as uncertain as `predict_interval`, and like `predict_proba` they allow for mislabelled rows. The
        latents of all rows are drawn together, which takes n^3 operations.
        """
        return self._at(self._latent_draws(X, n_draws, random_state, "sample_proba"))

    def prior_sample(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws of the latent functions from the prior, with the kernel as learned.

        The same draw is for all rows, (n_draws, n, K).
        """
        fitted = cast("FittedLayer", self._fit_result())
        require_count("n_draws", n_draws, 1)
        Z, rng = self._standardised_rows(X), np.random.default_rng(seed_from(random_state))
        with self._numbers():
            latents = fitted.prior_draws(Z, n_draws, rng)
        return self._at(latents)

    def posterior_check(
        self, X: Any, y: Any, n_draws: int = 500, *, sample_weight: Any = None, random_state: Any = None
    ) -> PosteriorCheck:
        """Labels replicated under draws from the posterior beside those observed: see `posteriori.posterior_check`."""
        self._fit_result()
        X, codes, weights = read_labelled(self, X, y, sample_weight)
        P = self.sample_proba(X, n_draws, random_state)
        return check_labels(P, codes, self.classes_, weights, labels_rng(random_state))

    def to_arviz(
        self, X: Any, y: Any, n_draws: int = 1000, *, sample_weight: Any = None, random_state: Any = None
    ) -> Any:
        """Draws from the posterior for ArviZ: a DataTree with ArviZ 1, an InferenceData before.

        Groups are posterior ("latent", the latent functions at the rows X, up to a level that all classes share),
        log_likelihood of the labels y of these rows, posterior_predictive (labels replicated), observed_data and
        constant_data. Labels are places in `classes_`. Weights multiply log-likelihoods.
        """
        require_arviz()
        self._fit_result()
        X, codes, weights = read_labelled(self, X, y, sample_weight)
        matrix = finite_matrix(read_in_memory(self, X, who="to_arviz"))
        latents = self._latent_draws(X, n_draws, random_state, "to_arviz")
        with np.errstate(divide="ignore"):
            draws = Draws({"latent": (("class", "row"), latents)}, np.log(self._at(latents)))
        rows = ObservedRows(matrix, feature_names(self), codes, self.classes_, weights)
        return inference_data(draws, rows, labels_rng(random_state))

    def _latent_draws(self, X: Any, n_draws: int, random_state: Any, asked: str) -> np.ndarray:
        """Latents of all rows from the posterior, (n_draws, K, n)."""
        self._require_posterior(asked)
        require_count("n_draws", n_draws, 1)
        fitted = cast("FittedLayer", self._fit_result())
        Z, rng = self._standardised_rows(X), np.random.default_rng(seed_from(random_state))
        with self._numbers():
            return fitted.draws(Z, max(1.0, fitted.spread), n_draws, rng)

    def _numbers(self) -> AbstractContextManager[Any]:
        """Settings for the time in which latents are computed: those of JAX, or one thread for BLAS."""
        return jax_session(self.device) if self._fit_result().needs_jax else one_blas_thread()

    def _at(self, latents: np.ndarray) -> np.ndarray:
        """Class probabilities (S, n, K) at latents (S, K, n)."""
        S, K, n = latents.shape
        node, size = self._fit_result().node, max(1, _COLUMNS // n)
        out = np.empty((S, n, K))
        for first in range(0, S, size):
            part = latents[first : first + size]
            out[first : first + size] = node.at(part.swapaxes(0, 1).reshape(K, -1)).T.reshape(len(part), n, K)
        return out

    @property
    def spread_(self) -> float:
        """The factor on the latents' variances that `calibrate` chose."""
        return self._fit_result().spread

    @property
    def kernel_(self) -> Kernel:
        """The kernel as learned, in the units of the features that vary."""
        fitted = self._fit_result()
        return fitted.learned_kernel(self._standardised.unit)

    @property
    def relevances_(self) -> np.ndarray:
        """The spread of each feature divided by its lengthscale, (D,); of a category's levels, the largest."""
        scales, units = self.kernel_.lengthscales(), self._standardised
        out = np.zeros(len(units.spread))
        if scales is not None:
            out[units.kept] = units.unit / scales
        if self._category_columns is None:
            return out
        of_feature = np.zeros(self.n_features_in_)
        np.maximum.at(of_feature, self._category_columns.origin, out)
        return of_feature

    @property
    def lengthscales_(self) -> np.ndarray:
        """The lengthscales of the features in their units, (D,); for a category, the shortest of its levels."""
        relevances, spread = self.relevances_, self._standardised.spread
        if self._category_columns is not None:
            spread = self._category_columns.first(spread)
        with np.errstate(divide="ignore"):
            return spread / relevances

    @property
    def inducing_inputs_(self) -> np.ndarray:
        """The inducing inputs in the units of the features, (M, D)."""
        Z = self._fit_result().inducing
        units = self._standardised
        out = np.tile(units.centre, (len(Z), 1))
        out[:, units.kept] += Z * units.unit
        return out if self._category_columns is None else self._category_columns.collapsed(out)
