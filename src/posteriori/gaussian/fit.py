"""From class statistics to a fitted Gaussian classifier: densities, parameters, evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import lapack

from posteriori.gaussian.choice import RIDGE, Choice, KeptRows, Standardised, choose
from posteriori.gaussian.densities import ClassDensities, class_densities, log_likelihood
from posteriori.gaussian.niw import NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.ridge import ridge_means
from posteriori.gaussian.settings import GaussianSettings
from posteriori.gaussian.statistics import ClassStatistics
from posteriori.gaussian.structures import (
    NO_PRIOR,
    Belief,
    Estimate,
    Structure,
    divisor,
    is_tied,
    log_evidence,
    n_parameters,
    prior_scale,
    shape,
    updated,
)
from posteriori.solvers.solution import FitRecord, Status

__all__ = ["GaussianFit", "GaussianSolution", "fit_gaussian"]

_SINGULAR = 1e-11
"""Smallest eigenvalue of a regular covariance, its variances brought to one."""
_CONSTANT = 1e-28
"""Variance that is due to rounding, in units of that of all rows."""


@dataclass(frozen=True)
class GaussianSolution(FitRecord):
    """How a Gaussian classifier was fitted.

    Attributes
    ----------
    structure, structure_reason : str
        The covariance structure, and why it was chosen.
    scores : dict of str to float
        Conditional log-loss of left-out rows, in nats per row, of each structure that was looked at.
    margin : float or None
        By how much the score of the chosen structure is below that of the next best; negative where a simpler one was
        chosen that is as good within a standard error.
    hyperparameters : dict of str to float
        Of a prior that was sought: `kappa`, the rows that its mean is worth; `dof`, the degrees of freedom of its own
        predictive; `pooled` and `spread`, its covariance in multiples of that within classes and of the variances of
        all rows.
    ridges : dict of class to float
        Added to the variances of classes that are singular under maximum likelihood, in units of those of all rows.
    n_left_out : int
        Rows that were left out in turn.
    n_evaluations : int
        Priors tried, over all structures.
    converged : bool
        False where the means and covariances of a `RidgePrior` had not settled.
    n_passes : int
        Over the data.
    """

    structure: Structure
    structure_reason: str
    scores: dict[str, float] = field(default_factory=dict)
    margin: float | None = None
    hyperparameters: dict[str, float] = field(default_factory=dict)
    ridges: dict[Any, float] = field(default_factory=dict)
    n_left_out: int = 0
    n_evaluations: int = 0
    converged: bool = True
    n_passes: int = 1
    seconds: float | None = field(default=None, repr=False, compare=False)

    objective: ClassVar[None] = None
    """The fit is in closed form."""
    trace: ClassVar[tuple[()]] = ()

    @property
    def status(self) -> Status:
        """How the fit ended."""
        return Status.CONVERGED if self.converged else Status.ITERATION_LIMIT

    @property
    def n_iter(self) -> int:
        """Priors tried."""
        return self.n_evaluations


@dataclass(frozen=True)
class GaussianFit:
    """A fitted classifier, without its interface."""

    densities: ClassDensities
    means: np.ndarray
    covariances: np.ndarray
    class_prior: np.ndarray
    prior: NormalInverseWishartPrior | RidgePrior | None
    log_evidence: float
    solution: GaussianSolution


def fit_gaussian(
    statistics: ClassStatistics, kept: KeptRows, settings: GaussianSettings, classes: np.ndarray
) -> GaussianFit:
    """Choose structure and prior where they are left open, and derive everything from them."""
    frequencies = settings.frequencies(statistics.counts)
    class_prior = frequencies / frequencies.sum()
    if isinstance(settings.prior, RidgePrior):
        return _fit_ridge(statistics, settings, settings.prior, class_prior, classes)
    choice = choose(statistics, kept, settings)
    candidate, standardised = choice.candidate, choice.candidate.standardised
    if settings.estimate == "mle":
        belief, ridges = _regular(updated(standardised.statistics, NO_PRIOR, candidate.structure), classes)
        solution = _solution(choice, ridges)
        return _gaussian(statistics, standardised, belief, class_prior, None, settings, solution)
    belief = updated(standardised.statistics, candidate.prior, candidate.structure)
    means, covariances = _parameters(belief, settings.estimate, standardised)
    given = settings.class_prior is not None
    evidence = log_evidence(
        standardised.statistics,
        candidate.prior,
        candidate.structure,
        settings.class_prior if given else settings.concentration,
    )
    return GaussianFit(
        class_densities(belief, settings.estimate, _log(class_prior), standardised.origin, 1.0 / standardised.unit),
        means,
        covariances,
        class_prior,
        _in_data_units(choice, settings),
        evidence - _log_units(standardised),
        _solution(choice, {}),
    )


def _fit_ridge(
    statistics: ClassStatistics,
    settings: GaussianSettings,
    prior: RidgePrior,
    class_prior: np.ndarray,
    classes: np.ndarray,
) -> GaussianFit:
    """The mode under the ridge prior on the means."""
    (structure,) = settings.structures
    standardised = Standardised(statistics, None, structure)
    centre, precision = -standardised.origin / standardised.unit, 2.0 * prior.strength * standardised.unit**2
    belief, converged = ridge_means(standardised.statistics, structure, centre, precision)
    belief, ridges = _regular(belief, classes)
    solution = GaussianSolution(structure, "as asked for", ridges=ridges, converged=converged)
    return _gaussian(statistics, standardised, belief, class_prior, prior, settings, solution)


def _gaussian(
    statistics: ClassStatistics,
    standardised: Standardised,
    belief: Belief,
    class_prior: np.ndarray,
    prior: RidgePrior | None,
    settings: GaussianSettings,
    solution: GaussianSolution,
) -> GaussianFit:
    """Densities at one estimate; for want of a prior on the covariances the evidence is Schwarz's approximation."""
    densities = class_densities(belief, "mle", _log(class_prior), standardised.origin, 1.0 / standardised.unit)
    means, covariances = _parameters(belief, "mle", standardised)
    K, D = means.shape
    n = n_parameters(belief.structure, K, D) + K * D + (0 if settings.class_prior is not None else K - 1)
    evidence = log_likelihood(statistics, densities) - 0.5 * n * np.log(max(statistics.counts.sum(), 1.0))
    return GaussianFit(densities, means, covariances, class_prior, prior, float(evidence), solution)


