"""The encoder's parts: every library's column is read alike, summaries merge, plans follow the stated rules."""

import datetime as dt
import warnings
import zlib
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posteriori.exceptions import ColumnWarning, UnseenLevelWarning
from posteriori.tables import plans, summaries
from posteriori.tables.columns import DATE_PARTS, date_parts, read_column
from posteriori.tables.encode import encode
from posteriori.tables.plans import CategoryPlan, DatePlan, NumberPlan, describe_encoding, plan_encoding
from posteriori.tables.sources import open_source
from posteriori.tables.summaries import merge_summaries, summarise

NAN = np.nan


def read(X):
    """The first column of a table, as read."""
    source = open_source(X)
    batch = source.batch
    return read_column(source.names[0], batch[source.names[0]])


def fit(X, *, min_frequency=1, max_levels=64, drop_identifiers=True, apart=(), keep=()):
    settings = {"min_frequency": min_frequency, "max_levels": max_levels, "drop_identifiers": drop_identifiers}
    return plan_encoding(open_source(X).summaries(skip=apart), apart=apart, keep=keep, **settings)


def encoded(encoding, X):
    batch = open_source(X).batch
    return encode(encoding, batch)


# Reading

NUMBERS = {
    "pandas": pd.DataFrame({"a": [1.0, None, 3.0]}),
    "pandas-float32": pd.DataFrame({"a": np.array([1, NAN, 3], "f4")}),
    "pandas-Int64": pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
    "pandas-object": pd.DataFrame({"a": np.array([1, None, 3.0], dtype=object)}),
    "pandas-decimal": pd.DataFrame({"a": [Decimal(1), None, Decimal(3)]}),
    "pandas-sparse": pd.DataFrame({"a": pd.arrays.SparseArray([1.0, NAN, 3.0])}),
    "pandas-arrow": pd.DataFrame({"a": pd.array([1, None, 3], dtype="int64[pyarrow]")}),
    "polars": pl.DataFrame({"a": [1, None, 3]}),
    "polars-nan": pl.DataFrame({"a": [1.0, NAN, 3.0]}),
    "polars-int128": pl.DataFrame({"a": pl.Series([1, None, 3], dtype=pl.Int128)}),
    "polars-decimal": pl.DataFrame({"a": [Decimal(1), None, Decimal(3)]}),
    "arrow": pa.table({"a": [1, None, 3]}),
    "arrow-uint8": pa.table({"a": pa.array([1, None, 3], pa.uint8())}),
    "arrow-half": pa.table({"a": pa.array(np.array([1, NAN, 3], "f2"))}),
    "arrow-decimal": pa.table({"a": [Decimal(1), None, Decimal(3)]}),
    "arrow-chunks": pa.concat_tables([pa.table({"a": [1, None]}), pa.table({"a": [3]})]),
    "array": np.array([[1.0], [NAN], [3.0]]),
    "array-object": np.array([[1], [None], [3]], dtype=object),
    "list": [[1], [None], [3]],
}


@pytest.mark.parametrize("X", NUMBERS.values(), ids=NUMBERS.keys())
def test_numbers(X):
    column = read(X)
    assert column.kind == "number"
    assert column.values.dtype == np.float64
    np.testing.assert_array_equal(column.values, [1, NAN, 3])
    np.testing.assert_array_equal(column.missing(), [False, True, False])


