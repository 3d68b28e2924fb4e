"""Latents of all rows drawn together: their moments against those of single rows, and against dense formulas."""

import numpy as np
import pytest
from tests.gp.gp_cases import X, Y, gp, three_classes

from posteriori import GPClassifier
from posteriori.gp.coupled import SiteParameters, row_sites
from posteriori.gp.draws import inducing_draws, prior_draws
from posteriori.gp.independent import independent_variances
from posteriori.gp.inducing import FittedInducing
from posteriori.gp.kernels import RBF, Constant, Linear
from posteriori.maths.linalg import semidefinite_root

pytestmark = pytest.mark.filterwarnings("ignore:The energy was still rising")

N = 20_000
RNG = np.random.default_rng(6)
KERNEL = RBF(1.3) + Constant(0.5)
ROWS, NEW = RNG.normal(size=(15, 2)), RNG.normal(size=(4, 2))


def gram(A, B):
    return KERNEL.gram(KERNEL.start(2, 1.0), A, B)


def contrasts(latents):
    """Latents (S, K, n) less their mean over classes, (S, K n)."""
    return (latents - latents.mean(axis=1, keepdims=True)).reshape(len(latents), -1)


def assert_moments(drawn, mean, covariance):
    """Drawn (S, d) have this mean and this covariance, within sampling error."""
    sd = np.sqrt(covariance.diagonal())
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * sd / np.sqrt(len(drawn)) + 1e-9).all()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.05 * covariance.diagonal().max())


def test_a_semidefinite_root_of_any_rank():
    F = RNG.normal(size=(9, 4))
    found = semidefinite_root(F @ F.T)
    assert found.shape == (9, 4)
    np.testing.assert_allclose(found @ found.T, F @ F.T, atol=1e-12)
    assert semidefinite_root(np.zeros((3, 3))).shape == (3, 0)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_joint_draws_have_the_posterior_of_the_sites(K):
    """With T the sites' precision of all latents and K** the prior of new ones: (K^{-1} + T)^{-1}, written out."""
    y, c, variances = RNG.integers(0, K, 15), np.ones(15), RNG.uniform(0.5, 3.0, K)
    sites = row_sites(y, c, K, 0.01)
    at = sites.sweep(gram(ROWS, ROWS), variances, sites.start()).target
    at = SiteParameters(np.maximum(at.precision, 1e-3), at.shift)
    solved = sites.solve(gram(ROWS, ROWS), variances, at)
    drawn = contrasts(solved.draws(gram(ROWS, NEW), gram(NEW, NEW), N, np.random.default_rng(1)))
    C = np.kron(np.eye(K) - 1.0 / K, np.eye(4))
    if K == 2:
        precision, shift = np.diag(at.precision[0]), at.shift[0]
        prior, cross, new = (variances.sum() * gram(*pair) for pair in ((ROWS, ROWS), (ROWS, NEW), (NEW, NEW)))
        half = np.kron([[-0.5], [0.5]], np.eye(4))
    else:
        own = np.arange(K)[:, None] == y
        pi, beta = np.where(own, 1.0, at.precision), np.where(own, 0.0, at.shift)
        S, b = pi.sum(axis=0), beta.sum(axis=0)
        precision = np.zeros((K, 15, K, 15))
        i = np.arange(15)
        for k in range(K):
            for j in range(K):
                precision[k, i, j, i] = (pi[k] if k == j else 0.0) - pi[k] * pi[j] / S
        precision, shift = precision.reshape(15 * K, -1), (pi * b / S - beta).ravel()
        prior, cross, new = (np.kron(np.diag(variances), gram(*p)) for p in ((ROWS, ROWS), (ROWS, NEW), (NEW, NEW)))
        half = np.eye(4 * K)
    gain = cross.T @ np.linalg.inv(np.eye(len(prior)) + precision @ prior)
    mean, covariance = gain @ shift, new - gain @ precision @ cross
    assert_moments(drawn, C @ half @ mean, C @ half @ covariance @ half.T @ C.T)


def test_draws_through_inducing_values():
    Z, scale = ROWS[:5], np.array([0.7, 1.5])
    L = np.linalg.cholesky(gram(Z, Z))
    A = np.linalg.solve(L, gram(Z, NEW))
    mean, half = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 5, 5))
    S = half @ half.transpose(0, 2, 1) / 5
    drawn = inducing_draws(A, gram(NEW, NEW), mean, S, scale, N, np.random.default_rng(2))
    for k in range(2):
        covariance = scale[k] ** 2 * (gram(NEW, NEW) - A.T @ A + A.T @ S[k] @ A)
        assert_moments(drawn[:, k], scale[k] * (mean[k] @ A), covariance)


def test_draws_of_the_prior_have_the_kernel_for_a_covariance():
    scale = np.array([0.5, 2.0])
    twice = np.concatenate([NEW, NEW[:1]])  # the same row twice has the same latents
    drawn = prior_draws(gram(twice, twice), scale, N, np.random.default_rng(3))
    for k in range(2):
        assert_moments(drawn[:, k], np.zeros(5), scale[k] ** 2 * gram(twice, twice))
    np.testing.assert_allclose(drawn[:, :, 4], drawn[:, :, 0], atol=1e-6)