def _solution(choice: Choice, ridges: dict[Any, float]) -> GaussianSolution:
    return GaussianSolution(
        choice.candidate.structure,
        choice.reason,
        choice.scores,
        choice.margin,
        choice.candidate.hyperparameters,
        ridges,
        choice.n_left_out,
        choice.n_evaluations,
    )


def _regular(belief: Belief, classes: np.ndarray) -> tuple[Belief, dict[Any, float]]:
    """The belief with a ridge on covariances that have no inverse, and the classes concerned.

    A class or feature without rows gets the mean and the variances of all rows.
    """
    D = belief.means.shape[1]
    unseen = belief.nu <= 0.0
    nu = np.where(unseen, 1.0, belief.nu)
    Psi = belief.Psi.copy()
    ridges, ridge = np.zeros(len(Psi)), RIDGE[shape(belief.structure)]
    if shape(belief.structure) == "full":
        for j, M in enumerate(Psi):
            ridges[j] = 1.0 if unseen[j].any() else 0.0 if _is_regular(M, float(nu[j, 0])) else ridge
            M[np.diag_indices(D)] += ridges[j] * nu[j]
    else:
        each = np.where(unseen, 1.0, np.where(Psi > _CONSTANT * nu, 0.0, ridge))
        Psi += each * nu
        ridges = np.broadcast_to(each, Psi.shape).max(axis=1)
    labels = classes.tolist()
    named = labels if len(ridges) == len(labels) else [tuple(labels)] if len(labels) <= 10 else ["all classes"]
    found = {label: float(ridge) for label, ridge in zip(named, ridges, strict=True) if ridge > 0.0}
    return Belief(belief.structure, belief.kappa, belief.means, nu, Psi), found


def _is_regular(M: np.ndarray, n: float) -> bool:
    """Whether the scatter of n rows is positive definite by more than rounding, whatever the units of its rows."""
    diagonal = M.diagonal()
    if not (diagonal > _CONSTANT * n).all():
        return False
    unit = 1.0 / np.sqrt(diagonal)
    scaled = M * unit * unit[:, None]
    scaled[np.diag_indices_from(scaled)] -= _SINGULAR
    return bool(lapack.dpotrf(scaled, lower=1)[1] == 0)


def _parameters(belief: Belief, estimate: Estimate, standardised: Standardised) -> tuple[np.ndarray, np.ndarray]:
    """Means (K, D) and covariances in the data's units: the joint mode of the belief."""
    structure, unit = belief.structure, standardised.unit
    K, D = belief.means.shape
    div = divisor(structure, "map" if estimate == "bayes" else estimate, belief.nu, D, K)
    if shape(structure) == "full":
        covariances = belief.Psi / np.asarray(div)[:, :, None] * (unit * unit[:, None])
    elif shape(structure) == "diagonal":
        covariances = belief.Psi / div * unit**2
    else:
        covariances = (belief.Psi / div)[:, 0] * unit[0] ** 2
    return belief.means * unit + standardised.origin, covariances[0] if is_tied(structure) else covariances


def _in_data_units(choice: Choice, settings: GaussianSettings) -> NormalInverseWishartPrior:
    """The prior as a user would state it."""
    candidate = choice.candidate
    unit = candidate.standardised.unit
    Psi = prior_scale(candidate.standardised.statistics, candidate.prior, candidate.structure)
    scale: Any
    if shape(candidate.structure) == "full":
        scale = Psi * (unit * unit[:, None])
    elif shape(candidate.structure) == "diagonal":
        scale = Psi * unit**2
    else:
        scale = float(Psi * unit[0] ** 2)
    return NormalInverseWishartPrior(
        candidate.standardised.origin.copy(),
        float(candidate.prior.kappa),
        float(candidate.prior.nu),
        scale,
        settings.concentration,
    )


def _log_units(standardised: Standardised) -> float:
    """The logarithm of |dx/dz| over all values."""
    n = standardised.statistics.present
    K, D = standardised.statistics.means.shape
    return float(np.broadcast_to(n, (K, D)).sum(axis=0) @ np.log(standardised.unit))


def _log(probabilities: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probabilities)
