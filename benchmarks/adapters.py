r"""One adapter per library: the same problem in, the same parameters out.

Conventions
-----------
Every adapter minimises :math:`J(W, b) = \sum_n -\log p(y_n | x_n) + \tfrac{\alpha}{2} \|W\|^2` with a free
intercept and returns ``coef`` (K, D) and ``intercept`` (K,), also for K = 2. Adapters are small frozen
values, so that they can be sent to another process and serve as keys.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

MAX_ITER = 100_000


class Fit(NamedTuple):
    """What a library found, and what it says about it (status, iterations, passes, certificate)."""

    coef: np.ndarray
    intercept: np.ndarray
    info: dict[str, Any]


class Adapter(Protocol):
    """A library with its settings; ``threads=None`` and ``tol=None`` leave them to the library."""

    @property
    def library(self) -> str: ...
    @property
    def solver(self) -> str: ...
    @property
    def tol(self) -> float | None: ...
    @property
    def threads(self) -> int | None: ...

    def fit(self, X: Any, y: np.ndarray) -> Fit: ...


def library_version(library: str) -> str:
    """Return the installed version, or "none"."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


@dataclass(frozen=True)
class Posteriori:
    """``posteriori.SoftmaxRegression`` with default settings; ``tol`` only for the reference optimum."""

    tol: float | None = None
    alpha: float = 1.0
    library: str = "posteriori"
    solver: str = "auto"
    threads: int | None = None

    def fit(self, X: Any, y: np.ndarray) -> Fit:
        import posteriori as po

        settings = {} if self.tol is None else {"tol": self.tol}
        model = po.SoftmaxRegression(alpha=self.alpha, **settings).fit(X, y)
        solution = model.solution_
        info = {
            "status": str(getattr(solution.status, "name", solution.status)).lower(),
            "iterations": int(model.n_iter_),
            "passes": float(solution.n_passes),
            "certificate": float(solution.gap) / abs(float(solution.objective)),
        }
        return Fit(model.coef_, model.intercept_, info)


@dataclass(frozen=True)
class ScikitLearn:
    """``sklearn.linear_model.LogisticRegression`` with one of its solvers."""

    solver: str
    tol: float
    threads: int | None = None
    alpha: float = 1.0
    library: str = "scikit-learn"

    def fit(self, X: Any, y: np.ndarray) -> Fit:
        n_classes = len(np.unique(y))
        C = (2.0 if n_classes == 2 else 1.0) / self.alpha
        model = LogisticRegression(C=C, solver=self.solver, tol=self.tol, max_iter=MAX_ITER)
        with nullcontext() if self.threads is None else threadpool_limits(self.threads, user_api="blas"):
            model.fit(X, y)
        coef, intercept = model.coef_, model.intercept_
        if n_classes == 2:
            # One row w gives the log-odds; of all pairs with this difference (-w/2, w/2) is the shortest.
            coef, intercept = np.vstack([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
        n_iter = int(np.max(model.n_iter_))
        status = "max_iter" if n_iter >= MAX_ITER else "stopped"
        return Fit(coef, intercept, {"status": status, "iterations": n_iter})


@dataclass(frozen=True)
class BayesianPosteriori:
    """``posteriori.BayesianSoftmaxRegression``: mode, posterior and evidence, with the given prior."""

    prior: Any = "evidence"
    approximation: str = "auto"
    library: str = "posteriori"
    tol: float | None = None
    threads: int | None = None

    @property
    def solver(self) -> str:
        return f"{self.approximation}, prior {self.prior}"

    def fit(self, X: Any, y: np.ndarray) -> Fit:
        import posteriori as po

        model = po.BayesianSoftmaxRegression(self.prior, approximation=self.approximation).fit(X, y)
        solution = model.solution_
        info = {
            "status": solution.status.name.lower(),
            "iterations": int(model.n_iter_),
            "passes": float(solution.n_passes),
            "structure": solution.structure,
            "approximation": solution.approximation,
            "evaluations": len(solution.evidence_path),
            "log_evidence": model.log_evidence_,
        }
        return Fit(model.coef_, model.intercept_, info)


@dataclass(frozen=True)
class ScikitLearnDefault:
    """``LogisticRegression()`` as it comes: lbfgs, tol 1e-4, at most 100 iterations."""

    threads: int | None = None
    library: str = "scikit-learn"
    solver: str = "lbfgs"
    tol: float | None = None

    def fit(self, X: Any, y: np.ndarray) -> Fit:
        model = LogisticRegression()
        with nullcontext() if self.threads is None else threadpool_limits(self.threads, user_api="blas"):
            model.fit(X, y)
        n_iter = int(np.max(model.n_iter_))
        status = "max_iter" if n_iter >= model.max_iter else "stopped"
        return Fit(model.coef_, model.intercept_, {"status": status, "iterations": n_iter})
