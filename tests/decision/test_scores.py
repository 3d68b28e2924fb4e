"""Scores: against scikit-learn where it has them, naive sums where it has not, and simulations with a known truth."""

import pickle

import numpy as np
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import foldnorm
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from tests.slow import quick_first

from posteriori import Utility, decide
from posteriori.decision import (
    brier_scorer,
    brier_split,
    calibration_error,
    calibration_scorer,
    interval_coverage,
    log_loss,
    log_loss_scorer,
    realised_utility,
    regret,
    utility_scorer,
)

LABELS = np.array(["a", "b", "c", "d"])


def simulated(n, K=4, seed=0, power=1.0):
    """Labels drawn from probabilities, and these probabilities to a power: too sure of themselves above one."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(K), n)
    y = (P.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    Q = P**power
    return LABELS[y], Q / Q.sum(axis=1, keepdims=True)


def weights(n, seed=9):
    return np.random.default_rng(seed).integers(0, 4, n)


Y, P = simulated(300)
W = weights(300)


# Log-loss


@pytest.mark.parametrize("weight", [None, W], ids=["plain", "weighted"])
def test_log_loss_is_scikit_learn_s(weight):
    assert log_loss(Y, np.log(P), sample_weight=weight) == pytest.approx(
        sklearn_log_loss(Y, P, sample_weight=weight), rel=1e-13
    )


def test_log_loss_follows_the_order_of_the_classes():
    assert log_loss(Y, np.log(P[:, ::-1]), classes=LABELS[::-1]) == log_loss(Y, np.log(P))
    few = Y != "d"
    assert log_loss(Y[few], np.log(P[few]), classes=LABELS) == pytest.approx(
        sklearn_log_loss(Y[few], P[few], labels=LABELS), rel=1e-13
    )


def test_log_loss_is_exact_where_probabilities_underflow():
    assert log_loss([1], [[0.0, -800.0]], classes=[0, 1]) == 800.0
    assert log_loss([0, 1, 1, 1], [[0.0, -800.0]] * 4) == 600.0
    assert log_loss([1], [[0.0, -np.inf]], classes=[0, 1]) == np.inf


def test_weighted_rows_are_repeated_rows():
    """To rounding: the sums have another order."""
    again = np.repeat(np.arange(300), W)
    assert log_loss(Y, np.log(P), sample_weight=W) == pytest.approx(log_loss(Y[again], np.log(P[again])), rel=1e-13)
    np.testing.assert_allclose(brier_split(Y, P, sample_weight=W), brier_split(Y[again], P[again]), rtol=1e-12)
    options = {"strategy": "uniform", "n_bins": 8}
    for kind in ("top", "class"):
        weighted = calibration_error(Y, P, kind=kind, sample_weight=W, **options)
        assert weighted.error == pytest.approx(calibration_error(Y[again], P[again], kind=kind, **options).error)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_row_without_weight_is_no_row_even_if_it_was_held_impossible():
    assert log_loss([0, 1], [[0.0, -np.inf]] * 2, sample_weight=[1, 0]) == 0.0


# Brier score


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_brier_score_is_scikit_learn_s(K, weighted):
    y, P = simulated(200, K)
    weight = weights(200) if weighted else None
    expected = brier_score_loss(y, P, labels=LABELS[:K], sample_weight=weight, scale_by_half=False)
    assert brier_split(y, P, classes=LABELS[:K], sample_weight=weight).score == pytest.approx(expected, rel=1e-13)


@given(seed=st.integers(0, 10_000), n=st.integers(5, 60), parts=st.sampled_from([4, 16, 1024]), weighted=st.booleans())
def test_the_parts_of_the_brier_score(seed, n, parts, weighted):
    """Probabilities in few steps: many of them are tied. Recalibrating and resolving rows can only help."""
    y, P = simulated(n, 3, seed, power=2.0)
    P = np.random.default_rng(seed).multinomial(parts, P) / parts
    weight = weights(n, seed) + 1.0 if weighted else np.ones(n)
    split = brier_split(y, P, classes=LABELS[:3], sample_weight=weight)
    assert split.score == pytest.approx(split.calibration + split.refinement, abs=1e-14)
    assert split.refinement == pytest.approx(split.uncertainty - split.resolution, abs=1e-14)
    assert min(split.calibration, split.resolution) > -1e-14
    refinement = uncertainty = 0.0
    for k, label in enumerate(LABELS[:3]):
        hit = (y == label).astype(float)
        better = IsotonicRegression().fit(P[:, k], hit, weight).predict(P[:, k])
        refinement += np.average((better - hit) ** 2, weights=weight)
        uncertainty += np.average((np.average(hit, weights=weight) - hit) ** 2, weights=weight)
    assert split.refinement == pytest.approx(refinement, abs=1e-12)
    assert split.uncertainty == pytest.approx(uncertainty, abs=1e-12)


def test_probabilities_that_are_the_frequencies_have_no_calibration_loss():
    """Eight rows of each kind, with just the labels that their probabilities promise."""
    promised = np.array([[4, 2, 2], [1, 6, 1], [0, 3, 5]])
    P = np.repeat(promised / 8, 8, axis=0)
    y = np.concatenate([np.repeat(LABELS[:3], row) for row in promised])
    split = brier_split(y, P)
    assert split.calibration == pytest.approx(0.0, abs=1e-15)
    assert split.score == pytest.approx(np.mean([1 - (row**2).sum() / 64 for row in promised]))
    assert calibration_error(y, P).error == pytest.approx(0.0, abs=1e-15)
    assert calibration_error(y, P, kind="class").error == pytest.approx(0.0, abs=1e-15)


def test_the_frequencies_themselves_resolve_nothing():
    rate = np.array([(label == Y).mean() for label in LABELS])
    split = brier_split(Y, np.tile(rate, (300, 1)))
    assert split.score == pytest.approx(1 - (rate**2).sum())
    assert split.uncertainty == pytest.approx(split.score)
    assert split.resolution == pytest.approx(0.0, abs=1e-14)
    assert split.calibration == pytest.approx(0.0, abs=1e-14)


# Calibration error


def naive_bins(p, weight, n_bins, strategy):
    """The bin of each row: by value, or by the share of weight before its middle; tied rows go with their first."""
    if strategy == "uniform":
        return [min(int(value * n_bins), n_bins - 1) for value in p]
    found, first, before = {}, {}, 0.0
    for i in sorted(range(len(p)), key=lambda i: p[i]):
        share = (before + weight[i] / 2) / sum(weight)
        first.setdefault(p[i], min(int(share * n_bins), n_bins - 1))
        found[i] = first[p[i]]
        before += weight[i]
    return [found[i] for i in range(len(p))]


def naive_error(p, hit, weight, n_bins, strategy):
    bins = np.array(naive_bins(p, weight, n_bins, strategy))
    error = 0.0
    for b in range(n_bins):
        mine = bins == b
        if weight[mine].sum() > 0:
            gap = np.average(p[mine], weights=weight[mine]) - np.average(hit[mine], weights=weight[mine])
            error += weight[mine].sum() / weight.sum() * abs(gap)
    return error


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
@pytest.mark.parametrize("digits", [1, 2, 16])
@pytest.mark.parametrize("n_bins", [1, 4, 15, 1000])
def test_calibration_error_is_the_naive_one(n_bins, digits, strategy, weighted):
    """With one digit nearly all probabilities are tied."""
    y, P = simulated(150, 3)
    P[:, 0] = P[:, 0].round(digits)
    P[:, 1:] *= ((1 - P[:, 0]) / P[:, 1:].sum(axis=1))[:, None]
    weight = weights(150).astype(float) if weighted else np.ones(150)
    options = {"n_bins": n_bins, "strategy": strategy, "sample_weight": weight}
    hits = y[:, None] == LABELS[:3]
    each = [naive_error(P[:, k], hits[:, k], weight, n_bins, strategy) for k in range(3)]
    assert calibration_error(y, P, kind="class", **options).error == pytest.approx(np.mean(each), abs=1e-12)
    top = P.argmax(axis=1)
    naive = naive_error(P.max(axis=1), hits[np.arange(150), top], weight, n_bins, strategy)
    assert calibration_error(y, P, **options).error == pytest.approx(naive, abs=1e-12)


def test_one_bin_in_closed_form():
    """Fifty rows held true with 0.9, thirty of which are; noise as of 30.9 of 51. The folded normal gives it back."""
    y = np.repeat(["a", "b"], [30, 20])
    found = calibration_error(y, np.tile([0.9, 0.1], (50, 1)))
    assert found.error == pytest.approx(0.3)
    rate = 30.9 / 51
    noise = np.sqrt(rate * (1 - rate) / 50)
    assert foldnorm(found.corrected / noise, scale=noise).mean() == pytest.approx(0.3, rel=1e-9)


def test_without_resamples_there_is_no_interval():
    found = calibration_error(*simulated(2000, power=4.0), classes=LABELS)
    assert 0.0 < found.corrected < found.error
    assert np.isnan([found.lower, found.upper]).all()


@pytest.mark.parametrize("kind", ["top", "class"])
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_the_corrected_error_of_perfect_probabilities_is_nearly_none(kind, strategy):
    options = {"kind": kind, "strategy": strategy, "classes": LABELS}
    found = [calibration_error(*simulated(1000, seed=seed), **options) for seed in range(30)]
    plain, corrected = np.mean([(each.error, each.corrected) for each in found], axis=0)
    assert plain > 0.03
    assert corrected < 0.4 * plain


@pytest.mark.parametrize("kind", ["top", "class"])
@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_the_corrected_error_of_bad_probabilities_is_the_plain_one(kind, strategy):
    found = calibration_error(*simulated(2000, power=4.0), kind=kind, strategy=strategy, classes=LABELS)
    assert found.error > 0.14
    assert found.corrected == pytest.approx(found.error, rel=0.02)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 80),
    power=st.sampled_from([0.3, 1.0, 3.0]),
    kind=st.sampled_from(["top", "class"]),
)
def test_the_corrected_error_is_between_nothing_and_the_plain_one(seed, n, power, kind):
    found = calibration_error(*simulated(n, seed=seed, power=power), kind=kind, classes=LABELS, n_bins=5)
    assert 0.0 <= found.corrected <= found.error <= 1.0


def test_the_corrected_error_is_found_where_noise_hardly_matters():
    """Every bin eight standard errors off: the folded normal's mean is the distance to the last digit."""
    y = np.repeat(["a", "b"], [5, 19])
    found = calibration_error(y, np.tile([0.9, 0.1], (24, 1)))
    assert found.corrected == pytest.approx(found.error, rel=1e-12)


