"""scikit-learn's metadata routing: everything goes where it was requested, and nowhere else."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metadata_routing import MetadataRouter

import posteriori as po
from posteriori.decision import log_loss_scorer

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(150)
X, Y = X[ORDER], Y[ORDER]
WEIGHTS = np.random.default_rng(1).uniform(0.1, 3.0, 150)
GROUPS = np.arange(150) // 15
CLASSIFIERS = {
    "softmax": lambda: po.SoftmaxRegression(),
    "bayes": lambda: po.BayesianSoftmaxRegression(1.0, approximation="laplace"),
    "gaussian": lambda: po.GaussianClassifier("tied", estimate="map", prior=po.RidgePrior()),
    "gp": lambda: po.GPClassifier(n_inducing=5, max_iter=3),
}
META = {
    "utility": po.UtilityClassifier,
    "calibrated": lambda estimator: po.CalibratedClassifier(estimator, cv=KFold(3)),
    "isotonic": lambda estimator: po.CalibratedClassifier(estimator, cv=KFold(3), method="isotonic"),
    "conformal": po.ConformalClassifier,
}


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


class Consumer(ClassifierMixin, BaseEstimator):
    """Learns nothing, and keeps what its `fit` was given in a list that all clones share."""

    def __init__(self, seen=None):
        self.seen = seen

    def __sklearn_clone__(self):
        copy = type(self)(self.seen)  # with the list itself, and the requests
        if hasattr(self, "_metadata_request"):
            copy._metadata_request = self._metadata_request
        return copy

    def fit(self, X, y, sample_weight=None, metadata=None):
        self.seen.append({"rows": np.asarray(X)[:, 0], "sample_weight": sample_weight, "metadata": metadata})
        self.classes_, counts = np.unique(y, return_counts=True)
        self.frequencies_ = counts / counts.sum()
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict_proba(self, X):
        return np.tile(self.frequencies_, (len(X), 1))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class Groups(GroupKFold):
    """Folds that keep what they were given."""

    given = None

    def split(self, X, y=None, groups=None):
        type(self).given = groups
        return super().split(X, y, groups)


ROWS = np.column_stack([np.arange(150.0), X])
"""The number of each row is its first feature."""


# Classifiers


@pytest.mark.parametrize("name", [*list(CLASSIFIERS)[:3], pytest.param("gp", marks=pytest.mark.slow)])
def test_weights_are_routed_to_fit_and_score_of_every_classifier(name):
    model = CLASSIFIERS[name]()
    with pytest.raises(UnsetMetadataPassedError, match=r"\[sample_weight\] are passed but are not explicitly set"):
        GridSearchCV(model, {}).fit(X, Y, sample_weight=WEIGHTS)
    model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    found = cross_validate(model, X, Y, params={"sample_weight": WEIGHTS}, cv=KFold(3), return_estimator=True)
    for score, fitted, (train, test) in zip(found["test_score"], found["estimator"], KFold(3).split(X), strict=True):
        alone = CLASSIFIERS[name]().fit(X[train], Y[train], sample_weight=WEIGHTS[train])
        np.testing.assert_allclose(fitted.predict_proba(X), alone.predict_proba(X), atol=1e-10)
        assert score == pytest.approx(alone.score(X[test], Y[test], sample_weight=WEIGHTS[test]))
    without = CLASSIFIERS[name]().set_fit_request(sample_weight=False).set_score_request(sample_weight=False)
    with pytest.raises(TypeError, match="sample_weight"):  # as nobody wants them
        cross_val_score(without, X, Y, cv=KFold(3), params={"sample_weight": WEIGHTS})


@pytest.mark.parametrize("name", ["softmax", "gaussian"])
def test_partial_fit_has_requests_of_its_own(name):
    model = CLASSIFIERS[name]().set_partial_fit_request(classes=True, sample_weight="weights")
    request = model.get_metadata_routing().partial_fit.requests
    assert request == {"classes": True, "sample_weight": "weights"}
    assert clone(model).get_metadata_routing().partial_fit.requests == request


def test_a_name_other_than_that_of_the_argument():
    model = po.SoftmaxRegression().set_fit_request(sample_weight="importance").set_score_request(sample_weight=False)
    search = GridSearchCV(model, {"alpha": [0.1, 10.0]}, cv=GroupKFold(3))
    search.fit(X, Y, importance=WEIGHTS, groups=GROUPS)
    alone = po.SoftmaxRegression(**search.best_params_).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(search.predict_proba(X), alone.predict_proba(X), atol=1e-10)


def test_scorers_take_weights():
    model = po.SoftmaxRegression().set_fit_request(sample_weight=True)
    assert log_loss_scorer.get_metadata_routing().score.requests == {"sample_weight": None}
    scorer = clone(log_loss_scorer).set_score_request(sample_weight=True)
    found = cross_val_score(model, X, Y, cv=KFold(3), scoring=scorer, params={"sample_weight": WEIGHTS})
    peer = get_scorer("neg_log_loss").set_score_request(sample_weight=True)
    expected = cross_val_score(model, X, Y, cv=KFold(3), scoring=peer, params={"sample_weight": WEIGHTS})
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_through_a_pipeline_with_a_table_encoder():
    table = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 5.8, "long", "short"))
    last = po.SoftmaxRegression().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    pipeline = make_pipeline(po.TableEncoder(), last)
    found = cross_validate(pipeline, table, Y, cv=GroupKFold(3), params={"sample_weight": WEIGHTS, "groups": GROUPS})
    for score, (train, test) in zip(found["test_score"], GroupKFold(3).split(X, Y, GROUPS), strict=True):
        encoder = po.TableEncoder().fit(table.iloc[train], Y[train])
        alone = po.SoftmaxRegression().fit(encoder.transform(table.iloc[train]), Y[train], WEIGHTS[train])
        assert score == pytest.approx(alone.score(encoder.transform(table.iloc[test]), Y[test], WEIGHTS[test]))


# Classifiers around classifiers


@pytest.mark.parametrize("name", META)
def test_a_router_with_no_request_of_its_own(name):
    model = META[name](Consumer([]))
    assert isinstance(model.get_metadata_routing(), MetadataRouter)
    assert not [
        value
        for method in ("fit", "score")
        for value in getattr(model._get_metadata_request(), method).requests.values()
        if value is not None
    ]


@pytest.mark.parametrize("name", META)
@pytest.mark.parametrize("key", ["sample_weight", "metadata"])
def test_what_was_not_requested_is_an_error(name, key):
    model = META[name](Consumer([]))
    message = f"[{key}] are passed but are not explicitly set as requested or not requested for Consumer.fit"
    with pytest.raises(UnsetMetadataPassedError, match=re.escape(message)):
        model.fit(X, Y, **{key: WEIGHTS})
    with pytest.raises(TypeError, match="nonsense"):
        model.fit(X, Y, nonsense=1)


@pytest.mark.parametrize("name", META)
def test_what_was_requested_arrives_cut_to_the_rows_of_each_fit(name):
    seen = []
    consumer = Consumer(seen).set_fit_request(sample_weight=True, metadata="labels")
    META[name](consumer).fit(ROWS, Y, sample_weight=WEIGHTS, labels=np.arange(150))
    assert seen
    for given in seen:
        np.testing.assert_array_equal(given["metadata"], given["rows"])
        np.testing.assert_array_equal(given["sample_weight"], WEIGHTS[given["rows"].astype(int)])


@pytest.mark.parametrize("name", ["calibrated", "isotonic"])
def test_weights_that_the_estimator_refuses_count_for_the_map_alone(name):
    seen = []
    META[name](Consumer(seen).set_fit_request(sample_weight=False)).fit(ROWS, Y, sample_weight=WEIGHTS)
    assert seen
    assert all(given["sample_weight"] is None for given in seen)
    refused = po.SoftmaxRegression().set_fit_request(sample_weight=False)
    strong = np.where(Y == 0, 100.0, 1.0)
    weighted, plain = (META[name](refused).fit(X, Y, sample_weight=w).predict_proba(X) for w in (strong, None))
    assert np.abs(weighted - plain).max() > 1e-3


@pytest.mark.parametrize("name", ["utility", "conformal"])
def test_what_nobody_wants_is_an_error(name):
    model = META[name](Consumer([]).set_fit_request(sample_weight=False))
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(ROWS, Y, sample_weight=WEIGHTS)


@pytest.mark.parametrize("name", META)
def test_the_same_with_routing_and_without(name):
    requests = po.SoftmaxRegression().set_fit_request(sample_weight=True)
    routed = META[name](requests).fit(X, Y, sample_weight=WEIGHTS)
    with config_context(enable_metadata_routing=False):
        plain = META[name](po.SoftmaxRegression()).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(routed.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(META[name](po.SoftmaxRegression()).fit(X, Y).predict_proba(X).shape, (150, 3))


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_groups_reach_the_folds_of_a_calibrated_classifier(method):
    model = po.CalibratedClassifier(po.SoftmaxRegression(), cv=Groups(3), method=method).fit(X, Y, groups=GROUPS)
    np.testing.assert_array_equal(Groups.given, GROUPS)
    folds = list(GroupKFold(3).split(X, Y, GROUPS))
    by_hand = po.CalibratedClassifier(po.SoftmaxRegression(), cv=folds, method=method).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), by_hand.predict_proba(X))


def test_weights_through_a_search_over_a_pipeline_of_classifiers_around_classifiers():
    inner = po.SoftmaxRegression().set_fit_request(sample_weight=True)
    calibrated = po.CalibratedClassifier(inner, cv=3).set_fit_request(sample_weight=True)
    model = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), po.UtilityClassifier(calibrated))
    model[-1].set_score_request(sample_weight=True)
    search = GridSearchCV(model, {"utilityclassifier__estimator__estimator__alpha": [0.01, 1.0]}, cv=KFold(3))
    search.fit(X, Y, sample_weight=WEIGHTS)
    alpha = search.best_params_["utilityclassifier__estimator__estimator__alpha"]
    Z = StandardScaler().fit_transform(X)
    with config_context(enable_metadata_routing=False):
        alone = po.CalibratedClassifier(po.SoftmaxRegression(alpha), cv=3).fit(Z, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(search.predict_proba(X), alone.predict_proba(Z), atol=1e-12)
    assert log_loss(Y, search.predict_proba(X)) < 0.2
