"""Covariance functions against their formulas written row by row, against scikit-learn's, and where rows coincide."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sklearn_kernels

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from posteriori.maths.covariance_functions import MATERN_ORDERS, linear, matern, rbf, squared_distances  # noqa: E402

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))


def naive(k, X, Z):
    """One pair of rows after the other."""
    return np.array([[k(x, z) for z in Z] for x in X])


def distance(x, z):
    return np.sqrt(sum((a - b) ** 2 for a, b in zip(x, z, strict=True)))


def matern_of(order):
    return lambda X, Z: matern(X, Z, order)


FORMULAS = {
    "rbf": (rbf, lambda x, z: np.exp(-(distance(x, z) ** 2) / 2)),
    "matern 1/2": (matern_of(0.5), lambda x, z: np.exp(-distance(x, z))),
    "matern 3/2": (
        matern_of(1.5),
        lambda x, z: (1 + np.sqrt(3) * distance(x, z)) * np.exp(-np.sqrt(3) * distance(x, z)),
    ),
    "matern 5/2": (
        matern_of(2.5),
        lambda x, z: (
            (1 + np.sqrt(5) * distance(x, z) + 5 / 3 * distance(x, z) ** 2) * np.exp(-np.sqrt(5) * distance(x, z))
        ),
    ),
    "linear": (linear, lambda x, z: sum(a * b for a, b in zip(x, z, strict=True))),
}
SKLEARN = {
    "rbf": sklearn_kernels.RBF(),
    **{f"matern {int(2 * order)}/2": sklearn_kernels.Matern(nu=order) for order in MATERN_ORDERS},
    "linear": sklearn_kernels.DotProduct(sigma_0=0.0),
}
kernels = pytest.mark.parametrize("name", FORMULAS)
stationary = pytest.mark.parametrize("name", [name for name in FORMULAS if name != "linear"])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@kernels
def test_gram_matrices_are_the_formulas_of_every_pair(name):
    kernel, formula = FORMULAS[name]
    np.testing.assert_allclose(kernel(X, Z), naive(formula, X, Z), rtol=1e-13, atol=1e-15)


@kernels
def test_gram_matrices_are_those_of_scikit_learn(name):
    np.testing.assert_allclose(FORMULAS[name][0](X, Z), SKLEARN[name](X, Z), rtol=1e-13, atol=1e-15)


@kernels
def test_numpy_and_jax_give_the_same(name):
    kernel, _ = FORMULAS[name]
    of_jax = jax.jit(kernel)(jnp.asarray(X), jnp.asarray(Z))
    assert isinstance(kernel(X, Z), np.ndarray)
    assert isinstance(of_jax, jax.Array)
    assert of_jax.dtype == np.float64
    np.testing.assert_allclose(of_jax, kernel(X, Z), rtol=1e-13, atol=1e-15)


@kernels
def test_gram_matrices_of_any_rows_are_positive_semi_definite(name):
    """Also with rows that are nearly or wholly the same, and more rows than features."""
    rows = np.concatenate([X, X[:2], X[:2] + 1e-9, 30.0 * Z])
    gram = FORMULAS[name][0](rows, rows)
    np.testing.assert_allclose(gram, gram.T, rtol=1e-12)
    # rounding of d^2 passes a square root: 1e-13 under it is 3e-7 beyond
    assert np.linalg.eigvalsh(gram)[0] > -1e-6 * np.trace(gram) / len(gram)


@stationary
def test_a_row_has_variance_one_with_itself_and_nothing_is_larger(name):
    gram = FORMULAS[name][0](X, X)
    np.testing.assert_allclose(np.diag(gram), 1.0, atol=1e-7)
    assert (gram <= 1.0).all()
    assert (gram > 0.0).all()


def test_squared_distances_are_never_negative():
    """The binomial formula cancels: of rows far from the origin, some would be at a negative distance."""
    rows = 1e3 + np.random.default_rng(2).normal(size=(60, 3))
    near = rows + 1e-7
    assert ((rows**2).sum(1)[:, None] + (near**2).sum(1) - 2 * rows @ near.T).min() < 0.0
    d2 = squared_distances(rows, near)
    assert d2.min() == 0.0
    np.testing.assert_allclose(d2, naive(distance, rows, near) ** 2, atol=1e-8)


@kernels
def test_slopes_are_those_of_finite_differences(name):
    kernel, _ = FORMULAS[name]
    G = np.random.default_rng(1).normal(size=(len(X), len(Z)))
    slope = np.asarray(jax.jit(jax.grad(lambda X: (G * kernel(X, jnp.asarray(Z))).sum()))(X))
    h = 1e-6
    for n, d in [(0, 0), (3, 1), (6, 2)]:
        step = np.zeros_like(X)
        step[n, d] = h
        difference = (G * (kernel(X + step, Z) - kernel(X - step, Z))).sum() / (2 * h)
        assert slope[n, d] == pytest.approx(difference, rel=1e-7, abs=1e-8)


@stationary
def test_slopes_at_distance_zero_are_zero(name):
    """No row can be more like itself: by lengthscales the diagonal never moves, and no slope is infinite."""

    def diagonal(log_lengthscale):
        rows = jnp.asarray(X) / jnp.exp(log_lengthscale)
        return jnp.diagonal(FORMULAS[name][0](rows, rows)).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(diagonal))(np.zeros(3)), 0.0, atol=1e-5)
    same = np.repeat(X[:1], 3, axis=0)
    of_same = jax.jit(jax.grad(lambda rows: FORMULAS[name][0](rows, jnp.asarray(same)).sum()))
    np.testing.assert_allclose(of_same(same), 0.0, atol=1e-5)
