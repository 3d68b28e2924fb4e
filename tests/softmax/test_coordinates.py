"""Coordinates: the same logits before and after, there and back, and the choice of those that keep digits."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from posteriori.rows.memory import MemoryBlocks
from posteriori.softmax.coordinates import CoordinateRule, Coordinates
from posteriori.softmax.moments import ObservedMoments

K, D, N = 3, 4, 25
MAY_SHIFT, MAY_NOT = (CoordinateRule(False, allowed, keep_constant=True) for allowed in (True, False))


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(N, D)) * [1.0, 50.0, 1e-2, 2.0] + [0.0, 7.0, 1.0, -3.0]


def blocks(X, c=None):
    return MemoryBlocks(X, np.arange(X.shape[0]) % K, c, K)


def observed(X, c=None):
    return ObservedMoments.of(blocks(X, c), K)


def logits(X, theta):
    return X @ theta[:, :D].T + (theta[:, D] if theta.shape[1] > D else 0.0)


SHIFT, SCALE = np.array([1.0, -2.0, 0.0, 10.0]), np.array([2.0, 0.1, 1.0, 300.0])
CASES = {
    "none": Coordinates(),
    "shift": Coordinates(shift=SHIFT),
    "scale": Coordinates(scale=SCALE),
    "both": Coordinates(SHIFT, SCALE),
}
cases = pytest.mark.parametrize("coordinates", CASES.values(), ids=CASES)


def moved(X, coordinates):
    shift = 0.0 if coordinates.shift is None else coordinates.shift
    return (X - shift) * (1.0 if coordinates.scale is None else coordinates.scale)


@cases
@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_logits_are_the_same_and_the_way_back(coordinates, seed):
    theta = np.random.default_rng(seed).normal(size=(K, D + 1))
    before = theta.copy()
    inner = coordinates.inward(theta)
    np.testing.assert_allclose(logits(moved(rows(), coordinates), inner), logits(rows(), theta), atol=1e-9)
    np.testing.assert_allclose(coordinates.outward(inner), theta, atol=1e-10)
    np.testing.assert_allclose(coordinates.inward(coordinates.outward(theta)), theta, atol=1e-8)
    np.testing.assert_array_equal(theta, before)


@cases
@pytest.mark.parametrize("width", [D, D + 1])
def test_the_matrix_does_what_outward_does(coordinates, width):
    theta = np.random.default_rng(1).normal(size=(K, width))
    M = coordinates.outward_matrix(width)
    np.testing.assert_allclose([M @ row for row in theta], coordinates.outward(theta), atol=1e-12)


def test_without_an_intercept_only_the_scale_counts():
    theta = np.random.default_rng(2).normal(size=(K, D))
    inner = CASES["scale"].inward(theta)
    np.testing.assert_allclose(logits(rows() * SCALE, inner), logits(rows(), theta), rtol=1e-12)


def test_units():
    assert Coordinates().unit == 1.0
    np.testing.assert_allclose(CASES["both"].unit, 1 / SCALE)
    assert [name for name, coordinates in CASES.items() if coordinates.is_identity] == ["none"]


@pytest.mark.parametrize("safe", CASES.values(), ids=CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_coordinates_are_those_of_standardised_columns(safe, weighted):
    X = rows()
    c = np.random.default_rng(5).uniform(0.5, 2.0, N) if weighted else None
    seen = observed(moved(X, safe), c)
    coordinates = Coordinates.standard(safe, seen, np.sqrt(seen.variance), centred=True)
    expected = StandardScaler().fit(X, sample_weight=c).transform(X)
    np.testing.assert_allclose(moved(X, coordinates), expected, atol=1e-8)
    assert coordinates.centre is None


@pytest.mark.parametrize("safe", [CASES["none"], CASES["scale"]], ids=["none", "scale"])
def test_columns_that_cannot_be_centred_have_a_centre(safe):
    X = rows() * (np.random.default_rng(6).random((N, D)) < 0.5)
    seen = observed(sp.csr_array(moved(X, safe)))
    coordinates = Coordinates.standard(safe, seen, np.sqrt(seen.variance), centred=False)
    assert coordinates.shift is None
    Z = moved(X, coordinates)
    np.testing.assert_allclose(Z.std(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(coordinates.centre, np.append(Z.mean(axis=0), 1.0), rtol=1e-9, atol=1e-12)


def test_a_constant_column_keeps_its_unit():
    X = rows()
    X[:, 1] = 4.0
    seen = observed(X)
    coordinates = Coordinates.standard(Coordinates(), seen, np.sqrt(seen.variance), centred=True)
    assert coordinates.scale[1] == 1.0
    np.testing.assert_allclose(moved(X, coordinates)[:, 1], 0.0, atol=1e-14)


# Coordinates for point estimates


def test_ordinary_data_stay_as_they_are():
    coordinates = Coordinates.safe_for(blocks(rows()), observed(rows()), MAY_SHIFT)
    assert coordinates == Coordinates()


def test_columns_far_from_the_origin_are_shifted():
    X = rows()
    X[:, 2] = 1e9 + np.arange(N)
    X[:, 3] = 1e9  # constant: it stays what it is
    coordinates = Coordinates.safe_for(blocks(X), observed(X), MAY_SHIFT)
    np.testing.assert_allclose(coordinates.shift, [0.0, 0.0, X[:, 2].mean(), 0.0], rtol=1e-12)
    assert coordinates.scale is None
    assert Coordinates.safe_for(blocks(X), observed(X), MAY_NOT) == Coordinates()
    sparse = sp.csr_array(X)
    assert Coordinates.safe_for(blocks(sparse), observed(sparse), MAY_SHIFT) == Coordinates()


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_columns_whose_squares_are_lost_are_scaled(size, layout):
    X = rows()
    X[:, 1] *= size
    X[:, 3] = 0.0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        seen = observed(layout(X))
        if size < 1:
            X[:, 1] = X[:, 1] * 1e60  # squares that are not yet zero
            seen = observed(layout(X))
        coordinates = Coordinates.safe_for(blocks(layout(X)), seen, MAY_SHIFT)
    expected = 1 / np.where(np.arange(D) == 3, 1.0, np.abs(X).max(axis=0))
    np.testing.assert_allclose(coordinates.scale, expected, rtol=1e-12)
