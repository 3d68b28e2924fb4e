"""Calibration maps: against scipy on the same objective, and on rows not seen."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, LeaveOneOut, ShuffleSplit, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from tests.slow import quick_first

from posteriori import CalibratedClassifier, SoftmaxRegression
from posteriori.decision import calibration_error
from posteriori.decision.matrix_scaling import fit_matrix_scaling
from posteriori.decision.temperature import fit_temperature, likely_temperature

METHODS = ("temperature", "auto", "vector", "dirichlet", "isotonic")
IRIS = load_iris(return_X_y=True)


class Given(ClassifierMixin, BaseEstimator):
    """Probabilities that are given as the features, in logarithms, to a power: nothing is learned."""

    def __init__(self, power=1.0):
        self.power = power

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return softmax(self.power * np.asarray(X), axis=1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class GivenAll(Given):
    """The same for classes 0..K-1, whether all have rows or not."""

    def __init__(self, power=1.0, classes=2):
        super().__init__(power)
        self.classes = classes

    def fit(self, X, y):
        self.classes_ = np.arange(self.classes)
        return self


def simulated(n, K=3, seed=0, slopes=1.0, shifts=0.0):
    """Log-probabilities of the classes, and the log-odds by which a model has them wrong."""
    rng = np.random.default_rng(seed)
    Z = np.log(rng.dirichlet(np.full(K, 0.7), n))
    truth = softmax(slopes * Z + shifts, axis=1)
    return Z, (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def logs(P):
    return np.log(P.clip(np.exp(-50.0)))


def objective(parts, Z, y, precision, vector):
    """sum_n -log p(y_n) + precision/2 (|W - 1|^2 + |b|^2), W diagonal for vector scaling."""
    K = Z.shape[1]
    W = np.diag(parts[:K]) if vector else parts[: K * K].reshape(K, K)
    b = parts[-K:]
    penalty = ((W - np.eye(K)) ** 2).sum() + (b**2).sum()
    return -log_softmax(Z @ W.T + b, axis=1)[np.arange(len(y)), y].sum() + precision / 2 * penalty


# Each map


@pytest.mark.parametrize(("K", "slope"), quick_first([(2, 0.3), (3, 2.5), (3, 1.0), (8, 0.5)], 2))
def test_the_temperature_is_learned_from_folds(K, slope):
    """The same as `fit_temperature`, on the folds that scikit-learn makes."""
    Z, y = simulated(300, K, slopes=slope)
    model = CalibratedClassifier(Given()).fit(Z, y)
    parts = np.empty(300, dtype=int)
    for i, (_, test) in enumerate(StratifiedKFold(5).split(Z, y)):
        parts[test] = i
    frequencies = np.bincount(y, minlength=K) / 300
    expected, gain = fit_temperature(np.log(softmax(Z, axis=1)), y, parts, frequencies)
    assert model.temperature_ == pytest.approx(1 / expected.slope, rel=1e-6)
    assert model.doubt_ == pytest.approx(expected.doubt, rel=1e-4, abs=1e-12)
    assert (model.gain_, model.gain_error_) == pytest.approx((gain.mean, gain.error), rel=1e-6)
    np.testing.assert_allclose(model.frequencies_, frequencies)
    np.testing.assert_allclose(model.predict_log_proba(Z), expected.log_proba(Z), atol=1e-6)
    np.testing.assert_allclose(model.coef_, np.eye(K) / model.temperature_)
    np.testing.assert_array_equal(model.intercept_, 0.0)


@pytest.mark.parametrize("method", ["vector", "dirichlet"])
@pytest.mark.parametrize("precision", quick_first([1.0, 0.1, 30.0]))
@pytest.mark.parametrize("K", [2, 4])
def test_vector_and_dirichlet_scaling_minimise_their_penalised_loss(method, precision, K):
    Z, y = simulated(200, K, slopes=np.linspace(0.4, 1.6, K), shifts=np.linspace(-0.5, 0.5, K))
    model = CalibratedClassifier(Given(), method=method, precision=precision).fit(Z, y)
    vector = method == "vector"
    start = np.append(np.ones(K) if vector else np.eye(K).ravel(), np.zeros(K))
    best = minimize(objective, start, (Z, y, precision, vector), method="BFGS", options={"gtol": 1e-6, "maxiter": 500})
    W = np.diag(best.x[:K]) if vector else best.x[: K * K].reshape(K, K)
    np.testing.assert_allclose(model.coef_, W, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, best.x[-K:], atol=1e-4)
    np.testing.assert_allclose(
        model.predict_log_proba(Z), log_softmax(Z @ model.coef_.T + model.intercept_, axis=1), atol=1e-12
    )
    assert not hasattr(model, "temperature_")
    if vector:
        np.testing.assert_array_equal(model.coef_, np.diag(np.diag(model.coef_)))


def test_isotonic_is_scikit_learn_s():
    X, y = IRIS
    cv = StratifiedKFold(5)
    model = CalibratedClassifier(GaussianNB(), method="isotonic", cv=cv).fit(X, y)
    other = CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=cv, ensemble=False).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(model.predict_log_proba(X), np.log(other.predict_proba(X)))


# Rows not seen


@pytest.mark.parametrize(
    "cv", [StratifiedKFold(5), KFold(3, shuffle=True, random_state=1), list(KFold(4).split(range(150)))]
)
def test_the_map_is_fitted_to_predictions_of_rows_not_seen_and_the_estimator_to_all(cv):
    X, y = IRIS
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order], y[order]
    model = CalibratedClassifier(GaussianNB(), method="dirichlet", cv=cv).fit(X, y)
    Z = logs(cross_val_predict(GaussianNB(), X, y, cv=cv, method="predict_proba"))
    by_hand = CalibratedClassifier(Given(), method="dirichlet").fit(Z, y)
    np.testing.assert_allclose(model.coef_, by_hand.coef_, atol=1e-5)
    plain = GaussianNB().fit(X, y)
    np.testing.assert_array_equal(model.estimator_.predict_proba(X), plain.predict_proba(X))
    expected = log_softmax(logs(plain.predict_proba(X)) @ model.coef_.T + model.intercept_, axis=1)
    np.testing.assert_allclose(model.predict_log_proba(X), expected, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(expected), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), expected.argmax(axis=1))


DIGITS = load_digits(return_X_y=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_too_sure_of_itself_gets_better_on_new_rows(method):
    """Naive Bayes takes 64 pixels for independent: right or wrong, it is always certain."""
    X, y = DIGITS
    train, test = np.arange(0, 1797, 2), np.arange(1, 1797, 2)
    model = CalibratedClassifier(GaussianNB(var_smoothing=1e-3), method=method, cv=3).fit(X[train], y[train])
    plain = GaussianNB(var_smoothing=1e-3).fit(X[train], y[train])
    before, after = (log_loss(y[test], each.predict_proba(X[test])) for each in (plain, model))
    assert before > 1.0
    assert after < 0.7
    errors = [calibration_error(y[test], each.predict_proba(X[test])).corrected for each in (plain, model)]
    assert errors[1] < 0.5 * errors[0]
    assert model.score(X[test], y[test]) > plain.score(X[test], y[test]) - 0.02
    if method == "temperature":
        assert model.temperature_ > 3
        np.testing.assert_array_equal(model.predict(X[test]), plain.predict(X[test]))  # no order is changed


def test_a_well_calibrated_model_stays_as_it_is():
    """The slope within four standard errors of one, those that the Fisher information of the rows gives."""
    Z, y = simulated(3000)
    P = np.exp(Z)
    information = ((P * Z**2).sum(axis=1) - (P * Z).sum(axis=1) ** 2).sum()
    model = CalibratedClassifier(Given()).fit(Z, y)
    assert 1 / model.temperature_ == pytest.approx(1.0, abs=4 / np.sqrt(information))
    for method in METHODS:
        model = CalibratedClassifier(Given(), method=method).fit(Z, y)
        assert np.abs(model.predict_proba(Z) - P).mean() < 0.025


def test_auto_is_a_likely_temperature_and_then_a_matrix_as_strong_as_the_evidence_says():
    Z, y = simulated(400, 4, slopes=np.linspace(0.4, 1.6, 4), shifts=np.linspace(-0.5, 0.5, 4))
    model = CalibratedClassifier(Given(), method="auto").fit(Z, y)
    frequencies = np.bincount(y) / 400
    logits = log_softmax(Z, axis=1)
    first = likely_temperature(logits, y, frequencies)
    second = fit_matrix_scaling(first.log_proba(logits), y)
    assert second.gain > 5
    assert (1 / model.temperature_, model.doubt_) == pytest.approx((first.slope, first.doubt), rel=1e-6)
    assert model.evidence_gain_ == pytest.approx(second.gain)
    np.testing.assert_allclose(model.coef_, second.W, atol=1e-7)
    assert model.spreads_ == pytest.approx(second.spreads)
    mixed = (1 - model.doubt_) * softmax(logits / model.temperature_, axis=1) + model.doubt_ * frequencies
    expected = log_softmax(np.log(mixed) @ model.coef_.T + model.intercept_, axis=1)
    np.testing.assert_allclose(model.predict_log_proba(Z), expected, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(Z), np.exp(expected), atol=1e-12)


def test_auto_has_exact_logarithms_of_tiny_probabilities():
    Z, y = simulated(300)
    y = Z.argmax(axis=1)
    model = CalibratedClassifier(Given(power=30.0), method="auto").fit(Z, y)
    model.doubt_, model.coef_ = 0.0, 40.0 * model.coef_
    log_p = model.predict_log_proba(Z)
    assert log_p.min() < -1000
    assert np.isfinite(log_p).all()


@pytest.mark.parametrize("K", [2, 4])
def test_auto_with_thirty_rows_leaves_good_probabilities_nearly_as_they_are(K):
    """The mean over samples of what it costs, by the true probabilities of 2,000 rows."""
    new, _ = simulated(2000, K, seed=999)
    P = np.exp(new)
    costs = []
    for seed in range(12):
        Z, y = simulated(30, K, seed=seed)
        changed = CalibratedClassifier(GivenAll(classes=K), method="auto", cv=KFold(3)).fit(Z, y)
        costs.append(float((P * (new - changed.predict_log_proba(new))).sum(axis=1).mean()))
    assert -1e-9 < np.mean(costs) < 0.003


@pytest.mark.parametrize("method", ["vector", "dirichlet"])
def test_a_strong_prior_changes_nothing(method):
    Z, y = simulated(200, slopes=0.2)
    model = CalibratedClassifier(Given(), method=method, precision=1e9).fit(Z, y)
    np.testing.assert_allclose(model.predict_proba(Z), np.exp(Z), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_model_did_wrong_is_put_right(method):
    """Probabilities to the power of three: every map can take its cube root."""
    Z, y = simulated(4000)
    P = CalibratedClassifier(Given(power=3.0), method=method).fit(Z, y).predict_proba(Z)
    assert np.abs(P - np.exp(Z)).mean() < 0.03
    assert np.abs(Given(3.0).predict_proba(Z) - np.exp(Z)).mean() > 0.1


# Edges


@pytest.mark.parametrize("method", METHODS)
def test_a_class_held_impossible_does_not_decide_the_map(method):
    """Ten rows in five hundred contradict a model that is always certain: no logarithm of zero gets through."""
    y = np.arange(500) % 3
    Z = np.where(np.eye(3, dtype=bool)[y], 0.0, -np.inf)
    y[7::50] = (y[7::50] + 1) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        P = CalibratedClassifier(Given(), method=method).fit(Z, y).predict_proba(Z)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert (P.argmax(axis=1) == y).sum() == 490
    if method != "isotonic":
        assert P[7, y[7]] > 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_worthless_model_is_not_believed(method):
    rng = np.random.default_rng(0)
    Z, y = np.log(rng.dirichlet(np.ones(3) / 2, 2000)), rng.integers(0, 3, 2000)
    P = CalibratedClassifier(Given(), method=method).fit(Z, y).predict_proba(Z)
    assert np.abs(P - 1 / 3).mean() < 0.06


def test_a_model_that_is_always_right_may_be_surer_but_not_certain():
    """No error in 200 rows: the next one must not cost what a certain model pays."""
    Z, y = simulated(200)
    y = Z.argmax(axis=1)
    model = CalibratedClassifier(Given()).fit(Z, y)
    assert 0.05 < model.temperature_ < 0.8
    assert model.predict_log_proba(Z).min() > np.log(1e-5)
    np.testing.assert_array_equal(model.predict(Z), y)


def separable(n, seed, sep=3.0):
    """Two classes that a plane nearly always separates, and 3,000 new rows."""
    X, y = make_classification(
        n + 3000, 10, n_informative=5, n_redundant=2, n_clusters_per_class=1, class_sep=sep, flip_y=0.0,
        random_state=seed,
    )  # fmt: skip
    return (X[:n], y[:n]), (X[n:], y[n:])


def three_classes(n, seed):
    """Classes that overlap, with copies of all columns: naive Bayes counts each three times."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n + 3000)
    X = rng.normal(size=(3, 6))[y] * 0.6 + rng.normal(size=(n + 3000, 6))
    X = np.hstack([X, X + 0.3 * rng.normal(size=X.shape), X + 0.3 * rng.normal(size=X.shape)])
    return (X[:n], y[:n]), (X[n:], y[n:])


