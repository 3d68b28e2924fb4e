"""The sequential algorithm, and starting from where the last fit ended."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_iris, load_wine
from tests.slow import quick_first

from posteriori import SoftmaxRegression

WINE, CULTIVAR = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(WINE))
WINE, CULTIVAR = WINE[ORDER], CULTIVAR[ORDER]


def objective(model, X, y, alpha=1.0):
    logits = X @ model.coef_.T + model.intercept_
    return (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).sum() + 0.5 * alpha * (model.coef_**2).sum()


def chunks(n_rows, size):
    return [slice(start, start + size) for start in range(0, n_rows, size)]


# Repeated passes


@pytest.mark.slow
def test_passes_over_raw_data_approach_the_optimum():
    best = SoftmaxRegression().fit(WINE, CULTIVAR).solution_.objective
    model = SoftmaxRegression()
    excess = []
    for _ in range(200):
        model.partial_fit(WINE, CULTIVAR)
        excess.append(objective(model, WINE, CULTIVAR) / best - 1)
    assert min(excess) >= 0
    assert excess[-1] <= 0.02
    assert excess[9] > excess[49] > excess[199]
    assert excess[0] < len(WINE) * np.log(3) / best - 1  # even one pass beats knowing nothing


@pytest.mark.parametrize("size", quick_first([100, 1, 20]))
def test_passes_in_chunks_approach_the_same_optimum(size):
    best = SoftmaxRegression().fit(WINE, CULTIVAR)
    model = SoftmaxRegression()
    for _ in range(100):
        for rows in chunks(len(WINE), size):
            model.partial_fit(WINE[rows], CULTIVAR[rows], classes=[0, 1, 2])
    assert objective(model, WINE, CULTIVAR) <= 1.05 * best.solution_.objective
    np.testing.assert_allclose(model.predict_proba(WINE), best.predict_proba(WINE), atol=0.1)
    assert model.n_iter_ == 100 * len(WINE)


def overlapping(N, scale=1.0):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(N, 3))
    return Z * scale, (Z @ rng.normal(size=(3, 3)) + rng.gumbel(size=(N, 3))).argmax(axis=1)


@pytest.mark.parametrize("scale", quick_first([[1e-6, 1.0, 1e6], [1.0, 0.1, 0.01], [1.0, 100.0, 1e6]]), ids=str)
@pytest.mark.parametrize("alpha", quick_first([1e-9, 0.0, 1.0]))
def test_features_need_no_scaling(scale, alpha):
    """The prior may hold a small feature's weight back, but it must not throw it away."""
    X, y = overlapping(1000, scale)
    model = SoftmaxRegression(alpha)
    for _ in range(20):
        model.partial_fit(X, y)
    assert np.isfinite(model.coef_).all()
    best = SoftmaxRegression(alpha).fit(X, y).solution_.objective
    assert objective(model, X, y, alpha) <= 1.02 * best


def test_chunks_of_4096_rows_equal_one_call():
    """Rows are taken up 4096 at a time; within that, scales are learnt from all of them before the first step."""
    X, y = overlapping(5000)
    whole = SoftmaxRegression().partial_fit(X, y)
    parts = SoftmaxRegression()
    for rows in chunks(5000, 4096):
        parts.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    assert np.isfinite(whole.coef_).all()
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-12)
    small = SoftmaxRegression()
    for rows in chunks(5000, 100):
        small.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    np.testing.assert_allclose(small.predict_proba(X), whole.predict_proba(X), atol=0.05)


def test_one_pass_over_a_long_stream_approaches_the_optimum():
    """Steps must shrink as rows come in, also while every row is new."""
    X, y = overlapping(8000)
    model = SoftmaxRegression()
    excess = {}
    for rows in chunks(8000, 1000):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
        seen = slice(0, rows.stop)
        best = SoftmaxRegression().fit(X[seen], y[seen]).solution_.objective
        excess[rows.stop] = objective(model, X[seen], y[seen]) / best - 1
    assert excess[8000] <= 0.02
    assert excess[8000] < excess[1000]


def test_weights_count():
    """A row of weight zero moves nothing; the optimum approached is the weighted one."""
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    model = SoftmaxRegression()
    for _ in range(200):
        model.partial_fit(X, y, sample_weight=weights)
    best = SoftmaxRegression().fit(X, y, weights)
    np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=0.05)


def test_sparse_rows_equal_dense_ones():
    X = np.where(WINE > WINE.mean(axis=0), WINE, 0.0)
    dense, sparse = SoftmaxRegression(), SoftmaxRegression()
    for _ in range(3):
        dense.partial_fit(X, CULTIVAR)
        sparse.partial_fit(sp.csr_array(X), CULTIVAR)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-12)


# Classes and columns


def test_classes_of_the_first_call_stay():
    model = SoftmaxRegression().partial_fit(WINE[:40], CULTIVAR[:40], classes=[2, 0, 1, 3])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.coef_.shape == (4, 13)
    only_zero = CULTIVAR == 0
    before = model.predict_proba(WINE[only_zero])[:, 0].mean()
    model.partial_fit(WINE[only_zero], CULTIVAR[only_zero], classes=[0, 1, 2, 3])
    assert model.predict_proba(WINE[only_zero])[:, 0].mean() > before
    assert model.predict_proba(WINE)[:, 3].max() < 0.5


