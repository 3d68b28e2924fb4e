"""Fewer rows than features: fits in the space of the rows are those of all features, to rounding."""

import tracemalloc
import warnings
from copy import copy
from functools import reduce
from operator import add

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal
from tests.gaussian.naive_gaussian import naive_beliefs, naive_log_densities
from tests.slow import quick_first

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior, load, save
from posteriori.gaussian.fit import SeenRows
from posteriori.gaussian.niw import WishartPrior
from posteriori.gaussian.roots import RootStatistics, root_statistics
from posteriori.gaussian.row_space import RowSpace, row_space
from posteriori.gaussian.statistics import ClassStatistics, class_statistics
from posteriori.gaussian.structures import STRUCTURES

MATRICES = ("tied", "full")
matrices = pytest.mark.parametrize("structure", MATRICES)


def problem(N=30, D=60, K=3, seed=0):
    """Rows of K classes in correlated features of many units, a constant one among them, and as many new rows."""
    rng = np.random.default_rng(seed)
    y = np.arange(2 * N) % K
    X = rng.normal(scale=0.5, size=(K, D))[y] + rng.normal(size=(2 * N, D))
    X += 0.7 * rng.normal(size=(2 * N, 4)) @ rng.normal(size=(4, D))
    X = X * np.geomspace(0.1, 10.0, D) + np.linspace(-5.0, 5.0, D)
    X[:, 2] = 3.0
    return X[:N], y[:N], X[N:]


X, Y, NEW = problem()
N, D, K = *X.shape, 3
WEIGHTS = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0, 3.5], N)
SOFT = np.eye(K)[Y] * 0.8 + np.eye(K)[(Y + 1) % K] * 0.2 * (np.arange(N) % 5 == 0)[:, None]
DATA = {"labels": (Y, None), "weights": (Y, WEIGHTS), "soft labels": (SOFT, None)}


def fitted(structure="tied", estimate="bayes", prior="predictive", X=X, y=Y, c=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ridges, under maximum likelihood
        return GaussianClassifier(structure, estimate=estimate, prior=prior, **options).fit(X, y, c)


def in_all_features(model):
    """The same model, its scatter as matrices (D, D)."""
    seen, other = model.seen_, copy(model)
    other.seen_ = SeenRows(seen.statistics.reduced("full"), seen.kept, seen.classes, seen.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert other.fitted_.densities.space is None
    return other


def in_row_space(model):
    return model.fitted_.densities.space is not None


def assert_same(model, other, new=NEW, tol=1e-9):
    found, expected = model.solution_, other.solution_
    assert (found.structure, found.structure_reason) == (expected.structure, expected.structure_reason)
    assert (found.n_left_out, found.n_evaluations) == (expected.n_left_out, expected.n_evaluations)
    assert found.ridges == expected.ridges
    assert found.scores == pytest.approx(expected.scores, rel=tol)
    assert found.hyperparameters == pytest.approx(expected.hyperparameters, rel=tol)
    assert model.log_evidence_ == pytest.approx(other.log_evidence_, rel=tol)
    for name in ("means_", "covariances_"):
        found, expected = getattr(model, name), getattr(other, name)
        np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * np.abs(expected).max(), err_msg=name)
    largest = np.abs(other.predict_joint_log_proba(new)).max()  # the others are differences of these
    for name in ("predict_joint_log_proba", "predict_log_proba", "score_samples"):
        found, expected = getattr(model, name)(new), getattr(other, name)(new)
        np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * largest, err_msg=name)
    np.testing.assert_allclose(model.predict_proba(new), other.predict_proba(new), atol=100 * tol)


# The whole fit


@matrices
@pytest.mark.parametrize("data", quick_first(DATA, 2))
@pytest.mark.parametrize("prior", ["predictive", "evidence", NormalInverseWishartPrior(1.5, 0.3)], ids=repr)
@pytest.mark.parametrize("estimate", ["bayes", "map"])
def test_fits_are_those_of_all_features(structure, data, prior, estimate):
    """The evidence's own prior is so weak that seven digits are lost on either way."""
    y, c = DATA[data]
    model = fitted(structure, estimate, prior, y=y, c=c)
    assert in_row_space(model)
    assert_same(model, in_all_features(model), tol=1e-8 if prior == "evidence" else 1e-9)


