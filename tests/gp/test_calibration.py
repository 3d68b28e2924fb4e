"""How surely to predict: what rows that are left out say of the latents' variances."""

import numpy as np
import pytest
from scipy.special import ndtr

from posteriori.gp.calibration import LeftOutLatents, left_out_score, left_out_spread
from posteriori.gp.coupled import SiteParameters, row_sites
from posteriori.gp.independent import independent_variances
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.output import ArgmaxNode
from posteriori.gp.repeats import MergedRows
from posteriori.maths.largest import largest_probabilities
from posteriori.threads import one_blas_thread


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As fits have it: threads of BLAS fight over small matrices where cores are busy."""
    with one_blas_thread():
        yield


def simulated(n, K=3, stated=1.0, seed=0):
    """Latents whose largest, with noise, is the label; their variances are stated so many times as wide as they are."""
    rng = np.random.default_rng(seed)
    mean, variance = 2.0 * rng.normal(size=(K, n)), rng.uniform(0.5, 4.0, size=(K, n))
    y = (mean + np.sqrt(variance + 1.0) * rng.normal(size=(K, n))).argmax(axis=0)
    return LeftOutLatents(mean, stated * variance), LabelledRows(np.zeros((n, 1)), y, np.ones(n))


def spread_of(n, rate=0.0, **kind):
    latents, rows = simulated(n, **kind)
    return left_out_spread([latents], rows, rate)


# The spread


@pytest.mark.parametrize("K", [2, 3])
def test_latents_that_are_right_stay_as_they_are(K):
    spreads = [spread_of(1000, K=K, seed=seed) for seed in range(3)]
    assert np.median(spreads) == 1.0
    assert min(spreads) > 0.85
    assert max(spreads) < 1.15


@pytest.mark.parametrize("K", [2, 3])
def test_variances_stated_too_wide_are_made_narrower(K):
    """Four times as wide: a quarter of them is right, and a little more is chosen, as the gain is uncertain."""
    for seed in range(2):
        assert 0.18 < spread_of(1000, K=K, stated=4.0, seed=seed) < 0.45


def test_variances_stated_too_narrow_are_made_wider():
    assert 1.3 < spread_of(1000, stated=0.5) < 2.7


@pytest.mark.parametrize("K", [2, 3])
def test_few_rows_that_are_right_hardly_move_it(K):
    spreads = [spread_of(20, K=K, seed=seed) for seed in range(15)]
    assert np.median(spreads) == 1.0
    assert min(spreads) > 0.9
    assert max(spreads) < 1.1


def test_more_rows_move_it_further():
    few, some, many = (np.median([spread_of(n, stated=4.0, seed=seed) for seed in range(3)]) for n in (20, 100, 800))
    assert 1.0 >= few > some > many
    assert few > 0.9


def test_a_gain_that_is_no_more_than_its_error_counts_for_nothing():
    """Whatever the labels of two rows say: one was easy and one was not."""
    latents = LeftOutLatents(np.array([[3.0, 3.0], [0.0, 0.0], [0.0, 0.0]]), np.full((3, 2), 4.0))
    rows = LabelledRows(np.zeros((2, 1)), np.array([0, 1]), np.ones(2))
    assert left_out_spread([latents], rows, 0.0) == 1.0


def test_a_row_of_weight_two_is_a_row_seen_twice():
    latents, rows = simulated(300, stated=4.0)
    c = np.resize([1.0, 2.0, 3.0], 300)
    again = np.repeat(np.arange(300), c.astype(int))
    weighted = left_out_spread([latents], LabelledRows(rows.X, rows.y, c), 0.01)
    repeated = left_out_spread(
        [LeftOutLatents(latents.mean[:, again], latents.variance[:, again])],
        LabelledRows(rows.X[again], rows.y[again], np.ones(len(again))),
        0.01,
    )
    assert weighted == pytest.approx(repeated, rel=1e-9)
    assert weighted < 0.8


def test_several_fits_are_judged_by_their_average():
    """The score is that of the mean probability, as it is what is predicted."""
    mean = np.array([[4.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    one, other = LeftOutLatents(mean, np.ones((3, 2))), LeftOutLatents(mean[[1, 0, 2]], np.ones((3, 2)))
    rows = LabelledRows(np.zeros((2, 1)), np.array([0, 1]), np.array([1.0, 3.0]))
    P = [largest_probabilities(fit.mean, fit.variance + 1.0)[rows.y, [0, 1]] for fit in (one, other)]
    assert left_out_score([one, other], rows, 0.0) == pytest.approx(rows.c @ np.log(np.mean(P, axis=0)), rel=1e-9)
    assert left_out_score([one], rows, 0.0) == pytest.approx(rows.c @ np.log(P[0]), rel=1e-9)
    latents, many = simulated(500, stated=4.0)
    assert left_out_spread([latents, latents], many, 0.0) == pytest.approx(left_out_spread([latents], many, 0.0))


# Probabilities of left-out labels


def test_log_probabilities_are_those_of_the_largest_latent():
    latents, rows = simulated(50)
    for spread in (1.0, 0.3):
        P = largest_probabilities(latents.mean, spread * latents.variance + 1.0)[rows.y, np.arange(50)]
        np.testing.assert_allclose(latents.log_probabilities(rows.y, 0.0, spread), np.log(P), atol=1e-8)
    pair, labels = simulated(50, K=2)
    margin = (2 * labels.y - 1) * (pair.mean[1] - pair.mean[0]) / np.sqrt(pair.variance.sum(axis=0) + 2.0)
    np.testing.assert_allclose(pair.log_probabilities(labels.y, 0.0), np.log(ndtr(margin)), rtol=1e-10)


def test_a_mislabelled_row_costs_no_more_than_its_rate():
    latents = LeftOutLatents(np.array([[0.0], [500.0], [0.0]]), np.ones((3, 1)))
    assert latents.log_probabilities(np.array([0]), 0.01)[0] == pytest.approx(np.log(0.005), abs=1e-9)
    assert latents.log_probabilities(np.array([0]), 0.0)[0] < -600.0


@pytest.mark.parametrize(
    "rate",
    [
        1e-3,
        0.2,
    ],
)
def test_left_out_labels_have_the_probabilities_that_the_node_predicts(rate):
    latents, rows = simulated(50)
    P = ArgmaxNode(1.0, rate).probabilities(*latents)[rows.y, np.arange(50)]
    np.testing.assert_allclose(np.exp(latents.log_probabilities(rows.y, rate)), P, atol=2e-3)


# Leaving rows out


def gram(X, Z):
    return np.exp(-0.5 * ((X[:, None] - Z) ** 2).sum(axis=2)) + 0.3


@pytest.mark.parametrize("K", [2, 3, 5])
def test_left_out_latents_are_those_of_a_posterior_without_the_row(K):
    """By hand: the posterior of the other rows' sites; a row that occurs twice keeps half of its weight."""
    rng = np.random.default_rng(K)
    n = 6
    X, y, counts = rng.normal(size=(n, 2)), rng.integers(0, K, n), np.array([1, 2, 1, 3, 1, 1])
    c, variances = counts * rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 3.0, K)
    shape = (1 if K == 2 else K, n)
    at = SiteParameters(rng.gamma(2.0, 0.3, shape), rng.normal(size=shape))
    solved = row_sites(y, c, K, 0.0).solve(gram(X, X), variances, at)
    got = LeftOutLatents.of(solved, MergedRows(LabelledRows(X, y, c), 0, counts))
    assert got.mean.shape == got.variance.shape == (K, n)
    for i in range(n):
        weights = c.copy()
        weights[i] *= 1.0 - 1.0 / counts[i]
        kept = weights > 0.0
        rest = row_sites(y[kept], weights[kept], K, 0.0)
        without = rest.solve(gram(X[kept], X[kept]), variances, SiteParameters(*(part[:, kept] for part in at)))
        mean, covariance = without.moments(gram(X[kept], X[i : i + 1]), np.array([1.3]))
        np.testing.assert_allclose(got.mean[:, i] - got.mean[0, i], mean[:, 0] - mean[0, 0], atol=1e-9)
        expected = independent_variances(mean, covariance, 1.0)
        np.testing.assert_allclose(got.variance[:, i], expected[:, 0], atol=1e-8)


def test_rows_left_out_are_predicted_less_well_than_rows_seen():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 3, 40)
    rows = LabelledRows(X, y, np.ones(40))
    sites = row_sites(y, rows.c, 3, 0.0)
    at = sites.start()
    for _ in range(30):
        visit = sites.sweep(gram(X, X), np.full(3, 9.0), at)
        at = at.towards(visit.target, 0.8)
    mean, covariance = visit.solved.moments(gram(X, X), np.full(40, 1.3))
    seen = LeftOutLatents(mean, independent_variances(mean, covariance, 1.0))
    left = LeftOutLatents.of(visit.solved, MergedRows(rows, 0, np.ones(40, dtype=int)))
    assert left_out_score([left], rows, 0.0) < left_out_score([seen], rows, 0.0) - 10.0
    assert (left.variance.sum(axis=0) > seen.variance.sum(axis=0)).all()