LEVELS = ["b", None, "a", "b"]
CATEGORIES = {
    "pandas": pd.DataFrame({"a": LEVELS}),
    "pandas-object": pd.DataFrame({"a": np.array(["b", NAN, "a", "b"], dtype=object)}),
    "pandas-categorical": pd.DataFrame({"a": pd.Categorical(LEVELS, categories=["z", "a", "b"])}),
    "pandas-string": pd.DataFrame({"a": pd.array(LEVELS, dtype="string")}),
    "polars": pl.DataFrame({"a": LEVELS}),
    "polars-categorical": pl.DataFrame({"a": pl.Series(LEVELS, dtype=pl.Categorical)}),
    "polars-enum": pl.DataFrame({"a": pl.Series(LEVELS, dtype=pl.Enum(["z", "b", "a"]))}),
    "arrow": pa.table({"a": LEVELS}),
    "arrow-dictionary": pa.table({"a": pa.array(LEVELS).dictionary_encode()}),
    "arrow-blank-in-dictionary": pa.table({"a": pa.DictionaryArray.from_arrays([0, 1, 2, 0], ["b", None, "a"])}),
    "arrow-chunked-dictionaries": pa.table(
        {"a": pa.chunked_array([pa.array(["b", None]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()])}
    ),
    "arrow-view": pa.table({"a": pa.array(LEVELS, pa.string_view())}),
    "array-object": np.array([LEVELS], dtype=object).T,
    "list": [["b"], [None], ["a"], ["b"]],
}


@pytest.mark.parametrize("X", CATEGORIES.values(), ids=CATEGORIES.keys())
def test_categories(X):
    column = read(X)
    assert column.kind == "category"
    assert [column.levels[code] if code >= 0 else None for code in column.values] == LEVELS
    assert summarise(column).counts == {"a": 1, "b": 2}
    assert summarise(column).n_missing == 1


def test_categories_of_numbers_are_categories():
    column = read(pd.DataFrame({"a": pd.Categorical([10, 9, None])}))
    assert column.kind == "category"
    assert summarise(column).counts == {"9": 1, "10": 1}


def test_intervals_of_pandas_are_categories():
    column = read(pd.DataFrame({"a": pd.cut([1, 5, NAN, 9], [0, 4, 8, 10])}))
    assert column.levels == ("(0, 4]", "(4, 8]", "(8, 10]")
    assert column.values.tolist() == [0, 1, -1, 2]


@pytest.mark.parametrize(
    ("values", "expected"), [([True, 2, None], [1, 2, NAN]), ([2**70, None, 1], [2.0**70, NAN, 1])]
)
def test_objects_that_are_numbers(values, expected):
    np.testing.assert_array_equal(read(pd.DataFrame({"a": np.array(values, dtype=object)})).values, expected)


@pytest.mark.parametrize("X", [None, "table"])
def test_what_has_no_rows(X):
    with pytest.raises(ValueError, match=rf"X is of type {type(X).__name__}, which has no rows: pass a table"):
        open_source(X)


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": pd.array([True, None, False], dtype="boolean")}),
        pd.DataFrame({"a": np.array([True, None, False], dtype=object)}),
        pl.DataFrame({"a": [True, None, False]}),
        pa.table({"a": [True, None, False]}),
    ],
)
def test_booleans(X):
    column = read(X)
    assert column.kind == "boolean"
    np.testing.assert_array_equal(column.values, [1, NAN, 0])


DAY = dt.datetime(2024, 2, 29, 18)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_dates(make):
    column = read(make({"a": [DAY, None]}))
    assert column.kind == "date"
    assert column.values[0] == np.datetime64(DAY)
    assert np.isnat(column.values[1])
    assert read(make({"a": [DAY.date(), None]})).values[0] == np.datetime64("2024-02-29T00")


def test_dates_with_a_time_zone_are_read_by_its_clock():
    X = pa.table({"a": pa.array([DAY], pa.timestamp("us", tz="UTC"))})
    batch = open_source(X).batch
    assert read_column("a", batch["a"]).values[0] == np.datetime64(DAY)
    column = read_column("a", batch["a"], zone="Asia/Tokyo")
    assert column.values[0] == np.datetime64("2024-03-01T03")
    assert (column.kind, column.zone) == ("date with time zone", "Asia/Tokyo")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_durations_are_seconds(make):
    column = read(make({"a": [dt.timedelta(minutes=1, microseconds=500_000), None]}))
    assert column.kind == "duration"
    np.testing.assert_array_equal(column.values, [60.5, NAN])


@pytest.mark.parametrize(
    "X",
    [
        pl.DataFrame({"ok": [1], "a": [[1, 2]], "b": [{"x": 1}]}),
        pa.table({"ok": [1], "a": [b"x"], "b": [[1]]}),
        pd.DataFrame({"ok": [1, 2], "a": ["x", 1], "b": [{1}, 2]}),
        pd.DataFrame({"ok": [1, 2], "a": [1j, 2j], "b": pd.period_range("2024", periods=2, freq="M")}),
    ],
)
def test_what_no_rule_covers_is_named_all_at_once(X):
    with pytest.raises(TypeError, match=r"no rule covers: 'a' \(dtype .*\), 'b' \(dtype .*\)\. .*convert these"):
        fit(X)


