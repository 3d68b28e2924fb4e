"""Small linear algebra: like numpy's where the matrix is good, harmless where it is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posteriori.maths.linalg import factored_spd, inverse_spd, null_space


def spd(rng, size, rank=None):
    """A random matrix with eigenvalues between 0.1 and 2, or of lower rank."""
    Q = np.linalg.qr(rng.normal(size=(size, size)))[0][:, : size if rank is None else rank]
    return (Q * rng.uniform(0.1, 2.0, Q.shape[1])) @ Q.T


def units(rng, size, decades):
    return 10.0 ** rng.uniform(-decades, decades, size)


seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 8)
decades = pytest.mark.parametrize("decades", [0, 8])  # of the units: entries of M then span 1e-16 to 1e16


@decades
@given(seeds, sizes)
@settings(deadline=None, max_examples=20)
def test_factored_spd_solves(decades, seed, size):
    rng = np.random.default_rng(seed)
    M, s, r = spd(rng, size), units(rng, size, decades), rng.normal(size=size)
    # the solution in units s is 1/s times the solution in units of one for s times the right-hand side
    np.testing.assert_allclose(factored_spd(M * s * s[:, None])(r * s) * s, np.linalg.solve(M, r), rtol=1e-9, atol=1e-9)


@decades
@given(seeds, sizes)
@settings(deadline=None, max_examples=20)
def test_inverse_spd_inverts(decades, seed, size):
    rng = np.random.default_rng(seed)
    M, s = spd(rng, size), units(rng, size, decades)
    inverse = inverse_spd(M * s * s[:, None])
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-14)
    np.testing.assert_allclose(inverse * s * s[:, None], np.linalg.inv(M), rtol=1e-6, atol=1e-6)


@decades
@given(seeds, st.integers(2, 8), st.data())
@settings(deadline=None, max_examples=20)
def test_a_rank_deficient_system_is_solved_where_it_can_be(decades, seed, size, data):
    rng = np.random.default_rng(seed)
    s = units(rng, size, decades)
    M = spd(rng, size, rank=data.draw(st.integers(1, size - 1))) * s * s[:, None]
    r = M @ (rng.normal(size=size) / s)  # in the range of M
    np.testing.assert_allclose(M @ factored_spd(M)(r) / s, r / s, atol=1e-5)
    np.testing.assert_allclose(M @ inverse_spd(M) @ r / s, r / s, atol=1e-4)


def test_the_ridge_is_that_of_the_scaled_matrix():
    M = np.diag([4e10, 1e-10])
    np.testing.assert_allclose(inverse_spd(M, ridge=1.0), np.diag([1 / 8e10, 0.5e10]), rtol=1e-14)
    np.testing.assert_allclose(factored_spd(M, ridge=3.0)(np.ones(2)), [1 / 16e10, 0.25e10], rtol=1e-14)


def test_the_ridge_grows_until_the_matrix_is_definite():
    M = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1: a ridge of 1e-13 100^7 = 10 is the first to do
    np.testing.assert_allclose(factored_spd(M)(np.array([1.0, 0.0])), np.linalg.inv(M + 10 * np.eye(2))[0], rtol=1e-9)


@pytest.mark.parametrize("M", [np.diag([4.0, 0.0, 1.0]), np.zeros((3, 3)), np.diag([4.0, -1e-17, 1.0])])
def test_a_direction_without_curvature_is_left_alone(M):
    expected = [1 / d if d > 0 else 0.0 for d in M.diagonal()]
    np.testing.assert_allclose(factored_spd(M)(np.ones(3)), expected, rtol=1e-12)
    np.testing.assert_allclose(inverse_spd(M), np.diag(expected), rtol=1e-9)


def test_the_matrix_is_not_modified():
    M = spd(np.random.default_rng(0), 4)
    before, r = M.copy(), np.ones(4)
    factored_spd(M)(r), inverse_spd(M), null_space(M)
    np.testing.assert_array_equal(M, before)
    assert r.tolist() == [1.0] * 4


@pytest.mark.parametrize("decades", [0, 4])
@given(seeds, st.integers(1, 8), st.data())
@settings(deadline=None, max_examples=20)
def test_null_space_is_numpys(decades, seed, size, data):
    rng = np.random.default_rng(seed)
    rank = data.draw(st.integers(0, size))
    root, s = rng.normal(size=(rank, size)), units(rng, size, decades)
    N = null_space((root.T @ root) * s * s[:, None])
    assert N.shape == (size, size - rank)
    np.testing.assert_allclose(N.T @ N, np.eye(size - rank), atol=1e-12)
    if decades == 0:
        exact = np.linalg.svd(root)[2][rank:]  # right singular vectors of singular value zero
        np.testing.assert_allclose(N @ N.T, exact.T @ exact, atol=1e-5)
    else:
        np.testing.assert_allclose((root * s) @ N / np.linalg.norm(root * s), 0.0, atol=1e-5)


def test_null_space_of_a_regular_matrix_is_empty_in_any_units():
    assert null_space(np.diag([1e-300, 1.0, 1e300])).shape == (3, 0)
    np.testing.assert_allclose(null_space(np.zeros((2, 2))) @ null_space(np.zeros((2, 2))).T, np.eye(2), atol=1e-15)
