"""Plots: the numbers they keep are right, the axes say what they show, and nothing is needed but matplotlib."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from posteriori import (
    ComparisonDisplay,
    ConfusionUtilityDisplay,
    DecisionRegionDisplay,
    GaussianClassifier,
    PosteriorCheck,
    PosteriorCheckDisplay,
    ReliabilityDisplay,
    SoftmaxRegression,
    Utility,
    UtilityClassifier,
    UtilityCurveDisplay,
)
from posteriori.decision.replication import CheckedStatistic

X, CODES = load_iris(return_X_y=True)
X = X[:, :2]  # where the last two species overlap
CLASSES = np.array(["setosa", "versicolor", "virginica"])
Y = CLASSES[CODES]
MODEL = GaussianNB().fit(X, Y)
P = MODEL.predict_proba(X)
PICK = Utility(
    [[0, 5, -8, -1], [4, 0, -8, -1], [-9, -9, 1, -1]],
    ["virginica", "versicolor", "setosa"],
    ["collect", "leave", "plant", "ask"],
)
U = PICK.matrix[::-1]
"""Utilities in the order of the classes."""
BEST = (P @ U).argmax(axis=1)
ACTING = UtilityClassifier(GaussianNB(), PICK).fit(X, Y)
BAYES = GaussianClassifier("tied").fit(X[::2], Y[::2])
DISPLAYS = {
    "reliability": lambda **options: ReliabilityDisplay.from_estimator(MODEL, X, Y, **options),
    "utility curve": lambda **options: UtilityCurveDisplay.from_estimator(ACTING, X, Y, **options),
    "confusion": lambda **options: ConfusionUtilityDisplay.from_estimator(ACTING, X, Y, **options),
    "posterior check": lambda **options: PosteriorCheckDisplay.from_estimator(BAYES, X, Y, n_draws=50, **options),
    "comparison": lambda **options: ComparisonDisplay.from_estimators([MODEL, SoftmaxRegression(1.0)], X, Y, **options),
    "regions": lambda **options: DecisionRegionDisplay.from_estimator(ACTING, X, Y, resolution=15, **options),
}
displays = pytest.mark.parametrize("display", DISPLAYS.values(), ids=DISPLAYS.keys())


@pytest.fixture(autouse=True)
def figures_are_closed():
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


# All of them


@displays
def test_axes_are_made_or_taken(display):
    import matplotlib.pyplot as plt

    made = display()
    assert plt.get_fignums() == [made.figure_.number]
    assert made.ax_.figure is made.figure_
    _, (left, right) = plt.subplots(1, 2)
    taken = display(ax=right)
    assert taken.ax_ is right
    assert not left.has_data()
    assert right.has_data()
    # drawn again elsewhere, from the numbers kept
    assert taken.plot(left) is taken
    assert taken.ax_ is left
    assert left.has_data()
    assert left.get_xlabel() == right.get_xlabel() != ""
    assert left.get_ylabel() == right.get_ylabel() != ""


@displays
def test_figures_can_be_rendered(display):
    figure = display().figure_
    figure.canvas.draw()
    assert np.ptp(np.asarray(figure.canvas.buffer_rgba())[..., :3]) == 255


@pytest.mark.parametrize(
    "display",
    [pytest.param(build, id=name) for name, build in DISPLAYS.items()],
)
def test_without_matplotlib_one_is_told_what_to_install(display, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"Plots need matplotlib: pip install 'posteriori\[plot\]'"):
        display()


# Reliability


def test_reliability_is_scikit_learn_s_curve():
    """Of one class, in bins of equal width, where both are defined alike."""
    display = ReliabilityDisplay.from_predictions(Y, P, of="virginica", n_bins=7, strategy="uniform")
    frequency, probability = calibration_curve(Y == "virginica", P[:, 2], n_bins=7)
    np.testing.assert_allclose(display.bins.frequency, frequency)
    np.testing.assert_allclose(display.bins.probability, probability)
    assert display.bins.weight.sum() == 150
    assert display.ax_.get_xlabel() == "probability of class virginica"
    assert display.ax_.get_ylabel() == "frequency"


def test_reliability_is_of_the_most_probable_class_unless_told():
    display = ReliabilityDisplay.from_predictions(Y, P, n_bins=5)
    order = np.argsort(P.max(axis=1), kind="stable").reshape(5, 30)
    np.testing.assert_allclose(display.bins.probability, P.max(axis=1)[order].mean(axis=1), atol=0.02)
    hit = CODES == P.argmax(axis=1)
    assert display.bins.weight @ display.bins.frequency == pytest.approx(hit.sum())
    assert display.bins.weight @ display.bins.probability == pytest.approx(P.max(axis=1).sum())
    assert display.ax_.get_xlabel() == "probability of the most probable class"
    assert display.ax_.get_legend() is None


def test_reliability_counts_weights():
    weight = np.arange(150) % 3
    again = np.repeat(np.arange(150), weight)
    weighted = ReliabilityDisplay.from_predictions(Y, P, strategy="uniform", sample_weight=weight).bins
    repeated = ReliabilityDisplay.from_predictions(Y[again], P[again], strategy="uniform").bins
    np.testing.assert_allclose(weighted.probability, repeated.probability)
    np.testing.assert_allclose(weighted.frequency, repeated.frequency)
    np.testing.assert_allclose(weighted.weight, repeated.weight)


def test_reliability_shows_what_it_keeps():
    display = ReliabilityDisplay.from_predictions(Y, P, name="naive Bayes")
    points = display.ax_.containers[0]
    x, y = points.lines[0].get_data()
    np.testing.assert_array_equal(x, display.bins.probability)
    np.testing.assert_array_equal(y, display.bins.frequency)
    (bars,) = points.lines[2]
    heights = np.array([segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]) / 4  # two errors each way
    rate, count = display.bins.frequency, display.bins.count
    expected = np.sqrt(np.maximum(rate * (1 - rate), 0.25 / count) / count)
    np.testing.assert_allclose(heights, expected)
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["naive Bayes"]


def test_reliability_of_an_estimator_is_that_of_its_predictions():
    one = ReliabilityDisplay.from_estimator(MODEL, X, Y, n_bins=4)
    other = ReliabilityDisplay.from_predictions(Y, P, n_bins=4)
    np.testing.assert_array_equal(one.bins.frequency, other.bins.frequency)
    np.testing.assert_array_equal(one.bins.probability, other.bins.probability)
    assert one.name == "GaussianNB"
    assert ReliabilityDisplay.from_estimator(MODEL, X, Y, name="mine").name == "mine"


def test_reliability_refuses_what_is_no_probability_or_class():
    with pytest.raises(ValueError, match="proba must sum to one"):
        ReliabilityDisplay.from_predictions(Y, 2 * P)
    with pytest.raises(ValueError, match="'rose', which is not among the classes"):
        ReliabilityDisplay.from_predictions(Y, P, of="rose")


def test_reliability_refuses_unknown_bins():
    with pytest.raises(ValueError, match="strategy='unifrom'"):
        ReliabilityDisplay.from_predictions(Y, P, strategy="unifrom")


def test_reliability_of_rows_without_one_of_the_classes():
    """Without the middle class the last one's label is the second seen, and would be looked for in its column."""
    few = Y != "versicolor"
    with pytest.raises(ValueError, match="classes="):
        ReliabilityDisplay.from_predictions(Y[few], P[few])


