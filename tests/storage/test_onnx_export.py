"""ONNX graphs, run by onnxruntime, against the models they were made from."""

import json
import re
import sys
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, PowerTransformer, StandardScaler
from tests.slow import quick_among, quick_first

import posteriori as po
from posteriori.gaussian.structures import STRUCTURES
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.predictive import quasi_nodes
from posteriori.storage.onnx_export import to_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def simulated(K, D=4, rows=15, seed=0, scale=1.0):
    rng = np.random.default_rng(seed + K)
    y = np.repeat(np.arange(K), rows)
    X = rng.normal(size=(K, D))[y] * 1.2 + rng.normal(size=(len(y), D))
    return (X * np.linspace(0.5, 2.0, D) + np.linspace(-1.0, 3.0, D)) * scale, y


def some_rows(X, seed=3):
    """Rows like those of the fit, and others up to a thousand standard deviations away."""
    rng = np.random.default_rng(seed)
    sizes = np.repeat([0.1, 1.0, 3.0, 30.0, 1e3], 8)[:, None]
    return X.mean(axis=0) + X.std(axis=0) * sizes * rng.normal(size=(40, X.shape[1]))


def session(model, **options):
    quiet = onnxruntime.SessionOptions()
    quiet.intra_op_num_threads = 1
    quiet.log_severity_level = 3
    return onnxruntime.InferenceSession(to_onnx(model, **options), quiet, providers=["CPUExecutionProvider"])


def ran(model, X, **options):
    runtime = session(model, **options)
    values = runtime.run(None, {"X": X})
    return dict(zip([output.name for output in runtime.get_outputs()], values, strict=True))


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def check(model, X, atol=1e-12):
    """The graph's probabilities and labels are the model's, row by row, in any batch."""
    found = ran(model, X)
    expected = model.predict_proba(X)
    assert found["probabilities"].dtype == np.float64
    np.testing.assert_allclose(found["probabilities"], expected, rtol=0, atol=atol)
    # far away half of all nodes may favour one class, half another: which is first is a matter of rounding
    second, first = np.sort(expected, axis=1)[:, -2:].T
    clear = first - second > 2 * atol
    assert clear.mean() > 0.7
    np.testing.assert_array_equal(found["label"][clear], model.predict(X)[clear])


TREES = {
    "forest": lambda **options: po.ForestClassifier(20, **options),
    "boosting": lambda **options: po.BoostingClassifier(15, **options),
}


@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("name", TREES)
def test_ensembles_of_trees_with_missing_values(name, K):
    X, y = simulated(K)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    model = TREES[name](classes=[*range(K), 9]).fit(X, y)
    check(model, X)
    far = X * 1e3
    far[1, 2] = np.inf
    found = ran(model, far)["probabilities"]
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(np.delete(found, 1, 0), model.predict_proba(np.delete(far, 1, 0)), rtol=0, atol=1e-12)
    assert ran(model, X[:0])["probabilities"].shape == (0, K + 1)


@pytest.mark.parametrize("name", TREES)
def test_a_graph_of_trees_holds_each_array_once(name):
    X, y = simulated(3)
    model = TREES[name]().fit(X, y)
    n_nodes = len(model.fitted_.trees.feature)
    assert len(to_onnx(model)) < 50 * n_nodes + 50_000


BAYESIAN = {
    "full": {"posterior": "full", "approximation": "laplace"},
    "kronecker": {"posterior": "kronecker"},
    "diagonal": {"posterior": "diagonal"},
    "variational": {"approximation": "variational"},
    "importance": {"approximation": "importance", "n_draws": 300},
}
PREDICTIVES = ["quasi", "sample", "probit", "plugin"]
COVARIANCES = list(STRUCTURES)
ESTIMATES = ["mle", "map", "bayes"]


# The same probabilities


@pytest.mark.parametrize("K", [2, 3, 20])
def test_softmax_regression(K):
    X, y = simulated(K)
    check(fitted(po.SoftmaxRegression(), X, y), some_rows(X))
    check(fitted(po.SoftmaxRegression(0.1, fit_intercept=False), X, y), some_rows(X))


