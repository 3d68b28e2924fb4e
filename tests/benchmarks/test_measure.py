"""The benchmark's objective, gap and conversions against naive sums, differences and the peer's optimum."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import measure
from benchmarks.adapters import ScikitLearn
from benchmarks.problems import draw_labels, synthetic, text

N, D, K = 23, 4, 3


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks, the last one shorter."""
    monkeypatch.setattr(measure, "BLOCK", 10)


def naive_objective(X: np.ndarray, Y: np.ndarray, W: np.ndarray, b: np.ndarray, alpha: float) -> float:
    total = 0.0
    for x, target in zip(X, Y, strict=True):
        logits = [sum(w * v for w, v in zip(row, x, strict=True)) + shift for row, shift in zip(W, b, strict=True)]
        norm = sum(math.exp(z) for z in logits)
        for k, z in enumerate(logits):
            total -= target[k] * math.log(math.exp(z) / norm)
    return total + alpha / 2 * sum(w**2 for row in W for w in row)


@pytest.mark.parametrize("kind", ["dense", "sparse", "soft labels", "bytes"])
def test_objective_is_the_naive_double_loop(kind: str, rng: np.random.Generator) -> None:
    X = rng.integers(0, 3, size=(N, D)).astype(np.uint8) if kind == "bytes" else rng.standard_normal((N, D))
    y = rng.integers(0, K, size=N)
    Y = rng.gamma(1.0, size=(N, K)) if kind == "soft labels" else np.eye(K)[y]
    W, b = rng.standard_normal((K, D)), rng.standard_normal(K)
    value, _ = measure.objective(
        sp.csr_array(X) if kind == "sparse" else X, Y if kind == "soft labels" else y, W, b, alpha=0.7
    )
    assert value == pytest.approx(naive_objective(X, Y, W, b, 0.7), rel=1e-13)


@pytest.mark.parametrize("soft", [False, True])
def test_gradient_norm_is_that_of_finite_differences(soft: bool, rng: np.random.Generator) -> None:
    X = rng.standard_normal((N, D))
    y = rng.gamma(1.0, size=(N, K)) if soft else rng.integers(0, K, size=N)
    theta, step = rng.standard_normal(K * D + K), 1e-5

    def value(theta: np.ndarray) -> float:
        return measure.objective(X, y, theta[: K * D].reshape(K, D), theta[K * D :], alpha=0.7)[0]

    gradient = [(value(theta + step * e) - value(theta - step * e)) / (2 * step) for e in np.eye(theta.size)]
    _, norm = measure.objective(X, y, theta[: K * D].reshape(K, D), theta[K * D :], alpha=0.7)
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("alpha", [0.5, 3.0])
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg", "newton-cholesky"])
def test_the_peer_minimises_the_same_objective(n_classes: int, alpha: float, solver: str) -> None:
    X, y = synthetic(200, D, n_classes, seed=1)
    fit = ScikitLearn(solver, tol=1e-10, threads=1, alpha=alpha).fit(X, y)
    assert fit.coef.shape == (n_classes, D)
    _, norm = measure.objective(X, y, fit.coef, fit.intercept, alpha)
    _, wrong = measure.objective(X, y, fit.coef, fit.intercept, 2 * alpha)
    assert norm < 1e-4 < 0.1 < wrong


def test_relative_gap_is_unknown_where_the_objective_is() -> None:
    assert measure.relative_gap(101.0, 100.0) == pytest.approx(0.01)
    assert not measure.relative_gap(math.nan, 100.0) <= measure.GAP
    assert not measure.relative_gap(100.0, math.nan) <= measure.GAP


def test_labels_have_the_probabilities_of_the_logits() -> None:
    logits = np.log([0.2, 0.3, 0.5])
    y = draw_labels(np.tile(logits, (20_000, 1)), np.random.default_rng(0))
    assert np.bincount(y) / len(y) == pytest.approx([0.2, 0.3, 0.5], abs=0.015)


def test_the_ill_conditioned_problem_is_the_other_one_scaled_and_rotated() -> None:
    X, y = synthetic(500, 6, 3)
    Z, same = synthetic(500, 6, 3, condition=1e4)
    np.testing.assert_array_equal(y, same)
    map_, *_ = np.linalg.lstsq(X, Z, rcond=None)
    np.testing.assert_allclose(X @ map_, Z, atol=1e-9)
    np.testing.assert_allclose(np.linalg.svd(map_, compute_uv=False), np.logspace(2, -2, 6), rtol=1e-9)


def test_the_text_problem_has_unit_rows_of_distinct_words() -> None:
    X, y = text(50, 2_000, 4, words=20)
    assert X.shape == (50, 2_000)
    assert X.has_canonical_format
    np.testing.assert_array_equal(np.diff(X.indptr), 20)
    np.testing.assert_allclose(np.linalg.norm(X.toarray(), axis=1), 1.0)
    assert X.data.min() > 0
    assert set(y) == {0, 1, 2, 3}
