"""Derivatives of kernels and of their priors against central differences; the polynomial kernel."""

from dataclasses import dataclass

import numpy as np
import pytest

from posteriori.gp.kernels import ARD, RBF, Constant, Linear, Matern, Polynomial, RationalQuadratic
from posteriori.gp.trees import leaves, rebuilt
from posteriori.kernels import ScaledKernel
from posteriori.maths.covariance_functions import MATERN_ORDERS, matern, matern_slope, squared_distances

RNG = np.random.default_rng(0)
n, D = 6, 3
X = RNG.normal(size=(n, D))
LENGTHS = (0.7, 1.3, 2.9)
G = RNG.normal(size=(n, n))
G = G + G.T
STEP = 1e-5


@dataclass(eq=False)
class Cauchy(ScaledKernel):
    """1 / (1 + d^2 / 2), as a user writes it: with public names alone."""

    def gram(self, free, X, Z):
        return 1.0 / (1.0 + 0.5 * squared_distances(self.scaled(free, X), self.scaled(free, Z)))

    def diagonal(self, free, X):
        return X.__array_namespace__().ones(X.shape[0])

    def slopes(self, free, X, by_gram):
        return self.slopes_by_distances(free, X, -0.5 * by_gram * self.gram(free, X, X) ** 2)


KERNELS = {
    "rbf": RBF(LENGTHS),
    "rbf, one lengthscale": RBF(1.7, ard=False),
    "rbf, lengthscales in proportion": RBF(LENGTHS, ard=False),
    **{f"matern {order}": Matern(LENGTHS, order=order) for order in MATERN_ORDERS},
    "rbf of blocks": RBF(LENGTHS, blocks=(0, 1, 0)),
    "rational quadratic": RationalQuadratic(LENGTHS, shape=0.8),
    "rational quadratic, one lengthscale": RationalQuadratic(1.7, ard=False),
    "matern, one lengthscale": Matern(1.7, ard=False),
    "of one's own": Cauchy(LENGTHS),
    "of one's own, one lengthscale": Cauchy(1.7, ard=False),
    "linear": Linear(LENGTHS, ard=True),
    "linear, one lengthscale": Linear(1.7),
    "linear, lengthscales in proportion": Linear(LENGTHS),
    "linear with a reach": Linear(LENGTHS, ard=True, reach=1.5),
    "polynomial": Polynomial(LENGTHS, ard=True),
    "polynomial of degree 3": Polynomial(1.7, degree=3),
    "polynomial with a reach": Polynomial(LENGTHS, ard=True, reach=1.5),
    "polynomial of degree 3 with a reach": Polynomial(1.7, reach=2.0, degree=3),
    "constant": Constant(0.4),
    "sum": RBF(LENGTHS) + Linear(1.5, reach=2.0),
    "product": RBF(LENGTHS) * Linear(1.5),
    "scaled": 2.5 * Matern(LENGTHS, order=1.5),
    "ard": ARD(LENGTHS),
    "ard of a sum": ARD(LENGTHS, inner=RBF(2.0, ard=False) + Linear(1.0, reach=3.0) * Polynomial(1.4) + 0.5),
    "ard of a rational quadratic": ARD(LENGTHS, inner=RationalQuadratic(1.0, ard=False, fixed=True), blocks=(3, 3, 3)),
    "ard within ard": ARD(LENGTHS, inner=ARD((1.1, 0.8, 1.5), inner=Matern(1.2))),
}
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def weights_of(kernel):
    """The symmetric derivative by the Gram matrix.

    For a Matern kernel of order 1/2 its diagonal is zero: that of the Gram matrix, one but for rounding, has the square
    root of a rounding error in it, which differences would divide by their step.
    """
    return G - np.diag(np.diag(G)) if getattr(kernel, "order", None) == 0.5 else G


def moved(free, step=0.3, seed=1):
    """Free parameters some way from where they start."""
    rng = np.random.default_rng(seed)
    return rebuilt(free, [leaf + step * rng.normal(size=np.shape(leaf)) for leaf in leaves(free)])