FREE = LogisticRegression(C=np.inf, max_iter=500)
MEMBERS = {
    "no regularisation, nearly separable": (FREE, separable(1000, 1)),
    "the same, other rows": (FREE, separable(1000, 0, 2.0)),
    "few rows": (FREE, separable(60, 2, 2.0)),
    "good probabilities": (LogisticRegression(), three_classes(300, 0)),
    "one value for all": (DummyClassifier(strategy="prior"), three_classes(100, 1)),
    "too sure": (GaussianNB(), three_classes(300, 2)),
    "too careful": (LogisticRegression(C=1e-3), separable(300, 3, 2.0)),
    "forest": (RandomForestClassifier(30, random_state=0), three_classes(300, 3)),
}
WRONG_BEFORE = ("too sure", "too careful", "forest")


@pytest.mark.parametrize("method", ["temperature", "auto"])
@pytest.mark.parametrize("name", MEMBERS)
def test_calibration_does_not_hurt_and_helps_where_probabilities_are_wrong(name, method):
    """On rows not seen, paired by row: never clearly worse, and clearly better where something was wrong.

    "auto" is never entirely without effect: a loss of a thousandth is not clear.
    """
    least = 1e-9 if method == "temperature" else 1e-3
    estimator, ((X, y), (X_new, y_new)) = MEMBERS[name]
    rows = np.arange(len(y_new)), y_new
    before = -logs(estimator.fit(X, y).predict_proba(X_new))[rows]
    after = -CalibratedClassifier(estimator, method=method).fit(X, y).predict_log_proba(X_new)[rows]
    worse, error = (after - before).mean(), (after - before).std() / np.sqrt(len(y_new))
    assert worse <= 2 * error + least
    if name in WRONG_BEFORE:
        assert worse < -3 * error


