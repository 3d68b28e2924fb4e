"""Formulas of the classifiers in ONNX graphs: from rows X (n, D) to probabilities (n, K).

`CLASSIFIERS` has one function for each class of models; whatever does not depend on the row is a constant of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from posteriori.decision.temperature import LOWEST
from posteriori.gaussian.classifier import GaussianClassifier
from posteriori.gaussian.densities import ClassDensities
from posteriori.gaussian.row_space import RowSpace
from posteriori.softmax.bayesian import BayesianSoftmaxRegression
from posteriori.softmax.classes import ClassPosterior
from posteriori.softmax.importance import WeightedDraws
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.posterior import FullPosterior, Posterior
from posteriori.softmax.predictive import interval_nodes, quasi_nodes
from posteriori.softmax.regression import SoftmaxRegression
from posteriori.softmax.row_space import RowSpacePosterior
from posteriori.softmax.structured import BasisPosterior, DiagonalPosterior, KroneckerPosterior
from posteriori.storage.onnx_graph import Value, import_onnx, log1p
from posteriori.trees.arrays import TreeArrays
from posteriori.trees.boosting_classifier import BoostingClassifier
from posteriori.trees.distinct import class_frequencies
from posteriori.trees.forest_classifier import ForestClassifier

__all__ = ["CLASSIFIERS", "Outputs", "credible_interval"]

_LARGEST = float(np.finfo(np.float64).max)
_NODES_AT_A_TIME = 16
"""Nodes of the posterior for which a row is predicted at once: memory grows with them times rows and classes."""


class Outputs(NamedTuple):
    """Outputs of a classifier: scores (n, K) whose greatest is the label, and what else the graph returns."""

    probabilities: Value
    scores: Value
    action: Value | None = None
    expected_utility: Value | None = None


# Softmax regression


def _softmax(model: SoftmaxRegression, X: Value) -> Outputs:
    """softmax(W x + b); finite features with logits beyond the range of numbers are treated as by predict_proba."""
    F = X @ model.coef_.T + model.intercept_
    F = F.graph.op("Clip", F.where(F.graph.op("Not", F.is_nan()), 0.0), -_LARGEST, _LARGEST)
    return Outputs(F.softmax() + _no_number(X), F)


def _no_number(X: Value, missing_allowed: bool = False) -> Value:
    """NaN for rows that Python would refuse, else 0, (n, 1)."""
    op = X.graph.op
    bad = op("IsInf", X) if missing_allowed else op("Or", op("IsInf", X), X.is_nan())
    return op("Where", bad, np.nan, 0.0).sum(1, keepdims=True)


# Bayesian softmax regression


def _bayesian(model: BayesianSoftmaxRegression, X: Value) -> Outputs:
    K = len(model.classes_)
    fitted = model.fitted_
    posterior, offset = fitted.posterior, fitted.offset
    Z = _inward(model, X)
    predictive = model.chosen_predictive
    if predictive == "plugin":
        P = (_logits(Z, fitted.mode, model.n_features_in_) + offset).softmax()
    elif predictive == "probit":
        P = _probit(Z, posterior, offset, model.n_features_in_)
    elif predictive == "sample":
        thetas = fitted.draws(int(model.n_draws))
        P = _over_draws(Z, thetas, np.full(len(thetas), 1.0 / len(thetas)), offset, model.n_features_in_)
    elif isinstance(posterior, WeightedDraws):
        P = _over_draws(Z, posterior.thetas, posterior.weights, offset, model.n_features_in_)
    else:
        P = _quasi(Z, posterior, offset, quasi_nodes(int(model.n_nodes), len(model.classes_)), model.n_features_in_)
    if model.label_noise_ > 0:
        P = (1.0 - model.label_noise_) * P + model.label_noise_ / K
    return Outputs(P + _no_number(X), P)


def _inward(model: BayesianSoftmaxRegression, X: Value) -> Value:
    """Rows in the coordinates of the posterior."""
    coordinates = model.fitted_.coordinates
    Z = X if coordinates.shift is None else X - coordinates.shift
    return Z if coordinates.scale is None else Z.scaled(coordinates.scale)


def credible_interval(model: BayesianSoftmaxRegression, X: Value, level: float) -> tuple[Value, Value]:
    """Equal-tailed intervals of the class probabilities, as by predict_interval: lower and upper ends, (n, K) each."""
    K, D = len(model.classes_), model.n_features_in_
    posterior, offset = model.fitted_.posterior, model.fitted_.offset
    Z = _inward(model, X)
    tails = (0.5 * (1.0 - level), 0.5 * (1.0 + level))
    if K == 2 and posterior.gaussian:
        ends = _quantiles_of_two(Z, posterior, offset, tails, D)
    else:
        P, weights = _at_nodes(Z, posterior, offset, interval_nodes(model.n_nodes, level), D)
        ends = _quantiles(P.softmax(axis=1), weights, tails)
    noise, hidden = model.label_noise_, _no_number(X)
    lower, upper = (((1.0 - noise) * end + noise / K if noise > 0 else end) + hidden for end in ends)
    return lower, upper


def _quantiles_of_two(
    Z: Value, posterior: Posterior, offset: np.ndarray, levels: tuple[float, ...], D: int
) -> list[Value]:
    """Quantiles of two probabilities whose log-odds are normal: they have the order of the log-odds."""
    F, op = _logits(Z, posterior.mean, D) + offset, Z.graph.op
    sd = op("Sqrt", _pair_variances(Z, posterior, D))
    odds = (F.columns(np.array([0, 1])) - F.columns(np.array([1, 0]))).expanded(2)  # of each class over the other
    shifts = [float(ndtri(level)) * sd.expanded(2) for level in levels]
    return [op("Concat", odds + z, 0.0 * odds, axis=2).softmax().part([0], [1], [2]).sum(2) for z in shifts]


def _at_nodes(Z: Value, posterior: Posterior, offset: np.ndarray, size: int, D: int) -> tuple[Value, np.ndarray]:
    """Logits at nodes of about equal weight, (n, K, S), and the weights."""
    if isinstance(posterior, MixturePosterior):
        each = posterior.size_of_each(size)
        parts = [_at_nodes(Z, member, offset, each, D) for member in posterior.members]
        weights = [w * inner for w, (_, inner) in zip(posterior.weights, parts, strict=True)]
        return Z.graph.op("Concat", *(values for values, _ in parts), axis=2), np.concatenate(weights)
    if isinstance(posterior, WeightedDraws):
        S, K = len(posterior.thetas), len(offset)
        values = _logits(Z, posterior.thetas.reshape(S * K, -1), D).reshaped(0, S, K) + offset
        return values.transposed(0, 2, 1), posterior.weights
    nodes = posterior.nodes(size, even=True)
    centre = (_logits(Z, posterior.mean, D) + offset).expanded(2)
    return _spread(Z, posterior, len(offset), D) @ nodes.points + centre, nodes.weights


def _quantiles(P: Value, weights: np.ndarray, levels: tuple[float, ...]) -> list[Value]:
    """Quantiles along the last axis, (n, K): by Hazen's rule, or the first to reach the level if weighted."""
    op, S = P.graph.op, weights.size
    ordered, order = P.graph.sorted(P, S)
    if (weights == weights[0]).all():
        found = []
        for level in levels:
            place = np.clip(level * S - 0.5, 0.0, S - 1.0)
            first, share = min(int(place), S - 2), place - min(int(place), S - 2)
            below, above = (ordered.part([i], [i + 1], [2]).sum(2) for i in (first, first + 1))
            found.append(below + share * (above - below))
        return found
    reached = op("CumSum", op("Gather", weights, order), np.array(2, dtype=np.int64))
    missing = [op("Where", op("Less", reached, level), 1.0, 0.0).sum(2, keepdims=True) for level in levels]
    return [op("GatherElements", ordered, op("Min", n, S - 1.0).integers(), axis=2).sum(2) for n in missing]


