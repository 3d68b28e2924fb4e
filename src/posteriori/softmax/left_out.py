r"""What a softmax model would have predicted for each row without it, in closed form (docs/theory.md, section 4.5).

The mode of the other rows is one Newton step away (`softmax.leave_one_out`). Averages over a Gaussian posterior take
the row's curvature out of the covariance besides. A mixture of posteriors that are as likely as w_s gives those that
had predicted the row well less weight without it, and so do draws theta_s with weights w_s:

.. math:: p(k \mid x_n, Y_{-n}) = \sum_s w_s^{-n} p_s(k \mid x_n, Y_{-n}), \qquad
          w_s^{-n} \propto \frac{w_s}{p_s(y_n \mid x_n, Y_{-n})^{c_n}} ;

for draws p_s is softmax(theta_s x_n), and the weights are Pareto-smoothed: their k-hat says how far to trust them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from posteriori.exceptions import SingularError
from posteriori.left_out.leaving import ByFormula
from posteriori.left_out.rows import FitRows
from posteriori.maths.integrals import log_expected_softmax, logits_at_nodes, normal_nodes
from posteriori.maths.pareto import smoothed_weights
from posteriori.maths.softmax import log_softmax_in_place, softmax_in_place
from posteriori.rows.products import logits
from posteriori.softmax.importance import WeightedDraws
from posteriori.softmax.laplace import full_posterior
from posteriori.softmax.leave_one_out import left_out_logits, without_rows
from posteriori.softmax.likelihood import linear_likelihood
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts, pair_products, reference_covariance
from posteriori.softmax.posterior import Posterior
from posteriori.softmax.precision import Precision
from posteriori.softmax.priors import RidgePenalty
from posteriori.threads import one_blas_thread, usable_threads

if TYPE_CHECKING:
    from posteriori.softmax.bayesian import BayesianSoftmaxRegression
    from posteriori.softmax.regression import SoftmaxRegression

__all__ = ["bayesian_left_out", "regression_left_out"]

_MOST_PARAMETERS, _MOST_FLOPS = 6_000, 1e12
"""Contrasts, and multiplications for their Hessian, up to which it is made to leave rows out."""
_ROW_FLOPS = 4e9
"""Rows x classes^3 that are spent on leaving rows out: a random sample of them if there are more."""
_NODES, _ROW_VALUES = 128, 1 << 31
"""Nodes of averages, and rows x classes x nodes at most."""
_ROWS_AT_ONCE = 2_048
_LIMIT = 0.4
"""The share of what is known of a row's logits that it may have said itself: beyond, one Newton step may be too few."""
_K_HAT = 0.7
_SAME = 1e-5
"""The relative difference of log-likelihoods beyond which rows are not those of the fit."""


def regression_left_out(model: SoftmaxRegression, rows: FitRows) -> ByFormula | None:
    """The rows of a point estimate left out by a Newton step; None where its Hessian is too large or singular."""
    solution = getattr(model, "solution_", None)
    if solution is None:  # a sequence of partial_fit is no mode
        return None
    penalty = RidgePenalty(model.alpha, model.penalize_intercept)
    rule, threads = penalty.coordinate_rule(bool(model.fit_intercept)), usable_threads(model.n_jobs)
    K, D = model.coef_.shape
    width = D + bool(model.fit_intercept)
    if not _affordable(rows, K, width):
        return None
    with one_blas_thread():
        likelihood = linear_likelihood(rows.features, rows.target, bool(model.fit_intercept), rule, threads)
        coordinates = likelihood.coordinates
        unit = 1.0 if coordinates.scale is None else coordinates.scale
        objective = likelihood.objective(penalty.precisions(K, D, likelihood.has_intercept, unit))
        theta = coordinates.inward(np.column_stack([model.coef_, model.intercept_])[:, :width])
        _require_same(objective.value_gradient(theta)[0], solution.objective, solution.gap)
        return _by_mode(objective, theta, rows, coordinates.shift, coordinates.scale, np.zeros(K))


def bayesian_left_out(model: BayesianSoftmaxRegression, rows: FitRows) -> ByFormula | None:
    """The rows of a Bayesian fit left out, as it predicts: by its mode, or on average over its posterior."""
    fitted = model.fitted_
    if model.label_noise_ > 0.0:  # rows have weights of their own there, which follow from all rows
        return None
    shift, scale, offset = fitted.coordinates.shift, fitted.coordinates.scale, fitted.offset
    K, width = fitted.mode.shape
    with one_blas_thread():
        if model.chosen_predictive != "plugin":
            return _by_average(fitted.posterior, model.solution_.approximation, rows, shift, scale, offset)
        if fitted.precision is None or not _affordable(rows, K, width):
            return _by_mode_of(fitted.posterior, fitted.mode, rows, shift, scale, offset)
        threads = usable_threads(model.n_jobs)
        blocks = rows.features.blocks(rows.target, K, shift=shift, scale=scale, n_threads=threads)
        objective = _objective(blocks, fitted.precision, K)
        value = -objective.value_gradient(fitted.mode)[0]
        pull = 0.5 * float(np.vdot(fitted.precision.times(fitted.mode), fitted.mode))
        _require_same(value + pull, model.statistics_.log_likelihood, 0.0)
        return _by_mode(objective, fitted.mode, rows, shift, scale, offset)


def _objective(blocks: Any, precision: Precision, K: int) -> SoftmaxObjective:
    return SoftmaxObjective(blocks, ObservedMoments.of(blocks, K), precision, None)


def _affordable(rows: FitRows, K: int, width: int) -> bool:
    """Whether the Hessian of all contrasts can be made and factored in seconds."""
    side = (K - 1) * width
    return side <= _MOST_PARAMETERS and 0.5 * rows.n_rows * side**2 <= _MOST_FLOPS