def test_infinite_numbers_are_missing_values():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, -np.inf, 6.0], "c": [True, False, False]})
    encoding = fit(X)
    assert encoding == fit(X.replace(-np.inf, NAN)).__class__(
        tuple(replace(column, n_infinite=int(column.name == "b")) for column in fit(X.replace(-np.inf, NAN)).columns), 3
    )
    assert encoding.columns[1].note == "1 infinite taken as missing"
    with pytest.warns(ColumnWarning, match="Column 'b' holds infinite numbers, in 1 row: they are taken as missing"):
        np.testing.assert_array_equal(encoded(encoding, X), [[1, 4, 0, 1], [2, 5, 1, 0], [3, 6, 0, 0]])


# Summaries

values = st.one_of(st.none(), st.floats(-1e6, 1e6))
texts = st.one_of(st.none(), st.sampled_from("abc"))


@given(st.lists(st.tuples(values, texts), min_size=1, max_size=30), st.data())
def test_summaries_of_parts_merge_to_that_of_the_whole(rows, data):
    cut = data.draw(st.integers(0, len(rows)))
    for d, dtype in enumerate([pa.float64(), pa.string()]):
        whole = pa.array([row[d] for row in rows], dtype)
        parts = [summarise(read_column("a", part)) for part in (whole[:cut], whole[cut:])]
        merged, expected = merge_summaries(*parts), summarise(read_column("a", whole))
        assert replace(merged, numbers=(), numbering=None) == replace(expected, numbers=(), numbering=None)
        for a, b in zip(merged.numbers, expected.numbers, strict=True):
            assert (a.count, a.low, a.high) == (b.count, b.low, b.high)
            assert a.mean == pytest.approx(b.mean, rel=1e-12, abs=1e-9)


def test_an_empty_part_takes_the_kind_of_the_other():
    nothing, something = (summarise(read_column("a", pa.array(x))) for x in ([None, None], ["x"]))
    for merged in merge_summaries(nothing, something), merge_summaries(something, nothing):
        assert (merged.kind, merged.n_rows, merged.n_missing, merged.counts) == ("category", 3, 2, {"x": 1})


def test_the_mean_of_the_largest_numbers_does_not_overflow():
    (numbers,) = summarise(read_column("a", np.array([1.5e308, 1.7e308]))).numbers
    assert numbers.mean == pytest.approx(1.6e308)


def test_levels_are_counted_up_to_a_bound(monkeypatch):
    for module in (summaries, plans):
        monkeypatch.setattr(module, "MOST_COUNTED", 10)
    a, b = (summarise(read_column("a", pa.array([f"{i}" for i in rows]))) for rows in (range(8), range(6, 12)))
    assert merge_summaries(a, b).counts is None
    assert merge_summaries(a, a).counts == dict.fromkeys("01234567", 2)
    assert merge_summaries(merge_summaries(a, b), a).counts is None
    encoding = fit(pd.DataFrame({"a": [f"{i}" for i in range(11)] * 3, "b": range(33)}), drop_identifiers=False)
    assert encoding.columns[0].dropped == "identifier: more than 10 distinct values"


# Plans


def test_numbers_with_and_without_missing_values():
    X = pd.DataFrame({"a": [1.0, 2.0, 6.0], "b": [1.0, NAN, 6.0], "c": [5.0, NAN, 5.0]})
    encoding = fit(X)
    assert [column.plan for column in encoding.columns] == [
        NumberPlan(3.0, True, False),
        NumberPlan(3.5, True, True),
        NumberPlan(5.0, False, True),
    ]
    assert encoding.names == ["a", "b", "b_missing", "c_missing"]
    np.testing.assert_array_equal(encoded(encoding, X), [[1, 1, 0, 0], [2, 3.5, 1, 1], [6, 6, 0, 0]])
    new = pd.DataFrame({"a": [NAN], "b": [2], "c": [9]})
    np.testing.assert_array_equal(encoded(encoding, new), [[3, 2, 0, 0]])