def _logits(Z: Value, theta: np.ndarray, D: int) -> Value:
    """w_k . z + b_k, (n, K), for parameters (K, D) or (K, D + 1)."""
    F = Z @ theta[:, :D].T
    return F if theta.shape[1] == D else F + theta[:, D]


def _quasi(Z: Value, posterior: Posterior, offset: np.ndarray, n_nodes: int, D: int) -> Value:
    """sum_s omega_s softmax(m + A z_s), A (n, K, J) the spread of a row's logits along each of J directions."""
    if isinstance(posterior, MixturePosterior):
        size = posterior.size_of_each(n_nodes)
        parts = [w * _quasi(Z, q, offset, size, D) for w, q in zip(posterior.weights, posterior.members, strict=True)]
        return sum(parts[1:], start=parts[0])
    nodes = posterior.nodes(n_nodes)
    mean = _logits(Z, posterior.mean, D) + offset
    spread, centre = _spread(Z, posterior, len(offset), D), mean.expanded(2)

    def term(points: Value, weights: Value) -> Value:
        at = spread @ points + centre  # (n, K, nodes)
        return (at.softmax(axis=1) * weights).sum(2)

    points = _in_parts(nodes.points.T).transpose(0, 2, 1)
    return Z.graph.added_up(term, mean, points, _in_parts(nodes.weights))


