"""Coverage and kernels of Gaussian processes: simulation, standard errors and pages, against sums by hand."""

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks import gp_coverage, gp_kernels, turns
from benchmarks.gp_coverage import DEFAULT, KNOWN, LEVELS, METHODS, UNCALIBRATED, Cell
from scipy.stats import norm

from posteriori.kernels import ARD, RBF, Constant, Linear, Matern


def test_probit_probabilities_of_two_classes_have_a_closed_form() -> None:
    F = np.array([[0.3, -0.4], [20.0, -20.0], [-1.0, 1.0]])
    P = gp_coverage.probit(F)
    first = norm.cdf((F[:, 0] - F[:, 1]) / math.sqrt(2.0))
    np.testing.assert_allclose(P, np.stack([first, norm.cdf((F[:, 1] - F[:, 0]) / math.sqrt(2.0))], axis=1), rtol=1e-9)


def test_probit_probabilities_are_shares_of_draws() -> None:
    F = np.array([[0.5, 0.0, -0.7, 1.2]])
    won = (F + np.random.default_rng(0).standard_normal((200_000, 4))).argmax(axis=1)
    np.testing.assert_allclose(gp_coverage.probit(F)[0], np.bincount(won) / len(won), atol=0.004)


def test_data_sets_of_a_seed_differ_by_their_scale_alone() -> None:
    small, large = (gp_coverage.simulate(Cell(scale, 50, 3), seed=7) for scale in (1.0, 10.0))
    np.testing.assert_array_equal(small.X, large.X)
    assert (small.X.shape, small.new.shape, small.P.shape) == ((50, 2), (50, 2), (50, 3))
    np.testing.assert_allclose(small.P.sum(axis=1), 1.0)
    assert large.P.max(axis=1).mean() > small.P.max(axis=1).mean() + 0.2


def test_errors_are_over_data_sets() -> None:
    shares = np.array([0.25, 0.5, 0.75, 0.5])
    error = np.std(shares, ddof=1) / 2.0
    assert gp_coverage.ratio(shares, np.ones(4)) == pytest.approx((0.5, error))
    share, error = gp_coverage.ratio(np.array([0.1, 0.0]), np.array([0.2, 0.3]))  # the second has nothing covered
    assert share == pytest.approx(0.2)
    assert error == pytest.approx(math.sqrt(2.0 * (0.06**2 + 0.06**2)) / 0.5)
    assert math.isnan(gp_coverage.ratio(np.ones(1), np.ones(1))[1])


