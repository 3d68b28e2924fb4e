"""A classifier made to act: any estimator, any utility, and scikit-learn's tools around it."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from posteriori import (
    BayesianSoftmaxRegression,
    GaussianClassifier,
    SoftmaxRegression,
    Utility,
    UtilityClassifier,
    decide,
)

X, CODES = load_iris(return_X_y=True)
X = X[:, :2]  # where the last two species overlap
CLASSES = np.array(["setosa", "versicolor", "virginica"])
Y = CLASSES[CODES]
TABLE = pd.DataFrame(X, columns=["length", "width"])
# states in another order than the classes; the best action depends on how sure one is
PICK = Utility(
    [[0, 5, -8, -1], [4, 0, -8, -1], [-9, -9, 1, -1]],
    ["virginica", "versicolor", "setosa"],
    ["collect", "leave", "plant", "ask"],
)
U = PICK.matrix[::-1]
"""Utilities in the order of the classes."""
EACH = (1.0 + np.arange(150) % 3)[:, None, None] * U + np.array([0, 0, 0, 0.5])
FOLDS = KFold(3, shuffle=True, random_state=0)

ESTIMATORS = {
    "logistic": LogisticRegression(),
    "boosting": HistGradientBoostingClassifier(max_iter=2),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "Gaussian": GaussianClassifier(),
    "softmax": SoftmaxRegression(),
    "Bayesian": BayesianSoftmaxRegression(1.0, approximation="laplace"),
}
estimators = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The threads of scikit-learn's trees wait for each other far longer than they work here."""
    with threadpool_limits(1):
        yield


def by_hand(P, utilities):
    """Codes of the best actions of probabilities (n, K) and utilities (K, A) or (n, K, A)."""
    return (P[:, :, None] * utilities).sum(axis=1).argmax(axis=1)


def worth(codes, y, utilities):
    """What these actions were worth, row by row."""
    utilities = np.broadcast_to(utilities, (len(y), *utilities.shape[-2:]))
    return utilities[np.arange(len(y)), np.searchsorted(CLASSES, y), codes]


# Any estimator


@estimators
def test_predictions_are_the_actions_with_the_highest_expected_utility(estimator):
    model = UtilityClassifier(estimator, PICK).fit(X, Y)
    P = clone(estimator).fit(X, Y).predict_proba(X)
    codes = by_hand(P, U)
    assert len(set(codes)) > 2
    np.testing.assert_array_equal(model.predict(X), PICK.actions[codes])
    assert model.score(X, Y) == pytest.approx(worth(codes, Y, U).mean(), rel=1e-12)
    weight = np.arange(150) % 4
    weighted = np.average(worth(codes, Y, U), weights=weight)
    assert model.score(X, Y, sample_weight=weight) == pytest.approx(weighted, rel=1e-12)
    np.testing.assert_allclose(model.decide(X).expected_utility, P @ U, atol=1e-12)
    np.testing.assert_array_equal(model.classes_, CLASSES)
    np.testing.assert_array_equal(model.actions_, PICK.actions)
    assert model.n_features_in_ == 2


@estimators
def test_without_a_utility_predictions_and_score_are_the_estimator_s(estimator):
    model, plain = UtilityClassifier(estimator).fit(X, Y), clone(estimator).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.score(X, Y) == pytest.approx(plain.score(X, Y))
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


def test_the_estimator_s_other_methods_are_there_where_it_has_them():
    model = UtilityClassifier(LogisticRegression(), PICK)
    assert hasattr(model, "decision_function")
    model.fit(X, Y)
    plain = LogisticRegression().fit(X, Y)
    np.testing.assert_array_equal(model.predict_log_proba(X), plain.predict_log_proba(X))
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert not hasattr(UtilityClassifier(GaussianNB()), "decision_function")


def test_a_reject_action_is_taken_where_the_classes_overlap():
    model = UtilityClassifier(GaussianNB(), Utility.zero_one(CLASSES).with_reject(0.8)).fit(X, Y)
    P = model.predict_proba(X)
    actions = model.predict(X)
    np.testing.assert_array_equal(actions == "reject", P.max(axis=1) < 0.8)
    kept = actions != "reject"
    np.testing.assert_array_equal(actions[kept], CLASSES[P.argmax(axis=1)][kept])
    assert 0 < kept.sum() < 150


