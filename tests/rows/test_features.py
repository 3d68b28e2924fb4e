"""Features: every container gives the same numbers, nothing is copied in vain, wrong input is explained."""

import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posteriori.rows.features import raise_if_not_finite
from posteriori.rows.matrices import column, is_table
from posteriori.rows.memory import read_features

COLUMNS = {"length": [39.1, 46.5, 50.0], "depth": [18.7, 17.9, 15.2]}
VALUES = np.array([[39.1, 18.7], [46.5, 17.9], [50.0, 15.2]])


def arrow_batch(columns):
    return pa.RecordBatch.from_pydict(columns)


TABLES = [pd.DataFrame, pl.DataFrame, pa.table, arrow_batch]
tables = pytest.mark.parametrize("table", TABLES)


# Arrays


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_passes_without_a_copy(dtype, order):
    X = np.ones((3, 2), dtype=dtype, order=order)
    features = read_features(X)
    assert features.matrix is X
    assert features.names is None


def test_a_strided_view_passes_without_a_copy():
    X = np.arange(24.0).reshape(6, 4)[::2, ::-1]
    assert read_features(X).matrix is X


@pytest.mark.parametrize("dtype", ["f2", "g", "O"])
def test_other_real_dtypes_become_float64(dtype):
    matrix = read_features(np.array([[1, 2], [3, 4]]).astype(dtype)).matrix
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, [[1, 2], [3, 4]])


@pytest.mark.parametrize("dtype", ["f2", "g", "O"])
def test_the_converted_array_is_not_modified(dtype):
    X = np.array([[1, 2], [3, 4]]).astype(dtype)
    read_features(X).matrix[:] = 0
    assert X.dtype == np.dtype(dtype)
    assert X.tolist() == [[1, 2], [3, 4]]


def test_none_among_objects_is_nan():
    np.testing.assert_array_equal(read_features(np.array([[1, None]], dtype=object)).matrix, [[1, np.nan]])


@pytest.mark.parametrize("X", [[[1.5, 2.0], [3.0, 4.0]], ((1.5, 2.0), (3.0, 4.0)), [np.array([1.5, 2]), [3, 4]]])
def test_lists_of_rows(X):
    np.testing.assert_array_equal(read_features(X).matrix, [[1.5, 2], [3, 4]])


def test_subclasses_of_ndarray_share_their_memory(tmp_path):
    X = np.memmap(tmp_path / "X", dtype="f4", mode="w+", shape=(3, 2))
    matrix = read_features(X).matrix
    assert type(matrix) is np.ndarray
    assert np.shares_memory(matrix, X)


def test_masked_values_are_nan():
    X = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(read_features(X).matrix, [[1, np.nan], [3, 4]])


class OffersInterface:
    array = np.array([[1.0, 2.0]])
    __array_interface__ = array.__array_interface__


class OffersArray:
    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, 2.0]])


class OffersDLPack:
    array = np.array([[1.0, 2.0]])

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("X", [OffersArray(), OffersDLPack(), OffersInterface()])
def test_array_protocols(X):
    np.testing.assert_array_equal(read_features(X).matrix, [[1, 2]])


@given(
    hnp.arrays(
        st.sampled_from(["?", "i4", "u8", "f2", "f4", "f8"]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1),
    )
)
def test_values_are_kept(X):
    np.testing.assert_array_equal(read_features(X).matrix, X)
    np.testing.assert_array_equal(read_features(X.tolist()).matrix, X)


# Arrays that are refused


@pytest.mark.parametrize("X", [np.ones(3), [1.0, 2.0], pd.Series([1.0, 2.0]), pl.Series([1.0, 2.0])])
def test_one_dimension(X):
    with pytest.raises(
        ValueError,
        match=r"Expected 2D array, got 1D array instead.*Reshape your data either using "
        r"array\.reshape\(-1, 1\) .* or array\.reshape\(1, -1\)",
    ):
        read_features(X)


def test_no_dimension():
    with pytest.raises(ValueError, match=r"Expected 2D array, got scalar array instead \(X is of type float"):
        read_features(3.0)


def test_three_dimensions():
    with pytest.raises(ValueError, match=r"Expected 2D array, got 3D array instead .*shape \(2, 2, 2\)"):
        read_features(np.ones((2, 2, 2)))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, pd.DataFrame])
def test_no_rows(make):
    message = r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required\."
    with pytest.raises(ValueError, match=message):
        read_features(make(np.empty((0, 3))))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, pd.DataFrame])
