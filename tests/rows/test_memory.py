"""Blocks in memory: however rows are cut, converted or shared out, sums and rows are those of the whole matrix."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slow import quick_first

from posteriori.rows import memory, products
from posteriori.rows.blocks import Sums
from posteriori.rows.matrices import NamedMatrix, read_matrix
from posteriori.rows.memory import InOrder, MemoryBlocks
from posteriori.softmax import kernels

K = 3
threads = pytest.mark.parametrize("n_threads", [1, 4])


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of some hundred bytes: few rows make many blocks."""
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 512)


def data(n_rows=101, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.8)
    return X, rng.integers(0, K, n_rows), rng.uniform(0.5, 2.0, n_rows), rng.normal(size=(K, n_features + 1))


def all_moments(X, Y, c, theta):
    """Several sums, each a plain matrix product."""
    return Sums((products.logits(X, theta).sum(axis=1), *kernels.observed_moments(X, Y, c, K)))


def assert_same(sums, expected, **tolerance):
    for a, b in zip(sums, expected, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


# Slices


def assert_equal_shares(slices, n_rows):
    assert slices[0].start == 0
    assert slices[-1].stop == n_rows
    assert [s.stop for s in slices[:-1]] == [s.start for s in slices[1:]]
    lengths = [s.stop - s.start for s in slices]
    assert max(lengths) - min(lengths) <= 1
    assert min(lengths) >= min(n_rows, 1)  # no block is empty, unless all are


@given(st.integers(0, 10_000_000), st.integers(1, 5_000), st.integers(2, 1_000))
@settings(deadline=None, max_examples=20)
def test_slices_cover_every_row_once_in_blocks_that_fit_the_cache(n_rows, n_features, n_classes):
    slices = memory._slices(np.broadcast_to(np.zeros(1), (n_rows, n_features)), n_classes, False)
    assert_equal_shares(slices, n_rows)
    row_bytes = (n_features + n_classes) * 8
    assert len(slices) == 1 or (slices[0].stop - 1) * row_bytes <= 4 << 20


@given(st.integers(0, 50), st.integers(1, 50), st.integers(2, 10_000_000))
@settings(deadline=None, max_examples=20)
def test_slices_cover_every_sparse_row_once(n_rows, n_features, n_classes):
    assert_equal_shares(memory._slices(sp.csr_array(np.ones((n_rows, n_features))), n_classes, True), n_rows)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 7])
@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array])
def test_fewer_rows_than_blocks_make_a_block_of_each(monkeypatch, n_rows, matrix):
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 1)
    X, Y, c, theta = data(n_rows)
    blocks = MemoryBlocks(matrix(X), Y, c, K, n_threads=2)
    assert len(blocks.slices) == n_rows
    assert_same(blocks.map_sum(all_moments, theta), all_moments(X, Y, c, theta), atol=1e-13)


def test_no_rows_make_a_sum_of_zero():
    X, Y, c, theta = data(0)
    blocks = MemoryBlocks(X, Y, c, K)
    assert_same(blocks.map_sum(kernels.expected_moments, theta), (0.0, np.zeros((K, 6))))
    assert blocks.map_rows(products.logits, theta).shape == (K, 0)


# Sums and rows


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array])
def test_the_number_of_threads_changes_no_bit(monkeypatch, matrix):
    monkeypatch.setattr(memory, "_BLOCK_FLOPS", 1e5)
    X, Y, c, theta = data(20_000, 20)
    blocks = [MemoryBlocks(matrix(X), Y, c, K, n_threads=n) for n in (1, 2, 4)]
    assert [len(b.slices) for b in blocks] == [4, 4, 4]
    (value, gradient), *others = (b.map_sum(kernels.expected_moments, theta) for b in blocks)
    for other_value, other_gradient in others:
        assert other_value == value
        assert other_gradient.tobytes() == gradient.tobytes()


@given(st.permutations(range(6)))
def test_results_are_added_in_order_of_their_number_not_of_arrival(order):
    total = InOrder()
    for i in order:
        total.put(i, (i,))
    assert total.value == (0, 1, 2, 3, 4, 5)


# Values that belong to rows


def row_number(X, Y, c, buffer):
    """Write each row's own number (its first feature) to its buffer."""
    buffer[:] = X[:, 0]
    return 0


