"""Two ways to say the same thing give the same fit."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse as sp
from tests.slow import quick_first

from posteriori import SeparationWarning, SoftmaxRegression, Status

N, D, K = 60, 4, 3
quick = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def overlapping(N=N, D=D, K=K, seed=1, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    y = (signal * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    return X, y


X, Y = overlapping()


def probabilities(X, y, weights=None, at=X, alpha=1.0, **options):
    return SoftmaxRegression(alpha, **options).fit(X, y, weights).predict_proba(at)


# Weights, soft labels and counts


@quick
@given(hnp.arrays(int, N, elements=st.integers(0, 4)), st.sampled_from([0.0, 1.0]))
def test_weight_is_repetition_and_zero_is_absence(weights, alpha):
    assume(np.bincount(Y, weights, K).min() >= 8)
    weighted = SoftmaxRegression(alpha).fit(X, Y, weights)
    repeated = SoftmaxRegression(alpha).fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    assume(repeated.solution_.status is Status.CONVERGED)
    assert weighted.solution_.status is Status.CONVERGED
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


def test_rows_of_weight_zero_may_hold_anything():
    weights = np.arange(N) % 3 > 0
    other = np.where(weights[:, None], X, 1e6)
    np.testing.assert_allclose(
        probabilities(other, np.where(weights, Y, 0), weights), probabilities(X[weights], Y[weights]), atol=1e-7
    )


@quick
@given(hnp.arrays(int, (N, K), elements=st.integers(1, 5)))
def test_counts_are_repeated_rows(counts):
    rows, labels = np.repeat(np.arange(N), K), np.tile(np.arange(K), N)
    repeated = np.repeat(X[rows], counts.ravel(), axis=0), np.repeat(labels, counts.ravel())
    np.testing.assert_allclose(probabilities(X, counts), probabilities(*repeated), atol=1e-7)


@quick
@given(seeds)
def test_soft_targets_are_weighted_hard_ones(seed):
    rng = np.random.default_rng(seed)
    soft, weights = rng.dirichlet(np.full(K, 0.5), N), rng.uniform(0.1, 2.0, N)
    rows, labels = np.repeat(np.arange(N), K), np.tile(np.arange(K), N)
    hard = probabilities(X[rows], labels, (weights[:, None] * soft).ravel())
    np.testing.assert_allclose(probabilities(X, soft, weights), hard, atol=1e-7)


def test_class_weight_is_sample_weight():
    weights = np.array([0.5, 2.0, 3.0])
    by_class = probabilities(X, Y, class_weight=dict(enumerate(weights)))
    np.testing.assert_allclose(by_class, probabilities(X, Y, weights[Y]), atol=1e-9)


# Order of classes, rows and columns


@quick
@given(st.permutations(range(K)))
def test_label_permutation(order):
    order = np.array(order)
    np.testing.assert_allclose(probabilities(X, order[Y])[:, order], probabilities(X, Y), atol=1e-8)


@quick
@given(st.permutations(range(N)), st.permutations(range(D)))
def test_permuted_rows_and_columns(rows, columns):
    model = SoftmaxRegression().fit(X, Y)
    permuted = SoftmaxRegression().fit(X[rows][:, columns], Y[list(rows)])
    np.testing.assert_allclose(permuted.coef_, model.coef_[:, columns], atol=1e-7)
    np.testing.assert_allclose(permuted.intercept_, model.intercept_, atol=1e-7)


# Changes of coordinates


@quick
@given(
    hnp.arrays(float, D, elements=st.floats(1e-3, 1e3)),
    hnp.arrays(float, D, elements=st.floats(-100, 100)),
    hnp.arrays(bool, D),
)
def test_affine_maps_of_columns_do_not_matter_without_a_prior(scale, shift, flip):
    mapped = X * np.where(flip, -scale, scale) + scale * shift
    np.testing.assert_allclose(
        probabilities(mapped, Y, at=mapped, alpha=0.0), probabilities(X, Y, alpha=0.0), atol=1e-7
    )


@quick
@given(hnp.arrays(float, D, elements=st.floats(-1e6, 1e6)))
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_shifts_of_columns_do_not_matter_with_a_free_intercept(alpha, shift):
    np.testing.assert_allclose(
        probabilities(X + shift, Y, at=X + shift, alpha=alpha), probabilities(X, Y, alpha=alpha), atol=1e-7
    )


def test_duplicated_columns_share_their_weight_without_a_prior():
    single = SoftmaxRegression(0.0).fit(X, Y)
    double = SoftmaxRegression(0.0).fit(np.column_stack([X, X]), Y)
    np.testing.assert_allclose(double.coef_, np.tile(single.coef_ / 2, 2), atol=1e-7)
    np.testing.assert_allclose(double.intercept_, single.intercept_, atol=1e-7)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("value", [0.0, 1.0, -17.3, 1e6])
def test_constant_columns_get_no_weight(alpha, value):
    plain = SoftmaxRegression(alpha).fit(X, Y)
    model = SoftmaxRegression(alpha).fit(np.column_stack([X[:, :2], np.full(N, value), X[:, 2:]]), Y)
    assert np.abs(model.coef_[:, 2]).max() < 1e-7
    np.testing.assert_allclose(np.delete(model.coef_, 2, axis=1), plain.coef_, atol=1e-6)


def test_weights_are_centred_over_classes():
    """Adding one vector to all rows changes no probability; the smallest weights are returned."""
    for alpha in (0.0, 1.0):
        model = SoftmaxRegression(alpha).fit(X, Y)
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(model.intercept_.sum(), 0.0, atol=1e-9)


# Extreme shapes


def test_more_features_than_rows():
    """The weights lie in the span of the rows: alpha W = (Y - P)^T X."""
    X, y = overlapping(N=30, D=200)
    model = SoftmaxRegression(0.5).fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    np.testing.assert_allclose(0.5 * model.coef_, (np.eye(K)[y] - model.predict_proba(X)).T @ X, atol=1e-6)


@pytest.mark.slow
def test_a_thousand_classes():
    """With free intercepts the expected class sizes are the observed ones."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(1000), rng.integers(0, 1000, 2000)])
    X = rng.normal(size=(3000, 3)) + 0.5 * rng.normal(size=(1000, 3))[y]
    model = SoftmaxRegression().fit(X, y)
    assert model.solution_.status is Status.CONVERGED
    assert model.solution_.gap_bound <= 1e-6 * model.solution_.objective
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=0), np.bincount(y), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_declared_absent_class_with_a_free_intercept_is_separated(alpha):
    model = SoftmaxRegression(alpha, classes=[0, 1, 2, 3])
    with pytest.warns(SeparationWarning):
        model.fit(X, Y)
    assert model.solution_.status is Status.SEPARATED
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    probs = model.predict_proba(X)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert probs[:, 3].max() < 1e-3
    np.testing.assert_allclose(probs[:, :3], probabilities(X, Y, alpha=alpha), atol=2e-3)