def test_no_columns(make):
    message = r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of \d* is required\."
    with pytest.raises(ValueError, match=message):
        read_features(make(np.empty((12, 0))))


@pytest.mark.parametrize("X", [np.ones((2, 2)) * 1j, sp.csr_array(np.eye(2) * 1j), [[1j]]])
def test_complex_numbers(X):
    with pytest.raises(ValueError, match="Complex data not supported"):
        read_features(X)


@pytest.mark.parametrize("X", [np.array([["a", "b"]]), [["a", 1.0]], np.array([["2020-01-01"]], dtype="M8[D]")])
def test_other_dtypes(X):
    with pytest.raises(ValueError, match=r"X has dtype .* must hold numbers: encode it as numbers"):
        read_features(X)


@pytest.mark.parametrize("string", ["a", "1.5", b"a"])
def test_a_string_among_objects_is_named(string):
    with pytest.raises(ValueError, match=rf"X holds the string {string!r} and must hold numbers"):
        read_features(np.array([[1.0, string]], dtype=object))


def test_an_object_that_is_no_number():
    with pytest.raises(TypeError, match=r"X must hold numbers.* argument must be .* string.* number"):
        read_features(np.array([[1.0, {"foo": "bar"}]], dtype=object))


def test_rows_of_unequal_length():
    with pytest.raises(ValueError, match="X must be a table or a matrix with rows of equal length"):
        read_features([[1.0, 2.0], [3.0]])


# Tables


@tables
def test_a_table_gives_its_values_and_names(table):
    features = read_features(table(COLUMNS))
    np.testing.assert_array_equal(features.matrix, VALUES)
    assert features.matrix.dtype == np.float64
    assert features.names == ["length", "depth"]


def test_a_homogeneous_frame_is_not_copied():
    frame = pd.DataFrame(VALUES.copy(), columns=["length", "depth"])
    assert np.shares_memory(read_features(frame).matrix, frame.to_numpy())


@pytest.mark.parametrize(
    ("dtypes", "common"),
    [
        (("f4", "f4"), "f4"),
        (("f4", "f8"), "f8"),
        (("i2", "i4"), "i4"),
        (("i4", "f8"), "f8"),
        (("?", "?"), "?"),
        (("?", "f8"), "f8"),
        (("?", "i8"), "i8"),
        (("f2", "f2"), "f8"),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "arrow", "polars"])
def test_the_common_dtype(library, dtypes, common):
    columns = {name: np.array([1, 0, 1], dtype=dtype) for name, dtype in zip("ab", dtypes, strict=True)}
    table = {"pandas": pd.DataFrame, "arrow": pa.table, "polars": pl.DataFrame}[library](columns)
    matrix = read_features(table).matrix
    assert matrix.dtype == np.dtype(common)
    np.testing.assert_array_equal(matrix, [[1, 1], [0, 0], [1, 1]])


MISSING = {"length": [39.1, None, 50.0], "sex": [True, False, None], "year": [2007, None, 2009]}
MISSING_VALUES = [[39.1, 1, 2007], [np.nan, 0, np.nan], [50.0, np.nan, 2009]]


@pytest.mark.parametrize(
    "X",
    [
        pa.table(MISSING),
        arrow_batch(MISSING),
        pl.DataFrame(MISSING),
        pa.table(MISSING).to_pandas(types_mapper=pd.ArrowDtype),
        pd.DataFrame(MISSING).astype({"length": "Float64", "sex": "boolean", "year": "Int64"}),
        pd.DataFrame(MISSING).astype({"length": "Float64", "sex": "object", "year": "Int64"}),
    ],
    ids=["arrow", "batch", "polars", "pandas-arrow", "pandas-nullable", "pandas-object"],
)
def test_missing_values_are_nan(X):
    matrix = read_features(X).matrix
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, MISSING_VALUES)


@pytest.mark.parametrize("missing", [[1.5, 2.5], [1.5, None]])
def test_a_nullable_column_of_float32_stays_float32(missing):
    frame = pd.DataFrame({"a": pd.array(missing, dtype="Float32"), "b": pd.array(missing, dtype="Float32")})
    matrix = read_features(frame).matrix
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix[:, 0], np.array(missing, dtype="f4"))


