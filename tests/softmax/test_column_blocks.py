"""Blocks of columns as a user names them."""

import numpy as np
import pytest

from posteriori.softmax.column_blocks import ColumnBlocks, column_blocks

NAMES = ["length", "depth", "island=Biscoe", "island=Dream"]


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (["size", "size", "place", "place"], ("size", "place")),
        (("place", "place", 7, 7), ("place", 7)),
        (np.array([3, 3, 1, 1]), (3, 1)),
        ({"place": ["island=Biscoe", "island=Dream"], "size": ["length", "depth"]}, ("size", "place")),
        ({"place": [2, "island=Dream"], "size": np.array([0, 1])}, ("size", "place")),
        (None, ("(numbers)", "island")),
        (ColumnBlocks.of("aabb"), ("a", "b")),
    ],
)
def test_forms(given, labels):
    found = column_blocks(given, NAMES, 4)
    assert found.labels == labels
    np.testing.assert_array_equal(found.groups, [0, 0, 1, 1])


def test_a_block_may_be_one_column_and_lie_apart():
    found = column_blocks({"a": ["depth"], "b": "island=Dream", "rest": [0, 2]}, NAMES, 4)
    assert found.labels == ("rest", "a", "b")
    np.testing.assert_array_equal(found.groups, [0, 1, 0, 2])


def test_a_precision_for_each_column():
    blocks = ColumnBlocks.of(["a", "b", "a"])
    np.testing.assert_array_equal(blocks.per_column({"b": 5, "a": 0.25}), [0.25, 5.0, 0.25])


@pytest.mark.parametrize(
    ("given", "names", "words"),
    [
        (["a", "b"], NAMES, ["2 labels", "4 columns", "one label for each column"]),
        (np.zeros((4, 1)), NAMES, [r"label \[0.0\]", "text or numbers"]),
        ("abcd", NAMES, ["'abcd'", "a label for each column"]),
        (3, NAMES, ["blocks are 3", "a label for each column"]),
        ([1.0, float("nan"), 2.0, 2.0], NAMES, ["label nan"]),
        (["a", None, "a", "a"], NAMES, ["label None"]),
        ({"a": ["length", "width"]}, NAMES, ["'width'", "'length', 'depth'", "counted from 0"]),
        ({"a": [0, 4]}, None, ["column 4", "0, 1, 2, 3"]),
        ({"a": ["length"]}, None, ["'length'", "0, 1, 2, 3"]),
        ({"a": [[0, 1]]}, None, [r"column \[0, 1\]"]),
        ({"a": [0, 1], "b": ["depth", 2, 3]}, NAMES, ["'depth' twice", "in 'a' and in 'b'"]),
        ({"a": [0]}, NAMES, ["leave out 3 of 4", "'depth', 'island=Biscoe'"]),
        (None, None, ["X has no names", "TableEncoder", r"GaussianPrior\(blocks="]),
    ],
)
def test_errors_say_what_was_given_and_what_is_needed(given, names, words):
    for word in words:
        with pytest.raises(ValueError, match=word):
            column_blocks(given, names, 4)


@pytest.mark.parametrize(
    ("precision", "words"),
    [
        (2.0, ["precision is 2.0", "dict", "None"]),
        ({"a": 1.0}, ["none are not blocks", "'b' are missing"]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, ["'c' are not blocks", "none are missing"]),
        ({"a": 1.0, "b": 0.0}, ["block 'b' is 0.0", "positive"]),
        ({"a": 1.0, "b": np.inf}, ["block 'b' is inf", "positive"]),
        ({"a": 1.0, "b": "weak"}, ["block 'b' is 'weak'", "positive"]),
    ],
)
def test_errors_of_precisions(precision, words):
    for word in words:
        with pytest.raises(ValueError, match=word):
            ColumnBlocks.of("aab").per_column(precision)
