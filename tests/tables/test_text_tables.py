"""Text tables as strangers write them: headers, marks, quotes, encodings; each file is made for one of these."""

import csv
import re

import numpy as np
import pyarrow as pa
import pytest

from posteriori.tables.files import open_files
from posteriori.tables.text.headers import repair_names


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and gives its path."""

    def to(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return to


def read(path):
    return open_files([path]).to_table().to_pydict()


def notes(path):
    return " ".join(open_files([path]).notes)


TWO_ROWS = {"a": [1, 2], "b": ["x", "y"]}

# Headers


@pytest.mark.parametrize(
    "content",
    [
        '"","region","x"\n"1","n",3.5\n"2","s",4\n',  # write.csv
        '"region","x"\n"1","n",3.5\n"2","s",4\n',  # write.table(sep = ",")
        '"region" "x"\n"1" "n" 3.5\n"2" "s" 4\n',  # write.table
        '"region"\t"x"\n"1"\t"n"\t3.5\n"2"\t"s"\t4\n',
    ],
)
def test_row_names_of_r_have_a_name_by_position(write, content):
    path = write(content)
    assert read(path) == {"column 1": [1, 2], "region": ["n", "s"], "x": [3.5, 4.0]}
    assert "columns without a name are named by their position: 'column 1'" in notes(path)


def test_names_are_repaired_without_colliding(write):
    path = write("a, a ,a_2,,column 4,a\n1,2,3,4,5,6\n2,3,4,5,6,7\n")
    files = open_files([path])
    assert files.names == ("a", "a_3", "a_2", "column 4_2", "column 4", "a_4")
    assert files.repeated == ("a",)
    assert [row[:1] for row in zip(*files.to_table().to_pydict().values(), strict=True)] == [(1,), (2,)]
    assert files.to_table()["a_4"].to_pylist() == [6, 7]
    assert "'a_3', 'a_4'" in notes(path)


def test_repaired_names_are_the_same_however_often_they_are_repaired():
    rng = np.random.default_rng(0)
    for _ in range(200):
        given = [["", "a", "a_2", "column 1", " a "][i] for i in rng.integers(5, size=rng.integers(1, 8))]
        names = repair_names(given).names
        assert len(set(names)) == len(given)
        assert repair_names(names).names == names


@pytest.mark.parametrize(
    "content",
    [
        "5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.9,virginica\n5.8,2.7,virginica\n",
        "5.1,3.5\n4.9,3.0\n6.1,2.9\n",
        "yes,no\nyes,no\nno,yes\nyes,yes\n",
        "39; State-gov; 77516\n50; Private; 83311\n38; Private; 215646\n53; State-gov; 2\n",
        "18.0 8 307.0 130 'chevelle'\n15.0 8 350.0 165 'skylark'\n18.0 8 318.0 150 'satellite'\n",
    ],
)
def test_a_file_without_a_header_is_refused_with_that_word(write, content):
    with pytest.raises(
        ValueError, match=r"has no header: its first line, .* looks like data. Put a line with the names"
    ):
        open_files([write(content)])


@pytest.mark.parametrize(
    "header",
    ["label,400,402.5,405", "0,1,2,3", ",2019,2020,2021", "a,b,c,d", "x1,5,3,1", "1990,1991,1992,1993"],
)
def test_numbers_may_be_names(write, header):
    rows = "".join(f"{'pq'[i % 2] if header[0] == 'l' else i % 2},{i % 7}.5,{i % 5},{i % 3}\n" for i in range(12))
    names = open_files([write(f"{header}\n{rows}")]).names
    assert names == repair_names(header.split(",")).names


def test_a_first_line_of_another_length(write):
    with pytest.raises(ValueError, match="has 2 names in its first line and 4 values in each row: its header must"):
        open_files([write("150,setosa\n" + "5.1,3.5,1.4,0\n" * 5)])


def test_known_names_are_a_header(write):
    path = write("2,1\n3,4\n5,1\n7,8\n")
    with pytest.raises(ValueError, match="header"):
        open_files([path])
    assert open_files([path], kinds={"1": "number", "2": "number"}).names == ("2", "1")


@pytest.mark.parametrize(
    ("content", "skipped"),
    [
        ("# made by hand\n# on Monday\n\na,b\n1,x\n2,y\n", "3 lines before the header are skipped"),
        ("#a,b\n1,x\n2,y\n", ""),
        ("# an export\n# a,b\n1,x\n2,y\n", "the first line is skipped"),
        ("sep=;\na;b\n1;x\n2;y\n", ""),
        ("\n\na,b\n1,x\n\n2,y\n\n", "2 lines before"),
    ],
)
def test_lines_before_the_header(write, content, skipped):
    path = write(content)
    assert read(path) == TWO_ROWS
    assert skipped in notes(path)


def test_a_title_above_the_header(write):
    path = write("Sales of 2020\n\na,b,c\n1,x,3\n2,y,4\n")
    assert read(path) == TWO_ROWS | {"c": [3, 4]}
    assert "skipped" in notes(path)


@pytest.mark.parametrize("content", ["a,b,\n1,x,\n2,y,\n", "a,b\n1,x,\n2,y,\n"])
def test_marks_at_the_end_of_lines_are_a_column_without_values(write, content):
    assert read(write(content)) == TWO_ROWS | {"column 3": [None, None]}


def test_a_mark_at_the_end_of_the_header_alone(write):
    assert read(write("a,b,\n1,x\n2,y\n")) == TWO_ROWS


# Marks, quotes, line ends


@pytest.mark.parametrize("mark", [",", ";", "\t", "|", "^", "~"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_marks_and_line_ends(write, mark, end):
    content = end.join(f"{a}{mark}{b}" for a, b in [("a", "b"), (1, "x"), (2, "y"), ("", "")])
    assert read(write(content[: -len(mark)])) == TWO_ROWS


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a,b\n1,"x\ny"\n2,"z, ""w"""\n', {"a": [1, 2], "b": ["x\ny", 'z, "w"']}),
        ("'a','b'\n'1','x, y'\n'2','z'\n", {"a": [1, 2], "b": ["x, y", "z"]}),
        ('a, b, c\n1, "BRONZE", 2\n2, "SILVER, old", 3\n', {"a": [1, 2], "b": ["BRONZE", "SILVER, old"], "c": [2, 3]}),
        (" a , b \n 1 , x \n 2,\ty\n", TWO_ROWS),
        ("a,b\n1,5\" pipe\n2,it's\n", {"a": [1, 2], "b": ['5" pipe', "it's"]}),
        ("a b\n1 x\n2 y\n", TWO_ROWS),
        ("   a    b\n 1.0    x   \n 2\ty\n", {"a": [1.0, 2.0], "b": ["x", "y"]}),
        ("a;b\n1,5;x\n2,25;y, z\n", {"a": [1.5, 2.25], "b": ["x", "y, z"]}),
        ("a|b\n1|x, y; z\n2|u\n", {"a": [1, 2], "b": ["x, y; z", "u"]}),
    ],
)
def test_quotes_and_blanks(write, content, expected):
    assert read(write(content, "t.txt")) == expected


