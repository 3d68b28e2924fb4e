"""Targets: labels, soft labels and counts of any container, declared classes, and weights that multiply."""

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.exceptions import DataConversionWarning

from posteriori.rows.target import class_set, read_target


def read(y, **options):
    return read_target(y, n_rows=options.pop("n_rows", 3), **options)


# Labels


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "b"],
        ("b", "a", "b"),
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        np.array(["b", "a", "b"], dtype=np.dtypes.StringDType()),
        pd.Series(["b", "a", "b"]),
        pd.Series(["b", "a", "b"], dtype=object, index=[7, 8, 9]),
        pd.Series(["b", "a", "b"], dtype="string"),
        pd.Series(["b", "a", "b"], dtype="string[pyarrow]"),
        pd.Series(["b", "a", "b"], dtype="category"),
        pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"]),
        pd.Index(["b", "a", "b"]),
        pl.Series(["b", "a", "b"]),
        pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a"])),
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.chunked_array([["b"], ["a", "b"]]).dictionary_encode(),
    ],
    ids=lambda y: f"{type(y).__module__}.{type(y).__name__}",
)
def test_strings_of_any_container(y):
    target = read(y)
    assert target.classes.tolist() == ["a", "b"]
    assert target.codes.tolist() == [1, 0, 1]
    assert target.codes.dtype == np.intp
    assert target.probs is None
    assert target.weights is None


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8"])
def test_numbers_keep_their_dtype(dtype):
    target = read(np.array([7, 3, 7], dtype=dtype))
    assert target.classes.dtype == np.dtype(dtype)
    assert target.classes.tolist() == [3, 7]
    assert target.codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "y",
    [
        [7, 3, 7],
        np.array([7, 3, 7], dtype=object),
        pd.Series([7, 3, 7], dtype="Int64"),
        pd.Series([7, 3, 7], dtype="category"),
        pl.Series([7, 3, 7]),
        pa.array([7, 3, 7]),
        pa.chunked_array([[7, 3], [7]]),
    ],
    ids=lambda y: f"{type(y).__module__}.{type(y).__name__}",
)
def test_integers_of_any_container(y):
    target = read(y)
    assert target.classes.dtype == np.int64
    assert target.classes.tolist() == [3, 7]
    assert target.codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize("y", [[True, False, True], pl.Series([True, False, True]), pa.array([True, False, True])])
def test_booleans(y):
    target = read(y)
    assert target.classes.dtype == bool
    assert target.classes.tolist() == [False, True]
    assert target.codes.tolist() == [1, 0, 1]


def test_bytes_dates_and_other_objects():
    assert read([b"b", b"a", b"b"]).codes.tolist() == [1, 0, 1]
    assert read(np.array(["2021", "2020", "2021"], dtype="M8[Y]")).codes.tolist() == [1, 0, 1]
    day = datetime.date
    target = read(np.array([day(2021, 1, 1), day(2020, 1, 1), day(2021, 1, 1)], dtype=object))
    assert target.classes.tolist() == [day(2020, 1, 1), day(2021, 1, 1)]
    target = read(np.array([10**30, 5, 10**30], dtype=object))
    assert target.classes.tolist() == [5, 10**30]


@given(
    hnp.arrays(
        st.sampled_from(["?", "i1", "u1", "i2", "i8", "u8"]),
        st.integers(2, 40),
        elements=None,
    )
    | hnp.arrays("i8", st.integers(2, 40), elements=st.integers(-5, 5))
)
def test_codes_agree_with_numpy(y):
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) == 1:
        return
    target = read(y, n_rows=len(y))
    np.testing.assert_array_equal(target.classes, classes)
    assert target.classes.dtype == y.dtype
    np.testing.assert_array_equal(target.codes, codes)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3), min_size=2))
@settings(max_examples=8, deadline=None)
def test_strings_agree_with_numpy(y):
    classes, codes = np.unique(np.array(y), return_inverse=True)
    if len(classes) == 1:
        return
    for labels in y, np.array(y), np.array(y, dtype=object):
        target = read(labels, n_rows=len(y))
        assert target.classes.tolist() == classes.tolist()
        np.testing.assert_array_equal(target.codes, codes)


