"""What Gaussian classes would have predicted for each row of a fit without it: exactly, for their prior and structure.

A row leaves the statistics of its class, and the part of the prior that was drawn from the rows (`gaussian.left_out`).
What stays is the choice of the structure and the strength of the prior, which every row had a small say in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax

from posteriori.gaussian.choice import left_out_log_joint, prior_of, weakest_prior
from posteriori.gaussian.coordinates import StandardisedStatistics
from posteriori.gaussian.fit import GaussianFit
from posteriori.gaussian.left_out import RowsToLeaveOut
from posteriori.gaussian.niw import NormalInverseWishartPrior, RidgePrior, WishartPrior
from posteriori.gaussian.settings import gaussian_settings
from posteriori.gaussian.statistics import ClassMoments
from posteriori.left_out.leaving import ByFormula
from posteriori.left_out.result import surprise
from posteriori.left_out.rows import FitRows
from posteriori.rows.products import as_dense
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.gaussian.classifier import GaussianClassifier

__all__ = ["gaussian_left_out"]

_WORK = 2e9
"""Products spent on leaving rows out: a random sample of them if all would cost more."""
_LARGEST_SHARE = 0.5
"""The share of the rows of its class that a row may be: without it there is hardly a class."""
_LIMIT = 1.0
"""Nats of surprise from which on a row has had a say in the strength of a prior that was chosen."""
_SAME = 1e-6


def gaussian_left_out(model: GaussianClassifier, rows: FitRows) -> ByFormula | None:
    """The rows of a fit left out; None under a ridge prior, and where rows have soft labels."""
    if isinstance(model.prior, RidgePrior) or not rows.has_labels:
        return None
    fitted, statistics = model.fitted_, model.seen_.statistics
    densities = fitted.densities
    standardised = StandardisedStatistics(
        statistics, densities.origin, densities.covariance_structure, densities.space
    )  # fmt: skip
    structure = standardised.structure
    K, D = statistics.means.shape
    rows = rows.at_most(max(500, int(_WORK / (K * structure.left_out_work(len(standardised.unit))))))
    codes = rows.Y.argmax(axis=1)
    if len(rows.numbers) == rows.n_rows:
        _require_same(np.bincount(codes, rows.weights, minlength=K), statistics.counts)
    left = RowsToLeaveOut(standardised.rows(as_dense(rows.matrix())), codes, rows.removed, rows.weights)
    settings = gaussian_settings(model, model.classes_, D)
    with one_blas_thread():
        joint = left_out_log_joint(
            standardised.statistics, _prior(fitted, standardised, statistics), structure, left, settings
        )
    log_p = log_softmax(joint, axis=1)
    doubt = rows.removed / np.maximum(statistics.counts[codes], 1e-300) / _LARGEST_SHARE
    if fitted.solution.hyperparameters:
        doubt = np.maximum(doubt, surprise(log_p, rows.Y))
    return ByFormula(log_p, doubt, _LIMIT, "in closed form", rows)


def _prior(fitted: GaussianFit, standardised: StandardisedStatistics, statistics: ClassMoments) -> WishartPrior:
    """The prior as it was chosen, with what it takes from the rows, or as it was given."""
    structure = standardised.structure
    if fitted.prior is None:
        return weakest_prior(structure, standardised.statistics)
    chosen = fitted.solution.hyperparameters
    if not chosen:
        assert isinstance(fitted.prior, NormalInverseWishartPrior)
        return standardised.prior(fitted.prior)
    with np.errstate(divide="ignore"):
        x = np.log([chosen[name] for name in ("kappa", "dof", "pooled", "spread")])
    return prior_of(x, structure, len(standardised.unit), float(statistics.counts.sum()))


def _require_same(counts: np.ndarray, of_fit: np.ndarray) -> None:
    """Raise where classes have other weights than in the fit."""
    if not np.allclose(counts, of_fit, rtol=_SAME, atol=_SAME):
        raise ValueError(
            f"These are not the rows of the fit: their classes weigh {counts.tolist()}, and in the fit "
            f"they weighed {of_fit.tolist()}. Pass the same rows, labels and weights as to fit."
        )
