"""Tables, soft labels, declared classes, missing values, and wrong input: told clearly, and nothing half fitted."""

import pickle
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.structures import STRUCTURES
from posteriori.rows import arrow
from posteriori.rows.streams import DatasetStream

IRIS = load_iris()
X = (IRIS.data * 10).round()  # whole numbers up to 79: exact in every dtype
Y = IRIS.target
WEIGHTS = np.linspace(0.5, 2.0, len(X))
NAMES = ["a", "b", "c", "d"]
BY_NAME = {name: X[:, d] for d, name in enumerate(NAMES)}
TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
CONTAINERS = {
    "list": X.tolist(),
    "F order": np.asfortranarray(X),
    "float32": X.astype(np.float32),
    "int64": X.astype(np.int64),
    "uint8": X.astype(np.uint8),
    "objects": X.astype(object),
    "csr": sp.csr_array(X),
    "csc": sp.csc_matrix(X),
    "csr float32": sp.csr_array(X.astype(np.float32)),
} | {name: table(BY_NAME) for name, table in TABLES.items()}
PRIOR = NormalInverseWishartPrior()
structures = pytest.mark.parametrize("structure", STRUCTURES)
estimates = pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
diagonals = pytest.mark.parametrize("structure", ["diagonal", "tied_diagonal"])


def gaussian(structure="tied", estimate="bayes", prior=PRIOR, **options):
    return GaussianClassifier(
        structure, estimate=estimate, prior="predictive" if estimate == "mle" else prior, **options
    )


def assert_same(model, other, rows=X, tol=1e-10):
    np.testing.assert_allclose(model.means_, other.means_, rtol=tol, atol=tol)
    np.testing.assert_allclose(model.covariances_, other.covariances_, rtol=tol, atol=100 * tol)
    np.testing.assert_allclose(model.class_prior_, other.class_prior_, rtol=tol)
    np.testing.assert_allclose(model.predict_log_proba(rows), other.predict_log_proba(rows), rtol=tol, atol=100 * tol)
    assert model.log_evidence_ == pytest.approx(other.log_evidence_, rel=tol)


# Containers


@cache
def reference_fit(structure):
    return gaussian(structure).fit(X, Y)


