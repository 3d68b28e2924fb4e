"""A classifier with prediction sets: what its rows are used for, how often the sets hold, and when it abstains."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import betabinom
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from posteriori import ConformalClassifier, SoftmaxRegression
from posteriori.decision import calibrate, prediction_sets

X, CODES = load_iris(return_X_y=True)
X = X[:, :2]  # where the last two species overlap
CLASSES = np.array(["setosa", "versicolor", "virginica"])
Y = CLASSES[CODES]
DIGITS = load_digits(return_X_y=True)


class Remembering(GaussianNB):
    """Keeps the first column of the rows that it was fitted to: their numbers."""

    def fit(self, X, y):
        self.numbers_ = X[:, 0].astype(int)
        return super().fit(X[:, 1:], y)

    def predict_proba(self, X):
        return super().predict_proba(X[:, 1:])


NUMBERED = np.column_stack([np.arange(150), X])


# What rows are used for


@pytest.mark.parametrize(("size", "held"), [(0.25, 38), (0.5, 75), (30, 30), (0.1, 15)])
def test_calibration_rows_are_used_for_nothing_else(size, held):
    model = ConformalClassifier(Remembering(), calibration_size=size).fit(NUMBERED, Y)
    fitted = model.estimator_.numbers_
    aside = np.setdiff1d(np.arange(150), fitted)
    assert len(set(fitted)) == len(fitted) == 150 - held
    assert model.n_calibration_ == len(aside) == held
    plain = GaussianNB().fit(X[fitted], Y[fitted])
    np.testing.assert_array_equal(model.predict_proba(NUMBERED), plain.predict_proba(X))
    own = plain.predict_proba(X[aside])[np.arange(held), CODES[aside]]
    np.testing.assert_array_equal(model.calibration_.values[0], np.sort(1 - own))


def test_both_parts_have_their_share_of_every_class():
    model = ConformalClassifier(Remembering(), calibration_size=0.2).fit(NUMBERED, Y)
    np.testing.assert_array_equal(np.bincount(CODES[model.estimator_.numbers_]), [40, 40, 40])
    apart = ConformalClassifier(Remembering(), calibration_size=0.2, by_class=True).fit(NUMBERED, Y)
    assert [len(values) for values in apart.calibration_.values] == [10, 10, 10]


def test_rows_set_aside_depend_on_the_random_state():
    def numbers(seed):
        return ConformalClassifier(Remembering(), random_state=seed).fit(NUMBERED, Y).estimator_.numbers_.tolist()

    assert numbers(1) == numbers(1) == numbers(np.random.RandomState(1))
    assert numbers(None) == numbers(None)
    assert sorted(numbers(1)) != sorted(numbers(2))


def test_a_fitted_estimator_is_calibrated_as_it_is():
    estimator = GaussianNB().fit(X[::2], Y[::2])
    before = estimator.theta_.copy()
    model = ConformalClassifier(GaussianNB(), random_state=3).calibrate(estimator, X[1::2], Y[1::2])
    assert model.estimator_ is estimator
    np.testing.assert_array_equal(estimator.theta_, before)
    assert model.n_calibration_ == 75
    own = estimator.predict_proba(X[1::2])[np.arange(75), CODES[1::2]]
    np.testing.assert_array_equal(model.calibration_.values[0], np.sort(1 - own))
    assert model.classes_.tolist() == CLASSES.tolist()


# Sets


@pytest.mark.parametrize("score", ["lac", "aps"])
@pytest.mark.parametrize("by_class", [False, True])
def test_sets_are_those_of_the_probabilities(score, by_class):
    model = ConformalClassifier(GaussianNB(), alpha=0.2, conformity=score, by_class=by_class).fit(X, Y)
    sets = model.predict_set(X)
    seed = model.calibration_.seed
    P = model.predict_proba(X)
    expected = prediction_sets(P, model.calibration_, 0.2, CLASSES)
    np.testing.assert_array_equal(sets.members, expected.members)
    assert sets.alpha == 0.2
    # and of a calibration by hand
    estimator = model.estimator_
    again = ConformalClassifier(GaussianNB(), conformity=score, by_class=by_class).calibrate(estimator, X, Y)
    by_hand = calibrate(P, CODES, score=score, by_class=by_class, seed=seed)
    for found, values in zip(again.calibration_.values, by_hand.values, strict=True):
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("score", ["lac", "aps"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_digits_are_covered_as_often_as_promised(score, alpha):
    """By naive Bayes, whose probabilities are far too sure; within the law's central 99.9 %."""
    X, y = DIGITS
    order = np.random.default_rng(5).permutation(len(y))
    train, test = order[:800], order[800:]
    model = ConformalClassifier(GaussianNB(var_smoothing=1e-3), alpha=alpha, conformity=score, calibration_size=0.5)
    sets = model.fit(X[train], y[train]).predict_set(X[test])
    n, k = model.n_calibration_, int(np.ceil((model.n_calibration_ + 1) * (1 - alpha)))
    low, high = betabinom(len(test), k, n + 1 - k).interval(0.999)
    assert low <= round(sets.coverage(y[test]) * len(test)) <= high


