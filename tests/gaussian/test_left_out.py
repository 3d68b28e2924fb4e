"""Rows left out in closed form: against beliefs formed again without the row."""

import numpy as np
import pytest
from tests.gaussian.naive_gaussian import (
    DIAGONAL,
    TIED,
    in_shape,
    naive_beliefs,
    naive_log_densities,
    naive_log_density,
)
from tests.slow import quick_first

from posteriori.gaussian.left_out import RowsToLeaveOut, _ratio, left_out_log_density
from posteriori.gaussian.niw import WishartPrior, log_evidence
from posteriori.gaussian.statistics import class_statistics
from posteriori.gaussian.structures import STRUCTURES

K, D = 4, 3
ESTIMATES = ("bayes", "map", "mle")
PSI = np.array([[0.6, 0.2, -0.1], [0.2, 0.4, 0.1], [-0.1, 0.1, 0.3]])
structures = pytest.mark.parametrize("structure", STRUCTURES)
estimates = pytest.mark.parametrize("estimate", ESTIMATES)
pooled_or_weighted = pytest.mark.parametrize(
    ("pooled", "weighted"), [(0.0, True), (0.3, False)], ids=["own, weighted", "pooled, unweighted"]
)


def data(n=24, seed=0, missing=0.0):
    """Many rows of class 0, five of class 1, one of class 2, none of class 3; weights below and above one."""
    rng = np.random.default_rng(seed)
    y = np.zeros(n, dtype=int)
    y[[3, 8, 9, 15, 20]] = 1
    y[11] = 2
    X = rng.normal(size=(n, D)) + 1.5 * rng.normal(size=(K, D))[y]
    X[rng.random(X.shape) < missing] = np.nan
    return X, y, rng.uniform(0.1, 3.0, n)


def prior_of(structure, estimate, pooled=0.0):
    """With maximum likelihood a ridge alone."""
    scale = in_shape(structure, PSI)
    return WishartPrior(0.0, 0.0, scale, pooled) if estimate == "mle" else WishartPrior(0.4, 4.2, scale, pooled)


def left_out(X, y, c, structure, estimate, prior, some=slice(None)):
    rows = RowsToLeaveOut(X[some], y[some], np.minimum(c, 1.0)[some], c[some])
    statistics = class_statistics(X, y, c, K, "diagonal" if np.isnan(X).any() else "full")
    return left_out_log_density(statistics, prior, STRUCTURES[structure], estimate, rows)


def formed_again(X, y, c, structure, estimate, prior):
    """Every row in turn loses at most one of its weight, in its class and in what all classes have in common."""
    out = np.empty((len(X), K))
    for n in range(len(X)):
        rest = c.copy()
        rest[n] -= min(c[n], 1.0)
        beliefs = naive_beliefs(X, y, rest, K, prior, structure)
        for k, belief in enumerate(beliefs):
            known = estimate != "mle" or (belief.nu > 0).all()  # else there is nothing to form a covariance from
            out[n, k] = naive_log_density(X[n], belief, structure, estimate, K) if known else np.nan
    return out


@structures
@estimates
@pooled_or_weighted
def test_leaving_a_row_out_is_forming_the_belief_without_it(structure, estimate, pooled, weighted):
    X, y, c = data()
    c = c if weighted else np.ones(len(X))
    prior = prior_of(structure, estimate, pooled)
    found = left_out(X, y, c, structure, estimate, prior)
    expected = formed_again(X, y, c, structure, estimate, prior)
    defined = np.isfinite(expected)
    np.testing.assert_allclose(found[defined], expected[defined], rtol=1e-9)
    # maximum likelihood alone knows nothing of a class without rows
    unknown = (estimate == "mle" and structure not in TIED) * (len(X) + (not weighted or c[11] <= 1.0))
    assert (~defined).sum() == unknown
    assert (found[~defined] < -300).all()


@pytest.mark.parametrize("structure", DIAGONAL)
@estimates
@pooled_or_weighted
def test_missing_values_are_left_out_with_the_row(structure, estimate, pooled, weighted):
    """Down to the last value of a feature in a class, and a row that has none."""
    X, y, c = data(missing=0.35)
    X[5] = np.nan
    X[y == 1, 0] = [np.nan, np.nan, 1.3, np.nan, np.nan]
    c = c if weighted else np.ones(len(X))
    prior = prior_of(structure, estimate, pooled)
    found = left_out(X, y, c, structure, estimate, prior)
    expected = formed_again(X, y, c, structure, estimate, prior)
    defined = np.isfinite(expected)
    assert defined[:, :2].sum() >= 2 * len(X) - 2
    np.testing.assert_allclose(found[defined], expected[defined], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found[5], 0.0)