@structures
@pytest.mark.parametrize("given", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_container_does_not_matter(structure, given):
    model, reference = gaussian(structure).fit(given, Y), reference_fit(structure)
    np.testing.assert_allclose(model.means_, reference.means_, rtol=1e-12)
    np.testing.assert_allclose(model.covariances_, reference.covariances_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.predict_log_proba(given), reference.predict_log_proba(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(given), reference.predict(X))
    np.testing.assert_allclose(model.score_samples(given), reference.score_samples(X), rtol=1e-10)


@estimates
def test_sparse_rows_with_many_zeros_are_dense_ones(estimate):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(150, 6)) * (rng.random((150, 6)) < 0.3) + 3.0 * (np.arange(6) == Y[:, None])
    for structure in STRUCTURES:
        model, other = (gaussian(structure, estimate).fit(A, Y) for A in (sp.csr_array(dense), dense))
        assert_same(model, other, rows=dense, tol=1e-9)
        np.testing.assert_allclose(
            model.predict_proba(sp.csr_array(dense)), other.predict_proba(dense), rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_target_and_weights_may_be_columns(table):
    named = table(BY_NAME | {"kind": np.array(["x", "y", "z"])[Y], "weight": WEIGHTS})
    model = gaussian().fit(named, "kind", sample_weight="weight")
    other = gaussian().fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(model.means_, other.means_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_allclose(model.predict_proba(named), other.predict_proba(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(table(BY_NAME)), other.predict_proba(X), rtol=0, atol=1e-12)
    assert model.score(named, "kind", sample_weight="weight") == pytest.approx(other.score(X, Y, WEIGHTS))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_columns_of_another_fit_are_refused():
    model = gaussian().fit(pd.DataFrame(BY_NAME), Y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(pd.DataFrame(BY_NAME).rename(columns={"a": "e"}))
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        model.predict(X[:, :3])


# Scans of a data set


@pytest.fixture
def scans(monkeypatch):
    """The columns that each scan of a data set reads; its rows are not held in memory, few as they are."""
    monkeypatch.setattr(arrow, "_HELD_BYTES", 0)
    found, batches = [], DatasetStream.batches

    def counted(self, columns, size):
        found.append(sorted(columns))
        return batches(self, columns, size)

    monkeypatch.setattr(DatasetStream, "batches", counted)
    return found


@pytest.mark.parametrize(
    ("model", "n_scans"),
    [
        (gaussian("auto"), 2),  # statistics, and rows to judge structures and priors by
        (gaussian("tied", prior="evidence"), 2),
        (gaussian("auto", "mle"), 2),
        (gaussian("full", "mle"), 1),  # there is nothing to choose
        (gaussian("full", "map", RidgePrior()), 1),
    ],
    ids=["auto", "evidence", "auto mle", "mle", "ridge"],
)
def test_scans_of_a_data_set(model, n_scans, scans):
    rows = ds.dataset(pa.table(BY_NAME | {"kind": Y}))
    model.fit(rows, "kind")
    assert scans == [["kind"]] + [[*NAMES, "kind"]] * n_scans  # the labels first: they say which classes there are
    assert model.solution_.n_passes == n_scans
    scans.clear()
    model.predict_proba(rows)
    assert scans == [NAMES]


def test_missing_values_cost_auto_one_more_scan(scans):
    """What has been added up for matrices is of no use then."""
    rows = ds.dataset(pa.table(BY_NAME | {"a": np.where(Y == 1, np.nan, X[:, 0]), "kind": Y}))
    assert gaussian("auto").fit(rows, "kind").solution_.n_passes == 3
    assert len(scans) == 4


def test_good_manners():
    model = gaussian("auto", prior="predictive", class_prior=[0.2, 0.3, 0.5])
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.sample(1)
    with pytest.raises(NotFittedError):
        model.to_softmax()
    before = X.copy()
    model.fit(X[::3], Y[::3])
    np.testing.assert_array_equal(X, before)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_log_proba(X), model.predict_log_proba(X))
    assert clone(model).class_prior == [0.2, 0.3, 0.5]
    assert not hasattr(clone(model), "means_")


def test_priors_can_be_searched_by_name():
    search = GridSearchCV(gaussian(), {"prior__kappa": [0.1, 10.0], "covariance": ["tied", "diagonal"]}, cv=3)
    best = search.fit(X, Y).best_params_
    assert set(best) == {"prior__kappa", "covariance"}
    assert PRIOR.kappa == 1.0  # the one that was passed is left alone
    with pytest.raises(ValueError, match="no parameter 'lambda'"):
        RidgePrior().set_params(**{"lambda": 1})


# Targets


@structures
@estimates
def test_soft_labels_are_weighted_hard_ones(structure, estimate):
    """A row that is of two classes by shares is two rows, each with its share as weight."""
    rng = np.random.default_rng(1)
    shares = np.eye(3)[Y] * 0.8 + rng.dirichlet(np.ones(3), len(Y)) * 0.2
    model = gaussian(structure, estimate).fit(X, shares)
    n, k = np.nonzero(shares)
    other = gaussian(structure, estimate).fit(X[n], k, shares[n, k])
    assert_same(model, other, tol=1e-9)
    np.testing.assert_allclose(model.class_count_, shares.sum(axis=0))


def test_one_hot_soft_labels_are_hard_ones():
    model, other = (gaussian("auto").fit(X[::3], y) for y in (np.eye(3)[Y[::3]], Y[::3]))
    assert model.solution_.structure == other.solution_.structure
    assert_same(model, other, tol=1e-8)


@structures
def test_counts_are_repeated_rows(structure):
    counts = np.random.default_rng(2).integers(0, 4, (len(X), 3))
    n, k = np.nonzero(counts)
    times = counts[n, k]
    model = gaussian(structure).fit(X, counts)
    other = gaussian(structure).fit(np.repeat(X[n], times, axis=0), np.repeat(k, times))
    assert_same(model, other, tol=1e-9)


def test_columns_of_soft_labels_are_in_the_order_declared():
    shares = 0.9 * np.eye(3)[Y] + 0.1 / 3
    model = gaussian(classes=["z", "x", "y"]).fit(X, shares)
    other = gaussian().fit(X, shares[:, [1, 2, 0]])
    assert model.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_allclose(model.means_, other.means_)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=0, atol=1e-12)
    named = gaussian().fit(X, pd.DataFrame(shares, columns=["z", "x", "y"]))
    np.testing.assert_allclose(named.means_, model.means_)


def test_a_column_vector_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning):
        model = gaussian().fit(X, Y[:, None])
    np.testing.assert_array_equal(model.means_, gaussian().fit(X, Y).means_)


# Classes


@structures
@estimates
@pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")  # a class without rows has no covariance
def test_a_declared_class_without_rows_keeps_its_column(structure, estimate):
    model = gaussian(structure, estimate, classes=[2, 1, 0, 9]).fit(X, Y)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    np.testing.assert_array_equal(model.class_count_, [50, 50, 50, 0])
    P = model.predict_proba(X)
    assert P.shape == (150, 4)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    if estimate == "bayes":  # a row of the prior's own, as far as anyone knows: 1 / (N + K)
        assert (P[:, 3] > 0.0).all()
        assert model.class_prior_[3] == pytest.approx(1 / 154)
        np.testing.assert_allclose(model.means_[3], X.mean(axis=0), rtol=1e-9)
    else:
        assert (P[:, 3] == 0.0).all()
        assert not np.isnan(model.predict_log_proba(X)).any()
        three = gaussian(structure, estimate).fit(X, Y)
        np.testing.assert_allclose(three.means_, model.means_[:3], rtol=1e-12)
        if "tied" not in structure or estimate == "mle":  # the mode of a shared covariance counts the means it is for
            np.testing.assert_allclose(P[:, :3], three.predict_proba(X), rtol=0, atol=1e-12)


def test_an_unseen_class_is_believed_in_only_far_from_the_others():
    model = gaussian("full", classes=[0, 1, 2, 9]).fit(X, Y)
    assert (model.predict(X) == Y).mean() > 0.95
    assert model.predict([X.mean(axis=0) + np.array([0, 300, 0, 0])])[0] == 9


def test_class_probabilities_may_be_given():
    array, mapping = gaussian(class_prior=[0.2, 0.3, 0.5]), gaussian(class_prior={2: 0.5, 0: 0.2, 1: 0.3})
    free = gaussian().fit(X, Y)
    for model in (array.fit(X, Y), mapping.fit(X, Y)):
        np.testing.assert_allclose(model.class_prior_, [0.2, 0.3, 0.5], rtol=1e-12)
        odds = model.log_odds(X, 2, 0) - free.log_odds(X, 2, 0)
        np.testing.assert_allclose(odds, np.log(0.5 / 0.2), rtol=0, atol=1e-9)  # equal counts: 1 / 3 each before
        np.testing.assert_allclose(model.means_, free.means_, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([0.5, 0.5], r"class_prior has shape \(2,\).*3 classes"),
        ([[0.2, 0.3, 0.5]], "class_prior has shape"),
        ([0.2, 0.3, 0.6], "class_prior must be probabilities that sum to one"),
        ([-0.1, 0.6, 0.5], "class_prior must be probabilities"),
        ([np.nan, 0.5, 0.5], "class_prior must be probabilities"),
        ({0: 0.5, 1: 0.5}, r"class_prior.*\[2\] are missing"),
        ({0: 0.2, 1: 0.3, 2: 0.4, 3: 0.1}, r"class_prior.*\[3\] are not classes"),
        ({0: 0.2, 1: 0.3, 2: "half"}, "class_prior.*must be numbers"),
        ("uniform", "class_prior='uniform' must be numbers"),
    ],
)
def test_wrong_class_probabilities_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        gaussian(class_prior=given).fit(X, Y)


# Missing values

GAPS = X.copy()
GAPS[np.random.default_rng(3).random(X.shape) < 0.15] = np.nan


@diagonals
def test_maximum_likelihood_of_what_is_there(structure):
    model = gaussian(structure, "mle").fit(GAPS, Y)
    means = np.array([np.nanmean(GAPS[Y == k], axis=0) for k in range(3)])
    np.testing.assert_allclose(model.means_, means, rtol=1e-12)
    if structure == "diagonal":
        expected = np.array([np.nanvar(GAPS[Y == k], axis=0) for k in range(3)])
    else:
        expected = np.nanmean((GAPS - means[Y]) ** 2, axis=0)
    np.testing.assert_allclose(model.covariances_, expected, rtol=1e-12)
    np.testing.assert_allclose(model.class_prior_, 1 / 3)


def student_by_hand(structure, x, prior):
    """log p(x, k) of a row with gaps: a product over the features it has, each learnt from the rows that have it."""
    out = np.log(np.full(3, 51 / 153))
    for d in np.flatnonzero(~np.isnan(x)):
        known = [GAPS[(Y == k) & ~np.isnan(GAPS[:, d]), d] for k in range(3)]
        gathered = [((v - v.mean()) ** 2).sum() for v in known]
        kappa = [prior.kappa + len(v) for v in known]
        gaps = [prior.kappa * len(v) / kn * (v.mean() - prior.mean[d]) ** 2 for v, kn in zip(known, kappa, strict=True)]
        for k, v in enumerate(known):
            mean = (prior.kappa * prior.mean[d] + v.sum()) / kappa[k]
            of = range(3) if structure == "tied_diagonal" else (k,)
            nu = prior.nu + sum(len(known[j]) for j in of)
            Psi = prior.scale[d] + sum(gathered[j] + gaps[j] for j in of)
            out[k] += stats.t(nu, mean, np.sqrt(Psi * (kappa[k] + 1) / (kappa[k] * nu))).logpdf(x[d])
    return out


@diagonals
def test_a_missing_feature_is_integrated_out(structure):
    prior = NormalInverseWishartPrior([50.0, 30.0, 40.0, 10.0], 0.5, 4.0, [60.0, 20.0, 300.0, 60.0])
    model = gaussian(structure, prior=prior).fit(GAPS, Y)
    rows = GAPS[::10]
    expected = np.array([student_by_hand(structure, x, prior) for x in rows])
    np.testing.assert_allclose(model.predict_joint_log_proba(rows), expected, rtol=1e-10)
    np.testing.assert_allclose(
        model.predict_proba(rows),
        np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True),
        rtol=0,
        atol=1e-12,
    )


