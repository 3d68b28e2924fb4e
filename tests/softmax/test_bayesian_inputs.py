"""Containers, wrong input, and good manners: interruptible, clonable and without side effects."""

import pickle
import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.slow import quick_among, quick_first

from posteriori import LBFGS, BayesianSoftmaxRegression, GaussianPrior, GradientDescent, Newton, Status, WeightWarning
from posteriori.softmax import folds, label_noise, searched

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
    "csr": sp.csr_array(X),
    "csc": sp.csc_matrix(X),
    "csr float32": sp.csr_array(X.astype(np.float32)),
} | {name: table(BY_NAME) for name, table in TABLES.items()}


@pytest.fixture(scope="module")
def reference():
    return BayesianSoftmaxRegression().fit(X, Y)


@pytest.fixture(scope="module")
def fitted():
    return BayesianSoftmaxRegression(1.0).fit(X, Y)


def assert_same(model, reference, tol=1e-6):
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=tol)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=100 * tol)
    assert model.log_evidence_ == pytest.approx(reference.log_evidence_, abs=1e-5)


# Containers


@quick_among(("name",), [("csr",), ("float32",), ("F order",), ("arrow",)], CONTAINERS)
def test_container_does_not_matter(name, reference):
    given = CONTAINERS[name]
    model = BayesianSoftmaxRegression().fit(given, Y)
    assert_same(model, reference)
    np.testing.assert_allclose(model.predict_proba(given), reference.predict_proba(X), atol=1e-6)
    for mine, theirs in (
        (model.predict_latent(given), reference.predict_latent(X)),
        (model.predict_interval(given), reference.predict_interval(X)),
        (model.uncertainty(given), reference.uncertainty(X)),
    ):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert model.n_features_in_ == 4
    draws = model.sample_proba(given, 2000).mean(axis=0)  # columns that cannot be centred have draws of their own
    averaged = clone(reference).set_params(predictive="quasi").fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(draws, averaged, atol=0.03)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_target_and_weight_as_columns(table):
    species = IRIS.target_names[Y]
    whole = table(BY_NAME | {"species": species, "weight": WEIGHTS})
    model = BayesianSoftmaxRegression().fit(whole, "species", sample_weight="weight")
    assert_same(model, BayesianSoftmaxRegression().fit(X, Y, WEIGHTS))
    assert model.feature_names_in_.tolist() == NAMES
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    np.testing.assert_array_equal(model.predict_proba(whole), model.predict_proba(table(BY_NAME)))
    accuracy = np.average(model.predict(whole) == species, weights=WEIGHTS)
    assert model.score(whole, "species", sample_weight="weight") == pytest.approx(accuracy)
    assert model.summary()["feature"].tolist() == [*NAMES, "(intercept)"] * 3
    assert len(model.marginal_effects(whole)) == 12
    assert model.sample_proba(whole, 2).shape == (2, 150, 3)


@pytest.mark.parametrize("given", [X.copy(), np.asfortranarray(X), sp.csr_array(X)], ids=["C", "F", "csr"])
def test_input_is_not_modified(given):
    weights, prior = WEIGHTS.copy(), GaussianPrior(np.ones((3, 4)), np.full((3, 4), 2.0), autoscale=True)
    model = BayesianSoftmaxRegression(prior).fit(given, Y, weights)
    model.predict_proba(given)
    model.marginal_effects(given)
    np.testing.assert_array_equal(given.toarray() if sp.issparse(given) else given, X)
    np.testing.assert_array_equal(weights, WEIGHTS)
    np.testing.assert_array_equal(prior.mean, np.ones((3, 4)))
    np.testing.assert_array_equal(prior.precision, np.full((3, 4), 2.0))


def test_declared_order_of_soft_labels(reference):
    soft = np.eye(3)[Y][:, [2, 0, 1]]
    model = BayesianSoftmaxRegression(classes=["z", "x", "y"]).fit(X, soft)
    assert model.classes_.tolist() == ["x", "y", "z"]
    assert_same(model, reference)


# Errors


