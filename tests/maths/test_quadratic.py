"""Weighted Gram matrices and quadratic forms: plain loops, both paths, and each as the adjoint of the other."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from posteriori.maths import quadratic
from posteriori.rows.products import quadratic_forms, weighted_grams

layouts = pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, sp.csr_array])
intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["flat", "intercept"])
widths = pytest.mark.parametrize("D", [1, 4, 95, 96, 97, 110])  # up to 96 columns, the intercept's included, are packed


def rows(D, n=23, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.7)


def with_ones(X, intercept):
    return np.c_[X, np.ones(len(X))] if intercept else X


def naive_grams(Z, weights):
    out = np.zeros((len(weights), Z.shape[1], Z.shape[1]))
    for m, w in enumerate(weights):
        for w_n, z in zip(w, Z, strict=True):
            out[m] += w_n * np.outer(z, z)
    return out


def naive_forms(Z, S):
    return np.array([[z @ S_m @ z for z in Z] for S_m in S])


@layouts
@intercepts
@widths
def test_grams_and_forms_are_plain_loops(layout, intercept, D):
    X = rows(D)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.0, 2.0, (3, len(X)))
    weights[0, ::3] = 0.0
    S = rng.normal(size=(3, D + intercept, D + intercept))  # not symmetric
    Z, given = with_ones(X, intercept), layout(X)
    np.testing.assert_allclose(weighted_grams(given, weights, intercept), naive_grams(Z, weights), atol=1e-12)
    np.testing.assert_allclose(quadratic_forms(given, S, intercept), naive_forms(Z, S), atol=1e-10)
    np.testing.assert_array_equal(given.toarray() if sp.issparse(given) else given, X)


@intercepts
@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_rows_are_taken_a_slice_at_a_time(monkeypatch, intercept, n):
    monkeypatch.setattr(quadratic, "_PACKED_VALUES", 1)
    X = rows(3, n)
    rng = np.random.default_rng(2)
    weights, S = rng.uniform(size=(2, n)), rng.normal(size=(2, 3 + intercept, 3 + intercept))
    Z = with_ones(X, intercept)
    np.testing.assert_allclose(weighted_grams(X, weights, intercept), naive_grams(Z, weights), atol=1e-12)
    np.testing.assert_allclose(quadratic_forms(X, S, intercept), naive_forms(Z, S), atol=1e-12)


@intercepts
def test_packed_or_not_is_the_same(monkeypatch, intercept):
    X, rng = rows(6, 40), np.random.default_rng(3)
    weights, S = rng.uniform(size=(4, 40)), rng.normal(size=(4, 6 + intercept, 6 + intercept))
    packed = weighted_grams(X, weights, intercept), quadratic_forms(X, S, intercept)
    monkeypatch.setattr(quadratic, "PACKED_FEATURES", 0)
    np.testing.assert_allclose(weighted_grams(X, weights, intercept), packed[0], atol=1e-12)
    np.testing.assert_allclose(quadratic_forms(X, S, intercept), packed[1], atol=1e-12)


@layouts
@intercepts
@pytest.mark.parametrize("D", [3, 100])
@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=10)
def test_forms_are_the_adjoint_of_grams(layout, intercept, D, seed):
    """sum_m tr(S_m G_m) = sum_mn w_mn q_mn, whatever S and w."""
    rng = np.random.default_rng(seed)
    X = rows(D, 15, seed)
    weights, S = rng.uniform(size=(2, 15)), rng.normal(size=(2, D + intercept, D + intercept))
    left = np.vdot(S, weighted_grams(layout(X), weights, intercept))
    right = np.vdot(weights, quadratic_forms(layout(X), S, intercept))
    assert left == pytest.approx(right, rel=1e-10, abs=1e-9)


def test_no_rows_and_no_matrices():
    X = np.empty((0, 2))
    np.testing.assert_array_equal(weighted_grams(X, np.empty((2, 0)), True), np.zeros((2, 3, 3)))
    assert quadratic_forms(X, np.ones((2, 3, 3)), True).shape == (2, 0)
    assert quadratic_forms(np.ones((4, 2)), np.empty((0, 3, 3)), True).shape == (0, 4)
