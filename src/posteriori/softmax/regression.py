"""Softmax regression: the multinomial logit as a scikit-learn classifier."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from posteriori.callbacks import CALLER_OF_FIT, WatchedFit, watched
from posteriori.exceptions import ConvergenceWarning, SeparationWarning
from posteriori.left_out.leaving import ByFormula, LeftOutMixin
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.rows.engines import label_vector, read_for_fit, read_for_prediction, read_in_memory_for_fit, read_labels
from posteriori.rows.features import Features
from posteriori.rows.products import logits
from posteriori.rows.schema import check_features, remember_features
from posteriori.rows.target import Target, classes_of_call
from posteriori.softmax.coordinates import Coordinates
from posteriori.softmax.kernels import probabilities
from posteriori.softmax.left_out import regression_left_out
from posteriori.softmax.likelihood import linear_likelihood
from posteriori.softmax.mode import Mode
from posteriori.softmax.priors import RidgePenalty
from posteriori.softmax.progress import progress
from posteriori.softmax.sequential import Sequential
from posteriori.softmax.settings import solve_settings
from posteriori.solvers.solution import Iterate, Solution, Status
from posteriori.solvers.solver import Solver
from posteriori.threads import one_blas_thread, usable_threads

__all__ = ["SoftmaxRegression"]


class SoftmaxRegression(LeftOutMixin, WatchedFit, ClassifierMixin, BaseEstimator):
    r"""Softmax (multinomial logistic) regression by maximum likelihood or with a Gaussian prior.

    Minimises

    .. math:: J(W, b) = -\sum_n c_n \sum_k Y_{nk} \log P_{nk} + \tfrac{\alpha}{2} \lVert W\rVert^2,
              \qquad P_n = \mathrm{softmax}(W x_n + b),

    exactly as written: no mean over rows, no scaling of columns needed. scikit-learn's C is 1/alpha for more than
    two classes and 2/alpha for two.

    Parameters
    ----------
    alpha : float or array (K, D), default 1.0
        Precision of the Gaussian prior on the weights; 0 is maximum likelihood, an array gives each its own.
    fit_intercept : bool, default True
        Whether logits have an intercept.
    penalize_intercept : bool or float, default False
        False leaves the intercepts free, True gives them the precision alpha (a number), a number its own.
    solver : {"auto", "newton", "lbfgs", "gd", "sgd"} or a solver object, default "auto"
        "auto" needs neither scaling nor tuning. Objects carry parameters: ``Newton(exact=True)``, ``LBFGS(memory=5)``,
        ``GradientDescent(step=0.1)``, ``StochasticGradient(batch_size=1)``.
    tol : float, default 1e-8
        Stop when the estimated distance to the optimum, ``solution_.gap``, is at most ``tol * |J|``.
    max_iter : int, default 1000
        The most iterations of the solver.
    classes : array-like, optional
        All classes there are: those without rows keep their place in ``classes_``. For a target of shape (n, K)
        also the order of its columns.
    class_weight : None, "balanced" or dict, default None
        Multiplies the weight of each row by that of its class.
    warm_start : bool, default False
        Start from the last fit's coefficients.
    n_jobs : int, optional
        Threads; None means the usable cores, capped by OMP_NUM_THREADS.
    random_state : int, RandomState or None
        For stochastic gradients alone; all other solvers are deterministic.
    device : None, "cpu" or "gpu"
        "gpu" moves the rows there once and sums over them there (needs JAX; dense rows only); None works where X is,
        which may be an array of JAX, PyTorch or CuPy on a GPU.
    verbose : int, default 0
        1 shows a line of progress, 2 one per iteration.

    Attributes
    ----------
    coef_ : ndarray (K, D), also for K = 2
    intercept_ : ndarray (K,)
    classes_ : ndarray (K,), sorted
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str, for tables
    solution_ : Solution
        Status, objective, gradient norm, gap, gap bound, passes over the data, trace.

    Notes
    -----
    All arithmetic is in float64, whatever the dtype of X: a float32 or integer matrix is converted block by block,
    never as a whole.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = SoftmaxRegression().fit(X, y)
    >>> model.solution_.status.name, model.solution_.gap <= 1e-8 * model.solution_.objective
    ('CONVERGED', True)
    >>> model.predict_proba(X[:1]).round(3)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        penalize_intercept: bool | float = False,
        solver: str | Solver = "auto",
        tol: float = 1e-8,
        max_iter: int = 1000,
        classes: Any = None,
        class_weight: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.classes = classes
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @watched
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SoftmaxRegression:
        """Fit the model.

        Parameters
        ----------
        X : table (pandas, polars, Arrow), array or scipy.sparse matrix, (n, D)
        y : array-like (n,) of labels, (n, K) of probabilities or counts, or the name of a column of X
        sample_weight : array-like (n,), number, or the name of a column of X, optional

        Returns
        -------
        self
        """
        settings, penalty = solve_settings(self), RidgePenalty(self.alpha, self.penalize_intercept)
        rule = penalty.coordinate_rule(bool(self.fit_intercept))
        features, target, named = read_for_fit(X, y, sample_weight, self.classes, self.class_weight, device=self.device)
        penalty.require_shape(len(target.classes), features.n_features)
        start = self._start(features, target)
        labels, weights = partial(read_labels, X, y), partial(read_labels, X, sample_weight)
        with one_blas_thread(), self._iterations(X, labels, weights) as tell:
            threads = usable_threads(self.n_jobs)
            likelihood = linear_likelihood(features, target, bool(self.fit_intercept), rule, threads)

            def as_if_ended(theta: np.ndarray) -> dict[str, Any]:
                other = copy.copy(self)
                remember_features(other, features, named)
                other.classes_ = target.classes
                other._set_coefficients(likelihood.coordinates.outward(theta))
                return dict(vars(other))

            def tell_of(now: Iterate) -> None:
                assert tell is not None
                tell(partial(as_if_ended, now.theta))

            with progress(self.verbose, likelihood.blocks, None if tell is None else tell_of) as report:
                mode = penalty.find_mode(
                    likelihood, settings if report is None else replace(settings, report=report), start
                )
        solution = _as_returned(mode, likelihood.coordinates)
        remember_features(self, features, named)
        self.classes_, self.solution_, self.n_iter_ = target.classes, solution, solution.n_iter
        self._rows = RowsReference(X, y, sample_weight)
        self._sequential: Sequential | None = None
        self._set_coefficients(likelihood.coordinates.outward(mode.theta))
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        self._warn(features)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> SoftmaxRegression:
        """Go over some rows once, one at a time: the sequential algorithm.

        N, which weighs the prior against the rows, is the number of rows seen so far. A call that begins a pass with
        the same rows as the very first call is taken for a repetition: N then stays as it is, so that repeated passes
        approach the optimum that `fit` finds. Features need no scaling: steps follow their running moments. After a
        `fit` it starts again.

        Parameters
        ----------
        X, y
            As for `fit`.
        classes : array-like, optional
            All classes; needed at the first call unless the estimator's `classes` or these rows hold them all.
        sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        solve_settings(self)
        state: Sequential | None = getattr(self, "_sequential", None)
        declared = classes_of_call(None if state is None else self.classes_, classes, self.classes)
        features, target, named = read_in_memory_for_fit(
            X, y, sample_weight, declared, self.class_weight, who="partial_fit, which goes over rows once,"
        )
        features.require_finite()
        if state is None:
            penalty = RidgePenalty(self.alpha, self.penalize_intercept)
            precision = penalty.precisions(len(target.classes), features.n_features, bool(self.fit_intercept))
            state = self._sequential = Sequential(np.zeros(precision.shape), precision)
            remember_features(self, features, named)
            self.classes_ = target.classes
            self.__dict__.pop("solution_", None)
            self.__dict__.pop("_rows", None)
        else:
            check_features(self, features)
        state.visit(features.matrix, target)
        self._set_coefficients(state.theta)
        self.n_iter_ = state.n_visited
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits w_k . x + b_k, (n, K); for two classes the log-odds of the second, (n,)."""
        F = self._logits(X)
        return (F[1] - F[0]) if len(F) == 2 else F.T

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K): exact, however small."""
        return log_softmax_in_place(self._logits(X)).T

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, (n, K)."""
        features = read_for_prediction(self, X, self.device)
        P = self._map_rows(features, probabilities)
        if not np.isfinite(P).all():
            P = self._logits_of(features)
            softmax_in_place(P)
        return P.T

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        best = self._logits(X).argmax(axis=0)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        return regression_left_out(self, rows)

    def _logits(self, X: Any) -> np.ndarray:
        """w_k . x + b_k, (K, n)."""
        return self._logits_of(read_for_prediction(self, X, self.device))

    def _logits_of(self, features: Features) -> np.ndarray:
        F = self._map_rows(features, logits)
        if not np.isfinite(F).all():
            features.require_finite()
            np.nan_to_num(F, copy=False)  # finite features, but logits beyond the range of numbers
        return F

    def _map_rows(self, features: Features, kernel: Callable[..., np.ndarray]) -> np.ndarray:
        theta = np.column_stack([self.coef_, self.intercept_])
        blocks = features.blocks(None, len(self.classes_), n_threads=usable_threads(self.n_jobs))
        with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
            return blocks.map_rows(kernel, theta)

    def _start(self, features: Features, target: Target) -> np.ndarray | None:
        """The last fit's parameters (K, D'), if they are wanted and fit."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        same_shape = self.coef_.shape == (len(target.classes), features.n_features)
        if not same_shape or not np.array_equal(self.classes_, target.classes):
            return None
        return np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_

    def _set_coefficients(self, theta: np.ndarray) -> None:
        K, D = len(self.classes_), self.n_features_in_
        self.coef_ = theta[:, :D].copy()
        self.intercept_ = theta[:, D].copy() if theta.shape[1] > D else np.zeros(K)

    def _warn(self, features: Features) -> None:
        solution = self.solution_
        if solution.status is Status.CONVERGED:
            return
        if solution.status is Status.SEPARATED:
            message = solution.separation.sentence(self.classes_, features.names)
            warnings.warn(message, SeparationWarning, stacklevel=CALLER_OF_FIT)
            return
        warnings.warn(
            f"Not converged ({solution.status.value}): after {solution.n_iter} iterations J is about "
            f"{solution.gap:.2g} above its minimum, {solution.gap / max(abs(solution.objective), 1e-300):.2g} of its "
            f"value, and tol is {self.tol:g}. Raise max_iter, or use solver='auto'.",
            ConvergenceWarning,
            stacklevel=CALLER_OF_FIT,
        )


def _as_returned(mode: Mode, coordinates: Coordinates) -> Solution:
    """The record of the fit, with what the rounding of the coefficients in the data's units may cost."""
    bound = mode.solution.gap_bound
    if bound is None or coordinates.is_identity:
        return mode.solution
    with np.errstate(over="ignore"):  # an infinite bound is a bound
        cost = mode.objective.certificate.cost_of(mode.theta, coordinates.outward_rounding(mode.theta))
    return replace(mode.solution, gap_bound=bound + cost)
