"""What a posterior predicts, against its own mean and covariance."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_softmax, ndtri, softmax
from tests.slow import quick_first

from posteriori import ApproximationWarning, BayesianSoftmaxRegression


def simulated(N, D=4, K=3, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * np.linspace(0.5, 3, D) + np.linspace(-1, 5, D)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, (signal * Z @ rng.normal(size=(D, K)) + rng.gumbel(size=(N, K))).argmax(axis=1)


SETS = {K: simulated(40 * K, K=K, seed=K) for K in (2, 3, 5)}
X, Y = SETS[3]
NEW = np.random.default_rng(11).normal(size=(30, 4)) * np.linspace(1, 5, 4) + np.linspace(-1, 5, 4)
APPROXIMATIONS = {
    "laplace": {"approximation": "laplace"},
    "variational": {"approximation": "variational"},
    "importance": {"approximation": "importance", "n_draws": 2000},
    "kronecker": {"posterior": "kronecker"},
    "diagonal": {"posterior": "diagonal"},
}


def fitted(K=3, prior=0.3, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        return BayesianSoftmaxRegression(prior, **options).fit(*SETS[K])


@pytest.fixture(scope="module", params=APPROXIMATIONS.values(), ids=APPROXIMATIONS.keys())
def model(request):
    return fitted(**request.param)


def posterior_of(model):
    """Mean (K, D + 1) and covariance of all parameters in the units of the data."""
    prior = model.as_prior()
    return prior.mean, model.covariance_


def by_monte_carlo(model, rows, S=40_000, seed=0):
    """E softmax, and its standard error, over draws of all parameters."""
    mean, covariance = posterior_of(model)
    draws = np.random.default_rng(seed).multivariate_normal(mean.ravel(), covariance, S, method="cholesky")
    F = np.einsum("skd,nd->snk", draws.reshape(S, *mean.shape), np.column_stack([rows, np.ones(len(rows))]))
    P = softmax(F, axis=2)
    return P.mean(axis=0), P.std(axis=0) / np.sqrt(S)


# Averages over the posterior


@pytest.mark.parametrize("K", quick_first(SETS, 2))
@pytest.mark.parametrize("approximation", quick_first(["variational", "laplace"]))
def test_quasi_and_sample_agree_with_monte_carlo(K, approximation):
    """Fixed nodes to their own accuracy of a few 1e-3, draws to the Monte-Carlo error of both."""
    model = fitted(K, approximation=approximation)
    P, error = by_monte_carlo(model, NEW)
    assert np.abs(P - model.set_params(predictive="plugin").predict_proba(NEW)).max() > 0.03
    np.testing.assert_allclose(model.set_params(predictive="quasi").predict_proba(NEW), P, atol=6e-3)
    sampled = model.set_params(predictive="sample", n_draws=20_000).predict_proba(NEW)
    assert (np.abs(sampled - P) < 5 * np.sqrt(3) * error + 1e-9).all()


@pytest.mark.parametrize("structure", quick_first(["kronecker", "diagonal"]))
@pytest.mark.parametrize("K", quick_first(SETS))
def test_structured_posteriors_agree_with_monte_carlo(K, structure):
    model = fitted(K, posterior=structure)
    P, _ = by_monte_carlo(model, NEW)
    np.testing.assert_allclose(model.predict_proba(NEW), P, atol=1e-2)
    sampled = model.set_params(predictive="sample", n_draws=20_000).predict_proba(NEW)
    np.testing.assert_allclose(sampled, P, atol=1e-2)


def test_more_nodes_are_more_accurate():
    model = fitted(5)
    exact = model.set_params(n_nodes=2**15).predict_proba(NEW)
    errors = [np.abs(model.set_params(n_nodes=n).predict_proba(NEW) - exact).max() for n in (32, 256, 4096)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[1] < 5e-3


def test_plugin_is_softmax_at_the_mode(model):
    model = fitted(approximation="laplace") if model.solution_.approximation == "importance" else model
    P = model.set_params(predictive="plugin").predict_proba(NEW)
    np.testing.assert_allclose(P, softmax(NEW @ model.coef_.T + model.intercept_, axis=1), atol=1e-12)
    log_p = model.predict_log_proba(NEW)
    np.testing.assert_allclose(log_p, log_softmax(NEW @ model.coef_.T + model.intercept_, axis=1), rtol=1e-9)
    model.set_params(predictive="quasi")


def test_probit_of_two_classes_is_mackay_s():
    model = fitted(2, predictive="probit")
    mean, covariance = model.predict_latent(NEW)
    m, v = mean[:, 1] - mean[:, 0], covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], expit(m / np.sqrt(1 + np.pi * v / 8)), atol=1e-12)
    assert v.max() > 1.0


@pytest.mark.parametrize("K", SETS)
def test_probit_of_several_classes(K):
    """1 / sum_j exp(-(m_k - m_j) / sqrt(1 + pi v_kj / 8)), normalised: shift-invariant."""
    model = fitted(K, predictive="probit")
    mean, V = model.predict_latent(NEW)
    variances = np.einsum("nkk->nk", V)
    v = variances[:, :, None] + variances[:, None, :] - 2 * V
    margins = (mean[:, :, None] - mean[:, None, :]) / np.sqrt(1 + np.pi * v / 8)
    P = 1 / np.exp(-margins).sum(axis=2)
    np.testing.assert_allclose(model.predict_proba(NEW), P / P.sum(axis=1, keepdims=True), atol=1e-9)


def test_probit_is_close_where_variances_are_small():
    Z, y = simulated(5000)
    model = BayesianSoftmaxRegression(1.0).fit(Z, y)
    quasi = model.predict_proba(Z)
    np.testing.assert_allclose(model.set_params(predictive="probit").predict_proba(Z), quasi, atol=1e-3)
    assert np.abs(model.set_params(predictive="plugin").predict_proba(Z) - quasi).max() < 0.01


# What every prediction owes


@pytest.mark.parametrize("predictive", ["quasi", "sample", "probit", "plugin"])
def test_rows_sum_to_one_and_logarithms_agree(model, predictive):
    model.set_params(predictive=predictive)
    P, log_p = model.predict_proba(NEW), model.predict_log_proba(NEW)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-12)
    assert (P > 0).all()
    np.testing.assert_allclose(np.exp(log_p), P, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[P.argmax(axis=1)])
    np.testing.assert_array_equal(model.decision_function(NEW), log_p)
    model.set_params(predictive="quasi")


@pytest.mark.parametrize("predictive", quick_first(["quasi", "sample", "probit", "plugin"], 2))
def test_a_prediction_does_not_depend_on_its_batch(model, predictive):
    many = np.random.default_rng(0).normal(size=(3000, 4)) * 3
    model.set_params(predictive=predictive, n_draws=50)
    together, together_log = model.predict_proba(many), model.predict_log_proba(many)
    for rows in (slice(0, 1), slice(2999, 3000), slice(700, 1400), slice(1, None, 500)):
        np.testing.assert_allclose(model.predict_proba(many[rows]), together[rows], atol=1e-12)
        np.testing.assert_allclose(model.predict_log_proba(many[rows]), together_log[rows], atol=1e-10)
    model.set_params(predictive="quasi")


def test_the_rest_does_not_depend_on_the_batch_either(model):
    one = slice(7, 8)
    for whole, part in (
        (model.predict_latent(NEW), model.predict_latent(NEW[one])),
        (model.predict_interval(NEW), model.predict_interval(NEW[one])),
        (model.uncertainty(NEW), model.uncertainty(NEW[one])),
    ):
        for a, b in zip(whole, part, strict=True):
            np.testing.assert_allclose(b, a[one], atol=1e-11)
    np.testing.assert_allclose(model.sample_proba(NEW[one], 5), model.sample_proba(NEW, 5)[:, one], atol=1e-12)


def test_two_classes_have_log_odds():
    model = fitted(2)
    log_p = model.predict_log_proba(NEW)
    assert model.decision_function(NEW).shape == (30,)
    np.testing.assert_allclose(model.decision_function(NEW), log_p[:, 1] - log_p[:, 0], atol=1e-12)


def test_sparse_rows_get_the_same_predictions(model):
    for method in ("predict_proba", "predict_log_proba"):
        np.testing.assert_allclose(getattr(model, method)(sp.csr_array(NEW)), getattr(model, method)(NEW), atol=1e-10)
    for a, b in zip(model.predict_interval(sp.csr_array(NEW)), model.predict_interval(NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for a, b in zip(model.predict_latent(sp.csr_array(NEW)), model.predict_latent(NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for a, b in zip(model.uncertainty(sp.csr_array(NEW)), model.uncertainty(NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


# Tiny probabilities


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("predictive", ["quasi", "sample", "probit", "plugin"])
def test_logarithms_of_tiny_probabilities_are_finite_and_accurate(K, predictive):
    """Far from all rows p_k ~ exp(f_k - f_best), whose mean over Gaussian logits is known: m + v / 2."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(20_000, 2))
    y = (3 * Z @ rng.normal(size=(2, K)) + rng.gumbel(size=(20_000, K))).argmax(axis=1)
    model = BayesianSoftmaxRegression(1.0, approximation="laplace", predictive=predictive).fit(Z, y)
    direction = model.coef_[1] - model.coef_[0]
    far = (-700 * direction / (direction @ direction))[None]
    log_p = model.predict_log_proba(far)
    assert np.isfinite(log_p).all()
    assert log_p.min() < (-50 if predictive == "probit" else -600)
    np.testing.assert_allclose(np.logaddexp.reduce(log_p, axis=1), 0.0, atol=1e-9)
    if K == 2 and predictive in ("quasi", "plugin"):
        mean, V = model.predict_latent(far)
        v = V[0, 0, 0] + V[0, 1, 1] - 2 * V[0, 0, 1]
        assert v > 10
        expected = mean[0, 1] - mean[0, 0] + (0.5 * v if predictive == "quasi" else 0.0)
        np.testing.assert_allclose(log_p[0, 1], expected, rtol=1e-3)
    P = model.predict_proba(far)
    np.testing.assert_allclose(P, np.exp(log_p), rtol=1e-6, atol=1e-300)


