"""The worked examples do what they say."""

import re
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from examples import triage
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def lines():
    """What the triage of tumours prints: mean utility, gain over argmax and its error, share of second opinions."""
    printed = StringIO()
    with redirect_stdout(printed), threadpool_limits(1):
        triage.main(n_repeats=1)
    pattern = re.compile(r"^(\S.+?) {2,}(-?[\d.]+) +([+-][\d.]+) \+- ([\d.]+) +([\d.]+)%", re.MULTILINE)
    return {match[1]: [float(value) for value in match.groups()[1:]] for match in pattern.finditer(printed.getvalue())}


def test_every_way_to_decide_is_shown(lines):
    assert list(lines) == [
        "argmax",
        "threshold tuned by scikit-learn",
        "expected utility, two actions",
        "expected utility, second opinion",
        "the same, Bayesian probabilities",
    ]
    assert lines["argmax"][1:] == [0.0, 0.0, 0.0]
    for utility, gain, _, _ in lines.values():
        assert utility - lines["argmax"][0] == pytest.approx(gain, abs=2e-4)


@pytest.mark.parametrize("way", ["expected utility, second opinion", "the same, Bayesian probabilities"])
def test_a_second_opinion_where_it_pays_is_worth_more_than_argmax(lines, way):
    """By more than its standard error, and more than any way with two actions alone."""
    utility, gain, error, share = lines[way]
    assert gain > 1.5 * error > 0
    assert utility > max(values[0] for name, values in lines.items() if values[3] == 0)
    assert 5 < share < 30


def test_costs_alone_are_worth_something(lines):
    assert lines["expected utility, two actions"][1] > 0
    assert lines["expected utility, two actions"][3] == 0


def test_utilities_are_those_of_the_table():
    worth = triage.utilities(
        ["malignant", "malignant", "malignant", "benign", "benign", "benign"],
        ["operate", "send home", "second opinion"] * 2,
    )
    assert worth.tolist() == [0, -20, -0.5, -2, 0, -0.5]
    assert triage.gain(["malignant", "benign"], np.array(["benign", "malignant"])) == -11