# Folds


def test_many_folds_are_parts_together():
    X, y = IRIS
    model = CalibratedClassifier(GaussianNB(), cv=LeaveOneOut()).fit(X[::3], y[::3])
    assert np.isfinite([model.temperature_, model.gain_, model.gain_error_]).all()
    assert model.gain_error_ > 0


def test_folds_that_lack_a_class_say_nothing_about_its_rows():
    """The only row of a class: the fit without it cannot know the class, which is no error of its probabilities."""
    X, y = IRIS
    X, y = np.vstack([X, [[9.0, 9.0, 9.0, 9.0]]]), np.append(y, 3)
    cv = KFold(5, shuffle=True, random_state=0)
    for method in ("temperature", "vector", "dirichlet"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = CalibratedClassifier(SoftmaxRegression(), method=method, cv=cv).fit(X, y)
        assert model.predict_proba(X).shape == (151, 4)
        assert model.score(X, y) > 0.9
    assert CalibratedClassifier(SoftmaxRegression(), cv=cv).fit(X, y).doubt_ < 0.02


def test_folds_may_be_masks():
    X, y = IRIS
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    rows = np.arange(150)
    masks = [(np.isin(rows, train), np.isin(rows, test)) for train, test in folds]
    by_number, by_mask = (CalibratedClassifier(GaussianNB(), cv=cv).fit(X, y).predict_proba(X) for cv in (folds, masks))
    np.testing.assert_array_equal(by_mask, by_number)


def test_folds_that_leave_rows_out_twice_are_refused():
    with pytest.raises(ValueError, match=r"cv leaves row \d+ out \d times: use folds that leave out every row once"):
        CalibratedClassifier(GaussianNB(), cv=ShuffleSplit(3, random_state=0)).fit(*IRIS)


@pytest.mark.parametrize("method", METHODS)
def test_labels_are_names_and_rows_a_table(method):
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])
    table = pd.DataFrame(X, columns=list("abcd"))
    model = CalibratedClassifier(GaussianNB(), method=method).fit(table, pd.Series(names[y]))
    other = CalibratedClassifier(GaussianNB(), method=method).fit(X, y)
    np.testing.assert_array_equal(model.classes_, names)
    np.testing.assert_array_equal(model.predict(table), names[other.predict(X)])
    np.testing.assert_allclose(model.predict_proba(table), other.predict_proba(X))
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.n_features_in_ == 4