def by_differences(function, tree):
    """Derivatives of a function of a tree of arrays, one number of it after the other."""
    values, slopes = leaves(tree), []
    for i, leaf in enumerate(values):
        slope = np.empty(np.shape(leaf))
        for at in np.ndindex(slope.shape):
            step = np.zeros(slope.shape)
            step[at] = STEP
            up, down = (rebuilt(tree, [*values[:i], leaf + sign * step, *values[i + 1 :]]) for sign in (1, -1))
            slope[at] = (function(up) - function(down)) / (2 * STEP)
        slopes.append(slope)
    return slopes


def assert_same(tree, expected, **tolerance):
    for got, exact in zip(leaves(tree), expected, strict=True):
        assert np.shape(got) == np.shape(exact)
        np.testing.assert_allclose(got, exact, **tolerance)


@each_kernel
def test_slopes_by_free_parameters_are_those_of_finite_differences(kernel):
    free = moved(kernel.start(D, 1.0))
    G = weights_of(kernel)
    by_free, _ = kernel.slopes(free, X, G)
    expected = by_differences(lambda free: np.vdot(G, kernel.gram(free, X, X)), free)
    assert_same(by_free, expected, rtol=1e-6, atol=1e-6)
    assert by_free.keys() == free.keys()


@each_kernel
def test_slopes_by_rows_are_those_of_finite_differences(kernel):
    free = moved(kernel.start(D, 1.0))
    G = weights_of(kernel)
    _, by_X = kernel.slopes(free, X, G)
    (expected,) = by_differences(lambda rows: np.vdot(G, kernel.gram(free, rows[0], rows[0])), [X])
    np.testing.assert_allclose(by_X, expected, rtol=1e-6, atol=1e-6)


