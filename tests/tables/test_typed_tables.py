"""Tables in types of Arrow that other programs choose: views of text, decimals, dates and lists, also as classes."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from posteriori.tables.files import open_files


@pytest.fixture
def write(tmp_path):
    """A function that writes columns to a Parquet file and gives its path."""

    def to(**columns):
        path = tmp_path / "t.parquet"
        parquet.write_table(pa.table(columns), path)
        return str(path)

    return to


def test_views_of_text_are_text(write):
    path = write(v=pa.array(["b", "a", None]).cast(pa.string_view()), w=pa.array([b"x", b"y", None], pa.binary_view()))
    table = open_files(path).to_table()
    assert table.schema.types == [pa.string(), pa.string()]
    assert table.to_pydict() == {"v": ["b", "a", None], "w": ["x", "y", None]}
    assert pc.take(table["v"], pa.array([1, 0])).to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pa.array([decimal.Decimal("1"), decimal.Decimal("2"), None]), [1, 2, None]),
        (pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.00")]), [1.5, 2.0]),
        (pa.array([datetime.date(2024, 1, 31), None]), ["2024-01-31", None]),
        (pa.array([datetime.time(12, 30)]), ["12:30:00.000000"]),
        (pa.array([True, False]), [True, False]),
        (pa.array([1.0, 2.0]), [1.0, 2.0]),
        (pa.array(["q", "p"]).dictionary_encode(), ["q", "p"]),
    ],
    ids=["whole decimals", "decimals", "dates", "times", "booleans", "floats", "dictionary"],
)
def test_classes_are_numbers_booleans_or_text_whatever_the_type(write, values, classes):
    assert open_files(write(y=values), kinds={"y": "label"}).to_table()["y"].to_pylist() == classes


def test_lists_are_not_classes(write):
    with pytest.raises(ValueError, match=r"column 'y' holds list<element: int64>, and classes are numbers or text"):
        open_files(write(y=pa.array([[1], [2]])), kinds={"y": "label"})