@diagonals
@estimates
def test_a_row_of_which_nothing_is_known_has_the_class_frequencies(structure, estimate):
    model = gaussian(structure, estimate, class_prior=[0.2, 0.3, 0.5]).fit(GAPS, Y)
    nothing = np.full((1, 4), np.nan)
    np.testing.assert_allclose(model.predict_proba(nothing), [[0.2, 0.3, 0.5]], rtol=1e-12)
    assert model.score_samples(nothing)[0] == pytest.approx(0.0, abs=1e-12)  # the density of no numbers


@diagonals
@estimates
def test_predictions_with_gaps_are_those_of_the_columns_that_are_there(structure, estimate):
    """Features are independent given the class, so that the others may as well not have been fitted."""
    model, less = (gaussian(structure, estimate).fit(A, Y) for A in (X, X[:, [0, 2]]))
    rows = X.copy()
    rows[:, [1, 3]] = np.nan
    np.testing.assert_allclose(model.predict_proba(rows), less.predict_proba(X[:, [0, 2]]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.log_odds(rows, 0, 1), less.log_odds(X[:, [0, 2]], 0, 1), rtol=1e-9, atol=1e-9)


@diagonals
def test_the_ridge_prior_takes_gaps_too(structure):
    model = gaussian(structure, "map", RidgePrior(0.01)).fit(GAPS, Y)
    there = ~np.isnan(GAPS)
    for k in range(3):
        n, total = there[Y == k].sum(axis=0), np.nansum(GAPS[Y == k], axis=0)
        variance = model.covariances_ if structure == "tied_diagonal" else model.covariances_[k]
        np.testing.assert_allclose(model.means_[k], total / (n + 0.02 * variance), rtol=1e-9)


@diagonals
@estimates
@pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")
def test_a_feature_missing_throughout_a_class_or_at_all(structure, estimate):
    rows = np.column_stack([X, np.full(len(X), np.nan)])
    rows[Y == 1, 2] = np.nan
    model = gaussian(structure, estimate).fit(rows, Y)
    full = np.column_stack([X, np.linspace(-1, 1, len(X))])
    for given in (rows, full):
        L = model.predict_log_proba(given)
        assert np.isfinite(L).all()
        np.testing.assert_allclose(np.exp(L).sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert np.isfinite(model.log_evidence_)


@pytest.mark.parametrize("structure", ["full", "tied", "spherical"])
@estimates
def test_other_structures_say_which_column_has_gaps_and_what_takes_them(structure, estimate):
    table = pd.DataFrame(GAPS, columns=NAMES)
    rows = pd.DataFrame(X, columns=NAMES)
    rows.iloc[7, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN, first in column 'c', row 7.*'diagonal' or 'tied_diagonal'"):
        gaussian(structure, estimate).fit(rows, Y)
    model = gaussian(structure, estimate).fit(pd.DataFrame(BY_NAME), Y)
    with pytest.raises(ValueError, match=r"NaN, first in column '\w'.*'diagonal' or 'tied_diagonal'"):
        model.predict_proba(table)


@pytest.mark.parametrize("estimate", ["mle", "bayes"])
def test_auto_restricts_itself_to_what_takes_gaps(estimate):
    model = gaussian("auto", estimate, "predictive").fit(GAPS, Y)
    assert set(model.solution_.scores) == {"diagonal", "tied_diagonal"}
    assert "values are missing" in model.solution_.structure_reason
    same = gaussian(model.solution_.structure, estimate, "predictive").fit(GAPS, Y)
    np.testing.assert_allclose(model.predict_proba(GAPS), same.predict_proba(GAPS), rtol=0, atol=1e-9)
    assert model.score(GAPS, Y) > 0.9


@diagonals
def test_scores_of_left_out_rows_with_gaps_are_those_of_refitting(structure):
    rows = np.arange(0, 150, 5)
    gaps, y = GAPS[rows], Y[rows]
    model = gaussian(structure).fit(gaps, y)
    losses = []
    for n in range(len(rows)):
        others = np.delete(np.arange(len(rows)), n)
        without = gaussian(structure, prior=model.prior_).fit(gaps[others], y[others])
        losses.append(-without.predict_log_proba(gaps[n : n + 1])[0, y[n]])
    assert model.solution_.scores[structure] == pytest.approx(np.mean(losses), rel=1e-9)


def test_missing_values_of_tables_are_gaps():
    column = [1, 2, None, 4, 5, 6]
    y = [0, 0, 0, 1, 1, 1]
    reference = gaussian("diagonal").fit(np.array([[1, 2, np.nan, 4, 5, 6]], dtype=float).T, y)
    for table in (pd.DataFrame({"a": pd.array(column, "Int64")}), pl.DataFrame({"a": column}), pa.table({"a": column})):
        np.testing.assert_array_equal(gaussian("diagonal").fit(table, y).means_, reference.means_)


@pytest.mark.parametrize("structure", ["auto", *STRUCTURES])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_no_number(structure, value):
    rows = X.copy()
    rows[3, 1] = value
    with pytest.raises(ValueError, match="infinity, first in column 1, row 3"):
        gaussian(structure).fit(rows, Y)
    for estimate in ("mle", "bayes"):
        with pytest.raises(ValueError, match="infinity, first in column 1, row 3"):
            gaussian(structure, estimate).fit(X, Y).predict_proba(rows)


@diagonals
def test_infinity_is_no_gap(structure):
    rows = GAPS.copy()
    rows[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity, first in column 1, row 3"):
        gaussian(structure).fit(rows, Y)


# Wrong arguments

WRONG = {
    "covariance": ["banded", None, 3, ["full"]],
    "estimate": ["ml", None, 1],
    "prior": ["flat", None, 1.0, NormalInverseWishartPrior],
    "n_jobs": ["all", 0, 1.5],
    "classes": [5, [0, 0, 1, 2], [0, 1]],
}
WRONG_PRIORS = {
    "kappa": [0, -1.0, np.inf, "one", [1, 2]],
    "nu": [3, -1, np.nan, "many"],
    "scale": [0, -1.0, np.ones(3), -np.eye(4), np.triu(np.ones((4, 4))), np.ones((4, 4)), "wide", np.nan],
    "mean": [[1, 2], "zero", np.inf],
    "concentration": [0, -1, "one", [1, 1, 1]],
}


@pytest.mark.parametrize(("name", "value"), [(name, v) for name, values in WRONG.items() for v in values], ids=repr)
def test_a_wrong_argument_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        GaussianClassifier(**{name: value}).fit(X, Y)


@pytest.mark.parametrize("name", ["covariance", "estimate"])
def test_an_array_for_a_name_is_named(name):
    with pytest.raises(ValueError, match=name):
        GaussianClassifier(**{name: np.eye(4)}).fit(X, Y)


@pytest.mark.parametrize("value", ["today", -1, 1.5])
def test_a_wrong_random_state_is_named(value):
    with pytest.raises(ValueError, match=r"random_state|seed"):
        gaussian(random_state=value).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value"), [(name, v) for name, values in WRONG_PRIORS.items() for v in values], ids=repr
)
def test_a_wrong_argument_of_the_prior_is_named(name, value):
    with pytest.raises(ValueError, match=f"prior's {name}"):
        gaussian("full", prior=NormalInverseWishartPrior(**{name: value})).fit(X, Y)


@pytest.mark.parametrize("strength", [-1.0, np.nan, np.inf, "strong", np.ones(4)])
def test_a_wrong_strength_of_the_ridge_is_named(strength):
    with pytest.raises(ValueError, match="prior's strength"):
        gaussian("full", "map", RidgePrior(strength)).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"estimate": "mle", "prior": NormalInverseWishartPrior()}, "'mle' uses no prior"),
        ({"covariance": "full", "prior": RidgePrior()}, "RidgePrior.*estimate='map'"),
        ({"estimate": "map", "prior": RidgePrior()}, "RidgePrior needs a covariance"),
        ({"covariance": "diagonal", "prior": NormalInverseWishartPrior(scale=np.eye(4))}, "scale.*'diagonal'"),
        ({"covariance": "spherical", "prior": NormalInverseWishartPrior(scale=np.ones(4))}, "scale.*'spherical'"),
        ({"covariance": "diagonal", "prior": NormalInverseWishartPrior(nu=0)}, "nu"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        GaussianClassifier(**options).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "y", "weights", "told"),
    [
        (X, None, None, "y"),
        (X, Y[:10], None, "150 rows, y has 10"),
        (X, np.zeros(150, int), None, "one class"),
        (X, X[:, 0] + 0.5, None, "[Cc]ontinuous"),
        (X, "kind", None, "names a column"),
        (X, Y, np.zeros(150), "weight"),
        (X, Y, -np.ones(150), "weight"),
        (X, Y, np.ones(3), "weight"),
        (X[:, 0], Y, None, "2D"),
        (X[:0], Y[:0], None, "0 sample"),
    ],
)
def test_wrong_rows_are_refused(given, y, weights, told):
    with pytest.raises(ValueError, match=told):
        gaussian().fit(given, y, weights)