def mismatch(X, Y, c, buffer):
    """How far a row's buffer is from the row's own number, and how many rows there are."""
    assert buffer.shape == (K, X.shape[0])
    return Sums((np.abs(buffer - X[:, 0]).sum(), X.shape[0], 1))


@threads
@pytest.mark.parametrize("coarse_rows", [1, 33, 10_000])
def test_values_stay_with_their_rows_also_in_coarse_blocks(small_blocks, monkeypatch, n_threads, coarse_rows):
    monkeypatch.setattr(memory, "_COARSE_ROWS", coarse_rows)
    X = np.arange(101.0)[:, None] * np.ones(5)
    blocks = MemoryBlocks(X, None, None, K, n_threads=n_threads)
    values = blocks.row_values(K)
    blocks.map_sum(row_number, row_values=values)
    np.testing.assert_array_equal(np.concatenate(values, axis=1), [np.arange(101.0)] * K)
    assert blocks.map_sum(mismatch, row_values=values) == (0.0, 101, len(blocks.slices))
    rows = blocks.slices[0].stop
    joined = -(-len(blocks.slices) // max(1, min(coarse_rows // rows, len(blocks.slices) // 4)))
    assert blocks.map_sum(mismatch, row_values=values, coarse=True) == (0.0, 101, joined)


def test_values_beyond_the_limit_are_refused(monkeypatch):
    X, Y, c, _ = data()
    blocks = MemoryBlocks(X, Y, c, K)
    monkeypatch.setattr(memory, "_ROW_VALUE_BYTES", 101 * K * 8)
    assert sum(b.size for b in blocks.row_values(K)) == 101 * K
    assert blocks.row_values(K + 1) is None


def test_the_limit_is_256_megabytes():
    X = np.broadcast_to(np.zeros(1), ((256 << 20) // 8 + 1, 1))
    assert MemoryBlocks(X, None, None, 2).row_values(1) is None


# Conversions


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i1", "i4", "?"])
@pytest.mark.parametrize("order", ["C", "F", "csr"])
@pytest.mark.parametrize("scaled", quick_first([True, False]))
def test_every_dtype_and_order_gives_the_sums_of_float64(small_blocks, dtype, order, scaled):
    rng = np.random.default_rng(0)
    _, Y, c, theta = data()
    X = rng.integers(0, 120, (101, 5)).astype(dtype)
    scale = rng.uniform(0.01, 0.02, 5) if scaled else None
    matrix = sp.csr_array(X) if order == "csr" else np.array(X, order=order)
    blocks = MemoryBlocks(matrix, Y, c, K, scale=scale)
    exact = X.astype(np.float64) * (1.0 if scale is None else scale)
    assert_same(blocks.map_sum(all_moments, theta), all_moments(exact, Y, c, theta), rtol=1e-12)
    diagonal = blocks.map_sum(kernels.hessian_diagonal, 0.01 * theta)
    np.testing.assert_allclose(diagonal, kernels.hessian_diagonal(exact, Y, c, 0.01 * theta), rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F", "csr"])
def test_float32_is_squared_in_float64(order):
    X = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    matrix = sp.csr_array(X) if order == "csr" else np.array(X, order=order)
    _, squares = MemoryBlocks(matrix, np.zeros(50, int), None, 2).map_sum(kernels.observed_moments, 2)
    np.testing.assert_allclose(squares, (X.astype(np.float64) ** 2).sum(axis=0), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "?"])
@pytest.mark.parametrize("scaled", [False, True])
def test_shift_and_scale(small_blocks, dtype, scaled):
    rng = np.random.default_rng(0)
    _, Y, c, theta = data()
    X = rng.integers(0, 120, (101, 5)).astype(dtype)
    before, shift, scale = X.copy(), rng.normal(size=5), rng.uniform(0.5, 2.0, 5) if scaled else None
    exact = (X.astype(np.float64) - shift) * (1.0 if scale is None else scale)
    blocks = MemoryBlocks(X, Y, c, K, shift=shift, scale=scale)
    assert_same(blocks.map_sum(all_moments, theta), all_moments(exact, Y, c, theta), rtol=1e-11)
    np.testing.assert_allclose(blocks.map_rows(products.logits, theta), products.logits(exact, theta), rtol=1e-12)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", ["f4", "u1", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_no_float64_copy_of_the_whole_matrix_is_made(dtype, order):
    X = np.ones((400_000, 20), dtype, order=order)  # as float64: 64 MB
    theta = np.zeros((K, 21))
    blocks = MemoryBlocks(X, np.zeros(400_000, np.int8), None, K, n_threads=2)
    tracemalloc.start()
    try:
        value, _ = blocks.map_sum(kernels.expected_moments, theta)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value == pytest.approx(400_000 * np.log(K))
    assert peak < 16e6


# Batches and samples


@pytest.mark.parametrize(
    ("matrix", "size", "soft"),
    [
        (np.ascontiguousarray, 1, True),
        (np.asfortranarray, 7, False),
        (sp.csr_array, 101, True),
        (np.asarray, 500, False),
    ],
)
def test_batches_visit_every_row_once_with_its_label_and_weight(matrix, size, soft):
    number = np.arange(101.0)
    X = np.stack([number, number**2], axis=1)
    Y = np.stack([number, -number], axis=1) if soft else np.arange(101)
    blocks = MemoryBlocks(matrix(X), Y, number / 2, K)
    batches = list(blocks.batches(size, np.random.default_rng(5)))
    assert [batch[0].shape[0] for batch in batches] == [min(size, 101 - i) for i in range(0, 101, size)]
    seen = []
    for X_b, Y_b, c_b in batches:
        X_b = X_b.toarray() if sp.issparse(X_b) else X_b
        rows = X_b[:, 0]
        np.testing.assert_array_equal(X_b[:, 1], rows**2)
        np.testing.assert_array_equal(Y_b, np.stack([rows, -rows], axis=1) if soft else rows)
        np.testing.assert_array_equal(c_b, rows / 2)
        seen.extend(rows.tolist())
    assert sorted(seen) == number.tolist()
    assert seen != number.tolist()
    assert blocks.n_passes == 1
    again = [batch[2] for batch in blocks.batches(size, np.random.default_rng(5))]
    np.testing.assert_array_equal(np.concatenate(again) * 2, seen)
    other = [batch[2] for batch in blocks.batches(size, np.random.default_rng(6))]
    assert (np.concatenate(other) * 2).tolist() != seen


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_is_rows_of_the_whole_with_its_total_weight(matrix, weighted):
    number = np.arange(1.0, 102.0)
    c = number / 3 if weighted else None
    blocks = MemoryBlocks(matrix(number[:, None]), np.arange(101), c, K, scale=np.array([10.0]))
    sample = blocks.sample(20, np.random.default_rng(0))
    rows = (sample.X.toarray() if sp.issparse(sample.X) else sample.X)[:, 0] / 10
    assert len(set(rows.round(9))) == sample.n_rows == 20
    np.testing.assert_allclose(rows, sample.Y + 1)
    total = c.sum() if weighted else 101.0
    assert sample.c.sum() == pytest.approx(total, rel=1e-14)
    np.testing.assert_allclose(sample.c, rows * total / rows.sum() if weighted else total / 20)
    again, other = (blocks.sample(20, np.random.default_rng(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(again.Y, sample.Y)
    assert other.Y.tolist() != sample.Y.tolist()
    assert blocks.sample(101, np.random.default_rng(0)) is blocks


def test_every_row_is_sampled_equally_often():
    blocks = MemoryBlocks(np.zeros((10, 1)), np.arange(10), None, 10)
    rng = np.random.default_rng(0)
    counts = sum(np.bincount(blocks.sample(3, rng).Y, minlength=10) for _ in range(2000))
    assert np.abs(counts / 2000 - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 2000)


def test_a_sample_of_rows_without_weight_keeps_the_total():
    c = np.zeros(1000)
    c[0] = 6.0
    sample = MemoryBlocks(np.zeros((1000, 1)), np.zeros(1000, int), c, 2).sample(4, np.random.default_rng(0))
    assert sample.c.tolist() == [1.5] * 4


def test_a_matrix_with_names_is_read_as_a_table_of_them():
    X, *_ = data()
    names = [f"column {d}" for d in range(X.shape[1])]
    named, table = NamedMatrix(X, names), pd.DataFrame(X, columns=names)
    for drop in ([], names[1:3], ["absent"]):
        matrix, kept = read_matrix(named, drop=drop)
        expected, expected_names = read_matrix(table, drop=drop)
        np.testing.assert_array_equal(matrix, expected)
        assert kept == expected_names
    assert read_matrix(named)[0] is X  # nothing is copied
