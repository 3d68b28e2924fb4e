"""The same answer on every engine: fits of the same rows in memory, sparse, from Parquet, by Dask and on a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records

SHAPE, QUICK = (20_000, 12, 4), (1_000, 6, 3)
GOALS = {"objective": 1e-12, "coefficients": 1e-6, "covariance": 1e-6, "evidence": 1e-6}

NOTES = """\
Differences to the fit in memory, all with tol=1e-14: of the objective and the evidence relative to these, of
coefficients and covariances relative to the largest. Goals: objective 1e-12, all others 1e-6. "map" is
`SoftmaxRegression()`, "laplace" `BayesianSoftmaxRegression(prior=1.0, approximation="laplace")`, "kronecker" the same
with `posterior="kronecker"`, "evidence" the default `BayesianSoftmaxRegression()`; for "gaussian",
`GaussianClassifier("full")`, means stand for the coefficients. Parquet is read in batches of many rows and of few
("small batches"), never held; Dask has one worker process or two. Sparse columns cannot be centred, so that the prior
of the intercept differs where there is one: only "map" compares. A GPU is JAX's, where there is one."""

HEADER = ("device", "engine", "fit", *GOALS)


def run(out: Path, *, quick: bool = False) -> None:
    """Compare every engine that there is."""
    N, D, K = QUICK if quick else SHAPE
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * np.geomspace(0.1, 30.0, D)
    y = (X / np.geomspace(0.1, 30.0, D) @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    expected = {name: answer(fit(X, y)) for name, fit in fits().items()}
    lines = []
    with tempfile.TemporaryDirectory(prefix="posteriori-benchmark-") as folder:
        for engine, where, opened in engines(Path(folder), X, y):
            with opened() as rows:
                for name, fit in fits().items():
                    if engine == "sparse" and name != "map":
                        continue
                    found = differences(answer(fit(*rows)), expected[name])
                    line = {
                        "problem": f"{N} rows, {engine}, {name}, {where}",
                        "engine": engine,
                        "fit": name,
                        "where": where,
                    }
                    lines.append(line | found)
                    print(lines[-1], flush=True)
    stored = records.store(out / "same_answer.jsonl", lines)
    table = [[x["where"], x["engine"], x["fit"], *(cell(x.get(key)) for key in GOALS)] for x in stored]
    records.write(out / "same_answer.md", records.markdown("The same answer", NOTES, HEADER, table))


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def fits() -> dict[str, Callable[..., Any]]:
    """Return what is fitted, by name."""
    import posteriori as po

    tight = {"tol": 1e-14}
    makers: dict[str, Callable[[], Any]] = {
        "map": lambda: po.SoftmaxRegression(**tight),
        "laplace": lambda: po.BayesianSoftmaxRegression(prior=1.0, approximation="laplace", **tight),
        "kronecker": lambda: po.BayesianSoftmaxRegression(prior=1.0, posterior="kronecker", **tight),
        "evidence": lambda: po.BayesianSoftmaxRegression(**tight),
        "gaussian": lambda: po.GaussianClassifier("full"),
    }
    return {name: lambda X, y, make=make: make().fit(X, y) for name, make in makers.items()}


def answer(model: Any) -> dict[str, Any]:
    """Return what is compared."""
    gaussian = hasattr(model, "means_")
    found = {
        "coefficients": model.means_ if gaussian else model.coef_,
        "evidence": getattr(model, "log_evidence_", None),
    }
    if not gaussian:
        found["objective"] = model.solution_.objective
    if gaussian or hasattr(model, "covariance_"):
        found["covariance"] = model.covariances_ if gaussian else model.covariance_
    return {key: np.asarray(value) for key, value in found.items() if value is not None}


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """Return the largest difference of each, relative to the largest value."""
    return {key: float(np.abs(found[key] - expected[key]).max() / np.abs(expected[key]).max()) for key in expected}


def engines(folder: Path, X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str, Any]]:
    """Give the engines that there are: name, device, and a context in which X and y are given."""
    import scipy.sparse as sp

    @contextmanager
    def given(*rows: Any) -> Iterator[Any]:
        yield rows

    yield "sparse", "cpu", lambda: given(sp.csr_array(X), y)
    if find_spec("pyarrow"):
        path = write(folder, X, y)
        yield "Parquet", "cpu", lambda: parquet(path, None)
        yield "Parquet, small batches", "cpu", lambda: parquet(path, 97)
        if find_spec("dask") and find_spec("distributed"):
            for n_workers in (1, 2):
                yield f"Dask, {n_workers} worker{'s' * (n_workers > 1)}", "cpu", lambda n=n_workers: dask_rows(path, n)
    if find_spec("jax"):
        import jax

        if jax.default_backend() != "cpu":
            with jax.enable_x64(True):
                rows = jax.device_put(X), jax.device_put(y)
            yield "GPU", jax.devices()[0].device_kind, lambda: given(*rows)


def write(folder: Path, X: np.ndarray, y: np.ndarray) -> Path:
    """Write the rows to four Parquet files."""
    import pyarrow as pa
    from pyarrow import parquet

    for i, rows in enumerate(np.array_split(np.arange(len(y)), 4)):
        columns = {f"x{d}": X[rows, d] for d in range(X.shape[1])}
        parquet.write_table(pa.table({**columns, "y": y[rows]}), folder / f"part-{i}.parquet", row_group_size=1000)
    return folder


@contextmanager
def parquet(path: Path, batch: int | None) -> Iterator[Any]:
    """The rows as a data set that is read in every pass."""
    from unittest import mock

    import pyarrow.dataset as ds

    from posteriori.rows import arrow as streamed

    sizes = {} if batch is None else {"_LEAST_ROWS": batch, "_BLOCK_BYTES": 0}
    with mock.patch.multiple(streamed, _HELD_BYTES=0, **sizes):
        yield ds.dataset(path), "y"


@contextmanager
def dask_rows(path: Path, n_workers: int) -> Iterator[Any]:
    """The rows as a Dask DataFrame on worker processes."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        yield dd.read_parquet(path), "y"