def test_quoted_as_python_quotes_it(tmp_path):
    rng = np.random.default_rng(1)
    pieces = ['"', ",", "\n", "a", "ü", ";", "'", "|", "b c"]
    rows = [["n", "text, of any kind", "z"]]
    rows += [[str(i), "q" + "".join(pieces[j] for j in rng.integers(9, size=5)), "end"] for i in range(300)]
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    found = read(str(path))
    assert found["n"] == [*range(300)]
    assert found["text, of any kind"] == [row[1].strip() for row in rows[1:]]


@pytest.mark.parametrize("lines", [2, 5000])
@pytest.mark.parametrize("bad", ["3,4,5", "3"])
def test_rows_of_another_length_are_named_by_their_line(write, lines, bad):
    path = write("a,b\n" + "1,2\n" * lines + bad + "\n5,6\n")
    n = bad.count(",") + 1
    values = f"{n} value{'' if n == 1 else 's'}"
    with pytest.raises(ValueError, match=rf"t.csv: line {lines + 2} has {values} where the header has 2 names"):
        open_files([path])


def test_lines_are_counted_as_an_editor_counts_them(write):
    with pytest.raises(ValueError, match=r"line 7 has 3 values"):
        open_files([write('# c\na,b\n1,"x\ny"\n\n2,y\n1,2,3\n')])


def test_a_quote_that_is_not_closed(write):
    with pytest.raises(
        ValueError, match=r"t.csv: a quote is opened and never closed in the row that begins '2,x\\n3,y"
    ):
        open_files([write('a,b\n1,"u"\n2,"x\n3,y\n4,z\n')])
    assert read(write('a,b\n1,"u"\n2,"x\n3,y\n4,z"\n'))["b"] == ["u", "x\n3,y\n4,z"]


def test_quotes_that_are_escaped_by_a_backslash(write):
    assert read(write('a,b\n1,"x \\"y\\", w"\n2,"z"\n')) == {"a": [1, 2], "b": ['x "y", w', "z"]}
    assert read(write('a,b\n1,"C:\\"\n2,"z ""w"""\n')) == {"a": [1, 2], "b": ["C:\\", 'z "w"']}


