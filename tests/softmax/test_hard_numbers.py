"""Numbers at the ends of their range, matrices without inverses and very many classes: values, or a sentence."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from tests.slow import quick_first

from posteriori import (
    BayesianSoftmaxRegression,
    ConvergenceWarning,
    GaussianClassifier,
    GaussianPrior,
    Newton,
    SeparationWarning,
    SoftmaxRegression,
    Status,
)
from posteriori.exceptions import SingularError
from posteriori.maths.integrals import cholesky_psd
from posteriori.rows import products
from posteriori.softmax import pairs
from posteriori.softmax.collinearity import DependentColumn, dependent_columns
from posteriori.softmax.structured import DiagonalPosterior
from posteriori.solvers.precondition import kronecker

RNG = np.random.default_rng(7)
X = RNG.normal(size=(120, 3))
Y = (X @ RNG.normal(size=(3, 3)) + RNG.gumbel(size=(120, 3))).argmax(axis=1)


def scaled(unit):
    return X * [1.0, unit, 1.0]


@pytest.fixture(autouse=True)
def _no_warning_of_numpy():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("unit", [1e-300, 1e-155, 1e-30, 1e30, 1e150, 1e300])
def test_without_a_prior_units_do_not_matter(unit):
    expected = SoftmaxRegression(alpha=0.0).fit(X, Y)
    model = SoftmaxRegression(alpha=0.0).fit(scaled(unit), Y)
    assert model.solution_.converged
    np.testing.assert_allclose(model.predict_proba(scaled(unit)), expected.predict_proba(X), atol=1e-7)
    np.testing.assert_allclose(model.coef_[:, 1] * unit, expected.coef_[:, 1], rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-300, 1e-155, 1e-100])
def test_a_prior_in_the_units_of_the_data_leaves_no_weight_to_tiny_values(unit):
    model = SoftmaxRegression().fit(scaled(unit), Y)
    without = SoftmaxRegression().fit(X[:, [0, 2]], Y)
    np.testing.assert_allclose(model.predict_proba(scaled(unit)), without.predict_proba(X[:, [0, 2]]), atol=1e-8)
    # w = -dE/dw / alpha, of the order of the values themselves
    assert (np.abs(model.coef_[:, 1]) < 1e3 * unit).all()
    assert model.solution_.objective == pytest.approx(without.solution_.objective, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-300, 1e-155, 1e150, 1e300])
@pytest.mark.parametrize("prior", ["evidence", GaussianPrior(precision=0.5, autoscale=True)])
def test_scaled_priors_do_not_see_units(prior, unit):
    options = {"prior": prior, "approximation": "laplace"}
    expected = BayesianSoftmaxRegression(**options).fit(X, Y).predict_proba(X)
    model = BayesianSoftmaxRegression(**options).fit(scaled(unit), Y)
    np.testing.assert_allclose(model.predict_proba(scaled(unit)), expected, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-155, 1e150])
@pytest.mark.parametrize("model", [BayesianSoftmaxRegression(1.0), BayesianSoftmaxRegression(), GaussianClassifier()])
def test_every_method_ends_in_values_or_a_sentence(model, unit):
    model.fit(scaled(unit), Y)
    assert np.isfinite(model.predict_proba(scaled(unit))).all()
    for name in ("summary", "as_prior"):
        try:
            getattr(model, name, dict)()
        except ValueError as error:
            assert len(str(error).split()) > 8  # noqa: PT017


def test_squares_beyond_the_range_of_numbers_are_refused_by_gaussian_classes():
    with pytest.raises(ValueError, match="rescale"):
        GaussianClassifier().fit(scaled(1e300), Y)


@pytest.mark.parametrize("weight", [1e-300, 1e-60, 1e60, 1e300])
@pytest.mark.parametrize("make", [SoftmaxRegression, BayesianSoftmaxRegression, GaussianClassifier])
def test_weights_beyond_the_range_of_numbers_are_refused(make, weight):
    with pytest.raises(ValueError, match="largest weight of a row"):
        make().fit(X, Y, np.full(len(Y), weight))


def test_partial_fit_refuses_values_whose_squares_overflow():
    with pytest.raises(ValueError, match=r"Column 1 .* holds values up to"):
        SoftmaxRegression().partial_fit(scaled(1e150), Y, classes=[0, 1, 2])


def test_rows_too_far_away_for_a_covariance_are_refused_by_name():
    model = BayesianSoftmaxRegression(1.0).fit(X, Y)
    far = X[:3] * [[1.0], [1e200], [1.0]]
    with pytest.raises(ValueError, match="Row 1 of X"):
        model.predict_latent(far)
    assert np.isfinite(model.predict_proba(far)).all()


# Wide rows, many classes


@pytest.mark.parametrize(("N", "D"), quick_first([(26, 3000), (6, 3000), (7, 1000)]))
@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"tol": 0.0}, {"alpha": 0.0, "tol": 0.0}])
def test_wide_rows_without_a_prior_or_a_tolerance(N, D, options):
    rng = np.random.default_rng(N)
    Z, y = rng.normal(size=(N, D)), np.arange(N) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SoftmaxRegression(**options).fit(Z, y)
    assert model.score(Z, y) == 1.0
    expected = Status.SEPARATED if options.get("alpha") == 0.0 else Status.CONVERGED
    assert model.solution_.status is expected


@pytest.mark.parametrize("K", quick_first([60, 176]))
def test_many_classes_without_a_prior_that_are_separated_say_so(K):
    rng = np.random.default_rng(K)
    Z = rng.normal(size=(2 * K, 3))
    Z = np.column_stack([Z, Z[:, 0], Z @ rng.normal(size=3)])
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        model = SoftmaxRegression(alpha=0.0, max_iter=60).fit(Z, np.arange(2 * K) % K)
    if model.solution_.status is Status.SEPARATED:
        assert [each.category for each in record] == [SeparationWarning]
    assert np.isfinite(model.predict_proba(Z)).all()


def test_sums_over_pairs_of_many_classes_are_those_over_few(monkeypatch):
    rng = np.random.default_rng(0)
    K, D = 7, 3
    basis = pairs.contrasts(K)
    grams = rng.normal(size=(K * (K - 1) // 2, D * (D + 1) // 2))
    S = rng.normal(size=((K - 1) * D, (K - 1) * D))
    S = S @ S.T
    one_by_one = [pairs.hessian_from_pairs(grams, b, D) for b in (basis, np.eye(K))], pairs.pair_forms(S, basis)
    monkeypatch.setattr(pairs, "_FEW_CLASSES", 2)
    at_once = [pairs.hessian_from_pairs(grams, b, D) for b in (basis, np.eye(K))], pairs.pair_forms(S, basis)
    for expected, found in zip([*one_by_one[0], one_by_one[1]], [*at_once[0], at_once[1]], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("approximation", ["auto", "variational", "importance"])
def test_a_posterior_of_many_classes_takes_seconds(approximation):
    from time import process_time

    rng = np.random.default_rng(1)
    K = 150
    Z, y = rng.normal(size=(400, 3)), rng.integers(0, K, 400)
    began = process_time()
    model = BayesianSoftmaxRegression(approximation=approximation, n_jobs=1).fit(Z, y)
    assert np.isfinite(model.predict_proba(Z[:5])).all()
    assert process_time() - began < 30.0


# Matrices


def test_a_posterior_without_a_covariance_is_refused_with_advice():
    Z = np.column_stack([X, X[:, 0]])
    with pytest.raises(SingularError, match="Use a stronger prior"):
        BayesianSoftmaxRegression(1e-16, approximation="laplace").fit(Z, Y)


def test_a_covariance_that_is_not_a_number_has_no_factor_and_takes_no_time():
    factors = cholesky_psd(np.array([[[np.nan]], [[4.0]]]))
    assert np.isnan(factors[0, 0, 0])
    assert factors[1, 0, 0] == pytest.approx(2.0)


@pytest.mark.parametrize("with_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_sparse_rows_with_many_weights_are_those_over_dense_ones(with_intercept, weighted):
    rng = np.random.default_rng(2)
    Z = sp.random_array((50, 2), density=0.3, rng=rng, format="csc")
    P, c = rng.dirichlet(np.ones(9), 50).T, rng.random(50) if weighted else None
    S = rng.normal(size=(9, 2 + with_intercept, 2 + with_intercept))
    for function, arguments in (
        (products.laplacian_gram, (P, c, with_intercept)),
        (products.packed_grams, (P, with_intercept)),
        (products.quadratic_forms, (S, with_intercept)),
    ):
        np.testing.assert_allclose(function(Z, *arguments), function(Z.toarray(), *arguments), atol=1e-13)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("method", ["draws", "delta"])
def test_effects_of_rows_in_other_units_are_refused(container, method):
    model = BayesianSoftmaxRegression(prior=GaussianPrior(autoscale=True)).fit(container(scaled(1e-300)), Y)
    assert np.isfinite(model.marginal_effects(container(scaled(1e-300)), method=method)["mean"]).all()
    with pytest.raises(ValueError, match="most of all in column 'x1'"):
        model.marginal_effects(container(1e10 * X), method=method)


def test_latent_variances_of_a_sparse_constant_column_are_those_of_a_dense_one():
    rows = np.column_stack([X[:, :2], np.full(len(X), -3.7)])
    precisions = np.column_stack([np.ones((3, 2)), np.full(3, 1e-14), np.full(3, 1e6)])
    centre = np.append(rows.mean(axis=0), 1.0)
    posterior = DiagonalPosterior(np.zeros((3, 4)), precisions, centre)
    expected = ((rows[:, :2] - centre[:2]) ** 2).sum(axis=1) + 1e-6 + (rows[:, 2] - centre[2]) ** 2 / 1e-14
    dense, sparse = posterior.latent_variances(rows), posterior.latent_variances(sp.csc_array(rows))
    np.testing.assert_allclose(dense, np.tile(expected, (3, 1)), rtol=1e-10)
    assert (sparse >= 1e-6).all()
    np.testing.assert_allclose(sparse, dense, atol=64 * np.finfo(float).eps * 3.7**2 / 1e-14)


def test_the_bound_holds_for_the_coefficients_returned_far_from_the_origin():
    rows = 1e14 + np.eye(2)[np.arange(13) % 2]
    y = np.arange(13) % 2
    model = SoftmaxRegression(alpha=1.0).fit(rows, y)
    z = rows.astype(np.longdouble) @ (model.coef_[1] - model.coef_[0]).astype(np.longdouble)
    z += np.longdouble(model.intercept_[1]) - np.longdouble(model.intercept_[0])
    returned = np.log1p(np.exp(np.where(y == 1, -z, z))).sum() + 0.5 * (model.coef_**2).sum()
    assert returned <= model.solution_.objective + model.solution_.gap_bound
    assert model.solution_.gap_bound < 1.0


def test_the_bound_holds_where_intercepts_are_not_quite_settled():
    # a constant column: the intercept does what its weight does, and J - J* is alpha/2 |w|^2 exactly
    y = np.repeat(np.arange(3), (9, 6, 5))
    model = SoftmaxRegression(alpha=0.01, solver="gd", tol=1e-16, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.ones((20, 1)), y)
    assert model.solution_.gap_bound >= 0.005 * (model.coef_**2).sum() > 0


def test_log_odds_where_the_precision_is_infinite_in_the_units():
    rows = X.copy()
    rows[:, 2] = rows[:, 1] + 1e-4 * rows[:, 2]
    expected = GaussianClassifier(covariance="tied", estimate="mle").fit(rows, Y).to_softmax()
    model = GaussianClassifier(covariance="tied", estimate="mle").fit(rows * 1e-151, Y).to_softmax()
    np.testing.assert_allclose(model.coef_ * 1e-151, expected.coef_, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::posteriori.exceptions.SingularWarning")
def test_one_row_has_no_left_out_loss():
    model = GaussianClassifier(covariance="auto", estimate="mle", classes=[0, 1])
    assert model.fit([[1e8, 1.0]], [0]).predict_proba([[1e8, 1.0]])[0, 0] > 0.5


def test_a_variance_below_zero_by_rounding_is_that_of_a_constant_column():
    assert dependent_columns(np.array([[4.0, 0.0], [0.0, -1e-9]])) == [DependentColumn(1, ())]


def test_a_curvature_that_is_all_rounding_makes_a_finite_preconditioner():
    A = 1e-20 * np.diag([1.0, 1.0, -2.0])  # of trace zero
    apply = kronecker(A, np.eye(2), np.arange(2), np.full(3, 1e30), np.ones((3, 3)))
    assert np.isfinite(apply(np.ones((3, 3)))).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("solver", ["auto", Newton(exact=False), "lbfgs"], ids=str)
def test_rows_of_no_weight_may_hold_anything(kind, solver):
    weight = np.ones(len(Y))
    weight[::4] = 0.0
    far = np.where(weight[:, None] > 0, X, 1e300)
    expected = SoftmaxRegression(solver=solver).fit(X[weight > 0], Y[weight > 0])
    model = SoftmaxRegression(solver=solver).fit(kind(far), Y, weight)
    assert model.solution_.objective == pytest.approx(expected.solution_.objective, rel=1e-12)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