def with_value(value, row=5, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


BAD_DATA = {
    "NaN": ({"X": with_value(np.nan)}, "NaN, first in column 2, row 5"),
    "infinity": ({"X": with_value(-np.inf)}, "infinity, first in column 2, row 5"),
    "NaN in a table": ({"X": pd.DataFrame(with_value(np.nan), columns=NAMES)}, "NaN, first in column 'c', row 5"),
    "NaN in sparse": ({"X": sp.csr_array(with_value(np.nan))}, "NaN, first in column 2, row 5"),
    "one class": ({"y": np.zeros(150, int)}, "one class only"),
    "no target": ({"y": None}, "requires y to be passed"),
    "lengths": ({"y": Y[:-1]}, "X has 150 rows, y has 149"),
    "continuous": ({"y": Y + 0.5}, "Unknown label type: continuous"),
    "no such column": ({"X": pd.DataFrame(BY_NAME), "y": "species"}, "y='species' is not a column of X"),
    "negative weight": ({"sample_weight": np.r_[-1.0, np.ones(149)]}, "sample_weight is -1.0 in row 0"),
    "NaN weight": ({"sample_weight": np.r_[np.nan, np.ones(149)]}, "sample_weight is nan in row 0"),
    "zero weights": ({"sample_weight": np.zeros(150)}, "weight"),
    "weights' length": ({"sample_weight": np.ones(3)}, r"sample_weight.shape == \(3,\), expected \(150,\)"),
    "negative soft label": ({"y": np.eye(3)[Y] - 0.1}, "must be finite and not negative"),
}
BAD_ARGUMENTS = {
    "prior's name": ({"prior": "even"}, "prior='even' is unknown: use one of .*'evidence'.*a number or a Gaussian"),
    "negative prior": ({"prior": -1.0}, "prior=-1.0 must be a positive precision, or 0.*prior='flat'.*jeffreys"),
    "NaN prior": ({"prior": np.nan}, "prior=nan must be a positive precision"),
    "infinite prior": ({"prior": np.inf}, "prior=inf must be a positive precision"),
    "boolean prior": ({"prior": True}, "prior=True must be"),
    "prior's type": ({"prior": np.ones((3, 4))}, "must be one of .*a number or a GaussianPrior"),
    "no prior": ({"prior": None}, "prior=None must be"),
    "approximation": ({"approximation": "mcmc"}, "approximation='mcmc' is unknown: use one of .*'laplace'"),
    "posterior": ({"posterior": "low rank"}, "posterior='low rank' is unknown: use one of .*'kronecker'"),
    "predictive": ({"predictive": "mean"}, "predictive='mean' is unknown: use one of .*'quasi'"),
    "no nodes": ({"n_nodes": 1}, "n_nodes=1 must be a whole number of at least 2"),
    "nodes' type": ({"n_nodes": 10.5}, "n_nodes=10.5 must be a whole number"),
    "no draws": ({"n_draws": 0}, "n_draws=0 must be a whole number"),
    "draws' type": ({"n_draws": "100"}, "n_draws='100' must be a whole number"),
    "label noise": ({"label_noise": 1.0}, "label_noise=1.0 must be None, 'estimate' or a rate from 0 to below 1"),
    "negative noise": ({"label_noise": -0.1}, "label_noise=-0.1 must be"),
    "NaN noise": ({"label_noise": np.nan}, "label_noise=nan must be"),
    "noise's name": ({"label_noise": "some"}, "label_noise='some' must be"),
    "fit_intercept": ({"fit_intercept": "yes"}, "fit_intercept='yes' must be True or False"),
    "undeclared": ({"classes": [0, 1]}, "y holds 2, not among the declared classes 0, 1"),
    "class_weight": ({"class_weight": "even"}, "class_weight must be 'balanced'"),
    "negative tol": ({"tol": -1e-8}, "tol=-1e-08 must be a number that is not negative"),
    "NaN tol": ({"tol": np.nan}, "tol=nan must be"),
    "max_iter": ({"max_iter": 2.5}, "max_iter=2.5 must be a whole number"),
    "solver": ({"solver": "simplex"}, "solver='simplex' is unknown.*'newton'"),
    "solver's type": ({"solver": 3}, "solver=3 is not a solver"),
    "device": ({"device": "abacus"}, "device='abacus' is not available"),
    "no thread": ({"n_jobs": 0}, "n_jobs is 0"),
    "threads' type": ({"n_jobs": "2"}, "n_jobs"),
    "verbose": ({"verbose": "very"}, "verbose='very' must be a whole number"),
    "random_state": ({"random_state": "dice"}, "dice"),
}
CASES = {name: (options, {}, match) for name, (options, match) in BAD_DATA.items()} | {
    name: ({}, options, match) for name, (options, match) in BAD_ARGUMENTS.items()
}


@pytest.mark.parametrize(("data", "arguments", "match"), CASES.values(), ids=CASES.keys())
def test_wrong_input_is_refused_and_a_fit_stays_what_it_was(data, arguments, match, fitted):
    model = BayesianSoftmaxRegression(**arguments)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(**{"X": X, "y": Y} | data)
    assert vars(model).keys() == model.get_params(deep=False).keys()

    model = pickle.loads(pickle.dumps(fitted))
    before = model.predict_proba(X), model.solution_, set(vars(model)), model.get_params(deep=False)
    model.set_params(**arguments)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(**{"X": X, "y": Y} | data)
    model.set_params(**before[3])
    np.testing.assert_array_equal(model.predict_proba(X), before[0])
    assert model.solution_ is before[1]
    assert set(vars(model)) == before[2]


@pytest.mark.parametrize("predictive", ["mean", None])
def test_a_wrong_predictive_set_after_the_fit_is_refused_too(predictive):
    model = BayesianSoftmaxRegression(1.0).fit(X, Y).set_params(predictive=predictive)
    with pytest.raises(ValueError, match="predictive="):
        model.predict_proba(X)


ROW_METHODS = [
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_latent",
    "predict_interval",
    "sample_proba",
    "uncertainty",
    "marginal_effects",
]


@pytest.mark.parametrize("method", ROW_METHODS)
def test_wrong_input_for_prediction(method, reference):
    predict = getattr(reference, method)
    with pytest.raises(ValueError, match="X has 3 features, but BayesianSoftmaxRegression is expecting 4"):
        predict(X[:, :3])
    for value, name in ((np.nan, "NaN"), (np.inf, "infinity")):
        with pytest.raises(ValueError, match=f"{name}, first in column 2, row 5"):
            predict(with_value(value))
        with pytest.raises(ValueError, match=name):
            predict(sp.csr_array(with_value(value)))
    with pytest.raises(ValueError, match="Expected 2D array"):
        predict(X[0])
    named = getattr(BayesianSoftmaxRegression(1.0).fit(pd.DataFrame(BY_NAME), Y), method)
    with pytest.raises(ValueError, match="yet now missing:\n- b"):
        named(pd.DataFrame(BY_NAME).drop(columns="b"))
    with pytest.raises(ValueError, match="same order"):
        named(pd.DataFrame(BY_NAME)[NAMES[::-1]])


@pytest.mark.parametrize("method", ROW_METHODS)
def test_unfitted(method):
    with pytest.raises(NotFittedError, match="BayesianSoftmaxRegression instance is not fitted"):
        getattr(BayesianSoftmaxRegression(), method)(X)


def test_unfitted_without_rows():
    model = BayesianSoftmaxRegression()
    for call in (
        model.summary,
        model.as_prior,
        lambda: model.contrast(0, 1),
        lambda: model.with_class_prior([0.5, 0.5]),
        lambda: model.score(X, Y),
        lambda: model.covariance_,
    ):
        with pytest.raises(NotFittedError):
            call()
    assert not hasattr(model, "covariance_")  # NotFittedError is an AttributeError
    assert "BayesianSoftmaxRegression" in repr(model)
    assert isinstance(str(model), str)


# Conventions


GIVEN = {
    "prior": GaussianPrior(np.zeros((3, 4)), precision=np.ones((3, 4))),
    "solver": LBFGS(memory=5),
    "classes": [2, 1, 0],
    "class_weight": {0: 2.0},
    "n_jobs": 1,
    "n_draws": 10,
    "predictive": "sample",
    "approximation": "laplace",
    "random_state": 3,
}


def test_constructor_arguments_are_left_alone():
    model = BayesianSoftmaxRegression(**GIVEN).fit(X, Y)
    model.predict_proba(X)
    for name, value in GIVEN.items():
        assert getattr(model, name) is value
    assert model.classes == [2, 1, 0]
    np.testing.assert_array_equal(model.prior.precision, np.ones((3, 4)))
    assert model.prior_ is not model.prior


def public(model):
    names = [name for name in vars(model) if not name.startswith("_")]
    return {name: pickle.dumps(getattr(model, name)) for name in names}, vars(model).copy()


@pytest.mark.filterwarnings("ignore::posteriori.ApproximationWarning")
@pytest.mark.parametrize("predictive", quick_first(["quasi", "plugin", "sample", "probit"], 2))
@pytest.mark.parametrize("approximation", quick_first(["laplace", "variational", "importance"]))
def test_prediction_changes_no_attribute(predictive, approximation):
    model = BayesianSoftmaxRegression(1.0, predictive=predictive, approximation=approximation).fit(X, Y)
    values, objects = public(model)
    first = model.predict_proba(X)
    for method in ROW_METHODS:
        getattr(model, method)(X)
    for call in (model.summary, model.as_prior, lambda: model.contrast(0, 1)):
        call()
    model.with_class_prior([0.2, 0.3, 0.5]).predict(X)
    assert public(model)[0] == values
    assert vars(model).keys() == objects.keys()
    assert all(vars(model)[name] is value for name, value in objects.items())
    np.testing.assert_array_equal(model.predict_proba(X), first)


@pytest.mark.parametrize("prior", ["evidence", 1.0, GIVEN["prior"], GaussianPrior(precision=(np.eye(3), np.eye(4)))])
def test_clone_is_unfitted_and_equal(prior):
    model = BayesianSoftmaxRegression(prior, solver=Newton(exact=True), class_weight="balanced").fit(X, Y)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert copy.solver is not model.solver
    if isinstance(prior, GaussianPrior):
        assert copy.prior is not prior
    np.testing.assert_array_equal(copy.fit(X, Y).coef_, model.coef_)
    assert set(copy.get_params()) == set(model.get_params())


def test_get_and_set_params():
    model = BayesianSoftmaxRegression()
    assert model.get_params()["prior"] == "evidence"
    model.set_params(prior=2.0, n_nodes=64, solver=LBFGS())
    model.set_params(solver__memory=7)
    assert (model.prior, model.n_nodes, model.solver.memory) == (2.0, 64, 7)
    with pytest.raises(ValueError, match="Invalid parameter 'alpha'"):
        model.set_params(alpha=1.0)
    with pytest.raises(TypeError):
        BayesianSoftmaxRegression("evidence", "laplace")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prior": "jeffreys"},
        {"prior": 1.0, "approximation": "importance"},
        {"prior": 1.0, "posterior": "kronecker"},
    ],
    ids=str,
)
def test_pickle(options):
    model = BayesianSoftmaxRegression(**options).fit(pd.DataFrame(BY_NAME), Y)
    copy = pickle.loads(pickle.dumps(model))
    table = pd.DataFrame(BY_NAME)
    np.testing.assert_array_equal(copy.predict_proba(table), model.predict_proba(table))
    np.testing.assert_array_equal(copy.covariance_, model.covariance_)
    np.testing.assert_array_equal(copy.sample_proba(table, 2), model.sample_proba(table, 2))
    pd.testing.assert_frame_equal(copy.summary(), model.summary())
    assert vars(copy).keys() == vars(model).keys()
    np.testing.assert_array_equal(copy.fit(table, Y).coef_, model.coef_)


