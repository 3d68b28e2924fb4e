"""Optima far out on the tail of the likelihood, where a prior is so weak that rows are all but certain."""

from __future__ import annotations

import numpy as np
import pytest

from posteriori import SoftmaxRegression
from posteriori.rows.products import laplacian_gram
from posteriori.solvers.newton import Newton


@pytest.fixture
def separable() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(28, 40))
    return X, (X @ rng.normal(size=(40, 3))).argmax(axis=1)


@pytest.mark.parametrize("alpha", [1e-30, 1e-100])
def test_exact_newton_reaches_the_optimum_of_a_very_weak_prior(
    separable: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    solution = SoftmaxRegression(alpha=alpha, solver=Newton(exact=True)).fit(*separable).solution_
    assert solution.converged
    assert solution.n_iter < 40
    assert solution.gap_bound < 1e-6 * solution.objective


def test_the_hessian_of_rows_that_are_all_but_certain() -> None:
    """diag(p) - p p^T = e [[1, -1], [-1, 1]] for p = (1 - e, e), however small e is."""
    e = 1e-40
    H = laplacian_gram(np.array([[2.0]]), np.array([[1.0 - e], [e]]), None, with_intercept=False)
    np.testing.assert_allclose(H, 4.0 * e * np.array([[1.0, -1.0], [-1.0, 1.0]]), rtol=1e-15)