def test_declared_absent_class_with_a_penalised_intercept_converges():
    model = SoftmaxRegression(classes=[3, 0, 1, 2], penalize_intercept=True).fit(X, Y)
    assert model.solution_.status is Status.CONVERGED
    assert model.classes_.tolist() == [0, 1, 2, 3]
    residual = np.eye(4)[Y] - model.predict_proba(X)
    np.testing.assert_allclose(model.coef_, residual.T @ X, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, residual.sum(axis=0), atol=1e-6)


# The same every time


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_prediction_does_not_depend_on_its_batch(convert):
    X, y = overlapping(N=30_000, D=20, K=5)
    model = SoftmaxRegression().fit(X[:500], y[:500])
    X = convert(X)
    together = model.predict_proba(X)
    for rows in (slice(0, 1), slice(17, 18), slice(29_999, 30_000), slice(100, 9000), slice(1, None, 1000)):
        np.testing.assert_allclose(model.predict_proba(X[rows]), together[rows], atol=1e-12)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("solver", ["auto", "newton", "lbfgs", "gd", "sgd"])
def test_fits_are_deterministic(solver):
    first, second = (SoftmaxRegression(solver=solver, max_iter=20, random_state=3).fit(X, Y) for _ in range(2))
    assert first.coef_.any()
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(first.intercept_, second.intercept_)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("solver", quick_first(["auto", "newton", "lbfgs"]))
def test_the_number_of_threads_does_not_change_a_bit(solver, convert):
    X, y = overlapping(N=20_000, D=25, K=10)
    X = convert(X)
    one, two = (SoftmaxRegression(solver=solver, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
