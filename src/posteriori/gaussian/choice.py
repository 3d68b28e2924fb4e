r"""The choice of prior and covariance structure, by how well every row is predicted from all others.

.. math:: \sum_n c_n \log p(y_n \mid x_n, \text{the other rows})

is known in closed form (`left_out`) and judges what a classifier is for, y given x. The joint evidence judges the
model of x as well, which often weighs more; it is available, but not the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from posteriori.gaussian.coordinates import StandardisedStatistics, standardise
from posteriori.gaussian.left_out import RowsToLeaveOut, left_out_log_density
from posteriori.gaussian.niw import NormalInverseWishartPrior, WishartPrior, log_evidence
from posteriori.gaussian.settings import GaussianSettings
from posteriori.gaussian.statistics import ClassMoments, ClassStatistics
from posteriori.gaussian.structure import Structure
from posteriori.solvers.search import search
from posteriori.threads import run_tasks

__all__ = ["Candidate", "Choice", "KeptRows", "choose", "left_out_log_joint", "prior_of", "weakest_prior"]

# Hyperparameters (kappa, v, pooled, spread): the rows that the prior mean is worth; the degrees of freedom of the
# prior's own predictive; the prior covariance, in multiples of that within classes and of the variances of all rows.
_CENTRE = np.log([0.1, 10.0, 1.0, 0.1])
_BELIEF = np.array([3.0, 3.0, 2.0, 3.0])
"""Standard deviations of a weak belief about their logarithms, for rows that hardly determine them."""
_BOUNDS = (np.log([1e-4, 1e-2, 1e-3, 1e-7]), np.log([1e4, 1e6, 1e3, 1e3]))
_STARTS = [np.log([kappa, v, 1.0, 0.1]) for kappa, v in ((0.1, 3), (0.1, 30), (0.1, 300), (2, 3), (2, 300))]
_JOINT = [0, 1, 3]
"""Positions of those that the joint evidence chooses: it may not judge a prior by the rows that made it."""
_SMALLEST_SPREAD = 1e-3
"""Bound on the prior covariance when it is chosen by the joint evidence, which can grow without end as it falls."""

_LEFT_OUT_WORK = 1e8
"""Products spent to leave out every row once; where all rows would cost more, a sample is left out."""
_FEWEST_LEFT_OUT, _MOST_LEFT_OUT = 500, 4000
_ROWS_TO_SHARE = 256
"""Rows for which one more thread pays."""


@dataclass(frozen=True)
class KeptRows:
    """A random sample of the rows, by which priors are judged; the fields are those of stored files."""

    X: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    n_seen: int

    def merged(self, other: KeptRows, most: int, rng: np.random.Generator) -> KeptRows:
        """A sample of at most so many rows from both, as if drawn from all rows at once."""
        a, b = len(self.codes), len(other.codes)
        rows = np.arange(a + b)
        if a + b > most:
            of_mine = int(rng.hypergeometric(self.n_seen, other.n_seen, most))
            of_mine = min(max(of_mine, most - b), a)
            rows = np.concatenate([rng.permutation(a)[:of_mine], a + rng.permutation(b)[: most - of_mine]])
        return KeptRows(
            np.concatenate([self.X, other.X])[rows],
            np.concatenate([self.codes, other.codes])[rows],
            np.concatenate([self.weights, other.weights])[rows],
            self.n_seen + other.n_seen,
        )

    def without_rows(self) -> KeptRows:
        """An empty sample of as many rows seen: rows are not stored."""
        none = slice(0, 0)
        return KeptRows(self.X[none].copy(), self.codes[none], self.weights[none], self.n_seen)

    def at_most(self, most: int) -> KeptRows:
        """A sample of at most so many of these rows."""
        if len(self.codes) <= most:
            return self
        rows = np.sort(np.random.default_rng(0).choice(len(self.codes), most, replace=False))
        return KeptRows(self.X[rows], self.codes[rows], self.weights[rows], self.n_seen)


@dataclass(frozen=True)
class Candidate:
    """A structure with its prior, in the coordinates of the statistics, and its losses on left-out rows."""

    structure: Structure
    standardised: StandardisedStatistics
    prior: WishartPrior
    hyperparameters: dict[str, float]
    losses: np.ndarray | None
    n_evaluations: int


@dataclass(frozen=True)
class Choice:
    """The candidate that was chosen, and the reason."""

    candidate: Candidate
    reason: str
    scores: dict[str, float]
    margin: float | None
    n_left_out: int
    n_evaluations: int


def choose(statistics: ClassMoments, kept: KeptRows, settings: GaussianSettings) -> Choice:
    """Choose the prior of each structure, then the simplest structure within one standard error of the best.

    See docs/theory.md, section 5.4.
    """
    K, D = statistics.means.shape
    work = K * max(structure.left_out_work(D) for structure in settings.structures)
    kept = kept.at_most(int(np.clip(_LEFT_OUT_WORK / work, _FEWEST_LEFT_OUT, _MOST_LEFT_OUT)))
    several = len(settings.structures) > 1
    candidates = [_candidate(statistics, structure, kept, settings, several) for structure in settings.structures]
    n_evaluations = sum(candidate.n_evaluations for candidate in candidates)
    scores: dict[str, float] = {
        candidate.structure.name: float(np.average(candidate.losses, weights=kept.weights))
        for candidate in candidates
        if candidate.losses is not None
    }
    n_left_out = len(kept.codes) if scores else 0
    if not several:
        return Choice(candidates[0], "as asked for", scores, None, n_left_out, n_evaluations)
    candidates = [candidate for candidate in candidates if np.isfinite(scores[candidate.structure.name])]
    if not candidates:
        raise ValueError("X holds values so large that no left-out row can be judged by their squares: rescale it.")
    candidates.sort(key=lambda candidate: candidate.structure.n_parameters(K, D))
    best = min(candidates, key=lambda candidate: scores[candidate.structure.name])
    chosen = next(candidate for candidate in candidates if _as_good(candidate, best, kept.weights))
    others = [scores[other.structure.name] for other in candidates if other is not chosen]
    margin = min(others) - scores[chosen.structure.name] if others else None
    reason = "it predicts left-out rows best"
    if chosen is not best:
        reason = (
            f"the simplest within one standard error of the best, {best.structure.name}, in predicting left-out rows"
        )
    return Choice(chosen, reason, scores, margin, n_left_out, n_evaluations)


def _as_good(candidate: Candidate, best: Candidate, weights: np.ndarray) -> bool:
    """Whether the difference in loss is within its standard error."""
    assert candidate.losses is not None
    assert best.losses is not None
    difference = candidate.losses - best.losses
    mean = np.average(difference, weights=weights)
    spread = np.hypot.reduce(np.sqrt(weights) * (difference - mean))  # losses of 1e200 have no square
    error = spread / weights.sum()  # a weight of two is two rows
    return bool(mean <= error)


def _candidate(
    statistics: ClassMoments, structure: Structure, kept: KeptRows, settings: GaussianSettings, scored: bool
) -> Candidate:
    """The structure with the prior that was asked for, or the best one, and its losses where they are needed."""
    given = settings.prior if isinstance(settings.prior, NormalInverseWishartPrior) else None
    standardised = standardise(statistics, structure, given)
    in_coordinates, D = standardised.structure, len(standardised.unit)
    n_parts = max(1, min(4, len(kept.codes) // _ROWS_TO_SHARE))
    rows = RowsToLeaveOut(standardised.rows(kept.X), kept.codes, np.minimum(kept.weights, 1.0), kept.weights)

    parts = [slice(a, b) for a, b in pairwise(np.linspace(0, len(rows.codes), n_parts + 1).astype(int))]

    def losses(prior: WishartPrior) -> np.ndarray:
        def task(i: int) -> np.ndarray:
            return _left_out_losses(standardised.statistics, prior, in_coordinates, rows.part(parts[i]), settings)

        return np.concatenate(run_tasks(task, len(parts), settings.n_threads))

    if settings.estimate == "mle":
        prior = weakest_prior(in_coordinates, standardised.statistics)
        return Candidate(structure, standardised, prior, {}, losses(prior) if scored else None, 0)
    if given is not None:
        prior = standardised.prior(given)
        return Candidate(structure, standardised, prior, {}, losses(prior) if len(kept.codes) else None, 0)
    N = float(statistics.counts.sum())
    if settings.prior == "evidence":
        bounds = (_BOUNDS[0][_JOINT], _BOUNDS[1][_JOINT])
        bounds[0][-1] = np.log(_SMALLEST_SPREAD)

        def objective(x: np.ndarray) -> float:
            prior = prior_of(np.insert(x, 2, -np.inf), in_coordinates, D, N)
            return -log_evidence(standardised.statistics, prior, in_coordinates, None)

        found = search(objective, [start[_JOINT] for start in _STARTS], bounds)
        x = np.insert(found.x, 2, -np.inf)
    else:
        scale = N / max(float(kept.weights.sum()), 1e-300)

        def objective(x: np.ndarray) -> float:
            loss = scale * float(kept.weights @ losses(prior_of(x, in_coordinates, D, N)))
            return loss + 0.5 * float(np.sum(((x - _CENTRE) / _BELIEF) ** 2))

        found = search(objective, _STARTS, _BOUNDS)
        x = found.x
    prior = prior_of(x, in_coordinates, D, N)
    hyperparameters = dict(zip(("kappa", "dof", "pooled", "spread"), np.exp(x).tolist(), strict=True))
    final = losses(prior) if len(kept.codes) else None
    return Candidate(structure, standardised, prior, hyperparameters, final, found.n_evaluations)


def prior_of(x: np.ndarray, structure: Structure, D: int, N: float) -> WishartPrior:
    """The prior with these logarithms of (kappa, v, pooled, spread)."""
    kappa, v, pooled, spread = np.exp(x)
    nu = v + structure.dimension(D) - 1.0
    return WishartPrior(kappa, nu, structure.isotropic(v * spread, D), v * pooled / N)


def weakest_prior(structure: Structure, statistics: ClassStatistics) -> WishartPrior:
    """The prior that is nothing but a ridge, so that singular classes can be compared too."""
    level = structure.ridge * statistics.counts.sum() / len(statistics.counts)
    return WishartPrior(0.0, 0.0, structure.isotropic(level, statistics.means.shape[1]), 0.0)


def _left_out_losses(
    statistics: ClassStatistics,
    prior: WishartPrior,
    structure: Structure,
    rows: RowsToLeaveOut,
    settings: GaussianSettings,
) -> np.ndarray:
    """-log p(y_n | x_n, the other rows), (n,); zero where no other row of the class is known, none believed in."""
    log_frequency, at = _left_out_frequencies(statistics, rows, settings), np.arange(len(rows.codes))
    joint = log_frequency + left_out_log_density(statistics, prior, structure, settings.estimate, rows)
    losses = np.zeros(len(at))
    known = np.isfinite(log_frequency[at, rows.codes])
    losses[known] = logsumexp(joint[known], axis=1) - joint[known, rows.codes[known]]
    return losses


def _left_out_frequencies(statistics: ClassStatistics, rows: RowsToLeaveOut, settings: GaussianSettings) -> np.ndarray:
    """The logarithms of the class frequencies without each row, (n, K), up to a number for each row."""
    at = np.arange(len(rows.codes))
    counts = np.tile(statistics.counts, (len(at), 1))
    counts[at, rows.codes] -= rows.removed
    with np.errstate(divide="ignore"):
        return np.log(settings.frequencies(counts))


def left_out_log_joint(
    statistics: ClassStatistics,
    prior: WishartPrior,
    structure: Structure,
    rows: RowsToLeaveOut,
    settings: GaussianSettings,
) -> np.ndarray:
    """log p(x_n, k | the other rows) up to a number for each row, (n, K)."""
    log_frequency = _left_out_frequencies(statistics, rows, settings)
    return log_frequency + left_out_log_density(statistics, prior, structure, settings.estimate, rows)