def test_lines_of_blanks_and_the_end_of_dos(write):
    assert read(write("a,b\n1,x\n   \n2,y\n\x1a")) == TWO_ROWS


def test_one_column_is_said(write):
    assert "it has one column only, 'a:b': if it should have more" in notes(write("a:b\n1:2\n3:4\n"))
    assert read(write("0\nDigit 2\nDigit 7\n")) == {"0": ["Digit 2", "Digit 7"]}
    assert read(write("city name\nNew York\nLos Angeles\n")) == {"city name": ["New York", "Los Angeles"]}


# Encodings


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("latin-1", "not UTF-8 and is read as cp1252"),
        ("cp1252", "cp1252"),
        ("utf-16", ""),
    ],
)
def test_encodings(write, encoding, said):
    content = "größe,ort\n1,Zürich\n2,Genève\n"
    path = write(content.encode(encoding))
    assert read(path) == {"größe": [1, 2], "ort": ["Zürich", "Genève"]}
    assert said in notes(path)
    for mark in ("utf-16-le", "utf-16-be", "utf-32-le"):
        assert read(write("\ufeff".encode(mark) + content.encode(mark))) == read(path)


def test_utf_16_without_a_mark(write):
    path = write("name,city\n1,Rome\n2,Bern\n".encode("utf-16-le"))
    assert read(path) == {"name": [1, 2], "city": ["Rome", "Bern"]}
    assert "utf-16-le" in notes(path)


def test_an_encoding_that_shows_late(write):
    path = write(b"a,b\n" + b"1,x\n" * 200_000 + b"2,caf\xe9\n")
    files = open_files([path])
    assert files.to_table()["b"][-1].as_py() == "café"
    assert files.n_rows == 200_001
    assert "cp1252" in " ".join(files.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,\0\n", "NUL"),
        (bytes(range(1, 256)) * 20, "not text"),
        (b"", "t.csv is empty"),
        (b" \n\n", "t.csv is empty"),
        (b"\xef\xbb\xbf", "t.csv is empty"),
        (b"a,b\n", "t.csv has no rows"),
        (b"a,b\n\n\n", "t.csv has no rows"),
        (b"# only a comment\n", "t.csv has no rows"),
        (b"<!DOCTYPE html>\n<html><p>404</html>", "web page"),
        (b"%PDF-1.7 ...", "PDF"),
    ],
)
def test_what_is_not_a_text_table(write, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        open_files([write(content)])
    assert re.fullmatch(r"[^\n]*\.", str(caught.value))


# Size


@pytest.mark.parametrize("n", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_very_wide(write, n):
    header = ",".join(f"c{i}" for i in range(n))
    rows = "\n".join(",".join(str((i * j) % 97) for i in range(n)) for j in range(1, 4))
    wide = open_files([write(f"{header}\n{rows}\n")])
    assert wide.to_table().shape == (3, n)
    assert wide.to_table()["c96"].to_pylist() == [96, 95, 94]


def test_very_long_text_is_read_in_larger_blocks(write):
    path = write("a,b\n" + "0,short\n" * 100_000 + f'1,"{"x, y " * 1_100_000}"\n2,z\n')
    long = open_files([path])
    assert long.n_rows == 100_002
    assert len(long.to_table()["b"][-2].as_py()) == 5 * 1_100_000 - 1


def test_rows_are_the_same_in_every_pass_and_batch(write, monkeypatch):
    rows = "".join(f"{i % 100:03d},{i / 7:.6f},{'?' if i % 11 == 0 else i},w{i % 3}\n" for i in range(30_000))
    path = write("code,x,n,w\n" + rows)
    held = open_files([path]).to_table()
    monkeypatch.setattr("posteriori.tables.surveys._HELD_BYTES", 0)
    monkeypatch.setattr("posteriori.tables.text.dialects._LEAST_BLOCK", 1 << 14)
    files = open_files([path])
    stream = files.stream()
    for size in (100, 10_000_000):
        batches = [*stream.batches(list(files.names), size)]
        assert max(map(len, batches)) <= size
        assert pa.Table.from_batches(batches).equals(held)
    pieces = [*files.pieces(1000, ["n", "code"])]
    assert pa.Table.from_batches([parsed for parsed, _ in pieces]).equals(held)
    written = pa.Table.from_batches([raw for _, raw in pieces]).to_pydict()
    assert written["n"][:3] == ["?", "1", "2"]
    assert written["code"][:2] == ["000", "001"]
    rng = np.random.default_rng(0)
    shuffled = pa.Table.from_batches([*stream.shuffled(["x"], 1000, rng)])
    assert sorted(shuffled["x"].to_pylist()) == sorted(held["x"].to_pylist())