MODELS = {
    "likely kernels": lambda: GPClassifier().fit(X, Y),
    "one kernel": lambda: GPClassifier(RBF(20.0) + Linear(), max_iter=0, calibrate=False).fit(X, Y),
    "two classes": lambda: GPClassifier().fit(X, Y > 0),
    "JAX": lambda: gp().fit(X, Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_draws_have_the_moments_of_predict_latent(name):
    model, S = MODELS[name](), 8000
    rows = X[:6] + 3.0
    latents = model._latent_draws(rows, S, 0, "sample_proba")
    mean, covariance = model.predict_latent(rows)
    K = mean.shape[1]
    Q = np.linalg.eigh(np.eye(K) - 1.0 / K)[1][:, 1:]  # contrasts of the classes
    widened_members = model.spread_ > 1.0 and name == "likely kernels"  # each about its own mean
    for n in range(6):
        inside = Q.T @ covariance[n] @ Q
        if not widened_members:
            assert_moments(latents[:, :, n] @ Q, mean[n] @ Q, max(1.0, model.spread_) * np.atleast_2d(inside))


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_those_of_the_node_at_the_latents(name):
    model = MODELS[name]()
    latents, P = model._latent_draws(X, 300, 5, "sample_proba"), model.sample_proba(X, 300, random_state=5)
    np.testing.assert_allclose(P[7], model._fit_result().node.at(latents[7]).T, atol=1e-6)
    np.testing.assert_allclose(P.sum(axis=2), 1.0, atol=1e-9)
    lower, upper = model.predict_interval(X, 0.8)
    wrong = model.mislabelling_ / (P.shape[2] - 1)
    own = (P - wrong) / (1.0 - model.mislabelling_ - wrong)  # of the class itself, as intervals are
    wide = upper - lower > 0.02
    assert wide.any()
    assert abs(((own >= lower) & (own <= upper))[:, wide].mean() - 0.8) < 0.03


def test_the_prior_is_even_where_scales_are_and_spreads_as_the_kernel_says():
    model = GPClassifier(RBF(30.0), scale=3.0, max_iter=0).fit(X, Y)
    P = model.prior_sample(X, 3000, random_state=1)
    error = P.mean(axis=1).std(axis=0) / np.sqrt(3000)
    assert (np.abs(P.mean(axis=(0, 1)) - 1 / 3) < 4 * error).all()
    latents = model._fit_result().prior_draws(model._standardised_rows(X[:3]), N, np.random.default_rng(0))
    kernel, free = model._fit_result().kernel, model._fit_result().free
    expected = 9.0 * kernel.gram(free, *[model._standardised_rows(X[:3])] * 2)
    assert_moments(latents[:, 0], np.zeros(3), expected)


def test_a_method_without_a_posterior_has_no_draws():
    model = gp(inference="energy").fit(X, Y)
    with pytest.raises(ValueError, match="sample_proba would mislead"):
        model.sample_proba(X)
    with pytest.raises(ValueError, match="sample_proba would mislead"):
        model.posterior_check(X, Y)
    assert model.prior_sample(X, 3).shape == (3, 40, 3)


def test_groups_for_arviz():
    pytest.importorskip("arviz")
    model = GPClassifier().fit(X, Y)
    data = model.to_arviz(X, Y, 2000, sample_weight=np.full(40, 2.0))
    assert data["posterior"]["latent"].dims == ("chain", "draw", "class", "row")
    P = model.sample_proba(X, 2000)
    expected = 2.0 * np.log(P[:, np.arange(40), Y])
    np.testing.assert_allclose(data["log_likelihood"]["label"].values[0], expected, rtol=1e-8)


@pytest.mark.slow
def test_leave_one_out_by_psis_is_that_of_the_cavities():
    """Rows of noisy classes, of which each says little: the sites leave out a row in closed form."""
    az = pytest.importorskip("arviz")
    rows, y = three_classes(150, noise=1.0)
    model = GPClassifier(RBF(60.0), scale=1.0, max_iter=0, calibrate=False).fit(rows, y)
    found = az.loo(model.to_arviz(rows, y, 4000))
    total = getattr(found, "elpd_loo", None) or found.elpd
    fitted = model._fit_result()
    mean, covariance = fitted._solved.left_out(np.ones(150))
    P = fitted.node.probabilities(mean, independent_variances(mean, covariance, 1.0))
    assert abs(total - np.log(P[fitted.y, np.arange(150)]).sum()) < 0.02 * found.se


def test_many_rows_are_drawn_through_inducing_inputs(monkeypatch):
    """The moments of single rows, and the covariance between rows, are those of the inducing values."""
    monkeypatch.setattr("posteriori.gp.inference._MOST_OPERATIONS", 0.0)
    rows, y = three_classes(60, noise=1.0)
    model = GPClassifier(RBF(30.0), scale=1.5, max_iter=0).fit(rows, y)
    fitted = model._fit_result()
    assert isinstance(fitted, FittedInducing)
    Z = model._standardised_rows(rows[:5])
    drawn = fitted.draws(Z, 2.0, N, np.random.default_rng(0))
    mean, variance = (each[0] for each in fitted.latents(Z))
    for k in range(3):
        assert_moments(drawn[:, k], mean[k], np.cov(drawn[:, k].T))
        np.testing.assert_allclose(drawn[:, k].var(axis=0), 2.0 * variance[k], rtol=0.05)
