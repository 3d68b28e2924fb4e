"""What every engine promises, for every engine of the registry and every container that it reads.

The expected values are those of the plain matrix. An engine that is added to the registry is tried by itself.
"""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from posteriori.rows import arrow, dask, dlpack, gpu, memory, products
from posteriori.rows.blocks import (
    Blocks,
    KeepsRowValues,
    OnGpu,
    Preparable,
    Sums,
    least_sample,
    prepared,
    random_rows,
    row_values,
)
from posteriori.rows.engines import (
    ENGINES,
    engine_for,
    read_for_fit,
    read_for_prediction,
    read_in_memory_for_fit,
    read_labels,
    require_in_memory,
)
from posteriori.rows.extremes import extremes
from posteriori.rows.memory import MemoryBlocks
from posteriori.rows.schema import remember_features
from posteriori.softmax import kernels

N, D, K = 101, 4, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.8)
X[:, 0] = np.arange(1.0, N + 1)  # each row carries its number
Y = rng.integers(0, K, N)
C = rng.uniform(0.5, 2.0, N) * (rng.random(N) < 0.8)
THETA = 0.1 * rng.normal(size=(K, D + 1))
SHIFT, SCALE = X.mean(axis=0), 1.0 / X.std(axis=0)

weights = pytest.mark.parametrize("c", [None, C], ids=["alike", "weighted"])


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Few rows are cut as many would be, nothing is held in memory, and JAX's CPU stands for a GPU."""
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 512)
    monkeypatch.setattr(arrow, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(arrow, "_LEAST_ROWS", 17)
    monkeypatch.setattr(arrow, "_HELD_BYTES", 0)
    monkeypatch.setattr(arrow, "_SHUFFLED_ROWS", 60)
    monkeypatch.setattr(dask, "_SHUFFLED_BYTES", 60 * 8 * D)
    monkeypatch.setattr(gpu, "_HOST_BYTES", 40 * 8 * D)
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(dlpack, "first_gpu", lambda: jax.devices("cpu")[0])
    monkeypatch.setattr(dlpack, "on_gpu", lambda X: isinstance(X, jax.Array))
    with pytest.importorskip("dask").config.set(scheduler="synchronous"):
        yield


def examples(engine, X=X, y=Y, c=None):
    found = engine.examples(X, y, c)
    assert found, "an engine shows what it reads"
    return found


@pytest.fixture(params=ENGINES, ids=[engine.name for engine in ENGINES])
def engine(request):
    return request.param


def blocks_of(example, **options):
    features, target, _ = read_for_fit(example.X, example.y, example.sample_weight, None, None, example.device)
    return features.blocks(target, K, **options), target


def whole(Z, y=Y, c=None):
    return MemoryBlocks(Z, y, c, K)


def numbers_of(rows):
    return products.as_dense(rows)[:, 0].round().astype(int) - 1


def host_kernel(X, Y, c, theta):
    """A kernel of NumPy alone: several sums."""
    weight = np.ones(X.shape[0]) if c is None else c
    return Sums((products.logits(X, theta) @ weight, np.bincount(Y, weight, K), np.array(float(X.shape[0]))))


def assert_same(found, expected, **tolerance):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or {"rtol": 1e-11, "atol": 1e-11}))


def test_containers_are_claimed_by_their_engine(engine):
    for example in examples(engine):
        assert engine_for(example.X, example.device) is engine, example.kind


@weights
def test_sums_are_one_call_of_the_kernel(engine, c):
    for example in examples(engine, c=c):
        for n_threads, coarse in ((1, False), (2, True)):
            blocks, _ = blocks_of(example, n_threads=n_threads)
            assert (blocks.n_rows, blocks.n_features, blocks.sparse) == (N, D, "sparse" in example.kind)
            for kernel, params in (
                (host_kernel, (THETA,)),
                (kernels.observed_moments, (K,)),
                (kernels.expected_moments, (THETA,)),
            ):
                assert_same(blocks.map_sum(kernel, *params, coarse=coarse), kernel(X, Y, c, *params))
            ends, expected = blocks.map_sum(extremes), extremes(X, Y, c)
            np.testing.assert_allclose(ends.least, expected.least, atol=1e-12)
            np.testing.assert_allclose(ends.greatest, expected.greatest, atol=1e-12)
            assert blocks.n_passes == 4