@matrices
def test_maximum_likelihood_with_its_ridge_is_that_of_all_features(structure):
    """The ridge is a millionth, so that six of sixteen digits are lost on either way."""
    model = fitted(structure, "mle")
    assert in_row_space(model)
    assert_same(model, in_all_features(model), tol=1e-7)


@pytest.mark.parametrize("estimate", ["bayes", "map", "mle"])
@pytest.mark.parametrize("size", [(30, 60, 3), (40, 200, 4)], ids=str)
def test_the_structure_chosen_is_the_same(size, estimate):
    X, y, new = problem(*size, seed=3)
    model = fitted("auto", estimate, X=X, y=y, class_prior=np.arange(1, size[2] + 1) / sum(range(1, size[2] + 1)))
    assert set(model.solution_.scores) == set(STRUCTURES)
    assert isinstance(model.seen_.statistics, RootStatistics)
    assert_same(model, in_all_features(model), new, tol=1e-6 if estimate == "mle" else 1e-9)


@matrices
@pytest.mark.parametrize("scale", [0.7, np.linspace(0.5, 2.0, D)], ids=["a number", "a number for each feature"])
def test_a_prior_stated_by_numbers_has_units_in_which_it_is_a_multiple_of_one(structure, scale):
    model = fitted(structure, prior=NormalInverseWishartPrior(kappa=0.5, nu=D + 4.0, scale=scale))
    assert in_row_space(model)
    assert_same(model, in_all_features(model), tol=1e-8)
    np.testing.assert_allclose(model.prior_.scale, np.diag(np.broadcast_to(scale, D)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, [1.0, 2.0]], ids=str)
def test_a_scale_that_is_none_is_refused_as_ever(scale):
    with pytest.raises(ValueError, match="prior's scale"):
        fitted(prior=NormalInverseWishartPrior(scale=scale))


@matrices
def test_the_prior_passed_back_gives_the_same_fit(structure):
    """It is a matrix that no rotation makes a multiple of one: the fit is then in all features."""
    model = fitted(structure)
    again = fitted(structure, prior=model.prior_)
    assert (in_row_space(model), in_row_space(again)) == (True, False)
    np.testing.assert_allclose(again.predict_joint_log_proba(NEW), model.predict_joint_log_proba(NEW), rtol=1e-8)
    np.testing.assert_allclose(again.covariances_, model.covariances_, rtol=1e-8, atol=1e-10)
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, rel=1e-9)


@pytest.mark.parametrize(
    ("structure", "estimate", "prior"),
    [("diagonal", "bayes", "predictive"), ("spherical", "bayes", "predictive"), ("tied", "map", RidgePrior(0.01))],
)
def test_what_a_rotation_changes_is_fitted_in_all_features(structure, estimate, prior):
    assert not in_row_space(fitted(structure, estimate, prior))


def test_as_many_rows_as_features_are_fitted_in_all_features():
    for n_features, few in ((N + 1, True), (N, False)):
        model = fitted("full", X=X[:, :n_features], prior=NormalInverseWishartPrior())
        assert isinstance(model.seen_.statistics, RootStatistics) == few
        assert in_row_space(model) == few
        assert_same(model, in_all_features(model), NEW[:, :n_features])


@matrices
def test_a_class_without_rows_is_believed_in_as_ever(structure):
    model = fitted(structure, prior=NormalInverseWishartPrior(), classes=[0, 1, 2, 3])
    assert in_row_space(model)
    assert_same(model, in_all_features(model))


@matrices
@pytest.mark.parametrize("estimate", ["bayes", "map"])
def test_densities_are_those_written_out(structure, estimate):
    """Six rows in nine features, by scipy's densities of all features."""
    prior = NormalInverseWishartPrior(mean=0.0, kappa=0.4, nu=11.5, scale=1.7)
    rows, y, new = X[:6, 30:39], Y[:6], NEW[:8, 30:39]
    model = fitted(structure, estimate, prior, X=rows, y=y, class_prior=[0.2, 0.3, 0.5])
    beliefs = naive_beliefs(rows, y, np.ones(6), K, WishartPrior(0.4, 11.5, 1.7 * np.eye(9)), structure)
    expected = naive_log_densities(new, beliefs, structure, estimate) + np.log([0.2, 0.3, 0.5])
    np.testing.assert_allclose(model.predict_joint_log_proba(new), expected, rtol=1e-10)
    assert in_row_space(model)


