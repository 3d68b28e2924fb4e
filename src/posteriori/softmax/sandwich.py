r"""Standard errors that hold where the model is wrong: the sandwich of Huber and White.

.. math:: \mathrm{cov}(\hat\theta) = f\; H^{-1} M H^{-1}, \qquad M = \sum_n c_n\, g_n g_n^\top, \qquad
          g_n = (p_n - y_n) \otimes [x_n, 1],

in contrasts of the classes, with H the Hessian at the mode, the prior's precision included. With groups of rows that
are not independent of each other M is the sum of products of group sums,

.. math:: M = \sum_g s_g s_g^\top, \quad s_g = \sum_{n \in g} c_n g_n, \qquad
          f = \frac{G}{G - 1}\, \frac{N - 1}{N - p}.

Weights are frequencies: a row of weight 2 is two rows, and a soft label is rows of all its classes. Under a Gaussian
prior this is the sampling error of the mode, with the prior as a fixed penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from posteriori.maths.softmax import softmax_in_place
from posteriori.parameters import require_choice
from posteriori.rows.blocks import Blocks, Sums, kernel
from posteriori.rows.engines import read_for_fit, read_labels, without_column
from posteriori.rows.products import add_intercept, as_dense, laplacian_gram, logits
from posteriori.rows.schema import check_features
from posteriori.softmax.covariance import CovarianceInBasis
from posteriori.softmax.kernels import one_hot
from posteriori.softmax.laplace import full_posterior
from posteriori.softmax.moments import ObservedMoments
from posteriori.softmax.objective import SoftmaxObjective
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior, Posterior
from posteriori.threads import one_blas_thread, usable_threads

if TYPE_CHECKING:
    from posteriori.softmax.bayesian import BayesianSoftmaxRegression

__all__ = ["ERRORS", "Errors", "Estimate", "RowsAgain", "blocks_again", "score_products", "scores", "standard_errors"]

_SAME_ROWS = 1e-6
"""Relative difference of two log-likelihoods of the same rows: they may have come in single precision."""
_SCORE_VALUES = 1 << 22
"""Values of scores made at once."""
_TAKEN_BYTES = 256 << 20
"""Rows taken at once, in bytes, to be added up by group."""


class RowsAgain(NamedTuple):
    """The rows of a fit, given again: a model does not keep them."""

    X: Any = None
    y: Any = None
    sample_weight: Any = None
    groups: Any = None


Estimate = Posterior | CovarianceInBasis
"""A mean (K, D') and what is known about its errors, in the coordinates of a fit."""


class Errors(Protocol):
    """A kind of standard errors."""

    @property
    def sampling(self) -> bool:
        """Whether they are errors of an estimate under repeated sampling, whatever the prior."""

    def estimate(self, model: BayesianSoftmaxRegression, rows: RowsAgain) -> Estimate:
        """The parameters with their covariance."""


def standard_errors(errors: Any) -> Errors:
    """The kind of standard errors that a name stands for."""
    require_choice("errors", errors, ERRORS)
    return ERRORS[errors]


class PosteriorErrors:
    """The posterior's own standard deviations."""

    sampling = False

    def estimate(self, model: BayesianSoftmaxRegression, rows: RowsAgain) -> Estimate:
        """The posterior itself, or what is finite of it; rows are not needed."""
        if rows.groups is not None:
            raise ValueError("groups= has no part in errors='posterior': use errors='cluster'.")
        posterior = model.fitted_.posterior
        return posterior.limit if isinstance(posterior, FullPosterior) and posterior.limit is not None else posterior


@dataclass(frozen=True)
class RobustErrors:
    """The sandwich of rows that are independent of each other (docs/theory.md, section 2.7).

    statsmodels applies no small-sample factor to models fitted by likelihood: its "HC1" is its "HC0", and so is ours.
    """

    name: str
    sampling = True

    def estimate(self, model: BayesianSoftmaxRegression, rows: RowsAgain) -> Estimate:
        """H^{-1} (sum_n c_n g_n g_n^T) H^{-1}, in one pass over the rows."""
        if rows.groups is not None:
            raise ValueError(f"groups= has no part in errors={self.name!r}: use errors='cluster'.")
        blocks = _rows_for(model, rows, self.name)
        with one_blas_thread():
            bread = _bread(model, blocks)
            loss, meat = blocks.map_sum(score_products, model.fitted_.mode, bread.basis, coarse=True)
        _require_same_rows(model, -float(loss))
        return _sandwich(model, bread, meat)


class ClusterErrors:
    """The sandwich of groups of rows: rows of a group may depend on each other in any way, groups do not.

    See docs/theory.md, section 2.7.
    """

    sampling = True

    def estimate(self, model: BayesianSoftmaxRegression, rows: RowsAgain) -> Estimate:
        """H^{-1} (sum_g s_g s_g^T) H^{-1}, with the factors for few groups and few rows."""
        if rows.groups is None:
            raise ValueError("errors='cluster' needs groups=, a group for each row, or the name of a column of X.")
        blocks = _rows_for(model, rows, "cluster")
        codes = _group_codes(rows, blocks.n_rows)
        p = (len(model.classes_) - 1) * model.fitted_.mode.shape[1]
        with one_blas_thread():
            bread = _bread(model, blocks)
            loss, sums, sizes = _group_sums(blocks, codes, model.fitted_.mode, bread.basis)
        _require_same_rows(model, -loss)
        G, N = np.count_nonzero(sizes), float(sizes.sum())
        if G < 2:
            raise ValueError("errors='cluster' needs at least two groups, and groups= has one.")
        if not N > p:
            raise ValueError(f"errors='cluster' needs more rows ({N:g}) than parameters ({p}).")
        return _sandwich(model, bread, sums.T @ sums * (G / (G - 1.0) * (N - 1.0) / (N - p)))


ERRORS: dict[str, Errors] = {
    "posterior": PosteriorErrors(),
    "HC0": RobustErrors("HC0"),
    "HC1": RobustErrors("HC1"),
    "cluster": ClusterErrors(),
}


def scores(X: Any, Y: np.ndarray, theta: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-log p(y_n) (n,), of soft labels on average, and the scores g_n in a basis of the classes, (n, J D')."""
    P = logits(X, theta)
    targets = as_dense(one_hot(Y, None, len(theta)))
    own = np.einsum("kn,kn->n", targets, P)
    loss = softmax_in_place(P) - own
    Z = as_dense(X)
    Z = add_intercept(Z) if theta.shape[1] > X.shape[1] else Z
    inward = basis.T @ (P - targets)
    return loss, np.einsum("jn,nd->njd", inward, Z).reshape(len(Z), -1)


def _slices(n: int, values_per_row: int) -> list[slice]:
    step = max(1, _SCORE_VALUES // values_per_row)
    return [slice(start, min(n, start + step)) for start in range(0, n, step)]


@kernel()
def score_products(X: Any, Y: np.ndarray, c: np.ndarray | None, theta: np.ndarray, basis: np.ndarray) -> Sums:
    """sum_n c_n (-log p(y_n)) and sum_n c_n E[g_n g_n^T], (J D', J D'), the average over the classes of a soft label.

    See docs/theory.md, section 2.7.

    For soft labels it is that of rows with one label each, E[g g^T] = E[g] E[g]^T + cov(y) kron x x^T.
    """
    K, J, width = len(theta), basis.shape[1], theta.shape[1]
    total, products = 0.0, np.zeros((J * width, J * width))
    for rows in _slices(X.shape[0], J * width):
        weights = None if c is None else c[rows]
        loss, g = scores(X[rows], Y[rows], theta, basis)
        total += float(loss.sum() if weights is None else weights @ loss)
        if weights is not None:
            g *= np.sqrt(weights)[:, None]
        products += g.T @ g
        if Y.ndim == 2:
            spread = laplacian_gram(X[rows], Y[rows].T, weights, width > X.shape[1]).reshape(K, width, K, width)
            inward = np.einsum("ki,kdle,lj->idje", basis, spread, basis, optimize=True)
            products += inward.reshape(J * width, J * width)
    return Sums((total, products))


def _group_sums(
    blocks: Blocks, codes: np.ndarray, theta: np.ndarray, basis: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss, the scores added up by group, (G, J D'), and the weight of each group, (G,).

    Groups go by the number of a row, so that rows are taken by number: many at once, as each call may be a pass.
    """
    width, G = basis.shape[1] * theta.shape[1], int(codes.max()) + 1
    sums, sizes, loss = np.zeros((G, width)), np.zeros(G), 0.0
    step = max(1, _TAKEN_BYTES // (8 * blocks.n_features))
    for start in range(0, blocks.n_rows, step):
        X, Y, c = blocks.take(np.arange(start, min(blocks.n_rows, start + step)))
        weights = np.ones(X.shape[0]) if c is None else c
        own = codes[start : start + X.shape[0]]
        sizes += np.bincount(own, weights, G)
        for rows in _slices(X.shape[0], width):
            losses, g = scores(X[rows], Y[rows], theta, basis)
            loss += float(weights[rows] @ losses)
            np.add.at(sums, own[rows], g * weights[rows, None])
    return loss, sums, sizes


def _rows_for(model: BayesianSoftmaxRegression, rows: RowsAgain, name: str) -> Blocks:
    """The rows of the fit, for errors of this name."""
    if rows.X is None or rows.y is None:
        raise ValueError(
            f"errors={name!r} needs the rows of the fit again, which the model does not keep: pass X= and y=, and "
            "sample_weight= if the fit had it."
        )
    if model.label_noise_ > 0:
        raise ValueError(f"errors={name!r} does not know about label_noise: fit without it, or use errors='posterior'.")
    return blocks_again(model, rows)


def blocks_again(model: BayesianSoftmaxRegression, rows: RowsAgain) -> Blocks:
    """Rows in the coordinates of the fit, with their targets and weights."""
    known = getattr(model, "feature_names_in_", ())
    X = rows.X if not isinstance(rows.groups, str) or rows.groups in known else without_column(rows.X, rows.groups)
    features, target, _ = read_for_fit(
        X, rows.y, rows.sample_weight, model.classes_, model.class_weight, device=model.device
    )
    check_features(model, features)
    shift, scale = model.fitted_.coordinates.shift, model.fitted_.coordinates.scale
    threads = usable_threads(model.n_jobs)
    return features.blocks(target, len(model.classes_), shift=shift, scale=scale, n_threads=threads)


def _bread(model: BayesianSoftmaxRegression, blocks: Blocks) -> CovarianceInBasis:
    """H^{-1} at the mode: that of the posterior, or made again where the posterior is not Laplace's."""
    fitted = model.fitted_
    if isinstance(fitted.posterior, FullPosterior) and model.solution_.approximation == "laplace":
        return fitted.posterior
    assert fitted.precision is not None  # without a prior the posterior is Laplace's
    objective = SoftmaxObjective(blocks, ObservedMoments.of(blocks, len(fitted.mode)), fitted.precision)
    H_lik = objective.curvature.likelihood_hessian(fitted.mode, contrasts(len(fitted.mode)))
    return full_posterior(objective, fitted.mode, H_lik)


def _sandwich(model: BayesianSoftmaxRegression, bread: CovarianceInBasis, meat: np.ndarray) -> CovarianceInBasis:
    return CovarianceInBasis(model.fitted_.mode, bread.inner @ meat @ bread.inner, bread.basis, bread.tilt)


def _require_same_rows(model: BayesianSoftmaxRegression, log_likelihood: float) -> None:
    """Raise if the rows given again are not those of the fit, as their log-likelihood tells."""
    statistics = getattr(model, "statistics_", None)
    if statistics is None:  # from a file of an earlier version
        return
    expected = statistics.log_likelihood
    if abs(log_likelihood - expected) > _SAME_ROWS * max(abs(expected), 1.0):
        raise ValueError(
            f"These are not the rows of the fit: their log-likelihood is {log_likelihood:.8g}, that of the fit is "
            f"{expected:.8g}. Pass the same X, y and sample_weight as to fit()."
        )


def _group_codes(rows: RowsAgain, n_rows: int) -> np.ndarray:
    """The number of each row's group, (N,)."""
    import pandas as pd

    try:
        values = np.asarray(read_labels(rows.X, rows.groups))
    except (ValueError, KeyError):
        values = np.asarray(rows.groups)
    if values.ndim == 0:
        raise ValueError(f"groups={rows.groups!r} is not a column of X: pass its name, or a group for each row.")
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError(f"groups= has shape {values.shape}: one group for each of the {n_rows} rows of X is needed.")
    codes = pd.factorize(values)[0]
    if (codes < 0).any():
        raise ValueError(f"groups= is missing in row {int(np.argmax(codes < 0))} (counted from 0): name a group there.")
    return codes
