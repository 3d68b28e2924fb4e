"""Rows on a device: sums, rows, batches and samples are those of the rows in memory. JAX's CPU stands for a GPU."""

import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from posteriori.maths.linalg import cholesky  # noqa: E402
from posteriori.rows import dlpack, products  # noqa: E402
from posteriori.rows import gpu as device  # noqa: E402
from posteriori.rows.blocks import OnGpu  # noqa: E402
from posteriori.rows.engines import engine_for  # noqa: E402
from posteriori.rows.extremes import extremes  # noqa: E402
from posteriori.rows.gpu import GpuBlocks, read_gpu_features, read_gpu_target  # noqa: E402
from posteriori.rows.memory import MemoryBlocks  # noqa: E402
from posteriori.rows.target import read_target  # noqa: E402
from posteriori.softmax import kernels  # noqa: E402

K = 3


@pytest.fixture(autouse=True)
def cpu_as_gpu(monkeypatch):
    monkeypatch.setattr(dlpack, "first_gpu", lambda: jax.devices("cpu")[0])
    monkeypatch.setattr(dlpack, "on_gpu", lambda X: isinstance(X, jax.Array))


def put(*arrays):
    with jax.enable_x64(True):
        return jax.device_put(arrays)


def data(n=101, n_features=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng.integers(0, K, n), rng.uniform(0.5, 2.0, n)


def both(n=101, weighted=True, **options):
    X, y, c = data(n)
    c = c if weighted else None
    return GpuBlocks(*put(X), y, c, K, **options), MemoryBlocks(X, y, c, K, **options)


sizes = pytest.mark.parametrize("n", [101, 4099], ids=["few rows", "rows added"])
weights = pytest.mark.parametrize("weighted", [True, False])


def test_rows_without_a_version_in_jax_are_fetched_part_by_part(monkeypatch):
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
    for a, b in zip(*(b.map_sum(kernels.expected_moments, theta) for b in (on_device, in_memory)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    ends = on_device.map_sum(extremes)
    assert (ends.least == on_device.take(np.arange(n))[0].min(axis=0)).all()


def test_kept_probabilities_are_used():
    on_device, _ = both()
    (kept,) = values = on_device.row_values(K)
    theta = np.random.default_rng(1).normal(size=(K, 5))
    on_device.map_sum(kernels.expected_moments, theta, row_values=values)
    np.testing.assert_allclose(kept.P, kernels.probabilities(np.asarray(on_device.X), theta))
    (kept.P,) = put(np.zeros((K, 101)))
    assert not on_device.map_sum(kernels.class_spread, theta, row_values=values).any()
    assert on_device.map_sum(kernels.class_spread, theta).all()


def test_no_room_for_kept_probabilities(monkeypatch):
    monkeypatch.setattr(device, "_ROW_VALUE_BYTES", 1000)
    assert both()[0].row_values(K) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_rows_of_any_number_are_float64_shifted_and_scaled(dtype):
    X, y, _ = data()
    X = X.astype(dtype)
    shift, scale = np.arange(4.0), np.arange(1.0, 5.0)
    blocks = GpuBlocks(*put(X), y, None, K, shift=shift, scale=scale)
    assert blocks.X.dtype == np.float64
    np.testing.assert_allclose(blocks.take(np.arange(101))[0], (X - shift) * scale, rtol=1e-15)


def test_float64_rows_are_not_copied():
    X, y, _ = data()
    (rows,) = put(X)
    assert GpuBlocks(rows, y, None, K).X is rows


@pytest.mark.slow
@weights
def test_a_sample_estimates_sums_over_all_rows(weighted):
    on_device, in_memory = both(20_000, weighted)
    sample = on_device.sample(5_000, np.random.default_rng(0))
    assert isinstance(sample, GpuBlocks)
    assert 4_990 <= sample.n_rows <= 5_000
    (T, squares), (T_all, squares_all) = (b.map_sum(kernels.observed_moments, K) for b in (sample, in_memory))
    np.testing.assert_allclose(T[:, -1].sum(), T_all[:, -1].sum(), rtol=1e-12)
    np.testing.assert_allclose(squares, squares_all, rtol=0.1)
    again = on_device.sample(5_000, np.random.default_rng(0))
    assert (np.asarray(again.X) == np.asarray(sample.X)).all()
    assert on_device.sample(20_000, np.random.default_rng(0)) is on_device


# Reading


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.uint64, np.bool_])
def test_labels_on_the_device_are_numbered_there(dtype):
    y = (np.random.default_rng(0).integers(0, 5, 300) * 40 - (80 if dtype in (np.int64, np.int8) else 0)).astype(dtype)
    (labels,) = put(y)
    found, expected = read_gpu_target(labels, n_rows=300), read_target(y, n_rows=300)
    assert isinstance(found.codes, jax.Array)
    assert found.codes.dtype == np.int32
    assert found.classes.dtype == expected.classes.dtype
    assert (found.classes == expected.classes).all()
    assert (np.asarray(found.codes) == expected.codes).all()
    assert found.n_counted == 300


def test_declared_classes_of_labels_on_the_device():
    (labels,) = put(np.array([2, 5, 2]))
    found = read_gpu_target(labels, n_rows=3, classes=[5, 3, 2])
    assert found.classes.tolist() == [2, 3, 5]
    assert np.asarray(found.codes).tolist() == [0, 2, 0]
    with pytest.raises(ValueError, match="y holds 5, not among the declared classes"):
        read_gpu_target(labels, n_rows=3, classes=[2, 3])
    with pytest.raises(ValueError, match="one class only"):
        read_gpu_target(put(np.ones(3, dtype=int))[0], n_rows=3)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        read_gpu_target(labels, n_rows=4)


@pytest.mark.parametrize(
    "y", [np.array([0, 10**6, 0]), np.array([0.0, 1.0, 0.0]), np.eye(3)], ids=["wide", "f", "soft"]
)
def test_other_targets_are_read_on_the_host(y):
    (labels,) = put(y)
    found, expected = read_gpu_target(labels, n_rows=3), read_target(y, n_rows=3)
    assert (found.classes == expected.classes).all()
    assert isinstance(found.codes if found.probs is None else found.probs, np.ndarray)


def test_weights_on_the_device():
    labels, weights = put(np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]))
    found = read_gpu_target(labels, n_rows=3, sample_weight=weights, class_weight={0: 2.0})
    assert found.weights.tolist() == [2.0, 2.0, 6.0]


