"""Constructor arguments of Bayesian softmax regression, checked when a fit begins; names become objects here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posteriori.parameters import is_number, require_choice, require_count, seed_from
from posteriori.softmax.blocks import BlocksPrior, searched_blocks
from posteriori.softmax.flat import FlatPrior
from posteriori.softmax.jeffreys import JeffreysPrior
from posteriori.softmax.mode import SolveSettings
from posteriori.softmax.predictive import PREDICTIVES
from posteriori.softmax.priors import WEAK, GaussianPrior, Prior, PriorOfColumns
from posteriori.softmax.searched import ArdPrior, EvidencePrior
from posteriori.softmax.settings import solve_settings

__all__ = ["BayesianSettings", "bayesian_settings", "prior_from"]

_APPROXIMATIONS = ("auto", "laplace", "variational", "importance")
_POSTERIORS = ("auto", "full", "classes", "kronecker", "diagonal")
_PRIORS: dict[str, type[Prior]] = {
    "evidence": EvidencePrior,
    "ard": ArdPrior,
    "blocks": BlocksPrior,
    "flat": FlatPrior,
    "jeffreys": JeffreysPrior,
}


@dataclass(frozen=True)
class BayesianSettings:
    """The checked settings of a Bayesian estimator."""

    prior: Prior
    approximation: str
    posterior: str
    fit_intercept: bool
    n_draws: int
    seed: int
    solve: SolveSettings

    def for_columns(self, names: list[str] | None, shape: tuple[int, int]) -> BayesianSettings:
        """The settings with a prior that knows the columns, and the shape (K, D) of their weights, if it has to."""
        if not isinstance(self.prior, PriorOfColumns):
            return self
        return replace(self, prior=self.prior.for_columns(names, shape))


def bayesian_settings(estimator: Any) -> BayesianSettings:
    """The settings of a Bayesian estimator, from its constructor's arguments."""
    solve = solve_settings(estimator)
    require_choice("approximation", estimator.approximation, _APPROXIMATIONS)
    require_choice("posterior", estimator.posterior, _POSTERIORS)
    require_choice("predictive", estimator.predictive, ("auto", *PREDICTIVES))
    require_count("n_nodes", estimator.n_nodes, 2)
    require_count("n_draws", estimator.n_draws, 2)
    noise = estimator.label_noise
    if not (noise is None or noise == "estimate" or (is_number(noise) and 0 <= float(noise) < 1)):
        raise ValueError(f"label_noise={noise!r} must be None, 'estimate' or a rate from 0 to below 1.")
    prior = prior_from(estimator.prior)
    structures = {"variational": ("kronecker",), "importance": ("classes", "kronecker", "diagonal")}
    if estimator.posterior in structures.get(estimator.approximation, ()):
        others = "'full', 'classes' or 'diagonal'" if estimator.approximation == "variational" else "'full'"
        raise ValueError(
            f"approximation={estimator.approximation!r} needs a full posterior, and posterior={estimator.posterior!r} "
            f"was asked for: use approximation='laplace', or posterior={others}."
        )
    seed = seed_from(estimator.random_state)
    return BayesianSettings(
        prior=prior,
        approximation=estimator.approximation,
        posterior=estimator.posterior,
        fit_intercept=bool(estimator.fit_intercept),
        n_draws=int(estimator.n_draws),
        seed=seed,
        solve=replace(solve, random_state=seed),
    )


def prior_from(given: Any) -> Prior:
    """The prior that a name, a number or an object stands for."""
    if isinstance(given, str):
        require_choice("prior", given, _PRIORS, others=", a number or a GaussianPrior")
        return _PRIORS[given]()
    if is_number(given):
        if not 0 <= float(given) < np.inf:
            raise ValueError(
                f"prior={given!r} must be a positive precision, or 0. For maximum likelihood use prior='flat', for a "
                "flat prior that stays finite prior='jeffreys'."
            )
        return GaussianPrior(precision=float(given)) if given > 0 else FlatPrior(intercept_precision=WEAK)
    if isinstance(given, type) or not isinstance(given, Prior):
        raise ValueError(f"prior={given!r} must be one of {[*_PRIORS]}, a number or a GaussianPrior.")
    if isinstance(given, GaussianPrior) and given.blocks is not None and given.precision is None:
        return searched_blocks(given)
    return given
