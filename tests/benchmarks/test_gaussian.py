"""The benchmarks of Gaussian classifiers: adapters against sums by hand, scores, goals; each runs on a tiny problem."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks import (
    gaussian_adapters,
    gaussian_parameters,
    gaussian_quality,
    gaussian_speed,
    problems,
    quality,
    turns,
)
from benchmarks.gaussian_adapters import GaussianPosteriori, GaussianScikitLearn, Parameters
from benchmarks.gaussian_quality import AUTO, CLIPPED, METHODS, NAIVE, OURS, QUADRATIC, UNCLIPPED
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rests, as times are not looked at, and two folds."""
    monkeypatch.setattr(turns, "SETTLE", 0.0)
    monkeypatch.setattr(gaussian_quality, "FOLDS", 2)


def tiny(n_rows: int = 60, n_features: int = 3) -> problems.Data:
    return problems.gaussian_classes(n_rows, n_features, 3)


def by_hand(X: np.ndarray, y: np.ndarray, structure: str) -> Parameters:
    """Maximum likelihood, row by row."""
    counts = [sum(label == k for label in y) for k in range(3)]
    means = np.array([sum(x for x, label in zip(X, y, strict=True) if label == k) / counts[k] for k in range(3)])
    full = np.zeros((3, X.shape[1], X.shape[1]))
    for x, k in zip(X, y, strict=True):
        full[k] += np.outer(x - means[k], x - means[k]) / counts[k]
    shares = np.array(counts) / len(y)
    tied = sum(share * matrix for share, matrix in zip(shares, full, strict=True))
    covariances = {"full": full, "tied": tied, "diagonal": np.array([matrix.diagonal() for matrix in full])}
    return Parameters(means, covariances[structure], shares)


@pytest.mark.parametrize("structure", ["diagonal", "tied", "full"])
def test_both_adapters_give_the_parameters_of_maximum_likelihood(structure: str) -> None:
    X, y = tiny()
    expected = by_hand(X, y, structure)
    for adapter in (GaussianPosteriori(structure, "mle"), gaussian_parameters.PEERS[structure]):
        for value, wanted in zip(adapter.parameters(X, y), expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=1e-12)


def test_the_divisor_of_the_peer_is_known_whatever_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unbiased(QuadraticDiscriminantAnalysis):
        """With the divisor n - 1."""

        def fit(self, X: np.ndarray, y: np.ndarray) -> "Unbiased":
            super().fit(X, y)
            classes = [np.asarray(X)[np.asarray(y) == k] for k in np.unique(y)]
            self.covariance_ = [np.atleast_2d(np.cov(rows.T)) for rows in classes]
            return self

    X, y = tiny()
    monkeypatch.setattr(gaussian_adapters, "QuadraticDiscriminantAnalysis", Unbiased)
    monkeypatch.setitem(gaussian_adapters.PEERS, "full", Unbiased)
    peer = GaussianScikitLearn("full", (("store_covariance", True),))
    np.testing.assert_allclose(peer.parameters(X, y).covariances, by_hand(X, y, "full").covariances, rtol=1e-10)


def test_differences_are_in_units_of_each_parameter() -> None:
    theirs = Parameters(np.array([[3.0, 0.0]]), np.array([[[16.0, 0.0], [0.0, 0.25]]]), np.array([0.5]))
    mine = Parameters(np.array([[3.0, 0.05]]), np.array([[[16.0, 0.02], [0.02, 0.25]]]), np.array([0.51]))
    found = gaussian_parameters.differences(mine, theirs)
    assert found == pytest.approx({"means": 0.05 / 0.5, "covariances": 0.02 / (4 * 0.5), "class_prior": 0.02})


def test_a_peer_is_defined_where_its_covariances_have_an_inverse() -> None:
    X, y = tiny()
    constant = np.where((y == 1)[:, None] & (np.arange(3) == 2), 7.0, X)
    defined = {name: gaussian_parameters.regular(constant, y, name) for name in gaussian_parameters.PEERS}
    assert defined == {"diagonal": False, "tied": True, "full": False}
    repeated = np.column_stack([X, X.sum(axis=1)])
    defined = {name: gaussian_parameters.regular(repeated, y, name) for name in gaussian_parameters.PEERS}
    assert defined == {"diagonal": True, "tied": False, "full": False}


def test_parameters_agree_and_singular_sets_have_no_difference(tmp_path: Path) -> None:
    np.savez(tmp_path / "constant.npz", X=np.column_stack([tiny()[0], np.ones(60)]), y=tiny()[1])
    gaussian_parameters.run(("iris", "constant"), tmp_path, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "gaussian_parameters.jsonl").read_text().splitlines()]
    found = {(line["problem"], line["structure"]): line["difference"] for line in lines}
    assert all(found["iris", name] <= gaussian_parameters.GOAL for name in gaussian_parameters.PEERS)
    assert all(found["constant", name] is None for name in gaussian_parameters.PEERS)
    page = (tmp_path / "gaussian_parameters.md").read_text()
    assert "| constant | 60 | 4 | 3 |  |  |  |  |" in page
    assert page.count("| yes |") == 1


