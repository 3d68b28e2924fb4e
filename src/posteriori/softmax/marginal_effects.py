r"""Marginal effects: by how much a probability moves per unit of a feature.

.. math:: a_{kd} = \frac1N \sum_n \frac{\partial p_{nk}}{\partial x_{nd}}
          = \frac1N \sum_n p_{nk} (w_{kd} - \bar w_{nd}), \qquad \bar w_{nd} = \sum_j p_{nj} w_{jd}.

Their errors come from draws of the parameters, or from the slopes of the effects at the mode (the delta method), with
A_{nkd} = p_{nk} (w_{kd} - \bar w_{nd}) and z_n = [x_n, 1]:

.. math:: \frac{\partial a_{kd}}{\partial\theta_{lm}} = \frac1N \sum_n \big[ (1_{k=l} - p_{nl})\, A_{nkd} z_{nm}
          - p_{nk} A_{nld} z_{nm} + 1_{d=m}\, p_{nk} (1_{k=l} - p_{nl}) \big].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from posteriori.maths.softmax import softmax_in_place
from posteriori.parameters import require_choice
from posteriori.rows.blocks import Blocks, Sums, kernel
from posteriori.rows.products import add_intercept, as_dense, contract, logits
from posteriori.softmax.predictive import drawn_moments
from posteriori.softmax.sandwich import Estimate
from posteriori.threads import one_blas_thread

if TYPE_CHECKING:
    from posteriori.softmax.bayesian import BayesianSoftmaxRegression

__all__ = ["AT", "drawn_effects", "effect_slopes", "effects_by_slopes"]

_DRAWS = 400
_EFFECT_VALUES = 1 << 22
"""Values of effects made at once."""


@kernel(reads_labels=False)
def effect_slopes(X: Any, Y: Any, c: np.ndarray | None, theta: np.ndarray, offset: np.ndarray) -> Sums:
    """sum_n c_n, sum_n c_n d p_nk / d x_nd (K, D), and the slopes of the latter, (K, D, K, D')."""
    K, width = theta.shape
    D = X.shape[1]
    W = theta[:, :D]
    total, effects, slopes = 0.0, np.zeros((K, D)), np.zeros((K, D, K, width))
    mixing = np.zeros((K, K))
    step = max(1, _EFFECT_VALUES // (K * width))
    for start in range(0, X.shape[0], step):
        rows = slice(start, min(X.shape[0], start + step))
        P = logits(X[rows], theta) + offset[:, None]
        softmax_in_place(P)
        weights = np.ones(P.shape[1]) if c is None else c[rows]
        Z = as_dense(X[rows])
        Z = add_intercept(Z) if width > D else Z
        A = (P * weights)[:, None, :] * (W[:, :, None] - (P.T @ W).T)  # (K, D, n)
        total += float(weights.sum())
        effects += A.sum(axis=2)
        crossed = A.reshape(K * D, -1) @ (P[:, :, None] * Z).transpose(1, 0, 2).reshape(len(Z), -1)
        crossed = crossed.reshape(K, D, K, width)  # sum_n A_nkd p_nl z_nm
        slopes -= crossed + crossed.transpose(2, 1, 0, 3)
        slopes[np.arange(K), :, np.arange(K)] += A @ Z
        mixing -= (P * weights) @ P.T
        mixing[np.diag_indices(K)] += P @ weights
    d = np.arange(D)
    slopes[:, d, :, d] += mixing
    return Sums((total, effects, slopes))


@kernel(reads_labels=False)
def _weighted_sums(X: Any, Y: Any, c: np.ndarray | None) -> Sums:
    """sum_n c_n and sum_n c_n x_n, (D,)."""
    weights = np.ones(X.shape[0]) if c is None else c
    return Sums((float(weights.sum()), contract(weights[None], X, False)[0]))


Summed = Callable[..., Any]
"""A kernel of rows and its parameters -> its sum."""


def _over_rows(blocks: Blocks) -> Summed:
    """All rows: effects are averaged over them."""
    return blocks.map_sum


def _at_mean_row(blocks: Blocks) -> Summed:
    """One row, the mean of all."""
    total, sums = blocks.map_sum(_weighted_sums)
    row = sums[None] / total
    return lambda kernel, *params: kernel(row, None, None, *params)


AT: dict[str, Callable[[Blocks], Summed]] = {"overall": _over_rows, "mean": _at_mean_row}
"""Rows at which effects are taken, by name."""


def effects_by_slopes(
    model: BayesianSoftmaxRegression, blocks: Blocks, at: str, estimate: Estimate
) -> tuple[np.ndarray, np.ndarray]:
    """Effects at the estimate (K, D) and their standard errors by the delta method, in the units of the data."""
    with one_blas_thread():
        total, effects, slopes = _summed(at, blocks)(effect_slopes, estimate.mean, model.fitted_.offset)
    K, D = effects.shape
    per_unit = (1.0 - model.label_noise_) / model.fitted_.coordinates.unit / total
    variances = estimate.contrast_variances(slopes.reshape(K * D, K, -1)).reshape(K, D)
    return effects * per_unit, np.sqrt(np.maximum(variances, 0.0)) * per_unit


def drawn_effects(model: BayesianSoftmaxRegression, blocks: Blocks, at: str) -> np.ndarray:
    """Effects under draws from the posterior, (S, K, D), in the units of the data."""
    D = model.n_features_in_
    thetas = model.fitted_.draws(_DRAWS, 0)
    with one_blas_thread():
        summed = _summed(at, blocks)
        moments = summed(drawn_moments, thetas, model.fitted_.offset)
    moments /= moments[:, :, 0].sum(axis=1)[:, None, None]  # probabilities of a row sum to one
    W = np.stack([model.fitted_.coordinates.outward(theta)[:, :D] for theta in thetas])
    return (moments[:, :, :1] * W - moments[:, :, 1:] @ W) * (1.0 - model.label_noise_)


def _summed(at: str, blocks: Blocks) -> Summed:
    require_choice("at", at, AT)
    return AT[at](blocks)