@quick_among(
    ("posterior", "K"),
    [("full", 2), ("kronecker", 5), ("diagonal", 2), ("variational", 3), ("importance", 3)],
    BAYESIAN,
    (2, 3, 5),
)
def test_bayesian_softmax_regression(posterior, K):
    X, y = simulated(K)
    model = fitted(po.BayesianSoftmaxRegression(0.3, **{"n_draws": 50, **BAYESIAN[posterior]}), X, y)
    for predictive in PREDICTIVES:
        check(model.set_params(predictive=predictive), some_rows(X), atol=1e-9)
        check(model, X, atol=1e-12)


@pytest.mark.parametrize("posterior", ["full", "kronecker", "diagonal"])
def test_twenty_classes_and_their_posterior(posterior):
    X, y = simulated(20)
    model = fitted(po.BayesianSoftmaxRegression(posterior=posterior, approximation="laplace"), X, y)
    for predictive in ["quasi", "probit"]:
        check(model.set_params(predictive=predictive), some_rows(X), atol=1e-9)
        check(model, X, atol=1e-12)


def test_fewer_nodes_for_very_many_classes():
    X, y = simulated(101, rows=3)
    model = fitted(po.BayesianSoftmaxRegression(1.0, posterior="diagonal", approximation="laplace"), X, y)
    assert quasi_nodes(model.n_nodes, len(model.classes_)) < model.n_nodes
    check(model, X[::10])


@pytest.mark.parametrize("posterior", ["full", "kronecker", "diagonal"])
@pytest.mark.parametrize("prior", [0.3, "evidence"])
def test_bayesian_without_intercept(posterior, prior):
    X, y = simulated(3)
    model = fitted(po.BayesianSoftmaxRegression(prior, posterior=posterior, fit_intercept=False), X, y)
    for predictive in PREDICTIVES:
        check(model.set_params(predictive=predictive, n_draws=20), some_rows(X), atol=1e-9)


@pytest.mark.parametrize("posterior", ["full", "kronecker", "diagonal"])
def test_a_row_whose_logits_are_certain(posterior):
    X, y = simulated(8, D=1)
    model = fitted(po.BayesianSoftmaxRegression(1.0, posterior=posterior, fit_intercept=False), X, y)
    for predictive in ["quasi", "probit"]:
        found = ran(model.set_params(predictive=predictive), np.zeros((2, 1)))["probabilities"]
        np.testing.assert_allclose(found, np.full((2, 8), 1 / 8), atol=1e-14)


def test_models_of_sparse_rows_take_dense_ones():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((100, 5)) < 0.4, rng.normal(size=(100, 5)), 0.0)
    y = rng.integers(0, 3, 100)
    for posterior in ["full", "kronecker", "diagonal"]:
        check(fitted(po.BayesianSoftmaxRegression(posterior=posterior), sp.csr_array(X), y), X)


def test_many_features_and_few_classes():
    X, y = simulated(2, D=40)
    model = fitted(po.BayesianSoftmaxRegression(posterior="full"), X, y)
    for predictive in ["quasi", "probit"]:
        check(model.set_params(predictive=predictive), some_rows(X), atol=1e-9)


def test_one_feature():
    X, y = simulated(3, D=1)
    models = [po.SoftmaxRegression()]
    models += [po.BayesianSoftmaxRegression(posterior=p) for p in ("full", "kronecker", "diagonal")]
    models += [po.GaussianClassifier(c, estimate=e, prior="evidence") for c in COVARIANCES for e in ESTIMATES]
    for model in models:
        check(fitted(make_pipeline(StandardScaler(), model), X, y), X)


def test_jeffreys_label_noise_and_another_class_prior():
    X, y = simulated(3)
    check(fitted(po.BayesianSoftmaxRegression("jeffreys"), X, y), X)
    noisy = fitted(po.BayesianSoftmaxRegression(label_noise=0.1), X, y)
    check(noisy, X)
    assert ran(noisy, X)["probabilities"].min() >= 0.1 / 3 - 1e-15
    check(fitted(po.BayesianSoftmaxRegression(), X, y).with_class_prior([0.8, 0.1, 0.1]), X)


# Credible intervals


