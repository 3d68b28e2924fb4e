"""The benchmark of depth: sets, equal time, differences and the page, against sums by hand."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks import gp_depth, turns
from benchmarks.gp_depth import DEEP, EQUAL, GIVEN, GP, Judged, Rows

import posteriori as po
from posteriori.gp.solution import Chunk


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rests, as times are not looked at."""
    monkeypatch.setattr(turns, "SETTLE", 0.0)


def chunks(*seconds: float) -> list[Chunk]:
    return [Chunk(10 * (i + 1), 0.0, 0.02, at) for i, at in enumerate(seconds)]


def test_steps_are_counted_in_chunks_and_leave_time_for_the_rest_of_a_fit() -> None:
    trace = chunks(0.5, 1.0, 1.9, 2.4)  # half a second for ten steps, but for one that was held up
    assert gp_depth.steps_within(5.0, 3.4, trace) == 80  # a second is for all but steps
    assert gp_depth.steps_within(5.4, 3.4, trace) == 80
    assert gp_depth.steps_within(0.1, 3.4, trace) == 10


@pytest.mark.parametrize(("name", "D"), [("warped", 2), ("composed", 4)])
def test_a_set_made_here_is_of_functions_of_its_hidden_layer(name: str, D: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(gp_depth, "MADE_ROWS", 60)
    rows = gp_depth.MADE[name]()
    assert (rows.X.shape, rows.hidden.shape) == ((60, D), (60, 2))
    assert np.bincount(rows.y).size == gp_depth.CLASSES
    np.testing.assert_array_equal(gp_depth.MADE[name]().y, rows.y)


def test_functions_are_drawn_with_their_covariance() -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    F = gp_depth.drawn(X, 40_000, np.random.default_rng(0))
    near = math.exp(-0.5)
    np.testing.assert_allclose(F @ F.T / 40_000, [[1, near, 0], [near, 1, 0], [0, 0, 1]], atol=0.03)


def test_sets_that_are_not_at_hand_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    np.savez(tmp_path / "glass.npz", X=np.ones((20, 2)), y=np.repeat(list("abc"), [10, 9, 1]))
    found = gp_depth.sets(("wine", "vowel", "glass"), tmp_path)
    assert list(found) == ["wine", "glass"]  # the large ones first
    assert (found["glass"].merged, np.bincount(found["glass"].y).tolist()) == (1, [10, 10])
    assert "vowel skipped" in capsys.readouterr().out
    assert list(gp_depth.sets(None, None, quick=True)) == ["iris"]


def test_folds_are_the_first_of_five() -> None:
    rows = Rows(np.zeros((40, 1)), np.repeat([0, 1], 20))
    first, second = gp_depth.splits(rows, 2)
    assert sorted([*first.train, *first.test]) == list(range(40))
    assert len(first.test) == len(second.test) == 8
    np.testing.assert_array_equal(first.train, next(gp_depth.splits(rows, 1)).train)


class Shares:
    """Knows the frequencies of its training rows, and no more."""

    n_iter_ = 7
    solution_ = SimpleNamespace(status="converged")

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Shares":
        self.P = np.bincount(y) / len(y)
        return self

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        return np.log(np.tile(self.P, (len(X), 1)))


def deep_of(seen: list[dict]) -> Callable[..., Any]:
    """Return a constructor that keeps its settings, of models that know a little less."""

    class Deep(Shares):
        max_iter = 1000

        def __init__(self, **settings: Any) -> None:
            seen.append(settings)
            self.solution_ = SimpleNamespace(status="iteration limit", trace=chunks(1e-9, 2e-9))

        def fit(self, X: np.ndarray, y: np.ndarray) -> "Deep":
            self.P = np.array([0.5, 0.5])
            return self

    return Deep


def test_two_layers_have_as_many_steps_as_fit_and_no_more_than_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict] = []
    monkeypatch.setattr(po, "GPClassifier", Shares)
    monkeypatch.setattr(po, "DeepGPClassifier", deep_of(seen))
    rows = Rows(np.zeros((40, 1)), np.repeat([0, 1], [30, 10]), np.ones((40, 2)))
    (split,) = gp_depth.splits(rows, 1)
    monkeypatch.setattr(gp_depth, "steps_within", lambda seconds, took, trace: 50)
    found = gp_depth.short_fits(split)
    assert list(found) == [GP, EQUAL, GIVEN]
    assert seen == [{}, {"max_iter": 1}, {"max_iter": gp_depth.TRIAL}]
    assert found[EQUAL].numbers["allowed_steps"] == 50
    assert found[EQUAL].numbers["allowed_seconds"] == found[GP].numbers["seconds"]
    assert found[GP].numbers["loss"] == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    monkeypatch.setattr(gp_depth, "steps_within", lambda seconds, took, trace: 5000)
    assert gp_depth.short_fits(split)[EQUAL].numbers["allowed_steps"] == 1000