@pytest.mark.parametrize("power", quick_first([3.0, 1.5]))
def test_the_bootstrap_interval_usually_holds_the_truth(power):
    """At level 0.9 thirty intervals hold it 27 times on average; 21 or less is one chance in a thousand."""
    truth = calibration_error(*simulated(200_000, seed=99, power=power), classes=LABELS).error
    held = width = 0.0
    for seed in range(30):
        found = calibration_error(
            *simulated(400, seed=seed, power=power), classes=LABELS, n_bootstrap=60, level=0.9, random_state=seed
        )
        assert found.lower <= found.corrected <= found.upper
        held += found.lower <= truth <= found.upper
        width += (found.upper - found.lower) / 30
    assert held >= 22
    assert width < 0.15


def test_the_bootstrap_interval_of_perfect_probabilities_reaches_zero():
    found = [calibration_error(*simulated(400, seed=seed), classes=LABELS, n_bootstrap=40) for seed in range(10)]
    assert sum(each.lower == 0.0 for each in found) >= 8
    assert all(each.upper > each.corrected for each in found)


def test_the_bootstrap_is_drawn_from_its_seed():
    one, two, other = (calibration_error(Y, P, n_bootstrap=10, random_state=seed) for seed in (1, 1, 2))
    assert one == two
    assert (one.error, one.corrected) == (other.error, other.corrected)
    assert one.upper != other.upper


