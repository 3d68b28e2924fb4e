"""From latents to classes: expected powers of the likelihood and their slopes, against sums over fine grids."""

from functools import partial

import numpy as np
import pytest
import scipy.special

jax = pytest.importorskip("jax")

from posteriori.gp.likelihoods import ArgmaxLikelihood, SoftmaxLikelihood  # noqa: E402
from posteriori.maths.argmax import Rule  # noqa: E402

POWERS = [1.0, 0.5, 0.0]
RATE = 0.02
N = 12
powers = pytest.mark.parametrize("power", POWERS)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@partial(jax.jit, static_argnums=(0, 5))
def expected(likelihood, free, mean, variance, y, power):
    return likelihood.expected(free, mean, variance, y, power)


def latents(K, sd=1.0):
    rng = np.random.default_rng(K)
    mean, spread = 2.0 * rng.normal(size=(K, N)), rng.uniform(0.5, 1.5, size=(K, N))
    return mean, (sd * spread) ** 2, rng.integers(0, K, N)


def power_mean(p, weights, power):
    """(1/alpha) log E[p^alpha], or E[log p], of values along the last axis."""
    return np.log(p) @ weights if power == 0 else np.log(p**power @ weights) / power


def slopes(f, mean, variance, h=1e-4):
    """Central differences by every mean and variance, (K, n) each."""
    out = []
    for by_mean in (True, False):
        steps = h * np.eye(len(mean))[:, :, None]
        pairs = [[(mean + s, variance) if by_mean else (mean, variance + s) for s in (e, -e)] for e in steps]
        out.append(np.stack([(f(*up) - f(*down)) / (2 * h) for up, down in pairs]))
    return out


# The argmax node


def naive_argmax(mean, variance, y, power, rate=RATE):
    """Two values of p(y | h), each with the probability of its case, by a plain sum over 4001 values of h_y."""
    K, sd = len(mean), np.sqrt(variance)
    out = []
    for n in range(mean.shape[1]):
        z, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
        h = mean[y[n], n] + sd[y[n], n] * z
        rivals = [scipy.special.ndtr((h - mean[k, n]) / sd[k, n]) for k in range(K) if k != y[n]]
        wins = step * (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * np.prod(rivals, axis=0)).sum()
        out.append(power_mean(np.array([1 - rate, rate / (K - 1)]), np.array([wins, 1 - wins]), power))
    return np.array(out)


@pytest.mark.parametrize(
    ("rule", "power"),
    [
        pytest.param(
            rule,
            power,
            marks=[] if power == 1.0 or (name, power) == ("exact", 0.0) else pytest.mark.slow,
            id=f"{name}-{power}",
        )
        for name, rule in (("quick", ArgmaxLikelihood(3).rule), ("exact", Rule()))
        for power in POWERS
    ],
)
def test_argmax_s_value_and_slopes_are_those_of_the_integral(power, rule):
    mean, variance, y = latents(3)
    likelihood = ArgmaxLikelihood(3, noise=0.0, rate=RATE, rule=rule)  # a closed form at every power
    out = expected(likelihood, likelihood.start(), mean, variance, y, power)
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if rule == Rule() else {"rtol": 1e-3, "atol": 1e-4}
    np.testing.assert_allclose(out.value, naive_argmax(mean, variance, y, power), **tolerance)
    by_mean, by_variance = slopes(lambda m, v: naive_argmax(m, v, y, power), mean, variance)
    np.testing.assert_allclose(out.by_mean, by_mean, **tolerance)
    np.testing.assert_allclose(out.by_variance, by_variance, **tolerance)
    h = 1e-4
    up, down = (naive_argmax(mean, variance, y, power, RATE * np.exp(step)) for step in (h, -h))
    np.testing.assert_allclose(out.by_free["log_rate"], (up - down) / (2 * h), rtol=1e-3, atol=1e-5)