def test_levels_are_pooled_by_frequency_then_alphabet():
    X = pl.DataFrame({"a": list("ccc" + "bb" + "aa" + "dd" + "e")})
    assert fit(X).names == ["a=a", "a=b", "a=c", "a=d", "a=e"]
    assert fit(X, min_frequency=2).names == ["a=a", "a=b", "a=c", "a=d", "a=(other)"]
    assert fit(X, min_frequency=2, max_levels=2).names == ["a=a", "a=c", "a=(other)"]
    assert fit(X, max_levels=1).names == ["a=(other)"]  # two columns, of which one says it all


@pytest.mark.filterwarnings("ignore::posteriori.exceptions.UnseenLevelWarning")
def test_unseen_and_missing_levels():
    new = pl.DataFrame({"a": ["a", "new", None, "d"]})
    without = fit(pl.DataFrame({"a": list("abc")}))
    np.testing.assert_array_equal(encoded(without, new), [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    pool = fit(pl.DataFrame({"a": list("aabbcd")}), min_frequency=2)
    assert pool.names == ["a=a", "a=b", "a=(other)"]
    np.testing.assert_array_equal(encoded(pool, new), [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
    both = fit(pl.DataFrame({"a": [*"aabbcd", None]}), min_frequency=2)
    assert both.names == ["a=a", "a=b", "a=(other)", "a=(missing)"]
    np.testing.assert_array_equal(encoded(both, new), [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]])


@pytest.mark.parametrize(
    ("train", "name", "share", "expected"),
    [
        (["a", "b", "b", "b"], "a=b", 0.75, [0, 1, 0.75, 0.75]),
        (["a", "a", "a", None], "a=(missing)", 0.25, [0, 0.25, 0.25, 1]),
        (["a", "a", "c", "d"], "a=(other)", 0.5, [0, 1, 1, 1]),
    ],
)
@pytest.mark.filterwarnings("ignore::posteriori.exceptions.UnseenLevelWarning")
def test_two_columns_are_one(train, name, share, expected):
    encoding = fit(pa.table({"a": train}), min_frequency=2 if "c" in train else 1)
    assert encoding.names == [name]
    assert encoding.columns[0].plan.share == share
    np.testing.assert_array_equal(encoded(encoding, pa.table({"a": ["a", "b", "new", None]})), np.c_[expected])


def test_dates_are_taken_apart():
    days = [dt.datetime(2024, 1, 1), dt.datetime(2024, 4, 1, 6), dt.datetime(2024, 7, 2, 12), None]
    encoding = fit(pa.table({"t": days}))
    plan = encoding.columns[0].plan
    assert isinstance(plan, DatePlan)
    assert encoding.names == [f"t_{part}" for part in (*DATE_PARTS, "missing")]
    matrix = encoded(encoding, pa.table({"t": days}))
    turn = 2 * np.pi / 7
    hours = [0, 91 * 24 + 6, 183 * 24 + 12]
    expected = [
        [(hours[0] - np.mean(hours)) / 8766, 0, 1, 0, 1, 0, 1, 0],
        [(hours[1] - np.mean(hours)) / 8766, 1, 0, 0, 1, 1, 0, 0],
        [(hours[2] - np.mean(hours)) / 8766, 0, -1, np.sin(turn), np.cos(turn), 0, -1, 0],
    ]
    np.testing.assert_allclose(matrix[:3], expected, atol=1e-12)
    np.testing.assert_allclose(matrix[3], [*np.mean(expected, axis=0)[:7], 1], atol=1e-12)


def test_parts_of_dates_that_do_not_vary_are_left_out():
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 8)]
    assert fit(pl.DataFrame({"t": days})).names == ["t_years"]
    # both months have the sine 1/2
    assert fit(pl.DataFrame({"t": [dt.date(2024, 2, 1), dt.date(2024, 6, 6)]})).names == [
        "t_years",
        "t_month_sin",
        "t_month_cos",
    ]


def test_dates_before_1970():
    column = read_column("t", np.array(["1969-12-31T18:00", "1970-01-01T00:00"], dtype="M8[us]"))
    seconds, sin_month, cos_month, sin_day, cos_day, sin_hour, cos_hour = (
        part[0] for part in date_parts(column.values)
    )
    assert seconds == -6 * 3600
    np.testing.assert_allclose([sin_month, cos_month], [np.sin(22 / 12 * np.pi), np.cos(22 / 12 * np.pi)])
    np.testing.assert_allclose([sin_day, cos_day], [np.sin(4 / 7 * np.pi), np.cos(4 / 7 * np.pi)])  # a Wednesday
    np.testing.assert_allclose([sin_hour, cos_hour], [-1, 0], atol=1e-12)


N = 60
IDS = np.random.default_rng(0).permutation(N)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([7] * N, "constant"),
        (["x"] * N, "constant"),
        ([DAY] * N, "constant"),
        ([None] * N, "all values are missing"),
        ([NAN] * N, "all values are missing"),
        (IDS, "identifier: whole numbers from 0 to 59, each once"),
        (IDS + 1.0, "identifier: whole numbers from 1 to 60, each once"),
        ([f"id{i}" for i in range(N)], "identifier: 60 distinct values in 60 rows"),
        ([str(i % 55) for i in range(N)], "identifier: 55 distinct values in 60 rows"),
        ([f"{i % 40}" for i in range(N)], "no level has 5 rows or more"),
    ],
)
def test_columns_that_are_dropped(values, reason):
    encoding = fit(pd.DataFrame({"a": values, "ok": np.arange(N) % 7.0}), min_frequency=5)
    assert encoding.columns[0].dropped == reason
    assert encoding.names == ["ok"]


