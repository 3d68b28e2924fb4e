"""Rows on Dask's workers: sums, samples and complaints are those of the same rows in memory."""

import numpy as np
import pandas as pd
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

from posteriori.rows import dask as dask_rows  # noqa: E402
from posteriori.rows import dask_graph, products  # noqa: E402
from posteriori.rows.blocks import Sums  # noqa: E402
from posteriori.rows.dask import dask_column, is_dask, read_dask, read_dask_for_fit  # noqa: E402
from posteriori.rows.memory import read_features  # noqa: E402
from posteriori.rows.target import read_target  # noqa: E402
from posteriori.softmax import kernels  # noqa: E402

K, D = 3, 4
NAMES = [f"x{d}" for d in range(D)]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def data(n_rows=101, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, D))
    c = rng.uniform(0.5, 2.0, n_rows) * (rng.random(n_rows) < 0.8)
    return X, rng.integers(0, K, n_rows), c, rng.normal(size=(K, D + 1))


def frame(X, y, c):
    return pd.DataFrame(X, columns=NAMES).assign(kind=np.array(["a", "b", "c"])[y], weight=c)


def cut(table, *edges):
    """A Dask DataFrame with partitions that end at these rows; some may be empty."""
    ends = [*edges, len(table)]
    parts = [dask.delayed(table.iloc[i:j]) for i, j in zip([0, *edges], ends, strict=True)]
    return dd.from_delayed(parts, meta=table.iloc[:0])


def both_blocks(X, y, c, *edges, class_weight=None, **options):
    """The same rows in Dask partitions and in memory."""
    features, target = read_dask_for_fit(cut(frame(X, y, c), *edges), "kind", "weight", None, class_weight)
    memory = read_target(y, n_rows=len(y), sample_weight=c, class_weight=class_weight, classes=None)
    return features.blocks(target, K, **options), read_features(X).blocks(memory, K, **options)


def all_moments(X, Y, c, theta):
    return Sums((products.logits(X, theta).sum(axis=1), *kernels.observed_moments(X, Y, c, K)))


# Sums and rows


