"""From class statistics to a fitted Gaussian classifier: densities, parameters, evidence."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from posteriori.exceptions import ConvergenceWarning, SingularWarning
from posteriori.gaussian.choice import Choice, KeptRows, choose
from posteriori.gaussian.coordinates import StandardisedStatistics
from posteriori.gaussian.densities import ClassDensities, class_densities, log_likelihood
from posteriori.gaussian.niw import (
    NO_PRIOR,
    Belief,
    Estimate,
    NormalInverseWishartPrior,
    RidgePrior,
    log_evidence,
    mode_divisor,
    prior_scale,
    updated,
)
from posteriori.gaussian.ridge import ridge_mode
from posteriori.gaussian.row_posterior import RowPosterior
from posteriori.gaussian.settings import GaussianSettings
from posteriori.gaussian.statistics import ClassMoments
from posteriori.gaussian.structures import structures_for
from posteriori.parameters import first_names
from posteriori.solvers.solution import FitRecord, Status
from posteriori.threads import one_blas_thread

__all__ = ["MOST_SCATTER", "GaussianFit", "GaussianSolution", "SeenRows", "fit_gaussian"]

_MOST_WORK = 2e9
"""Products for the matrices of all classes, K D^3, up to which "auto" considers them if rows are fewer than columns."""
MOST_SCATTER = 5e7
"""Numbers in all scatter matrices that covariance="auto" will keep."""


@dataclass(frozen=True)
class GaussianSolution(FitRecord):
    """The record of a fit of a Gaussian classifier.

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
        Hyperparameters of a prior that was chosen: `kappa`, the rows that its mean is worth; `dof`, the degrees of
        freedom of its own predictive; `pooled` and `spread`, its covariance in multiples of that within classes and of
        the variances of all rows.
    ridges : dict of class to float
        Numbers added to the variances of singular classes under maximum likelihood, in units of those of all rows.
    n_left_out : int
        Rows that were left out in turn.
    n_evaluations : int
        Priors tried, over all structures.
    converged : bool
        False where the means and covariances of a `RidgePrior` had not settled.
    n_passes : int
        The number of passes over the data.
    """

    structure: str
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
    """None, as the fit is in closed form."""
    trace: ClassVar[tuple[()]] = ()

    @property
    def status(self) -> Status:
        """The status with which the fit ended."""
        return Status.CONVERGED if self.converged else Status.ITERATION_LIMIT

    @property
    def n_iter(self) -> int:
        """The number of priors tried."""
        return self.n_evaluations


@dataclass(frozen=True)
class GaussianFit:
    """A fitted classifier, without its interface; the fields are those of stored files.

    Attributes
    ----------
    densities : ClassDensities
        The densities with which predictions are made.
    means, covariances, class_prior : ndarray
        The parameters, in the units of the data; covariances in the coordinates of the densities' row space, if any.
    prior : NormalInverseWishartPrior, RidgePrior or None
        The prior as used, in the units of the data; its scale in the same coordinates.
    log_evidence : float
    solution : GaussianSolution
    """

    densities: ClassDensities
    means: np.ndarray
    covariances: np.ndarray
    class_prior: np.ndarray
    prior: NormalInverseWishartPrior | RidgePrior | None
    log_evidence: float
    solution: GaussianSolution

    @property
    def covariances_of_features(self) -> np.ndarray:
        """The covariances of the features, in the shape of `covariances_`."""
        space = self.densities.space
        if space is None:
            return self.covariances
        if self.covariances.ndim == 2:
            return space.matrix(self.covariances)
        return np.stack([space.matrix(M) for M in self.covariances])

    @property
    def prior_of_features(self) -> NormalInverseWishartPrior | RidgePrior | None:
        """The prior as a user would state it, in the units of the data."""
        space = self.densities.space
        if space is None or not isinstance(self.prior, NormalInverseWishartPrior):
            return self.prior
        return replace(self.prior, scale=space.matrix(self.prior.scale))


@dataclass(frozen=True)
class SeenRows:
    """All that a classifier keeps of the rows it has seen, and the fit that follows from it.

    To choose a prior takes far longer than to add rows to the statistics, so `partial_fit` derives no fit: the fit is
    derived when it is first read, and kept here. As this object is not changed but replaced when more rows come, a
    prediction changes no attribute of the classifier, and the fit is that of the parameters at the last `partial_fit`.

    Attributes
    ----------
    statistics : ClassMoments
    kept : KeptRows
    classes : ndarray (K,)
    settings : GaussianSettings or None
        None for a stored classifier, whose fit is known.
    n_passes : int
        Passes over the data, for `solution_`.
    seconds : float
        Time that these passes took.
    """

    statistics: ClassMoments
    kept: KeptRows
    classes: np.ndarray
    settings: GaussianSettings | None
    n_passes: int = 1
    seconds: float = 0.0

    @classmethod
    def restored(cls, statistics: ClassMoments, kept: KeptRows, classes: np.ndarray, fit: GaussianFit) -> SeenRows:
        """The rows behind a fit that is known."""
        seen = cls(statistics, kept, classes, None)
        vars(seen)["fit"] = fit  # where cached_property keeps it
        return seen

    @cached_property
    def fit(self) -> GaussianFit:
        """The fit to all rows seen."""
        assert self.settings is not None
        began = perf_counter()
        with one_blas_thread():
            fitted = fit_gaussian(self.statistics, self.kept, self.settings, self.classes)
        seconds = self.seconds + perf_counter() - began
        fitted = replace(fitted, solution=replace(fitted.solution, n_passes=self.n_passes, seconds=seconds))
        _warn_if_unsound(fitted.solution)
        return fitted

    def row_posterior(self, *, class_prior_given: bool) -> RowPosterior:
        """The belief about all parameters, from the statistics and the prior as used, where they are integrated out."""
        standardised, prior = self._standardised()
        belief = updated(standardised.statistics, standardised.prior(prior), standardised.structure)
        concentrations = None if class_prior_given else self.statistics.counts + float(prior.concentration)
        return RowPosterior(self.fit.densities, belief, standardised.unit, concentrations)

    def row_prior(self, *, class_prior_given: bool) -> RowPosterior:
        """The belief about all parameters before a row was seen: the prior as used."""
        standardised, prior = self._standardised()
        belief = updated(standardised.statistics.of_no_rows(), standardised.prior(prior), standardised.structure)
        concentrations = np.full(len(self.classes), float(prior.concentration))
        return RowPosterior(
            self.fit.densities, belief, standardised.unit, None if class_prior_given else concentrations
        )

    def _standardised(self) -> tuple[StandardisedStatistics, NormalInverseWishartPrior]:
        """The statistics in the coordinates of the fit, and the prior as used."""
        densities, prior = self.fit.densities, self.fit.prior
        assert isinstance(prior, NormalInverseWishartPrior)
        standardised = StandardisedStatistics(
            self.statistics, densities.origin, densities.covariance_structure, densities.space
        )
        return standardised, prior


def _warn_if_unsound(solution: GaussianSolution) -> None:
    ridges = solution.ridges
    if ridges:
        warnings.warn(
            f"The covariance of {first_names(ridges, 5)} is singular: {max(ridges.values()):g} of all rows' variances "
            "was added to its diagonal (solution_.ridges). Use estimate='bayes' or 'map', which need no ridge.",
            SingularWarning,
            stacklevel=5,
        )
    if not solution.converged:
        warnings.warn(
            "Means and covariances under the ridge prior have not converged: two modes are nearly equal. Use another "
            "strength, or a NormalInverseWishartPrior.",
            ConvergenceWarning,
            stacklevel=5,
        )


def fit_gaussian(
    statistics: ClassMoments, kept: KeptRows, settings: GaussianSettings, classes: np.ndarray
) -> GaussianFit:
    """The fit: structure and prior are chosen where they are left open; everything else follows from them."""
    frequencies = settings.frequencies(statistics.counts)
    class_prior = frequencies / frequencies.sum()
    if isinstance(settings.prior, RidgePrior):
        return _fit_ridge(statistics, settings, settings.prior, class_prior, classes)
    settings, restriction = _restricted(statistics, kept, settings)
    choice = choose(statistics, kept, settings)
    choice = replace(choice, reason=choice.reason + restriction)
    candidate, standardised = choice.candidate, choice.candidate.standardised
    if settings.estimate == "mle":
        belief, ridges = _regular(updated(standardised.statistics, NO_PRIOR, standardised.structure), classes)
        solution = _solution(choice, ridges)
        return _gaussian(statistics, standardised, belief, class_prior, None, settings, solution)
    belief = updated(standardised.statistics, candidate.prior, standardised.structure)
    means, covariances = _parameters(belief, settings.estimate, standardised)
    given = settings.class_prior is not None
    evidence = log_evidence(
        standardised.statistics,
        candidate.prior,
        standardised.structure,
        settings.class_prior if given else settings.concentration,
    )
    return GaussianFit(
        _densities(belief, settings.estimate, class_prior, standardised),
        means,
        covariances,
        class_prior,
        _in_data_units(choice, settings),
        evidence - _log_units(standardised),
        _solution(choice, {}),
    )


def _restricted(statistics: ClassMoments, kept: KeptRows, settings: GaussianSettings) -> tuple[GaussianSettings, str]:
    """The settings with those structures alone that the statistics allow, and why; a structure asked for is kept."""
    if len(settings.structures) == 1:
        return settings, ""
    missing = not statistics.complete or bool(np.isnan(kept.X).any())
    allowed = structures_for(statistics, missing=missing)
    K, D = statistics.means.shape
    few = kept.n_seen < D and K * D**3 > _MOST_WORK and K * D**2 <= MOST_SCATTER
    if few:
        allowed = tuple(structure for structure in allowed if structure.dimension(D) == 1)
    if len(allowed) == len(settings.structures):
        return settings, ""
    why = "only variances are known"
    if missing:
        why = "values are missing"
    elif few:
        why = "for matrices there are too few rows"
    elif K * D**2 > MOST_SCATTER:
        why = "matrices would be too large"
    return replace(settings, structures=allowed), f" ({why})"


def _fit_ridge(
    statistics: ClassMoments,
    settings: GaussianSettings,
    prior: RidgePrior,
    class_prior: np.ndarray,
    classes: np.ndarray,
) -> GaussianFit:
    """The mode under the ridge prior on the means."""
    (structure,) = settings.structures
    standardised = StandardisedStatistics(statistics, None, structure)
    centre, precision = -standardised.origin / standardised.unit, 2.0 * prior.strength * standardised.unit**2
    belief, converged = ridge_mode(standardised.statistics, structure, centre, precision)
    belief, ridges = _regular(belief, classes)
    solution = GaussianSolution(structure.name, "as asked for", ridges=ridges, converged=converged)
    return _gaussian(statistics, standardised, belief, class_prior, prior, settings, solution)


def _gaussian(
    statistics: ClassMoments,
    standardised: StandardisedStatistics,
    belief: Belief,
    class_prior: np.ndarray,
    prior: RidgePrior | None,
    settings: GaussianSettings,
    solution: GaussianSolution,
) -> GaussianFit:
    """Densities at one estimate; without a prior on the covariances the evidence is Schwarz's approximation."""
    densities = _densities(belief, "mle", class_prior, standardised)
    means, covariances = _parameters(belief, "mle", standardised)
    K, D = means.shape
    n = belief.structure.n_parameters(*belief.means.shape) + K * D
    n += 0 if settings.class_prior is not None else K - 1
    evidence = log_likelihood(statistics, densities) - 0.5 * n * np.log(max(statistics.counts.sum(), 1.0))
    return GaussianFit(densities, means, covariances, class_prior, prior, float(evidence), solution)


