"""Rows on a device: sums, rows, batches and samples are those of the rows in memory. JAX's CPU stands for a GPU."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

jax = pytest.importorskip("jax")

from posteriori.maths.linalg import cholesky  # noqa: E402
from posteriori.rows import gpu as device  # noqa: E402
from posteriori.rows import products  # noqa: E402
from posteriori.rows.blocks import OnCard, Sums  # noqa: E402
from posteriori.rows.extremes import extremes  # noqa: E402
from posteriori.rows.gpu import DeviceBlocks, read_device_features, read_device_target  # noqa: E402
from posteriori.rows.memory import MemoryBlocks  # noqa: E402
from posteriori.rows.target import read_target  # noqa: E402
from posteriori.softmax import kernels  # noqa: E402

K = 3


@pytest.fixture(autouse=True)
def cpu_as_gpu(monkeypatch):
    monkeypatch.setattr(device, "gpu", lambda: jax.devices("cpu")[0])
    monkeypatch.setattr(device, "on_gpu", lambda X: isinstance(X, jax.Array))


def put(*arrays):
    with jax.enable_x64(True):
        return jax.device_put(arrays)


def data(n=101, n_features=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng.integers(0, K, n), rng.uniform(0.5, 2.0, n)


def both(n=101, weighted=True, **options):
    X, y, c = data(n)
    c = c if weighted else None
    return DeviceBlocks(*put(X), y, c, K, **options), MemoryBlocks(X, y, c, K, **options)


def no_twin(X, Y, c, theta):
    """A kernel of NumPy alone."""
    assert isinstance(X, np.ndarray)
    return Sums((X.sum(axis=0) @ theta, Y.sum(), 0.0 if c is None else c.sum(), len(X)))


sizes = pytest.mark.parametrize("n", [101, 4099], ids=["few rows", "rows added"])
weights = pytest.mark.parametrize("weighted", [True, False])


@sizes
@weights
def test_sums_are_those_of_rows_in_memory_with_a_twin_or_without(n, weighted):
    on_device, in_memory = both(n, weighted)
    theta = np.random.default_rng(1).normal(size=(K, 5))
    for kernel, params in ((kernels.expected_moments, (theta,)), (no_twin, (theta[0, :4],))):
        found, expected = on_device.map_sum(kernel, *params), in_memory.map_sum(kernel, *params)
        assert isinstance(found, Sums)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert on_device.n_passes == 2
    assert (on_device.n_rows, on_device.n_features, on_device.sparse) == (n, 4, False)


def test_rows_without_a_twin_are_fetched_part_by_part(monkeypatch):
    monkeypatch.setattr(device, "_HOST_BYTES", 4 * 8 * 10)
    on_device, in_memory = both(4099)
    seen = []
    found = on_device.map_sum(lambda X, Y, c: seen.append(len(X)) or np.array(len(X)))
    assert found == 4099
    assert max(seen) == 10
    values = on_device.map_rows(lambda X, a: a * X[:, :K].T, 2.0)
    assert (values == in_memory.map_rows(lambda X, a: a * X[:, :K].T, 2.0)).all()


@sizes
def test_rows_added_are_seen_by_nobody(n):
    on_device, in_memory = both(n, weighted=False)
    theta = np.random.default_rng(1).normal(size=(K, 5))
    found = on_device.map_rows(products.logits, theta)
    np.testing.assert_allclose(found, in_memory.map_rows(products.logits, theta), atol=1e-12)
    ends = on_device.map_sum(extremes)
    assert (ends.least == on_device.take(np.arange(n)).min(axis=0)).all()


def test_sums_may_be_changed_in_place():
    on_device, _ = both()
    for found in (
        *on_device.map_sum(kernels.observed_moments, K),
        on_device.map_rows(products.logits, np.ones((K, 5))),
    ):
        assert found.flags.writeable
        assert found.dtype == np.float64


def test_kept_probabilities_are_used():
    on_device, _ = both()
    (kept,) = buffers = on_device.row_buffers(K)
    theta = np.random.default_rng(1).normal(size=(K, 5))
    on_device.map_sum(kernels.expected_moments, theta, rows=buffers)
    np.testing.assert_allclose(kept.P, kernels.probabilities(np.asarray(on_device.X), theta))
    (kept.P,) = put(np.zeros((K, 101)))
    assert not on_device.map_sum(kernels.class_spread, theta, rows=buffers).any()
    assert on_device.map_sum(kernels.class_spread, theta).all()


def test_no_room_for_kept_probabilities(monkeypatch):
    monkeypatch.setattr(device, "_KEPT_BYTES", 1000)
    assert both()[0].row_buffers(K) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_rows_of_any_number_are_float64_shifted_and_scaled(dtype):
    X, y, _ = data()
    X = X.astype(dtype)
    shift, scale = np.arange(4.0), np.arange(1.0, 5.0)
    blocks = DeviceBlocks(*put(X), y, None, K, shift=shift, scale=scale)
    assert blocks.X.dtype == np.float64
    np.testing.assert_allclose(blocks.take(np.arange(101)), (X - shift) * scale, rtol=1e-15)
    assert blocks.at_hand() is blocks


def test_float64_rows_are_not_copied():
    X, y, _ = data()
    (rows,) = put(X)
    assert DeviceBlocks(rows, y, None, K).X is rows


@sizes
@weights
def test_batches_visit_every_row_once(n, weighted, monkeypatch):
    monkeypatch.setattr(device, "_HOST_BYTES", 4 * 8 * 1000)
    on_device, in_memory = both(n, weighted)
    batches = list(on_device.batches(64, np.random.default_rng(0)))
    assert all(len(X) == 64 for X, _, _ in batches[:-1])
    for found, expected in zip(batches, in_memory.batches(64, np.random.default_rng(0)), strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@weights
def test_a_sample_estimates_sums_over_all_rows(weighted):
    on_device, in_memory = both(20_000, weighted)
    sample = on_device.sample(5_000, np.random.default_rng(0))
    assert isinstance(sample, DeviceBlocks)
    assert 4_990 <= sample.n_rows <= 5_000
    (T, squares), (T_all, squares_all) = (b.map_sum(kernels.observed_moments, K) for b in (sample, in_memory))
    np.testing.assert_allclose(T[:, -1].sum(), T_all[:, -1].sum(), rtol=1e-12)
    np.testing.assert_allclose(squares, squares_all, rtol=0.1)
    again = on_device.sample(5_000, np.random.default_rng(0))
    assert (np.asarray(again.X) == np.asarray(sample.X)).all()
    assert on_device.sample(20_000, np.random.default_rng(0)) is on_device


@sizes
def test_some_rows_have_weight(n):
    X, y, c = data(n)
    c[::2] = 0.0
    rows, labels, weights = DeviceBlocks(*put(X), y, c, K).some(20, np.random.default_rng(0))
    assert rows.shape == (20, 4)
    assert (weights > 0).all()
    where = [int(np.flatnonzero((X == row).all(axis=1))[0]) for row in rows]
    assert (labels == y[where]).all()
    none = DeviceBlocks(*put(X), y, None, K).some(0, np.random.default_rng(0))
    assert none[0].shape == (0, 4)


# Reading


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.uint64, np.bool_])
def test_labels_on_the_device_are_numbered_there(dtype):
    y = (np.random.default_rng(0).integers(0, 5, 300) * 40 - (80 if dtype in (np.int64, np.int8) else 0)).astype(dtype)
    (labels,) = put(y)
    found, expected = read_device_target(labels, n_rows=300), read_target(y, n_rows=300)
    assert isinstance(found.codes, jax.Array)
    assert found.codes.dtype == np.int32
    assert found.classes.dtype == expected.classes.dtype
    assert (found.classes == expected.classes).all()
    assert (np.asarray(found.codes) == expected.codes).all()
    assert found.n_counted == 300


def test_declared_classes_of_labels_on_the_device():
    (labels,) = put(np.array([2, 5, 2]))
    found = read_device_target(labels, n_rows=3, classes=[5, 3, 2])
    assert found.classes.tolist() == [2, 3, 5]
    assert np.asarray(found.codes).tolist() == [0, 2, 0]
    with pytest.raises(ValueError, match="y holds 5, not among the declared classes"):
        read_device_target(labels, n_rows=3, classes=[2, 3])
    with pytest.raises(ValueError, match="one class only"):
        read_device_target(put(np.ones(3, dtype=int))[0], n_rows=3)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        read_device_target(labels, n_rows=4)


@pytest.mark.parametrize(
    "y", [np.array([0, 10**6, 0]), np.array([0.0, 1.0, 0.0]), np.eye(3)], ids=["wide", "f", "soft"]
)
def test_other_targets_are_read_on_the_host(y):
    (labels,) = put(y)
    found, expected = read_device_target(labels, n_rows=3), read_target(y, n_rows=3)
    assert (found.classes == expected.classes).all()
    assert isinstance(found.codes if found.probs is None else found.probs, np.ndarray)


def test_weights_on_the_device():
    labels, weights = put(np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]))
    found = read_device_target(labels, n_rows=3, sample_weight=weights, class_weight={0: 2.0})
    assert found.weights.tolist() == [2.0, 2.0, 6.0]


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_a_value_that_is_not_finite_is_found(value, what):
    X, _, _ = data()
    X[17, 2] = X[40, 1] = value
    features = read_device_features(X, device.gpu())
    with pytest.raises(ValueError, match=rf"X contains {what}, first in column 2, row 17 \(counted from 0\)"):
        features.require_finite()
    read_device_features(np.eye(3), device.gpu()).require_finite()
    read_device_features(np.eye(3, dtype=int), device.gpu()).require_finite()
    if what == "NaN":
        features.require_finite(missing_allowed=True)


def test_sparse_rows_are_refused():
    with pytest.raises(ValueError, match="device='gpu' takes dense rows, and X is a sparse matrix"):
        read_device_features(sp.csr_array(np.eye(3)), device.gpu())


@pytest.mark.parametrize(
    "X", [np.ones(3), np.ones((0, 2)), np.ones((2, 2), dtype=complex)], ids=["1d", "empty", "complex"]
)
def test_arrays_on_the_device_are_checked_as_others_are(X):
    from posteriori.rows.features import read_features

    with pytest.raises(ValueError) as expected:  # noqa: PT011
        read_features(X)
    with pytest.raises(ValueError, match=str(expected.value).split(" ")[0]):
        read_device_features(put(X)[0], device.gpu())


def test_arrays_of_other_libraries_are_seen_through_dlpack():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    X = np.arange(6.0).reshape(3, 2)
    found = device.as_jax(Foreign(X))
    assert found.dtype == np.float64
    assert (np.asarray(found) == X).all()


@pytest.mark.parametrize("side", [3, 400, 600])
def test_a_matrix_is_factored_wherever_that_is_quicker(side):
    on_device, in_memory = both()
    half = np.random.default_rng(0).normal(size=(side, 2 * side))
    M = half @ half.T
    L = on_device.factor_on_card(M)
    np.testing.assert_allclose(L, cholesky(M), atol=1e-11 * np.abs(L).max())
    assert (L == np.tril(L)).all()
    assert isinstance(L, np.ndarray)
    assert L.flags.writeable
    M[side // 2, side // 2] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on_device.factor_on_card(M)
    assert isinstance(on_device, OnCard)
    assert not isinstance(in_memory, OnCard)


def test_no_gpu(monkeypatch):
    monkeypatch.undo()
    if jax.default_backend() != "cpu":
        pytest.skip("there is one")
    with pytest.raises(
        ValueError, match=r"device='gpu' is not available: JAX has 'cpu' only.*pip install 'posteriori\[gpu\]'"
    ):
        device.device_for("gpu", np.eye(2))
    assert device.device_for(None, put(np.eye(2))[0]) is None
    assert not device.on_gpu([[1.0]])


def test_no_jax(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"need JAX, which is missing: pip install 'posteriori\[gpu\]'"):
        device.device_for("gpu", np.eye(2))


def test_a_fit_on_the_host_never_imports_jax():
    code = (
        "import sys, numpy as np, posteriori as po\n"
        "X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3\n"
        "for model in (po.SoftmaxRegression(), po.BayesianSoftmaxRegression(), po.GaussianClassifier()):\n"
        "    model.fit(X, y).predict_proba(X)\n"
        "print([name for name in sys.modules if name.startswith('jax')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
def test_on_a_real_gpu(monkeypatch):
    monkeypatch.undo()
    X, y, _ = data(4096)
    rows = jax.device_put(X.astype(np.float32), jax.devices("gpu")[0])
    assert device.on_gpu(rows)
    assert device.device_for(None, rows).platform == "gpu"
    blocks = read_device_features(rows, device.gpu()).blocks(read_target(y, n_rows=4096), K)
    theta = np.ones((K, 5))
    expected = MemoryBlocks(X.astype(np.float32), y, None, K).map_sum(kernels.expected_moments, theta)
    for a, b in zip(blocks.map_sum(kernels.expected_moments, theta), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