@powers
def test_argmax_is_no_surer_than_its_rate_of_mislabelled_rows_allows(power):
    """However far the latents are apart, l is at most log(1 - rate) and, at power 0, at least log(rate / (K - 1))."""
    mean = np.repeat([[0.0], [-300.0], [300.0]], N, axis=1)
    likelihood = ArgmaxLikelihood(3, rate=RATE)
    y = np.resize([0, 1, 2], N)
    out = expected(likelihood, likelihood.start(), mean, np.ones((3, N)), y, power)
    np.testing.assert_allclose(out.value, np.log(np.where(y == 2, 1 - RATE, RATE / 2)), atol=1e-7)
    np.testing.assert_allclose(out.by_mean, 0.0, atol=1e-7)
    np.testing.assert_allclose(out.by_variance, 0.0, atol=1e-7)
    np.testing.assert_allclose(out.by_free["log_rate"], np.where(y == 2, -RATE / (1 - RATE), 1.0), atol=1e-7)


def test_without_mislabelled_rows_the_log_probability_goes_on_falling():
    """A rate of 1e-300 is none: l is log Z down to -690, and the slope is that of a rival's tail."""
    mean = np.repeat([[-36.0], [0.0], [0.0]], N, axis=1)
    likelihood = ArgmaxLikelihood(3, rate=1e-300)
    out = expected(likelihood, likelihood.start(), mean, np.ones((3, N)), np.zeros(N, dtype=int), 1.0)
    # three alike: h_0 meets both rivals at -12, where the exponents are -(24^2 + 2 * 12^2) / 2
    assert out.value[0] == pytest.approx(-(24.0**2 + 2 * 12.0**2) / 2, rel=0.02)
    np.testing.assert_allclose(out.by_mean[0], 24.0, rtol=0.01)


def test_argmax_s_probabilities_are_those_of_the_integral():
    mean, variance, _ = latents(3)
    likelihood = ArgmaxLikelihood(3, rate=RATE)
    P = likelihood.node(likelihood.start()).probabilities(mean, variance - likelihood.noise)
    each = [np.exp(naive_argmax(mean, variance, np.full(N, k), 1.0)) for k in range(3)]
    np.testing.assert_allclose(P, each, atol=1e-9)
    np.testing.assert_allclose(P.sum(axis=0), 1.0, rtol=1e-12)


def test_argmax_at_known_functions():
    latent, _, _ = latents(3)
    sure = ArgmaxLikelihood(3, noise=0.0, rate=RATE)
    largest = latent.argmax(axis=0)
    expected = [[1 - RATE if largest[n] == k else RATE / 2 for n in range(N)] for k in range(3)]
    np.testing.assert_allclose(sure.node(sure.start()).at(latent), expected, rtol=1e-14)
    noisy = ArgmaxLikelihood(3, noise=0.7, rate=RATE)
    each = [np.exp(naive_argmax(latent, np.full((3, N), 0.7), np.full(N, k), 1.0)) for k in range(3)]
    np.testing.assert_allclose(noisy.node(noisy.start()).at(latent), each, atol=1e-9)


def test_the_rate_moves_only_if_asked_and_has_a_prior_about_its_start():
    assert ArgmaxLikelihood(3).learnable() == {"log_rate": False}
    likelihood = ArgmaxLikelihood(3, rate=RATE, learn_rate=True)
    assert likelihood.learnable() == {"log_rate": True}
    assert likelihood.start()["log_rate"] == pytest.approx(np.log(RATE), rel=1e-15)
    assert likelihood.log_prior(likelihood.start()) == 0.0
    assert likelihood.log_prior({"log_rate": np.log(RATE) + 2.0}) == pytest.approx(-2.0, rel=1e-12)


# The argmax node with noise, at powers other than one


def log_probit(f, y, noise):
    """log p(y | f) of latents (K, ...): a plain sum over 161 values of the noise of class y."""
    u, step = np.linspace(-12.0, 12.0, 161, retstep=True)
    rivals = [(f[y] - f[k]) / np.sqrt(noise) for k in range(len(f)) if k != y]
    product = np.prod([scipy.special.ndtr(u + gap[..., None]) for gap in rivals], axis=0)
    return np.log(step * (np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi) * product).sum(axis=-1))


