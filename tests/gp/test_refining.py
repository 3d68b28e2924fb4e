"""Lengthscales and scales that left-out rows ask for: where rows come in clusters, and not where the model is right."""

import numpy as np
import pytest

import posteriori as po
from posteriori.gp.calibration import LeftOutLatents, left_out_spread, refined
from posteriori.gp.coupled import row_sites
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import RBF
from posteriori.gp.learning import KernelState, settle
from posteriori.gp.repeats import merged_rows

RATE, K = 0.001, 3
KERNEL = RBF()


def clusters(seed=0, n=20, each=5):
    """Rows in tight clusters whose labels have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n, 2)) * 3.0
    X = np.repeat(centres, each, axis=0) + 0.02 * rng.normal(size=(n * each, 2))
    return LabelledRows(X, np.repeat(rng.integers(0, K, n), each), np.ones(n * each))


def judged(rows, log_lengthscale, log_scale):
    """The sum of left-out log-probabilities with the best spread, by a fit of its own."""
    merged = merged_rows(rows, 0)
    sites = row_sites(rows.y, rows.c, K, RATE)
    gram = KERNEL.gram({"log_lengthscale": log_lengthscale}, rows.X, rows.X)
    _, visit, _, _ = settle(sites, gram, np.exp(2 * log_scale), sites.start(), 1e-5, 200)
    left = LeftOutLatents.of(visit.solved, merged)
    spread = left_out_spread([left], rows, RATE)
    return float(left.log_probabilities(rows.y, RATE, spread).sum()), spread


def refinement(rows, log_length=0.5):
    state = KernelState({"log_lengthscale": np.full(2, log_length)}, np.full(K, np.log(3.0)))
    sites = row_sites(rows.y, rows.c, K, RATE)
    return state, refined(KERNEL, state, sites, sites.start(), merged_rows(rows, 0), RATE)


def test_clusters_have_shorter_lengthscales_than_the_evidence_starts_from():
    rows = clusters()
    state, better = refinement(rows)
    assert better.log_length < 0.0
    before, spread = judged(rows, state.free["log_lengthscale"], state.log_scale)
    after, _ = judged(rows, better.state.free["log_lengthscale"], better.state.log_scale)
    assert spread < 0.75
    assert after > before + 1.5
    np.testing.assert_allclose(better.state.free["log_lengthscale"], 0.5 + better.log_length)
    np.testing.assert_allclose(better.state.log_scale, np.log(3.0) + better.log_scale)


def test_a_kernel_whose_latents_are_not_too_wide_is_kept():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2))
    y = (X + rng.normal(size=X.shape)).argmax(axis=1) + (rng.random(90) < 0.2)
    state, better = refinement(LabelledRows(X, y, np.ones(90)))
    assert (better.log_length, better.log_scale) == (0.0, 0.0)
    assert better.state.free["log_lengthscale"] is not None
    np.testing.assert_array_equal(better.state.free["log_lengthscale"], state.free["log_lengthscale"])


def test_a_kernel_that_is_too_large_for_numbers_is_kept():
    rows = clusters()
    state = KernelState({"log_lengthscale": np.full(2, 1.0)}, np.full(K, 400.0))
    sites = row_sites(rows.y, rows.c, K, RATE)
    better = refined(KERNEL, state, sites, sites.start(), merged_rows(rows, 0), RATE)
    assert (better.state, better.log_length) == (state, 0.0)


@pytest.mark.parametrize("options", [{"calibrate": False}, {"max_iter": 0}], ids=["not calibrated", "kernel as given"])
def test_nothing_is_refined_where_left_out_rows_are_not_asked(options):
    rows = clusters()
    solution = po.GPClassifier(**options).fit(rows.X, rows.y).solution_
    assert (solution.log_length, solution.log_scale) == (0.0, 0.0)