@pytest.mark.parametrize(
    "y",
    [
        np.array([["b"], ["a"], ["b"]]),
        [["b"], ["a"], ["b"]],
        pd.DataFrame({"species": ["b", "a", "b"]}),
        pl.DataFrame({"species": ["b", "a", "b"]}),
        pa.table({"species": pa.array(["b", "a", "b"]).dictionary_encode()}),
        pa.RecordBatch.from_pydict({"species": ["b", "a", "b"]}),
    ],
)
def test_a_column_vector_is_labels_with_a_warning(y):
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed when a 1d array was expected"):
        target = read(y)
    assert target.classes.tolist() == ["a", "b"]
    assert target.codes.tolist() == [1, 0, 1]


def test_a_vector_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read([0, 1, 0], sample_weight=2, class_weight="balanced")
        read(np.eye(3))


# Labels that are refused


def test_no_target():
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        read(None)


@pytest.mark.parametrize(
    ("y", "count", "row"),
    [
        ([0, 1, np.nan, np.nan], "2 missing labels", 2),
        (["a", None, "b", "a"], "1 missing label,", 1),
        (["a", np.nan, "b", "a"], "1 missing label,", 1),
        (("a", "b", "a", float("nan")), "1 missing label,", 3),
        (np.array(["a", None, "b", np.nan], dtype=object), "2 missing labels", 1),
        (np.array(["2020", "NaT", "2020", "2021"], dtype="M8[Y]"), "1 missing label,", 1),
        (np.array([pd.NaT, 1, 2, 2], dtype=object), "1 missing label,", 0),
        (pd.Series(["a", None, "b", "a"]), "1 missing label,", 1),
        (pd.Series(["a", pd.NA, "b", pd.NA], dtype="string"), "2 missing labels", 1),
        (pd.Series([1, None, 2, 2], dtype="Int64"), "1 missing label,", 1),
        (pd.Series([True, None, False, True], dtype="boolean"), "1 missing label,", 1),
        (pd.Series(["a", None, "b", "a"], dtype="category"), "1 missing label,", 1),
        (pl.Series(["a", None, "b", "a"]), "1 missing label,", 1),
        (pl.Series([1, None, 2, 2]), "1 missing label,", 1),
        (pa.array(["a", None, "b", "a"]), "1 missing label,", 1),
        (pa.array(["a", None, "b", "a"]).dictionary_encode(), "1 missing label,", 1),
        (pa.chunked_array([["a", None], ["b", "a"]]).dictionary_encode(), "1 missing label,", 1),
    ],
)
def test_missing_labels_are_counted(y, count, row):
    with pytest.raises(ValueError, match=rf"y has {count}.* first in row {row} \(counted from 0\)"):
        read(y, n_rows=4)


@pytest.mark.parametrize("dtype", ["f4", "f8", "O"])
def test_continuous_labels(dtype):
    with pytest.raises(ValueError, match=r"Unknown label type: continuous\. y holds 0\.5 in row 1"):
        read(np.array([1.0, 0.5, 2.0], dtype=dtype))


def test_infinite_labels():
    with pytest.raises(ValueError, match=r"Unknown label type: infinity\. y holds inf in row 2"):
        read([0.0, 1.0, np.inf])


@pytest.mark.parametrize("y", [[1, "a", 2], ["a", True, "b"], np.array([1, "a", 2], dtype=object)])
def test_mixed_labels(y):
    with pytest.raises(ValueError, match=r"Unknown label type: y holds labels of type (int|bool), str"):
        read(y)


def test_labels_that_cannot_be_hashed():
    with pytest.raises(ValueError, match="Unknown label type: y holds labels of type dict"):
        read(np.array([{}, {}, {}], dtype=object))


def test_structured_labels():
    with pytest.raises(ValueError, match="Unknown label type: y has dtype"):
        read(np.zeros(3, dtype=[("a", "f8")]))


@pytest.mark.parametrize("y", [np.array([1j, 2, 3]), np.ones((3, 2)) * 1j])
def test_complex_labels(y):
    with pytest.raises(ValueError, match="Complex data not supported"):
        read(y)