def test_digits_of_every_class_are_covered_by_class():
    X, y = DIGITS
    model = ConformalClassifier(GaussianNB(var_smoothing=1e-3), alpha=0.2, by_class=True, calibration_size=0.5)
    model.fit(X[:900], y[:900])
    sets = model.predict_set(X[900:])
    for label in range(10):
        mine = y[900:] == label
        n = len(model.calibration_.values[label])
        k = int(np.ceil((n + 1) * 0.8))
        low, high = betabinom(mine.sum(), k, n + 1 - k).interval(0.9999)
        assert low <= sets.members[mine, label].sum() <= high


def test_another_level_needs_no_other_fit():
    model = ConformalClassifier(GaussianNB(), alpha=0.1).fit(X, Y)
    strict, loose = model.predict_set(X, alpha=0.01), model.predict_set(X, alpha=0.5)
    assert (strict.alpha, loose.alpha, model.predict_set(X).alpha) == (0.01, 0.5, 0.1)
    assert (loose.members <= model.predict_set(X).members).all()
    assert (model.predict_set(X).members <= strict.members).all()
    assert loose.members.sum() < strict.members.sum()


# Predictions


def test_predictions_and_probabilities_are_the_estimator_s():
    model = ConformalClassifier(make_pipeline(StandardScaler(), GaussianNB())).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))
    np.testing.assert_array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))


@pytest.mark.parametrize("abstain", ["abstain", None, "ask"])
def test_rows_with_more_than_one_class_are_abstained_from(abstain):
    model = ConformalClassifier(GaussianNB(), alpha=0.1).fit(X, Y)
    sets = model.predict_set(X)
    actions = model.predict_or_abstain(X, abstain)
    expected = [labels[0] if len(labels) == 1 else abstain for labels in sets.labels()]
    assert actions.tolist() == expected
    decided = sets.sizes == 1
    assert 0.2 < decided.mean() < 0.9
    # what it does say is right more often than what it would have said of all rows
    assert (actions[decided] == Y[decided]).mean() > (model.predict(X) == Y).mean()


def test_the_score_is_the_accuracy():
    model = ConformalClassifier(GaussianNB()).fit(X, Y)
    assert model.score(X, Y) == (model.predict(X) == Y).mean()


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_rows_may_be_a_table(table):
    given = table({"length": X[:, 0], "width": X[:, 1]})
    model = ConformalClassifier(SoftmaxRegression()).fit(given, Y)
    other = ConformalClassifier(SoftmaxRegression()).fit(X, Y)
    # other rows than those of the calibration, of which one is the bound itself
    new = X + 0.0137
    moved = table({"length": new[:, 0], "width": new[:, 1]})
    np.testing.assert_array_equal(model.predict_set(moved).members, other.predict_set(new).members)
    assert model.feature_names_in_.tolist() == ["length", "width"]
    assert model.n_features_in_ == other.n_features_in_ == 2