@quick_among(
    ("posterior", "K"),
    [("full", 2), ("full", 3), ("kronecker", 5), ("diagonal", 2), ("importance", 3)],
    BAYESIAN,
    (2, 3, 5),
)
def test_intervals(posterior, K):
    X, y = simulated(K)
    model = fitted(po.BayesianSoftmaxRegression(0.3, **{"n_draws": 50, **BAYESIAN[posterior]}), X, y)
    for level in (0.5, 0.95):
        check_intervals(model, X, level)
        check_intervals(model, some_rows(X)[:24], level, atol=1e-8)


@pytest.mark.parametrize(("K", "options"), [(2, {"approximation": "laplace"}), (3, {}), (3, {"label_noise": 0.1})])
def test_intervals_of_a_mixture_over_strengths(K, options):
    X, y = simulated(K)
    model = fitted(po.BayesianSoftmaxRegression(**options), X, y)
    assert isinstance(model.fitted_.posterior, MixturePosterior)
    check_intervals(model, X, 0.9)


def test_intervals_of_a_table_that_is_decided_about():
    rng = np.random.default_rng(0)
    X, y = simulated(3)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": rng.choice(["x", "y"], len(y))})
    pipeline = make_pipeline(po.TableEncoder(), po.BayesianSoftmaxRegression(1.0, approximation="laplace"))
    model = po.UtilityClassifier(pipeline).fit(table, y)
    runtime = session(model, interval=0.8)
    found = dict(
        zip([o.name for o in runtime.get_outputs()], runtime.run(None, po.onnx_inputs(runtime, table)), strict=True)
    )
    inner = model.estimator_
    expected = inner[-1].predict_interval(inner[:-1].transform(table), 0.8)
    for name, end in zip(("lower", "upper"), expected, strict=True):
        np.testing.assert_allclose(found[name], end, rtol=0, atol=1e-10)
    assert runtime.get_modelmeta().custom_metadata_map["interval"] == "0.8"
    assert {"action", "label"} <= found.keys()


def test_intervals_of_other_models_are_refused():
    X, y = simulated(3)
    for model in (
        po.SoftmaxRegression(),
        po.GaussianClassifier(),
        make_pipeline(StandardScaler(), po.SoftmaxRegression()),
    ):
        with pytest.raises(TypeError, match="interval needs a BayesianSoftmaxRegression"):
            to_onnx(model.fit(X, y), interval=0.95)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        to_onnx(po.BayesianSoftmaxRegression(1.0).fit(X, y), interval=95)


def check_intervals(model, X, level, atol=1e-10):
    """The ends of the graph's intervals are the model's."""
    found = ran(model, X, interval=level)
    for name, end in zip(("lower", "upper"), model.predict_interval(X, level), strict=True):
        np.testing.assert_allclose(found[name], end, rtol=0, atol=atol)
    np.testing.assert_array_equal(found["label"], ran(model, X)["label"])


@quick_among(
    ("covariance", "estimate", "K"),
    [*product(COVARIANCES, ESTIMATES, (3,)), ("full", "bayes", 2), ("tied", "map", 20)],
    COVARIANCES,
    ESTIMATES,
    (2, 3, 20),
)
def test_gaussian_classifier(covariance, estimate, K):
    X, y = simulated(K)
    model = fitted(po.GaussianClassifier(covariance, estimate=estimate, prior="evidence"), X, y)
    check(model, some_rows(X), atol=1e-8)  # log densities of -1e6 have ten digits after the point
    check(model, X, atol=1e-12)


def test_gaussian_classifier_after_partial_fit_and_with_its_own_choice():
    X, y = simulated(3)
    check(po.GaussianClassifier().fit(X, y), X)
    check(po.GaussianClassifier("tied").partial_fit(X[::2], y[::2]).partial_fit(X[1::2], y[1::2]), X)
    check(po.GaussianClassifier("tied", estimate="map").fit(X, y).to_softmax(), X)


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_gaussian_classifier_of_fewer_rows_than_features(covariance, estimate):
    X, y = simulated(3, D=20, rows=4)
    model = fitted(po.GaussianClassifier(covariance, estimate=estimate, prior="evidence"), X, y)
    assert model.fitted_.densities.space is not None
    check(model, some_rows(X), atol=1e-7)
    check(model, X, atol=1e-10)


