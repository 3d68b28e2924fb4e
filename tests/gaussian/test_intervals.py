"""Intervals of class probabilities: against parameters drawn one by one and weighted by the density of the row."""

import numpy as np
import pytest
from scipy.stats import invwishart
from tests.slow import quick_first

import posteriori as po
from posteriori.gaussian.structures import STRUCTURES

COVARIANCES = list(STRUCTURES)


@pytest.fixture(scope="module")
def rows():
    """Three classes of twelve rows in two dimensions, and rows between them."""
    rng = np.random.default_rng(3)
    y = np.repeat(["a", "b", "c"], 12)
    centres = {"a": (0.0, 0.0), "b": (2.0, 0.5), "c": (0.5, 2.5)}
    X = np.array([centres[label] for label in y]) + rng.normal(size=(36, 2)) * [1.0, 0.7]
    return 10.0 + 5.0 * X, y, 10.0 + 5.0 * np.array([[1.0, 0.3], [0.3, 1.2], [1.2, 1.3], [0.0, 0.0]])


def naive_draws(model, X, n_draws, rng):
    """Class probabilities (S, n, K) under parameters drawn from the belief after the fit, and the density of each row.

    Means and covariances are drawn as written in the definition of the belief; the weights account for the row itself.
    """
    posterior = model.seen_.row_posterior(class_prior_given=model.class_prior is not None)
    belief, Z = posterior.belief, posterior.densities.coordinates(X) / posterior.unit
    K, D = belief.means.shape
    kappa, nu = np.broadcast_to(belief.kappa, (K, D)), np.broadcast_to(belief.nu, (len(belief.Psi), belief.nu.shape[1]))
    joint = np.empty((n_draws, len(Z), K))
    for s in range(n_draws):
        covariances = [_drawn_covariance(Psi, degrees, D, rng) for Psi, degrees in zip(belief.Psi, nu, strict=True)]
        gammas = None if posterior.concentrations is None else rng.standard_gamma(posterior.concentrations)
        prior = np.exp(posterior.densities.log_prior) if gammas is None else gammas / gammas.sum()
        for k in range(K):
            Sigma = covariances[k % len(covariances)]
            mean = rng.multivariate_normal(belief.means[k], Sigma / np.sqrt(kappa[k] * kappa[k][:, None]))
            Y = Z - mean
            q = np.einsum("nd,nd->n", Y @ np.linalg.inv(Sigma), Y)
            joint[s, :, k] = prior[k] * np.exp(-0.5 * q) / np.sqrt(np.linalg.det(2.0 * np.pi * Sigma))
    density = joint.sum(axis=2)
    return joint / density[:, :, None], density / density.sum(axis=0)


def _drawn_covariance(Psi, nu, D, rng):
    if Psi.ndim == 2:
        return invwishart(nu[0], Psi).rvs(random_state=rng).reshape(D, D)
    variances = Psi / rng.chisquare(nu, max(len(Psi), len(nu)))
    return np.diag(np.broadcast_to(variances, (D,)))


def weighted_quantile(values, weights, level):
    order = np.argsort(values)
    return values[order][np.searchsorted(np.cumsum(weights[order]), level)]


@pytest.mark.parametrize("covariance", quick_first(["tied", "diagonal", "full", "tied_diagonal", "spherical"]))
def test_intervals_are_those_of_parameters_drawn_one_by_one(rows, covariance):
    X, y, new = rows
    model = po.GaussianClassifier(covariance, prior=po.NormalInverseWishartPrior(kappa=0.5)).fit(X, y)
    P, weights = naive_draws(model, new, 2000, np.random.default_rng(0))
    mean = np.einsum("snk,sn->nk", P, weights)
    np.testing.assert_allclose(mean, model.predict_proba(new), atol=0.02)  # the oracle itself is right
    lower, upper = model.predict_interval(new, 0.8)
    for n in range(len(new)):
        for k in range(3):
            ends = [weighted_quantile(P[:, n, k], weights[:, n], level) for level in (0.1, 0.9)]
            np.testing.assert_allclose([lower[n, k], upper[n, k]], ends, atol=0.035)
    entropies = -(P * np.log(np.maximum(P, 1e-300))).sum(axis=2)
    np.testing.assert_allclose(model.uncertainty(new).aleatoric, (entropies * weights).sum(axis=0), atol=0.03)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_draws_have_the_predictive_probabilities_as_their_mean(rows, covariance):
    from posteriori.gaussian.row_posterior import _drawn

    X, y, new = rows
    model = po.GaussianClassifier(covariance).fit(X, y)
    far = np.array([[60.0, -200.0], [1e9, 1e9], [1e200, -1e200]])
    for points in (new, far):
        P, _ = _drawn(np.clip(points, -1e12, 1e12), model.seen_.row_posterior(class_prior_given=False), 4096)
        np.testing.assert_allclose(P.mean(axis=0).T, model.predict_proba(np.clip(points, -1e12, 1e12)), atol=0.01)
    lower, upper = model.predict_interval(far)
    assert ((lower >= 0.0) & (lower <= upper) & (upper <= 1.0)).all()