@pytest.mark.parametrize("y", [[0, 1], np.eye(2)])
def test_another_number_of_rows(y):
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: X has 3 rows, y has 2"):
        read(y)


@pytest.mark.parametrize("y", ["species", 3, np.ones((3, 2, 2)), np.empty((3, 0)), {1, 2}, []])
def test_other_shapes(y):
    with pytest.raises(ValueError, match="y should be a 1d array"):
        read(y)


def test_rows_of_unequal_length():
    with pytest.raises(ValueError, match="y must be labels, or rows of equal length"):
        read([[0, 1], [1], [0, 1]])


@pytest.mark.parametrize("y", [["a", "a", "a"], np.array(["a"] * 3, dtype=object)])
def test_one_class(y):
    with pytest.raises(ValueError, match=r"y holds one class only \('a'\): a classifier needs at least two; declare"):
        read(y)


def test_one_row_is_one_class():
    with pytest.raises(ValueError, match="one class"):
        read([1.0], n_rows=1)


def test_one_declared_class():
    with pytest.raises(ValueError, match=r"classes declares one class only \('a'\)"):
        read(["a", "a", "a"], classes=["a"])


# Declared classes


def test_a_declared_class_without_rows_keeps_its_place():
    target = read(["c", "a", "c"], classes=["c", "b", "a"])
    assert target.classes.tolist() == ["a", "b", "c"]
    assert target.codes.tolist() == [2, 0, 2]


def test_one_class_with_rows_among_declared_classes():
    assert read([1, 1, 1], classes=[0, 1]).codes.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([0.0, 1.0, 0.0]), [0, 1]),
        (np.array([False, True, False]), [0, 1]),
        (np.array([0, 1, 0], dtype="i1"), np.array([0, 1], dtype="u8")),
    ],
)
def test_equal_labels_of_different_dtypes(y, classes):
    target = read(y, classes=classes)
    assert target.classes.dtype == np.asarray(classes).dtype
    assert target.codes.tolist() == [0, 1, 0]


def test_labels_that_are_not_declared():
    with pytest.raises(ValueError, match=r"y holds 'd', 'e', not among the declared classes 'a', 'b'"):
        read(["d", "a", "e"], classes=["a", "b"])
    with pytest.raises(ValueError, match=r"y holds 0, 1, 2, 3, 4, \.\.\. \(8 in all\), not among"):
        read(np.arange(9), n_rows=9, classes=[8, 9])
    with pytest.raises(ValueError, match=r"y holds 0, 1, not among the declared classes '0', '1'"):
        read([0, 1, 0], classes=["0", "1"])


@given(st.permutations(["a", "b", "c", "d"]), st.lists(st.sampled_from("abd"), min_size=1))
def test_the_order_of_declared_classes_does_not_matter_for_labels(classes, y):
    target = read(y, n_rows=len(y), classes=classes)
    assert target.classes.tolist() == ["a", "b", "c", "d"]
    assert target.classes[target.codes].tolist() == y


def test_class_set():
    assert class_set([3, 1, 2]).tolist() == [1, 2, 3]
    assert class_set(range(3)).tolist() == [0, 1, 2]
    assert class_set(("b", "a")).tolist() == ["a", "b"]
    assert class_set(pd.Index(["b", "a"])).tolist() == ["a", "b"]
    assert class_set(np.array([True, False])).tolist() == [False, True]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b", "a"], r"classes declares 'a' more than once: declare each class once"),
        ([1, 1.0, 2], r"classes declares 1\.0 more than once"),
        ([], r"classes must be a list of labels.* got \[\]"),
        ([["a", "b"]], r"classes must be a list of labels.* got \[\['a', 'b'\]\]"),
        ("ab", r"classes must be a list of labels.* got 'ab'"),
        ({"a"}, r"classes must be a list of labels.* got {'a'}"),
        (["a", 1], r"Unknown label type: classes holds labels of type int, str"),
        (["a", None], r"classes has 1 missing label"),
        ([0.5, 1.5], r"Unknown label type: continuous\. classes holds 0\.5"),
    ],
)
def test_declared_classes_that_are_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        class_set(classes)
    with pytest.raises(ValueError, match=message):
        read(["a", "b", "a"], classes=classes)