@weights
def test_rows_are_shifted_and_scaled(engine, c):
    Z = (X - SHIFT) * SCALE
    for example in examples(engine, c=c):
        blocks, _ = blocks_of(example, shift=SHIFT, scale=SCALE)
        assert not blocks.sparse
        assert_same(blocks.map_sum(host_kernel, THETA), host_kernel(Z, Y, c, THETA))
        np.testing.assert_allclose(blocks.map_rows(products.logits, THETA), products.logits(Z, THETA), atol=1e-11)
        np.testing.assert_allclose(blocks.take(np.arange(N))[0], Z, atol=1e-13)
        scaled, _ = blocks_of(example, scale=SCALE)
        assert_same(scaled.map_sum(host_kernel, THETA), host_kernel(X * SCALE, Y, c, THETA))


def test_values_of_rows_come_in_the_order_of_the_rows(engine):
    for example in examples(engine):
        features, _, named = read_for_fit(example.X, example.y, None, None, None, example.device)
        assert features.n_features == D
        assert features.names in (None, [f"x{d}" for d in range(D)])
        blocks = features.blocks(None, K, n_threads=2)
        np.testing.assert_allclose(blocks.map_rows(products.logits, THETA), products.logits(X, THETA), atol=1e-12)
        own = blocks.map_rows(lambda X, a: a * products.as_dense(X)[:, :K].T, 2.0, heavy=True)
        np.testing.assert_allclose(own, 2.0 * X[:, :K].T)
        assert blocks.n_passes == 2
        assert named == [example.y] * isinstance(example.y, str)


def test_results_may_be_changed_in_place(engine):
    for example in examples(engine):
        blocks, _ = blocks_of(example)
        found = (*blocks.map_sum(kernels.observed_moments, K), blocks.map_rows(products.logits, THETA))
        assert all(values.flags.writeable and values.dtype == np.float64 for values in found), example.kind


@weights
def test_batches_visit_every_row_once_with_its_label_and_weight(engine, c):
    for example in examples(engine, c=c):
        blocks, _ = blocks_of(example)
        orders = []
        for seed in (5, 5, 6):
            batches = list(blocks.batches(8, np.random.default_rng(seed)))
            assert max(X_b.shape[0] for X_b, _, _ in batches) <= 8
            seen = np.concatenate([numbers_of(X_b) for X_b, _, _ in batches])
            np.testing.assert_array_equal(np.sort(seen), np.arange(N))
            np.testing.assert_array_equal(np.concatenate([Y_b for _, Y_b, _ in batches]), Y[seen])
            if c is not None:
                np.testing.assert_allclose(np.concatenate([c_b for _, _, c_b in batches]), c[seen])
            orders.append(seen.tolist())
        assert orders[0] == orders[1]
        assert len({tuple(order) for order in (*orders, range(N))}) == 3
        assert blocks.n_passes == 3


@weights
def test_a_sample_is_rows_of_the_whole_with_its_total_weight(engine, c):
    total = float(N) if c is None else c.sum()
    for example in examples(engine, c=c):
        blocks, _ = blocks_of(example)
        samples = [blocks.sample(30, np.random.default_rng(seed)) for seed in (0, 0, 1)]
        drawn = []
        for sample in samples[:2]:
            rows, labels, weight = sample.take(np.arange(sample.n_rows))
            numbers = numbers_of(rows)
            assert 25 <= len(set(numbers.tolist())) == sample.n_rows <= 30
            np.testing.assert_allclose(products.as_dense(rows), X[numbers], atol=1e-12)
            np.testing.assert_array_equal(labels, Y[numbers])
            assert np.sum(weight) == pytest.approx(total, rel=1e-12)
            drawn.append(numbers.tolist())
        assert drawn[0] == drawn[1]
        assert blocks.sample(N, np.random.default_rng(0)) is blocks


@weights
def test_samples_estimate_sums_over_all_rows(engine, c):
    """The mean of many samples' sums is the sum over all rows, within what chance allows."""
    expected = kernels.observed_moments(X, Y, c, K)[0]
    for example in examples(engine, c=c):
        blocks, _ = blocks_of(example)
        samples = (blocks.sample(40, np.random.default_rng(seed)) for seed in range(12))
        sums = np.array([sample.map_sum(kernels.observed_moments, K)[0] for sample in samples])
        spread = sums.std(axis=0) + 1e-9 + 0.05 * np.abs(expected)
        assert (np.abs(sums.mean(axis=0) - expected) <= 4.0 * spread).all(), example.kind


