"""Bayesian softmax regression: a posterior, what it predicts and how sure it is, as a scikit-learn classifier."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from posteriori.callbacks import CALLER_OF_FIT, WatchedFit, watched
from posteriori.decision.inference_data import Draws, ObservedRows, inference_data, require_arviz
from posteriori.decision.replication import PosteriorCheck, check_labels, labels_rng
from posteriori.decision.uncertainty import Uncertainty
from posteriori.exceptions import WeightWarning
from posteriori.left_out.leaving import ByFormula, LeftOutMixin
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.parameters import numbers_by_class, require_choice, require_count, require_level, seed_from
from posteriori.rows.blocks import Blocks
from posteriori.rows.engines import (
    label_vector,
    read_for_fit,
    read_for_prediction,
    read_in_memory,
    read_labelled,
    read_labels,
    require_in_memory,
)
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.products import as_dense
from posteriori.rows.schema import feature_names, remember_features
from posteriori.rows.target import Target
from posteriori.softmax import predictive, summary_tables
from posteriori.softmax.bayesian_settings import BayesianSettings, bayesian_settings
from posteriori.softmax.blocks import BlocksPrior
from posteriori.softmax.fit import BayesianFit, bayesian_fit, warn_about
from posteriori.softmax.fitted import FitStatistics, FittedSoftmax
from posteriori.softmax.label_noise import fit_with_label_noise, require_single_labels
from posteriori.softmax.left_out import bayesian_left_out
from posteriori.softmax.likelihood import LinearLikelihood, linear_likelihood
from posteriori.softmax.priors import GaussianPrior
from posteriori.softmax.progress import progress
from posteriori.solvers.solution import Status
from posteriori.solvers.solver import Solver
from posteriori.threads import one_blas_thread, usable_threads

__all__ = ["BayesianSoftmaxRegression"]


_LARGEST, _FAR = 1e308, 1e100
"""Values are clipped to the first; rows that overflow are moved to within the second of the origin."""
_MANY_TIMES = 5.0
"""The mean weight from which on weights that are not whole are hardly meant as numbers of rows."""


class BayesianSoftmaxRegression(
    LeftOutMixin, summary_tables.CoefficientTables, WatchedFit, ClassifierMixin, BaseEstimator
):
    r"""Softmax regression with a Gaussian prior and a Gaussian posterior.

    .. math:: p(y = k \mid x, Y) = \int \mathrm{softmax}(W x + b)_k\; q(W, b)\, d(W, b)

    The prior's precision is chosen by the evidence unless given, and judged by rows left out; columns need no scaling.
    Where Laplace's Gaussian is too wide (nearly separable classes) a variational one takes its place, and where the
    mode alone predicts rows left out better, it makes the probabilities.

    Parameters
    ----------
    prior : {"evidence", "ard", "blocks", "flat", "jeffreys"}, number, GaussianPrior or another, default "evidence"
        "evidence" and "ard" choose one precision, or one per feature, for standardised columns. "blocks" chooses one
        per block of columns: the levels of a category share one, and so do all numbers, as the names of encoded columns
        tell (`TableEncoder`); `GaussianPrior(blocks=...)` names other blocks. "flat" is maximum likelihood with its
        standard errors; "jeffreys" is Firth's correction; a number is the precision of every weight in the units of the
        data; any object with the members of `posteriori.softmax.priors.Prior` will do.
    approximation : {"auto", "laplace", "variational", "importance"}, default "auto"
        The Gaussian at the mode, the Gaussian closest to the posterior, or weighted draws around it. "auto" compares
        the first two, and the mode alone, by left-out rows.
    posterior : {"auto", "full", "classes", "kronecker", "diagonal"}, default "auto"
        Which covariances are kept: all, those within a class, those that are products of one between classes and one
        between features, or none. "auto" keeps all while that takes seconds.
    predictive : {"auto", "quasi", "sample", "probit", "plugin"}, default "auto"
        How probabilities are averaged over the posterior: by fixed nodes in the space of a row's logits, over draws of
        the weights, by the pairwise probit formula, or not at all. "auto" is "quasi", but "plugin" where the mode alone
        predicts left-out rows better.
    n_nodes : int, default 256
        Nodes of "quasi".
    n_draws : int, default 1000
        Draws of "sample", and of importance weights.
    label_noise : None, "estimate" or number, default None
        Rate eps at which a label is replaced by one at random: labels then have probability (1 - eps) p + eps / K.
    fit_intercept : bool, default True
        Whether logits have an intercept.
    solver, tol, max_iter, classes, class_weight, n_jobs
        As in `SoftmaxRegression`.
    random_state : int, RandomState or None
        For draws; None draws the same ones each time, so that predictions repeat.
    device, verbose
        As in `SoftmaxRegression`.

    Attributes
    ----------
    coef_ : ndarray (K, D)
        The mode of the posterior, in the units of the data.
    intercept_ : ndarray (K,)
        That of the intercepts.
    classes_ : ndarray (K,), sorted
    prior_ : GaussianPrior or None
        In the units of the data; None for "flat" and "jeffreys".
    block_precisions_ : dict of label to float
        The precision that was chosen for each block of columns, per unit of spread, or per step of a level from 0 to 1;
        only where there are blocks.
    log_evidence_ : float or None
        None where the prior is improper. With soft labels or weights it is a pseudo-evidence.
    statistics_ : FitStatistics
        Log-likelihood at the mode and of the class frequencies, pseudo R^2; with "flat" also AIC and BIC.
    solution_ : BayesianSolution
        The solve for the mode, with the choices of structure, approximation and prior and their reasons.
    label_noise_ : float
    fitted_ : FittedSoftmax
        The posterior in the coordinates of the fit, for those who calculate with it.
    n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianSoftmaxRegression().fit(X, y)
    >>> model.predict_proba(X[70:71]).round(2)
    array([[0.  , 0.43, 0.57]])
    >>> lower, upper = model.predict_interval(X[70:71])
    >>> lower.round(1), upper.round(1)
    (array([[0. , 0.1, 0.2]]), array([[0. , 0.8, 0.9]]))
    """

    def __init__(
        self,
        prior: Any = "evidence",
        *,
        approximation: str = "auto",
        posterior: str = "auto",
        predictive: str = "auto",
        n_nodes: int = 256,
        n_draws: int = 1000,
        label_noise: Any = None,
        fit_intercept: bool = True,
        solver: str | Solver = "auto",
        tol: float = 1e-8,
        max_iter: int = 1000,
        classes: Any = None,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.prior = prior
        self.approximation = approximation
        self.posterior = posterior
        self.predictive = predictive
        self.n_nodes = n_nodes
        self.n_draws = n_draws
        self.label_noise = label_noise
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.classes = classes
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @watched
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianSoftmaxRegression:
        """Fit the posterior.

        Parameters
        ----------
        X : table (pandas, polars, Arrow), array or scipy.sparse matrix, (n, D)
        y : array-like (n,) of labels, (n, K) of probabilities or counts, or the name of a column of X
        sample_weight : array-like (n,), number, or the name of a column of X, optional
            How many rows each row stands for: weight 2 is the same as the row twice, and makes the posterior narrower.
            Weights of a survey, which say how many people a row stands for, are no such numbers: divide them by their
            mean first.

        Returns
        -------
        self

        Warns
        -----
        WeightWarning
            If weights sum to more than five times the number of rows, and are not whole numbers as counts are.
        """
        settings = bayesian_settings(self)
        noisy = self.label_noise is not None and self.label_noise != 0
        if noisy:
            require_in_memory(X, "label_noise, which gives each row a weight of its own,")
        features, target, named = read_for_fit(X, y, sample_weight, self.classes, self.class_weight, device=self.device)
        if noisy:
            require_single_labels(target)
        if target.weights is not None and not target.weights.any():
            raise ValueError("All sample weights are zero: at least one must be positive.")
        if sample_weight is not None and target.probs is None and target.weights is not None:
            _warn_of_weights(target.weights)
        settings = settings.for_columns(features.names, (len(target.classes), features.n_features))
        rule, threads = settings.prior.coordinate_rule(settings.fit_intercept), usable_threads(self.n_jobs)

        def likelihood_of(target: Target) -> LinearLikelihood:
            return linear_likelihood(features, target, settings.fit_intercept, rule, threads)

        labels, weights = partial(read_labels, X, y), partial(read_labels, X, sample_weight)
        with one_blas_thread(), self._iterations(X, labels, weights) as tell:
            likelihood, rate = likelihood_of(target), 0.0
            with progress(self.verbose, likelihood.blocks, None if tell is None else lambda now: tell(None)) as report:
                settings = replace(settings, solve=replace(settings.solve, report=report))
                if noisy:
                    likelihood, fit, rate = fit_with_label_noise(self.label_noise, target, likelihood_of, settings)
                else:
                    fit = bayesian_fit(likelihood, settings)
        remember_features(self, features, named)
        self.classes_, self._rows = target.classes, RowsReference(X, y, sample_weight)
        solution = replace(fit.solution, seconds=perf_counter() - settings.solve.began)
        self._store(likelihood, replace(fit, solution=solution), rate, settings)
        if self.solution_.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        warn_about(self.solution_, int(self.n_draws), self.classes_, features.names)
        return self

    def _store(self, likelihood: LinearLikelihood, fit: BayesianFit, rate: float, settings: BayesianSettings) -> None:
        coordinates = likelihood.coordinates
        D = self.n_features_in_
        theta = coordinates.outward(fit.theta)
        self.solution_, self.n_iter_ = fit.solution, fit.solution.n_iter
        self.coef_ = theta[:, :D].copy()
        self.intercept_ = theta[:, D].copy() if theta.shape[1] > D else np.zeros(len(theta))
        self.log_evidence_, self.label_noise_ = fit.log_evidence, rate
        self.prior_ = None if fit.prior is None else fit.prior.in_data_units(coordinates, D)
        if fit.prior is not None and isinstance(settings.prior, BlocksPrior):
            self.block_precisions_ = settings.prior.block_precisions(fit.prior.precision, coordinates)
        elif hasattr(self, "block_precisions_"):
            del self.block_precisions_
        sizes = likelihood.observed.class_sizes
        n_parameters = None if fit.prior is not None else (len(theta) - 1) * theta.shape[1]
        self.statistics_ = FitStatistics(fit.log_likelihood, sizes.copy(), n_parameters, theta.shape[1] > D)
        self.fitted_ = FittedSoftmax(
            coordinates,
            fit.theta,
            fit.posterior,
            None if fit.prior is None else fit.prior.precision,
            sizes / sizes.sum(),
            np.zeros(len(sizes)),
            settings.seed,
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities averaged over the posterior, or by the mode: see `predictive`, (n, K)."""
        P = self._predictive(X, log=False)
        if self.label_noise_ > 0:
            P = (1.0 - self.label_noise_) * P + self.label_noise_ / len(P)
        return P.T

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K): exact, however small."""
        log_p = self._predictive(X, log=True)
        if self.label_noise_ > 0:
            log_p = np.logaddexp(log_p + np.log1p(-self.label_noise_), np.log(self.label_noise_ / len(log_p)))
        return log_p.T

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-probabilities, (n, K); for two classes the log-odds of the second, (n,)."""
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        return bayesian_left_out(self, rows)

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, K) and joint covariance (n, K, K) of the logits of each row."""
        K = len(check_fitted(self).classes_)
        fitted = self.fitted_
        mean = self._map(X, K, predictive.latent_means, fitted.posterior, fitted.offset, bring_closer=False)
        covariance = self._map(X, K * K, predictive.latent_covariances, fitted.posterior, bring_closer=False)
        lost = ~(np.isfinite(mean).all(axis=0) & np.isfinite(covariance).all(axis=0))
        if lost.any():
            raise ValueError(
                f"Row {int(lost.argmax())} of X (counted from 0) is so far from the rows of the fit that the "
                "covariance of its logits is not a finite number: leave it out. predict_proba has its probabilities."
            )
        return mean.T, covariance.T.reshape(-1, K, K)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed credible interval of each class probability: lower and upper ends, (n, K) each."""
        require_level(level)
        K = len(check_fitted(self).classes_)
        tail = 0.5 * (1.0 - level)
        n_nodes = predictive.interval_nodes(self.n_nodes, level)
        fitted, tails = self.fitted_, (tail, 1.0 - tail)
        ends = self._map(X, 2 * K, predictive.quantiles, fitted.posterior, fitted.offset, n_nodes, tails)
        ends = (1.0 - self.label_noise_) * ends + self.label_noise_ / K
        return ends[:K].T, ends[K:].T

    def sample_proba(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws from the posterior, the same draw for all rows, (n_draws, n, K)."""
        check_fitted(self)
        require_count("n_draws", n_draws, 1)
        return self._under(X, self.fitted_.draws(n_draws, seed_from(random_state)))

    def prior_sample(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws from the prior as it was used, the same draw for all rows, (n_draws, n, K).

        They say what the prior held likely before a label was seen. It needs a proper prior; one that was searched is
        the one that was found.
        """
        fitted = check_fitted(self).fitted_
        require_count("n_draws", n_draws, 1)
        if fitted.precision is None or self.prior_ is None:
            raise ValueError(
                f"prior_sample needs a prior to draw from, and prior={self.prior!r} is improper: fit with "
                "prior='evidence', a number or a GaussianPrior."
            )
        thetas = fitted.precision.draws(n_draws, np.random.default_rng(seed_from(random_state)))
        if np.ndim(self.prior_.mean):
            thetas += fitted.coordinates.inward(self.prior_.mean)
        return self._under(X, thetas)

    def posterior_check(
        self, X: Any, y: Any, n_draws: int = 500, *, sample_weight: Any = None, random_state: Any = None
    ) -> PosteriorCheck:
        """Labels replicated under draws from the posterior beside those observed: see `posteriori.posterior_check`."""
        X, codes, weights = read_labelled(check_fitted(self), X, y, sample_weight)
        P = self.sample_proba(X, n_draws, random_state)
        return check_labels(P, codes, self.classes_, weights, labels_rng(random_state))

    def to_arviz(
        self, X: Any, y: Any, n_draws: int = 1000, *, sample_weight: Any = None, random_state: Any = None
    ) -> Any:
        """Draws from the posterior for ArviZ: a DataTree with ArviZ 1, an InferenceData before.

        Groups are posterior ("coef" and "intercept", in the units of the data), log_likelihood of the labels y of the
        rows X, posterior_predictive (labels replicated), observed_data and constant_data. Labels are places in
        `classes_`. Weights multiply log-likelihoods. It holds n_draws x n x K numbers.
        """
        require_arviz()
        X, codes, weights = read_labelled(check_fitted(self), X, y, sample_weight)
        require_count("n_draws", n_draws, 1)
        matrix = as_dense(read_in_memory(self, X, who="to_arviz").matrix)
        thetas = self.fitted_.posterior.draws(n_draws, np.random.default_rng(seed_from(random_state)))
        log_p = self._under(X, thetas - thetas.mean(axis=1, keepdims=True), log=True)
        coef, intercept = self.fitted_.coefficients(thetas, self.n_features_in_)
        parameters: dict[str, Any] = {"coef": (("class", "feature"), coef)}
        if intercept is not None:
            parameters["intercept"] = (("class",), intercept)
        rows = ObservedRows(matrix, feature_names(self), codes, self.classes_, weights)
        return inference_data(Draws(parameters, log_p), rows, labels_rng(random_state))

    def _under(self, X: Any, thetas: np.ndarray, log: bool = False) -> np.ndarray:
        """Probabilities (S, n, K) of labels, or their logarithms, under parameters (S, K, D') in the fit's units."""
        S, K = thetas.shape[:2]
        values = self._map(X, S * K, predictive.drawn, thetas, self.fitted_.offset, log)
        values = values.reshape(S, K, -1).transpose(0, 2, 1)
        eps = self.label_noise_
        if log and eps > 0:
            return np.logaddexp(values + np.log1p(-eps), np.log(eps / K))
        return values if log else (1.0 - eps) * values + eps / K

    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the posterior's average, the part that no data would remove, and what more data would, in nats."""
        check_fitted(self)
        total, aleatoric = self._map(
            X, 2, predictive.entropies, self.fitted_.posterior, self.fitted_.offset, self.n_nodes, self.label_noise_
        )
        return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0.0))

    def with_class_prior(self, class_prior: Any) -> BayesianSoftmaxRegression:
        """A copy of the model for a population with other class frequencies: probabilities times new / old, normalised.

        Parameters
        ----------
        class_prior : array-like (K,), in the order of `classes_`, or a dict from class to frequency
        """
        check_fitted(self)
        new, sizes = numbers_by_class("class_prior", class_prior, self.classes_), self.fitted_.class_sizes
        if not (np.isfinite(new).all() and (new > 0).all()):
            raise ValueError(f"class_prior must be {len(self.classes_)} positive numbers, one for each class.")
        if not (sizes > 0).all():
            empty = self.classes_[sizes == 0].tolist()
            raise ValueError(f"Classes {empty} had no rows in the fit: their odds cannot be re-weighted.")
        other = copy.copy(self)
        other.fitted_ = self.fitted_.for_class_sizes(new / new.sum())
        other.intercept_ = self.intercept_ + (other.fitted_.offset - self.fitted_.offset)
        return other

    @property
    def chosen_predictive(self) -> str:
        """How probabilities are predicted: `predictive`, or what "auto" stands for after this fit."""
        require_choice("predictive", self.predictive, ("auto", *predictive.PREDICTIVES))
        return check_fitted(self).solution_.predictive if self.predictive == "auto" else self.predictive

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance in the units of the data, (K D', K D'): class by class, the intercept last."""
        check_fitted(self)
        K, width = self.fitted_.mode.shape
        if K * width > 12_000:
            raise ValueError(
                f"The covariance of {K * width} parameters takes {8 * (K * width) ** 2 / 2**30:.1f} GiB: use "
                "predict_latent or summary, which do not need it."
            )
        return self.fitted_.covariance()

    def as_prior(self) -> GaussianPrior:
        """Today's posterior as tomorrow's prior: its mean and full precision, in the units of the data.

        Under a prior that leaves what all classes share undetermined ("flat", "jeffreys") that gets the precision of
        an average contrast: nothing that can be observed depends on it. A class that does not occur tomorrow is to be
        declared, `classes=model.classes_`. Where columns have names, a fit to columns in another order is refused.
        """
        if check_fitted(self).solution_.status is Status.SEPARATED:
            raise ValueError(
                "as_prior() needs a posterior, and there is none: classes are separated, so that the likelihood has no "
                "maximum. Fit with prior='jeffreys', 'evidence' or a number."
            )
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                precision = self.fitted_.precision_matrix()
        except np.linalg.LinAlgError:
            raise ValueError(
                "as_prior() needs a covariance of full rank: with approximation='importance' use more draws than there "
                f"are parameters ({self.fitted_.mode.size}), or another approximation."
            ) from None
        if not np.isfinite(precision).all():
            raise ValueError(
                "as_prior() needs a precision in the units of the data, and for some column that is beyond the range "
                "of numbers: divide the column by its size before the fit."
            )
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(names.tolist())
        return GaussianPrior(mean=self.fitted_.mean(self.n_features_in_), precision=precision, columns=columns)

    def __str__(self) -> str:
        return summary_tables.as_text(self) if hasattr(self, "solution_") else repr(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        if not hasattr(self, "solution_"):
            return super()._repr_mimebundle_(**kwargs)
        return {"text/plain": str(self), "text/html": summary_tables.as_html(self)}

    def _predictive(self, X: Any, log: bool) -> np.ndarray:
        """Probabilities (K, n), or their logarithms, without label noise."""
        check_fitted(self)
        prepare = predictive.PREDICTIVES[self.chosen_predictive]
        kernel, *params = prepare(self.fitted_, int(self.n_nodes), int(self.n_draws))
        return self._map(X, len(self.classes_), kernel, *params, log)

    def _map(self, X: Any, n_out: int, kernel: Any, *params: Any, bring_closer: bool = True) -> np.ndarray:
        """The kernel's values for all rows of X, in the fit's coordinates, (n_out, n).

        For rows so far away that squares overflow, probabilities depend on the direction alone: with `bring_closer`,
        such rows are replaced by rows in the same direction that are closer to the origin.
        """
        blocks = self.blocks(X, n_out)
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            values = blocks.map_rows(kernel, *params, heavy=True)
            lost = np.flatnonzero(np.isnan(values).any(axis=0)) if bring_closer else np.array([], dtype=int)
            if lost.size:
                rows = np.clip(as_dense(blocks.take(lost)[0]), -_LARGEST, _LARGEST)
                rows *= _FAR / np.abs(rows).max(axis=1, keepdims=True)
                values[:, lost] = MemoryBlocks(rows, None, None, n_out).map_rows(kernel, *params)
            return values

    def blocks(self, X: Any, n_out: int) -> Blocks:
        """New rows in the coordinates of the fit, for kernels with n_out values a row."""
        features = read_for_prediction(self, X, self.device)
        shift, scale = self.fitted_.coordinates.shift, self.fitted_.coordinates.scale
        threads = usable_threads(self.n_jobs)
        return features.blocks(None, n_out, shift=shift, scale=scale, n_threads=threads, finite=True)


def _warn_of_weights(weights: np.ndarray) -> None:
    """Warn of weights that sum to far more than the rows, and are no counts."""
    total, n = float(weights.sum()), int(np.count_nonzero(weights))
    if total > _MANY_TIMES * n and (weights != np.floor(weights)).any():
        warnings.warn(
            f"sample_weight counts rows, and sums to {total:,.6g} for {n:,} rows: the posterior is as narrow as if "
            "so many rows had been observed. Divide weights of a survey by their mean.",
            WeightWarning,
            stacklevel=CALLER_OF_FIT,
        )


def check_fitted(model: BayesianSoftmaxRegression) -> BayesianSoftmaxRegression:
    """The model itself, if it has been fitted; otherwise NotFittedError."""
    check_is_fitted(model, "solution_")
    return model