@pytest.mark.parametrize("scale", quick_first([1e6, 1e-6]))
def test_raw_features(scale):
    X, y = simulated(3, scale=scale)
    X[:, 0] += 1e4 * scale  # far from the origin too
    models = [po.SoftmaxRegression(0.0), po.BayesianSoftmaxRegression(), po.BayesianSoftmaxRegression(scale**2)]
    models += [po.GaussianClassifier(c, estimate=e, prior="evidence") for c in COVARIANCES for e in ESTIMATES]
    for model in models:
        check(fitted(model, X, y), X, atol=1e-9)


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("covariance", ["diagonal", "tied_diagonal"])
def test_missing_values_are_left_out(covariance, estimate):
    X, y = simulated(3)
    model = fitted(po.GaussianClassifier(covariance, estimate=estimate, prior="evidence"), X, y)
    X[::2, 1] = np.nan
    X[5] = np.nan
    check(model, X)


def test_a_class_without_rows():
    X, y = simulated(3)
    for model in [po.SoftmaxRegression, po.BayesianSoftmaxRegression, po.GaussianClassifier]:
        check(fitted(model(classes=[0, 1, 2, 3]), X, y), X)
    options = {"classes": [0, 1, 2, 3], "prior": "evidence"}
    for covariance in COVARIANCES:
        for prior in [None, [0.5, 0.3, 0.0, 0.2]]:
            check(fitted(po.GaussianClassifier(covariance, class_prior=prior, **options), X, y), X)


def test_rows_beyond_all_bounds_have_probabilities():
    X, y = simulated(3)
    sizes = np.repeat([1e20, 1e120, 1e200, 1e300], 6)[:, None]
    far = sizes * np.tile(np.random.default_rng(0).normal(size=(6, 4)), (4, 1))
    models = [po.SoftmaxRegression()]
    models += [po.GaussianClassifier(c, estimate=e, prior="evidence") for c in COVARIANCES for e in ESTIMATES]
    for model in models:
        P = ran(fitted(model, X, y), far)["probabilities"]
        np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    for i in range(4):
        check(models[0], far[6 * i : 6 * i + 6])


def test_rows_that_python_refuses_have_no_probabilities():
    X, y = simulated(3)
    bad = X[:4].copy()
    bad[1, 2], bad[2, 0] = np.nan, np.inf
    for model in [po.SoftmaxRegression(), po.BayesianSoftmaxRegression(), po.GaussianClassifier("full")]:
        found = ran(fitted(model, X, y), bad)
        assert np.isnan(found["probabilities"][[1, 2]]).all()
        np.testing.assert_allclose(found["probabilities"][[0, 3]], model.predict_proba(bad[[0, 3]]), atol=1e-12)
    diagonal = fitted(po.GaussianClassifier("diagonal"), X, y)
    assert np.isnan(ran(diagonal, bad)["probabilities"]).any(axis=1).tolist() == [False, False, True, False]


# Inputs, labels, metadata


@pytest.mark.parametrize(
    "model",
    [
        po.SoftmaxRegression(),
        *(po.BayesianSoftmaxRegression(predictive=p, n_draws=20) for p in PREDICTIVES),
        *(po.GaussianClassifier(c, estimate=e, prior="evidence") for c in COVARIANCES for e in ("map", "bayes")),
    ],
    ids=repr,
)
def test_rows_are_independent_and_there_may_be_none(model):
    X, y = simulated(3)
    runtime = session(fitted(model, X, y))
    whole, labels = runtime.run(None, {"X": X})
    for row in (0, 20):
        one, label = runtime.run(None, {"X": X[row : row + 1]})
        np.testing.assert_allclose(one[0], whole[row], atol=1e-14)
        assert label[0] == labels[row]
    none, no_labels = runtime.run(None, {"X": X[:0]})
    assert none.shape == (0, 3)
    assert no_labels.shape == (0,)