def _spread(Z: Value, posterior: Posterior, K: int, D: int) -> Value:
    """The spread of a row's logits along each of J directions, (n, K, J)."""
    if isinstance(posterior, (FullPosterior, RowSpacePosterior)):
        return _spread_from_last(_pair_variances(Z, posterior, D), K)
    assert isinstance(posterior, BasisPosterior)
    return Z.graph.op("Sqrt", _latent_variances(Z, posterior, D)).expanded(1) * posterior.latent_basis


def _over_draws(Z: Value, thetas: np.ndarray, weights: np.ndarray, offset: np.ndarray, D: int) -> Value:
    """sum_s omega_s softmax(theta_s z + offset), (n, K), over draws (S, K, D')."""
    K = len(offset)
    parts = _in_parts(thetas)  # (parts, draws, K, D')
    slopes = np.moveaxis(parts[..., :D], -1, 1).reshape(len(parts), D, -1)
    intercepts = offset + (parts[..., D] if thetas.shape[2] > D else np.zeros(parts.shape[:-1]))

    def term(W: Value, b: Value, weights: Value) -> Value:
        at = (Z @ W).reshaped(0, parts.shape[1], K) + b
        return (at.softmax() * weights).sum(1)

    like = Z @ np.zeros((D, K))  # has the shape of the result
    return Z.graph.added_up(term, like, slopes, intercepts, _in_parts(weights[:, None]))


def _in_parts(values: np.ndarray) -> np.ndarray:
    """Nodes in parts along a new first axis, the last part filled up with zeros: nodes that weigh nothing."""
    size = min(_NODES_AT_A_TIME, len(values))
    missing = -len(values) % size
    filled = np.concatenate([values, np.zeros((missing, *values.shape[1:]))])
    return filled.reshape(-1, size, *values.shape[1:])


def _probit(Z: Value, posterior: Posterior, offset: np.ndarray, D: int) -> Value:
    """p_k ~ 1 / sum_j exp(-(m_k - m_j) / sqrt(1 + pi v_kj / 8)), v_kj = var(f_k - f_j), normalised."""
    K = len(offset)
    F = _logits(Z, posterior.mean, D) + offset
    k, m = np.triu_indices(K, 1)
    variances = _pair_variances(Z, posterior, D)
    c = 8.0 / np.pi
    margins = np.sqrt(c) * (F.columns(k) - F.columns(m)) / Z.graph.op("Sqrt", c + variances)
    both = Z.graph.op("Concat", margins, -margins, axis=1).padded(0, 1)
    index = np.full((K, K), 2 * k.size)  # the last, zero, is the margin of a class over itself
    index[m, k], index[k, m] = np.arange(k.size), k.size + np.arange(k.size)  # of the others over it
    # at k itself, where the margin is 0, the logarithm of softmax is -log sum_j exp
    log_p = Z.graph.op("LogSoftmax", both.columns(index.ravel()).reshaped(0, K, K), axis=-1)
    return log_p.reshaped(0, K * K).columns(np.arange(K) * (K + 1)).softmax()