# Realised utility, regret, coverage

GRANT = Utility([[4, -1, 0], [-20, 0, 0]], ["good", "bad"], ["grant", "refuse", "ask"])
TRUTH, TAKEN = ["good", "bad", "good", "bad", "good"], ["grant", "grant", "ask", "refuse", "refuse"]
REALISED, BEST = np.array([4.0, -20.0, 0.0, 0.0, -1.0]), np.array([4.0, 0.0, 4.0, 0.0, 4.0])
AMOUNTS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
OF_AMOUNT = Utility(lambda row: row[0] * GRANT.matrix, GRANT.states, GRANT.actions)


@pytest.mark.parametrize("weight", [None, [1, 0, 2, 3, 0.5]], ids=["plain", "weighted"])
def test_what_actions_were_worth_and_what_they_missed(weight):
    assert realised_utility(TRUTH, TAKEN, GRANT, sample_weight=weight) == np.average(REALISED, weights=weight)
    assert regret(TRUTH, TAKEN, GRANT, sample_weight=weight) == np.average(BEST - REALISED, weights=weight)
    each = Utility(AMOUNTS[:, None, None] * GRANT.matrix, GRANT.states, GRANT.actions)
    for utility in (each, OF_AMOUNT):
        options = {"X": AMOUNTS[:, None], "sample_weight": weight}
        assert realised_utility(TRUTH, TAKEN, utility, **options) == np.average(AMOUNTS * REALISED, weights=weight)
        assert regret(TRUTH, TAKEN, utility, **options) == np.average(AMOUNTS * (BEST - REALISED), weights=weight)


