"""Utilities: what they are made of, where they come from, how they are read, and what is refused."""

import datetime
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posteriori import Utility, decide

STATES, ACTIONS = ["good", "bad", "ugly"], ["grant", "refuse"]
MATRIX = np.array([[4.0, -1.0], [-20.0, 0.0], [-7.0, 0.5]])
AMOUNTS = np.array([1.0, 3.0, 10.0, 0.0])
EACH = AMOUNTS[:, None, None] * MATRIX
"""Utilities of four rows, in proportion to an amount."""
ROWS = np.column_stack([AMOUNTS, np.arange(4.0)])
TABLE = pd.DataFrame({"amount": AMOUNTS, "age": np.arange(4.0)})

KINDS = {
    "constant": MATRIX,
    "array": EACH,
    "function of all rows": lambda rows: rows[:, 0, None, None] * MATRIX,
    "function of one row": lambda row: row[0] * MATRIX,
}


def values(utility, rows=ROWS):
    """Utilities of the four rows, (4, K, A), whatever kind they are of."""
    found = utility.matrix if utility.function is None else utility.of_rows(rows)
    return np.broadcast_to(found, (4, *found.shape[-2:]))


kinds = pytest.mark.parametrize("matrix", KINDS.values(), ids=KINDS.keys())


# Construction


def test_numbers_and_names_are_kept():
    utility = Utility(MATRIX.tolist(), STATES, ACTIONS)
    np.testing.assert_array_equal(utility.matrix, MATRIX)
    assert (utility.states.tolist(), utility.actions.tolist()) == (STATES, ACTIONS)
    assert utility.constant


def test_only_one_matrix_for_all_rows_is_constant():
    assert not Utility(EACH, STATES, ACTIONS).constant
    assert not Utility(lambda row: MATRIX, STATES, ACTIONS).constant


def test_actions_are_the_states_if_left_out():
    assert Utility(np.eye(3), STATES).actions.tolist() == STATES


@pytest.mark.parametrize("names", [(3, 1), [3, 1], np.array([3, 1]), pd.Index([3, 1]), range(3, -1, -2)])
def test_names_come_in_any_sequence(names):
    utility = Utility(np.eye(2), names)
    assert utility.states.tolist() == [3, 1]
    assert Utility.zero_one(names).actions.tolist() == [3, 1]


