"""The benchmarks of decisions: each runs on a tiny problem and writes its page."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import calibration, calibration_maps, conformal, deciding, turns
from scipy.stats import betabinom


@pytest.fixture(autouse=True)
def without_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SETTLE", 0.0)


def test_decisions_are_timed_against_their_product(tmp_path: Path) -> None:
    deciding.run(tmp_path, quick=True)
    (line,) = map(json.loads, (tmp_path / "deciding.jsonl").read_text().splitlines())
    assert line["ratio"] > 0
    assert line["decide"] > 0
    assert "| 10k x 20 x 20 |" in (tmp_path / "deciding.md").read_text()


def test_coverage_is_counted_against_its_law(tmp_path: Path) -> None:
    conformal.run(["iris"], None, tmp_path, quick=True)
    lines = [json.loads(line) for line in (tmp_path / "conformal.jsonl").read_text().splitlines()]
    assert {line["score"] for line in lines} == {"lac", "aps"}
    for line in lines:
        k = int(np.ceil((line["n_cal"] + 1) * 0.9))
        law = betabinom(line["n_test"], k, line["n_cal"] + 1 - k)
        tail = min(law.cdf(line["covered"]), 1 - law.cdf(line["covered"] - 1))
        assert line["p"] == pytest.approx(min(1, 2 * tail))
    assert "Promise kept on 2 of 2" in (tmp_path / "conformal.md").read_text()


def test_a_broken_promise_is_named() -> None:
    line = {
        "problem": "x",
        "score": "lac",
        "n_cal": 50,
        "n_test": 50,
        "covered": 10,
        "p": 1e-9,
        "size": 1.0,
        "size_each": 1.0,
        "by_class": [[], []],
    }
    assert "Broken: x (lac)." in conformal.page([line])


def test_calibration_is_measured_against_the_classifier_as_it_is(tmp_path):
    calibration.run(tmp_path, quick=True)
    lines = [json.loads(line) for line in (tmp_path / "calibration.jsonl").read_text().splitlines()]
    assert [line["member"] for line in lines] == ["logistic, C=inf", "naive Bayes"]
    for line in lines:
        change, error = line["posteriori"]
        assert change <= 2 * error + 1e-4
        assert line["plain"] > 0
    assert "| all | 2 |" in (tmp_path / "calibration.md").read_text()


def test_clear_changes_are_counted():
    changes = [(-0.2, 0.01), (-0.2, 0.15), (0.3, 0.1), (0.4, 0.1), (5e-5, 1e-6)]
    assert calibration.counts(changes) == "1 / 2 / 0.400"
    assert calibration.counts([(-0.2, 0.01)]) == "1 / 0 / -"


def test_maps_learn_from_the_same_left_out_rows(tmp_path):
    calibration_maps.run(None, None, tmp_path, quick=True)
    lines = [json.loads(line) for line in (tmp_path / "calibration_maps.jsonl").read_text().splitlines()]
    of_sets = [line for line in lines if "member" in line]
    assert {line["problem"] for line in of_sets} == {"iris", "wine"}
    for line in of_sets:
        assert {"auto", "temperature", "temperature scaling", "isotonic"} <= set(line["changes"])
        assert line["rows"] in (90, 106)
    (two, four) = [line for line in lines if "member" not in line]
    assert -1e-9 < two["changes"]["auto"] < two["changes"]["isotonic"]
    assert -1e-9 < four["changes"]["auto"] < four["changes"]["isotonic"]
    page = (tmp_path / "calibration_maps.md").read_text()
    assert "| all | 2 |" in page
    assert "| 30 x 4 |" in page


def test_wins_and_goals_of_maps_are_counted():
    found = [
        {"problem": "a", "member": "m", "rows": 9, "plain": 1.0, "seconds": {},
         "changes": {"auto": ours, "SMS": theirs}}
        for ours, theirs in [(-0.2, -0.1), (0.05, 0.05), (-0.1, 0.3), (0.0, -0.9)]
    ]  # fmt: skip
    assert calibration_maps.won(found, "SMS") == pytest.approx(2.5 / 4)
    assert calibration_maps.won(found, "isotonic") is None
    assert calibration_maps.goal("all", found, 0.625) == "no: mean change above that of SMS"
    assert calibration_maps.goal("m", found[1:2], 0.5) == "no: worse by 0.0500"
    assert "a, m (9 rows) +0.050" in calibration_maps.worst(found)
