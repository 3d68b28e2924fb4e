"""Inverses and solutions made of products are those of LAPACK, whatever the side of the matrix."""

import numpy as np
import pytest

from posteriori.maths.blocked import BlockedFactor, inverse_and_log_determinant

SIDES = [1, 2, 95, 96, 97, 193, 301]


def positive_definite(n, smallest=1e-3):
    """A matrix with eigenvalues from `smallest` to 1, in a random basis."""
    rng = np.random.default_rng(n)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (Q * np.geomspace(smallest, 1.0, n)) @ Q.T


@pytest.mark.parametrize("n", SIDES)
def test_inverse_and_determinant(n):
    A = positive_definite(n)
    inverse, log_determinant = inverse_and_log_determinant(A)
    np.testing.assert_allclose(inverse @ A, np.eye(n), atol=1e-10)
    np.testing.assert_allclose(inverse, inverse.T, rtol=0, atol=1e-10)
    assert log_determinant == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-12, abs=1e-9)


def test_only_the_lower_triangle_is_read_and_nothing_is_written():
    A = positive_definite(201)
    lower = np.tril(A) + np.triu(np.full_like(A, np.nan), 1)
    kept = lower.copy()
    np.testing.assert_allclose(inverse_and_log_determinant(lower)[0], inverse_and_log_determinant(A)[0], atol=1e-12)
    np.testing.assert_array_equal(lower, kept)


@pytest.mark.parametrize("n", [3, 150])
def test_a_matrix_that_is_not_positive_definite_is_refused(n):
    A = np.eye(n)
    A[-1, -1] = -1.0
    with pytest.raises(FloatingPointError, match="not positive definite"):
        inverse_and_log_determinant(A)


@pytest.mark.parametrize("n", SIDES)
def test_solutions_with_a_factor(n):
    L = np.linalg.cholesky(positive_definite(n))
    B = np.random.default_rng(1).normal(size=(n, 5))
    kept = B.copy()
    np.testing.assert_allclose(L @ BlockedFactor.of(L).solve(B), B, atol=1e-10)
    np.testing.assert_array_equal(B, kept)