def test_draws_say_what_the_parameters_cost():
    model = UtilityClassifier(BayesianSoftmaxRegression(1.0), PICK, n_draws=20).fit(X, Y)
    decisions = model.decide(X)
    draws = model.estimator_.sample_proba(X, 20, 0)
    expected = decide(model.predict_proba(X), PICK, classes=CLASSES, draws=draws)
    np.testing.assert_array_equal(decisions.cost_of_uncertainty, expected.cost_of_uncertainty)
    np.testing.assert_array_equal(decisions.probability_best, expected.probability_best)
    values = draws @ U
    cost = values.max(axis=2).mean(axis=0) - values.mean(axis=0).max(axis=1)
    np.testing.assert_allclose(decisions.cost_of_uncertainty, cost, atol=1e-12)
    assert cost.max() > 0.01
    # probabilities are the estimator's own, so draws change no action
    np.testing.assert_array_equal(decisions.codes, by_hand(model.predict_proba(X), U))


# Utilities of single rows


@pytest.mark.parametrize("kind", ["array", "Utility", "turned Utility"])
def test_utilities_of_single_rows_are_passed_to_methods(kind):
    model = UtilityClassifier(LogisticRegression(), PICK).fit(X, Y)
    given = {
        "array": EACH,  # in the order of the classes
        "Utility": Utility(EACH, CLASSES, PICK.actions),
        "turned Utility": Utility(EACH[:, ::-1], CLASSES[::-1], PICK.actions),
    }[kind]
    codes = by_hand(model.predict_proba(X), EACH)
    assert (codes != by_hand(model.predict_proba(X), U)).any()
    np.testing.assert_array_equal(model.predict(X, utility=given), PICK.actions[codes])
    np.testing.assert_array_equal(model.decide(X, given).codes, codes)
    assert model.score(X, Y, utility=given) == pytest.approx(worth(codes, Y, EACH).mean())


def test_another_utility_may_have_other_actions():
    model = UtilityClassifier(LogisticRegression(), PICK).fit(X, Y)
    assert set(model.predict(X, Utility.zero_one(CLASSES))) == set(CLASSES)
    assert model.score(X, Y, utility=Utility.zero_one(CLASSES)) == LogisticRegression().fit(X, Y).score(X, Y)


@pytest.mark.parametrize("table", [TABLE, pl.DataFrame(TABLE)], ids=["pandas", "polars"])
def test_a_utility_that_is_a_function_of_the_row(table):
    utility = Utility(lambda row: float(row["length"]) * PICK.matrix - 3.0 * np.eye(3, 4), PICK.states, PICK.actions)
    each = X[:, 0, None, None] * U - 3.0 * np.eye(3, 4)[::-1]
    model = UtilityClassifier(SoftmaxRegression(), utility).fit(table, Y)
    codes = by_hand(model.predict_proba(table), each)
    np.testing.assert_array_equal(model.predict(table), PICK.actions[codes])
    assert model.score(table, Y) == pytest.approx(worth(codes, Y, each).mean())


# Labels and tables


@pytest.mark.parametrize("table", [TABLE, pl.DataFrame(TABLE)], ids=["pandas", "polars"])
def test_the_target_may_be_a_column(table):
    full = (
        table.assign(species=Y, weight=np.arange(150) % 3)
        if isinstance(table, pd.DataFrame)
        else table.with_columns(species=pl.Series(Y), weight=pl.Series(np.arange(150) % 3))
    )
    model = UtilityClassifier(SoftmaxRegression(), PICK).fit(full, "species", sample_weight="weight")
    other = UtilityClassifier(SoftmaxRegression(), PICK).fit(table, Y, sample_weight=np.arange(150) % 3)
    np.testing.assert_array_equal(model.predict(full), other.predict(table))
    expected = other.score(table, Y, sample_weight=np.arange(150) % 3)
    assert model.score(full, "species", sample_weight="weight") == expected
    assert model.feature_names_in_.tolist() == ["length", "width"]


def test_feature_names_are_those_of_the_last_fit():
    model = UtilityClassifier(LogisticRegression()).fit(TABLE, Y)
    assert model.feature_names_in_.tolist() == ["length", "width"]
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_a_utility_from_a_file_fits_labels_that_read_the_same(tmp_path):
    path = tmp_path / "utility.csv"
    rows = "\n".join(f"{2 - k},{','.join(map(str, values))}" for k, values in enumerate(PICK.matrix))
    path.write_text(f"state,{','.join(PICK.actions)}\n{rows}\n")
    model = UtilityClassifier(LogisticRegression(), Utility.from_csv(path)).fit(X, CODES)
    other = UtilityClassifier(LogisticRegression(), PICK).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    assert model.score(X, CODES) == other.score(X, Y)


