"""Every kernel that has a version in JAX gives the same by both, on JAX's CPU as on a GPU."""

import importlib
import pkgutil
from types import FunctionType

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tests.slow import quick_among  # noqa: E402

import posteriori  # noqa: E402
from posteriori.gaussian.statistics import class_statistics  # noqa: E402
from posteriori.maths.integrals import normal_nodes  # noqa: E402
from posteriori.maths.quadratic import packed_forms, unpacked  # noqa: E402
from posteriori.rows import gpu_arrays as device  # noqa: E402
from posteriori.rows import products  # noqa: E402
from posteriori.rows.blocks import Sums, facts_of  # noqa: E402
from posteriori.rows.extremes import extremes  # noqa: E402
from posteriori.rows.gpu import jax_version  # noqa: E402
from posteriori.rows.gpu_arrays import JaxKernel  # noqa: E402
from posteriori.softmax import jax_kernels, likelihood, pairs, predictive  # noqa: E402
from posteriori.softmax import kernels as softmax  # noqa: E402
from posteriori.softmax.posterior import FullPosterior  # noqa: E402

SHAPES = [(7, 1, 2), (2048 * 4, 3, 4), (4099, 12, 5)]


class Case:
    """Random rows, with or without weights, labels and an intercept, and random parameters."""

    def __init__(self, shape, weighted=True, soft=False, intercept=True, seed=0):
        N, D, K = shape
        rng = np.random.default_rng(seed)
        self.K, self.width = K, D + intercept
        self.X = rng.normal(size=(N, D)) * rng.uniform(0.5, 3.0, D) + rng.normal(size=D)
        self.Y = rng.dirichlet(np.ones(K), N) * (rng.random((N, K)) < 0.7) if soft else rng.integers(0, K, N)
        self.c = rng.uniform(0.1, 2.0, N) * (rng.random(N) < 0.9) if weighted else None
        self.theta, self.V = rng.normal(size=(2, K, self.width))
        half = rng.normal(size=(K * (K - 1) // 2, self.width, self.width))
        self.forms = 0.05 * half @ half.transpose(0, 2, 1)
        self.nodes = normal_nodes(K - 1, 32)
        H = rng.normal(size=(2 * K * self.width, K * self.width))
        self.posterior = FullPosterior(self.theta, H.T @ H, np.eye(K))
        self.P = softmax.probabilities(self.X, self.theta)
        self.rng = rng


weights = quick_among(("weighted",), [(True,)], [True, False])
weights_and_intercepts = quick_among(("weighted", "intercept"), [(False, False)], [True, False], [True, False])

PARAMS = {
    softmax.observed_moments: lambda case: (case.K,),
    softmax.expected_moments: lambda case: (case.theta,),
    softmax.residual_moments: lambda case: (case.theta,),
    softmax.log_partitions: lambda case: (np.concatenate([case.theta, case.V]), case.K),
    softmax.hessian_product: lambda case: (case.theta, case.V),
    softmax.hessian: lambda case: (case.theta,),
    softmax.class_mixing: lambda case: (case.theta,),
    softmax.kronecker_factors: lambda case: (case.theta, None),
    softmax.class_scatter: lambda case: (case.theta, np.linspace(0.0, 0.1, case.K)),
    softmax.class_spread: lambda case: (case.theta,),
    softmax.hessian_diagonal: lambda case: (case.theta,),
    softmax.hessian_cross: lambda case: (case.theta,),
    softmax.scatter: lambda case: (case.X.mean(axis=0),),
    softmax.separation: lambda case: (case.V,),
    softmax.pair_margins: lambda case: (case.V,),
    extremes: lambda case: (),
    pairs.pair_grams: lambda case: (case.theta,),
    pairs.log_det_slope: lambda case: (case.theta, case.forms),
    pairs.averaged_moments: lambda case: (case.theta, case.forms, case.nodes),
    class_statistics: lambda case: (case.K, "full"),
    likelihood.between: lambda case: (np.array([0]), case.X[:1].min(axis=0)[:1], case.X.max(axis=0)[:1]),
}


def arrays(found):
    """What a kernel returns, as a list of arrays."""
    if isinstance(found, Sums):
        return [np.asarray(each) for each in found]
    if isinstance(found, (np.ndarray, float)):
        return [np.asarray(found)]
    return [np.asarray(each) for each in vars(found).values() if not isinstance(each, str)]


def assert_alike(found, expected, width=0):
    """To rounding, as a share of the largest value of each array."""
    assert type(found) is type(expected)
    for a, b in zip(arrays(found), arrays(expected), strict=True):
        if b.ndim < a.ndim:  # Gram matrices may be packed
            b = unpacked(b, width)
        assert a.shape == b.shape
        a = a.astype(b.dtype)  # counts of rows with weights are but "some" in NumPy's kernel
        finite = np.isfinite(b)
        assert (a[~finite] == b[~finite]).all()
        largest = np.abs(b[finite]).max(initial=0.0)
        np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=2e-12 * largest)


def by_jax(kernel, case, params, P=None):
    version = jax_version(kernel)
    with jax.enable_x64(True):
        options = {} if P is None else {"P": P}
        found = version.run(case.X, case.Y if facts_of(kernel).reads_labels else None, case.c, *params, **options)
        if version.keeps_probabilities:
            found, kept = found
            np.testing.assert_allclose(kept, case.P, rtol=0, atol=1e-13)
        return version.result(jax.tree.map(np.array, found), *params)


def declared():
    """All kernels in the package that have a version in JAX."""
    found = set()
    for module in pkgutil.walk_packages(posteriori.__path__, "posteriori."):
        if not module.name.endswith("__main__"):
            values = vars(importlib.import_module(module.name)).values()
            found |= {value for value in values if isinstance(value, FunctionType) and facts_of(value).jax_version}
    return found


def test_every_version_in_jax_is_found_and_tried():
    assert declared() == {*PARAMS, *ROW_PARAMS}
    assert all(isinstance(jax_version(kernel), JaxKernel) for kernel in declared())


HEAVY = (pairs.averaged_moments, pairs.log_det_slope, softmax.kronecker_factors)
"""Kernels that take long to compile."""


@quick_among(
    ("kernel", "weighted", "intercept"),
    [(kernel, False, False) for kernel in PARAMS if kernel not in HEAVY],
    PARAMS,
    [True, False],
    [True, False],
)
def test_labels(kernel, weighted, intercept):
    check(kernel, Case((60, 5, 3), weighted, False, intercept))


LONG_SUMS = (softmax.observed_moments, softmax.expected_moments, softmax.hessian_product, extremes)
"""Kernels that show for all what becomes of sums over many rows."""


@quick_among(("kernel", "shape"), [(kernel, SHAPES[1]) for kernel in LONG_SUMS], PARAMS, SHAPES)
def test_shapes(kernel, shape):
    check(kernel, Case(shape))


@pytest.mark.parametrize(
    "kernel", [kernel for kernel in PARAMS if facts_of(kernel).reads_labels], ids=lambda k: k.__name__
)
@weights
def test_soft_labels(kernel, weighted):
    check(kernel, Case((60, 5, 3), weighted, soft=True))


def check(kernel, case):
    params = PARAMS[kernel](case)
    expected = kernel(case.X, case.Y, case.c, *params)
    assert_alike(by_jax(kernel, case, params), expected, case.width)
    if jax_version(kernel).takes_probabilities:
        assert_alike(by_jax(kernel, case, params, case.P), expected, case.width)


@quick_among(
    ("kind", "weighted", "soft", "far"),
    [
        ("full", True, False, 1e7),
        ("pooled", False, True, 0.0),
        ("diagonal", True, True, 1e7),
        ("full", False, False, 0.0),
    ],
    ["full", "pooled", "diagonal"],
    [True, False],
    [True, False],
    [0.0, 1e7],
)
def test_statistics_of_each_kind(kind, weighted, soft, far):
    case = Case((500, 4, 3), weighted, soft)
    case.X += far
    found = by_jax(class_statistics, case, (case.K, kind))
    expected = class_statistics(case.X, case.Y, case.c, case.K, kind)
    assert found.kind == kind
    assert found.present.shape == expected.present.shape
    assert_alike(found, expected) if far == 0.0 else np.testing.assert_allclose(
        found.scatter, expected.scatter, rtol=0, atol=1e-8 * np.abs(expected.scatter).max()
    )


@weights
def test_missing_values_are_left_out_of_diagonal_statistics(weighted):
    case = Case((500, 4, 3), weighted)
    case.X[case.rng.random(case.X.shape) < 0.1] = np.nan
    case.X[case.Y == 2, 1] = np.nan
    found = by_jax(class_statistics, case, (case.K, "diagonal"))
    assert_alike(found, class_statistics(case.X, case.Y, case.c, case.K, "diagonal"))
    assert np.isnan(by_jax(class_statistics, case, (case.K, "full")).means).any()


@pytest.mark.slow
@pytest.mark.parametrize("bytes_at_once", [1, 1 << 12, 1 << 20])
def test_products_of_rows_with_themselves_are_the_same_however_few_are_made_at_once(bytes_at_once, monkeypatch):
    monkeypatch.setattr(device, "_BYTES_AT_ONCE", bytes_at_once)
    case = Case((300 + bytes_at_once.bit_length(), 3, 3))  # a shape of its own, so that it is compiled anew
    for kernel in (pairs.pair_grams, pairs.log_det_slope, pairs.averaged_moments):
        check(kernel, case)


@weights_and_intercepts
def test_pairs_of_many_classes(weighted, intercept):
    check(pairs.pair_grams, Case((50, 2, 20), weighted, intercept=intercept))


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 2, 3, 7])
def test_pairs_are_the_same_however_many_classes_are_multiplied_together(together, monkeypatch):
    case = Case((60 + together, 3, 7), True, intercept=True)  # a shape of its own, so that it is compiled anew
    monkeypatch.setattr(jax_kernels, "_COLUMNS", 3 * together)
    check(pairs.pair_grams, case)