# Logits


def test_latent_moments_are_those_of_the_coefficients(model):
    mean, covariance = posterior_of(model)
    K, width = mean.shape
    rows = np.column_stack([NEW, np.ones(len(NEW))])
    latent_mean, latent_covariance = model.predict_latent(NEW)
    np.testing.assert_allclose(latent_mean, rows @ mean.T, atol=1e-8)
    expected = np.einsum("nd,kdle,ne->nkl", rows, covariance.reshape(K, width, K, width), rows)
    np.testing.assert_allclose(latent_covariance, expected, rtol=1e-7, atol=1e-8)


def test_the_mode_is_the_mean_of_laplace_s_posterior():
    model = fitted(approximation="laplace")
    mean, _ = model.predict_latent(NEW)
    np.testing.assert_allclose(mean, NEW @ model.coef_.T + model.intercept_, atol=1e-7)


# Intervals


def test_interval_of_two_classes_in_closed_form():
    model = fitted(2)
    mean, V = model.predict_latent(NEW)
    m, sd = mean[:, 1] - mean[:, 0], np.sqrt(V[:, 0, 0] + V[:, 1, 1] - 2 * V[:, 0, 1])
    for level in (0.5, 0.8, 0.95):
        lower, upper = model.predict_interval(NEW, level)
        z = ndtri(0.5 + level / 2)
        np.testing.assert_allclose(lower[:, 1], expit(m - z * sd), atol=5e-3)
        np.testing.assert_allclose(upper[:, 1], expit(m + z * sd), atol=5e-3)
        np.testing.assert_allclose(lower[:, 0], 1 - upper[:, 1], atol=1e-9)


