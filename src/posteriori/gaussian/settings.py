"""The settings of a Gaussian classifier: its constructor's arguments, checked when a fit begins."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriori.gaussian.niw import Estimate, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.structure import Structure
from posteriori.gaussian.structures import STRUCTURES
from posteriori.parameters import is_number, numbers_by_class, require_choice, require_device, require_jobs, seed_from
from posteriori.threads import usable_threads

__all__ = ["GaussianSettings", "gaussian_settings", "structures_asked_for", "validate_gaussian"]

_ESTIMATES = ("mle", "map", "bayes")
_PRIORS = ("predictive", "evidence")


@dataclass(frozen=True)
class GaussianSettings:
    """The constructor's arguments, checked, for given classes."""

    structures: tuple[Structure, ...]
    estimate: Estimate
    prior: Any
    class_prior: np.ndarray | None
    concentration: float
    n_threads: int

    def frequencies(self, counts: np.ndarray) -> np.ndarray:
        """Class frequencies, (K,) or (n, K), up to a factor: as given, or from the counts of rows."""
        if self.class_prior is not None:
            return np.broadcast_to(self.class_prior, counts.shape)
        extra = {"mle": 0.0, "map": self.concentration - 1.0, "bayes": self.concentration}[self.estimate]
        return np.maximum(counts + extra, 0.0)


def validate_gaussian(estimator: Any) -> None:
    """Raise unless the constructor's arguments make sense, whatever the data."""
    require_choice("covariance", estimator.covariance, ("auto", *STRUCTURES))
    require_choice("estimate", estimator.estimate, _ESTIMATES)
    prior = estimator.prior
    objects = (NormalInverseWishartPrior, RidgePrior)
    if not (isinstance(prior, objects) or (isinstance(prior, str) and prior in _PRIORS)):
        raise ValueError(f"prior={prior!r} must be one of {[*_PRIORS]}, a NormalInverseWishartPrior or a RidgePrior.")
    if isinstance(prior, objects):
        if estimator.estimate == "mle":
            raise ValueError("estimate='mle' uses no prior: leave prior out, or use estimate='map' or 'bayes'.")
        a = prior.concentration
        if not is_number(a) or not 0.0 < float(a) < np.inf:
            raise ValueError(f"The prior's concentration is {a!r}: it must be a positive number.")
    if isinstance(prior, RidgePrior):
        if estimator.estimate != "map":
            raise ValueError(
                "A RidgePrior gives no predictive distribution in closed form: use it with estimate='map'."
            )
        if estimator.covariance == "auto":
            raise ValueError(f"RidgePrior needs a covariance structure: choose one of {[*STRUCTURES]}.")
        if not is_number(prior.strength) or not 0.0 <= float(prior.strength) < np.inf:
            raise ValueError(f"The prior's strength is {prior.strength!r}: it must be zero or a positive number.")
    require_jobs(estimator.n_jobs)
    require_device(estimator.device)
    seed_from(estimator.random_state)


def gaussian_settings(estimator: Any, classes: np.ndarray, D: int) -> GaussianSettings:
    """The settings for these classes and so many features; later changes of the estimator do not reach them."""
    prior = copy(estimator.prior)
    if isinstance(prior, NormalInverseWishartPrior):
        prior.origin(D)
    return GaussianSettings(
        structures=structures_asked_for(estimator.covariance),
        estimate=estimator.estimate,
        prior=prior,
        class_prior=_class_prior(estimator.class_prior, classes),
        concentration=float(getattr(prior, "concentration", 1.0)),
        n_threads=usable_threads(estimator.n_jobs),
    )


def structures_asked_for(covariance: str) -> tuple[Structure, ...]:
    """The structures among which `covariance` leaves the choice: all of them, or the one that it names."""
    return tuple(structure for structure in STRUCTURES.values() if covariance in ("auto", structure.name))


def _class_prior(given: Any, classes: np.ndarray) -> np.ndarray | None:
    """Class probabilities in the order of the classes, or None."""
    if given is None:
        return None
    prior = numbers_by_class("class_prior", given, classes)
    if not ((prior >= 0.0).all() and abs(prior.sum() - 1.0) < 1e-6):
        raise ValueError(f"class_prior must be probabilities that sum to one, got {prior.tolist()}.")
    return prior / prior.sum()