@pytest.mark.parametrize(
    "labels",
    quick_first(
        [
            ["oak", "ash", "ürümqi"],
            [-3, 7, 2**40],
            np.array(["a", "b", "c"], dtype=object),
            np.array([1, 2, 9], np.uint8),
        ],
        2,
    ),
)
def test_labels_are_returned_as_they_are(labels):
    X, y = simulated(3)
    names = np.asarray(labels)[y]
    for model in [po.SoftmaxRegression(), po.GaussianClassifier(), po.BayesianSoftmaxRegression()]:
        found = ran(model.fit(X, names), X)["label"]
        assert found.tolist() == model.predict(X).tolist()
        properties = properties_of(model)
        assert json.loads(properties["classes"]) == model.classes_.tolist()
        assert properties["label_holds"] == "values"


@pytest.mark.parametrize("labels", [[False, True], [1.0, 2.0]])
def test_other_labels_are_returned_as_codes(labels):
    X, y = simulated(2)
    model = po.SoftmaxRegression().fit(X, np.asarray(labels)[y])
    codes = ran(model, X)["label"]
    assert codes.dtype == np.int64
    np.testing.assert_array_equal(model.classes_[codes], model.predict(X))
    assert json.loads(properties_of(model)["classes"]) == labels
    assert properties_of(model)["label_holds"] == "codes"


def properties_of(model):
    return {p.key: p.value for p in onnx.load_from_string(to_onnx(model)).metadata_props}


def test_metadata_and_standard_operators():
    pd = pytest.importorskip("pandas")
    X, y = simulated(3)
    model = po.BayesianSoftmaxRegression().fit(pd.DataFrame(X, columns=["a", "b", "c", "ä"]), y)
    proto = onnx.load_from_string(to_onnx(model))
    assert proto.producer_name == "posteriori"
    assert proto.producer_version == po.__version__
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", 18)]
    properties = properties_of(model)
    assert json.loads(properties["feature_names"]) == ["a", "b", "c", "ä"]
    assert properties["model"] == "BayesianSoftmaxRegression"
    assert properties["library"] == f"posteriori {po.__version__}"
    onnx.checker.check_model(proto, full_check=True)


def test_another_runtime():
    from onnx.reference import ReferenceEvaluator

    X, y = simulated(3)
    for model in [po.BayesianSoftmaxRegression(), po.GaussianClassifier("diagonal")]:
        model.fit(X, y)
        P, labels = ReferenceEvaluator(onnx.load_from_string(to_onnx(model))).run(None, {"X": X})
        np.testing.assert_allclose(P, model.predict_proba(X), atol=1e-12)
        np.testing.assert_array_equal(labels, model.predict(X))


def test_another_opset():
    X, y = simulated(3)
    for model in [po.BayesianSoftmaxRegression(), po.GaussianClassifier()]:
        model.fit(X, y)
        np.testing.assert_allclose(ran(model, X, opset=21)["probabilities"], model.predict_proba(X), atol=1e-12)
    for opset in (17, 10_000, 18.0, True):
        with pytest.raises(ValueError, match="opset"):
            to_onnx(model, opset=opset)


def test_single_precision_is_that_of_the_input():
    X, y = simulated(3)
    model = po.BayesianSoftmaxRegression().fit(X, y)
    X = X.astype(np.float32)
    found = ran(model, X, dtype="float32")["probabilities"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, model.predict_proba(X.astype(np.float64)), atol=1e-12)
    for dtype in ("float16", "single", 32, None):
        with pytest.raises(ValueError, match=f"dtype={dtype!r} must be 'float64' or 'float32'"):
            to_onnx(model, dtype=dtype)


# Pipelines and decisions


def test_pipelines():
    X, y = simulated(3, scale=1e3)
    for scaler in [
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler((-1, 2)),
        MaxAbsScaler(),
        FunctionTransformer(),
        "passthrough",
    ]:
        check(make_pipeline(scaler, po.BayesianSoftmaxRegression()).fit(X, y), X)
    check(make_pipeline(StandardScaler(), MinMaxScaler(), po.SoftmaxRegression()).fit(X, y), X)


