r"""What a Gaussian process would have predicted for each row of its fit without it: the cavities of its sites.

The posterior without the row's own site is known in closed form; the kernel and the other sites stay as they are. Rows
that are alike share one site, of which those that leave take their part. Where functions are seen through inducing
inputs, sites are not kept, and are found again from the posterior's marginals N(m, w): the site (t, s) of a row and
class is the one for which the factor, integrated over the cavity

.. math:: w_c = \frac{w}{1 - t w}, \qquad m_c = \frac{m - s w}{1 - t w},

asks for (t, s) itself. Kernels that are about as likely, of which predictions are averages, count without the row in
proportion to 1 / p_s(y_n | x_n, Y_{-n}), as those that had predicted it well owe their part to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from posteriori.gp.all_rows import FittedMixture, FittedRows
from posteriori.gp.independent import independent_variances
from posteriori.gp.inducing import FittedInducing, log_expected
from posteriori.gp.output import log_mislabelled
from posteriori.gp.predictions import FittedLatents, mean_log_probabilities
from posteriori.left_out.leaving import ByFormula
from posteriori.left_out.result import surprise
from posteriori.left_out.rows import FitRows
from posteriori.maths.largest import log_largest_probabilities
from posteriori.rows.copies import row_numbers
from posteriori.threads import one_blas_thread

__all__ = ["process_left_out"]

_MOST_LEVERAGE = 0.999
"""The share of what is known of a row's latents that its own site has said: beyond, the cavity is lost in rounding."""
_LIMIT = 1.0
"""Nats of surprise from which on a row has had a say in the kernel and the spread, so that these would be others."""
_LEAST = 0.05
"""The least variance of a latent with its noise, whose variance is 1."""
_LEAST_SITE = 1e-8
_ROUNDS, _DAMPING = 60, 0.7
"""Rounds in which sites are found again, and the share of the way to its target that a site moves."""


class RowLatents(NamedTuple):
    """Independent latents (K, n) of rows that are left out, in units of the noise, and the rows' leverages (n,)."""

    mean: np.ndarray
    variance: np.ndarray
    leverage: np.ndarray

    def log_probabilities(self, rate: float, spread: float) -> np.ndarray:
        """The log-probabilities of all classes, (K, n), with variances multiplied by the spread."""
        log_z = log_largest_probabilities(self.mean, np.maximum(spread * self.variance + 1.0, _LEAST))
        return log_mislabelled(log_z, rate, len(self.mean))


def process_left_out(fitted: FittedLatents, Z: np.ndarray, rows: FitRows) -> ByFormula | None:
    """The rows of a fit left out; None for soft labels, and where JAX has found the sites.

    Parameters
    ----------
    fitted : FittedLatents
    Z : ndarray (N, D)
        All rows of the fit, in the units of the latents.
    rows : FitRows
    """
    if not isinstance(fitted, (FittedRows, FittedMixture, FittedInducing)) or not rows.has_labels:
        return None
    y, counted = rows.Y.argmax(axis=1), rows.weights > 0.0
    with one_blas_thread():
        if isinstance(fitted, FittedInducing):
            # copies count once: their site leaves as a whole, with the mean of their weights
            leaves = rows.weights if fitted.solution.n_copies and rows.copied else rows.removed
            left = [_through_inducing(fitted, Z, y, leaves)]
        else:
            members = fitted.members if isinstance(fitted, FittedMixture) and fitted.averaged else (_best(fitted),)
            left = [_of_all_rows(member, Z, y, rows, counted) for member in members]
        log_p = np.array([latents.log_probabilities(fitted.mislabelling, fitted.spread) for latents in left])
        own = rows.removed * log_p[:, y, np.arange(len(y))]
        log_p = logsumexp(log_p - own[:, None, :], axis=0) - logsumexp(-own, axis=0)
        if not counted.all():  # rows that had no say are new rows
            mean, variance = fitted.predictive(Z[~counted])
            log_p[:, ~counted] = mean_log_probabilities(fitted.node, mean, fitted.spread * variance)
    leverage = np.max([latents.leverage for latents in left], axis=0)
    doubt = np.maximum(leverage / _MOST_LEVERAGE * (leverage >= _MOST_LEVERAGE), surprise(log_p.T, rows.Y))
    return ByFormula(log_p.T.copy(), np.where(counted, doubt, 0.0), _LIMIT, "by the cavities of their sites", rows)