def test_no_matrix_of_all_features_is_made():
    """One of 20,000 x 20,000 would take 3.2 GB."""
    rng = np.random.default_rng(2)
    rows, y = rng.normal(size=(20, 20_000)), np.arange(20) % 2
    rows[y == 1, :500] += 1.0
    tracemalloc.start()
    model = fitted("full", X=rows, y=y)
    probs = model.predict_proba(rows + 0.1 * rng.normal(size=rows.shape))
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()
    assert probs[np.arange(20), y].min() > 0.9


# New rows


@matrices
@pytest.mark.parametrize("estimate", ["bayes", "map", "mle"])
def test_what_is_across_the_rows_counts_by_its_length_alone(structure, estimate):
    model = fitted(structure, estimate, "evidence" if estimate != "mle" else "predictive")
    space, origin = model.fitted_.densities.space, model.fitted_.densities.origin
    W = np.linalg.qr(np.column_stack([space.basis, np.eye(D)]))[0][:, space.basis.shape[1] :].T  # across the space
    assert np.abs(W @ ((X - origin) / space.unit).T).max() < 1e-12
    moved = NEW[:1] + 4.0 * W[:5] * space.unit
    expected = in_all_features(model).predict_joint_log_proba(moved)
    np.testing.assert_allclose(model.predict_joint_log_proba(moved), expected, rtol=1e-7)
    assert np.ptp(expected[:, 0]) > 1e-3  # the new row has a part across the space already
    at_mean, plus, minus = (model.predict_joint_log_proba(origin + r * W[:5] * space.unit) for r in (0.0, 4.0, -4.0))
    np.testing.assert_allclose(plus, np.broadcast_to(plus[0], plus.shape), rtol=1e-9)
    np.testing.assert_allclose(plus, minus, rtol=1e-9)
    assert (plus < at_mean).all()


@matrices
def test_rows_far_beyond_all_numbers_are_those_of_all_features(structure):
    model = fitted(structure)
    other, far = in_all_features(model), NEW[:6] * 1e160
    np.testing.assert_allclose(model.predict_log_proba(far), other.predict_log_proba(far), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        model.fitted_.densities.inverse_spreads(), other.fitted_.densities.inverse_spreads(), rtol=1e-9
    )


@matrices
def test_rows_are_predicted_alike_in_any_batch_and_container(structure):
    model = fitted(structure)
    together = model.predict_log_proba(NEW)
    singles = np.concatenate([model.predict_log_proba(NEW[n : n + 1]) for n in range(len(NEW))])
    np.testing.assert_allclose(singles, together, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(sp.csr_array(NEW)), together, rtol=1e-12, atol=1e-12)
    odds = together[:, 0] - together[:, 2]
    np.testing.assert_allclose(model.log_odds(NEW, 0, 2), odds, rtol=1e-9, atol=1e-9)