def _require_same(value: float, of_fit: float, slack: float) -> None:
    """Raise where the log-likelihood, or the objective, is not that of the rows of the fit."""
    if abs(value - of_fit) > _SAME * max(abs(of_fit), 1.0) + slack:
        raise ValueError(
            f"These are not the rows of the fit: with its coefficients their objective is {value:.6g}, and in the fit "
            f"it was {of_fit:.6g}. Pass the same rows, labels and weights as to fit."
        )


def _by_mode(
    objective: SoftmaxObjective,
    theta: np.ndarray,
    rows: FitRows,
    shift: np.ndarray | None,
    scale: np.ndarray | None,
    offset: np.ndarray,
) -> ByFormula | None:
    try:
        H_lik = objective.curvature.likelihood_hessian(theta, contrasts(len(theta)))
        posterior = full_posterior(objective, theta, H_lik)
        return _by_mode_of(posterior, theta, rows, shift, scale, offset)
    except (SingularError, np.linalg.LinAlgError):
        return None


def _by_mode_of(
    posterior: Posterior,
    theta: np.ndarray,
    rows: FitRows,
    shift: np.ndarray | None,
    scale: np.ndarray | None,
    offset: np.ndarray,
) -> ByFormula:
    """Rows left out of a mode theta, by the covariance of a posterior around it."""
    K = len(theta)
    rows = rows.at_most(max(200, int(_ROW_FLOPS / K**3)))

    def of_part(X: Any, Y: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        F = logits(X, theta)
        V = reference_covariance(posterior.pair_variances(X), K)
        P = F.copy()
        softmax_in_place(P)
        left = without_rows(F, V, P, pair_products(P), Y, share)
        return log_softmax_in_place(left.mean + offset[:, None]), left.leverage

    log_p, leverage = _mapped(of_part, rows, shift, scale)
    return ByFormula(log_p, leverage, _LIMIT, "by a Newton step from the mode", rows)


def _by_average(
    posterior: Posterior,
    approximation: str,
    rows: FitRows,
    shift: np.ndarray | None,
    scale: np.ndarray | None,
    offset: np.ndarray,
) -> ByFormula:
    """Rows left out of averages over a posterior."""
    K = len(posterior.mean)
    if isinstance(posterior, WeightedDraws):
        rows = rows.at_most(max(200, int(_ROW_VALUES / (K * posterior.weights.size))))

        def drawn(X: Any, Y: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return _by_draws(posterior, X, Y, share, offset)

        log_p, k_hat = _mapped(drawn, rows, shift, scale)
        return ByFormula(log_p, k_hat, _K_HAT, "by Pareto-smoothed importance weights of the draws", rows)
    mixture = posterior if isinstance(posterior, MixturePosterior) else MixturePosterior([posterior], np.ones(1))
    rows = rows.at_most(max(200, int(min(_ROW_FLOPS / K**3, _ROW_VALUES / (K * _NODES)) / len(mixture.members))))
    nodes = normal_nodes(K - 1, _NODES)

    def averaged(X: Any, Y: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each, leverages = [], []
        for member in mixture.members:
            source: Any = member if approximation == "variational" else None
            left = left_out_logits(member, X, Y, share, source, nodes)  # type: ignore[arg-type]
            G = left.mean + offset[:, None]
            each.append(log_expected_softmax(logits_at_nodes(G, left.covariance, nodes), nodes.weights, G.shape))
            leverages.append(left.leverage)
        log_p = np.array(each)  # (m, K, n)
        own = np.einsum("nk,mkn->mn", Y, np.where(Y.T > 0.0, log_p, 0.0))
        log_w = np.log(np.maximum(mixture.weights, 1e-300))[:, None] - share * own
        log_w -= logsumexp(log_w, axis=0)
        return logsumexp(log_p + log_w[:, None, :], axis=0), np.max(leverages, axis=0)

    log_p, leverage = _mapped(averaged, rows, shift, scale)
    return ByFormula(log_p, leverage, _LIMIT, "on average over the posterior of the others", rows)


def _by_draws(
    posterior: WeightedDraws, X: Any, Y: np.ndarray, share: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (K, n) over draws weighted for each row without it, and k-hat of these weights (n,)."""
    K, n = len(posterior.mean), X.shape[0]
    out, k_hat = np.empty((K, n)), np.empty(n)
    log_w = np.log(np.maximum(posterior.weights, 1e-300))
    F = logits(X, posterior.mean)
    for part, at in posterior.at_nodes(X, F, posterior.nodes(0)):
        at = at + offset[:, None]
        log_p = at - logsumexp(at, axis=1, keepdims=True)  # (n_b, K, S)
        own = np.einsum("nk,nks->ns", Y[part], log_p)
        for i, n_row in enumerate(range(part.start, part.stop)):
            smoothed = smoothed_weights(log_w - share[n_row] * own[i])
            k_hat[n_row] = smoothed.k_hat
            with np.errstate(divide="ignore"):
                out[:, n_row] = logsumexp(log_p[i] + np.log(smoothed.weights), axis=1)
    return out, k_hat


def _mapped(
    function: Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    rows: FitRows,
    shift: np.ndarray | None,
    scale: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (n, K) and reliabilities (n,) of all rows, part by part."""
    X, removed = rows.matrix(shift, scale), rows.removed
    parts = [function(X[part], rows.Y[part], removed[part]) for part in _parts(len(rows.numbers))]
    log_p, reliability = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    return log_p.T.copy(), reliability


def _parts(n: int) -> Iterator[slice]:
    for first in range(0, n, _ROWS_AT_ONCE):
        yield slice(first, min(n, first + _ROWS_AT_ONCE))
