"""Rows that occur more than once: merged where they are evidence, counted once where they are copies."""

import numpy as np
import pytest

from posteriori.gp.inputs import LabelledRows
from posteriori.gp.repeats import merged_rows


def naive_merged(rows):
    """Distinct pairs of a row and its label in the order in which they first occur, sums of weights, and counts."""
    found = {}
    for x, y, c in zip(rows.X.tolist(), rows.y.tolist(), rows.c.tolist(), strict=True):
        weight, count = found.get((*x, y), (0.0, 0))
        found[*x, y] = (weight + c, count + 1)
    keys = list(found)
    X, y = np.array([key[:-1] for key in keys]), np.array([key[-1] for key in keys])
    return X, y, *(np.array(part) for part in zip(*found.values(), strict=True))


def table(n=200, seed=0):
    """Three columns of two values each, and labels by chance, more of one class in some cells than in others."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, 3)).astype(float)
    likely = 0.2 + 0.2 * X.sum(axis=1)
    return LabelledRows(X, (rng.random(n) < likely).astype(int), rng.uniform(0.5, 2.0, n))


def noisy(n=150, seed=0, n_copied=50):
    """Continuous features and labels that neighbours do not share, then a third of the rows once more."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 3)), rng.integers(0, 3, n)
    copied = rng.choice(n, n_copied, replace=False)
    order = rng.permutation(n + n_copied)
    again = np.concatenate([np.arange(n), copied])[order]
    return LabelledRows(X[again], y[again], np.ones(n + n_copied)), again


def test_distinct_rows_stay_as_they_are():
    rng = np.random.default_rng(0)
    rows = LabelledRows(rng.normal(size=(40, 2)), rng.integers(0, 3, 40), rng.uniform(0.5, 2.0, 40))
    merged = merged_rows(rows, seed=0)
    np.testing.assert_array_equal(merged.rows.X, rows.X)
    np.testing.assert_array_equal(merged.rows.y, rows.y)
    np.testing.assert_array_equal(merged.rows.c, rows.c)
    np.testing.assert_array_equal(merged.counts, 1)
    assert merged.n_copies == 0


def test_repeats_are_merged_in_their_order_and_their_weights_added():
    X = np.array([[2.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [0.0, 5.0], [2.0, 0.0]])
    y, c = np.array([1, 0, 1, 1, 0, 1]), np.array([1.0, 2.0, 0.5, 4.0, 1.0, 3.0])
    merged = merged_rows(LabelledRows(X, y, c), seed=0)
    np.testing.assert_array_equal(merged.rows.X, [[2.0, 0.0], [1.0, 1.0], [1.0, 1.0], [0.0, 5.0]])
    np.testing.assert_array_equal(merged.rows.y, [1, 0, 1, 0])
    np.testing.assert_allclose(merged.rows.c, [4.5, 2.0, 4.0, 1.0])
    np.testing.assert_array_equal(merged.counts, [3, 1, 1, 1])
    assert merged.n_copies == 0


@pytest.mark.parametrize("seed", range(5))
def test_genuine_repeats_of_a_table_of_few_values_count_each(seed):
    """Cells whose labels disagree as often as those of their neighbours: no copies, and all weight is kept."""
    rows = table(seed=seed)
    merged = merged_rows(rows, seed=0)
    X, y, c, counts = naive_merged(rows)
    assert merged.n_copies == 0
    assert len(merged.rows.y) <= 16
    np.testing.assert_array_equal(merged.rows.X, X)
    np.testing.assert_array_equal(merged.rows.y, y)
    np.testing.assert_allclose(merged.rows.c, c, rtol=1e-12)
    np.testing.assert_array_equal(merged.counts, counts)


def test_repeats_that_agree_no_more_than_their_neighbours_are_no_copies():
    """Labels that are the same far and wide: identical rows always agree, and so do neighbours."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(200, 2)) + 100.0 * rng.integers(0, 2, size=(200, 1))
    merged = merged_rows(LabelledRows(X, (X[:, 0] > 50.0).astype(int), np.ones(200)), seed=0)
    assert merged.n_copies == 0
    assert merged.rows.c.sum() == 200
    assert merged.counts.max() > 1


def test_repeats_that_disagree_now_and_then_are_no_copies():
    """Of fifty rows that occur twice, five have two labels: far fewer than neighbours have, but copies have none."""
    rows, again = noisy()
    y = rows.y.copy()
    second = np.setdiff1d(np.arange(len(again)), np.unique(again, return_index=True)[1])
    y[second[:5]] = (y[second[:5]] + 1) % 3
    merged = merged_rows(LabelledRows(rows.X, y, rows.c), seed=0)
    assert merged.n_copies == 0
    assert merged.rows.c.sum() == 200
    assert (merged.counts == 2).sum() == 45


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_recognised_by_labels_that_only_they_share(seed):
    rows, again = noisy(seed=seed)
    merged = merged_rows(rows, seed=0)
    assert merged.n_copies == 50
    first = np.sort(np.unique(again, return_index=True)[1])
    np.testing.assert_array_equal(merged.rows.X, rows.X[first])
    np.testing.assert_array_equal(merged.rows.y, rows.y[first])
    np.testing.assert_allclose(merged.rows.c, 1.0)
    np.testing.assert_array_equal(merged.counts, 1)


def test_copies_have_the_mean_of_their_weights():
    rows, _ = noisy()
    rows = LabelledRows(rows.X, rows.y, np.random.default_rng(1).uniform(0.5, 2.0, len(rows.y)))
    merged = merged_rows(rows, seed=0)
    _, _, c, counts = naive_merged(rows)
    assert merged.n_copies == 50
    np.testing.assert_allclose(merged.rows.c, c / counts, rtol=1e-12)


def test_repeats_of_noisy_rows_whose_labels_are_drawn_anew_are_no_copies():
    """The same rows twice, as a copy has, but with labels that were given twice."""
    rows, _ = noisy()
    y = np.random.default_rng(5).integers(0, 3, len(rows.y))
    merged = merged_rows(LabelledRows(rows.X, y, rows.c), seed=0)
    assert merged.n_copies == 0
    assert merged.rows.c.sum() == 200


def test_a_few_repeats_are_too_few_to_call_them_copies():
    rows, _ = noisy(n_copied=9)
    merged = merged_rows(rows, seed=0)
    assert merged.n_copies == 0
    assert merged.rows.c.sum() == 159
    assert merged_rows(noisy(n_copied=10)[0], seed=0).n_copies == 10


def test_one_row_many_times_is_no_copy():
    """There is no neighbour to compare with."""
    rows = LabelledRows(np.ones((30, 2)), np.zeros(30, dtype=int), np.ones(30))
    merged = merged_rows(rows, seed=0)
    assert merged.n_copies == 0
    np.testing.assert_array_equal(merged.rows.c, [30.0])
    np.testing.assert_array_equal(merged.counts, [30])


def test_very_many_repeats_are_judged_by_a_part_of_them(monkeypatch):
    monkeypatch.setattr("posteriori.rows.copies._MOST_ROWS", 20)
    assert merged_rows(noisy()[0], seed=0).n_copies == 50
    assert merged_rows(table(), seed=0).n_copies == 0
