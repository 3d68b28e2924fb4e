"""A temperature with doubt: its optimum against scipy, its rule against rows, and what it does to certain errors."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from posteriori.decision.temperature import (
    LOWEST,
    MOVES,
    Temperature,
    fit_temperature,
    likely_temperature,
    log_probabilities,
)


def simulated(n, K=3, seed=0, slope=1.0, doubt=0.0):
    """Log-probabilities, true classes that follow a map of them, and five parts."""
    rng = np.random.default_rng(seed)
    Z = log_probabilities(rng.dirichlet(np.full(K, 0.7), n))
    truth = (1 - doubt) * softmax(slope * Z, axis=1) + doubt / K
    codes = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return Z, codes.clip(0, K - 1), np.arange(n) % 5


def mode(Z, codes, frequencies, weights=1.0):
    """log beta and epsilon of the highest posterior density, by scipy on both at once from several starts."""

    def cost(u):
        doubt = expit(u[1])
        P = (1 - doubt) * softmax(np.exp(u[0]) * Z, axis=1) + doubt * frequencies
        likelihood = (weights * np.log(P[np.arange(len(Z)), codes])).sum()
        return 2.0 * u[0] ** 2 - likelihood - 0.1 * np.log(doubt)

    starts = [(b, e) for b in (-1.5, 0.0, 1.0) for e in (-7.0, -2.0)]
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000}
    found = [minimize(cost, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(found, key=lambda each: each.fun).x
    return best[0], expit(best[1])


@pytest.mark.parametrize(("K", "slope", "doubt"), [(2, 0.3, 0.0), (3, 2.0, 0.0), (4, 1.5, 0.2)])
def test_slopes_of_parts_are_those_of_the_highest_posterior_density(K, slope, doubt):
    Z, codes, parts = simulated(600, K, slope=slope, doubt=doubt)
    frequencies = np.bincount(codes, minlength=K) / len(codes)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 600)
    found, gain = fit_temperature(Z, codes, parts, frequencies, weights)
    of_parts = [mode(Z[parts == i], codes[parts == i], frequencies, weights[parts == i])[0] for i in range(5)]
    assert np.log(found.slope) == pytest.approx(np.mean(of_parts), abs=2e-4)
    own = np.empty(600)
    for i, u in enumerate(of_parts):
        own[parts == i] = softmax(np.exp(u) * Z, axis=1)[np.arange(600), codes][parts == i]
    doubts = np.append(np.geomspace(1e-7, 1.0, 4000), found.doubt)
    values = [weights @ np.log(own + e * (frequencies[codes] - own)) + 0.1 * np.log(e) for e in doubts]
    assert values[-1] >= max(values) - 1e-3
    assert gain.mean > gain.error


@pytest.mark.slow
def test_the_gain_is_that_of_parts_left_out_and_its_error_that_of_rows():
    Z, codes, parts = simulated(500, slope=0.4)
    frequencies = np.full(3, 1 / 3)
    _, gain = fit_temperature(Z, codes, parts, frequencies)
    rows = np.arange(500), codes
    before, after = -log_softmax(Z, axis=1)[rows], np.empty(500)
    for i in range(5):
        out = parts == i
        slopes = [mode(Z[parts == j], codes[parts == j], frequencies)[0] for j in range(5) if j != i]
        own = np.concatenate(
            [
                softmax(np.exp(u) * Z[parts == j], axis=1)[np.arange(100), codes[parts == j]]
                for u, j in zip(slopes, [j for j in range(5) if j != i], strict=True)
            ]
        )
        grid = np.geomspace(1e-7, 1.0, 8000)
        doubt = grid[np.argmax([np.log(own + e * (1 / 3 - own)).sum() + 0.1 * np.log(e) for e in grid])]
        P = (1 - doubt) * softmax(np.exp(np.mean(slopes)) * Z[out], axis=1) + doubt / 3
        after[out] = -np.log(P[np.arange(100), codes[out]])
    saved = before - after
    assert gain.mean == pytest.approx(saved.mean(), rel=1e-3)
    assert gain.error == pytest.approx(saved.std() / np.sqrt(500), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_good_probabilities_stay_as_they_are_or_nearly(seed):
    Z, codes, parts = simulated(1000, seed=seed)
    found, gain = fit_temperature(Z, codes, parts, np.full(3, 1 / 3))
    P = np.exp(Z)
    if gain.mean <= gain.error:
        assert (found.slope, found.doubt) == (1.0, 0.0)
    assert np.abs(np.exp(found.log_proba(Z)) - P).mean() < 0.02


def test_errors_stated_with_certainty_are_doubt_and_no_temperature():
    """One label in ten is wrong: the slope stays what it was, and rows keep their order."""
    rng = np.random.default_rng(0)
    Z = log_probabilities(rng.dirichlet(np.full(4, 0.05), 3000))
    codes = (np.exp(Z).cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1).clip(0, 3)
    wrong = rng.random(3000) < 0.1
    codes[wrong] = rng.integers(0, 4, wrong.sum())
    found, _ = fit_temperature(Z, codes, np.arange(3000) % 5, np.full(4, 0.25))
    assert found.doubt == pytest.approx(0.1, abs=0.02)
    assert found.slope == pytest.approx(1.0, abs=0.1)


def test_one_fit_with_enormous_logits_does_not_decide_for_the_others():
    """What a solver leaves of separable rows: one part of five is certain of everything, and wrong now and then."""
    rng = np.random.default_rng(0)
    P, parts = rng.dirichlet(np.full(2, 0.1), 1000), np.arange(1000) % 5
    codes, Z = (P[:, 0] < rng.random(1000)).astype(int), log_probabilities(P)
    Z[parts == 3] = np.where(P[parts == 3] > 0.5, 0.0, LOWEST)
    found, _ = fit_temperature(Z, codes, parts, np.full(2, 0.5))
    others = parts != 3
    rows = np.arange(others.sum()), codes[others]
    before, after = (-map_[rows].mean() for map_ in (log_softmax(Z[others], axis=1), found.log_proba(Z[others])))
    slopes = np.geomspace(1e-3, 10, 200)
    common = min(slopes, key=lambda slope: -log_softmax(slope * Z, axis=1)[np.arange(1000), codes].sum())
    harm = -log_softmax(common * Z[others], axis=1)[rows].mean() - before
    assert harm > 0.1  # of one temperature for all
    assert after - before < harm / 5


def test_a_weight_is_a_number_of_rows():
    Z, codes, parts = simulated(300, slope=0.5)
    weights = np.random.default_rng(0).integers(0, 4, 300)
    again = np.repeat(np.arange(300), weights)
    weighted, gain = fit_temperature(Z, codes, parts, np.full(3, 1 / 3), weights.astype(float))
    repeated, other = fit_temperature(Z[again], codes[again], parts[again], np.full(3, 1 / 3))
    assert (weighted.slope, weighted.doubt) == pytest.approx((repeated.slope, repeated.doubt), rel=1e-5)
    assert (gain.mean, gain.error) == pytest.approx((other.mean, other.error), rel=1e-5)


def test_with_fewer_than_two_parts_nothing_can_be_tried_and_nothing_is_changed():
    Z, codes, _ = simulated(100, slope=0.3)
    found, gain = fit_temperature(Z, codes, np.zeros(100, int), np.full(3, 1 / 3))
    assert (found.slope, found.doubt, gain.mean) == (1.0, 0.0, 0.0)


def test_probabilities_are_a_mixture():
    Z = np.log([[0.8, 0.2], [0.5, 0.5]])
    P = np.exp(Temperature(2.0, 0.1, np.array([0.3, 0.7])).log_proba(Z))
    np.testing.assert_allclose(P, 0.9 * np.array([[0.64, 0.04], [0.25, 0.25]]) / [[0.68], [0.5]] + [0.03, 0.07])


def test_a_class_without_rows_may_have_no_frequency():
    P = np.exp(Temperature(1.0, 0.1, np.array([0.5, 0.5, 0.0])).log_proba(np.log(np.full((1, 3), 1 / 3))))
    np.testing.assert_allclose(P, [[0.35, 0.35, 0.3]])


# The average over four models


def by_quadrature(Z, codes, frequencies, weights):
    """log beta and epsilon averaged over models and, within each, taken at the mode; evidences by sums over grids."""
    own = lambda u: softmax(np.exp(u) * Z, axis=1)[np.arange(len(Z)), codes]  # noqa: E731
    base = frequencies[codes]
    u, t = np.linspace(-3, 2, 401), np.linspace(-18, 0, 721)
    log_u = -2.0 * u**2 - np.log(0.5 * np.sqrt(2 * np.pi))
    log_t = np.log(0.5) + 0.5 * t
    still = np.array([weights @ np.log(own(each)) for each in u])
    both = np.array([weights @ np.log(o + np.exp(t)[:, None] * (base - o)).T for o in map(own, u)])
    centre = np.abs(u).argmin()
    logs = {
        (0, 0): np.array([still[centre]]),
        (1, 0): still + log_u + np.log(u[1] - u[0]),
        (0, 1): both[centre] + log_t + np.log(t[1] - t[0]),
        (1, 1): (both + log_u[:, None] + log_t + np.log((u[1] - u[0]) * (t[1] - t[0]))),
    }
    evidence = {model: np.logaddexp.reduce(each.ravel()) for model, each in logs.items()}
    prior = np.log(MOVES / (1 - MOVES))
    likely = softmax([evidence[m] + prior * sum(m) for m in logs])
    slopes = [0.0, u[logs[1, 0].argmax()], 0.0, u[np.unravel_index(logs[1, 1].argmax(), both.shape)[0]]]
    doubts = [0.0, 0.0, np.exp(t[logs[0, 1].argmax()]), np.exp(t[np.unravel_index(logs[1, 1].argmax(), both.shape)[1]])]
    return likely @ slopes, likely @ doubts


@pytest.mark.parametrize(("n", "slope", "doubt"), [(60, 1.0, 0.0), (60, 0.6, 0.0), (150, 1.0, 0.15), (150, 2.0, 0.1)])
def test_the_average_is_that_of_evidences_by_quadrature(n, slope, doubt):
    Z, codes, _ = simulated(n, 3, slope=slope, doubt=doubt)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, n)
    frequencies = np.bincount(codes, weights, 3) / weights.sum()
    found = likely_temperature(Z, codes, frequencies, weights)
    log_slope, epsilon = by_quadrature(Z, codes, frequencies, weights)
    assert np.log(found.slope) == pytest.approx(log_slope, abs=0.04)
    assert found.doubt == pytest.approx(epsilon, rel=0.25, abs=0.004)


def test_few_rows_hardly_move_a_temperature_and_many_find_it():
    for n, mean in [(30, 0.0), (3000, np.log(0.5))]:
        found = []
        for seed in range(10):
            Z, codes, _ = simulated(n, 3, seed=seed, slope=1.0 if n == 30 else 0.5)
            found.append(np.log(likely_temperature(Z, codes, np.full(3, 1 / 3)).slope))
        assert np.mean(found) == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize("weights", [np.zeros(0), np.zeros(4)])
def test_no_rows_move_nothing(weights):
    Z, codes, _ = simulated(4)
    found = likely_temperature(Z[: len(weights)], codes[: len(weights)], np.full(3, 1 / 3), weights)
    assert (found.slope, found.doubt) == (1.0, 0.0)


def test_no_label_is_impossible_to_a_likely_temperature():
    """One certain error in a hundred: a doubt of about a hundredth."""
    Z = np.where(np.eye(2)[np.zeros(100, dtype=int)] > 0, 0.0, LOWEST)
    codes = np.arange(100) // 99
    found = likely_temperature(Z, codes, np.array([0.5, 0.5]))
    assert 0.005 < found.doubt < 0.1
    assert found.log_proba(Z)[99, 1] > -6
