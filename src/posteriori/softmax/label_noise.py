r"""Labels that may be wrong: y is drawn from (1 - eps) p + eps / K.

Each row is weighed by the chance that its label is its own, and the fit is repeated until the weights settle
(expectation-maximisation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from posteriori.rows.target import Target
from posteriori.softmax.bayesian_settings import BayesianSettings
from posteriori.softmax.fit import BayesianFit, bayesian_fit
from posteriori.softmax.likelihood import LinearLikelihood
from posteriori.softmax.predictive import plugin
from posteriori.softmax.searched import SearchedPrior
from posteriori.solvers.automatic import Automatic
from posteriori.solvers.solution import Status

__all__ = ["clean_label_shares", "fit_with_label_noise", "require_single_labels"]

_MOST_ROUNDS, _SEARCH_FLOPS = 50, 2e9
"""The most rounds, and the cubes of the number of coefficients that all rounds with a search may cost."""
_ROUGH_TOL = 1e-9
"""Relative decrement to which a round is solved, at least: the weights of rows need not be known better."""
_FIRST_RATE = 0.05
"""The rate at which the search for a rate begins."""


def require_single_labels(target: Target) -> None:
    """Raise unless each row has one label."""
    if target.codes is None:
        raise ValueError("label_noise needs one label for each row: soft targets already state how sure they are.")


def fit_with_label_noise(
    label_noise: float | str,
    target: Target,
    likelihood_of: Callable[[Target], LinearLikelihood],
    settings: BayesianSettings,
) -> tuple[LinearLikelihood, BayesianFit, float]:
    """The likelihood with rows weighed by the chance that their label is their own, its fit, and the rate of noise.

    See docs/theory.md, section 2.8.
    """
    assert target.codes is not None
    estimated = label_noise == "estimate"
    rate = _FIRST_RATE if estimated else float(label_noise)
    solve = replace(settings.solve, solver=Automatic(), tol=max(settings.solve.tol, _ROUGH_TOL))
    rough = replace(settings, approximation="laplace", solve=solve)
    weights = np.ones(len(target.codes)) if target.weights is None else target.weights
    shares, likelihood = np.ones_like(weights), likelihood_of(target)
    for _ in range(_rounds(settings, likelihood)):
        fit = bayesian_fit(likelihood, rough)
        if fit.solution.status is Status.INTERRUPTED:
            return likelihood, fit, rate
        log_p = likelihood.blocks.map_rows(plugin, fit.theta, np.zeros(len(fit.theta)), True)
        own = log_p[target.codes, np.arange(len(target.codes))]
        before, shares = shares, clean_label_shares(own, rate, len(target.classes))
        if estimated:
            rate = float(np.clip((weights @ (1.0 - shares)) / weights.sum(), 1e-6, 0.9))
        likelihood = likelihood_of(replace(target, weights=weights * shares))
        if np.abs(shares - before).max() < 1e-3:
            break
    return likelihood, bayesian_fit(likelihood, settings), rate


def _rounds(settings: BayesianSettings, likelihood: LinearLikelihood) -> int:
    """The most rounds: fewer where each is a search for a prior over many coefficients."""
    if not isinstance(settings.prior, SearchedPrior):
        return _MOST_ROUNDS
    size = likelihood.shape[0] * likelihood.shape[1]
    return int(np.clip(_SEARCH_FLOPS / size**3, 3, _MOST_ROUNDS))


def clean_label_shares(log_p: np.ndarray, rate: float, n_classes: int) -> np.ndarray:
    """Probability that each row's label is its own, (1 - eps) p_y / ((1 - eps) p_y + eps / K), from log p_y (n,).

    See docs/theory.md, section 2.8.

    >>> clean_label_shares(np.log([0.5, 0.0025]), 0.01, 4).round(3)
    array([0.995, 0.497])
    """
    if rate == 0:
        return np.ones_like(log_p)
    own = np.log1p(-rate) + log_p
    return np.exp(own - np.logaddexp(own, np.log(rate / n_classes)))
