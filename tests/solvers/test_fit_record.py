"""One interface for the record of every fit, whatever was fitted."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import posteriori as po
from posteriori.solvers.solution import FitRecord

X, Y = load_iris(return_X_y=True)
GOLDEN = Path(__file__).parents[1] / "storage" / "golden" / "format-1"


def record(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X[::3], Y[::3]).solution_


def test_softmax_regression():
    found = record(po.SoftmaxRegression())
    assert isinstance(found, FitRecord)
    assert found.status is po.Status.CONVERGED
    assert found.converged
    assert found.objective == pytest.approx(found.trace[-1].objective, rel=1e-6)
    assert found.n_iter == len(found.trace) - 2  # the start and the certificate are in the trace too
    assert found.n_passes >= found.n_iter
    assert 0.0 < found.seconds < 60.0


def test_bayesian_softmax_regression():
    found = record(po.BayesianSoftmaxRegression(1.0, approximation="laplace"))
    assert isinstance(found, FitRecord)
    assert found.converged
    assert np.isfinite(found.objective)
    assert found.seconds > 0.0


def test_gaussian_classifier():
    found = record(po.GaussianClassifier("tied", estimate="mle"))
    assert isinstance(found, FitRecord)
    assert found.status is po.Status.CONVERGED
    assert found.objective is None  # the answer is in closed form
    assert (found.n_iter, found.n_passes, list(found.trace)) == (found.n_evaluations, 1, [])


def test_ensembles_of_trees():
    forest, boosting = record(po.ForestClassifier(15)), record(po.BoostingClassifier(5))
    assert isinstance(forest, FitRecord)
    assert isinstance(boosting, FitRecord)
    assert forest.converged
    assert forest.n_iter == 15
    assert boosting.status is po.Status.ITERATION_LIMIT
    assert boosting.n_iter == len(boosting.trace) == 5
    assert forest.objective > 0.0 < boosting.objective


def test_gaussian_process():
    pytest.importorskip("jax")
    found = po.load(GOLDEN / "gp.safetensors").solution_
    assert isinstance(found, FitRecord)
    assert found.objective == -found.energy
    assert found.seconds == found.trace[-1].seconds
    assert found.converged is (found.status is po.Status.CONVERGED)


def test_records_of_files_before_there_was_a_time():
    assert po.load(GOLDEN / "softmax.safetensors").solution_.seconds is None
    assert po.load(GOLDEN / "gaussian.safetensors").solution_.seconds is None


def test_time_does_not_make_two_fits_different():
    first, second = record(po.SoftmaxRegression()), record(po.SoftmaxRegression())
    assert first.seconds != second.seconds
    assert first == second
