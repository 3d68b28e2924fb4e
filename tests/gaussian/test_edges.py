"""Singular classes, hardly any rows, constant columns, absurd units: never a failure, never a NaN."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import logsumexp
from tests.slow import quick_first

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior, SingularWarning
from posteriori.gaussian.structures import STRUCTURES

structures = pytest.mark.parametrize("structure", STRUCTURES)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)) + np.repeat(np.eye(4)[:3], 10, axis=0), np.repeat([0, 1, 2], 10)


def altered(column, values, rows=slice(None)):
    out = X.copy()
    out[rows, column] = values
    return out


CASES = {
    "fewer rows than features in each class": (RNG.normal(size=(9, 5)), np.repeat([0, 1, 2], 3)),
    "fewer rows than features": (RNG.normal(size=(8, 30)), np.repeat([0, 1], 4)),
    "one row of a class": (X[:11], Y[:11]),
    "one row of each class": (X[::10], Y[::10]),
    "two rows in all": (X[[0, 29]], np.array([0, 1])),
    "two equal rows in all": (X[[0, 0]], np.array([0, 1])),
    "one feature, two rows": (np.array([[0.0], [1.0]]), np.array([0, 1])),
    "a constant column": (altered(2, 0.1), Y),
    "a constant column far from zero": (altered(2, 1e9 / 3), Y),
    "a column of zeros": (altered(2, 0.0), Y),
    "all columns constant": (np.full((20, 3), 3.3), np.repeat([0, 1], 10)),
    "a column constant within one class": (altered(2, 0.1, Y == 1), Y),
    "a column constant within each class": (altered(2, Y / 3.0), Y),
    "a column that is constant but for one row": (altered(2, np.eye(30)[0] * 1e-7), Y),
    "a duplicated column": (altered(3, X[:, 2]), Y),
    "a column that is a combination of others": (altered(3, 3 * X[:, 2] - X[:, 1] + 5), Y),
    "repeated rows": (np.repeat(X[::5], 5, axis=0), Y),
}
cases = pytest.mark.parametrize(("X", "y"), CASES.values(), ids=CASES.keys())


def assert_proper(model, X):
    """Finite log-probabilities that sum to one, at the rows and around them."""
    for rows in (X, X + 1.0, -3.0 * X):
        L = model.predict_log_proba(rows)
        assert np.isfinite(L).all()
        np.testing.assert_allclose(logsumexp(L, axis=1), 0.0, rtol=0, atol=1e-11)
        assert np.isfinite(model.score_samples(rows)).all()
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.covariances_).all()
    assert np.isfinite(model.log_evidence_)
    assert all(np.isfinite(score) for score in model.solution_.scores.values())
    assert np.isfinite(model.sample(3, random_state=0)[0]).all()


# Priors make every class regular


@cases
@pytest.mark.parametrize("structure", quick_first(["full", "tied_diagonal", "tied", "diagonal", "spherical"], 2))
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map"]))
def test_with_a_prior_nothing_fails_and_nothing_is_warned_of(X, y, structure, estimate):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GaussianClassifier(structure, estimate=estimate, prior=NormalInverseWishartPrior()).fit(X, y)
        assert_proper(model, X)
    assert model.solution_.ridges == {}


@pytest.mark.parametrize("case", quick_first(["one row of a class", *list(CASES)[::3]]))
@pytest.mark.parametrize(("estimate", "prior"), [("bayes", "predictive"), ("map", "evidence")])
def test_priors_are_found_for_every_structure(case, estimate, prior):
    X, y = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GaussianClassifier(estimate=estimate, prior=prior).fit(X, y)
        assert_proper(model, X)
    assert set(model.solution_.scores) == set(STRUCTURES)


@pytest.mark.parametrize("structure", ["diagonal", "tied_diagonal"])
def test_a_constant_column_says_nothing(structure):
    """Where features are independent: predictions are those without it."""
    with_it, without = altered(2, 7.0), np.delete(X, 2, axis=1)
    P, Q = (
        GaussianClassifier(structure, prior=NormalInverseWishartPrior()).fit(rows, Y).predict_proba(rows)
        for rows in (with_it, without)
    )
    np.testing.assert_allclose(P, Q, rtol=0, atol=1e-12)


# Maximum likelihood

SINGULAR = {
    "full": {
        "fewer rows than features in each class": {0, 1, 2},
        "fewer rows than features": {0, 1},
        "one row of a class": {1},
        "a constant column": {0, 1, 2},
        "a column constant within one class": {1},
        "a duplicated column": {0, 1, 2},
        "a column that is a combination of others": {0, 1, 2},
    },
    "tied": {
        "fewer rows than features": {(0, 1)},
        "one row of each class": {(0, 1, 2)},
        "a constant column": {(0, 1, 2)},
        "a column constant within each class": {(0, 1, 2)},
        "a duplicated column": {(0, 1, 2)},
        "one row of a class": set(),
        "a column constant within one class": set(),
    },
    "diagonal": {
        "fewer rows than features": set(),
        "one row of a class": {1},
        "a constant column": {0, 1, 2},
        "a column constant within one class": {1},
        "a duplicated column": set(),
    },
    "tied_diagonal": {
        "one row of each class": {(0, 1, 2)},
        "a constant column": {(0, 1, 2)},
        "a column constant within each class": {(0, 1, 2)},
        "a column constant within one class": set(),
    },
    "spherical": {
        "one row of a class": {1},
        "all columns constant": {0, 1},
        "a constant column": set(),
        "a column constant within each class": set(),
    },
}


@pytest.mark.parametrize(
    ("structure", "case", "deficient"),
    [(structure, case, labels) for structure, found in SINGULAR.items() for case, labels in found.items()],
)
def test_maximum_likelihood_names_the_classes_that_are_singular(structure, case, deficient):
    X, y = CASES[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = GaussianClassifier(structure, estimate="mle").fit(X, y)
    assert set(model.solution_.ridges) == deficient
    assert [warning.category for warning in caught] == [SingularWarning] * bool(deficient)
    for label in deficient:
        assert repr(label) in str(caught[0].message)
        assert 0.0 < model.solution_.ridges[label] < 1e-3
    if deficient:
        assert "solution_.ridges" in str(caught[0].message)


@cases
@pytest.mark.parametrize("structure", quick_first(["auto", *STRUCTURES]))
@pytest.mark.filterwarnings("ignore::posteriori.SingularWarning")
def test_maximum_likelihood_never_fails(X, y, structure):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SingularWarning)
        model = GaussianClassifier(structure, estimate="mle").fit(X, y)
        assert_proper(model, X)


def test_the_ridge_is_what_was_added_to_the_variances():
    """In units of the variances of all rows, and to deficient classes alone."""
    rows = altered(2, 0.1, Y == 1)
    with pytest.warns(SingularWarning):
        model = GaussianClassifier("full", estimate="mle").fit(rows, Y)
    for k in range(3):
        S = np.cov(rows[Y == k].T, bias=True)
        added = model.solution_.ridges.get(k, 0.0) * np.diag(rows.var(axis=0))
        np.testing.assert_allclose(model.covariances_[k], S + added, rtol=0, atol=1e-12)
    joint = np.log(1 / 3) + stats.multivariate_normal(model.means_[1], model.covariances_[1]).logpdf(rows)
    np.testing.assert_allclose(model.predict_joint_log_proba(rows)[:, 1], joint, rtol=1e-6)


def test_a_class_on_a_line_takes_the_rows_on_its_line():
    rows = altered(3, 2.0 * X[Y == 1, 2], Y == 1)
    with pytest.warns(SingularWarning):
        model = GaussianClassifier("full", estimate="mle").fit(rows, Y)
    np.testing.assert_array_equal(model.predict(rows) == 1, Y == 1)


@structures
def test_the_ridge_prior_on_means_alone_warns_too(structure):
    X, y = CASES["one row of each class"]
    with pytest.warns(SingularWarning):
        model = GaussianClassifier(structure, estimate="map", prior=RidgePrior(0.5)).fit(X, y)
    assert model.solution_.ridges
    assert_proper(model, X)


def test_a_warning_of_many_classes_stays_short():
    rows, y = RNG.normal(size=(40, 3)), np.arange(40) % 20
    with pytest.warns(SingularWarning, match=r"20 in all") as caught:
        GaussianClassifier("full", estimate="mle").fit(rows, y)
    assert len(str(caught[0].message)) < 400


# Units


@pytest.mark.parametrize("structure", ["full", "tied", "diagonal", "tied_diagonal"])
@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_units_from_tiny_to_huge_do_not_matter(structure, estimate):
    units = 10.0 ** np.array([-150, 0, 75, 150])
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, other = (GaussianClassifier(structure, estimate=estimate, prior=prior).fit(A, Y) for A in (X, X * units))
        L = other.predict_log_proba(X * units)
    np.testing.assert_allclose(L, model.predict_log_proba(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.means_, model.means_ * units, rtol=1e-9, atol=0)
    jacobian = len(X) * np.log(units).sum()
    assert other.log_evidence_ + jacobian == pytest.approx(model.log_evidence_, abs=1e-6)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_spherical_classes_in_any_unit_of_all_columns(unit, estimate):
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    model, other = (GaussianClassifier("spherical", estimate=estimate, prior=prior).fit(A, Y) for A in (X, X * unit))
    np.testing.assert_allclose(other.predict_log_proba(X * unit), model.predict_log_proba(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("structure", ["full", "tied", "diagonal", "tied_diagonal"])
@pytest.mark.parametrize("unit", quick_first([1e-158, 1e-300, 1e153, 1e-155, 1e-161, 1e-200, 1e152], 3))
def test_columns_whose_squares_nearly_under_or_overflow_give_no_nan(structure, unit):
    rows = X * np.array([unit, 1.0, 1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GaussianClassifier(structure, prior=NormalInverseWishartPrior()).fit(rows, Y)
        L = model.predict_log_proba(rows)
    assert np.isfinite(L).all()
    assert (L.argmax(axis=1) == Y).mean() > 0.5


@structures
@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_rows_that_are_further_away_than_numbers_reach(structure, estimate):
    """1e280 standard deviations: the square of the distance is no number, but which class is nearest can be told."""
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    model = GaussianClassifier(structure, estimate=estimate, prior=prior).fit(X * 1e-90, Y)
    L = model.predict_log_proba(np.vstack([1e190 * np.eye(4), -1e190 * np.eye(4)]))
    assert not np.isnan(L).any()
    np.testing.assert_allclose(logsumexp(L, axis=1), 0.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("structure", ["full", "tied", "spherical"])
def test_very_far_away_the_direction_decides(structure):
    """Student t log-odds have a limit in every direction: 1e180 beside 1e200 is nothing, as 1e30 is beside 1e50."""
    model = GaussianClassifier(structure, prior=NormalInverseWishartPrior()).fit(X, Y)
    direction = np.array([[1.0, 1e-20, -1e-30, 1e-25], [1e-25, -1.0, 1e-20, 1e-20]])
    limit = model.predict_proba(1e50 * direction)
    np.testing.assert_allclose(model.predict_proba(1e200 * direction), limit, rtol=0, atol=1e-9)


# Weights and classes


@structures
@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_rows_of_weight_zero_are_not_there(structure, estimate):
    """Not even if they lie far away, or hold no numbers."""
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    rows = np.vstack([X, np.full((2, 4), 1e6), np.full((1, 4), np.nan)])
    y, c = np.append(Y, [0, 1, 2]), np.append(np.ones(30), np.zeros(3))
    model = GaussianClassifier(structure, estimate=estimate, prior=prior).fit(rows, y, c)
    other = GaussianClassifier(structure, estimate=estimate, prior=prior).fit(X, Y)
    np.testing.assert_allclose(model.covariances_, other.covariances_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(model.predict_log_proba(X), other.predict_log_proba(X), rtol=1e-9, atol=1e-9)
    assert model.solution_.n_left_out == other.solution_.n_left_out


@structures
def test_weights_may_be_tiny_or_huge(structure):
    """Maximum likelihood knows them up to a factor."""
    reference = GaussianClassifier(structure, estimate="mle").fit(X, Y)
    for weight in (1e-12, 1e12):
        model = GaussianClassifier(structure, estimate="mle").fit(X, Y, np.full(30, weight))
        np.testing.assert_allclose(model.covariances_, reference.covariances_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), rtol=0, atol=1e-9)
    for estimate in ("map", "bayes"):
        for weight in (1e-12, 1e12):
            model = GaussianClassifier(structure, estimate=estimate, prior=NormalInverseWishartPrior())
            assert_proper(model.fit(X, Y, np.full(30, weight)), X)


@structures
@pytest.mark.parametrize("estimate", quick_first(["bayes", "map"]))
def test_two_hundred_classes(structure, estimate):
    rng = np.random.default_rng(1)
    y = np.arange(600) % 200
    rows = rng.normal(size=(600, 5)) + 8.0 * rng.normal(size=(200, 5))[y]
    model = GaussianClassifier(structure, estimate=estimate, prior=NormalInverseWishartPrior(kappa=0.01, scale=1.0))
    model.fit(rows, y)
    P = model.predict_proba(rows)
    assert P.shape == (600, 200)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=0, atol=1e-11)
    assert model.score(rows, y) > 0.9


def test_two_classes_have_one_decision():
    for structure in ("auto", *STRUCTURES):
        model = GaussianClassifier(structure, prior=NormalInverseWishartPrior()).fit(X[:20], Y[:20])
        assert model.decision_function(X).shape == (30,)
        assert model.predict_proba(X).shape == (30, 2)


def test_a_single_feature():
    """All structures but the tied ones are the same then, and so are the tied ones."""
    y = Y[:20]
    for estimate in ("mle", "map", "bayes"):
        prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior(nu=4.0, scale=2.0)
        found = {
            s: GaussianClassifier(s, estimate=estimate, prior=prior).fit(X[:20, :1], y).predict_log_proba(X[:, :1])
            for s in STRUCTURES
        }
        for s in ("diagonal", "spherical"):
            np.testing.assert_allclose(found[s], found["full"], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found["tied_diagonal"], found["tied"], rtol=1e-9, atol=1e-9)


# Anything at all


NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e6, 1e-6]),  # often the same ones
    st.integers(-(10**10), 10**10).map(lambda number: number / 1000),
)


@st.composite
def problems(draw, gaps=False):
    """Rows with many equal values, and classes of which some may have no rows."""
    N, D, K = draw(st.integers(2, 8)), draw(st.integers(1, 4)), draw(st.integers(2, 3))
    numbers = st.one_of(NUMBERS, st.just(np.nan)) if gaps else NUMBERS
    X = draw(arrays(np.float64, (N, D), elements=numbers))
    y = draw(arrays(np.int64, N, elements=st.integers(0, K - 1)))
    new = draw(arrays(np.float64, (3, D), elements=st.one_of(numbers, st.floats(-1e300, 1e300))))
    return X, y, K, new


def assert_probabilities(model, new):
    L = model.predict_log_proba(new)
    assert not np.isnan(L).any()
    assert (L <= 0.0).all()
    np.testing.assert_allclose(logsumexp(L, axis=1), 0.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(new), np.exp(L), rtol=0, atol=1e-10)
    assert np.isin(model.predict(new), model.classes_).all()
    assert not np.isnan(model.score_samples(new)).any()
    assert not np.isnan(model.log_odds(new, 0, 1)).any()


@settings(deadline=None, max_examples=40)
@given(problems(), st.sampled_from(list(STRUCTURES)), st.sampled_from(["mle", "map", "bayes"]), st.booleans())
def test_probabilities_are_probabilities(problem, structure, estimate, weighted):
    X, y, K, new = problem
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    c = np.linspace(0.0, 2.0, len(y)) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SingularWarning)
        model = GaussianClassifier(structure, estimate=estimate, prior=prior, classes=range(K)).fit(X, y, c)
        assert_probabilities(model, new)
        assert_probabilities(model, X)


@settings(deadline=None, max_examples=25)
@given(problems(gaps=True), st.sampled_from(["diagonal", "tied_diagonal"]), st.sampled_from(["mle", "map", "bayes"]))
def test_probabilities_with_gaps_are_probabilities(problem, structure, estimate):
    X, y, K, new = problem
    prior = "predictive" if estimate == "mle" else NormalInverseWishartPrior()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SingularWarning)
        model = GaussianClassifier(structure, estimate=estimate, prior=prior, classes=range(K)).fit(X, y)
        assert_probabilities(model, new)
        assert_probabilities(model, X)


@settings(deadline=None, max_examples=2)
@given(problems())
def test_the_default_settings_take_anything(problem):
    X, y, K, new = problem
    assume(len(np.unique(y)) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GaussianClassifier(classes=range(K)).fit(X, y)
        assert_probabilities(model, new)
    assert np.isfinite(model.log_evidence_)


@pytest.mark.parametrize("estimate", ["mle", "map", "bayes"])
def test_class_means_too_far_apart_for_their_squares_are_refused(estimate):
    """One row for each class: no scatter within classes, and between them more than numbers hold."""
    X = np.diag([1e300, -1e300, 1e290])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="squares overflow: rescale it"):
            GaussianClassifier("spherical", estimate=estimate).fit(X, [0, 1, 2])
        with pytest.raises(ValueError, match="squares overflow: rescale it"):  # nor has their mean a sum
            GaussianClassifier("spherical", estimate=estimate).fit(X, [0, 1, 2], np.full(3, 1e30))