@weights
def test_rows_drawn_as_in_memory_are_those_of_memory(engine, c):
    for example in examples(engine, c=c):
        blocks, _ = blocks_of(example)
        theirs = whole(X, c=c)
        mine = blocks.sample(30, np.random.default_rng(3), as_in_memory=True)
        for a, b in zip(
            mine.take(np.arange(30)), theirs.sample(30, np.random.default_rng(3)).take(np.arange(30)), strict=True
        ):
            np.testing.assert_allclose(products.as_dense(a), b, rtol=1e-12)
        for n_rows in (0, 7, 50, 1000):
            drawn = random_rows(blocks, n_rows, np.random.default_rng(1))
            expected = random_rows(theirs, n_rows, np.random.default_rng(1))
            assert drawn[0].shape == expected[0].shape
            if n_rows:
                np.testing.assert_allclose(products.as_dense(drawn[0]), expected[0], atol=1e-12)
                np.testing.assert_array_equal(drawn[1], expected[1])
                assert c is None or (drawn[2] > 0).all()


def test_rows_are_taken_by_number(engine):
    for example in examples(engine, c=C):
        blocks, _ = blocks_of(example)
        rows = np.array([0, 16, 17, 18, 40, N - 1])
        taken, labels, weight = blocks.take(rows)
        np.testing.assert_allclose(products.as_dense(taken), X[rows], atol=1e-12)
        np.testing.assert_array_equal(labels, Y[rows])
        np.testing.assert_allclose(weight, C[rows])
        assert blocks.n_weighted == np.count_nonzero(C)
        numbered = np.flatnonzero(C)[[0, 3, 20]]
        np.testing.assert_array_equal(numbers_of(blocks.take(np.array([0, 3, 20]), weighted=True)[0]), numbered)


def test_class_weights_multiply_row_weights(engine):
    factors = np.array([0.0, 2.0, 1.0])
    for example in examples(engine, c=C):
        features, target, _ = read_for_fit(
            example.X, example.y, example.sample_weight, None, dict(enumerate(factors)), example.device
        )
        blocks = features.blocks(target, K)
        assert_same(blocks.map_sum(host_kernel, THETA), host_kernel(X, Y, C * factors[Y], THETA))
        _, labels, weight = random_rows(blocks, 20, np.random.default_rng(0))
        assert len(labels) == 20
        assert (weight > 0).all()
        assert blocks.n_weighted == np.count_nonzero(C * factors[Y])


def test_a_declared_class_without_rows_keeps_its_place(engine):
    for example in examples(engine, y=np.where(Y == 1, 0, Y)):
        _, target, _ = read_for_fit(example.X, example.y, None, [0, 1, 2], None, example.device)
        assert target.classes.tolist() == [0, 1, 2]


# Optional capabilities


def test_values_kept_for_rows_change_no_sum(engine):
    for example in examples(engine):
        blocks, _ = blocks_of(example)
        places = row_values(blocks, K)
        assert (places is not None) == isinstance(blocks, KeepsRowValues)
        if places is None:
            continue
        first = blocks.map_sum(kernels.expected_moments, THETA, row_values=places)
        assert_same(first, kernels.expected_moments(X, Y, None, THETA))
        for coarse in (False, True):
            spread = blocks.map_sum(kernels.class_spread, THETA, row_values=places, coarse=coarse)
            np.testing.assert_allclose(spread, blocks.map_sum(kernels.class_spread, THETA), rtol=1e-11)
        assert row_values(blocks, 10**12) is None, "there is a limit"


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_rows_prepared_for_many_passes_are_the_same_rows(engine, held, monkeypatch):
    monkeypatch.setattr(arrow, "_HELD_BYTES", held)
    for example in examples(engine, c=C):
        blocks, _ = blocks_of(example, shift=SHIFT, scale=SCALE)
        ready = prepared(blocks)
        assert isinstance(blocks, Preparable) or ready is blocks
        assert_same(ready.map_sum(host_kernel, THETA), host_kernel((X - SHIFT) * SCALE, Y, C, THETA))


def test_only_rows_on_a_gpu_run_programs_there(engine):
    for example in examples(engine):
        blocks, _ = blocks_of(example)
        on_gpu = engine.name == "GPU"
        assert isinstance(blocks, OnGpu) == on_gpu
        assert (least_sample(blocks) > 0) == on_gpu


def test_blocks_have_what_every_engine_must_have():
    members = {name for name in (*vars(Blocks), *Blocks.__annotations__) if not name.startswith("_")}
    of_rows = {"n_rows", "n_weighted", "n_features", "sparse", "n_passes"}
    assert members == of_rows | {"map_sum", "map_rows", "batches", "sample", "take"}


# Labels and refusals


