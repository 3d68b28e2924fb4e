"""Tables in files: what is read is what was written, and what cannot be read is told of."""

import gzip
import io
import json
import sys

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from posteriori.tables.files import format_of, open_files, without_formulas, write_file

TABLE = pa.table({"name": ["Ann", "Bob; the other", None], "age": [31, None, 7], "size": [1.5, -2.25, None]})


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl", "T.CSV"])
def test_what_is_written_is_read_again(tmp_path, name):
    path = str(tmp_path / name)
    write_file(TABLE, path)
    assert open_files(path).to_table().to_pydict() == TABLE.to_pydict()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_fields_may_be_separated_by_other_marks(tmp_path, mark):
    path = tmp_path / "t.csv"
    path.write_text(mark.join(["a", "b", "c"]) + "\n" + mark.join(["1", "x", ""]) + "\n")
    assert open_files(path).to_table().to_pydict() == {"a": [1], "b": ["x"], "c": [None]}


def test_a_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffgröße,b\r\n1,x\r\n".encode())
    assert open_files(path).to_table().to_pydict() == {"größe": [1], "b": ["x"]}


def test_compressed_and_quoted_over_lines(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b'a,b\n1,"two\nlines, and a comma"\n'))
    assert open_files(path).to_table().to_pydict() == {"a": [1], "b": ["two\nlines, and a comma"]}


def test_several_files_follow_one_another_by_name(tmp_path):
    (tmp_path / "p1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "p2.csv").write_text("b,a\ny,2.5\n")
    parquet.write_table(pa.table({"a": [3.0], "b": ["z"]}), tmp_path / "q.parquet")
    table = open_files([str(tmp_path / "p*.csv"), tmp_path / "q.parquet"]).to_table()
    assert table.to_pydict() == {"a": [1.0, 2.5, 3.0], "b": ["x", "y", "z"]}


def test_columns_that_are_text_stay_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("zip,n\n01234,1\n")
    assert open_files(path, kinds={"zip": "category", "absent": "category"}).to_table().to_pydict() == {
        "zip": ["01234"],
        "n": [1],
    }


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n")))
    assert open_files("-").to_table().to_pydict() == {"a": [1], "b": ["x"]}


def test_standard_output(capfdbinary):
    write_file(TABLE.select(["name", "age"]), None)
    assert capfdbinary.readouterr().out == b'"name","age"\n"Ann",31\n"Bob; the other",\n,7\n'
    write_file(TABLE, None, "jsonl")
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [json.loads(line) for line in lines] == TABLE.to_pylist()
    with pytest.raises(ValueError, match="Parquet cannot be written to the screen: name a file"):
        write_file(TABLE, None, "parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", b"PK", "t.xlsx is not Excel, although its name says so"),
        ("t.parquet", b"no such thing", "t.parquet is not Parquet, although its name says so"),
        ("t.csv", b"", "t.csv is empty"),
        ("t.csv", b"a,b\n", "t.csv has no rows"),
        ("t.csv", b"a,b\n1,2\n3,4\n1,2,3\n", r"t.csv: line 4 has 3 values where the header has 2 names \('1,2,3'\)"),
        ("t.jsonl", b"{", "t.jsonl is not a table in JSON"),
    ],
)
def test_what_cannot_be_read_is_told_of(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_files([str(path)])
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        open_files([str(tmp_path / "none.csv")])
    with pytest.raises(FileNotFoundError, match="No file matches"):
        open_files([str(tmp_path / "*.csv")])


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="does not show a known format"):
        write_file(TABLE, str(tmp_path / "t.xlsx"))
    with pytest.raises(ValueError, match="Out of range"):
        write_file(pa.table({"a": [float("inf")]}), str(tmp_path / "t.jsonl"))
    assert [*tmp_path.iterdir()] == []


def test_formats_by_name():
    assert [format_of(name) for name in ("a.csv", "b.TSV", "c.parquet", "d.pq", "e.jsonl", "f.csv.bz2")] == [
        "csv", "csv", "parquet", "parquet", "jsonl", "csv",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.zst", "t.tsv", "t.jsonl.zst"])
def test_compressed_files_are_written_and_read_again(tmp_path, name):
    path = str(tmp_path / name)
    write_file(TABLE, path)
    assert open_files([path]).to_table().to_pydict() == TABLE.to_pydict()


def test_formulas_are_text():
    texts = ["=1+1", "@x", "\tx", "\rx", "+cmd", "-x", "+", "-", "-5", "+.5", "plain", "", None]
    safe = without_formulas(pa.chunked_array([texts])).to_pylist()
    assert safe == ["'=1+1", "'@x", "'\tx", "'\rx", "'+cmd", "'-x", *texts[6:]]
    numbers = pa.array([1.0, -2.0])
    assert without_formulas(numbers) is numbers
