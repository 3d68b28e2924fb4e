"""Softmax problems as solvers meet them, in the units of the data."""

from posteriori.softmax.coordinates import CoordinateRule
from posteriori.softmax.likelihood import linear_likelihood
from posteriori.softmax.mode import SolveSettings, find_mode


def softmax_problem(features, target, precision):
    """The objective with a prior of one precision per coefficient (K, D')."""
    has_intercept = precision.shape[1] > features.n_features
    rule = CoordinateRule(False, has_intercept and not precision[:, -1].any(), keep_constant=True)
    likelihood = linear_likelihood(features, target, has_intercept, rule, 1)
    assert likelihood.coordinates.scale is None
    return likelihood.objective(precision)


def solve(problem, solver, start, *, tol, max_iter, random_state=None, report=None):
    """Parameters and solution of a certified solve."""
    mode = find_mode(problem, SolveSettings(solver, tol, max_iter, random_state, report), start)
    return mode.theta, mode.solution
