"""Labels replicated under draws, and the numbers made of them, against plain formulas."""

import numpy as np
import pytest

from posteriori.decision.replication import CheckedStatistic, check_labels, replicated_labels

RNG = np.random.default_rng(3)
P = RNG.dirichlet([1.0, 2.0, 3.0], (40, 25))
CODES = RNG.integers(0, 3, 25)
CLASSES = ["a", "b", "c"]


def check(**options):
    given = {"P": P, "codes": CODES, "classes": CLASSES, "weights": None, "rng": np.random.default_rng(0)} | options
    return check_labels(**given)


def test_labels_have_the_frequencies_of_their_probabilities():
    fixed = np.broadcast_to(P[0], (20_000, 25, 3))
    labels = replicated_labels(fixed, np.random.default_rng(1))
    for k in range(3):
        error = np.sqrt(P[0, :, k] * (1 - P[0, :, k]) / 20_000)
        assert (np.abs((labels == k).mean(axis=0) - P[0, :, k]) < 4.5 * error).all()


def test_a_class_of_probability_zero_never_comes():
    sure = np.zeros((500, 2, 3))
    sure[:, 0, 0] = sure[:, 1, 2] = 1.0
    np.testing.assert_array_equal(replicated_labels(sure, np.random.default_rng(0)), np.tile([0, 2], (500, 1)))


def test_equal_numbers_count_one_half_in_a_tail():
    statistic = CheckedStatistic("t", 1.0, np.array([0.0, 1.0, 1.0, 2.0]))
    assert statistic.tail_probability == 0.5
    assert CheckedStatistic("t", 3.0, statistic.replicated).tail_probability == 0.0


@pytest.mark.parametrize("weights", [None, RNG.uniform(0.1, 3.0, 25)], ids=["alike", "weighted"])
def test_statistics_are_those_of_their_definitions(weights):
    found = check(weights=weights)
    c = np.ones(25) if weights is None else weights
    mean = P.mean(axis=0)
    labels = replicated_labels(P, np.random.default_rng(0))
    for place, y in enumerate([CODES, *labels[:5]]):
        expected = {
            "accuracy": np.average(mean.argmax(axis=1) == y, weights=c),
            "log_loss": np.average(-np.log(mean[np.arange(25), y]), weights=c),
            "frequency of b": np.average(y == 1, weights=c),
        }
        for name, value in expected.items():
            each = found[name]
            assert (each.observed if place == 0 else each.replicated[place - 1]) == pytest.approx(value, rel=1e-12)


def test_calibration_error_of_one_probability_is_its_distance_from_the_frequency():
    same = np.broadcast_to([0.7, 0.2, 0.1], (10, 25, 3))
    found = check(P=same)["calibration_error"]
    assert found.observed == pytest.approx(abs(0.7 - (CODES == 0).mean()))


def test_an_impossible_label_costs_infinity_and_its_tail_is_zero():
    never = np.tile([0.5, 0.5, 0.0], (10, 25, 1))
    found = check(P=never, codes=np.full(25, 2))["log_loss"]
    assert found.observed == np.inf
    assert found.tail_probability == 0.0


def test_rows_and_labels_must_be_as_many():
    with pytest.raises(ValueError, match="X has 25 rows, and y has 3 labels"):
        check(codes=CODES[:3])


def test_the_table_and_the_text_say_the_same():
    found = check()
    frame = found.to_frame()
    assert list(frame.index) == ["accuracy", "log_loss", "calibration_error", *(f"frequency of {k}" for k in CLASSES)]
    np.testing.assert_allclose(frame["mean"]["log_loss"], found["log_loss"].replicated.mean())
    np.testing.assert_allclose(
        frame.loc["accuracy", ["lower", "upper"]], np.quantile(found["accuracy"].replicated, [0.025, 0.975])
    )
    assert "PosteriorCheck of 25 rows by 40 draws" in repr(found)
    assert f"{frame['tail_probability']['log_loss']:.3f}" in repr(found)
    with pytest.raises(KeyError, match="no statistic is called 'brier'; there are accuracy"):
        found["brier"]
