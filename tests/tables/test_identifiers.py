"""Identifiers among numbers: row numbers in any form are found, measurements are not, streamed or in memory."""

import time
import warnings
from functools import reduce

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from posteriori.exceptions import ColumnWarning
from posteriori.tables import identifiers
from posteriori.tables.encoder import TableEncoder
from posteriori.tables.identifiers import merge_numberings, number_identifier, numbering
from posteriori.tables.names import NameSays, name_says, names_rows

RNG = np.random.default_rng(0)


def reason(values, name="a", parts=1, integer=True):
    pieces = np.array_split(np.asarray(values, dtype=float), parts)
    found = reduce(merge_numberings, [numbering(piece, named=names_rows(name)) for piece in pieces])
    return number_identifier(name, found, integer=integer)


ROW_NUMBERS = {
    "1..N": np.arange(1, 345),
    "0..N-1": np.arange(200),
    "backwards": np.arange(60)[::-1],
    "few, in the order of the file": np.arange(1, 6),
    "few, shuffled": RNG.permutation(10) + 1,
    "shuffled": RNG.permutation(500),
    "a slice of a table": np.arange(1001, 1151),
    "in steps": RNG.permutation(np.arange(10, 1010, 10)),
    "after a split": np.sort(RNG.choice(1000, 700, replace=False)),
    "after a split, shuffled": RNG.choice(1000, 300, replace=False),
    "a small test set": np.sort(RNG.choice(40, 20, replace=False)) + 1,
    "a sample of a large table": RNG.choice(100_000, 3000, replace=False),
}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("values", ROW_NUMBERS.values(), ids=ROW_NUMBERS.keys())
def test_row_numbers(values, parts):
    assert reason(values, parts=parts).startswith("identifier: ")


MEASUREMENTS = {
    "not whole": np.arange(100) + 0.5,
    "a value twice": [*range(100), 7],
    "sorted with ties": np.sort(RNG.integers(18, 90, 200)),
    "few rows": RNG.permutation(8) + 1,
    "a few different counts": [3, 17, 29, 41, 230],
    "populations": np.sort(RNG.integers(10_000, 40_000_000, 50)),
    "an experiment by plan": np.arange(0, 361, 20),
    "heights in order": np.arange(58, 73),
    "years": np.arange(1871, 1971),
    "Anscombe's x": [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5],
    "incomes": RNG.lognormal(10, 1, 300).round(),
}


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("values", MEASUREMENTS.values(), ids=MEASUREMENTS.keys())
def test_measurements(values, parts):
    assert reason(values, parts=parts) is None


def test_reasons_are_told():
    assert reason(np.arange(1, 345)) == "identifier: whole numbers from 1 to 344, each once"
    assert reason(np.arange(10, 1010, 10)) == "identifier: whole numbers from 10 to 1000 in steps of 10, each once"
    assert reason([*range(1, 100), 120]) == "identifier: 100 whole numbers between 1 and 120, each once"
    assert reason([2**60 + 2**k for k in range(20, 60)]) == "identifier: whole numbers of 16 digits and more, each once"
    accounts = RNG.choice(10**8, 40, replace=False)
    assert reason(accounts) is None
    assert reason(accounts, "customer_id") == "identifier by its name: 40 distinct whole numbers in 40 rows"


def test_names_are_supporting_evidence():
    visits = RNG.choice(10**6, 60, replace=False)
    assert reason([*visits, *visits[:50]], "patient") == "identifier by its name: 60 distinct whole numbers in 110 rows"
    assert reason([*visits, *visits, *visits], "patient") is None
    assert reason([1, 2], "id") is not None
    assert reason(np.sort(RNG.choice(200, 30, replace=False)) + 500, "no") is not None
    assert reason(np.sort(RNG.choice(200, 30, replace=False)) + 500, "dose") is None
    assert reason(np.arange(2, 300), "week") is None
    assert reason(np.arange(1, 300), "week") is not None


IDENTIFIERS = """id ID Id rownames RowNames rowid row caseid case_no CaseNo seqno SEQN serial record subject patient
    PassengerId customer_id customerID user.id ID_code uuid obs idx_row passengerid account_number hhid recordNumber
    ID2"""


@pytest.mark.parametrize(
    "name", [*IDENTIFIERS.split(), "", " ", "Unnamed: 0", "column 1", "...1", "__index_level_0__", "Patient Number"]
)
def test_names_of_identifiers(name):
    assert name_says(name) is NameSays.IDENTIFIER


OTHERS = "grid paid acid bid valid width Idaho idle humidity loan n x1 solid median"


@pytest.mark.parametrize("name", OTHERS.split())
def test_names_that_say_nothing_for_sure(name):
    assert name_says(name) in (NameSays.NOTHING, NameSays.NUMBER)
    assert reason(RNG.choice(10**6, 30, replace=False), name) is None


def test_the_chance_of_no_repeat():
    """Against the birthday problem: 23 people, 365 days."""
    found = numbering(np.r_[0, RNG.permutation(np.arange(1, 364))[:21], 364.0])
    assert np.exp(found.log_chance) == pytest.approx(0.4927, abs=1e-4)


def test_more_values_than_are_held(monkeypatch):
    monkeypatch.setattr(identifiers, "MOST_HELD", 500)
    rows = RNG.permutation(20_000) + 1
    assert reason(rows, parts=7).startswith("identifier: whole numbers from 1 to 20000, each once among ")
    assert reason(np.arange(20_000), parts=7) == "identifier: whole numbers from 0 to 19999, each once"
    assert reason(RNG.choice(60_000, 20_000, replace=False), parts=3) is not None
    assert reason(RNG.integers(0, 10**7, 20_000), parts=7) is None
    assert reason(np.r_[rows, rows], parts=7) is None
    found = reduce(merge_numberings, [numbering(piece, named=True) for piece in np.array_split(rows.astype(float), 7)])
    assert found.n_distinct == pytest.approx(20_000, rel=0.2)
    assert len(found.held) <= 500