@matrices
def test_intervals_are_those_of_all_features(structure):
    """Classes of six rows that hardly differ, so that intervals are wide."""
    y = np.random.default_rng(6).permutation(np.arange(18) % K)
    model = fitted(structure, prior=NormalInverseWishartPrior(kappa=3.0, nu=D + 20.0), X=X[:18], y=y)
    other = in_all_features(model)
    lower, upper = model.predict_interval(NEW[:8])
    assert in_row_space(model)
    assert (upper - lower).mean() > 0.2
    for found, expected in zip((lower, upper), other.predict_interval(NEW[:8]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.uncertainty(NEW[:8]).aleatoric, other.uncertainty(NEW[:8]).aleatoric, atol=1e-8)


def test_a_tied_covariance_is_a_softmax_regression():
    model = fitted("tied", "map")
    softmax = model.to_softmax()
    assert softmax.coef_.shape == (K, D)
    np.testing.assert_allclose(softmax.predict_log_proba(NEW), model.predict_log_proba(NEW), rtol=1e-9, atol=1e-9)


@matrices
@pytest.mark.parametrize("estimate", ["map", "bayes"])
def test_samples_have_the_distribution_of_the_classes(structure, estimate):
    """In all directions at once: the fitted model judges its own samples as it judges samples of all features."""
    rows, y = X[:9, 40:52], Y[:9]
    prior = NormalInverseWishartPrior(nu=40.0, scale=np.full(12, 30.0))
    model = fitted(structure, estimate, prior, X=rows, y=y)
    assert in_row_space(model)
    drawn, labels = model.sample(40_000, 0)
    for k in range(K):
        own = drawn[labels == k]
        covariance = model.covariances_ if structure == "tied" else model.covariances_[k]
        if estimate == "bayes":  # a Student t of v degrees of freedom: v / (v - 2) times its scale matrix
            n, at_mode = (9, 40 + 9 + 12 + 1 + K) if structure == "tied" else (3, 40 + 3 + 12 + 2)
            v, kappa = 40 + n - 12 + 1, 1 + 3
            covariance = covariance * at_mode * (kappa + 1) / (kappa * v) * v / (v - 2)
        L = np.linalg.cholesky(covariance)
        white = np.linalg.solve(L, (own - model.means_[k]).T)
        np.testing.assert_allclose(white.mean(axis=1), 0.0, atol=0.05)
        np.testing.assert_allclose(np.cov(white), np.eye(12), atol=0.1)


# Statistics


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kind", ["full", "pooled", "diagonal"])
def test_roots_have_the_scatter_of_the_rows(data, kind):
    y, c = DATA[data]
    found, expected = root_statistics(X, y, c, K).reduced(kind), class_statistics(X, y, c, K, kind)
    assert found.kind == kind
    np.testing.assert_allclose(found.counts, expected.counts, rtol=1e-13)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("data", DATA)
def test_roots_are_as_many_as_rows_need(data):
    """One less than rows that count, for each class."""
    y, c = DATA[data]
    shares = (np.eye(K)[y] if y.ndim == 1 else y) * (1.0 if c is None else c[:, None])
    found = root_statistics(X, y, c, K)
    np.testing.assert_array_equal(np.bincount(found.codes, minlength=K), (shares > 0).sum(axis=0) - 1)
    assert found.span == (shares > 0).sum()


def test_rows_far_from_the_origin_lose_no_digits():
    far = X[:, 3:] / X[:, 3:].std(axis=0) + 2.0**30
    near = root_statistics(far - 2.0**30, Y, None, K).reduced("full").scatter
    np.testing.assert_allclose(root_statistics(far, Y, None, K).reduced("full").scatter, near, rtol=0, atol=1e-9)


def test_features_that_are_constant_in_a_class_take_nothing_from_its_scatter():
    rows = X.copy()
    rows[Y == 1, :12] = 1.0
    found, expected = root_statistics(rows, Y, None, K).reduced("full"), class_statistics(rows, Y, None, K, "full")
    np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cuts", [[10], [1, 2, 3], [4, 20]], ids=str)
def test_statistics_of_parts_add_up(cuts):
    parts = np.split(np.random.default_rng(3).permutation(N), cuts)
    found = reduce(add, (root_statistics(X[rows], Y[rows], WEIGHTS[rows], K) for rows in parts))
    expected = root_statistics(X, Y, WEIGHTS, K)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.reduced("full").scatter, expected.reduced("full").scatter, rtol=1e-9, atol=1e-9)
    assert found.span == expected.span


def test_sparse_rows_have_the_statistics_of_dense_ones(monkeypatch):
    monkeypatch.setattr("posteriori.gaussian.roots._PART_BYTES", 8 * D * 7)
    found = root_statistics(sp.csr_array(X), Y, None, K).reduced("full")
    np.testing.assert_allclose(found.scatter, root_statistics(X, Y, None, K).reduced("full").scatter, atol=1e-9)


# Rows that arrive in parts, and files


@matrices
@pytest.mark.parametrize("cuts", [[7, 8], [15]], ids=str)
def test_rows_in_parts_are_all_rows_at_once(structure, cuts):
    model = GaussianClassifier(structure)
    for rows in np.split(np.arange(N), cuts):
        model.partial_fit(X[rows], Y[rows], classes=range(K))
    assert in_row_space(model)
    assert_same(model, fitted(structure), tol=1e-8)


def test_rows_that_become_more_than_the_features_are_then_fitted_in_all_features():
    more, labels = np.concatenate([X, NEW]), np.arange(2 * N) % K
    rows = more[:, 20:60]
    model = GaussianClassifier("tied", prior="evidence").partial_fit(rows[:N], labels[:N])
    assert in_row_space(model)
    model.partial_fit(rows[N:], labels[N:])
    assert isinstance(model.seen_.statistics, ClassStatistics)
    assert_same(model, fitted(prior="evidence", X=rows, y=labels), rows, tol=1e-8)