def naive_probit(mean, variance, y, power, rate=RATE, noise=1.0):
    """A product of Gauss-Hermite rules over the differences f_y - f_k, f_y taken as zero."""
    K, out = len(mean), []
    x, w = np.polynomial.hermite_e.hermegauss(120 if K == 2 else 30)
    points = np.stack(np.meshgrid(*[x] * (K - 1))).reshape(K - 1, -1)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * (K - 1))).reshape(K - 1, -1), axis=0)
    for n, own in enumerate(y):
        rivals = [k for k in range(K) if k != own]
        root = np.linalg.cholesky(np.diag(variance[rivals, n]) + variance[own, n])
        gap = (mean[own, n] - mean[rivals, n])[:, None] + root @ points
        p = np.exp(log_probit(np.concatenate([np.zeros((1, len(weights))), -gap]), 0, noise))
        out.append(power_mean((1 - rate) * p + rate / (K - 1) * (1 - p), weights, power))
    return np.array(out)


def of_latents(likelihood, mean, variance, y, power):
    """The likelihood of latents whose variances, as here, do not include the noise."""
    return expected(likelihood, likelihood.start(), mean, variance + likelihood.noise, y, power)


@pytest.mark.parametrize(
    ("K", "n_nodes", "tolerance", "power"),
    [
        pytest.param(K, n_nodes, tolerance, power, marks=[] if (K, power) in quick else pytest.mark.slow)
        for K, n_nodes, tolerance, quick in (
            (2, 128, 1e-6, [(2, 0.5), (2, 0.0)]),
            (3, 128, 0.04, [(3, 0.5), (3, 0.0)]),
            (3, 8192, 0.002, []),
        )
        for power in (0.5, 0.0, 0.05, 0.95)
    ],
)
def test_the_probit_at_any_power_is_the_integral(K, n_nodes, tolerance, power):
    """More nodes come closer: the rule is right, and the rest is its error; of two classes there is none."""
    mean, variance, y = latents(K)
    likelihood = ArgmaxLikelihood(K, noise=0.7, rate=RATE, n_nodes=n_nodes)
    out = of_latents(likelihood, mean, variance, y, power)

    def naive(mean, variance, rate=RATE):
        return naive_probit(mean, variance, y, power, rate, noise=0.7)

    by_mean, by_variance = slopes(naive, mean, variance)
    np.testing.assert_allclose(out.value, naive(mean, variance), atol=tolerance)
    np.testing.assert_allclose(out.by_mean, by_mean, atol=max(tolerance, 1e-5))
    np.testing.assert_allclose(out.by_variance, by_variance, atol=max(tolerance, 1e-5))
    up, down = (naive(mean, variance, RATE * np.exp(step)) for step in (1e-4, -1e-4))
    np.testing.assert_allclose(out.by_free["log_rate"], (up - down) / 2e-4, atol=max(tolerance, 1e-5))


@pytest.mark.parametrize("K", [2, 3])
def test_powers_of_the_probit_meet_at_their_ends(K):
    """A power of nearly one is the integral that power one has exactly, one of nearly zero the mean log-probability."""
    mean, variance, y = latents(K)
    likelihood = ArgmaxLikelihood(K, rate=RATE)
    ends = [of_latents(likelihood, mean, variance, y, power) for power in (1.0, 0.0)]
    near = [of_latents(likelihood, mean, variance, y, power) for power in (0.9999, 1e-6)]
    for end, at, tolerance in zip(ends, near, (0.04, 1e-4), strict=True):
        for a, b in zip(at[:3], end[:3], strict=True):
            np.testing.assert_allclose(a, b, atol=tolerance)