def test_row_numbers_are_never_features():
    """A table sorted by class: with its row number a fit looks perfect and is worth nothing."""
    n = 90
    y = np.repeat(["a", "b", "c"], n // 3)
    X = pd.DataFrame({"rownames": np.arange(1, n + 1), "nr": np.arange(n) + 1.0, "z": RNG.normal(size=n)})
    split = np.sort(RNG.choice(n, 60, replace=False))
    for rows in (X, X.iloc[split]):
        with pytest.warns(ColumnWarning, match=r"Column 'nr' is dropped, as row numbers .* Use keep=\[...\]"):
            encoder = TableEncoder().fit(rows, y[rows.index])
        assert encoder.get_feature_names_out().tolist() == ["z"]
    with pytest.warns(ColumnWarning, match="Column 'nr' determines the target: its values of different classes do not"):
        kept = TableEncoder(keep=["nr"]).fit(X, y)
    assert kept.get_feature_names_out().tolist() == ["nr", "z"]
    assert kept.describe().loc["nr", "note"].startswith("determines the target")


def test_the_largest_numbers_are_told_apart_without_a_warning():
    values = np.array([-1.7e308, 1.7e308, 1e300, 1e-300, 5e-324, 0.0, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = TableEncoder().fit_transform(pd.DataFrame({"a": values, "b": np.where(values < 1, 1e300, 2e300)}))
    np.testing.assert_array_equal(encoded["a"], values)
    assert reason([-1.7e308, 1.7e308, 1e300, 0.0, 5.0], integer=False) is None


def test_a_wide_table_is_quick():
    rng = np.random.default_rng(0)
    names = [f"gene {d}" for d in range(1000)]
    X = pa.table(dict(zip(names, rng.normal(size=(1000, 30)), strict=True))).append_column("y", [list("ab" * 15)])
    start = time.process_time()
    encoder = TableEncoder().fit(X, "y")
    assert encoder.transform(X).num_columns == 1001
    assert time.process_time() - start < 3.0  # 0.3 s where it was written


@pytest.mark.slow
def test_twenty_thousand_columns():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(50, 20_000))).rename(columns=str).assign(y=list("ab" * 25))
    start = time.process_time()
    assert TableEncoder().fit_transform(X, "y").shape == (50, 20_001)
    assert time.process_time() - start < 40.0


NUMBERS_AS_TEXT = {
    "decimal commas": [f"{n},5" for n in range(60)],
    "a mark for missing": [*map(str, range(59)), "?"],
    "money": [f"$ {n:,}.20" for n in range(900, 960)],
    "percent": [f"{n} %" for n in range(60)],
    "negative": [f"{n - 30}" for n in range(60)],
    "few rows each": [f"{n % 25}.5" for n in range(60)],
}


@pytest.mark.parametrize("values", NUMBERS_AS_TEXT.values(), ids=NUMBERS_AS_TEXT.keys())
def test_numbers_as_text_are_told(values):
    X = pd.DataFrame({"price": values, "z": RNG.normal(size=60)})
    with pytest.warns(ColumnWarning, match="Column 'price': numbers written as text, such as .* convert it to numbers"):
        encoder = TableEncoder().fit(X)
    assert encoder.describe().loc["price", "note"] == "holds numbers written as text"


@pytest.mark.parametrize(
    "values",
    [
        [f"{n:05d}" for n in range(60)],  # postcodes
        [f"room {n}" for n in range(60)],
        ["1,5", "2,5", "3,5"] * 20,
        [f"{n}.{n % 7}.0.1" for n in range(60)],
    ],
)
def test_text_that_is_not_numbers(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(pd.DataFrame({"a": values, "z": RNG.normal(size=60)}))


# What names say


def sorted_whole_numbers(name, low, n=60):
    """Two thirds of the numbers from low on, in order."""
    return pd.DataFrame({name: [low + i for i in range(n) if i % 3], "z": RNG.normal(size=n - n // 3)})


@pytest.mark.parametrize("name", ["age", "dose_mg", "Height (cm)", "unix"])
def test_what_is_measured_may_be_sorted(name):
    assert name in TableEncoder().fit(sorted_whole_numbers(name, 20)).get_feature_names_out()


@pytest.mark.parametrize("name", ["age", "dose_mg", "x"])
def test_row_numbers_are_dropped_whatever_their_name(name):
    with pytest.warns(ColumnWarning, match="row numbers say nothing"):
        encoder = TableEncoder().fit(pd.DataFrame({name: range(1, 61), "z": RNG.normal(size=60)}))
    assert list(encoder.get_feature_names_out()) == ["z"]


@pytest.mark.parametrize("name", ["Kundennummer", "Número de cliente", "MRN", "identifiant"])
def test_identifiers_have_names_in_several_languages(name):
    numbers = np.random.default_rng(1).choice(10**6, size=40, replace=False)
    encoder = TableEncoder().fit(pd.DataFrame({name: numbers, "z": RNG.normal(size=40)}))
    assert list(encoder.get_feature_names_out()) == ["z"]


def test_numbers_of_households_are_used_and_told():
    X = pd.DataFrame({"household_id": np.arange(60) // 3, "store_id": np.arange(60) % 4, "z": RNG.normal(size=60)})
    with pytest.warns(ColumnWarning) as caught:
        encoder = TableEncoder().fit(X)
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith("Column 'household_id' is used as a number, although its name is that of an identifier.")
    assert list(encoder.get_feature_names_out()) == ["household_id", "store_id", "z"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder(keep=["household_id"]).fit(X)
