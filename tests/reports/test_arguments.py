"""The walkthrough of a user's data: what it takes, and what it refuses in which words."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

import posteriori as po

X, Y = [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 3.0]], ["b", "a", "b", "a"]


def words(step):
    """The text in one line."""
    return " ".join(step.to_markdown().split())


def values(by_steps, key, name):
    return by_steps[key].values[name]


@pytest.mark.parametrize("library", [pd, pl])
def test_tables_are_arrays_with_names(library):
    frame = library.DataFrame({"length": [1.0, 2.0, 3.0, 4.0], "depth": [2, 1, 5, 3]})
    labelled = library.DataFrame({"length": [1.0, 2.0, 3.0, 4.0], "kind": Y, "depth": [2, 1, 5, 3]})
    row = library.DataFrame({"length": [2.0], "depth": [3.0]})
    plain = po.walkthrough(X, Y, x_new=[2.0, 3.0])
    for by_steps in (po.walkthrough(frame, Y, x_new=row), po.walkthrough(labelled, "kind", x_new=row)):
        for step, same in zip(by_steps.steps, plain.steps, strict=True):
            for name, value in step.values.items():
                np.testing.assert_array_equal(value, same.values[name])
        assert '`x_n2` is "length", `x_n3` is "depth"' in words(by_steps["data"])
    assert '`x_n2` is "column 1", `x_n3` is "column 2"' in words(plain["data"])
    assert "Six mornings" not in str(plain)


@pytest.mark.parametrize(
    "labels", [["b", "a", "b", "a"], [7, 3, 7, 3], [True, False, True, False], [1.0, 0.0, 1.0, 0.0]]
)
def test_labels_of_any_kind(labels):
    by_steps = po.walkthrough(X, labels)
    np.testing.assert_array_equal(values(by_steps, "data", "Y"), [[0, 1], [1, 0], [0, 1], [1, 0]])
    for label in set(labels):
        assert f'"{label}"' in words(by_steps["data"])


def test_the_new_row_is_the_mean_unless_given():
    np.testing.assert_array_equal(values(po.walkthrough(X, Y), "latent", "x_new"), [1.0, 2.5, 2.75])
    single = [[row[0]] for row in X]
    np.testing.assert_array_equal(values(po.walkthrough(single, Y, x_new=7), "latent", "x_new"), [1.0, 7.0])
    np.testing.assert_array_equal(values(po.walkthrough(x_new=[-1.5]), "latent", "x_new"), [1.0, -1.5])


def test_no_utility_is_zero_one():
    by_steps = po.walkthrough(X, Y, x_new=[1.0, 4.0])
    p = values(by_steps, "monte_carlo", "p")
    np.testing.assert_allclose(values(by_steps, "utility", "expected_utility"), p, atol=1e-15)
    assert values(by_steps, "decision", "action") == p.argmax()
    assert 'The best action is "say b"' in words(by_steps["decision"])


def test_utilities_with_and_without_names():
    U = [[1, 0, 0.4], [0, 1, 0.4]]
    named = pd.DataFrame(U, columns=["left", "right", "wait"])
    swapped = pd.DataFrame(U, columns=["left", "right", "wait"], index=["a", "b"]).loc[["b", "a"]]
    plain = po.walkthrough(X, Y, utility=U)
    for utility in (named, swapped):
        by_steps = po.walkthrough(X, Y, utility=utility)
        np.testing.assert_array_equal(values(by_steps, "utility", "utility"), U)
        assert '1 is "left", 2 is "right", 3 is "wait"' in words(by_steps["utility"])
    assert '1 is "action 1", 2 is "action 2", 3 is "action 3"' in words(plain["utility"])


def test_ties_go_to_the_first_action():
    by_steps = po.walkthrough(X, Y, utility=[[1, 2, 2], [1, 2, 2]])
    assert values(by_steps, "decision", "action") == 1
    assert values(by_steps, "decision", "expected_utility") == pytest.approx(2.0)


def test_raw_columns_of_different_scale():
    rng = np.random.default_rng(0)
    raw = np.column_stack([rng.normal(size=20), 1e5 * rng.normal(size=20)])
    by_steps = po.walkthrough(raw, rng.integers(0, 3, 20))
    W, Sigma = values(by_steps, "map", "W"), values(by_steps, "covariance", "Sigma")
    assert np.abs(W[:, 2]).max() < 1e-4
    for w in W[:, 2]:
        assert f"{w:.4e}" in by_steps["map"].to_markdown()  # four decimals would show nothing of it
    assert Sigma[2, 2] == pytest.approx(1 / 3, abs=1e-8)  # all but the prior's share of the sum over classes is known
    assert Sigma[2, 2] - Sigma[2, 5] < 1e-9


REFUSED = {
    "only X": ({"X": X}, "X was passed without y: pass both, or neither for the built-in example."),
    "only y": ({"y": Y}, "y was passed without X: pass both"),
    "rows": (
        {"X": np.ones((51, 1)), "y": [0, 1] * 25 + [0]},
        r"X has 51 rows, too many to follow by hand \(at most 50\)",
    ),
    "columns": (
        {"X": np.ones((4, 6)), "y": Y},
        r"X has 6 columns, too many .* \(at most 5\): keep the most telling ones",
    ),
    "classes": ({"X": np.ones((6, 1)), "y": range(6)}, r"y holds 6 classes, too many .* \(at most 5\): merge some"),
    "one class": (
        {"X": X, "y": np.array(["a"] * 4)},
        r"y holds one class only \('a'\): pass rows of at least two classes",
    ),
    "lengths": ({"X": X, "y": Y[:3]}, "X has 4 rows, y has 3"),
    "soft labels": ({"X": X, "y": np.full((4, 2), 0.5)}, "y has 2 columns, .* pass one label for every row"),
    "missing label": ({"X": X, "y": ["a", None, "b", "a"]}, "y has 1 missing label, the first in row 1"),
    "nan": ({"X": [[1.0], [np.nan]], "y": ["a", "b"]}, "X contains NaN, first in column 0, row 1"),
    "infinity": ({"X": [[np.inf], [1.0]], "y": ["a", "b"]}, "X contains infinity, first in column 0, row 0"),
    "text": ({"X": [["u"], ["v"]], "y": ["a", "b"]}, "must hold numbers"),
    "no table": ({"X": X, "y": "kind"}, "y='kind' names a column, but X .* has no named columns"),
    "vector": ({"X": [1.0, 2.0], "y": ["a", "b"]}, "Expected 2D array"),
    "alpha zero": (
        {"alpha": 0},
        "alpha must be a finite number above 0, got 0: without a prior there is no posterior",
    ),
    "alpha below": ({"alpha": -1.0}, "alpha must be a finite number above 0, got -1.0"),
    "alpha nan": ({"alpha": np.nan}, "alpha must be a finite number above 0, got nan"),
    "alpha infinite": ({"alpha": np.inf}, "alpha must be a finite number above 0, got inf"),
    "alpha text": ({"alpha": "1"}, "alpha must be a finite number above 0, got '1'"),
    "alpha bool": ({"alpha": True}, "alpha must be a finite number above 0, got True"),
    "format": ({"format": "html"}, "format must be 'markdown' or 'latex', got 'html'"),
    "digits few": ({"digits": 1}, "digits must be a whole number from 2 to 10, got 1"),
    "digits many": ({"digits": 11}, "digits must be a whole number from 2 to 10, got 11"),
    "digits half": ({"digits": 2.5}, "digits must be a whole number from 2 to 10, got 2.5"),
    "draws none": ({"n_draws": 0}, "n_draws must be a whole number from 1 to 50, got 0"),
    "draws many": ({"n_draws": 51}, "n_draws must be a whole number from 1 to 50, got 51"),
    "new length": ({"x_new": [1.0, 2.0]}, "x_new holds 2 numbers, X has 1 columns: pass one row, without the leading"),
    "new nan": ({"x_new": [np.nan]}, "x_new holds nan: pass finite numbers"),
    "new text": ({"x_new": "warm"}, "x_new must be 1 numbers, one per column of X, got 'warm'"),
    "utility rows": ({"utility": np.eye(2)}, r"utility has 2 rows, y has 3 classes \['dry', 'rain', 'storm'\]"),
    "utility vector": (
        {"utility": [1, 2, 3]},
        r"utility has shape \(3,\), and must have one row per class .* \(3, A\)",
    ),
    "utility nan": ({"utility": np.full((3, 2), np.nan)}, "utility contains NaN, first in column 0, row 0"),
    "actions": ({"utility": np.ones((3, 11))}, r"utility has 11 actions, too many .* \(at most 10\)"),
    "utility labels": (
        {"utility": pd.DataFrame(np.eye(3), index=["dry", "rain", "snow"])},
        r"utility has rows for \['dry', 'rain', 'snow'\], y has the classes \['dry', 'rain', 'storm'\]",
    ),
    "new names": (
        {"X": pd.DataFrame(X, columns=["u", "v"]), "y": Y, "x_new": pd.DataFrame([[1.0, 2.0]], columns=["v", "u"])},
        r"x_new has the columns \['v', 'u'\], X has \['u', 'v'\]: pass the same ones, in the same order",
    ),
    "scale": (
        {"X": np.column_stack([np.arange(4.0), 1e150 * np.array([3.0, 1.0, 2.0, 5.0])]), "y": Y},
        "bring the columns of X to a similar scale, .* or raise alpha",
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_calculated_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        po.walkthrough(**arguments)


def test_the_limits_themselves_are_allowed():
    rng = np.random.default_rng(0)
    largest = po.walkthrough(
        rng.normal(size=(50, 5)), [*range(5)] * 10, utility=np.ones((5, 10)), n_draws=50, digits=10
    )
    assert values(largest, "covariance", "Sigma").shape == (30, 30)


def test_arguments_are_not_changed():
    data, row, U = np.array(X), np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 3.0]])
    copies = data.copy(), row.copy(), U.copy()
    po.walkthrough(data, Y, x_new=row, utility=U)
    for array, copy in zip((data, row, U), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_libraries_are_imported_when_they_are_needed():
    """Reports with the first name of them, plots with the first one; `report` is a function before and after."""
    code = (
        "import sys, posteriori; assert 'posteriori.reports' not in sys.modules; "
        "posteriori.walkthrough; assert 'posteriori.reports' in sys.modules; assert 'jax' not in sys.modules; "
        "assert {'walkthrough', 'report', 'evaluate', 'compare'} <= set(dir(posteriori)); "
        "import posteriori.reports.page; assert 'matplotlib' not in sys.modules; "
        "assert callable(posteriori.report) and callable(posteriori.evaluate)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