@pytest.mark.slow
def test_packed_forms_are_taken_too():
    case = Case((100, 4, 3))
    params = case.theta, packed_forms(case.forms)
    expected = pairs.log_det_slope(case.X, None, case.c, *params)
    assert_alike(by_jax(pairs.log_det_slope, case, params), expected)


@pytest.mark.slow
def test_factors_of_some_columns():
    case = Case((100, 4, 3))
    params = case.theta, np.array([0, 2])
    expected = softmax.kronecker_factors(case.X, None, case.c, *params)
    assert_alike(by_jax(softmax.kronecker_factors, case, params), expected)


def test_the_loss_of_certain_rows_keeps_its_digits():
    case = Case((100, 4, 3))
    case.theta *= 40.0
    case.Y = softmax.logits(case.X, case.theta).argmax(axis=0)
    case.P = softmax.probabilities(case.X, case.theta)
    expected = softmax.residual_moments(case.X, case.Y, case.c, case.theta)
    found = by_jax(softmax.residual_moments, case, (case.theta,))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-11)


@pytest.mark.slow
def test_singular_covariances_have_factors():
    v = np.random.default_rng(0).normal(size=(20, 4, 1))
    covariance = np.concatenate([v @ v.transpose(0, 2, 1), np.zeros((1, 4, 4))])
    with jax.enable_x64(True):
        L = np.asarray(jax_kernels.cholesky_psd(jax.numpy.asarray(covariance)))
    np.testing.assert_allclose(L @ L.transpose(0, 2, 1), covariance, atol=1e-10)