def test_labels_and_weights_are_fetched(engine):
    for example in examples(engine, c=C):
        np.testing.assert_array_equal(read_labels(example.X, example.y), Y)
        np.testing.assert_array_equal(read_labels(example.X, example.sample_weight), C)
        assert read_labels(example.X, None) is None


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_the_first_value_that_is_not_finite_is_found(engine, value):
    bad = X.copy()
    bad[17, 2] = bad[40, 1] = value
    for example in examples(engine, bad):
        features, _, _ = read_for_fit(example.X, example.y, None, None, None, example.device)
        found = features.first_not_finite()
        np.testing.assert_equal(found.value, value)
        assert found.column in (2, "x2")
        assert found.row == 17
        assert found.missing == np.isnan(value)
        word = "NaN" if np.isnan(value) else "infinity"
        said = f"X contains {word}, first in column {found.column!r}, row 17 \\(counted from 0\\): remove or fill in"
        with pytest.raises(ValueError, match=said):
            features.require_finite()
        with pytest.raises(ValueError, match=said), np.errstate(all="ignore"):
            features.blocks(None, K, shift=SHIFT, finite=True, n_threads=2).map_rows(products.logits, THETA)
        assert (features.first_not_finite(missing_allowed=True) is None) == np.isnan(value)
    for example in examples(engine):
        features, _, _ = read_for_fit(example.X, example.y, None, None, None, example.device)
        assert features.first_not_finite() is None
        values = features.blocks(None, K, finite=True).map_rows(products.logits, THETA)
        np.testing.assert_allclose(values, products.logits(X, THETA), atol=1e-12)


class Estimator(BaseEstimator):
    """Something that remembers the columns of a fit."""

    def fit(self):
        """For scikit-learn."""


def test_new_rows_must_have_the_columns_of_the_fit(engine):
    for example in examples(engine, c=C):
        features, _, named = read_for_fit(example.X, example.y, example.sample_weight, None, None, example.device)
        estimator = Estimator()
        remember_features(estimator, features, named)
        assert estimator.n_features_in_ == D
        assert read_for_prediction(estimator, example.X, example.device).n_features == D
        for fewer in examples(engine, X[:, 1:]):
            if fewer.kind == example.kind and not isinstance(fewer.y, str):
                with pytest.raises(ValueError, match="X has 3 features, but Estimator is expecting 4 features"):
                    read_for_prediction(estimator, fewer.X, example.device)


def test_what_cannot_be_read_is_refused(engine):
    for example in examples(engine):
        with pytest.raises(ValueError, match="requires y to be passed"):
            read_for_fit(example.X, None, None, None, None, example.device)
        with pytest.raises(ValueError, match=r"y='species' (is not|names) a column"):
            read_for_fit(example.X, "species", None, None, None, example.device)
        if not engine.holds_all_rows:
            with pytest.raises(ValueError, match="device='gpu' needs all rows in memory at once"):
                read_for_fit(example.X, example.y, None, None, None, "gpu")
            with pytest.raises(ValueError, match="Gaussian needs its rows in memory, and X is not a table"):
                require_in_memory(example.X, "Gaussian")
            with pytest.raises(ValueError, match="Gaussian needs its rows in memory"):
                read_in_memory_for_fit(example.X, example.y, None, None, None, who="Gaussian")
        else:
            require_in_memory(example.X, "Gaussian")
            matrix = read_in_memory_for_fit(example.X, example.y, None, None, None, who="Gaussian")[0].matrix
            np.testing.assert_array_equal(products.as_dense(matrix), X)
    with pytest.raises(ValueError, match="device='gpu' takes dense rows, and X is a sparse matrix"):
        read_for_fit(sp.csr_array(X), Y, None, None, None, "gpu")


def test_labels_of_one_class_and_bad_weights_are_refused(engine):
    for example in examples(engine, y=np.zeros(N, dtype=int)):
        with pytest.raises(ValueError, match="one class only"):
            read_for_fit(example.X, example.y, None, None, None, example.device)
    wrong = C.copy()
    wrong[60] = -1.0
    for example in examples(engine, c=wrong):
        with pytest.raises(ValueError, match=r"-1\.0"):
            read_for_fit(example.X, example.y, example.sample_weight, None, None, example.device)
    for example in examples(engine, c=np.zeros(N)):
        with pytest.raises(ValueError, match=r"(weight zero|weights? .*zero)"):
            read_for_fit(example.X, example.y, example.sample_weight, None, None, example.device)


def test_a_fit_in_memory_imports_no_library_of_another_engine():
    code = (
        "import sys, numpy as np, posteriori as po\n"
        "X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3\n"
        "bayes = po.BayesianSoftmaxRegression(1.0, approximation='laplace')\n"
        "for model in (po.SoftmaxRegression(), bayes, po.GaussianClassifier('tied', estimate='mle')):\n"
        "    model.fit(X, y).predict_proba(X)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'jax', 'dask', 'distributed'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
