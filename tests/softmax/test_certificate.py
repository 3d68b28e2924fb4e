"""The certificate against an independent Newton method in extended precision, on problems made to break it."""

import math
import warnings

import numpy as np
import pytest
from benchmarks.wild.reference import EXTENDED, objective
from hypothesis import given
from hypothesis import strategies as st

from posteriori import LBFGS, Newton, SoftmaxRegression, Solution, Status

SOLVERS = {
    "auto": "auto",
    "Newton by the Hessian": Newton(exact=True),
    "Newton by products": Newton(exact=False),
    "lbfgs": "lbfgs",
    "short memory": LBFGS(memory=2),
    "gd": "gd",
    "sgd": "sgd",
}
ALPHAS = (0.0, 1e-100, 1e-30, 1e-16, 1e-12, 1e-8, 1e-4, 1e-2, 1.0, 100.0)
TOLERANCES = (1e-12, 1e-8, 1e-8, 1e-4)
TROUBLES = {
    "none": lambda rng, X: X,
    "duplicated": lambda rng, X: np.column_stack([X, X[:, :1]]),
    "collinear": lambda rng, X: np.column_stack([X, X @ rng.normal(size=X.shape[1])]),
    "nearly collinear": lambda rng, X: np.column_stack([X, X[:, 0] + 1e-9 * rng.normal(size=len(X))]),
    "offset": lambda rng, X: X + 1e6 * rng.normal(size=X.shape[1]),
    "scaled": lambda rng, X: X * 10.0 ** rng.uniform(-8, 8, X.shape[1]),
    "constant": lambda rng, X: np.column_stack([X, np.full(len(X), 3.0)]),
    "zero": lambda rng, X: np.column_stack([X, np.zeros(len(X))]),
}


def nasty(number):
    """A small problem with trouble in it, and a model with a random solver: all from one number."""
    rng = np.random.default_rng([18, number])
    N, D, K = int(rng.integers(4, 26)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    X = rng.normal(size=(N, D))
    y = (2.0 * X @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)
    y[:K] = np.arange(K)
    trouble = list(TROUBLES)[rng.integers(len(TROUBLES))]
    X = TROUBLES[trouble](rng, X)
    weight = rng.uniform(0.1, 3.0, N) if rng.random() < 0.3 else None
    solver = list(SOLVERS)[rng.integers(len(SOLVERS))]
    options = {"alpha": ALPHAS[rng.integers(len(ALPHAS))], "tol": TOLERANCES[rng.integers(len(TOLERANCES))]}
    model = SoftmaxRegression(**options, solver=SOLVERS[solver], fit_intercept=rng.random() < 0.8, n_jobs=1)
    return X, y, weight, model, f"{trouble}, {solver}, {options}"


def check(number):
    """The record claims no more than the reference finds to be true.

    Coefficients of 1e9 and more, whose products with the columns all but cancel, leave few digits to a logit in
    float64: J is known no better than that.
    """
    X, y, weight, model, name = nasty(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = model.fit(X, y, weight).solution_
    J, theta = objective(X, y, weight, model)
    here = J.value(theta)
    found = [least for least in (J.least(), J.least(theta)) if least is not None]
    assert solution.gap >= 0, name
    terms = np.abs(X) @ np.abs(model.coef_).max(axis=0) + np.abs(model.intercept_).max()
    known = 4.0 * np.finfo(float).eps * float(J.c @ terms)
    assert float(here) == pytest.approx(solution.objective, rel=1e-8, abs=known), name
    if solution.converged:
        assert solution.gap <= max(model.tol * abs(solution.objective), solution.rounding), name
    if solution.status is Status.SEPARATED or not found:
        return False
    true, rounding = float(here - min(found)), 1e-15 * abs(solution.objective) + known
    name = f"{name}: {solution}, true gap {true}"
    if solution.converged:
        assert true <= 2.0 * model.tol * abs(solution.objective) + solution.rounding + rounding, name
    if solution.gap_bound is not None:
        assert true <= solution.gap_bound, name
    return True


@pytest.mark.skipif(not EXTENDED, reason="this machine has no numbers beyond float64")
def test_a_record_claims_no_more_than_is_true():
    assert sum(check(number) for number in range(30)) >= 20, "most problems have a finite optimum"


@pytest.mark.slow
@pytest.mark.skipif(not EXTENDED, reason="this machine has no numbers beyond float64")
@pytest.mark.parametrize("start", range(30, 730, 100))
def test_records_of_many_problems_claim_no_more_than_is_true(start):
    for number in range(start, start + 100):
        check(number)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
RECORD = {"gradient_norm": 1.0, "gap_bound": None, "n_iter": 1, "n_passes": 1, "trace": []}


@given(st.sampled_from(Status), NUMBERS, NUMBERS, st.floats(0.0, 1.0), st.floats(0.0, 1e-3))
def test_no_record_says_converged_with_a_gap_above_the_tolerance(status, J, gap, tol, rounding):
    for make in (Solution, Solution.ended):
        try:
            solution = make(status, objective=J, gap=gap, tol=tol, rounding=rounding, **RECORD)
        except ValueError:
            assert not gap >= 0 or make is Solution
            continue
        assert solution.gap >= 0
        if solution.status is Status.CONVERGED:
            assert solution.gap <= max(tol * abs(J), rounding)
            assert math.isfinite(gap) or math.isinf(J)


def test_the_gap_decides_the_status_and_the_solver_does_not():
    def status(said, gap):
        return Solution.ended(said, objective=-10.0, gap=gap, tol=1e-3, rounding=1e-15, **RECORD).status

    assert status(Status.CONVERGED, 0.02) is Status.ITERATION_LIMIT
    assert status(Status.CONVERGED, math.inf) is Status.ITERATION_LIMIT
    assert status(Status.ITERATION_LIMIT, 0.01) is Status.CONVERGED
    assert status(Status.DIVERGED, 5.0) is Status.DIVERGED
    assert status(Status.SEPARATED, 0.0) is Status.SEPARATED
    assert status(Status.INTERRUPTED, 0.0) is Status.INTERRUPTED


def test_records_of_earlier_versions_which_do_not_know_their_tolerance_are_as_they_were():
    assert Solution(Status.CONVERGED, objective=1.0, gap=0.5, **RECORD).gap == 0.5
