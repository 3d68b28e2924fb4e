"""Gaussian generative classifiers: naive Bayes, linear and quadratic discriminant analysis, made Bayesian."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from posteriori.decision.inference_data import Draws, ObservedRows, inference_data, require_arviz
from posteriori.decision.replication import PosteriorCheck, check_labels, labels_rng
from posteriori.decision.uncertainty import Uncertainty
from posteriori.gaussian.choice import KeptRows
from posteriori.gaussian.densities import draw, log_joint, within_reach
from posteriori.gaussian.fit import MOST_SCATTER, GaussianFit, SeenRows
from posteriori.gaussian.leaving import gaussian_left_out
from posteriori.gaussian.niw import NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.roots import root_statistics
from posteriori.gaussian.row_posterior import (
    ParameterDraws,
    RowPosterior,
    drawn_entropies,
    drawn_log_probabilities,
    drawn_quantiles,
    parameter_draws,
)
from posteriori.gaussian.settings import gaussian_settings, structures_asked_for, validate_gaussian
from posteriori.gaussian.statistics import SCATTERS, TOO_LARGE, ClassMoments, ClassStatistics, Kind, class_statistics
from posteriori.gaussian.structures import STRUCTURES
from posteriori.left_out.leaving import ByFormula, LeftOutMixin
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.parameters import require_count, require_level, seed_from
from posteriori.rows.blocks import Blocks, random_rows
from posteriori.rows.engines import (
    label_vector,
    read_for_fit,
    read_for_prediction,
    read_in_memory,
    read_labelled,
    read_labels,
)
from posteriori.rows.features import Features
from posteriori.rows.products import as_dense, logits
from posteriori.rows.schema import check_features, copy_features, feature_names, remember_features
from posteriori.rows.target import Target, classes_of_call
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.threads import one_blas_thread, usable_threads

__all__ = ["GaussianClassifier"]

_MOST_KEPT = 4000
"""Rows kept to judge priors by."""
_DRAWS = 1024
"""Draws of the class probabilities of a row."""
_FAR = 1e4
"""Logits at the origin beyond which rows are shifted before they are multiplied."""


def _has_posterior(model: GaussianClassifier) -> bool:
    """Whether the parameters are integrated out; otherwise an error says what has a posterior."""
    if model.estimate != "bayes":
        raise AttributeError(
            "Intervals, uncertainty and draws need the posterior of the parameters, and "
            f"estimate={model.estimate!r} keeps one estimate of them alone: use estimate='bayes'."
        )
    return True


class GaussianClassifier(LeftOutMixin, ClassifierMixin, BaseEstimator):
    r"""Gaussian classes: p(k | x) ~ pi_k N(x; mu_k, Sigma_k), by maximum likelihood, MAP, or integrated out.

    One class for what is known as Gaussian naive Bayes (`covariance="diagonal"`), linear ("tied") and quadratic
    ("full") discriminant analysis. By default all parameters are integrated out: classes have Student t densities, and
    probabilities are as uncertain as few rows make them. One pass over the data gives all statistics; a data set on
    disk is read once more for a sample of its rows, where a structure or a prior is judged by it.

    Parameters
    ----------
    covariance : {"auto", "full", "tied", "diagonal", "tied_diagonal", "spherical"}, default "auto"
        A matrix for each class, one for all; variances for each class, one set for all; one variance for each class.
        "auto" takes the simplest that predicts left-out rows as well as the best, within one standard error.
    estimate : {"bayes", "map", "mle"}, default "bayes"
    prior : {"predictive", "evidence"}, NormalInverseWishartPrior or RidgePrior, default "predictive"
        "predictive" chooses strength and scale by the conditional log-probability of left-out rows, "evidence" by the
        joint evidence of X and y. `RidgePrior` is for "map". Not used by "mle".
    class_prior : None, (K,) array or dict, default None
        Class probabilities, in the order of `classes_` or by class; None estimates them.
    classes : array-like, optional
        All classes there are: those without rows keep their place in `classes_`. For a target of shape (n, K) also the
        order of its columns.
    random_state : int, RandomState or None
        For `sample`, and for which rows are left out where there are very many.
    n_jobs : int, optional
        Threads; None means the usable cores, capped by OMP_NUM_THREADS.
    device : None, "cpu" or "gpu"
        Where statistics are taken, as in `SoftmaxRegression`; predictions are made on the host.

    Attributes
    ----------
    means_ : ndarray (K, D)
    covariances_ : ndarray (K, D, D), (D, D) tied, (K, D) diagonal, (D,) tied diagonal, (K,) spherical
        With "bayes" the mode, as with "map"; predictions then rest on the whole posterior.
    class_prior_ : ndarray (K,)
    class_count_ : ndarray (K,)
        Weight of the rows of each class.
    prior_ : NormalInverseWishartPrior, RidgePrior or None
        As used, in the data's units: passed back, it gives the same fit.
    log_evidence_ : float
        log p(X, y) under `prior_`. With "predictive" the pooled part of that prior comes from the same rows, so that
        this is not a marginal likelihood to compare with others; with "evidence" it is. For "mle" and `RidgePrior`,
        which have no proper prior, it is Schwarz's approximation (BIC).
    solution_ : GaussianSolution
        Structure, scores of the structures, hyperparameters, ridges.
    fitted_ : GaussianFit
        All of the above and the densities of the classes, as one object.
    seen_ : SeenRows
        What is kept of the rows: their statistics, and a sample of at most 4,000 of them.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Missing values (NaN) are left out of the product of diagonal densities; other structures refuse them.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = GaussianClassifier("tied").fit(X, y)
    >>> model.predict_proba(X[:1]).round(3)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        covariance: str = "auto",
        *,
        estimate: str = "bayes",
        prior: Any = "predictive",
        class_prior: Any = None,
        classes: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.covariance = covariance
        self.estimate = estimate
        self.prior = prior
        self.class_prior = class_prior
        self.classes = classes
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._missing_allowed
        return tags

    @property
    def fitted_(self) -> GaussianFit:
        """The fit to all rows seen by `fit` and `partial_fit`, as one object."""
        seen: SeenRows | None = self.__dict__.get("seen_")
        if seen is None:
            raise AttributeError(f"This {type(self).__name__} is not fitted yet.")
        return seen.fit

    means_ = property(lambda self: self.fitted_.means)
    covariances_ = property(lambda self: self.fitted_.covariances_of_features)
    class_prior_ = property(lambda self: self.fitted_.class_prior)
    prior_ = property(lambda self: self.fitted_.prior_of_features)
    log_evidence_ = property(lambda self: self.fitted_.log_evidence)
    solution_ = property(lambda self: self.fitted_.solution)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GaussianClassifier:
        """Fit the model: statistics of all rows, then the structure and the prior, where they are left open.

        Parameters
        ----------
        X : table (pandas, polars, Arrow), array or scipy.sparse matrix, (n, D)
        y : array-like (n,) of labels, (n, K) of probabilities or counts, or the name of a column of X
        sample_weight : array-like (n,), number, or the name of a column of X, optional

        Returns
        -------
        self
        """
        began = perf_counter()
        validate_gaussian(self)
        features, target, named = read_for_fit(X, y, sample_weight, self.classes, None, device=self.device)
        settings = gaussian_settings(self, target.classes, features.n_features)
        statistics, kept, n_passes = self._read(features, target)
        seen = SeenRows(statistics, kept, target.classes, settings, n_passes, perf_counter() - began)
        _ = seen.fit  # before an attribute is set: a fit that fails leaves the estimator as it was
        remember_features(self, features, named)
        self.seen_, self._rows = seen, RowsReference(X, y, sample_weight)
        self.classes_, self.class_count_ = target.classes, statistics.counts
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> GaussianClassifier:
        """Add rows to those seen so far, by `fit` or `partial_fit`: the result is that of all rows at once.

        Statistics merge exactly, in any order, and that is all a call does. The prior and the structure are chosen
        again when the fit is next read, by a prediction or an attribute such as `means_`. For that a random sample of
        at most 4,000 rows is kept.

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
        validate_gaussian(self)
        seen: SeenRows | None = getattr(self, "seen_", None)
        declared = classes_of_call(None if seen is None else self.classes_, classes, self.classes)
        features, target, named = read_for_fit(X, y, sample_weight, declared, None, device=self.device)
        if seen is not None:
            check_features(self, features)
        settings = gaussian_settings(self, target.classes, features.n_features)
        known = None if seen is None else seen.statistics
        statistics, kept, _ = self._read(features, target, known)
        if seen is not None:
            statistics, kept = self._merged(seen, statistics, kept)
        else:
            remember_features(self, features, named)
        self.seen_, self._rows = SeenRows(statistics, kept, target.classes, settings), RowsReference()
        self.classes_, self.class_count_ = target.classes, statistics.counts
        return self

    def predict_joint_log_proba(self, X: Any) -> np.ndarray:
        """Joint log-probabilities log p(x, k), (n, K)."""
        return self._joint_of(read_for_prediction(self, X, self.device)).T

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K): exact, however small."""
        return self._finished(X, log_softmax_in_place).T

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities p(k | x), (n, K), by Bayes' rule."""
        return self._finished(X, softmax_in_place).T

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        best = self._logits(X).argmax(axis=0)
        return self.classes_[best]

    def decision_function(self, X: Any) -> np.ndarray:
        """Log-probabilities, (n, K); for two classes the log-odds of the second, (n,)."""
        F = self._logits(X)
        if len(F) > 2:
            return log_softmax_in_place(F).T
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(F[1] - F[0], nan=0.0, posinf=np.inf, neginf=-np.inf)

    def log_odds(self, X: Any, i: Any, j: Any) -> np.ndarray:
        """Log-odds of two classes, log p(i | x) - log p(j | x), (n,): positive where i is the better guess."""
        F = self._logits(X)
        a, b = self._code(i, "i"), self._code(j, "j")
        with np.errstate(invalid="ignore"):
            odds = F[a] - F[b]
        return np.nan_to_num(odds, nan=0.0, posinf=np.inf, neginf=-np.inf)  # neither class is possible

    def score_samples(self, X: Any) -> np.ndarray:
        """Log densities log p(x), (n,): how much a row is like those of the fit; the lowest are outliers."""
        F = self._joint_of(read_for_prediction(self, X, self.device))
        return np.logaddexp.reduce(F, axis=0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y and sample_weight may be names of columns of X."""
        return super().score(X, label_vector(read_labels(X, y)), sample_weight=read_labels(X, sample_weight))

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        return gaussian_left_out(self, rows)

    @available_if(_has_posterior)
    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed credible interval of each class probability: lower and upper ends, (n, K) each.

        p(k | x, theta) is drawn with theta from its posterior after the rows of the fit and x itself, as the mean of
        these draws is `predict_proba` exactly. It needs estimate="bayes".
        """
        require_level(level)
        check_is_fitted(self)
        tail = 0.5 * (1.0 - level)
        n_draws = int(np.clip(20.0 / tail, _DRAWS, 16 * _DRAWS))
        K = len(self.classes_)
        ends = self._map_draws(X, 2 * K, drawn_quantiles, n_draws, (tail, 1.0 - tail))
        return ends[:K].T, ends[K:].T

    @available_if(_has_posterior)
    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the prediction, the part that no data would remove, and the part that more data would, in nats.

        The draws are those of `predict_interval`. It needs estimate="bayes".
        """
        check_is_fitted(self)
        total, aleatoric = self._map_draws(X, 2, drawn_entropies, _DRAWS)
        return Uncertainty(total, aleatoric, total - aleatoric)

    @available_if(_has_posterior)
    def sample_proba(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws of all parameters, the same draw for all rows, (n_draws, n, K).

        It needs estimate="bayes".
        """
        check_is_fitted(self)
        return np.exp(self._under(X, self._parameter_draws(n_draws, random_state)))

    def prior_sample(self, X: Any, n_draws: int = 100, random_state: Any = None) -> np.ndarray:
        """Class probabilities under draws from the prior as it was used, the same draw for all rows, (n_draws, n, K).

        It needs a prior with a finite integral, which `prior_` is unless it is a `RidgePrior` or None.
        """
        check_is_fitted(self)
        if not isinstance(self.prior_, NormalInverseWishartPrior):
            given = "estimate='mle'" if self.prior_ is None else f"prior={self.prior!r}"
            raise ValueError(
                f"prior_sample needs a proper prior to draw from, and with {given} there is none for the covariances: "
                "use estimate='bayes' or 'map' with prior='predictive', 'evidence' or a NormalInverseWishartPrior."
            )
        prior = self.seen_.row_prior(class_prior_given=self.class_prior is not None)
        return np.exp(self._under(X, _drawn(prior, n_draws, random_state)))

    @available_if(_has_posterior)
    def posterior_check(
        self, X: Any, y: Any, n_draws: int = 500, *, sample_weight: Any = None, random_state: Any = None
    ) -> PosteriorCheck:
        """Labels replicated under draws from the posterior beside those observed: see `posteriori.posterior_check`.

        It needs estimate="bayes".
        """
        X, codes, weights = read_labelled(self, X, y, sample_weight)
        P = self.sample_proba(X, n_draws, random_state)
        return check_labels(P, codes, self.classes_, weights, labels_rng(random_state))

    @available_if(_has_posterior)
    def to_arviz(
        self, X: Any, y: Any, n_draws: int = 1000, *, sample_weight: Any = None, random_state: Any = None
    ) -> Any:
        """Draws from the posterior for ArviZ: a DataTree with ArviZ 1, an InferenceData before.

        Groups are posterior ("mean", "covariance" and "class_probability", in the units of the data), log_likelihood
        log p(y | x) of the labels y of the rows X, posterior_predictive (labels replicated), observed_data and
        constant_data. Labels are places in `classes_`. Weights multiply log-likelihoods. It needs estimate="bayes".
        """
        require_arviz()
        X, codes, weights = read_labelled(self, X, y, sample_weight)
        matrix = as_dense(read_in_memory(self, X, who="to_arviz").matrix)
        draws = self._parameter_draws(n_draws, random_state)
        rows = ObservedRows(matrix, feature_names(self), codes, self.classes_, weights)
        return inference_data(Draws(draws.variables(), self._under(X, draws)), rows, labels_rng(random_state))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """New rows (n, D), as many as n_samples says, and their classes (n,), from the predictive distribution."""
        check_is_fitted(self)
        require_count("n_samples", n_samples, 1)
        given = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(given).randint(2**31))
        X, codes = draw(self.fitted_.densities, int(n_samples), rng)
        return X, self.classes_[codes]

    def to_softmax(self) -> SoftmaxRegression:
        """The softmax regression with exactly the same probabilities, for tied covariances under "mle" or "map".

        See docs/theory.md, section 5.5.
        """
        check_is_fitted(self)
        linear = self.fitted_.densities.linear()
        if linear is None:
            structure = self.solution_.structure
            if self.fitted_.densities.student:
                raise ValueError(
                    "estimate='bayes' gives Student t classes, whose log-odds are not linear in x: no softmax "
                    "regression has the same probabilities. Use estimate='map'."
                )
            tied = " or ".join(repr(name) for name, other in STRUCTURES.items() if other.tied)
            raise ValueError(
                f"Classes with a covariance of their own ({structure!r}) have log-odds that are quadratic in x: no "
                f"softmax regression has the same probabilities. Use covariance={tied}."
            )
        model = SoftmaxRegression(classes=None if self.classes is None else list(self.classes))
        coef, intercept = linear[0], linear[1] - linear[0] @ self.fitted_.densities.origin
        model.classes_ = self.classes_
        copy_features(model, self)
        model.coef_, model.intercept_, model.n_iter_ = coef, np.maximum(intercept, -1e300), 0
        return model

    def _map_draws(self, X: Any, n_out: int, kernel: Any, *params: Any) -> np.ndarray:
        """The values of a kernel of draws for all rows of X, (n_out, n)."""
        posterior = self.seen_.row_posterior(class_prior_given=self.class_prior is not None)
        features = read_for_prediction(self, X, self.device)
        _require_finite(features, missing_allowed=posterior.densities.covariance_structure.missing_allowed)
        with one_blas_thread():
            blocks = features.blocks(None, n_out, n_threads=usable_threads(self.n_jobs))
            return blocks.map_rows(kernel, posterior, *params, heavy=True)

    def _parameter_draws(self, n_draws: int, random_state: Any) -> ParameterDraws:
        posterior = self.seen_.row_posterior(class_prior_given=self.class_prior is not None)
        return _drawn(posterior, n_draws, random_state)

    def _under(self, X: Any, draws: ParameterDraws) -> np.ndarray:
        """Logarithms of the class probabilities under each draw, (S, n, K)."""
        S, K = draws.log_frequencies.shape
        features = read_for_prediction(self, X, self.device)
        _require_finite(features, missing_allowed=draws.posterior.belief.structure.missing_allowed)
        with one_blas_thread():
            blocks = features.blocks(None, S * K, n_threads=usable_threads(self.n_jobs))
            log_p = blocks.map_rows(drawn_log_probabilities, draws, heavy=True)
        return log_p.reshape(S, K, -1).transpose(0, 2, 1)

    def _code(self, label: Any, argument: str) -> int:
        found = np.flatnonzero(self.classes_ == label)
        if len(found) == 0:
            raise ValueError(f"{argument}={label!r} is not among the classes {self.classes_.tolist()}.")
        return int(found[0])

    def _finished(self, X: Any, finish: Callable[[np.ndarray], Any]) -> np.ndarray:
        """Probabilities or their logarithms, made of logits in place: by blocks, or of all rows where a block fails."""
        features = read_for_prediction(self, X, self.device)
        F = self._map_rows(features, finish)
        if np.isnan(F).any():
            F = self._logits_of(features)
            finish(F)
        return F

    def _logits(self, X: Any) -> np.ndarray:
        """The logarithm of p(k | x) up to a number for each row, (K, n)."""
        return self._logits_of(read_for_prediction(self, X, self.device))

    def _logits_of(self, features: Features) -> np.ndarray:
        F = self._map_rows(features)
        return F if np.isfinite(F).all() else self._joint_of(features)

    def _map_rows(self, features: Features, finish: Callable[[np.ndarray], Any] | None = None) -> np.ndarray:
        """The logits, (K, n), by products with coefficients alone where they are linear in x."""
        linear, origin = self.fitted_.densities.linear(), self.fitted_.densities.origin
        with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
            far = linear is not None and np.abs(linear[0] @ origin).max() > _FAR
            if linear is None or (far and self._blocks(features).sparse):
                return self._blocks(features).map_rows(log_joint, self.fitted_.densities, finish)
            coef, intercept = linear
            blocks = self._blocks(features, origin if far else None)
            theta = np.column_stack([coef, intercept if far else intercept - coef @ origin])
            return blocks.map_rows(_finished_logits, theta, finish)

    def _blocks(self, features: Features, shift: np.ndarray | None = None) -> Blocks:
        return features.blocks(None, len(self.classes_), shift=shift, n_threads=usable_threads(self.n_jobs))

    def _joint_of(self, features: Features) -> np.ndarray:
        """Joint log-probabilities, (K, n)."""
        densities = self.fitted_.densities
        with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
            blocks = self._blocks(features)
            F = blocks.map_rows(log_joint, densities)
            best = F.max(axis=0)
            if np.isfinite(best).all():
                return F
            _require_finite(features, missing_allowed=densities.covariance_structure.missing_allowed)
            # finite, but so far away that squares overflow: such rows are moved to where they do not
            far = np.flatnonzero(~np.isfinite(best))
            F[:, far] = log_joint(within_reach(as_dense(blocks.take(far)[0]), densities), densities)
        # what is still not a number, in units at the ends of their range, says nothing
        return np.where(np.isnan(F) | ~np.isfinite(F.max(axis=0)), densities.log_prior[:, None], F)

    @property
    def _missing_allowed(self) -> bool:
        """Whether a structure that may be chosen allows missing values."""
        return any(structure.missing_allowed for structure in structures_asked_for(self.covariance))

    def _read(
        self, features: Features, target: Target, known: ClassMoments | None = None
    ) -> tuple[ClassMoments, KeptRows, int]:
        """Statistics of the rows, a sample of the rows, and the number of passes made.

        The statistics have as much detail as is needed, and no more than `known`, to which they will be added.
        """
        K, auto = len(target.classes), self.covariance == "auto"
        kind = self._scatter_kind(K, features.n_features, known)
        blocks = features.blocks(target, K, n_threads=usable_threads(self.n_jobs))
        with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
            if SCATTERS[kind].products and _fewer_rows_than_features(features, target, known):
                statistics = blocks.map_sum(root_statistics, K, coarse=True)
            else:
                statistics = blocks.map_sum(class_statistics, K, kind, coarse=SCATTERS[kind].by_class)
            if auto and np.isnan(statistics.means).any():  # values are missing
                statistics = blocks.map_sum(class_statistics, K, "diagonal")
        if not statistics.finite or not (statistics.complete or self._missing_allowed):
            _require_finite(features, missing_allowed=self._missing_allowed)
        if not statistics.finite:
            raise ValueError(TOO_LARGE)
        return statistics, self._sampled(blocks, target), blocks.n_passes

    def _scatter_kind(self, K: int, D: int, known: ClassMoments | None) -> Kind:
        """The kind of scatter that is needed."""
        if self.covariance != "auto":
            return STRUCTURES[self.covariance].scatter
        only_variances = K * D**2 > MOST_SCATTER or (known is not None and not known.holds("full"))
        return "diagonal" if only_variances else "full"

    def _sampled(self, blocks: Blocks, target: Target) -> KeptRows:
        """A sample of the rows to judge priors by; a row with soft labels counts once for each class it may be of."""
        most = _MOST_KEPT if self._leaves_rows_out else 0
        X, Y, c = random_rows(blocks, most, self._rng())
        X = as_dense(X)
        weights = np.ones(len(X)) if c is None else c
        if Y.ndim == 1:
            return KeptRows(X, Y, weights, target.n_counted)
        n, k = np.nonzero(Y)
        return KeptRows(X[n], k, weights[n] * Y[n, k], target.n_counted).at_most(most)

    def _merged(self, seen: SeenRows, new: ClassMoments, kept: KeptRows) -> tuple[ClassMoments, KeptRows]:
        """The statistics and the sample of the rows seen before and of new ones."""
        before = seen.statistics
        if isinstance(new, ClassStatistics):
            if isinstance(before, ClassStatistics) and not before.holds(new.kind):
                raise ValueError(
                    f"covariance={self.covariance!r} cannot be fitted to the earlier rows, of which only the "
                    f"{SCATTERS[before.kind].contents} was kept: fit all rows again."
                )
            before = before.reduced(new.kind)
        if seen.kept.n_seen > 0 and len(seen.kept.codes) == 0:
            self._require_nothing_sought()
        return before + new, seen.kept.merged(kept, _MOST_KEPT, self._rng())

    @property
    def _leaves_rows_out(self) -> bool:
        """Whether a structure or a prior is judged by left-out rows."""
        return self.covariance == "auto" or not (self.estimate == "mle" or isinstance(self.prior, RidgePrior))

    def _require_nothing_sought(self) -> None:
        """Raise if the covariance or the prior is to be chosen by left-out rows."""
        sought = {}  # each with a setting that needs no rows
        if self.covariance == "auto":
            sought["covariance='auto'"] = "a covariance that is not 'auto'"
        if self.estimate != "mle" and self.prior == "predictive":
            sought["prior='predictive'"] = "prior='evidence'"
        if sought:
            raise ValueError(
                f"{' and '.join(sought)} {'is' if len(sought) == 1 else 'are'} chosen by left-out rows, but "
                "none of the earlier rows were kept: a model from a file has no rows, and a model keeps rows only if "
                f"it needs them for such a choice. Fit all rows again, or set {' and '.join(sought.values())}."
            )

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(seed_from(self.random_state))


def _drawn(belief: RowPosterior, n_draws: int, random_state: Any) -> ParameterDraws:
    """Draws of all parameters from what is believed of them."""
    require_count("n_draws", n_draws, 1)
    with one_blas_thread():
        return parameter_draws(belief, n_draws, np.random.default_rng(seed_from(random_state)))


def _fewer_rows_than_features(features: Features, target: Target, known: ClassMoments | None) -> bool:
    """Whether there are fewer rows than features, with those of the statistics to which they will be added."""
    return target.n_counted + (0 if known is None else known.span) < features.n_features


def _require_finite(features: Features, *, missing_allowed: bool) -> None:
    """Raise if a value is infinite, or missing where that is not allowed."""
    found = features.first_not_finite(missing_allowed=missing_allowed)
    if found is None:
        return
    names = " or ".join(repr(name) for name, structure in STRUCTURES.items() if structure.missing_allowed)
    advice = f" Or use covariance={names}, which leave missing values out." if found.missing else ""
    raise ValueError(found.sentence() + advice)


def _finished_logits(X: Any, theta: np.ndarray, finish: Callable[[np.ndarray], Any] | None) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        F = logits(X, theta)
        if finish is not None:
            finish(F)
    return F