@pytest.mark.parametrize("n", [1, 5, 2047, 4096, 10_007, 62_500, 1_000_003])
def test_rows_are_cut_into_equal_parts(n):
    for size in (device.rounded(n), device.padded(n)):
        assert size % device.parts_of(size) == 0
        assert n < 2 * 2048 or 512 <= size // device.parts_of(size) <= 8192
    assert device.rounded(n) <= n <= device.padded(n) <= n + 1024


@quick_among(("n",), [(9999,)], [10, 9999])
def test_a_sample_has_one_row_of_each_share(n):
    with jax.enable_x64(True):
        X = np.arange(10_000.0)[:, None]
        drawn, Y, c = device.random_rows(X, np.arange(10_000), None, 3, n, 10_000)
    rows = np.asarray(drawn)[:, 0]
    assert (np.diff(rows) > 0).all()
    assert (np.asarray(Y) == rows).all()
    assert np.asarray(c).sum() == 10_000
    edges = np.arange(n + 1) * 10_000 // n
    assert ((edges[:-1] <= rows) & (rows < edges[1:])).all()


ROW_PARAMS = {
    products.logits: lambda case: (case.theta,),
    softmax.probabilities: lambda case: (case.theta,),
    predictive.plugin: lambda case: (case.theta, np.arange(case.K) / 10.0, True),
    predictive.quasi: lambda case: (case.posterior, np.arange(case.K) / 10.0, 64, False),
}


@quick_among(
    ("kernel", "intercept"),
    [(kernel, True) for kernel in ROW_PARAMS if kernel is not predictive.quasi],
    ROW_PARAMS,
    [True, False],
)
def test_rows(kernel, intercept):
    case = Case((60, 5, 3), intercept=intercept)
    params = ROW_PARAMS[kernel](case)
    for each in (params, (*params[:-1], not params[-1])) if isinstance(params[-1], bool) else (params,):
        assert_alike(rows_by_jax(kernel, case, each), kernel(case.X, *each))


def rows_by_jax(kernel, case, params):
    version = jax_version(kernel)
    with jax.enable_x64(True):
        return np.asarray(version.run(case.X, *(params if version.prepare is None else version.prepare(*params))))


@pytest.mark.slow
def test_rows_are_the_same_however_few_are_made_at_once(monkeypatch):
    monkeypatch.setattr(device, "_BYTES_AT_ONCE", 1 << 16)
    case = Case((291, 3, 3))  # a shape of its own, so that it is compiled anew
    params = ROW_PARAMS[predictive.quasi](case)
    assert_alike(rows_by_jax(predictive.quasi, case, params), predictive.quasi(case.X, *params))
