"""What classifiers of Gaussian processes share: reading rows, and predictions from their latents."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from posteriori.decision.uncertainty import Uncertainty
from posteriori.exceptions import ApproximationWarning, ConvergenceWarning
from posteriori.gp.kernels import Kernel
from posteriori.gp.progress import progress_bar
from posteriori.gp.rows import Rows, Standardised, dense, labelled_rows
from posteriori.gp.settings import default_kernel, fingerprint, jax_at_work, validate_gp
from posteriori.parameters import require_level, seed_from
from posteriori.rows.engines import read_in_memory, read_in_memory_for_fit, read_labels
from posteriori.rows.schema import remember_features
from posteriori.solvers.solution import Status

__all__ = ["GaussianProcessClassifier"]

_BLOCK = 1024
"""Rows predicted together."""
_DRAWS, _ENTROPY_DRAWS = 512, 128
_FIRST_RATE = 0.01
"""Of mislabelled rows, where it is learned."""


class GaussianProcessClassifier(ClassifierMixin, BaseEstimator):
    """Rows in, latents out; the classes built on it say how."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
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
        self._validate()
        features, target, named = read_in_memory_for_fit(
            X, y, sample_weight, self.classes, self.class_weight, who=type(self).__name__
        )
        rows = labelled_rows(features, target)
        standardised = Standardised.of(rows.X, rows.c)
        kernel = self._kernel(standardised)
        with jax_at_work(self.device), progress_bar(self.verbose, self.max_iter) as report:
            learning = self._learning(rows, report)
            fitted = self._fit_rows(Rows(standardised(rows.X), rows.y, rows.c), kernel, len(target.classes), learning)
        remember_features(self, features, named)
        self.classes_, self._standardised, self._fitted = target.classes, standardised, fitted
        self._finish()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities averaged over the posterior, (n, K)."""
        from posteriori.gp import predictive as predicting

        return self._map(X, predicting.probabilities).T

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, (n, K)."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))

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
        return super().score(X, read_labels(X, y), sample_weight=read_labels(X, sample_weight))

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, K) and covariance (n, K, K) of the latent functions at each row."""
        from posteriori.gp import predictive as predicting

        K = len(self._checked().classes_)

        def both(likelihood: Any, free: Any, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            centre, covariance = predicting.covariances(mean, variance)
            return np.concatenate([centre, covariance.reshape(len(centre), -1)], axis=1).T

        out = self._map(X, both).T
        return out[:, :K], out[:, K:].reshape(-1, K, K)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed credible interval of each class probability: lower and upper ends, (n, K) each."""
        from posteriori.gp import predictive as predicting

        tail = 0.5 * (1.0 - require_level(level))
        self._checked()._require_posterior("predict_interval")

        def ends(likelihood: Any, free: Any, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            P = predicting.drawn(likelihood, free, mean, variance, _DRAWS)
            return np.concatenate(np.quantile(P, [tail, 1.0 - tail], axis=0, method="hazen"))

        both = self._map(X, ends, rows=128).T
        K = len(self.classes_)
        return both[:, :K], both[:, K:]

    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the prediction, the part that no data would remove, and the part that more data would, in nats."""
        from posteriori.gp import predictive as predicting

        self._checked()._require_posterior("uncertainty")

        def parts(likelihood: Any, free: Any, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            P = predicting.drawn(likelihood, free, mean, variance, _ENTROPY_DRAWS)
            total = predicting.entropy(predicting.probabilities(likelihood, free, mean, variance), axis=0)
            return np.stack([total, np.minimum(predicting.entropy(P, axis=1).mean(axis=0), total)])

        total, aleatoric = self._map(X, parts, rows=128)
        return Uncertainty(total, aleatoric, total - aleatoric)

    solution_ = property(lambda self: self._checked()._fitted.solution)
    n_iter_ = property(lambda self: self.solution_.n_iter)
    scale_ = property(lambda self: np.exp(self._checked()._fitted.last["log_scale"]))

    @property
    def mislabelling_(self) -> float:
        """The rate of rows with a label at random."""
        return float(np.exp(self._checked()._fitted.last["likelihood"].get("log_rate", -np.inf)))

    @property
    def log_evidence_(self) -> float:
        """Approximate log evidence: the energy at the fixed point."""
        self._checked()._require_posterior("log_evidence_")
        return self.solution_.energy

    def _validate(self) -> None:
        validate_gp(self)

    def _kernel(self, standardised: Standardised) -> Kernel:
        """The kernel of standardised features that vary."""
        kernel = default_kernel() if self.kernel is None else self.kernel
        kernel = kernel.of_features(standardised.kept, len(standardised.spread))
        return kernel.in_units(standardised.unit)

    def _learning(self, rows: Rows, report: Any) -> Any:
        """How the fit goes about it."""
        from posteriori.gp.checkpoint import Checkpoint
        from posteriori.gp.fit import Learning

        checkpoint = None
        if self.checkpoint is not None:
            checkpoint = Checkpoint(self.checkpoint, fingerprint(self, rows.X, rows.y, rows.c))
        size = self._batch_size(len(rows.y))
        return Learning(
            power=0.0 if self.inference == "vi" else float(self.power),
            batch_size=size,
            rate=self._rate(-(-len(rows.y) // size)),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            seed=seed_from(self.random_state),
            calibrate=bool(self.calibrate),
            checkpoint=checkpoint,
            report=report,
        )

    def _likelihood(self, K: int) -> Any:
        from posteriori.gp.likelihoods import Argmax, Softmax

        if self.likelihood == "softmax":
            return Softmax(K)
        exact = self.inference != "vi" and self.power == 1.0
        learned = self.mislabelling == "learn"
        return Argmax(
            K,
            noise=(1.0 if exact else 0.0) if self.noise is None else float(self.noise),
            rate=_FIRST_RATE if learned else max(float(self.mislabelling), 1e-300),
            learn_rate=learned,
        )

    def _require_posterior(self, asked: str) -> None:
        """Raise where sites were trained by gradient, whose variances mean nothing."""
        if self.inference == "energy":
            raise ValueError(
                f"inference='energy' maximises the energy over its sites, which makes the posterior too wide: its "
                f"probabilities are good, {asked} would mislead. Use inference='ep' or 'vi'."
            )

    def _checked(self) -> Any:
        check_is_fitted(self, "_fitted")
        return self

    def _map(self, X: Any, kernel: Callable[..., np.ndarray], rows: int = _BLOCK) -> np.ndarray:
        """Kernel over blocks of rows, each with the latents' means and variances (S, K, n): (..., n)."""
        features = read_in_memory(self._checked(), X, who=type(self).__name__)
        Z = self._standardised(dense(features))
        size = min(rows, 1 << max(3, (len(Z) - 1).bit_length()))
        fitted, out = self._fitted, []
        with jax_at_work(self.device):
            for first in range(0, len(Z), size):
                block = Z[first : first + size]
                padded = np.concatenate([block, np.zeros((size - len(block), Z.shape[1]))])
                mean, variance = fitted.latents(padded)
                result = kernel(fitted.readout.likelihood, fitted.last["likelihood"], mean, variance)
                out.append(result[..., : len(block)])
        return np.concatenate(out, axis=-1)

    def _finish(self) -> None:
        """Say what went wrong, if anything did."""
        solution = self.solution_
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if solution.status is Status.ITERATION_LIMIT and self.max_iter > 0:
            warnings.warn(
                f"The energy was still rising after max_iter={self.max_iter} steps: raise max_iter, or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if solution.settled is False:
            warnings.warn(
                "The sites of expectation propagation did not come to rest: probabilities are close, evidence and "
                "intervals are to be read with care.",
                ApproximationWarning,
                stacklevel=3,
            )
        if solution.jitter > 1e-6:
            warnings.warn(
                f"A jitter of {solution.jitter:g} was needed on the diagonal of the inducing inputs' kernel matrix.",
                ApproximationWarning,
                stacklevel=3,
            )