def test_scikit_learn_s_tools():
    assert cross_val_score(BayesianSoftmaxRegression(), X, Y, cv=3).mean() > 0.93
    grid = {"prior__precision": [1e-3, 1.0, 1e6]}
    search = GridSearchCV(
        BayesianSoftmaxRegression(GaussianPrior(autoscale=True)), grid, scoring="neg_log_loss", cv=3
    ).fit(X, Y)
    assert search.best_params_["prior__precision"] < 1e6
    pipeline = make_pipeline(StandardScaler(), BayesianSoftmaxRegression()).fit(X, Y)
    raw = BayesianSoftmaxRegression().fit(X, Y)
    np.testing.assert_allclose(pipeline.predict_proba(X), raw.predict_proba(X), atol=1e-8)


def test_ordinary_fits_warn_of_nothing_and_print_nothing(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"prior": 1.0}, {"prior": "jeffreys"}, {"prior": "ard"}):
            BayesianSoftmaxRegression(**options).fit(X, Y).predict(X)
    assert capsys.readouterr() == ("", "")


def test_names_are_forgotten_by_a_fit_without_them():
    model = BayesianSoftmaxRegression(1.0).fit(pd.DataFrame(BY_NAME), Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_global_state_is_left_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    with np.errstate(under="ignore", over="call"):
        before = np.geterr()
        BayesianSoftmaxRegression(approximation="importance").fit(X, Y).sample_proba(X, 3)
        assert np.geterr() == before
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


# Ctrl-C


class OneCtrlC(LBFGS):
    """L-BFGS whose user presses Ctrl-C once, in the fourth iteration of the solve number `when`."""

    def __init__(self, when=1):
        super().__init__()
        self.when, self.solves = when, 0

    def steps(self, problem, theta, tol):
        self.solves += 1
        return self._steps(self.solves, super().steps(problem, theta, tol))

    def _steps(self, solve, steps):
        done = 0
        while True:
            try:
                now = next(steps)
            except StopIteration as end:
                return end.value
            if solve == self.when and done > 2:
                raise KeyboardInterrupt
            done += 1
            yield now


@pytest.mark.parametrize(
    ("options", "when"),
    [
        ({"prior": 1.0}, 1),
        ({"prior": 1.0, "approximation": "variational"}, 1),
        ({"prior": 1.0, "posterior": "diagonal"}, 1),
        ({"prior": "evidence", "posterior": "kronecker"}, 1),
        ({"prior": "evidence", "posterior": "diagonal"}, 2),
        ({"prior": 1.0, "label_noise": 0.1}, 1),
        ({"prior": 1.0, "label_noise": "estimate"}, 2),
    ],
    ids=str,
)
def test_ctrl_c_keeps_the_best_so_far_and_raises(options, when, monkeypatch):
    solver = OneCtrlC(when)
    for module in (searched, folds, label_noise):  # searches and rounds solve by the automatic solver
        monkeypatch.setattr(module, "Automatic", lambda: solver)
    model = BayesianSoftmaxRegression(solver=solver, **options)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.coef_.any()
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    assert model.score(X, Y) > 0.4
    assert np.isfinite(model.predict_interval(X)).all()


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_a_slow_solver_finds_the_last_mode_alone(structure):
    """Searches for a prior, and rounds of label noise, are not for the textbook's algorithms."""

    def fitted(solver):
        options = {"posterior": structure, "label_noise": 0.3, "max_iter": 300, "tol": 1e-10}
        return BayesianSoftmaxRegression(solver=solver, **options).fit(X[::5], Y[::5])

    slow, auto = fitted(GradientDescent(schedule="decreasing", decay=0.01)), fitted("auto")
    assert slow.solution_.n_passes < 400
    np.testing.assert_allclose(slow.prior_.precision, auto.prior_.precision, rtol=1e-6)


@pytest.mark.parametrize("prior", ["evidence", "ard"])
@pytest.mark.parametrize("call", [4, 12])
def test_ctrl_c_in_the_search_for_the_prior(monkeypatch, prior, call):
    from posteriori.softmax.objective import SoftmaxObjective

    original, calls = SoftmaxObjective.value_gradient, []

    def interrupted_once(self, theta):
        calls.append(theta)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(SoftmaxObjective, "value_gradient", interrupted_once)
    model = BayesianSoftmaxRegression(prior)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    if call == 4:  # perhaps before the first prior was judged: there was nothing to keep then
        return
    assert model.solution_.status is Status.INTERRUPTED
    assert model.score(X, Y) > 0.8


@pytest.mark.parametrize(("module", "name"), [("approximation", "variational"), ("leave_one_out", "left_out")])
def test_ctrl_c_after_the_mode_keeps_the_mode(monkeypatch, module, name):
    approximating = import_module(f"posteriori.softmax.{module}")

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(approximating, name, interrupted)
    model = BayesianSoftmaxRegression()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.score(X, Y) > 0.9


def test_a_fit_after_an_interruption_is_a_new_one():
    model = BayesianSoftmaxRegression(1.0, solver=OneCtrlC())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    model.set_params(solver="auto").fit(X, Y)
    assert model.solution_.status is Status.CONVERGED
    np.testing.assert_array_equal(model.coef_, BayesianSoftmaxRegression(1.0).fit(X, Y).coef_)


# Weights of surveys


def weighted_fit(weights, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = BayesianSoftmaxRegression(1.0, approximation="laplace", **options).fit(X, Y, sample_weight=weights)
    return model, [each for each in found if issubclass(each.category, WeightWarning)]


def test_weights_of_a_survey_are_warned_of_where_they_are_used():
    """They sum to what the population counts; divided by their mean they leave the posterior as wide as the rows do."""
    weights = np.random.default_rng(0).uniform(20.0, 80.0, 150)
    narrow, found = weighted_fit(weights)
    (warning,) = found
    assert warning.filename == __file__
    assert f"sums to {weights.sum():,.6g} for 150 rows" in str(warning.message)
    divided, none = weighted_fit(weights / weights.mean())
    assert none == []
    plain, _ = weighted_fit(None)
    wide, right, small = (np.subtract(*m.predict_interval(X)[::-1]).mean() for m in (plain, divided, narrow))
    assert right == pytest.approx(wide, rel=0.1)
    assert small < 0.5 * wide


@pytest.mark.parametrize(
    "weights",
    [np.full(150, 40.0), np.random.default_rng(0).integers(0, 90, 150), np.linspace(0.1, 9.0, 150), 4.5, 60],
    ids=["equal counts", "counts", "a mean below five", "one number", "one count"],
)
def test_counts_and_small_weights_are_not_warned_of(weights):
    assert weighted_fit(weights)[1] == []


# Yesterday's posterior


def yesterday():
    return BayesianSoftmaxRegression(1.0, approximation="laplace").fit(pd.DataFrame(BY_NAME), Y)


def test_a_posterior_is_no_prior_for_its_columns_in_another_order():
    prior = yesterday().as_prior()
    table = pd.DataFrame(BY_NAME)
    today = BayesianSoftmaxRegression(prior, approximation="laplace")
    with pytest.raises(
        ValueError, match=r"for the columns 'a', 'b', 'c', 'd', and X has the same in another order: 'b'"
    ):
        today.fit(table[["b", "a", "c", "d"]], Y)
    with pytest.raises(ValueError, match=r"and X has others: 'a', 'b', 'c', 'e'\. Select them by name"):
        today.fit(table.rename(columns={"d": "e"}), Y)
    by_name, without = (today.fit(rows, Y).coef_ for rows in (table[list(prior.columns)], X))
    np.testing.assert_allclose(by_name, without, rtol=1e-9)
    copied = clone(today).set_params(prior=pickle.loads(pickle.dumps(prior)))
    np.testing.assert_array_equal(copied.fit(table, Y).coef_, today.fit(table, Y).coef_)


def test_a_class_that_is_missing_today_can_be_declared():
    model = yesterday()
    few = BayesianSoftmaxRegression(model.as_prior(), approximation="laplace")
    with pytest.raises(ValueError, match=r"for 3 classes, and y has 2: .* declare them all, as classes=model.classes_"):
        few.fit(X[:100], Y[:100])
    declared = few.set_params(classes=model.classes_).fit(X[:100], Y[:100])
    assert declared.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"an array \(3, 3\) or \(3, 4\) is needed\.$"):
        BayesianSoftmaxRegression(model.as_prior()).fit(X[:, :3], Y)