def _densities(
    belief: Belief, estimate: Estimate, class_prior: np.ndarray, standardised: StandardisedStatistics
) -> ClassDensities:
    """The densities of rows in the units of the data."""
    origin, scale, space = standardised.origin, 1.0 / standardised.unit, standardised.space
    return class_densities(belief, estimate, _log(class_prior), origin, scale, space)


def _solution(choice: Choice, ridges: dict[Any, float]) -> GaussianSolution:
    return GaussianSolution(
        choice.candidate.structure.name,
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
    unseen = belief.nu <= 0.0
    nu = np.where(unseen, 1.0, belief.nu)
    Psi, ridges = belief.structure.with_ridges(belief.Psi, nu, unseen)
    labels = classes.tolist()
    named = labels if len(ridges) == len(labels) else [tuple(labels)] if len(labels) <= 10 else ["all classes"]
    found = {label: float(ridge) for label, ridge in zip(named, ridges, strict=True) if ridge > 0.0}
    return Belief(belief.structure, belief.kappa, belief.means, nu, Psi), found


def _parameters(
    belief: Belief, estimate: Estimate, standardised: StandardisedStatistics
) -> tuple[np.ndarray, np.ndarray]:
    """Means (K, D) in the data's units and covariances in those of the coordinates: the joint mode of the belief."""
    structure = belief.structure
    divisor = mode_divisor(structure, "map" if estimate == "bayes" else estimate, belief.nu, *belief.means.shape)
    return standardised.points(belief.means), structure.covariances(belief.Psi, divisor, standardised.unit)


def _in_data_units(choice: Choice, settings: GaussianSettings) -> NormalInverseWishartPrior:
    """The prior in the units of the data, its scale in those of the coordinates."""
    candidate, standardised = choice.candidate, choice.candidate.standardised
    Psi = prior_scale(standardised.statistics, candidate.prior, standardised.structure)
    scale = standardised.structure.rescaled(Psi, standardised.unit)
    return NormalInverseWishartPrior(
        standardised.origin.copy(),
        float(candidate.prior.kappa),
        float(candidate.prior.nu),
        scale if np.ndim(scale) else float(scale),
        settings.concentration,
    )


def _log_units(standardised: StandardisedStatistics) -> float:
    """The logarithm of |dx/dz| over all values."""
    n, log_unit = standardised.statistics.present, standardised.log_unit
    return float(np.broadcast_to(n, (len(n), len(log_unit))).sum(axis=0) @ log_unit)


def _log(probabilities: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probabilities)
