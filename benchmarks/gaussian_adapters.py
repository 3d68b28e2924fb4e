"""Gaussian classifiers, one adapter per library: the same rows in, the same parameters out.

Conventions
-----------
Covariances have the divisor of maximum likelihood, the number of rows. Adapters are small frozen values; what they fit
is the library's own estimator, so that predictions are those that its users get.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

STRUCTURES = ("full", "tied", "diagonal", "tied_diagonal", "spherical")

PEERS: dict[str, Callable[..., Any]] = {
    "diagonal": GaussianNB,
    "tied": LinearDiscriminantAnalysis,
    "full": QuadraticDiscriminantAnalysis,
}
"""scikit-learn's class for each structure that it has one for."""


class Parameters(NamedTuple):
    """Means (K, D); covariances (K, D), (D, D) or (K, D, D); class frequencies (K,)."""

    means: np.ndarray
    covariances: np.ndarray
    class_prior: np.ndarray


@dataclass(frozen=True)
class GaussianPosteriori:
    """``posteriori.GaussianClassifier``; ``threads=None`` leaves them to the library."""

    structure: str = "auto"
    estimate: str = "bayes"
    threads: int | None = None
    library: str = "posteriori"

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        import posteriori as po

        return po.GaussianClassifier(self.structure, estimate=self.estimate, n_jobs=self.threads).fit(X, y)

    def predict_proba(self, model: Any, X: np.ndarray) -> np.ndarray:
        return model.predict_proba(X)

    def parameters(self, X: np.ndarray, y: np.ndarray) -> Parameters:
        model = self.fit(X, y)
        return Parameters(model.means_, model.covariances_, model.class_prior_)


@dataclass(frozen=True)
class GaussianScikitLearn:
    """The class of scikit-learn for a structure, with settings as pairs of name and value."""

    structure: str
    settings: tuple[tuple[str, Any], ...] = ()
    threads: int | None = None
    library: str = "scikit-learn"

    @property
    def class_name(self) -> str:
        return PEERS[self.structure].__name__

    def __str__(self) -> str:
        return f"{self.class_name}({', '.join(f'{name}={value!r}' for name, value in self.settings)})"

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        with self._limited():
            return PEERS[self.structure](**dict(self.settings)).fit(X, y)

    def predict_proba(self, model: Any, X: np.ndarray) -> np.ndarray:
        with self._limited():
            return model.predict_proba(X)

    def parameters(self, X: np.ndarray, y: np.ndarray) -> Parameters:
        """Return them; the full structure needs ``store_covariance``."""
        model = self.fit(X, y)
        if self.structure == "diagonal":
            return Parameters(model.theta_, model.var_, model.class_prior_)
        if self.structure == "tied":
            return Parameters(model.means_, model.covariance_, model.priors_)
        n = np.bincount(y)
        covariances = np.stack(model.covariance_) * ((n - lost_rows()) / n)[:, None, None]
        return Parameters(model.means_, covariances, model.priors_)

    def _limited(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.threads is None else threadpool_limits(self.threads, user_api="blas")


def lost_rows() -> int:
    """Return 1 where the peer's full covariances have the divisor n - 1, as before scikit-learn 1.9, else 0."""
    model = QuadraticDiscriminantAnalysis(store_covariance=True).fit([[-1.0], [1.0], [-1.0], [1.0]], [0, 0, 1, 1])
    return 2 - round(2 / model.covariance_[0].item())
