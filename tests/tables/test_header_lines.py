"""Lines around the header that are not rows: remarks above it, units and second headers below it, and itself again."""

import pytest

from posteriori.tables.files import open_files
from posteriori.tables.text.dialects import find_dialect

ROWS = "1,x,2.5\n2,y,3.5\n4,x,1.5\n"
VALUES = {"a": [1, 2, 4], "b": ["x", "y", "x"], "c": [2.5, 3.5, 1.5]}


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and gives its path."""

    def to(content, name="t.csv"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return to


def read(path):
    return open_files(path).to_table().to_pydict()


def notes(path):
    return " ".join(open_files(path).notes)


@pytest.mark.parametrize(
    ("above", "note"),
    [
        ("// made by a tool, version 2\n", "the first line is skipped"),
        ("Created:,2024-01-01,,,,\nAuthor:,Smith,,,,\n\n", "2 lines before the header are skipped"),
        ("Station 17\nLatitude,52.1,Longitude,13.4,Height,55.1\n", "2 lines before the header are skipped"),
    ],
)
def test_lines_above_the_header_may_have_another_number_of_values(write, above, note):
    path = write(f"{above}a,b,c,d\n{ROWS}".replace("5\n", "5,0\n"))
    assert read(path) == {**VALUES, "d": [0, 0, 0]}
    assert note in notes(path)


def test_a_header_that_is_too_short_is_not_passed_over(write):
    with pytest.raises(ValueError, match="has 2 names in its first line and 5 values in each row"):
        open_files(write("a,b\nu,v,w,1,2\nv,w,u,3,4\nw,u,v,5,6\n"))


@pytest.mark.parametrize(
    ("below", "note"),
    [
        ("mm,,kg\n", "line 2 is skipped: it holds words where the rows below it hold numbers"),
        ("(mm),(name),(kg)\n", "line 2 is skipped"),
        ("How long?,Which?,How heavy?\n{Q1},{Q2},{Q3}\n", "lines 2 to 3 are skipped: they hold words where the rows"),
    ],
)
def test_units_and_questions_below_the_header_are_not_rows(write, below, note):
    path = write(f"a,b,c\n{below}{ROWS}")
    assert read(path) == VALUES
    assert note in notes(path)


@pytest.mark.parametrize("first", ["unknown,x,unknown\n", "<5,x,>9\n", "1,x,unknown\n", "?,x,high\n"])
def test_a_first_row_with_words_among_numbers_is_a_row(write, first):
    assert open_files(write(f"a,b,c\n{first}{ROWS}{ROWS}{ROWS}{ROWS}")).n_rows == 13


def test_of_two_lines_of_names_the_one_without_repeats_is_the_header(write):
    path = write(f"size,place,size\na,b,c\n{ROWS}")
    assert read(path) == VALUES
    assert "the first line is skipped" in notes(path)


def test_a_column_may_be_called_number_sign(write):
    assert read(write(f"#,b,c\n{ROWS}")) == {"#": [1, 2, 4], "b": ["x", "y", "x"], "c": [2.5, 3.5, 1.5]}
    assert read(write("#,b\nu,v\nu,w\nv,w\n")) == {"#": ["u", "u", "v"], "b": ["v", "w", "w"]}
    assert find_dialect(b"#a,b\n1,2\n").names == ("a", "b")


def test_rows_that_repeat_the_header_are_left_out(write):
    path = write(f"a,b,c\n{ROWS}a,b,c\n{ROWS} a , b,c\n")
    files = open_files(path)
    assert files.to_table().to_pydict() == {name: values * 2 for name, values in VALUES.items()}
    assert "rows that repeat the header are left out" in notes(path)
    parsed, written = next(iter(files.pieces(written=["b"], columns=["c"])))
    assert parsed.to_pydict() == {"c": VALUES["c"] * 2}
    assert written.to_pydict() == {"b": VALUES["b"] * 2}