def test_numbers_stay_numbers_beside_a_reject_action():
    model = UtilityClassifier(GaussianNB(), Utility.zero_one([0, 1, 2]).with_reject(0.8)).fit(X, CODES)
    actions = model.predict(X)
    kept = actions != "reject"
    assert (actions[kept] == model.predict_proba(X)[kept].argmax(axis=1)).all()


# Fitting


def test_weights_reach_the_estimator():
    weight = np.where(Y == "virginica", 10.0, 1.0)
    model = UtilityClassifier(GaussianNB(), PICK).fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(model.predict_proba(X), GaussianNB().fit(X, Y, sample_weight=weight).predict_proba(X))
    pipeline = UtilityClassifier(make_pipeline(GaussianNB()), PICK).fit(X, Y, gaussiannb__sample_weight=weight)
    np.testing.assert_array_equal(pipeline.predict_proba(X), model.predict_proba(X))


def test_the_given_estimator_is_not_fitted():
    estimator = GaussianNB()
    UtilityClassifier(estimator, PICK).fit(X, Y)
    assert not hasattr(estimator, "classes_")


def test_a_clone_keeps_the_utility():
    model = UtilityClassifier(LogisticRegression(C=0.5), PICK, n_draws=3)
    again = clone(model)
    np.testing.assert_array_equal(again.utility.matrix, PICK.matrix)
    np.testing.assert_array_equal(again.utility.states, PICK.states)
    np.testing.assert_array_equal(again.utility.actions, PICK.actions)
    assert (again.estimator.C, again.n_draws) == (0.5, 3)
    assert again.estimator is not model.estimator
    assert model.utility is PICK  # what was given is stored untouched


def test_a_stored_model_acts_the_same():
    model = UtilityClassifier(LogisticRegression(), PICK).fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_the_text_shows_estimator_and_utility():
    text = repr(UtilityClassifier(LogisticRegression(), PICK))
    assert "LogisticRegression()" in text
    assert "3 states x 4 actions" in text


# In scikit-learn's tools


def of_folds(build, utilities=U):
    """Mean realised utility of each fold, by hand."""
    found = []
    for train, test in FOLDS.split(X):
        P = build().fit(X[train], Y[train]).predict_proba(X[test])
        mine = utilities if utilities.ndim == 2 else utilities[test]
        found.append(worth(by_hand(P, mine), Y[test], mine).mean())
    return found


def test_cross_validation_scores_realised_utility():
    scores = cross_val_score(UtilityClassifier(GaussianNB(), PICK), X, Y, cv=FOLDS)
    np.testing.assert_allclose(scores, of_folds(GaussianNB), rtol=1e-12)


def test_a_grid_search_finds_the_setting_that_is_worth_most():
    grid = [1e-9, 0.3, 100.0]
    search = GridSearchCV(UtilityClassifier(GaussianNB(), PICK), {"estimator__var_smoothing": grid}, cv=FOLDS)
    search.fit(X, Y)
    means = [np.mean(of_folds(lambda v=v: GaussianNB(var_smoothing=v))) for v in grid]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], means, rtol=1e-12)
    assert search.best_params_["estimator__var_smoothing"] == grid[int(np.argmax(means))]
    assert set(search.predict(X)) <= set(PICK.actions)


def test_utilities_are_settings_too():
    search = GridSearchCV(
        UtilityClassifier(GaussianNB()), {"utility": [PICK, PICK.with_reject(3.0, "sell")]}, cv=FOLDS
    ).fit(X, Y)
    assert search.best_params_["utility"].actions.tolist()[-1] == "sell"  # what is worth 3 always is hard to beat
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(of_folds(GaussianNB)))


def test_utilities_of_single_rows_are_routed_to_the_score():
    with sklearn.config_context(enable_metadata_routing=True):
        model = UtilityClassifier(GaussianNB(), PICK).set_score_request(utility=True)
        found = cross_validate(model, X, Y, cv=FOLDS, params={"utility": EACH})
    np.testing.assert_allclose(found["test_score"], of_folds(GaussianNB, EACH), rtol=1e-12)


