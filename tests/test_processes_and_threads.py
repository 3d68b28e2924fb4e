"""Fits in other processes and in many threads, and Python at its strictest: nothing warns, waits or leaks."""

import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import get_config
from sklearn.base import clone
from sklearn.datasets import load_iris
from tests.slow import quick_first
from threadpoolctl import threadpool_info

import posteriori as po
from posteriori.gp.inputs import LabelledRows, inducing_inputs
from posteriori.gp.repeats import merged_rows

X, Y = load_iris(return_X_y=True)
NAMES = list("abcd")
SOURCES = Path(po.__file__).parents[1]

MODELS = {
    "softmax": "po.SoftmaxRegression()",
    "bayes": "po.BayesianSoftmaxRegression()",
    "ard": "po.BayesianSoftmaxRegression('ard')",
    "gaussian": "po.GaussianClassifier()",
    "calibrated": "po.CalibratedClassifier(po.SoftmaxRegression())",
    "conformal": "po.ConformalClassifier(po.SoftmaxRegression())",
    "utility": "po.UtilityClassifier(po.BayesianSoftmaxRegression(1.0), n_draws=5)",
}
GPS = {
    "gp": "po.GPClassifier(n_inducing=8, max_iter=0)",
    "deep": "po.DeepGPClassifier(n_inducing=8, max_iter=0)",
}
LINEAR = ("softmax", "bayes", "gaussian")


def model_of(name):
    return eval((MODELS | GPS)[name], {"po": po})


def python(code, *options, timeout=120):
    """What a new interpreter prints; an error with all it says if it fails."""
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, env=environment, timeout=timeout
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


# Python at its strictest

EVERYTHING = """
import posteriori as po
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

X, y = load_iris(return_X_y=True)
METHODS = ("predict_proba", "predict_log_proba", "decision_function", "predict_interval", "uncertainty", "decide",
           "predict_set", "predict_latent")
for name, model in {models}.items():
    model.fit(X, y)
    assert model.score(X, y) > 0.6, name
    for method in METHODS:
        if hasattr(model, method):
            getattr(model, method)(X)
    if hasattr(model, "summary"):
        model.summary()
    if hasattr(model, "partial_fit"):
        type(model)().partial_fit(X, y, classes=[0, 1, 2])
"""
TABLES = """
table = pd.DataFrame(X, columns=list("abcd"))
days = np.random.default_rng(0).permutation(pd.date_range("2020", periods=150))
table = table.assign(kind=np.where(X[:, 0] > 6, "long", "short"), day=days)
model = make_pipeline(po.TableEncoder(), po.SoftmaxRegression()).fit(table, y)
po.decide(model.predict_proba(table), po.Utility.zero_one([0, 1, 2]))
po.evaluate(model, table, y)
"""


def with_models(models):
    return EVERYTHING.replace("{models}", "{" + ", ".join(f"{name!r}: {code}" for name, code in models.items()) + "}")


@pytest.mark.slow
def test_no_warning_with_warnings_as_errors():
    assert python(with_models(MODELS) + TABLES, "-W", "error") == ""


@pytest.mark.slow
def test_no_warning_in_development_mode():
    """Which also shows files that were not closed, and debug hooks of memory."""
    assert python(with_models(MODELS) + TABLES, "-X", "dev", "-W", "error") == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", GPS)
def test_gaussian_processes_with_warnings_as_errors(name):
    python(with_models({name: GPS[name]}), "-W", "error", timeout=300)


@pytest.mark.slow
def test_every_module_is_imported_without_a_warning():
    code = """
import importlib, pkgutil, posteriori
for module in pkgutil.walk_packages(posteriori.__path__, "posteriori."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    pytest.importorskip("jax")
    python(code, "-W", "error")


# Other processes

FORK = """
import multiprocessing, sys, warnings
import numpy as np
import posteriori as po
from sklearn.datasets import load_iris

X, y = load_iris(return_X_y=True)

def fit(code):
    try:
        return eval(code, {"po": po}).fit(X, y).predict_proba(X)
    except RuntimeError as error:
        return str(error)

warnings.simplefilter("ignore")  # JAX says that forks are dangerous
po.SoftmaxRegression(n_jobs=4).fit(np.tile(X, (500, 1)), np.tile(y, 500))  # threads of ours have run
if GP:
    fit(GP)
with multiprocessing.get_context("fork").Pool(1) as pool:
    for code in CODES:
        found = pool.apply_async(fit, (code,)).get(60)
        if isinstance(found, str):
            print(found)
        else:
            assert np.abs(found - fit(code)).max() < 1e-12, code