def test_those_who_know_the_truth_regret_nothing():
    certain = np.eye(2)[[0, 1, 1, 0]]
    actions = decide(certain, GRANT, classes=GRANT.states).actions
    assert regret(["good", "bad", "bad", "good"], actions, GRANT) == 0.0


def test_utilities_and_actions_must_fit_the_truth():
    with pytest.raises(ValueError, match="y holds 'ugly', which is not among the classes 'good', 'bad'"):
        realised_utility(["ugly"], ["grant"], GRANT)
    with pytest.raises(ValueError, match=r"'wait', which is not among the .*'grant', 'refuse', 'ask'"):
        realised_utility(["good"], ["wait"], GRANT)
    for score in (realised_utility, regret):
        with pytest.raises(ValueError, match="y has 5 rows, and there are 1 actions"):
            score(TRUTH, ["grant"], GRANT)
        with pytest.raises(ValueError, match="pass the rows as X"):
            score(TRUTH, TAKEN, OF_AMOUNT)
        with pytest.raises(ValueError, match="utility has matrices for 2 rows, and y has 5"):
            score(TRUTH, TAKEN, Utility(np.zeros((2, 2, 3)), GRANT.states, GRANT.actions))


def test_utilities_from_a_file_are_those_of_numbers_that_read_the_same(tmp_path):
    path = tmp_path / "utility.csv"
    path.write_text("state,go,stay\n1,5,0\n0,-3,1\n")
    assert realised_utility([0, 1, 1], ["go", "go", "stay"], Utility.from_csv(path)) == pytest.approx(2 / 3)


def test_coverage_counts_what_lies_within():
    truth, lower, upper = [1.0, 2.0, 3.0, 4.0], [1.0, 2.1, 2.0, 0.0], [2.0, 3.0, 3.0, 3.9]
    assert interval_coverage(truth, lower, upper) == 0.5
    assert interval_coverage(truth, lower, upper, sample_weight=[1, 1, 5, 1]) == 0.75
    table = np.array([[0.2, 0.8], [0.5, 0.5]])  # of several classes: half of the first row, all of the second
    assert interval_coverage(table, [[0.3, 0.7], [0.4, 0.4]], [[0.4, 0.9], [0.6, 0.6]]) == 0.75
    assert interval_coverage(table, [[0.3, 0.7], [0.4, 0.4]], [[0.4, 0.9], [0.6, 0.6]], sample_weight=[3, 1]) == 0.625
    with pytest.raises(ValueError, match=r"shapes \(4,\), \(3,\) and \(4,\)"):
        interval_coverage(truth, lower[:3], upper)