@pytest.mark.parametrize(
    ("structure", "missing"), [*((structure, 0.0) for structure in STRUCTURES), *((name, 0.2) for name in DIAGONAL)]
)
def test_rows_may_be_left_out_in_parts(structure, missing, monkeypatch):
    X, y, c = data(missing=missing)
    prior = prior_of(structure, "bayes", 0.3)
    whole = left_out(X, y, c, structure, "bayes", prior)
    monkeypatch.setattr("posteriori.gaussian.structure._PART_BYTES", 8 * D * 5)
    found = left_out(X, y, c, structure, "bayes", prior)
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)


@structures
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_density_of_a_left_out_row_is_the_evidence_it_adds(structure, seed):
    X, y, _ = data(seed=seed)
    prior = prior_of(structure, "bayes")
    found = left_out(X, y, np.ones(len(X)), structure, "bayes", prior)
    for n in range(len(X)):
        rest = np.arange(len(X)) != n
        with_row, without = (
            log_evidence(class_statistics(Z, t, None, K, "full"), prior, STRUCTURES[structure], None)
            for Z, t in ((X, y), (X[rest], y[rest]))
        )
        assert found[n, y[n]] == pytest.approx(with_row - without, abs=1e-9)


@structures
@estimates
def test_a_row_of_weight_three_loses_one_of_three_copies(structure, estimate):
    X, y, _ = data()
    c = np.random.default_rng(4).integers(1, 4, len(X))
    prior = prior_of(structure, estimate, pooled=0.2)
    weighted = left_out(X, y, c.astype(float), structure, estimate, prior)
    copies = left_out(np.repeat(X, c, axis=0), np.repeat(y, c), np.ones(c.sum()), structure, estimate, prior)
    np.testing.assert_allclose(np.repeat(weighted, c, axis=0), copies, rtol=1e-10)


@structures
@estimates
def test_rows_that_are_not_looked_at_count_all_the_same(structure, estimate):
    """Some of the rows are left out, of statistics of all."""
    X, y, c = data()
    prior = prior_of(structure, estimate, pooled=0.2)
    some = [11, 3, 20, 0]
    found = left_out(X, y, c, structure, estimate, prior, some)
    np.testing.assert_allclose(found, left_out(X, y, c, structure, estimate, prior)[some], rtol=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
@estimates
def test_missing_values_of_rows_that_are_not_looked_at(structure, estimate):
    """Features differ in their strengths even where the rows looked at are complete."""
    X, y, c = data(missing=0.4)
    prior = prior_of(structure, estimate, pooled=0.2)
    some = np.flatnonzero(~np.isnan(X).any(axis=1) & (y < 2))
    assert len(some) > 2
    found = left_out(X, y, c, structure, estimate, prior, some)
    np.testing.assert_allclose(found, left_out(X, y, c, structure, estimate, prior)[some], rtol=1e-10)


@structures
def test_nothing_taken_away_is_the_prediction_of_the_row_itself(structure):
    X, y, c = data()
    prior = prior_of(structure, "bayes", pooled=0.2)
    rows = RowsToLeaveOut(X, y, np.zeros(len(X)), c)
    found = left_out_log_density(class_statistics(X, y, c, K, "full"), prior, STRUCTURES[structure], "bayes", rows)
    beliefs = naive_beliefs(X, y, c, K, prior, structure)
    np.testing.assert_allclose(found, naive_log_densities(X, beliefs, structure, "bayes"), rtol=1e-10)


@structures
@estimates
@pytest.mark.parametrize("far", quick_first([1e4, 30.0]))
def test_a_row_that_is_most_of_the_scatter_of_its_class(structure, estimate, far):
    """What is left is the small difference of large numbers: digits are lost by the square of the distance."""
    X, y, c = data()
    X[8] *= far
    c[:] = 1.0
    prior = prior_of(structure, estimate, pooled=0.2)
    found = left_out(X, y, c, structure, estimate, prior)
    expected = formed_again(X, y, c, structure, estimate, prior)
    defined = np.isfinite(expected)
    np.testing.assert_allclose(found[defined], expected[defined], rtol=1e-15 * far**2 + 1e-11)


@structures
@estimates
def test_fewer_rows_than_features(structure, estimate):
    """Without the row a class of four has a scatter of rank two in eight dimensions: the prior carries it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 8)), np.repeat(np.arange(3), 4)
    scale = in_shape(structure, 0.01 * np.eye(8))
    prior = WishartPrior(0.0, 0.0, scale) if estimate == "mle" else WishartPrior(0.3, 9.0, scale)
    c = np.ones(12)
    found = left_out(X, y, c, structure, estimate, prior)[:, :3]
    np.testing.assert_allclose(found, formed_again(X, y, c, structure, estimate, prior)[:, :3], rtol=1e-8)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_distances_in_units_of_nothing_are_as_far_as_numbers_go():
    """A row that weighs nearly everything leaves variances of rounding behind when it is left out."""
    found = _ratio(np.array([4.0, 4e10]), np.array([2.0, 1e-300]))
    np.testing.assert_array_equal(found, [2.0, 1e290])