# Utility curve


def test_the_utility_curve_is_the_mean_over_the_clearest_rows():
    display = UtilityCurveDisplay.from_predictions(Y, P, PICK)
    expected = np.sort(P @ U, axis=1)
    order = np.argsort(expected[:, -2] - expected[:, -1], kind="stable")
    realised = U[CODES, BEST][order]
    n = np.arange(1, 151)
    np.testing.assert_allclose(display.share, n / 150)
    np.testing.assert_allclose(display.utility, [realised[:m].mean() for m in n], atol=1e-12)
    np.testing.assert_allclose(display.error, [realised[:m].std() / np.sqrt(m) for m in n], atol=1e-6)
    assert display.utility[-1] == pytest.approx(ACTING.score(X, Y))


def test_the_utility_curve_of_many_rows_is_thinned_out():
    display = UtilityCurveDisplay.from_predictions(np.tile(Y, 5), np.tile(P, (5, 1)), PICK)
    assert len(display.share) == 200
    assert (display.share[0], display.share[-1]) == (1 / 750, 1.0)
    assert display.utility[-1] == pytest.approx(ACTING.score(X, Y))


def test_the_utility_curve_without_a_utility_is_accuracy():
    display = UtilityCurveDisplay.from_predictions(Y, P)
    order = np.argsort(-np.diff(np.sort(P, axis=1)[:, 1:], axis=1)[:, 0], kind="stable")
    right = (P.argmax(axis=1) == CODES)[order]
    np.testing.assert_allclose(display.utility, np.cumsum(right) / np.arange(1, 151))