# Soft labels and counts

SOFT = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.125, 0.125, 0.75]])


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist, np.asfortranarray, sp.csr_array, sp.coo_matrix])
def test_soft_labels_are_numbered(make):
    target = read(make(SOFT))
    assert target.classes.tolist() == [0, 1, 2]
    assert target.codes is None
    assert target.weights is None
    assert target.probs.dtype == np.float64
    np.testing.assert_array_equal(target.probs, SOFT)


def test_soft_labels_are_not_modified():
    Y = np.array([[2.0, 2.0], [0.0, 0.0], [1.0, 3.0]])
    c = np.array([1.0, 2.0, 3.0])
    read(Y, sample_weight=c, class_weight={0: 5})
    assert Y.tolist() == [[2, 2], [0, 0], [1, 3]]
    assert c.tolist() == [1, 2, 3]


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table, pa.RecordBatch.from_pydict])
def test_columns_of_a_table_name_the_classes(table):
    target = read(table({"b": SOFT[:, 0], "c": SOFT[:, 1], "a": SOFT[:, 2]}))
    assert target.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(target.probs, SOFT[:, [2, 0, 1]])


def test_columns_of_a_table_may_be_numbers():
    target = read(pd.DataFrame(SOFT, columns=[30, 10, 20]))
    assert target.classes.tolist() == [10, 20, 30]
    np.testing.assert_array_equal(target.probs, SOFT[:, [1, 2, 0]])


def test_dummies_are_soft_labels():
    target = read(pd.get_dummies(pd.Series(["b", "a", "b"])))
    assert target.classes.tolist() == ["a", "b"]
    np.testing.assert_array_equal(target.probs, [[0, 1], [1, 0], [0, 1]])


@given(st.permutations(["a", "b", "c"]))
def test_declared_classes_name_the_columns(classes):
    columns = {"a": SOFT[:, 0], "b": SOFT[:, 1], "c": SOFT[:, 2]}
    target = read(np.stack([columns[name] for name in classes], axis=1), classes=classes)
    assert target.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(target.probs, SOFT)


def test_declared_classes_rename_the_columns_of_a_table():
    Y = pd.DataFrame(SOFT, columns=["p1", "p2", "p3"])
    np.testing.assert_array_equal(read(Y, classes=["c", "b", "a"]).probs, SOFT[:, ::-1])


def test_declared_classes_against_the_names_of_a_table():
    Y = pd.DataFrame(SOFT, columns=["a", "b", "c"])
    np.testing.assert_array_equal(read(Y, classes=["a", "b", "c"]).probs, SOFT)
    with pytest.raises(ValueError, match=r"columns of y are named 'a', 'b', 'c', but classes .* order 'c', 'b', 'a'"):
        read(Y, classes=["c", "b", "a"])


def test_another_number_of_declared_classes():
    with pytest.raises(ValueError, match=r"y has 3 columns, but classes declares 2: 'a', 'b'"):
        read(SOFT, classes=["a", "b"])


def test_duplicate_names_of_columns():
    with pytest.raises(ValueError, match="y has two columns of one name"):
        read(pd.DataFrame(SOFT, columns=["a", "b", "a"]))


def test_mixed_names_of_columns():
    with pytest.raises(ValueError, match="classes holds labels of type int, str"):
        read(pd.DataFrame(SOFT, columns=["a", "b", 1]))


@pytest.mark.parametrize("y", [np.array([["1", "2"]] * 3), np.array([["a", 2]] * 3, dtype=object)])
def test_columns_that_hold_no_numbers(y):
    with pytest.raises(ValueError, match=r"y has 2 columns of dtype .* must be the probabilities or counts"):
        read(y)


def test_a_column_of_a_table_that_holds_no_numbers():
    with pytest.raises(ValueError, match="Column 'b' of y has dtype"):
        read(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]}))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_soft_labels_that_are_negative_or_not_finite(value):
    Y = SOFT.copy()
    Y[1, 2] = value
    with pytest.raises(ValueError, match=rf"y holds {value} in row 1, column 2 .* finite and not negative"):
        read(Y)