def test_actions():
    X, y = simulated(3)
    utility = po.Utility([[5, 0, -9], [-4, 3, 1], [0, 0, 2]], states=[2, 0, 1], actions=["cut", "wait", "ask"])
    for estimator in [po.SoftmaxRegression(), make_pipeline(StandardScaler(), po.GaussianClassifier())]:
        model = po.UtilityClassifier(estimator, utility).fit(X, y)
        decisions = model.decide(X)
        for exported in (model, make_pipeline("passthrough", model)):
            found = ran(exported, X)
            np.testing.assert_array_equal(found["action"], model.predict(X))
            np.testing.assert_allclose(found["expected_utility"], decisions.expected_utility, atol=1e-12)
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=1e-12)
            np.testing.assert_array_equal(found["label"], model.estimator_.predict(X))
        assert json.loads(properties_of(model)["actions"]) == ["cut", "wait", "ask"]
    inside = po.UtilityClassifier(make_pipeline("passthrough", po.SoftmaxRegression()), utility).fit(X, y)
    np.testing.assert_array_equal(ran(inside, X)["action"], inside.predict(X))
    plain = po.UtilityClassifier(po.SoftmaxRegression()).fit(X, y)
    np.testing.assert_array_equal(ran(plain, X)["action"], plain.predict(X))


def test_equally_good_actions():
    X, y = simulated(2)
    third = po.Utility([[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]], states=[0, 1], actions=["first", "second", "third"])
    model = po.UtilityClassifier(po.SoftmaxRegression(), third).fit(X, y)
    assert set(ran(model, X)["action"]) == {"first"}


MAPS = ["temperature", "auto", "vector", "dirichlet"]


@quick_among(("K", "method"), [(2, "temperature"), (3, "dirichlet"), (3, "auto"), (8, "vector")], (2, 3, 8), MAPS)
def test_calibrated_probabilities(K, method):
    X, y = simulated(K)
    for estimator in [
        po.SoftmaxRegression(),
        po.BayesianSoftmaxRegression(approximation="laplace"),
        po.GaussianClassifier("diagonal"),
        make_pipeline(StandardScaler(), po.SoftmaxRegression(0.0, max_iter=20)),
    ]:
        model = fitted(po.CalibratedClassifier(estimator, method=method, cv=3), X, y)
        check(model, X, atol=1e-12)
        check(model, some_rows(X), atol=1e-9)


def test_calibrated_probabilities_with_doubt():
    """Wrong labels among classes that are far apart: the class frequencies are part of the graph."""
    X, y = simulated(3)
    X = X + 20.0 * np.eye(3, X.shape[1])[y]
    y = np.where(np.random.default_rng(0).random(len(y)) < 0.2, (y + 1) % 3, y)
    model = fitted(po.CalibratedClassifier(po.GaussianClassifier("tied"), cv=3), X, y)
    model.temperature_, model.doubt_, model.coef_ = 2.0, 0.2, 0.5 * np.eye(3)
    assert model.predict_proba(X).min() >= 0.2 * model.frequencies_.min()
    check(model, X, atol=1e-12)


def test_calibration_within_others():
    X, y = simulated(3)
    calibrated = po.CalibratedClassifier(po.SoftmaxRegression(), method="vector", cv=3)
    piped = fitted(make_pipeline(StandardScaler(), calibrated), X, y)
    check(piped, X)
    assert properties_of(piped)["model"] == "StandardScaler -> CalibratedClassifier(SoftmaxRegression)"
    check(fitted(po.CalibratedClassifier(calibrated, cv=3), X, y), X)
    utility = po.Utility([[5, 0, -9], [-4, 3, 1], [0, 0, 2]], states=[0, 1, 2], actions=["cut", "wait", "ask"])
    acting = fitted(po.UtilityClassifier(calibrated, utility), X, y)
    found = ran(acting, X)
    np.testing.assert_array_equal(found["action"], acting.predict(X))
    np.testing.assert_allclose(found["expected_utility"], acting.decide(X).expected_utility, atol=1e-12)
    around = fitted(po.CalibratedClassifier(po.UtilityClassifier(po.SoftmaxRegression(), utility), cv=3), X, y)
    check(around, X)
    assert set(ran(around, X)) == {"probabilities", "label"}