def _pair_variances(Z: Value, posterior: Posterior, D: int) -> Value:
    """var(f_k - f_l) for k < l, (n, pairs)."""
    k, m = np.triu_indices(len(posterior.mean), 1)
    if isinstance(posterior, BasisPosterior):
        U = posterior.latent_basis
        return _latent_variances(Z, posterior, D) @ ((U[k] - U[m]) ** 2).T
    if isinstance(posterior, RowSpacePosterior):
        within = Z @ posterior.basis
        beyond = Z.graph.op("Max", Z.square().sum(1, keepdims=True) - within.square().sum(1, keepdims=True), 0.0)
        return _pair_variances(within, posterior.inner, posterior.basis.shape[1]) + (2.0 / posterior.alpha) * beyond
    if isinstance(posterior, MixturePosterior):
        parts = []
        for w, q in zip(posterior.weights, posterior.members, strict=True):
            moved = _logits(Z, q.mean - posterior.mean, D)
            parts.append(w * (_pair_variances(Z, q, D) + (moved.columns(k) - moved.columns(m)).square()))
        return sum(parts[1:], start=parts[0])
    if isinstance(posterior, FullPosterior):
        forms = posterior.forms
    else:
        assert isinstance(posterior, WeightedDraws)
        centred = (posterior.thetas - posterior.mean) * np.sqrt(posterior.weights)[:, None, None]
        forms = np.stack([d.T @ d for d in (centred[:, i] - centred[:, j] for i, j in zip(k, m, strict=True))])
    return Z.graph.op("Max", _quadratic_forms(Z, forms, D), 0.0)


def _quadratic_forms(Z: Value, forms: np.ndarray, D: int) -> Value:
    """[z, 1]^T S_p [z, 1] for symmetric S_p, (n, pairs), by whichever way holds fewer numbers for a row."""
    width = forms.shape[1]
    if width > D:
        Z = Z.padded(0, 1, 1.0)
    i, j = np.triu_indices(width)
    if i.size <= forms.shape[0] * width:
        packed = forms[:, i, j] * np.where(i == j, 1.0, 2.0)
        return (Z.columns(i) * Z.columns(j)) @ packed.T
    products = Z @ forms.transpose(1, 0, 2).reshape(width, -1)
    return (products.reshaped(0, len(forms), width) * Z.expanded(1)).sum(2)


def _latent_variances(Z: Value, posterior: Posterior, D: int) -> Value:
    """Variances of the logits in the posterior's basis, (n, J)."""
    if isinstance(posterior, KroneckerPosterior):
        return _logits(Z, posterior.directions.T, D).square() @ posterior.shrunk.T
    if isinstance(posterior, ClassPosterior):
        return Z.graph.op("Max", _quadratic_forms(Z, posterior.covariances, D), 0.0)
    assert isinstance(posterior, DiagonalPosterior)
    s = 1.0 / posterior.precisions
    if posterior.centre is not None:
        Z = Z - posterior.centre[:D]
    return _logits(Z.square(), s, D)