@pytest.mark.parametrize(
    "values",
    [
        IDS + 0.5,
        IDS.astype(bool),
        np.where(IDS == 5, 6, IDS),  # one value twice
        IDS % 50,
        [str(i % 30) for i in range(N)],
    ],
)
def test_columns_that_are_no_identifiers(values):
    assert fit(pd.DataFrame({"a": values})).columns[0].dropped is None


def test_a_short_table_has_no_identifiers_by_its_values_alone():
    X = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})
    assert fit(X).names == ["a", "b=w", "b=x", "b=y", "b=z"]
    assert fit(X.rename(columns={"a": "id", "b": "patient"}).assign(c=[0, 1, 0, 1])).names == ["c"]


def test_identifiers_can_be_kept():
    X = pd.DataFrame({"a": IDS, "id": IDS})
    assert fit(X, drop_identifiers=False).names == ["a", "id"]
    assert fit(X, keep=["id"]).names == ["id"]


def test_nothing_left():
    with pytest.raises(
        ValueError, match=r"No column of the table can be used \(n_samples=2\): 'a': constant; 'b': all values"
    ):
        fit(pd.DataFrame({"a": [1, 1], "b": [None, None]}))


def test_names_are_unique():
    X = pl.DataFrame(
        {"a": ["b", "(other)", "c"], "a=b": [1, 2, 3], "x": [1, None, 3], "x_missing": [1, 2, 3], "y": [0, 1, 0]}
    )
    names = ["a=(other)", "a=b", "a=c", "a=b_2", "x", "x_missing", "x_missing_2"]
    assert fit(X, apart=("y",)).names == names
    assert fit(pl.DataFrame({"x": [1, None, 3], "x_missing": [1, 2, 3]}), apart=("x_missing",)).names == [
        "x",
        "x_missing_2",
    ]
    pooled = fit(pl.DataFrame({"a": ["(other)"] * 2 + ["b"] * 2 + ["c"]}), min_frequency=2)
    assert pooled.names == ["a=(other)", "a=b", "a=(other)_2"]


def test_names_are_on_one_line_and_not_too_long():
    X = pl.DataFrame(
        {"a": ["x\ny", "\x1b[31mred", "z" * 1000 + "1", "z" * 1000 + "2", "q" * 150 + "1", "q" * 150 + "2"]}
    )
    encoding = fit(X)
    assert all(name.isprintable() and len(name) <= 104 for name in encoding.names)
    assert "a=x\\ny" in encoding.names
    assert "a=\\x1b[31mred" in encoding.names
    assert len(set(encoding.names)) == 6
    np.testing.assert_array_equal(encoded(encoding, X).sum(axis=0), np.ones(6))
    assert max(len(level) for level in encoding.columns[0].plan.levels) < 200
    assert describe_encoding(encoding)["values"][0].isprintable()


# New tables


