"""A good citizen: interruptible, clonable, quiet unless asked, and without side effects."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from posteriori import LBFGS, ConvergenceWarning, GradientDescent, Newton, SoftmaxRegression, Status

X, Y = load_wine(return_X_y=True)
STANDARD = StandardScaler().fit_transform(X)


class Impatient(LBFGS):
    """L-BFGS whose user presses Ctrl-C in its fourth iteration."""

    def steps(self, problem, theta, tol):
        for i, iterate in enumerate(super().steps(problem, theta, tol)):
            if i > 3:
                raise KeyboardInterrupt
            yield iterate


# Ctrl-C


def test_ctrl_c_keeps_the_best_so_far_and_raises():
    model = SoftmaxRegression(solver=Impatient())
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    solution = model.solution_
    assert solution.status is Status.INTERRUPTED
    assert model.n_iter_ == 3
    best = SoftmaxRegression().fit(X, Y).solution_.objective
    assert best < solution.objective < len(Y) * np.log(3)
    logits = X @ model.coef_.T + model.intercept_
    J = (logsumexp(logits, axis=1) - logits[np.arange(len(Y)), Y]).sum() + 0.5 * (model.coef_**2).sum()
    assert solution.objective == pytest.approx(J)
    assert model.score(X, Y) > 0.5


def test_ctrl_c_in_a_pass_over_the_data(monkeypatch):
    from posteriori.softmax.objective import SoftmaxObjective

    original, calls = SoftmaxObjective.value_gradient, []

    def interrupted_once(self, theta):
        calls.append(theta)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(SoftmaxObjective, "value_gradient", interrupted_once)
    model = SoftmaxRegression(solver="lbfgs")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.coef_.any()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


# What is said


@pytest.mark.parametrize(("verbose", "n_lines"), [(0, [0]), (1, [1, 2]), (2, range(5, 30))])
def test_verbose(verbose, n_lines, capsys):
    model = SoftmaxRegression(solver="newton", verbose=verbose).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) in n_lines
    assert ("objective" in err) == (verbose > 0)
    assert (f"iteration {model.n_iter_} " in err) == (verbose > 0)


@pytest.mark.parametrize("solver", ["auto", "newton", "lbfgs", "gd"])
def test_trace(solver):
    """One entry per iteration, the start and the certified end included; J never rises."""
    solution = SoftmaxRegression(solver=solver).fit(STANDARD, Y).solution_
    objectives = np.array([entry.objective for entry in solution.trace])
    norms = np.array([entry.gradient_norm for entry in solution.trace])
    assert len(objectives) == solution.n_iter + 2
    assert objectives[0] == pytest.approx(len(Y) * np.log(3))
    gradient = (1 / 3 - np.eye(3)[Y]).T @ np.column_stack([STANDARD, np.ones(len(Y))])
    assert norms[0] == pytest.approx(np.linalg.norm(gradient))
    assert (np.diff(objectives) <= 1e-9 * objectives[:-1]).all()
    assert objectives[-1] == solution.objective
    assert norms[-1] == solution.gradient_norm


@pytest.mark.parametrize("solver", ["auto", "newton", "lbfgs", "gd", "sgd", Newton(max_iter=1)])
def test_an_unfinished_fit_warns(solver):
    model = SoftmaxRegression(solver=solver, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=r"Not converged .*after 1 iterations"):
        model.fit(X, Y)
    assert model.solution_.status is Status.ITERATION_LIMIT
    assert model.n_iter_ == 1
    assert model.solution_.gap > 1e-8 * model.solution_.objective


@pytest.mark.parametrize("max_iter", range(3, 12))
def test_a_fit_within_its_tolerance_is_converged(max_iter):
    """The warning is for those whose gap is larger than tol allows, and for no one else."""
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = SoftmaxRegression(solver="newton", max_iter=max_iter).fit(X, y).solution_
    assert solution.converged == (solution.gap <= 1e-8 * solution.objective)


# scikit-learn's conventions


def test_constructor_arguments_are_left_alone():
    given = {
        "alpha": np.ones((3, 13)),
        "penalize_intercept": 0.5,
        "solver": LBFGS(memory=5),
        "classes": [2, 1, 0],
        "class_weight": {0: 2.0},
        "n_jobs": 1,
        "random_state": np.random.RandomState(0),
    }
    model = SoftmaxRegression(**given).fit(X, Y)
    for name, value in given.items():
        assert getattr(model, name) is value
    assert model.classes == [2, 1, 0]
    assert model.class_weight == {0: 2.0}
    np.testing.assert_array_equal(model.alpha, np.ones((3, 13)))
    assert model.solver.get_params() == LBFGS(memory=5).get_params()


def test_prediction_changes_no_attribute():
    model = SoftmaxRegression().fit(X, Y)
    before = pickle.dumps(model)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        getattr(model, method)(X)
    assert pickle.dumps(model) == before


def test_clone_is_unfitted_and_equal():
    model = SoftmaxRegression(0.3, solver=Newton(exact=True), class_weight="balanced").fit(X, Y)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert copy.solver is not model.solver
    assert copy.get_params()["solver__exact"] is True
    np.testing.assert_array_equal(copy.fit(X, Y).coef_, model.coef_)


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_pickle(fit):
    model = getattr(SoftmaxRegression(), fit)(X, Y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    assert vars(copy).keys() == vars(model).keys()
    np.testing.assert_array_equal(getattr(copy, fit)(X, Y).coef_, getattr(model, fit)(X, Y).coef_)


def test_pipeline():
    pipeline = make_pipeline(StandardScaler(), SoftmaxRegression()).fit(X, Y)
    by_hand = SoftmaxRegression().fit(STANDARD, Y)
    np.testing.assert_allclose(pipeline.predict_proba(X), by_hand.predict_proba(STANDARD), atol=1e-9)


def test_grid_search_over_alpha():
    grid = [1e-3, 1.0, 1e6]
    search = GridSearchCV(SoftmaxRegression(), {"alpha": grid}, scoring="neg_log_loss", cv=3).fit(X, Y)
    assert search.best_params_["alpha"] in grid[:2]
    one_by_one = [cross_val_score(SoftmaxRegression(a), X, Y, scoring="neg_log_loss", cv=3).mean() for a in grid]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], one_by_one, rtol=1e-9)


def test_grid_search_over_a_parameter_of_the_solver():
    """The memory changes the way, not the end."""
    model = SoftmaxRegression(solver=LBFGS())
    search = GridSearchCV(model, {"solver__memory": [2, 10]}, scoring="neg_log_loss", cv=3).fit(X, Y)
    first, second = search.cv_results_["mean_test_score"]
    assert first == pytest.approx(second, rel=1e-3)
    assert search.best_estimator_.solver.memory in (2, 10)
    assert model.solver.memory == 20


def test_parameters_of_the_solver_matter():
    fits = [SoftmaxRegression(solver=LBFGS(memory=m)).fit(X, Y) for m in (1, 20)]
    assert fits[0].n_iter_ != fits[1].n_iter_
    assert fits[0].solution_.objective == pytest.approx(fits[1].solution_.objective, rel=1e-7)


def test_the_solver_may_carry_its_own_tolerance():
    loose = SoftmaxRegression(solver=GradientDescent(tol=0.5)).fit(STANDARD, Y)
    assert loose.solution_.converged
    assert 1e-8 < loose.solution_.gap / loose.solution_.objective <= 0.5


def test_cross_val_score():
    assert cross_val_score(SoftmaxRegression(), X, Y, cv=5).mean() > 0.93


def test_score_of_a_table_with_its_target():
    table = pd.DataFrame(X).add_prefix("x").assign(cultivar=Y)
    model = SoftmaxRegression().fit(table, "cultivar")
    assert model.score(table, "cultivar") == (model.predict(table) == Y).mean()


# No side effects


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("solver", ["auto", Impatient()])
@pytest.mark.parametrize("limit", [1, 2])
def test_blas_threads_and_numpy_errors_are_left_alone(limit, solver):
    with threadpool_limits(limit, user_api="blas"), np.errstate(under="ignore", over="call", divide="print"):
        before = blas_threads(), np.geterr(), warnings.filters[:]
        try:
            SoftmaxRegression(solver=solver).fit(X, Y).predict_proba(X)
        except KeyboardInterrupt:
            assert solver != "auto"
        with pytest.raises(ValueError, match="NaN"):
            SoftmaxRegression().fit(np.full_like(X, np.nan), Y)
        assert (blas_threads(), np.geterr(), warnings.filters[:]) == before
    assert limit in before[0]


def test_the_global_random_state_is_left_alone():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    SoftmaxRegression().fit(X, Y)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


IMPORT = """
import sys, time
import sklearn.base, sklearn.utils.validation
start = time.perf_counter()
import posteriori
posteriori.SoftmaxRegression
took = time.perf_counter() - start
heavy = {"jax", "dask", "fastapi", "matplotlib", "polars"} & sys.modules.keys()
print(took, *sorted(heavy))
"""


def test_import_and_first_use_are_quick_and_light():
    for _ in range(3):  # the first may compile, and others may use the machine
        took, *heavy = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
        ).stdout.split()
        assert heavy == []
        if float(took) < 0.5:
            return
    pytest.fail(f"Three imports took more than half a second each, the last {took} s.")
