"""Files of all formats, recognised by what they hold; several of them as one table."""

import bz2
import gzip
import io
import json
import lzma
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import posteriori as po
from posteriori.tables.files import open_files

TEXT = b"a,b\n1,x\n2,\n"
TABLE = {"a": [1, 2], "b": ["x", None]}


def zipped(*contents):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i, content in enumerate(contents):
            archive.writestr(f"inner{i}.csv", content)
    return buffer.getvalue()


def arrow_bytes(write, table):
    buffer = io.BytesIO()
    write(table, buffer)
    return buffer.getvalue()


def excel(frames, **options):
    buffer = io.BytesIO()
    with pd.ExcelWriter(buffer, engine="openpyxl") as writer:
        for name, frame in frames.items():
            frame.to_excel(writer, sheet_name=name, **{"index": False} | options)
    return buffer.getvalue()


PARQUET = arrow_bytes(parquet.write_table, pa.table(TABLE))


def arrow_stream():
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.table(TABLE).schema) as writer:
        writer.write_table(pa.table(TABLE))
    return sink.getvalue()


ARROW_STREAM = arrow_stream()
COMPRESSED = {
    "gz": gzip.compress(TEXT),
    "bz2": bz2.compress(TEXT),
    "zst": pa.compress(TEXT, "zstd", asbytes=True),
    "xz": lzma.compress(TEXT),
    "zip": zipped(TEXT),
}


def put(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"t.csv.{kind}", content) for kind, content in COMPRESSED.items()),
        *((f"{kind} by another name.csv", content) for kind, content in COMPRESSED.items()),
        ("two members.csv.gz", gzip.compress(TEXT[:8]) + gzip.compress(TEXT[8:])),
        ("t.parquet", PARQUET),
        ("parquet.csv", PARQUET),
        ("t.parquet.gz", gzip.compress(PARQUET)),
        ("t.feather", arrow_bytes(feather.write_feather, pa.table(TABLE))),
        ("t.arrows", ARROW_STREAM),
        ("t.jsonl", b'{"a": 1, "b": "x"}\n\n{"b": null, "a": 2}\n'),
        ("t.json", b'[{"a": 1, "b": "x"}, {"a": 2}]'),
        ("nested.json", b'{"count": 2, "rows": [{"a": 1, "b": "x"},\n {"a": 2}]}'),
        ("t.jsonl.gz", gzip.compress(b'{"a": 1, "b": "x"}\n{"a": 2}\n')),
        ("t.xlsx", excel({"rows": pd.DataFrame(TABLE)})),
        ("t", TEXT),
        ("t.data", TEXT),
    ],
)
def test_formats_are_seen_in_the_bytes(tmp_path, name, content):
    assert open_files([put(tmp_path, content, name)]).to_table().to_pydict() == TABLE


@pytest.mark.parametrize("kind", ["gz", "bz2", "zst", "xz"])
def test_half_a_compressed_file_is_named(tmp_path, kind):
    rng = np.random.default_rng(0)
    text = b"a,b\n" + b"".join(b"%d,%f\n" % (i, x) for i, x in enumerate(rng.normal(size=3000)))
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    content = compress[kind](text) if kind in compress else pa.compress(text, "zstd", asbytes=True)
    path = put(tmp_path, content[: len(content) // 2], f"t.csv.{kind}")
    with pytest.raises(ValueError, match=rf"t.csv.{kind} cannot be read: it is damaged or incomplete"):
        open_files([path])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "old Excel file .* save it as .xlsx or as CSV"),
        ("t.zip", zipped(TEXT, TEXT), "archive of 2 files: unpack it"),
        ("t.xlsx", TEXT, "is not Excel, although its name says so"),
        ("t.csv.gz", TEXT, "is not gzip, although its name says so"),
        ("t.json", b"[1, 2]", "JSON without names of columns"),
        ("t.json", b"[]", "has no rows"),
        ("t.jsonl", b'{"a": 1}\n{"a": \n', "not a table in JSON"),
        ("t.parquet", PARQUET[:50], "t.parquet cannot be read"),
        ("t.xlsx", excel({"empty": pd.DataFrame()}), "has no rows"),
        ("t.db", b"SQLite format 3\0" + bytes(100), "SQLite"),
    ],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        open_files([put(tmp_path, content, name)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_json_of_mixed_values_is_read_as_text_is(tmp_path):
    lines = [{"a": 1, "b": True, "c": "x"}, {"a": 2.5, "b": False, "c": 7}, {"a": "NA", "c": {"d": [1]}}]
    path = put(tmp_path, "\n".join(map(json.dumps, lines)).encode(), "t.jsonl")
    assert open_files([path]).to_table().to_pydict() == {
        "a": [1.0, 2.5, None],
        "b": [True, False, None],
        "c": ["x", "7", '{"d": [1]}'],
    }


def test_excel(tmp_path):
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [1.5, None, 2.0],
            "when": pd.to_datetime(["2024-01-31", "2024-02-01", None]),
            "code": ["007", "008", "009"],
            "flag": [True, False, True],
        }
    )
    files = open_files([put(tmp_path, excel({"rows": frame, "more": frame}), "t.xlsx")])
    read = files.to_table().to_pandas()
    pd.testing.assert_frame_equal(read, frame, check_dtype=False)
    assert files.notes[0].endswith("t.xlsx: sheet 'rows' is read, the first of 2.")
    indexed = open_files([put(tmp_path, excel({"rows": frame}, index=True), "t.xlsx")])
    assert indexed.names[0] == "column 1"


