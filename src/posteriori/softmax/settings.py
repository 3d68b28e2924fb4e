"""Constructor arguments that softmax estimators share, checked when a fit begins."""

from __future__ import annotations

from typing import Any

from posteriori.parameters import (
    require_choice,
    require_count,
    require_device,
    require_flag,
    require_jobs,
    require_not_negative,
    require_verbosity,
)
from posteriori.softmax.mode import SolveSettings
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.gradient_descent import GradientDescent
from posteriori.solvers.lbfgs import LBFGS
from posteriori.solvers.newton import Newton
from posteriori.solvers.solver import Solver
from posteriori.solvers.stochastic import StochasticGradient

__all__ = ["solve_settings"]

_SOLVERS: dict[str, type[Solver]] = {
    "auto": Automatic,
    "newton": Newton,
    "lbfgs": LBFGS,
    "gd": GradientDescent,
    "sgd": StochasticGradient,
}


def solve_settings(estimator: Any) -> SolveSettings:
    """Check the arguments that all softmax estimators share, and return the settings of the search for the mode."""
    solver = estimator.solver
    if isinstance(solver, str):
        require_choice("solver", solver, _SOLVERS, others=" or a solver object")
        solver = _SOLVERS[solver]()
    elif not isinstance(solver, Solver):
        raise ValueError(f"solver={solver!r} is not a solver: use one of {[*_SOLVERS]} or a solver object.")
    solver.validate()
    require_jobs(estimator.n_jobs)
    require_flag("fit_intercept", estimator.fit_intercept)
    require_verbosity(estimator.verbose)
    require_not_negative("tol", estimator.tol)
    require_count("max_iter", estimator.max_iter)
    require_device(estimator.device)
    return SolveSettings(solver, estimator.tol, estimator.max_iter, estimator.random_state)
