"""Encode -> JSON text -> decode is the identity, types and bits included; what cannot be stored is named."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import posteriori as po
from posteriori import kernels
from posteriori.exceptions import StorageError
from posteriori.solvers.solution import Status, TraceEntry
from posteriori.storage.tree import decode, encode


def round_trip(value: Any) -> Any:
    node, tensors = encode(value)
    return decode(json.loads(json.dumps(node, allow_nan=False)), tensors, defer=False)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, NaN equal to NaN and 0 not to -0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.kind in "OT":
            return all(same(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
        return a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return same(sorted(a, key=repr), sorted(b, key=repr))
    return bool(a == b)


texts = st.text(st.characters(), max_size=8)
labels = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts, st.binary(max_size=5))
plain = st.one_of(labels, st.floats(), st.complex_numbers(), st.just("$"))
dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.unicode_string_dtypes(max_len=5),
    hnp.byte_string_dtypes(max_len=5),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
scalars = hnp.arrays(
    st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.floating_dtypes(), hnp.datetime64_dtypes()), ()
).map(lambda array: array[()])
values = st.recursive(
    st.one_of(plain, arrays, scalars, st.frozensets(labels, max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(st.one_of(labels, st.tuples(labels, labels)), inner, max_size=4),
    ),
    max_leaves=8,
)


@given(values)
def test_round_trip_is_the_identity(value: Any) -> None:
    assert same(round_trip(value), value)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        -math.inf,
        -0.0,
        5e-324,
        1e308,
        0.1,
        {"$": "object", "class": "Newton"},
        {1: "a", "1": "b", None: "c", (1, 2): "d", 2.5: "e"},
        {3, "x", None},
        frozenset({(1, 2)}),
        np.array([], dtype=np.float32),
        np.array(3.0),
        np.zeros((2, 0, 3), dtype=np.int16),
        np.array(["b", "a"]),
        np.array(["a", 1, None, 2.5, ("x", 1)], dtype=object)[:4],
        np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
        np.array(["x", "yz"], dtype=np.dtypes.StringDType()),
        np.array([b"x", b"yz"]),
        np.float32(0.1),
        np.str_("x"),
        np.datetime64("2024-01-01T00:00", "ns"),
        np.longdouble(1) / 3,
        np.arange(3, dtype=">i4"),
        np.dtype("float32"),
        np.dtype(object),
        Path("a/b"),
        "\ud800 alone",
        2**200,
    ],
    ids=lambda value: "a set" if isinstance(value, set) else repr(value),  # its order is another in each process
)
def test_odd_values(value: Any) -> None:
    assert same(round_trip(value), value)


def test_memory_order_is_kept_and_views_become_what_they_show() -> None:
    A = np.arange(24.0).reshape(2, 3, 4)
    for array in (A, np.asfortranarray(A), A.transpose(1, 0, 2), A.transpose(2, 0, 1)):
        back = round_trip(array)
        assert back.strides == array.strides
        np.testing.assert_array_equal(back, array)
    for view in (A[:, ::2], A[::-1], np.broadcast_to(A[0, 0], (5, 4))):
        back = round_trip(view)
        np.testing.assert_array_equal(back, view)
        assert back.flags.writeable
    node, tensors = encode(A[0, 0, :2])
    assert tensors[node["tensor"]].nbytes == 16


def test_no_nan_token_is_ever_written() -> None:
    node, _ = encode({"a": [math.nan, math.inf], "b": np.float64("nan"), "c": np.array([math.nan], dtype=object)})
    assert "NaN" not in json.dumps(node).replace('"nan"', "")


def test_objects_of_the_registry() -> None:
    kernel = 0.5 * kernels.RBF([1.0, 2.0]) + kernels.Matern(order=1.5) * kernels.Linear(reach=3.0)
    assert round_trip(kernel) == kernel
    for value in (Status.SEPARATED, TraceEntry(1.0, 2.0, None), po.Newton(exact=True), po.RidgePrior(2.0)):
        back = round_trip(value)
        assert type(back) is type(value)
        assert repr(back) == repr(value)
    utility = po.Utility([[0, -1], [-5, 0]], ["good", "bad"]).with_reject(-0.5)
    assert repr(round_trip(utility)) == repr(utility)


class Derived(po.SoftmaxRegression):
    pass


@pytest.mark.parametrize(
    ("model", "where", "what"),
    [
        (po.UtilityClassifier(po.SoftmaxRegression(), po.Utility(lambda x: x, ["a", "b"])), "utility.function", "func"),
        (po.SoftmaxRegression(random_state=np.random.RandomState(0)), "random_state", "whole number"),
        (po.SoftmaxRegression(classes={"a": [1, object()]}), "classes['a'][1]", "not among the classes"),
        (po.UtilityClassifier(Derived()), "estimator", "Derived, which is not among the classes"),
        (po.SoftmaxRegression(alpha=np.zeros(2, dtype=[("a", float)])), "alpha", "dtype"),
        (po.SoftmaxRegression(max_iter=10**5000), "max_iter", "too many digits"),
    ],
)
def test_what_cannot_be_stored_is_named(model: Any, where: str, what: str) -> None:
    with pytest.raises(TypeError) as caught:
        encode(model)
    assert f"The value at {where} is" in str(caught.value)
    assert what in str(caught.value)


def test_endless_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="nested deeper than 64 levels"):
        encode(endless)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}, lambda v: po.Newton(exact=v)])
def test_what_can_be_written_can_be_read(wrap: Any) -> None:
    value: Any = None
    for _ in range(64):
        value = wrap(value)
    assert repr(round_trip(value)) == repr(value)
    with pytest.raises(TypeError, match="nested deeper"):
        encode(wrap(value))


def test_two_keys_that_read_alike_have_tensors_of_their_own() -> None:
    value = {"a": {"b": np.zeros(1)}, "a['b']": np.ones(1), 1: np.full(1, 2.0), "1": np.full(1, 3.0)}
    assert same(round_trip(value), value)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"$": "object", "class": "os.system", "params": {}, "state": {}}, "class 'os.system' is unknown"),
        ({"$": "object", "class": ["x"]}, "is unknown"),
        ({"$": "call", "items": []}, "unknown kind 'call'"),
        ({"$": "_items", "items": []}, "unknown kind"),
        ({"$": "array", "tensor": "a", "dtype": "<f8", "shape": [1]}, "tensor 'a' is missing"),
        ({"$": "array", "tensor": "t", "dtype": "<f8", "shape": [3]}, "float64 of shape \\(3,\\) is needed"),
        ({"$": "array", "tensor": "t", "dtype": "<f4", "shape": [2]}, "float32 of shape \\(2,\\) is needed"),
        ({"$": "array", "tensor": "t", "dtype": "O", "shape": [2]}, "dtype 'O' is unknown"),
        ({"$": "array", "tensor": "t", "dtype": "<f8", "shape": [-2]}, "malformed"),
        ({"$": "array", "tensor": "t", "dtype": "<f8", "shape": [2], "axes": [1]}, "malformed"),
        ({"$": "labels", "dtype": "<U99999999", "shape": [1], "items": ["a"]}, "dtype <U99999999"),
        ({"$": "labels", "dtype": "object", "shape": [10**12], "items": []}, "shape"),
        ({"$": "labels", "dtype": "<U3", "shape": [1], "items": [1]}, "something else"),
        ({"$": "labels", "dtype": "f8,f8", "shape": [0], "items": []}, "is unknown"),
        ({"$": "scalar", "dtype": "<f8", "hex": "00"}, "1 bytes"),
        ({"$": "float", "value": "1"}, "not nan, inf or -inf"),
        ({"$": "enum", "class": "Status", "name": "__init__"}, "no member"),
        ({"$": "enum", "class": "Newton", "name": "x"}, "no member"),
        ({"$": "object", "class": "Newton", "fields": {"steps": 1}}, "no field 'steps'"),
        ({"$": "object", "class": "Newton"}, "no fields"),
        ({"$": "object", "class": "SoftmaxRegression", "params": {}, "state": {"__class__": 1}}, "two underscores"),
        ({"$": "object", "class": "FullPosterior", "fields": {"mean": 1}}, "needs"),
    ],
)
def test_malformed_trees(node: Any, says: str) -> None:
    with pytest.raises(StorageError, match=says):
        decode(node, {"t": np.zeros(2)})
