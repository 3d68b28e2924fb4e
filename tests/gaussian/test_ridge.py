"""Means under exp(-lambda |mu|^2), covariances of maximum likelihood: the top of the log posterior, and its limits."""

from contextlib import suppress

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.gaussian.naive_gaussian import DIAGONAL, in_shape, is_tied, shape, squares

from posteriori import GaussianClassifier, RidgePrior
from posteriori.gaussian.ridge import ridge_mode
from posteriori.gaussian.statistics import class_statistics
from posteriori.gaussian.structures import STRUCTURES

K, D = 3, 3
CENTRE = np.array([-1.0, 0.5, 2.0])
PRECISION = np.array([8.0, 0.5, 3.0])
structures = pytest.mark.parametrize("structure", STRUCTURES)


def data(n=30, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + 2.0 * rng.normal(size=(K, D))[y]
    X[rng.random(X.shape) < missing] = np.nan
    return X, y, rng.uniform(0.3, 2.0, n)


def found_for(X, y, c, structure, centre=CENTRE, precision=PRECISION, n_classes=K, **options):
    """Means, covariances and whether they settled."""
    kind = "diagonal" if np.isnan(X).any() else STRUCTURES[structure].scatter
    statistics = class_statistics(X, y, c, n_classes, kind)
    belief, settled = ridge_mode(statistics, STRUCTURES[structure], centre, precision, **options)
    assert (belief.nu[: y.max() + 1] == 1.0).all()  # Psi are the covariances themselves
    return belief.means, belief.Psi, settled


def log_posterior(means, Sigma, X, y, c, structure, centre=CENTRE, precision=PRECISION):
    """Row by row; a missing value has no factor."""
    total = -0.5 * np.sum(precision * (means - centre) ** 2)
    for x, k, weight in zip(X, y, c, strict=True):
        S = Sigma[0 if is_tied(structure) else k]
        z = x - means[k]
        if shape(structure) == "full":
            total -= 0.5 * weight * (z @ np.linalg.solve(S, z) + np.linalg.slogdet(S)[1])
        else:
            total -= 0.5 * weight * np.nansum(z**2 / S + np.log(S))
    return total


def assert_at_the_top(means, Sigma, *rest):
    """No step is upwards, nor uphill to first order; covariances are stepped in units of themselves."""
    top = log_posterior(means, Sigma, *rest)
    rng = np.random.default_rng(1)

    def height(h, step, turn):
        if Sigma.ndim < 3:
            return log_posterior(means + h * step, Sigma * (1 + h * turn), *rest)
        root = np.eye(D) + h * turn
        return log_posterior(means + h * step, root @ Sigma @ np.swapaxes(root, 1, 2), *rest)

    for _ in range(8):
        step, turn = rng.normal(size=means.shape), rng.normal(size=Sigma.shape)
        up, down = height(1e-5, step, turn), height(-1e-5, step, turn)
        assert max(up, down) < top
        assert abs(up - down) < 1e-2 * (2 * top - up - down)


@structures
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_the_log_posterior_is_stationary(structure, weighted):
    X, y, c = data()
    c = c if weighted else np.ones(len(X))
    means, Sigma, settled = found_for(X, y, c, structure)
    assert settled
    assert_at_the_top(means, Sigma, X, y, c, structure)


@pytest.mark.parametrize("structure", DIAGONAL)
def test_the_log_posterior_is_stationary_with_missing_values(structure):
    X, y, c = data(missing=0.3)
    means, Sigma, _ = found_for(X, y, c, structure)
    assert_at_the_top(means, Sigma, X, y, c, structure)


@structures
def test_the_means_of_the_source(structure):
    """With p = 0 and Q = 2 lambda: mu_k = (n_k I + 2 lambda Sigma_k)^{-1} sum of the rows of class k."""
    X, y, c = data()
    lambda_ = 1.7
    means, Sigma, _ = found_for(X, y, c, structure, np.zeros(D), np.full(D, 2 * lambda_))
    for k in range(K):
        S = Sigma[0 if is_tied(structure) else k]
        S = S if shape(structure) == "full" else np.diag(np.broadcast_to(S, D))
        w = c * (y == k)
        np.testing.assert_allclose(means[k], np.linalg.solve(w.sum() * np.eye(D) + 2 * lambda_ * S, w @ X), rtol=1e-11)


def scatters_about(points, X, y, c, structure):
    """Averages of squares about points, in the shape of the structure."""
    about = [squares(X - points[k], c * (y == k)) for k in range(K)]
    raw = [in_shape(structure, M + n * np.outer(m, m)) for (n, m, M) in about]
    counts = np.array([n[0] for n, _, _ in about])
    values = D if shape(structure) == "spherical" else 1
    if is_tied(structure):
        return [sum(raw) / counts.sum() / values]
    return [M / n / values for M, n in zip(raw, counts, strict=True)]


@structures
def test_no_strength_is_maximum_likelihood(structure):
    X, y, c = data()
    means, Sigma, settled = found_for(X, y, c, structure, precision=np.zeros(D))
    assert settled
    xbar = np.array([np.average(X[y == k], axis=0, weights=c[y == k]) for k in range(K)])
    np.testing.assert_allclose(means, xbar, rtol=1e-12)
    for S, expected in zip(Sigma, scatters_about(xbar, X, y, c, structure), strict=True):
        np.testing.assert_allclose(S, np.atleast_1d(expected), rtol=1e-10, atol=1e-13)


@structures
def test_a_huge_strength_leaves_nothing_of_the_means(structure):
    """Covariances are then averages of squares about the prior's mean."""
    X, y, c = data()
    means, Sigma, settled = found_for(X, y, c, structure, np.zeros(D), np.full(D, 1e14))
    assert settled
    np.testing.assert_allclose(means, 0.0, atol=1e-11)
    for S, expected in zip(Sigma, scatters_about(np.zeros((K, D)), X, y, c, structure), strict=True):
        np.testing.assert_allclose(S, np.atleast_1d(expected), rtol=1e-10, atol=1e-10)


def test_stronger_priors_pull_further():
    X, y, c = data()
    strengths = (0.0, 0.1, 1.0, 10.0, 100.0)
    norms = [np.linalg.norm(found_for(X, y, c, "tied", np.zeros(D), np.full(D, a))[0]) for a in strengths]
    assert (np.diff(norms) < 0).all()


@pytest.mark.parametrize("structure", ["full", "tied"])
def test_a_general_optimiser_finds_the_same_top(structure):
    """Two features; the covariances by their triangular roots."""
    X, y, c = data()
    X, y = X[:, :2], np.minimum(y, 1)
    rest = (X, y, c, structure, CENTRE[:2], PRECISION[:2])
    J = 1 if structure == "tied" else 2

    def unpacked(theta):
        roots = np.zeros((J, 2, 2))
        roots[:, [0, 1, 1], [0, 0, 1]] = theta[4:].reshape(J, 3)
        roots[:, [0, 1], [0, 1]] = np.exp(roots[:, [0, 1], [0, 1]])
        return theta[:4].reshape(2, 2), roots @ np.swapaxes(roots, 1, 2)

    best = minimize(lambda theta: -log_posterior(*unpacked(theta), *rest), np.zeros(4 + 3 * J), tol=1e-8)
    means, Sigma, _ = found_for(X, y, c, structure, CENTRE[:2], PRECISION[:2], n_classes=2)
    for found, expected in zip((means, Sigma), unpacked(best.x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert log_posterior(means, Sigma, *rest) >= -best.fun - 1e-9


@structures
def test_every_step_is_upwards(structure):
    X, y, c = data()
    steps = [found_for(X, y, c, structure, max_iter=i) for i in (1, 2, 3, 5, 10, 10_000)]
    heights = [log_posterior(means, Sigma, X, y, c, structure) for means, Sigma, _ in steps]
    assert (np.diff(heights) >= -1e-10).all()
    assert heights[-1] > heights[0]
    assert [settled for *_, settled in steps][:2] == [False, False]


@structures
def test_a_class_without_rows_has_the_mean_of_the_prior(structure):
    X, y, c = data()
    means, Sigma, settled = found_for(X, y, c, structure, n_classes=K + 1)
    np.testing.assert_array_equal(means[-1], CENTRE)
    others, S, _ = found_for(X, y, c, structure)
    np.testing.assert_allclose(means[:-1], others, rtol=1e-12)
    np.testing.assert_allclose(Sigma[: len(S)], S, rtol=1e-12)
    assert settled


@pytest.mark.parametrize("structure", STRUCTURES)
def test_where_the_origin_lies_is_of_no_consequence(structure):
    """Not even to a class without rows, the last one."""
    X, y, c = data()
    shift = np.array([3.0, -4.0, 5.0])
    means, Sigma, _ = found_for(X, y, c, structure, n_classes=K + 1)
    moved, same, _ = found_for(X + shift, y, c, structure, CENTRE + shift, n_classes=K + 1)
    np.testing.assert_allclose(moved - shift, means, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(same, Sigma, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("structure", [s for s in STRUCTURES if shape(s) != "spherical"])
def test_constant_columns_stay_where_they_are(structure):
    """Their variance is zero, and so is the pull: not even rounding may move them."""
    X, y, c = data()
    X[:, 1] = 7.0
    means, Sigma, settled = found_for(X, y, c, structure)
    assert settled
    np.testing.assert_array_equal(means[:, 1], 7.0)
    np.testing.assert_array_equal(Sigma[:, 1], 0.0)


def test_constant_columns_are_pulled_where_all_features_share_a_variance():
    X, y, c = data()
    X[:, 1] = 7.0
    means, Sigma, settled = found_for(X, y, c, "spherical")
    assert settled
    assert_at_the_top(means, Sigma, X, y, c, "spherical")
    assert (means[:, 1] < 7.0).all()


def test_the_higher_of_two_modes_is_taken():
    """A narrow class far from the prior's centre: at the rows the density is high, nearer the centre the prior."""
    n, xbar, variance, strength = 10.0, 10.0, 1e-4, 1.0
    X = xbar + np.sqrt(variance) * np.array([-1.0, 1.0]).repeat(5)[:, None]
    y = np.zeros(10, dtype=int)
    statistics = class_statistics(X, y, None, 1, "diagonal")
    belief, settled = ridge_mode(statistics, STRUCTURES["diagonal"], np.zeros(1), np.full(1, 2.0 * strength))

    def log_posterior(mu):
        return -0.5 * n * np.log(variance + (xbar - mu) ** 2) - strength * mu**2

    grid = np.linspace(-1.0, 11.0, 120_001)
    best = grid[np.argmax(log_posterior(grid))]
    assert settled
    assert belief.means[0, 0] == pytest.approx(best, abs=1e-3)
    assert abs(best) < 5.0  # not the one at the rows


FAR = np.array([[0, 0], [1, 1], [0, 1], [1, 1], [0, 0], [0, 0], [1, 0]]) * [1.0, 1e100]


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::posteriori.SingularWarning")
def test_values_of_1e100_give_numbers_where_one_start_leads_to_them():
    model = GaussianClassifier("tied", estimate="map", prior=RidgePrior(1e12)).fit(FAR, [0, 1, 0, 1, 0, 0, 1])
    assert np.isfinite(model.means_).all()
    np.testing.assert_allclose(model.predict_proba(FAR).sum(axis=1), 1.0)


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::posteriori.SingularWarning")
def test_values_of_1e100_give_numbers_or_are_refused_where_it_depends_on_rounding():
    model = GaussianClassifier("tied", estimate="map", prior=RidgePrior(1e12), classes=[0, 1])
    with suppress(ValueError):
        model.fit(FAR, np.zeros(7, int))
        assert np.isfinite(model.means_).all()
        np.testing.assert_allclose(model.predict_proba(FAR), np.tile([1.0, 0.0], (7, 1)), atol=0.2)


def test_values_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match="squares overflow: rescale it"):
        GaussianClassifier("tied", estimate="map", prior=RidgePrior(1e12)).fit(1e60 * FAR, [0, 1, 0, 1, 0, 0, 1])
