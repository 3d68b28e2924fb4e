"""A fitted model gives the same answer for the same rows, whatever holds them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from tests.slow import quick_first

import posteriori as po
from posteriori.rows import dlpack

N, D, K = 60, 5, 3
NAMES = [f"x{d}" for d in range(D)]

rng = np.random.default_rng(5)
X = rng.normal(size=(N, D)) * [1.0, 5.0, 0.2, 1.0, 3.0] + [0.0, 20.0, 0.0, -1.0, 0.0]
X[rng.random((N, D)) < 0.3] = 0.0
Y = (X @ rng.normal(size=(D, K)) / 3.0 + rng.gumbel(size=(N, K))).argmax(axis=1)


def as_polars(rows):
    return pytest.importorskip("polars").DataFrame(rows, schema=NAMES)


def as_arrow(rows):
    import pyarrow as pa

    return pa.table(dict(zip(NAMES, rows.T, strict=True)))


def as_data_set(rows):
    import pyarrow.dataset as ds

    return ds.dataset(as_arrow(rows))


def as_dask(rows):
    return pytest.importorskip("dask.array").from_array(rows, chunks=(17, D))


def as_dask_frame(rows):
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(pd.DataFrame(rows, columns=NAMES), npartitions=3)


def as_gpu(rows):
    """An array of JAX: its CPU stands for a GPU."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.device_put(rows)


@pytest.fixture
def _cpu_as_gpu(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(dlpack, "on_gpu", lambda X: isinstance(X, jax.Array))


UNNAMED = {"dense": np.asarray, "csr": sp.csr_array, "csc": sp.csc_array, "GPU": as_gpu, "dask": as_dask}
NAMED = {
    "pandas": lambda rows: pd.DataFrame(rows, columns=NAMES),
    "polars": as_polars,
    "arrow": as_arrow,
    "data set": as_data_set,
    "dask frame": as_dask_frame,
}
METHODS = (
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_interval",
    "predict_latent",
    "predict_joint_log_proba",
    "sample_proba",
    "uncertainty",
)
MODELS = {
    "softmax": lambda: po.SoftmaxRegression(),
    "bayes": lambda: po.BayesianSoftmaxRegression(n_draws=50),
    "bayes, kronecker": lambda: po.BayesianSoftmaxRegression(posterior="kronecker"),
    "bayes, importance": lambda: po.BayesianSoftmaxRegression(approximation="importance", n_draws=200),
    "gaussian, tied": lambda: po.GaussianClassifier("tied", estimate="map"),
    "gaussian": lambda: po.GaussianClassifier(),
    "bayes, diagonal": lambda: po.BayesianSoftmaxRegression(posterior="diagonal"),
    "gp": lambda: po.GPClassifier(n_inducing=16, max_iter=3, calibrate=False),
    "forest": lambda: po.ForestClassifier(20),
    "boosting": lambda: po.BoostingClassifier(10),
}
SETTINGS = {"bayes": [{"predictive": predictive} for predictive in ("quasi", "sample", "probit", "plugin")]}
"""Settings that change predictions of the same fit."""
IN_MEMORY = {"gp"}
"""Models that refuse rows which are not in memory."""
NOT_IN_MEMORY = {"dask", "data set", "dask frame"}


def answers(model, rows, methods=METHODS):
    out = {}
    for method in methods:
        if hasattr(model, method):
            value = getattr(model, method)(rows)
            out[method] = value if isinstance(value, tuple) else (value,)
    return out


@pytest.mark.usefixtures("_cpu_as_gpu")
@pytest.mark.filterwarnings("ignore::posteriori.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::posteriori.exceptions.ApproximationWarning")
@pytest.mark.parametrize("kinds", [UNNAMED, NAMED], ids=["arrays", "tables"])
@pytest.mark.parametrize("n_fits", quick_first([2, 9]))
@pytest.mark.parametrize("name", quick_first(MODELS, 5))
def test_every_container_of_the_same_rows_gets_the_same_answer(name, n_fits, kinds):
    """Of fits with the first two containers, which are arrays dense and sparse, or tables of two kinds; or with all."""
    usable = {kind: put for kind, put in kinds.items() if name not in IN_MEMORY or kind not in NOT_IN_MEMORY}
    fits = [kind for kind in usable if kind not in NOT_IN_MEMORY]  # a stream's fit is that of the same rows in memory
    for fitted_with in fits[:1] if name in IN_MEMORY else fits[:n_fits]:
        model = MODELS[name]().fit(usable[fitted_with](X), Y)
        for options in SETTINGS.get(name, [{}]):
            model.set_params(**options)
            expected = answers(model, usable[fits[0]](X))
            assert "predict_proba" in expected
            for asked_with, put_new in usable.items():
                words = f"{options} {fitted_with}, then {asked_with}"
                for method, values in answers(model, put_new(X)).items():
                    for value, other in zip(expected[method], values, strict=True):
                        np.testing.assert_allclose(other, value, rtol=1e-10, atol=1e-10, err_msg=f"{method}: {words}")


@pytest.mark.usefixtures("_cpu_as_gpu")
def test_a_gaussian_process_is_asked_with_every_container_in_memory():
    """A stored one, of four features without names."""
    pytest.importorskip("jax")
    model = po.load(Path(__file__).parent / "storage" / "golden" / "format-1" / "gp.safetensors")
    rows = X[:, :4] * [1.0, 0.2, 1.0, 1.0]
    expected = model.predict_proba(rows)
    for kind, put in UNNAMED.items():
        if kind not in NOT_IN_MEMORY:
            np.testing.assert_allclose(model.predict_proba(put(rows)), expected, rtol=1e-10, atol=1e-10, err_msg=kind)


def test_a_dense_fit_is_asked_with_sparse_rows_that_overflow():
    model = po.BayesianSoftmaxRegression().fit(X, Y)
    far = np.zeros((2, D))
    far[0, 1], far[1, 0] = 1e300, -1e300
    np.testing.assert_allclose(model.predict_proba(sp.csr_array(far)), model.predict_proba(far), atol=1e-10)


def test_a_sparse_fit_is_asked_with_rows_that_overflow():
    model = po.BayesianSoftmaxRegression().fit(sp.csr_array(X), Y)
    far = np.zeros((2, D))
    far[0, 1], far[1, 0] = 1e300, -1e300
    np.testing.assert_allclose(model.predict_proba(sp.csr_array(far)), model.predict_proba(far), atol=1e-10)
