"""Raw data, whatever their units: the default settings converge, and numbers at the edge of float64 survive."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from tests.slow import quick_first

from posteriori import BayesianSoftmaxRegression, GaussianPrior, SoftmaxRegression, Status

DATA = {load.__name__[5:]: load(return_X_y=True) for load in (load_iris, load_wine, load_digits, load_breast_cancer)}


def standardised(X):
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def badly_scaled(X):
    return X * 10.0 ** np.random.default_rng(0).uniform(-6, 6, X.shape[1])


def far_away(X):
    return standardised(X) + 1e8


def overlapping(N=200, D=3, K=3, seed=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    return X, (X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


@pytest.mark.parametrize("change", [np.array, standardised, badly_scaled, far_away], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", DATA)
def test_converges_with_default_settings(name, change):
    X, y = DATA[name]
    solution = SoftmaxRegression().fit(change(X), y).solution_
    assert solution.status is Status.CONVERGED
    assert solution.gap <= 1e-8 * solution.objective
    assert solution.gap_bound is not None
    if change is not badly_scaled:  # there a gradient that is nothing in its units is much to the prior
        assert solution.gap_bound <= 1e-5 * solution.objective


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_columns_far_from_zero_equal_centred_ones(alpha):
    X, y = overlapping()
    far = X + 1e8
    centred = far - 1e8  # the very digits that are left of X
    model, reference = (SoftmaxRegression(alpha).fit(Z, y) for Z in (far, centred))
    np.testing.assert_allclose(model.predict_proba(far), reference.predict_proba(centred), atol=1e-6)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)


def test_a_free_intercept_finds_the_class_frequencies_on_huge_constants():
    _, y = overlapping()
    model = SoftmaxRegression().fit(np.full((len(y), 1), 1e8), y)
    np.testing.assert_allclose(model.predict_proba([[1e8]])[0], np.bincount(y) / len(y), atol=1e-8)


def test_features_of_1e150_leave_the_prior_no_say():
    X, y = overlapping()
    model = SoftmaxRegression().fit(1e150 * X, y)
    likeliest = SoftmaxRegression(alpha=0.0).fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    np.testing.assert_allclose(model.predict_proba(1e150 * X), likeliest.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(1e150 * np.diff(model.coef_, axis=0), np.diff(likeliest.coef_, axis=0), atol=1e-5)


def test_features_of_1e_minus_150_leave_the_prior_all():
    X, y = overlapping()
    model = SoftmaxRegression().fit(1e-150 * X, y)
    assert model.solution_.status is Status.CONVERGED
    frequencies = np.broadcast_to(np.bincount(y) / len(y), (len(y), 3))
    np.testing.assert_allclose(model.predict_proba(1e-150 * X), frequencies, atol=1e-9)


@pytest.mark.parametrize("size", [1e150, 1e-150])
def test_units_do_not_matter_to_maximum_likelihood(size):
    X, y = overlapping()
    scale = np.array([size, 1.0, 1.0])
    model, reference = (SoftmaxRegression(alpha=0.0).fit(Z, y) for Z in (X * scale, X))
    np.testing.assert_allclose(model.predict_proba(X * scale), reference.predict_proba(X), atol=1e-6)


def by_hand(coef, intercept):
    """A fitted model with these coefficients instead of its own."""
    coef = np.array(coef, dtype=float)
    K, D = coef.shape
    model = SoftmaxRegression().fit(np.eye(K, D) + np.arange(K)[:, None], np.arange(K))
    model.coef_, model.intercept_ = coef, np.array(intercept, dtype=float)
    return model


@pytest.mark.parametrize(
    ("coef", "x", "probs"),
    [
        ([[1e308], [0.0], [-1e308]], 1.0, [1, 0, 0]),
        ([[1e308], [0.0], [-1e308]], -1.0, [0, 0, 1]),
        ([[1e308], [1e308], [-1e308]], 1.0, [0.5, 0.5, 0]),
        ([[1.7e308], [-1.7e308]], 1.0, [1, 0]),
        ([[-1e308], [-1e308]], 1.0, [0.5, 0.5]),
        ([[1e308], [0.0]], 0.0, [0.5, 0.5]),
        ([[1e308], [0.0], [-1e308]], 1e10, [1, 0, 0]),  # beyond float64: the limit
    ],
)
def test_logits_of_1e308_and_beyond(coef, x, probs):
    model = by_hand(coef, np.zeros(len(coef)))
    np.testing.assert_array_equal(model.predict_proba([[x]])[0], probs)
    log_probs = model.predict_log_proba([[x]])[0]
    assert not np.isnan(log_probs).any()
    np.testing.assert_allclose(np.exp(log_probs), probs, atol=1e-15)
    assert model.predict([[x]])[0] == np.argmax(probs)


@pytest.mark.parametrize("x", [1.0, 0.5, 1e-3, -0.99])
def test_log_probabilities_are_exact_however_small(x):
    coef, intercept = [[0.0], [-690.0], [-350.0], [350.0]], [0.1, -0.7, 0.0, -350.0]
    model = by_hand(coef, intercept)
    with mpmath.workdps(50):
        logits = [mpmath.mpf(w[0]) * mpmath.mpf(x) + mpmath.mpf(b) for w, b in zip(coef, intercept, strict=True)]
        log_total = mpmath.log(mpmath.fsum(mpmath.exp(f) for f in logits))
        exact = np.array([float(f - log_total) for f in logits])
        probs = np.array([float(mpmath.exp(f - log_total)) for f in logits])
    assert exact.min() < -0.1
    np.testing.assert_allclose(model.predict_log_proba([[x]])[0], exact, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(model.predict_proba([[x]])[0], probs, rtol=1e-12)


def test_log_probability_of_a_sure_class_keeps_its_digits():
    """log(1 - 1e-20) is -1e-20, not 0."""
    model = by_hand([[0.0], [-1.0]], [0.0, 0.0])
    assert model.predict_log_proba([[np.log(1e20)]])[0, 0] == pytest.approx(-1e-20, rel=1e-10)


@pytest.mark.parametrize("name", DATA)
def test_float32_equals_float64_of_the_same_numbers(name):
    X, y = DATA[name]
    single = X.astype(np.float32)
    model, reference = (SoftmaxRegression().fit(Z, y) for Z in (single, single.astype(np.float64)))
    np.testing.assert_allclose(model.predict_proba(single), reference.predict_proba(single), atol=1e-9)
    np.testing.assert_allclose(
        model.predict_log_proba(single), log_softmax(single @ model.coef_.T + model.intercept_, axis=1), atol=1e-9
    )


@pytest.mark.parametrize("seed", quick_first([0, 1, 2]))
@pytest.mark.parametrize("tol", [1e-8, 1e-10, 1e-13])
def test_columns_that_say_nothing_new_cost_no_passes_without_a_prior(tol, seed):
    """Where there is no curvature, rounding is all that a gradient holds: it must not be followed."""
    X, y = overlapping(50_000, 8, seed=seed)
    plain = SoftmaxRegression(alpha=0.0, tol=tol).fit(X, y)
    model = SoftmaxRegression(alpha=0.0, tol=tol).fit(np.c_[X, X[:, :2], np.full(len(X), 3.0)], y)
    assert model.solution_.status is Status.CONVERGED
    assert model.solution_.n_passes < 60
    assert model.solution_.objective == pytest.approx(plain.solution_.objective, rel=max(tol, 1e-13))
    np.testing.assert_allclose(model.coef_[:, 8:10], model.coef_[:, :2], rtol=1e-6)
    np.testing.assert_allclose(model.coef_[:, :2] + model.coef_[:, 8:10], plain.coef_[:, :2], rtol=1e-4)
    assert np.abs(model.coef_[:, 10]).max() < 1e-12


def test_rare_columns_by_the_hundred_are_measured_by_their_range():
    """Levels of categories: a prior per step from 0 to 1, in any container, and rare levels are held back more."""
    rng = np.random.default_rng(0)
    levels = np.minimum(rng.geometric(0.02, 600) - 1, 249)
    X = np.eye(250)[levels][:, np.bincount(levels, minlength=250) > 0]
    X = np.column_stack([X, rng.random((600, 220)) < 0.02]).astype(float)
    y = (rng.random(600) < 0.3 + 0.4 * (levels % 2)).astype(int)
    model = BayesianSoftmaxRegression(GaussianPrior(precision=1.0, autoscale=True), approximation="laplace").fit(X, y)
    np.testing.assert_allclose(model.fitted_.coordinates.scale, 2.0)
    sparse = BayesianSoftmaxRegression(GaussianPrior(precision=1.0, autoscale=True), approximation="laplace")
    np.testing.assert_allclose(sparse.fit(sp.csr_array(X), y).coef_, model.coef_, atol=1e-4)
    few = BayesianSoftmaxRegression(GaussianPrior(precision=1.0, autoscale=True), approximation="laplace")
    scale = few.fit(X[:, :150], y).fitted_.coordinates.scale
    np.testing.assert_allclose(scale, 1.0 / np.maximum(X[:, :150].std(axis=0), 0.05))
