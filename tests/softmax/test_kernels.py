"""Softmax kernels: every sum against plain loops, exact arithmetic at extreme logits, and its own derivatives."""

from functools import reduce
from itertools import pairwise
from operator import add

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slow import quick_first

from posteriori.maths import softmax
from posteriori.rows import products
from posteriori.rows.blocks import Sums
from posteriori.softmax import kernels

N, D, K = 12, 3, 4

layouts = pytest.mark.parametrize("layout", quick_first([np.asfortranarray, sp.csr_array, np.ascontiguousarray], 2))
targets = pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
weightings = pytest.mark.parametrize("weighting", quick_first(["zeros", "none", "random"], 2))
intercepts = pytest.mark.parametrize("intercept", [False, True], ids=["flat", "intercept"])


def problem(weighting="random", intercept=True, soft=False, seed=0):
    """X (N, D) with some zeros, Y, c and theta."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.7)
    Y = rng.dirichlet(np.ones(K), N) if soft else rng.integers(0, K, N)
    c = None if weighting == "none" else rng.uniform(0.1, 3.0, N)
    if weighting == "zeros":
        c[::3] = 0.0
    return X, Y, c, rng.normal(size=(K, D + intercept))


# The same sums in plain loops


def with_ones(X, theta):
    return [[*x, 1.0] if theta.shape[1] > len(x) else list(x) for x in X]


def row_probabilities(x, theta):
    f = [sum(t * v for t, v in zip(w, x, strict=True)) for w in theta]
    e = [np.exp(v) for v in f]
    return [v / sum(e) for v in e], np.log(sum(e))


def naive(X, c, theta):
    """Value, gradient (both less the observed moments), Hessian, A and G, row by row and entry by entry."""
    width = theta.shape[1]
    value, gradient = 0.0, np.zeros((K, width))
    H, A, G = np.zeros((K, width, K, width)), np.zeros((K, K)), np.zeros((width, width))
    for n, x in enumerate(with_ones(X, theta)):
        weight = 1.0 if c is None else c[n]
        p, log_partition = row_probabilities(x, theta)
        value += weight * log_partition
        for k in range(K):
            for d in range(width):
                gradient[k, d] += weight * p[k] * x[d]
            for m in range(K):
                curvature = weight * p[k] * ((k == m) - p[m])
                A[k, m] += curvature
                for d in range(width):
                    for e in range(width):
                        H[k, d, m, e] += curvature * x[d] * x[e]
                        G[d, e] += (k == m) * curvature * x[d] * x[e]
    return value, gradient, H, A, G


def membership(Y, n, k):
    return Y[n, k] if Y.ndim == 2 else float(Y[n] == k)


@layouts
@weightings
@intercepts
def test_logits_contract_gram_and_scatter_are_plain_sums(layout, weighting, intercept):
    X, _, c, theta = problem(weighting, intercept)
    Z = with_ones(X, theta)
    width = theta.shape[1]
    weight = np.ones(N) if c is None else c
    F = [[sum(theta[k, d] * x[d] for d in range(width)) for x in Z] for k in range(K)]
    np.testing.assert_allclose(products.logits(layout(X), theta), F, atol=1e-14)
    out = np.empty((K, N))
    assert products.logits(layout(X), theta, out=out) is out
    np.testing.assert_allclose(out, F, atol=1e-14)

    R = np.random.default_rng(1).normal(size=(K, N))
    contracted = [[sum(R[k, n] * Z[n][d] for n in range(N)) for d in range(width)] for k in range(K)]
    np.testing.assert_allclose(products.contract(R, layout(X), intercept), contracted, atol=1e-13)

    expected = [[sum(weight[n] * Z[n][d] * Z[n][e] for n in range(N)) for e in range(width)] for d in range(width)]
    np.testing.assert_allclose(products.gram(layout(X), weight, intercept), expected, atol=1e-13)

    mean = np.array([0.3, -1.0, 2.0])
    centred = [
        [sum(weight[n] * (X[n, d] - mean[d]) * (X[n, e] - mean[e]) for n in range(N)) for e in range(D)]
        for d in range(D)
    ]
    np.testing.assert_allclose(kernels.scatter(layout(X), None, c, mean), centred, atol=1e-12)


@layouts
@weightings
@targets
@pytest.mark.parametrize("n_classes", [K, 70], ids=["few", "many"])  # beyond 64 classes the one-hot matrix is sparse
def test_observed_moments_are_plain_sums(layout, weighting, soft, n_classes):
    X, Y, c, _ = problem(weighting, soft=soft)
    Y = np.pad(Y, ((0, 0), (0, n_classes - K))) if soft else Y
    T, squares = np.zeros((n_classes, D + 1)), np.zeros(D)
    for n in range(N):
        weight = 1.0 if c is None else c[n]
        squares += weight * X[n] ** 2
        for k in range(n_classes):
            T[k] += weight * membership(Y, n, k) * np.array([*X[n], 1.0])
    moments = kernels.observed_moments(layout(X), Y, c, n_classes)
    np.testing.assert_allclose(moments[0], T, atol=1e-13)
    np.testing.assert_allclose(moments[1], squares, atol=1e-13)
    R = kernels.one_hot(Y, c, n_classes)
    R = R.toarray() if sp.issparse(R) else R
    for n in range(N):
        assert R[:, n].tolist() == [membership(Y, n, k) * (1.0 if c is None else c[n]) for k in range(n_classes)]


@layouts
@weightings
@intercepts
def test_every_curvature_is_a_plain_sum(layout, weighting, intercept):
    X, _, c, theta = problem(weighting, intercept)
    value, gradient, H, A, G = naive(X, c, theta)
    width = theta.shape[1]
    Z, P = layout(X), np.empty((K, N))
    V = np.random.default_rng(2).normal(size=theta.shape)

    log_partition, expected = kernels.expected_moments(Z, None, c, theta, P)
    assert log_partition == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(expected, gradient, atol=1e-13)
    np.testing.assert_allclose(P.T, [row_probabilities(x, theta)[0] for x in with_ones(X, theta)], atol=1e-14)

    for kept in (None, P):  # probabilities computed anew, or those of the last pass
        block = (Z, None, c, theta)
        full = kernels.hessian(*block, kept)
        np.testing.assert_allclose(full, H.reshape(K * width, -1), atol=1e-12)
        product = kernels.hessian_product(*block, V, kept)
        np.testing.assert_allclose(product, np.einsum("kdme,me->kd", H, V), atol=1e-12)
        np.testing.assert_allclose(product.ravel(), full @ V.ravel(), atol=1e-12)
        np.testing.assert_allclose(kernels.class_mixing(*block, kept), A, atol=1e-13)
        np.testing.assert_allclose(kernels.class_spread(*block, kept), A.diagonal(), atol=1e-13)
        diagonal = [[H[k, d, k, d] for d in range(width)] for k in range(K)]
        np.testing.assert_allclose(kernels.hessian_diagonal(*block, kept), diagonal, atol=1e-13)
        blocks = [H[k, :, k, :] for k in range(K)]
        np.testing.assert_allclose(kernels.class_scatter(*block, np.zeros(K), kept), blocks, atol=1e-12)
        mixing, features = kernels.kronecker_factors(*block, None, kept)
        np.testing.assert_allclose(mixing, A, atol=1e-13)
        np.testing.assert_allclose(features, G, atol=1e-12)
        assert np.trace(np.kron(mixing, features)) / np.trace(mixing) == pytest.approx(np.trace(full), rel=1e-12)
        mixing, features = kernels.kronecker_factors(*block, np.array([0, 2]), kept)
        chosen = [0, 2, 3][: 2 + intercept]
        np.testing.assert_allclose(mixing, A, atol=1e-13)
        np.testing.assert_allclose(features, G[np.ix_(chosen, chosen)], atol=1e-12)


# Derivatives


def complex_energy(X, Y, c, theta):
    """Cross-entropy as an analytic function of theta, for complex arguments too."""
    Z = np.array(with_ones(X, theta))
    F = Z @ theta.T
    one_hot = Y if Y.ndim == 2 else np.eye(K)[Y]
    return (np.ones(N) if c is None else c) @ (np.log(np.exp(F).sum(axis=1)) - (one_hot * F).sum(axis=1))


def energy(X, Y, c, theta):
    """Cross-entropy and its gradient, from the kernels."""
    T, _ = kernels.observed_moments(X, Y, c, K)
    T = T[:, : theta.shape[1]]
    log_partition, expected = kernels.expected_moments(X, Y, c, theta)
    return log_partition - np.vdot(theta, T), expected - T


def directions(theta):
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = 1.0
        yield i, step.reshape(theta.shape)


@layouts
@targets
@weightings
@intercepts
def test_the_gradient_is_that_of_the_value(layout, soft, weighting, intercept):
    X, Y, c, theta = problem(weighting, intercept, soft)
    value, gradient = energy(layout(X), Y, c, theta)
    assert value == pytest.approx(complex_energy(X, Y, c, theta), rel=1e-13)
    for i, step in directions(theta):
        complex_step = complex_energy(X, Y, c, theta + 1e-30j * step).imag / 1e-30
        assert gradient.flat[i] == pytest.approx(complex_step, rel=1e-12, abs=1e-12)
        above, below = (energy(layout(X), Y, c, theta + h * step)[0] for h in (1e-5, -1e-5))
        assert gradient.flat[i] == pytest.approx((above - below) / 2e-5, rel=1e-7, abs=1e-7)


@layouts
@weightings
@intercepts
def test_the_hessian_is_that_of_the_gradient(layout, weighting, intercept):
    X, Y, c, theta = problem(weighting, intercept)
    H = kernels.hessian(layout(X), Y, c, theta)
    np.testing.assert_allclose(H, H.T, atol=1e-14)
    for i, step in directions(theta):
        above, below = (energy(layout(X), Y, c, theta + h * step)[1] for h in (1e-5, -1e-5))
        np.testing.assert_allclose(H[i], ((above - below) / 2e-5).ravel(), atol=1e-8)


# Extreme logits


EXTREME = {
    "far apart": [1e308, -1e308, 0.0],
    "all far up": [1e308, 1e308, 1e308],
    "all far down": [-1e308, -1e308, -1e308],
    "at the end of exp": [745.0, 0.0, -745.0],
    "beyond exp": [1000.0, 1000.5, -1000.0],
    "subnormal": [0.0, -745.0, -744.4],
    "a tie and a stranger": [1e16, 1e16, -1e16],
    "tiny": [1e-300, -1e-300, 5e-324],
    "single": [1e308],
}


@pytest.mark.parametrize("f", EXTREME.values(), ids=EXTREME)
def test_extreme_logits_agree_with_exact_arithmetic(f):
    with mpmath.workdps(60):
        exponents = [mpmath.mpf(v) - max(f) for v in f]
        total = sum(mpmath.exp(v) for v in exponents)
        log_partition = float(max(f) + mpmath.log(total))
        probs = [float(mpmath.exp(v) / total) for v in exponents]
        log_probs = [float(v - mpmath.log(total)) for v in exponents]
    F = np.array(f)[:, None]
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(softmax.softmax_in_place(F), [log_partition], rtol=1e-15)
        np.testing.assert_allclose(F[:, 0], probs, rtol=4e-15, atol=1e-323)
        F = np.array(f)[:, None]
        assert softmax.log_softmax_in_place(F) is F
    np.testing.assert_allclose(F[:, 0], log_probs, rtol=4e-15)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8), st.floats(-1e300, 1e300))
@settings(deadline=None)
def test_probabilities_sum_to_one_and_ignore_a_shift_that_is_exact(f, shift):
    F = np.array(f)[:, None]
    P = F.copy()
    log_partition = softmax.softmax_in_place(P)
    assert P.sum() == pytest.approx(1.0, abs=1e-15 * len(f))
    assert max(f) <= log_partition[0] <= max(f) + np.log(len(f)) + 1e-15 * abs(max(f)) + 1e-15
    np.testing.assert_allclose(np.exp(softmax.log_softmax_in_place(F.copy())), P, rtol=1e-13, atol=1e-323)
    tie = np.full((len(f), 1), shift)
    softmax.softmax_in_place(tie)
    np.testing.assert_allclose(tie, 1.0 / len(f), rtol=1e-15)


# Invariances


@layouts
@targets
def test_a_vector_added_to_all_classes_changes_nothing(layout, soft):
    X, Y, c, theta = problem(soft=soft)
    shifted = theta + np.array([5.0, -3.0, 2.0, 7.0])
    before, after = energy(layout(X), Y, c, theta), energy(layout(X), Y, c, shifted)
    assert after[0] == pytest.approx(before[0], rel=1e-13)
    np.testing.assert_allclose(after[1], before[1], atol=1e-13)
    H = kernels.hessian(layout(X), Y, c, shifted)
    np.testing.assert_allclose(H, kernels.hessian(layout(X), Y, c, theta), atol=1e-12)
    same_for_all = np.tile([1.0, 2.0, 3.0, 4.0], K)
    np.testing.assert_allclose(H @ same_for_all, 0.0, atol=1e-12)


@layouts
@targets
def test_permuted_labels_permute_every_result(layout, soft):
    X, Y, c, theta = problem(soft=soft)
    order = np.array([2, 0, 3, 1])  # the new class k is the old class order[k]
    Z, renamed = layout(X), Y[:, order] if soft else np.argsort(order)[Y]
    before, after = energy(Z, Y, c, theta), energy(Z, renamed, c, theta[order])
    assert after[0] == pytest.approx(before[0], rel=1e-14)
    np.testing.assert_allclose(after[1], before[1][order], atol=1e-13)
    shape = (K, D + 1, K, D + 1)
    H = kernels.hessian(Z, Y, c, theta).reshape(shape)[order][:, :, order]
    np.testing.assert_allclose(kernels.hessian(Z, renamed, c, theta[order]).reshape(shape), H, atol=1e-13)


KERNELS = {
    "observed_moments": lambda X, Y, c, theta, V: kernels.observed_moments(X, Y, c, K),
    "expected_moments": lambda X, Y, c, theta, V: kernels.expected_moments(X, Y, c, theta),
    "hessian": lambda X, Y, c, theta, V: Sums((kernels.hessian(X, Y, c, theta),)),
    "hessian_product": lambda X, Y, c, theta, V: Sums((kernels.hessian_product(X, Y, c, theta, V),)),
    "hessian_diagonal": lambda X, Y, c, theta, V: Sums((kernels.hessian_diagonal(X, Y, c, theta),)),
    "class_mixing": lambda X, Y, c, theta, V: Sums((kernels.class_mixing(X, Y, c, theta),)),
    "class_spread": lambda X, Y, c, theta, V: Sums((kernels.class_spread(X, Y, c, theta),)),
    "class_scatter": lambda X, Y, c, theta, V: Sums((kernels.class_scatter(X, Y, c, theta, np.full(K, 0.05)),)),
    "kronecker_factors": lambda X, Y, c, theta, V: kernels.kronecker_factors(X, Y, c, theta),
    "scatter": lambda X, Y, c, theta, V: Sums((kernels.scatter(X, Y, c, V[0, :D]),)),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@layouts
@given(cuts=st.sets(st.integers(0, N)), soft=st.booleans(), weighting=st.sampled_from(["none", "random", "zeros"]))
@settings(deadline=None, max_examples=10)
def test_any_split_of_the_rows_sums_to_one_block(kernel, layout, cuts, soft, weighting):
    X, Y, c, theta = problem(weighting, soft=soft)
    V = np.random.default_rng(3).normal(size=theta.shape)
    edges = [0, *sorted(cuts), N]  # empty blocks too
    parts = [kernel(layout(X[i:j]), Y[i:j], None if c is None else c[i:j], theta, V) for i, j in pairwise(edges)]
    for summed, whole in zip(reduce(add, parts), kernel(layout(X), Y, c, theta, V), strict=True):
        np.testing.assert_allclose(summed, whole, atol=1e-12)


def test_sums_of_different_length_do_not_add():
    with pytest.raises(ValueError, match="zip"):
        Sums((1, 2)) + Sums((1,))


# Preconditioning: rows that hardly matter are left out


shares = pytest.mark.parametrize("share", [0.01, 0.1])  # of the mean weight: the floor below which rows are left out


@layouts
@weightings
@shares
def test_class_scatter_leaves_out_at_most_its_share_of_the_weight(layout, weighting, share):
    X, Y, c, theta = problem(weighting)
    block = (layout(X), Y, c, 8.0 * theta)
    sizes = kernels.class_spread(*block)
    whole, kept = (kernels.class_scatter(*block, floor) for floor in (np.zeros(K), share * sizes / N))
    assert (kept[:, -1, -1] < sizes).any()  # something was left out
    assert (kept[:, -1, -1] >= (1 - share) * sizes).all()
    for k in range(K):  # what was left out is itself a scatter
        assert np.linalg.eigvalsh(whole[k] - kept[k]).min() >= -1e-13


@shares
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 5.0, 25.0]))
@settings(deadline=None, max_examples=50)
def test_class_scatter_loses_at_most_its_share_of_the_trace(share, seed, confidence):
    X, Y, c, theta = problem(seed=seed)
    X = np.sign(X + 0.1)  # rows of one length
    block = (X, Y, c, confidence * theta)
    kept = kernels.class_scatter(*block, share * kernels.class_spread(*block) / N)
    whole = kernels.class_scatter(*block, np.zeros(K))
    for k in range(K):
        assert np.trace(kept[k]) >= (1 - share - 1e-12) * np.trace(whole[k])


# Separation


@layouts
@targets
@weightings
def test_separation_and_pair_margins_are_plain_extremes(layout, soft, weighting):
    X, Y, c, V = problem(weighting, soft=soft)
    if soft:
        Y = np.where(Y > 0.25, Y, 0.0)
    deficit = spread = 0.0
    least, greatest = np.full((K, K), np.inf), np.full((K, K), -np.inf)
    for n, x in enumerate(with_ones(X, V)):
        if c is not None and c[n] == 0:
            continue
        f = [sum(v * t for v, t in zip(row, x, strict=True)) for row in V]
        own = [k for k in range(K) if membership(Y, n, k) > 0]
        deficit = max(deficit, max(f) - min(f[k] for k in own))
        spread = max(spread, max(f) - min(f))
        for i in own:
            for j in range(K):
                least[i, j] = min(least[i, j], f[i] - f[j])
                greatest[i, j] = max(greatest[i, j], f[i] - f[j])
    for cut in (0, 5):  # in one block, and merged from two
        blocks = [
            (layout(X[s]), Y[s], None if c is None else c[s], V)
            for s in ([slice(None)] if cut == 0 else [slice(cut), slice(cut, None)])
        ]
        found = reduce(add, (kernels.separation(*block) for block in blocks))
        assert found.deficit == pytest.approx(deficit, rel=1e-13)
        assert found.spread == pytest.approx(spread, rel=1e-13)
        margins = reduce(add, (kernels.pair_margins(*block) for block in blocks))
        np.testing.assert_allclose(margins.least, least, atol=1e-13)
        np.testing.assert_allclose(margins.greatest, greatest, atol=1e-13)


def test_margins_of_a_class_without_rows_are_empty():
    margins = kernels.pair_margins(np.array([[1.0], [2.0]]), np.array([0, 2]), None, np.array([[3.0], [0.0], [1.0]]))
    assert margins.least[0].tolist() == margins.greatest[0].tolist() == [0.0, 3.0, 2.0]
    assert margins.least[1].tolist() == [np.inf] * 3
    assert margins.greatest[1].tolist() == [-np.inf] * 3
    assert margins.least[2].tolist() == [-4.0, 2.0, 0.0]


# Tiny losses


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_residual_moments_are_expected_less_observed(soft, weighted):
    rng = np.random.default_rng(3)
    X, theta = rng.standard_normal((30, 4)), rng.standard_normal((3, 5))
    Y = rng.dirichlet(np.ones(3), 30) if soft else rng.integers(0, 3, 30)
    c = rng.random(30) if weighted else None
    loss, gradient = kernels.residual_moments(X, Y, c, theta)
    log_partition, expected = kernels.expected_moments(X, Y, c, theta)
    T, _ = kernels.observed_moments(X, Y, c, 3)
    assert loss == pytest.approx(log_partition - (theta * T).sum(), rel=1e-12)
    np.testing.assert_allclose(gradient, expected - T, atol=1e-12)


def test_residual_moments_keep_all_digits_of_certain_rows():
    X = np.array([[1.0], [2.0]])
    theta = np.array([[40.0], [0.0], [-5.0]])  # log-odds of 40, 45 and of 80, 90 for the rows' own class
    loss, gradient = kernels.residual_moments(X, np.array([0, 0]), None, theta)
    with mpmath.workdps(60):
        others = [[mpmath.exp(-40 * x), mpmath.exp(-45 * x)] for x in (1, 2)]
        exact = sum(mpmath.log(1 + sum(row)) for row in others)
        slope = -sum(x * sum(row) / (1 + sum(row)) for x, row in zip((1, 2), others, strict=True))
    assert loss == pytest.approx(float(exact), rel=1e-14)
    assert gradient[0, 0] == pytest.approx(float(slope), rel=1e-13)
