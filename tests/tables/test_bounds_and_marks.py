"""Columns of numbers in which some values are bounds, <5, or words for a missing number; and further forms of dates."""

import datetime

import pyarrow as pa
import pytest

import posteriori as po
from posteriori.tables.files import fitted_kinds, open_files


@pytest.fixture
def opened(tmp_path):
    """A function that opens a file with one column x of these values beside another."""

    def of(values, kinds=None, separator=","):
        path = tmp_path / "t.csv"
        path.write_text("\n".join([f"x{separator}z", *(f"{value}{separator}q" for value in values)]), encoding="utf-8")
        return open_files(path, kinds=kinds)

    return of


def column(files):
    return files.to_table()["x"].to_pylist()


NUMBERS = [f"{n}.5" for n in range(30)]


@pytest.mark.parametrize(
    ("bound", "number"),
    [("<0.5", 0.5), ("< 5", 5.0), ("<=5", 5.0), (">1,000", 1000.0), ("≥ 40", 40.0), ("~12", 12.0), ("90+", 90.0)],
)
def test_bounds_among_many_numbers_are_read_as_the_number(opened, bound, number):
    files = opened([*NUMBERS, *[f'"{bound}"'] * 10])
    assert column(files) == [*map(float, NUMBERS), *[number] * 10]
    assert files.notes == (f"Column 'x' has 10 bounds, such as {bound!r}, read as the number in them.",)


def test_bounds_with_decimal_commas(opened):
    files = opened([*(n.replace(".", ",") for n in NUMBERS), "<0,5", ">99,5"], separator=";")
    assert column(files)[-2:] == [0.5, 99.5]
    assert "has 2 bounds, such as '<0,5', read as the number in them" in " ".join(files.notes)


def test_bounds_are_read_where_the_fit_had_numbers(opened):
    assert column(opened(["<5", "7"], {"x": "number"})) == [5.0, 7.0]
    assert column(opened(["<5"], {"x": "number"})) == [5.0]
    assert column(opened(["<0,5"], {"x": "number, decimal comma"}, ";")) == [0.5]


def test_a_few_bounds_among_few_numbers_are_read_alike_in_the_fit_and_later(opened):
    values = ["1", "2", "3"] * 10 + ["3+"]
    fitted = opened(values)
    assert column(fitted)[-1] == 3.0
    assert column(opened(values, {"x": "number"})) == column(fitted)


@pytest.mark.parametrize("levels", [["<30", ">30"], ["0", "1", "2", "3+"], ["<1", "1", "2", ">2"]])
def test_few_levels_with_bounds_are_categories(opened, levels):
    assert column(opened(levels * 10)) == levels * 10


@pytest.mark.parametrize("words", [["Refused"], ["refused", "don't know"], ["None"]])
def test_one_or_two_words_among_many_numbers_are_missing(opened, words):
    files = opened([*NUMBERS, *words * 8])
    assert column(files) == [*map(float, NUMBERS), *[None] * (8 * len(words))]
    if words != ["None"]:
        assert f"has {8 * len(words)} values that are not numbers, taken as missing: {words[0]!r}" in files.notes[0]


def test_a_word_that_was_missing_in_the_fit_is_missing_however_often_it_occurs(opened):
    for numbers in (NUMBERS, [n.replace(".", ",") for n in NUMBERS]):
        fitted = opened([*numbers, *["unknown"] * 2], separator=";").to_table()
        encoder = po.TableEncoder().fit(fitted.append_column("y", pa.array(["p", "q"] * 16)), "y")
        kinds = fitted_kinds(encoder.encoding_.columns)
        assert column(opened(["unknown"], kinds, ";")) == [None]
        assert column(opened([numbers[3], "unknown", "unknown"], kinds, ";")) == [3.5, None, None]
        with pytest.raises(ValueError, match="most of its values are like that"):
            opened(["unknown", "heavy"], kinds, ";")


def test_decimal_commas_hold_in_files_without_words(opened):
    for kind in ("number, decimal comma", 'number, decimal comma, missing ["unknown"]'):
        assert column(opened(["1.234", "5.678"], {"x": kind}, ";")) == [1234.0, 5678.0]


@pytest.mark.parametrize("values", [["1", "2", "3", "unsure"] * 10, [*NUMBERS, *["low", "middle", "high"] * 4]])
def test_words_among_few_numbers_or_of_three_kinds_are_levels(opened, values):
    assert column(opened(values)) == values


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Jan-1985", datetime.datetime(1985, 1, 1)),
        ("March 2001", datetime.datetime(2001, 3, 1)),
        ("Dec. 2001", datetime.datetime(2001, 12, 1)),
        ("2024/03/05 8:05:03 PM GMT+1", datetime.datetime(2024, 3, 5, 19, 5, 3, tzinfo=datetime.UTC)),
        ("2024-03-05 08:05 UTC-3:30", datetime.datetime(2024, 3, 5, 11, 35, tzinfo=datetime.UTC)),
    ],
)
def test_months_of_a_year_and_zones_by_their_distance_from_greenwich(opened, written, read):
    (found,) = column(opened([written]))
    assert found == read


@pytest.mark.parametrize("written", ["ABC-1234", "May", "Boeing 1234", "Jan 85"])
def test_words_with_numbers_are_not_months(opened, written):
    assert column(opened([written])) == [written]


def test_masked_digits_are_not_a_unit(opened):
    assert column(opened(["120xx", "941xx", "606XX"])) == ["120xx", "941xx", "606XX"]
    assert column(opened(["5 x", "7 x", "9 x"])) == [5.0, 7.0, 9.0]
