"""Conjugate gradients: exact after n products, and a decrement that grows to 1/2 g^T H^{-1} g."""

import numpy as np
import pytest

from posteriori.solvers.conjugate_gradient import conjugate_gradient


def spd(n, condition, seed=0):
    """Symmetric, with eigenvalues from 1 to `condition`."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return Q * np.geomspace(1.0, condition, n) @ Q.T


def solve(H, g, M=None, rtol=1e-12, max_products=1000, enough=0.0):
    """By conjugate gradients on (2, n/2) arrays, the shape of parameters; M is the preconditioner."""
    shape = (2, len(g) // 2)
    operators = [(lambda V, A=A: (A @ V.ravel()).reshape(shape)) for A in (H, np.eye(len(g)) if M is None else M)]
    step = conjugate_gradient(*operators, g.reshape(shape), rtol, max_products, enough)
    return step.direction.ravel(), step.decrement, step.n_products


def gradient(n):
    return np.random.default_rng(1).standard_normal(n)


@pytest.mark.parametrize(("n", "condition"), [(2, 1e6), (6, 1e3), (20, 10.0), (20, 1.0)])
def test_exact_in_at_most_n_products(n, condition):
    H, g = spd(n, condition), gradient(n)
    direction, decrement, n_products = solve(H, g, max_products=n)
    exact = -np.linalg.solve(H, g)
    np.testing.assert_allclose(direction, exact, atol=1e-6 * np.abs(exact).max())
    assert decrement == pytest.approx(-0.5 * g @ exact, rel=1e-8)
    assert n_products <= n
    if condition == 1.0:
        assert n_products == 1


def test_products_are_as_many_as_distinct_eigenvalues():
    Q, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((12, 12)))
    H = Q * np.repeat([1.0, 7.0, 50.0], 4) @ Q.T
    direction, _, n_products = solve(H, gradient(12), rtol=1e-9)
    assert n_products == 3
    np.testing.assert_allclose(H @ direction, -gradient(12), atol=1e-8)


def test_decrement_grows_to_its_limit_and_is_that_of_the_direction():
    """After i products it is the fall of the quadratic model, -g^T d - 1/2 d^T H d."""
    H, g = spd(20, 1e4), gradient(20)
    limit = 0.5 * g @ np.linalg.solve(H, g)
    found = [solve(H, g, rtol=0.0, max_products=i) for i in range(1, 15)]
    for direction, decrement, _ in found:
        assert decrement == pytest.approx(-g @ direction - 0.5 * direction @ H @ direction, rel=1e-9)
    decrements = np.array([decrement for _, decrement, _ in found])
    assert (np.diff(decrements) > 0).all()
    assert 0 < decrements[0]
    assert decrements[-1] < limit


@pytest.mark.parametrize("rank", [2, 5])
def test_singular_but_consistent(rank):
    """With g in the range of H the solution of least norm is found, and the decrement is 1/2 g^T H^+ g."""
    root = np.random.default_rng(3).standard_normal((8, rank))
    H = root @ root.T
    g = H @ gradient(8)
    direction, decrement, n_products = solve(H, g, rtol=1e-10)
    exact = -np.linalg.pinv(H, rcond=1e-10) @ g
    np.testing.assert_allclose(direction, exact, atol=1e-7)
    assert decrement == pytest.approx(-0.5 * g @ exact, rel=1e-10)
    assert n_products <= rank + 1


def test_exact_inverse_as_preconditioner_takes_one_product():
    H, g = spd(10, 1e8), gradient(10)
    direction, decrement, n_products = solve(H, g, M=np.linalg.inv(H), rtol=1e-5)
    exact = -np.linalg.solve(H, g)
    assert n_products == 1
    np.testing.assert_allclose(direction, exact, rtol=1e-5)
    assert decrement == pytest.approx(-0.5 * g @ exact, rel=1e-6)


def test_any_preconditioner_leads_to_the_same_solution():
    H, g = spd(10, 100.0), gradient(10)
    direction, decrement, _ = solve(H, g, M=spd(10, 50.0, seed=9))
    np.testing.assert_allclose(H @ direction, -g, atol=1e-9)
    assert decrement == pytest.approx(0.5 * g @ np.linalg.solve(H, g), rel=1e-10)


@pytest.mark.parametrize("rtol", [0.3, 1e-2, 1e-5])
def test_residual_falls_by_rtol(rtol):
    H, g = spd(20, 1e3), gradient(20)
    direction, _, n = solve(H, g, rtol=rtol)
    shorter, _, _ = solve(H, g, rtol=0.0, max_products=n - 1)
    assert np.linalg.norm(H @ direction + g) <= rtol * np.linalg.norm(g)
    assert np.linalg.norm(H @ shorter + g) > rtol * np.linalg.norm(g)


def test_enough_stops_early():
    """Once half the squared residual, in the preconditioner's norm, is below `enough`; but never before one product."""
    H, g = spd(20, 1e3), gradient(20)
    enough = 1e-4 * 0.5 * g @ g
    direction, _, n_products = solve(H, g, enough=enough)
    assert 0.5 * np.linalg.norm(H @ direction + g) ** 2 <= enough
    assert n_products == solve(H, g, rtol=1e-2)[2] < solve(H, g)[2]
    assert solve(H, g, enough=1e9)[2] == 1


def test_zero_gradient_needs_nothing():
    direction, decrement, n_products = solve(spd(4, 10.0), np.zeros(4))
    assert (direction == 0).all()
    assert (decrement, n_products) == (0.0, 0)


@pytest.mark.parametrize("H", [np.zeros((4, 4)), -np.eye(4)], ids=["flat", "negative by rounding"])
def test_no_curvature_is_no_proof_of_an_optimum(H):
    """A decrement of zero would say that J* is reached, while the gradient says that J falls for ever."""
    _, decrement, _ = solve(H, gradient(4))
    assert decrement > 0


def inconsistent():
    """No curvature along the last coordinate but for rounding, and a gradient that has some of it there."""
    H = np.diag([3.0, 2.0, 1.0, 1e-17])
    return (lambda V: H @ V), (lambda R: R / np.array([3.0, 2.0, 1.0, 1e-10])), np.array([1e-5, 1e-5, 1e-5, 1e-14])


def test_rounding_is_not_followed_where_there_is_no_curvature():
    product, precondition, g = inconsistent()
    followed = conjugate_gradient(product, precondition, g, 1e-6, 100)
    assert np.abs(followed.direction).max() > 100.0
    step = conjugate_gradient(product, precondition, g, 1e-6, 100, noise=1e-15)
    np.testing.assert_allclose(step.direction[:3], -g[:3] / [3.0, 2.0, 1.0], rtol=1e-6)
    assert np.abs(step.direction).max() < 1e-3
    assert step.decrement == pytest.approx(0.5e-10 * (1 / 3 + 1 / 2 + 1), rel=1e-5)


@pytest.mark.parametrize("faint", [True, False])
def test_no_product_is_made_for_a_gradient_known_to_be_rounding(faint):
    product, precondition, g = inconsistent()
    step = conjugate_gradient(product, precondition, 1e-4 * g, 1e-6, 100, noise=1e-15, faint=faint)
    assert step.n_products == (0 if faint else 1)
    if faint:
        assert step.decrement == pytest.approx(0.5e-8 * g @ precondition(g), rel=1e-12)
        np.testing.assert_allclose(step.direction, -1e-4 * precondition(g))