"""


def forked(codes, gp=None):
    return python(f"GP = {gp!r}\nCODES = {list(codes)!r}\n{FORK}", timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_fits_as_its_parent():
    assert forked([MODELS["softmax"], "po.GaussianClassifier('tied', estimate='map')"]) == ""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_jax_a_forked_process_fits_and_refuses_a_gaussian_process_with_a_reason():
    pytest.importorskip("jax")
    said = forked([*(MODELS[name] for name in LINEAR), GPS["gp"]], gp=GPS["gp"])
    assert said.startswith("This process was forked from one that had already used JAX")
    assert said.count("\n") == 1


@pytest.mark.slow
def test_joblib_after_jax():
    pytest.importorskip("jax")
    first = model_of("gp").fit(X, Y).predict_proba(X)
    names = ["gp", *LINEAR]
    found = joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(fit_and_predict)(model_of(n)) for n in names)
    np.testing.assert_allclose(found[0], first, atol=1e-12)
    for name, P in zip(names[1:], found[1:], strict=True):
        np.testing.assert_allclose(P, model_of(name).fit(X, Y).predict_proba(X), atol=1e-12)


def fit_and_predict(model):
    return model.fit(X, Y).predict_proba(X)


# Threads


def global_state():
    """Whatever a library could change for all others."""
    state = np.random.get_state()  # noqa: NPY002 - that is what must not change
    return {
        "warnings": list(warnings.filters),
        "errors of NumPy": np.geterr(),
        "random": (state[0], state[1].tobytes(), *state[2:]),
        "scikit-learn": get_config(),
        "pandas": pd.get_option("display.max_rows"),
        "threads of BLAS": sorted((each["filepath"], each["num_threads"]) for each in threadpool_info()),
        "environment": dict(os.environ),
    }


def differences(name, n_threads=8):
    """The largest difference of probabilities between fits at the same time and a fit alone."""
    rows = np.vstack([X + 0.01 * shift for shift in range(3)])
    labels = np.tile(Y, 3)
    models = [clone(model_of(name)) for _ in range(n_threads)]
    alone = model_of(name).fit(rows, labels).predict_proba(X)
    barrier = threading.Barrier(n_threads)

    def fit(model):
        barrier.wait(60)
        return model.fit(rows, labels).predict_proba(X)

    with ThreadPoolExecutor(n_threads) as pool:
        return max(np.abs(P - alone).max() for P in pool.map(fit, models))


@pytest.mark.parametrize("name", quick_first(["softmax", "calibrated", "bayes", "gaussian"], 2))
def test_eight_threads_fit_as_one_does(name):
    before = global_state()
    assert differences(name) < 1e-12
    assert global_state() == before


@pytest.mark.slow
def test_eight_threads_fit_gaussian_processes():
    jax = pytest.importorskip("jax")
    model_of("gp").fit(X, Y)  # libraries are loaded
    before = global_state()
    assert differences("gp") < 1e-9
    assert global_state() == before
    assert not jax.config.jax_enable_x64


def centres(rows):
    return inducing_inputs(rows.X, rows.c, 4, seed=0)


def without_copies(rows):
    return merged_rows(LabelledRows(*(np.concatenate([part, part]) for part in (rows.X, rows.y, rows.c))), seed=0)


@pytest.mark.parametrize("ask", [centres, without_copies])
def test_threads_that_ask_scikit_learn_leave_the_warning_filters_alone(ask):
    """Its checks of arrays change them for a moment, and threads that do not take turns may leave them changed."""
    rng = np.random.default_rng(0)
    rows = LabelledRows(rng.normal(size=(60, 2)), rng.integers(2, size=60), np.ones(60))
    ask(rows)  # libraries are loaded
    before, interval = list(warnings.filters), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: ask(rows), range(100)))
        assert warnings.filters == before
    finally:
        sys.setswitchinterval(interval)
        warnings.filters[:] = before


def test_one_fitted_model_predicts_in_eight_threads():
    model = po.BayesianSoftmaxRegression(1.0).fit(X, Y)
    alone = model.predict_proba(X), model.predict_interval(X)[0]
    with ThreadPoolExecutor(8) as pool:
        for P, lower in pool.map(lambda _: (model.predict_proba(X), model.predict_interval(X)[0]), range(24)):
            np.testing.assert_array_equal(P, alone[0])
            np.testing.assert_array_equal(lower, alone[1])