@pytest.mark.parametrize(
    "X", [np.ones(3), np.ones((0, 2)), np.ones((2, 2), dtype=complex)], ids=["1d", "empty", "complex"]
)
def test_arrays_on_the_device_are_checked_as_others_are(X):
    from posteriori.rows.memory import read_features

    with pytest.raises(ValueError) as expected:  # noqa: PT011
        read_features(X)
    with pytest.raises(ValueError, match=str(expected.value).split(" ")[0]):
        read_gpu_features(put(X)[0])


def test_arrays_of_other_libraries_are_seen_through_dlpack():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    X = np.arange(6.0).reshape(3, 2)
    found = dlpack.as_jax(Foreign(X))
    assert found.dtype == np.float64
    assert (np.asarray(found) == X).all()


@pytest.mark.parametrize("side", [3, 400])
def test_a_matrix_is_factored_wherever_that_is_quicker(side):
    on_device, in_memory = both()
    half = np.random.default_rng(0).normal(size=(side, 2 * side))
    M = half @ half.T
    L = on_device.factor_on_gpu(M)
    np.testing.assert_allclose(L, cholesky(M), atol=1e-11 * np.abs(L).max())
    assert (L == np.tril(L)).all()
    assert isinstance(L, np.ndarray)
    assert L.flags.writeable
    M[side // 2, side // 2] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on_device.factor_on_gpu(M)
    assert isinstance(on_device, OnGpu)
    assert not isinstance(in_memory, OnGpu)


def test_no_gpu(monkeypatch):
    monkeypatch.undo()
    if jax.default_backend() != "cpu":
        pytest.skip("there is one")
    with pytest.raises(
        ValueError, match=r"device='gpu' is not available: JAX has 'cpu' only.*pip install 'posteriori\[gpu\]'"
    ):
        engine_for(np.eye(2), "gpu").read(np.eye(2), [])
    assert engine_for(put(np.eye(2))[0]).name == "memory"
    assert not dlpack.on_gpu([[1.0]])


def test_no_jax(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"need JAX, which is missing: pip install 'posteriori\[gpu\]'"):
        engine_for(np.eye(2), "gpu").read(np.eye(2), [])


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
def test_on_a_real_gpu(monkeypatch):
    monkeypatch.undo()
    X, y, _ = data(4096)
    rows = jax.device_put(X.astype(np.float32), jax.devices("gpu")[0])
    assert dlpack.on_gpu(rows)
    assert engine_for(rows).name == "GPU"
    blocks = read_gpu_features(rows).blocks(read_target(y, n_rows=4096), K)
    theta = np.ones((K, 5))
    expected = MemoryBlocks(X.astype(np.float32), y, None, K).map_sum(kernels.expected_moments, theta)
    for a, b in zip(blocks.map_sum(kernels.expected_moments, theta), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
