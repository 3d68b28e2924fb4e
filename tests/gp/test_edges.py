"""Constant and duplicated columns, absurd units, hardly any rows, rows very far away: never a failure, never a NaN."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")

from tests.gp.gp_cases import FittedOnce, X, Y, assert_probabilities, deep, gp  # noqa: E402
from tests.slow import quick_first  # noqa: E402

from posteriori import ConvergenceWarning, kernels  # noqa: E402
from posteriori.gp.inputs import inducing_inputs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning")

FREQUENCIES = np.bincount(Y) / len(Y)


@pytest.fixture(scope="module")
def models():
    return FittedOnce()


makers = pytest.mark.parametrize("make", quick_first([gp, deep]))


def fit_quietly(model, X, y):
    """With no warning but that of few steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def assert_sound(model, X):
    """Everything a model can say of rows X, and of rows not so near, is a number that makes sense."""
    few = X[:8]
    for rows in (X, few + 1.0, -3.0 * few, 1e12 + few):
        K = len(model.classes_)
        P = model.predict_proba(rows)
        assert_probabilities(P, len(rows), K)
        mean, covariance = model.predict_latent(rows)
        assert np.isfinite(mean).all()
        assert np.isfinite(covariance).all()
    lower, upper = model.predict_interval(few)
    assert ((0.0 <= lower) & (lower <= upper) & (upper <= 1.0 + 1e-12)).all()
    assert np.isfinite(model.uncertainty(few)).all()
    assert np.isfinite(model.scale_).all()
    assert np.isfinite(model.solution_.energy)


# Columns


@pytest.mark.parametrize(
    ("make", "value"), quick_first([(gp, 7.0), (deep, 7.0), (gp, 0.0), (gp, 1e9 / 3), (gp, -1e-9)])
)
def test_a_constant_column_is_left_out(make, value, models):
    rows = np.column_stack([X[:, 0], np.full(len(X), value), X[:, 1]])
    model = fit_quietly(make(), rows, Y)
    reference = models[make]
    np.testing.assert_allclose(model.predict_proba(rows), reference.predict_proba(X), rtol=0, atol=1e-12)
    rows[:, 1] += 5.0  # new rows may differ in it: nothing was ever learned of that
    np.testing.assert_allclose(model.predict_proba(rows), reference.predict_proba(X), rtol=0, atol=1e-12)
    if make is gp:
        np.testing.assert_allclose(model.lengthscales_[[0, 2]], reference.lengthscales_, rtol=1e-9)
        assert model.lengthscales_[1] == np.inf
        assert model.relevances_[1] == 0.0
        assert model.inducing_inputs_.shape == (15, 3)
        np.testing.assert_allclose(model.inducing_inputs_[:, 1], value, rtol=1e-12)


@pytest.mark.slow
def test_lengthscales_may_be_given_for_constant_columns_too():
    rows = np.column_stack([X[:, 0], np.full(len(X), 7.0), X[:, 1]])
    model = gp(kernel=kernels.RBF((15.0, 1.0, 25.0)), max_iter=0, calibrate=False).fit(rows, Y)
    without = gp(kernel=kernels.RBF((15.0, 25.0)), max_iter=0, calibrate=False).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(rows), without.predict_proba(X), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_kernel_found_can_be_passed_back_where_a_column_is_constant():
    rows = np.column_stack([X[:, 0], np.full(len(X), 7.0), X[:, 1]])
    model = gp(kernel=kernels.RBF()).fit(rows, Y)
    again = gp(kernel=model.kernel_, max_iter=0).fit(rows, Y)
    np.testing.assert_allclose(again.relevances_, model.relevances_, rtol=1e-9)


@pytest.mark.slow
def test_a_column_twice_counts_like_one():
    """Two lengthscales sqrt(2) times as long are the same kernel; so the fit begins and ends at the same place."""
    rows = np.repeat(X[:, :1], 2, axis=1)
    model = fit_quietly(gp(), rows, Y)
    assert_sound(model, rows)
    np.testing.assert_allclose(model.lengthscales_[0], model.lengthscales_[1], rtol=1e-9)
    single = fit_quietly(gp(), X[:, :1], Y)
    np.testing.assert_allclose(model.predict_proba(rows), single.predict_proba(X[:, :1]), rtol=0, atol=0.02)


@pytest.mark.slow
def test_one_feature():
    """The class that is largest to the right wins there, and the one of the left on the left."""
    model = fit_quietly(gp(), X[:, :1], Y)
    assert_sound(model, X[:, :1])
    assert model.predict([[60.0], [140.0]]).tolist() == [2, 0]
    assert model.relevances_.shape == (1,)


@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_a_column_duplicated_exactly_is_no_trouble(make):
    rows = np.repeat(X[:, 1:], 2, axis=1)
    assert_sound(fit_quietly(make(), rows, Y), rows)


@pytest.mark.slow
def test_lengthscales_of_a_last_layer_are_in_its_own_units():
    """It does not see the columns, but what the layer below makes of them: any number of nodes, of any spread."""
    options = {"kernel": kernels.RBF(1.0), "layers": (3,), "max_iter": 20}
    P, Q = (deep(**options).fit(rows, Y).predict_proba(rows) for rows in (X, 1e6 * X))
    assert_probabilities(P, 40)
    np.testing.assert_allclose(P, Q, rtol=0, atol=1e-9)


# Units