def test_classes_of_the_simulated_problem_differ_in_means_and_covariances() -> None:
    X, y = problems.gaussian_classes(30_000, 4, 3)
    assert np.bincount(y) / len(y) == pytest.approx([1 / 3] * 3, abs=0.02)
    _, covariances, _ = by_hand(X[::10], y[::10], "full")
    means = np.array([X[y == k].mean(axis=0) for k in range(3)])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert np.linalg.norm(means[a] - means[b]) > 0.5
        assert np.linalg.norm(covariances[a] - covariances[b]) > 0.5


def seconds(what: str, estimate: str | None, times: list[float], threads: int = 2) -> dict:
    return {
        "problem": "p", "shape": (9, 2, 3), "what": what, "structure": "tied", "estimate": estimate, "threads": threads,
        "setting": "LDA()", "seconds": sorted(times)[1], "all_seconds": times,
    }  # fmt: skip


def test_speed_is_the_median_ratio_to_the_peer_with_its_better_number_of_threads() -> None:
    lines = [
        seconds("fit", "bayes", [4.0, 4.0, 4.0]),
        seconds("fit", "mle", [1.0, 2.0, 1.0]),
        seconds("fit", None, [9.0, 9.0, 9.0], threads=1),
        seconds("fit", None, [4.0, 12.0, 8.0], threads=2),
        seconds("fit", "bayes", [5.0, 5.0, 5.0]) | {"structure": "auto"},
    ]
    mle, bayes, default = gaussian_speed.table(lines)
    assert mle[4:] == ["fit", "tied, mle", "1", "LDA(), 2 threads", "8", "6.00", ">= 5", "yes"]
    assert bayes[-3:] == ["2.00", "", ""]
    assert default[5:] == ["all defaults", "5", "", "", "", "", ""]


