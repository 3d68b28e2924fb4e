"""Prediction sets: the law of coverage, ties, classes, levels, and what is done with them."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, chisquare, kstest
from tests.slow import quick_first

from posteriori.decision import PredictionSets, calibrate, prediction_sets

LABELS = np.array(["a", "b", "c", "d", "e", "f", "g"])
K = len(LABELS)
scores = pytest.mark.parametrize("score", ["lac", "aps"])


def wrong_model(rng, n):
    """Probabilities, and classes that are drawn from quite other ones: the promise holds for any classifier."""
    truth = rng.dirichlet(np.ones(K), n)
    y = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    P = truth**2 + rng.dirichlet(np.ones(K), n)
    return P / P.sum(axis=1, keepdims=True), y


def heavy_ties(rng, n):
    """Every row holds the same seven numbers in an order of its own: only seven scores, but 5040 rows."""
    levels = np.array([32, 16, 8, 4, 2, 1, 1]) / 64
    places = rng.permuted(np.tile(np.arange(K), (n, 1)), axis=1)
    chosen = rng.choice(K, n, p=np.sqrt(levels) / np.sqrt(levels).sum())
    return levels[places], (places == chosen[:, None]).argmax(axis=1)


def rank(n, alpha):
    return ceil((n + 1) * (1 - Fraction(str(alpha))))


def fits(counts, n_test, k, n_cal):
    """Probability of counts as unlikely under the beta-binomial law, by chi-square over cells of five or more."""
    law = betabinom(n_test, k, n_cal + 1 - k)
    expected, seen = [], []
    left = rest = 0
    for m in range(n_test + 1):
        left, rest = left + len(counts) * law.pmf(m), rest + int(np.sum(counts == m))
        if left >= 5:
            expected.append(left)
            seen.append(rest)
            left = rest = 0
    expected[-1] += left
    seen[-1] += rest
    return chisquare(seen, np.array(expected) * sum(seen) / sum(expected)).pvalue


def distance(counts, n_test, k, n_cal):
    """Of their mean from that of the law, in standard errors."""
    law = betabinom(n_test, k, n_cal + 1 - k)
    return abs(counts.mean() - law.mean()) / (law.std() / np.sqrt(counts.size))


# The law of coverage


@scores
@pytest.mark.parametrize("rows", quick_first([heavy_ties, wrong_model]))
def test_the_number_covered_is_beta_binomial(score, rows):
    """And not that of the next ranks: the test would notice one calibration row more or less."""
    n_cal, n_test, alpha = 50, 40, 0.2
    k = rank(n_cal, alpha)
    counts = []
    for repeat in range(700):
        rng = np.random.default_rng(repeat)
        P, y = rows(rng, n_cal + n_test)
        calibration = calibrate(P[:n_cal], y[:n_cal], score=score, seed=int(rng.integers(2**31)))
        sets = prediction_sets(P[n_cal:], calibration, alpha, LABELS)
        counts.append(int(sets.members[np.arange(n_test), y[n_cal:]].sum()))
    counts = np.array(counts)
    assert fits(counts, n_test, k, n_cal) > 0.002
    assert distance(counts, n_test, k, n_cal) < 3
    assert min(distance(counts, n_test, k - 1, n_cal), distance(counts, n_test, k + 1, n_cal)) > 4


@scores
def test_by_class_the_law_holds_for_the_rows_of_every_class(score):
    n_cal, n_test, alpha = 20, 10, 0.25
    counts = np.zeros((400, K), dtype=int)
    for repeat in range(400):
        rng = np.random.default_rng(repeat)
        y = np.repeat(np.arange(K), n_cal + n_test)
        # some classes are easier than others
        P = rng.dirichlet(np.ones(K), len(y)) + np.eye(K)[y] * rng.random((len(y), 1)) * (y[:, None] % 3)
        P /= P.sum(axis=1, keepdims=True)
        held = np.tile(np.arange(n_cal + n_test) < n_cal, K)
        calibration = calibrate(P[held], y[held], score=score, by_class=True, seed=int(rng.integers(2**31)))
        members = prediction_sets(P[~held], calibration, alpha, LABELS).members
        covered = members[np.arange(len(members)), y[~held]]
        counts[repeat] = covered.reshape(K, n_test).sum(axis=1)
    k = rank(n_cal, alpha)
    for of_class in counts.T:
        assert fits(of_class, n_test, k, n_cal) > 0.001
    assert distance(counts, n_test, k, n_cal) < 3
    assert min(distance(counts, n_test, k - 1, n_cal), distance(counts, n_test, k + 1, n_cal)) > 4


def test_without_by_class_a_hard_class_pays_for_an_easy_one():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    p = np.where(y == 0, rng.uniform(0.7, 1.0, 4000), rng.uniform(0.3, 1.0, 4000))  # of the true class
    P = np.where(np.arange(2) == y[:, None], p[:, None], 1 - p[:, None])
    shares = {}
    for by_class in (False, True):
        sets = prediction_sets(P[2000:], calibrate(P[:2000], y[:2000], by_class=by_class), 0.1, ["easy", "hard"])
        covered = sets.members[np.arange(2000), y[2000:]]
        shares[by_class] = [covered[y[2000:] == k].mean() for k in (0, 1)]
    assert shares[False][0] == 1.0
    assert shares[False][1] == pytest.approx(0.8, abs=0.04)
    assert shares[True] == pytest.approx([0.9, 0.9], abs=0.04)


@scores
def test_rows_with_the_same_probabilities_are_covered_as_promised(score):
    """A model without features, whose every score is tied: coverage must be 0.9 over many seeds, within four errors."""
    covered = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        y = (rng.random(101) < 0.4).astype(int)
        calibration = calibrate(np.tile([0.6, 0.4], (100, 1)), y[:100], score=score, seed=int(rng.integers(2**31)))
        covered.append(prediction_sets([[0.6, 0.4]], calibration, 0.1, [0, 1]).members[0, y[100]])
    assert np.mean(covered) > 0.9 - 4 * np.sqrt(0.09 / 400)


# Scores


def test_the_score_lac_is_the_probability_of_all_other_classes():
    P, y = wrong_model(np.random.default_rng(0), 100)
    calibration = calibrate(P, y)
    np.testing.assert_array_equal(calibration.values[0], np.sort(1 - P[np.arange(100), y]))
    apart = calibrate(P, y, by_class=True)
    for k in range(K):
        np.testing.assert_array_equal(apart.values[k], np.sort(1 - P[y == k, k]))


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_score_aps_is_the_probability_of_likelier_classes_and_a_random_share_of_the_own(k):
    rng = np.random.default_rng(0)
    P = rng.dirichlet([3.0, 2.0, 1.0], 500)
    before = np.array([p[p > p[k]].sum() for p in P])
    # one row at a time, each with its seed, to know which score belongs to which
    found = np.array(
        [calibrate(P[i : i + 1], np.array([k]), score="aps", seed=1000 + i).values[0][0] for i in range(500)]
    )
    share = (found - before) / P[:, k]
    assert kstest(share, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(share, P[:, k])[0, 1]) < 0.15


def test_sets_grow_with_the_difficulty_of_the_row_by_aps():
    """Classes that are likely a priori make sets by lac, the spread of the row makes them by aps."""
    rng = np.random.default_rng(0)
    P, y = wrong_model(rng, 1000)
    easy, hard = np.array([[0.9, *[0.1 / 6] * 6]]), np.full((1, K), 1 / K)
    calibration = calibrate(P, y, score="aps")
    assert prediction_sets(easy, calibration, 0.1, LABELS).sizes < prediction_sets(hard, calibration, 0.1, LABELS).sizes


# Ranks and levels


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.07, 0.1, 0.2, 0.29, 0.3, 0.5, 0.9])
def test_the_rank_is_that_of_exact_arithmetic(alpha):
    """(n + 1)(1 - alpha) is often whole, and rounding must not add one. Scores on a grid count up to the rank."""
    for n in (9, 10, 19, 49, 99, 100, 199, 299, 999):
        at = np.arange(1, n + 1) / (2 * n)
        between = np.append(0.0, at) + 1 / (4 * n)
        calibration = calibrate(np.column_stack([1 - at, at]), np.zeros(n, dtype=int))
        sets = prediction_sets(np.column_stack([1 - between, between]), calibration, alpha, ["yes", "no"])
        k = rank(n, alpha)
        assert sets.members[:, 0].sum() == (k if k <= n else n + 1)


@scores
@pytest.mark.parametrize(("n", "alpha"), [(8, 0.1), (1, 0.49), (98, 0.01), (0, 0.5)])
def test_too_few_rows_exclude_nothing(score, n, alpha):
    P, y = wrong_model(np.random.default_rng(0), 20 + n)
    assert rank(n, alpha) > n
    sets = prediction_sets(P[n:], calibrate(P[:n], y[:n], score=score), alpha, LABELS)
    assert sets.members.all()


def test_a_class_without_calibration_rows_is_never_excluded():
    P, y = wrong_model(np.random.default_rng(0), 400)
    P, y = P[y != 3], y[y != 3]
    sets = prediction_sets(P, calibrate(P, y, by_class=True), 0.2, LABELS)
    assert sets.members[:, 3].all()
    assert not sets.members.all()


@scores
@pytest.mark.parametrize("rows", [wrong_model, heavy_ties])
@given(levels=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)), by_class=st.booleans(), seed=st.integers(0, 99))
def test_a_stricter_level_takes_no_class_away(score, rows, levels, by_class, seed):
    P, y = rows(np.random.default_rng(seed), 120)
    calibration = calibrate(P[:60], y[:60], score=score, by_class=by_class, seed=seed)
    small, large = (
        prediction_sets(P[60:], calibration, alpha, LABELS).members for alpha in sorted(levels, reverse=True)
    )
    assert (small <= large).all()


# Batches and seeds


@scores
@pytest.mark.parametrize("rows", [wrong_model, heavy_ties])
def test_a_row_has_its_set_in_any_batch(score, rows):
    P, y = rows(np.random.default_rng(3), 200)
    calibration = calibrate(P[:100], y[:100], score=score, seed=7)
    together = prediction_sets(P, calibration, 0.3, LABELS).members
    alone = np.concatenate([prediction_sets(P[i : i + 1], calibration, 0.3, LABELS).members for i in range(200)])
    backwards = prediction_sets(np.asfortranarray(P[::-1]), calibration, 0.3, LABELS).members
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(backwards[::-1], together)


def test_ties_are_settled_by_the_seed():
    P, y = heavy_ties(np.random.default_rng(3), 200)
    one, again, other = (
        prediction_sets(P[100:], calibrate(P[:100], y[:100], seed=seed), 0.3, LABELS).members for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_nothing_given_is_changed():
    P, y = wrong_model(np.random.default_rng(0), 50)
    kept, codes = P.copy(), y.copy()
    prediction_sets(P, calibrate(P, y, score="aps"), 0.1, LABELS)
    np.testing.assert_array_equal(P, kept)
    np.testing.assert_array_equal(y, codes)


# What is done with sets

SETS = PredictionSets(
    np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=bool), np.array(["x", "y", "z"]), 0.1
)


def test_sets_by_their_size_and_labels():
    assert SETS.sizes.tolist() == [1, 2, 0, 3, 1]
    assert SETS.labels() == [["x"], ["y", "z"], [], ["x", "y", "z"], ["z"]]


@pytest.mark.parametrize("abstain", ["abstain", None, -1])
def test_one_class_alone_is_an_action_and_anything_else_is_not(abstain):
    """An empty set is no answer either."""
    assert SETS.actions(abstain).tolist() == ["x", abstain, abstain, abstain, "z"]


def test_numbers_stay_numbers_beside_abstaining():
    actions = PredictionSets(np.array([[0, 1], [1, 1]], dtype=bool), np.array([4, 5]), 0.1).actions()
    assert actions.tolist() == [5, "abstain"]


def test_coverage_by_hand():
    assert SETS.coverage(["x", "y", "z", "y", "y"]) == 0.6
    assert SETS.coverage(np.array(["x", "z", "x", "z", "z"], dtype=object)) == 0.8


def test_no_rows_have_no_sets():
    P, y = wrong_model(np.random.default_rng(0), 50)
    sets = prediction_sets(P[:0], calibrate(P, y), 0.1, LABELS)
    assert sets.members.shape == (0, K)
    assert sets.labels() == []
    assert sets.actions().shape == (0,)


# What is refused


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 5, np.nan])
def test_levels_are_between_zero_and_one(alpha):
    P, y = wrong_model(np.random.default_rng(0), 50)
    with pytest.raises(ValueError, match=r"alpha=.* must be between 0 and 1"):
        prediction_sets(P, calibrate(P, y), alpha, LABELS)


def test_scores_are_known_and_probabilities_sum_to_one():
    P, y = wrong_model(np.random.default_rng(0), 50)
    with pytest.raises(ValueError, match="score='raps' is unknown: use 'lac' or 'aps'"):
        calibrate(P, y, score="raps")
    with pytest.raises(ValueError, match="must sum to one"):
        calibrate(2 * P, y)
    with pytest.raises(ValueError, match="must sum to one"):
        prediction_sets(2 * P, calibrate(P, y), 0.1, LABELS)


def test_every_calibration_row_needs_its_class():
    P, y = wrong_model(np.random.default_rng(0), 50)
    with pytest.raises(ValueError, match="50"):
        calibrate(P, y[:40])


def test_coverage_needs_the_class_of_every_row():
    with pytest.raises(ValueError, match="5"):
        SETS.coverage(["x", "y"])


def test_coverage_of_an_unknown_class_says_so():
    with pytest.raises(ValueError, match="'w'"):
        SETS.coverage(["x", "y", "w", "y", "y"])


def test_sets_need_a_name_for_every_column():
    P, y = wrong_model(np.random.default_rng(0), 50)
    with pytest.raises(ValueError, match="classes"):
        prediction_sets(P, calibrate(P, y), 0.1, LABELS[:3])