@pytest.mark.parametrize("power", [0.5, 0.0])
@pytest.mark.parametrize("K", [2, 3])
def test_the_probit_of_known_latents_needs_no_nodes(K, power):
    """With no variance: log p, its slopes, and half its second ones with alpha times the first squared."""
    mean, _, y = latents(K)
    likelihood = ArgmaxLikelihood(K, rate=RATE)
    out = of_latents(likelihood, mean, np.zeros((K, N)), y, power)
    exact = of_latents(likelihood, mean, np.zeros((K, N)), y, 1.0)
    np.testing.assert_allclose(out.value, exact.value, atol=1e-4)
    np.testing.assert_allclose(out.by_mean, exact.by_mean, atol=1e-3)
    by_variance = exact.by_variance - 0.5 * (1.0 - power) * exact.by_mean**2
    np.testing.assert_allclose(out.by_variance, by_variance, atol=1e-3)


@pytest.mark.parametrize("power", [0.5, 0.0])
@pytest.mark.parametrize("K", [2, 3])
def test_the_probit_needs_no_mislabelled_rows_to_be_finite(K, power):
    """A class 30 behind its rivals: log p(y | f) falls as the square of that, and no further than log 1e-300."""
    mean = np.zeros((K, N))
    mean[0] = -np.linspace(0.0, 300.0, N)
    likelihood = ArgmaxLikelihood(K, rate=1e-300)
    out = of_latents(likelihood, mean, np.full((K, N), 1e-6), np.zeros(N, dtype=int), power)
    share = 4.0 if K == 2 else 3.0  # of the square of what y is behind: (K - 1) / (2 K)
    np.testing.assert_allclose(out.value[1], -(mean[0, 1] ** 2) / share, rtol=0.05)
    assert (np.diff(out.value) <= 1e-9).all()
    assert (out.value > -700.0).all()
    assert all(np.isfinite(part).all() for part in (*out[:3], out.by_free["log_rate"]))


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.5, 0.0])
def test_the_probit_of_many_classes_is_an_average_over_draws(power):
    """Twelve classes, wide latents, and labels for and against the odds."""
    rng = np.random.default_rng(5)
    mean, variance, y = 2.0 * rng.normal(size=(12, N)), rng.uniform(0.5, 9.0, size=(12, N)), np.arange(N)
    mean[y[:6], np.arange(6)] += 4.0
    out = of_latents(ArgmaxLikelihood(12, rate=RATE), mean, variance, y, power)
    z = rng.normal(size=(12, 2000))
    for n in range(N):
        f = mean[:, n, None] + np.sqrt(variance[:, n, None]) * np.concatenate([z, -z], axis=1)
        p = np.exp(log_probit(f, y[n], 1.0))
        draws = power_mean((1 - RATE) * p + RATE / 11 * (1 - p), np.full(4000, 1 / 4000), power)
        assert out.value[n] == pytest.approx(draws, abs=0.12)
    assert np.abs(out.by_mean.sum(axis=0)).max() < 1e-9


# Softmax


def grid(K, size=40):
    """Nodes (K, size^K) and weights of a product of Gauss-Hermite rules."""
    size = size if K == 2 else 20
    x, w = np.polynomial.hermite_e.hermegauss(size)
    points = np.stack(np.meshgrid(*[x] * K)).reshape(K, -1)
    return points, np.prod(np.stack(np.meshgrid(*[w / w.sum()] * K)).reshape(K, -1), axis=0)


def naive_softmax(mean, variance, y, power):
    points, weights = grid(len(mean))
    h = mean[:, :, None] + np.sqrt(variance)[:, :, None] * points[:, None]
    return power_mean(scipy.special.softmax(h, axis=0)[y, np.arange(N)], weights, power)


@pytest.mark.parametrize(
    ("n_nodes", "tolerance", "K", "power"),
    [
        pytest.param(n_nodes, tolerance, K, power, marks=[] if (K, power) in quick else pytest.mark.slow)
        for n_nodes, tolerance, quick in ((128, 0.05, [(3, 1.0), (2, 0.5), (3, 0.0)]), (8192, 0.003, [(2, 0.5)]))
        for K in (2, 3)
        for power in POWERS
    ],
)
def test_softmax_s_value_and_slopes_are_those_of_the_integral(K, power, n_nodes, tolerance):
    """More nodes come closer: the rule is right, and the rest is its error."""
    mean, variance, y = latents(K, sd=0.8)
    out = expected(SoftmaxLikelihood(K, n_nodes=n_nodes), {}, mean, variance, y, power)
    by_mean, by_variance = slopes(lambda m, v: naive_softmax(m, v, y, power), mean, variance)
    np.testing.assert_allclose(out.value, naive_softmax(mean, variance, y, power), atol=tolerance)
    np.testing.assert_allclose(out.by_mean, by_mean, atol=tolerance)
    np.testing.assert_allclose(out.by_variance, by_variance, atol=tolerance)
    assert out.by_free == {}


