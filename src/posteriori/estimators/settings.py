"""Constructor arguments that all softmax estimators share, checked when a fit begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from posteriori.inference import LBFGS, Automatic, GradientDescent, Iterate, Newton, Solver, StochasticGradient
from posteriori.models.prior import GaussianPrior

__all__ = ["PREDICTIVES", "BayesianSettings", "bayesian_settings", "is_number", "validate_device", "validated_solver"]

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
    validate_device(estimator.device)
    return solver


def validate_device(device: Any) -> None:
    """Raise unless it is one of those there are; whether this machine has it shows when rows go there."""
    if not (device is None or (isinstance(device, str) and device in ("cpu", "gpu"))):
        raise ValueError(f"device={device!r} is not available: use None, 'cpu' or 'gpu'.")


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


def bayesian_settings(estimator: Any) -> BayesianSettings:
    """What was asked for, checked."""
    solver = validated_solver(estimator)
    for name, allowed in (
        ("approximation", _APPROXIMATIONS),
        ("posterior", _POSTERIORS),
        ("predictive", PREDICTIVES),
    ):
        if getattr(estimator, name) not in allowed:
            raise ValueError(f"{name}={getattr(estimator, name)!r} is unknown: use one of {[*allowed]}.")
    for name in ("n_nodes", "n_draws"):
        value = getattr(estimator, name)
        if not isinstance(value, (int, np.integer)) or value < 2:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 2.")
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
    seed = 0 if estimator.random_state is None else int(check_random_state(estimator.random_state).randint(2**31))
    return BayesianSettings(
        prior=prior,
        approximation=estimator.approximation,
        posterior=estimator.posterior,
        fit_intercept=bool(estimator.fit_intercept),
        solver=solver,
        tol=estimator.tol,
        max_iter=estimator.max_iter,
        n_draws=int(estimator.n_draws),
        random_state=seed,
    )
