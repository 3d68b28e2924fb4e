"""Constructor arguments that all softmax estimators share, checked when a fit begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.parameters import (
    is_number,
    require_choice,
    require_count,
    require_device,
    require_flag,
    require_jobs,
    require_not_negative,
    require_verbosity,
    seed_from,
)
from posteriori.softmax.priors import GaussianPrior
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.gradient_descent import GradientDescent
from posteriori.solvers.lbfgs import LBFGS
from posteriori.solvers.newton import Newton
from posteriori.solvers.solution import Iterate
from posteriori.solvers.solver import Solver
from posteriori.solvers.stochastic import StochasticGradient

__all__ = ["PREDICTIVES", "BayesianSettings", "bayesian_settings", "validated_solver"]

_APPROXIMATIONS = ("auto", "laplace", "variational", "importance")
_POSTERIORS = ("auto", "full", "kronecker", "diagonal")
PREDICTIVES = ("quasi", "sample", "probit", "plugin")
_PRIORS = ("evidence", "ard", "jeffreys")
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
        raise ValueError(f"solver={solver!r} is not a solver: use one of {[*_SOLVERS]} or a solver object.")
    solver.validate()
    require_jobs(estimator.n_jobs)
    require_flag("fit_intercept", estimator.fit_intercept)
    require_verbosity(estimator.verbose)
    require_not_negative("tol", estimator.tol)
    require_count("max_iter", estimator.max_iter)
    require_device(estimator.device)
    return solver


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


def bayesian_settings(estimator: Any) -> BayesianSettings:
    """What was asked for, checked."""
    solver = validated_solver(estimator)
    require_choice("approximation", estimator.approximation, _APPROXIMATIONS)
    require_choice("posterior", estimator.posterior, _POSTERIORS)
    require_choice("predictive", estimator.predictive, PREDICTIVES)
    require_count("n_nodes", estimator.n_nodes, 2)
    require_count("n_draws", estimator.n_draws, 2)
    noise = estimator.label_noise
    if not (noise is None or noise == "estimate" or (is_number(noise) and 0 <= float(noise) < 1)):
        raise ValueError(f"label_noise={noise!r} must be None, 'estimate' or a rate from 0 to below 1.")
    prior = estimator.prior
    if isinstance(prior, str):
        if prior not in _PRIORS:
            raise ValueError(f"prior={prior!r} is unknown: use one of {[*_PRIORS]}, a number or a GaussianPrior.")
    elif is_number(prior):
        if not 0 < float(prior) < np.inf:
            raise ValueError(
                f"prior={prior!r} must be a positive precision. For maximum likelihood use "
                "SoftmaxRegression(alpha=0), for a flat prior that stays finite prior='jeffreys'."
            )
        prior = GaussianPrior(precision=float(prior))
    elif not isinstance(prior, GaussianPrior):
        raise ValueError(f"prior={prior!r} must be one of {[*_PRIORS]}, a number or a GaussianPrior.")
    if estimator.approximation in ("variational", "importance") and estimator.posterior in ("kronecker", "diagonal"):
        raise ValueError(
            f"approximation={estimator.approximation!r} needs a full posterior, and posterior={estimator.posterior!r} "
            "was asked for: use approximation='laplace', or posterior='full'."
        )
    return BayesianSettings(
        prior=prior,
        approximation=estimator.approximation,
        posterior=estimator.posterior,
        fit_intercept=bool(estimator.fit_intercept),
        solver=solver,
        tol=estimator.tol,
        max_iter=estimator.max_iter,
        n_draws=int(estimator.n_draws),
        random_state=seed_from(estimator.random_state),
    )
