"""Tables, weights, soft labels, declared classes and wrong arguments: told clearly, and nothing half fitted."""

import pickle
from inspect import signature

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

jax = pytest.importorskip("jax")

from tests.gp.gp_cases import FittedOnce, X, Y, assert_probabilities, deep, gp  # noqa: E402
from tests.slow import quick_first  # noqa: E402

from posteriori import DeepGPClassifier, GPClassifier, kernels  # noqa: E402
from posteriori.gp.base import GaussianProcessClassifier  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.ConvergenceWarning")

NAMES = ["a", "b"]
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
} | {name: table(BY_NAME) for name, table in TABLES.items()}
WEIGHTS = np.linspace(0.5, 2.0, len(X))
KINDS = np.array(["x", "y", "z"])
makers = pytest.mark.parametrize("make", quick_first([gp, deep]))


@pytest.fixture(scope="module")
def models():
    return FittedOnce()


@pytest.fixture(scope="module")
def fitted(models):
    return models[gp]


def assert_same(model, other, rows=(X, X), atol=1e-12):
    P, Q = (each.predict_proba(some) for each, some in zip((model, other), rows, strict=True))
    np.testing.assert_allclose(P, Q, rtol=0, atol=atol)
    np.testing.assert_allclose(model.scale_, other.scale_, rtol=100 * atol)
    assert model.solution_.energy == pytest.approx(other.solution_.energy, rel=100 * atol)


# Containers


@pytest.mark.parametrize("given", CONTAINERS.values(), ids=CONTAINERS)
def test_container_does_not_matter(given, fitted):
    model = gp().fit(given, Y)
    assert_same(model, fitted, rows=(given, X))


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_first(["csr", "float32", "polars"]))
def test_container_does_not_matter_to_layers(name, models):
    assert_same(deep().fit(CONTAINERS[name], Y), models[deep], rows=(CONTAINERS[name], X))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_target_and_weights_may_be_columns(table):
    named = table(BY_NAME | {"kind": KINDS[Y], "weight": WEIGHTS})
    model, other = gp().fit(named, "kind", sample_weight="weight"), gp().fit(X, Y, WEIGHTS)
    P = other.predict_proba(X)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.classes_.tolist() == [*"xyz"]
    np.testing.assert_allclose(model.predict_proba(named), P, rtol=0, atol=1e-12)  # what is no feature is ignored
    np.testing.assert_allclose(model.predict_proba(table(BY_NAME)), P, rtol=0, atol=1e-12)
    assert model.score(named, "kind", "weight") == np.average(P.argmax(axis=1) == Y, weights=WEIGHTS)


def test_columns_must_be_those_of_the_fit(fitted):
    with pytest.raises(ValueError, match="X has 3 features, but GPClassifier is expecting 2 features"):
        fitted.predict_proba(np.ones((2, 3)))
    model = gp().fit(pd.DataFrame(BY_NAME), Y)
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- c\n"):
        model.predict_proba(pd.DataFrame(BY_NAME).rename(columns={"b": "c"}))