def test_the_utility_curve_of_an_estimator_is_that_of_its_predictions():
    by_hand = UtilityCurveDisplay.from_predictions(Y, P, PICK)
    for display in (
        UtilityCurveDisplay.from_estimator(MODEL, X, Y, PICK),
        UtilityCurveDisplay.from_estimator(ACTING, X, Y),
    ):
        np.testing.assert_array_equal(display.utility, by_hand.utility)
    plain = UtilityCurveDisplay.from_estimator(MODEL, X, Y)
    np.testing.assert_array_equal(plain.utility, UtilityCurveDisplay.from_predictions(Y, P).utility)
    assert plain.name == "GaussianNB"


def test_the_utility_curve_shows_what_it_keeps():
    display = UtilityCurveDisplay.from_predictions(Y, P, PICK)
    x, y = display.ax_.lines[0].get_data()
    np.testing.assert_array_equal(x, display.share)
    np.testing.assert_array_equal(y, display.utility)


@pytest.mark.parametrize("build", [UtilityCurveDisplay.from_predictions, ConfusionUtilityDisplay.from_predictions])
def test_curve_and_table_need_one_utility_for_all_rows(build):
    each = Utility(np.zeros((150, 3, 4)), PICK.states, PICK.actions)
    with pytest.raises(ValueError, match="needs one utility for all rows"):
        build(Y, PICK.actions[BEST] if build == ConfusionUtilityDisplay.from_predictions else P, each)


# Confusion


@pytest.mark.parametrize("weight", [None, np.arange(150) % 4], ids=["plain", "weighted"])
def test_confusion_counts_actions_in_each_state(weight):
    display = ConfusionUtilityDisplay.from_predictions(Y, PICK.actions[BEST], PICK, sample_weight=weight)
    each = np.ones(150) if weight is None else weight
    for k, state in enumerate(PICK.states):
        for a in range(4):
            assert display.counts[k, a] == each[(state == Y) & (a == BEST)].sum()
    np.testing.assert_array_equal(display.utility, PICK.matrix)
    assert display.states.tolist() == PICK.states.tolist()
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == PICK.actions.tolist()
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == PICK.states.tolist()
    share = display.counts * PICK.matrix / each.sum()
    assert texts(display.ax_) == [f"{c:g}\n{u:+.3g}" for c, u in zip(display.counts.flat, share.flat, strict=True)]
    worth = np.average(U[CODES, BEST], weights=weight)
    assert display.ax_.get_title().startswith(f"mean utility {worth:.4g}")
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("action", "truth")


