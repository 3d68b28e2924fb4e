"""Columns of text: what is a number, a date, a boolean or missing, and what a fit has made of a column stays so."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posteriori as po
from posteriori.tables.files import fitted_kinds, open_files
from posteriori.tables.text import choose
from posteriori.tables.text.columns import convert, tally
from posteriori.tables.text.forms import COMMA, DATES, DECIMAL, MISSING, POINT, TIME, WHOLE, ZONED_DATES


def column(values, kind=None, **options):
    """What a column of these texts is read as: its kind, its values and the notes about it."""
    text = pa.array(values, pa.string())
    chosen = choose(tally(text), kind=kind, **options)
    return chosen.form.kind, convert(chosen.form, text).to_pylist(), " ".join(chosen.notes)


def table(tmp_path, content, **kinds):
    path = tmp_path / "t.csv"
    path.write_text(content, encoding="utf-8")
    return open_files([str(path)], kinds=kinds)


# Numbers


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (WHOLE, "12", 12), (WHOLE, "+5", 5), (WHOLE, "−7", -7), (WHOLE, "1.0", None), (WHOLE, "0x10", None),
        (DECIMAL, ".5", 0.5), (DECIMAL, "-1e5", -1e5), (DECIMAL, "5.", 5.0), (DECIMAL, "1,5", None),
        (POINT, "1,234.5", 1234.5), (POINT, "1,234,567", 1234567.0), (POINT, "1,23", None), (POINT, "0,123", None),
        (POINT, "$12", 12.0), (POINT, "-$1,200.50", -1200.5), (POINT, "$ -3", -3.0), (POINT, "€5", 5.0),
        (POINT, "12 USD", 12.0), (POINT, "GBP 7.5", 7.5), (POINT, "15 %", 15.0), (POINT, "2.5%", 2.5),
        (POINT, "(1,234)", -1234.0), (POINT, "(5", None), (POINT, "5)", None), (POINT, "1 234.5", 1234.5),
        (POINT, "1\u00a0234", 1234.0), (POINT, "1'234", 1234.0), (POINT, "12 34", None), (POINT, "3 kg", None),
        (POINT, "5-", None), (POINT, "1-2", None), (POINT, "%", None), (POINT, "$", None),
        (COMMA, "1,5", 1.5), (COMMA, "1.234,5", 1234.5), (COMMA, "1.234", 1234.0), (COMMA, "1 234,5", 1234.5),
        (COMMA, "-12,5 €", -12.5), (COMMA, "0.994", None), (COMMA, "1.5", None), (COMMA, "3", 3.0),
    ],
)  # fmt: skip
def test_forms_of_numbers(form, text, value):
    assert form.parse(pa.array([text])).to_pylist() == [value]


@given(st.lists(st.one_of(st.floats(allow_nan=False), st.integers(-(10**17), 10**17)), min_size=1, max_size=20))
def test_numbers_as_python_writes_them_are_read_as_python_reads_them(numbers):
    kind, values, _ = column([repr(number) for number in numbers])
    expected = [float(number) if np.isfinite(number) else None for number in numbers]
    assert kind in ("number", "empty")
    assert [None if value is None else float(value) for value in values] == expected


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20))
def test_numbers_as_people_write_them(numbers):
    english = [f"{number:,.2f}" for number in numbers]
    german = [text.translate(str.maketrans(",.", ".,")) for text in english]
    expected = [float(f"{number:.2f}") for number in numbers]
    assert POINT.parse(pa.array(english)).to_pylist() == expected
    assert COMMA.parse(pa.array(german)).to_pylist() == expected
    assert column([f"$ {text}" for text in english])[1] == expected


def test_the_rule_for_ambiguous_commas():
    thousands = ["1,234", "5,678"]
    assert column(thousands)[1] == [1234.0, 5678.0]
    assert column(thousands, decimal_comma=True)[1] == [1.234, 5.678]  # a file with ; between values, for example
    assert column([*thousands, "1,5"])[1] == [1.234, 5.678, 1.5]
    assert column([*thousands, "1,234.5"])[1] == [1234.0, 5678.0, 1234.5]
    assert column(["1.234", "2.345"], decimal_comma=True)[1] == [1.234, 2.345]  # a point alone is a decimal point
    assert column(["1.234", "2.345,6"])[1] == [1234.0, 2345.6]


def test_decimal_commas_in_files(tmp_path):
    files = table(tmp_path, "a;b;c\n1,5;1,234;x\n2,25;5,678;y\n")
    assert files.to_table().to_pydict() == {"a": [1.5, 2.25], "b": [1.234, 5.678], "c": ["x", "y"]}
    assert files.notes == ("Columns 'a', 'b': each is read with decimal commas (1,5 is one and a half).",)
    quoted = table(tmp_path, 'a,b\n"1,5","1,234"\n"2,25","5,678"\n')  # the first column shows it for the second
    assert quoted.to_table().to_pydict() == {"a": [1.5, 2.25], "b": [1.234, 5.678]}


def test_a_few_words_among_numbers_are_missing_and_named():
    kind, values, notes = column([*map(str, range(40)), "unknown", "low", "unknown", "None"])
    assert kind == "number"
    assert values == [*range(40), None, None, None, None]
    assert notes == "has 3 values that are not numbers, taken as missing: 'unknown' 2 times, 'low' once"
    assert column([*map(str, range(19)), "n"])[2] == "has 1 value that is not a number, taken as missing: 'n' once"


def test_many_words_among_numbers_make_text():
    kind, values, notes = column(["1", "2", "3", "4", "few"])
    assert kind == "category"
    assert values == ["1", "2", "3", "4", "few"]
    assert notes == "is read as text: 1 of its 5 values is not a number, such as 'few'"
    assert column(["a", "b", "3"])[2] == ""


def test_one_unit_after_all_numbers():
    kind, values, notes = column(["998 CC", "1,197 CC", "1248 CC", "796.5CC", ""])
    assert (kind, values) == ("number", [998.0, 1197.0, 1248.0, 796.5, None])
    assert notes == "is read as numbers in 'CC'"
    assert column(["36 months", "60"], "number, in months")[1:] == ([36.0, 60.0], "")
    assert column(["36", "60"], "number, in months")[1] == [36, 60]
    assert column(["36 months", "60 months", "many"], "number, in months")[1] == [36.0, 60.0, None]
    for levels in (["0_no"] * 20 + ["1_yes"], ["0 no"] * 20 + ["1 yes"], ["0_no", "1_no", "2_no"]):
        assert column(levels)[:2] == ("category", levels)
    for several in (["5 kg", "6 lb"], ["12A", "13A"], ["10 Main St", "12 Main St"], ["3:2", "1:5"]):
        assert column(several)[0] == "category"


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (["01234", "90210"], "category", "leading zeros"),
        (["007", "0012"], "category", "leading zeros"),
        ([*(f"{i:03d}" for i in range(19)), "016a"], "category", "leading zeros"),
        (["12345678901234567890", "1"], "category", "more digits than a number can keep"),
        (["0", "1", "10"], "number", ""),
        (["0.5", "00.5"], "number", ""),
        (["9007199254740993", "9007199254740995"], "number", ""),
    ],
)
def test_codes_are_text(values, kind, said):
    found, read, notes = column(values)
    assert found == kind
    assert said in notes
    if kind == "category":
        assert read == values
    else:
        assert read == [float(value) if "." in value else int(value) for value in values]


def test_infinite_numbers_are_missing_and_said():
    kind, values, notes = column(["1", "inf", "-Infinity", "2.5", "1e999"])
    assert (kind, values) == ("number", [1.0, None, None, 2.5, None])
    assert notes == "has 3 infinite numbers, taken as missing"


# Missing values


MARKS = [*sorted(MISSING), " NA ", "  ", "\t?"]


def test_marks_of_missing_values(tmp_path):
    for mark in MARKS:
        assert column(["1.5", mark, "2.5"])[:2] == ("number", [1.5, None, 2.5])
        assert column(["red", mark, "blue"])[:2] == ("category", ["red", None, "blue"])
    assert column(["2024-01-31", *MARKS])[1] == [dt.datetime(2024, 1, 31), *[None] * len(MARKS)]
    files = table(tmp_path, "a,b\n1.5,red\n" + "".join(f'"{mark}","{mark}"\n' for mark in MARKS))
    assert files.to_table().to_pydict() == {"a": [1.5, *[None] * len(MARKS)], "b": ["red", *[None] * len(MARKS)]}
    assert files.notes == ()
    ((_, written),) = files.pieces(1000, ["a", "b"])
    assert written.to_pydict() == {"a": ["1.5", *MARKS], "b": ["red", *MARKS]}


def test_none_is_a_word_in_text_and_missing_among_numbers():
    assert column(["None", "Gas", "Oil"])[1] == ["None", "Gas", "Oil"]
    assert column([*["1"] * 20, "None"])[1:] == ([*[1] * 20, None], "")


def test_minus_is_a_value_where_plus_is_one():
    assert column(["+", "-", "-", "?"])[:2] == ("category", ["+", "-", "-", None])
    assert column(["x", "-", "y"])[1] == ["x", None, "y"]
    assert column(["+", "-"], "label")[1] == ["+", "-"]


def test_nothing_but_missing_values():
    assert column(["", "NA", "?"])[:2] == ("empty", [None, None, None])
    assert column(["", "NA"], "number")[1] == [None, None]
    assert column(["", "NA"], "category")[1] == [None, None]


# Booleans, dates, times


def test_booleans():
    assert column(["true", "False", "TRUE", ""])[:2] == ("boolean", [True, False, True, None])
    for pair in (["yes", "no"], ["Y", "N"], ["T", "F"], ["t", "f"]):  # the words stay: they may be names of classes
        assert column(pair)[:2] == ("category", pair)
        assert column(pair, "boolean")[:2] == ("boolean", [True, False])
        assert column(pair[:1], "category")[1] == pair[:1]
    assert column(["1", "0"], "boolean")[1] == [True, False]
    assert column(["TRUE", "FALSE"], "number")[:2] == ("boolean", [True, False])
    assert column(["true", "maybe"])[0] == "category"


DATE_TEXTS = [
    ("2024-01-31", dt.datetime(2024, 1, 31)), ("2024/1/31", dt.datetime(2024, 1, 31)),
    ("31.01.2024", dt.datetime(2024, 1, 31)), ("2024-01-31 12:30", dt.datetime(2024, 1, 31, 12, 30)),
    ("2024-01-31T12:30:15.25", dt.datetime(2024, 1, 31, 12, 30, 15, 250_000)), ("2024-02-30", None),
    ("31 Jan 2024", dt.datetime(2024, 1, 31)), ("31-JAN-24", dt.datetime(2024, 1, 31)),
    ("January 31, 2024", dt.datetime(2024, 1, 31)), ("Wed, 31 Jan 2024 10:00", dt.datetime(2024, 1, 31, 10)),
    ("2024-05", dt.datetime(2024, 5, 1)), ("1/1/69", None), ("2024-13-01", None), ("2024-01-31 25:00", None),
    ("may 12 be", None), ("2010-2011", None), ("1.2.3", None), ("10-20", None), ("0000-01-01", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), DATE_TEXTS)
def test_dates_that_are_clear_in_themselves(text, value):
    assert DATES[0].parse(pa.array([text])).to_pylist() == [value]


@given(st.lists(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)), min_size=1, max_size=10))
def test_dates_in_iso_format_are_read_as_python_reads_them(dates):
    kind, values, notes = column([date.isoformat() for date in dates])
    assert (kind, values, notes) == ("date", dates, "")


def test_the_order_of_day_and_month_is_seen_in_the_column():
    day = column(["31/01/2024", "02/03/2024"])
    assert day == ("date", [dt.datetime(2024, 1, 31), dt.datetime(2024, 3, 2)], "has dates that are read day first")
    month = column(["01/31/24", "02/03/24 5:30 PM"])
    assert month[:2] == ("date", [dt.datetime(2024, 1, 31), dt.datetime(2024, 2, 3, 17, 30)])
    unclear = column(["01/02/2024"])
    assert unclear[1] == [dt.datetime(2024, 1, 2)]
    assert "which its values do not show" in unclear[2]
    assert column(["01/02/2024"], day_first=True)[1] == [dt.datetime(2024, 2, 1)]
    assert column(["01/02/2024"], "date, day first")[1:] == ([dt.datetime(2024, 2, 1)], "")


def test_the_first_of_every_month_shows_the_order():
    european = column(["01/01/2024", "01/02/2024", "01/03/2024"])
    american = column(["1/1/2024", "2/1/2024", "3/1/2024"])
    assert column(["1/1/2024"])[1] == [dt.datetime(2024, 1, 1)]
    assert european[1] == american[1] == [dt.datetime(2024, month, 1) for month in (1, 2, 3)]
    assert column(["6/11/2024", "6/12/2024"])[1] == [dt.datetime(2024, 6, day) for day in (11, 12)]


def test_another_column_of_the_file_shows_the_order(tmp_path):
    files = table(tmp_path, "a,b,c\n01/02/2024,31/01/2024,x\n03/04/2024,01/02/2024,y\n")
    assert files.to_table()["a"].to_pylist() == [dt.datetime(2024, 2, 1), dt.datetime(2024, 4, 3)]


def test_dates_with_a_zone_are_instants():
    kind, values, _ = column(["2024-01-31 12:30:00+02:00", "2024-01-31T12:30Z", "2024-01-31 12:30 -0130"])
    assert kind == "date with time zone"
    minutes = [value.hour * 60 + value.minute for value in values]
    assert minutes == [10 * 60 + 30, 12 * 60 + 30, 14 * 60]
    assert ZONED_DATES[0].parse(pa.array(["2024-01-31"])).to_pylist() == [None]


def test_times_of_day_are_seconds(tmp_path):
    texts = ["12:30", "1:05:15", "12:30 am", "11:59:59.5 PM", "25:61"]
    seconds = [None if value is None else value.total_seconds() for value in TIME.parse(pa.array(texts)).to_pylist()]
    assert seconds == [45_000.0, 3915.0, 1800.0, 86_399.5, None]
    rows = "".join(f"{i % 24}:{i % 60:02d},{'pq'[i % 2]}\n" for i in range(60))
    encoded = po.TableEncoder().fit_transform(table(tmp_path, "t,y\n" + rows).to_table(), "y")
    assert encoded["t"].to_pylist() == [60.0 * ((i % 24) * 60 + i % 60) for i in range(60)]


def test_times_of_day_in_arrow_are_seconds():
    values = pa.table({"t": pa.array([dt.time(0, 0, 1), dt.time(12, 30), None])})
    assert po.TableEncoder().fit_transform(values)["t"].to_pylist() == [1.0, 45_000.0, 22_500.5]


# Tallies and kinds


def test_tallies_merge_into_that_of_the_whole():
    rng = np.random.default_rng(0)
    pool = ["1", "2.5", "x", "", "NA", "1,234", "2024-01-31", "inf", "007", "-", "+", "true", "12:30", "-3", "1.234,5"]
    for _ in range(30):
        values = [pool[i] for i in rng.integers(len(pool), size=30)]
        cut = rng.integers(1, 29)
        whole, parts = tally(pa.array(values)), tally(pa.array(values[:cut])) + tally(pa.array(values[cut:]))
        assert whole == parts


FIT = "n,code,flag,when,word,y\n" + "".join(
    f"{i % 7}.5,{i % 3:02d},{['TRUE', 'FALSE'][i % 2]},{i % 28 + 1:02d}/{i % 12 + 1:02d}/2024,w{i % 4},{'pq'[i % 2]}\n"
    for i in range(60)
)


def test_the_kinds_of_the_fit_win(tmp_path):
    fit = table(tmp_path, FIT)
    encoder = po.TableEncoder().fit(fit, "y")
    kinds = fitted_kinds(encoder.encoding_.columns)
    expected = {"n": "number", "code": "category", "flag": "boolean", "when": "date, day first", "word": "category"}
    assert kinds == expected
    assert fitted_kinds(po.TableEncoder().fit(fit.to_table(), "y").encoding_.columns) == expected
    new = table(tmp_path, "when,word,n,code,flag\n03/04/2024,1,?,1,yes\n05/06/2024,2,7,2,no\n", **kinds)
    assert new.to_table().to_pydict() == {
        "when": [dt.datetime(2024, 4, 3), dt.datetime(2024, 6, 5)],
        "word": ["1", "2"],
        "n": [None, 7],
        "code": ["1", "2"],
        "flag": [True, False],
    }
    assert new.notes == ()
    encoder.transform(new.to_table())
    typed = tmp_path / "t.parquet"
    pd.DataFrame({"n": ["1.5", "?"], "code": [1.0, 2.0], "flag": [1, 0], "word": ["a", " b"]}).to_parquet(typed)
    read = open_files([str(typed)], kinds=kinds).to_table()
    assert read.to_pydict() == {"n": [1.5, None], "code": ["1", "2"], "flag": [1, 0], "word": ["a", " b"]}


def test_what_most_values_do_not_fit_is_refused_with_row_and_column(tmp_path):
    with pytest.raises(ValueError, match=r"column 'n' holds 'much' in row 2, .* \(numbers expected as in the fit\)"):
        table(tmp_path, "n,m\n1,0\nmuch,1\nmore,2\n", n="number")
    few = table(tmp_path, "n,m\n1,0\n2,1\nmore,2\n", n="number")
    assert few.to_table()["n"].to_pylist() == [1, 2, None]
    assert few.notes == ("Column 'n' has 1 value that is not a number, taken as missing: 'more' once.",)
    parquet = tmp_path / "t.parquet"
    pd.DataFrame({"n": ["x", "y"]}).to_parquet(parquet)
    with pytest.raises(ValueError, match="column 'n' holds 'x' in row 1"):
        open_files([str(parquet)], kinds={"n": "number"})


def test_labels_are_never_dates_and_words_among_them_are_classes():
    assert column(["1", "2", *["1"] * 40, "other"], "label")[1][-1] == "other"
    assert column(["2024-01-31"], "label")[:2] == ("category", ["2024-01-31"])
    assert column(["1", "2", "NA"], "label")[:2] == ("number", [1, 2, None])
    assert column(["True", "False"], "label")[1] == [True, False]
    assert column(["01", "02"], "label")[1] == ["01", "02"]
    assert column([" a", "a "], "label")[1] == ["a", "a"]