@pytest.mark.parametrize("level", [0.99, 0.999, 0.9999])
def test_interval_of_two_classes_at_high_levels(level):
    model = fitted(2)
    mean, V = model.predict_latent(NEW)
    m, sd = mean[:, 1] - mean[:, 0], np.sqrt(V[:, 0, 0] + V[:, 1, 1] - 2 * V[:, 0, 1])
    lower, upper = model.predict_interval(NEW, level)
    np.testing.assert_allclose(lower[:, 1], expit(m - ndtri(0.5 + level / 2) * sd), atol=1e-2)
    np.testing.assert_allclose(upper[:, 1], expit(m + ndtri(0.5 + level / 2) * sd), atol=1e-2)


def test_interval_holds_that_share_of_draws(model):
    draws = model.sample_proba(NEW, 4000, random_state=1)
    for level in (0.5, 0.9):
        lower, upper = model.predict_interval(NEW, level)
        np.testing.assert_allclose((draws < lower).mean(axis=0), (1 - level) / 2, atol=0.03)
        np.testing.assert_allclose((draws > upper).mean(axis=0), (1 - level) / 2, atol=0.03)


def test_intervals_contain_the_prediction_and_grow_with_the_level(model):
    P = model.predict_proba(X)
    before = (P, P)
    for level in (0.9, 0.95, 0.99):
        lower, upper = model.predict_interval(X, level)
        assert (lower >= 0).all()
        assert (upper <= 1).all()
        assert (lower <= before[0] + 1e-12).all()
        assert (upper >= before[1] - 1e-12).all()
        before = lower, upper