def test_the_given_estimator_is_not_fitted():
    estimator = GaussianNB()
    CalibratedClassifier(estimator).fit(*IRIS)
    assert not hasattr(estimator, "classes_")


# Fitting again


def test_nothing_of_another_method_is_left_behind():
    model = CalibratedClassifier(GaussianNB()).fit(*IRIS)
    model.set_params(method="auto").fit(*IRIS)
    assert not hasattr(model, "gain_")
    model.set_params(method="dirichlet").fit(*IRIS)
    assert not {"temperature_", "doubt_", "spreads_", "evidence_gain_"} & set(vars(model))
    model.set_params(method="isotonic").fit(*IRIS)
    assert not hasattr(model, "coef_")


def test_feature_names_are_those_of_the_last_fit():
    X, y = IRIS
    model = CalibratedClassifier(GaussianNB()).fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert not hasattr(model.fit(X, y), "feature_names_in_")


# What is refused

WRONG = {
    "method": ({"method": "platt"}, "method='platt' is unknown: use one of .*'temperature', 'auto', 'vector'"),
    "no precision": ({"precision": 0.0}, "precision=0.0 must be a positive number"),
    "infinite": ({"precision": np.inf}, "precision=inf must be a positive number"),
    "text": ({"precision": "strong"}, "precision='strong' must be a positive number"),
    "one fold": ({"cv": 1}, "k-fold"),
}


@pytest.mark.parametrize(("options", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_are_refused_and_nothing_is_fitted(options, match):
    model = CalibratedClassifier(GaussianNB(), **options)
    with pytest.raises(ValueError, match=match):
        model.fit(*IRIS)
    assert not hasattr(model, "estimator_")


def test_an_estimator_without_probabilities_is_refused():
    with pytest.raises(TypeError, match=r"LinearSVC\(\) has no predict_proba"):
        CalibratedClassifier(LinearSVC()).fit(*IRIS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("predict", ["predict", "predict_proba", "predict_log_proba"])
def test_an_unfitted_model_says_so(method, predict):
    with pytest.raises(NotFittedError, match="not fitted"):
        getattr(CalibratedClassifier(GaussianNB(), method=method), predict)(IRIS[0])
