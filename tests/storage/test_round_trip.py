"""A loaded model answers as the saved one did, to the last bit."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from tests.storage.cases import SMALL, TABLE, X, Y, fitted, messy

import posteriori as po
from posteriori import kernels
from posteriori.gaussian.structures import STRUCTURES
from posteriori.storage import describe, load, save
from posteriori.tables.encoder import TableEncoder

_ASKED = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_interval",
    "predict_latent",
    "uncertainty",
    "sample_proba",
    "score_samples",
    "predict_joint_log_proba",
    "predict_set",
    "decide",
)


def stored(model: Any, folder: Path) -> Any:
    save(model, folder / "model")
    return load(folder / "model")


def assert_equal(a: Any, b: Any) -> None:
    """To the last bit; objects by their attributes."""
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif hasattr(a, "__dict__"):
        for name in vars(a):
            assert_equal(getattr(a, name), getattr(b, name))
    else:
        assert a == b or (a != a and b != b)


def assert_same(model: Any, other: Any, rows: Any = X) -> None:
    assert type(model) is type(other)
    assert repr(model.get_params()) == repr(other.get_params())
    for name in ("classes_", "feature_names_in_", "n_features_in_"):
        assert hasattr(model, name) == hasattr(other, name)
        if hasattr(model, name):
            assert_equal(getattr(model, name), getattr(other, name))
    for name in _ASKED:
        assert hasattr(model, name) == hasattr(other, name)
        if hasattr(model, name):
            assert_equal(getattr(model, name)(rows), getattr(other, name)(rows))


@pytest.mark.parametrize(
    "model",
    [
        po.SoftmaxRegression(0.1),
        po.SoftmaxRegression(np.asfortranarray(np.full((3, 4), 0.5)), solver=po.LBFGS(memory=7)),
        po.SoftmaxRegression(0.0, fit_intercept=False, max_iter=3),
        po.SoftmaxRegression(solver=po.StochasticGradient(epochs=2), random_state=1, class_weight={"setosa": 2.0}),
    ],
    ids=repr,
)
def test_softmax(model: Any, tmp_path: Path) -> None:
    model = fitted(model, TABLE)
    other = stored(model, tmp_path)
    assert_same(model, other, TABLE)
    assert repr(other.solution_) == repr(model.solution_)
    assert other.solution_.trace == model.solution_.trace


def test_separation_is_told_again(tmp_path: Path) -> None:
    model = fitted(po.SoftmaxRegression(0.0))
    assert model.solution_.status is po.Status.SEPARATED
    other = stored(model, tmp_path)
    assert other.solution_.status is po.Status.SEPARATED
    sentence = other.solution_.separation.sentence(other.classes_, None)
    assert sentence == model.solution_.separation.sentence(model.classes_, None)


_FULL = np.eye(12) * 2.0
_PRIORS = [
    {"prior": 1.0},
    {"prior": "evidence"},
    {"prior": "ard"},
    {"prior": "jeffreys"},
    {"prior": "flat"},
    {"prior": 1e-12, "approximation": "laplace"},
    {"prior": po.GaussianPrior(0.1, _FULL)},
    {"prior": po.GaussianPrior(precision=(np.eye(3), np.eye(5) * 2.0))},
    {"prior": po.GaussianPrior(np.full((3, 4), 0.1), 3.0, autoscale=True)},
]
_WAYS = [
    {"approximation": "laplace"},
    {"approximation": "variational"},
    {"approximation": "importance", "n_draws": 50, "random_state": 3},
    {"posterior": "kronecker"},
    {"posterior": "diagonal"},
    {"posterior": "full", "approximation": "laplace"},
    {"predictive": "sample", "n_draws": 20, "approximation": "laplace"},
    {"predictive": "probit", "approximation": "laplace"},
    {"predictive": "plugin", "approximation": "laplace"},
    {"label_noise": 0.05, "approximation": "laplace"},
    {"fit_intercept": False, "approximation": "laplace"},
]


@pytest.mark.parametrize("given", [*_PRIORS, *({"prior": 1.0} | way for way in _WAYS)], ids=str)
def test_bayesian_softmax(given: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(po.BayesianSoftmaxRegression(**given))
    other = stored(model, tmp_path)
    assert_same(model, other)
    assert_equal(model.covariance_, other.covariance_)
    assert model.log_evidence_ == other.log_evidence_
    assert str(model) == str(other)
    for table in ("symmetric", "reference", "sum"):
        assert model.summary(table).equals(other.summary(table))
    assert model.marginal_effects(X).equals(other.marginal_effects(X))
    assert_same(model.with_class_prior([0.2, 0.3, 0.5]), stored(model.with_class_prior([0.2, 0.3, 0.5]), tmp_path))
    if given["prior"] != "flat" and given.get("approximation") != "importance":  # iris is separable
        assert_equal(model.as_prior(), other.as_prior())


_COVARIANCES = ["auto", *STRUCTURES]


_QUICK = [*product(_COVARIANCES, ["bayes"]), ("tied", "map"), ("tied_diagonal", "mle"), ("full", "mle")]


@pytest.mark.parametrize(
    ("covariance", "estimate"),
    [
        *_QUICK,
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in product(_COVARIANCES, ["map", "mle"])
            if case not in _QUICK
        ),
    ],
)
def test_gaussian(covariance: str, estimate: str, tmp_path: Path) -> None:
    model = fitted(po.GaussianClassifier(covariance, estimate=estimate, prior="evidence"))
    other = stored(model, tmp_path)
    assert_same(model, other)
    for name in ("means_", "covariances_", "class_prior_", "class_count_", "log_evidence_", "prior_", "solution_"):
        assert_equal(getattr(model, name), getattr(other, name))
    assert_equal(model.sample(5, 0), other.sample(5, 0))
    if "tied" in covariance and estimate != "bayes":
        assert_same(model.to_softmax(), stored(other.to_softmax(), tmp_path))


@pytest.mark.parametrize("prior", ["predictive", po.NormalInverseWishartPrior(kappa=0.5), po.RidgePrior(0.1)], ids=repr)
def test_gaussian_priors(prior: Any, tmp_path: Path) -> None:
    model = fitted(po.GaussianClassifier("tied", estimate="map", prior=prior, class_prior=[0.2, 0.3, 0.5]))
    assert_same(model, stored(model, tmp_path))


_GOLDEN = Path(__file__).parent / "golden" / "format-1"
_PROCESSES = {
    "argmax": lambda: load(_GOLDEN / "gp.safetensors"),
    "deep": lambda: load(_GOLDEN / "deep_gp.safetensors"),
    "softmax, fitted": lambda: fitted(
        po.GPClassifier(kernels.RBF() + 0.3 * kernels.Linear(), likelihood="softmax", inference="vi", **SMALL)
    ),
    "argmax, fitted": lambda: fitted(po.GPClassifier(**SMALL)),
    "deep, fitted": lambda: fitted(po.DeepGPClassifier((2,), **SMALL)),
}
_SLOW = ("deep", "softmax, fitted", "argmax, fitted", "deep, fitted")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in _SLOW else name for name in _PROCESSES]
)
def test_gaussian_processes(name: str, tmp_path: Path) -> None:
    model = _PROCESSES[name]()
    other = stored(model, tmp_path)
    assert_same(model, other)
    assert other.log_evidence_ == model.log_evidence_
    assert other.solution_.trace == model.solution_.trace
    if hasattr(model, "kernel_"):
        assert other.kernel_ == model.kernel_
        assert_equal(model.relevances_, other.relevances_)
    P = model.predict_proba(X)
    again = stored(load(tmp_path / "model"), tmp_path)  # never used before it is stored again
    for copied in (copy.deepcopy(load(tmp_path / "model")), copy.copy(again), pickle.loads(pickle.dumps(again))):
        np.testing.assert_array_equal(copied.predict_proba(X), P)


@pytest.mark.slow
def test_gradient_sites(tmp_path: Path) -> None:
    model = fitted(po.GPClassifier(inference="energy", **SMALL))
    np.testing.assert_array_equal(stored(model, tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.mark.slow
def test_files_of_gaussian_processes_are_read_without_jax(tmp_path: Path) -> None:
    code = (
        "import sys; from posteriori.storage import describe, load\n"
        "for name in ('deep_gp', 'gp'):\n"
        f"    path = {str(_GOLDEN)!r} + '/' + name + '.safetensors'\n"
        "    describe(path); load(path).get_params()\n"
        "assert 'jax' not in sys.modules\n"
        "import json, numpy as np; from tests.storage.cases import X\n"
        "model = load(path); model.solution_  # imports JAX, not yet in double precision\n"
        "expected = json.load(open(path.replace('.safetensors', '.json')))['probabilities']\n"
        "np.testing.assert_allclose(model.predict_proba(X[::4]), expected, rtol=0, atol=1e-12)\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


_UTILITY = po.Utility(
    np.array([[1.0, 0.2], [0.0, 0.5], [-1.0, 0.7]]), ["virginica", "setosa", "versicolor"], ["a", "b"]
)


@pytest.mark.parametrize(
    "model",
    [
        po.UtilityClassifier(po.SoftmaxRegression()),
        po.UtilityClassifier(po.GaussianClassifier("tied"), _UTILITY.with_reject(0.4)),
        po.UtilityClassifier(po.BayesianSoftmaxRegression(1.0, approximation="laplace"), _UTILITY, n_draws=10),
        po.CalibratedClassifier(po.GaussianClassifier("tied"), cv=3),
        po.CalibratedClassifier(po.SoftmaxRegression(), method="auto", cv=3),
        po.CalibratedClassifier(po.SoftmaxRegression(), method="vector", cv=StratifiedKFold(3)),
        po.CalibratedClassifier(po.SoftmaxRegression(), method="dirichlet", cv=3),
        po.CalibratedClassifier(po.SoftmaxRegression(), method="isotonic", cv=3),
        po.ConformalClassifier(po.SoftmaxRegression(), calibration_size=12),
        po.ConformalClassifier(po.SoftmaxRegression(), conformity="aps", by_class=True, calibration_size=12),
        po.UtilityClassifier(po.CalibratedClassifier(make_pipeline(StandardScaler(), po.SoftmaxRegression()), cv=3)),
        make_pipeline(RobustScaler(), MinMaxScaler(), po.BayesianSoftmaxRegression(1.0, approximation="laplace")),
        make_pipeline("passthrough", po.UtilityClassifier(po.SoftmaxRegression(), _UTILITY)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_around_models(model: Any, tmp_path: Path) -> None:
    model = fitted(model)
    other = stored(model, tmp_path)
    assert_same(model, other)
    clone(other)


@pytest.mark.parametrize("wrapped", [False, True])
def test_tables(wrapped: bool, tmp_path: Path) -> None:
    table = messy()
    model: Any = make_pipeline(TableEncoder(min_frequency=2), po.SoftmaxRegression())
    model = fitted(po.UtilityClassifier(model, _UTILITY) if wrapped else model, table, "species")
    other = stored(model, tmp_path)
    for rows in (table, table.drop(columns="species")):
        np.testing.assert_array_equal(other.predict_proba(rows), model.predict_proba(rows))
        np.testing.assert_array_equal(other.predict(rows), model.predict(rows))
    assert describe(tmp_path / "model")["features"] == list(table.columns[:-1])
    encoder, before = ((m.estimator_ if wrapped else m)[0] for m in (other, model))
    assert encoder.describe().equals(before.describe())
    assert encoder.transform(table).equals(before.transform(table))


def test_a_transformer_alone(tmp_path: Path) -> None:
    encoder = TableEncoder().fit(messy(), "species")
    other = stored(encoder, tmp_path)
    assert other.transform(messy()).equals(encoder.transform(messy()))
    assert describe(tmp_path / "model")["fitted"] is True


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 2], dtype=np.int8),
        np.array([False, True]),
        np.array([0.5, 1.5, 2.5])[:2].astype(str),
        np.array(["b", "a", "ü"], dtype=object),
        np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[D]"),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels(labels: np.ndarray, tmp_path: Path) -> None:
    y = labels[np.arange(40) % len(labels)]
    try:
        model = fitted(po.SoftmaxRegression(), X, y)
    except (ValueError, TypeError) as error:
        pytest.skip(f"not taken as labels: {error}")
    other = stored(model, tmp_path)
    assert_same(model, other)
    assert other.predict(X).dtype == model.predict(X).dtype


def test_models_that_are_not_fitted(tmp_path: Path) -> None:
    for model in (
        po.SoftmaxRegression(classes=("a", "b")),
        po.GaussianClassifier(prior=po.RidgePrior(2.0), estimate="map"),
        po.GPClassifier(kernels.Matern() * 2.0),
        po.DeepGPClassifier((None, 3)),
        po.UtilityClassifier(po.SoftmaxRegression(), _UTILITY),
        make_pipeline(StandardScaler(), po.SoftmaxRegression()),
    ):
        other = stored(model, tmp_path)
        assert repr(other.get_params()) == repr(model.get_params())
        assert set(vars(other)) == set(vars(model))
    np.testing.assert_array_equal(
        fitted(stored(po.SoftmaxRegression(), tmp_path)).predict_proba(X),
        fitted(po.SoftmaxRegression()).predict_proba(X),
    )


def test_rows_of_the_fit_are_not_stored(tmp_path: Path) -> None:
    models = [fitted(po.GaussianClassifier()), po.SoftmaxRegression().partial_fit(X, Y)]
    for model in models:
        save(model, tmp_path / "model")
        data = (tmp_path / "model").read_bytes()
        assert not any(row.tobytes() in data for row in X)
        assert len(data) < 20_000


def test_partial_fit_goes_on_where_it_was(tmp_path: Path) -> None:
    new = X[::-1] + 0.01
    model = po.SoftmaxRegression().partial_fit(X, Y)
    other = stored(model, tmp_path)
    assert_same(model.partial_fit(new, Y[::-1]), other.partial_fit(new, Y[::-1]))
    for given in ({"estimate": "mle"}, {"prior": "evidence"}, {"prior": po.NormalInverseWishartPrior()}):
        gaussian = po.GaussianClassifier("tied", **given).partial_fit(X, Y)
        other = stored(gaussian, tmp_path)
        assert_same(gaussian.partial_fit(new, Y[::-1]), other.partial_fit(new, Y[::-1]))


def test_a_prior_judged_by_rows_is_not_chosen_anew(tmp_path: Path) -> None:
    model = po.GaussianClassifier("tied").partial_fit(X, Y)
    other = stored(model, tmp_path)
    assert_same(model, other)
    with pytest.raises(ValueError, match="Fit all rows again"):
        other.partial_fit(X, Y)


@pytest.mark.parametrize(
    ("given", "chosen", "instead"),
    [
        ({"covariance": "tied"}, "prior='predictive' is", "prior='evidence'"),
        ({"estimate": "mle"}, "covariance='auto' is", "a covariance that is not 'auto'"),
        ({"prior": "evidence"}, "covariance='auto' is", "a covariance that is not 'auto'"),
        ({}, "covariance='auto' and prior='predictive' are", "a covariance that is not 'auto' and prior='evidence'"),
    ],
)
def test_what_cannot_be_chosen_without_rows_is_said(
    given: dict[str, Any], chosen: str, instead: str, tmp_path: Path
) -> None:
    other = stored(fitted(po.GaussianClassifier(**given)), tmp_path)
    with pytest.raises(ValueError, match="none of the earlier rows were kept") as caught:
        other.partial_fit(X, Y)
    assert str(caught.value) == (
        f"{chosen} chosen by left-out rows, but none of the earlier rows were kept: a model from a file has no rows, "
        f"and a model keeps rows only if it needs them for such a choice. Fit all rows again, or set {instead}."
    )
    enough = {"covariance": "tied", "prior": "evidence"}  # what is said to do is enough
    other.set_params(**{name: value for name, value in enough.items() if name in instead})
    assert other.partial_fit(X, Y).class_count_.sum() == 2 * len(Y)
    assert other.predict_proba(X).shape == (len(Y), 3)


def test_caches_are_not_stored(tmp_path: Path) -> None:
    model = fitted(po.BayesianSoftmaxRegression(1.0, approximation="laplace"))
    save(model, tmp_path / "before")
    model.predict_proba(X)
    save(model, tmp_path / "after")
    assert (tmp_path / "before").stat().st_size == (tmp_path / "after").stat().st_size


def test_saving_changes_nothing(tmp_path: Path) -> None:
    model = fitted(po.GaussianClassifier("tied"))
    before = {name: id(value) for name, value in vars(model).items()}
    save(model, tmp_path / "model")
    assert {name: id(value) for name, value in vars(model).items()} == before


def test_loaded_arrays_can_be_changed(tmp_path: Path) -> None:
    other = stored(fitted(po.SoftmaxRegression()), tmp_path)
    other.coef_[:] = 0.0
    other.intercept_[:] = 0.0
    np.testing.assert_allclose(other.predict_proba(X), 1.0 / 3.0)


def test_foreign_estimators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model is a sklearn\..*LogisticRegression, which cannot be stored"):
        save(LogisticRegression(), tmp_path / "model")
    with pytest.raises(TypeError, match=r"The value at estimator is a sklearn\..*LogisticRegression"):
        save(po.UtilityClassifier(LogisticRegression()), tmp_path / "model")
    with pytest.raises(TypeError, match=r"The value at steps\[0\]\[1\] is a sklearn"):
        save(make_pipeline(LogisticRegression(), po.SoftmaxRegression()), tmp_path / "model")
    with pytest.raises(TypeError, match="give an estimator"):
        save(po.Newton(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_no_warning_on_the_way(tmp_path: Path) -> None:
    model = fitted(po.SoftmaxRegression(0.0, max_iter=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored(model, tmp_path)