@pytest.mark.parametrize("edges", [(), (50,), (30, 60), (0, 40, 40, 101)])
@pytest.mark.parametrize("kept", [True, False])
def test_sums_are_those_of_all_rows_in_memory(edges, kept, monkeypatch):
    monkeypatch.setattr(dask_rows, "fit_in_memory", lambda n_bytes: kept)
    X, y, c, theta = data()
    options = {"shift": X.mean(axis=0), "scale": 1.0 / X.std(axis=0)}
    blocks, memory = both_blocks(X, y, c, *edges, class_weight="balanced", **options)
    for a, b in zip(blocks.map_sum(all_moments, theta), memory.map_sum(all_moments, theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(blocks.map_rows(products.logits, theta), memory.map_rows(products.logits, theta))
    assert (blocks.n_rows, blocks.n_features, blocks.n_passes) == (101, D, 2)


def test_sums_of_many_partitions_do_not_depend_on_the_scheduler():
    X, y, c, theta = data()
    blocks, _ = both_blocks(X, y, c, *range(1, 101, 3))
    with dask.config.set(scheduler="threads", num_workers=4):
        many = blocks.map_sum(all_moments, theta)
    for a, b in zip(many, blocks.map_sum(all_moments, theta), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_do_not_depend_on_where_in_memory_rows_have_travelled(order):
    X = np.array(data(30_000)[0], order=order)
    moved = np.ndarray(X.shape, buffer=bytearray(X.nbytes + 1), offset=1, order=order)
    moved[:] = X
    work = dask_rows.Work(K, None, None, kernels.observed_moments, (K,))
    sums = [dask_rows.sum_partition(work, (part, data(30_000)[1], None)) for part in (X, moved)]
    for a, b in zip(*sums, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_are_read_once_if_they_fit_and_in_every_pass_otherwise(monkeypatch):
    X, y, c, theta = data()
    reads = []
    monkeypatch.setattr(
        dask_rows, "read_partition", lambda *args, read=dask_rows.read_partition: reads.append(1) or read(*args)
    )
    for kept, expected in ((True, 2), (False, 6)):
        monkeypatch.setattr(dask_rows, "fit_in_memory", lambda n_bytes, kept=kept: kept)
        reads.clear()
        blocks, _ = both_blocks(X, y, c, 50)
        for _ in range(3):
            blocks.map_sum(all_moments, theta)
        assert len(reads) == expected


def test_what_fits_is_judged_by_the_free_memory_of_the_workers(monkeypatch):
    class Client:
        def scheduler_info(self, n_workers):
            assert n_workers == -1
            return {"workers": {i: {"memory_limit": 100, "metrics": {"memory": 40}} for i in range(10)}}

        def get(self, graph, keys):
            raise AssertionError

    monkeypatch.setattr("dask.base.get_scheduler", lambda: Client().get)
    assert dask_graph.fit_in_memory(300)
    assert not dask_graph.fit_in_memory(301)


def test_what_fits_without_a_cluster_is_judged_by_this_machine(monkeypatch):
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 1000)
    assert dask_graph.fit_in_memory(500)
    assert not dask_graph.fit_in_memory(501)


# Random rows


def test_a_sample_is_no_larger_than_the_client_holds(monkeypatch):
    monkeypatch.setattr(dask_rows, "_SAMPLE_BYTES", 20 * 8 * (D + 1))
    X, y, c, _ = data()
    blocks, _ = both_blocks(X, y, c, 50)
    sample = blocks.sample(60, np.random.default_rng(0))
    assert sample.n_rows == 20
    assert sample.c.sum() == pytest.approx(c.sum())


# What may be passed


def test_arrays_are_cut_alike_where_their_lengths_are_known():
    X, y, c, theta = data()
    expected = both_blocks(X, y, c)[1].map_sum(all_moments, theta)
    dask_X = da.from_array(X, chunks=(40, 2))
    for labels in (da.from_array(y, chunks=60), y, y[:, None], da.from_array(y[:, None], chunks=(40, 1))):
        features, target = read_dask_for_fit(dask_X, labels, da.from_array(c, chunks=33), None, None)
        assert features.lengths == [40, 40, 21]
        assert features.names is None
        found = features.blocks(target, K).map_sum(all_moments, theta)
        np.testing.assert_allclose(found[1], expected[1])


def test_arrays_of_unknown_lengths_must_be_cut_alike():
    X, y, c, theta = data()
    expected = both_blocks(X, y, c)[1].map_sum(all_moments, theta)
    dask_X, dask_y, weights = (da.from_array(a, chunks=(40, *a.shape[1:])) for a in (X, y, c))
    keep = dask_y >= 0
    features, target = read_dask_for_fit(dask_X[keep], dask_y[keep], weights[keep], None, None)
    np.testing.assert_allclose(features.blocks(target, K).map_sum(all_moments, theta)[1], expected[1])
    with pytest.raises(ValueError, match=r"X has 3 partitions and y 1, .* compute_chunk_sizes"):
        read_dask_for_fit(dask_X[keep], da.from_array(y, chunks=-1), None, None, None)
    with pytest.raises(ValueError, match="whose rows are not counted, and y must be the name"):
        read_dask_for_fit(dask_X[keep], y, None, None, None)


def test_labels_and_weights_may_be_series():
    X, y, c, theta = data()
    table = cut(frame(X, y, c), 40)
    expected = both_blocks(X, y, c)[1].map_sum(all_moments, theta)
    for labels, weights in ((table["kind"], table["weight"]), (table["kind"].astype("category"), table["weight"])):
        features, target = read_dask_for_fit(table[NAMES], labels, weights, None, None)
        np.testing.assert_allclose(features.blocks(target, K).map_sum(all_moments, theta)[1], expected[1])
    features, target = read_dask_for_fit(table[[*NAMES, "weight"]], table["kind"], "weight", None, None)
    np.testing.assert_allclose(features.blocks(target, K).map_sum(all_moments, theta)[1], expected[1])
    assert features.names == NAMES
    assert list(target.classes) == ["a", "b", "c"]


def test_columns_of_any_number_are_features():
    table = pd.DataFrame({"a": [1, 2, 3, 4], "b": [True, False, True, False], "c": np.float32([1, 2, 3, 5])})
    table["d"] = pd.array([1, 2, 3, 4], dtype="Int64")
    blocks = read_dask(dd.from_pandas(table, npartitions=2)).blocks(None, 1)
    np.testing.assert_array_equal(blocks.take(np.arange(4))[0], table.to_numpy(dtype=float))


def test_rows_to_predict_are_not_counted_before_they_are_needed(monkeypatch):
    X, y, c, theta = data()
    features = read_dask(cut(frame(X, y, c), 40), drop=["kind", "weight"])
    assert features.known_lengths is None
    assert features.n_features == D
    blocks = features.blocks(None, K)
    assert blocks.map_rows(products.logits, theta).shape == (K, 101)
    assert blocks.n_rows == 101


def test_columns_are_fetched_for_scores():
    X, y, c, _ = data()
    table = cut(frame(X, y, c), 40)
    assert list(dask_column(table, "kind")) == list(frame(X, y, c)["kind"])
    np.testing.assert_array_equal(dask_column(table, table["weight"]), c)
    np.testing.assert_array_equal(dask_column(X, y), y)
    with pytest.raises(ValueError, match="y='species' is not a column of X"):
        dask_column(table, "species")


def test_only_collections_of_dask_are_dask():
    assert not is_dask(np.eye(3))
    assert not is_dask(da.ones(3).sum().to_delayed())


# What is refused


def raises(message, X, y="kind", sample_weight=None):
    with pytest.raises(ValueError, match=message):
        read_and_sum(X, y, sample_weight)


def read_and_sum(X, y, sample_weight):
    features, target = read_dask_for_fit(X, y, sample_weight, None, None)
    features.blocks(target, len(target.classes)).map_sum(kernels.observed_moments, len(target.classes))


def test_columns_that_are_no_numbers_are_refused_at_once():
    X, y, c, _ = data()
    table = cut(frame(X, y, c), 40)
    raises("Column 'kind' of X has dtype .*string and must hold numbers: .*TableEncoder", table, table["kind"])
    raises("X has dtype <U1 .*TableEncoder", da.from_array(np.array([["a"], ["b"]])), np.array([0, 1]))
    raises("no columns other than target", table[["kind"]])
    raises("names that are strings", dd.from_pandas(pd.DataFrame({0: [1.0, 2.0]}), npartitions=1), np.array([0, 1]))


def test_partitions_that_differ_are_named():
    X, y, c, _ = data()
    table = frame(X, y, c)
    text = table.assign(x1=table["x1"].astype(str))
    with dask.config.set({"dataframe.convert-string": False}):
        parts = [dask.delayed(table.iloc[:50]), dask.delayed(text.iloc[50:])]
        mixed = dd.from_delayed(parts, meta=table.iloc[:0], verify_meta=False)
        raises("Partition 1 of X: Column 'x1' of X has dtype .*string.*TableEncoder", mixed)
        parts[1] = dask.delayed(table.drop(columns="x1").iloc[50:])
        lacking = dd.from_delayed(parts, meta=table.iloc[:0], verify_meta=False)
        raises(r"Partition 1 of X: it has no columns \['x1'\]; it has \['x0', 'x2'", lacking)
        parts[1] = dask.delayed(table.assign(kind=y).iloc[50:])
        labels = dd.from_delayed(parts, meta=table.iloc[:0], verify_meta=False)
        raises("labels of partition 0 are of type large_string and those of partition 1 of type int64", labels)
    wide = da.concatenate([da.ones((3, 2)), da.from_delayed(dask.delayed(np.ones((3, 5))), (3, 2), float)])
    raises(r"Partition 1 of X: it has shape \(3, 5\), and the first one 2 columns", wide, np.array([0, 1] * 3))


def test_x_and_y_of_different_rows_are_refused():
    X, y, c, _ = data()
    table, other = cut(frame(X, y, c), 40), cut(frame(X, y, c), 50)
    raises(r"Partition [01] of X: it has (40|61) rows, and (50|51) labels", table[NAMES], other["kind"])
    raises("X has 2 partitions and y 3", table[NAMES], cut(frame(X, y, c), 40, 50)["kind"])
    raises("X has 101 rows and y 100 values", da.from_array(X), y[:100])
    raises("X has 101 rows and y 100 values", da.from_array(X), da.from_array(y[:100]))
    raises("differ in length", table[[*NAMES, "kind"]], "kind", other["weight"])


def test_labels_and_weights_that_cannot_be_used_are_refused():
    X, y, c, _ = data()
    table = frame(X, y, c)
    raises("is not a column of X, whose columns are 'x0'", cut(table, 40), "species")
    raises("y='kind' names a column, but X is a Dask array", da.from_array(X), "kind")
    raises(r"with Dask it must be one value for each row", da.from_array(X), np.eye(K)[y])
    raises(r"with Dask it must be one value for each row", da.from_array(X), da.from_array(np.eye(K)[y]))
    raises("sample_weight must be the name", cut(table, 40), "kind", 2.0)
    raises("has 2 missing labels", cut(table.assign(kind=table["kind"].where(~table.index.isin([3, 99]))), 40))
    raises("holds the weight -1.0", cut(table.assign(weight=c - (table.index == 70) * (c + 1.0)), 40), "kind", "weight")
    raises(r"0 sample\(s\)", cut(table.iloc[:0]))
    raises(r"0 sample\(s\)", da.ones((0, 2)), np.array([]))
    raises("Expected 2D array, got 1D", da.from_array(y), y)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_values_that_are_not_finite_are_found(value, what):
    X, y, c, _ = data()
    X[45, 2] = X[90, 1] = value
    features, _ = read_dask_for_fit(cut(frame(X, y, c), 40), "kind", "weight", None, None)
    with pytest.raises(ValueError, match=f"X contains {what}, first in column 'x2', row 5 .* within partition 1"):
        features.require_finite()
    if np.isnan(value):
        features.require_finite(missing_allowed=True)
    with pytest.raises(ValueError, match=r"column 2, row 5 .* within partition 1"):
        read_dask(da.from_array(X, chunks=(40, D))).require_finite()