@settings(max_examples=6, deadline=None)
@given(
    exponents=st.tuples(st.integers(-140, 140), st.integers(-140, 140)),
    shifts=st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)),
    signs=st.tuples(st.sampled_from([-1.0, 1.0]), st.sampled_from([-1.0, 1.0])),
)
def test_units_do_not_matter(models, exponents, shifts, signs):
    """Shifts of 1e5 leave eleven digits of what is left."""
    units = 10.0 ** np.array(exponents) * signs
    rows = (X + shifts) * units
    model = gp().fit(rows, Y)
    np.testing.assert_allclose(model.predict_proba(rows), models[gp].predict_proba(X), rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.relevances_, models[gp].relevances_, rtol=1e-5)
    np.testing.assert_allclose(model.lengthscales_, models[gp].lengthscales_ * np.abs(units), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "units"),
    quick_first([(gp, (1e8, 1e-8)), (deep, (1e8, 1e-8)), (gp, (1e8, 1e8)), (gp, (1e-8, 1e-8))], 2),
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_huge_and_tiny_units_are_standardised_away(make, units, models):
    model = fit_quietly(make(), X * units, Y)
    np.testing.assert_allclose(model.predict_proba(X * units), models[make].predict_proba(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_whose_squares_are_no_numbers(unit, models):
    model = fit_quietly(gp(), X * unit, Y)
    np.testing.assert_allclose(model.predict_proba(X * unit), models[gp].predict_proba(X), rtol=0, atol=1e-10)


# Few rows, or all the same


def assert_among(rows, inducing):
    for row in rows:
        assert np.abs(inducing - row).max(axis=1).min() < 1e-9


@pytest.mark.slow
def test_fewer_rows_than_inducing_inputs():
    rows, y = X[:8], Y[:8]
    model = fit_quietly(gp(), rows, y)
    assert_sound(model, rows)
    assert_among(rows, model.inducing_inputs_)
    assert model.score(rows, y) >= 7 / 8


@pytest.mark.slow
def test_rows_that_are_repeated_with_labels_that_contradict_each_other():
    """Eight rows, five times; of each, three have one label and two another: that is what is to be expected there."""
    rows = np.tile(X[:8], (5, 1))
    first, second = Y[:8], (Y[:8] + 1) % 3
    model = fit_quietly(gp(), rows, np.concatenate([first, first, first, second, second]))
    assert_sound(model, rows)
    assert_among(X[:8], model.inducing_inputs_)
    P = model.predict_proba(X[:8])
    assert np.abs(P.sum(axis=0) / 8 - (0.6 * np.bincount(first) + 0.4 * np.bincount(second)) / 8).max() < 0.1


def test_there_are_no_more_inducing_inputs_than_asked_for():
    for rows in (X, np.tile(X[:8], (5, 1))):
        Z, complete = inducing_inputs(rows, np.ones(40), 15, seed=0)
        assert len(Z) == 15
        assert complete == (rows is not X)


@pytest.mark.slow
def test_rows_that_are_all_the_same_have_the_class_frequencies():
    rows = np.full((40, 2), 3.3)
    model = fit_quietly(gp(), rows, Y)
    assert_sound(model, rows)
    P = model.predict_proba(rows)
    np.testing.assert_array_equal(P, np.tile(P[0], (40, 1)))
    np.testing.assert_allclose(P[0], FREQUENCIES, atol=0.05)
    assert model.lengthscales_[1] == np.inf


@pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")
@pytest.mark.parametrize("weight", quick_first([1e-12, 1e6, 1e-3, 1e3], 2))
def test_weights_from_tiny_to_huge(weight, models):
    """Of no weight, rows say nothing; of much weight, nothing but them is said."""
    model = gp().fit(X, Y, np.full(40, weight))
    assert_sound(model, X)
    P = model.predict_proba(X)
    if weight < 1e-6:
        np.testing.assert_allclose(P, 1 / 3, atol=1e-3)
    if weight > 1.0:
        assert model.score(X, Y) >= models[gp].score(X, Y) - 1 / 40


def test_an_outlier_does_not_spoil_the_rest():
    rows = np.vstack([X[:-1], [1e6, 1e6]])
    model = gp().fit(rows, Y)
    assert_sound(model, rows)


# Far away


@makers
def test_rows_further_away_than_numbers_reach_have_probabilities(make, models):
    model = models[make]
    directions = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, 0.0]])
    rows = np.vstack([distance * directions for distance in (1e3, 1e12, 1e100, 1e150, 1e200, 1e300)])
    assert_probabilities(model.predict_proba(rows), 18)
    assert np.isfinite(model.predict_log_proba(rows)).all()
    assert np.isfinite(model.predict_interval(rows)).all()
    assert np.isfinite(model.uncertainty(rows)).all()


@pytest.mark.parametrize(
    "kernel",
    quick_first([kernels.RBF(), kernels.Matern(), kernels.RBF() + kernels.Linear()]),
    ids=["RBF", "Matern", "RBF + Linear"],
)
def test_rows_far_away_under_other_kernels(kernel):
    model = gp(kernel=kernel, max_iter=0, calibrate=False).fit(X, Y)
    for distance in (1e12, 1e100, 1e200):
        assert_probabilities(model.predict_proba([[distance, 0.0], [-distance, distance]]), 2)


def test_rows_at_the_end_of_all_numbers(models):
    assert_probabilities(models[gp].predict_proba([[1.7e308, 0.0], [-1.7e308, 1.7e308]]), 2)


@makers
def test_far_away_nothing_is_known(make, models):
    """Stationary kernels return to the prior, in which no class is preferred."""
    P = models[make].predict_proba([[1e12, 1e12], [-1e12, 1e12]])
    np.testing.assert_allclose(P[0], P[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(P, 1 / 3, atol=0.12)