def test_the_long_fit_has_all_defaults_unless_it_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict] = []
    monkeypatch.setattr(po, "DeepGPClassifier", deep_of(seen))
    monkeypatch.setattr(gp_depth, "steps_within", lambda seconds, took, trace: round(seconds))
    (split,) = gp_depth.splits(Rows(np.zeros((40, 1)), np.repeat([0, 1], [30, 10])), 1)
    found = gp_depth.long_fit(split)[DEEP].numbers
    assert seen == [{}, {"max_iter": 1}]
    assert (found["allowed_steps"], found["allowed_seconds"]) == (1000, None)
    assert found["loss"] == pytest.approx(math.log(2.0))
    assert gp_depth.long_fit(split._replace(limit=90.0))[DEEP].numbers["allowed_steps"] == 90


def test_a_fit_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Shares):
        def fit(self, X: np.ndarray, y: np.ndarray) -> "Fails":
            raise FloatingPointError("no")

    monkeypatch.setattr(po, "GPClassifier", Fails)
    (split,) = gp_depth.splits(Rows(np.zeros((20, 1)), np.repeat([0, 1], 10), np.zeros((20, 1))), 1)
    assert gp_depth.short_fits(split) == {GP: "FloatingPointError: no", GIVEN: "FloatingPointError: no"}


def one(losses: list[float], seconds: float = 2.0, **more: Any) -> Judged:
    """Return what a fold with these losses says."""
    numbers = {"loss": float(np.mean(losses)), "error": 0.25, "seconds": seconds, "steps": 30, "status": "converged"}
    numbers |= {"allowed_steps": 40, "allowed_seconds": 90.0}
    return Judged(np.array(losses), numbers | more)


def test_a_page_has_paired_differences_and_says_where_depth_pays(tmp_path: Path) -> None:
    better = {
        ("iris", 0): {GP: one([1.0, 2.0]), EQUAL: one([0.5, 1.0], compile_seconds=5.0)},
        ("iris", 1): {GP: one([3.0, 3.0]), EQUAL: one([2.5, 2.0], compile_seconds=4.0), DEEP: "E: e"},
    }
    worse = {("warped", 0): {GP: one([1.0, 1.0]), DEEP: one([1.5, 1.7], seconds=60.0, compile_seconds=6.0)}}
    rows = Rows(np.zeros((20, 2)), np.repeat([0, 1], 10))
    gp_depth.store(tmp_path, "warped", rows, better | worse)
    gp_depth.store(tmp_path, "iris", rows, better | worse)
    page = (tmp_path / "gp_depth.md").read_text().splitlines()
    iris, warped = [line for line in page if line.startswith(("| iris ", "| warped "))]
    difference = f"-0.7500 ± {0.25 / math.sqrt(3):.4f}"
    assert iris == (
        "| iris | 20 | 2 | 2 | 2 / 2 / 0 | 2.2500 / 0.250 | 1.5000 / 0.250 |  |  "
        f"| {difference} |  | 2 | 2 |  |  | 5 | 30 / 40 |  | 1 |"
    )
    assert warped.startswith("| warped | 20 | 2 | 2 | 1 / 0 / 1 | 1.0000 / 0.250 |  | 1.6000 / 0.250 |")
    assert warped.endswith("| 2 |  | 60 | 90 | 6 |  | 30 / 40 | 0 |")
    lower, higher = [line for line in page if line.startswith("- two layers")]
    assert "errors on: iris; higher on: none; neither on: none." in lower
    assert higher.endswith("errors on: none; higher on: warped; neither on: none.")
    lines = [json.loads(line) for line in (tmp_path / "gp_depth.jsonl").read_text().splitlines()]
    assert [line.get("failure") for line in lines if line["problem"] == "iris"] == [None, None, None, "E: e", None]
    assert not any("losses" in line for line in lines)