@pytest.mark.slow
def test_all_contenders_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(problems.GAUSSIAN, "tiny", tiny)
    gaussian_speed.run(("tiny",), tmp_path, quick=True)
    lines = [json.loads(line) for line in (tmp_path / "gaussian_speed.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * (1 + 3 * (2 + 2))
    assert {len(line["all_seconds"]) for line in lines} == {gaussian_speed.QUICK_REPEATS}
    assert all(min(line["all_seconds"]) > 0 for line in lines)
    table = [row for row in (tmp_path / "gaussian_speed.md").read_text().splitlines() if row.startswith("| tiny ")]
    assert len(table) == 2 * (1 + 3 * 2)
    assert sum(">= 2 |" in row for row in table) == 2
    assert sum(">= 5 |" in row for row in table) == 4


def test_only_peers_are_helped_where_they_are_too_sure() -> None:
    log_p = np.array([[-2000.0, 0.0], np.log([0.25, 0.75])])
    np.testing.assert_array_equal(gaussian_quality.scored(AUTO, log_p), log_p)
    np.testing.assert_array_equal(gaussian_quality.scored(UNCLIPPED, log_p), log_p)
    np.testing.assert_allclose(gaussian_quality.scored(QUADRATIC, log_p)[0], [quality.FLOOR, 0.0])
    np.testing.assert_allclose(np.exp(gaussian_quality.scored(CLIPPED, log_p)), [[1 / 1001, 1000 / 1001], [0.25, 0.75]])


def test_a_peer_that_fails_has_the_loss_of_the_class_frequencies() -> None:
    # classes of 10 rows in 12 dimensions: each training fold of a class spans fewer than all of them
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [10, 10, 20])
    X = rng.standard_normal((40, 12)) + 2 * y[:, None]
    lines = gaussian_quality.study(X, y)
    assert len(lines) == 2 * len(METHODS)
    by = {name: [line for line in lines if line["method"] == name] for name in METHODS}
    for line in by[QUADRATIC]:
        assert "not full rank" in line["failure"]
        assert line["loss"] == line["prior_loss"] == pytest.approx(-(math.log(0.25) + math.log(0.5)) / 2)
    assert all(line["failure"] is None for name in METHODS if name != QUADRATIC for line in by[name])
    assert all(line["loss"] < line["prior_loss"] for line in by[AUTO])
    for line in by[AUTO]:
        alone = next(other for other in by[line["structure"]] if other["fold"] == line["fold"])
        assert line["loss"] == pytest.approx(alone["loss"], rel=1e-6)
    assert [len(line["seconds_by_threads"]) for line in (*by[AUTO][:1], *by[CLIPPED][:1])] == [1, 2]


def test_nan_is_a_failure_and_a_probability_of_zero_is_not() -> None:
    class Says:
        def __init__(self, value: float) -> None:
            self.value = value

        def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
            return np.full((len(X), 2), self.value)

    def of(value: float) -> gaussian_quality.Outcome:
        model = gaussian_quality.attempt(lambda: Says(value))
        return gaussian_quality.log_probabilities(model, np.zeros((3, 1)))

    assert of(math.nan).failure == "NaN"
    assert of(-math.inf).failure is None


def lines_of(problem: str, losses: dict[str, float], failed: tuple[str, ...] = ()) -> list[dict]:
    return [
        {
            "problem": problem, "shape": (20, 2, 3), "merged": 0, "method": name, "fold": fold, "rows": 10,
            "prior_loss": 2.0, "loss": losses.get(name, 1.0) + (0.1 if fold else -0.1),
            "failure": "ValueError" if name in failed and fold == 0 else None, "structure": "tied",
            "seconds_by_threads": [1.0, 2.0 * fold],
        }
        for name in METHODS
        for fold in range(2)
    ]  # fmt: skip


def test_goals_are_judged_over_sets() -> None:
    first = lines_of("a", {"diagonal": 0.5, "tied": 0.8, "full": 1.5, AUTO: 0.52, QUADRATIC: 1.1}, (QUADRATIC,))
    second = lines_of("b", {"diagonal": 0.9, "tied": 1.4, "full": 0.9, AUTO: 0.92, UNCLIPPED: 1e6})
    page = gaussian_quality.page(first + second)
    assert "- diagonal less NB clipped: -0.3000 ± 0.2000; lower on 2 of 2 sets" in page
    assert "median skill 0.650 against 0.500 (goal: lower in the mean, with the higher median skill): yes" in page
    assert "- tied less LDA: +0.1000 ± 0.3000; lower on 1 of 2 sets" in page
    assert "- full less QDA: +0.1500 ± 0.2500 (-0.1000 ± nan over the 1 without a failure)" in page
    assert "- auto 0.7200 against diagonal 0.7000, the best single structure in the mean: +0.0200 ± 0.0000" in page
    assert "hindsight: 0.7000" in page
    assert "Failures of ours (goal: none): none" in page
    assert "Failures of peers: QDA on 1 folds of 1 sets (a)" in page
    assert "1.1000 (1 failed)" in page
    assert "1.0e+06" in page
    # of 1 and 2 threads the better over both folds of a set
    assert gaussian_quality.summarise(first)["seconds"][NAIVE] == 2.0


@pytest.mark.parametrize(("loss", "met"), [(1.05, True), (1.06, False)])
def test_auto_may_be_worse_by_a_share(loss: float, met: bool) -> None:
    assert gaussian_quality.good_enough(loss, 1.0) is met


@pytest.mark.parametrize(("loss", "met"), [(0.0299, True), (0.031, False)])
def test_auto_may_be_worse_by_a_hundredth_of_a_nat(loss: float, met: bool) -> None:
    assert gaussian_quality.good_enough(loss, 0.02) is met


def test_an_infinite_loss_stays_one() -> None:
    lines = [line | {"loss": None} if line["method"] == UNCLIPPED else line for line in lines_of("a", {})]
    assert gaussian_quality.summarise(lines)["losses"][UNCLIPPED] == math.inf


@pytest.mark.slow
def test_quality_runs_and_its_numbers_are_in_the_table(tmp_path: Path) -> None:
    X, y = tiny()
    np.savez(tmp_path / "tiny.npz", X=X, y=np.where(np.arange(60) < 3, 3, y))
    gaussian_quality.run(("tiny",), tmp_path, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "gaussian_quality.jsonl").read_text().splitlines()]
    assert {line["method"] for line in lines} == {*METHODS}
    assert {line["merged"] for line in lines} == {1}
    (row,) = [
        row for row in (tmp_path / "gaussian_quality.md").read_text().splitlines() if row.startswith("| tiny (1 class")
    ]
    for name in OURS:
        mean = np.average([line["loss"] for line in lines if line["method"] == name])
        assert f" {mean:.4f} " in row


def test_large_sets_are_there_only_when_named(tmp_path: Path) -> None:
    for name in ("letter", "small"):
        np.savez(tmp_path / f"{name}.npz", X=np.zeros((3, 1)), y=np.arange(3))
    assert {*quality.sets(tmp_path)} == {*quality.BUNDLED, "small"}
    assert {*quality.sets(tmp_path, large=("letter",))} == {*quality.BUNDLED, "small", "letter"}