@pytest.mark.parametrize(
    "X",
    [
        pl.DataFrame({"a": [Decimal("1.5"), Decimal("2.5")]}),
        pa.table({"a": [Decimal("1.5"), Decimal("2.5")]}),
        pd.DataFrame({"a": [Decimal("1.5"), Decimal("2.5")]}),
        pd.DataFrame({"a": pd.arrays.SparseArray([1.5, 2.5])}),
        pd.DataFrame({"a": np.array([1.5, 2.5], dtype=object)}),
    ],
    ids=["polars-decimal", "arrow-decimal", "pandas-decimal", "pandas-sparse", "pandas-object"],
)
def test_unusual_numbers_become_float64(X):
    matrix = read_features(X).matrix
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, [[1.5], [2.5]])


def test_wide_integers_become_float64():
    X = pl.DataFrame({"a": pl.Series([1, None], dtype=pl.Int128)})
    np.testing.assert_array_equal(read_features(X).matrix, [[1], [np.nan]])


@pytest.mark.parametrize("names", [[0, 1], ["a", 1], [("a", 1), ("a", 2)]])
def test_names_that_are_not_all_strings_are_left_out(names):
    features = read_features(pd.DataFrame(VALUES, columns=pd.Index(names, tupleize_cols=False)))
    assert features.names is None
    np.testing.assert_array_equal(features.matrix, VALUES)


@tables
def test_dropped_columns_are_no_features(table):
    features = read_features(
        table({"species": ["a", "b", "a"], **COLUMNS, "w": [1, 2, 3]}), drop=["species", "w", "absent"]
    )
    assert features.names == ["length", "depth"]
    np.testing.assert_array_equal(features.matrix, VALUES)


@tables
def test_absent_columns_need_not_be_dropped(table):
    assert read_features(table(COLUMNS), drop={"species"}).names == ["length", "depth"]


def test_drop_means_nothing_for_an_array():
    assert read_features(VALUES, drop=["species"]).matrix is VALUES


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["a", "b", "c"], r"str|String|string|object"),
        (pd.Categorical(["a", "b", "a"]), "category"),
        (pd.to_datetime(["2020", "2021", "2022"]), "datetime64"),
        (np.array([{}, [], 1], dtype=object), "object"),
    ],
)
def test_a_column_that_holds_no_numbers_is_named(values, dtype):
    with pytest.raises(
        ValueError,
        match=rf"Column 'island' of X has dtype .*({dtype}).* encode it as numbers, for example with TableEncoder",
    ):
        read_features(pd.DataFrame({**COLUMNS, "island": values}))


@tables
def test_a_column_of_strings_is_named(table):
    with pytest.raises(ValueError, match=r"Column 'island' of X has dtype (str|String|string) "):
        read_features(table({**COLUMNS, "island": ["a", "b", "c"]}))


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame(VALUES, columns=["a", "a"]),
        pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]),
        pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"]),
    ],
)
def test_duplicate_names(X):
    with pytest.raises(ValueError, match=r"(?s)X has two columns of one name: .*'a' 2 times"):
        read_features(X)


@pytest.mark.parametrize("make", [*TABLES, lambda columns: pl.DataFrame(columns).to_pandas()])
def test_a_table_is_a_table(make):
    assert is_table(make(COLUMNS))


@pytest.mark.parametrize(
    "X",
    [VALUES, VALUES.tolist(), (1, 2), sp.csr_array(VALUES), pd.Series([1]), pl.Series([1]), None, "table", 3],
)
def test_other_things_are_no_table(X):
    assert not is_table(X)


# One column


@tables
def test_a_column_by_name(table):
    X = table({**COLUMNS, "species": ["a", "b", "a"]})
    assert column(X, "species", argument="y").tolist() == ["a", "b", "a"]
    np.testing.assert_array_equal(column(X, "depth", argument="sample_weight"), COLUMNS["depth"])


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"s": pd.Categorical(["b", None, "a"])}),
        pl.DataFrame({"s": pl.Series(["b", None, "a"], dtype=pl.Categorical)}),
        pa.table({"s": pa.array(["b", None, "a"]).dictionary_encode()}),
    ],
)
def test_a_categorical_column_keeps_its_missing_values(X):
    values = column(X, "s", argument="y")
    assert values[[0, 2]].tolist() == ["b", "a"]
    assert pd.isna(values[1])


def test_a_column_of_no_table():
    with pytest.raises(ValueError, match=r"y='species' names a column, but X \(ndarray\) has no named columns"):
        column(VALUES, "species", argument="y")


