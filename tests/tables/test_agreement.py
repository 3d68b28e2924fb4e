"""Columns that give the target away are told; those that agree with it by chance, or well, are not."""

import itertools
import warnings
from math import comb, factorial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from posteriori.exceptions import ColumnWarning
from posteriori.tables import agreement as agreements
from posteriori.tables.agreement import agreement, merge_agreements, read_labels
from posteriori.tables.columns import read_column
from posteriori.tables.encoder import TableEncoder

RNG = np.random.default_rng(0)
N = 120
Y = RNG.choice(["a", "b", "c"], N)
CODES = np.searchsorted(["a", "b", "c"], Y)


def together(values, y=Y, parts=1):
    pieces = []
    for rows in np.array_split(np.arange(len(y)), parts):
        column = read_column("x", np.asarray(values)[rows])
        pieces.append(agreement(column, column.missing(), read_labels(np.asarray(y)[rows], len(rows))))
    result = pieces[0]
    for piece in pieces[1:]:
        result = merge_agreements(result, piece)
    return result


LOG_LIMIT = np.log(1e-4)
SUSPICIOUS = {
    "a copy": (Y, "determines the target: each"),
    "a recoding": (CODES * 10.0, "determines the target: each"),
    "subtypes": (np.char.add(Y, RNG.choice(["1", "2", "3"], N)), "determines the target: each"),
    "a score": (CODES * 10 + RNG.integers(0, 9, N), "determines the target: each"),
    "ranges": (CODES + RNG.random(N) / 2, "determines the target: its values of different"),
    "dates": (np.datetime64("2020-01-01") + (CODES * 365).astype("m8[D]"), "determines the target: each"),
    "filled in for one class": (np.where(Y == "b", RNG.normal(size=N), np.nan), "has values only in rows of class 'b'"),
    "missing for one class": (np.where(Y == "b", np.nan, RNG.normal(size=N)), "is missing only in rows of class 'b'"),
    "text missing for one class": (
        np.where(Y == "c", None, RNG.choice(["u", "v"], N)),
        "is missing only in rows of class 'c'",
    ),
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("values", "words"), SUSPICIOUS.values(), ids=SUSPICIOUS.keys())
def test_columns_that_give_the_target_away(values, words, parts):
    assert together(values, parts=parts).finding(LOG_LIMIT).startswith(words)


NOISY = np.where(np.arange(N) == 50, (CODES + 1) % 3, CODES)
HARMLESS = {
    "noise": RNG.normal(size=N),
    "all different": np.array([f"id{n}" for n in range(N)]),
    "nearly a copy": NOISY.astype(float),
    "a rare level": np.where(np.arange(N) < 3, "rare", "common"),
    "one value in one row": np.where(np.arange(N) == 3, 1.0, np.nan),
    "few missing": np.where(np.isin(np.arange(N), np.flatnonzero(Y == "a")[:4]), np.nan, RNG.normal(size=N)),
    "missing at random": np.where(RNG.random(N) < 0.3, np.nan, RNG.normal(size=N)),
    "all missing": np.full(N, np.nan),
    "pairs of rows": np.repeat(np.arange(N // 2), 2) * 1.0,
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("values", HARMLESS.values(), ids=HARMLESS.keys())
def test_columns_that_do_not(values, parts):
    assert together(values, parts=parts).finding(LOG_LIMIT) is None


def test_few_rows_agree_by_chance():
    y = np.array(list("aabbabab"))
    assert together((y == "a").astype(float), y).finding(LOG_LIMIT) is None
    assert together(np.tile((y == "a").astype(float), 3), np.tile(y, 3)).finding(LOG_LIMIT) is not None


def test_the_bounds_are_those_of_labels_dealt_at_random():
    """Against all arrangements of few labels."""
    labels, x = "aaaabb", np.array([1.0, 1, 2, 2, 3, 3])
    arrangements = set(itertools.permutations(labels))
    assert len(arrangements) == comb(6, 2)
    pure = [y for y in arrangements if together(x, np.array(y)).owners is not None]
    assert len(pure) / len(arrangements) <= 2**3 * factorial(4) * factorial(2) / factorial(6)
    apart = [y for y in arrangements if together(np.arange(6.0), np.array(y)).ranges is not None]
    assert len(apart) / len(arrangements) == pytest.approx(2 * factorial(4) * factorial(2) / factorial(6))
    gaps = np.array([1.0, 1, 1, 1, np.nan, np.nan])
    only = [y for y in arrangements if set(together(gaps, np.array(y)).absent) == {"a"}]
    expected = np.exp(agreements._log_one_class(2, 4, 6))
    assert len(only) / len(arrangements) == pytest.approx(expected)


def test_values_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(agreements, "MOST_VALUES", 5)
    values = CODES * 10 + RNG.integers(0, 9, N)
    found = together(values, parts=3)
    assert found.owners is None
    assert found.finding(LOG_LIMIT) == "determines the target: its values of different classes do not overlap"


@pytest.mark.parametrize("convert", [lambda X: X, pl.from_pandas, pa.Table.from_pandas, "stream"])
def test_what_a_fit_tells(convert):
    X = pd.DataFrame({"z": RNG.normal(size=N), "copy": CODES * 2, "leak": np.where(Y == "b", 1.5, np.nan), "y": Y})
    X = X.assign(same="x", code=CODES)
    table = pa.Table.from_pandas(X).to_reader(max_chunksize=50) if convert == "stream" else convert(X)
    with pytest.warns(ColumnWarning) as caught:
        encoder = TableEncoder().fit(table, "y")
    told = {warning.message.columns: str(warning.message) for warning in caught}
    assert set(told) == {("copy", "code"), ("leak",), ("same",)}
    assert told["copy", "code"] == (
        "Columns 'copy', 'code': each determines the target: each of its values occurs with one class only. Leave them "
        "out (--drop NAME on the command line) if the values will not be known at prediction."
    )
    assert told["leak",].startswith("Column 'leak' has values only in rows of class 'b'. Leave it out (--drop NAME")
    assert told["same",] == "Column 'same' is dropped: constant."
    assert encoder.get_feature_names_out().tolist() == ["z", "copy", "leak_missing", "code"]
    note = encoder.describe()["note"]
    assert note["z"] == note["same"] == ""
    assert note["copy"] == "determines the target: each of its values occurs with one class only"


@pytest.mark.parametrize("y", [None, RNG.normal(size=N), RNG.random((N, 3)), ["a"] * N, Y[:5], "zzz"[:0] or 7])
def test_what_is_no_target_is_ignored(y):
    X = pd.DataFrame({"z": RNG.normal(size=N), "x": CODES})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(X, y)


@pytest.mark.parametrize(
    "y", [CODES, CODES == 1, pd.Series(Y), pl.Series(Y), list(Y), pd.Categorical(Y), Y.astype(object)]
)
def test_labels_of_any_kind(y):
    with pytest.warns(ColumnWarning, match="Column 'x' determines the target"):
        TableEncoder().fit(pd.DataFrame({"z": RNG.normal(size=N), "x": CODES}), y)
