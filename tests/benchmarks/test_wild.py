"""Random hard problems: none may crash, hang or leak a warning, and those that do must be found."""

import json
import warnings

import numpy as np
import pytest
from benchmarks.wild import fuzz, hard_problems, properties

from posteriori import SoftmaxRegression


def failures(seed, numbers):
    found = (fuzz.case(seed, number, quick=True) for number in numbers)
    return [f"case {each.number}: {each.end} {each.what} {each.leaked} | {each.words}" for each in found if each.failed]


def test_tiny_problems_end_in_values_or_a_sentence():
    assert failures(0, range(25)) == []


@pytest.mark.slow
def test_many_tiny_problems_end_in_values_or_a_sentence():
    assert failures(0, range(25, 2000)) == []


def test_a_problem_is_the_same_each_time():
    one, two = (hard_problems.problem(3, 17) for _ in range(2))
    assert one.name == two.name
    np.testing.assert_array_equal(one.dense, two.dense)


class Misbehaves(SoftmaxRegression):
    """A classifier that fails in one way."""

    how = ""

    def predict_proba(self, X):
        if self.how == "crashes":
            return np.linalg.inv(np.zeros((2, 2)))
        if self.how == "numpy's words":
            return np.zeros(3) + np.zeros(2)
        if self.how == "refuses":
            raise ValueError("These rows cannot be predicted today.")
        if self.how == "leaks":
            np.log(np.zeros(1))
        if self.how == "takes long":
            while True:
                pass
        P = super().predict_proba(X)
        return 2.0 * P if self.how == "wrong" else P


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("crashes", "crashed"),
        ("numpy's words", "crashed"),
        ("refuses", "crashed"),  # a sentence, but not one of posteriori's
        ("wrong", "wrong"),
        ("takes long", "hang"),
        ("leaks", "right"),
        ("", "right"),
    ],
)
def test_every_kind_of_failure_is_told_from_the_others(how, end, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    model = type("Model", (Misbehaves,), {"how": how})()
    given = hard_problems.Problem(["a model"], model, X, y, None, [X], 2, X)
    monkeypatch.setattr(fuzz, "problem", lambda *arguments: given)
    outcome = fuzz.case(0, 0, limit=0.5)
    assert outcome.end == end, outcome
    assert bool(outcome.leaked) == (how == "leaks")
    assert outcome.failed == (how != "")


def test_refusals_are_sentences_that_posteriori_raises():
    with pytest.raises(ValueError, match="alpha") as found, warnings.catch_warnings():
        SoftmaxRegression(alpha=-1).fit(np.eye(3), [0, 1, 2])
    assert properties.is_refusal(found.value)
    with pytest.raises(ValueError, match="broadcast") as found:
        np.zeros(2) + np.zeros(3)
    assert not properties.is_refusal(found.value)


def test_reasons_of_refusals_are_counted_without_their_numbers():
    one = fuzz.anonymous("fit: ValueError: column 'a' holds 3 values up to 1e+300")
    assert one == fuzz.anonymous("fit: ValueError: column 'b' holds 17 values up to 2.5e-12")


@pytest.mark.slow
def test_two_processes_run_the_cases_and_the_record_is_stored(tmp_path, capsys):
    assert fuzz.run(tmp_path, cases=3, seed=0, jobs=2)
    line = json.loads((tmp_path / "wild_fuzz.jsonl").read_text())
    assert line["cases"] == 3
    assert sum(line[end] for end in fuzz.LINES) == 3
    assert "| 0 | 3 |" in (tmp_path / "wild_fuzz.md").read_text()
    assert "right" in capsys.readouterr().out
