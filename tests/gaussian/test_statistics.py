"""Count, mean and scatter of classes: however rows are cut, weighted, stored or far away, those of the plain sums."""

from functools import reduce
from operator import add

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slow import quick_first

from posteriori.gaussian.statistics import ClassStatistics, class_statistics
from posteriori.rows import memory
from posteriori.rows.memory import MemoryBlocks

K, D = 4, 3
KINDS = ("full", "pooled", "diagonal")
EPS = np.finfo(np.float64).eps
kinds = pytest.mark.parametrize("kind", KINDS)


def data(n=60, n_classes=K, seed=0, missing=0.0, weighted=False, soft=False):
    """Rows of all classes but the last; scales and means differ."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes - 1, n)
    X = rng.normal(size=(n, D)) * [1.0, 10.0, 0.1] + rng.normal(size=(n_classes, D))[y] * 3.0
    X[rng.random(X.shape) < missing] = np.nan
    c = rng.uniform(0.1, 3.0, n) * (rng.random(n) < 0.9) if weighted else None
    Y = rng.dirichlet(np.ones(n_classes), n) * (rng.random((n, n_classes)) < 0.7) if soft else y
    return X, Y, c


def naive(X, Y, c, n_classes, kind):
    """The definitions, in more digits than double precision has."""
    X = np.asarray(X, dtype=np.longdouble)
    shares = np.eye(n_classes)[Y] if Y.ndim == 1 else Y
    shares = shares * (1.0 if c is None else c[:, None])
    counts = shares.sum(axis=0)
    present, means, scatters = [], [], []
    for w in shares.T:
        weights = w[:, None] * ~np.isnan(X)
        total = weights.sum(axis=0)
        mean = (weights * np.nan_to_num(X)).sum(axis=0) / np.where(total > 0, total, 1)
        Z = np.nan_to_num(X - mean)
        present.append(total)
        means.append(mean)
        scatters.append((w[:, None] * Z).T @ Z)
    scatter = np.array(scatters)
    scatter = {"full": scatter, "pooled": scatter.sum(axis=0), "diagonal": np.einsum("kdd->kd", scatter)}[kind]
    return ClassStatistics(kind, counts, np.array(present), np.array(means), scatter)


def assert_same(found, expected, distance=0.0):
    """Means to their last digits, scatter in units of the spreads: to twelve digits, or to those left at a distance."""
    assert found.kind == expected.kind
    np.testing.assert_allclose(found.counts, expected.counts.astype(float), rtol=1e-13)
    present = np.broadcast_to(found.present, expected.means.shape)
    np.testing.assert_allclose(present, expected.present.astype(float), rtol=1e-13)
    variances = np.einsum("...dd->...d", expected.scatter) if expected.kind != "diagonal" else expected.scatter
    largest = np.abs(expected.means).max() + np.sqrt(variances.max() / expected.counts.sum())
    assert np.abs(found.means - expected.means).max() <= 4e-15 * largest
    unit = np.sqrt(np.atleast_2d(variances) + 1e-6 * np.atleast_2d(variances).mean(axis=0))  # some classes have none
    unit = unit**2 if expected.kind == "diagonal" else unit[:, :, None] * unit[:, None, :]
    error = (np.abs(found.scatter - expected.scatter) / np.where(unit > 0, unit, 1.0)).max()
    # means of parts are rounded, and so are the differences between them
    assert error <= 1e-12 + 0.2 * EPS * distance


def pieces(X, Y, c, kind, edges, n_classes=K):
    """Statistics of the rows between the edges."""
    slices = [slice(i, j) for i, j in zip([0, *edges], [*edges, len(X)], strict=True) if j > i]
    return [class_statistics(X[s], Y[s], None if c is None else c[s], n_classes, kind) for s in slices]


def in_blocks(X, Y, c, kind, n_classes=K, n_threads=1, coarse=False):
    blocks = MemoryBlocks(X, Y, c, n_classes, n_threads=n_threads)
    return blocks.map_sum(class_statistics, n_classes, kind, coarse=coarse)


# Plain sums


@kinds
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, sp.csr_array])
def test_statistics_are_the_plain_sums(kind, soft, weighted, layout):
    X, Y, c = data(soft=soft, weighted=weighted)
    X[::4, 1] = 0.0
    found = class_statistics(layout(X), Y, c, K, kind)
    assert_same(found, naive(X, Y, c, K, kind))
    assert found.complete


@kinds
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("n_classes", quick_first([1, 17, 16, 40], 2))
def test_any_number_of_classes(kind, soft, n_classes):
    """More than 16 classes take another way; with 40 some have one row and some none."""
    X, Y, c = data(n=70, n_classes=max(n_classes, 2), soft=soft, weighted=True)
    Y = Y[:, :n_classes] if soft else Y
    assert_same(class_statistics(X, Y, c, n_classes, kind), naive(X, Y, c, n_classes, kind))


@pytest.mark.parametrize("n_classes", [K, 20])
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_missing_values_are_left_out_of_each_feature(soft, weighted, n_classes):
    X, Y, c = data(missing=0.3, soft=soft, weighted=weighted, n_classes=n_classes)
    if not soft:
        X[Y == 1, 2] = np.nan  # nothing is known of this feature in this class
    found = class_statistics(X, Y, c, n_classes, "diagonal")
    assert_same(found, naive(X, Y, c, n_classes, "diagonal"))
    assert not found.complete


@pytest.mark.parametrize("kind", ["full", "pooled"])
def test_missing_values_show_where_they_cannot_be_left_out(kind):
    X, Y, _ = data()
    X[7, 1] = np.nan
    assert np.isnan(class_statistics(X, Y, None, K, kind).means[Y[7], 1])


@kinds
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_of_no_weight_are_not_looked_at(kind, value):
    X, Y, c = data(weighted=True)
    bad = X.copy()
    bad[c == 0.0] = value
    with np.errstate(all="ignore"):
        found = class_statistics(bad, Y, c, K, kind)
    assert_same(found, naive(X, Y, c, K, kind))
    assert found.complete


@kinds
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
def test_the_rows_themselves_are_not_changed(kind, soft):
    X, Y, c = data(soft=soft, weighted=True)
    given_rows = [a.copy() for a in (X, Y, c)]
    class_statistics(X, Y, c, K, kind)
    for before, after in zip(given_rows, (X, Y, c), strict=True):
        np.testing.assert_array_equal(before, after)


@kinds
def test_a_weight_of_two_is_two_rows(kind):
    X, Y, _ = data()
    c = np.random.default_rng(1).integers(0, 4, len(X))
    found = class_statistics(X, Y, c.astype(float), K, kind)
    assert_same(found, naive(np.repeat(X, c, axis=0), np.repeat(Y, c), None, K, kind))


# Merging


@kinds
@given(
    edges=st.lists(st.integers(1, 39), max_size=8),
    order=st.randoms(use_true_random=False),
    missing=st.sampled_from([0.0, 0.4]),
    weighted=st.booleans(),
    soft=st.booleans(),
    n_classes=st.sampled_from([K, 20]),
    seed=st.integers(0, 5),
)
@settings(deadline=None, max_examples=40)
def test_any_split_in_any_order_gives_the_statistics_of_all_rows(
    kind, edges, order, missing, weighted, soft, n_classes, seed
):
    """Parts of one row, parts without some class, parts with and without missing values."""
    missing = missing if kind == "diagonal" else 0.0
    X, Y, c = data(40, n_classes, seed=seed, missing=missing, weighted=weighted, soft=soft)
    X[:15] = np.nan_to_num(X[:15])
    parts = pieces(X, Y, c, kind, sorted(edges), n_classes)
    order.shuffle(parts)
    expected = naive(X, Y, c, n_classes, kind)
    assert_same(reduce(add, parts), expected)
    while len(parts) > 1:  # as a tree
        parts = [reduce(add, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    assert_same(parts[0], expected)


@kinds
def test_nothing_added_changes_nothing(kind):
    X, Y, c = data(weighted=True)
    some = class_statistics(X, Y, c, K, kind)
    nothing = class_statistics(X[:5], Y[:5], np.zeros(5), K, kind)
    assert nothing.counts.sum() == 0.0
    for both in (some + nothing, nothing + some):
        for name in ("counts", "present", "means", "scatter"):
            np.testing.assert_array_equal(getattr(both, name), getattr(some, name))


# Blocks


@kinds
@pytest.mark.parametrize("block_bytes", quick_first([300, 64, 1 << 20]))
@pytest.mark.parametrize("part_bytes", [64, 1 << 20])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_blocks_of_any_size_on_any_number_of_threads(kind, block_bytes, part_bytes, layout, monkeypatch):
    """From one row at a time to all at once."""
    monkeypatch.setattr(memory, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("posteriori.gaussian.statistics._PART_BYTES", part_bytes)
    X, Y, c = data(weighted=True)
    expected = naive(X, Y, c, K, kind)
    one, two = (in_blocks(layout(X), Y, c, kind, n_threads=n_threads) for n_threads in (1, 2))
    assert_same(one, expected)
    for name in ("counts", "present", "means", "scatter"):  # bit by bit: added in the order of the blocks
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert_same(in_blocks(layout(X), Y, c, kind, coarse=True), expected)


def test_missing_values_in_some_blocks(monkeypatch):
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 300)
    X, Y, c = data(weighted=True, missing=0.3)
    X[20:] = np.nan_to_num(X[20:])
    assert_same(in_blocks(X, Y, c, "diagonal", n_threads=2), naive(X, Y, c, K, "diagonal"))


# Accuracy


FAR = {
    "float64, mean 1e8, sd 1": (1e8, 1.0, np.float64),
    "float64, mean -1e12, sd 1e4": (-1e12, 1e4, np.float64),
    "float32, mean 1e4, sd 1": (1e4, 1.0, np.float32),
    "float32, mean 0, sd 1e-20": (0.0, 1e-20, np.float32),
    "float64, mean 0, sd 1e-100": (0.0, 1e-100, np.float64),
    "float64, mean 0, sd 1e100": (0.0, 1e100, np.float64),
}


@kinds
@pytest.mark.parametrize(("mean", "sd", "dtype"), FAR.values(), ids=FAR.keys())
def test_no_digits_are_lost_far_from_the_origin(kind, mean, sd, dtype, monkeypatch):
    """Sums of squares about the origin would have none left."""
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 4 << 12)
    rng = np.random.default_rng(0)
    X = (mean + sd * rng.normal(size=(3000, D))).astype(dtype)
    y = rng.integers(0, K, 3000)
    assert_same(in_blocks(X, y, None, kind, n_threads=2), naive(X, y, None, K, kind), abs(mean) / sd)


@kinds
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("ordered", [False, True], ids=["mixed", "class by class"])
def test_classes_a_million_standard_deviations_apart(kind, soft, ordered):
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, 500)
    y = np.sort(y) if ordered else y
    X = rng.normal(size=(500, D)) + 1e6 * np.arange(K)[y][:, None]
    Y = np.eye(K)[y] if soft else y
    assert_same(class_statistics(X, Y, None, K, kind), naive(X, y, None, K, kind), 1e6)
    assert_same(reduce(add, pieces(X, Y, None, kind, [100, 300])), naive(X, y, None, K, kind), 1e6)


@kinds
@pytest.mark.parametrize("n_classes", [K, 20])
@pytest.mark.parametrize("n_outliers", [1, 4])
def test_outliers_as_first_rows_spoil_no_other_class(kind, n_classes, n_outliers):
    """They are alone in their class: the spread of all others is 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K - 1, 400)
    y[:n_outliers] = K - 1
    X = rng.normal(size=(400, D))
    X[:n_outliers] = 1e9
    assert_same(class_statistics(X, y, None, n_classes, kind), naive(X, y, None, n_classes, kind))


