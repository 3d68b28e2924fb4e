"""Decisions: the action with the highest expected utility, against enumeration."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posteriori import ClassOrderWarning, Decisions, Utility, decide

pytestmark = pytest.mark.filterwarnings("ignore::posteriori.exceptions.ClassOrderWarning")  # P has the order of GRANT

GRANT = Utility([[4, -1], [-20, 0], [-7, 1]], ["good", "bad", "ugly"], ["grant", "refuse"])
P = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.0, 0.125, 0.875], [0.875, 0.125, 0.0]])

sizes = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6))


def named(U):
    return Utility(U, range(U.shape[-2]), [f"a{a}" for a in range(U.shape[-1])])


def by_enumeration(p, U):
    """Expected utilities, best action, margin and value of information of one row: sums written out."""
    K, A = U.shape
    expected = [sum(p[k] * U[k, a] for k in range(K)) for a in range(A)]
    best = expected.index(max(expected))
    others = expected[:best] + expected[best + 1 :]
    told = sum(p[k] * max(U[k]) for k in range(K))
    return expected, best, expected[best] - max(others, default=-np.inf), told - expected[best]


def probabilities(shape):
    """Multiples of 1/64, zeros and ones among them: with small whole utilities every sum is exact, and so are ties."""
    *rows, K = shape
    cuts = arrays(np.int64, (*rows, K - 1), elements=st.integers(0, 64))
    return cuts.map(lambda at: np.diff(np.sort(at, axis=-1), axis=-1, prepend=0, append=64) / 64)


def utilities(shape):
    return arrays(np.int64, shape, elements=st.integers(-3, 3))


def drawn(data, *, each=False, draws=0):
    """Probabilities (n, K), or (draws, n, K), and utilities (K, A), or (n, K, A)."""
    n, K, A = data.draw(sizes)
    U = data.draw(utilities((n, K, A) if each else (K, A)))
    return data.draw(probabilities((draws, n, K) if draws else (n, K))), U


def simulated(n, K, A, each=False, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(K), n), rng.normal(size=(n, K, A) if each else (K, A))


# Against enumeration


@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
@given(data=st.data())
def test_decisions_are_those_of_enumeration(data, each):
    P, U = drawn(data, each=each)
    decisions = decide(P, named(U))
    for i, p in enumerate(P):
        expected, best, margin, value = by_enumeration(p, U[i] if each else U)
        assert decisions.expected_utility[i].tolist() == expected
        assert decisions.codes[i] == best
        assert decisions.actions[i] == f"a{best}"
        assert decisions.margin[i] == margin
        assert decisions.value_of_information[i] == value
    assert decisions.probability_best is None
    assert decisions.cost_of_uncertainty is None


@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
@given(data=st.data())
def test_draws_are_averaged_as_in_enumeration(data, each):
    draws, U = drawn(data, each=each, draws=4)
    decisions = decide(None, named(U), draws=draws)
    for i in range(draws.shape[1]):
        u = U[i] if each else U
        each_draw = [by_enumeration(p, u) for p in draws[:, i]]
        best = [code for _, code, _, _ in each_draw]
        mean = np.mean([expected for expected, *_ in each_draw], axis=0)
        assert decisions.probability_best[i].tolist() == [best.count(a) / 4 for a in range(u.shape[1])]
        assert decisions.cost_of_uncertainty[i] == np.mean([max(e) for e, *_ in each_draw]) - mean.max()
        # without probabilities the mean of the draws is taken
        assert decisions.expected_utility[i].tolist() == mean.tolist()


@given(data=st.data())
def test_zero_one_is_the_most_probable_class(data):
    n, K, _ = data.draw(sizes)
    P = data.draw(probabilities((n, K)))
    decisions = decide(P, Utility.zero_one(range(K)))
    np.testing.assert_array_equal(decisions.actions, P.argmax(axis=1))  # NumPy's ties go to the first, too
    np.testing.assert_array_equal(decisions.expected_utility, P)
    np.testing.assert_array_equal(decisions.value_of_information, 1.0 - P.max(axis=1))


@given(data=st.data(), scale=st.sampled_from([0.5, 1.0, 8.0]))
def test_units_and_what_a_state_is_worth_by_itself_change_no_decision(data, scale):
    P, U = drawn(data)
    shift = data.draw(arrays(np.int64, (len(U), 1), elements=st.integers(-9, 9)))
    one, other = decide(P, named(U)), decide(P, named(scale * U + shift))
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(scale * one.margin, other.margin)
    np.testing.assert_array_equal(scale * one.value_of_information, other.value_of_information)


@pytest.mark.parametrize(("n", "K", "A"), [(300, 2, 2), (200, 20, 20), (100, 3, 50), (50, 100, 3), (1, 7, 4)])
@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
def test_any_numbers_of_any_size(n, K, A, each):
    P, U = simulated(n, K, A, each)
    decisions = decide(P, named(U))
    expected = (P[:, :, None] * U).sum(axis=1)
    ranked = np.sort(expected, axis=1)
    np.testing.assert_allclose(decisions.expected_utility, expected, atol=1e-13)
    np.testing.assert_array_equal(decisions.codes, expected.argmax(axis=1))
    np.testing.assert_allclose(decisions.margin, ranked[:, -1] - ranked[:, -2], atol=1e-13)
    told = (P * U.max(axis=-1)).sum(axis=1)
    np.testing.assert_allclose(decisions.value_of_information, told - ranked[:, -1], atol=1e-13)
    assert len(decisions) == n
    assert isinstance(decisions, Decisions)


@pytest.mark.parametrize(("K", "A"), [(2, 2), (3, 17), (33, 9), (40, 40)])
@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
def test_equal_actions_tie_whatever_the_rounding(K, A, each):
    P, U = simulated(100, K, 1, each)
    decisions = decide(P, named(np.repeat(U, A, axis=-1)))
    assert not decisions.codes.any()
    assert not decisions.margin.any()


@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
def test_one_action_is_taken_with_an_infinite_margin(each):
    P, U = simulated(5, 3, 1, each)
    decisions = decide(P, named(U), draws=P[None])
    assert decisions.actions.tolist() == ["a0"] * 5
    np.testing.assert_array_equal(decisions.margin, np.inf)
    np.testing.assert_allclose(decisions.value_of_information, 0.0, atol=1e-15)
    np.testing.assert_array_equal(decisions.probability_best, 1.0)
    np.testing.assert_array_equal(decisions.cost_of_uncertainty, 0.0)


def test_more_actions_than_states_and_a_reject_between_them():
    utility = Utility.zero_one(["a", "b"]).with_reject(0.75)
    decisions = decide([[0.875, 0.125], [0.5, 0.5], [0.25, 0.75], [0.0, 1.0]], utility)
    # at three quarters both are worth the same, and the class comes first
    assert decisions.actions.tolist() == ["a", "reject", "b", "b"]
    assert decisions.margin.tolist() == [0.125, 0.25, 0.0, 0.25]


# Draws


def test_parameters_that_are_known_cost_nothing():
    P, U = simulated(50, 4, 3)
    decisions = decide(P, named(U), draws=np.repeat(P[None], 8, axis=0))
    np.testing.assert_allclose(decisions.cost_of_uncertainty, 0.0, atol=1e-14)
    np.testing.assert_array_equal(decisions.probability_best, np.eye(3)[decisions.codes])


def test_uncertainty_never_costs_less_than_nothing_nor_more_than_the_truth_is_worth():
    """Knowing W is worth no less than nothing, and no more than knowing the class itself."""
    rng = np.random.default_rng(1)
    draws = rng.dirichlet(np.full(4, 0.7), (20, 200))
    decisions = decide(None, named(rng.normal(size=(4, 3))), draws=draws)
    assert (decisions.cost_of_uncertainty >= 0.0).all()
    assert (decisions.cost_of_uncertainty > 0.0).mean() > 0.9
    assert (decisions.cost_of_uncertainty <= decisions.value_of_information + 1e-12).all()
    np.testing.assert_allclose(decisions.probability_best.sum(axis=1), 1.0, rtol=1e-12)


def test_probabilities_besides_draws_decide():
    draws = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])
    decisions = decide([[0.25, 0.75]], Utility.zero_one(["a", "b"]), draws=draws)
    assert decisions.actions.tolist() == ["b"]
    np.testing.assert_array_equal(decisions.expected_utility, [[0.25, 0.75]])
    np.testing.assert_allclose(decisions.probability_best, [[2 / 3, 1 / 3]])
    np.testing.assert_allclose(decisions.cost_of_uncertainty, [1.0 - 2 / 3])


# Names


@given(states=st.permutations(range(3)), columns=st.permutations(range(3)))
@pytest.mark.parametrize("of", ["classes", "pandas", "polars"])
def test_neither_the_order_of_states_nor_that_of_columns_matters(of, states, columns):
    names = [GRANT.states[k] for k in columns]
    utility = Utility(GRANT.matrix[list(states)], GRANT.states[list(states)], GRANT.actions)
    given = P[:, columns]
    if of == "classes":
        decisions = decide(given, utility, classes=names)
    else:
        table = pd.DataFrame(given, columns=names)
        decisions = decide(table if of == "pandas" else pl.DataFrame(table), utility)
    np.testing.assert_array_equal(decisions.expected_utility, P @ GRANT.matrix)


def test_utilities_of_single_rows_are_matched_by_name_too():
    each = np.arange(4)[:, None, None] * GRANT.matrix
    for matrix in (each[:, ::-1], lambda rows: rows[:, 0, None, None] * GRANT.matrix[::-1]):
        utility = Utility(matrix, GRANT.states[::-1], GRANT.actions)
        decisions = decide(P, utility, classes=GRANT.states, X=np.arange(4.0)[:, None])
        np.testing.assert_array_equal(decisions.expected_utility, np.arange(4)[:, None] * (P @ GRANT.matrix))


def test_draws_go_with_the_classes():
    draws = np.stack([P, P[::-1]])
    straight = decide(None, GRANT, draws=draws)
    turned = decide(None, GRANT, draws=draws[:, :, ::-1], classes=GRANT.states[::-1])
    np.testing.assert_array_equal(turned.cost_of_uncertainty, straight.cost_of_uncertainty)
    np.testing.assert_array_equal(turned.probability_best, straight.probability_best)


def test_classes_prevail_over_the_columns_of_a_table():
    decisions = decide(pd.DataFrame(P, columns=list("xyz")), GRANT, classes=GRANT.states)
    np.testing.assert_array_equal(decisions.expected_utility, P @ GRANT.matrix)


def test_columns_of_an_arrow_table_are_matched_by_name():
    table = pa.table({name: P[:, k] for k, name in [(2, "ugly"), (0, "good"), (1, "bad")]})
    np.testing.assert_array_equal(decide(table, GRANT).expected_utility, P @ GRANT.matrix)


# Size


@pytest.mark.parametrize(("n", "each"), [(150_000, False), (60_000, True)], ids=["constant", "per row"])
def test_more_rows_than_one_block(n, each, monkeypatch):
    P, U = simulated(n, 3, 2, each)
    draws = np.stack([P, P[::-1]])
    decisions = decide(P, named(U), draws=draws)
    expected = np.einsum("nk,nka->na", P, np.broadcast_to(U, (n, 3, 2)))
    other = np.einsum("nk,nka->na", P[::-1], np.broadcast_to(U, (n, 3, 2)))
    np.testing.assert_allclose(decisions.expected_utility, expected, atol=1e-14)
    np.testing.assert_array_equal(decisions.codes, expected.argmax(axis=1))
    np.testing.assert_allclose(decisions.margin, np.abs(expected[:, 0] - expected[:, 1]), atol=1e-14)
    np.testing.assert_array_equal(
        decisions.probability_best[:, 1], ((expected.argmax(axis=1) + other.argmax(axis=1)) / 2)
    )
    cost = (expected.max(axis=1) + other.max(axis=1)) / 2 - ((expected + other) / 2).max(axis=1)
    np.testing.assert_allclose(decisions.cost_of_uncertainty, cost, atol=1e-14)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = decide(P, named(U), draws=draws)
    for name in ("codes", "expected_utility", "margin", "value_of_information", "cost_of_uncertainty"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(decisions, name))


def test_a_row_is_decided_alike_in_any_batch():
    P, U = simulated(300, 6, 5)
    together = decide(P, named(U))
    alone = [decide(P[i : i + 1], named(U)) for i in range(300)]
    np.testing.assert_array_equal(np.concatenate([one.codes for one in alone]), together.codes)
    np.testing.assert_allclose(
        np.concatenate([one.expected_utility for one in alone]), together.expected_utility, rtol=1e-12, atol=1e-15
    )


def test_a_constant_utility_needs_no_cube():
    """(n, K, A) would be 64 MB here; what comes back has 3.7."""
    P, U = simulated(20_000, 20, 20)
    utility = named(U)
    tracemalloc.start()
    decide(P, utility)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6


@pytest.mark.parametrize("each", [False, True], ids=["constant", "per row"])
def test_no_rows_give_no_decisions(each):
    decisions = decide(np.empty((0, 3)), named(np.zeros((0, 3, 2) if each else (3, 2))))
    assert len(decisions) == 0
    assert decisions.expected_utility.shape == (0, 2)
    assert decisions.actions.shape == decisions.margin.shape == decisions.value_of_information.shape == (0,)


def test_no_rows_of_draws_give_no_decisions():
    decisions = decide(np.empty((0, 3)), GRANT, draws=np.empty((5, 0, 3)))
    assert decisions.probability_best.shape == (0, 2)
    assert decisions.cost_of_uncertainty.shape == (0,)


def test_no_rows_for_a_function_of_one_row_give_no_decisions():
    utility = Utility(lambda row: row[0] * GRANT.matrix, GRANT.states, GRANT.actions)
    assert len(decide(np.empty((0, 3)), utility, X=np.empty((0, 2)))) == 0


def test_nothing_given_is_changed():
    given, draws, matrix = P.copy(), P[None].copy(), GRANT.matrix.copy()
    decide(given, GRANT, draws=draws, classes=GRANT.states[::-1])
    np.testing.assert_array_equal(given, P)
    np.testing.assert_array_equal(draws, P[None])
    np.testing.assert_array_equal(GRANT.matrix, matrix)


# What is refused

HALF = [[0.5, 0.5, 0.0]]
OF_ROW = Utility(lambda row: GRANT.matrix, GRANT.states, GRANT.actions)
WRONG = {
    "a row that sums to less": ([*HALF, [0.5, 0.25, 0.0]], {}, r"row 1 \(counted from 0\) sums to 0\.75"),
    "the worst of several": (
        [[0.5, 0.5, 0.1], [1, 1, 1], *HALF],
        {},
        r"row 1 \(counted from 0\) sums to 3, .*1\., 1\., 1\.",
    ),
    "just too much": ([*HALF, [0.5, 0.5, 2e-5]], {}, "row 1 .* sums to 1.00002"),
    "NaN": ([*HALF, *HALF, [np.nan, 0.5, 0.5]], {}, r"row 2 .* sums to nan"),
    "NaN after a worse sum": ([[1, 1, 1], [np.nan, 0.5, 0.5]], {}, r"row 1 .* sums to nan"),
    "infinite": ([[np.inf, 0, 0]], {}, "row 0 .* sums to inf"),
    "negative": ([*HALF, [1.25, -0.25, 0.0]], {}, r"must not be negative: row 1 \(counted from 0\) holds -0\.25"),
    "percent": ([[50, 25, 25]], {}, "row 0 .* sums to 100"),
    "one dimension": ([0.5, 0.5, 0.0], {}, r"shape \(3,\): \(n, K\) is needed"),
    "no columns": (np.empty((3, 0)), {}, r"shape \(3, 0\): \(n, K\) is needed"),
    "text": ([["a", "b", "c"]], {}, "probabilities must be numbers"),
    "ragged": ([[0.5, 0.5], [1.0]], {}, "probabilities must be numbers"),
    "columns": ([[0.5, 0.5]], {}, "have 2 columns, and the utility has 3 states"),
    "names of columns": (pd.DataFrame(HALF, columns=list("abc")), {}, "a row in the utility: 'a', 'b', 'c'; states"),
    "classes": (HALF, {"classes": ["good", "bad", "tall"]}, "'tall'; states that are not classes: 'ugly'"),
    "neither": (None, {}, "needs probabilities, draws, or both"),
    "draws' dimensions": (HALF, {"draws": HALF}, r"draws have shape \(1, 3\): \(S, n, K\) is needed"),
    "no draws": (HALF, {"draws": np.empty((0, 1, 3))}, r"draws have shape \(0, 1, 3\)"),
    "draws of other rows": (HALF, {"draws": [P]}, r"draws have shape \(1, 4, 3\): \(S, 1, 3\) is needed"),
    "draws' sums": (None, {"draws": [HALF, [[0.5, 0.5, 0.5]]]}, "draws must sum to one: .*sums to 1.5"),
    "draws' columns": (None, {"draws": [[[0.5, 0.5]]]}, "have 2 columns, and the utility has 3 states"),
}


@pytest.mark.parametrize(("probabilities", "options", "match"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_wrong_probabilities_are_refused(probabilities, options, match):
    with pytest.raises(ValueError, match=match):
        decide(probabilities, GRANT, **options)


def test_rounding_of_probabilities_is_forgiven():
    exact, single = decide(P, GRANT), decide((P / 3 * 3).astype(np.float32), GRANT)
    np.testing.assert_allclose(single.expected_utility, exact.expected_utility, rtol=1e-6)
    decide([[1.0 + 1e-9, -1e-9, 0.0]], GRANT)


def test_utilities_of_other_rows_are_refused():
    with pytest.raises(ValueError, match="matrices for 3 rows, and there are 4 rows"):
        decide(P, Utility(np.zeros((3, 3, 2)), GRANT.states, GRANT.actions))
    with pytest.raises(ValueError, match="matrices for 2 rows, and there are 4 rows"):
        decide(P, OF_ROW, X=np.zeros((2, 5)))


def test_a_function_of_the_row_needs_the_rows():
    with pytest.raises(ValueError, match="function of the row: pass the rows as X"):
        decide(P, OF_ROW)


def test_a_bare_matrix_is_no_utility():
    with pytest.raises(
        TypeError, match=r"utility must be a Utility, got ndarray: make one with Utility\(matrix, states, actions\)"
    ):
        decide(P, GRANT.matrix)


# The order of classes


@pytest.mark.parametrize(
    ("states", "warned"),
    [
        (["malignant", "benign"], True),
        (["benign", "malignant"], False),
        ([1, 0], True),
        ([0, 1], False),
        ([False, True], False),
        (["9", "10"], False),  # sorted as numbers
        (["10", "9"], False),  # sorted as text
        ([1, "a"], True),  # no classifier has such an order
    ],
)
def test_states_in_another_order_than_a_classifier_has_are_warned_of(states, warned):
    utility = Utility([[0, -20], [-2, 0]], states, ["operate", "send home"])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        decisions = decide([[0.95, 0.05]], utility)
    assert decisions.actions.tolist() == ["operate"]  # as the states say, warned or not
    assert [each.category for each in found] == [ClassOrderWarning] * warned
    assert all(each.filename == __file__ and "classes=model.classes_" in str(each.message) for each in found)


def test_where_the_order_is_known_nothing_is_warned_of():
    utility = Utility([[0, -20], [-2, 0]], ["malignant", "benign"], ["operate", "send home"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decide([[0.95, 0.05]], utility, classes=["benign", "malignant"]).actions == ["send home"]
        assert decide([[0.95, 0.05]], utility, classes=utility.states).actions == ["operate"]
        assert decide(pd.DataFrame({"benign": [0.95], "malignant": [0.05]}), utility).actions == ["send home"]


# As text


def test_decisions_are_shown_by_their_counts():
    utility = Utility.zero_one([f"c{k}" for k in range(8)])
    counts = [1, 5, 0, 2, 2, 1, 1, 1]
    P = np.repeat(np.eye(8), counts, axis=0) * 0.92 + 0.01
    shown = "Decisions(13 rows: c1 5, c3 2, c4 2, c0 1, c5 1, c6 1, ... (7 actions in all); mean expected utility 0.93)"
    assert repr(decide(P, utility)) == shown
    assert repr(decide(P[:0], utility)) == "Decisions(0 rows)"
    assert repr(decide(P[:1], utility)) == "Decisions(1 row: c0 1; mean expected utility 0.93)"