def test_counts_become_weighted_soft_labels():
    target = read([[3, 1], [0, 2], [1, 0]])
    np.testing.assert_array_equal(target.probs, [[0.75, 0.25], [0, 1], [1, 0]])
    np.testing.assert_array_equal(target.weights, [4, 2, 1])


def test_an_empty_row_has_weight_zero_and_is_uniform():
    target = read([[0, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(target.probs, [[0.5, 0.5], [1, 0], [0, 1]])
    np.testing.assert_array_equal(target.weights, [0, 1, 1])


def test_rounding_makes_no_weights():
    Y = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.7, 0.2, 0.1]])
    assert (Y.sum(axis=1) != 1).any()
    assert read(Y).weights is None


counts = hnp.arrays(
    "f8", st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.just(0.0) | st.floats(1e-3, 1e3)
).filter(np.any)


@given(counts, st.booleans())
def test_normalisation_keeps_the_weighted_counts(Y, weighted):
    N = len(Y)
    c = np.linspace(0.5, 2.0, N) if weighted else None
    target = read(Y, n_rows=N, sample_weight=c)
    weights = np.ones(N) if target.weights is None else target.weights
    np.testing.assert_allclose(target.probs.sum(axis=1), 1, rtol=1e-14)
    expected = Y if c is None else c[:, None] * Y
    np.testing.assert_allclose(weights[:, None] * target.probs, expected, rtol=1e-14)


# Weights


@pytest.mark.parametrize("c", [None, 1, 1.0, np.ones(3), [1, 1, 1], np.array(1.0)])
def test_weights_of_one_are_none(c):
    assert read([0, 1, 0], sample_weight=c).weights is None


@pytest.mark.parametrize(
    "c",
    [
        [1, 0, 2.5],
        np.array([1, 0, 2.5], dtype="f4"),
        pd.Series([1, 0, 2.5], index=[4, 5, 6]),
        pd.Series([1, 0, 2.5], dtype="Float64"),
        pl.Series([1.0, 0.0, 2.5]),
        pa.array([1.0, 0.0, 2.5]),
        pa.chunked_array([[1.0, 0.0], [2.5]]),
    ],
)
def test_sample_weights_of_any_container(c):
    weights = read([0, 1, 0], sample_weight=c).weights
    assert weights.dtype == np.float64
    np.testing.assert_array_equal(weights, [1, 0, 2.5])


def test_a_number_weighs_every_row():
    np.testing.assert_array_equal(read([0, 1, 0], sample_weight=2).weights, [2, 2, 2])


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_sample_weights_that_are_negative_or_not_finite(value):
    with pytest.raises(ValueError, match=rf"sample_weight is {value} in row 1 .* finite and not negative"):
        read([0, 1, 0], sample_weight=[1, value, 1])


def test_sample_weights_of_two_dimensions():
    with pytest.raises(ValueError, match="Sample weights must be 1D array or scalar, got 2D array"):
        read([0, 1, 0], sample_weight=np.ones((3, 2)))


def test_sample_weights_of_another_length():
    with pytest.raises(ValueError, match=r"sample_weight\.shape == \(6,\), expected \(3,\)!"):
        read([0, 1, 0], sample_weight=np.ones(6))


@pytest.mark.parametrize("c", ["w", ["a", "b", "c"], [None, {}, 1]])
def test_sample_weights_that_are_no_numbers(c):
    with pytest.raises(ValueError, match="sample_weight must be a number, or a number for every row"):
        read([0, 1, 0], sample_weight=c)


@pytest.mark.parametrize(
    "options",
    [{"sample_weight": np.zeros(3)}, {"sample_weight": 0}, {"class_weight": {0: 0, 1: 0}}],
)
@pytest.mark.parametrize("y", [[0, 1, 0], np.eye(2)[[0, 1, 0]]])
def test_weights_that_are_all_zero(y, options):
    with pytest.raises(ValueError, match=r"(.*weight.*zero.*)|(.*zero.*weight.*)"):
        read(y, **options)


def test_counts_that_are_all_zero():
    with pytest.raises(ValueError, match="Every row has weight zero"):
        read(np.zeros((3, 2)))