@pytest.mark.parametrize("method", MAPS)
def test_calibrated_rows_that_python_refuses_have_no_probabilities(method):
    X, y = simulated(3)
    model = fitted(po.CalibratedClassifier(po.SoftmaxRegression(), method=method, cv=3), X, y)
    bad = X[:4].copy()
    bad[1, 2], bad[2, 0] = np.nan, -np.inf
    P = ran(model, bad)["probabilities"]
    assert np.isnan(P[[1, 2]]).all()
    np.testing.assert_allclose(P[[0, 3]], model.predict_proba(bad[[0, 3]]), atol=1e-12)


def test_the_map_of_the_fit_is_exported_whatever_is_set_later():
    X, y = simulated(3)
    model = fitted(po.CalibratedClassifier(po.SoftmaxRegression(), method="vector", cv=3), X, y)
    check(model.set_params(method="isotonic"), X)


def test_steps_cannot_be_exported():
    X, y = simulated(3)
    isotonic = fitted(po.CalibratedClassifier(po.SoftmaxRegression(), method="isotonic", cv=3), X, y)
    with pytest.raises(TypeError, match=r"method='isotonic' cannot be exported to ONNX: use 'temperature', 'auto'"):
        to_onnx(isotonic)
    with pytest.raises(TypeError, match=r"isotonic.*cannot be exported"):
        to_onnx(make_pipeline("passthrough", isotonic))


def test_a_utility_of_each_row_cannot_be_exported():
    X, y = simulated(2)
    utility = po.Utility(lambda X: np.zeros((len(X), 2, 2)), states=[0, 1])
    with pytest.raises(ValueError, match="from row to row"):
        to_onnx(po.UtilityClassifier(po.SoftmaxRegression(), utility).fit(X, y))


# What cannot be exported, and files


def test_what_cannot_be_exported_is_said():
    X, y = simulated(3)
    for model in [
        po.GPClassifier(),
        po.DeepGPClassifier(),
        LogisticRegression().fit(X, y),
        po.UtilityClassifier(LogisticRegression()).fit(X, y),
        po.CalibratedClassifier(LogisticRegression(), cv=3).fit(X, y),
        po.ConformalClassifier(po.SoftmaxRegression()).fit(X, y),
        make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y),
        po.SoftmaxRegression,
        None,
    ]:
        with pytest.raises(TypeError, match=r"cannot be exported to ONNX. These can: SoftmaxRegression, Bayesian"):
            to_onnx(model)
    for step in [PowerTransformer(), MinMaxScaler(clip=True), FunctionTransformer(np.log1p)]:
        with pytest.raises(TypeError, match=r"step .* cannot be exported"):
            to_onnx(make_pipeline(step, po.SoftmaxRegression()).fit(abs(X), y))
    for model in [po.SoftmaxRegression(), po.CalibratedClassifier(po.SoftmaxRegression())]:
        with pytest.raises(Exception, match="not fitted yet"):
            to_onnx(model)


def test_files_are_written_as_a_whole(tmp_path):
    X, y = simulated(3)
    model = po.SoftmaxRegression().fit(X, y)
    path = tmp_path / "model.onnx"
    assert to_onnx(model, path) is None
    assert path.read_bytes() == to_onnx(model)
    with pytest.raises(TypeError):
        to_onnx(LogisticRegression().fit(X, y), path)
    assert path.read_bytes() == to_onnx(model)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_without_onnx_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'posteriori[onnx]'")):
        to_onnx(po.SoftmaxRegression().fit([[0.0], [1.0]], [0, 1]))


# Stacks


@pytest.mark.parametrize("pool", ["linear", "log"])
@pytest.mark.parametrize("K", [2, 3])
def test_stacks(pool, K):
    X, y = simulated(K)
    members = [po.SoftmaxRegression(1.0), po.BayesianSoftmaxRegression(1.0), po.GaussianClassifier("tied")]
    check(fitted(po.StackedClassifier(members, pool=pool, weights=[0.5, 0.2, 0.3]), X, y), some_rows(X))


def test_a_stack_with_a_member_that_cannot_be_exported():
    X, y = simulated(2)
    members = [po.SoftmaxRegression(1.0), po.GPClassifier(max_iter=1)]
    stack = fitted(po.StackedClassifier(members, weights="equal"), X, y)
    with pytest.raises(TypeError, match="GPClassifier cannot be exported to ONNX"):
        to_onnx(stack)