def _spread_from_last(variances: Value, K: int) -> Value:
    """The factor L and a row of zeros, (n, K, K - 1), where L L^T is the covariance of f_k - f_K."""
    J, op = K - 1, variances.graph.op
    place = np.full((K, K), K * J // 2)  # after all pairs: the variance of nothing, 0
    k, m = np.triu_indices(K, 1)
    place[k, m] = place[m, k] = np.arange(k.size)
    i, j = (index.ravel() for index in np.indices((J, J)))
    last = variances.columns(place[:J, -1])
    v = variances.padded(0, 1)
    covariance = 0.5 * (v.columns(place[i, -1]) + v.columns(place[j, -1]) - v.columns(place[i, j]))
    # what rounding needs on the diagonal, as in `cholesky_psd`; onnxruntime would take 1e-300 in a sum for nothing
    least = op("Max", 1e-13 * last.max(1, keepdims=True), 1e-300)
    rest = (covariance + least * np.eye(J).ravel()).reshaped(0, J, J)
    least, end, columns = least.expanded(2), 2**31, []
    for step in range(J):
        first = rest.part([0], [1], [2])
        pivot = op("Sqrt", op("Max", first.part([0], [1], [1]), least))
        column = first / pivot
        columns.append(column.padded(step, 1))
        if step < J - 1:
            below = column.part([1], [end], [1])
            rest = rest.part([1, 1], [end, end], [1, 2]) - below * op("Transpose", below, perm=[0, 2, 1])
    return op("Concat", *columns, axis=2)


# Gaussian classifiers


def _gaussian(model: GaussianClassifier, X: Value) -> Outputs:
    densities = model.fitted_.densities
    linear, missing_allowed = densities.linear(), densities.covariance_structure.missing_allowed
    op, prior = X.graph.op, densities.log_prior
    there = op("Not", X.is_nan())
    Z = _within_reach((X - densities.origin).where(there, 0.0), densities)
    if missing_allowed:
        F = _diagonal_joint(Z, op("Cast", there, to=import_onnx().TensorProto.DOUBLE), densities)
    elif linear is not None:
        coef, intercept = linear
        F = Z @ coef.T + intercept
    else:
        Z = Z if densities.space is None else _in_row_space(Z, densities.space)
        F = _of_distances(_distances(Z, densities), densities)
    F = F.where(op("Not", F.is_nan()), prior)
    return Outputs(F.softmax() + _no_number(X, missing_allowed=missing_allowed), F)


def _within_reach(Z: Value, densities: ClassDensities) -> Value:
    """Rows, those farther away than 1e100 standard deviations moved there: their squares are numbers again."""
    op, inverse = Z.graph.op, densities.inverse_spreads()
    distance = (op("Abs", Z) * (1e-150 * np.broadcast_to(inverse, densities.origin.shape))).max(1, keepdims=True)
    far = op("Greater", distance, 1e-50)
    return Z * (1e-50 / op("Clip", distance, 1e-50, 1e300)).where(far, 1.0)


def _in_row_space(Z: Value, space: RowSpace) -> Value:
    """The coordinates (u, |w|) of rows less the origin, (n, r + 1)."""
    Z = Z.scaled(1.0 / space.unit)
    U = Z @ space.basis
    W = Z - U @ space.basis.T
    return Z.graph.op("Concat", U, Z.graph.op("Sqrt", W.square().sum(1, keepdims=True)), axis=1)


def _distances(Z: Value, densities: ClassDensities) -> Value:
    """q_k = |A_k (z - m_k)|^2, (n, K)."""
    means, A, factors = densities.means, densities.weights, densities.factors
    D = means.shape[1]
    if A.ndim == 2:  # one variance
        return (Z.expanded(1) - means).square().sum(2) * A[:, 0]
    shifts = np.einsum("kij,kj->ki", np.broadcast_to(A, (len(means), D, D)), means)
    T = (Z @ A.transpose(2, 0, 1).reshape(D, -1)).reshaped(0, len(A), D)
    return (T - shifts).square().sum(2) * factors


def _of_distances(q: Value, densities: ClassDensities) -> Value:
    """a_k - q_k / 2, or a_k - b_k log(1 + q_k)."""
    constants = densities.constants[:, 0] + densities.log_prior
    if densities.powers is None:
        return constants - 0.5 * q
    return constants - densities.powers[:, 0] * log1p(q)


def _diagonal_joint(Z: Value, there: Value, densities: ClassDensities) -> Value:
    """The sum over the features that are there, 1 or 0 (n, D), of a_kd - w_kd (z_d - m_kd)^2 / 2, or a Student's."""
    means, weights = densities.means, densities.weights
    if densities.linear() is not None:  # z^2 and a_d are the same for all classes
        slopes = weights * means
        return Z @ slopes.T + there @ (-0.5 * slopes * means).T + densities.log_prior
    q = (Z.expanded(1) - means).square() * weights
    terms = 0.5 * q if densities.powers is None else densities.powers * log1p(q)
    return ((densities.constants - terms) * there.expanded(1)).sum(2) + densities.log_prior


# Ensembles of trees


def _forest(model: ForestClassifier, X: Value) -> Outputs:
    """T(sum_t p_t / T), p_t the shares in the leaf of each tree."""
    forest, op = model.fitted_, X.graph.op
    kinds = op("Gather", forest.pattern.astype(np.int64), _leaves(forest.trees, X))  # (n, T)
    P = op("Gather", forest.shares, kinds).sum(1) / float(forest.trees.n_trees)
    return _mapped(op("Log", P), forest.temperature, forest.frequencies, X)


def _boosting(model: BoostingClassifier, X: Value) -> Outputs:
    """T(softmax(F)), F the sum of the values of leaves over rounds."""
    boosted, op = model.fitted_, X.graph.op
    q, K = len(boosted.baseline), len(boosted.class_count)
    if q == 0:
        F = _for_every_row(np.zeros(1), X)
    else:
        values = op("Gather", boosted.value, _leaves(boosted.trees, X))
        F = values.reshaped(0, boosted.trees.n_trees // q, q).sum(1) + boosted.baseline
        F = F.padded(1, 0) if q == 1 else F
    log_p = op("Max", op("LogSoftmax", F, axis=-1), LOWEST).padded(0, 1, LOWEST)
    place = np.full(K, len(boosted.present))  # after all classes that have rows: one that has none
    place[boosted.present] = np.arange(len(boosted.present))
    return _mapped(log_p.columns(place), boosted.temperature, class_frequencies(boosted.class_count), X)


def _mapped(Z: Value, temperature: tuple[float, float], frequencies: np.ndarray, X: Value) -> Outputs:
    """(1 - eps) softmax(beta z) + eps pi."""
    slope, doubt = temperature
    P = (1.0 - doubt) * (slope * Z).softmax() + doubt * frequencies
    return Outputs(P + _no_number(X, missing_allowed=True), P)


def _leaves(trees: TreeArrays, X: Value) -> Value:
    """The leaf of each row in each tree, (n, T): one level of all trees after another, leaves stay where they are."""
    op, own, inner = X.graph.op, np.arange(len(trees.feature)), trees.feature >= 0

    def kept(values: np.ndarray) -> Value:
        """An array that is in the graph once, whatever the number of levels."""
        return op("Identity", values.astype(np.int64) if values.dtype.kind == "i" else values)

    left, right = kept(np.where(inner, trees.left, own)), kept(np.where(inner, trees.right, own))
    column, threshold = kept(np.where(inner, trees.feature, 0)), kept(trees.threshold)
    missing_left = kept(trees.missing_left)
    at = _for_every_row(trees.roots.astype(np.int64), X)
    for _ in range(trees.depth):
        x = op("GatherElements", X, op("Gather", column, at), axis=1)
        goes_left = op("LessOrEqual", x, op("Gather", threshold, at))
        missing = op("And", x.is_nan(), op("Gather", missing_left, at))
        at = op("Where", op("Or", goes_left, missing), op("Gather", left, at), op("Gather", right, at))
    return at


def _for_every_row(values: np.ndarray, X: Value) -> Value:
    """One and the same vector (m,) for every row, (n, m)."""
    op = X.graph.op
    n_rows = op("Slice", op("Shape", X), np.array([0]), np.array([1]))
    return op("Expand", values[None], op("Concat", n_rows, np.array([1]), axis=0))


CLASSIFIERS: dict[type, Callable[[Any, Value], Outputs]] = {
    SoftmaxRegression: _softmax,
    BayesianSoftmaxRegression: _bayesian,
    GaussianClassifier: _gaussian,
    ForestClassifier: _forest,
    BoostingClassifier: _boosting,
}
