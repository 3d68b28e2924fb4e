"""Rows that arrive in parts, in any order: what is learnt is what all rows at once would teach."""

import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_wine
from tests.slow import quick_first

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.fit import fit_gaussian
from posteriori.gaussian.structures import STRUCTURES

structures = pytest.mark.parametrize("structure", STRUCTURES)
estimates = pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
X, Y = load_wine(return_X_y=True)
X = X[:, :5] + np.array([1e4, 0, 0, 0, 0])  # a column far from zero
N = len(Y)
ORDER = np.random.default_rng(0).permutation(N)
CHUNKS = {
    "halves": np.array_split(ORDER, 2),
    "one row at a time at first": [ORDER[:1], ORDER[1:2], ORDER[2:3], ORDER[3:]],
    "class after class": [np.flatnonzero(Y == k) for k in (2, 0, 1)],  # classes_ is known from the start
    "uneven": np.split(ORDER, [5, 100, 103]),
}
chunks = pytest.mark.parametrize("parts", CHUNKS.values(), ids=CHUNKS.keys())
GIVEN = NormalInverseWishartPrior()


def gaussian(structure="tied", estimate="bayes", prior="predictive", **options):
    return GaussianClassifier(structure, estimate=estimate, prior=prior, **options)


def in_parts(model, parts, X=X, y=Y, c=None, classes=(0, 1, 2)):
    """Warnings of the first parts, whose classes may be singular, say nothing about all rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in parts:
            model.partial_fit(X[rows], y[rows], classes=classes, sample_weight=None if c is None else c[rows])
    return model


def assert_same(model, other, rows=X, tol=1e-8):
    """Parameters to 1e-10 where the prior is given, predictions to 1e-8."""
    np.testing.assert_allclose(model.means_, other.means_, rtol=min(tol, 1e-8))
    spread = np.sqrt(np.abs(other.covariances_).max())
    np.testing.assert_allclose(model.covariances_, other.covariances_, rtol=tol, atol=tol * spread)
    np.testing.assert_allclose(model.class_prior_, other.class_prior_, rtol=1e-12)
    np.testing.assert_array_equal(model.class_count_, other.class_count_)
    np.testing.assert_allclose(model.predict_log_proba(rows), other.predict_log_proba(rows), rtol=1e-8, atol=1e-8)
    assert model.log_evidence_ == pytest.approx(other.log_evidence_, rel=1e-8)
    assert model.solution_.structure == other.solution_.structure


@cache
def at_once(structure, estimate):
    return gaussian(structure, estimate, "predictive" if estimate == "mle" else GIVEN).fit(X, Y)


@chunks
@structures
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map", "mle"]))
def test_parts_in_any_order_are_all_rows_at_once(parts, structure, estimate):
    prior = "predictive" if estimate == "mle" else GIVEN
    model = in_parts(gaussian(structure, estimate, prior), parts)
    other = at_once(structure, estimate)
    np.testing.assert_allclose(model.means_, other.means_, rtol=1e-10)
    spread = np.sqrt(X.var(axis=0))
    scale = {"full": np.outer(spread, spread), "tied": np.outer(spread, spread), "spherical": spread.max() ** 2}
    error = np.abs(model.covariances_ - other.covariances_) / scale.get(structure, spread**2)
    assert error.max() < 1e-10
    assert_same(model, other)
    assert model.solution_.scores == pytest.approx(other.solution_.scores, rel=1e-8)


@pytest.mark.parametrize(
    ("structure", "prior"),
    [
        ("auto", "predictive"),
        ("full", "evidence"),
        *(pytest.param(s, p, marks=pytest.mark.slow) for s in STRUCTURES for p in ("predictive", "evidence")),
    ],
)
def test_priors_and_structure_are_chosen_from_all_rows(structure, prior):
    model = in_parts(gaussian(structure, prior=prior), CHUNKS["halves"][::-1])
    other = gaussian(structure, prior=prior).fit(X, Y)
    assert_same(model, other)
    assert model.solution_.hyperparameters == pytest.approx(other.solution_.hyperparameters, rel=1e-6)
    assert model.solution_.n_left_out == N


def test_a_fit_goes_on():
    half, rest = CHUNKS["halves"]
    for structure in STRUCTURES:
        model = gaussian(structure, prior=GIVEN).fit(X[half], Y[half]).partial_fit(X[rest], Y[rest])
        assert_same(model, gaussian(structure, prior=GIVEN).fit(X, Y))


def test_fit_begins_anew():
    model = gaussian(prior=GIVEN).partial_fit(X, Y).fit(X[::2], Y[::2])
    assert_same(model, gaussian(prior=GIVEN).fit(X[::2], Y[::2]))
    assert model.class_count_.sum() == len(Y[::2])
    assert not hasattr(clone(model), "means_")


@structures
def test_weights_and_soft_labels_arrive_in_parts_too(structure):
    rng = np.random.default_rng(1)
    c, shares = rng.gamma(1.0, size=N), 0.7 * np.eye(3)[Y] + 0.3 * rng.dirichlet(np.ones(3), N)
    for y, weights in ((Y, c), (shares, None), (shares, c)):
        model = in_parts(gaussian(structure, prior=GIVEN), CHUNKS["uneven"], y=y, c=weights)
        other = gaussian(structure, prior=GIVEN).fit(X, y, weights)
        np.testing.assert_allclose(model.class_count_, other.class_count_, rtol=1e-12)
        np.testing.assert_allclose(model.predict_log_proba(X), other.predict_log_proba(X), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(model.means_, other.means_, rtol=1e-10)


def test_the_ridge_prior_in_parts():
    model = in_parts(gaussian("full", "map", RidgePrior(1e-3)), CHUNKS["halves"], X=X - X.mean(axis=0))
    other = gaussian("full", "map", RidgePrior(1e-3)).fit(X - X.mean(axis=0), Y)
    np.testing.assert_allclose(model.means_, other.means_, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("container", [sp.csr_array, lambda rows: rows.astype(np.float32).astype(np.float64)])
def test_parts_may_be_of_any_kind(container):
    rows = X.astype(np.float32).astype(np.float64)  # whole in single precision
    model = gaussian(prior=GIVEN).fit(rows[::2], Y[::2]).partial_fit(container(rows[1::2]), Y[1::2])
    assert_same(model, gaussian(prior=GIVEN).fit(rows, Y), rows=rows)


def test_tables_are_remembered():
    table = pd.DataFrame(X, columns=list("abcde")).assign(kind=np.array(["x", "y", "z"])[Y])
    model = gaussian(prior=GIVEN).partial_fit(table[::2], "kind").partial_fit(table[1::2], "kind")
    assert model.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_allclose(
        model.predict_proba(table), gaussian(prior=GIVEN).fit(X, Y).predict_proba(X), rtol=0, atol=1e-10
    )
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(table.rename(columns={"a": "f"}), "kind")


# When a fit is derived


@pytest.fixture
def fits(monkeypatch):
    """Counts the fits that are derived."""
    found = []

    def counted(*args):
        found.append(args)
        return fit_gaussian(*args)

    monkeypatch.setattr("posteriori.gaussian.fit.fit_gaussian", counted)
    return found


def test_rows_are_added_without_a_fit_and_one_fit_serves_all_predictions(fits):
    model = in_parts(gaussian("auto", prior=GIVEN), CHUNKS["one row at a time at first"])
    assert len(fits) == 0
    model.predict(X)
    model.predict_proba(X)
    assert model.means_.shape == (3, 5)
    assert len(fits) == 1
    model.partial_fit(X[:3], Y[:3]).predict(X)
    assert len(fits) == 2


def test_predicting_after_partial_fit_changes_no_attribute():
    model = gaussian(prior=GIVEN).partial_fit(X, Y)
    before = dict(vars(model))
    model.predict_proba(X)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_the_fit_is_that_of_the_parameters_at_the_last_call():
    model = gaussian("full", prior=GIVEN).partial_fit(X[::2], Y[::2]).set_params(covariance="tied")
    assert model.solution_.structure == "full"
    assert model.partial_fit(X[1::2], Y[1::2]).solution_.structure == "tied"


@pytest.mark.parametrize("predicted", [False, True], ids=["not derived", "derived"])
def test_a_pickle_goes_on_from_rows_in_parts(predicted):
    half, rest = CHUNKS["halves"]
    model = gaussian("full", prior=GIVEN).partial_fit(X[half], Y[half])
    if predicted:
        model.predict(X)
    again = pickle.loads(pickle.dumps(model))
    assert_same(again, model)
    assert_same(again.partial_fit(X[rest], Y[rest]), gaussian("full", prior=GIVEN).fit(X, Y))


# Classes


def test_classes_may_be_declared_by_either():
    first = ORDER[Y[ORDER] == 1][:10]  # one class only
    for model, classes in ((gaussian(prior=GIVEN), [2, 0, 1]), (gaussian(prior=GIVEN, classes=[0, 1, 2]), None)):
        model.partial_fit(X[first], Y[first], classes=classes)
        assert model.classes_.tolist() == [0, 1, 2]
        np.testing.assert_array_equal(model.class_count_, [0, 10, 0])
        assert np.isfinite(model.predict_log_proba(X)).all()
        rest = np.setdiff1d(np.arange(N), first)
        assert_same(model.partial_fit(X[rest], Y[rest]), gaussian(prior=GIVEN).fit(X, Y))


def test_classes_that_change_are_refused():
    model = gaussian(prior=GIVEN).partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"classes=.*differ from those of the first call"):
        model.partial_fit(X, Y, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="y holds 5"):
        model.partial_fit(X, np.where(Y == 2, 5, Y))
    with pytest.raises(ValueError, match="one class only"):
        gaussian(prior=GIVEN).partial_fit(X[Y == 1], Y[Y == 1])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], Y)
    assert_same(model, gaussian(prior=GIVEN).fit(X, Y))


@pytest.mark.parametrize(
    "labels", [np.array(["b", "c", "a"]), np.array([10.0, 20.0, 5.0]), np.array([True, False, True])]
)
def test_labels_of_any_kind(labels):
    y = labels[Y]
    model = in_parts(gaussian(prior=GIVEN), CHUNKS["halves"], y=y, classes=np.unique(labels))
    assert_same(model, gaussian(prior=GIVEN).fit(X, y))


# Very many rows


def many(N=9000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, N)
    return rng.normal(size=(N, 3)) + 1.2 * np.eye(3)[y], y


def test_of_very_many_rows_some_are_kept():
    """Statistics are exact; priors are chosen by 4,000 rows, which say the same."""
    rows, y = many()
    model = gaussian("tied")
    for start in range(0, 9000, 3000):
        part = slice(start, start + 3000)
        model.partial_fit(rows[part], y[part])
    other = gaussian("tied").fit(rows, y)
    assert model.solution_.n_left_out == other.solution_.n_left_out == 4000
    np.testing.assert_array_equal(model.class_count_, np.bincount(y))
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(rows), rtol=0, atol=2e-3)
    exact = [gaussian("tied", "mle").fit(rows, y)]
    exact.append(gaussian("tied", "mle").partial_fit(rows[:7000], y[:7000]).partial_fit(rows[7000:], y[7000:]))
    np.testing.assert_allclose(exact[0].covariances_, exact[1].covariances_, rtol=1e-10, atol=1e-12)


def test_rows_kept_are_from_all_parts_alike():
    """Rows that came late are as likely to be looked at as the first: the score is that of all."""
    easy, hard = many(), many(seed=1)
    rows = np.vstack([easy[0] + 6.0 * np.eye(3)[easy[1]], hard[0]])
    y = np.concatenate([easy[1], np.random.default_rng(2).permutation(hard[1])])  # labels of the second half are noise
    model = gaussian("tied", prior=GIVEN)
    for start in range(0, len(y), 2000):
        model.partial_fit(rows[start : start + 2000], y[start : start + 2000])
    losses = -model.predict_log_proba(rows)[np.arange(len(y)), y]
    error = losses.std() / np.sqrt(4000)
    assert model.solution_.scores["tied"] == pytest.approx(losses.mean(), abs=5 * error)


def test_which_rows_are_kept_is_reproducible():
    rows, y = many(6000)
    scores = [
        gaussian("tied", prior=GIVEN, random_state=seed)
        .partial_fit(rows[:3000], y[:3000])
        .partial_fit(rows[3000:], y[3000:])
        for seed in (None, None, 1, 1)
    ]
    found = [model.solution_.scores["tied"] for model in scores]
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[0] != found[2]
    np.testing.assert_array_equal(scores[0].predict_proba(rows), scores[2].predict_proba(rows))


def test_soft_labels_of_many_rows_arrive_in_parts():
    """A row counts once for every class it may be of: rows and what is kept of them differ in number."""
    rng = np.random.default_rng(3)
    rows, y = many(3000)
    shares = 0.7 * np.eye(3)[y] + 0.3 * rng.dirichlet(np.ones(3), 3000)
    model = gaussian("diagonal")
    for start in (0, 1500):
        model.partial_fit(rows[start : start + 1500], shares[start : start + 1500])
    other = gaussian("diagonal").fit(rows, shares)
    np.testing.assert_allclose(model.means_, other.means_, rtol=0, atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(rows), rtol=0, atol=5e-3)


# What changes on the way

GAPS = X.copy()
GAPS[np.random.default_rng(4).random(X.shape) < 0.1] = np.nan


def test_values_that_are_missing_later_restrict_auto_from_then_on():
    half, rest = CHUNKS["halves"]
    model = gaussian("auto", prior=GIVEN).partial_fit(X[half], Y[half])
    assert set(model.solution_.scores) == set(STRUCTURES)
    model.partial_fit(GAPS[rest], Y[rest])
    assert set(model.solution_.scores) == {"diagonal", "tied_diagonal"}
    assert "values are missing" in model.solution_.structure_reason
    both = np.where(np.isin(np.arange(N), half)[:, None], X, GAPS)
    assert_same(model, gaussian("auto", prior=GIVEN).fit(both, Y), rows=GAPS)
    model.partial_fit(X[:5], Y[:5])
    assert set(model.solution_.scores) == {"diagonal", "tied_diagonal"}


@pytest.mark.parametrize("structure", ["diagonal", "tied_diagonal"])
@estimates
def test_gaps_in_parts(structure, estimate):
    prior = "predictive" if estimate == "mle" else GIVEN
    for first in (X, GAPS):
        model = gaussian(structure, estimate, prior).partial_fit(first[::2], Y[::2]).partial_fit(GAPS[1::2], Y[1::2])
        rows = GAPS.copy()
        rows[::2] = first[::2]
        assert_same(model, gaussian(structure, estimate, prior).fit(rows, Y), rows=GAPS)


@pytest.mark.parametrize(("before", "after"), [("diagonal", "full"), ("tied", "auto"), ("tied", "diagonal")])
def test_a_structure_that_needs_more_than_was_kept_is_refused_clearly(before, after):
    model = gaussian(before, prior=GIVEN).partial_fit(X[::2], Y[::2])
    with pytest.raises(ValueError, match="covariance"):
        model.set_params(covariance=after).partial_fit(X[1::2], Y[1::2])


@pytest.mark.parametrize(("before", "after"), [("full", "tied"), ("full", "diagonal"), ("diagonal", "spherical")])
def test_a_simpler_structure_may_be_asked_for_later(before, after):
    model = gaussian(before, prior=GIVEN).partial_fit(X[::2], Y[::2])
    model.set_params(covariance=after).partial_fit(X[1::2], Y[1::2])
    assert_same(model, gaussian(after, prior=GIVEN).fit(X, Y))


def test_auto_after_a_diagonal_structure_says_why_it_looks_at_no_matrices():
    model = gaussian("diagonal").partial_fit(X[::2], Y[::2]).set_params(covariance="auto").partial_fit(X[1::2], Y[1::2])
    assert "full" not in model.solution_.scores
    assert "too large" not in model.solution_.structure_reason  # five features and three classes


def test_another_estimate_may_be_asked_for_later():
    model = gaussian(estimate="mle").partial_fit(X[::2], Y[::2])
    model.set_params(estimate="bayes", prior=GIVEN).partial_fit(X[1::2], Y[1::2])
    assert_same(model, gaussian(prior=GIVEN).fit(X, Y))


def test_a_prior_cannot_be_sought_later_by_rows_that_were_not_kept():
    """Maximum likelihood of a given structure has nothing to choose, and keeps no rows to choose it by."""
    model = gaussian(estimate="mle").partial_fit(X[ORDER[:160]], Y[ORDER[:160]])
    with pytest.raises(ValueError, match="none of the earlier rows were kept"):
        model.set_params(estimate="bayes").partial_fit(X[ORDER[160:]], Y[ORDER[160:]])
