"""log p(x, k) of new rows: against scipy.stats, far away and in many dimensions; rows drawn from it."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import logsumexp
from tests.gaussian.naive_gaussian import DIAGONAL, TIED, NaiveBelief, is_tied, naive_log_densities, shape
from tests.slow import quick_first

from posteriori.gaussian.densities import class_densities, draw, log_joint, log_likelihood
from posteriori.gaussian.niw import Belief
from posteriori.gaussian.statistics import class_statistics
from posteriori.gaussian.structures import STRUCTURES
from posteriori.maths import softmax
from posteriori.rows import memory
from posteriori.rows.memory import MemoryBlocks

K = 3
ESTIMATES = ("bayes", "map", "mle")
LOG_PRIOR = np.log([0.5, 0.2, 0.3])
structures = pytest.mark.parametrize("structure", STRUCTURES)
estimates = pytest.mark.parametrize("estimate", ESTIMATES)


def belief_of(structure, D=3, apart=2.0, nu=14.0, missing=False, seed=0):
    """Any belief: means some spreads apart, strengths and covariances of each class its own."""
    rng = np.random.default_rng(seed)
    J, width = (1 if is_tied(structure) else K), (D if missing else 1)
    roots = rng.normal(size=(J, D, 2 * D))
    Psi = roots @ np.swapaxes(roots, 1, 2) * nu / (2 * D) * rng.uniform(0.3, 2.0, (J, 1, 1))
    if shape(structure) == "diagonal":
        Psi = np.einsum("jdd->jd", Psi)
    elif shape(structure) == "spherical":
        Psi = np.einsum("jdd->j", Psi)[:, None]
    kappa, nus = rng.uniform(0.5, 9.0, (K, width)), nu + D + rng.uniform(0.0, 5.0, (J, width))
    return Belief(STRUCTURES[structure], kappa, apart * rng.normal(size=(K, D)), nus, Psi)


def units(structure, D):
    """Origin and scale of the coordinates of the belief; one scale for all where there is but one variance."""
    rng = np.random.default_rng(7)
    scale = rng.uniform(0.2, 5.0, D)
    return rng.normal(size=D) * 4.0, np.full(D, 0.3) if shape(structure) == "spherical" else scale


def densities_of(belief, estimate, log_prior=LOG_PRIOR):
    return class_densities(belief, estimate, log_prior, *units(belief.structure.name, belief.means.shape[1]))


def rows_near(belief, n=40, seed=1):
    """Rows about each of the means, in the units of the data."""
    rng = np.random.default_rng(seed)
    D = belief.means.shape[1]
    origin, scale = units(belief.structure.name, D)
    return origin + (belief.means[np.arange(n) % K] + 2.0 * rng.normal(size=(n, D))) / scale


def naive_joint(X, belief, estimate):
    """In the coordinates of the belief; densities of x are larger by the scale of each value that is there."""
    D = X.shape[1]
    origin, scale = units(belief.structure.name, D)
    each = []
    for k in range(K):
        j = 0 if is_tied(belief.structure.name) else k
        Psi = belief.Psi[j, 0] if shape(belief.structure.name) == "spherical" else belief.Psi[j]
        kappa, nu = (np.broadcast_to(a, D) for a in (belief.kappa[k], belief.nu[j]))
        each.append(NaiveBelief(kappa, belief.means[k], nu, Psi))
    log_scale = ~np.isnan(X) @ np.log(scale)
    return (naive_log_densities((X - origin) * scale, each, belief.structure.name, estimate) + log_scale[:, None]).T


def assert_digits(belief, estimate, apart):
    X = rows_near(belief)
    expected = naive_joint(X, belief, estimate) + LOG_PRIOR[:, None]
    found = log_joint(X, densities_of(belief, estimate))
    np.testing.assert_allclose(found, expected, rtol=1e-11 + 3e-15 * apart, atol=4e-9 + 1e-13 * apart)


# Densities


@structures
@estimates
@pytest.mark.parametrize("D", quick_first([3, 1, 40]))
def test_joint_probabilities_are_those_of_scipy(structure, estimate, D):
    belief = belief_of(structure, D)
    X = rows_near(belief)
    expected = naive_joint(X, belief, estimate) + LOG_PRIOR[:, None]
    np.testing.assert_allclose(log_joint(X, densities_of(belief, estimate)), expected, rtol=1e-11, atol=1e-11)


@structures
@estimates
@pytest.mark.parametrize("apart", quick_first([1e9, 1e3, 1e6]))
def test_far_apart_classes_keep_their_digits(structure, estimate, apart):
    """Of the distances within a class, as many as the numbers of the rows have."""
    assert_digits(belief_of(structure, apart=apart), estimate, apart)


@pytest.mark.parametrize("structure", STRUCTURES)
@estimates
def test_far_apart_classes_keep_their_digits_after_a_million_rows(structure, estimate):
    assert_digits(belief_of(structure, apart=1e5, nu=1e6), estimate, 1e5)


@structures
@estimates
@pytest.mark.parametrize("far", [1e3, 1e8])
def test_rows_far_from_every_class(structure, estimate, far):
    belief = belief_of(structure)
    X = rows_near(belief) * far
    expected = naive_joint(X, belief, estimate) + LOG_PRIOR[:, None]
    np.testing.assert_allclose(log_joint(X, densities_of(belief, estimate)), expected, rtol=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
@estimates
@pytest.mark.parametrize("in_fit", [False, True], ids=["in new rows", "in the fit too"])
def test_missing_values_are_left_out_of_the_product(structure, estimate, in_fit):
    """Then features differ in their strengths."""
    belief = belief_of(structure, D=5, missing=in_fit)
    X = rows_near(belief)
    complete = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.4] = np.nan
    X[3] = np.nan
    for rows in (X, complete):
        expected = naive_joint(rows, belief, estimate) + LOG_PRIOR[:, None]
        np.testing.assert_allclose(log_joint(rows, densities_of(belief, estimate)), expected, rtol=1e-11)
    np.testing.assert_array_equal(log_joint(X, densities_of(belief, estimate))[:, 3], LOG_PRIOR)


@pytest.mark.parametrize("structure", DIAGONAL)
@pytest.mark.parametrize("far", [1.0, 1e20, 1e60, 1e140])
def test_products_of_many_factors_do_not_overflow(structure, far):
    """Of 200 factors 1 + q, each up to 1e280."""
    belief = belief_of(structure, D=200)
    X = rows_near(belief, n=8)
    X[::2] *= far
    expected = naive_joint(X, belief, "bayes") + LOG_PRIOR[:, None]
    found = log_joint(X, densities_of(belief, "bayes"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
@pytest.mark.parametrize("nu", [1e5, 1e9])
def test_student_t_of_very_many_rows_keep_their_digits(structure, nu):
    """With a power of 1e9 the rounding of 1 + q would show. Rows are compared with the first: constants cancel."""
    belief = belief_of(structure, D=30, nu=nu, apart=1.0)
    X = rows_near(belief)
    found, expected = log_joint(X, densities_of(belief, "bayes")), naive_joint(X, belief, "bayes")
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=2e-9)


@structures
@estimates
def test_a_class_that_is_impossible_stays_so(structure, estimate):
    with np.errstate(divide="ignore"):
        log_prior = np.log([0.6, 0.0, 0.4])
    belief = belief_of(structure)
    X = rows_near(belief)
    found = log_joint(X, densities_of(belief, estimate, log_prior))
    assert (found[1] == -np.inf).all()
    np.testing.assert_allclose(
        found[[0, 2]], naive_joint(X, belief, estimate)[[0, 2]] + log_prior[[0, 2], None], rtol=1e-11
    )


# Blocks


@structures
@estimates
def test_rows_are_judged_alike_in_any_block(structure, estimate, monkeypatch):
    belief = belief_of(structure, D=20)
    X = rows_near(belief, n=150)
    X[np.random.default_rng(2).random(X.shape) < 0.5] = 0.0
    densities = densities_of(belief, estimate)
    whole = log_joint(X, densities)
    monkeypatch.setattr("posteriori.gaussian.densities._PART_BYTES", 64)
    monkeypatch.setattr(memory, "_BLOCK_BYTES", 100)
    singles = np.column_stack([log_joint(X[n : n + 1], densities) for n in range(0, 150, 10)])
    np.testing.assert_allclose(singles, whole[:, ::10], rtol=1e-12)
    for layout in (np.asarray, np.asfortranarray, sp.csr_array):
        blocks = MemoryBlocks(layout(X), None, None, K, n_threads=2)
        assert len(blocks.slices) > 1
        np.testing.assert_allclose(log_joint(layout(X), densities), whole, rtol=1e-12)
        np.testing.assert_allclose(blocks.map_rows(log_joint, densities), whole, rtol=1e-12)


@structures
def test_probabilities_finished_in_place(structure):
    belief = belief_of(structure)
    X, densities = rows_near(belief), densities_of(belief, "bayes")
    F = log_joint(X, densities)
    found = log_joint(X, densities, softmax.softmax_in_place)
    np.testing.assert_allclose(found, np.exp(F - logsumexp(F, axis=0)), rtol=1e-12)


# Linear log-odds


@pytest.mark.parametrize("structure", TIED)
@pytest.mark.parametrize("estimate", ["map", "mle"])
def test_log_odds_of_tied_gaussians_are_linear(structure, estimate):
    belief = belief_of(structure)
    X, densities = rows_near(belief), densities_of(belief, estimate)
    coef, intercept = densities.linear()
    F, joint = coef @ (X - densities.origin).T + intercept[:, None], log_joint(X, densities)
    np.testing.assert_allclose(F - F[0], joint - joint[0], atol=1e-10)


@pytest.mark.parametrize(
    ("structure", "estimate"),
    [(s, e) for s in STRUCTURES for e in ESTIMATES if s not in TIED or e == "bayes"],
)
def test_no_other_log_odds_are(structure, estimate):
    belief = belief_of(structure)
    densities = densities_of(belief, estimate)
    assert densities.linear() is None
    X = np.arange(5.0)[:, None] * np.ones(3)
    joint = log_joint(X, densities)
    assert np.abs(np.diff(joint - joint[0], n=2)).max() > 1e-3


# Likelihood


@structures
@pytest.mark.parametrize("estimate", ["map", "mle"])
@pytest.mark.parametrize("detail", ["full", "least"])
def test_the_likelihood_from_statistics_is_the_sum_over_rows(structure, estimate, detail):
    belief = belief_of(structure)
    rng = np.random.default_rng(0)
    X, y, c = rows_near(belief), rng.integers(0, K, 40), rng.uniform(0.0, 2.0, 40)
    densities = densities_of(belief, estimate)
    statistics = class_statistics(X, y, c, K, "full" if detail == "full" else STRUCTURES[structure].scatter)
    expected = c @ log_joint(X, densities)[y, np.arange(40)]
    assert log_likelihood(statistics, densities) == pytest.approx(expected, rel=1e-12)


@structures
def test_the_likelihood_does_not_ask_about_classes_without_rows(structure):
    belief = belief_of(structure)
    X, y = rows_near(belief), np.arange(40) % 2
    with np.errstate(divide="ignore"):
        densities = densities_of(belief, "mle", np.log([0.7, 0.3, 0.0]))
    found = log_likelihood(class_statistics(X, y, None, K, "full"), densities)
    assert found == pytest.approx(log_joint(X, densities)[y, np.arange(40)].sum(), rel=1e-12)


@pytest.mark.parametrize("structure", DIAGONAL)
def test_the_likelihood_of_what_is_there(structure):
    belief = belief_of(structure, missing=True)
    X, y = rows_near(belief), np.random.default_rng(0).integers(0, K, 40)
    X[np.random.default_rng(0).random(X.shape) < 0.4] = np.nan
    X[y == 1, 2] = np.nan
    densities = densities_of(belief, "mle")
    found = log_likelihood(class_statistics(X, y, None, K, "diagonal"), densities)
    assert found == pytest.approx(log_joint(X, densities)[y, np.arange(40)].sum(), rel=1e-12)


# Draws


N_DRAWS = 40_000


def drawn(structure, estimate, missing=False):
    """Draws, in units in which each class has mean zero and Psi the identity, and their classes."""
    belief = belief_of(structure, missing=missing)
    X, codes = draw(densities_of(belief, estimate), N_DRAWS, np.random.default_rng(0))
    origin, scale = units(structure, 3)
    Z = (X - origin) * scale - belief.means[codes]
    for k in range(K):
        Psi = belief.Psi[0 if is_tied(structure) else k]
        if shape(structure) == "full":
            Z[codes == k] = np.linalg.solve(np.linalg.cholesky(Psi), Z[codes == k].T).T
        else:
            Z[codes == k] /= np.sqrt(Psi)
    return belief, Z, codes


@structures
@estimates
def test_draws_have_the_moments_and_the_frequencies_of_the_classes(structure, estimate):
    """Within 4.5 of their standard errors: 60 and more comparisons."""
    belief, Z, codes = drawn(structure, estimate)
    p = np.exp(LOG_PRIOR)
    errors = (np.bincount(codes) / N_DRAWS - p) / np.sqrt(p * (1 - p) / N_DRAWS)
    assert np.abs(errors).max() < 4.5
    i, j = np.triu_indices(3)
    for k in range(K):
        kappa, nu = belief.kappa[k, 0], belief.nu[0 if is_tied(structure) else k, 0]
        sharing = K if is_tied(structure) else 1
        extra = {"full": 4 + sharing, "diagonal": 2 + sharing, "spherical": 2 + 3 * sharing}[shape(structure)]
        v = nu - 2 if shape(structure) == "full" else nu
        variance = {"bayes": (kappa + 1) / kappa / (v - 2), "map": 1 / (nu + extra), "mle": 1 / nu}[estimate]
        own = Z[codes == k] / np.sqrt(variance)
        products = own[:, i] * own[:, j]
        for sample, expected in ((own, 0.0), (products, np.eye(3)[i, j])):
            error = (sample.mean(axis=0) - expected) / (sample.std(axis=0) / np.sqrt(len(sample)))
            assert np.abs(error).max() < 4.5


@pytest.mark.parametrize(
    ("structure", "missing"), [*((structure, False) for structure in STRUCTURES), *((s, True) for s in DIAGONAL)]
)
def test_draws_have_the_tails_of_a_student_t(structure, missing):
    """Squared distances follow an F distribution, of all features together or, where they are independent, of each."""
    belief, Z, codes = drawn(structure, "bayes", missing)
    for k in range(K):
        kappa, nu = belief.kappa[k], belief.nu[0 if is_tied(structure) else k]
        own = Z[codes == k] ** 2 / ((kappa + 1) / kappa)
        if structure in DIAGONAL:
            for d in range(3):
                v = nu[d if missing else 0]
                assert stats.kstest(own[:, d] * v, stats.f(1, v).cdf).pvalue > 1e-3
        else:
            v = nu[0] - 2 if shape(structure) == "full" else nu[0]
            assert stats.kstest(own.sum(axis=1) * v / 3, stats.f(3, v).cdf).pvalue > 1e-3


def test_an_impossible_class_is_not_drawn():
    with np.errstate(divide="ignore"):
        densities = densities_of(belief_of("tied"), "bayes", np.log([0.7, 0.0, 0.3]))
    _, codes = draw(densities, 1000, np.random.default_rng(0))
    assert set(codes) == {0, 2}
