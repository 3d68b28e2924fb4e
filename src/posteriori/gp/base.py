"""The base of Gaussian-process classifiers: their shared parameters, a fit in outline, and predictions from latents."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from posteriori.callbacks import CALLER_OF_FIT, WatchedFit, watched
from posteriori.decision.uncertainty import Uncertainty, entropy
from posteriori.exceptions import ApproximationWarning, ConvergenceWarning
from posteriori.gp.categories import CategoryColumns, category_places
from posteriori.gp.inference import INFERENCES, GPProblem
from posteriori.gp.inputs import InputUnits, LabelledRows, finite_matrix, labelled_rows
from posteriori.gp.kernels import Kernel
from posteriori.gp.leaving import process_left_out
from posteriori.gp.output import OutputNode
from posteriori.gp.predictions import (
    FittedLatents,
    drawn_probabilities,
    mean_log_probabilities,
    mean_probabilities,
)
from posteriori.gp.session import jax_session
from posteriori.gp.settings import GPSettings, fingerprint, read_settings
from posteriori.left_out.leaving import ByFormula, LeftOutMixin
from posteriori.left_out.rows import FitRows, RowsReference
from posteriori.parameters import require_choice, require_level
from posteriori.rows.engines import label_vector, read_in_memory, read_in_memory_for_fit, read_labels
from posteriori.rows.memory import MemoryFeatures
from posteriori.rows.schema import remember_features
from posteriori.solvers.solution import Status
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.gp.ascent import FitOptions
    from posteriori.gp.progress import Report
    from posteriori.gp.solution import GPSolution

__all__ = ["GaussianProcessClassifier"]

_BLOCK = 1024
"""The number of rows predicted together."""
_DRAWN_BLOCK = 128
"""The number of rows predicted together where each has many draws."""
_DRAWS, _ENTROPY_DRAWS = 512, 128
"""The number of draws of the latents for intervals, and for entropies."""

OfLatents = Callable[[OutputNode, np.ndarray, np.ndarray], np.ndarray]
"""A function of an output node, and latents' means and variances (S, K, n): an array (..., n)."""


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(LeftOutMixin, WatchedFit, ClassifierMixin, BaseEstimator, ABC):
    """Gaussian-process classification: rows are standardised, latents are fitted, and predictions read the latents.

    The parameters that all these classifiers share are the fields of this class; a subclass adds its own, and says how
    rows are dealt into batches, how long steps are, and how the latents are fitted. They are described in
    `GPClassifier`.
    """

    kernel: Kernel | None = None
    _: KW_ONLY
    n_inducing: int | str = 200
    n_learning: int | str | None = None
    scale: float | None = None
    likelihood: str = "argmax"
    inference: str = "ep"
    power: float = 1.0
    mislabelling: float | str = 0.001
    noise: float | None = None
    calibrate: bool = True
    batch_size: int | None = None
    learning_rate: float | None = None
    tol: float = 1e-3
    max_iter: int = 10_000
    categorical_features: Any = None
    classes: Any = None
    class_weight: Any = None
    checkpoint: Any = None
    random_state: Any = None
    device: str | None = None
    verbose: int = 0

    # What a subclass provides

    @abstractmethod
    def _rows_in_a_step(self, N: int, given: int | None) -> int:
        """The batch size for N rows; `given` is the one that the user asks for, if any."""

    @abstractmethod
    def _first_learning_rate(self, n_batches: int) -> float:
        """The learning rate at the start, where the user gives none."""

    @abstractmethod
    def _fit_latents(self, problem: GPProblem, settings: GPSettings, options: FitOptions) -> FittedLatents:
        """Fit the latents to standardised rows."""

    def _read_settings(self) -> GPSettings:
        """The checked constructor arguments; raises a ValueError that names the first wrong one."""
        return read_settings(self.get_params(deep=False))

    def _standardised_kernel(self, kernel: Kernel, units: InputUnits, origin: np.ndarray) -> Kernel:
        """The kernel of standardised features that vary, from one in the units of the features.

        `origin` is the feature that each column stands for.
        """
        blocks = None if units.blocks is None else tuple(units.blocks.tolist())
        return kernel.of_features(origin[units.kept], int(origin[-1]) + 1).in_units(units.unit).in_blocks(blocks)

    # Fit

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags

    @watched
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table (pandas, polars, Arrow), array or scipy.sparse matrix, (n, D)
            Columns are standardised inside; those that never vary are left out.
        y : array-like (n,) of labels, (n, K) of probabilities or counts, or the name of a column of X
        sample_weight : array-like (n,), number, or the name of a column of X, optional

        Returns
        -------
        self
        """
        settings = self._read_settings()
        features, target, named = read_in_memory_for_fit(
            X, y, sample_weight, self.classes, self.class_weight, who=type(self).__name__
        )
        rows = labelled_rows(features, target)
        categories = self._read_categories(features, rows)
        if categories is not None:
            rows = LabelledRows(categories.expanded(rows.X), rows.y, rows.c)
        origin = np.arange(features.n_features) if categories is None else categories.origin
        units = InputUnits.of(rows.X, rows.c)
        standardised = {
            name: self._standardised_kernel(kernel, units, origin) for name, kernel in settings.kernels.items()
        }
        settings = replace(
            settings, kernel=self._standardised_kernel(settings.kernel, units, origin), kernels=standardised
        )
        with self._iterations(X, partial(read_labels, X, y), partial(read_labels, X, sample_weight)) as tell:
            fitted = self._fit_standardised(rows, units, len(target.classes), settings, tell)
        remember_features(self, features, named)
        self.classes_: np.ndarray = target.classes
        self._categories, self._standardised, self._fitted = categories, units, fitted
        self._rows = RowsReference(X, y, sample_weight)
        self._report_end(fitted.solution)
        return self

    def _read_categories(self, features: MemoryFeatures, rows: LabelledRows) -> CategoryColumns | None:
        """The columns that hold codes of levels, as the user says; None where there are none."""
        if self.categorical_features is None:
            return None
        places = category_places(self.categorical_features, features.n_features, features.names)
        return CategoryColumns.of(rows.X, places) if len(places) else None

    def _fit_standardised(
        self,
        rows: LabelledRows,
        units: InputUnits,
        K: int,
        settings: GPSettings,
        tell: Callable[[None], None] | None = None,
    ) -> FittedLatents:
        """Fit the latents to rows in their own units; the kernels of the settings are of standardised features."""
        from posteriori.gp.progress import RelayedReport, progress_bar

        standardised = LabelledRows(units(rows.X), rows.y, rows.c)
        problem = GPProblem(
            standardised, settings.kernel, settings.kernels, settings.scale, settings.likelihood, K, settings.n_inducing
        )
        with progress_bar(self.verbose, settings.max_iter) as report:
            told = report if tell is None else RelayedReport(report, tell)
            return self._fit_latents(problem, settings, self._fit_options(rows, settings, told))

    def _fit_options(self, rows: LabelledRows, settings: GPSettings, report: Report | None) -> FitOptions:
        """The options of this fit, with those that depend on the number of rows."""
        from posteriori.gp.ascent import FitOptions
        from posteriori.gp.checkpoint import Checkpoint

        checkpoint = None
        if self.checkpoint is not None:
            params = self.get_params(deep=False)
            checkpoint = Checkpoint(
                self.checkpoint, fingerprint(type(self).__name__, params, rows.X, rows.y, rows.c)
            )  # fmt: skip
        N = len(rows.y)
        size = self._rows_in_a_step(N, settings.batch_size)
        rate = settings.learning_rate
        return FitOptions(
            power=settings.power,
            batch_size=size,
            rate=self._first_learning_rate(-(-N // size)) if rate is None else rate,
            tol=settings.tol,
            max_iter=settings.max_iter,
            seed=settings.seed,
            calibrate=settings.calibrate,
            device=self.device,
            n_learning=settings.n_learning,
            checkpoint=checkpoint,
            report=report,
        )

    def _report_end(self, solution: GPSolution) -> None:
        """Warn about what did not go well, and raise an interruption again."""
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if solution.status is Status.ITERATION_LIMIT and self.max_iter > 0:
            warnings.warn(
                f"The energy was still rising after max_iter={self.max_iter} steps: raise max_iter, or tol.",
                ConvergenceWarning,
                stacklevel=CALLER_OF_FIT,
            )
        if solution.settled is False:
            warnings.warn(
                "The sites of expectation propagation have not converged: probabilities are nearly right, but evidence "
                "and intervals may be wrong.",
                ApproximationWarning,
                stacklevel=CALLER_OF_FIT,
            )
        if solution.jitter > 1e-6:
            warnings.warn(
                f"A jitter of {solution.jitter:g} was needed on the diagonal of the inducing inputs' kernel matrix, "
                "which is nearly singular: results are less accurate.",
                ApproximationWarning,
                stacklevel=CALLER_OF_FIT,
            )

    # What was fitted

    def _left_out(self, rows: FitRows) -> ByFormula | None:
        features = rows.features
        assert isinstance(features, MemoryFeatures)
        return process_left_out(self._fit_result(), self.standardised(finite_matrix(features)), rows)

    def _fit_result(self) -> FittedLatents:
        """The fitted latents; raises NotFittedError before a fit."""
        check_is_fitted(self, "_fitted")
        return self._fitted

    @property
    def _category_columns(self) -> CategoryColumns | None:
        """The columns that hold codes of levels; None also for models stored before there were any."""
        return getattr(self, "_categories", None)

    def _require_posterior(self, asked: str) -> None:
        """Raise where the method of inference gives probabilities alone."""
        self._fit_result()
        require_choice("inference", self.inference, INFERENCES)
        if not INFERENCES[self.inference].has_posterior:
            raise ValueError(
                f"inference={self.inference!r} maximises the energy over its sites, which makes the posterior too "
                f"wide: its probabilities are good, {asked} would mislead. Use inference='ep' or 'vi'."
            )

    @property
    def solution_(self) -> GPSolution:
        """The record of the fit: status, energy, steps."""
        return self._fit_result().solution

    @property
    def n_iter_(self) -> int:
        """The number of steps of learning."""
        return self.solution_.n_iter

    @property
    def scale_(self) -> np.ndarray:
        """The scales sigma_k of the latent functions, (K,)."""
        return self._fit_result().scale

    @property
    def mislabelling_(self) -> float:
        """The rate of rows with a label at random."""
        return self._fit_result().mislabelling

    @property
    def log_evidence_(self) -> float:
        """The approximate log evidence: the energy at the fixed point."""
        self._require_posterior("log_evidence_")
        return self.solution_.energy

    # Predictions

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities averaged over the posterior, (n, K)."""
        return self._map_predictive(X, mean_probabilities).T

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K), right however small these are."""
        return self._map_predictive(X, mean_log_probabilities).T

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

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, K) and covariance (n, K, K) of the latent functions at each row, as the posterior has them.

        A level that all classes share is not known, and means nothing: read differences between classes.
        """
        moments = self._map_rows(X, self._fit_result().moments)
        return np.concatenate([mean for mean, _ in moments]), np.concatenate([spread for _, spread in moments])

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed credible interval of each class probability: lower and upper ends, (n, K) each.

        These are probabilities of the class itself: the rate of mislabelled rows, which is not uncertain, is left out.
        """
        tail = 0.5 * (1.0 - require_level(level))
        self._require_posterior("predict_interval")

        def ends(node: OutputNode, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            P = drawn_probabilities(node, mean, variance, _DRAWS)
            return np.concatenate(np.quantile(P, [tail, 1.0 - tail], axis=0, method="hazen"))

        both = self._map_posterior(X, ends).T
        K = len(self.classes_)
        return both[:, :K], both[:, K:]

    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the prediction, the part that no data would remove, and the part that more data would, in nats.

        These are of the posterior: `calibrate` may make probabilities surer than it is, but not this.
        """
        self._require_posterior("uncertainty")

        def parts(node: OutputNode, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            P = drawn_probabilities(node, mean, variance, _ENTROPY_DRAWS)
            total = entropy(mean_probabilities(node, mean, variance), axis=0)
            return np.stack([total, np.minimum(entropy(P, axis=1).mean(axis=0), total)])

        total, aleatoric = self._map_posterior(X, parts)
        return Uncertainty(total, aleatoric, total - aleatoric)

    def _map_predictive(self, X: Any, function: OfLatents) -> np.ndarray:
        """Apply a function of the latents that predictions are made of to blocks of rows: (..., n)."""
        fitted = self._fit_result()

        def of_rows(rows: np.ndarray) -> np.ndarray:
            mean, variance = fitted.predictive(rows)
            return function(fitted.node, mean, fitted.spread * variance)

        return np.concatenate(self._map_rows(X, of_rows), axis=-1)

    def _map_posterior(self, X: Any, function: OfLatents) -> np.ndarray:
        """Apply a function of the posterior of the latents to blocks of rows: (..., n).

        Where predictions are better with wider latents, so are these; they are never narrower than the posterior.
        """
        fitted = self._fit_result()
        spread = max(1.0, fitted.spread)

        def of_rows(rows: np.ndarray) -> np.ndarray:
            mean, variance = fitted.latents(rows)
            return function(fitted.node.without_mislabelling(), mean, spread * variance)

        return np.concatenate(self._map_rows(X, of_rows, _DRAWN_BLOCK), axis=-1)

    def standardised(self, X: np.ndarray) -> np.ndarray:
        """Rows (n, D) in the units in which latents are fitted, with a column for each level of a category."""
        return self._standardised(X if self._category_columns is None else self._category_columns.expanded(X))

    def _standardised_rows(self, X: Any) -> np.ndarray:
        """New rows as the latents see them."""
        return self.standardised(finite_matrix(read_in_memory(self, X, who=type(self).__name__)))

    def _map_rows(self, X: Any, function: Callable[[np.ndarray], Any], block: int = _BLOCK) -> list[Any]:
        """Apply a function to blocks of standardised rows.

        Blocks for JAX have all the same size, so that one compilation serves them.
        """
        fitted = self._fit_result()
        Z = self._standardised_rows(X)
        if not fitted.needs_jax:
            with one_blas_thread():
                return [function(Z[first : first + block]) for first in range(0, max(len(Z), 1), block)]
        size = min(block, 1 << max(3, (len(Z) - 1).bit_length()))
        out = []
        with jax_session(self.device):
            for first in range(0, len(Z), size):
                block_of_rows = Z[first : first + size]
                n = len(block_of_rows)
                result = function(np.concatenate([block_of_rows, np.zeros((size - n, Z.shape[1]))]))
                if isinstance(result, tuple):
                    out.append(tuple(part[:n] for part in result))
                else:
                    out.append(result[..., :n])
        return out