def test_intervals_shrink_with_more_data():
    widths = []
    for N in (100, 400, 1600, 6400):
        model = BayesianSoftmaxRegression(1.0).fit(*simulated(N))
        lower, upper = model.predict_interval(NEW[:10])
        widths.append((upper - lower).mean())
    assert (np.array(widths[1:]) < 0.75 * np.array(widths[:-1])).all()


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, np.nan, "0.9", None, True])
def test_level_must_lie_between_zero_and_one(level):
    model = fitted()
    for method in (model.predict_interval, model.marginal_effects):
        with pytest.raises(ValueError, match=r"level=.* must lie between 0 and 1"):
            method(X, level)
    with pytest.raises(ValueError, match="level="):
        model.summary(level=level)
    with pytest.raises(ValueError, match="level="):
        model.contrast(0, 1, level)


# Draws


def test_draws_are_reproducible_and_have_the_posterior_s_moments(model):
    draws = model.sample_proba(NEW, 3000, random_state=4)
    assert draws.shape == (3000, 30, 3)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0, atol=1e-12)
    np.testing.assert_array_equal(draws, model.sample_proba(NEW, 3000, random_state=4))
    assert np.abs(draws - model.sample_proba(NEW, 3000, random_state=5)).max() > 0.1
    np.testing.assert_array_equal(model.sample_proba(NEW, 3), model.sample_proba(NEW, 3))
    error = draws.std(axis=0) / np.sqrt(3000)
    assert (np.abs(draws.mean(axis=0) - model.predict_proba(NEW)) < 6 * error + 5e-3).all()
    F = np.log(draws)
    contrasts = F[:, :, 1] - F[:, :, 0]
    mean, V = model.predict_latent(NEW)
    sd = np.sqrt(V[:, 0, 0] + V[:, 1, 1] - 2 * V[:, 0, 1])
    np.testing.assert_allclose(contrasts.mean(axis=0), mean[:, 1] - mean[:, 0], atol=6 * sd.max() / np.sqrt(3000))
    np.testing.assert_allclose(contrasts.std(axis=0), sd, rtol=0.1)


def test_a_draw_is_the_same_for_all_rows():
    """Logits of one draw are linear in the row, so that averages over rows may be taken."""
    model = fitted()
    rows = np.vstack([NEW[0], NEW[1], 0.5 * (NEW[0] + NEW[1])])
    F = np.log(model.sample_proba(rows, 20))
    odds = F[:, :, 1:] - F[:, :, :1]
    np.testing.assert_allclose(odds[:, 2], 0.5 * (odds[:, 0] + odds[:, 1]), atol=1e-8)


@pytest.mark.parametrize("n_draws", [0, -1, 2.5, "many", None])
def test_a_wrong_number_of_draws_is_refused(n_draws):
    with pytest.raises(ValueError, match="n_draws"):
        fitted().sample_proba(NEW, n_draws)


def test_random_state_of_a_random_state_is_not_used_up_by_predictions():
    """Prediction changes no attribute, and the same rows get the same probabilities."""
    model = fitted(predictive="sample", n_draws=50, random_state=np.random.RandomState(0))
    first = model.predict_proba(NEW)
    np.testing.assert_array_equal(model.predict_proba(NEW), first)


def test_random_state_chooses_the_draws():
    first, same, other = (fitted(predictive="sample", n_draws=50, random_state=s).predict_proba(NEW) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 1e-3


# Uncertainty


def entropy(P):
    return -(P * np.log(P)).sum(axis=-1)


def test_uncertainty_is_the_entropy_of_predictions(model):
    total, aleatoric, epistemic = model.uncertainty(NEW)
    np.testing.assert_allclose(total, aleatoric + epistemic, atol=1e-12)
    np.testing.assert_allclose(total, entropy(model.predict_proba(NEW)), atol=1e-9)
    draws = model.sample_proba(NEW, 4000, random_state=0)
    np.testing.assert_allclose(aleatoric, entropy(np.maximum(draws, 1e-300)).mean(axis=0), atol=0.03)
    assert (aleatoric <= np.log(3)).all()
    assert (epistemic >= 0).all()
    assert epistemic.max() > 0.01


def test_epistemic_uncertainty_vanishes_with_data():
    means = []
    for N in (100, 1000, 10_000):
        model = BayesianSoftmaxRegression(1.0).fit(*simulated(N))
        means.append(model.uncertainty(NEW).epistemic.mean())
    assert means[1] < 0.3 * means[0]
    assert means[2] < 0.3 * means[1]
    assert means[2] < 1e-3


def test_uncertainty_with_label_noise_is_that_of_the_labels_predicted():
    model = fitted(label_noise=0.3, predictive="quasi")
    np.testing.assert_allclose(model.uncertainty(NEW).total, entropy(model.predict_proba(NEW)), atol=1e-6)