def test_columns_that_do_not_match_are_all_named():
    encoding = fit(
        pd.DataFrame(
            {"n": [1, 2], "c": ["a", "b"], "t": [DAY, DAY + dt.timedelta(1)], "gone": [1, 2], "b": [True, False]}
        )
    )
    new = pd.DataFrame({"n": ["1"], "c": [1.5], "t": ["2024-01-01"], "b": [[1]]})
    with pytest.raises(ValueError, match="The table does not match that of the fit") as error:
        encoded(encoding, new)
    for part in [
        "column 'n' holds categories (str), numbers expected",
        "column 'c' holds numbers (float64), categories expected",
        "column 't' holds categories (str), dates expected",
        "column 'gone' is missing (numbers expected)",
        "column 'b' holds dtype object, booleans expected",
    ]:
        assert part in str(error.value)


def test_dates_with_and_without_zone_do_not_mix():
    encoding = fit(pl.DataFrame({"t": [DAY, DAY + dt.timedelta(1)]}))
    new = pa.table({"t": pa.array([DAY], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(ValueError, match=r"holds dates with a time zone .*, dates expected"):
        encoded(encoding, new)


def test_the_clock_of_the_fit_counts():
    when = [DAY, DAY + dt.timedelta(hours=3), DAY + dt.timedelta(days=40)]
    tables = [
        pa.table({"t": pa.array(when, pa.timestamp(unit, tz=tz))}) for unit, tz in [("us", "Asia/Tokyo"), ("ms", "UTC")]
    ]
    encoding = fit(tables[0])
    np.testing.assert_array_equal(encoded(encoding, tables[0]), encoded(encoding, tables[1]))


def test_levels_never_seen_are_told_and_pooled_ones_are_not():
    encoding = fit(pd.DataFrame({"c": list("aabbxyz"), "d": list("ppqqrrs")}), min_frequency=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded(encoding, pd.DataFrame({"c": ["x", "a", None], "d": ["s", None, "p"]}))
    with pytest.warns(UnseenLevelWarning) as caught:
        encoded(encoding, pd.DataFrame({"c": [*"xnmnn", None], "d": [*"sspqr", "new"]}))
    told = {warning.message.column: warning.message for warning in caught}
    assert set(told) == {"c", "d"}
    assert (told["c"].levels, told["c"].n_rows) == (("n", "m"), 4)
    assert (told["d"].levels, told["d"].n_rows) == (("new",), 1)
    assert "Column 'd' holds levels that did not occur in the fit, in 1 row: 'new'." in str(told["d"])


def test_an_encoding_of_the_last_version_tells_what_it_can():
    """Models stored before pooled levels were remembered: a level is unseen for sure only where none was pooled."""
    plan = CategoryPlan(("a", "b"), True, False, None)
    old = fit(pd.DataFrame({"c": list("aabbxyz")}), min_frequency=2)
    old = replace(old, columns=(replace(old.columns[0], plan=plan),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            encoded(old, pd.DataFrame({"c": ["a", "x", "new"]})), [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
        )


@pytest.mark.parametrize("nothing", [[None, None], np.array([NAN, NAN]), pd.array([None, None], dtype="Int64")])
def test_a_column_without_values_is_of_any_kind(nothing):
    X = pd.DataFrame({"n": [1.0, NAN], "c": ["a", None], "t": [DAY, None]})
    encoding = fit(X)
    matrix = encoded(encoding, pd.DataFrame(dict.fromkeys("nct", nothing)))
    np.testing.assert_array_equal(matrix, np.ones((2, 3)))


def test_numbers_and_booleans_may_stand_for_each_other():
    encoding = fit(pd.DataFrame({"b": [True, False], "n": [0, 1]}))
    new = pd.DataFrame({"b": [1, 0], "n": [True, False]})
    np.testing.assert_array_equal(encoded(encoding, new), [[1, 1], [0, 0]])


def test_plans_are_plain():
    encoding = fit(pd.DataFrame({"c": list("abc"), "n": [1, 2, 2]}))
    assert encoding.columns[0].plan == CategoryPlan(("a", "b", "c"), False, False, None)
    assert fit(pd.DataFrame({"c": list("aabbxyz")}), min_frequency=2).columns[0].plan.pooled == tuple(
        sorted(zlib.crc32(level.encode()) for level in "xyz")
    )
    plain = [value for column in encoding.columns for value in vars(column).values()]
    assert {type(value) for value in plain} <= {str, int, float, tuple, type(None), CategoryPlan, NumberPlan}