@makers
@pytest.mark.parametrize(("value", "told"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_a_value_that_is_no_number_is_told_with_its_place(make, value, told, models):
    rows = pd.DataFrame(BY_NAME)
    rows.iloc[7, 1] = value
    with pytest.raises(ValueError, match=f"{told}, first in column 'b', row 7"):
        make().fit(rows, Y)
    model = models[make]
    with pytest.raises(ValueError, match=f"{told}, first in column 1, row 7"):
        model.predict_proba(rows.to_numpy())


@makers
@pytest.mark.parametrize(
    ("given", "y", "weights", "told"),
    [
        (X, None, None, "y"),
        (X, Y[:10], None, "40 rows, y has 10"),
        (X, np.zeros(40, int), None, "one class"),
        (X, X[:, 0] + 0.5, None, "[Cc]ontinuous"),
        (X, "kind", None, "names a column"),
        (X, Y, np.zeros(40), "weight"),
        (X, Y, -np.ones(40), "weight"),
        (X, Y, np.ones(3), "weight"),
        (X[:, 0], Y, None, "2D"),
        (X[:0], Y[:0], None, "0 sample"),
    ],
)
def test_wrong_rows_are_refused(make, given, y, weights, told):
    with pytest.raises(ValueError, match=told):
        make().fit(given, y, weights)


# Weights


TWICE = np.append(np.arange(17), np.arange(7))  # 24 rows, and 17 are padded to as many: both fits are of one shape


@pytest.mark.slow  # as it compiles for its own shape; in each sweep of the sites it is tested by default
@pytest.mark.parametrize("max_iter", [0, 40], ids=["kernel held", "kernel learned"])
def test_a_row_of_weight_two_is_there_twice(max_iter):
    """With no more rows than inducing inputs nothing is random."""
    kernel = kernels.RBF((15.0, 25.0)) + 1.0
    model, other = (gp(n_inducing=24, kernel=kernel, max_iter=max_iter, calibrate=False) for _ in range(2))
    assert_same(model.fit(X[:17], Y[:17], np.bincount(TWICE)), other.fit(X[TWICE], Y[TWICE]), atol=1e-7)


@makers
def test_rows_of_weight_zero_are_not_there(make, models):
    """Not even if they lie far away, and nothing is centred on them."""
    rows, y = np.vstack([X, np.full((3, 2), 1e6)]), np.append(Y, [0, 1, 2])
    model = make().fit(rows, y, np.append(np.ones(40), np.zeros(3)))
    assert_same(model, models[make])


def test_class_weights_are_weights_of_rows():
    weighted = gp().fit(X, Y, np.array([1.0, 3.0, 0.5])[Y])
    assert_same(gp(class_weight={1: 3.0, 2: 0.5}).fit(X, Y), weighted)


# Soft labels

SOFT = np.array([[0.7, 0.3, 0.0], [0.0, 0.4, 0.6], [0.5, 0.0, 0.5]])[np.arange(20) % 3]


@makers
def test_soft_labels_are_weighted_rows(make):
    n, k = np.nonzero(SOFT)
    model, other = make().fit(X[:20], SOFT), make().fit(X[n], k, SOFT[n, k])
    assert_same(model, other)
    again = make().fit(X[:20], 10 * SOFT, 0.1)  # counts, with a tenth of the weight
    assert_same(model, again, atol=1e-9)


def test_hard_labels_written_as_probabilities(fitted):
    assert_same(gp(classes=[*"xyz"]).fit(X, np.eye(3)[Y]), fitted)
    table = pd.DataFrame(np.eye(3)[Y][:, [2, 0, 1]], columns=["z", "x", "y"])
    model = gp().fit(X, table)
    assert model.classes_.tolist() == [*"xyz"]
    assert_same(model, fitted)


# Classes


def test_names_of_classes_come_back(fitted):
    model = gp().fit(X, KINDS[Y])
    assert_same(model, fitted)
    np.testing.assert_array_equal(model.predict(X), KINDS[fitted.predict(X)])


@pytest.mark.slow
def test_a_declared_class_without_rows_keeps_its_column():
    model = gp(classes=[5, 0, 1, 2]).fit(X, Y)
    assert model.classes_.tolist() == [0, 1, 2, 5]
    P = model.predict_proba(X)
    assert_probabilities(P, 40, K=4)
    assert 0.0 < P[:, 3].mean() < 0.1  # it is possible, but nobody has seen it
    assert (model.predict(X) == Y).mean() > 0.85


@pytest.mark.slow
def test_two_classes_have_one_decision():
    two = Y < 2
    model = gp(calibrate=False).fit(X[two], Y[two])
    P = model.predict_proba(X)
    assert_probabilities(P, 40, K=2)
    np.testing.assert_allclose(model.decision_function(X), np.log(P[:, 1] / P[:, 0]), rtol=1e-12)


def test_three_classes_have_three_decisions(fitted):
    np.testing.assert_allclose(fitted.decision_function(X), np.log(fitted.predict_proba(X)), rtol=1e-12)


@pytest.mark.slow
def test_thirty_classes():
    centres = 10.0 * np.stack(np.meshgrid(np.arange(6), np.arange(5)), axis=-1).reshape(-1, 2)
    model = gp(n_inducing=30, max_iter=20).fit(centres, np.arange(30), 3.0)
    assert_probabilities(model.predict_proba(centres), 30, K=30)
    assert model.score(centres, np.arange(30)) > 0.9


# Parameters


def test_parameters_are_stored_as_given_and_cloned():
    kernel = kernels.RBF(lengthscale=[1.0, 2.0]) + kernels.Matern()
    for model in (GPClassifier(kernel, n_inducing=7), DeepGPClassifier([None, 3], kernel=kernel, n_samples=2)):
        assert model.get_params()["kernel"] is kernel
        copy = clone(model)
        assert copy.kernel == kernel
        assert copy.kernel is not kernel
        assert repr(copy) == repr(model)
        assert {n: v for n, v in copy.get_params().items() if n != "kernel"} == {
            n: v for n, v in model.get_params().items() if n != "kernel"
        }


def test_signatures_show_all_parameters():
    single, layers = (signature(model).parameters for model in (GPClassifier, DeepGPClassifier))
    assert set(layers) - set(single) == {"layers", "n_samples"}
    assert set(single) <= set(layers)
    for model, shown, first in ((GPClassifier(), single, "kernel"), (DeepGPClassifier(), layers, "layers")):
        assert set(model.get_params(deep=False)) == set(shown)
        assert [name for name, p in shown.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == [first]
        assert all(getattr(model, name) is p.default for name, p in shown.items())
    assert (single["n_inducing"].default, layers["n_inducing"].default) == ("auto", 100)


def test_the_base_of_all_is_abstract():
    with pytest.raises(TypeError, match=r"abstract.*_first_learning_rate.*_fit_latents.*_rows_in_a_step"):
        GaussianProcessClassifier()


def test_parameters_of_kernels_are_set_by_name():
    model = GPClassifier(kernels.RBF() + 2.0 * kernels.Matern())
    model.set_params(n_inducing=3, kernel__left__lengthscale=4.0, kernel__right__right__order=1.5)
    assert model.n_inducing == 3
    assert model.kernel == kernels.RBF(4.0) + 2.0 * kernels.Matern(order=1.5)
    with pytest.raises(ValueError, match="width"):
        model.set_params(kernel__width=3)


def test_what_a_model_says_of_itself():
    assert repr(GPClassifier(kernels.RBF(2.0), n_inducing=7)).startswith("GPClassifier(kernel=RBF(lengthscale=2.0")
    assert repr(DeepGPClassifier(layers=(3, None))) == "DeepGPClassifier(layers=(3, None))"


@makers
def test_a_pickled_model_predicts_the_same(make, models):
    model = models[make]
    copy = pickle.loads(pickle.dumps(model))
    for name in ("predict_proba", "predict_latent", "predict_interval", "uncertainty"):
        for a, b in zip(getattr(copy, name)(X[:8]), getattr(model, name)(X[:8]), strict=True):
            np.testing.assert_array_equal(a, b)
    assert copy.solution_.energy == model.solution_.energy
    assert isinstance(copy._fitted.mean, np.ndarray)  # and no array of JAX, which may live on a device


# The same every time


@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_a_second_fit_is_the_first(make):
    model = make(random_state=3).fit(X, Y)
    P, energy = model.predict_proba(X), model.solution_.energy
    for again in (model.fit(X, Y), make(random_state=3).fit(X, Y)):
        np.testing.assert_array_equal(again.predict_proba(X), P)
        assert again.solution_.energy == energy


@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_random_states_differ(make):
    """In the inducing inputs to begin with: as many as differ, but not by much in what they predict."""
    P, Q = (make(random_state=seed).fit(X, Y).predict_proba(X) for seed in (1, 2))
    assert 1e-9 < np.abs(P - Q).max() < 0.2


def test_a_random_state_object_is_used_up_as_scikit_learn_does():
    state = np.random.RandomState(0)
    first, second = (gp(random_state=state).fit(X, Y).predict_proba(X) for _ in range(2))
    assert np.abs(first - second).max() > 1e-9
    np.testing.assert_array_equal(gp(random_state=np.random.RandomState(0)).fit(X, Y).predict_proba(X), first)


# Wrong arguments

WRONG = {  # values, and what they must be
    "kernel": (["rbf", 1.0, kernels.RBF], "is not a kernel: use None, or a kernel of posteriori.kernels"),
    "likelihood": (["probit", None, 3, ["argmax"]], r"is unknown: use one of \['argmax', 'softmax'\]"),
    "inference": (["laplace", None, 1], r"is unknown: use one of \['ep', 'energy', 'vi'\]"),
    "power": ([0, 0.0, -0.5, 1.5, np.nan, "half", None, True], "must be above 0 and at most 1"),
    "mislabelling": (
        [-0.1, 0.5, 1.0, np.nan, "estimate", None, True],
        r"must be a rate from 0 to below 0.5, or 'learn'",
    ),
    "noise": ([-1.0, np.nan, np.inf, "one", True], "must be None or a variance that is not negative"),
    "calibrate": (["yes", 1, None], "must be True or False"),
    "n_inducing": ([0, -1, 1.5, "all", None, True], "must be ('auto' or )?a (whole )?number of"),
    "max_iter": ([-1, 1.5, "many", None, True], "must be a whole number of at least 0"),
    "batch_size": ([0, -1, 1.5, "all", True], "must be (None or )?a whole number of at least 1"),
    "learning_rate": ([-0.1, np.nan, np.inf, "slow"], "must be a number that is not negative"),
    "tol": ([-1e-3, np.nan, np.inf, "tight", None], "must be a number that is not negative"),
    "device": (["tpu", 0, "CPU"], "is not available: use None, 'cpu' or 'gpu'"),
    "verbose": (["loud", 1.5, None], "must be a whole number"),
    "random_state": (["today", -1, 1.5], "is not a seed"),
}
WRONG_LAYERS = {
    "layers": (
        [3, "3", None, {3}, (0,), (2.0,), ("2",), (True,), (2, -1)],
        "must (be a sequence of|hold whole numbers)",
    ),
    "n_samples": ([0, -1, 1.5, "many", None, True], "must be a whole number of at least 1"),
}


def each(wrong):
    return [
        pytest.param(name, value, told, id=f"{name}={value!r}")
        for name, (values, told) in wrong.items()
        for value in values
    ]


@makers
@pytest.mark.parametrize(("name", "value", "told"), each(WRONG))
def test_a_wrong_argument_is_named_with_its_value_and_what_it_must_be(make, name, value, told):
    model = make(**{name: value})
    with pytest.raises(ValueError, match=told) as caught:
        model.fit(X, Y)
    assert str(caught.value).startswith(f"{name}={value!r} ")


@pytest.mark.parametrize(("name", "value", "told"), each(WRONG_LAYERS))
def test_a_wrong_argument_of_layers_is_named_too(name, value, told):
    with pytest.raises(ValueError, match=told) as caught:
        deep(**{name: value}).fit(X, Y)
    assert str(caught.value).startswith(f"{name}={value!r} ")


@makers
@pytest.mark.parametrize(
    "name",
    [
        "kernel",
        "likelihood",
        "inference",
        "power",
        "mislabelling",
        "noise",
        "n_inducing",
        "tol",
        "device",
    ],
)
def test_an_array_is_named_too(make, name):
    with pytest.raises(ValueError, match=name):
        make(**{name: np.eye(2)}).fit(X, Y)


@makers
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"likelihood": "softmax", "noise": 1.0}, "noise=1.0 is for likelihood='argmax': softmax needs none"),
        ({"inference": "vi", "power": 0.5}, "power=0.5 has no meaning with inference='vi'"),
        (
            {"power": 0.5, "mislabelling": 0, "noise": 0},
            "mislabelling=0 with noise=0 makes .* infinite.*must be positive",
        ),
        (
            {"inference": "vi", "mislabelling": 0.0, "noise": 0.0},
            "makes log p.* infinite.*one of them must be positive",
        ),
        ({"device": "gpu"}, "device='gpu' is not available: JAX has 'cpu' only"),
        ({"kernel": kernels.RBF(-1.0)}, r"RBF's lengthscale=-1.0 must be positive"),
        ({"kernel": kernels.Matern(order=2)}, r"Matern's order=2 is unknown"),
        ({"kernel": kernels.RBF() + kernels.Constant(0.0)}, "variance=0.0 must be a positive number"),
        ({"classes": [0, 1]}, "y holds 2, not among the declared classes"),
        ({"class_weight": {7: 2.0}}, "class_weight names 7"),
    ],
    ids=repr,
)
def test_arguments_that_cannot_be_had_are_refused(make, options, told):
    if options.get("device") == "gpu" and jax.default_backend() != "cpu":
        pytest.skip("there is one")
    with pytest.raises(ValueError, match=told):
        make(**options).fit(X, Y)