def test_utilities_of_single_rows_are_routed_in_a_grid_search():
    with sklearn.config_context(enable_metadata_routing=True):
        model = UtilityClassifier(GaussianNB(), PICK).set_score_request(utility=True)
        search = GridSearchCV(model, {"estimator__var_smoothing": [1e-9, 0.3]}, cv=FOLDS).fit(X, Y, utility=EACH)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(of_folds(GaussianNB, EACH)), rel=1e-12)


def test_utilities_of_single_rows_are_routed_through_a_pipeline():
    with sklearn.config_context(enable_metadata_routing=True):
        inner = UtilityClassifier(GaussianNB(), PICK).set_predict_request(utility=True).set_score_request(utility=True)
        pipeline = make_pipeline(StandardScaler(), inner).fit(X, Y)
        codes = by_hand(pipeline.predict_proba(X), EACH)
        np.testing.assert_array_equal(pipeline.predict(X, utility=EACH), PICK.actions[codes])
        assert pipeline.score(X, Y, utility=EACH) == pytest.approx(worth(codes, Y, EACH).mean())


def test_weights_are_routed_to_the_estimator_and_to_the_score():
    weight = np.where(Y == "virginica", 10.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = UtilityClassifier(GaussianNB().set_fit_request(sample_weight=True), PICK)
        model.set_score_request(sample_weight=True)
        model.fit(X, Y, sample_weight=weight)
        found = cross_validate(model, X, Y, cv=FOLDS, params={"sample_weight": weight})["test_score"]
    plain = GaussianNB().fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    for score, (train, test) in zip(found, FOLDS.split(X), strict=True):
        P = GaussianNB().fit(X[train], Y[train], sample_weight=weight[train]).predict_proba(X[test])
        realised = worth(by_hand(P, U), Y[test], U)
        assert score == pytest.approx(np.average(realised, weights=weight[test]))


# What is refused


def test_wrong_arguments_are_refused_and_nothing_is_fitted():
    wrong = {
        "no predict_proba": (UtilityClassifier(LinearSVC()), TypeError, r"LinearSVC\(\) has no predict_proba"),
        "a matrix": (UtilityClassifier(GaussianNB(), U), TypeError, "must be a Utility or None"),
        "draws": (UtilityClassifier(GaussianNB(), n_draws=-1), ValueError, "n_draws=-1 must be a whole number"),
        "half a draw": (UtilityClassifier(GaussianNB(), n_draws=2.5), ValueError, "n_draws=2.5 must be a whole number"),
        "states": (
            UtilityClassifier(GaussianNB(), Utility.zero_one(["setosa", "rosa"])),
            ValueError,
            "in the utility: 'versicolor', 'virginica'; states that are not classes: 'rosa'",
        ),
    }
    for model, error, match in wrong.values():
        with pytest.raises(error, match=match):
            model.fit(X, Y)
        assert not hasattr(model, "estimator_")


def test_draws_need_an_estimator_that_draws():
    model = UtilityClassifier(GaussianNB(), PICK, n_draws=5).fit(X, Y)
    with pytest.raises(ValueError, match=r"n_draws=5 needs an estimator with sample_proba: GaussianNB\(\)"):
        model.predict(X)


def test_utilities_of_other_rows_classes_or_actions_are_refused():
    model = UtilityClassifier(GaussianNB(), PICK).fit(X, Y)
    for method in (model.predict, model.decide):
        with pytest.raises(ValueError, match="matrices for 9 rows, and there are 150"):
            method(X, EACH[:9])
        with pytest.raises(ValueError, match=r"shape \(150, 2, 4\): 3 states \(rows\) and 4 actions"):
            method(X, EACH[:, :2])
        with pytest.raises(ValueError, match="states that are not classes: 'rose'"):
            method(X, Utility.zero_one([*CLASSES, "rose"]))
    with pytest.raises(ValueError, match="matrices for 9 rows, and there are 150"):
        model.score(X, Y, utility=EACH[:9])


def test_labels_that_are_no_classes_have_no_score():
    model = UtilityClassifier(GaussianNB(), PICK).fit(X, Y)
    with pytest.raises(ValueError, match="y holds 'rose', which is not among the classes 'setosa', 'versicolor'"):
        model.score(X, np.where(Y == "setosa", "rose", Y))


@pytest.mark.parametrize(
    "method",
    [
        "predict",
        "decide",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "score",
    ],
)
def test_an_unfitted_model_says_so(method):
    model = UtilityClassifier(LogisticRegression(), PICK)
    with pytest.raises(NotFittedError, match="not fitted"):
        getattr(model, method)(*((X, Y) if method == "score" else (X,)))