def test_confusion_of_an_estimator_is_that_of_its_predictions():
    display = ConfusionUtilityDisplay.from_estimator(ACTING, X, Y)
    other = ConfusionUtilityDisplay.from_predictions(Y, ACTING.predict(X), PICK.ordered(CLASSES))
    np.testing.assert_array_equal(display.counts, other.counts)
    assert display.states.tolist() == CLASSES.tolist()


def test_confusion_without_a_utility_is_the_confusion_matrix():
    from sklearn.metrics import confusion_matrix

    display = ConfusionUtilityDisplay.from_estimator(UtilityClassifier(GaussianNB()).fit(X, Y), X, Y)
    np.testing.assert_array_equal(display.counts, confusion_matrix(Y, MODEL.predict(X)))
    np.testing.assert_array_equal(display.utility, np.eye(3))


def test_confusion_refuses_unknown_actions():
    with pytest.raises(ValueError, match="actions holds 'sell', which is not among the utility's actions 'collect'"):
        ConfusionUtilityDisplay.from_predictions(["setosa"], ["sell"], PICK)


def test_confusion_of_a_utility_from_a_file(tmp_path):
    path = tmp_path / "utility.csv"
    path.write_text("state,go,stay\n2,5,0\n1,-3,1\n0,0,1\n")
    model = UtilityClassifier(GaussianNB(), Utility.from_csv(path)).fit(X, CODES)
    display = ConfusionUtilityDisplay.from_estimator(model, X, CODES)
    assert display.counts.sum(axis=1).tolist() == [50, 50, 50]


def test_confusion_of_any_classifier_is_zero_one():
    """As the other displays take it."""
    assert ConfusionUtilityDisplay.from_estimator(MODEL, X, Y).counts.trace() == (MODEL.predict(X) == Y).sum()


# Regions


def test_regions_are_the_actions_over_a_grid():
    display = DecisionRegionDisplay.from_estimator(MODEL, X, utility=PICK, resolution=12)
    (first, second), low, span = display.grid, X.min(axis=0), np.ptp(X, axis=0)
    for values, d in ((first, 0), (second, 1)):
        np.testing.assert_allclose(values, np.linspace(low[d] - 0.05 * span[d], low[d] + 1.05 * span[d], 12))
    margins = np.empty((12, 12))
    for j, z in enumerate(second):
        for i, x in enumerate(first):
            expected = MODEL.predict_proba([[x, z]])[0] @ U
            assert display.codes[j, i] == expected.argmax()
            margins[j, i] = np.diff(np.sort(expected)[-2:])[0]
    np.testing.assert_allclose(display.certainty, margins / margins.max(), atol=1e-9)
    assert len(np.unique(display.codes)) > 2
    assert sorted(texts(display.ax_)) == sorted(PICK.actions[np.unique(display.codes)])
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x0", "x1")


def test_regions_without_a_utility_are_the_classes():
    display = DecisionRegionDisplay.from_estimator(MODEL, X, resolution=10)
    A, B = np.meshgrid(*display.grid)
    predicted = MODEL.predict(np.column_stack([A.ravel(), B.ravel()])).reshape(10, 10)
    np.testing.assert_array_equal(CLASSES[display.codes], predicted)
    acting = DecisionRegionDisplay.from_estimator(ACTING, X, resolution=10)
    given = DecisionRegionDisplay.from_estimator(MODEL, X, utility=PICK, resolution=10)
    np.testing.assert_array_equal(acting.codes, given.codes)


@pytest.mark.parametrize("at", [None, [9.0, 9.0, 2.5, 3.5]])
def test_other_features_stay_where_they_are_put(at):
    X = load_iris().data[:, [2, 3, 0, 1]]
    model = GaussianNB().fit(X, Y)
    display = DecisionRegionDisplay.from_estimator(model, X, features=(1, 0), at=at, resolution=6)
    A, B = np.meshgrid(*display.grid)
    others = X.mean(axis=0)[2:] if at is None else at[2:]
    points = np.column_stack([B.ravel(), A.ravel(), np.tile(others, (36, 1))])
    np.testing.assert_array_equal(CLASSES[display.codes].ravel(), model.predict(points))
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x1", "x0")


