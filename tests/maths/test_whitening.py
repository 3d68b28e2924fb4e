"""Whitening and quadratic forms: values and slopes against SciPy, JAX's own derivatives and finite differences."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.scipy.linalg import solve_triangular  # noqa: E402

from posteriori.maths.whitening import inverse_factor, quadratic, whitened  # noqa: E402

M, N, CLASSES = 6, 9, 3
RNG = np.random.default_rng(0)


def spd(seed):
    root = np.random.default_rng(seed).normal(size=(M, M + 2))
    return root @ root.T / M + 0.1 * np.eye(M)


K, B, G = spd(1), RNG.normal(size=(M, N)), RNG.normal(size=(M, N))
S, A, g = np.stack([spd(seed) for seed in (2, 3, 4)]), RNG.normal(size=(M, N)), RNG.normal(size=(CLASSES, N))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def symmetric(x):
    return 0.5 * (x + x.T)


def differences(f, x, steps, h=1e-6):
    """Slopes of f in the direction of each step."""
    return np.array([(f(x + h * step) - f(x - h * step)) / (2 * h) for step in steps])


@partial(jax.jit, static_argnums=0)
def slopes(f, arguments, cotangent):
    """The slopes of a function by its arguments."""
    return jax.vjp(f, *arguments)[1](cotangent)


def plain(K, B):
    return solve_triangular(jnp.linalg.cholesky(K), B, lower=True)


def test_the_inverse_factor_is_that_of_cholesky():
    inverse, diagonal = (np.asarray(a) for a in jax.jit(inverse_factor)(S))
    for k in range(CLASSES):
        L = np.linalg.cholesky(S[k])
        np.testing.assert_allclose(inverse[k] @ L, np.eye(M), atol=1e-13)
        np.testing.assert_allclose(diagonal[k], np.diag(L), rtol=1e-13)
        np.testing.assert_allclose(inverse[k].T @ inverse[k], np.linalg.inv(S[k]), rtol=1e-10, atol=1e-12)
    assert 2 * np.log(diagonal).sum() == pytest.approx(sum(np.linalg.slogdet(P)[1] for P in S), rel=1e-12)


def test_a_matrix_without_a_factor_gives_nothing_finite():
    """Training sees it, and adds more to the diagonal."""
    inverse, _ = inverse_factor(jnp.asarray(K - 2 * np.linalg.eigvalsh(K)[0] * np.eye(M)))
    assert not np.isfinite(inverse).all()


def test_whitened_columns_have_the_covariance_removed():
    L = np.linalg.cholesky(K)
    np.testing.assert_allclose(whitened(K, B), scipy.linalg.solve_triangular(L, B, lower=True), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(whitened(K, L), np.eye(M), atol=1e-13)


def test_slopes_of_whitening_are_those_of_its_plain_form():
    own, theirs = ([np.asarray(a) for a in slopes(f, (K, B), G)] for f in (whitened, plain))
    # of a symmetric matrix, only the symmetric part of a slope has a meaning
    np.testing.assert_allclose(symmetric(own[0]), symmetric(theirs[0]), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(own[1], theirs[1], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(own[0], own[0].T, rtol=1e-12, atol=1e-13)


def test_slopes_of_whitening_are_those_of_finite_differences():
    by_K, by_B = (np.asarray(a) for a in slopes(whitened, (K, B), G))
    steps = [symmetric(RNG.normal(size=(M, M))) for _ in range(4)]
    expected = differences(lambda K: (G * np.linalg.solve(np.linalg.cholesky(K), B)).sum(), K, steps)
    np.testing.assert_allclose([(by_K * step).sum() for step in steps], expected, rtol=1e-7)
    steps = RNG.normal(size=(4, M, N))
    expected = differences(lambda B: (G * np.linalg.solve(np.linalg.cholesky(K), B)).sum(), B, steps)
    np.testing.assert_allclose([(by_B * step).sum() for step in steps], expected, rtol=1e-7)


def test_slopes_pass_through_what_made_the_matrix():
    """One parameter that moves K and B at once, as a lengthscale does."""

    def of(f):
        return lambda x: (f(jnp.asarray(K) * jnp.exp(x) + jnp.sin(x) * jnp.eye(M), jnp.asarray(B) * x) ** 2).sum()

    own, theirs = (jax.jit(jax.value_and_grad(of(f)))(0.7) for f in (whitened, plain))
    np.testing.assert_allclose(own, theirs, rtol=1e-12)


def test_quadratic_forms_are_those_of_every_column():
    expected = [[A[:, n] @ S[k] @ A[:, n] for n in range(N)] for k in range(CLASSES)]
    np.testing.assert_allclose(quadratic(S, A), expected, rtol=1e-12)


def test_slopes_of_quadratic_forms_are_those_of_their_plain_form():
    by_S, by_A = (np.asarray(a) for a in slopes(quadratic, (S, A), g))
    expected = slopes(lambda S, A: jnp.einsum("kij,in,jn->kn", S, A, A), (S, A), g)
    np.testing.assert_allclose(by_S, expected[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(by_A, expected[1], rtol=1e-12, atol=1e-13)
    steps = RNG.normal(size=(4, M, N))
    by_hand = differences(lambda A: (g * np.einsum("kij,in,jn->kn", S, A, A)).sum(), A, steps)
    np.testing.assert_allclose([(by_A * step).sum() for step in steps], by_hand, rtol=1e-7)
