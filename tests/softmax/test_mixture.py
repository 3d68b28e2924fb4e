"""A posterior that is a mixture: its moments, draws and averages are those of its members, weighted."""

import numpy as np
import pytest
from scipy.special import softmax

from posteriori import BayesianSoftmaxRegression
from posteriori.softmax import predictive
from posteriori.softmax.mixture import MixturePosterior
from posteriori.softmax.pairs import contrasts
from posteriori.softmax.posterior import FullPosterior

K, D = 3, 2


def gaussian(seed, size):
    rng = np.random.default_rng(seed)
    basis = contrasts(K)
    A = rng.normal(size=(6, 6))
    mean = basis @ rng.normal(size=(2, 3))
    return FullPosterior(mean, (A @ A.T + np.eye(6)) / size, basis, np.eye(3) / size)


MEMBERS, WEIGHTS = [gaussian(0, 1.0), gaussian(1, 0.3), gaussian(2, 2.0)], np.array([0.5, 0.3, 0.2])
MIXTURE = MixturePosterior(MEMBERS, WEIGHTS)
ROWS = np.random.default_rng(3).normal(size=(7, D))


def test_mean_and_covariance():
    means = np.stack([member.mean.ravel() for member in MEMBERS])
    mean = WEIGHTS @ means
    second = sum(w * (q.covariance() + np.outer(m, m)) for w, q, m in zip(WEIGHTS, MEMBERS, means, strict=True))
    np.testing.assert_allclose(MIXTURE.mean.ravel(), mean, atol=1e-12)
    np.testing.assert_allclose(MIXTURE.covariance(), second - np.outer(mean, mean), atol=1e-12)
    np.testing.assert_allclose(MIXTURE.variances().ravel(), MIXTURE.covariance().diagonal(), atol=1e-12)
    np.testing.assert_allclose(MIXTURE.precision() @ MIXTURE.covariance(), np.eye(9), atol=1e-8)


def test_variances_of_logits_and_of_linear_functions_follow_from_the_covariance():
    S, Z = MIXTURE.covariance().reshape(K, 3, K, 3), np.column_stack([ROWS, np.ones(len(ROWS))])
    V = np.einsum("nd,kdle,ne->nkl", Z, S, Z)
    np.testing.assert_allclose(MIXTURE.latent_covariance(ROWS), V, atol=1e-10)
    k, m = np.triu_indices(K, 1)
    pairs = (V[:, k, k] + V[:, m, m] - 2 * V[:, k, m]).T
    np.testing.assert_allclose(MIXTURE.pair_variances(ROWS), pairs, atol=1e-10)
    C = np.eye(K) - 1 / K
    np.testing.assert_allclose(MIXTURE.contrast_covariance(ROWS), C @ V @ C, atol=1e-10)
    slopes = np.random.default_rng(4).normal(size=(5, K, 3))
    slopes -= slopes.mean(axis=1, keepdims=True)
    expected = np.einsum("mkd,kdle,mle->m", slopes, S, slopes)
    np.testing.assert_allclose(MIXTURE.contrast_variances(slopes), expected, atol=1e-10)


@pytest.mark.parametrize("name", ["draws", "contrast_draws"])
def test_draws(name):
    drawn = getattr(MIXTURE, name)(60_000, np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(axis=0), MIXTURE.mean, atol=0.03)
    of_contrasts = (drawn - drawn.mean(axis=1, keepdims=True)).reshape(len(drawn), -1)
    C = np.kron(np.eye(K) - 1 / K, np.eye(3))
    np.testing.assert_allclose(np.cov(of_contrasts.T), C @ MIXTURE.covariance() @ C, atol=0.06)


def test_averages_are_those_of_the_members():
    offset = np.array([0.1, -0.3, 0.2])
    together = predictive.quasi(ROWS, MIXTURE, offset, 4096, False)
    apart = sum(w * predictive.quasi(ROWS, q, offset, 4096, False) for w, q in zip(WEIGHTS, MEMBERS, strict=True))
    np.testing.assert_allclose(together, apart, atol=1e-4)
    np.testing.assert_allclose(np.exp(predictive.quasi(ROWS, MIXTURE, offset, 4096, True)), together, atol=1e-12)
    Z = np.column_stack([ROWS, np.ones(len(ROWS))])
    drawn = MIXTURE.contrast_draws(40_000, np.random.default_rng(1))
    P = softmax(np.einsum("skd,nd->snk", drawn, Z) + offset, axis=2)
    np.testing.assert_allclose(together.T, P.mean(axis=0), atol=0.01)
    ends = predictive.quantiles(ROWS, MIXTURE, offset, 1 << 13, (0.1, 0.9)).reshape(2, K, -1)
    for level, end in zip((0.1, 0.9), ends, strict=True):
        np.testing.assert_allclose(end.T, np.quantile(P, level, axis=0), atol=0.02)


def test_blocks_of_rows_do_not_matter(monkeypatch):
    whole = predictive.quasi(ROWS, MIXTURE, np.zeros(K), 256, False)
    monkeypatch.setattr("posteriori.softmax.mixture._BLOCK_VALUES", 1)
    np.testing.assert_allclose(predictive.quasi(ROWS, MIXTURE, np.zeros(K), 256, False), whole, rtol=1e-13)


def test_few_rows_are_averaged_over_the_strength_of_the_prior():
    """Intervals are wider than with the one strength that is likeliest, and the weights are those of the evidence."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 4))
    y = (X[:, 0] + rng.logistic(size=50) > 0).astype(int)
    model = BayesianSoftmaxRegression().fit(X, y)
    posterior = model.fitted_.posterior
    assert isinstance(posterior, MixturePosterior)
    assert f"averaged over {len(posterior.members)} strengths" in model.solution_.strength_reason
    assert posterior.weights.sum() == pytest.approx(1.0)
    known = {round(point.factor, 6): point for point in model.solution_.strength_path}
    assert known[1.0].log_evidence == pytest.approx(model.log_evidence_, abs=0.3)
    one = BayesianSoftmaxRegression(model.prior_).fit(X, y)
    wide, narrow = (np.subtract(*m.predict_interval(X)[::-1]).mean() for m in (model, one))
    assert wide > narrow
    np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-3)


def test_many_rows_have_one_strength():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(3000, 30))
    y = (X @ rng.normal(scale=0.3, size=(30, 3)) + rng.gumbel(size=(3000, 3))).argmax(axis=1)
    model = BayesianSoftmaxRegression().fit(X, y)
    assert isinstance(model.fitted_.posterior, FullPosterior)
    assert model.solution_.strength_reason == "highest evidence"