def test_values_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match=r"overflow.*rescale"):
        gaussian().fit(X * 1e200, Y)


# Nothing half fitted


UNSEEN = np.where(Y == 0, 7, Y)
SPOILT = {  # parameters, method, its arguments, and what is told
    "gaps": ({}, "fit", (GAPS, Y), "NaN"),
    "prior": ({"prior": NormalInverseWishartPrior(scale=np.ones(7))}, "fit", (X[:, :2], Y), "prior's scale"),
    "class prior": ({"class_prior": [0.5, 0.5]}, "fit", (X[:, :2], Y), "class_prior"),
    "weights": ({}, "fit", (pd.DataFrame(X[:, :3]), np.array(list("uvw"))[Y], -np.ones(150)), "weight"),
    "gaps in more rows": ({}, "partial_fit", (GAPS, Y), "NaN"),
    "unseen class in more rows": ({"classes": [0, 1, 2]}, "partial_fit", (X, UNSEEN), "y holds 7"),
}
spoilt = pytest.mark.parametrize(("params", "method", "args", "told"), SPOILT.values(), ids=SPOILT)


@spoilt
def test_a_fit_that_fails_leaves_the_model_as_it_was(params, method, args, told):
    model, reference = gaussian("full").fit(X, Y), gaussian("full").fit(X, Y)
    before = sorted(vars(model))
    with pytest.raises(ValueError, match=told):
        getattr(model.set_params(**params), method)(*args)
    assert sorted(vars(model)) == before
    assert_same(model, reference)
    model.set_params(prior=PRIOR, class_prior=None)
    assert_same(model.partial_fit(X[:20], Y[:20]), reference.partial_fit(X[:20], Y[:20]))


@spoilt
def test_a_first_fit_that_fails_leaves_nothing(params, method, args, told):
    model = gaussian("full").set_params(**params)
    with pytest.raises(ValueError, match=told):
        getattr(model, method)(*args)
    assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)