def test_lengthscales_must_be_as_many_as_features():
    with pytest.raises(ValueError, match="RBF has 3 lengthscales: one number, or one for each of 2 features"):
        gp(kernel=kernels.RBF((1.0, 2.0, 3.0))).fit(X, Y)


# Nothing half fitted


@makers
def test_before_a_fit_there_is_nothing(make):
    for method in (
        "predict",
        "predict_proba",
        "predict_latent",
        "predict_interval",
        "uncertainty",
        "decision_function",
    ):
        with pytest.raises(NotFittedError):
            getattr(make(), method)(X)


@pytest.mark.parametrize(
    "name", ["solution_", "n_iter_", "scale_", "mislabelling_", "log_evidence_", "kernel_", "lengthscales_", "spread_"]
)
def test_before_a_fit_attributes_say_so(name):
    assert not hasattr(gp(), name)  # scikit-learn's tools ask like this
    with pytest.raises(NotFittedError):
        getattr(gp(), name)


SPOILT = {
    "setting": ({"power": 2.0}, (X, Y), "power"),
    "kernel": ({"kernel": kernels.RBF((1.0, 2.0, 3.0))}, (X[:, :1], Y), "3 lengthscales"),
    "gaps": ({}, (np.where(X == X[0, 0], np.nan, X)[:, :1], Y), "NaN"),
    "weights": ({}, (pd.DataFrame(X[:, :1]), KINDS[Y], -np.ones(40)), "weight"),
    "one class": ({}, (X[:, :1], np.zeros(40)), "one class"),
}
spoilt = pytest.mark.parametrize(("params", "args", "told"), SPOILT.values(), ids=SPOILT)


@pytest.mark.parametrize("make", quick_first([gp, deep]))
@spoilt
def test_a_fit_that_fails_leaves_the_model_as_it_was(make, params, args, told, models):
    reference = models[make]
    model = pickle.loads(pickle.dumps(reference))
    before = vars(model).copy()
    with pytest.raises(ValueError, match=told):
        model.set_params(**params).fit(*args)
    assert [name for name, value in vars(model).items() if before.get(name) is not value] == [*params]
    np.testing.assert_array_equal(model.predict_proba(X), reference.predict_proba(X))


@makers
@spoilt
def test_a_first_fit_that_fails_leaves_nothing(make, params, args, told):
    model = make(**params)
    with pytest.raises(ValueError, match=told):
        model.fit(*args)
    assert not [name for name in vars(model) if name.endswith("_") or name.startswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_second_fit_forgets_the_first(fitted):
    model = gp().fit(pd.DataFrame(BY_NAME), KINDS[Y])
    model.fit(X, Y)
    assert not hasattr(model, "feature_names_in_")
    assert_same(model, fitted)
    assert model.classes_.tolist() == [0, 1, 2]