@powers
def test_softmax_of_known_latents_needs_no_nodes(power):
    """With no variance: log-softmax, its slopes, and half its second ones with alpha times the first squared."""
    mean, _, y = latents(3)
    out = expected(SoftmaxLikelihood(3), {}, mean, np.zeros((3, N)), y, power)
    p, is_y = scipy.special.softmax(mean, axis=0), np.arange(3)[:, None] == y
    np.testing.assert_allclose(out.value, np.log(p[y, np.arange(N)]), rtol=1e-12)
    np.testing.assert_allclose(out.by_mean, is_y - p, atol=1e-13)
    np.testing.assert_allclose(out.by_variance, 0.5 * (power * (is_y - p) ** 2 - p * (1 - p)), atol=1e-13)


def test_softmax_survives_labels_against_all_odds():
    mean = np.repeat([[-2000.0], [0.0], [1.0]], N, axis=1)
    for power in POWERS:
        out = expected(SoftmaxLikelihood(3), {}, mean, np.ones((3, N)), np.zeros(N, dtype=int), power)
        assert (out.value < -1900.0).all()
        np.testing.assert_allclose(out.by_mean[0], 1.0, atol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
def test_softmax_s_probabilities_are_those_of_the_integral(K):
    mean, variance, _ = latents(K, sd=0.8)
    points, weights = grid(K)
    h = mean[:, :, None] + np.sqrt(variance)[:, :, None] * points[:, None]
    P = SoftmaxLikelihood(K).node({}).probabilities(mean, variance)
    np.testing.assert_allclose(P, scipy.special.softmax(h, axis=0) @ weights, atol=5e-3)
    np.testing.assert_allclose(P.sum(axis=0), 1.0, rtol=1e-12)


def test_softmax_at_known_functions():
    latent, _, _ = latents(3)
    np.testing.assert_allclose(
        SoftmaxLikelihood(3).node({}).at(latent), np.exp(latent) / np.exp(latent).sum(axis=0), rtol=1e-12
    )


# Both


LIKELIHOODS = {
    "argmax": ArgmaxLikelihood(3, noise=1.0, rate=RATE),
    "argmax without noise": ArgmaxLikelihood(3, noise=0.0, rate=RATE),
    "softmax": SoftmaxLikelihood(3),
}


@powers
@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_a_common_shift_is_ignored_where_a_likelihood_says_so(likelihood, power):
    """Expectation propagation relies on it."""
    assert likelihood.ignores_common_shift
    mean, variance, y = latents(3)
    variance = variance + likelihood.noise
    plain, shifted = (expected(likelihood, likelihood.start(), mean + u, variance, y, power) for u in (0.0, 7.0))
    np.testing.assert_allclose(shifted.value, plain.value, rtol=1e-9)
    np.testing.assert_allclose(plain.by_mean.sum(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_probabilities_are_averages_of_those_at_known_functions(likelihood):
    mean, sd = np.array([0.5, -0.3, 0.0]), np.array([0.8, 1.2, 0.4])
    f = np.random.default_rng(1).normal(mean, sd, size=(20_000, 3)).T
    node = likelihood.node(likelihood.start())
    P = node.at(f)
    average, error = P.mean(axis=1), P.std(axis=1) / np.sqrt(20_000)
    direct = node.probabilities(mean[:, None], sd[:, None] ** 2)[:, 0]
    assert (np.abs(average - direct) < 4 * error + 2e-3).all()
