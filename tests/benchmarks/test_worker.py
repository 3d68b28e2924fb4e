"""The process that fits: its measurements, and that it can be killed and goes on."""

from dataclasses import dataclass
from time import sleep

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.adapters import Fit, ScikitLearn
from benchmarks.measure import objective
from benchmarks.problems import synthetic
from benchmarks.worker import Worker, read, stored


@dataclass(frozen=True)
class Behaves:
    """An adapter that sleeps, fails or holds memory for a moment on problems of more than 100 rows."""

    how: str
    library: str = "numpy"
    solver: str = ""
    tol: float | None = None
    threads: int | None = None

    def fit(self, X: np.ndarray, y: np.ndarray) -> Fit:
        if len(y) > 100:
            if self.how == "sleeps":
                sleep(60)
            if self.how == "fails":
                raise ValueError("no")
            np.ones(50_000_000 // 8)
        return Fit(np.zeros((3, X.shape[1])), np.zeros(3), {})


@pytest.mark.parametrize("sparse", [False, True])
def test_a_stored_problem_is_read_as_it_was(sparse: bool) -> None:
    X, y = synthetic(20, 3, 3)
    with stored(sp.csr_array(X) if sparse else X, y) as folder:
        X_read, y_read = read(folder)
    assert sp.issparse(X_read) == sparse
    np.testing.assert_array_equal(X_read.toarray() if sparse else X_read, X)
    np.testing.assert_array_equal(y_read, y)


@pytest.mark.slow
def test_a_worker_measures_and_survives_slow_and_failing_fits() -> None:
    X, y = synthetic(200, 3, 3)
    peer = ScikitLearn("newton-cholesky", tol=1e-8, threads=1)
    fit = peer.fit(X, y)
    with stored(X, y) as folder, Worker(folder) as worker:
        failed = worker.fit(Behaves("fails"), limit=60)
        held = worker.fit(Behaves("holds"), limit=60)
        slow = worker.fit(Behaves("sleeps"), limit=0.2)
        good = worker.fit(peer, limit=60)
    assert failed.info["status"] == "ValueError: no"
    assert np.isnan(failed.objective)
    assert held.objective == pytest.approx(200 * np.log(3))
    assert held.peak_mb is None or 45 < held.peak_mb < 60
    assert slow.info["status"] == "over budget"
    assert slow.seconds >= 0.2
    assert np.isnan(slow.objective)
    assert good.objective == pytest.approx(objective(X, y, fit.coef, fit.intercept)[0], rel=1e-12)