# Scorers

IRIS, SPECIES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])[SPECIES]
FOLDS = StratifiedKFold(3)
PICK = Utility(
    [[1, 0, 0, -1], [-9, 2, 0, -1], [0, -4, 3, -1]], ["setosa", "virginica", "versicolor"], ["A", "B", "C", "none"]
)


def of_folds(score):
    """Score of each fold by hand: score(labels, probabilities, places of the rows)."""
    found = []
    for train, test in FOLDS.split(IRIS, SPECIES):
        model = GaussianNB().fit(IRIS[train], SPECIES[train])
        found.append(score(SPECIES[test], model.predict_proba(IRIS[test]), test))
    return found


def picked(y, P, _):
    """Expected utilities in the order of the classes: the utility has the last two the other way round."""
    U = PICK.matrix[[0, 2, 1]]
    return U[np.searchsorted(np.unique(SPECIES), y), (P @ U).argmax(axis=1)].mean()


def weighed(y, P, rows):
    U = IRIS[rows, :1] * PICK.matrix[[0, 2, 1]][np.searchsorted(np.unique(SPECIES), y)]
    return U[np.arange(len(y)), (P @ PICK.matrix[[0, 2, 1]]).argmax(axis=1)].mean()


SCORERS = {
    "log-loss": (log_loss_scorer, lambda y, P, _: -sklearn_log_loss(y, P)),
    "Brier": (brier_scorer, lambda y, P, _: -brier_score_loss(y, P, scale_by_half=False)),
    "calibration": (calibration_scorer, lambda y, P, _: -calibration_error(y, P).corrected),
    "utility": (utility_scorer(PICK), picked),
    "utility of the row": (
        utility_scorer(Utility(lambda row: row[0] * PICK.matrix, PICK.states, PICK.actions)),
        weighed,
    ),
}


@pytest.mark.parametrize(("scorer", "by_hand"), SCORERS.values(), ids=SCORERS.keys())
def test_scorers_score_each_fold(scorer, by_hand):
    scores = cross_val_score(GaussianNB(), IRIS, SPECIES, cv=FOLDS, scoring=scorer)
    np.testing.assert_allclose(scores, of_folds(by_hand), rtol=1e-9)


