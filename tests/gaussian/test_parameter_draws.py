"""Draws of the parameters of Gaussian classes: moments and leave-one-out in closed form, densities by SciPy."""

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris

from posteriori import GaussianClassifier, NormalInverseWishartPrior, RidgePrior
from posteriori.gaussian.row_posterior import parameter_draws
from posteriori.gaussian.structures import STRUCTURES

X, Y = load_iris(return_X_y=True)
X = X[::2, :2] * [1.0, 10.0]
Y = Y[::2]
N = 20_000


def draws_of(model, n_draws=N, seed=0):
    posterior = model.seen_.row_posterior(class_prior_given=model.class_prior is not None)
    return parameter_draws(posterior, n_draws, np.random.default_rng(seed))


def as_matrices(values, K, D):
    """Covariances of any structure as (S, K, D, D)."""
    if values.ndim == 4:
        return values
    if values.ndim == 3 and values.shape[1:] == (D, D) and K != D:
        return np.repeat(values[:, None], K, axis=1)
    if values.ndim == 3:
        return values[..., None] * np.eye(D)
    if values.shape[1] == D and K != D:
        return np.repeat((values[..., None] * np.eye(D))[:, None], K, axis=1)
    return values[..., None, None] * np.eye(D)


@pytest.mark.parametrize("name", STRUCTURES)
def test_moments_are_those_of_the_belief(name):
    """E Sigma = Psi / (nu - p - 1), E mu = m, cov mu = E Sigma / kappa, E pi = a / sum a."""
    model = GaussianClassifier(name).fit(X, Y)
    draws = draws_of(model)
    posterior, belief = draws.posterior, draws.posterior.belief
    structure = belief.structure
    variables = {key: values for key, (_, values) in draws.variables().items()}
    rest = np.broadcast_to(belief.nu - structure.dimension(2) - 1.0, (len(belief.Psi), belief.nu.shape[1]))
    expected = structure.covariances(belief.Psi, rest, posterior.unit)
    np.testing.assert_allclose(variables["covariance"].mean(axis=0), expected, rtol=0.03, atol=0.01 * expected.max())
    means = belief.means * posterior.unit + posterior.densities.origin
    Sigma = as_matrices(expected[None], 3, 2)[0]
    for k in range(3):
        own = variables["mean"][:, k]
        sd = np.sqrt(Sigma[k].diagonal() / belief.kappa[k, 0])
        assert (np.abs(own.mean(axis=0) - means[k]) < 4.5 * sd / np.sqrt(N)).all()
        correlation = Sigma[k] / belief.kappa[k, 0] / np.outer(sd, sd)
        np.testing.assert_allclose(np.cov(own.T) / np.outer(sd, sd), correlation, atol=0.06)
    a = posterior.concentrations
    np.testing.assert_allclose(variables["class_probability"].mean(axis=0), a / a.sum(), rtol=0.02)


@pytest.mark.parametrize("name", STRUCTURES)
def test_probabilities_are_those_of_gaussian_densities(name):
    model = GaussianClassifier(name).fit(X, Y)
    draws = draws_of(model, 6, 3)
    variables = {key: values for key, (_, values) in draws.variables().items()}
    covariances, found = as_matrices(variables["covariance"], 3, 2), model._under(X, draws)
    for s in range(6):
        F = np.column_stack(
            [multivariate_normal(variables["mean"][s, k], covariances[s, k]).logpdf(X) for k in range(3)]
        )
        expected = log_softmax(F + np.log(variables["class_probability"][s]), axis=1)
        np.testing.assert_allclose(found[s], expected, atol=1e-8)
    P = model.sample_proba(X, 6, random_state=3)
    assert P.shape == (6, len(X), 3)
    np.testing.assert_allclose(P.sum(axis=2), 1.0)


def test_a_matrix_of_wishart_draws_varies_as_it_should():
    """The variance of Sigma_11 of an inverse-Wishart matrix: 2 Psi_11^2 / ((nu - p - 1)^2 (nu - p - 3))."""
    model = GaussianClassifier("tied").fit(X, Y)
    draws = draws_of(model, 60_000)
    belief = draws.posterior.belief
    rest = belief.nu[0, 0] - 2 - 1.0
    expected = 2.0 * belief.Psi[0, 0, 0] ** 2 / (rest**2 * (rest - 2.0))
    assert draws.covariances[:, 0, 0, 0].var() == pytest.approx(expected, rel=0.04)


def test_with_many_rows_the_mean_of_draws_is_the_prediction():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 3000)
    rows = rng.normal(size=(3000, 2)) + codes[:, None]
    model = GaussianClassifier("full").fit(rows, codes)
    np.testing.assert_allclose(
        model.sample_proba(rows[:50], 400).mean(axis=0), model.predict_proba(rows[:50]), atol=0.01
    )


def test_missing_values_are_left_out_of_the_product():
    rows = X.copy()
    rows[::7, 0] = np.nan
    model = GaussianClassifier("diagonal").fit(rows, Y)
    draws = draws_of(model, 3, 1)
    variables = {key: values for key, (_, values) in draws.variables().items()}
    q = (rows[:, None] - variables["mean"][1]) ** 2 / variables["covariance"][1]
    F = np.nansum(-0.5 * q - 0.5 * np.log(variables["covariance"][1]) + 0.0 * rows[:, None], axis=2)
    expected = log_softmax(F + draws.log_frequencies[1], axis=1)
    np.testing.assert_allclose(model._under(rows, draws)[1], expected, atol=1e-8)