@kinds
def test_an_outlier_of_its_own_class_is_the_scatter(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, D)), rng.integers(0, K, 400)
    X[0] = [1e9, -1e9, 1e9]
    assert_same(class_statistics(X, y, None, K, kind), naive(X, y, None, K, kind))


@kinds
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("value", [0.1, 1e8 / 3, -1e-12])
def test_constant_columns_have_no_scatter_at_all(kind, soft, value, monkeypatch):
    """Nor have those that are constant within classes: not even by rounding, over blocks, with weights."""
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 600)
    X, Y, c = data(weighted=True, soft=soft)
    X[:, 1] = value
    if not soft:
        X[:, 2] = value * (1 + Y)
    found = in_blocks(X, Y, c, kind, n_threads=2)
    seen = found.counts > 0
    np.testing.assert_array_equal(found.means[seen, 1], value)
    flat = found.scatter if kind == "diagonal" else np.moveaxis(found.scatter, -1, 0)
    constant = flat[:, 1:] if kind == "diagonal" else flat[1:]
    np.testing.assert_array_equal(constant if not soft else flat[..., 1] if kind == "diagonal" else flat[1], 0.0)


# What follows from them


def test_mean_and_variance_of_all_rows():
    X, Y, c = data(weighted=True, missing=0.3)
    found = class_statistics(X, Y, c, K, "diagonal")
    weights = c[:, None] * ~np.isnan(X)
    mean = np.nansum(weights * X, axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(found.grand_mean(), mean, rtol=1e-13)
    variance = np.nansum(weights * (X - mean) ** 2, axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(found.total_variance(), variance, rtol=1e-13)


@kinds
def test_mean_and_variance_of_all_rows_from_any_scatter(kind):
    X, Y, _ = data()
    found = class_statistics(X, Y, None, K, kind)
    np.testing.assert_allclose(found.grand_mean(), X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.total_variance(), X.var(axis=0), rtol=1e-13)
    within = np.array([((X[Y == k] - X[Y == k].mean(axis=0)) ** 2).sum(axis=0) for k in range(K - 1)])
    expected = within.sum(axis=0, keepdims=True) if kind == "pooled" else within
    np.testing.assert_allclose(found.squares_about_means()[: len(expected)], expected, rtol=1e-12)


@kinds
def test_standardised_statistics_are_those_of_standardised_rows(kind):
    X, Y, c = data(weighted=True)
    shift, scale = np.array([3.0, -2.0, 0.5]), np.array([0.1, 5.0, 2.0])
    found = class_statistics(X, Y, c, K, kind).standardised(shift, scale)
    assert_same(found, naive((X - shift) * scale, Y, c, K, kind))
    np.testing.assert_array_equal(found.means[-1], 0.0)  # a class without rows has no mean to be shifted


@pytest.mark.parametrize("kind", ["pooled", "diagonal"])
def test_less_detail_is_what_would_have_been_kept_in_the_first_place(kind):
    X, Y, c = data(weighted=True)
    assert_same(class_statistics(X, Y, c, K, "full").reduced(kind), naive(X, Y, c, K, kind))
    kept = class_statistics(X, Y, c, K, kind)
    assert kept.reduced(kind) is kept