def test_classes_of_the_constructor_are_used():
    first = CULTIVAR < 2
    model = SoftmaxRegression(classes=[0, 1, 2]).partial_fit(WINE[first], CULTIVAR[first])
    assert model.classes_.tolist() == [0, 1, 2]


def test_unseen_and_changed_classes_are_refused():
    model = SoftmaxRegression().partial_fit(WINE, CULTIVAR)
    coef = model.coef_.copy()
    with pytest.raises(ValueError, match="y holds 7, not among the declared classes 0, 1, 2"):
        model.partial_fit(WINE, np.where(CULTIVAR == 2, 7, CULTIVAR))
    with pytest.raises(ValueError, match="differ from those of the first call"):
        model.partial_fit(WINE, CULTIVAR, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="X has 12 features, but SoftmaxRegression is expecting 13"):
        model.partial_fit(WINE[:, 1:], CULTIVAR)
    np.testing.assert_array_equal(model.coef_, coef)


def test_columns_of_later_calls_must_be_those_of_the_first():
    table = pd.DataFrame(WINE[:, :3], columns=["a", "b", "c"])
    model = SoftmaxRegression().partial_fit(table, CULTIVAR)
    with pytest.raises(ValueError, match="same order"):
        model.partial_fit(table[["c", "b", "a"]], CULTIVAR)
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.partial_fit(table.rename(columns={"a": "z"}), CULTIVAR)


def test_target_as_a_column():
    table = pd.DataFrame(WINE[:, :3], columns=["a", "b", "c"]).assign(cultivar=CULTIVAR)
    model = SoftmaxRegression().partial_fit(table, "cultivar").partial_fit(table, "cultivar")
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    array = SoftmaxRegression().partial_fit(WINE[:, :3], CULTIVAR).partial_fit(WINE[:, :3], CULTIVAR)
    np.testing.assert_allclose(model.coef_, array.coef_, rtol=1e-10)


# Fit and partial_fit together


def test_fit_after_partial_fit_starts_anew():
    model = SoftmaxRegression().partial_fit(WINE, CULTIVAR).fit(WINE, CULTIVAR)
    np.testing.assert_array_equal(model.coef_, SoftmaxRegression().fit(WINE, CULTIVAR).coef_)
    again = model.partial_fit(WINE, CULTIVAR).coef_
    np.testing.assert_array_equal(again, SoftmaxRegression().partial_fit(WINE, CULTIVAR).coef_)


def test_the_certificate_of_a_fit_does_not_outlive_it():
    model = SoftmaxRegression().fit(WINE, CULTIVAR).partial_fit(WINE, CULTIVAR)
    if hasattr(model, "solution_"):
        assert model.solution_.objective == pytest.approx(objective(model, WINE, CULTIVAR))


@pytest.mark.parametrize("solver", ["auto", "newton", "lbfgs"])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_warm_start(solver, alpha):
    model = SoftmaxRegression(alpha, solver=solver, warm_start=True).fit(WINE, CULTIVAR)
    cold, coef = model.solution_, model.coef_
    model.fit(WINE, CULTIVAR)
    assert model.n_iter_ <= 2 < cold.n_iter
    assert model.solution_.n_passes < cold.n_passes
    assert model.solution_.converged
    assert model.solution_.trace[0].objective == pytest.approx(cold.objective)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-4)


def test_warm_start_is_left_out_where_it_does_not_fit():
    model = SoftmaxRegression(warm_start=True).fit(WINE, CULTIVAR)
    model.fit(WINE[:, :5], CULTIVAR)
    np.testing.assert_array_equal(model.coef_, SoftmaxRegression().fit(WINE[:, :5], CULTIVAR).coef_)
    model.fit(WINE[:, :5], CULTIVAR + 1)
    assert model.classes_.tolist() == [1, 2, 3]


def test_warm_start_from_partial_fit():
    model = SoftmaxRegression(warm_start=True).partial_fit(WINE, CULTIVAR)
    start = objective(model, WINE, CULTIVAR)
    assert model.fit(WINE, CULTIVAR).solution_.trace[0].objective == pytest.approx(start)


def test_rows_without_weight_change_nothing():
    X, y = load_wine(return_X_y=True)
    weights = np.r_[np.zeros(20), np.ones(len(y) - 20)]
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    weighted = SoftmaxRegression().partial_fit(X, y, classes=[0, 1, 2], sample_weight=weights)
    without = SoftmaxRegression().partial_fit(X[20:], y[20:], classes=[0, 1, 2])
    np.testing.assert_allclose(weighted.coef_, without.coef_, rtol=1e-9)


@pytest.mark.slow
def test_a_wide_sparse_matrix_is_made_dense_a_few_rows_at_a_time():
    X = sp.random_array((300, 100_000), density=1e-4, rng=np.random.default_rng(1), format="csr")
    y = np.arange(300) % 2
    tracemalloc.start()
    SoftmaxRegression().partial_fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.shape[0] * X.shape[1] * 8 / 3