@tables
def test_an_unknown_column(table):
    with pytest.raises(ValueError, match="sample_weight='w' is not a column of X, whose columns are 'length', 'depth'"):
        column(table(COLUMNS), "w", argument="sample_weight")


def test_a_long_list_of_columns_is_cut():
    X = pl.DataFrame({f"c{d}": [1.0] for d in range(50)})
    with pytest.raises(ValueError, match=r"'c8', 'c9', \.\.\. \(50 in all\)"):
        column(X, "y", argument="y")


# Sparse matrices

FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
DENSE = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])


@pytest.mark.parametrize("container", [sp.coo_matrix, sp.coo_array])
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_sparse_format(container, fmt):
    matrix = read_features(container(DENSE).asformat(fmt)).matrix
    assert isinstance(matrix, sp.csr_array)
    np.testing.assert_array_equal(matrix.toarray(), DENSE)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", ["?", "i4", "f4", "f8"])
def test_compressed_rows_share_their_memory(container, index, dtype):
    X = container(DENSE.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    matrix = read_features(X).matrix
    assert matrix.dtype == X.dtype
    assert np.shares_memory(matrix.data, X.data)
    assert np.shares_memory(matrix.indices, X.indices)
    assert matrix.indices.dtype == index


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
def test_duplicates_and_disorder_are_mended_on_a_copy(container):
    data, indices, indptr = np.array([3.0, 1.0, 2.0]), np.array([2, 0, 2]), np.array([0, 3])
    X = container((data, indices, indptr), shape=(1, 3))
    matrix = read_features(X).matrix
    np.testing.assert_array_equal(matrix.toarray(), [[1, 0, 5]])
    assert matrix.indices.tolist() == [0, 2]
    assert (X.data.tolist(), X.indices.tolist()) == ([3, 1, 2], [2, 0, 2])


@pytest.mark.parametrize("dtype", ["g", "O"])
def test_sparse_numbers_of_other_dtypes_become_float64(dtype):
    X = sp.csr_array(DENSE)
    X.data = X.data.astype(dtype)
    matrix = read_features(X).matrix
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix.toarray(), DENSE)


@pytest.mark.parametrize(("shape", "kind"), [((4,), "1D"), ((2, 2, 2), "3D")])
def test_sparse_arrays_of_other_dimensions(shape, kind):
    with pytest.raises(ValueError, match=f"Expected 2D array, got {kind} array instead"):
        read_features(sp.coo_array(np.ones(shape)))


# Values that are not finite


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, np.float32, sp.csr_array])
def test_the_first_value_that_is_not_finite(make, value, word):
    X = np.zeros((5, 3))
    X[0, 1] = 1
    X[2, 2], X[3, 0] = value, np.nan
    with pytest.raises(ValueError, match=rf"X contains {word}, first in column 'c', row 2 \(counted from 0\)"):
        raise_if_not_finite(make(X), ["a", "b", "c"])
    with pytest.raises(ValueError, match=rf"Z contains {word}, first in column 2, row 2"):
        raise_if_not_finite(make(X), None, argument="Z")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_finite_values_pass(make):
    for dtype in "?", "i8", "f4", "f8":
        raise_if_not_finite(make(np.eye(3, dtype=dtype)), None)


def test_rows_far_down_are_found():
    X = np.zeros((200_000, 1), dtype=np.float32)
    X[150_000] = np.nan
    with pytest.raises(ValueError, match="column 0, row 150000 "):
        raise_if_not_finite(X, None)


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_the_first_is_found_wherever_it_is(N, D, data):
    n, d = data.draw(st.integers(0, N - 1)), data.draw(st.integers(0, D - 1))
    X = np.zeros((N, D))
    X[n, d] = np.nan
    for matrix in X, np.asfortranarray(X), sp.csr_array(X):
        with pytest.raises(ValueError, match=f"column {d}, row {n} "):
            raise_if_not_finite(matrix, None)


def test_arrays_need_no_library_for_tables(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert read_features(VALUES).matrix is VALUES
    np.testing.assert_array_equal(read_features(VALUES.tolist()).matrix, VALUES)
    np.testing.assert_array_equal(read_features(sp.csc_array(VALUES)).matrix.toarray(), VALUES)


@pytest.mark.parametrize("table", [pl.DataFrame, pa.table])
def test_other_tables_do_not_need_pandas(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    np.testing.assert_array_equal(read_features(table(COLUMNS)).matrix, VALUES)
