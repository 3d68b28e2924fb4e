"""Scores of predictions on labelled rows, by hand and against scikit-learn."""

import json

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.naive_bayes import GaussianNB

import posteriori as po
from posteriori.reports import evaluation
from posteriori.reports.evaluation import score_probabilities

RNG = np.random.default_rng(0)
CLASSES = np.array(["a", "b", "c"])


def drawn(n):
    P = RNG.dirichlet([1.0, 2.0, 0.5], size=n)
    return CLASSES[(P.cumsum(axis=1) < RNG.random((n, 1))).sum(axis=1)], P


def test_scores_by_hand():
    P = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
    scored = score_probabilities(["a", "b", "c", "c"], P, CLASSES)
    assert scored.scores["accuracy"].value == 0.75
    surprise = -np.log([0.5, 0.8, 0.2, 0.8])
    np.testing.assert_allclose(scored.surprise, surprise, rtol=1e-12)
    assert scored.scores["log_loss"].value == pytest.approx(surprise.mean())
    squares = [0.25 + 0.09 + 0.04, 0.01 + 0.04 + 0.01, 0.36 + 0.04 + 0.64, 0.01 + 0.01 + 0.04]
    assert scored.scores["brier"].value == pytest.approx(np.mean(squares))
    assert scored.scores["log_loss_of_frequencies"].value == pytest.approx(1.5 * np.log(2.0))
    np.testing.assert_array_equal(scored.confusion, [[1, 0, 0], [0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(scored.codes, [0, 1, 2, 2])


def test_scores_are_those_of_scikit_learn():
    y, P = drawn(500)
    scored = score_probabilities(y, P, CLASSES)
    assert scored.scores["log_loss"].value == pytest.approx(log_loss(y, P, labels=CLASSES))
    np.testing.assert_array_equal(scored.confusion, confusion_matrix(y, CLASSES[P.argmax(axis=1)], labels=CLASSES))


def test_intervals():
    y, P = drawn(400)
    scores = score_probabilities(y, P, CLASSES).scores
    hits = int((CLASSES[P.argmax(axis=1)] == y).sum())
    wilson = binomtest(hits, 400).proportion_ci(method="wilson")
    np.testing.assert_allclose(scores["accuracy"][1:], wilson, rtol=1e-9)
    each = -np.log(P[np.arange(400), np.searchsorted(CLASSES, y)])
    half = 1.959964 * each.std(ddof=1) / 20.0
    np.testing.assert_allclose(scores["log_loss"][1:], [each.mean() - half, each.mean() + half], rtol=1e-6)
    for score in scores.values():
        assert score.lower <= score.value <= score.upper
    assert scores["calibration_error"].lower < 0.03  # labels were drawn from these probabilities


def test_the_interval_of_the_log_loss_covers_the_truth(monkeypatch):
    """True entropy of the process, in about 95 of 100 repetitions."""
    monkeypatch.setattr(evaluation, "_BOOTSTRAP", 0)  # of the calibration error, which is not looked at
    inside = 0
    truth = np.mean([-(p * np.log(p)).sum() for p in RNG.dirichlet([1.0, 2.0, 0.5], size=100_000)])
    for _ in range(100):
        y, P = drawn(300)
        each = score_probabilities(y, P, CLASSES).scores["log_loss"]
        inside += each.lower <= truth <= each.upper
    assert inside >= 87


@pytest.mark.parametrize("n", [1, 2])
def test_a_row_or_two(n):
    scored = score_probabilities(["b"] * n, [[0.2, 0.5, 0.3]] * n, CLASSES)
    assert scored.scores["accuracy"].value == 1.0
    assert all(np.isfinite(score.value) for score in scored.scores.values())
    assert scored.scores["accuracy"].has_interval
    assert scored.scores["log_loss"].has_interval == (n > 1)
    if n == 1:  # a single row says nothing about how much rows differ
        loss = scored.to_dict()["scores"]["log_loss"]
        assert (loss["lower"], loss["upper"]) == (None, None)


def test_plain_values_for_programs():
    y, P = drawn(30)
    out = json.loads(json.dumps(score_probabilities(y, P, CLASSES).to_dict(), allow_nan=False))
    assert out["rows"] == 30
    assert out["classes"] == ["a", "b", "c"]
    assert sum(sum(row.values()) for row in out["confusion"].values()) == 30
    assert set(out["scores"]["accuracy"]) == {"value", "lower", "upper"}


def test_a_class_held_impossible_is_finite():
    scored = score_probabilities(["a", "b"], [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], CLASSES)
    assert np.isfinite(scored.scores["log_loss"].value)
    assert scored.surprise[0] > 600.0


def test_an_unknown_label_is_told_of():
    with pytest.raises(ValueError, match="'z'"):
        score_probabilities(["z", "a"], [[0.2, 0.3, 0.5]] * 2, CLASSES)


def test_rows_that_occur_more_than_once_are_counted():
    X = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0], [5.0, 6.0]])
    y = np.array([0, 1, 0, 1, 1])
    model = GaussianNB().fit(X, y)
    found = po.evaluate(model, X, y)
    assert found.n_twins == 2  # the fourth row has another label
    assert found.to_dict()["rows_with_a_twin"] == 2
    assert repr(found).endswith("; 2 rows have a twin)")