@each_kernel
def test_slopes_are_those_of_jax(kernel):
    jax = pytest.importorskip("jax")
    free, G = moved(kernel.start(D, 1.0)), weights_of(kernel)
    with jax.enable_x64(True):
        in_jax = jax.tree.map(jax.numpy.asarray, free)
        of_jax = jax.grad(lambda free, X: (G * kernel.gram(free, X, X)).sum(), argnums=(0, 1))(
            in_jax, jax.numpy.asarray(X)
        )
    by_free, by_X = kernel.slopes(free, X, G)
    assert_same(by_free, leaves(of_jax[0]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_X, of_jax[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [RBF(0.05), Matern(0.05, order=2.5), Matern(0.05, order=1.5), Matern(0.05, order=0.5)],
    ids=repr,
)
def test_variances_of_rows_that_are_one_have_no_slope(kernel):
    """However short the lengthscale: the diagonal of the derivative by the Gram matrix does not count."""
    free = kernel.start(D, 1.0)
    with_diagonal, by_X = kernel.slopes(free, X, G)
    without, also_by_X = kernel.slopes(free, X, G - np.diag(np.diag(G)))
    np.testing.assert_allclose(with_diagonal["log_lengthscale"], without["log_lengthscale"], atol=1e-7)
    np.testing.assert_allclose(by_X, also_by_X, atol=1e-7)


@pytest.mark.parametrize("kernel", [RBF(LENGTHS), *(Matern(LENGTHS, order=order) for order in MATERN_ORDERS)], ids=repr)
def test_rows_that_are_the_same_have_finite_slopes(kernel):
    """Of all orders: identical rows stay identical at any lengthscale, so that each counts as if it were alone."""
    twice = np.concatenate([X, X[:1]])
    weights = np.zeros((n + 1, n + 1))
    weights[:n, :n] = G
    weights[0, n] = weights[n, 0] = 3.0
    free = kernel.start(D, 1.0)
    by_free, by_X = kernel.slopes(free, twice, weights)
    alone, _ = kernel.slopes(free, X, G)
    np.testing.assert_allclose(by_free["log_lengthscale"], alone["log_lengthscale"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_X[n], 0.0, atol=1e-5)


@each_kernel
def test_prior_slopes_are_those_of_finite_differences(kernel):
    start = kernel.start(D, 1.0)
    free = moved(start, 0.8)
    expected = by_differences(lambda free: kernel.log_prior(free, start), free)
    assert_same(kernel.prior_slopes(free, start), expected, rtol=1e-8, atol=1e-8)
    assert max(np.abs(slope).max() for slope in expected) > 0.01
    at_start = by_differences(lambda free: kernel.log_prior(free, start), start)
    assert_same(kernel.prior_slopes(start, start), at_start, atol=1e-8)


@pytest.mark.parametrize("order", MATERN_ORDERS)
def test_matern_slopes_are_by_squared_distances(order):
    """Rows on a line: the distance of two of them grows, and the kernel falls, at this rate."""
    Z = np.array([[0.0], [0.4], [1.7]])
    d2 = squared_distances(Z, Z)
    slope = matern_slope(Z, order)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        ends = [matern(np.zeros((1, 1)), np.sqrt([[d2[i, j] + step]]), order)[0, 0] for step in (STEP, -STEP)]
        assert slope[i, j] == slope[j, i] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-7)


# The polynomial kernel


@pytest.mark.parametrize("reach", [None, 1.5])
def test_a_polynomial_of_degree_one_is_linear(reach):
    one, linear = Polynomial(LENGTHS, reach=reach, degree=1), Linear(LENGTHS, reach=reach)
    free = one.start(D, 1.0)
    assert free.keys() == linear.start(D, 1.0).keys()
    np.testing.assert_allclose(one.gram(free, X, X[:4]), linear.gram(free, X, X[:4]), rtol=1e-14)
    np.testing.assert_allclose(one.diagonal(free, X), linear.diagonal(free, X), rtol=1e-14)
    got, expected = one.slopes(free, X, G), linear.slopes(free, X, G)
    np.testing.assert_allclose(got[0]["log_lengthscale"], expected[0]["log_lengthscale"], rtol=1e-12)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("degree", [2, 3])
def test_a_polynomial_kernel_is_the_formula_of_every_pair(degree):
    kernel = Polynomial(LENGTHS, reach=1.5, degree=degree)
    free = kernel.start(D, 1.0)
    Z = X[:4] + 0.3

    def k(x, z):
        product = sum(a * b / length**2 for a, b, length in zip(x, z, LENGTHS, strict=True))
        return product**degree * np.exp(-(x @ x + z @ z) / (2 * 1.5**2))

    np.testing.assert_allclose(kernel.gram(free, X, Z), [[k(x, z) for z in Z] for x in X], rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(free, X), [k(x, x) for x in X], rtol=1e-12)


def test_a_polynomial_of_degree_two_is_the_inner_product_of_all_products_of_two_features():
    pairs = (X[:, :, None] * X[:, None, :]).reshape(n, -1)
    kernel = Polynomial(1.0)
    np.testing.assert_allclose(kernel.gram(kernel.start(D, 1.0), X, X), pairs @ pairs.T, rtol=1e-12)


@pytest.mark.parametrize("degree", [0, -1, 1.0, 2.5, True, None, "two"], ids=repr)
def test_a_degree_is_a_whole_number_of_at_least_one(degree):
    with pytest.raises(ValueError, match=rf"Polynomial's degree={degree!r} must be a whole number of at least 1"):
        Polynomial(degree=degree).validate()


@pytest.mark.parametrize("degree", [1, 2, np.int64(5)])
def test_degrees_that_make_sense_are_accepted(degree):
    Polynomial(degree=degree).validate()


def test_a_polynomial_s_other_parameters_are_checked_too():
    with pytest.raises(ValueError, match=r"Polynomial's reach=0.0 must be None or a positive number"):
        Polynomial(reach=0.0).validate()
    with pytest.raises(ValueError, match=r"Polynomial's lengthscale=-1.0 must be positive"):
        Polynomial(-1.0).validate()


def test_polynomials_are_learned_and_told_in_the_data_s_units():
    unit = np.array([0.01, 3.0, 400.0])
    kernel = Polynomial(LENGTHS, ard=True, degree=3)
    free = moved(kernel.start(D, 1.0))
    learned = kernel.learned(free, unit)
    assert learned.degree == 3
    expected = kernel.gram(free, X, X)
    np.testing.assert_allclose(learned.gram(learned.start(D, 1.0), X * unit, X * unit), expected, rtol=1e-10)