def _best(fitted: FittedRows | FittedMixture) -> FittedRows:
    return fitted.best if isinstance(fitted, FittedMixture) else fitted


def _of_all_rows(fitted: FittedRows, Z: np.ndarray, y: np.ndarray, rows: FitRows, counted: np.ndarray) -> RowLatents:
    """The latents of rows without their part of the site that they share with those alike."""
    place = _places(fitted, Z, y, counted)
    leaves = np.zeros(len(fitted.y))
    leaves[place] = rows.removed  # rows alike leave with the same weight, unless theirs differ
    if fitted.solution.n_copies:  # a site of the mean weight stands for all copies: it stays while one of them does
        weight = np.bincount(place[counted], rows.weights[counted], minlength=len(leaves))
        share = np.where(leaves >= weight * (1.0 - 1e-9), 1.0, 0.0)
    else:
        share = np.minimum(leaves / fitted.c, 1.0)
    mean, covariance = fitted.without(share)
    _, whole = fitted.without(np.zeros_like(share))
    known, left = np.einsum("nkk->n", whole), np.einsum("nkk->n", covariance)
    leverage = 1.0 - known / np.where(left > 0.0, left, 1.0)
    variance = independent_variances(mean, covariance, 1.0)
    return RowLatents(mean[:, place], variance[:, place], leverage[place])


def _places(fitted: FittedRows, Z: np.ndarray, y: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The number of the site of each row, (n,); any site for rows that have none."""
    kinds, which = np.unique(np.concatenate([row_numbers(fitted.X), row_numbers(Z)]), return_inverse=True)
    K, n_sites = int(max(y.max(), fitted.y.max())) + 1, len(fitted.y)
    site_of = np.full(len(kinds) * K, -1)
    site_of[which[:n_sites] * K + fitted.y] = np.arange(n_sites)
    place = site_of[which[n_sites:] * K + y]
    if (place[counted] < 0).any():
        row = int(np.flatnonzero(counted & (place < 0))[0])
        raise ValueError(
            f"These are not the rows of the fit: row {row} (counted from 0) was not among them with this label. Pass "
            "the same rows, labels and weights as to fit."
        )
    return place


def _through_inducing(fitted: FittedInducing, Z: np.ndarray, y: np.ndarray, leaves: np.ndarray) -> RowLatents:
    """The latents of rows without their sites, which are found again; `leaves` (n,) is the weight that leaves."""
    m, w, beyond, prior = fitted.marginals(Z)
    scale, prior = fitted.scale[:, None], np.maximum(prior, _LEAST_SITE)
    w = np.maximum(w, _LEAST_SITE * prior)
    t, s = np.full_like(m, _LEAST_SITE), np.zeros_like(m)
    for _ in range(_ROUNDS):
        left = np.maximum(1.0 - t * w, w / prior)
        m_c, w_c = (m - s * w) / left, w / left
        _, by_mean, by_variance = log_expected(scale * m_c, scale**2 * (beyond + w_c), y, fitted.node)
        by_mean, by_variance = scale * by_mean, scale**2 * by_variance
        e = np.clip(2.0 * by_variance - by_mean**2, -(1.0 - _LEAST_SITE) / np.maximum(w_c, _LEAST_SITE), 0.0)
        t_new, s_new = -e / (1.0 + w_c * e), (by_mean - m_c * e) / (1.0 + w_c * e)
        t, s = t + _DAMPING * (t_new - t), s + _DAMPING * (s_new - s)
    left = np.maximum(1.0 - leaves * t * w, w / prior)
    mean, variance = scale * (m - leaves * s * w) / left, scale**2 * (beyond + w / left)
    noise = fitted.node.noise
    return RowLatents(mean / np.sqrt(noise), variance / noise, (1.0 - left).max(axis=0))