@matrices
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map", "mle"]))
def test_files_hold_the_same_model_and_no_row(structure, estimate, tmp_path):
    model = fitted(structure, estimate, "evidence" if estimate != "mle" else "predictive")
    path = tmp_path / "model.safetensors"
    save(model, path)
    other = load(path)
    np.testing.assert_array_equal(other.predict_log_proba(NEW), model.predict_log_proba(NEW))
    np.testing.assert_array_equal(other.covariances_, model.covariances_)
    assert other.solution_ == model.solution_
    if estimate == "bayes":
        np.testing.assert_array_equal(other.predict_interval(NEW[:4]), model.predict_interval(NEW[:4]))
    data = path.read_bytes()
    assert not any(row.tobytes() in data for row in X)
    centred = X - model.seen_.statistics.means[Y]
    for root in model.seen_.statistics.roots:
        cosines = centred @ root / np.sqrt(np.square(centred).sum(axis=1) * (root @ root))
        assert np.abs(cosines).max() < 1 - 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again, whole = other.partial_fit(NEW[:20], Y[:20]), model.partial_fit(NEW[:20], Y[:20])
        np.testing.assert_array_equal(again.predict_log_proba(NEW), whole.predict_log_proba(NEW))


# The space


def some_space():
    statistics = root_statistics(X, Y, None, K)
    origin, unit = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    return row_space(statistics, origin, unit), statistics, origin


def test_coordinates_keep_distances_from_points_of_the_space():
    space, statistics, origin = some_space()
    U, M = space.coordinates(NEW - origin), space.coordinates(statistics.means - origin)
    np.testing.assert_allclose(M[:, -1], 0.0, atol=1e-12)
    expected = [np.square((NEW - m) / space.unit).sum(axis=1) for m in statistics.means]
    np.testing.assert_allclose([np.square(U - m).sum(axis=1) for m in M], expected, rtol=1e-12)
    np.testing.assert_allclose(space.points(M) + origin, statistics.means, rtol=1e-12, atol=1e-12)
    Z = (NEW - origin) / space.unit
    np.testing.assert_allclose(space.moved(Z, U), NEW - origin, rtol=1e-10, atol=1e-10)


def test_matrices_and_slopes_are_those_of_the_features():
    """By a basis of all directions, those of the space first."""
    space, _, _ = some_space()
    r = space.basis.shape[1]
    full = np.linalg.qr(np.column_stack([space.basis, np.eye(D)]))[0]
    full[:, :r] = space.basis
    assert (r, space.hidden) == (N, D - N - 1)
    rng = np.random.default_rng(4)
    A = np.tril(rng.normal(size=(r + 1, r + 1)))
    A[-1, :-1] = 0.0
    M = A.T @ A
    whole = np.eye(D) * M[-1, -1]
    whole[:r, :r] = M[:r, :r]
    expected = space.unit * (full @ whole @ full.T) * space.unit[:, None]
    np.testing.assert_allclose(space.matrix(M), expected, rtol=1e-9, atol=1e-9)
    precision = np.diag(full @ whole @ full.T) / space.unit**2
    np.testing.assert_allclose(space.inverse_spreads(A), np.sqrt(precision), rtol=1e-9)
    G = rng.normal(size=(2, r + 1))
    found, step = space.slopes(G), rng.normal(size=D)
    np.testing.assert_allclose(found @ step, G[:, :r] @ (space.basis.T @ (step / space.unit)), rtol=1e-9)


def test_hidden_dimensions_count_in_determinants_and_degrees_of_freedom():
    space = RowSpace(np.ones(5), np.eye(5)[:, :2])
    structure = STRUCTURES["full"].folded(space.hidden)
    Psi = np.diag([2.0, 3.0, 0.5])[None]
    assert (structure.dimension(3), structure.values(3), structure.size(3)) == (5, 5, 15)
    np.testing.assert_allclose(structure.log_dets(Psi), np.log([[2.0 * 3.0 * 0.5**3]]))
    np.testing.assert_allclose(structure.whitened(Psi, np.ones(3))[1], np.log([[2.0 * 3.0 * 0.5**3]]))
    rows = np.random.default_rng(5).normal(size=(4, 5))
    q = np.square(space.coordinates(rows)) @ [1 / 2.0, 1 / 3.0, 2.0]
    density = multivariate_normal.logpdf(rows, cov=np.diag([2.0, 3.0, 0.5, 0.5, 0.5]))
    np.testing.assert_allclose(density, -0.5 * (q + structure.log_dets(Psi)[0] + 5 * np.log(2 * np.pi)), rtol=1e-12)