def test_zero_one_is_one_for_the_right_class_and_nothing_for_any_other():
    utility = Utility.zero_one(STATES)
    np.testing.assert_array_equal(utility.matrix, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert utility.states.tolist() == utility.actions.tolist() == STATES


@kinds
def test_costs_are_negative_utilities(matrix):
    costs = (lambda rows: -np.asarray(matrix(rows))) if callable(matrix) else -matrix
    utility = Utility.from_costs(costs, STATES, ACTIONS)
    np.testing.assert_array_equal(values(utility), values(Utility(matrix, STATES, ACTIONS)))
    assert utility.actions.tolist() == ACTIONS


def test_the_lowest_expected_cost_is_the_best():
    utility = Utility.from_costs([[0, 1], [5, 0]], ["good", "bad"], ACTIONS)
    assert decide([[0.9, 0.1], [0.8, 0.2]], utility, classes=utility.states).actions.tolist() == ["grant", "refuse"]


# Rejecting


@kinds
def test_rejecting_is_one_more_action_of_the_same_value_in_every_state(matrix):
    plain = Utility(matrix, STATES, ACTIONS)
    utility = plain.with_reject(-0.3, "ask")
    assert utility.actions.tolist() == [*ACTIONS, "ask"]
    np.testing.assert_array_equal(values(utility)[..., :2], values(plain))
    np.testing.assert_array_equal(values(utility)[..., 2], -0.3)
    assert plain.actions.tolist() == ACTIONS
    assert utility.constant == plain.constant


def test_two_ways_to_reject_need_two_names():
    utility = Utility.zero_one(STATES).with_reject(0.2).with_reject(0.4, "measure again")
    assert utility.actions.tolist() == [*STATES, "reject", "measure again"]
    with pytest.raises(ValueError, match="actions names 'reject' more than once"):
        utility.with_reject(0.5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rejecting_needs_a_finite_value(value):
    with pytest.raises(ValueError, match=r"value of rejecting is .*finite"):
        Utility.zero_one(STATES).with_reject(value)


def test_numbers_stay_numbers_beside_a_reject_action():
    utility = Utility.zero_one([0, 1]).with_reject(0.7)
    assert utility.actions.tolist() == [0, 1, "reject"]
    assert decide([[0.1, 0.9], [0.5, 0.5]], utility).actions.tolist() == [1, "reject"]


# Files


def written(folder, text, encoding="utf-8"):
    path = folder / "utility.csv"
    path.write_text(text, encoding=encoding, newline="")
    return path


GOOD = {
    "plain": "state,treat,wait\nill,10,-50\nwell,-5,0\n",
    "corner left out": ",treat,wait\nill,10,-50\nwell,-5,0",
    "spaces": "state , treat, wait \n ill , 10 , -50\nwell,-5, 0\n",
    "blank lines": "\nstate,treat,wait\n\nill,10,-50\n , ,\nwell,-5,0\n\n",
    "line ends of Windows": "state,treat,wait\r\nill,10,-50\r\nwell,-5,0\r\n",
    "quotes": 'state,"treat","wait"\n"ill","10",-50\nwell,-5,0\n',
    "powers": "state,treat,wait\nill,1e1,-5.0E+1\nwell,-.5e1,0.0\n",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_is_read(tmp_path, text, encoding):
    utility = Utility.from_csv(written(tmp_path, text, encoding))
    np.testing.assert_array_equal(utility.matrix, [[10, -50], [-5, 0]])
    assert (utility.states.tolist(), utility.actions.tolist()) == (["ill", "well"], ["treat", "wait"])


def test_names_in_a_file_may_hold_commas_and_any_letters(tmp_path):
    utility = Utility.from_csv(written(tmp_path, 'x,"é, β"\n"a, b",1\n'))
    assert (utility.states.tolist(), utility.actions.tolist()) == (["a, b"], ["é, β"])


def test_a_path_may_be_text(tmp_path):
    assert Utility.from_csv(str(written(tmp_path, GOOD["plain"]))).states.tolist() == ["ill", "well"]


NO_TABLE = "is not a table of utilities: the first line must name the actions"
BAD = {
    "empty": ("", NO_TABLE),
    "blank": ("\n\n", NO_TABLE),
    "actions alone": ("state,treat,wait\n", NO_TABLE),
    "no actions": ("state\nill\nwell\n", NO_TABLE),
    "too few": ("state,treat,wait\nill,10,-50\nwell,-5\n", "Line 3 of .*csv has 2 fields, and 3 are needed"),
    "too many": ("state,treat,wait\nill,10,-50,1\n", "Line 2 of .*csv has 4 fields, and 3 are needed"),
    "after blank lines": ("\nstate,treat\n\nill,1\n\nwell\n", "Line 6 of .*csv has 1 field, and 2 are needed"),
    "text": ("state,treat,wait\nill,10,much\n", "Line 2 of .*csv has 'much' under 'wait': a finite number is needed"),
    "nothing": (
        "state,treat,wait\nill,10,-50\nwell,,0\n",
        "Line 3 of .*csv has '' under 'treat': a finite number is needed",
    ),
    "state twice": ("state,treat\nill,1\nill,2\n", "csv: states names 'ill' more than once"),
    "action twice": ("state,treat,treat\nill,1,2\n", "csv: actions names 'treat' more than once"),
    "NaN": ("state,treat\nill,1\nwell,nan\n", "csv.*nan"),
    "overflow": ("state,treat\nill,1e999\n", "csv.*(inf|1e999)"),
}


@pytest.mark.parametrize(("text", "match"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_with_its_name_and_line(tmp_path, text, match):
    with pytest.raises(ValueError, match=match):
        Utility.from_csv(written(tmp_path, text))


def test_a_number_that_is_not_finite_is_named_by_its_line(tmp_path):
    with pytest.raises(ValueError, match=r"Line 3 of .*csv has 'nan' under 'treat'"):
        Utility.from_csv(written(tmp_path, BAD["NaN"][0]))


def test_a_name_of_two_lines_counts_for_two(tmp_path):
    with pytest.raises(ValueError, match="Line 3 of"):
        Utility.from_csv(written(tmp_path, 'state,"treat\nnow"\nill,much\n'))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        Utility.from_csv(tmp_path / "nowhere.csv")


# The order of states


@kinds
@given(order=st.permutations(range(3)))
def test_states_are_matched_by_name_in_any_order(matrix, order):
    utility = Utility(matrix, STATES, ACTIONS)
    other = utility.ordered([STATES[k] for k in order])
    assert other.states.tolist() == [STATES[k] for k in order]
    assert other.actions.tolist() == ACTIONS
    np.testing.assert_array_equal(values(other), values(utility)[:, order])


def test_the_same_order_costs_nothing():
    utility = Utility(MATRIX, STATES, ACTIONS)
    assert utility.ordered(STATES) is utility


@pytest.mark.parametrize("classes", [[0, 1, 10], np.array([0, 1, 10], dtype=np.int8), ["0", "1", "10"]])
def test_names_from_a_file_match_numbers_that_read_the_same(tmp_path, classes):
    utility = Utility.from_csv(written(tmp_path, "state,go,stay\n10,1,2\n0,3,4\n1,5,6\n")).ordered(classes)
    np.testing.assert_array_equal(utility.matrix, [[3, 4], [5, 6], [1, 2]])


def test_true_and_false_match_their_names():
    utility = Utility([[1], [2]], ["True", "False"], ["go"]).ordered(np.array([False, True]))
    np.testing.assert_array_equal(utility.matrix, [[2], [1]])


MISMATCHES = {
    "another": (["good", "bad", "tall"], "a row in the utility: 'tall'; states that are not classes: 'ugly'"),
    "one less": (["good", "bad"], "a row in the utility: none; states that are not classes: 'ugly'"),
    "one more": ([*STATES, "tall"], "a row in the utility: 'tall'; states that are not classes: none"),
    "numbers": ([0, 1, 2], "in the utility: 0, 1, 2; states that are not classes: 'good', 'bad', 'ugly'"),
    "many": (range(99), r"in the utility: 0, 1, 2, 3, 4, \.\.\. \(99 in all\); states"),
    "twice": ([*STATES, "good"], "more than once"),
}


@pytest.mark.parametrize(("classes", "match"), MISMATCHES.values(), ids=MISMATCHES.keys())
@kinds
def test_states_that_are_not_the_classes_are_named(matrix, classes, match):
    with pytest.raises(ValueError, match=match):
        Utility(matrix, STATES, ACTIONS).ordered(classes)


# Functions of the row

FUNCTIONS = {
    "all rows of an array": (lambda X: X[:, 0, None, None] * MATRIX, ROWS),
    "one row of an array": (lambda x: x[0] * MATRIX, ROWS),
    "one row of a list": (lambda x: x[0] * MATRIX, ROWS.tolist()),
    "one row, as lists": (lambda x: [[4 * x[0], -x[0]], [-20 * x[0], 0], [-7 * x[0], 0.5 * x[0]]], ROWS),
    "all rows of a pandas table": (lambda t: t["amount"].to_numpy()[:, None, None] * MATRIX, TABLE),
    "one row of a pandas table": (lambda row: float(row["amount"]) * MATRIX, TABLE),
    "all rows of a polars table": (lambda t: t["amount"].to_numpy()[:, None, None] * MATRIX, pl.DataFrame(TABLE)),
    "one row of a polars table": (lambda row: float(row["amount"]) * MATRIX, pl.DataFrame(TABLE)),
}


@pytest.mark.parametrize(("function", "rows"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_a_function_is_of_all_rows_or_of_one(function, rows):
    utility = Utility(function, STATES, ACTIONS)
    np.testing.assert_array_equal(utility.of_rows(rows), EACH)
    np.testing.assert_array_equal(utility.with_reject(2).of_rows(rows)[..., :2], EACH)
    P = np.tile([0.5, 0.2, 0.3], (4, 1))
    expected = decide(P, Utility(EACH, STATES, ACTIONS), classes=STATES).expected_utility
    np.testing.assert_array_equal(decide(P, utility, classes=STATES, X=rows).expected_utility, expected)


def test_a_function_of_one_row_sees_rows_of_its_own_type():
    seen = []
    for rows in (TABLE, pl.DataFrame(TABLE), ROWS):
        Utility(lambda row: seen.append(type(row)) or MATRIX, STATES, ACTIONS).of_rows(rows)
    # the first of each five is the table itself
    assert seen[1::5] == [pd.Series, dict, np.ndarray]


def test_a_function_of_the_wrong_shape_is_told_what_it_should_return():
    message = r"returned shape \(2, 3\) for a row: \(3, 2\) is needed, or \(4, 3, 2\) for all rows at once"
    with pytest.raises(ValueError, match=message):
        Utility(lambda row: MATRIX.T, STATES, ACTIONS).of_rows(ROWS)


def test_a_function_s_nan_is_placed():
    with pytest.raises(ValueError, match=r"nan at \(2, 1, 0\)"):
        Utility(lambda row: np.where(row[0] == 10, [[0, 0], [np.nan, 0], [0, 0]], 0.0), STATES, ACTIONS).of_rows(ROWS)


def test_a_function_s_own_error_comes_through():
    with pytest.raises(KeyError, match="price"):
        Utility(lambda row: row["price"] * MATRIX, STATES, ACTIONS).of_rows(TABLE)


# To be read


def test_the_text_shows_names_and_numbers():
    assert repr(Utility(MATRIX, STATES, ["grant", "refuse for the time being"])).splitlines() == [
        "Utility: 3 states x 2 actions",
        "                              grant  refuse for the time being",
        "    good                          4                         -1",
        "     bad                        -20                          0",
        "    ugly                         -7                        0.5",
    ]


@pytest.mark.parametrize(
    ("matrix", "what"), [(EACH, "for each of 4 rows"), (lambda row: MATRIX, "a function of the row")]
)
def test_the_text_of_utilities_of_single_rows_shows_names(matrix, what):
    utility = Utility(matrix, STATES, ACTIONS)
    text = f"Utility: 3 states x 2 actions, {what}\n    states  good, bad, ugly\n    actions grant, refuse"
    assert repr(utility) == text
    assert utility._repr_html_() == f"<pre>{text}</pre>"


def test_large_utilities_are_shortened():
    text = repr(Utility.zero_one(range(100, 200)))
    assert text.startswith("Utility: 100 states x 100 actions\n")
    assert "111" in text
    assert "112" not in text
    assert text.endswith("...")
    assert len(text.splitlines()) == 15
    each = repr(Utility(np.zeros((2, 100, 100)), range(100, 200)))
    assert "111, ..." in each
    html = Utility.zero_one(range(100, 200))._repr_html_()
    assert "<th>111</th>" in html
    assert "<th>112</th>" not in html


def test_the_table_shows_the_best_of_each_state_in_bold():
    html = Utility([[1, 2, 2], [3, -1, 0]], ["a", "b"], ["x", "y", "z"])._repr_html_()
    cells = re.findall(r"<td style='([^']*)'>([^<]*)</td>", html)
    assert [text for _, text in cells] == ["1", "2", "2", "3", "-1", "0"]
    assert [text for style, text in cells if "bold" in style] == ["2", "2", "3"]
    assert re.findall(r"<th[^>]*>([^<]*)</th>", html) == ["", "x", "y", "z", "a", "b"]


@pytest.mark.parametrize("matrix", [np.eye(2), np.zeros((3, 2, 2)), lambda row: np.eye(2)])
def test_the_table_runs_no_one_s_script(matrix):
    html = Utility(matrix, ["<script>alert(1)</script>", "a&b"])._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "a&amp;b" in html


def test_no_cost_reads_as_zero():
    utility = Utility.from_costs([[0, 1], [5, 0]], ["good", "bad"])
    assert "-0" not in repr(utility) + utility._repr_html_()


# What is refused

NEEDED = r"3 states \(rows\) and 2 actions \(columns\) need \(3, 2\), or \(n, 3, 2\)"
WRONG = {
    "one dimension": (np.zeros(6), STATES, ACTIONS, rf"shape \(6,\): {NEEDED}"),
    "turned": (MATRIX.T, STATES, ACTIONS, rf"shape \(2, 3\): {NEEDED}"),
    "rows turned": (np.zeros((5, 2, 3)), STATES, ACTIONS, rf"shape \(5, 2, 3\): {NEEDED}"),
    "four dimensions": (np.zeros((1, 1, 3, 2)), STATES, ACTIONS, rf"shape \(1, 1, 3, 2\): {NEEDED}"),
    "a number": (1.0, STATES, ACTIONS, rf"shape \(\): {NEEDED}"),
    "an action too many": (MATRIX, STATES, [*ACTIONS, "wait"], r"3 actions \(columns\) need \(3, 3\)"),
    "square without actions": (MATRIX, STATES, None, r"shape \(3, 2\): 3 states \(rows\) and 3 actions"),
    "ragged": ([[1, 2], [3], [4, 5]], STATES, ACTIONS, "must be made of numbers, got list"),
    "text": ([["a", "b"]] * 3, STATES, ACTIONS, "must be made of numbers, got list: .*'a'"),
    "nothing": ([[None, {}]] * 3, STATES, ACTIONS, "must be made of numbers"),
    "NaN": ([[0, 1], [2, np.nan], [3, 4]], STATES, ACTIONS, r"nan at \(1, 1\).*must be finite.*large negative number"),
    "infinite": ([[0, 1], [2, 3], [-np.inf, 4]], STATES, ACTIONS, r"-inf at \(2, 0\)"),
    "NaN of a row": (np.where(EACH == 5.0, np.nan, EACH), STATES, ACTIONS, r"nan at \(2, 2, 1\)"),
    "action twice": (np.zeros((3, 3)), STATES, ["wait", "go", "wait"], "actions names 'wait' more than once"),
    "state twice": (np.zeros((3, 2)), ["a", "b", "b"], ACTIONS, "states names 'b' more than once"),
    "number twice": (np.zeros((3, 2)), [1, 2, 1.0], ACTIONS, "states names '1.0' more than once"),
    "several twice": (np.zeros((4, 2)), ["b", "a", "b", "a"], ACTIONS, "states names 'a', 'b' more than once"),
    "one of very many twice": (np.zeros((2001, 2)), [*range(2000), 7], ACTIONS, "states names .* more than once"),
    "no states": (np.zeros((0, 2)), [], ACTIONS, "states must be a list of names"),
    "no actions": (np.zeros((3, 0)), STATES, [], "actions must be a list of names"),
    "names in a table": (np.zeros((2, 2)), [["a", "b"], ["c", "d"]], ACTIONS, "states must be a list of names"),
    "dates": (np.zeros((1, 2)), np.array([datetime.date(2020, 1, 1)], "M8[D]"), ACTIONS, "states has dtype datetime64"),
}


@pytest.mark.parametrize(("matrix", "states", "actions", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_utilities_are_refused(matrix, states, actions, match):
    with pytest.raises(ValueError, match=match):
        Utility(matrix, states, actions)


@pytest.mark.parametrize("name", ["one dimension", "turned", "text", "NaN", "infinite", "action twice"])
def test_wrong_costs_are_refused_too(name):
    costs, states, actions, _ = WRONG[name]
    with pytest.raises(ValueError, match=r"utility|names"):
        Utility.from_costs(costs, states, actions)


# Files as people write them


@pytest.mark.parametrize(
    "content",
    [
        b"state;treat;wait\nill;10,5;-50\nwell;-5;0\n",
        b"state\ttreat\twait\nill\t10.5\t-50\nwell\t-5\t0\n",
        b"\xef\xbb\xbfstate; treat; wait\r\n ill ; 10,5;-50\r\nwell;-5 ;0\r\n",
        "state,treat,wait\nill,10.5,\u221250\nwell,-5,0\n".encode(),
        "state,treat,wait\nill,10.5,-50\nwell,-5,0\n".encode("utf-16"),
        b'"state","treat","wait"\n"ill","10,5","-50"\n"well","-5","0"\n',
    ],
    ids=["semicolons", "tabs", "spreadsheet", "minus sign", "utf-16", "quoted"],
)
def test_files_of_other_dialects_hold_the_same_utilities(tmp_path, content):
    path = tmp_path / "utility.csv"
    path.write_bytes(content)
    utility = Utility.from_csv(path)
    np.testing.assert_array_equal(utility.matrix, [[10.5, -50], [-5, 0]])
    assert (utility.states.tolist(), utility.actions.tolist()) == (["ill", "well"], ["treat", "wait"])


def test_names_in_latin_1(tmp_path):
    path = tmp_path / "utility.csv"
    path.write_bytes("state,go\nfähig,1\n".encode("latin-1"))
    assert Utility.from_csv(path).states.tolist() == ["fähig"]


@pytest.mark.parametrize(
    ("states", "classes"),
    [
        (["TRUE", "FALSE"], [False, True]),
        (["yes", "no"], [False, True]),
        (["1", "2.0"], [1, 2]),
        (["1", "2"], [1.0, 2.0]),
        ([1, 2], ["1", "2"]),
        ([" a", "b "], ["a", "b"]),
    ],
)
def test_states_match_classes_that_mean_the_same(states, classes):
    utility = Utility(np.eye(2), states).ordered(classes)
    assert utility.states.tolist() == classes
    assert utility.matrix.trace() == (0 if states[0] in ("TRUE", "yes") else 2)


def test_names_that_differ_are_not_taken_for_the_same():
    with pytest.raises(ValueError, match="do not match the classes"):
        Utility(np.eye(2), ["1", "2"]).ordered([1, 3])
    with pytest.raises(ValueError, match="do not match the classes"):
        Utility(np.eye(2), [" a", "a"]).ordered(["a", "b"])