def test_feature_names_are_those_of_the_last_fit():
    model = ConformalClassifier(GaussianNB()).fit(pd.DataFrame(X, columns=["length", "width"]), Y)
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


# Few rows


def test_more_classes_than_rows_set_aside():
    """No part can hold every class, and sets hold them all."""
    y = np.arange(60) % 20
    model = ConformalClassifier(GaussianNB(), calibration_size=5).fit(np.eye(20)[y] + np.arange(60)[:, None] / 99, y)
    assert model.n_calibration_ == 5
    assert model.predict_set(np.eye(20)).members.all()


def test_a_class_of_one_row():
    y = Y.copy()
    y[0] = "rose"
    for seed in range(8):
        model = ConformalClassifier(GaussianNB(), random_state=seed).fit(X, y)
        assert "rose" in model.classes_


# What is refused

WRONG = {
    "alpha 0": ({"alpha": 0.0}, "alpha=0.0 must be between 0 and 1"),
    "alpha in percent": ({"alpha": 10}, "alpha=10 must be between 0 and 1"),
    "no alpha": ({"alpha": None}, "alpha=None must be between 0 and 1"),
    "conformity": ({"conformity": "raps"}, "conformity='raps' is unknown: use 'lac' or 'aps'"),
    "nothing set aside": ({"calibration_size": 0}, "calibration_size=0 must be a share or a number of rows"),
    "text": ({"calibration_size": "half"}, "calibration_size='half' must be"),
    "everything": ({"calibration_size": 150}, "150"),
}


@pytest.mark.parametrize(("options", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_are_refused_and_nothing_is_fitted(options, match):
    model = ConformalClassifier(GaussianNB(), **options)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y)
    assert not hasattr(model, "estimator_")


def test_an_estimator_without_probabilities_is_refused():
    with pytest.raises(TypeError, match=r"LinearSVC\(\) has no predict_proba"):
        ConformalClassifier(LinearSVC()).fit(X, Y)


def test_calibrating_needs_a_fitted_estimator_and_its_classes():
    model = ConformalClassifier(GaussianNB())
    with pytest.raises(NotFittedError, match="not fitted"):
        model.calibrate(GaussianNB(), X, Y)
    with pytest.raises(ValueError, match="y holds 'virginica', which is not among the classes 'setosa', 'versicolor'"):
        model.calibrate(GaussianNB().fit(X[:100], Y[:100]), X, Y)
    assert not hasattr(model, "estimator_")


def test_calibrating_needs_a_label_for_every_row():
    with pytest.raises(ValueError, match="150"):
        ConformalClassifier(GaussianNB()).calibrate(GaussianNB().fit(X, Y), X, Y[:100])


def test_levels_of_single_sets_are_checked_too():
    model = ConformalClassifier(GaussianNB()).fit(X, Y)
    with pytest.raises(ValueError, match=r"alpha=1\.5 must be between 0 and 1"):
        model.predict_set(X, alpha=1.5)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_set", "predict_or_abstain"])
def test_an_unfitted_model_says_so(method):
    with pytest.raises(NotFittedError, match="not fitted"):
        getattr(ConformalClassifier(GaussianNB()), method)(X)


def test_a_clone_has_the_settings_and_no_fit():
    model = ConformalClassifier(GaussianNB(), alpha=0.3, conformity="aps", by_class=True, calibration_size=9).fit(X, Y)
    again = clone(model)
    assert not hasattr(again, "estimator_")
    kept = {name: value for name, value in model.get_params(deep=False).items() if name != "estimator"}
    assert kept == {"alpha": 0.3, "conformity": "aps", "by_class": True, "calibration_size": 9, "random_state": None}
    assert {name: again.get_params()[name] for name in kept} == kept