def test_fewer_rows_than_features_are_drawn_as_matrices_of_all_features():
    """A scale that is a number is held in the space of the rows, the same as a matrix is not: beliefs must agree."""
    rng = np.random.default_rng(1)
    rows, codes = rng.normal(size=(9, 14)), np.arange(9) % 2
    options = {"mean": 0.0, "nu": 20.0, "kappa": 0.5}
    few = GaussianClassifier("full", prior=NormalInverseWishartPrior(scale=2.0, **options)).fit(rows, codes)
    all_features = GaussianClassifier("full", prior=NormalInverseWishartPrior(scale=2.0 * np.eye(14), **options))
    all_features.fit(rows, codes)
    assert few.fitted_.densities.space is not None
    assert all_features.fitted_.densities.space is None
    one, other = draws_of(few, 5).posterior, draws_of(all_features, 5).posterior
    unit = other.unit
    np.testing.assert_allclose(one.belief.Psi, other.belief.Psi * np.outer(unit, unit), atol=1e-9)
    np.testing.assert_allclose(one.belief.means, other.belief.means * unit, atol=1e-9)
    np.testing.assert_allclose(one.belief.nu, other.belief.nu)
    found, expected = few.sample_proba(rows, 4000).mean(axis=0), all_features.sample_proba(rows, 4000).mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=0.04)


def test_covariances_too_large_to_draw_are_refused():
    model = GaussianClassifier("tied").fit(X, Y)
    with pytest.raises(ValueError, match="GiB: ask for fewer draws, or use covariance='diagonal'"):
        model.sample_proba(X, 1 << 27)


def test_classes_of_given_probabilities_are_not_drawn():
    model = GaussianClassifier("tied", class_prior=[0.2, 0.3, 0.5]).fit(X, Y)
    draws = draws_of(model, 4)
    assert "class_probability" not in draws.variables()
    np.testing.assert_allclose(np.exp(draws.log_frequencies), np.tile([0.2, 0.3, 0.5], (4, 1)))


# The prior


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_prior_before_any_row(name):
    """What `prior_` says in the units of the data, whatever the estimate that it was used for."""
    for estimate in ("bayes", "map"):
        model = GaussianClassifier(name, estimate=estimate).fit(X, Y)
        belief = model.seen_.row_prior(class_prior_given=False)
        prior = model.prior_
        np.testing.assert_allclose(belief.belief.kappa, prior.kappa)
        np.testing.assert_allclose(belief.belief.nu, prior.nu)
        np.testing.assert_allclose(
            belief.belief.means * belief.unit + belief.densities.origin, np.tile(prior.mean, (3, 1))
        )
        structure = belief.belief.structure
        scale = structure.rescaled(belief.belief.Psi, belief.unit)
        np.testing.assert_allclose(scale.reshape(len(scale), -1), np.tile(np.ravel(prior.scale), (len(scale), 1)))
        np.testing.assert_allclose(belief.concentrations, np.full(3, prior.concentration))


def test_prior_samples_do_not_tell_classes_apart_on_average():
    model = GaussianClassifier("tied").fit(X, Y)
    P = model.prior_sample(X, 4000, random_state=2)
    assert P.shape == (4000, len(X), 3)
    error = P.mean(axis=1).std(axis=0) / np.sqrt(4000)
    assert (np.abs(P.mean(axis=(0, 1)) - 1 / 3) < 4 * error).all()


def test_improper_priors_have_no_draws():
    with pytest.raises(ValueError, match="with estimate='mle' there is none for the covariances"):
        GaussianClassifier("tied", estimate="mle").fit(X, Y).prior_sample(X)
    with pytest.raises(ValueError, match="with prior=RidgePrior"):
        GaussianClassifier("tied", estimate="map", prior=RidgePrior(0.1)).fit(X, Y).prior_sample(X)


@pytest.mark.parametrize("estimate", ["map", "mle"])
def test_one_estimate_has_no_posterior_to_draw_from(estimate):
    model = GaussianClassifier("tied", estimate=estimate).fit(X, Y)
    for name in ("sample_proba", "posterior_check", "to_arviz"):
        with pytest.raises(AttributeError):
            getattr(model, name)


# ArviZ


def leave_one_out(model):
    """log p(y_n | x_n, the other rows), by fits without each row under the same prior: (n,)."""
    out = np.empty(len(X))
    for n in range(len(X)):
        rows = np.arange(len(X)) != n
        other = GaussianClassifier(model.solution_.structure, prior=model.prior_, classes=model.classes_)
        out[n] = other.fit(X[rows], Y[rows]).predict_log_proba(X[n : n + 1])[0, Y[n]]
    return out


@pytest.mark.parametrize("name", ["full", "tied_diagonal"])
def test_groups_and_leave_one_out_by_psis(name):
    """Without its label a row still says where rows are, as in the predictive: PSIS leaves out labels, and agrees."""
    az = pytest.importorskip("arviz")
    model = GaussianClassifier(name).fit(X, Y)
    data = model.to_arviz(X, Y, 4000)
    posterior = data["posterior"]
    assert posterior["mean"].dims == ("chain", "draw", "class", "feature")
    axes = ("class", "feature", "other_feature") if name == "full" else ("feature",)
    assert posterior["covariance"].dims == ("chain", "draw", *axes)
    P = model.sample_proba(X, 4000)
    np.testing.assert_allclose(data["log_likelihood"]["label"].values[0], np.log(P[:, np.arange(len(X)), Y]), atol=1e-8)
    found = az.loo(data)
    total = getattr(found, "elpd_loo", None) or found.elpd
    assert abs(total - leave_one_out(model).sum()) < 0.2 * found.se
