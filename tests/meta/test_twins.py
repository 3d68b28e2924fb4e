"""Rows that occur more than once stay in one fold."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from posteriori import CalibratedClassifier
from posteriori.meta.calibrated_classifier import _first_twins, _folds_of_twins
from posteriori.rows.copies import row_numbers

KINDS = {
    "array": np.asarray,
    "list": lambda X: X.tolist(),
    "long double": lambda X: X.astype(np.longdouble),
    "sparse": sp.csr_array,
    "pandas": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
    "text": lambda X: pd.DataFrame(X.astype(str), columns=list("abcd")),
}


def doubled(seed=0):
    """Iris without its one pair of twins, half of it twice and in random order, with the number of each flower."""
    X, y = load_iris(return_X_y=True)
    X, number = np.unique(X, axis=0, return_index=True)
    y = y[number]
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.append(np.arange(len(y)), rng.choice(len(y), len(y) // 2, replace=False)))
    return X[rows], y[rows], rows


@pytest.mark.parametrize("kind", KINDS)
def test_twins_are_found_in_any_container(kind):
    X, y, number = doubled()
    first = np.array([np.flatnonzero(number == each)[0] for each in number])
    np.testing.assert_array_equal(_first_twins(KINDS[kind](X), y), first)


def test_zeros_that_are_stored_change_nothing():
    X = sp.csr_array(np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 0.0], [3.0, 0.0]]))
    X.data[1 + X.indptr[1]] = 0.0
    a, b, c, d = row_numbers(X)
    assert a == b == c != d


def test_rows_that_agree_by_chance_are_none():
    """One feature of three values, and labels that it does not decide: no fit is asked without a kind of rows."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (300, 1)), rng.integers(0, 2, 300)
    np.testing.assert_array_equal(_first_twins(X, y), np.arange(300))
    assert _folds_of_twins(StratifiedKFold(5), _first_twins(X, y), y) is None


def test_what_cannot_be_compared_has_no_twins():
    X = np.empty((2, 1), dtype=object)
    X[0, 0], X[1, 0] = [1], [1]
    np.testing.assert_array_equal(_first_twins(X, np.zeros(2, dtype=int)), [0, 1])


def test_folds_leave_out_every_row_once_and_no_twin_is_kept():
    X, y, number = doubled()
    folds = _folds_of_twins(StratifiedKFold(5), _first_twins(X, y), y)
    np.testing.assert_array_equal(np.sort(np.concatenate([out for _, out in folds])), np.arange(len(y)))
    for kept, out in folds:
        assert not set(number[kept]) & set(number[out])
        assert np.bincount(y[out], minlength=3).min() > 5


def test_too_few_distinct_rows_for_the_folds_are_dealt_like_others():
    X, y = np.repeat([[0.0], [1.0]], 20, axis=0), np.repeat([0, 1], 20)
    assert _folds_of_twins(StratifiedKFold(5), _first_twins(X, y), y) is None
    assert CalibratedClassifier(KNeighborsClassifier(1)).fit(X, y).score(X, y) == 1.0


def test_a_model_that_knows_every_row_by_heart_is_not_believed_on_account_of_twins():
    """One neighbour, labels at random, each row twice: left-out rows have a twin at distance zero."""
    rng = np.random.default_rng(0)
    X, y = np.tile(rng.normal(size=(200, 2)), (2, 1)), np.tile(rng.integers(0, 2, 200), 2)
    ours = CalibratedClassifier(KNeighborsClassifier(1), method="auto").fit(X, y).predict_proba(X)
    assert np.abs(ours - 0.5).max() < 0.1
    shuffled = StratifiedKFold(5, shuffle=True, random_state=0)
    misled = CalibratedClassifier(KNeighborsClassifier(1), method="auto", cv=shuffled).fit(X, y).predict_proba(X)
    assert np.abs(misled - 0.5).min() > 0.2