@pytest.mark.parametrize("covariance", quick_first(COVARIANCES))
def test_true_probabilities_are_inside_as_often_as_stated(covariance):
    """Parameters, rows and new rows all come from the model: 90 % of true probabilities lie in their intervals."""
    rng = np.random.default_rng(1)
    structure, inside, total = STRUCTURES[covariance], 0, 0
    for _ in range(60):
        matrices = [invwishart(6, 6.0 * np.eye(2)).rvs(random_state=rng) for _ in range(2)]
        if covariance != "full" and covariance != "tied":
            level = np.eye(2) if covariance == "spherical" else np.diag(rng.uniform(0.5, 1.5, 2))
            matrices = [level * 6.0 / rng.chisquare(6) for _ in range(2)]
        if structure.tied:
            matrices[1] = matrices[0]
        means = [rng.multivariate_normal(np.zeros(2), matrix / 0.5) for matrix in matrices]
        y = rng.permutation(np.repeat([0, 1], 10))
        X, new_y = np.array([rng.multivariate_normal(means[k], matrices[k]) for k in y]), rng.integers(0, 2, 20)
        new = np.array([rng.multivariate_normal(means[k], matrices[k]) for k in new_y])
        prior = po.NormalInverseWishartPrior(mean=0.0, kappa=0.5, nu=6.0, scale=6.0)
        model = po.GaussianClassifier(covariance, prior=prior, class_prior=[0.5, 0.5]).fit(X, y)
        densities = [
            np.exp(-0.5 * np.einsum("nd,nd->n", (new - m) @ np.linalg.inv(S), new - m)) / np.sqrt(np.linalg.det(S))
            for m, S in zip(means, matrices, strict=True)
        ]
        truth = densities[1] / (densities[0] + densities[1])
        lower, upper = model.predict_interval(new, 0.9)
        inside += int(((truth >= lower[:, 1]) & (truth <= upper[:, 1])).sum())
        total += len(truth)
    assert 0.85 < inside / total < 0.95


def test_missing_values_are_left_out(rows):
    X, y, new = rows
    model = po.GaussianClassifier("diagonal").fit(X, y)
    one = po.GaussianClassifier("diagonal", prior=po.NormalInverseWishartPrior(), class_prior=[1 / 3] * 3).fit(X, y)
    alone = po.GaussianClassifier("diagonal", prior=po.NormalInverseWishartPrior(), class_prior=[1 / 3] * 3)
    alone.fit(X[:, :1], y)
    hidden = new.copy()
    hidden[:, 1] = np.nan
    for a, b in zip(one.predict_interval(hidden), alone.predict_interval(new[:, :1]), strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)
    assert np.isfinite(model.uncertainty(hidden).total).all()


def test_a_row_has_the_same_interval_in_every_batch(rows):
    X, y, _ = rows
    model = po.GaussianClassifier().fit(X, y)
    lower, upper = model.predict_interval(X)
    np.testing.assert_allclose(model.predict_interval(X[7:8])[0], lower[7:8], atol=1e-12)
    np.testing.assert_allclose(model.predict_interval(X[5:20])[1], upper[5:20], atol=1e-12)
    parts = model.uncertainty(X)
    P = model.predict_proba(X)
    np.testing.assert_allclose(parts.total, -(P * np.log(P)).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-12)
    assert (parts.epistemic >= 0.0).all()


@pytest.mark.parametrize("estimate", ["map", "mle"])
def test_an_estimate_without_a_posterior_has_no_interval(rows, estimate):
    X, y, new = rows
    model = po.GaussianClassifier("tied", estimate=estimate).fit(X, y)
    for method in ("predict_interval", "uncertainty"):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError) as raised:
            getattr(model, method)(new)
        assert "use estimate='bayes'" in str(raised.value.__cause__)


def test_a_stored_model_has_the_same_intervals(rows, tmp_path):
    X, y, new = rows
    model = po.GaussianClassifier().fit(X, y)
    po.save(model, tmp_path / "m.model")
    for a, b in zip(model.predict_interval(new), po.load(tmp_path / "m.model").predict_interval(new), strict=True):
        np.testing.assert_array_equal(a, b)