def test_regions_show_the_truth_of_rows():
    display = DecisionRegionDisplay.from_estimator(MODEL, X, Y, resolution=10)
    legend = display.ax_.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == CLASSES.tolist()
    clouds = [np.asarray(cloud.get_offsets()) for cloud in display.ax_.collections if len(cloud.get_offsets()) == 50]
    for k, cloud in enumerate(clouds):
        np.testing.assert_array_equal(cloud, X[k == CODES])
    assert len(clouds) == 3


def test_one_action_everywhere_needs_no_border():
    utility = Utility([[1], [1], [1]], CLASSES, ["wait"])
    display = DecisionRegionDisplay.from_estimator(MODEL, X, utility=utility, resolution=8)
    assert not display.codes.any()
    assert texts(display.ax_) == ["wait"]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame,
        pl.DataFrame,
    ],
)
def test_regions_of_a_table_have_its_names(table):
    given = table({"length": X[:, 0], "width": X[:, 1]})
    model = SoftmaxRegression().fit(given, Y)
    display = DecisionRegionDisplay.from_estimator(model, given, resolution=8)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length", "width")
    plain = DecisionRegionDisplay.from_estimator(SoftmaxRegression().fit(X, Y), X, resolution=8)
    np.testing.assert_array_equal(display.codes, plain.codes)


# Posterior checks


def test_a_check_is_drawn_in_standard_deviations():
    display = PosteriorCheckDisplay.from_estimator(BAYES, X[1::2], Y[1::2], n_draws=200, name="tied")
    check, ax = display.check, display.ax_
    dots = [line for line in ax.lines if line.get_marker() in ("o", "<", ">")]
    bands = [line for line in ax.lines if line.get_linewidth() == 3]
    for place, (each, dot, band) in enumerate(zip(check.statistics.values(), dots, bands, strict=True)):
        centre, sd = each.replicated.mean(), each.replicated.std()
        assert dot.get_xydata().tolist() == [[pytest.approx((each.observed - centre) / sd), place]]
        np.testing.assert_allclose(band.get_xdata(), (np.array(each.interval) - centre) / sd)
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["accuracy", "log loss"]
    assert texts(ax)[0].endswith(f"tail {check['accuracy'].tail_probability:.3f}")
    assert ax.get_title() == "tied"


def test_a_number_beyond_the_axis_points_outwards():
    replicated = np.random.default_rng(0).normal(size=100)
    statistics = [CheckedStatistic("far", 90.0, replicated), CheckedStatistic("near", 0.1, replicated)]
    check = PosteriorCheck({each.name: each for each in statistics}, 10, 100)
    display = PosteriorCheckDisplay.from_check(check)
    far, near = (line for line in display.ax_.lines if line.get_marker() in ("o", "<", ">"))
    assert (far.get_marker(), far.get_xdata()[0], near.get_marker()) == (">", 6.0, "o")
    assert far.get_color() != near.get_color()
    assert display.ax_.get_title() == ""


def test_a_comparison_has_a_point_and_a_bar_for_each_model():
    display = ComparisonDisplay.from_estimators({"naive": GaussianNB(), "linear": SoftmaxRegression(0.1)}, X, Y)
    models = display.comparison.models
    assert [label.get_text().split("\n")[0] for label in display.ax_.get_yticklabels()] == [m.name for m in models]
    bars = display.ax_.containers[1]
    np.testing.assert_allclose(bars.lines[0].get_xdata(), [m.difference for m in models])
    ends = bars.lines[2][0].get_segments()[1][:, 0]
    np.testing.assert_allclose(ends, models[1].difference + np.array([-1, 1]) * models[1].difference_error)
    assert models[0].name in display.ax_.get_xlabel()
