"""Precisions of the prior: each against its dense matrix, in every basis of the classes."""

import warnings

import numpy as np
import pytest

from posteriori.softmax.pairs import contrasts
from posteriori.softmax.precision import DiagonalPrecision, KroneckerPrecision, MatrixPrecision

K, D = 3, 4


def spd(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size + 2))
    return root @ root.T / size + 0.1 * np.eye(size)


def values(alike=False, seed=1):
    a = np.random.default_rng(seed).uniform(0.2, 3.0, (K, D))
    return np.array(np.broadcast_to(a[0], (K, D))) if alike else a


CENTRE = np.array([0.7, -1.3, 2.0, 1.0])


def centred(a):
    """Block diagonal over classes: diag(a_k, 0) + tau_k u u^T."""
    R = np.zeros((K, D, K, D))
    for k in range(K):
        R[k, :, k] = np.diag(np.append(a[k, :-1], 0.0)) + a[k, -1] * np.outer(CENTRE, CENTRE)
    return R.reshape(K * D, K * D)


CASES = {
    "diagonal": (DiagonalPrecision(values()), np.diag(values().ravel())),
    "diagonal, alike": (DiagonalPrecision(values(True)), np.diag(values(True).ravel())),
    "centre": (DiagonalPrecision(values(), CENTRE), centred(values())),
    "centre, alike": (DiagonalPrecision(values(True), CENTRE), centred(values(True))),
    "kronecker": (KroneckerPrecision(spd(K), spd(D, 2)), np.kron(spd(K), spd(D, 2))),
    "matrix": (MatrixPrecision(spd(K * D, 3), (K, D)), spd(K * D, 3)),
}
cases = pytest.mark.parametrize(("precision", "R"), CASES.values(), ids=CASES)
BASES = {
    "identity": np.eye(K),
    "contrasts": contrasts(K),
    "one class": np.eye(K)[:, :1],
    "any": np.random.default_rng(4).normal(size=(K, 2)),
}


@cases
def test_products_diagonals_and_determinants_are_those_of_the_matrix(precision, R):
    V = np.random.default_rng(5).normal(size=(K, D))
    before = V.copy()
    np.testing.assert_allclose(precision.times(V).ravel(), R @ V.ravel(), atol=1e-12)
    np.testing.assert_array_equal(V, before)
    np.testing.assert_allclose(precision.diagonal, R.diagonal().reshape(K, D), rtol=1e-13)
    assert precision.log_det() == pytest.approx(np.linalg.slogdet(R)[1], abs=1e-10)
    assert precision.inverse_norm(V) == pytest.approx(V.ravel() @ np.linalg.solve(R, V.ravel()), rel=1e-10)


@cases
def test_largest_bounds_the_eigenvalues_closely(precision, R):
    top = np.linalg.eigvalsh(R)[-1]
    assert top * (1 - 1e-12) <= precision.largest <= 2 * top


@cases
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_the_matrix_in_a_basis(precision, R, basis):
    Q = np.kron(basis, np.eye(D))
    np.testing.assert_allclose(precision.matrix(basis), Q.T @ R @ Q, atol=1e-12)


@cases
def test_exchangeable_precisions_do_not_change_when_classes_do(precision, R):
    turn = np.kron(np.eye(K)[[2, 0, 1]], np.eye(D))
    unchanged = np.allclose(turn @ R @ turn.T, R)
    assert precision.exchangeable == unchanged
    if unchanged:  # what is common to all classes then has the precision of one class, and is on its own
        Q, common = np.kron(contrasts(K), np.eye(D)), np.kron(np.full((K, 1), K**-0.5), np.eye(D))
        np.testing.assert_allclose(Q.T @ R @ common, 0.0, atol=1e-12)
        np.testing.assert_allclose(common.T @ R @ common, precision.matrix(np.eye(K)[:, :1]), atol=1e-12)


def test_flat_and_singular_precisions_are_improper():
    a = values()
    a[1, 2] = 0.0
    assert DiagonalPrecision(a).log_det() == -np.inf
    assert MatrixPrecision(np.diag(a.ravel()), (K, D)).log_det() == -np.inf
    V = np.ones((K, D))
    assert DiagonalPrecision(a).inverse_norm(V) == np.inf
    V[1, 2] = 0.0
    assert DiagonalPrecision(a).inverse_norm(V) == pytest.approx((1 / a[a > 0]).sum(), rel=1e-12)


@pytest.mark.parametrize("size", [1e154, 1e200])
def test_a_norm_beyond_the_range_of_numbers_is_infinite_without_a_word(size):
    """Each square is a number and their sum is not, or not even the squares are."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DiagonalPrecision(np.ones((K, D))).inverse_norm(np.full((K, D), size)) == np.inf


def test_a_centre_at_the_origin_is_no_centre():
    origin = np.append(np.zeros(D - 1), 1.0)
    plain, tilted = DiagonalPrecision(values()), DiagonalPrecision(values(), origin)
    V = np.random.default_rng(5).normal(size=(K, D))
    np.testing.assert_allclose(tilted.times(V), plain.times(V), rtol=1e-14)
    np.testing.assert_allclose(tilted.diagonal, plain.diagonal, rtol=1e-14)
    np.testing.assert_allclose(tilted.matrix(np.eye(K)), plain.matrix(np.eye(K)), atol=1e-14)


@cases
def test_contrasts_and_what_classes_share(precision, R):
    """Their covariances are those of the whole prior, and the precision is put together again."""
    Q, together = np.kron(contrasts(K), np.eye(D)), np.kron(np.full((K, 1), 1.0 / K), np.eye(D))
    prior, S = precision.of_contrasts(contrasts(K)), np.linalg.inv(R)
    np.testing.assert_allclose(np.linalg.inv(prior.precision), Q.T @ S @ Q, atol=1e-10)
    tilt = np.zeros((D, (K - 1) * D)) if prior.tilt is None else prior.tilt
    np.testing.assert_allclose(tilt @ Q.T @ S @ Q, together.T @ S @ Q, atol=1e-10)
    rest = together - Q @ tilt.T  # of u - T B
    np.testing.assert_allclose(np.linalg.inv(K * prior.common), rest.T @ S @ rest, atol=1e-10)
    assert (prior.tilt is None) == precision.exchangeable


@pytest.mark.parametrize("alike", [False, True])
def test_the_shared_precision_keeps_digits_that_its_matrix_loses(alike):
    a = values(alike) * [1e-40, 1e-40, 1e-40, 1.0]
    prior = DiagonalPrecision(a, CENTRE).of_contrasts(contrasts(K))
    assert 2 * np.log(prior.root.diagonal()).sum() == pytest.approx(np.log(a.mean(axis=0)).sum(), rel=1e-14)
    np.testing.assert_allclose(prior.root.T @ prior.root, prior.common, rtol=1e-12)
    if not alike:
        like = DiagonalPrecision(values() * [1e-3, 1e-3, 1e-3, 1.0], CENTRE).of_contrasts(contrasts(K))
        np.testing.assert_allclose(prior.tilt, like.tilt, atol=1e-12)