def test_class_weights_multiply_sample_weights():
    target = read(["b", "a", "b"], sample_weight=[1, 2, 3], class_weight={"b": 10})
    np.testing.assert_array_equal(target.weights, [10, 2, 30])


def test_class_weights_of_one_are_none():
    assert read(["b", "a", "b"], class_weight={"a": 1, "b": 1.0}).weights is None
    assert read(["b", "a", "b"], class_weight={}).weights is None


def test_class_weights_of_soft_labels():
    target = read([[0.5, 0.5], [1, 0], [0, 4]], class_weight={1: 3}, sample_weight=[1, 2, 1])
    np.testing.assert_array_equal(target.probs, [[0.25, 0.75], [1, 0], [0, 1]])
    np.testing.assert_array_equal(target.weights, [2, 2, 12])


def test_a_class_weight_of_zero_takes_soft_labels_out():
    target = read([[0.5, 0.5], [1, 0], [0, 4]], class_weight={1: 0})
    np.testing.assert_array_equal(target.probs, [[1, 0], [1, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(target.weights, [0.5, 1, 0])


def test_balanced_as_written():
    target = read([0, 0, 0, 1], n_rows=4, class_weight="balanced")
    np.testing.assert_allclose(target.weights, [4 / 6, 4 / 6, 4 / 6, 2])


@pytest.mark.parametrize("weighted", [False, True])
def test_balanced_as_scikit_learn(weighted):
    utilities = pytest.importorskip("sklearn.utils.class_weight")
    y = np.repeat([0, 1, 2], [5, 3, 2])
    c = np.linspace(0.5, 2, 10) if weighted else None
    options = {"sample_weight": c} if weighted else {}
    try:
        factors = utilities.compute_class_weight("balanced", classes=np.arange(3), y=y, **options)
    except TypeError:
        pytest.skip("this scikit-learn balances without sample weights")
    expected = factors[y] if c is None else factors[y] * c
    np.testing.assert_allclose(read(y, n_rows=10, sample_weight=c, class_weight="balanced").weights, expected)


def test_balanced_classes_weigh_the_same():
    y, c = np.repeat([0, 1, 2], [5, 3, 2]), np.linspace(0.5, 2, 10)
    weights = read(y, n_rows=10, sample_weight=c, class_weight="balanced").weights
    np.testing.assert_allclose(np.bincount(y, weights), c.sum() / 3)


def test_balanced_hard_and_one_hot_labels_agree():
    y, c = np.repeat([0, 1, 2], [5, 3, 2]), np.linspace(0.5, 2, 10)
    hard = read(y, n_rows=10, sample_weight=c, class_weight="balanced")
    soft = read(np.eye(3)[y], n_rows=10, sample_weight=c, class_weight="balanced")
    np.testing.assert_allclose(soft.weights, hard.weights, rtol=1e-14)
    np.testing.assert_array_equal(soft.probs, np.eye(3)[y])


def test_balanced_ignores_classes_without_weight():
    y = [0, 0, 0, 1, 2]
    absent = read(y[:4], n_rows=4, classes=[0, 1, 2], class_weight="balanced")
    without = read(y, n_rows=5, sample_weight=[1, 1, 1, 1, 0], class_weight="balanced")
    np.testing.assert_allclose(absent.weights, [4 / 6, 4 / 6, 4 / 6, 2])
    np.testing.assert_allclose(without.weights, [4 / 6, 4 / 6, 4 / 6, 2, 0])


def test_a_class_weight_for_no_class():
    with pytest.raises(ValueError, match=r"class_weight names 'c', not among the classes 'a', 'b'"):
        read(["a", "b", "a"], class_weight={"a": 1, "c": 2})


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, "2", None])
def test_class_weights_that_are_negative_or_not_finite(value):
    with pytest.raises(ValueError, match=r"class_weight is .* for class 'a': weights must be finite and not negative"):
        read(["a", "b", "a"], class_weight={"a": value})


@pytest.mark.parametrize("value", ["uneven", 3, [1, 2]])
def test_class_weights_of_another_kind(value):
    with pytest.raises(ValueError, match="class_weight must be 'balanced', None or a dict"):
        read(["a", "b", "a"], class_weight=value)