@pytest.mark.parametrize("scorer", [log_loss_scorer, brier_scorer, utility_scorer(PICK)], ids=repr)
def test_scorers_choose_the_setting_with_the_highest_score(scorer):
    grid = {"var_smoothing": [1e-9, 0.1, 100.0]}
    search = GridSearchCV(GaussianNB(), grid, cv=FOLDS, scoring=scorer).fit(IRIS, SPECIES)
    by_hand = [
        cross_val_score(GaussianNB(**{"var_smoothing": v}), IRIS, SPECIES, cv=FOLDS, scoring=scorer).mean()
        for v in grid["var_smoothing"]
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_params_["var_smoothing"] == grid["var_smoothing"][int(np.argmax(by_hand))] != 100.0


def test_scorers_take_weights():
    model = GaussianNB().fit(IRIS, SPECIES)
    weight = weights(150)
    again = np.repeat(np.arange(150), weight)
    for scorer in (log_loss_scorer, brier_scorer, utility_scorer(PICK)):
        weighted = scorer(model, IRIS, SPECIES, sample_weight=weight)
        assert weighted == pytest.approx(scorer(model, IRIS[again], SPECIES[again]), rel=1e-12)
        assert weighted != scorer(model, IRIS, SPECIES)


def test_the_log_loss_of_a_classifier_without_log_probabilities():
    class Sure:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.array([[0.25, 0.75], [1.0, 0.0]])

    assert log_loss_scorer(Sure(), None, [1, 0]) == pytest.approx(np.log(0.75) / 2)
    assert log_loss_scorer(Sure(), None, [1, 1]) == -np.inf


def test_scorers_have_names():
    assert repr(log_loss_scorer) == "log_loss_scorer"
    assert repr(utility_scorer(PICK)) == "utility_scorer"


@pytest.mark.parametrize(
    "scorer",
    [log_loss_scorer, utility_scorer(PICK)],
    ids=["log_loss", "utility"],
)
def test_scorers_can_be_stored(scorer):
    model = GaussianNB().fit(IRIS, SPECIES)
    again = pickle.loads(pickle.dumps(scorer))
    assert again(model, IRIS, SPECIES) == scorer(model, IRIS, SPECIES)


def test_a_scorer_of_utilities_from_a_file(tmp_path):
    path = tmp_path / "utility.csv"
    path.write_text("state,go,stay\n1,5,0\n0,-3,1\n")
    y = (SPECIES == "setosa").astype(int)
    assert utility_scorer(Utility.from_csv(path))(GaussianNB().fit(IRIS, y), IRIS, y) == pytest.approx(7 / 3)


def test_weights_are_routed_to_scorers():
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            GaussianNB().set_fit_request(sample_weight=False),
            IRIS,
            SPECIES,
            cv=FOLDS,
            scoring=clone(log_loss_scorer).set_score_request(sample_weight=True),
            params={"sample_weight": W[:150]},
        )
    by_hand = of_folds(lambda y, P, rows: -sklearn_log_loss(y, P, sample_weight=W[rows]))
    np.testing.assert_allclose(found["test_score"], by_hand, rtol=1e-9)


# What is refused

WRONG = {
    "sums": ({"proba": 2 * P}, r"proba must sum to one: row \d+"),
    "NaN": ({"proba": np.where(P == P[7, 2], np.nan, P)}, r"proba must sum to one: row 7 .* nan"),
    "rows": ({"proba": P[:9]}, r"shape \(9, 4\), and 300 labels of 4 classes need \(300, 4\)"),
    "columns": ({"proba": P[:, :1] / P[:, :1]}, r"need \(300, 4\), or name the columns with classes="),
    "classes": ({"classes": ["a", "b"]}, r"300 labels of 2 classes need \(300, 2\)\.$"),
    "a label": ({"classes": ["a", "b", "c", "e"]}, "y holds 'd', which is not among the classes 'a', 'b', 'c', 'e'"),
    "short weights": ({"sample_weight": np.ones(9)}, "sample_weight must be one number for each row"),
    "negative weights": ({"sample_weight": np.r_[-1.0, np.ones(299)]}, "not negative"),
    "infinite weights": ({"sample_weight": np.r_[np.inf, np.ones(299)]}, "finite"),
    "no weight": ({"sample_weight": np.zeros(300)}, "not all zero"),
}


@pytest.mark.parametrize(("given", "match"), WRONG.values(), ids=WRONG.keys())
def test_wrong_probabilities_labels_and_weights_are_refused(given, match):
    options = {"proba": P, **given}
    proba = options.pop("proba")
    for score in (brier_split, calibration_error):
        with pytest.raises(ValueError, match=match):
            score(Y, proba, **options)
    if "sum" not in match:  # log-probabilities are taken as they are
        with pytest.raises(ValueError, match=match):
            log_loss(Y, np.log(proba), **options)


SETTINGS = {
    "kind": ({"kind": "best"}, "kind='best' is unknown: use 'top' or 'class'"),
    "strategy": ({"strategy": "equal"}, "strategy='equal' is unknown: use 'quantile' or 'uniform'"),
    "no bins": ({"n_bins": 0}, "n_bins=0 must be a whole number of at least 1"),
    "half a bin": ({"n_bins": 2.5}, "n_bins=2.5 must be a whole number"),
    "level": ({"level": 95}, "level=95 must be between 0 and 1"),
}


@pytest.mark.parametrize(("options", "match"), SETTINGS.values(), ids=SETTINGS.keys())
def test_wrong_settings_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        calibration_error(Y, P, **options)