def test_excel_without_openpyxl(tmp_path, monkeypatch):
    path = put(tmp_path, excel({"rows": pd.DataFrame(TABLE)}), "t.xlsx")
    for name in [name for name in sys.modules if name.partition(".")[0] == "openpyxl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"t.xlsx is an Excel file, .*pip install 'posteriori\[excel\]'"):
        open_files([path])


# Several files


def test_a_folder_of_parquet(tmp_path):
    for year, values in ((2020, [1, 2]), (2021, [2.5])):
        folder = tmp_path / "rows" / f"year={year}"
        folder.mkdir(parents=True)
        parquet.write_table(pa.table({"a": values, "b": ["x"] * len(values)}), folder / "part.parquet")
    (tmp_path / "rows" / "_SUCCESS").touch()
    files = open_files([str(tmp_path / "rows")])
    assert files.to_table().to_pydict() == {"a": [1.0, 2.0, 2.5], "b": ["x"] * 3, "year": [2020, 2020, 2021]}
    assert files.n_rows == 3
    flat = open_files([str(tmp_path / "rows" / "year=2020")])
    assert flat.to_table().to_pydict() == {"a": [1, 2], "b": ["x", "x"]}


def test_folders_without_tables(tmp_path):
    with pytest.raises(ValueError, match="is a folder that is empty"):
        open_files([str(tmp_path)])
    put(tmp_path, TEXT, "t.csv")
    with pytest.raises(ValueError, match=r"is a folder that has no Parquet files, but 't.csv': .*\*.csv"):
        open_files([str(tmp_path)])


def test_files_of_several_formats_are_one_table(tmp_path):
    paths = [
        put(tmp_path, b"a,b,c\n1,x,1\n", "1.csv"),
        put(tmp_path, b"b;c;a\ny;2;2,5\n", "2.csv"),
        put(tmp_path, b'{"a": 3, "b": "z", "c": "3"}', "3.jsonl"),
        str(tmp_path / "4.parquet"),
    ]
    parquet.write_table(pa.table({"c": ["4"], "b": ["w"], "a": [4]}), paths[-1])
    files = open_files(paths)
    expected = {"a": [1.0, 2.5, 3.0, 4.0], "b": [*"xyzw"], "c": [*"1234"]}
    assert files.to_table().to_pydict() == expected
    assert files.to_table(["c"]).to_pydict() == {"c": expected["c"]}
    pieces = [*files.pieces(10, ["a"])]
    assert pa.Table.from_batches([parsed for parsed, _ in pieces]).to_pydict() == expected
    assert pa.Table.from_batches([raw for _, raw in pieces])["a"].to_pylist() == ["1", "2,5", "3", "4"]
    pattern = open_files([str(tmp_path / "[34].*")])
    assert pattern.to_table()["b"].to_pylist() == ["z", "w"]


def test_many_files_are_held_in_memory_up_to_a_sum(tmp_path, monkeypatch):
    monkeypatch.setattr("posteriori.tables.surveys._HELD_BYTES", 1000)
    paths = [put(tmp_path, b"a,b\n" + b"1,x\n" * 40, f"{i}.csv") for i in range(20)]
    files = open_files(paths)
    read = []
    monkeypatch.setattr("posteriori.tables.formats.text_batches", lambda *a, **k: read.append(1) or iter(()))
    files.to_table()
    assert 15 < len(read) < 20


def test_files_with_other_columns_are_refused(tmp_path):
    first, second = put(tmp_path, TEXT, "1.csv"), put(tmp_path, b"a,c\n1,2\n", "2.csv")
    with pytest.raises(ValueError, match=r"2.csv has no column 'b', which .*1.csv has"):
        open_files([first, second])
    with pytest.raises(ValueError, match="No file is named"):
        open_files([])


def test_parquet_with_a_name_twice(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    files = open_files(path)
    assert files.to_table().to_pydict() == {"a": [1], "a_2": [2]}
    assert files.repeated == ("a",)


def sentence_or_none(path):
    """The refusal of a file, or None if it is read."""
    try:
        files = open_files(path)
        assert files.to_table().num_rows == files.n_rows
    except (ValueError, OSError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_refused_in_one_sentence_or_read(tmp_path, seed):
    rng = np.random.default_rng(seed)
    contents = [TEXT * 20, *COMPRESSED.values(), PARQUET, ARROW_STREAM, b'[{"a": 1}, {"a": 2}]']
    for content in contents:
        damaged = bytearray(content)
        for i in rng.integers(len(content), size=4):
            damaged[i] = rng.integers(256)
        said = sentence_or_none(put(tmp_path, bytes(damaged[: rng.integers(1, len(content) + 1)]), "t.csv"))
        assert said is None or ("t.csv" in said and "\n" not in said)


def test_text_that_is_stored_as_bytes(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": pa.array([b"x", b"\xc3\xa9"])}), path)
    assert open_files([str(path)]).to_table().to_pydict() == {"a": ["x", "é"]}
    parquet.write_table(pa.table({"a": pa.array([b"x", b"\xff\xfe"])}), path)
    with pytest.raises(ValueError, match=r"'a' .*bytes that are not text"):
        open_files([str(path)]).to_table()


@pytest.mark.parametrize("stdin", [None, "closed", b"", TEXT, COMPRESSED["gz"], PARQUET])
def test_standard_input(monkeypatch, stdin):
    file = None if stdin is None else io.TextIOWrapper(io.BytesIO(b"" if stdin == "closed" else stdin))
    if stdin == "closed":
        file.close()
    monkeypatch.setattr(sys, "stdin", file)
    if stdin in (None, "closed", b""):
        with pytest.raises(ValueError, match=r"Standard input is (closed|empty)"):
            open_files(["-"])
    else:
        files = open_files(["-"])
        assert files.to_table().to_pydict() == files.to_table().to_pydict() == TABLE


def test_long_standard_input_waits_in_a_file(monkeypatch):
    monkeypatch.setattr("posteriori.tables.raw_bytes._HELD_INPUT", 100)
    text = b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(1000))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert open_files(["-"]).to_table()["a"].to_pylist() == [*range(1000)]


# As rows of a fit


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_are_read_by_encoders_and_classifiers_as_a_data_set(tmp_path, monkeypatch, form):
    monkeypatch.setattr("posteriori.tables.surveys._HELD_BYTES", 0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)).round(6), columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["u", "v", "w"], 300)
    frame["y"] = np.where(frame["a"] + rng.normal(size=300) > 0, "p", "q")
    path = str(tmp_path / f"t.{form}")
    if form == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    files = open_files([path])
    assert files.n_rows == 300
    assert 300 * 5 * 4 < files.n_bytes < 300 * 5 * 16
    model = po.SoftmaxRegression()
    encoder = po.TableEncoder().fit(files, "y")
    streamed = model.fit(encoder.transform(files), "y").predict_proba(encoder.transform(files))
    encoded = po.TableEncoder().fit_transform(frame, "y")
    np.testing.assert_allclose(streamed, model.fit(encoded, "y").predict_proba(encoded), rtol=1e-10)
    numbers = str(tmp_path / "numbers.csv")
    frame[["a", "b", "c", "y"]].to_csv(numbers, index=False)
    fitted = po.SoftmaxRegression().fit(open_files([numbers]), "y")
    inside = po.SoftmaxRegression().fit(frame[["a", "b", "c", "y"]], "y")
    np.testing.assert_allclose(fitted.coef_, inside.coef_, rtol=1e-10)
    assert po.predict_to(fitted, open_files([numbers]), tmp_path / "p.csv") == 300


def test_changes_during_a_fit_are_noticed(tmp_path):
    path = put(tmp_path, TEXT, "t.csv")
    stream = open_files([path]).stream()
    before = stream.stamp()
    put(tmp_path, TEXT + b"3,z\n", "t.csv")
    assert stream.stamp() != before


@pytest.mark.parametrize(
    "orient", [{"orient": "columns"}, {"orient": "index"}, {"orient": "split"}, {"orient": "table", "index": False}]
)
def test_one_json_object_as_pandas_writes_it(tmp_path, orient):
    path = tmp_path / "t.json"
    pd.DataFrame(TABLE).to_json(path, **orient)
    assert open_files(path).to_table().to_pydict() == TABLE


@pytest.mark.parametrize("indent", [None, 2])
def test_one_json_object_of_columns_or_around_rows(tmp_path, indent):
    path = tmp_path / "t.json"
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    for whole in (TABLE, {"status": "ok", "data": rows}, {"data": rows, "errors": []}):
        path.write_text(json.dumps(whole, indent=indent))
        assert open_files(path).to_table().to_pydict() == TABLE


def test_one_json_object_may_be_a_row(tmp_path):
    path = tmp_path / "t.jsonl"
    for row, values in (({"a": 1, "b": "x"}, {"a": [1], "b": ["x"]}), ({"a": 1, "t": [2]}, {"a": [1], "t": ["[2]"]})):
        path.write_text(json.dumps(row))
        assert open_files(path).to_table().to_pydict() == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<table border="1">\n<tr><td>1</td></tr>\n', "is a web page or XML, not a table"),
        ("% 1. Title, and more\n%\n@RELATION x\n@ATTRIBUTE a NUMERIC\n@DATA\n1\n", "is an ARFF file: save the table"),
        ("a\n1\n2\n3\n4,5,6\n", "where the header has 1 name "),
        ('a,b\n1,2\n"3,4\n5,6\n7,8\n', "line 3 opens a quote that is not closed before line 5"),
    ],
    ids=["part of a page", "ARFF with remarks", "one name", "a quote"],
)
def test_refusals_say_what_the_file_is(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        open_files(path)


def sheet(*rows):
    buffer = io.BytesIO()
    pd.DataFrame(rows).to_excel(buffer, index=False, header=False)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("above", "below", "note"),
    [
        ([["Report of 2024"], [None, "made by hand"]], [], "2 lines before the header are skipped"),
        ([], [["mm", None, "kg"]], "line 2 is skipped: it holds words where the rows below it hold numbers"),
        ([["Report"]], [["mm", None, "kg"]], "line 3 is skipped"),
    ],
    ids=["titles", "units", "both"],
)
def test_titles_and_units_in_a_sheet_are_not_rows(tmp_path, above, below, note):
    path = tmp_path / "t.xlsx"
    rows = [[1, "x", 2.5], [2, "y", 3.5], [4, "x", 1.5]]
    path.write_bytes(sheet(*([*row, None, None][:3] for row in above), ["a", "b", "c"], *below, *rows))
    files = open_files(path)
    assert files.to_table().to_pydict() == {"a": [1, 2, 4], "b": ["x", "y", "x"], "c": [2.5, 3.5, 1.5]}
    assert note in " ".join(files.notes)


def test_a_sheet_of_two_columns_has_no_title(tmp_path):
    path = tmp_path / "t.xlsx"
    path.write_bytes(sheet(["a", None], [1, 2], [3, 4]))
    assert open_files(path).to_table().to_pydict() == {"a": [1, 3], "column 2": [2, 4]}
