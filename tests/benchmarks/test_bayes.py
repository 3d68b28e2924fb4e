"""The pure parts of the Bayesian benchmarks: merging, paired differences, goals, simulation, coverage, distances."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import blocks, coverage, honesty, price, quality, turns
from benchmarks.against_laplace_torch import OURS, Setting, agreement, compared, fastest, table
from benchmarks.turns import by_turns, ordered
from scipy.stats import chi2_contingency


def test_rare_classes_are_merged_two_smallest_first() -> None:
    y = np.repeat([3, 5, 7, 9, 11], [41, 4, 20, 5, 8])
    merged, times = quality.merge_rare(y, least=7)
    assert times == 1
    assert sorted(np.bincount(merged)) == [8, 9, 20, 41]
    assert len(np.unique(merged[(y == 5) | (y == 9)])) == 1
    same, none = quality.merge_rare(y, least=4)
    assert none == 0
    np.testing.assert_array_equal(same, np.unique(y, return_inverse=True)[1])


def fold(method: str, number: int, losses: np.ndarray, default: np.ndarray, seconds: float | None) -> dict:
    excess = default - losses
    return {
        "problem": "p",
        "shape": (20, 2, 3),
        "merged": 0,
        "method": method,
        "fold": number,
        "rows": len(losses),
        "prior_loss": 2.0,
        "seconds": seconds,
        "loss": losses.mean(),
        "excess_sum": excess.sum(),
        "excess_squares": excess @ excess,
        "approximation": "laplace" if method == quality.DEFAULT else None,
    }


def test_paired_differences_are_those_of_all_rows_together() -> None:
    rng = np.random.default_rng(0)
    default, peer = rng.gamma(1.0, size=(2, 10)), rng.gamma(1.0, size=(2, 10))
    lines = []
    for number in range(2):
        mine = default[number]
        lines += [
            fold(quality.DEFAULT, number, mine, mine, 0.5),
            fold(quality.PLUGIN, number, mine + 0.25, mine, None),
            fold(quality.LAPLACE, number, mine, mine, 0.25),
            fold(quality.PEER, number, peer[number], mine, 5.0 * (number + 1)),
        ]
    summary = quality.summarise(lines)
    difference = (default - peer).ravel()
    assert summary["to_peer"] == pytest.approx((difference.mean(), difference.std(ddof=1) / math.sqrt(20)))
    assert summary["to_plugin"] == pytest.approx((-0.25, 0.0), abs=1e-7)
    assert summary["losses"][quality.PEER] == pytest.approx(peer.mean())
    assert summary["skill"][quality.DEFAULT] == pytest.approx(1 - default.mean() / 2.0)
    assert summary["times_as_fast"] == pytest.approx(15.0)
    page = quality.page(lines)
    assert f"{peer.mean():.4f}" in page
    assert "against plug-in" in page


def test_the_peer_has_the_threads_that_are_faster_over_all_folds() -> None:
    lines = [{"method": quality.PEER, "seconds_by_threads": pair} for pair in ([1.0, 3.0], [4.0, 1.0])]
    lines.append({"method": quality.DEFAULT, "seconds": 0.5})
    first, second, ours = quality.with_best_threads(lines)
    assert [(line["seconds"], line["threads"]) for line in (first, second)] == [(3.0, 2), (1.0, 2)]
    assert ours == {"method": quality.DEFAULT, "seconds": 0.5}


@pytest.mark.parametrize(
    ("difference", "loss", "expected"),
    [((0.006, 0.0), 0.1, True), ((0.004, 0.0), 0.1, False), ((0.04, 0.0), 1.0, False), ((0.06, 0.07), 1.0, False)],
)
def test_worse_means_beyond_share_floor_and_standard_error(
    difference: tuple[float, float], loss: float, expected: bool
) -> None:
    assert quality.worse(difference, loss, 0.05) is expected


def test_probabilities_of_zero_cost_what_the_floor_says() -> None:
    class Sure:
        def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
            return np.log([[1.0, 0.0], [0.25, 0.75]])

    losses = quality.row_losses(Sure(), np.zeros((2, 1)), np.array([1, 0]))
    np.testing.assert_allclose(losses, [-quality.FLOOR, math.log(4)])


def test_simulated_data_follow_the_prior_of_the_fit() -> None:
    spread, intercepts = [], []
    for seed in range(300):
        data = coverage.simulate(4.0, seed)
        np.testing.assert_allclose(data.P_new.sum(axis=1), 1.0)
        F = np.log(data.P_new)
        contrast = F[:, 0] - F[:, 1]
        design = np.column_stack([data.X_new, np.ones(len(contrast))])
        w = np.linalg.lstsq(design, contrast, rcond=None)[0]
        spread.extend(w[:-1])
        intercepts.append(w[-1] + w[:-1] @ data.X.mean(axis=0))
    assert np.var(spread) == pytest.approx(2 / 4.0, rel=0.1)
    assert np.var(intercepts) == pytest.approx(2 * 2.5**2, rel=0.25)


def test_coverage_has_standard_errors_over_data_sets() -> None:
    line = {"levels": [0.5, 0.9], "covered": [[0.4, 0.9], [0.6, 0.9], [0.5, 0.9]]}
    (half, error), (most, none) = coverage.estimates(line)
    assert (half, most, none) == pytest.approx((0.5, 0.9, 0.0), abs=1e-12)
    assert error == pytest.approx(0.1 / math.sqrt(3))
    assert coverage.met(line)
    assert not coverage.met({"levels": [0.5], "covered": [[0.47], [0.47]]})


def test_total_variation_is_half_the_sum_of_absolute_differences() -> None:
    P = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    Q = np.array([[0.0, 0.0, 1.0], [0.2, 0.4, 0.4]])
    np.testing.assert_allclose(honesty.total_variation(P, Q), [1.0, 0.1])
    assert honesty.loss(P, np.array([0, 2])) == pytest.approx(math.log(2))


def test_prices_are_in_units_of_the_peer_at_its_best_and_of_the_fixed_prior() -> None:
    def line(fit: str, seconds: float, threads: int | None = None) -> dict:
        return {
            "problem": "p", "shape": (9, 2, 3), "fit": fit, "threads": threads, "seconds": seconds, "peak_mb": None,
            "passes": 5.0, "structure": "full", "approximation": "laplace",
        }  # fmt: skip

    lines = [line(price.FIXED, 2.0), line(price.EVIDENCE, 5.0), line(price.DEFAULT, 30.0)]
    lines += [line(price.PEER, 4.0, 1), line(price.PEER, 2.5, 2)]
    peer, *rows = price.table(lines)
    assert "2 threads" in peer[4]
    assert [row[-3] for row in rows] == ["0.80", "2.50", "15.00"]
    assert [row[-1] for row in rows] == ["yes", "yes", "no"]


def test_agreement_and_speed_against_laplace_torch() -> None:
    B = np.array([[2.0, 0.5], [0.5, 4.0]])
    assert agreement(B * [[1.0, 1.0], [1.0, 1.01]], B) == pytest.approx(0.01)
    line = {"problem": "p", "shape": (9, 2, 3), "setting": "s"}
    cells = table(line | {"what": "fit", "ours": 0.1, "theirs": 1.9, "covariance_difference": 1e-9})
    assert [row[-1] for row in cells] == ["yes", "no"]
    (cells,) = table(line | {"what": "predict, mc", "ours": 0.002, "theirs": 0.05, "rows": 1000})
    assert cells[5:7] == ["2 µs a row", "50 µs a row"]
    assert cells[-3] == "25.0"


def test_the_peer_is_timed_again_with_its_best_settings_and_the_fastest_counts() -> None:
    settings = [Setting("b", batch, 1) for batch in (1, 2, 3, 4)]
    tried = {setting: {"fit": seconds} for setting, seconds in zip(settings, (4.0, 1.0, 3.0, 2.0), strict=True)}
    assert [setting.batch for setting in fastest(tried, "fit")] == [2, 4, 3]
    times = {OURS: [0.1, 0.1, 0.4], settings[1]: [1.0, 5.0, 5.0], settings[3]: [2.0, 2.0, 9.0]}
    line = compared(times)
    assert (line["ours"], line["theirs"], line["setting"]) == (0.1, 2.0, "b, batch 4, 1 thread")


def test_turns_alternate() -> None:
    called = []
    times = by_turns({name: lambda name=name: called.append(name) for name in "ab"}, repeats=3)
    assert called == ["a", "b", "b", "a", "a", "b"]
    assert [len(values) for values in times.values()] == [3, 3]
    assert ordered(["x", "y"], 1) == ["y", "x"]


def test_categories_are_simulated_with_and_without_effect() -> None:
    for effect, least, most in ((0.0, 0.7, 1.3), (0.5, 2.0, 20.0)):
        problem = blocks.simulated(1000, 0, effect=effect)
        rows = pd.concat([problem.table, problem.new])
        assert (len(problem.table), len(problem.new), rows["category"].nunique()) == (1000, blocks.NEW, blocks.LEVELS)
        assert 0.3 < problem.known < 1.0
        test = chi2_contingency(pd.crosstab(rows["category"], rows["y"]))
        assert least < test.statistic / test.dof < most  # 1, where classes do not depend on levels


def test_flights_that_came_early_or_late(tmp_path: Path) -> None:
    table = pd.DataFrame({name: ["a"] * 6 for name in ("carrier", "origin", "dest", "tailnum")})
    table = table.assign(month=1, hour=5, distance=100.0, arr_delay=[-15.0, -14.0, 15.0, 16.0, None, 0.0])
    table.to_csv(tmp_path / blocks.FLIGHTS, index=False)
    assert blocks.flights(tmp_path / blocks.FLIGHTS)["y"].tolist() == [0, 1, 1, 2, 1]


def test_one_strength_per_block_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SETTLE", 0.0)
    monkeypatch.setattr(blocks, "NEW", 500)
    monkeypatch.setattr(blocks, "LEVELS", 10)
    monkeypatch.setattr(blocks, "ROWS", (200,))
    monkeypatch.setattr(blocks, "SIMULATED", {"effects": blocks.SIMULATED["effects"]})
    blocks.run(None, tmp_path, quick=True)
    lines = [json.loads(line) for line in (tmp_path / "blocks.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == 2 * [*blocks.METHODS]
    assert all(line["known"] < line["loss"] < 1.2 for line in lines)
    ours, peer = ([line["loss"] for line in lines if line["method"] == name] for name in ("blocks", blocks.PEER))
    differences = np.subtract(peer, ours)
    cell = f"{differences.mean():+.4f} ± {differences.std(ddof=1) / math.sqrt(2):.4f}"
    assert f"| {cell} |" in (tmp_path / "blocks.md").read_text()
