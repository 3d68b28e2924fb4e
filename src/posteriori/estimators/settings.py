"""Constructor arguments that all softmax estimators share, checked when a fit begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from posteriori.inference import LBFGS, Automatic, GradientDescent, Iterate, Newton, Solver, StochasticGradient

__all__ = ["BayesianSettings", "is_number", "validated_solver"]

_SOLVERS: dict[str, type[Solver]] = {
    "auto": Automatic,
    "newton": Newton,
    "lbfgs": LBFGS,
    "gd": GradientDescent,
    "sgd": StochasticGradient,
}


def validated_solver(estimator: Any) -> Solver:
    """The solver, once the constructor arguments that all estimators share have been checked."""
    solver = estimator.solver
    if isinstance(solver, str):
        if solver not in _SOLVERS:
            raise ValueError(f"solver={solver!r} is unknown: use one of {[*_SOLVERS]} or a solver object.")
        solver = _SOLVERS[solver]()
    elif not isinstance(solver, Solver):
        raise ValueError(f"solver={solver!r} is no solver: use one of {[*_SOLVERS]} or a solver object.")
    solver.validate()
    if estimator.n_jobs is not None and not isinstance(estimator.n_jobs, (int, np.integer)):
        raise ValueError(f"n_jobs={estimator.n_jobs!r} must be a whole number or None.")
    if not isinstance(estimator.fit_intercept, (bool, np.bool_)):
        raise ValueError(f"fit_intercept={estimator.fit_intercept!r} must be True or False.")
    if not isinstance(estimator.verbose, (bool, int, np.integer)):
        raise ValueError(f"verbose={estimator.verbose!r} must be a whole number.")
    if not is_number(estimator.tol) or not estimator.tol >= 0:
        raise ValueError(f"tol={estimator.tol!r} must be a number that is not negative.")
    if not isinstance(estimator.max_iter, (int, np.integer)) or estimator.max_iter < 0:
        raise ValueError(f"max_iter={estimator.max_iter!r} must be a whole number that is not negative.")
    if estimator.device not in (None, "cpu"):
        raise ValueError(f"device={estimator.device!r} is not available: use None or 'cpu'.")
    return solver


def is_number(value: Any) -> bool:
    """Whether it is a real number, and no bool."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


@dataclass(frozen=True)
class BayesianSettings:
    """What the user of a Bayesian estimator asked for, validated."""

    prior: Any
    approximation: str
    posterior: str
    fit_intercept: bool
    solver: Solver
    tol: float
    max_iter: int
    n_draws: int
    random_state: int
    report: Callable[[int, Iterate], None] | None = None

    @property
    def scaled(self) -> bool:
        """Whether the prior is stated for columns of unit spread."""
        return isinstance(self.prior, str) or bool(self.prior.autoscale)