class Sure:
    """Says half for both classes, with intervals as wide as the level."""

    mislabelling_ = 0.5

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Sure":
        return self

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        return np.log(np.tile([0.5, 0.5], (len(X), 1)))

    def predict_interval(self, X: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        P = np.full((len(X), 2), 0.5)
        return P - level / 2.0, P + level / 2.0

    def predict_latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((1, 2)), 9.0 * np.eye(2)[None]


def test_coverage_divergence_and_loss_of_a_data_set() -> None:
    P = np.array([[0.25, 0.75], [0.0, 1.0], [0.15, 0.85], [0.5, 0.5]])
    found = gp_coverage.measured(Sure(), gp_coverage.Simulated(np.zeros((1, 2)), np.zeros(1), np.zeros((4, 2)), P))
    assert found["covered"] == [0.5, 0.75, 0.75]
    assert found["mislabelled"] == [1.0, 1.0, 1.0]  # with half of the labels at random all are one half
    assert (found["open"], found["is_open"]) == (found["covered"], 1.0)
    assert found["loss"] == pytest.approx(math.log(2.0))
    entropy = -sum(p * math.log(p) for p in P.ravel() if p > 0) / 4
    assert found["divergence"] == pytest.approx(math.log(2.0) - entropy)
    assert found["prior"] == 9.0


def one(covered: float, **more: float) -> dict:
    shares = {name: [covered] * len(LEVELS) for name in ("covered", "mislabelled")}
    numbers = {"open": [covered / 2] * len(LEVELS), "is_open": 0.5, "divergence": 0.1, "loss": 0.6, "seconds": 2.0}
    return shares | numbers | more


def test_a_page_has_a_row_for_each_fit() -> None:
    sets = [
        {"least": 0.5, DEFAULT: one(0.4), UNCALIBRATED: one(0.8, divergence=0.2), KNOWN: {"failure": "E"}},
        {"least": 0.7, DEFAULT: one(0.6), UNCALIBRATED: {"failure": "E: e"}, KNOWN: {"failure": "E"}},
    ]
    line = {"problem": "3-50-5", "scale": 3.0, "shape": (50, 2, 5), "seeds": [0, 1], "sets": sets}
    rows = [row for row in gp_coverage.page([line]).splitlines() if row.startswith("| 3 |")]
    half, most = " / ".join(["50.0"] * 3), " / ".join(["80.0"] * 3)
    loss = "0.6000 ± 0.0000 | 0.6000 | 2"
    assert rows == [
        f"| 3 | 50 | 5 | 2 | default | {half} | {half} | {half} (50) | 10.0 | 0.1000 ± 0.0000 | {loss} | 0 |",
        f"| 3 | 50 | 5 | 2 | calibrate=False | {most} | {most} | {most} (50) | nan | 0.2000 ± nan "
        "| 0.6000 ± nan | 0.6000 | 2 | 1 |",
        "| 3 | 50 | 5 | 2 | true model |  |  |  |  |  |  |  |  | 2 |",
    ]


def test_threads_are_limited_for_processes_that_start_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("NPROC", raising=False)
    with gp_coverage.one_thread_each():
        assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["NPROC"] == "1"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    assert "NPROC" not in os.environ


@pytest.mark.slow
def test_the_true_model_has_the_variance_that_functions_were_drawn_with() -> None:
    found = gp_coverage.judged(Cell(3.0, 12, 3), seed=0)
    assert found[KNOWN]["prior"] == pytest.approx(9.0)
    assert not any("failure" in found[method] for method in METHODS)
    assert found[KNOWN]["covered"][0] < found[KNOWN]["covered"][2]


def test_data_sets_are_read_as_they_were_stored(tmp_path: Path) -> None:
    assert gp_coverage.kept(tmp_path) == {}
    sets = {seed: {"least": 0.5, **{method: one(0.5) for method in METHODS}} for seed in (4, 1)}
    cell, none = Cell(1.0, 50, 3), Cell(1.0, 50, 5)
    (line,) = gp_coverage.store(tmp_path, {cell: sets, none: {}})
    assert line["seeds"] == [1, 4]
    assert gp_coverage.kept(tmp_path) == {cell: sets}
    assert "| 1 | 50 | 3 | 2 | default |" in (tmp_path / "gp_coverage.md").read_text()
    assert gp_coverage.rounded({"a": [1.23456789, 7], "b": "c"}) == {"a": [1.2346, 7], "b": "c"}


def test_a_kernel_that_is_held_has_nothing_to_learn() -> None:
    kernel = ARD(inner=RBF(1.0, ard=False, fixed=True) + Linear(2.0) + Constant(0.5)) * Matern(3.0)

    def fixed(kernel: Any) -> list[bool]:
        return [value for name, value in kernel.get_params().items() if name.endswith("fixed")]

    same = gp_kernels.held(kernel)
    assert fixed(same) == [True] * 5
    assert sum(fixed(kernel)) == 1  # the kernel itself is as it was
    assert (same.left.inner.left.right.lengthscale, same.right.lengthscale) == (2.0, 3.0)


class Shares:
    """Knows the frequencies of its training rows, and with all rows a little less."""

    kernel_ = "kernel"
    log_evidence_ = -7.0
    solution_ = SimpleNamespace(status="converged", n_iter=3, settled=True)

    def __init__(self, n_learning: str | None = None) -> None:
        self.n_learning = n_learning

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Shares":
        assert len(X) == len(y) == 80
        self.P = np.array([0.75, 0.25]) if self.n_learning is None else np.array([0.5, 0.5])
        return self

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        return np.log(np.tile(self.P, (len(X), 1)))


def test_two_kernels_are_compared_by_row_and_by_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SETTLE", 0.0)
    monkeypatch.setattr(gp_kernels, "contenders", lambda: {"default": Shares, "all rows": lambda: Shares("all")})
    told = iter([-5.0, -8.0, *[-6.0] * 8])
    monkeypatch.setattr(gp_kernels, "exact_evidence", lambda kernel, X, y: next(told))
    lines = gp_kernels.study(np.zeros((100, 1)), np.repeat([0, 1], [75, 25]))
    assert [(line["fold"], line["method"]) for line in lines] == [(i, m) for i in range(5) for m in gp_kernels.METHODS]
    lines = [{"problem": "pima", "shape": (100, 1, 2), "merged": 0, **line} for line in lines]
    (row,) = [line for line in gp_kernels.page(lines).splitlines() if line.startswith("| pima ")]
    loss = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    excess = np.repeat([math.log(2.0 / 3.0), math.log(2.0)], [75, 25])
    difference = f"{excess.mean():+.4f} ± {excess.std(ddof=1) / 10:.4f}"
    start = f"| pima | 100 | 1 | 2 | {loss:.4f} | {math.log(2):.4f} | {difference} | -5.8 | -6.4 | +0.6 ± 0.6 |"
    assert row.startswith(start)


def test_kernels_need_a_version_that_can_learn_with_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import posteriori as po

    class Without:
        def get_params(self) -> dict:
            return {"n_inducing": 200}

    class With:
        def get_params(self) -> dict:
            return {"n_learning": None}

    monkeypatch.setattr(po, "GPClassifier", Without)
    gp_kernels.run(None, tmp_path, tmp_path)
    assert "no n_learning" in capsys.readouterr().out
    monkeypatch.setattr(po, "GPClassifier", With)
    gp_kernels.run(("pima",), tmp_path, tmp_path)
    assert "pima skipped" in capsys.readouterr().out
